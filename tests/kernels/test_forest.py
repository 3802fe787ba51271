"""The packed forest against definitions: predictions, joining, statistics."""

import pickle

import numpy as np
import oracles
import pytest
from forests import (
    SHAPE,
    UNORDERED,
    WRAP,
    random_directions,
    random_forest,
    rich_classifier,
    rich_forest,
    table,
    whole_table,
)
from makers import assert_same, use
from scipy.special import softmax

from skforest.forest import ARRAYS, Forest
from skforest.forest.statistics import labels_of, staged_responses

GATES = ["hard", "margin", "sigmoid"]


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


@pytest.mark.parametrize("n_bags", [1, 2])
@pytest.mark.parametrize("n_rows", [1, 7, 40, 600])
def test_linear_leaves_read_bytes_as_floats(n_rows, n_bags):
    arrays = {
        "tree_start": [0, 3, 6], "child": [1, -1, -2, 1, -3, -4], "threshold": [3, 5],
        "direction": [0, 1], "value": [1, 2, 3, 4], "slope_start": [0, 1, 2, 4, 5],
        "slope_feature": [0, 1, 0, 1, 1], "slope": [[1], [2], [3], [4], [5]],
        "bag_start": [0, 1, 2] if n_bags == 2 else [0, 2],
    }  # fmt: skip
    forest = Forest(arrays, n_features=2, n_outputs=1, task="regression", aggregate="sum")
    X = whole_table(np.random.default_rng(0), n_rows, 2, np.uint8)
    a, b = X.astype(float).T
    expected = np.where(a > 3, 2 + 2 * b, 1 + a) + np.where(b > 5, 4 + 5 * b, 3 + 3 * a + 4 * b)
    for dtype in (np.uint8, np.float32):
        np.testing.assert_allclose(forest.predict(X.astype(dtype)), expected / n_bags)


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


def test_concatenate_of_constant_and_linear_leaves():
    stump = {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [0.5], "direction": [0]}
    slopes = {"slope_start": [0, 1, 2], "slope_feature": [0, 1], "slope": [[1], [2]]}
    meta = {"n_features": 2, "n_outputs": 1, "task": "regression", "aggregate": "sum"}
    plain = Forest(stump | {"value": [1, 2]}, **meta)
    linear = Forest(stump | {"value": [4, 8]} | slopes, **meta)
    X = np.array([[0.0, 3], [1, 5]])
    for parts in ([plain, linear, plain], [linear, plain], [linear, linear]):
        expected = sum(part.response(X) for part in parts)
        np.testing.assert_array_equal(Forest.concatenate(parts).response(X), expected)


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


@pytest.mark.parametrize("aggregate", ["mean", "sum"])
def test_a_forest_without_trees_predicts_its_baseline(aggregate, tmp_path):
    full = rich_forest(aggregate=aggregate)
    full = Forest(full.arrays | {"baseline": [1, 2, 3]}, **full.metadata)
    assert len(full[3:1]) == 0
    forest, X = full[2:2], table(full)
    forest.save(tmp_path / "forest.npz")
    copies = [pickle.loads(pickle.dumps(forest)), Forest.load(tmp_path / "forest.npz")]
    for one in (forest, *copies, forest.compact(), full[:1][1:]):
        assert len(one) == 0
        assert one.response(X).tolist() == [full.baseline.tolist()] * len(X)
        use(one)
    assert len(Forest.concatenate([forest, full])) == len(full)


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
        removed = small.node_weight.nbytes + small.gain.nbytes
        assert part.slim().nbytes == small.nbytes - removed
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
    impurity, total, count = np.zeros((3, 36))
    for tree in forest:
        own = np.zeros(36)
        for code, gain in zip(tree.direction, tree.gain):
            weights = abs(oracles.direction_weights(forest, code))
            own += gain * weights
            count += weights != 0
        impurity += own / own.sum()
        total += own
    np.testing.assert_allclose(forest.feature_importances(), impurity / 5, rtol=1e-6)
    np.testing.assert_allclose(forest.feature_importances("count"), count / count.sum(), rtol=1e-9)
    # Trees that are averaged count equally, those that are summed by their gains.
    summed = Forest(forest.arrays, **forest.metadata | {"aggregate": "sum"})
    np.testing.assert_allclose(summed.feature_importances(), total / total.sum(), rtol=1e-6)


def test_importances_of_mixtures_are_independent_of_units():
    """Weights in units of 1 / deviation count as numbers; axes and boxes have no units to lose."""
    rng = np.random.default_rng(0)
    plain = random_forest(rng, (2, 3), n_each=4, n_trees=5)
    spread = np.array([1, 1e-12, 1e12, 1e-3, 1, 7e4])
    arrays = plain.arrays | {"deviation": spread}
    arrays["sparse_weight"] = plain.sparse_weight / spread[plain.sparse_feature]
    arrays["dense"] = plain.dense / spread
    scaled = Forest(arrays, **plain.metadata)
    for kind in ("impurity", "count"):
        np.testing.assert_allclose(
            scaled.feature_importances(kind), plain.feature_importances(kind), rtol=1e-5
        )
        assert plain.feature_importances(kind).min() > 0.01


def test_bags_without_more_trees_keep_their_last_response():
    bags = [0, 1, 4, 6]
    forest = rich_forest(n_trees=6, aggregate="sum", link="sigmoid")
    forest, X = Forest(forest.arrays | {"bag_start": bags}, **forest.metadata), table(forest)
    stages = list(staged_responses(forest, forest.map_features(X)))
    assert len(stages) == 3
    for k, found in enumerate(stages, 1):
        parts = [forest[a : min(a + k, b)].response(X) for a, b in zip(bags, bags[1:])]
        np.testing.assert_allclose(found, np.mean(parts, axis=0), rtol=1e-12)


def test_labels_of_outputs_of_several_kinds_keep_their_kinds():
    response = np.array([[0.2, 0.8, 0.5, 0.5], [1, 0, 0.1, 0.9]])
    found = labels_of(response, [np.array([3, 7]), np.array(["a", "b"])])
    assert found.tolist() == [[7, "a"], [3, "b"]]
    found = labels_of(response, [np.array([3, 7]), np.array([1, 2])])
    assert found.tolist() == [[7, 1], [3, 2]] and found.dtype.kind == "i"


def test_decision_paths_share_nothing_with_the_forest():
    forest = rich_forest()
    for X in (table(forest), table(forest)[:0]):
        _, ends = forest.decision_path(X)
        assert ends.tolist() == forest.tree_start.tolist()
        assert not np.shares_memory(ends, forest.tree_start)


def test_rows_are_scaled_before_they_are_routed():
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
@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
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
    other = Forest(one.arrays | {"deviation": one.deviation + 1}, **one.metadata)
    with pytest.raises(ValueError, match="differ in deviation"):
        Forest.concatenate([one, other])


@pytest.mark.parametrize("deviation", [np.ones(35), np.full(36, np.nan), -np.ones(36)])
def test_a_corrupt_deviation_is_refused(deviation):
    forest = rich_classifier()
    with pytest.raises(ValueError, match="deviation"):
        Forest(forest.arrays | {"deviation": deviation}, **forest.metadata)


def test_importances_of_trees_without_splits_or_gain_are_zero():
    stump = {"tree_start": [0, 1], "child": [-1], "threshold": [], "direction": [], "value": [1]}
    forest = Forest(stump, n_features=3, n_outputs=1, task="regression")
    for kind in ("impurity", "count"):
        np.testing.assert_array_equal(forest.feature_importances(kind), np.zeros(3))


@pytest.mark.parametrize("kind", GATES)
def test_random_forests_are_sound(kind):
    """The makers of these tests make no corrupt forests, and no trivial ones."""
    for seed in range(5):
        forest = rich_forest(seed, gate=kind)
        assert len(random_directions(np.random.default_rng(seed), SHAPE, WRAP, UNORDERED, 4)) == 8
        use(forest)
        assert len(np.unique(forest.response(table(forest)), axis=0)) > 3
