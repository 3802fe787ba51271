"""What training a whole hard tree at once needs.

The structure of a tree that was grown stays as it is while its hyperplanes move: take them out
(`unpack`), put new ones in (`repack`), count again what of the training rows arrives where
(`recount`), and drop the nodes that nothing reaches any more (`prune`). A forest here is one tree.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import xlogy

from .storage import without_unused

CRITERIA = ("gini", "entropy", "squared_error")
CACHED = 1 << 17  # entries of a table that are read again from the cache


def unpack(forest):
    """Weights and thresholds of all splits.

    Parameters
    ----------
    forest : Forest
        Of one tree.

    Returns
    -------
    W : ndarray of shape (n_splits, n_features), float32, C order
    threshold : ndarray of shape (n_splits,), float32
    """
    return np.ascontiguousarray(forest.directions().toarray()), forest.threshold.copy()


def most_sparse(n_features, weight_dtype="float32"):
    """The most weights that take fewer bytes as a sparse row than as a dense one.

    Parameters
    ----------
    n_features : int
    weight_dtype : {"float32", "float16"}, default="float32"

    Returns
    -------
    n_nonzero : int
    """
    # A sparse row has a start of 8 bytes, and a feature of 4 beside each weight.
    size = np.dtype(weight_dtype).itemsize
    return (size * n_features - 9) // (size + 4)


def repack(forest, W, threshold, changed):
    """The tree with other hyperplanes in some of its splits.

    Parameters
    ----------
    forest : Forest
        Of one tree.
    W : ndarray of shape (n_splits, n_features), float32
    threshold : ndarray of shape (n_splits,), float32
    changed : ndarray of shape (n_splits,), bool
        Splits that get their row of W and their threshold; the others stay as they are stored.

    Returns
    -------
    forest : Forest
        Without the directions that no split uses any more. A row is stored sparse where that is
        smaller (`most_sparse`), and as a feature where it is one with a positive weight; rounded
        where the weights of the forest have half precision.
    """
    split = np.flatnonzero(changed)
    return replace(forest, split, W[split], np.asarray(threshold)[split])


def replace(forest, split, rows, threshold):
    """As `repack`, given the hyperplanes of the chosen splits alone.

    Parameters
    ----------
    forest : Forest
        Of one tree.
    split : ndarray of shape (n_chosen,), int
    rows : ndarray of shape (n_chosen, n_features), float32
    threshold : ndarray of shape (n_chosen,), float32

    Returns
    -------
    forest : Forest
    """
    arrays = dict(forest.arrays)
    rows = np.asarray(rows, dtype=np.float32)
    cuts = np.array(threshold, dtype=np.float32)
    n_nonzero = np.count_nonzero(rows, axis=1)
    code = np.empty(len(split), dtype=np.int32)
    # 1. single features: x w > t is x > cut; where margins count, planes keep their lengths
    hard = forest.gate == "hard"
    single = (n_nonzero == 1) & hard
    feature = np.abs(rows).argmax(axis=1) if len(rows) else np.zeros(0, dtype=np.int64)
    for k in np.flatnonzero(single):
        cut = _divided(cuts[k], rows[k, feature[k]])
        single[k] = cut is not None
        if single[k]:
            cuts[k], code[k] = cut, feature[k]
    # 2. short rows behind the sparse directions, long ones behind the dense
    if forest.weight_dtype == "float16":
        rows, cuts = _halved(rows, cuts, ~single, hard)
        n_nonzero = np.count_nonzero(rows, axis=1)
    short = (n_nonzero <= most_sparse(forest.n_features, forest.weight_dtype)) & ~single
    long = ~short & ~single
    _, _, sparse_end, dense_end = forest.code_ends
    n_short = np.count_nonzero(short)
    code[short] = sparse_end + np.arange(n_short)
    code[long] = dense_end + n_short + np.arange(np.count_nonzero(long))
    _, feature = np.nonzero(rows[short])
    ends = arrays["sparse_start"][-1] + np.cumsum(n_nonzero[short])
    arrays["sparse_start"] = np.concatenate([arrays["sparse_start"], ends])
    arrays["sparse_feature"] = np.concatenate([arrays["sparse_feature"], feature])
    weight = rows[short]
    arrays["sparse_weight"] = np.concatenate([arrays["sparse_weight"], weight[weight != 0]])
    arrays["dense"] = np.concatenate([arrays["dense"], rows[long]])
    # 3. the codes of dense directions move up behind the new sparse ones
    direction = forest.direction + np.int32(n_short) * (forest.direction >= sparse_end)
    direction[split] = code
    arrays["direction"] = direction
    arrays["threshold"] = forest.threshold.copy()
    arrays["threshold"][split] = cuts
    return forest.replaced(without_unused(forest.replaced(arrays)))


def _halved(rows, cuts, chosen, free):
    """Hyperplanes with the weights of some of them rounded to half precision; `free`: whose length
    has no meaning. Lengths beyond half precision are cut down in any case: so steep is hard."""
    rows, cuts = rows.copy(), cuts.copy()
    largest = np.abs(rows[chosen]).max(axis=1, initial=0)
    # Far from 1, the length is changed by a power of two.
    exponent = np.frexp(largest)[1]
    exponent[((largest > 2.0**-4) | (not free)) & (largest < 2.0**15)] = 0
    rows[chosen] = np.ldexp(rows[chosen], -exponent[:, None]).astype(np.float16)
    cuts[chosen] = np.ldexp(cuts[chosen], -exponent)
    return rows, cuts


def _divided(threshold, weight):
    """The cut for which, in float32, ``x * weight > threshold`` is ``x > cut`` for every x.

    None where there is none: weights that are not positive, quotients beyond float32.
    """
    if not weight > 0:
        return None
    with np.errstate(over="ignore", under="ignore"):
        # Products rise with x: the cut is the largest x that does not pass.
        cut = np.float32(np.float64(threshold) / np.float64(weight))
        while np.isfinite(cut) and cut * weight > threshold:
            cut = np.nextafter(cut, np.float32(-np.inf))
        for _ in range(4):
            above = np.nextafter(cut, np.float32(np.inf))
            if not np.isfinite(above) or above * weight > threshold:
                break
            cut = above
        else:
            return None  # products so small that many x share one
    return cut if np.isfinite(cut) else None


def route(forest, table):
    """Leaf of every row.

    Parameters
    ----------
    forest : Forest
        Of one tree.
    table : ndarray of shape (n_rows, n_features), uint8 or float32
        Scaled as the tree wants it.

    Returns
    -------
    leaf : ndarray of shape (n_rows,), int32
    """
    size = max(64, CACHED // table.shape[1])  # few rows at once stay in the cache on their way
    parts = [forest.router.apply(table[i : i + size]) for i in range(0, max(len(table), 1), size)]
    return np.concatenate(parts)[:, 0]


def recount(forest, table, target, weight, *, criterion, scale=1.0, leaf=None):
    """The tree with the weights, gains and leaf values of rows as it routes them now.

    Parameters
    ----------
    forest : Forest
        Of one tree, hard; in classification as an estimator made it, with the pure values first.
    table : ndarray of shape (n_rows, n_features), uint8 or float32
        Scaled as the tree wants it.
    target : ndarray of shape (n_rows,), int32, or of shape (n_rows, n_outputs), float64
        Class numbers; or deviations from the baseline, divided by `scale`.
    weight : ndarray of shape (n_rows,), float64
        Not negative; rows of weight 0 count for nothing.
    criterion : {"gini", "entropy", "squared_error"}
        Unit of the gains: those of `NodeSplitter`.
    scale : float, default=1.0
        What deviations were divided by, a power of two.
    leaf : ndarray of shape (n_rows,), int32, default=None
        What `route` says of the rows, where it is known.

    Returns
    -------
    forest : Forest
        Leaves that no row reaches keep their values.
    """
    if criterion not in CRITERIA:
        raise ValueError(f"criterion={criterion!r} is none of {CRITERIA}")
    chosen = np.flatnonzero(weight)
    # As in growing: a power of two in the weights changes no bit of the gains.
    unit = np.ldexp(1.0, np.frexp(weight[chosen].sum())[1])
    weight = weight[chosen] / unit
    if leaf is None:
        leaf = route(forest, table if len(chosen) == len(table) else table[chosen])
    else:
        leaf = leaf[chosen]
    leaf = leaf.astype(np.int64)
    target = target[chosen]
    arrays = dict(forest.arrays)
    by_depth = levels(forest.child)
    if target.ndim == 1:
        depth = np.empty(forest.n_nodes, dtype=np.int64)
        for level, nodes in enumerate(by_depth):
            depth[nodes] = level
        sums = _Classes(leaf, target, weight, forest.n_outputs, depth)
    else:
        sums = _Outputs(leaf, target, weight, forest.n_nodes)
    weights, gain = _climb(forest, by_depth, leaf, weight, sums, criterion == "entropy")
    arrays["node_weight"] = weights * unit
    arrays["gain"] = (gain * unit).astype(np.float32)
    arrays |= sums.values(forest, weights, np.float32(scale))
    return forest.replaced(without_unused(forest.replaced(arrays)))


class _Classes:
    """Weight of the classes of nodes, as entries (node, class), one level at a time."""

    def __init__(self, leaf, label, weight, n_classes, depth):
        self.n_classes = n_classes
        key, sum_ = _merged(leaf * n_classes + label, weight)
        node = key // n_classes
        self.leaves = node, key - node * n_classes, sum_
        by_depth = np.argsort(depth[node], kind="stable")
        self.waiting = [each[by_depth] for each in self.leaves]
        self.first = np.searchsorted(depth[node[by_depth]], np.arange(depth.max() + 2))
        self.node = self.label = np.zeros(0, dtype=np.int64)
        self.sum = np.zeros(0)
        self.place = np.empty(len(depth), dtype=np.int64)

    def score(self, level, nodes, total, entropy):
        """Scores of the nodes of a level, as `NodeSplitter.side` counts them."""
        own = slice(self.first[level], self.first[level + 1])
        self.node, self.label, self.sum = (
            np.concatenate([risen, leaves[own]])
            for risen, leaves in zip((self.node, self.label, self.sum), self.waiting)
        )
        self.place[nodes] = np.arange(len(nodes))
        at = self.place[self.node]
        if entropy:
            return np.bincount(at, xlogy(self.sum, self.sum), len(nodes)) - xlogy(total, total)
        return _over(np.bincount(at, np.square(self.sum), len(nodes)), total)

    def rise(self, nodes, parent):
        """Go up a level: nodes become their parents."""
        key, self.sum = _merged(parent[self.node] * self.n_classes + self.label, self.sum)
        self.node = key // self.n_classes
        self.label = key - self.node * self.n_classes

    def values(self, forest, weights, _):
        """Shares of the classes, pure leaves by the shared rows."""
        node, label, sum_ = self.leaves
        n_entries = np.bincount(node, minlength=forest.n_nodes)
        leaf = np.flatnonzero((forest.child < 0) & (n_entries != 1))
        pure = np.flatnonzero(n_entries == 1)
        child = forest.child.copy()
        child[node[n_entries[node] == 1]] = -1 - label[n_entries[node] == 1]
        shared = forest.n_shared_values
        child[leaf] = -1 - shared - np.arange(len(leaf))
        # Rows of mixed leaves, and those of leaves that are not reached as they were.
        old = -1 - forest.child[leaf].astype(np.int64)
        length = np.where(n_entries[leaf] > 0, n_entries[leaf], np.diff(forest.value_start)[old])
        starts = forest.value_start[shared] + np.concatenate([[0], np.cumsum(length)])
        value = np.empty(starts[-1], dtype=np.float32)
        index = np.empty(starts[-1], dtype=np.int32)
        value[: starts[0]] = forest.value[: starts[0]]
        index[: starts[0]] = forest.value_index[: starts[0]]
        mixed = ~np.isin(node, pure)
        at = np.repeat(n_entries[leaf] > 0, length)
        value[starts[0] :][at] = sum_[mixed] / weights[node[mixed]]
        index[starts[0] :][at] = label[mixed]
        kept = np.repeat(forest.value_start[old] - (starts[:-1] - starts[0]), length)[~at]
        kept += np.flatnonzero(~at)
        value[starts[0] :][~at] = forest.value[kept]
        index[starts[0] :][~at] = forest.value_index[kept]
        starts = np.concatenate([forest.value_start[:shared], starts])
        return {"child": child, "value": value, "value_index": index, "value_start": starts}


class _Outputs:
    """Sums of the outputs of nodes, one level of the tree at a time."""

    def __init__(self, leaf, target, weight, n_nodes):
        columns = [np.bincount(leaf, weight * y, n_nodes) for y in target.T]
        self.sum = np.stack(columns, axis=1)

    def score(self, _, nodes, total, entropy):
        return _over(np.square(self.sum[nodes]).sum(axis=1), total)

    def rise(self, nodes, parent):
        left = nodes[::2]  # siblings stand side by side
        self.sum[parent[left]] = self.sum[left] + self.sum[left + 1]

    def values(self, forest, weights, scale):
        """Means of the outputs, one row a leaf."""
        n_outputs = forest.n_outputs
        shared = forest.value[: forest.n_shared_values * n_outputs]
        leaf = np.flatnonzero(forest.child < 0)
        child = forest.child.copy()
        child[leaf] = -1 - forest.n_shared_values - np.arange(len(leaf))
        value = forest.value.reshape(-1, n_outputs)[-1 - forest.child[leaf]]
        reached = weights[leaf] > 0
        mean = self.sum[leaf[reached]] / weights[leaf[reached], None]
        value[reached] = mean.astype(np.float32) * scale
        return {"child": child, "value": np.concatenate([shared, value.ravel()])}


def _over(score, total):
    """Quotients, and 0 where the total is."""
    return np.divide(score, total, out=np.zeros(len(score)), where=total > 0)


def _merged(key, sum_):
    """Sorted distinct keys, and the sum of each."""
    key, inverse = np.unique(key, return_inverse=True)
    return key, np.bincount(inverse, sum_, len(key))


def levels(child):
    """Nodes of a tree by depth.

    Parameters
    ----------
    child : ndarray of shape (n_nodes,), int32

    Returns
    -------
    levels : list of ndarray of int64
        Those of depth 0, 1, ...; left and right children side by side.
    """
    level = [np.zeros(1, dtype=np.int64)]
    while True:
        left = child[level[-1]].astype(np.int64)
        left = left[left > 0]
        if not len(left):
            return level
        level.append(np.stack([left, left + 1], axis=1).ravel())


def _climb(forest, by_depth, leaf, weight, sums, entropy):
    """Weights of all nodes and gains of all splits, from the deepest level up."""
    parent = forest.parents()
    total = np.bincount(leaf, weight, forest.n_nodes)
    score = np.empty(forest.n_nodes)
    for level in range(len(by_depth) - 1, -1, -1):
        nodes = by_depth[level]
        score[nodes] = sums.score(level, nodes, total[nodes], entropy)
        if level:
            left = nodes[::2]  # siblings stand side by side
            total[parent[left]] = total[left] + total[left + 1]
            sums.rise(nodes, parent)
    split = np.flatnonzero(forest.child > 0)
    left = forest.child[split]
    gain = np.empty(len(split))
    gain[(left - 1) // 2] = score[left] + score[left + 1] - score[split]
    return total, np.maximum(gain / (np.log(2) if entropy else 1), 0)


def settle(forest, table, target, weight, *, criterion, scale=1.0):
    """The tree with its rows counted again, and without the nodes that none of them reaches.

    Parameters
    ----------
    forest, table, target, weight, criterion, scale
        As in `recount`.

    Returns
    -------
    forest : Forest
    """
    forest = recount(forest, table, target, weight, criterion=criterion, scale=scale)
    return prune(forest, reached_nodes(forest, route(forest, table)[weight > 0]))


def shrink(forest, table, target, weight, *, criterion, scale=1.0):
    """The tree with weights of half precision, settled on its rows as they go then.

    Parameters
    ----------
    forest, table, target, weight, criterion, scale
        As in `recount`.

    Returns
    -------
    forest : Forest
    """
    split = np.flatnonzero(forest.direction >= forest.n_features)
    rows, threshold = unpack(forest)
    names = ("sparse_weight", "dense")
    none = {name: np.zeros_like(forest.arrays[name], np.float16) for name in names}
    small = forest.replaced(forest.arrays | none, weight_dtype="float16")
    small = replace(small, split, rows[split], threshold[split])
    return settle(small, table, target, weight, criterion=criterion, scale=scale)


def prune(forest, reached):
    """The tree without the nodes that nothing reaches.

    Parameters
    ----------
    forest : Forest
        Of one tree.
    reached : ndarray of shape (n_nodes,), bool
        With a node that is reached, its parent and, if it splits, one of its children are too.

    Returns
    -------
    forest : Forest
        A split with one child that is not reached has become its other child. Rows that reach
        only reached nodes find the same leaf values.
    """
    reached = np.asarray(reached, dtype=bool)
    child = forest.child.astype(np.int64)
    node = np.arange(forest.n_nodes)
    # 1. what stands for each node: the first below it that is a leaf or has two reached children
    splits = child > 0
    left = np.where(splits, child, 0)
    one = splits & (reached[left] != reached[np.where(splits, child + 1, 0)])
    stand_in = np.where(one, np.where(reached[left], left, left + 1), node)
    while (further := stand_in[stand_in]).tolist() != stand_in.tolist():
        stand_in = further
    # 2. pairs with both nodes reached, whose parent is kept, stay in their order
    both = splits & reached & ~one
    pairs = np.sort(child[both])
    old = stand_in[np.concatenate([[0], np.stack([pairs, pairs + 1], axis=1).ravel()])]
    first = np.searchsorted(pairs, np.maximum(child[old], 0))
    arrays = dict(forest.arrays)
    arrays["child"] = np.where(child[old] > 0, 2 * first + 1, child[old])
    arrays["node_weight"] = forest.node_weight[old]
    for name in ("threshold", "direction", "gain"):
        arrays[name] = getattr(forest, name)[(pairs - 1) // 2]
    arrays["tree_start"] = np.array([0, len(old)])
    return forest.replaced(without_unused(forest.replaced(arrays)))


def reached_nodes(forest, leaf):
    """Nodes that rows pass.

    Parameters
    ----------
    forest : Forest
        Of one tree.
    leaf : ndarray of shape (n_rows,), int
        Leaf of every row.

    Returns
    -------
    reached : ndarray of shape (n_nodes,), bool
    """
    reached = np.zeros(forest.n_nodes, dtype=bool)
    reached[leaf] = True
    parent = forest.parents()
    for nodes in levels(forest.child)[:0:-1]:
        left = nodes[::2]
        reached[parent[left]] = reached[left] | reached[left + 1]
    return reached


def leaf_answers(forest, scale):
    """What every leaf of a tree answers: its class of largest share, or its value over `scale`.

    Parameters
    ----------
    forest : Forest
        Of one tree.
    scale : float

    Returns
    -------
    answer : ndarray of shape (n_nodes,), int32, or (n_nodes, n_outputs), float64
    """
    leaf = forest.child < 0
    row = -1 - forest.child[leaf].astype(np.int64)
    if forest.task == "classification":
        starts = forest.value_start
        owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        order = np.lexsort((forest.value_index, -forest.value, owner))
        answer = np.zeros(forest.n_nodes, dtype=np.int32)
        answer[leaf] = forest.value_index[order[starts[row]]]
        return answer
    answer = np.zeros((forest.n_nodes, forest.n_outputs))
    answer[leaf] = forest.value.reshape(-1, forest.n_outputs)[row].astype(np.float64) / scale
    return answer


def tree_loss(forest, leaf, target, weight, scale=1.0):
    """Weighted share of wrong labels, or weighted mean squared error, of one tree.

    Parameters
    ----------
    forest : Forest
        Of one tree.
    leaf : ndarray of shape (n_rows,), int32
        Leaf of every row.
    target : ndarray of shape (n_rows,), int32, or (n_rows, n_outputs), float64
        Class numbers; or deviations from the baseline, divided by `scale`.
    weight : ndarray of shape (n_rows,), float64
    scale : float, default=1.0

    Returns
    -------
    loss : float
        Sums are rounded once, so that no rise is an artefact of their order.
    """
    answer = leaf_answers(forest, scale)[leaf]
    if target.ndim == 1:
        loss = math.fsum(weight[answer != target])
    else:
        each = np.square(target - answer).sum(axis=1) * (scale**2 / target.shape[1])
        loss = math.fsum(weight * each)
    return loss / math.fsum(weight)
