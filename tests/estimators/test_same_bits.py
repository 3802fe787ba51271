"""Every estimator gives the same bits in any number of threads, and leaves the rest alone."""

import _thread
import gc
import pickle
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import sklearn
from joblib import parallel_config
from makers import assert_same_trees, changed, response, task
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

from skforest import ManifoldForestRegressor
from skforest.table.training_set import TrainingSet
from skforest.training import threads, trials

slow = pytest.mark.slow

# ----------------------------------------------------------------------------------- the same bits


@pytest.mark.every_class
@pytest.mark.parametrize("n_jobs", [2, pytest.param(4, marks=slow), pytest.param(-1, marks=slow)])
@pytest.mark.needs("min_weight_fraction_leaf")
def test_same_bits_for_every_number_of_threads(estimator, n_jobs):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=30)
    one = clone(estimator).set_params(n_jobs=1).fit(X, y)
    many = clone(estimator).set_params(n_jobs=n_jobs).fit(X, y)
    assert_same_trees(one, many)
    np.testing.assert_array_equal(response(one, X), response(many, X))
    assert one.oob_score_ == many.oob_score_


@pytest.mark.thin(2)
@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_same_bits_for_every_backend(estimator, backend, monkeypatch):
    monkeypatch.setattr(trials, "IMPORTANCE_TREES", 50)  # as in other processes
    X, y = task(estimator)
    many = np.tile(X, (60, 1))
    one = clone(estimator).fit(X, y)
    with parallel_config(backend, n_jobs=2):
        other = clone(estimator).fit(X, y)
        predicted = response(other, many)
    assert_same_trees(one, other)
    np.testing.assert_array_equal(predicted, response(one, many))


@pytest.mark.every_class
def test_same_bits_for_every_block_of_rows(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    whole = response(estimator, X)
    leaves = estimator.apply(X)
    for size in (1, 7):
        blocks = [X[start : start + size] for start in range(0, len(X), size)]
        found = np.concatenate([response(estimator, block) for block in blocks])
        np.testing.assert_array_equal(found, whole)
        found = np.concatenate([estimator.apply(block) for block in blocks])
        np.testing.assert_array_equal(found, leaves)


@pytest.mark.needs("projection")
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_same_bits_for_every_block_of_rows_with_patches(estimator, shape):
    X, y = task(estimator)
    changed(estimator, feature_shape=shape, max_patch=shape, wrap=True)
    for table in (X, np.rint(20 * X + 128).clip(0, 255).astype(np.uint8)):
        whole = response(estimator.fit(table, y), table)
        for size in (1, 7):
            blocks = [table[start : start + size] for start in range(0, len(X), size)]
            found = np.concatenate([response(estimator, block) for block in blocks])
            np.testing.assert_array_equal(found, whole)


def test_same_bits_for_many_rows_in_threads(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    many = np.random.default_rng(0).standard_normal((9001, 6))
    whole = response(estimator, many)
    leaves = estimator.apply(many)
    for n_jobs in (2, 4):
        estimator.set_params(n_jobs=n_jobs)
        np.testing.assert_array_equal(response(estimator, many), whole)
        np.testing.assert_array_equal(estimator.apply(many), leaves)
    np.testing.assert_array_equal(response(estimator, many[5000:5001]), whole[5000:5001])


def test_rows_that_are_not_finite_are_refused_in_threads():
    X = np.random.default_rng(0).standard_normal((9001, 6))
    model = ManifoldForestRegressor(2, max_depth=2, random_state=0).fit(X, X[:, 0])
    whole = model.predict(X)
    with sklearn.config_context(assume_finite=True):
        np.testing.assert_array_equal(model.predict(X), whole)
    X[8000, 3] = np.inf
    for n_jobs in (1, 2):
        with pytest.raises(ValueError, match="X contains infinity.*in column 3"):
            model.set_params(n_jobs=n_jobs).predict(X)
    with sklearn.config_context(assume_finite=True):
        np.testing.assert_array_equal(model.predict(X)[:8000], whole[:8000])


def test_an_error_in_a_thread_is_raised_once_all_have_ended():
    done, n_threads = [], threading.active_count()

    def invert(number):
        done.append(number)
        return 1 / number

    assert threads.in_threads(invert, [1, 2, 4], 2) == [1, 0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        threads.in_threads(invert, [0] * 1000, 3)
    assert len(done) < 10
    assert threading.active_count() == n_threads


@pytest.mark.parametrize("layout", ["F", "strided", "reversed", "read-only", "big-endian"])
def test_same_bits_for_every_layout(estimator, layout):
    X, y = task(estimator)
    other = {
        "F": lambda: np.asfortranarray(X),
        "strided": lambda: np.repeat(X, 2, axis=1)[:, ::2],
        "reversed": lambda: X[::-1].copy()[::-1],
        "read-only": lambda: X.copy(),
        "big-endian": lambda: X.astype(">f8"),
    }[layout]()
    other.flags.writeable = layout != "read-only"
    one, two = clone(estimator).fit(X, y), clone(estimator).fit(other, y)
    assert_same_trees(one, two)
    np.testing.assert_array_equal(response(one, X), response(two, other))


@pytest.mark.every_class
def test_input_is_left_alone(estimator):
    X, y = task(estimator)
    X, weight = X.astype(np.float32), np.ones(len(X))
    before = X.copy(), y.copy(), weight.copy()
    estimator.fit(X, y, sample_weight=weight)
    kept = response(estimator, X)
    for array, old in zip((X, y, weight), before):
        np.testing.assert_array_equal(array, old)
    X[:] = 0  # the fitted model does not read the training data
    np.testing.assert_array_equal(response(estimator, before[0]), kept)


# -------------------------------------------------------------------------------------- interrupts


class Interrupt:
    """Sends an interrupt, as Ctrl-C does, `after` seconds into the block; expects it to arrive.

    Python drops an interrupt that arrives in a finaliser or in a callback from C; another one
    follows every 20 seconds.
    """

    def __init__(self, after):
        self.after = after
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.fire)

    def fire(self):
        wait = self.after
        while not self.ended.wait(wait):
            _thread.interrupt_main()
            wait = 20

    def __enter__(self):
        # No object of an earlier test shall be finalised in the block.
        gc.collect()
        gc.disable()
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        self.ended.set()
        self.thread.join()
        gc.enable()
        assert kind is KeyboardInterrupt, f"fit ended with {kind}, not with the interrupt"
        return True


def long_fit(estimator, shape):
    """An estimator and data that keep a processor busy for a long time."""
    rng = np.random.default_rng(0)
    if shape == "many trees":
        X = rng.standard_normal((1000, 6))
        estimator.set_params(n_estimators=20000)
    else:
        X = rng.standard_normal((200_000, 6)).astype(np.float32)
        slow = {"splitter": "exact", "max_features": 300, "n_epochs": 10**6}
        slow |= {"greedy_epochs": 1000, "finetune_epochs": 1000}
        known = {name: value for name, value in slow.items() if name in estimator.get_params()}
        estimator.set_params(n_estimators=2, bootstrap=False, **known)
    noise = rng.standard_normal(len(X))
    return estimator, X, noise > 0 if is_classifier(estimator) else noise


def comes_to_rest(seconds):
    """Do all threads of this process stop computing within some seconds?

    Their number would not tell: an interrupt that arrives while Python makes a pool of threads
    leaves some that wait for work forever.
    """
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        busy = time.process_time()
        time.sleep(0.1)
        if time.process_time() - busy < 0.01:
            return True
    return False


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    "shape, n_jobs",
    [
        ("many trees", 2),
        ("long trees", 1),
        pytest.param("many trees", 1, marks=slow),
        pytest.param("long trees", 2, marks=slow),
    ],
)
@pytest.mark.needs("min_weight_fraction_leaf")
def test_an_interrupted_fit_ends_soon_and_changes_nothing(estimator, shape, n_jobs):
    estimator, X, y = long_fit(estimator, shape)
    estimator.set_params(n_jobs=n_jobs)
    before = vars(estimator).copy()
    with Interrupt(0.4):
        estimator.fit(X, y)
    assert vars(estimator) == before
    assert comes_to_rest(5), "threads continue to grow trees"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("n_jobs", [pytest.param(1, marks=slow), 2])
@pytest.mark.needs("min_weight_fraction_leaf")
def test_an_interrupted_fit_leaves_the_fitted_model(estimator, n_jobs):
    X, y = task(estimator)
    estimator.fit(X, y)
    expected = response(estimator, X)
    estimator, long_X, long_y = long_fit(estimator, "many trees")
    estimator.set_params(n_jobs=n_jobs)
    before = vars(estimator).copy()
    with Interrupt(0.3):
        estimator.fit(long_X[:, :5], long_y)
    assert vars(estimator) == before
    np.testing.assert_array_equal(response(estimator, X), expected)
    estimator.set_params(warm_start=True)
    with Interrupt(0.3):
        estimator.fit(X, y)
    assert vars(estimator) == {**before, "warm_start": True}
    np.testing.assert_array_equal(response(estimator, X), expected)


# ------------------------------------------------------------------------------ size, global state


@pytest.mark.needs("projection")
def test_a_pickle_is_small(classifier):
    X, y = load_digits(return_X_y=True)
    model = clone(classifier).fit(X, y)
    reference = RandomForestClassifier(10, random_state=0).fit(X, y)
    size = len(pickle.dumps(model))
    assert size < len(pickle.dumps(reference)) / 4
    model.predict(X)
    assert len(pickle.dumps(model)) == size  # nothing is cached along


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_pure_leaves_take_no_memory_for_the_other_classes(classifier):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 3))
    few = len(pickle.dumps(clone(classifier).fit(X, np.arange(1000) % 500)))
    many = len(pickle.dumps(clone(classifier).fit(X, np.arange(1000))))
    assert many < 3 * few


@pytest.mark.needs("min_weight_fraction_leaf")
def test_no_global_state(estimator):
    X, y = task(estimator)
    other_X, other_y = task(estimator, 80, seed=5)
    a = clone(estimator).fit(X, y)
    b = clone(estimator).set_params(random_state=1).fit(other_X[:, :4], other_y)
    one = clone(a).set_params(warm_start=True)
    two = clone(b).set_params(warm_start=True)
    for n_estimators in (3, 7, 10):
        one.set_params(n_estimators=n_estimators).fit(X, y)
        two.set_params(n_estimators=n_estimators).fit(other_X[:, :4], other_y)
        response(one, X), response(two, other_X[:, :4])
    assert_same_trees(one, a)
    assert_same_trees(two, b)


@pytest.mark.every_class
def test_random_numbers_of_the_user_are_left_alone(estimator):
    X, y = task(estimator)
    np.random.seed(0)  # noqa: NPY002
    expected = np.random.random(5)  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    estimator.fit(X, y)
    response(estimator, X)
    np.testing.assert_array_equal(np.random.random(5), expected)  # noqa: NPY002


def in_threads(work, n):
    threads = [threading.Thread(target=work, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_estimators_in_threads_of_the_user(estimator):
    X, y = task(estimator, 400)
    alone = [clone(estimator).set_params(random_state=s).fit(X, y) for s in range(4)]
    models = [clone(estimator).set_params(random_state=s) for s in range(4)]
    in_threads(lambda k: models[k].fit(X, y), 4)
    for model, other in zip(models, alone):
        assert_same_trees(model, other)


def test_one_model_predicts_in_many_threads(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    many = np.tile(X, (20, 1))
    expected = response(estimator, many)
    found = {}
    in_threads(lambda k: found.update({k: response(estimator, many)}), 4)
    for k in range(4):
        np.testing.assert_array_equal(found[k], expected)


def test_floating_point_mode_is_left_alone(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    smallest = np.float32(1e-45)
    assert smallest > 0 and smallest / np.float32(1) == smallest
    assert np.float64(sys.float_info.min) / 2 > 0  # no flush to zero


@pytest.mark.every_class
def test_training_rows_are_freed_with_the_last_reference(estimator, monkeypatch):
    """Rows in a cycle of references would remain in memory until the next garbage collection."""
    made, init = [], TrainingSet.__init__

    def remembered(data, *args, **kwargs):
        init(data, *args, **kwargs)
        made.append(weakref.ref(data))

    monkeypatch.setattr(TrainingSet, "__init__", remembered)
    gc.collect()
    gc.disable()
    try:
        estimator.fit(*task(estimator))
        assert made
        assert not any(data() is not None for data in made)
    finally:
        gc.enable()
