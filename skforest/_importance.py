"""Floor 5: how much each feature matters, by a quick forest of single features."""

from __future__ import annotations

import numpy as np

from ._grow import Grower
from ._projection import AxisSampler
from ._rows import tree_seed
from ._search import SearchSplitter
from .forest import Forest

N_TREES = 50
MAX_DRAWS = 2000  # rows of a tree
MIN_LEAF = 2
MAX_DEPTH = 2**31 - 1
FIRST_SEED = 3 * 2**61  # far from the numbers of trees and bags


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
    for tree in range(N_TREES):
        own = tree_seed(seed, FIRST_SEED + tree)
        weight = rows.bootstrap(own, min(len(rows), MAX_DRAWS))
        splitter = SearchSplitter(
            rows.X,
            target,
            options["n_outputs"],
            weight,
            np.flatnonzero(weight).astype(np.int32),
            "gini" if target.ndim == 1 else "squared_error",
            own,
            stop,
            AxisSampler(n_features),
            max(1, int(np.sqrt(n_features)) if target.ndim == 1 else n_features // 3),
            False,
            32,
            1024,
            MIN_LEAF,
            0.0,
            False,
        )
        arrays = Grower(splitter, MAX_DEPTH, 2 * MIN_LEAF, 0.0, 0).grow()
        arrays |= splitter.directions() | splitter.values()
        arrays["tree_start"] = [0, len(arrays["child"])]
        total += Forest(arrays, n_features=n_features, **options).feature_importances()
    return total / (total.sum() or 1)
