"""Similarity of rows by their leaves: proximities, leaf embeddings and prototypes."""

from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, TransformerMixin, clone
from sklearn.frozen import FrozenEstimator
from sklearn.utils import column_or_1d, get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from ..estimators.prediction import Part, is_forest, prediction_of
from ..estimators.unwrap import inside, unwrapped, unwrapped_alone
from ..table.frames import is_missing

BLOCK = 1 << 22  # proximities in memory at a time, besides the result
N_CANDIDATES = 64  # rows whose gain as a prototype is computed together


def proximity(estimator, X, Y=None, *, n_neighbors=10):
    """Share of the trees in which two rows reach the same leaf, for the most similar rows.

    Two rows that share many leaves are alike in the columns that the forest uses, in units that
    the forest has learned [1]_. You can use the result as a graph for clustering, embedding,
    imputation or the search for similar cases.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted forest, tree, boosting, or blend of these; it may be inside a search or a pipeline.
        All trees have the same weight; in a blend, the weight of a member is shared equally by its
        trees.
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Rows in the form that `predict` takes.
    Y : {array-like, sparse matrix, dataframe} of shape (n_rows, n_features), default=None
        Rows to compare X with. None: X itself; a row is then not compared with itself.
    n_neighbors : int or None, default=10
        Number of rows of Y to keep for each row of X: those with the largest proximity, and among
        equal ones the first. None: all rows that share a leaf; the result can then be large.

    Returns
    -------
    proximity : csr_matrix of shape (n_samples, n_rows), float64
        Entries in (0, 1], in the order of the rows of Y; at most `n_neighbors` in each row. Rows
        that share no leaf have no entry.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If the estimator, or a member of a blend, is not one of skforest.
    ValueError
        If `n_neighbors` is not a positive integer, or rows do not fit the estimator.

    See Also
    --------
    prototypes : Typical rows of each class.
    LeafEmbedding : The leaves themselves, as indicators.

    Notes
    -----
    Leaves are the ones that `apply` returns: even for end-to-end trees with ``routing="soft"``,
    rows follow hard splits. In boosting, all rounds of all bags count alike, although the first
    rounds change the prediction most: the proximity says in how many partitions two rows are
    together, not how similar their predictions are. Training rows share more leaves with each
    other than with new rows, especially in fully grown trees.

    The time is proportional to the number of pairs of rows that share a leaf, summed over all
    trees. The rows of each leaf are listed once, and the rows of X are processed in blocks.

    References
    ----------
    .. [1] L. Breiman, "Random Forests", Machine Learning 45, 2001; and L. Breiman, A. Cutler,
       "Random Forests", https://www.stat.berkeley.edu/~breiman/RandomForests.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skforest import ManifoldForestClassifier, proximity
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = ManifoldForestClassifier(50, random_state=0).fit(X, y)
    >>> found = proximity(forest, X[[70, 106, 119]], X, n_neighbors=4)
    >>> found.indices.reshape(3, 4).tolist()  # each row, and its nearest neighbours
    [[70, 121, 126, 138], [56, 59, 60, 106], [72, 119, 133, 134]]
    >>> found.data.reshape(3, 4).round(1)
    array([[1. , 0.3, 0.4, 0.5],
           [0.4, 0.4, 0.4, 1. ],
           [0.3, 1. , 0.5, 0.5]])
    """
    if n_neighbors is not None and not (isinstance(n_neighbors, Integral) and n_neighbors > 0):
        raise ValueError(f"n_neighbors={n_neighbors!r} must be None or an int of at least 1")
    whole = unwrapped(estimator)
    members = _leaf_members(whole.estimator)
    X = whole.transform(X)
    of_X = [_memberships(model, X) for _, model in members]
    if Y is not None:
        Y = whole.transform(Y)
    of_Y = of_X if Y is None else [_memberships(model, Y) for _, model in members]
    rows_of_leaf = [leaves.T.tocsr() for leaves in of_Y]
    n_samples, n_rows = of_X[0].shape[0], of_Y[0].shape[0]
    size, blocks = max(1, BLOCK // n_rows), []
    for start in range(0, n_samples, size):
        own = [leaves[start : start + size] for leaves in of_X]
        block = _products(members, own, rows_of_leaf)
        if Y is None:
            row = np.repeat(np.arange(start, start + block.shape[0]), np.diff(block.indptr))
            block.data[block.indices == row] = 0
            block.eliminate_zeros()
        block.sort_indices()
        blocks.append(block if n_neighbors is None else _largest(block, n_neighbors))
    return sparse.vstack(blocks, format="csr")


def _leaf_members(estimator):
    """List of (weight, fitted forest): the members of a blend, or the estimator itself."""
    reason = "; forests, trees and boosting of skforest have leaves"
    if not hasattr(estimator, "_prediction"):
        Part(estimator).checked(reason + inside(estimator))
    parts = prediction_of(estimator).parts
    return [(part.weight, part.checked(reason + inside(part.model))) for part in parts]


def _memberships(model, X):
    """1 where a row reaches a leaf: csr_matrix of shape (n_samples, n_nodes), float32."""
    return _indicators(_leaves(model, X), model.forest_.n_nodes, np.float32)


def _leaves(model, X):
    """Leaf of every row in every tree, numbered over the whole forest: int64."""
    leaves = model.apply(X)  # of a single tree, one number for each row
    return leaves.reshape(len(leaves), -1) + model.forest_.tree_start[:-1]


def _indicators(column, n_columns, dtype=np.float64):
    """1 in the given columns of each row: csr_matrix of shape (n_samples, n_columns)."""
    n_samples, n_each = column.shape
    start = np.arange(n_samples + 1) * n_each
    entries = np.ones(column.size, dtype), column.ravel(), start
    return sparse.csr_matrix(entries, shape=(n_samples, n_columns))


def _products(members, leaves, rows_of_leaf):
    """Proximities of some rows, given by their leaves, to all rows, which are listed by leaf."""
    total = None
    for (weight, model), own, rows in zip(members, leaves, rows_of_leaf):
        product = (own @ rows).astype(np.float64)  # counts, exact in float32
        product.data /= len(model.forest_)  # exact where all trees agree
        product.data *= weight
        total = product if total is None else total + product
    return total


def _largest(matrix, n_neighbors):
    """The largest entries of each row of a csr_matrix whose columns are sorted."""
    kept = []
    for start, end in zip(matrix.indptr[:-1], matrix.indptr[1:]):
        own = np.arange(start, end)
        if len(own) > n_neighbors:
            values = matrix.data[start:end]
            last = np.partition(values, -n_neighbors)[-n_neighbors]
            is_kept = values > last
            ties = np.flatnonzero(values == last)
            is_kept[ties[: n_neighbors - np.count_nonzero(is_kept)]] = True
            own = own[is_kept]
        kept.append(own)
    start = np.cumsum([0] + [len(own) for own in kept])
    kept = np.concatenate(kept)
    return sparse.csr_matrix((matrix.data[kept], matrix.indices[kept], start), matrix.shape)


# ---------------------------------------------------------------------------------- leaf embedding


class LeafEmbedding(TransformerMixin, MetaEstimatorMixin, BaseEstimator):
    """Transform rows to indicators of the leaves that they reach in a forest.

    Each leaf of each tree becomes a column, which is 1 for rows that reach the leaf and 0 for all
    others. A linear model on these columns is a forest whose leaf values are trained together
    [1]_. The inner product of two rows, divided by the number of trees, is their `proximity`.

    Parameters
    ----------
    estimator : estimator of skforest
        Forest, tree or boosting, which `fit` clones and trains. To use a fitted estimator as it
        is, wrap it in `sklearn.frozen.FrozenEstimator`.
    sparse_output : bool, default=True
        Whether `transform` returns a sparse matrix. False: an array, which data frames from
        `set_output` need.

    Attributes
    ----------
    estimator_ : estimator of skforest
        The fitted forest.
    n_features_in_ : int
        Number of features seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        Names of the features, if X was a data frame whose column names are all strings.

    See Also
    --------
    proximity : Share of the leaves that two rows have in common.
    sklearn.ensemble.RandomTreesEmbedding : The same for trees that are grown without a target.

    Notes
    -----
    Leaves are fitted to the training rows, so a linear model trained on the leaves of the same
    rows overfits. Limit the size of the trees, for example with ``max_leaf_nodes=32``, or train
    the linear model on different rows.

    References
    ----------
    .. [1] X. He et al., "Practical Lessons from Predicting Clicks on Ads at Facebook", ADKDD 2014.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from skforest import LeafEmbedding, ManifoldForestRegressor
    >>> X, y = make_friedman1(600, noise=1.0, random_state=0)
    >>> forest = ManifoldForestRegressor(50, max_leaf_nodes=16, random_state=0)
    >>> model = make_pipeline(LeafEmbedding(forest), Ridge(10))
    >>> for regressor in (forest, model):
    ...     score = regressor.fit(X[:400], y[:400]).score(X[400:], y[400:])
    ...     print(f"R2 {score:.2f}")
    R2 0.77
    R2 0.86
    >>> model[0].transform(X).shape
    (600, 800)
    """

    def __init__(self, estimator, *, sparse_output=True):
        self.estimator, self.sparse_output = estimator, sparse_output

    def fit(self, X, y=None, sample_weight=None):
        """Train the forest.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows in the form that the forest takes.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs), default=None
            Class labels, or numbers in regression; ignored if the forest is frozen.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None: all are 1.

        Returns
        -------
        self : object
        """
        forest = self.estimator
        if isinstance(forest, FrozenEstimator):
            forest = unwrapped_alone(forest, "a leaf embedding")
        if not is_forest(forest):
            raise TypeError(
                f"estimator={forest!r} is a {type(forest).__name__}; a forest, tree or boosting "
                "of skforest is needed"
            )
        if forest is self.estimator:
            forest = clone(forest).fit(X, y, sample_weight=sample_weight)
        check_is_fitted(forest, "forest_")
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(forest, name):
                setattr(self, name, getattr(forest, name))
            elif hasattr(self, name):
                delattr(self, name)
        self.estimator_ = forest
        return self

    def transform(self, X):
        """Indicators of the leaves that rows reach.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Rows with the same columns as in `fit`.

        Returns
        -------
        leaves : csr_matrix or ndarray of shape (n_samples, n_leaves), float64
            Each row has one entry, equal to 1, for each tree. Columns are the leaves of all trees.
            Without `sparse_output`, an ndarray.
        """
        check_is_fitted(self, "estimator_")
        forest = self.estimator_.forest_
        column = np.cumsum(forest.child < 0) - 1  # of each node that is a leaf
        found = _indicators(column[_leaves(self.estimator_, X)], int(forest.n_leaves.sum()))
        return found if self.sparse_output else found.toarray()

    def get_feature_names_out(self, input_features=None):
        """Names of the leaves: ``leafembedding_tree_node``, with the node numbers of `apply`.

        Parameters
        ----------
        input_features : array-like of str, default=None
            Ignored.

        Returns
        -------
        names : ndarray of shape (n_leaves,), object
        """
        check_is_fitted(self, "estimator_")
        forest = self.estimator_.forest_
        leaf = np.flatnonzero(forest.child < 0)
        tree = forest.tree_of(leaf)
        node = leaf - forest.tree_start[tree]
        return np.array([f"leafembedding_{t}_{n}" for t, n in zip(tree, node)], dtype=object)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        own = get_tags(self.estimator)
        tags.input_tags, tags.target_tags = own.input_tags, own.target_tags
        tags.target_tags.required = not isinstance(self.estimator, FrozenEstimator)
        tags.transformer_tags.preserves_dtype = []
        return tags


# -------------------------------------------------------------------------------------- prototypes


def prototypes(estimator, X, y, n_prototypes=3):
    """Typical rows of each class, which are similar to most rows of their class.

    The prototypes of a class are chosen so that the `proximity` of each row of the class to its
    most similar prototype, summed over these rows, is as large as possible. They are chosen
    greedily [1]_: the first one has the largest summed proximity to the rows of its class, and
    each further one represents rows that are not yet represented well.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted forest, tree, boosting, or blend of these, for classification or regression; it may
        be inside a search or a pipeline.
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Rows to choose from, in the form that `predict` takes.
    y : array-like of shape (n_samples,)
        Class of each row: its label, the predicted label, or a range of the target. A row whose
        label is missing is in no class.
    n_prototypes : int, default=3
        Number of prototypes of each class, at least 1; a class with fewer rows has fewer.

    Returns
    -------
    prototypes : dict of label to ndarray of int64
        Row numbers of X for each class, in the order in which they were chosen.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If the estimator, or a member of a blend, is not one of skforest.
    ValueError
        If `n_prototypes` is not a positive integer, or X or y do not fit.

    See Also
    --------
    proximity : Share of the trees in which two rows reach the same leaf.

    Notes
    -----
    The sum is submodular, so the greedy choice reaches at least 63 % of its maximum. Bounds from
    earlier rounds show which rows need not be compared again, and no matrix of all pairs is
    stored. Among equal rows, the first one is chosen.

    The authors of [1]_ propose another distance for boosting; here all trees count alike.

    References
    ----------
    .. [1] S. Tan, M. Soloviev, G. Hooker, M. T. Wells, "Tree Space Prototypes: Another Look at
       Making Tree Ensembles Interpretable", FODS 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skforest import ManifoldForestClassifier, prototypes
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = ManifoldForestClassifier(50, random_state=0).fit(X, y)
    >>> for label, rows in prototypes(forest, X, y, n_prototypes=2).items():
    ...     print(label, X[rows].tolist())
    0 [[5.1, 3.5, 1.4, 0.2], [4.5, 2.3, 1.3, 0.3]]
    1 [[5.5, 2.3, 4.0, 1.3], [6.7, 3.0, 5.0, 1.7]]
    2 [[7.1, 3.0, 5.9, 2.1], [6.3, 2.8, 5.1, 1.5]]
    """
    if not (isinstance(n_prototypes, Integral) and n_prototypes > 0):
        raise ValueError(f"n_prototypes={n_prototypes!r} must be an int of at least 1")
    whole = unwrapped(estimator)
    members, X = _leaf_members(whole.estimator), whole.transform(X)
    leaves = [_memberships(model, X) for _, model in members]
    y = column_or_1d(np.asarray(y))
    check_consistent_length(leaves[0], y)
    labels = np.unique(y[[not is_missing(label) for label in y]])
    is_date, found = labels.dtype.kind in "mM", {}  # as a list, dates would be numbers
    for label, key in zip(labels, labels if is_date else labels.tolist()):
        rows = np.flatnonzero(y == label)
        found[key] = rows[_chosen(members, [own[rows] for own in leaves], n_prototypes)]
    return found


def _chosen(members, leaves, n_prototypes):
    """Greedy prototypes of rows, given by their leaves; the numbers of the rows."""
    n_rows = leaves[0].shape[0]
    rows_of_leaf = [own.T.tocsr() for own in leaves]

    def similarity(rows):
        """Proximities of some rows to all."""
        return _products(members, [own[rows] for own in leaves], rows_of_leaf).toarray()

    # Gains can only decrease from round to round, so earlier gains are upper bounds.
    bound = sum(
        np.ravel(own @ own.sum(axis=0, dtype=np.float64).T) * (weight / len(model.forest_))
        for (weight, model), own in zip(members, leaves)
    )
    is_known = np.ones(n_rows, dtype=bool)
    size = max(1, min(N_CANDIDATES, BLOCK // n_rows))
    best, chosen = np.zeros(n_rows), []
    while len(chosen) < min(n_prototypes, n_rows):
        top = int(bound.argmax())
        if not is_known[top]:
            rows = np.flatnonzero(~is_known)
            rows = np.sort(rows[np.argsort(-bound[rows], kind="stable")[:size]])
            bound[rows] = np.maximum(similarity(rows) - best, 0).sum(axis=1)
            is_known[rows] = True
            continue
        chosen.append(top)
        best = np.maximum(best, similarity([top])[0])
        bound[chosen] = -1  # below the gain of any other row
        is_known[:] = False
        is_known[chosen] = True
    return chosen
