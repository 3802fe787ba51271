"""Predicted time and memory of fits."""

import time
import tracemalloc
import warnings

import numpy as np
import pytest
from makers import classes
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import VotingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skforest import (
    BlendedForestClassifier,
    CO2ForestClassifier,
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
    RandomHingeForestClassifier,
    estimate_cost,
)
from skforest.inspect import cost as module
from skforest.inspect.cost import FitCost, extrapolated


class Clock:
    now = 0.0


class Timed(ClassifierMixin, BaseEstimator):
    """Takes a known time, by `Clock`, and memory."""

    def __init__(self, clock, constant=0.0, each=0.01, power=1.0, verbose=1, time_limit=None):
        self.clock, self.constant, self.each, self.power = clock, constant, each, power
        self.verbose, self.time_limit = verbose, time_limit

    def __sklearn_clone__(self):
        return Timed(**vars(self))

    def fit(self, X, y):
        """Fit nothing."""
        assert not self.verbose and len(X) == len(y)
        warnings.warn("few rows", stacklevel=1)
        seconds = self.constant + self.each * len(X) ** self.power
        factor = module.TRACED if tracemalloc.is_tracing() else 1
        self.clock.now += factor * min(seconds, self.time_limit or np.inf)
        self.model_, peak = np.zeros((len(X), 128)), np.zeros((len(X), 512))  # 1 and 4 KiB a row
        self.classes_ = np.unique(y)
        del peak
        return self

    def predict(self, X):
        """Predict nothing."""


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "perf_counter", lambda: clock.now)
    return clock


X, Y = np.zeros((4000, 2)), np.arange(4000) % 3


def estimated(model, **given):
    return estimate_cost(model, X, Y, **{"random_state": 0} | given)


@pytest.mark.parametrize(
    "measured, n, most, expected",
    [
        ({100: 2.0}, 100, 1.5, (2, 2, 2)),
        ({100: 1.0, 200: 2.0}, 800, 1.5, (8, 8, 8)),  # in proportion
        ({100: 5.0, 200: 5.0}, 800, 1.5, (5, 5, 5)),  # it does not grow
        ({100: 5.0, 200: 4.0}, 800, 1.5, (4, 4, 4)),  # noise
        ({100: 2.0, 200: 3.0}, 400, 1.5, (np.sqrt(22.5), 4.5, 5.0)),  # power, line
        ({50: 9.0, 100: 1.0, 200: 4.0}, 400, 1.5, (np.sqrt(113.137), 10, 11.3137)),  # bounded
        ({100: 1.0, 200: 4.0}, 400, 1.0, (8, 8, 8)),
        ({100: 3.0}, 400, 1.5, (6, 3, 12)),  # between constant and in proportion
    ],
)
def test_extrapolation(measured, n, most, expected):
    value, low, high = extrapolated(measured, n, most)
    spread = 1.2 * (n / max(measured)) ** 0.5
    assert (value, low * spread, high / spread) == pytest.approx(expected, rel=1e-4)


def test_samples_grow_within_the_budget(clock):
    cost = estimated(Timed(clock), budget=70)
    assert list(cost.samples) == [100, 800, 1995]
    assert cost.samples == pytest.approx({n: 0.01 * n for n in cost.samples})
    assert clock.now < 70
    assert cost.seconds == pytest.approx(40) and cost.n_samples == 4000
    low, high = cost.seconds_range
    assert low < 40 < high
    assert list(estimated(Timed(clock), budget=1e-3).samples) == [100, 200]  # at least two
    assert list(estimated(Timed(clock), budget=1e3).samples) == [100, 800, 4000]


def test_a_third_sample_if_the_second_is_only_twice_the_first(clock):
    """Between 100 and 200 rows, a time that jumps says nothing about the growth afterwards."""
    assert extrapolated({100: 2.6, 200: 4.5}, 4000, 1.2)[0] > 40

    class Jump(Timed):
        def __sklearn_clone__(self):
            return Jump(**vars(self))

        def fit(self, X, y):
            self.constant = 2.6 if len(X) == 100 else 4.5
            return super().fit(X, y)

    cost = estimated(Jump(clock, each=0.0), budget=20)
    assert list(cost.samples) == [100, 200, 400] and cost.seconds == pytest.approx(4.5)


def test_times_that_grow_in_several_ways(clock):
    for given, expected in {
        (10.0, 0.0, 1.0): 10,
        (4.0, 0.002, 1.0): 12,
        (0.0, 1e-4, 1.3): 1e-4 * 4000**1.3,
    }.items():
        cost = estimated(Timed(clock, *given), budget=60)
        low, high = cost.seconds_range
        assert low < expected < high and cost.seconds == pytest.approx(expected, rel=0.3)


def test_a_time_limit_ends_the_prediction(clock):
    cost = estimated(Timed(clock, time_limit=5), budget=1e3)
    assert list(cost.samples) == [100, 800]
    assert cost.seconds == 5 and cost.seconds_range[1] == 5
    cost = estimated(Timed(clock, time_limit=30), budget=20)
    assert cost.seconds == pytest.approx(30) and max(cost.samples) < 1000


def test_memory_of_the_fit_and_of_the_model(clock):
    cost = estimated(Timed(clock), budget=50)
    assert cost.model_mib == pytest.approx(4000 / 1024, rel=0.02)
    assert cost.mib == pytest.approx(5 * 4000 / 1024, rel=0.02)
    assert cost.mib_range[0] < cost.mib < cost.mib_range[1]


def test_a_trace_of_the_user_goes_on(clock):
    estimated(Timed(clock), budget=100)
    assert not tracemalloc.is_tracing()
    tracemalloc.start()
    try:
        before, _ = np.ones(2**21), np.ones(2**23).sum()  # memory that no fit has added
        cost = estimated(Timed(clock), budget=300)
        assert tracemalloc.is_tracing() and cost.mib == pytest.approx(5 * 4000 / 1024, rel=0.02)
        del before
    finally:
        tracemalloc.stop()


def test_memory_is_traced_last_within_the_budget(clock):
    for budget in (6, 12, 30, 100):
        start = clock.now
        cost = estimated(Timed(clock), budget=budget)
        assert clock.now - start <= budget and np.isnan(cost.mib) == (budget == 6)
    cost = estimated(Timed(clock), budget=1)  # two samples are fitted in any case
    assert np.isnan([cost.mib, cost.model_mib]).all() and cost.seconds == pytest.approx(40)
    assert str(cost).endswith("; no time to trace the memory, raise budget")


def test_every_class_is_in_every_sample(clock):
    seen = []

    class Witness(Timed):
        def __sklearn_clone__(self):
            return Witness(**vars(self))

        def fit(self, X, y):
            seen.append(np.unique(y).tolist())
            assert len(np.unique(X)) == len(X)  # no row is drawn twice
            return super().fit(X, y)

    y = np.zeros(4000, dtype=int)
    y[[5, 70]] = 1, 2
    estimate_cost(Witness(clock), np.arange(4000)[:, None], y, budget=100)
    assert seen and all(labels == [0, 1, 2] for labels in seen)


WRAPPED = {  # wrappers, and their expressions for the estimator inside
    "alone": (lambda model: model, lambda outer: outer),
    "pipeline": (lambda model: make_pipeline(StandardScaler(), model), lambda outer: outer[-1]),
    "search": (lambda model: GridSearchCV(model, {}, cv=2), lambda outer: outer.estimator),
    "pipeline in a search": (
        lambda model: GridSearchCV(make_pipeline(StandardScaler(), model), {}, cv=2),
        lambda outer: outer.estimator[-1],
    ),
    "votes": (
        lambda model: VotingClassifier([("a", model)]),
        lambda outer: outer.estimators[0][1],
    ),
    "blend": (
        lambda model: BlendedForestClassifier(["manifold", model], cv=2),
        lambda outer: outer.members[1],
    ),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_samples_have_the_settings_of_the_whole_fit(name, monkeypatch):
    """Of the fit of all rows, or of the rows in a fold."""
    wrapped, inside = WRAPPED[name]
    seen = []
    monkeypatch.setattr(module, "_traced", lambda model, *rows: [1.0, 1.0])
    monkeypatch.setattr(module, "_fitted", lambda model, *rows: seen.append(inside(model)))
    rows, y = np.zeros((50_000, 1)), np.arange(50_000) % 2
    for n in (150, 18_000, 30_000, 50_000):
        n_fitted = n // 2 if "search" in name or name == "blend" else n
        model = ObliqueBoostingClassifier()
        estimate_cost(wrapped(model), rows[:n], y[:n])
        assert len(seen) > 1 and model.n_bags == model.n_directions == "auto"
        assert {used.n_bags for used in seen} == {1 if n_fitted >= 20_000 else 5}
        expected = 64 if n_fitted < 10_000 else 32
        assert {used.n_directions for used in seen} == {25 if n_fitted == 50_000 else expected}
        seen.clear()
    estimate_cost(wrapped(ObliqueBoostingClassifier(n_bags=3, n_directions=7)), rows, y)
    assert {(used.n_bags, used.n_directions) for used in seen} == {(3, 7)}


def test_estimators_that_are_not_fitted_are_not_changed():
    frozen = FrozenEstimator(ObliqueBoostingClassifier())
    for model in (frozen, make_pipeline(frozen)):
        module._set_auto(model, 30_000)
    assert frozen.estimator.n_bags == "auto"


def test_the_time_limit_at_the_end_of_a_pipeline(clock):
    model = Timed(clock, verbose=0, time_limit=5)
    cost = estimated(make_pipeline(StandardScaler(), model), budget=1e3)
    assert cost.seconds == 5 and cost.seconds_range[1] == 5
    limited = ManifoldForestClassifier(time_limit=5)
    for model, seconds in (
        (make_pipeline(make_pipeline(limited)), 5),
        (make_pipeline(StandardScaler(), "passthrough"), np.inf),
        (GridSearchCV(limited, {"max_depth": [1, 2]}), np.inf),  # of one of many fits
        (BlendedForestClassifier([limited], time_limit=7), 7),
        (BlendedForestClassifier([limited, "co2"]), np.inf),
    ):
        assert module._time_limit(model) == seconds


def test_a_cost_as_text():
    cost = FitCost(41.23, (30.1, 66.6), 123.4, (100.0, 200.0), 0.0341, 10_000, {100: 1.0})
    text = "about 41 s (30 to 67 s), 120 MiB (100 to 200 MiB), model 0.034 MiB"
    assert str(cost) == text
    assert repr(cost) == f"<FitCost of 10000 rows: {text}>"


def test_bad_input_is_refused_before_a_fit():
    for given, words in (
        ((X, Y, {"budget": 0}), "budget must be greater than 0 seconds, got 0"),
        ((X, Y[:5], {}), "X has 4000 rows and y has 5"),
        ((X[:0], Y[:0], {}), "X has 0 rows"),
    ):
        with pytest.raises(ValueError, match=words):
            estimate_cost(None, *given[:2], **given[2])


def test_tables_and_pipelines():
    pd = pytest.importorskip("pandas")
    rows, y = classes(150)
    frame = pd.DataFrame(rows).rename(columns=str)
    forest = ManifoldForestClassifier(3)
    cost = estimate_cost(make_pipeline(StandardScaler(), forest), frame, pd.Series(y))
    assert list(cost.samples) == [100, 150]
    assert 0 < cost.model_mib < cost.mib < 50
    assert not hasattr(forest, "forest_")


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "dia", "bsr", "lil", "dok"])
@pytest.mark.parametrize("kind", [sparse.coo_matrix, sparse.coo_array])
def test_sparse_rows_of_any_form(kind, form, monkeypatch):
    rows = np.diag(np.arange(1.0, 151))
    seen = []
    monkeypatch.setattr(Timed, "fit", lambda model, X, y: seen.append((X.toarray(), y)))
    estimate_cost(Timed(None), kind(rows).asformat(form), np.arange(150), budget=5)
    for found, y in seen:
        np.testing.assert_array_equal(found, rows[y])
    assert {len(y) for _, y in seen} == {100, 150}


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        ManifoldForestClassifier(),
        CO2ForestClassifier(),
        RandomHingeForestClassifier(n_bags=3),
        ObliqueBoostingClassifier(),
        BlendedForestClassifier(preset="fast"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_real_fits_cost_about_as_much(model):
    """The only test that reads a clock; other jobs of the machine may make it wrong."""
    rows, y = classes(3000)
    cost = estimate_cost(model, rows, y, budget=60, random_state=0)
    start = time.perf_counter()
    model.fit(rows, y)
    ratio = cost.seconds / (time.perf_counter() - start)
    assert 1 / 3 < ratio < 3, cost
