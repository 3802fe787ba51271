# Features of a random hinge forest: learned inner products, and columns of the table.

from libc.stdint cimport int32_t, int64_t


cdef extern from "hinge.h" nogil:
    ctypedef struct Test "skf_test":
        float threshold
        int32_t feature

    # Coefficients of a step of an optimiser.
    ctypedef struct Stepper "skf_stepper":
        int32_t kind
        float rate, decay, momentum
        float first, second, unbias_first, unbias_second


cpdef int64_t padded(int64_t n) noexcept nogil


cdef class HingeFeatures:
    # parameters, and the state of the optimiser
    cdef float[:, ::1] direction, direction_mean, direction_power
    cdef const int32_t[:, ::1] receptive_fields
    cdef double[::1] mean, variance
    cdef int64_t[::1] counts

    # sizes, in floats; widths include the padding
    cdef int64_t n_columns, n_patches, n_taps
    cdef int64_t patch_width       # learned features of a patch
    cdef int64_t linear_width      # learned features of all patches
    cdef int64_t width             # all features
    cdef int64_t block             # rows of z
    cdef int64_t batch_size
    cdef bint is_convolution       # patches are copied out of the rows

    # scratch of a batch
    cdef float[:, ::1] x, patches, z, dz, gradient, kernels
    cdef float[::1] centre, unit, sum, square

    cdef void set_units(self) noexcept nogil
    cdef void load(self, const float[:, ::1] table, int64_t start, int64_t n) noexcept nogil
    cdef void project(self, int64_t start, int64_t n) noexcept nogil
    cdef void standardize(self, int64_t n) noexcept nogil
    cdef void clear_sums(self) noexcept nogil
    cdef void update_statistics(self, int64_t n) noexcept nogil
    cdef void clear_gradient(self, int64_t n) noexcept nogil
    cdef void add_gradient(
        self, const Test* tests, const int32_t* test, const float* slope, int64_t n
    ) noexcept nogil
    cdef void step(self, const Stepper* stepper, int64_t n) noexcept nogil
    cdef void reduce_gradient(self, int64_t n) noexcept nogil
