"""Draws of held-out rows, and early stopping by their loss."""

import math
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._kernels.base.rows import random_stream

FOLD_SEED = 2**61  # far from the numbers of trees and bags
# Relative decrease of the validation loss that counts as progress. Chosen without a measurement.
TOLERANCE = 1e-4
# Relative increase of the training loss that causes a warning. If no split helps, rounds of
# boosting on subsamples increase it by less.
DIVERGENCE = 0.01


def validation_mask(fraction, weight, seed, group=None):
    """Draw the held-out rows of a tree.

    Parameters
    ----------
    fraction : float or None
        The parameter `validation_fraction`; None: no rows are held out.
    weight : ndarray of shape (n_rows,), float64
        Rows of weight 0 are not drawn.
    seed : int
    group : ndarray of shape (n_rows,), int, or None
        Rows of a group are held out together.

    Returns
    -------
    mask : ndarray of shape (n_rows,), bool

    Raises
    ------
    ValueError
        If no row would be left to train on.
    """
    mask = np.zeros(len(weight), dtype=bool)
    chosen = np.flatnonzero(weight)
    if fraction is None or len(chosen) == 1:  # one row makes one leaf, without training
        return mask
    n_held_out = max(1, round(fraction * len(chosen)))
    if n_held_out >= len(chosen):
        raise ValueError(
            f"early_stopping=True with validation_fraction={fraction} leaves none of the "
            f"{len(chosen)} distinct rows of a tree to train on"
        )
    mask[_drawn(chosen, n_held_out, random_stream(seed), group)] = True
    return mask


def _drawn(rows, n, random, group):
    """Draw `n` of the rows, or some groups with at least n rows; none if there is one group."""
    if group is None:
        return random.permutation(rows)[:n]
    _, number, size = np.unique(group[rows], return_inverse=True, return_counts=True)
    order = random.permutation(len(size))
    n_groups = np.searchsorted(np.cumsum(size[order]), n) + 1
    return rows[np.isin(number, order[: min(n_groups, len(size) - 1)])]


class EarlyStopping:
    """Records validation losses, and keeps the splits of the epoch with the lowest loss.

    Parameters
    ----------
    validation_mask : ndarray of shape (n_rows,), bool
        Held-out rows. If there are none, training is never stopped.
    n_iter_no_change : int

    Attributes
    ----------
    rows : ndarray of int64
        Held-out rows.
    scores : list of float
        Minus the validation loss, one entry per epoch.
    best : object or None
        Splits of the best epoch.
    """

    def __init__(self, validation_mask, n_iter_no_change):
        self.rows = np.flatnonzero(validation_mask)
        self.n_iter_no_change = n_iter_no_change
        self.scores, self.best = [], None
        self._least, self._n_stalled = np.inf, 0

    def ends(self, loss, splits, report, n_done, n_epochs):
        """Report an epoch, see `Control`; if rows are held out, return `should_stop`.

        `loss` and `splits` are None if no rows are held out.
        """
        if report is not None:
            report(n_done, n_epochs, **({} if loss is None else {"loss": loss}))
        should_stop = loss is not None and self.should_stop(loss, splits)
        if should_stop and n_done < n_epochs and report is not None:
            report(n_done, n_done, best=1 + int(np.argmax(self.scores)))
        return should_stop

    def should_stop(self, loss, splits):
        """Record an epoch; return whether the loss has stalled for `n_iter_no_change` epochs.

        `splits` are the result of the epoch, kept if its validation loss is the lowest so far.
        """
        self.scores.append(-loss)
        if loss < self._least:
            is_progress = not loss > self._least - TOLERANCE * abs(self._least)
            self._n_stalled = 0 if is_progress else self._n_stalled + 1
            self._least, self.best = loss, splits
        else:
            self._n_stalled += 1
        return self._n_stalled >= self.n_iter_no_change


def warn_of_divergence(name, before, after, steps, learning_rate):
    """Warn if the training loss is larger `after` some steps, a str, than `before`."""
    if after > before + DIVERGENCE * abs(before):
        warnings.warn(
            f"{name} diverged: the loss of the training rows is larger after {steps} than before; "
            f"lower learning_rate={learning_rate:.3g}",
            ConvergenceWarning,
            stacklevel=3,
        )


def draw_weighted(weight, fraction, random, group=None):
    """Draw a fraction of the rows of positive weight, for hinge forests; return a mask.

    It is empty if no row would be left to train on. Rows of a `group` are held out together.
    """
    mask = np.zeros(len(weight), dtype=bool)
    present = np.flatnonzero(weight)
    n_validation = math.ceil(fraction * len(present))
    if n_validation < len(present):
        mask[_drawn(present, n_validation, random, group)] = True
    return mask


def draw_held_out(weight, fraction, seed, group=None):
    """Draw the rows that a single bag holds out; return their weights, and 0 for other rows.

    Rows of a `group` are held out together.
    """
    n_rows = len(weight)
    n = min(max(1, round(fraction * n_rows)), n_rows - 1)
    random = random_stream(seed, FOLD_SEED)
    held_out = np.zeros(n_rows)
    rows = _drawn(np.arange(n_rows), n, random, group)
    held_out[rows] = weight[rows]
    return held_out


def balanced_folds(y, n_folds, seed, group=None):
    """Draw a fold for each row; folds have similar targets and about equal numbers of rows.

    The rows of a group are in one fold.
    """
    random = random_stream(seed, FOLD_SEED)
    if group is not None:
        _, number, size = np.unique(group, return_inverse=True, return_counts=True)
        order = random.permutation(len(size))
        of_group, filled = np.empty(len(size), dtype=np.int64), np.zeros(n_folds)
        for one in order[np.argsort(-size[order], kind="stable")]:  # the largest first
            of_group[one] = np.argmin(filled)
            filled[of_group[one]] += size[one]
        return of_group[number]
    order = random.permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    fold = np.empty(len(y), dtype=np.int64)
    for start in range(0, len(y), n_folds):
        own = order[start : start + n_folds]
        fold[own] = random.permutation(n_folds)[: len(own)]
    return fold
