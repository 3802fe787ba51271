"""Statistics of training rows in one tree: node weights, gains, leaf values and losses.

When the splits of a whole tree are trained, rows move to other nodes. `recount` then computes the
statistics that growing would have stored for this structure. Each forest has one tree here, except
in the second part of the file.
"""

import math
from itertools import zip_longest

import numpy as np
from scipy import sparse
from scipy.special import xlogy

from .._kernels.boosting.linear_leaf import add_linear
from ..table.matrix import dense, dense_blocks
from .storage import LINKS

FEW_ROWS = 256  # rows predicted at once where there may be many classes
BLOCK_SIZE = 1 << 17  # entries of Z routed at once, so that they stay in the cache
SHARE_UNITS = 2**24  # shares from one half to 1 are multiples of 1 / SHARE_UNITS in float32
STAGES = 32  # trees of a bag routed at once


def levels(child, root=0):
    """Return the nodes of a (sub)tree by depth: list of int64 arrays with siblings adjacent."""
    level = [np.full(1, root, dtype=np.int64)]
    while True:
        left = child[level[-1]].astype(np.int64)
        left = left[left > 0]
        if not len(left):
            return level
        level.append(np.stack([left, left + 1], axis=1).ravel())


def route(forest, Z):
    """Return the leaf of every row in one tree, int32; `Forest.map_features` returns Z."""
    size = max(64, BLOCK_SIZE // Z.shape[1])
    parts = [forest.apply_mapped(Z[i : i + size]) for i in range(0, max(len(Z), 1), size)]
    return np.concatenate(parts)[:, 0]


def reached_nodes(forest, leaf):
    """Return a mask of the nodes that rows pass, from the leaf of every row."""
    reached = np.zeros(forest.n_nodes, dtype=bool)
    reached[leaf] = True
    parent = forest.parents()
    for nodes in levels(forest.child)[:0:-1]:
        left = nodes[::2]
        reached[parent[left]] = reached[left] | reached[left + 1]
    return reached


def recount(forest, data, criterion, leaf=None):
    """Compute node weights, gains and leaf values of a tree from the rows of a TrainingSet.

    The tree has hard gates, and in classification one shared value row per class. Rows of weight 0
    have no influence, and leaves that no row reaches keep their values. Gains are decreases of
    `criterion`, as in `NodeSplitter`. `leaf` is the result of `route`, if it is known.
    """
    if criterion not in SCORES:
        raise ValueError(f"criterion={criterion!r} is none of {tuple(SCORES)}")
    used = np.flatnonzero(data.weight)
    # As in growing, weights are divided by a power of two, which changes no bit of the gains.
    unit = np.ldexp(1.0, np.frexp(data.weight[used].sum())[1])
    weight, target = data.weight[used] / unit, data.target[used]
    if leaf is None:
        leaf = route(forest, data.X if len(used) == len(data) else data.X[used])
    else:
        leaf = leaf[used]
    leaf = leaf.astype(np.int64)
    by_depth = levels(forest.child)
    if target.ndim == 1:
        sums = _ClassSums(leaf, target, weight, forest.n_outputs, by_depth, forest.n_nodes)
    else:
        sums = _OutputSums(leaf, target, weight, forest.n_nodes)
    node_weight, gain = _node_statistics(forest, by_depth, leaf, weight, sums, criterion)
    arrays = dict(forest.arrays)
    arrays["node_weight"] = node_weight * unit
    arrays["gain"] = (gain * unit).astype(np.float32)
    arrays |= sums.leaf_values(forest, node_weight, np.float32(data.target_scale))
    if forest.task == "regression":
        arrays["value"] = within_targets(arrays["value"], data)
    return forest.replaced(arrays).compact()


def _node_statistics(forest, by_depth, leaf, weight, sums, criterion):
    """Return weights of all nodes and gains of all splits, from the deepest level upwards."""
    parent = forest.parents()
    total = np.bincount(leaf, weight, forest.n_nodes)
    score = np.empty(forest.n_nodes)
    for level in range(len(by_depth) - 1, -1, -1):
        nodes = by_depth[level]
        score[nodes] = sums.score(level, nodes, total[nodes], criterion)
        if level:
            left = nodes[::2]  # siblings are neighbours
            total[parent[left]] = total[left] + total[left + 1]
            sums.move_to_parents(nodes, parent)
    split = np.flatnonzero(forest.child > 0)
    left = forest.child[split]
    gain = np.empty(len(split))
    gain[(left - 1) // 2] = score[left] + score[left + 1] - score[split]
    _, _, unit = SCORES[criterion]
    return total, np.maximum(gain / unit, 0)


class _ClassSums:
    """Weights of the classes in the nodes of one level, as entries (node, class).

    Classes that do not occur in a node have no entry: with many classes, a matrix of nodes times
    classes would be too large.
    """

    def __init__(self, leaf, label, weight, n_classes, by_depth, n_nodes):
        depth = np.empty(n_nodes, dtype=np.int64)
        for level, nodes in enumerate(by_depth):
            depth[nodes] = level
        self.n_classes = n_classes
        key, sum_ = _sum_by_key(leaf * n_classes + label, weight)
        node = key // n_classes
        self.leaves = node, key - node * n_classes, sum_
        order = np.argsort(depth[node], kind="stable")
        self.leaves_by_depth = [entries[order] for entries in self.leaves]
        self.first = np.searchsorted(depth[node[order]], np.arange(depth.max() + 2))
        self.node = self.label = np.zeros(0, dtype=np.int64)
        self.sum = np.zeros(0)
        self.position = np.empty(n_nodes, dtype=np.int64)

    def score(self, level, nodes, total, criterion):
        """Add the leaves of a level, and score its nodes as `NodeSplitter.side_score` does."""
        own = slice(self.first[level], self.first[level + 1])
        self.node, self.label, self.sum = (
            np.concatenate([below, leaves[own]])
            for below, leaves in zip((self.node, self.label, self.sum), self.leaves_by_depth)
        )
        self.position[nodes] = np.arange(len(nodes))
        at = self.position[self.node]
        term, finish, _ = SCORES[criterion]
        return finish(np.bincount(at, term(self.sum), len(nodes)), total)

    def move_to_parents(self, nodes, parent):
        """Add the entries of the nodes to their parents, one level up."""
        key, self.sum = _sum_by_key(parent[self.node] * self.n_classes + self.label, self.sum)
        self.node = key // self.n_classes
        self.label = key - self.node * self.n_classes

    def leaf_values(self, forest, node_weight, _):
        """Return arrays with the shares of the classes; pure leaves point to the shared rows."""
        node, label, sum_ = self.leaves
        n_entries = np.bincount(node, minlength=forest.n_nodes)
        leaf = np.flatnonzero((forest.child < 0) & (n_entries != 1))
        is_pure = n_entries[node] == 1
        child = forest.child.copy()
        child[node[is_pure]] = -1 - label[is_pure]
        shared = forest.n_shared_values
        child[leaf] = -1 - shared - np.arange(len(leaf))
        # Leaves that no row reaches keep their old rows; mixed leaves get new ones.
        old = -1 - forest.child[leaf].astype(np.int64)
        length = np.where(n_entries[leaf] > 0, n_entries[leaf], np.diff(forest.value_start)[old])
        starts = forest.value_start[shared] + np.concatenate([[0], np.cumsum(length)])
        value = np.empty(starts[-1], dtype=np.float32)
        index = np.empty(starts[-1], dtype=np.int32)
        value[: starts[0]] = forest.value[: starts[0]]
        index[: starts[0]] = forest.value_index[: starts[0]]
        is_new = np.repeat(n_entries[leaf] > 0, length)
        value[starts[0] :][is_new] = sum_[~is_pure] / node_weight[node[~is_pure]]
        index[starts[0] :][is_new] = label[~is_pure]
        kept = np.repeat(forest.value_start[old] - (starts[:-1] - starts[0]), length)[~is_new]
        kept += np.flatnonzero(~is_new)
        value[starts[0] :][~is_new] = forest.value[kept]
        index[starts[0] :][~is_new] = forest.value_index[kept]
        starts = np.concatenate([forest.value_start[:shared], starts])
        value = exact_shares(value, starts)
        return {"child": child, "value": value, "value_index": index, "value_start": starts}


class _OutputSums:
    """Weighted sums of the outputs in all nodes, filled one level at a time."""

    def __init__(self, leaf, target, weight, n_nodes):
        columns = [np.bincount(leaf, weight * y, n_nodes) for y in target.T]
        self.sum = np.stack(columns, axis=1)

    def score(self, _, nodes, total, criterion):
        term, finish, _ = SCORES[criterion]
        return finish(term(self.sum[nodes]).sum(axis=1), total)

    def move_to_parents(self, nodes, parent):
        left = nodes[::2]
        self.sum[parent[left]] = self.sum[left] + self.sum[left + 1]

    def leaf_values(self, forest, node_weight, scale):
        """Return arrays with the means of the outputs, one row per leaf."""
        n_outputs = forest.n_outputs
        shared = forest.value[: forest.n_shared_values * n_outputs]
        leaf = np.flatnonzero(forest.child < 0)
        child = forest.child.copy()
        child[leaf] = -1 - forest.n_shared_values - np.arange(len(leaf))
        value = forest.value.reshape(-1, n_outputs)[-1 - forest.child[leaf]]
        reached = node_weight[leaf] > 0
        mean = self.sum[leaf[reached]] / node_weight[leaf[reached], None]
        value[reached] = mean.astype(np.float32) * scale
        return {"child": child, "value": np.concatenate([shared, value.ravel()])}


def exact_shares(value, start):
    """Round shares of classes to float32 such that they add up to exactly 1 in each leaf.

    Otherwise, sums would differ from 1 by more than scikit-learn's metrics allow. Each share
    becomes a whole number of units, at least one. The largest share of a leaf takes the remainder,
    so that the first of equal shares stays the largest. `value` and `start` are `value` and
    `value_start` of a classification forest.
    """
    length, first = np.diff(start), start[:-1]
    leaf = np.repeat(np.arange(len(length)), length)
    units = np.maximum(np.rint(value.astype(np.float64) * SHARE_UNITS), value > 0)
    largest = np.flatnonzero(value == np.maximum.reduceat(value, first)[leaf])
    is_first = np.diff(leaf[largest], prepend=-1) > 0
    is_last = np.append(is_first[1:], True)
    rest = SHARE_UNITS - np.add.reduceat(units, first)
    units[np.where(rest > 0, largest[is_first], largest[is_last])] += rest
    return (units / SHARE_UNITS).astype(np.float32)


def within_targets(value, data):
    """Clip float32 leaf values such that no prediction leaves the range of the targets.

    The limits are rounded such that limit plus baseline is in the range. Means over trees then
    stay in the range, too: a sum of equal float32 numbers is exact in float64, and sums of larger
    numbers are not smaller.
    """
    y, baseline = data.y[data.weight > 0], data.baseline
    least, largest = y.min(axis=0), y.max(axis=0)
    low, high = (least - baseline).astype(np.float32), (largest - baseline).astype(np.float32)
    low = np.where(low + baseline < least, np.nextafter(low, np.float32(np.inf)), low)
    high = np.where(high + baseline > largest, np.nextafter(high, np.float32(-np.inf)), high)
    return np.clip(value.reshape(-1, y.shape[1]), low, high).reshape(value.shape)


def _divide(score, total):
    """Divide; 0 where the total is 0."""
    return np.divide(score, total, out=np.zeros(len(score)), where=total > 0)


# For each criterion, as in `NodeSplitter.side_score`: the term that is added over the sums of a
# node, the score from the result and the weight of the node, and the unit of gains.
SQUARES = np.square, _divide, 1.0
SCORES = {
    "gini": SQUARES,
    "squared_error": SQUARES,
    "entropy": (
        lambda sums: xlogy(sums, sums),
        lambda score, total: score - xlogy(total, total),
        np.log(2),
    ),
}


def _sum_by_key(key, values):
    """Return the distinct keys, sorted, and the sum of the values for each."""
    key, inverse = np.unique(key, return_inverse=True)
    return key, np.bincount(inverse, values, len(key))


def leaf_predictions(forest, scale):
    """Return the most frequent class of every leaf of a tree, or its value divided by `scale`.

    int32 of shape (n_nodes,), or float64 of shape (n_nodes, n_outputs); 0 for splits.
    """
    leaf = forest.child < 0
    row = -1 - forest.child[leaf].astype(np.int64)
    if forest.task == "classification":
        starts = forest.value_start
        value_row = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        # Sort the values of each row from large to small, ties by class.
        order = np.lexsort((forest.value_index, -forest.value, value_row))
        prediction = np.zeros(forest.n_nodes, dtype=np.int32)
        prediction[leaf] = forest.value_index[order[starts[row]]]
        return prediction
    prediction = np.zeros((forest.n_nodes, forest.n_outputs))
    values = forest.value.reshape(-1, forest.n_outputs)
    prediction[leaf] = values[row].astype(np.float64) / scale
    return prediction


def tree_loss(forest, leaf, data):
    """Return the weighted fraction of wrong labels, or weighted mean squared error, of one tree.

    `leaf` has the leaf of every row of a TrainingSet. Sums are exact, so the order of the rows
    cannot make the loss rise.
    """
    scale, target = data.target_scale, data.target
    prediction = leaf_predictions(forest, scale)[leaf]
    if data.is_classification:
        loss = prediction != target
    else:
        loss = np.square(target - prediction).sum(axis=1) * (scale**2 / target.shape[1])
    return math.fsum(data.weight * loss) / math.fsum(data.weight)


def squared_error(forest, data):
    """Return the weighted sum of squared errors on a TrainingSet, with one-hot classes."""
    return float(squared_errors(forest, data).sum())


def squared_errors(forest, data):
    """Return the weighted squared error of every row of a TrainingSet: (n_rows,), float64."""
    errors = np.zeros(len(data))
    for first in range(0, len(data), FEW_ROWS):
        block = slice(first, first + FEW_ROWS)
        response = forest.response_mapped(dense(data.X[block]))
        truth = data.y[block]
        if forest.task == "classification":
            truth = np.arange(response.shape[1]) == truth
        elif forest.n_classes is not None or truth.shape[1] < response.shape[1]:
            # Several outputs with labels: the target has their indicators.
            truth = data.baseline + data.target[block] * data.target_scale
        errors[block] = data.weight[block] * ((response - truth) ** 2).sum(axis=1)
    return errors


# -------------------------------------------------------------------------- several trees


def max_depth(forest):
    """Return the depth of the deepest leaf of each tree: int64 of shape (n_trees,)."""
    n_trees = len(forest)
    depth = np.zeros(n_trees, dtype=np.int64)
    node, tree, level = forest.tree_start[:-1], np.arange(n_trees), 0
    while True:
        child = forest.child[node]
        is_split = child > 0
        if not is_split.any():
            return depth
        left = forest.tree_start[tree[is_split]] + child[is_split]
        node = np.concatenate([left, left + 1])
        tree = np.concatenate([tree[is_split], tree[is_split]])
        level += 1
        depth[tree] = level


def decision_path(forest, leaves):
    """Implement `Forest.decision_path`, given the leaves that rows reach."""
    if not leaves.size:
        shape = (len(leaves), forest.n_nodes)
        return sparse.csr_matrix(shape, dtype=np.int64), forest.tree_start.copy()
    parent = forest.parents()
    node = (leaves + forest.tree_start[:-1]).ravel()
    row = np.repeat(np.arange(len(leaves)), len(forest))
    rows, nodes = [], []
    # Walk up from the leaves, in all rows and trees at once.
    while len(node):
        rows.append(row)
        nodes.append(node)
        up = parent[node]
        row, node = row[up >= 0], up[up >= 0]
    rows, nodes = np.concatenate(rows), np.concatenate(nodes)
    indicator = sparse.csr_matrix(
        (np.ones(len(rows), dtype=np.int64), (rows, nodes)), shape=(len(leaves), forest.n_nodes)
    )
    return indicator, forest.tree_start.copy()


def responses(forest, X):
    """Return the responses of mapped rows, which may be sparse, block by block."""
    return np.concatenate([forest.response_mapped(block) for block in dense_blocks(X)])


def staged_responses(forest, Z):
    """Yield the responses of the first tree of each bag, of the first two trees, and so on.

    The trees must be summed. A bag that has no more trees keeps its last response.
    """
    n_bags, n_outputs = len(forest.bag_start) - 1, forest.n_outputs
    value = forest.value.reshape(-1, n_outputs)
    slopes = forest.slope_start, forest.slope_feature, forest.slope
    raw = np.zeros((n_bags, len(Z), n_outputs))
    for of_bags in _staged_value_rows(forest, Z):
        for bag, row in enumerate(of_bags):
            if row is None:
                continue
            raw[bag] += value[row]
            if len(forest.slope_start):
                add_linear(np.asarray(Z, np.float32), row, *slopes, raw[bag])
        mean = sum(LINKS[forest.link](of_bag + forest.baseline) for of_bag in raw) / n_bags
        yield with_prior(mean, forest.prior_ratio, forest.n_classes or [n_outputs])


def _staged_value_rows(forest, Z):
    """Yield, for each round, the value rows that samples reach in one tree of each bag.

    They are tuples of arrays, with None for a bag that has no more trees.
    """
    for first in range(0, int(np.diff(forest.bag_start).max()), STAGES):
        of_bags = []
        for start, end in zip(forest.bag_start[:-1] + first, forest.bag_start[1:]):
            trees = forest[min(start, end) : min(start + STAGES, end)]
            rows = []
            if len(trees):
                leaves = trees.apply_mapped(Z) + trees.tree_start[:-1]
                rows = np.ascontiguousarray(-1 - trees.child[leaves].T)
            of_bags.append(rows)
        yield from zip_longest(*of_bags)


def feature_importances(forest, importance_type):
    """Implement `Forest.feature_importances`."""
    total = np.zeros(forest.n_features)
    first_split = (forest.tree_start - np.arange(len(forest) + 1)) // 2
    for root, first, last in zip(forest.tree_start, first_split[:-1], first_split[1:]):
        if first == last:
            if importance_type != "count" and len(forest.slope_start) and len(forest.deviation):
                total += _linear_importances(forest, -1 - forest.child[root])
            continue
        codes = forest.direction[first:last]
        weights = abs(forest.directions(codes))
        if len(forest.deviation):
            # Weights of sparse and dense directions are in units of 1 / deviation.
            is_mixture = np.repeat(codes >= forest.code_ends[1], np.diff(weights.indptr))
            weights.data[is_mixture] *= forest.deviation[weights.indices[is_mixture]]
            weights.eliminate_zeros()  # of constant features
        if importance_type == "count":
            total += weights.getnnz(axis=0)
        else:
            tree = weights.T @ forest.gain[first:last].astype(np.float64)
            # Summed trees keep their totals: later trees correct less, so their gains are smaller.
            total += tree if forest.aggregate == "sum" else tree / (tree.sum() or 1)
    total[forest.feature_map.is_constant] = 0  # boxes may contain constant features
    return total / (total.sum() or 1)


def _linear_importances(forest, row):
    """Return the variances of the terms of a linear leaf, summed over outputs, with sum 1."""
    entries = slice(*forest.slope_start[row : row + 2])
    feature = forest.slope_feature[entries]
    term = forest.slope[entries].astype(np.float64) * forest.deviation[feature, None]
    found = np.bincount(feature, np.square(term).sum(axis=1), forest.n_features)
    return found / (found.sum() or 1)


def probabilities(response, n_classes):
    """Return a list with the class probabilities of each output, from the response.

    Responses may be outside [0, 1] by rounding, or with losses that have no link.
    """
    parts = []
    for part in np.split(response, np.cumsum(n_classes)[:-1], axis=1):
        part = np.clip(part, 0.0, None)
        total = part.sum(axis=1, keepdims=True)
        is_zero = total == 0  # NaN, of a row that no tree predicts, stays NaN
        parts.append(np.where(is_zero, 1 / part.shape[1], part / np.where(is_zero, 1, total)))
    return parts


def with_prior(response, ratio, n_classes):
    """Class probabilities times a ratio for each class, divided by their sum for each output.

    They are the probabilities where classes are `ratio` times as frequent as in training, and
    where the rows of a class are alike. None: the response itself.
    """
    if ratio is None:
        return response
    return np.concatenate(probabilities(response * np.array(ratio), n_classes), axis=1)


def labels_of(response, classes):
    """Return the labels with the largest response, (n_samples,) or (n_samples, n_outputs)."""
    if len(classes) == 1:
        return classes[0][response.argmax(axis=1)]
    parts = np.split(response, np.cumsum([len(labels) for labels in classes])[:-1], axis=1)
    found = [labels[part.argmax(axis=1)] for labels, part in zip(classes, parts)]
    kinds = {labels.dtype.kind for labels in found}
    return np.stack(found, axis=1) if len(kinds) == 1 else np.array(found, dtype=object).T
