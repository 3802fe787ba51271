"""Alternating refinement of any forest of hard trees.

Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application to
learning sparse oblique trees", 2018. Every tree keeps its structure; its hyperplanes are trained
again one after another, and its leaves are computed again, so that the loss of the tree on its
training rows never rises.
"""

import copy

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from .._docs import with_texts
from .._kernels.base.rows import tree_seed
from ..forest.edit import with_prior_ratio, with_votes
from ..forest.statistics import route
from ..table.matrix import min_max, scaled
from ..training.alternating import AlternatingSettings, refine_tree
from ..training.losses import Loss
from ..training.method import joined
from ..training.progress import Progress
from ..training.threads import in_parallel
from .base import Integral, Interval, Real, StrOptions, validate_params
from .prediction import is_forest
from .targets import RoutingMixin
from .unwrap import refusal, rewrapped, unwrapped
from .validation import check_n_jobs, draw_seed


@with_texts()
@validate_params(
    {
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        "nu": [Interval(Real, 0.0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "n_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "max_weights": [Interval(Integral, 1, 2**20, closed="both"), None],
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
    max_weights=None,
    prune=True,
    n_jobs=None,
    random_state=None,
    verbose=0,
):
    """Improve the trees of a fitted forest by tree alternating optimisation.

    Every tree keeps its structure. Node by node, from the leaves to the root, the split is
    replaced by a hyperplane over all features, trained by logistic regression to send each row of
    the node to the subtree that predicts it better [1]_. Then the leaves are computed again. The
    loss of a tree on its training rows never rises.

    Single trees and small forests gain most; they may become more accurate, or smaller, than
    deeper ones.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted, with hard splits: a manifold, CO2 or non-greedy forest, or end-to-end trees, which
        then have routing="hard". It is not changed. If you pass a search, its best estimator is
        refined; if you pass a pipeline, the last step of a copy is refined.
    X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)
        Training rows, which may be the ones that the estimator was fitted on.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Labels that the estimator was fitted on, or numbers in regression.
    sample_weight : array-like of shape (n_samples,), default=None
        At least 0, and not all 0. None: all weights are 1.
    n_sweeps : int, default=2
        Number of visits to every node, at least 1.
    nu : float, default=100.0
        Upper limit of the squared norm of the weights and the bias of a split, greater than 0.
        Features are scaled so that the rows that train a split have root mean square norm 8.
    learning_rate : float, default=0.3
        Length of a gradient step, greater than 0. It is halved when the loss has not decreased for
        three epochs; training ends at a fiftieth of its first value.
    n_epochs : "auto" or int, default="auto"
        Maximum number of passes over the rows that train a split. "auto": 30000 / n for n rows,
        but at least 3 and at most 15.
    max_weights : int or None, default=None
        Maximum number of weights of a new split that are not 0, at least 1. The smallest weights
        are set to 0 in the first half of the epochs, more and more of them. None: all may differ
        from 0.
    prune : bool, default=True
        Whether to remove nodes that no training row reaches any more.
    n_jobs : int or None, default=None
        Number of threads that refine trees. None: 1, unless in a `joblib.parallel_config` context.
        -1: all processors. The refined forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the order in which rows are shown.
    verbose : int, default=0
        1 shows progress; see the estimators.

    Returns
    -------
    refined : estimator of the same class
        A fitted copy with one more attribute, `refine_curve_`: for every tree an ndarray of shape
        (n_sweeps + 1,), float64, its loss on its training rows before and after each sweep (the
        weighted fraction of wrong labels, or the weighted mean squared error). For a non-greedy
        tree, it is one ndarray, otherwise a list. Out-of-bag attributes are computed
        again from the refined trees, or removed if the samples cannot be drawn again.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is not an estimator of this package, if it is a blend, or if its splits are networks.
    ValueError
        If a parameter or the data is invalid, or the estimator is a hinge forest or oblique
        boosting, or has a loss of your own.

    Notes
    -----
    With `bootstrap`, each tree is refined on its own sample if X, y and `sample_weight` are the
    same as in `fit`, because the sample can then be drawn again; the weights of the leaves show
    whether they are the same. Otherwise, and without `bootstrap`, it is refined on all rows.

    If a forest does not scale its features, hyperplanes are trained on features scaled to [0, 1]
    and stored in the original units. Limits such as `min_samples_leaf` apply to growing only. The
    lengths of the new hyperplanes are unrelated to the steepness of an end-to-end tree, so soft
    routing of refined trees is not meaningful.

    References
    ----------
    .. [1] M. A. Carreira-Perpinan, P. Tavallali, "Alternating optimization of decision trees, with
       application to learning sparse oblique trees", 2018.

    Examples
    --------
    >>> import skforest
    {digits}
    >>> tree = skforest.CO2ForestClassifier(1, max_depth=6, random_state=0)
    >>> tree = tree.fit(X_train, y_train)
    >>> better = skforest.refine(tree, X_train, y_train, random_state=0)
    >>> round(tree.score(X_test, y_test), 2), round(better.score(X_test, y_test), 2)
    (0.93, 0.95)
    """
    whole = unwrapped(estimator)
    if whole.estimator is not estimator:
        options = {
            "n_sweeps": n_sweeps, "nu": nu, "learning_rate": learning_rate, "n_epochs": n_epochs,
            "max_weights": max_weights, "prune": prune, "n_jobs": n_jobs,
            "random_state": random_state, "verbose": verbose,
        }  # fmt: skip
        X = whole.transform(X)
        return rewrapped(estimator, lambda own: refine(own, X, y, sample_weight, **options))
    _check_estimator(estimator)
    check_n_jobs(n_jobs)
    refined = copy.copy(estimator)
    if isinstance(refined, RoutingMixin):
        refined.routing = "hard"
        refined.forest_ = refined._routing_forest
    if sparse.issparse(X):
        raise TypeError("refine takes dense X, since it trains hyperplanes over all features")
    data = refined._known_training_set(X, y, sample_weight)
    seed = draw_seed(random_state)
    forest = with_prior_ratio(refined.forest_, None)
    ratio = refined._ratio_to_prior(data)
    features = None
    if not forest.feature_map.is_scaling:
        offset, factor = min_max(data.X)
        features = scaled(data.X, offset, factor), offset, factor
    settings = AlternatingSettings(
        n_sweeps=n_sweeps,
        nu=nu,
        learning_rate=learning_rate,
        n_epochs=n_epochs,
        max_weights=max_weights or 0,
    )
    options = settings, refined._criterion, prune, features
    if not len(forest.deviation):
        forest = forest.replaced({**forest.arrays, "deviation": data.deviation()})

    def refine_one(tree, control):
        sample, is_own = _tree_sample(estimator, data, tree)
        found = refine_tree(
            forest[tree].compact(), sample, tree_seed(seed, tree), control.stop, *options
        )
        return *found, is_own

    progress = Progress(verbose, len(forest), "refine")
    done = in_parallel(refine_one, range(len(forest)), n_jobs, progress)
    trees, curves, is_own = zip(*done)
    refined.forest_ = joined(trees)
    if getattr(refined, "_has_votes", False):
        refined.forest_ = with_votes(refined.forest_)
    refined.forest_ = with_prior_ratio(refined.forest_, ratio)
    refined.refine_curve_ = list(curves)
    if hasattr(refined, "_update_refined_records"):
        refined._update_refined_records()
    refined._forget_held_out()
    if not all(is_own):  # a warm start does not know what the trees have seen
        vars(refined).pop("_samples", None)
    if getattr(refined, "oob_score", False) and all(is_own):
        refined._set_oob(estimator._sampling(), data)
    return refined


def _check_estimator(estimator):
    """Raise an error unless the forest of the estimator can be refined."""
    if not is_forest(estimator):
        needed = "a fitted manifold, CO2, non-greedy or end-to-end estimator of skforest"
        raise refusal(estimator, needed=needed)
    check_is_fitted(estimator, "forest_")
    forest = estimator.forest_
    if isinstance(getattr(estimator, "loss", None), Loss):
        raise ValueError(
            f"estimator has loss={estimator.loss!r}, which alternating refinement does not "
            "minimise"
        )
    if hasattr(estimator, "networks_"):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}, whose splits are networks; only "
            "hyperplanes and single features can be refined"
        )
    soft = forest.gate != "hard" and not isinstance(estimator, RoutingMixin)
    if soft or forest.link != "identity" or forest.aggregate != "mean":
        raise ValueError(
            f"estimator is a {type(estimator).__name__}, which cannot be refined; only trees with "
            "hard splits whose predictions are averaged can be, such as those of manifold, CO2, "
            f"non-greedy and end-to-end estimators (gate={forest.gate!r}, link={forest.link!r}, "
            f"aggregate={forest.aggregate!r})"
        )


def _tree_sample(estimator, data, tree):
    """The sample to refine a tree on, and whether it is the one that the tree was grown on.

    A bootstrap sample is drawn again from the seed of the tree. It is the right one if every leaf
    gets the same weight as before; otherwise all rows are used.
    """
    if not getattr(estimator, "bootstrap", False):
        return estimator._sampling().sample(data, 0), False
    try:
        sample = estimator._sampling().sample(data, tree_seed(estimator._seed, tree))
        forest = estimator.forest_[tree]
        counted = np.bincount(route(forest, data.X), sample.weight, forest.n_nodes)
        leaf = forest.child < 0
        if np.allclose(counted[leaf], forest.node_weight[leaf], rtol=1e-9, atol=0):
            return sample, True
    except ValueError:  # more draws than there are rows
        pass
    return estimator._sampling(False).sample(data, 0), False
