"""Class weights of tables: what columns become, levels, rows of a class of weight 0."""

import numpy as np
import pandas as pd
import pytest
from makers import assert_same_trees, quick_boosting, quick_hinge
from sklearn.base import clone
from sklearn.datasets import make_classification

from skforest import (
    CO2ForestClassifier,
    E2EDecisionForestClassifier,
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
    RandomHingeForestClassifier,
    refine,
)
from skforest.training.method import n_members


@pytest.mark.thin(2)
@pytest.mark.every_class
@pytest.mark.parametrize("of_last", [1.0, 0.0])
def test_class_weights_count_for_columns_too(classifier, of_last):
    """Means of missing values and of levels, units, and columns that are constant elsewhere."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 4))
    y = np.digitize(X[:, 0] + X[:, 1] + rng.normal(size=150) / 2, [-0.5, 0.7])
    X[:, 3] = np.where(y == 2, X[:, 3], 1.0)
    X[:, 2] *= np.where(y == 1, 0.1, 1.0)  # by weight, the values of other classes are outliers
    X[:3, 2] = 20, -30, 40
    X[rng.random(X.shape) < 0.1] = np.nan
    levels = np.where(
        y == 2, rng.choice(list("abcyz"), 150), rng.choice(list("abcdefghijklm"), 150)
    )
    frame = pd.DataFrame(X, columns=list("pqrs")).assign(c=pd.Categorical(levels))
    class_weight = {0: 1.0, 1: 6.0, 2: of_last}
    weight = np.array([class_weight[label] for label in y])
    for given in (X, frame):
        weighted = clone(classifier).set_params(class_weight=class_weight).fit(given, y)
        by_hand = clone(classifier).fit(given, y, sample_weight=weight)
        found, expected = weighted.predict_proba(given), by_hand.predict_proba(given)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
        if not of_last:  # a column that is constant in the other classes
            one, other = (
                frame.assign(s=value) if given is frame else np.c_[X[:, :3], np.full(150, value)]
                for value in (1.0, 50.0)
            )
            found = weighted.predict_proba(one)
            np.testing.assert_array_equal(found, weighted.predict_proba(other))


@pytest.mark.parametrize("cls", [ManifoldForestClassifier, CO2ForestClassifier])
def test_a_class_of_weight_0_in_warm_starts_and_refinement(cls):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = np.digitize(X[:, 0] + rng.normal(size=150) / 2, [-0.5, 0.7])
    X[rng.random(X.shape) < 0.1] = np.nan
    options = {"class_weight": {2: 0.0}, "bootstrap": True, "oob_score": True, "random_state": 0}
    once = cls(20, **options).fit(X, y)
    grown = cls(15, warm_start=True, **options).fit(X, y).set_params(n_estimators=20).fit(X, y)
    assert_same_trees(once, grown)
    assert once.oob_score_ == grown.oob_score_
    assert np.isnan(once.oob_decision_function_[y == 2]).all()
    if cls is CO2ForestClassifier:
        refined = refine(once, X, y, random_state=0)
        found, expected = (
            one.forest_.node_weight[one.forest_.tree_start[:-1]] for one in (refined, once)
        )
        np.testing.assert_array_equal(found, expected)
        assert hasattr(refined, "oob_score_")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ManifoldForestClassifier(1),
        lambda: CO2ForestClassifier(1),
        lambda: E2EDecisionForestClassifier(1, max_depth=2),
        lambda: quick_hinge(RandomHingeForestClassifier, n_bags=1),
        lambda: quick_boosting(ObliqueBoostingClassifier, n_bags=1),
    ],
)
def test_a_warm_start_on_other_rows_and_with_other_class_weights(make):
    X, y = make_classification(200, 5, weights=[0.8], random_state=0)
    model = make().set_params(class_weight={0: 1, 1: 5}, random_state=0, warm_start=True)
    size = "n_bags" if "n_bags" in model.get_params() else "n_estimators"
    model.fit(X[:100], y[:100])
    first = model.forest_
    model.set_params(**{size: 2}).fit(X[100:], y[100:], sample_weight=1 + y[100:])
    model.set_params(**{size: 3}, class_weight="balanced").fit(X[100:], y[100:])
    assert n_members(model.forest_) == 3
    np.testing.assert_array_equal(model.forest_.deviation, first.deviation)


def test_class_weights_with_an_infinite_sum():
    X, y = make_classification(60, 5, random_state=0)
    model = ManifoldForestClassifier(1, class_weight={0: 1, 1: 1e308})
    with pytest.raises(ValueError, match="class_weight=.* a finite sum"):
        model.fit(X, y)
