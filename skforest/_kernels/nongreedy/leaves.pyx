"""Leaves of a tree whose splits and leaves are trained together; see trainer.pyx.

A leaf with parameters theta has the loss (Norouzi et al. 2015b, equations 2 and 3)

    -theta[y] + log(sum over k of exp(theta[k]))      of a row of class y
    |y - theta|^2 / variance of the target            of a row of target y

If there are many classes, most leaves of a deep tree have few of them. Therefore, a leaf lists its
classes, and all others share one parameter. Gradient steps keep this form: classes that are not
listed move together.
"""

from libc.math cimport INFINITY, exp, fabs, log
from libc.stdint cimport int32_t, int64_t

import numpy as np

from ..base.memory cimport Scratch, allocate


cdef class JointLeaves:
    """Parameters of the leaves of one tree, and the target of its rows.

    `target` has class numbers, (n_rows,), or regression targets, (n_rows, n_outputs). `own` are
    `UserTreeLeaves` with a loss of the user, or None.
    """

    def __init__(self, target, int32_t n_outputs, int64_t n_leaves, own=None):
        cdef const int32_t[::1] labels
        cdef const double[:, ::1] matrix
        self.target_array = target
        self.is_class = target.ndim == 1
        if self.is_class:
            labels = target
            self.label = &labels[0]
        else:
            matrix = target
            self.target = &matrix[0, 0]
        self.n_outputs = n_outputs
        self.n_leaves = n_leaves
        self.loss_scale = 1
        self.own = own
        self.scratch = Scratch()
        allocate[double](self.scratch, n_leaves, [&self.log_sum, &self.step_sum, NULL])
        allocate[double](self.scratch, n_outputs, [&self.worst, &self.low, &self.high, NULL])

    def set_parameters(self, start, label, theta, other):
        """Replace the parameters of the leaves; theta and other are trained in place.

        Leaf i has the parameters theta[start[i]:start[i + 1]]: log probabilities, up to a
        constant, of the classes `label`, ascending; or one value per output. The classes that a
        leaf does not list share other[i].
        """
        cdef int64_t i
        cdef const int64_t[::1] start_ = start
        cdef const int32_t[::1] label_ = label
        cdef double[::1] theta_ = theta, other_ = other
        self.parameters = (start, label, theta, other)
        self.leaf_start = &start_[0]
        self.leaf_class = &label_[0]
        self.theta = &theta_[0]
        self.other = &other_[0]
        for i in range(self.n_leaves):
            self.set_log_sum(i)

    cdef int prepare(self, const int32_t* rows, int64_t n) except -1 nogil:
        """Compute the losses of a batch of rows at all leaves, with a loss of the user."""
        cdef const double[:, ::1] table
        self.place = 0
        if self.own is None:
            return 0
        with gil:
            self.table_array = self.own.table(np.array(<int32_t[:n]> <int32_t*>rows))
            table = self.table_array
            self.table = &table[0, 0]
        return 0

    cdef void set_loss_scale(
        self, const float* row_weight, int64_t n_rows, int64_t n_train
    ) noexcept nogil:
        """Measure squared errors in units of the variance of the target.

        row_weight : IN, relative to the mean weight of the n_train rows of positive weight
        """
        cdef int64_t i
        cdef int32_t k
        cdef double mean, square = 0
        cdef const double* y = self.target
        if self.is_class:
            return
        for k in range(self.n_outputs):
            mean = 0
            for i in range(n_rows):
                mean += row_weight[i] * y[i * self.n_outputs + k] / n_train
            for i in range(n_rows):
                square += (
                    row_weight[i] * (y[i * self.n_outputs + k] - mean)
                    * (y[i * self.n_outputs + k] - mean)
                )
        self.loss_scale = n_train / square if square > 0 else 1

    # ------------------------------------------------------------------------------------- losses

    cdef void set_log_sum(self, int64_t leaf) noexcept nogil:
        """Compute the log-sum-exp over all classes; the largest is subtracted first."""
        cdef int64_t i, first = self.leaf_start[leaf], last = self.leaf_start[leaf + 1]
        cdef int64_t n_other = self.n_outputs - (last - first)
        cdef double largest = -INFINITY, total = 0
        if not self.is_class:
            return
        for i in range(first, last):
            largest = max(largest, self.theta[i])
        if n_other > 0:
            largest = max(largest, self.other[leaf])
            total = n_other * exp(self.other[leaf] - largest)
        for i in range(first, last):
            total += exp(self.theta[i] - largest)
        self.log_sum[leaf] = largest + log(total)

    cdef int64_t entry(self, int64_t leaf, int32_t label) noexcept nogil:
        """Return the index of the parameter of a class, -1 if the leaf does not list it."""
        cdef int64_t low = self.leaf_start[leaf], high = self.leaf_start[leaf + 1], middle
        if high - low == self.n_outputs:
            return low + label
        while low < high:
            middle = (low + high) // 2
            if self.leaf_class[middle] < label:
                low = middle + 1
            else:
                high = middle
        if low < self.leaf_start[leaf + 1] and self.leaf_class[low] == label:
            return low
        return -1

    cdef double loss(self, int64_t leaf, int64_t row) noexcept nogil:
        """Return the log loss, or scaled squared error, of a row at a leaf (equations 2, 3)."""
        cdef double y, total = 0
        cdef int64_t at
        cdef int32_t k
        if self.table != NULL:
            return self.table[self.place * (self.n_leaves + 1) + leaf]
        if self.is_class:
            at = self.entry(leaf, self.label[row])
            return self.log_sum[leaf] - (self.theta[at] if at >= 0 else self.other[leaf])
        at = self.leaf_start[leaf]
        for k in range(self.n_outputs):
            y = self.target[row * self.n_outputs + k] - self.theta[at + k]
            total += y * y
        return total * self.loss_scale

    cdef void bound_losses(self) noexcept nogil:
        """Compute the largest loss of each label, and range of each output, over all leaves."""
        cdef int64_t i
        cdef int32_t k
        self.worst_other = 0
        for k in range(self.n_outputs):
            self.worst[k] = 0
            self.low[k] = INFINITY
            self.high[k] = -INFINITY
        for i in range(self.n_leaves):
            self.extend_bounds(i)

    cdef void extend_bounds(self, int64_t leaf) noexcept nogil:
        """Extend the bounds to a leaf whose parameters have changed."""
        cdef int64_t i, first = self.leaf_start[leaf], last = self.leaf_start[leaf + 1]
        cdef int32_t k
        if not self.is_class:
            for k in range(self.n_outputs):
                self.low[k] = min(self.low[k], self.theta[first + k])
                self.high[k] = max(self.high[k], self.theta[first + k])
            return
        for i in range(first, last):
            k = self.leaf_class[i]
            self.worst[k] = max(self.worst[k], self.log_sum[leaf] - self.theta[i])
        if last - first < self.n_outputs:
            self.worst_other = max(self.worst_other, self.log_sum[leaf] - self.other[leaf])

    cdef double worst_loss(self, int64_t row) noexcept nogil:
        """Return an upper bound on the loss of a row at any leaf."""
        cdef double y, total = 0
        cdef int32_t k
        if self.table != NULL:
            return self.table[self.place * (self.n_leaves + 1) + self.n_leaves]
        if self.is_class:
            return max(self.worst[self.label[row]], self.worst_other)
        for k in range(self.n_outputs):
            y = self.target[row * self.n_outputs + k]
            y = max(fabs(y - self.low[k]), fabs(y - self.high[k]))
            total += y * y
        return total * self.loss_scale

    # -------------------------------------------------------------------------------------- steps

    cdef int step(
        self, const int32_t* rows, const int32_t* leaves, const float* row_weight, int64_t n,
        double rate
    ) except -1 nogil:
        """Make one step along the gradient of the loss of n rows at these leaves (line 10).

        Each leaf is lowered once for all its rows, by the gradient of the log-sum-exp, and raised
        for the label of each row.
        """
        cdef int64_t i
        cdef int32_t leaf
        cdef double step
        if self.own is not None:
            with gil:
                chosen = np.array(<int32_t[:n]> <int32_t*>rows)
                weight = np.asarray(<float[:chosen.max() + 1]> <float*>row_weight)[chosen]
                self.own.step(chosen, np.array(<int32_t[:n]> <int32_t*>leaves), rate * weight)
            return 0
        for i in range(n):
            leaf = leaves[i]
            self.step_sum[leaf] = self.step_sum[leaf] + rate * row_weight[rows[i]]
        if self.is_class:
            for i in range(n):
                leaf = leaves[i]
                if self.step_sum[leaf] > 0:
                    self.lower_all(leaf, self.step_sum[leaf])
                    self.step_sum[leaf] = -1        # done for the other rows of this leaf
        for i in range(n):
            leaf = leaves[i]
            step = rate * row_weight[rows[i]]
            if self.is_class:
                self.raise_label(leaf, rows[i], step)
            else:
                # The rows of a batch together never move a leaf beyond their values.
                step *= 2 * self.loss_scale / max(2 * self.loss_scale * self.step_sum[leaf], 1.0)
                self.move_mean(leaf, rows[i], step)
        for i in range(n):
            leaf = leaves[i]
            if self.step_sum[leaf] != 0:
                self.step_sum[leaf] = 0
                self.set_log_sum(leaf)
                self.extend_bounds(leaf)
        return 0

    cdef void lower_all(self, int64_t leaf, double step) noexcept nogil:
        """Lower every class by its probability, the gradient of the log-sum-exp."""
        cdef int64_t i, first = self.leaf_start[leaf], last = self.leaf_start[leaf + 1]
        self.other[leaf] = self.other[leaf] - (
            step * (self.n_outputs - (last - first)) * exp(self.other[leaf] - self.log_sum[leaf])
        )
        for i in range(first, last):
            self.theta[i] = self.theta[i] - step * exp(self.theta[i] - self.log_sum[leaf])

    cdef void raise_label(self, int64_t leaf, int64_t row, double step) noexcept nogil:
        cdef int64_t at = self.entry(leaf, self.label[row])
        if at >= 0:
            self.theta[at] = self.theta[at] + step
        else:
            self.other[leaf] = self.other[leaf] + step

    cdef void move_mean(self, int64_t leaf, int64_t row, double step) noexcept nogil:
        cdef double* theta = self.theta + self.leaf_start[leaf]
        cdef int32_t k
        for k in range(self.n_outputs):
            theta[k] += step * (self.target[row * self.n_outputs + k] - theta[k])
