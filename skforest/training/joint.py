"""Joint training of all splits and leaves of a grown tree.

Norouzi, Collins, Johnson, Fleet, Kohli, "Efficient Non-greedy Optimization of Decision Trees",
2015. The gradient steps are in `_kernels/nongreedy/trainer`; this file has the initial leaves, the
epochs, early stopping and the resulting tree.
"""

import warnings
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from .._kernels.nongreedy.trainer import JointTrainer
from ..forest.edit import DenseTree, recount_and_prune, repack
from ..forest.statistics import route, tree_loss
from .early_stopping import TOLERANCE, EarlyStopping
from .losses import UserKernel
from .user_leaves import UserTreeLeaves, keeps_gain, leaf_values, with_user_leaves

# Chosen without a stored measurement, on the rows that docs/papers/nongreedy.md names.
VISITS = 1_000_000  # n_epochs="auto": rows shown to a tree, in 10 to 30 epochs
# Stable assignments are renewed after an epoch that lowers the bound by less than this fraction.
STABLE_PROGRESS = 0.01
MANY_CLASSES = 100  # with more, a leaf has parameters only for the classes of its rows
MIN_SMOOTHING, MAX_SMOOTHING = 1e-100, 1e100  # limits that keep logarithms finite
# Training has failed if it loses this share of the gain of the grown tree. Chosen among 0.2 to 0.9
# on inner splits of the training rows of 32 tables; no command repeats this.
LOST = 0.35


@dataclass(frozen=True)
class JointSettings:
    """The parameters of joint training, with the defaults of `NonGreedyTreeClassifier`."""

    inference: str = "fast"
    stable: bool = False
    nu: float | str = "auto"
    learning_rate: float = 0.3
    schedule: str = "linear"
    momentum: float = 0.9
    n_epochs: int | str = "auto"  # "auto" depends on the number of rows of a tree
    batch_size: int = 100
    l1: float = 0.0
    smoothing: float = 0.1
    leaves: str = "counts"
    row_norm: float | None = 8.0
    rescale_splits: bool = True
    validation_fraction: float | None = None  # None: no early stopping
    n_iter_no_change: int = 5
    kernel: UserKernel | None = None  # a loss of the user; None: log loss or squared error

    @classmethod
    def of(cls, tree):
        """Read the settings from the parameters of a non-greedy tree."""
        # Attributes, not `get_params`: a subclass may fix some of them in its constructor.
        params = vars(tree) | tree._procedure.get_params()
        if not params["early_stopping"]:
            params["validation_fraction"] = None
        names = [part.name for part in fields(cls) if part.name in params]
        return cls(**{name: params[name] for name in names})

    def resolved(self, n_features):
        """Return the settings with a number for `nu`, which training needs."""
        return replace(self, nu=resolve_nu(self.nu, n_features))


def joint_settings(refine):
    """Return the `JointSettings` of "nongreedy", or of an estimator of non-greedy trees."""
    if refine == "nongreedy":
        return JointSettings()
    is_tree = isinstance(refine, BaseEstimator) and {"nu", "l1"} <= refine.get_params().keys()
    if not is_tree:
        raise TypeError(
            'refine must be "nongreedy", "alternating", None, a NonGreedyTreeClassifier or a '
            f"NonGreedyTreeRegressor, got {refine!r}"
        )
    return JointSettings.of(refine)


def resolve_nu(nu, n_features):
    """Return the limit of the squared norm of splits, if it is "auto".

    Rows are scaled to the same norm. With few features, each feature is large and weights change
    quickly. Therefore, the limit is 20 for 256 features or more, 75 for 16, 100 for 9 or fewer.
    """
    return min(max(300 / n_features**0.5, 20.0), 100.0) if nu == "auto" else float(nu)


def train_jointly(forest, data, validation_mask, seed, stop, settings, criterion, report=None):
    """Train all splits and leaves of a tree together, and prune it.

    `settings` are resolved JointSettings. Rows in the mask `validation_mask` are held out and
    decide when to stop. `report` is called with the number of completed epochs and the largest
    number of epochs. Return the tree and a record: "loss_curve_", "validation_scores_" and
    "n_active_leaves_". If the tree has lost more than a third of its gain, warn and return the
    grown tree.
    """
    if not len(forest.threshold) or stop[0]:
        # Validation rows count for the leaves, too.
        if validation_mask.any() or settings.kernel is not None:
            forest = _recounted(forest, data, criterion, settings)
        return forest, _record(forest)
    training = _Training(forest, data, validation_mask, seed, stop, settings)
    training.run(report)
    planes, leaf_values = training.result()
    grown = forest
    trained = planes if leaf_values is None else (*planes, leaf_values)
    is_sound = all(np.isfinite(part).all() for part in trained)
    if is_sound:
        forest = repack(grown, *planes, np.ones(len(grown.threshold), dtype=bool))
        forest = _recounted(forest, data, criterion, settings, leaf_values)
        is_sound = _has_kept_its_gain(grown, forest, data, settings.kernel)
    if not is_sound:
        warnings.warn(
            f"joint training with nu={settings.nu:.4g} lost more than a third of what the tree "
            "had learned, and the tree is returned as it was grown; a larger nu, a smaller "
            "learning_rate or fewer leaves may help",
            ConvergenceWarning,
            stacklevel=2,
        )
        forest = _recounted(grown, data, criterion, settings)
    return forest, _record(forest, training.loss_curve, training.stopping.scores)


def _recounted(forest, data, criterion, settings, leaf_values=None):
    """As `recount_and_prune`, with leaves that minimise a user's loss if there is one."""
    forest = recount_and_prune(forest, data, criterion, leaf_values)
    if settings.kernel is None or leaf_values is not None:
        return forest
    return with_user_leaves(forest, data, settings.kernel)


def _record(forest, loss_curve=(), scores=()):
    """Return the records of training by fitted attribute."""
    return {
        "loss_curve_": np.array(loss_curve, dtype=np.float64),
        "validation_scores_": np.array(scores, dtype=np.float64),
        "n_active_leaves_": int(forest.n_leaves[0]),
    }


def _has_kept_its_gain(before, after, data, kernel):
    """Return whether training has kept a part of the gain over a constant prediction."""
    if kernel is not None:
        return keeps_gain(before, after, data, kernel, LOST, TOLERANCE)
    chosen = data.rows
    target, weight = data.target[chosen], data.weight[chosen]
    if data.is_classification:
        shares = np.bincount(target, weight)
        constant = 1 - shares.max() / shares.sum()
    else:
        mean = np.average(target, axis=0, weights=weight)
        constant = np.average(np.square(target - mean).mean(axis=1), weights=weight)
        constant *= data.target_scale**2
    old, new = (tree_loss(one, route(one, data.X), data) for one in (before, after))
    # A tree without gain can only lose by rounding.
    return new - old <= max(LOST * (constant - old), TOLERANCE * old)


class _Training:
    """The joint training of one tree."""

    def __init__(self, forest, data, validation_mask, seed, stop, settings):
        self.settings, self.stop = settings, stop
        self.target, self.target_scale = data.target, data.target_scale
        self.stopping = EarlyStopping(validation_mask, settings.n_iter_no_change)
        self.validation_weight = data.weight[validation_mask]
        self.weight = np.where(validation_mask, 0.0, data.weight)
        self.loss_curve = []
        self.n_leaves = len(forest.threshold) + 1
        self.n_outputs, self.is_class = data.n_outputs, data.is_classification
        self.lists_all_classes = not data.is_classification or data.n_outputs <= MANY_CLASSES
        tree = DenseTree.of(forest)
        leaf, self.own = -1 - tree.child[route(forest, data.X)], None
        if settings.kernel is None:
            leaves = self._leaf_parameters(leaf)
        else:
            self.lists_all_classes = True
            self.own = UserTreeLeaves(
                settings.kernel, data, self.weight, leaf, self.n_leaves, settings.smoothing
            )
            leaves = self.own.parameters
        sample, self.baseline = data.sample(self.weight), data.baseline
        self.trainer = JointTrainer(sample, settings, seed, stop, tree, leaves, self.own)
        self.trainer.assign()

    def _leaf_parameters(self, leaf):
        """Return parameters of the leaves from their rows: smoothed log shares, or means.

        With many classes, a leaf has parameters only for the classes of its rows.
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
        if self.lists_all_classes:
            key = np.concatenate([key, np.arange(n_leaves * n_outputs)])
            weight = np.concatenate([weight, np.zeros(n_leaves * n_outputs)])
        key, inverse = np.unique(key, return_inverse=True)
        # `smoothing` counts rows of mean weight.
        smoothing = np.clip(self.settings.smoothing, MIN_SMOOTHING, MAX_SMOOTHING)
        pseudo = smoothing * total.sum() / len(rows)
        share = np.bincount(inverse, weight, len(key)) + pseudo
        whole = np.log(total + n_outputs * pseudo)
        start = np.searchsorted(key, np.arange(n_leaves + 1) * np.int64(n_outputs))
        theta = np.log(share) - whole[key // n_outputs]
        if len(key):
            label = (key % n_outputs).astype(np.int32)
        return start, label, theta, np.log(pseudo) - whole

    def _add_classes(self):
        """Give leaves parameters for the classes of the rows that reach them now."""
        start, label, theta, other = self.trainer.parameters
        new = self._leaf_parameters(self.trainer.route(np.arange(len(self.weight))))
        n = np.int64(self.n_outputs)
        old_key = np.repeat(np.arange(self.n_leaves), np.diff(start)) * n + label
        new_key = np.repeat(np.arange(self.n_leaves), np.diff(new[0])) * n + new[1]
        key = np.union1d(old_key, new_key)
        values = other[key // n]
        values[np.searchsorted(key, old_key)] = theta
        start = np.searchsorted(key, np.arange(self.n_leaves + 1) * n)
        self.trainer.set_leaves(start, (key % n).astype(np.int32), values, other)

    def run(self, report=None):
        """Train for all epochs; the learning rate decreases linearly to 0, or is constant."""
        last = np.inf
        n_epochs = self.settings.n_epochs
        if n_epochs == "auto":
            n_epochs = min(30, max(10, VISITS // np.count_nonzero(self.weight)))
        for epoch in range(n_epochs):
            share = 1.0 if self.settings.schedule == "constant" else 1 - epoch / n_epochs
            bound = self.trainer.epoch(self.settings.learning_rate * share)
            if self.stop[0]:
                break
            self.loss_curve.append(bound)
            if not self.lists_all_classes:
                self._add_classes()
            if self.settings.stable:
                # Renew assignments when the bound hardly decreases (section 6).
                if bound > (1 - STABLE_PROGRESS) * last:
                    self.trainer.assign()
                    last = np.inf
                else:
                    last = bound
            loss = splits = None
            if len(self.stopping.rows):
                loss, splits = self._validation_loss(), self._planes_and_leaves()
            if self.stopping.ends(loss, splits, report, epoch + 1, n_epochs):
                break

    def result(self):
        """Return hyperplanes and leaf values of the last epoch, or of the best in validation.

        The leaf values are None if rows determine them.
        """
        return self._planes_and_leaves() if self.stopping.best is None else self.stopping.best

    def _planes_and_leaves(self):
        return self.trainer.planes(), self._leaf_values()

    def _leaf_values(self):
        """Return the predictions of leaf parameters, (n_leaves, n_outputs), or None."""
        if self.settings.leaves == "counts":
            return None
        if self.own is not None:
            return leaf_values(self.own.raw, self.settings.kernel, self.is_class, self.baseline)
        start, label, theta, other = self.trainer.parameters
        if self.target.ndim == 2:
            return theta.reshape(self.n_leaves, self.n_outputs) * self.target_scale
        value = np.repeat(other[:, None], self.n_outputs, axis=1)
        value[np.repeat(np.arange(self.n_leaves), np.diff(start)), label] = theta
        return softmax(value, axis=1)

    def _validation_loss(self):
        """Return the weighted mean loss of the validation rows."""
        losses = self.trainer.losses(self.stopping.rows)
        return np.average(losses, weights=self.validation_weight)
