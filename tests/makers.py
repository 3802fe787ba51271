"""Forests made for tests: by hand, at random, or grown without an estimator; rows; comparisons.

Only this file knows the signatures of the kernels.
"""

import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import settings
from scipy.special import logsumexp, softmax
from skforest._kernels.base.loss import (
    AbsoluteErrorKernel,
    HuberKernel,
    LogLossKernel,
    PoissonKernel,
    QuantileKernel,
    SquaredErrorKernel,
)
from skforest._kernels.boosting.bins import BinnedDirections, bin_columns
from skforest._kernels.boosting.trainer import TreeGrower
from skforest._kernels.search.grow import Grower
from skforest._kernels.search.projection import AxisSampler, BoxSampler
from skforest._kernels.search.search import SearchSplitter
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification, make_friedman1, make_regression

from skforest import (
    CO2ForestClassifier,
    Loss,
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
)
from skforest.forest import ARRAYS, Forest

# The same examples in every run, and no time limit on a busy machine.
fixed = settings(derandomize=True, deadline=None, max_examples=60)

N_ROWS = 120  # of the tasks for all estimators


class OwnSquaredError(Loss):
    """The squared error, as a user writes it."""

    def loss(self, y, raw):
        return (raw - y) ** 2 / 2

    def gradient_hessian(self, y, raw):
        return raw - y, np.ones_like(raw)


class OwnPoisson(Loss):
    """The loss of counts, with a link, as a user writes it."""

    def loss(self, y, raw):
        return np.exp(raw) - y * raw

    def gradient_hessian(self, y, raw):
        return np.exp(raw) - y, np.exp(raw)

    def initial(self, y, weight):
        return np.log(np.average(y, axis=0, weights=weight))

    def inverse_link(self, raw):
        return np.exp(raw)


class OwnCrossEntropy(Loss):
    """The log loss of labels, as a user writes it."""

    def initial(self, y, weight):
        return np.zeros(y.shape[1])

    def loss(self, y, raw):
        return logsumexp(raw, axis=1) - (y * raw).sum(axis=1)

    def gradient_hessian(self, y, raw):
        p = softmax(raw, axis=1)
        return p - y, p * (1 - p)


def changed(model, **params):
    """Set parameters of an estimator, among them parameters of its procedure, and return it."""
    known = model.get_params(deep=False)
    apart = {name: value for name, value in params.items() if name not in known}
    own = {name: value for name, value in params.items() if name in known}
    if apart and known["procedure"] is None:
        own["procedure"] = model._default_procedure()
    return model.set_params(**own, **{f"procedure__{name}": apart[name] for name in apart})


def made(cls, *args, **params):
    """An estimator with these parameters, among them parameters of its procedure."""
    return changed(cls(*args), **params)


KERNEL_LOSSES = {  # of four outputs or classes
    "log": LogLossKernel(4),
    "smoothed": LogLossKernel(4, 0.2),
    "squared": SquaredErrorKernel(4),
    "absolute": AbsoluteErrorKernel(4),
    "huber": HuberKernel(4, 0.7),
    "quantile": QuantileKernel(4, 0.3),
    "poisson": PoissonKernel(4),
}


def kernel_targets(loss, rng, n):
    """Random targets of a loss in `KERNEL_LOSSES`."""
    if loss.n_columns == 1:
        return rng.integers(loss.n_outputs, size=(n, 1)).astype(float)
    return rng.integers(0, 5, size=(n, loss.n_outputs)).astype(float)


def start_python(code, preexec_fn=None, **environment):
    """Start a fresh interpreter that finds the same package and these makers.

    Parameters
    ----------
    code : str
    preexec_fn : callable, default=None
    **environment : str

    Returns
    -------
    process : subprocess.Popen
        With pipes for stdout and stderr, in text mode.
    """
    path = os.pathsep.join([str(Path(__file__).parent), *(p for p in sys.path if p)])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path} | environment,
        preexec_fn=preexec_fn,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
    largest = np.abs(training_set.X.astype(float)).max() * sampler.max_terms
    defaults = {
        "criterion": "gini" if is_class else "squared_error",
        "n_candidates": n_features,
        "exact": True,
        "zooms": False,
        "n_bins": 32,
        "max_search_samples": len(training_set.rows),
        "min_samples_leaf": 1,
        "min_weight_leaf": 0.0,
        "may_overflow": largest > np.finfo(np.float32).max,
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
):
    """A boosted tree: its arrays, the leaf number of every row, and the cuts of every feature.

    With `monotonic`, also the bounds of the leaves. With `feature_shape`, directions are boxes.

    `derivative` has the gradients and the curvature of all rows; `rows` are the sample, all by
    default.
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
    grower.start(
        np.ascontiguousarray(derivative[rows], dtype=np.float32),
        rows.astype(np.int32),
        np.setdiff1d(np.arange(len(X)), rows).astype(np.int32),
        np.cumsum(np.ones(n_features)),
        seed,
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


def assert_same(one, other):
    """Same arrays in the same dtypes, and the same of everything else."""
    for name in ARRAYS:
        a, b = one.arrays[name], other.arrays[name]
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert a.tobytes() == b.tobytes(), name
    for name, value in one.metadata.items():
        np.testing.assert_equal(other.metadata[name], value, err_msg=name)


def use(forest):
    """Call all methods that read the arrays of a forest."""
    X = table(forest, 5)
    forest.response(X)
    forest.predict(table(forest, 5, dtype=np.uint8))
    forest.decision_path(X)
    assert (forest.max_depth <= forest.n_leaves).all()
    if len(forest.arrays["gain"]) == len(forest.threshold):  # otherwise it is as after `slim`
        forest.feature_importances()
    forest.directions()
    forest.compact().response(X)
    pickle.loads(pickle.dumps(forest[len(forest) // 2 :]))


# -------------------------------------------------------------------------------------- estimators


def response(model, X):
    """The finest prediction of a fitted estimator."""
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)


def assert_same_trees(a, b):
    """Two fitted estimators have the same trees, bit for bit, and the same classes."""
    for name, array in a.forest_.arrays.items():
        np.testing.assert_array_equal(array, b.forest_.arrays[name], err_msg=name)
    if is_classifier(a):
        np.testing.assert_equal(a.classes_, b.classes_)


def classes(n=N_ROWS, seed=0, n_classes=3):
    """X, y of a classification task."""
    return make_classification(
        n, n_features=6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=seed
    )


def targets(n=N_ROWS, seed=0, n_targets=1):
    """X, y of a regression task."""
    return make_regression(n, 6, n_targets=n_targets, noise=5.0, random_state=seed)


def task(estimator, n=N_ROWS, seed=0):
    """X, y of the estimator's kind."""
    return (classes if is_classifier(estimator) else targets)(n, seed)


def mixed_table(n=N_ROWS, seed=0):
    """A mixed table with holes, as a pandas data frame."""
    import pandas as pd  # not every test needs it

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "age": rng.integers(0, 90, size=n).astype(float),
            "city": rng.choice(["Bern", "Oslo", "Rome"], size=n),
            "shop": [f"s{i}" for i in rng.integers(0, 25, size=n)],
            "grade": pd.Categorical(
                rng.choice(["low", "mid", "high"], size=n), ["low", "mid", "high"], ordered=True
            ),
            "open": rng.random(n) < 0.5,
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "city"] = None
    return frame


def mixed_target(model, frame):
    """Labels, or real targets, that depend on numbers and on categories."""
    score = frame["size"].to_numpy() + 2 * (frame["city"] == "Rome").to_numpy()
    return (score > 0.5).astype(int) if is_classifier(model) else score


TABLE_MODELS = ManifoldForestClassifier, CO2ForestClassifier


BOTH_BOOSTING = pytest.mark.parametrize(
    "cls", [ObliqueBoostingClassifier, ObliqueBoostingRegressor]
)


def quick_boosting(cls, **changes):
    """An estimator of oblique boosting that is trained in a moment; unfitted."""
    defaults = {"n_estimators": 20, "n_bags": 2, "learning_rate": 0.2, "random_state": 0}
    return cls(**defaults | changes)


def training_rows(model, X, y, sample_weight=None):
    """The TrainingSet that a model is trained on."""
    model = clone(model)
    return model._read_training_set(X, y, model._request(sample_weight=sample_weight))


def bag_of(forest, number):
    """One bag of a forest, as a Forest."""
    first, last = forest.bag_start[number : number + 2]
    return forest[first:last]


def boosting_rows(cls, n=150):
    """X, y for a class of oblique boosting."""
    if cls is ObliqueBoostingClassifier:
        return make_classification(n, 6, n_informative=4, n_classes=3, random_state=0)
    return make_friedman1(n, 6, noise=0.5, random_state=0)


def quick_hinge(cls, **changes):
    """A random hinge forest that is trained in a moment; unfitted."""
    defaults = {"n_estimators": 20, "n_bags": 2, "max_iter": 200, "random_state": 0}
    return made(cls, **defaults | changes)


def hinge_rows(cls, n=150, seed=0):
    """X, y for a class of random hinge forests."""
    if cls is RandomHingeForestClassifier:
        return make_classification(n, 6, n_informative=5, n_redundant=0, n_classes=3,
                                   random_state=seed)  # fmt: skip
    return make_regression(n, 6, noise=5.0, random_state=seed)
