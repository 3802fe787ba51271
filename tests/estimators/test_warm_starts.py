"""Warm starts: what they refuse before training, and bags that a time limit has ended."""

import pytest
from makers import assert_same_trees, quick_hinge, targets
from sklearn.base import clone
from sklearn.datasets import make_classification

from skforest import (
    CO2ForestClassifier,
    ManifoldForestClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestRegressor,
)
from skforest.estimators import base


@pytest.mark.parametrize(
    "model, change, message",
    [
        (ManifoldForestClassifier(1), {"feature_shape": (2, 3)}, "feature_shape=\\(2, 3\\), but"),
        (ManifoldForestClassifier(1), {"projection": "axis"}, "projection='axis', but"),
        (
            ManifoldForestClassifier(1, feature_shape=(2, 3)),
            {"wrap": True},
            "wrap=\\(True, True\\), but",
        ),
        (CO2ForestClassifier(1), {"weight_dtype": "float16"}, "weight_dtype='float16', but"),
        (quick_hinge(RandomHingeForestRegressor), {"loss": "poisson"}, "loss='poisson' does not"),
    ],
)
def test_a_warm_start_refuses_another_kind_of_trees_before_training(
    model, change, message, monkeypatch
):
    X, y = make_classification(60, 6, random_state=0)
    model = clone(model).set_params(warm_start=True, random_state=0).fit(X, y)
    size = "n_bags" if "n_bags" in model.get_params() else "n_estimators"
    model.set_params(**{size: 9}, **change)
    monkeypatch.setattr(base, "train_members", None)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)


def test_a_warm_start_trains_bags_again_that_a_time_limit_has_ended():
    X, y = targets()
    whole = quick_hinge(RandomHingeForestRegressor, n_bags=2, max_iter=400, random_state=0)
    model = clone(whole).set_params(warm_start=True, time_limit=1e-9)
    with pytest.warns(UserWarning, match="1 of 2 bags, .* of 400 steps"):
        model.fit(X, y)
    assert model.n_iter_[0] < 400
    model.set_params(time_limit=None).fit(X, y)
    assert_same_trees(model, whole.fit(X, y))
    assert model.n_iter_ == [400, 400]


def test_a_warm_start_continues_boosting_that_a_time_limit_has_ended():
    X, y = targets()
    model = ObliqueBoostingRegressor(
        30, n_bags=1, early_stopping=False, linear_leaves=False, linear_start=None,
        random_state=0, warm_start=True, time_limit=1e-9,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="of 30 rounds"):
        model.fit(X, y)
    assert model.n_iter_[0] < 30
    model.set_params(time_limit=None).fit(X, y)
    assert model.n_iter_ == [30]
    assert_same_trees(model, clone(model).set_params(warm_start=False).fit(X, y))
