"""End-to-end decision trees and forests.

Hehn, Kooij, Hamprecht, "End-to-End Learning of Decision Trees and Forests", 2020. Splits are soft
while they learn, by expectation maximisation and gradient descent, and become steeper with every
epoch; the fitted tree is hard.
"""

import math

import numpy as np

from ._base import Integral, Interval, Real, StrOptions
from ._greedy import ObliqueForest
from ._kernels.soft_stump import SoftSplitter
from ._selection import choose
from ._targets import GATES, ForestClassifierMixin, ForestRegressorMixin, RoutingMixin
from .training.endtoend import Annealing, Units, grid_edges, patch_places, train_together

LEAST_BATCHES = 10  # steps of an epoch of a stump, where there are 16 rows for each
LEAST_SPREAD = 0.3  # of the largest deviation: no feature counts as if it varied less
LEAST_UNIT = 1e-6  # features that are less beside others of the same unit are left out
VISITS = 80_000  # rows that "auto" epochs show
TREE_ROWS = 50_000  # rows times "auto" trees
# What an "auto" once came to, where trees are added.
KEPT = "max_depth greedy_epochs finetune_epochs learning_rate batch_size steepness_step".split()
KEPT += ["max_features"]
POWERS = (0.5, 0.8)  # of the number of features, from which "auto" chooses
TRIED_ROWS = 1000  # from which on it does; fewer tell too little
# Of the forests that it tries; hard, so that `routing` has no part in training.
PILOT = {"n_trees": 6, "batch_size_": 100, "routing": "hard"}
CACHED = 2**18  # numbers of a batch, which it reads twice


class _E2EForest(RoutingMixin, ObliqueForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        **ObliqueForest._parameter_constraints,
        "n_estimators": [
            StrOptions({"auto"}),
            *ObliqueForest._parameter_constraints["n_estimators"],
        ],
        "max_depth": [StrOptions({"auto"}), *ObliqueForest._parameter_constraints["max_depth"]],
        "growth": [StrOptions({"level", "best"})],
        "greedy_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "finetune_epochs": [StrOptions({"auto"}), Interval(Integral, 0, 2**31 - 1, closed="left")],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, 1e6, closed="right")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, 2**20, closed="both")],
        "steepness": [Interval(Real, 0.0, 1e6, closed="right")],
        "steepness_step": [StrOptions({"auto"}), Interval(Real, 0.0, 1e6, closed="both")],
        "smoothness": [Interval(Real, 0.0, 1e6, closed="both")],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "patch_size": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "routing": [StrOptions(set(GATES))],
    }

    def __init__(
        self,
        n_estimators="auto",
        *,
        max_depth="auto",
        growth="level",
        max_leaf_nodes=None,
        greedy_epochs="auto",
        finetune_epochs="auto",
        learning_rate="auto",
        batch_size="auto",
        steepness=1.0,
        steepness_step="auto",
        max_features="auto",
        feature_shape=None,
        patch_size=None,
        smoothness=0.0,
        routing="hard",
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
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
        self.max_depth = max_depth
        self.growth = growth
        self.max_leaf_nodes = max_leaf_nodes
        self.greedy_epochs = greedy_epochs
        self.finetune_epochs = finetune_epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.steepness = steepness
        self.steepness_step = steepness_step
        self.max_features = max_features
        self.feature_shape = feature_shape
        self.patch_size = patch_size
        self.smoothness = smoothness
        self.routing = routing
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
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

    # ----------------------------------------------------------------------------------- settings

    def _resolve(self, rows, target, goes_on):
        before = {f"{name}_": getattr(self, f"{name}_") for name in KEPT} if goes_on else {}
        super()._resolve(rows, target, goes_on)
        n, p = rows.X.shape
        if self.growth == "level" and self.max_leaf_nodes is not None:
            raise ValueError(
                f'max_leaf_nodes={self.max_leaf_nodes} needs growth="best"; growth="level" grows '
                "to max_depth"
            )

        def settle(name, auto):
            given = getattr(self, name)
            auto = before.get(f"{name}_", auto)
            setattr(self, f"{name}_", auto if isinstance(given, str) else given)

        settle("n_estimators", min(max(TREE_ROWS // n, 16), 50))
        # Real targets ask more of a tree than classes, and more of each split.
        shallow, most = (8, 15) if target.ndim == 1 else (10, 30)
        deepest = shallow if n <= 10_000 else 10
        settle("max_depth", deepest if self.max_leaf_nodes is None else None)
        settle("greedy_epochs", min(max(VISITS // n, 4), most))
        settle("finetune_epochs", min(max(VISITS // n, 8), 30))
        settle("batch_size", min(1000, max(32, min(n // 10, CACHED // p))))
        settle("steepness_step", 0.2 if self._is_table() else 0.1)

        choices = [self.max_features_]
        if self.max_features == "auto" and goes_on:
            choices = [before["max_features_"]]
        elif self.max_features == "auto" and self._is_table():
            powers = POWERS if n >= TRIED_ROWS else POWERS[:1]
            choices = sorted({math.ceil(p**power) for power in powers})
        settings = []
        for self.max_features_ in choices:
            self.max_features_ = self._places(p)[1]
            # A step moves a margin by about as much as the features are many.
            settle("learning_rate", min(0.05, 0.13 * self.max_features_**-0.7))
            chosen = "max_features_", "learning_rate_"
            settings.append({name: getattr(self, name) for name in chosen})
        self.__dict__.update(settings[0])
        self.steepness_ = self._annealing.final
        if goes_on:
            self._check_kept()
        self.__dict__.update(choose(self, rows, target, settings, **PILOT))

    def _check_kept(self):
        """Raise where trees to be added would not fit those that are there."""
        before = self.forest_
        if before.steepness != self.steepness_:
            raise ValueError(
                f"warm_start=True adds to trees of a last steepness of {before.steepness:g}; "
                "steepness, steepness_step, greedy_epochs and finetune_epochs now make it "
                f"{self.steepness_:g}"
            )
        if before.weight_dtype != self.weight_dtype:
            raise ValueError(
                f"warm_start=True adds to weights in {before.weight_dtype}, now weight_dtype="
                f"{self.weight_dtype!r}"
            )

    def _joined(self, forests, consume=False):
        return super()._joined([self._gated(forest) for forest in forests], consume)

    @property
    def _annealing(self):
        return Annealing(
            greedy_epochs=int(self.greedy_epochs_),
            finetune_epochs=int(self.finetune_epochs_),
            learning_rate=float(self.learning_rate_),
            batch_size=int(self.batch_size_),
            steepness=float(self.steepness),
            steepness_step=float(self.steepness_step_),
        )

    def _is_table(self):
        """A forest of features in no order, whose number for a split is tried out."""
        return self.feature_shape is None and not self._sees_all()

    def _sees_all(self):
        """A single tree, or splits that have their features by their places."""
        return self.n_estimators == 1 or self.patch_size is not None or self.smoothness > 0

    def _auto_max_features(self, n_features):
        return n_features if self._sees_all() else math.ceil(n_features / 2)

    def _members(self, goes_on):
        return "n_estimators", self.n_estimators_, len(self.forest_) if goes_on else 0

    def _depth_limit(self):
        return 2**31 - 1 if self.max_depth_ is None else min(self.max_depth_, 2**31 - 1)

    def _grid(self, n_features):
        """Shape of the grid that the features fill: one axis without `feature_shape`."""
        shape = np.atleast_1d(n_features if self.feature_shape is None else self.feature_shape)
        whole = shape.ndim == 1 and shape.dtype.kind in "iu" and (shape > 0).all()
        if not whole or math.prod(shape.tolist()) != n_features:
            raise ValueError(
                f"feature_shape={self.feature_shape!r} must be whole numbers from 1, with the "
                f"product {n_features}, the number of features of X"
            )
        return tuple(shape.tolist())

    def _places(self, n_features):
        """Features of a split: every row is a choice; or one row that is chosen from."""
        shape = self._grid(n_features)
        if self.patch_size is None:
            n_used = min(self.max_features_, n_features)
            return np.arange(n_features, dtype=np.int32)[None], n_used
        size = np.atleast_1d(self.patch_size)
        if size.shape == (1,):
            size = np.repeat(size, len(shape))
        fits = size.ndim == 1 and size.dtype.kind in "iu" and len(size) == len(shape)
        if not fits or (size < 1).any() or (size > shape).any():
            raise ValueError(
                f"patch_size={self.patch_size!r} must be a whole number, or one for each axis of "
                f"feature_shape={shape}, from 1 to the length of the axis"
            )
        if self.max_features not in ("auto", None):
            raise ValueError(
                f"max_features={self.max_features!r} has no meaning beside "
                f'patch_size={self.patch_size!r}: leave it at "auto"'
            )
        places = patch_places(shape, tuple(size.tolist()))
        return places, places.shape[1]

    # ----------------------------------------------------------------------------------- training

    def _fit_forest(self, rows, target, trees):
        # No BLAS, whose last bits depend on its threads.
        mean = np.einsum("i,ij->j", rows.weight, rows.X, dtype=np.float64) / rows.weight.sum()
        unit = self._feature_units(rows)
        p = rows.X.shape[1]
        edges = grid_edges(self._grid(p)) if self.smoothness else np.zeros((0, 2), dtype=np.int32)
        places, self._n_used = self._places(p)
        # What does not vary is no choice.
        if len(places) > 1:
            places = places[(unit[places] > 0).any(axis=1)] if unit.any() else places
        elif self._n_used < p and unit.any():
            places = np.flatnonzero(unit > 0).astype(np.int32)[None]
            self._n_used = min(self._n_used, places.shape[1])
        self._units = Units(mean.astype(np.float32), unit.astype(np.float32), places, edges)
        try:
            return super()._fit_forest(rows, target, trees)
        finally:
            del self._units, self._n_used

    def _feature_units(self, rows):
        """Reciprocals of what counts as the deviation of each feature, 0 where it does not vary.

        Where the features fill a grid they have one unit, as they came; else each has its own,
        but for those that hardly vary.
        """
        varies = rows.X.max(axis=0) > rows.X.min(axis=0)
        spread = np.where(varies, self._spread(rows).astype(np.float64), 0.0)
        if self.feature_shape is not None:
            scale = self._scale
            unit = np.where(varies, 1 / (scale * ((spread / scale).max() or 1.0)), 0.0)
            return np.where(unit > LEAST_UNIT, unit, 0.0)
        spread = np.maximum(spread, LEAST_SPREAD * spread.max())
        return np.where(varies, 1 / np.where(varies, spread, 1.0), 0.0)

    def _splitter(self, rows, target, weight, chosen, min_leaf, seed, stop):
        annealing, units = self._annealing, self._units
        arguments = self._search_arguments(rows, target, weight, chosen, min_leaf, seed, stop)
        arguments[1].__dict__.update(
            mean=units.mean,
            unit=units.unit,
            receptive_fields=units.places,
            n_used=self._n_used,
            n_epochs=annealing.greedy_epochs,
            learning_rate=annealing.learning_rate,
            steepness=annealing.steepness,
            steepness_step=annealing.steepness_step,
            batch_size=annealing.batch_size,
            min_batches=LEAST_BATCHES,
            smoothness=self.smoothness,
            edges=units.edges,
        )
        return SoftSplitter(*arguments)

    def _directions_meta(self, rows, arrays):
        super()._directions_meta(rows, arrays)
        return {"gate": "sigmoid", "steepness": self.steepness_}

    def _fit_tree(self, rows, target, weight, seed, stop):
        forest = super()._fit_tree(rows, target, weight, seed, stop)
        _, min_leaf = self._min_samples(np.count_nonzero(weight))
        forest, record = train_together(
            forest,
            rows.X,
            target,
            weight,
            seed,
            stop,
            self._annealing,
            self._units,
            float(self.smoothness),
            (min_leaf, self.min_weight_fraction_leaf * weight.sum()),
            self._criterion,
            self._target_scale if target.ndim == 2 else 1.0,
        )
        return self._gated(forest), record

    # ----------------------------------------------------------------------------------- routing

    def _response(self, X):
        X = self._validate_predict(X)
        return self._in_blocks(X, self._gated(self.forest_).response)


class E2EDecisionForest(ForestClassifierMixin, _E2EForest):
    """Classify with trees of hyperplanes, trained together: soft first, hard in the end.

    A row goes right at a split with a probability, the sigmoid of its margin times a steepness, so
    that the likelihood of the labels can be differentiated (equations 1 to 5 of the paper [1]_).
    Trees are grown by training one such split at a time, then trained as a whole by expectation
    maximisation, while the steepness grows; predictions send every row one way at every split.

    Parameters
    ----------
    n_estimators : "auto" or int, default="auto"
        Number of trees, at least 1. Their predictions are averaged; trees differ by the directions
        that training begins with, and by the features that each split may use. "auto": 50000 / n
        for n rows of the training set, but 16 to 50.
    max_depth : "auto", int or None, default="auto"
        Largest depth of a leaf, at least 1. "auto": 8, or 10 with more than 10000 rows; no limit
        with `max_leaf_nodes`. None: no limit.
    growth : {"level", "best"}, default="level"
        "level": every node is split until it is pure, or `max_depth` deep. "best": the node whose
        split gains most is next, until there are `max_leaf_nodes`.
    max_leaf_nodes : int or None, default=None
        Leaves of a tree, at least 2, with growth="best" only. None: no limit.
    greedy_epochs : "auto" or int, default="auto"
        How often the rows of a node are shown to its split when the tree is grown, at least 1.
        "auto": 80000 / n times for n rows of the training set, but 4 to 15 times.
    finetune_epochs : "auto" or int, default="auto"
        How often all rows are shown to the whole tree when it has been grown. 0: the tree stays
        as it was grown. "auto": 80000 / n times for n rows, but 8 to 30 times.
    learning_rate : "auto" or float, default="auto"
        Of Adam, more than 0, at most 1e6: about what a weight changes in a step, in units of the
        reciprocal of the deviation of its feature. Constant while trees grow, then falling to 0
        along a cosine. "auto": 0.13 / q^0.7 for q features of a split, but at most 0.05.
    batch_size : "auto" or int, default="auto"
        Rows of a step, 1 to 2^20. A node takes at least 10 steps an epoch, or fewer where its
        batches would have less than 16 rows. "auto": a tenth of the rows, or 2^18 over the number
        of features, if that is less; 32 to 1000.
    steepness : float, default=1.0
        Gamma of equation 5 in the first epoch, more than 0, at most 1e6.
    steepness_step : "auto" or float, default="auto"
        What each epoch adds to the steepness, 0 to 1e6. Training of the whole tree goes on from
        where that of its splits ended. "auto": 0.1, as in the paper, or 0.2 in forests without
        `feature_shape`, `patch_size` and `smoothness`.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Features of a split, drawn for each anew. An int is a count, a float a multiple of the
        number of features, None all, "sqrt" the square root of the number of features. "auto": all
        for a single tree, and with `smoothness`; half of them with `feature_shape`; else their
        square root, rounded up, or, from 1000 rows on, their power of 0.8, if small forests on a
        part of the rows find that better on others. Features that do not vary are left out.
    feature_shape : int, tuple of int or None, default=None
        Shape of the grid that the features fill, such as (28, 28); for `patch_size` and
        `smoothness`. X may then come with such arrays as its rows. The features of a grid have one
        unit, so that those that hardly vary beside others hardly count. None: one axis, and each
        feature in a unit of its own.
    patch_size : int, tuple of int or None, default=None
        Every split sees the features of one patch of this size, somewhere in the grid; an int
        stands for all axes. None: features as `max_features` says.
    smoothness : float, default=0.0
        Lambda of equation 15, 0 to 1e6: weight of the squared differences between the weights of
        neighbours in the grid, along all of its axes. Makes splits pictures that can be read;
        0.0001 to 0.1 are usual, more costs accuracy.
    routing : {"hard", "soft"}, default="hard"
        How predictions go. "hard": one way at every split. "soft": all ways, by the probabilities
        of the last steepness (a shallow neural decision forest). Can be changed after `fit`.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are not split when trees grow; a float is a fraction of the rows of
        the tree. Equal rows count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf; a float is a fraction of the rows of the tree. Equal
        rows count as one.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf, as a fraction of the weight of the rows of the tree, 0 to 0.5.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much: entropy, in bits.
    bootstrap : bool, default=False
        True: each tree learns from a bootstrap sample, rows drawn with replacement, with
        probability proportional to their weight. False: every tree sees all rows.
    max_samples : int, float or None, default=None
        Rows to draw for each tree: a count, or a fraction of the distinct rows. None: as many as
        there are distinct rows. Not with bootstrap=False.
    oob_score : bool, default=False
        Score the forest on the rows that each tree did not draw. Not with bootstrap=False.
    class_weight : {"balanced", "balanced_subsample"}, dict or None, default=None
        Weights of the classes, which multiply the weights of their rows: a dict from label to
        weight; "balanced": all classes weigh the same over the training set; "balanced_subsample":
        in every tree's bootstrap.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the stored weights of hyperplanes. "float16" halves the size of the model.
    importance_type : {"impurity", "count"}, default="impurity"
        Of `feature_importances_`: decrease of impurity, shared among the features of a split by
        the sizes of their weights; or number of splits with a weight for the feature.
    n_jobs : int or None, default=None
        Threads that train trees, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the first directions, of their features, of batches and bootstraps.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a tree.
    warm_start : bool, default=False
        Keep the trees of the last fit and add those missing to `n_estimators`. What "auto" came
        to then stays, but for `n_estimators` itself; the last steepness must be the same.

    Attributes
    ----------
    forest_ : Forest
        The trees, with the gate "hard" or "sigmoid", as `routing` was when they were fitted.
    classes_ : ndarray of shape (n_classes_,)
    n_classes_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
        1.
    n_estimators_, max_depth_, max_features_, greedy_epochs_, finetune_epochs_, batch_size_ : int
        What "auto" came to; `max_features_` with `patch_size`: features of a patch.
    learning_rate_, steepness_step_ : float
    steepness_ : float
        After the last epoch; that of soft routing.
    loss_curve_ : list of ndarray
        One entry a tree: mean negative log-likelihood of the rows in every epoch of joint
        training, each batch before its step.
    n_iter_ : list of int
        Epochs of joint training, one entry a tree.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1; all 0 where no tree has a split.
    oob_score_ : float
        Accuracy on the rows out of bag. Only with oob_score=True.
    oob_decision_function_ : ndarray of shape (n_samples, n_classes_), float64
        Probabilities from the trees that did not draw the row. Only with oob_score=True.

    See Also
    --------
    E2EDecisionForestRegressor : The same for real targets.
    NonGreedyForestClassifier : Hard trees that are trained together, by a bound of their loss.
    CO2ForestClassifier : Hyperplanes that are found node by node.

    Notes
    -----
    Splits step by Adam, leaves are set from their responsibilities after every epoch (equation
    13), those of the last epoch's batches. Where all rows of a node end on one side of its split,
    another one is tried, up to 5 times. After training, the leaves are counted from the rows that
    hard routing sends there, and what no row reaches is gone.

    Features are scaled to [0, 1] over the training set, in float64; the forest repeats that when
    it predicts. Training sees them less their mean, and over their standard deviation, or over 0.3
    of the largest deviation of a feature where that is more; with `feature_shape`, all of them as
    they came, over the largest deviation.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    References
    ----------
    .. [1] T. M. Hehn, J. F. P. Kooij, F. A. Hamprecht, "End-to-End Learning of Decision Trees and
       Forests", International Journal of Computer Vision 128, 2020.

    Examples
    --------
    >>> from skforest import E2EDecisionForest
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> tree = E2EDecisionForest(1, random_state=0).fit(X_train, y_train)
    >>> bool(tree.score(X_test, y_test) > 0.9)
    True
    >>> tree.routing_scores(X_test, y_test)["gap"] < 0.05
    True
    """

    _parameter_constraints: dict = {
        **_E2EForest._parameter_constraints,
        **ForestClassifierMixin._parameter_constraints,
    }
    _criterion = "entropy"

    def __init__(
        self,
        n_estimators="auto",
        *,
        max_depth="auto",
        growth="level",
        max_leaf_nodes=None,
        greedy_epochs="auto",
        finetune_epochs="auto",
        learning_rate="auto",
        batch_size="auto",
        steepness=1.0,
        steepness_step="auto",
        max_features="auto",
        feature_shape=None,
        patch_size=None,
        smoothness=0.0,
        routing="hard",
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
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
            max_depth=max_depth,
            growth=growth,
            max_leaf_nodes=max_leaf_nodes,
            greedy_epochs=greedy_epochs,
            finetune_epochs=finetune_epochs,
            learning_rate=learning_rate,
            batch_size=batch_size,
            steepness=steepness,
            steepness_step=steepness_step,
            max_features=max_features,
            feature_shape=feature_shape,
            patch_size=patch_size,
            smoothness=smoothness,
            routing=routing,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
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


class E2EDecisionForestRegressor(ForestRegressorMixin, _E2EForest):
    """Predict real targets with trees of hyperplanes that are trained together, by likelihood.

    As `E2EDecisionForest`, with leaves that answer with a normal density, of a mean and a variance
    for each output, instead of shares of classes.

    Parameters
    ----------
    n_estimators : "auto" or int, default="auto"
        Number of trees, at least 1. Their predictions are averaged; trees differ by the directions
        that training begins with, and by the features that each split may use. "auto": 50000 / n
        for n rows of the training set, but 16 to 50.
    max_depth : "auto", int or None, default="auto"
        Largest depth of a leaf, at least 1. "auto": 10; no limit with `max_leaf_nodes`. None: no
        limit.
    growth : {"level", "best"}, default="level"
        "level": every node is split until it is pure, or `max_depth` deep. "best": the node whose
        split gains most is next, until there are `max_leaf_nodes`.
    max_leaf_nodes : int or None, default=None
        Leaves of a tree, at least 2, with growth="best" only. None: no limit.
    greedy_epochs : "auto" or int, default="auto"
        How often the rows of a node are shown to its split when the tree is grown, at least 1.
        "auto": 80000 / n times for n rows of the training set, but 4 to 30 times.
    finetune_epochs : "auto" or int, default="auto"
        How often all rows are shown to the whole tree when it has been grown. 0: the tree stays
        as it was grown. "auto": 80000 / n times for n rows, but 8 to 30 times.
    learning_rate : "auto" or float, default="auto"
        Of Adam, more than 0, at most 1e6: about what a weight changes in a step, in units of the
        reciprocal of the deviation of its feature. Constant while trees grow, then falling to 0
        along a cosine. "auto": 0.13 / q^0.7 for q features of a split, but at most 0.05.
    batch_size : "auto" or int, default="auto"
        Rows of a step, 1 to 2^20. A node takes at least 10 steps an epoch, or fewer where its
        batches would have less than 16 rows. "auto": a tenth of the rows, or 2^18 over the number
        of features, if that is less; 32 to 1000.
    steepness : float, default=1.0
        Gamma of equation 5 in the first epoch, more than 0, at most 1e6.
    steepness_step : "auto" or float, default="auto"
        What each epoch adds to the steepness, 0 to 1e6. Training of the whole tree goes on from
        where that of its splits ended. "auto": 0.1, as in the paper, or 0.2 in forests without
        `feature_shape`, `patch_size` and `smoothness`.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Features of a split, drawn for each anew. An int is a count, a float a multiple of the
        number of features, None all, "sqrt" the square root of the number of features. "auto": all
        for a single tree, and with `smoothness`; half of them with `feature_shape`; else their
        square root, rounded up, or, from 1000 rows on, their power of 0.8, if small forests on a
        part of the rows find that better on others. Features that do not vary are left out.
    feature_shape : int, tuple of int or None, default=None
        Shape of the grid that the features fill, such as (28, 28); for `patch_size` and
        `smoothness`. X may then come with such arrays as its rows. The features of a grid have one
        unit, so that those that hardly vary beside others hardly count. None: one axis, and each
        feature in a unit of its own.
    patch_size : int, tuple of int or None, default=None
        Every split sees the features of one patch of this size, somewhere in the grid; an int
        stands for all axes. None: features as `max_features` says.
    smoothness : float, default=0.0
        Lambda of equation 15, 0 to 1e6: weight of the squared differences between the weights of
        neighbours in the grid, along all of its axes. Makes splits pictures that can be read;
        0.0001 to 0.1 are usual, more costs accuracy.
    routing : {"hard", "soft"}, default="hard"
        How predictions go. "hard": one way at every split. "soft": all ways, by the probabilities
        of the last steepness (a shallow neural decision forest). Can be changed after `fit`.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are not split when trees grow; a float is a fraction of the rows of
        the tree. Equal rows count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf; a float is a fraction of the rows of the tree. Equal
        rows count as one.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf, as a fraction of the weight of the rows of the tree, 0 to 0.5.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much: mean squared error, averaged over outputs.
    bootstrap : bool, default=False
        True: each tree learns from a bootstrap sample, rows drawn with replacement, with
        probability proportional to their weight. False: every tree sees all rows.
    max_samples : int, float or None, default=None
        Rows to draw for each tree: a count, or a fraction of the distinct rows. None: as many as
        there are distinct rows. Not with bootstrap=False.
    oob_score : bool, default=False
        Score the forest on the rows that each tree did not draw. Not with bootstrap=False.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the stored weights of hyperplanes. "float16" halves the size of the model.
    importance_type : {"impurity", "count"}, default="impurity"
        Of `feature_importances_`: decrease of impurity, shared among the features of a split by
        the sizes of their weights; or number of splits with a weight for the feature.
    n_jobs : int or None, default=None
        Threads that train trees, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the first directions, of their features, of batches and bootstraps.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a tree.
    warm_start : bool, default=False
        Keep the trees of the last fit and add those missing to `n_estimators`. What "auto" came
        to then stays, but for `n_estimators` itself; the last steepness must be the same.

    Attributes
    ----------
    forest_ : Forest
        The trees, with the gate "hard" or "sigmoid", as `routing` was when they were fitted.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    n_estimators_, max_depth_, max_features_, greedy_epochs_, finetune_epochs_, batch_size_ : int
        What "auto" came to; `max_features_` with `patch_size`: features of a patch.
    learning_rate_, steepness_step_ : float
    steepness_ : float
        After the last epoch; that of soft routing.
    loss_curve_ : list of ndarray
        One entry a tree: mean negative log-likelihood of the rows in every epoch of joint
        training, but for a constant, each batch before its step.
    n_iter_ : list of int
        Epochs of joint training, one entry a tree.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1; all 0 where no tree has a split.
    oob_score_ : float
        R2 on the rows out of bag. Only with oob_score=True.
    oob_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs_), float64
        Predictions from the trees that did not draw the row. Only with oob_score=True.

    See Also
    --------
    E2EDecisionForest : The same for labels.
    NonGreedyForestRegressor : Hard trees that are trained together, by a bound of their loss.
    CO2ForestRegressor : Hyperplanes that are found node by node.

    Notes
    -----
    Splits step by Adam, leaves are set from their responsibilities after every epoch (equation
    13), those of the last epoch's batches. Where all rows of a node end on one side of its split,
    another one is tried, up to 5 times. After training, the leaves are counted from the rows that
    hard routing sends there, and what no row reaches is gone.

    Features are scaled to [0, 1] over the training set, in float64; the forest repeats that when
    it predicts. Training sees them less their mean, and over their standard deviation, or over 0.3
    of the largest deviation of a feature where that is more; with `feature_shape`, all of them as
    they came, over the largest deviation.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    References
    ----------
    .. [1] T. M. Hehn, J. F. P. Kooij, F. A. Hamprecht, "End-to-End Learning of Decision Trees and
       Forests", International Journal of Computer Vision 128, 2020.

    Examples
    --------
    >>> from skforest import E2EDecisionForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = E2EDecisionForestRegressor(bootstrap=True, oob_score=True, random_state=0)
    >>> bool(forest.fit(X, y).oob_score_ > 0.3)
    True
    """

    _criterion = "squared_error"
