"""Leaves of trees that are grown with a user's loss."""

import numpy as np
from scipy.special import softmax

from ..forest.edit import replace_leaves
from ..forest.statistics import route

STEPS = 3  # Newton steps for the leaves of a split, from the previous leaves
FINAL_STEPS = 12  # Newton steps for final leaves
HALVINGS = 20  # halvings of a step that does not lower the loss, as without curvature
TABLED = 2**20  # number of raw predictions that a loss gets at once, approximately
WEAK = 1e-3  # number of rows for which the constant of the tree counts in a final leaf


def fitted_constants(loss, y, weight, group, values, prior, strength, n_steps):
    """Find the constants with the lowest loss in groups of rows, by Newton's method.

    Parameters
    ----------
    loss : UserKernel
    y : ndarray of shape (n_rows, n_outputs)
    weight, group : ndarray of shape (n_rows,)
        Weight and group of each row.
    values : ndarray of shape (n_groups, n_outputs)
        Initial constants.
    prior, strength : ndarray of shape (n_outputs,)
        Minimum and curvature of a quadratic loss that is added to each group.

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


class UserTarget:
    """Rows for a user's loss: their targets in the user's units, and a constant.

    Parameters
    ----------
    loss : UserKernel
    y : ndarray of shape (n_rows, n_outputs)
    weight : ndarray of shape (n_rows,)
    is_class : bool
        Whether targets are one-hot.
    """

    def __init__(self, loss, y, weight, is_class):
        self.loss, self.y, self.weight = loss, y, weight
        self.prior = loss.initial(y, weight)
        raw = np.broadcast_to(self.prior, y.shape)
        curve = np.average(loss.derivatives(raw, y)[1], axis=0, weights=weight)
        self.curve = np.where(curve > 0, curve, 1.0)
        self.unit = 1.0 if is_class else self._unit()

    def _unit(self):
        """Return the reciprocal of the mean loss of the constant that a model could save."""
        raw = np.tile(self.prior, (len(self.y), 1))
        best = fitted_constants(
            self.loss, self.y, np.ones(len(raw)), np.arange(len(raw)), raw, self.prior,
            0 * self.curve, STEPS,
        )  # fmt: skip
        saved = self.loss.losses(raw, self.y) - self.loss.losses(best, self.y)
        mean = np.average(saved, weights=self.weight)
        return 1 / mean if mean > 0 else 1.0

    def fitted(self, group, values, strength, n_steps):
        """Find the constants with the lowest loss in groups; `strength` counts rows of `prior`."""
        strength = strength * self.curve
        args = self.loss, self.y, self.weight, group, values, self.prior, strength, n_steps
        return fitted_constants(*args)


class UserLeaves:
    """The two leaves of a split with a user's loss.

    `OwnLeaves` in `_kernels/co2/own_leaves.pyx` calls it for one node after another.

    Parameters
    ----------
    loss : UserKernel
    baseline : ndarray of shape (n_outputs,)
        Baseline of regression targets, whose unit is `scale`; None: the targets are classes.
    """

    def __init__(self, loss, baseline=None, scale=1.0):
        self.loss, self.baseline, self.scale = loss, baseline, scale

    def start(self, target, weight, n_train, smoothing):
        """Start a node with its rows; the first `n_train` are training rows."""
        is_class = self.baseline is None
        if is_class:  # numbers of classes
            self.y = np.eye(self.loss.n_outputs)[target]
        else:
            self.y = self.baseline + self.scale * target
        self.smoothing, self.right, self.known = smoothing, None, {}
        self.train = UserTarget(self.loss, self.y[:n_train], weight[:n_train], is_class)
        self.values = np.stack([self.train.prior, self.train.prior])
        self.velocity = np.zeros_like(self.values)

    def fit(self, right):
        """Fit both leaves to the training rows on their sides; `right` is a mask."""
        if self.right is not None and np.array_equal(right, self.right):
            return
        n_steps = STEPS if self.right is None else 1  # further calls refine the leaves
        self.right, self.known = right, {}
        group = right.astype(np.int64)
        self.values = self.train.fitted(group, self.values, self.smoothing, n_steps)

    def losses(self, first, last):
        """Return the losses of some rows at the left and at the right leaf, (2, n_rows)."""
        if (first, last) not in self.known:  # kept until the leaves change
            y = self.y[first:last]
            raw = np.repeat(self.values, len(y), axis=0)
            found = self.loss.losses(raw, np.concatenate([y, y])).reshape(2, -1)
            self.known[first, last] = self.train.unit * found
        return self.known[first, last]

    def step(self, rows, share, momentum, rate):
        """Move both leaves along the gradients of rows with weights `share`, (2, n_rows)."""
        y = self.y[rows]
        for side, part in enumerate(share):
            slope, _ = self.loss.derivatives(np.broadcast_to(self.values[side], y.shape), y)
            # Steps have the unit of regression targets, or unit 1 for logarithms of shares.
            pace = 1.0 if self.baseline is None else 2 / self.train.curve
            self.velocity[side] = momentum * self.velocity[side] + pace * (part @ slope)
        self.values, self.known = self.values - rate * self.velocity, {}


class UserTreeLeaves:
    """All leaves of a tree with a user's loss, trained with its splits.

    `JointLeaves` in `_kernels/nongreedy/leaves.pyx` calls it, batch by batch.

    Parameters
    ----------
    loss : UserKernel
    data : TrainingSet
    weight : ndarray of shape (n_rows,)
        0 for held-out rows.
    leaf : ndarray of shape (n_rows,)
        The leaf of each row in the grown tree.
    n_leaves : int
    smoothing : float
        Pseudocount of each leaf: rows of mean weight at the constant of the tree.
    """

    def __init__(self, loss, data, weight, leaf, n_leaves, smoothing):
        self.loss, self.y = loss, targets_of(loss, data)
        rows = np.flatnonzero(weight)
        mean = weight[rows].mean()
        target = UserTarget(loss, self.y[rows], weight[rows] / mean, data.is_classification)
        raw = np.tile(target.prior, (n_leaves, 1))
        self.raw, self.unit = target.fitted(leaf[rows], raw, smoothing, FINAL_STEPS), target.unit

    @property
    def parameters(self):
        """tuple: the arguments of `JointLeaves.set_parameters`."""
        n_leaves, n = self.raw.shape
        label = np.tile(np.arange(n, dtype=np.int32), n_leaves)
        return np.arange(n_leaves + 1) * n, label, self.raw.ravel(), np.zeros(n_leaves)

    def table(self, rows):
        """Return the losses of rows at all leaves, and the largest: (n_rows, n_leaves + 1)."""
        n_leaves, n = self.raw.shape
        found = np.empty((len(rows), n_leaves + 1))
        size = max(1, TABLED // (n_leaves * n))
        for first in range(0, len(rows), size):
            y = self.y[rows[first : first + size]]
            raw = np.tile(self.raw, (len(y), 1))
            losses = self.loss.losses(raw, np.repeat(y, n_leaves, axis=0))
            found[first : first + size, :-1] = self.unit * losses.reshape(len(y), n_leaves)
        found[:, -1] = found[:, :-1].max(axis=1)
        return found

    def losses(self, rows, leaves):
        """Return the losses of rows, each at one leaf."""
        return self.unit * self.loss.losses(self.raw[leaves], self.y[rows])

    def step(self, rows, leaves, rate):
        """Move leaves along the gradients of their rows, but not beyond the optimum."""
        slope, curve = self.loss.derivatives(self.raw[leaves], self.y[rows])
        chosen, leaf = np.unique(leaves, return_inverse=True)
        total = np.zeros((2, len(chosen), slope.shape[1]))
        for part, found in zip(total, (slope, curve)):
            np.add.at(part, leaf, (rate * self.unit)[:, None] * found)
        self.raw[chosen] -= total[0] / np.maximum(total[1], 1)


def with_user_leaves(forest, data, loss):
    """Return the tree with leaves that have the lowest loss on their rows."""
    target, leaf = leaf_targets(forest, data, loss)
    raw = np.tile(target.prior, (np.count_nonzero(forest.child < 0), 1))
    raw = target.fitted(leaf, raw, WEAK, FINAL_STEPS)
    value = leaf_values(raw, loss, data.is_classification, forest.baseline)
    return replace_leaves(forest, value)


def leaf_targets(forest, data, loss):
    """Return rows of positive weight as a `UserTarget`, with mean weight 1, and their leaves."""
    rows = data.rows
    y, weight = targets_of(loss, data)[rows], data.weight[rows]
    leaf = (np.cumsum(forest.child < 0) - 1)[route(forest, data.X)[rows]]
    return UserTarget(loss, y, weight / weight.mean(), data.is_classification), leaf


def leaf_values(raw, loss, is_class, baseline):
    """Convert raw predictions of leaves, (n_leaves, n_outputs), to leaf values."""
    return softmax(raw, axis=1) if is_class else loss.predictions(raw) - baseline


def targets_of(loss, data):
    """Return the targets in units of the user, one-hot for classes: (n_rows, n_outputs)."""
    return np.eye(loss.n_outputs)[data.target] if data.is_classification else data.y


def keeps_gain(before, after, data, loss, lost, tolerance):
    """Return whether a tree keeps a part of another tree's gain over a constant prediction."""
    found = []
    for forest in (before, after):
        target, leaf = leaf_targets(forest, data, loss)
        constant = np.tile(target.prior, (np.count_nonzero(forest.child < 0), 1))
        raw = target.fitted(leaf, constant, WEAK, STEPS)
        losses = [loss.losses(values[leaf], target.y) for values in (constant, raw)]
        found.append(np.average(losses, axis=1, weights=target.weight))
    (least, old), (_, new) = found
    return new - old <= max(lost * (least - old), tolerance * abs(old))
