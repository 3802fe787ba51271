"""Directions of manifold forests: patches, sparse ones, single features."""

import math
import pickle
import re

import numpy as np
import pandas as pd
import pytest
from makers import changed, made
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.image import grid_to_graph

from skforest import (
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ManifoldProcedure,
    load,
    save,
    shapley_values,
)
from skforest.table.feature_grid import FeatureGraph

BOTH = [ManifoldForestClassifier, ManifoldForestRegressor]

SHAPE = (5, 8)


@pytest.fixture(params=BOTH, ids=lambda cls: cls.__name__)
def forest(request):
    return request.param(n_estimators=5, random_state=0, bootstrap=False)


def noise(n=200, n_features=40, seed=0):
    """Targets that are independent of the rows: no direction is better than another."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n_features)).astype(np.float32), rng.integers(0, 2, n)


def drawn(shape, n=200, **params):
    """Drawn directions as dense arrays: a node with one candidate splits by it."""
    n_features = int(np.prod(shape))
    own = {"feature_shape": shape, "max_features": 1, "random_state": 0} | params
    model = made(ManifoldForestClassifier, 10, **own)
    model.fit(*noise(n, n_features))
    weights = model.forest_.directions().toarray()
    assert len(weights) > 200
    return weights.reshape(-1, *np.atleast_1d(shape))


def extent(mask):
    """First entry and length of a boolean array's bounding box, along each axis."""
    hit = np.argwhere(mask)
    return hit.min(axis=0), np.ptp(hit, axis=0) + 1


def is_box(mask):
    """Are the entries that are true a full block?"""
    return np.prod(extent(mask)[1]) == mask.sum()


def is_run_on_circle(mask):
    """Are the true entries one run on a circle?"""
    return np.count_nonzero(mask & ~np.roll(mask, 1)) <= 1


def axis_of_edge(one):
    """Axis along which the two boxes of an edge are adjacent."""
    (apart,) = np.flatnonzero(extent(one > 0)[0] != extent(one < 0)[0])
    return int(apart)


def test_auto_projection_is_patch_where_a_shape_is_given(forest):
    X, y = noise(60)
    assert forest.fit(X, y).projection_ == "sparse"
    assert forest.set_params(feature_shape=SHAPE).fit(X, y).projection_ == "patch"
    assert forest.set_params(projection="axis").fit(X, y).projection_ == "axis"
    assert forest.feature_shape_ == SHAPE


def test_axis_directions_are_features():
    weights = drawn(40, projection="axis")
    assert (np.count_nonzero(weights, axis=1) == 1).all()
    assert (weights.max(axis=1) == 1).all()
    assert set(weights.argmax(axis=1)) == set(range(40))


@pytest.mark.parametrize("n", [1, 2, 5])
def test_sparse_directions_with_a_fixed_number(n):
    weights = drawn(40, projection="sparse", nonzeros="fixed", n_nonzeros=n, sparse_weights="sign")
    assert set(np.unique(weights)) <= {-1, 0, 1}
    assert (np.count_nonzero(weights, axis=1) == n).all()
    assert (weights != 0).any(axis=0).all()
    if n > 1:
        assert (weights[weights != 0] == 1).mean() == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize("mean", [0.5, 1.0, 3.0, 8.0])
def test_sparse_directions_with_a_poisson_number(mean):
    weights = drawn(40, projection="sparse", nonzeros="poisson", n_nonzeros=mean)
    counts = np.count_nonzero(weights, axis=1)
    assert counts.min() >= 1
    # A Poisson number that is not zero.
    expected = mean / -np.expm1(-mean)
    spread = np.sqrt(expected * (1 + mean - expected) / len(counts))
    assert abs(counts.mean() - expected) < 4 * spread
    assert counts.max() > expected


def test_scaled_weights_are_signs_over_standard_deviations(forest):
    X, y = noise(300, 6)
    X *= np.float32([1, 1000, 1e-3, 1, 1e6, 1])
    changed(forest, projection="sparse", nonzeros="fixed", n_nonzeros=3, sparse_weights="scaled")
    weights = forest.fit(X, y).forest_.directions().toarray()
    assert (np.count_nonzero(weights, axis=1) == 3).all()
    signs = weights * X.std(axis=0)
    np.testing.assert_allclose(np.abs(signs[signs != 0]), 1, rtol=0.01)
    assert (signs > 0).any() and (signs < 0).any()


def test_scaled_weights_do_not_depend_on_units():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6))
    y = (X[:, 0] - X[:, 1] + X[:, 2] > 0).astype(int)
    X *= 10.0 ** np.arange(-3, 3)
    errors = {}
    for kind in ("scaled", "sign"):
        procedure = ManifoldProcedure(nonzeros="fixed", n_nonzeros=3, sparse_weights=kind)
        model = ManifoldForestClassifier(
            50, projection="sparse", max_features=None, procedure=procedure, random_state=0
        )
        errors[kind] = error(model, (X[:300], y[:300]), (X[300:], y[300:]))
    assert errors["scaled"] < 0.3 * errors["sign"]


def test_more_nonzeros_than_features_mean_all_features():
    weights = drawn(4, n=400, projection="sparse", nonzeros="fixed", n_nonzeros=100)
    assert (weights != 0).all()


def test_sums_are_boxes_of_ones():
    weights = drawn(SHAPE, contrast="sum", max_patch=4)
    for one in weights:
        assert set(np.unique(one)) <= {0, 1}
        assert is_box(one != 0)


@pytest.mark.parametrize("contrast", ["sum", "edge"])
def test_sizes_keep_to_the_limits_of_each_axis(contrast):
    weights = drawn((5, 9), contrast=contrast, min_patch=(1, 2), max_patch=(2, 4))
    sizes = {tuple(extent(one > 0)[1]) for one in weights}
    assert sizes == {(a, b) for a in (1, 2) for b in (2, 3, 4)}


def test_one_limit_for_all_axes():
    weights = drawn((5, 9), contrast="sum", min_patch=2, max_patch=3)
    sizes = {tuple(extent(one != 0)[1]) for one in weights}
    assert sizes == {(a, b) for a in (2, 3) for b in (2, 3)}


def test_smallest_and_largest_size_may_be_the_same():
    weights = drawn((5, 9), contrast="sum", min_patch=(5, 3), max_patch=(5, 3))
    corners = {tuple(extent(one != 0)[0]) for one in weights}
    assert corners == {(0, b) for b in range(7)}
    assert all((one != 0).sum() == 15 for one in weights)


def test_edges_are_two_boxes_side_by_side():
    weights = drawn((6, 9), contrast="edge", max_patch=3)
    along = set()
    for one in weights:
        assert set(np.unique(one)) == {-1, 0, 1}
        assert one.sum() == 0
        assert is_box(one > 0) and is_box(one < 0) and is_box(one != 0)
        assert extent(one > 0)[1].tolist() == extent(one < 0)[1].tolist()
        along.add(axis_of_edge(one))
    assert along == {0, 1}


def test_differences_are_two_equal_boxes_not_far_apart():
    weights = drawn((30, 20), contrast="difference", min_patch=2, max_patch=2)
    apart = []
    for one in weights:
        if (one != 0).sum() == 8:  # boxes that do not overlap
            a, b = extent(one > 0)[0], extent(one < 0)[0]
            apart.append(np.abs(a - b))
            assert is_box(one > 0) and is_box(one < 0)
        else:  # overlapping boxes cancel, equal ones fall back to a sum
            assert one.sum() in (0, 4)
    assert len(apart) > 100
    assert 4 < np.max(apart) <= 8
    assert (np.array(apart) > 0).any(axis=0).all()


def test_a_mix_is_one_of_the_three():
    weights = drawn((12, 15), n=400, contrast="mix", min_patch=2, max_patch=3)
    kinds = {"sum": 0, "edge": 0, "difference": 0}
    for one in weights:
        if one.min() >= 0:
            kinds["sum"] += 1
            assert is_box(one != 0) and one.max() == 1
        else:
            kinds["edge" if is_box(one != 0) else "difference"] += 1
            assert one.sum() == 0
    # A few differences look like sums or edges.
    spread = np.sqrt(2 / 9 / len(weights))
    for count in kinds.values():
        assert count / len(weights) == pytest.approx(1 / 3, abs=4 * spread + 0.03)


@pytest.mark.parametrize("contrast", ["sum", "edge"])
def test_wrap_on_a_circle(contrast):
    weights = drawn(20, contrast=contrast, max_patch=5, wrap=True)
    crossing = 0
    for one in weights:
        assert is_run_on_circle(one > 0) and is_run_on_circle(one < 0)
        assert is_run_on_circle(one != 0)
        crossing += one[0] != 0 and one[-1] != 0
    assert crossing > len(weights) / 20
    # All positions of a circle are equally likely.
    share = (weights != 0).mean(axis=0)
    assert share.max() < 1.6 * share.min()
    straight = drawn(20, contrast=contrast, max_patch=5, wrap=False)
    assert not ((straight[:, 0] != 0) & (straight[:, -1] != 0)).any()


def test_wrap_of_single_axes():
    weights = drawn((6, 9), contrast="sum", max_patch=3, wrap=(False, True))
    assert not ((weights[:, 0] != 0) & (weights[:, -1] != 0)).any()
    assert ((weights[:, :, 0] != 0) & (weights[:, :, -1] != 0)).any()
    torus = drawn((6, 9), contrast="sum", max_patch=3, wrap=True)
    corners = torus[:, [0, 0, -1, -1], [0, -1, 0, -1]] != 0
    assert corners.all(axis=1).any()


def test_unordered_axis_takes_random_subsets():
    weights = drawn(8, n=400, contrast="sum", unordered=True, min_patch=1, max_patch=8)
    sizes = np.count_nonzero(weights, axis=1)
    assert set(sizes) == set(range(1, 9))
    assert len(np.unique(weights, axis=0)) > 100  # there are 36 runs
    np.testing.assert_allclose((weights != 0).mean(axis=0), 4.5 / 8, atol=0.1)


@pytest.mark.parametrize("contrast", ["sum", "edge", "difference"])
def test_colour_images_take_the_same_channels_everywhere(contrast):
    weights = drawn(
        (6, 7, 3), contrast=contrast, max_patch=(3, 3, 3), unordered=(False, False, True)
    )
    seen = set()
    for one in weights:
        channels = (one != 0).any(axis=(0, 1))
        seen.add(tuple(channels))
        # The same box in every channel of the subset.
        picture = one[:, :, channels]
        assert (picture == picture[:, :, :1]).all()
        if contrast == "edge":
            assert one.sum() == 0 and is_box((one > 0).any(axis=2))
    assert len(seen) == 7  # all subsets but the empty one


def test_volumes():
    weights = drawn((4, 5, 6), contrast="sum", min_patch=(1, 2, 1), max_patch=(2, 2, 4))
    sizes = {tuple(extent(one != 0)[1]) for one in weights}
    assert sizes == {(a, 2, c) for a in (1, 2) for c in (1, 2, 3, 4)}
    assert all(is_box(one != 0) and one.max() == 1 for one in weights)
    edges = drawn((4, 5, 6), contrast="edge", max_patch=2)
    assert {axis_of_edge(one) for one in edges} == {0, 1, 2}


def test_four_axes():
    weights = drawn((3, 2, 3, 2), contrast="sum", min_patch=(2, 1, 3, 1), max_patch=(2, 2, 3, 1))
    assert {tuple(extent(one != 0)[1]) for one in weights} == {(2, 1, 3, 1), (2, 2, 3, 1)}


def test_placement():
    """Corner first, with sizes limited by the border; or size first, all sizes equally likely."""
    params = {"contrast": "sum", "min_patch": 1, "max_patch": 15}
    inside, corner = (drawn(30, placement=p, **params) for p in ("inside", "corner"))
    of_inside = np.count_nonzero(inside, axis=1)
    of_corner = np.count_nonzero(corner, axis=1)
    spread = 15 / np.sqrt(12 * len(of_inside))
    assert abs(of_inside.mean() - 8) < 4 * spread
    # Corners 0 .. 29, sizes 1 .. min(15, 30 - corner).
    expected = np.mean([(1 + min(15, 30 - c)) / 2 for c in range(30)])
    assert abs(of_corner.mean() - expected) < 4 * spread
    assert (corner[:, -1] != 0).mean() > (inside[:, -1] != 0).mean()


def test_shape_as_an_int_and_none():
    X, y = noise()
    params = {"n_estimators": 3, "random_state": 0, "projection": "patch"}
    none = ManifoldForestClassifier(**params).fit(X, y)
    for shape in (40, (40,), [40], np.array([40]), np.int64(40)):
        other = ManifoldForestClassifier(feature_shape=shape, **params).fit(X, y)
        assert other.feature_shape_ == (40,)
        np.testing.assert_array_equal(other.forest_.threshold, none.forest_.threshold)


def test_limits_per_axis_are_lists_tuples_or_arrays():
    X, y = noise()

    def thresholds(**params):
        own = {"feature_shape": SHAPE, "random_state": 0}
        model = made(ManifoldForestClassifier, 3, **own, **params)
        return model.fit(X, y).forest_.threshold

    limits = {
        "min_patch": (1, 2),
        "max_patch": (3, 4),
        "wrap": (True, False),
        "unordered": (False, False),
    }
    wanted = thresholds(**limits)
    for kind in (list, np.array):
        found = thresholds(**{name: kind(value) for name, value in limits.items()})
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        thresholds(min_patch=2, max_patch=3, wrap=True),
        thresholds(min_patch=[2, 2], max_patch=[3, 3], wrap=[True, True]),
    )


def test_automatic_patch_sizes_fit_the_shape():
    X, y = noise()
    model = ManifoldForestClassifier(2, feature_shape=(10, 2, 2), unordered=(False, False, True))
    model.fit(X, y)
    low, high = np.array(model.min_patch_), np.array(model.max_patch_)
    assert (low >= 1).all() and (low <= high).all() and (high <= [10, 2, 2]).all()
    assert high.tolist() == [4, 2, 2]  # roots, rounded up; all of an unordered axis


# ----------------------------------------------------------------------------------------- graphs


def ring(n):
    """Adjacency matrix of a circle."""
    return np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)


def test_patches_of_a_graph_are_balls():
    weights = drawn(20, feature_shape=None, feature_graph=ring(20), contrast="sum", max_patch=3)
    assert {np.count_nonzero(one) for one in weights} == {1, 3, 5}
    assert all(is_run_on_circle(one != 0) and one.max() == 1 for one in weights)
    edges = drawn(20, feature_shape=None, feature_graph=ring(20), contrast="edge", max_patch=3)
    assert all(is_run_on_circle(one > 0) and is_run_on_circle(one != 0) for one in edges)
    assert all((one > 0).sum() == (one < 0).sum() for one in edges)


def test_neighbours_on_a_graph_are_as_good_as_those_on_a_grid():
    """Two segments of 5 sensors on a circle of 50, or of 3 and 7."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    start = rng.integers(50, size=600)
    place = np.arange(50)
    gap = rng.integers(10, 35, size=600)
    X = (place - start[:, None]) % 50 < (5 - 2 * y)[:, None]
    X |= (place - (start + gap)[:, None]) % 50 < (5 + 2 * y)[:, None]
    layouts = {
        "none": {},
        "grid": {"feature_shape": (50,), "wrap": True},
        "graph": {"feature_graph": ring(50)},
    }
    split = (X[:200], y[:200]), (X[200:], y[200:])
    errors = {
        name: error(ManifoldForestClassifier(20, random_state=0, **layout), *split)
        for name, layout in layouts.items()
    }
    assert errors["grid"] < 0.2 and errors["graph"] < 0.2 < 0.3 < errors["none"]


def test_a_graph_may_have_any_form():
    X, y = noise(100, 12)
    y = y + X[:, 0]
    own = {"n_estimators": 3, "random_state": 0}
    wanted = ManifoldForestRegressor(feature_graph=ring(12), **own).fit(X, y)
    assert wanted.projection_ == "patch" and wanted.feature_shape_ == (12,)
    assert wanted.max_patch_.tolist() == [2]  # 3 features are at most 1 step apart, 5 at most 2
    weighted = ring(12) * 0.3 + 7 * np.eye(12)
    twice = sparse.coo_array(ring(12) > 0)
    twice = sparse.coo_array(
        (np.tile(twice.data, 2), [np.tile(part, 2) for part in (twice.row, twice.col)])
    )
    given = [ring(12).tolist(), weighted, twice, sparse.csr_matrix(ring(12)), ring(12) > 0]
    before = [getattr(one, "nnz", None) for one in given]
    for graph in given:
        found = ManifoldForestRegressor(feature_graph=graph, **own).fit(X, y)
        np.testing.assert_array_equal(found.predict(X), wanted.predict(X))
        assert not len(found.forest_.box_corner) and len(found.forest_.sparse_feature)
    assert [getattr(one, "nnz", None) for one in given] == before
    axis = ManifoldForestRegressor(feature_graph=ring(12), projection="axis", **own).fit(X, y)
    assert not len(axis.forest_.sparse_feature)


def test_the_usual_patch_of_a_graph_has_the_root_of_the_number_of_features():
    def usual(adjacency):
        return FeatureGraph(adjacency, len(adjacency)).usual_steps

    assert usual(ring(100)) == 5  # 11 features are nearer to 10 than 9, as a ratio
    assert usual(grid_to_graph(28, 28).toarray()) == 3  # 23 features, or 37
    assert usual(grid_to_graph(8, 8).toarray()) == 2  # 10 features, or 4.5
    assert usual(np.zeros((5, 5))) == usual(np.ones((5, 5))) == usual(np.ones((1, 1))) == 1
    forest = ManifoldForestClassifier(1, feature_graph=ring(50), max_depth=1).fit(*noise(20, 50))
    assert (forest.min_patch_, forest.max_patch_) == (1, usual(ring(50)) + 1)


@pytest.mark.parametrize(
    "graph, words",
    [
        (np.zeros((6, 5)), r"\(6, 5\).* 6 features"),
        (ring(7), r"\(7, 7\).* 6 features"),
        (np.zeros(6), r"\(6,\)"),
        (np.triu(ring(6)), r"symmetric.*\[0, 1\].*\[1, 0\]"),
        (sparse.csr_array(-ring(6)), r"-1\.0.* not negative"),
        (np.where(ring(6), np.nan, 0), "nan.* finite"),
        (sparse.csr_array(ring(6) * 1j), "matrix of numbers.*complex"),
        ([[0, 1], [1]], "matrix of numbers"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_graphs_that_are_refused(forest, graph, words):
    with pytest.raises(ValueError, match=f"(?s)feature_graph.*{words}"):
        forest.set_params(feature_graph=graph).fit(*noise(20, 6))


@pytest.mark.parametrize(
    "grid", [{"feature_shape": 6}, {"wrap": True}, {"unordered": [True]}], ids=str
)
def test_a_graph_excludes_a_grid(forest, grid):
    ((name, value),) = grid.items()
    with pytest.raises(ValueError, match=f"{name}={re.escape(repr(value))}.*feature_graph"):
        forest.set_params(feature_graph=ring(6), **grid).fit(*noise(20, 6))


def test_tables_with_a_graph(forest):
    """As with a grid: no sparse rows, no categories, and missing values are means."""
    X, y = noise(40, 6)
    forest.set_params(feature_graph=ring(6), wrap=False)
    with pytest.raises(TypeError, match="dense.*feature_graph"):
        forest.fit(sparse.csr_array(X), y)
    with pytest.raises(ValueError, match="category.*feature_graph"):
        clone(forest).set_params(categorical_features=[0]).fit(np.abs(X).astype(int), y)
    X[3, 2] = np.nan
    forest.fit(X, y)
    assert forest.forest_.n_features == 6
    filled = np.where(np.isnan(X), np.nanmean(X[:, 2]), X)
    np.testing.assert_allclose(forest.predict(X), forest.predict(filled))


def test_models_with_a_graph_are_used_like_all_others(forest, tmp_path):
    X, y = noise(60, 12)
    forest.set_params(feature_graph=sparse.coo_array(ring(12))).fit(X, y)
    save(forest, tmp_path / "model.npz")
    for again in (load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(forest))):
        np.testing.assert_array_equal(again.feature_graph.toarray(), ring(12))
        np.testing.assert_array_equal(again.predict(X), forest.predict(X))
        np.testing.assert_array_equal(clone(again).fit(X, y).predict(X), forest.predict(X))
    found = shapley_values(forest, X[:2], X)
    total = found.values.sum(axis=1) + found.base_values  # of the second class
    np.testing.assert_allclose(total, forest.forest_.response(X[:2])[:, -1], atol=1e-5)
    assert forest.feature_importances_.shape == (12,)


def error(model, train, test):
    return 1 - model.fit(*train).score(*test)


def test_the_labels_of_a_graph_are_those_of_the_columns():
    X, y = noise(80, 6)
    names, order = list("fedcba"), [2, 0, 5, 3, 1, 4]
    graph = pd.DataFrame(ring(6), names, names)
    own = {"n_estimators": 3, "random_state": 0}
    frame = pd.DataFrame(X, columns=names)
    wanted = (
        ManifoldForestClassifier(feature_graph=ring(6), **own).fit(frame, y).predict_proba(frame)
    )
    plain = pd.DataFrame(ring(6))
    for given in (graph, graph.iloc[order, order], graph.iloc[order], plain):
        found = ManifoldForestClassifier(feature_graph=given, **own).fit(frame, y)
        np.testing.assert_array_equal(found.predict_proba(frame), wanted)
    for given, rows in ((graph.rename(columns={"a": "x"}), frame), (graph.rename({"a": "x"}), X)):
        with pytest.raises(ValueError, match="feature_graph are labelled .* like"):
            ManifoldForestClassifier(feature_graph=given, **own).fit(rows, y)
    procedure = ManifoldProcedure(max_patch=7)
    with pytest.raises(ValueError, match="max_patch=7 must not exceed the 6 features of X"):
        ManifoldForestClassifier(feature_graph=graph, procedure=procedure).fit(X, y)


@pytest.mark.parametrize("shape, patch", [((7,), 7), ((2,), "auto"), ((4, 4), 4)])
def test_a_whole_circle_minus_itself_is_no_direction(shape, patch):
    X, y = noise(200, math.prod(shape))
    procedure = ManifoldProcedure(max_patch=patch, contrast="difference")
    model = ManifoldForestClassifier(30, feature_shape=shape, wrap=True, procedure=procedure)
    directions = model.set_params(random_state=0).fit(X, y).forest_.directions()
    assert np.diff(directions.indptr).min() > 0


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_no_split_compares_rounding_errors_of_proportional_columns(kind):
    """A length in three units has combinations that are 0, up to rounding errors."""
    rng = np.random.default_rng(0)
    length = 170 + 10 * rng.normal(size=300)
    others = rng.normal(size=(300, 2))
    X = np.column_stack([length, length / 2.54, length / 100, others]).astype(np.float32)
    y = (others[:, 0] + 0.7 * rng.normal(size=300) > 0).astype(int)
    model = ManifoldForestClassifier(50, random_state=0)
    model.fit(sparse.csr_array(X) if kind == "sparse" else X, y)
    directions = model.forest_.directions().toarray().astype(float)
    terms = directions[:, None] * X
    ranges, sizes = np.ptp(terms.sum(axis=2), axis=1), np.abs(terms).sum(axis=2).max(axis=1)
    assert len(ranges) > 100
    assert (ranges > 1e-6 * sizes).all()
