"""The weight decay that random hinge forests choose on held-out rows."""

import numpy as np
import pytest
from makers import OwnSquaredError, made
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.metrics import log_loss

from skforest import HingeProcedure, RandomHingeForestClassifier, RandomHingeForestRegressor
from skforest.training import hinge_trials
from skforest.training.hinge import HingeMethod
from skforest.training.hinge_trials import DecayTrial


def noise(n, n_columns=5, seed=0):
    """Columns, numbers and labels that have nothing to do with each other."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_columns)), rng.normal(size=n), rng.integers(2, size=n)


def quick(cls, **changes):
    """A small hinge forest that chooses its decay; unfitted."""
    defaults = {"n_estimators": 20, "n_bags": 2, "max_iter": 400, "random_state": 0}
    return made(cls, **defaults | changes)


def smooth(n):
    """A smooth function of two columns, without noise."""
    X = np.random.default_rng(1).uniform(-1, 1, size=(n, 3))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] ** 2


def test_noise_is_not_learned():
    X, y, labels = noise(2400)
    train, test = slice(400), slice(400, None)
    forest = RandomHingeForestRegressor(random_state=0).fit(X[train], y[train])
    assert forest.weight_decay_ >= 10 and forest.score(X[test], y[test]) > -0.05
    assert forest.max_iter_ == 600 == forest.n_iter_[0]  # a quarter
    labeler = RandomHingeForestClassifier(random_state=0).fit(X[train], labels[train])
    assert log_loss(labels[test], labeler.predict_proba(X[test])) < 1.03 * np.log(2)
    plain = HingeProcedure(weight_decay=0.0)
    alone = RandomHingeForestRegressor(random_state=0, procedure=plain).fit(X[train], y[train])
    assert alone.weight_decay_ == 0 and alone.score(X[test], y[test]) < -0.1
    assert alone.max_iter_ == 2400


def test_a_single_bag_of_labels_is_not_too_sure_of_noise():
    """It has no temperature."""
    X, _, y = noise(2400)
    forest = RandomHingeForestClassifier(n_bags=1, random_state=0).fit(X[:400], y[:400])
    assert forest.temperature_ == 1
    assert log_loss(y[400:], forest.predict_proba(X[400:])) < 1.1 * np.log(2)


def test_a_function_without_noise_has_no_decay():
    X, y = smooth(600)
    forest = RandomHingeForestRegressor(random_state=0).fit(X[:400], y[:400])
    assert (forest.weight_decay_, forest.max_iter_) == (0, 2400)
    assert forest.score(X[400:], y[400:]) > 0.995
    steps = RandomHingeForestRegressor(max_iter=500, random_state=0).fit(*noise(200)[:2])
    assert steps.weight_decay_ > 0 and steps.max_iter_ == 500  # a given number stays


@pytest.mark.parametrize(
    "losses, chosen",
    [
        ([1.0, 0.9, 0.8, 0.7, 0.6], 20),
        ([1.0, 0.9, 0.8, 0.7, 0.9], 10),
        ([1.0, 0.9, 0.8, 0.85, 0.6], 3),  # larger ones are tried while the loss falls
        ([1.0, 0.9, 1.04, 2.0, 2.0], 1),
        ([1.0, 0.98, 1.04, 2.0, 2.0], 0),  # by less than a standard error
        ([1.0, 0.97, 0.98, 0.97, 0.96], 0),
        ([1.0, 0.0, 1.2, 0.0, 0.0], 0),
        ([1.0, 0.9, None, 0.7, 0.6], 0),
        ([1.0, 0.9, 0.8, None, 0.6], 3),
        ([None, 0.9, 0.8, 0.7, 0.6], 0),
        ([1.0, None, 1.04, 0.7, 0.6], 0),
    ],
)
def test_the_search(losses, chosen, monkeypatch):
    """Differences have a standard error of .05, or .087 on the 40 rows of the first fold."""
    tried, shape = [], np.random.default_rng(0).normal(size=40)
    shape = (shape - shape.mean()) / shape.std() * 0.05 * np.sqrt(120)

    def of_rows(self, decay, members):
        tried.append((decay, len(members)))
        mean = dict(zip(hinge_trials.DECAYS, losses))[decay]
        return None if mean is None else mean + np.tile(shape, len(members)) * (decay > 0)

    monkeypatch.setattr(DecayTrial, "losses", of_rows)
    monkeypatch.setattr(DecayTrial, "train", lambda *_: None)
    X, y = smooth(120)
    forest = quick(RandomHingeForestRegressor, n_estimators=50, max_iter="auto", n_bags=1)
    forest.fit(X, y)
    assert forest.weight_decay_ == pytest.approx(chosen / 2)  # 20 is that of 100 trees
    assert len(tried) == len(set(tried)) and tried[:2] == [(0, 1), (3, 1)][: len(tried)]
    if losses[2] == 1.2:
        assert len(tried) == 2  # one fold shows it
    assert forest.max_iter_ == {0: 2400, 1: 2400, 3: 1200}.get(chosen, 600)


def test_decays_belong_to_numbers_of_trees_and_steps_to_rates():
    X, y, _ = noise(200)
    found = [quick(RandomHingeForestRegressor, n_estimators=n).fit(X, y) for n in (20, 40)]
    assert found[0].weight_decay_ > 0
    assert found[0].weight_decay_ * 2 == pytest.approx(found[1].weight_decay_)
    fast = quick(RandomHingeForestRegressor, learning_rate=2.0).fit(X, y)
    assert fast.weight_decay_ == pytest.approx(0.3)  # a step removes at most 0.6


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd"])
def test_other_optimizers_have_none(optimizer):
    X, y, _ = noise(120)
    assert quick(RandomHingeForestRegressor, optimizer=optimizer).fit(X, y).weight_decay_ == 0


def test_too_few_rows_groups_or_weights_have_none(monkeypatch):
    def refused(*_):
        raise AssertionError("a trial")

    monkeypatch.setattr(DecayTrial, "train", refused)
    X, y, labels = noise(120)
    forest = quick(RandomHingeForestRegressor)
    forest.fit(X[:99], y[:99])
    forest.fit(X, y, groups=np.arange(120) % 2)
    forest.fit(X, y, sample_weight=np.arange(120) < 99)
    assert forest.weight_decay_ == 0
    quick(RandomHingeForestClassifier).partial_fit(X, labels, classes=[0, 1])
    made(RandomHingeForestRegressor, procedure=HingeProcedure.as_printed(), max_iter=10).fit(X, y)
    for rows, groups in ((120, np.arange(120) % 3), (100, None)):
        with pytest.raises(AssertionError, match="a trial"):
            forest.fit(X[:rows], y[:rows], groups=groups)


@pytest.mark.parametrize(
    "n, n_folds, n_used",
    [(100, 3, 3), (1499, 3, 3), (1500, 3, 2), (3000, 3, 1), (6000, 3, 1), (6001, 4, 1)],
)
def test_how_many_rows_are_left_out(n, n_folds, n_used, monkeypatch):
    """At least 1000, of folds of at most 2000 and a third of the rows."""
    seen = []
    monkeypatch.setattr(DecayTrial, "train", lambda *_: None)
    monkeypatch.setattr(DecayTrial, "losses", lambda self, *_: seen.append(self))
    X = np.random.default_rng(0).normal(size=(n, 1))
    quick(RandomHingeForestRegressor, max_iter=1, n_bags=1).fit(X, X[:, 0])
    assert (seen[0].data.n_folds, len(seen[0].folds)) == (n_folds, n_used)
    sizes = np.bincount(seen[0].data.fold)
    assert sizes.max() <= 2000 and len(seen[0].weight) == sizes[:n_used].sum()
    assert len(seen[0].weight) >= min(n, 1000)


def test_weights_count_in_means_and_standard_errors():
    trial = object.__new__(DecayTrial)
    trial.weight = np.array([3.0, 1.0, 4.0, 2.0])
    losses = np.array([1.0, 2.0, 3.0, 4.0])
    assert trial.mean(losses) == 2.5 and trial.mean(losses[:2]) == 1.25
    gain = losses - 2.5
    error = np.sqrt((trial.weight**2 * gain**2).sum()) / 10
    assert trial.is_clearly_less(losses - gain, losses + 1.01 * error)
    assert not trial.is_clearly_less(losses - gain, losses + 0.99 * error)


def test_bags_of_a_warm_start_have_the_same_decay():
    X, y, _ = noise(150)
    forest = quick(RandomHingeForestRegressor, warm_start=True, max_iter="auto").fit(X, y)
    decay, n_steps = forest.weight_decay_, forest.max_iter_
    assert decay > 0 and n_steps < 2400
    forest.set_params(n_bags=3).fit(X, y)
    assert (forest.weight_decay_, forest.max_iter_) == (decay, n_steps)
    at_once = clone(forest).fit(X, y)
    np.testing.assert_array_equal(forest.predict(X), at_once.predict(X))


def test_trials_know_neither_threads_nor_the_order_or_scale_of_rows():
    X, y = make_friedman1(300, noise=6.0, random_state=0)
    plain = quick(RandomHingeForestRegressor).fit(X, y)
    assert plain.weight_decay_ > 0
    order = np.random.default_rng(0).permutation(300)
    for other in (
        clone(plain).set_params(n_jobs=2).fit(X, y),
        clone(plain).fit(X[order], y[order]),
        clone(plain).fit(X, y, sample_weight=np.full(300, 8.0)),
        clone(plain).fit(np.vstack([X, X[:9]]), np.append(y, y[:9]), np.arange(309) < 300),
    ):
        assert other.weight_decay_ == plain.weight_decay_
    wide = clone(plain).fit(sparse.csr_matrix(X), y)
    assert wide.weight_decay_ == plain.weight_decay_


def test_held_out_rows_are_not_known(monkeypatch):
    """Bags of a trial, and the importances that they read, do not see their folds."""
    seen, training = [], HingeMethod.training

    def recorded(self, data, source, *others):
        found = training(self, data, source, *others)
        if self.settings.n_steps == 10:  # a quarter
            seen.append((data, found))
        return found

    monkeypatch.setattr(HingeMethod, "training", recorded)
    X, y, labels = noise(200)
    quick(RandomHingeForestClassifier, max_iter=40).fit(X, labels)
    assert len(seen) >= 3 * 2 * 2  # folds, bags, decays
    held_out = {tuple(np.flatnonzero(data.left_out_weight)) for data, _ in seen}
    assert sorted(np.concatenate(list(held_out))) == list(range(200)) and len(held_out) == 3
    emphases = {}
    for data, bag in seen:
        assert not np.intersect1d(bag.trained_rows, np.flatnonzero(data.left_out_weight)).size
        emphases.setdefault(tuple(np.flatnonzero(data.left_out_weight)), bag.source.emphasis)
    assert len({tuple(one) for one in emphases.values()}) == 3
    seen.clear()
    groups = np.arange(200) // 7
    quick(RandomHingeForestRegressor, max_iter=40).fit(X, y, groups=groups)
    for data, bag in seen:
        assert not set(data.group[bag.trained_rows]) & set(data.group[data.left_out_weight > 0])


@pytest.mark.parametrize("n_bags, share", [(1, None), (2, 1.0), (5, 1.6), (10, 1.8)])
@pytest.mark.parametrize("calibrate", [True, False, None])
def test_the_loss_of_all_bags_follows_from_those_of_one_and_two(
    calibrate, n_bags, share, monkeypatch
):
    """It is linear in 1 / n: L(n) = L(1) + (L(2) - L(1)) * (1 - 1 / n) / (1 - 1 / 2)."""
    bags, training, losses = [], HingeMethod.training, []

    def recorded(self, data, source, *others):
        found = training(self, data, source, *others)
        if self.settings.n_steps == 50:  # a quarter
            bags.append((data, found))
        return found

    def of_rows(self, decay, folds, own=DecayTrial.losses):
        losses.append(own(self, decay, folds))
        return None if len(losses) == 2 else losses[0]

    monkeypatch.setattr(HingeMethod, "training", recorded)
    monkeypatch.setattr(DecayTrial, "losses", of_rows)
    X, y, labels = noise(150)
    weight = np.random.default_rng(0).exponential(size=150) ** 2
    if calibrate is None:
        quick(RandomHingeForestRegressor, max_iter=200, n_bags=n_bags).fit(X, y, weight)
    else:
        own = {"calibrate": calibrate, "max_iter": 200, "n_bags": n_bags}
        quick(RandomHingeForestClassifier, **own).fit(X, labels, weight)
    n, expected = min(n_bags, 2), []
    assert len(bags) == 2 * n  # of one fold and two decays
    data, last = bags[-1]
    rows = np.flatnonzero(data.left_out_weight)
    pair = [bag.trainer.respond(bag.source.subset(rows).table()) for _, bag in bags[n:]]
    for temperature in hinge_trials.TEMPERATURES if calibrate and n > 1 else [1.0]:
        one, both = (
            np.mean(
                [last.loss.losses(raw / temperature, last.target[rows]) for raw in raws], axis=0
            )
            for raws in (pair, [np.mean(pair, axis=0)])
        )
        expected.append(one if n == 1 else one + share * (both - one))
    means = [np.average(one, weights=data.left_out_weight[rows]) for one in expected]
    np.testing.assert_allclose(losses[1], expected[np.argmin(means)], rtol=1e-6)


def test_without_time_there_is_no_trial():
    X, y, _ = noise(400)
    with pytest.warns(UserWarning, match="time_limit=0.05: "):
        forest = RandomHingeForestRegressor(time_limit=0.05, random_state=0).fit(X, y)
    assert forest.weight_decay_ == 0
    long = RandomHingeForestRegressor(time_limit=500, random_state=0).fit(X, y)
    assert long.weight_decay_ > 0


def test_a_loss_of_the_user_and_an_infinite_loss(recwarn):
    X, y, _ = noise(150)
    forest = quick(RandomHingeForestRegressor, loss=OwnSquaredError(), n_bags=1).fit(X, y)
    assert forest.weight_decay_ > 0 and not recwarn
    with pytest.raises(ValueError, match="the loss became infinite after 10 steps with learning"):
        quick(RandomHingeForestRegressor, learning_rate=1e30).fit(X, y)
