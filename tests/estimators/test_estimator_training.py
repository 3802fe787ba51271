"""Training of every estimator: bootstrap samples, warm starts, the same bits, interrupts."""

import _thread
import gc
import pickle
import sys
import threading
import time
import weakref
from collections import Counter

import numpy as np
import pytest
import sklearn
from joblib import parallel_config
from makers import N_ROWS as N
from makers import assert_same_trees, changed, response, targets, task
from numpy.testing import assert_allclose, assert_array_equal
from skforest._kernels.base.rows import tree_seed
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import r2_score
from sklearn.tree import DecisionTreeClassifier

import skforest
from skforest import ManifoldForestClassifier, ManifoldForestRegressor
from skforest.table.matrix import scaled
from skforest.table.training_set import MAX_COPIES, TrainingSet, rescale_weights
from skforest.training import threads

slow = pytest.mark.slow


# ------------------------------------------------------------------- bootstrap, out of bag, growth


def drawn(model, X, y, weight=None):
    """Rows of the training set, and how often each tree drew them, from first principles."""
    codes = np.searchsorted(model.classes_, y) if is_classifier(model) else y
    weight = np.ones(len(X)) if weight is None else weight
    forest = model.forest_
    table = scaled(X, forest.offset, forest.scale) if len(forest.scale) else np.float32(X)
    rows = TrainingSet(table, np.float64(codes).reshape(len(X), -1), weight)
    n_trees = len(model.forest_)
    seeds = [tree_seed(model._seed, tree) for tree in range(n_trees)]
    return rows, [rows.bootstrap(seed, len(rows)) for seed in seeds]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.needs("min_samples_split")
def test_oob_score_by_hand(estimator, weighted):
    X, y = task(estimator)
    X, y = (
        np.concatenate([X, X[:30]]),
        np.concatenate([y, y[:30]]),
    )  # copies
    weight = np.ones(len(X))
    if weighted:
        weight = np.random.default_rng(0).integers(0, 4, len(X)) * 1.0
    estimator.set_params(oob_score=True, n_estimators=40).fit(X, y, weight if weighted else None)
    rows, counts = drawn(estimator, X, y, weight)
    total, n_trees = 0.0, 0
    for tree, count in zip(estimator.forest_, counts):
        out = (count == 0)[:, None]
        of_samples = tree.response(X)
        sample = [np.flatnonzero(rows.row_of_sample == row)[0] for row in range(len(rows))]
        total = total + of_samples[sample] * out
        n_trees = n_trees + out
    assert (n_trees > 0).all()
    expected = np.where(
        rows.row_of_sample[:, None] < 0, np.nan, (total / n_trees)[rows.row_of_sample]
    )
    seen = rows.row_of_sample >= 0
    assert seen.all() != weighted
    if is_classifier(estimator):
        np.testing.assert_allclose(estimator.oob_decision_function_, expected, rtol=1e-6)
        hits = expected[seen].argmax(axis=1) == y[seen]
        score = np.average(hits, weights=weight[seen])
    else:
        np.testing.assert_allclose(estimator.oob_prediction_, expected[:, 0], rtol=1e-5)
        score = r2_score(y[seen], expected[seen, 0], sample_weight=weight[seen])
    assert estimator.oob_score_ == pytest.approx(score, rel=1e-6)
    assert 0.4 < estimator.oob_score_ < estimator.score(X, y)


@pytest.mark.needs("min_samples_split")
def test_oob_score_of_noise_is_chance(classifier):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 4)), rng.integers(0, 2, 200)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    classifier.set_params(oob_score=True, n_estimators=40).fit(X, y)
    assert classifier.score(X, y) > 0.9
    assert 0.35 < classifier.oob_score_ < 0.65


@pytest.mark.needs("min_samples_split")
def test_oob_of_several_outputs(regressor):
    X, y = targets(n_targets=3)
    regressor.set_params(oob_score=True, n_estimators=40).fit(X, y)
    assert regressor.oob_prediction_.shape == y.shape
    assert regressor.oob_score_ == pytest.approx(r2_score(y, regressor.oob_prediction_))


@pytest.mark.needs("min_samples_split")
def test_oob_with_too_few_trees_warns_and_is_nan(estimator):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=1)
    with pytest.warns(UserWarning, match="do not have OOB scores"):
        estimator.fit(X, y)
    name = "oob_decision_function_" if is_classifier(estimator) else "oob_prediction_"
    found = getattr(estimator, name).reshape(len(X), -1)
    _, (count,) = drawn(estimator, X, y)
    assert np.isnan(found).any(axis=1).sum() == (count > 0).sum()
    assert np.isfinite(estimator.oob_score_)


@pytest.mark.needs("oob_score")
def test_oob_without_a_row_that_a_tree_left_out_is_refused(estimator):
    X, y = np.zeros((5, 2)), np.ones(5)  # one distinct row, which all trees draw
    estimator.set_params(oob_score=True, bootstrap=True)
    message = r"oob_score=True: each of the \d+ trees drew all 1 distinct rows, .* max_samples"
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y)
    assert not hasattr(estimator, "forest_") and not hasattr(estimator, "oob_score_")


def test_every_tree_has_a_bootstrap_of_its_own(estimator):
    X, y = task(estimator, 400)
    estimator.fit(X, y)
    _, counts = drawn(estimator, X, y)
    present = np.array(counts) > 0
    np.testing.assert_allclose(present.mean(axis=1), 1 - np.exp(-1), atol=0.08)
    overlap = (present.astype(int) @ present.T.astype(int)) / present.sum(axis=1)
    off = overlap[~np.eye(len(overlap), dtype=bool)]
    assert 0.55 < off.min() and off.max() < 0.71


@pytest.mark.parametrize(
    "value, n_draws", [(None, N), (0.25, 30), (1.0, N), (17, 17), (1, 1), (1e-3, 1)]
)
@pytest.mark.needs("min_samples_split")
def test_max_samples_is_the_number_of_draws(estimator, value, n_draws):
    X, y = task(estimator)
    estimator.set_params(max_samples=value).fit(X, y)
    roots = estimator.forest_.node_weight[estimator.forest_.tree_start[:-1]]
    np.testing.assert_array_equal(roots, np.full(10, n_draws))


@pytest.mark.needs("min_samples_split")
@pytest.mark.parametrize("share, count", [(0.021, 3), (0.05, 6), (1e-9, 1)])
def test_shares_of_rows_are_rounded_up(estimator, share, count):
    X, y = task(estimator)
    estimator.set_params(bootstrap=False, n_estimators=2)
    one = clone(estimator).set_params(min_samples_leaf=share).fit(X, y)
    assert_same_trees(one, clone(estimator).set_params(min_samples_leaf=count).fit(X, y))
    one = clone(estimator).set_params(min_samples_split=share).fit(X, y)
    assert_same_trees(one, clone(estimator).set_params(min_samples_split=max(count, 2)).fit(X, y))


@pytest.mark.needs("projection")
def test_a_decrease_of_impurity_is_a_mean_over_outputs_and_rows(regressor):
    """It depends neither on copies of outputs nor on weights, and has the squared unit of y."""
    X, y = task(regressor)
    own = {"bootstrap": False, "n_estimators": 2, "min_impurity_decrease": 0.05 * y.var()}
    plain = clone(regressor).set_params(**own).fit(X, y)
    assert 2 < plain.forest_.n_leaves[0] < 30
    twice = clone(plain).fit(X, np.stack([y, y], axis=1), np.full(len(y), 4.0))
    np.testing.assert_array_equal(twice.apply(X), plain.apply(X))
    own["min_impurity_decrease"] *= 16
    scaled = clone(regressor).set_params(**own).fit(X, 4 * y)
    np.testing.assert_array_equal(scaled.apply(X), plain.apply(X))


@pytest.mark.needs("min_samples_split")
def test_without_bootstrap_every_tree_sees_all_rows(estimator):
    X, y = task(estimator)
    estimator.set_params(bootstrap=False).fit(X, y)
    roots = estimator.forest_.node_weight[estimator.forest_.tree_start[:-1]]
    np.testing.assert_array_equal(roots, np.full(10, N))
    # Joint training may join leaves that were pure.
    exact = not {"init", "growth"} & set(estimator.get_params())
    assert estimator.score(X, y) == pytest.approx(1, abs=1e-9 if exact else 0.01)


@pytest.mark.every_class
def test_a_second_fit_leaves_nothing_of_the_first(estimator):
    """Of other rows, columns and labels; what few rows are predicted with is made again."""
    X, y = task(estimator)
    other = X[::-2, :4] * 3 + 1
    target = y[::-2] > np.median(y) if is_classifier(estimator) else y[::-2] * 5
    quick = {"n_estimators": 3, "max_iter": 40}
    estimator.set_params(**{k: v for k, v in quick.items() if k in estimator.get_params()})
    fresh = clone(estimator).fit(other, target)
    estimator.fit(X, y)
    response(estimator, X[:1]), estimator.apply(X[:3]), estimator.predictor()(np.float32(X))
    assert estimator.feature_importances_.shape == (6,)
    estimator.fit(other, target)
    for rows in (other[:1], other):
        np.testing.assert_array_equal(response(estimator, rows), response(fresh, rows))
        np.testing.assert_array_equal(estimator.predict(rows), fresh.predict(rows))
        np.testing.assert_array_equal(estimator.apply(rows), fresh.apply(rows))
    np.testing.assert_array_equal(
        estimator.predictor().predict(np.float32(other)), fresh.predict(np.float32(other))
    )
    np.testing.assert_array_equal(estimator.feature_importances_, fresh.feature_importances_)
    assert vars(estimator).keys() == vars(fresh).keys()


@pytest.mark.every_class
def test_the_weight_of_a_node_is_that_of_the_rows_that_reach_it(estimator):
    """Of distinct rows, for boosting, whose rows do not repeat in the tree of a round."""
    X, y = task(estimator)
    weight = np.random.default_rng(0).exponential(size=len(X)) + 0.01
    own = {"bootstrap": False, "subsample": 1.0, "max_iter": 40, "n_estimators": 3}
    own |= {"calibrate": False}  # which holds rows out
    estimator.set_params(**{k: v for k, v in own.items() if k in estimator.get_params()})
    forest = estimator.fit(X, y, weight).forest_
    path, _ = estimator.decision_path(X)
    counts = "subsample" in estimator.get_params()
    expected = path.T @ (np.ones(len(X)) if counts else weight)
    np.testing.assert_allclose(forest.node_weight, expected, rtol=1e-9)


def test_random_state(estimator):
    X, y = task(estimator)

    def trained(state):
        return response(clone(estimator).set_params(random_state=state).fit(X, y), X)

    np.testing.assert_array_equal(trained(3), trained(3))
    assert not np.array_equal(trained(3), trained(4))
    np.testing.assert_array_equal(
        trained(np.random.RandomState(5)), trained(np.random.RandomState(5))
    )
    state = np.random.RandomState(5)
    estimator.set_params(random_state=state)
    first = response(estimator.fit(X, y), X)
    assert not np.array_equal(first, response(estimator.fit(X, y), X))  # the state has changed
    assert not np.array_equal(trained(None), trained(None))


def test_trees_of_a_forest_differ(estimator):
    X, y = task(estimator)
    forest = estimator.fit(X, y).forest_
    seen = Counter(tree.threshold.tobytes() for tree in forest)
    assert len(seen) == len(forest)


# -------------------------------------------------------------------------------------- warm start


@pytest.mark.every_class
@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
@pytest.mark.needs("min_samples_split")
def test_warm_start_gives_the_forest_of_one_fit(estimator):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=30)
    whole = clone(estimator).fit(X, y)
    steps = clone(estimator).set_params(warm_start=True)
    for n_estimators in (12, 13, 30):
        steps.set_params(n_estimators=n_estimators).fit(X, y)
        assert len(steps.forest_) == n_estimators
    assert_same_trees(steps, whole)
    np.testing.assert_array_equal(response(steps, X), response(whole, X))
    assert steps.oob_score_ == whole.oob_score_


@pytest.mark.needs("min_samples_split")
def test_warm_start_with_a_generator_as_random_state(estimator):
    X, y = task(estimator)
    whole = clone(estimator).set_params(random_state=np.random.RandomState(0)).fit(X, y)
    steps = clone(estimator).set_params(random_state=np.random.RandomState(0), warm_start=True)
    for n_estimators in (4, 10):
        steps.set_params(n_estimators=n_estimators).fit(X, y)
    assert_same_trees(steps, whole)


@pytest.mark.needs("min_samples_split")
def test_warm_start_with_fewer_trees(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    before = response(estimator, X)
    with pytest.raises(ValueError, match="n_estimators=4 .*10 .*warm_start"):
        estimator.set_params(n_estimators=4).fit(X, y)
    np.testing.assert_array_equal(response(estimator, X), before)


@pytest.mark.needs("min_samples_split")
def test_warm_start_with_as_many_trees_warns_and_keeps_them(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    before = response(estimator, X)
    with pytest.warns(UserWarning, match="without increasing n_estimators") as warned:
        estimator.fit(X, y)
    assert warned[0].filename == __file__  # not a line of the package, or of its decorators
    # Python drops warnings of code without a name.
    exec("estimator.fit(X, y)", {"estimator": estimator, "X": X, "y": y, "__name__": None})
    np.testing.assert_array_equal(response(estimator, X), before)


@pytest.mark.needs("min_samples_split")
def test_warm_start_refuses_other_data(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    estimator.set_params(n_estimators=12)
    with pytest.raises(ValueError, match="X has 4 features.*expecting 6"):
        estimator.fit(X[:, :4], y)
    if is_classifier(estimator):
        with pytest.raises(ValueError, match="classes.*warm_start"):
            estimator.fit(X, y % 2)
    else:
        with pytest.raises(ValueError, match="2 outputs.*warm_start"):
            estimator.fit(X, np.column_stack([y, y]))
    assert len(estimator.forest_) == 10
    assert estimator.fit(X, y).score(X, y) > 0.8


@pytest.mark.needs("min_samples_split")
def test_warm_start_on_more_data(estimator):
    X, y = task(estimator)
    first = clone(estimator).fit(X[:60], y[:60])
    estimator.set_params(warm_start=True).fit(X[:60], y[:60])
    estimator.set_params(n_estimators=20).fit(X, y)
    assert len(estimator.forest_) == 20
    np.testing.assert_array_equal(estimator.forest_[:10].response(X), first.forest_.response(X))
    assert estimator.score(X[60:], y[60:]) > first.score(X[60:], y[60:])


@pytest.mark.needs("min_samples_split")
def test_warm_start_on_targets_of_another_scale(regressor):
    X, y = targets()
    regressor.set_params(warm_start=True).fit(X, y)
    regressor.set_params(n_estimators=40).fit(X, 1000 * y)
    # 30 trees of the second scale, 10 of the first.
    assert r2_score(750 * y, regressor.predict(X)) > 0.8


def test_without_warm_start_a_second_fit_starts_anew(estimator):
    X, y = task(estimator)
    other_X, other_y = task(estimator, seed=7)
    estimator.fit(other_X[:, :4], other_y).fit(X, y)
    assert_same_trees(estimator, clone(estimator).fit(X, y))


# ----------------------------------------------------------------------------------- the same bits


@pytest.mark.every_class
@pytest.mark.parametrize("n_jobs", [2, pytest.param(4, marks=slow), pytest.param(-1, marks=slow)])
@pytest.mark.needs("min_samples_split")
def test_same_bits_for_every_number_of_threads(estimator, n_jobs):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=30)
    one = clone(estimator).set_params(n_jobs=1).fit(X, y)
    many = clone(estimator).set_params(n_jobs=n_jobs).fit(X, y)
    assert_same_trees(one, many)
    np.testing.assert_array_equal(response(one, X), response(many, X))
    assert one.oob_score_ == many.oob_score_


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_same_bits_for_every_backend(estimator, backend):
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

    `delay` is the processor time that passes until it arrives.

    Python drops an interrupt that arrives in a finaliser or in a callback from C; another one
    follows every 20 seconds.
    """

    def __init__(self, after):
        self.after = after
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.fire)
        self.fired = None

    def fire(self):
        wait = self.after
        while not self.ended.wait(wait):
            self.fired = time.process_time()
            _thread.interrupt_main()
            wait = 20

    def __enter__(self):
        # No object of an earlier test shall be finalised in the block.
        gc.collect()
        gc.disable()
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        arrived = time.process_time()
        self.ended.set()
        self.thread.join()
        gc.enable()
        assert kind is KeyboardInterrupt, f"fit ended with {kind}, not with the interrupt"
        self.delay = arrived - self.fired
        return True


def long_fit(estimator, shape):
    """An estimator and data that keep a processor busy for a long time."""
    rng = np.random.default_rng(0)
    if shape == "many trees":
        X = rng.standard_normal((1000, 6))
        estimator.set_params(n_estimators=20000)
    else:
        X = rng.standard_normal((60000, 6)).astype(np.float32)
        slow = {"splitter": "exact", "max_features": 300, "n_epochs": 10**6}
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
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("shape", ["many trees", "long trees"])
@pytest.mark.needs("min_samples_split")
def test_an_interrupted_fit_ends_soon_and_changes_nothing(estimator, shape, n_jobs):
    estimator, X, y = long_fit(estimator, shape)
    estimator.set_params(n_jobs=n_jobs)
    before = vars(estimator).copy()
    with Interrupt(0.4) as interrupt:
        estimator.fit(X, y)
    assert interrupt.delay < 3
    assert vars(estimator) == before
    assert comes_to_rest(5), "threads continue to grow trees"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("n_jobs", [pytest.param(1, marks=slow), 2])
@pytest.mark.needs("min_samples_split")
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


@pytest.mark.needs("min_samples_split")
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


@pytest.mark.parametrize(
    "estimator",
    [
        skforest.ObliqueBoostingClassifier(random_state=0),
        skforest.ObliqueBoostingClassifier(n_bags=1, random_state=0),
        skforest.ObliqueBoostingRegressor(random_state=0),
        skforest.RandomHingeForestClassifier(random_state=0),
        skforest.RandomHingeForestClassifier(
            random_state=0, procedure=skforest.HingeProcedure(early_stopping=True)
        ),
        skforest.BlendedForestClassifier(
            [skforest.ObliqueBoostingClassifier(100, n_bags=2), ManifoldForestClassifier(20)],
            random_state=0,
        ),
    ],
    ids=["bags", "one bag", "regressor", "hinge", "hinge, early stopping", "blend"],
)
@pytest.mark.parametrize("n_features", [2, 3])
def test_copies_of_rows_are_held_out_one_by_one(estimator, n_features):
    """The copies of a row are one row: without it, its X would have the other labels only."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, size=(3000, n_features)).astype(float)
    truth = 1 / (1 + np.exp(1.5 - X[:, 0] - 1.5 * (X[:, 1] == X[:, -1])))
    y = (rng.random(3000) < truth).astype(int)
    model = estimator.fit(X, y)
    found = model.predict_proba(X)[:, 1] if is_classifier(model) else model.predict(X)
    assert np.sqrt(np.mean((found - truth) ** 2)) < 0.4 * truth.std()


@pytest.mark.parametrize(
    "estimator",
    [
        skforest.ObliqueBoostingClassifier(20, random_state=0),
        skforest.RandomHingeForestClassifier(5, n_bags=2, max_iter=50, random_state=0),
        skforest.BlendedForestClassifier(
            [skforest.CO2ForestClassifier(10), ManifoldForestClassifier(10)], random_state=0
        ),
    ],
    ids=["boosting", "hinge", "blend"],
)
def test_weights_are_copies_of_rows_with_several_targets(estimator):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(300, 3)).astype(float)
    y = (rng.random(300) < 0.2 + 0.25 * X[:, 0]).astype(int)
    rows, weight = np.unique(np.c_[X, y], axis=0, return_counts=True)
    expected = estimator.fit(X, y).predict_proba(X)
    found = estimator.fit(rows[:, :3], rows[:, 3], sample_weight=weight).predict_proba(X)
    assert_array_equal(found, expected)


def test_members_of_other_packages_see_other_copies_of_a_row():
    """A blend that holds out all copies of a row would prefer the member that knows no feature."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(400, 3)).astype(float)
    y = (rng.random(400) < 0.2 + 0.6 * X[:, 0]).astype(int)
    members = [("none", DummyClassifier()), ("tree", DecisionTreeClassifier())]
    blend = skforest.BlendedForestClassifier(members, random_state=0).fit(X, y)
    assert blend.weights_["tree"] > 0.7


@pytest.mark.every_class
def test_a_factor_of_all_weights_has_no_effect(estimator):
    X, y = task(estimator, 60)
    expected = response(estimator.fit(X, y), X)
    for factor in (0.1, 3.0, 1e7):
        weighted = estimator.fit(X, y, sample_weight=np.full(60, factor))
        assert_array_equal(response(weighted, X), expected)
    assert_array_equal(response(estimator.fit(np.tile(X, (3, 1)), np.tile(y, 3)), X), expected)
    weight = 2 + np.arange(60) % 3
    expected = response(estimator.fit(X, y, sample_weight=weight), X)
    assert_array_equal(response(estimator.fit(X, y, sample_weight=weight / 7), X), expected)


@pytest.mark.parametrize("weight, expected", [
    ([0.1, 0.1 + 0.2, 0, 0.7], [1, 3, 0, 7]),
    ([1e300, 1.5e300], [2, 3]),
    ([6, 9], [2, 3]),
    ([1, np.pi, 7], [1, np.pi, 7]),
    ([2.0**-90, np.pi * 2.0**-90], [0.25, np.pi / 4]),
    ([1, 2.0**40], [1, 2.0**40]),
])  # fmt: skip
def test_weights_are_whole_multiples_where_they_can_be(weight, expected):
    assert_array_equal(rescale_weights(np.array(weight, dtype=float)), expected)


def test_copies_of_rows_with_several_targets():
    X = np.array([[0], [0], [0], [1], [1], [2], [2]], dtype=np.uint8)
    y = np.array([0, 0, 1, 0, 0, 1, 0])[:, None].astype(float)
    for unit in (1, 0.1):
        data = TrainingSet(X, y, unit * np.array([1, 2, 1, 1, 1, 1, 300.0]))
        copies, row = data.in_copies()
        assert_array_equal(copies.y[:, 0], data.y[row, 0])
        assert_array_equal(copies.X, data.X[row])
        assert_allclose(np.bincount(row, copies.weight), data.weight)
        # Weights of classes are not copies.
        weighted, other_row = data.with_weight(data.weight * (1 + 1.5 * data.y[:, 0])).in_copies()
        assert_array_equal(other_row, row)
        # In a unit in which they are whole.
        assert_allclose(weighted.weight, 2 * copies.weight * (1 + 1.5 * copies.y[:, 0]))
        assert {(*x, *t): n for x, t, n in zip(data.X, data.y, np.bincount(row))} == {
            (0, 0): 3, (0, 1): 1, (1, 0): 1, (2, 0): MAX_COPIES, (2, 1): 1,
        }  # fmt: skip
    unique, row = TrainingSet(X[:3], y[:3] * 0, np.ones(3)).in_copies()
    assert len(unique) == len(row) == 1


@pytest.mark.parametrize("unit", [1, 3, 2.0**-900])
def test_copies_of_rows_that_repeat(unit):
    """Those of a random sample are held out one by one; weights that say how much rows matter
    are not copies."""
    rng = np.random.default_rng(0)
    X, y = np.arange(400, dtype=np.float32)[:, None], rng.integers(0, 2, size=(400, 1)) * 1.0
    ones = np.full(400, float(unit))

    def numbers(weight, y=y, **options):
        data = TrainingSet(X, y, weight)
        copies, row = data.in_copies(**options)
        found = np.bincount(row)
        assert_array_equal(np.bincount(row, copies.weight), data.weight)
        assert_array_equal(copies.X, data.X[row])
        return found[np.argsort(data.X[:, 0])]

    repeated = ones * np.where(rng.random(400) < 0.2, rng.integers(2, 5, size=400), 1)
    expected = repeated / unit
    assert_array_equal(numbers(repeated), expected)
    assert_array_equal(numbers(repeated, y=rng.normal(size=(400, 1))), expected)  # real targets
    assert numbers(np.where(X[:, 0] == 7, 300 * unit, repeated))[7] == MAX_COPIES
    assert (numbers(repeated, also_repeated=False) == 1).all()
    # The second class has more weight, even if it is rare.
    for rare in (0.1, 0.01):
        label = (rng.random((400, 1)) < rare) * 1.0
        weight = np.where(label[:, 0] == 1, 5 * unit, repeated)
        assert_array_equal(numbers(weight, y=label), np.where(label[:, 0] == 1, 1, expected))
    for weight in (
        ones,
        ones * rng.integers(1, 5, size=400),
        np.where(np.arange(400) == 3, 1e30 * unit, repeated),  # more than a table has
        repeated * np.where(np.arange(400) == np.argmin(repeated), 1.5, 1),
        unit * np.bincount(rng.integers(0, 400, 400), minlength=400),  # a bootstrap sample
    ):
        used = weight > 0
        assert (numbers(weight)[: used.sum()] == 1).all()


@pytest.mark.parametrize("given", [False, True])
def test_samples_of_rows_that_occur_often_keep_the_frequencies_of_targets(given):
    """Without held-out rows, too; a sample of four rows would often be without one of them."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(1000, 1)).astype(float)
    y = (rng.random(1000) < 0.12 + 0.41 * X[:, 0]).astype(int)
    expected = [y[X[:, 0] == value].mean() for value in (0, 1)]
    model = skforest.ObliqueBoostingClassifier(100, early_stopping=given, random_state=0)
    model.fit(X, y, **({"X_val": X, "y_val": y} if given else {}))
    assert_allclose(model.predict_proba([[0.0], [1.0]])[:, 1], expected, atol=0.02)


def test_weights_of_classes_do_not_change_what_is_a_copy():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(90, 6)).astype(float)
    y = (rng.random(90) < 0.3 + 0.4 * X[:, 0]).astype(int)
    weight = np.where(rng.random(90) < 0.9, 1, 50)
    row = np.repeat(np.arange(90), weight)
    model = skforest.ObliqueBoostingClassifier(10, class_weight="balanced", random_state=0)
    expected = model.fit(X[row], y[row]).predict_proba(X)
    assert_array_equal(model.fit(X, y, sample_weight=weight).predict_proba(X), expected)


@pytest.mark.parametrize(
    "estimator",
    [
        skforest.ObliqueBoostingRegressor(5, random_state=0),
        skforest.RandomHingeForestRegressor(
            2,
            loss="quantile",
            max_iter=50,
            random_state=0,
            procedure=skforest.HingeProcedure(early_stopping=True),
        ),
        skforest.BlendedForestRegressor(
            [
                (
                    "hinge",
                    skforest.RandomHingeForestRegressor(
                        2, loss="quantile", max_iter=20, random_state=0
                    ),
                ),
                ("manifold", ManifoldForestRegressor(4, random_state=0)),
            ],
            random_state=0,
        ),
    ],
    ids=["boosting", "quantiles", "blend"],
)
def test_copies_of_copies_are_not_made(estimator):
    """Where rows are held out twice, for early stopping and for a choice or a calibration."""
    rng = np.random.default_rng(30)
    X = rng.normal(size=(100, 4)).astype(np.float32)
    y = X.sum(axis=1) + rng.normal(size=100)
    weight = np.where(rng.random(100) < 0.9, 1, 250)
    row = np.repeat(np.arange(100), weight)
    expected = estimator.fit(X[row], y[row]).predict(X)
    assert_array_equal(estimator.fit(X, y, sample_weight=weight).predict(X), expected)
    assert_array_equal(estimator.fit(X, y, sample_weight=32 * weight).predict(X), expected)
    data = TrainingSet(X, y[:, None], 32.0 * weight)
    once, _ = data.in_copies()
    twice, row = once.in_copies()
    assert len(row) == len(twice) == len(once) > len(data)


def test_rows_that_repeat_are_learned():
    """Held-out copies show that what is noise for other rows can be known."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    drawn = np.concatenate([np.arange(600), rng.integers(0, 600, 190)])
    new = rng.integers(0, 600, 300)
    model = skforest.ObliqueBoostingClassifier(300, n_bags=2, random_state=0)
    once, n_rounds = model.fit(X, y).score(X[new], y[new]), sum(model.n_iter_)
    assert model.fit(X[drawn], y[drawn]).score(X[new], y[new]) > once + 0.05
    assert sum(model.n_iter_) > 2 * n_rounds


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


# -------------------------------------------------------------------------------------- outliers


@pytest.mark.every_class
def test_wrong_values_do_not_erase_a_column(regressor):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = X[:, 0] + X[:, 1] ** 2
    train, test = slice(0, 300), slice(300, 600)
    clean = regressor.fit(X[train], y[train]).score(X[test], y[test])
    for rows, value in ((5, 1000.0), (5, -(2.0**31)), (slice(0, 300, 50), -999.0)):
        wrong = X.copy()
        wrong[rows, 1] = value
        assert regressor.fit(wrong[train], y[train]).score(X[test], y[test]) > clean - 0.15, value


# ------------------------------------------------------------------------------------ time limits

ENDLESS = {"n_estimators": 10**6, "max_iter": 10**8, "early_stopping": False}


@pytest.mark.every_class
def test_training_ends_in_time(estimator):
    """With what is trained by then, at least one tree, and a warning that says so."""
    own = {name: value for name, value in ENDLESS.items() if name in estimator.get_params()}
    if "max_iter" in own:
        del own["n_estimators"]  # those of a bag
    X, y = task(estimator)
    start = time.perf_counter()
    with pytest.warns(UserWarning, match=r"time_limit=0.1: .*\d of \d+ (trees|rounds|steps)"):
        model = estimator.set_params(time_limit=0.1, **own).fit(X, y)
    assert time.perf_counter() - start < 10
    assert len(model.forest_) >= 1 and np.isfinite(response(model, X)).all()
    assert "_time_limit" not in vars(model)


def test_a_limit_that_is_not_reached_changes_nothing(estimator):
    X, y = task(estimator)
    free = clone(estimator).fit(X, y)
    assert_same_trees(estimator.set_params(time_limit=600).fit(X, y), free)


def test_the_trees_that_a_limit_left_out_are_added_later():
    X, y = targets()
    model = ManifoldForestRegressor(30, warm_start=True, random_state=0)
    with pytest.warns(UserWarning, match="time_limit=1e-09: 1 of 30 trees"):
        model.set_params(time_limit=1e-9).fit(X, y)
    whole = clone(model).set_params(time_limit=None).fit(X, y)
    assert_same_trees(model.set_params(time_limit=None).fit(X, y), whole)
