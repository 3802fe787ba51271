# Visits of nodes by the rows of a batch, and the leaves of a soft tree.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ..base.memory cimport Scratch

cdef extern from "endtoend/sigmoids.h" nogil:
    ctypedef struct Visits "skf_visits":
        int64_t n
        int64_t capacity
        int32_t* row
        float* reach
        float* gate
        float* likelihood
        float* part
        int32_t* left
        int32_t* right


@cython.final
cdef class SoftLeaves:
    cdef Scratch memory        # owns the arrays behind the pointers
    cdef bint is_class
    cdef int32_t n_outputs
    cdef int64_t n_leaves
    cdef bint is_unset         # no leaf has a value yet

    # values: shares of classes, or means and variances
    cdef float* share          # (n_leaves, n_outputs)
    cdef double* mean
    cdef double* precision
    cdef double* log_scale     # log density at the mean, without a constant
    cdef double* least_variance

    # sums over rows since the last update
    cdef double* weight
    cdef double* sum
    cdef double* square

    cdef void reset(
        self, const double* target, const float* weight, int64_t n, int32_t n_outputs,
        int64_t n_leaves
    ) noexcept nogil
    cdef void likelihoods(
        self, Visits* visits, int64_t leaf, int64_t first, int64_t n, const int32_t* label,
        const double* target, const int32_t* rows, double* top
    ) noexcept nogil
    cdef double log_density(self, int64_t leaf, const double* y) noexcept nogil
    cdef void add(
        self, const Visits* visits, int64_t leaf, int64_t first, int64_t n, const int32_t* label,
        const double* target, const int32_t* rows
    ) noexcept nogil
    cdef void update(self) noexcept nogil


cdef int grow_visits(Visits* visits, tuple columns, int64_t n) except -1
