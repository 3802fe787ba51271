"""Growing trees node by node: `grow_tree`, options of the split search, and methods that grow.

A new split search is a kernel that extends `SearchSplitter` and a dataclass of its options; a
method names both in `splitter`.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from .._kernels.search.grow import Grower
from .._kernels.search.projection import AxisSampler, Sampler
from .._kernels.search.search import SearchSplitter
from ..forest.edit import to_half_precision, with_votes
from ..forest.statistics import exact_shares
from .method import Method

MAX_DEPTH = 2**31 - 1
# Chosen without a stored measurement.
SEARCHED = 1024  # default number of rows to search the cut of a large node


# ----------------------------------------------------------------------------------- grow one tree


@dataclass(frozen=True, kw_only=True)
class SplitterOptions:
    """Options of a search among random directions; see `SearchSplitter`."""

    criterion: str  # "gini", "entropy" or "squared_error"
    sampler: Sampler  # draws directions; it holds scratch memory, so each tree has its own
    n_candidates: int  # directions tried at a node
    exact: bool  # cut between any two rows, by sorting; otherwise between bins
    n_bins: int
    max_search_samples: int  # larger nodes are searched in a subset of this size, unless `exact`
    min_samples_leaf: int
    min_weight_leaf: float
    largest: float = np.inf  # at least the absolute value of every feature
    may_overflow: bool = False  # features are so large that a projection may exceed float32
    zooms: bool = False  # there are outliers: if one bin has most rows, divide it into bins


@dataclass(frozen=True)
class GrowthLimits:
    """Limits of growth."""

    max_depth: int
    min_samples_split: int
    min_gain: float  # minimum decrease of weight times impurity, in units of the target
    max_leaf_nodes: int = 0  # 0: no limit, and growth is depth first


def grow_tree(data, splitter, options, limits, seed, stop):
    """Grow one tree on its sample; return arrays of a `Forest`, with leaf values in units of y.

    `splitter` is a subclass of `SearchSplitter`, and `options` are its `SplitterOptions`. Training
    ends early if `stop`, uint8 of shape (1,), is not 0.
    """
    # Dividing weights by a power of two near their sum makes trees independent of their scale,
    # even if logarithms tie.
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


def search_splitter(**options):
    """Return a search among random directions, with keywords of `SplitterOptions`."""
    return SearchSplitter, SplitterOptions(**options)


# ------------------------------------------------------------------------------- methods that grow


@dataclass(frozen=True, kw_only=True)
class GrowthSettings:
    """The parameters of forests whose trees are grown node by node, with every value resolved."""

    n_estimators: int
    max_features: int  # directions tried at a node
    max_bins: int
    max_search_samples: int | None
    exact: bool  # as in `SplitterOptions`
    max_depth: int
    min_samples_split: int | float
    min_samples_leaf: int | float
    min_weight_fraction_leaf: float
    max_leaf_nodes: int  # 0: no limit
    min_impurity_decrease: float
    has_votes: bool = False  # do trees vote, each for one class?


class GrowingMethod(Method):
    """Methods whose trees are grown node by node; `settings` are `GrowthSettings`."""

    @property
    def n_members(self):
        """int: number of trees."""
        return self.settings.n_estimators

    def train(self, sample, seed, control):
        """Grow one tree."""
        return self.grow(sample, seed, control.stop), {}

    def joined(self, forests, before=None, consume=False):
        """One forest of trees; the new ones vote if they should."""
        if self.settings.has_votes:
            forests = [with_votes(forest) for forest in forests]
        return super().joined(forests, before, consume)

    def grow(self, sample, seed, stop):
        """Grow a tree; return it as a Forest."""
        splitter, options = self.splitter(sample)
        arrays = grow_tree(sample, splitter, options, self.limits(sample), seed, stop)
        metadata = self.directions_metadata(sample, arrays)
        forest = self.task.forest(arrays, sample, **metadata)
        # Best-first growth finds directions for nodes that it never splits.
        return forest.compact() if self.settings.max_leaf_nodes else forest

    @abstractmethod
    def splitter(self, sample):
        """Return the kernel class that splits the nodes of a tree, and its `SplitterOptions`."""

    @abstractmethod
    def directions_metadata(self, sample, arrays):
        """Add the arrays that directions need; return further arguments of the Forest."""

    def search_options(self, sample, **options):
        """Return keywords of `SplitterOptions` to search single features; `options` override."""
        settings = self.settings
        _, min_leaf = self.min_samples(sample)
        options = {
            "criterion": self.task.criterion,
            "n_candidates": settings.max_features,
            "exact": settings.exact,
            "n_bins": settings.max_bins,
            "max_search_samples": settings.max_search_samples,
            "min_samples_leaf": min_leaf,
            "min_weight_leaf": settings.min_weight_fraction_leaf * sample.weight.sum(),
        } | options
        if "sampler" not in options:
            options["sampler"] = AxisSampler(sample.X.shape[1])
        n_rows = np.count_nonzero(sample.weight)
        searched = None if options["exact"] else options["max_search_samples"]
        options["max_search_samples"] = n_rows if searched is None else min(n_rows, searched)
        return options

    def limits(self, sample):
        """Return the `GrowthLimits` of a tree."""
        settings = self.settings
        min_split, _ = self.min_samples(sample)
        min_gain = settings.min_impurity_decrease * sample.weight.sum()
        if not sample.is_classification:
            # The parameter is a mean over outputs in units of y, but the target has been scaled.
            min_gain *= sample.y.shape[1] / sample.target_scale**2
        return GrowthLimits(settings.max_depth, min_split, min_gain, settings.max_leaf_nodes)

    def min_samples(self, sample):
        """Return min_samples_split and min_samples_leaf as counts."""
        n_rows = np.count_nonzero(sample.weight)
        split, leaf = self.settings.min_samples_split, self.settings.min_samples_leaf
        if not isinstance(split, Integral):
            split = max(2, int(np.ceil(split * n_rows)))
        if not isinstance(leaf, Integral):
            leaf = max(1, int(np.ceil(leaf * n_rows)))
        return max(split, 2 * leaf), leaf


@dataclass(frozen=True, kw_only=True)
class ObliqueSettings(GrowthSettings):
    """The parameters of forests of hyperplanes over scaled features."""

    weight_dtype: str


class ObliqueMethod(GrowingMethod):
    """Methods whose trees have hyperplanes; `settings` are `ObliqueSettings`."""

    def prepared(self, data, members, request):
        """Compute the units of the features once."""
        data.unit()
        return data, self

    def grow(self, sample, seed, stop):
        """Grow a tree; return it as a Forest, with weights in `weight_dtype`."""
        forest = super().grow(sample, seed, stop)
        if self.settings.weight_dtype == "float32" or stop[0]:
            return forest
        return to_half_precision(forest, sample, self.task.criterion)

    def directions_metadata(self, sample, arrays):
        """Add the deviations of the features, which importances need."""
        arrays["deviation"] = sample.deviation()
        return {}
