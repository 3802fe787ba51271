"""Scales of a target: its check, baseline and unit, and its form for kernels."""

from dataclasses import dataclass

import numpy as np

# Range of the largest deviation of a target, so that float32 holds leaf values and their squares.
MIN_SCALE, MAX_SCALE = 2.0**-100, 2.0**120
NORMAL_MEDIAN = 0.6745  # median distance of normal numbers from their mean, over their deviation
COMMON_SHARE = 0.25  # a value this frequent, such as zero counts, is ignored in a unit
FENCE = 3.0  # for choices by squared errors, targets more units away from the median are outliers
# Targets are apart if their distance from the quartiles is APART times as large as that of all
# other targets, and as the interquartile range. At most the share RARE is rare.
APART, RARE = 3.0, 0.05
ABSENT = -1e3  # raw prediction of a class without weight; its probability is 0


def power_of_two_scale(deviation):
    """Return the power of two at or above the largest deviation of a target; 1 if all are 0.

    Squares of the scaled deviations are then far from the limits of float32, and the division
    loses no bit. ValueError if float32 cannot hold such deviations.
    """
    largest = np.abs(deviation).max()
    if np.isnan(largest):  # the sum of the target overflows
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
    """The baseline and the units of a target."""

    baseline: np.ndarray  # (n_outputs,), float64: initial raw prediction
    scale: float  # power of two that divides deviations from the baseline
    unit: np.ndarray  # typical size of the scaled deviations; 0 for a constant output

    @property
    def response(self):
        """ndarray of shape (n_outputs,): unit of the trained response.

        It is 0 for a constant output, which is always predicted by the baseline.
        """
        return self.unit * self.scale


class TargetScale:
    """Deviations from the weighted mean, in units of their root mean square."""

    has_unit = True  # deviations from the baseline are measured in units of their size

    def check(self, y, weight):
        """Raise ValueError if the loss is not defined for the target."""

    def baseline(self, y, weight):
        """Return the initial raw prediction: ndarray of shape (n_outputs,)."""
        mean = np.average(y, axis=0, weights=weight)
        is_finite = np.isfinite(mean)  # `power_of_two_scale` refuses others
        return np.where(is_finite, np.clip(mean, y.min(axis=0), y.max(axis=0)), mean)

    def size(self, deviation, weight):
        """Return the unit of each output from deviations from the baseline."""
        return np.sqrt(np.average(np.square(deviation), axis=0, weights=weight))

    def units(self, y, weight, baseline=None):
        """Return the `TargetUnits` of a target, after `check`.

        `baseline` is that of the model to which trees are added; None: of the target.
        """
        self.check(y, weight)
        baseline = self.baseline(y, weight) if baseline is None else baseline
        if not self.has_unit:
            return TargetUnits(baseline, 1.0, np.ones(len(baseline)))
        deviation = y - baseline
        scale = power_of_two_scale(deviation)
        return TargetUnits(baseline, scale, self.size(deviation / scale, weight))

    def shift(self, y, raw, weight):
        """Return the shift that moves raw predictions towards the targets, (n_outputs,)."""
        return self.baseline(y - raw, weight)

    def without_outliers(self, y, weight):
        """Return the target without outliers, for choices by squared errors."""
        return y

    def outlier_factor(self, y, weight):
        """Return factors of the weights of rows, smaller for outliers; None: all 1."""

    def scaled(self, y, units):
        """Return deviations from the baseline, divided by the power of two, for grown trees."""
        return (y - units.baseline) / units.scale

    def standardized(self, target, units):
        """Return a target from `scaled` in units of 1, for the kernel."""
        return target / np.where(units.unit > 0, units.unit, 1.0)

    def start(self, baseline):
        """Return the initial raw predictions of boosting, in units of the kernel."""
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
        """Return `robust_size`, which does not depend on the baseline."""
        return robust_size(deviation, weight)

    def without_outliers(self, y, weight):
        center, size = weighted_quantile(y, weight, 0.5), FENCE * robust_size(y, weight)
        return np.clip(y, center - size, center + size)

    def outlier_factor(self, y, weight):
        """Reduce the weights of rare outliers beyond a quantile.

        With the quantile 0.9, one row above counts as much as nine below, and a few outliers would
        move all predictions around them. They get the weight of rows on the other side. Outliers
        are apart from all other targets, see `APART`; they are rare if their weight is at most
        half of the weight beyond the quantile.
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

    loss: str  # name in messages
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
        # exp(baseline) is a factor of every mean; the response 0 belongs to this target.
        return y / np.exp(units.baseline)


@dataclass(frozen=True)
class LabelScale(TargetScale):
    """Class numbers of shape (n_rows,), which have no unit.

    Training starts from equal probabilities, or from the class frequencies. A class without weight
    keeps probability 0. In boosting, two classes have one raw prediction: the log odds of the
    second class.
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
        """Return a column of float64."""
        return np.ascontiguousarray(target[:, None], dtype=np.float64)

    def start(self, baseline):
        return np.diff(baseline) if self.n_classes == 2 else baseline


def with_outlier_weights(data, scale):
    """Return the training set with the factors of `outlier_factor`.

    The largest weight is 1, because the rows are not copies, see `are_copies`.
    """
    factor = scale.outlier_factor(data.y, data.weight)
    if factor is None:
        return data
    weighted = data.with_weight(data.weight * factor)
    return weighted.sample(weighted.weight / weighted.weight.max())


def for_squared_errors(data, scale):
    """Return the training set with `without_outliers` of its target."""
    y = scale.without_outliers(data.y, data.weight)
    if y is data.y:
        return data
    squared, is_usual = TargetScale(), (y == data.y).all(axis=1)
    if 2 * data.weight[is_usual].sum() > data.weight.sum():
        data = data.sample(np.where(is_usual, data.weight, 0.0))
    units = squared.units(y, data.weight)
    return data.with_target(squared.scaled(y, units), units, y)


def weighted_quantile(values, weight, quantile):
    """Return quantiles of the columns of a matrix, interpolated between its rows.

    `quantile` is a number, or an array with one for each column. A row in sorted position k of n
    has the level k / (n + 1), so the next draw lies below it with this probability. Weights that
    are whole numbers are numbers of rows; if others differ, n is the effective number of rows.
    """
    present = weight > 0
    values, weight = values[present], weight[present]
    order = np.argsort(values, axis=0, kind="stable")
    values = np.take_along_axis(values, order, axis=0)
    if are_copies(weight):  # each row has the levels of its first and of its last copy
        last = np.cumsum(weight[order], axis=0)
        first = last - weight[order] + 1
        level = np.stack([first, last], axis=1).reshape(-1, values.shape[1]) / (1 + weight.sum())
        values = np.repeat(values, 2, axis=0)
    else:
        weight = weight / weight.sum()
        # The sum of squares is 1 / n for equal weights.
        level = np.cumsum(weight[order], axis=0) / (1 + weight @ weight)
    quantile = np.broadcast_to(quantile, values.shape[1])
    return np.array([np.interp(q, *pair) for q, *pair in zip(quantile, level.T, values.T)])


def are_copies(weight):
    """Return whether positive weights are numbers of rows: whole numbers that are not all 1."""
    return weight.max(initial=1.0) > 1 and bool((weight == np.rint(weight)).all())


def log_ratio(y, predicted, weight):
    """Return the log ratios of two weighted means, (n_outputs,); 0 if one of them is 0."""
    mean, predicted = (np.average(a, axis=0, weights=weight) for a in (y, predicted))
    is_usable = (mean > 0) & (predicted > 0)
    return np.log(np.where(is_usable, mean, 1.0) / np.where(is_usable, predicted, 1.0))


def apart(values, weight):
    """Return a mask of the values, (n_rows,), above a gap over all others, see `APART`."""
    low, high = (weighted_quantile(values[:, None], weight, q)[0] for q in (0.25, 0.75))
    ordered = np.sort(values[weight > 0])
    with np.errstate(over="ignore"):
        far = high + APART * np.maximum(ordered - high, APART * (high - low))
    after_gap = ordered[1:][ordered[1:] > far[:-1]]
    if low == high or not len(after_gap):
        return np.zeros(len(values), dtype=bool)
    return values >= after_gap[0]


def robust_size(values, weight):
    """Return a robust unit of each column, (n_columns,); 0 if the column is constant.

    It is the median absolute deviation from the median, scaled to 1 for standard normal numbers.
    If a value is common, such as 0 among counts, let p be the share of other rows and d their
    median distance; the unit is d sqrt(p). It is at most the standard deviation.
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
