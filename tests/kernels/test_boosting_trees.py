"""Trees of oblique boosting: splits against their definition, depth, constraints."""

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

from skforest import ObliqueBoostingClassifier, ObliqueBoostingRegressor, load, save
from skforest.training import boosting_trials
from skforest.training.boosting_rows import BoostingRows
from skforest.training.constraints import Interactions, read_groups

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


@pytest.mark.parametrize("n_outputs", [1, 3])
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


# --------------------------------------------------------------------------- monotonic constraints


def check_monotonic(respond, X, constraints):
    """Predictions along each constrained column, from rows of X."""
    for j, sign in enumerate(constraints):
        if not sign:
            continue
        grid = np.quantile(X[:, j], np.linspace(0, 1, 60))
        rows = np.repeat(X[:25], 60, axis=0)
        rows[:, j] = np.tile(grid, 25)
        assert (sign * np.diff(respond(rows).reshape(25, 60), axis=1) >= 0).all()


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson", "gamma", "log"])
def test_predictions_obey_monotonic_constraints(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    raw = np.sin(3 * X[:, 0]) + X[:, 0] - X[:, 1] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3]
    constraints = [1, -1, 0, 0]
    common = {"n_estimators": 40, "monotonic_cst": constraints, "early_stopping": False}
    if loss == "log":
        model = quick(ObliqueBoostingClassifier, **common).fit(X, raw > 0)
        plain = quick(ObliqueBoostingClassifier, n_estimators=40).fit(X, raw > 0)
        respond = [lambda rows, m=m: m.predict_proba(rows)[:, 1] for m in (model, plain)]
        assert model.score(X, raw > 0) > 0.9
    else:
        y = raw if loss in ("squared_error", "absolute_error") else np.exp(raw / 2)
        model = quick(ObliqueBoostingRegressor, loss=loss, **common).fit(X, y)
        plain = quick(ObliqueBoostingRegressor, loss=loss, n_estimators=40).fit(X, y)
        respond = [model.predict, plain.predict]
        assert model.score(X, y) > 0.5
    check_monotonic(respond[0], X, constraints)
    with pytest.raises(AssertionError):
        check_monotonic(respond[1], X, constraints)
    # Weights of directions have the signs of the constraints.
    feature, weight = model.forest_.sparse_feature, model.forest_.sparse_weight
    assert set(feature) == {0, 1, 2, 3} and {*np.sign(weight[feature == 2])} == {-1, 1}
    assert (weight[feature == 0] > 0).all() and (weight[feature == 1] < 0).all()


def test_directions_without_constrained_columns_are_free_in_all_trees():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = X[:, 0] + np.sin(2 * (X[:, 1] + X[:, 2]))
    options = {"n_estimators": 60, "n_bags": 1, "max_depth": 1, "monotonic_cst": [1, 0, 0]}
    forest = quick(ObliqueBoostingRegressor, early_stopping=False, **options).fit(X, y).forest_
    weight = forest.directions(forest.direction).toarray()
    left, right = forest.value[-1 - forest.child.reshape(60, 3)[:, 1:]].T
    is_free = (weight[:, 0] == 0) & (weight[:, 1] != 0) & (weight[:, 2] != 0)
    rises = (right > left)[is_free]
    assert rises[-len(rises) // 2 :].any() and not rises[-len(rises) // 2 :].all()


@given(st.integers(0, 2**32 - 1))
@fixed
def test_values_of_trees_are_monotonic(seed):
    """Ties, equal rows, and any gradients: bounds of the leaves keep the order of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=(60, 3)).astype(np.float32)
    derivative = np.hstack([rng.integers(-3, 4, size=(60, 1)), rng.integers(1, 4, size=(60, 1))])
    signs = rng.integers(-1, 2, size=3).astype(np.int8)
    options = {"n_directions": int(rng.integers(0, 10)), "seed": seed % 2**31}
    tree, leaf, _, bounds = grow_boosted(X, derivative, monotonic=signs, max_depth=5, **options)
    low, high = bounds[leaf].T
    value = -np.bincount(leaf, derivative[:, 0]) / (np.bincount(leaf, derivative[:, 1]) + 1)
    value = np.clip(value, *bounds.T)[leaf]
    assert (low <= high).all()
    for i in range(60):
        # Rows that differ in one constrained column.
        for j in np.flatnonzero(signs):
            other = np.delete(X, j, axis=1)
            above = (other == other[i]).all(axis=1) & (X[:, j] > X[i, j])
            assert (signs[j] * (value[above] - value[i]) >= 0).all()


def test_the_bound_between_two_children_is_the_middle_of_their_values():
    rng = np.random.default_rng(0)
    X = np.arange(40)[:, None]
    derivative = np.column_stack([rng.normal(size=40) - (X[:, 0] > 15), np.ones(40)])
    monotonic = np.ones(1, dtype=np.int8)
    _, leaf, _, bounds = grow_boosted(X, derivative, monotonic=monotonic, max_depth=1, l2=2.0)
    value = -np.bincount(leaf, derivative[:, 0]) / (np.bincount(leaf) + 2)
    assert len(value) == 2 and value[0] < value[1]
    expected = [[-np.inf, value.mean()], [value.mean(), np.inf]]
    np.testing.assert_allclose(bounds, expected, rtol=1e-6)


def test_without_constraints_bounded_search_is_the_plain_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    derivative = np.column_stack([rng.normal(size=100), np.ones(100)])
    plain, _, _ = grow_boosted(X, derivative)
    bounded, _, _, bounds = grow_boosted(X, derivative, monotonic=np.zeros(3, dtype=np.int8))
    np.testing.assert_array_equal(plain["direction"], bounded["direction"])
    np.testing.assert_array_equal(plain["threshold"], bounded["threshold"])
    np.testing.assert_allclose(plain["gain"], bounded["gain"], rtol=1e-5)
    assert np.isinf(bounds).all()


def test_monotonic_constraints_of_a_data_frame():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green"], size=300)
    frame = pandas.DataFrame({"c": pandas.Categorical(colour), "x": rng.normal(size=300)})
    frame["z"] = rng.normal(size=300)
    y = np.sin(4 * frame["x"]) + frame["x"] + (colour == "green")
    frame.loc[::9, "x"] = np.nan
    model = quick(ObliqueBoostingRegressor, monotonic_cst={"x": 1}).fit(frame, y)
    grid = frame.iloc[np.ones(50, dtype=int)].assign(x=np.linspace(-2, 2, 50))
    assert (np.diff(model.predict(grid)) >= 0).all() and np.ptp(model.predict(grid)) > 1
    again = quick(ObliqueBoostingRegressor, monotonic_cst=[0, 1, 0]).fit(frame, y)
    assert_same_trees(model, again)
    for wrong in ({"c": 1}, {"q": 1}, {"x": [1]}, [1, 0, 0], [0, 1], [0, 2, 0]):
        with pytest.raises(ValueError, match="monotonic_cst="):
            clone(model).set_params(monotonic_cst=wrong).fit(frame, y)


def test_monotonic_constraints_need_one_output():
    X, y = rows_of(ObliqueBoostingClassifier)
    constraints = {"monotonic_cst": [1, 0, 0, 0, 0, 0]}
    with pytest.raises(ValueError, match="monotonic_cst=.*needs one output, or two classes"):
        quick(ObliqueBoostingClassifier, **constraints).fit(X, y)
    with pytest.raises(ValueError, match="monotonic_cst=.*needs one output, or two classes"):
        quick(ObliqueBoostingRegressor, **constraints).fit(X, X[:, :2])
    for all_of_them in ([1] * 6, [1] * 5 + [0]):
        model = quick(ObliqueBoostingClassifier, monotonic_cst=all_of_them).fit(X, y == 1)
        weight = model.forest_.sparse_weight[model.forest_.sparse_feature < 5]
        assert len(weight) and (weight > 0).all()


def test_a_monotonic_direction_is_found():
    """The target rises along a sum of constrained columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4))
    y = np.tanh(2 * (X[:, 0] - X[:, 1])) + 0.1 * rng.normal(size=1000)
    options = {"n_estimators": 60, "monotonic_cst": [1, -1, 0, 0]}
    errors = []
    for n_directions in (0, 64):
        model = quick(ObliqueBoostingRegressor, n_directions=n_directions, **options)
        errors.append(1 - model.fit(X[:500], y[:500]).score(X[500:], y[500:]))
    assert errors[1] < 0.7 * errors[0]


# --------------------------------------------------------------------- constraints of interactions


GROUPS = {
    "pairs and the rest": [{0, 1}, [1, 2]],
    "overlapping": [(0, 1, 2), {2, 3, 4}, {0, 4}],
    "no_interactions": "no_interactions",
    "pairwise": "pairwise",
}


def interactions_of(respond, X, rng):
    """Largest mixed second difference of each pair of columns, at random rows and shifts."""
    d = X.shape[1]
    found = np.zeros((d, d))
    base, other = (X[rng.integers(len(X), size=300)] for _ in range(2))
    for i in range(d):
        for j in range(i):
            moved = [base.copy() for _ in range(3)]
            for k, columns in enumerate(([i], [j], [i, j])):
                moved[k][:, columns] = other[:, columns]
            one, two, both = map(respond, moved)
            found[i, j] = found[j, i] = np.abs(respond(base) + both - one - two).max()
    return found


def test_features_are_drawn_within_groups_of_several_features():
    groups = np.array([[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]], dtype=bool)
    chance = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    found = Interactions(groups, np.array([0, 1, 1, 2, 3])).chances(chance)
    np.testing.assert_array_equal(found, [0.1, 0.2, 0.3, 0, 0, *[0] * 5, 0, 0.2, 0.3, 0, 0.5])
    np.testing.assert_array_equal(Interactions(2, np.arange(5)).chances(chance), chance)


@pytest.mark.thin(2)
@pytest.mark.parametrize("linear_leaves", [False, True])
@pytest.mark.parametrize("given", GROUPS.values(), ids=GROUPS)
def test_columns_of_different_groups_do_not_interact(given, linear_leaves):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    y = X[:, 0] * X[:, 1] + X[:, 1] * X[:, 2] + X[:, 3] * X[:, 4] + X[:, 0] * X[:, 5]
    options = {"interaction_cst": given, "linear_leaves": linear_leaves, "max_depth": 5}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, y)
    found = interactions_of(model.predict, X, rng)
    if given == "pairwise":  # no term has three columns
        base, other = (X[rng.integers(300, size=200)] for _ in range(2))
        total = 0
        for number in range(8):
            chosen = [number >> k & 1 for k in range(3)]
            mixed = base.copy()
            mixed[:, :3] = np.where(chosen, other[:, :3], base[:, :3])
            total = total + (-1) ** sum(chosen) * model.predict(mixed)
        assert np.abs(total).max() < 1e-4 and found[0, 1] > 0.1
        return
    allowed = np.eye(6, dtype=bool)
    groups = [] if given == "no_interactions" else [*map(list, given)]
    if given == GROUPS["pairs and the rest"]:
        groups.append([3, 4, 5])
    for group in groups:
        allowed[np.ix_(group, group)] = True
    assert found[~allowed].max() < 1e-4
    assert not groups or found[allowed].max() > 0.1
    assert (len(model.forest_.sparse_feature) > 0) == (given != "no_interactions")


@given(st.integers(0, 2**32 - 1))
@fixed
def test_paths_and_directions_stay_within_groups(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(120, 7)), rng.normal(size=120)
    groups = [set(np.flatnonzero(mask).tolist()) for mask in rng.random((3, 7)) < 0.5]
    options = {"interaction_cst": groups, "min_samples_leaf": 3, "n_bags": 1, "n_estimators": 3}
    forest = quick(ObliqueBoostingRegressor, early_stopping=False, **options).fit(X, y).forest_
    groups.append(set(range(7)).difference(*groups))
    sparse = np.split(forest.sparse_feature, forest.sparse_start[1:-1])

    def walk(tree, node, used):
        assert any(used <= group for group in groups)
        if tree.child[node] >= 0:
            code = tree.direction[(tree.child[node] - 1) // 2]
            own = [code] if code < 7 else sparse[code - 7].tolist()
            for child in (0, 1):
                walk(tree, tree.child[node] + child, used | set(own))

    for tree in range(3):
        walk(forest[tree], 0, set())


def test_interactions_of_a_data_frame(tmp_path):
    """Features of one column of X belong together."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green", "red"], size=400)
    frame = pandas.DataFrame({"c": pandas.Categorical(colour), "x": rng.normal(size=400)})
    frame["z"] = rng.normal(size=400)
    y = frame["x"] * (colour == "green") + frame["z"] * (colour == "red")
    by_name = quick(ObliqueBoostingRegressor, interaction_cst=[{"c", "x"}]).fit(frame, y)
    save(by_name, tmp_path / "model")
    assert load(tmp_path / "model").interaction_cst == [{"c", "x"}]
    assert_same_trees(
        by_name, quick(ObliqueBoostingRegressor, interaction_cst=[[0, 1]]).fit(frame, y)
    )
    rows = frame.iloc[:40]
    shift = [by_name.predict(rows.assign(z=z)) - by_name.predict(rows) for z in (-1.0, 1.0)]
    slope = by_name.predict(rows.assign(z=1.0)) - by_name.predict(rows.assign(z=-1.0))
    np.testing.assert_allclose(slope, slope[0], atol=1e-5)
    assert np.ptp(shift[0]) > 0
    for wrong in ([{"q"}], [{3}], [{-1}], [1, 2], ["c"], [[0.5]], ("c", "x")):
        with pytest.raises(ValueError, match="interaction_cst="):
            clone(by_name).set_params(interaction_cst=wrong).fit(frame, y)


def test_columns_in_no_group_are_a_group():
    names = ["a", "b", "c", "d"]
    groups = [[1, 0, 1, 0], [0, 0, 1, 0], [0, 1, 0, 1]]
    for each in ([{0, "c"}, [2]], [("a", 2), {"c"}], [["a", "c"], ["c"], ["d", "b"]]):
        np.testing.assert_array_equal(read_groups(each, names), np.array(groups, dtype=bool))
    assert [read_groups(x, names) for x in ("pairwise", "no_interactions", None)] == [2, 1, None]
