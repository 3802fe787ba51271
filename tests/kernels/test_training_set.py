"""A training set is a weighted set of rows, and bootstraps are drawn from it."""

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from makers import fixed
from scipy import sparse, stats
from skforest._kernels.base.row_reader import RowMap, whole_bytes
from skforest._kernels.base.rows import RowOrder, tree_seed

import skforest
from skforest.table.matrix import (
    BLOCK,
    CACHED,
    is_mapped,
    rows_of,
)
from skforest.table.training_set import TrainingSet

DTYPES = [np.uint8, np.float32]


def repeated_rows(dtype, seed=0, n=200, n_features=3, n_outputs=1):
    """Rows of few values, which repeat; weights 0, 1, 2, 3."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, size=(n, n_features)).astype(dtype)
    if dtype == np.float32:
        X = np.where(rng.random(X.shape) < 0.3, -X, X)  # of both zeros too
    Y = rng.integers(0, 2, size=(n, n_outputs)).astype(np.float64)
    return X, Y, rng.integers(0, 4, size=n).astype(np.float64)


def as_dict(rows):
    return oracles.distinct_rows(rows.X, rows.y, rows.weight)


def assert_same_rows(one, other):
    np.testing.assert_array_equal(one.X, other.X)
    np.testing.assert_array_equal(one.y, other.y)
    assert one.weight.tobytes() == other.weight.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_features", [1, 2, 7, 8, 9, 17])
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_row_set_is_the_set_of_weighted_rows(n_features, n_outputs, dtype):
    X, Y, weight = repeated_rows(dtype, n_features, 300, n_features, n_outputs)
    rows = TrainingSet(X, Y, weight)
    expected = oracles.distinct_rows(X, Y, weight)
    assert len(rows) == len(expected)
    assert as_dict(rows) == expected
    assert (rows.X.dtype, rows.y.dtype) == (dtype, np.float64)
    assert rows.X.flags.c_contiguous and rows.y.flags.c_contiguous
    present = weight > 0
    assert (rows.row_of_sample[~present] == -1).all()
    np.testing.assert_array_equal(rows.X[rows.row_of_sample[present]], X[present])
    np.testing.assert_array_equal(rows.y[rows.row_of_sample[present]], Y[present])


# Both zeros, the largest and the smallest float32.
VALUES = [0.0, -0.0, 1.0, -1.0, (2 - 2.0**-23) * 2.0**127, 2.0**-149]


@fixed
@given(
    hnp.arrays(np.float32, (12, 2), elements=st.sampled_from(VALUES)),
    hnp.arrays(np.float64, (12, 1), elements=st.sampled_from([0.0, -0.0, 1.0, 2.0])),
    hnp.arrays(np.float64, 12, elements=st.integers(0, 3)),
)
def test_any_small_set(X, Y, weight):
    weight[0] = 1
    rows = TrainingSet(X, Y, weight)
    assert as_dict(rows) == oracles.distinct_rows(X, Y, weight)
    assert len(rows) == len(as_dict(rows))


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_order_of_the_samples_does_not_matter(dtype):
    X, Y, weight = repeated_rows(dtype)
    rows = TrainingSet(X, Y, weight)
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(len(X))
        other = TrainingSet(X[order], Y[order], weight[order])
        assert_same_rows(rows, other)
        np.testing.assert_array_equal(other.row_of_sample, rows.row_of_sample[order])
        np.testing.assert_array_equal(other.bootstrap(3, 50), rows.bootstrap(3, 50))


def test_the_order_does_not_matter_for_real_weights():
    """0.1 + 0.2 + 0.3 has other bits than 0.3 + 0.2 + 0.1."""
    X = np.repeat(np.arange(5, dtype=np.float32), 20)[:, None]
    Y = np.zeros((100, 1))
    weight = np.random.default_rng(0).random(100)
    rows = TrainingSet(X, Y, weight)
    np.testing.assert_allclose(rows.weight.sum(), weight.sum())
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(100)
        assert_same_rows(rows, TrainingSet(X[order], Y[order], weight[order]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_weight_of_k_is_k_copies_and_zero_is_absence(dtype):
    X, Y, weight = repeated_rows(dtype)
    copies = np.repeat(np.arange(len(X)), weight.astype(int))
    rows = TrainingSet(X, Y, weight)
    other = TrainingSet(X[copies], Y[copies], np.ones(len(copies)))
    assert_same_rows(rows, other)
    np.testing.assert_array_equal(other.bootstrap(3, 50), rows.bootstrap(3, 50))
    np.testing.assert_array_equal(other.row_of_sample, rows.row_of_sample[copies])


def test_rows_of_equal_x_and_different_y_are_distinct():
    X = np.ones((6, 4), dtype=np.uint8)
    Y = np.array([[0.0], [1.0], [0.0], [2.0], [1.0], [0.0]])
    rows = TrainingSet(X, Y, np.ones(6))
    assert sorted(zip(rows.y[:, 0].tolist(), rows.weight.tolist())) == [(0, 3), (1, 2), (2, 1)]


def test_both_zeros_are_one_value():
    X = np.array([[0.0, 1.0], [-0.0, 1.0]], dtype=np.float32)
    assert len(TrainingSet(X, np.array([[0.0], [-0.0]]), np.ones(2))) == 1


def test_neighbouring_floats_are_distinct():
    one = np.float32(1)
    X = np.array([[one], [np.nextafter(one, np.float32(2))], [1e-45], [0.0]], dtype=np.float32)
    assert len(TrainingSet(X, np.zeros((4, 1)), np.ones(4))) == 4
    Y = np.array([[1.0], [np.nextafter(1.0, 2.0)]])
    assert len(TrainingSet(np.ones((2, 1), dtype=np.float32), Y, np.ones(2))) == 2


# --------------------------------------------------------------------------------------- hashes


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_features", [2, 8, 11])
def test_different_rows_have_different_hashes(n_features, dtype):
    """Rows that differ in one column, for every column."""
    X = np.zeros((250 * n_features, n_features), dtype=dtype)
    for j in range(n_features):
        X[250 * j : 250 * (j + 1), j] = np.arange(1, 251)
    hashes = RowOrder(X, np.zeros((len(X), 1))).hashes(np.arange(len(X)))
    assert len(np.unique(hashes)) == len(X)
    # and spread over all 64 bits
    bits = np.unpackbits(hashes.view(np.uint8)).reshape(-1, 64).mean(axis=0)
    assert abs(bits - 0.5).max() < 5 * 0.5 / np.sqrt(len(X))


def test_the_order_is_independent_of_the_values():
    X = np.arange(4000, dtype=np.float32)[:, None]
    rows = TrainingSet(X, np.zeros((4000, 1)), np.ones(4000))
    assert abs(stats.spearmanr(rows.X[:, 0], np.arange(4000)).statistic) < 0.06
    assert abs(stats.spearmanr(rows.X[1:, 0], rows.X[:-1, 0]).statistic) < 0.06


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_equal_hashes_are_ordered_by_their_values(dtype):
    """All hashes are equal: rows are sorted by x, then y, and only equal rows are merged."""
    X, Y, _ = repeated_rows(dtype, n=60)
    order = RowOrder(X, Y)
    rows = np.random.default_rng(1).permutation(60)
    is_first = order.sort_equal_hashes(rows, np.zeros(60, dtype=np.uint64))
    keys = [(*(X[i] + 0.0).tolist(), *Y[i].tolist()) for i in rows]
    assert sorted(rows) == list(range(60))
    assert keys == sorted(keys)
    assert is_first.tolist() == [i == 0 or keys[i] != keys[i - 1] for i in range(60)]
    assert 10 < is_first.sum() < 60


def test_hashes_that_collide_in_groups():
    """Equal rows have equal hashes; here some unequal rows do, too."""
    X = np.array([[5], [3], [5], [1], [3], [9]], dtype=np.float32)
    order = RowOrder(X, np.zeros((6, 1)))
    rows = np.arange(6)
    is_first = order.sort_equal_hashes(rows, np.array([1, 1, 1, 2, 2, 3], dtype=np.uint64))
    assert X[rows, 0].tolist() == [3, 5, 5, 1, 3, 9]
    assert is_first.tolist() == [True, True, False, True, True, True]


def test_many_copies_of_few_rows():
    X = np.tile(np.arange(7, dtype=np.uint8), 3000)[:, None]
    rows = TrainingSet(X, np.zeros((21000, 1)), np.ones(21000))
    assert sorted(rows.X[:, 0].tolist()) == list(range(7))
    assert (rows.weight == 1).all()  # all rows have as many copies


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_unit_is_the_weighted_standard_deviation(dtype):
    X, Y, weight = repeated_rows(dtype, n=300, n_features=6)
    X[:, 2] = 1
    X[:, 3] += 200
    rows = TrainingSet(X, Y, weight)
    copies = np.repeat(X, weight.astype(int), axis=0).astype(float)
    expected = copies.std(axis=0)
    expected[2] = 1  # a constant is not scaled
    np.testing.assert_allclose(rows.unit(), expected, rtol=1e-5)
    assert rows.unit().dtype == np.float32


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_copies_of_a_row_have_its_weight_together(kind):
    """Copies of rows that have other targets elsewhere, and of rows that repeat."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.integers(0, 3, (40, 1)), np.arange(90)[:, None] + 10])
    X = X.astype(np.float32)
    y = np.concatenate([rng.integers(0, 2, 40), np.zeros(90)])[:, None]
    rows = TrainingSet(kind(X), y, np.where(np.arange(130) % 5, 1.0, 3.0))
    copies, row = rows.in_copies()
    assert len(copies) > len(rows) == len(np.unique(row))
    np.testing.assert_allclose(np.bincount(row, copies.weight), rows.weight)
    np.testing.assert_array_equal(copies.y, rows.y[row])
    assert all(np.ptp(copies.weight[row == number]) == 0 for number in np.unique(row))


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_statistics_of_more_rows_than_a_block(kind):
    """The last block is shorter, and all of its rows count, with their own weights."""
    rng = np.random.default_rng(0)
    n = max(2 * BLOCK, CACHED // 8) + 37
    X = rng.normal(size=(n, 8)).astype(np.float32) * (rng.random((n, 8)) < 0.5)
    X[:, 0] = np.arange(n)  # rows differ
    X[-37:] += 4
    weight = rng.exponential(size=n)
    weight[: n // 2] /= 5
    rows = TrainingSet(kind(X), np.zeros((n, 1)), weight)
    assert len(rows) == n
    mean = np.average(X, axis=0, weights=weight)
    deviation = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    np.testing.assert_allclose(rows.mean(), mean, rtol=1e-5)
    np.testing.assert_allclose(rows.deviation(), deviation, rtol=1e-5)


def test_the_largest_value_is_absolute():
    """For bytes it is 255, the bound of all bytes."""
    X = np.array([[1, -7, 2], [0, 3, 5]], dtype=np.float32)
    assert TrainingSet(X, np.zeros((2, 1)), np.ones(2)).largest() == 7
    assert TrainingSet(X, np.zeros((2, 1)), np.array([0.0, 1.0])).largest() == 5
    assert TrainingSet(abs(X).astype(np.uint8), np.zeros((2, 1)), np.ones(2)).largest() >= 7


def test_the_unit_of_extreme_values_is_a_number():
    X = np.array([[3e38, 1e7, 1e-45], [-3e38, 1e7 + 1, 0]], dtype=np.float32)
    unit = TrainingSet(X, np.zeros((2, 1)), np.ones(2)).unit()
    assert np.isfinite(unit).all() and (unit > 0).all()
    assert np.isfinite(1 / unit).all()
    assert unit[1] == 0.5


# ----------------------------------------------------------------------------------- bootstraps


def some_rows(weight):
    X = np.arange(len(weight), dtype=np.float32)[:, None]
    return TrainingSet(X, np.zeros((len(weight), 1)), np.asarray(weight, dtype=float))


@pytest.mark.parametrize(
    "weight", [np.ones(30), np.full(30, 0.25), np.arange(1, 31), [0.5, 1, 2, 4], [1e-9, 5, 1e3]]
)
def test_bootstraps_follow_the_weights(weight):
    rows = some_rows(weight)
    total = np.zeros(len(rows))
    for tree in range(200):
        counts = rows.bootstrap(tree_seed(1, tree), 100)
        assert counts.sum() == 100 and (counts == np.rint(counts)).all()
        total += counts
    expected = rows.weight / rows.weight.sum() * 20000
    rare = expected < 5
    assert total[rare].sum() <= 5
    assert (
        stats.chisquare(
            total[~rare], expected[~rare] * total[~rare].sum() / expected[~rare].sum()
        ).pvalue
        > 1e-3
    )


def test_counts_of_one_row_are_binomial():
    rows = some_rows(np.ones(40))
    counts = np.concatenate([rows.bootstrap(tree_seed(2, tree), 40) for tree in range(300)])
    found = np.bincount(counts.astype(int), minlength=6)
    chance = stats.binom.pmf(np.arange(5), 40, 1 / 40)
    chance = np.append(chance, 1 - chance.sum())
    found = np.append(found[:5], found[5:].sum())
    assert stats.chisquare(found, chance * 12000).pvalue > 1e-3


def overlap(one, other):
    """Share of the rows of one bootstrap that are in the other, too."""
    return ((one > 0) & (other > 0)).sum() / (one > 0).sum()


@pytest.mark.parametrize("weight", [np.ones(1500), np.arange(1500) % 2 + 1.0])
def test_bootstraps_of_trees_and_of_neighbouring_seeds_overlap_as_independent_ones(weight):
    """63 % for equal weights; a shifted copy of the same draws would overlap completely."""
    rows = some_rows(weight)
    pairs = [(seed, tree) for seed in (0, 1, 2, 12345, 2**62) for tree in range(12)]
    draws = [rows.bootstrap(tree_seed(*pair), 1500) for pair in pairs]
    chance = -np.expm1(-1500 * rows.weight / rows.weight.sum())
    expected = (chance**2).sum() / chance.sum()
    found = [overlap(a, b) for i, a in enumerate(draws) for b in draws[:i]]
    assert np.mean(found) == pytest.approx(expected, abs=0.003)
    assert np.ptp(found) < 0.14
    if np.ptp(weight) == 0:
        assert expected == pytest.approx(0.632, abs=0.001)
        assert np.mean(draws[0] > 0) == pytest.approx(0.632, abs=0.03)


@pytest.mark.parametrize("n_draws, n_drawn", [(100, 80), (50, 40), (1, 1), (7, 6)])
def test_members_without_a_fold_draw_fewer_rows(n_draws, n_drawn):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2)).astype(np.float32)
    rows = TrainingSet(X, np.zeros((100, 1)), np.ones(100))
    rows = rows.with_folds(np.arange(100) % 5, 5)
    for member in range(6):
        own = rows.without_fold(member)
        counts = own.bootstrap(member, n_draws)
        assert counts.sum() == n_drawn
        assert not counts[rows.is_left_out(member)].any()
        np.testing.assert_array_equal(own.left_out_weight > 0, np.arange(100) % 5 == member % 5)


def test_a_seed_gives_the_same_bootstrap():
    rows = some_rows(np.ones(100))
    assert rows.bootstrap(7, 100).tobytes() == rows.bootstrap(7, 100).tobytes()
    assert (rows.bootstrap(7, 100) != rows.bootstrap(8, 100)).any()


NO_BYTES = [-1, -0.5, 0.5, 254.5, 255.5, 256, 2**31, 1e30, -1e30, np.nan, np.inf, -np.inf]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whole_numbers_up_to_255_become_bytes(dtype):
    """All lengths of rows around blocks of vectors, and other numbers at every place."""
    rng = np.random.default_rng(0)
    for n_columns in (0, 1, 2, 63, 64, 65, 130):
        X = rng.integers(0, 256, size=(3, n_columns)).astype(dtype)
        X[:, :1] = [[-0.0], [0], [255]]
        found = whole_bytes(X)
        assert found.dtype == np.uint8
        np.testing.assert_array_equal(found, X)
        for j in range(n_columns):
            Z = X.copy()
            Z[rng.integers(3), j] = rng.choice(NO_BYTES)
            assert whole_bytes(Z) is None
    for other in NO_BYTES:
        assert whole_bytes(np.array([[7, other]], dtype=dtype)) is None
    assert len(whole_bytes(np.empty((0, 5), dtype=dtype))) == 0


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_rows_of_bytes_are_mapped_to_bytes(dtype):
    """Inputs that were constant in training have their value again; the rows do not change."""
    low = np.array([-1e9, 3, -1e9], dtype=np.float32)
    arrays = dict.fromkeys(("offset", "scale"), np.empty(0))
    arrays |= dict.fromkeys(("tail", "fill", "table"), np.empty(0, np.float32))
    arrays |= {"low": low, "high": np.where(low < 0, -low, low), "knots": np.empty((0, 2, 0))}
    arrays |= {"source": np.empty(0, np.int32), "kind": np.empty(0, np.uint8)}
    arrays["table_start"] = np.zeros(1, np.int64)
    row_map = RowMap(arrays, [0, 0, 0], True)
    X = np.array([[0, 3, 255], [1, 9, 2]], dtype=dtype)
    X.flags.writeable = False
    found = row_map.features(X, True)
    assert found.dtype == np.uint8
    assert found.tolist() == [[0, 3, 255], [1, 3, 2]]
    if dtype != np.uint8:
        assert row_map.features(X + dtype(0.5), True).dtype == np.float32
        assert row_map.features(np.full_like(X, np.inf), True) is None


def test_hashes_of_rows_tell_features_and_targets_apart():
    X, Y, weight = repeated_rows(np.float32, n_features=6)
    rows = TrainingSet(X, Y, np.ones(len(X)))
    known = rows.row_keys()
    assert len(set(known.tolist())) == len(rows)
    rows.y[0] += 1
    rows.X[1, 2] += 1
    assert np.flatnonzero(rows.row_keys() != known).tolist() == [0, 1]


def test_a_set_of_one_row():
    assert some_rows([2.5]).bootstrap(0, 9).tolist() == [9]


# ---------------------------------------------------------------------------------------- seeds


def test_seeds_of_trees_are_distinct_and_depend_on_the_order_of_the_two():
    seeds = {tree_seed(seed, tree) for seed in range(100) for tree in range(100)}
    assert len(seeds) == 10000
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert tree_seed(3, 5) != tree_seed(5, 3)


@pytest.mark.parametrize("step", [(1, 0), (0, 1)])
def test_seeds_of_neighbours_differ_in_half_of_the_bits(step):
    flips = np.array([
        [tree_seed(s, t) ^ tree_seed(s + step[0], t + step[1]) for t in range(60)]
        for s in range(60)
    ], dtype=np.uint64)  # fmt: skip
    bits = np.unpackbits(flips.view(np.uint8)).reshape(-1, 64)
    assert abs(bits.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(3600)
    assert abs(bits.sum(axis=1).mean() - 32) < 5 * 4 / np.sqrt(3600)
    # no common difference: the seeds are no counter
    assert len(np.unique(flips)) == flips.size


@pytest.mark.parametrize(
    "model",
    [
        skforest.ManifoldForestClassifier(3, random_state=0),
        skforest.CO2ForestClassifier(2, max_depth=3, random_state=0),
        skforest.RandomHingeForestClassifier(5, n_bags=1, max_iter=50, random_state=0),
    ],
    ids=["manifold", "co2", "hinge"],
)
def test_copies_of_mapped_rows_are_mapped_and_change_no_bit(model, tmp_path, monkeypatch):
    monkeypatch.setattr("skforest.table.matrix.MIN_MAPPED", 1)
    X = np.random.default_rng(0).standard_normal((300, 8)).astype(np.float32)
    X[:3, 0] = 1e6  # outliers, which hinge forests look for in all columns
    y = (X[:, 0] + X[:, 1] > 0).astype(int)
    mapped = np.memmap(tmp_path / "X", np.float32, "w+", shape=X.shape)
    mapped[:] = X
    found, expected = (model.fit(rows, y).forest_.arrays for rows in (mapped, X))
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert is_mapped(mapped[10:]) and not is_mapped(X)
    assert is_mapped(rows_of(mapped, np.array([7, 2])))
    np.testing.assert_array_equal(rows_of(mapped, np.array([7, 2])), X[[7, 2]])
