"""Samplers: what they draw has the law that they state."""

import numpy as np
import oracles
import pytest
from forests import grow
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed
from scipy import stats
from skforest._kernels.search.projection import (
    AxisSampler,
    BallSampler,
    BoxSampler,
    SparseSampler,
    draw,
)

from skforest.table.feature_grid import FeatureGraph

N = 8_000
PLACEMENTS = ["corner", "inside"]


def boxes(shape, low, high, contrast="sum", wrap=None, unordered=None, placement="corner", **more):
    """A sampler of boxes; numbers stand for all axes."""
    n_axes = len(shape)
    return BoxSampler(
        shape,
        wrap or (False,) * n_axes,
        unordered or (False,) * n_axes,
        np.broadcast_to(np.array(low, dtype=np.int32), n_axes).copy(),
        np.broadcast_to(np.array(high, dtype=np.int32), n_axes).copy(),
        contrast,
        placement == "inside",
        **more,
    )


def draw_boxes(sampler, n_axes, n=N, seed=1):
    """Draws as dicts of boxes, a single feature too."""
    single = {"other": -1, "size": [1] * n_axes, "subset": []}
    return [
        {"corner": one["feature"], **single} if "feature" in one else one
        for one in draw(sampler, seed, n)
    ]


def assert_law(draws, law):
    """Chi-square test of draws against a dict of chances; rare cells are put together."""
    assert sum(law.values()) == pytest.approx(1)
    counts = dict.fromkeys(law, 0)
    for one in draws:
        assert one in counts, f"{one} cannot be"
        counts[one] += 1
    found = np.array(list(counts.values()), dtype=float)
    expected = np.array(list(law.values())) * len(draws)
    rare = expected < 10
    if rare.any():
        found = np.append(found[~rare], found[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
    assert len(found) == 1 or stats.chisquare(found, expected).pvalue > 1e-3


# ---------------------------------------------------------------------------------------- boxes


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize(
    "length, low, high", [(10, 1, 4), (9, 2, 9), (7, 3, 3), (5, 5, 5), (1, 1, 1)]
)
def test_corner_and_size_have_the_stated_law(length, low, high, wrap, placement):
    sampler = boxes((length,), low, high, wrap=(wrap,), placement=placement)
    draws = [(one["corner"], one["size"][0]) for one in draw_boxes(sampler, 1)]
    assert_law(draws, oracles.axis_law(length, low, high, placement, wrap))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_axes_are_independent(placement):
    shape, low, high = (4, 5), (1, 2), (3, 4)
    sampler = boxes(shape, low, high, wrap=(True, False), placement=placement)
    laws = [
        oracles.axis_law(4, 1, 3, placement, wrap=True),
        oracles.axis_law(5, 2, 4, placement, wrap=False),
    ]
    law = {
        (5 * a + b, m, n): one * other
        for (a, m), one in laws[0].items()
        for (b, n), other in laws[1].items()
    }
    assert_law([(one["corner"], *one["size"]) for one in draw_boxes(sampler, 2)], law)


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize(
    "shape, low, high, wrap",
    [
        ((12,), 1, 5, (False,)),
        ((12,), 1, 5, (True,)),
        ((8, 6), (1, 2), (4, 3), (False, False)),
        ((8, 6), (1, 2), (4, 3), (True, False)),
        ((4, 3, 5), 1, 2, (False, True, False)),
    ],
)
def test_coverage_of_the_features_is_the_analytic_one(shape, low, high, wrap, placement):
    n_axes = len(shape)
    sampler = boxes(shape, low, high, wrap=wrap, placement=placement)
    law = [
        oracles.axis_coverage(length, oracles.axis_law(length, int(a), int(b), placement, closed))
        for length, a, b, closed in zip(
            shape, np.broadcast_to(low, n_axes), np.broadcast_to(high, n_axes), wrap
        )
    ]
    expected = law[0]
    for axis in law[1:]:
        expected = np.multiply.outer(expected, axis)
    covered = np.zeros(int(np.prod(shape)))
    none = (False,) * n_axes
    for one in draw_boxes(sampler, n_axes, 8000):
        covered[oracles.box_entries(one["corner"], one["size"], shape, wrap, none)] += 1
    error = np.sqrt(expected * (1 - expected) / 8000)
    assert (abs(covered.reshape(shape) / 8000 - expected) <= 4.5 * error + 1e-12).all()
    assert wrap[0] or expected.min() < expected.max()


def test_the_two_placements_differ_at_the_border():
    """The paper's covers the first feature more often than the last; the other is symmetric."""
    corner = oracles.axis_coverage(12, oracles.axis_law(12, 1, 5, "corner"))
    inside = oracles.axis_coverage(12, oracles.axis_law(12, 1, 5, "inside"))
    assert corner[-1] > 2 * corner[0]
    np.testing.assert_allclose(inside, inside[::-1])
    for placement, expected in (("corner", corner), ("inside", inside)):
        sampler = boxes((12,), 1, 5, placement=placement)
        last = np.mean([
            one["corner"] + one["size"][0] == 12 for one in draw_boxes(sampler, 1)
        ])  # fmt: skip
        assert last == pytest.approx(expected[-1], abs=0.02)


# ------------------------------------------------------------------------------------ contrasts


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("wrap", [(False, False), (True, False)])
def test_edges_are_two_boxes_side_by_side(wrap, placement):
    shape, low, high = (5, 6), (1, 1), (3, 4)
    sampler = boxes(shape, low, high, "edge", wrap=wrap, placement=placement)
    law = {}
    for split in (0, 1):
        axes = [
            oracles.axis_law(shape[k], low[k], high[k], placement, wrap[k], 2 if k == split else 1)
            for k in (0, 1)
        ]
        for (a, m), one in axes[0].items():
            for (b, n), other in axes[1].items():
                shift = ((a + m) % 5, b) if split == 0 else (a, (b + n) % 6)
                key = (6 * a + b, 6 * shift[0] + shift[1], m, n)
                law[key] = law.get(key, 0) + one * other / 2
    draws = [(one["corner"], one["other"], *one["size"]) for one in draw_boxes(sampler, 2)]
    assert_law(draws, law)


def test_an_edge_needs_an_axis_of_length_two():
    """Where only one axis has it, that one; where none has, the box alone."""
    sampler = boxes((3, 4), (2, 1), (3, 4), "edge")
    for one in draw_boxes(sampler, 2, 500):
        assert one["other"] == one["corner"] + one["size"][1]
        assert one["corner"] % 4 + 2 * one["size"][1] <= 4
    sampler = boxes((2, 3), (1, 2), (1, 3), "edge")
    assert {one["other"] - one["corner"] for one in draw_boxes(sampler, 2, 500)} == {3}
    sampler = boxes((3, 3), 2, 3, "edge")
    assert {one["other"] for one in draw_boxes(sampler, 2, 500)} == {-1}


@pytest.mark.parametrize("wrap", [False, True])
def test_differences_are_near_and_inside(wrap):
    length, low, high, reach = 11, 1, 3, 4
    sampler = boxes((length,), low, high, "difference", wrap=(wrap,), reach=reach)
    law = {}
    for (corner, size), chance in oracles.axis_law(length, low, high, wrap=wrap).items():
        first, last = max(0, corner - reach), min(length - size, corner + reach)
        if wrap:
            first, last = corner - reach, corner + reach
        for other in range(first, last + 1):
            key = (corner, -1 if other == corner else other % length, size)
            law[key] = law.get(key, 0) + chance / (last - first + 1)
    draws = [(one["corner"], one["other"], one["size"][0]) for one in draw_boxes(sampler, 1)]
    assert_law(draws, law)


def test_differences_in_a_plane_stay_within_reach_along_every_axis():
    shape, wrap = (20, 30), (False, True)
    sampler = boxes(shape, 1, 5, "difference", wrap=wrap, reach=3)
    shifts = set()
    for one in draw_boxes(sampler, 2, 3000):
        a, b = divmod(one["corner"], 30)
        c, d = divmod(one["corner"] if one["other"] < 0 else one["other"], 30)
        assert 0 <= c <= 20 - one["size"][0]
        shifts.add((c - a, (d - b + 15) % 30 - 15))
    assert shifts == {(i, j) for i in range(-3, 4) for j in range(-3, 4)}


def test_a_mix_is_one_of_the_three_at_random():
    """With a reach that tells a difference from an edge: boxes of 2, at most 1 away."""
    draws = draw_boxes(boxes((9,), 2, 2, "mix", reach=1), 1)
    shifts = [one["other"] - one["corner"] if one["other"] >= 0 else 0 for one in draws]
    at_border = 1 / 8 / 2 + 1 / 8 / 2  # of the 8 corners, two have only two places to go
    stay = 6 / 8 / 3 + at_border
    law = {0: (1 + stay) / 3, 2: 1 / 3}
    law |= dict.fromkeys((-1, 1), (1 - stay) / 6)
    assert_law(shifts, law)


# ------------------------------------------------------------------------------- unordered axes


def test_subsets_of_an_unordered_axis_are_uniform():
    """The size first, then any subset of that size."""
    from math import comb

    sampler = boxes((4,), 1, 3, unordered=(True,))
    draws = draw(sampler, 5, N)
    law = {bits: 1 / 3 / comb(4, bits.bit_count()) for bits in range(1, 15)}
    assert_law([one["subset"][0] for one in draws], law)
    assert all(one["size"] == [one["subset"][0].bit_count()] for one in draws)
    assert {(one["corner"], one["other"]) for one in draws} == {(0, -1)}


def test_subsets_beyond_a_byte():
    shape = (3, 19)
    sampler = boxes(shape, (1, 2), (2, 19), unordered=(False, True))
    counts = np.zeros(19)
    for one in draw(sampler, 6, 5000):
        assert len(one["subset"]) == 3
        bits = np.unpackbits(np.array(one["subset"], dtype=np.uint8), bitorder="little")
        assert bits.sum() == one["size"][1] and not bits[19:].any()
        assert 2 <= one["size"][1] <= 19
        assert one["corner"] % 19 == 0
        counts += bits[:19]
    assert stats.chisquare(counts).pvalue > 1e-3


def test_a_box_as_long_as_a_circle_is_not_moved_along_it():
    """The box and its shifted copy would have the same entries."""
    shape = (3, 5)
    sampler = boxes(shape, 1, shape, "difference", wrap=(True, True))
    n_whole = 0
    for one in draw_boxes(sampler, 2):
        rows, columns = np.unravel_index([one["corner"], max(one["other"], 0)], shape)
        for size, length, places in zip(one["size"], shape, (rows, columns)):
            if size == length:
                n_whole += 1
                assert one["other"] < 0 or places[0] == places[1]
    assert n_whole > 1000


def test_two_unordered_axes_have_their_own_bytes():
    sampler = boxes((9, 4, 3), (1, 1, 1), (9, 4, 3), unordered=(True, False, True))
    for one in draw(sampler, 7, 300):
        first = one["subset"][0].bit_count() + one["subset"][1].bit_count()
        assert (first, one["subset"][2].bit_count()) == (one["size"][0], one["size"][2])


@fixed
@given(st.data())
def test_every_box_is_sound(data):
    """Any grid: within the range of sizes, within the array, and at most max_terms entries."""
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4), "shape"))
    flags = st.tuples(*(st.booleans() for _ in shape))
    wrap, unordered = data.draw(flags, "wrap"), data.draw(flags, "unordered")
    low = [data.draw(st.integers(1, length)) for length in shape]
    high = [data.draw(st.integers(a, length)) for a, length in zip(low, shape)]
    contrast = data.draw(st.sampled_from(["sum", "edge", "difference", "mix"]), "contrast")
    placement = data.draw(st.sampled_from(PLACEMENTS), "placement")
    sampler = boxes(shape, low, high, contrast, wrap, unordered, placement)
    for one in draw_boxes(sampler, len(shape), 40, seed=data.draw(st.integers(0, 99))):
        assert all(a <= n <= b for a, n, b in zip(low, one["size"], high))
        n_terms = 0
        for corner in (one["corner"], one["other"]):
            if corner >= 0:
                entries = oracles.box_entries(
                    corner, one["size"], shape, wrap, unordered, one["subset"]
                )
                assert len(set(entries)) == np.prod(one["size"])
                n_terms += len(entries)
        assert n_terms <= sampler.max_terms
        assert contrast != "sum" or one["other"] == -1
        assert one["other"] != one["corner"]


def test_a_box_of_one_feature_is_that_feature():
    draws = draw(boxes((3, 4), 1, 1), 0, 2000)
    assert_law([one["feature"] for one in draws], dict.fromkeys(range(12), 1 / 12))


# ---------------------------------------------------------------------------------------- balls


def graph():
    """A path of six features, the second one also in a triangle, and a feature without edges."""
    adjacency = np.zeros((9, 9))
    for i, j in [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (1, 6), (1, 7), (6, 7)]:
        adjacency[i, j] = adjacency[j, i] = 1
    return adjacency


def draw_balls(low, high, contrast, **more):
    """Weights of all features in each draw, as tuples."""
    own = FeatureGraph(graph(), 9)
    sampler = BallSampler(own.start, own.neighbour, low, high, contrast, **more)
    found = []
    for one in draw(sampler, 3, 2000):
        weights = np.zeros(9)
        weights[one.get("features", one.get("feature"))] = one.get("weights", 1)
        assert len(one.get("features", [0])) == max(1, np.count_nonzero(weights))
        found.append(tuple(np.round(weights, 5)))
    return found


@pytest.mark.parametrize("low, high", [(0, 0), (0, 2), (1, 1), (1, 8)])
@pytest.mark.parametrize("contrast", ["sum", "edge", "difference"])
def test_balls_have_the_stated_law(contrast, low, high):
    law = oracles.ball_law(graph(), low, high, contrast)
    assert_law(draw_balls(low, high, contrast), law)
    if contrast != "sum":  # a constant has no influence, unless there is no second ball
        assert all(abs(sum(weights)) < 1e-4 or min(weights) == 0 for weights in law)


def test_balls_of_a_difference_are_within_reach():
    law = oracles.ball_law(graph(), 0, 1, "difference", reach=2)
    assert_law(draw_balls(0, 1, "difference", reach=2), law)


def test_a_mix_of_balls_is_one_of_the_three_at_random():
    law = {}
    for contrast in ("sum", "edge", "difference"):
        for weights, chance in oracles.ball_law(graph(), 0, 1, contrast).items():
            law[weights] = law.get(weights, 0) + chance / 3
    assert_law(draw_balls(0, 1, "mix"), law)


# --------------------------------------------------------------------------------------- sparse


def sparse(n_features, mean, fixed=False):
    return SparseSampler(n_features, mean, fixed, np.ones(n_features, dtype=np.float32))


def draw_sparse(sampler, n=N, seed=2):
    """Draws as (features, weights); a single feature has weight 1."""
    return [
        ([one["feature"]], [1.0]) if "feature" in one else (one["features"], one["weights"])
        for one in draw(sampler, seed, n)
    ]


@pytest.mark.parametrize(
    "mean, n_features", [(0.2, 20), (0.99, 9), (1.0, 9), (3.0, 100), (3.0, 4), (45.0, 300)]
)
def test_the_number_of_weights_is_poisson_without_zeros(mean, n_features):
    draws = draw_sparse(sparse(n_features, mean))
    chances = oracles.zero_truncated_poisson(mean, n_features)
    law = {n + 1: chance for n, chance in enumerate(chances)}
    assert_law([len(features) for features, _ in draws], law)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_number_of_weights_is_fixed(n):
    draws = draw_sparse(sparse(8, float(n), fixed=True), 3000)
    assert {len(features) for features, _ in draws} == {n}
    counts = np.bincount(np.concatenate([features for features, _ in draws]), minlength=8)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_sets_of_features_are_uniform_and_without_repetition():
    from itertools import combinations

    draws = draw_sparse(sparse(6, 3.0, fixed=True))
    sets = [tuple(sorted(features)) for features, _ in draws]
    assert_law(sets, dict.fromkeys(combinations(range(6), 3), 1 / 20))


def test_signs_are_balanced_and_independent():
    draws = draw_sparse(sparse(50, 2.0, fixed=True))
    pairs = [tuple(weights) for _, weights in draws]
    assert_law(pairs, {(a, b): 0.25 for a in (-1.0, 1.0) for b in (-1.0, 1.0)})


def test_weights_are_divided_by_the_scale_of_their_feature():
    scale = np.array([1, 2, 4, 8, 0.5], dtype=np.float32)
    for one in draw(SparseSampler(5, 3.0, True, scale), 0, 200):
        np.testing.assert_array_equal(np.abs(one["weights"]), 1 / scale[one["features"]])


@pytest.mark.usefixtures("interruptible")
def test_a_tiny_mean_is_one_feature_and_does_not_hang():
    sampler = SparseSampler(5, 1e-12, False, np.ones(5, dtype=np.float32))
    assert all("feature" in one for one in draw(sampler, 0, 20))


# ----------------------------------------------------------------------------------------- axis


def test_axis_features_are_uniform():
    draws = draw(AxisSampler(13), 3, N)
    assert_law([one["feature"] for one in draws], dict.fromkeys(range(13), 1 / 13))


@pytest.mark.parametrize("n_candidates", [5, 20, 40])
def test_axis_features_are_drawn_without_replacement(n_candidates):
    """One of 40 features parts the classes best: found with chance k / 40 in k draws."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=60)
    X = rng.normal(size=(60, 40))
    X[:, 17] = y
    found = [
        grow(X, y, n_candidates=n_candidates, max_depth=1, seed=seed).direction[0] == 17
        for seed in range(400)
    ]
    chance = n_candidates / 40
    if chance == 1:
        assert all(found)
    else:
        assert stats.binomtest(sum(found), 400, chance).pvalue > 1e-3


# ---------------------------------------------------------------------------------------- seeds


@pytest.mark.parametrize(
    "make", [lambda: AxisSampler(30), lambda: sparse(30, 3.0), lambda: boxes((5, 6), 1, 4, "mix")]
)
def test_a_seed_gives_its_own_directions(make):
    assert draw(make(), 4, 50) == draw(make(), 4, 50)
    assert draw(make(), 4, 50) != draw(make(), 5, 50)


def test_unknown_contrasts_and_too_many_axes_are_refused():
    with pytest.raises(KeyError):
        boxes((4,), 1, 2, "product")
    with pytest.raises(ValueError, match="9 axes"):
        boxes((1,) * 9, 1, 1)
