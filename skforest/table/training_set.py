"""TrainingSet: the weighted rows that trees are trained on.

Rows of weight zero are dropped, equal rows are merged and their weights added, and the rows are
sorted in an order that depends only on their values. Therefore, neither the order of the samples
nor copies of them change a forest, and a weight of k is equivalent to k copies.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from .._kernels.base.row_reader import whole_bytes
from .._kernels.base.rows import RowOrder, draw_counts
from .copies import copies_of_rows
from .matrix import (
    BLOCK,
    BYTE_FEATURES,
    CACHED,
    canonical_csr,
    equal_rows,
    refuse_masked,
    rows_of,
    usual_range,
    value_range,
    weighted_sums,
)

# Weights are multiples of a unit if their ratios to the smallest one are such fractions.
MAX_MULTIPLE, MAX_DENOMINATOR = 2**31, 64

TRAINS, IS_LEFT_OUT = 1, 2  # see `TrainingSet.with_folds`


@dataclass
class _Whole:
    """All rows and weights, which samples share for `deviation` and `varying`.

    A TrainingSet that referred to itself instead would stay in memory after training.
    """

    X: np.ndarray
    weight: np.ndarray
    deviation: np.ndarray | None = None
    outliers: tuple | None = None  # see `TrainingSet._outliers`
    varying: np.ndarray | None = None
    largest: float | None = None


class TrainingSet:
    """Distinct weighted rows in canonical order, with their target.

    Instances are immutable: `with_target`, `with_weight` and `sample` return another one that
    shares the arrays.

    Attributes
    ----------
    X : ndarray or CSR matrix of shape (n_rows, n_features), uint8 or float32
    y : ndarray of shape (n_rows, n_columns), float64
        Class numbers, or regression targets.
    weight : ndarray of shape (n_rows,), float64
    target : ndarray
        What kernels are trained on: class numbers, int32 of shape (n_rows,); or deviations from
        `baseline` divided by `target_scale`, float64 of shape (n_rows, n_outputs).
    units : TargetUnits
    row_of_sample : ndarray of shape (n_samples,)
        Row of each sample, -1 for samples of weight zero.
    fold, group : ndarray or None
        Fold of each row, see `with_folds`; number of the group with which it is held out.
    left_out_weight : ndarray or None
        Weights of the rows that a member leaves out, 0 for the other rows.
    count : ndarray
        Weight of each row before class weights and sampling.
    weight_unit : float
        `count` times this are weights as they were given.
    validation : TrainingSet or None
        Further rows for early stopping.
    copies_of_part : ndarray or None
        For rows that are divided into parts, see `in_parts`: the number of copies in each part.
    """

    def __init__(self, X, y, weight, feature_map=None):
        if sparse.issparse(X):
            samples = SparseRowOrder(X, y, feature_map is not None and feature_map.is_scaling)
        else:
            samples = RowOrder(X, y)
        chosen = np.flatnonzero(weight)
        hashes = samples.hashes(chosen)
        by_hash = np.argsort(hashes, kind="stable")
        chosen = chosen[by_hash]
        hashes = hashes[by_hash]
        del by_hash
        is_first = samples.sort_equal_hashes(chosen, hashes)
        del hashes
        row = np.cumsum(is_first) - 1
        distinct = chosen[is_first]
        self.X = rows_of(X, distinct)
        self.y = y[distinct]
        # Weights of equal rows are sorted and added, so that the order of samples leaves no trace.
        given = weight[chosen]
        weight = rescale_weights(given)
        order = np.lexsort((weight, row))
        self.weight = rescale_weights(np.bincount(row[order], weights=weight[order]))
        self.count = self.weight
        # Rounded, because the order of additions must leave no trace here, either.
        self.weight_unit = float(f"{given[order].sum() / self.count.sum():.12g}")
        self.row_of_sample = np.full(X.shape[0], -1, dtype=np.int64)
        self.row_of_sample[chosen] = row
        self.feature_map = feature_map
        self.target = self.units = None
        self.fold, self.n_folds, self.left_out_weight = None, 0, None
        self.group = self.validation = None
        self.copies_of_part = None
        self._n_copies = {}  # see `n_copies`; shared by instances, as `_whole` is
        self._whole = _Whole(self.X, self.weight)

    def __len__(self):
        return len(self.weight)

    @property
    def is_classification(self):
        """bool: whether the target is a vector of class numbers."""
        return self.target.ndim == 1

    @property
    def n_outputs(self):
        """int: number of classes, or of columns of the target."""
        return len(self.units.baseline)

    @property
    def baseline(self):
        """ndarray of shape (n_outputs,), float64: leaf values are deviations from it."""
        return self.units.baseline

    @property
    def target_scale(self):
        """float: power of two by which the target was divided; 1 in classification."""
        return self.units.scale

    @property
    def rows(self):
        """ndarray of int32: rows of positive weight."""
        return np.flatnonzero(self.weight).astype(np.int32)

    def row_keys(self):
        """What tells these rows from others: a hash of each dense row; or X, if sparse, and y."""
        if sparse.issparse(self.X):
            return self.X, self.y
        return RowOrder(self.X, self.y).hashes(np.arange(len(self)))

    # ------------------------------------------------------------------------- other training sets

    def with_target(self, target, units, y=None):
        """Return the same rows with a target, and with other `y` if it is given."""
        other = copy(self)
        other.target, other.units = target, units
        other.y = self.y if y is None else y
        return other

    def with_features(self, X, feature_map):
        """Return the same rows with other features, and the map that made them."""
        other = copy(self)
        other.X, other.feature_map, other._whole = X, feature_map, _Whole(X, self.weight)
        return other

    def with_weight(self, weight):
        """Return the same rows with other weights, which also determine `deviation`."""
        other = copy(self)
        other.weight = rescale_weights(weight)
        other._whole = _Whole(self.X, other.weight)
        return other

    def with_deviation(self, deviation):
        """Return the same rows with the `deviation` of the earlier trees of a forest."""
        other = copy(self)
        other._whole = _Whole(self.X, self.weight, deviation)
        return other

    def with_folds(self, fold, n_folds):
        """Return the same rows in folds; member i leaves out fold i % n_folds.

        `fold` has the fold of each row; or it has the shape (n_rows, n_folds), with `TRAINS` where
        the member of a fold is trained on the row and `IS_LEFT_OUT` where it predicts the row.
        """
        other = copy(self)
        other.fold, other.n_folds = fold, n_folds
        return other

    def without_fold(self, member):
        """Return the same rows, with weight 0 in the fold that a member leaves out."""
        if self.fold is None:
            return self
        mask = self.is_left_out(member)
        trains = ~mask if self.fold.ndim == 1 else self.fold[:, member % self.n_folds] == TRAINS
        other = self.sample(np.where(trains, self.weight, 0.0))
        other.left_out_weight = np.where(mask, self.weight, 0.0)
        return other

    def is_left_out(self, member):
        """Return a mask of the rows that a member leaves out."""
        number = member % self.n_folds
        return self.fold == number if self.fold.ndim == 1 else self.fold[:, number] == IS_LEFT_OUT

    def with_groups(self, group):
        """Return the same rows with groups of samples, as int; a row has its smallest group."""
        other = copy(self)
        other.group = self.least_of_samples(group)
        return other

    @property
    def is_in_copies(self):
        """bool: whether copies that may be held out one by one are rows of their own."""
        return self.copies_of_part is not None

    @property
    def n_samples(self):
        """float: number of samples; `count` counts them if all its numbers are whole."""
        is_whole = (self.count == np.rint(self.count)).all()
        return self.count.sum() if is_whole else np.count_nonzero(self.row_of_sample >= 0)

    @property
    def n_groups(self):
        """int: number of groups; without groups, every row is one."""
        return len(self) if self.group is None else len(np.unique(self.group))

    def sample(self, weight):
        """Return the sample of one tree: the same rows and `deviation` with other weights."""
        other = copy(self)
        other.weight = weight
        return other

    def subset(self, rows):
        """Return some of the rows."""
        other = copy(self)
        other.X, other.y, other.weight = self.X[rows], self.y[rows], self.weight[rows]
        for name in ("count", "target", "fold", "left_out_weight", "group", "copies_of_part"):
            values = getattr(self, name)
            setattr(other, name, None if values is None else values[rows])
        return other

    def with_validation(self, validation):
        """Return the same rows, and another TrainingSet for early stopping."""
        other = copy(self)
        other.validation = validation
        return other

    def joined_with_validation(self):
        """Return the rows, then the rows of `validation`, which have weight 0 and are left out."""
        further, whole = self.validation, copy(self)
        if further is None:
            return self
        if sparse.issparse(self.X):
            whole.X = canonical_csr(sparse.vstack([self.X, further.X], format="csr"))
        else:
            whole.X = np.concatenate([self.X, further.X], dtype=self.X.dtype)
        for name in ("y", "target", "count"):
            both = [getattr(rows, name) for rows in (self, further)]
            setattr(whole, name, np.concatenate(both))
        whole.weight = np.concatenate([self.weight, np.zeros(len(further))])
        whole.left_out_weight = np.concatenate([np.zeros(len(self)), further.weight])
        if self.is_in_copies:
            whole.copies_of_part = np.concatenate([self.copies_of_part, further.n_copies()])
        whole.group = whole.validation = None  # no other rows are held out
        return whole

    def of_samples(self, values):
        """Return values of rows, (n_rows, n_columns), for each sample; NaN if its weight is 0."""
        found = np.full((len(self.row_of_sample), values.shape[1]), np.nan)
        present = self.row_of_sample >= 0
        found[present] = values[self.row_of_sample[present]]
        return found

    def first_samples(self):
        """Return the first sample of each row."""
        samples = np.flatnonzero(self.row_of_sample >= 0)
        _, first = np.unique(self.row_of_sample[samples], return_index=True)
        return samples[first]

    def least_of_samples(self, values):
        """Return the smallest of the values, int of shape (n_samples,), in each row."""
        samples = np.flatnonzero(self.row_of_sample >= 0)
        found = np.full(len(self), values.max())
        np.minimum.at(found, self.row_of_sample[samples], values[samples])
        return found

    def most_of_samples(self, values):
        """Return the largest of the values, int of shape (n_samples, n_columns), in each row."""
        samples = np.flatnonzero(self.row_of_sample >= 0)
        found = np.full((len(self), values.shape[1]), values.min())
        np.maximum.at(found, self.row_of_sample[samples], values[samples])
        return found

    def in_copies(self, also_repeated=True):
        """Return the set in which copies of a row may be held out one by one, and their rows.

        The numbers of copies are those of `copies_of_rows`. Copies are not divided again.
        """
        n_copies = 1 if self.is_in_copies else self.n_copies(also_repeated)
        rows = np.repeat(np.arange(len(self)), n_copies)
        return self.in_parts(rows, (self.weight / n_copies)[rows]), rows

    def in_parts(self, rows, weight):
        """Return rows, some of them several times, that may be held out one by one."""
        whole = self if np.array_equal(rows, np.arange(len(self))) else self.subset(rows)
        other = whole.sample(weight)
        share = np.divide(weight, whole.weight, out=np.ones(len(rows)), where=whole.weight > 0)
        other.count = whole.count * share
        n_copies = np.rint(self.n_copies()[rows] * share)
        other.copies_of_part = np.maximum(n_copies, 1).astype(np.int64)
        return other

    def n_copies(self, also_repeated=True):
        """Return the number of rows for which each row stands, see `copies_of_rows`; int64."""
        if self.is_in_copies:
            return self.copies_of_part
        known, arrays = self._n_copies.get(also_repeated), (self.X, self.y, self.count)
        if known is None or any(a is not b for a, b in zip(known[0], arrays)):
            known = self._n_copies[also_repeated] = arrays, copies_of_rows(self, also_repeated)
        return known[1]

    def same_features(self):
        """Return a number for each row, int, which rows of equal X share."""
        order = SparseRowOrder if sparse.issparse(self.X) else RowOrder
        return equal_rows(order(self.X, np.zeros((len(self), 1))), len(self))

    # ---------------------------------------------------------------------------------- statistics

    def largest(self):
        """float: largest absolute value in X."""
        whole = self._whole
        if whole.X.dtype == np.uint8:
            return 255.0
        if whole.largest is None:
            values = whole.X.data if sparse.issparse(whole.X) else whole.X
            whole.largest = float(max(values.max(initial=0.0), -values.min(initial=0.0)))
        return whole.largest

    def mean(self):
        """ndarray of shape (n_features,), float64: weighted means."""
        return weighted_sums(self.X, self.weight) / self.weight.sum()

    def deviation(self):
        """ndarray of shape (n_features,), float32: weighted standard deviations.

        They are 0 for constant features. Outliers count as the nearest end of the usual range.
        """
        whole = self._whole
        if whole.deviation is None:
            deviation = _standard_deviation(whole.X, whole.weight)
            columns, *ends = self._outliers()
            if len(columns):
                usual = _clipped(whole.X, columns, *ends)
                deviation[columns] = _standard_deviation(usual, whole.weight)
            whole.deviation = deviation
        return whole.deviation

    def unit(self):
        """ndarray of shape (n_features,): `deviation`, with 1 in place of 0."""
        deviation = self.deviation()
        return np.where(deviation > 0, deviation, np.float32(1))

    def has_outliers(self):
        """bool: whether features have outliers that no map limits; bytes have none."""
        return len(self._outliers()[0]) > 0

    def _outliers(self):
        """Features with outliers, and the ends of their usual ranges."""
        whole = self._whole
        if whole.outliers is None:
            is_limited = self.feature_map is not None and self.feature_map.is_scaling
            whole.outliers = [], None, None
            if not is_limited and whole.X.dtype != np.uint8:
                whole.outliers = _features_with_outliers(whole.X, whole.weight)
        return whole.outliers

    def varying(self):
        """ndarray of int32: features that are not constant over all rows."""
        whole = self._whole
        if whole.varying is None:
            low, high = value_range(whole.X)
            whole.varying = np.flatnonzero(low != high).astype(np.int32)
        return whole.varying

    def bootstrap(self, seed, n_draws):
        """Draw rows with replacement, in proportion to their weights; return their counts."""
        if self.fold is not None:  # as many draws for each row that is left
            n_draws = max(1, round(n_draws * np.count_nonzero(self.weight) / len(self)))
        return draw_counts(self.weight, seed, n_draws)


class SparseRowOrder:
    """As `RowOrder`, for a CSR matrix; dense rows have the same hashes and the same order.

    `is_scaled` says whether features have been scaled.
    """

    def __init__(self, X, y, is_scaled=False):
        self.X, self.y = X, y
        self.dtype = X.dtype
        if not is_scaled and X.shape[1] <= BYTE_FEATURES:
            # Dense rows would be bytes if all values are whole numbers from 0 to 255.
            self.dtype = X.dtype if whole_bytes(X.data[None]) is None else np.uint8

    def _dense_order(self, rows):
        block = np.ascontiguousarray(self.X[rows].toarray(), dtype=self.dtype)
        return RowOrder(block, np.ascontiguousarray(self.y[rows]))

    def hashes(self, rows):
        size = max(16, CACHED // max(1, self.X.shape[1]))
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        found = [self._dense_order(part).hashes(np.arange(len(part))) for part in parts]
        return np.concatenate(found)

    def sort_equal_hashes(self, rows, hashes):
        is_first = np.ones(len(rows), dtype=bool)
        starts = np.flatnonzero(np.diff(hashes, prepend=~hashes[:1]) != 0)
        for start, stop in zip(starts, np.append(starts[1:], len(rows))):
            # Rows with equal hashes are nearly always equal; otherwise they are sorted by value.
            if stop - start > 1 and not self._are_equal(rows[start], rows[start + 1 : stop]):
                own = np.arange(stop - start)
                is_first[start:stop] = self._dense_order(rows[start:stop]).sort_equal_hashes(
                    own, hashes[start:stop]
                )
                rows[start:stop] = rows[start:stop][own]
            elif stop - start > 1:
                is_first[start + 1 : stop] = False
        return is_first

    def _are_equal(self, first, others):
        """Return whether all other rows are equal to the first."""
        pointer, X = self.X.indptr, self.X
        own = slice(pointer[first], pointer[first + 1])
        return all(
            np.array_equal(X.indices[own], X.indices[pointer[row] : pointer[row + 1]])
            and np.array_equal(X.data[own], X.data[pointer[row] : pointer[row + 1]])
            and np.array_equal(self.y[first], self.y[row])
            for row in others
        )


def check_sample_weight(sample_weight, n_samples, name="sample_weight"):
    """Convert weights to float64; ValueError unless they are finite, not negative and not all 0.

    `name` is the name of the argument in the message.
    """
    if sample_weight is None:
        return np.ones(n_samples)
    refuse_masked(sample_weight, name, "replace the masked weights first, as by 0")
    try:
        weight = check_array(
            sample_weight,
            dtype=np.float64,
            ensure_2d=False,
            ensure_min_samples=0,
            input_name=name,
        )
    except ValueError as error:
        raise ValueError(f"{name} is not valid: {error}") from error
    if weight.ndim == 0:
        weight = np.full(n_samples, float(weight))
    if weight.shape != (n_samples,):
        raise ValueError(
            f"{name}.shape == {weight.shape}, expected {(n_samples,)}, one weight per row"
        )
    if (weight < 0).any():
        raise ValueError(f"{name} has the negative value {weight.min()}; weights are 0 or more")
    if not weight.any():
        raise ValueError(f"{name} is all zero; at least one weight must be positive")
    with np.errstate(over="ignore"):
        total = weight.sum()
    if not np.isfinite(total):
        raise ValueError(f"{name} has an infinite sum; divide it by its largest value")
    return weight


def check_groups(groups, n_samples):
    """Convert the argument `groups` of a fit to numbers of groups, int of shape (n_samples,)."""
    groups = np.asarray(groups)
    if groups.shape not in ((n_samples,), (n_samples, 1)):
        raise ValueError(
            f"groups.shape == {groups.shape}, expected {(n_samples,)}, one group per row"
        )
    groups = groups.ravel()
    try:
        is_missing = any(group is None or group != group for group in groups.tolist())
        _, number = np.unique(groups, return_inverse=True)
    except TypeError:  # pandas.NA, or strings and numbers, which have no order
        raise ValueError("groups must be numbers or strings, without missing values") from None
    if is_missing:
        raise ValueError("groups contains NaN or None; rows without a group need one of their own")
    return number


def rescale_weights(weight):
    """Rescale weights such that multiplying all of them by a factor has no effect.

    Whole multiples of a unit become whole numbers without a common factor, whose sums are exact.
    Other weights are multiplied by a power of two if they are extreme; no tree depends on it.
    """
    is_positive = weight > 0
    positive = weight[is_positive]
    if positive.min() == positive.max():
        return is_positive.astype(np.float64)
    with np.errstate(over="ignore"):
        ratio = positive / positive.min()
    if ratio.max() <= MAX_MULTIPLE:
        for denominator in range(1, MAX_DENOMINATOR + 1):
            if not (_are_whole(ratio[:100] * denominator) and _are_whole(ratio * denominator)):
                continue
            multiple = np.rint(ratio * denominator).astype(np.int64)
            found = np.zeros(len(weight))
            found[is_positive] = multiple // np.gcd.reduce(multiple)
            return found
    exponent = np.frexp(weight.max())[1]
    return weight if abs(exponent) <= 60 else np.ldexp(weight, -exponent)


def _are_whole(ratio):
    """Return whether numbers are whole, up to the rounding of sums of weights."""
    return (np.abs(ratio - np.rint(ratio)) <= 1e-12 * ratio).all()


def _standard_deviation(X, weight):
    total = weight.sum()
    if sparse.issparse(X):
        variance = _sparse_variance(X, weight)
    else:
        size = max(16, CACHED // max(1, X.shape[1]))
        blocks = [slice(start, start + size) for start in range(0, len(X), size)]
        # Without BLAS, whose last bits depend on its threads: the deviation decides routes.
        mean = (
            sum(np.einsum("i,ij->j", weight[b], X[b].astype(np.float64)) for b in blocks) / total
        )
        # Subtract the mean first: the square of a large mean would drown a small deviation.
        squares = (np.einsum("i,ij->j", weight[b], np.square(X[b] - mean)) for b in blocks)
        variance = sum(squares) / total
    with np.errstate(over="ignore"):
        deviation = np.sqrt(variance).astype(np.float32)
    # The mean of equal values may differ from them by rounding, and their deviation from 0.
    least, largest = (extreme(axis=0) for extreme in (X.min, X.max))
    varies = (largest != least).toarray()[0] if sparse.issparse(X) else largest != least
    deviation[~varies | (deviation <= np.finfo(np.float32).tiny)] = 0
    return np.where(np.isfinite(deviation), deviation, np.float32(1))


def _features_with_outliers(X, weight):
    """Return the features with outliers, and the ends of their usual ranges."""
    whole = value_range(X)
    low, high, _ = usual_range(X, weight, whole)
    if not sparse.issparse(X):  # zeros are within the range of sparse columns
        has_zeros = np.zeros(X.shape[1], dtype=bool)
        for start in range(0, len(X), BLOCK):  # X may be larger than the memory
            has_zeros |= (X[start : start + BLOCK] == 0).any(axis=0)
        low, high = np.where(has_zeros, [np.minimum(low, 0), np.maximum(high, 0)], [low, high])
    columns = np.flatnonzero((low > whole[0]) | (high < whole[1]))
    return columns, low[columns], high[columns]


def _clipped(X, columns, low, high):
    """Return some columns, clipped to limits."""
    part = X[:, columns]
    if not sparse.issparse(part):
        return np.clip(part, low, high).astype(part.dtype)
    own = np.clip(part.data, low[part.indices], high[part.indices]).astype(part.dtype)
    part = sparse.csr_matrix((own, part.indices, part.indptr), part.shape)
    part.eliminate_zeros()
    return part


def _sparse_variance(X, weight):
    """Weighted variance of every column of a CSR matrix."""
    mean = weighted_sums(X, weight) / weight.sum()
    squares, present = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for start in range(0, X.shape[0], BLOCK):
        part = X[start : start + BLOCK]
        row_weight = np.repeat(weight[start : start + BLOCK], np.diff(part.indptr))
        square = np.square(part.data - mean[part.indices])
        squares += np.bincount(part.indices, row_weight * square, X.shape[1])
        present += np.bincount(part.indices, row_weight, X.shape[1])
    of_zeros = np.maximum(weight.sum() - present, 0) * np.square(mean)
    return (squares + of_zeros) / weight.sum()
