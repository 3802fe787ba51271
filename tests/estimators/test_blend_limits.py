"""Limits of time of blends, for training and for prediction."""

from types import SimpleNamespace

import numpy as np
import pytest
from blends import CO2, classes, classifier, each_kind, targets, train_folds
from makers import response
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ShuffleSplit

import skforest
from skforest import (
    BlendedForestRegressor,
    CO2ForestClassifier,
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from skforest.blend.members import OwnMember, criterion_of
from skforest.blend.schedule import shortened, train_in_time
from skforest.training.threads import TimeLimit


@pytest.mark.usefixtures("interruptible")  # ends what a limit does not
def test_members_that_have_no_time_are_left_out():
    X, y = classes()
    members = [
        ManifoldForestClassifier(10),
        CO2ForestClassifier(30_000, **CO2),
        ExtraTreesClassifier(1000),
    ]
    with pytest.warns(UserWarning, match="time_limit=0.5: ExtraTrees left out of the blend"):
        blend = classifier(members=members, time_limit=0.5).fit(X, y)
    assert blend.left_out_ == ["ExtraTrees"]
    assert "_time_limit" not in vars(blend.members_["CO2Forest"])
    assert 1 <= len(blend.members_["CO2Forest"].forest_) < 30_000  # those that were in time
    assert blend.score(X, y) > 0.9


@each_kind
def test_there_is_a_model_within_any_time(blend, data):
    X, y = data
    blend = clone(blend).set_params(time_limit=1e-6)
    with pytest.warns(UserWarning, match="co2 left out of the blend"):
        blend.fit(X, y)
    assert list(blend.members_) == [next(iter(blend.weights_))]
    assert blend.score(X, y) > 0.5


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_limit_beyond_that_of_timers():
    X, y = classes()
    blend = classifier(members=[ManifoldForestClassifier(3)], time_limit=1e300).fit(X, y)
    assert blend.left_out_ == []


@pytest.mark.usefixtures("interruptible")
def test_a_long_tree_is_ended():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 20)), rng.integers(0, 2, 3000)
    slow = RandomHingeForestClassifier(max_iter=10**6)
    with pytest.warns(UserWarning, match="RandomHingeForest left out"):
        classifier(members=[ManifoldForestClassifier(10), slow], time_limit=0.5).fit(X, y)


class Clock:
    """Stands in for `time` where it is read by limits of time."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (skforest.blend.blend, skforest.blend.members, skforest.training.threads):
        monkeypatch.setattr(module, "time", clock)
    return clock


def timed(clock, seconds, base=LogisticRegression):
    """An estimator of another package whose training takes so many seconds for each row."""

    def fit(self, X, y, sample_weight=None):
        clock.now += seconds * len(X)
        return base.fit(self, X, y, sample_weight)

    return type("Timed", (base,), {"fit": fit})()


def test_boosting_begins_whatever_the_limit():
    X, y = classes()
    hinge, boosting = RandomHingeForestClassifier(), ObliqueBoostingClassifier(3)
    members = [hinge, CO2ForestClassifier(3), ManifoldForestClassifier(3), boosting]
    with pytest.warns(UserWarning, match="RandomHingeForest, CO2Forest, ManifoldForest left out"):
        blend = classifier(members=members, time_limit=1e-6).fit(X, y)
    assert list(blend.members_) == ["ObliqueBoosting"]


@pytest.mark.parametrize("reading, left", [(1.0, 3.75), (1.5, 8.0)])
def test_the_first_member_has_all_time_if_reading_takes_long(clock, reading, left):
    """More than 15 % of it: others would not begin. It has half of the time otherwise."""

    class One:
        name, unit, n_folds, n_done, seen = "one", "bag", 1, 0, 0.0

        def begin(self, samples, limit):
            clock.now += reading

        def extend(self, n, samples, limit):
            self.seen, self.n_done = limit.left(), n

    one = One()
    train_in_time([one], None, TimeLimit(10.0, seconds=10.0), None)
    assert one.seen == pytest.approx(left)


def test_members_with_a_weight_go_on(clock):
    """Where time is short, the others have only begun, though they are named first."""
    X = np.random.default_rng(0).standard_normal((120, 4))
    y = X[:, 0] > 0
    members = [("poor", timed(clock, 0.01, DummyClassifier)), ("good", timed(clock, 0.01))]
    members.append(ManifoldForestClassifier(2, max_depth=1))
    with pytest.warns(UserWarning, match="time_limit=10: poor 1 of 5 folds$"):
        blend = classifier(members=members, time_limit=10).fit(X, y)
    assert blend.weights_["good"] > 0 == blend.weights_["poor"]
    assert clock.now <= 10


def test_members_of_other_packages_have_time_for_their_final_training(clock):
    """The final training is on five times the rows of a fold, and `late` would take its time."""
    X = np.random.default_rng(0).standard_normal((120, 4))
    y = X[:, 0] > 0
    members = [("early", timed(clock, 0.01)), ("late", timed(clock, 0.02))]
    members.append(ManifoldForestClassifier(2, max_depth=1))
    cv = ShuffleSplit(5, train_size=0.2, random_state=0)
    with pytest.warns(UserWarning, match="time_limit=3: late left out"):
        blend = classifier(members=members, cv=cv, time_limit=3).fit(X, y)
    assert blend.weights_["early"] > 0
    assert 1.2 < clock.now <= 3


def test_times_of_training_contain_all_folds_and_the_final_one(clock):
    X = np.random.default_rng(0).standard_normal((120, 4))
    members = [("slow", timed(clock, 0.03)), ("fast", timed(clock, 0.01))]
    board = classifier(members=members).fit(X, X[:, 0] > 0).leaderboard_
    is_final = board["weight"] > 0
    for name, seconds in (("slow", 0.03), ("fast", 0.01)):
        n_rows = 5 * 96 + 120 * is_final[name]
        assert board.loc[name, "fit_seconds"] == pytest.approx(seconds * n_rows)
    expected = board["fit_seconds"][["slow", "fast", "random forest"]].sum()
    assert board.loc["blend", "fit_seconds"] == pytest.approx(expected)


@each_kind
def test_a_limit_that_is_not_reached_changes_no_weight(blend, data):
    X, y = data
    other = ExtraTreesClassifier if is_classifier(blend) else ExtraTreesRegressor
    blend = clone(blend).set_params(members=[other(5), *blend.members])
    free, limited = clone(blend).fit(X, y), blend.set_params(time_limit=600).fit(X, y)
    assert list(limited.weights_.items()) == list(free.weights_.items())
    np.testing.assert_array_equal(response(limited, X), response(free, X))


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "bags",
    [
        ObliqueBoostingRegressor(8, n_bags=3, loss="poisson"),
        ObliqueBoostingRegressor(8, n_bags=5, loss="quantile", quantile=0.9),
        RandomHingeForestRegressor(4, n_bags=5, max_iter=50, loss="quantile", quantile=0.9),
    ],
    ids=["poisson", "quantile", "hinge"],
)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_bags_are_calibrated_together_though_a_limit_trains_them_one_by_one(bags, n_jobs):
    X, y = targets()
    y = y - y.min() + 0.1
    free = BlendedForestRegressor([bags], random_state=0).fit(X, y)
    limited = BlendedForestRegressor([bags], random_state=0, time_limit=600, n_jobs=n_jobs)
    np.testing.assert_array_equal(limited.fit(X, y).predict(X), free.predict(X))
    assert limited.score_ == free.score_


def test_bags_that_a_limit_cut_short_are_kept(monkeypatch):
    """Weights are those of the rows of the folds that were left out by then."""
    X, y = classes(200)
    seen = []
    monkeypatch.setattr(
        skforest.blend.blend,
        "criterion_of",
        lambda blend, samples, kept: seen.append(samples) or criterion_of(blend, samples, kept),
    )
    boosting = ObliqueBoostingClassifier(10**6, learning_rate=1e-4, n_iter_no_change=10**6)
    blend = classifier(members=["manifold", boosting], time_limit=0.3)
    with pytest.warns(UserWarning, match="time_limit=0.3: .*ObliqueBoosting 1 of 5 bags"):
        blend.fit(X, y)
    assert blend.weights_["ObliqueBoosting"] > 0 or len(blend.weights_) > 1
    compared = seen[-1]
    assert set(compared.compared_fold) == {0} and len(compared.compared) == 40


def test_a_foreign_member_is_tried_on_few_rows(clock):
    X, y = make_classification(3000, random_state=0)
    slow = timed(clock, 3e-4)
    with pytest.warns(UserWarning, match="time_limit=1: Timed left out of the blend"):
        classifier(members=[slow, ManifoldForestClassifier(5)], time_limit=1).fit(X, y)
    assert clock.now < 0.2


def test_the_time_of_a_prediction_grows_with_the_trees(monkeypatch):
    X, y = classes()
    samples = classifier()._read_samples(X, y, None, None)
    member = OwnMember("forest", ManifoldForestClassifier(3, random_state=0))
    train_folds(member, samples)
    ticks = iter(range(100))
    monkeypatch.setattr(skforest.blend.members.time, "perf_counter", lambda: next(ticks) ** 2)
    member.growth = 1
    one = member.predict_us(samples)
    ticks = iter(range(100))
    member.growth = 3
    assert member.predict_us(samples) == 3 * one
    assert one == 1000  # the shortest of three batches of 1000 rows took a second, the others more


def test_max_predict_us(monkeypatch):
    costs = {"ManifoldForest": 2.0, "co2": 3.0, "random forest": 1.0}
    monkeypatch.setattr(OwnMember, "predict_us", lambda member, samples: costs[member.name])
    X, y = classes()
    blend = classifier(max_predict_us=5).fit(X, y)
    assert len(blend.members_) == 2 and blend.leaderboard_.loc["blend", "predict_us"] == 5
    assert len(classifier(max_predict_us=4).fit(X, y).members_) == 1
    assert list(classifier(max_predict_us=2.5).fit(X, y).members_) == ["ManifoldForest"]
    with pytest.warns(UserWarning, match="no member is as fast; the fastest is used"):
        blend = classifier(max_predict_us=1).fit(X, y)
    assert list(blend.members_) == ["ManifoldForest"]
    assert blend.leaderboard_.loc["co2", "predict_us"] == 3


def test_what_a_time_limit_has_made_smaller_is_told():
    """Members that were left out, that have fewer bags, and whose bags are not complete."""

    def member(name, n_done, is_cut):
        return SimpleNamespace(name=name, n_done=n_done, n_folds=3, unit="bag", is_cut=is_cut)

    whole, few, cut = member("a", 3, False), member("b", 2, False), member("c", 3, True)
    both, absent = member("d", 1, True), member("e", 0, False)
    assert shortened([whole], [whole]) == ""
    assert shortened([absent, whole, few, cut, both], [whole, few, cut, both]) == (
        "e left out of the blend; b 2 of 3 bags; the training of c was cut short; "
        "d 1 of 3 bags, one of them cut short"
    )
