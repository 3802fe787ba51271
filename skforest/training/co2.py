"""Forests of hyperplanes that are optimised node by node, and refined together if asked for."""

from dataclasses import dataclass

from .._kernels.co2.oc1 import CoordinateSplitter
from .._kernels.search.projection import GaussianSampler
from ..forest.edit import with_votes
from .alternating import refine_grown
from .growing import (
    MAX_STUMP_EPOCHS,
    STUMP_VISITS,
    UNLIMITED,
    ObliqueMethod,
    ObliqueSettings,
    SplitterOptions,
    search_splitter,
)
from .joint import JointSettings


@dataclass(frozen=True, kw_only=True)
class CoordinateOptions(SplitterOptions):
    """What OC1's search adds to the options of a search; as the parameters of the estimators."""

    n_restarts: int
    n_jumps: int


@dataclass(frozen=True, kw_only=True)
class CO2Settings(ObliqueSettings):
    """The parameters of CO2 forests, with every value resolved."""

    objective: str | None
    nu: float
    learning_rate: float
    schedule: str
    momentum: float
    n_epochs: int | str
    batch_size: int
    holdout: float
    smoothing: float
    row_norm: float
    signs: str
    leaves: str
    keep: str
    n_restarts: int
    n_jumps: int
    refine: str | JointSettings | None
    n_sweeps: int
    bootstrap: bool
    has_votes: bool  # do trees vote, each for one class?


class CO2Method(ObliqueMethod):
    """Trains forests of hyperplanes, one node after another; `settings` are `CO2Settings`."""

    def splitter(self, sample):
        """Of single features, random hyperplanes, OC1, or optimised hyperplanes."""
        settings = self.settings
        if settings.objective in ("random", None):
            options = {}
            if settings.objective == "random":
                options["sampler"] = GaussianSampler(sample.X.shape[1])
            return search_splitter(**self.search_options(sample, **options))
        if settings.objective == "oc1":
            options = self.search_options(sample)
            return CoordinateSplitter, CoordinateOptions(
                **options, n_restarts=settings.n_restarts, n_jumps=settings.n_jumps
            )
        is_auto = settings.n_epochs == "auto"
        return self.stump_splitter(
            sample,
            objective=settings.objective,
            nu=settings.nu,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            batch_size=settings.batch_size,
            n_visits=STUMP_VISITS if is_auto else UNLIMITED,
            max_epochs=MAX_STUMP_EPOCHS if is_auto else settings.n_epochs,
            smoothing=settings.smoothing,
            row_norm=settings.row_norm,
            holdout=settings.holdout,
            old_signs=settings.signs == "old",
            gradient_leaves=settings.leaves == "gradient",
            keep_last=settings.keep == "last",
            constant_rate=settings.schedule == "constant",
        )

    def train(self, sample, seed, control):
        """Grow one tree, and refine it."""
        forest = self.grow(sample, seed, control.stop)
        refine, n_sweeps = self.settings.refine, self.settings.n_sweeps
        return refine_grown(
            forest, sample, seed, control.stop, refine, n_sweeps, self.task.criterion
        )

    def joined(self, forests, before=None, consume=False):
        """One forest of trees, which vote if they should."""
        forest = super().joined(forests, before, consume)
        return with_votes(forest) if self.settings.has_votes else forest
