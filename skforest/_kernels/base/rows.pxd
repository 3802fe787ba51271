# Batches of rows for stochastic gradient descent.

from libc.stdint cimport int32_t, int64_t

from .random cimport Random


cdef class BatchSampler:
    cdef const double[::1] copies  # mean number of copies of each row in an epoch
    cdef int32_t[::1] order        # rows of this epoch
    cdef int64_t n_order, next_row

    cdef void draw(self, Random* random, int32_t* rows, int64_t n) noexcept nogil
    cdef void start_epoch(self, Random* random) noexcept nogil
