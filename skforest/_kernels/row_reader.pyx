"""Standardised rows of a table, copied one at a time into dense scratch.

Training by batches reads a few rows per step. Those of a dense table are standardised beforehand.
Those of a CSR matrix are standardised when they are copied,

    out[j] = (x[j] - mean[j]) * factor[j],

in float64, rounded to float32, so that the whole table is never dense.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy

import numpy as np

from .direction cimport CSR, as_table


cpdef RowReader as_reader(table):
    """The table itself if it is a RowReader, or one of a dense table."""
    return table if isinstance(table, RowReader) else RowReader(table)


cdef class RowReader:
    """Reads a dense table, (n_rows, n_columns), float32, or a CSR matrix with `mean` and `factor`.

    `mean` and `factor` are of shape (n_columns,), float64.
    """

    def __init__(self, table, mean=None, factor=None):
        self.n_rows, self.n_columns = table.shape
        if not hasattr(table, "indptr"):
            self.rows = table
            return
        self.arrays = table
        self.table = as_table(table)
        self.mean, self.factor = mean, factor
        self.of_zeros = ((0.0 - mean) * factor).astype(np.float32)

    cdef void copy(self, int64_t row, float* out) noexcept nogil:
        """Copy one row to `out`, (n_columns,)."""
        cdef const float* entry = <const float*>self.table.data
        cdef int32_t k, j
        if self.table.dtype != CSR:
            memcpy(out, &self.rows[row, 0], self.n_columns * sizeof(float))
            return
        memcpy(out, &self.of_zeros[0], self.n_columns * sizeof(float))
        for k in range(self.table.row_start[row], self.table.row_start[row + 1]):
            j = self.table.column[k]
            out[j] = <float>((<double>entry[k] - self.mean[j]) * self.factor[j])
