"""Routing through trees that share a pool of directions, as in hinge forests.

A row is projected on the K directions once, ``z[i, k] = a_k . x_i``; the nodes of all trees are
stored as (threshold, column k, child). A row then goes right if ``z[i, k] > threshold``. Without a
pool, a row is projected about log2(L) times in a tree of L leaves. Therefore, a pool pays if all K
directions have at most as many terms as the direction of a split has on average, times the sum of
log2(L) over the trees.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t

import numpy as np

from ..base.direction cimport (
    FLOAT32, Directions, Table, Unfolded, project, reserve_unfolded, unfold
)
from ..base.memory cimport Scratch
from .trees cimport MARGIN, SIGMOID, Arrays, Output, PackedTrees, Way

cdef extern from "predict/route.h" nogil:
    ctypedef struct skf_node:
        float threshold
        uint32_t column, child

    void skf_route_pool(
        const float*, int64_t, int64_t, const skf_node*, int32_t, int32_t*, float*
    )
    void skf_project_pool(
        const Arrays*, const float*, const int32_t*, const int32_t*, int64_t, float*
    )
    void skf_route_row_over_pool(
        const float*, int64_t, const skf_node*, const int64_t*, const int32_t*, int32_t*, float*
    )

# Chosen without a stored measurement. They change the speed of predictions, but no bit.
cdef enum:
    BLOCK = 64                 # rows projected at once
    FEW_ROWS = 24              # up to this number, rows are projected and routed one by one
    FEW_TREES = 64             # trees whose leaves are found before their values are added


def pooled_directions(arrays, n_features, n_stored):
    """Return a mask of the directions that splits use, by code; None if no pool pays.

    A direction is stored once per split unless splits share it. If the n_stored directions (boxes,
    sparse and dense rows) have more terms than as many of the largest ones as a row passes splits,
    no pool pays, and `direction` is not read, which would take long for millions of splits.
    """
    n_leaves = (np.diff(arrays["tree_start"]) + 1) // 2
    n_passed = np.log2(n_leaves).sum()
    n_boxes, dense = len(arrays["box_corner"]), arrays["dense"]
    of_sparse = np.diff(arrays["sparse_start"])
    largest = n_features if len(dense) else of_sparse.max(initial=1)
    if not n_stored or n_boxes + of_sparse.sum() + dense.size > n_passed * largest:
        return None
    # Terms of all directions by code. Boxes of any size take about the same time.
    ones, of_dense = np.ones(n_features + n_boxes), np.full(len(dense), n_features)
    n_terms = np.concatenate([ones, of_sparse, of_dense])
    is_used = np.zeros(n_features + n_stored, dtype=bool)
    is_used[arrays["direction"]] = True
    # Single features are read from the table as fast as from a pool.
    is_large = n_terms[is_used].sum() > n_passed * n_terms[arrays["direction"]].mean()
    return None if is_large or not is_used[n_features:].any() else is_used


cdef class OverPool(Way):
    """Routes rows through trees whose splits use the directions `is_used`, for all bags."""

    cdef readonly int64_t n_columns      # the directions, and one column of zeros
    cdef const int32_t[::1] code         # the directions, in ascending order
    cdef const int32_t[:, ::1] nodes     # skf_node of all trees
    cdef const int32_t[::1] depth        # depth of each tree
    cdef dict columns                    # columns used by ranges of trees

    def __init__(self, PackedTrees trees, is_used):
        Way.__init__(self, trees)
        arrays = trees.owner
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
        self.columns = {}

    cdef const int32_t[::1] columns_of(self, int64_t first_tree, int64_t last_tree):
        """Return the columns that some trees use, since each bag has its directions."""
        key = first_tree, last_tree
        found = self.columns.get(key)
        if found is None:
            start = self.trees.at.tree_start[first_tree]
            end = self.trees.at.tree_start[last_tree]
            is_read = np.zeros(self.n_columns, dtype=bool)
            is_read[np.asarray(self.nodes)[start:end, 1]] = True
            is_read[self.n_columns - 1] = False
            # Threads that arrive here at once keep the first result, which is never replaced.
            found = self.columns.setdefault(key, np.flatnonzero(is_read).astype(np.int32))
        return found

    cdef void fill(
        self, const int32_t[::1] columns, const Table* table, Unfolded* unfolded,
        const int64_t* offset, int64_t n, float* column, float* out
    ) noexcept nogil:
        """Project n rows on the directions of some columns; a row of `out` has n_columns entries.

        offset : IN, start of each row in the table
        column : scratch, n
        out : OUT, projections row by row, so that a row reads adjacent memory
        """
        cdef int64_t i, j, k
        cdef const Directions* directions = &self.trees.directions
        for j in range(columns.shape[0]):
            k = columns[j]
            unfold(unfolded, directions, self.code[k], table)
            project(unfolded, table, offset, n, column)
            for i in range(n):
                out[i * self.n_columns + k] = column[i]
        for i in range(n):
            out[i * self.n_columns + self.n_columns - 1] = 0

    cdef int route(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, const Output* out
    ) except -1:
        cdef const int32_t[::1] columns = self.columns_of(bag_start[0], bag_start[n_bags])
        if (
            table.n_samples <= FEW_ROWS and table.dtype == FLOAT32 and self.trees.are_rows_read
            and self.trees.gate != SIGMOID
        ):
            return self.route_few(table, columns, bag_start, n_bags, out)
        return self.route_blocks(table, columns, bag_start, n_bags, out)

    cdef int route_few(
        self, const Table* table, const int32_t[::1] columns, const int64_t* bag_start,
        int64_t n_bags, const Output* out
    ) except -1:
        """Route row by row, each through several trees side by side."""
        cdef PackedTrees trees = self.trees
        cdef int32_t[FEW_TREES] leaf
        cdef float[FEW_TREES] least
        cdef float* margin = least if trees.gate == MARGIN else NULL
        cdef int64_t i, bag, tree, n
        cdef Scratch scratch = Scratch()
        cdef float* projections = scratch.floats(self.n_columns)
        with nogil:
            for i in range(table.n_samples):
                if columns.shape[0]:
                    skf_project_pool(
                        &trees.at, <const float*>table.data + i * table.n_features, &self.code[0],
                        &columns[0], columns.shape[0], projections
                    )
                for bag in range(n_bags):
                    tree = bag_start[bag]
                    while tree < bag_start[bag + 1]:
                        n = min(<int64_t>FEW_TREES, bag_start[bag + 1] - tree)
                        skf_route_row_over_pool(
                            projections, n, <const skf_node*>&self.nodes[0, 0],
                            trees.at.tree_start + tree, &self.depth[tree], leaf, margin
                        )
                        trees.store_row(tree, n, bag, table, i, leaf, margin, out)
                        tree += n
        return 0

    cdef int route_blocks(
        self, const Table* table, const int32_t[::1] columns, const int64_t* bag_start,
        int64_t n_bags, const Output* out
    ) except -1:
        """Route blocks of rows tree by tree."""
        cdef PackedTrees trees = self.trees
        cdef int64_t i, n, bag, tree, start = 0, n_rows = table.n_samples
        cdef int64_t block = min(n_rows, <int64_t>BLOCK)
        cdef float[::1] projections = np.empty(block * self.n_columns, dtype=np.float32)
        cdef Scratch scratch = Scratch()
        cdef float[::1] column = np.empty(block, dtype=np.float32)
        cdef float[::1] margins = np.empty(block, dtype=np.float32)
        cdef float* margin = NULL
        cdef int32_t[::1] leaf = np.empty(block, dtype=np.int32)
        cdef int64_t[::1] offset = np.empty(block, dtype=np.int64)
        cdef Unfolded unfolded = reserve_unfolded(
            scratch, trees.max_terms, &trees.directions.grid
        )
        if trees.gate == MARGIN and out.leaves == NULL:
            margin = &margins[0]
        with nogil:
            while start < n_rows:
                n = min(n_rows - start, block)
                for i in range(n):
                    offset[i] = (start + i) * table.n_features
                self.fill(
                    columns, table, &unfolded, &offset[0], n, &column[0], &projections[0]
                )
                for bag in range(n_bags):
                    for tree in range(bag_start[bag], bag_start[bag + 1]):
                        skf_route_pool(
                            &projections[0], self.n_columns, n,
                            <const skf_node*>&self.nodes[trees.at.tree_start[tree], 0],
                            self.depth[tree], &leaf[0], margin
                        )
                        trees.store(tree, bag, table, &leaf[0], margin, start, n, out)
                start += n
        return 0


def _levels(const int64_t[::1] tree_start, const int32_t[::1] child):
    """Return the level of every node in its tree, 0 for roots: int32 of shape (n_nodes,)."""
    cdef int64_t tree, node, root
    levels = np.zeros(child.shape[0], dtype=np.int32)
    cdef int32_t[::1] level = levels
    for tree in range(tree_start.shape[0] - 1):
        root = tree_start[tree]
        for node in range(root, tree_start[tree + 1]):
            if child[node] > 0:
                level[root + child[node]] = level[root + child[node] + 1] = level[node] + 1
    return levels
