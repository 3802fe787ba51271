"""Alternating refinement of one tree.

Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application to
learning sparse oblique trees", 2018. The tree keeps its structure; its hyperplanes are trained
anew one after another, and its leaves are computed again, so that the loss of the tree on its
training rows never rises.
"""

import numpy as np

from .._kernels.refine.alternate import Alternator
from .._kernels.refine.logistic import Logistic
from ..forest.edit import max_sparse_weights, prune, replace_splits
from ..forest.statistics import leaf_predictions, reached_nodes, recount, route, tree_loss

MOMENTUM = 0.9
BATCH_SIZE = 100
ROW_NORM = 8.0
VISITS = 30_000  # n_epochs="auto": rows shown to a node, in 3 to 15 epochs
MAX_EPOCHS = 15
UNLIMITED = 2**40


def refine_tree(
    forest, data, seed, stop, *, criterion, n_sweeps=2, nu=100.0, learning_rate=0.3,
    n_epochs="auto", pruned=True, features=None,
):  # fmt: skip
    """Refine one hard tree on its sample; in classification it is as an estimator made it.

    `features` are the ndarrays (Z, offset, scale) of the space in which hyperplanes are trained:
    ``Z = (X - offset) * scale`` in float32; None: X. Gains are in the units of `criterion`; other
    parameters are as in `refine`. Return the tree, and the curve of `tree_loss` before and after
    each sweep, float64 of shape (n_sweeps + 1,); it never rises.
    """
    chosen = data.rows
    Z, offset, factor = features or (data.X, None, None)
    visits, max_epochs = (VISITS, MAX_EPOCHS) if n_epochs == "auto" else (UNLIMITED, n_epochs)
    trainer = Logistic(
        Z, len(chosen), seed, stop, nu, learning_rate, MOMENTUM, BATCH_SIZE, visits, max_epochs,
        ROW_NORM,
    )  # fmt: skip
    grid = forest.feature_shape, forest.wrap, forest.unordered
    longest_sparse = max_sparse_weights(forest.n_features, forest.weight_dtype)
    leaf = route(forest, data.X)
    curve = [tree_loss(forest, leaf, data)]
    # The kernel has weights in float32: they are brought near 1 by a power of two.
    relative = np.ldexp(data.weight, -np.frexp(data.weight[chosen].mean())[1])
    for _ in range(n_sweeps):
        if stop[0]:
            break
        swept = Alternator(
            forest.arrays, grid, forest.router.max_terms, longest_sparse, data.X, offset, factor,
            data.target, relative, chosen, leaf[chosen],
            leaf_predictions(forest, data.target_scale), trainer,
        ).sweep()  # fmt: skip
        other = replace_splits(forest, *swept)
        arrived = route(other, data.X)
        other = recount(other, data, criterion, arrived)
        loss = tree_loss(other, arrived, data)
        if loss <= curve[-1]:  # it could only have risen by rounding
            forest, leaf = other, arrived
        curve.append(min(loss, curve[-1]))
    if pruned:
        forest = prune(forest, reached_nodes(forest, leaf[chosen]))
    return forest, np.array(curve)
