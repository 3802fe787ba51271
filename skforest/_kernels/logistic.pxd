# A hyperplane between labelled rows, by weighted logistic regression.

from libc.stdint cimport int32_t, int64_t, uint8_t

from .memory cimport Scratch
from .random cimport Random


cdef class Logistic:
    cdef object X                     # keeps `table` alive
    cdef Scratch scratch
    cdef const float* table
    cdef int64_t n_features
    cdef Random random
    cdef const uint8_t[::1] stop
    cdef int64_t work                 # entries read since the last test for signals

    # parameters
    cdef double nu
    cdef double learning_rate
    cdef double momentum
    cdef int32_t batch_size
    cdef int64_t n_visits             # rows shown in all epochs together
    cdef int32_t max_epochs
    cdef double radius

    # the labelled rows: filled by the caller, up to the number of rows of the tree
    cdef int64_t* at                  # where each starts in the table
    cdef float* side                  # 1 where it belongs to the right, -1 to the left
    cdef float* weight

    # the rows, centred and scaled: those of the table, or copies of them
    cdef int64_t n
    cdef const float* rows
    cdef int64_t p
    cdef float* mean                  # of each feature, 0 for copies, which are centred already
    cdef double scale
    cdef float* own_rows
    cdef float* node_mean             # in the table's features
    cdef double node_scale
    cdef int32_t* varying             # features that vary in the rows
    cdef int32_t n_varying
    cdef int32_t* seen                # bits of a feature that differ from the first row

    # training
    cdef float* w
    cdef double bias
    cdef float* first_w               # where training began
    cdef double first_bias
    cdef float* first_margin
    cdef float* best_w
    cdef double best_bias
    cdef double best_error
    cdef float* margin                # of every row, at the end of the last epoch
    cdef int32_t* visit               # the order of an epoch
    cdef int64_t* batch_at
    cdef float* batch_margin
    cdef float* batch_side
    cdef float* batch_weight
    cdef float* velocity
    cdef float* gradient
    cdef double bias_velocity

    cdef bint train(self, int64_t n, double* plane, double* threshold) except -1 nogil
    cdef bint prepare(self) noexcept nogil
    cdef void start(self, const double* plane, double threshold) noexcept nogil
    cdef void epoch(self, double rate) noexcept nogil
    cdef void step(self, int64_t n, double rate) noexcept nogil
    cdef void compute_margins(self, const int64_t* at, int64_t n, float* out) noexcept nogil
    cdef bint keep_best(self) noexcept nogil
