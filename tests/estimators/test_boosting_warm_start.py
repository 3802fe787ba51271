"""Warm starts of oblique boosting: more bags, more rounds."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from makers import BOTH_BOOSTING as BOTH
from makers import assert_same_trees
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from scipy import sparse
from sklearn.base import clone

from skforest import ObliqueBoostingClassifier, ObliqueBoostingRegressor, load, save
from skforest.training import boosting_rounds as training_module

# -------------------------------------------------------------------------------------- warm start


@BOTH
def test_more_bags_by_warm_start(cls):
    X, y = rows_of(cls)
    model = quick(cls, early_stopping=False, warm_start=True).fit(X, y)
    model.set_params(n_bags=4).fit(X, y)
    assert_same_trees(model, quick(cls, early_stopping=False, n_bags=4).fit(X, y))
    assert len(model.n_iter_) == len(model.validation_scores_) == len(model.loss_curve_) == 4
    with pytest.raises(ValueError, match="n_bags=3 must be larger or equal to the 4"):
        copy.deepcopy(model).set_params(n_bags=3).fit(X, y)
    with pytest.warns(UserWarning, match="without increasing n_estimators or n_bags") as warned:
        model.fit(X, y)
    assert warned[0].filename == __file__


CONTINUED = {
    "several bags": {},
    "one bag, trained again": {"n_bags": 1},
    "ended early": {"n_iter_no_change": 2, "early_stopping": True},
    "one bag ended early": {"n_bags": 1, "n_iter_no_change": 2},
    "all rounds": {"early_stopping": False},
    "one bag, all rounds": {"early_stopping": False, "n_bags": 1},
    "given rows": {"X_val": True},
    "score": {"early_stopping": "r2", "n_bags": 1},
    "constants": {"linear_leaves": False, "max_leaf_nodes": 5},
    "slopes": {"linear_leaves": True, "subsample": 1.0},
    "linear start": {"linear_start": 100.0},
    "linear start, slopes": {"linear_start": 100.0, "linear_leaves": True, "n_bags": 1},
    "binary, linear start": {"target": "binary", "linear_start": 100.0},
    "slopes, all rounds": {"linear_leaves": True, "early_stopping": False},
    "groups": {"interaction_cst": [{0, 1}, {2, 3}]},
    "monotonic": {"monotonic_cst": [1, 0, 0, 0, 0, 0], "target": "binary"},
    "binary": {"target": "binary", "linear_leaves": True},
    "seven": {"target": "seven"},
    "outputs": {"target": "outputs"},
    "poisson": {"loss": "poisson"},
    "quantiles": {"loss": "quantile", "quantile": np.array([0.1, 0.9])},
    "sparse": {"sparse": True},
    "boxes": {"feature_shape": (2, 3), "linear_leaves": False, "n_bags": 1},
    "boxes, slopes": {"feature_shape": [2, 3], "linear_leaves": True, "linear_start": 100.0},
    "boxes, seven": {"feature_shape": 6, "target": "seven"},
}


def assert_same_fit(a, b):
    assert_same_trees(a, b)
    assert a.n_iter_ == b.n_iter_ and a.linear_leaves_ == b.linear_leaves_
    for name in ("validation_scores_", "loss_curve_"):
        for one, other in zip(getattr(a, name), getattr(b, name), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CONTINUED.values(), ids=CONTINUED)
def test_more_rounds_by_warm_start(case):
    """Training that continues has the bits of training at once."""
    case = dict(case)
    target, fit = case.pop("target", None), {}
    X, y = rows_of(ObliqueBoostingRegressor, 120)
    if target in ("binary", "seven"):
        y = np.digitize(y, np.quantile(y, [0.5] if target == "binary" else np.arange(1, 7) / 7))
    elif target == "outputs":
        y = np.stack([y, X[:, 0]], axis=1)
    if case.pop("sparse", False):
        X = sparse.csr_matrix(np.where(X > 0.5, X, 0))
    if case.pop("X_val", False):
        fit = {"X_val": X[80:], "y_val": y[80:]}
        X, y = X[:80], y[:80]
    is_class = target in ("binary", "seven")
    cls = ObliqueBoostingClassifier if is_class else ObliqueBoostingRegressor
    model = quick(cls, n_estimators=4, warm_start=True, **case).fit(X, y, **fit)
    # "auto" is resolved by the first fit.
    resolved = {"linear_leaves": model.linear_leaves_, "linear_start": model.linear_start_}
    for n in (8, 15):
        model = pickle.loads(pickle.dumps(model))
        model.set_params(n_estimators=n).fit(X, y, **fit)
    at_once = quick(cls, n_estimators=15, **case | resolved)
    assert_same_fit(model, at_once.fit(X, y, **fit))


@pytest.mark.parametrize("linear_leaves", [False, True])
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_more_rounds_than_those_of_a_fit_without_warm_start(n_classes, linear_leaves):
    """Its leaves are known from the forest only, rounded to float32."""
    X, y = rows_of(ObliqueBoostingRegressor, 120)
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    options = {"linear_leaves": linear_leaves, "early_stopping": False, "n_bags": 1}
    cls = ObliqueBoostingClassifier if n_classes else ObliqueBoostingRegressor
    model = quick(cls, n_estimators=6, **options).fit(X, y)
    model.set_params(n_estimators=9, warm_start=True).fit(X, y)
    at_once = quick(cls, n_estimators=9, **options).fit(X, y)
    np.testing.assert_allclose(model.forest_.response(X), at_once.forest_.response(X), rtol=1e-4)
    np.testing.assert_allclose(model.loss_curve_[0], at_once.loss_curve_[0], rtol=1e-4)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_rounds_of_the_last_fit_are_not_trained_again(early_stopping, monkeypatch):
    X, y = rows_of(ObliqueBoostingRegressor)
    options = {"n_bags": 1, "linear_leaves": False, "n_iter_no_change": 100}
    model = quick(ObliqueBoostingRegressor, early_stopping=early_stopping, **options)
    model.set_params(warm_start=True).fit(X, y)
    (n_before,), (scores,) = model.n_iter_, model.validation_scores_
    grown = training_module.BoostingTraining._grow_tree
    numbers = []

    def counted(self, number, *others):
        numbers.append(number)
        return grown(self, number, *others)

    monkeypatch.setattr(training_module.BoostingTraining, "_grow_tree", counted)
    model.set_params(n_estimators=28).fit(X, y)
    (n_after,) = model.n_iter_
    assert n_after > n_before
    # Of the training that is stopped early, trees after the best round were not kept.
    validating = [*range(scores.argmax(), 28)] if early_stopping else []
    assert numbers == validating + [*range(n_before, n_after)]


def test_a_bag_without_rounds_is_pickled_and_continued():
    X = np.random.default_rng(0).normal(size=(120, 3))
    options = {"n_bags": 1, "n_iter_no_change": 1, "warm_start": True}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, np.ones(120))
    assert model.n_iter_ == [0]
    more = pickle.loads(pickle.dumps(model)).set_params(n_estimators=30).fit(X, np.ones(120))
    np.testing.assert_array_equal(more.predict(X), model.predict(X))


@BOTH
def test_rounds_that_were_rounded_are_continued(cls, tmp_path):
    """Without the numbers before rounding, trees that exist are kept, and training continues."""
    X, y = rows_of(cls)
    for options in ({"early_stopping": False}, {"linear_leaves": True, "n_bags": 1}):
        model = quick(cls, n_estimators=8, **options).fit(X, y)
        save(model, tmp_path / "model")
        models = [model, load(tmp_path / "model")]
        for other in models:
            before = other.forest_
            other.set_params(warm_start=True, n_estimators=16).fit(X, y)
            own, old = other.forest_, before
            assert min(other.n_iter_) > max(model.n_iter_) - 1 and len(own) > len(old)
            first = own[: len(old) // other.n_bags_], old[: len(old) // other.n_bags_]
            np.testing.assert_allclose(*(f.response(X) for f in first), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))
        at_once = quick(cls, n_estimators=16, **options).fit(X, y)
        assert abs(at_once.score(X, y) - model.score(X, y)) < 0.02


def test_rounds_and_bags_are_added_together():
    X, y = rows_of(ObliqueBoostingRegressor)
    options = {"early_stopping": False, "loss": "absolute_error"}
    model = quick(ObliqueBoostingRegressor, warm_start=True, **options).fit(X, y)
    model.set_params(n_bags=3, n_estimators=30).fit(X, y)
    at_once = quick(ObliqueBoostingRegressor, n_bags=3, n_estimators=30, **options)
    assert_same_fit(model, at_once.fit(X, y))


def test_what_a_warm_start_must_not_change():
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, warm_start=True).fit(X, y)
    before = vars(model).copy()
    for changes, message in (
        ({"n_estimators": 10}, "n_estimators=10 must be larger or equal to the 20 rounds"),
        ({"loss": "huber"}, "loss='huber', but .* a fit with loss='squared_error'"),
        ({"linear_leaves": True}, "linear_leaves=True, but"),
        ({"monotonic_cst": np.array([1, 0, 0, 0, 0, 0])}, "monotonic_cst=.*, but"),
        ({"early_stopping": True}, "early_stopping=True, but"),
        ({"n_iter_no_change": 3}, "n_iter_no_change=3, but"),
        ({"feature_shape": (2, 3)}, r"feature_shape=\(2, 3\), but"),
        ({"n_bags": 3}, "n_estimators=30 cannot be increased .* n_bags=3"),
        ({"n_estimators": 20, "n_bags": 1}, "n_bags=1 must be larger or equal to the 2 already"),
        ({"n_bags": 1}, "n_bags=1 must be larger or equal to the 2 already"),
    ):
        model.set_params(**{"n_estimators": 30} | changes)
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
        model.set_params(**{name: before[name] for name in {"n_estimators": 30} | changes})
        assert vars(model) == before
    with pytest.raises(ValueError, match="X_val='rows', but .* a fit with X_val=None"):
        model.set_params(n_estimators=30).fit(X, y, X_val=X, y_val=y)
    with pytest.raises(ValueError, match="last fit held out rows of X .* and 1 distinct rows, d"):
        model.fit(X[:1], y[:1])
    # Directions are those of the forest, also where the last fit did not note them.
    shaped = quick(ObliqueBoostingRegressor, feature_shape=(2, 3)).fit(X, y)
    for first, other in ((shaped, (3, 2)), (shaped, None), (shaped, 6), (model, (2, 3))):
        first = pickle.loads(pickle.dumps(first))
        first._last_fit = first._last_fit | {"fixed": {}}
        first.set_params(warm_start=True, n_estimators=30, feature_shape=other)
        with pytest.raises(ValueError, match="feature_shape=.*, but warm_start=True"):
            first.fit(X, y)
    shaped.set_params(warm_start=True, n_estimators=30).fit(X, y)
    shaped.set_params(n_estimators=32, feature_shape=np.array([2, 3])).fit(X, y)
    # Bags that were added hold out other rows than the first ones.
    model.set_params(n_estimators=20, n_bags=3).fit(X, y)
    with pytest.raises(ValueError, match="cannot be increased after"):
        model.set_params(n_estimators=30).fit(X, y)


@BOTH
def test_an_interrupted_fit_changes_nothing(cls, monkeypatch):
    X, y = rows_of(cls)
    model = quick(cls, n_bags=1).fit(X, y)
    before = vars(model).copy()
    boost = training_module.BoostingTraining._add_round

    def interrupted(self, number):
        if number == 3:
            raise KeyboardInterrupt
        boost(self, number)

    monkeypatch.setattr(training_module.BoostingTraining, "_add_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:100], y[:100])
    assert vars(model) == before
    fresh = clone(model)
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    assert not hasattr(fresh, "forest_")


# ------------------------------------------------------------------------------------------ groups


def test_a_limit_keeps_the_bags_to_which_rounds_are_added():
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, n_bags=3, early_stopping=False, warm_start=True)
    before = model.fit(X, y).forest_
    with pytest.warns(UserWarning, match="time_limit=1e-09: 3 of 3 bags, 2. of 40 rounds"):
        model.set_params(n_estimators=40, time_limit=1e-9).fit(X, y)
    assert len(model.n_iter_) == 3 and min(model.n_iter_) >= 20
    assert len(model.forest_) >= len(before)


def test_a_bag_that_is_cut_short_is_not_trained_again():
    X, y = rows_of(ObliqueBoostingClassifier)
    model = quick(ObliqueBoostingClassifier, n_estimators=1000, n_bags=1, time_limit=1e-9)
    with pytest.warns(UserWarning, match="time_limit=1e-09: 1 of 1000 rounds"):
        model.fit(X, y)
    assert model.n_iter_ == [1] and len(model.validation_scores_[0]) == 2
    # Nothing is cut short if the time ends with the last round, or with early stopping.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.set_params(n_estimators=1).fit(X, y)


@pytest.mark.parametrize("is_recorded", [True, False])
@pytest.mark.parametrize("n_bags", [1, 3])
def test_a_limit_keeps_what_bags_had_learned_from_held_out_rows(n_bags, is_recorded):
    """A single bag had been trained again on all rows, and several had new leaves.

    Without `warm_start` in the first fit, the first rounds are not recorded.
    """
    X, y = rows_of(ObliqueBoostingRegressor)
    options = {"n_estimators": 30, "n_bags": n_bags, "linear_leaves": False, "linear_start": None}
    model = quick(ObliqueBoostingRegressor, early_stopping=True, **options)
    before = model.set_params(warm_start=is_recorded).fit(X, y).forest_
    model.set_params(warm_start=True)
    n_rounds = np.array(model.n_iter_)
    with pytest.warns(UserWarning, match="time_limit=1e-09"):
        model.set_params(n_estimators=60, time_limit=1e-9).fit(X, y)
    assert (np.array(model.n_iter_) >= n_rounds).all()
    # The same splits, with the values of leaves that all rows have.
    found, known = (forest[: n_rounds[0]].compact() for forest in (model.forest_, before))
    np.testing.assert_array_equal(found.child, known.child)
    np.testing.assert_allclose(found.value, known.value, rtol=1e-5)
    model.set_params(n_estimators=90, time_limit=None).fit(X, y)
    at_once = quick(ObliqueBoostingRegressor, early_stopping=True, **options)
    at_once.set_params(n_estimators=90).fit(X, y)
    np.testing.assert_allclose(model.predict(X), at_once.predict(X), rtol=1e-4)
    if is_recorded:  # otherwise, the values of leaves were rounded
        assert_same_trees(model, at_once)


@pytest.mark.parametrize("n_bags", [1, 3])
def test_rounds_after_a_limit_that_left_no_time_for_held_out_rows(n_bags):
    X, y = rows_of(ObliqueBoostingRegressor)
    options = {"n_bags": n_bags, "linear_leaves": False, "linear_start": None}
    options |= {"warm_start": True, "early_stopping": True}
    model = quick(ObliqueBoostingRegressor, time_limit=1e-9, **options)
    with pytest.warns(UserWarning, match="time_limit=1e-09"):
        model.fit(X, y)
    model = pickle.loads(pickle.dumps(model))
    model.set_params(n_estimators=40, time_limit=None).fit(X, y)
    assert_same_trees(model, quick(ObliqueBoostingRegressor, n_estimators=40, **options).fit(X, y))
