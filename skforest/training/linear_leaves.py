"""Linear leaves of boosted trees (Shi, Li and Li, "Gradient Boosting with Piece-Wise Linear
Regression Trees", 2019).

A leaf predicts ``b + c . z``, where z are the projections of a row on the directions of the splits
above the leaf. For each output, b and c minimise the second-order expansion of the loss over the
rows of the leaf, plus ``l2 b^2 / 2`` and a penalty of the coefficients of standardised z.
"""

from .._kernels.linear_leaf import LeafRegression, add_linear

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
    l2, factor : float
        The functions are multiplied by `factor`.

    Attributes
    ----------
    value : ndarray of shape (n_leaves, n_outputs), float64
    start, feature, slope : ndarray of shape (n_leaves + 1,), (n_slopes,), (n_slopes, n_outputs)
        As `slope_start`, `slope_feature` and `slope` of a Forest.
    """

    def __init__(self, X, tree, leaf, rows, gradient, curvature, l2, factor):
        regression = LeafRegression(X, PENALTY, ROWS_PER_REGRESSOR)
        self.value, self.start, self.feature, self.slope = regression.fit(
            tree, leaf, rows, gradient, curvature, l2, factor
        )

    def add_to(self, raw, X, leaf):
        """Add the responses of all rows to `raw`."""
        raw += self.value[leaf]
        add_linear(X, leaf, self.start, self.feature, self.slope, raw)
