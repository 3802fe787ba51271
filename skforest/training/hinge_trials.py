"""Choice of the weight decay of hinge forests by small bags.

Bags are trained on some of the rows. Decays are compared by the losses of the other rows, with the
best temperature.
"""

import math
from copy import copy
from dataclasses import replace

import numpy as np

from .._kernels.base.rows import random_stream, tree_seed
from .early_stopping import balanced_folds
from .hinge import HingeMethod
from .hinge_bag import weight_of_trained
from .method import train_members
from .threads import local_threads

# The constants were chosen by the losses of held-out training rows of 32 tables, and of 86 other
# tables. `python -m benchmarks.measure.hinge decay` shows the effect on the 32 tables.

# Decays of a bag of 100 trees. Vectors of leaves have about 1 / (number of trees) of the size of a
# prediction, so decays grow with this number. No step removes more than LARGEST_STEP of a vector.
DECAYS, LARGEST_STEP = (0.0, 1.0, 3.0, 10.0, 20.0), 0.6
# Decays from which on training needs only a share of the steps, and this share.
SHORTER = (10.0, 0.25), (3.0, 0.5)
# Bags have at most so many trees, and a share of the steps. N_BAGS of them leave out one of
# N_FOLDS folds, or one of more folds with at most MAX_ROWS rows, until ENOUGH_ROWS are left out.
N_TREES, STEP_SHARE, N_BAGS = 50, 0.25, 2
N_FOLDS, MAX_ROWS, ENOUGH_ROWS = 3, 2000, 1000
MIN_ROWS = 100  # with fewer rows, there is no decay
TEMPERATURES = np.exp(np.linspace(0, 4, 33))  # that are tried
TRIAL_SHARE = 0.05  # share of the remaining time for one decay


def best_decay(method, data, request):
    """Return the weight decay with the lowest held-out loss, of a `HingeMethod` without one.

    It is 0 unless another loss is lower by more than a standard error. Larger decays are tried
    while the loss falls. Without rows to hold out, or time, it is 0.
    """
    if not data.weight.all():
        data = data.subset(np.flatnonzero(data.weight))
    if len(data) < MIN_ROWS or data.n_groups < N_FOLDS:
        return 0.0
    trial = DecayTrial.of(method, data, request)
    # Where there is little noise, one fold shows it.
    for members in (trial.members[:1], trial.members):
        without, middle = (trial.losses(DECAYS[number], members) for number in (0, 2))
        if without is None or middle is None or trial.is_clearly_less(without, middle):
            return 0.0
    best, least = 2, middle
    if trial.mean(middle) > trial.mean(without):
        best, least = 1, trial.losses(DECAYS[1], trial.members)
    else:
        for number in range(3, len(DECAYS)):
            losses = trial.losses(DECAYS[number], trial.members)
            if losses is None or trial.mean(losses) >= trial.mean(least):
                break
            best, least = number, losses
    if least is None or not trial.is_clearly_less(least, without):
        return 0.0
    return trial.decay_of(DECAYS[best], method.settings)


def shortened(settings):
    """Return settings with as many steps as bags with this weight decay need."""
    decay = 1.001 * settings.weight_decay * 100 / settings.n_trees  # above rounding errors
    share = next((share for least, share in SHORTER if decay >= least), 1.0)
    return replace(settings, n_steps=math.ceil(share * settings.n_steps))


class DecayTrial(HingeMethod):
    """Trains small bags that leave out folds; their records have the losses there."""

    @classmethod
    def of(cls, method, data, request):
        """Return the trials for a method and its rows."""
        settings = method.settings
        n_trees = min(settings.n_trees, N_TREES)
        small = replace(
            settings,
            n_trees=n_trees,
            learning_rate=settings.learning_rate * settings.n_trees / n_trees,
            n_steps=math.ceil(settings.n_steps * STEP_SHARE),
        )
        trial = cls(small, method.task, method.sampling, method.loss, method.seed)
        data, _ = data.in_copies()
        n_folds = max(N_FOLDS, -(-len(data) // MAX_ROWS))
        group = data.group if data.n_groups > 1 else None
        fold = balanced_folds(data.y[:, 0], n_folds, method.seed, group)
        n_used = min(-(-ENOUGH_ROWS * n_folds // len(data)), N_FOLDS)
        trial.data, trial.members = data.with_folds(fold, n_folds), range(n_used)
        trial.source = trial.input(data, np.ones(data.X.shape[1]))
        trial.run, trial.limit = replace(request.run, verbose=0), request.limit
        trial.weight = np.concatenate([data.weight[fold == one] for one in trial.members])
        trial.found = {}  # losses by decay and fold
        return trial

    @staticmethod
    def decay_of(decay, settings):
        """Return the decay of bags with these settings, from that of 100 trees."""
        return min(decay * settings.n_trees / 100, LARGEST_STEP / settings.learning_rate)

    def losses(self, decay, members):
        """Return the losses of the rows in some folds with the decay of 100 trees, or None."""
        new = [number for number in members if (decay, number) not in self.found]
        if new:
            records = self._records(decay, range(new[0], new[-1] + 1))
            if len(records) < len(new) or any("ended" in record for record in records):
                return None
            self.found |= {(decay, number): one["losses"] for number, one in zip(new, records)}
        losses = [self.found[decay, number] for number in members]
        return None if any(one is None for one in losses) else np.concatenate(losses)

    def _records(self, decay, members):
        """Train bags that leave out some folds; return their records."""
        other, limit = copy(self), self.limit
        other.settings = replace(self.settings, weight_decay=self.decay_of(decay, self.settings))
        if limit is not None:
            limit = limit.part(TRIAL_SHARE, at_least=1)
        run = replace(self.run, limit=limit)
        with local_threads():
            return train_members(other, self.data, members, self.seed, run).records

    def mean(self, losses):
        """Return the weighted mean of the losses of the first rows."""
        weight = self.weight[: len(losses)]
        return np.einsum("i,i->", weight, losses) / weight.sum()

    def is_clearly_less(self, losses, others):
        """Return whether a mean loss is smaller than another one by more than a standard error."""
        gain = others - losses
        mean, weight = self.mean(gain), self.weight[: len(gain)]
        squares = np.einsum("i,i->", np.square(weight), np.square(gain - mean))
        return mean > np.sqrt(squares) / weight.sum()

    def prepared(self, data, members, request):
        """Return the rows, and this method, which knows their units."""
        return data, self

    def train(self, sample, seed, control):
        """Train some bags; their record has the losses of held-out rows, and there is no Forest.

        The loss of the mean of n bags is about linear in 1 / n.
        """
        rows, n_bags = np.flatnonzero(sample.left_out_weight), self.n_members
        weight, raws, record = sample.left_out_weight[rows], [], {}
        for own in (tree_seed(seed, number) for number in range(min(n_bags, N_BAGS))):
            part = sample.weight, self.settings, random_stream(own), sample.group
            source = self.emphasised(self.source, sample, weight_of_trained(self.source, *part)[0])
            training = self.training(sample, source, own, control.stop)
            training.warns = False
            try:
                training.run(None, control.limit)
            except ValueError:  # the loss became infinite
                return None, {"losses": None}
            raws.append(training.trainer.respond(source.subset(rows).table()))
            record |= training.record
        target = np.ascontiguousarray(training.target[rows])
        share = (1 - 1 / n_bags) / (1 - 1 / len(raws)) if len(raws) > 1 else 0.0

        def of_all_bags(temperature):
            losses, flat = training.loss.held_out_losses, np.array(raws) / temperature
            alone = np.mean([losses(raw, target) for raw in flat], axis=0)
            return alone + share * (losses(flat.mean(axis=0), target) - alone)

        is_flattened = self.settings.calibrate and n_bags > 1
        found = [of_all_bags(one) for one in TEMPERATURES[: None if is_flattened else 1]]
        best = np.argmin([np.einsum("i,i->", weight, losses) for losses in found])
        return None, record | {"losses": found[best]}
