"""Floor 6: random hinge forests and ferns.

Lay, Harrison, Schreiber, Dawer, Barbu, "Random Hinge Forest for Differentiable Learning". The
answer of a tree is the smallest margin on the way to a leaf times the vector of the leaf.
Features, thresholds and vectors are trained by stochastic gradient descent, all trees at once.
"""

from __future__ import annotations

import math

import numpy as np

from ._base import BaseForest, Integral, Interval, Real, StrOptions
from ._forest_join import join
from ._hinge_training import HingeInput, HingeSettings, train_hinge
from ._importance import quick_importances
from ._loss import AbsoluteError, HuberLoss, LogLoss, PoissonLoss, QuantileLoss, SquaredError
from ._task import ForestClassifierMixin, ForestRegressorMixin
from .forest import Forest

LEAST = 1e-3  # of the emphasis of a feature
ADAGRAD = 10.0  # times the rate of Adam


class _HingeForest(BaseForest):
    """Parameters and training shared by classifier and regressor."""

    # Words of a forest of drawn rows, which the door asks for.
    bootstrap = False
    max_samples = None
    oob_score = False
    _scales = True

    _parameter_constraints: dict = {
        **{
            name: kinds
            for name, kinds in BaseForest._parameter_constraints.items()
            if name in {"n_estimators", "n_jobs", "random_state", "verbose", "warm_start"}
        },
        "structure": [StrOptions({"tree", "fern"})],
        "features": [StrOptions({"linear", "identity", "both"})],
        "n_directions": [StrOptions({"auto"}), Interval(Integral, 1, 2**20, closed="both")],
        "max_depth": [StrOptions({"auto"}), Interval(Integral, 1, 16, closed="both")],
        "n_bags": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "optimizer": [StrOptions({"adam", "adagrad", "sgd"})],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "weight_decay": [Interval(Real, 0.0, None, closed="left")],
        "schedule": [StrOptions({"cosine", "constant", "plateau"})],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 2, 2**20, closed="both")],
        "max_iter": [StrOptions({"auto"}), Interval(Integral, 1, 2**40, closed="both")],
        "dropout": [Interval(Real, 0.0, 1.0, closed="left")],
        "importance_power": [Interval(Real, 0.0, 16.0, closed="both")],
        "early_stopping": [StrOptions({"auto"}), "boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_estimators=100,
        *,
        structure="tree",
        features="linear",
        n_directions="auto",
        max_depth="auto",
        n_bags="auto",
        optimizer="adam",
        learning_rate="auto",
        momentum=0.9,
        weight_decay=0.0,
        schedule="cosine",
        batch_size="auto",
        max_iter="auto",
        dropout=0.2,
        importance_power=0.5,
        early_stopping="auto",
        validation_fraction=0.15,
        n_iter_no_change=10,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        self.n_estimators = n_estimators
        self.structure = structure
        self.features = features
        self.n_directions = n_directions
        self.max_depth = max_depth
        self.n_bags = n_bags
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.schedule = schedule
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.dropout = dropout
        self.importance_power = importance_power
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    # ----------------------------------------------------------------------------------- fitting

    def _members(self, goes_on):
        return "n_bags", self.n_bags_, len(self.forest_.bag_start) - 1 if goes_on else 0

    def _resolve(self, rows, target, goes_on):
        """What "auto" stands for, by the number of rows (chosen on validation rows, see docs)."""
        n = int(np.count_nonzero(rows.weight))

        def settle(value, auto):
            return auto if value == "auto" else value

        if goes_on and self.forest_.bag_start[1] != self.n_estimators:
            raise ValueError(
                f"n_estimators={self.n_estimators}, but warm_start=True goes on with bags of "
                f"{self.forest_.bag_start[1]} trees"
            )
        self.n_bags_ = settle(self.n_bags, 5)
        self.max_depth_ = settle(self.max_depth, 5 if n < 10_000 else 8)
        self.n_directions_ = settle(self.n_directions, 100 if n < 10_000 else 200)
        self.batch_size_ = settle(self.batch_size, min(max(n // 16, 8), 64 if n < 10_000 else 128))
        epochs = math.ceil(60 * n / self.batch_size_)
        self.max_iter_ = settle(self.max_iter, min(max(1500, epochs), 20_000))
        rate = min(max(n / 5000, 1.0), 3.0) / self.n_estimators
        rate *= ADAGRAD if self.optimizer == "adagrad" else 1.0
        self.learning_rate_ = settle(self.learning_rate, rate)
        self.early_stopping_ = settle(self.early_stopping, self.n_bags_ > 1 or n >= 1000)

    @property
    def _settings(self):
        return HingeSettings(
            n_trees=int(self.n_estimators),
            depth=int(self.max_depth_),
            fern=self.structure == "fern",
            n_linear=0 if self.features == "identity" else int(self.n_directions_),
            identity=self.features != "linear",
            optimizer=self.optimizer,
            learning_rate=float(self.learning_rate_),
            momentum=float(self.momentum),
            weight_decay=float(self.weight_decay),
            schedule=self.schedule,
            dropout=float(self.dropout),
            batch_size=int(self.batch_size_),
            n_steps=int(self.max_iter_),
            validation_fraction=float(self.validation_fraction) if self.early_stopping_ else 0.0,
            n_iter_no_change=int(self.n_iter_no_change),
        )

    def _input(self, rows, target):
        """The rows, with features in units of their deviation, the important ones in smaller."""
        present = rows.weight > 0
        total = rows.weight.sum()
        # No BLAS, whose last bits depend on its threads.
        mean = np.einsum("i,ij->j", rows.weight, rows.X, dtype=np.float64) / total
        spread = rows.spread()
        emphasis = np.ones(len(mean))
        if self.importance_power and present.sum() > 1:
            options = {k: v for k, v in self._forest_options.items() if k != "n_shared_values"}
            shared = {"n_shared_values": options["n_outputs"]} if target.ndim == 1 else {}
            found = quick_importances(rows, target, options | shared, self._seed)
            if found.any():
                emphasis = np.maximum(found * len(found), LEAST**2) ** self.importance_power
                emphasis = np.maximum(emphasis, LEAST)
        return HingeInput(rows.X, mean, spread.astype(np.float64), emphasis, spread)

    def _fit_forest(self, rows, target, bags):
        self._source = self._input(rows, target)
        try:
            forest = super()._fit_forest(rows, target, bags)
        finally:
            del self._source
        return forest

    def _fit_tree(self, rows, target, weight, seed, stop):
        """One bag of trees."""
        loss, target, unit, meta = self._task(target)
        training = train_hinge(self._source, target, loss, weight, self._settings, seed, stop)

        def make(arrays):
            scales = {"offset": self._offset, "scale": self._scale}
            return self._new_forest(
                arrays | scales | meta, aggregate="sum", gate="margin", link=self._link
            )

        return training.pack(unit, make), training.record

    def _joined(self, forests, consume=False):
        """One forest of all bags."""
        ends = np.cumsum([0] + [len(forest) for forest in forests])
        bags = [forest.bag_start[:-1] + first for forest, first in zip(forests, ends)]
        meta = forests[0]._meta
        arrays = join(forests, consume)
        arrays["bag_start"] = np.concatenate([*bags, ends[-1:]])
        return Forest(arrays, **meta)


class RandomHingeForestClassifier(ForestClassifierMixin, _HingeForest):
    """Classify with a random hinge forest."""

    _parameter_constraints: dict = {
        **_HingeForest._parameter_constraints,
        "label_smoothing": [Interval(Real, 0.0, 1.0, closed="left")],
        "class_weight": [StrOptions({"balanced"}), dict, None],
    }
    _link = "softmax"

    def __init__(
        self,
        n_estimators=100,
        *,
        structure="tree",
        features="linear",
        n_directions="auto",
        max_depth="auto",
        n_bags="auto",
        label_smoothing=0.0,
        optimizer="adam",
        learning_rate="auto",
        momentum=0.9,
        weight_decay=0.0,
        schedule="cosine",
        batch_size="auto",
        max_iter="auto",
        dropout=0.2,
        importance_power=0.5,
        early_stopping="auto",
        validation_fraction=0.15,
        n_iter_no_change=10,
        class_weight=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        super().__init__(
            n_estimators,
            structure=structure,
            features=features,
            n_directions=n_directions,
            max_depth=max_depth,
            n_bags=n_bags,
            optimizer=optimizer,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            schedule=schedule,
            batch_size=batch_size,
            max_iter=max_iter,
            dropout=dropout,
            importance_power=importance_power,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.label_smoothing = label_smoothing
        self.class_weight = class_weight

    @property
    def _forest_options(self):
        # The one value that bags share is that of what no row reaches.
        return super()._forest_options | {"n_shared_values": 1}

    def _task(self, target):
        n = self.n_classes_
        target = np.ascontiguousarray(target[:, None], dtype=np.float64)
        return LogLoss(n, float(self.label_smoothing)), target, np.ones(n), {}


class RandomHingeForestRegressor(ForestRegressorMixin, _HingeForest):
    """Predict real targets with a random hinge forest."""

    _parameter_constraints: dict = {
        **_HingeForest._parameter_constraints,
        "loss": [
            StrOptions({"squared_error", "absolute_error", "huber", "quantile", "poisson"}),
        ],
        "delta": [Interval(Real, 0.0, None, closed="neither")],
        "quantile": [Interval(Real, 0.0, 1.0, closed="neither")],
    }

    def __init__(
        self,
        n_estimators=100,
        *,
        structure="tree",
        features="linear",
        n_directions="auto",
        max_depth="auto",
        n_bags="auto",
        loss="squared_error",
        delta=1.35,
        quantile=0.5,
        optimizer="adam",
        learning_rate="auto",
        momentum=0.9,
        weight_decay=0.0,
        schedule="cosine",
        batch_size="auto",
        max_iter="auto",
        dropout=0.2,
        importance_power=0.5,
        early_stopping="auto",
        validation_fraction=0.15,
        n_iter_no_change=10,
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        super().__init__(
            n_estimators,
            structure=structure,
            features=features,
            n_directions=n_directions,
            max_depth=max_depth,
            n_bags=n_bags,
            optimizer=optimizer,
            learning_rate=learning_rate,
            momentum=momentum,
            weight_decay=weight_decay,
            schedule=schedule,
            batch_size=batch_size,
            max_iter=max_iter,
            dropout=dropout,
            importance_power=importance_power,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.loss = loss
        self.delta = delta
        self.quantile = quantile

    @property
    def _forest_options(self):
        return super()._forest_options | {"n_shared_values": 1}

    @property
    def _link(self):
        return "log" if self.loss == "poisson" else "identity"

    def _make_target(self, rows, goes_on):
        if self.loss != "poisson":
            target = super()._make_target(rows, goes_on)
            deviation = np.sqrt(np.average(np.square(target), axis=0, weights=rows.weight))
            self._unit = np.where(deviation > 0, deviation, 1.0)
            return target
        mean = np.average(rows.Y, axis=0, weights=rows.weight)
        if rows.Y.min() < 0 or not (mean > 0).all() or not np.isfinite(mean).all():
            raise ValueError(
                f"loss='poisson' needs y of 0 or more with a positive mean, got a smallest value "
                f"of {rows.Y.min():g} and means {mean}"
            )
        self._baseline = self.forest_.baseline if goes_on else np.log(mean)
        self._unit = np.ones(len(mean))
        return rows.Y / np.exp(self._baseline)

    def _task(self, target):
        n = self.n_outputs_
        kinds = {
            "squared_error": (SquaredError, ()),
            "absolute_error": (AbsoluteError, ()),
            "huber": (HuberLoss, (float(self.delta),)),
            "quantile": (QuantileLoss, (float(self.quantile),)),
            "poisson": (PoissonLoss, ()),
        }
        kind, parameters = kinds[self.loss]
        scale = 1.0 if self.loss == "poisson" else self._target_scale
        target = np.ascontiguousarray(target / self._unit)
        return kind(n, *parameters), target, self._unit * scale, {"baseline": self._baseline}
