"""Early stopping of end-to-end trees."""

import numpy as np
import pytest
from forests import make_training_set
from makers import assert_same_trees, made
from sklearn.datasets import make_classification, make_regression

from skforest import E2EDecisionForest, E2EDecisionForestRegressor, E2EProcedure
from skforest.forest.statistics import recount
from skforest.table.training_set import TrainingSet
from skforest.training import endtoend as training
from skforest.training.early_stopping import EarlyStopping, validation_mask
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


def test_epochs_without_progress_are_counted():
    stopping = EarlyStopping(np.array([False, True]), 2)
    assert stopping.rows.tolist() == [1]
    losses = [3.0, 2.0, 2.0, 1.0, 1 - 1e-6, np.nan]
    stops = [stopping.should_stop(loss, number) for number, loss in enumerate(losses)]
    assert stops == [False, False, False, False, False, True]
    assert stopping.best == 4 and stopping.scores[:3] == [-3.0, -2.0, -2.0]
