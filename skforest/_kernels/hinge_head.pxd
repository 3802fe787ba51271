# The head of a random hinge forest.

from libc.stdint cimport int64_t

from .hinge_features cimport Stepper


cdef class HingeHead:
    # parameters, and the state of the optimiser: (n_trees, width), with 0 in the padding
    cdef float[:, ::1] weights, weights_mean, weights_power
    cdef int64_t n_trees, width

    # of a batch: responses of trees, and the derivatives by them, (n_trees, n_rows)
    cdef float[:, ::1] responses, slopes
    cdef float[:, ::1] g_transposed, gradient

    cdef void clear(self, int64_t n) noexcept nogil
    cdef void apply(self, float* out, int64_t n) noexcept nogil
    cdef void backpropagate(self, const float* g, int64_t n_outputs, int64_t n) noexcept nogil
    cdef void step(self, const Stepper* stepper) noexcept nogil
