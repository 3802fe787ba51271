# Blocks of rows for loops over dense rows.

from libc.stdint cimport int32_t, int64_t, uint64_t

from .direction cimport Table
from .memory cimport Scratch

# Chosen without a stored measurement.
cdef enum:
    MAX_CHOSEN = 512        # largest number of features of a CSR matrix that a node reads
    BLOCK_ROWS = 256        # rows made dense at once


cdef class RowBlocks:
    cdef Table table
    cdef bint is_sparse

    # Result of the last `read`: row i starts at data[at[i]].
    cdef const float* data
    cdef const int64_t* at

    # The features of these rows, in increasing order: of a CSR matrix, only some.
    cdef int32_t n_features
    cdef int32_t capacity
    cdef int32_t* chosen
    cdef int32_t* position     # of each feature among the chosen ones, or -1

    # CSR matrix: the rows of a block, and one more row
    cdef float* block
    cdef int64_t* block_at
    cdef float* single

    # scratch of `choose`
    cdef double* sum
    cdef double* square
    cdef int32_t* touched
    cdef uint64_t* key
    cdef uint64_t* key_spare

    cdef int reserve(self, Scratch scratch, const Table* table) except -1
    cdef void choose(
        self, const int64_t* at, const float* weight, int64_t n, int32_t needed
    ) noexcept nogil
    cdef void read(self, const int64_t* at, int64_t n) noexcept nogil
    cdef const float* first_row(self, const int64_t* at) noexcept nogil
    cdef int64_t n_together(self, int64_t n) noexcept nogil
    cdef void copy_row(self, int64_t row, float* out) noexcept nogil
