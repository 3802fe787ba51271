"""Floor 6: manifold forests.

R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests: Closing the Gap on
Neural Networks". At every node random directions are drawn that know how the features lie: sums over
patches of an image, a signal or a circle. Also here, as other distributions of directions: SPORF
(sparse random mixtures of features, Tomita et al.) and the random forest itself (Breiman).
"""

from __future__ import annotations

import numpy as np

from ._base import (
    BaseForest,
    ForestClassifierMixin,
    ForestRegressorMixin,
    Integral,
    Interval,
    Real,
    StrOptions,
    resolve_count,
)
from ._grow import Grower
from ._projection import AxisSampler, BoxSampler, SparseSampler
from ._split import SearchSplitter

MAX_DEPTH = 2**31 - 1


class _ManifoldForest(BaseForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        **BaseForest._parameter_constraints,
        "max_features": [
            StrOptions({"auto", "sqrt", "log2"}),
            Interval(Integral, 1, None, closed="left"),
            Interval(Real, 0.0, None, closed="neither"),
            None,
        ],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "min_impurity_decrease": [Interval(Real, 0.0, None, closed="left")],
        "projection": [StrOptions({"auto", "axis", "sparse", "patch"})],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "contrast": [StrOptions({"sum", "edge", "difference", "mix"})],
        "min_patch": ["array-like", Interval(Integral, 1, None, closed="left")],
        "max_patch": [
            StrOptions({"auto"}), "array-like", Interval(Integral, 1, None, closed="left")
        ],
        "wrap": ["array-like", "boolean"],
        "unordered": ["array-like", "boolean"],
        "placement": [StrOptions({"corner", "inside"})],
        "n_nonzeros": [Interval(Real, 0.0, None, closed="neither")],
        "nonzeros": [StrOptions({"poisson", "fixed"})],
        "splitter": [StrOptions({"hist", "exact"})],
        "max_bins": [StrOptions({"auto"}), Interval(Integral, 2, 1024, closed="both")],
        "max_search_samples": [Interval(Integral, 32, None, closed="left"), None],
        "importance_type": [StrOptions({"impurity", "count"})],
    }

    def _resolve(self, rows):
        n_features = rows.X.shape[1]
        self.projection_ = self.projection
        if self.projection == "auto":
            self.projection_ = "sparse" if self.feature_shape is None else "patch"
        self.feature_shape_ = self._resolve_shape(n_features)
        self.max_features_ = self._resolve_max_features(n_features)
        self.max_bins_ = self.max_bins
        if self.max_bins == "auto":
            self.max_bins_ = 32 if getattr(self, "n_classes_", 2) >= 10 else 64
        if self.projection_ == "patch":
            self.min_patch_, self.max_patch_ = self._resolve_patch()

    def _resolve_shape(self, n_features):
        if self.feature_shape is None:
            return (n_features,)
        shape = tuple(int(length) for length in np.atleast_1d(self.feature_shape))
        if min(shape, default=0) < 1 or np.prod(shape, dtype=object) != n_features:
            raise ValueError(
                f"feature_shape={self.feature_shape} must multiply to the {n_features} features of "
                "X, with all lengths at least 1"
            )
        return shape

    def _per_axis(self, name, dtype):
        """A parameter given once or per axis, as an array with one entry an axis."""
        value = np.atleast_1d(getattr(self, name)).astype(dtype)
        n_axes = len(self.feature_shape_)
        if value.shape not in ((1,), (n_axes,)):
            raise ValueError(
                f"{name}={getattr(self, name)} must be one value, or one for each of the {n_axes} "
                f"axes of feature_shape={self.feature_shape_}"
            )
        return np.ascontiguousarray(np.broadcast_to(value, (n_axes,)))

    def _resolve_patch(self):
        lengths = np.array(self.feature_shape_)
        low = self._per_axis("min_patch", np.int32)
        if isinstance(self.max_patch, str):
            root = np.ceil(np.sqrt(lengths)).astype(np.int32)
            high = np.where(self._per_axis("unordered", bool), lengths, root)
            high = np.minimum(np.maximum(high, low), lengths).astype(np.int32)
        else:
            high = self._per_axis("max_patch", np.int32)
        for name, size in (("min_patch", low), ("max_patch", high)):
            if (size < 1).any() or (size > lengths).any():
                raise ValueError(
                    f"{name}={getattr(self, name)} must lie between 1 and the lengths of "
                    f"feature_shape={self.feature_shape_}"
                )
        if (low > high).any():
            raise ValueError(
                f"min_patch={self.min_patch} must not exceed max_patch={self.max_patch}"
            )
        return low, high

    def _resolve_max_features(self, n_features):
        value = self.max_features
        if value == "auto":
            return max(1, int(np.sqrt(n_features)))
        if value == "sqrt":
            return max(1, int(np.sqrt(n_features)))
        if value == "log2":
            return max(1, int(np.log2(n_features)))
        if value is None:
            return n_features
        if isinstance(value, Integral):
            return int(value)
        return max(1, int(value * n_features))

    def _sampler(self, rows):
        """The distribution of directions; each tree has its own, they carry scratch."""
        n_features = rows.X.shape[1]
        if self.projection_ == "axis":
            return AxisSampler(n_features)
        if self.projection_ == "sparse":
            scale = np.ones(n_features, dtype=np.float32)
            mean = min(float(self.n_nonzeros), n_features)
            return SparseSampler(n_features, mean, self.nonzeros == "fixed", scale)
        return BoxSampler(
            self.feature_shape_,
            self._per_axis("wrap", bool),
            self._per_axis("unordered", bool),
            self.min_patch_,
            self.max_patch_,
            self.contrast,
            self.placement == "inside",
        )

    def _fit_tree(self, rows, target, weight, seed, stop):
        chosen = np.flatnonzero(weight).astype(np.int32)
        min_split, min_leaf = self._min_samples(len(chosen))
        total = weight.sum()
        exact = self.splitter == "exact"
        searched = len(chosen)
        if not exact and self.max_search_samples is not None:
            searched = min(searched, self.max_search_samples)
        n_outputs = self._forest_options["n_outputs"]
        splitter = SearchSplitter(
            rows.X,
            target,
            n_outputs,
            weight,
            chosen,
            self.criterion,
            seed,
            stop,
            self._sampler(rows),
            self.max_features_,
            exact,
            self.max_bins_,
            searched,
            min_leaf,
        )
        # min_impurity_decrease is a share of the total weight, a mean over outputs in regression.
        min_gain = self.min_impurity_decrease * total * (n_outputs if target.ndim == 2 else 1)
        depth = MAX_DEPTH if self.max_depth is None else min(self.max_depth, MAX_DEPTH)
        arrays = Grower(splitter, depth, min_split, min_gain, self.max_leaf_nodes or 0).grow()
        arrays.update(splitter.directions())
        arrays.update(splitter.values())
        arrays["tree_start"] = np.array([0, len(arrays["child"])])
        if target.ndim == 2:
            arrays["baseline"] = self._baseline
        forest = self._new_forest(
            arrays,
            feature_shape=self.feature_shape_,
            wrap=self._per_axis("wrap", bool),
            unordered=self._per_axis("unordered", bool),
        )
        # Best-first growth searches nodes that it never splits.
        return forest.compact() if self.max_leaf_nodes else forest


class ManifoldForestClassifier(ForestClassifierMixin, _ManifoldForest):
    """Forest on patches of structured features."""

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
        n_nonzeros=3.0,
        nonzeros="poisson",
        criterion="gini",
        splitter="hist",
        max_bins="auto",
        max_search_samples=1024,
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
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
        self.criterion = criterion
        self.splitter = splitter
        self.max_bins = max_bins
        self.max_search_samples = max_search_samples
        self.max_features = max_features
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.max_leaf_nodes = max_leaf_nodes
        self.min_impurity_decrease = min_impurity_decrease
        self.bootstrap = bootstrap
        self.max_samples = max_samples
        self.oob_score = oob_score
        self.class_weight = class_weight
        self.importance_type = importance_type
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start


class ManifoldForestRegressor(ForestRegressorMixin, _ManifoldForest):
    """Forest on patches of structured features, for real targets."""

    _parameter_constraints: dict = {
        **_ManifoldForest._parameter_constraints,
        "criterion": [StrOptions({"squared_error"})],
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
        n_nonzeros=3.0,
        nonzeros="poisson",
        criterion="squared_error",
        splitter="hist",
        max_bins="auto",
        max_search_samples=1024,
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
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
        self.criterion = criterion
        self.splitter = splitter
        self.max_bins = max_bins
        self.max_search_samples = max_search_samples
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
