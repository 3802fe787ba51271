"""FeatureMap: from the table that a user passes to the matrix that kernels read.

A feature map is fitted once, stored in the `Forest`, and applied alike by `fit`, `predict` and
readers of a saved forest. Kernels never see units, missing values or categories.

The columns of the table are the inputs, the columns of the matrix the features. A numeric input
gives one feature, with the training mean in place of missing values, scaled if the estimator
scales features. If values were missing in training, a second feature says which ones. A category
gives the number of its level and further features: with few levels, an indicator of each level;
with many levels, means of the target in the level (`TargetStatistics`), and indicators where these
help. A category with two levels has only indicators.
"""

import numpy as np
from scipy import sparse

from .frames import as_array, as_frame, read_table, table_of_matrix
from .matrix import (
    BLOCK,
    LIMIT,
    N_KNOTS,
    as_bytes,
    has_nan,
    min_max,
    scaled,
    scaled_csr,
    standard,
    usual_range,
    value_range,
    weighted_sums,
    with_fixed,
)

# A single corrupt value must neither determine the unit of a column nor dominate a prediction,
# since some responses grow linearly with a feature. `matrix.limited` moves outliers into tails
# whose length is the share TAIL of the usual range. In columns without outliers, values are
# clipped EXTRAPOLATION training ranges outside the training range.
TAIL, EXTRAPOLATION = 0.1, 1.0
MAX_KNOT = 1e300  # limit of scaled knots, so that arithmetic with them stays finite
# Represents a missing value while equal rows are merged, because NaN is not equal to NaN.
MISSING = np.finfo(np.float32).max  # a np.float32

# Names of the kinds of features. A Forest stores their positions.
KINDS = ("value", "is missing", "code", "level", "target")
VALUE, IS_MISSING, CODE, LEVEL, TARGET = range(len(KINDS))
MAX_INDICATORS = 10  # categories with more levels get indicators of levels only if they help
MAX_OFFERED = 40  # and those with still more levels none; chosen without a stored measurement
MIN_TARGET_LEVELS = 11  # categories with fewer levels get no target statistics


class FeatureMap:
    """Maps the rows of a table to the features that kernels read.

    Scaled inputs are ``(x - offset) * scale``, computed in float64 and rounded to float32. Inputs
    without scaling stay as they are: bytes if all values are whole numbers from 0 to 255, else
    float32. Each feature is then either an input, with `fill` for missing values, or the entry of
    a table at the number of the level.

    Parameters
    ----------
    offset, scale : ndarray of shape (n_inputs,), float64, default=None
        None: inputs are not scaled. For categories, they are 0 and 1. If an input was constant or
        empty in training, its scale is 0, so that other values do not change a prediction.
    low, high, tail, knots : ndarray of shape (n_inputs,), float32, and knots float64, default=None
        Limits of scaled inputs, see `matrix.limited`. None: they are clipped to ±`LIMIT`. An
        unscaled input is clipped only if its two limits are equal.
    fill : ndarray of shape (n_inputs,), float32, default=None
        Replacement of missing values, after scaling. None: missing values raise an error.
    source, kind : ndarray of shape (n_features,), int32 and uint8, default=None
        Input of every feature, and one of VALUE, IS_MISSING, CODE, LEVEL, TARGET. None: the
        features are the inputs.
    table_start, table : ndarray of shape (n_features + 1,), int64, and float32, default=None
        The tables of all features, one after the other; empty for VALUE, 0 and 1 for IS_MISSING.
        The table of a category has an entry for each level, then one for missing values and one
        for unknown levels.
    levels : dict of int to list of float or str, default=None
        Levels of the categories among the inputs.
    """

    def __init__(
        self,
        offset=None,
        scale=None,
        fill=None,
        source=None,
        kind=None,
        table_start=None,
        table=None,
        levels=None,
        low=None,
        high=None,
        tail=None,
        knots=None,
    ):
        def given(array, dtype):
            return np.zeros(0, dtype) if array is None else array

        self.offset, self.scale = given(offset, np.float64), given(scale, np.float64)
        self.low, self.high = given(low, np.float32), given(high, np.float32)
        self.tail = np.zeros_like(self.low) if tail is None else tail
        self.knots = np.zeros((0, 2, N_KNOTS)) if knots is None else knots
        self.fill, self.table = given(fill, np.float32), given(table, np.float32)
        self.source, self.kind = given(source, np.int32), given(kind, np.uint8)
        self.table_start = np.zeros(1, np.int64) if table_start is None else table_start
        self.levels = levels or {}

    @classmethod
    def fit(
        cls,
        X,
        weight,
        levels=None,
        is_scaling=True,
        scaling="minmax",
        limit=None,
        names=None,
        excludes_constant=False,
    ):
        """Fit the map of the inputs; `fit_features` then adds the features.

        With `is_scaling`, `scaling` is "minmax", "standard" or None, as in `CO2ForestClassifier`,
        or "common": "minmax" with one range for all inputs. Unless `scaling` is None, `limit` says
        which values are limited: none (None), values outside the training range ("range"), or also
        outliers ("usual"), which then do not count for the units, see `usual_range`. With
        `excludes_constant`, other values of inputs that are constant in X have no effect later.
        Raises ValueError if the range of an input, or its reciprocal, exceeds float64; the message
        has its name from `names`, if these are given.
        """
        if not (is_scaling or excludes_constant):
            return cls(levels=levels)
        if (weight == 0).any():
            X, weight = X[weight > 0], weight[weight > 0]
        ends, knots = value_range(X), None
        is_constant = ends[0] == ends[1]
        is_constant[list(levels or {})] = False
        if not is_scaling:
            if not is_constant.any():
                return cls(levels=levels)
            low, high = np.where(is_constant, ends, [[-MISSING], [MISSING]]).astype(np.float32)
            return cls(levels=levels, low=low, high=high)
        limits = ()
        offset, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        if scaling is not None:
            if scaling == "common":
                # Skip empty columns, whose range is 0 .. 0.
                has_values = ~np.isnan(np.fmin.reduce(X, axis=0))
                low, high = (end[has_values] if has_values.any() else end for end in ends)
                ends = np.full_like(ends[0], low.min()), np.full_like(ends[1], high.max())
            elif limit == "usual":
                *ends, knots = usual_range(X, weight, ends)
            offset, scale = min_max(X, ends, names)
            limits = cls._limits(ends, knots, offset, scale)
            if scaling == "standard":
                offset, scale = standard(X, weight, offset, scale, limits)
                limits = cls._limits(ends, knots, offset, scale)
            for j in levels or {}:
                offset[j], scale[j] = 0.0, 1.0
                for array, value in zip(limits[:3], (-LIMIT, LIMIT, 0)):
                    array[j] = value
        if excludes_constant:
            scale[is_constant] = 0.0
        own = zip(("low", "high", "tail", "knots"), limits if limit else ())
        return cls(offset, scale, levels=levels, **dict(own))

    def varying_again(self, X):
        """Return the inputs that were constant in `fit`, so that they have no effect, and vary."""
        fixed = self.scale == 0 if self.is_scaling else self.low == self.high
        columns = np.flatnonzero(fixed)
        if not len(columns):
            return columns
        low, high = value_range(X[:, columns])
        return columns[low < high]

    def release_constant(self):
        """Let inputs that were constant in `fit` have other values."""
        limit = LIMIT if self.is_scaling else MISSING
        is_constant = self.low == self.high
        self.low[is_constant], self.high[is_constant] = -limit, limit
        self.scale[self.scale == 0] = 1.0

    @staticmethod
    def _limits(ends, knots, offset, scale):
        """Return the limits of scaled inputs from the ends of their usual ranges."""
        low, high = ((end - offset) * scale for end in ends)
        width, n_inputs = high - low, len(scale)
        has_outliers = np.zeros((2, n_inputs), dtype=bool)
        if knots is not None:
            has_outliers = knots[:, :, -1].T != np.stack(ends[::-1])
        low = np.where(has_outliers[1], low, low - EXTRAPOLATION * width)
        high = np.where(has_outliers[0], high, high + EXTRAPOLATION * width)
        limits = [limit.astype(np.float32) for limit in (low, high, TAIL * width)]
        if not has_outliers.any():
            return [*limits, np.zeros((0, 2, N_KNOTS))]
        knots = (knots - offset[:, None, None]) * scale[:, None, None]
        return [*limits, np.clip(knots, -MAX_KNOT, MAX_KNOT)]

    @property
    def is_scaling(self):
        """bool: whether inputs are scaled."""
        return len(self.scale) > 0

    @property
    def keeps_zeros(self):
        """bool: whether features are the inputs, with 0 mapped to 0."""
        return not (self.offset * self.scale).any() and not len(self.source)

    @property
    def arrays(self):
        """dict: the arrays by their names in a `Forest`."""
        return {name: value for name, value in vars(self).items() if name != "levels"}

    # ------------------------------------------------------------------------------ prediction

    def transform(self, X, seek_bytes=True):
        """Return (n_samples, n_features) as kernels read it: uint8 or float32, C order.

        X, of shape (n_samples, n_inputs), is as `coded` returns it, in the dtype of `input_dtype`.
        If `seek_bytes`, unscaled floats that are whole numbers from 0 to 255 become bytes.
        """
        return self._features(self.inputs(X, seek_bytes))

    def inputs(self, X, seek_bytes=True):
        """Return the rows after scaling; NaN stays."""
        if self.is_scaling:
            scale_rows = scaled_csr if sparse.issparse(X) else scaled
            limits = (self.low, self.high, self.tail, self.knots) if len(self.low) else ()
            return scale_rows(X, self.offset, self.scale, *limits)
        if not sparse.issparse(X) and (seek_bytes or X.dtype == np.uint8):
            X = as_bytes(X)
        return with_fixed(X, self.low, self.high) if len(self.low) else X

    def _features(self, Z):
        """Return the features of scaled inputs; NaN means missing."""
        if not len(self.source):
            if not has_nan(Z):
                return Z
            self._check_fill()
            return np.where(np.isnan(Z), self.fill, Z)
        F = np.empty((len(Z), len(self.source)), dtype=np.float32)
        is_value = self.kind == VALUE
        source = self.source[is_value]
        values = Z[:, source]
        F[:, is_value] = np.where(np.isnan(values), self.fill[source], values)
        for f in np.flatnonzero(~is_value):
            j = self.source[f]
            F[:, f] = self.table_of(f)[self._entries(j, Z[:, j])]
        return F

    def _check_fill(self):
        if not len(self.fill):
            raise ValueError(
                "X contains NaN, and this forest has no numbers to put in place of missing "
                "values: fill them first"
            )

    def table_of(self, f):
        """Return the table of feature f; empty for numbers."""
        return self.table[self.table_start[f] : self.table_start[f + 1]]

    def _entries(self, j, column):
        """Return the positions of the values of an input in its tables.

        NaN means missing. Numbers that are no code, as in damaged files, count as unknown.
        """
        is_missing = np.isnan(column)
        if j not in self.levels:
            return is_missing.astype(np.intp)
        n_levels = len(self.levels[j])
        is_known = (column >= 0) & (column < n_levels) & (column == np.floor(column))
        entry = np.where(is_missing, n_levels, n_levels + 1)
        return np.where(is_known, column, entry).astype(np.intp)

    # -------------------------------------------------------------------------------- training

    def training_inputs(self, X):
        """Return `inputs` with MISSING in place of NaN, and whether a value is missing."""
        Z = self.inputs(X)
        if sparse.issparse(Z):
            return Z, False
        if not has_nan(Z):
            return Z, False
        if (Z == MISSING).any():
            raise ValueError(
                f"X contains missing values, and {MISSING:.8g}, the largest number of float32: "
                "rescale it"
            )
        return np.where(np.isnan(Z), MISSING, Z), True

    def fit_features(self, Z, weight, has_missing, statistics, with_indicators):
        """Return the complete map, with features fitted to distinct rows.

        Z has scaled inputs, uint8 or float32 of shape (n_rows, n_inputs), in canonical order, and
        MISSING for missing values if `has_missing`. `statistics` are the `TargetStatistics` of
        these rows. With `with_indicators`, features say which values are missing.
        """
        is_missing = Z == MISSING if has_missing else np.zeros((1, Z.shape[1]), dtype=bool)
        ends = None
        if not (self.is_scaling or sparse.issparse(Z) or Z.dtype == np.uint8):
            # A single outlier must not determine the replacement of missing values.
            known = np.where(is_missing, np.float32(np.nan), Z) if has_missing else Z
            low, high, _ = usual_range(known, weight, value_range(known))
            ends = low.astype(Z.dtype), high.astype(Z.dtype)
        fill = _means(Z, weight, is_missing, ends)
        if not (self.is_scaling or sparse.issparse(Z)):
            # The mean of equal values may differ from them by rounding.
            known = np.where(is_missing, np.float32(np.nan), Z) if has_missing else Z
            fill = np.clip(fill, *value_range(known))
        some_missing = is_missing.any(axis=0)
        source, kind, tables = [], [], []
        for j in range(Z.shape[1]):
            own = [(VALUE, np.zeros(0))]
            if j in self.levels:
                fill[j] = 0
                own = self._category_features(j, Z[:, j], weight, statistics)
            elif some_missing[j] and with_indicators:
                own.append((IS_MISSING, np.array([0.0, 1.0])))
            source += [j] * len(own)
            kind += [one for one, _ in own]
            tables += [table for _, table in own]
        return self._with_features(
            fill,
            np.array(source, dtype=np.int32),
            np.array(kind, dtype=np.uint8),
            np.cumsum([0, *map(len, tables)]),
            np.concatenate(tables).astype(np.float32),
        )

    def _with_features(self, fill, *features):
        """Return the map of the same inputs to `features`: source, kind and tables."""
        if len(features[0]) == len(fill) and not self.levels:  # the inputs themselves
            features = ()
        own = {name: vars(self)[name] for name in ("levels", "low", "high", "tail", "knots")}
        return FeatureMap(self.offset, self.scale, fill, *features, **own)

    def _category_features(self, j, column, weight, statistics):
        """Return the kinds and tables of the features of a category."""
        n_levels = len(self.levels[j])
        entry = self._entries(j, np.where(column == MISSING, np.float32(np.nan), column))
        total = np.bincount(entry, weight, n_levels + 2)
        has_missing = total[n_levels] > 0
        if np.count_nonzero(total) == 1:  # constant: other levels have no effect
            return [(CODE, np.zeros(n_levels + 2))]
        indicators = np.eye(n_levels + has_missing, n_levels + 2)
        if n_levels == 2:
            # Unknown levels count as the more frequent one. If neither has two thirds of the rows,
            # they are sent to each side by half of the splits between the two levels.
            share = total[:2] / total[:2].sum()
            share = share if 3 * share.max() > 2 else np.full(2, 0.5)
            indicators[:2, 2 + has_missing :] = share[:, None]
            return [(LEVEL, row) for row in indicators[total[: len(indicators)] > 0]]
        own = [(CODE, self._codes(entry, n_levels, total, statistics))]
        if 3 <= n_levels + has_missing <= MAX_INDICATORS:
            own += [(LEVEL, row) for row in indicators[total[: len(indicators)] > 0]]
        elif has_missing:
            own.append((LEVEL, indicators[n_levels]))
        if n_levels + has_missing >= MIN_TARGET_LEVELS:
            own += [(TARGET, table) for table in statistics.fit_tables(entry, n_levels)]
        return own

    def _codes(self, entry, n_levels, total, statistics):
        """Return the numbers of the levels, of missing values and of unknown levels.

        `total` has the weight of each. Entries without training rows get the number of the level
        whose mean target is nearest to the overall mean.
        """
        code = np.zeros(n_levels + 2)
        if n_levels:
            code[:n_levels] = np.arange(n_levels)
            code[n_levels] = (total * code).sum() / total[:n_levels].sum()
            code[n_levels + 1] = statistics.nearest_level(entry, n_levels)
            if total[n_levels] == 0:
                code[n_levels] = code[n_levels + 1]
        return code / max(n_levels - 1, 1) if self.is_scaling else code

    def training_features(self, Z, has_missing, statistics):
        """Return the features of distinct training rows; parameters as in `fit_features`.

        In contrast to `transform`, the target statistics of a row are computed from other folds;
        with `statistics=None`, the map has no labels of these rows, and this is not necessary.
        """
        if sparse.issparse(Z) or not (has_missing or len(self.source)):
            return Z
        if has_missing:
            Z = np.where(Z == MISSING, np.float32(np.nan), Z)
        if len(self.source):  # blocks stay in the cache while they are read by columns
            blocks = [self._features(Z[i : i + BLOCK]) for i in range(0, len(Z), BLOCK)]
            F = np.concatenate(blocks)
        else:
            F = self._features(Z)
        targets = np.flatnonzero((self.kind == TARGET) & (statistics is not None))
        for j in np.unique(self.source[targets]):
            own = targets[self.source[targets] == j]
            tables = np.stack([self.table_of(f) for f in own])
            entry = self._entries(j, Z[:, j])
            F[:, own] = statistics.cross_fitted(entry, len(self.levels[j]), tables).T
        return F

    @property
    def is_value(self):
        """Mask of the features that are numbers of the table."""
        return self.kind == VALUE if len(self.source) else np.ones(len(self.scale), dtype=bool)

    @property
    def is_constant(self):
        """Mask of the features with one value for all rows."""
        per_input = self.scale == 0 if self.is_scaling else self.low == self.high
        if not len(per_input):
            return np.zeros(len(self.source), dtype=bool) if len(self.source) else slice(0)
        return self.per_feature(per_input).astype(bool)

    @property
    def says_missing(self):
        """Mask of the features that say which values are missing."""
        found = self.kind == IS_MISSING
        for f in np.flatnonzero(self.kind == LEVEL):
            found[f] = np.argmax(self.table_of(f)) == len(self.levels[self.source[f]])
        return found

    @property
    def is_extra(self):
        """Mask of the indicators of levels and target statistics that accompany level numbers."""
        has_code = np.isin(self.source, self.source[self.kind == CODE])
        return has_code & ((self.kind == TARGET) | (self.kind == LEVEL) & ~self.says_missing)

    @property
    def without_indicators(self):
        """Numbers of the categories that `with_indicators` may give indicators of levels."""
        has_code = self.source[self.kind == CODE].tolist()
        most = [MAX_INDICATORS, MAX_OFFERED]
        return [j for j in has_code if most[0] < len(self.levels[j]) <= most[1]]

    def with_indicators(self, F, j):
        """Return the features F of rows, and the map, with an indicator of each level of input j.

        The category has none so far, and no row with a weight has an unknown level.
        """
        own, n_levels = self.source == j, len(self.levels[j])
        code = np.flatnonzero(own & (self.kind == CODE))
        is_level = F[:, code] == self.table_of(code[0])[:n_levels]
        for f in np.flatnonzero(own & self.says_missing):  # its mean may be the number of a level
            is_level &= F[:, [f]] == 0
        order = np.argsort(np.append(self.source, [j] * n_levels), kind="stable")
        tables = [self.table_of(f) for f in range(len(self.source))]
        tables += list(np.eye(n_levels, n_levels + 2, dtype=np.float32))
        feature_map = self._with_features(
            self.fill,
            np.append(self.source, np.full(n_levels, j, dtype=np.int32))[order],
            np.append(self.kind, np.full(n_levels, LEVEL, dtype=np.uint8))[order],
            np.cumsum([0, *(len(tables[f]) for f in order)]),
            np.concatenate([tables[f] for f in order]),
        )
        both = np.concatenate([F, is_level], axis=1, dtype=F.dtype)
        return np.ascontiguousarray(both[:, order]), feature_map

    def selected(self, is_kept):
        """Return the map to some of the features."""
        length = np.diff(self.table_start)
        return self._with_features(
            self.fill,
            self.source[is_kept],
            self.kind[is_kept],
            np.cumsum([0, *length[is_kept]]),
            self.table[np.repeat(is_kept, length)],
        )

    # ----------------------------------------------------------------------------- description

    def value_of(self, j, z):
        """Return the value of an input, a float, that is mapped to z, up to rounding.

        For a limit, it is the value nearest to the usual range.
        """
        if not self.is_scaling:
            return float(z)
        if len(self.knots):  # the inverse of `matrix.limited`
            for side, end in enumerate((self.high[j], self.low[j])):
                share = (z - end) / (self.tail[j] or 1) * (1 - 2 * side)
                if share > 0:
                    edges = np.append(end, self.knots[j, side])
                    z = np.interp(share * N_KNOTS, np.arange(N_KNOTS + 1), edges)
                    break
        return float(self.offset[j] + z / (self.scale[j] or 1))

    def per_feature(self, per_input, of_table=0.0):
        """Expand numbers of inputs to all features; features from tables get `of_table`."""
        if not len(self.source) or not len(per_input):
            return per_input
        return np.where(self.kind == VALUE, per_input[self.source], of_table)

    def scale_per_feature(self):
        """Return the factor of every feature; 1 for those from tables or constant inputs."""
        scale = self.per_feature(self.scale, 1.0)
        return np.where(scale > 0, scale, 1.0)

    def per_input(self, per_feature):
        """Return the sums over the features of every input."""
        if not len(self.source):
            return per_feature
        return np.bincount(self.source, per_feature, len(self.fill))

    def feature_names(self, names):
        """Return the names of the features from the names of the inputs."""
        if not len(self.source):
            return list(names)
        found, targets = [], np.flatnonzero(self.kind == TARGET)
        for f, j in enumerate(self.source):
            name, kind = str(names[j]), self.kind[f]
            if kind == IS_MISSING:
                name += " is missing"
            elif kind == LEVEL:
                level = int(np.argmax(self.table_of(f)))
                levels = self.levels[j]
                name += f" = {level_text(levels[level])}" if level < len(levels) else " is missing"
            elif kind == TARGET:
                own = targets[self.source[targets] == j]
                number = f" {1 + np.count_nonzero(own < f)}" if len(own) > 1 else ""
                name += f" (target mean{number})"
            found.append(name)
        return found

    def coded(self, X, names=None):
        """Convert a table to a float64 matrix with the numbers of levels as categories.

        Parameters
        ----------
        X : data frame, or array-like of shape (n_samples, n_inputs)
        names : sequence of str, default=None
            Names of the inputs, to find the columns of a data frame.
        """
        table = read_table(as_frame(X))
        if table is None:
            given, X = X, np.asarray(as_array(X))
            if X.ndim == 0:
                raise ValueError(
                    f"X is of type {type(given).__name__}; a data frame or an array of shape "
                    "(n_samples, n_features) is needed"
                )
            X = X if X.ndim == 2 else X.reshape(len(X), -1)
            table = table_of_matrix(X) if self.levels else None
        if table is None:
            return X
        return table.selected(names).matrix(self.levels)


def level_text(level):
    """Format a level of a category."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def _means(Z, weight, is_missing, ends=None):
    """Return the weighted mean of the known values of every input, float32.

    If `ends`, two arrays, are given, values are clipped to them.
    """
    if ends is None and not is_missing.any():
        return (weighted_sums(Z, weight) / weight.sum()).astype(np.float32)
    # Block by block: Z may be larger than the memory.
    total, known = np.zeros((2, Z.shape[1]))
    for start in range(0, len(Z), BLOCK):
        block, part = Z[start : start + BLOCK], weight[start : start + BLOCK]
        rows = slice(start, start + BLOCK) if len(is_missing) == len(Z) else slice(0, 1)
        there = np.broadcast_to(~is_missing[rows], block.shape)
        block = block if ends is None else np.clip(block, *ends)
        total += np.einsum("i,ij->j", part, np.where(there, block, 0), dtype=np.float64)
        known += np.einsum("i,ij->j", part, there, dtype=np.float64)
    return np.where(known > 0, total / np.where(known > 0, known, 1), 0).astype(np.float32)
