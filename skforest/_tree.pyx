"""How rows walk through packed trees.

A split asks ``a . x > t``. `Router` takes a block of rows through a tree node by node: the rows
that reach a node are projected at once and parted into its two children, as in growing. There are
two faster ways with the same turns: for boxes of bytes, tables of sums (_sums.pyx); and for trees
that share a few directions, a `Pool` that projects the rows on each of these once. Rows never
influence each other, so blocks of any size give the same bits.
"""

from libc.math cimport exp, fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

from ._kernels.direction cimport (
    DENSE,
    NO_DTYPE,
    UINT8,
    WEIGHTED,
    Directions,
    Table,
    Taps,
    alloc_taps,
    as_directions,
    as_grid,
    as_table,
    free_taps,
    project,
    unfold,
)
from ._kernels.sums cimport SumWalker, sums_apply

cdef extern from "walk.h" nogil:
    ctypedef struct skf_node:
        float threshold
        uint32_t column, child

    void skf_walk_pool(const float*, int64_t, int64_t, const skf_node*, int32_t, int32_t*, float*)
    void skf_add_values(
        const float*, int64_t, const int32_t*, const int32_t*, const float*, int64_t, double*
    )


cdef enum Gate:
    HARD = 0
    MARGIN = 1
    SIGMOID = 2

GATES = {"hard": HARD, "margin": MARGIN, "sigmoid": SIGMOID}


cdef enum:
    POOL_ROWS = 64                 # that are projected on a pool together


cdef class Pool:
    """The directions that some trees share, and their nodes as `skf_walk_pool` reads them.

    Parameters
    ----------
    tree_start : ndarray of shape (n_trees + 1,), int64
        Of the trees, from 0 on.
    child : ndarray of shape (n_nodes,), int32
    threshold : ndarray of shape (n_splits,), float32
    direction : ndarray of shape (n_splits,), int32
    """

    cdef int64_t size              # directions, and a column of zeros
    cdef const int32_t[::1] code   # the directions
    cdef const int32_t[:, ::1] nodes    # threshold (the bits of a float32), column, child
    cdef const int32_t[::1] depth  # of the trees

    def __init__(self, tree_start, const int32_t[::1] child, threshold, direction):
        code, column = np.unique(direction, return_inverse=True)
        self.code = code
        self.size = len(code) + 1
        n_nodes = np.diff(tree_start)
        root = tree_start[:len(n_nodes)]
        first_split = (root - np.arange(len(n_nodes))) // 2
        inner = np.asarray(child) > 0
        split = ((np.asarray(child) - 1) // 2 + np.repeat(first_split, n_nodes))[inner]
        nodes = np.empty((len(child), 3), dtype=np.int32)
        nodes[:, 0] = np.array(np.inf, dtype=np.float32).view(np.int32)
        nodes[:, 1] = len(code)
        nodes[:, 2] = np.arange(len(child)) - np.repeat(root, n_nodes)
        nodes[inner, 0] = threshold.view(np.int32)[split]
        nodes[inner, 1] = column[split]
        nodes[inner, 2] = np.asarray(child)[inner]
        self.nodes = nodes
        self.depth = np.maximum.reduceat(_levels(tree_start, child), root)

    cdef void fill(
        self, const Directions* directions, const Table* table, Taps* taps, const int64_t* offset,
        int64_t n, float* column, float* out
    ) noexcept nogil:
        """Projections of n rows on all directions, row by row."""
        cdef int64_t i, k
        for k in range(self.size - 1):
            unfold(taps, directions, self.code[k], table)
            project(taps, table, offset, n, column)
            for i in range(n):
                out[i * self.size + k] = column[i]
        for i in range(n):
            out[i * self.size + self.size - 1] = 0


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


cdef int alloc_walk(Walk* walk, int64_t n) except -1 nogil:
    memset(walk, 0, sizeof(Walk))
    walk.row = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.spare_row = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.spare_offset = <int64_t*>malloc(<size_t>(n + 1) * sizeof(int64_t))
    walk.offset = <int64_t*>malloc(<size_t>(n + 1) * sizeof(int64_t))
    walk.column = <float*>malloc(<size_t>(n + 1) * sizeof(float))
    walk.margin = <float*>malloc(<size_t>(n + 1) * sizeof(float))
    walk.leaf = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.stack_node = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.stack_start = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.stack_end = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    if not (
        walk.row and walk.spare_row and walk.offset and walk.spare_offset and walk.column and
        walk.margin and walk.leaf and walk.stack_node and walk.stack_start and walk.stack_end
    ):
        free_walk(walk)
        with gil:
            raise MemoryError()
    return 0


cdef void free_walk(Walk* walk) noexcept nogil:
    free(walk.row)
    free(walk.spare_row)
    free(walk.spare_offset)
    free(walk.offset)
    free(walk.column)
    free(walk.margin)
    free(walk.leaf)
    free(walk.stack_node)
    free(walk.stack_start)
    free(walk.stack_end)


cdef class Router:
    """Packed trees, ready to walk. `skforest.forest.Forest` makes one and checks its arrays.

    Parameters
    ----------
    arrays : Mapping of str to ndarray
        The arrays of a `Forest`, validated, C-contiguous, in the dtypes of docs/format.
    n_features, n_outputs : int
    grid : tuple
        ``(feature_shape, wrap, unordered)``.
    max_taps : int
        Room that the longest direction needs once unfolded.
    gate : {"hard", "margin", "sigmoid"}
    steepness : float
        Of the sigmoid gate.
    """

    cdef Directions directions
    cdef readonly int32_t max_taps
    cdef Gate gate
    cdef double steepness
    cdef int32_t n_outputs
    cdef bint dense_values
    cdef object keep               # the arrays that the pointers look into
    cdef const int64_t[::1] tree_start
    cdef const int32_t[::1] child
    cdef const float[::1] threshold
    cdef const int32_t[::1] direction
    cdef const float[::1] value
    cdef const int64_t[::1] value_start
    cdef const int32_t[::1] value_index
    cdef SumWalker sum_walker      # made when bytes are asked for the first time
    cdef dict pools                # of ranges of trees, made when they are asked

    def __init__(self, arrays, n_features, n_outputs, grid, max_taps, gate, steepness):
        self.keep = arrays
        self.tree_start = arrays["tree_start"]
        self.child = arrays["child"]
        self.threshold = arrays["threshold"]
        self.direction = arrays["direction"]
        self.value = arrays["value"]
        self.value_start = arrays["value_start"]
        self.value_index = arrays["value_index"]
        self.dense_values = self.value_start.shape[0] == 0
        self.n_outputs = n_outputs
        self.max_taps = max_taps
        self.gate = GATES[gate]
        self.steepness = steepness
        self.directions = as_directions(arrays, n_features, as_grid(grid[0], grid[1], grid[2]))
        self.pools = {}

    def apply(self, X):
        """Leaf of every row of X in every tree.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features), uint8 or float32, C order

        Returns
        -------
        leaves : ndarray of shape (n_samples, n_trees), int32
            Node numbers, counted from the root of each tree.
        """
        cdef Table table = as_table(X)
        cdef int64_t n_trees = self.tree_start.shape[0] - 1
        cdef int64_t i, tree, n = table.n_samples
        leaves = np.empty((n, n_trees), dtype=np.int32)
        cdef int32_t[:, ::1] out = leaves
        cdef Walk walk
        cdef Taps taps
        if n == 0 or n_trees == 0:
            return leaves
        if self.use_sums(&table):
            self.run_sums(&table, 0, n_trees, out, None)
            return leaves
        if self.use_pool(0, n_trees):
            self.run_pool(&table, 0, n_trees, out, None)
            return leaves
        memset(&taps, 0, sizeof(Taps))
        alloc_walk(&walk, n)
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            with nogil:
                for tree in range(n_trees):
                    self.walk(tree, &table, &taps, &walk)
                    for i in range(n):
                        out[i, tree] = walk.leaf[i]
        finally:
            free_walk(&walk)
            free_taps(&taps)
        return leaves

    def respond(self, X, int64_t first_tree, int64_t last_tree):
        """Sum over some trees of leaf weight times leaf value.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features), uint8 or float32, C order
        first_tree, last_tree : int
            The trees first_tree .. last_tree - 1 take part, in this order.

        Returns
        -------
        response : ndarray of shape (n_samples, n_outputs), float64
        """
        cdef Table table = as_table(X)
        cdef int64_t tree, n = table.n_samples
        cdef const float* weight
        response = np.zeros((n, self.n_outputs), dtype=np.float64)
        cdef double[:, ::1] out = response
        cdef Walk walk
        cdef Taps taps
        if n == 0 or self.n_outputs == 0:
            return response
        if self.gate == SIGMOID:
            self.respond_soft(&table, first_tree, last_tree, out)
            return response
        if self.use_sums(&table):
            self.run_sums(&table, first_tree, last_tree, None, out)
            return response
        if self.use_pool(first_tree, last_tree):
            self.run_pool(&table, first_tree, last_tree, None, out)
            return response
        memset(&taps, 0, sizeof(Taps))
        alloc_walk(&walk, n)
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            with nogil:
                for tree in range(first_tree, last_tree):
                    self.walk(tree, &table, &taps, &walk)
                    weight = walk.margin if self.gate == MARGIN else NULL
                    self.add_values(tree, walk.leaf, weight, n, &out[0, 0])
        finally:
            free_walk(&walk)
            free_taps(&taps)
        return response

    cdef bint use_sums(self, const Table* table) except -1:
        """Walk by tables of sums? The walker is made when it is wanted for the first time."""
        if table.dtype != UINT8 or self.gate != HARD:
            return False
        if not sums_apply(&self.directions, self.threshold.shape[0]):
            return False
        cdef SumWalker walker
        if self.sum_walker is None:
            walker = SumWalker()
            walker.build(self.keep, &self.directions)
            self.sum_walker = walker
        return True

    cdef int run_sums(
        self, const Table* table, int64_t first_tree, int64_t last_tree, int32_t[:, ::1] leaves,
        double[:, ::1] out
    ) except -1:
        """Walk by tables of sums; fill `leaves`, or add to `out` where there are no leaves."""
        cdef SumWalker walker = self.sum_walker
        cdef int64_t i, n, tree, start = 0, n_rows = table.n_samples
        cdef int64_t block = min(n_rows, walker.block_rows())
        cdef bint wanted = leaves is not None
        cdef uint32_t[::1] sums = np.empty(block * walker.size, dtype=np.uint32)
        cdef int32_t[::1] leaf = np.empty(block, dtype=np.int32)
        with nogil:
            while start < n_rows:
                n = min(n_rows - start, block)
                walker.fill(
                    &sums[0], <const uint8_t*>table.data + start * table.n_features, n
                )
                for tree in range(first_tree, last_tree):
                    walker.walk(tree, &sums[0], n, &leaf[0])
                    if wanted:
                        for i in range(n):
                            leaves[start + i, tree] = leaf[i]
                    else:
                        self.add_values(tree, &leaf[0], NULL, n, &out[start, 0])
                start += n
        return 0

    cdef bint use_pool(self, int64_t first_tree, int64_t last_tree) except -1:
        """Do these trees have fewer directions than a row has splits to pass?"""
        key = (first_tree, last_tree)
        if key not in self.pools:
            start = np.asarray(self.tree_start)[first_tree:last_tree + 1]
            n_passed = np.log2((np.diff(start) + 1) / 2).sum()
            first = (start[0] - first_tree) // 2
            last = (start[last_tree - first_tree] - last_tree) // 2
            direction = np.asarray(self.direction)[first:last]
            pool = None
            # Features on their own are walked without being projected.
            if len(direction) and (direction >= self.directions.n_features).any():
                if len(np.unique(direction)) <= n_passed:
                    child = np.asarray(self.child)[start[0]:start[last_tree - first_tree]]
                    threshold = np.asarray(self.threshold)[first:last]
                    pool = Pool(start - start[0], child, threshold, direction)
            self.pools[key] = pool
        return self.pools[key] is not None

    cdef int run_pool(
        self, const Table* table, int64_t first_tree, int64_t last_tree, int32_t[:, ::1] leaves,
        double[:, ::1] out
    ) except -1:
        """Walk by a pool; fill `leaves`, or add to `out` where there are no leaves."""
        cdef Pool pool = self.pools[(first_tree, last_tree)]
        cdef int64_t i, n, tree, root, start = 0, n_rows = table.n_samples
        cdef int64_t first_node = self.tree_start[first_tree]
        cdef int64_t block = min(n_rows, <int64_t>POOL_ROWS)
        cdef bint wanted = leaves is not None
        cdef bint margins = self.gate == MARGIN and not wanted
        cdef float[::1] projected = np.empty(block * pool.size, dtype=np.float32)
        cdef float[::1] column = np.empty(block, dtype=np.float32)
        cdef float[::1] margin = np.empty(block, dtype=np.float32)
        cdef int32_t[::1] leaf = np.empty(block, dtype=np.int32)
        cdef int64_t[::1] offset = np.empty(block, dtype=np.int64)
        cdef Taps taps
        memset(&taps, 0, sizeof(Taps))
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            with nogil:
                while start < n_rows:
                    n = min(n_rows - start, block)
                    for i in range(n):
                        offset[i] = (start + i) * table.n_features
                    pool.fill(
                        &self.directions, table, &taps, &offset[0], n, &column[0], &projected[0]
                    )
                    for tree in range(first_tree, last_tree):
                        root = self.tree_start[tree] - first_node
                        skf_walk_pool(
                            &projected[0], pool.size, n, <const skf_node*>&pool.nodes[root, 0],
                            pool.depth[tree - first_tree], &leaf[0],
                            &margin[0] if margins else NULL
                        )
                        if wanted:
                            for i in range(n):
                                leaves[start + i, tree] = leaf[i]
                        else:
                            self.add_values(
                                tree, &leaf[0], &margin[0] if margins else NULL, n, &out[start, 0]
                            )
                    start += n
        finally:
            free_taps(&taps)
        return 0

    cdef void walk(self, int64_t tree, const Table* table, Taps* taps, Walk* walk) noexcept nogil:
        """Leaf, and smallest margin on the way to it, of every row of the block."""
        cdef int64_t root = self.tree_start[tree]
        cdef int64_t first_split = (root - tree) // 2
        cdef int64_t stride = table.n_features
        cdef int32_t i, node, child, start, end, middle, depth = 0
        cdef int32_t n = <int32_t>table.n_samples
        cdef bint margins = self.gate == MARGIN
        cdef float threshold, margin
        cdef int64_t split
        for i in range(n):
            walk.row[i] = i
            walk.offset[i] = i * stride
            walk.margin[i] = 0
        node = 0
        start = 0
        end = n
        while True:
            child = self.child[root + node]
            if child < 0:
                for i in range(start, end):
                    walk.leaf[walk.row[i]] = node
                if depth == 0:
                    return
                depth -= 1
                node = walk.stack_node[depth]
                start = walk.stack_start[depth]
                end = walk.stack_end[depth]
                continue
            split = first_split + (child - 1) // 2
            threshold = self.threshold[split]
            unfold(taps, &self.directions, self.direction[split], table)
            project(taps, table, walk.offset + start, end - start, walk.column + start)
            if margins:
                for i in range(start, end):
                    margin = fabs(walk.column[i] - threshold)
                    if node == 0 or margin < walk.margin[walk.row[i]]:
                        walk.margin[walk.row[i]] = margin
            middle = part_rows(walk, start, end, threshold)
            if middle == start:
                node = child + 1
            elif middle == end:
                node = child
            else:
                walk.stack_node[depth] = child + 1
                walk.stack_start[depth] = middle
                walk.stack_end[depth] = end
                depth += 1
                node = child
                end = middle

    cdef void add_values(
        self, int64_t tree, const int32_t* leaf, const float* weight, int64_t n, double* out
    ) noexcept nogil:
        """out += weight * value of the leaf, of n rows; without weights, 1."""
        cdef int64_t i
        if self.dense_values:
            skf_add_values(
                &self.value[0], self.n_outputs, &self.child[self.tree_start[tree]], leaf, weight,
                n, out
            )
        else:
            for i in range(n):
                self.add_value(
                    tree, leaf[i], 1 if weight == NULL else weight[i], out + i * self.n_outputs
                )

    cdef inline void add_value(
        self, int64_t tree, int32_t leaf, double weight, double* out
    ) noexcept nogil:
        """out += weight * value of a leaf."""
        cdef int64_t row = -1 - <int64_t>self.child[self.tree_start[tree] + leaf]
        cdef int64_t j, start
        if self.dense_values:
            start = row * self.n_outputs
            for j in range(self.n_outputs):
                out[j] += weight * self.value[start + j]
        else:
            for j in range(self.value_start[row], self.value_start[row + 1]):
                out[self.value_index[j]] += weight * self.value[j]

    cdef int respond_soft(
        self, const Table* table, int64_t first_tree, int64_t last_tree, double[:, ::1] out
    ) except -1:
        """Every leaf answers, weighted by the product of the gates on its path."""
        cdef int64_t n = table.n_samples
        cdef int64_t tree, node, root, split, i, n_nodes, most = 0
        cdef double gate
        cdef float threshold
        cdef int32_t child
        cdef Taps taps
        for tree in range(first_tree, last_tree):
            most = max(most, self.tree_start[tree + 1] - self.tree_start[tree])
        cdef double[:, ::1] weight = np.empty((most, n), dtype=np.float64)
        cdef float[::1] column = np.empty(n, dtype=np.float32)
        cdef int64_t[::1] offset = np.arange(n, dtype=np.int64) * table.n_features
        memset(&taps, 0, sizeof(Taps))
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            with nogil:
                for tree in range(first_tree, last_tree):
                    root = self.tree_start[tree]
                    n_nodes = self.tree_start[tree + 1] - root
                    for i in range(n):
                        weight[0, i] = 1
                    for node in range(n_nodes):
                        child = self.child[root + node]
                        if child < 0:
                            for i in range(n):
                                self.add_value(tree, <int32_t>node, weight[node, i], &out[i, 0])
                            continue
                        split = (root - tree) // 2 + (child - 1) // 2
                        threshold = self.threshold[split]
                        unfold(&taps, &self.directions, self.direction[split], table)
                        project(&taps, table, &offset[0], n, &column[0])
                        for i in range(n):
                            gate = 1 / (1 + exp(-self.steepness * (<double>column[i] - threshold)))
                            weight[child, i] = weight[node, i] * (1 - gate)
                            weight[child + 1, i] = weight[node, i] * gate
        finally:
            free_taps(&taps)
        return 0

    def expand(self, codes):
        """Write directions out as rows of a sparse matrix.

        Parameters
        ----------
        codes : ndarray of shape (n,), int32

        Returns
        -------
        indptr, indices, data : ndarray
            CSR arrays of the matrix of shape (n, n_features), float32; entries of a row are not
            sorted, and entries of the same feature (overlapping boxes) stand beside each other.
        """
        cdef const int32_t[::1] code = codes
        cdef int64_t i, filled = 0, n = code.shape[0]
        cdef int32_t t
        cdef Table table
        cdef Taps taps
        table.dtype = NO_DTYPE
        table.n_features = self.directions.n_features
        memset(&taps, 0, sizeof(Taps))
        starts = np.zeros(n + 1, dtype=np.int64)
        cdef int64_t[::1] indptr = starts
        cdef int32_t[::1] indices
        cdef float[::1] data
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            for i in range(n):
                unfold(&taps, &self.directions, code[i], &table)
                indptr[i + 1] = indptr[i] + taps.n
            features = np.empty(indptr[n], dtype=np.int32)
            weights = np.empty(indptr[n], dtype=np.float32)
            indices = features
            data = weights
            for i in range(n):
                unfold(&taps, &self.directions, code[i], &table)
                for t in range(taps.n):
                    indices[filled] = t if taps.kind == DENSE else taps.position[t]
                    data[filled] = 1
                    if taps.kind == WEIGHTED:
                        data[filled] = taps.weight[t]
                    elif taps.kind == DENSE:
                        data[filled] = taps.dense[t]
                    filled += 1
        finally:
            free_taps(&taps)
        return starts, features, weights
