"""Measurements of end-to-end trees and forests.

    python benchmarks/endtoend.py GROUP [--data FOLDER] [--quick] [--sets NAME ...] [--rounds N]

A group merges its rows into ``benchmarks/results/endtoend.json``. Routing is hard unless a row
says soft, and seconds are processor seconds. ``as-printed`` is table 1 of the paper with its
settings; its forests are large, and ``--trees`` takes smaller ones.
"""

import statistics
import time
from types import SimpleNamespace

import data
import figures
import groups
import numpy as np
import results
from results import Measure, Row
from skforest._kernels.endtoend.trainer import SoftTrainer
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from timing import mean_sd

from skforest import E2EDecisionForest
from skforest.forest.edit import DenseTree
from skforest.training.endtoend import Units

DEPTHS = (4, 6, 8, 10)
ONE = {"n_estimators": 1, "max_features": None}
LONG = {"finetune_epochs": 30}  # Letter needs more epochs than the default
MORE = {"finetune_epochs": 12}  # MNIST, where the default is 8
STEEP = {"steepness": 3.0}  # fewer branches have a notable weight, so a fit is faster
PAPER = {"max_depth": 10, "greedy_epochs": 15}
USPS = {"n_estimators": 100, "feature_shape": (16, 16), "patch_size": 10} | PAPER
MNIST = {"feature_shape": (28, 28), "max_depth": 10}
FORESTS = {
    "letter-10": ("letter", {"n_estimators": 10, "max_features": None} | LONG),
    "letter-70": ("letter", {"n_estimators": 70, "max_features": 8} | LONG),
    "usps-100": ("usps", USPS),
    "usps-100-validation": ("usps", USPS),
    "mnist-8": ("mnist", {"n_estimators": 8, "max_features": None} | MNIST | STEEP),
    "mnist-80": ("mnist", {"n_estimators": 80, "patch_size": 15} | MNIST | MORE),
}
# The settings of the paper: Adam at its default rate, which is constant, and batches of 1000 rows.
PRINTED = {
    "learning_rate": 0.001,
    "schedule": "constant",
    "batch_size": 1000,
    "min_batches": 1,
    "steepness_step": 0.1,
}
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


def _with_soft(name, what):
    """Measures of a model: accuracy with hard and with soft routing, and fit time."""
    return {
        name: Measure(f"accuracy, {what}", "%"),
        f"{name}-soft": Measure(f"accuracy, {what}, soft routing", "%"),
        f"{name}-seconds": Measure(f"processor seconds of a fit, {what}", "s", more=False),
    }


MEASURES = {}
for depth in DEPTHS:
    longer = ", 12 epochs" if depth == 6 else ""
    MEASURES |= _with_soft(f"trees/mnist-{depth}", f"one tree, MNIST, depth {depth}{longer}")
MEASURES |= _with_soft("trees/letter-10", "one tree, Letter, depth 10")
for name in FORESTS:
    source, n, *rows = name.split("-")
    what = ", ".join([f"{n} trees, {source}", *(f"{part} rows" for part in rows)])
    MEASURES |= _with_soft(f"forests/{name}", what)
MEASURES |= {
    f"connect4/{depth}": Measure(f"accuracy of one tree, Connect4, depth {depth}", "%")
    for depth in CONNECT4
}
MEASURES |= {
    f"{name}-{stage}/{depth}": Measure(
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
for name in PRINTED_FORESTS:
    for model in ("printed", "defaults", "RandomForest"):
        MEASURES[f"tradeoff/{name}-{model}"] = Measure(f"accuracy, {name}, {model}", "%")
for n_epochs in MEMBRANE_EPOCHS:
    for routing in ("soft", "hard"):
        MEASURES[f"membranes/{routing}-{n_epochs}"] = Measure(
            f"accuracy, membranes, depth 6, {n_epochs} epochs, {routing} routing", "%"
        )
    MEASURES[f"membranes/gap-{n_epochs}"] = Measure(
        f"mean difference of soft and hard probability, membranes, {n_epochs} epochs",
        "ratio",
        more=False,
    )
MEASURES |= {
    f"smoothness/{name}-{kind}": Measure(f"accuracy of one tree, {name}, {kind}", "%")
    for name in SMOOTH
    for kind in ("rough", "smooth")
}
MEASURES |= {
    "default/fit": Measure(
        "processor seconds of a fit, defaults, 10000 x 50 rows, 5 classes", "s", more=False
    ),
    "default/accuracy": Measure("accuracy, defaults, 10000 x 50 rows, 5 classes", "%"),
    "cnn/mnist": Measure("accuracy, one tree of small networks, MNIST, 10 leaves", "%"),
    "cnn/mnist-soft": Measure("accuracy of the same tree, soft routing", "%"),
    "cnn/mnist-seconds": Measure("wall-clock seconds of its fit", "s", more=False),
}
for engine in ("lists", "products"):
    for when in ("first", "last"):
        MEASURES[f"engines/{engine}-{when}"] = Measure(
            f"products of rows and weights, {engine}, MNIST, depth 8, {when} epoch", "GFLOP/s"
        )
        MEASURES[f"engines/{engine}-{when}-seconds"] = Measure(
            f"that epoch, {engine}, {when} epoch, 10000 rows", "s", more=False
        )


def _run(name, split, parameters, options, seeds=3):
    """Rows of hard and soft accuracy and of fit times, over some seeds."""
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
    if f"{name}-soft" in MEASURES:
        yield Row(f"{name}-soft", soft)
        yield Row(f"{name}-seconds", spent)


def trees(options):
    """Single trees of growing depth."""
    for name, depths in (("mnist", DEPTHS), ("letter", (10,))):
        split = groups.load(name, options)
        for depth in depths:
            if _wanted(f"{name}-{depth}", options):
                parameters = ONE | {"max_depth": depth}
                parameters |= {"feature_shape": (28, 28)} if name == "mnist" else LONG
                parameters |= MORE if depth == 6 else {}
                yield from _run(f"trees/{name}-{depth}", split, parameters, options)


def forests(options):
    """Forests of the paper's sizes, and smaller ones that use all features."""
    for name, (source, parameters) in FORESTS.items():
        if _wanted(name, options):
            split = groups.load(source, options)
            split = _validation(split) if "validation" in name else split
            yield from _run(f"forests/{name}", split, parameters, options)


def connect4(options):
    """Single trees of growing depth, on the rows of `data.connect4`."""
    split = groups.load("connect4", options)
    for depth in CONNECT4:
        yield from _run(f"connect4/{depth}", split, ONE | {"max_depth": depth}, options)


def as_printed(options):
    """Figure 2; table 1: increase of the steepness in each epoch, number of epochs.

    ``--sets connect4-trees mnist-trees`` are those of figure 2.
    """
    for name, depths in SINGLE.items():
        if not _wanted(f"{name}-trees", options):
            continue
        split = groups.load(name, options)
        for depth in depths:
            for stage, n_epochs in STAGES.items():
                own = PRINTED | ONE | {"max_depth": depth, "greedy_epochs": 20}
                own |= {"finetune_epochs": n_epochs}
                own |= {"feature_shape": MNIST["feature_shape"]} if name == "mnist" else {}
                yield from _run(f"{name}-{stage}/{depth}", split, own, options)
    for name, forest in PRINTED_FORESTS.items():
        wanted = {
            (step, n_epochs): f"{name}-{step}-{n_epochs}"
            for step, n_epochs in CELLS
            if _wanted(name, options) or _wanted(f"{name}-{step}-{n_epochs}", options)
        }
        if not wanted:
            continue
        split = _validation(groups.load(name, options))
        for (step, n_epochs), row in wanted.items():
            own = PRINTED | forest | {"max_depth": 10, "steepness_step": step}
            own |= {"greedy_epochs": n_epochs, "finetune_epochs": 3 * n_epochs}
            own["n_estimators"] = options.trees or own["n_estimators"]
            own["n_jobs"] = options.n_jobs
            yield from _run(f"as-printed/{row}", split, own, options, 1)


def tradeoff(options):
    """Figure 6 of the paper: splits that a row passes in the first trees, and accuracy."""
    path = options.results / "endtoend_tradeoff.json"
    stored = results.read(path)
    for name, forest in PRINTED_FORESTS.items():
        if not _wanted(name, options):
            continue
        split = groups.load(name, options)
        n_epochs = TRADEOFF_EPOCHS[name]
        own = PRINTED | forest | {"max_depth": 10, "greedy_epochs": n_epochs}
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
    """Number of trees, splits that a row passes in them, and accuracy in percent."""
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
        passed = nodes[: starts[n]].sum() / len(found) - n  # a leaf is no split
        points.append([n, float(passed), 100 * float((found == split.y_test).mean())])
    return points


def smoothness(options):
    """Figure 4 of the paper: one tree with and without the penalty of equation 15."""
    pictures = {}
    for name, shape in SMOOTH.items():
        split = _smoothness_split(name, options)
        for kind, value in (("rough", 0.0), ("smooth", 0.001)):
            own = ONE | {"max_depth": 6, "feature_shape": shape, "smoothness": value}
            yield from _run(f"smoothness/{name}-{kind}", split, own, options)
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
    output = figures.folder(options)
    pictures = {}
    for n_epochs in MEMBRANE_EPOCHS:
        own = PRINTED | {"growth": "complete", "max_depth": 6, "finetune_epochs": n_epochs}
        model = E2EDecisionForest(1, **own, feature_shape=(9, 9), random_state=0)
        model.fit(*_train(split))
        scores = model.routing_scores(split.X_test, split.y_test)
        yield Row(f"membranes/soft-{n_epochs}", [100 * scores["soft"]])
        yield Row(f"membranes/hard-{n_epochs}", [100 * scores["hard"]])
        yield Row(f"membranes/gap-{n_epochs}", [scores["gap"]])
        pictures[n_epochs] = [
            model.set_params(routing=routing).predict_proba(split.X_test)[:, 1].reshape(200, 200)
            for routing in ("soft", "hard")
        ]
    image, labels = (part.reshape(200, 200) for part in (split.X_test[:, 40], split.y_test))
    figures.posteriors(pictures, image, labels, output / "endtoend_membranes.png")


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


def default(options):
    """Default settings on simulated rows."""
    split = data.synthetic(500 if options.quick else 10_000, 50)
    spent, found = [], []
    for seed in groups.seeds(options):
        model = E2EDecisionForest(random_state=seed)
        start = time.process_time()
        model.fit(split.X_train, split.y_train)
        spent.append(time.process_time() - start)
        found.append(100 * model.score(split.X_test, split.y_test))
    yield Row("default/fit", spent)
    yield Row("default/accuracy", found, f"{mean_sd(found)} %")


def engines(options):
    """Speed of both ways to compute joint training, and share of the splits that rows visit."""
    split = groups.load("mnist", options).head(10_000)
    model = E2EDecisionForest(1, max_depth=8, finetune_epochs=0, random_state=0)
    model.fit(split.X_train, split.y_train)
    last = model.get_params() | {"finetune_epochs": 10}
    for when in ("first", "last"):
        if when == "last":
            model = E2EDecisionForest(**last).fit(split.X_train, split.y_train)
        forest = model.forest_
        rows = SimpleNamespace(
            X=forest.map_features(split.X_train),
            target=split.y_train.astype(np.int32),
            weight=np.ones(len(split.X_train)),
            n_outputs=10,
        )
        ones = np.ones(forest.n_features, dtype=np.float32)
        units = Units(0 * ones, ones, None, 0, np.zeros((0, 2), dtype=np.int32))
        how = SimpleNamespace(
            units=units, annealing=SimpleNamespace(batch_size=1000), smoothness=0.0
        )
        for engine in ("lists", "products"):
            stop, tree = np.zeros(1, dtype=np.uint8), DenseTree.of(forest)
            trainer = SoftTrainer(rows, how, 0, stop, tree, engine)
            trainer.run(model.steepness_, 1e-9)  # computes the leaf values
            spent, speed = [], []
            for _ in range(3):
                work, start = trainer.work_done, time.process_time()
                trainer.run(model.steepness_, 1e-9)
                spent.append(time.process_time() - start)
                speed.append((trainer.work_done - work) / spent[-1] / 1e9)
            note = f"{100 * trainer.visited:.1f} % of the splits visited by a row"
            yield Row(f"engines/{engine}-{when}", speed, note)
            yield Row(f"engines/{engine}-{when}-seconds", spent)


def _train(split):
    return split.X_train, split.y_train


def _wanted(name, options):
    return not options.sets or name in options.sets


def _digits():
    X, y = load_digits(return_X_y=True)
    return data.Split(X[:1200], y[:1200], X[1200:], y[1200:])


def _validation(split):
    """Use a random fifth of the training rows as test rows."""
    order = np.random.default_rng(0).permutation(len(split.X_train))
    test, train = np.split(order, [len(order) // 5])
    X, y = split.X_train, split.y_train
    return data.Split(X[train], y[train], X[test], y[test])


if __name__ == "__main__":
    groups.main(
        __doc__,
        (
            *(as_printed, tradeoff, trees, forests, connect4, smoothness, membranes, cnn),
            *(default, engines),
        ),
        MEASURES,
        groups.SETS
        | groups.SEEDS
        | {"--trees": {"type": int, "help": "trees of a forest of the paper"}},
    )
