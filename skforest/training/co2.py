"""Forests of hyperplanes that are optimised node by node, and optionally refined."""

from dataclasses import dataclass

import numpy as np

from .._kernels.co2.hyperplane import StumpSplitter
from .._kernels.co2.oc1 import CoordinateSplitter
from .._kernels.search.projection import GaussianSampler
from .alternating import AlternatingSettings, refine_tree
from .early_stopping import validation_mask
from .growing import ObliqueMethod, ObliqueSettings, SplitterOptions, search_splitter
from .joint import JointSettings, train_jointly
from .losses import UserKernel
from .user_leaves import UserLeaves, with_user_leaves

# n_epochs="auto": rows shown to a stump, in 3 to 30 epochs. Chosen without a stored measurement.
STUMP_VISITS = 20_000
MAX_STUMP_EPOCHS = 30
UNLIMITED = 2**40


@dataclass(frozen=True, kw_only=True)
class StumpOptions(SplitterOptions):
    """Further options to optimise a hyperplane, like the parameters of `CO2ForestClassifier`."""

    objective: str
    nu: float
    learning_rate: float
    momentum: float
    batch_size: int
    min_batches: int = 1
    max_weights: int = 0  # of a hyperplane; 0: no limit
    n_visits: int
    max_epochs: int
    smoothing: float
    row_norm: float
    holdout: float
    old_signs: bool
    gradient_leaves: bool
    keep_last: bool
    constant_rate: bool
    user_leaves: UserLeaves | None = None  # leaves with a loss of the user, for one tree


@dataclass(frozen=True, kw_only=True)
class CoordinateOptions(SplitterOptions):
    """Further search options of OC1, named like the parameters of the estimators."""

    n_restarts: int
    n_jumps: int


@dataclass(frozen=True, kw_only=True)
class CO2Settings(ObliqueSettings):
    """The parameters of CO2 forests, with every value resolved."""

    objective: str | None
    kernel: UserKernel | None = None  # a loss of the user; None: log loss or squared error
    bootstrap: bool
    nu: float = 100.0
    holdout: float = 0.0
    learning_rate: float = 0.03
    schedule: str = "plateau"
    momentum: float = 0.9
    n_epochs: int | str = "auto"
    batch_size: int = 100
    min_batches: int = 1
    max_weights: int | None = None
    smoothing: float
    row_norm: float | None
    signs: str = "current"
    leaves: str = "counts"
    keep: str = "best"
    n_restarts: int = 0
    n_jumps: int = 0
    refine: str | JointSettings | None  # "alternating", joint training, or none
    n_sweeps: int = 0  # sweeps of alternating refinement


class CO2Method(ObliqueMethod):
    """Trains forests of hyperplanes, one node after another; `settings` are `CO2Settings`."""

    def splitter(self, sample):
        """Choose single features, random hyperplanes, OC1, or optimised hyperplanes."""
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
        return StumpSplitter, StumpOptions(
            **self.search_options(sample),
            objective=settings.objective,
            nu=settings.nu,
            learning_rate=settings.learning_rate,
            momentum=settings.momentum,
            batch_size=settings.batch_size,
            min_batches=settings.min_batches,
            max_weights=settings.max_weights or 0,
            n_visits=STUMP_VISITS if is_auto else UNLIMITED,
            max_epochs=MAX_STUMP_EPOCHS if is_auto else settings.n_epochs,
            smoothing=settings.smoothing,
            row_norm=settings.row_norm or 0.0,
            holdout=settings.holdout,
            old_signs=settings.signs == "old",
            gradient_leaves=settings.leaves == "gradient",
            keep_last=settings.keep == "last",
            constant_rate=settings.schedule == "constant",
            user_leaves=self.user_leaves(sample),
        )

    def user_leaves(self, sample):
        """Return the leaves of a user's loss; None if there is no such loss."""
        kernel = self.settings.kernel
        if kernel is None or sample.is_classification:
            return None if kernel is None else UserLeaves(kernel)
        return UserLeaves(kernel, sample.baseline, sample.target_scale)

    def train(self, sample, seed, control):
        """Grow one tree, and refine it."""
        refine, criterion, stop = self.settings.refine, self.task.criterion, control.stop
        if not isinstance(refine, JointSettings):
            forest, kernel = self.grow(sample, seed, stop), self.settings.kernel
            if kernel is not None and not stop[0]:
                forest = with_user_leaves(forest, sample, kernel)
            if refine is None or stop[0]:
                return forest, {}
            most = self.settings.max_weights or 0
            how = AlternatingSettings(n_sweeps=self.settings.n_sweeps, max_weights=most)
            forest, curve = refine_tree(forest, sample, seed, stop, how, criterion)
            return forest, {"refine_curve_": curve}
        if refine.validation_fraction is not None:
            sample, _ = sample.in_copies()
        is_held_out = validation_mask(
            refine.validation_fraction, sample.weight, seed, sample.group
        )
        forest = self.grow(sample.sample(np.where(is_held_out, 0.0, sample.weight)), seed, stop)
        return train_jointly(
            forest, sample, is_held_out, seed, stop, refine, criterion, control.report
        )
