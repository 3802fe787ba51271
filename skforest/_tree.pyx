"""Traversal of packed trees: from rows to leaves and responses.

A forest is a set of flat arrays (docs/format). Tree t has the nodes ``tree_start[t]`` to
``tree_start[t + 1] - 1``, and is numbered within itself: its root is node 0. ``child[node]`` is
the left child, beside which stands the right one; a leaf has ``-1 - r`` there, where r is its row
of values. Pairs of children stand behind their parents in the order of the splits, so that the
children c and c + 1 belong to split ``(c - 1) // 2`` of their tree.

A split has a direction a, which is a code, and a threshold t. A row x goes right where ``a . x >
t``. The response adds up, tree by tree,

    response(x) = sum over the leaves of weight(leaf, x) * (value[leaf] + slope[leaf] . x)

where the weight of a leaf depends on the gate: 1 at the leaf that the row reaches (hard), the
smallest ``|a . x - t|`` on the path to it (margin), or the product of the sigmoids on the path to
any leaf. Only leaves of hard gates may have slopes, which few models use.

`Router` finds leaves in one of five ways, which give the same bits:

- node by node (`route_tree`): the rows that reach a node are projected at once and partitioned
  into its children, as in growing;
- row by row, if they are few, each through several trees side by side, if possible over copies of
  the splits that hold what a split reads in one piece (route.h);
- for trees of at most 64 leaves over features and short mixtures, by deciding all splits for 32
  rows at a time (route.h);
- for boxes of bytes, by tables of sums, in which a box of any size is four look-ups (route.pyx);
- for trees that share a few directions, over a pool, which has each row projected once on each of
  them (route.pyx).

Rows never influence each other, so that blocks of any size give the same bits.
"""

cimport cython
from libc.math cimport exp, fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

import numpy as np

from ._kernels.base.direction cimport (
    CSR, DENSE, FLOAT32, NO_DTYPE, UINT8, WEIGHTED, Directions, Table, Unfolded, as_directions,
    as_grid, as_table, box_volume, project, reserve_unfolded, unfold
)
from ._kernels.base.memory cimport Scratch
from ._kernels.predict.route cimport (
    DirectionPool, RoutedRows, Slopes, SumRouter, add_slopes, partition_rows, pop_node, push_node,
    routed_rows, sums_apply
)
from ._kernels.predict.route import leaf_bits, make_pool, row_splits

cdef extern from "predict/route.h" nogil:
    ctypedef struct skf_trees:
        const int64_t* tree_start
        const int64_t* sparse_start
        const int32_t* child
        const int32_t* direction
        const int32_t* sparse_feature
        const float* threshold
        const float* sparse_weight
        const float* dense
        int32_t n_features, n_sparse

    ctypedef struct skf_node:
        pass

    ctypedef struct skf_split:
        pass

    void skf_route_row(const skf_trees*, const float*, int64_t, int64_t, int32_t*, float*)
    void skf_route_row_over_splits(
        const skf_trees*, const skf_split*, const int32_t*, const float*, int64_t, int32_t*, float*
    )
    void skf_project_pool(
        const skf_trees*, const float*, const int32_t*, const int32_t*, int64_t, float*
    )
    void skf_route_row_over_pool(
        const float*, int64_t, const skf_node*, const int64_t*, const int32_t*, int32_t*, float*
    )
    const int SKF_BIT_ROWS, SKF_CANDIDATES
    bint skf_bits_pay()
    void skf_fill_columns(const void*, bint, int64_t, int64_t, int64_t, float*)
    void skf_route_bits(
        const skf_trees*, int64_t, const float*, const uint32_t*, const uint32_t*, const int32_t*,
        int32_t*
    )

    ctypedef struct skf_values:
        const float* value
        const int64_t* start
        const int32_t* index
        int64_t width

    void skf_add_value(const skf_values*, int32_t, double, double*)
    void skf_add_values(
        const skf_values*, const int32_t*, const int32_t*, const float*, int64_t, double*
    )
    void skf_add_values_of_trees(
        const skf_values*, const int32_t*, const int64_t*, const int32_t*, const float*, int64_t,
        double*
    )


cdef enum Gate:
    HARD = 0
    MARGIN = 1
    SIGMOID = 2

GATES = {"hard": HARD, "margin": MARGIN, "sigmoid": SIGMOID}


cdef enum:
    POOL_ROWS = 64                 # rows whose projections on a pool are in use together
    FEW_ROWS = 16                  # up to here, rows are routed one by one,
    FEW_ROWS_OF_POOL = 24          # over a pool,
    FEW_ROWS_OF_COPIES = 128       # or over copies of the splits,
    FEW_ROWS_OF_BITS = 11          # where bits of their leaves route more of them
    FEW_TREES = 64                 # whose leaves are found before their values are added
    ROWS_OF_BITS = 4               # from here on, rows may be routed by bits of leaves
    COLUMNS_PER_TREE = 4           # most features there, for each tree
    MEAN_TERMS = 8                 # most features of a mixture there, on average
    COPIED_SPLITS = 1 << 18        # most splits that are copied to route few rows, in 12 MiB


cdef skf_values as_values(arrays, int64_t n_outputs) except *:
    """Pointers to the values of a forest, which keeps the arrays alive."""
    cdef const float[::1] value = arrays["value"]
    cdef const int64_t[::1] start = arrays["value_start"]
    cdef const int32_t[::1] index = arrays["value_index"]
    cdef skf_values values
    values.value = &value[0] if value.shape[0] else NULL
    values.start = &start[0] if start.shape[0] else NULL
    values.index = &index[0] if index.shape[0] else NULL
    values.width = n_outputs
    return values


cdef Slopes as_slopes(arrays, int64_t n_outputs) except *:
    """Pointers to the slopes of a forest, which keeps the arrays alive."""
    cdef const int64_t[::1] start = arrays["slope_start"]
    cdef const int32_t[::1] feature = arrays["slope_feature"]
    cdef const float[:, ::1] slope = arrays["slope"]
    cdef Slopes slopes
    slopes.start = &start[0] if start.shape[0] else NULL
    slopes.feature = &feature[0] if feature.shape[0] else NULL
    slopes.slope = &slope[0, 0] if feature.shape[0] else NULL
    slopes.n_outputs = n_outputs
    return slopes


@cython.final
cdef class Router:
    """Packed trees, ready for prediction; `skforest.forest.Forest` checks the arrays.

    `arrays` are those of a `Forest`, C-contiguous, in the dtypes of docs/format; `grid` is
    ``(feature_shape, wrap, unordered)``; `gate` is one of `GATES`.
    """

    cdef Directions directions
    cdef readonly int32_t max_terms
    cdef Gate gate
    cdef double steepness
    cdef int32_t n_outputs
    cdef object arrays             # the pointers of `directions` point into them
    cdef const int64_t[::1] tree_start
    cdef const int32_t[::1] child
    cdef const float[::1] threshold
    cdef const int32_t[::1] direction
    cdef skf_values values
    cdef bint has_slopes
    cdef Slopes slopes
    cdef readonly DirectionPool pool
    # What some rows need, by name; see `prepared_bits`. Nothing else changes after `__init__`, so
    # that threads may call all methods at the same time.
    cdef dict prepared

    def __init__(self, arrays, n_features, n_outputs, grid, gate, steepness):
        self.arrays = arrays
        self.tree_start = arrays["tree_start"]
        self.child = arrays["child"]
        self.threshold = arrays["threshold"]
        self.direction = arrays["direction"]
        self.values = as_values(arrays, n_outputs)
        self.has_slopes = len(arrays["slope_start"]) > 0
        self.slopes = as_slopes(arrays, n_outputs)
        self.n_outputs = n_outputs
        self.gate = GATES[gate]
        self.steepness = steepness
        self.directions = as_directions(arrays, n_features, as_grid(grid[0], grid[1], grid[2]))
        # Those of the splits, not all that are stored: a view of one tree stays cheap.
        self.max_terms = self.count_terms(self.direction)
        stored = self.directions.n_boxes + self.directions.n_sparse + self.directions.n_dense
        self.pool = make_pool(arrays, n_features, stored)      # all bags share it
        self.prepared = {}

    cdef Table checked_table(self, X) except *:
        """X as kernels read it; they rely on one column for each feature."""
        cdef Table table = as_table(X)
        if table.n_features != self.directions.n_features:
            raise ValueError(
                f"X has {table.n_features} features, the trees read {self.directions.n_features}"
            )
        return table

    def apply(self, X):
        """Leaf of every row in every tree, counted from its root: (n_samples, n_trees)."""
        cdef Table table = self.checked_table(X)
        cdef int64_t n_trees = self.tree_start.shape[0] - 1
        leaves = np.empty((table.n_samples, n_trees), dtype=np.int32)
        if leaves.size:
            self.route(&table, 0, n_trees, leaves, None)
        return leaves

    def respond(
        self, X, int64_t first_tree, int64_t last_tree, double divisor=1,
        const double[::1] baseline=None,
    ):
        """Sum of leaf weight times leaf value over the trees first_tree .. last_tree - 1.

        With `baseline`, the sum divided by `divisor`, plus the baseline. X is uint8 or float32;
        the response is (n_samples, n_outputs), float64.
        """
        if self.has_slopes and X.dtype != np.float32:
            X = X.astype(np.float32)
        cdef Table table = self.checked_table(X)
        response = np.zeros((table.n_samples, self.n_outputs))
        if response.size:
            self.add_responses(&table, first_tree, last_tree, response)
            if baseline is not None:
                self.finish(divisor, baseline, response)
        return response

    def respond_bags(
        self, X, const int64_t[::1] bag_start, bint is_mean, const double[::1] baseline
    ):
        """`respond` of every bag at once, for few rows: (n_bags, n_samples, n_outputs)."""
        if self.has_slopes and X.dtype != np.float32:
            X = X.astype(np.float32)
        cdef Table table = self.checked_table(X)
        cdef int64_t bag, n_bags = bag_start.shape[0] - 1
        cdef double divisor = 1
        responses = np.zeros((n_bags, table.n_samples, self.n_outputs))
        cdef double[:, :, ::1] total = responses
        cdef bint by_rows = self.rows_are_used(&table, bag_start[n_bags] - bag_start[0])
        if by_rows and responses.size:
            self.route_by_rows(&table, &bag_start[0], n_bags, None, &total[0, 0, 0])
        for bag in range(n_bags if responses.size else 0):
            if not by_rows:
                self.add_responses(&table, bag_start[bag], bag_start[bag + 1], total[bag])
            if is_mean:
                divisor = max(bag_start[bag + 1] - bag_start[bag], 1)
            self.finish(divisor, baseline, total[bag])
        return responses

    cdef int add_responses(
        self, const Table* table, int64_t first_tree, int64_t last_tree, double[:, ::1] total
    ) except -1:
        """Add leaf weights times leaf values of some trees to `total`."""
        if self.gate == SIGMOID:
            return self.respond_soft(table, first_tree, last_tree, total)
        return self.route(table, first_tree, last_tree, None, total)

    cdef void finish(
        self, double divisor, const double[::1] baseline, double[:, ::1] total
    ) noexcept nogil:
        """From sums over trees to responses."""
        cdef int64_t i, k
        for i in range(total.shape[0]):
            for k in range(self.n_outputs):
                total[i, k] = total[i, k] / divisor + baseline[k]

    # ------------------------------------------------------------------------ five ways to a leaf

    cdef int route(
        self, const Table* table, int64_t first_tree, int64_t last_tree, int32_t[:, ::1] leaves,
        double[:, ::1] response
    ) except -1:
        """Route all rows through some trees; fill `leaves`, or add to `response` without them."""
        cdef int64_t[2] bag = [first_tree, last_tree]
        if self.rows_are_used(table, last_tree - first_tree):
            return self.route_by_rows(
                table, bag, 1, leaves, &response[0, 0] if leaves is None else NULL
            )
        if self.sums_are_used(table):
            return self.route_by_sums(table, first_tree, last_tree, leaves, response)
        if self.pool is not None:
            return self.route_over_pool(table, first_tree, last_tree, leaves, response)
        if self.bits_are_used(table, last_tree - first_tree):
            return self.route_by_bits(table, first_tree, last_tree, leaves, response)
        return self.route_by_nodes(table, first_tree, last_tree, leaves, response)

    cdef bint rows_are_used(self, const Table* table, int64_t n_trees) except -1:
        """Whether rows of float32 are routed one by one, because they are few."""
        if not (self.reads_rows() and table.dtype == FLOAT32 and self.gate != SIGMOID):
            return False
        if self.pool is not None:
            return table.n_samples <= FEW_ROWS_OF_POOL
        if not self.splits_are_copied():
            return table.n_samples <= FEW_ROWS
        if table.n_samples <= FEW_ROWS_OF_BITS:
            return True
        return table.n_samples <= FEW_ROWS_OF_COPIES and not self.bits_are_used(table, n_trees)

    cdef bint reads_rows(self) noexcept nogil:
        """Whether `skf_route_row` knows all directions: none is a box or in half precision."""
        cdef const Directions* d = &self.directions
        return d.n_boxes == 0 and d.sparse_half == NULL and d.dense_half == NULL

    cdef skf_trees as_trees(self) noexcept:
        """Pointers to the trees; `sparse_start` is not NULL, since a kernel may read its start."""
        cdef const Directions* d = &self.directions
        cdef skf_trees trees
        trees.tree_start = &self.tree_start[0]
        trees.child = &self.child[0] if self.child.shape[0] else NULL
        trees.threshold = &self.threshold[0] if self.threshold.shape[0] else NULL
        trees.direction = &self.direction[0] if self.direction.shape[0] else NULL
        trees.sparse_start = d.sparse_start if d.sparse_start != NULL else &self.tree_start[0]
        trees.sparse_feature = d.sparse_feature
        trees.sparse_weight, trees.dense = d.sparse_weight, d.dense
        trees.n_features, trees.n_sparse = d.n_features, d.n_sparse
        return trees

    cdef bint bits_are_used(self, const Table* table, int64_t n_trees) except -1:
        """Whether bits of leaves route the rows: small trees over features and short mixtures."""
        cdef const Directions* d = &self.directions
        if not (skf_bits_pay() and self.reads_rows() and table.n_samples >= ROWS_OF_BITS):
            return False
        # All features are transposed, of which a tree reads some.
        if self.gate != HARD or d.n_dense or table.dtype == CSR:
            return False
        if table.n_features > COLUMNS_PER_TREE * n_trees:
            return False
        if d.n_sparse and d.sparse_start[d.n_sparse] > MEAN_TERMS * <int64_t>d.n_sparse:
            return False
        return len(self.prepared_bits()) > 0

    cdef tuple prepared_bits(self):
        """What `leaf_bits` returns for all trees, made at the first call."""
        cdef tuple found = self.prepared.get("bits")
        if found is None:    # threads that make it together keep one: others may read it already
            found = self.prepared.setdefault("bits", leaf_bits(self.arrays, SKF_CANDIDATES))
        return found

    cdef int route_by_bits(
        self, const Table* table, int64_t first_tree, int64_t last_tree, int32_t[:, ::1] leaves,
        double[:, ::1] response
    ) except -1:
        cdef skf_trees trees = self.as_trees()
        bits = self.prepared_bits()
        cdef const uint32_t[::1] low = bits[0], high = bits[1]
        cdef const int32_t[::1] node_of_leaf = bits[2]
        cdef Scratch scratch = Scratch()
        cdef int64_t p = table.n_features, start = 0, tree, n, first_leaf
        cdef float* columns = scratch.floats(SKF_BIT_ROWS * p)
        cdef int32_t* leaf = scratch.ints(SKF_BIT_ROWS)
        cdef bint is_bytes = table.dtype == UINT8
        with nogil:
            while start < table.n_samples:
                n = min(<int64_t>SKF_BIT_ROWS, table.n_samples - start)
                skf_fill_columns(table.data, is_bytes, start, n, p, columns)
                for tree in range(first_tree, last_tree):
                    first_leaf = (self.tree_start[tree] + tree) // 2
                    skf_route_bits(
                        &trees, tree, columns, &low[0], &high[0], &node_of_leaf[first_leaf], leaf
                    )
                    self.store(tree, table, leaf, NULL, start, n, leaves, response)
                start += n
        return 0

    cdef int route_by_rows(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags,
        int32_t[:, ::1] leaves, double* response
    ) except -1:
        """Fill `leaves`, or add to the response of each bag, (n_bags, n_samples, n_outputs)."""
        cdef skf_trees trees = self.as_trees()
        cdef int32_t[FEW_TREES] leaf
        cdef float[FEW_TREES] least
        cdef float* margin = least if self.gate == MARGIN else NULL
        cdef float* projections = NULL
        cdef const float* x
        cdef int64_t i, t, bag, tree, n, n_columns = 0
        cdef Scratch scratch = Scratch()
        cdef DirectionPool pool = self.pool
        cdef const int32_t[::1] columns, root
        cdef const int32_t[:, ::1] splits
        if pool is not None and bag_start[n_bags] > bag_start[0]:
            columns = pool.columns_of(bag_start[0], bag_start[n_bags])
            n_columns = columns.shape[0]
            projections = scratch.floats(pool.n_columns)
            projections[pool.n_columns - 1] = 0
        cdef bint has_splits = pool is None and self.splits_are_copied()
        if has_splits:
            splits, root = self.prepared_splits()
        with nogil:
            for i in range(table.n_samples):
                x = <const float*>table.data + i * table.n_features
                if n_columns:
                    skf_project_pool(
                        &trees, x, &pool.code[0], &columns[0], n_columns, projections
                    )
                for bag in range(n_bags):
                    tree = bag_start[bag]
                    while tree < bag_start[bag + 1]:
                        n = min(<int64_t>FEW_TREES, bag_start[bag + 1] - tree)
                        if projections != NULL:
                            skf_route_row_over_pool(
                                projections, n, <const skf_node*>&pool.nodes[0, 0],
                                &self.tree_start[tree], &pool.depth[tree], leaf, margin
                            )
                        elif has_splits:
                            skf_route_row_over_splits(
                                &trees, <const skf_split*>&splits[0, 0], &root[tree], x, n, leaf,
                                margin
                            )
                        else:
                            skf_route_row(&trees, x, tree, n, leaf, margin)
                        if leaves is None:
                            self.add_values_of_trees(
                                tree, n, table, i, leaf, margin,
                                response + (bag * table.n_samples + i) * self.n_outputs
                            )
                        else:
                            for t in range(n):
                                leaves[i, tree + t] = leaf[t]
                        tree += n
        return 0

    cdef bint splits_are_copied(self) noexcept:
        """Whether copies of the splits route few rows: not too many, and no direction is dense."""
        return self.directions.n_dense == 0 and self.threshold.shape[0] <= COPIED_SPLITS

    cdef tuple prepared_splits(self):
        """What `row_splits` returns, made at the first call as `prepared_bits` is."""
        cdef tuple found = self.prepared.get("splits")
        if found is None:
            made = row_splits(self.arrays, self.directions.n_features)
            found = self.prepared.setdefault("splits", made)
        return found

    cdef int route_by_nodes(
        self, const Table* table, int64_t first_tree, int64_t last_tree, int32_t[:, ::1] leaves,
        double[:, ::1] response
    ) except -1:
        cdef int64_t tree, n = table.n_samples
        cdef Scratch scratch = Scratch()
        cdef RoutedRows rows = routed_rows(scratch, n)
        cdef const float* weight = rows.margin if self.gate == MARGIN else NULL
        cdef Unfolded unfolded = reserve_unfolded(scratch, self.max_terms, &self.directions.grid)
        with nogil:
            for tree in range(first_tree, last_tree):
                self.route_tree(tree, table, &unfolded, &rows)
                self.store(tree, table, rows.leaf, weight, 0, n, leaves, response)
        return 0

    cdef void route_tree(
        self, int64_t tree, const Table* table, Unfolded* unfolded, RoutedRows* rows
    ) noexcept nogil:
        """Leaf, and smallest margin on the path to it, of every row of the table.

        Depth first, left before right. The rows of a node are rows[start:end]; nodes that no row
        reaches are not visited.
        """
        cdef int64_t root = self.tree_start[tree]
        cdef int64_t first_split = (root - tree) // 2
        cdef int64_t stride = table.n_features
        cdef int32_t i, child, middle, n = <int32_t>table.n_samples
        cdef int32_t node = 0, start = 0, end = n
        cdef bint has_margins = self.gate == MARGIN
        cdef float threshold, margin
        cdef int64_t split
        for i in range(n):
            rows.row[i] = i
            rows.offset[i] = i * stride
            rows.margin[i] = 0
        while True:
            child = self.child[root + node]
            if child < 0:
                for i in range(start, end):
                    rows.leaf[rows.row[i]] = node
                if not pop_node(rows, &node, &start, &end):
                    return
                continue
            split = first_split + (child - 1) // 2
            threshold = self.threshold[split]
            unfold(unfolded, &self.directions, self.direction[split], table)
            project(unfolded, table, rows.offset + start, end - start, rows.column + start)
            if has_margins:
                for i in range(start, end):
                    margin = fabs(rows.column[i] - threshold)
                    if node == 0 or margin < rows.margin[rows.row[i]]:
                        rows.margin[rows.row[i]] = margin
            middle = partition_rows(rows, start, end, threshold)
            if middle == start:
                node = child + 1
            elif middle == end:
                node = child
            else:
                push_node(rows, child + 1, middle, end)
                node = child
                end = middle

    cdef bint sums_are_used(self, const Table* table) noexcept:
        """Whether tables of sums route these rows."""
        if table.dtype != UINT8 or self.gate != HARD:
            return False
        return sums_apply(&self.directions, self.threshold.shape[0])

    cdef SumRouter prepared_sums(self):
        """The trees as `SumRouter` stores them, made at the first call as `prepared_bits` is."""
        cdef SumRouter made, found = self.prepared.get("sums")
        if found is None:
            made = SumRouter()
            made.build(self.arrays, &self.directions)
            found = self.prepared.setdefault("sums", made)
        return found

    cdef int route_by_sums(
        self, const Table* table, int64_t first_tree, int64_t last_tree, int32_t[:, ::1] leaves,
        double[:, ::1] response
    ) except -1:
        cdef SumRouter sum_router = self.prepared_sums()
        cdef int64_t n, tree, start = 0, n_rows = table.n_samples
        cdef int64_t block = min(n_rows, sum_router.block_rows())
        cdef uint32_t[::1] sums = np.empty(block * sum_router.size, dtype=np.uint32)
        cdef int32_t[::1] leaf = np.empty(block, dtype=np.int32)
        with nogil:
            while start < n_rows:
                n = min(n_rows - start, block)
                sum_router.fill(
                    &sums[0], <const uint8_t*>table.data + start * table.n_features, n
                )
                for tree in range(first_tree, last_tree):
                    sum_router.route(tree, &sums[0], n, &leaf[0])
                    self.store(tree, table, &leaf[0], NULL, start, n, leaves, response)
                start += n
        return 0

    cdef int route_over_pool(
        self, const Table* table, int64_t first_tree, int64_t last_tree, int32_t[:, ::1] leaves,
        double[:, ::1] response
    ) except -1:
        cdef DirectionPool pool = self.pool
        cdef const int32_t[::1] columns = pool.columns_of(first_tree, last_tree)
        cdef int64_t i, n, tree, start = 0, n_rows = table.n_samples
        cdef int64_t block = min(n_rows, <int64_t>POOL_ROWS)
        cdef float[::1] projections = np.empty(block * pool.n_columns, dtype=np.float32)
        cdef Scratch scratch = Scratch()
        cdef float[::1] column = np.empty(block, dtype=np.float32)
        cdef float[::1] margins = np.empty(block, dtype=np.float32)
        cdef float* margin = &margins[0] if self.gate == MARGIN and leaves is None else NULL
        cdef int32_t[::1] leaf = np.empty(block, dtype=np.int32)
        cdef int64_t[::1] offset = np.empty(block, dtype=np.int64)
        cdef Unfolded unfolded = reserve_unfolded(scratch, self.max_terms, &self.directions.grid)
        with nogil:
            while start < n_rows:
                n = min(n_rows - start, block)
                for i in range(n):
                    offset[i] = (start + i) * table.n_features
                pool.fill(
                    columns, &self.directions, table, &unfolded, &offset[0], n, &column[0],
                    &projections[0]
                )
                for tree in range(first_tree, last_tree):
                    pool.route(
                        tree, self.tree_start[tree], &projections[0], n, &leaf[0], margin
                    )
                    self.store(tree, table, &leaf[0], margin, start, n, leaves, response)
                start += n
        return 0

    # --------------------------------------------------------------------------- values of leaves

    cdef void store(
        self, int64_t tree, const Table* table, const int32_t* leaf, const float* weight,
        int64_t start, int64_t n, int32_t[:, ::1] leaves, double[:, ::1] response
    ) noexcept nogil:
        """Store the leaves of the n rows from `start` on, or add their values to `response`."""
        cdef int64_t i
        if leaves is None:
            skf_add_values(
                &self.values, &self.child[self.tree_start[tree]], leaf, weight, n,
                &response[start, 0]
            )
            if self.has_slopes:
                self.add_linear(tree, table, leaf, start, n, &response[start, 0])
            return
        for i in range(n):
            leaves[start + i, tree] = leaf[i]

    cdef void add_linear(
        self, int64_t tree, const Table* table, const int32_t* leaf, int64_t start, int64_t n,
        double* out
    ) noexcept nogil:
        """Add the linear functions of leaves, for the n rows of a float32 table from `start`."""
        cdef int64_t i, row
        cdef const float* x = <const float*>table.data + start * table.n_features
        for i in range(n):
            row = -1 - <int64_t>self.child[self.tree_start[tree] + leaf[i]]
            add_slopes(&self.slopes, row, x + i * table.n_features, out + i * self.n_outputs)

    cdef void add_values_of_trees(
        self, int64_t tree, int64_t n, const Table* table, int64_t i, const int32_t* leaf,
        const float* weight, double* out
    ) noexcept nogil:
        """Add what row i reaches in n trees from `tree` on to its response."""
        cdef int64_t t
        if not self.has_slopes:
            skf_add_values_of_trees(
                &self.values, &self.child[0], &self.tree_start[tree], leaf, weight, n, out
            )
            return
        for t in range(n):    # weights are 1 where leaves have slopes
            skf_add_values_of_trees(
                &self.values, &self.child[0], &self.tree_start[tree + t], leaf + t, NULL, 1, out
            )
            self.add_linear(tree + t, table, leaf + t, i, 1, out)

    cdef int respond_soft(
        self, const Table* table, int64_t first_tree, int64_t last_tree, double[:, ::1] response
    ) except -1:
        """Add the values of all leaves, each times the product of the sigmoids on its path.

        With ``gate = sigmoid(steepness (a . x - t))`` a node passes ``weight (1 - gate)`` to its
        left child and ``weight gate`` to the right one.
        """
        cdef int64_t n = table.n_samples
        cdef int64_t tree, node, root, split, i, n_nodes, most = 0
        cdef Scratch scratch = Scratch()
        cdef double gate
        cdef float threshold
        cdef int32_t child
        cdef Unfolded unfolded
        for tree in range(first_tree, last_tree):
            most = max(most, self.tree_start[tree + 1] - self.tree_start[tree])
        cdef double[:, ::1] weight = np.empty((most, n), dtype=np.float64)
        cdef float[::1] column = np.empty(n, dtype=np.float32)
        cdef int64_t[::1] offset = np.arange(n, dtype=np.int64) * table.n_features
        unfolded = reserve_unfolded(scratch, self.max_terms, &self.directions.grid)
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
                            skf_add_value(&self.values, child, weight[node, i], &response[i, 0])
                        continue
                    split = (root - tree) // 2 + (child - 1) // 2
                    threshold = self.threshold[split]
                    unfold(&unfolded, &self.directions, self.direction[split], table)
                    project(&unfolded, table, &offset[0], n, &column[0])
                    for i in range(n):
                        gate = 1 / (1 + exp(-self.steepness * (<double>column[i] - threshold)))
                        weight[child, i] = weight[node, i] * (1 - gate)
                        weight[child + 1, i] = weight[node, i] * gate
        return 0

    # -------------------------------------------------------------------------------- directions

    cdef int32_t count_terms(self, const int32_t[::1] codes) noexcept nogil:
        """Most features that one of some directions reads, with repeats; at least 2."""
        cdef const Directions* d = &self.directions
        cdef int64_t i, code, most = 2
        for i in range(codes.shape[0]):
            code = codes[i] - <int64_t>d.n_features
            if code < 0:
                continue
            if code < d.n_boxes:
                # A contrast reads two boxes.
                most = max(most, 2 * box_volume(&d.grid, d.box_size + code * d.grid.n_axes))
                continue
            code -= d.n_boxes
            if code < d.n_sparse:
                most = max(most, d.sparse_start[code + 1] - d.sparse_start[code])
            elif d.dense_half != NULL:
                most = max(most, <int64_t>d.n_features)    # weights are unfolded into float32
        return <int32_t>most

    def expand(self, codes):
        """Directions as rows of a sparse matrix of shape (n, n_features): indptr, indices, data.

        Entries of a row are not sorted; those of the same feature (overlapping boxes) stand beside
        each other.
        """
        cdef const int32_t[::1] code = codes
        cdef int64_t i, filled = 0, n = code.shape[0]
        cdef int32_t t
        cdef Scratch scratch = Scratch()
        cdef Table table
        cdef Unfolded unfolded
        table.dtype = NO_DTYPE
        table.n_features = self.directions.n_features
        starts = np.zeros(n + 1, dtype=np.int64)
        cdef int64_t[::1] indptr = starts
        cdef int32_t[::1] indices
        cdef float[::1] data
        unfolded = reserve_unfolded(scratch, self.count_terms(code), &self.directions.grid)
        for i in range(n):
            unfold(&unfolded, &self.directions, code[i], &table)
            indptr[i + 1] = indptr[i] + unfolded.n
        features = np.empty(indptr[n], dtype=np.int32)
        weights = np.empty(indptr[n], dtype=np.float32)
        indices = features
        data = weights
        for i in range(n):
            unfold(&unfolded, &self.directions, code[i], &table)
            for t in range(unfolded.n):
                indices[filled] = t if unfolded.kind == DENSE else unfolded.position[t]
                data[filled] = 1
                if unfolded.kind == WEIGHTED:
                    data[filled] = unfolded.weight[t]
                elif unfolded.kind == DENSE:
                    data[filled] = unfolded.dense[t]
                filled += 1
        return starts, features, weights


# -------------------------------------------------------------------------- functions of responses


def softmax(const double[:, :] raw):
    """As `scipy.special.softmax` with axis=1, in a fraction of the time for few rows."""
    cdef int64_t i, k, n = raw.shape[1]
    cdef double shift, total
    found = np.empty((raw.shape[0], n))
    cdef double[:, ::1] out = found
    with nogil:
        for i in range(raw.shape[0]):
            shift = raw[i, 0]
            for k in range(1, n):
                shift = raw[i, k] if raw[i, k] > shift else shift
            for k in range(n):
                out[i, k] = raw[i, k] - shift
    np.exp(found, found)
    with nogil:
        for i in range(raw.shape[0]):
            total = sum_of(&out[i, 0], n)
            for k in range(n):
                out[i, k] /= total
    return found


cdef double sum_of(const double* x, int64_t n) noexcept nogil:
    """The sum in the order of NumPy, which adds eight numbers side by side."""
    cdef double[8] lane
    cdef double total = 0
    cdef int64_t i = 0, k, half = n // 2 - n // 2 % 8
    if n > 128:
        return sum_of(x, half) + sum_of(x + half, n - half)
    if n >= 8:
        for k in range(8):
            lane[k] = x[k]
        for i in range(8, n - 7, 8):
            for k in range(8):
                lane[k] += x[i + k]
        i = n - n % 8
        total = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + (
            (lane[4] + lane[5]) + (lane[6] + lane[7])
        )
    for k in range(i, n):
        total += x[k]
    return total


def mean_of_bags(const double[:, :, ::1] responses):
    """Mean over the first axis, which is added in its order; of shape (n_samples, n_outputs)."""
    cdef int64_t bag, i, k, n_bags = responses.shape[0]
    found = np.empty((responses.shape[1], responses.shape[2]))
    cdef double[:, ::1] mean = found
    for i in range(mean.shape[0]):
        for k in range(mean.shape[1]):
            mean[i, k] = responses[0, i, k]
            for bag in range(1, n_bags):
                mean[i, k] += responses[bag, i, k]
            mean[i, k] /= n_bags
    return found
