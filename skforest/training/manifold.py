"""Forests whose splits are random patches, sparse combinations or single features."""

from dataclasses import dataclass

import numpy as np

from .._kernels.search.projection import AxisSampler, BallSampler, BoxSampler, SparseSampler
from ..table.feature_grid import FeatureGraph
from .growing import GrowingMethod, GrowthSettings, search_splitter


@dataclass(frozen=True, kw_only=True)
class ManifoldSettings(GrowthSettings):
    """The parameters of manifold forests, with every value resolved."""

    projection: str  # "axis", "sparse" or "patch"
    feature_shape: tuple
    wrap: tuple  # a bool for each axis
    unordered: tuple
    min_patch: np.ndarray | None  # (n_axes,), int32; None unless directions are patches
    max_patch: np.ndarray | None
    graph: FeatureGraph | None  # of the features; patches are then balls of the graph
    contrast: str
    is_inside: bool  # patches are inside the grid; otherwise only their corners are
    n_nonzeros: float
    has_fixed_nonzeros: bool
    has_scaled_weights: bool


class ManifoldMethod(GrowingMethod):
    """Trains forests of random directions; `settings` are `ManifoldSettings`."""

    def prepared(self, data, members, request):
        """Compute the statistics of rows for samplers once."""
        data.largest()
        if self.weights_are_scaled:
            data.unit()
        if self.settings.projection == "sparse":
            data.varying()
        if self.settings.projection != "patch":
            data.has_outliers()
        return data, self

    @property
    def weights_are_scaled(self):
        """bool: whether weights of features are in units of their deviations."""
        return self.settings.projection == "sparse" and self.settings.has_scaled_weights

    def sampler(self, data):
        """Return the distribution of directions, with scratch memory for one tree."""
        settings, n_features = self.settings, data.X.shape[1]
        if settings.projection == "axis":
            return AxisSampler(n_features)
        if settings.projection == "sparse":
            ones = np.ones(n_features, dtype=np.float32)
            unit = data.unit() if self.weights_are_scaled else ones
            varying = data.varying()
            mean = min(settings.n_nonzeros, max(1, len(varying)))
            return SparseSampler(n_features, mean, settings.has_fixed_nonzeros, unit, varying)
        if settings.graph is not None:
            # A patch of length 1 is a single feature.
            steps = int(settings.min_patch[0]) - 1, int(settings.max_patch[0]) - 1
            graph = settings.graph
            return BallSampler(graph.start, graph.neighbour, *steps, settings.contrast)
        return BoxSampler(
            settings.feature_shape,
            settings.wrap,
            settings.unordered,
            settings.min_patch,
            settings.max_patch,
            settings.contrast,
            settings.is_inside,
        )

    def splitter(self, sample):
        """Return a search among directions of the sampler."""
        sampler = self.sampler(sample)
        # Scaled sparse weights are at most the reciprocal of the smallest deviation.
        largest_weight = 1 / float(sample.unit().min()) if self.weights_are_scaled else 1.0
        largest = sample.largest()
        largest_sum = largest * sampler.max_terms * max(1.0, largest_weight)
        return search_splitter(
            **self.search_options(
                sample,
                sampler=sampler,
                zooms=self.settings.projection != "patch" and sample.has_outliers(),
                largest=largest,
                may_overflow=largest_sum > float(np.finfo(np.float32).max),
            )
        )

    def directions_metadata(self, sample, arrays):
        """Return the grid of the boxes, and add deviations."""
        if self.weights_are_scaled:
            arrays["deviation"] = sample.deviation()
        settings = self.settings
        return {
            "feature_shape": settings.feature_shape,
            "wrap": settings.wrap,
            "unordered": settings.unordered,
        }
