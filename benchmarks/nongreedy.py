"""Every figure of single trees of hyperplanes, each group of them by one command.

    python benchmarks/nongreedy.py GROUP [--data FOLDER] [--quick] [--sets NAME ...]

A group merges its rows into ``benchmarks/results/nongreedy.json``; the last command, ``table``,
writes table and picture into ``docs/performance``.
"""

import statistics
import time
from pathlib import Path

import data
import figures
import groups
import results
from results import Bar, Row
from timing import mean_sd

import skforest
from skforest import CO2ForestClassifier, NonGreedyTreeClassifier

FOLDER = Path(__file__).resolve().parent
# Nothing is chosen, nothing guarded, and all features compete for the first cut of a node.
GROWN = {"max_features": None, "bootstrap": False, "holdout": 0.0}
# Trees of one kind each.
MODELS = {
    "axis": lambda **kw: CO2ForestClassifier(1, objective=None, **GROWN, **kw),
    "random": lambda **kw: CO2ForestClassifier(
        1, objective="random", **GROWN | {"max_features": "sqrt"}, **kw
    ),
    "co2": lambda **kw: CO2ForestClassifier(1, objective="co2", smoothing=1.0, **GROWN, **kw),
    "non-greedy": lambda **kw: NonGreedyTreeClassifier(**kw),
}
REFINED = {"co2 + alternating": "co2", "non-greedy + alternating": "non-greedy"}
# Test errors wanted of a tree of depth 6, 10 and 14 on MNIST.
WANTED = {
    "co2": (10.5, 6.5, 6.5),
    "non-greedy": (6.5, 5.3, 4.2),
    "non-greedy + alternating": (5.3, 4.0, 3.8),
}
DEPTHS = (2, 4, 6, 8, 10, 12, 14, 16, 18)
SETS = ("mnist", "connect4", "letter_libsvm", "usps")
SECONDS = {"epoch": ("an epoch", 0.2), "sweep": ("an alternating sweep", 1.0)}


def _wanted(name, model, depth):
    if name == "mnist" and model in WANTED and depth in (6, 10, 14):
        return WANTED[model][(depth - 6) // 4]
    return None


BARS = {
    f"depths/{name}-{model}-{depth}": Bar(
        f"error of one tree, {name}, depth {depth}, {model}",
        "%",
        _wanted(name, model, depth),
        more=False,
    )
    for name in SETS
    for model in (*MODELS, *REFINED)
    for depth in DEPTHS
} | {
    f"seconds/{what}": Bar(f"processor seconds of {text}, MNIST, depth 10", "s", bar, more=False)
    for what, (text, bar) in SECONDS.items()
}


def depths(options):
    """Test error of one tree of each kind against its depth."""
    for name in options.sets or SETS:
        split = _load(name, options)
        for depth in options.depths or ((6, 10, 14) if name == "mnist" else DEPTHS):
            found = {model: [] for model in (*MODELS, *REFINED)}
            for seed in range(options.rounds or 3):
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
    """Processor seconds of one thread for an epoch, and for a sweep, by differences of fits."""
    split = _load("mnist", options)
    epochs, sweeps = [], []
    for seed in range(options.rounds or 3):
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


def table(options):
    """Write table and picture of all stored rows into the documentation."""
    output = options.results if options.quick else FOLDER.parent / "docs" / "performance"
    stored = results.read(options.results / "nongreedy.json")
    output.mkdir(parents=True, exist_ok=True)
    # All depths are in the picture; the table has those of the bars.
    shown = [
        stored[name]
        for name, bar in BARS.items()
        if name in stored and ("mnist" in name or bar.unit == "s")
    ]
    (output / "nongreedy.inc").write_text("\n".join(results.list_table(shown)) + "\n")
    curves = {}
    for name in SETS:
        for model in (*MODELS, *REFINED):
            points = {d: stored.get(f"depths/{name}-{model}-{d}") for d in DEPTHS}
            points = {d: row["value"] for d, row in points.items() if row}
            if points:
                curves.setdefault(name, {})[model] = points
    figures.depth_curves(curves, output / "nongreedy_depths.png")
    return ()


def _load(name, options):
    if name == "connect4":
        split = data.connect4(options.data)
    else:
        split = data.load(name, options.data)
    return split.head(600, 200) if options.quick else split


def main():
    """Run one group and store its rows."""
    functions = (depths, seconds, table)
    parser = groups.parser(__doc__, functions)
    parser.add_argument("--sets", nargs="*", choices=SETS, help="some data sets only")
    parser.add_argument("--depths", nargs="*", type=int, choices=DEPTHS, help="some depths only")
    groups.run(parser, BARS)


if __name__ == "__main__":
    main()
