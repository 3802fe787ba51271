"""FeatureMap: from the table that a user passes to the matrix that kernels read.

A feature map is fitted once, in `fit`, stored in the `Forest`, and applied alike by `fit`,
`predict` and whatever reads a saved forest. Kernels never see units, missing values or categories.

The columns of the table are its inputs, the columns of the matrix the features. An input of
numbers gives a feature, scaled where the estimator scales, with the training mean in place of
missing values; where values were missing in training, a second feature says which. A category
gives the number of its level, and further features of two kinds: for few levels an
indicator of each, for many levels the mean of the target in the level (`TargetStatistics`).
"""

import mmap
import tempfile

import numpy as np
from scipy import sparse

from ._table import UNKNOWN, as_frame, read_table, table_of_matrix

BLOCK = 4096  # rows that are converted together
DENSE_BLOCK = 2**23  # numbers of a sparse matrix that are dense at a time
CACHED = 2**17  # numbers in float64 that stay in the cache
MIN_MAPPED = 2**26  # bytes from which on copies of memory-mapped rows are memory-mapped files
BYTE_FEATURES = 2**24 // 255  # up to here, sums of bytes are exact in float32
# Scaled values are clipped to this: their products with weights must stay within float32, or
# margins become infinite and their differences NaN.
LIMIT = 2.0**60
# One wrong value must not make a response that grows with it arbitrarily large: values further
# outside of the training range than this, in units of the range, are clipped.
EXTRAPOLATION = 1.0
# Stands for a missing value while equal rows are merged: NaN would equal no other NaN.
MISSING = np.finfo(np.float32).max  # a np.float32

# Kinds of features.
VALUE, IS_MISSING, CODE, LEVEL, TARGET = range(5)
MAX_INDICATORS = 10  # categories with more levels get no indicators of levels
MIN_TARGET_LEVELS = 11  # categories with fewer levels get no target statistics


class FeatureMap:
    """What happens to the rows of a table before the kernels read them.

    Inputs are mapped to ``(x - offset) * scale``, computed in float64 and rounded to float32; or
    they stay as they are, as bytes where all values are whole numbers from 0 to 255, and as
    float32 otherwise. Then every feature is made from one input: itself, with `fill` where it is
    missing, or an entry of a table, at the number of its level.

    Parameters
    ----------
    offset, scale : ndarray of shape (n_inputs,), float64, default=None
        None: inputs are not scaled. 0 and 1 for categories.
    low, high : ndarray of shape (n_inputs,), float32, default=None
        Limits to which scaled inputs are clipped. None: ±`LIMIT`.
    fill : ndarray of shape (n_inputs,), float32, default=None
        What missing values become, after scaling. None: they raise.
    source, kind : ndarray of shape (n_features,), int32 and uint8, default=None
        Input of every feature, and one of VALUE, IS_MISSING, CODE, LEVEL, TARGET. None: the
        features are the inputs.
    table_start, table : ndarray of shape (n_features + 1,), int64, and float32, default=None
        The tables of all features one after the other; empty ones for VALUE. Those of a category
        have an entry for each level, one for missing values and one for levels that were not seen
        in training; those of IS_MISSING are 0 and 1.
    levels : dict of int to list of float or str, default=None
        Levels of the categories among the inputs.
    """

    def __init__(
        self, offset=None, scale=None, fill=None, source=None, kind=None, table_start=None,
        table=None, levels=None, low=None, high=None,
    ):  # fmt: skip
        def given(array, dtype):
            return np.zeros(0, dtype) if array is None else array

        self.offset, self.scale = given(offset, np.float64), given(scale, np.float64)
        self.low, self.high = given(low, np.float32), given(high, np.float32)
        self.fill, self.table = given(fill, np.float32), given(table, np.float32)
        self.source, self.kind = given(source, np.int32), given(kind, np.uint8)
        self.table_start = np.zeros(1, np.int64) if table_start is None else table_start
        self.levels = levels or {}

    @classmethod
    def fit(cls, X, weight, levels=None, is_scaling=True, scaling="minmax"):
        """The map of the inputs, without features of its own yet: see `fit_features`.

        With `is_scaling`, `scaling` is "minmax", "standard" or None, as a parameter of
        `CO2ForestClassifier`. Raises ValueError if the range of an input, or its reciprocal, is
        beyond float64.
        """
        offset = scale = None
        if is_scaling and scaling is None:
            offset, scale = np.zeros(X.shape[1]), np.ones(X.shape[1])
        elif is_scaling:
            if (weight == 0).any():
                X, weight = X[weight > 0], weight[weight > 0]
            offset, scale = min_max(X)
            if scaling == "standard":
                offset, scale = standard(X, weight, offset, scale)
            for j in levels or {}:
                offset[j], scale[j] = 0.0, 1.0
        return cls(offset, scale, levels=levels)

    @property
    def is_scaling(self):
        """bool: are inputs scaled?"""
        return len(self.scale) > 0

    @property
    def arrays(self):
        """dict: the arrays by their names in a `Forest`."""
        return {name: value for name, value in vars(self).items() if name != "levels"}

    # ------------------------------------------------------------------------------ prediction

    def transform(self, X, seek_bytes=True):
        """The rows as kernels read them: (n_samples, n_features), uint8 or float32, C order.

        X, of shape (n_samples, n_inputs), is in the dtype that `input_dtype` names, with NaN where
        values are missing, and numbers of levels for categories, as `coded` returns them.
        `seek_bytes`: whether to look for whole numbers among floats that are not scaled.
        """
        return self._features(self.inputs(X, seek_bytes))

    def inputs(self, X, seek_bytes=True):
        """The rows after scaling; with NaN where they have it."""
        if self.is_scaling:
            scale_rows = scaled_csr if sparse.issparse(X) else scaled
            limits = (self.low, self.high) if len(self.low) else ()
            return scale_rows(X, self.offset, self.scale, *limits)
        return as_bytes(X) if seek_bytes and not sparse.issparse(X) else X

    def _features(self, Z):
        """Features of scaled inputs, in which NaN stands for missing values."""
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
                "X contains NaN, and this forest was trained by a version that did not take "
                "missing values: fill them first"
            )

    def table_of(self, f):
        """Value of feature f at each entry of its input; empty for numbers."""
        return self.table[self.table_start[f] : self.table_start[f + 1]]

    def _entries(self, j, column):
        """Position in its tables of every entry of an input; NaN stands for missing values."""
        is_missing = np.isnan(column)
        if j not in self.levels:
            return is_missing.astype(np.intp)
        n_levels = len(self.levels[j])
        entry = np.where(is_missing, n_levels, column)
        return np.where(entry == UNKNOWN, n_levels + 1, entry).astype(np.intp)

    # -------------------------------------------------------------------------------- training

    def training_inputs(self, X):
        """As `inputs`, with MISSING in place of NaN; and whether there is any."""
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

    def fit_features(self, Z, weight, has_missing, statistics, with_indicators, with_limits):
        """The complete map, with its features, from distinct rows.

        Z holds scaled inputs, uint8 or float32 of shape (n_rows, n_inputs), in canonical order;
        with `has_missing`, MISSING stands for missing values. `statistics` are the
        `TargetStatistics` of these rows. `with_indicators`: whether to make features that say
        which values are missing. `with_limits`: whether to clip inputs, see `EXTRAPOLATION`.
        """
        is_missing = Z == MISSING if has_missing else np.zeros((1, Z.shape[1]), dtype=bool)
        if with_limits:
            low, high = _range(np.where(is_missing, np.float32(np.nan), Z) if has_missing else Z)
            limits = np.stack([low, high]) + np.outer([-EXTRAPOLATION, EXTRAPOLATION], high - low)
            limits[:, list(self.levels)] = [[-LIMIT], [LIMIT]]
            self.low, self.high = limits.astype(np.float32)
        fill = _means(Z, weight, is_missing)
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
        """The map of the same inputs to given features; `features` are source, kind and tables."""
        if len(features[0]) == len(fill) and not self.levels:  # the inputs themselves
            features = ()
        own = {"levels": self.levels, "low": self.low, "high": self.high}
        return FeatureMap(self.offset, self.scale, fill, *features, **own)

    def _category_features(self, j, column, weight, statistics):
        """Kinds and tables of the features of a category."""
        n_levels = len(self.levels[j])
        entry = self._entries(j, np.where(column == MISSING, np.float32(np.nan), column))
        total = np.bincount(entry, weight, n_levels + 2)
        has_missing = total[n_levels] > 0
        rank = np.arange(n_levels, dtype=np.float64)
        if self.is_scaling:
            rank /= max(n_levels - 1, 1)
        mean = (total[:n_levels] * rank).sum() / max(total[:n_levels].sum(), 1e-300)
        own = [(CODE, np.concatenate([rank, [mean, mean]]))]
        if 3 <= n_levels + has_missing <= MAX_INDICATORS:
            own += [(LEVEL, row) for row in np.eye(n_levels + has_missing, n_levels + 2)]
        elif has_missing:
            own.append((LEVEL, np.eye(n_levels + 2)[n_levels]))
        if n_levels + has_missing >= MIN_TARGET_LEVELS:
            own.append((TARGET, statistics.fit_table(entry, n_levels)))
        return own

    def training_features(self, Z, has_missing, statistics):
        """Features of distinct training rows; the parameters are those of `fit_features`.

        As `transform`, but the target statistics of a row are those of the other folds. Without
        `statistics`, no labels of these rows are in them.
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
        for f, j in zip(targets, self.source[targets]):
            entry = self._entries(j, Z[:, j])
            F[:, f] = statistics.cross_fitted(entry, len(self.levels[j]), self.table_of(f))
        return F

    @property
    def says_missing(self):
        """Mask of the features that say which values are missing."""
        found = self.kind == IS_MISSING
        for f in np.flatnonzero(self.kind == LEVEL):
            found[f] = np.argmax(self.table_of(f)) == len(self.levels[self.source[f]])
        return found

    @property
    def is_extra(self):
        """Mask of indicators of levels and target statistics."""
        return (self.kind == TARGET) | (self.kind == LEVEL) & ~self.says_missing

    def selected(self, is_kept):
        """The map to some of the features."""
        length = np.diff(self.table_start)
        return self._with_features(
            self.fill,
            self.source[is_kept],
            self.kind[is_kept],
            np.cumsum([0, *length[is_kept]]),
            self.table[np.repeat(is_kept, length)],
        )

    # ----------------------------------------------------------------------------- description

    def per_feature(self, per_input):
        """Offsets or scales of all features, from those of the inputs; 0 and 1 for tables."""
        if not len(self.source) or not len(per_input):
            return per_input
        default = 1.0 if per_input is self.scale else 0.0
        return np.where(self.kind == VALUE, per_input[self.source], default)

    def per_input(self, per_feature):
        """Sums over the features of every input."""
        if not len(self.source):
            return per_feature
        return np.bincount(self.source, per_feature, len(self.fill))

    def feature_names(self, names):
        """Names of the features, from those of the inputs."""
        if not len(self.source):
            return list(names)
        found = []
        for f, j in enumerate(self.source):
            name, kind = str(names[j]), self.kind[f]
            if kind == IS_MISSING:
                name += " is missing"
            elif kind == LEVEL:
                level = int(np.argmax(self.table_of(f)))
                levels = self.levels[j]
                name += f" = {level_text(levels[level])}" if level < len(levels) else " is missing"
            elif kind == TARGET:
                name += " (target mean)"
            found.append(name)
        return found

    def coded(self, X, names=None):
        """A table as a matrix of numbers, float64: numbers of levels for categories.

        Parameters
        ----------
        X : data frame, or array-like of shape (n_samples, n_inputs)
        names : sequence of str, default=None
            Names of the inputs, to find the columns of a data frame.
        """
        table = read_table(as_frame(X))
        if table is None:
            given, X = X, np.asarray(X)
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


def has_nan(Z):
    """Has a matrix missing values? A minimum is NaN where any number is, and needs no mask."""
    return Z.dtype != np.uint8 and Z.size > 0 and bool(np.isnan(Z.min()))


def empty_like(X, shape, dtype):
    """An array for a copy of X: in a file without a name, if X is large and memory-mapped.

    The system can then write its pages to the disk where memory is short.
    """
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if n_bytes < MIN_MAPPED or not is_mapped(X):
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        file.truncate(n_bytes)
        # Not np.memmap, which joblib sends to other processes as the name of its file.
        return np.frombuffer(mmap.mmap(file.fileno(), n_bytes), dtype).reshape(shape)


def is_mapped(X):
    """Is an array, or the one that it is a view of, a file that is mapped into memory?"""
    while X is not None and not isinstance(X, mmap.mmap):
        X = X.obj if isinstance(X, memoryview) else getattr(X, "base", None)
    return X is not None


def rows_of(X, rows):
    """The rows with the given numbers, as a copy."""
    if sparse.issparse(X) or not is_mapped(X):
        return X[rows]
    found = empty_like(X, (len(rows), X.shape[1]), X.dtype)
    for start in range(0, len(rows), BLOCK):
        np.take(X, rows[start : start + BLOCK], axis=0, out=found[start : start + BLOCK])
    return found


def level_text(level):
    """A level of a category as text."""
    return str(int(level)) if isinstance(level, float) and level.is_integer() else str(level)


def _means(Z, weight, is_missing):
    """Weighted mean of every input over the rows where it is not missing: float32."""
    if not is_missing.any():
        return (weighted_sums(Z, weight) / weight.sum()).astype(np.float32)
    there = ~is_missing
    total = np.einsum("i,ij->j", weight, np.where(there, Z, 0), dtype=np.float64)
    known = np.einsum("i,ij->j", weight, there, dtype=np.float64)
    return np.where(known > 0, total / np.where(known > 0, known, 1), 0).astype(np.float32)


def dense(X):
    """A few rows as an ndarray."""
    return X.toarray() if sparse.issparse(X) else X


def dense_blocks(X):
    """X in blocks of dense rows; itself, if it is dense."""
    if not sparse.issparse(X):
        return [X]
    size = max(1, DENSE_BLOCK // X.shape[1])
    return (X[start : start + size].toarray() for start in range(0, max(1, X.shape[0]), size))


def canonical_csr(X):
    """A copy of a CSR matrix as kernels read it: features rise in every row, no zeros."""
    X = sparse.csr_matrix((X.data, X.indices, X.indptr), shape=X.shape, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    if X.nnz >= 2**31:
        raise ValueError(f"X has {X.nnz} entries that are not 0, at most 2^31 - 1 are supported")
    X.indices = X.indices.astype(np.int32, copy=False)
    X.indptr = X.indptr.astype(np.int32, copy=False)
    return X


def weighted_sums(X, weight):
    """Weighted sum of every column, float64."""
    # Without BLAS, whose last bits depend on its threads.
    if not sparse.issparse(X):
        return np.einsum("i,ij->j", weight, X, dtype=np.float64)
    total = np.zeros(X.shape[1])
    for start in range(0, X.shape[0], BLOCK):
        part = X[start : start + BLOCK]
        row_weight = np.repeat(weight[start : start + BLOCK], np.diff(part.indptr))
        # One entry after the other, in the order in which dense rows are added up.
        np.add.at(total, part.indices, row_weight * part.data)
    return total


# -------------------------------------------------------------------------------- scaling features


def min_max(X):
    """Offset and scale of every feature, float64, that take X to [0, 1].

    The minimum, and the reciprocal of the range; 1 for a constant feature. NaN does not
    count. ValueError if a range, or its reciprocal, is beyond float64. In a CSR matrix without
    stored zeros, features that are 0 in some row have offset 0, so that zeros stay zeros.
    """
    low, high = _range(X)
    offset = low.astype(np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        width = high.astype(np.float64) - offset
        scale = np.where(width > 0, 1 / np.where(width > 0, width, 1), 1.0)
    bad = np.flatnonzero(~(np.isfinite(width) & np.isfinite(scale)))
    if len(bad):
        raise ValueError(
            f"feature {bad[0]} of X has a range of {width[bad[0]]:g}, too wide or too narrow for "
            "float64: rescale it"
        )
    if sparse.issparse(X):  # of columns with zeros
        offset[np.bincount(X.indices, minlength=X.shape[1]) < X.shape[0]] = 0.0
    return offset, scale


def standard(X, weight, offset, scale):
    """Offset and scale of every feature that take X to mean 0 and deviation 1, float64.

    `offset` and `scale` are those of `min_max`. Means and deviations, in units of the range, are
    rounded to float32: so they depend neither on the order of the rows nor on whether a row has
    weight 2 or occurs twice. NaN does not count. Constant features keep their scale. In a CSR
    matrix without stored zeros, features with offset 0 are not shifted.
    """
    moments = _sparse_moments if sparse.issparse(X) else _dense_moments
    mean, deviation = moments(X, weight, offset, scale)
    shift = mean / scale
    if sparse.issparse(X):
        shift[offset == 0] = 0
    return offset + shift, scale / np.where(deviation > 0, deviation, 1)


def _dense_moments(X, weight, offset, scale):
    """Weighted mean and standard deviation of every feature, once it has been scaled."""

    def average(center, power):
        total, count = np.zeros((2, X.shape[1]))
        size = max(16, CACHED // max(1, X.shape[1]))
        for start in range(0, len(X), size):
            rows = slice(start, start + size)
            Z = (X[rows] - offset) * scale - center
            known = np.where(np.isnan(Z), 0.0, weight[rows, None])
            total += (known * np.nan_to_num(Z) ** power).sum(axis=0)
            count += known.sum(axis=0)
        return total / np.where(count > 0, count, 1)

    mean = _rounded(average(0.0, 1))
    return mean, _rounded(np.sqrt(average(mean, 2)))


def _sparse_moments(X, weight, offset, scale):
    """As `_dense_moments`, for a CSR matrix: entries that are not stored are 0."""
    column, n_features = X.indices, X.shape[1]
    Z = (X.data - offset[column]) * scale[column]
    weight, total = np.repeat(weight, np.diff(X.indptr)), weight.sum()
    mean = _rounded(np.bincount(column, weight * Z, n_features) / total)
    square = np.bincount(column, weight * (Z - mean[column]) ** 2, n_features)
    square += (total - np.bincount(column, weight, n_features)) * mean**2 * (offset == 0)
    return mean, _rounded(np.sqrt(square / total))


def _rounded(x):
    """Round to the precision of float32; the dtype stays float64."""
    return x.astype(np.float32).astype(np.float64)


def _range(X):
    """Smallest and largest value of every column; NaN does not count."""
    if sparse.issparse(X):
        low = np.where(np.bincount(X.indices, minlength=X.shape[1]) < X.shape[0], 0.0, np.inf)
        high = -low
        np.minimum.at(low, X.indices, X.data)
        np.maximum.at(high, X.indices, X.data)
        return low, high
    low, high = X.min(axis=0), X.max(axis=0)
    if np.isnan(low).any():
        # Functions that skip NaN take longer. Inputs without any value get the range 0 .. 0.
        low = np.nan_to_num(np.fmin.reduce(X, axis=0), posinf=np.inf, neginf=-np.inf)
        high = np.nan_to_num(np.fmax.reduce(X, axis=0), posinf=np.inf, neginf=-np.inf)
    return low, high


def scaled(X, offset, scale, low=-LIMIT, high=LIMIT):
    """``(X - offset) * scale``, in float64, clipped to `low` .. `high`, rounded to float32."""
    Z = empty_like(X, X.shape, np.float32)
    size = max(16, CACHED // max(1, X.shape[1]))
    block = np.empty((min(size, len(X)), X.shape[1]))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        part = block[: len(X[rows])]
        with np.errstate(over="ignore"):
            np.subtract(X[rows], offset, out=part)
            part *= scale
        np.clip(part, low, high, out=Z[rows], casting="same_kind")
    return Z


def scaled_csr(X, offset, scale, low=-LIMIT, high=LIMIT):
    """As `scaled`, for a canonical CSR matrix.

    Zeros of a feature with an offset become stored entries. ValueError if most entries would be.
    """
    moved = np.flatnonzero(offset)
    if X.shape[0] * len(moved) > 2 * X.nnz + X.shape[0]:
        raise ValueError(
            f"X is sparse, but {len(moved)} of its {X.shape[1]} features are not 0 where X is 0, "
            "since the forest was first fitted on dense X, or on features without zeros: pass "
            "X.toarray()"
        )
    data = np.empty(X.nnz, dtype=np.float32)
    own_scale = np.where(offset == 0, scale, 0.0)
    low, high = (np.broadcast_to(limit, len(scale)) for limit in (low, high))
    for start in range(0, X.nnz, CACHED):
        part = slice(start, start + CACHED)
        with np.errstate(over="ignore"):
            column = X.indices[part]
            value = X.data[part] * own_scale[column]
        np.clip(value, low[column], high[column], out=data[part], casting="same_kind")
    is_full = bool(data.all())
    Z = sparse.csr_matrix((data, X.indices, X.indptr), shape=X.shape, copy=not is_full)
    if not is_full:  # entries of features with an offset, and those that are rounded to 0
        Z.eliminate_zeros()
    if len(moved):
        own = (array[moved] for array in (offset, scale, low, high))
        part = scaled(X[:, moved].toarray(), *own)
        row, column = np.nonzero(part)
        entries = part[row, column], (row, moved[column])
        Z = canonical_csr(Z + sparse.csr_matrix(entries, shape=X.shape))
    return Z


def as_bytes(X):
    """X as uint8 where all its values are whole numbers from 0 to 255, as in most images.

    A quarter of the memory and the same splits: sums of bytes are exact in both dtypes as long as
    they stay below 2^24, which BYTE_FEATURES ensures.
    """
    if X.dtype == np.uint8 or X.shape[1] > BYTE_FEATURES:
        return X
    parts = []
    with np.errstate(invalid="ignore"):
        # In growing blocks: the first row of other data already answers the question.
        start, size = 0, 1
        while start < len(X):
            block = X[start : start + size]
            part = block.astype(np.uint8)
            if not (part == block).all():
                return X
            parts.append(part)
            start, size = start + size, BLOCK
    return np.concatenate(parts) if len(parts) > 1 else parts[0]
