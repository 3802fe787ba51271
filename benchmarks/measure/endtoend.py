"""Measurements of end-to-end trees and forests.

    python -m benchmarks.measure.endtoend GROUP [--data FOLDER] [--quick] [--sets NAME ...]

Routing is hard unless a row says soft, and seconds are processor seconds.
"""

import time
from types import SimpleNamespace

import numpy as np
from skforest._kernels.endtoend.trainer import SoftTrainer

from benchmarks.lib import cells, data, groups, results
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import mean_sd
from benchmarks.papers.endtoend import (
    CONNECT4,
    DEPTHS,
    MEMBRANE_EPOCHS,
    MNIST,
    ONE,
    is_wanted,
    rows_of,
    validation,
)
from skforest import E2EDecisionForest, E2EDecisionForestRegressor, E2EProcedure
from skforest.forest.edit import DenseTree
from skforest.training.endtoend import Units

LONG = {"finetune_epochs": 30}  # Letter needs more epochs than the default
# Fewer branches have a notable weight, so a fit is faster.
STEEP = {"procedure": E2EProcedure(steepness=3.0)}
PAPER = {"max_depth": 10, "greedy_epochs": 15}
USPS = {"n_estimators": 100, "feature_shape": (16, 16), "patch_size": 10} | PAPER
FORESTS = {
    "letter-10": ("letter", {"n_estimators": 10, "max_features": None} | LONG),
    "letter-70": ("letter", {"n_estimators": 70, "max_features": 8} | LONG),
    "usps-100": ("usps", USPS),
    "usps-100-validation": ("usps", USPS),
    "mnist-8": ("mnist", {"n_estimators": 8, "max_features": None} | MNIST | STEEP),
    "mnist-80": ("mnist", {"n_estimators": 80} | MNIST),
}


def _with_soft(name, what):
    """Measures of a model: accuracy with hard and with soft routing, and fit time."""
    return {
        name: Measure(f"accuracy, {what}", "%"),
        f"{name}-soft": Measure(f"accuracy, {what}, soft routing", "%"),
        f"{name}-seconds": Measure(f"processor seconds of a fit, {what}", "s", more=False),
    }


# Defaults of single trees: sets, parameters and numbers of seeds.
SINGLE = {
    "letter": ({"max_depth": 10}, 6),
    "usps": ({"feature_shape": (16, 16)}, 6),
    "pendigits": ({}, 6),
    "mnist": ({"feature_shape": (28, 28), "max_depth": 8}, 2),
    "connect4": ({}, 3),
    **{name: ({}, 6) for name in ("magic", "waveform", "electricity", "reg_kin8nm")},
}
# Visits of rows by joint training, and least and largest numbers of its epochs.
SETTINGS = {
    "epochs as in forests": (400_000, 8, 30),
    "twice as many epochs": (800_000, 16, 60),
    "defaults": None,
    # All other sets have no features to drop.
    "defaults, features are kept": E2EProcedure(feature_dropout=0.0),
}
IMAGES = [name for name, (parameters, _) in SINGLE.items() if "feature_shape" in parameters]

MEASURES = {}
for depth in DEPTHS:
    MEASURES |= _with_soft(f"trees/mnist-{depth}", f"one tree, MNIST, depth {depth}")
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
    f"single/{name}-{setting}": Measure(
        f"score of one tree on held-out training rows, {name}, {setting}", "%"
    )
    for name in SINGLE
    for setting, rule in SETTINGS.items()
    if name in IMAGES or not isinstance(rule, E2EProcedure)
}
MEASURES |= {
    "default/fit": Measure(
        "processor seconds of a fit, defaults, 10000 x 50 rows, 5 classes", "s", more=False
    ),
    "default/accuracy": Measure("accuracy, defaults, 10000 x 50 rows, 5 classes", "%"),
}
for engine in ("lists", "products"):
    for when in ("first", "last"):
        MEASURES[f"engines/{engine}-{when}"] = Measure(
            f"products of rows and weights, {engine}, MNIST, depth 8, {when} epoch", "GFLOP/s"
        )
        MEASURES[f"engines/{engine}-{when}-seconds"] = Measure(
            f"that epoch, {engine}, {when} epoch, 10000 rows", "s", more=False
        )


def trees(options):
    """Single trees of growing depth."""
    for name, depths in (("mnist", DEPTHS), ("letter", (10,))):
        split = groups.load(name, options)
        for depth in depths:
            if is_wanted(f"{name}-{depth}", options):
                parameters = ONE | {"max_depth": depth}
                parameters |= {"feature_shape": (28, 28)} if name == "mnist" else {}
                yield from rows_of(
                    f"trees/{name}-{depth}", split, parameters, options, has_soft=True
                )


def forests(options):
    """Forests of the paper's sizes, and smaller ones that use all features."""
    for name, (source, parameters) in FORESTS.items():
        if is_wanted(name, options):
            split = groups.load(source, options)
            split = validation(split) if "validation" in name else split
            yield from rows_of(f"forests/{name}", split, parameters, options, has_soft=True)


def connect4(options):
    """Single trees of growing depth, on the rows of `data.connect4`."""
    split = groups.load("connect4", options)
    for depth in CONNECT4:
        yield from rows_of(f"connect4/{depth}", split, ONE | {"max_depth": depth}, options)


def single(options):
    """Epochs and steepness of single trees, on a quarter of the training rows."""
    for name, (parameters, n_seeds) in SINGLE.items():
        if not is_wanted(name, options):
            continue
        if name in ("letter", "usps", "pendigits", "mnist", "connect4"):
            split = groups.load(name, options)
        else:
            split = data.load_table(name, options.data, 0, 6000)
        for setting, rule in SETTINGS.items():
            if f"single/{name}-{setting}" not in MEASURES:
                continue
            found = []
            for seed in groups.seeds(options, n_seeds):
                inner = split.inner(seed)
                is_real = name.startswith("reg_")
                own = parameters | _epochs(rule, len(inner.X_train), is_real)
                cls = E2EDecisionForestRegressor if is_real else E2EDecisionForest
                model = cls(1, random_state=seed, **own).fit(inner.X_train, inner.y_train)
                found.append(100 * model.score(inner.X_test, inner.y_test))
            yield Row(f"single/{name}-{setting}", found, f"{mean_sd(found)} %")


def _epochs(rule, n, is_real):
    """Return the parameters of a rule of `SETTINGS` for n rows."""
    if rule is None:
        return {}
    if isinstance(rule, E2EProcedure):
        return {"procedure": rule}
    visits, least, most = rule
    return {
        "greedy_epochs": min(max(80_000 // n, 4), 30 if is_real else 15),
        "finetune_epochs": min(max(visits // n, least), most),
        "procedure": E2EProcedure(steepness_step=0.1, feature_dropout=0.0),
    }


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
    own = {"max_depth": 8, "greedy_epochs": 8, "procedure": E2EProcedure(steepness_step=0.1)}
    model = E2EDecisionForest(1, finetune_epochs=0, random_state=0, **own)
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


def routing_table(stored):
    """Return the table of errors with hard and with soft routing."""
    rows = []
    found = {
        **stored.of("measure.endtoend", "trees", "forests"),
        **stored.of("papers.endtoend", "cnn"),
    }
    for name, row in found.items():
        if f"{name}-soft" in found:
            triple = [row, found[f"{name}-soft"], found[f"{name}-seconds"]]
            shown = [*map(cells.cell, triple[:2]), f"{triple[2]['value']:.1f} s"]
            rows.append((row["what"].partition(", ")[2], *shown, cells.commands(triple)))
    for n in MEMBRANE_EPOCHS:
        names = (f"papers.endtoend:membranes/trained-{kind}-{n}" for kind in ("hard", "soft"))
        pair = [stored[name] for name in names]
        label = f"one tree, membranes, depth 6, {n} epochs, leaves of equation 13"
        rows.append((label, *map(cells.cell, pair), "", cells.commands(pair)))
    return ("Model", "Hard routing", "Soft routing", "Fit", "Command"), rows


def single_table(stored):
    """Return the table of rules for the epochs and the steepness of single trees."""
    rows = []
    for name in SINGLE:
        names = [f"measure.endtoend:single/{name}-{setting}" for setting in SETTINGS]
        rows.append((cells.TITLES.get(name, name), *cells.cells(stored, names)))
    return ("Set", *SETTINGS, "Command"), rows


def engines_table(stored):
    """Return the table of the two ways to compute joint training."""
    rows = []
    for engine in ("lists", "products"):
        names = [f"measure.endtoend:engines/{engine}-{when}" for when in ("first", "last")]
        pairs = [(stored[name], stored[f"{name}-seconds"]) for name in names]
        shown = [
            ", ".join(results.show(row["value"], row["unit"]) for row in pair) for pair in pairs
        ]
        rows.append((engine, *shown, cells.commands([pair[0] for pair in pairs])))
    return ("Engine", "First epoch", "Last epoch", "Command"), rows


GROUPS = (trees, forests, connect4, single, default, engines)
OPTIONS = groups.SETS | groups.SEEDS
TABLES = {
    "endtoend_routing": routing_table,
    "endtoend_single_rules": single_table,
    "endtoend_engines": engines_table,
}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
