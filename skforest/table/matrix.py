"""Matrices of numbers, dense or sparse: copies, blocks of rows, units of the columns."""

import mmap
import tempfile

import numpy as np
from scipy import sparse

from .._kernels.base.outliers import write_usual_ends
from .._kernels.base.row_reader import whole_bytes

BLOCK = 4096  # rows converted at once
ENTRIES = 2**20  # of sparse matrices, counted at once
DENSE_BLOCK = 2**23  # entries of a sparse matrix made dense at once
CACHED = 2**17  # numbers in float64 that fit into the cache
RANKED = 2**18  # entries of whole columns sorted at once
MIN_MAPPED = 2**26  # bytes; larger copies of memory-mapped rows are memory-mapped files
BYTE_FEATURES = 2**24 // 255  # sums of so many bytes are exact in float32
# Scaled values are clipped to this limit, so that their products with weights stay within float32:
# otherwise margins would be infinite and their differences NaN.
LIMIT = 2.0**60
# Outliers belong to the share RARE of the smallest or largest values, and are more than FENCE
# interquartile ranges away from the quartiles.
RARE, FENCE = 0.05, 3.0
# If no value lies between the fences and this distance from the quartiles, outliers need not be
# rare: they may be up to a quarter of the values, or any number of equal values.
APART = 10.0
# Outliers are excluded from the unit of a column if they widen its range by more than this factor,
# or by twice this factor if a tail is not rare. Chosen by `python -m benchmarks.measure.outliers`.
FAR = 2.5
N_KNOTS = 8  # knots among the distinct outliers at one end, see `limited`
# At most MAX_GAPS gaps have a knot of their own: outliers beyond one are GAP times as far away.
GAP, MAX_GAPS = 10.0, 3
MIN_WIDTH = float(np.finfo(np.float64).tiny)  # reciprocals of smaller numbers may overflow


def refuse_masked(values, name, advice):
    """Raise TypeError for a masked array, whose mask scikit-learn ignores."""
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; {advice}")


def refuse_masked_rows(X):
    """Raise TypeError for rows as a masked array, or as a list of such."""
    for part in X if isinstance(X, list | tuple) else [X]:
        refuse_masked(part, "X", "replace the masked values by NaN first: X.filled(np.nan)")


def has_nan(Z):
    """Return whether a matrix has missing values, without a mask: its minimum is NaN then."""
    return Z.dtype != np.uint8 and Z.size > 0 and bool(np.isnan(Z.min()))


def empty_like(X, shape, dtype):
    """Return an array for a copy of X; if X is large and memory-mapped, in a temporary file.

    The system can then write its pages to the disk if memory is short.
    """
    n_bytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    if n_bytes < MIN_MAPPED or not is_mapped(X):
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile() as file:
        file.truncate(n_bytes)
        # joblib would send a np.memmap to other processes as the name of a file.
        return np.frombuffer(mmap.mmap(file.fileno(), n_bytes), dtype).reshape(shape)


def is_mapped(X):
    """Return whether an array, or the base of a view, is a memory-mapped file."""
    while X is not None and not isinstance(X, mmap.mmap):
        X = X.obj if isinstance(X, memoryview) else getattr(X, "base", None)
    return X is not None


def rows_of(X, rows):
    """Copy the rows with the given numbers."""
    if sparse.issparse(X) or not is_mapped(X):
        return X[rows]
    found = empty_like(X, (len(rows), X.shape[1]), X.dtype)
    for start in range(0, len(rows), BLOCK):
        np.take(X, rows[start : start + BLOCK], axis=0, out=found[start : start + BLOCK])
    return found


def equal_rows(order, n):
    """Return a number for each of the n rows of a RowOrder, which equal rows share."""
    rows = np.arange(n)
    hashes = order.hashes(rows)
    rows = rows[by_hash := np.argsort(hashes, kind="stable")]
    number = np.empty(n, dtype=np.int64)
    number[rows] = np.cumsum(order.sort_equal_hashes(rows, hashes[by_hash])) - 1
    return number


def dense(X):
    """Return a few rows as an ndarray."""
    return X.toarray() if sparse.issparse(X) else X


def dense_blocks(X):
    """Yield X in blocks of dense rows; a dense X is one block."""
    if not sparse.issparse(X):
        return [X]
    size = max(1, DENSE_BLOCK // X.shape[1])
    return (X[start : start + size].toarray() for start in range(0, max(1, X.shape[0]), size))


def canonical_csr(X):
    """Copy a CSR matrix for kernels: features increase in every row, and no zeros are stored."""
    X = sparse.csr_matrix((X.data, X.indices, X.indptr), shape=X.shape, copy=True)
    X.sum_duplicates()
    X.eliminate_zeros()
    if X.nnz >= 2**31:
        raise ValueError(f"X has {X.nnz} entries that are not 0, at most 2^31 - 1 are supported")
    X.indices = X.indices.astype(np.int32, copy=False)
    X.indptr = X.indptr.astype(np.int32, copy=False)
    return X


def weighted_sums(X, weight):
    """Return the weighted sum of every column, float64."""
    # The last bits of BLAS depend on its threads.
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


def min_max(X, limits=None, names=None):
    """Return offset and scale of every feature, float64, that take X to [0, 1].

    They are the minimum and the reciprocal of the range; 1 for a constant feature. NaN does not
    count. `limits` replace the minimum and the maximum. ValueError, with a name from `names`, if a
    range or its reciprocal exceeds float64. In a CSR matrix without stored zeros, features that
    are 0 in some row have offset 0, so that zeros stay zeros.
    """
    low, high = value_range(X) if limits is None else limits
    offset = low.astype(np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        width = high.astype(np.float64) - offset
        scale = np.where(width > 0, 1 / np.where(width > 0, width, 1), 1.0)
    bad = np.flatnonzero(~(np.isfinite(width) & np.isfinite(scale)))
    if len(bad):
        where = f"feature {bad[0]}" if names is None else f"column {names[bad[0]]!r}"
        raise ValueError(
            f"{where} of X has a range of {width[bad[0]]:g}, too wide or too narrow for float64: "
            "rescale it"
        )
    if sparse.issparse(X):  # columns with zeros
        offset[_n_stored(X) < X.shape[0]] = 0.0
    return offset, scale


def standard(X, weight, offset, scale, limits):
    """Return offset and scale of every feature, float64, that take X to mean 0 and deviation 1.

    `offset` and `scale` come from `min_max`; `limits` are the last arguments of `limited`, in
    these units. Means and deviations are rounded to float32, so that they depend neither on the
    order of the rows nor on whether a row has weight 2 or occurs twice. NaN does not count.
    Constant features keep their scale. In a CSR matrix without stored zeros, features with offset
    0 are not shifted.
    """
    moments = _sparse_moments if sparse.issparse(X) else _dense_moments
    mean, deviation = moments(X, weight, offset, scale, limits)
    shift = mean / scale
    if sparse.issparse(X):
        shift[offset == 0] = 0
    return offset + shift, scale / np.where(deviation > 0, deviation, 1)


def _dense_moments(X, weight, offset, scale, limits):
    """Return the weighted mean and standard deviation of every feature after scaling."""

    def average(center, power):
        total, count = np.zeros((2, X.shape[1]))
        size = max(16, CACHED // max(1, X.shape[1]))
        for start in range(0, len(X), size):
            rows = slice(start, start + size)
            Z = limited((X[rows] - offset) * scale, *limits) - center
            known = np.where(np.isnan(Z), 0.0, weight[rows, None])
            total += (known * np.nan_to_num(Z) ** power).sum(axis=0)
            count += known.sum(axis=0)
        return total / np.where(count > 0, count, 1)

    mean = _rounded(average(0.0, 1))
    return mean, _rounded(np.sqrt(average(mean, 2)))


def _sparse_moments(X, weight, offset, scale, limits):
    """As `_dense_moments`, for a CSR matrix without stored zeros."""
    column, n_features = X.indices, X.shape[1]
    Z = (X.data - offset[column]) * scale[column]
    Z = limited(Z, *limits, column)
    weight, total = np.repeat(weight, np.diff(X.indptr)), weight.sum()
    mean = _rounded(np.bincount(column, weight * Z, n_features) / total)
    square = np.bincount(column, weight * (Z - mean[column]) ** 2, n_features)
    square += (total - np.bincount(column, weight, n_features)) * mean**2 * (offset == 0)
    return mean, _rounded(np.sqrt(square / total))


def _rounded(x):
    """Round to the precision of float32; the dtype stays float64."""
    return x.astype(np.float32).astype(np.float64)


def _parts(X):
    """Slices of the entries of a sparse matrix; NumPy makes copies of indices, of 8 bytes each."""
    return [slice(start, start + ENTRIES) for start in range(0, len(X.indices), ENTRIES)]


def _n_stored(X):
    """Return the number of entries in each column of a sparse matrix."""
    counts = np.zeros(X.shape[1], dtype=np.int64)
    for part in _parts(X):
        counts += np.bincount(X.indices[part], minlength=X.shape[1])
    return counts


def value_range(X):
    """Return the smallest and largest value of every column; NaN does not count."""
    if sparse.issparse(X):
        low = np.where(_n_stored(X) < X.shape[0], 0.0, np.inf)
        high = -low
        for part in _parts(X):
            np.minimum.at(low, X.indices[part], X.data[part])
            np.maximum.at(high, X.indices[part], X.data[part])
        return low, high
    low, high = X.min(axis=0), X.max(axis=0)
    if np.isnan(low).any():
        # Functions that skip NaN take longer. Empty inputs get the range 0 .. 0.
        low = np.nan_to_num(np.fmin.reduce(X, axis=0), posinf=np.inf, neginf=-np.inf)
        high = np.nan_to_num(np.fmax.reduce(X, axis=0), posinf=np.inf, neginf=-np.inf)
    return low, high


def usual_range(X, weight, whole):
    """Return the range of every column without its outliers, and knots among the outliers.

    NaN does not count. `whole` is `value_range` of X.

    Returns
    -------
    low, high : ndarray of shape (n_columns,), float64
    knots : ndarray of shape (n_columns, 2, N_KNOTS), float64
        Values between distinct outliers: rising from above `high`, and falling from below `low`.
        They equal `high` or `low` if there are no outliers.
    """
    weight, ends = np.asarray(weight, dtype=np.float64), np.stack(whole, axis=1).astype(np.float64)
    has_zeros = np.zeros(X.shape[1], dtype=bool)
    if sparse.issparse(X):
        X = X.tocsc()
        has_zeros = np.diff(X.indptr) < X.shape[0]  # zeros are not stored, and cannot be moved
    elif is_mapped(X):
        X = _by_columns(X)
    n_columns = max(1, RANKED * X.shape[1] // max(X.size, 1))
    for start in range(0, X.shape[1], n_columns):
        part = slice(start, start + n_columns)
        rising = (_rising_sparse if sparse.issparse(X) else _rising)(X[:, part], weight)
        write_usual_ends(*rising, ends[part], RARE, FENCE, APART, FAR, MIN_WIDTH)
    low, high = ends.T.copy()
    low[has_zeros], high[has_zeros] = np.minimum(low, 0)[has_zeros], np.maximum(high, 0)[has_zeros]
    knots = np.repeat(np.stack([high, low], axis=1)[:, :, None], N_KNOTS, axis=2)
    for j in np.flatnonzero((low > whole[0]) | (high < whole[1])):
        values = X.data[X.indptr[j] : X.indptr[j + 1]] if sparse.issparse(X) else X[:, j]
        for side, beyond in enumerate((values[values > high[j]], values[values < low[j]])):
            distinct = np.unique(np.append(beyond, knots[j, side, 0]).astype(np.float64))
            distinct = distinct[:: 1 - 2 * side]
            knots[j, side] = np.interp(_ranks(distinct), np.arange(len(distinct)), distinct)
    return low, high, knots


def _ranks(values):
    """Return the ranks of the knots among values: evenly spaced, or last before a large gap."""
    rank = np.linspace(0, len(values) - 1, N_KNOTS + 1)[1:]
    if len(values) <= N_KNOTS + 1:
        return rank
    with np.errstate(over="ignore"):
        distance = np.abs(values[1:] - values[0])
    growth = distance[1:] / distance[:-1]
    for before in np.argsort(-growth, kind="stable")[:MAX_GAPS]:
        if growth[before] > GAP:
            rank[np.argmin(np.abs(rank[:-1] - (before + 1)))] = before + 1
    return np.sort(rank)


def _by_columns(X):
    """Copy X with contiguous columns, so that a large file is read once, not for each column."""
    copy = empty_like(X, X.shape[::-1], X.dtype)
    for start in range(0, len(X), BLOCK):
        copy[:, start : start + BLOCK] = X[start : start + BLOCK].T
    return copy.T


def _rising(X, weight):
    """Return the arguments of `write_usual_ends`: sorted values, weights, starts of columns.

    NaN is left out. The weights are None if all are equal.
    """
    is_even = weight.min() == weight.max()
    if X.dtype == np.uint8:  # equal values are one
        of_entry = None if is_even else np.broadcast_to(weight, X.shape[::-1]).ravel()
        code = (X.T + 256 * np.arange(X.shape[1])[:, None]).ravel()
        total = np.bincount(code, of_entry, 256 * X.shape[1])
        present = np.flatnonzero(total)
        start = np.searchsorted(present, 256 * np.arange(X.shape[1] + 1))
        return (present % 256).astype(np.float64), total[present].astype(np.float64), start
    values = np.ascontiguousarray(X.T)
    if is_even:
        values, weight = np.sort(values, axis=1), None
    else:
        order = np.argsort(values, axis=1, kind="stable")
        values, weight = np.take_along_axis(values, order, axis=1), weight[order].ravel()
    start = np.arange(X.shape[1] + 1) * X.shape[0]
    if has_nan(values):
        known = ~np.isnan(values)
        start = np.append(0, np.cumsum(known.sum(axis=1)))
        values, weight = values[known], None if weight is None else weight[known.ravel()]
    return values.ravel().astype(np.float64, copy=False), weight, start


def _rising_sparse(X, weight):
    """As `_rising`, for a CSC matrix: entries that are not stored count as one zero."""
    n_stored, of_stored = np.diff(X.indptr), weight[X.indices]
    column = np.repeat(np.arange(X.shape[1]), n_stored)
    with_zeros = np.flatnonzero(n_stored < X.shape[0])
    of_zeros = weight.sum() - np.bincount(column, of_stored, X.shape[1])[with_zeros]
    column = np.append(column, with_zeros)
    values = np.append(X.data, np.zeros(len(with_zeros))).astype(np.float64)
    order = np.lexsort([values, column])
    start = np.append(0, np.cumsum(np.bincount(column, minlength=X.shape[1])))
    return values[order], np.append(of_stored, of_zeros)[order], start


def limited(Z, low, high, tail, knots, column=None):
    """Change Z in place where it is below `low` or above `high`; NaN stays.

    Values between `high` and its last knot are mapped to a tail, the interval of length `tail`
    above `high`: knots to evenly spaced points, other values linearly between them. Values above
    the last knot are clipped to the end of the tail, or to `high` if it has no knots. Values below
    `low` are mapped likewise. The order of values stays.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_columns) or (n_entries,), float64
    low, high, tail : ndarray of shape (n_columns,)
    knots : ndarray of shape (n_columns, 2, N_KNOTS) or (0, 2, N_KNOTS), float64
        Rising from `high`, and falling from `low`.
    column : ndarray of shape (n_entries,), default=None
        Columns of the entries of Z, if it has one axis.
    """
    for side, sign, end in ((0, 1.0, high), (1, -1.0, low)):
        every = end if column is None else end[column]
        is_beyond = Z > every if side == 0 else Z < every
        if not is_beyond.any():
            continue
        j = np.nonzero(is_beyond)[-1] if column is None else column[is_beyond]
        found = end[j].astype(np.float64)
        if len(knots):
            z, own = sign * Z[is_beyond], sign * knots[j, side]
            n_below = (z[:, None] >= own).sum(axis=1)
            edges = np.column_stack([sign * found, own, own[:, -1]])
            first, last = (edges[np.arange(len(z)), n_below + i] for i in (0, 1))
            with np.errstate(invalid="ignore", divide="ignore"):
                share = np.where(n_below < N_KNOTS, (z - first) / (last - first), 0.0)
            distance = tail[j].astype(np.float64) / N_KNOTS * (n_below + share)
            found += np.where(own[:, -1] > sign * found, sign * distance, 0.0)
        Z[is_beyond] = found
    return Z


def scaled(X, offset, scale, *limits):
    """Return ``(X - offset) * scale``, computed in float64 and rounded to float32.

    `limits` are the last arguments of `limited`; without them, values are clipped to ±`LIMIT`.
    """
    Z = empty_like(X, X.shape, np.float32)
    size = max(16, CACHED // max(1, X.shape[1]))
    block = np.empty((min(size, len(X)), X.shape[1]))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        part = block[: len(X[rows])]
        with np.errstate(over="ignore"):
            np.subtract(X[rows], offset, out=part)
            part *= scale
        Z[rows] = limited(part, *limits) if limits else np.clip(part, -LIMIT, LIMIT)
    return Z


def scaled_csr(X, offset, scale, *limits):
    """Like `scaled`, for a canonical CSR matrix.

    Zeros of a feature with an offset become stored entries. ValueError if most entries would be.
    """
    moved = np.flatnonzero(offset * scale)
    if X.shape[0] * len(moved) > 2 * X.nnz + X.shape[0]:
        raise ValueError(
            f"X is sparse, but {len(moved)} of its {X.shape[1]} features are not 0 where X is 0, "
            "since the forest was first fitted on dense X, or on features without zeros: pass "
            "X.toarray()"
        )
    data = np.empty(X.nnz, dtype=np.float32)
    own_scale = np.where(offset == 0, scale, 0.0)
    for start in range(0, X.nnz, CACHED):
        part = slice(start, start + CACHED)
        column = X.indices[part]
        with np.errstate(over="ignore"):
            value = X.data[part] * own_scale[column]
        data[part] = limited(value, *limits, column) if limits else np.clip(value, -LIMIT, LIMIT)
    is_full = bool(data.all())
    Z = sparse.csr_matrix((data, X.indices, X.indptr), shape=X.shape, copy=not is_full)
    if not is_full:  # drop entries that have become 0
        Z.eliminate_zeros()
    if len(moved):
        own = (array[moved] if len(array) else array for array in (offset, scale, *limits))
        part = scaled(X[:, moved].toarray(), *own)
        row, column = np.nonzero(part)
        entries = part[row, column], (row, moved[column])
        Z = canonical_csr(Z + sparse.csr_matrix(entries, shape=X.shape))
    return Z


def with_fixed(X, low, high):
    """Clip the columns whose limits are equal, in a copy of X if any changes; NaN stays."""
    fixed = np.flatnonzero(low == high)
    value = low[fixed]
    value = as_bytes(value[None])[0] if X.dtype == np.uint8 else value
    if (X[:, fixed] == value).all():
        return X
    Z = X.astype(np.result_type(X, value))
    Z[:, fixed] = np.clip(Z[:, fixed], value, value)
    return Z


def as_bytes(X):
    """Convert X to uint8 if all values are whole numbers from 0 to 255, as in most images.

    X is uint8, or float32 or float64 in C order.
    This takes a quarter of the memory and gives the same splits, since sums of bytes below 2^24,
    which BYTE_FEATURES ensures, are exact in both dtypes. Bytes of more columns become float32.
    """
    is_bytes = X.dtype == np.uint8
    if X.shape[1] > BYTE_FEATURES:
        return X.astype(np.float32) if is_bytes else X
    found = None if is_bytes else whole_bytes(X)
    return X if found is None else found
