"""Experiments of the paper on end-to-end trees: Hehn, Kooij and Hamprecht 2020.

    python -m benchmarks.papers.endtoend GROUP [--data FOLDER] [--quick] [--sets NAME ...]

Routing is hard unless a row says soft, and seconds are processor seconds. ``as-printed`` has the
single trees of figure 2 and the forests of table 1 with the settings of the paper; the forests are
large, and ``--trees`` takes smaller ones. There and in ``tradeoff``, leaves are computed by hard
routing, unless the name of a row ends with trained: these have the leaves of equation 13.
"""

import itertools
import re
import statistics
import time
from dataclasses import replace

import numpy as np
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from benchmarks.lib import cells, data, figures, groups, results
from benchmarks.lib.models import with_changes
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import mean_sd
from skforest import E2EDecisionForest, E2EProcedure

DEPTHS = (4, 6, 8, 10)
ONE = {"n_estimators": 1, "max_features": None}
MNIST = {"feature_shape": (28, 28), "max_depth": 10}
# The settings of the paper: Adam at its default rate, which is constant, and batches of 1000 rows.
PRINTED = {"procedure": E2EProcedure.as_printed()}
COUNTED = {"procedure": E2EProcedure.as_printed(leaves="counts")}
# Forests of table 1 and figure 6.
PRINTED_FORESTS = {
    "letter": {"n_estimators": 70, "max_features": 8},
    "usps": {"n_estimators": 100, "feature_shape": (16, 16), "patch_size": 10},
    "mnist": {"n_estimators": 80, "feature_shape": (28, 28), "patch_size": 15},
}
STEPS, EPOCHS = (0.0, 0.01, 0.1), (15, 30, 45)
# Table 1: accuracies on validation rows, by the step of the steepness and the number of epochs.
TABLE_1 = {
    "letter": "76.7 81.1 84.7 81.8 89.2 92.5 92.6 94.5 95.5",
    "usps": "88.5 92.3 94.1 91.5 95.3 96.3 96.1 96.6 96.7",
    "mnist": "97.9 98.1 98.1 97.9 98.1 98.1 97.7 97.8 97.4",
}
CELLS = [(step, n_epochs) for step in STEPS for n_epochs in EPOCHS]
# Forests of a constant steepness with the leaves of equation 13, too.
TRAINED = {f"{name}-0.0-{n_epochs}-trained" for name in TABLE_1 for n_epochs in EPOCHS}
# Figure 6: epochs of growth, and numbers of trees below that of the paper.
TRADEOFF_EPOCHS = {"letter": 45, "usps": 45, "mnist": 15}
FEW_TREES = (1, 3, 5, 10)
CONNECT4 = (4, 6, 8, 10, 12)
# Figure 2: depths of single trees, and epochs of joint training after 20 of each split.
SINGLE = {"connect4": CONNECT4, "mnist": DEPTHS}
STAGES = {"grown": 0, "printed": 20}
MEMBRANE_EPOCHS = (4, 8, 24)
SMOOTH = {"digits": (8, 8), "mnist": (28, 28), "membranes": (31, 31)}
# A small model, for runs that only show that a group works.
QUICK = {"n_estimators": 2, "max_depth": 4, "greedy_epochs": 1, "finetune_epochs": 2}
MEASURES = {
    f"as-printed/{name}-{stage}/{depth}": Measure(
        f"accuracy of one tree, {name}, depth {depth}, settings of the paper"
        + ("" if n_epochs else ", without joint training"),
        "%",
    )
    for name, depths in SINGLE.items()
    for stage, n_epochs in STAGES.items()
    for depth in depths
}
MEASURES |= {
    f"as-printed/{name}-{step}-{n_epochs}": Measure(
        f"accuracy on validation rows, {name}, step {step}, {n_epochs} epochs",
        "%",
        paper=float(paper),
    )
    for name, papers in TABLE_1.items()
    for (step, n_epochs), paper in zip(CELLS, papers.split(), strict=True)
}
for name in TRAINED:
    plain = MEASURES[f"as-printed/{name.removesuffix('-trained')}"]
    what = f"{plain.what}, leaves of equation 13"
    MEASURES[f"as-printed/{name}"] = replace(plain, what=what)
    MEASURES[f"as-printed/{name}-soft"] = Measure(f"{what}, soft routing", "%")
    MEASURES[f"as-printed/{name}-seconds"] = Measure(
        f"processor seconds of that fit, {name}", "s", more=False
    )
for name in PRINTED_FORESTS:
    for model in ("printed", "defaults", "RandomForest"):
        MEASURES[f"tradeoff/{name}-{model}"] = Measure(f"accuracy, {name}, {model}", "%")
for n_epochs, leaves in itertools.product(MEMBRANE_EPOCHS, ("trained", "counts")):
    for routing in ("soft", "hard"):
        MEASURES[f"membranes/{leaves}-{routing}-{n_epochs}"] = Measure(
            f"accuracy, membranes, depth 6, {n_epochs} epochs, {leaves} leaves, {routing} routing",
            "%",
        )
    MEASURES[f"membranes/{leaves}-gap-{n_epochs}"] = Measure(
        f"mean difference of soft and hard probability, {n_epochs} epochs, {leaves} leaves",
        "ratio",
        more=False,
    )
MEASURES |= {
    f"smoothness/{name}-{kind}": Measure(f"accuracy of one tree, {name}, {kind}", "%")
    for name in SMOOTH
    for kind in ("rough", "smooth")
}
MEASURES |= {
    "cnn/mnist": Measure("accuracy, one tree of small networks, MNIST, 10 leaves", "%"),
    "cnn/mnist-soft": Measure("accuracy of the same tree, soft routing", "%"),
    "cnn/mnist-seconds": Measure("wall-clock seconds of its fit", "s", more=False),
}


def rows_of(name, split, parameters, options, seeds=3, has_soft=False):
    """Yield rows of hard accuracy over some seeds, optionally also soft accuracy and fit times."""
    parameters = groups.pick(options, parameters, parameters | QUICK)
    hard, soft, spent, leaves = [], [], [], []
    for seed in groups.seeds(options, seeds):
        model = E2EDecisionForest(**parameters, random_state=seed)
        start = time.process_time()
        model.fit(split.X_train, split.y_train)
        spent.append(time.process_time() - start)
        scores = model.routing_scores(split.X_test, split.y_test)
        hard.append(100 * scores["hard"])
        soft.append(100 * scores["soft"])
        leaves.append(model.forest_.n_leaves.mean())
    n, n_leaves = len(model.forest_), statistics.fmean(leaves)
    note = f"{mean_sd(hard)} %, {n} tree{'s' * (n > 1)}, {n_leaves:.0f} leaves each"
    yield Row(name, hard, note)
    if has_soft:
        yield Row(f"{name}-soft", soft)
        yield Row(f"{name}-seconds", spent)


def as_printed(options):
    """Figure 2; table 1: increase of the steepness in each epoch, number of epochs.

    ``--sets connect4-trees mnist-trees`` are those of figure 2.
    """
    for name, depths in SINGLE.items():
        if not is_wanted(f"{name}-trees", options):
            continue
        split = groups.load(name, options)
        for depth in depths:
            for stage, n_epochs in STAGES.items():
                own = COUNTED | ONE | {"max_depth": depth, "greedy_epochs": 20}
                own |= {"finetune_epochs": n_epochs}
                own |= {"feature_shape": MNIST["feature_shape"]} if name == "mnist" else {}
                yield from rows_of(f"as-printed/{name}-{stage}/{depth}", split, own, options)
    for name, forest in PRINTED_FORESTS.items():
        wanted = {}
        for (step, n_epochs), leaves in itertools.product(CELLS, ("", "-trained")):
            row = f"{name}-{step}-{n_epochs}{leaves}"
            if f"as-printed/{row}" in MEASURES:
                if is_wanted(f"{name}{leaves}", options) or is_wanted(row, options):
                    wanted[row] = step, n_epochs
        if not wanted:
            continue
        split = validation(groups.load(name, options))
        for row, (step, n_epochs) in wanted.items():
            own = PRINTED if row in TRAINED else COUNTED
            own = with_changes(own, {"steepness_step": step}) | forest | {"max_depth": 10}
            own |= {"greedy_epochs": n_epochs, "finetune_epochs": 3 * n_epochs}
            own["n_estimators"] = options.trees or own["n_estimators"]
            own["n_jobs"] = options.n_jobs
            yield from rows_of(f"as-printed/{row}", split, own, options, 1, row in TRAINED)


def tradeoff(options):
    """Measure figure 6 of the paper: splits that a row passes in the first trees, and accuracy."""
    path = options.results / "endtoend_tradeoff.json"
    stored = results.read(path)
    for name, forest in PRINTED_FORESTS.items():
        if not is_wanted(name, options):
            continue
        split = groups.load(name, options)
        n_epochs = TRADEOFF_EPOCHS[name]
        own = COUNTED | forest | {"max_depth": 10, "greedy_epochs": n_epochs}
        own |= {"finetune_epochs": 3 * n_epochs}
        own["n_estimators"] = n = options.trees or own["n_estimators"]
        ours = {key: own[key] for key in own if key in ("n_estimators", "feature_shape")}
        models = {
            "printed": E2EDecisionForest(**groups.pick(options, own, own | QUICK)),
            "defaults": E2EDecisionForest(**groups.pick(options, ours, ours | QUICK)),
            "RandomForest": RandomForestClassifier(groups.pick(options, n, 2)),
        }
        stored[name] = {}
        for model_name, model in models.items():
            model.set_params(random_state=0).fit(split.X_train, split.y_train)
            points = _tradeoff_points(model, split)
            stored[name][model_name] = points
            accuracy = points[-1][2]
            yield Row(f"tradeoff/{name}-{model_name}", [accuracy], f"{points[-1][0]} trees")
        results.write(path, stored)


def _tradeoff_points(model, split):
    """Return number of trees, splits that a row passes in them, and accuracy in percent."""
    paths, starts = model.decision_path(split.X_test)
    nodes = np.diff(paths.tocsc().indptr)  # rows at each node
    points = []
    for n in sorted({*FEW_TREES, model.n_estimators}):
        if n > model.n_estimators:
            break
        if isinstance(model, E2EDecisionForest):
            response = model.forest_[:n].response(split.X_test)
        else:
            response = sum(tree.predict_proba(split.X_test) for tree in model.estimators_[:n])
        found = model.classes_[response.argmax(axis=1)]
        passed = nodes[: starts[n]].sum() / len(found) - n  # without leaves
        points.append([n, float(passed), 100 * float((found == split.y_test).mean())])
    return points


def smoothness(options):
    """Figure 4 of the paper: one tree with and without the penalty of equation 15."""
    pictures = {}
    for name, shape in SMOOTH.items():
        split = _smoothness_split(name, options)
        for kind, value in (("rough", 0.0), ("smooth", 0.001)):
            own = ONE | {"max_depth": 6, "feature_shape": shape, "smoothness": value}
            yield from rows_of(f"smoothness/{name}-{kind}", split, own, options)
            own = groups.pick(options, own, own | QUICK | {"n_estimators": 1})
            forest = E2EDecisionForest(**own, random_state=0).fit(*_train(split)).forest_
            weights = forest.directions().toarray()[:6] * forest.scale
            weights = 100 * weights / np.abs(weights).max(axis=1, keepdims=True)
            images = weights.reshape(-1, *shape)
            pictures[f"{name}, {kind}"] = [results.to_text(image) for image in images]
    results.write(options.results / "endtoend_splits.json", pictures)


def _smoothness_split(name, options):
    if name == "digits":
        return _digits()
    if name == "membranes":
        return data.membranes(options.data, groups.pick(options, 10_000, 500), size=31)
    return groups.load(name, options).head(20_000)


def membranes(options):
    """Figure 3 of the paper: predictions with soft and hard routing after some epochs."""
    split = data.membranes(options.data, n_train=1000 if options.quick else 40_000)
    epochs = {}
    for n_epochs, leaves in itertools.product(MEMBRANE_EPOCHS, ("trained", "counts")):
        changes = {"growth": "complete", "leaves": leaves, "finetune_epochs": n_epochs}
        own = with_changes(PRINTED, changes)
        model = E2EDecisionForest(1, **own, max_depth=6, feature_shape=(9, 9), random_state=0)
        model.fit(*_train(split))
        scores = model.routing_scores(split.X_test, split.y_test)
        yield Row(f"membranes/{leaves}-soft-{n_epochs}", [100 * scores["soft"]])
        yield Row(f"membranes/{leaves}-hard-{n_epochs}", [100 * scores["hard"]])
        yield Row(f"membranes/{leaves}-gap-{n_epochs}", [scores["gap"]])
        if leaves == "trained":
            epochs[n_epochs] = {}
            for routing in ("soft", "hard"):
                proba = model.set_params(routing=routing).predict_proba(split.X_test)[:, 1]
                epochs[n_epochs][routing] = results.packed(100 * proba)
    stored = {"image": results.packed(split.X_test[:, 40]), "labels": results.packed(split.y_test)}
    results.write(options.results / "endtoend_membranes.json", stored | {"epochs": epochs})


def cnn(options):
    """Section 3.4 of the paper: small networks as splits, 10 leaves; needs PyTorch."""
    import torch

    from skforest.torch import E2ENetworkTree

    split = groups.load("mnist", options)
    hard, soft, spent = [], [], []
    for seed in groups.seeds(options):
        greedy, joint = (1, 1) if options.quick else (5, 20)
        model = E2ENetworkTree(
            feature_shape=(28, 28), greedy_epochs=greedy, finetune_epochs=joint, random_state=seed
        )
        start = time.perf_counter()
        model.fit(split.X_train, split.y_train)
        spent.append(time.perf_counter() - start)
        hard.append(100 * model.score(split.X_test, split.y_test))
        model.set_params(routing="soft")
        soft.append(100 * model.score(split.X_test, split.y_test))
    yield Row("cnn/mnist", hard, f"{mean_sd(hard)} %, {torch.get_num_threads()} threads")
    yield Row("cnn/mnist-soft", soft)
    yield Row("cnn/mnist-seconds", spent)


def _train(split):
    return split.X_train, split.y_train


def is_wanted(name, options):
    return not options.sets or name in options.sets


def _digits():
    X, y = load_digits(return_X_y=True)
    return data.Split(X[:1200], y[:1200], X[1200:], y[1200:])


def validation(split):
    """Use a random fifth of the training rows as test rows."""
    order = np.random.default_rng(0).permutation(len(split.X_train))
    test, train = np.split(order, [len(order) // 5])
    X, y = split.X_train, split.y_train
    return data.Split(X[train], y[train], X[test], y[test])


def steepness_table(stored):
    """Return table 1 of the paper."""
    columns = [(name, n) for name in TABLE_1 for n in EPOCHS]
    rows = []
    for step in STEPS:
        found = [stored[f"papers.endtoend:as-printed/{name}-{step}-{n}"] for name, n in columns]
        shown = [_with_trees(row, name) for row, (name, _) in zip(found, columns, strict=True)]
        rows.append((str(step), *shown, cells.commands(found)))
    for label, ending in (("", "-trained"), (", soft routing", "-trained-soft")):
        names = [f"papers.endtoend:as-printed/{name}-0.0-{n}{ending}" for name, n in columns]
        rows.append((f"0.0, leaves of equation 13{label}", *cells.cells(stored, names)))
    titles = (f"{cells.TITLES[name]}, {n} epochs" for name, n in columns)
    return ("Step", *titles, "Command"), rows


def _with_trees(row, name):
    """Format an error of table 1, with the number of trees if the paper has more."""
    n_trees = re.search(r"(\d+) trees?,", row["note"])[1]
    text = cells.cell(row)
    if int(n_trees) < PRINTED_FORESTS[name]["n_estimators"]:
        text += f", {n_trees} trees"
    return text


def membranes_table(stored):
    """Return the table of errors with soft and with hard routing: figure 3 of the paper."""
    rows = []
    kinds = {"trained": "equation 13", "counts": "hard routing"}
    for leaves, n_epochs in itertools.product(kinds, MEMBRANE_EPOCHS):
        names = [
            f"papers.endtoend:membranes/{leaves}-{what}-{n_epochs}"
            for what in ("soft", "hard", "gap")
        ]
        rows.append((str(n_epochs), kinds[leaves], *cells.cells(stored, names)))
    head = ("Epochs", "Leaves", "Soft routing", "Hard routing", "Difference of probabilities")
    return (*head, "Command"), rows


def single_table(stored):
    """Return the table of single trees by depth: figure 2 of the paper."""
    defaults = {"connect4": "connect4/", "mnist": "trees/mnist-"}
    rows = []
    for name in SINGLE:
        for label, start in (
            ("as printed, without joint training", f"papers.endtoend:as-printed/{name}-grown/"),
            ("as printed", f"papers.endtoend:as-printed/{name}-printed/"),
            ("defaults", f"measure.endtoend:{defaults[name]}"),
        ):
            names = [f"{start}{depth}" for depth in CONNECT4]
            rows.append((f"{cells.TITLES[name]}: {label}", *cells.cells(stored, names)))
    return ("", *(f"depth {depth}" for depth in CONNECT4), "Command"), rows


def tradeoff_table(stored):
    """Return the table of errors and passed splits of end-to-end and random forests."""
    titles = {"printed": "as printed", "defaults": "defaults", "RandomForest": "RandomForest"}
    rows = []
    for name, models in stored.file("papers.endtoend_tradeoff", "tradeoff").items():
        for model, points in models.items():
            command = cells.commands([stored[f"papers.endtoend:tradeoff/{name}-{model}"]])
            for n, passed, accuracy in points:
                if n in (1, 10) or n == points[-1][0]:
                    shown = str(n), f"{passed:.0f}", f"{100 - accuracy:.2f}"
                    rows.append((cells.TITLES[name], titles[model], *shown, command))
    head = ("Set", "Forest", "Trees", "Splits that a row passes", "Test error in %")
    return (*head, "Command"), rows


def tradeoff_figure(stored):
    """Draw accuracies against the splits that a row passes: figure 6 of the paper."""
    return figures.tradeoff(cells.titled(stored.file("papers.endtoend_tradeoff", "tradeoff")))


def splits_figure(stored):
    """Draw splits as images: figures 4 and 5 of the paper."""
    return figures.split_images(cells.titled(stored.file("papers.endtoend_splits", "smoothness")))


def membranes_figure(stored):
    """Draw predictions after some epochs: figure 3 of the paper."""
    return figures.posteriors(stored.file("papers.endtoend_membranes", "membranes"))


GROUPS = (as_printed, tradeoff, smoothness, membranes, cnn)
OPTIONS = groups.SETS | groups.SEEDS
OPTIONS |= {"--trees": {"type": int, "help": "trees of a forest of the paper"}}
TABLES = {
    "endtoend_steepness": steepness_table,
    "endtoend_single": single_table,
    "endtoend_membranes": membranes_table,
    "endtoend_tradeoff": tradeoff_table,
}
FIGURES = {
    "endtoend_tradeoff": tradeoff_figure,
    "endtoend_splits": splits_figure,
    "endtoend_membranes": membranes_figure,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
