"""Training of one bag of a random hinge forest: initialisation, schedule, early stopping.

Lay et al. 2018, algorithm 1 (initialisation) and section 4.
"""

import math
import time
import warnings
from dataclasses import dataclass, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._kernels.base.loss import CallbackKernel
from .._kernels.base.rows import random_stream
from .._kernels.hinge.features import padded
from .._kernels.hinge.trainer import HingeTrainer, padded_vector
from .early_stopping import draw_weighted, warn_of_divergence
from .hinge_packing import HingePacker, compacted
from .losses import robust_size

# Constants without a section of the paper were chosen without a stored measurement.
SPAN = 3.0  # initial thresholds are uniform in -3 .. 3 deviations (section 4)
COLUMNS = 0.25  # largest share of tests of columns if other features are learned
N_CHECKS = 40  # smallest number of evaluations of the loss, at most STEPS_OF_CHECK steps apart
STEPS_OF_CHECK = 500
PLATEAU = 3, 0.3  # evaluations without progress before the rate is reduced, and its factor
FIRST_ROWS = 2048  # rows for the initial statistics of features
COPIED = "direction mean variance tests leaf value head".split()  # arrays of the best model


@dataclass(frozen=True, kw_only=True)
class BagSettings:
    """Settings to train one bag, like the parameters of `RandomHingeForestClassifier`."""

    n_trees: int
    depth: int
    fern: bool
    head: str  # "leaves", or "linear": a learned matrix maps the responses of trees to outputs
    n_linear: int  # learned features of each patch
    has_unit_weights: bool  # initial weights have variance 1, otherwise 1 / patch size
    identity: bool  # columns of the table are features, too
    optimizer: str
    learning_rate: float
    momentum: float
    weight_decay: float
    schedule: str
    dropout: float
    batch_size: int
    n_steps: int
    validation_fraction: float  # share of rows for early stopping; 0: no early stopping
    n_iter_no_change: int
    leaf_scale: float = 0.01  # standard deviation of the initial vectors of leaves (section 4)


def new_arrays(settings, receptive_fields, n_outputs, emphasis, random):
    """Draw the initial parameters (algorithm 1): a dict of arrays for `HingeTrainer`.

    Columns of the table that are features themselves are divided by `emphasis`.
    """
    n_linear, n_trees, depth = settings.n_linear, settings.n_trees, settings.depth
    n_patches, patch_size = receptive_fields.shape
    patch = padded(n_linear)
    first = n_patches * patch
    n_identity = len(emphasis) if settings.identity else 0
    n_tests = depth if settings.fern else 2**depth - 1
    direction = np.zeros((patch_size, patch), dtype=np.float32)
    length = 1.0 if settings.has_unit_weights else math.sqrt(patch_size)
    direction[:, :n_linear] = random.normal(size=(patch_size, n_linear)) / length
    variance = np.ones(first + padded(n_identity))
    variance[first : first + n_identity] = np.square(emphasis[:n_identity])
    threshold = random.uniform(-SPAN, SPAN, size=(n_trees, n_tests)).astype(np.float32)
    feature = _pool(n_patches * n_linear, n_identity, first, (n_trees, n_tests), random)
    is_linear = feature < first
    # Convert the number of a learned feature to its place; patches are padded.
    place = feature // max(n_linear, 1) * patch + feature % max(n_linear, 1)
    feature = np.where(is_linear, place, feature).astype(np.int32)
    n_leaves = 2**depth
    head = np.zeros((0, 0), dtype=np.float32)
    if settings.head == "linear":
        head = np.zeros((n_trees, padded(n_outputs)), dtype=np.float32)
        head[:, :n_outputs] = random.normal(size=(n_trees, n_outputs))
        n_outputs = 1  # outputs of one tree
    return {
        "direction": direction,
        "receptive_fields": receptive_fields,
        "mean": np.zeros(len(variance)),
        "variance": variance,
        "tests": np.stack([threshold.view(np.int32), feature], axis=2),
        "leaf": np.full((n_trees, n_leaves), -1, dtype=np.int32),
        "value": np.zeros((n_trees, 3, padded_vector(n_outputs)), dtype=np.float32),
        "head": head,
        "head_mean": np.zeros_like(head),
        "head_power": np.zeros_like(head),
        "direction_mean": np.zeros_like(direction),
        "direction_power": np.zeros_like(direction),
        "tests_mean": np.zeros_like(threshold),
        "tests_power": np.zeros_like(threshold),
        "counts": np.zeros(3, dtype=np.int64),
    }


def _pool(n_linear, n_identity, first, shape, random):
    """Draw features for tests uniformly, but at most the share `COLUMNS` from columns."""
    share = n_identity / (n_linear + n_identity)
    if n_linear:
        share = min(share, COLUMNS)
    is_column = random.uniform(size=shape) < share
    column = first + random.randint(max(n_identity, 1), size=shape)
    linear = random.randint(max(n_linear, 1), size=shape)
    return np.where(is_column, column, linear).astype(np.int32)


def weight_of_trained(source, weight, settings, random, group=None):
    """Return the weights with which a bag is trained, and a mask of its rows for early stopping.

    `random` is the random stream of the bag; `weight` are the weights of all rows of `source`.
    """
    apart = source.is_kept_apart
    trains = weight.copy() if apart is None else np.where(apart, 0.0, weight)
    mask = draw_weighted(trains, settings.validation_fraction, random, group)
    trains[mask] = 0.0
    return trains, mask


class HingeTraining:
    """The training of one bag; `target` is float64 of shape (n_rows, loss.n_columns).

    `loss` is a kernel, `control` a `Control`; `given` are X, target and weight of other rows for
    early stopping, or None.
    With `starts_from_best`, the forest before the first step, which predicts the best constant, is
    kept unless a later one has a smaller loss on these rows.
    """

    starts_from_best = False
    warns = True  # of divergence

    def __init__(
        self, source, target, loss, weight, settings, seed, control, group=None, given=None
    ):
        self.source, self.settings, self.loss, self.weight = source, settings, loss, weight
        self.control = control
        self.loss_curve, self.validation_scores = [], []
        self.n_done, self.best = 0, None
        self.end, self.bend = settings.n_steps, (0, 0.0)  # see `_end_in`
        random = random_stream(seed)
        n_outputs = loss.n_outputs
        trains, mask = weight_of_trained(source, weight, settings, random, group)
        chosen = np.flatnonzero(trains)
        arrays = new_arrays(settings, source.receptive_fields, n_outputs, source.emphasis, random)
        n_columns = source.scaled.shape[1]
        self.trainer = HingeTrainer(arrays, n_columns, loss, settings, seed, control.stop)
        self.table, self.target = source.table(), target
        self.trainer.set_rows(self.table, target, trains)
        self.trainer.init_statistics(min(FIRST_ROWS, max(2, len(chosen))))
        self.trained_rows = chosen
        self.validation_rows = np.flatnonzero(mask)
        if given is None:
            rows = self.validation_rows
            given = source.scaled[rows], target[rows], weight[rows]
        X, self.validation_target, self.validation_weight = given
        self.validation_table = replace(source, scaled=X, is_kept_apart=None).table()

    def run(self, report=None, limit=None):
        """Train for all steps, or until the validation loss stops decreasing.

        `report` is called with the number of completed evaluations and the total. A `TimeLimit`
        reduces the number of steps. ValueError if the loss becomes infinite before the first
        evaluation on validation rows.
        """
        settings, start = self.settings, time.perf_counter()
        size = min(max(1, -(-settings.n_steps // N_CHECKS)), STEPS_OF_CHECK)
        early_stopping = len(self.validation_target) > 0
        lowest, stalled, factor = np.inf, 0, 1.0
        if may_keep_start := early_stopping and self.starts_from_best:
            first, first_loss = self._copies(), self._validation_loss()
        while self.n_done < self.end and not self.control.stop[0]:
            self.control.pause()
            steps = np.arange(self.n_done, min(self.n_done + size, self.end))
            self._adapt_loss(self.trained_rows)
            loss = self.trainer.run(self._rates(steps) * factor)
            if self.control.stop[0]:
                return
            self.loss_curve.append(loss)
            self.n_done += len(steps)
            if limit is not None:
                seconds = (time.perf_counter() - start) / self.n_done
                if len(self.loss_curve) == 1:
                    limit.check(seconds * (settings.n_steps - self.n_done))
                self._end_in(int(limit.left() / seconds))
            watched = self._validation_loss() if early_stopping else loss
            if report is not None:
                held_out = {"loss": watched} if early_stopping else {}
                report(len(self.loss_curve), -(-settings.n_steps // size), **held_out)
            if not (np.isfinite(loss) and np.isfinite(watched)):
                self._fail()
                break
            if early_stopping:
                self.validation_scores.append(-watched)
            if watched < lowest:
                lowest, stalled = watched, 0
                if early_stopping:
                    self.best = self._copies()
                continue
            stalled += 1
            if settings.schedule == "plateau" and stalled % PLATEAU[0] == 0:
                factor *= PLATEAU[1]
            if early_stopping and stalled >= settings.n_iter_no_change:
                n_done = len(self.loss_curve)
                if report is not None and self.n_done < settings.n_steps:
                    report(n_done, n_done, best=n_done - stalled)
                break
        if self.best is not None:
            if may_keep_start and first_loss <= lowest:
                self.best = first
            self.trainer.restore(self.best)
        if isinstance(self.loss, CallbackKernel) and self.warns:
            self._warn_of_divergence()

    def _end_in(self, n_steps):
        """End after at most `n_steps` further steps, with the final rate of the schedule.

        The rest of the schedule is compressed into the remaining steps. `bend` is the step where
        this begins, and the share of the schedule before it.
        """
        end = min(self.n_done + n_steps, self.settings.n_steps)
        if end != self.end:
            self.bend = self.n_done, float(self._progress(self.n_done))
            self.end = end

    def _progress(self, steps):
        """Return the share of the schedule before each of some steps."""
        first, share = self.bend
        if not first:
            return steps / self.settings.n_steps
        return share + (1 - share) * (steps - first) / max(self.end - first, 1)

    def set_units(self, source, window):
        """Take features in the units of `source`, which has no rows.

        Statistics of inner products are computed again from the TrainingSet `window`; like units,
        they are constants in training.
        """
        arrays = self.trainer.arrays
        if self.settings.identity:
            n_columns = len(source.mean)
            first = len(arrays["variance"]) - padded(n_columns)
            arrays["variance"][first : first + n_columns] = source.emphasis**2
        self.source = source
        target = np.zeros((len(window), self.loss.n_columns))
        self.trainer.set_rows(self.window_table(window), target, window.weight)
        self.trainer.init_statistics(min(FIRST_ROWS, max(2, len(window))))
        self._forget_steps()

    def scale_responses(self, factor):
        """Multiply the response of each output, (n_outputs,)."""
        arrays = self.trainer.arrays
        values = arrays["head"] if self.settings.head == "linear" else arrays["value"][:, 0]
        values[:, : len(factor)] *= factor
        self._forget_steps()

    def _forget_steps(self):
        """Reset the state of the optimiser, because gradients have other units."""
        arrays = self.trainer.arrays
        for name in arrays:
            if name.endswith(("_mean", "_power")):
                arrays[name][...] = 0
        arrays["value"][:, 1:], arrays["counts"][0] = 0, 0

    def window_table(self, window):
        """Return the rows of a TrainingSet as learned features see them."""
        return replace(self.source, scaled=window.X).table()

    def partial_fit(self, data, target, share):
        """Train on each row of a part of a stream once, at the constant rate.

        `share`, at most 1, is what is kept of the changes: of the parameters, and of the state of
        the optimiser, since Adam makes steps of equal length for gradients of any scale.
        """
        arrays = self.trainer.arrays if share < 1 else {}
        before = {name: array.copy() for name, array in arrays.items()}
        self.source, self.weight = replace(self.source, scaled=data.X), data.weight
        self.table, self.target = self.source.table(), target
        self.trainer.set_rows(self.table, target, data.weight)
        self._adapt_loss(np.flatnonzero(data.weight))
        n_steps = -(-np.count_nonzero(data.weight) // self.settings.batch_size)
        loss = self.trainer.run(np.full(n_steps, self.settings.learning_rate))
        self.n_done += n_steps
        self.loss_curve.append(loss)
        if not np.isfinite(loss):
            self._fail()
        if before:
            self._keep(share, before)

    def _keep(self, share, before):
        """Keep only a share of the changes of the arrays since a copy of them."""
        for name, old in before.items():
            new = self.trainer.arrays[name]
            if name == "tests":  # numbers of features beside thresholds
                old, new = (array.view(np.float32)[..., 0] for array in (old, new))
            if name == "counts":  # without the number of vectors of leaves
                new[:2] = np.rint(old[:2] + share * (new[:2] - old[:2]))
            elif new.dtype.kind == "f":
                n = len(old)  # vectors of further leaves, which responded 0, are behind
                new[:n], new[n:] = old + share * (new[:n] - old), share * new[n:]
        self.trainer.restore({})  # the kernel reads statistics again

    def release_rows(self):
        """Drop the references to rows, so that they do not stay in memory between parts."""
        self.source = self.source.subset(slice(0))
        self.weight = self.table = self.target = self.trained_rows = None
        self.validation_table = self.validation_target = None

    def _adapt_loss(self, rows):
        """Tell the loss the size of residuals, measured on some of the first rows."""
        if self.loss.is_adaptive and self.n_done:
            rows = rows[:FIRST_ROWS]  # the canonical order is random
            raw = self.trainer.respond(self.source.subset(rows).table())
            self.loss.adapt(robust_size(self.target[rows] - raw, self.weight[rows]))

    def _warn_of_divergence(self):
        """Warn if training has increased the loss of the user on some of the first rows."""
        rows = self.trained_rows[:FIRST_ROWS]
        raw, y = self.trainer.respond(self.source.subset(rows).table()), self.target[rows]
        if (y == y[:1]).all():  # there is nothing to learn, and the loss may begin at 0
            return
        losses = [self.loss.losses(response, y) for response in (np.zeros_like(raw), raw)]
        before, after = (np.average(part, weights=self.weight[rows]) for part in losses)
        rate = self.settings.learning_rate
        warn_of_divergence("training", before, after, f"{self.n_done} steps", rate)

    def _rates(self, steps):
        rate = np.full(len(steps), float(self.settings.learning_rate))
        if self.settings.schedule == "cosine":
            rate *= 0.5 * (1 + np.cos(np.pi * self._progress(steps)))
        return rate

    def _validation_loss(self):
        raw = self.trainer.respond(self.validation_table)
        losses = self.loss.held_out_losses(raw, self.validation_target)
        return np.average(losses, weights=self.validation_weight)

    def _copies(self):
        arrays = self.trainer.arrays
        return {name: arrays[name].copy() for name in COPIED}

    def _fail(self):
        """Handle an infinite loss: warn if there is a model to return, otherwise raise."""
        settings = self.settings
        used, change = f"learning_rate={settings.learning_rate:.3g}", "learning_rate"
        if settings.weight_decay > 0:
            used += f" and weight_decay={settings.weight_decay:.3g}"
            change += " or weight_decay"
        message = (
            f"the loss became infinite after {self.n_done} steps with {used}; a smaller {change} "
            "may help"
        )
        if self.best is None or not self.warns:
            raise ValueError(message)
        warnings.warn(
            f"{message}; the model of least validation loss before that is kept",
            ConvergenceWarning,
            stacklevel=2,
        )

    @property
    def record(self):
        """Return the records of training by fitted attribute."""
        record = {
            "loss_curve_": np.array(self.loss_curve),
            "validation_scores_": np.array(self.validation_scores),
            "n_iter_": self.n_done,
        }
        if self.n_done == self.end < self.settings.n_steps:
            record["ended"] = self.n_done, self.settings.n_steps, "step"
        return record

    # ----------------------------------------------------------------------------- the Forest

    def arrays(self, unit):
        """Return arrays of a `Forest` of complete trees, with responses times `unit`."""
        packer = HingePacker(self.trainer, self.settings, self.source, self.loss.n_outputs)
        with np.errstate(all="ignore"):
            arrays = packer.arrays(self.table, self.weight, unit)
        if not all(np.isfinite(arrays[name]).all() for name in ("threshold", "value")):
            self.best = None  # the smallest loss was finite, but not the model in its units
            self._fail()
        return arrays

    def compacted(self, forest, keep_all=False):
        """Remove the subtrees that no training row reaches from the forest of these arrays.

        Each becomes one leaf with the value 0; the split above it stays, because its margin
        counts. Outputs for training rows do not change by a bit. With `keep_all`, leaves that only
        rows of earlier parts of a stream have reached are kept.
        """
        known = self.trainer.arrays["leaf"] >= 0 if keep_all else None
        return compacted(forest, self.source.scaled, self.weight, known).compact()
