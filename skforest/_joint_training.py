"""Floor 5: joint training of the splits and leaves of a tree that was grown."""

from __future__ import annotations

import numpy as np

from ._joint import JointTrainer
from ._oblique import prune, reached_nodes, recount, repack, route, unpack

VISITS = 1_000_000  # rows that n_epochs="auto" shows to a tree, in 10 to 30 epochs
SETTLED = 0.01  # of the bound: less progress in an epoch, and stable assignments are renewed
TOLERANCE = 1e-4  # of the validation loss


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
    settings : object
        With the attributes inference, stable, nu, learning_rate, momentum, n_epochs, batch_size,
        l1, smoothing, row_norm and n_iter_no_change of `NonGreedyTreeClassifier`.
    criterion : {"entropy", "squared_error"}
    scale : float, default=1.0

    Returns
    -------
    forest : Forest
    record : dict
        "loss_curve_", "validation_scores_", "n_active_leaves_".
    """
    curve = scores = np.zeros(0)
    trains = len(forest.threshold) > 0 and not stop[0]
    if trains:
        training = _Training(forest, table, target, weight, held, seed, stop, settings)
        training.run()
        changed = np.ones(len(forest.threshold), dtype=bool)
        forest = repack(forest, *training.planes(), changed)
        curve, scores = np.array(training.loss_curve), np.array(training.validation_scores)
    if trains or held.any():
        forest = recount(forest, table, target, weight, criterion=criterion, scale=scale)
        leaf = route(forest, table)[weight > 0]
        forest = prune(forest, reached_nodes(forest, leaf))
    return forest, {
        "loss_curve_": curve,
        "validation_scores_": scores,
        "n_active_leaves_": int(forest.n_leaves[0]),
    }


class _Training:
    """The joint training of one tree."""

    def __init__(self, forest, table, target, weight, held, seed, stop, settings):
        self.settings = settings
        self.target, self.stop = target, stop
        self.held = np.flatnonzero(held)
        self.held_weight = weight[self.held]
        self.weight = np.where(held, 0.0, weight)
        self.loss_curve, self.validation_scores = [], []
        is_leaf = forest.child < 0
        self.n_leaves = np.count_nonzero(is_leaf)
        child = forest.child.copy()
        child[is_leaf] = -1 - np.arange(self.n_leaves)
        theta = np.zeros((self.n_leaves, forest.n_outputs))
        self.trainer = JointTrainer(
            table,
            target,
            forest.n_outputs,
            self.weight,
            child,
            *unpack(forest),
            theta,
            seed,
            stop,
            settings.row_norm,
            settings.nu,
            settings.momentum,
            settings.batch_size,
            1 if settings.inference == "fast" else int(forest.max_depth[0]),
            settings.stable,
            settings.l1,
        )
        self.trainer.set_theta(self._leaf_parameters(self.trainer.assign(), theta))

    def _leaf_parameters(self, leaf, theta):
        """Smoothed logarithms of the classes' shares, or means; leaves without rows as given."""
        if self.target.ndim == 1:
            n_classes = theta.shape[1]
            counts = np.bincount(leaf * n_classes + self.target, self.weight, theta.size)
            # Rows of mean weight are what is added.
            unit = self.weight.sum() / np.count_nonzero(self.weight)
            counts = counts.reshape(theta.shape) / unit + self.settings.smoothing
            return np.log(counts / counts.sum(axis=1, keepdims=True))
        total = np.bincount(leaf, self.weight, len(theta))
        theta = theta.copy()
        for k, y in enumerate(self.target.T):
            sum_ = np.bincount(leaf, self.weight * y, len(theta))
            np.divide(sum_, total, out=theta[:, k], where=total > 0)
        return theta

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
        return self.best if self.validation_scores else self.trainer.planes()

    def _validation_loss(self):
        """Loss of the rows held out at the leaves as they are: log loss, or squared error."""
        leaf, theta = self.trainer.route(self.held), self.trainer.leaves()
        target, weight = self.target[self.held], self.held_weight
        if target.ndim == 1:
            return np.average(-theta[leaf, target], weights=weight)
        return np.average(np.square(theta[leaf] - target).sum(axis=1), weights=weight)
