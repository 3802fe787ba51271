"""Losses of a response, and their derivatives.

A loss looks at one row: its raw response, K numbers, and its target, a label or K numbers. To add
one, write a class with `row`, and give it a name where the estimators list theirs (hinge.py).
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
        """Loss of one row; slope = its derivatives by the response."""
        return 0

    def evaluate(self, const double[:, ::1] raw, const double[:, ::1] y):
        """Losses of rows, and their derivatives.

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
    """Minus the logarithm of the softmax of the label, which keeps the share 1 - smoothing of the
    row; the rest is dealt to all classes alike.
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
    """Half of the square of the difference, summed over outputs."""

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
    """Half of the square of differences up to `delta`, and a line beyond."""

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
    """What lies above counts `quantile`, what lies below 1 - quantile, per unit of difference."""

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
    """Counts with the mean exp(response): minus the log likelihood, but for log(y!)."""

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double mean, loss = 0
        for k in range(self.n_outputs):
            mean = exp(raw[k])
            slope[k] = mean - y[k]
            loss += mean - y[k] * raw[k]
        return loss
