"""Forests of soft trees that are grown, and then trained as a whole.

Hehn, Kooij and Hamprecht 2020, sections 2.3 to 2.5: all splits and leaves of a tree are trained by
EM (equations 6 to 13) while the steepness increases.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._kernels.base.rows import random_stream
from .._kernels.endtoend.hyperplane import SoftSplitter
from .._kernels.endtoend.trainer import SoftTrainer
from ..forest.edit import (
    DenseTree,
    prune,
    recount_and_prune,
    recount_with_values,
    repack,
    unpack,
    with_gate,
)
from ..forest.statistics import reached_nodes, recount, route, squared_error
from ..table.feature_grid import FeatureGrid
from .early_stopping import EarlyStopping, validation_mask
from .growing import ObliqueMethod, ObliqueSettings, SplitterOptions

# The constants were chosen without a stored measurement. The unit of a feature is its standard
# deviation, but at least this share of the largest one.
MIN_DEVIATION = 0.3
COUNTED_ROWS = 1000  # rows used to count active leaves; they take a small part of an epoch
MIN_UNIT = 1e-6  # features on a grid that vary less, relative to the largest, are left out
MIN_SPLIT_ROWS = 50  # with fewer rows, a tree without a split does not mean that training failed
# patch_size="auto": share of the features in a patch, and length from which on an axis is divided.
# Chosen on held-out training rows of MNIST, USPS and the digits of scikit-learn; no command
# repeats this.
PATCH_SHARE, LONG_AXIS = 0.3, 5


def is_image(shape):
    """Return whether an array of features has two long axes."""
    return sum(length >= LONG_AXIS for length in shape) >= 2


def auto_patch(shape):
    """Return the lengths of patches in an array of features; None if it is no image."""
    n_long = sum(length >= LONG_AXIS for length in shape)
    if not is_image(shape):
        return None
    share = PATCH_SHARE ** (1 / n_long)  # short axes are channels, which a patch contains
    return tuple(round(share * x) if x >= LONG_AXIS else x for x in shape)


# --------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Annealing:
    """Epochs, rates and steepness of training, like the parameters of `E2EDecisionForest`."""

    greedy_epochs: int
    finetune_epochs: int
    learning_rate: float
    batch_size: int
    steepness: float
    steepness_step: float
    schedule: str = "cosine"

    @property
    def grown(self):
        """float: steepness at the end of greedy growth."""
        return self.steepness + self.greedy_epochs * self.steepness_step

    @property
    def final(self):
        """float: steepness at the end of joint training."""
        return self.grown + self.finetune_epochs * self.steepness_step

    def at_final_steepness(self, W, threshold, n_epochs):
        """Rescale splits after some epochs to the final steepness.

        All trees of a forest share one steepness, and only its product with a margin counts.

        Parameters
        ----------
        W : ndarray of shape (n_splits, n_features), float32
        threshold : ndarray of shape (n_splits,), float32
        n_epochs : int
            Completed epochs of joint training.

        Returns
        -------
        W, threshold : ndarray
        """
        factor = np.float32((self.grown + n_epochs * self.steepness_step) / self.final)
        return W * factor, threshold * factor

    def rates(self):
        """Return the rates of all epochs of joint training: constant, or a cosine down to 0."""
        if self.schedule == "constant":
            return np.full(self.finetune_epochs, self.learning_rate)
        done = (np.arange(self.finetune_epochs) + 0.5) / max(self.finetune_epochs, 1)
        return self.learning_rate * 0.5 * (1 + np.cos(np.pi * done))


@dataclass(frozen=True)
class Units:
    """Units of the features in training, and the features that a split may use.

    Parameters
    ----------
    mean, unit : ndarray of shape (n_features,), float32
        Training uses the rows ``(x - mean) * unit``; a unit of 0 leaves a feature out.
    receptive_fields : ndarray of shape (n_places, patch_size), int32
        Features that a split may use, one row for each place.
    n_used : int
        Number of features of a split, drawn from one place.
    edges : ndarray of shape (n_edges, 2), int32
        Neighbours whose weights the smoothness term couples.
    """

    mean: np.ndarray
    unit: np.ndarray
    receptive_fields: np.ndarray
    n_used: int
    edges: np.ndarray


@dataclass(frozen=True, kw_only=True)
class SoftOptions(SplitterOptions):
    """Further options of soft splits, which joint training reads, too."""

    units: Units
    annealing: Annealing
    min_batches: int
    smoothness: float
    feature_dropout: float
    leaves: str  # "counts" or "trained"


@dataclass(frozen=True, kw_only=True)
class EndToEndSettings(ObliqueSettings):
    """The parameters of end-to-end forests, with every value resolved."""

    growth: str  # "level", "best" or "complete"
    annealing: Annealing
    min_batches: int
    leaves: str  # "counts" or "trained"
    smoothness: float
    feature_dropout: float
    feature_shape: tuple | None  # None: features have no order, and a unit each
    patch_size: tuple | None  # lengths along all axes of the grid
    validation_fraction: float | None  # None: no early stopping
    n_iter_no_change: int
    gate: str  # gate of trained trees


# ----------------------------------------------------------------------------------------- method


class EndToEndMethod(ObliqueMethod):
    """Trains forests of soft trees; `settings` are `EndToEndSettings`.

    `feature_units` are the Units that all trees share, see `prepared`.
    """

    def __init__(self, settings, task, sampling, feature_units=None):
        super().__init__(settings, task, sampling)
        self.feature_units = feature_units

    def prepared(self, data, members, request):
        """Compute the Units of all trees once."""
        data, _ = super().prepared(data, members, request)
        units = shared_units(data, self.settings)
        return data, EndToEndMethod(self.settings, self.task, self.sampling, units)

    def splitter(self, sample):
        """Search soft splits."""
        settings = self.settings
        return SoftSplitter, SoftOptions(
            **self.search_options(sample),
            units=self.feature_units,
            annealing=settings.annealing,
            min_batches=settings.min_batches,
            smoothness=settings.smoothness,
            feature_dropout=settings.feature_dropout,
            leaves=settings.leaves,
        )

    def directions_metadata(self, sample, arrays):
        """Add deviations and the soft gate; trees are soft while they are trained."""
        metadata = super().directions_metadata(sample, arrays)
        return metadata | {"gate": "sigmoid", "steepness": self.settings.annealing.final}

    def train(self, sample, seed, control):
        """Grow one tree, or start from a complete one, and train it as a whole."""
        settings = self.settings
        if settings.validation_fraction is not None:
            sample, _ = sample.in_copies()
        is_held_out = validation_mask(
            settings.validation_fraction, sample.weight, seed, sample.group
        )
        trained = sample.sample(np.where(is_held_out, 0.0, sample.weight))
        if settings.growth == "complete":
            forest = self._complete(trained, seed)
        else:
            forest = self.grow(trained, seed, control.stop)
        _, options = self.splitter(sample)
        stopping = EarlyStopping(is_held_out, settings.n_iter_no_change)
        forest, record = train_together(forest, sample, seed, control, options, stopping)
        if forest.n_nodes == 1 and self.feature_units.unit.any() and not control.stop[0]:
            self._warn_without_split(trained)
        return with_gate(forest, settings.gate), record

    def joined(self, forests, before=None, consume=False):
        """Join trees, and give all of them the gate of the settings."""
        gate = self.settings.gate
        forests = [with_gate(forest, gate) for forest in forests]
        before = None if before is None else with_gate(before, gate)
        return super().joined(forests, before, consume)

    def _complete(self, sample, seed):
        """Return a complete tree of random hyperplanes, with leaves from their rows."""
        arrays = complete_tree(sample, self.settings.max_depth, self.feature_units, seed)
        metadata = self.directions_metadata(sample, arrays)
        metadata["weight_dtype"] = self.settings.weight_dtype
        forest = self.task.forest(arrays, sample, **metadata)
        return recount(forest, sample, self.task.criterion)

    def _warn_without_split(self, sample):
        """Warn if a tree has no split although its rows differ and the limits allow one."""
        settings, rows = self.settings, sample.rows
        may_split = len(rows) >= max(MIN_SPLIT_ROWS, self.min_samples(sample)[0])
        differs = (sample.target[rows] != sample.target[rows[0]]).any()
        if may_split and differs and not settings.min_impurity_decrease:
            warnings.warn(
                f"a tree has no split: training with learning_rate="
                f"{settings.annealing.learning_rate:.3g} and smoothness="
                f"{settings.smoothness:.3g} separated no rows; smaller values may help",
                ConvergenceWarning,
                stacklevel=2,
            )


def shared_units(data, settings):
    """Return the Units of all trees of a forest."""
    n_features, n_used = data.X.shape[1], settings.max_features
    grid = FeatureGrid(settings.feature_shape, n_features)
    unit = _unit(data, settings.feature_shape is not None)
    edges = grid.edges() if settings.smoothness else np.zeros((0, 2), dtype=np.int32)
    fields = np.arange(n_features, dtype=np.int32)[None]
    if settings.patch_size is not None:
        fields = grid.receptive_fields(settings.patch_size)
    # Constant features are left out.
    if len(fields) > 1:
        fields = fields[(unit[fields] > 0).any(axis=1)] if unit.any() else fields
    elif n_used < n_features and unit.any():
        fields = np.flatnonzero(unit > 0).astype(np.int32)[None]
        n_used = min(n_used, fields.shape[1])
    mean = data.mean().astype(np.float32)
    return Units(mean, unit.astype(np.float32), fields, n_used, edges)


def _unit(data, on_grid):
    """Return factors that give features a common deviation; 0 for constant features.

    Features on a grid share one unit. Other features each have a unit, which is limited so that
    little variation is not amplified too much.
    """
    varies = data.X.max(axis=0) > data.X.min(axis=0)
    deviation = np.where(varies, data.unit().astype(np.float64), 0.0)
    if on_grid:
        scale = data.feature_map.scale_per_feature()
        unit = np.where(varies, 1 / (scale * ((deviation / scale).max() or 1.0)), 0.0)
        return np.where(unit > MIN_UNIT, unit, 0.0)
    deviation = np.maximum(deviation, MIN_DEVIATION * deviation.max())
    return np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)


def complete_tree(data, depth, units, seed):
    """Return the arrays of a complete tree, before its rows are counted.

    Hyperplanes have random directions of norm 1, in the Units of training, through the mean row.
    """
    random = random_stream(seed, depth)
    n_splits, n_outputs = 2**depth - 1, data.n_outputs
    W = np.zeros((n_splits, data.X.shape[1]), dtype=np.float32)
    for row in W:
        field = units.receptive_fields[random.randint(len(units.receptive_fields))]
        used = random.choice(field, units.n_used, replace=False)
        direction = random.normal(size=units.n_used)
        row[used] = direction / np.linalg.norm(direction) * units.unit[used]
    child = np.full(2 * n_splits + 1, -1, dtype=np.int32)
    child[:n_splits] = 2 * np.arange(n_splits) + 1  # in the order of a heap
    if data.is_classification:
        # One value row for each class; the rows of data determine the leaves later.
        pure = np.arange(n_outputs)
        values = {"value": np.ones(n_outputs), "value_start": np.append(pure, n_outputs)}
        values["value_index"] = pure
    else:
        child[n_splits:] = -1 - np.arange(n_splits + 1)
        values = {"value": np.zeros((n_splits + 1) * n_outputs)}
    return values | {
        "tree_start": np.array([0, len(child)]),
        "child": child,
        "node_weight": np.ones(len(child)),
        "threshold": (W.astype(np.float64) @ units.mean).astype(np.float32),
        "direction": data.X.shape[1] + np.arange(n_splits),
        "gain": np.zeros(n_splits),
        "dense": W,
        "baseline": data.baseline,
    }


# --------------------------------------------------------------------------------- joint training


def train_together(forest, data, seed, control, options, stopping):
    """Train all splits and leaves of a tree together, then recompute its leaves.

    Parameters
    ----------
    forest : Forest
        It has one tree, with the gate "sigmoid".
    data : TrainingSet
        The sample of the tree.
    seed : int
    control : Control
    options : SoftOptions
        Training reads the annealing, units, smoothness, criterion and limits of leaves.
    stopping : EarlyStopping
        Its held-out rows only count when leaves are recomputed.

    Returns
    -------
    forest : Forest
        With leaves="counts", leaves have the values of their rows, and those with too few rows are
        merged. With "trained", all leaves stay, with their trained values.
    record : dict
        "loss_curve_", "validation_scores_", "steepness_curve_", "active_leaves_curve_", "n_iter_".
    """
    W, threshold = unpack(forest)
    curve, steepness, n_active = [], [], []
    if len(threshold) and options.annealing.finetune_epochs and not control.stop[0]:
        training = _Training(forest, data, seed, control.stop, options, stopping)
        curve = training.run(control.report)
        if curve:
            W, threshold = training.planes()
            steepness, n_active = training.steepness, training.n_active
    # Also repack untrained trees, to store directions as sparse rows if these are smaller.
    forest = repack(forest, W, threshold, np.ones(len(threshold), dtype=bool))
    if options.leaves == "trained" and len(threshold) and not control.stop[0]:
        if not curve:  # the tree stays as it was grown
            training = _Training(forest, data, seed, control.stop, options, stopping)
        forest = recount_with_values(forest, data, options.criterion, training.leaf_values())
    # Some leaves of a complete tree have no rows.
    elif curve or len(stopping.rows) or forest.node_weight.min() == 0:
        forest = recount_and_prune(forest, data, options.criterion)
        if options.min_samples_leaf > 1 or options.min_weight_leaf > 0:
            forest = _merge_small_leaves(forest, data, options)
    return forest, {
        "loss_curve_": np.array(curve),
        "validation_scores_": np.array(stopping.scores),
        "steepness_curve_": np.array(steepness),
        "active_leaves_curve_": np.array(n_active, dtype=np.int64),
        "n_iter_": len(curve),
    }


class _Training:
    """The joint training of one tree; parameters as in `train_together`."""

    def __init__(self, forest, data, seed, stop, options, stopping):
        self.forest, self.stop, self.options, self.stopping = forest, stop, options, stopping
        weight = data.weight.copy()
        weight[stopping.rows] = 0
        self.data, self.validation_data = data.sample(weight), data.subset(stopping.rows)
        self.steepness, self.n_active = [], []  # one entry per epoch
        self.trainer = SoftTrainer(self.data, options, seed, stop, DenseTree.of(forest))

    def run(self, report=None):
        """Train for all epochs, or until the validation loss stops falling.

        Returns
        -------
        loss_curve : list of float
            Empty if the loss became infinite.
        """
        annealing, curve = self.options.annealing, []
        for epoch, rate in enumerate(annealing.rates()):
            steepness = annealing.grown + epoch * annealing.steepness_step
            loss = self.trainer.run(steepness, rate)
            if self.stop[0]:
                break
            if not np.isfinite(loss):
                warnings.warn(
                    f"the loss became infinite in epoch {epoch + 1} of joint training with "
                    f"learning_rate={annealing.learning_rate:.3g} and "
                    f"smoothness={self.options.smoothness:.3g}; the tree is kept as it was grown, "
                    "smaller values may help",
                    ConvergenceWarning,
                    stacklevel=3,
                )
                self.stopping.scores.clear()
                return []
            curve.append(loss)
            self.steepness.append(steepness)
            self.n_active.append(self.trainer.n_active_leaves(COUNTED_ROWS))
            loss = planes = None
            if len(self.stopping.rows):
                planes = annealing.at_final_steepness(*self.trainer.planes(), epoch + 1)
                loss = self._validation_loss(planes)
            n_epochs = annealing.finetune_epochs
            if self.stopping.ends(loss, planes, report, epoch + 1, n_epochs):
                break
        return curve

    def planes(self):
        """Return the hyperplanes of the last epoch, or of the best one in validation."""
        return self.trainer.planes() if self.stopping.best is None else self.stopping.best

    def leaf_values(self):
        """Return the leaf values after one more E-step, at the final steepness (equation 13).

        Returns
        -------
        value : ndarray of shape (n_leaves, n_outputs), float64
            Shares of classes, or means in units of the outputs.
        """
        self.trainer.run(self.options.annealing.final, 0.0)  # a rate of 0 moves no split
        values = self.trainer.leaf_values
        return values if self.data.is_classification else values[0] * self.data.target_scale

    def _validation_loss(self, planes):
        """Return the weighted mean squared error of soft routing on held-out rows.

        The likelihood is not used: it would be 0 if no leaf near a row has its class.
        """
        forest = repack(self.forest, *planes, np.ones(len(planes[1]), dtype=bool))
        forest = recount(forest, self.data, self.options.criterion)
        held_out = self.validation_data
        return squared_error(forest, held_out) / held_out.weight.sum()


def _merge_small_leaves(forest, data, options):
    """Merge leaves until each has enough rows and weight.

    A leaf that is too small is merged into its sibling; if both are, the lighter one is merged.
    """
    trains = data.weight > 0
    while len(forest.threshold):
        leaf = route(forest, data.X)[trains]
        n_rows = np.bincount(leaf, minlength=forest.n_nodes)
        weight = np.bincount(leaf, data.weight[trains], forest.n_nodes)
        small = (forest.child < 0) & (
            (n_rows < options.min_samples_leaf) | (weight < options.min_weight_leaf)
        )
        left = np.arange(1, forest.n_nodes, 2)  # siblings are adjacent
        both = small[left] & small[left + 1]
        lighter = forest.node_weight[left] <= forest.node_weight[left + 1]
        small[left[both & ~lighter]] = False
        small[left[both & lighter] + 1] = False
        if not small.any():
            return forest
        kept = np.flatnonzero((forest.child < 0) & ~small)
        forest = prune(forest, reached_nodes(forest, kept))
        forest = recount(forest, data, options.criterion)
    return forest
