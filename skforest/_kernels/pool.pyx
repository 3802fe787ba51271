"""Routing over directions that many splits share.

The splits of a hinge forest read a few hundred learned directions, and so may those of any forest
whose splits share rows of directions. `DirectionPool` projects each row on its K directions once,
``z[i, k] = a_k . x_i``, and stores the nodes of all trees as (threshold, column k, child). A row
then only compares numbers (route.h): right where ``z[i, k] > threshold``.

Node by node, a row of a tree with L leaves is projected about log2(L) times. A pool pays where K
is at most the sum of log2(L) over the trees.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

import numpy as np

from .direction cimport Directions, Table, Taps, project, unfold

cdef extern from "route.h" nogil:
    ctypedef struct skf_node:
        float threshold
        uint32_t column, child

    void skf_route_pool(
        const float*, int64_t, int64_t, const skf_node*, int32_t, int32_t*, float*
    )


def make_pool(arrays, n_features, n_stored):
    """Pool of the directions of a forest, where it pays.

    A direction is stored once per split unless splits share it. Where a forest stores more
    directions than a row passes splits, no pool pays, and no array of splits is read: a large
    forest has millions of them, and this decides how long its first prediction takes.

    Parameters
    ----------
    arrays : Mapping of str to ndarray
        Those of a `Forest`.
    n_features : int
    n_stored : int
        Boxes, sparse rows and dense rows that the forest stores.

    Returns
    -------
    pool : DirectionPool or None
    """
    n_leaves = (np.diff(arrays["tree_start"]) + 1) // 2
    n_passed = np.log2(n_leaves).sum()
    # Single features are read from the table as fast as from a pool.
    if not 0 < n_stored <= n_passed:
        return None
    is_used = np.zeros(n_features + n_stored, dtype=bool)
    is_used[arrays["direction"]] = True
    if np.count_nonzero(is_used) > n_passed or not is_used[n_features:].any():
        return None
    return DirectionPool(arrays, is_used)


cdef class DirectionPool:
    """The directions that the trees of a forest share, and the nodes of these trees.

    Parameters
    ----------
    arrays : Mapping of str to ndarray
        Those of a `Forest`.
    is_used : ndarray of shape (n_codes,), bool
        The directions that splits use, by code.
    """

    def __init__(self, arrays, is_used):
        tree_start = arrays["tree_start"]
        child = arrays["child"]
        code = np.flatnonzero(is_used).astype(np.int32)
        column = np.cumsum(is_used, dtype=np.int32) - 1
        n_nodes = np.diff(tree_start)
        root = tree_start[:len(n_nodes)]
        first_split = (root - np.arange(len(n_nodes))) // 2
        is_split = child > 0
        split = ((child - 1) // 2 + np.repeat(first_split, n_nodes))[is_split]
        nodes = np.empty((len(child), 3), dtype=np.int32)
        # A leaf is its own child: column of zeros, infinite threshold (route.h).
        nodes[:, 0] = np.array(np.inf, dtype=np.float32).view(np.int32)
        nodes[:, 1] = len(code)
        nodes[:, 2] = np.arange(len(child)) - np.repeat(root, n_nodes)
        nodes[is_split, 0] = arrays["threshold"].view(np.int32)[split]
        nodes[is_split, 1] = column[arrays["direction"][split]]
        nodes[is_split, 2] = child[is_split]
        self.code = code
        self.n_columns = len(code) + 1
        self.nodes = nodes
        self.depth = np.maximum.reduceat(_levels(tree_start, child), root)
        self.tree_start = tree_start
        self.columns = {}

    cdef const int32_t[::1] columns_of(self, int64_t first_tree, int64_t last_tree):
        """Columns that the splits of some trees read: a bag has directions of its own."""
        key = first_tree, last_tree
        if key not in self.columns:
            start, end = self.tree_start[first_tree], self.tree_start[last_tree]
            is_read = np.zeros(self.n_columns, dtype=bool)
            is_read[np.asarray(self.nodes)[start:end, 1]] = True
            is_read[self.n_columns - 1] = False
            self.columns[key] = np.flatnonzero(is_read).astype(np.int32)
        return self.columns[key]

    cdef void fill(
        self, const int32_t[::1] columns, const Directions* directions, const Table* table,
        Taps* taps, const int64_t* offset, int64_t n, float* column, float* out
    ) noexcept nogil:
        """Project n rows on the directions of some columns; a row of `out` has n_columns entries.

        offset : IN, where each row starts in the table
        column : scratch, n
        out : OUT, projections row by row, in which a row finds all that it compares close together
        """
        cdef int64_t i, j, k
        for j in range(columns.shape[0]):
            k = columns[j]
            unfold(taps, directions, self.code[k], table)
            project(taps, table, offset, n, column)
            for i in range(n):
                out[i * self.n_columns + k] = column[i]
        for i in range(n):
            out[i * self.n_columns + self.n_columns - 1] = 0

    cdef void route(
        self, int64_t tree, int64_t root, const float* projections, int64_t n, int32_t* leaf,
        float* margin
    ) noexcept nogil:
        """Leaf of n rows in a tree, and the smallest margin on the path unless `margin` is NULL.

        root : IN, the first node of the tree
        """
        skf_route_pool(
            projections, self.n_columns, n, <const skf_node*>&self.nodes[root, 0],
            self.depth[tree], leaf, margin
        )


def _levels(const int64_t[::1] tree_start, const int32_t[::1] child):
    """Level of every node in its tree, 0 for roots: ndarray of shape (n_nodes,), int32."""
    cdef int64_t tree, node, root
    levels = np.zeros(child.shape[0], dtype=np.int32)
    cdef int32_t[::1] level = levels
    for tree in range(tree_start.shape[0] - 1):
        root = tree_start[tree]
        for node in range(root, tree_start[tree + 1]):
            if child[node] > 0:
                level[root + child[node]] = level[root + child[node] + 1] = level[node] + 1
    return levels
