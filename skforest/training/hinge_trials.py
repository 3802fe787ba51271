"""Choice of the weight decay of hinge forests by small bags.

Bags are trained on some of the rows. Decays are compared by the losses of the other rows, with the
best temperature.
"""

import math
from copy import copy
from dataclasses import replace
from itertools import product

import numpy as np

from .._kernels.base.rows import random_stream, tree_seed
from .early_stopping import balanced_folds
from .hinge_bag import weight_of_trained
from .trials import train_small

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
    trial = DecayTrial(method, data, request)
    # Where there is little noise, one fold shows it.
    for folds in (trial.folds[:1], trial.folds):
        trial.train([DECAYS[0], DECAYS[2]], folds)
        without, middle = (trial.losses(DECAYS[number], folds) for number in (0, 2))
        if without is None or middle is None or trial.is_clearly_less(without, middle):
            return 0.0
    best, least = 2, middle
    if trial.mean(middle) > trial.mean(without):
        best, least = 1, trial.losses(DECAYS[1], trial.folds)
    else:
        for number in range(3, len(DECAYS)):
            losses = trial.losses(DECAYS[number], trial.folds)
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


class DecayTrial:
    """Trains small bags that leave out folds, and compares their losses there.

    `method`, `data` and `request` are a `HingeMethod`, its rows, and how training is run.
    """

    def __init__(self, method, data, request):
        settings, self.request = method.settings, request
        n_trees = min(settings.n_trees, N_TREES)
        self.settings = replace(
            settings,
            n_trees=n_trees,
            learning_rate=settings.learning_rate * settings.n_trees / n_trees,
            n_steps=math.ceil(settings.n_steps * STEP_SHARE),
        )
        data, _ = data.in_copies()
        n_folds = max(N_FOLDS, -(-len(data) // MAX_ROWS))
        group = data.group if data.n_groups > 1 else None
        fold = balanced_folds(data.y[:, 0], n_folds, method.seed, group)
        n_used = min(-(-ENOUGH_ROWS * n_folds // len(data)), N_FOLDS)
        self.data, self.folds = data.with_folds(fold, n_folds), range(n_used)
        self.weight = np.concatenate([data.weight[fold == one] for one in self.folds])
        self.method = copy(method)
        self.method.settings, self.method.known = self.settings, {}
        self.method.source = self.method.input(data, np.ones(data.X.shape[1]))
        self.known = {}  # losses by decay and fold

    @staticmethod
    def decay_of(decay, settings):
        """Return the decay of bags with these settings, from that of 100 trees."""
        return min(decay * settings.n_trees / 100, LARGEST_STEP / settings.learning_rate)

    def losses(self, decay, folds):
        """Return the losses of the rows in some folds with the decay of 100 trees.

        It is None if training diverged, or took too long.
        """
        self.train([decay], folds)
        losses = [self.known[decay, fold] for fold in folds]
        return None if any(one is None for one in losses) else np.concatenate(losses)

    def train(self, decays, folds):
        """Find the losses of the rows in some folds with decays of 100 trees."""
        new = [one for one in product(decays, folds) if one not in self.known]
        if not new:
            return
        bags, limit = range(min(self.method.n_members, N_BAGS)), self.request.limit
        members = list(product(new, bags))
        if limit is not None:
            limit = limit.part(TRIAL_SHARE * len(decays), at_least=1).ending_in_parts()
        trained = train_small(self._trained, members, self.request.n_jobs, limit)
        trained += [None] * (len(members) - len(trained))
        for number, (decay, fold) in enumerate(new):
            of_bags = trained[number * len(bags) : (number + 1) * len(bags)]
            is_complete = all(bag is not None for bag in of_bags)
            self.known[decay, fold] = self._of_all_bags(of_bags, fold) if is_complete else None

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

    def _trained(self, member, control):
        """Train the bag ((decay, fold), its number); return its predictions of the fold, or None.

        The targets of the fold, in the units of the predictions, and the loss follow.
        """
        (decay, fold), number = member
        method, weight_decay = copy(self.method), self.decay_of(decay, self.settings)
        method.settings = replace(self.settings, weight_decay=weight_decay)
        seed = tree_seed(method.seed, fold)
        sample = method.sampling.sample(self.data.without_fold(fold), seed)
        seed = tree_seed(seed, number)
        part = sample.weight, method.settings, random_stream(seed), sample.group
        trains, _ = weight_of_trained(method.source, *part)
        source = method.emphasised(method.source, sample, trains)
        training = method.training(sample, source, seed, control)
        training.warns = False
        try:
            training.run(None, control.limit)
        except ValueError:  # the loss became infinite
            return None
        if "ended" in training.record:
            return None
        rows = np.flatnonzero(sample.left_out_weight)
        raw = training.trainer.respond(source.subset(rows).table())
        return raw, np.ascontiguousarray(training.target[rows]), training.loss

    def _of_all_bags(self, of_bags, fold):
        """Return the losses of the rows of a fold, predicted by the mean of all bags.

        The loss of the mean of n bags is about linear in 1 / n. `of_bags` are the results of
        `_trained` for some of the bags.
        """
        raws, (target, *_), (*_, loss) = zip(*of_bags)
        n_bags, weight = self.method.n_members, self.data.weight[self.data.is_left_out(fold)]
        share = (1 - 1 / n_bags) / (1 - 1 / len(raws)) if len(raws) > 1 else 0.0

        def losses_at(temperature):
            flat = np.array(raws) / temperature
            alone = np.mean([loss.held_out_losses(raw, target) for raw in flat], axis=0)
            return alone + share * (loss.held_out_losses(flat.mean(axis=0), target) - alone)

        is_flattened = self.settings.calibrate and n_bags > 1
        found = [losses_at(one) for one in TEMPERATURES[: None if is_flattened else 1]]
        return found[np.argmin([np.einsum("i,i->", weight, losses) for losses in found])]
