"""Blocks of rows for loops over dense rows.

Rows of a dense table are read in place. Rows of a CSR matrix are made dense, a block at a time, in
scratch memory that does not grow with the table: a node reads at most MAX_CHOSEN features, those
with the largest variance over its rows. If a table has no more features, loops see the same
numbers as for a dense table, and add them in the same order.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from .direction cimport CSR, Table
from .memory cimport Scratch, allocate

cdef extern from "base/columns.h" nogil:
    uint64_t skf_sort_key(float, uint32_t)
    void skf_sort(uint64_t*, uint64_t*, int64_t)


cdef class RowBlocks:
    """The rows of a table; `reserve` is called once, and `choose` for every node."""

    cdef int reserve(self, Scratch scratch, const Table* table) except -1:
        cdef int32_t j, p = table.n_features
        self.table = table[0]
        self.is_sparse = table.dtype == CSR
        self.n_features = p
        self.capacity = min(p, <int32_t>MAX_CHOSEN) if self.is_sparse else p
        if not self.is_sparse:
            self.data = <const float*>table.data
            return 0
        self.chosen = scratch.ints(self.capacity)
        self.position = scratch.ints(p)
        self.block = scratch.floats(<int64_t>BLOCK_ROWS * self.capacity)
        self.block_at = scratch.longs(BLOCK_ROWS)
        self.single = scratch.floats(self.capacity)
        if p <= MAX_CHOSEN:
            for j in range(p):
                self.chosen[j] = self.position[j] = j
            return 0
        self.n_features = 0
        memset(self.position, 255, p * sizeof(int32_t))     # -1: not chosen
        self.touched = scratch.ints(p)
        allocate[double](scratch, p, [&self.sum, &self.square, NULL])
        self.key = <uint64_t*>scratch.longs(p)
        self.key_spare = <uint64_t*>scratch.longs(p)
        return 0

    cdef void choose(
        self, const int64_t* at, const float* weight, int64_t n, int32_t needed
    ) noexcept nogil:
        """Choose `needed` and the features with the largest variance over the n rows of a node.

        at, weight : IN, as for `NodeRows.load`
        """
        cdef int64_t i, row
        cdef int32_t t, j, e, n_touched = 0
        cdef double x, mean, variance
        cdef const float* entry = <const float*>self.table.data
        cdef double* sum = self.sum
        cdef double* square = self.square
        if not self.is_sparse or self.table.n_features <= MAX_CHOSEN:
            return
        for t in range(self.n_features):
            self.position[self.chosen[t]] = -1
        for i in range(n):
            row = at[i] // self.table.n_features
            for e in range(self.table.row_start[row], self.table.row_start[row + 1]):
                j = self.table.column[e]
                x = entry[e]
                if self.position[j] < 0:
                    self.position[j] = 0
                    self.touched[n_touched] = j
                    n_touched += 1
                sum[j] += weight[i] * x
                square[j] += weight[i] * x * x
        for t in range(n_touched):
            j = self.touched[t]
            mean = sum[j] / n
            variance = INFINITY if j == needed else square[j] / n - mean * mean
            self.key[t] = skf_sort_key(<float>-variance, t)
            self.position[j] = -1
            sum[j] = square[j] = 0
        self.n_features = min(n_touched, self.capacity)
        if n_touched > self.capacity:
            skf_sort(self.key, self.key_spare, n_touched)
        # The features of the first keys, in increasing order.
        for t in range(self.n_features):
            self.key[t] = <uint64_t>self.touched[self.key[t] & <uint64_t>0xFFFFFFFF] << 32 | t
        skf_sort(self.key, self.key_spare, self.n_features)
        for t in range(self.n_features):
            self.chosen[t] = <int32_t>(self.key[t] >> 32)
            self.position[self.chosen[t]] = t

    cdef int64_t n_together(self, int64_t n) noexcept nogil:
        """Return how many of n rows one call of `read` takes."""
        return min(n, <int64_t>BLOCK_ROWS) if self.is_sparse else n

    cdef void read(self, const int64_t* at, int64_t n) noexcept nogil:
        """Set `data` and `at` to n <= `n_together` rows that start at `at`."""
        cdef int64_t i
        if not self.is_sparse:
            self.at = at
            return
        for i in range(n):
            self.block_at[i] = i * self.n_features
            self.copy_row(at[i] // self.table.n_features, self.block + self.block_at[i])
        self.data, self.at = self.block, self.block_at

    cdef const float* first_row(self, const int64_t* at) noexcept nogil:
        """Return the row that starts at at[0]; it is valid until the next call."""
        if not self.is_sparse:
            return self.data + at[0]
        self.copy_row(at[0] // self.table.n_features, self.single)
        return self.single

    cdef void copy_row(self, int64_t row, float* out) noexcept nogil:
        cdef int32_t e, k
        memset(out, 0, self.n_features * sizeof(float))
        for e in range(self.table.row_start[row], self.table.row_start[row + 1]):
            k = self.position[self.table.column[e]]
            if k >= 0:
                out[k] = (<const float*>self.table.data)[e]
