"""Scales of a target: its check, its zero point and unit, and its form for a kernel."""

from dataclasses import dataclass

import numpy as np

# Largest deviations of a target that float32 leaf values and their squares hold.
MIN_SCALE, MAX_SCALE = 2.0**-100, 2.0**120
NORMAL_MEDIAN = 0.6745  # median distance of normal numbers from their mean, over their deviation
COMMON_SHARE = 0.25  # so many equal targets, such as zeros of counts, do not count for a unit
# Targets this many units from the median are outliers for choices by squared errors: few numbers
# of a normal distribution are so far away.
FENCE = 3.0
# Targets are apart from all others if they are APART times as far from the quartiles as these, and
# as APART interquartile ranges. At most the share RARE is rare.
APART, RARE = 3.0, 0.05
ABSENT = -1e3  # raw prediction of a class without weight: its probability is 0


def power_of_two_scale(deviation):
    """The power of two at or above the largest deviation of a target; 1 if all are 0.

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


class TargetScale:
    """Deviations from the weighted mean, in units of their root mean square."""

    has_unit = True  # are deviations from the baseline measured in units of their size?

    def check(self, y, weight):
        """Raise ValueError if the loss is not defined for the target."""

    def baseline(self, y, weight):
        """The constant raw prediction that training starts from: ndarray of shape (n_outputs,)."""
        return np.average(y, axis=0, weights=weight)

    def size(self, deviation, weight):
        """The unit of each output, by deviations from the baseline."""
        return np.sqrt(np.average(np.square(deviation), axis=0, weights=weight))

    def units(self, y, weight, baseline=None):
        """The `TargetUnits` of a target, after `check`.

        `baseline` is the baseline of a model to which trees are added. None:
        ``self.baseline(y, weight)``.
        """
        self.check(y, weight)
        baseline = self.baseline(y, weight) if baseline is None else baseline
        if not self.has_unit:
            return TargetUnits(baseline, 1.0, np.ones(len(baseline)))
        deviation = y - baseline
        scale = power_of_two_scale(deviation)
        return TargetUnits(baseline, scale, self.size(deviation / scale, weight))

    def shift(self, y, raw, weight):
        """The shift that moves raw predictions towards the targets, (n_outputs,)."""
        return self.baseline(y - raw, weight)

    def without_outliers(self, y, weight):
        """The target for choices by squared errors, which outliers must not determine."""
        return y

    def outlier_factor(self, y, weight):
        """Factors of the weights of rows, (n_rows,), whose targets are outliers; None: all 1."""

    def scaled(self, y, units):
        """Deviations from the baseline, divided by the power of two, for grown trees."""
        return (y - units.baseline) / units.scale

    def standardized(self, target, units):
        """A target from `scaled` in units of 1, for the kernel."""
        return target / np.where(units.unit > 0, units.unit, 1.0)

    def start(self, baseline):
        """Raw predictions that the trees of boosting are added to, in units of the kernel."""
        return np.zeros(len(baseline))


@dataclass(frozen=True)
class QuantileScale(TargetScale):
    """Deviations from a quantile, in units that outliers do not determine.

    If there are several levels, each belongs to an output; outputs may share one target.
    """

    level: float | np.ndarray = 0.5

    def baseline(self, y, weight):
        columns = np.broadcast_to(y, (len(y), max(y.shape[1], np.size(self.level))))
        return weighted_quantile(columns, weight, self.level)

    def size(self, deviation, weight):
        """See `robust_size`; it does not depend on the baseline."""
        return robust_size(deviation, weight)

    def without_outliers(self, y, weight):
        center, size = weighted_quantile(y, weight, 0.5), FENCE * robust_size(y, weight)
        return np.clip(y, center - size, center + size)

    def outlier_factor(self, y, weight):
        """Limit the weight of rare outliers beyond a quantile to that of rows on the other side.

        With the quantile 0.9, one row above weighs as much as nine below, and a few outliers would
        move all predictions around them. Outliers are apart from all other targets, see `APART`;
        they are rare if their weight is at most half of the weight beyond the quantile.
        """
        factor = np.ones(len(y))
        for sign, level in ((1, np.max(self.level)), (-1, 1 - np.min(self.level))):
            for column in y.T if level > 0.5 else ():
                is_outlier = apart(sign * column, weight)
                if weight[is_outlier].sum() / weight.sum() <= min(RARE, (1 - level) / 2):
                    factor[is_outlier] = np.minimum(factor[is_outlier], (1 - level) / level)
        return factor if factor.min() < 1 else None


@dataclass(frozen=True)
class RatioScale(TargetScale):
    """Ratios to the weighted mean; the logarithm of the mean is the baseline."""

    loss: str  # in messages
    takes_zero: bool = True
    has_unit = False

    def check(self, y, weight):
        mean, least = np.average(y, axis=0, weights=weight), y.min()
        if not self.takes_zero and least <= 0:
            raise ValueError(
                f"loss={self.loss!r} needs positive y, got a smallest value of {least:g}"
            )
        if least < 0 or not (mean > 0).all() or not np.isfinite(mean).all():
            raise ValueError(
                f"loss={self.loss!r} needs y of 0 or more with a positive mean, got a smallest "
                f"value of {least:g} and means {mean}"
            )

    def baseline(self, y, weight):
        return np.log(np.average(y, axis=0, weights=weight))

    def shift(self, y, raw, weight):
        return log_ratio(y, np.exp(raw), weight)

    def scaled(self, y, units):
        # exp(baseline) is a factor of every mean: a row with it as its target has the response 0.
        return y / np.exp(units.baseline)


@dataclass(frozen=True)
class LabelScale(TargetScale):
    """Class numbers of shape (n_rows,), which have no unit.

    Training starts from equal probabilities, or from the class frequencies. A class without weight
    has probability 0 and keeps it. Two classes have one raw prediction in boosting, the logarithm
    of the odds of the second.
    """

    n_classes: int
    starts_from_shares: bool
    has_unit = False

    def baseline(self, y, weight):
        share = np.bincount(y, weight, self.n_classes) / weight.sum()
        if not self.starts_from_shares:
            return np.where(share > 0, 0.0, ABSENT)
        with np.errstate(divide="ignore"):
            return np.where(share > 0, np.log(share), ABSENT)

    def scaled(self, y, units):
        return y

    def standardized(self, target, units):
        """A column of float64."""
        return np.ascontiguousarray(target[:, None], dtype=np.float64)

    def start(self, baseline):
        return np.diff(baseline) if self.n_classes == 2 else baseline


def with_outlier_weights(data, scale):
    """The training set with the scale's weights for outliers among the targets."""
    factor = scale.outlier_factor(data.y, data.weight)
    return data if factor is None else data.with_weight(data.weight * factor)


def for_squared_errors(data, scale):
    """The training set without outliers of the target, or with all of them clipped."""
    y = scale.without_outliers(data.y, data.weight)
    if y is data.y:
        return data
    squared, is_usual = TargetScale(), (y == data.y).all(axis=1)
    if 2 * data.weight[is_usual].sum() > data.weight.sum():
        data = data.sample(np.where(is_usual, data.weight, 0.0))
    units = squared.units(y, data.weight)
    return data.with_target(squared.scaled(y, units), units, y)


def weighted_quantile(values, weight, quantile):
    """Quantiles of the columns of a matrix, interpolated between its rows.

    `quantile` is a number, or an array with one for each column.

    A row in sorted position k of n has the level k / (n + 1), so the next draw lies below it with
    this probability; if weights differ, n is the effective number of rows.
    """
    present = weight > 0
    values, weight = values[present], weight[present] / weight.sum()
    order = np.argsort(values, axis=0, kind="stable")
    # The sum of the squares is 1 / n for equal weights.
    level = np.cumsum(weight[order], axis=0) / (1 + weight @ weight)
    values = np.take_along_axis(values, order, axis=0)
    quantile = np.broadcast_to(quantile, values.shape[1])
    return np.array([np.interp(q, *pair) for q, *pair in zip(quantile, level.T, values.T)])


def log_ratio(y, predicted, weight):
    """Logarithms of the ratios of two weighted means, (n_outputs,); 0 if one of them is 0."""
    mean, predicted = (np.average(a, axis=0, weights=weight) for a in (y, predicted))
    is_usable = (mean > 0) & (predicted > 0)
    return np.log(np.where(is_usable, mean, 1.0) / np.where(is_usable, predicted, 1.0))


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

    It is the median absolute deviation, times the factor that makes it 1 for standard normal
    numbers. If a value is common, such as 0 among counts, the share p of other rows has the median
    distance d, and the unit is d sqrt(p). It is at most the standard deviation.
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
