"""Manifold forests.

R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests: Closing the Gap
on Neural Networks". At every node random directions are drawn that know how the features lie: sums
over patches of an image, a signal or a circle. Also here, as other distributions of directions:
SPORF (sparse random mixtures of features, Tomita et al.) and the random forest itself (Breiman).
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np

from ._base import Integral, Interval, Real, StrOptions
from ._greedy import GreedyForest
from ._kernels.projection import AxisSampler, BoxSampler, SparseSampler
from ._kernels.search import SearchSplitter
from ._targets import ForestClassifierMixin, ForestRegressorMixin

MAX_AXES = 8


def _items(value, name, kind, what):
    """One value or a flat sequence of them as a tuple, all of one kind."""
    items = value if isinstance(value, list | tuple | np.ndarray) else [value]
    if len(items) == 0 or np.ndim(items) > 1 or not all(isinstance(item, kind) for item in items):
        raise ValueError(f"{name}={value!r} must be {what}, or a sequence of such")
    return tuple(items)


def _integers(value, name):
    items = _items(value, name, Integral, "an int of at least 1")
    if any(isinstance(item, bool) or item < 1 for item in items):
        raise ValueError(f"{name}={value!r} must be an int of at least 1, or a sequence of such")
    return tuple(int(item) for item in items)


def _booleans(value, name):
    return tuple(bool(item) for item in _items(value, name, bool | np.bool_, "True or False"))


class _ManifoldForest(GreedyForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        **GreedyForest._parameter_constraints,
        "projection": [StrOptions({"auto", "axis", "sparse", "patch"})],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "contrast": [StrOptions({"sum", "edge", "difference", "mix"})],
        "min_patch": ["array-like", Interval(Integral, 1, None, closed="left")],
        "max_patch": [
            StrOptions({"auto"}),
            "array-like",
            Interval(Integral, 1, None, closed="left"),
        ],
        "wrap": ["array-like", "boolean"],
        "unordered": ["array-like", "boolean"],
        "placement": [StrOptions({"corner", "inside"})],
        "n_nonzeros": [Interval(Real, 0.0, None, closed="neither")],
        "nonzeros": [StrOptions({"poisson", "fixed"})],
        "sparse_weights": [StrOptions({"scaled", "sign"})],
        "splitter": [StrOptions({"hist", "exact"})],
        "max_bins": [StrOptions({"auto"}), Interval(Integral, 2, 1024, closed="both")],
        "max_search_samples": [Interval(Integral, 32, None, closed="left"), None],
    }

    def __init__(
        self,
        n_estimators=100,
        *,
        projection="auto",
        feature_shape=None,
        contrast="edge",
        min_patch=1,
        max_patch="auto",
        wrap=False,
        unordered=False,
        placement="corner",
        n_nonzeros=2.0,
        nonzeros="poisson",
        sparse_weights="scaled",
        criterion="squared_error",
        splitter="hist",
        max_bins="auto",
        max_search_samples=1024,
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap=True,
        max_samples=None,
        oob_score=False,
        importance_type="impurity",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        self.n_estimators = n_estimators
        self.projection = projection
        self.feature_shape = feature_shape
        self.contrast = contrast
        self.min_patch = min_patch
        self.max_patch = max_patch
        self.wrap = wrap
        self.unordered = unordered
        self.placement = placement
        self.n_nonzeros = n_nonzeros
        self.nonzeros = nonzeros
        self.sparse_weights = sparse_weights
        self.criterion = criterion
        self.splitter = splitter
        self.max_bins = max_bins
        self.max_search_samples = max_search_samples
        self.max_features = max_features
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_leaf_nodes = max_leaf_nodes
        self.min_impurity_decrease = min_impurity_decrease
        self.bootstrap = bootstrap
        self.max_samples = max_samples
        self.oob_score = oob_score
        self.importance_type = importance_type
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    def _resolve(self, rows, target, goes_on):
        n_features = rows.X.shape[1]
        if self.nonzeros == "fixed" and self.n_nonzeros < 1:
            raise ValueError(
                f"n_nonzeros={self.n_nonzeros} must be at least 1 with nonzeros='fixed'"
            )
        self.projection_ = self.projection
        if self.projection == "auto":
            self.projection_ = "sparse" if self.feature_shape is None else "patch"
        self.feature_shape_ = self._resolve_shape(n_features)
        self.max_features_ = self._resolve_max_features(n_features)
        self.max_bins_ = self._auto_bins() if self.max_bins == "auto" else self.max_bins
        if self._is_scaled:
            self._spread(rows)  # once, before the threads ask for it
        if self.projection_ == "patch":
            self.min_patch_, self.max_patch_ = self._resolve_patch()

    @property
    def _is_scaled(self):
        return self.projection_ == "sparse" and self.sparse_weights == "scaled"

    def _resolve_shape(self, n_features):
        if self.feature_shape is None:
            return (n_features,)
        shape = _integers(self.feature_shape, "feature_shape")
        product = 1
        for length in shape:
            product *= length
        if product != n_features or len(shape) > MAX_AXES:
            raise ValueError(
                f"feature_shape={self.feature_shape} must have 1 to {MAX_AXES} lengths that "
                f"multiply to the {n_features} features of X"
            )
        return shape

    def _per_axis(self, name):
        """A parameter given once or per axis, as a tuple with one entry an axis."""
        value = getattr(self, name)
        flags = name in ("wrap", "unordered")
        values = _booleans(value, name) if flags else _integers(value, name)
        n_axes = len(self.feature_shape_)
        if len(values) not in (1, n_axes):
            raise ValueError(
                f"{name}={value} must be one value, or one for each of the {n_axes} axes of "
                f"feature_shape={self.feature_shape_}"
            )
        return values * n_axes if len(values) == 1 else values

    def _resolve_patch(self):
        """Smallest and largest patch, as arrays with one entry an axis."""
        lengths = self.feature_shape_
        low = self._per_axis("min_patch")
        if isinstance(self.max_patch, str):
            high = tuple(
                length if unordered else min(max(math.isqrt(length - 1) + 1, least), length)
                for length, unordered, least in zip(lengths, self._per_axis("unordered"), low)
            )
        else:
            high = self._per_axis("max_patch")
        for name, sizes in (("min_patch", low), ("max_patch", high)):
            if any(size > length for size, length in zip(sizes, lengths)):
                raise ValueError(
                    f"{name}={getattr(self, name)} must not exceed the lengths of "
                    f"feature_shape={lengths}"
                )
        if any(least > most for least, most in zip(low, high)):
            raise ValueError(
                f"min_patch={self.min_patch} must not exceed max_patch={self.max_patch}"
            )
        return np.array(low, dtype=np.int32), np.array(high, dtype=np.int32)

    def _auto_max_features(self, n_features):
        """Chosen on the tables of docs/performance (sparse) and out of bag on images (patch)."""
        root = math.sqrt(n_features)
        if self.projection_ == "patch":
            return math.ceil(2 * root)
        if self.projection_ == "sparse":
            return max(16, min(n_features, math.ceil(4 * root)))
        return n_features if self.criterion == "squared_error" else math.ceil(root)

    def _sampler(self, rows):
        """The distribution of directions; each tree has its own, they carry scratch."""
        n_features = rows.X.shape[1]
        if self.projection_ == "axis":
            return AxisSampler(n_features)
        if self.projection_ == "sparse":
            ones = np.ones(n_features, dtype=np.float32)
            scale = self._spread(rows) if self._is_scaled else ones
            mean = min(float(self.n_nonzeros), n_features)
            return SparseSampler(n_features, mean, self.nonzeros == "fixed", scale)
        return BoxSampler(
            self.feature_shape_,
            self._per_axis("wrap"),
            self._per_axis("unordered"),
            self.min_patch_,
            self.max_patch_,
            self.contrast,
            self.placement == "inside",
        )

    def _splitter(self, rows, target, weight, chosen, min_leaf, seed, stop):
        exact = self.splitter == "exact"
        searched = len(chosen)
        if not exact and self.max_search_samples is not None:
            searched = min(searched, self.max_search_samples)
        sampler = self._sampler(rows)
        # Scaled sparse weights are at most the reciprocal of a positive float32 spread.
        steepest = 1 / self._spread(rows).min() if self._is_scaled else 1.0
        largest = rows.largest() * sampler.max_taps * max(1.0, steepest)
        training_set = SimpleNamespace(
            X=rows.X,
            target=target,
            weight=weight,
            n_outputs=self._forest_options["n_outputs"],
            rows=chosen,
        )
        options = SimpleNamespace(
            criterion=self.criterion,
            sampler=sampler,
            n_candidates=self.max_features_,
            exact=exact,
            n_bins=self.max_bins_,
            max_search_samples=searched,
            min_samples_leaf=min_leaf,
            min_weight_leaf=self.min_weight_fraction_leaf * weight.sum(),
            may_overflow=largest > np.finfo(np.float32).max,
        )
        return SearchSplitter(training_set, options, seed, stop)

    def _directions_meta(self, rows, arrays):
        if self._is_scaled:
            arrays["spread"] = self._spread(rows)
        return {
            "feature_shape": self.feature_shape_,
            "wrap": self._per_axis("wrap"),
            "unordered": self._per_axis("unordered"),
        }


class ManifoldForestClassifier(ForestClassifierMixin, _ManifoldForest):
    """Classify with a forest of random patches, sparse mixtures or single features.

    At every node, `max_features_` random directions are drawn; the rows of the node are projected
    on each, and the best cut is taken (Perry et al., section 3). `projection` says where
    directions come from: patches of structured features (images, signals, volumes, circles),
    sparse random mixtures of features, or the features themselves, which is a random forest.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, at least 1.
    projection : {"auto", "axis", "sparse", "patch"}, default="auto"
        Distribution of the directions. "axis": single features, without replacement within a node.
        "sparse": mixtures of a few features (SPORF). "patch": boxes of the array of features.
        "auto": "patch" if `feature_shape` is given, else "sparse".
    feature_shape : int or tuple of int, default=None
        Shape of the array that the features of a row unfold to, in C order: ``(100,)`` for a
        signal, ``(28, 28)`` for an image, ``(28, 28, 3)`` for colours, ``(8, 8, 8)`` for a volume;
        at most 8 axes. Must multiply to the number of features. X may also be given as
        ``(n_samples, *feature_shape)``. None: ``(n_features,)``.
    contrast : {"sum", "edge", "difference", "mix"}, default="edge"
        What a patch measures. "sum": the sum of its entries, as in the paper. "edge": that, minus
        the sum of an equal patch right beside it along a random axis. "difference": minus an equal
        patch at most 8 entries away along each axis. "mix": one of the three, at random for each
        candidate. With few images (tens), "sum" can be better.
    min_patch : int or array-like of int, default=1
        Smallest length of a patch, or one per axis, in 1 .. length of the axis.
    max_patch : "auto", int or array-like of int, default="auto"
        Largest length of a patch, or one per axis, in `min_patch` .. length of the axis. "auto":
        the square root of the length of the axis, rounded up; for unordered axes, their length.
    wrap : bool or array-like of bool, default=False
        Axes, or each axis, that close to a circle: a patch may go over their end.
    unordered : bool or array-like of bool, default=False
        Axes without an order, such as colour channels or sensors: along them a patch takes a
        random subset instead of neighbours.
    placement : {"corner", "inside"}, default="corner"
        How a patch is drawn. "corner": first its corner, then a size that leaves it inside, as the
        paper says; patches at the far borders are smaller. "inside": first its size, then one of
        all corners that leave it inside, as the paper's first code does.
    n_nonzeros : float, default=2.0
        Sparse directions: number of features mixed, on average before 0 is drawn again. More than
        0; above the number of features it means all.
    nonzeros : {"poisson", "fixed"}, default="poisson"
        Sparse directions: whether the number of features follows a Poisson law (0 is drawn again)
        or is always `n_nonzeros`, rounded down.
    sparse_weights : {"scaled", "sign"}, default="scaled"
        Sparse directions: "sign": weights are +1 or -1, as in SPORF. "scaled": these divided by
        the standard deviation of the feature, so that no feature drowns the others by its unit.
    criterion : {"gini", "entropy"}, default="gini"
        Impurity that a split shall decrease.
    splitter : {"hist", "exact"}, default="hist"
        How a projected column is cut. "hist": between equal-width bins, and the threshold halfway
        between the rows on both sides; nodes of 24 rows or less are cut exactly. "exact": between
        any two rows, by sorting; slower, and rarely better.
    max_bins : "auto" or int, default="auto"
        Bins of splitter "hist", in 2 .. 1024. "auto": 32 with 10 classes or more, else 64.
    max_search_samples : int or None, default=1024
        Splitter "hist" searches nodes of more rows in a random subset of this size, at least 32;
        the split found is settled on all rows. None: always all rows.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Directions tried at a node. An int is a count, a float a multiple of the number of features
        p (above 1 is allowed: there are more directions than features), None is p. "sqrt" is the
        square root of p. "auto": with "axis" the square root of
        p; with "sparse" 4 times that, but at most p and at least 16; with "patch" 2 times that.
    max_depth : int or None, default=None
        Largest depth of a leaf. None: no limit.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are leaves; a float is a fraction of the rows of the tree. Equal rows
        count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf; a float is a fraction of the rows of the tree.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf, as a fraction of the weight of the rows of the tree, 0 to 0.5.
    max_leaf_nodes : int or None, default=None
        Grow at most this many leaves, the node of largest gain first. At least 2. None: no limit.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much.
    bootstrap : bool, default=True
        Each tree learns from a bootstrap sample: rows drawn with replacement, with probability
        proportional to their weight. False: every tree sees all rows.
    max_samples : int, float or None, default=None
        Rows to draw for each tree: a count, or a fraction of the distinct rows. None: as many as
        there are distinct rows.
    oob_score : bool, default=False
        Score the forest on the rows that each tree did not draw. Needs `bootstrap`.
    class_weight : {"balanced", "balanced_subsample"}, dict or None, default=None
        Weights of the classes, which multiply the weights of their rows: a dict from label to
        weight; "balanced": all classes weigh the same over the training set; "balanced_subsample":
        in every tree's bootstrap.
    importance_type : {"impurity", "count"}, default="impurity"
        Kind of `feature_importances_`: decrease of impurity times absolute weight, or how often a
        feature has a weight in a split (the paper's section 3.2).
    n_jobs : int or None, default=None
        Threads that grow trees, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the bootstraps and of the directions.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a tree.
    warm_start : bool, default=False
        Keep the trees of the last fit and add those missing to `n_estimators`.

    Attributes
    ----------
    forest_ : Forest
        The trees.
    classes_ : ndarray of shape (n_classes_,)
        Labels, sorted.
    n_classes_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1. ``.reshape(feature_shape_)`` is a picture.
    projection_, feature_shape_, max_features_, max_bins_ : str, tuple, int, int
        What "auto" and the shares of these parameters came to.
    min_patch_, max_patch_ : ndarray of shape (n_axes,), int32
        The same for patches; only with projection "patch".
    oob_score_ : float
        Accuracy on the rows left out; only with `oob_score`.
    oob_decision_function_ : ndarray of shape (n_samples, n_classes_), float64
        Probabilities by the trees that did not draw the row; NaN where every tree drew it, or its
        weight is 0. Only with `oob_score`.

    See Also
    --------
    ManifoldForestRegressor : The same for real targets.
    sklearn.ensemble.RandomForestClassifier : Single features, exact splits.

    Notes
    -----
    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    X of uint8 or bool, and X that holds only whole numbers in 0 .. 255, is kept as bytes: a
    quarter of the memory, faster, and exactly the same forest.

    References
    ----------
    .. [1] R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests:
       Closing the Gap on Neural Networks", 2019.
    .. [2] T. M. Tomita, J. Browne, C. Shen, J. Chung, J. L. Patsolic, B. Falk, C. E. Priebe,
       J. Yim, R. Burns, M. Maggioni, J. T. Vogelstein, "Sparse Projection Oblique Randomer
       Forests", JMLR 21, 2020.

    Examples
    --------
    >>> from skforest import ManifoldForestClassifier
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> forest = ManifoldForestClassifier(feature_shape=(8, 8), random_state=0)
    >>> bool(forest.fit(X_train, y_train).score(X_test, y_test) > 0.97)
    True
    >>> forest.feature_importances_.reshape(8, 8).shape
    (8, 8)
    """

    _parameter_constraints: dict = {
        **_ManifoldForest._parameter_constraints,
        **ForestClassifierMixin._parameter_constraints,
        "criterion": [StrOptions({"gini", "entropy"})],
    }

    def __init__(
        self,
        n_estimators=100,
        *,
        projection="auto",
        feature_shape=None,
        contrast="edge",
        min_patch=1,
        max_patch="auto",
        wrap=False,
        unordered=False,
        placement="corner",
        n_nonzeros=2.0,
        nonzeros="poisson",
        sparse_weights="scaled",
        criterion="gini",
        splitter="hist",
        max_bins="auto",
        max_search_samples=1024,
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap=True,
        max_samples=None,
        oob_score=False,
        class_weight=None,
        importance_type="impurity",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        super().__init__(
            n_estimators=n_estimators,
            projection=projection,
            feature_shape=feature_shape,
            contrast=contrast,
            min_patch=min_patch,
            max_patch=max_patch,
            wrap=wrap,
            unordered=unordered,
            placement=placement,
            n_nonzeros=n_nonzeros,
            nonzeros=nonzeros,
            sparse_weights=sparse_weights,
            criterion=criterion,
            splitter=splitter,
            max_bins=max_bins,
            max_search_samples=max_search_samples,
            max_features=max_features,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
            max_leaf_nodes=max_leaf_nodes,
            min_impurity_decrease=min_impurity_decrease,
            bootstrap=bootstrap,
            max_samples=max_samples,
            oob_score=oob_score,
            importance_type=importance_type,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.class_weight = class_weight


class ManifoldForestRegressor(ForestRegressorMixin, _ManifoldForest):
    """Predict real targets with a forest of random patches, sparse mixtures or single features.

    At every node, `max_features_` random directions are drawn; the rows of the node are projected
    on each, and the best cut is taken (Perry et al., section 3). `projection` says where
    directions come from: patches of structured features (images, signals, volumes, circles),
    sparse random mixtures of features, or the features themselves, which is a random forest.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, at least 1.
    projection : {"auto", "axis", "sparse", "patch"}, default="auto"
        Distribution of the directions. "axis": single features, without replacement within a node.
        "sparse": mixtures of a few features (SPORF). "patch": boxes of the array of features.
        "auto": "patch" if `feature_shape` is given, else "sparse".
    feature_shape : int or tuple of int, default=None
        Shape of the array that the features of a row unfold to, in C order: ``(100,)`` for a
        signal, ``(28, 28)`` for an image, ``(28, 28, 3)`` for colours, ``(8, 8, 8)`` for a volume;
        at most 8 axes. Must multiply to the number of features. X may also be given as
        ``(n_samples, *feature_shape)``. None: ``(n_features,)``.
    contrast : {"sum", "edge", "difference", "mix"}, default="edge"
        What a patch measures. "sum": the sum of its entries, as in the paper. "edge": that, minus
        the sum of an equal patch right beside it along a random axis. "difference": minus an equal
        patch at most 8 entries away along each axis. "mix": one of the three, at random for each
        candidate. With few images (tens), "sum" can be better.
    min_patch : int or array-like of int, default=1
        Smallest length of a patch, or one per axis, in 1 .. length of the axis.
    max_patch : "auto", int or array-like of int, default="auto"
        Largest length of a patch, or one per axis, in `min_patch` .. length of the axis. "auto":
        the square root of the length of the axis, rounded up; for unordered axes, their length.
    wrap : bool or array-like of bool, default=False
        Axes, or each axis, that close to a circle: a patch may go over their end.
    unordered : bool or array-like of bool, default=False
        Axes without an order, such as colour channels or sensors: along them a patch takes a
        random subset instead of neighbours.
    placement : {"corner", "inside"}, default="corner"
        How a patch is drawn. "corner": first its corner, then a size that leaves it inside, as the
        paper says; patches at the far borders are smaller. "inside": first its size, then one of
        all corners that leave it inside, as the paper's first code does.
    n_nonzeros : float, default=2.0
        Sparse directions: number of features mixed, on average before 0 is drawn again. More than
        0; above the number of features it means all.
    nonzeros : {"poisson", "fixed"}, default="poisson"
        Sparse directions: whether the number of features follows a Poisson law (0 is drawn again)
        or is always `n_nonzeros`, rounded down.
    sparse_weights : {"scaled", "sign"}, default="scaled"
        Sparse directions: "sign": weights are +1 or -1, as in SPORF. "scaled": these divided by
        the standard deviation of the feature, so that no feature drowns the others by its unit.
    criterion : {"squared_error"}, default="squared_error"
        Impurity that a split shall decrease: the sum of the variances of all outputs.
    splitter : {"hist", "exact"}, default="hist"
        How a projected column is cut. "hist": between equal-width bins, and the threshold halfway
        between the rows on both sides; nodes of 24 rows or less are cut exactly. "exact": between
        any two rows, by sorting; slower, and rarely better.
    max_bins : "auto" or int, default="auto"
        Bins of splitter "hist", in 2 .. 1024. "auto": 32 with 10 classes or more, else 64.
    max_search_samples : int or None, default=1024
        Splitter "hist" searches nodes of more rows in a random subset of this size, at least 32;
        the split found is settled on all rows. None: always all rows.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Directions tried at a node. An int is a count, a float a multiple of the number of features
        p (above 1 is allowed: there are more directions than features), None is p. "sqrt" is the
        square root of p. "auto": with "axis" p; with "sparse"
        4 times the square root of p, but at most p and at least 16; with "patch" 2 times the
        square root.
    max_depth : int or None, default=None
        Largest depth of a leaf. None: no limit.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are leaves; a float is a fraction of the rows of the tree. Equal rows
        count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf; a float is a fraction of the rows of the tree.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf, as a fraction of the weight of the rows of the tree, 0 to 0.5.
    max_leaf_nodes : int or None, default=None
        Grow at most this many leaves, the node of largest gain first. At least 2. None: no limit.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much.
    bootstrap : bool, default=True
        Each tree learns from a bootstrap sample: rows drawn with replacement, with probability
        proportional to their weight. False: every tree sees all rows.
    max_samples : int, float or None, default=None
        Rows to draw for each tree: a count, or a fraction of the distinct rows. None: as many as
        there are distinct rows.
    oob_score : bool, default=False
        Score the forest on the rows that each tree did not draw. Needs `bootstrap`.
    importance_type : {"impurity", "count"}, default="impurity"
        Kind of `feature_importances_`: decrease of impurity times absolute weight, or how often a
        feature has a weight in a split (the paper's section 3.2).
    n_jobs : int or None, default=None
        Threads that grow trees, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the bootstraps and of the directions.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a tree.
    warm_start : bool, default=False
        Keep the trees of the last fit and add those missing to `n_estimators`.

    Attributes
    ----------
    forest_ : Forest
        The trees.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1. ``.reshape(feature_shape_)`` is a picture.
    projection_, feature_shape_, max_features_, max_bins_ : str, tuple, int, int
        What "auto" and the shares of these parameters came to.
    min_patch_, max_patch_ : ndarray of shape (n_axes,), int32
        The same for patches; only with projection "patch".
    oob_score_ : float
        R2 on the rows left out, averaged over outputs; only with `oob_score`.
    oob_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs_), float64
        Predictions by the trees that did not draw the row; NaN where every tree drew it, or its
        weight is 0. Only with `oob_score`.

    See Also
    --------
    ManifoldForestClassifier : The same for labels.
    sklearn.ensemble.RandomForestRegressor : Single features, exact splits.

    Notes
    -----
    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    X of uint8 or bool, and X that holds only whole numbers in 0 .. 255, is kept as bytes: a
    quarter of the memory, faster, and exactly the same forest.

    References
    ----------
    .. [1] R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests:
       Closing the Gap on Neural Networks", 2019.
    .. [2] T. M. Tomita, J. Browne, C. Shen, J. Chung, J. L. Patsolic, B. Falk, C. E. Priebe,
       J. Yim, R. Burns, M. Maggioni, J. T. Vogelstein, "Sparse Projection Oblique Randomer
       Forests", JMLR 21, 2020.

    Examples
    --------
    >>> from skforest import ManifoldForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = ManifoldForestRegressor(random_state=0, oob_score=True).fit(X, y)
    >>> bool(forest.oob_score_ > 0.4)
    True
    >>> forest.predict(X[:2]).shape
    (2,)
    """

    _parameter_constraints: dict = {
        **_ManifoldForest._parameter_constraints,
        "criterion": [StrOptions({"squared_error"})],
    }
