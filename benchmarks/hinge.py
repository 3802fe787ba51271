"""Measurements of random hinge forests.

    python benchmarks/hinge.py GROUP [--data FOLDER] [--quick] [--sets NAME ...] [--rounds N]

A group merges its rows into ``benchmarks/results/hinge.json``. The error is that of the model that
training returns, not the smallest test error during training.
"""

import statistics
import time

import data
import groups
import numpy as np
from results import Measure, Row
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from timing import mean_sd

from skforest import RandomHingeForestClassifier, RandomHingeForestRegressor

DEEP = {"n_estimators": 100, "max_depth": 10}
# Chosen on validation rows taken from the training sets.
CHOSEN = {"features": "linear", "n_directions": 200, "importance_power": 0.0}
LETTER = DEEP | CHOSEN | {"learning_rate": 0.02, "max_iter": 6000}
USPS = DEEP | CHOSEN | {"learning_rate": 0.01, "max_iter": 4000, "dropout": 0.3}
# The settings of the paper: constant learning rate, raw features but for their scale, no dropout.
PUBLISHED = {
    "n_bags": 1,
    "features": "linear",
    "n_directions": 100,
    "schedule": "constant",
    "dropout": 0.0,
    "importance_power": 0.0,
}
ADAM = PUBLISHED | DEEP | {"learning_rate": 0.005, "max_iter": 40_000}
MNIST = DEEP | {
    "features": "conv",
    "feature_shape": (28, 28),
    "learning_rate": 0.02,
    "max_iter": 7000,
    "n_bags": 1,
}
# Data set and parameters of each row.
IMAGES = {
    "letter-chosen": ("letter", LETTER | {"n_bags": 1}),
    "letter-defaults": ("letter", {}),
    "letter-deep": ("letter", DEEP | {"n_bags": 1}),
    "letter-4": ("letter", LETTER | {"n_bags": 4}),
    "letter-fern": ("letter", LETTER | {"n_bags": 1, "structure": "fern"}),
    "letter-published": ("letter", ADAM | {"batch_size": 53}),
    "usps": ("usps", USPS | {"n_bags": 1}),
    "usps-5": ("usps", USPS | {"n_bags": 5}),
    "usps-fern": ("usps", USPS | {"n_bags": 1, "structure": "fern"}),
    "mnist": ("mnist", MNIST),
    "mnist-1000": (
        "mnist",
        MNIST | {"n_estimators": 1000, "learning_rate": 0.005, "max_iter": 6000},
    ),
    "mnist-fern": ("mnist", MNIST | {"structure": "fern"}),
    "usps-published": ("usps", ADAM | {"batch_size": 29}),
}
SMALL = {
    "iris": load_iris,
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "digits": load_digits,
}
# Learning rate of AdaGrad, fraction of the rows that select the iteration, and what the paper
# reports: mean test errors or R2 of 10 runs, in the order of SIZES.
SIZES = [(trees, depth) for trees in (1, 10, 50, 100) for depth in (1, 3, 5, 7, 10)]
GRID = {
    "abalone": (0.05, 1 / 3, """
        43.18 41.99 41.44 40.72 40.92 35.66 34.93 35.20 35.42 35.69
        34.37 34.47 35.11 35.39 35.62 34.47 35.05 35.81 36.04 36.52"""),
    "abalone_r2": (0.05, 1 / 3, """
        .310 .442 .415 .405 .313 .522 .540 .546 .547 .543
        .563 .561 .551 .547 .536 .566 .553 .544 .539 .529"""),
    "madelon": (0.01, 0.25, """
        48.22 46.40 44.13 45.98 45.52 42.95 40.80 42.32 41.63 43.02
        42.28 40.97 41.62 40.97 42.03 42.43 41.02 41.13 41.28 41.07"""),
    "poker": (0.3, 0.25, """
        49.39 45.67 45.79 45.36 45.67 44.65 40.67 41.18 42.94 44.34
        38.88 32.64 37.81 42.95 44.24 37.80 35.87 41.09 43.32 44.20"""),
}  # fmt: skip
# A small model, for runs that only show that a group works.
QUICK = {"n_estimators": 10, "max_iter": 20, "max_depth": 3, "n_bags": 1}

MEASURES = {f"images/{name}": Measure(f"error, {name}", "%", more=False) for name in IMAGES}
MEASURES |= {
    f"small/{name}": Measure(
        f"error divided by that of RandomForest, {name}, defaults", "ratio", more=False
    )
    for name in SMALL
}
MEASURES |= {
    "special/abalone": Measure("error, abalone, 3 classes, defaults", "%", more=False),
    "special/abalone_r2": Measure("R2, abalone, defaults", "ratio"),
    "special/madelon": Measure("error, madelon, importance_power=2", "%", more=False),
    "special/poker": Measure("error, poker, one-hot columns, AdaGrad", "%", more=False),
}
MEASURES |= {
    f"published/{name}-{trees}x{depth}": Measure(
        f"{'R2' if 'r2' in name else 'error'}, {name}, {trees} trees of depth {depth}, "
        "settings of the paper",
        "ratio" if "r2" in name else "%",
        more="r2" in name,
        paper=float(paper),
    )
    for name, (_, _, means) in GRID.items()
    for (trees, depth), paper in zip(SIZES, means.split(), strict=True)
}
MEASURES |= {
    "speed/step": Measure(
        "a training step, Letter, batch of 53, 100 trees of depth 10", "us", more=False
    ),
    "speed/row": Measure("predict of 4000 rows, Letter, per row", "us", more=False),
    "speed/single": Measure("predict of one row, Letter", "us", more=False),
}


def images(options):
    """Test error on Letter, USPS and MNIST."""
    for name in options.sets or IMAGES:
        kind, parameters = IMAGES[name]
        parameters = groups.pick(options, parameters, parameters | QUICK)
        split = groups.load(kind, options)
        errors, times = [], []
        for seed in range(options.rounds or 3):
            model = RandomHingeForestClassifier(random_state=seed, **parameters)
            start = time.process_time()
            model.fit(_floats(split.X_train), split.y_train)
            times.append(time.process_time() - start)
            errors.append(100 * (1 - model.score(_floats(split.X_test), split.y_test)))
        note = f"{mean_sd(errors)} %, fit {statistics.median(times):.1f} s"
        yield Row(f"images/{name}", errors, note, value=statistics.fmean(errors))


def small(options):
    """Default settings and RandomForest on four small sets, by repeated cross-validation."""
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=options.rounds or 3, random_state=0)
    for name in options.sets or SMALL:
        X, y = SMALL[name](return_X_y=True)
        ours, forest = (
            100 * (1 - cross_val_score(model, X, y, cv=folds))
            for model in (
                RandomHingeForestClassifier(random_state=0, **groups.pick(options, {}, QUICK)),
                RandomForestClassifier(random_state=0),
            )
        )
        spread = ours.std() / np.sqrt(len(ours) / (options.rounds or 3))
        note = f"{ours.mean():.2f} against {forest.mean():.2f} %, standard error {spread:.2f}"
        yield Row(f"small/{name}", [ours.mean() / forest.mean()], note)


def special(options):
    """Abalone with the default settings; Madelon and poker with settings for these data."""
    own = {
        "abalone": {},
        "abalone_r2": {},
        "madelon": {"importance_power": 2.0},
        "poker": {"max_depth": 3, "optimizer": "adagrad", "learning_rate": 0.3, "n_bags": 1},
    }
    for name in options.sets or own:
        yield _scores(f"special/{name}", name, own[name], options, one_hot=True)


def published(options):
    """Settings and grid of the paper: AdaGrad at a constant rate, iteration of smallest loss."""
    for name in options.sets or GRID:
        rate, held_out, _ = GRID[name]
        own = {"early_stopping": True, "validation_fraction": held_out, "n_iter_no_change": 40}
        own |= {"batch_size": 53, "max_iter": 40_000, "optimizer": "adagrad"}
        own |= {"learning_rate": rate, "head": "leaves" if name == "abalone_r2" else "linear"}
        for trees, depth in SIZES[7:8] if options.quick else SIZES:
            size = {"n_estimators": trees, "max_depth": depth}
            row = f"published/{name}-{trees}x{depth}"
            yield _scores(row, name, PUBLISHED | own | size, options, one_hot=False)


def _scores(row, name, parameters, options, one_hot):
    """Return the row of test errors, or of R2, on one of the sets of the paper."""
    parameters = groups.pick(options, parameters, parameters | QUICK)
    found = []
    for seed in range(options.rounds or 3):
        kind = RandomHingeForestRegressor if name == "abalone_r2" else RandomHingeForestClassifier
        if name == "poker":
            split = _poker(options, seed, one_hot)
        elif name == "madelon":
            split = groups.load(name, options)
        else:
            split = _abalone(options, name == "abalone_r2")
        model = kind(random_state=seed, **parameters)
        model.fit(_floats(split.X_train), split.y_train)
        score = model.score(_floats(split.X_test), split.y_test)
        found.append(score if name == "abalone_r2" else 100 * (1 - score))
    return Row(row, found, mean_sd(found), value=statistics.fmean(found))


def speed(options):
    """Processor time of one thread: of a training step, and to predict many rows or one."""
    split = groups.load("letter", options)
    X = _floats(split.X_train)
    fitted, spent = {}, {}
    first, last = (10, 60) if options.quick else (100, 2100)
    for n_steps in (first, last):
        model = RandomHingeForestClassifier(
            **ADAM | {"batch_size": 53, "max_iter": n_steps}, random_state=0
        )
        start = time.process_time()
        fitted[n_steps] = model.fit(X, split.y_train)
        spent[n_steps] = time.process_time() - start
    yield Row("speed/step", [(spent[last] - spent[first]) / (last - first) * 1e6])
    model = fitted[last]
    for name, rows in (("row", X[:4000]), ("single", X[:1])):
        times = []
        for _ in range(7):
            start = time.process_time()
            calls = 1 if name == "row" else 100
            for _ in range(calls):
                model.predict(rows)
            times.append((time.process_time() - start) * 1e6 / (calls * len(rows)))
        yield Row(f"speed/{name}", times, f"median {statistics.median(times):.1f} us")


def _floats(X):
    return np.asarray(X, dtype=np.float32)


def _abalone(options, regression):
    """Return the rows of abalone: 3133 train, 1044 test, sex one-hot encoded.

    The target is the number of rings, or its class: at most 8, 9 or 10, more.
    """
    split = data.in_order("abalone", options.data, n_train=3133, n_test=1044)
    X = np.concatenate([split.X_train, split.X_test])
    y = np.concatenate([split.y_train, split.y_test])
    X = np.hstack([X[:, :1] == code for code in (0, 1, 2)] + [X[:, 1:]])
    if not regression:
        y = np.digitize(y, [8.5, 10.5])
    return data.Split(X[:3133], y[:3133], X[3133:], y[3133:])


def _poker(options, seed, one_hot):
    """Return 18757 poker hands to train and all others to test."""
    arrays = data.in_order("poker_train", options.data, n_train=18_757)
    X = np.concatenate([arrays.X_train, arrays.X_test])
    if one_hot:
        X = np.hstack([X[:, [j]] == np.unique(X[:, j]) for j in range(X.shape[1])])
    y = np.concatenate([arrays.y_train, arrays.y_test])
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:18_757], order[18_757:]
    return data.Split(X[train], y[train], X[test], y[test])


if __name__ == "__main__":
    groups.main(
        __doc__,
        (images, small, special, published, speed),
        MEASURES,
        groups.SETS,
    )
