"""Packed trees, and the base class of ways to route rows through them."""

from libc.stdint cimport int32_t, int64_t

from ..base.direction cimport Directions, Table, as_directions, as_grid, box_volume

cdef extern from "predict/route.h" nogil:
    void skf_add_values(
        const Values*, const int32_t*, const int32_t*, const float*, int64_t, double*
    )
    void skf_add_values_of_trees(
        const Values*, const int32_t*, const int64_t*, const int32_t*, const float*, int64_t,
        double*
    )

GATES = {"hard": HARD, "margin": MARGIN, "sigmoid": SIGMOID}


cdef Values as_values(arrays, int64_t n_outputs) except *:
    """Return pointers to the values of a forest, which keeps the arrays alive."""
    cdef const float[::1] value = arrays["value"]
    cdef const int64_t[::1] start = arrays["value_start"]
    cdef const int32_t[::1] index = arrays["value_index"]
    cdef Values values
    values.value = &value[0] if value.shape[0] else NULL
    values.start = &start[0] if start.shape[0] else NULL
    values.index = &index[0] if index.shape[0] else NULL
    values.width = n_outputs
    return values


cdef Slopes as_slopes(arrays, int64_t n_outputs) except *:
    """Return pointers to the slopes of a forest, which keeps the arrays alive."""
    cdef const int64_t[::1] start = arrays["slope_start"]
    cdef const int32_t[::1] feature = arrays["slope_feature"]
    cdef const float[:, ::1] slope = arrays["slope"]
    cdef Slopes slopes
    slopes.start = &start[0] if start.shape[0] else NULL
    slopes.feature = &feature[0] if feature.shape[0] else NULL
    slopes.slope = &slope[0, 0] if feature.shape[0] else NULL
    slopes.n_outputs = n_outputs
    return slopes


cdef class PackedTrees:
    """The trees of a forest; nothing changes after `__init__`.

    `arrays` are the arrays of a `Forest`, which checks them, C-contiguous, in the dtypes of
    docs/format; `grid` is ``(feature_shape, wrap, unordered)``; `gate` is one of `GATES`.
    """

    def __init__(self, arrays, n_features, n_outputs, grid, gate):
        cdef const int64_t[::1] tree_start = arrays["tree_start"]
        cdef const int32_t[::1] child = arrays["child"], direction = arrays["direction"]
        cdef const float[::1] threshold = arrays["threshold"]
        cdef Directions* d = &self.directions
        cdef Arrays* at = &self.at
        self.owner = arrays
        self.n_trees = tree_start.shape[0] - 1
        self.n_splits = threshold.shape[0]
        self.n_outputs = n_outputs
        self.gate = GATES[gate]
        d[0] = as_directions(arrays, n_features, as_grid(grid[0], grid[1], grid[2]))
        self.are_rows_read = d.n_boxes == 0 and d.sparse_half == NULL and d.dense_half == NULL
        at.tree_start = &tree_start[0]
        at.child = &child[0] if child.shape[0] else NULL
        at.threshold = &threshold[0] if self.n_splits else NULL
        at.direction = &direction[0] if self.n_splits else NULL
        # A loop may read the start, so it must not be NULL.
        at.sparse_start = d.sparse_start if d.sparse_start != NULL else at.tree_start
        at.sparse_feature = d.sparse_feature
        at.sparse_weight, at.dense = d.sparse_weight, d.dense
        at.n_features, at.n_sparse = d.n_features, d.n_sparse
        self.values = as_values(arrays, n_outputs)
        self.has_slopes = len(arrays["slope_start"]) > 0
        self.slopes = as_slopes(arrays, n_outputs)
        # Count terms of splits, not of all stored directions, so that a view of a tree is cheap.
        self.max_terms = self.count_terms(direction)

    @property
    def n_directions(self):
        """int: number of stored boxes, sparse and dense rows."""
        return self.directions.n_boxes + self.directions.n_sparse + self.directions.n_dense

    cdef int32_t count_terms(self, const int32_t[::1] codes) noexcept nogil:
        """Return the largest number of features, with repeats, of some directions; at least 2."""
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

    cdef void store(
        self, int64_t tree, int64_t bag, const Table* table, const int32_t* leaf,
        const float* weight, int64_t start, int64_t n, const Output* out
    ) noexcept nogil:
        """Store the leaves of the n rows from `start` on in a tree, or add their values."""
        cdef int64_t i
        cdef double* response
        if out.leaves != NULL:
            for i in range(n):
                out.leaves[(start + i) * self.n_trees + tree] = leaf[i]
            return
        response = out.response + (bag * table.n_samples + start) * self.n_outputs
        skf_add_values(
            &self.values, self.at.child + self.at.tree_start[tree], leaf, weight, n, response
        )
        if self.has_slopes:
            self.add_linear(tree, table, leaf, start, n, response)

    cdef void store_row(
        self, int64_t tree, int64_t n, int64_t bag, const Table* table, int64_t i,
        const int32_t* leaf, const float* weight, const Output* out
    ) noexcept nogil:
        """Store the leaves of row i in n trees from `tree` on, or add their values."""
        cdef int64_t t
        cdef double* response
        if out.leaves != NULL:
            for t in range(n):
                out.leaves[i * self.n_trees + tree + t] = leaf[t]
            return
        response = out.response + (bag * table.n_samples + i) * self.n_outputs
        if not self.has_slopes:
            skf_add_values_of_trees(
                &self.values, self.at.child, self.at.tree_start + tree, leaf, weight, n, response
            )
            return
        for t in range(tree, tree + n):    # weights are 1 if leaves have slopes
            skf_add_values_of_trees(
                &self.values, self.at.child, self.at.tree_start + t, leaf, NULL, 1, response
            )
            self.add_linear(t, table, leaf, i, 1, response)
            leaf += 1

    cdef void add_linear(
        self, int64_t tree, const Table* table, const int32_t* leaf, int64_t start, int64_t n,
        double* out
    ) noexcept nogil:
        """Add the linear functions of leaves for n rows of a float32 table from `start` on."""
        cdef int64_t i, row
        cdef const float* x = <const float*>table.data + start * table.n_features
        for i in range(n):
            row = -1 - <int64_t>self.at.child[self.at.tree_start[tree] + leaf[i]]
            add_slopes(&self.slopes, row, x + i * table.n_features, out + i * self.n_outputs)


cdef class Way:
    """A way to route rows. All ways give the same bits, but their speed differs.

    Threads may call all methods at the same time.
    """

    def __init__(self, PackedTrees trees):
        self.trees, self.made = trees, {}

    def prepare(self):
        """Return the trees in the form that this way reads."""

    cdef object prepared(self):
        """Return the result of `prepare`, computed at the first call.

        Threads that compute it at once keep the first result, which others may read already.
        """
        found = self.made.get("")
        return self.made.setdefault("", self.prepare()) if found is None else found

    cdef bint applies(self, const Table* table, int64_t n_trees) except -1:
        """Return whether this way is faster than later ones for these rows and number of trees."""
        return True

    cdef int route(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, const Output* out
    ) except -1:
        """Route all rows through the trees of some bags; fill leaves, or add to responses.

        Bag b has the trees bag_start[b] .. bag_start[b + 1] - 1.
        """
        return 0
