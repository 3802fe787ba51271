"""Fitted models that later versions must still load: saved files, pickles and their predictions.

Run once per version of the file format (``python tests/golden/make_models.py``); files of earlier
versions stay in the repository. `tests/test_golden.py` loads them and compares predictions.
"""

import pickle
from pathlib import Path

import numpy as np
from sklearn.base import is_classifier
from sklearn.datasets import load_diabetes, load_digits, load_iris

import skforest

FOLDER = Path(__file__).with_name("models")
SMALL = {"random_state": 0}
CO2 = {"objective": "co2", "bootstrap": False, "max_features": 3, "holdout": 0.0}
HINGE = {"n_bags": 2, "max_iter": 60, "max_depth": 3}
E2E = {"max_depth": 4, "greedy_epochs": 4, "finetune_epochs": 4}
MODELS = {
    "manifold_classifier": skforest.ManifoldForestClassifier(5, max_depth=5, **SMALL),
    "manifold_images": skforest.ManifoldForestClassifier(3, feature_shape=(8, 8), max_depth=6),
    "manifold_regressor": skforest.ManifoldForestRegressor(3, max_depth=5, **SMALL),
    "co2_classifier": skforest.CO2ForestClassifier(4, oob_score=True, **SMALL),
    "co2_half_precision": skforest.CO2ForestClassifier(3, **CO2, weight_dtype="float16", **SMALL),
    "co2_regressor": skforest.CO2ForestRegressor(3, **CO2, max_depth=5, **SMALL),
    "nongreedy_tree_classifier": skforest.NonGreedyTreeClassifier(**SMALL),
    "nongreedy_tree_regressor": skforest.NonGreedyTreeRegressor(max_depth=4, **SMALL),
    "nongreedy_forest_classifier": skforest.NonGreedyForestClassifier(3, **SMALL),
    "nongreedy_forest_regressor": skforest.NonGreedyForestRegressor(2, max_depth=4, **SMALL),
    "hinge_classifier": skforest.RandomHingeForestClassifier(8, **HINGE, **SMALL),
    "hinge_fern": skforest.RandomHingeForestRegressor(8, structure="fern", **HINGE, **SMALL),
    "hinge_regressor": skforest.RandomHingeForestRegressor(8, loss="poisson", **HINGE, **SMALL),
    "e2e_classifier": skforest.E2EDecisionForest(3, **E2E, **SMALL),
    "e2e_soft": skforest.E2EDecisionForest(2, **E2E, routing="soft", **SMALL),
    "e2e_regressor": skforest.E2EDecisionForestRegressor(3, **E2E, **SMALL),
}


def data(name):
    """X and y that a model is fitted on."""
    if name.endswith("images"):
        X, y = load_digits(return_X_y=True)
        return X[:200], y[:200]
    if is_classifier(MODELS[name]):
        X, y = load_iris(return_X_y=True)
        return X, np.array(["setosa", "versicolor", "virginica"])[y]
    X, y = load_diabetes(return_X_y=True)
    return X[:150], y[:150]


def response(model, X):
    """Probabilities, or predicted targets."""
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, model in MODELS.items():
        X, y = data(name)
        model.fit(X, y)
        skforest.save(model, FOLDER / f"{name}.npz")
        (FOLDER / f"{name}.pkl").write_bytes(pickle.dumps((model, model.forest_), protocol=4))
        expected = {"response": response(model, X), "leaves": model.apply(X)}
        np.savez_compressed(FOLDER / f"{name}.expected.npz", **expected)
