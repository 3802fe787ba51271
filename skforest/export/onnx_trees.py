"""Forests as operators of ONNX: trees over projections, and the values of leaves.

Trees of hard gates become a TreeEnsembleRegressor. Its attributes cannot be stored in a file of
their own, so that very large forests, and those of margin gates, are traversed level by level by
gathers from constants. Soft gates are products of sigmoids, level by level.
"""

import numpy as np
from scipy import sparse

from .onnx_projections import Projections

MAX_COLUMNS = 2**13  # projections that are computed together
# All attributes of a graph, with the structure of its nodes, must be smaller than 2 GB.
MAX_ATTRIBUTES = 2**30  # bytes
NODE_BYTES, ENTRY_BYTES = 60, 16  # of a node, and of a value of a leaf, at most


def add_forest(graph, forest, features):
    """The response of a forest: float64 of shape (N, n_outputs)."""
    is_ensemble = forest.gate == "hard" and _fits(graph, forest)
    shared = None
    if np.count_nonzero(np.unique(forest.direction) >= forest.n_features) <= MAX_COLUMNS:
        shared = Projections(graph, forest, features, forest.direction)
    bags = []
    for first, last in zip(forest.bag_start[:-1].tolist(), forest.bag_start[1:].tolist()):
        parts = []
        for a, b in _chunks(forest, first, last, shared is not None):
            trees = forest[a:b]
            table = shared or Projections(graph, forest, features, trees.direction)
            parts.append(_response_of_trees(graph, trees, table, is_ensemble))
        raw = graph.total(parts)
        if forest.aggregate == "mean":
            raw = graph.op("Div", raw, float(last - first))
        raw = graph.op("Add", raw, forest.baseline)
        is_mean = forest.aggregate == "mean" and not len(forest.slope_feature)
        if is_ensemble and is_mean and forest.task == "regression":
            # The operator adds in float32, and rounding may leave the range of the targets.
            low, high = _range_of_means(forest[first:last])
            raw = graph.op("Min", graph.op("Max", raw, low), high)
        bags.append(_linked(graph, raw, forest.link))
    total = graph.total(bags)
    return total if len(bags) == 1 else graph.op("Div", total, float(len(bags)))


def _range_of_means(trees):
    """Least and largest mean over trees of values of leaves, plus the baseline."""
    leaf = np.flatnonzero(trees.child < 0)
    values = value_rows(trees, -1 - trees.child[leaf]).astype(np.float64)
    start = np.searchsorted(leaf, trees.tree_start[:-1])
    ends = np.minimum.reduceat(values, start), np.maximum.reduceat(values, start)
    return (end.sum(axis=0) / len(trees) + trees.baseline for end in ends)


def _linked(graph, raw, link):
    if link == "softmax":
        return graph.op("Softmax", raw, axis=1)
    return raw if link == "identity" else graph.op({"sigmoid": "Sigmoid", "log": "Exp"}[link], raw)


def _chunks(forest, first, last, is_shared):
    """Ranges of trees of a bag whose projections are computed together."""
    if is_shared:
        return [(first, last)]
    starts, n = [first], 0
    n_splits = (np.diff(forest.tree_start) - 1) // 2
    for tree in range(first, last):
        if n and n + n_splits[tree] > MAX_COLUMNS:
            starts.append(tree)
            n = 0
        n += n_splits[tree]
    return list(zip(starts, [*starts[1:], last]))


# ----------------------------------------------------------------------------------------- trees


def _fits(graph, forest):
    """Whether the nodes of a forest can be stored as attributes, beside those of the graph."""
    row = -1 - forest.child[forest.child < 0].astype(np.int64)
    n_entries = len(row) * forest.n_outputs
    if len(forest.value_start):
        n_entries = int(np.diff(forest.value_start)[row].sum())
    if len(forest.slope_start):
        n_entries += int(np.diff(forest.slope_start)[row].sum()) * forest.n_outputs
    n_bytes = NODE_BYTES * forest.n_nodes + ENTRY_BYTES * n_entries
    if graph.attribute_bytes + n_bytes <= MAX_ATTRIBUTES:
        graph.attribute_bytes += n_bytes
        return True
    if len(forest.slope_feature):
        raise ValueError(
            f"the estimator has linear functions and {forest.n_nodes} nodes, which take {n_bytes} "
            f"bytes; at most {MAX_ATTRIBUTES} bytes can be exported to ONNX"
        )
    return False


def _response_of_trees(graph, trees, table, is_ensemble):
    """Sum of weight times value over the leaves of some trees: float64."""
    if trees.gate == "sigmoid":
        return add_soft(graph, trees, table)
    return (add_ensemble if is_ensemble else add_descent)(graph, trees, table)


class TreeNodes:
    """Arrays with an entry for each node of some trees, which are numbered through."""

    def __init__(self, trees):
        sizes = np.diff(trees.tree_start)
        self.tree = np.repeat(np.arange(len(sizes)), sizes)
        self.root = trees.tree_start[:-1]
        child = trees.child.astype(np.int64)
        self.is_split = child >= 0
        root = self.root[self.tree]
        self.number = np.arange(len(child)) - root  # in its tree
        self.left = np.where(self.is_split, root + child, np.arange(len(child)))
        self.split = np.where(self.is_split, (root - self.tree) // 2 + (child - 1) // 2, 0)
        self.row = np.where(self.is_split, 0, -1 - child)


def value_rows(forest, rows):
    """Rows of values as a matrix: (n_rows, n_outputs), float32."""
    if not len(forest.value_start):
        return forest.value.reshape(-1, forest.n_outputs)[rows]
    parts = forest.value, forest.value_index, forest.value_start
    shape = len(forest.value_start) - 1, forest.n_outputs
    return sparse.csr_matrix(parts, shape=shape)[rows].toarray()


class EnsembleNodes:
    """Nodes of trees as the operator for trees has them: children are numbered within their tree.

    onnxruntime crashes on some trees of a single leaf; they get a split between two such leaves.
    """

    def __init__(self, trees, table):
        nodes = TreeNodes(trees)
        is_split, split = nodes.is_split, nodes.split
        column = np.zeros(len(split), dtype=np.int64)
        threshold = np.zeros(len(split), dtype=np.float32)
        column[is_split] = table.column(trees.direction[split[is_split]])
        threshold[is_split] = trees.threshold[split[is_split]]
        left = np.where(is_split, nodes.left - nodes.root[nodes.tree], 0)
        single = nodes.root[np.diff(trees.tree_start) == 1]
        more = np.repeat(single, 2)
        order = np.argsort(np.concatenate([nodes.tree, nodes.tree[more]]), kind="stable")

        def with_leaves(array, of_leaves):
            return np.concatenate([array, of_leaves])[order]

        none = np.zeros(len(more), dtype=np.int64)
        self.tree = with_leaves(nodes.tree, nodes.tree[more])
        self.number = with_leaves(nodes.number, np.tile([1, 2], len(single)))
        self.row = with_leaves(nodes.row, nodes.row[more])
        self.column = with_leaves(column, none)
        self.threshold = with_leaves(threshold, none.astype(np.float32))
        is_split, left = is_split.copy(), left.copy()
        is_split[single], left[single] = True, 1
        self.is_split = with_leaves(is_split, none.astype(bool))
        self.left = with_leaves(left, none)


def add_ensemble(graph, trees, table):
    """Trees of hard gates as one operator.

    Linear functions of the leaves are sums over trees of coefficients of the features: these are
    further targets of the operator, which are multiplied by the features afterwards.
    """
    nodes = EnsembleNodes(trees, table)
    leaf = np.flatnonzero(~nodes.is_split)
    owner, target, weight, used = _targets(trees, nodes.row[leaf])
    n_outputs = trees.n_outputs
    result = graph.op(
        "TreeEnsembleRegressor",
        table.matrix,
        domain="ai.onnx.ml",
        n_targets=n_outputs * (1 + len(used)),
        nodes_treeids=nodes.tree,
        nodes_nodeids=nodes.number,
        nodes_featureids=nodes.column,
        nodes_values=nodes.threshold,
        nodes_modes=np.where(nodes.is_split, "BRANCH_LEQ", "LEAF").tolist(),
        nodes_truenodeids=nodes.left,
        nodes_falsenodeids=np.where(nodes.is_split, nodes.left + 1, 0),
        target_treeids=nodes.tree[leaf][owner],
        target_nodeids=nodes.number[leaf][owner],
        target_ids=target,
        target_weights=weight,
    )
    result = graph.cast(result, "DOUBLE")
    if not len(used):
        return result
    width = n_outputs * (1 + len(used))
    constant = graph.columns(result, np.arange(n_outputs), width)
    slopes = graph.columns(result, np.arange(n_outputs, width), width)
    slopes = graph.op("Reshape", slopes, np.array([-1, len(used), n_outputs]))
    x = graph.cast(graph.columns(table.matrix, used, table.width), "DOUBLE")
    x = graph.op("Reshape", x, np.array([-1, len(used), 1]))
    linear = graph.op("ReduceSum", graph.op("Mul", slopes, x), np.array([1]), keepdims=0)
    return graph.op("Add", constant, linear)


def _targets(trees, rows):
    """Weights of leaves with given rows of values: leaf, target and weight of each entry.

    And the features that slopes are along. The targets are the outputs, then the outputs for each
    of these features. Every leaf has an entry.
    """
    n_outputs = trees.n_outputs
    if len(trees.value_start):
        owner, at = _ragged(trees.value_start, rows)
        target, weight = trees.value_index[at], trees.value[at]
        empty = np.setdiff1d(np.arange(len(rows)), owner)
        owner = np.concatenate([owner, empty])
        target = np.concatenate([target, np.zeros(len(empty), dtype=np.int64)])
        weight = np.concatenate([weight, np.zeros(len(empty), dtype=np.float32)])
    else:
        owner = np.repeat(np.arange(len(rows)), n_outputs)
        target = np.tile(np.arange(n_outputs), len(rows))
        weight = value_rows(trees, rows).ravel()
    if not len(trees.slope_feature):
        return owner, target, weight, np.zeros(0, dtype=np.int64)
    leaf, at = _ragged(trees.slope_start, rows)
    used, place = np.unique(trees.slope_feature[at], return_inverse=True)
    slope_target = (n_outputs * (1 + place))[:, None] + np.arange(n_outputs)
    return (
        np.concatenate([owner, np.repeat(leaf, n_outputs)]),
        np.concatenate([target, slope_target.ravel()]),
        np.concatenate([weight, trees.slope[at].ravel()]),
        used.astype(np.int64),
    )


def _ragged(start, rows):
    """Entries of some ragged rows: the number in `rows`, and the position, of each entry."""
    length = np.diff(start)[rows]
    owner = np.repeat(np.arange(len(rows)), length)
    first = np.repeat(start[rows] - (np.cumsum(length) - length), length)
    return owner, first + np.arange(length.sum())


def add_descent(graph, trees, table):
    """Trees whose rows move down one level at a time; leaves are their own children.

    With margin gates, the values are multiplied by the smallest distance from a threshold.
    """
    nodes = TreeNodes(trees)
    n_trees, is_split = len(trees), nodes.is_split
    column = np.zeros(len(is_split), dtype=np.int64)
    threshold = np.full(len(is_split), np.inf, dtype=np.float32)
    if is_split.any():
        column[is_split] = table.column(trees.direction[nodes.split[is_split]])
        threshold[is_split] = trees.threshold[nodes.split[is_split]]
    # Constants that all levels share.
    column, threshold = graph.constant(column.astype(np.int32)), graph.constant(threshold)
    left = graph.constant(nodes.left.astype(np.int32))
    right = graph.constant((nodes.left + is_split).astype(np.int32))
    node = _every_row(graph, table, nodes.root[None].astype(np.int32))
    least = None
    if trees.gate == "margin":
        start = np.where(is_split[nodes.root], np.inf, 0).astype(np.float32)
        least = _every_row(graph, table, start[None])
    for _ in range(int(trees.max_depth.max(initial=0))):
        own = graph.op("Gather", column, node)
        projection = graph.op("GatherElements", table.matrix, own, axis=1)
        cut = graph.op("Gather", threshold, node)
        if least is not None:
            margin = graph.op("Abs", graph.op("Sub", projection, cut))
            least = graph.op("Min", least, margin)
        is_left = graph.op("LessOrEqual", projection, cut)
        children = graph.op("Gather", left, node), graph.op("Gather", right, node)
        node = graph.op("Where", is_left, *children)
    used, row = np.unique(nodes.row, return_inverse=True)
    row = graph.op("Gather", row.astype(np.int32), node)
    values = graph.op("Gather", value_rows(trees, used), row, axis=0)
    values = graph.cast(values, "DOUBLE")
    if least is not None:
        least = graph.op("Reshape", graph.cast(least, "DOUBLE"), np.array([-1, n_trees, 1]))
        values = graph.op("Mul", values, least)
    return graph.op("ReduceSum", values, np.array([1]), keepdims=0)


def _every_row(graph, table, row):
    """A row, repeated for all rows of X."""
    n_rows = graph.op("Slice", graph.op("Shape", table.matrix), np.array([0]), np.array([1]))
    return graph.op("Expand", row, graph.op("Concat", n_rows, np.array([1]), axis=0))


def add_soft(graph, trees, table):
    """All leaves, each with the product of the sigmoids on its path."""
    nodes = TreeNodes(trees)
    here = nodes.root.astype(np.int64)
    weight = _every_row(graph, table, np.ones((1, len(here))))
    leaves, parts = [], []
    while len(here):
        is_split = nodes.is_split[here]
        if not is_split.all():
            own = np.flatnonzero(~is_split)
            parts.append(graph.columns(weight, own, len(here)))
            leaves.append(here[own])
        own = np.flatnonzero(is_split)
        if not len(own):
            break
        weight = graph.columns(weight, own, len(here))
        split = nodes.split[here[own]]
        column = table.column(trees.direction[split])
        projection = graph.cast(graph.columns(table.matrix, column, table.width), "DOUBLE")
        distance = graph.op("Sub", projection, trees.threshold[split].astype(np.float64))
        gate = graph.op("Sigmoid", graph.op("Mul", distance, float(trees.steepness)))
        right = graph.op("Mul", weight, gate)
        left = graph.op("Mul", weight, graph.op("Sub", 1.0, gate))
        weight = graph.side_by_side([left, right])
        here = np.concatenate([nodes.left[here[own]], nodes.left[here[own]] + 1])
    value = value_rows(trees, nodes.row[np.concatenate(leaves)]).astype(np.float64)
    return graph.op("MatMul", graph.side_by_side(parts), value)
