"""Forests made for tests by hand, at random, or grown by kernels without an estimator.

Only this file knows the signatures of the kernels that grow trees.
"""

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
from skforest._kernels.boosting.bins import BinnedDirections, bin_columns
from skforest._kernels.boosting.trainer import TreeGrower
from skforest._kernels.search.grow import Grower
from skforest._kernels.search.projection import AxisSampler, BoxSampler
from skforest._kernels.search.search import SearchSplitter

from skforest.forest import Forest


def random_children(rng, n_splits):
    """`child` of one tree of random form; leaf k has value row k."""
    child = [None]
    leaves = [0]
    for _ in range(n_splits):
        node = leaves.pop(rng.integers(len(leaves)))
        child[node] = len(child)
        leaves += [len(child), len(child) + 1]
        child += [None, None]
    rows = iter(range(len(child)))
    return np.array([-1 - next(rows) if c is None else c for c in child])


def random_box(rng, shape, wrap, unordered, pair):
    """A box as (corner, other, size, bits); `pair`: with a second box somewhere."""
    corner, other, size, bits = [], [], [], []
    for length, closed, free in zip(shape, wrap, unordered):
        n = int(rng.integers(1, length + 1))
        size.append(n)
        room = length if closed else length - n + 1
        if free:
            flags = np.zeros(8 * ((length + 7) // 8), dtype=np.uint8)
            flags[rng.choice(length, n, replace=False)] = 1
            bits += np.packbits(flags, bitorder="little").tolist()
            room = 1
        corner.append(rng.integers(room))
        other.append(rng.integers(room))
    flat = int(np.ravel_multi_index(corner, shape))
    return flat, int(np.ravel_multi_index(other, shape)) if pair else -1, size, bits


def random_directions(rng, shape, wrap, unordered, n_boxes=0, n_sparse=0, n_dense=0):
    """Arrays of random boxes (every other one a contrast), sparse and dense directions.

    Weights are small whole numbers.
    """
    n_features = int(np.prod(shape))
    boxes = [random_box(rng, shape, wrap, unordered, k % 2) for k in range(n_boxes)]
    counts = rng.integers(0, min(n_features, 6) + 1, size=n_sparse)
    features = [rng.choice(n_features, count, replace=False) for count in counts]
    arrays = {
        "sparse_start": np.concatenate([[0], np.cumsum(counts)]),
        "sparse_feature": np.concatenate([np.zeros(0, dtype=int), *features]),
        "sparse_weight": rng.integers(-3, 4, size=counts.sum()),
        "dense": rng.integers(-3, 4, size=(n_dense, n_features)),
    }
    if boxes:
        corner, other, size, bits = zip(*boxes)
        arrays["box_corner"] = corner
        arrays["box_other"] = other
        arrays["box_size"] = size
        arrays["box_subset"] = np.array(bits, dtype=np.uint8).reshape(n_boxes, -1)
    return arrays


def random_forest(
    rng,
    shape=(3, 4),
    wrap=None,
    unordered=None,
    n_trees=3,
    n_splits=6,
    n_outputs=2,
    n_each=3,
    kinds=("box", "sparse", "dense"),
    **meta,
):
    """A forest over features and some kinds of directions: whole weights, half thresholds."""
    wrap = wrap or (False,) * len(shape)
    unordered = unordered or (False,) * len(shape)
    n_features = int(np.prod(shape))
    children = [random_children(rng, n_splits) for _ in range(n_trees)]
    # Value rows over the whole forest, some shared by two leaves.
    n_leaves = n_trees * (n_splits + 1)
    row = rng.permutation(n_leaves) // 2
    child = np.concatenate(children)
    child[child < 0] = -1 - row
    counts = [n_each * (kind in kinds) for kind in ("box", "sparse", "dense")]
    arrays = random_directions(rng, shape, wrap, unordered, *counts)
    arrays |= {
        "tree_start": np.arange(n_trees + 1) * (2 * n_splits + 1),
        "child": child,
        "node_weight": rng.integers(1, 100, size=len(child)),
        "threshold": rng.integers(-20, 20, size=n_trees * n_splits) + 0.5,
        "direction": rng.integers(n_features + sum(counts), size=n_trees * n_splits),
        "gain": rng.integers(0, 50, size=n_trees * n_splits),
        "value": rng.integers(-8, 9, size=(row.max() + 1) * n_outputs),
    }
    meta = {"task": "regression"} | meta
    return Forest(
        arrays,
        n_features=n_features,
        n_outputs=n_outputs,
        feature_shape=shape,
        wrap=wrap,
        unordered=unordered,
        **meta,
    )


def whole_table(rng, n_samples, n_features, dtype):
    """Rows of whole numbers: every byte, or small floats of both signs."""
    low, high = (0, 256) if dtype == np.uint8 else (-30, 31)
    return rng.integers(low, high, size=(n_samples, n_features)).astype(dtype)


def projector(arrays, codes, **meta):
    """A forest whose response is the projection on the directions of some codes.

    Tree k has one split at 0 on direction k; the margin gate returns ``|a . x|``, and the leaf
    value its sign.
    """
    n = len(codes)
    arrays = dict(arrays) | {
        "tree_start": 3 * np.arange(n + 1),
        "child": np.stack([np.ones(n), -1 - 2 * np.arange(n), -2 - 2 * np.arange(n)], 1).ravel(),
        "threshold": np.zeros(n),
        "direction": np.asarray(codes),
        "value": np.tile([-1, 1], n),
        "value_start": np.arange(2 * n + 1),
        "value_index": np.repeat(np.arange(n), 2),
    }
    return Forest(arrays, n_outputs=n, task="regression", aggregate="sum", gate="margin", **meta)


@dataclass(frozen=True)
class KernelTrainingSet:
    """What kernels read of a training set: rows, target and weight, in the order given."""

    X: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    n_outputs: int
    target_scale: float = 1.0

    def __len__(self):
        return len(self.weight)

    def sample(self, weight):
        """The same rows with other weights."""
        return replace(self, weight=weight)

    @property
    def y(self):
        """ndarray of float64: the target in its own units."""
        return self.target * self.target_scale

    @property
    def baseline(self):
        """ndarray of shape (n_outputs,): what leaf values are deviations from."""
        return np.zeros(self.n_outputs)

    @property
    def is_classification(self):
        """bool: is the target a vector of class numbers?"""
        return self.target.ndim == 1

    @property
    def rows(self):
        """ndarray of int32: rows of positive weight."""
        return np.flatnonzero(self.weight).astype(np.int32)


def as_kernel_input(X, target):
    """X as bytes or float32, and labels or a real target, as kernels read them."""
    X = np.ascontiguousarray(X, dtype=np.uint8 if np.asarray(X).dtype == np.uint8 else np.float32)
    target = np.asarray(target)
    dtype = np.int32 if target.ndim == 1 else np.float64
    return X, np.ascontiguousarray(target, dtype=dtype)


def make_training_set(X, target, weight=None):
    """The training set of one tree; `weight` is 1 by default.

    Parameters
    ----------
    X : array-like of shape (n_samples, n_features)
    target : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Labels from 0, or a real target.
    weight : array-like of shape (n_samples,), default=None
    """
    X, target = as_kernel_input(X, target)
    n_outputs = int(target.max()) + 1 if target.ndim == 1 else target.shape[1]
    weight = np.ones(len(X)) if weight is None else np.asarray(weight, dtype=float)
    return KernelTrainingSet(X, target, weight, n_outputs)


def make_splitter(
    X, target, weight=None, *, kind=SearchSplitter, seed=0, stop=False, sampler=None, **options
):
    """A splitter on the rows of positive weight.

    Parameters
    ----------
    X, target, weight
        As in `make_training_set`.
    kind : type, default=SearchSplitter
        Class of the splitter.
    seed : int, default=0
    stop : bool, default=False
        Value of the stop flag.
    sampler : Sampler, default=None
        Single features by default.
    **options
        Options of the splitter that differ from the defaults below.
    """
    training_set = make_training_set(X, target, weight)
    is_class = training_set.target.ndim == 1
    n_features = training_set.X.shape[1]
    sampler = sampler or AxisSampler(n_features)
    largest = np.abs(training_set.X.astype(float)).max(initial=0.0)
    defaults = {
        "criterion": "gini" if is_class else "squared_error",
        "n_candidates": n_features,
        "exact": True,
        "zooms": False,
        "n_bins": 32,
        "max_search_samples": len(training_set.rows),
        "min_samples_leaf": 1,
        "min_weight_leaf": 0.0,
        "largest": largest,
        "may_overflow": largest * sampler.max_terms > np.finfo(np.float32).max,
    }
    options = SimpleNamespace(sampler=sampler, **defaults | options)
    return kind(training_set, options, seed, np.array([stop], dtype=np.uint8))


def grow(
    X,
    target,
    weight=None,
    *,
    max_depth=2**31 - 1,
    min_split=2,
    min_gain=0.0,
    max_leaves=0,
    feature_shape=None,
    wrap=None,
    unordered=None,
    **options,
):
    """A forest of one tree, on the rows of positive weight in the order given.

    Parameters
    ----------
    X, target, weight
        As in `make_training_set`.
    max_depth, min_split, min_gain, max_leaves
        As in `Grower`.
    feature_shape, wrap, unordered
        Of a sampler of boxes.
    **options
        As in `make_splitter`.
    """
    splitter = make_splitter(X, target, weight, **options)
    arrays = Grower(splitter, max_depth, min_split, min_gain, max_leaves).grow()
    arrays |= splitter.directions() | splitter.values()
    arrays["tree_start"] = [0, len(arrays["child"])]
    X, target = as_kernel_input(X, target)
    meta = {"task": "regression", "n_outputs": target.shape[-1]}
    if target.ndim == 1:
        n_classes = int(target.max()) + 1
        meta = {"task": "classification", "n_outputs": n_classes, "n_shared_values": n_classes}
        meta["classes"] = range(n_classes)
    return Forest(
        arrays,
        n_features=X.shape[1],
        feature_shape=feature_shape,
        wrap=wrap,
        unordered=unordered,
        **meta,
    )


def grow_boosted(
    X,
    derivative,
    rows=None,
    *,
    n_directions=0,
    max_bins=255,
    l2=1.0,
    min_leaf=1,
    max_depth=3,
    max_leaves=0,
    seed=0,
    monotonic=None,
    feature_shape=None,
    mix=None,
    searched=None,
):
    """A boosted tree: its arrays, the leaf number of every row, and the cuts of every feature.

    With `monotonic`, also the bounds of the leaves. With `feature_shape`, directions are boxes.

    `derivative` has the gradients and the curvature of all rows; `rows` are the sample, all by
    default. With `mix`, which projects the gradients, it has as many curvatures as gradients.
    `searched` says which features may split a node alone; None: all.
    """
    X = np.ascontiguousarray(X, dtype=np.float32)
    n_features = X.shape[1]
    columns = np.ascontiguousarray(X.T)
    cut, start, code = bin_columns(columns, max_bins, len(X))
    unit = np.ones(n_features, dtype=np.float32)
    boxes = None
    if feature_shape is not None:
        no = (False,) * len(feature_shape)
        least, most = np.ones(len(no), np.int32), np.array(feature_shape, np.int32)
        boxes = BoxSampler(feature_shape, no, no, least, most, "mix", False)
    binned = SimpleNamespace(
        X=X, columns=columns, unit=unit, monotonic=monotonic, code=code, cut=cut, cut_start=start
    )
    settings = SimpleNamespace(
        l2=l2, min_samples_leaf=min_leaf, depth=max_depth, max_leaves=max_leaves
    )
    directions = BinnedDirections(binned, n_directions, 4, min(max_bins, 64), boxes)
    grower = TreeGrower(binned, settings, directions)
    rows = np.arange(len(X)) if rows is None else np.asarray(rows)
    n_outputs = derivative.shape[1] - 1 if mix is None else len(mix)
    gradient, curvature = derivative[:, :n_outputs], derivative[:, n_outputs:]
    curvature = np.broadcast_to(curvature, gradient.shape)
    grower.start(
        *(np.ascontiguousarray(part, np.float32) for part in (gradient, curvature)),
        mix,
        np.cumsum(np.ones(n_features)),
        seed,
        rows.astype(np.int32),
        np.setdiff1d(np.arange(len(X)), rows).astype(np.int32),
        np.ones(n_features, np.uint8) if searched is None else np.asarray(searched, np.uint8),
    )
    grower.write_bins(0, len(X))
    while not grower.is_done():
        grower.search(0, grower.n_searched_columns())
        grower.split_nodes()
    found = *grower.finish(), np.split(cut, start[1:-1])
    found[0]["feature_shape"], found[0]["terms"] = feature_shape, grower.terms()
    return found if monotonic is None else (*found, grower.leaf_bounds())


# ------------------------------------------------------------------- forests that use every array

# A box forest on a torus with channels: every field of the format is in use.
SHAPE, WRAP, UNORDERED = (4, 3, 3), (True, False, False), (False, False, True)


def rich_forest(seed=0, **meta):
    """A random forest that uses every array."""
    rng = np.random.default_rng(seed)
    return random_forest(rng, SHAPE, WRAP, UNORDERED, **{"n_outputs": 3, "n_trees": 4} | meta)


def rich_classifier(seed=0):
    """The same with sparse value rows, of which the pure ones are shared, labels and names."""
    forest = rich_forest(seed)
    rng = np.random.default_rng(seed)
    n_own = len(forest.value) // 3
    arrays = forest.arrays
    leaf = arrays["child"] < 0
    arrays["child"] = np.where(leaf & (rng.random(len(leaf)) < 0.5), arrays["child"] - 3, -1 - 2)
    arrays["child"][~leaf] = forest.child[~leaf]
    arrays["value"] = np.concatenate([np.ones(3), rng.random(2 * n_own)])
    arrays["value_start"] = np.concatenate([np.arange(3), 3 + 2 * np.arange(n_own + 1)])
    pairs = [rng.choice(3, 2, replace=False) for _ in range(n_own)]
    arrays["value_index"] = np.concatenate([np.arange(3), *pairs])
    arrays["deviation"] = 1 + np.arange(36) / 8
    meta = forest.metadata | {
        "task": "classification",
        "classes": np.array(["ape", "bee", "cat"]),
        "n_shared_values": 3,
        "feature_names": [f"x{j}" for j in range(36)],
    }
    return Forest(arrays, **meta)


def rich_mixed(seed=0):
    """The same for a table with missing values and a category: features of every kind."""
    forest = rich_classifier(seed)
    n_inputs = 33
    arrays = forest.arrays | {
        "offset": np.zeros(0),
        "scale": np.zeros(0),
        "fill": np.linspace(-1, 1, n_inputs),
        "source": [*range(n_inputs), 0, 1, 1],
        "kind": [0, 2, *[0] * (n_inputs - 2), 1, 3, 4],
        "table_start": np.cumsum([0, 0, 4, *[0] * (n_inputs - 2), 2, 4, 4]),
        "table": np.arange(14) / 8,
    }
    names = [f"x{j}" for j in range(n_inputs)]
    return Forest(arrays, **forest.metadata | {"levels": {1: ["a", 2.0]}, "feature_names": names})


def table(forest, n_samples=40, seed=1, dtype=np.float32):
    rng = np.random.default_rng(seed)
    X = whole_table(rng, n_samples, forest.n_inputs, dtype)
    if not forest.levels:
        return X
    X = X.astype(object)
    X[0] = None
    for j, levels in forest.levels.items():
        for i in range(1, n_samples if levels else 0):
            X[i, j] = levels[rng.integers(len(levels))]
    return X
