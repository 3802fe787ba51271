# Routing rows of bytes through trees of boxes by tables of sums.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from .direction cimport Directions
from .memory cimport Scratch

cdef extern from "sums.h" nogil:
    ctypedef struct Step "skf_step":
        uint16_t one
        uint16_t two
        uint16_t across
        uint16_t down
        int32_t threshold
        uint32_t next


cdef bint sums_apply(const Directions* directions, int64_t n_splits) noexcept nogil


cdef class SumRouter:
    cdef Scratch scratch
    cdef int height, width
    cdef int64_t size              # entries of one table
    cdef bint small                # no box adds up to 2^15: the tables are uint16
    cdef Step* steps               # the splits of all trees
    cdef int32_t* first            # left child of every split
    cdef int32_t* root             # split at the root of every tree, -1 where it is a leaf

    cdef int build(self, arrays, const Directions* directions) except -1
    cdef void write_steps(
        self, const int32_t[::1] child, int32_t first_split, int32_t[::1] step_of
    ) noexcept nogil
    cdef int64_t write_boxes(
        self, const int32_t[::1] child, int32_t first_split, const float[::1] threshold,
        const int32_t[::1] direction, const Directions* directions, const int32_t[::1] step_of
    ) noexcept nogil
    cdef uint16_t position(self, int32_t corner) noexcept nogil
    cdef int64_t block_rows(self) noexcept nogil
    cdef void fill(self, uint32_t* sums, const uint8_t* rows, int64_t n) noexcept nogil
    cdef void route(
        self, int64_t tree, const uint32_t* sums, int64_t n, int32_t* leaf
    ) noexcept nogil
