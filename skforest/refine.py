"""Alternating refinement of any forest of hard trees.

Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application to
learning sparse oblique trees", 2018. Every tree keeps its structure; its hyperplanes are trained
anew one after another, and its leaves are counted again, so that the loss of the tree on its
training rows never rises.
"""

from __future__ import annotations

import copy

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._base import (
    BaseForest,
    Integral,
    Interval,
    Real,
    StrOptions,
    draw_seed,
    in_threads,
    validate_params,
)
from ._feature_map import min_max, scaled
from ._kernels.rows import tree_seed
from ._targets import RoutingMixin
from .forest import Forest
from .forest.edit import route
from .forest.storage import join
from .training.alternating import refine_tree

OOB = ("oob_score_", "oob_prediction_", "oob_decision_function_")


@validate_params(
    {
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        "nu": [Interval(Real, 0.0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "n_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "prune": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    },
    prefer_skip_nested_validation=True,
)
def refine(
    estimator,
    X,
    y,
    sample_weight=None,
    *,
    n_sweeps=2,
    nu=100.0,
    learning_rate=0.3,
    n_epochs="auto",
    prune=True,
    n_jobs=None,
    random_state=None,
    verbose=0,
):
    """Improve the trees of a fitted forest by tree alternating optimisation.

    Every tree keeps its structure. Node by node, from the leaves to the root, a hyperplane over
    all features takes the place of the split: trained by logistic regression to send each row of
    the node to the subtree that answers better for it [1]_. Then the leaves are counted again. The
    loss of a tree on its training rows never rises.

    Single trees and small forests gain most; they may become better, or smaller, than ones that
    were grown deeper.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted, with hard splits: a manifold forest, a CO2 forest; end-to-end trees, which then
        have routing="hard". It stays as it is.
    X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)
        What the estimator was fitted on, or other rows.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Labels that the estimator knows, or targets.
    sample_weight : array-like of shape (n_samples,), default=None
        Not negative, not all 0. None: 1 everywhere.
    n_sweeps : int, default=2
        How often every node is visited, at least 1.
    nu : float, default=100.0
        Bound on the squared norm of the weights and the bias of a split, more than 0. Features
        count in units in which the rows that train a split have the root mean square norm 8.
    learning_rate : float, default=0.3
        Length of a gradient step, more than 0. Halved where the loss has not decreased for three
        epochs; training ends at a fiftieth.
    n_epochs : "auto" or int, default="auto"
        How often, at most, the rows that train a split are shown. "auto": 30000 / n times for n
        rows, but at least 3 and at most 15 times.
    prune : bool, default=True
        Drop nodes that no training row reaches any more.
    n_jobs : int or None, default=None
        Threads that refine trees. None: 1, unless in a `joblib.parallel_config` context. -1: all
        processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the order in which rows are shown.
    verbose : int, default=0
        1 shows progress; see the estimators.

    Returns
    -------
    refined : estimator of the same class
        A fitted copy, with one attribute more: `refine_curve_`, a list with an ndarray of shape
        (n_sweeps + 1,), float64, for every tree, its loss on its training rows before and after
        each sweep: the weighted share of wrong labels, or the weighted mean squared error. (Of a
        single tree, that ndarray.) Its `oob_score_` and what goes with it are of the refined
        trees, or gone where samples cannot be drawn again.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is no estimator of this package, or its splits are networks.
    ValueError
        If a parameter or the data is not valid, or the forest has soft splits.

    Notes
    -----
    With `bootstrap`, a tree is refined on its own sample if that can be drawn again: if X, y and
    `sample_weight` are those of the fit, which the weights of its leaves tell. Otherwise, and
    without `bootstrap`, it is refined on all rows.

    A forest that does not scale its features trains its new planes in features scaled to [0, 1],
    and stores them in its own. Limits such as `min_samples_leaf` hold for growing only. The
    lengths of the new planes have nothing to do with the steepness of an end-to-end tree: soft
    routing of refined trees means little.

    References
    ----------
    .. [1] M. A. Carreira-Perpinan, P. Tavallali, "Alternating optimization of decision trees, with
       application to learning sparse oblique trees", 2018.

    Examples
    --------
    >>> import skforest
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> tree = skforest.CO2ForestClassifier(1, max_depth=6, random_state=0).fit(X_train, y_train)
    >>> better = skforest.refine(tree, X_train, y_train, random_state=0)
    >>> bool(better.score(X_test, y_test) > tree.score(X_test, y_test))
    True
    """
    _check_estimator(estimator)
    refined = copy.copy(estimator)
    if isinstance(refined, RoutingMixin):
        refined.routing = "hard"
        refined.forest_ = refined._gated(refined.forest_)
    rows, target = refined._rows_again(X, y, sample_weight)
    seed = draw_seed(random_state)
    forest = refined.forest_
    scale = getattr(refined, "_target_scale", 1.0) if target.ndim == 2 else 1.0
    criterion = _criterion(refined)
    features = None
    if not len(forest.scale):
        offset, factor = min_max(rows.X)
        features = scaled(rows.X, offset, factor), offset, factor
    if not len(forest.spread):
        forest = forest._with({**forest.arrays, "spread": rows.spread()})

    def one(tree, stop):
        weight, known = _sample(estimator, rows, target, tree)
        result = refine_tree(
            forest[tree].compact(),
            rows.X,
            target,
            weight,
            tree_seed(seed, tree),
            stop,
            criterion=criterion,
            n_sweeps=n_sweeps,
            nu=nu,
            learning_rate=learning_rate,
            n_epochs=n_epochs,
            pruned=prune,
            scale=scale,
            features=features,
        )
        return *result, known

    done = in_threads(one, range(len(forest)), n_jobs, verbose, "refine")
    trees, curves, known = zip(*done)
    refined.forest_ = Forest(join(trees), **forest._meta)
    refined.refine_curve_ = list(curves)
    if hasattr(refined, "_record_refined"):
        refined._record_refined()
    for name in OOB:
        refined.__dict__.pop(name, None)
    if refined.oob_score and all(known):
        refined._set_oob(rows, target)
    return refined


def _check_estimator(estimator):
    """Raise unless its forest is one that can be refined."""
    if not isinstance(estimator, BaseForest):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}; a fitted estimator of skforest is needed"
        )
    check_is_fitted(estimator, "forest_")
    forest = estimator.forest_
    if hasattr(estimator, "networks_"):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}, whose splits are networks; only "
            "hyperplanes and single features can be refined"
        )
    soft = forest.gate != "hard" and not isinstance(estimator, RoutingMixin)
    if soft or forest.link != "identity" or forest.aggregate != "mean":
        raise ValueError(
            f"estimator has a forest with gate={forest.gate!r}, link={forest.link!r}, aggregate="
            f"{forest.aggregate!r}; only hard splits, whose leaves are averaged, can be refined"
        )


def _criterion(estimator):
    """Unit of the gains of an estimator."""
    return getattr(estimator, "criterion", None) or estimator._criterion


def _sample(estimator, rows, target, tree):
    """Weights of the rows of a tree, and whether they are those that it was grown on.

    A bootstrap is drawn again from the seed of the tree. It is the right one if every leaf gets
    the weight that it has had; else all rows take part.
    """
    if not estimator.bootstrap:
        return estimator._tree_weight(rows, target, 0), False
    try:
        weight = estimator._tree_weight(rows, target, tree_seed(estimator._seed, tree))
        forest = estimator.forest_[tree]
        counted = np.bincount(route(forest, rows.X), weight, forest.n_nodes)
        leaf = forest.child < 0
        if np.allclose(counted[leaf], forest.node_weight[leaf], rtol=1e-9, atol=0):
            return weight, True
    except ValueError:  # more draws than there are rows
        pass
    everything = copy.copy(estimator).set_params(bootstrap=False)
    return everything._tree_weight(rows, target, 0), False
