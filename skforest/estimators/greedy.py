"""Base classes of estimators whose trees are grown node by node."""

import numpy as np
from sklearn.base import is_classifier

from ..training.growing import MAX_DEPTH, SEARCHED
from ..training.losses import Loss, make_label_loss, make_loss
from .base import BaseForest, Integral, Interval, Real, RealNotInt, StrOptions

# Of procedures.
SEARCH_CONSTRAINTS = {
    "splitter": [StrOptions({"hist", "exact"})],
    "max_bins": [StrOptions({"auto"}), Interval(Integral, 2, 1024, closed="both")],
    "max_search_samples": [Interval(Integral, 32, None, closed="left"), None],
}
VOTING_CONSTRAINTS = {"voting": [StrOptions({"soft", "hard"})]}


class GreedyForest(BaseForest):
    """Estimators whose trees are grown node by node; not for direct use."""

    _parameter_constraints: dict = {
        "max_depth": [Interval(Integral, 1, None, closed="left"), None],
        "min_samples_split": [
            Interval(Integral, 2, None, closed="left"),
            Interval(RealNotInt, 0.0, 1.0, closed="right"),
        ],
        "min_samples_leaf": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0.0, 1.0, closed="neither"),
        ],
        "max_features": [
            StrOptions({"auto", "sqrt", "log2"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0.0, None, closed="neither"),
            None,
        ],
        "min_weight_fraction_leaf": [Interval(Real, 0.0, 0.5, closed="both")],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "min_impurity_decrease": [Interval(Real, 0.0, None, closed="left")],
    }

    @property
    def _has_votes(self):
        """Do trees vote, each for one class?"""
        return is_classifier(self) and getattr(self._procedure, "voting", "soft") == "hard"

    def _growth_settings(self, **resolved):
        """The `GrowthSettings` of the parameters, as keywords; `resolved` take precedence."""
        search, max_bins = self._procedure, getattr(self._procedure, "max_bins", "auto")
        min_decrease = getattr(search, "min_impurity_decrease", 0.0)
        settings = {
            "n_estimators": self.n_estimators,
            "max_bins": self._auto_bins() if max_bins == "auto" else max_bins,
            "max_search_samples": getattr(search, "max_search_samples", SEARCHED),
            "exact": getattr(search, "splitter", "hist") == "exact",
            "max_depth": self.max_depth,
            "min_samples_split": getattr(self, "min_samples_split", 2),
            "min_samples_leaf": self.min_samples_leaf,
            "min_weight_fraction_leaf": self.min_weight_fraction_leaf,
            "max_leaf_nodes": self.max_leaf_nodes or 0,
            "min_impurity_decrease": getattr(self, "min_impurity_decrease", min_decrease),
            "has_votes": self._has_votes,
        } | resolved
        depth = settings["max_depth"]
        return settings | {"max_depth": MAX_DEPTH if depth is None else min(depth, MAX_DEPTH)}

    def _resolve_max_features(self, n_features, auto):
        """The number of directions at a node; `auto` is the value of "auto"."""
        value = self.max_features
        if value == "auto":
            return auto
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
        """Default number of bins, smaller if there are many classes to add up."""
        return 32 if np.max(getattr(self, "n_classes_", 2)) >= 10 else 64


class ObliqueForest(GreedyForest):
    """Estimators with hyperplanes over scaled features; not for direct use."""

    _parameter_constraints: dict = {
        "weight_dtype": [StrOptions({"float32", "float16"})],
    }
    _criterion = "squared_error"
    _scales_features = True
    _limits_features = "usual"

    @property
    def _map_scaling(self):
        return getattr(self._procedure, "scaling", "minmax")

    def _user_kernel(self, data):
        """The kernel of a user's `Loss`, if the parameter `loss` is one; otherwise None."""
        if not isinstance(self.loss, Loss):
            return None
        if is_classifier(self):
            loss = make_label_loss(self.loss, self.n_classes_)
        else:
            loss = make_loss(self.loss, self.n_outputs_)
        loss.scale.check(data.y, data.weight)
        return loss.new_kernel()
