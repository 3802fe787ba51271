"""Calibrations of boosting: additions to raw predictions after training."""

from dataclasses import dataclass

import numpy as np

from .scales import log_ratio, weighted_quantile

# Quantiles: the part of the shift that is omitted with very many bags, and the part proportional
# to the width between quantiles (`python -m benchmarks.measure.quantiles boosting`).
LEFT_OUT, WIDTH_SHARE = 0.3, 0.5


@dataclass(frozen=True)
class Addition:
    """An addition to raw predictions f: shift + slope * (f[high] - f[low])."""

    shift: np.ndarray  # (n_outputs,)
    slope: np.ndarray  # (n_outputs,)
    low: int = 0
    high: int = 0

    def added(self, raw):
        """Return the addition to raw predictions of shape (..., n_outputs)."""
        return self.shift + self.slope * (raw[..., self.high] - raw[..., self.low])[..., None]


class MeanRatio:
    """Make the mean of predictions with a log link equal to the mean of the targets."""

    # The exponential of a mean is too low on training rows, too. They are therefore used if at
    # most one bag has held-out rows, and there are few other rows.
    takes_training_rows = True
    level = None

    def fit(self, parts):
        """Return an `Addition`: the logarithm of the ratio of the means.

        `parts` has targets, predictions and weights of rows for each bag.
        """
        shift = log_ratio(*map(np.concatenate, zip(*parts)))
        return Addition(shift, np.zeros(len(shift)))


@dataclass(frozen=True)
class QuantileShift:
    """Make new targets lie below predictions with the requested probability."""

    level: float | np.ndarray  # probability for each output
    takes_training_rows = False

    def fit(self, parts):
        """Return an `Addition`; `parts` as in `MeanRatio.fit`.

        With several bags, each part is predicted by a single bag, which has larger errors than the
        mean of all bags, so only a share of the shift is used. For each bag, a shift is also
        fitted on the rows of the other bags. If this increases the loss of an output by more than
        its standard error, the output is not shifted.
        """
        factor = 1 - LEFT_OUT * (1 - 1 / len(parts))
        found = self._fitted(parts, factor)
        if len(parts) == 1:
            return found
        gain, square = np.zeros((2, len(found.shift)))
        for number, (y, response, weight) in enumerate(parts):
            others = parts[:number] + parts[number + 1 :]
            moved = response + self._fitted(others, factor).added(response)
            of_rows = self._pinball(y - response) - self._pinball(y - moved)
            gain += np.einsum("i,ij->j", weight, of_rows)
            square += np.einsum("i,ij->j", weight**2, of_rows**2)
        is_moved = gain >= -np.sqrt(square)
        return Addition(found.shift * is_moved, found.slope * is_moved, found.low, found.high)

    def _fitted(self, parts, factor):
        """Return `factor` times the quantile of residuals, half of it in units of the width."""
        y, response, weight = map(np.concatenate, zip(*parts))
        low, high = int(np.argmin(self.level)), int(np.argmax(self.level))
        width = np.maximum(response[:, high] - response[:, low], 0)
        mean = np.average(width, weights=weight)
        share, mean = (WIDTH_SHARE, mean) if mean > 0 else (0.0, 1.0)
        unit = share * width + (1 - share) * mean
        size = factor * weighted_quantile((y - response) / unit[:, None], weight, self.level)
        return Addition((1 - share) * mean * size, share * size, low, high)

    def _pinball(self, residual):
        return np.maximum(self.level * residual, (self.level - 1) * residual)
