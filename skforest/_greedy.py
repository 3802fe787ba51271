"""Growing trees node by node: `grow_tree`, options of the split search, base classes.

A new split search is a kernel that extends `SearchSplitter` and a dataclass of its options; an
estimator names both in `_splitter`.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass, replace

import numpy as np

from ._base import BaseForest, Integral, Interval, Real, RealNotInt, StrOptions
from ._kernels.grow import Grower
from ._kernels.projection import AxisSampler, Sampler
from ._kernels.search import SearchSplitter
from ._kernels.surrogate import StumpSplitter
from .forest.edit import to_half_precision
from .forest.statistics import exact_shares

MAX_DEPTH = 2**31 - 1
SEARCHED = 1024  # rows among which the cut of a large node is searched by default
STUMP_VISITS = 20_000  # n_epochs="auto": rows shown to a stump, in 3 to 30 epochs
MAX_STUMP_EPOCHS = 30
UNLIMITED = 2**40


# ----------------------------------------------------------------------------------- grow one tree


@dataclass(frozen=True, kw_only=True)
class SplitterOptions:
    """What a search among random directions needs; see `SearchSplitter`."""

    criterion: str  # "gini", "entropy" or "squared_error"
    sampler: Sampler  # draws directions; it holds scratch memory, so each tree has its own
    n_candidates: int  # directions tried at a node
    exact: bool  # cut between any two rows, by sorting; else between bins
    n_bins: int
    max_search_samples: int  # larger nodes are searched in such a subset, unless `exact`
    min_samples_leaf: int
    min_weight_leaf: float
    may_overflow: bool = False  # are features so large that a projection may exceed float32?
    zooms: bool = False  # make bins again within one that has most rows: are there outliers?


@dataclass(frozen=True, kw_only=True)
class StumpOptions(SplitterOptions):
    """What the optimisation of a hyperplane adds; as the parameters of `CO2ForestClassifier`."""

    objective: str
    nu: float = 100.0
    learning_rate: float = 0.03
    momentum: float = 0.9
    batch_size: int = 100
    n_visits: int = STUMP_VISITS
    max_epochs: int = MAX_STUMP_EPOCHS
    smoothing: float
    row_norm: float
    holdout: float = 0.0
    old_signs: bool = False
    gradient_leaves: bool = False
    keep_last: bool = False
    constant_rate: bool = False


@dataclass(frozen=True)
class GrowthLimits:
    """When growth ends."""

    max_depth: int
    min_samples_split: int
    min_gain: float  # least decrease of weight times impurity, in units of the target
    max_leaf_nodes: int = 0  # 0: no limit, and growth is depth first


def grow_tree(data, splitter, options, limits, seed, stop):
    """Grow one tree on its sample: arrays of a `Forest`, with leaf values in the units of y.

    `splitter` is a subclass of `SearchSplitter`, and `options` are its `SplitterOptions`. Training
    ends early where `stop`, uint8 of shape (1,), is not 0.
    """
    # Weights are divided by a power of two near their sum: no tree depends on their scale, not
    # even where logarithms of them tie.
    unit = np.ldexp(1.0, np.frexp(data.weight.sum())[1])
    grown = splitter(
        data.sample(data.weight / unit),
        replace(options, min_weight_leaf=options.min_weight_leaf / unit),
        seed,
        stop,
    )
    grower = Grower(
        grown,
        limits.max_depth,
        limits.min_samples_split,
        limits.min_gain / unit,
        limits.max_leaf_nodes,
    )
    arrays = grower.grow() | grown.directions() | grown.values()
    arrays["node_weight"] = arrays["node_weight"] * unit
    arrays["gain"] = arrays["gain"] * np.float32(unit)
    arrays["tree_start"] = np.array([0, len(arrays["child"])])
    arrays["baseline"] = data.baseline
    if data.is_classification:
        arrays["value"] = exact_shares(arrays["value"], arrays["value_start"])
    else:
        arrays["value"] = arrays["value"] * np.float32(data.target_scale)
    return arrays


# --------------------------------------------------------------------- estimators with grown trees


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
        "importance_type": [StrOptions({"impurity", "count"})],
    }
    _search_constraints: dict = {
        "splitter": [StrOptions({"hist", "exact"})],
        "max_bins": [StrOptions({"auto"}), Interval(Integral, 2, 1024, closed="both")],
        "max_search_samples": [Interval(Integral, 32, None, closed="left"), None],
    }

    def _fit_tree(self, data, seed, control, **shared):
        splitter, options = self._splitter(data, **shared)
        limits = self._growth_limits(data)
        arrays = grow_tree(data, splitter, options, limits, seed, control.stop)
        metadata = self._directions_metadata(data, arrays)
        forest = self._new_forest(arrays, data, **metadata)
        # Best-first growth searches nodes that it never splits.
        return forest.compact() if self.max_leaf_nodes else forest

    @abstractmethod
    def _splitter(self, data, **shared):
        """The kernel class that splits the nodes of a tree, and its `SplitterOptions`.

        `data` is the sample of the tree, `shared` what `_fit_forest` computed for all trees.
        """

    @abstractmethod
    def _directions_metadata(self, data, arrays):
        """Add arrays that the directions need; what else their Forest takes, as a dict."""

    def _search_options(self, data, **options):
        """`SplitterOptions` of a search among single features, as keywords; `options` override."""
        _, min_leaf = self._min_samples(data)
        own = {
            "criterion": self._criterion,
            "n_candidates": self.max_features_,
            "exact": False,
            "n_bins": self._auto_bins(),
            "max_search_samples": SEARCHED,
            "min_samples_leaf": min_leaf,
            "min_weight_leaf": self.min_weight_fraction_leaf * data.weight.sum(),
        } | options
        if "sampler" not in own:
            own["sampler"] = AxisSampler(data.X.shape[1])
        n_rows = np.count_nonzero(data.weight)
        searched = None if own["exact"] else own["max_search_samples"]
        own["max_search_samples"] = n_rows if searched is None else min(n_rows, searched)
        return own

    def _growth_limits(self, data):
        min_split, _ = self._min_samples(data)
        min_gain = self.min_impurity_decrease * data.weight.sum()
        if not data.is_classification:
            # The parameter is a mean over outputs in units of y; the target has been scaled.
            min_gain *= self.n_outputs_ / data.target_scale**2
        return GrowthLimits(self._depth_limit(), min_split, min_gain, self.max_leaf_nodes or 0)

    def _depth_limit(self):
        """Depth at which nodes are leaves."""
        return MAX_DEPTH if self.max_depth is None else min(self.max_depth, MAX_DEPTH)

    def _min_samples(self, data):
        """(min_samples_split, min_samples_leaf) as counts."""
        n_rows = np.count_nonzero(data.weight)
        split, leaf = self.min_samples_split, self.min_samples_leaf
        if not isinstance(split, Integral):
            split = max(2, int(np.ceil(split * n_rows)))
        if not isinstance(leaf, Integral):
            leaf = max(1, int(np.ceil(leaf * n_rows)))
        return max(split, 2 * leaf), leaf

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
        """Default number of bins, fewer where there are many classes to add up."""
        return 32 if np.max(getattr(self, "n_classes_", 2)) >= 10 else 64


class ObliqueForest(GreedyForest):
    """Estimators with hyperplanes over scaled features; not for direct use."""

    _parameter_constraints: dict = {
        "weight_dtype": [StrOptions({"float32", "float16"})],
    }
    _criterion = "squared_error"
    _scales_features = True
    _limits_features = "usual"

    def _fit_tree(self, data, seed, control, **shared):
        forest = super()._fit_tree(data, seed, control, **shared)
        if self.weight_dtype == "float32" or control.stop[0]:
            return forest
        return to_half_precision(forest, data, self._criterion)

    def _resolve_settings(self, data, is_warm_start):
        self.max_features_ = self._resolve_max_features(data.X.shape[1])
        data.unit()  # computed once, before threads ask for it

    def _auto_max_features(self, n_features):
        return math.ceil(math.sqrt(n_features))

    def _directions_metadata(self, data, arrays):
        arrays["spread"] = data.deviation()
        return {}

    def _first_cut_options(self, data, **options):
        """Options of the search for the single feature with which a hyperplane begins."""
        own = {"exact": self.splitter == "exact", "max_search_samples": self.max_search_samples}
        if self.max_bins != "auto":
            own["n_bins"] = self.max_bins
        return self._search_options(data, **own | options)

    def _stump_splitter(self, data, first_cut=None, **options):
        """The splitter of hyperplanes; `first_cut` and `options` as in `StumpOptions`."""
        first_cut = self._first_cut_options(data, **(first_cut or {}))
        return StumpSplitter, StumpOptions(**first_cut, **options)


def search_splitter(**options):
    """The splitter that searches among random directions, from keywords of `SplitterOptions`."""
    return SearchSplitter, SplitterOptions(**options)
