# The features that tests of hinge trees read, and the head after the trees.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ..base.row_reader cimport RowReader
from .margins cimport Stepper, Test


cpdef int64_t padded(int64_t n) noexcept nogil


@cython.final
cdef class HingeFeatures:
    # parameters, and the state of the optimiser
    cdef float[:, ::1] direction, direction_mean, direction_power
    cdef const int32_t[:, ::1] receptive_fields
    cdef double[::1] mean, variance
    cdef double[::1] least         # the smallest variance of each feature, see `reset_statistics`
    cdef int64_t[::1] counts

    # sizes, in floats; widths include the padding
    cdef int64_t n_columns, n_patches, patch_size
    cdef int64_t patch_width       # learned features of a patch
    cdef int64_t linear_width      # learned features of all patches
    cdef int64_t width             # all features
    cdef int64_t block             # rows of z
    cdef int64_t batch_size
    cdef bint is_convolution       # several patches
    cdef bint copies_patches       # patches are parts of the rows

    # scratch of a batch
    cdef float[:, ::1] x, patches, z, columns, dz, gradient, kernels
    cdef float[::1] centre, unit, sum, square

    cdef void set_units(self) noexcept nogil
    cdef void clear_sums(self) noexcept nogil
    cdef void update_statistics(self, int64_t n) noexcept nogil
    cdef void load(self, RowReader table, int64_t start, int64_t n) noexcept nogil
    cdef void project(self, int64_t start, int64_t n) noexcept nogil
    cdef void standardize(self, int64_t n) noexcept nogil
    cdef void clear_gradient(self, int64_t n) noexcept nogil
    cdef void add_gradient(
        self, const Test* tests, const int32_t* test, const float* slope, int64_t n
    ) noexcept nogil
    cdef void step(self, const Stepper* stepper, int64_t n) noexcept nogil
    cdef void reduce_gradient(self, int64_t n) noexcept nogil


@cython.final
cdef class HingeHead:
    # parameters, and the state of the optimiser: (n_trees, width), with 0 in the padding
    cdef float[:, ::1] weights, weights_mean, weights_power
    cdef int64_t n_trees, width

    # responses of trees to a batch, and the derivatives by them, (n_trees, n_rows)
    cdef float[:, ::1] responses, slopes
    cdef float[:, ::1] g_transposed, gradient

    cdef void clear(self, int64_t n) noexcept nogil
    cdef void apply(self, float* out, int64_t n) noexcept nogil
    cdef void backpropagate(self, const float* g, int64_t n_outputs, int64_t n) noexcept nogil
    cdef void step(self, const Stepper* stepper) noexcept nogil
