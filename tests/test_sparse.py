"""Sparse matrices: the same forests and predictions as for dense ones."""

import resource
import sys
import time

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import skforest
from skforest import CO2ForestClassifier, ManifoldForestClassifier, ManifoldForestRegressor
from skforest._feature_map import canonical_csr
from skforest._training_set import SparseRowOrder, TrainingSet

FORMS = [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array]
CLASSES = [ManifoldForestClassifier, ManifoldForestRegressor]
MODELS = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


def rows(cls, n=300, p=40, counts=False, seed=0):
    """A dense matrix with few entries, and a target."""
    rng = np.random.default_rng(seed)
    X = rng.random((n, p)) * (rng.random((n, p)) < 0.1)
    X = np.ceil(4 * X) if counts else X - 0.3 * (X > 0.8)
    score = X[:, :6] @ np.arange(1, 7)
    return X.astype(np.float32), (score > np.median(score)) if "Class" in cls.__name__ else score


def assert_same(a, b):
    for name, array in a.forest_.arrays.items():
        np.testing.assert_array_equal(array, b.forest_.arrays[name], err_msg=name)


@MODELS
@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"projection": "axis"},
        {"projection": "axis", "splitter": "exact", "max_features": None},
        {"nonzeros": "fixed", "n_nonzeros": 3.0, "sparse_weights": "sign", "bootstrap": False},
        {"max_leaf_nodes": 12, "max_samples": 0.5},
    ],
    ids=str,
)
def test_the_same_bits_as_of_dense_rows(cls, counts, parameters):
    X, y = rows(cls, counts=counts)
    dense = cls(8, random_state=0, **parameters).fit(X, y)
    for form in FORMS:
        model = cls(8, random_state=0, **parameters).fit(form(X), y)
        assert_same(dense, model)
        np.testing.assert_array_equal(model.predict(form(X)), dense.predict(X))
        np.testing.assert_array_equal(model.apply(form(X)), dense.apply(X))


@MODELS
def test_dtypes_zeros_and_repeated_entries(cls):
    X, y = rows(cls, counts=True)
    dense = cls(5, random_state=0).fit(X, y)
    for dtype in (np.float64, np.int64, np.uint8, np.int32):
        assert_same(dense, cls(5, random_state=0).fit(sparse.csr_matrix(X).astype(dtype), y))
    # Entries of one place add up, stored zeros are none, and features need not rise.
    half = sparse.coo_matrix(X / 2)
    row, column = (np.concatenate([part, part, [0]]) for part in (half.row, half.col))
    order = np.lexsort((-column, row))
    start = np.searchsorted(row[order], np.arange(len(X) + 1))
    values = np.concatenate([half.data, half.data, [0.0]])[order]
    twice = sparse.csr_matrix((values, column[order], start), shape=X.shape)
    before = twice.copy()
    assert_same(dense, cls(5, random_state=0).fit(twice, y))
    # The matrix of the user is not changed.
    np.testing.assert_array_equal(twice.indices, before.indices)
    np.testing.assert_array_equal(twice.data, before.data)


@MODELS
def test_weights_order_threads_and_warm_start(cls):
    X, y = rows(cls)
    X[::3] = X[0]  # equal rows
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 3, size=len(X))
    order = rng.permutation(np.repeat(np.arange(len(X)), weight))
    model = cls(6, random_state=0).fit(sparse.csr_matrix(X), y, sample_weight=weight)
    copies = cls(6, random_state=0, n_jobs=3).fit(sparse.csr_matrix(X[order]), y[order])
    assert_same(model, copies)
    warm = cls(3, random_state=0, warm_start=True).fit(sparse.csr_matrix(X), y, weight)
    assert_same(model, warm.set_params(n_estimators=6).fit(sparse.csr_matrix(X), y, weight))


def test_out_of_bag():
    X, y = rows(ManifoldForestClassifier)
    dense = ManifoldForestClassifier(30, oob_score=True, random_state=0).fit(X, y)
    model = clone(dense).fit(sparse.csr_matrix(X), y)
    assert model.oob_score_ == dense.oob_score_
    np.testing.assert_array_equal(model.oob_decision_function_, dense.oob_decision_function_)


def test_training_sets_are_those_of_dense_rows():
    X, y = rows(ManifoldForestRegressor, n=30)
    X[10:20], y[10:20] = X[5], y[5]
    dense = TrainingSet(X, y[:, None], np.ones(30))
    data = TrainingSet(canonical_csr(sparse.csr_matrix(X)), y[:, None], np.ones(30))
    np.testing.assert_array_equal(data.X.toarray(), dense.X)
    np.testing.assert_array_equal(data.weight, dense.weight)
    np.testing.assert_array_equal(data.row_of_sample, dense.row_of_sample)
    np.testing.assert_allclose(data.mean(), dense.mean())
    np.testing.assert_allclose(data.spread(), dense.spread(), rtol=1e-6)


def test_rows_of_one_hash_that_differ():
    """Equal hashes are nearly always those of equal rows; if not, the values decide."""
    X, y = rows(ManifoldForestRegressor, n=30)
    X[12], y[12] = X[5], y[5]
    order = SparseRowOrder(canonical_csr(sparse.csr_matrix(X)), y[:, None])
    numbers = np.array([3, 12, 5, 4], dtype=np.int64)
    is_first = order.sort_equal_hashes(numbers, np.zeros(4, dtype=np.uint64))
    assert sorted(numbers.tolist()) == [3, 4, 5, 12]
    assert is_first.sum() == 3
    assert set(numbers[~is_first].tolist()) <= {5, 12}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_and_infinite_entries_are_refused(value):
    X, y = rows(ManifoldForestClassifier)
    X[3, 4] = value
    with pytest.raises(ValueError, match="(NaN|infinity).*dense X only"):
        ManifoldForestClassifier(5).fit(sparse.csr_matrix(X), y)


def test_what_takes_dense_rows_says_so():
    X, y = rows(ManifoldForestClassifier)
    S = sparse.csr_matrix(X)
    for model in (
        CO2ForestClassifier(5),
        ManifoldForestClassifier(5, feature_shape=(5, 8)),
        ManifoldForestClassifier(5, projection="patch"),
    ):
        with pytest.raises(TypeError, match="Sparse data was passed for X, but dense"):
            model.fit(S, y)
    model = ManifoldForestClassifier(5, random_state=0).fit(S, y)
    with pytest.raises(TypeError, match="refine takes dense X"):
        skforest.refine(model, S, y)
    with pytest.raises(TypeError, match="[Ss]parse"):
        ManifoldForestClassifier(5, categorical_features=[0]).fit(S, y)


def test_a_saved_model_takes_sparse_rows(tmp_path):
    X, y = rows(ManifoldForestClassifier)
    model = ManifoldForestClassifier(5, random_state=0).fit(sparse.csr_matrix(X), y)
    skforest.save(model, tmp_path / "model.npz")
    again = skforest.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(sparse.csc_matrix(X)), model.predict(X))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
def test_memory_of_a_wide_matrix():
    """100,000 x 50,000, 0.2 % full: at most 3 times the memory of the CSR matrix above it."""
    rng = np.random.default_rng(0)
    n, p, k = 100_000, 50_000, 100
    arrays = rng.random(n * k, dtype=np.float32), rng.integers(0, p, n * k, dtype=np.int32)
    X = sparse.csr_matrix((*arrays, np.arange(n + 1, dtype=np.int32) * k), shape=(n, p))
    X.sum_duplicates()
    y = rng.integers(0, 2, size=n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    model = ManifoldForestClassifier(2, max_depth=3, random_state=0).fit(X, y)
    model.predict(X)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert used * 1024 < 3 * (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    assert time.process_time() - start < 120
