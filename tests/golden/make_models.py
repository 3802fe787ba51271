"""Fitted models that later versions must still load: saved files and their predictions.

``python tests/golden/make_models.py NAME ...`` fits and saves models, by default all of them. The
models of a version that is released stay as they are: only add new ones, and give their names.
`tests/files/test_golden.py` loads all of them and compares predictions.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.base import is_classifier
from sklearn.datasets import load_diabetes, load_digits, load_iris

import skforest

FOLDER = Path(__file__).with_name("models")
EXPECTED = Path(__file__).with_name("expected.npz")
SMALL = {"random_state": 0}
SHAPE = {"feature_shape": (8, 8), "max_depth": 6}
AXES = {"feature_shape": (2, 5), "unordered": (False, True), "wrap": (True, False)}
CO2 = {"objective": "co2", "bootstrap": False, "max_features": 3, "holdout": 0.0}
HINGE = {"n_bags": 2, "max_iter": 60, "max_depth": 3}
E2E = {"max_depth": 4, "greedy_epochs": 4, "finetune_epochs": 4}
BLEND = {"cv": 3, "n_rounds": 5, **SMALL}
TREES = {"n_estimators": 3, "max_depth": 3}
QUANTILES = {"loss": "quantile", "quantile": (0.1, 0.9)}
MODELS = {
    "manifold_classifier": skforest.ManifoldForestClassifier(5, max_depth=5, **SMALL),
    "manifold_images": skforest.ManifoldForestClassifier(3, **SHAPE, **SMALL),
    "manifold_regressor": skforest.ManifoldForestRegressor(3, max_depth=5, **AXES, **SMALL),
    "several_labels_classifier": skforest.ManifoldForestClassifier(3, max_depth=4, **SMALL),
    "co2_classifier": skforest.CO2ForestClassifier(4, oob_score=True, **SMALL),
    "co2_half_precision": skforest.CO2ForestClassifier(3, **CO2, weight_dtype="float16", **SMALL),
    "co2_regressor": skforest.CO2ForestRegressor(3, **CO2, max_depth=5, **SMALL),
    "co2_nongreedy_classifier": skforest.CO2ForestClassifier(
        3, **CO2, refine="nongreedy", **SMALL
    ),
    "co2_nongreedy_regressor": skforest.CO2ForestRegressor(
        2, **CO2, max_depth=4, refine=skforest.NonGreedyTreeRegressor(l1=0.001), **SMALL
    ),
    "table_classifier": skforest.CO2ForestClassifier(3, max_depth=4, **SMALL),
    "nongreedy_tree_classifier": skforest.NonGreedyTreeClassifier(**SMALL),
    "nongreedy_tree_regressor": skforest.NonGreedyTreeRegressor(max_depth=4, **SMALL),
    "hinge_classifier": skforest.RandomHingeForestClassifier(8, **HINGE, **SMALL),
    "hinge_fern": skforest.RandomHingeForestRegressor(8, structure="fern", **HINGE, **SMALL),
    "hinge_regressor": skforest.RandomHingeForestRegressor(8, loss="poisson", **HINGE, **SMALL),
    "e2e_classifier": skforest.E2EDecisionForestClassifier(3, **E2E, **SMALL),
    "e2e_soft": skforest.E2EDecisionForestClassifier(2, **E2E, routing="soft", **SMALL),
    "e2e_regressor": skforest.E2EDecisionForestRegressor(3, **E2E, **SMALL),
    "boosting_regressor": skforest.ObliqueBoostingRegressor(
        5, n_bags=2, max_leaf_nodes=6, linear_leaves=True, **SMALL
    ),
    "boosting_quantiles": skforest.ObliqueBoostingRegressor(5, n_bags=2, **QUANTILES, **SMALL),
    "table_boosting_classifier": skforest.ObliqueBoostingClassifier(5, n_bags=2, **SMALL),
    "blend_classifier": skforest.BlendedForestClassifier(
        [
            skforest.ManifoldForestClassifier(**TREES),
            skforest.RandomHingeForestClassifier(4, **HINGE),
        ],
        **BLEND,
    ),
    "table_blend_regressor": skforest.BlendedForestRegressor(
        [skforest.CO2ForestRegressor(**TREES), skforest.ManifoldForestRegressor(**TREES)], **BLEND
    ),
}


def data(name, model):
    """X and y that a model is fitted on."""
    if name.endswith("images"):
        X, y = load_digits(return_X_y=True)
        return X[:200], y[:200]
    if is_classifier(model):
        X, y = load_iris(return_X_y=True)
        y = np.array(["setosa", "versicolor", "virginica"])[y]
    else:
        X, y = load_diabetes(return_X_y=True)
        X, y = X[:150], y[:150]
        if name == "co2_regressor":  # two outputs, and an outlier
            X[7, 2] = 99
            y = np.column_stack([y, X[:, 3]])
    if name.startswith("several_labels"):
        y = np.column_stack([y, X[:, 0] > 5.8])
    return (with_categories(X), y) if name.startswith("table") else (X, y)


def with_categories(X):
    """A table of numbers and strings, both with missing values."""
    table = X.astype(object)
    table[:, 1] = np.array(["low", "medium", "high"])[np.digitize(X[:, 1], [0, 3])]
    table[::7, 0] = None
    table[3::11, 1] = None
    return table


def response(model, X):
    """Probabilities, or predicted targets; those of several outputs side by side."""
    if not is_classifier(model):
        return model.predict(X)
    found = model.predict_proba(X)
    return np.hstack(found) if isinstance(found, list) else found


def members(model):
    """The estimators of a blend, or the estimator itself, as a list."""
    return list(getattr(model, "members_", {"": model}).values())


def expected(name, model):
    """What a loaded model must predict: dict of arrays."""
    X, _ = data(name, model)
    leaves = np.hstack([member.apply(X) for member in members(model)])
    return {f"{name}.response": response(model, X), f"{name}.leaves": leaves}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    found = dict(np.load(EXPECTED)) if EXPECTED.exists() else {}
    for name in sys.argv[1:] or MODELS:
        model = MODELS[name].fit(*data(name, MODELS[name]))
        skforest.save(model, FOLDER / f"{name}.npz")
        found |= expected(name, model)
    np.savez_compressed(EXPECTED, **found)
