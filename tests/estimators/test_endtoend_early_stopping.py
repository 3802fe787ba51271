"""Early stopping of end-to-end trees; draws of held-out rows for all methods."""

import numpy as np
import pytest
from forests import make_training_set
from makers import assert_same_trees, made
from sklearn.datasets import make_classification, make_regression

from skforest import E2EDecisionForest, E2EDecisionForestRegressor, E2EProcedure
from skforest.forest.statistics import recount
from skforest.table.training_set import TrainingSet
from skforest.training import endtoend as training
from skforest.training.early_stopping import (
    EarlyStopping,
    balanced_folds,
    draw_held_out,
    draw_weighted,
    validation_mask,
)
from skforest.training.endtoend import Annealing

CLASSES = [E2EDecisionForest, E2EDecisionForestRegressor]


def data(cls, n=400, random_state=0):
    if cls is E2EDecisionForest:
        X, y = make_classification(
            n, 8, n_informative=6, n_redundant=0, n_classes=3, random_state=random_state
        )
        return X.astype(np.float32), y
    X, y = make_regression(n, 8, n_informative=6, random_state=random_state)
    return X.astype(np.float32), y


@pytest.mark.parametrize("cls", CLASSES)
def test_early_stopping_keeps_the_splits_of_the_best_epoch(cls):
    X, y = data(cls)
    own = {"max_depth": 4, "early_stopping": True, "validation_fraction": 0.3, "random_state": 0}
    stopped = made(cls, 1, finetune_epochs=60, n_iter_no_change=4, **own).fit(X, y)
    scores = stopped.validation_scores_[0]
    assert len(scores) == len(stopped.loss_curve_[0]) == stopped.n_iter_[0] < 60
    assert scores.argmax() <= len(scores) - 4 and (scores < 0).all()
    # Later epochs change nothing if the best one comes first.
    longer = made(cls, 1, finetune_epochs=60, n_iter_no_change=1000, **own).fit(X, y)
    later = longer.validation_scores_[0]
    np.testing.assert_array_equal(later[: len(scores)], scores)
    if later.argmax() == scores.argmax():
        assert_same_trees(longer, stopped)
    assert longer.n_iter_ == [60]


@pytest.mark.parametrize("cls", CLASSES)
def test_validation_scores_are_those_of_soft_routing(cls, monkeypatch):
    """With leaves from the rows that train; all trees have the last steepness of the forest."""
    X, y = data(cls)
    masks = []

    def recorded(*given):
        masks.append(validation_mask(*given))
        return masks[-1]

    monkeypatch.setattr(training, "validation_mask", recorded)
    own = {"max_depth": 3, "routing": "soft", "early_stopping": True, "n_iter_no_change": 1000}
    weight = np.random.default_rng(0).uniform(0.2, 3, len(X))
    model = made(cls, 1, validation_fraction=0.25, random_state=0, **own).fit(X, y, weight)
    assert masks[0].sum() == 100
    assert model.forest_.node_weight[0] == pytest.approx(weight.sum())
    rows = TrainingSet(model.forest_.map_features(X), y.astype(float)[:, None], weight)
    train = rows.weight * ~masks[0]
    truth, target = rows.y, rows.y - model.forest_.baseline
    if cls is E2EDecisionForest:
        truth, target = np.eye(3)[rows.y[:, 0].astype(int)], rows.y[:, 0].astype(np.int32)
    tree = recount(model.forest_, make_training_set(rows.X, target, train), model._criterion)
    error = np.square(tree.response_mapped(rows.X) - truth)[masks[0]].sum(axis=1)
    error = np.average(error, weights=rows.weight[masks[0]])
    assert -model.validation_scores_[0].max() == pytest.approx(error, rel=1e-5)


def test_training_stops_after_exactly_so_many_epochs_without_progress():
    losses = [3.0, 2.0, 2.0 - 1e-5, 2.5, 1.9, 1.95, 1.9, 1.8999]
    stopping = EarlyStopping(np.array([False, True]), 3)
    stops = [stopping.should_stop(loss, number) for number, loss in enumerate(losses)]
    assert stops == [False] * 7 + [True]  # less than a ten thousandth is no progress
    assert stopping.best == 7 and stopping.scores == [-loss for loss in losses]
    once = EarlyStopping(np.array([True]), 1)
    assert [once.should_stop(loss, None) for loss in (1.0, 0.5, 0.5)] == [False, False, True]


@pytest.mark.parametrize("cls", CLASSES)
def test_early_stopping_depends_neither_on_threads_nor_on_the_order_of_rows(cls):
    X, y = data(cls)
    k = np.random.default_rng(0).integers(0, 4, len(X))
    own = {"max_depth": 4, "early_stopping": True, "bootstrap": True, "random_state": 0}
    model = made(cls, 3, **own).fit(X, y, k)
    order = np.random.default_rng(1).permutation(k.sum())
    copies = made(cls, 3, n_jobs=2, **own)
    copies.fit(np.repeat(X, k, 0)[order], np.repeat(y, k)[order])
    assert_same_trees(model, copies)
    for one, other in zip(model.validation_scores_, copies.validation_scores_):
        np.testing.assert_array_equal(one, other)
    steps = made(cls, 2, warm_start=True, **own).fit(X, y, k)
    assert_same_trees(model, steps.set_params(n_estimators=3).fit(X, y, k))
    assert len(steps.validation_scores_) == 3


@pytest.mark.parametrize("cls", CLASSES)
def test_where_early_stopping_has_no_effect(cls):
    X, y = data(cls)
    own = {"max_depth": 3, "random_state": 0}
    plain = cls(2, **own).fit(X, y)
    assert [len(scores) for scores in plain.validation_scores_] == [0, 0]
    without = E2EProcedure(validation_fraction=0.5, n_iter_no_change=1)
    assert_same_trees(plain, cls(2, procedure=without, **own).fit(X, y))
    own |= {"finetune_epochs": 0}
    grown = cls(2, **own).fit(X, y)
    assert_same_trees(grown, made(cls, 2, early_stopping=True, **own).fit(X, y))


@pytest.mark.parametrize("cls", CLASSES)
def test_validation_fraction_must_leave_rows_to_train_on(cls):
    model = made(cls, 1, early_stopping=True, validation_fraction=0.99)
    with pytest.raises(ValueError, match="validation_fraction=0.99.*none of the 2 distinct rows"):
        model.fit([[0.0], [1.0]], [0, 1])
    assert model.fit([[0.0], [0.0]], [1, 1]).validation_scores_[0].shape == (0,)


def test_early_stopping_ignores_noise():
    X, y = make_classification(1500, 10, n_informative=5, flip_y=0.2, n_classes=3, random_state=0)
    plain, stopped = (
        made(
            E2EDecisionForest,
            4,
            max_features=None,
            early_stopping=early_stopping,
            random_state=0,
        )
        .fit(X[:700], y[:700])
        .score(X[700:], y[700:])
        for early_stopping in (False, True)
    )
    assert stopped > plain


def test_one_steepness_holds_for_all_trees():
    """Dividing the hyperplanes by a factor is the same as a steepness that is lower by it."""
    annealing = Annealing(2, 4, 0.1, 10, 1.0, 0.5)
    W, threshold = np.ones((2, 3), dtype=np.float32), np.float32([1, -2])
    for n_epochs, factor in ((4, 1.0), (1, 2.5 / 4), (0, 0.5)):
        scaled = annealing.at_final_steepness(W, threshold, n_epochs)
        np.testing.assert_allclose(scaled[0], factor * W)
        np.testing.assert_allclose(scaled[1], factor * threshold)


def test_the_best_epoch_has_the_steepness_of_its_end(monkeypatch):
    X, y = data(E2EDecisionForest, 120)
    rescaled, seen = Annealing.at_final_steepness, []

    def recorded(annealing, W, threshold, n_epochs):
        seen.append(n_epochs)
        return rescaled(annealing, W, threshold, n_epochs)

    monkeypatch.setattr(Annealing, "at_final_steepness", recorded)
    own = {"greedy_epochs": 1, "finetune_epochs": 4, "early_stopping": True, "random_state": 0}
    made(E2EDecisionForest, 1, max_depth=2, n_iter_no_change=9, **own).fit(X, y)
    assert seen == [1, 2, 3, 4]


def test_rates_and_steepness_of_epochs():
    own = {"greedy_epochs": 3, "finetune_epochs": 4, "learning_rate": 0.8, "batch_size": 9}
    annealing = Annealing(**own, steepness=1.0, steepness_step=0.25)
    middles = (np.arange(4) + 0.5) / 4
    np.testing.assert_allclose(annealing.rates(), 0.4 * (1 + np.cos(np.pi * middles)))
    assert (annealing.grown, annealing.final) == (1.75, 2.75)
    W = np.ones((2, 3), dtype=np.float32)
    for n_epochs, factor in ((0, 1.75 / 2.75), (2, 2.25 / 2.75), (4, 1.0)):
        found = annealing.at_final_steepness(W, 2 * W[:, 0], n_epochs)
        np.testing.assert_allclose(found[0], factor * W, rtol=1e-6)
        np.testing.assert_allclose(found[1], 2 * factor, rtol=1e-6)
    constant = Annealing(**own, steepness=1.0, steepness_step=0.25, schedule="constant")
    assert constant.rates().tolist() == [0.8] * 4


def test_epochs_without_progress_are_counted():
    stopping = EarlyStopping(np.array([False, True]), 2)
    assert stopping.rows.tolist() == [1]
    losses = [3.0, 2.0, 2.0, 1.0, 1 - 1e-6, np.nan]
    stops = [stopping.should_stop(loss, number) for number, loss in enumerate(losses)]
    assert stops == [False, False, False, False, False, True]
    assert stopping.best == 4 and stopping.scores[:3] == [-3.0, -2.0, -2.0]


@pytest.mark.parametrize("seed", range(4))
def test_shares_are_of_the_rows_with_weight_and_groups_stay_whole(seed):
    rng = np.random.default_rng(seed)
    group, weight = rng.integers(0, 9, size=50), rng.integers(0, 3, size=50).astype(float)
    n = np.count_nonzero(weight)
    for fraction in (0.001, 0.13, 0.3, 0.6):
        up, near = int(np.ceil(fraction * n)), max(1, round(fraction * n))
        draws = (up, draw_weighted, np.random.RandomState(seed)), (near, validation_mask, seed)
        for wanted, draw, source in draws:
            given = (weight, fraction) if draw is draw_weighted else (fraction, weight)
            mask = draw(*given, source, None)
            assert mask.sum() == wanted and weight[mask].all()
            mask = draw(*given, source, group)
            assert weight[mask].all() and mask[np.isin(group, group[mask]) & (weight > 0)].all()
            # The last group that was drawn was still needed.
            assert wanted <= mask.sum() < wanted + np.bincount(group[mask]).max()
    least = np.where(np.arange(50) < 2, weight + 1, weight)
    held_out = draw_held_out(least, 0.3, seed, group)
    np.testing.assert_array_equal(held_out[held_out > 0], least[held_out > 0])
    # One group at least is trained on.
    two = np.repeat([0, 1], [4, 6])
    for mask in (
        validation_mask(0.9, np.ones(10), seed, two),
        draw_weighted(np.ones(10), 0.9, np.random.RandomState(seed), two),
        draw_held_out(np.ones(10), 0.9, seed, two) > 0,
    ):
        assert mask.sum() in (4, 6)


def test_a_row_at_least_is_trained_on():
    weight, random = np.array([0.0, 1, 2, 0, 1]), np.random.RandomState(0)
    assert draw_weighted(weight, 0.6, random).sum() == 2
    for fraction in (0.67, 1.0):  # two thirds and a bit are three rows
        assert not draw_weighted(weight, fraction, random).any()
    assert validation_mask(0.67, weight, 0).sum() == 2
    assert validation_mask(0.1, weight, 0).sum() == 1
    with pytest.raises(ValueError, match="none of the 3 distinct rows"):
        validation_mask(0.9, weight, 0)
    assert not validation_mask(0.9, weight * [0, 1, 0, 0, 0], 0).any()


def test_large_groups_are_put_into_the_emptiest_folds_first():
    group = np.repeat(np.arange(5), [3, 5, 3, 4, 3])
    for seed in range(5):
        fold = balanced_folds(np.zeros(18), 2, seed, group)
        assert sorted(np.bincount(fold)) == [8, 10]  # 5 + 3, and 4 + 3 + 3
        assert all(len(set(fold[group == k])) == 1 for k in range(5))


def test_the_best_epoch_is_reported_and_counts_from_1():
    seen, stopping = [], EarlyStopping(np.array([True]), 2)

    def report(*given, **further):
        seen.append((*given, further))

    losses = [3.0, 2.0, 2.5, 2.25]
    ends = [stopping.ends(loss, None, report, n, 9) for n, loss in enumerate(losses, 1)]
    assert ends == [False, False, False, True]
    assert seen == [(n, 9, {"loss": loss}) for n, loss in enumerate(losses, 1)] + [
        (4, 4, {"best": 2})
    ]
