"""Random hinge forests: training of bags, and calibration of the forest of all bags.

Probabilities of several bags have a temperature and a baseline, and quantiles have a shift. These
are found on held-out rows.
"""

from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from .._kernels.base.rows import random_stream
from ..forest.statistics import responses
from .blending import flattening
from .early_stopping import draw_weighted
from .hinge_bag import BagSettings, HingeTraining, weight_of_trained
from .hinge_input import HingeInput
from .losses import for_squared_errors, weighted_quantile
from .method import Method, joined, member_of, n_members
from .trials import quick_importances

# If the table has fewer rows than this, inner products read only so many of the most important
# columns. Chosen by time and accuracy on simulated tables of 100 rows and 2000 to 4000 columns;
# no command repeats this.
MANY_COLUMNS = 384
MIN_EMPHASIS = 1e-3  # the mean is about 1; chosen without a stored measurement
# The temperature is found on TEMPERATURE_ROWS rows, or half of the rows if there are fewer; tables
# with fewer than MIN_ROWS rows have no temperature. Chosen by
# `python -m benchmarks.measure.hinge few-rows`.
TEMPERATURE_ROWS, MIN_ROWS = 30, 20
# Of more rows that are left out, the first ones suffice, since the order of rows is random. The
# search takes half a second with so many rows.
MOST_ROWS = 10_000
# The temperature of one bag to this power is used for the mean of several bags. Chosen by the log
# loss of held-out training rows of 22 tables (`python -m benchmarks.measure.hinge temperature`).
TEMPERATURE_POWER = 0.7


@dataclass(frozen=True, kw_only=True)
class HingeSettings(BagSettings):
    """The parameters of hinge forests, with every value resolved."""

    n_bags: int
    n_directions: int  # the parameter; `n_linear` is 0 if columns are the only features
    # (n_patches, patch_size), int32: pixels under a kernel at each place; None for tables.
    receptive_fields: np.ndarray | None
    importance_power: float
    calibrate: bool  # find a temperature if rows can be held out
    held_out_fraction: float  # share of the rows for the temperature or the shift of quantiles
    temperature: float = 1.0  # temperature of the earlier bags in a warm start


class HingeMethod(Method):
    """Trains hinge forests, bag by bag; `settings` are `HingeSettings`.

    Parameters
    ----------
    settings, task, sampling
        See `Method`.
    loss : TrainingLoss
    seed : int
        Seed of the importances and of the held-out rows, which all bags share.
    """

    units = "bag", "evaluation"
    keeps_parts = True
    only_joins = False
    takes_turns = True

    def __init__(self, settings, task, sampling, loss, seed):
        super().__init__(settings, task, sampling)
        self.loss, self.seed = loss, seed
        self.source, self.finds_temperature = None, False  # see `prepared`
        self.known = {}  # see `emphasised`

    def __getstate__(self):
        return vars(self) | {"known": {}}  # futures stay in their process

    @property
    def n_members(self):
        """int: number of bags."""
        return self.settings.n_bags

    # ------------------------------------------------------------------------ shared by all bags

    def prepared(self, data, members, request):
        """Compute units of features, and hold out rows from all bags or from the first new one."""
        method, is_kept_apart = copy(self), None
        if self.loss.quantile is not None and data.validation is None:
            if not self.sampling.bootstrap:
                data, _ = data.in_copies()
            is_kept_apart = self.held_out(data)
        elif self._may_find_temperature(data, members[0]):
            data, _ = data.in_copies()
            mask = self.held_out(data)
            if mask.any():
                data = data.with_folds(np.where(mask, members[0], -1), self.settings.n_bags)
                method.finds_temperature = True
        source = self.input(data, np.ones(data.X.shape[1]))
        method.source, method.known = replace(source, is_kept_apart=is_kept_apart), {}
        return data, method

    def _may_find_temperature(self, data, n_before):
        """Return whether there are several bags and enough rows, and none are left out yet.

        A warm start keeps a temperature; after a single bag, there is none.
        """
        settings = self.settings
        is_wanted = settings.calibrate and settings.n_bags > 1 and data.fold is None
        is_first = n_before == 0 or (n_before == 1 and settings.temperature == 1)
        return is_wanted and is_first and len(data) >= MIN_ROWS

    def held_out(self, data):
        """Return a mask of the rows that calibrate the forest, the same in every call."""
        fraction = self.settings.held_out_fraction
        if self.loss.quantile is None:
            fraction = max(fraction, min(0.5, TEMPERATURE_ROWS / len(data)))
        return draw_weighted(data.weight, fraction, random_stream(self.seed), data.group)

    def emphasis(self, data):
        """Return factors of the features in inner products, from their importances; float64."""
        n_features, power = data.X.shape[1], self.settings.importance_power
        is_image = self.settings.receptive_fields is not None
        if is_image or not power or np.count_nonzero(data.weight) < 2:
            return np.ones(n_features)
        importances = quick_importances(for_squared_errors(data, self.loss.scale), self.seed)
        if not importances.any():
            return np.ones(n_features)
        emphasis = np.maximum(importances * n_features, MIN_EMPHASIS**2) ** power
        return np.maximum(emphasis, MIN_EMPHASIS)

    def input(self, data, emphasis, is_stream=False):
        """Return the rows, with features in the units of training."""
        settings = self.settings
        if settings.receptive_fields is not None:
            return HingeInput.of_images(data, settings.receptive_fields)
        n_read = data.X.shape[1]
        if settings.importance_power and not is_stream:
            n_read = max(MANY_COLUMNS, int(np.count_nonzero(data.weight)))
        return HingeInput.of_table(data, emphasis, settings.has_unit_weights, n_read)

    def emphasised(self, source, data, weight):
        """Return the input of a bag whose rows have these weights, with its `emphasis`.

        Importances do not know the labels of rows without weight: for many columns and few rows,
        they would tell a good part of them, and every score on such rows would be too good.
        """
        if self.settings.receptive_fields is not None or not self.settings.importance_power:
            return source
        new = Future()  # bags that leave out the same rows share the first one
        known = self.known.setdefault(weight.tobytes(), new)
        if known is new:
            try:
                data = data.sample(weight)
                found = self.input(data, self.emphasis(data))
                new.set_result((found.emphasis, found.receptive_fields))
            except BaseException as error:
                new.set_exception(error)
        emphasis, fields = known.result()
        return replace(source, emphasis=emphasis, receptive_fields=fields)

    # -------------------------------------------------------------------------------- one bag

    def train(self, sample, seed, control):
        """Train one bag; the first new bag may record the temperature of all bags."""
        source, rows = self.source, np.arange(len(sample))
        if self.settings.validation_fraction:
            copies, rows = sample.in_copies()
            if len(copies) > len(sample):
                sample, source = copies, source.subset(rows)
        is_apart = source.is_kept_apart
        if is_apart is not None and not sample.weight[~is_apart].any():
            sample = sample.sample(sample.count)  # it drew only rows that no bag sees
        random = random_stream(seed)
        trains, _ = weight_of_trained(source, sample.weight, self.settings, random, sample.group)
        source = self.emphasised(source, sample, trains)
        training = self.training(sample, source, seed, control)
        training.run(control.report, control.limit)
        bag, record = self.packed(training, sample), training.record
        record["held_out"] = rows[training.validation_rows]
        if self.source.is_kept_apart is not None:
            record["held_out"] = np.flatnonzero(self.source.is_kept_apart)
        if self.finds_temperature and sample.left_out_weight.any():
            record["temperature"], record["baseline"] = found_calibration(bag, sample)
            record["held_out"] = np.flatnonzero(sample.left_out_weight)
        return bag, record

    def training(self, data, source, seed, control):
        """Return the `HingeTraining` of one bag."""
        target = self.loss.scale.standardized(data.target, data.units)
        kernel = self.loss.new_kernel()
        kernel.set_units(data.units)
        given = data.validation
        if given is not None:
            others = self.loss.scale.standardized(given.target, data.units)
            given = given.X, others, given.weight
        training = HingeTraining(
            source, target, kernel, data.weight, self.settings, seed, control, data.group, given
        )
        # Forests of labels begin with equal probabilities, which are not the best ones. A mean of
        # several bags can also be better than these if each bag, being too confident, is worse.
        training.starts_from_best = not data.is_classification
        return training

    def packed(self, training, data, keep_all=False):
        """Convert a trained bag to a Forest; `keep_all` is as in `HingeTraining.compacted`."""
        forest = self.task.forest(
            training.arrays(data.units.response) | {"baseline": data.baseline},
            data,
            aggregate="sum",
            gate="margin",
            n_shared_values=1,  # the value of subtrees that no row reaches
            link=self.loss.link,
        )
        return training.compacted(forest, keep_all)

    # -------------------------------------------------------------------------------- all bags

    def finish(self, trained, before=None):
        """Join all bags, and calibrate probabilities or shift quantiles."""
        temperature = temperature_of(trained.records, self.settings)
        forest = divided_by(temperature, self.joined(trained.forests, consume=True))
        if "baseline" in trained.records[0]:
            baseline = forest.baseline + trained.records[0]["baseline"]
            forest = forest.replaced(forest.arrays | {"baseline": baseline})
        if before is not None:
            before = divided_by(temperature / self.settings.temperature, before)
            forest = self.joined([forest], before, consume=True)
        level = self.loss.quantile
        if level is None:
            return forest
        # Bags added by a warm start change the quantile of all bags.
        rows = trained.data.validation
        if rows is None:
            rows = trained.data.subset(self.held_out(trained.data))
        members = range(trained.first_known, n_members(forest))  # that did not see these rows
        known = joined([member_of(forest, number) for number in members])
        baseline = calibrated_baseline(known, rows, level)
        return forest.replaced(forest.arrays | {"baseline": baseline})

    def joined(self, forests, before=None, consume=False):
        """Join all bags, with the baseline of the last ones, see `finish`."""
        baseline = forests[-1].baseline
        if before is not None and (before.baseline != baseline).any():
            before = before.replaced(before.arrays | {"baseline": baseline})
        return super().joined(forests, before, consume)


# ------------------------------------------------------------------------------------ calibration


def found_calibration(bag, data):
    """Find the temperature and the baseline of all bags on the rows that one bag left out."""
    rows = np.flatnonzero(data.left_out_weight)[:MOST_ROWS]
    of_all = data.weight + data.left_out_weight
    codes, weight = data.target.astype(np.int64), data.left_out_weight[rows]
    probability = responses(bag, data.X[rows])
    # A class may have no row in a partition.
    frequency = np.bincount(codes, of_all, probability.shape[1]) / of_all.sum()
    frequency = np.maximum(frequency, 1 / len(codes))
    of_bag, baseline = flattening(probability, codes[rows], weight, frequency)
    return of_bag**TEMPERATURE_POWER, baseline


def divided_by(temperature, forest):
    """Return a forest whose leaves are divided by a temperature."""
    if temperature == 1:
        return forest
    value = (forest.value / temperature).astype(np.float32)
    return forest.replaced(forest.arrays | {"value": value})


def temperature_of(records, settings):
    """Return the temperature in records; bags of a warm start use that of the last fit."""
    return records[0].get("temperature", settings.temperature)


def calibrated_baseline(forest, data, quantile):
    """Return the baseline with which a forest predicts a quantile on the rows of a TrainingSet.

    A forest with nearly no training loss predicts the training targets, whatever the quantile.
    Split conformal prediction shifts it by the quantile of its residuals on held-out rows: the
    next target from the same distribution then lies below the prediction with the requested
    probability (Romano, Patterson, Candes, "Conformalized Quantile Regression", 2019). If there
    is no row, the baseline does not change.
    """
    if not len(data):
        return forest.baseline
    residual = data.y - responses(forest, data.X)
    return forest.baseline + weighted_quantile(residual, data.weight, quantile)
