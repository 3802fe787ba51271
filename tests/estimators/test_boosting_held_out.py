"""Rows that bags of oblique boosting hold out: early stopping, and what bags learn from them."""

import numpy as np
import pandas as pd
import pytest
from makers import BOTH_BOOSTING as BOTH
from makers import assert_same_trees, bag_of, bags_before, training_rows
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from sklearn.base import clone
from sklearn.metrics import accuracy_score, d2_pinball_score, log_loss, r2_score

from skforest import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from skforest.training import boosting as boosting_module
from skforest.training.early_stopping import balanced_folds


def test_a_bag_that_holds_out_few_rows_is_not_trained_again(monkeypatch):
    X, y = rows_of(ObliqueBoostingRegressor, 200)
    monkeypatch.setattr(boosting_module, "HELD_OUT_ROWS", 20)
    params = {"n_bags": 1, "early_stopping": True, "warm_start": True, "random_state": 0}
    model = ObliqueBoostingRegressor(10, max_depth=2, **params).fit(X, y)
    trained = model.validation_scores_[0].argmax()
    assert len(model.loss_curve_[0]) == len(model.validation_scores_[0])
    assert model.n_iter_ == [trained]
    few = clone(model).set_params(n_estimators=4).fit(X, y).set_params(n_estimators=10).fit(X, y)
    assert_same_trees(model, few)
    monkeypatch.setattr(boosting_module, "HELD_OUT_ROWS", 21)
    again = clone(model).fit(X, y)
    assert again.n_iter_[0] > len(again.validation_scores_[0]) - 1


@pytest.mark.parametrize("n_bags", [1, 3])
def test_early_stopping_keeps_the_rounds_of_least_validation_loss(n_bags):
    """Labels are noise, so the loss of held-out rows soon rises."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), rng.integers(2, size=200)
    options = {"n_estimators": 200, "n_iter_no_change": 5, "n_bags": n_bags}
    model = quick(ObliqueBoostingClassifier, **options).fit(X, y)
    assert len(model.n_iter_) == len(model.validation_scores_) == n_bags
    for scores, n_iter in zip(model.validation_scores_, model.n_iter_):
        best = int(scores.argmax())
        # Several bags keep 1.5 times the best rounds, since their mean overfits later. A single
        # bag is trained again on all rows, by rounds in proportion to these.
        assert len(scores) - 1 - best == max(5, np.ceil(best / 2) if n_bags > 1 else 0)
        assert n_iter == (int(1.5 * best) if n_bags > 1 else np.ceil(best * 200 / 160))
    n_trees = np.diff(model.forest_.bag_start)
    np.testing.assert_array_equal(n_trees, np.maximum(model.n_iter_, 1))
    plain = clone(model).set_params(early_stopping=False).fit(X, y)
    assert plain.n_iter_ == [200] * n_bags
    assert all(len(scores) == 0 for scores in plain.validation_scores_)
    fresh = rng.normal(size=(500, 5))
    certainty = [m.predict_proba(fresh).max(axis=1).mean() for m in (model, plain)]
    assert certainty[0] < certainty[1] - 0.1


def test_validation_scores_are_losses_of_held_out_rows(monkeypatch):
    X, y = rows_of(ObliqueBoostingClassifier)
    before = bags_before(monkeypatch)
    model = quick(ObliqueBoostingClassifier, n_bags=3, n_iter_no_change=100).fit(X, y)
    data = training_rows(model, X, y)
    fold = balanced_folds(data.y[:, 0], 3, model._seed)
    for bag, scores in enumerate(model.validation_scores_):
        own = fold == bag
        found = -log_loss(
            data.y[own, 0], before[bag].response_mapped(data.X[own]), labels=[0, 1, 2]
        )
        assert found == pytest.approx(scores[model.n_iter_[bag]], rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_bags_learn_from_held_out_rows_with_the_same_splits(weighted, monkeypatch):
    """Leaves are means of residuals, times the learning rate; round by round, over all rows."""
    X, y = rows_of(ObliqueBoostingRegressor)
    weight = np.random.default_rng(0).integers(1, 4, len(y)) if weighted else None
    before = bags_before(monkeypatch)
    options = {"n_bags": 3, "n_estimators": 4, "n_iter_no_change": 9, "subsample": 0.6}
    options |= {"linear_leaves": False, "linear_start": None, "learning_rate": 0.5}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, y, weight)
    data = training_rows(model, X, y, weight)
    unit = model.l2_regularization * np.median(data.weight)
    for bag in range(3):
        forest = bag_of(model.forest_, bag).compact()
        assert len(forest) > 1 and len(forest) == len(before[bag])
        for name in ("threshold", "direction", "sparse_weight", "gain"):
            np.testing.assert_array_equal(getattr(forest, name), getattr(before[bag], name))
        assert np.abs(forest.value - before[bag].value).max() > 1e-3
        found = forest.baseline + np.zeros(len(data))
        assert found == pytest.approx(np.average(data.y[:, 0], weights=data.weight), abs=1e-6)
        for tree in forest:
            residual, leaf = data.y[:, 0] - found, tree.apply_mapped(data.X)[:, 0]
            for own in (leaf == k for k in np.unique(leaf)):
                total = (data.weight * residual)[own].sum()
                found[own] += 0.5 * total / (data.weight[own].sum() + unit)
        np.testing.assert_allclose(forest.response_mapped(data.X)[:, 0], found, rtol=1e-4)


def test_monotonic_bags_stay_monotonic_with_held_out_rows():
    """The values of leaves keep the bounds of the first training."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(90, 2))
    y = X[:, 0] + rng.normal(size=90)
    options = {"n_bags": 3, "learning_rate": 1.0, "monotonic_cst": [1, 0], "min_samples_leaf": 1}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, y)
    Z = np.column_stack([np.linspace(0, 1, 200), np.full(200, 0.5)])
    assert (np.diff(model.predict(Z)) >= -1e-6).all() and np.ptp(model.predict(Z)) > 0.1


def test_bags_keep_their_leaves_if_there_is_no_time(monkeypatch):
    X, y = rows_of(ObliqueBoostingRegressor)
    before = bags_before(monkeypatch)
    model = quick(ObliqueBoostingRegressor, n_bags=3, time_limit=1e4)
    monkeypatch.setattr(boosting_module, "LEAF_REFIT", 1e12)
    kept = clone(model).fit(X, y)
    assert not before
    model.set_params(time_limit=None).fit(X, y)
    for bag in range(3):
        np.testing.assert_array_equal(bag_of(kept.forest_, bag).compact().value, before[bag].value)


@BOTH
def test_validation_scores_are_weighted_losses_of_the_given_rows(cls):
    """Weights that differ, so that a mean without them is another number."""
    X, y = rows_of(cls, 260)
    weight = np.random.default_rng(0).exponential(1.0, 100) ** 2
    own = {"n_bags": 1, "n_iter_no_change": 100, "linear_leaves": False}
    own |= {"linear_start": None} if cls is ObliqueBoostingRegressor else {}
    model = quick(cls, **own)
    model.fit(X[:160], y[:160], X_val=X[160:], y_val=y[160:], sample_weight_val=weight)
    (scores,), n_iter = model.validation_scores_, model.n_iter_[0]
    if cls is ObliqueBoostingClassifier:
        losses = [
            log_loss(y[160:], found, sample_weight=weight)
            for found in model.staged_predict_proba(X[160:])
        ]
    else:  # in units of the variance of the target
        losses = [
            np.average((found - y[160:]) ** 2, weights=weight) / (2 * y[:160].var())
            for found in model.staged_predict(X[160:])
        ]
    assert n_iter > 5
    np.testing.assert_allclose(-scores[1 : n_iter + 1], losses, rtol=1e-4)


@pytest.mark.parametrize("n_bags", [1, 3])
def test_loss_curves_are_losses_of_training_rows(n_bags, monkeypatch):
    before = bags_before(monkeypatch)
    X, y = rows_of(ObliqueBoostingClassifier)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    options = {"n_bags": n_bags, "n_iter_no_change": 100, "learning_rate": 0.05}
    model = quick(ObliqueBoostingClassifier, **options).fit(X, y, weight)
    data = training_rows(model, X, y, weight)
    fold = balanced_folds(data.y[:, 0], 3, model._seed) if n_bags > 1 else None
    for bag, curve in enumerate(model.loss_curve_):
        forest, own = bag_of(model.forest_, bag), np.ones(len(data), dtype=bool)
        if n_bags > 1:
            own, forest = fold != bag, before[bag]
            assert curve.shape == model.validation_scores_[bag].shape
        found = log_loss(
            data.y[own, 0],
            forest.response_mapped(data.X[own]),
            sample_weight=data.weight[own],
            labels=[0, 1, 2],
        )
        assert found == pytest.approx(curve[model.n_iter_[bag]], rel=1e-5)
        assert curve[0] > curve[-1]
    unseen = quick(ObliqueBoostingClassifier, early_stopping=False, n_bags=n_bags).fit(X, y)
    assert [len(curve) for curve in unseen.loss_curve_] == [21] * n_bags


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
def test_every_row_is_predicted_by_the_bag_that_held_it_out(cls, weighted, monkeypatch):
    X, y = rows_of(cls)
    weight = np.random.default_rng(0).choice([0.0, 1.0, 2.5], len(y)) if weighted else None
    before = bags_before(monkeypatch)
    model = quick(cls, n_bags=3).fit(X, y, weight)
    data = training_rows(model, X, y, weight)
    fold = balanced_folds(data.y[:, 0], 3, model._seed)
    expected = np.empty((len(data), model.forest_.n_outputs))
    for bag in range(3):
        expected[fold == bag] = before[bag].response_mapped(data.X[fold == bag])
    expected = data.of_samples(expected)
    is_class = cls is ObliqueBoostingClassifier
    found = model.oob_decision_function_ if is_class else model.oob_prediction_[:, None]
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected[:, 0])
    assert (~known).sum() == (0 if weight is None else (weight == 0).sum())
    own = {} if weight is None else {"sample_weight": weight[known]}
    if is_class:
        score = accuracy_score(y[known], model.classes_[expected[known].argmax(axis=1)], **own)
    else:
        score = r2_score(y[known], expected[known, 0], **own)
    assert model.oob_score_ == pytest.approx(score)
    assert model.oob_score_ < model.score(X[known], y[known], **own)


def test_copies_of_a_row_that_several_bags_held_out_have_their_mean(monkeypatch):
    """Five rows, 40 times each, with labels that differ: each bag holds out copies of each."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.arange(5.0), 40)[:, None]
    y = rng.uniform(size=200) < X[:, 0] / 5 + 0.1
    before = bags_before(monkeypatch)
    model = quick(ObliqueBoostingClassifier, n_bags=4, early_stopping=True).fit(X, y)
    bags = [before.get(bag, bag_of(model.forest_, bag)) for bag in range(4)]
    of_bags = np.stack([bag.response(X[::40]) for bag in bags])
    found = model.oob_decision_function_
    for own in ((X[:, 0] == k) & (y == label) for k in range(5) for label in (False, True)):
        np.testing.assert_allclose(np.ptp(found[own], axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(found[::40], of_bags.mean(axis=0), atol=0.02)
    assert np.ptp(of_bags, axis=0).max() > 0.02
    assert model.oob_score_ == pytest.approx(np.mean(y == (found[:, 1] > 0.5)))


def test_predictions_of_held_out_rows_are_those_of_the_last_fit():
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, n_bags=3).fit(X, y)
    first = model.oob_prediction_
    assert len(model.fit(X[:100], y[:100]).oob_prediction_) == 100
    assert np.abs(model.oob_prediction_ - first[:100]).max() > 0
    for changed in ({"n_bags": 1}, {"early_stopping": False}):
        other = model.fit(X, y).set_params(**changed).fit(X, y)
        assert not hasattr(other, "oob_prediction_") and not hasattr(other, "oob_score_")
        model.set_params(n_bags=3, early_stopping=True)
    model.fit(X, y, X_val=X[:50], y_val=y[:50])
    assert not hasattr(model, "oob_prediction_")


def test_held_out_score_of_several_quantiles_is_that_of_score():
    X, y = rows_of(ObliqueBoostingRegressor)
    levels = [0.9, 0.2]
    model = quick(ObliqueBoostingRegressor, n_bags=3, loss="quantile", quantile=levels).fit(X, y)
    found = model.oob_prediction_
    assert found.shape == (len(y), 2) and (found[:, 0] >= found[:, 1]).all()
    scores = [d2_pinball_score(y, found[:, k], alpha=levels[k]) for k in range(2)]
    assert model.oob_score_ == pytest.approx(np.mean(scores))


@BOTH
def test_a_level_of_one_group_tells_nothing_about_a_new_group(cls):
    """Otherwise, held-out rows would get the mean of the targets of their own group."""
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(60), 10)
    frame = pd.DataFrame({"shop": [f"s{k}" for k in group], "x": rng.normal(size=600)})
    y = rng.normal(size=60)[group] + 0.3 * rng.normal(size=600)
    y = y if cls is ObliqueBoostingRegressor else y > 0
    score = [quick(cls).fit(frame, y, groups=given).oob_score_ for given in (group, None)]
    assert score[0] < (0.7 if cls is ObliqueBoostingClassifier else 0.1)
    assert score[1] > 0.85


@pytest.mark.parametrize("seed", [0, 1])
def test_means_of_levels_with_few_rows_do_not_contain_the_label_of_a_row(seed):
    """A single column of levels, whose rows differ in the target alone, and which is noise."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"level": [f"l{k}" for k in rng.integers(0, 200, size=600)]})
    model = ObliqueBoostingRegressor(random_state=0).fit(frame, rng.normal(size=600))
    assert model.oob_score_ < 0.02


@pytest.mark.parametrize("groups", [np.arange(60) % 3, None])
def test_more_bags_than_groups_or_rows_hold_out_rows_all_the_same(groups):
    """Every bag has a fold of its own or shares one with another bag."""
    X, y = rows_of(ObliqueBoostingRegressor, 60)
    X, y = (X, y) if groups is not None else (X[:3], y[:3])
    model = quick(ObliqueBoostingRegressor, n_bags=7, early_stopping=True, n_estimators=5)
    first = [scores[0] for scores in model.fit(X, y, groups=groups).validation_scores_]
    assert first == [first[k % 3] for k in range(7)] and len(set(first)) == 3
    assert np.isfinite(model.oob_prediction_).all()
