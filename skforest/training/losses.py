"""Losses of forests that are trained by gradient descent.

A loss owns everything that depends on it: the link from the raw prediction f(x) to the prediction,
the constant that training starts from, the check and the units of the target, and the compiled
loss with the derivatives. To add one, write a class with a name in `LOSSES`, and its derivatives
in `_kernels/base/loss.pyx`.
"""

from dataclasses import dataclass

import numpy as np

from .._kernels.base import loss as kernels

# Largest deviations of a target that float32 leaf values and their squares hold.
MIN_SCALE, MAX_SCALE = 2.0**-100, 2.0**120
# Calibration of quantiles: the part of a shift that is left out with very many bags, and the part
# that is in proportion to the width between quantiles (`benchmarks/quantiles.py boosting`).
LEFT_OUT, WIDTH_SHARE = 0.3, 0.5
NORMAL_MEDIAN = 0.6745  # median distance of normal numbers from their mean, over their deviation
COMMON_SHARE = 0.25  # so many equal targets, such as zeros of counts, do not count for a unit
# All below were chosen without a stored measurement.

# Units from the median where targets are outliers to what squared errors choose: few numbers of a
# normal distribution are so far away.
FENCE = 3.0
# Targets are apart from all others if they are APART times as far from the quartiles as these, and
# as APART interquartile ranges. At most the share RARE is rare.
APART, RARE = 3.0, 0.05
FAR = 3.0  # sizes that a leaf of boosting may add, before the learning rate, see `leaf_value`
ABSENT = -1e3  # raw prediction of a class without weight: its probability is 0


def power_of_two_scale(deviation):
    """The power of two at or above the largest deviation of a target, 1 where all are 0.

    Squares of the scaled deviations are far from the limits of float32, and dividing by a power of
    two loses no bit. ValueError if float32 cannot hold such deviations.
    """
    largest = np.abs(deviation).max()
    if np.isnan(largest):  # from the mean of a target whose sum overflows
        largest = np.inf
    scale = 2.0 ** np.ceil(np.log2(largest)) if largest > 0 else 1.0
    if not MIN_SCALE <= scale <= MAX_SCALE:
        raise ValueError(
            f"y deviates from its mean by up to {largest}; deviations between {MIN_SCALE:.0e} "
            f"and {MAX_SCALE:.0e} are supported: rescale y"
        )
    return scale


@dataclass(frozen=True)
class TargetUnits:
    """The zero point and the units of a target."""

    baseline: np.ndarray  # (n_outputs,), float64: raw prediction that training starts from
    scale: float  # a power of two, by which the deviations from the baseline are divided
    unit: np.ndarray  # typical size of the scaled deviations; 0 for a constant output

    @property
    def response(self):
        """ndarray of shape (n_outputs,): unit of the trained response.

        It is 0 for a constant output, whose prediction is the baseline whatever is trained.
        """
        return self.unit * self.scale


@dataclass(frozen=True)
class Calibration:
    """What is added to raw predictions f of boosting: shift + slope * (f[high] - f[low])."""

    shift: np.ndarray  # (n_outputs,)
    slope: np.ndarray  # (n_outputs,)
    low: int = 0
    high: int = 0

    def added(self, raw):
        """ndarray of shape (..., n_outputs): what is added to raw predictions."""
        return self.shift + self.slope * (raw[..., self.high] - raw[..., self.low])[..., None]


class BaseLoss:
    """What all losses share; not for direct use. `n_outputs` is the length of the raw prediction.

    Targets y are float64 of shape (n_rows, n_outputs), and weights float64 of shape (n_rows,).
    """

    kernel = None  # the compiled loss
    methods = "boosting", "hinge"  # whose regressors take the loss by its name
    link = "identity"  # from the raw prediction to the prediction: "identity", "softmax", "log"
    parameters = ()  # parameters of the estimator that the loss takes
    is_quadratic = False  # is one step of Newton's method exact?
    has_unit = True  # are deviations from the baseline measured in units of their size?
    calibration_level = None  # quantile that hinge forests are calibrated to; None: they are not
    is_calibrated = False  # does boosting calibrate predictions, see `calibration`?
    # Does boosting shift a model without held-out rows, or a single bag, by its training rows?
    is_calibrated_in_training = False
    # Does boosting compute leaves by `leaf_value`, where curvatures say little about the loss?
    renews_leaves = False
    # Largest absolute value of a leaf of boosting, before the learning rate: Newton's method may
    # take steps that are far too long where the curvature nearly vanishes.
    max_step = np.inf

    def __init__(self, n_outputs, **parameters):
        self.n_outputs = n_outputs
        for name, value in parameters.items():
            setattr(self, name, float(value))

    def check_target(self, y, weight):
        """Raise ValueError where the loss is not defined."""

    def baseline(self, y, weight):
        """The constant raw prediction that training starts from: ndarray of shape (n_outputs,)."""
        return np.average(y, axis=0, weights=weight)

    def target_units(self, y, weight, baseline=None):
        """Baseline and units of a target, after `check_target`.

        `baseline` is that of a model to which trees are added. None: ``self.baseline(y, weight)``.
        """
        self.check_target(y, weight)
        baseline = self.baseline(y, weight) if baseline is None else baseline
        if not self.has_unit:
            return TargetUnits(baseline, 1.0, np.ones(self.n_outputs))
        deviation = y - baseline
        scale = power_of_two_scale(deviation)
        return TargetUnits(baseline, scale, self.typical_size(deviation / scale, weight))

    def typical_size(self, deviation, weight):
        """The unit of each output: the root mean squared deviation from the baseline."""
        return np.sqrt(np.average(np.square(deviation), axis=0, weights=weight))

    def baseline_shift(self, y, raw, weight):
        """What moves raw predictions to the targets on the whole, (n_outputs,)."""
        return self.baseline(y - raw, weight)

    def without_outliers(self, y, weight):
        """The target for choices by squared errors, which outliers would determine."""
        return y

    def outlier_factor(self, y, weight):
        """Factors of the weights of rows, (n_rows,), whose targets are outliers; None: all 1."""

    def scale_target(self, y, units):
        """Deviations from the baseline over the power of two, as grown trees take them."""
        return (y - units.baseline) / units.scale

    def standardize(self, target, units):
        """A target from `scale_target` in units of 1, as the compiled loss takes it."""
        return target / np.where(units.unit > 0, units.unit, 1.0)

    def start(self, baseline):
        """Raw predictions that the trees of boosting are added to, in units of the loss."""
        return np.zeros(self.n_outputs)

    def leaf_value(self, residual, weight, kernel, size):
        """The constant of least loss that is added to the raw prediction of some rows.

        `residual`, of shape (n_rows, n_outputs), is the target minus the raw prediction; `kernel`
        is the compiled loss, and `size` the `robust_size` of the residuals of all rows.
        """
        raise NotImplementedError

    def calibration(self, parts):
        """How predictions of boosting are calibrated: a `Calibration`.

        `parts` has targets, predictions and weights of rows that do not train, for each bag.
        """
        raise NotImplementedError

    def kernel_loss(self):
        """The compiled loss, of a standardized target."""
        return self.kernel(self.n_outputs, *(getattr(self, name) for name in self.parameters))

    def batch_loss(self, units):
        """The compiled loss as hinge training takes it; `units` are those of the target."""
        return self.kernel_loss()


class SquaredError(BaseLoss):
    """Half of the squared error, which the conditional mean minimises."""

    kernel = kernels.SquaredError
    is_quadratic = True


class RobustLoss(BaseLoss):
    """Losses that are linear in large residuals: outliers do not determine units; not for use."""

    renews_leaves = True
    quantile = 0.5

    def baseline(self, y, weight):
        return weighted_quantile(y, weight, 0.5)

    def leaf_value(self, residual, weight, kernel, size):
        """The quantile; beyond `FAR` sizes only as far as half of the rows on its near side are.

        Most rows of a small leaf may be outliers, which splits even look for.
        """
        # Between it and the quantile two rows nearer to the median, as little as possible: an
        # outlier or two must not be the quantile of a small leaf.
        level = np.asarray(self.quantile)
        nearer = np.maximum(np.abs(level - 0.5) - 2 * weight.max() / weight.sum(), 0.0)
        levels = level, 0.5 + np.sign(level - 0.5) * nearer
        found = [weighted_quantile(residual, weight, one) for one in levels]
        value = np.clip(0.0, np.minimum(*found), np.maximum(*found))
        far = FAR * np.where(size > 0, size, 1.0)
        if (np.abs(value) > far).any():
            ends = (weighted_quantile(residual, weight, q) for q in (level / 2, (1 + level) / 2))
            most = np.maximum(far, np.abs(np.clip(0.0, *ends)))
            value = np.clip(value, -most, most)
        return value

    def typical_size(self, deviation, weight):
        """See `robust_size`; it does not depend on the baseline."""
        return robust_size(deviation, weight)

    def without_outliers(self, y, weight):
        center, size = weighted_quantile(y, weight, 0.5), FENCE * robust_size(y, weight)
        return np.clip(y, center - size, center + size)


class Quantile(RobustLoss):
    """The pinball loss, which the conditional quantile minimises."""

    kernel = kernels.QuantileLoss
    parameters = ("quantile",)
    is_calibrated = True
    ends = 0, 0  # outputs with the lowest and the highest quantile

    @property
    def calibration_level(self):
        return self.quantile

    def baseline(self, y, weight):
        return weighted_quantile(y, weight, self.quantile)

    def outlier_factor(self, y, weight):
        """Rare outliers beyond a quantile weigh no more than rows on its other side.

        With the quantile 0.9, one row above weighs as much as nine below, and a few outliers would
        move all predictions around them. Outliers are apart from all other targets, see `APART`;
        they are rare if their weight is at most half of what may lie beyond the quantile.
        """
        levels = np.atleast_1d(self.quantile)
        factor = np.ones(len(y))
        for column in y.T:
            for sign, level in ((1, levels.max()), (-1, 1 - levels.min())):
                is_outlier = apart(sign * column, weight)
                share = weight[is_outlier].sum() / weight.sum()
                if level > 0.5 and share <= min(RARE, (1 - level) / 2):
                    factor[is_outlier] = np.minimum(factor[is_outlier], (1 - level) / level)
        return factor if factor.min() < 1 else None

    def calibration(self, parts):
        """Move predictions so that new rows lie below with the probability asked for.

        Of several bags, each part is predicted by one of them, with larger errors than those of
        their mean: a part of the shift is left out. An output is not moved where that increases
        its loss, by more than the standard error, on the rows of each bag by what is found on the
        rows of the others.
        """
        factor = 1 - LEFT_OUT * (1 - 1 / len(parts))
        found = self._fitted_calibration(parts, factor)
        if len(parts) == 1:
            return found
        gain, square = np.zeros((2, self.n_outputs))
        for number, (y, response, weight) in enumerate(parts):
            others = parts[:number] + parts[number + 1 :]
            moved = response + self._fitted_calibration(others, factor).added(response)
            of_rows = self._pinball(y - response) - self._pinball(y - moved)
            gain += np.einsum("i,ij->j", weight, of_rows)
            square += np.einsum("i,ij->j", weight**2, of_rows**2)
        is_moved = gain >= -np.sqrt(square)
        return Calibration(found.shift * is_moved, found.slope * is_moved, *self.ends)

    def _fitted_calibration(self, parts, factor):
        """A factor times the quantile of the residuals, half of it in units of the width."""
        y, response, weight = map(np.concatenate, zip(*parts))
        low, high = self.ends
        width = np.maximum(response[:, high] - response[:, low], 0)
        mean = np.average(width, weights=weight)
        share, mean = (WIDTH_SHARE, mean) if mean > 0 else (0.0, 1.0)
        unit = share * width + (1 - share) * mean
        size = factor * weighted_quantile((y - response) / unit[:, None], weight, self.quantile)
        return Calibration((1 - share) * mean * size, share * size, low, high)

    def _pinball(self, residual):
        return np.maximum(self.quantile * residual, (self.quantile - 1) * residual)


class Quantiles(Quantile):
    """The sum of the pinball losses of several quantiles of one target."""

    kernel = kernels.QuantilesLoss

    def __init__(self, levels):
        BaseLoss.__init__(self, len(levels))
        self.quantile = np.array(levels, dtype=np.float64)
        self.ends = int(self.quantile.argmin()), int(self.quantile.argmax())

    def baseline(self, y, weight):
        return super().baseline(np.repeat(y, self.n_outputs, axis=1), weight)

    def kernel_loss(self):
        return self.kernel(self.quantile)


class AbsoluteError(Quantile):
    """The absolute error, which the conditional median minimises."""

    kernel = kernels.AbsoluteError
    parameters = ()
    quantile = 0.5
    calibration_level = None
    is_calibrated = False


class Huber(RobustLoss):
    """The squared error up to `delta` times the size of the residuals, and linear beyond."""

    kernel = kernels.HuberLoss
    parameters = ("delta",)

    def leaf_value(self, residual, weight, kernel, size):
        """The median, and the mean of the differences from it, cut off at the limit."""
        median = super().leaf_value(residual, weight, kernel, size)
        cut = np.clip(residual - median, -kernel.limit, kernel.limit)
        return median + np.average(cut, axis=0, weights=weight)


class LogLink(BaseLoss):
    """Losses of a mean exp(raw prediction); not for direct use."""

    name = ""  # in messages
    link = "log"
    has_unit = False
    max_step = 4.0
    is_calibrated = is_calibrated_in_training = True

    def check_target(self, y, weight):
        mean = np.average(y, axis=0, weights=weight)
        if y.min() < 0 or not (mean > 0).all() or not np.isfinite(mean).all():
            raise ValueError(
                f"loss={self.name!r} needs y of 0 or more with a positive mean, got a smallest "
                f"value of {y.min():g} and means {mean}"
            )

    def baseline(self, y, weight):
        return np.log(np.average(y, axis=0, weights=weight))

    def calibration(self, parts):
        """The logarithm of the ratio of the means, since the exponential of a mean is too low."""
        y, response, weight = map(np.concatenate, zip(*parts))
        mean, predicted = (np.average(a, axis=0, weights=weight) for a in (y, response))
        is_usable = (mean > 0) & (predicted > 0)
        ratio = np.where(is_usable, mean, 1.0) / np.where(is_usable, predicted, 1.0)
        return Calibration(np.log(ratio), np.zeros(self.n_outputs))

    def baseline_shift(self, y, raw, weight):
        return self.calibration([(y, np.exp(raw), weight)]).shift

    def scale_target(self, y, units):
        # exp(baseline) is a factor of every mean: a row with it as its target has the response 0.
        return y / np.exp(units.baseline)


class Poisson(LogLink):
    """The negative log-likelihood of counts."""

    kernel = kernels.PoissonLoss
    name = "poisson"


class Gamma(LogLink):
    """Half of the gamma deviance, for positive targets whose deviation grows with their mean."""

    kernel = kernels.GammaLoss
    methods = ("boosting",)
    name = "gamma"

    def check_target(self, y, weight):
        if y.min() <= 0:
            raise ValueError(f"loss='gamma' needs positive y, got a smallest value of {y.min():g}")
        super().check_target(y, weight)


class Tweedie(LogLink):
    """Half of the Tweedie deviance, for targets of 0 or more, some of them 0."""

    kernel = kernels.TweedieLoss
    methods = ("boosting",)
    name = "tweedie"
    parameters = ("power",)


class LogLoss(BaseLoss):
    """The negative log-likelihood of class numbers, after a softmax."""

    kernel = kernels.LogLoss
    methods = ()
    link = "softmax"
    has_unit = False
    max_step = 20.0
    parameters = ("label_smoothing",)

    def baseline(self, y, weight):
        """0 for every class with weight, so that the probability of the others stays 0."""
        return np.where(np.bincount(y, weight, self.n_outputs) > 0, 0.0, ABSENT)

    def scale_target(self, y, units):
        """Class numbers of shape (n_rows,), which have no unit."""
        return y

    def standardize(self, target, units):
        """Class numbers as a column of float64."""
        return np.ascontiguousarray(target[:, None], dtype=np.float64)


class BoostedLogLoss(LogLoss):
    """The log loss as boosting takes it, which starts from the shares of the classes.

    Two classes have one raw prediction in training, the logarithm of the odds of the second.
    """

    label_smoothing = 0.0

    def baseline(self, y, weight):
        share = np.bincount(y, weight, self.n_outputs) / weight.sum()
        with np.errstate(divide="ignore"):
            return np.where(share > 0, np.log(share), ABSENT)

    def start(self, baseline):
        return np.diff(baseline) if self.n_outputs == 2 else baseline

    def kernel_loss(self):
        return kernels.BinaryLogLoss(1) if self.n_outputs == 2 else super().kernel_loss()


# By the name that the parameter `loss` of an estimator has.
LOSSES = {
    "squared_error": SquaredError,
    "absolute_error": AbsoluteError,
    "huber": Huber,
    "quantile": Quantile,
    "poisson": Poisson,
    "gamma": Gamma,
    "tweedie": Tweedie,
    "log_loss": LogLoss,
}


def loss_names(method):
    """Names of the losses that the regressor of a method takes, see `BaseLoss.methods`."""
    return {name for name, kind in LOSSES.items() if method in kind.methods}


def make_loss(name, n_outputs, estimator):
    """The loss of a key of `LOSSES`, with the parameters that an estimator has for it."""
    kind = LOSSES[name]
    return kind(n_outputs, **{name: getattr(estimator, name) for name in kind.parameters})


def with_outlier_weights(data, loss):
    """The training set with the weights that a loss gives outliers among the targets."""
    factor = loss.outlier_factor(data.y, data.weight)
    return data if factor is None else data.with_weight(data.weight * factor)


def for_squared_errors(data, loss):
    """The training set without outliers of the target, or with all of them clipped."""
    y = loss.without_outliers(data.y, data.weight)
    if y is data.y:
        return data
    squared, is_usual = SquaredError(y.shape[1]), (y == data.y).all(axis=1)
    if 2 * data.weight[is_usual].sum() > data.weight.sum():
        data = data.sample(np.where(is_usual, data.weight, 0.0))
    units = squared.target_units(y, data.weight)
    return data.with_target(squared.scale_target(y, units), units, y)


def weighted_quantile(values, weight, quantile):
    """Quantiles of the columns of a matrix, interpolated between its rows.

    `quantile` is a number, or an array with one for each column.

    A row in sorted position k of n has the level k / (n + 1), so that the next draw lies below it
    with that probability; n is the effective number of rows where weights differ.
    """
    present = weight > 0
    values, weight = values[present], weight[present] / weight.sum()
    order = np.argsort(values, axis=0, kind="stable")
    # The sum of the squares is 1 / n for equal weights.
    level = np.cumsum(weight[order], axis=0) / (1 + weight @ weight)
    values = np.take_along_axis(values, order, axis=0)
    quantile = np.broadcast_to(quantile, values.shape[1])
    return np.array([np.interp(q, *pair) for q, *pair in zip(quantile, level.T, values.T)])


def apart(values, weight):
    """Mask of the values, of shape (n_rows,), above a gap over all others, see `APART`."""
    low, high = (weighted_quantile(values[:, None], weight, q)[0] for q in (0.25, 0.75))
    ordered = np.sort(values[weight > 0])
    with np.errstate(over="ignore"):
        far = high + APART * np.maximum(ordered - high, APART * (high - low))
    after_gap = ordered[1:][ordered[1:] > far[:-1]]
    if low == high or not len(after_gap):
        return np.zeros(len(values), dtype=bool)
    return values >= after_gap[0]


def robust_size(values, weight):
    """Unit of the deviations of each column from its median, (n_columns,); 0 where it is constant.

    The median absolute deviation, times the factor with which it is 1 for normal numbers of
    deviation 1. Where a value is common, such as 0 among counts, the share p of other rows has the
    median distance d, and the unit is d sqrt(p). At most the standard deviation.
    """
    present = weight > 0
    values, weight = values[present], weight[present]
    size = np.zeros(values.shape[1])
    for k, column in enumerate(values.T):
        distance = np.abs(column - weighted_quantile(column[:, None], weight, 0.5))
        _, number = np.unique(column, return_inverse=True)
        share = np.bincount(number, weight) / weight.sum()
        varies = distance > 0
        is_rare = varies & ((number != share.argmax()) | (share.max() < COMMON_SHARE))
        rows = is_rare if is_rare.any() else varies
        if not rows.any():
            continue
        typical = weighted_quantile(distance[rows, None], weight[rows], 0.5)[0]
        part = weight[rows].sum() / weight.sum()
        is_common = share.max() >= COMMON_SHARE
        found = typical * (np.sqrt(part) if is_common else 1 / NORMAL_MEDIAN)
        square = np.square(column - np.average(column, weights=weight))
        size[k] = min(found, np.sqrt(np.average(square, weights=weight)))
    return size
