"""Floor 5: which of some settings suits a training set, by small forests and rows held out."""

from __future__ import annotations

from copy import copy

import numpy as np

from ._base import fit_one, in_threads
from ._rows import tree_seed

N_TREES = 10  # of each pilot forest
MAX_ROWS = 2000  # that it trains on, and as many that it is tried on
MIN_ROWS = 30  # with fewer, the first setting is as good as any
FIRST_SEED = 2**62  # far from the numbers of the trees that stay


def choose(estimator, rows, target, settings):
    """The setting whose forest errs least on rows that it has not seen.

    The error is the mean squared difference to the targets, with classes one-hot (Brier score).

    Parameters
    ----------
    estimator : BaseForest
        While it is fitted, with its seed.
    rows : RowSet
    target : ndarray
        As of `BaseForest._fit_tree`.
    settings : list of dict
        Attributes of the estimator, by name.

    Returns
    -------
    setting : dict
    """
    present = np.flatnonzero(rows.weight)
    if len(settings) == 1 or len(present) < MIN_ROWS:
        return settings[0]
    # The stream of RandomState is frozen: the choice does not depend on the version of NumPy.
    random = np.random.RandomState(tree_seed(estimator._seed, FIRST_SEED) % 2**32)
    present = random.permutation(present)
    n_train = min(MAX_ROWS, 2 * len(present) // 3)
    train = np.sort(present[:n_train])
    tried = present[n_train : n_train + MAX_ROWS]
    part = copy(rows)
    part.X, part.Y, part.weight = rows.X[train], rows.Y[train], rows.weight[train]
    part_target, X_tried = target[train], rows.X[tried]
    trials = [_trial(estimator, setting) for setting in settings]

    def respond(task, stop):
        trial, seed = task
        tree, _ = fit_one(trial, part, part_target, seed, stop)
        return tree._respond(X_tried)

    seeds = [tree_seed(estimator._seed, FIRST_SEED + tree) for tree in range(1, N_TREES + 1)]
    tasks = [(trial, seed) for trial in trials for seed in seeds]
    # Added up in the order of the tasks, so the choice does not depend on the threads.
    responses = in_threads(respond, tasks, estimator.n_jobs, 0, "")
    weight = rows.weight[tried] / rows.weight[tried].sum()
    truth = rows.Y[tried]
    if target.ndim == 1:
        truth = np.arange(responses[0].shape[1]) == truth
    errors = []
    for first in range(0, len(tasks), N_TREES):
        mean = sum(responses[first : first + N_TREES]) / N_TREES
        errors.append(float(weight @ ((mean - truth) ** 2).sum(axis=1)))
    return settings[int(np.argmin(errors))]


def _trial(estimator, setting):
    """A copy of an estimator with a setting, that grows trees and does no more with them."""
    trial = copy(estimator)
    trial.__dict__.update(setting, refine=None, max_samples=None)
    return trial
