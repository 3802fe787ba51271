"""Alternating refinement of one tree.

Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application to
learning sparse oblique trees", 2018. The tree keeps its structure; its hyperplanes are trained
anew one after another, and its leaves are counted again, so that the loss of the tree on its
training rows never rises.
"""

from __future__ import annotations

import numpy as np

from .._kernels.alternate import Alternator
from .._kernels.logistic import Logistic
from ..forest.edit import (
    leaf_answers,
    most_sparse,
    prune,
    reached_nodes,
    recount,
    replace,
    route,
    tree_loss,
)
from .nongreedy import JointSettings, train_jointly

MOMENTUM = 0.9
BATCH_SIZE = 100
ROW_NORM = 8.0
VISITS = 30_000  # rows that n_epochs="auto" shows to a node, in 3 to 15 epochs
MAX_EPOCHS = 15
MANY = 2**40


def refine_tree(
    forest, table, target, weight, seed, stop, *, criterion, n_sweeps=2, nu=100.0,
    learning_rate=0.3, n_epochs="auto", pruned=True, scale=1.0, features=None,
):  # fmt: skip
    """Refine one tree.

    Parameters
    ----------
    forest : Forest
        Of one hard tree, in classification as an estimator made it.
    table : ndarray of shape (n_rows, n_features), uint8 or float32
        Scaled as the tree wants it.
    target : ndarray of shape (n_rows,), int32, or (n_rows, n_outputs), float64
        Class numbers; or deviations from the baseline, divided by `scale`.
    weight : ndarray of shape (n_rows,), float64
        0 for rows that are not the tree's.
    seed : int
    stop : ndarray of shape (1,), uint8
        Not 0 when training shall end.
    criterion : {"gini", "entropy", "squared_error"}
        Unit of the gains of the splits.
    n_sweeps, nu, learning_rate, n_epochs
        As in `refine`.
    pruned : bool, default=True
        Drop nodes that no row reaches.
    scale : float, default=1.0
        A power of two.
    features : tuple of ndarray (Z, offset, scale), default=None
        What planes are trained in, ``Z = (table - offset) * scale`` in float32. None: the table.

    Returns
    -------
    forest : Forest
    curve : ndarray of shape (n_sweeps + 1,), float64
        `tree_loss` before and after each sweep; it never rises.
    """
    chosen = np.flatnonzero(weight).astype(np.int32)
    own = table if len(chosen) == len(weight) else table[chosen]
    counted = target[chosen], weight[chosen]
    Z, offset, factor = features or (table, None, None)
    auto = n_epochs == "auto"
    visits, most = (VISITS, MAX_EPOCHS) if auto else (MANY, n_epochs)
    options = (nu, learning_rate, MOMENTUM, BATCH_SIZE, visits, most, ROW_NORM)
    trainer = Logistic(Z, len(chosen), seed, stop, *options)
    grid = forest.feature_shape, forest.wrap, forest.unordered
    most = most_sparse(forest.n_features, forest.weight_dtype)
    leaf = route(forest, own)
    curve = [tree_loss(forest, leaf, *counted, scale)]
    # A power of two near the mean: the kernel has weights in float32.
    relative = np.ldexp(weight, -np.frexp(counted[1].mean())[1])
    for _ in range(n_sweeps):
        if stop[0]:
            break
        answer = leaf_answers(forest, scale)
        swept = Alternator(
            forest.arrays,
            grid,
            forest._router.max_taps,
            most,
            table,
            offset,
            factor,
            target,
            relative,
            chosen,
            leaf,
            answer,
            trainer,
        ).sweep()
        other = replace(forest, *swept)
        arrived = route(other, own)
        other = recount(other, own, *counted, criterion=criterion, scale=scale, leaf=arrived)
        loss = tree_loss(other, arrived, *counted, scale)
        if loss <= curve[-1]:  # a rise could only be one of rounding
            forest, leaf = other, arrived
        curve.append(min(loss, curve[-1]))
    if pruned:
        forest = prune(forest, reached_nodes(forest, leaf))
    return forest, np.array(curve)


def refine_grown(estimator, forest, rows, target, weight, seed, stop):
    """Refine a tree that was just grown, as the parameter `refine` of its estimator says.

    Parameters
    ----------
    estimator : estimator
        With the parameters `refine` and `n_sweeps`.
    forest, target, weight, seed, stop
        As in `refine_tree`.
    rows : RowSet

    Returns
    -------
    forest : Forest
    record : dict
        What the estimator keeps of it: "refine_curve_", or what `train_jointly` recorded.
    """
    if estimator.refine is None or stop[0]:
        return forest, {}
    scale = estimator._target_scale if target.ndim == 2 else 1.0
    common = forest, rows.X, target, weight
    if estimator.refine == "nongreedy":
        held = np.zeros(len(weight), dtype=bool)
        settings = JointSettings()
        return train_jointly(*common, held, seed, stop, settings, estimator._criterion, scale)
    forest, curve = refine_tree(
        *common,
        seed,
        stop,
        criterion=estimator._criterion,
        n_sweeps=estimator.n_sweeps,
        scale=scale,
    )
    return forest, {"refine_curve_": curve}
