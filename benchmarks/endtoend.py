"""Measurements of end-to-end trees and forests.

    python benchmarks/endtoend.py GROUP [--data FOLDER] [--quick] [--sets NAME ...] [--rounds N]

A group merges its rows into ``benchmarks/results/endtoend.json``. Routing is hard unless a row
says soft, and seconds are processor seconds.
"""

import statistics
import time

import data
import figures
import groups
import numpy as np
from results import Measure, Row
from skforest._kernels.soft import SoftTrainer
from sklearn.datasets import load_digits
from timing import mean_sd

from skforest import E2EDecisionForest

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
STEPS, EPOCHS = (0.0, 0.01, 0.1), (15, 30, 45)
# Sets of the steepness table: training rows, and a smaller forest than the paper's.
STEEPNESS = {
    "letter": (2500, {"max_features": 8}),
    "usps": (None, {"feature_shape": (16, 16), "patch_size": 10}),
    "mnist": (20_000, {"feature_shape": (28, 28), "patch_size": 15}),
}
CONNECT4 = (4, 6, 8, 10, 12)
MEMBRANE_EPOCHS = (4, 8, 24)
SMOOTH = {"digits": (8, 8), "mnist": (28, 28)}
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
    f"steepness/{name}-{step}-{epochs}": Measure(
        f"accuracy on validation rows, {name}, step {step}, {epochs} epochs", "%"
    )
    for name in STEEPNESS
    for step in STEPS
    for epochs in EPOCHS
}
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
    for seed in range(options.rounds or seeds):
        model = E2EDecisionForest(**parameters, random_state=seed)
        start = time.process_time()
        model.fit(split.X_train, split.y_train)
        spent.append(time.process_time() - start)
        scores = model.routing_scores(split.X_test, split.y_test)
        hard.append(100 * scores["hard"])
        soft.append(100 * scores["soft"])
        leaves.append(model.forest_.n_leaves.mean())
    yield Row(name, hard, f"{mean_sd(hard)} %, {statistics.fmean(leaves):.0f} leaves a tree")
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


def steepness(options):
    """Table 1 of the paper: increase of the steepness in each epoch, and number of epochs."""
    for name, (n_rows, parameters) in STEEPNESS.items():
        if not _wanted(name, options):
            continue
        split = groups.load(name, options)
        split = _validation(split.head(n_rows) if n_rows else split)
        for step in STEPS:
            for epochs in EPOCHS:
                own = {
                    "n_estimators": 3,
                    "max_depth": 10,
                    "learning_rate": 0.001,
                    "batch_size": 1000,
                    "steepness_step": step,
                    "greedy_epochs": epochs,
                    "finetune_epochs": 3 * epochs,
                }
                row = f"steepness/{name}-{step}-{epochs}"
                yield from _run(row, split, own | parameters, options, 1)


def smoothness(options):
    """One tree with and without the penalty of equation 15."""
    for name, shape in SMOOTH.items():
        split = _digits() if name == "digits" else groups.load(name, options).head(20_000)
        for kind, value in (("rough", 0.0), ("smooth", 0.001)):
            own = ONE | {"max_depth": 6, "feature_shape": shape, "smoothness": value}
            yield from _run(f"smoothness/{name}-{kind}", split, own, options)


def membranes(options):
    """Figure 3 of the paper: predictions with soft and hard routing after some epochs."""
    split = data.membranes(options.data, n_train=1000 if options.quick else 40_000)
    output = figures.folder(options)
    pictures = {}
    for n_epochs in MEMBRANE_EPOCHS:
        # The paper starts from a balanced tree; here each split is trained for one epoch first.
        own = {"max_depth": 6, "greedy_epochs": 1, "finetune_epochs": n_epochs}
        model = E2EDecisionForest(1, **own, feature_shape=(9, 9), random_state=0)
        model.fit(split.X_train, split.y_train)
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
    for seed in range(options.rounds or 3):
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
    for seed in range(options.rounds or 3):
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
        leaf = forest.child < 0
        child = forest.child.copy()
        child[leaf] = -1 - np.arange(leaf.sum())
        p = forest.n_features
        for engine in ("lists", "products"):
            ones = np.ones(p, dtype=np.float32)
            trainer = SoftTrainer(
                forest.map_features(split.X_train), split.y_train.astype(np.int32), 10,
                np.ones(len(split.X_train)), 0 * ones, ones, child,
                np.ascontiguousarray(forest.directions().toarray()), forest.threshold, 1000, 0.0,
                np.zeros((0, 2), dtype=np.int32), 0, np.zeros(1, dtype=np.uint8), engine,
            )  # fmt: skip
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
        (trees, forests, connect4, steepness, smoothness, membranes, cnn, default, engines),
        MEASURES,
        groups.SETS,
    )
