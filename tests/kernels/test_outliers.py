"""Outliers of columns: usual ranges, the tails that outliers are moved to, units without them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed
from scipy import sparse
from skforest._kernels.base.row_reader import RowMap

import skforest
from skforest.table import matrix
from skforest.table.feature_map import FeatureMap
from skforest.table.matrix import (
    APART,
    FAR,
    FENCE,
    N_KNOTS,
    RARE,
    limited,
    min_max,
    scaled,
    usual_range,
    value_range,
)
from skforest.table.training_set import TrainingSet


def columns_with_outliers(n=1000, seed=0):
    """Columns, and whether outliers make the usual range smaller than the range."""
    rng = np.random.default_rng(seed)
    normal, tails = rng.normal(size=(2, n))
    few = np.arange(n) < n // 200
    columns = {
        "normal": (normal, False),
        "uniform": (rng.random(n), False),
        "wrong values": (np.where(few, 1e30, normal), True),
        "a code": (np.where(np.arange(n) < n // 8, -999, normal), True),
        "two codes": (np.where(np.arange(n) < n // 8, -999 - np.arange(n) % 2, normal), True),
        "two values": (rng.random(n) < 0.02, False),
        "mostly 0": (np.where(rng.random(n) < 0.8, 0, normal + 5), False),
        "mostly 0, wrong values": (
            np.where(few, -1e9, np.where(tails > 0.5, normal + 5, 0)),
            True,
        ),
        "constant": (np.full(n, 7.0), False),
        "a code of most rows": (np.where(np.arange(n) < 0.7 * n, -999, normal), True),
        "another unit": (np.where(np.arange(n) < 0.1 * n, 1000 * (5 + normal), normal), True),
        "counts": (rng.poisson(0.5, n), False),
        "missing": (np.where(np.arange(n) < n // 4, np.nan, normal), False),
        "never there": (np.full(n, np.nan), False),
        "heavy tails": (rng.standard_cauchy(n), True),
    }
    X = np.stack([values for values, _ in columns.values()], axis=1)
    return X, np.array([clips for _, clips in columns.values()]), list(columns)


def usual_ends(values, weight):
    """`usual_range` of the known values of a column, by definition: float, float."""
    order = np.argsort(values, kind="stable")
    values, weight = values[order], weight[order]
    whole = values[0], values[-1]

    def ends(share):
        """Lower and upper quantile of a share of the weight."""
        total, sought = np.cumsum(weight), share * (1 - 1e-9) * weight.sum()
        below = np.argmax(total >= sought)
        above = np.argmax(total > total[-1] - sought)
        return values[below], values[above]

    for end in whole:
        is_end = values == end
        if weight[is_end].sum() < RARE * weight.sum() or is_end.all():
            continue
        before = values, weight
        values, weight = values[~is_end], weight[~is_end]
        low, high = ends(0.25)
        if not max(low - end, end - high) > APART * (high - low) > 0:
            values, weight = before
    before = values, weight
    (first, last), (low, high) = ends(RARE), ends(0.25)
    if low == high and (values != low).any():
        common, is_other = low, values != low
        values, weight = values[is_other], weight[is_other]
        (first, last), (low, high) = (
            (min(common, a), max(common, b)) for a, b in (ends(RARE), ends(0.25))
        )
        values, weight = before
    near, far = FENCE * (high - low), APART * (high - low)
    if not ((low - far <= values) & (values < low - near)).any():
        first = low - near
    if not ((high + near < values) & (values <= high + far)).any():
        last = high + near
    factor = FAR if first >= low - near and last <= high + near else 2 * FAR
    usual = values[(values >= min(first, low - near)) & (values <= max(last, high + near))]
    is_long = factor * (usual[-1] - usual[0]) < whole[1] - whole[0]
    return (usual[0], usual[-1]) if is_long and usual[-1] > usual[0] else whole


@pytest.mark.parametrize("form", ["float64", "float32", "uint8", "sparse"])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_usual_ranges_are_as_defined(form, seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 3, 5, 10, 30, 100, 300]))
    normal, share = rng.normal(size=n), rng.random(5)
    columns = [
        normal,
        rng.standard_cauchy(n),
        np.where(rng.random(n) < share[0], -999, normal),
        rng.poisson(3 * share[1], n),
        np.where(rng.random(n) < share[2], 0, normal + 5),
        np.exp(3 * normal),
        np.where(rng.random(n) < 0.1, np.nan, normal),
        np.where(rng.random(n) < share[3], -999, np.where(rng.random(n) < share[4], 1e6, normal)),
        rng.integers(0, 4, n) ** 9.0,
    ]
    X = np.stack(columns, axis=1)
    weight = [np.ones(n), rng.integers(1, 4, n) / 4, rng.random(n) + 0.01][rng.integers(3)]
    if form == "uint8":
        X = np.clip(np.abs(np.nan_to_num(X)), 0, 255)
    elif form == "sparse":
        X = np.where(rng.random(X.shape) < rng.random(), 0, np.nan_to_num(X))
    X = X.astype("float64" if form == "sparse" else form)
    given_X = sparse.csr_matrix(X) if form == "sparse" else X
    low, high, _ = usual_range(given_X, weight, value_range(given_X))
    for j, column in enumerate(X.T.astype(float)):
        known = ~np.isnan(column)
        if not known.any():
            continue
        expected = usual_ends(column[known], weight[known])
        if form == "sparse" and (column == 0).any():  # zeros cannot be moved
            expected = min(expected[0], 0), max(expected[1], 0)
        assert (low[j], high[j]) == expected


def test_outliers_are_outside_of_the_usual_range():
    X, clips, names = columns_with_outliers()
    whole = value_range(X)
    low, high, knots = usual_range(X, np.ones(len(X)), whole)
    np.testing.assert_array_equal((knots[:, 0, -1] > high) | (knots[:, 1, -1] < low), clips)
    np.testing.assert_array_equal((low > whole[0]) | (high < whole[1]), clips)
    n_outside = ((X < low) | (X > high)).sum(axis=0)
    assert n_outside[2] == 5 and high[2] < 10
    expected = {"a code": 125, "two codes": 125, "a code of most rows": 700, "another unit": 100}
    for j, name in enumerate(names):
        assert n_outside[j] == expected.get(name, n_outside[j])
        assert name in expected or n_outside[j] <= 2 * RARE * len(X)
    # The ends are values of the column.
    for j in np.flatnonzero(clips):
        assert low[j] in X[:, j] and high[j] in X[:, j]


@pytest.mark.parametrize("end, n_outliers", [(12, 0), (30, 49)])
def test_a_tail_of_many_values_on_one_side_is_cut_only_where_it_is_long(end, n_outliers):
    x = np.concatenate([np.linspace(0, 1, 900), np.linspace(2.6, 3, 60), np.linspace(3, end, 40)])
    for X in (x[:, None], -x[:, None]):
        low, high, _ = usual_range(X, np.ones(1000), value_range(X))
        assert ((X < low) | (X > high)).sum() == n_outliers


def limits_of_columns(rng, n_columns=5):
    """Limits with knots; the first column has none above, the second none below."""
    low, high = np.sort(rng.normal(size=(2, n_columns)), axis=0).astype(np.float32)
    distance = np.cumsum(10 ** rng.uniform(-6, 9, size=(n_columns, 2, N_KNOTS)), axis=2)
    knots = np.stack([high, low], axis=1)[:, :, None] + distance * np.array([[1.0], [-1.0]])
    knots[0, 0], knots[1, 1] = high[0], low[1]
    return low, high, rng.uniform(0.1, 3, n_columns).astype(np.float32), knots


def limited_by_definition(z, low, high, tail, knots):
    """Piecewise linear interpolation of one number."""
    for sign, end, own in ((1, high, knots[0]), (-1, low, knots[1])):
        if sign * z > sign * end:
            if own[-1] == end:
                return end
            places = end + sign * tail * np.arange(N_KNOTS + 1) / N_KNOTS
            return np.interp(sign * z, sign * np.append(end, own), places)
    return z


@pytest.mark.parametrize("seed", range(3))
def test_limited_values_are_interpolated_between_knots(seed):
    rng = np.random.default_rng(seed)
    limits = limits_of_columns(rng)
    Z = np.sort(rng.normal(size=(200, 5)) * 10 ** rng.uniform(-8, 12, size=(200, 1)), axis=0)
    moved = limited(Z.copy(), *limits)
    assert (np.diff(moved, axis=0) >= 0).all()
    expected = [[limited_by_definition(z, *own) for z, own in zip(row, zip(*limits))] for row in Z]
    np.testing.assert_allclose(moved, expected, rtol=1e-9, atol=1e-9)
    column = np.tile(np.arange(5), 200)
    np.testing.assert_array_equal(limited(Z.ravel().copy(), *limits, column), moved.ravel())
    assert np.isnan(limited(np.full((1, 5), np.nan), *limits)).all()
    # The same bits row by row.
    arrays = dict(zip(("low", "high", "tail", "knots"), limits), fill=np.zeros(5, np.float32))
    feature_map = FeatureMap(np.zeros(5), np.ones(5), **arrays)
    row_map = RowMap(feature_map.arrays, [0] * 5, False)
    assert row_map.features(Z, True).tobytes() == feature_map.transform(Z).tobytes()


def test_codes_remain_different():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1))
    codes = [9999997.0, 9999998.0, 9999999.0, -(2.0**31)]
    X[:40, 0] = np.repeat(codes, 10)
    feature_map = FeatureMap.fit(X, np.ones(300), limit="usual")
    z = feature_map.inputs(X)
    assert len(np.unique(z[:40])) == 4 and z[40:].max() - z[40:].min() == 1
    for value in codes:
        mapped = feature_map.inputs(np.array([[value]]))[0, 0]
        assert feature_map.value_of(0, mapped) == pytest.approx(value, abs=0.4)


def test_codes_remain_different_beside_others_that_are_far_away():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 1))
    X[:150, 0] = 970 + np.arange(150) % 30
    X[150:152, 0] = 2e9, 1e9
    for sign in (1, -1):
        feature_map = FeatureMap.fit(sign * X, np.ones(1000), limit="usual")
        assert len(np.unique(feature_map.inputs(sign * X[:152]))) == 32


def test_outliers_do_not_erase_neighbouring_values():
    """Values that float32 tells apart, beside one that is 2^31 times as far away."""
    x = np.float32(1) + np.arange(200, dtype=np.float32) * np.float32(2**-23)
    X = np.append(x, np.float32(-(2.0**31)))[:, None].astype(float)
    for scaling in ("minmax", "standard"):
        feature_map = FeatureMap.fit(X, np.ones(201), scaling=scaling, limit="usual")
        assert len(np.unique(feature_map.inputs(X))) == 201
        # In the units of the data.
        for i in (0, 7, 200):
            assert feature_map.value_of(0, feature_map.inputs(X[i : i + 1])[0, 0]) == (
                pytest.approx(X[i, 0], rel=1e-3)
            )


def test_outliers_count_as_the_nearest_usual_value_in_units():
    X = np.nan_to_num(columns_with_outliers()[0]).astype(np.float32)
    y, weight = (
        np.zeros((len(X), 1)),
        np.random.default_rng(0).integers(1, 4, len(X)).astype(float),
    )
    low, high, _ = usual_range(X, weight, value_range(X))
    limited_rows = TrainingSet(np.clip(X, low, high).astype(np.float32), y, weight)
    rows = TrainingSet(X, y, weight)
    np.testing.assert_allclose(rows.unit(), limited_rows.unit(), rtol=1e-6)
    deviation = np.sqrt(np.average((X - np.average(X, 0, weight)) ** 2, axis=0, weights=weight))
    assert rows.has_outliers() and (deviation > 10 * rows.unit()).sum() >= 4
    sparse_rows = TrainingSet(sparse.csr_matrix(X), y, weight)
    np.testing.assert_allclose(sparse_rows.unit(), rows.unit(), rtol=1e-6)
    assert not TrainingSet(np.ascontiguousarray(X[:, :2]), y, weight).has_outliers()


def test_usual_ranges_depend_on_weighted_values_alone():
    X = columns_with_outliers()[0]
    rng = np.random.default_rng(1)
    weight = rng.integers(1, 4, len(X))
    copies = np.repeat(X, weight, axis=0)
    order = rng.permutation(len(copies))
    expected = usual_range(copies[order], np.ones(len(copies)), value_range(copies))
    *expected, knots = expected
    whole = value_range(X)
    for factor in (1, 1 / 3):
        *ends, own = usual_range(X, factor * weight, whole)
        np.testing.assert_array_equal(ends, expected)
        np.testing.assert_array_equal(own, knots)
    *mirrored, own = usual_range(-X, weight, value_range(-X))
    np.testing.assert_array_equal(-own[:, ::-1], knots)
    np.testing.assert_array_equal(-np.array(mirrored)[::-1], expected)


@pytest.mark.parametrize("n_weights", [1, 4])
def test_usual_ranges_of_bytes_and_floats_are_equal(n_weights):
    rng = np.random.default_rng(n_weights)
    rare = [
        np.where(rng.random(300) < share, value, 0) for share in (0.02, 0.3) for value in (9, 255)
    ]
    X = np.column_stack([rng.integers(0, 256, 300), rng.binomial(30, 0.1, 300), *rare])
    X = np.column_stack([X, rng.permutation(np.append(rng.integers(90, 99, 297), [0, 1, 255]))])
    weight = 0.3 * rng.integers(1, 1 + n_weights, len(X))
    every = [usual_range(x, weight, value_range(x)) for x in (X.astype(np.uint8), X.astype(float))]
    for own, expected in zip(*every):
        np.testing.assert_array_equal(own, expected)
    assert (every[0][1] < X.max(axis=0)).any() and (every[0][0] > X.min(axis=0)).any()


def test_usual_ranges_of_sparse_and_dense_matrices_are_equal():
    X = np.nan_to_num(columns_with_outliers()[0])
    weight = np.random.default_rng(1).random(len(X))
    S = sparse.csr_matrix(X)
    for own, expected in zip(
        usual_range(S, weight, value_range(S)), usual_range(X, weight, value_range(X))
    ):
        np.testing.assert_array_equal(own, expected)
    # Zeros that are not stored are never outliers.
    x = np.where(np.arange(200) < 1, 0, 1e6 + np.arange(200))[:, None]
    assert usual_range(x, np.ones(200), value_range(x))[0][0] > 1e5
    assert usual_range(sparse.csr_matrix(x), np.ones(200), value_range(x))[0][0] == 0


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_fences_beyond_float32():
    x = np.linspace(-1e38, 1e38, 100, dtype=np.float32)[:, None]
    *ends, _ = usual_range(x, np.ones(100), value_range(x))
    np.testing.assert_array_equal(ends, value_range(x))


@pytest.mark.parametrize("extreme", [5e-324, 1e-310, 1e-300, 1.0, 1e308])
def test_columns_with_a_usual_range_can_be_scaled(extreme):
    """The reciprocal of a range of subnormal numbers is infinite."""
    x = np.append(np.arange(99) / 99 * extreme, 1e308)[:, None]
    for X in (x, -x):
        low, high, _ = usual_range(X, np.ones(100), value_range(X))
        offset, scale = min_max(X, (low, high))
        assert np.isfinite(scaled(X, offset, scale)).all()
        assert ((X < low) | (X > high)).sum() == (1e-300 <= extreme < 1e308)


def test_usual_ranges_of_many_columns_are_those_of_each(monkeypatch):
    X = columns_with_outliers()[0]
    weight = np.ones(len(X))
    every = usual_range(X, weight, value_range(X))
    monkeypatch.setattr(skforest.table.matrix, "RANKED", 3000)
    for own, expected in zip(usual_range(X, weight, value_range(X)), every):
        np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize("n_entries", [1, 7, 1000])
def test_entries_of_sparse_columns_are_read_in_parts(n_entries, monkeypatch):
    """A column that is stored in all rows has no zero; smallest values may be in any part."""
    monkeypatch.setattr(matrix, "ENTRIES", n_entries)
    X = np.random.default_rng(0).normal(size=(40, 6))
    X[:, 2], X[:, 5] = 1 + np.abs(X[:, 2]), -1 - np.abs(X[:, 5])
    X[::3, 1], X[39, 4] = 0, 0
    for rows in (X, X[:1], np.abs(X)):
        given_X = sparse.csr_matrix(rows)
        np.testing.assert_array_equal(value_range(given_X), [rows.min(axis=0), rows.max(axis=0)])
        offset, _ = min_max(given_X)
        expected = np.where((rows == 0).any(axis=0), 0, rows.min(axis=0))
        np.testing.assert_array_equal(offset, expected)
