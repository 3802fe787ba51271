"""Losses L(f, y) of a raw prediction f, and their derivatives dL/df.

A loss takes one row: its raw prediction of K outputs, and its target, a class number or K numbers.
With d = f - y, and summed over outputs:

    squared error       d^2 / 2
    absolute error      |d|
    Huber               d^2 / 2 for |d| <= c, else c (|d| - c / 2),  c = 2 delta * residuals
    quantile            (1 - q) d for d > 0, else -q d
    Poisson             exp(f) - y f
    gamma               f + y exp(-f)
    Tweedie             (exp((2 - r) f) - 1) / (2 - r) - y (exp((1 - r) f) - 1) / (1 - r),
                        1 < r < 2
    log loss            log(sum_k exp(f_k)) - sum_k p_k f_k,  p = (1 - s) onehot(y) + s / K
    binary log loss     log(1 + exp(f)) - y f

Gradient boosting also needs curvatures: the second derivatives d2L/df_k2, or 1 if these are 0. For
gamma and Tweedie, they are the expectations 1 and exp((2 - r) f) for a mean of exp(f), because
second derivatives grow with y, so that Newton steps down would be longer than steps up. Initial
constants, links and checks of targets are Python's: `training/losses/`.

`sharpened_scores` are log losses of blended probabilities, for the weights of a blend.
"""

from libc.math cimport exp, expm1, fabs
from libc.stdint cimport int64_t, uintptr_t

import numpy as np

cdef extern from "base/log_loss.h" nogil:
    enum:
        SKF_LOSSES            # rows whose losses are computed together
        SKF_TEMPERATURES

    void skf_log_losses(
        const double*, const double*, int64_t, int64_t, double, double*, double*
    )
    void skf_binary_log_losses(
        const double*, const double*, int64_t, double*, double*
    )
    void skf_sharpened_scores(
        const double* const*, const double*, int64_t, int64_t, int64_t, const double*, double,
        double*
    )

# The limit of the Huber loss is delta * RESIDUALS robust deviations of the residuals, which are
# smaller in training than on new rows (chosen by errors on four tables, with and without 5 % of
# outliers). Deviations are at least MIN_RESIDUAL units of the target, so that a model without
# errors still has a gradient.
RESIDUALS, MIN_RESIDUAL = 2.0, 1e-3


cdef class LossKernel:
    """Base of all losses; not for direct use."""

    is_adaptive = False  # whether training calls `adapt`

    def __init__(self, int64_t n_outputs):
        self.n_outputs = n_outputs
        self.n_columns = n_outputs

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        """Return the loss of one row; slope : OUT, its derivatives by the raw prediction."""
        return 0

    cdef void block(
        self, const double* raw, const double* y, int64_t n, double* losses, double* slopes
    ) noexcept nogil:
        """Compute the losses of n rows, and the derivatives of each."""
        cdef int64_t i, K = self.n_outputs
        for i in range(n):
            losses[i] = self.row(raw + i * K, y + i * self.n_columns, slopes + i * K)

    cdef double rows(
        self, const double* raw, const double* y, int64_t n, double* slopes
    ) except? -1 nogil:
        """Return the sum of the losses of n rows; slopes : OUT, the derivatives of each."""
        cdef int64_t i, first = 0, size, K = self.n_outputs
        cdef double total = 0
        cdef double[SKF_LOSSES] losses
        while first < n:
            size = min(<int64_t>SKF_LOSSES, n - first)
            self.block(
                raw + first * K, y + first * self.n_columns, size, losses, slopes + first * K
            )
            for i in range(size):
                total += losses[i]
            first += size
        return total

    cdef void curve(
        self, const double* raw, const double* y, const double* slope, double* curvature
    ) noexcept nogil:
        """Compute the curvatures of the loss of one row from its slope."""
        cdef int64_t k
        for k in range(self.n_outputs):
            curvature[k] = 1

    def derive(
        self, const double[:, ::1] raw, const double[:, ::1] y, const double[::1] weight,
        float[:, ::1] gradient, float[:, ::1] curvature
    ):
        """Write weighted derivatives by `raw`, and curvatures, to the last two arguments.

        Return the weighted sum of the losses.
        """
        cdef int64_t i, k, first = 0, size, n = raw.shape[0]
        cdef double total = 0
        cdef bint has_weight
        cdef double[SKF_LOSSES] losses
        cdef double[:, ::1] slope = np.empty((SKF_LOSSES, self.n_outputs))
        cdef double[::1] curve = np.empty(self.n_outputs)
        with nogil:
            while first < n:
                size = min(<int64_t>SKF_LOSSES, n - first)
                has_weight = False
                for i in range(first, first + size):
                    has_weight = has_weight or weight[i] != 0
                if has_weight:
                    self.block(&raw[first, 0], &y[first, 0], size, losses, &slope[0, 0])
                for i in range(first, first + size):
                    if weight[i] == 0:
                        for k in range(self.n_outputs):
                            gradient[i, k] = curvature[i, k] = 0
                        continue
                    total += weight[i] * losses[i - first]
                    self.curve(&raw[i, 0], &y[i, 0], &slope[i - first, 0], &curve[0])
                    for k in range(self.n_outputs):
                        gradient[i, k] = <float>(weight[i] * slope[i - first, k])
                        curvature[i, k] = <float>(weight[i] * curve[k])
                first += size
        return total

    def evaluate(self, const double[:, ::1] raw, const double[:, ::1] y):
        """Return losses of rows, and derivatives by `raw`; class numbers are (n_rows, 1)."""
        if raw.shape[1] != self.n_outputs or y.shape[1] != self.n_columns:
            raise ValueError(f"got {raw.shape[1]} outputs and {y.shape[1]} columns of targets")
        losses = np.zeros(raw.shape[0])
        slopes = np.zeros((raw.shape[0], raw.shape[1]))
        cdef double[::1] loss = losses
        cdef double[:, ::1] slope = slopes
        if len(losses):
            with nogil:
                self.block(&raw[0, 0], &y[0, 0], raw.shape[0], &loss[0], &slope[0, 0])
        return losses, slopes

    def losses(self, raw, y):
        """Return the losses of rows."""
        return self.evaluate(raw, y)[0]

    def held_out_losses(self, raw, y):
        """Return the losses of held-out rows, to compare models."""
        return self.losses(raw, y)

    def set_units(self, units):
        """Store the `TargetUnits` of the target, for losses of the user, which have no units."""


cdef class LogLossKernel(LossKernel):
    """Negative log-likelihood of the class after a softmax.

    With smoothing, the target is a distribution: 1 - smoothing at the class, plus the rest spread
    evenly over all classes.
    """

    cdef double smoothing

    def __init__(self, int64_t n_outputs, double smoothing=0.0):
        super().__init__(n_outputs)
        self.n_columns = 1
        self.smoothing = smoothing

    cdef void block(
        self, const double* raw, const double* y, int64_t n, double* losses, double* slopes
    ) noexcept nogil:
        skf_log_losses(raw, y, n, self.n_outputs, self.smoothing, losses, slopes)

    cdef void curve(
        self, const double* raw, const double* y, const double* slope, double* curvature
    ) noexcept nogil:
        cdef int64_t k, label = <int64_t>y[0]
        cdef double p, even = self.smoothing / self.n_outputs
        for k in range(self.n_outputs):
            p = slope[k] + even + (k == label) * (1 - self.smoothing)
            curvature[k] = p * (1 - p)


cdef class SumKernel(LossKernel):
    """Base of losses that are sums over the outputs, some with a parameter."""

    cdef double parameter

    def __init__(self, int64_t n_outputs, double parameter=0.0):
        super().__init__(n_outputs)
        self.parameter = parameter

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double loss = 0
        for k in range(self.n_outputs):
            loss += self.output(raw[k], y[k], &slope[k])
        return loss

    cdef double output(self, double raw, double y, double* slope) noexcept nogil:
        """Return the loss of one output; slope : OUT, its derivative."""
        return 0


cdef class SquaredErrorKernel(SumKernel):
    """Half of the squared difference."""

    cdef double output(self, double raw, double y, double* slope) noexcept nogil:
        slope[0] = raw - y
        return slope[0] * slope[0] / 2


cdef class AbsoluteErrorKernel(SumKernel):
    """The absolute difference."""

    cdef double output(self, double raw, double y, double* slope) noexcept nogil:
        slope[0] = (raw > y) - <int>(raw < y)
        return fabs(raw - y)


cdef class HuberKernel(LossKernel):
    """Half of the squared difference up to a limit, and linear beyond.

    The limit is proportional to the size of the residuals, which training estimates. If it were in
    units of the target, outliers would dominate as soon as predictions are good.
    """

    is_adaptive = True

    cdef readonly double delta
    cdef double[::1] limits             # of each output

    def __init__(self, int64_t n_outputs, double delta, limits=None):
        super().__init__(n_outputs)
        self.delta = delta
        self.limits = np.full(n_outputs, delta) if limits is None else limits

    def __reduce__(self):
        return HuberKernel, (self.n_outputs, self.delta, self.limit)

    @property
    def limit(self):
        """ndarray of shape (n_outputs,): the limit of each output."""
        return np.array(self.limits)

    def adapt(self, size):
        """Set the limits by the sizes of residuals, (n_outputs,), in units of the target."""
        self.limits = self.delta * np.maximum(RESIDUALS * np.asarray(size), MIN_RESIDUAL)

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double loss = 0, d
        for k in range(self.n_outputs):
            d = raw[k] - y[k]
            slope[k] = min(max(d, -self.limits[k]), self.limits[k])
            loss += slope[k] * (d - slope[k] / 2)
        return loss

    def held_out_losses(self, raw, y):
        """Return losses with the first limit, that of targets of size 1: it differs later."""
        limits = np.full(self.n_outputs, self.delta * RESIDUALS)
        return HuberKernel(self.n_outputs, self.delta, limits).losses(raw, y)


cdef class QuantileKernel(LossKernel):
    """Pinball loss: the level q per unit of underestimation, 1 - q of overestimation.

    All outputs have the same level, or each has its own.
    """

    cdef double[::1] levels

    def __init__(self, int64_t n_outputs, level):
        super().__init__(n_outputs)
        self.levels = np.full(n_outputs, level, dtype=np.float64)

    def __reduce__(self):
        return QuantileKernel, (self.n_outputs, np.array(self.levels))

    cdef double row(self, const double* raw, const double* y, double* slope) noexcept nogil:
        cdef int64_t k
        cdef double loss = 0, q
        for k in range(self.n_outputs):
            q = self.levels[k]
            slope[k] = (1 - q) * (raw[k] > y[k]) - q * (raw[k] < y[k])
            loss += slope[k] * (raw[k] - y[k])
        return loss


cdef class PoissonKernel(SumKernel):
    """Negative log-likelihood of counts with the mean exp(raw), without the constant log(y!)."""

    cdef double output(self, double raw, double y, double* slope) noexcept nogil:
        cdef double mean = exp(raw)
        slope[0] = mean - y
        return mean - y * raw

    cdef void curve(
        self, const double* raw, const double* y, const double* slope, double* curvature
    ) noexcept nogil:
        cdef int64_t k
        for k in range(self.n_outputs):
            curvature[k] = slope[k] + y[k]


cdef class GammaKernel(SumKernel):
    """Half of the gamma deviance of positive numbers with the mean exp(raw), up to a constant."""

    cdef double output(self, double raw, double y, double* slope) noexcept nogil:
        cdef double ratio = y * exp(-raw)
        slope[0] = 1 - ratio
        return raw + ratio


cdef class TweedieKernel(SumKernel):
    """Half of the Tweedie deviance with the mean exp(raw), up to a constant.

    The variance is proportional to the power r of the mean; the parameter r is in (1, 2).
    """

    cdef double output(self, double raw, double y, double* slope) noexcept nogil:
        cdef double r = self.parameter
        cdef double one = y * exp((1 - r) * raw), two = exp((2 - r) * raw)
        slope[0] = two - one
        # expm1 keeps precision for r near 1 or 2.
        return expm1((2 - r) * raw) / (2 - r) - y * expm1((1 - r) * raw) / (1 - r)

    cdef void curve(
        self, const double* raw, const double* y, const double* slope, double* curvature
    ) noexcept nogil:
        cdef int64_t k
        cdef double r = self.parameter
        for k in range(self.n_outputs):
            curvature[k] = exp((2 - r) * raw[k])


cdef class BinaryLogLossKernel(LossKernel):
    """Negative log-likelihood of the classes 0 and 1; raw is their log odds."""

    def __init__(self, n_classes=2):
        if n_classes != 2:
            raise ValueError(f"got {n_classes} classes")
        super().__init__(1)

    cdef void block(
        self, const double* raw, const double* y, int64_t n, double* losses, double* slopes
    ) noexcept nogil:
        skf_binary_log_losses(raw, y, n, losses, slopes)

    cdef void curve(
        self, const double* raw, const double* y, const double* slope, double* curvature
    ) noexcept nogil:
        cdef double p = slope[0] + y[0]
        curvature[0] = p * (1 - p)


cdef class CallbackKernel(LossKernel):
    """Base of losses in Python, whose `evaluate` is called once for all rows of a batch."""

    cdef double rows(
        self, const double* raw, const double* y, int64_t n, double* slopes
    ) except? -1 nogil:
        cdef int64_t size = n * self.n_outputs
        with gil:
            # Pass copies, which the loss may keep.
            shape = n, self.n_outputs
            f = np.array(<double[:size]> <double*> raw).reshape(shape)
            target = np.array(<double[:size]> <double*> y).reshape(shape)
            losses, found = self.evaluate(f, target)
            np.asarray(<double[:size]> slopes)[:] = found.ravel()
            return losses.sum()


def sharpened_scores(parts, const double[::1] share, const double[::1] label, double least):
    """Return logarithms of the probabilities of labels in a blend, at several temperatures.

    parts : float64 arrays of shape (n_classes, n_rows), probabilities; share : of each part;
    label : class numbers; least : the least probability of a label.
    Returns float64 of shape (4, n_rows), for the temperatures 1, 4/5, 2/3 and 1/2.
    """
    cdef const double[:, ::1] part
    cdef int64_t m, n_parts = len(parts), n_classes = 0, n = label.shape[0]
    cdef uintptr_t[::1] place = np.empty(n_parts, dtype=np.uintp)
    scores = np.empty((SKF_TEMPERATURES, n))
    cdef double[:, ::1] score = scores
    for m in range(n_parts):
        part = parts[m]
        if not part.shape[0] or part.shape[1] != n or (m and part.shape[0] != n_classes):
            raise ValueError(f"part {m} has the shape ({part.shape[0]}, {part.shape[1]})")
        place[m], n_classes = <uintptr_t>&part[0, 0], part.shape[0]
    with nogil:
        skf_sharpened_scores(
            <const double* const*>&place[0], &share[0], n_parts, n_classes, n, &label[0], least,
            &score[0, 0]
        )
    return scores
