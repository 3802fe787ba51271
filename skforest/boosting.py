"""Oblique boosting: gradient boosting of trees over single features and sparse mixtures of them.

In every round, a tree is fitted to the gradients of the loss at the current predictions (Friedman
2001), with second derivatives (Chen and Guestrin 2016) and histograms of binned columns (Ke et al.
2017). Its splits compare single features, or sparse oblique directions of a few features, which
are drawn anew for every tree.
"""

import math
from dataclasses import replace

import numpy as np

from ._base import (
    BaseForest,
    Integral,
    Interval,
    Real,
    StrOptions,
    effective_n_jobs,
    store_parameters,
)
from ._docs import described
from ._kernels.rows import tree_seed
from ._targets import ForestClassifierMixin, ForestRegressorMixin
from .forest import Forest
from .forest.storage import join
from .training.boosting import BinnedRows, BoostingSettings, BoostingTraining
from .training.losses import (
    ABSENT,
    LOSSES,
    BinaryLogLoss,
    LogLoss,
    SquaredError,
    TargetUnits,
    make_loss,
)

MIN_ROWS = 20  # with fewer distinct rows, early_stopping="auto" is off
LARGE = 20_000  # rows from which on n_bags="auto" is 1
FOLD_SEED = 2**61  # far from the numbers of the bags

PARAMETERS = """
n_estimators : int
    Largest number of rounds, each of which adds a tree to every bag. At least 1.
learning_rate : "auto" or float
    Factor of the values of the leaves, more than 0. "auto": 0.05.
max_depth : int or None
    Largest depth of a leaf, up to 30; the root has depth 0. None: 30.
max_leaf_nodes : int or None
    Largest number of leaves of a tree, at least 2; trees grow level by level, and of a level the
    splits of largest gain are made. None: no limit.
min_samples_leaf : int
    Smallest number of distinct rows of a leaf, at least 1.
l2_regularization : float
    Added to the sum of the second derivatives of a leaf, by which that of the gradients is
    divided. Not negative.
n_directions : "auto" or int
    Number of oblique directions that are drawn for a tree; its splits are the best ones among
    these and the features. 0: single features only. "auto": 64.
max_nonzeros : int
    Largest number of features of an oblique direction, 2 to 8; it has 2 at least. Half of the time
    features are drawn evenly, otherwise in proportion to the gains they have had so far.
subsample : float
    Fraction of the rows that a tree is grown on, in (0, 1]; they are drawn without replacement.
max_bins : int
    Number of bins of a feature, 2 to 255. Directions have at most 64.
n_bags : "auto" or int
    Number of models that are trained independently and averaged. With early stopping, each of
    several bags holds out a part of its own. "auto": 5, or 1 from 20000 rows on.
early_stopping : "auto" or bool
    Whether the number of rounds is found on held-out rows. A single bag is then trained again on
    all rows. "auto": True from 20 distinct rows on.
validation_fraction : float
    Fraction of the distinct rows that a single bag holds out, in (0, 1). Several bags hold out
    one over `n_bags` each.
n_iter_no_change : int
    Training ends after this many rounds without a lower loss on the held-out rows. At least 1.
verbose : int
    1 shows progress: a bar if tqdm is installed, else about ten lines. It counts bags, or rounds
    where there is only one bag. More than 1, without tqdm: a line for each of them.
warm_start : bool
    Whether to keep the bags of the last fit and add those missing to `n_bags`.
"""

CLASSIFIER_PARAMETERS = (
    PARAMETERS
    + """
class_weight : dict, "balanced" or None
    Weights of the classes, which multiply the weights of their rows; classes that are not in the
    dict have weight 1. "balanced": all classes have the same total weight.
"""
)

REGRESSOR_PARAMETERS = (
    PARAMETERS
    + """
loss : {"squared_error", "absolute_error", "huber", "quantile", "poisson", "gamma", "tweedie"}
    What is minimised, in units of the standard deviation of each output. "squared_error": for
    means. "absolute_error": for medians. "huber": between the two. "quantile": for the quantile
    given. "poisson": for counts, 0 or more. "gamma": for positive targets. "tweedie": for targets
    of 0 or more, some of which are 0. With the last three, trees add up to the logarithm of the
    mean.
delta : float
    Difference, more than 0, above which "huber" grows linearly.
quantile : float
    In (0, 1), for loss="quantile".
power : float
    In (1, 2), for loss="tweedie": the variance is proportional to this power of the mean.
"""
)

ATTRIBUTES = """
learning_rate_, n_directions_, n_bags_, early_stopping_ : float, int, int, bool
    Resolved values of these parameters.
validation_scores_ : list of ndarray
    One entry per bag: minus the mean loss of its held-out rows before the first round and after
    each. Empty without early stopping.
n_iter_ : list of int
    Number of rounds of each bag.
feature_importances_ : ndarray of shape (n_features_in_,), float64
    Not negative, with sum 1: decrease of the loss times the absolute weight of the feature and its
    standard deviation.
"""

NOTES = """
With several classes or outputs, one tree has the values of all of them. If there are more than
five, splits are searched with random projections of the gradients [3]_.

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
"""


class _ObliqueBoosting(BaseForest):
    """Parameters and training shared by classifier and regressor."""

    _scales_features = True

    _parameter_constraints: dict = {
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "max_depth": [Interval(Integral, 1, 30, closed="both"), None],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "min_samples_leaf": [Interval(Integral, 1, None, closed="left")],
        "l2_regularization": [Interval(Real, 0.0, None, closed="left")],
        "n_directions": [StrOptions({"auto"}), Interval(Integral, 0, 2**16, closed="both")],
        "max_nonzeros": [Interval(Integral, 2, 8, closed="both")],
        "subsample": [Interval(Real, 0.0, 1.0, closed="right")],
        "max_bins": [Interval(Integral, 2, 255, closed="both")],
        "n_bags": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "early_stopping": [StrOptions({"auto"}), "boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }

    # ----------------------------------------------------------------------------------- settings

    def _member_counts(self, is_warm_start):
        return "n_bags", self.n_bags_, len(self.forest_.bag_start) - 1 if is_warm_start else 0

    def _member(self, number):
        first, last = self.forest_.bag_start[number : number + 2]
        return self.forest_[first:last]

    def _resolve_settings(self, data, is_warm_start):
        n_rows = int(np.count_nonzero(data.weight))
        auto = {
            "learning_rate": 0.05,
            "n_directions": 64,
            "n_bags": 1 if n_rows >= LARGE else 5,
            "early_stopping": n_rows >= MIN_ROWS,
        }
        for name, value in auto.items():
            given = getattr(self, name)
            setattr(self, f"{name}_", value if given == "auto" else given)
        data.spread()  # computed once, before threads ask for it

    @property
    def _settings(self):
        return BoostingSettings(
            n_rounds=int(self.n_estimators),
            learning_rate=float(self.learning_rate_),
            max_depth=int(self.max_depth or 30),
            max_leaves=int(self.max_leaf_nodes or 0),
            min_samples_leaf=int(self.min_samples_leaf),
            l2=float(self.l2_regularization),
            subsample=float(self.subsample),
            n_directions=int(self.n_directions_),
            max_terms=int(self.max_nonzeros),
            max_bins=int(self.max_bins),
            n_iter_no_change=int(self.n_iter_no_change),
        )

    # ----------------------------------------------------------------------------------- training

    def _fit_forest(self, data, bags):
        if data.fold is None and self.early_stopping_ and self.n_bags_ > 1 and len(data) > 1:
            n_folds = min(self.n_bags_, len(data))
            data = data.with_folds(self._folds(data, n_folds), n_folds)
        return super()._fit_forest(data, bags, rows=BinnedRows(data, self.max_bins))

    def _folds(self, data, n_folds):
        """Fold of each row: at random, with about the same targets in all folds."""
        random = np.random.RandomState(tree_seed(self._seed, FOLD_SEED) % 2**32)
        order = random.permutation(len(data))
        order = order[np.argsort(data.y[order, 0], kind="stable")]
        fold = np.empty(len(data), dtype=np.int64)
        for start in range(0, len(data), n_folds):
            own = order[start : start + n_folds]
            fold[own] = random.permutation(n_folds)[: len(own)]
        return fold

    def _fit_tree(self, data, seed, control, rows):
        """One bag of trees."""
        held_out = np.where(data.weight == 0, data.whole_weight, 0.0)
        if data.fold is None and self.early_stopping_ and len(data) > 1:
            is_held_out = self._draw_held_out(data, seed)
            held_out = np.where(is_held_out, data.weight, 0.0)
        weight = np.where(held_out > 0, 0.0, data.weight)
        training = self._training(data, rows, weight, held_out, self._settings, seed, control)
        n_rounds = len(training.trees)
        record = {"validation_scores_": np.array(training.scores)}
        if data.fold is None and held_out.any() and n_rounds:
            # The trees of more rows learn more slowly: rounds grow with the rows.
            more = math.ceil(n_rounds * len(data) / np.count_nonzero(weight))
            settings = replace(self._settings, n_rounds=more)
            no_row = np.zeros(len(data))
            training = self._training(data, rows, data.weight, no_row, settings, seed, control)
        record["n_iter_"] = len(training.trees)
        return self._packed(training, data), record

    def _draw_held_out(self, data, seed):
        """Mask of the rows that a single bag holds out."""
        n = min(max(1, round(self.validation_fraction * len(data))), len(data) - 1)
        random = np.random.RandomState(tree_seed(seed, FOLD_SEED) % 2**32)
        mask = np.zeros(len(data), dtype=bool)
        mask[random.permutation(len(data))[:n]] = True
        return mask

    def _training(self, data, rows, weight, held_out, settings, seed, control):
        """A trained bag."""
        loss, target, start = self._problem(data)
        own = rows, target, loss, start, weight, held_out, settings, seed, control.stop
        n_threads = effective_n_jobs(self.n_jobs) // self.n_bags_
        return BoostingTraining(*own).run(control.report, n_threads)

    def _packed(self, training, data):
        """A trained bag as a Forest."""
        arrays = training.pack(data.units.response, data.X.shape[1])
        arrays |= {"baseline": data.baseline, "spread": data.spread()}
        metadata = {"aggregate": "sum", "n_shared_values": 0, "link": self._make_loss().link}
        return self._new_forest(arrays, data, **metadata)

    def _joined(self, forests, consume=False):
        """One forest of all bags."""
        ends = np.cumsum([0] + [len(forest) for forest in forests])
        bags = [forest.bag_start[:-1] + first for forest, first in zip(forests, ends)]
        metadata = forests[0].metadata
        arrays = join(forests, consume)
        arrays["bag_start"] = np.concatenate([*bags, ends[-1:]])
        return Forest(arrays, **metadata)


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
        max_depth=6,
        max_leaf_nodes=None,
        min_samples_leaf=5,
        l2_regularization=3.0,
        n_directions="auto",
        max_nonzeros=4,
        subsample=0.8,
        max_bins=255,
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
    ):
        store_parameters(self, locals())

    def _make_loss(self):
        if self._has_several_outputs:
            return SquaredError(sum(self.n_classes_))
        return LogLoss(self.n_classes_, label_smoothing=0.0)

    def _target_units(self, data, target, is_warm_start):
        loss = self._make_loss()
        if is_warm_start or self._has_several_outputs:
            baseline = self.forest_.baseline if is_warm_start else None
            return loss.target_units(target, data.weight, baseline)
        share = np.bincount(target, data.weight, self.n_classes_) / data.weight.sum()
        with np.errstate(divide="ignore"):
            baseline = np.where(share > 0, np.log(share), ABSENT)
        return TargetUnits(baseline, 1.0, np.ones(self.n_classes_))

    def _problem(self, data):
        """The loss, the target that it takes, and the raw prediction to start from."""
        loss = self._make_loss()
        if self._has_several_outputs:
            target = loss.standardize(data.target, data.units)
            return loss, target, np.zeros(loss.n_outputs)
        target = loss.standardize(data.target, data.units)
        if self.n_classes_ == 2:
            return BinaryLogLoss(1), target, np.diff(data.baseline)
        return loss, target, data.baseline


@described(REGRESSOR_PARAMETERS, ATTRIBUTES, notes=NOTES, references=REFERENCES)
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
    >>> model = ObliqueBoostingRegressor(random_state=0).fit(X[:400], y[:400])
    >>> bool(model.score(X[400:], y[400:]) > 0.85)
    True
    """

    _parameter_constraints: dict = {
        "loss": [StrOptions(set(LOSSES) - {"log_loss"})],
        "delta": [Interval(Real, 0.0, None, closed="neither")],
        "quantile": [Interval(Real, 0.0, 1.0, closed="neither")],
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
        max_depth=6,
        max_leaf_nodes=None,
        min_samples_leaf=5,
        l2_regularization=3.0,
        n_directions="auto",
        max_nonzeros=4,
        subsample=0.8,
        max_bins=255,
        n_bags="auto",
        early_stopping="auto",
        validation_fraction=0.2,
        n_iter_no_change=50,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        store_parameters(self, locals())

    def _make_loss(self):
        return make_loss(self.loss, self.n_outputs_, self)

    def _problem(self, data):
        """The loss, the target that it takes, and the raw prediction to start from."""
        loss = self._make_loss()
        return loss, loss.standardize(data.target, data.units), np.zeros(loss.n_outputs)
