# Packed trees, and the base class of ways to route rows through them.

from libc.stdint cimport int32_t, int64_t

from ..base.direction cimport Directions, Table

cdef extern from "predict/route.h" nogil:
    ctypedef struct Arrays "skf_trees":
        const int64_t* tree_start
        const int64_t* sparse_start
        const int32_t* child
        const int32_t* direction
        const int32_t* sparse_feature
        const float* threshold
        const float* sparse_weight
        const float* dense
        int32_t n_features, n_sparse

    ctypedef struct Values "skf_values":
        const float* value
        const int64_t* start
        const int32_t* index
        int64_t width


cdef enum Gate:
    HARD = 0
    MARGIN = 1
    SIGMOID = 2


cdef struct Slopes:
    # Linear functions of features in leaves. Row r of values has the entries start[r] to
    # start[r + 1] - 1: a feature and the slopes of all outputs along it. `start` may be NULL.
    const int64_t* start
    const int32_t* feature
    const float* slope
    int64_t n_outputs


cdef inline void add_slopes(
    const Slopes* slopes, int64_t value_row, const float* x, double* out
) noexcept nogil:
    """out += the linear function of a row of values, at the features x."""
    cdef int64_t j, k
    cdef double total
    if slopes.n_outputs == 1:  # the sum stays in a register
        total = out[0]
        for j in range(slopes.start[value_row], slopes.start[value_row + 1]):
            total += <double>slopes.slope[j] * x[slopes.feature[j]]
        out[0] = total
        return
    for j in range(slopes.start[value_row], slopes.start[value_row + 1]):
        for k in range(slopes.n_outputs):
            out[k] += <double>slopes.slope[j * slopes.n_outputs + k] * x[slopes.feature[j]]


cdef struct Output:
    # The destination of results: one of the two, and the other is NULL.
    int32_t* leaves            # (n_samples, n_trees), filled
    double* response           # (n_bags, n_samples, n_outputs), added to


cdef class PackedTrees:
    cdef object owner          # owner of the arrays
    cdef readonly int32_t max_terms    # largest number of terms of an unfolded direction
    cdef int64_t n_trees
    cdef int64_t n_splits
    cdef int32_t n_outputs
    cdef Gate gate
    cdef Directions directions
    cdef bint are_rows_read    # no direction is a box or has half precision
    cdef Arrays at
    cdef Values values
    cdef bint has_slopes
    cdef Slopes slopes

    cdef int32_t count_terms(self, const int32_t[::1] codes) noexcept nogil
    cdef void store(
        self, int64_t tree, int64_t bag, const Table* table, const int32_t* leaf,
        const float* weight, int64_t start, int64_t n, const Output* out
    ) noexcept nogil
    cdef void store_row(
        self, int64_t tree, int64_t n, int64_t bag, const Table* table, int64_t i,
        const int32_t* leaf, const float* weight, const Output* out
    ) noexcept nogil
    cdef void add_linear(
        self, int64_t tree, const Table* table, const int32_t* leaf, int64_t start, int64_t n,
        double* out
    ) noexcept nogil


cdef class Way:
    cdef PackedTrees trees
    cdef dict made             # see `prepared`

    cdef object prepared(self)
    cdef bint applies(self, const Table* table, int64_t n_trees) except -1
    cdef int route(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, const Output* out
    ) except -1
