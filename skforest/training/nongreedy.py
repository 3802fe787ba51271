"""Joint training of the splits and leaves of a tree that was grown."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from .._kernels.joint import JointTrainer
from ..forest.edit import repack, route, settle, tree_loss, unpack

VISITS = 1_000_000  # rows that n_epochs="auto" shows to a tree, in 10 to 30 epochs
SETTLED = 0.01  # of the bound: less progress in an epoch, and stable assignments are renewed
TOLERANCE = 1e-4  # of the validation loss
MANY_CLASSES = 100
SMOOTHED = 1e-100, 1e100  # logarithms of less, and of more, run out of numbers
LOST = 0.9  # of what the tree knew of its training rows: training has failed


@dataclass(frozen=True)
class JointSettings:
    """The parameters of `NonGreedyTreeClassifier` that joint training takes, with its defaults."""

    inference: str = "fast"
    stable: bool = False
    nu: float | str = "auto"
    learning_rate: float = 0.3
    momentum: float = 0.9
    n_epochs: int | str = "auto"
    batch_size: int = 100
    l1: float = 0.0
    smoothing: float = 0.1
    row_norm: float = 8.0
    n_iter_no_change: int = 5


def resolve_nu(nu, n_features):
    """The bound on the squared norm of splits that "auto" stands for.

    Rows are scaled to one norm, so each of few features is long, and weights turn fast: 20 for
    256 features and more, 75 for 16, 100 for 9 and fewer.

    Parameters
    ----------
    nu : "auto" or float
    n_features : int

    Returns
    -------
    nu : float
    """
    return min(max(300 / n_features**0.5, 20.0), 100.0) if nu == "auto" else float(nu)


def train_jointly(forest, table, target, weight, held, seed, stop, settings, criterion, scale=1.0):
    """Train all splits of a tree together, count its leaves again, and drop what is not reached.

    Parameters
    ----------
    forest : Forest
        Of one tree.
    table : ndarray of shape (n_rows, n_features), float32
        Scaled as the tree wants it.
    target : ndarray of shape (n_rows,), int32, or of shape (n_rows, n_outputs), float64
        Class numbers; or deviations from the baseline, divided by `scale`.
    weight : ndarray of shape (n_rows,), float64
        0 for the rows that are not the tree's.
    held : ndarray of shape (n_rows,), bool
        Rows that do not train and, if there are any, decide when to stop.
    seed : int
    stop : ndarray of shape (1,), uint8
    settings : JointSettings, or an estimator with the same parameters
    criterion : {"entropy", "squared_error"}
    scale : float, default=1.0

    Returns
    -------
    forest : Forest
    record : dict
        "loss_curve_", "validation_scores_", "n_active_leaves_".

    Warns
    -----
    ConvergenceWarning
        If the tree has lost nearly all that it knew of its rows; it is then given back.
    """
    start, curve, scores = forest, np.zeros(0), np.zeros(0)
    trains = len(forest.threshold) > 0 and not stop[0]
    nu = resolve_nu(settings.nu, table.shape[1])
    if trains:
        training = _Training(forest, table, target, weight, held, seed, stop, settings, nu)
        training.run()
        curve, scores = np.array(training.loss_curve), np.array(training.validation_scores)
        planes = training.planes()
        finite = all(np.isfinite(part).all() for part in planes)
        if finite:
            changed = np.ones(len(forest.threshold), dtype=bool)
            forest = repack(forest, *planes, changed)
    if trains or held.any():
        counted = table, target, weight
        units = {"criterion": criterion, "scale": scale}
        forest = settle(forest, *counted, **units)
        if trains and not (finite and _keeps(start, forest, *counted, scale)):
            warnings.warn(
                f"joint training with nu={nu:.4g} lost nearly all that the tree had learnt, "
                "which is kept as it was grown; a larger nu, a smaller learning_rate or fewer "
                "leaves may help",
                ConvergenceWarning,
                stacklevel=2,
            )
            forest = settle(start, *counted, **units)
    return forest, {
        "loss_curve_": curve,
        "validation_scores_": scores,
        "n_active_leaves_": int(forest.n_leaves[0]),
    }


def _keeps(before, after, table, target, weight, scale):
    """Has the tree kept a part of what it had learnt beyond the answer of its root?"""
    chosen = np.flatnonzero(weight)
    target, weight = target[chosen], weight[chosen]
    if target.ndim == 1:
        shares = np.bincount(target, weight)
        root = 1 - shares.max() / shares.sum()
    else:
        mean = np.average(target, axis=0, weights=weight)
        root = np.average(np.square(target - mean).mean(axis=1), weights=weight) * scale**2
    old, new = (
        tree_loss(forest, route(forest, table)[chosen], target, weight, scale)
        for forest in (before, after)
    )
    # One that had learnt nothing can lose nothing, but for rounding.
    return new - old <= max(LOST * (root - old), TOLERANCE * old)


class _Training:
    """The joint training of one tree."""

    def __init__(self, forest, table, target, weight, held, seed, stop, settings, nu):
        self.settings = settings
        self.target, self.stop = target, stop
        self.held = np.flatnonzero(held)
        self.held_weight = weight[self.held]
        self.weight = np.where(held, 0.0, weight)
        self.loss_curve, self.validation_scores, self.best = [], [], None
        is_leaf = forest.child < 0
        self.n_leaves = np.count_nonzero(is_leaf)
        child = forest.child.copy()
        child[is_leaf] = -1 - np.arange(self.n_leaves)
        self.n_outputs = forest.n_outputs
        self.lists_all = target.ndim == 2 or forest.n_outputs <= MANY_CLASSES
        leaf = route(forest, table)
        leaf = (np.cumsum(is_leaf) - 1)[leaf]
        self.trainer = JointTrainer(
            table,
            target,
            forest.n_outputs,
            self.weight,
            child,
            *unpack(forest),
            self._leaves(leaf),
            seed,
            stop,
            settings.row_norm,
            nu,
            settings.momentum,
            settings.batch_size,
            1 if settings.inference == "fast" else int(forest.max_depth[0]),
            settings.stable,
            settings.l1,
        )
        self.trainer.assign()

    def _leaves(self, leaf):
        """Parameters of the leaves from counts: smoothed logarithms of shares, or means.

        Where classes are many, a leaf has parameters of its own for those of its rows only.
        """
        rows = np.flatnonzero(self.weight)
        leaf, target, weight = leaf[rows], self.target[rows], self.weight[rows]
        n_leaves, n_outputs = self.n_leaves, self.n_outputs
        total = np.bincount(leaf, weight, n_leaves)
        label = np.zeros(1, dtype=np.int32)
        other = np.zeros(n_leaves)
        if target.ndim == 2:
            sums = np.stack([np.bincount(leaf, weight * y, n_leaves) for y in target.T], axis=1)
            mean = np.divide(sums, total[:, None], out=np.zeros_like(sums), where=sums != 0)
            return np.arange(n_leaves + 1) * n_outputs, label, mean.ravel(), other
        key = leaf * np.int64(n_outputs) + target
        if self.lists_all:
            key = np.concatenate([key, np.arange(n_leaves * n_outputs)])
            weight = np.concatenate([weight, np.zeros(n_leaves * n_outputs)])
        key, inverse = np.unique(key, return_inverse=True)
        # Rows of mean weight are what is added.
        pseudo = np.clip(self.settings.smoothing, *SMOOTHED) * total.sum() / len(rows)
        share = np.bincount(inverse, weight, len(key)) + pseudo
        whole = np.log(total + n_outputs * pseudo)
        start = np.searchsorted(key, np.arange(n_leaves + 1) * np.int64(n_outputs))
        theta = np.log(share) - whole[key // n_outputs]
        if len(key):
            label = (key % n_outputs).astype(np.int32)
        return start, label, theta, np.log(pseudo) - whole

    def _list_classes(self):
        """Give leaves parameters of their own for the classes of rows that they have now."""
        start, label, theta, other = self.trainer.parameters
        new = self._leaves(self.trainer.route(np.arange(len(self.weight))))
        n = np.int64(self.n_outputs)
        old_key = np.repeat(np.arange(self.n_leaves), np.diff(start)) * n + label
        new_key = np.repeat(np.arange(self.n_leaves), np.diff(new[0])) * n + new[1]
        key = np.union1d(old_key, new_key)
        values = other[key // n]
        values[np.searchsorted(key, old_key)] = theta
        start = np.searchsorted(key, np.arange(self.n_leaves + 1) * n)
        self.trainer.set_leaves(start, (key % n).astype(np.int32), values, other)

    def run(self):
        """Epochs with a rate that falls linearly to 0."""
        last, best, stalled = np.inf, np.inf, 0
        n_epochs = self.settings.n_epochs
        if n_epochs == "auto":
            n_epochs = min(30, max(10, VISITS // np.count_nonzero(self.weight)))
        for epoch in range(n_epochs):
            bound = self.trainer.epoch(self.settings.learning_rate * (1 - epoch / n_epochs))
            if self.stop[0]:
                break
            self.loss_curve.append(bound)
            if not self.lists_all:
                self._list_classes()
            if self.settings.stable:
                # Renewed when the bound has settled (section 6).
                if bound > (1 - SETTLED) * last:
                    self.trainer.assign()
                    last = np.inf
                else:
                    last = bound
            if not len(self.held):
                continue
            loss = self._validation_loss()
            self.validation_scores.append(-loss)
            if loss < best:
                stalled = stalled + 1 if loss > best - TOLERANCE * abs(best) else 0
                best, self.best = loss, self.trainer.planes()
            else:
                stalled += 1
            if stalled >= self.settings.n_iter_no_change:
                break

    def planes(self):
        """Splits at the end, or at the best validation score."""
        return self.trainer.planes() if self.best is None else self.best

    def _validation_loss(self):
        """Mean loss of the rows held out, at the leaves as they are."""
        return np.average(self.trainer.losses(self.held), weights=self.held_weight)
