# Leaves of trees whose splits and leaves are trained together.

cimport cython
from libc.stdint cimport int32_t, int64_t

from ..base.memory cimport Scratch


@cython.final
cdef class JointLeaves:
    cdef Scratch scratch
    cdef object target_array           # keeps `label` or `target` alive
    cdef bint is_class
    cdef int32_t n_outputs
    cdef int64_t n_leaves
    cdef const int32_t* label          # of each row
    cdef const double* target          # (n_rows, n_outputs)
    cdef double loss_scale             # of squared errors

    # With a loss of the user: `UserTreeLeaves`, and their losses of the rows of a batch at all
    # leaves, (n_rows, n_leaves), NULL otherwise; `place` is the current row among these.
    cdef readonly object own
    cdef object table_array
    cdef const double* table
    cdef int64_t place

    # Parameters, from leaf_start[leaf] on: of the classes leaf_class, in ascending order; the
    # classes that a leaf does not list share `other`. In regression: one per output.
    cdef readonly tuple parameters
    cdef const int64_t* leaf_start
    cdef const int32_t* leaf_class
    cdef double* theta
    cdef double* other

    cdef double* log_sum               # of exp(theta), of every leaf
    cdef double* worst                 # largest loss of a label at any leaf that lists it
    cdef double worst_other            # and at those that do not
    cdef double* low                   # smallest and largest leaf value of an output
    cdef double* high
    cdef double* step_sum              # of the rows of the batch at each leaf

    cdef int prepare(self, const int32_t* rows, int64_t n) except -1 nogil
    cdef void set_loss_scale(
        self, const float* row_weight, int64_t n_rows, int64_t n_train
    ) noexcept nogil
    cdef void set_log_sum(self, int64_t leaf) noexcept nogil
    cdef int64_t entry(self, int64_t leaf, int32_t label) noexcept nogil
    cdef double loss(self, int64_t leaf, int64_t row) noexcept nogil
    cdef void bound_losses(self) noexcept nogil
    cdef void extend_bounds(self, int64_t leaf) noexcept nogil
    cdef double worst_loss(self, int64_t row) noexcept nogil
    cdef int step(
        self, const int32_t* rows, const int32_t* leaves, const float* row_weight, int64_t n,
        double rate
    ) except -1 nogil
    cdef void lower_all(self, int64_t leaf, double step) noexcept nogil
    cdef void raise_label(self, int64_t leaf, int64_t row, double step) noexcept nogil
    cdef void move_mean(self, int64_t leaf, int64_t row, double step) noexcept nogil
