"""Rules of trees: sides of missing values and of unknown levels, and weights of leaves."""

import re

import numpy as np
import pandas as pd
from sklearn.base import clone

from skforest import (
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ManifoldProcedure,
    ObliqueBoostingClassifier,
    export_text,
)


def test_missing_values_and_unknown_levels_on_different_sides():
    rng = np.random.default_rng(3)
    city = rng.choice(["a", "b", "c", "d", "e"], size=60).astype(object)
    city[rng.random(60) < 0.2] = None
    X = pd.DataFrame({"city": city})
    y = pd.Series(city).map({"a": 0, "b": 1, "c": 2, "d": 3, "e": 4}).fillna(0.0)
    tree = ManifoldForestRegressor(
        1, max_depth=1, projection="axis", bootstrap=False, random_state=3
    )
    rules = export_text(tree.fit(X, y)).splitlines()
    unseen, missing = tree.predict(pd.DataFrame({"city": ["unseen", None]}))
    assert unseen > 2 > 1 > missing
    assert rules[0] == "|--- city in {a, b, (missing)}"
    assert rules[2] == "|--- city in {c, d, e, (other)}"


def test_weights_of_classes_are_those_of_the_samples():
    """A prior does not change them, and votes and logits do not say them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + rng.normal(size=200) > 0).astype(int)
    tree = ManifoldForestClassifier(1, bootstrap=False, max_depth=1, random_state=0)
    hard = ManifoldProcedure(voting="hard")
    for model in (tree, clone(tree).set_params(prior=[0.9, 0.1])):
        leaves = model.fit(X, y).apply(X)[:, 0]
        counts = [np.bincount(y[leaves == leaf]) for leaf in np.unique(leaves)]
        found = re.findall(r"weights: \[(.*), (.*)\]", export_text(model, show_weights=True))
        assert np.array_equal(np.array(found, float), counts)
    votes = clone(tree).set_params(procedure=hard).fit(X, y)
    logits = ObliqueBoostingClassifier(1, n_bags=1, max_depth=1)
    for model in (votes, votes.forest_):
        text = export_text(model, show_weights=True)
        found = re.findall(r"--- weight: (.*) class: [01]$", text, re.M)
        assert [float(weight) for weight in found] == [sum(count) for count in counts]
    assert "weights" not in export_text(logits.fit(X, y), show_weights=True)
