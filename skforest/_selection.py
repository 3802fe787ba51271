"""Choosing settings by training small forests: on held-out rows, and by quick importances."""

from copy import copy

import numpy as np

from ._greedy import GrowthLimits, grow_tree, search_splitter
from ._kernels.projection import AxisSampler
from ._kernels.rows import tree_seed
from .forest import Forest
from .forest.statistics import squared_error

# Of the forests that are compared on held-out rows.
N_TREES = 10
MAX_ROWS = 2000  # rows that such a forest is trained on, and as many that it is tested on
MIN_ROWS = 30  # with fewer, the first setting is taken
FIRST_SEED = 2**62  # far from the numbers of the trees of the final forest

# Of the forest behind `quick_importances`.
IMPORTANCE_TREES = 50
MAX_DRAWS = 2000  # rows of a tree
MIN_LEAF = 2
MAX_DEPTH = 2**31 - 1
IMPORTANCE_SEED = 3 * 2**61  # far from the numbers of trees and bags


def best_setting(estimator, data, settings, n_trees=N_TREES, **shared):
    """The setting whose small forest has the least error on held-out rows.

    The error is the mean squared difference to the targets, with one-hot classes (Brier score).
    `settings` are dicts of attributes of the estimator, `shared` those of all small forests. The
    seed of the estimator is set.
    """
    present = np.flatnonzero(data.weight)
    if len(settings) == 1 or len(present) < MIN_ROWS:
        return settings[0]
    # The stream of RandomState is frozen: the choice does not depend on the version of NumPy.
    random = np.random.RandomState(tree_seed(estimator._seed, FIRST_SEED) % 2**32)
    present = random.permutation(present)
    n_train = min(MAX_ROWS, 2 * len(present) // 3)
    train = data.subset(np.sort(present[:n_train]))
    test = data.subset(present[n_train : n_train + MAX_ROWS])
    trees = range(FIRST_SEED + 1, FIRST_SEED + 1 + n_trees)
    errors = []
    for setting in settings:
        # The copy trains trees and does nothing else with them.
        trial = copy(estimator)
        trial.__dict__.update(setting | shared, refine=None, max_samples=None, verbose=0)
        errors.append(squared_error(trial._fit_forest(train, trees), test))
    return settings[int(np.argmin(errors))]


def quick_importances(data, seed):
    """Impurity importances of a random forest of a few axis-aligned trees; sum 1, or all 0."""
    n_features = data.X.shape[1]
    stop = np.zeros(1, dtype=np.uint8)
    total = np.zeros(n_features)
    if data.is_classification:
        n_candidates = max(1, int(np.sqrt(n_features)))
        classes = np.arange(data.n_outputs)
        task = {"task": "classification", "classes": classes, "n_shared_values": len(classes)}
    else:
        n_candidates = max(1, n_features // 3)
        task = {"task": "regression"}
    limits = GrowthLimits(MAX_DEPTH, 2 * MIN_LEAF, 0.0)
    for tree in range(IMPORTANCE_TREES):
        own_seed = tree_seed(seed, IMPORTANCE_SEED + tree)
        sample = data.sample(data.bootstrap(own_seed, min(len(data), MAX_DRAWS)))
        splitter, options = search_splitter(
            criterion="gini" if data.is_classification else "squared_error",
            sampler=AxisSampler(n_features),
            n_candidates=n_candidates,
            exact=False,
            n_bins=32,
            max_search_samples=1024,
            min_samples_leaf=MIN_LEAF,
            min_weight_leaf=0.0,
        )
        arrays = grow_tree(sample, splitter, options, limits, own_seed, stop)
        forest = Forest(arrays, n_features=n_features, n_outputs=data.n_outputs, **task)
        total += forest.feature_importances()
    return total / (total.sum() or 1)
