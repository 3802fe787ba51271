"""Threads of the user: estimators that are fitted, and fitted ones that predict, at the same time.

On free-threaded builds of Python, nothing but the package itself keeps these threads apart.
"""

import _thread
import ctypes
import os
import pickle
import signal
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from pathlib import Path
from threading import Barrier, Thread

import joblib
import numpy as np
import pandas as pd
import pytest
from conftest import ESTIMATORS, small
from makers import start_python
from sklearn.base import clone, is_classifier

from skforest import (
    BlendedForestRegressor,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestRegressor,
)
from skforest.blend import schedule
from skforest.blend.blend import MIN_REFITTED
from skforest.training import boosting_trials, method, threads
from skforest.training.hinge_trials import DecayTrial
from skforest.training.shared_threads import SharedThreads, together
from skforest.training.threads import Control, TimeLimit, in_parallel, return_freed_memory


@pytest.fixture(scope="module")
def table():
    """X with equal rows, and targets of both kinds."""
    rng = np.random.default_rng(0)
    X = np.round(rng.standard_normal((60, 5)), 1)
    return X, {True: (X[:, 0] + X[:, 1] > 0).astype(int), False: X[:, 0] * X[:, 1]}


def at_once(functions):
    """What the functions return, each called in a thread of its own, all at the same time."""
    barrier = Barrier(len(functions))

    def call(function):
        barrier.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as pool:
        return list(pool.map(call, functions))


def few_trees(estimator):
    return estimator.set_params(n_estimators=4)


def test_all_estimators_are_fitted_at_once(table):
    X, y = table
    models, before = [few_trees(small(cls)) for cls in ESTIMATORS], X.tobytes()
    expected = [clone(model).fit(X, y[is_classifier(model)]) for model in models]
    found = at_once([lambda m=m: m.fit(X, y[is_classifier(m)]) for m in models])
    assert X.tobytes() == before
    for one, other in zip(expected, found):
        for name, array in one.forest_.arrays.items():
            assert array.tobytes() == other.forest_.arrays[name].tobytes(), name
        assert one.predict(X).tobytes() == other.predict(X).tobytes()


@pytest.mark.every_class
def test_all_that_reads_a_fitted_estimator_at_once(estimator, table):
    """From the first call on, in which the forest prepares what predictions need."""
    X, y = table[0], table[1][is_classifier(estimator)]
    frame = pd.DataFrame(X).add_prefix("x")
    stored = pickle.dumps(few_trees(estimator).fit(frame, y))
    calls = {
        "rows": lambda model: model.predict(frame),
        "one row": lambda model: model.predict(frame[:1]),
        "leaves": lambda model: model.apply(frame),
        "bytes": lambda model: model.forest_.response(np.uint8(abs(X))),
        "predictor": lambda model: model.predictor()(X[0].astype(np.float32)),
        "importances": lambda model: model.feature_importances_,
        "copy": lambda model: pickle.loads(pickle.dumps(model)).predict(frame),
        "view": lambda model: model.forest_[0].response(X),
    }
    expected = {name: call(pickle.loads(stored)).tobytes() for name, call in calls.items()}
    names = [*calls] * 2
    for _ in range(2):
        model = pickle.loads(stored)  # which has not prepared anything
        found = at_once([partial(calls[name], model) for name in names])
        for name, result in zip(names, found):
            assert result.tobytes() == expected[name], name


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="needs a free-threaded build of Python"
)
def test_no_kernel_switches_the_interpreter_lock_on():
    code = "import sys, skforest, skforest.export; print(sys._is_gil_enabled())"
    output, errors = start_python(code, PYTHON_GIL="").communicate()
    assert output.strip() == "False", errors


FORKED = """
import os, signal, warnings
import numpy as np
import skforest
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork after threads: what is tested
rng = np.random.default_rng(0)
X = rng.normal(size=(3000, 4))
y = X[:, 0] * X[:, 1]
models = [skforest.ManifoldForestRegressor(4), skforest.ObliqueBoostingRegressor(3, n_bags=2)]
models = [model.set_params(n_jobs=2, random_state=0).fit(X, y) for model in models]
expected = [model.predict(X) for model in models]
child = os.fork()
if child == 0:
    signal.alarm(30)  # a hang ends the child
    for model, values in zip(models, expected):
        assert (model.predict(X) == values).all()
        assert (model.fit(X, y).predict(X) == values).all()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_process_that_is_forked_after_training_in_threads():
    out, errors = start_python(FORKED).communicate()
    assert out.split() == ["0"], errors


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_waits_for_threads_without_the_interpreter_lock(monkeypatch):
    """Raised within joblib, it could leave a lock that threads wait for forever."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    ended, handlers, end = [], [], time.monotonic() + 30

    def train(member, control):
        handlers.append(signal.getsignal(signal.SIGINT))
        if member == 1:
            _thread.interrupt_main()
        while not control.stop[0] and time.monotonic() < end:
            time.sleep(0.001)
        ended.append(member)

    with pytest.raises(KeyboardInterrupt):
        in_parallel(train, range(20), 2)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.default_int_handler not in handlers[:2]
    assert set(ended) >= {0, 1}
    assert len(ended) < 20, "trees begin after the interrupt"


# --------------------------------------------------------------------- forests that share threads


def waits(control, end):
    """Wait for the end of training, at most until a time."""
    while not control.stop[0] and time.monotonic() < end:
        time.sleep(0.001)


def calls_of(sizes, train, found):
    """Functions for `together`, each of which trains so many members."""

    def call(number, shared):
        own = partial(train, number)
        n = sizes[number]
        found[number] = in_parallel(own, range(n), 2, shared=shared)
        found[number, "seconds"] = shared.seconds()

    return [partial(call, number) for number in range(len(sizes))]


def test_members_of_several_forests_share_threads():
    found, active, most = {}, [], []

    def train(number, member, control):
        active.append(member)
        most.append(len(active))
        time.sleep(0.02)
        active.pop()
        return number, member

    together(calls_of([9, 3, 4], train, found), 2)
    for number, n in enumerate([9, 3, 4]):
        assert found[number] == [(number, member) for member in range(n)]
        assert 0.009 * n < found[number, "seconds"] < 1
    assert max(most) == 2


def test_of_waiting_members_the_forest_with_the_fewest_comes_first():
    shared, begun, end = SharedThreads(1), [], time.monotonic() + 30
    hold = Control()

    def train(member, control):
        begun.append(member)
        if control is hold:
            waits(control, end)

    for n_waiting, n_members in enumerate([0, 9, 3, 4, 3]):
        control = hold if n_members == 0 else Control()
        called = shared.taking_turns(train, n_members, control)
        Thread(target=called, args=((n_members, n_waiting), control)).start()
        while len(shared.waiting) < n_waiting or not begun:
            assert time.monotonic() < end
            time.sleep(0.001)
    hold.stop[0] = 1
    while len(begun) < 5:
        assert time.monotonic() < end
        time.sleep(0.001)
    assert begun == [(0, 0), (3, 2), (3, 4), (4, 3), (9, 1)]


def test_an_error_ends_the_forests_that_share_threads():
    end, found = time.monotonic() + 30, {}

    def train(number, member, control):
        if number == 1:
            raise ValueError(f"member {member}")
        waits(control, end)

    with pytest.raises(ValueError, match="member 0"):
        together(calls_of([50, 1], train, found), 3)  # the first call uses two of them
    assert time.monotonic() < end


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_the_forests_that_share_threads():
    end, found, turns = time.monotonic() + 30, {}, count()

    def train(number, member, control):
        if next(turns) == 1:
            _thread.interrupt_main()
        waits(control, end)

    with pytest.raises(KeyboardInterrupt):
        together(calls_of([4, 5], train, found), 2)
    assert time.monotonic() < end


def test_members_of_a_blend_share_threads_and_are_the_same(table, monkeypatch):
    """They share them on the folds, and where they are trained again on all rows."""
    X, y = table
    numbers, blends = [], {}

    def counted(functions, n_jobs):
        numbers.append(len(functions))
        together(functions, n_jobs)

    monkeypatch.setattr(schedule, "together", counted)
    for n_jobs in (1, 3):
        blends[n_jobs] = BlendedForestRegressor(random_state=0, n_jobs=n_jobs).fit(X, y[False])
    weights = blends[1].weights_
    n_again = sum(weight >= MIN_REFITTED for weight in weights.values())
    assert numbers == [0, 0, len(weights), n_again] and n_again
    assert weights == blends[3].weights_
    np.testing.assert_array_equal(blends[1].predict(X), blends[3].predict(X))


# ------------------------------------------------------------------------ members that take turns


@pytest.mark.parametrize("n_members, n_threads", [(5, 2), (5, 3), (5, 4), (9, 2), (7, 5)])
def test_members_take_turns(n_members, n_threads, monkeypatch):
    """No more work at the same time than there are threads, and no two of the first ones wait."""
    monkeypatch.setattr(threads, "SLICE", 0)
    begun, active, most, steps = [], [], [], {}

    def train(member, control):
        begun.append(member)
        for _ in range(30):
            control.pause()
            active.append(member)
            most.append(len(active))
            time.sleep(0.002)
            active.remove(member)
            steps[member] = steps.get(member, 0) + 1
        ended.append((member, dict(steps), len(begun)))
        return member

    ended = []
    found = in_parallel(train, range(n_members), n_threads, takes_turns=True)
    assert found == list(range(n_members)) and max(most) == n_threads
    first, known, n_begun = ended[0]
    n_active = n_threads + n_members % n_threads
    assert n_begun >= n_active
    assert min(known.get(member, 0) for member in range(n_active)) >= 5, "one waits for others"


@pytest.mark.parametrize("n_members, limit", [(4, None), (1, None), (2, None), (5, 100)])
def test_members_that_use_all_threads_or_have_a_limit_take_no_turns(n_members, limit):
    if limit is not None:
        limit = TimeLimit(time.perf_counter() + limit)

    def has_turns(member, control):
        return control.turns is not None

    given = {"limit": limit, "takes_turns": True}
    assert not any(in_parallel(has_turns, range(n_members), 2, **given))
    assert not any(in_parallel(has_turns, range(3), 2))
    assert all(in_parallel(has_turns, range(3), 2, takes_turns=True))


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_members_that_wait_for_their_turn_end_early(error):
    """An error, or an interrupt, ends those that work and those that wait."""
    end, turns = time.monotonic() + 30, []

    def train(member, control):
        turns.append(control.turns)
        if member == 0 and error is KeyboardInterrupt:
            _thread.interrupt_main()
        elif member == 0:
            raise error("member 0")
        waits(control, end)

    with pytest.raises(error):
        in_parallel(train, range(5), 3, takes_turns=True)
    while turns[0].n_free < 3 and time.monotonic() < end:  # all turns are given back
        time.sleep(0.001)
    assert not turns[0].waiting and time.monotonic() < end


@pytest.mark.parametrize(
    "estimator",
    [
        ObliqueBoostingClassifier(40, n_bags=3, random_state=0),
        RandomHingeForestRegressor(20, n_bags=5, max_iter=200, random_state=0),
    ],
)
def test_bags_take_turns_and_are_the_same(estimator, table, monkeypatch):
    X, y = table
    monkeypatch.setattr(threads, "SLICE", 0)
    alone = clone(estimator).fit(X, y[is_classifier(estimator)])
    turns = []

    def counted(self, own=threads.Turns.pause):
        turns.append(self)
        own(self)

    monkeypatch.setattr(threads.Turns, "pause", counted)
    shared = clone(estimator).set_params(n_jobs=2).fit(X, y[is_classifier(estimator)])
    assert len(turns) >= 3 * 20 and len(set(turns)) == 1
    np.testing.assert_array_equal(alone.predict(X), shared.predict(X))
    monkeypatch.setattr(method, "MANY_NUMBERS", 10)
    clone(shared).fit(X, y[is_classifier(estimator)])
    assert len(set(turns)) == 1, "of many rows, no more bags than threads exist"


def test_what_threads_share_is_not_sent_to_processes(table):
    """Importances that a thread of a hinge forest waits for cannot be pickled."""
    X, y = table
    model = RandomHingeForestRegressor(20, n_bags=2, max_iter=40, random_state=0)
    request = model._request()
    data = model._read_training_set(X, y[False], request)
    data, shared = model._method(model._settings(data, request)).prepared(data, range(2), request)
    bag, _ = shared.train(data, 0, Control())
    again = pickle.loads(pickle.dumps(shared))
    assert shared.known and not again.known
    same, _ = again.train(data, 0, Control())
    np.testing.assert_array_equal(bag.response(X), same.response(X))


@pytest.mark.parametrize("which", ["linear", "depth", "decay"])
def test_small_models_that_choose_settings_are_trained_at_the_same_time(which, monkeypatch):
    """The first two wait for each other."""
    barrier, calls = Barrier(2), count()
    places = {"decay": (DecayTrial, "_trained"), "linear": (boosting_trials.Trial, "_score")}
    place = places.get(which, places["linear"])
    own = getattr(*place)

    def met(self, *member):
        if next(calls) < 2:
            barrier.wait(30)
        return own(self, *member)

    monkeypatch.setattr(*place, met)
    monkeypatch.setattr(boosting_trials, "MIN_DEPTH_ROWS", 100 if which == "depth" else 10**6)
    X = np.random.default_rng(0).normal(size=(150, 4))
    y = X[:, 0] + np.random.default_rng(1).normal(size=150)
    estimator = ObliqueBoostingRegressor(20, n_bags=1, linear_start=None, random_state=0)
    if which == "depth":
        estimator.set_params(linear_leaves=False)
    if which == "decay":
        estimator = RandomHingeForestRegressor(20, n_bags=2, max_iter=80, random_state=0)
    shared = estimator.set_params(n_jobs=2).fit(X, y)
    assert next(calls) > 2
    monkeypatch.setattr(*place, own)
    alone = clone(estimator).set_params(n_jobs=1).fit(X, y)
    np.testing.assert_array_equal(alone.predict(X), shared.predict(X))


@pytest.mark.skipif(
    sys.platform != "linux"
    or not hasattr(ctypes.CDLL(None), "malloc_trim")
    or "asan" in os.environ.get("LD_PRELOAD", ""),
    reason="memory is returned to the system by the allocator of glibc only",
)
def test_memory_that_a_thread_has_freed_is_returned():
    kept = []

    def allocate():
        arrays = [np.ones(10_000) for _ in range(1000)]
        kept.append(arrays[-1])  # so that the memory before it stays with the thread

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    thread = Thread(target=allocate)
    thread.start()
    thread.join()
    before = resident()
    return_freed_memory()
    assert before - resident() > 0.8 * 8 * 10_000 * 1000


@pytest.mark.parametrize("n_rows, n_calls", [(59, 0), (60, 1)])
def test_memory_is_returned_after_training_on_many_rows(monkeypatch, n_rows, n_calls):
    calls = []
    monkeypatch.setattr(method, "MANY_ROWS", 60)
    monkeypatch.setattr(method, "return_freed_memory", lambda: calls.append(None))
    X = np.arange(n_rows)[:, None]
    small(ManifoldForestRegressor).fit(X, X[:, 0])
    assert len(calls) == n_calls


def test_members_are_trained_in_the_processes_of_multiprocessing():
    X = np.random.default_rng(0).normal(size=(60, 3))
    model = ManifoldForestRegressor(3, random_state=0)
    expected = clone(model).fit(X, X[:, 0]).predict(X)
    with joblib.parallel_config(backend="multiprocessing", n_jobs=2):
        model.fit(X, X[:, 0])
    np.testing.assert_array_equal(model.predict(X), expected)
