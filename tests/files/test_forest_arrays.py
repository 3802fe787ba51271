"""Arrays of a forest: narrow types, and corrupt values, which are refused or harmless."""

import tracemalloc

import numpy as np
import pytest
from forests import rich_classifier, rich_forest, rich_mixed, table
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from makers import fixed, use

from skforest.forest import ARRAYS, Forest
from skforest.forest.io import narrow, widen
from skforest.forest.storage import as_levels

# ------------------------------------------------------------------- narrow types


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


# ------------------------------------------------------------------- corrupt arrays


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
SCALED = {"offset": [0] * 4, "scale": [1] * 4}
LIMITED = SCALED | {"low": [0] * 4, "high": [1] * 4}
FALLING = np.arange(8, 0, -1)


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
        ("few limits", {"low": [0] * 3, "high": [1] * 3}, "low needs one entry"),
        ("crossed limits", {"low": [1] * 4, "high": [0] * 4}, "low exceeds high"),
        ("one limit", SCALED | {"low": [0] * 4}, "low and high differ in length"),
        ("far limits", SCALED | {"low": [0] * 4, "high": [2e30] * 4}, "high or tail is out of"),
        ("negative tail", LIMITED | {"tail": [-1] * 4}, "tail contains values below 0"),
        ("few tails", LIMITED | {"tail": [1] * 3}, "low and tail differ"),
        ("few knots", LIMITED | {"knots": np.ones((3, 2, 8))}, "knots needs one entry"),
        ("short knots", LIMITED | {"knots": np.ones((4, 2, 7))}, "knots needs the shape"),
        ("falling knots", LIMITED | {"knots": np.ones((4, 2, 8)) * FALLING}, "not in order"),
        ("knots without limits", SCALED | {"knots": np.ones((4, 2, 8))}, "knots without limits"),
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
RESIZABLE = [name for name in ARRAYS if name != "dense" and not name.startswith("slope")]
RESIZED = [
    *((shorter, name) for name in RESIZABLE),
    *((longer, name) for name in RESIZABLE if name not in ("sparse_start", "value_start")),
]


SLOPES = {
    "slope_start": [0, 2, 3, 3, 3],
    "slope_feature": [0, 3, 1],
    "slope": [[1.0], [2.0], [-1.0]],
}


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"slope_start": [0, 3]}, "slope_start needs one entry per row of values"),
        ({"slope_start": [0, 2, 4, 4, 4]}, "slope_start must rise"),
        ({"slope_start": [0, 4, 3, 3, 3]}, "slope_start must rise"),
        ({"slope_start": []}, "without slope_start"),
        ({"slope_feature": [0, 4, 1]}, "slope_feature is out of range"),
        ({"slope_feature": [0, -1, 1]}, "slope_feature is out of range"),
        ({"slope_feature": [0, 1]}, "slope is not"),
        ({"slope": [[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]]}, "slope is not"),
        ({"slope": [[1.0], [np.nan], [-1.0]]}, "not finite"),
    ],
)
def test_slopes_of_leaves_are_checked(wrong, message):
    meta = {"n_features": 4, "n_outputs": 1, "task": "regression"}
    X = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    plain, linear = Forest(TREE, **meta), Forest(TREE | SLOPES, **meta)
    value_row = -1 - plain.child[plain.apply(X)[:, 0]]
    none = np.zeros(20)
    slope = np.array([X[:, 0] + 2 * X[:, 3], -X[:, 1], none, none])[value_row, np.arange(20)]
    first = linear[0].response(X)[:, 0] - plain[0].response(X)[:, 0]
    np.testing.assert_allclose(first, slope, rtol=1e-6)
    with pytest.raises(ValueError, match=message):
        Forest(TREE | SLOPES | wrong, **meta)
    with pytest.raises(ValueError, match="gate"):
        Forest(TREE | SLOPES, **meta, gate="margin")


@pytest.mark.parametrize("resize, name", RESIZED)
def test_an_array_of_another_length_is_refused(resize, name):
    forest = rich_mixed()
    is_number = np.arange(33) != 1  # input 1 is a category, which has no units
    units = {"offset": is_number * np.arange(33.0), "scale": np.where(is_number, 0.5, 1.0)}
    limits = {"low": np.full(33, -1.0), "high": np.full(33, 2.0), "tail": np.ones(33)}
    limits["knots"] = np.tile([[[2.5], [-1.5]]], (33, 1, 8))
    forest = Forest(forest.arrays | units | limits, **forest.metadata)
    assert len(getattr(forest, name)) > 1
    with pytest.raises(ValueError, match=r"\w"):
        Forest(resize(forest, name), **forest.metadata)


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
    st.sampled_from([rich_forest, rich_classifier, rich_mixed]),
)
def test_random_corruption_is_refused_or_harmless(changes, make):
    """Any few entries changed: a ValueError, or a forest that can be used."""
    forest = make()
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


EXTREME = np.array([*WRAPPING, 2**31, 2**31 - 1, -(2**31), 2**32 + 1, 0, 1, -2, 7, 36, 255])


def damage_arrays(seed, n):
    """Damage arrays of forests n times; each must be refused, or be of use."""
    rng = np.random.default_rng(seed)
    n_refused = 0
    for i in range(n):
        forest = (rich_forest, rich_classifier, rich_mixed)[i % 3](seed)
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


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.filterwarnings("ignore:Casting complex:numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("seed, n", [(0, 150), pytest.param(1, 4_000, marks=pytest.mark.slow)])
def test_randomly_damaged_arrays_are_refused_or_harmless(seed, n):
    assert damage_arrays(seed, n) > 0.4 * n  # some arrays are empty in these forests


@pytest.mark.parametrize(
    "child, message",
    [
        ([-1, 1, -2], "child of node 1 of tree 0 comes before it, or is the node itself"),
        ([-1, -2, 1], "child of node 2 of tree 0 comes before it, or is the node itself"),
        ([0, -1, -2], "child of node 0 of tree 0 comes before it, or is the node itself"),
        ([2, -1, -2], "child of node 0 of tree 0 is out of range"),
    ],
)
def test_no_node_is_its_own_child_or_before_its_parent(child, message):
    arrays = {"tree_start": [0, 3], "child": child, "threshold": [0.0], "direction": [0]}
    arrays["value"] = [0.0, 1.0]
    with pytest.raises(ValueError, match=message):
        Forest(arrays, n_features=1, n_outputs=1, task="regression")


def test_slopes_need_values_of_their_own():
    slopes = {"slope_start": [0, 1, 1, 1, 1], "slope_feature": [0], "slope": [[1.0]]}
    use(tree(**slopes))
    with pytest.raises(ValueError, match="slopes need n_shared_values to be 0"):
        Forest(TREE | slopes, n_features=4, n_outputs=1, task="regression", n_shared_values=1)


def test_levels_with_one_keep_which_are_ordered():
    levels = as_levels({0: ["a", "b"], 2: ["c", "d"]})
    levels.ordered = frozenset([2])
    one = levels.with_one(0)
    assert one == {0: ["a"], 2: ["c", "d"]} and one.ordered == {2} and len(levels[0]) == 2


@pytest.mark.parametrize(
    "levels, message",
    [
        ({1: ["a", "a"]}, "two levels of input 1 are equal"),
        ({1: [2, 2.0]}, "two levels of input 1 are equal"),
        ({1: ["a", np.nan]}, "a level of input 1 is NaN"),
        ({1: ["a", 10**400]}, "a level of input 1 is too large"),
        ({1: ["a", None]}, "the levels of input 1 are not all numbers or strings"),
        ([(1, ["a", 2.0]), (1, ["b", 3.0])], "levels of input 1 are given twice"),
        ({33: ["a", 2.0]}, "levels are given for inputs that are out of range"),
    ],
)
def test_levels_that_are_no_levels_are_refused(levels, message):
    forest = rich_mixed()
    with pytest.raises(ValueError, match=message):
        Forest(forest.arrays, **forest.metadata | {"levels": levels})
