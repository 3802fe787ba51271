"""Every figure of end-to-end trees and forests, each group of them by one command.

    python benchmarks/endtoend.py GROUP [--data FOLDER] [--quick] [--sets NAME ...] [--rounds N]

A group merges its rows into ``benchmarks/results/endtoend.json``; the last command, ``table``,
writes them into ``docs/performance``. Routing is hard unless a row says otherwise, and seconds are
those of the processor.
"""

import statistics
import time
from pathlib import Path

import data
import figures
import groups
import numpy as np
import race_tables
import results
from results import Bar, Row
from skforest._kernels.soft import SoftTrainer
from timing import mean_sd

from skforest import E2EDecisionForest, E2EDecisionForestRegressor

FOLDER = Path(__file__).resolve().parent
DEPTHS = {4: 91.0, 6: 94.3, 8: 95.2, 10: 95.8}  # bars of one tree on MNIST, accuracy in percent
ONE = {"n_estimators": 1, "max_features": None}
LONG = {"finetune_epochs": 30}  # of Letter, on which more epochs pay
MORE = {"finetune_epochs": 12}  # of MNIST, where the default is 8
STEEP = {"steepness": 3.0}  # rows go fewer ways, so a fit is faster
PAPER = {"max_depth": 10, "greedy_epochs": 15}
USPS = {"n_estimators": 100, "feature_shape": (16, 16), "patch_size": 10} | PAPER
MNIST = {"feature_shape": (28, 28), "max_depth": 10}
FORESTS = {
    "letter-10": ("letter", {"n_estimators": 10, "max_features": None} | LONG, 96.4),
    "letter-70": ("letter", {"n_estimators": 70, "max_features": 8} | LONG, 95.5),
    "usps-100": ("usps", USPS, 94.3),
    "usps-100-validation": ("usps", USPS, 96.7),
    "mnist-8": ("mnist", {"n_estimators": 8, "max_features": None} | MNIST | STEEP, 97.4),
    "mnist-80": ("mnist", {"n_estimators": 80, "patch_size": 15} | MNIST | MORE, 98.1),
}
FOREST_SECONDS = {"letter-10": 20.0, "mnist-8": 60.0, "mnist-80": 720.0}
STEPS, EPOCHS = (0.0, 0.01, 0.1), (15, 30, 45)
# Sets of the steepness table: rows, and a smaller forest than the paper's.
STEEPNESS = {
    "letter": (2500, {"max_features": 8}),
    "usps": (None, {"feature_shape": (16, 16), "patch_size": 10}),
    "mnist": (20_000, {"feature_shape": (28, 28), "patch_size": 15}),
}
CONNECT4 = (4, 6, 8, 10, 12)
MEMBRANE_EPOCHS = (4, 8, 24)
SMOOTH = {"digits": (8, 8), "mnist": (28, 28)}

BARS = {}
for depth, bar in DEPTHS.items():
    longer = ", 12 epochs" if depth == 6 else ""
    BARS[f"trees/mnist-{depth}"] = Bar(
        f"accuracy of one tree, MNIST, depth {depth}{longer}", "%", bar
    )
    BARS[f"trees/mnist-{depth}-soft"] = Bar("the same tree, soft routing", "%")
    BARS[f"trees/mnist-{depth}-seconds"] = Bar(
        "fit of it", "s", 6.0 if depth == 8 else None, more=False
    )
BARS["trees/letter-10"] = Bar("accuracy of one tree, Letter, depth 10", "%", 90.3)
BARS["trees/letter-10-soft"] = Bar("the same tree, soft routing", "%")
BARS["trees/letter-10-seconds"] = Bar("fit of it", "s", 3.0, more=False)
for name, (_, _, bar) in FORESTS.items():
    BARS[f"forests/{name}"] = Bar(f"accuracy, {name.replace('-', ', ', 1)} trees", "%", bar)
    BARS[f"forests/{name}-soft"] = Bar("the same forest, soft routing", "%")
    BARS[f"forests/{name}-seconds"] = Bar("fit of it", "s", FOREST_SECONDS.get(name), more=False)
for depth in CONNECT4:
    BARS[f"connect4/{depth}"] = Bar(f"accuracy of one tree, connect4, depth {depth}", "%")
for name in STEEPNESS:
    for step in STEPS:
        for epochs in EPOCHS:
            BARS[f"steepness/{name}-{step}-{epochs}"] = Bar(
                f"accuracy on rows held out, {name}, step {step}, {epochs} epochs", "%"
            )
for n_epochs in MEMBRANE_EPOCHS:
    for routing in ("soft", "hard"):
        BARS[f"membranes/{routing}-{n_epochs}"] = Bar(
            f"accuracy, membranes, depth 6, {n_epochs} epochs, {routing} routing", "%"
        )
    BARS[f"membranes/gap-{n_epochs}"] = Bar("mean difference of both probabilities", "ratio")
for name in SMOOTH:
    for smoothness in ("rough", "smooth"):
        BARS[f"smoothness/{name}-{smoothness}"] = Bar(
            f"accuracy of one tree, {name}, {smoothness}", "%"
        )
BARS |= {
    "default/fit": Bar("default fit, 10000 x 50 rows, 5 classes", "s", 5.0, more=False),
    "default/accuracy": Bar("accuracy of it", "%"),
    "tables/all": Bar("error over that of RandomForest, 32 tables", "ratio", more=False),
    "tables/classification": Bar("the same, 22 tables of classes", "ratio", 1.0, 0.9, more=False),
    "tables/regression": Bar("the same, 10 tables of targets", "ratio", more=False),
    "tables/fit": Bar("fit time over that of RandomForest", "x", more=False),
}
BARS |= {
    "cnn/mnist": Bar("accuracy of one tree, MNIST, networks, 10 leaves", "%", None, 97.8),
    "cnn/mnist-soft": Bar("the same tree, soft routing", "%"),
    "cnn/mnist-seconds": Bar("fit of it, wall clock", "s", 1200.0, more=False),
}
for engine in ("lists", "products"):
    for when in ("first", "last"):
        BARS[f"engines/{engine}-{when}"] = Bar(
            f"products of rows and weights, {engine}, MNIST, depth 8, {when} epoch", "GFLOP/s"
        )
        BARS[f"engines/{engine}-{when}-seconds"] = Bar("that epoch, 10000 rows", "s", more=False)


def _run(name, split, parameters, options, seeds=3):
    """Rows of hard and soft accuracy, and of seconds, over some seeds."""
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
    if f"{name}-soft" in BARS:
        yield Row(f"{name}-soft", soft)
        yield Row(f"{name}-seconds", spent)


def trees(options):
    """Single trees by depth."""
    for name, depths in (("mnist", DEPTHS), ("letter", (10,))):
        split = _split(name, options)
        for depth in depths:
            if _wanted(f"{name}-{depth}", options):
                parameters = ONE | {"max_depth": depth}
                parameters |= {"feature_shape": (28, 28)} if name == "mnist" else LONG
                parameters |= MORE if depth == 6 else {}
                yield from _run(f"trees/{name}-{depth}", split, parameters, options)


def forests(options):
    """The paper's forests, and smaller ones on all features."""
    for name, (source, parameters, _) in FORESTS.items():
        if _wanted(name, options):
            split = _split(source, options)
            split = _held_out(split) if "validation" in name else split
            yield from _run(f"forests/{name}", split, parameters, options)


def connect4(options):
    """One tree by depth, on the rows of the non-greedy trees' figure."""
    split = data.connect4(options.data)
    split = split.head(500, 200) if options.quick else split
    for depth in CONNECT4:
        yield from _run(f"connect4/{depth}", split, ONE | {"max_depth": depth}, options)


def steepness(options):
    """Table 1: how much steeper each epoch is, against the number of epochs."""
    for name, (n_rows, parameters) in STEEPNESS.items():
        if not _wanted(name, options):
            continue
        split = _split(name, options)
        split = _held_out(split.head(n_rows) if n_rows else split)
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
        split = _split(name, options)
        split = split.head(20_000)
        for kind, value in (("rough", 0.0), ("smooth", 0.001)):
            own = ONE | {"max_depth": 6, "feature_shape": shape, "smoothness": value}
            yield from _run(f"smoothness/{name}-{kind}", split, own, options)


def membranes(options):
    """Figure 3: what the soft and the hard tree see after some epochs."""
    split = data.membranes(options.data, n_train=1000 if options.quick else 40_000)
    output = options.results if options.quick else FOLDER.parent / "docs" / "performance"
    output.mkdir(parents=True, exist_ok=True)
    pictures = {}
    for n_epochs in MEMBRANE_EPOCHS:
        # The paper begins with a balanced tree; this one has grown in one epoch a split.
        model = E2EDecisionForest(
            1, max_depth=6, greedy_epochs=1, finetune_epochs=n_epochs, feature_shape=(9, 9),
            random_state=0,
        ).fit(split.X_train, split.y_train)  # fmt: skip
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
    """Section 3.4: small networks as splits, 10 leaves; needs PyTorch."""
    import torch

    from skforest.torch import E2ENetworkTree

    split = _split("mnist", options)
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
    """The defaults on rows of no particular kind."""
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


def tables(options):
    """Defaults against a RandomForest on tables."""
    names = {"classification": data.CLASSIFICATION, "regression": data.REGRESSION}
    names = {task: [n for n in group if _wanted(n, options)] for task, group in names.items()}
    names = {task: group[:2] if options.quick else group for task, group in names.items()}
    rows = race_tables.run(names, DEFAULTS, options, 100)
    for name, runs in rows.items():
        print(f"{name}: {race_tables.relative(runs):.3f}", flush=True)
    yield from race_tables.summary(rows, names)


def engines(options):
    """Share of the splits that rows visit, and the speed of both engines, in joint training."""
    split = _split("mnist", options).head(10_000)
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
                forest._table(split.X_train), split.y_train.astype(np.int32), 10,
                np.ones(len(split.X_train)), 0 * ones, ones, child,
                np.ascontiguousarray(forest.directions().toarray()), forest.threshold, 1000, 0.0,
                np.zeros((0, 2), dtype=np.int32), 0, np.zeros(1, dtype=np.uint8), engine,
            )  # fmt: skip
            trainer.run(model.steepness_, 1e-9)  # sets the leaves
            spent, speed = [], []
            for _ in range(3):
                work, start = trainer.work_done, time.process_time()
                trainer.run(model.steepness_, 1e-9)
                spent.append(time.process_time() - start)
                speed.append((trainer.work_done - work) / spent[-1] / 1e9)
            note = f"{100 * trainer.visited:.1f} % of the splits visited by a row"
            yield Row(f"engines/{engine}-{when}", speed, note)
            yield Row(f"engines/{engine}-{when}-seconds", spent)


def table(options):
    """Write the table of all stored rows into the documentation."""
    output = options.results if options.quick else FOLDER.parent / "docs" / "performance"
    stored = results.read(options.results / "endtoend.json")
    output.mkdir(parents=True, exist_ok=True)
    shown = [stored[name] for name in BARS if name in stored]
    (output / "endtoend.inc").write_text("\n".join(results.list_table(shown)) + "\n")
    return ()


# The defaults, their number of trees included.
DEFAULTS = {
    "classification": lambda _, **options: E2EDecisionForest(**options),
    "regression": lambda _, **options: E2EDecisionForestRegressor(**options),
}


def _wanted(name, options):
    return not options.sets or name in options.sets


def _split(name, options):
    """Training and test rows: of Letter the first 16000 and the last 4000."""
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = load_digits(return_X_y=True)
        split = data.Split(X[:1200], y[:1200], X[1200:], y[1200:])
    elif name == "letter":
        split = data.in_order("letter", options.data, n_train=16_000)
    else:
        split = data.load(name, options.data)
    return split.head(600, 200) if options.quick else split


def _held_out(split):
    """A fifth of the training rows, by chance, in place of the test rows."""
    order = np.random.default_rng(0).permutation(len(split.X_train))
    held, rest = np.split(order, [len(order) // 5])
    X, y = split.X_train, split.y_train
    return data.Split(X[rest], y[rest], X[held], y[held])


def main():
    """Run one group and store its rows."""
    functions = (
        trees, forests, connect4, steepness, smoothness, membranes, cnn, default, tables, engines,
        table,
    )  # fmt: skip
    parser = groups.parser(__doc__, functions)
    parser.add_argument("--sets", nargs="*", help="some data sets, or settings, only")
    groups.run(parser, BARS)


if __name__ == "__main__":
    main()
