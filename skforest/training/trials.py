"""Choices made with small forests: settings, features of categories, importances."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.special import chdtri

from .._kernels.base.rows import random_stream, tree_seed
from .._kernels.search.projection import AxisSampler, SparseSampler
from ..forest import Forest
from ..forest.statistics import squared_error, squared_errors
from .growing import MAX_DEPTH, GrowthLimits, grow_tree, search_splitter
from .method import MemberForest, train_members
from .threads import Control, NotInTime, in_parallel, local_threads

# All constants were chosen without a stored measurement.

# Forests that are compared on held-out rows:
N_TREES = 10
MAX_ROWS = 2000  # largest number of training rows, and of test rows
TRIAL_SHARE = 0.25  # share of the remaining time
MIN_ROWS = 30  # with fewer, the first setting is taken
FIRST_SEED = 2**62  # far from the numbers of the trees of the final forest

SIGNIFICANCE = 0.01  # level at which indicators of missing values are kept

# Forests that `useful_features` compares:
N_FEATURE_TREES = 20
MEAN_NONZEROS = 2.0
FEATURE_SEED = 5 * 2**60
# Categories that may get indicators of many levels, and by what share, and by how many of its
# standard errors, the error must fall. Chosen by errors on simulated and real tables with
# categories; no command repeats this.
MAX_CATEGORIES = 10
MARGIN, N_STANDARD_ERRORS = 0.03, 2.0

# The forest of `quick_importances`:
IMPORTANCE_TREES = 50
MAX_DRAWS = 2000  # rows drawn for a tree
MIN_LEAF = 2
IMPORTANCE_SEED = 3 * 2**61  # far from the numbers of trees and bags


def best_setting(method_of, data, settings, seed, request, n_trees=N_TREES):
    """Return the settings whose small forest has the lowest error on held-out rows.

    The error is the mean squared error, with one-hot classes (Brier score).
    ``method_of(settings)`` is the `Method` that trains the small forest.
    """
    if len(settings) == 1 or np.count_nonzero(data.weight) < MIN_ROWS:
        return settings[0]
    train, test = _split(data, seed)
    trees = range(FIRST_SEED + 1, FIRST_SEED + 1 + n_trees)
    errors, limit, run = [], request.limit, replace(request.run, verbose=0)
    for number, setting in enumerate(settings):
        if errors and limit is not None and not limit.left():
            break
        if limit is not None:
            # All settings get the same time, in which fast training grows more trees.
            share = TRIAL_SHARE / (len(settings) - number)
            run = replace(run, limit=limit.part(share, at_least=1))
        method = method_of(setting)
        with local_threads():
            forest = method.finish(train_members(method, train, trees, seed, run))
        errors.append(squared_error(forest, test))
    return settings[int(np.argmin(errors))]


def train_small(function, models, n_jobs, limit):
    """Return a list of ``function(model, control)`` of small models, in threads of this process.

    Only the first ones are returned, or none, if there is no time for all.
    """
    try:
        with local_threads():
            return in_parallel(function, models, n_jobs, limit=limit, takes_turns=True)
    except NotInTime:
        return []


def _split(data, seed):
    """Return two thirds of the rows, at most MAX_ROWS, and at most as many other rows."""
    # Trees with pure leaves learn all repeated rows, whatever the settings.
    data, _ = data.in_copies(also_repeated=False)
    random = random_stream(seed, FIRST_SEED)
    present = random.permutation(np.flatnonzero(data.weight))
    n_train = min(MAX_ROWS, 2 * len(present) // 3)
    train = data.subset(np.sort(present[:n_train]))
    return train, data.subset(present[n_train : n_train + MAX_ROWS])


def useful_features(data, seed, compares_indicators, n_jobs=None):
    """Return the training set with those features of missing values and categories that help.

    Indicators of more levels than usual are added first, see `_with_indicators`. Indicators of
    missing values are tested one by one, see `_is_informative`. With `compares_indicators`, small
    forests with and without the remaining indicators are compared on held-out rows. Then forests
    with and without the indicators and target statistics of categories are compared. All are
    grown in `n_jobs` threads.
    """
    if np.count_nonzero(data.weight) < MIN_ROWS:
        return data
    data, error = _with_indicators(data, seed, n_jobs)
    is_kept = ~data.feature_map.says_missing
    for f in np.flatnonzero(~is_kept):
        is_kept[f] = _is_informative(data.X[:, f] > 0, data)
    data, error = _with_selected(data, is_kept), error if is_kept.all() else None
    for name in ("says_missing", "is_extra") if compares_indicators else ("is_extra",):
        is_kept = ~getattr(data.feature_map, name)
        if is_kept.all():
            continue
        error = _held_out_error(data, seed, n_jobs) if error is None else error
        without = _with_selected(data, is_kept)
        error_without = _held_out_error(without, seed, n_jobs)
        if error_without < error:
            data, error = without, error_without
    return data


def _with_indicators(data, seed, n_jobs):
    """Return the training set with indicators of many levels where they help, and its error.

    They are tried for one category after the other, the most important ones first, and are kept if
    the error of a small forest clearly falls. The error is None if none were tried.
    """
    columns = data.feature_map.without_indicators
    if not columns:
        return data, None
    parts = _split(data, seed)
    forest = _feature_forest(parts[0], seed, n_jobs)
    errors = squared_errors(forest, parts[1])
    importance = data.feature_map.per_input(forest.feature_importances())
    for j in sorted(columns, key=lambda j: -importance[j])[:MAX_CATEGORIES]:
        others = [_indicating(part, j) for part in parts]
        other_errors = squared_errors(_feature_forest(others[0], seed, n_jobs), others[1])
        gain = errors - other_errors
        least = N_STANDARD_ERRORS * math.sqrt(np.square(gain).sum())
        if gain.sum() > max(MARGIN * errors.sum(), least):
            data, parts, errors = _indicating(data, j), others, other_errors
    return data, float(errors.sum())


def _indicating(data, j):
    """Return the training set with indicators of the levels of a category."""
    return data.with_features(*data.feature_map.with_indicators(data.X, j))


def _with_selected(data, is_kept):
    """Return the training set with some of its features."""
    if is_kept.all():
        return data
    X = np.ascontiguousarray(data.X[:, is_kept])
    return data.with_features(X, data.feature_map.selected(is_kept))


def _is_informative(indicator, data):
    """Test whether the mean target differs between rows with and without an indicator.

    It is a z-test of each output, with one-hot classes and Bonferroni's correction. Distinct rows
    count as independent, because their number does not depend on the scale of the weights.
    """
    share = data.weight / data.weight.sum()
    n_rows, part = np.count_nonzero(share), share[indicator].sum()
    if n_rows * min(part, 1 - part) < 1:
        return False
    if data.is_classification:
        mean = np.bincount(data.target, share, data.n_outputs)
        variance = mean * (1 - mean)
        total = np.bincount(data.target[indicator], share[indicator], data.n_outputs)
    else:
        mean = np.einsum("i,ij->j", share, data.target)
        variance = np.einsum("i,ij->j", share, np.square(data.target - mean))
        total = np.einsum("i,ij->j", share[indicator], data.target[indicator])
    is_varying = variance > 0
    n_tests = max(1, np.count_nonzero(is_varying))
    square = np.square(total / part - mean)[is_varying] / variance[is_varying]
    statistic = n_rows * part / (1 - part) * square
    return bool((statistic > chdtri(1, SIGNIFICANCE / n_tests)).any())


def _held_out_error(data, seed, n_jobs):
    """Return the squared error of a small forest of sparse directions on held-out rows."""
    train, test = _split(data, seed)
    return squared_error(_feature_forest(train, seed, n_jobs), test)


def _feature_forest(train, seed, n_jobs):
    """Return a small forest of sparse directions."""
    n_features = train.X.shape[1]
    n_candidates = max(16, min(n_features, math.ceil(4 * math.sqrt(n_features))))
    varying = train.varying()
    mean = min(MEAN_NONZEROS, max(1, len(varying)))
    sampler = partial(SparseSampler, n_features, mean, False, train.unit(), varying)
    grow = _tree_grower(train, tree_seed(seed, FEATURE_SEED), sampler, n_candidates, 1)
    return Forest.concatenate(train_small(grow, range(N_FEATURE_TREES), n_jobs, None))


def quick_importances(data, seed):
    """Return the impurity importances of a small random forest; sum 1, or all 0."""
    n_features = data.X.shape[1]
    if data.is_classification:
        n_candidates = max(1, int(np.sqrt(n_features)))
    else:
        n_candidates = max(1, n_features // 3)
    total, control = np.zeros(n_features), Control()
    grow = _tree_grower(data, seed, partial(AxisSampler, n_features), n_candidates, MIN_LEAF)
    for tree in range(IMPORTANCE_TREES):
        total += grow(IMPORTANCE_SEED + tree, control).feature_importances()
    return total / (total.sum() or 1)


def _tree_grower(data, seed, sampler, n_candidates, min_leaf):
    """Return a function that grows a tree on a small bootstrap sample.

    `sampler` makes a sampler of directions for each tree.
    """
    task = {"task": "regression"}
    if data.is_classification:
        classes = np.arange(data.n_outputs)
        task = {"task": "classification", "classes": classes, "n_shared_values": len(classes)}
    limits = GrowthLimits(MAX_DEPTH, 2 * min_leaf, 0.0)

    def grow(tree, control):
        own_seed = tree_seed(seed, tree)
        sample = data.sample(data.bootstrap(own_seed, min(int(data.n_copies().sum()), MAX_DRAWS)))
        splitter, options = search_splitter(
            criterion="gini" if data.is_classification else "squared_error",
            sampler=sampler(),
            n_candidates=n_candidates,
            exact=False,
            n_bins=32,
            max_search_samples=1024,
            min_samples_leaf=min_leaf,
            min_weight_leaf=0.0,
        )
        arrays = grow_tree(sample, splitter, options, limits, own_seed, control.stop)
        size = {"n_features": data.X.shape[1], "n_outputs": data.n_outputs}
        return MemberForest(arrays, **size, **task)

    return grow
