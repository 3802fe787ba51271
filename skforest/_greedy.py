"""Forests whose trees are grown node by node."""

from __future__ import annotations

import math
from abc import abstractmethod
from types import SimpleNamespace

import numpy as np

from ._base import BaseForest, Integral, Interval, Real, StrOptions
from ._kernels.grow import Grower
from ._kernels.projection import AxisSampler
from ._kernels.surrogate import StumpSplitter
from .forest.edit import shrink

MAX_DEPTH = 2**31 - 1
SEARCHED = 1024  # rows in which the first cut of a stump is searched
VISITS = 20_000  # rows that n_epochs="auto" shows to a stump, in 3 to 30 epochs
MAX_EPOCHS = 30
MANY = 2**40


class GreedyForest(BaseForest):
    """What forests grown node by node share; not for direct use."""

    _parameter_constraints: dict = {
        **BaseForest._parameter_constraints,
        "max_features": [
            StrOptions({"auto", "sqrt", "log2"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0.0, None, closed="neither"),
            None,
        ],
        "min_weight_fraction_leaf": [Interval(Real, 0.0, 0.5, closed="both")],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "min_impurity_decrease": [Interval(Real, 0.0, None, closed="left")],
        "importance_type": [StrOptions({"impurity", "count"})],
    }

    def _resolve_max_features(self, n_features):
        value = self.max_features
        if value == "auto":
            return self._auto_max_features(n_features)
        if value == "sqrt":
            return max(1, int(np.sqrt(n_features)))
        if value == "log2":
            return max(1, int(np.log2(n_features)))
        if value is None:
            return n_features
        if isinstance(value, Integral):
            return int(value)
        return max(1, int(value * n_features))

    def _auto_bins(self):
        """Bins that the number of classes deserves."""
        return 32 if getattr(self, "n_classes_", 2) >= 10 else 64

    def _spread(self, rows):
        """Units of the features: of these rows, or of the trees that are added to."""
        if self.warm_start and hasattr(self, "forest_") and len(self.forest_.spread):
            return self.forest_.spread
        return rows.spread()

    def _fit_tree(self, rows, target, weight, seed, stop):
        # Divided by a power of two near the sum: no tree depends on the scale of the weights, not
        # even where logarithms of them tie.
        unit = np.ldexp(1.0, np.frexp(weight.sum())[1])
        weight = weight / unit
        chosen = np.flatnonzero(weight).astype(np.int32)
        min_split, min_leaf = self._min_samples(len(chosen))
        splitter = self._splitter(rows, target, weight, chosen, min_leaf, seed, stop)
        n_outputs = self._forest_options["n_outputs"]
        min_gain = self.min_impurity_decrease * weight.sum()
        if target.ndim == 2:
            # Given as a mean over outputs, in the units of y; the target is scaled.
            min_gain *= n_outputs / self._target_scale**2
        grower = Grower(
            splitter, self._depth_limit(), min_split, min_gain, self.max_leaf_nodes or 0
        )
        arrays = grower.grow() | splitter.directions() | splitter.values()
        arrays["node_weight"] = arrays["node_weight"] * unit
        arrays["gain"] = arrays["gain"] * np.float32(unit)
        arrays["tree_start"] = np.array([0, len(arrays["child"])])
        if target.ndim == 2:
            arrays["baseline"] = self._baseline
            arrays["value"] = arrays["value"] * np.float32(self._target_scale)
        meta = self._directions_meta(rows, arrays)
        forest = self._new_forest(arrays, **meta)
        # Best-first growth searches nodes that it never splits.
        return forest.compact() if self.max_leaf_nodes else forest

    def _depth_limit(self):
        """Depth at which nodes are leaves."""
        return MAX_DEPTH if self.max_depth is None else min(self.max_depth, MAX_DEPTH)

    @abstractmethod
    def _splitter(self, rows, target, weight, chosen, min_leaf, seed, stop):
        """The `NodeSplitter` of a tree.

        Parameters
        ----------
        rows, target, weight, seed, stop
            As in `_fit_tree`, but for the scale of the weights.
        chosen : ndarray of shape (n_chosen,), int32
            Rows of the tree.
        min_leaf : int
        """

    @abstractmethod
    def _directions_meta(self, rows, arrays):
        """Add arrays that the directions need; what else a Forest of them is told, as a dict."""


class ObliqueForest(GreedyForest):
    """What forests of hyperplanes over features in [0, 1] share; not for direct use."""

    _parameter_constraints: dict = {
        **GreedyForest._parameter_constraints,
        "weight_dtype": [StrOptions({"float32", "float16"})],
    }
    _criterion = "squared_error"
    _scales = True

    def _fit_tree(self, rows, target, weight, seed, stop):
        forest = super()._fit_tree(rows, target, weight, seed, stop)
        if self.weight_dtype == "float32" or stop[0]:
            return forest
        scale = self._target_scale if target.ndim == 2 else 1.0
        return shrink(forest, rows.X, target, weight, criterion=self._criterion, scale=scale)

    def _resolve(self, rows, target, goes_on):
        self.max_features_ = self._resolve_max_features(rows.X.shape[1])
        self._spread(rows)  # once, before the threads ask for it

    def _auto_max_features(self, n_features):
        return math.ceil(math.sqrt(n_features))

    def _directions_meta(self, rows, arrays):
        arrays |= {"spread": self._spread(rows), "offset": self._offset, "scale": self._scale}
        return {}

    def _search_arguments(
        self, rows, target, weight, chosen, min_leaf, seed, stop, sampler=None, *, exact=False
    ):
        """Arguments of a `SearchSplitter`: of features, unless there is a sampler.

        Exact cuts are sought among all rows of a node, others in some of a large node.
        """
        training_set = SimpleNamespace(
            X=rows.X,
            target=target,
            weight=weight,
            n_outputs=self._forest_options["n_outputs"],
            rows=chosen,
        )
        options = SimpleNamespace(
            criterion=self._criterion,
            sampler=sampler or AxisSampler(rows.X.shape[1]),
            n_candidates=self.max_features_,
            exact=exact,
            n_bins=self._auto_bins(),
            max_search_samples=len(chosen) if exact else min(len(chosen), SEARCHED),
            min_samples_leaf=min_leaf,
            min_weight_leaf=self.min_weight_fraction_leaf * weight.sum(),
            may_overflow=False,
        )
        return training_set, options, seed, stop

    def _stump_splitter(
        self,
        rows,
        target,
        weight,
        chosen,
        min_leaf,
        seed,
        stop,
        *,
        objective,
        nu=100.0,
        learning_rate=0.03,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        smoothing,
        row_norm,
        holdout=0.0,
        signs="current",
        leaves="counts",
        keep="best",
    ):
        """A splitter of hyperplanes; parameters as those of `CO2ForestClassifier`."""
        auto = n_epochs == "auto"
        arguments = self._search_arguments(rows, target, weight, chosen, min_leaf, seed, stop)
        arguments[1].__dict__.update(
            objective=objective,
            nu=nu,
            learning_rate=learning_rate,
            momentum=momentum,
            batch_size=batch_size,
            n_visits=VISITS if auto else MANY,
            max_epochs=MAX_EPOCHS if auto else n_epochs,
            smoothing=smoothing,
            row_norm=row_norm or 0.0,
            holdout=holdout,
            old_signs=signs == "old",
            gradient_leaves=leaves == "gradient",
            keep_last=keep == "last",
        )
        return StumpSplitter(*arguments)
