"""Non-greedy trees and forests.

Norouzi, Collins, Johnson, Fleet, Kohli, "Efficient Non-greedy Optimization of Decision Trees",
2015. A tree is grown node by node, and then all of its splits and leaves are trained together, by
gradient descent on an upper bound of the loss of the whole tree.
"""

import numpy as np

from ._base import RECORDS, Integral, Interval, Real, StrOptions, check_is_fitted
from ._greedy import ObliqueForest
from ._kernels.search import SearchSplitter
from ._targets import ForestClassifierMixin, ForestRegressorMixin
from .training.alternating import refine_grown
from .training.nongreedy import resolve_nu, train_jointly

SEARCHED = 4096  # rows in which the cut of a large node is searched, with init="axis"


class _NonGreedy(ObliqueForest):
    """Parameters and training shared by trees and forests."""

    _parameter_constraints: dict = {
        **ObliqueForest._parameter_constraints,
        "init": [StrOptions({"co2", "soft", "axis"})],
        "inference": [StrOptions({"fast", "full"})],
        "stable": ["boolean"],
        "nu": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "n_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "batch_size": [Interval(Integral, 1, 2**20, closed="both")],
        "l1": [Interval(Real, 0.0, None, closed="left")],
        "smoothing": [Interval(Real, 0.0, None, closed="neither")],
        "row_norm": [Interval(Real, 0.0, None, closed="neither")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "refine": [StrOptions({"alternating"}), None],
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
    }

    def _resolve(self, rows, target, goes_on):
        super()._resolve(rows, target, goes_on)
        self.nu_ = resolve_nu(self.nu, rows.X.shape[1])

    # ------------------------------------------------------------------------------- the start

    def _splitter(self, rows, target, weight, chosen, min_leaf, seed, stop):
        common = (rows, target, weight, chosen, min_leaf, seed, stop)
        if self.init != "axis":
            return self._stump_splitter(
                *common, objective=self.init, smoothing=self.smoothing, row_norm=self.row_norm
            )
        return SearchSplitter(*self._search_arguments(*common))

    def _fit_tree(self, rows, target, weight, seed, stop):
        held = self._hold_out(weight, seed)
        forest = super()._fit_tree(rows, target, np.where(held, 0.0, weight), seed, stop)
        scale = self._target_scale if target.ndim == 2 else 1.0
        forest, record = train_jointly(
            forest, rows.X, target, weight, held, seed, stop, self, self._criterion, scale
        )
        forest, refined = refine_grown(self, forest, rows, target, weight, seed, stop)
        record["n_active_leaves_"] = int(forest.n_leaves[0])
        return forest, record | refined

    def _record_refined(self):
        """Bring what was recorded up to date with refined trees."""
        self.n_active_leaves_ = self.forest_.n_leaves.tolist()

    def _hold_out(self, weight, seed):
        """Mask of the rows that do not train."""
        held = np.zeros(len(weight), dtype=bool)
        chosen = np.flatnonzero(weight)
        if not self.early_stopping or len(chosen) == 1:  # one row makes one leaf, untrained
            return held
        n_held = max(1, round(self.validation_fraction * len(chosen)))
        if n_held >= len(chosen):
            raise ValueError(
                f"early_stopping=True with validation_fraction={self.validation_fraction} leaves "
                f"none of the {len(chosen)} distinct rows of a tree to train on"
            )
        held[np.random.default_rng(seed).permutation(chosen)[:n_held]] = True
        return held


class _NonGreedyTree(_NonGreedy):
    """What is special about a single tree."""

    # Words of a forest, which the door asks for.
    n_estimators = 1
    bootstrap = False
    max_samples = None
    oob_score = False
    n_jobs = None
    warm_start = False

    _parameter_constraints: dict = {
        name: kinds
        for name, kinds in _NonGreedy._parameter_constraints.items()
        if name
        not in {"n_estimators", "bootstrap", "max_samples", "oob_score", "n_jobs", "warm_start"}
    }

    def __init__(
        self,
        *,
        init="co2",
        inference="fast",
        stable=False,
        nu="auto",
        learning_rate=0.3,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        l1=0.0,
        smoothing=0.1,
        row_norm=8.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        refine=None,
        n_sweeps=2,
        max_features=None,
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        weight_dtype="float32",
        importance_type="impurity",
        random_state=None,
        verbose=0,
    ):
        self.init = init
        self.inference = inference
        self.stable = stable
        self.nu = nu
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.l1 = l1
        self.smoothing = smoothing
        self.row_norm = row_norm
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.refine = refine
        self.n_sweeps = n_sweeps
        self.max_features = max_features
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_leaf_nodes = max_leaf_nodes
        self.min_impurity_decrease = min_impurity_decrease
        self.weight_dtype = weight_dtype
        self.importance_type = importance_type
        self.random_state = random_state
        self.verbose = verbose

    def _fit(self, X, y, sample_weight):
        super()._fit(X, y, sample_weight)
        for name in RECORDS:
            if hasattr(self, name):
                setattr(self, name, getattr(self, name)[0])

    def _record_refined(self):
        self.n_active_leaves_ = self.get_n_leaves()
        self.refine_curve_ = self.refine_curve_[0]

    def apply(self, X):
        """Leaf that every row reaches.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        leaves : ndarray of shape (n_samples,), int32
            Node numbers, counted from the root.
        """
        return super().apply(X)[:, 0]

    def decision_path(self, X):
        """Nodes that every row passes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        indicator : csr_matrix of shape (n_samples, n_nodes)
            1 where the row passes the node.
        """
        return super().decision_path(X)[0]

    def get_depth(self):
        """Depth of the tree.

        Returns
        -------
        depth : int
            That of the deepest leaf; the root has 0.
        """
        check_is_fitted(self, "forest_")
        return int(self.forest_.max_depth[0])

    def get_n_leaves(self):
        """Number of leaves of the tree.

        Returns
        -------
        n_leaves : int
        """
        check_is_fitted(self, "forest_")
        return int(self.forest_.n_leaves[0])


class _NonGreedyForest(_NonGreedy):
    """Parameters of a forest."""

    def __init__(
        self,
        n_estimators=100,
        *,
        init="co2",
        inference="fast",
        stable=False,
        nu="auto",
        learning_rate=0.3,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        l1=0.0,
        smoothing=0.1,
        row_norm=8.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        refine=None,
        n_sweeps=2,
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        weight_dtype="float32",
        importance_type="impurity",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        self.n_estimators = n_estimators
        self.init = init
        self.inference = inference
        self.stable = stable
        self.nu = nu
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.l1 = l1
        self.smoothing = smoothing
        self.row_norm = row_norm
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.refine = refine
        self.n_sweeps = n_sweeps
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
        self.weight_dtype = weight_dtype
        self.importance_type = importance_type
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start


class NonGreedyTreeClassifier(ForestClassifierMixin, _NonGreedyTree):
    """Classify with a tree whose splits and leaves are trained together.

    A tree of hyperplanes is grown node by node. Then all of its splits and leaves are trained
    together, by stochastic gradient descent on a convex-concave bound of the log loss of the whole
    tree (equations 9 to 14 of the paper [1]_, algorithm 1). In the end the leaves are counted
    again, and those that no row reaches are dropped.

    Parameters
    ----------
    init : {"co2", "soft", "axis"}, default="co2"
        How the tree is grown that joint training starts from. "co2", "soft": with hyperplanes, as
        `CO2ForestClassifier` with this `objective`. "axis": with single features.
    inference : {"fast", "full"}, default="fast"
        Which leaves compete in loss-augmented inference. "fast": those that a row reaches by going
        against at most one of its turns (equation 13). "full": all (equation 7); slower, and
        seldom better.
    stable : bool, default=False
        Hold the leaf of every row fixed until the bound has settled (equation 14): leaves stay in
        use, and progress is slower.
    nu : "auto" or float, default="auto"
        Bound on the squared norm of the weights and the bias of a split, more than 0; splits start
        on it. Larger ones bring the bound closer to the loss, below 10 trees lose most of their
        leaves. Features count in the units of `row_norm`. "auto": 300 over the square root of the
        number of features, but at least 20 and at most 100.
    learning_rate : float, default=0.3
        Length of the first gradient step, more than 0. It falls linearly to 0 over the epochs.
    momentum : float, default=0.9
        Share of the last step of a split that is added to its next, in [0, 1).
    n_epochs : "auto" or int, default="auto"
        How often all rows are shown. "auto": 1000000 / n times for n rows, but at least 10 and at
        most 30 times.
    batch_size : int, default=100
        Rows of a gradient step, at least 1.
    l1 : float, default=0.0
        Weight of the sum of the absolute weights of all splits in the objective, 0 or more. It
        makes weights 0, and splits with few weights are stored sparsely.
    smoothing : float, default=0.1
        Rows, of mean weight, that are added to each class of a leaf before training. More than 0.
        Stored leaves are not smoothed.
    row_norm : float, default=8.0
        Root mean square norm that rows are scaled to, by one number for all features, after they
        have been centred on their mean. More than 0.
    early_stopping : bool, default=False
        Hold out `validation_fraction` of the rows of a tree, stop when their loss has not
        decreased for `n_iter_no_change` epochs, and keep the splits of the best epoch. The leaves
        are counted over all rows in the end.
    validation_fraction : float, default=0.1
        Share of the distinct rows that is held out, in (0, 1).
    n_iter_no_change : int, default=5
        Epochs without progress that end training, at least 1.
    refine : {"alternating"} or None, default=None
        "alternating": joint training is followed by refinement split by split, as by
        `skforest.refine`.
    n_sweeps : int, default=2
        How often refinement visits every node, at least 1.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default=None
        Features among which the first cut of a node is sought when the tree is grown. An int is a
        count, a float a multiple of the number of features, None all. "auto", "sqrt": the square
        root of the number of features ("auto" rounds up).
    max_depth : int or None, default=None
        Largest depth of a leaf. None: no limit.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are leaves when the tree is grown; a float is a fraction of the rows of
        the tree. Equal rows count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf when the tree is grown; a float is a fraction of the rows
        of the tree. Joint training may leave fewer.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf when the tree is grown, as a fraction of the weight of the rows
        of the tree, 0 to 0.5.
    max_leaf_nodes : int or None, default=None
        Grow at most this many leaves, the node of largest gain first. At least 2. None: no limit.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much: entropy, in bits.
    class_weight : {"balanced", "balanced_subsample"}, dict or None, default=None
        Weights of the classes, which multiply the weights of their rows: a dict from label to
        weight; "balanced": all classes weigh the same over the training set; "balanced_subsample":
        the same for a single tree.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the stored weights of hyperplanes. "float16" halves the size of the model, and what few
        weights make is stored sparse; rows are sent on by the weights as they are stored, leaves
        are counted from the rows that arrive. Predictions take longer.
    importance_type : {"impurity", "count"}, default="impurity"
        Kind of `feature_importances_`: decrease of impurity times the absolute weight of the
        feature and its standard deviation, or how often a feature has a weight in a split.
    random_state : int, RandomState or None, default=None
        Seed of the first cuts, of batches and of the rows held out.
    verbose : int, default=0
        1 or more: say when the tree is trained.

    Attributes
    ----------
    forest_ : Forest
        The tree, as a forest of one.
    nu_ : float
        What `nu` came to.
    loss_curve_ : ndarray of shape (n_epochs,), float64
        Mean bound on the loss over each epoch, as the rows were shown. Empty if the tree was not
        split.
    validation_scores_ : ndarray of shape (n_epochs,), float64
        Minus the loss of the rows held out, after each epoch; empty without `early_stopping`.
    n_active_leaves_ : int
        Leaves that training rows reach in the end; the others are dropped.
    refine_curve_ : ndarray of shape (n_sweeps + 1,), float64
        Loss on the training rows before and after each sweep: share of wrong labels, or mean
        squared error. Only with refine="alternating".
    classes_ : ndarray of shape (n_classes_,)
        Labels, sorted.
    n_classes_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    max_features_ : int
        What `max_features` came to.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1.

    See Also
    --------
    NonGreedyForestClassifier : Many such trees.
    NonGreedyTreeRegressor : The same for real targets.

    Notes
    -----
    Features are scaled to [0, 1] over the training set, in float64; the forest repeats that when
    it predicts.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    References
    ----------
    .. [1] M. Norouzi, M. D. Collins, M. Johnson, D. J. Fleet, P. Kohli, "Efficient Non-greedy
       Optimization of Decision Trees", Advances in Neural Information Processing Systems 28, 2015.

    Examples
    --------
    >>> from skforest import NonGreedyTreeClassifier
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> tree = NonGreedyTreeClassifier(random_state=0).fit(X_train, y_train)
    >>> bool(tree.score(X_test, y_test) > 0.92)
    True
    """

    _parameter_constraints: dict = {
        **_NonGreedyTree._parameter_constraints,
        **ForestClassifierMixin._parameter_constraints,
    }
    _criterion = "entropy"

    def __init__(
        self,
        *,
        init="co2",
        inference="fast",
        stable=False,
        nu="auto",
        learning_rate=0.3,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        l1=0.0,
        smoothing=0.1,
        row_norm=8.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        refine=None,
        n_sweeps=2,
        max_features=None,
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        class_weight=None,
        weight_dtype="float32",
        importance_type="impurity",
        random_state=None,
        verbose=0,
    ):
        super().__init__(
            init=init,
            inference=inference,
            stable=stable,
            nu=nu,
            learning_rate=learning_rate,
            momentum=momentum,
            n_epochs=n_epochs,
            batch_size=batch_size,
            l1=l1,
            smoothing=smoothing,
            row_norm=row_norm,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            refine=refine,
            n_sweeps=n_sweeps,
            max_features=max_features,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
            max_leaf_nodes=max_leaf_nodes,
            min_impurity_decrease=min_impurity_decrease,
            weight_dtype=weight_dtype,
            importance_type=importance_type,
            random_state=random_state,
            verbose=verbose,
        )
        self.class_weight = class_weight


class NonGreedyTreeRegressor(ForestRegressorMixin, _NonGreedyTree):
    """Predict real targets with a tree whose splits and leaves are trained together.

    As `NonGreedyTreeClassifier`, with the squared error (equation 3 of the paper [1]_) in units of
    the variance of the target.

    Parameters
    ----------
    init : {"co2", "soft", "axis"}, default="co2"
        How the tree is grown that joint training starts from. "co2", "soft": with hyperplanes, as
        `CO2ForestRegressor` with this `objective`. "axis": with single features.
    inference : {"fast", "full"}, default="fast"
        Which leaves compete in loss-augmented inference. "fast": those that a row reaches by going
        against at most one of its turns (equation 13). "full": all (equation 7); slower, and
        seldom better.
    stable : bool, default=False
        Hold the leaf of every row fixed until the bound has settled (equation 14): leaves stay in
        use, and progress is slower.
    nu : "auto" or float, default="auto"
        Bound on the squared norm of the weights and the bias of a split, more than 0; splits start
        on it. Larger ones bring the bound closer to the loss, below 10 trees lose most of their
        leaves. Features count in the units of `row_norm`. "auto": 300 over the square root of the
        number of features, but at least 20 and at most 100.
    learning_rate : float, default=0.3
        Length of the first gradient step, more than 0. It falls linearly to 0 over the epochs.
    momentum : float, default=0.9
        Share of the last step of a split that is added to its next, in [0, 1).
    n_epochs : "auto" or int, default="auto"
        How often all rows are shown. "auto": 1000000 / n times for n rows, but at least 10 and at
        most 30 times.
    batch_size : int, default=100
        Rows of a gradient step, at least 1.
    l1 : float, default=0.0
        Weight of the sum of the absolute weights of all splits in the objective, 0 or more. It
        makes weights 0, and splits with few weights are stored sparsely.
    smoothing : float, default=0.1
        For classifiers; without effect here.
    row_norm : float, default=8.0
        Root mean square norm that rows are scaled to, by one number for all features, after they
        have been centred on their mean. More than 0.
    early_stopping : bool, default=False
        Hold out `validation_fraction` of the rows of a tree, stop when their loss has not
        decreased for `n_iter_no_change` epochs, and keep the splits of the best epoch. The leaves
        are counted over all rows in the end.
    validation_fraction : float, default=0.1
        Share of the distinct rows that is held out, in (0, 1).
    n_iter_no_change : int, default=5
        Epochs without progress that end training, at least 1.
    refine : {"alternating"} or None, default=None
        "alternating": joint training is followed by refinement split by split, as by
        `skforest.refine`.
    n_sweeps : int, default=2
        How often refinement visits every node, at least 1.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default=None
        Features among which the first cut of a node is sought when the tree is grown. An int is a
        count, a float a multiple of the number of features, None all. "auto", "sqrt": the square
        root of the number of features ("auto" rounds up).
    max_depth : int or None, default=None
        Largest depth of a leaf. None: no limit.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are leaves when the tree is grown; a float is a fraction of the rows of
        the tree. Equal rows count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf when the tree is grown; a float is a fraction of the rows
        of the tree. Joint training may leave fewer.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf when the tree is grown, as a fraction of the weight of the rows
        of the tree, 0 to 0.5.
    max_leaf_nodes : int or None, default=None
        Grow at most this many leaves, the node of largest gain first. At least 2. None: no limit.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much: variance, a mean over outputs.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the stored weights of hyperplanes. "float16" halves the size of the model, and what few
        weights make is stored sparse; rows are sent on by the weights as they are stored, leaves
        are counted from the rows that arrive. Predictions take longer.
    importance_type : {"impurity", "count"}, default="impurity"
        Kind of `feature_importances_`: decrease of impurity times the absolute weight of the
        feature and its standard deviation, or how often a feature has a weight in a split.
    random_state : int, RandomState or None, default=None
        Seed of the first cuts, of batches and of the rows held out.
    verbose : int, default=0
        1 or more: say when the tree is trained.

    Attributes
    ----------
    forest_ : Forest
        The tree, as a forest of one.
    nu_ : float
        What `nu` came to.
    loss_curve_ : ndarray of shape (n_epochs,), float64
        Mean bound on the loss over each epoch, as the rows were shown. Empty if the tree was not
        split.
    validation_scores_ : ndarray of shape (n_epochs,), float64
        Minus the loss of the rows held out, after each epoch; empty without `early_stopping`.
    n_active_leaves_ : int
        Leaves that training rows reach in the end; the others are dropped.
    refine_curve_ : ndarray of shape (n_sweeps + 1,), float64
        Loss on the training rows before and after each sweep: share of wrong labels, or mean
        squared error. Only with refine="alternating".
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    max_features_ : int
        What `max_features` came to.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1.

    See Also
    --------
    NonGreedyForestRegressor : Many such trees.
    NonGreedyTreeClassifier : The same for labels.

    Notes
    -----
    Features are scaled to [0, 1] over the training set, in float64; the forest repeats that when
    it predicts.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    References
    ----------
    .. [1] M. Norouzi, M. D. Collins, M. Johnson, D. J. Fleet, P. Kohli, "Efficient Non-greedy
       Optimization of Decision Trees", Advances in Neural Information Processing Systems 28, 2015.

    Examples
    --------
    >>> from skforest import NonGreedyTreeRegressor
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(500, 5, noise=1.0, random_state=0)
    >>> tree = NonGreedyTreeRegressor(max_depth=5, random_state=0).fit(X[:400], y[:400])
    >>> bool(tree.score(X[400:], y[400:]) > 0.8)
    True
    """


class NonGreedyForestClassifier(ForestClassifierMixin, _NonGreedyForest):
    """Classify with a forest of trees that are each trained as a whole.

    An average of trees as `NonGreedyTreeClassifier` trains them [1]_: grown with hyperplanes, then
    all splits and leaves of a tree trained together on a convex-concave bound of its log loss.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, at least 1.
    init : {"co2", "soft", "axis"}, default="co2"
        How the tree is grown that joint training starts from. "co2", "soft": with hyperplanes, as
        `CO2ForestClassifier` with this `objective`. "axis": with single features.
    inference : {"fast", "full"}, default="fast"
        Which leaves compete in loss-augmented inference. "fast": those that a row reaches by going
        against at most one of its turns (equation 13). "full": all (equation 7); slower, and
        seldom better.
    stable : bool, default=False
        Hold the leaf of every row fixed until the bound has settled (equation 14): leaves stay in
        use, and progress is slower.
    nu : "auto" or float, default="auto"
        Bound on the squared norm of the weights and the bias of a split, more than 0; splits start
        on it. Larger ones bring the bound closer to the loss, below 10 trees lose most of their
        leaves. Features count in the units of `row_norm`. "auto": 300 over the square root of the
        number of features, but at least 20 and at most 100.
    learning_rate : float, default=0.3
        Length of the first gradient step, more than 0. It falls linearly to 0 over the epochs.
    momentum : float, default=0.9
        Share of the last step of a split that is added to its next, in [0, 1).
    n_epochs : "auto" or int, default="auto"
        How often all rows are shown. "auto": 1000000 / n times for n rows, but at least 10 and at
        most 30 times.
    batch_size : int, default=100
        Rows of a gradient step, at least 1.
    l1 : float, default=0.0
        Weight of the sum of the absolute weights of all splits in the objective, 0 or more. It
        makes weights 0, and splits with few weights are stored sparsely.
    smoothing : float, default=0.1
        Rows, of mean weight, that are added to each class of a leaf before training. More than 0.
        Stored leaves are not smoothed.
    row_norm : float, default=8.0
        Root mean square norm that rows are scaled to, by one number for all features, after they
        have been centred on their mean. More than 0.
    early_stopping : bool, default=False
        Hold out `validation_fraction` of the rows of a tree, stop when their loss has not
        decreased for `n_iter_no_change` epochs, and keep the splits of the best epoch. The leaves
        are counted over all rows in the end.
    validation_fraction : float, default=0.1
        Share of the distinct rows that is held out, in (0, 1).
    n_iter_no_change : int, default=5
        Epochs without progress that end training, at least 1.
    refine : {"alternating"} or None, default=None
        "alternating": joint training is followed by refinement split by split, as by
        `skforest.refine`.
    n_sweeps : int, default=2
        How often refinement visits every node, at least 1.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Features among which the first cut of a node is sought when the tree is grown. An int is a
        count, a float a multiple of the number of features, None all. "auto", "sqrt": the square
        root of the number of features ("auto" rounds up).
    max_depth : int or None, default=None
        Largest depth of a leaf. None: no limit.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are leaves when the tree is grown; a float is a fraction of the rows of
        the tree. Equal rows count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf when the tree is grown; a float is a fraction of the rows
        of the tree. Joint training may leave fewer.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf when the tree is grown, as a fraction of the weight of the rows
        of the tree, 0 to 0.5.
    max_leaf_nodes : int or None, default=None
        Grow at most this many leaves, the node of largest gain first. At least 2. None: no limit.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much: entropy, in bits.
    bootstrap : bool, default=False
        Each tree learns from a bootstrap sample: rows drawn with replacement, with probability
        proportional to their weight. False: every tree sees all rows, and trees differ by the
        features of their first cuts and by the order of batches.
    max_samples : int, float or None, default=None
        Rows to draw for each tree: a count, or a fraction of the distinct rows. None: as many as
        there are distinct rows. Needs `bootstrap`.
    oob_score : bool, default=False
        Score the forest on the rows that each tree did not draw. Needs `bootstrap`.
    class_weight : {"balanced", "balanced_subsample"}, dict or None, default=None
        Weights of the classes, which multiply the weights of their rows: a dict from label to
        weight; "balanced": all classes weigh the same over the training set; "balanced_subsample":
        in every tree's bootstrap.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the stored weights of hyperplanes. "float16" halves the size of the model, and what few
        weights make is stored sparse; rows are sent on by the weights as they are stored, leaves
        are counted from the rows that arrive. Predictions take longer.
    importance_type : {"impurity", "count"}, default="impurity"
        Kind of `feature_importances_`: decrease of impurity times the absolute weight of the
        feature and its standard deviation, or how often a feature has a weight in a split.
    n_jobs : int or None, default=None
        Threads that train trees, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the first cuts, of batches, of bootstraps and of the rows held out.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a tree.
    warm_start : bool, default=False
        Keep the trees of the last fit and add those missing to `n_estimators`.

    Attributes
    ----------
    forest_ : Forest
        The trees.
    nu_ : float
        What `nu` came to.
    loss_curve_ : list of ndarray of shape (n_epochs,), float64
        One entry a tree. Mean bound on the loss over each epoch, as the rows were shown. Empty if
        the tree was not split.
    validation_scores_ : list of ndarray of shape (n_epochs,), float64
        One entry a tree. Minus the loss of the rows held out, after each epoch; empty without
        `early_stopping`.
    n_active_leaves_ : list of int
        Leaves that training rows reach in the end; the others are dropped.
    refine_curve_ : list of ndarray of shape (n_sweeps + 1,), float64
        One entry a tree. Loss on the training rows before and after each sweep: share of wrong
        labels, or mean squared error. Only with refine="alternating".
    classes_ : ndarray of shape (n_classes_,)
        Labels, sorted.
    n_classes_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    max_features_ : int
        What `max_features` came to.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1.
    oob_score_ : float
        Accuracy on the rows left out; only with `oob_score`.
    oob_decision_function_ : ndarray of shape (n_samples, n_classes_), float64
        Probabilities by the trees that did not draw the row; NaN where every tree drew it, or its
        weight is 0. Only with `oob_score`.

    See Also
    --------
    NonGreedyTreeClassifier : One such tree.
    CO2ForestClassifier : Trees grown node by node only.

    Notes
    -----
    Features are scaled to [0, 1] over the training set, in float64; the forest repeats that when
    it predicts.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    References
    ----------
    .. [1] M. Norouzi, M. D. Collins, M. Johnson, D. J. Fleet, P. Kohli, "Efficient Non-greedy
       Optimization of Decision Trees", Advances in Neural Information Processing Systems 28, 2015.

    Examples
    --------
    >>> from skforest import NonGreedyForestClassifier
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> forest = NonGreedyForestClassifier(10, random_state=0).fit(X_train, y_train)
    >>> bool(forest.score(X_test, y_test) > 0.96)
    True
    """

    _parameter_constraints: dict = {
        **_NonGreedyForest._parameter_constraints,
        **ForestClassifierMixin._parameter_constraints,
    }
    _criterion = "entropy"

    def __init__(
        self,
        n_estimators=100,
        *,
        init="co2",
        inference="fast",
        stable=False,
        nu="auto",
        learning_rate=0.3,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        l1=0.0,
        smoothing=0.1,
        row_norm=8.0,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        refine=None,
        n_sweeps=2,
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        class_weight=None,
        weight_dtype="float32",
        importance_type="impurity",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        super().__init__(
            n_estimators,
            init=init,
            inference=inference,
            stable=stable,
            nu=nu,
            learning_rate=learning_rate,
            momentum=momentum,
            n_epochs=n_epochs,
            batch_size=batch_size,
            l1=l1,
            smoothing=smoothing,
            row_norm=row_norm,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            refine=refine,
            n_sweeps=n_sweeps,
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
            weight_dtype=weight_dtype,
            importance_type=importance_type,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.class_weight = class_weight


class NonGreedyForestRegressor(ForestRegressorMixin, _NonGreedyForest):
    """Predict real targets with a forest of trees that are each trained as a whole.

    An average of trees as `NonGreedyTreeRegressor` trains them [1]_: grown with hyperplanes, then
    all splits and leaves of a tree trained together on a bound of the squared error.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, at least 1.
    init : {"co2", "soft", "axis"}, default="co2"
        How the tree is grown that joint training starts from. "co2", "soft": with hyperplanes, as
        `CO2ForestRegressor` with this `objective`. "axis": with single features.
    inference : {"fast", "full"}, default="fast"
        Which leaves compete in loss-augmented inference. "fast": those that a row reaches by going
        against at most one of its turns (equation 13). "full": all (equation 7); slower, and
        seldom better.
    stable : bool, default=False
        Hold the leaf of every row fixed until the bound has settled (equation 14): leaves stay in
        use, and progress is slower.
    nu : "auto" or float, default="auto"
        Bound on the squared norm of the weights and the bias of a split, more than 0; splits start
        on it. Larger ones bring the bound closer to the loss, below 10 trees lose most of their
        leaves. Features count in the units of `row_norm`. "auto": 300 over the square root of the
        number of features, but at least 20 and at most 100.
    learning_rate : float, default=0.3
        Length of the first gradient step, more than 0. It falls linearly to 0 over the epochs.
    momentum : float, default=0.9
        Share of the last step of a split that is added to its next, in [0, 1).
    n_epochs : "auto" or int, default="auto"
        How often all rows are shown. "auto": 1000000 / n times for n rows, but at least 10 and at
        most 30 times.
    batch_size : int, default=100
        Rows of a gradient step, at least 1.
    l1 : float, default=0.0
        Weight of the sum of the absolute weights of all splits in the objective, 0 or more. It
        makes weights 0, and splits with few weights are stored sparsely.
    smoothing : float, default=0.1
        For classifiers; without effect here.
    row_norm : float, default=8.0
        Root mean square norm that rows are scaled to, by one number for all features, after they
        have been centred on their mean. More than 0.
    early_stopping : bool, default=False
        Hold out `validation_fraction` of the rows of a tree, stop when their loss has not
        decreased for `n_iter_no_change` epochs, and keep the splits of the best epoch. The leaves
        are counted over all rows in the end.
    validation_fraction : float, default=0.1
        Share of the distinct rows that is held out, in (0, 1).
    n_iter_no_change : int, default=5
        Epochs without progress that end training, at least 1.
    refine : {"alternating"} or None, default=None
        "alternating": joint training is followed by refinement split by split, as by
        `skforest.refine`.
    n_sweeps : int, default=2
        How often refinement visits every node, at least 1.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Features among which the first cut of a node is sought when the tree is grown. An int is a
        count, a float a multiple of the number of features, None all. "auto", "sqrt": the square
        root of the number of features ("auto" rounds up).
    max_depth : int or None, default=None
        Largest depth of a leaf. None: no limit.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are leaves when the tree is grown; a float is a fraction of the rows of
        the tree. Equal rows count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf when the tree is grown; a float is a fraction of the rows
        of the tree. Joint training may leave fewer.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf when the tree is grown, as a fraction of the weight of the rows
        of the tree, 0 to 0.5.
    max_leaf_nodes : int or None, default=None
        Grow at most this many leaves, the node of largest gain first. At least 2. None: no limit.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much: variance, a mean over outputs.
    bootstrap : bool, default=False
        Each tree learns from a bootstrap sample: rows drawn with replacement, with probability
        proportional to their weight. False: every tree sees all rows, and trees differ by the
        features of their first cuts and by the order of batches.
    max_samples : int, float or None, default=None
        Rows to draw for each tree: a count, or a fraction of the distinct rows. None: as many as
        there are distinct rows. Needs `bootstrap`.
    oob_score : bool, default=False
        Score the forest on the rows that each tree did not draw. Needs `bootstrap`.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the stored weights of hyperplanes. "float16" halves the size of the model, and what few
        weights make is stored sparse; rows are sent on by the weights as they are stored, leaves
        are counted from the rows that arrive. Predictions take longer.
    importance_type : {"impurity", "count"}, default="impurity"
        Kind of `feature_importances_`: decrease of impurity times the absolute weight of the
        feature and its standard deviation, or how often a feature has a weight in a split.
    n_jobs : int or None, default=None
        Threads that train trees, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the first cuts, of batches, of bootstraps and of the rows held out.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a tree.
    warm_start : bool, default=False
        Keep the trees of the last fit and add those missing to `n_estimators`.

    Attributes
    ----------
    forest_ : Forest
        The trees.
    nu_ : float
        What `nu` came to.
    loss_curve_ : list of ndarray of shape (n_epochs,), float64
        One entry a tree. Mean bound on the loss over each epoch, as the rows were shown. Empty if
        the tree was not split.
    validation_scores_ : list of ndarray of shape (n_epochs,), float64
        One entry a tree. Minus the loss of the rows held out, after each epoch; empty without
        `early_stopping`.
    n_active_leaves_ : list of int
        Leaves that training rows reach in the end; the others are dropped.
    refine_curve_ : list of ndarray of shape (n_sweeps + 1,), float64
        One entry a tree. Loss on the training rows before and after each sweep: share of wrong
        labels, or mean squared error. Only with refine="alternating".
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    max_features_ : int
        What `max_features` came to.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1.
    oob_score_ : float
        R2 on the rows left out, averaged over outputs; only with `oob_score`.
    oob_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs_), float64
        Predictions by the trees that did not draw the row; NaN where every tree drew it, or its
        weight is 0. Only with `oob_score`.

    See Also
    --------
    NonGreedyTreeRegressor : One such tree.
    CO2ForestRegressor : Trees grown node by node only.

    Notes
    -----
    Features are scaled to [0, 1] over the training set, in float64; the forest repeats that when
    it predicts.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    References
    ----------
    .. [1] M. Norouzi, M. D. Collins, M. Johnson, D. J. Fleet, P. Kohli, "Efficient Non-greedy
       Optimization of Decision Trees", Advances in Neural Information Processing Systems 28, 2015.

    Examples
    --------
    >>> from skforest import NonGreedyForestRegressor
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(500, 5, noise=1.0, random_state=0)
    >>> forest = NonGreedyForestRegressor(10, random_state=0).fit(X[:400], y[:400])
    >>> bool(forest.score(X[400:], y[400:]) > 0.9)
    True
    """
