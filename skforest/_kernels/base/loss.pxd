# Losses of a raw prediction, and their derivatives.

from libc.stdint cimport int64_t


cdef class LossKernel:
    cdef readonly int64_t n_outputs   # length of a raw prediction
    cdef readonly int64_t n_columns   # of a target: 1 for class numbers

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil
    cdef void block(self, const double* raw, const double* y, int64_t n, double* losses,
                    double* slopes) noexcept nogil
    cdef double rows(self, const double* raw, const double* y, int64_t n,
                     double* slopes) except? -1 nogil
    cdef void curve(self, const double* raw, const double* y, const double* slope,
                    double* curvature) noexcept nogil
