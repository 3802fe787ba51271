"""The two leaves of a stump: sums of the rows on either side, leaf values, losses of the rows.

A leaf predicts log shares of the classes, or mean targets. With n_k the weight of class k on one
side, K classes and smoothing e, the best parameters are

    log (n_k + e) - log (sum_k n_k + K e)    or    sum_i w_i y_i / sum_i w_i

(e keeps the logarithm finite). The loss of a row at a leaf is its log loss, or its squared error
in units of the variance of the node. `base` is the loss at the left leaf and `delta` the loss at
the right leaf minus that, which is all that the hyperplane between them is trained on.
"""

from libc.math cimport exp, log
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy, memset

from .memory cimport Scratch

cdef extern from "descent.h" nogil:
    void skf_dot(const float*, const float*, int64_t, float*)
    void skf_label_losses(
        const int32_t*, int64_t, const float*, const float*, float*, float*
    )
    int64_t skf_weigh_labels(
        const float*, const int32_t*, const float*, int64_t, int64_t, double*
    )

cdef enum:
    BLOCK = 256             # losses added up in float32


cdef class StumpLeaves:
    """Leaves of one stump after the other.

    `reserve` is called once. For each node the caller sets `weight`, `label` or `target`, and
    `loss_scale`, and calls `start_node`.
    """

    cdef int reserve(
        self, Scratch scratch, int64_t n_rows, int32_t n_outputs, bint is_class
    ) except -1:
        """Reserve memory for nodes of up to n_rows rows."""
        self.n_outputs = n_outputs
        self.is_class = is_class
        self.weight = scratch.floats(n_rows)
        self.label = scratch.ints(n_rows)
        if not is_class:
            self.target = scratch.doubles(n_rows * n_outputs)
        self.left_sum = scratch.doubles(2 * n_outputs)
        self.right_sum = self.left_sum + n_outputs
        self.last_sums = scratch.doubles(2 * n_outputs)
        self.left = scratch.doubles(n_outputs)
        self.right = scratch.doubles(n_outputs)
        self.velocity = scratch.doubles(2 * n_outputs)
        self.base = scratch.floats(n_rows)
        self.delta = scratch.floats(n_rows)
        self.label_base = scratch.floats(n_outputs)
        self.label_delta = scratch.floats(n_outputs)
        return 0

    cdef void start_node(self, int64_t n_train, int32_t n_present) noexcept nogil:
        """Start a node whose first n_train rows are those that train."""
        cdef int64_t i
        self.n_train = n_train
        self.n_present = n_present
        self.has_last_sums = False
        self.train_weight = 0
        for i in range(n_train):
            self.train_weight = self.train_weight + self.weight[i]
        memset(self.velocity, 0, 2 * self.n_outputs * sizeof(double))

    cdef void clear_sums(self) noexcept nogil:
        self.n_left = self.n_train
        self.right_weight = 0
        memset(self.left_sum, 0, 2 * self.n_outputs * sizeof(double))

    cdef void add_rows(self, const float* margin, int64_t first, int64_t n) noexcept nogil:
        """Add n training rows to the side of their margin."""
        cdef int64_t i, row
        cdef int32_t k
        cdef double* side
        if self.is_class:
            self.n_left -= skf_weigh_labels(
                margin, self.label + first, self.weight + first, n, self.n_outputs,
                self.left_sum
            )
            return
        for i in range(n):
            row = first + i
            side = self.left_sum
            if margin[i] > 0:
                side = self.right_sum
                self.n_left -= 1
                self.right_weight += self.weight[row]
            for k in range(self.n_outputs):
                side[k] += self.weight[row] * self.target[row * self.n_outputs + k]

    cdef void finish_sums(self) noexcept nogil:
        """Set the weights of both sides and `has_changed`, once all rows have been added."""
        cdef int32_t k
        cdef size_t size = 2 * self.n_outputs * sizeof(double)
        if self.is_class:
            self.left_weight = 0
            for k in range(self.n_present):
                self.left_weight += self.left_sum[k]
                self.right_weight += self.right_sum[k]
        else:
            self.left_weight = self.train_weight - self.right_weight
        self.has_changed = (
            not self.has_last_sums or memcmp(self.left_sum, self.last_sums, size) != 0
        )
        self.has_last_sums = True
        if self.has_changed:
            memcpy(self.last_sums, self.left_sum, size)

    cdef void sum_sides(self, const float* margin) noexcept nogil:
        """Sum up the targets of the training rows on either side."""
        self.clear_sums()
        self.add_rows(margin, 0, self.n_train)
        self.finish_sums()

    cdef void fit(self) noexcept nogil:
        """Set both leaves to their optimum: smoothed log shares of the classes, or means."""
        cdef int32_t k
        cdef double pseudo = self.smoothing
        cdef double left, right
        if self.is_class:
            left = log(self.left_weight + self.n_present * pseudo)
            right = log(self.right_weight + self.n_present * pseudo)
            for k in range(self.n_present):
                self.left[k] = log(self.left_sum[k] + pseudo) - left
                self.right[k] = log(self.right_sum[k] + pseudo) - right
            return
        for k in range(self.n_outputs):
            if self.left_weight > 0:
                self.left[k] = self.left_sum[k] / self.left_weight
            if self.right_weight > 0:
                self.right[k] = self.right_sum[k] / self.right_weight

    cdef void set_losses(self, int64_t first, int64_t last) noexcept nogil:
        """Set the losses of rows first .. last - 1 at either leaf."""
        cdef int64_t i, size
        cdef int32_t k
        cdef float part = 0
        cdef double y, left, right
        if self.is_class:
            for k in range(self.n_present):
                self.label_base[k] = <float>-self.left[k]
                self.label_delta[k] = <float>(self.left[k] - self.right[k])
            skf_label_losses(
                self.label + first, last - first, self.label_base, self.label_delta,
                self.base + first, self.delta + first
            )
        else:
            for i in range(first, last):
                left = 0
                right = 0
                for k in range(self.n_outputs):
                    y = self.target[i * self.n_outputs + k]
                    left += (y - self.left[k]) * (y - self.left[k])
                    right += (y - self.right[k]) * (y - self.right[k])
                left *= self.loss_scale
                right *= self.loss_scale
                self.base[i] = <float>left
                self.delta[i] = <float>(right - left)
        self.base_loss = 0
        while first < last:
            size = min(<int64_t>BLOCK, last - first)
            skf_dot(self.base + first, self.weight + first, size, &part)
            self.base_loss = self.base_loss + part
            first += size

    cdef void step(
        self, const float* margin, const float* delta, int64_t start, int64_t n, double total,
        double rate, int objective
    ) noexcept nogil:
        """Move both leaves by a gradient step with momentum.

        The batch is n training rows from `start` on; it continues at row 0 after the last one.
        The bound is the larger of two terms, one per leaf, so a row has a gradient at one leaf
        only (algorithm 1 of the paper); the soft loss has one at both. Log shares are normalised
        after the step, which changes neither losses nor gradients. Means move in units of the
        deviation of the node, in which the scale of the loss cancels.
        """
        cdef int64_t i
        cdef int64_t row
        cdef int32_t k, side
        cdef double right, share, slope
        cdef double* leaf
        cdef double* velocity
        for k in range(2 * self.n_outputs):
            self.velocity[k] = self.velocity[k] * self.momentum
        for i in range(n):
            row = start + i if start + i < self.n_train else start + i - self.n_train
            if objective == SOFT:
                right = 1 / (1 + exp(-2 * <double>margin[i]))
            else:
                right = 2 * margin[i] + delta[i] > 0
            for side in range(2):
                share = (right if side else 1 - right) * self.weight[row] / total
                if share == 0:
                    continue
                leaf = self.right if side else self.left
                velocity = self.velocity + side * self.n_outputs
                for k in range(self.n_present):
                    if self.is_class:
                        slope = exp(leaf[k]) - (k == self.label[row])
                    else:
                        slope = 2 * (leaf[k] - self.target[row * self.n_outputs + k])
                    velocity[k] += share * slope
        for side in range(2):
            leaf = self.right if side else self.left
            velocity = self.velocity + side * self.n_outputs
            share = 0
            for k in range(self.n_present):
                leaf[k] -= rate * velocity[k]
                if self.is_class:
                    share += exp(leaf[k])
            if self.is_class:
                for k in range(self.n_present):
                    leaf[k] -= log(share)
