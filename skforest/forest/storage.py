"""Do the arrays of a forest fit together?

Kernels follow indices without looking back, so a forest that came from a file must be proven sound
before its first use. Every check is one pass over an array.
"""

from __future__ import annotations

import numpy as np

from .._tree import GATES

MAX_INDEX = 2**31 - 1
MAX_AXES = 8  # as in _direction.pxd
CHECKED_TOGETHER = 1 << 16  # nodes


def exactly(array, dtype, name):
    """The array in `dtype`, in C order. Floats are rounded; ValueError if integers do not fit."""
    array = np.asarray(array)
    if array.size == 0:  # strides of empty arrays vary with their history, and show in hashes
        return np.zeros(array.shape, dtype)
    if array.dtype == dtype:
        return np.ascontiguousarray(array)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {array.dtype}, numbers are needed")
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(dtype)
    if np.dtype(dtype).kind in "iu" and not np.array_equal(cast, array):
        raise ValueError(f"{name} holds values that {np.dtype(dtype)} cannot")
    return np.ascontiguousarray(cast)


def _need(condition, message):
    if not condition:
        raise ValueError(f"not a valid forest: {message}")


def check_counts(n_features, n_outputs):
    """Raise ValueError unless both are positive and can be indexed."""
    for name, value in (("n_features", n_features), ("n_outputs", n_outputs)):
        _need(0 < value <= MAX_INDEX, f"{name} is {value}, 1 .. {MAX_INDEX} is needed")


def check_forest(forest):
    """Raise ValueError, with the reason, if the forest is not sound."""
    _check_meta(forest)
    _check_trees(forest)
    _check_values(forest)
    _check_boxes(forest)
    _check_sparse(forest)
    n_codes = forest._code_ends[-1]
    _need(n_codes <= MAX_INDEX, f"{n_codes} directions, at most {MAX_INDEX} have codes")
    _need(len(forest.spread) in (0, forest.n_features), "spread needs one entry a feature")
    _need((forest.spread > 0).all(), "spread holds values that are not positive")
    _need(len(forest.offset) == len(forest.scale), "offset is not as long as scale")
    _need(len(forest.scale) in (0, forest.n_features), "scale needs one entry a feature")
    _need((forest.scale > 0).all(), "scale holds values that are not positive")
    _need(forest.dense.shape[1:] == (forest.n_features,), "dense has not n_features columns")
    _need(_within(forest.direction, 0, n_codes), f"direction outside of 0 .. {n_codes - 1}")
    for name in (
        "threshold",
        "gain",
        "node_weight",
        "value",
        "sparse_weight",
        "dense",
        "spread",
        "offset",
        "scale",
        "baseline",
    ):
        _need(np.isfinite(getattr(forest, name)).all(), f"{name} holds values that are not finite")


def _within(array, low, high):
    """All of low <= array < high?"""
    return array.size == 0 or (array.min() >= low and array.max() < high)


def _rises(starts, end, name):
    """`starts` begins at 0, never falls and ends at `end`."""
    _need(
        len(starts) >= 1 and starts[0] == 0 and starts[-1] == end and (np.diff(starts) >= 0).all(),
        f"{name} must rise from 0 to {end}",
    )


def _check_meta(forest):
    for name, allowed in (
        ("task", ("classification", "regression")),
        ("aggregate", ("mean", "sum")),
        ("link", ("identity", "softmax", "log")),
        ("gate", tuple(GATES)),
    ):
        value = getattr(forest, name)
        _need(value in allowed, f"{name} is {value!r}, one of {allowed} is needed")
    _need(np.isfinite(forest.steepness), f"steepness is {forest.steepness}, not finite")
    shape = forest.feature_shape
    _need(1 <= len(shape) <= MAX_AXES, f"feature_shape={shape} must have 1 to {MAX_AXES} axes")
    _need(
        all(length > 0 for length in shape) and np.prod(shape, dtype=object) == forest.n_features,
        f"feature_shape {shape} does not multiply to n_features={forest.n_features}",
    )
    _need(
        len(forest.wrap) == len(forest.unordered) == len(shape),
        "wrap and unordered need one entry an axis",
    )
    _need(len(forest.baseline) == forest.n_outputs, "baseline needs one entry an output")
    if forest.task == "classification":
        _need(
            forest.classes is not None and len(forest.classes) == forest.n_outputs,
            "classes needs one entry an output",
        )


def _check_trees(forest):
    """Children come in pairs behind their parents, and every pair has one parent."""
    start, child = forest.tree_start, forest.child
    _rises(start, len(child), "tree_start")
    sizes = np.diff(start)
    _need((sizes % 2 == 1).all(), "a tree has an odd number of nodes")
    n_splits = (len(child) - len(sizes)) // 2
    for name in ("threshold", "direction", "gain"):
        _need(len(getattr(forest, name)) == n_splits, f"{name} needs one entry a split")
    _need(len(forest.node_weight) == len(child), "node_weight needs one entry a node")
    _rises(forest.bag_start, len(sizes), "bag_start")
    _need((np.diff(forest.bag_start) > 0).all(), "a bag has no trees")
    # Some trees at a time: the arrays made on the way are larger than those of the forest.
    first = 0
    while first < len(sizes):
        last = max(first + 1, np.searchsorted(start, start[first] + CHECKED_TOGETHER, "right") - 1)
        _check_children(child[start[first] : start[last]], sizes[first:last])
        first = last


def _check_children(child, sizes):
    """The children of some trees with `sizes` nodes."""
    start = np.cumsum(sizes) - sizes
    tree = np.repeat(np.arange(len(sizes)), sizes)
    split = child >= 0
    node = np.arange(len(child)) - start[tree]
    left, tree = child[split].astype(np.int64), tree[split]
    _need((left > node[split]).all(), "a child stands before its parent")
    _need((left % 2 == 1).all() and (left + 1 < sizes[tree]).all(), "a child is out of range")
    pair = (start[tree] - tree) // 2 + (left - 1) // 2
    n_splits = (len(child) - len(sizes)) // 2
    _need(
        len(pair) == n_splits and (np.bincount(pair, minlength=n_splits) == 1).all(),
        "the children do not form trees",
    )


def _check_values(forest):
    leaf = forest.child[forest.child < 0]
    if len(forest.value_start):
        _rises(forest.value_start, len(forest.value), "value_start")
        _need(len(forest.value_index) == len(forest.value), "value_index is not as long as value")
        _need(_within(forest.value_index, 0, forest.n_outputs), "value_index is out of range")
        n_values = len(forest.value_start) - 1
    else:
        _need(len(forest.value) % forest.n_outputs == 0, "value has an incomplete row")
        _need(len(forest.value_index) == 0, "value_index without value_start")
        n_values = len(forest.value) // forest.n_outputs
    _need(_within(-1 - leaf.astype(np.int64), 0, n_values), "a leaf has no value")
    _need(0 <= forest.n_shared_values <= n_values, "n_shared_values is out of range")


def _check_boxes(forest):
    n_boxes = len(forest.box_corner)
    shape = np.array(forest.feature_shape)
    n_bytes = sum((n + 7) // 8 for n, u in zip(forest.feature_shape, forest.unordered) if u)
    _need(len(forest.box_other) == n_boxes, "box_other is not as long as box_corner")
    _need(forest.box_size.shape == (n_boxes, len(shape)), "box_size is not (n_boxes, n_axes)")
    _need(forest.box_subset.shape == (n_boxes, n_bytes), "box_subset is not (n_boxes, n_bytes)")
    if n_boxes == 0:
        return
    _need(_within(forest.box_corner, 0, forest.n_features), "box_corner is out of range")
    _need(_within(forest.box_other, -1, forest.n_features), "box_other is out of range")
    size = forest.box_size
    _need((size >= 1).all() and (size <= shape).all(), "box_size is out of range")
    other = np.where(forest.box_other < 0, forest.box_corner, forest.box_other)
    first_byte = 0
    stride = forest.n_features
    for axis, length in enumerate(forest.feature_shape):
        stride //= length
        corners = [
            corner // np.int32(stride) % np.int32(length) for corner in (forest.box_corner, other)
        ]
        if forest.unordered[axis]:
            n = (length + 7) // 8
            bits = np.unpackbits(
                forest.box_subset[:, first_byte : first_byte + n], axis=1, bitorder="little"
            )
            first_byte += n
            _need((bits[:, length:] == 0).all(), "box_subset has bits behind the axis")
            _need((bits.sum(axis=1) == size[:, axis]).all(), "box_subset does not match box_size")
            _need(
                not (corners[0].any() or corners[1].any()),
                "a corner on an unordered axis is not 0",
            )
        elif not forest.wrap[axis]:
            end = np.maximum(*corners) + size[:, axis]
            _need((end <= length).all(), "a box leaves the array")


def _check_sparse(forest):
    _rises(forest.sparse_start, len(forest.sparse_feature), "sparse_start")
    _need(
        len(forest.sparse_weight) == len(forest.sparse_feature),
        "sparse_weight is not as long as sparse_feature",
    )
    _need(_within(forest.sparse_feature, 0, forest.n_features), "sparse_feature is out of range")


MOST = 2**31 - 1  # codes of directions and rows of values are int32


def join(forests, consume=False):
    """Arrays of one forest of the trees of several of the same kind, in order, as one bag.

    Parameters
    ----------
    forests : list of Forest
    consume : bool, default=False
        The forests will not be used again: their arrays are freed as they are joined.

    Returns
    -------
    arrays : dict of str to ndarray

    Raises
    ------
    ValueError
        If there are none, or they are not of the same kind.
    """
    if not forests:
        raise ValueError("forests is empty; at least one Forest is needed")
    head = forests[0]
    for other in forests[1:]:
        _check_same_kind(head, other)
    ends = np.array([f._code_ends for f in forests])
    # Codes of a forest's boxes are shifted by the boxes before it, and so on for each kind.
    counts = np.diff(ends, axis=1)
    before = np.cumsum(counts, axis=0) - counts
    start = np.cumsum(np.concatenate([[head.n_features], counts.sum(axis=0)]))[:-1]
    shift = start + before - ends[:, :-1]
    shared = head.n_shared_values
    n_values = np.array([_n_values(f) for f in forests])
    value_shift = np.cumsum(n_values - shared) - (n_values - shared)
    if max(start[-1] + counts[:, -1].sum(), value_shift[-1] + n_values[-1]) > MOST:
        raise ValueError(f"the forests have more than {MOST} directions or values together")

    def moved_codes(f, moved):
        kind = np.searchsorted(f._code_ends, f.direction, side="right")
        return f.direction + np.concatenate([[0], moved]).astype(np.int32)[kind]

    def moved_leaves(f, values_before):
        own = f.child < -shared  # a leaf with a value of its own: row >= shared
        return f.child - np.int32(values_before) * own

    nodes = np.concatenate([[0], *(np.diff(f.tree_start) for f in forests)])
    arrays = {
        "tree_start": np.cumsum(nodes),
        "direction": np.concatenate([moved_codes(*each) for each in zip(forests, shift)]),
        "child": np.concatenate([moved_leaves(*each) for each in zip(forests, value_shift)]),
        "baseline": head.baseline,
        "spread": head.spread,
        "offset": head.offset,
        "scale": head.scale,
        "bag_start": [0, len(nodes) - 1],
    }
    for name in (
        "node_weight",
        "threshold",
        "gain",
        "box_corner",
        "box_other",
        "box_size",
        "box_subset",
        "sparse_feature",
        "sparse_weight",
        "dense",
    ):
        arrays[name] = np.concatenate([getattr(f, name) for f in forests])
        if consume:
            for f in forests:
                setattr(f, name, None)
    arrays["sparse_start"] = _join_starts([f.sparse_start for f in forests])
    values = [head.arrays, *(_without_shared(f) for f in forests[1:])]
    for name in ("value", "value_index"):
        arrays[name] = np.concatenate([v[name] for v in values])
    if len(head.value_start):
        arrays["value_start"] = _join_starts([v["value_start"] for v in values])
    return arrays


def without_unused(forest):
    """Arrays of a forest without the directions and values that no tree uses.

    Parameters
    ----------
    forest : Forest

    Returns
    -------
    arrays : dict of str to ndarray
    """
    arrays = dict(forest.arrays)
    used, direction = np.unique(forest.direction, return_inverse=True)
    kind = np.searchsorted(forest._code_ends, used, side="right")
    box = used[kind == 1] - forest.n_features
    row = used[kind == 2] - forest._code_ends[1]
    arrays["dense"] = forest.dense[used[kind == 3] - forest._code_ends[2]]
    for name in ("box_corner", "box_other", "box_size", "box_subset"):
        arrays[name] = arrays[name][box]
    _take_rows(arrays, "sparse_start", ("sparse_feature", "sparse_weight"), row)
    # Codes of features stay; all others follow each other without gaps.
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
    return arrays


def _n_values(forest):
    """Number of value rows."""
    if len(forest.value_start):
        return len(forest.value_start) - 1
    return len(forest.value) // max(forest.n_outputs, 1)


def _without_shared(forest):
    """Value arrays without the rows that every forest of the kind begins with."""
    if not len(forest.value_start):
        cut = forest.n_shared_values * forest.n_outputs
        return {"value": forest.value[cut:], "value_index": forest.value_index}
    starts = forest.value_start[forest.n_shared_values :]
    return {
        "value": forest.value[starts[0] :],
        "value_index": forest.value_index[starts[0] :],
        "value_start": starts - starts[0],
    }


def _join_starts(starts):
    """Starts of concatenated ragged rows, from the starts of each."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(s) for s in starts]))])


def _take_rows(arrays, start, items, rows):
    """Keep some rows of ragged arrays."""
    lengths = np.diff(arrays[start])[rows]
    first = np.repeat(arrays[start][rows] - (np.cumsum(lengths) - lengths), lengths)
    index = first + np.arange(lengths.sum())
    for name in items:
        arrays[name] = arrays[name][index]
    arrays[start] = np.concatenate([[0], np.cumsum(lengths)])


def _check_same_kind(head, other):
    """Raise ValueError where two forests cannot be joined."""
    for name in (
        "n_features",
        "n_outputs",
        "task",
        "aggregate",
        "link",
        "gate",
        "steepness",
        "feature_shape",
        "wrap",
        "unordered",
        "weight_dtype",
        "n_shared_values",
    ):
        if getattr(head, name) != getattr(other, name):
            raise ValueError(
                f"forests differ in {name}: {getattr(head, name)!r} and {getattr(other, name)!r}"
            )
    for name in ("classes", "baseline", "spread", "offset", "scale"):
        if not np.array_equal(getattr(head, name), getattr(other, name)):
            raise ValueError(f"forests differ in {name}")
    if bool(len(head.value_start)) != bool(len(other.value_start)):
        raise ValueError("forests differ in how they store leaf values")
