# Routing over directions that many splits share.

from libc.stdint cimport int32_t, int64_t

from .direction cimport Directions, Table, Taps


cdef class DirectionPool:
    cdef readonly int64_t n_columns      # the directions, and one column of zeros
    cdef const int32_t[::1] code         # the directions, in ascending order
    cdef const int32_t[:, ::1] nodes     # skf_node of all trees
    cdef const int32_t[::1] depth        # of each tree
    cdef object tree_start
    cdef dict columns                    # columns that a range of trees uses

    cdef const int32_t[::1] columns_of(self, int64_t first_tree, int64_t last_tree)
    cdef void fill(
        self, const int32_t[::1] columns, const Directions* directions, const Table* table,
        Taps* taps, const int64_t* offset, int64_t n, float* column, float* out
    ) noexcept nogil
    cdef void route(
        self, int64_t tree, int64_t root, const float* projections, int64_t n, int32_t* leaf,
        float* margin
    ) noexcept nogil
