"""Routing through small trees of features and short mixtures: all splits for 32 rows at a time.

For rows that go right, a split removes the leaves below its left child from a mask of 64 bits; the
first remaining leaf is the leaf of the row (route.h).
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

import numpy as np

from ..base.direction cimport CSR, UINT8, Directions, Table
from ..base.memory cimport Scratch
from .trees cimport HARD, Arrays, Output, PackedTrees, Way

cdef extern from "predict/route.h" nogil:
    const int SKF_BIT_ROWS, SKF_BITS_PAY, SKF_CANDIDATES
    void skf_fill_columns(const void*, bint, int64_t, int64_t, int64_t, float*)
    void skf_route_bits(
        const Arrays*, int64_t, const float*, const uint32_t*, const uint32_t*, const int32_t*,
        int32_t*
    )

# Chosen without a stored measurement. They change the speed of predictions, but no bit.
cdef enum:
    MIN_BYTES = 4              # fewest rows of bytes that are routed in this way,
    MIN_FLOATS = 12            # and rows of float32; fewer rows are faster one by one
    COLUMNS_PER_TREE = 4       # largest number of features per tree, because all are transposed
    MEAN_TERMS = 8             # largest mean number of features of a mixture


cdef class ByBits(Way):
    """Routes rows through trees of at most 64 leaves over features and short mixtures."""

    def prepare(self):
        return leaf_bits(self.trees.owner, SKF_CANDIDATES)

    cdef bint applies(self, const Table* table, int64_t n_trees) except -1:
        cdef const Directions* d = &self.trees.directions
        return (
            table.n_samples >= (MIN_BYTES if table.dtype == UINT8 else MIN_FLOATS)
            and table.dtype != CSR
            and table.n_features <= COLUMNS_PER_TREE * n_trees
            and self.trees.gate == HARD
            and self.trees.are_rows_read
            and not d.n_dense
            and (not d.n_sparse or d.sparse_start[d.n_sparse] <= MEAN_TERMS * <int64_t>d.n_sparse)
            and SKF_BITS_PAY
            and len(self.prepared()) > 0
        )

    cdef int route(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, const Output* out
    ) except -1:
        cdef PackedTrees trees = self.trees
        bits = self.prepared()
        cdef const uint32_t[::1] low = bits[0], high = bits[1]
        cdef const int32_t[::1] node_of_leaf = bits[2]
        cdef Scratch scratch = Scratch()
        cdef int64_t p = table.n_features, start = 0, bag, tree, n, first_leaf
        cdef float* columns = scratch.floats(SKF_BIT_ROWS * p)
        cdef int32_t* leaf = scratch.ints(SKF_BIT_ROWS)
        cdef bint is_bytes = table.dtype == UINT8
        with nogil:
            while start < table.n_samples:
                n = min(<int64_t>SKF_BIT_ROWS, table.n_samples - start)
                skf_fill_columns(table.data, is_bytes, start, n, p, columns)
                for bag in range(n_bags):
                    for tree in range(bag_start[bag], bag_start[bag + 1]):
                        first_leaf = (trees.at.tree_start[tree] + tree) // 2
                        skf_route_bits(
                            &trees.at, tree, columns, &low[0], &high[0],
                            &node_of_leaf[first_leaf], leaf
                        )
                        trees.store(tree, bag, table, leaf, NULL, start, n, out)
                start += n
        return 0


def leaf_bits(arrays, int most_leaves):
    """Return masks of the leaves of small trees for `skf_route_bits`; () if a tree is larger.

    Returns
    -------
    low, high : ndarray of shape (n_splits + 1,), uint32
        Bits of the leaves 0 .. 31 and 32 .. 63, counted from the left, that remain if a row goes
        right: the leaves below the left child of the split are removed.
    node_of_leaf : ndarray of shape (n_leaves,), int32
    """
    cdef const int64_t[::1] tree_start = arrays["tree_start"]
    cdef const int32_t[::1] child = arrays["child"]
    cdef int64_t n_trees = tree_start.shape[0] - 1
    cdef int64_t most = np.diff(arrays["tree_start"]).max(initial=1)
    cdef int64_t tree, root, n, node, left, first_split, first_leaf
    if most > 2 * most_leaves - 1:
        return ()
    mask = np.empty((child.shape[0] - n_trees) // 2 + 1, dtype=np.uint64)    # 1 more: not empty
    node_of_leaf = np.empty((child.shape[0] + n_trees) // 2, dtype=np.int32)
    cdef uint64_t[::1] kept = mask
    cdef int32_t[::1] found = node_of_leaf
    cdef int64_t[::1] count = np.empty(most, dtype=np.int64)     # number of leaves below a node
    cdef int64_t[::1] start = np.empty(most, dtype=np.int64)     # the first of these leaves
    for tree in range(n_trees):
        root = tree_start[tree]
        n = tree_start[tree + 1] - root
        first_split = (root - tree) // 2
        first_leaf = (root + tree) // 2
        for node in range(n - 1, -1, -1):        # children follow their parents
            left = child[root + node]
            count[node] = 1 if left < 0 else count[left] + count[left + 1]
        start[0] = 0
        for node in range(n):
            left = child[root + node]
            if left < 0:
                found[first_leaf + start[node]] = <int32_t>node
                continue
            start[left] = start[node]
            start[left + 1] = start[node] + count[left]
            # A left child has at most 63 leaves.
            kept[first_split + (left >> 1)] = ~(
                ((<uint64_t>1 << count[left]) - 1) << start[left]
            )
    return mask.astype(np.uint32), (mask >> np.uint64(32)).astype(np.uint32), node_of_leaf
