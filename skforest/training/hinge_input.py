"""Training rows of hinge forests, with each feature in its own unit."""

from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from .._kernels.base.row_reader import RowReader
from ..table.matrix import dense

BLOCK = 1024  # rows standardised at once
# Units of streams change if the new ones differ by more than this factor, or the centres by more
# than this number of units. Chosen without a stored measurement.
MAX_RATIO, MAX_SHIFT = 2.0, 1.0
FAR = 10.0  # a feature is reported if most values are more than so many units from the centre


@dataclass(frozen=True)
class HingeInput:
    """Training rows, and the units of features."""

    scaled: np.ndarray  # (n_rows, n_features), float32, for the `Forest`; or a CSR matrix
    mean: np.ndarray  # (n_features,), float64, of `scaled`
    unit: np.ndarray  # (n_features,), float64, of `scaled`
    emphasis: np.ndarray  # learned features see (scaled - mean) / unit * emphasis
    deviation: np.ndarray  # (n_features,), float32, of `scaled`, for importances
    # (n_patches, patch_size), int32: columns in the inner products of each patch. Tables have one
    # patch; images have one for each place of the kernel.
    receptive_fields: np.ndarray
    is_kept_apart: np.ndarray | None = None  # (n_rows,), bool: rows that no bag sees

    @classmethod
    def of_table(cls, data, emphasis, has_one_unit, n_read):
        """Take the features of a TrainingSet in standard deviations, times `emphasis`.

        With `has_one_unit`, all features share one unit before the emphasis, so features with a
        large variance dominate. Inner products read the `n_read` columns of largest emphasis.
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
        """Measure all pixels in one unit, not centred, because a kernel moves over them."""
        scale = data.feature_map.scale_per_feature()
        unit = scale * _root_mean_square(_deviations(data))
        mean, emphasis = np.zeros(len(scale)), np.ones(len(scale))
        return cls(data.X, mean, unit, emphasis, data.deviation(), receptive_fields)

    def table(self):
        """Return the rows for learned features: float32 ndarray, or a RowReader if sparse."""
        factor = self.emphasis / self.unit
        if sparse.issparse(self.scaled):
            return RowReader(self.scaled, self.mean, factor)
        table = np.empty(self.scaled.shape, dtype=np.float32)
        for start in range(0, len(table), BLOCK):
            block = slice(start, start + BLOCK)
            table[block] = (self.scaled[block] - self.mean) * factor
        return table

    def adapted(self, now):
        """Return this input, with the units of another input if they are far apart."""
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
        """Return a mask of features with most values more than FAR units from the mean."""
        X = dense(self.scaled[:BLOCK])
        distance = np.abs(X - self.mean) > FAR * self.unit
        return (self.deviation > 0) & (distance.mean(axis=0) > 0.5)

    def subset(self, rows):
        """Return some of the rows."""
        apart = None if self.is_kept_apart is None else self.is_kept_apart[rows]
        return replace(self, scaled=self.scaled[rows], is_kept_apart=apart)


def are_far(new, old):
    """Return a mask of the units that are far from earlier ones, see `MAX_RATIO`."""
    return (new > MAX_RATIO * old) | (old > MAX_RATIO * new)


def _deviations(data):
    """Return the standard deviations of features before the map scaled them; 0 if constant."""
    return data.deviation() / data.feature_map.scale_per_feature()


def _root_mean_square(values):
    """Return the root mean square of nonnegative values; 1 if all are 0."""
    # A power of two keeps squares in the range of float64.
    exponent = np.frexp(values.max())[1]
    mean = np.mean(np.square(np.ldexp(values, -exponent)))
    return float(np.ldexp(np.sqrt(mean), exponent)) or 1.0
