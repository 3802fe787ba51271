"""Floor 6: CO2 forests.

Norouzi, Collins, Fleet, Kohli, "CO2 Forest: Improved Random Forest by Continuous Optimization of
Oblique Splits", 2015. A node starts at the best cut of a few single features and turns it into a
hyperplane, by gradient descent on an upper bound of the loss of the two leaves.
"""

import math

import numpy as np

from ._base import Integral, Interval, Real, StrOptions
from ._greedy import GreedyForest
from ._projection import AxisSampler
from ._surrogate import StumpSplitter
from ._task import ForestClassifierMixin, ForestRegressorMixin

SEARCHED = 1024  # rows in which the first cut of a large node is searched
VISITS = 30_000  # rows that n_epochs="auto" shows to a node, in 3 to 30 epochs
MAX_EPOCHS = 30
MANY = 2**40


class _CO2Forest(GreedyForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        **GreedyForest._parameter_constraints,
        "objective": [StrOptions({"co2", "soft", "mixed"})],
        "nu": [Interval(Real, 0.0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "n_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "batch_size": [Interval(Integral, 1, 2**20, closed="both")],
        "holdout": [Interval(Real, 0.0, 0.9, closed="both")],
        "smoothing": [Interval(Real, 0.0, None, closed="neither")],
        "row_norm": [Interval(Real, 0.0, None, closed="neither")],
        "signs": [StrOptions({"current", "old"})],
    }
    _criterion = "squared_error"
    _scales = True

    def __init__(
        self,
        n_estimators=100,
        *,
        objective="co2",
        nu=100.0,
        learning_rate=0.03,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        holdout=0.3,
        smoothing=0.1,
        row_norm=8.0,
        signs="current",
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        importance_type="impurity",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        self.n_estimators = n_estimators
        self.objective = objective
        self.nu = nu
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.holdout = holdout
        self.smoothing = smoothing
        self.row_norm = row_norm
        self.signs = signs
        self.max_features = max_features
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
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

    def _resolve(self, rows):
        self.max_features_ = self._resolve_max_features(rows.X.shape[1])
        self._spread(rows)  # once, before the threads ask for it

    def _auto_max_features(self, n_features):
        return math.ceil(math.sqrt(n_features))

    def _fit_tree(self, rows, target, weight, seed, stop):
        chosen = np.flatnonzero(weight).astype(np.int32)
        min_split, min_leaf = self._min_samples(len(chosen))
        auto = self.n_epochs == "auto"
        splitter = StumpSplitter(
            rows.X,
            target,
            self._forest_options["n_outputs"],
            weight,
            chosen,
            self._criterion,
            seed,
            stop,
            AxisSampler(rows.X.shape[1]),
            self.max_features_,
            False,
            self._auto_bins(),
            min(len(chosen), SEARCHED),
            min_leaf,
            False,
            self.objective,
            self.nu,
            self.learning_rate,
            self.momentum,
            self.batch_size,
            VISITS if auto else MANY,
            MAX_EPOCHS if auto else self.n_epochs,
            self.smoothing,
            self.row_norm,
            self.holdout,
            self.signs == "old",
        )
        arrays = {"spread": self._spread(rows), "offset": self._offset, "scale": self._scale}
        return self._grow(splitter, target, weight, min_split, arrays)


class CO2ForestClassifier(ForestClassifierMixin, _CO2Forest):
    """Classify with a forest of hyperplanes, each optimised by a convex-concave bound.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    """

    _parameter_constraints: dict = {
        **_CO2Forest._parameter_constraints,
        **ForestClassifierMixin._parameter_constraints,
    }
    _criterion = "entropy"

    def __init__(
        self,
        n_estimators=100,
        *,
        objective="co2",
        nu=100.0,
        learning_rate=0.03,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        holdout=0.3,
        smoothing=0.1,
        row_norm=8.0,
        signs="current",
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap=False,
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
            n_estimators,
            objective=objective,
            nu=nu,
            learning_rate=learning_rate,
            momentum=momentum,
            n_epochs=n_epochs,
            batch_size=batch_size,
            holdout=holdout,
            smoothing=smoothing,
            row_norm=row_norm,
            signs=signs,
            max_features=max_features,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
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


class CO2ForestRegressor(ForestRegressorMixin, _CO2Forest):
    """Predict real targets with a forest of hyperplanes.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees.
    """
