"""Every figure of random hinge forests, each group of them by one command.

    python benchmarks/hinge.py GROUP [--data FOLDER] [--quick] [--sets NAME ...] [--rounds N]

A group merges its rows into ``benchmarks/results/hinge.json``; the last command, ``table``, writes
them into ``docs/performance``. Errors are those of the model that training returns, never of the
best of several on test rows.
"""

import statistics
import time
from pathlib import Path

import data
import groups
import numpy as np
import race_tables
import results
from results import Bar, Row
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from timing import mean_sd

from skforest import RandomHingeForestClassifier, RandomHingeForestRegressor

FOLDER = Path(__file__).resolve().parent
DEEP = {"n_estimators": 100, "max_depth": 10}
# Settings chosen on validation rows of the training sets.
CHOSEN = {"features": "linear", "n_directions": 200, "importance_power": 0.0}
LETTER = DEEP | CHOSEN | {"learning_rate": 0.02, "max_iter": 6000}
USPS = DEEP | CHOSEN | {"learning_rate": 0.01, "max_iter": 4000, "dropout": 0.3}
# The published settings: constant rate, inputs as they come but for their scale, no dropout.
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
IMAGES = {
    "letter-chosen": ("letter", LETTER | {"n_bags": 1}, 2.4),
    "letter-defaults": ("letter", DEEP | {"n_bags": 1}, 2.6),
    "letter-4": ("letter", LETTER | {"n_bags": 4}, 1.7),
    "letter-fern": ("letter", LETTER | {"n_bags": 1, "structure": "fern"}, None),
    "letter-published": ("letter", ADAM | {"batch_size": 53}, None),
    "usps": ("usps", USPS | {"n_bags": 1}, 5.5),
    "usps-5": ("usps", USPS | {"n_bags": 5}, 5.2),
    "usps-fern": ("usps", USPS | {"n_bags": 1, "structure": "fern"}, None),
    "mnist": ("mnist", MNIST, 2.4),
    "mnist-1000": (
        "mnist",
        MNIST | {"n_estimators": 1000, "learning_rate": 0.005, "max_iter": 6000},
        1.55,
    ),
    "mnist-fern": ("mnist", MNIST | {"structure": "fern"}, None),
    "usps-published": ("usps", ADAM | {"batch_size": 29}, None),
}
SMALL = {
    "iris": load_iris,
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "digits": load_digits,
}
# Rate of AdaGrad, share of the rows that choose the snapshot, and what the authors of the paper
# measured: test errors or R2, means of 10 runs, in the order of SIZES.
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
TABLES = {
    "classification": data.CLASSIFICATION,
    "regression": data.REGRESSION,
}
ESTIMATORS = {
    "classification": RandomHingeForestClassifier,
    "regression": RandomHingeForestRegressor,
}

BARS = {
    f"images/{name}": Bar(f"error, {name}", "%", bar, more=False)
    for name, (_, _, bar) in IMAGES.items()
}
BARS |= {
    f"small/{name}": Bar(f"error over that of RandomForest, {name}, defaults", "ratio", more=False)
    for name in SMALL
}
BARS |= {
    "special/abalone": Bar("error, abalone, 3 classes, defaults", "%", 34.0, more=False),
    "special/abalone_r2": Bar("R2, abalone, defaults", "ratio", 0.56),
    "special/madelon": Bar("error, madelon, importance_power=2", "%", 15.0, more=False),
    "special/poker": Bar("error, poker, one-hot columns, AdaGrad", "%", 10.0, more=False),
}
BARS |= {
    f"published/{name}-{trees}x{depth}": Bar(
        f"{'R2' if 'r2' in name else 'error'}, {name}, {trees} trees of depth {depth}, published "
        f"settings (paper: {paper})",
        "ratio" if "r2" in name else "%",
        more="r2" in name,
    )
    for name, (_, _, means) in GRID.items()
    for (trees, depth), paper in zip(SIZES, means.split())
}
BARS |= {
    f"tables/{task}": Bar(f"error over that of RandomForest, {task}", "ratio", bar, more=False)
    for task, bar in {"all": None, "classification": 0.85, "regression": 0.85}.items()
}
BARS |= {
    "tables/fit": Bar("fit time over that of RandomForest", "x", 5.0, more=False),
    "speed/step": Bar("a step, Letter, batch 53, 100 trees of depth 10", "us", 400.0, more=False),
    "speed/row": Bar("prediction of a row, Letter", "us", 5.0, more=False),
    "speed/single": Bar("prediction of a single row", "us", 150.0, more=False),
}


def images(options):
    """Letters and digits."""
    for name in options.sets or IMAGES:
        kind, parameters, _ = IMAGES[name]
        split = _letter(options) if kind == "letter" else data.load(kind, options.data)
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
    """Defaults against a RandomForest on four small sets, by repeated cross-validation."""
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=options.rounds or 3, random_state=0)
    for name in options.sets or SMALL:
        X, y = SMALL[name](return_X_y=True)
        ours, forest = (
            100 * (1 - cross_val_score(model, X, y, cv=folds))
            for model in (
                RandomHingeForestClassifier(random_state=0),
                RandomForestClassifier(random_state=0),
            )
        )
        spread = ours.std() / np.sqrt(len(ours) / (options.rounds or 3))
        note = f"{ours.mean():.2f} against {forest.mean():.2f} %, standard error {spread:.2f}"
        yield Row(f"small/{name}", [ours.mean() / forest.mean()], note)


def special(options):
    """Abalone, Madelon and poker."""
    rounds = range(options.rounds or 3)
    for name in options.sets or ("abalone", "abalone_r2", "madelon", "poker"):
        found = []
        for seed in rounds:
            if name.startswith("abalone"):
                kind, split = _abalone(options, name == "abalone_r2")
                model = kind(random_state=seed)
            elif name == "madelon":
                split = data.load("madelon", options.data)
                model = RandomHingeForestClassifier(importance_power=2.0, random_state=seed)
            else:
                split = _poker(options, seed)
                model = RandomHingeForestClassifier(
                    max_depth=3, optimizer="adagrad", learning_rate=0.3, n_bags=1,
                    random_state=seed,
                )  # fmt: skip
            model.fit(_floats(split.X_train), split.y_train)
            score = model.score(_floats(split.X_test), split.y_test)
            found.append(score if name == "abalone_r2" else 100 * (1 - score))
        value = statistics.fmean(found)
        yield Row(f"special/{name}", found, f"{mean_sd(found)}", value=value)


def published(options):
    """Settings and grid of the paper: AdaGrad at a constant rate, the snapshot of least loss."""
    for name in options.sets or GRID:
        rate, held_out, _ = GRID[name]
        own = {"early_stopping": True, "validation_fraction": held_out, "n_iter_no_change": 40}
        own |= {"batch_size": 53, "max_iter": 40_000, "optimizer": "adagrad"}
        own |= {"learning_rate": rate, "head": "leaves" if name == "abalone_r2" else "linear"}
        for trees, depth in SIZES[7:8] if options.quick else SIZES:
            found = []
            for seed in range(options.rounds or 3):
                kind, split = _published_split(options, name, seed)
                model = kind(trees, max_depth=depth, random_state=seed, **PUBLISHED | own)
                model.fit(_floats(split.X_train), split.y_train)
                score = model.score(_floats(split.X_test), split.y_test)
                found.append(score if name == "abalone_r2" else 100 * (1 - score))
            row = f"published/{name}-{trees}x{depth}"
            yield Row(row, found, f"{mean_sd(found)}", value=statistics.fmean(found))


def _published_split(options, name, seed):
    """Estimator and rows; hands of poker as ten whole numbers."""
    if name == "madelon":
        return RandomHingeForestClassifier, data.load(name, options.data)
    if name == "poker":
        return RandomHingeForestClassifier, _poker(options, seed, one_hot=False)
    return _abalone(options, name == "abalone_r2")


def tables(options):
    """Defaults against a RandomForest on the tables."""
    names = {task: [n for n in group if not options.sets or n in options.sets]
             for task, group in TABLES.items()}  # fmt: skip
    names = {task: group for task, group in names.items() if group}
    rows = race_tables.run(names, ESTIMATORS, options, 100)
    for name, runs in rows.items():
        print(f"{name}: {race_tables.relative(runs):.3f}")
    yield from race_tables.summary(rows, names)


def speed(options):
    """Processor seconds of one thread: a step, a row, a single row."""
    split = _letter(options)
    X = _floats(split.X_train)
    fitted, spent = {}, {}
    for n_steps in (100, 2100):
        model = RandomHingeForestClassifier(
            **ADAM | {"batch_size": 53, "max_iter": n_steps}, random_state=0
        )
        start = time.process_time()
        fitted[n_steps] = model.fit(X, split.y_train)
        spent[n_steps] = time.process_time() - start
    yield Row("speed/step", [(spent[2100] - spent[100]) / 2000 * 1e6])
    model = fitted[2100]
    for name, rows in (("row", X[:4000]), ("single", X[:1])):
        times = []
        for _ in range(7):
            start = time.process_time()
            for _ in range(1 if name == "row" else 100):
                model.predict(rows)
            times.append((time.process_time() - start) * 1e6 / (4000 if name == "row" else 100))
        yield Row(f"speed/{name}", times, f"median {statistics.median(times):.1f} us")


def table(options):
    """Write the table of all stored rows into the documentation."""
    output = options.results if options.quick else FOLDER.parent / "docs" / "performance"
    stored = results.read(options.results / "hinge.json")
    output.mkdir(parents=True, exist_ok=True)
    for part, is_grid in (("hinge", False), ("hinge_published", True)):
        shown = [
            stored[name]
            for name in BARS
            if name in stored and name.startswith("published/") == is_grid
        ]
        (output / f"{part}.inc").write_text("\n".join(results.list_table(shown)) + "\n")
    return ()


def _floats(X):
    return np.asarray(X, dtype=np.float32)


def _letter(options):
    """The first 16000 rows train, the last 4000 test."""
    split = data.in_order("letter", options.data, n_train=16_000)
    return split.head(600, 200) if options.quick else split


def _abalone(options, regression):
    """3133 rows train, 1044 test; sex one-hot; rings, or up to 8, 9 or 10, and more."""
    split = data.in_order("abalone", options.data, n_train=3133, n_test=1044)
    X = np.concatenate([split.X_train, split.X_test])
    y = np.concatenate([split.y_train, split.y_test])
    X = np.hstack([X[:, :1] == code for code in (0, 1, 2)] + [X[:, 1:]])
    if not regression:
        y = np.digitize(y, [8.5, 10.5])
    kind = RandomHingeForestRegressor if regression else RandomHingeForestClassifier
    return kind, data.Split(X[:3133], y[:3133], X[3133:], y[3133:])


def _poker(options, seed, one_hot=True):
    """18757 rows train, as many hands as are left test; suits and ranks one-hot."""
    arrays = data.in_order("poker_train", options.data, n_train=18_757)
    X = np.concatenate([arrays.X_train, arrays.X_test])
    if one_hot:
        X = np.hstack([X[:, [j]] == np.unique(X[:, j]) for j in range(X.shape[1])])
    y = np.concatenate([arrays.y_train, arrays.y_test])
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:18_757], order[18_757:]
    return data.Split(X[train], y[train], X[test], y[test])


def main():
    """Run one group and store its rows."""
    functions = (images, small, special, published, tables, speed, table)
    parser = groups.parser(__doc__, functions)
    parser.add_argument("--sets", nargs="*", help="some data sets, or settings, only")
    groups.run(parser, BARS)


if __name__ == "__main__":
    main()
