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
    CO2Procedure,
    HingeProcedure,
    ManifoldForestClassifier,
    ManifoldProcedure,
    NonGreedyProcedure,
    NonGreedyTreeRegressor,
    RandomHingeForestRegressor,
)

PATH = Path(__file__).with_name("digits.json")


def details(**changes):
    """The keyword `procedure` of manifold forests."""
    return {"procedure": ManifoldProcedure(max_search_samples=200, max_bins=16, **changes)}


AXIS, SPARSE, SHAPE = {"projection": "axis"}, {"projection": "sparse"}, {"feature_shape": (8, 8)}
SIGNS = {"sparse_weights": "sign"}
CASES = {
    "axis": {**AXIS, **details()},
    "axis exact": {**AXIS, **details(splitter="exact")},
    "axis best first": {**AXIS, **details(), "max_leaf_nodes": 40},
    "sparse": {**SPARSE, **details(**SIGNS, n_nonzeros=3)},
    "sparse fixed": {**SPARSE, **details(**SIGNS, nonzeros="fixed", n_nonzeros=4)},
    "patch sum": {**SHAPE, **details(contrast="sum", max_patch=4)},
    "patch edge": {**SHAPE, **details(contrast="edge", max_patch=4)},
    "patch difference": {**SHAPE, **details(contrast="difference", max_patch=3)},
    "patch mix": {**SHAPE, **details(contrast="mix", max_patch=4, splitter="exact")},
    "patch inside": {**SHAPE, **details(contrast="sum", max_patch=5, placement="inside")},
    "patch wrap": {**SHAPE, **details(contrast="edge", max_patch=4), "wrap": (True, False)},
    "patch unordered": {
        **SHAPE,
        **details(contrast="sum", max_patch=4),
        "unordered": (False, True),
    },
}
PLAIN = {"objective": "co2", "bootstrap": False, "holdout": 0.0, "max_features": 8}
HINGE = {"n_bags": 1, "max_depth": 5, "max_iter": 400, "random_state": 0}
# The digits as numbers, by hyperplanes and by margins.
REGRESSORS = {
    "co2": CO2ForestRegressor(4, **PLAIN),
    "co2 held out": CO2ForestRegressor(4, **PLAIN | {"holdout": 0.3, "bootstrap": True}),
    "co2 as printed": CO2ForestRegressor(
        4,
        procedure=CO2Procedure(signs="old", leaves="gradient", row_norm=None, keep="last"),
        **PLAIN,
    ),
    "co2 half precision": CO2ForestRegressor(4, **PLAIN, weight_dtype="float16"),
    "oc1": CO2ForestRegressor(4, **PLAIN | {"objective": "oc1"}, max_depth=5),
    "nongreedy": CO2ForestRegressor(4, **PLAIN, max_depth=6, refine="nongreedy"),
    "nongreedy full": CO2ForestRegressor(
        4,
        max_depth=4,
        refine=NonGreedyTreeRegressor(l1=0.01, procedure=NonGreedyProcedure(inference="full")),
        procedure=CO2Procedure(splitter="hist"),
        **PLAIN | {"objective": None},
    ),
    "hinge": RandomHingeForestRegressor(20, features="identity", **HINGE),
    "hinge fern": RandomHingeForestRegressor(20, features="linear", structure="fern", **HINGE),
    "hinge head": RandomHingeForestRegressor(
        20,
        n_directions=100,
        procedure=HingeProcedure(head="linear", optimizer="adagrad"),
        **HINGE,
    ),
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
        forest = ManifoldForestClassifier(4, max_features=8, random_state=0, **CASES[name])
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
