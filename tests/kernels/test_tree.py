"""Projection and routing: kernels against definitions, and bits against bits."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import oracles
import pytest
from forests import projector, random_directions, random_forest, whole_table

from skforest.forest import Forest

DTYPES = [np.uint8, np.float32]

# shape, wrap, unordered: ranks 1 to 4; lengths below, at and above a word; channels.
GRIDS = [
    ((1,), (False,), (False,)),
    ((3,), (True,), (False,)),
    ((7,), (False,), (False,)),
    ((8,), (True,), (False,)),
    ((9,), (False,), (True,)),
    ((40,), (True,), (False,)),
    ((70,), (False,), (True,)),
    ((1, 3), (False, True), (False, False)),
    ((2, 3), (False, False), (True, True)),
    ((5, 9), (False, False), (False, False)),
    ((9, 5), (True, True), (False, False)),
    ((6, 11), (True, False), (False, True)),
    ((12, 20), (False, True), (True, False)),
    ((4, 3, 5), (False, False, False), (False, False, False)),
    ((5, 5, 3), (False, False, False), (False, False, True)),
    ((3, 10, 4), (True, False, True), (False, True, False)),
    ((2, 3, 4, 5), (False, False, False, False), (False, False, False, False)),
    ((3, 2, 9, 2), (True, False, True, False), (False, True, False, True)),
]

MARGINS = [("hard", "mean"), ("margin", "sum"), ("sigmoid", "mean")]


def project_all(arrays, shape, wrap, unordered, X):
    """Projection of X on all directions by the kernels, and the forest that made it."""
    n = X.shape[1]
    n_codes = n + len(arrays.get("box_corner", ())) + len(arrays["sparse_start"]) - 1
    n_codes += len(arrays["dense"])
    forest = projector(
        arrays, range(n_codes), n_features=n, feature_shape=shape, wrap=wrap, unordered=unordered
    )
    return forest, forest.response(X)


# ----------------------------------------------------------------------------------- projection


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape, wrap, unordered", GRIDS)
def test_every_kind_of_direction_is_projected_as_defined(shape, wrap, unordered, dtype):
    rng = np.random.default_rng(sum(shape))
    arrays = random_directions(rng, shape, wrap, unordered, n_boxes=60, n_sparse=9, n_dense=5)
    X = whole_table(rng, 23, int(np.prod(shape)), dtype)
    forest, found = project_all(arrays, shape, wrap, unordered, X)
    for code in range(found.shape[1]):
        expected = oracles.project(oracles.direction_weights(forest, code), X)
        np.testing.assert_array_equal(found[:, code], expected, err_msg=f"code {code}")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(7,), (8,), (9,), (33,), (3, 3), (2, 15)])
def test_every_box_of_a_small_grid_is_projected_as_defined(shape, dtype):
    """All corners and sizes: every border, every alignment of a word at the end of a row."""
    corner, size = [], []
    for at in np.ndindex(shape):
        for n in np.ndindex(tuple(np.subtract(shape, at))):
            corner.append(np.ravel_multi_index(at, shape))
            size.append(np.add(n, 1))
    none = (False,) * len(shape)
    arrays = {
        "box_corner": corner,
        "box_other": np.full(len(corner), -1),
        "box_size": size,
        "sparse_start": [0],
        "dense": np.zeros((0, np.prod(shape))),
    }
    # Distinct powers would overflow a byte; random bytes tell any two boxes apart in some row.
    X = whole_table(np.random.default_rng(0), 5, int(np.prod(shape)), dtype)
    _, found = project_all(arrays, shape, none, none, X)
    expected = [
        oracles.project(oracles.box_weights(c, -1, n, shape, none, none), X)
        for c, n in zip(corner, size)
    ]
    np.testing.assert_array_equal(found[:, X.shape[1] :], np.transpose(expected))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_box_of_many_words_and_its_contrast(dtype):
    """Whole images: more than 32 words of a byte table, sums beyond 16 bits, full cancellation."""
    shape = (30, 40)
    none = (False, False)
    arrays = {
        "box_corner": [0, 0, 0, 41],
        "box_other": [-1, 0, 20, -1],
        "box_size": [(30, 40), (30, 40), (30, 20), (29, 39)],
        "sparse_start": [0],
        "dense": np.zeros((0, 1200)),
    }
    X = whole_table(np.random.default_rng(1), 21, 1200, dtype)
    X[0] = X.max()
    forest, found = project_all(arrays, shape, none, none, X)
    for k in range(4):
        weights = oracles.direction_weights(forest, 1200 + k)
        np.testing.assert_array_equal(found[:, 1200 + k], oracles.project(weights, X))
    np.testing.assert_array_equal(found[:, 1201], 0)
    if dtype == np.uint8:
        assert found[0, 1200] == 1200 * 255


@pytest.mark.parametrize("n_features", [1, 2, 31, 32, 33, 63, 64, 65, 100])
@pytest.mark.parametrize("dtype", DTYPES)
def test_dense_dot_product_at_all_remainders(n_features, dtype):
    rng = np.random.default_rng(n_features)
    arrays = random_directions(rng, (n_features,), (False,), (False,), n_dense=4)
    X = whole_table(rng, 19, n_features, dtype)
    _, found = project_all(arrays, (n_features,), (False,), (False,), X)
    expected = X.astype(float) @ arrays["dense"].T
    np.testing.assert_array_equal(found[:, n_features:], expected)


def test_real_numbers_are_projected_within_rounding():
    """Float tables that are not whole: each value within a few roundings of its largest term."""
    rng = np.random.default_rng(5)
    shape, none = (6, 10), (False, False)
    arrays = random_directions(rng, shape, none, none, n_boxes=40, n_sparse=20, n_dense=20)
    arrays["dense"] = rng.normal(size=(20, 60))
    arrays["sparse_weight"] = rng.normal(size=len(arrays["sparse_weight"]))
    X = rng.normal(size=(50, 60)).astype(np.float32)
    forest, found = project_all(arrays, shape, none, none, X)
    for code in range(found.shape[1]):
        weights = oracles.direction_weights(forest, code)
        bound = oracles.project(abs(weights), abs(X)) * 60 * np.finfo(np.float32).eps
        assert (abs(found[:, code] - oracles.project(weights, X)) <= bound).all()
    assert (found != np.rint(found)).any()


def test_a_masked_entry_has_no_influence():
    """What a word reads beyond its box is dropped, infinity and the largest float included."""
    arrays = {
        "box_corner": [1, 5],
        "box_other": [-1, -1],
        "box_size": [[3], [2]],
        "sparse_start": [0],
        "dense": np.zeros((0, 7)),
    }
    X = np.array([[np.inf, 1, 2, 3, 3e38, 4, 5]], dtype=np.float32)
    forest = projector(arrays, [7, 8], n_features=7)
    np.testing.assert_array_equal(forest.response(X), [[6, 9]])


# -------------------------------------------------------------------------------------- routing


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gate, aggregate", MARGINS)
@pytest.mark.parametrize(
    "shape, wrap, unordered",
    [
        ((5,), (True,), (False,)),
        ((4, 5), (False, False), (False, False)),
        ((3, 4, 3), (True, False, False), (False, False, True)),
    ],
)
def test_routes_are_as_defined(shape, wrap, unordered, gate, aggregate, dtype):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        forest = random_forest(
            rng, shape, wrap, unordered, n_splits=12, n_outputs=3, gate=gate, aggregate=aggregate,
            steepness=0.05,
        )  # fmt: skip
        X = whole_table(rng, 37, forest.n_features, dtype)
        leaves = forest.apply(X)
        assert leaves.dtype == np.int32
        np.testing.assert_array_equal(leaves, oracles.apply(forest, X))
        expected = oracles.response(forest, X)
        # Sums of whole numbers are exact, but for a mean over three trees.
        np.testing.assert_allclose(forest.response(X), expected, rtol=1e-12, atol=1e-9)
        assert len(np.unique(expected, axis=0)) > 1


# Few splits and trees, and trees with more splits than are decided at once, for many rows.
@pytest.mark.thin(2)
@pytest.mark.parametrize("n_trees, n_splits", [(2, 20), (9, 150)])
@pytest.mark.parametrize("n_rows", [1, 8, 9, 16, 33, 521])
@pytest.mark.parametrize(
    "shape, high",
    [
        ((5,), 5),
        ((200,), 200),
        ((4, 5), 5),
        ((12, 11), 11),
        ((12, 11), 12),
        ((30, 40), 40),
        ((2, 3, 4), 4),
    ],
)
def test_trees_of_boxes_route_bytes_as_floats(shape, high, n_rows, n_trees, n_splits):
    """Two ways to route rows: by tables of sums, and node by node; sums below and above 2^15."""
    rng = np.random.default_rng(n_rows)
    forest = random_forest(
        rng, shape, n_splits=n_splits, n_trees=n_trees, n_each=40, kinds=("box",)
    )
    arrays = forest.arrays
    if n_rows % 2:
        arrays["node_weight"] = []  # as in slim forests
    n = len(arrays["threshold"])
    arrays["direction"] = rng.integers(forest.n_features, forest.n_features + 40, size=n)
    arrays["direction"][::4] = rng.integers(forest.n_features, size=len(range(0, n, 4)))
    # Thresholds that are reached: the projection of some row, or next to it.
    X = whole_table(rng, n_rows, forest.n_features, np.uint8)
    X[0] = 255
    values = forest.directions(arrays["direction"]) @ X[rng.integers(n_rows)].astype(float)
    arrays["threshold"] = values + rng.choice([-1, -0.5, -1e-3, 0, 1e-3, 0.5], size=n)
    arrays["threshold"][:6] = [-3e38, 3e38, 2.0**31, -(2.0**31), -0.0, 1e-45]
    forest = Forest(arrays, **forest.metadata)
    leaves = forest.apply(X)
    np.testing.assert_array_equal(leaves, forest.apply(X.astype(np.float32)))
    few = slice(0, 5)
    np.testing.assert_array_equal(leaves[few], oracles.apply(forest, X[few]))
    np.testing.assert_allclose(
        forest.response(X[few]), oracles.response(forest, X[few]), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_array_equal(forest.response(X), forest.response(X.astype(np.float32)))


def test_a_contrast_of_a_box_with_itself_is_zero():
    arrays = {
        "tree_start": [0, 3],
        "child": [1, -1, -2],
        "direction": [12],
        "threshold": [-0.5],
        "box_corner": [1],
        "box_other": [1],
        "box_size": [[2, 2]],
        "value": [0, 1],
    }
    options = {"n_features": 12, "n_outputs": 1, "task": "regression", "feature_shape": (3, 4)}
    X = np.full((2, 12), 200, dtype=np.uint8)
    for threshold, side in ((-0.5, 1), (0, 0)):
        forest = Forest(arrays | {"threshold": [threshold]}, **options)
        np.testing.assert_array_equal(forest.predict(X), [side, side])
        np.testing.assert_array_equal(forest.predict(X.astype(np.float32)), [side, side])


@pytest.mark.parametrize("shape", [(254, 255), (255, 255), (65534,), (65600,), (1, 65000)])
def test_grids_as_large_as_tables_of_sums_can_be(shape):
    """Positions up to 2^16, sums up to 2^24."""
    rng = np.random.default_rng(0)
    n = int(np.prod(shape))
    inner = [max(length - 1, 1) for length in shape]  # all but the last, or but the first
    first = [int(length > 1) for length in shape]
    after = int(np.ravel_multi_index(first, shape))
    arrays = {
        "tree_start": [0, 9],
        "child": [1, 3, 5, -1, -2, 7, -3, -4, -5],
        "direction": [n, n + 1, n - 1, n + 2],
        "threshold": [127.5 * n, 0, 127, 255 * np.prod(inner) - 1],
        "box_corner": [0, 0, after],
        "box_other": [-1, after, -1],
        "box_size": [shape, inner, inner],
        "value": np.arange(5),
    }
    forest = Forest(arrays, n_features=n, n_outputs=1, task="regression", feature_shape=shape)
    X = rng.integers(0, 256, size=(12, n)).astype(np.uint8)
    X[8:] = 255
    X[8, 0] = X[9, -1] = X[10, n // 2] = 0

    def definition(x):
        grid = x.reshape(shape).astype(int)
        low = grid[tuple(slice(0, length) for length in inner)].sum()
        high = grid[tuple(slice(start, None) for start in first)].sum()
        if grid.sum() <= 127.5 * n:
            return int(low - high > 0)
        return 2 if x[-1] > 127 else 3 + (high > 255 * np.prod(inner) - 1)

    expected = [definition(x) for x in X]
    np.testing.assert_array_equal(forest.predict(X), expected)
    np.testing.assert_array_equal(forest.predict(X.astype(np.float32)), expected)
    assert len(set(expected)) > 2


def test_decision_path_holds_the_nodes_on_the_way():
    rng = np.random.default_rng(8)
    forest = random_forest(rng, n_trees=4, n_splits=10)
    X = whole_table(rng, 29, forest.n_features, np.float32)
    indicator, ends = forest.decision_path(X)
    np.testing.assert_array_equal(ends, forest.tree_start)
    expected = [oracles.walk(forest, tree, X)[0] for tree in range(4)]
    np.testing.assert_array_equal(indicator.toarray(), np.concatenate(expected, axis=1))


def test_equal_to_the_threshold_goes_left():
    forest = Forest(
        {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [2.5], "direction": [0],
         "value": [-1, 1]},
        n_features=1, n_outputs=1, task="regression",
    )  # fmt: skip
    X = np.array([[2.5], [np.nextafter(np.float32(2.5), 3, dtype=np.float32)], [-np.inf]])
    np.testing.assert_array_equal(forest.predict(X.astype(np.float32)), [-1, 1, -1])


def test_a_margin_keeps_the_smallest_on_the_path():
    """Nearest threshold last, first, and in the middle; the far side of the tree has no say."""
    forest = Forest(
        {"tree_start": [0, 7], "child": [1, 3, 5, -1, -2, -3, -4], "threshold": [0, 5, -5],
         "direction": [0, 1, 1], "value": [1, 10, 100, 1000]},
        n_features=2, n_outputs=1, task="regression", gate="margin", aggregate="sum",
    )  # fmt: skip
    X = np.array([[-1, 2], [-7, 4], [-7, 12], [2, -5], [3, -9], [9, 0]])
    np.testing.assert_array_equal(forest.predict(X), [1, 1, 70, 0, 300, 5000])


def test_a_tree_of_one_leaf():
    forest = Forest(
        {"tree_start": [0, 1, 2], "child": [-1, -2], "threshold": [], "direction": [],
         "value": [3, 5]},
        n_features=2, n_outputs=1, task="regression",
    )  # fmt: skip
    X = np.zeros((4, 2))
    np.testing.assert_array_equal(forest.predict(X), [4, 4, 4, 4])
    np.testing.assert_array_equal(forest.apply(X), np.zeros((4, 2)))
    assert forest.decision_path(X)[0].sum() == 8
    assert forest.max_depth.tolist() == [0, 0]


def test_no_rows_give_empty_results():
    forest = random_forest(np.random.default_rng(0))
    X = np.empty((0, forest.n_features), dtype=np.float32)
    assert forest.apply(X).shape == (0, 3)
    assert forest.response(X).shape == (0, 2)
    assert forest.decision_path(X)[0].shape == (0, forest.n_nodes)


def test_a_tree_as_deep_as_it_has_splits():
    """A chain of 3000 splits: no recursion, and the stack of waiting nodes does not overflow."""
    n = 3000
    child = np.empty(2 * n + 1, dtype=np.int64)
    child[0] = 1
    child[2 : 2 * n : 2] = np.arange(3, 2 * n + 1, 2)  # the right child splits again
    child[1::2] = -1 - np.arange(n)
    child[2 * n] = -1 - n
    forest = Forest(
        {"tree_start": [0, 2 * n + 1], "child": child, "threshold": np.arange(n),
         "direction": np.zeros(n), "value": np.arange(n + 1)},
        n_features=1, n_outputs=1, task="regression",
    )  # fmt: skip
    X = np.arange(-1, n + 1)[:, None] + 0.5
    np.testing.assert_array_equal(forest.predict(X), np.clip(np.arange(n + 2), 0, n))
    assert forest.max_depth == [n]


# ---------------------------------------------------------------------------- bits against bits


def real_forest(gate, link, n_outputs):
    """A forest whose sums are not exact, so that any change of order shows."""
    rng = np.random.default_rng(3)
    forest = random_forest(
        rng, (6, 7), n_trees=9, n_splits=20, n_outputs=n_outputs, n_each=20, gate=gate, link=link
    )
    arrays = forest.arrays
    for name in ("threshold", "value", "sparse_weight", "dense"):
        arrays[name] = rng.normal(size=arrays[name].shape)
    arrays["bag_start"] = [0, 4, 9]
    return Forest(arrays, **forest.metadata), rng


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gate", ["hard", "margin", "sigmoid"])
@pytest.mark.parametrize("link, n_outputs", [("identity", 2), ("softmax", 3), ("softmax", 40)])
def test_blocks_of_any_size_give_the_same_bits(gate, link, n_outputs, dtype):
    forest, rng = real_forest(gate, link, n_outputs)
    X = rng.normal(size=(61, 42)) if dtype == np.float32 else rng.integers(0, 256, (61, 42))
    X = X.astype(dtype)
    whole = forest.response(X)
    assert len(np.unique(whole)) > 25
    for size in (1, 2, 7, 16, 60):
        blocks = [X[start : start + size] for start in range(0, len(X), size)]
        parts = np.concatenate([forest.response(block) for block in blocks])
        assert parts.tobytes() == whole.tobytes(), f"blocks of {size} rows"
        leaves = np.concatenate([forest.apply(block) for block in blocks])
        assert (leaves == forest.apply(X)).all()
    order = rng.permutation(61)
    assert forest.response(X[order]).tobytes() == whole[order].tobytes()


@pytest.mark.parametrize(
    "kinds, n_each",  # routed by tables of sums, over a pool, and by bits of leaves
    [(("box",), 3), (("box", "sparse", "dense"), 3), (("sparse",), 200)],
)
def test_threads_share_a_forest(kinds, n_each):
    """From the first call on, when what is cached is made."""
    rng = np.random.default_rng(0)
    X = whole_table(rng, 300, 42, np.uint8)
    options = {"n_trees": 20, "kinds": kinds, "n_each": n_each}
    for seed in range(5):
        forest = random_forest(np.random.default_rng(seed), (6, 7), **options)
        barrier = Barrier(4)

        def work(forest=forest, barrier=barrier):
            barrier.wait()
            return forest.response(X)

        with ThreadPoolExecutor(4) as pool:
            found = [future.result() for future in [pool.submit(work) for _ in range(4)]]
        expected = forest.response(X)
        assert len(np.unique(expected)) > 10
        assert all(one.tobytes() == expected.tobytes() for one in found)


def test_flags_are_bytes():
    forest, rng = real_forest("hard", "identity", 2)
    X = rng.random((20, 42)) < 0.5
    assert forest.response(X).tobytes() == forest.response(X.astype(np.uint8)).tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_layout_and_width_of_the_table_do_not_matter(dtype):
    forest, rng = real_forest("hard", "identity", 2)
    X = rng.integers(0, 100, size=(30, 42)).astype(dtype)
    expected = forest.response(X)
    wide = np.zeros((60, 84), dtype=dtype)
    wide[::2, ::2] = X
    for same in (np.asfortranarray(X), wide[::2, ::2], X.astype(np.float64), X.astype(np.int64)):
        np.testing.assert_allclose(forest.response(same), expected, rtol=1e-12)
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(forest.response(frozen), expected)
    np.testing.assert_array_equal(forest.response(X.reshape(30, 6, 7)), expected)
