"""Measurements of single trees of hyperplanes, with default settings.

python -m benchmarks.measure.nongreedy GROUP [--data FOLDER] [--quick] [--sets NAME ...]
"""

import statistics
import time

import skforest
from benchmarks.lib import cells, figures, groups
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import mean_sd
from benchmarks.papers.nongreedy import FURTHER, GROWN, SETS
from skforest import CO2ForestClassifier, CO2Procedure, NonGreedyTreeClassifier

# Trees of one kind each.
MODELS = {
    "axis": lambda **kw: CO2ForestClassifier(1, objective=None, **GROWN, **kw),
    "random": lambda **kw: CO2ForestClassifier(
        1, objective="random", **GROWN | {"max_features": "sqrt"}, **kw
    ),
    "co2": lambda **kw: CO2ForestClassifier(
        1, objective="co2", procedure=CO2Procedure(smoothing=1.0), **GROWN, **kw
    ),
    "non-greedy": lambda **kw: NonGreedyTreeClassifier(**kw),
}
REFINED = {"co2 + alternating": "co2", "non-greedy + alternating": "non-greedy"}
DEPTHS = (2, 4, 6, 8, 10, 12, 14, 16, 18)
MEASURES = {
    f"depths/{name}-{model}-{depth}": Measure(
        f"error of one tree, {name}, depth {depth}, {model}", "%", more=False
    )
    for name in (*SETS, *FURTHER)
    for model in (*MODELS, *REFINED)
    for depth in DEPTHS
} | {
    f"seconds/{what}": Measure(f"processor seconds of {text}, MNIST, depth 10", "s", more=False)
    for what, text in (("epoch", "an epoch"), ("sweep", "an alternating sweep"))
}


def depths(options):
    """Test error of one tree of each kind and of growing depth."""
    for name in options.sets or SETS:
        split = groups.load(name, options)
        usual = groups.pick(options, (6, 10, 14) if name == "mnist" else DEPTHS, (4,))
        for depth in options.depths or usual:
            found = {model: [] for model in (*MODELS, *REFINED)}
            for seed in groups.seeds(options):
                fitted = {}
                for model, make in MODELS.items():
                    tree = make(max_depth=depth, random_state=seed)
                    fitted[model] = tree.fit(split.X_train, split.y_train)
                for model, start in REFINED.items():
                    fitted[model] = skforest.refine(
                        fitted[start], split.X_train, split.y_train, random_state=seed
                    )
                for model, tree in fitted.items():
                    found[model].append(100 * (1 - tree.score(split.X_test, split.y_test)))
            for model, errors in found.items():
                yield Row(f"depths/{name}-{model}-{depth}", errors, f"{mean_sd(errors)} %")


def seconds(options):
    """Processor seconds of an epoch and of an alternating sweep: differences of two fits."""
    split = groups.load("mnist", options)
    epochs, sweeps = [], []
    for seed in groups.seeds(options):
        spent = {}
        for n_epochs in (1, 11):
            start = time.process_time()
            tree = NonGreedyTreeClassifier(max_depth=10, n_epochs=n_epochs, random_state=seed)
            tree.fit(split.X_train, split.y_train)
            spent[n_epochs] = time.process_time() - start
        epochs.append((spent[11] - spent[1]) / 10)
        for n_sweeps in (1, 3):
            start = time.process_time()
            skforest.refine(tree, split.X_train, split.y_train, n_sweeps=n_sweeps, random_state=0)
            spent[n_sweeps] = time.process_time() - start
        sweeps.append((spent[3] - spent[1]) / 2)
    yield Row("seconds/epoch", epochs, f"median {statistics.median(epochs):.3f} s")
    yield Row("seconds/sweep", sweeps, f"median {statistics.median(sweeps):.3f} s")


def trees_table(stored):
    """Return the table of test errors of single trees, end-to-end trees included."""
    columns = [("mnist", depth) for depth in (4, 6, 8, 10, 14)]
    columns += [("connect4", depth) for depth in (6, 10, 12)] + [("letter_libsvm", 10)]
    labels = (*MODELS, *REFINED)
    rows = cells.pivot(stored, labels, columns, "measure.nongreedy:depths/{1}-{0}-{2}")
    ours = {"mnist": "trees/mnist-", "connect4": "connect4/"}  # rows of end-to-end trees
    names = [name in ours and f"measure.endtoend:{ours[name]}{n}" for name, n in columns]
    rows.append(("end-to-end", *cells.cells(stored, names)))
    return ("Tree", *(f"{cells.TITLES[name]} {n}" for name, n in columns), "Command"), rows


def depths_figure(stored):
    """Draw test errors by data set, kind of tree and depth."""
    panels = {}
    for name in SETS:
        lines = panels[cells.TITLES[name]] = {}
        for model in (*MODELS, *REFINED):
            names = {d: f"measure.nongreedy:depths/{name}-{model}-{d}" for d in DEPTHS}
            lines[model] = cells.curve(stored, names)
    return figures.depth_curves(panels)


GROUPS = (depths, seconds)
OPTIONS = groups.SETS | groups.SEEDS
OPTIONS |= {"--depths": {"nargs": "*", "type": int, "choices": DEPTHS, "help": "some depths only"}}
TABLES = {"trees": trees_table}
FIGURES = {"nongreedy_depths": depths_figure}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
