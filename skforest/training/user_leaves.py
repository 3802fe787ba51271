"""Leaves of trees that are grown with a loss of the user."""

import numpy as np
from scipy.special import softmax

from ..forest.edit import replace_leaves
from ..forest.statistics import route

STEPS = 3  # of Newton's method, whenever the leaves of a split are fitted; they start at the last
FINAL_STEPS = 12  # where leaves are fitted for good
HALVINGS = 5  # of a step that does not lower the loss
WEAK = 1e-3  # rows with which the constant of the tree counts in a leaf that is fitted for good


def fitted_constants(loss, y, weight, group, values, prior, strength, n_steps):
    """The constants of least loss of some groups of rows, by Newton's method from `values`.

    Parameters
    ----------
    loss : UserKernel
    y : ndarray of shape (n_rows, n_outputs)
    weight, group : ndarray of shape (n_rows,)
        Weights, and the group of each row.
    values : ndarray of shape (n_groups, n_outputs)
    prior, strength : ndarray of shape (n_outputs,)
        Each group has a further, quadratic loss with this minimum and this curvature.

    Returns
    -------
    values : ndarray of shape (n_groups, n_outputs)
    """
    n_groups = len(values)

    def total(parts):
        columns = [np.bincount(group, weight * part, n_groups) for part in parts.T]
        return np.stack(columns, axis=1)

    def losses(values):
        of_rows = np.bincount(group, weight * loss.losses(values[group], y), n_groups)
        return of_rows + 0.5 * np.square(values - prior) @ strength

    before = losses(values)
    for _ in range(n_steps):
        slope, curve = loss.derivatives(values[group], y)
        slope = total(slope) + strength * (values - prior)
        curve = total(curve) + strength
        step = np.divide(slope, curve, out=np.zeros_like(slope), where=curve > 0)
        if not step.any():
            break
        after = losses(values - step)
        for _ in range(HALVINGS):
            is_worse = after > before
            if not is_worse.any():
                break
            step[is_worse] /= 2
            after = losses(values - step)
        is_better = after < before
        values = np.where(is_better[:, None], values - step, values)
        before = np.where(is_better, after, before)
        if not is_better.any():
            break
    return values


class UserLeaves:
    """The two leaves of a split under a loss of the user.

    `StumpLeaves` of `_kernels/base/stump.pyx` calls it for one node after the other.

    Parameters
    ----------
    loss : UserKernel
    baseline : ndarray of shape (n_outputs,)
        Of real targets, and `scale` their unit; None: the targets are classes.
    """

    def __init__(self, loss, baseline=None, scale=1.0):
        self.loss, self.baseline, self.scale = loss, baseline, scale

    def start(self, target, weight, n_train, smoothing):
        """Start a node: its rows, the first `n_train` of which train."""
        if self.baseline is None:  # numbers of classes
            self.y = np.eye(self.loss.n_outputs)[target]
        else:
            self.y = self.baseline + self.scale * target
        self.weight, self.n_train = weight, n_train
        y, weight = self.y[:n_train], weight[:n_train]
        self.prior = self.loss.initial(y, weight)
        raw = np.broadcast_to(self.prior, y.shape)
        curve = np.average(self.loss.derivatives(raw, y)[1], axis=0, weights=weight)
        self.curve = np.where(curve > 0, curve, 1.0)
        self.strength = smoothing * self.curve
        self.values = np.stack([self.prior, self.prior])
        self.velocity, self.right = np.zeros_like(self.values), None
        self.unit = 1.0 if self.baseline is None else self._unit(y, weight)

    def _unit(self, y, weight):
        """One over the mean loss of the constant that any model could save."""
        rows = np.arange(len(y))
        raw = np.tile(self.prior, (len(y), 1))
        best = fitted_constants(
            self.loss, y, np.ones(len(y)), rows, raw, self.prior, 0 * self.curve, STEPS
        )
        saved = self.loss.losses(raw, y) - self.loss.losses(best, y)
        mean = np.average(saved, weights=weight)
        return 1 / mean if mean > 0 else 1.0

    def fit(self, right):
        """Fit both leaves to the training rows on their sides; `right` is a mask of these."""
        if self.right is not None and np.array_equal(right, self.right):
            return
        n_steps = STEPS if self.right is None else 1  # as rows change sides, fits go on
        self.right = right
        self.values = fitted_constants(
            self.loss,
            self.y[: self.n_train],
            self.weight[: self.n_train],
            right.astype(np.int64),
            self.values,
            self.prior,
            self.strength,
            n_steps,
        )

    def losses(self, first, last):
        """Losses of some rows at the left and at the right leaf, (2, n_rows)."""
        y = self.y[first:last]
        raw = np.repeat(self.values, len(y), axis=0)
        return self.unit * self.loss.losses(raw, np.concatenate([y, y])).reshape(2, -1)

    def step(self, rows, share, momentum, rate):
        """Move both leaves along the gradients of some rows.

        `share`, (2, n_rows), are the weights with which rows count at either leaf.
        """
        y = self.y[rows]
        for side, part in enumerate(share):
            slope, _ = self.loss.derivatives(np.broadcast_to(self.values[side], y.shape), y)
            self.velocity[side] = momentum * self.velocity[side] + 2 * part @ slope / self.curve
        self.values = self.values - rate * self.velocity


def with_user_leaves(forest, data, loss):
    """A tree whose leaves predict the constants of least loss of the rows in them."""
    rows = data.rows
    y, weight = data.y[rows], data.weight[rows]
    if data.is_classification:
        y = np.eye(loss.n_outputs)[y[:, 0].astype(np.int64)]
    is_leaf = forest.child < 0
    leaf = (np.cumsum(is_leaf) - 1)[route(forest, data.X)[rows]]
    prior = loss.initial(y, weight)
    curve = loss.derivatives(np.broadcast_to(prior, y.shape), y)[1].mean(axis=0)
    strength = WEAK * np.where(curve > 0, curve, 1.0)
    raw = np.tile(prior, (np.count_nonzero(is_leaf), 1))
    weight = weight / weight.mean()
    raw = fitted_constants(loss, y, weight, leaf, raw, prior, strength, FINAL_STEPS)
    if data.is_classification:
        return replace_leaves(forest, softmax(raw, axis=1))
    return replace_leaves(forest, loss.predictions(raw) - forest.baseline)
