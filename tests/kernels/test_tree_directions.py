"""Trees over shared directions, small trees, and pools of directions."""

import numpy as np
import pytest
import scipy.special
from forests import random_forest, whole_table
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed
from skforest._kernels.predict.pool import pooled_directions
from skforest._tree import mean_of_bags, softmax

from skforest.forest import Forest

DTYPES = [np.uint8, np.float32]


@fixed
@given(
    seed=st.integers(0, 2**31),
    gate=st.sampled_from(["hard", "margin"]),
    dtype=st.sampled_from(DTYPES),
    n_splits=st.integers(0, 12),
    n_rows=st.sampled_from([1, 7, 8, 24, 25, 255, 256, 257, 600]),
)
def test_trees_over_shared_directions_route_as_one_alone(seed, gate, dtype, n_splits, n_rows):
    """Many trees over few directions read a pool of projections; one tree does not."""
    rng = np.random.default_rng(seed)
    forest = random_forest(
        rng, shape=(2, 2), n_trees=25, n_splits=n_splits, n_each=3, gate=gate, aggregate="sum"
    )
    X = whole_table(rng, n_rows, 4, dtype)
    if dtype == np.float32:
        X[rng.random(X.shape) < 0.02] = 3e38  # projections overflow, margins are not numbers
    leaves, total = forest.apply(X), np.zeros((n_rows, 2))
    raw = forest.router.respond(X, 0, 25)
    for t in range(25):
        alone = forest[t]
        np.testing.assert_array_equal(alone.apply(X)[:, 0], leaves[:, t])
        with np.errstate(invalid="ignore"):
            total += alone.router.respond(X, 0, 1)
    np.testing.assert_array_equal(raw, total)


@pytest.mark.parametrize("n_features", [3, 32, 41])
@pytest.mark.parametrize("gate", ["hard", "margin"])
@pytest.mark.parametrize("kinds", [("sparse", "dense"), ("sparse",), ()])
def test_a_single_row_takes_the_paths_of_many(kinds, gate, n_features):
    """Few rows pass many trees side by side, many rows are partitioned node by node."""
    rng = np.random.default_rng(n_features)
    # More directions than a row passes splits: no pool. Over 64 trees: in several parts.
    shared = {"shape": (n_features,), "kinds": kinds, "gate": gate, "aggregate": "sum"}
    deep = random_forest(rng, n_trees=70, n_splits=20, n_each=500, **shared)
    stumps = random_forest(rng, n_trees=3, n_splits=0, n_each=40, **shared)
    for forest in (deep, stumps):
        X = whole_table(rng, 300, n_features, np.float32)
        X[rng.random(X.shape) < 0.02] = 3e38  # projections overflow, margins are not numbers
        leaves, raw = forest.apply(X), forest.router.respond(X, 1, 3)
        for size in (1, 5, 16, 128):
            blocks = [X[i : i + size] for i in range(0, 300, size)]
            assert forest.router.pool is None
            np.testing.assert_array_equal(np.concatenate(list(map(forest.apply, blocks))), leaves)
            parts = [forest.router.respond(block, 1, 3) for block in blocks]
            np.testing.assert_array_equal(np.concatenate(parts), raw)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("n_splits", [0, 1, 7, 31, 32, 63, 64])
def test_small_trees_route_as_node_by_node(n_splits, dtype):
    """Bits of at most 64 leaves; with a dense direction, which no split has, node by node."""
    rng = np.random.default_rng(n_splits)
    shape = {"shape": (12,), "kinds": ("sparse",), "n_each": 200, "aggregate": "sum"}
    forest = random_forest(rng, n_trees=9, n_splits=n_splits, **shape)
    if n_splits:  # one tree is a chain to the right, one to the left
        chain = 2 * np.arange(n_splits) + 1
        for tree, side in enumerate((1, 0)):
            child = forest.child[forest.tree_start[tree] : forest.tree_start[tree + 1]]
            leaves = np.sort(child[child < 0])[::-1]
            at = np.concatenate([[0], chain[:-1] + side])
            child[:] = 0
            child[at] = chain
            child[child == 0] = leaves
    arrays = forest.arrays | {"dense": np.ones((1, 12), np.float32)}
    by_nodes = forest.replaced(arrays)
    X = whole_table(rng, 70, 12, dtype)
    if dtype == np.float32:
        X[rng.random(X.shape) < 0.02] = 3e38
    for rows in (X, X[:32], X[:33], X[:9]):
        np.testing.assert_array_equal(forest.apply(rows), by_nodes.apply(rows))
        found = forest.router.respond(rows, 2, 7)
        np.testing.assert_array_equal(found, by_nodes.router.respond(rows, 2, 7))


def test_one_pool_serves_all_bags():
    """Bags are predicted one after another, each over the directions that it uses."""
    rng = np.random.default_rng(0)
    forest = random_forest(rng, n_trees=60, n_each=3, gate="margin", aggregate="sum")
    X = whole_table(rng, 40, 12, np.float32)
    forest.apply(X)
    pool = forest.router.pool
    assert 3 <= pool.n_columns <= 12 + 3 * 3 + 1
    for first, last in ((0, 60), (0, 30), (30, 60), (17, 18), (17, 17)):
        expected = sum(
            (forest[t].router.respond(X, 0, 1) for t in range(first, last)), np.zeros((40, 2))
        )
        np.testing.assert_array_equal(forest.router.respond(X, first, last), expected)
    assert forest.router.pool is pool


@pytest.mark.parametrize("n_features", [3, 41])
@pytest.mark.parametrize("gate", ["hard", "margin"])
@pytest.mark.parametrize("kinds", [("sparse", "dense"), ("sparse",)])
def test_a_single_row_is_projected_on_shared_directions_once(kinds, gate, n_features):
    """Trees of several depths descend side by side, some of which have no splits."""
    rng = np.random.default_rng(n_features)
    shared = {"shape": (n_features,), "kinds": kinds, "gate": gate, "aggregate": "mean"}
    deep = random_forest(rng, n_trees=69, n_splits=9, n_each=2, **shared)
    both = Forest.concatenate(
        [random_forest(rng, n_trees=1, n_splits=0, n_each=2, **shared), deep]
    )
    forest = both.replaced(both.arrays | {"bag_start": np.array([0, 1, 30, 70])}, link="softmax")
    X = whole_table(rng, 60, n_features, np.float32)
    X[rng.random(X.shape) < 0.02] = 3e38  # projections overflow, margins are not numbers
    with np.errstate(invalid="ignore", over="ignore"):
        leaves, response = forest.apply(X), forest.response_mapped(X)
        np.testing.assert_array_equal(leaves, np.hstack([tree.apply(X) for tree in forest]))
        for size in (1, 6):
            blocks = [X[i : i + size] for i in range(0, 60, size)]
            np.testing.assert_array_equal(np.concatenate(list(map(forest.apply, blocks))), leaves)
            parts = [forest.response_mapped(block) for block in blocks]
            np.testing.assert_array_equal(np.concatenate(parts), response)
    assert forest.router.pool is not None


def complete_forest(depth, n_trees):
    """Complete trees, each of whose splits has a sparse direction of its own."""
    n_splits = 2**depth - 1
    n_all = n_trees * n_splits
    child = np.concatenate([2 * np.arange(n_splits) + 1, np.full(n_splits + 1, -1)])
    arrays = {
        "tree_start": np.arange(n_trees + 1) * (2 * n_splits + 1),
        "child": np.tile(child, n_trees),
        "threshold": np.zeros(n_all),
        "direction": 3 + np.arange(n_all),
        "sparse_start": np.arange(n_all + 1),
        "sparse_feature": np.arange(n_all) % 3,
        "sparse_weight": np.ones(n_all),
        "value": [1.0],
    }
    return Forest(arrays, n_features=3, n_outputs=1, task="regression")


def test_the_first_prediction_of_a_large_forest_sorts_nothing(monkeypatch):
    """Whether trees share directions is seen from the number of directions, without the splits."""
    forest = complete_forest(14, 64)
    assert len(forest.direction) > 10**6
    monkeypatch.delattr(np, "unique")
    monkeypatch.delattr(np, "sort")
    X = np.ones((2, 3), dtype=np.float32)
    np.testing.assert_array_equal(forest.predict(X), [1, 1])
    assert forest.router.pool is None
    # The decision does not need to know which splits use them.
    arrays = {name: array for name, array in forest.arrays.items() if name != "direction"}
    assert pooled_directions(arrays, n_features=3, n_stored=len(forest.direction)) is None


@pytest.mark.parametrize("n_stored, pays", [(0, False), (1, True), (12, True), (13, False)])
def test_a_pool_pays_where_a_row_passes_more_splits_than_there_are_directions(n_stored, pays):
    """Four complete trees of depth 3: a row passes twelve splits."""
    arrays = complete_forest(3, 4).arrays
    arrays["sparse_start"] = np.arange(n_stored + 1)
    arrays["direction"] = np.int32(3 + np.arange(28) % max(n_stored, 1))
    if n_stored == 0:
        arrays["direction"] = np.zeros(28, dtype=np.int32)
    is_used = pooled_directions(arrays, 3, n_stored)
    assert (is_used is not None) == pays
    if pays:
        assert is_used.tolist() == [False] * 3 + [True] * n_stored


@pytest.mark.parametrize("n_dense, pays", [(3, True), (4, False)])
def test_terms_count_where_directions_have_different_numbers(n_dense, pays):
    """Half of the splits have one term, half have three: a row that passes twelve reads 24."""
    arrays = complete_forest(3, 4).arrays
    arrays["sparse_start"] = np.arange(15)
    arrays["dense"] = np.ones((n_dense, 3), dtype=np.float32)
    code = np.concatenate([3 + np.arange(14), 17 + np.arange(14) % n_dense])
    arrays["direction"] = code.astype(np.int32)
    is_used = pooled_directions(arrays, 3, 14 + n_dense)
    assert (is_used is not None) == pays


def test_single_features_have_no_pool():
    """Neither where other directions are stored that no split uses."""
    arrays = complete_forest(3, 4).arrays
    arrays["direction"] = np.int32(np.arange(28) % 3)
    assert pooled_directions(arrays, 3, 5) is None


@pytest.mark.parametrize("n_outputs", [1, 2, 7, 8, 9, 23, 128, 129, 300])
def test_softmax_and_mean_are_as_defined(n_outputs):
    raw = np.random.default_rng(n_outputs).normal(scale=30, size=(5, 4, n_outputs))
    parts = np.stack([softmax(part) for part in raw])
    np.testing.assert_allclose(parts, scipy.special.softmax(raw, axis=2), rtol=1e-13)
    np.testing.assert_array_equal(softmax(raw[0].T.copy().T), parts[0])  # in any layout
    np.testing.assert_allclose(mean_of_bags(parts), parts.mean(axis=0), rtol=1e-14)
