"""The packed forest against definitions, and against corruption."""

import copy
import json
import mmap
import pickle
import tracemalloc
import zipfile

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from makers import fixed, random_directions, random_forest, whole_table
from scipy.special import softmax
from sklearn.datasets import load_iris

import skforest
from skforest.forest import ARRAYS, Forest, io
from skforest.forest.io import narrow, widen

GATES = ["hard", "margin", "sigmoid"]
# A box forest on a torus with channels: every field of the format is in use.
SHAPE, WRAP, UNORDERED = (4, 3, 3), (True, False, False), (False, False, True)


def rich_forest(seed=0, **meta):
    """A random forest that uses every array."""
    rng = np.random.default_rng(seed)
    return random_forest(rng, SHAPE, WRAP, UNORDERED, **{"n_outputs": 3, "n_trees": 4} | meta)


def rich_classifier(seed=0):
    """The same with sparse value rows, of which the pure ones are shared, labels and names."""
    forest = rich_forest(seed)
    rng = np.random.default_rng(seed)
    n_own = len(forest.value) // 3
    arrays = forest.arrays
    leaf = arrays["child"] < 0
    arrays["child"] = np.where(leaf & (rng.random(len(leaf)) < 0.5), arrays["child"] - 3, -1 - 2)
    arrays["child"][~leaf] = forest.child[~leaf]
    arrays["value"] = np.concatenate([np.ones(3), rng.random(2 * n_own)])
    arrays["value_start"] = np.concatenate([np.arange(3), 3 + 2 * np.arange(n_own + 1)])
    pairs = [rng.choice(3, 2, replace=False) for _ in range(n_own)]
    arrays["value_index"] = np.concatenate([np.arange(3), *pairs])
    arrays["spread"] = 1 + np.arange(36) / 8
    meta = forest.metadata | {
        "task": "classification",
        "classes": np.array(["ape", "bee", "cat"]),
        "n_shared_values": 3,
        "feature_names": [f"x{j}" for j in range(36)],
    }
    return Forest(arrays, **meta)


def table(forest, n_samples=40, seed=1, dtype=np.float32):
    return whole_table(np.random.default_rng(seed), n_samples, forest.n_features, dtype)


def assert_same(one, other):
    """Same arrays in the same dtypes, and the same of everything else."""
    for name in ARRAYS:
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert a.tobytes() == b.tobytes(), name
    for name, value in one.metadata.items():
        np.testing.assert_equal(other.metadata[name], value, err_msg=name)


# ------------------------------------------------------ one forest of every kind, built by hand


def test_axis_box_sparse_and_dense_directions_in_one_tree():
    rng = np.random.default_rng(0)
    dense = rng.integers(-2, 3, size=16)
    forest = Forest(
        {
            "tree_start": [0, 9],
            "child": [1, 3, 5, -1, -2, 7, -3, -4, -5],
            # of the pairs (1, 2), (3, 4), (5, 6), (7, 8): feature 5, box, sparse row, dense row
            "direction": [5, 16, 17, 18],
            "threshold": [100, 400, -3, 10],
            "box_corner": [5],
            "box_other": [-1],
            "box_size": [[2, 3]],
            "sparse_start": [0, 3],
            "sparse_feature": [0, 7, 15],
            "sparse_weight": [1, -1, 0.5],
            "dense": [dense],
            "value": [0, 1, 2, 3, 4],
        },
        n_features=16, n_outputs=1, task="regression", feature_shape=(4, 4),
    )  # fmt: skip
    X = whole_table(rng, 300, 16, np.uint8)

    def definition(x):
        if x[5] <= 100:
            return 1 if x.reshape(4, 4)[1:3, 1:4].sum() > 400 else 0
        if x[0] - x[7] + 0.5 * x[15] > -3:
            return 2
        return 4 if dense @ x > 10 else 3

    expected = [definition(x.astype(float)) for x in X]
    assert set(expected) == {0, 1, 2, 3, 4}
    np.testing.assert_array_equal(forest.predict(X), expected)
    np.testing.assert_array_equal(forest.predict(X.astype(np.float32)), expected)


def test_a_hinge_forest_of_two_bags_over_one_set_of_directions():
    rng = np.random.default_rng(1)
    n_trees, n_classes, X = 6, 3, rng.normal(size=(50, 5)).astype(np.float32)
    W = rng.normal(size=(4, 5)).astype(np.float32)  # four directions, used by all trees
    used = rng.integers(4, size=(n_trees, 3))
    cut = rng.normal(size=(n_trees, 3)).astype(np.float32)
    leaf = rng.normal(size=(n_trees, 4, n_classes)).astype(np.float32)
    forest = Forest(
        {
            "tree_start": 7 * np.arange(n_trees + 1),
            "child": [[1, 3, 5, *(-1 - (4 * t + np.arange(4)))] for t in range(n_trees)],
            "threshold": cut.ravel(),
            "direction": 5 + used.ravel(),
            "dense": W,
            "value": leaf.ravel(),
            "bag_start": [0, 4, 6],
        }
        | {"child": np.ravel([[1, 3, 5, *(-1 - (4 * t + np.arange(4)))] for t in range(n_trees)])},
        n_features=5, n_outputs=n_classes, task="classification", classes=[0, 1, 2],
        gate="margin", aggregate="sum", link="softmax",
    )  # fmt: skip

    z = X.astype(float) @ W.T.astype(float)
    bags = []
    for bag in (range(4), range(4, 6)):
        logits = np.zeros((50, n_classes))
        for t in bag:
            root = z[:, used[t, 0]] - cut[t, 0]
            right = (root > 0).astype(int)
            below = z[np.arange(50), used[t, 1 + right]] - cut[t, 1 + right]
            margin = np.minimum(abs(root), abs(below))
            logits += margin[:, None] * leaf[t, 2 * right + (below > 0)]
        bags.append(softmax(logits, axis=1))
    expected = (bags[0] + bags[1]) / 2
    np.testing.assert_allclose(forest.response(X), expected, rtol=1e-5)
    np.testing.assert_array_equal(forest.predict(X), expected.argmax(axis=1))
    assert len(set(expected.argmax(axis=1))) == 3
    # The mean of softmaxes is not one softmax: a kind of its own, not a sum over all trees.
    assert abs(softmax(np.log(bags[0] * bags[1]), axis=1) - expected).max() > 0.01


def test_a_soft_end_to_end_tree():
    rng = np.random.default_rng(2)
    W = rng.normal(size=(3, 4)).astype(np.float32)
    b = rng.normal(size=3).astype(np.float32)
    value = rng.dirichlet(np.ones(3), size=4).astype(np.float32)
    forest = Forest(
        {
            "tree_start": [0, 7],
            "child": [1, 3, 5, -1, -2, -3, -4],
            "threshold": b,
            "direction": [4, 5, 6],
            "dense": W,
            "value": value.ravel(),
        },
        n_features=4, n_outputs=3, task="classification", classes=[0, 1, 2],
        gate="sigmoid", steepness=2.5,
    )  # fmt: skip
    X = rng.normal(size=(40, 4)).astype(np.float32)

    g = 1 / (1 + np.exp(-2.5 * (X.astype(float) @ W.T - b)))
    mu = [
        (1 - g[:, 0]) * (1 - g[:, 1]),
        (1 - g[:, 0]) * g[:, 1],
        g[:, 0] * (1 - g[:, 2]),
        g[:, 0] * g[:, 2],
    ]
    expected = np.transpose(mu) @ value
    np.testing.assert_allclose(forest.response(X), expected, rtol=1e-5)
    np.testing.assert_allclose(forest.response(X).sum(axis=1), 1, rtol=1e-6)
    # However steep, the hard tree is the limit.
    hard = Forest(forest.arrays, **forest.metadata | {"gate": "hard"})
    steep = Forest(forest.arrays, **forest.metadata | {"steepness": 1e9})
    np.testing.assert_allclose(steep.response(X), hard.response(X), rtol=1e-6)
    assert abs(forest.response(X) - hard.response(X)).max() > 0.1


def test_a_regression_forest_keeps_the_digits_of_a_large_target():
    rng = np.random.default_rng(3)
    leaf = rng.uniform(-1, 1, size=(5, 2))  # of a target 1e6 +- 1
    forest = Forest(
        {
            "tree_start": [0, 3, 6, 9, 12, 15],
            "child": np.ravel([[1, -1 - 2 * t, -2 - 2 * t] for t in range(5)]),
            "threshold": np.zeros(5),
            "direction": np.arange(5),
            "value": leaf.ravel(),
            "baseline": [1e6],
        },
        n_features=5, n_outputs=1, task="regression",
    )  # fmt: skip
    X = rng.normal(size=(30, 5))
    expected = 1e6 + np.mean([leaf[t, (X[:, t] > 0).astype(int)] for t in range(5)], axis=0)
    assert abs(forest.predict(X) - expected).max() < 1e-7
    assert abs(np.float32(expected) - expected).max() > 1e-3


@pytest.mark.parametrize("aggregate", ["mean", "sum"])
@pytest.mark.parametrize(
    "link, function",
    [
        ("identity", lambda raw: raw),
        ("sigmoid", lambda raw: 1 / (1 + np.exp(-raw))),
        ("softmax", lambda raw: np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)),
        ("log", np.exp),
    ],
)
def test_links_and_aggregates_are_as_defined(link, function, aggregate, tmp_path):
    """The response is the mean over bags of link(baseline + sum or mean of the trees)."""
    forest = rich_forest(aggregate=aggregate, link=link)
    arrays = forest.arrays | {"bag_start": [0, 1, 4], "baseline": [0.5, -1, 0]}
    arrays["value"] = forest.value / 16
    forest = Forest(arrays, **forest.metadata)
    X = table(forest)
    trees = [tree.replaced(tree.arrays, link="identity").response(X) for tree in forest]
    raw = np.array(trees) - forest.baseline
    if aggregate == "mean":
        bags = [raw[0], raw[1:].mean(axis=0)]
    else:
        bags = [raw[0], raw[1:].sum(axis=0)]
    expected = np.mean([function(bag + forest.baseline) for bag in bags], axis=0)
    np.testing.assert_allclose(forest.response(X), expected, rtol=1e-9)
    forest.save(tmp_path / "forest.npz")
    assert_same(forest, Forest.load(tmp_path / "forest.npz"))


def test_probabilities_of_two_classes_by_the_sigmoid_of_opposite_values():
    stump = {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [0], "direction": [0]}
    forest = Forest(
        stump | {"value": [2, -2, -1, 1], "baseline": [-0.5, 0.5]}, n_features=1, n_outputs=2,
        task="classification", classes=["no", "yes"], link="sigmoid", aggregate="sum",
    )  # fmt: skip
    X = [[-1.0], [1.0], [-1e30]]
    response = forest.response(X)
    np.testing.assert_allclose(response.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(response[1], [1 / (1 + np.exp(1.5)), 1 / (1 + np.exp(-1.5))])
    assert forest.predict(X).tolist() == ["no", "yes", "no"]


def test_several_outputs_share_one_tree():
    forest = Forest(
        {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [0], "direction": [0],
         "value": [1, 2, 3, 4, 5, 6], "baseline": [10, 20, 30]},
        n_features=1, n_outputs=3, task="regression",
    )  # fmt: skip
    np.testing.assert_array_equal(forest.predict([[-1.0], [1.0]]), [[11, 22, 33], [14, 25, 36]])


def pure_leaves(n_classes, order, feature=0):
    """A tree over n_classes pure leaves; label order[k] where k is the rounded feature."""
    n_splits = n_classes - 1
    child = np.empty(2 * n_splits + 1, dtype=np.int64)
    child[2:-1:2] = np.arange(3, 2 * n_splits + 1, 2)
    child[0] = 1
    child[1::2] = -1 - order[:-1]
    child[-1] = -1 - order[-1]
    return Forest(
        {
            "tree_start": [0, len(child)],
            "child": child,
            "threshold": np.arange(n_splits) + 0.5,
            "direction": np.full(n_splits, feature),
            "value": np.ones(n_classes),
            "value_start": np.arange(n_classes + 1),
            "value_index": np.arange(n_classes),
        },
        n_features=2, n_outputs=n_classes, task="classification",
        classes=np.arange(n_classes), n_shared_values=n_classes,
    )  # fmt: skip


def test_ten_thousand_classes_stay_small():
    rng = np.random.default_rng(4)
    orders = [rng.permutation(10000) for _ in range(3)]
    trees = [pure_leaves(10000, order) for order in orders]
    forest = Forest.concatenate(trees)
    # 10000 rows of one value, index and start; nodes and splits of three trees; nothing else.
    assert forest.nbytes < 10001 * 16 + 3 * (20000 * 12 + 10000 * 12) + 2**17
    X = np.stack([rng.integers(10000, size=20), np.zeros(20)], axis=1)
    expected = np.zeros((20, 10000))
    for order in orders:
        expected[np.arange(20), order[X[:, 0].astype(int)]] += 1 / 3
    np.testing.assert_allclose(forest.response(X), expected, rtol=1e-12)
    assert len(pickle.dumps(forest)) < forest.nbytes / 2


# -------------------------------------------------------------------- joining, taking, dropping


@pytest.mark.parametrize("gate, aggregate", [("hard", "mean"), ("margin", "sum")])
def test_concatenate_is_the_mean_or_sum_of_its_parts(gate, aggregate):
    parts = [
        rich_forest(seed, n_trees=seed + 1, n_each=seed % 3, gate=gate, aggregate=aggregate)
        for seed in range(4)
    ]
    assert len({len(part.box_corner) for part in parts}) == 3
    forest = Forest.concatenate(parts)
    X = table(forest)
    expected = sum(
        oracles.response(part, X) * (len(part) / 10 if aggregate == "mean" else 1)
        for part in parts
    )
    np.testing.assert_allclose(forest.response(X), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(forest.apply(X), np.hstack([part.apply(X) for part in parts]))
    assert len(forest) == 10
    assert forest.bag_start.tolist() == [0, 10]
    for name in ("node_weight", "threshold", "gain", "box_size", "sparse_weight", "dense"):
        assert len(getattr(forest, name)) == sum(len(getattr(part, name)) for part in parts)


def test_concatenate_keeps_shared_values_once():
    parts = [rich_classifier(seed) for seed in range(3)]
    forest = Forest.concatenate(parts)
    X = table(forest)
    expected = np.mean([oracles.response(part, X) for part in parts], axis=0)
    np.testing.assert_allclose(forest.response(X), expected, rtol=1e-12)
    n_own = [len(part.value_start) - 1 - 3 for part in parts]
    assert len(forest.value_start) - 1 == 3 + sum(n_own)
    assert forest.classes.tolist() == ["ape", "bee", "cat"]
    assert forest.feature_names == parts[0].feature_names


def test_concatenate_of_parts_of_a_forest_gives_the_forest_again():
    forest = rich_classifier()
    again = Forest.concatenate([forest[:1], forest[1:3], forest[3]])
    X = table(forest)
    assert again.response(X).tobytes() == forest.response(X).tobytes()
    for name in ("tree_start", "node_weight", "threshold", "gain"):
        np.testing.assert_array_equal(getattr(again, name), getattr(forest, name))


@pytest.mark.parametrize(
    "change, word",
    [
        ({"task": "classification", "classes": [1, 2, 3]}, "task"),
        ({"aggregate": "sum"}, "aggregate"),
        ({"link": "softmax"}, "link"),
        ({"gate": "margin"}, "gate"),
        ({"steepness": 2.0}, "steepness"),
        ({"wrap": (False, False, False)}, "wrap"),
        ({"n_shared_values": 1}, "n_shared_values"),
    ],
)
def test_concatenate_refuses_forests_of_another_kind(change, word):
    rng = np.random.default_rng(0)
    one = random_forest(rng, (2, 3, 2), (True, False, False), n_outputs=3, n_each=0)
    other = Forest(one.arrays, **one.metadata | change)
    with pytest.raises(ValueError, match=f"differ in {word}"):
        Forest.concatenate([one, other])


def test_concatenate_refuses_other_baselines_classes_and_nothing():
    one = rich_forest()
    other = Forest(one.arrays | {"baseline": [0, 0, 1]}, **one.metadata)
    with pytest.raises(ValueError, match="differ in baseline"):
        Forest.concatenate([one, other])
    one = rich_classifier()
    other = Forest(one.arrays, **one.metadata | {"classes": ["ape", "bee", "dog"]})
    with pytest.raises(ValueError, match="differ in classes"):
        Forest.concatenate([one, other])
    with pytest.raises(ValueError, match="empty"):
        Forest.concatenate([])


@pytest.mark.parametrize("make", [rich_forest, rich_classifier])
def test_a_tree_taken_out_predicts_alone(make):
    forest = make()
    X = table(forest)
    leaves = forest.apply(X)
    values = oracles.leaf_values(forest)
    for i, tree in enumerate(forest):
        assert len(tree) == 1
        start = forest.tree_start[i]
        own = values[-1 - forest.child[start + leaves[:, i]]]
        np.testing.assert_allclose(tree.response(X), own + forest.baseline, rtol=1e-12)
        np.testing.assert_array_equal(tree.apply(X)[:, 0], leaves[:, i])
        np.testing.assert_array_equal(forest[i - len(forest)].response(X), tree.response(X))
    assert i == len(forest) - 1


def test_slices_are_views():
    forest = rich_forest()
    X = table(forest)
    for part, trees in ((forest[1:3], [1, 2]), (forest[:-1], [0, 1, 2]), (forest[2:], [2, 3])):
        assert len(part) == len(trees)
        expected = np.mean([oracles.response(forest[t], X) for t in trees], axis=0)
        np.testing.assert_allclose(part.response(X), expected, rtol=1e-12)
        np.testing.assert_array_equal(part.apply(X), forest.apply(X)[:, trees])
        for name in ("child", "node_weight", "threshold", "direction", "gain", "value", "dense"):
            assert np.shares_memory(getattr(part, name), getattr(forest, name)), name
    assert len(forest[2:2]) == len(forest[3:1]) == 0


@pytest.mark.parametrize("index", [4, -5, slice(None, None, 2), slice(None, None, -1)])
def test_an_index_out_of_range_is_refused(index):
    with pytest.raises(IndexError):
        rich_forest()[index]


@pytest.mark.parametrize("make", [rich_forest, rich_classifier])
def test_compact_drops_what_no_tree_uses(make):
    whole = make()
    X = table(whole)
    for part in (whole, whole[1], whole[2:]):
        small = part.compact()
        assert small.response(X).tobytes() == part.response(X).tobytes()
        used = np.unique(part.direction[part.direction >= part.n_features])
        kinds = (len(small.box_corner), len(small.sparse_start) - 1, len(small.dense))
        assert sum(kinds) == len(used)
        rows = np.unique(-1 - part.child[part.child < 0])
        n_values = len(small.value_start) - 1 if len(part.value_start) else len(small.value) // 3
        assert n_values == len(set(rows.tolist()) | set(range(part.n_shared_values)))
        assert_same(small, small.compact())
        Forest(small.arrays, **small.metadata)  # still sound
        np.testing.assert_array_equal(small.directions().toarray(), part.directions().toarray())


# ----------------------------------------------------------------------------- looking at trees


def test_sizes_are_as_defined():
    rng = np.random.default_rng(5)
    parts = [random_forest(rng, n_splits=n, n_trees=2) for n in (0, 1, 5, 30)]
    forest = Forest.concatenate(parts)

    def depth(child, node=0):
        if child[node] < 0:
            return 0
        return 1 + max(depth(child, child[node]), depth(child, child[node] + 1))

    trees = [forest.child[a:b] for a, b in zip(forest.tree_start[:-1], forest.tree_start[1:])]
    assert forest.max_depth.tolist() == [depth(child) for child in trees]
    assert forest.n_leaves.tolist() == [(child < 0).sum() for child in trees]
    assert forest.n_nodes == sum(len(child) for child in trees)
    assert forest.nbytes == sum(getattr(forest, name).nbytes for name in ARRAYS)
    assert "8 trees" in repr(forest) and "MiB" in repr(forest)


def test_directions_are_rows_of_a_matrix():
    forest = rich_forest(n_each=8)
    n_codes = 36 + 3 * 8
    expected = [oracles.direction_weights(forest, code) for code in range(n_codes)]
    matrix = forest.directions(range(n_codes))
    np.testing.assert_array_equal(matrix.toarray(), expected)
    assert matrix.nnz == np.count_nonzero(expected)
    of_splits = np.array(expected)[forest.direction]
    np.testing.assert_array_equal(forest.directions().toarray(), of_splits)


@pytest.mark.parametrize("codes", [[48], [-1], [0, 2**31 - 1], [-(2**31)], [0.5]])
def test_directions_refuses_codes_of_nothing(codes):
    stump = {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [0], "direction": [0]}
    stump |= {"value": [0, 1], "dense": np.ones((47, 1))}
    forest = Forest(stump, n_features=1, n_outputs=1, task="regression")
    assert forest.directions([0, 47]).shape == (2, 1)
    assert forest.directions([]).shape == (0, 1)
    with pytest.raises(ValueError, match="codes"):
        forest.directions(codes)


def test_importances_are_as_defined():
    forest = rich_forest(n_each=8, n_trees=5)
    impurity, count = np.zeros(36), np.zeros(36)
    for tree in forest:
        own = np.zeros(36)
        for code, gain in zip(tree.direction, tree.gain):
            weights = abs(oracles.direction_weights(forest, code))
            own += gain * weights
            count += weights != 0
        impurity += own / own.sum()
    np.testing.assert_allclose(forest.feature_importances(), impurity / 5, rtol=1e-6)
    np.testing.assert_allclose(forest.feature_importances("count"), count / count.sum(), rtol=1e-9)


def test_importances_of_mixtures_are_independent_of_units():
    """Weights in units of 1 / spread count as numbers; axes and boxes have no units to lose."""
    rng = np.random.default_rng(0)
    plain = random_forest(rng, (2, 3), n_each=4, n_trees=5)
    spread = np.array([1, 1e-12, 1e12, 1e-3, 1, 7e4])
    arrays = plain.arrays | {"spread": spread}
    arrays["sparse_weight"] = plain.sparse_weight / spread[plain.sparse_feature]
    arrays["dense"] = plain.dense / spread
    scaled = Forest(arrays, **plain.metadata)
    for kind in ("impurity", "count"):
        np.testing.assert_allclose(
            scaled.feature_importances(kind), plain.feature_importances(kind), rtol=1e-5
        )
        assert plain.feature_importances(kind).min() > 0.01


def test_rows_are_scaled_before_they_are_walked():
    """In float64: a feature near 1e9 keeps its last digits."""
    plain = rich_forest()
    rng = np.random.default_rng(0)
    Z = table(plain, 60)
    offset = 1e9 * rng.random(36).round(3)
    scale = 2.0 ** rng.integers(-3, 4, 36)
    forest = Forest(plain.arrays | {"offset": offset, "scale": scale}, **plain.metadata)
    X = np.round(Z * 64) / 64 / scale + offset
    Z = np.float32((X - offset) * scale)
    np.testing.assert_array_equal(forest.apply(X), plain.apply(Z))
    np.testing.assert_array_equal(forest.response(X), plain.response(Z))
    np.testing.assert_array_equal(forest[1:].response(X), plain[1:].response(Z))
    both = Forest.concatenate([forest[:1], forest[1:]])
    np.testing.assert_array_equal(both.offset, offset)
    far = forest.response(np.full((1, 36), 1e300))
    assert np.isfinite(far).all()
    other = Forest(forest.arrays | {"scale": scale * 2}, **forest.metadata)
    with pytest.raises(ValueError, match="differ in scale"):
        Forest.concatenate([forest, other])


@pytest.mark.parametrize("name", ["offset", "scale"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0, 0.0])
def test_a_corrupt_scale_is_refused(name, value):
    forest = rich_forest()
    units = {"offset": np.zeros(36), "scale": np.ones(36)}
    units[name] = np.full(36, value)
    if name == "offset" and np.isfinite(value):
        Forest(forest.arrays | units, **forest.metadata)
        return
    with pytest.raises(ValueError, match=name):
        Forest(forest.arrays | units, **forest.metadata)


def test_concatenate_refuses_another_spread():
    one = rich_classifier()
    other = Forest(one.arrays | {"spread": one.spread + 1}, **one.metadata)
    with pytest.raises(ValueError, match="differ in spread"):
        Forest.concatenate([one, other])


@pytest.mark.parametrize("spread", [np.ones(35), np.full(36, np.nan), -np.ones(36), np.zeros(36)])
def test_a_corrupt_spread_is_refused(spread):
    forest = rich_classifier()
    with pytest.raises(ValueError, match="spread"):
        Forest(forest.arrays | {"spread": spread}, **forest.metadata)


def test_importances_of_trees_without_splits_or_gain_are_zero():
    stump = {"tree_start": [0, 1], "child": [-1], "threshold": [], "direction": [], "value": [1]}
    forest = Forest(stump, n_features=3, n_outputs=1, task="regression")
    for kind in ("impurity", "count"):
        np.testing.assert_array_equal(forest.feature_importances(kind), np.zeros(3))


# ----------------------------------------------------------------------------- copies and files


@pytest.mark.parametrize("make", [rich_forest, rich_classifier])
def test_copies_and_files_are_the_same_forest(make, tmp_path):
    forest = make()
    X = table(forest)
    forest.response(X)  # with whatever is cached
    forest.save(tmp_path / "forest.npz")
    forest.save(tmp_path / "folder", layout="folder")
    copies = {
        "pickle": pickle.loads(pickle.dumps(forest)),
        "protocol 2": pickle.loads(pickle.dumps(forest, protocol=2)),
        "deepcopy": copy.deepcopy(forest),
        "copy": copy.copy(forest),
        "file": Forest.load(tmp_path / "forest.npz"),
        "folder": Forest.load(tmp_path / "folder"),
        "mmap": Forest.load(str(tmp_path / "folder"), mmap_mode="r"),
    }
    for name, other in copies.items():
        assert_same(forest, other)
        assert other.response(X).tobytes() == forest.response(X).tobytes(), name
    assert not np.shares_memory(copies["deepcopy"].child, forest.child)


def test_real_weights_survive_a_file(tmp_path):
    rng = np.random.default_rng(0)
    forest = rich_forest()
    arrays = forest.arrays
    for name in ("threshold", "gain", "value", "sparse_weight", "dense", "baseline"):
        arrays[name] = rng.normal(size=arrays[name].shape)
    arrays["node_weight"] = rng.random(forest.n_nodes) + 2.0**40
    arrays["threshold"][:4] = [-0.0, 0.0, 1e-45, 3.4e38]
    forest = Forest(arrays, **forest.metadata | {"steepness": 0.1})
    forest.save(tmp_path / "forest.npz")
    assert_same(forest, Forest.load(tmp_path / "forest.npz"))
    assert_same(forest, pickle.loads(pickle.dumps(forest)))


def test_a_mapped_forest_reads_from_the_file(tmp_path):
    forest = rich_forest()
    forest.save(tmp_path / "folder", layout="folder")
    mapped = Forest.load(tmp_path / "folder", mmap_mode="r")
    for name in ARRAYS:
        array = getattr(mapped, name)
        if array.size == 0:
            continue  # an empty file cannot be mapped
        assert not array.flags.writeable, name
        while isinstance(array, np.ndarray):
            array = array.base
        assert isinstance(array, mmap.mmap), name


def test_a_file_cannot_be_mapped(tmp_path):
    rich_forest().save(tmp_path / "forest.npz")
    with pytest.raises(ValueError, match="folder"):
        Forest.load(tmp_path / "forest.npz", mmap_mode="r")


def test_a_folder_can_be_written_over(tmp_path):
    """Nothing of the forest before is left: neither its labels nor its arrays."""
    rich_classifier().save(tmp_path, layout="folder")
    forest = rich_forest()
    forest.save(tmp_path, layout="folder")
    assert_same(forest, Forest.load(tmp_path))


def test_a_folder_of_other_arrays_is_left_alone(tmp_path):
    """A user's array is neither deleted nor written over; refusing the folder is fine too."""
    precious = np.arange(5)
    np.save(tmp_path / "precious.npy", precious)
    try:
        rich_forest().save(tmp_path, layout="folder")
    except (ValueError, OSError):
        pass
    np.testing.assert_array_equal(np.load(tmp_path / "precious.npy"), precious)


def test_a_mapped_forest_can_be_saved_where_it_came_from(tmp_path):
    forest = rich_forest()
    forest.save(tmp_path, layout="folder")
    Forest.load(tmp_path, mmap_mode="r").save(tmp_path, layout="folder")
    assert_same(forest, Forest.load(tmp_path))


def test_an_unknown_layout_is_refused(tmp_path):
    with pytest.raises(ValueError, match="zip"):
        rich_forest().save(tmp_path / "forest", layout="zip")


def test_no_pickle_is_in_a_file(tmp_path):
    forest = rich_classifier()
    forest = Forest(forest.arrays, **forest.metadata | {"classes": np.array(list("abc"), object)})
    forest.save(tmp_path / "forest.npz")
    with np.load(tmp_path / "forest.npz", allow_pickle=False) as file:
        for name in file.files:
            assert file[name].dtype != object
    assert Forest.load(tmp_path / "forest.npz").classes.tolist() == ["a", "b", "c"]


def test_labels_of_mixed_types_are_refused(tmp_path):
    """Not turned into strings behind the user's back."""
    forest = rich_classifier()
    mixed = np.array([1, "b", 2.5], dtype=object)
    forest = Forest(forest.arrays, **forest.metadata | {"classes": mixed})
    with pytest.raises(TypeError, match="mixed|one kind"):
        forest.save(tmp_path / "forest.npz")


dtypes = st.sampled_from(["i1", "u1", "i4", "i8", "f4", "f8"])


@fixed
@given(
    dtypes.flatmap(
        lambda dtype: hnp.arrays(
            dtype, hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=9)
        )
    )
)
def test_narrow_arrays_are_the_same_numbers(array):
    (name, small), *rest = narrow({"x": array}).items()
    assert not rest
    assert small.nbytes <= array.nbytes
    (back,) = widen({name: small}).values()
    assert back.astype(array.dtype).tobytes() == array.tobytes()


@fixed
@given(
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=20),
    st.sampled_from([np.int32, np.int64, np.float32, np.float64]),
    st.booleans(),
)
def test_narrow_whole_numbers_are_the_same_numbers(numbers, dtype, rising):
    array = np.cumsum(np.abs(numbers)) if rising else np.array(numbers)
    array = array.astype(dtype)
    ((name, small),) = narrow({"x": array}).items()
    (back,) = widen({name: small}).values()
    assert back.astype(dtype).tobytes() == array.tobytes()


def test_narrow_is_narrow():
    arrays = {
        "bytes": np.arange(256, dtype=np.int32)[::-1],
        "rising": np.arange(100_000, dtype=np.int64),
        "whole": np.array([1000, -2], dtype=np.float64),
        "halves": np.array([0.5, -1.25], dtype=np.float32),
        "thirds": np.array([1 / 3], dtype=np.float32),
        "minus zero": np.array([-0.0, 1], dtype=np.float32),
    }
    assert {name: array.dtype.itemsize for name, array in narrow(arrays).items()} == {
        "bytes": 1,
        "delta:rising": 1,
        "whole": 2,
        "halves": 2,
        "thirds": 4,
        "minus zero": 2,
    }


# ------------------------------------------------------------------------------- corrupt arrays


def changed(forest, name, index, value):
    """The arrays of a forest with one entry changed."""
    array = getattr(forest, name).astype(float if isinstance(value, float) else np.int64)
    array[index] = value
    return forest.arrays | {name: array}


def longer(forest, name):
    """The arrays of a forest with one array an entry (or row) longer."""
    array = getattr(forest, name)
    return forest.arrays | {name: np.concatenate([array, array[-1:]])}


def shorter(forest, name):
    """The arrays of a forest with one array an entry (or row) shorter."""
    return forest.arrays | {name: getattr(forest, name)[:-1]}


TREE = {
    "tree_start": [0, 7, 10],
    "child": [1, 3, 5, -1, -2, -3, -4, 1, -1, -2],
    "threshold": [0, 1, 2, 3],
    "direction": [0, 1, 2, 3],
    "value": [1, 2, 3, 4],
}


def tree(**arrays):
    return Forest(TREE | arrays, n_features=4, n_outputs=1, task="regression")


@pytest.mark.parametrize(
    "why, arrays, message",
    [
        ("child beyond the tree", {"child": [1, 3, 7, -1, -2, -3, -4, 1, -1, -2]}, "out of range"),
        ("child far beyond", {"child": [1, 3, 2001, -1, -2, -3, -4, 1, -1, -2]}, "out of range"),
        ("last child half out", {"child": [1, 3, 6, -1, -2, -3, -4, 1, -1, -2]}, "out of range"),
        (
            "child is the root",
            {"child": [1, 0, 5, -1, -2, -3, -4, 1, -1, -2]},
            "node . of tree 0 comes before",
        ),
        (
            "cycle of one",
            {"child": [1, 1, 5, -1, -2, -3, -4, 1, -1, -2]},
            "node . of tree 0 comes before",
        ),
        (
            "cycle of two",
            {"child": [1, 5, 3, -1, -2, 1, -4, 1, -1, -2]},
            "node . of tree 0 comes before",
        ),
        (
            "child before parent",
            {"child": [3, -1, -2, 5, -3, 1, -4, 1, -1, -2]},
            "node 5 of tree 0 comes before",
        ),
        ("shared child", {"child": [1, 5, 5, -1, -2, -3, -4, 1, -1, -2]}, "do not form trees"),
        ("lost pair", {"child": [1, -1, 5, -1, -2, -3, -4, 1, -1, -2]}, "do not form trees"),
        ("leaf in place of root", {"child": [-1, 3, 5, -1, -2, -3, -4, 1, -1, -2]}, "form trees"),
        ("even child", {"child": [2, 3, 5, -1, -2, -3, -4, 1, -1, -2]}, "out of range"),
        ("leaf beyond the values", {"child": [1, 3, 5, -1, -2, -3, -5, 1, -1, -2]}, "no value"),
        ("smallest int", {"child": [1, 3, 5, -1, -2, -3, -(2**31), 1, -1, -2]}, "no value"),
        ("too large for int32", {"child": [1, 3, 5, -1, -2, -3, -(2**40), 1, -1, -2]}, "int32"),
        ("half a node", {"child": [1, 3, 5, -1, -2, -3, -4, 1, -1, -1.5]}, "child .* int32"),
        ("not a number", {"child": [1, 3, 5, -1, -2, -3, np.nan, 1, -1, -2]}, "child .* int32"),
        ("strings", {"threshold": ["a", "b", "c", "d"]}, "threshold has dtype"),
        ("objects", {"threshold": [None, 1, 2, 3]}, "threshold has dtype"),
        ("complex", {"threshold": [1j, 1, 2, 3]}, "threshold has dtype"),
        ("matrix", {"threshold": [[0, 1, 2, 3]]}, "threshold has 2 axes"),
        ("even tree", {"tree_start": [0, 6, 10]}, "odd number of nodes"),
        ("empty tree", {"tree_start": [0, 7, 7, 10]}, "odd number of nodes"),
        ("trees beyond the nodes", {"tree_start": [0, 7, 12]}, "tree_start must rise"),
        ("trees not from 0", {"tree_start": [1, 7, 10]}, "tree_start must rise"),
        ("trees backwards", {"tree_start": [0, 7, 5, 10]}, "tree_start must rise"),
        ("no trees", {"tree_start": []}, "tree_start must rise"),
        ("direction beyond", {"direction": [0, 1, 2, 4]}, "direction contains codes outside"),
        ("direction negative", {"direction": [0, 1, -1, 3]}, "direction contains codes outside"),
        ("split too many", {"threshold": [0, 1, 2, 3, 4]}, "threshold needs one entry"),
        ("direction missing", {"direction": [0, 1, 2]}, "direction needs one entry"),
        ("gain missing", {"gain": [0, 1, 2]}, "gain needs one entry"),
        ("node weight missing", {"node_weight": [1, 2, 3]}, "node_weight needs one entry"),
        ("nan threshold", {"threshold": [0, 1, np.nan, 3]}, "threshold contains values"),
        ("inf threshold", {"threshold": [0, 1, np.inf, 3]}, "threshold contains values"),
        ("threshold beyond float32", {"threshold": [0, 1, 1e39, 3]}, "threshold contains values"),
        ("nan value", {"value": [1, np.nan, 3, 4]}, "value contains values"),
        ("nan gain", {"gain": [0, 1, 2, np.nan]}, "gain contains values"),
        ("inf node weight", {"node_weight": [np.inf] * 10}, "node_weight contains values"),
        ("nan baseline", {"baseline": [np.nan]}, "baseline contains values"),
        ("nan dense", {"dense": [[0, 0, 0, np.nan]]}, "dense contains values"),
        ("dense of other width", {"dense": [[0, 0, 0]]}, "dense does not have n_features"),
        ("two baselines", {"baseline": [0, 0]}, "baseline needs one entry"),
        ("bags beyond", {"bag_start": [0, 3]}, "bag_start must rise"),
        ("empty bag", {"bag_start": [0, 0, 2]}, "bag has no trees"),
        ("bags not from 0", {"bag_start": [1, 2]}, "bag_start must rise"),
        ("unknown array", {"thresholds": [0]}, "unknown arrays"),
    ],
)
def test_corrupt_trees_are_refused(why, arrays, message):
    assert len(tree()) == 2
    with pytest.raises(ValueError, match=message):
        tree(**arrays)


@pytest.mark.parametrize("child", [2**31 - 1, 2**31 - 3, 2**30 + 1])
def test_a_large_child_is_refused_without_much_memory(child):
    """2^31 - 1 + 1 must not wrap around, and no table of 2^30 entries be made."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="out of range"):
            tree(child=[1, 3, child, -1, -2, -3, -4, 1, -1, -2])
        assert tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["tree_start", "child", "threshold", "direction", "value"])
def test_a_missing_array_is_refused(name):
    arrays = {key: array for key, array in TREE.items() if key != name}
    with pytest.raises(ValueError, match=name):
        Forest(arrays, n_features=4, n_outputs=1, task="regression")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"task": "clustering"}, "task"),
        ({"aggregate": "median"}, "aggregate"),
        ({"link": "probit"}, "link"),
        ({"gate": "fuzzy"}, "gate"),
        ({"gate": "sigmoid", "steepness": np.nan}, "steepness"),
        ({"gate": "sigmoid", "steepness": np.inf}, "steepness"),
        ({"n_features": 0}, "n_features"),
        ({"n_features": -4}, "n_features|feature_shape"),
        ({"n_features": 2**31}, "n_features"),
        ({"n_outputs": 0}, "n_outputs"),
        ({"feature_shape": (2, 3)}, "feature_shape"),
        ({"feature_shape": (-2, -2)}, "feature_shape"),
        ({"feature_shape": ()}, "feature_shape"),
        ({"feature_shape": (1,) * 8 + (4,)}, "feature_shape"),
        ({"wrap": (True, True)}, "wrap"),
        ({"unordered": ()}, "unordered"),
        ({"n_shared_values": 5}, "n_shared_values"),
        ({"n_shared_values": -1}, "n_shared_values"),
        ({"task": "classification"}, "classes"),
        ({"task": "classification", "classes": [1, 2]}, "classes"),
    ],
)
def test_a_corrupt_head_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        Forest(TREE, **{"n_features": 4, "n_outputs": 1, "task": "regression"} | change)


def test_a_shape_without_axes_is_refused():
    """Its product is 1, as many as there are features."""
    stump = {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [0], "direction": [0]}
    with pytest.raises(ValueError, match="feature_shape"):
        Forest(stump | {"value": [0, 1]}, n_features=1, n_outputs=1, task="regression",
               feature_shape=())  # fmt: skip


@pytest.mark.parametrize(
    "name, index, value, message",
    [
        ("box_corner", 0, 36, "box_corner is out of range"),
        ("box_corner", 0, -1, "box_corner is out of range"),
        ("box_other", 1, 36, "box_other is out of range"),
        ("box_other", 1, -2, "box_other is out of range"),
        ("box_size", (0, 1), 4, "box_size is out of range"),
        ("box_size", (0, 0), 0, "box_size is out of range"),
        ("box_size", (0, 2), -1, "box_size is out of range"),
        ("box_size", (0, 0), 2**31 - 1, "box_size is out of range"),
        ("box_subset", (0, 0), 0b1000_0001, "box_subset has bits"),
        ("box_subset", (0, 0), 0, "box_subset does not match"),
        ("sparse_start", 0, 1, "sparse_start must rise"),
        ("sparse_start", -1, 10**6, "sparse_start must rise"),
        ("sparse_start", 1, -1, "sparse_start must rise"),
        ("sparse_feature", 0, 36, "sparse_feature is out of range"),
        ("sparse_feature", 0, -1, "sparse_feature is out of range"),
        ("sparse_weight", 0, np.inf, "sparse_weight contains values"),
        ("value_start", 1, 10**9, "value_start must rise"),
        ("value_start", 2, 0, "value_start must rise"),
        ("value_start", -1, 0, "value_start must rise"),
        ("value_index", 0, 3, "value_index is out of range"),
        ("value_index", 0, -1, "value_index is out of range"),
    ],
)
def test_corrupt_directions_and_values_are_refused(name, index, value, message):
    forest = rich_classifier()
    with pytest.raises(ValueError, match=message):
        Forest(changed(forest, name, index, value), **forest.metadata)


def test_a_box_that_leaves_the_array_is_refused():
    """Along the second axis, which does not wrap; the first does, and takes the same box."""
    box = {"box_corner": [3], "box_other": [-1], "box_size": [[2, 2]]}
    meta = {"n_features": 4, "n_outputs": 1, "task": "regression", "feature_shape": (2, 2)}
    with pytest.raises(ValueError, match="extends beyond the array"):
        Forest(TREE | box, **meta, wrap=(True, False))
    with pytest.raises(ValueError, match="extends beyond the array"):
        Forest(TREE | box, **meta, wrap=(False, True))
    assert len(Forest(TREE | box, **meta, wrap=(True, True))) == 2
    with pytest.raises(ValueError, match="extends beyond the array"):
        other = {"box_corner": [0], "box_other": [1], "box_size": [[1, 2]]}
        Forest(TREE | other, **meta)
    with pytest.raises(ValueError, match="unordered"):
        one = {"box_corner": [1], "box_other": [-1], "box_size": [[1, 1]], "box_subset": [[1]]}
        Forest(TREE | one, **meta, unordered=(False, True))


# A dense row more or less, and an empty row of ragged values more, are another sound forest.
RESIZED = [
    *((shorter, name) for name in ARRAYS if name != "dense"),
    *((longer, name) for name in ARRAYS if name not in ("dense", "sparse_start", "value_start")),
]


@pytest.mark.parametrize("resize, name", RESIZED)
def test_an_array_of_another_length_is_refused(resize, name):
    forest = rich_classifier()
    units = {"offset": np.arange(36.0), "scale": np.full(36, 0.5)}
    forest = Forest(forest.arrays | units, **forest.metadata)
    assert len(getattr(forest, name)) > 1
    with pytest.raises(ValueError, match=r"\w"):
        Forest(resize(forest, name), **forest.metadata)


def use(forest):
    """Everything that walks over a forest."""
    X = table(forest, 5)
    forest.response(X)
    forest.predict(table(forest, 5, dtype=np.uint8))
    forest.decision_path(X)
    assert (forest.max_depth <= forest.n_leaves).all()
    forest.feature_importances()
    forest.directions()
    forest.compact().response(X)
    pickle.loads(pickle.dumps(forest[1:]))


NUMBERS = [-(2**31), -1000, -37, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7, 35, 36, 37, 48, 255]
REALS = [*map(float, NUMBERS), np.nan, np.inf, -np.inf, 3e38, -3e38, 1e-45, 0.5]


@fixed
@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(ARRAYS)),
            st.integers(0, 10**6),
            st.sampled_from(NUMBERS),
            st.sampled_from(REALS),
        ),
        min_size=1,
        max_size=3,
    ),
    st.booleans(),
)
def test_random_corruption_is_refused_or_harmless(changes, classifier):
    """Any few entries changed: a ValueError, or a forest that can be used."""
    forest = rich_classifier() if classifier else rich_forest()
    arrays = forest.arrays
    for name, at, number, real in changes:
        array = arrays[name].copy()
        if array.dtype == np.uint8:
            number %= 256
        if array.size:
            array.flat[at % array.size] = real if array.dtype.kind == "f" else number
        arrays[name] = array
    try:
        corrupt = Forest(arrays, **forest.metadata)
    except ValueError as error:
        assert str(error)
    else:
        use(corrupt)


WRAPPING = [2**62, 2**63 - 1, -(2**63), -1]  # differences of neighbours overflow to positive ones


@pytest.mark.parametrize("name", ["tree_start", "value_start", "sparse_start", "bag_start"])
def test_starts_whose_differences_overflow_are_refused(name):
    forest = Forest.concatenate([rich_classifier(seed) for seed in range(2)])
    starts = np.arange(len(forest) + 1) if name == "bag_start" else getattr(forest, name).copy()
    starts[1:5] = WRAPPING
    with pytest.raises(ValueError, match=f"{name} must rise"):
        Forest(forest.arrays | {name: starts}, **forest.metadata)


def test_a_box_whose_end_overflows_is_refused():
    """corner + size is beyond int32, in which both are stored."""
    n = 2**31 - 100
    box = {"box_corner": [n - 1], "box_other": [-1], "box_size": [[2**30 - 1]]}
    with pytest.raises(ValueError, match="extends beyond the array"):
        Forest(TREE | box, n_features=n, n_outputs=1, task="regression")
    box["box_corner"], box["box_size"] = [0], [[n]]
    with pytest.raises(ValueError, match="a box has 2147483548 entries"):
        Forest(TREE | box, n_features=n, n_outputs=1, task="regression")


def test_a_sparse_row_may_name_features_repeatedly():
    """With half precision and dense rows, the scratch memory of predict was too small for it."""
    rng = np.random.default_rng(0)
    n = 5000  # entries of a row of 4 features
    arrays = TREE | {
        "direction": [4, 4, 5, 5],
        "sparse_start": [0, n],
        "sparse_feature": rng.integers(4, size=n),
        "sparse_weight": rng.integers(-3, 4, size=n),
        "dense": np.ones((1, 4)),
    }
    options = {"n_features": 4, "n_outputs": 1, "task": "regression"}
    half = Forest(arrays, weight_dtype="float16", **options)
    assert half.router.max_terms >= n
    X = table(half)
    full = Forest(arrays, **options)
    np.testing.assert_array_equal(half.response(X), full.response(X))
    weights = np.bincount(arrays["sparse_feature"], arrays["sparse_weight"])
    np.testing.assert_array_equal(half.directions([4]).toarray()[0], weights)


@pytest.mark.parametrize(
    "change, arrays",
    [
        ({"n_outputs": 2**31 - 1}, {}),
        ({"n_outputs": 2**31 - 1}, {"value_start": [0, 1, 2, 3, 4], "value_index": [0] * 4}),
        (
            {"n_features": 2**31 - 1, "unordered": (True,)},
            {"box_corner": np.zeros(1000), "box_other": np.zeros(1000)},
        ),
        ({"n_features": 2**31 - 1}, {"offset": [0.0], "scale": [1.0]}),
    ],
)
def test_metadata_make_no_large_arrays(change, arrays):
    options = {"n_features": 4, "n_outputs": 1, "task": "regression"} | change
    tracemalloc.start()
    try:
        with pytest.raises(ValueError):
            Forest(TREE | arrays, **options)
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("n_features", [np.inf, np.nan, "4", None, 4.5, [4], 10**400])
def test_counts_that_are_no_whole_numbers_are_refused(n_features):
    with pytest.raises(ValueError, match="n_features"):
        Forest(TREE, n_features=n_features, n_outputs=1, task="regression")
    with pytest.raises(ValueError, match="steepness"):
        Forest(TREE, n_features=4, n_outputs=1, task="regression", steepness=10**400)


# -------------------------------------------------------------------------------- corrupt files


def rewritten(path, header=None, **arrays):
    """Write the file again with changes; None drops an array."""
    with np.load(path, allow_pickle=False) as file:
        old = {name: file[name] for name in file.files}
    head = json.loads(str(old["header"]))
    if header:
        header(head)
    new = {"header": np.array(json.dumps(head)), **arrays}
    np.savez(path, **{k: v for k, v in (old | new).items() if v is not None})


def test_a_later_format_is_refused(tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    rewritten(path, header=lambda head: head.update(format=99))
    with pytest.raises(ValueError, match="format 99"):
        Forest.load(path)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda head: head.pop("forest"),
        lambda head: head.pop("format"),
        lambda head: head["forest"].pop("n_features"),
        lambda head: head["forest"].update(n_features="many"),
        lambda head: head["forest"].update(n_features=None),
        lambda head: head["forest"].update(feature_shape=36),
        lambda head: head["forest"].update(steepness=None),
        lambda head: head["forest"].update(wrap="no"),
        lambda head: head["forest"].update(colour="red"),
        lambda head: head["forest"].update(n_outputs=[3]),
        lambda head: head.update(forest=[1, 2]),
    ],
)
def test_a_spoilt_header_is_refused(spoil, tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    rewritten(path, header=spoil)
    with pytest.raises(ValueError):
        Forest.load(path)


@pytest.mark.parametrize("lost", ["tree_start", "child", "value", "threshold", "direction"])
def test_a_file_that_lost_an_array_is_refused(lost, tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    rewritten(path, **{lost: None, f"delta:{lost}": None})
    with pytest.raises(ValueError, match=lost):
        Forest.load(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"\x93NUMPY\x01\x00", b"\x80\x04K\x01.", b"{}", bytes(range(256)) * 9]
)
def test_another_file_is_refused(content, tmp_path):
    path = tmp_path / "forest.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a saved forest"):
        Forest.load(path)


def test_no_file_is_no_forest(tmp_path):
    with pytest.raises(FileNotFoundError):
        Forest.load(tmp_path / "nothing.npz")
    with pytest.raises((FileNotFoundError, ValueError)):
        Forest.load(tmp_path)


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "forest.npz"
    rich_classifier().save(path)
    content = path.read_bytes()
    for length in range(0, len(content), max(1, len(content) // 40)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="not a saved forest"):
            Forest.load(path)


def test_flipped_bits_in_a_file_are_refused_or_harmless(tmp_path):
    path = tmp_path / "forest.npz"
    forest = rich_classifier()
    forest.save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.integers(len(content), size=150):
        spoilt = bytearray(content)
        spoilt[at] ^= 1 << rng.integers(8)
        path.write_bytes(spoilt)
        try:
            loaded = Forest.load(path)
        except ValueError:
            refused += 1
        else:
            assert_same(forest, loaded)  # in a part of the file that nobody reads
    assert refused > 100


@pytest.mark.parametrize("mmap_mode", [None, "r"])
def test_a_spoilt_folder_is_refused(mmap_mode, tmp_path):
    forest = rich_classifier()
    forest.save(tmp_path, layout="folder")
    for name in ("child.npy", "header.json", "classes.npy", "value_start.npy"):
        content = (tmp_path / name).read_bytes()
        for spoilt in (content[: len(content) // 2], b"", None):
            if spoilt is None:
                (tmp_path / name).unlink()
            else:
                (tmp_path / name).write_bytes(spoilt)
            with pytest.raises((ValueError, FileNotFoundError)):
                Forest.load(tmp_path, mmap_mode=mmap_mode)
        (tmp_path / name).write_bytes(content)
    assert_same(forest, Forest.load(tmp_path, mmap_mode=mmap_mode))


def test_a_stranger_in_a_file_is_refused_and_beside_the_files_of_a_folder_ignored(tmp_path):
    forest = rich_forest()
    forest.save(tmp_path, layout="folder")
    np.save(tmp_path / "stranger.npy", np.zeros(3))
    assert_same(forest, Forest.load(tmp_path))
    forest.save(tmp_path / "forest.npz")
    rewritten(tmp_path / "forest.npz", stranger=np.zeros(3))
    with pytest.raises(ValueError, match="stranger"):
        Forest.load(tmp_path / "forest.npz")


def test_objects_in_a_file_are_never_unpickled(tmp_path):
    rich_forest().save(tmp_path, layout="folder")
    np.save(tmp_path / "child.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle|object"):
        Forest.load(tmp_path)


# ---------------------------------------------------------------------- files of small size only


def write_archive(path, members, method=zipfile.ZIP_DEFLATED):
    """A zip archive of some bytes by name, with correct checksums."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def read_archive(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def npy(descr, shape, content=b""):
    """An npy file that declares what it may not contain."""
    head = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + content


def assert_refused_in_little_memory(path, match, limit=2**21):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=match) as info:
            Forest.load(path)
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()
    assert str(path) in str(info.value)


STRANGE_MEMBERS = {
    "name": ("stranger.npy", npy("|u1", (2**26,), bytes(2**26)), "would expand"),
    "small name": ("stranger.npy", npy("|u1", (2**23,), bytes(2**23)), "stranger"),
    "no array": ("notes.txt", b"", "notes.txt"),
    "no suffix": ("child", b"", "child"),
    "absolute": ("/etc/passwd.npy", npy("|u1", (1,), b"1"), "passwd"),
    "declared": ("dense.npy", npy("<f4", (2**20, 2**20), bytes(100)), "dense declares"),
    "overflowing": ("dense.npy", npy("<f4", (2**62, 4)), "dense declares"),
    "negative": ("dense.npy", npy("<f4", (-1, -1), bytes(4)), "dense declares"),
    "strings": ("classes.npy", npy("<U500000000", (0,)), "classes declares"),
    "one string": ("classes.npy", npy("<U500000000", (1,)), "classes declares"),
    "text": ("value.npy", npy("<U4", (1,), bytes(16)), "value has dtype"),
    "objects": ("child.npy", npy("|O", (1,), b"\x80\x04N."), "child has dtype object"),
    "records": ("value.npy", npy([("a", "<f4")], (1,), bytes(4)), "value has dtype"),
    "axes": ("value.npy", npy("<f4", (1, 1), bytes(4)), "value has dtype"),
    "version": ("value.npy", b"\x93NUMPY\x02\x00" + bytes(64), "another version"),
    "nested": ("value.npy", npy("<f4", (), bytes(4)).replace(b"()", b"(" * 300), "value|damaged"),
    "characters": ("classes.npy", npy("<U1", (3,), b"\xff" * 12), "characters that do not exist"),
    "differences": ("delta:value.npy", npy("<f4", (1,), bytes(4)), "value"),
}


@pytest.mark.parametrize("name, content, match", STRANGE_MEMBERS.values(), ids=STRANGE_MEMBERS)
def test_members_are_checked_before_they_are_decompressed(name, content, match, tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    members = read_archive(path) | {name: content}
    header = json.loads(str(np.load(path)["header"]))
    header["arrays"] = [
        member.removesuffix(".npy") for member in members if "header" not in member
    ]
    text = json.dumps(header)
    members["header.npy"] = npy(f"<U{len(text)}", (), text.encode("utf-32-le"))
    write_archive(path, members)
    assert_refused_in_little_memory(path, match)


def test_archives_that_expand_or_repeat_names_are_refused(tmp_path):
    path = tmp_path / "forest.npz"
    write_archive(path, {"header.npy": npy(f"<U{2**26}", (), bytes(2**28))})
    assert_refused_in_little_memory(path, "would expand to 268")
    rich_forest().save(path)
    members = read_archive(path)
    write_archive(path, members, zipfile.ZIP_BZIP2)
    assert_refused_in_little_memory(path, "another method than deflate")
    with pytest.warns(UserWarning, match="Duplicate"):
        with zipfile.ZipFile(path, "w") as archive:
            for name in [*members, "child.npy", "child.npy"]:
                archive.writestr(name, members.get(name, b""))
    assert_refused_in_little_memory(path, "same name")


def test_a_forest_that_compresses_beyond_the_limit_is_stored_uncompressed(tmp_path):
    """What `save` writes, `load` reads; here a million equal leaves."""
    n = 1_000_000
    stumps = {"tree_start": np.arange(n + 1), "child": np.full(n, -1), "threshold": []}
    stumps |= {"value": [0.5], "node_weight": np.full(n, 7)}
    forest = Forest(stumps, n_features=1, n_outputs=1, task="regression")
    forest.save(tmp_path / "forest.npz")
    assert (tmp_path / "forest.npz").stat().st_size < 5e6
    assert_same(forest, Forest.load(tmp_path / "forest.npz"))
    io._write_archive(tmp_path / "large.npz", "{}", {"value": np.zeros(20 * 2**20, np.uint8)})
    with zipfile.ZipFile(tmp_path / "large.npz") as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda head: head["forest"].update(n_features=np.inf),
        lambda head: head["forest"].update(n_features=10**400),
        lambda head: head["forest"].update(n_outputs=2**31 - 1),
        lambda head: head["forest"].update(n_shared_values=np.inf),
        lambda head: head["forest"].update(steepness=10**400),
        lambda head: head["forest"].update(feature_shape=[np.inf]),
        lambda head: head["forest"].update(task=["regression"]),
        lambda head: head["forest"].update(versions=5),
        lambda head: head.update(arrays=5),
        lambda head: head.update(arrays=[["child"]]),
        lambda head: head.update(format=[1]),
    ],
)
def test_damaged_headers_raise_errors_that_name_the_file(spoil, tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    rewritten(path, header=spoil)
    assert_refused_in_little_memory(path, "damaged|format")


def test_a_deeply_nested_header_is_refused(tmp_path):
    path = tmp_path / "forest.npz"
    text = "[" * 100_000
    np.savez_compressed(path, header=np.array(text))
    assert_refused_in_little_memory(path, "not a saved forest", 2**23)
    (tmp_path / "header.json").write_text(text)
    assert_refused_in_little_memory(tmp_path, "not a saved forest", 2**23)


@pytest.mark.parametrize("name", ["/etc/hostname", "../child", "child/../child", "", "header"])
def test_names_in_a_folder_are_no_paths(name, tmp_path):
    folder = tmp_path / "forest"
    rich_forest().save(folder, layout="folder")
    np.save(tmp_path / "child.npy", np.zeros(3))
    header = json.loads((folder / "header.json").read_text())
    header["arrays"].append(name)
    (folder / "header.json").write_text(json.dumps(header))
    assert_refused_in_little_memory(folder, "is not the name of an array")


def test_a_short_file_of_a_folder_is_refused_before_anything_is_allocated(tmp_path):
    rich_forest().save(tmp_path, layout="folder")
    (tmp_path / "node_weight.npy").write_bytes(npy("<f8", (2**40,), bytes(80)))
    assert_refused_in_little_memory(tmp_path, "node_weight declares")


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickles_are_recognised(protocol, tmp_path):
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "forest.joblib"
    path.write_bytes(pickle.dumps(rich_forest(), protocol=protocol))
    with pytest.raises(ValueError, match="not a saved forest; it looks like a pickle, .*joblib"):
        Forest.load(path)
    for compress in (0, 3, ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3)):
        joblib.dump(rich_forest(), path, compress=compress)
        with pytest.raises(ValueError, match="looks like a pickle"):
            skforest.load(path)


# ------------------------------------------------------------------------------- atomic writing


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path, monkeypatch):
    path = tmp_path / "forest.npz"
    old = rich_forest()
    old.save(path)
    path.chmod(0o640)

    def full(file, **arrays):
        file.write(b"half of it")
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space"):
        rich_forest(1).save(path)
    monkeypatch.undo()
    assert_same(old, Forest.load(path))
    (tmp_path / "link").symlink_to(path)
    new = rich_forest(1)
    new.save(tmp_path / "link")
    assert_same(new, Forest.load(path))
    assert (tmp_path / "link").is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for file in tmp_path.iterdir()) == ["forest.npz", "link"]
    with pytest.raises(IsADirectoryError):
        new.save(tmp_path)


# ------------------------------------------------------------------------- damaged estimators


@pytest.fixture(scope="module", params=["classifier", "regressor"])
def saved(request, tmp_path_factory):
    """A saved estimator, as bytes by name, and the rows it was fitted to."""
    X, y = load_iris(return_X_y=True)
    if request.param == "classifier":
        model = skforest.ManifoldForestClassifier(3, random_state=0).fit(X, y)
    else:
        model = skforest.ManifoldForestRegressor(3, random_state=0).fit(X, y.astype(float))
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    skforest.save(model, path)
    return path, X


@pytest.mark.parametrize(
    "spoil",
    [
        lambda head: head["state"].pop("n_features_in_"),
        lambda head: head["state"].pop("n_outputs_"),
        lambda head: head["state"].update(n_features_in_="4"),
        lambda head: head["state"].update(_is_1d=[]) or head["state"].pop("n_classes_", 0),
        lambda head: head["state"].update(feature_names_in_=None),
        lambda head: head["state"].update(
            a={"array": ["a"], "dtype": "<U500000000"}, n_outputs_=None
        ),
        lambda head: head["state"].update(a={"array": ["a"], "dtype": "<U500000000"}),
        lambda head: head["state"].update(a={"array": [0], "dtype": "O"}),
        lambda head: head["state"].update(a={"array": [300], "dtype": "u1"}),
        lambda head: head["state"].update(a={"items": [[[], 1]]}),
        lambda head: head["state"].update(a={"items": 1}),
        lambda head: head["state"].update(a=nested(800)),
        lambda head: head["state"].update(__class__="x"),
        lambda head: head.update(state=[]),
        lambda head: head.update(params=5),
        lambda head: head["forest"].update(task="clustering"),
    ],
)
def test_damaged_estimators_raise_errors_that_name_the_file(spoil, saved, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(saved[0].read_bytes())
    rewritten(path, header=spoil)
    head = json.loads(str(np.load(path)["header"]))
    if head["forest"]["task"] == "classification" and "_is_1d" in head["state"]:
        return  # classifiers do not read it
    with pytest.raises(ValueError, match="model.npz is damaged"):
        skforest.load(path)


def nested(depth):
    return [nested(depth - 1)] if depth else []


# ------------------------------------------------------------------------------- random damage


def damaged(content, rng):
    """Some bytes with a few of them changed, removed or repeated."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(max(1, len(content))))
        kind = rng.integers(4)
        if kind == 0:
            content[at : at + 1] = bytes([rng.integers(256)])
        elif kind == 1:
            content[at : at + 1] = bytes([content[at] ^ 1 << int(rng.integers(8))])
        elif kind == 2:
            content[at : at + int(rng.integers(1, 9))] = b""
        else:
            content[at:at] = content[at : at + int(rng.integers(1, 9))]
    return bytes(content)


def damage_files(seed, n, path):
    """Damage files n times; each must be refused with its name, or be of use."""
    rng = np.random.default_rng(seed)
    n_refused = 0
    for make in (rich_forest, rich_classifier):
        forest = make(seed)
        forest.save(path)
        whole, members = path.read_bytes(), read_archive(path)
        for i in range(n):
            if i % 4 == 0:
                path.write_bytes(damaged(whole, rng))
            else:  # with correct checksums
                name = list(members)[rng.integers(len(members))]
                name = name if i % 4 < 3 else "header.npy"
                write_archive(
                    path, members | {name: damaged(members[name], rng)}, zipfile.ZIP_STORED
                )
            try:
                loaded = Forest.load(path)
            except ValueError as error:
                assert str(path) in str(error)
                n_refused += 1
            else:
                if i % 4 == 0:
                    assert_same(forest, loaded)
                use(loaded)
    return n_refused


EXTREME = np.array([*WRAPPING, 2**31, 2**31 - 1, -(2**31), 2**32 + 1, 0, 1, -2, 7, 36, 255])


def damage_arrays(seed, n):
    """Damage arrays of forests n times; each must be refused, or be of use."""
    rng = np.random.default_rng(seed)
    n_refused = 0
    for i in range(n):
        forest = (rich_forest, rich_classifier)[i % 2](seed)
        arrays = forest.arrays
        for name in rng.choice(sorted(ARRAYS), rng.integers(1, 3), replace=False):
            array = arrays[name].copy()
            kind = rng.integers(6)
            if kind == 0 and array.size:
                array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
                array.flat[rng.integers(array.size, size=4)] = rng.choice(EXTREME, 4)
            elif kind == 1 and array.size > 5:
                array = array.astype(np.int64)
                array.flat[1:5] = WRAPPING
            elif kind == 2:
                array = array[: rng.integers(len(array) + 1)]
            elif kind == 3:
                array = np.concatenate([array, array[: rng.integers(len(array) + 1)]])
            elif kind == 4:
                array = rng.permutation(array)
            else:
                array = array.astype(rng.choice(["i1", "u8", "f2", "f8", "?", "U3", "O", "c8"]))
            arrays[name] = array
        try:
            other = Forest(arrays, **forest.metadata)
        except ValueError as error:
            assert str(error)
            n_refused += 1
        else:
            use(other)
    return n_refused


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:Reading .*npy:UserWarning")
@pytest.mark.filterwarnings("ignore:Casting complex:numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("seed, n", [(0, 150), pytest.param(1, 4_000, marks=pytest.mark.slow)])
def test_random_damage_is_refused_or_harmless(seed, n, tmp_path):
    assert damage_files(seed, n, tmp_path / "forest.npz") > n
    assert damage_arrays(seed, n) > n / 2


@pytest.mark.parametrize("kind", GATES)
def test_random_forests_are_sound(kind):
    """The makers of these tests make no corrupt forests, and no trivial ones."""
    for seed in range(5):
        forest = rich_forest(seed, gate=kind)
        assert len(random_directions(np.random.default_rng(seed), SHAPE, WRAP, UNORDERED, 4)) == 8
        use(forest)
        assert len(np.unique(forest.response(table(forest)), axis=0)) > 3
