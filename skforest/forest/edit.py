"""Functions that return changed forests: joined, pruned, or with other hyperplanes and values.

Methods that train a whole tree start from a grown tree and move its hyperplanes. They read them
(`unpack`), replace them (`repack`), count again which training rows reach which node
(`statistics.recount`), and remove the nodes that no row reaches (`prune`). Each forest has one
tree here, except in the second part of the file.
"""

import dataclasses
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from .statistics import exact_shares, reached_nodes, recount, route, within_targets
from .storage import (
    BOX_ARRAYS,
    HALF_ARRAYS,
    MAX_INDEX,
    METADATA,
    OF_INPUTS,
    SLOPE_ARRAYS,
    SPARSE_ARRAYS,
    count_value_rows,
)


def unpack(forest):
    """Return weights, float32 of shape (n_splits, n_features), and thresholds of all splits."""
    return np.ascontiguousarray(forest.directions().toarray()), forest.threshold.copy()


@dataclass(frozen=True)
class DenseTree:
    """One tree, in the form that kernels train."""

    child: np.ndarray  # (n_nodes,), int32: the left child, or -1 - leaf, leaves in their order
    weights: np.ndarray  # (n_splits, n_features), float32
    threshold: np.ndarray  # (n_splits,), float32

    @classmethod
    def of(cls, forest):
        """Unpack a Forest of one tree."""
        child, is_leaf = forest.child.copy(), forest.child < 0
        child[is_leaf] = -1 - np.arange(np.count_nonzero(is_leaf))
        return cls(child, *unpack(forest))


def max_sparse_weights(n_features, weight_dtype="float32"):
    """Return the largest number of weights with which a sparse row is smaller than a dense row."""
    # A sparse row takes 8 bytes for its start, and 4 bytes for the feature of each weight.
    size = np.dtype(weight_dtype).itemsize
    return (size * n_features - 9) // (size + 4)


def repack(forest, W, threshold, changed):
    """Replace the hyperplanes of the splits where the mask `changed` is True.

    `W` and `threshold` have one row and one entry for every split. Directions that no split uses
    any more are removed. If the gates are hard, a row with one positive weight is stored as a
    feature. A row with few weights becomes a sparse direction (`max_sparse_weights`). Weights are
    rounded if the forest has half precision.
    """
    split = np.flatnonzero(changed)
    return replace_splits(forest, split, W[split], np.asarray(threshold)[split])


def replace_splits(forest, split, rows, threshold):
    """As `repack`, but `split` has the numbers of the changed splits, `rows` their hyperplanes."""
    arrays = dict(forest.arrays)
    rows = np.asarray(rows, dtype=np.float32)
    threshold = np.array(threshold, dtype=np.float32)
    hard = forest.gate == "hard"
    # Other gates depend on the length of the hyperplane, so only hard splits become features.
    is_feature, feature = _single_features(rows, threshold, hard)
    if forest.weight_dtype == "float16":
        rows, threshold = _rounded_to_half(rows, threshold, ~is_feature, hard)
    n_nonzero = np.count_nonzero(rows, axis=1)
    is_sparse = n_nonzero <= max_sparse_weights(forest.n_features, forest.weight_dtype)
    is_sparse &= ~is_feature
    is_dense = ~is_sparse & ~is_feature
    # New sparse rows follow the old ones, which moves the codes of all dense directions.
    _, _, sparse_end, dense_end = forest.code_ends
    n_sparse = np.count_nonzero(is_sparse)
    code = feature.astype(np.int32)
    code[is_sparse] = sparse_end + np.arange(n_sparse)
    code[is_dense] = dense_end + n_sparse + np.arange(np.count_nonzero(is_dense))
    direction = forest.direction + np.int32(n_sparse) * (forest.direction >= sparse_end)
    direction[split] = code
    arrays["direction"] = direction
    arrays["threshold"] = forest.threshold.copy()
    arrays["threshold"][split] = threshold
    new = rows[is_sparse]
    ends = arrays["sparse_start"][-1] + np.cumsum(n_nonzero[is_sparse])
    arrays["sparse_start"] = np.concatenate([arrays["sparse_start"], ends])
    arrays["sparse_feature"] = np.concatenate([arrays["sparse_feature"], np.nonzero(new)[1]])
    arrays["sparse_weight"] = np.concatenate([arrays["sparse_weight"], new[new != 0]])
    arrays["dense"] = np.concatenate([arrays["dense"], rows[is_dense]])
    return forest.replaced(arrays).compact()


def _single_features(rows, threshold, hard):
    """Find the rows that can be stored as one feature, and write their thresholds.

    Return a mask of these rows, empty unless the gates are hard, and the feature with the largest
    weight in every row.
    """
    is_feature = (np.count_nonzero(rows, axis=1) == 1) & hard
    feature = np.abs(rows).argmax(axis=1) if len(rows) else np.zeros(0, dtype=np.int64)
    for k in np.flatnonzero(is_feature):
        cut = _divided(threshold[k], rows[k, feature[k]])
        is_feature[k] = cut is not None
        if cut is not None:
            threshold[k] = cut
    return is_feature, feature


def _rounded_to_half(rows, threshold, chosen, hard):
    """Round the weights of the chosen hyperplanes to half precision.

    A hard split does not depend on the length of its hyperplane, so lengths far from 1 are first
    multiplied by a power of two. Other gates keep the length unless it exceeds half precision;
    such a steep gate is nearly hard.
    """
    rows, threshold = rows.copy(), threshold.copy()
    largest = np.abs(rows[chosen]).max(axis=1, initial=0)
    exponent = np.frexp(largest)[1]
    exponent[((largest > 2.0**-4) | (not hard)) & (largest < 2.0**15)] = 0
    rows[chosen] = np.ldexp(rows[chosen], -exponent[:, None]).astype(np.float16)
    threshold[chosen] = np.ldexp(threshold[chosen], -exponent)
    return rows, threshold


def _divided(threshold, weight):
    """Return the cut with ``x > cut`` exactly if ``x * weight > threshold``, in float32.

    None if no such cut exists: the weight is not positive, or the quotient exceeds float32.
    """
    if not weight > 0:
        return None
    with np.errstate(over="ignore", under="ignore"):
        # Products increase with x: the cut is the largest x whose product is not above.
        cut = np.float32(np.float64(threshold) / np.float64(weight))
        while np.isfinite(cut) and cut * weight > threshold:
            cut = np.nextafter(cut, np.float32(-np.inf))
        for _ in range(4):
            above = np.nextafter(cut, np.float32(np.inf))
            if not np.isfinite(above) or above * weight > threshold:
                break
            cut = above
        else:
            return None  # the weight is so small that many x have the same product
    return cut if np.isfinite(cut) else None


def recount_and_prune(forest, data, criterion, leaf_values=None):
    """Recount the rows of a tree and remove the nodes that no row reaches.

    `leaf_values`, of shape (n_leaves, n_outputs), replace the leaf values of `recount`.
    """
    if leaf_values is None:
        forest = recount(forest, data, criterion)
    else:
        forest = recount_with_values(forest, data, criterion, leaf_values)
    return prune(forest, reached_nodes(forest, route(forest, data.X)[data.weight > 0]))


def recount_with_values(forest, data, criterion, leaf_values):
    """Recount the rows of a tree as `recount` does, and then replace its leaf values.

    `leaf_values`, of shape (n_leaves, n_outputs), have the order of the nodes. In regression, they
    are limited to the range of the targets.
    """
    forest = recount(forest, data, criterion)
    if forest.task == "regression":
        leaf_values = within_targets(leaf_values.astype(np.float32), data)
    return replace_leaves(forest, leaf_values)


def replace_leaves(forest, value):
    """Replace the values of all leaves of a tree, given in the order of the nodes."""
    shared, n_leaves = forest.n_shared_values, len(value)
    arrays = dict(forest.arrays)
    arrays["child"] = forest.child.copy()
    arrays["child"][forest.child < 0] = -1 - shared - np.arange(n_leaves)
    end = shared * forest.n_outputs
    value = value.astype(np.float32)
    if forest.task == "classification":
        value = exact_shares(value.ravel(), forest.n_outputs * np.arange(n_leaves + 1))
        end = forest.value_start[shared]
        starts = end + forest.n_outputs * np.arange(n_leaves + 1)
        index = np.tile(np.arange(forest.n_outputs, dtype=np.int32), n_leaves)
        arrays["value_index"] = np.concatenate([forest.value_index[:end], index])
        arrays["value_start"] = np.concatenate([forest.value_start[:shared], starts])
    arrays["value"] = np.concatenate([forest.value[:end], value.ravel()])
    return forest.replaced(arrays).compact()


def to_half_precision(forest, data, criterion):
    """Round the weights of a tree to half precision, recount its rows and prune it."""
    split = np.flatnonzero(forest.direction >= forest.n_features)
    rows, threshold = unpack(forest)
    # The directions become zeros of the new dtype, which replace_splits then fills.
    zeros = {name: np.zeros_like(forest.arrays[name], np.float16) for name in HALF_ARRAYS}
    half = forest.replaced(forest.arrays | zeros, weight_dtype="float16")
    half = replace_splits(half, split, rows[split], threshold[split])
    return recount_and_prune(half, data, criterion)


def prune(forest, reached):
    """Remove the nodes of a tree that are not in the mask `reached`.

    The mask contains the parent of each of its nodes, and a child of each of its splits. A split
    with one reached child is replaced by that child. Rows on reached paths keep their leaf values.
    """
    reached = np.asarray(reached, dtype=bool)
    child = forest.child.astype(np.int64)
    node = np.arange(forest.n_nodes)
    # 1. Each node is replaced by the first node below it that is a leaf or has two reached
    # children. Every step halves the length of the chains of replacements.
    is_split = child > 0
    left = np.where(is_split, child, 0)
    has_one = is_split & (reached[left] != reached[np.where(is_split, child + 1, 0)])
    substitute = np.where(has_one, np.where(reached[left], left, left + 1), node)
    while not np.array_equal(further := substitute[substitute], substitute):
        substitute = further
    # 2. Pairs of reached children keep their order.
    has_both = is_split & reached & ~has_one
    pairs = np.sort(child[has_both])
    old = substitute[np.concatenate([[0], np.stack([pairs, pairs + 1], axis=1).ravel()])]
    first = np.searchsorted(pairs, np.maximum(child[old], 0))
    arrays = dict(forest.arrays)
    arrays["child"] = np.where(child[old] > 0, 2 * first + 1, child[old])
    arrays["node_weight"] = forest.node_weight[old]
    for name in ("threshold", "direction", "gain"):
        arrays[name] = getattr(forest, name)[(pairs - 1) // 2]
    arrays["tree_start"] = np.array([0, len(old)])
    return forest.replaced(arrays).compact()


def with_prior_ratio(forest, ratio):
    """The same trees with another `prior_ratio`, a list of float or None."""
    if forest.prior_ratio == ratio:
        return forest
    return forest.replaced(forest.arrays, prior_ratio=ratio)


def with_gate(forest, gate):
    """Return the same trees with other gates."""
    return forest if forest.gate == gate else forest.replaced(forest.arrays, gate=gate)


def with_votes(forest):
    """Return a forest in which each leaf votes for its most frequent class, with share 1.

    The first class wins a tie. With several outputs, a leaf has one vote for each output.
    """
    arrays = dict(forest.arrays)
    if forest.task == "classification":
        # The first value rows are the pure leaves, one for each class.
        length = np.diff(forest.value_start)
        row = np.repeat(np.arange(len(length)), length)
        by_share = np.lexsort((forest.value_index, -forest.value, row))
        winner = forest.value_index[by_share[forest.value_start[:-1]]]
        child = forest.child.copy()
        leaf = child < 0
        child[leaf] = -1 - winner[-1 - child[leaf]]
        arrays["child"] = child
        return forest.replaced(arrays).compact()
    value = forest.value.reshape(-1, forest.n_outputs)
    votes = np.zeros_like(value)
    for first, last in pairwise(np.cumsum([0, *forest.n_classes])):
        winner = first + value[:, first:last].argmax(axis=1)
        votes[np.arange(len(value)), winner] = 1
    arrays["value"] = votes.ravel()
    return forest.replaced(arrays)


# ------------------------------------------------------------------------------- several forests


def join(forests, consume=False):
    """Return the arrays of a forest with the trees of several forests, in order, as one bag.

    With `consume`, the arrays of the forests are freed in the meantime, and the forests cannot be
    used afterwards. ValueError if there are no forests, or if they are not of the same kind.
    """
    if not forests:
        raise ValueError("forests is empty; at least one Forest is needed")
    head = forests[0]
    for other in forests[1:]:
        _check_same_kind(head, other)
    nodes = np.concatenate([[0], *(np.diff(f.tree_start) for f in forests)])
    arrays = {
        "tree_start": np.cumsum(nodes),
        "direction": _joined_codes(forests),
        "child": _joined_children(forests),
        "baseline": head.baseline,
        "deviation": head.deviation,
        **{name: getattr(head, name) for name in OF_INPUTS},
        "bag_start": [0, len(nodes) - 1],
    }
    for name in ("node_weight", "gain", "threshold", *BOX_ARRAYS, *SPARSE_ARRAYS, "dense"):
        arrays[name] = np.concatenate([getattr(f, name) for f in forests])
        if consume:
            for f in forests:
                setattr(f, name, None)
    arrays["sparse_start"] = join_starts([f.sparse_start for f in forests])
    return arrays | _joined_values(forests) | _joined_slopes(forests)


def _joined_codes(forests):
    """Return the codes of the directions of all splits.

    The joined forest has all boxes first, then all sparse and all dense directions. The codes of
    each kind increase by the number of directions that now precede them.
    """
    ends = np.array([f.code_ends for f in forests])
    counts = np.diff(ends, axis=1)
    before = np.cumsum(counts, axis=0) - counts
    start = np.cumsum(np.concatenate([[forests[0].n_features], counts.sum(axis=0)]))[:-1]
    _check_index(start[-1] + counts[:, -1].sum())
    shifts = (start + before - ends[:, :-1]).astype(np.int32)
    codes = []
    for f, shift in zip(forests, shifts):
        kind = np.searchsorted(f.code_ends, f.direction, side="right")
        codes.append(f.direction + np.append(np.int32(0), shift)[kind])  # features do not move
    return np.concatenate(codes)


def _joined_children(forests):
    """Return the children of all nodes; leaves point to the joined value rows."""
    shared = forests[0].n_shared_values
    n_own = np.array([count_value_rows(f) for f in forests]) - shared
    n_before = np.cumsum(n_own) - n_own
    _check_index(n_before[-1] + n_own[-1] + shared)
    # Leaves with rows of their own have numbers below -n_shared_values.
    children = [f.child - np.int32(n) * (f.child < -shared) for f, n in zip(forests, n_before)]
    return np.concatenate(children)


def _check_index(n):
    """Raise ValueError if a number of codes or value rows does not fit into int32."""
    if n > MAX_INDEX:
        raise ValueError(f"the forests have more than {MAX_INDEX} directions or values together")


def _joined_values(forests):
    """Return the arrays of leaf values; shared rows are stored once."""
    head = forests[0]
    parts = [head.arrays, *(_without_shared(f) for f in forests[1:])]
    joined = {
        name: np.concatenate([part[name] for part in parts]) for name in ("value", "value_index")
    }
    if len(head.value_start):
        joined["value_start"] = join_starts([part["value_start"] for part in parts])
    return joined


def _joined_slopes(forests):
    """Return the arrays of the slopes of linear leaves; some forests may have none."""
    if not any(len(f.slope_start) for f in forests):
        return {}
    joined = {name: np.concatenate([getattr(f, name) for f in forests]) for name in SLOPE_ARRAYS}
    starts = [
        f.slope_start if len(f.slope_start) else np.zeros(count_value_rows(f) + 1, np.int64)
        for f in forests
    ]
    return joined | {"slope_start": join_starts(starts)}


def _without_shared(forest):
    """Return the value arrays without the leading rows that all forests of this kind share."""
    if not len(forest.value_start):
        cut = forest.n_shared_values * forest.n_outputs
        return {"value": forest.value[cut:], "value_index": forest.value_index}
    starts = forest.value_start[forest.n_shared_values :]
    return {
        "value": forest.value[starts[0] :],
        "value_index": forest.value_index[starts[0] :],
        "value_start": starts - starts[0],
    }


def calibrated(forest, calibration):
    """Add a `training.losses.calibration.Addition` to the raw predictions of a forest.

    Constants are added to the leaves of the first tree of each bag, not to the baseline, so that
    bags can still be joined. Leaves are constant if the calibration has a slope.
    """
    value = forest.value.reshape(-1, forest.n_outputs)
    unshifted = dataclasses.replace(calibration, shift=np.zeros(forest.n_outputs))
    value = (value + unshifted.added(value)).astype(np.float32)
    shift = calibration.added(forest.baseline)
    for first in forest.bag_start[:-1]:
        child = forest.child[forest.tree_start[first] : forest.tree_start[first + 1]]
        own = -1 - child[child < 0]
        value[own] = (value[own] + shift).astype(np.float32)
    return forest.replaced(forest.arrays | {"value": value.ravel()})


def join_starts(starts):
    """Return the starts of concatenated ragged rows from the starts of each part."""
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(s) for s in starts]))])


def _check_same_kind(head, other):
    """Raise ValueError if two forests cannot be joined."""
    for name in METADATA:
        if name in ("classes", "feature_names", "versions"):
            continue
        if getattr(head, name) != getattr(other, name):
            if name == "levels":  # there may be very many
                raise ValueError("forests differ in levels")
            raise ValueError(
                f"forests differ in {name}: {getattr(head, name)!r} and {getattr(other, name)!r}"
            )
    for name in ("classes", "baseline", "deviation", *OF_INPUTS):
        one, two = getattr(head, name), getattr(other, name)
        if one is not two and not np.array_equal(one, two):
            raise ValueError(f"forests differ in {name}")
    if bool(len(head.value_start)) != bool(len(other.value_start)):
        raise ValueError("forests differ in how they store leaf values")
