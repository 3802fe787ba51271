"""Linear leaves of boosted trees (Shi, Li and Li, "Gradient Boosting with Piece-Wise Linear
Regression Trees", 2019).

A leaf predicts ``b + c . z``, where z are the projections of a row on the directions of the splits
above the leaf. For each output, b and c minimise the second-order expansion of the loss over the
rows of the leaf, plus ``l2 b^2 / 2`` and a penalty of the coefficients of standardised z.
"""

import numpy as np

from .._kernels.linear_leaf import add_linear, regression_sums

MAX_REGRESSORS = 6  # splits above a leaf, the nearest ones
PENALTY = 30.0  # in units of the curvature of a typical row
ROWS_PER_REGRESSOR = 5  # leaves with fewer rows are constant


class LinearLeaves:
    """The linear functions in the leaves of a tree.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float32
    tree : dict of str to ndarray
        As the kernel returns it.
    leaf : ndarray of shape (n_rows,), int32
        Leaf of every row.
    rows : ndarray of int32
        Rows that the tree was grown on.
    gradient, curvature : ndarray of shape (n_rows, n_outputs), float32
    l2 : float

    Attributes
    ----------
    value : ndarray of shape (n_leaves, n_outputs), float64
    start, feature, slope : ndarray of shape (n_leaves + 1,), (n_slopes,), (n_slopes, n_outputs)
        As `slope_start`, `slope_feature` and `slope` of a Forest.
    """

    def __init__(self, X, tree, leaf, rows, gradient, curvature, l2):
        self.X, self.leaf = X, leaf
        n_rows = np.bincount(leaf[rows], minlength=int((tree["child"] < 0).sum()))
        terms = _terms(tree, X.shape[1])
        regressor = _regressors(tree, n_rows)
        sums = regression_sums(X, leaf, rows, gradient, curvature, regressor, *terms)
        self.value, coefficient = _solve(*sums, regressor >= 0, l2)
        self._set_slopes(coefficient, regressor, *terms)

    def _set_slopes(self, coefficient, regressor, term_start, term_feature, term_weight):
        """Slopes along features, from the coefficients of the regressors."""
        own, place = np.nonzero(regressor >= 0)
        chosen = regressor[own, place]
        n_terms = np.diff(term_start)[chosen]
        entry = np.repeat(term_start[chosen] - (np.cumsum(n_terms) - n_terms), n_terms)
        entry += np.arange(n_terms.sum())
        factor = np.repeat(coefficient[own, :, place], n_terms, axis=0)
        per_leaf = np.bincount(np.repeat(own, n_terms), minlength=len(regressor))
        self.start = np.concatenate([[0], np.cumsum(per_leaf)])
        self.feature = term_feature[entry]
        self.slope = (factor * term_weight[entry][:, None]).astype(np.float32)

    def scaled(self, factor):
        """Multiply all by a factor; returns self."""
        self.value = self.value * factor
        self.slope = (self.slope * factor).astype(np.float32)
        return self

    def add_to(self, raw):
        """Add the responses of all rows to `raw`."""
        raw += self.value[self.leaf]
        add_linear(self.X, self.leaf, self.start, self.feature, self.slope, raw)
        # Rows are those of all trees: only the functions are kept.
        del self.X, self.leaf


def _terms(tree, n_features):
    """Terms of the directions of all splits as starts, features and weights."""
    direction = tree["direction"]
    is_sparse = direction >= n_features
    row = np.where(is_sparse, direction - n_features, 0)
    n_terms = np.where(is_sparse, np.diff(tree["sparse_start"], append=0)[row], 1)
    start = np.concatenate([[0], np.cumsum(n_terms)])
    split = np.repeat(np.arange(len(direction)), n_terms)
    within = np.arange(start[-1]) - start[split]
    feature = direction[split].astype(np.int32)
    weight = np.ones(len(split), dtype=np.float32)
    own = is_sparse[split]
    entry = tree["sparse_start"][row[split[own]]] + within[own]
    feature[own], weight[own] = tree["sparse_feature"][entry], tree["sparse_weight"][entry]
    return start, feature, weight


def _regressors(tree, n_rows):
    """Splits above each leaf, from the nearest, each direction once: (n_leaves, D), int32."""
    # Lists, since single entries of arrays take several times longer.
    child, direction = tree["child"].tolist(), tree["direction"].tolist()
    parent = [-1] * len(child)
    for node, first in enumerate(child):
        if first >= 0:
            parent[first] = parent[first + 1] = node
    found = []
    for node in (node for node, first in enumerate(child) if first < 0):
        seen = {}  # the nearest split of each direction
        most = min(MAX_REGRESSORS, n_rows[len(found)] // ROWS_PER_REGRESSOR)
        while parent[node] >= 0 and len(seen) < most:
            node = parent[node]
            split = (child[node] - 1) // 2
            seen.setdefault(direction[split], split)
        found.append([*seen.values()] + [-1] * (MAX_REGRESSORS - len(seen)))
    return np.array(found, dtype=np.int32)


def _solve(h, g, hz, gz, hzz, is_used, l2):
    """Constants and coefficients of least loss, where regressors exist."""
    total = np.where(h > 0, h, np.inf)[:, :, None]
    mean = hz / total
    covariance = hzz - hz[..., :, None] * mean[..., None, :]
    variance = np.maximum(np.einsum("lkdd->lkd", covariance), 0)
    # A regressor that hardly varies in the leaf has no coefficient.
    is_used = is_used[:, None, :] & (variance > 1e-9 * np.einsum("lkdd->lkd", hzz))
    deviation = np.sqrt(np.where(is_used, variance / total, np.inf))
    scaled = covariance / deviation[..., :, None] / deviation[..., None, :]
    n = np.arange(scaled.shape[-1])
    scaled[..., n, n] += PENALTY
    slope = -(gz - g[:, :, None] * mean) / deviation
    coefficient = np.linalg.solve(scaled, slope[..., None])[..., 0] / deviation
    curvature = h + l2
    constant = -g / np.where(curvature > 0, curvature, np.inf)
    return constant - np.einsum("lkd,lkd->lk", coefficient, mean), coefficient
