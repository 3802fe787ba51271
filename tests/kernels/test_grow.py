"""Whole trees, against scikit-learn's and against what must hold for any tree."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from forests import grow, make_training_set
from skforest._kernels.search.projection import BoxSampler, SparseSampler
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_friedman1,
)
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skforest.training.growing import GrowingMethod


def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400].astype(np.uint8), y[:400]


def tables():
    """Name to (X, target): classes, one column, three columns."""
    friedman = make_friedman1(250, 8, noise=1.0, random_state=0)
    diabetes = load_diabetes(return_X_y=True)
    three = np.stack([diabetes[1], diabetes[1] ** 0.5, diabetes[0][:, 2]], axis=1)
    return {
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
        "cancer": load_breast_cancer(return_X_y=True),
        "digits": digits(),
        "friedman": (friedman[0], friedman[1][:, None]),
        "diabetes": (diabetes[0], three / three.std(axis=0)),
    }


TABLES = tables()


def is_class(target):
    return target.ndim == 1


def as_matrix(target):
    return oracles.one_hot(target, target.max() + 1) if is_class(target) else target


def table(name, seed=0):
    """X, target, and random weights, which leave no two different partitions with equal gains.

    The weights are whole, so that scikit-learn sees that pure nodes are pure.
    """
    X, target = TABLES[name]
    if X.dtype != np.uint8:
        X = X.astype(np.float32)
    if not is_class(target):
        target = target - target.mean(axis=0)
    return X, target, random_weight(len(X), seed)


def random_weight(n, seed=0):
    return np.random.default_rng(seed).integers(5000, 15000, size=n).astype(float)


def their_tree(X, target, weight, criterion=None, **options):
    if is_class(target):
        model = DecisionTreeClassifier(criterion=criterion or "gini", random_state=0, **options)
    else:
        model = DecisionTreeRegressor(random_state=0, **options)
    return model.fit(X, target, sample_weight=weight)


def their_decrease(model):
    """Sum over splits of the decrease of weight times impurity, in our units."""
    tree = model.tree_
    mass = tree.weighted_n_node_samples * tree.impurity
    split = tree.children_left >= 0
    total = mass[split].sum() - mass[tree.children_left[split]].sum()
    total -= mass[tree.children_right[split]].sum()
    return total * tree.n_outputs  # scikit-learn averages squared errors over outputs


def assert_same_partition(one, other):
    """Two labellings of the rows part them into the same sets."""
    pairs = np.unique(np.stack([one, other]), axis=1).shape[1]
    assert pairs == len(np.unique(one)) == len(np.unique(other))


def assert_same_tree(X, target, ours, theirs):
    assert ours.n_leaves[0] == theirs.get_n_leaves()
    assert ours.max_depth[0] == theirs.get_depth()
    assert_same_partition(ours.apply(X)[:, 0], theirs.apply(X.astype(np.float32)))
    predict = theirs.predict_proba if is_class(target) else theirs.predict
    expected = predict(X.astype(np.float32)).reshape(len(X), -1)
    np.testing.assert_allclose(ours.response(X), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ours.gain.sum(dtype=float), their_decrease(theirs), rtol=1e-5)


# ------------------------------------------------------------------------- against scikit-learn


@pytest.mark.parametrize("max_leaves", [0, 10**6])
@pytest.mark.parametrize("name", TABLES)
def test_full_trees_are_those_of_scikit_learn(name, max_leaves):
    X, target, weight = table(name)
    ours = grow(X, target, weight, max_leaves=max_leaves)
    assert_same_tree(X, target, ours, their_tree(X, target, weight))
    assert ours.n_leaves[0] > 5


@pytest.mark.parametrize("name", ["iris", "wine", "cancer", "digits"])
def test_trees_by_entropy_are_those_of_scikit_learn(name):
    X, target, weight = table(name, seed=1)
    ours = grow(X, target, weight, criterion="entropy")
    theirs = their_tree(X, target, weight, "entropy")
    assert_same_tree(X, target, ours, theirs)


@pytest.mark.parametrize(
    "option, value",
    [
        ("max_depth", 1),
        ("max_depth", 3),
        ("min_samples_split", 20),
        ("min_samples_leaf", 4),
        ("min_samples_leaf", 30),
        ("min_weight_fraction_leaf", 0.01),
        ("min_weight_fraction_leaf", 0.2),
        ("max_leaf_nodes", 2),
        ("max_leaf_nodes", 7),
        ("max_leaf_nodes", 15),
    ],
)
@pytest.mark.parametrize("name", ["wine", "cancer", "digits", "diabetes"])
def test_limited_trees_are_those_of_scikit_learn(name, option, value):
    X, target, weight = table(name, seed=2)
    ours_option = {
        "max_depth": "max_depth",
        "min_samples_split": "min_split",
        "min_samples_leaf": "min_samples_leaf",
        "min_weight_fraction_leaf": "min_weight_leaf",
        "max_leaf_nodes": "max_leaves",
    }[option]
    ours_value = value * weight.sum() if ours_option == "min_weight_leaf" else value
    ours = grow(X, target, weight, **{ours_option: ours_value})
    theirs = their_tree(X, target, weight, **{option: value})
    assert_same_tree(X, target, ours, theirs)


@pytest.mark.parametrize("max_leaves", [0, 10**6])
@pytest.mark.parametrize("criterion", ["gini", "entropy", "squared_error"])
def test_trees_with_a_smallest_gain_are_those_of_scikit_learn(criterion, max_leaves):
    """min_gain is theirs times the total weight, and the number of outputs."""
    X, target, weight = table("diabetes" if criterion == "squared_error" else "cancer", seed=3)
    n_outputs = 3 if criterion == "squared_error" else 1
    for share in (0.001, 0.01, 0.05):
        ours = grow(
            X, target, weight, criterion=criterion, max_leaves=max_leaves,
            min_gain=share * weight.sum() * n_outputs,
        )  # fmt: skip
        theirs = their_tree(X, target, weight, criterion, min_impurity_decrease=share)
        assert_same_tree(X, target, ours, theirs)


@pytest.mark.parametrize("name", ["iris", "digits", "friedman"])
def test_with_equal_weights_every_split_is_a_best_one(name):
    """Ties may fall otherwise than in scikit-learn, but no node could gain more."""
    X, target, _ = table(name)
    X, target = X[::2], target[::2]
    weight = np.ones(len(X))
    criterion = "gini" if is_class(target) else "squared_error"
    ours = grow(X, target)
    reach, _ = oracles.walk(ours, 0, X)
    Y = as_matrix(target)
    for node in np.flatnonzero(ours.child > 0):
        rows = reach[:, node] > 0
        best = max(
            oracles.best_gain(column, Y[rows], weight[rows], criterion) for column in X[rows].T
        )
        found = ours.gain[(ours.child[node] - 1) // 2]
        assert found == pytest.approx(best, rel=1e-5, abs=1e-5)
    theirs = their_tree(X, target, weight)
    np.testing.assert_allclose(ours.predict(X).ravel(), theirs.predict(X).ravel(), atol=1e-4)


# ------------------------------------------------------------------------- best and depth first


@pytest.mark.parametrize(
    "dtype, n, p", [(np.float32, 300, 10), (np.float32, 2500, 100), (np.uint8, 1500, 700)]
)
@pytest.mark.parametrize("exact", [True, False])
def test_best_first_without_limit_is_depth_first(dtype, n, p, exact):
    """In tables that fit the packed copy of a subtree, and in larger ones."""
    rng = np.random.default_rng(0)
    X = np.zeros((n, p), dtype=dtype)
    X[:, :6] = (
        40 * rng.random(size=(n, 6)) if dtype == np.float32 else rng.integers(256, size=(n, 6))
    )
    X[:, p - 1] = X[:, 0]
    target = (X[:, 0].astype(float) * X[:, 1] > np.median(X[:, 0].astype(float) * X[:, 1])) * 1
    target[rng.random(n) < 0.05] = 2
    weight = random_weight(n)
    depth = grow(X, target, weight, exact=exact)
    best = grow(X, target, weight, exact=exact, max_leaves=10**6)
    np.testing.assert_array_equal(depth.predict(X), target)
    np.testing.assert_array_equal(best.predict(X), target)
    assert_same_partition(depth.apply(X)[:, 0], best.apply(X)[:, 0])
    assert sorted(depth.gain) == sorted(best.gain)


def test_best_first_takes_the_largest_gain_next():
    X, target, weight = table("cancer")
    full = grow(X, target, weight)
    for n_leaves in (3, 5, 9):
        tree = grow(X, target, weight, max_leaves=n_leaves)
        assert tree.n_leaves[0] == n_leaves
        # Greedy among the open nodes: no split left out, with its parent made, gains more.
        more = grow(X, target, weight, max_leaves=n_leaves + 1)
        assert tree.gain.tolist() == more.gain[:-1].tolist()
        assert set(more.gain) <= set(full.gain)


# ---------------------------------------------------------------------------- what always holds


def samplers():
    low, high = np.ones(2, dtype=np.int32), np.full(2, 4, dtype=np.int32)
    return {
        "axis": None,
        "sparse": SparseSampler(64, 3.0, False, np.ones(64, dtype=np.float32)),
        "patch": BoxSampler((8, 8), (False, True), (False, False), low, high, "mix", False),
        "channels": BoxSampler((8, 8), (False, False), (True, False), low, high, "edge", True),
    }


GRIDS = {
    "patch": {"feature_shape": (8, 8), "wrap": (False, True)},
    "channels": {"feature_shape": (8, 8), "unordered": (True, False)},
}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("name", samplers())
def test_what_holds_for_every_tree(name, exact, dtype):
    """Pure leaves; weights and values of the rows that arrive; gains of the rows that part."""
    X, target = digits()
    X = X.astype(dtype)
    weight = np.random.default_rng(0).integers(0, 3, size=len(X)).astype(float)
    options = dict(exact=exact, n_candidates=8, max_search_samples=60, **GRIDS.get(name, {}))
    for max_leaves in (0, 30):
        tree = grow(X, target, weight, sampler=samplers()[name], max_leaves=max_leaves, **options)
        reach, _ = oracles.walk(tree, 0, X)
        np.testing.assert_allclose(tree.node_weight, weight @ reach, rtol=1e-12)
        split = np.flatnonzero(tree.child > 0)
        left = tree.child[split]
        np.testing.assert_allclose(
            tree.node_weight[split], tree.node_weight[left] + tree.node_weight[left + 1]
        )
        assert (tree.node_weight > 0).all()
        Y = as_matrix(target)
        values = oracles.leaf_values(tree)
        for node in range(tree.n_nodes):
            rows = (reach[:, node] > 0) & (weight > 0)
            if tree.child[node] < 0:
                mean = np.average(Y[rows], axis=0, weights=weight[rows])
                np.testing.assert_allclose(values[-1 - tree.child[node]], mean, rtol=1e-6)
                assert max_leaves or mean.max() == 1
            else:
                goes_left = reach[rows, tree.child[node]] > 0
                gain = oracles.split_gain(Y[rows], weight[rows], goes_left, "gini")
                stored = tree.gain[(tree.child[node] - 1) // 2]
                assert stored == pytest.approx(gain, rel=1e-5, abs=1e-5)
        if max_leaves:
            assert tree.n_leaves[0] == max_leaves
        else:
            kept = weight > 0
            np.testing.assert_array_equal(tree.predict(X[kept]), target[kept])


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("exact", [True, False])
def test_regression_trees_keep_every_row_apart(exact, n_outputs):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 4)).astype(np.float32)
    target = rng.normal(size=(300, n_outputs))
    tree = grow(X, target, exact=exact, n_candidates=2, max_search_samples=100)
    assert tree.n_leaves[0] == 300
    np.testing.assert_allclose(tree.response(X), target, rtol=1e-6)


def test_small_differences_beside_a_large_one():
    """Two clouds of targets 2e6 apart: inside them, splits still follow differences of 2."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(400, 6)).astype(np.float32)
    far = np.where(X[:, 0] > 0, 1e6, -1e6)
    near = np.where(X[:, 1] > 0, 1, -1)
    tree = grow(X, (far + near)[:, None], max_depth=2)
    assert tree.direction.tolist() == [0, 1, 1]


def test_rows_that_cannot_be_separated_share_a_leaf():
    X = np.repeat(np.arange(4), 3)[:, None].astype(np.float32)
    target = np.array([0, 0, 0, 0, 1, 2, 1, 1, 1, 2, 2, 0])
    tree = grow(X, target, np.tile([1.0, 2.0, 5.0], 4))
    expected = [[1, 0, 0], [1 / 8, 2 / 8, 5 / 8], [0, 1, 0], [5 / 8, 0, 3 / 8]]
    np.testing.assert_allclose(tree.response(X[::3]), expected, rtol=1e-6)
    assert tree.n_leaves[0] == 4


def test_pure_leaves_of_a_class_share_a_value():
    X = np.arange(300)[:, None].astype(np.float32)
    target = np.arange(300) % 3
    tree = grow(X, target)
    assert tree.n_leaves[0] == 300
    assert sorted(set(tree.child[tree.child < 0])) == [-3, -2, -1]
    assert len(tree.value) == 3


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("max_leaves", [0, 40])
def test_limits_hold_with_random_candidates(exact, max_leaves):
    X, target = digits()
    tree = grow(
        X, target, exact=exact, max_leaves=max_leaves, n_candidates=4, max_search_samples=100,
        max_depth=6, min_samples_leaf=3, min_split=12, min_gain=0.5,
    )  # fmt: skip
    counts = np.bincount(tree.apply(X)[:, 0], minlength=tree.n_nodes)
    assert counts[tree.child < 0].min() >= 3
    assert tree.max_depth[0] <= 6
    assert tree.gain.min() >= 0.5
    reach, _ = oracles.walk(tree, 0, X)
    assert reach.sum(axis=0)[tree.child > 0].min() >= 12
    assert 10 < tree.n_leaves[0] <= (max_leaves or 64)


# ----------------------------------------------------------------------------------- invariance


def monotone(X):
    """Strictly rising maps of whole numbers 0 .. 255 that float32 keeps apart."""
    return {
        "cubes": X.astype(np.float64) ** 3,
        "squeezed": 1 + X.astype(np.float64) * 2.0**-20,
        "huge": (X.astype(np.float64) + 1) * 1e36,
        "roots": np.sqrt(X.astype(np.float64)),
        "steps": np.cumsum(np.random.default_rng(0).random(256) + 0.01)[X],
    }


def test_a_rising_map_of_the_features_changes_nothing_but_thresholds():
    X, target = digits()
    plain = grow(X, target, n_candidates=8, seed=3)
    for name, mapped in monotone(X).items():
        tree = grow(mapped, target, n_candidates=8, seed=3)
        for array in ("child", "direction", "gain", "node_weight", "value"):
            np.testing.assert_array_equal(
                getattr(tree, array), getattr(plain, array), err_msg=f"{name} {array}"
            )
        assert (tree.threshold != plain.threshold).any()


def test_bytes_and_floats_of_the_same_numbers_give_the_same_tree():
    X, target = digits()
    for name, sampler in samplers().items():
        for exact in (True, False):
            trees = [
                grow(X.astype(dtype), target, sampler=sampler, exact=exact, n_candidates=8, seed=5,
                     max_search_samples=100, **GRIDS.get(name, {}))
                for dtype in (np.uint8, np.float32)
            ]  # fmt: skip
            for array in ("child", "direction", "threshold", "gain", "node_weight"):
                one, other = (getattr(tree, array) for tree in trees)
                assert one.tobytes() == other.tobytes(), (name, exact, array)


@pytest.mark.parametrize("max_leaves", [0, 50])
@pytest.mark.parametrize("name", samplers())
def test_a_seed_gives_the_same_bits_twice(name, max_leaves):
    X, target = digits()
    options = dict(
        exact=False,
        n_candidates=5,
        max_search_samples=100,
        max_leaves=max_leaves,
        **GRIDS.get(name, {}),
    )
    one, again, other = (
        grow(X, target, sampler=samplers()[name], seed=seed, **options) for seed in (7, 7, 8)
    )
    for array, value in one.arrays.items():
        assert value.tobytes() == getattr(again, array).tobytes(), array
    assert len(one.direction) != len(other.direction) or (one.direction != other.direction).any()


def test_whole_weights_are_copies_of_rows():
    """With all features searched; counts of rows, as min_samples_leaf has, are left free."""
    X, target = digits()
    weight = np.random.default_rng(0).integers(0, 4, size=len(X))
    copies = np.repeat(np.arange(len(X)), weight)
    for exact in (True, False):
        one = grow(X, target, weight, exact=exact)
        other = grow(X[copies], target[copies], exact=exact)
        if exact:  # a histogram is taken from 25 rows on, and copies are rows
            for array in ("child", "direction", "threshold", "gain"):
                np.testing.assert_array_equal(getattr(one, array), getattr(other, array))
        np.testing.assert_array_equal(one.node_weight[0], other.node_weight[0])


def test_a_stop_flag_ends_growth():
    X, target = digits()
    tree = grow(X, target, stop=True)
    assert tree.n_nodes == 1
    np.testing.assert_allclose(tree.response(X[:1])[0], np.bincount(target) / len(X), rtol=1e-6)


class Plain(GrowingMethod):
    """Only its options are read."""

    splitter = directions_metadata = None


@pytest.mark.parametrize(
    "split, leaf, expected",
    [(0.9, 0.3, (5, 2)), (0.5, 0.3, (4, 2)), (0.1, 0.1, (2, 1)), (7, 3, (7, 3))],
)
def test_shares_are_of_the_rows_and_weights_of_a_sample(split, leaf, expected):
    sample = make_training_set(np.zeros((7, 3)), np.zeros(7), [0, 0, 3.5, 1, 1, 0.5, 2])
    settings = {"min_samples_split": split, "min_samples_leaf": leaf, "max_features": 2}
    settings |= {"min_weight_fraction_leaf": 0.25, "max_bins": 8, "exact": False}
    for most, searched in ((None, 5), (4, 4), (6, 5)):
        own = SimpleNamespace(**settings, max_search_samples=most)
        method = Plain(own, SimpleNamespace(criterion="gini"))
        assert method.min_samples(sample) == expected
        options = method.search_options(sample)
        assert options["min_weight_leaf"] == 2 and options["max_search_samples"] == searched
        assert options["min_samples_leaf"] == expected[1]
        assert method.search_options(sample, exact=True)["max_search_samples"] == 5


def test_memory_of_a_search_in_part():
    """Only the rows that are searched need keys, columns and scores, 40 bytes a row."""
    X = np.random.default_rng(0).normal(size=(50_000, 1)).astype(np.float32)
    target = (X[:, 0] > 0).astype(int)
    peaks = []
    for most in (100, 50_000):
        tracemalloc.start()
        try:
            grow(X, target, exact=False, max_search_samples=most, max_depth=1)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    assert peaks[1] - peaks[0] > 0.9 * 40 * 50_000
