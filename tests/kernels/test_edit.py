"""Whole trees taken apart and put together: every function against its definition."""

from dataclasses import replace
from types import SimpleNamespace

import forests
import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed

from skforest import Forest
from skforest.forest.edit import (
    _rounded_to_half,
    calibrated,
    prune,
    recount_and_prune,
    repack,
    unpack,
    with_prior_ratio,
    with_votes,
)
from skforest.forest.statistics import (
    SHARE_UNITS,
    exact_shares,
    reached_nodes,
    recount,
    route,
    tree_loss,
    within_targets,
)
from skforest.training.losses.calibration import Addition


def tree(rng, shape=(3, 4), n_splits=6, **options):
    return forests.random_forest(rng, shape, n_trees=1, n_splits=n_splits, **options)


def class_tree(rng, n_classes=3, n_splits=6):
    """A tree with shared pure leaves, as an estimator grows it, and rows to count in it."""
    X = forests.whole_table(rng, 40, 12, np.float32)
    forest = tree(rng, n_splits=n_splits)
    arrays = dict(forest.arrays)
    mixed = [[0, 1], [1, 2]]
    arrays["child"] = np.where(
        forest.child < 0, -1 - rng.integers(n_classes + 2, size=forest.n_nodes), forest.child
    )
    arrays["value"] = np.concatenate([np.ones(n_classes), [0.25, 0.75, 0.5, 0.5]])
    arrays["value_index"] = np.concatenate([np.arange(n_classes), *mixed])
    arrays["value_start"] = np.concatenate(
        [np.arange(n_classes + 1), n_classes + np.array([2, 4])]
    )
    arrays["baseline"] = np.zeros(n_classes)
    meta = {
        **forest.metadata,
        "task": "classification",
        "classes": np.arange(n_classes),
        "n_outputs": n_classes,
        "n_shared_values": n_classes,
    }
    return Forest(arrays, **meta), X


def checked(forest):
    """The forest, if its arrays pass every check."""
    return Forest(forest.arrays, **forest.metadata)


@given(st.integers(0, 2**32 - 1))
@fixed
def test_unpack_is_the_definition_and_repack_undoes_it(seed):
    rng = np.random.default_rng(seed)
    forest = tree(rng)
    X = forests.whole_table(rng, 50, 12, np.float32)
    W, threshold = unpack(forest)
    expected = [oracles.direction_weights(forest, code) for code in forest.direction]
    np.testing.assert_array_equal(W, expected)
    assert W.flags.c_contiguous and W.dtype == threshold.dtype == np.float32
    for changed in (np.ones(6, bool), rng.random(6) < 0.5, np.zeros(6, bool)):
        other = checked(repack(forest, W, threshold, changed))
        np.testing.assert_array_equal(other.apply(X), oracles.apply(forest, X))
        np.testing.assert_array_equal(other.child, forest.compact().child)
        found, expected = unpack(other)[0], W.copy()
        # One positive weight may become the feature itself, with another threshold.
        is_single = changed & (np.count_nonzero(W, axis=1) == 1) & (W.max(axis=1) > 0)
        is_feature = is_single & (other.direction < other.n_features)
        expected[is_feature] = W[is_feature] > 0
        np.testing.assert_array_equal(found, expected)


@given(st.integers(0, 2**32 - 1))
@fixed
def test_repacked_splits_are_the_new_ones(seed):
    rng = np.random.default_rng(seed)
    forest = tree(rng)
    W, threshold = unpack(forest)
    changed = rng.random(6) < 0.5
    new = W.copy()
    keep = rng.random((6, 12)) < rng.choice([0.05, 0.3, 1.0], size=(6, 1))
    new[changed] = (keep * rng.normal(size=(6, 12)))[changed].astype(np.float32)
    other = checked(repack(forest, new, threshold + 1, changed))
    X = rng.normal(size=(200, 12)).astype(np.float32) * 10
    reach = np.ones(len(X), bool)
    node = 0
    # Down the left-most path, with the products taken plainly.
    while other.child[node] > 0 and reach.any():
        split = (other.child[node] - 1) // 2
        z = X.astype(float) @ new[split] - threshold[split] - changed[split]
        node = other.child[node] + 0
        passes = np.isin(other.apply(X)[:, 0], below(other, node))
        clear = reach & (abs(z) > 1e-4)
        np.testing.assert_array_equal(passes[clear], z[clear] < 0)
        reach = passes
    stored = unpack(other)[0]
    for split in np.flatnonzero(changed):
        n = np.count_nonzero(new[split])
        code = other.direction[split]
        if code >= 12:  # not a feature
            np.testing.assert_array_equal(stored[split], new[split])
            assert (code < other.code_ends[2]) == (8 * n + 8 < 4 * 12)
        else:
            assert n == 1 and new[split].max() > 0
    np.testing.assert_array_equal(stored[~changed], W[~changed])
    assert (np.unique(other.direction) >= 12).sum() == other.code_ends[-1] - 12  # all are used


def below(forest, node):
    """All nodes under a node, itself included."""
    if forest.child[node] < 0:
        return [node]
    left = forest.child[node]
    return [node, *below(forest, left), *below(forest, left + 1)]


@given(st.integers(0, 2**32 - 1))
@fixed
def test_a_single_weight_becomes_its_feature_where_no_row_changes_its_side(seed):
    """As x w > t is counted in float32, so for neighbours of the cut too."""
    rng = np.random.default_rng(seed)
    stump = Forest(
        {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [0], "direction": [0],
         "value": [0, 1]}, n_features=4, n_outputs=1, task="regression",
    )  # fmt: skip
    W = np.zeros((1, 4), np.float32)
    W[0, 2] = rng.normal() * 10 ** rng.uniform(-20, 20)
    t = np.float32(rng.normal() * 10 ** rng.uniform(-20, 10)) * rng.integers(2)
    other = checked(repack(stump, W, np.float32([t]), np.ones(1, bool)))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore", under="ignore"):
        x = np.float32(t / np.float64(W[0, 2]))
        near = [x, np.nextafter(x, np.float32(3e38)), np.nextafter(x, np.float32(-3e38)), 0, 1]
        X = np.zeros((len(near), 4), np.float32)
        X[:, 2] = np.nan_to_num(near)
        right = X[:, 2] * W[0, 2] > t
    np.testing.assert_array_equal(other.apply(X)[:, 0] == 2, right)
    assert other.direction[0] == 2 or W[0, 2] < 0 or abs(other.threshold[0]) == t


@pytest.mark.parametrize("criterion", ["gini", "entropy"])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_recount_of_classes(criterion, seed):
    rng = np.random.default_rng(seed)
    forest, X = class_tree(rng)
    y = rng.integers(3, size=40).astype(np.int32)
    weight = rng.integers(0, 3, size=40).astype(float)
    weight[0] = 1
    other = checked(recount(forest, forests.make_training_set(X, y, weight), criterion))
    compare_counts(forest, other, X, oracles.one_hot(y, 3), weight, criterion)
    doubled = recount(forest, forests.make_training_set(X, y, 4 * weight), criterion)
    np.testing.assert_array_equal(doubled.gain, 4 * other.gain)
    np.testing.assert_array_equal(doubled.value, other.value)


@given(st.integers(0, 2**32 - 1))
@fixed
def test_recount_of_outputs(seed):
    rng = np.random.default_rng(seed)
    forest = tree(rng)
    X = forests.whole_table(rng, 40, 12, np.float32)
    Y = rng.integers(-5, 6, size=(40, 2)) / 8
    weight = rng.integers(0, 3, size=40).astype(float)
    weight[0] = 1
    data = replace(forests.make_training_set(X, Y, weight), target_scale=8.0)
    other = checked(recount(forest, data, "squared_error"))
    compare_counts(forest, other, X, Y, weight, "squared_error", 8)


def compare_counts(forest, other, X, Y, weight, criterion, scale=1):
    """Every number of a recounted tree, from the rows that walk through it."""
    reach, _ = oracles.walk(forest, 0, X)
    reach = reach > 0
    np.testing.assert_array_equal(other.node_weight, weight @ reach)
    before, after = oracles.leaf_values(forest), oracles.leaf_values(other)
    for node in range(forest.n_nodes):
        rows = reach[:, node]
        child = forest.child[node]
        if child > 0:
            gain = oracles.split_gain(Y[rows], weight[rows], reach[rows, child], criterion)
            assert other.gain[(child - 1) // 2] == pytest.approx(gain, abs=1e-5)
            continue
        found = after[-1 - other.child[node]]
        if weight[rows].sum() == 0:
            # As before, but within the range of the targets.
            ends = (scale * extreme(Y[weight > 0], axis=0) for extreme in (np.min, np.max))
            np.testing.assert_array_equal(found, np.clip(before[-1 - child], *ends))
        else:
            mean = weight[rows] @ Y[rows] / weight[rows].sum()
            np.testing.assert_allclose(found, scale * mean, rtol=1e-6, atol=1e-7)
            if forest.task == "classification" and mean.max() == 1:
                assert other.child[node] == -1 - mean.argmax()


def test_recount_of_a_root_that_is_a_leaf():
    forest, X = class_tree(np.random.default_rng(0), n_splits=0)
    data = forests.make_training_set(X, np.arange(40) % 2)
    other = recount(forest, data, "gini")
    np.testing.assert_array_equal(other.response(X[:1]), [[0.5, 0.5, 0]])
    with pytest.raises(ValueError, match="criterion"):
        recount(forest, data, "loss")


@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
@fixed
def test_pruning_changes_no_response(seed, n_rows):
    rng = np.random.default_rng(seed)
    forest = tree(rng, n_splits=int(rng.integers(0, 20)))
    X = forests.whole_table(rng, n_rows, 12, np.float32)
    leaf = forest.apply(X)[:, 0]
    reached = reached_nodes(forest, leaf)
    reach, _ = oracles.walk(forest, 0, X)
    np.testing.assert_array_equal(reached, reach.any(axis=0))
    pruned = checked(prune(forest, reached))
    np.testing.assert_array_equal(pruned.response(X), forest.response(X))
    # Only leaves that are reached are left, and nothing of theirs is lost.
    leaves = pruned.apply(X)[:, 0]
    assert set(leaves) == set(np.flatnonzero(pruned.child < 0))
    np.testing.assert_array_equal(pruned.node_weight[leaves], forest.node_weight[leaf])
    assert len(pruned.threshold) == len(np.unique(leaf)) - 1


def test_another_prior_replaces_the_first_one():
    forest, X = class_tree(np.random.default_rng(0))
    one, two = with_prior_ratio(forest, [1.0, 2.0, 4.0]), with_prior_ratio(forest, [4.0, 2.0, 1.0])
    again = with_prior_ratio(one, [4.0, 2.0, 1.0])
    np.testing.assert_array_equal(again.response(X), two.response(X))
    assert not np.array_equal(one.response(X), two.response(X))
    np.testing.assert_array_equal(with_prior_ratio(two, None).response(X), forest.response(X))


def test_rows_without_weight_keep_no_nodes():
    forest, X = class_tree(np.random.default_rng(0))
    y = (np.arange(40) % 3).astype(np.int32)
    weight = (forest.apply(X)[:, 0] == forest.apply(X[:1])[0, 0]).astype(float)
    assert weight.sum() < 40
    data = forests.make_training_set(X, y, weight)
    assert recount_and_prune(forest, data, "gini").n_nodes == 1


def test_many_classes_and_leaves_take_little_time_and_memory():
    rng = np.random.default_rng(0)
    n_splits, n_classes, n = 20_000, 10_000, 30_000
    child = forests.random_children(rng, n_splits)
    child[child < 0] = -1 - rng.integers(n_classes, size=n_splits + 1)
    arrays = {
        "tree_start": [0, 2 * n_splits + 1],
        "child": child,
        "threshold": rng.random(n_splits),
        "direction": rng.integers(5, size=n_splits),
        "value": np.ones(n_classes),
        "value_start": np.arange(n_classes + 1),
        "value_index": np.arange(n_classes),
    }
    meta = {"n_features": 5, "n_outputs": n_classes, "classes": range(n_classes)}
    forest = Forest(arrays, task="classification", n_shared_values=n_classes, **meta)
    X = rng.random((n, 5)).astype(np.float32)
    y = rng.integers(n_classes, size=n).astype(np.int32)
    other = recount(forest, forests.make_training_set(X, y), "entropy")
    assert other.node_weight[0] == n
    assert other.nbytes < 5e6


@given(st.integers(0, 2**32 - 1))
@fixed
def test_shares_of_classes_add_up_to_1(seed):
    """Each is a float32 number near the share, and the largest one stays the largest."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 9, size=20)
    start = np.concatenate([[0], np.cumsum(length)])
    leaf = np.repeat(np.arange(20), length)
    counts = rng.integers(1, 4, size=len(leaf)) * 10.0 ** rng.integers(-9, 1, size=len(leaf))
    shares = (counts / np.bincount(leaf, counts)[leaf]).astype(np.float32)
    exact = exact_shares(shares, start)
    assert exact.dtype == np.float32 and (exact > 0).all()
    assert (np.add.reduceat(exact.astype(np.float64), start[:-1]) == 1).all()
    np.testing.assert_allclose(exact, shares, rtol=0, atol=9 / SHARE_UNITS)
    for before, now in zip(np.split(shares, start[1:-1]), np.split(exact, start[1:-1])):
        is_close = before > before.max() - 1e-6
        assert is_close[now.argmax()]
        if (before[is_close] == before.max()).all():  # of equal ones, the first
            assert now.argmax() == before.argmax()


@pytest.mark.parametrize("seed", range(8))
def test_values_plus_the_baseline_stay_within_the_targets_of_positive_weight(seed):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(9, 2)) * 10.0 ** rng.integers(-3, 7, size=2)
    weight = np.where(np.arange(9) % 3 == 0, 0.0, rng.random(9))
    data = SimpleNamespace(y=y, weight=weight, baseline=weight @ y / weight.sum())
    value = np.array([y.min(axis=0), 3 * y.max(axis=0)] * 2) * 3 - data.baseline
    found = within_targets(value.astype(np.float32).ravel(), data).reshape(-1, 2)
    assert found.dtype == np.float32
    used = y[weight > 0]
    predicted = found + data.baseline
    assert (predicted >= used.min(axis=0)).all() and (predicted <= used.max(axis=0)).all()
    far = np.array([np.full(2, -1e30), np.full(2, 1e30)], dtype=np.float32)
    ends = within_targets(far.ravel(), data).reshape(2, 2) + data.baseline
    far_off = np.abs(ends - [used.min(axis=0), used.max(axis=0)])
    assert (far_off <= 1e-6 * np.ptp(used, axis=0)).all()


@pytest.mark.parametrize("hard", [True, False])
def test_only_hard_splits_and_very_long_ones_change_their_length_in_half_precision(hard):
    lengths = np.array([2.0**-20, 0.01, 0.5, 100, 2.0**15, 2.0**20], dtype=np.float32)
    rows = np.array([[0.5, -0.75, 0.875]], dtype=np.float32) * lengths[:, None]
    chosen = np.array([True, True, True, True, True, True])
    W, threshold = _rounded_to_half(rows, lengths, chosen, hard)
    np.testing.assert_array_equal(W, W.astype(np.float16))
    factor = threshold / lengths
    np.testing.assert_allclose(W[1:], (rows * factor[:, None])[1:], rtol=1e-3)
    largest = np.abs(W).max(axis=1)
    assert (factor[2:4] == 1).all() and (factor[5:] < 1).all() and (largest < 2**15).all()
    if hard:
        assert ((0.5 <= largest[:2]) & (largest[:2] < 1)).all()
    else:
        assert (factor[:4] == 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_leaves_vote_for_the_first_of_their_most_frequent_classes(seed):
    rng = np.random.default_rng(seed)
    forest, X = class_tree(rng)
    found = checked(with_votes(forest)).response(X)
    np.testing.assert_array_equal(found, np.eye(3)[forest.response(X).argmax(axis=1)])
    several = {"task": "multioutput classification", "classes": range(5), "n_classes": [2, 3]}
    forest = tree(rng, n_outputs=5, **several)
    value = forest.response(X)  # whole numbers with ties
    expected = [np.eye(2)[value[:, :2].argmax(axis=1)], np.eye(3)[value[:, 2:].argmax(axis=1)]]
    np.testing.assert_array_equal(checked(with_votes(forest)).response(X), np.hstack(expected))


@pytest.mark.parametrize("is_class", [True, False])
def test_loss_of_a_tree_is_a_weighted_mean_in_the_units_of_the_target(is_class):
    rng = np.random.default_rng(0)
    forest, X = class_tree(rng)
    weight = rng.integers(0, 3, size=40).astype(float)
    if is_class:
        y = rng.integers(3, size=40).astype(np.int32)
        data = forests.make_training_set(X, y, weight)
        expected = np.average(forest.response(X).argmax(axis=1) != y, weights=weight)
    else:
        forest, Y = tree(rng), rng.integers(-5, 6, size=(40, 2)) / 8
        data = replace(forests.make_training_set(X, Y, weight), target_scale=8.0)
        error = np.square(forest.response(X) - 8 * Y).mean(axis=1)
        expected = np.average(error, weights=weight)
    assert tree_loss(forest, route(forest, X), data) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("gate", ["margin", "sigmoid"])
def test_single_weights_keep_their_length_where_it_matters(gate):
    forest = tree(np.random.default_rng(0), gate=gate)
    W = 2 * np.eye(6, 12, dtype=np.float32)
    found, threshold = unpack(checked(repack(forest, W, np.arange(6.0), np.ones(6, bool))))
    np.testing.assert_array_equal(found, W)
    assert threshold.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("n_bags", [1, 2])
@pytest.mark.parametrize("slope", [0.0, 0.5])
def test_calibrations_are_added_to_the_mean_of_all_bags(n_bags, slope):
    rng = np.random.default_rng(0)
    forest = forests.random_forest(rng, n_trees=4, n_outputs=3, aggregate="sum")
    row = np.cumsum(forest.child < 0)
    arrays = forest.arrays | {
        "child": np.where(forest.child < 0, -row, forest.child),
        "value": rng.integers(-8, 9, size=3 * row[-1]),
        "bag_start": np.arange(n_bags + 1) * (4 // n_bags),
        "baseline": [1.0, 2.0, 5.0],
    }
    forest, X = Forest(arrays, **forest.metadata), forests.whole_table(rng, 20, 12, np.float32)
    addition = Addition(np.array([0.25, 0.0, -1.0]), slope * np.array([1.0, -1.0, 0.5]), 0, 2)
    raw = forest.response(X)
    found = calibrated(forest, addition).response(X)
    np.testing.assert_allclose(found, raw + addition.added(raw), rtol=1e-6)


def test_rows_of_very_many_columns_are_routed(monkeypatch):
    rng = np.random.default_rng(0)
    forest, X = tree(rng), forests.whole_table(rng, 150, 12, np.float32)
    expected = route(forest, X)
    monkeypatch.setattr("skforest.forest.statistics.BLOCK_SIZE", 11)  # fewer than columns
    np.testing.assert_array_equal(route(forest, X), expected)
    assert len(route(forest, X[:0])) == 0
