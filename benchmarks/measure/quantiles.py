"""Coverage of intervals between two quantiles, and of conformal intervals and sets.

    python -m benchmarks.measure.quantiles coverage [--data FOLDER] [--quick] [--sets NAME ...]
    python -m benchmarks.measure.quantiles boosting [--data FOLDER] [--quick] [--sets NAME ...]
    python -m benchmarks.measure.quantiles conformal [--data FOLDER] [--quick] [--sets NAME ...]

Intervals go from the 5 % to the 95 % quantile, with default parameters but for
``early_stopping``; their coverage of test rows should be 90 %. The pinball losses are sums over
both quantiles, in units of the standard deviation of the test target. ``coverage`` fits hinge
forests, one for each quantile. ``boosting`` fits one model of both to the regression tables; its
notes compare it with the same model without calibration.

``conformal`` measures `predict_interval` and `predict_set` with alpha=0.1 and three seeds, on 600
training rows and at most 1200 test rows. Notes have the mean width of intervals in standard
deviations of the test target, and in brackets the width if it were the same for all rows; or the
mean number of classes in a set, and in brackets the accuracy.
"""

import statistics
from unittest import mock

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.metrics import mean_pinball_loss
from sklearn.model_selection import train_test_split

from benchmarks.lib import cells, data, groups
from benchmarks.lib.results import Measure, Row
from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    CO2ForestClassifier,
    CO2ForestRegressor,
    HingeProcedure,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)

LEVELS = (0.05, 0.95)
FROM_FILES = ["california", "reg_airfoil", "reg_concrete", "reg_kin8nm", "reg_wind"]
SETS = ["diabetes", "friedman1", "skewed", *FROM_FILES]
CONFORMAL = {  # tables for intervals, and for sets
    True: ["california", "reg_airfoil", "reg_bike_noleak", "reg_kin8nm", "reg_wind"],
    False: ["adult", "banana", "krkopt", "waveform", "wine_quality_white_cls"],
}
BAGGED = {"oob_score": True}
MODELS = {  # (regressor, classifier) and their parameters; None: no model for sets
    "boosting": (ObliqueBoostingRegressor, ObliqueBoostingClassifier, {}),
    "two quantiles": (ObliqueBoostingRegressor, None, {"loss": "quantile", "quantile": LEVELS}),
    "CO2": (CO2ForestRegressor, CO2ForestClassifier, BAGGED),
    "manifold": (ManifoldForestRegressor, ManifoldForestClassifier, BAGGED),
    "hinge": (
        RandomHingeForestRegressor, RandomHingeForestClassifier, BAGGED | {"bootstrap": True},
    ),
    "blend": (BlendedForestRegressor, BlendedForestClassifier, {}),
}  # fmt: skip
STOPPING = {"fixed": False, "early": True}  # values of early_stopping

MEASURES = (
    {
        f"coverage/{name}-{stopping}": Measure(
            f"coverage of 5-95 % intervals, {name}, {stopping}", "%"
        )
        for name in SETS
        for stopping in STOPPING
    }
    | {
        f"boosting/{name}": Measure(f"coverage of 5-95 % intervals, boosting, {name}", "%")
        for name in data.REGRESSION
    }
    | {
        f"conformal/{name}/{model}": Measure(f"coverage of 90 % asked for, {name}, {model}", "%")
        for is_regression, names in CONFORMAL.items()
        for name in names
        for model, (_, of_sets, _) in MODELS.items()
        if is_regression or of_sets
    }
)


def _skewed(seed):
    """Targets whose noise grows with their mean, as house prices have it."""
    random = np.random.RandomState(seed)
    X = random.uniform(size=(4000, 8))
    mean = np.exp(X[:, 0] + X[:, 1] * X[:, 2] - np.square(X[:, 3] - X[:, 4]))
    return X, mean * random.gamma(4.0, 0.25, size=len(X))


def _split(name, seed, options):
    """X_train, X_test, y_train, y_test."""
    if name in FROM_FILES:
        split = data.load_table(name, options.data, seed)
        parts = split.X_train, split.X_test, split.y_train, split.y_test
    else:
        X, y = {
            "diabetes": lambda: load_diabetes(return_X_y=True),
            "friedman1": lambda: make_friedman1(4000, noise=1.0, random_state=seed),
            "skewed": lambda: _skewed(seed),
        }[name]()
        n_train = 1000 if len(X) > 2000 else 0.75
        parts = train_test_split(X, y, train_size=n_train, random_state=seed)
    return [part[:300] for part in parts] if options.quick else parts


def coverage(options):
    """Share of the test rows within the interval, in percent."""
    for name in options.sets or groups.pick(options, SETS, SETS[1:5:3]):
        for stopping, early_stopping in STOPPING.items():
            covered, losses, widths = [], [], []
            # Of diabetes, 50 rows calibrate and 111 rows test: one seed tells little.
            for seed in range(options.rounds or (20 if name == "diabetes" else 3)):
                X_train, X_test, y_train, y_test = _split(name, seed, options)
                predictions = []
                for level in LEVELS:
                    model = RandomHingeForestRegressor(
                        loss="quantile",
                        quantile=level,
                        random_state=seed,
                        procedure=HingeProcedure(early_stopping=early_stopping),
                    )
                    predictions.append(model.fit(X_train, y_train).predict(X_test))
                low, high = predictions
                covered.append(100 * float(np.mean((low <= y_test) & (y_test <= high))))
                unit = np.std(y_test)
                widths.append(float(np.mean(high - low) / unit))
                losses.append(
                    sum(
                        mean_pinball_loss(y_test, found, alpha=level) / unit
                        for found, level in zip(predictions, LEVELS)
                    )
                )
            note = (
                f"mean width {statistics.fmean(widths):.2f} standard deviations, "
                f"pinball losses {statistics.fmean(losses):.3f}"
            )
            yield Row(f"coverage/{name}-{stopping}", covered, note)


def _covered_and_loss(predicted, y):
    """Share of the targets in the interval, in percent, and the sum of both pinball losses."""
    low, high = np.sort(predicted, axis=1).T
    losses = [
        mean_pinball_loss(y, found, alpha=level) / np.std(y)
        for found, level in zip((low, high), LEVELS)
    ]
    return 100 * float(np.mean((low <= y) & (y <= high))), sum(losses)


def boosting(options):
    """Share of the test rows within the interval of one model of two quantiles, in percent."""
    from skforest.training import boosting as module

    for name in options.sets or groups.pick(options, data.REGRESSION, ["reg_airfoil"]):
        found = {"calibrated": [], "plain": []}
        for seed in range(options.rounds or 1):
            split = data.load_table(name, options.data, seed)
            split = split.head(300, 300) if options.quick else split
            model = ObliqueBoostingRegressor(
                loss="quantile", quantile=LEVELS, n_jobs=1, random_state=seed
            )
            with mock.patch.object(module, "calibrated", wraps=module.calibrated) as calibrated:
                model.fit(split.X_train, split.y_train)
            plain, _ = calibrated.call_args.args
            for kind, forest in (("calibrated", model.forest_), ("plain", plain)):
                response = forest.response(split.X_test)
                found[kind].append(_covered_and_loss(response, split.y_test))
        covered, loss = (list(column) for column in zip(*found["calibrated"]))
        before, loss_before = (statistics.fmean(column) for column in zip(*found["plain"]))
        ratio = statistics.fmean(loss) / loss_before
        note = (
            f"pinball losses {statistics.fmean(loss):.4f}; without calibration {before:.1f} % "
            f"covered, {loss_before:.4f}, ratio {ratio:.4f}"
        )
        yield Row(f"boosting/{name}", covered, note)


def conformal(options):
    """Coverage of intervals and sets in percent, and their mean width or size."""
    for is_regression, names in CONFORMAL.items():
        measure = _intervals if is_regression else _sets
        for name in options.sets or groups.pick(options, names, names[:1]):
            if name not in names:
                continue
            for model, (regressor, classifier, params) in MODELS.items():
                kind = regressor if is_regression else classifier
                if kind is None:
                    continue
                found = []
                for seed in range(options.rounds or 3):
                    n_rows = 200 if options.quick else 600
                    split = data.load_table(name, options.data, seed).head(n_rows, 2 * n_rows)
                    params = params | {"random_state": seed, "n_jobs": options.n_jobs}
                    found.append(measure(kind(**params), split))
                covered, size, other = (list(column) for column in zip(*found))
                note = f"{statistics.fmean(size):.2f}"
                if not np.isnan(other).any():
                    note += f" ({statistics.fmean(other):.2f})"
                yield Row(f"conformal/{name}/{model}", covered, note)


def _intervals(model, split):
    """Coverage in percent, mean width, and the width that is the same for all rows."""
    from skforest.estimators import conformal as module

    with mock.patch.object(module, "typical_errors", wraps=module.typical_errors) as seen:
        model.fit(split.X_train, split.y_train)
    low, high = model.predict_interval(split.X_test).T
    y, unit, same = split.y_test, np.std(split.y_test), np.nan
    if seen.called:
        errors = np.sort(seen.call_args.args[1])
        same = 2 * errors[int(np.ceil(0.9 * (len(errors) + 1))) - 1] / unit
    return 100 * np.mean((low <= y) & (y <= high)), np.mean(high - low) / unit, same


def _sets(model, split):
    """Coverage in percent, mean number of classes, and accuracy."""
    model.fit(split.X_train, split.y_train)
    sets = model.predict_set(split.X_test)
    covered = (sets & (model.classes_ == split.y_test[:, None])).any(axis=1)
    return 100 * covered.mean(), sets.sum(axis=1).mean(), model.score(split.X_test, split.y_test)


def conformal_table(stored):
    """Return the table of coverages, with widths or sizes, and their means."""

    def cell(name, model):
        row = stored.get(f"measure.quantiles:conformal/{name}/{model}")
        return f"{row['value']:.1f} %, {row['note']}" if row else ""

    rows, names = [], sum(CONFORMAL.values(), [])
    command = cells.commands(stored.of("measure.quantiles", "conformal").values())
    for name in names:
        rows.append((name, *(cell(name, model) for model in MODELS), command))
    for what, of_mean in (("mean, intervals", CONFORMAL[True]), ("mean, sets", CONFORMAL[False])):
        means = []
        for model in MODELS:
            found = [stored.get(f"measure.quantiles:conformal/{n}/{model}") for n in of_mean]
            values = [row["value"] for row in found if row]
            means.append(f"{statistics.fmean(values):.1f} %" if values else "")
        rows.append((what, *means, command))
    return ("Table", *MODELS, "Command"), rows


GROUPS = (coverage, boosting, conformal)
TABLES = {"conformal": conformal_table}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, groups.SETS)
