# Samplers of directions.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ..base.direction cimport Grid, Table, Unfolded
from ..base.memory cimport Scratch
from ..base.random cimport Random


cdef enum Kind:
    FEATURE = 0
    BOX = 1
    SPARSE = 2
    PLANE = 3         # a weight for every feature


cdef struct Candidate:
    # A direction that a node tries; its arrays are long enough for the longest direction.
    Kind kind
    int32_t feature
    int32_t corner
    int32_t other
    int32_t* size
    uint8_t* subset
    int32_t n
    int32_t* features
    float* weights


cdef class Sampler:
    cdef Grid grid
    cdef int32_t n_features
    cdef readonly int32_t max_terms    # largest number of terms of an unfolded direction
    cdef readonly int32_t max_nonzero  # largest number of weights of a sparse direction or plane

    cdef int reserve_candidate(self, Scratch scratch, Candidate* candidate) except -1
    cdef void start_node(self) noexcept nogil
    cdef bint sample(self, Random* random, Candidate* out) noexcept nogil
    cdef void unfold(
        self, const Candidate* candidate, const Table* table, Unfolded* unfolded
    ) noexcept nogil


cdef class AxisSampler(Sampler):
    cdef int32_t[::1] features         # a permutation; the first n_drawn have been drawn
    cdef int32_t n_drawn


cdef class SparseSampler(Sampler):
    cdef double mean
    cdef bint fixed
    cdef const float[::1] scale
    cdef const int32_t[::1] features   # features to draw from


cdef class GaussianSampler(Sampler):
    pass


cdef class BoxSampler(Sampler):
    cdef int32_t[::1] smallest
    cdef int32_t[::1] largest
    cdef int32_t[::1] items            # scratch: a permutation of an unordered axis
    cdef int contrast
    cdef bint inside
    cdef int reach

    cdef void draw_subset(self, Random* random, int axis, Candidate* out) noexcept nogil
    cdef int32_t draw_along(
        self, Random* random, int axis, int n_boxes, int32_t* size
    ) noexcept nogil
    cdef int edge_axis(self, Random* random) noexcept nogil
    cdef bint is_single_entry(self, const Candidate* out) noexcept nogil


cdef class BallSampler(Sampler):
    cdef const int32_t[::1] start      # of the neighbours of each feature
    cdef const int32_t[::1] neighbour
    cdef int32_t smallest              # steps
    cdef int32_t largest
    cdef int contrast
    cdef int32_t reach
    # scratch
    cdef int64_t visit                 # number of the current visit
    cdef int64_t[::1] visited          # number of the last visit of each feature
    cdef int32_t[::1] order            # features by their distance from the last centre
    cdef int32_t[::1] end              # of those at most 0, 1, .. steps away
    cdef float[::1] weight             # of each feature; 0 between two draws

    cdef int32_t walk(self, int32_t centre, int32_t n_steps) noexcept nogil
    cdef void subtract(self, int32_t centre, int32_t steps, Candidate* out) noexcept nogil


cdef bint is_rounding(
    const Unfolded* a, const Table* table, const int64_t* offset, const float* column, int64_t n,
    float low, float high, double largest
) noexcept nogil
