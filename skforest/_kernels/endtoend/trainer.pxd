# End-to-end training of a soft tree.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ..base.memory cimport Scratch
from ..base.random cimport Random
from .leaves cimport SoftLeaves, Visits


cdef class SoftTrainer:
    cdef Scratch memory        # owns the arrays behind the pointers
    cdef object arrays         # arrays of the caller that pointers refer to
    cdef Random random
    cdef const uint8_t[::1] stop

    # parameters
    cdef int32_t batch_size
    cdef int engine
    cdef float smoothness
    cdef int dropped           # features of a row that are dropped, in 256
    cdef const int32_t[:, ::1] edges   # pairs of adjacent features

    # the rows, filled by the caller
    cdef const float* rows
    cdef int64_t n
    cdef int64_t p
    cdef int64_t* at           # where each row starts
    cdef float* weight         # relative to their mean
    cdef int32_t* label
    cdef double* target        # (n, n_outputs)
    cdef const float* mean     # of each feature
    cdef const float* unit     # reciprocal deviation of each feature

    # the tree
    cdef bint is_class
    cdef int32_t n_outputs
    cdef int64_t n_nodes
    cdef int64_t n_splits
    cdef int32_t* child        # left child, or -1 - leaf
    cdef float* w              # (n_splits, p)
    cdef int64_t* low          # first feature that a split may use
    cdef int64_t* span         # number of features from there to the last one
    cdef double* centre        # margin of the mean row
    cdef float* bias           # margin of a row of zeros
    cdef SoftLeaves leaves

    # Adam
    cdef float* first
    cdef float* second
    cdef double* centre_first
    cdef double* centre_second
    cdef int32_t* n_steps      # steps of each split

    # scratch of a batch
    cdef int32_t* order
    cdef int64_t* batch_at     # where the rows of the batch start
    cdef int32_t* batch_label
    cdef const float* source   # the rows: `rows`, or `noisy`
    cdef float* noisy          # rows of the batch with dropped features, (batch, row_stride)
    cdef uint8_t* noise        # random bytes for a row
    cdef double* top           # largest log density of a row
    cdef Visits visits
    cdef tuple visit_columns   # a Buffer for each array of `visits`
    cdef int64_t* first_visit  # first visit of each node
    cdef int64_t* n_visits
    cdef float* margin
    cdef int64_t* visit_at
    cdef float* slope
    cdef float* gradient
    cdef double share_visited  # share of splits that a row of the last batch visited
    cdef int64_t products      # multiplications and additions so far
    cdef int64_t polled        # products when signals were last checked
    cdef int64_t work          # since then
    cdef bint dense
    cdef int64_t batch_stride          # the batch, padded
    cdef int64_t row_stride         # the features, padded
    cdef float* batch          # (batch, row_stride)
    cdef float* transposed         # (p, batch_stride)
    cdef float* all_margins    # (n_splits, batch_stride)
    cdef float* all_slopes
    cdef float* all_gradients  # gradients of a block of splits
    cdef double* seen_gradient  # (n_splits, p + 1) during `evaluate`, otherwise NULL

    cdef int reserve(
        self, int64_t n, int64_t p, int64_t n_splits, int32_t n_outputs, bint is_class
    ) except -1
    cdef void set_bias(self, int64_t split) noexcept nogil
    cdef int reset(self) except -1 nogil
    cdef int init_leaves(self, float steepness) except -1 nogil
    cdef double epoch(self, float steepness, double rate) except? -1 nogil
    cdef double train_batch(
        self, int64_t start, int64_t size, float steepness, double rate, bint steps
    ) except? -1 nogil
    cdef int descend(self, int64_t size, float steepness) except -1 nogil
    cdef int visit_split(self, int64_t node, float steepness) except -1 nogil
    cdef void set_likelihoods(self, int64_t start, int64_t size) noexcept nogil
    cdef void drop_features(self, int64_t size) noexcept nogil
    cdef void gather(self, int64_t size) noexcept nogil
    cdef void take_step(
        self, int64_t split, float* gradient, const float* slope, int64_t n, double total,
        double rate
    ) noexcept nogil
    cdef void smooth(self, int64_t split, float* gradient, double total) noexcept nogil
    cdef int reserve_visits(self, int64_t n) except -1 nogil
    cdef int reserve_dense(self) except -1 nogil
