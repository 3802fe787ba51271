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

    # With a loss of the user: `UserTreeLeaves`, and the losses of a batch at all leaves,
    # (n_rows, n_leaves), otherwise NULL; `place` is the position of the current row.
    cdef readonly object own
    cdef object table_array
    cdef const double* table
    cdef int64_t place

    # Parameters, from leaf_start[leaf] on, of the classes leaf_class, ascending; the classes that
    # a leaf does not list share `other`. In regression, there is one per output.
    cdef readonly tuple parameters
    cdef const int64_t* leaf_start
    cdef const int32_t* leaf_class
    cdef double* theta
    cdef double* other

    cdef double* log_sum               # log of the sum of exp(theta), for every leaf
    cdef double* worst                 # largest loss of a label at any leaf that lists it
    cdef double worst_other            # largest loss at leaves that do not list it
    cdef double* low                   # smallest and largest leaf value of an output
    cdef double* high
    cdef double* step_sum              # sum over the rows of the batch at each leaf

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
