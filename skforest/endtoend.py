"""Floor 6: end-to-end decision trees and forests.

Hehn, Kooij, Hamprecht, "End-to-End Learning of Decision Trees and Forests", 2020. Splits are soft
while they learn, by expectation maximisation and gradient descent, and become steeper with every
epoch; the fitted tree is hard.
"""

import math

import numpy as np

from ._base import Integral, Interval, Real, StrOptions, check_is_fitted
from ._endtoend_training import Annealing, Units, grid_edges, patch_places, train_together
from ._greedy import ObliqueForest
from ._soft_stump import SoftSplitter
from ._task import ForestClassifierMixin, ForestRegressorMixin

LEAST_BATCHES = 10  # steps of an epoch of a stump, where there are 16 rows for each
GATES = {"hard": "hard", "soft": "sigmoid"}


class _E2EForest(ObliqueForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        **ObliqueForest._parameter_constraints,
        "max_depth": [StrOptions({"auto"}), *ObliqueForest._parameter_constraints["max_depth"]],
        "growth": [StrOptions({"level", "best"})],
        "greedy_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "finetune_epochs": [StrOptions({"auto"}), Interval(Integral, 0, 2**31 - 1, closed="left")],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, 2**20, closed="both")],
        "steepness": [Interval(Real, 0.0, None, closed="neither")],
        "steepness_step": [Interval(Real, 0.0, None, closed="left")],
        "smoothness": [Interval(Real, 0.0, None, closed="left")],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "patch_size": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "routing": [StrOptions(set(GATES))],
    }

    def __init__(
        self,
        n_estimators=10,
        *,
        max_depth="auto",
        growth="level",
        max_leaf_nodes=None,
        greedy_epochs="auto",
        finetune_epochs="auto",
        learning_rate="auto",
        batch_size="auto",
        steepness=1.0,
        steepness_step=0.1,
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
        super()._resolve(rows, target, goes_on)
        n, p = rows.X.shape
        if self.growth == "level" and self.max_leaf_nodes is not None:
            raise ValueError(
                f'max_leaf_nodes={self.max_leaf_nodes} needs growth="best"; growth="level" grows '
                "to max_depth"
            )

        def settle(value, auto):
            return auto if isinstance(value, str) else value

        self.max_depth_ = settle(self.max_depth, 8 if n <= 10_000 else 10)
        self.greedy_epochs_ = settle(self.greedy_epochs, 15 if p <= 500 else 8)
        self.finetune_epochs_ = settle(self.finetune_epochs, 30 if p <= 500 else 10)
        self.learning_rate_ = settle(self.learning_rate, 0.01 if p <= 500 else 0.003)
        self.batch_size_ = settle(self.batch_size, min(1000, max(32, n // 10)))
        self.steepness_ = self._annealing.final
        self._places(p)  # refused before the threads start

    @property
    def _annealing(self):
        return Annealing(
            greedy_epochs=int(self.greedy_epochs_),
            finetune_epochs=int(self.finetune_epochs_),
            greedy_rate=float(self.learning_rate_),
            learning_rate=float(self.learning_rate_),
            batch_size=int(self.batch_size_),
            steepness=float(self.steepness),
            steepness_step=float(self.steepness_step),
        )

    def _auto_max_features(self, n_features):
        return n_features

    def _depth_limit(self):
        return 2**31 - 1 if self.max_depth_ is None else min(self.max_depth_, 2**31 - 1)

    def _grid(self, n_features):
        """Shape of the grid that the features fill: one axis without `feature_shape`."""
        shape = np.atleast_1d(n_features if self.feature_shape is None else self.feature_shape)
        if shape.ndim != 1 or shape.dtype.kind not in "iu" or math.prod(shape) != n_features:
            raise ValueError(
                f"feature_shape={self.feature_shape!r} must be whole numbers with the product "
                f"{n_features}, the number of features of X"
            )
        return tuple(shape.tolist())

    def _places(self, n_features):
        """Features of a split: every row is a choice; or one row that is chosen from."""
        shape = self._grid(n_features)
        if self.patch_size is None:
            return np.arange(n_features, dtype=np.int32)[None], self.max_features_
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
        varies = rows.X.max(axis=0) > rows.X.min(axis=0)
        unit = np.where(varies, 1 / self._spread(rows).astype(np.float64), 0.0)
        p = rows.X.shape[1]
        edges = grid_edges(self._grid(p)) if self.smoothness else np.zeros((0, 2), dtype=np.int32)
        places, self._n_used = self._places(p)
        self._units = Units(mean.astype(np.float32), unit.astype(np.float32), places, edges)
        try:
            return super()._fit_forest(rows, target, trees)
        finally:
            del self._units, self._n_used

    def _splitter(self, rows, target, weight, chosen, min_leaf, seed, stop):
        annealing, units = self._annealing, self._units
        return SoftSplitter(
            *self._search_arguments(rows, target, weight, chosen, min_leaf, seed, stop),
            units.mean,
            units.unit,
            units.places,
            self._n_used,
            annealing.greedy_epochs,
            annealing.greedy_rate,
            annealing.steepness,
            annealing.steepness_step,
            annealing.batch_size,
            LEAST_BATCHES,
            self.smoothness,
            units.edges,
        )

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

    def _gated(self, forest, routing=None):
        """The same arrays with the gates of a way of routing; None: that of `routing`."""
        gate = GATES[self.routing if routing is None else routing]
        return forest if forest.gate == gate else forest._with(forest.arrays, gate=gate)

    def _response(self, X):
        X = self._validate_predict(X)
        return self._in_blocks(X, self._gated(self.forest_).response)

    def routing_scores(self, X, y, sample_weight=None):
        """Scores with hard and with soft routing, and how far the two predictions are apart.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        scores : dict of str to float
            "hard" and "soft": what `score` returns with each `routing`. "gap": mean absolute
            difference of the two predictions, of probabilities or targets.
        """
        check_is_fitted(self, "forest_")
        scores, responses, before = {}, [], self.routing
        try:
            for self.routing in GATES:
                scores[self.routing] = self.score(X, y, sample_weight)
                responses.append(self._response(X))
        finally:
            self.routing = before
        return scores | {"gap": float(np.abs(responses[0] - responses[1]).mean())}


class E2EDecisionForest(ForestClassifierMixin, _E2EForest):
    """Classify."""

    _parameter_constraints: dict = {
        **_E2EForest._parameter_constraints,
        **ForestClassifierMixin._parameter_constraints,
    }
    _criterion = "entropy"

    def __init__(
        self,
        n_estimators=10,
        *,
        max_depth="auto",
        growth="level",
        max_leaf_nodes=None,
        greedy_epochs="auto",
        finetune_epochs="auto",
        learning_rate="auto",
        batch_size="auto",
        steepness=1.0,
        steepness_step=0.1,
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
    """Predict real targets."""
