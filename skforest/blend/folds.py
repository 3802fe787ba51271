"""Rows of a blend: their class weights, and the folds that members leave out and predict."""

from copy import copy
from numbers import Integral

import numpy as np
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv

from ..estimators.base import take_rows
from ..estimators.validation import errors_about
from ..table.feature_map import FeatureMap
from ..table.frames import as_array, as_frame, where_not_finite
from ..table.training_set import IS_LEFT_OUT, TRAINS, TrainingSet, check_sample_weight

# Members are compared on the rows of as many folds as have this many distinct rows: with more
# rows, weights hardly change.
COMPARED = 5000
ROW_FOLDS = 5  # parts of the compared rows if they are in one fold


class BlendedRows:
    """Training data shared by all members: the samples, their folds, and the distinct rows.

    Members are compared on the rows of the first `n_compared` folds, or of all folds. If copies of
    a row may be in several folds, `parts` has pairs of a sample and a copy of its row: the sample,
    the fold of the copy, the weight, and whether the row has several copies; otherwise it is None.
    `splits`, int8 of shape (n_samples, n_folds), says for each fold which samples train and which
    are predicted, see `TrainingSet.with_folds`; None: the samples of the fold are predicted, and
    all others train. `groups` are the group numbers of the samples, or None.

    `training` has X, y, weight and groups of the samples that train, and `trained_rows` is their
    TrainingSet. If `is_given`, the samples are other rows, which are predicted only.
    """

    n_batches = 3  # whose prediction is timed
    checkpoint = None  # folder for the trees of members
    plain_weight = None  # of the samples that train, without class weights; None if all are 1
    refit = True  # the parameter of blends
    is_given = False

    def __init__(self, X, y, weight, rows, folds, classes, compares_all, encoding, groups=None):
        self.X, self.y, self.weight = X, y, weight  # weight is None if all are 1
        self.encoding = encoding  # function from an estimator to one that reads X
        self.training = X, y, weight, groups
        self.classes = classes  # of every output; None in regression
        self.rows = self.trained_rows = rows  # TrainingSet
        fold, n_folds, self.parts, self.splits = folds
        self.fold, self.n_folds = fold, n_folds  # of samples; -1 where the weight is 0
        self.first = first = rows.first_samples()
        of_row = fold[first]
        n_rows = np.cumsum(np.bincount(of_row, minlength=n_folds))
        n_needed = n_folds if compares_all else np.searchsorted(n_rows, COMPARED) + 1
        self.n_compared = min(n_folds, int(n_needed))
        # For each compared distinct row: its first sample, fold, target and weight.
        compared = np.flatnonzero(of_row < self.n_compared)
        self.compared, self.compared_fold = first[compared], of_row[compared]
        self.compared_y, self.compared_weight = rows.y[compared], rows.weight[compared]
        self.compared_count = rows.count[compared]  # without class weights

    @property
    def n_columns(self):
        """Number of columns of a response."""
        if self.classes is None:
            return self.rows.y.shape[1]
        return sum(len(labels) for labels in self.classes)

    def restricted(self, mask):
        """A copy in which members are compared on some of these rows only."""
        if mask.all():
            return self
        other = copy(self)
        for name in ("compared", "compared_fold", "compared_y", "compared_weight"):
            setattr(other, name, getattr(self, name)[mask])
        other.compared_count = self.compared_count[mask]
        return other

    def of_samples(self, response):
        """Response of each sample, from that of the compared rows; NaN for other samples."""
        of_rows = np.full((len(self.rows), response.shape[1]), np.nan)
        of_rows[self.rows.row_of_sample[self.compared]] = response
        return self.rows.of_samples(of_rows)

    def temperature_folds(self):
        """Fold of each compared row and their number, at least 2, to check a temperature."""
        found, fold = np.unique(self.compared_fold, return_inverse=True)
        if len(found) > 1:
            return fold, len(found)
        return np.arange(len(fold)) % ROW_FOLDS, ROW_FOLDS

    def split(self, number):
        """Samples that train without a fold, and samples that are then predicted."""
        if self.splits is not None:
            return [
                np.flatnonzero(self.splits[:, number] == code) for code in (TRAINS, IS_LEFT_OUT)
            ]
        is_own = self.fold == number
        if self.is_given:
            return np.flatnonzero(self.trained_rows.row_of_sample >= 0), np.flatnonzero(is_own)
        return np.flatnonzero((self.fold >= 0) & ~is_own), np.flatnonzero(is_own)

    def in_folds(self, data):
        """The TrainingSet of a member; its rows are in several folds if copies of them are.

        Returns the TrainingSet, the fold of each of its rows (or `splits`), and the number of each
        row in `data`.
        """
        if self.splits is not None:
            return data, data.most_of_samples(self.splits), np.arange(len(data))
        fold, rows = data.least_of_samples(self.fold), np.arange(len(data))
        if self.parts is None:
            return data, fold, rows
        sample, fold_of_part, weight, is_divided = self.parts
        # A member may merge several rows into one, or tell samples of one row apart.
        row = data.row_of_sample[sample]
        is_divided = np.bincount(row, weights=is_divided, minlength=len(data)) > 0
        fold_of_part = np.where(is_divided[row], fold_of_part, fold[row])
        part, of_part = np.unique(row * self.n_folds + fold_of_part, return_inverse=True)
        weight = np.bincount(of_part, weights=weight)
        rows, fold = np.divmod(part, self.n_folds)
        weight = data.weight[rows] * weight / np.bincount(rows, weights=weight)[rows]
        return data.in_parts(rows, weight), fold, rows

    def batch(self, n):
        """A batch of n samples, repeated if there are fewer."""
        return take_rows(self.X, np.resize(np.flatnonzero(self.fold >= 0), n))


def told_apart(blend, numbers, target, weight, levels):
    """Float32 numbers or bytes that tell samples apart, and the TrainingSet of the samples.

    Members scale columns before they round them. So does this function if different rows would
    otherwise become equal, such as those of times in seconds.
    """
    names = getattr(blend, "feature_names_in_", range(numbers.shape[1]))
    if where := where_not_finite(numbers, names, False):
        raise ValueError(f"Input X contains a value too large for dtype('float32'). {where}")
    is_exact = numbers.dtype != np.float64
    given = numbers if is_exact else numbers.astype(np.float32)
    rounded, _ = FeatureMap.fit(given, weight, levels, False).training_inputs(given)
    rows = TrainingSet(rounded, target, weight)
    present = np.flatnonzero(rows.row_of_sample >= 0)
    first = rows.first_samples()[rows.row_of_sample[present]]
    is_other = first != present
    pairs = numbers[present[is_other]], numbers[first[is_other]]
    if not is_exact and not np.array_equal(*pairs, equal_nan=True):
        scaling = FeatureMap.fit(numbers, weight, levels, limit="usual")
        rounded, _ = scaling.training_inputs(numbers)
        rows = TrainingSet(rounded, target, weight, scaling)
    return rounded, rows


def sample_folds(cv, X, y, rows, groups, is_class):
    """Fold of each sample, -1 for those of weight 0, the number of folds, `parts` and `splits`.

    `cv` and `groups` are the parameters of a blend, `rows` the TrainingSet of the samples; `parts`
    and `splits` are those of BlendedRows. With `splits`, the fold is the first that leaves the row
    out, or the number of folds where none does.
    """
    is_present = rows.row_of_sample >= 0
    present = np.flatnonzero(is_present)
    if isinstance(cv, Integral) and groups is None:
        copies, row = rows.in_copies()
        n_folds = min(cv, len(copies))
        # Rows are in an order that depends on their values alone: no shuffling.
        order = np.lexsort(copies.y.T) if is_class else np.arange(len(copies))
        of_copy = np.empty(len(copies), dtype=np.int64)
        of_copy[order] = np.arange(len(copies)) % n_folds
        # The samples of a row are in the folds of its copies, in turn.
        present = present[np.argsort(rows.row_of_sample[present], kind="stable")]
        own = rows.row_of_sample[present]
        number = np.arange(len(own)) - np.searchsorted(own, own)
        first, n_copies = np.searchsorted(row, own), np.bincount(row)[own]
        fold = np.full(len(is_present), -1)
        fold[present] = of_copy[first + number % n_copies]
        parts, is_scaled = None, rows.feature_map is not None
        if len(row) > len(rows) or is_scaled:  # members that do not scale merge different rows
            sample, part = _pairs(np.bincount(own), np.bincount(row))
            weight = copies.weight[part] / np.bincount(part)[part]
            is_divided = is_scaled | (np.bincount(row)[row[part]] > 1)
            parts = present[sample], of_copy[part], weight, is_divided
        return fold, n_folds, parts, None
    samples = np.arange(len(is_present))  # those that the splitter sees
    if isinstance(cv, Integral):
        samples, groups = present, groups[present]
        cv = _group_splitter(cv, groups, is_class and y.ndim == 1)
    splitter = check_cv(cv, y[samples], classifier=is_class)
    try:
        splits = list(splitter.split(take_rows(X, samples), y[samples], groups))
        sides = [
            (
                samples[_check_rows(train, len(samples), "training")],
                samples[_check_rows(test, len(samples), "test")],
            )
            for train, test in splits
        ]
    except BadRows:
        raise
    except (TypeError, ValueError) as error:
        raise ValueError(f"cv yields no pairs of training and test rows: {error}") from error
    code = np.zeros((len(is_present), len(sides)), dtype=np.int8)
    for k, (train, test) in enumerate(sides):
        code[train, k] = TRAINS
        code[test, k] = IS_LEFT_OUT
    is_test = code[present] == IS_LEFT_OUT
    n_tested = is_test.sum(axis=0)
    if not n_tested.any():
        raise ValueError("cv has no test rows with a positive weight")
    code, is_test = code[:, n_tested > 0], is_test[:, n_tested > 0]
    fold = np.full(len(is_present), -1)
    if (is_test.sum(axis=1) == 1).all() and (code[present] != 0).all():
        if code.shape[1] < 2:
            raise ValueError("cv must have at least 2 folds with positive weight")
        fold[present] = is_test.argmax(axis=1)
        return fold, code.shape[1], None, None
    # Equal rows are one: it is left out with any of its samples.
    of_row = rows.most_of_samples(code)
    n_trained = (of_row == TRAINS).sum(axis=0)
    if not n_trained.all():
        split = np.flatnonzero(n_tested)[n_trained.argmin()]
        raise ValueError(f"cv has no training rows with a positive weight in split {split}")
    # A time limit may end training after some splits: those with the most rows come first.
    of_row = of_row[:, np.argsort(-n_trained, kind="stable")]
    code[present] = of_row[rows.row_of_sample[present]]
    code[~is_present] = 0
    is_test = code[present] == IS_LEFT_OUT
    fold[present] = np.where(is_test.any(axis=1), is_test.argmax(axis=1), code.shape[1])
    return fold, code.shape[1], None, code


def _pairs(n_samples, n_copies):
    """Pairs of samples and copies: in each row, they take turns, until all of both have a pair.

    The arguments are those of each row, the results numbers of samples and copies, row by row.
    """
    n_pairs = np.maximum(n_samples, n_copies)
    row = np.repeat(np.arange(len(n_pairs)), n_pairs)
    number = np.arange(len(row)) - np.repeat(np.cumsum(n_pairs) - n_pairs, n_pairs)
    starts = [np.cumsum(n) - n for n in (n_samples, n_copies)]
    return [start[row] + number % n[row] for start, n in zip(starts, (n_samples, n_copies))]


def compares_all_rows(blend, groups):
    """Are members compared on the rows of all folds, however many rows there are?

    Without `refit`, all trees are kept, and each fold is left out by the same number of trees.
    Folds of groups and splitters may differ, and scorers may need rows of all classes.
    """
    has_equal_folds = (blend.cv is None or isinstance(blend.cv, Integral)) and groups is None
    return not (blend.refit and has_equal_folds and blend.scoring is None)


def given_samples(blend, validation, training, trained_rows, levels, encoding):
    """The `BlendedRows` of `X_val`; its members are trained on other rows.

    `validation` has the arguments of `fit`. `training` and `trained_rows` are those of
    `BlendedRows`, and `levels` the categories of X.
    """
    X, y, sample_weight = validation
    with errors_about("X_val, y_val"):
        numbers, y, _, _ = blend._validate_fit(X, y, None, levels)
    weight = check_sample_weight(sample_weight, len(numbers), "sample_weight_val")
    target = blend._encode_known_target(y, "y_val")
    _, rows = told_apart(blend, numbers, target, weight, levels)
    y, classes = blend._decoded(target)
    X = as_array(as_frame(X))
    folds = np.where(rows.row_of_sample >= 0, 0, -1), 1, None, None
    weight = None if sample_weight is None else weight
    samples = BlendedRows(X, y, weight, rows, folds, classes, True, encoding)
    samples.training, samples.trained_rows, samples.is_given = training, trained_rows, True
    return samples


def weighted_rows(blend, numbers, target, weight, levels):
    """The rows with the class weights of a blend, and weights of samples with and without them.

    Rows of a class of weight 0 are left out: both weights of their samples are 0.
    """
    numbers, rows = told_apart(blend, numbers, target, weight, levels)
    if getattr(blend, "class_weight", None) is None:
        return rows, weight, weight
    weighted = blend._with_class_weights(rows)
    if not weighted.weight.all():
        kept = rows.of_samples(weighted.weight[:, None])[:, 0] > 0
        weight = np.where(kept, weight, 0.0)
        rows = TrainingSet(numbers, target, weight, rows.feature_map)
        weighted = blend._with_class_weights(rows)
    factor = np.nan_to_num(rows.of_samples((weighted.weight / rows.weight)[:, None])[:, 0])
    return weighted, weight * factor, weight


class BadRows(ValueError):
    """A splitter yields something other than rows."""


def _group_splitter(n_folds, groups, is_stratified):
    """A splitter that leaves out whole groups."""
    n_folds = min(n_folds, len(np.unique(groups)))
    if n_folds < 2:
        raise ValueError("groups must have at least 2 groups with a positive weight")
    return (StratifiedGroupKFold if is_stratified else GroupKFold)(n_folds)


def _check_rows(rows, n_samples, what):
    """Rows of a split as an ndarray of numbers or a mask; BadRows if they are not valid."""
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (n_samples,):
        return rows
    if rows.ndim != 1 or (rows.size and rows.dtype.kind not in "iu"):
        raise BadRows(f"cv must yield row numbers or masks of {n_samples} rows, got {rows}")
    if rows.size and not 0 <= rows.min() <= rows.max() < n_samples:
        raise BadRows(f"cv has {what} rows outside of 0 .. {n_samples - 1}")
    return rows.astype(np.int64)
