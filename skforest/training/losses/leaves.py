"""Leaf rules of boosting: the values of leaves before the learning rate."""

from dataclasses import dataclass

import numpy as np

from .scales import are_copies, weighted_quantile

FAR = 3.0  # limit of leaf values, in sizes of residuals, see `QuantileLeaves`


@dataclass(frozen=True)
class NewtonLeaves:
    """One step of Newton's method, with the curvatures of the kernel."""

    # Steps are limited, because they may be far too long if the curvature nearly vanishes.
    max_step: float = np.inf
    renews = False  # whether `value` replaces the step


@dataclass(frozen=True)
class QuantileLeaves:
    """The quantile of the residuals, for losses whose curvature is 0 or misleading."""

    level: float | np.ndarray = 0.5
    max_step = np.inf
    renews = True

    def value(self, residual, weight, kernel, size):
        """Return the constant to add to raw predictions in a leaf, (n_outputs,).

        `residual`, of shape (n_rows, n_outputs), is the target minus the raw prediction; `size` is
        the `robust_size` of the residuals of all rows. Splits tend to separate outliers, which may
        be most rows of a small leaf. Therefore, a value beyond `FAR` sizes is limited by the
        median of the rows on its near side.
        """
        # Take the smallest value between the quantile and the quantile two rows nearer to the
        # median, so that one or two outliers do not determine the value of a small leaf.
        level = np.asarray(self.level)
        row = 1.0 if are_copies(weight) else weight.max()
        nearer = np.maximum(np.abs(level - 0.5) - 2 * row / weight.sum(), 0.0)
        levels = level, 0.5 + np.sign(level - 0.5) * nearer
        found = [weighted_quantile(residual, weight, one) for one in levels]
        value = np.clip(0.0, np.minimum(*found), np.maximum(*found))
        far = FAR * np.where(size > 0, size, 1.0)
        if (np.abs(value) > far).any():
            ends = (weighted_quantile(residual, weight, q) for q in (level / 2, (1 + level) / 2))
            most = np.maximum(far, np.abs(np.clip(0.0, *ends)))
            value = np.clip(value, -most, most)
        return value


class HuberLeaves(QuantileLeaves):
    """The median of the residuals, plus their mean deviation, cut off at the kernel's limit."""

    def value(self, residual, weight, kernel, size):
        median = super().value(residual, weight, kernel, size)
        cut = np.clip(residual - median, -kernel.limit, kernel.limit)
        return median + np.average(cut, axis=0, weights=weight)
