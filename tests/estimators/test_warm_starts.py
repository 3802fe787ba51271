"""Warm starts: what they refuse before training, bags that a time limit has ended, other rows."""

import warnings

import numpy as np
import pytest
from makers import assert_same_trees, hinge_rows, quick_boosting, quick_hinge, targets
from sklearn.base import clone
from sklearn.datasets import make_classification

from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    E2EDecisionForestClassifier,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ManifoldProcedure,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
    refine,
)
from skforest.estimators import base
from skforest.training import hinge


def test_a_hinge_forest_keeps_the_size_of_its_bags():
    """The "auto" sizes for many rows are others."""
    X, y = hinge_rows(RandomHingeForestClassifier, 80)
    model = RandomHingeForestClassifier(max_iter=1, random_state=0, warm_start=True).fit(X, y)
    sizes = {"n_estimators_": 50, "n_bags_": 10, "learning_rate_": 3 / 50}
    assert vars(model).items() >= sizes.items()
    many = np.random.default_rng(0).normal(size=(10_000, X.shape[1])), np.resize(y, 10_000)
    assert vars(clone(model).fit(*many)).items() >= {"n_estimators_": 100, "n_bags_": 5}.items()
    assert clone(model).set_params(n_estimators=100).fit(X, y).n_bags_ == 5
    with pytest.warns(UserWarning, match="without increasing n_bags"):
        model.fit(*many)
    model.set_params(n_bags=11).fit(*many)
    assert vars(model).items() >= (sizes | {"n_bags_": 11}).items()
    assert len(model.forest_) == 550
    with pytest.raises(ValueError, match="n_estimators=60, but warm_start=True .* of 50 trees"):
        model.set_params(n_estimators=60, n_bags=12).fit(*many)


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


NOISE = np.random.default_rng(0).normal(size=(90, 5))
BOOTSTRAPPED = [
    ManifoldForestRegressor(15, oob_score=True),
    CO2ForestRegressor(15, max_depth=6, bootstrap=True, oob_score=True),
    quick_hinge(RandomHingeForestRegressor, n_bags=6, bootstrap=True, oob_score=True),
]


def fitted(model, rows, *weight):
    return model.fit(rows[:, 1:], rows[:, 0], *weight)


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
@pytest.mark.parametrize("model", BOOTSTRAPPED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("change", ["rows", "weights", "max_samples", "bootstrap"])
def test_out_of_bag_scores_are_those_of_members_whose_rows_are_known(model, change):
    """Members that were trained on other rows, or with others, may have seen any of them."""
    model = clone(model).set_params(warm_start=True, random_state=0)
    rows, weight = NOISE[:60], ()
    if change == "weights":
        weight = (np.arange(60) % 3 + 1,)
    if change == "bootstrap":
        model.set_params(bootstrap=False, oob_score=False)
    n_known = len(fitted(model, rows, *weight).forest_)
    size = "n_bags" if "n_bags" in model.get_params() else "n_estimators"
    n = model.get_params()[size]
    model.set_params(**{size: 2 * n, "bootstrap": True, "oob_score": True})
    if change == "max_samples":
        model.set_params(max_samples=0.3)
    fitted(model, NOISE if change == "rows" else rows)
    assert model.oob_score_ < 0.3
    seen = model.oob_prediction_
    # A further warm start on the same rows keeps what the last one knew.
    last = len(model.forest_)
    fitted(model.set_params(**{size: 3 * n}), NOISE if change == "rows" else rows)
    assert last > n_known and model.oob_score_ < 0.3
    assert np.isfinite(model.oob_prediction_).sum() >= np.isfinite(seen).sum()


def test_out_of_bag_scores_of_the_same_rows_are_those_of_one_fit():
    once = fitted(ManifoldForestRegressor(12, oob_score=True, random_state=0), NOISE)
    model = ManifoldForestRegressor(6, oob_score=True, warm_start=True, random_state=0)
    order = np.random.default_rng(1).permutation(len(NOISE))
    fitted(fitted(model, NOISE).set_params(n_estimators=12), NOISE[order], np.full(90, 3.0))
    np.testing.assert_array_equal(model.oob_prediction_, once.oob_prediction_[order])
    weight = np.random.default_rng(2).uniform(0.5, 2, 90)
    model = clone(model).set_params(n_estimators=6)
    fitted(fitted(model, NOISE, weight).set_params(n_estimators=12), NOISE, weight / 7)
    once = fitted(clone(once), NOISE, weight)
    np.testing.assert_allclose(model.oob_prediction_, once.oob_prediction_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
def test_refined_trees_may_have_seen_rows_that_they_did_not_draw():
    model = CO2ForestRegressor(8, max_depth=6, bootstrap=True, oob_score=True, random_state=0)
    model = fitted(model.set_params(warm_start=True), NOISE)
    weight = np.random.default_rng(1).uniform(0.5, 1.5, 90)
    refined = refine(model, NOISE[:, 1:], NOISE[:, 0], weight, random_state=0)
    fitted(refined.set_params(n_estimators=12), NOISE)
    assert refined.oob_score_ < 0.2
    same = refine(model, NOISE[:, 1:], NOISE[:, 0], random_state=0)
    n_known = np.isfinite(same.oob_prediction_).sum()
    fitted(same.set_params(n_estimators=9), NOISE)
    assert np.isfinite(same.oob_prediction_).sum() >= n_known > 80


def test_quantiles_are_calibrated_by_bags_that_did_not_see_the_rows(monkeypatch):
    counts, calibrated_baseline = [], hinge.calibrated_baseline

    def counted(forest, *given):
        counts.append(len(forest.bag_start) - 1)
        return calibrated_baseline(forest, *given)

    monkeypatch.setattr(hinge, "calibrated_baseline", counted)
    model = quick_hinge(RandomHingeForestRegressor, n_bags=2, loss="quantile", warm_start=True)
    fitted(model, NOISE[:60])
    fitted(model.set_params(n_bags=3), NOISE[:60])
    fitted(model.set_params(n_bags=5), NOISE)
    fitted(model.set_params(n_bags=6), NOISE)
    assert counts == [2, 3, 2, 3]


def test_rounds_of_boosting_on_other_rows_have_no_held_out_predictions():
    model = quick_boosting(
        ObliqueBoostingRegressor, n_estimators=4, early_stopping=True, warm_start=True
    ).set_params(n_bags=3)
    assert hasattr(fitted(model, NOISE[:60]), "oob_score_")
    fitted(model.set_params(n_estimators=6), NOISE[:60])
    assert hasattr(model, "oob_score_")
    with pytest.warns(UserWarning, match="are not those of the last fit.*no out-of-bag"):
        fitted(model.set_params(n_estimators=8), NOISE)
    assert not hasattr(model, "oob_score_")
    with pytest.raises(ValueError, match="predict_interval needs predictions of held-out rows"):
        model.predict_interval(NOISE[:, 1:])


@pytest.mark.parametrize(
    "model",
    [CO2ForestClassifier(2), E2EDecisionForestClassifier(2)],
    ids=lambda m: type(m).__name__,
)
def test_columns_that_were_constant_in_the_first_fit_are_named(model):
    X, y = make_classification(60, 6, random_state=0)
    first = X.copy()
    first[:, [0, 3]] = 5
    model = clone(model).set_params(warm_start=True, random_state=0).fit(first, y)
    model.set_params(n_estimators=3).fit(first + 0.0, y)
    first[:, 3] = X[:, 3]
    with pytest.warns(UserWarning, match=r"Columns \[3\] of X vary, but were constant"):
        model.set_params(n_estimators=4).fit(first, y)


def test_other_rows_than_those_of_a_warm_start_may_vary():
    X, y = make_classification(60, 6, random_state=0)
    first = X.copy()
    first[:, 3] = 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quick_boosting(ObliqueBoostingRegressor, n_estimators=3, early_stopping=True)
        model.fit(first, y, X_val=X, y_val=y)
        refine(CO2ForestRegressor(2, max_depth=2, random_state=0).fit(first, y), X, y)


def test_trees_that_vote_are_the_new_ones():
    X, y = make_classification(80, 6, flip_y=0.3, random_state=0)
    model = ManifoldForestClassifier(2, max_depth=2, warm_start=True, random_state=0).fit(X, y)
    before = model.forest_
    votes = ManifoldProcedure(voting="hard")
    model.set_params(n_estimators=4, procedure=votes).fit(X, y)
    for tree in range(4):
        shares = model.forest_[tree].response(X)
        if tree < 2:
            np.testing.assert_array_equal(shares, before[tree].response(X))
        assert np.isin(shares, [0, 1]).all() == (tree >= 2)


def test_labels_keep_their_dtype():
    X, y = make_classification(60, 6, random_state=0)
    model = ManifoldForestClassifier(2, warm_start=True, random_state=0).fit(X, y)
    model.set_params(n_estimators=3).fit(X, y.astype(bool))
    assert model.classes_.dtype == model.predict(X).dtype == y.dtype
