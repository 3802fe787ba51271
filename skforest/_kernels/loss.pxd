# Losses of a response, and their derivatives.

from libc.stdint cimport int64_t


cdef class Loss:
    cdef readonly int64_t n_outputs
    cdef readonly int64_t n_columns

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil
