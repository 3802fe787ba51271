"""Trees of oblique boosting: splits against their definition, bins, boxes, depth."""

from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from forests import grow_boosted
from hypothesis import given
from hypothesis import strategies as st
from makers import assert_same_trees, fixed
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from scipy import sparse
from skforest._kernels.boosting.bins import bin_columns
from skforest._kernels.boosting.partition import draw_rows
from skforest._kernels.search.projection import draw
from sklearn.base import clone

from skforest import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from skforest.training import boosting_trials
from skforest.training.boosting_rows import BoostingRows

# -------------------------------------------------------------------------------- splits and depth


def check_tree(X, derivative, rows, n_directions, min_leaf, seed, **options):
    """Every split has its gain, which is the largest one of the node."""
    l2 = 0.5
    tree, leaf, cuts = grow_boosted(
        X, derivative, rows, n_directions=n_directions, l2=l2, min_leaf=min_leaf, seed=seed,
        **options,
    )  # fmt: skip
    reached = oracles.boosted_nodes(tree, X)
    is_leaf = tree["child"] < 0
    # Rows outside the sample reach the leaf that prediction finds.
    np.testing.assert_array_equal(leaf, reached[is_leaf].argmax(axis=0))
    in_sample = np.isin(np.arange(len(X)), rows)
    np.testing.assert_array_equal(tree["node_weight"], (reached & in_sample).sum(axis=1))
    assert tree["node_weight"][1:].min(initial=min_leaf) >= min_leaf
    used = np.unique(tree["direction"][tree["direction"] >= X.shape[1]])
    for node in range(len(is_leaf)):
        own = reached[node] & in_sample
        columns = [(X[own, j], cuts[j]) for j in range(X.shape[1])]
        for code in used:  # of the cuts of a direction, those are known that the tree has
            projection = X[own] @ oracles.boosted_direction(tree, code, X.shape[1])
            columns.append((projection, tree["threshold"][tree["direction"] == code]))
        best = oracles.best_boosted_gain(columns, derivative[own], l2, min_leaf)
        if is_leaf[node]:
            depth_left = reached[:, np.flatnonzero(reached[node])[0]].sum() <= 3
            assert best < 1e-4 or not depth_left
            continue
        split = (tree["child"][node] - 1) // 2
        left = reached[tree["child"][node]][own]
        gain = tree["gain"][split]
        assert gain == pytest.approx(oracles.boosted_gain(derivative[own], left, l2), rel=1e-4)
        assert gain >= best * (1 - 1e-4) - 1e-6
        if not n_directions:
            assert gain == pytest.approx(best, rel=1e-4)
    return tree


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 5])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_splits_have_the_largest_gain_of_the_node(n_outputs, seed):
    """Whole numbers: ties, equal rows and constant columns."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, rng.integers(1, 12, size=3) + 1, size=(40, 3)).astype(np.float32)
    curvature = rng.integers(1, 4, size=(40, 1)) / 4
    derivative = np.hstack([rng.integers(-3, 4, size=(40, n_outputs)), curvature])
    rows = np.sort(rng.choice(40, 30, replace=False))
    min_leaf = int(rng.integers(1, 6))
    check_tree(X, derivative, rows, 0, min_leaf, seed % 2**31)
    check_tree(X, derivative, rows, 0, min_leaf, seed % 2**31, max_bins=4)


def test_only_searched_features_split_nodes_alone():
    """As without the other features; mixtures use these, too."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 8)).astype(np.float32)
    derivative = np.column_stack([X @ rng.normal(size=8), np.ones(300)])
    searched = np.array([0, 1, 0, 1, 1, 0, 0, 1])
    own = np.flatnonzero(searched)
    tree, leaf, _ = grow_boosted(X, derivative, searched=searched)
    few, few_leaf, _ = grow_boosted(X[:, own], derivative)
    np.testing.assert_array_equal(leaf, few_leaf)
    np.testing.assert_array_equal(tree["direction"], own[few["direction"]])
    for name in ("child", "threshold", "gain"):
        np.testing.assert_array_equal(tree[name], few[name])
    oblique, *_ = grow_boosted(X, derivative, searched=searched, n_directions=20, max_depth=5)
    alone = oblique["direction"][oblique["direction"] < 8]
    assert set(alone) <= set(own) and set(oblique["sparse_feature"]) == set(range(8))


@pytest.mark.parametrize("n_outputs", [1, 2, 3, 5])
@pytest.mark.parametrize("curvature", [1.0, 0.5])  # the count of the rows if all are 1
@pytest.mark.parametrize("place", [0, 127, 253])
def test_cuts_between_as_many_bins_as_there_can_be(place, curvature, n_outputs):
    """Rows up to a place have another gradient: the cut follows it, also before the last bin."""
    gradient = np.where(np.arange(255)[:, None] <= place, 1.0, -1.0).repeat(n_outputs, axis=1)
    derivative = np.hstack([gradient, np.full((255, 1), curvature)])
    tree, leaf, cuts = grow_boosted(np.arange(255.0)[:, None], derivative, max_depth=1)
    assert len(cuts[0]) == 254 and place <= tree["threshold"][0] < place + 1
    np.testing.assert_array_equal(leaf, np.arange(255) > place)
    gain = oracles.boosted_gain(derivative, np.arange(255) <= place, 1.0)
    assert tree["gain"][0] == pytest.approx(gain, rel=1e-6)


@pytest.mark.parametrize("n_rows", [20, 100, 255])
@pytest.mark.parametrize("n_outer", [1, 2, 3, 5])
def test_of_two_cuts_with_the_same_gain_the_first_one_is_taken(n_rows, n_outer):
    """The outer rows on both sides have another gradient than those between them."""
    place = np.arange(n_rows)
    is_outer = (place < n_outer) | (place >= n_rows - n_outer)
    derivative = np.column_stack([np.where(is_outer, 8.0, -1.0), np.full(n_rows, 0.5)])
    tree, leaf, _ = grow_boosted(place[:, None].astype(float), derivative, max_depth=1)
    sizes = n_outer, n_rows - n_outer
    first, last = (oracles.boosted_gain(derivative, place < size, 1.0) for size in sizes)
    assert first == last == pytest.approx(tree["gain"][0], rel=1e-6)
    np.testing.assert_array_equal(leaf, place >= n_outer)


@pytest.mark.thin(2)
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_directions_are_split_where_they_gain_more(n_outputs, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 3)).astype(np.float32)
    derivative = np.hstack([rng.normal(size=(80, n_outputs)), rng.uniform(0.1, 1, size=(80, 1))])
    rows = np.sort(rng.choice(80, 60, replace=False))
    check_tree(X, derivative.astype(np.float32), rows, 8, int(rng.integers(1, 6)), seed % 2**31)


@pytest.mark.parametrize("n_outputs", [6, 13])
def test_splits_of_many_outputs_are_searched_with_projected_gradients(n_outputs):
    """Small whole numbers, so that no sum is rounded."""
    rng = np.random.default_rng(n_outputs)
    X = rng.normal(size=(80, 3)).astype(np.float32)
    gradient = rng.integers(-3, 4, size=(80, n_outputs))
    curvature = n_outputs * rng.integers(1, 4, size=(80, n_outputs)) / 4
    mix = rng.integers(-2, 3, size=(n_outputs, 5)).astype(np.float32)
    rows = np.sort(rng.choice(80, 60, replace=False))
    own = grow_boosted(X, np.hstack([gradient, curvature]), rows, n_directions=4, mix=mix)
    projected = np.hstack([gradient @ mix, curvature.mean(axis=1, keepdims=True)])
    expected = grow_boosted(X, projected, rows, n_directions=4)
    np.testing.assert_equal(own[:2], expected[:2])
    assert len(own[0]["gain"]) == 7


@pytest.mark.parametrize("offset", [0, 1e3, 1e6])
def test_rows_are_routed_as_in_prediction(offset):
    """The bins of a direction decide only where rounding cannot, which is large far from 0."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(3000, 3)) + offset).astype(np.float32)
    derivative = np.column_stack([np.sign(X @ [1, -1, 0.5] - offset / 2), np.ones(3000)])
    tree, leaf, _ = grow_boosted(X, derivative, n_directions=16, min_leaf=20)
    columns = list(X.T)  # directions are further columns: float32 sums of their terms, in order
    for first, end in zip(tree["sparse_start"][:-1], tree["sparse_start"][1:]):
        terms = zip(tree["sparse_feature"][first:end], tree["sparse_weight"][first:end])
        columns.append(sum(weight * X[:, feature] for feature, weight in terms))
    assert len(columns) > 3 and columns[-1].dtype == np.float32
    reached = oracles.boosted_nodes(tree, np.column_stack(columns))
    np.testing.assert_array_equal(leaf, reached[tree["child"] < 0].argmax(axis=0))


def test_bins_of_columns_have_single_values_if_there_are_few():
    near = 1 + np.arange(3) * np.finfo(np.float32).eps  # neighbours in float32
    rare = np.repeat([0, 1, 2, 3], [97, 1, 1, 1])
    for values, most in ((near, 255), (rare, 4), (rare, 255)):
        column = np.append(values, 9).astype(np.float32)
        cut, start, code = bin_columns(column[None], most, len(values))  # not from the last row
        assert start.tolist() == [0, len(np.unique(values)) - 1]
        np.testing.assert_array_equal(code[0, :-1], np.unique(values, return_inverse=True)[1])
        assert code[0, -1] == len(cut)


@pytest.mark.parametrize("n_bins", [1, 2, 3, 17, 254, 255])
def test_bins_of_columns_are_numbers_of_limits_below(n_bins):
    column = np.random.default_rng(n_bins).permutation(np.arange(2 * n_bins)) // 2
    cut, _, code = bin_columns(np.float32(column)[None], 255, len(column))
    assert len(cut) == n_bins - 1
    np.testing.assert_array_equal(code[0], (cut < column[:, None]).sum(axis=1))


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_bins_in_threads_are_the_same(form):
    X, y = rows_of(ObliqueBoostingClassifier)
    model = quick(ObliqueBoostingClassifier)
    request = model._request()
    data = model._read_training_set(form(np.maximum(X, 0)), y, request)
    settings = model._settings(data, request)
    one, several = (BoostingRows(data, settings, n_threads) for n_threads in (1, 4))
    assert len(one.code) == 6 and one.code.max() > 10
    for name in ("cut", "cut_start", "code"):
        np.testing.assert_array_equal(getattr(one, name), getattr(several, name), strict=True)


def test_drawn_rows_are_a_sample_without_replacement():
    rows = np.flatnonzero(np.arange(30) % 3).astype(np.int32)
    times = np.zeros(30)
    for seed in range(2000):
        drawn, others = draw_rows(rows, 15, 30, seed)
        times[drawn] += 1
        np.testing.assert_array_equal(np.setdiff1d(np.arange(30), drawn), others)
        assert (np.diff(drawn) > 0).all()
    assert times[::3].sum() == 0
    np.testing.assert_allclose(times[rows] / 2000, 0.75, atol=0.05)


@pytest.mark.thin(2)
@pytest.mark.parametrize("feature_shape", [(7,), (3, 4), (2, 3, 2)])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_boxes_are_split_where_they_gain_more(n_outputs, feature_shape):
    kinds = set()
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(80, np.prod(feature_shape))).astype(np.float32)
        derivative = np.hstack([rng.normal(size=(80, n_outputs)), np.ones((80, 1))])
        rows = np.sort(rng.choice(80, 60, replace=False))
        tree = check_tree(X, derivative, rows, 12, 3, seed, feature_shape=feature_shape)
        kinds |= set(zip(tree["box_size"].prod(axis=1) > 1, tree["box_other"] >= 0))
        assert len(tree["sparse_start"]) == 1
        # The same directions as sums of features, where overlapping boxes cancel.
        start, feature, weight = tree["terms"]
        for d in range(len(tree["box_corner"])):
            own = slice(start[d], start[d + 1])
            assert len(np.unique(feature[own])) == len(feature[own])
            np.testing.assert_array_equal(
                oracles.sparse_weights(feature[own], weight[own], X.shape[1]),
                oracles.boosted_direction(tree, X.shape[1] + d, X.shape[1]),
            )
    # Sums, and differences of them; a sum of one feature is no direction.
    assert kinds == {(True, False), (True, True), (False, True)}


def test_sides_of_boxes_are_at_most_a_power_of_the_axis():
    sampler = BoostingRows._box_sampler(SimpleNamespace(feature_shape=(8, 27, 10, 1)))
    sizes = np.array([one["size"] for one in draw(sampler, 0, 2000) if "size" in one])
    assert sizes.max(axis=0).tolist() == [4, 9, 5, 1]  # the power 2 / 3, rounded up


def test_sums_of_neighbours_are_found():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(500, 6, 6))
    target = images[:, 1:4, 2:5].sum(axis=(1, 2)) > 0
    X, y, new, expected = images[:300], target[:300], images[300:], target[300:]
    model = quick(ObliqueBoostingClassifier, linear_start=None).fit(X.reshape(300, -1), y)
    plain = model.score(new.reshape(200, -1), expected)
    model.set_params(feature_shape=(6, 6)).fit(X, y)
    assert model.score(new, expected) > plain + 0.05
    assert len(model.forest_.box_corner) and not len(model.forest_.sparse_feature)
    importances = model.feature_importances_.reshape(6, 6)
    assert importances[1:4, 2:5].sum() > 0.5 > 9 / 36
    # All pixels have one unit, which has no influence.
    feature_map = model.forest_.feature_map
    assert np.ptp(feature_map.scale) == np.ptp(feature_map.offset) == 0
    other = clone(model).fit(X * 8, y)
    np.testing.assert_array_equal(other.predict_proba(new * 8), model.predict_proba(new))


def test_pixels_without_any_value_have_no_range():
    rng = np.random.default_rng(0)
    images = 300 + 1e-6 * rng.normal(size=(400, 16))
    y = images[:, :8].mean(axis=1) > 300
    images[:, 3] = np.nan
    model = quick(ObliqueBoostingClassifier, feature_shape=(4, 4), n_estimators=60)
    assert model.fit(images[:200], y[:200]).score(images[200:], y[200:]) > 0.8
    nothing = np.full((40, 4), np.nan)
    assert model.set_params(feature_shape=4).fit(nothing, y[:40]).predict(nothing).shape == (40,)


@pytest.mark.parametrize(
    "constraint", [{"monotonic_cst": [1] + [0] * 5}, {"interaction_cst": "pairwise"}]
)
def test_boxes_take_no_constraints(constraint):
    X, y = rows_of(ObliqueBoostingRegressor)
    ((name, _),) = constraint.items()
    model = quick(ObliqueBoostingRegressor, feature_shape=(2, 3), **constraint)
    with pytest.raises(ValueError, match=rf"feature_shape=\(2, 3\) is not possible with {name}"):
        model.fit(X, y)


def test_an_oblique_boundary_is_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    derivative = np.column_stack([np.sign(X[:, 0] - X[:, 1]), np.ones(500)])
    gains = []
    for n_directions in (0, 100):
        tree, _, _ = grow_boosted(X, derivative, n_directions=n_directions, max_depth=1)
        gains.append(tree["gain"][0])
    assert gains[1] > 1.5 * gains[0]


def best_first(tree, max_leaves):
    """Nodes that are split if the leaf of largest gain is split next, and their gains."""
    gain = {node: tree["gain"][(child - 1) // 2] for node, child in enumerate(tree["child"])}
    leaves, split = {0}, []
    while len(leaves) < max_leaves:
        node = max((n for n in leaves if tree["child"][n] >= 0), key=gain.get)
        leaves = leaves - {node} | {tree["child"][node], tree["child"][node] + 1}
        split.append(node)
    return split, [gain[node] for node in split]


@pytest.mark.parametrize("monotonic", [None, np.array([1, 0, -1], dtype=np.int8)])
@pytest.mark.parametrize("max_leaves", [2, 3, 5, 9, 17])
def test_the_leaf_of_largest_gain_is_split_next(max_leaves, monotonic):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    derivative = np.column_stack([np.exp(X @ [2, 0.5, -1]) + rng.normal(size=600), np.ones(600)])
    options = {"rows": np.arange(0, 600, 2), "min_leaf": 2, "max_depth": 9, "n_directions": 4}
    options["monotonic"] = monotonic
    whole, leaf_of_whole, *_ = grow_boosted(X, derivative, **options)
    tree, leaf, *_ = grow_boosted(X, derivative, max_leaves=max_leaves, **options)
    assert (tree["child"] < 0).sum() == max_leaves
    split, gains = best_first(whole, max_leaves)
    np.testing.assert_array_equal(tree["gain"], gains)
    reached, expected = (oracles.boosted_nodes(t, X) for t in (tree, whole))
    in_order = np.argsort(tree["child"])[max_leaves:]  # a node that is split has its children next
    np.testing.assert_array_equal(reached[in_order], expected[split])
    np.testing.assert_array_equal(leaf, reached[tree["child"] < 0].argmax(axis=0))
    # Level by level, other nodes would be split: deeper ones gain more.
    assert max_leaves < 9 or split != sorted(split)


def test_limits_of_the_leaves_and_the_depth():
    X, y = rows_of(ObliqueBoostingRegressor, 400)
    own = {"min_samples_leaf": 2, "early_stopping": False, "n_estimators": 5}
    model = quick(ObliqueBoostingRegressor, max_leaf_nodes=10, max_depth=None, **own).fit(X, y)
    assert (model.forest_.n_leaves == 10).all() and model.forest_.max_depth.max() > 4
    model.set_params(max_depth=4, interaction_cst="no_interactions").fit(X, y)
    assert model.forest_.n_leaves.max() == 10 and model.forest_.max_depth.max() == 4
    # A limit that the depth implies has no influence.
    model.set_params(max_depth=3, max_leaf_nodes=8).fit(X, y)
    assert_same_trees(model, clone(model).set_params(max_leaf_nodes=None).fit(X, y))


def test_the_depth_is_chosen_on_held_out_rows(monkeypatch):
    """Whether many features interact decides, with enough rows and early stopping."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (1500, 8)).astype(float)
    table = rng.normal(size=64)[(X[:, :6] @ 2 ** np.arange(6)).astype(int)]
    additive = X @ rng.normal(size=8) + rng.normal(size=1500)
    depth_of = {}
    for n_least in (1400, 1600):
        monkeypatch.setattr(boosting_trials, "MIN_DEPTH_ROWS", n_least)
        for name, target in (("table", table), ("additive", additive)):
            X_own = np.column_stack([X, rng.normal(size=1500)])  # no equal rows
            own = {"n_estimators": 40, "n_bags": 1, "n_directions": 0, "linear_leaves": False}
            own["linear_start"] = None
            model = quick(ObliqueBoostingRegressor, **own).fit(X_own, target)
            depth_of[name, n_least] = model.max_depth_
            assert model.forest_.max_depth.max() <= model.max_depth_
    assert depth_of["table", 1400] > 4
    assert {depth for case, depth in depth_of.items() if case != ("table", 1400)} == {4}
    monkeypatch.setattr(boosting_trials, "MIN_DEPTH_ROWS", 1400)
    for own, expected in (
        ({"max_leaf_nodes": 9}, None),
        ({"early_stopping": False}, 4),
        ({"max_depth": 3}, 3),
        ({"max_depth": None}, None),
    ):
        model = quick(ObliqueBoostingRegressor, n_estimators=3, n_bags=1, **own)
        assert model.fit(X_own, table).max_depth_ == expected


def test_an_earlier_fit_does_not_change_the_depth(monkeypatch):
    """It has left linear functions, which sparse rows cannot have."""
    monkeypatch.setattr(boosting_trials, "MIN_DEPTH_ROWS", 300)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    y = X @ rng.normal(size=5) + 0.1 * np.sin(4 * X[:, 0])
    model = quick(ObliqueBoostingRegressor, n_estimators=12).fit(X, y)
    assert model.linear_leaves_ and model.linear_start_
    for rows in (X, sparse.csr_matrix(X)):
        assert_same_trees(model.fit(rows, y), clone(model).fit(rows, y))


def test_a_warm_start_keeps_the_depth(monkeypatch):
    monkeypatch.setattr(boosting_trials, "MIN_DEPTH_ROWS", 100)
    monkeypatch.setattr(boosting_trials, "DEPTHS", (3,))
    X, y = rows_of(ObliqueBoostingRegressor, 200)
    model = quick(ObliqueBoostingRegressor, n_bags=1, n_estimators=4, warm_start=True).fit(X, y)
    monkeypatch.setattr(boosting_trials, "DEPTHS", (2,))
    assert model.set_params(n_bags=2).fit(X, y).max_depth_ == 3
    assert model.set_params(n_bags=3, max_leaf_nodes=6).fit(X, y).max_depth_ is None
    assert model.set_params(n_bags=4, max_leaf_nodes=None).fit(X, y).max_depth_ == 2
