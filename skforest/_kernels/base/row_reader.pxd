# Standardised rows of a table, copied one at a time.

from libc.stdint cimport int64_t

from .direction cimport Table


cpdef RowReader as_reader(table)


cdef class RowReader:
    cdef object arrays                # owner of the memory behind `table`
    cdef Table table
    cdef const float[:, ::1] rows     # a dense table
    cdef const double[::1] mean       # of a CSR matrix
    cdef const double[::1] factor
    cdef float[::1] of_zeros          # what a row without entries becomes
    cdef readonly int64_t n_rows
    cdef readonly int64_t n_columns

    cdef void copy(self, int64_t row, float* out) noexcept nogil
