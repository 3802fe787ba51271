"""Leaves of a soft tree, their M-step, and the memory of visits; see trainer.pyx.

It sets (Hehn, Kooij and Hamprecht 2020, equations 6 and 13), with responsibilities h_il of leaf l
for row i of weight w_i,

    classes       pi_lk   = sum_i w_i h_il [y_i = k] / sum_i w_i h_il
    regression    mean_lk = sum_i w_i h_il y_ik / sum_i w_i h_il, and the variance likewise

where every share is at least about 1e-6, and a variance at least 1 % of that of all rows:
otherwise a leaf with one class would give other rows no gradient, and a leaf of variance 0 would
have an infinite density. The density is normal with a diagonal covariance.
"""

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

import numpy as np

from ..base.memory cimport Buffer, Scratch, allocate

cdef extern from "endtoend/sigmoids.h" nogil:
    void skf_leaf_likelihoods(const Visits*, int64_t, int64_t, const float*, const int32_t*)
    double skf_add_to_leaf(const Visits*, int64_t, int64_t, const int32_t*, double*)

cdef enum:
    MAX_VISITS = 1 << 30       # numbers of visits are int32

# See above; chosen without a stored measurement.
cdef extern from *:
    """
    #define SMOOTHING 1e-6         /* added to the share of a class in a leaf */
    #define MIN_VARIANCE 1e-2      /* smallest variance of a leaf, relative to all rows */
    #define MIN_LEAF_WEIGHT 1e-12  /* updates do not change leaves of smaller weight */
    """
    const double SMOOTHING, MIN_VARIANCE, MIN_LEAF_WEIGHT


cdef class SoftLeaves:
    """The leaves of one tree, at most n_leaves, with n_outputs classes or outputs."""

    def __init__(self, int64_t n_leaves, int32_t n_outputs, bint is_class):
        cdef Scratch memory = Scratch()
        cdef int64_t n = n_leaves * n_outputs
        cdef int64_t n_real = 0 if is_class else n
        self.memory = memory
        self.is_class = is_class
        self.n_outputs = n_outputs
        self.n_leaves = n_leaves
        self.share = memory.floats(n - n_real)
        allocate[double](memory, n_real, [&self.mean, &self.precision, &self.square, NULL])
        allocate[double](memory, n_leaves, [&self.log_scale, &self.weight, NULL])
        self.least_variance = memory.doubles(n_outputs)
        self.sum = memory.doubles(n)

    def values(self):
        """Return shares of classes, or (means, variances), of shape (n_leaves, n_outputs)."""
        cdef int64_t n = self.n_leaves, k = self.n_outputs
        cdef double[:, ::1] mean  # a module that makes arrays needs a memoryview, see setup.py
        if self.is_class:
            return np.array(<float[:n, :k]>self.share, dtype=np.float64)
        mean = <double[:n, :k]>self.mean
        return np.array(mean), 1 / np.array(<double[:n, :k]>self.precision)

    cdef void reset(
        self, const double* target, const float* weight, int64_t n, int32_t n_outputs,
        int64_t n_leaves
    ) noexcept nogil:
        """Set leaves without values and sums, for n rows with a mean weight of 1."""
        cdef int64_t i, k
        cdef double mean, square, y
        self.n_outputs = n_outputs
        self.n_leaves = n_leaves
        self.is_unset = True
        memset(self.weight, 0, n_leaves * sizeof(double))
        memset(self.sum, 0, n_leaves * n_outputs * sizeof(double))
        if self.is_class:
            return
        memset(self.square, 0, n_leaves * n_outputs * sizeof(double))
        for k in range(n_outputs):
            mean = 0
            square = 0
            for i in range(n):
                mean += weight[i] * target[i * n_outputs + k]
            mean /= n
            for i in range(n):
                y = target[i * n_outputs + k] - mean
                square += weight[i] * y * y
            self.least_variance[k] = MIN_VARIANCE * square / n
            if not self.least_variance[k] > 0:
                self.least_variance[k] = 1

    cdef void likelihoods(
        self, Visits* visits, int64_t leaf, int64_t first, int64_t n, const int32_t* label,
        const double* target, const int32_t* rows, double* top
    ) noexcept nogil:
        """Set the likelihoods of the n visits of a leaf from `first` on; 1 without leaf values.

        In regression, `part` of a visit is set to the log density, and `top` of its row to the
        largest one of all leaves so far.
        """
        cdef int64_t i
        cdef double value
        if self.is_unset:
            for i in range(first, first + n):
                visits.likelihood[i] = 1
        elif self.is_class:
            skf_leaf_likelihoods(visits, first, n, self.share + leaf * self.n_outputs, label)
        else:
            for i in range(first, first + n):
                value = self.log_density(leaf, target + rows[visits.row[i]] * self.n_outputs)
                visits.part[i] = <float>value
                if value > top[visits.row[i]]:
                    top[visits.row[i]] = value

    cdef inline double log_density(self, int64_t leaf, const double* y) noexcept nogil:
        """Return the log normal density of a target at a leaf, without a constant."""
        cdef int32_t k
        cdef double d, value = self.log_scale[leaf]
        for k in range(self.n_outputs):
            d = y[k] - self.mean[leaf * self.n_outputs + k]
            value -= 0.5 * d * d * self.precision[leaf * self.n_outputs + k]
        return value

    cdef void add(
        self, const Visits* visits, int64_t leaf, int64_t first, int64_t n, const int32_t* label,
        const double* target, const int32_t* rows
    ) noexcept nogil:
        """Add the n visits of a leaf to its sums, with their responsibilities."""
        cdef int64_t i, at = leaf * self.n_outputs
        cdef int32_t k
        cdef double part, total = 0
        cdef const double* y
        if self.is_class:
            self.weight[leaf] = self.weight[leaf] + skf_add_to_leaf(
                visits, first, n, label, self.sum + at
            )
            return
        for i in range(first, first + n):
            part = visits.part[i]
            total += part
            y = target + rows[visits.row[i]] * self.n_outputs
            for k in range(self.n_outputs):
                self.sum[at + k] = self.sum[at + k] + part * y[k]
                self.square[at + k] = self.square[at + k] + part * y[k] * y[k]
        self.weight[leaf] = self.weight[leaf] + total

    cdef void update(self) noexcept nogil:
        """Make the M-step (equation 13), clear sums; leaves without weight keep their values."""
        cdef int64_t leaf, at
        cdef int32_t k
        cdef double weight, mean, variance, no_mean = 1.0 / self.n_outputs if self.is_class else 0
        for leaf in range(self.n_leaves):
            weight = self.weight[leaf]
            self.weight[leaf] = 0
            at = leaf * self.n_outputs
            if not weight > MIN_LEAF_WEIGHT and not self.is_unset:
                memset(self.sum + at, 0, self.n_outputs * sizeof(double))
                if not self.is_class:
                    memset(self.square + at, 0, self.n_outputs * sizeof(double))
                continue
            self.log_scale[leaf] = 0
            for k in range(self.n_outputs):
                mean = self.sum[at + k] / weight if weight > 0 else no_mean
                self.sum[at + k] = 0
                if self.is_class:
                    mean = (mean + SMOOTHING) / (1 + self.n_outputs * SMOOTHING)
                    self.share[at + k] = <float>mean
                    continue
                variance = self.square[at + k] / weight - mean * mean if weight > 0 else 0
                variance = max(variance, self.least_variance[k])
                self.square[at + k] = 0
                self.mean[at + k] = mean
                self.precision[at + k] = 1 / variance
                self.log_scale[leaf] = self.log_scale[leaf] - 0.5 * log(variance)
        self.is_unset = False


cdef int grow_visits(Visits* visits, tuple columns, int64_t n) except -1:
    """Reserve memory for n + 1 visits; `columns` has a Buffer for each array."""
    cdef int64_t more = n + 1 - visits.capacity
    cdef void* data[7]
    cdef Buffer column
    if n >= MAX_VISITS:
        raise MemoryError(f"{n} rows at nodes at once; a smaller batch_size is needed")
    for k in range(7):
        column = columns[k]
        column.reserve(more)
        data[k] = column.data
    visits.capacity = column.capacity      # all columns have the same
    visits.row = <int32_t*>data[0]
    visits.left, visits.right = <int32_t*>data[1], <int32_t*>data[2]
    visits.reach, visits.gate = <float*>data[3], <float*>data[4]
    visits.likelihood, visits.part = <float*>data[5], <float*>data[6]
    return 0
