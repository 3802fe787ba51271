# Nodes that are split by a hyperplane over their rows.

from libc.stdint cimport int32_t

from ..base.direction cimport Unfolded
from ..base.stump cimport NodeRows, Plane
from ..search.search cimport SearchSplitter


cdef class PlaneSplitter(SearchSplitter):
    cdef NodeRows rows         # rows of the node
    cdef float* direction      # the hyperplane in the features of `rows`
    cdef Unfolded trained      # its nonzero weights, for `project`
    cdef float threshold
    cdef int32_t max_weights   # largest number of weights; 0: no limit

    cdef int reserve_rows(self, double row_norm, int32_t max_weights) except -1
    cdef void project_trained(self, const Plane* plane) noexcept nogil
    cdef bint is_stored_sparse(self) noexcept nogil
    cdef void collect_weights(self) noexcept nogil
    cdef void project_blocks(self) noexcept nogil
    cdef int32_t store_trained(self) except -1 nogil
