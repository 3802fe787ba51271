"""Choice of settings of oblique boosting by small models.

A model is trained on some of the rows; its score is minus its loss on other rows.
"""

from dataclasses import replace
from itertools import product

import numpy as np

from .._kernels.base.rows import random_stream, tree_seed
from .boosting import HELD_OUT, in_training_copies
from .boosting_rounds import BoostingTraining
from .boosting_rows import BoostingRows
from .early_stopping import FOLD_SEED, balanced_folds, draw_held_out
from .trials import train_small

# All constants were chosen without a stored measurement. The groups `linear-start` and `depth` of
# `python -m benchmarks.measure.boosting` show errors with such trials, and of depths.

# Trials of linear functions: number of rounds, and largest number of rows. With at most half as
# many rows, each fold is held out once. With fewer than MIN_LINEAR_ROWS rows, there is no trial.
TRIAL_ROUNDS, TRIAL_ROWS, TRIAL_FOLDS, MIN_LINEAR_ROWS = 100, 4000, 2, 100
# A linear start is tried with these penalties if there are at most so many features.
START_PENALTIES, MAX_START_FEATURES = (100.0, 1.0), 500
TRIAL_SHARE = 0.25  # share of the remaining time; without a result, the first model is taken
# Trials of depths: number of rounds, and largest number of rows. With too few rows, the first
# depth is taken. The other settings keep the trials short.
DEPTHS, DEPTH_ROUNDS, DEPTH_ROWS, MIN_DEPTH_ROWS = (4, 6, 8), 150, 12_000, 8_000
SHORT = {"learning_rate": 0.3, "n_iter_no_change": 15}


def best_depth(data, settings, seed, request):
    """Return the best `max_depth` of small models without linear functions."""
    if not settings.early_stopping or np.count_nonzero(data.weight) < MIN_DEPTH_ROWS:
        return DEPTHS[0]
    settings = replace(settings, linear_leaves=False, linear_start=None, **SHORT)
    trial = Trial(data, settings, seed, request, DEPTH_ROWS, DEPTH_ROUNDS)
    return DEPTHS[trial.scores([{"max_depth": depth} for depth in DEPTHS]).argmax()]


def with_best_linear(data, settings, seed, request, tries_leaves, tries_start):
    """Return the settings with `linear_leaves` and `linear_start` of the best small model.

    A setting that is not tried stays unchanged.
    """
    n_rows, n_features = len(in_training_copies(data)), data.X.shape[1]
    tries_start &= n_features <= MAX_START_FEATURES
    if n_rows < MIN_LINEAR_ROWS or not (tries_leaves or tries_start):
        return settings
    kinds = (False, True) if tries_leaves else (settings.linear_leaves,)
    trial = Trial(data, settings, seed, request, TRIAL_ROWS, TRIAL_ROUNDS)
    scores = trial.scores([{"linear_leaves": kind} for kind in kinds])
    settings = replace(settings, linear_leaves=kinds[scores.argmax()])
    if not tries_start:
        return settings
    leaves = {"linear_leaves": settings.linear_leaves}
    with_start = trial.scores([leaves | {"linear_start": one} for one in START_PENALTIES])
    starts = None, *START_PENALTIES
    return replace(settings, linear_start=starts[np.argmax([scores.max(), *with_start])])


class Trial:
    """Small models that differ in some settings and use the same rows.

    At most `n_rows` rows are used for training or held out. With at most half as many rows, each
    half is held out once. Models have at most `n_rounds` rounds.
    """

    def __init__(self, data, settings, seed, request, n_rows, n_rounds):
        seed = tree_seed(seed, FOLD_SEED)
        random = random_stream(seed, 1)
        data, _ = data.in_copies()
        data = data.subset(np.sort(random.permutation(len(data))[:n_rows]))
        group = data.group if data.n_groups > 1 else None
        n_parts = min(n_rows // len(data), TRIAL_FOLDS)
        if n_parts == 1:
            held_out = [draw_held_out(data.weight, HELD_OUT, seed, group)]
        else:
            fold = balanced_folds(data.y[:, 0], TRIAL_FOLDS, seed, group)
            held_out = [np.where(fold == number, data.weight, 0) for number in range(n_parts)]
        self.parts = [(data.weight - part, part) for part in held_out]
        self.rows, self.seed = BoostingRows(data, settings), seed
        # Only the fit itself warns. A warning filter would apply to all threads.
        n_rounds = min(n_rounds, settings.n_rounds)
        self.settings = replace(settings, n_rounds=n_rounds, warns=False, scoring=None)
        self.request = request

    def scores(self, changes):
        """Return the scores of models with changed settings, a list of dicts.

        They are -inf if the time limit ended training.
        """
        models, limit = list(product(changes, self.parts)), self.request.limit
        limit = None if limit is None else limit.part(TRIAL_SHARE)
        scores = train_small(self._score, models, self.request.n_jobs, limit)
        if len(scores) < len(models):
            return np.full(len(changes), -np.inf)
        return np.reshape(scores, (len(changes), -1)).sum(axis=1)

    def _score(self, model, control):
        """Return the score of a model on its held-out rows, times their weight."""
        change, (weight, held_out) = model
        settings = replace(self.settings, **change)
        try:
            given = self.rows, settings, weight, held_out, self.seed, control
            training = BoostingTraining(*given).run()
        except ValueError:  # it diverged
            return -np.inf
        return max(training.scores) * held_out.sum()
