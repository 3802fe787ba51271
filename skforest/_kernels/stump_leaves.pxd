# The two leaves of a stump: sums of the rows on either side, leaf values, losses of the rows.

from libc.stdint cimport int32_t, int64_t

from .memory cimport Scratch

cdef enum Objective:
    CO2 = 0             # the convex-concave bound
    SOFT = 1            # the expected loss of a sigmoid split
    MIXED = 2           # either, at random for each node


cdef class StumpLeaves:
    cdef bint is_class
    cdef int32_t n_outputs     # classes, or columns of the target
    cdef int32_t n_present     # classes present in the node, or n_outputs
    cdef double smoothing
    cdef double momentum

    # The rows of the node, the training rows first.
    cdef int64_t n_train
    cdef float* weight         # relative to the mean weight
    cdef int32_t* label
    cdef double* target        # (n, n_outputs)
    cdef double train_weight
    cdef double loss_scale     # 1 / variance of the node

    # Sums over the training rows on either side.
    cdef double* left_sum      # (2, n_outputs): those of the right side follow
    cdef double* right_sum
    cdef double left_weight
    cdef double right_weight
    cdef int64_t n_left
    cdef double* last_sums     # (2, n_outputs): sums before the last call of `finish_sums`
    cdef bint has_last_sums
    cdef bint has_changed      # since then

    # Leaf values, and the losses of the rows at them.
    cdef double* left          # log shares of the classes, or means
    cdef double* right
    cdef double* velocity      # (2, n_outputs)
    cdef float* base           # loss of each row at the left leaf
    cdef float* delta          # loss at the right leaf minus that
    cdef double base_loss      # weighted sum of base
    cdef float* label_base     # base and delta of each class
    cdef float* label_delta

    cdef int reserve(
        self, Scratch scratch, int64_t n_rows, int32_t n_outputs, bint is_class
    ) except -1
    cdef void start_node(self, int64_t n_train, int32_t n_present) noexcept nogil
    cdef void clear_sums(self) noexcept nogil
    cdef void add_rows(self, const float* margin, int64_t first, int64_t n) noexcept nogil
    cdef void finish_sums(self) noexcept nogil
    cdef void sum_sides(self, const float* margin) noexcept nogil
    cdef void fit(self) noexcept nogil
    cdef void set_losses(self, int64_t first, int64_t last) noexcept nogil
    cdef void step(
        self, const float* margin, const float* delta, int64_t start, int64_t n, double total,
        double rate, int objective
    ) noexcept nogil
