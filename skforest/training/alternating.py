"""Alternating refinement of one tree.

Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application to
learning sparse oblique trees", 2018. The tree keeps its structure. Its hyperplanes are trained
again one after another, and its leaves are computed again, so the loss of the tree on its training
rows never rises.
"""

from dataclasses import dataclass

import numpy as np

from .._kernels.refine.alternate import Alternator
from ..forest.edit import max_sparse_weights, prune, replace_splits
from ..forest.statistics import leaf_predictions, reached_nodes, recount, route, tree_loss

# Chosen without a stored measurement, as are the defaults below.
VISITS = 30_000  # n_epochs="auto": rows shown to a node, in 3 to 15 epochs
MAX_EPOCHS = 15
UNLIMITED = 2**40


@dataclass(frozen=True, kw_only=True)
class AlternatingSettings:
    """The parameters of `refine` for one tree, with their defaults."""

    n_sweeps: int = 2
    nu: float = 100.0
    learning_rate: float = 0.3
    n_epochs: int | str = "auto"
    momentum: float = 0.9
    batch_size: int = 100
    row_norm: float = 8.0
    max_weights: int = 0  # of a hyperplane; 0: no limit

    @property
    def n_visits(self):
        """int: number of rows shown to a node, within the limits of epochs."""
        return VISITS if self.n_epochs == "auto" else UNLIMITED

    @property
    def max_epochs(self):
        """int: largest number of epochs of a node."""
        return MAX_EPOCHS if self.n_epochs == "auto" else self.n_epochs


def refine_tree(forest, data, seed, stop, settings, criterion, pruned=True, features=None):
    """Refine one hard tree on its sample.

    In classification, an estimator must have made the tree. Hyperplanes are trained on X, or on
    ``Z = (X - offset) * scale`` in float32 if `features` are the arrays (Z, offset, scale). Gains
    are in the units of `criterion`. Return the tree, and the curve of `tree_loss` before and after
    each sweep, float64 of shape (n_sweeps + 1,), which never rises.
    """
    chosen = data.rows
    longest_sparse = max_sparse_weights(forest.n_features, forest.weight_dtype)
    leaf = route(forest, data.X)
    curve = [tree_loss(forest, leaf, data)]
    # The kernel has float32 weights, so a power of two brings them near 1.
    relative = np.ldexp(data.weight, -np.frexp(data.weight[chosen].mean())[1])
    alternator = Alternator(data.sample(relative), settings, seed, stop, features)
    for _ in range(settings.n_sweeps):
        if stop[0]:
            break
        prediction = leaf_predictions(forest, data.target_scale)
        alternator.load(forest, leaf[chosen], prediction, longest_sparse)
        other = replace_splits(forest, *alternator.sweep())
        arrived = route(other, data.X)
        other = recount(other, data, criterion, arrived)
        loss = tree_loss(other, arrived, data)
        if loss <= curve[-1]:  # it could only rise by rounding
            forest, leaf = other, arrived
        curve.append(min(loss, curve[-1]))
    if pruned:
        forest = prune(forest, reached_nodes(forest, leaf[chosen]))
    return forest, np.array(curve)
