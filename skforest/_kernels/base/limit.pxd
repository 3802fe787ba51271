# At most some weights of a hyperplane, while it is trained.

from libc.stdint cimport int32_t, int64_t

from .memory cimport Scratch
from .stump cimport NodeRows, Plane


cdef class WeightLimit:
    cdef int32_t most          # weights that may differ from 0 in the end; 0: no limit
    cdef bint is_reached       # has the hyperplane at most this many?
    cdef int64_t p             # numbers of a row of the node
    cdef int64_t n_free        # features that vary in the node
    cdef int64_t n_support
    cdef int32_t* support      # positions of weights that may differ from 0
    cdef float* kept           # weights and velocities of these
    cdef float* spread         # of the rows of the node in each feature
    cdef float* largest        # scratch

    cdef int reserve(self, Scratch scratch, int32_t most, int64_t n_features) except -1
    cdef void start(self, NodeRows rows) noexcept nogil
    cdef int64_t after(self, int64_t done, int64_t n_epochs) noexcept nogil
    cdef void restrict(
        self, NodeRows rows, const float* weight, int64_t n_rows, Plane* plane, int64_t n
    ) noexcept nogil
    cdef void clear_others(self, Plane* plane) noexcept nogil
