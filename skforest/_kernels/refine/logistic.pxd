# A hyperplane between labelled rows, by weighted logistic regression.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ..base.direction cimport Table
from ..base.limit cimport WeightLimit
from ..base.memory cimport Scratch
from ..base.random cimport Random
from ..base.stump cimport NodeRows, Plane


cdef class Logistic:
    cdef object X                     # keeps `table` alive
    cdef Scratch scratch
    cdef Table table
    cdef Random random
    cdef const uint8_t[::1] stop
    cdef int64_t work                 # entries read since the last test for signals

    # parameters
    cdef double learning_rate
    cdef int32_t batch_size
    cdef int64_t n_visits             # number of rows shown in all epochs
    cdef int32_t max_epochs

    # the labelled rows: filled by the caller, up to the number of rows of the tree; `rows.at` has
    # their starts in the table
    cdef NodeRows rows
    cdef float* side                  # 1 if it belongs to the right, -1 to the left
    cdef float* weight

    # training
    cdef int64_t n
    cdef Plane plane
    cdef Plane first_plane            # start of training
    cdef Plane best_plane
    cdef double best_error
    cdef float* first_margin
    cdef float* margin                # margin of every row at the end of the last epoch
    cdef int32_t* visit               # the order of an epoch
    cdef int64_t* batch_at
    cdef float* batch_margin
    cdef float* batch_side
    cdef float* batch_weight
    cdef float* direction             # the hyperplane in the features of the table
    cdef WeightLimit limit

    cdef bint train(self, int64_t n, double* plane, double* threshold) except -1 nogil
    cdef void start(self, const double* plane, double threshold) noexcept nogil
    cdef void epoch(self, double rate) noexcept nogil
    cdef void step(self, int64_t n, double rate) noexcept nogil
    cdef bint keep_best(self) noexcept nogil
