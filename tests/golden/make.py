"""Golden values: what small forests on the bundled digits have always predicted.

Run ``python tests/golden/make.py`` after a change that is meant to change the trees, and say so in
the changelog. Only paths of whole numbers and of plain IEEE arithmetic are taken (bytes, Gini,
squared errors), so that the values hold on every processor; logarithms do not.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits

from skforest import (
    CO2ForestRegressor,
    ManifoldForestClassifier,
    NonGreedyForestRegressor,
    RandomHingeForestRegressor,
)

PATH = Path(__file__).with_name("digits.json")
SHAPE = {"feature_shape": (8, 8)}
SIGNS = {"projection": "sparse", "sparse_weights": "sign"}
CASES = {
    "axis": {"projection": "axis"},
    "axis exact": {"projection": "axis", "splitter": "exact"},
    "axis best first": {"projection": "axis", "max_leaf_nodes": 40},
    "sparse": {**SIGNS, "n_nonzeros": 3},
    "sparse fixed": {**SIGNS, "nonzeros": "fixed", "n_nonzeros": 4},
    "patch sum": {**SHAPE, "contrast": "sum", "max_patch": 4},
    "patch edge": {**SHAPE, "contrast": "edge", "max_patch": 4},
    "patch difference": {**SHAPE, "contrast": "difference", "max_patch": 3},
    "patch mix": {**SHAPE, "contrast": "mix", "max_patch": 4, "splitter": "exact"},
    "patch inside": {**SHAPE, "contrast": "sum", "max_patch": 5, "placement": "inside"},
    "patch wrap": {**SHAPE, "contrast": "edge", "max_patch": 4, "wrap": (True, False)},
    "patch unordered": {**SHAPE, "contrast": "sum", "max_patch": 4, "unordered": (False, True)},
}
PLAIN = {"objective": "co2", "bootstrap": False, "holdout": 0.0, "max_features": 8}
HINGE = {"n_bags": 1, "max_depth": 5, "max_iter": 400, "random_state": 0}
# The digits as numbers, by hyperplanes and by margins.
REGRESSORS = {
    "co2": CO2ForestRegressor(4, **PLAIN),
    "co2 held out": CO2ForestRegressor(4, **PLAIN | {"holdout": 0.3, "bootstrap": True}),
    "co2 as printed": CO2ForestRegressor(
        4, **PLAIN, signs="old", leaves="gradient", row_norm=None, keep="last"
    ),
    "co2 half precision": CO2ForestRegressor(4, **PLAIN, weight_dtype="float16"),
    "oc1": CO2ForestRegressor(4, **PLAIN | {"objective": "oc1"}, max_depth=5),
    "nongreedy": NonGreedyForestRegressor(4, max_features=8, max_depth=6, init="co2"),
    "nongreedy full": NonGreedyForestRegressor(
        4, max_features=8, max_depth=4, init="axis", inference="full", l1=0.01
    ),
    "hinge": RandomHingeForestRegressor(20, features="identity", **HINGE),
    "hinge fern": RandomHingeForestRegressor(20, features="linear", structure="fern", **HINGE),
    "hinge head": RandomHingeForestRegressor(20, head="linear", optimizer="adagrad", **HINGE),
}


def digest(array):
    """Hash of the little-endian bytes of an array of integers."""
    array = np.ascontiguousarray(array, dtype="<i8")
    return hashlib.sha256(array.tobytes()).hexdigest()[:16]


def case(name):
    """Golden values of one case: dict."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.uint8)
    if name in REGRESSORS:
        forest = clone(REGRESSORS[name]).set_params(random_state=0)
    else:
        options = dict(n_estimators=4, max_features=8, max_search_samples=200, max_bins=16)
        forest = ManifoldForestClassifier(**options, random_state=0, **CASES[name])
    forest.fit(X[:1000], y[:1000])
    tree = forest.forest_
    return {
        "n_leaves": tree.n_leaves.tolist(),
        "errors": int((np.rint(forest.predict(X[1000:])) != y[1000:]).sum()),
        "leaves": digest(forest.apply(X[1000:])),
        "child": digest(tree.child),
        "direction": digest(tree.direction),
        "halves of thresholds": digest(np.rint(2 * tree.threshold.astype(float))),
    }


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(case(name))}" for name in (*CASES, *REGRESSORS)]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
