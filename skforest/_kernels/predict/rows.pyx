"""Routing of few rows, one by one, each through several trees side by side.

If possible, it uses copies of the splits whose data are contiguous (route.h).
"""

from libc.stdint cimport int32_t, int64_t

import numpy as np

from ..base.direction cimport FLOAT32, Table
from .trees cimport MARGIN, SIGMOID, Arrays, Output, PackedTrees, Way

cdef extern from "predict/route.h" nogil:
    enum:
        SKF_TERMS

    ctypedef struct Split "skf_split":
        float threshold
        int32_t* next
        int32_t n_terms
        int32_t* feature
        float* weight

    void skf_route_row(const Arrays*, const float*, int64_t, int64_t, int32_t*, float*)
    void skf_route_row_over_splits(
        const Arrays*, const Split*, const int32_t*, const float*, int64_t, int32_t*, float*
    )

# Chosen without a stored measurement. They change the speed of predictions, but no bit.
cdef enum:
    FEW_ROWS = 16                  # up to this number, rows are routed one by one;
    FEW_ROWS_OF_COPIES = 128       # with copies of the splits, up to this number
    FEW_TREES = 64                 # trees whose leaves are found before their values are added
    COPIED_SPLITS = 1 << 18        # largest number of copied splits, in 12 MiB


cdef class ByRows(Way):
    """Routes few rows of float32 through trees of features, sparse and dense directions."""

    def prepare(self):
        return row_splits(self.trees.owner, self.trees.directions.n_features)

    cdef bint has_copies(self) noexcept:
        """Return whether to use copies of the splits: these are few, and no direction is dense."""
        return self.trees.directions.n_dense == 0 and self.trees.n_splits <= COPIED_SPLITS

    cdef bint applies(self, const Table* table, int64_t n_trees) except -1:
        return (
            table.n_samples <= (FEW_ROWS_OF_COPIES if self.has_copies() else FEW_ROWS)
            and table.dtype == FLOAT32
            and self.trees.are_rows_read
            and self.trees.gate != SIGMOID
        )

    cdef int route(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, const Output* out
    ) except -1:
        cdef PackedTrees trees = self.trees
        cdef int32_t[FEW_TREES] leaf
        cdef float[FEW_TREES] least
        cdef float* margin = least if trees.gate == MARGIN else NULL
        cdef const float* x
        cdef int64_t i, bag, tree, n
        cdef const int32_t[::1] root
        cdef const int32_t[:, ::1] splits
        cdef bint has_copies = self.has_copies()
        if has_copies:
            splits, root = self.prepared()
        with nogil:
            for i in range(table.n_samples):
                x = <const float*>table.data + i * table.n_features
                for bag in range(n_bags):
                    tree = bag_start[bag]
                    while tree < bag_start[bag + 1]:
                        n = min(<int64_t>FEW_TREES, bag_start[bag + 1] - tree)
                        if has_copies:
                            skf_route_row_over_splits(
                                &trees.at, <const Split*>&splits[0, 0], &root[tree], x, n, leaf,
                                margin
                            )
                        else:
                            skf_route_row(&trees.at, x, tree, n, leaf, margin)
                        trees.store_row(tree, n, bag, table, i, leaf, margin, out)
                        tree += n
        return 0


def row_splits(arrays, int64_t n_features):
    """Return contiguous splits of features and mixtures for `skf_route_row_over_splits`.

    Returns
    -------
    splits : ndarray of shape (n_splits + 1, 12), int32
        `skf_split`, in the order of `threshold`; the last one serves trees without splits.
    root : ndarray of shape (n_trees,), int32
        First split of each tree.
    """
    cdef const int64_t[::1] tree_start = arrays["tree_start"]
    cdef const int64_t[::1] sparse_start = arrays["sparse_start"]
    cdef const int32_t[::1] child = arrays["child"], direction = arrays["direction"]
    cdef const int32_t[::1] sparse_feature = arrays["sparse_feature"]
    cdef const float[::1] threshold = arrays["threshold"]
    # If there are no terms, weights may be in half precision.
    cdef const float[::1] sparse_weight = arrays["sparse_weight"].astype(np.float32, copy=False)
    cdef int64_t n_splits = threshold.shape[0], tree, node, first, first_split, at, own, start, t
    cdef Split* split
    table = np.zeros((n_splits + 1, sizeof(Split) // sizeof(int32_t)), dtype=np.int32)
    roots = np.empty(tree_start.shape[0] - 1, dtype=np.int32)
    cdef int32_t[:, ::1] splits = table
    cdef int32_t[::1] root = roots
    split = <Split*>&splits[n_splits, 0]
    split.next[0] = split.next[1] = -1
    for tree in range(root.shape[0]):
        first = tree_start[tree]
        first_split = (first - tree) // 2
        root[tree] = <int32_t>(n_splits if child[first] < 0 else first_split)
        for node in range(first, tree_start[tree + 1]):
            if child[node] < 0:
                continue
            at = first_split + (child[node] - 1) // 2
            split = <Split*>&splits[at, 0]
            split.threshold = threshold[at]
            for t in range(2):
                split.next[t] = child[first + child[node] + t]
                if split.next[t] < 0:
                    split.next[t] = -1 - (child[node] + <int32_t>t)
                else:
                    split.next[t] = <int32_t>first_split + (split.next[t] - 1) // 2
            own = direction[at] - n_features
            if own < 0:
                split.n_terms, split.feature[0], split.weight[0] = 1, direction[at], 1
                continue
            start = sparse_start[own]
            split.n_terms = <int32_t>(sparse_start[own + 1] - start)
            for t in range(min(split.n_terms, <int32_t>SKF_TERMS)):
                split.feature[t] = sparse_feature[start + t]
                split.weight[t] = sparse_weight[start + t]
            if split.n_terms > SKF_TERMS:
                split.n_terms = <int32_t>(-1 - own)
    return table, roots
