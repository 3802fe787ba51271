"""TargetStatistics: means of the target in the levels of categories."""

import math
from functools import cached_property

import numpy as np

from .._kernels.base.rows import RowOrder

N_FOLDS = 5
MAX_PRIOR_ROWS = 100.0  # rows of the overall mean that are added to a level, at most
MIN_PRIOR_ROWS = 1e-6  # more than 0: an entry without rows has the overall mean


def indicators(codes, n_classes):
    """Indicators of the classes of several outputs, float64 of shape (n_rows, sum(n_classes))."""
    parts = [column[:, None] == np.arange(n) for column, n in zip(codes.T, n_classes)]
    return np.concatenate(parts, axis=1).astype(np.float64)


class TargetStatistics:
    """Means of the target in the levels of categories, without the row's own label.

    The mean of a level is pulled towards the overall mean, as if rows of that mean were added: as
    many as the variance within levels is larger than that between them (the empirical Bayes
    estimate; Micci-Barreca, "A preprocessing scheme for high-cardinality categorical attributes in
    classification and prediction problems", 2001). Where the target has several columns, or there
    are several classes, the deviations of the means of the levels are projected onto the direction
    in which they vary most.

    A training row gets the mean over rows of other folds, else a model would learn to read its
    label from it. Folds are drawn by canonical order, so that neither the order of the samples nor
    copies of them matter. Rows that differ in the target alone must get the same value, or it
    would tell them apart: they get that of `fit_table`.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_inputs)
        Distinct rows in canonical order.
    y : ndarray of shape (n_rows, n_columns), float64
        Class numbers in one column, or real targets.
    weight : ndarray of shape (n_rows,), float64
    n_classes : int, list of int, or None
        A list: with one column of class numbers for each output.
    """

    def __init__(self, Z, y, weight, n_classes):
        if isinstance(n_classes, list):
            y, n_classes = indicators(y, n_classes), None
        self.Z, self.y, self.weight, self.n_classes = Z, y, weight, n_classes

    def fit_table(self, entry, n_levels):
        """The feature at all entries of its table.

        Parameters
        ----------
        entry : ndarray of shape (n_rows,), intp
            Position of every row in the table.
        n_levels : int

        Returns
        -------
        table : ndarray of shape (n_levels + 2,), float64
            In [0, 1]; for levels without rows, what belongs to the overall mean.
        """
        return self._projection(entry, n_levels)(self._sums(entry, n_levels))

    def nearest_level(self, entry, n_levels):
        """The level whose mean is expected to be nearest to the overall mean, an int.

        Its uncertainty counts: of equal means, that of the level with the most rows is taken.
        """
        sums = self._sums(entry, n_levels)
        prior = sums[:, 1:].sum(axis=0) / self.weight.sum()
        n_prior, within = self._variances(sums, prior)
        sums = sums[:n_levels] / self.weight.mean()
        n_rows = sums[:, 0] + n_prior
        deviation = (sums[:, 1:] - sums[:, :1] * prior) / n_rows[:, None]
        return int(np.argmin(np.square(deviation).sum(axis=1) + within / n_rows))

    def cross_fitted(self, entry, n_levels, table):
        """The feature of every training row: (n_rows,), float32.

        `table` is that of the map, for the rows that differ from others in the target alone.
        """
        values = table[entry]
        project = self._projection(entry, n_levels)
        whole = self._sums(entry, n_levels)
        fold = np.where(self._is_alone, np.arange(len(entry)) % N_FOLDS, -1)
        for k in range(N_FOLDS):
            rows = np.flatnonzero(fold == k)
            rest = project(whole - self._sums(entry, n_levels, rows))
            values[rows] = rest[entry[rows]]
        return values

    def _sums(self, entry, n_levels, rows=slice(None)):
        """Weight, and weighted sums of the target, at all entries: (n_levels + 2, 1 + n_sums)."""
        n, entry, weight = n_levels + 2, entry[rows], self.weight[rows]
        total = np.bincount(entry, weight, n)
        if self.n_classes is None:
            sums = [np.bincount(entry, weight * column, n) for column in self._target(rows).T]
            return np.stack([total, *sums], axis=1)
        label = self.y[rows, 0].astype(np.intp)
        sums = np.bincount(entry * self.n_classes + label, weight, n * self.n_classes)
        # The probability of one of two classes follows from that of the other.
        sums = sums.reshape(n, -1)[:, 1 if self.n_classes == 2 else 0 :]
        return np.column_stack([total, sums])

    def _target(self, rows):
        """Columns of the target in comparable units."""
        deviation = self.y.std(axis=0)
        return self.y[rows] / np.where(deviation > 0, deviation, 1)

    def _projection(self, entry, n_levels):
        """Function from the sums at the entries to the feature there."""
        sums = self._sums(entry, n_levels)
        prior = sums[:, 1:].sum(axis=0) / self.weight.sum()
        n_prior = self._variances(sums, prior)[0] * self.weight.mean()

        def deviations(sums):
            # Differences of sums may be negative by rounding.
            total = np.maximum(sums[:, :1], 0.0)
            return (sums[:, 1:] - total * prior) / (total + n_prior)

        found = deviations(sums)
        direction = _first_component(found * np.sqrt(sums[:, :1]))
        values = (found * direction).sum(axis=1)[sums[:, 0] > 0]
        low, high = values.min(), values.max()
        unit = high - low if high > low else 1.0

        def project(sums):
            return ((deviations(sums) * direction).sum(axis=1) - low) / unit

        return project

    def _variances(self, sums, prior):
        """Variance within levels over that between them, and the former, in rows of mean weight.

        From the analysis of variance.
        """
        unit = self.weight.mean()
        sums = sums[sums[:, 0] > 0] / unit
        n, n_rows = sums[:, 0], len(self.weight)
        # Without BLAS, whose last bits depend on its threads.
        squares = (self.weight / unit * np.square(self._distances(prior))).sum()
        between = (n * np.square(sums[:, 1:] / n[:, None] - prior).sum(axis=1)).sum()
        n_within, n_between = n_rows - len(n), len(n) - 1
        if n_within <= 0 or n_between == 0:
            return MAX_PRIOR_ROWS, squares / n_rows
        within = max(squares - between, 0.0) / n_within
        of_levels = (between - n_between * within) / (n_rows - np.square(n).sum() / n_rows)
        n_prior = within / of_levels if of_levels > 0 else MAX_PRIOR_ROWS
        return min(max(n_prior, MIN_PRIOR_ROWS), MAX_PRIOR_ROWS), within

    def _distances(self, prior):
        """Distance of the target of every row from the overall mean."""
        if self.n_classes is None:
            return np.sqrt(np.square(self._target(slice(None)) - prior).sum(axis=1))
        # Of one-hot labels: the square of (1 - p) for the own class, and of p for the others.
        label = self.y[:, 0].astype(np.intp)
        if self.n_classes == 2:
            return np.abs(label - prior[0])
        return np.sqrt(1 - 2 * prior[label] + np.square(prior).sum())

    @cached_property
    def _is_alone(self):
        """Mask of the rows whose inputs no other row has."""
        n = len(self.Z)
        order, rows = RowOrder(self.Z, np.zeros((n, 1))), np.arange(n)
        hashes = order.hashes(rows)
        by_hash = np.argsort(hashes, kind="stable")
        rows = rows[by_hash]
        group = np.cumsum(order.sort_equal_hashes(rows, hashes[by_hash])) - 1
        is_alone = np.empty(n, dtype=bool)
        is_alone[rows] = (np.bincount(group) == 1)[group]
        return is_alone


def _first_component(D):
    """Direction of the largest sum of squares of the rows, a unit vector, by power iteration."""
    # Without BLAS and LAPACK, whose last bits depend on their threads.
    G = np.einsum("ij,ik->jk", D, D)
    direction = np.zeros(len(G))
    direction[np.argmax(G.diagonal())] = 1
    for _ in range(100 if len(G) > 1 else 0):
        new = np.einsum("jk,k->j", G, direction)
        length = math.sqrt(np.square(new).sum())
        if length == 0:
            break
        direction = new / length
    return direction
