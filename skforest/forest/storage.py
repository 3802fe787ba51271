"""The arrays of a forest: their names, checks of their contents, and removal of unused rows.

The traversal follows indices without testing them, so the arrays of a forest, which may come from
a file, are checked before their first use. Every check is one pass over an array, part by part, so
that temporary arrays are small. Differences and sums of positions could overflow, so positions are
compared with each other and with bounds first.
"""

import math

import numpy as np
from scipy.special import expit

from .._kernels.predict.trees import GATES
from .._tree import softmax
from ..table.feature_grid import MAX_AXES
from ..table.feature_map import CODE, KINDS, VALUE
from ..table.matrix import LIMIT, N_KNOTS

# Functions from the sum or mean of leaf values, one row per sample, to the scale of predictions.
LINKS = {
    "identity": lambda raw: raw,
    "softmax": softmax,
    "sigmoid": expit,
    "log": np.exp,
}

MAX_INDEX = 2**31 - 1  # node numbers, codes of directions and rows of values are int32
MAX_BOX = MAX_INDEX // 2  # entries; the difference of two boxes is indexed in int32
MIN_RATIO, MAX_RATIO = 1e-100, 1e100  # of probabilities, so that no product of two becomes 0
CHUNK = 1 << 16  # entries checked at once
ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)

TASKS = ("classification", "multioutput classification", "regression")
AGGREGATES = ("mean", "sum")
WEIGHT_DTYPES = ("float32", "float16")

# name: (dtype, number of axes); docs/format explains each.
ARRAYS = {
    "tree_start": (np.int64, 1),
    "child": (np.int32, 1),
    "node_weight": (np.float64, 1),
    "threshold": (np.float32, 1),
    "direction": (np.int32, 1),
    "gain": (np.float32, 1),
    "value": (np.float32, 1),
    "value_start": (np.int64, 1),
    "value_index": (np.int32, 1),
    "slope_start": (np.int64, 1),
    "slope_feature": (np.int32, 1),
    "slope": (np.float32, 2),
    "box_corner": (np.int32, 1),
    "box_other": (np.int32, 1),
    "box_size": (np.int32, 2),
    "box_subset": (np.uint8, 2),
    "sparse_start": (np.int64, 1),
    "sparse_feature": (np.int32, 1),
    "sparse_weight": (np.float32, 1),
    "dense": (np.float32, 2),
    "deviation": (np.float32, 1),
    "offset": (np.float64, 1),
    "scale": (np.float64, 1),
    "low": (np.float32, 1),
    "high": (np.float32, 1),
    "tail": (np.float32, 1),
    "knots": (np.float64, 3),
    "fill": (np.float32, 1),
    "source": (np.int32, 1),
    "kind": (np.uint8, 1),
    "table_start": (np.int64, 1),
    "table": (np.float32, 1),
    "baseline": (np.float64, 1),
    "bag_start": (np.int64, 1),
}
OF_INPUTS = tuple("offset scale low high tail knots fill source kind table_start table".split())
FLOAT_ARRAYS = tuple(name for name, (dtype, _) in ARRAYS.items() if np.dtype(dtype).kind == "f")
METADATA = (
    "n_features n_outputs task classes n_classes aggregate link gate steepness feature_shape wrap "
    "unordered weight_dtype n_shared_values feature_names levels versions prior_ratio"
).split()
BOX_ARRAYS = ("box_corner", "box_other", "box_size", "box_subset")  # one entry per box
SPARSE_ARRAYS = ("sparse_feature", "sparse_weight")  # one entry per weight
SLOPE_ARRAYS = ("slope_feature", "slope")  # one entry per feature of a linear leaf
HALF_ARRAYS = ("sparse_weight", "dense")  # float16 in a forest of `weight_dtype` float16


def cast_exactly(array, dtype, name):
    """Cast an array to `dtype`, in C order.

    Floats are rounded; integers that `dtype` cannot represent raise a ValueError.
    """
    array = np.asarray(array)
    if array.size == 0:  # a new array: strides of empty arrays vary, and would change hashes
        return np.zeros(array.shape, dtype)
    if array.dtype == dtype:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {array.dtype}; numbers are needed")
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(dtype)
    if np.dtype(dtype).kind in "iu" and not np.array_equal(cast, array):
        raise ValueError(f"{name} contains values that {np.dtype(dtype)} cannot represent")
    return np.ascontiguousarray(cast)


def whole_number(value, name):
    """Convert to int; ValueError if the value is not a whole number."""
    try:
        number = int(value)
        if number == value:
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} is {value!r}; a whole number is needed")


def finite_number(value, name):
    """Convert to float; ValueError if the value is not a finite number."""
    try:
        number = float(value)
        if math.isfinite(number):
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise ValueError(f"{name} is {value!r}; a finite number is needed")


def _need(condition, message):
    if not condition:
        raise ValueError(f"not a valid forest: {message}")


class RemovableArray:
    """An array that predictions do not need; reading it raises after `Forest.slim`."""

    def __init__(self, like):
        self.like = like  # name of an array of the same length

    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, forest, array):
        vars(forest)[self.name] = array

    def __get__(self, forest, owner=None):
        if forest is None:
            return self
        array = vars(forest)[self.name]
        if array is not None and len(array) != len(vars(forest)[self.like]):
            raise AttributeError(
                f"this forest has no {self.name}: slim() removed what importances, plots and "
                "further training need; use the model from before slim()"
            )
        return array


def check_metadata(forest):
    """Raise ValueError unless the metadata of a forest, which may have no arrays, are valid."""
    for name in ("n_features", "n_outputs"):
        value = getattr(forest, name)
        _need(0 < value <= MAX_INDEX, f"{name} is {value}; it must be in 1 .. {MAX_INDEX}")
    for name, allowed in (
        ("task", TASKS),
        ("aggregate", AGGREGATES),
        ("link", tuple(LINKS)),
        ("gate", tuple(GATES)),
        ("weight_dtype", WEIGHT_DTYPES),
    ):
        value = getattr(forest, name)
        _need(value in allowed, f"{name} is {value!r}; it must be one of {allowed}")
    shape = forest.feature_shape
    _need(
        1 <= len(shape) <= MAX_AXES,
        f"feature_shape has {len(shape)} axes; it must have 1 to {MAX_AXES}",
    )
    _need(
        all(length > 0 for length in shape) and np.prod(shape, dtype=object) == forest.n_features,
        f"the product of feature_shape={shape} is not n_features={forest.n_features}",
    )
    _need(
        len(forest.wrap) == len(forest.unordered) == len(shape),
        "wrap and unordered need one entry per axis",
    )
    several = forest.task == "multioutput classification"
    _need(
        several == (forest.n_classes is not None), f"n_classes does not fit task={forest.task!r}"
    )
    _need(
        not several or (min(forest.n_classes) > 0 and sum(forest.n_classes) == forest.n_outputs),
        "the sum of n_classes is not n_outputs",
    )
    if forest.classes is not None:
        _need(forest.classes.shape == (forest.n_outputs,), "classes needs one entry per output")
    _need(
        forest.task == "regression" or forest.classes is not None,
        "classes are needed in classification",
    )
    ratio = forest.prior_ratio
    _need(
        ratio is None or (forest.task != "regression" and is_prior_ratio(ratio, forest.n_outputs)),
        f"prior_ratio needs a number from {MIN_RATIO} to {MAX_RATIO} for each class",
    )


def as_ratio(values):
    """A `prior_ratio` as a list of float, or None."""
    return None if values is None else [finite_number(x, "prior_ratio") for x in values]


def is_prior_ratio(ratio, n_classes):
    """Is it a list of valid factors of probabilities, one for each class of all outputs?"""
    is_list = isinstance(ratio, list) and len(ratio) == n_classes
    return is_list and all(isinstance(x, float) and MIN_RATIO <= x <= MAX_RATIO for x in ratio)


def check_arrays(forest):
    """Raise ValueError, with the reason, unless the arrays of a forest describe trees."""
    n_features = forest.n_features
    _check_trees(forest)
    _check_values(forest)
    _need(len(forest.baseline) == forest.n_outputs, "baseline needs one entry per output")
    _check_boxes(forest)
    _check_sparse(forest)
    _need(forest.dense.shape[1:] == (n_features,), "dense does not have n_features columns")
    n_codes = forest.code_ends[-1]
    _need(n_codes <= MAX_INDEX, f"there are {n_codes} directions; at most {MAX_INDEX} have codes")
    is_within = _within(forest.direction, 0, n_codes)
    _need(is_within, f"direction contains codes outside of 0 .. {n_codes - 1}")
    _need(len(forest.deviation) in (0, n_features), "deviation needs one entry per feature")
    _need(_all(forest.deviation, lambda x: x >= 0), "deviation contains values below 0, or NaN")
    _need(len(forest.offset) == len(forest.scale), "offset and scale differ in length")
    _check_inputs(forest)
    for name in FLOAT_ARRAYS:
        _need(_all(vars(forest)[name], np.isfinite), f"{name} contains values that are not finite")


def _check_inputs(forest):
    """Check the arrays of the feature map, and the levels of categories."""
    n_features, n_inputs = forest.n_features, forest.n_inputs
    _need(len(forest.scale) in (0, n_inputs), "scale needs one entry per input")
    names = forest.feature_names
    _need(names is None or len(names) == n_inputs, "feature_names needs one entry per input")
    _need(_all(forest.scale, lambda x: x >= 0), "scale contains values that are negative")
    _need(len(forest.low) in (0, n_inputs), "low needs one entry per input")
    _need(len(forest.low) == len(forest.high), "low and high differ in length")
    _need(len(forest.low) == len(forest.tail), "low and tail differ in length")
    _need(not (forest.low > forest.high).any(), "low exceeds high")
    _need(_all(forest.tail, lambda x: x >= 0), "tail contains values below 0, or NaN")
    _need(forest.knots.shape[1:] == (2, N_KNOTS), f"knots needs the shape (n, 2, {N_KNOTS})")
    _need(len(forest.knots) in (0, len(forest.scale)), "knots needs one entry per scaled input")
    _need(not len(forest.knots) or len(forest.low), "knots without limits")
    rises = np.diff(forest.knots, axis=2) * np.array([[1], [-1]]) >= 0
    _need(rises.all(), "knots are not in order")
    for limit in (forest.low, forest.high, forest.tail) if len(forest.scale) else ():
        # Larger ones could make products infinite.
        _need(_all(limit, lambda x: np.abs(x) <= LIMIT), "low, high or tail is out of range")
    _need(len(forest.fill) in (0, n_inputs), "fill needs one entry per input")
    _need(len(forest.source) in (0, n_features), "source needs one entry per feature")
    _need(len(forest.kind) == len(forest.source), "source and kind differ in length")
    _need(_within(forest.source, 0, n_inputs), "source is out of range")
    _need(_within(forest.kind, 0, len(KINDS)), "kind is out of range")
    _need(len(forest.table_start) == len(forest.source) + 1, "table_start has a wrong length")
    _check_starts(forest.table_start, len(forest.table), "table_start")
    levels = forest.levels
    are_known = (not levels or len(forest.source) > 0) and all(0 <= j < n_inputs for j in levels)
    _need(are_known, "levels are given for inputs that are out of range")
    categories = np.array(sorted(levels), dtype=np.int64)
    n_entries = np.array([len(levels[j]) + 2 for j in categories], dtype=np.int64)
    for part in _parts(len(forest.source)):
        source, kind = forest.source[part], forest.kind[part]
        is_category = np.isin(source, categories)
        expected = np.full(len(source), 2)
        expected[is_category] = n_entries[np.searchsorted(categories, source[is_category])]
        expected[kind == VALUE] = 0
        lengths = np.diff(forest.table_start[part.start : part.stop + 1])
        _need((lengths == expected).all(), "a table has a wrong length")
        of_category = kind >= CODE
        _need((of_category == is_category).all(), "a feature is not of the kind of its input")
    if len(forest.scale):
        unscaled = (forest.offset[categories] == 0) & (forest.scale[categories] == 1)
        _need(unscaled.all(), "a category is scaled")


class Levels(dict):
    """Levels of categories that `as_levels` has checked."""

    ordered = frozenset()  # columns with an ordered dtype; set in `fit` only

    def with_one(self, j):
        """Return the same levels, but only the first one of input j."""
        other = Levels(self | {j: self[j][:1]})
        other.ordered = self.ordered
        return other


def as_levels(levels):
    """Convert a dict, or a sequence of pairs as in JSON, to Levels."""
    if isinstance(levels, Levels):  # checked once, not for each tree of a forest
        return levels
    pairs = levels.items() if isinstance(levels, dict) else levels or ()
    found = Levels()
    for j, known in pairs:
        j, known = whole_number(j, "an input of levels"), list(known)
        _need(j not in found, f"levels of input {j} are given twice")
        _need(
            all(isinstance(level, str | float | int) for level in known),
            f"the levels of input {j} are not all numbers or strings",
        )
        try:
            found[j] = [level if isinstance(level, str) else float(level) for level in known]
        except OverflowError:
            _need(False, f"a level of input {j} is too large for float64")
        _need(all(level == level for level in found[j]), f"a level of input {j} is NaN")
        _need(len(set(found[j])) == len(known), f"two levels of input {j} are equal")
    return found


def _parts(n):
    """Return slices of at most CHUNK entries that cover n entries."""
    return (slice(i, min(i + CHUNK, n)) for i in range(0, n, CHUNK))


def _all(array, condition):
    """Return whether `condition`, a function of arrays, holds everywhere."""
    flat = array.reshape(-1)
    return all(condition(flat[part]).all() for part in _parts(flat.size))


def _lengths(starts):
    """Return the lengths of ragged rows, in parts, from starts that have been checked."""
    return (np.diff(starts[p.start : p.stop + 1]) for p in _parts(len(starts) - 1))


def _within(array, low, high):
    """Return whether low <= array < high everywhere."""
    return array.size == 0 or (array.min() >= low and array.max() < high)


def _check_starts(starts, end, name):
    """Check that the starts of ragged rows begin at 0, never decrease and end at `end`."""
    _need(
        len(starts) >= 1
        and starts[0] == 0
        and starts[-1] == end
        and all((starts[1:][part] >= starts[:-1][part]).all() for part in _parts(len(starts) - 1)),
        f"{name} must rise from 0 to {end}",
    )


def _check_trees(forest):
    start, child = forest.tree_start, forest.child
    _check_starts(start, len(child), "tree_start")
    n_trees = len(start) - 1
    odd = all((sizes % 2 == 1).all() for sizes in _lengths(start))
    _need(odd, "every tree must have an odd number of nodes")
    n_splits = (len(child) - n_trees) // 2
    for name in ("threshold", "direction"):
        _need(len(getattr(forest, name)) == n_splits, f"{name} needs one entry per split")
    arrays = forest.arrays  # `gain` and `node_weight` may be removed
    _need(len(arrays["gain"]) in (0, n_splits), "gain needs one entry per split, or none")
    _need(
        len(arrays["node_weight"]) in (0, len(child)),
        "node_weight needs one entry per node, or none",
    )
    _check_starts(forest.bag_start, n_trees, "bag_start")
    has_trees = all((n > 0).all() for n in _lengths(forest.bag_start))
    _need(has_trees or not n_trees and len(forest.bag_start) == 2, "a bag has no trees")
    _check_children(child, start, n_splits)


def _check_children(child, start, n_splits):
    """Check that the children of each tree are pairs, each with one parent, which precedes it."""
    has_parent, n_parents = np.zeros(n_splits, dtype=bool), 0
    for part in _parts(len(child)):
        first, last = np.searchsorted(start, (part.start, part.stop - 1), side="right") - 1
        counts = np.diff(np.clip(start[first : last + 2], part.start, part.stop))
        is_split = child[part] >= 0
        tree = np.repeat(np.arange(first, last + 1), counts)[is_split]
        node = part.start + np.flatnonzero(is_split) - start[tree]
        left = child[part][is_split].astype(np.int64)
        for wrong, why in (
            (left <= node, "comes before it, or is the node itself"),
            ((left % 2 != 1) | (left + 1 >= start[tree + 1] - start[tree]), "is out of range"),
        ):
            if wrong.any():
                k = wrong.argmax()
                _need(False, f"the child of node {node[k]} of tree {tree[k]} {why}")
        has_parent[(start[tree] - tree) // 2 + (left - 1) // 2] = True
        n_parents += len(node)
    # If there are as many parents as pairs, and each pair has a parent, none has two.
    _need(
        n_parents == n_splits and has_parent.all(),
        "the children do not form trees: two nodes share a child, or a node has no parent",
    )


def _check_values(forest):
    if len(forest.value_start):
        _check_starts(forest.value_start, len(forest.value), "value_start")
        _need(
            len(forest.value_index) == len(forest.value), "value_index and value differ in length"
        )
        _need(_within(forest.value_index, 0, forest.n_outputs), "value_index is out of range")
    else:
        _need(len(forest.value) % forest.n_outputs == 0, "value has an incomplete row")
        _need(len(forest.value_index) == 0, "value_index is given without value_start")
    n_values = count_value_rows(forest)
    _need(_within(forest.child, -n_values, MAX_INDEX), "a leaf has no value")
    _need(0 <= forest.n_shared_values <= n_values, "n_shared_values is out of range")
    _check_slopes(forest, n_values)


def _check_slopes(forest, n_values):
    n_slopes = len(forest.slope_feature)
    if not len(forest.slope_start):
        _need(n_slopes == forest.slope.size == 0, "slopes are given without slope_start")
        return
    _need(forest.slope.shape == (n_slopes, forest.n_outputs), "slope is not (n, n_outputs)")
    is_plain = forest.gate == "hard" and not len(forest.value_start)
    _need(is_plain, 'slopes need the gate "hard", and values without value_start')
    _need(forest.n_shared_values == 0, "slopes need n_shared_values to be 0")
    _need(len(forest.slope_start) == n_values + 1, "slope_start needs one entry per row of values")
    _check_starts(forest.slope_start, n_slopes, "slope_start")
    _need(_within(forest.slope_feature, 0, forest.n_features), "slope_feature is out of range")


def _check_boxes(forest):
    n_boxes = len(forest.box_corner)
    n_axes, n_bytes = len(forest.feature_shape), forest.n_subset_bytes
    _need(len(forest.box_other) == n_boxes, "box_other and box_corner differ in length")
    _need(forest.box_size.shape == (n_boxes, n_axes), "box_size is not (n_boxes, n_axes)")
    _need(forest.box_subset.shape == (n_boxes, n_bytes), "box_subset is not (n_boxes, n_bytes)")
    if n_boxes == 0:
        return
    _need(_within(forest.box_corner, 0, forest.n_features), "box_corner is out of range")
    _need(_within(forest.box_other, -1, forest.n_features), "box_other is out of range")
    for part in _parts(n_boxes):
        _check_extents(forest, *(getattr(forest, name)[part] for name in BOX_ARRAYS))


def _check_extents(forest, corner, other, size, subset):
    """Check that some boxes lie within the array of features, and the subsets of their entries."""
    shape = np.array(forest.feature_shape)
    _need((size >= 1).all() and (size <= shape).all(), "box_size is out of range")
    volume = size.prod(axis=1, dtype=np.int64).max()
    _need(volume <= MAX_BOX, f"a box has {volume} entries; at most {MAX_BOX} are supported")
    other = np.where(other < 0, corner, other)
    first_byte, stride = 0, forest.n_features
    for axis, length in enumerate(forest.feature_shape):
        stride //= length
        corners = [c // np.int32(stride) % np.int32(length) for c in (corner, other)]
        if forest.unordered[axis]:
            n = (length + 7) // 8
            ones = ONES[subset[:, first_byte : first_byte + n]]
            last = subset[:, first_byte + n - 1]
            first_byte += n
            _need(
                length % 8 == 0 or (last >> length % 8 == 0).all(),
                "box_subset has bits beyond the end of the axis",
            )
            is_equal = ones.sum(axis=1, dtype=np.int64) == size[:, axis]
            _need(is_equal.all(), "box_subset does not match box_size")
            _need(
                not (corners[0].any() or corners[1].any()),
                "a corner on an unordered axis is not 0",
            )
        elif not forest.wrap[axis]:
            # The sum of corner and size may exceed int32; length - corner does not.
            free = np.int32(length) - np.maximum(*corners)
            _need((size[:, axis] <= free).all(), "a box extends beyond the array of features")


def _check_sparse(forest):
    _check_starts(forest.sparse_start, len(forest.sparse_feature), "sparse_start")
    _need(
        len(forest.sparse_weight) == len(forest.sparse_feature),
        "sparse_weight and sparse_feature differ in length",
    )
    _need(_within(forest.sparse_feature, 0, forest.n_features), "sparse_feature is out of range")
    longest = max((n.max() for n in _lengths(forest.sparse_start)), default=0)
    _need(longest <= MAX_INDEX, f"a sparse direction has {longest} entries, more than {MAX_INDEX}")


def without_unused(forest):
    """Return the arrays of a forest without the directions and value rows that no tree uses."""
    arrays = dict(forest.arrays)
    used, direction = np.unique(forest.direction, return_inverse=True)
    kind = np.searchsorted(forest.code_ends, used, side="right")
    box = used[kind == 1] - forest.n_features
    row = used[kind == 2] - forest.code_ends[1]
    arrays["dense"] = forest.dense[used[kind == 3] - forest.code_ends[2]]
    for name in BOX_ARRAYS:
        arrays[name] = arrays[name][box]
    _take_rows(arrays, "sparse_start", SPARSE_ARRAYS, row)
    # The codes of features stay; other codes are renumbered without gaps.
    code = used.copy()
    code[kind > 0] = forest.n_features + np.arange((kind > 0).sum())
    arrays["direction"] = code[direction]
    leaf = forest.child < 0
    row = -1 - forest.child[leaf]
    row, inverse = np.unique(
        np.concatenate([np.arange(forest.n_shared_values), row]), return_inverse=True
    )
    child = forest.child.copy()
    child[leaf] = -1 - inverse[forest.n_shared_values :]
    arrays["child"] = child
    if len(forest.value_start):
        _take_rows(arrays, "value_start", ("value", "value_index"), row)
    else:
        arrays["value"] = forest.value.reshape(-1, forest.n_outputs)[row].ravel()
    if len(forest.slope_start):
        _take_rows(arrays, "slope_start", SLOPE_ARRAYS, row)
    return arrays


def count_value_rows(forest):
    """Return the number of value rows."""
    if len(forest.value_start):
        return len(forest.value_start) - 1
    return len(forest.value) // max(forest.n_outputs, 1)


def _take_rows(arrays, start, items, rows):
    """Keep some rows of the ragged arrays `items` in place; the array `start` has their starts."""
    lengths = np.diff(arrays[start])[rows]
    offset = arrays[start][rows] - (np.cumsum(lengths) - lengths)
    index = np.repeat(offset, lengths) + np.arange(lengths.sum())
    for name in items:
        arrays[name] = arrays[name][index]
    arrays[start] = np.concatenate([[0], np.cumsum(lengths)])
