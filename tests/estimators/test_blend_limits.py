"""Limits of time of blends, for training and for prediction."""

import time

import numpy as np
import pytest
from blends import CO2, classes, classifier, each_kind
from makers import response
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
)

import skforest
from skforest import (
    CO2ForestClassifier,
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
    RandomHingeForestClassifier,
)
from skforest.blend.members import OtherMember, OwnMember, criterion_of
from skforest.blend.schedule import train_in_time
from skforest.training.threads import NotInTime, TimeLimit


def test_members_that_have_no_time_are_left_out():
    X, y = classes()
    members = [
        ManifoldForestClassifier(10),
        CO2ForestClassifier(30_000, **CO2),
        ExtraTreesClassifier(),
    ]
    start = time.perf_counter()
    with pytest.warns(UserWarning, match="time_limit=0.5: ExtraTrees left out of the blend"):
        blend = classifier(members=members, time_limit=0.5).fit(X, y)
    assert time.perf_counter() - start < 5
    assert blend.left_out_ == ["ExtraTrees"]
    assert "_time_limit" not in vars(blend.members_["CO2Forest"])
    assert 5 <= len(blend.members_["CO2Forest"].forest_) < 30_000  # those that were in time
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


def test_a_long_tree_is_ended():
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((3000, 20)), rng.integers(0, 2, 3000)
    slow = RandomHingeForestClassifier(max_iter=10**6)
    start = time.perf_counter()
    with pytest.warns(UserWarning, match="RandomHingeForest left out"):
        classifier(members=[ManifoldForestClassifier(10), slow], time_limit=0.5).fit(X, y)
    assert time.perf_counter() - start < 5


class Clock:
    """Stands in for `time` where it is read by limits of time."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(skforest.training.threads, "time", self)
        monkeypatch.setattr(
            skforest.blend.schedule, "common_rows", lambda members, samples: (0, members)
        )

    def perf_counter(self):
        return self.now


class TimedMember(OwnMember):
    """A member that takes as long as it is told to, and notes what it is asked for."""

    def __init__(self, clock, estimator, n, seconds, weight, log):
        super().__init__(type(estimator).__name__, estimator)
        self.unit = "bag" if hasattr(estimator, "n_bags") else "tree"
        self.clock, self.n_folds, self.n_left_out, self.weight = clock, n, min(n, 5), weight
        self.step_seconds, self.cost, self.n_done, self.log = 0.0, seconds, 0, log

    def begin(self, samples, limit=None):
        self.n_done = 0

    def extend(self, n, samples, limit=None):
        n_before = self.n_done
        if limit.least and self.unit == "bag":
            limit.check(self.cost)
        for i in range(n):
            if i >= limit.at_least and limit.left() < (self.cost if self.n_done else 1e-9):
                break
            self.clock.now += self.cost
            self.n_done, self.step_seconds = self.n_done + 1, self.cost
        self.log.append((self.name[:4], self.n_done - n_before))
        if self.n_done == n_before:
            raise NotInTime(self.name)


class WeightOfMember:
    """A criterion that prefers the heaviest member."""

    def reduce(self, member):
        return member.weight

    def score(self, weight):
        return float(weight)


def planned(monkeypatch, seconds, weights=(3, 0, 1, 2)):
    """Trees and bags that each member has within a limit, and what was trained in which order."""
    clock, log = Clock(monkeypatch), []
    kinds = (RandomHingeForestClassifier, 5, 4.0), (CO2ForestClassifier, 100, 0.05)
    kinds += (ManifoldForestClassifier, 100, 0.01), (ObliqueBoostingClassifier, 5, 3.0)
    members = [
        TimedMember(clock, cls(), n, cost, weight, log)
        for (cls, n, cost), weight in zip(kinds, weights)
    ]
    limit = TimeLimit.of(seconds, clock.now)
    trained = train_in_time(members, None, limit, lambda *_: WeightOfMember())
    late = clock.now - limit.deadline
    return {m.name[:4]: m.n_done for m in members if m in trained}, log, late


def test_boosting_begins_and_the_members_with_a_weight_go_on(monkeypatch):
    done, log, late = planned(monkeypatch, 5.0)
    assert log[0] == ("Obli", 1) and late <= 0
    assert done["Obli"] == 1 and "Rand" not in done  # nothing begins that would not end
    assert done["Mani"] > 10 and done["CO2F"] >= 5
    done, log, late = planned(monkeypatch, 25.0, weights=(0, 0, 1, 2))
    assert late <= 0 and done["Obli"] == 5  # before the first bag of the hinge forest
    assert done.get("Rand", 0) <= 1
    done, log, late = planned(monkeypatch, 40.0, weights=(3, 0, 1, 2))
    assert late <= 0 and done["Rand"] == 5 > done["Obli"]  # where it is better
    done, log, late = planned(monkeypatch, 60.0)
    assert list(done.values()) == [5, 100, 100, 5]
    assert planned(monkeypatch, 1e-6)[0] == {"Obli": 1}


class TimedOther(OtherMember):
    """As `TimedMember`, of another package: it is trained once more in the end."""

    def __init__(self, clock, weight, log):
        super().__init__("other", None)
        self.clock, self.weight, self.log = clock, weight, log
        self.n_folds, self.n_left_out, self.n_done, self.cost = 2, 2, 0, 1.0
        self.final_seconds = 11.0

    begin, extend = TimedMember.begin, TimedMember.extend


def test_members_of_other_packages_have_time_for_their_final_training(monkeypatch):
    clock, log = Clock(monkeypatch), []
    other = TimedOther(clock, 2, log)
    boosting = TimedMember(clock, ObliqueBoostingClassifier(), 5, 0.1, 1, log)
    hinge = TimedMember(clock, RandomHingeForestClassifier(), 5, 4.0, 3, log)
    limit = TimeLimit.of(15.0, clock.now)
    train_in_time([other, boosting, hinge], None, limit, lambda *_: WeightOfMember())
    assert other.n_done == 2 and clock.now + other.final_seconds <= limit.deadline


@each_kind
def test_a_limit_that_is_not_reached_changes_no_weight(blend, data):
    X, y = data
    other = ExtraTreesClassifier if is_classifier(blend) else ExtraTreesRegressor
    blend = clone(blend).set_params(members=[other(5), *blend.members])
    free, limited = clone(blend).fit(X, y), blend.set_params(time_limit=600).fit(X, y)
    assert list(limited.weights_.items()) == list(free.weights_.items())
    np.testing.assert_array_equal(response(limited, X), response(free, X))


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


def test_a_foreign_member_is_tried_on_few_rows():
    class Slow(DummyClassifier):
        def fit(self, X, y, sample_weight=None):
            time.sleep(3e-4 * len(X))
            return super().fit(X, y)

    X, y = make_classification(3000, random_state=0)
    start = time.perf_counter()
    with pytest.warns(UserWarning, match="time_limit=1: Slow left out of the blend"):
        classifier(members=[Slow(), ManifoldForestClassifier(5)], time_limit=1).fit(X, y)
    assert time.perf_counter() - start < 10


def test_the_time_of_a_prediction_grows_with_the_trees(monkeypatch):
    X, y = classes()
    samples = classifier()._read_samples(X, y, None, None)
    member = OwnMember("forest", ManifoldForestClassifier(3, random_state=0))
    member.train_folds(samples)
    ticks = iter(range(100))
    monkeypatch.setattr(skforest.blend.members.time, "perf_counter", lambda: next(ticks) ** 2)
    member.growth = 1
    one = member.predict_us(samples)
    ticks = iter(range(100))
    member.growth = 3
    assert member.predict_us(samples) == 3 * one > 0


def test_max_predict_us(monkeypatch):
    costs = {"ManifoldForest": 2.0, "co2": 3.0, "random forest": 1.0}
    monkeypatch.setattr(OwnMember, "predict_us", lambda member, samples: costs[member.name])
    X, y = classes()
    assert len(classifier(max_predict_us=5).fit(X, y).members_) == 2
    assert len(classifier(max_predict_us=4).fit(X, y).members_) == 1
    assert list(classifier(max_predict_us=2.5).fit(X, y).members_) == ["ManifoldForest"]
    with pytest.warns(UserWarning, match="no member is as fast; the fastest is used"):
        blend = classifier(max_predict_us=1).fit(X, y)
    assert list(blend.members_) == ["ManifoldForest"]
    assert blend.leaderboard_.loc["co2", "predict_us"] == 3
