"""Floor 3: joining the arrays of forests, and dropping what no tree uses."""

from __future__ import annotations

import numpy as np

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
