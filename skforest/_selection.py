"""Which of some settings suits a training set, by small forests and rows held out."""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace

import numpy as np

from ._kernels.grow import Grower
from ._kernels.projection import AxisSampler
from ._kernels.rows import tree_seed
from ._kernels.search import SearchSplitter
from .forest import Forest

N_TREES = 10  # of each pilot forest, unless told otherwise
MAX_ROWS = 2000  # that it trains on, and as many that it is tried on
BLOCK = 256  # rows that are answered together
MIN_ROWS = 30  # with fewer, the first setting is as good as any
FIRST_SEED = 2**62  # far from the numbers of the trees that stay


def choose(estimator, rows, target, settings, n_trees=N_TREES, **own):
    """The setting whose forest errs least on rows that it has not seen.

    The error is the mean squared difference to the targets, with classes one-hot (Brier score).

    Parameters
    ----------
    estimator : BaseForest
        While it is fitted, with its seed.
    rows : RowSet
    target : ndarray
        As of `BaseForest._fit_tree`.
    settings : list of dict
        Attributes of the estimator, by name.
    n_trees : int, default=10
        Of each pilot forest.
    **own
        Attributes of all pilot forests.

    Returns
    -------
    setting : dict
    """
    present = np.flatnonzero(rows.weight)
    if len(settings) == 1 or len(present) < MIN_ROWS:
        return settings[0]
    # The stream of RandomState is frozen: the choice does not depend on the version of NumPy.
    random = np.random.RandomState(tree_seed(estimator._seed, FIRST_SEED) % 2**32)
    present = random.permutation(present)
    n_train = min(MAX_ROWS, 2 * len(present) // 3)
    train = np.sort(present[:n_train])
    tried = present[n_train : n_train + MAX_ROWS]
    part = copy(rows)
    part.X, part.Y, part.weight = rows.X[train], rows.Y[train], rows.weight[train]
    errors = []
    for setting in settings:
        trees = range(FIRST_SEED + 1, FIRST_SEED + 1 + n_trees)
        forest = _trial(estimator, setting | own)._fit_forest(part, target[train], trees)
        errors.append(_error(forest, rows, tried))
    return settings[int(np.argmin(errors))]


def _error(forest, rows, tried):
    """Weighted sum of squared differences between answers and targets of some rows."""
    total = 0.0
    # Few at once: there may be many classes.
    for first in range(0, len(tried), BLOCK):
        block = tried[first : first + BLOCK]
        answer = forest._respond(rows.X[block])
        truth = rows.Y[block]
        if forest.task == "classification":
            truth = np.arange(answer.shape[1]) == truth
        total += rows.weight[block] @ ((answer - truth) ** 2).sum(axis=1)
    return total


def _trial(estimator, setting):
    """A copy of an estimator with a setting, that grows trees and does no more with them."""
    trial = copy(estimator)
    trial.__dict__.update(setting, refine=None, max_samples=None, verbose=0)
    return trial


IMPORTANCE_TREES = 50
MAX_DRAWS = 2000  # rows of a tree
MIN_LEAF = 2
MAX_DEPTH = 2**31 - 1
IMPORTANCE_SEED = 3 * 2**61  # far from the numbers of trees and bags


def quick_importances(rows, target, options, seed):
    """Impurity importances of a random forest of a few axis-parallel trees.

    Parameters
    ----------
    rows : RowSet
    target : ndarray of shape (n_rows,), int32, or (n_rows, n_outputs), float64
        Class numbers, or a real target.
    options : dict
        Task, number of outputs and classes, as a `Forest` takes them.
    seed : int

    Returns
    -------
    importances : ndarray of shape (n_features,), float64
        Not negative, with sum 1, or all 0.
    """
    n_features = rows.X.shape[1]
    stop = np.zeros(1, dtype=np.uint8)
    total = np.zeros(n_features)
    for tree in range(IMPORTANCE_TREES):
        own = tree_seed(seed, IMPORTANCE_SEED + tree)
        weight = rows.bootstrap(own, min(len(rows), MAX_DRAWS))
        training_set = SimpleNamespace(
            X=rows.X,
            target=target,
            weight=weight,
            n_outputs=options["n_outputs"],
            rows=np.flatnonzero(weight).astype(np.int32),
        )
        split_options = SimpleNamespace(
            criterion="gini" if target.ndim == 1 else "squared_error",
            sampler=AxisSampler(n_features),
            n_candidates=max(1, int(np.sqrt(n_features)) if target.ndim == 1 else n_features // 3),
            exact=False,
            n_bins=32,
            max_search_samples=1024,
            min_samples_leaf=MIN_LEAF,
            min_weight_leaf=0.0,
            may_overflow=False,
        )
        splitter = SearchSplitter(training_set, split_options, own, stop)
        arrays = Grower(splitter, MAX_DEPTH, 2 * MIN_LEAF, 0.0, 0).grow()
        arrays |= splitter.directions() | splitter.values()
        arrays["tree_start"] = [0, len(arrays["child"])]
        total += Forest(arrays, n_features=n_features, **options).feature_importances()
    return total / (total.sum() or 1)
