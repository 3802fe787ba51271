"""The number of copies of each row of a TrainingSet, where rows are held out or drawn.

Equal rows are merged. If a table repeats its rows by nature, as one of a few categories does, new
rows repeat them as well, and each of their copies is a row. If rows were multiplied to weight
them, or drawn in a bootstrap sample, held-out copies would occur among the training rows, unlike
new rows; then the merged row is one.
"""

import numpy as np
from scipy import sparse

MAX_COPIES = 100  # parts into which a row is divided at most
# Rows repeat by chance if so large a share occurs only once, among all rows and among rows with
# the same target (if there are at least MIN_ALIKE). In a bootstrap sample, the share is 0.58.
SINGLE_SHARE, MIN_ALIKE = 2 / 3, 20
# Rows repeat by nature only if each column has at most FEW_VALUES values, or if values occur in
# MEAN_COPIES distinct rows on average; and if rows whose X has several targets have the share
# OTHERS_SHARE of the weight, or if rows have MEAN_COPIES copies on average, and values
# MEAN_OF_VALUES. Chosen on simulated tables; no command repeats this.
FEW_VALUES, MEAN_COPIES, OTHERS_SHARE, MEAN_OF_VALUES = 20, 2.0, 0.05, 10.0


def copies_of_rows(data, also_repeated=True):
    """Return the number of copies, at most `MAX_COPIES`, of each row of a TrainingSet, int64.

    All rows have copies if rows repeat by nature, see `_repeat_by_nature`. Otherwise, there are
    two cases:

    - Rows of equal X have different targets. If one of them is held out, only other targets are
      left, and training on them would increase its loss.
    - With `also_repeated`, rows repeat by chance, see `_repeated`.

    The number of copies is `count`; if counts are not whole, a copy is the mean over the samples.
    """
    unit = data.count.sum() / data.n_samples
    n_copies = np.clip(np.rint(data.count / unit), 1, MAX_COPIES).astype(np.int64)
    n_repeated = _repeated(data) if also_repeated else np.ones_like(n_copies)
    if (n_copies == 1).all() and (n_repeated == 1).all():
        return n_copies
    number = data.same_features()
    has_others = np.bincount(number)[number] > 1
    if _repeat_by_nature(data, data.count / unit, has_others):
        return n_copies
    return np.where(has_others, n_copies, n_repeated)


def _repeat_by_nature(data, count, has_others):
    """Return whether rows repeat because the columns have few values, see `FEW_VALUES`."""
    n_values, total = _most_values(data.X), count.sum()
    if n_values > FEW_VALUES and len(data) < MEAN_COPIES * n_values:
        return False
    if count[has_others].sum() >= OTHERS_SHARE * total:
        return True
    return total >= MEAN_COPIES * len(data) and total >= MEAN_OF_VALUES * n_values


def _most_values(X):
    """Return the largest number of distinct values in a column."""
    if not sparse.issparse(X):
        return max(len(np.unique(column)) for column in X.T)
    X = X.tocsc()
    columns = [X.data[start:end] for start, end in zip(X.indptr, X.indptr[1:])]
    return max(len(np.unique(column)) + (len(column) < X.shape[0]) for column in columns)


def _repeated(data):
    """Return the number of copies of each row if rows repeat as in a random sample, else 1.

    Weights must be multiples of the smallest one, which most rows have. Otherwise they say how
    much rows matter. Rows of a class that was given a weight, or was drawn more often, are not
    repeated either.
    """
    one = np.ones(len(data), dtype=np.int64)
    n_copies = data.count / data.count.min()
    is_single = n_copies == 1
    is_whole = (n_copies == np.rint(n_copies)).all() and n_copies.max() < 2**31
    if is_single.all() or is_single.mean() < SINGLE_SHARE or not is_whole:
        return one
    _, alike, n_alike = np.unique(data.y[:, 0], return_inverse=True, return_counts=True)
    alike = np.where(n_alike[alike] < MIN_ALIKE, len(n_alike), alike)
    share = np.bincount(alike, is_single) / np.maximum(np.bincount(alike), 1)
    is_repeated = share[alike] >= SINGLE_SHARE
    return np.where(is_repeated, np.minimum(n_copies, MAX_COPIES), one).astype(np.int64)
