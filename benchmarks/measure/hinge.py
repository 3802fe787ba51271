"""Measurements of random hinge forests.

    python -m benchmarks.measure.hinge GROUP [--data FOLDER] [--quick] [--sets NAME ...]

The error is that of the model that training returns, not the smallest test error during training.
``temperature``, ``few-rows``, ``steps`` and ``decay`` have geometric means over tables;
``temperature`` and ``steps`` have no weight decay.
"""

import statistics
import time

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score

import skforest.training.hinge
from benchmarks.compare.peers import IMAGES as PEERS_IMAGES
from benchmarks.lib import cells, comparison, data, groups, scores
from benchmarks.lib.groups import pick
from benchmarks.lib.results import Measure, Row
from benchmarks.lib.timing import mean_sd
from benchmarks.measure.co2 import TREES, VARIANTS
from benchmarks.papers.hinge import ADAM, DEEP, QUICK, as_floats, scores_of
from skforest import HingeProcedure, RandomHingeForestClassifier, RandomHingeForestRegressor

# Chosen on validation rows taken from the training sets, with Adam.
CHOSEN = {
    "features": "linear",
    "n_directions": 200,
    "procedure": HingeProcedure(optimizer="adam", importance_power=0.0, weight_decay=0.0),
}
LETTER = DEEP | CHOSEN | {"learning_rate": 0.02, "max_iter": 6000}
USPS = DEEP | CHOSEN | {"learning_rate": 0.01, "max_iter": 4000, "dropout": 0.3}
MNIST = DEEP | {
    "features": "conv",
    "feature_shape": (28, 28),
    "learning_rate": 0.02,
    "max_iter": 7000,
    "n_bags": 1,
    "procedure": HingeProcedure(optimizer="adam", weight_decay=0.0),
}
# Data set and parameters of each row.
IMAGES = {
    "letter-chosen": ("letter", LETTER | {"n_bags": 1}),
    "letter-defaults": ("letter", {}),
    "letter-deep": ("letter", DEEP | {"n_bags": 1}),
    "letter-4": ("letter", LETTER | {"n_bags": 4}),
    "letter-fern": ("letter", LETTER | {"n_bags": 1, "structure": "fern"}),
    "usps": ("usps", USPS | {"n_bags": 1}),
    "usps-5": ("usps", USPS | {"n_bags": 5}),
    "usps-fern": ("usps", USPS | {"n_bags": 1, "structure": "fern"}),
    "mnist": ("mnist", MNIST),
    "mnist-1000": (
        "mnist",
        MNIST | {"n_estimators": 1000, "learning_rate": 0.005, "max_iter": 6000},
    ),
    "mnist-fern": ("mnist", MNIST | {"structure": "fern"}),
}
SMALL = {
    "iris": load_iris,
    "wine": load_wine,
    "breast_cancer": load_breast_cancer,
    "digits": load_digits,
}
# Powers of the temperature of one bag that were compared; 0 only leaves out rows of the first bag.
POWERS = (0.0, 0.5, 0.6, 0.7, 0.8, 1.0)
FEW = (40, 100, 200)  # training rows
WITHOUT_DECAY = HingeProcedure(weight_decay=0.0)
STEP_ROWS = (300, 1000, 5000)
STEP_FACTORS = (2, 4)  # times half of the default number of steps
WIDE = (300, 1000, 5000)  # columns of random tables of 100 training rows
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
    "special/iris": Measure("error, iris, 100 rows, defaults", "%", more=False),
}
MEASURES |= {
    "speed/step": Measure(
        "a training step, Letter, batch of 53, 100 trees of depth 10", "us", more=False
    ),
    "speed/row": Measure("predict of 4000 rows, Letter, per row", "us", more=False),
    "speed/single": Measure("predict of one row, Letter", "us", more=False),
}
MEASURES |= {
    f"wide/{n}": Measure(f"predict of 4000 rows and {n} columns, per row", "us", more=False)
    for n in WIDE
}
MEASURES |= {
    f"temperature/{power}": Measure(
        f"log loss divided by that without a temperature, power {power}", "ratio", more=False
    )
    for power in POWERS
}
MEASURES |= {
    f"few-rows/{n}": Measure(
        f"log loss divided by that without a temperature, {n} rows", "ratio", more=False
    )
    for n in FEW
}
MEASURES |= {
    f"steps/{task}-{n}-{factor}": Measure(
        f"error divided by that with 1/{factor} of the steps, {task}, at most {n} rows",
        "ratio",
        more=False,
    )
    for task in comparison.TASKS
    for n in STEP_ROWS
    for factor in STEP_FACTORS
}
MEASURES |= {
    f"decay/{task}-{n}": Measure(
        f"loss divided by that without a weight decay, {task}, at most {n} rows",
        "ratio",
        more=False,
    )
    for task in comparison.TASKS
    for n in STEP_ROWS
}


def images(options):
    """Test error on Letter, USPS and MNIST."""
    for name in options.sets or IMAGES:
        kind, parameters = IMAGES[name]
        parameters = groups.pick(options, parameters, parameters | QUICK)
        split = groups.load(kind, options)
        errors, times = [], []
        for seed in groups.seeds(options):
            model = RandomHingeForestClassifier(random_state=seed, **parameters)
            start = time.process_time()
            model.fit(as_floats(split.X_train), split.y_train)
            times.append(time.process_time() - start)
            errors.append(100 * (1 - model.score(as_floats(split.X_test), split.y_test)))
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


def temperature(options):
    """Powers of the temperature, on a quarter of the training rows of classification tables."""
    found = []
    for name in groups.pick(options, data.CLASSIFICATION, ["pima"]):
        for seed in groups.seeds(options):
            split = data.load_table(name, options.data, 0, 5000).inner(seed)
            for power in (None, *POWERS):
                skforest.training.hinge.TEMPERATURE_POWER = power
                own = {"calibrate": power is not None, "procedure": WITHOUT_DECAY}
                found.append(_class_scores(split, random_state=seed, **own))
    losses, errors = np.log(found).reshape(-1, 1 + len(POWERS), 2).transpose(2, 1, 0)
    for power, loss, error in zip(POWERS, losses[1:], errors[1:], strict=True):
        ratios = np.exp(loss - losses[0])
        note = f"largest {ratios.max():.2f}, error {np.exp(np.mean(error - errors[0])):.3f}"
        yield Row(f"temperature/{power}", [np.exp(np.mean(np.log(ratios)))], note)


def few_rows(options):
    """The temperature of models of few training rows, on other training rows of the tables."""
    for n in FEW:
        found = []
        for name in groups.pick(options, data.CLASSIFICATION, ["pima"]):
            for seed in groups.seeds(options):
                split = data.load_table(name, options.data, 0, 5000).inner(seed).head(n)
                if len(np.unique(split.y_train)) <= n / 8:
                    for calibrate in (False, True):
                        own = {"calibrate": calibrate, "random_state": seed}
                        found.append(_class_scores(split, **own))
        losses, errors = np.diff(np.log(found).reshape(-1, 2, 2), axis=1).T[:, 0]
        note = f"{len(losses)} fits, error {np.exp(np.mean(errors)):.3f}"
        yield Row(f"few-rows/{n}", [np.exp(np.mean(losses))], note)


def steps(options):
    """Numbers of steps, on a quarter of the training rows of all tables."""
    for task, n, splits in _inner_splits(options):
        factors = 1, *STEP_FACTORS
        found = [_with_steps(task, split, seed, f) for seed, split in splits for f in factors]
        found = np.log(found).reshape(-1, len(factors), 3).transpose(1, 2, 0)
        for factor, other in zip(STEP_FACTORS, found[1:], strict=True):
            loss, error, seconds = np.exp(np.mean(other - found[0], axis=1))
            spread = np.std(other[1] - found[0, 1]) / np.sqrt(other.shape[1])
            note = f"+- {spread:.3f}, {other.shape[1]} fits, fit time {seconds:.2f}"
            note += "" if task == "regression" else f", log loss {loss:.3f}"
            yield Row(f"steps/{task}-{n}-{factor}", [error], note)


def _inner_splits(options):
    """Yield each task, each number of rows, and pairs of a seed and an inner split of a table."""
    quick = {"classification": ["pima"], "regression": ["reg_airfoil"]}
    for task, names in groups.pick(options, comparison.TASKS, quick).items():
        for n in groups.pick(options, STEP_ROWS, STEP_ROWS[:1]):
            yield (
                task,
                n,
                (
                    (seed, data.load_table(name, options.data, 0, 5000).inner(seed).head(n))
                    for name in names
                    for seed in groups.seeds(options)
                ),
            )


def _with_steps(task, split, seed, factor):
    """Log loss, error and fit time with so many times half of the default steps."""
    kind = RandomHingeForestRegressor if task == "regression" else RandomHingeForestClassifier
    short = kind(n_bags=1, procedure=WITHOUT_DECAY).fit(split.X_train, split.y_train)
    n_steps = factor * short.max_iter_ // 2
    own = {"max_iter": n_steps, "procedure": WITHOUT_DECAY}
    return _scores_and_time(task, split, random_state=seed, **own)


def decay(options):
    """The weight decay that is chosen, against none, on a quarter of the training rows."""
    for task, n, splits in _inner_splits(options):
        found = [
            _scores_and_time(task, split, random_state=seed, procedure=procedure)
            for seed, split in splits
            for procedure in (WITHOUT_DECAY, None)
        ]
        ratios = np.diff(np.log(found).reshape(-1, 2, 3), axis=1)[:, 0]
        loss, error, seconds = np.exp(ratios.mean(axis=0))
        spread = ratios[:, 0].std() / np.sqrt(len(ratios))
        largest = np.exp(ratios[:, 0].max())
        note = f"+- {spread:.3f}, largest {largest:.2f}, {len(ratios)} fits, "
        note += f"error {error:.3f}, fit time {seconds:.2f}"
        yield Row(f"decay/{task}-{n}", [loss], note)


def _scores_and_time(task, split, **parameters):
    start = time.process_time()
    loss, error = _default_scores(task, split, **parameters)
    return loss, error, time.process_time() - start


def _default_scores(task, split, **parameters):
    """Log loss and error of a classifier, or twice the error of a regressor."""
    if task == "classification":
        return _class_scores(split, **parameters)
    model = RandomHingeForestRegressor(**parameters).fit(split.X_train, split.y_train)
    error = np.sqrt(np.mean((model.predict(split.X_test) - split.y_test) ** 2))
    return error, error


def _class_scores(split, **parameters):
    """Log loss and error of a classifier; test rows of labels without training rows are wrong."""
    labels, y_train = np.unique(split.y_train, return_inverse=True)
    column = np.searchsorted(labels, split.y_test)
    column[~np.isin(split.y_test, labels)] = -1
    model = RandomHingeForestClassifier(**parameters).fit(split.X_train, y_train)
    proba = model.predict_proba(split.X_test)
    error = 100 * np.mean(proba.argmax(axis=1) != column)
    return scores.log_loss(column, proba), error + comparison.OFFSET


def special(options):
    """Abalone with the default settings; Madelon and poker with settings for these data."""
    own = {
        "iris": {},
        "abalone": {},
        "abalone_r2": {},
        "madelon": {"procedure": HingeProcedure(importance_power=2.0)},
        "poker": {
            "max_depth": 3,
            "learning_rate": 0.3,
            "n_bags": 1,
            "procedure": HingeProcedure(optimizer="adagrad"),
        },
    }
    for name in options.sets or own:
        yield scores_of(f"special/{name}", name, own[name], options, one_hot=True)


def speed(options):
    """Processor time of one thread: of a training step, and to predict many rows or one."""
    split = groups.load("letter", options)
    X = as_floats(split.X_train)
    fitted, spent = {}, {}
    first, last = (10, 60) if options.quick else (100, 2100)
    for n_steps in (first, last):
        model = RandomHingeForestClassifier(**ADAM | {"max_iter": n_steps}, random_state=0)
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


def wide(options):
    """Processor time of one thread to predict many rows of wide tables."""
    random = np.random.default_rng(0)
    for n_columns in WIDE:
        X = random.standard_normal((100, n_columns), dtype=np.float32)
        rows = random.standard_normal((pick(options, 4000, 100), n_columns), dtype=np.float32)
        model = RandomHingeForestClassifier(max_iter=300, random_state=0)
        model.fit(X, X[:, 0] + X[:, 1] * X[:, 2] > 0)
        times = []
        for _ in range(5):
            start = time.process_time()
            model.predict(rows)
            times.append((time.process_time() - start) * 1e6 / len(rows))
        note = f"median {statistics.median(times):.1f} us, {model.forest_.nbytes / 1e6:.1f} MB"
        yield Row(f"wide/{n_columns}", times, note)


def images_table(stored):
    """Return the table of test errors on letters, digits and satellite pixels, of all models."""
    sets = PEERS_IMAGES["classification"]
    rows = []
    for name, runs in stored.file("compare.peers_images", "images").items():
        shown = [f"{sum(e) / len(e):.2f}" if (e := runs["errors"].get(s)) else "" for s in sets]
        rows.append((f"{name}, defaults", *shown, cells.commands([runs])))

    def add(label, *names):
        rows.append((label, *cells.cells(stored, names)))

    add("ManifoldForest, 100 trees of patches", *5 * [None], "measure.manifold:mnist/60000")
    for n in TREES:
        names = (f"measure.co2:errors/{s}-{n}" for s in sets[1:])
        add(f"CO2Forest, {n} trees", None, *names)
    for variant in VARIANTS:
        names = (f"measure.co2:variants/{s}-{variant}-100" for s in sets[1:])
        add(f"CO2Forest, 100 trees, {variant}", None, *names)

    def add_three(label, start, letter, usps, mnist):
        names = (letter, None, usps, None, None, mnist)
        add(label, *(name and start + name for name in names))

    for label, *names in (
        ("defaults", "letter-defaults", None, None),
        ("one bag, depth 10", "letter-deep", None, None),
        ("one bag, chosen settings", "letter-chosen", "usps", "mnist"),
        ("4 or 5 bags, chosen settings", "letter-4", "usps-5", None),
        ("one bag of ferns", "letter-fern", "usps-fern", "mnist-fern"),
        ("1000 trees of convolutions", None, None, "mnist-1000"),
    ):
        add_three(f"RandomHingeForest, {label}", "measure.hinge:images/", *names)
    for label, kind in (("trees", "published"), ("ferns", "ferns")):
        label = f"RandomHingeForest, {label}, settings of the paper"
        add_three(label, f"papers.hinge:as-printed/{kind}/", "letter", "usps", "mnist")
    for label, *names in (
        ("8 or 10 trees, all features", "letter-10", None, "mnist-8"),
        ("70, 100 or 80 trees", "letter-70", "usps-100", "mnist-80"),
    ):
        add_three(f"E2EDecisionForest, {label}", "measure.endtoend:forests/", *names)
    add("E2ENetworkTree, 10 leaves", *5 * [None], "papers.endtoend:cnn/mnist")
    return ("Model", *(cells.TITLES[name] for name in sets), "Command"), cells.filled(rows)


GROUPS = (images, small, temperature, few_rows, steps, decay, special, speed, wide)
OPTIONS = groups.SETS | groups.SEEDS
TABLES = {"images": images_table}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
