"""Oblique boosting: gradient boosting of trees over single features and sparse mixtures of them.

In every round, a tree is fitted to the gradients of the loss at the current predictions (Friedman
2001), with second derivatives (Chen and Guestrin 2016) and histograms of binned columns (Ke et al.
2017). Its splits compare single features, or sparse oblique directions of a few features, which
are drawn anew for every tree.
"""

import math
import re
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.metrics import d2_pinball_score
from sklearn.utils.metaestimators import available_if

from ._base import BagMixin, BaseForest, Integral, Interval, Real, StrOptions
from ._constraints import read_groups, read_monotonic
from ._docs import CLASS_WEIGHT, described, with_texts
from ._feature_grid import FeatureGrid
from ._kernels.rows import random_stream, tree_seed
from ._targets import ForestClassifierMixin, ForestRegressorMixin
from ._threads import Control, thread_count
from ._validation import check_unchanged, set_resolved, store_parameters
from .forest.statistics import staged_responses
from .training.boosting import (
    KEPT,
    BinnedRows,
    BoostingSettings,
    BoostingTask,
    TrainedRounds,
    calibration_part,
)
from .training.early_stopping import FOLD_SEED, balanced_folds, draw_held_out
from .training.losses import (
    BoostedLogLoss,
    Quantiles,
    SquaredError,
    loss_names,
    make_loss,
)
from .training.user_losses import Loss, UserLoss

# With which linear_leaves="auto" and linear_start="auto" compare models: rounds, rows, folds if
# there are at most half as many, and rows at least.
TRIAL_ROUNDS, TRIAL_ROWS, TRIAL_FOLDS, MIN_LINEAR_ROWS = 100, 4000, 2, 100
# Penalties that linear_start="auto" tries, and the largest number of features with which it does.
START_PENALTIES, MAX_START_FEATURES = (100.0, 1.0), 500
TRIAL_SHARE = 0.25  # of the time that is left, at most; without a result, the first model is taken
MIN_ROWS = 20  # with fewer distinct rows, early_stopping="auto" is off
MIN_L2 = 1e-6  # keeps gains finite where the curvature of a loss vanishes
LARGE = 20_000  # rows from which on n_bags="auto" is 1
# With which max_depth="auto" compares models: depths, of which the first is taken with fewer rows,
# rounds, rows, rows at least, and settings with which training is short.
DEPTHS, DEPTH_ROUNDS, DEPTH_ROWS, MIN_DEPTH_ROWS = (4, 6, 8), 150, 12_000, 8_000
SHORT = {"learning_rate": 0.3, "n_iter_no_change": 15}
# Parameters that a warm start must not change.
FIXED = (
    "loss delta quantile power monotonic_cst interaction_cst linear_leaves linear_start "
    "early_stopping validation_fraction n_iter_no_change feature_shape"
).split()

PARAMETERS = """
n_estimators : int
    Largest number of rounds, at least 1. A round adds a tree to every bag; a linear start is the
    first one. With `early_stopping`, bags have as many rounds as are best on held-out rows; a
    single bag is then trained again on all rows, with more rounds in proportion to its rows.
learning_rate : "auto" or float
    Factor of the values of the leaves, more than 0. "auto": 0.1.
max_depth : "auto", int or None
    Largest depth of a leaf, up to 30; the root has depth 0. None: 30. "auto": None with
    `max_leaf_nodes`; from 8000 rows on, with early stopping, that of 4, 6 and 8 with which small
    models have the lowest loss on held-out rows; otherwise 4.
max_leaf_nodes : int or None
    Largest number of leaves of a tree, at least 2. Trees then grow best first: the leaf whose
    split has the largest gain is split next, in the limits of `max_depth`. None: no limit, and
    trees grow level by level.
min_samples_leaf : "auto" or int
    Smallest number of distinct rows of a leaf, at least 1. "auto": a fiftieth of the rows, but at
    most 15.
l2_regularization : float
    Added to the sum of the second derivatives of a leaf, by which that of the gradients is
    divided. Not negative. Weights of rows are in units of their median.
n_directions : "auto" or int
    Number of oblique directions that are drawn for a tree; its splits are the best ones among
    these and the single features. 0: single features only. "auto": 64, fewer from 20000 rows on,
    and 16 from 80000 rows on.
max_nonzeros : int
    Largest number of features of an oblique direction, 2 to 8; the smallest is 2. Half of the
    time, features are drawn uniformly, otherwise in proportion to their gains so far. Of no effect
    with `feature_shape`.
feature_shape : int, tuple of int or None
    Shape of the array that the features of a row fill, in C order: ``(100,)`` for a signal,
    ``(28, 28)`` for an image; at most 8 axes. Must multiply to the number of features. X may also
    be given as ``(n_samples, *feature_shape)``. Directions are then sums over boxes of
    neighbouring features, or differences of two such sums [6]_, and all features are scaled alike.
    Not with `monotonic_cst` and `interaction_cst`. None: the features have no order.
subsample : float
    Fraction of the rows that a tree is grown on, in (0, 1]; they are drawn without replacement.
max_features : float
    Fraction of the features among which a tree chooses its splits of single features, in (0, 1];
    they are drawn for each tree. Directions may use all features.
max_bins : int
    Number of bins of a feature, 2 to 255. Directions have at most 64.
monotonic_cst : array-like of int of shape (n_features,), dict or None
    Constraint of each column of X, or of the columns with the names in the dict; only for one
    output or two classes. 1: the prediction, or the probability of the second class, does not
    decrease with the column, -1: it does not increase, 0: no constraint. In directions, columns
    with a constraint have weights of these signs.
interaction_cst : {"pairwise", "no_interactions"}, list of sets of int or str, or None
    Groups of columns of X, by number or name, that may interact: all splits above a leaf are
    within one group. "pairwise": all pairs of columns. "no_interactions": every column alone.
    Columns in no set form a group. None: all may interact.
linear_leaves : "auto" or bool
    Whether leaves hold linear functions of the directions of the splits above them [4]_ instead of
    constants. "auto": in regression with the squared error, if small models have the lower loss on
    held-out rows then. Otherwise, and with sparse X, `monotonic_cst`, fewer than 100 rows, or
    without early stopping, constants.
linear_start : "auto", float or None
    Whether training starts from a linear function of all features [5]_, which is the first tree of
    each bag, of a single leaf. A number more than 0: its L2 penalty, for features of standard
    deviation 1. The learning rate, `subsample` and `max_features` do not apply to it. None:
    training starts from a constant. "auto": where `linear_leaves` are compared, with at most 500
    features, that of 100, 1 and None with the lowest loss on held-out rows; otherwise None.
n_bags : "auto" or int
    Number of models that are trained independently and averaged. With early stopping, each of
    several bags holds out a part of its own. "auto": 5, or 1 from 20000 rows on.
early_stopping : "auto" or bool
    Whether the number of rounds is determined on held-out rows, or on `X_val` of `fit`. A single
    bag that has held out rows is then trained again on all rows, and its best number of rounds is
    multiplied by the number of rows over the number of rows that were not held out. "auto": True
    with at least 20 distinct rows, and with `X_val`.
validation_fraction : float
    Fraction of the distinct rows that a single bag holds out, in (0, 1). Each of several bags
    holds out the fraction 1 / `n_bags`.
n_iter_no_change : int
    Training ends after this many rounds without a lower loss on the held-out rows. At least 1.
    Each of several bags keeps 1.5 times its best number of rounds, because their mean overfits
    later, and ends after half that number of rounds without a lower loss if that is more.
verbose : int
    1 shows progress: a bar if tqdm is installed, else about ten lines. It counts bags, or rounds
    where there is only one bag. More than 1, without tqdm: a line for each of them.
warm_start : bool
    Whether to keep the bags of the last fit, on the same rows. With a larger `n_bags`, new ones
    are added; with a larger `n_estimators`, rounds are added to all bags, see
    :ref:`boosting_warm_start`.
"""

CLASSIFIER_PARAMETERS = PARAMETERS.rstrip() + CLASS_WEIGHT

REGRESSOR_PARAMETERS = (
    PARAMETERS
    + """
loss : {"squared_error", "absolute_error", "huber", "quantile", "poisson", "gamma", "tweedie"}
    What is minimised, in units of the standard deviation of each output; that of a robust
    estimate, which outliers do not determine, for "absolute_error", "huber" and "quantile".
    "squared_error": for means. "absolute_error": for medians. "huber": between the two; bags are
    stopped early by the absolute error. "quantile": for the quantile given; with early stopping,
    predictions are then shifted by the quantile of the residuals of held-out rows, unless that
    increases their loss. "poisson": for counts, 0 or more. "gamma": for positive targets.
    "tweedie": for targets of 0 or more, some of which are 0. With the last three, trees add up to
    the logarithm of the mean, and predictions are then multiplied by a factor, so that their mean
    is that of the targets. Or an instance of `Loss`, a loss of your own.
quantile : float or array-like of float of shape (n_quantiles,)
    Quantiles to predict, in (0, 1). With several, `predict` returns one column for each, in this
    order, and y must have one output. Predictions are sorted, so that they do not cross [7]_. Only
    for loss="quantile".
power : float
    Power of the mean to which the variance is proportional, in (1, 2). Only for loss="tweedie".
"""
)

ATTRIBUTES = """
learning_rate_, min_samples_leaf_, n_directions_, n_bags_ : float, int, int, int
    Resolved values of these parameters.
max_depth_ : int or None
    Resolved value of this parameter.
linear_leaves_, early_stopping_ : bool
    Resolved values of these parameters.
linear_start_ : float or None
    Resolved value of this parameter.
loss_curve_ : list of ndarray of shape (n_rounds + 1,), float64
    One entry per bag: mean loss of its training rows before the first round and after each. Of a
    bag that is trained again, it is that of the second training.
    In regression, targets are in the units of `loss`, or of their mean for
    "poisson", "gamma" and "tweedie"; the squared error is halved. A `skforest.Loss` has the units
    of y.
validation_scores_ : list of ndarray of shape (n_rounds + 1,), float64
    One entry per bag: minus the mean loss of its held-out rows before the first round and after
    each, rounds after the best included. Of shape (0,) without early stopping.
n_iter_ : list of int
    Number of rounds of each bag.
feature_importances_ : ndarray of shape (n_features_in_,), float64
    Not negative, with sum 1: decrease of the loss in all splits, times the absolute weight of the
    feature and, unless it is in a box, its standard deviation. Features share the decrease of the
    loss by the linear start in proportion to the variances of its terms. For "absolute_error" and
    "quantile", splits separate signs of residuals, and their decrease stays large in late trees
    that fit noise: prefer permutation importances.
"""

NOTES = """
With several classes or outputs, one tree has the values of all of them. If there are more than
five, splits are searched with random projections of the gradients [3]_.

{outliers}

{weighted_rows}
"""

REFERENCES = """
.. [1] J. H. Friedman, "Greedy Function Approximation: A Gradient Boosting Machine", Annals of
   Statistics 29, 2001.
.. [2] T. M. Tomita, J. Browne, C. Shen, J. Chung, J. L. Patsolic, B. Falk, C. E. Priebe,
   J. Yim, R. Burns, M. Maggioni, J. T. Vogelstein, "Sparse Projection Oblique Randomer
   Forests", JMLR 21, 2020.
.. [3] L. Iosipoi, A. Vakhrushev, "SketchBoost: Fast Gradient Boosted Decision Tree for Multioutput
   Problems", NeurIPS 2022.
.. [4] Y. Shi, J. Li, Z. Li, "Gradient Boosting with Piece-Wise Linear Regression Trees", IJCAI
   2019.
.. [5] H. Zhang, D. Nettleton, Z. Zhu, "Regression-Enhanced Random Forests", arXiv:1904.10416,
   2019.
.. [6] R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests: Closing
   the Gap on Neural Networks", 2019.
"""

REGRESSOR_REFERENCES = (
    REFERENCES.rstrip()
    + """
.. [7] V. Chernozhukov, I. Fernandez-Val, A. Galichon, "Quantile and Probability Curves Without
   Crossing", Econometrica 78, 2010.
"""
)


@with_texts()
class _ObliqueBoosting(BagMixin, BaseForest):
    """Parameters and training shared by classifier and regressor."""

    _scales_features = True
    _progress_units = "bag", "round"
    _keeps_parts = True
    _limits_features = "usual"  # `limit` of the feature map
    # While `fit` runs:
    _given_validation = None  # X_val, y_val and sample_weight_val
    _continues_rounds = False  # does a warm start add rounds to the bags of the last fit?

    _parameter_constraints: dict = {
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "max_depth": [StrOptions({"auto"}), Interval(Integral, 1, 30, closed="both"), None],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "min_samples_leaf": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "l2_regularization": [Interval(Real, 0.0, None, closed="left")],
        "n_directions": [StrOptions({"auto"}), Interval(Integral, 0, 2**16, closed="both")],
        "max_nonzeros": [Interval(Integral, 2, 8, closed="both")],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "subsample": [Interval(Real, 0.0, 1.0, closed="right")],
        "max_features": [Interval(Real, 0.0, 1.0, closed="right")],
        "max_bins": [Interval(Integral, 2, 255, closed="both")],
        "monotonic_cst": ["array-like", dict, None],
        "interaction_cst": [StrOptions({"pairwise", "no_interactions"}), list, tuple, None],
        "linear_leaves": [StrOptions({"auto"}), "boolean"],
        "linear_start": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither"), None],
        "n_bags": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "early_stopping": [StrOptions({"auto"}), "boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }

    def fit(
        self,
        X,
        y,
        sample_weight=None,
        groups=None,
        *,
        X_val=None,
        y_val=None,
        sample_weight_val=None,
    ):
        """Train the forest.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Numbers, categories and missing values, see :doc:`/guide/tables`; no infinite values.
            Sparse X only without linear leaves and start. Its bins take a byte for each row and
            column.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels, or real targets.
        sample_weight : array-like of shape (n_samples,), default=None
            Not negative, not all 0. A weight of k equals k copies of the row, and 0 its absence.
            None: all weights are 1.
        groups : array-like of shape (n_samples,), default=None
            Groups of rows that early stopping holds out together, such as all rows of a patient;
            at least 2. None: every row is held out by itself.
        X_val : {array-like, sparse matrix, dataframe} of shape (n_val, n_features), default=None
            Rows for early stopping, in place of held-out ones; all bags then train on all rows of
            X, and none is trained again. With the columns of X.
        y_val : array-like of shape (n_val,) or (n_val, n_outputs), default=None
            Targets of `X_val`; no labels but those in y.
        sample_weight_val : array-like of shape (n_val,), default=None
            Weights of `X_val`, as `sample_weight`; they are not multiplied by `class_weight`.

        {returns_self}
        """
        self._given_validation = self._check_validation(X_val, y_val, sample_weight_val)
        self._continues_rounds = False
        self._given_groups = groups
        try:
            return super().fit(X, y, sample_weight)
        finally:
            del self._given_validation, self._continues_rounds, self._given_groups

    def _check_validation(self, X_val, y_val, sample_weight_val):
        """The rows for early stopping as `fit` got them; None without any."""
        if X_val is None and y_val is None and sample_weight_val is None:
            return None
        for name, value in (("X_val", X_val), ("y_val", y_val)):
            if value is None:
                raise ValueError(f"{name}=None: X_val and y_val must be passed together")
        if not self.early_stopping:
            raise ValueError(
                f"early_stopping={self.early_stopping!r} takes no X_val and y_val: set it to "
                '"auto" or True'
            )
        return X_val, y_val, sample_weight_val

    @property
    def _map_scaling(self):
        return "minmax" if self._grid is None else "common"  # boxes add up features

    @property
    def _needs_dense(self):
        if getattr(self, "feature_shape", None) is not None:
            return f"feature_shape={self.feature_shape!r}"
        given = self._given_linear()
        return next((f"{name}={value!r}" for name, value in given.items() if value), None)

    def _given_linear(self):
        """The parameters `linear_leaves` and `linear_start`, where they are not "auto"."""
        # Pickles of earlier versions have no `linear_start`.
        given = {name: getattr(self, name, "auto") for name in ("linear_leaves", "linear_start")}
        return {name: value for name, value in given.items() if not isinstance(value, str)}

    # ----------------------------------------------------------------------------------- settings

    def _keeps_folds(self, n_folds):
        return self.early_stopping_ and 1 < self.n_bags_ <= n_folds

    @property
    def _holds_out_rows(self):
        """Do bags hold out rows of X for early stopping?"""
        return self.early_stopping_ and self._given_validation is None

    def _resolve_settings(self, data, is_warm_start):
        n_rows = int(np.count_nonzero(data.weight))
        auto = {
            "learning_rate": 0.1,
            "min_samples_leaf": min(max(1, n_rows // 50), 15),
            "n_directions": min(64, max(16, 64 * LARGE // max(n_rows, 1))),
            "n_bags": 1 if n_rows >= LARGE else 5,
            "early_stopping": n_rows >= MIN_ROWS or self._given_validation is not None,
        }
        set_resolved(self, auto)
        if self._holds_out_rows and data.n_groups < 2 <= len(data):
            raise ValueError(
                "groups must have at least 2 groups with rows of positive weight, or pass "
                "early_stopping=False"
            )
        data.unit()  # computed once, before threads ask for it
        self._check_grid()
        n_folds = self.n_bags_ if self._holds_out_rows else 0
        fixed = {name: getattr(self, name, None) for name in FIXED}
        fixed["feature_shape"] = None if self._grid is None else self._grid.shape
        fixed["X_val"] = None if self._given_validation is None else "rows"  # given, or not?
        fixed["groups"] = None if self._given_groups is None else "rows"
        if is_warm_start:
            check_unchanged(self.__dict__.get("_fixed_parameters", {}), fixed)
            self._check_grid_of_forest()
            self._continues_rounds = self._adds_rounds(n_folds, n_rows)
            n_folds = getattr(self, "_n_folds", n_folds)
        self._n_rounds, self._n_folds = self.n_estimators, n_folds
        self.__dict__.pop("_fixed_parameters", None)
        if self.warm_start:
            self._fixed_parameters = fixed

    @property
    def _grid(self):
        """The FeatureGrid of the boxes; None without `feature_shape`."""
        shape = getattr(self, "feature_shape", None)  # not in pickles of earlier versions
        return None if shape is None else FeatureGrid(shape, self.n_features_in_)

    def _check_grid(self):
        """Raise ValueError if there are constraints of columns, which boxes do not obey."""
        if self._grid is None:
            return
        for name in ("monotonic_cst", "interaction_cst"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"feature_shape={self.feature_shape!r} is not possible with {name}: the boxes "
                    "of the grid mix columns"
                )

    def _check_grid_of_forest(self):
        """Raise ValueError if a warm start has other directions than the fitted forest."""
        forest = self.forest_
        shape = forest.feature_shape if self._grid is None else self._grid.shape
        n_others = len(forest.box_corner) if self._grid is None else len(forest.sparse_feature)
        if n_others or shape != forest.feature_shape:
            raise ValueError(
                f"feature_shape={self.feature_shape!r}, but warm_start=True continues a fit with "
                f"another one: the forest has {len(forest.box_corner)} boxes in an array of the "
                f"shape {forest.feature_shape}"
            )

    def _select_settings(self, data, is_warm_start):
        if not isinstance(self.max_depth, str):
            self.max_depth_ = self.max_depth
        elif self.max_leaf_nodes:
            self.max_depth_ = None
        elif not is_warm_start or vars(self).get("max_depth_") is None:
            self.max_depth_ = DEPTHS[0]
            n_rows = np.count_nonzero(data.weight)
            if self.early_stopping_ and n_rows >= MIN_DEPTH_ROWS:
                # Those of an earlier fit of this estimator do not count.
                linear = {"linear_leaves": False, "linear_start": None}
                trial_scores = self._trial(data, DEPTH_ROWS, DEPTH_ROUNDS, **SHORT, **linear)
                scores = trial_scores(*({"max_depth": depth} for depth in DEPTHS))
                self.max_depth_ = DEPTHS[scores.argmax()]

    def _adds_rounds(self, n_folds, n_rows):
        """Does a warm start add rounds to the bags of the last fit? ValueError if it cannot."""
        n_done = getattr(self, "_n_rounds", self.n_estimators)
        if self.n_estimators < n_done:
            raise ValueError(
                f"n_estimators={self.n_estimators} must be larger or equal to the {n_done} rounds "
                "of the last fit when warm_start=True"
            )
        if self.n_estimators == n_done or self.n_bags_ < len(self.forest_.bag_start) - 1:
            return False
        if bool(self._n_folds) != bool(n_folds):
            rows = "X_val" if self._given_validation is not None else "no X_val"
            raise ValueError(
                f"n_estimators={self.n_estimators} cannot be increased when warm_start=True: the "
                f"last fit {'held' if self._n_folds else 'did not hold'} out rows of X for early "
                f"stopping, and this one, with early_stopping={self.early_stopping!r}, {rows} and "
                f"{n_rows} distinct rows, {'does' if n_folds else 'does not'}"
            )
        if self._n_folds != n_folds:
            raise ValueError(
                f"n_estimators={self.n_estimators} cannot be increased after, or together with, a "
                f"change to n_bags={self.n_bags_}: with another number of bags, early stopping "
                "holds out other rows"
            )
        return True

    def _member_counts(self, is_warm_start):
        """No bag is done where rounds are added to all of them."""
        name, n_wanted, n_done = super()._member_counts(is_warm_start)
        return name, n_wanted, 0 if self._continues_rounds else n_done

    def _known_rounds(self):
        """The rounds of the last fit by the seeds of the bags, as pairs of TrainedRounds.

        The second is that of the trees that a bag kept, the first that of its training with
        held-out rows, where it was then trained again on all rows.
        """
        rounds = self.__dict__.get("_trained_rounds")
        if rounds is None:  # the last fit had warm_start=False, or the model was loaded
            rounds = [(TrainedRounds(), TrainedRounds(n)) for n in self.n_iter_]
        return {
            tree_seed(self._seed, bag): (first, replace(last, forest=self._member(bag)))
            for bag, (first, last) in enumerate(rounds)
        }

    @property
    def _settings(self):
        # Pickles of earlier versions have no `max_depth_`.
        max_depth = int(getattr(self, "max_depth_", self.max_depth) or 30)
        max_leaves = int(self.max_leaf_nodes or 0)
        return BoostingSettings(
            n_rounds=int(self.n_estimators),
            learning_rate=float(self.learning_rate_),
            max_depth=max_depth,
            max_leaves=max_leaves if max_leaves < 2**max_depth else 0,
            min_samples_leaf=int(self.min_samples_leaf_),
            l2=max(float(self.l2_regularization), MIN_L2),
            subsample=float(self.subsample),
            max_features=float(self.max_features),
            n_directions=int(self.n_directions_),
            max_terms=int(self.max_nonzeros),
            max_bins=int(self.max_bins),
            n_iter_no_change=int(self.n_iter_no_change),
            linear_leaves=getattr(self, "linear_leaves_", False),
            linear_start=getattr(self, "linear_start_", None),
            kept=KEPT if self.n_bags_ > 1 else 1.0,
        )

    @property
    def _is_linear(self):
        """Does the fitted model have linear functions?"""
        return self._settings.linear_leaves or self._settings.linear_start is not None

    # ----------------------------------------------------------------------------------- training

    def _fit_forest(self, data, bags):
        # A sample of the rows without one that occurs often would have other frequencies.
        if data.fold is None and (self._holds_out_rows or self.subsample < 1):
            data, _ = data.in_copies()
        if self._holds_out_rows and data.fold is None and self.n_bags_ > 1 and len(data) > 1:
            # Each bag leaves one fold out.
            n_folds = min(self.n_bags_, len(data), data.n_groups)
            fold = balanced_folds(data.y[:, 0], n_folds, self._seed, data.group)
            data = data.with_folds(fold, n_folds)
        monotonic = self._monotonic_features(data)
        groups = read_groups(self.interaction_cst, self._column_names)
        if bags[0] == 0 and not self._continues_rounds:
            self._resolve_linear(data, monotonic is not None)
        elif self._is_linear and sparse.issparse(data.X):
            raise TypeError(
                "Sparse data was passed for X, but dense data is required by the linear functions "
                "that warm_start=True continues with; pass X.toarray()"
            )
        data, held_out = self._with_validation(data)
        task = self._task(data, monotonic, groups, held_out)
        known = self._known_rounds() if self._continues_rounds else {}
        if known and self._time_limit is not None:  # no bag of the last fit is thrown away
            self._time_limit.at_least = len(known)
        records = []
        forest = super()._fit_forest(data, bags, records, task=task, known=known)
        unseen = dict(record["unseen"] for record in records if "unseen" in record)
        return task.calibrated(forest, data, bags, unseen)

    def _with_validation(self, data):
        """The training set with the rows of `X_val`, if there are any, and their weights or None.

        They have the weight 0 in the training set, where they are the last rows. Errors name
        `X_val`, `y_val` and `sample_weight_val`.
        """
        if self._given_validation is None:
            return data, None
        loss = self._make_loss()
        try:
            other = self._merged(
                *self._given_validation,
                self._encode_known_target,
                data.feature_map,
                has_new_labels=True,
            )
            y = self._numeric_target(other.y)
            loss.check_target(y, other.weight)
            target = loss.scale_target(y, data.units)
        except (TypeError, ValueError) as error:
            message = re.sub(r"\b(X|y|sample_weight)\b", r"\1_val", str(error))
            if message == str(error):  # it names none of them
                message = f"X_val, y_val, sample_weight_val: {message}"
            raise type(error)(message) from error
        if sparse.issparse(data.X) != sparse.issparse(other.X):
            raise TypeError("X_val must be sparse where X is, and only there")
        held_out = np.concatenate([np.zeros(len(data)), other.weight])
        return data.with_held_out(other, target), held_out

    def _resolve_linear(self, data, is_monotonic):
        """Set `linear_leaves_` and `linear_start_`; "auto": what is better on held-out rows."""
        loss = self._make_loss()
        given = self._given_linear()
        if isinstance(given.get("linear_start"), bool):
            raise TypeError(
                f'linear_start={self.linear_start!r} must be "auto", a number above 0, or None'
            )
        for name, value in given.items():
            if value and (loss.renews_leaves or is_monotonic):
                other = f"loss={self.loss!r}" if loss.renews_leaves else "monotonic_cst"
                raise ValueError(f"{name}={value!r} is not possible with {other}")
        # Also the values while models are compared.
        self.linear_leaves_ = bool(given.get("linear_leaves", False))
        start = given.get("linear_start")
        self.linear_start_ = None if start is None else float(start)
        if is_classifier(self) or not loss.is_quadratic or not self.early_stopping_:
            return
        if is_monotonic or sparse.issparse(data.X) or len(data) < MIN_LINEAR_ROWS:
            return
        tries_starts = self.linear_start == "auto" and data.X.shape[1] <= MAX_START_FEATURES
        kinds = (self.linear_leaves_,) if "linear_leaves" in given else (False, True)
        if len(kinds) == 1 and not tries_starts:
            return
        trial_scores = self._trial(data, TRIAL_ROWS, TRIAL_ROUNDS)
        scores = trial_scores(*({"linear_leaves": kind} for kind in kinds))
        self.linear_leaves_ = kinds[scores.argmax()]
        if tries_starts:
            starts = None, *START_PENALTIES
            own = {"linear_leaves": self.linear_leaves_}
            others = trial_scores(*(own | {"linear_start": start} for start in starts[1:]))
            self.linear_start_ = starts[np.argmax([scores.max(), *others])]

    def _trial(self, data, n_rows, n_rounds, **settings):
        """A function of further settings: scores of small models on held-out rows.

        At most `n_rows` rows train or are held out. With at most half as many, each half of them
        is held out once.
        """
        seed = tree_seed(self._seed, FOLD_SEED)
        random = random_stream(seed, 1)
        data, _ = data.in_copies()
        data = data.subset(np.sort(random.permutation(len(data))[:n_rows]))
        group = data.group if data.n_groups > 1 else None
        n_parts = min(n_rows // len(data), TRIAL_FOLDS)
        if n_parts == 1:
            held_out = [draw_held_out(data.weight, self.validation_fraction, seed, group)]
        else:
            fold = balanced_folds(data.y[:, 0], TRIAL_FOLDS, seed, group)
            held_out = [np.where(fold == number, data.weight, 0) for number in range(n_parts)]
        parts = [(data.weight - part, part) for part in held_out]
        groups = read_groups(self.interaction_cst, self._column_names)
        task = self._task(data, self._monotonic_features(data), groups)
        # The fit itself warns. A filter of warnings would apply to all threads.
        settings |= {"n_rounds": min(n_rounds, self.n_estimators), "warns": False}
        task = replace(task, settings=replace(task.settings, **settings))
        control, limit = Control(), self._time_limit

        def trial_scores(*settings):
            with limit.part(TRIAL_SHARE).applied(control, ()) if limit else nullcontext():
                return task.trial_scores(parts, seed, control, *settings)

        return trial_scores

    @property
    def _column_names(self):
        """Names of the columns of X, or numbers where they have none, as a list."""
        return getattr(self, "feature_names_in_", np.arange(self.n_features_in_)).tolist()

    def _monotonic_features(self, data):
        """Constraints of the features that are made of the columns of X; None without any."""
        if self.monotonic_cst is None:
            return None
        levels = data.feature_map.levels
        signs = read_monotonic(self.monotonic_cst, self._column_names, levels)
        if len(self._make_loss().start(data.baseline)) > 1:
            raise ValueError(
                f"monotonic_cst={self.monotonic_cst!r} needs one output, or two classes"
            )
        return data.feature_map.per_feature(signs).astype(np.int8) if signs.any() else None

    def _fit_tree(self, data, seed, control, task, known):
        """One bag of trees; a single one that holds out rows is trained again on all rows.

        `known` has the rounds of the last fit by the seeds of the bags, see `_known_rounds`.
        """
        held_out = self._held_out_weight(data, seed, task.rows)
        has_own = task.rows.held_out is None and held_out.any()  # rows that this bag holds out
        is_repeated = has_own and data.fold is None
        known_first, known_last = known.get(seed, (None, None))
        n_threads = thread_count(self.n_jobs) // max(self.n_bags_, data.n_folds)
        train = partial(task.train, seed=seed, control=control, n_threads=n_threads)
        weight = np.where(held_out > 0, 0.0, data.weight)
        start = time.perf_counter()
        training = train(weight, held_out, known=known_first if is_repeated else known_last)
        forest = self._packed(training, data)
        record = {"validation_scores_": np.array(training.scores)}
        if task.loss.is_calibrated and has_own:
            record["unseen"] = seed, calibration_part(forest, data, held_out)
        first = None
        if is_repeated and training.trees:
            first = training.trained_rounds(forest)
            # The trees of more rows learn more slowly: rounds grow with the rows.
            growth = len(data) / np.count_nonzero(weight)
            n_rounds = math.ceil(len(training.trees) * growth)
            seconds = (time.perf_counter() - start) / max(len(training.losses) - 1, 1)
            limit = control.limit
            if limit is None or limit.left() > n_rounds * growth * seconds:
                again = {"known": known_last, "n_rounds": n_rounds}
                again["control"] = control.labelled("training again on all rows")
                training = train(data.weight, np.zeros(len(data)), **again)
                forest = self._packed(training, data)
        if self.warm_start:
            record["_trained_rounds"] = first, training.trained_rounds()
        record["loss_curve_"] = np.array(training.losses)
        record["n_iter_"] = len(training.trees)
        if training.is_late:
            record["ended"] = len(training.losses) - 1, self.n_estimators, "round"
        return forest, record

    def _held_out_weight(self, data, seed, rows):
        """Weights of the rows on which the training of a bag is stopped, 0 for others."""
        if rows.held_out is not None:
            return rows.held_out
        if data.fold is not None and self.early_stopping_:
            return data.left_out_weight
        if not self.early_stopping_ or len(data) < 2:
            return np.zeros(len(data))
        return draw_held_out(data.weight, self.validation_fraction, seed, data.group)

    def _task(self, data, monotonic, groups, held_out=None):
        """What all bags share; the parameters are those of `BinnedRows`."""
        loss = self._make_loss()
        return BoostingTask(
            rows=BinnedRows(data, self.max_bins, monotonic, groups, held_out, self._grid),
            target=loss.standardize(data.target, data.units),
            loss=loss,
            start=loss.start(data.baseline),
            unit=data.units.response,
            settings=self._settings,
        )

    def _packed(self, training, data):
        """A trained bag as a Forest."""
        arrays = training.pack() | {"baseline": data.baseline, "spread": data.deviation()}
        metadata = {"aggregate": "sum", "n_shared_values": 0, "link": self._make_loss().link}
        shape = None if self._grid is None else self._grid.shape
        return self._new_forest(arrays, data, feature_shape=shape, **metadata)

    def staged_predict(self, X):
        """Predictions after each round, as an iterator.

        {takes_rows}

        Yields
        ------
        y : ndarray
            As `predict` returns it, by the trees of this round and of those before, in all bags; a
            bag with fewer rounds has all its trees. The last one is what `predict` returns.
        """
        return map(self._prediction_of, self._staged_response(X))

    def _staged_response(self, X):
        """Responses after each round."""
        X = self._validate_predict(X)
        return staged_responses(self.forest_, self._in_blocks(X, lambda mapped: mapped))


def has_one_output(classifier):
    """Has a classifier one output, or is it not yet fitted?"""
    return not isinstance(getattr(classifier, "classes_", None), list)


@described(CLASSIFIER_PARAMETERS, ATTRIBUTES, notes=NOTES, references=REFERENCES)
class ObliqueBoostingClassifier(ForestClassifierMixin, _ObliqueBoosting):
    """Classify with gradient boosting over single features and sparse mixtures of them.

    Trees are added that lower the log loss [1]_; their splits compare single features, or random
    mixtures of a few features [2]_, which are drawn for every tree. Several such models, each of
    which is stopped early on another part of the rows, are averaged.

    {parameters_and_attributes}

    See Also
    --------
    ObliqueBoostingRegressor : The same for real targets.
    sklearn.ensemble.HistGradientBoostingClassifier : Single features.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import ObliqueBoostingClassifier
    {digits}
    >>> model = ObliqueBoostingClassifier(200, n_bags=1, random_state=0).fit(X_train, y_train)
    >>> bool(model.score(X_test, y_test) > 0.95)
    True
    """

    _parameter_constraints: dict = {
        "class_weight": [StrOptions({"balanced"}), dict, list, None],
    }

    def __init__(
        self,
        n_estimators=1000,
        *,
        learning_rate="auto",
        max_depth="auto",
        max_leaf_nodes=None,
        min_samples_leaf="auto",
        l2_regularization=3.0,
        n_directions="auto",
        max_nonzeros=4,
        feature_shape=None,
        subsample=0.8,
        max_features=1.0,
        max_bins=255,
        monotonic_cst=None,
        interaction_cst=None,
        linear_leaves="auto",
        linear_start="auto",
        n_bags="auto",
        early_stopping="auto",
        validation_fraction=0.2,
        n_iter_no_change=50,
        class_weight=None,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        time_limit=None,
    ):
        store_parameters(self, locals())

    def _make_loss(self):
        if self._has_several_outputs:
            return SquaredError(sum(self.n_classes_))
        return BoostedLogLoss(self.n_classes_)

    def _target_units(self, data, target, is_warm_start):
        baseline = self.forest_.baseline if is_warm_start else None
        return self._make_loss().target_units(target, data.weight, baseline)

    @available_if(has_one_output)
    @with_texts()
    def decision_function(self, X):
        """Logarithms of the odds of two classes, or of the probabilities of more; of one output.

        {takes_rows}

        Returns
        -------
        decision : ndarray of shape (n_samples,) or (n_samples, n_classes), float64
            With two classes, the logarithm of the probability of the second one over that of the
            first; otherwise what `predict_log_proba` returns.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if self.n_classes_ == 2 else log_proba

    def staged_predict_proba(self, X):
        """Class probabilities after each round, as an iterator.

        {takes_rows}

        Yields
        ------
        proba : ndarray of shape (n_samples, n_classes), float64, or list of such arrays
            By the trees that `staged_predict` uses; the last one is what `predict_proba` returns.
        """
        return map(self._probabilities_of, self._staged_response(X))


@described(REGRESSOR_PARAMETERS, ATTRIBUTES, notes=NOTES, references=REGRESSOR_REFERENCES)
class ObliqueBoostingRegressor(ForestRegressorMixin, _ObliqueBoosting):
    """Predict real targets with gradient boosting over features and sparse mixtures of them.

    As `ObliqueBoostingClassifier`, with a choice of losses.

    {parameters_and_attributes}

    See Also
    --------
    ObliqueBoostingClassifier : The same for labels.
    sklearn.ensemble.HistGradientBoostingRegressor : Single features.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import ObliqueBoostingRegressor
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(600, noise=1.0, random_state=0)
    >>> model = ObliqueBoostingRegressor(n_bags=1, random_state=0).fit(X[:400], y[:400])
    >>> bool(model.score(X[400:], y[400:]) > 0.85)
    True
    """

    _parameter_constraints: dict = {
        "loss": [StrOptions(loss_names("boosting")), Loss],
        "delta": [Interval(Real, 0.0, None, closed="neither")],
        "quantile": [Interval(Real, 0.0, 1.0, closed="neither"), "array-like"],
        "power": [Interval(Real, 1.0, 2.0, closed="neither")],
    }

    def __init__(
        self,
        n_estimators=1000,
        *,
        loss="squared_error",
        delta=1.35,
        quantile=0.5,
        power=1.5,
        learning_rate="auto",
        max_depth="auto",
        max_leaf_nodes=None,
        min_samples_leaf="auto",
        l2_regularization=3.0,
        n_directions="auto",
        max_nonzeros=4,
        feature_shape=None,
        subsample=0.8,
        max_features=1.0,
        max_bins=255,
        monotonic_cst=None,
        interaction_cst=None,
        linear_leaves="auto",
        linear_start="auto",
        n_bags="auto",
        early_stopping="auto",
        validation_fraction=0.2,
        n_iter_no_change=50,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        time_limit=None,
    ):
        store_parameters(self, locals())

    @property
    def _has_several_quantiles(self):
        return self.loss == "quantile" and not isinstance(self.quantile, Real)

    @property
    def _fitted_quantiles(self):
        """Levels of the columns of predictions; None unless there are several quantiles."""
        # Files of earlier versions have the parameter only.
        own = self.quantile if self._has_several_quantiles else None
        return self.__dict__.get("_quantiles", own)

    @property
    def _task_metadata(self):
        return {"task": "regression", "n_outputs": self._make_loss().n_outputs}

    def _encode_target(self, y, is_warm_start):
        y = super()._encode_target(y, is_warm_start)
        self._check_levels(y)
        # Predictions do not depend on parameters that are set after the fit.
        has_several = self._has_several_quantiles
        self._quantiles = np.asarray(self.quantile).tolist() if has_several else None
        loss = self._make_loss()
        if is_warm_start and (loss.link, loss.n_outputs) != (
            self.forest_.link,
            self.forest_.n_outputs,
        ):
            raise ValueError(
                f"loss={self.loss!r} does not fit the trees that warm_start=True keeps; fit a new "
                "estimator, or take the loss and the number of quantiles of the first fit"
            )
        return y

    def _check_levels(self, y):
        """Raise ValueError if several quantiles are not valid, or y has several outputs."""
        if self._has_several_quantiles:
            levels = np.asarray(self.quantile)
            is_valid = levels.ndim == 1 and levels.size and levels.dtype.kind in "fiu"
            if not (is_valid and ((levels > 0) & (levels < 1)).all()):
                raise ValueError(f"quantile={self.quantile!r} must have numbers in (0, 1)")
            if y.shape[1] > 1:
                raise ValueError(
                    f"quantile={self.quantile!r} takes one output, y has {y.shape[1]}; pass one "
                    "quantile, or fit an estimator for each output"
                )

    def _make_loss(self):
        if self._has_several_quantiles:
            return Quantiles(self.quantile)
        if isinstance(self.loss, Loss):
            return UserLoss(self.loss, self.n_outputs_)
        return make_loss(self.loss, self.n_outputs_, self)

    def score(self, X, y, sample_weight=None):
        """R^2 of `predict`, or with several quantiles the mean of their D^2.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
            At most 1. With several quantiles, the mean over quantiles of scikit-learn's
            `d2_pinball_score`, which is 0 for the empirical quantile of y.
        """
        levels = self._fitted_quantiles
        if levels is None:
            return super().score(X, y, sample_weight)
        predicted = self.predict(X).T
        scores = [
            d2_pinball_score(y, column, sample_weight=sample_weight, alpha=level)
            for column, level in zip(predicted, levels)
        ]
        return float(np.mean(scores))

    def _prediction_of(self, response):
        levels = self._fitted_quantiles
        if levels is not None:
            rearranged = np.empty_like(response)
            rearranged[:, np.argsort(levels, kind="stable")] = np.sort(response, axis=1)
            return rearranged
        return super()._prediction_of(response)
