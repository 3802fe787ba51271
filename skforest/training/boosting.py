"""Oblique boosting: bags of boosted trees, early stopping, and more rounds by a warm start."""

import math
import time
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from .._kernels.base.rows import tree_seed
from ..forest.edit import calibrated
from ..forest.statistics import responses
from .boosting_rounds import BoostingTraining, LeafRefit, TrainedRounds
from .boosting_rows import BoostingRows
from .early_stopping import balanced_folds, draw_held_out
from .losses import TrainingLoss
from .method import Method
from .threads import thread_count

LARGEST_DEPTH = 30
# Share of the rows that a single bag holds out, as with five bags, but at most so many rows. If it
# is small, more rows would hardly change the bag, and it is not trained again.
HELD_OUT, HELD_OUT_ROWS, SMALL_SHARE = 0.2, 10_000, 0.1
# Factor of the best number of rounds of a bag, because an average of bags overfits later. Chosen
# without a stored measurement.
KEPT = 1.5
# Share of the time of a training that is enough to fit its leaves again. This and the next number
# were chosen without a stored measurement.
LEAF_REFIT = 0.3
GIVEN_ROWS = 100  # fewer rows of `X_val` do not determine a mean well enough to calibrate by it


@dataclass(frozen=True, kw_only=True)
class BoostingSettings:
    """The parameters of oblique boosting, with every value resolved."""

    loss: TrainingLoss
    n_rounds: int
    n_bags: int
    learning_rate: float
    max_depth: int | None  # None: LARGEST_DEPTH
    max_leaf_nodes: int  # 0: no limit, and trees grow level by level; otherwise best first
    min_samples_leaf: int
    l2: float  # positive, because the curvatures of a node may all be 0
    subsample: float
    n_directions: int
    feature_shape: tuple | None  # splits compare boxes of this array; None: mixtures
    # Sign of the change of raw predictions along each feature, 0 if it is free: int8 of shape
    # (n_features,). None: no constraints.
    monotonic: np.ndarray | None
    interacting: np.ndarray | int | None  # groups of columns, see `Interactions`; None: all
    # Rows for early stopping: "X_val", or rows of X held out by "groups" or one by one ("rows").
    # None: no early stopping.
    held_out: str | None
    n_iter_no_change: int
    # Of the held-out rows: ``scoring.of(y, weight)`` has a method `score` of their response. None:
    # their loss is compared.
    scoring: object | None = None
    linear_leaves: bool = False
    linear_start: float | None = None  # penalty, in units of the mean curvature of a row
    keeps_rounds: bool = False  # record unrounded leaves, for a warm start
    adds_rounds: bool = False  # add rounds to the bags of the last fit, not bags
    warns: bool = True  # warn if training diverged

    @property
    def depth(self):
        """int: largest depth of a leaf."""
        return int(self.max_depth or LARGEST_DEPTH)

    @property
    def max_leaves(self):
        """int: `max_leaf_nodes`, or 0 where the depth implies it."""
        return self.max_leaf_nodes if self.max_leaf_nodes < 2**self.depth else 0

    @property
    def early_stopping(self):
        """bool: whether training is stopped early."""
        return self.held_out is not None

    @property
    def holds_out_rows(self):
        """bool: whether bags hold out rows of X."""
        return self.held_out in ("groups", "rows")

    @property
    def n_folds(self):
        """int: number of folds of X, one of which each bag holds out; 0 if it holds out none."""
        return self.n_bags if self.holds_out_rows else 0

    @property
    def kept(self):
        """float: number of rounds to keep, divided by the best number of rounds."""
        return KEPT if self.n_bags > 1 else 1.0


@dataclass(frozen=True)
class Continuation:
    """Facts about the previous fit, for a warm start."""

    n_rounds: int  # number of rounds that it asked for
    n_folds: int  # `BoostingSettings.n_folds` of the first bags
    fixed: dict  # recorded parameters that must not change

    def adds_rounds(self, settings, n_bags, reasons):
        """Return whether a warm start adds rounds to the last `n_bags` bags; else it adds bags.

        `reasons` say why bags hold out rows of X, or why they do not. ValueError if neither is
        possible.
        """
        if settings.n_rounds < self.n_rounds:
            raise ValueError(
                f"n_estimators={settings.n_rounds} must be larger or equal to the "
                f"{self.n_rounds} rounds of the last fit when warm_start=True"
            )
        if settings.n_rounds == self.n_rounds or settings.n_bags < n_bags:
            return False
        if bool(self.n_folds) != bool(settings.n_folds):
            raise ValueError(
                f"n_estimators={settings.n_rounds} cannot be increased when warm_start=True: the "
                f"last fit {'held' if self.n_folds else 'did not hold'} out rows of X for early "
                f"stopping, and this one, with {reasons}, "
                f"{'does' if settings.n_folds else 'does not'}"
            )
        if self.n_folds != settings.n_folds:
            raise ValueError(
                f"n_estimators={settings.n_rounds} cannot be increased after, or together with, a "
                f"change to n_bags={settings.n_bags}: with another number of bags, early stopping "
                "holds out different rows"
            )
        return True


def known_rounds(estimator_seed, bags, recorded, n_rounds):
    """Return the rounds of the last fit: a dict from the seeds of bags to pairs of TrainedRounds.

    The first TrainedRounds are from the training with held-out rows if the bag was then trained
    again on all rows. The second ones are the trees that the bag kept. `bags` are Forests with
    `n_rounds` rounds. `recorded` are the recorded pairs, without trees, or None: then, the first
    training is repeated, and not cut by a time limit before it has as many rounds.
    """
    if recorded is None:
        recorded = [(TrainedRounds(n_least=n), TrainedRounds(n)) for n in n_rounds]
    return {
        tree_seed(estimator_seed, bag): (first, replace(last, forest=forest))
        for bag, ((first, last), forest) in enumerate(zip(recorded, bags))
    }


def in_training_copies(data):
    """Return the rows that bags draw from and hold out, with copies as rows of their own.

    If all copies of a frequent row were held out together, samples would be biased. Without
    samples, a frequent row would be most of a small leaf, whose quantiles are of few rows then.
    """
    return data.in_copies()[0] if data.fold is None else data


class BoostingMethod(Method):
    """Trains bags of boosted trees; `settings` are `BoostingSettings`.

    Parameters
    ----------
    seed : int
        Seed of the folds that bags leave out.
    known : dict
        Rounds to which new ones are added, see `known_rounds`.
    """

    units = "bag", "round"
    keeps_parts = True
    only_joins = False  # predictions are calibrated in the end
    takes_turns = True

    def __init__(self, settings, task, *, seed, known=None):
        super().__init__(settings, task)
        self.seed, self.known = seed, known or {}
        self.rows, self.n_jobs, self.learns_held_out = None, None, True  # see `prepared`
        self.checkpoint = None  # and the name of the bag

    @property
    def n_members(self):
        """int: number of bags."""
        return self.settings.n_bags

    def keeps_folds(self, n_folds):
        """Return whether bags leave out folds anyway, as in a blend."""
        return self.settings.early_stopping and 1 < self.n_members <= n_folds

    def prepared(self, data, members, request):
        """Bin the rows once, and assign folds, so that each of several bags leaves out another."""
        settings = self.settings
        data = in_training_copies(data)
        if data.fold is None and settings.n_folds > 1 and len(data) > 1:
            n_folds = min(settings.n_folds, len(data), data.n_groups)
            fold = balanced_folds(data.y[:, 0], n_folds, self.seed, data.group)
            data = data.with_folds(fold, n_folds)
        data = data.joined_with_validation()
        if self.known and request.limit is not None:  # keep all bags of the last fit
            request.limit.at_least = len(self.known)
        prepared, n_jobs = copy(self), request.n_jobs
        prepared.rows, prepared.n_jobs = BoostingRows(data, settings, thread_count(n_jobs)), n_jobs
        prepared.learns_held_out = request.learns_held_out
        return data, prepared

    def with_checkpoint(self, checkpoint, name):
        method = copy(self)
        method.checkpoint = checkpoint, name
        return method

    # ----------------------------------------------------------------------------------- training

    def _trained(self, part, sample, settings, weight, held_out, *, seed, control, known):
        """Return a `BoostingTraining` of these rows that has been run.

        With a checkpoint, it starts from the rounds of this part, "first" or "again", and saves
        further ones.
        """
        save = None
        if self.checkpoint is not None:
            checkpoint, name = self.checkpoint
            name = f"{name}-{part}"
            known = checkpoint.load(name) or known

            def save(training):
                if checkpoint.is_due(name):
                    rounds = training.trained_rounds(self.packed(training, sample))
                    checkpoint.save(name, rounds)

        given = self.rows, settings, weight, held_out, seed, control
        n_threads = thread_count(self.n_jobs) // max(self.n_members, sample.n_folds)
        return BoostingTraining(*given, known, save).run(n_threads)

    def train(self, sample, seed, control):
        """Train one bag, and let it learn from the rows of X that it held out, too.

        A single bag is then trained anew on all rows, unless it has held out few of them; of
        several bags, each keeps its splits.
        """
        held_out = self._held_out_weight(sample, seed)
        holds_out = not self.rows.n_given and held_out.any()  # rows of X, not of X_val
        calibration = self.settings.loss.calibration
        learns = holds_out and self.learns_held_out
        if sample.fold is None:
            learns &= np.count_nonzero(held_out) > SMALL_SHARE * len(sample)
        else:
            # Quantiles that are calibrated on unseen rows would be too far out with other leaves.
            learns &= calibration is None or calibration.takes_training_rows
        known_first, known_again = self.known.get(seed, (None, None))
        # Without a second training, the trees that the bag kept are from the first one.
        is_known_again = known_first is not None
        if not (learns and is_known_again):
            known_first, known_again = known_again, None
        weight = np.where(held_out > 0, 0.0, sample.weight)
        start = time.perf_counter()
        rows, given = (weight, held_out), {"seed": seed, "control": control, "known": known_first}
        training = self._trained("first", sample, self.settings, *rows, **given)
        forest = self.packed(training, sample)
        record = {"validation_scores_": np.array(training.scores)} | self._record(training)
        record["held_out"] = np.flatnonzero(held_out)
        if calibration is not None and holds_out:
            record["unseen"] = seed, calibration_part(forest, sample, held_out)
        if not (learns and training.trees):
            return forest, record
        seconds, first = time.perf_counter() - start, training.trained_rounds(forest)
        if sample.fold is not None:
            needed = LEAF_REFIT * seconds
        else:
            # Trees learn more slowly on more rows, so the number of rounds grows with the rows.
            growth = len(sample) / np.count_nonzero(weight)
            again = replace(self.settings, n_rounds=math.ceil(len(training.trees) * growth))
            needed = again.n_rounds * growth * seconds / max(len(training.losses) - 1, 1)
        # A warm start keeps what the last fit has learned.
        if not is_known_again and control.limit is not None and control.limit.left() < needed:
            return forest, record | self._record(training)
        record["before"] = forest
        if sample.fold is not None:
            training = LeafRefit(training, forest, weight + held_out).run()
        else:
            rows = sample.weight, np.zeros(len(sample))
            control = control.labelled("training again on all rows")
            given = {"seed": seed, "control": control, "known": known_again}
            training = self._trained("again", sample, again, *rows, **given)
        return self.packed(training, sample), record | self._record(training, first)

    def _record(self, training, first=None):
        """Return the records of the trees that a bag keeps; `first` is as in `known_rounds`."""
        record = {"loss_curve_": np.array(training.losses), "n_iter_": len(training.trees)}
        if self.settings.keeps_rounds:
            record["_trained_rounds"] = first, training.trained_rounds()
        if training.is_late:
            record["ended"] = len(training.losses) - 1, self.settings.n_rounds, "round"
        if training.is_stopped:
            record["stopped"] = len(training.losses) - 1
        return record

    def _held_out_weight(self, sample, seed):
        """Return the weights of the held-out rows of a bag, 0 for other rows."""
        if not self.settings.early_stopping:
            return np.zeros(len(sample))
        if sample.left_out_weight is not None:
            return sample.left_out_weight
        if len(sample) < 2:
            return np.zeros(len(sample))
        share = min(HELD_OUT, HELD_OUT_ROWS / len(sample))
        return draw_held_out(sample.weight, share, seed, sample.group)

    def packed(self, training, sample):
        """Convert a trained bag to a Forest."""
        arrays = {"baseline": sample.baseline, "deviation": sample.deviation()}
        return self.task.forest(
            training.pack() | arrays,
            sample,
            aggregate="sum",
            n_shared_values=0,
            link=self.settings.loss.link,
            feature_shape=self.settings.feature_shape,
        )

    # ---------------------------------------------------------------------------------- finishing

    def finish(self, trained, before=None):
        """Join trained bags, and calibrate predictions if the loss has a calibration.

        Bags with more rounds replace the bags of the forest `before`; new bags follow them.
        """
        forest = self.joined(trained.forests, consume=True)
        if parts := self._calibration_parts(forest, trained):
            addition = self.settings.loss.calibration.fit(parts)
            for record in trained.records:
                if "before" in record:
                    record["before"] = calibrated(record["before"], addition)
            forest = calibrated(forest, addition)
        return forest if before is None or self.known else self.joined([before, forest])

    def _calibration_parts(self, forest, trained):
        """Return the rows for the calibration, see `calibration_part`.

        A calibration may use training rows if at most one bag has held out rows of X, and `X_val`
        has few rows.
        """
        calibration, data = self.settings.loss.calibration, trained.data
        if calibration is None:
            return []
        unseen = dict(record["unseen"] for record in trained.records if "unseen" in record)
        parts = [unseen[seed] for seed in sorted(unseen)]  # a fixed order of additions
        if data.left_out_weight is not None:  # all bags leave out the same rows
            n_given = np.count_nonzero(data.left_out_weight)
            if n_given >= GIVEN_ROWS or not calibration.takes_training_rows:
                return [calibration_part(forest, data, data.left_out_weight)]
        if calibration.takes_training_rows and len(parts) < 2:
            if len(trained.members) == 1:
                data = data.without_fold(trained.members[0])
            parts = [calibration_part(forest, data, data.weight)]
        return parts


def calibration_part(forest, data, weight):
    """Return targets, responses and weights of the rows of positive weight, for calibration."""
    rows = np.flatnonzero(weight)
    return data.y[rows], responses(forest, data.X[rows]), weight[rows]
