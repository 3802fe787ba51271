"""Weights of half precision: the same forest as with these numbers in float32, in fewer bytes."""

import pickle

import forests
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed
from sklearn.datasets import load_diabetes, load_digits

import skforest
from skforest import Forest
from skforest.forest.edit import (
    _rounded_to_half,
    recount_and_prune,
    to_half_precision,
    unpack,
)


def halved(forest, rng):
    """A forest with random weights of half precision, and the same numbers in float32."""
    arrays = dict(forest.arrays)
    for name in ("sparse_weight", "dense"):
        arrays[name] = rng.normal(size=arrays[name].shape).astype(np.float16)
    half = Forest(arrays, **forest.metadata | {"weight_dtype": "float16"})
    full = Forest(arrays, **forest.metadata)
    assert half.dense.dtype == half.sparse_weight.dtype == np.float16
    assert full.dense.dtype == full.sparse_weight.dtype == np.float32
    return half, full


@pytest.mark.parametrize("gate", ["hard", "margin", "sigmoid"])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_the_same_bits_as_float32(gate, seed):
    rng = np.random.default_rng(seed)
    half, full = halved(forests.random_forest(rng, (3, 4), gate=gate), rng)
    for dtype in (np.uint8, np.float32):
        X = forests.whole_table(rng, 50, 12, dtype)
        np.testing.assert_array_equal(half.apply(X), full.apply(X))
        np.testing.assert_array_equal(half.response(X), full.response(X))
    np.testing.assert_array_equal(half.directions().toarray(), full.directions().toarray())
    np.testing.assert_array_equal(half.feature_importances(), full.feature_importances())
    assert half.nbytes < full.nbytes


def test_every_number_of_half_precision():
    """Subnormal ones, zeros of both signs and the largest included."""
    every = np.arange(2**16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)].reshape(-1, 62)
    n = len(every)
    arrays = {
        "tree_start": [0, 3],
        "child": [1, -1, -2],
        "threshold": [0],
        "direction": [62],
        "value": [0, 1],
        "dense": every,
    }
    options = {"n_features": 62, "n_outputs": 1, "task": "regression", "weight_dtype": "float16"}
    dense = Forest(arrays, **options).directions(62 + np.arange(n)).toarray()
    np.testing.assert_array_equal(dense, every.astype(np.float32))
    arrays |= {
        "dense": np.zeros((0, 62)),
        "sparse_start": np.arange(n + 1) * 62,
        "sparse_feature": np.tile(np.arange(62), n),
        "sparse_weight": every.ravel(),
    }
    sparse = Forest(arrays, **options).directions(62 + np.arange(n)).toarray()
    np.testing.assert_array_equal(sparse, every.astype(np.float32))


def test_copies_keep_the_precision(tmp_path):
    rng = np.random.default_rng(0)
    half, full = halved(forests.random_forest(rng, (3, 4)), rng)
    X = forests.whole_table(rng, 50, 12, np.float32)
    half.save(tmp_path / "file")
    half.save(tmp_path / "folder", layout="folder")
    copies = [
        pickle.loads(pickle.dumps(half)),
        Forest.load(tmp_path / "file"),
        Forest.load(tmp_path / "folder", mmap_mode="r"),
        half[:].compact(),
        Forest.concatenate([half[:1], half[1:]]),
    ]
    for copy in copies:
        assert copy.weight_dtype == "float16"
        assert copy.dense.dtype == copy.sparse_weight.dtype == np.float16
        np.testing.assert_array_equal(copy.response(X), half.response(X))
    with pytest.raises(ValueError, match="forests differ in weight_dtype: 'float16' and"):
        Forest.concatenate([half, full])


def test_an_unknown_precision():
    forest = forests.random_forest(np.random.default_rng(0), (3, 4))
    with pytest.raises(ValueError, match="weight_dtype is 'float64'; it must be one of"):
        Forest(forest.arrays, **forest.metadata | {"weight_dtype": "float64"})


ESTIMATORS = [
    (skforest.CO2ForestClassifier, {"objective": "co2"}),
    (skforest.CO2ForestClassifier, {"objective": "random"}),
    (skforest.CO2ForestClassifier, {"objective": "oc1"}),
    (skforest.CO2ForestClassifier, {"objective": None}),
    (skforest.CO2ForestClassifier, {"objective": "soft", "refine": "alternating"}),
    (skforest.CO2ForestClassifier, {"objective": "co2", "refine": "nongreedy"}),
    (skforest.CO2ForestRegressor, {"objective": "co2", "refine": "nongreedy"}),
    (skforest.NonGreedyTreeClassifier, {}),
    (skforest.NonGreedyTreeRegressor, {"init": "soft"}),
]


@pytest.mark.parametrize("cls, params", ESTIMATORS, ids=lambda value: str(value)[-40:])
def test_estimators_train_with_the_weights_that_they_store(cls, params):
    if cls.__name__.endswith("Classifier"):
        X, y = (part[:900] for part in load_digits(return_X_y=True))
    else:
        X, y = load_diabetes(return_X_y=True)
    options, threads = {"random_state": 0, **params}, {}
    if "CO2" in cls.__name__:
        options |= {"bootstrap": False, "max_features": "sqrt", "holdout": 0.0, "n_estimators": 3}
        threads = {"n_jobs": 2}
    full = cls(**options).fit(X, y)
    half = cls(**options, weight_dtype="float16", **threads).fit(X, y)
    forest = half.forest_
    assert forest.weight_dtype == "float16"
    # The leaves were counted from the rows that arrive by the stored weights; none is empty.
    data = half._known_training_set(X, y, None)
    for tree in forest:
        arrived = np.bincount(tree.apply(X)[:, 0], minlength=tree.n_nodes)
        leaf = tree.child < 0
        np.testing.assert_allclose(arrived[leaf], tree.node_weight[leaf], rtol=1e-12)
        assert (tree.node_weight > 0).all()
        again = recount_and_prune(tree.compact(), data, half._criterion)
        np.testing.assert_array_equal(again.response(X), tree.response(X))
    assert abs(half.score(X, y) - full.score(X, y)) < 0.02
    if params.get("objective", "") is None:
        np.testing.assert_array_equal(half.predict(X), full.predict(X))
    elif cls is skforest.CO2ForestClassifier:  # many features: mostly weights
        assert half.forest_.nbytes < 0.75 * full.forest_.nbytes


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("exponent", [-40, -15, -5, 0, 12, 13, 14, 15, 17, 40])
def test_hyperplanes_of_any_length_fit_into_half_precision(exponent, hard):
    """Where weights are beyond its range, a power of two divides them and the threshold."""
    rng = np.random.default_rng(0)
    rows, threshold = rng.normal(size=(6, 12)), rng.normal(size=6)
    rows /= np.abs(rows).max(axis=1, keepdims=True)
    long, far = np.ldexp(rows, exponent), np.ldexp(threshold, exponent)
    found, cut = _rounded_to_half(long, far, np.array([1, 3]), hard)
    assert np.isfinite(found).all()
    if not hard and exponent < -14:  # their gates depend on the length, which is kept
        return
    largest = np.abs(found).max(axis=1)
    np.testing.assert_allclose(found[[1, 3]], (rows * largest[:, None])[[1, 3]], rtol=2e-3)
    np.testing.assert_allclose(cut[[1, 3]], (threshold * largest)[[1, 3]], rtol=2e-3)
    np.testing.assert_array_equal(found[::2], long[::2])  # not chosen
    if -4 < exponent < 15:
        np.testing.assert_array_equal(cut, far)


def test_rounding_again_changes_nothing():
    X, y = load_digits(return_X_y=True)
    model = skforest.NonGreedyTreeClassifier(random_state=0, weight_dtype="float16").fit(X, y)
    data = model._known_training_set(X, y, None)
    tree = model.forest_
    again = to_half_precision(tree, data, "entropy")
    for one, other in zip(unpack(again), unpack(tree), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.response(X), tree.response(X))


def test_lengths_far_from_one_fit_into_half_precision():
    """Weights of 1e-9 or 1e9 would vanish or overflow; a plane means the same at any length."""
    rng = np.random.default_rng(0)
    X = rng.random((200, 6), dtype=np.float32)
    normal = rng.normal(size=6)
    target = (X @ normal > 0.3).astype(np.int32)
    arrays = {
        "tree_start": [0, 3],
        "child": [1, -1, -2],
        "direction": [6],
        "value": [1, 1],
        "value_index": [0, 1],
        "value_start": [0, 1, 2],
    }
    meta = {
        "n_features": 6,
        "n_outputs": 2,
        "task": "classification",
        "classes": [0, 1],
        "n_shared_values": 2,
    }
    for length in (1e-9, 1e-5, 1.0, 1e4, 1e9):
        plane = {"dense": [normal * length], "threshold": [0.3 * length]}
        data = forests.make_training_set(X, target)
        small = to_half_precision(Forest(arrays | plane, **meta), data, "gini")
        assert small.dense.dtype == np.float16
        assert (small.response(X).argmax(axis=1) == target).mean() > 0.99


def test_refining_keeps_the_precision_and_the_promise():
    X, y = load_digits(return_X_y=True)
    plain = {"objective": "co2", "bootstrap": False, "holdout": 0.0, "max_features": 8}
    model = skforest.CO2ForestClassifier(
        2, max_depth=5, random_state=0, weight_dtype="float16", **plain
    ).fit(X, y)
    better = skforest.refine(model, X, y, random_state=0)
    assert better.forest_.weight_dtype == "float16"
    for tree, curve in zip(better.forest_, better.refine_curve_, strict=True):
        assert (np.diff(curve) <= 0).all() and curve[-1] < curve[0]
        wrong = tree.response(X).argmax(axis=1) != y
        assert wrong.mean() == pytest.approx(curve[-1])
