"""Columns of some rows of a CSR matrix, for the search among many directions.

In a row of a CSR matrix, an entry is found by bisection. A node that tries many directions on the
same rows sorts the entries by features once, and then reads only the entries of a direction,

    out[i] = sum over terms t, in their order, of weight[t] * x_i[position[t]],

with the same result as `project`, because terms of 0 change no sum.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from ..base.direction cimport ONE, Table, Unfolded
from ..base.memory cimport Buffer, Scratch

cdef enum:
    # Chosen without a stored measurement; it affects only time.
    BISECTION = 8    # entries that are sorted in the time of one bisection


cdef class SampleColumns:
    """The columns of one sample after another; `reserve` is called once."""

    cdef int reserve(self, Scratch scratch, const Table* table) except -1:
        self.table = table[0]
        self.n_entries = scratch.ints(table.n_features)
        self.end = scratch.longs(table.n_features)
        self.touched = scratch.ints(table.n_features)
        self.row = Buffer(sizeof(int32_t))
        self.entry = Buffer(sizeof(float))
        return 0

    cdef int load(self, const int64_t* offset, int64_t n, int64_t n_columns) except -1 nogil:
        """Sort the entries of n rows by features, if this pays for n_columns bisections per row.

        offset : IN, row number times n_features of each row
        """
        cdef int64_t i, row, first, total = 0
        cdef int32_t t, j, e
        cdef const int32_t* start = self.table.row_start
        cdef int32_t* n_entries = self.n_entries
        cdef int64_t* end = self.end
        for t in range(self.n_touched):
            n_entries[self.touched[t]] = 0
        self.n_touched = 0
        self.n = n
        for i in range(n):
            row = offset[i] // self.table.n_features
            total += start[row + 1] - start[row]
        self.is_loaded = total <= n_columns * n * BISECTION
        if not self.is_loaded:
            return 0
        if total > self.row.capacity:
            self.row.reserve(total)
            self.entry.reserve(total)
        for i in range(n):
            row = offset[i] // self.table.n_features
            for e in range(start[row], start[row + 1]):
                j = self.table.column[e]
                if n_entries[j] == 0:
                    self.touched[self.n_touched] = j
                    self.n_touched = self.n_touched + 1
                n_entries[j] += 1
        first = 0
        for t in range(self.n_touched):
            j = self.touched[t]
            end[j] = first
            first += n_entries[j]
        for i in range(n):
            row = offset[i] // self.table.n_features
            for e in range(start[row], start[row + 1]):
                j = self.table.column[e]
                (<int32_t*>self.row.data)[end[j]] = <int32_t>i
                (<float*>self.entry.data)[end[j]] = (<const float*>self.table.data)[e]
                end[j] += 1
        return 0

    cdef bint project(self, const Unfolded* unfolded, float* out) noexcept nogil:
        """Project the sample on a direction of single features; False if all projections are 0.

        out : OUT, n; not set if all are 0
        """
        cdef int32_t t, j
        cdef int64_t e
        cdef float weight
        cdef bint has_entries = False
        cdef const int32_t* row = <const int32_t*>self.row.data
        cdef const float* entry = <const float*>self.entry.data
        for t in range(unfolded.n):
            has_entries = has_entries or self.n_entries[unfolded.position[t]] > 0
        if not has_entries:
            return False
        memset(out, 0, self.n * sizeof(float))
        for t in range(unfolded.n):
            j = unfolded.position[t]
            weight = 1 if unfolded.kind == ONE else unfolded.weight[t]
            for e in range(self.end[j] - self.n_entries[j], self.end[j]):
                out[row[e]] = out[row[e]] + weight * entry[e]
        return True
