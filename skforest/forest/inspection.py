"""What one reads from a forest: depths, decision paths and importances of features."""

from __future__ import annotations

import numpy as np
from scipy import sparse


def max_depth(forest):
    """Depth of the deepest leaf of each tree: ndarray of shape (n_trees,), int64."""
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


def decision_path(forest, X):
    """Nodes on the paths of the rows; see `Forest.decision_path`."""
    leaves = forest.apply(X)
    if not len(leaves):
        shape = (0, forest.n_nodes)
        return sparse.csr_matrix(shape, dtype=np.int64), forest.tree_start.copy()
    parent = forest.parents()
    node = (leaves + forest.tree_start[:-1]).ravel()
    row = np.repeat(np.arange(len(leaves)), len(forest))
    rows, nodes = [], []
    # From the leaves up, all rows and trees at once.
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


def feature_importances(forest, importance_type):
    """Importance of every feature; see `Forest.feature_importances`."""
    total = np.zeros(forest.n_features)
    first_split = (forest.tree_start - np.arange(len(forest) + 1)) // 2
    for first, last in zip(first_split[:-1], first_split[1:]):
        codes = forest.direction[first:last]
        weights = abs(forest.directions(codes))
        if len(forest.spread):
            # Weights of sparse and dense directions are in units of 1 / spread.
            is_mixture = np.repeat(codes >= forest.code_ends[1], np.diff(weights.indptr))
            weights.data[is_mixture] *= forest.spread[weights.indices[is_mixture]]
        if importance_type == "count":
            total += weights.getnnz(axis=0)
        else:
            tree = weights.T @ forest.gain[first:last].astype(np.float64)
            total += tree / (tree.sum() or 1)
    return total / (total.sum() or 1)
