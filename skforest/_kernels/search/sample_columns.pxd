# Columns of some rows of a CSR matrix.

from libc.stdint cimport int32_t, int64_t

from ..base.direction cimport Table, Unfolded
from ..base.memory cimport Buffer, Scratch


cdef class SampleColumns:
    cdef Table table
    cdef bint is_loaded
    cdef int64_t n
    cdef int32_t* n_entries    # number of entries of each feature
    cdef int64_t* end          # end of the entries of each feature
    cdef int32_t* touched      # features that have entries
    cdef int32_t n_touched
    cdef Buffer row            # row of every entry in the sample
    cdef Buffer entry

    cdef int reserve(self, Scratch scratch, const Table* table) except -1
    cdef int load(self, const int64_t* offset, int64_t n, int64_t n_columns) except -1 nogil
    cdef bint project(self, const Unfolded* unfolded, float* out) noexcept nogil
