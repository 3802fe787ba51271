"""TargetStatistics: means of the target in the levels of categories."""

import math
from functools import cached_property
from itertools import product

import numpy as np
from scipy.special import fdtri

from .._kernels.base.rows import RowOrder
from .matrix import equal_rows

N_FOLDS = 5
# Limits of the number of rows with the overall mean that are added to each level. The smaller one
# is positive, so that an entry without rows gets the overall mean.
MIN_PRIOR_ROWS, MAX_PRIOR_ROWS = 1e-6, 100.0
# Up to this mean share of its own label in the mean of its level, a row whose inputs are repeated
# gets the mean over all rows. Chosen without a stored measurement: on simulated tables of one and
# two categories with 10 rows in a level, out-of-bag scores of noise were 0.05 too large.
OWN_SHARE = 0.1
# Most features of a category, and the level of an F test of whether levels differ in each further
# one: chosen by errors on simulated and real tables; no command repeats this. A share of the
# variance up to TINY is rounding.
MAX_FEATURES, SIGNIFICANCE, TINY = 10, 0.01, 1e-9


def indicators(codes, n_classes):
    """Return the one-hot classes of several outputs: float64, (n_rows, sum(n_classes))."""
    parts = [column[:, None] == np.arange(n) for column, n in zip(codes.T, n_classes)]
    return np.concatenate(parts, axis=1).astype(np.float64)


class TargetStatistics:
    """Means of the target in the levels of categories, without the row's own label.

    The mean of a level is shrunk towards the overall mean, as if n rows with that mean were added;
    n is the ratio of the variance within levels to the variance between them (the empirical Bayes
    estimate; Micci-Barreca, "A preprocessing scheme for high-cardinality categorical attributes in
    classification and prediction problems", 2001). If the target has several columns or classes,
    the deviations of the level means are projected onto orthogonal directions: that in which they
    vary most, and at most `MAX_FEATURES` - 1 further ones in which they vary more than by chance.

    A training row gets the mean over rows of other folds; otherwise a model would learn to read
    its label from it. Folds are drawn in canonical order, so that neither the order of the samples
    nor copies of them matter. Rows that differ only in the target must get the same value, which
    would otherwise reveal the target: they share a fold. If a category determines the row, there
    is then nothing left to learn from. Therefore, such rows get the values of `fit_tables` if
    levels have so many samples that their own label counts little, see `OWN_SHARE`. The rows of a
    group share a fold, too: for a new group, the labels of its other rows are not known.

    Parameters
    ----------
    Z : ndarray of shape (n_rows, n_inputs)
        Distinct rows in canonical order.
    y : ndarray of shape (n_rows, n_columns), float64
        Class numbers, or regression targets.
    weight : ndarray of shape (n_rows,), float64
    n_classes : int, list of int, or None
        None: regression. A list: y has a column of class numbers for each output.
    n_samples : float, default=None
        Number of samples that the rows stand for. None: their weight.
    group : ndarray of shape (n_rows,), int, default=None
        Number of the group with which a row is held out.
    """

    def __init__(self, Z, y, weight, n_classes, n_samples=None, group=None):
        if isinstance(n_classes, list):
            y, n_classes = indicators(y, n_classes), None
        self.Z, self.y, self.weight, self.n_classes = Z, y, weight, n_classes
        self.n_samples = weight.sum() if n_samples is None else n_samples
        self.group = group

    def fit_tables(self, entry, n_levels):
        """Return the features at all entries of their tables.

        Parameters
        ----------
        entry : ndarray of shape (n_rows,), intp
            Position of every row in the table.
        n_levels : int

        Returns
        -------
        tables : ndarray of shape (n_features, n_levels + 2), float64
            In [0, 1]; levels without rows get the value of the overall mean. There is one feature
            for a single column or two classes, else there are one or more, in the order of their
            variances.
        """
        return self._projection(entry, n_levels)(self._sums(entry, n_levels))

    def nearest_level(self, entry, n_levels):
        """Return the level, an int, whose mean is expected to be nearest to the overall mean.

        Among levels with equal means, it is the level with the most rows.
        """
        sums = self._sums(entry, n_levels)
        prior = sums[:, 1:].sum(axis=0) / self.weight.sum()
        n_prior, within = self._variances(sums, prior)
        sums = sums[:n_levels] / self.weight.mean()
        n_rows = sums[:, 0] + n_prior
        deviation = (sums[:, 1:] - sums[:, :1] * prior) / n_rows[:, None]
        return int(np.argmin(np.square(deviation).sum(axis=1) + within / n_rows))

    def cross_fitted(self, entry, n_levels, tables):
        """Return the features of every training row: (n_features, n_rows), float32.

        `tables` are those of `fit_tables`, float32, or of an earlier fit to other rows.
        """
        values = np.empty((len(tables), len(entry)), dtype=np.float32)
        project = self._projection(entry, n_levels, tables)
        whole, n_used = self._sums(entry, n_levels), np.count_nonzero(np.bincount(entry))
        fold, further = self._folds
        if self.group is None and n_used <= OWN_SHARE * self.n_samples:
            fold = np.where(self._is_repeated, -1, fold)
        for k, other in product(range(-1, N_FOLDS), repeat=2):
            own = np.flatnonzero((fold == k) & (further == other))
            if not len(own):
                continue
            left_out = (k >= 0) & (fold == k) | (other >= 0) & (further == other)
            left_out = np.flatnonzero(left_out)
            # Sums without further rows are exactly 0, because rows are added in their order.
            rest = project(whole - self._sums(entry, n_levels, left_out))
            values[:, own] = rest[:, entry[own]]
        return values

    def _sums(self, entry, n_levels, rows=slice(None)):
        """Return weights and weighted sums of the target: (n_levels + 2, 1 + n_sums)."""
        n, entry, weight = n_levels + 2, entry[rows], self.weight[rows]
        total = np.bincount(entry, weight, n)
        if self.n_classes is None:
            sums = [np.bincount(entry, weight * column, n) for column in self._target(rows).T]
            return np.stack([total, *sums], axis=1)
        label = self.y[rows, 0].astype(np.intp)
        sums = np.bincount(entry * self.n_classes + label, weight, n * self.n_classes)
        # With two classes, one probability determines the other.
        sums = sums.reshape(n, -1)[:, 1 if self.n_classes == 2 else 0 :]
        return np.column_stack([total, sums])

    def _target(self, rows):
        """Return the columns of the target in comparable units."""
        deviation = self.y.std(axis=0)
        return self.y[rows] / np.where(deviation > 0, deviation, 1)

    def _projection(self, entry, n_levels, tables=None):
        """Return the function from the sums at entries to the features.

        If `tables` are given, it has their directions and units, as far as these rows tell.
        """
        sums = self._sums(entry, n_levels)
        prior = sums[:, 1:].sum(axis=0) / self.weight.sum()
        n_prior = self._variances(sums, prior)[0] * self.weight.mean()

        def deviations(sums):
            # Differences of sums may be negative by rounding.
            total = np.maximum(sums[:, :1], 0.0)
            return (sums[:, 1:] - total * prior) / (total + n_prior)

        def project(sums):
            found = deviations(sums)
            values = [(found * direction).sum(axis=1) for direction in directions]
            return np.stack([(own - low) / unit for own, (low, unit) in zip(values, ends)])

        found = deviations(sums)
        root, ends = np.sqrt(sums[:, :1]), [(0.0, 1.0)] * MAX_FEATURES
        directions = self._directions(found * root, sums, prior)
        own = project(sums)
        low, high = (end(own[:, sums[:, 0] > 0], axis=1) for end in (np.min, np.max))
        ends = list(zip(low, np.where(high > low, high - low, 1.0)))
        if tables is not None:
            if not np.array_equal(project(sums).astype(np.float32), tables):
                values = tables.T - tables[:, -1]  # unknown levels do not deviate
                directions = _least_squares(found * root, values * root).T
                ends = [(-value, 1.0) for value in tables[:, -1].tolist()]
        return project

    def _directions(self, D, sums, prior):
        """Return the directions in which levels differ by more than chance, as unit vectors.

        A row of D is the deviation of a level times the square root of the weight of its rows.
        """
        first, *others = _components(D, min(MAX_FEATURES, D.shape[1]))
        is_used = sums[:, 0] > 0
        n_within, n_between = len(self.weight) - is_used.sum(), is_used.sum() - 1
        if not others or n_within <= 0 or n_between == 0:
            return [first]
        sums = sums[is_used] / self.weight.mean()
        means = sums[:, 1:] / sums[:, :1] - prior
        unit, found = math.sqrt(fdtri(n_between, n_within, 1 - SIGNIFICANCE)), [first]
        for k, direction in enumerate(others, 1):
            # Noise varies most along the main one of the directions that are left.
            n_others = D.shape[1] - 1 - k
            least = (unit + math.sqrt(n_others / n_between)) ** 2 * n_between / n_within
            between = (sums[:, 0] * np.square((means * direction).sum(axis=1))).sum()
            within = max(self._squares(prior, direction) - between, 0.0)
            if between > least * within:
                found.append(direction)
        return found

    def _variances(self, sums, prior):
        """Return the variance within levels, relative to that between levels, and absolute.

        Both are estimates of the analysis of variance, for rows of mean weight.
        """
        unit = self.weight.mean()
        sums = sums[sums[:, 0] > 0] / unit
        n, n_rows = sums[:, 0], len(self.weight)
        squares = self._squares(prior)
        between = (n * np.square(sums[:, 1:] / n[:, None] - prior).sum(axis=1)).sum()
        n_within, n_between = n_rows - len(n), len(n) - 1
        if n_within <= 0 or n_between == 0:
            return MAX_PRIOR_ROWS, squares / n_rows
        within = max(squares - between, 0.0) / n_within
        of_levels = (between - n_between * within) / (n_rows - np.square(n).sum() / n_rows)
        n_prior = within / of_levels if of_levels > 0 else MAX_PRIOR_ROWS
        return min(max(n_prior, MIN_PRIOR_ROWS), MAX_PRIOR_ROWS), within

    def _squares(self, prior, direction=None):
        """Return the sum of squared deviations from the overall mean, or along a direction."""
        if direction is None:
            deviation = self._distances(prior)
        elif self.n_classes is None:
            deviation = ((self._target(slice(None)) - prior) * direction).sum(axis=1)
        else:
            deviation = direction[self.y[:, 0].astype(np.intp)] - (prior * direction).sum()
        # The last bits of BLAS depend on its threads.
        return (self.weight / self.weight.mean() * np.square(deviation)).sum()

    def _distances(self, prior):
        """Return the distance of the target of every row from the overall mean."""
        if self.n_classes is None:
            return np.sqrt(np.square(self._target(slice(None)) - prior).sum(axis=1))
        # With one-hot labels, add up (1 - p)^2 for the class of the row and p^2 for the others.
        label = self.y[:, 0].astype(np.intp)
        if self.n_classes == 2:
            return np.abs(label - prior[0])
        return np.sqrt(1 - 2 * prior[label] + np.square(prior).sum())

    @cached_property
    def _folds(self):
        """Two folds of every row, whose rows do not count for its value.

        Rows of equal inputs share one, rows of a group the other; -1 if there is no second one.
        """
        of_inputs = _in_turns(self._distinct_inputs)
        if self.group is None:
            return of_inputs, np.full(len(of_inputs), -1)
        return _in_turns(self.group), np.where(self._is_repeated, of_inputs, -1)

    @property
    def _is_repeated(self):
        """Mask of the rows whose inputs occur in further rows."""
        number = self._distinct_inputs
        return np.bincount(number)[number] > 1

    @cached_property
    def _distinct_inputs(self):
        """A number for every row, equal for rows of equal inputs."""
        n = len(self.Z)
        return equal_rows(RowOrder(self.Z, np.zeros((n, 1))), n)


def _in_turns(number):
    """Return a fold for every row; numbers are assigned to folds in the order of their rows."""
    _, first, number = np.unique(number, return_index=True, return_inverse=True)
    return (np.argsort(np.argsort(first)) % N_FOLDS)[number]


def _components(D, n):
    """Return n orthogonal unit vectors, or as many as D has, by power iteration.

    Each has the largest sum of squares of ``D @ v`` that the previous ones leave.
    """
    # The last bits of BLAS and LAPACK depend on their threads.
    G = np.einsum("ij,ik->jk", D, D)
    least, found = TINY * G.trace(), []
    while not found or len(found) < n and G.trace() > least:
        direction = np.zeros(len(G))
        direction[np.argmax(G.diagonal())] = 1
        for _ in range(100 if len(G) > 1 else 0):
            new = np.einsum("jk,k->j", G, direction)
            length = math.sqrt(np.square(new).sum())
            if length == 0:
                break
            direction = new / length
        found.append(direction)
        image = np.einsum("jk,k->j", G, direction)
        G = G - np.outer(direction, image) - np.outer(image, direction)
        G += (direction * image).sum() * np.outer(direction, direction)
    return found


def _least_squares(D, Y):
    """Return the smallest B for which ``D @ B`` is nearest to Y, by conjugate gradients."""
    G, rest = np.einsum("ij,ik->jk", D, D), np.einsum("ij,ik->jk", D, Y)
    B, step, square = np.zeros_like(rest), rest, np.square(rest).sum(axis=0)
    least = TINY**2 * square
    for _ in range(len(G)):
        image = np.einsum("jk,kl->jl", G, step)
        curvature = (step * image).sum(axis=0)
        is_left = (square > least) & (curvature > 0)
        size = np.where(is_left, square / np.where(is_left, curvature, 1), 0)
        B, rest = B + size * step, rest - size * image
        last, square = square, np.square(rest).sum(axis=0)
        step = rest + np.where(is_left, square / np.where(is_left, last, 1), 0) * step
    return B
