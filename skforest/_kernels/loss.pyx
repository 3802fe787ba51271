"""Losses L(f, y) of a raw prediction f, and their derivatives dL/df.

A loss takes one row: its raw prediction of K outputs, and its target, a class number or K numbers.
With d = f - y, and summed over outputs:

    squared error       d^2 / 2
    absolute error      |d|
    Huber               d^2 / 2 for |d| <= delta, else delta (|d| - delta / 2)
    quantile            (1 - q) d for d > 0, else -q d
    Poisson             exp(f) - y f
    log loss            log(sum_k exp(f_k)) - sum_k p_k f_k,  p = (1 - s) onehot(y) + s / K

Stochastic gradient descent needs no curvature. The constant to start from, the link and the check
of the target are Python's: `training/losses.py`.
"""

from libc.math cimport exp, fabs, log
from libc.stdint cimport int64_t

import numpy as np


cdef class Loss:
    """Base of all losses; not for direct use.

    Parameters
    ----------
    n_outputs : int
    """

    def __init__(self, int64_t n_outputs):
        self.n_outputs = n_outputs
        self.n_columns = n_outputs

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        """The loss of one row; slope : OUT, its derivatives by the raw prediction."""
        return 0

    def evaluate(self, const double[:, ::1] raw, const double[:, ::1] y):
        """Losses of many rows, and their derivatives.

        Parameters
        ----------
        raw : ndarray of shape (n_rows, n_outputs), float64
        y : ndarray of shape (n_rows, 1) of labels or (n_rows, n_outputs), float64

        Returns
        -------
        losses : ndarray of shape (n_rows,), float64
        slopes : ndarray of shape (n_rows, n_outputs), float64
        """
        cdef int64_t i
        losses = np.zeros(raw.shape[0])
        slopes = np.zeros((raw.shape[0], raw.shape[1]))
        cdef double[::1] loss = losses
        cdef double[:, ::1] slope = slopes
        with nogil:
            for i in range(raw.shape[0]):
                loss[i] = self.row(&raw[i, 0], &y[i, 0], &slope[i, 0])
        return losses, slopes


cdef class LogLoss(Loss):
    """Negative log-likelihood of the class after a softmax.

    With smoothing, the target is a distribution: 1 - smoothing at the class, and the rest spread
    evenly over all classes.
    """

    cdef double smoothing

    def __init__(self, int64_t n_outputs, double smoothing=0.0):
        super().__init__(n_outputs)
        self.n_columns = 1
        self.smoothing = smoothing

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k, label = <int64_t>y[0]
        cdef double largest = raw[0], total = 0, mean = 0, log_total
        cdef double even = self.smoothing / self.n_outputs
        # The largest raw prediction is subtracted, so that no exponential overflows.
        for k in range(self.n_outputs):
            largest = max(largest, raw[k])
            mean += even * raw[k]
        for k in range(self.n_outputs):
            slope[k] = exp(raw[k] - largest)
            total += slope[k]
        log_total = largest + log(total)
        for k in range(self.n_outputs):
            slope[k] = slope[k] / total - even
        slope[label] -= 1 - self.smoothing
        return log_total - (1 - self.smoothing) * raw[label] - mean


cdef class SquaredError(Loss):
    """Half of the squared difference, summed over outputs."""

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double loss = 0
        for k in range(self.n_outputs):
            slope[k] = raw[k] - y[k]
            loss += slope[k] * slope[k] / 2
        return loss


cdef class AbsoluteError(Loss):
    """The absolute difference, summed over outputs."""

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double d, loss = 0
        for k in range(self.n_outputs):
            d = raw[k] - y[k]
            slope[k] = (d > 0) - <int>(d < 0)
            loss += fabs(d)
        return loss


cdef class HuberLoss(Loss):
    """Half of the squared difference up to `delta`, and linear beyond."""

    cdef double delta

    def __init__(self, int64_t n_outputs, double delta):
        super().__init__(n_outputs)
        self.delta = delta

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double d, loss = 0
        for k in range(self.n_outputs):
            d = raw[k] - y[k]
            slope[k] = min(max(d, -self.delta), self.delta)
            loss += slope[k] * (d - slope[k] / 2)
        return loss


cdef class QuantileLoss(Loss):
    """Pinball loss: `quantile` per unit of underestimation, 1 - quantile of overestimation."""

    cdef double quantile

    def __init__(self, int64_t n_outputs, double quantile):
        super().__init__(n_outputs)
        self.quantile = quantile

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double d, loss = 0
        for k in range(self.n_outputs):
            d = raw[k] - y[k]
            slope[k] = (1 - self.quantile) * (d > 0) - self.quantile * (d < 0)
            loss += slope[k] * d
        return loss


cdef class PoissonLoss(Loss):
    """Negative log-likelihood of counts with the mean exp(raw), without the constant log(y!)."""

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double mean, loss = 0
        for k in range(self.n_outputs):
            mean = exp(raw[k])
            slope[k] = mean - y[k]
            loss += mean - y[k] * raw[k]
        return loss
