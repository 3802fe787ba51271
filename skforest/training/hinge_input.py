"""The rows that a hinge forest learns from, with each feature in its own unit."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from .._kernels.base.row_reader import RowReader
from ..table.matrix import dense

BLOCK = 1024  # rows that are standardised together
# Units of streams change if they would be so many times larger or smaller, or centres so many
# units away. Chosen without a stored measurement.
MAX_RATIO, MAX_SHIFT = 2.0, 1.0
FAR = 10.0  # units from the centre, beyond which most values of a part are reported


@dataclass(frozen=True)
class HingeInput:
    """The rows that a forest learns from, with each feature in its own unit."""

    # (n_rows, n_features), float32, as the `Forest` takes them: ndarray or CSR matrix.
    scaled: np.ndarray
    mean: np.ndarray  # (n_features,), float64, of `scaled`
    unit: np.ndarray  # (n_features,), float64, of `scaled`
    emphasis: np.ndarray  # learned features see (scaled - mean) / unit * emphasis
    deviation: np.ndarray  # (n_features,), float32, of `scaled`, for the importances
    # (n_patches, patch_size), int32: columns of each patch that learned features are inner
    # products with: all, in one patch, or those under a kernel at each of its places.
    receptive_fields: np.ndarray
    # (n_rows,), bool: rows that no bag sees, neither to train nor to stop early.
    is_kept_apart: np.ndarray | None = None

    @classmethod
    def of_table(cls, data, emphasis, has_one_unit, n_read):
        """The features of a TrainingSet in units of their standard deviations, times `emphasis`.

        With `has_one_unit`, all features share one unit before the emphasis, so features with a
        large variance dominate. Learned features are inner products with the `n_read` columns of
        largest emphasis.
        """
        chosen = np.sort(np.argsort(-emphasis, kind="stable")[:n_read])
        if has_one_unit:
            deviations = _deviations(data)
            common = _root_mean_square(deviations)
            emphasis = emphasis * (np.where(deviations > 0, deviations, common) / common)
        fields = chosen.astype(np.int32)[None]
        unit = data.unit().astype(np.float64)
        return cls(data.X, data.mean(), unit, emphasis, data.deviation(), fields)

    @classmethod
    def of_images(cls, data, receptive_fields):
        """The features in one unit, not centred, since a kernel moves over all of them."""
        scale = _scale(data)
        unit = scale * _root_mean_square(_deviations(data))
        mean, emphasis = np.zeros(len(scale)), np.ones(len(scale))
        return cls(data.X, mean, unit, emphasis, data.deviation(), receptive_fields)

    def table(self):
        """The rows as learned features see them: ndarray, float32, or a RowReader if sparse."""
        factor = self.emphasis / self.unit
        if sparse.issparse(self.scaled):
            return RowReader(self.scaled, self.mean, factor)
        table = np.empty(self.scaled.shape, dtype=np.float32)
        for start in range(0, len(table), BLOCK):
            block = slice(start, start + BLOCK)
            table[block] = (self.scaled[block] - self.mean) * factor
        return table

    def adapted(self, now):
        """This input, with the units of another input if they are far apart."""
        varies = now.deviation > 0
        factor, new_factor = self.emphasis / self.unit, now.emphasis / now.unit
        is_scaled = varies & ((self.deviation == 0) | are_far(new_factor, factor))
        shift = np.abs(now.mean - self.mean) * np.where(varies, new_factor, factor)
        is_moved = is_scaled | (shift > MAX_SHIFT)
        if not is_moved.any():
            return self

        def chosen(name, is_new):
            return np.where(is_new, getattr(now, name), getattr(self, name))

        scaled = {name: chosen(name, is_scaled) for name in ("unit", "emphasis", "deviation")}
        return replace(self, mean=chosen("mean", is_moved), **scaled)

    def far_features(self):
        """Mask of features with most values more than FAR units from the mean."""
        X = dense(self.scaled[:BLOCK])
        distance = np.abs(X - self.mean) > FAR * self.unit
        return (self.deviation > 0) & (distance.mean(axis=0) > 0.5)

    def subset(self, rows):
        """Some of the rows."""
        apart = None if self.is_kept_apart is None else self.is_kept_apart[rows]
        return replace(self, scaled=self.scaled[rows], is_kept_apart=apart)


def are_far(new, old):
    """Mask of the units that are far from earlier ones, see `MAX_RATIO`."""
    return (new > MAX_RATIO * old) | (old > MAX_RATIO * new)


def _deviations(data):
    """Standard deviations of the features as they were before the map scaled them; 0: constant."""
    return data.deviation() / _scale(data)


def _scale(data):
    """Factor of every feature in the map; 1 for those that the map excludes."""
    scale = data.feature_map.per_feature(data.feature_map.scale, 1.0)
    return np.where(scale > 0, scale, 1.0)


def _root_mean_square(values):
    """Root mean square of nonnegative values; 1 if all are 0."""
    # Divided by a power of two, so that no square is too large or too small for float64.
    exponent = np.frexp(values.max())[1]
    mean = np.mean(np.square(np.ldexp(values, -exponent)))
    return float(np.ldexp(np.sqrt(mean), exponent)) or 1.0
