"""One node, searched by the kernels and by brute force."""

import numpy as np
import oracles
import pytest
from forests import grow
from hypothesis import assume, given
from hypothesis import strategies as st
from makers import fixed
from numpy.testing import assert_allclose
from skforest._kernels.search.projection import BoxSampler, SparseSampler

CRITERIA = ["gini", "entropy", "squared_error"]
# Above this many rows a histogram is used where one is asked for.
SMALL = 24


def as_matrix(target):
    """The target as the oracles read it: one-hot, or as it is."""
    return oracles.one_hot(target, target.max() + 1) if target.ndim == 1 else target


def found_split(X, target, weight, criterion, **options):
    """Gain of the split of one node: by definition from the rows it parts, and as stored.

    -inf if the node is a leaf.
    """
    tree = grow(X, target, weight, criterion=criterion, max_depth=1, **options)
    if tree.n_nodes == 1:
        return -np.inf, -np.inf
    left = tree.apply(X)[:, 0] == 1
    return oracles.split_gain(as_matrix(target), weight, left, criterion), tree.gain[0]


def assert_best(X, target, weight, criterion, min_samples_leaf=1, slack=1e-10, **options):
    """The split found gains as much as the best one by brute force.

    `slack` is a share of the impurity of the node.
    """
    Y = as_matrix(target)
    kept = weight > 0
    best = max(
        oracles.best_gain(column[kept], Y[kept], weight[kept], criterion, min_samples_leaf)
        for column in X.T
    )
    found, stored = found_split(
        X, target, weight, criterion, min_samples_leaf=min_samples_leaf, **options
    )
    if (Y[kept] == Y[kept][0]).all():
        assert found == -np.inf  # a pure node is left alone
    elif best == -np.inf:
        assert found == -np.inf
    else:
        scale = oracles.impurity(Y, weight, criterion)
        assert_allclose(found, best, rtol=0, atol=slack * scale)
        assert_allclose(stored, best, rtol=1e-6, atol=max(1e-6, slack) * scale)


def random_target(rng, n, criterion, n_outputs=1):
    """Labels, or one or more real columns, a third of them equal."""
    if criterion != "squared_error":
        return rng.integers(rng.integers(2, 5), size=n)
    target = rng.normal(size=(n, n_outputs))
    target[rng.random(n) < 0.3] = 0
    return target


def random_weight(rng, n, kind):
    return {
        "ones": np.ones(n),
        "whole": rng.integers(0, 4, size=n).astype(float),
        "real": rng.random(n) * 10.0 ** rng.integers(-3, 4),
    }[kind]


# -------------------------------------------------------------------------- against brute force


@pytest.mark.thin(2)
@pytest.mark.parametrize("values", ["two", "few", "real"])
@pytest.mark.parametrize("weights", ["ones", "whole", "real"])
@pytest.mark.parametrize(
    "criterion, n_outputs",
    [("gini", 1), ("entropy", 1), ("squared_error", 1), ("squared_error", 3)],
)
def test_exact_search_is_brute_force(criterion, n_outputs, weights, values):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n, p = rng.integers(2, 41), rng.integers(1, 4)
        if values == "real":
            X = rng.normal(size=(n, p)).astype(np.float32)
        else:
            X = rng.integers({"two": 2, "few": 6}[values], size=(n, p)).astype(np.float32)
        weight = random_weight(rng, n, weights)
        weight[0] = 1  # one row at least
        target = random_target(rng, n, criterion, n_outputs)
        assert_best(X, target, weight, criterion, min_samples_leaf=rng.integers(1, 4))


@pytest.mark.parametrize("criterion", CRITERIA)
def test_exact_search_of_bytes_is_brute_force(criterion):
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 256, size=(50, 3)).astype(np.uint8)
        assert_best(X, random_target(rng, 50, criterion), np.ones(50), criterion)


@pytest.mark.parametrize("criterion", CRITERIA)
def test_weights_over_many_orders_of_magnitude(criterion):
    """Sums that move with each row must not lose the light rows behind the heavy ones."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 3)).astype(np.float32)
        weight = 10.0 ** rng.uniform(-7, 7, size=60)
        assert_best(X, random_target(rng, 60, criterion), weight, criterion)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("heavy", [1e4, 1e7, 1e10])
def test_a_heavy_row_does_not_hide_the_light_ones(criterion, heavy):
    """Float64 leaves seven digits for the light rows, even at 1e10."""
    for seed in range(15):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 2)).astype(np.float32)
        weight = rng.random(60) + 0.5
        weight[rng.integers(60)] = heavy
        target = random_target(rng, 60, criterion)
        assert_best(X, target, weight, criterion, slack=1e-4)
        tree = grow(X, target, weight, criterion=criterion)
        assert_allclose(tree.predict(X), target.ravel(), rtol=1e-6)


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("exact", [True, False])
def test_a_weight_beside_which_the_others_vanish(criterion, exact):
    """Sums of 1e200 and of 1 are 1e200: no promise on the splits, but the tree is sound."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 2)).astype(np.float32)
        weight = np.ones(60)
        weight[rng.integers(60)] = 1e200
        tree = grow(X, random_target(rng, 60, criterion), weight, criterion=criterion, exact=exact)
        counts = np.bincount(tree.apply(X)[:, 0], minlength=tree.n_nodes)
        assert (counts[tree.child < 0] > 0).all()


def test_a_large_offset_of_a_feature_does_not_matter():
    rng = np.random.default_rng(0)
    X = (1e6 + rng.integers(0, 16, size=(80, 2))).astype(np.float32)
    for exact in (True, False):
        target = (X[:, 1] > 1e6 + 6).astype(int)
        found, _ = found_split(X, target, np.ones(80), "gini", exact=exact)
        assert found == pytest.approx(oracles.impurity(as_matrix(target), np.ones(80), "gini"))


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("min_samples_leaf", [1, 5, 15, 16])
def test_a_side_has_at_least_min_samples_leaf_rows(min_samples_leaf, exact):
    """31 rows of which one stands out: 15 and 16 are the most that both sides can have."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(31, 2)).astype(np.float32)
    target = (X[:, 0] == X[:, 0].max()).astype(int)
    tree = grow(X, target, exact=exact, min_samples_leaf=min_samples_leaf, max_depth=1)
    if min_samples_leaf == 16:
        assert tree.n_nodes == 1
    else:
        counts = np.bincount(tree.apply(X)[:, 0], minlength=3)
        assert min(counts[1:]) >= min_samples_leaf
        assert counts[2] == 1 or min_samples_leaf > 1


@pytest.mark.parametrize("kind", ["sparse", "box"])
def test_the_gain_of_an_oblique_split_is_that_of_its_rows(kind):
    rng = np.random.default_rng(2)
    shape, none = (4, 5), (False, False)
    X = rng.normal(size=(90, 20)).astype(np.float32)
    for seed in range(10):
        if kind == "sparse":
            sampler = SparseSampler(20, 3.0, False, np.ones(20, dtype=np.float32))
        else:
            low, high = np.ones(2, dtype=np.int32), np.full(2, 3, dtype=np.int32)
            sampler = BoxSampler(shape, none, none, low, high, "edge", False)
        target = random_target(rng, 90, "gini")
        found, stored = found_split(
            X, target, np.ones(90), "gini", sampler=sampler, n_candidates=8, seed=seed,
            feature_shape=shape,
        )  # fmt: skip
        assert stored == pytest.approx(found, rel=1e-6)
        assert found > 0


# ----------------------------------------------------------------------------------- histograms


@pytest.mark.parametrize("n_bins", [2, 5, 32, 64])
@pytest.mark.parametrize(
    "criterion, n_outputs", [("gini", 1), ("entropy", 1), ("squared_error", 3)]
)
def test_a_histogram_finds_its_best_cut_and_never_more_than_the_exact_search(
    criterion, n_outputs, n_bins
):
    lower = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        X = np.where(rng.random((70, 2)) < 0.5, rng.normal(size=(70, 2)), 1.5)
        X = (X * 10.0 ** rng.integers(-20, 20)).astype(np.float32)
        weight = random_weight(rng, 70, ["ones", "whole", "real"][seed % 3])
        weight[:30] = 1
        X, weight = X[weight > 0], weight[weight > 0]
        target = random_target(rng, len(X), criterion, n_outputs)
        min_samples_leaf = rng.integers(1, 5)
        Y = as_matrix(target)
        best, exact = (
            max(search(column, Y, weight, criterion, *more, min_samples_leaf) for column in X.T)
            for search, more in ((oracles.best_histogram_gain, [n_bins]), (oracles.best_gain, []))
        )
        found, stored = found_split(
            X,
            target,
            weight,
            criterion,
            exact=False,
            n_bins=n_bins,
            min_samples_leaf=min_samples_leaf,
        )
        scale = oracles.impurity(Y, weight, criterion)
        assert_allclose(stored, found, rtol=1e-6, atol=1e-6 * scale)
        assert found <= exact + 1e-10 * scale
        assert_allclose(found, best, rtol=0, atol=1e-10 * scale)
        lower += found < exact - 1e-6 * scale
    assert lower > 0 or n_bins > 30


@pytest.mark.parametrize(
    "criterion, n_outputs", [("gini", 1), ("entropy", 1), ("squared_error", 3)]
)
def test_outliers_hide_no_cut_from_a_histogram_that_zooms(criterion, n_outputs):
    """In bins that are as wide as without the outliers."""
    n_hidden = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.integers(16, size=(60, 2)).astype(np.float32)
        X[:2] = [[0] * 2, [15] * 2]
        X[2:5] = np.float32([-(2.0**31), 1e4, 1e7])[rng.permutation(3)][:, None]
        target, weight = random_target(rng, 60, criterion, n_outputs), np.ones(60)
        Y, options = as_matrix(target), {"exact": False, "n_bins": 16}
        exact = max(oracles.best_gain(column, Y, weight, criterion) for column in X.T)
        plain, _ = found_split(X, target, weight, criterion, **options)
        found, _ = found_split(X, target, weight, criterion, **options, zooms=True)
        assert_allclose(found, exact, rtol=1e-6)
        n_hidden += plain < 0.99 * exact
    assert n_hidden > 5


def test_all_bins_with_many_rows_are_divided():
    """Two of them, with empty ones in between."""
    n_hidden = 0
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.integers(16, size=(60, 1)).astype(np.float32)
        X[:4, 0] = 0, 0, 15, 15
        X[1::2] += 2.0**20
        target, options = random_target(rng, 60, "gini"), {"exact": False, "n_bins": 16}
        exact = oracles.best_gain(X[:, 0], as_matrix(target), np.ones(60), "gini")
        plain, _ = found_split(X, target, np.ones(60), "gini", **options)
        found, _ = found_split(X, target, np.ones(60), "gini", **options, zooms=True)
        assert_allclose(found, exact, rtol=1e-6)
        n_hidden += plain < 0.99 * exact
    assert n_hidden > 5


def test_as_many_bins_as_values_is_exact():
    """Whole numbers 0 .. 15 in 16 bins."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.integers(16, size=(60, 3)).astype(np.float32)
        X[:2] = [[0] * 3, [15] * 3]
        target = random_target(rng, 60, "gini")
        assert_best(X, target, np.ones(60), "gini", exact=False, n_bins=16)


def test_small_nodes_are_sorted_even_with_histograms():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = 10.0 ** rng.uniform(-30, 30, size=(SMALL, 2)).astype(np.float32)
        assert_best(X, random_target(rng, SMALL, "gini"), np.ones(SMALL), "gini", exact=False)


def test_the_threshold_of_a_histogram_lies_halfway_between_its_neighbours():
    """Over all rows of the node, not only the rows that were searched."""
    X = np.concatenate([np.linspace(0, 1, 500), np.linspace(3, 5, 500)])[:, None]
    tree = grow(X, np.repeat([0, 1], 500), exact=False, n_bins=8, max_search_samples=40)
    assert tree.n_leaves[0] == 2
    assert tree.threshold[0] == 2


# ----------------------------------------------------------------------------------- thresholds

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def ordinal(value):
    """Floats counted in their order, both zeros as 0."""
    bits = int(np.float32(value + np.float32(0)).view(np.int32))
    return bits if bits >= 0 else -(bits & 0x7FFFFFFF)


@fixed
@given(floats, st.integers(1, 5), st.sampled_from([1, 20]), st.booleans())
def test_a_threshold_parts_floats_however_close(low, steps, copies, exact):
    """a <= threshold < b for neighbours a < b in float32: on both sides of zero, at both ends."""
    low, high = np.float32(low), np.float32(low)
    for _ in range(steps):
        high = np.nextafter(high, np.float32(np.inf))
    assume(np.isfinite(high) and low < high)
    X = np.repeat(np.array([[low], [high]], dtype=np.float32), copies, axis=0)
    target = np.repeat([0, 1], copies)
    tree = grow(X, target, exact=exact)
    assert tree.n_leaves[0] == 2
    assert low <= tree.threshold[0] < high
    np.testing.assert_array_equal(tree.predict(X), target)


@fixed
@given(st.lists(floats, min_size=2, max_size=60), st.booleans(), st.integers(0, 3))
def test_any_two_finite_floats_are_separated(values, exact, seed):
    """Distinct values, near 3e38 and below 1e-38 too, end in pure leaves."""
    column = np.array(values, dtype=np.float32)
    numbers = np.array([ordinal(value) for value in column])
    assume(len(np.unique(numbers)) > 1)
    target = np.unique(numbers, return_inverse=True)[1]
    tree = grow(column[:, None], target, exact=exact, n_bins=7, max_search_samples=30, seed=seed)
    np.testing.assert_array_equal(tree.predict(column[:, None]), target)
    assert tree.n_leaves[0] == target.max() + 1
    assert np.isfinite(tree.threshold).all()


@pytest.mark.parametrize("exact", [True, False])
def test_zeros_of_both_signs_are_one_value(exact):
    X = np.array([0.0, -0.0] * 20, dtype=np.float32)[:, None]
    tree = grow(X, np.tile([0, 1], 20), exact=exact)
    assert tree.n_nodes == 1
    X = np.array([-0.0, 0.0, 1.0] * 20, dtype=np.float32)[:, None]
    tree = grow(X, np.tile([0, 0, 1], 20), exact=exact)
    assert tree.n_leaves[0] == 2 and 0 <= tree.threshold[0] < 1


@pytest.mark.parametrize("contrast", ["sum", "edge"])
@pytest.mark.parametrize("exact", [True, False])
def test_sums_beyond_float32_do_not_end_growth(exact, contrast):
    """Boxes of values near 3e38 add up to infinity, and their differences to nothing at all."""
    rng = np.random.default_rng(0)
    n, none = 200, (False,)
    X = rng.normal(size=(n, 12)).astype(np.float32)
    X[rng.random((n, 12)) < 0.2] = 3e38
    X[rng.random((n, 12)) < 0.2] = -3e38
    target = rng.integers(3, size=n)
    for seed in range(10):
        sampler = BoxSampler(
            (12,), none, none, np.array([1], dtype=np.int32), np.array([4], dtype=np.int32),
            contrast, False,
        )  # fmt: skip
        tree = grow(
            X, target, exact=exact, sampler=sampler, n_candidates=3,
            max_search_samples=seed * 20 or 2**40, seed=seed,
        )  # fmt: skip
        assert np.isfinite(tree.threshold).all() and np.isfinite(tree.gain).all()
        np.testing.assert_array_equal(tree.predict(X), target)


# ---------------------------------------------------------------------------------------- sorts


@pytest.mark.parametrize("n", [1, 2, 16, 17, 24, 25, 31, 32, 33, 48, 400, 401, 1000, 5000])
@pytest.mark.parametrize("kind", ["real", "ties", "bytes", "descending"])
def test_columns_of_every_length_are_sorted(n, kind):
    """Insertion, merge and radix sort: a cut at a random rank is found, and only there."""
    rng = np.random.default_rng(n)
    column = {
        "real": rng.normal(size=n) * 10.0 ** rng.integers(-30, 30, size=n),
        "ties": rng.integers(-3, 4, size=n),
        "bytes": rng.integers(256, size=n),
        "descending": -np.arange(n),
    }[kind].astype(np.uint8 if kind == "bytes" else np.float32)
    values = np.unique(column)
    for cut in {values[len(values) // 3], values[len(values) // 2], values[0]}:
        target = (column > cut).astype(int)
        tree = grow(column[:, None], target)
        if target.any():
            above = values[values > cut][0]
            assert cut <= tree.threshold[0] < above
            np.testing.assert_array_equal(tree.predict(column[:, None]), target)
        assert tree.n_leaves[0] == 1 + target.any()


# ------------------------------------------------------------------------------- search in part


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("exact", [True, False])
def test_a_large_nearly_pure_node_is_still_split(exact, criterion):
    """One row in 5000 differs; a search among 50 rows sees it in one tree of a hundred."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2)).astype(np.float32)
    target = np.zeros(5000, dtype=int)
    target[1234] = 1
    if criterion == "squared_error":
        target = target[:, None].astype(float)
    for seed in range(5):
        tree = grow(X, target, criterion=criterion, exact=exact, max_search_samples=50, seed=seed)
        np.testing.assert_array_equal(tree.predict(X), target.ravel())


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("exact", [True, False])
def test_a_pure_part_of_a_node_is_not_cut_at_random(exact, criterion):
    """In which every cut is as good as any other: all rows are searched instead."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5000, 2)).astype(np.float32)
    target = np.zeros(5000, dtype=int)
    target[1234] = 1
    if criterion == "squared_error":
        target = target[:, None].astype(float)
    full = grow(X, target, criterion=criterion, exact=exact)
    for max_search in (50, 1000):
        for seed in range(5):
            tree = grow(
                X,
                target,
                criterion=criterion,
                exact=exact,
                max_search_samples=max_search,
                seed=seed,
            )
            assert tree.n_leaves[0] <= full.n_leaves[0] + 4


@pytest.mark.parametrize("max_search", [64, 2000])
@pytest.mark.parametrize("exact", [True, False])
def test_every_leaf_has_the_smallest_weight(exact, max_search):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(2000, 3)).astype(np.float32)
    weight = rng.exponential(size=2000)
    target = (X[:, 0] + 0.3 * rng.normal(size=2000) > 1).astype(int)
    for least in (5.0, 60.0):
        for kind in (target, X[:, :1] + 0.3 * rng.normal(size=(2000, 1))):
            tree = grow(
                X, kind, weight, exact=exact, max_search_samples=max_search, min_weight_leaf=least
            )  # fmt: skip
            leaf = tree.child < 0
            weights = np.bincount(tree.apply(X)[:, 0], weight, minlength=tree.n_nodes)[leaf]
            assert weights.min() >= least
            assert weights.min() < 3 * least


@pytest.mark.parametrize("min_samples_leaf", [3, 40])
def test_min_samples_leaf_holds_when_a_part_is_searched(min_samples_leaf):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(2000, 3)).astype(np.float32)
    target = (X[:, 0] + 0.3 * rng.normal(size=2000) > 1).astype(int)
    for exact in (True, False):
        tree = grow(
            X,
            target,
            exact=exact,
            max_search_samples=64,
            min_samples_leaf=min_samples_leaf,
            min_split=2 * min_samples_leaf,
        )
        counts = np.bincount(tree.apply(X)[:, 0], minlength=tree.n_nodes)[tree.child < 0]
        assert counts.min() >= min_samples_leaf
        assert tree.n_leaves[0] > 3


@pytest.mark.parametrize("least", ["min_samples_leaf", "min_weight_leaf"])
@pytest.mark.parametrize("exact", [True, False])
def test_a_side_needs_only_its_share_of_the_part_that_is_searched(exact, least):
    X = np.arange(4000)[:, None].astype(np.float32)
    target = (X[:, 0] > 3600).astype(int)
    options = {"max_search_samples": 100, "max_depth": 1, least: 40}
    tree = grow(X, target, exact=exact, min_split=80, **options)
    assert abs(tree.threshold[0] - 3600) < 100


@pytest.mark.parametrize("exact", [True, False])
def test_all_rows_are_searched_where_the_cut_of_a_part_leaves_too_few(exact):
    X = np.arange(4000)[:, None].astype(np.float32)
    target = (X[:, 0] >= 3960).astype(int)
    options = {"max_search_samples": 100, "max_depth": 1, "min_samples_leaf": 40}
    for seed in range(8):
        tree = grow(X, target, exact=exact, min_split=80, seed=seed, **options)
        assert tree.n_leaves[0] == 2


@pytest.mark.parametrize("exact", [True, False])
def test_a_search_in_part_takes_other_rows_with_another_seed(exact):
    """Random rows from all over the node: not always the same, and not only the first."""
    X = np.arange(4000)[:, None].astype(np.float32)
    target = (np.random.default_rng(5).random(4000) < X[:, 0] / 4000).astype(int)
    cuts = [
        grow(X, target, exact=exact, max_search_samples=100, max_depth=1, seed=seed).threshold[0]
        for seed in range(12)
    ]
    assert len(set(cuts)) > 6
    assert 1000 < np.median(cuts) < 3000


def test_a_search_in_part_is_nearly_as_good_as_in_full():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(8000, 5)).astype(np.float32)
    target = (X[:, 2] > 0.3).astype(int)
    full, _ = found_split(X, target, np.ones(8000), "gini")
    for seed in range(5):
        part, _ = found_split(X, target, np.ones(8000), "gini", max_search_samples=1000, seed=seed)
        assert 0.97 * full < part <= full * (1 + 1e-9)


# ------------------------------------------------------------------------------------- no split


@pytest.mark.parametrize("exact", [True, False])
def test_nodes_that_cannot_be_split_are_leaves(exact):
    X = np.ones((30, 3), dtype=np.float32)
    tree = grow(X, np.arange(30) % 3, np.arange(1, 31), exact=exact)
    assert tree.n_nodes == 1
    share = np.bincount(np.arange(30) % 3, weights=np.arange(1, 31)) / 465
    assert_allclose(tree.response(X[:1])[0], share, rtol=1e-6)


@pytest.mark.parametrize("exact", [True, False])
def test_one_feature_that_varies_is_found_among_many_that_do_not(exact):
    """However few candidates a node tries: any feature that varies is better than a leaf."""
    X = np.zeros((40, 300), dtype=np.uint8)
    X[:, 123] = np.arange(40) % 2
    for seed in range(5):
        tree = grow(X, np.arange(40) % 2, exact=exact, n_candidates=1, seed=seed)
        assert tree.direction.tolist() == [123]


@pytest.mark.parametrize("criterion", CRITERIA)
def test_a_split_without_gain_is_still_made(criterion):
    """Exclusive or: no first split helps, and two levels are pure."""
    X = np.array([[0, 0], [0, 1], [1, 0], [1, 1]] * 10, dtype=np.float32)
    target = np.array([0, 1, 1, 0] * 10)
    if criterion == "squared_error":
        target = target[:, None].astype(float)
    for exact in (True, False):
        tree = grow(X, target, criterion=criterion, exact=exact)
        np.testing.assert_array_equal(tree.predict(X), target.ravel())
        assert tree.gain[0] == pytest.approx(0, abs=1e-6)
