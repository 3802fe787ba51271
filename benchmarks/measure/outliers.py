"""Outliers in columns: what the units of the usual values gain and cost.

    python -m benchmarks.measure.outliers tables [--data FOLDER] [--rounds N] [--models NAME ...]
    python -m benchmarks.measure.outliers columns [--rounds N] [--models NAME ...]

``tables`` fits the 32 tables of ``compare.peers`` with the units of the package, and with the
minimum and the range of all values, on 1000 of the training rows; other training rows judge.
Tables without outliers do not count. ``columns`` simulates a regression problem whose columns are
skewed or have wrong values, and divides the error by that of RandomForest. The notes of rows have
the errors.
"""

import joblib
import numpy as np
from sklearn.ensemble import RandomForestRegressor

import skforest
from benchmarks.lib import comparison, data, groups, scores
from benchmarks.lib.results import Measure, Row
from skforest.table import matrix

MODELS = {
    "ObliqueBoosting": {"n_bags": 2},
    "CO2Forest": {"n_estimators": 20},
    "RandomHingeForest": {"n_bags": 2},
    "NonGreedyTree": {},
    "E2EDecisionForest": {"n_estimators": 5},
}
COLUMNS = {
    "clean": lambda Z, rng: Z,
    "lognormal": lambda Z, rng: np.exp(Z),
    "very-skewed": lambda Z, rng: np.exp(2 * Z),
    "heavy-tails": lambda Z, rng: np.sinh(3 * Z),
    "code-2": lambda Z, rng: np.where(rng.random(Z.shape) < 0.02, -999, Z),
    "code-20": lambda Z, rng: np.where(rng.random(Z.shape) < 0.2, -999, Z),
    "typing-errors": lambda Z, rng: np.where(np.arange(len(Z))[:, None] == 7, 1000 * Z, Z),
    "other-units": lambda Z, rng: np.where(rng.random(Z.shape) < 0.08, 1000 * Z, Z),
}
N_TRAIN, N_TEST = 700, 1000

MEASURES = {
    **{
        f"tables/{task}/{model}": Measure(
            f"{model}, {task}: error divided by that with the range of all values", "ratio", False
        )
        for model in MODELS
        for task in comparison.TASKS
    },
    **{
        f"columns/{kind}/{model}": Measure(
            f"{model}, {kind}: error divided by that of RandomForest", "ratio", False
        )
        for model in MODELS
        for kind in COLUMNS
    },
}


def _model(name, task, seed, is_quick):
    kind = name if name == "E2EDecisionForest" and task == "classification" else None
    suffix = "Regressor" if task == "regression" else "Classifier"
    parameters = dict(MODELS[name])
    if is_quick and name != "NonGreedyTree":
        parameters["n_estimators"] = 3
    return getattr(skforest, kind or name + suffix)(random_state=seed, **parameters)


def tables(options):
    """Errors with the units of the usual values, relative to those with the whole range."""
    quick = {"classification": ["pima"], "regression": ["reg_airfoil"]}
    for task, names in groups.pick(options, comparison.TASKS, quick).items():
        jobs = [
            (model, task, name, seed)
            for model in options.models
            for name in names
            for seed in range(options.rounds or 2)
        ]
        run = joblib.delayed(_table_errors)
        found = joblib.Parallel(options.n_jobs)(run(*job, options) for job in jobs)
        for model in options.models:
            pairs = {}
            for (own, _, name, _), errors in zip(jobs, found, strict=True):
                if own == model and errors is not None:
                    pairs.setdefault(name, []).append(errors)
            means = {name: np.mean(errors, axis=0) for name, errors in pairs.items()}
            if means:
                ratios = [
                    (a + comparison.OFFSET) / (b + comparison.OFFSET) for a, b in means.values()
                ]
                note = ", ".join(f"{name} {a:.2f} ({b:.2f})" for name, (a, b) in means.items())
                value = float(np.exp(np.mean(np.log(ratios))))
                yield Row(f"tables/{task}/{model}", ratios, note, value=value)


def _table_errors(model, task, name, seed, options):
    """Errors with and without units of the usual values; None if there are no outliers."""
    split = data.load_table(name, options.data, 0, groups.pick(options, 5000, 300)).inner(seed)
    X, y = split.X_train[:1000], split.y_train[:1000]
    whole = matrix.value_range(X)
    *usual, _ = matrix.usual_range(X, np.ones(len(X)), whole)
    if np.array_equal(usual, whole) and not options.quick:
        return None
    errors = []
    for far in (matrix.FAR, 1e200):
        matrix.FAR, usually = far, matrix.FAR
        try:
            found = _model(model, task, seed, options.quick).fit(X, y).predict(split.X_test)
        finally:
            matrix.FAR = usually
        errors.append(scores.error(task, split.y_test, found)[0])
    return errors


def columns(options):
    """Errors on simulated columns, relative to RandomForest."""
    for kind in groups.pick(options, list(COLUMNS), ["code-2"]):
        errors = [_column_errors(kind, seed, options) for seed in range(options.rounds or 3)]
        forest, *others = np.mean(errors, axis=0)
        for model, error in zip(options.models, others, strict=True):
            note = f"{error:.1f} %, RandomForest {forest:.1f} %"
            yield Row(f"columns/{kind}/{model}", [error / forest], note)


def _column_errors(kind, seed, options):
    """Errors of RandomForest and of our models, on test rows of the same kind."""
    rng = np.random.default_rng(seed)
    n_train = groups.pick(options, N_TRAIN, 200)
    Z = rng.normal(size=(n_train + N_TEST, 5))
    y = np.tanh(Z[:, 0]) + Z[:, 1] * (1 + Z[:, 2]) / 2 + 0.1 * rng.normal(size=len(Z))
    X = np.column_stack([COLUMNS[kind](Z[:, :3], rng), Z[:, 3:]])
    train, test = slice(n_train), slice(n_train, None)
    models = [RandomForestRegressor(random_state=seed)]
    models += [_model(name, "regression", seed, options.quick) for name in options.models]
    return [
        scores.error("regression", y[test], model.fit(X[train], y[train]).predict(X[test]))[0]
        for model in models
    ]


GROUPS = (tables, columns)
OPTIONS = {"--models": {"nargs": "*", "choices": list(MODELS), "default": list(MODELS)}}

if __name__ == "__main__":
    groups.main(__doc__, GROUPS, MEASURES, OPTIONS)
