"""Sparse matrices: the same forests and predictions as for dense ones."""

import resource
import sys
import tracemalloc

import numpy as np
import pytest
from makers import assert_same_trees, made
from scipy import sparse
from sklearn.base import clone

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    CO2Procedure,
    E2EDecisionForestClassifier,
    HingeProcedure,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    NonGreedyTreeClassifier,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from skforest.table.matrix import canonical_csr, min_max, scaled, scaled_csr, weighted_sums
from skforest.table.training_set import SparseRowOrder, TrainingSet

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


@pytest.mark.thin(2)
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
    dense = made(cls, 8, random_state=0, **parameters).fit(X, y)
    for form in FORMS:
        model = made(cls, 8, random_state=0, **parameters).fit(form(X), y)
        assert_same_trees(dense, model)
        np.testing.assert_array_equal(model.predict(form(X)), dense.predict(X))
        np.testing.assert_array_equal(model.apply(form(X)), dense.apply(X))


def test_many_bytes_have_the_same_bits():
    """Rows of bytes were put in order as floats if X had more than 65,793 entries."""
    X = np.random.default_rng(0).integers(0, 256, size=(300, 240)).astype(np.float32)
    y = X[:, :4].sum(axis=1) > 500
    dense = ManifoldForestClassifier(2, random_state=0).fit(X, y)
    assert_same_trees(
        dense, ManifoldForestClassifier(2, random_state=0).fit(sparse.csr_matrix(X), y)
    )


CO2 = {"objective": "co2", "bootstrap": False, "max_features": "sqrt", "holdout": 0.0}
SMALL = {"n_bags": 2, "max_iter": 30, "n_directions": 10, "max_depth": 4}
SCALING = [
    CO2ForestClassifier(3),
    CO2ForestClassifier(3, objective="co2", holdout=0.3, max_leaf_nodes=12),
    CO2ForestClassifier(3, objective=None, bootstrap=True),
    CO2ForestRegressor(
        2, objective="soft", max_depth=4, procedure=CO2Procedure(row_norm=None, leaves="gradient")
    ),
    CO2ForestRegressor(
        2, objective="mixed", max_depth=4, procedure=CO2Procedure(splitter="exact", signs="old")
    ),
    RandomHingeForestClassifier(5, **SMALL),
    RandomHingeForestClassifier(
        5, features="identity", procedure=HingeProcedure(early_stopping=True), **SMALL
    ),
    RandomHingeForestRegressor(
        5, features="linear", structure="fern", procedure=HingeProcedure(head="linear"), **SMALL
    ),
    RandomHingeForestRegressor(5, loss="quantile", bootstrap=True, max_samples=0.5, **SMALL),
    ObliqueBoostingClassifier(8, n_bags=2),
    ObliqueBoostingClassifier(8, n_bags=1, interaction_cst="pairwise"),
    ObliqueBoostingRegressor(8, n_bags=1, linear_leaves=np.False_, linear_start=None),
    ObliqueBoostingRegressor(8, loss="poisson", n_bags=2, subsample=0.5),
]


def shifted_rows(model):
    """As `rows`, with one column without zeros, which has negative numbers."""
    X, y = rows(type(model))
    X[:, 7] = np.linspace(-1, 1, len(X))
    return X, y


@pytest.mark.thin(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("model", SCALING, ids=str)
def test_scaled_features_have_the_same_bits(model, dtype):
    X, y = shifted_rows(model)
    X = X.astype(dtype) / 3
    dense = clone(model).set_params(random_state=0).fit(X, y)
    weight = np.ones(len(X))
    weight[:50] = 0
    S = sparse.csc_array(X)
    model = clone(dense).fit(S, y)
    assert_same_trees(dense, model)
    np.testing.assert_array_equal(model.predict(S), dense.predict(X))
    np.testing.assert_array_equal(model.apply(X), dense.apply(S))
    assert_same_trees(dense.fit(X, y, weight), model.fit(S, y, weight))


def test_boosting_of_sparse_rows():
    """Rows for early stopping, stages, and parameters that need dense rows."""
    X, y = rows(ObliqueBoostingRegressor)
    S = sparse.csr_matrix(X)
    options = {"linear_leaves": False, "linear_start": None, "n_bags": 2}
    model = ObliqueBoostingRegressor(8, random_state=0, **options)
    dense = clone(model).fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
    model.fit(S[:100], y[:100], X_val=S[100:], y_val=y[100:])
    assert_same_trees(dense, model)
    *_, last = model.staged_predict(S)
    np.testing.assert_array_equal(last, dense.predict(X))
    with pytest.raises(TypeError, match="X_val must be sparse"):
        model.fit(S, y, X_val=X, y_val=y)
    with pytest.raises(TypeError, match="dense data is required by linear_leaves=True"):
        model.set_params(linear_leaves=True).fit(S, y)
    model.set_params(linear_leaves="auto", linear_start=100.0)
    with pytest.raises(TypeError, match="dense data is required by linear_start=100.0"):
        model.fit(S, y)
    model.set_params(linear_start="auto").fit(S, y)
    assert not (model.linear_leaves_ or model.linear_start_)


@pytest.mark.parametrize("max_features", [1, None])
def test_few_and_many_candidates(max_features):
    """Entries are found by bisection for a few candidates, and sorted by features for many."""
    X, y = rows(ManifoldForestClassifier, n=100, p=200)
    dense = ManifoldForestClassifier(3, random_state=0, max_features=max_features).fit(X, y)
    assert_same_trees(dense, clone(dense).fit(sparse.csr_matrix(X), y))


def test_large_nodes_have_the_same_bits():
    """Rows of large nodes are not copied, but made dense again in every batch."""
    X, y = rows(CO2ForestClassifier, n=7000, p=320)
    dense = CO2ForestClassifier(1, max_depth=1, random_state=0, **CO2).fit(X, y)
    assert_same_trees(dense, clone(dense).fit(sparse.csr_matrix(X), y))


def test_wide_rows_use_few_features_in_a_split():
    """Above 512 features a hyperplane has at most 512 weights; training and prediction agree."""
    X, y = rows(CO2ForestClassifier, n=200, p=1500)
    S = sparse.csr_matrix(X)
    model = CO2ForestClassifier(3, random_state=0, **CO2).fit(S, y)
    assert (np.diff(model.forest_.directions().indptr) <= 512).all()
    assert np.diff(model.forest_.directions().indptr).max() == 512
    assert len(model.forest_.dense) == 0
    assert model.score(S, y) == 1.0
    np.testing.assert_array_equal(model.predict(S), model.predict(S.toarray()))
    assert_same_trees(model, clone(model).set_params(n_jobs=2).fit(S, y))
    dense = clone(model).fit(S.toarray(), y)
    assert model.score(S[:50], y[:50]) >= dense.score(S[:50], y[:50])


def test_columns_of_wide_rows_are_chosen_by_their_weighted_variance():
    """Those that vary among heavy rows, before many more that vary among light ones."""
    rng = np.random.default_rng(0)
    X = np.zeros((240, 1260))
    X[:120, :60] = rng.normal(size=(120, 60)) * (rng.random((120, 60)) < 0.2)
    X[120:, 60:] = 3 * rng.normal(size=(120, 1200))
    y = np.concatenate([X[:120, :5].sum(axis=1) > 0, rng.random(120) < 0.5])
    own = {"max_depth": 1, "max_features": None, "random_state": 0}
    for weight, is_chosen in ((1e-3, True), (1.0, False)):
        model = CO2ForestClassifier(1, **CO2 | own)
        model.fit(sparse.csr_matrix(X), y, np.repeat([1.0, weight], 120))
        weights = model.forest_.directions().toarray()[0]
        assert (np.count_nonzero(weights[:60]) > 50) == is_chosen


def test_wide_columns_of_large_numbers_that_are_alike_are_chosen_last():
    """Among heavy rows, they do not vary; many of them take no place of others."""
    rng = np.random.default_rng(0)
    X = np.zeros((240, 660))
    X[:120, :60] = rng.normal(size=(120, 60)) * (rng.random((120, 60)) < 0.2)
    X[:120, 60:] = 5
    y = np.concatenate([X[:120, :5].sum(axis=1) > 0, rng.random(120) < 0.5])
    own = {"max_depth": 1, "max_features": None, "random_state": 0}
    model = CO2ForestClassifier(1, **CO2 | own)
    model.fit(sparse.csr_matrix(X), y, np.repeat([1.0, 1e-3], 120))
    assert np.count_nonzero(model.forest_.directions().toarray()[0, :60]) > 50


def test_columns_with_zeros_and_negative_numbers_are_not_shifted():
    X, _ = rows(ManifoldForestRegressor)
    X = X.astype(np.float64)
    X[:, 2] *= -1
    X[:, 3] = np.linspace(2, 5, len(X))
    S = canonical_csr(sparse.csr_matrix(X))
    offset, scale = min_max(S)
    np.testing.assert_array_equal(scale, min_max(X)[1])
    np.testing.assert_array_equal(np.flatnonzero(offset), [3])
    found = scaled_csr(S, offset, scale)
    np.testing.assert_array_equal(found.toarray(), scaled(X, offset, scale))
    assert found.data.all() and found.dtype == np.float32
    weight = np.random.default_rng(0).random(len(X))
    np.testing.assert_array_equal(weighted_sums(S, weight), weighted_sums(X, weight))
    for cls in (CO2ForestRegressor, RandomHingeForestRegressor):
        model = cls(5, random_state=0).fit(S, X[:, 0])
        np.testing.assert_array_equal(model.predict(S), model.predict(X))


def test_warm_start_and_streams():
    X, y = shifted_rows(CO2ForestClassifier())
    S = sparse.csr_matrix(X)
    for model in (
        CO2ForestClassifier(3, random_state=0, **CO2),
        RandomHingeForestClassifier(5, random_state=0, **SMALL),
    ):
        name = "n_bags" if hasattr(model, "n_bags") else "n_estimators"
        whole = clone(model).set_params(**{name: 4}).fit(X, y)
        model.set_params(warm_start=True).fit(S, y)
        assert_same_trees(whole, model.set_params(**{name: 4}).fit(S, y))
    first, second = (RandomHingeForestClassifier(5, random_state=0, **SMALL) for _ in range(2))
    for batch in (slice(0, 200), slice(200, 300)):
        first.partial_fit(X[batch], y[batch], classes=[False, True])
        second.partial_fit(S[batch], y[batch], classes=[False, True])
        assert_same_trees(first, second)
    # A forest that was fitted on dense rows shifts nearly all columns.
    X, y = rows(CO2ForestClassifier)
    model = CO2ForestClassifier(2, random_state=0, warm_start=True, **CO2).fit(X - 1, y)
    with pytest.raises(ValueError, match="first fitted on dense X"):
        model.set_params(n_estimators=3).fit(sparse.csr_matrix(X), y)
    model.predict(sparse.csr_matrix(X))


@pytest.mark.parametrize(
    "model",
    [
        CO2ForestClassifier(1, max_depth=3, **CO2),
        CO2ForestClassifier(1, max_depth=3, **(CO2 | {"objective": None})),
        RandomHingeForestClassifier(
            3, n_bags=1, max_iter=2, n_directions=4, procedure=HingeProcedure(importance_power=0)
        ),
        ManifoldForestClassifier(2, max_depth=3),
        ObliqueBoostingClassifier(2, n_bags=1),
    ],
    ids=str,
)
def test_x_is_never_dense_as_a_whole(model, monkeypatch):
    for module in ("estimators.base", "table.matrix", "training.hinge_packing"):
        monkeypatch.setattr(f"skforest.{module}.DENSE_BLOCK", 2**17)
    sizes, toarray = [], sparse.csr_matrix.toarray

    def recorded(X, *args, **kwargs):
        sizes.append(X.shape[0] * X.shape[1])
        return toarray(X, *args, **kwargs)

    monkeypatch.setattr(sparse.csr_matrix, "toarray", recorded)
    n, p = 1200, 1500
    X = sparse.csr_matrix(sparse.random(n, p, 0.003, "csr", np.float32, random_state=0))
    y = X[:, :600].sum(axis=1).A1 > 0.8
    tracemalloc.start()
    try:
        model.fit(X, y).predict(X)
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sizes and max(sizes) <= 2**17
    assert used < 4 * n * p  # the memory of dense rows


@MODELS
def test_dtypes_zeros_and_repeated_entries(cls):
    X, y = rows(cls, counts=True)
    dense = cls(5, random_state=0).fit(X, y)
    for dtype in (np.float64, np.int64, np.uint8, np.int32):
        assert_same_trees(dense, cls(5, random_state=0).fit(sparse.csr_matrix(X).astype(dtype), y))
    # Entries of one place add up, stored zeros are none, and features need not rise.
    half = sparse.coo_matrix(X / 2)
    row, column = (np.concatenate([part, part, [0]]) for part in (half.row, half.col))
    order = np.lexsort((-column, row))
    start = np.searchsorted(row[order], np.arange(len(X) + 1))
    values = np.concatenate([half.data, half.data, [0.0]])[order]
    twice = sparse.csr_matrix((values, column[order], start), shape=X.shape)
    before = twice.copy()
    assert_same_trees(dense, cls(5, random_state=0).fit(twice, y))
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
    assert_same_trees(model, copies)
    warm = cls(3, random_state=0, warm_start=True).fit(sparse.csr_matrix(X), y, weight)
    assert_same_trees(model, warm.set_params(n_estimators=6).fit(sparse.csr_matrix(X), y, weight))


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
    np.testing.assert_allclose(data.unit(), dense.unit(), rtol=1e-6)


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


@pytest.mark.parametrize(
    "cls", [ManifoldForestClassifier, CO2ForestClassifier, RandomHingeForestClassifier]
)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_and_infinite_entries_are_refused(value, cls):
    X, y = rows(cls)
    X[3, 4] = value
    with pytest.raises(ValueError, match="(NaN|infinity).*dense X only"):
        cls(5).fit(sparse.csr_matrix(X), y)


def test_what_takes_dense_rows_says_so():
    X, y = rows(ManifoldForestClassifier)
    S = sparse.csr_matrix(X)
    image = {"feature_shape": (5, 8)}
    for model, reason in (
        (CO2ForestClassifier(5, refine="alternating"), "refine='alternating'"),
        (CO2ForestClassifier(5, refine="nongreedy"), "refine='nongreedy'"),
        (CO2ForestClassifier(5, refine=NonGreedyTreeClassifier()), r"refine=NonGreedyTree.*\(\)"),
        (CO2ForestClassifier(5, objective="oc1"), "objective='oc1'"),
        (CO2ForestClassifier(5, objective="random"), "objective='random'"),
        (CO2ForestClassifier(5, weight_dtype="float16"), "weight_dtype='float16'"),
        (RandomHingeForestClassifier(5, features="conv", **image), "features='conv'"),
        (ManifoldForestClassifier(5, **image), r"feature_shape=\(5, 8\)"),
        (ObliqueBoostingRegressor(5, **image), r"feature_shape=\(5, 8\)"),
        (ManifoldForestClassifier(5, projection="patch"), "projection='patch'"),
        (NonGreedyTreeClassifier(), "NonGreedyTreeClassifier"),
        (E2EDecisionForestClassifier(5), "E2EDecisionForest"),
    ):
        with pytest.raises(TypeError, match=f"Sparse data was passed.*dense.*by {reason}"):
            model.fit(S, y)
    for cls in (ManifoldForestClassifier, CO2ForestClassifier):
        model = cls(5, random_state=0).fit(S, y)
        with pytest.raises(TypeError, match="refine takes dense X"):
            skforest.refine(model, S, y)
    with pytest.raises(TypeError, match="[Ss]parse"):
        ManifoldForestClassifier(5, categorical_features=[0]).fit(S, y)


@pytest.mark.parametrize("cls", [ManifoldForestClassifier, CO2ForestClassifier])
def test_a_saved_model_takes_sparse_rows(tmp_path, cls):
    X, y = rows(cls)
    model = cls(5, random_state=0).fit(sparse.csr_matrix(X), y)
    skforest.save(model, tmp_path / "model.npz")
    again = skforest.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(sparse.csc_matrix(X)), model.predict(X))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
@pytest.mark.parametrize(
    "model",
    [
        ManifoldForestClassifier(2, max_depth=3, random_state=0),
        CO2ForestClassifier(2, max_depth=3, random_state=0, **CO2),
    ],
    ids=str,
)
def test_memory_of_a_wide_matrix(model):
    """100,000 x 50,000, 0.2 % full: at most 3 times the memory of the CSR matrix above it."""
    rng = np.random.default_rng(0)
    n, p, k = 100_000, 50_000, 100
    arrays = rng.random(n * k, dtype=np.float32), rng.integers(0, p, n * k, dtype=np.int32)
    X = sparse.csr_matrix((*arrays, np.arange(n + 1, dtype=np.int32) * k), shape=(n, p))
    X.sum_duplicates()
    y = rng.integers(0, 2, size=n)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model.fit(X, y).predict(X)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert used * 1024 < 3 * (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


@pytest.mark.parametrize("cls", [CO2ForestClassifier, ManifoldForestClassifier])
def test_numbers_of_columns_are_checked(cls):
    X = sparse.random(40, 6, 0.5, format="csr", random_state=0)
    y = np.arange(40) % 2
    model = cls(2, random_state=0).fit(X, y)
    damaged = X.copy()
    damaged.indices[3] = 99
    with pytest.raises(ValueError, match="X is not a valid sparse matrix"):
        model.predict(damaged)
    with pytest.raises(ValueError, match="X is not a valid sparse matrix"):
        cls(2).fit(damaged, y)


def test_categories_need_dense_rows():
    X = sparse.random(40, 6, 0.5, format="csr", random_state=0)
    with pytest.raises(TypeError, match=r"categorical_features=\[0\] takes no sparse X"):
        CO2ForestClassifier(2, categorical_features=[0]).fit(X, np.arange(40) % 2)


@pytest.mark.parametrize("cls", [ManifoldForestClassifier, RandomHingeForestClassifier])
def test_entries_given_twice_and_zeros_are_left_in_the_matrix_of_the_user(cls):
    data = np.r_[np.arange(1.0, 41.0), np.zeros(40)].astype(np.float32)
    indices, starts = np.tile([2, 0, 1, 0], 20), np.arange(0, 81, 2)
    X = sparse.csr_matrix((data, indices, starts), shape=(40, 3))
    before = X.data.copy(), X.indices.copy(), X.indptr.copy()
    model = cls(2, random_state=0).fit(X, np.arange(40) % 2)
    model.predict(X)
    for one, other in zip(before, (X.data, X.indices, X.indptr), strict=True):
        np.testing.assert_array_equal(one, other)
