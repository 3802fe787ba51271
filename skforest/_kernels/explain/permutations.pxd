# The game of one tree, played in the order of permutations.

from libc.stdint cimport int32_t, int64_t, uint64_t

from .game cimport Node, TreeGame


cdef class SampledGame(TreeGame):
    cdef int64_t n_pairs
    cdef const double* of_z               # projections of z
    cdef int64_t pair                     # number of the pair of rows
    cdef int64_t* touched_by              # last pair that depends on a player
    cdef int32_t* touched
    cdef int32_t n_touched
    cdef int32_t* order
    cdef double* total                    # sums over pairs of permutations
    cdef double* squares
    cdef double* leaf_value
    cdef double* next_value
    cdef int32_t* path                    # nodes from the root to a leaf,
    cdef int32_t* side                    # the side to which each sends the mixture,
    cdef double* path_value               # and its projections

    cdef void sample(self, uint64_t seed) noexcept nogil
    cdef void follow(self) noexcept nogil
    cdef int64_t descend(self, int32_t node, int32_t level, int32_t* depth) noexcept nogil
    cdef void touch(self, int32_t player) noexcept nogil
    cdef void evaluate_leaf(self, int64_t row, double* value) noexcept nogil
    cdef void add_sample(self, double* out, double* variance, double scale) noexcept nogil
