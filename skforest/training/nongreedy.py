"""Forests of trees that are grown, and whose splits and leaves are then trained together."""

from dataclasses import dataclass

import numpy as np

from .alternating import refine_grown
from .early_stopping import validation_mask
from .growing import ObliqueMethod, ObliqueSettings, search_splitter
from .joint import JointSettings, train_jointly


@dataclass(frozen=True, kw_only=True)
class NonGreedySettings(ObliqueSettings):
    """The parameters of non-greedy trees and forests, with every value resolved."""

    init: str  # how trees are grown: "co2", "soft" or "axis"
    joint: JointSettings
    validation_fraction: float | None  # None: no early stopping
    refine: str | None
    n_sweeps: int


class NonGreedyMethod(ObliqueMethod):
    """Trains trees as a whole; `settings` are `NonGreedySettings`."""

    def splitter(self, sample):
        """Of single features, or of optimised hyperplanes."""
        settings = self.settings
        if settings.init == "axis":
            return search_splitter(**self.search_options(sample))
        return self.stump_splitter(
            sample,
            objective=settings.init,
            smoothing=settings.joint.smoothing,
            row_norm=settings.joint.row_norm or 0.0,
        )

    def train(self, sample, seed, control):
        """Grow one tree, train its splits and leaves together, and refine it."""
        settings, criterion, stop = self.settings, self.task.criterion, control.stop
        if settings.validation_fraction is not None:
            sample, _ = sample.in_copies()
        is_held_out = validation_mask(
            settings.validation_fraction, sample.weight, seed, sample.group
        )
        forest = self.grow(sample.sample(np.where(is_held_out, 0.0, sample.weight)), seed, stop)
        forest, record = train_jointly(
            forest, sample, is_held_out, seed, stop, settings.joint, criterion, control.report
        )
        forest, refined = refine_grown(
            forest, sample, seed, stop, settings.refine, settings.n_sweeps, criterion
        )
        record["n_active_leaves_"] = int(forest.n_leaves[0])
        return forest, record | refined
