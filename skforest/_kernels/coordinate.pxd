# Oblique splits by coordinate descent.

from libc.stdint cimport int32_t

from .search cimport Cut, SearchSplitter
from .split cimport Sample


cdef class CoordinateSplitter(SearchSplitter):
    cdef int32_t n_restarts
    cdef int32_t n_jumps

    # a plane over the rows that are searched; a row is right where its margin is positive
    cdef double* w
    cdef double* margin
    cdef double score          # of its split
    cdef float* direction      # of a start or a jump
    cdef float* along          # projection of the rows on the direction

    # the best plane of all starts
    cdef double* best_w
    cdef double best_score

    cdef bint start_random(self, Sample* sample) noexcept nogil
    cdef bint start_at(self, Sample* sample) noexcept nogil
    cdef bint cut_direction(self, Sample* sample, Cut* cut) noexcept nogil
    cdef void set_taps(self) noexcept nogil
    cdef bint descend(self, Sample* sample) except -1 nogil
    cdef bint move_weights(self, Sample* sample, bint* moved) except -1 nogil
    cdef bint move_along(self, Sample* sample) noexcept nogil
    cdef void draw_direction(self) noexcept nogil
    cdef void add_direction(self, double amount, double shrink) noexcept nogil
    cdef double ideal_score(self, const Sample* sample) noexcept nogil
    cdef void keep_best(self) noexcept nogil
