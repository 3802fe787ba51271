"""Routing over sums and projections that are computed once for all splits.

`SumRouter` serves trees of boxes of bytes. With the table ``S[r, c] = sum of x[:r, :c]`` of a row,
the sum over a box is four look-ups, whatever its size:

    x[r:r+h, c:c+w].sum() = S[r+h, c+w] - S[r, c+w] - S[r+h, c] + S[r, c]

It stores the splits of a forest as positions in this table (route.h) and takes blocks of rows to
their leaves. The sums are whole numbers, so that rows take the same branches as node by node in
_tree.pyx, whatever the order of the additions.

`DirectionPool` serves trees whose splits share directions, as those of hinge forests do. It
projects each row on the K directions once, ``z[i, k] = a_k . x_i``, and stores the nodes of all
trees as (threshold, column k, child). A row then only compares numbers: right where
``z[i, k] > threshold``. Node by node, a row of a tree with L leaves is projected about log2(L)
times. A pool pays where K is at most the sum of log2(L) over the trees.
"""

from libc.math cimport floor
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
)
from libc.string cimport memset

import numpy as np

from ..base.direction cimport Directions, Grid, Table, Unfolded, project, unfold
from ..base.memory cimport Scratch

cdef extern from "predict/route.h" nogil:
    ctypedef struct skf_node:
        float threshold
        uint32_t column, child

    void skf_fill_u16(const uint8_t*, int, int, uint16_t*)
    void skf_fill_u32(const uint8_t*, int, int, uint32_t*)
    void skf_route_u16(
        const Step*, const int32_t*, int32_t, const uint16_t*, int64_t, int64_t, int, int32_t*
    )
    void skf_route_u32(
        const Step*, const int32_t*, int32_t, const uint32_t*, int64_t, int64_t, int, int32_t*
    )
    void skf_route_pool(
        const float*, int64_t, int64_t, const skf_node*, int32_t, int32_t*, float*
    )

cdef enum:
    BLOCK_ROWS = 256         # most rows whose tables are in use together
    BLOCK_BYTES = 1 << 20    # most bytes of these tables: about a cache


cdef bint sums_apply(const Directions* directions, int64_t n_splits) noexcept nogil:
    """Whether every split can be decided by tables of sums of bytes."""
    cdef const Grid* grid = &directions.grid
    cdef int64_t height = grid.length[0] if grid.n_axes == 2 else 1
    cdef int64_t width = grid.length[grid.n_axes - 1]
    return (
        grid.plain
        and grid.n_axes <= 2
        and (height + 1) * (width + 1) <= 65535     # positions are uint16
        and n_splits < 1 << 30                      # and splits share 32 bits with two flags
        and directions.n_sparse == 0
        and directions.n_dense == 0
    )


cdef class SumRouter:
    """The trees of one forest. After `build`, several threads may route rows at the same time."""

    cdef int build(self, arrays, const Directions* directions) except -1:
        """Store every tree; `arrays` are those of a Forest for which `sums_apply` holds."""
        cdef const Grid* grid = &directions.grid
        cdef const int64_t[::1] tree_start = arrays["tree_start"]
        cdef const int32_t[::1] child = arrays["child"]
        cdef const float[::1] threshold = arrays["threshold"]
        cdef const int32_t[::1] direction = arrays["direction"]
        cdef int64_t n_trees = tree_start.shape[0] - 1
        cdef int64_t n_splits = threshold.shape[0]
        cdef int64_t tree, start, end, volume, largest = 1
        cdef int32_t split
        self.height = grid.length[0] if grid.n_axes == 2 else 1
        self.width = grid.length[grid.n_axes - 1]
        self.size = <int64_t>(self.height + 1) * (self.width + 1)
        self.scratch = Scratch()
        self.steps = <Step*>self.scratch.bytes_of((n_splits + 1) * <int64_t>sizeof(Step))
        self.first = self.scratch.ints(n_splits)
        self.root = self.scratch.ints(n_trees)
        cdef int32_t[::1] step_of = np.empty(np.diff(tree_start).max(initial=0), dtype=np.int32)
        for tree in range(n_trees):
            start = tree_start[tree]
            end = tree_start[tree + 1]
            split = <int32_t>((start - tree) // 2)
            self.write_steps(child[start:end], split, step_of)
            volume = self.write_boxes(
                child[start:end], split, threshold, direction, directions, step_of
            )
            largest = max(largest, volume)
            self.root[tree] = step_of[0]
        self.small = 255 * largest < 32768
        return 0

    cdef void write_steps(
        self, const int32_t[::1] child, int32_t first_split, int32_t[::1] step_of
    ) noexcept nogil:
        """Number the splits of a tree, siblings side by side; step_of[node] is -1 for a leaf."""
        cdef int32_t node, left, next = first_split
        cdef bint left_splits, right_splits
        step_of[0] = -1
        if child[0] >= 0:
            step_of[0] = next
            next += 1
        for node in range(<int32_t>child.shape[0]):
            left = child[node]
            if left < 0:
                continue
            left_splits = child[left] >= 0
            right_splits = child[left + 1] >= 0
            self.first[step_of[node]] = left
            self.steps[step_of[node]].next = (
                4 * <uint32_t>next + (not left_splits) + 2 * <uint32_t>(not right_splits)
            )
            step_of[left] = next if left_splits else -1
            next += left_splits
            step_of[left + 1] = next if right_splits else -1
            next += right_splits

    cdef int64_t write_boxes(
        self, const int32_t[::1] child, int32_t first_split, const float[::1] threshold,
        const int32_t[::1] direction, const Directions* directions, const int32_t[::1] step_of
    ) noexcept nogil:
        """Store thresholds and boxes of a tree; returns the volume of the largest box."""
        cdef int32_t n_axes = directions.grid.n_axes
        cdef int64_t split, code, largest = 1
        cdef int32_t node, corner, other, height, width
        cdef double cut
        cdef Step* step
        for node in range(<int32_t>child.shape[0]):
            if child[node] < 0:
                continue
            split = first_split + (child[node] - 1) // 2
            step = self.steps + step_of[node]
            cut = floor(threshold[split])      # the projections are whole numbers
            step.threshold = <int32_t>max(<double>INT32_MIN, min(cut, <double>INT32_MAX))
            code = direction[split]
            corner = <int32_t>code
            other = -1
            height = 1
            width = 1
            if code >= directions.n_features:
                code -= directions.n_features
                corner = directions.box_corner[code]
                other = directions.box_other[code]
                width = directions.box_size[code * n_axes + n_axes - 1]
                height = directions.box_size[code * n_axes] if n_axes == 2 else 1
                largest = max(largest, <int64_t>height * width)
            if other == corner:                # a contrast with itself is 0: an empty box
                other = -1
                height = 0
            step.one = self.position(corner)
            step.two = self.position(other) if other >= 0 else step.one
            self.has_contrasts = self.has_contrasts or step.two != step.one
            step.across = <uint16_t>width
            step.down = <uint16_t>(height * (self.width + 1))
        return largest

    cdef uint16_t position(self, int32_t corner) noexcept nogil:
        """Place in a table of the sum above and left of a feature."""
        return <uint16_t>(corner // self.width * (self.width + 1) + corner % self.width)

    cdef int64_t block_rows(self) noexcept nogil:
        """Number of rows whose tables fit into a cache together."""
        return min(<int64_t>BLOCK_ROWS, max(<int64_t>8, BLOCK_BYTES // (4 * self.size)))

    cdef void fill(self, uint32_t* sums, const uint8_t* rows, int64_t n) noexcept nogil:
        """Compute the tables of n rows: n * size entries, of 2 bytes each if `small`."""
        cdef uint16_t* small = <uint16_t*>sums
        cdef int64_t i, n_features = <int64_t>self.height * self.width
        for i in range(n):
            if self.small:
                skf_fill_u16(rows + i * n_features, self.height, self.width, small + i * self.size)
            else:
                skf_fill_u32(rows + i * n_features, self.height, self.width, sums + i * self.size)

    cdef void route(
        self, int64_t tree, const uint32_t* sums, int64_t n, int32_t* leaf
    ) noexcept nogil:
        """leaf[i] = node of the leaf of row i, for n rows."""
        cdef int32_t root = self.root[tree]
        if root < 0:
            memset(leaf, 0, <size_t>n * sizeof(int32_t))
        elif self.small:
            skf_route_u16(
                self.steps, self.first, root, <uint16_t*>sums, self.size, n,
                self.has_contrasts, leaf
            )
        else:
            skf_route_u32(
                self.steps, self.first, root, sums, self.size, n, self.has_contrasts, leaf
            )


def make_pool(arrays, n_features, n_stored):
    """Pool of the directions of a forest, where it pays; otherwise None.

    A direction is stored once per split unless splits share it. Where a forest stores more
    directions (n_stored: boxes, sparse and dense rows) than a row passes splits, no pool pays, and
    no array of splits is read: a large forest has millions of them, and this decides how long its
    first prediction takes.
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
    """The directions `is_used`, by code, that the trees of a forest share, and their nodes."""

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
        found = self.columns.get(key)
        if found is None:
            start, end = self.tree_start[first_tree], self.tree_start[last_tree]
            is_read = np.zeros(self.n_columns, dtype=bool)
            is_read[np.asarray(self.nodes)[start:end, 1]] = True
            is_read[self.n_columns - 1] = False
            # Threads that come here together keep the first one, which is never replaced.
            found = self.columns.setdefault(key, np.flatnonzero(is_read).astype(np.int32))
        return found

    cdef void fill(
        self, const int32_t[::1] columns, const Directions* directions, const Table* table,
        Unfolded* unfolded, const int64_t* offset, int64_t n, float* column, float* out
    ) noexcept nogil:
        """Project n rows on the directions of some columns; a row of `out` has n_columns entries.

        offset : IN, where each row starts in the table
        column : scratch, n
        out : OUT, projections row by row, in which a row finds all that it compares close together
        """
        cdef int64_t i, j, k
        for j in range(columns.shape[0]):
            k = columns[j]
            unfold(unfolded, directions, self.code[k], table)
            project(unfolded, table, offset, n, column)
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


def leaf_bits(arrays, int most_leaves):
    """Masks of the leaves of small trees, for `skf_route_bits`; () if a tree has more leaves.

    Returns
    -------
    low, high : ndarray of shape (n_splits + 1,), uint32
        The leaves of the tree, counted from the left, without those below the left child of a
        split: bits of leaves 0 .. 31, and 32 .. 63.
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
    cdef int64_t[::1] count = np.empty(most, dtype=np.int64)     # of the leaves below a node
    cdef int64_t[::1] start = np.empty(most, dtype=np.int64)     # the first of them
    for tree in range(n_trees):
        root = tree_start[tree]
        n = tree_start[tree + 1] - root
        first_split = (root - tree) // 2
        first_leaf = (root + tree) // 2
        for node in range(n - 1, -1, -1):        # children stand behind their parents
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


def row_splits(arrays, int64_t n_features):
    """Splits of features and mixtures in one piece each, for `skf_route_row_over_splits`.

    Returns
    -------
    splits : ndarray of shape (n_splits + 1, 12), int32
        `skf_split`, in the order of `threshold`; the last one is that of trees that are leaves.
    root : ndarray of shape (n_trees,), int32
        First split of each tree.
    """
    cdef const int64_t[::1] tree_start = arrays["tree_start"]
    cdef const int64_t[::1] sparse_start = arrays["sparse_start"]
    cdef const int32_t[::1] child = arrays["child"], direction = arrays["direction"]
    cdef const int32_t[::1] sparse_feature = arrays["sparse_feature"]
    cdef const float[::1] threshold = arrays["threshold"]
    # Without terms, weights may be in half precision.
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
