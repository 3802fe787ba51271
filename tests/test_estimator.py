"""What a user of scikit-learn expects of any forest: the base class, for every estimator."""

import _thread
import gc
import inspect
import pickle
import re
import sys
import threading
import time
import warnings
from collections import Counter

import numpy as np
import pytest
import sklearn
from joblib import parallel_config
from makers import assert_same_trees, response
from skforest._kernels.rows import tree_seed
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_blobs, make_classification, make_regression
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.inspection import permutation_importance
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    ParameterGrid,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from skforest import ManifoldForestRegressor, _threads
from skforest._matrix import scaled
from skforest._training_set import TrainingSet

N = 120
slow = pytest.mark.slow


def classes(n=N, seed=0, n_classes=3):
    return make_classification(
        n, n_features=6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=seed
    )


def targets(n=N, seed=0, n_targets=1):
    return make_regression(n, 6, n_targets=n_targets, noise=5.0, random_state=seed)


def task(estimator, n=N, seed=0):
    """X, y of the estimator's kind."""
    return (classes if is_classifier(estimator) else targets)(n, seed)


# ------------------------------------------------------------------------ scikit-learn's tools


@pytest.mark.needs("min_impurity_decrease")
def test_grid_search_finds_what_a_loop_finds(estimator):
    X, y = task(estimator)
    grid = {"min_samples_leaf": [1, 30], "n_estimators": [3, 12]}
    folds = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(estimator, grid, cv=folds).fit(X, y)
    by_hand = [
        np.mean(
            [
                clone(estimator).set_params(**params).fit(X[a], y[a]).score(X[b], y[b])
                for a, b in folds.split(X)
            ]
        )
        for params in ParameterGrid(grid)
    ]
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], by_hand, rtol=1e-12)
    assert search.best_params_["min_samples_leaf"] == 1
    best = clone(estimator).set_params(**search.best_params_).fit(X, y)
    assert_same_trees(search.best_estimator_, best)


@pytest.mark.needs("min_impurity_decrease")
def test_parallel_forest_inside_a_parallel_search(estimator):
    X, y = task(estimator)
    grid = {"min_samples_leaf": [1, 10]}
    inner = clone(estimator).set_params(n_jobs=2)
    alone = GridSearchCV(estimator, grid, cv=2).fit(X, y)
    nested = GridSearchCV(inner, grid, cv=2, n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(
        nested.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"]
    )
    assert_same_trees(nested.best_estimator_, alone.best_estimator_)


def test_a_pipeline_equals_its_steps(estimator):
    X, y = task(estimator)
    pipeline = make_pipeline(StandardScaler(), estimator).fit(X, y)
    scaled = StandardScaler().fit_transform(X)
    alone = clone(estimator).fit(scaled, y)
    np.testing.assert_array_equal(response(pipeline, X), response(alone, scaled))
    assert pipeline.score(X, y) == alone.score(scaled, y)


def test_cross_val_score_equals_fit_and_score(estimator):
    X, y = task(estimator)
    folds = KFold(3, shuffle=True, random_state=1)
    scores = cross_val_score(estimator, X, y, cv=folds)
    by_hand = [clone(estimator).fit(X[a], y[a]).score(X[b], y[b]) for a, b in folds.split(X)]
    np.testing.assert_array_equal(scores, by_hand)
    assert scores.mean() > 0.4


@pytest.mark.needs("min_impurity_decrease")
def test_clone_is_unfitted_and_learns_the_same(estimator):
    X, y = task(estimator)
    estimator.set_params(min_samples_leaf=2, n_estimators=4).fit(X, y)
    other = clone(estimator)
    assert other.get_params() == estimator.get_params()
    assert vars(other).keys() == other.get_params().keys()
    assert_same_trees(other.fit(X, y), estimator)


def test_feature_names_pass_through_a_pipeline(estimator):
    pd = pytest.importorskip("pandas")
    X, y = task(estimator)
    names = [f"column {j}" for j in range(X.shape[1])]
    frame = pd.DataFrame(X, columns=names)
    pipeline = make_pipeline(StandardScaler(), estimator).set_output(transform="pandas")
    pipeline.fit(frame, y)
    assert pipeline[-1].feature_names_in_.tolist() == names
    plain = make_pipeline(StandardScaler(), clone(estimator)).fit(X, y)
    np.testing.assert_array_equal(response(pipeline, frame), response(plain, X))


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_calibration(classifier, method):
    X, y = classes(300)
    model = CalibratedClassifierCV(classifier, method=method, cv=3).fit(X[:200], y[:200])
    proba = model.predict_proba(X[200:])
    assert proba.shape == (100, 3)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    assert len(model.calibrated_classifiers_) == 3
    assert model.score(X[200:], y[200:]) > 0.55


def test_permutation_importance_finds_the_one_feature(estimator):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 4))
    y = (X[:, 2] > 0).astype(int) if is_classifier(estimator) else 3 * X[:, 2]
    model = clone(estimator).set_params(n_estimators=20).fit(X, y)
    found = permutation_importance(model, X, y, n_repeats=3, random_state=0).importances_mean
    assert found.argmax() == 2
    assert found[2] > 5 * np.delete(found, 2).max()


def test_metadata_routing_of_sample_weight(estimator):
    X, y = task(estimator)
    weight = np.random.default_rng(0).integers(0, 3, len(X)).astype(float)
    folds = KFold(3, shuffle=True, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
            cross_validate(estimator, X, y, cv=folds, params={"sample_weight": weight})
        requesting = clone(estimator).set_fit_request(sample_weight=True)
        requesting.set_score_request(sample_weight=True)
        routed = cross_validate(
            requesting, X, y, cv=folds, params={"sample_weight": weight}, return_estimator=True
        )
    for (a, b), model, score in zip(folds.split(X), routed["estimator"], routed["test_score"]):
        by_hand = clone(estimator).fit(X[a], y[a], sample_weight=weight[a])
        assert_same_trees(model, by_hand)
        assert score == by_hand.score(X[b], y[b], sample_weight=weight[b])


@pytest.mark.needs("min_impurity_decrease")
def test_repr_and_html_repr(estimator):
    X, y = task(estimator, 30)
    name = type(estimator).__name__
    assert repr(estimator).startswith(f"{name}(") and "n_estimators=10" in repr(estimator)
    assert name in estimator._repr_html_() and "<th>trees</th>" not in estimator._repr_html_()
    estimator.fit(X, y)
    for html in (estimator._repr_html_(), estimator._repr_mimebundle_()["text/html"]):
        assert name in html and "fitted" in html
        shown = dict(re.findall(r"<tr><th>([a-z ]+)</th><td>([^<]+)</td></tr>", html))
        n_leaves = int(shown["leaves"].replace(",", ""))
        assert list(shown) == ["trees", "leaves", "depth", "memory", "last fit"]
        assert shown["trees"].startswith("10") and n_leaves == estimator.forest_.n_leaves.sum()
        assert shown["depth"].endswith(str(estimator.forest_.max_depth.max()))
        assert re.fullmatch(r"\d+\.\d KiB", shown["memory"])
        assert 0 < float(shown["last fit"].removesuffix(" s")) < 100
    assert re.fullmatch(r"Forest\(10 trees, \d+ nodes, 6 features, .*\)", repr(estimator.forest_))


# --------------------------------------------------------------------------------- parameters


@pytest.mark.every_class
def test_every_parameter_is_in_the_docstring_with_its_default(estimator):
    text = inspect.getdoc(type(estimator))
    documented = dict(re.findall(r"^(\w+) : .*default=(.+)$", text, flags=re.MULTILINE))
    documented = {name: value.strip("\"'") for name, value in documented.items()}
    own = inspect.signature(type(estimator).__init__).parameters
    wanted = {name: str(p.default) for name, p in own.items() if name != "self"}
    assert documented == wanted


# -------------------------------------------------------------------------------------- input


def test_data_frames_give_names_and_the_same_forest(estimator):
    pd = pytest.importorskip("pandas")
    X, y = task(estimator)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    plain = clone(estimator).fit(X, y)
    assert not hasattr(plain, "feature_names_in_")
    named = clone(estimator).fit(frame, pd.Series(y))
    assert named.feature_names_in_.tolist() == list("abcdef")
    assert named.forest_.feature_names == list("abcdef")
    assert_same_trees(named, plain)
    np.testing.assert_array_equal(response(named, frame), response(plain, X))


def test_wrong_names_at_predict(estimator):
    pd = pytest.importorskip("pandas")
    X, y = task(estimator)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    estimator.fit(frame, y)
    with pytest.raises(ValueError, match="(?s)feature names.*unseen.*other"):
        estimator.predict(frame.rename(columns={"b": "other"}))
    with pytest.raises(ValueError, match="same order"):
        estimator.predict(frame[list("fedcba")])
    with pytest.raises(ValueError, match="(?s)seen at fit time, yet now missing.*f"):
        estimator.apply(frame[list("abcde")])
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        found = estimator.predict(X)
    np.testing.assert_array_equal(found, estimator.predict(frame))


def test_data_frame_of_mixed_columns(estimator):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    columns = [rng.integers(0, high, N) for high in (2, 200)]
    X = np.column_stack([*columns, rng.integers(-9, 9, N), rng.random(N)])
    y = X[:, 0] > 0 if is_classifier(estimator) else X[:, 1]
    frame = pd.DataFrame(
        {
            "a": X[:, 0].astype(bool),
            "b": X[:, 1].astype(np.uint8),
            "c": X[:, 2].astype(np.int64),
            "d": X[:, 3],
        }
    )
    mixed, plain = clone(estimator).fit(frame, y), clone(estimator).fit(X, y)
    assert_same_trees(mixed, plain)
    np.testing.assert_array_equal(response(mixed, frame), response(plain, X))


DTYPES = ["float64", "float32", "float16", "int64", "int8", "uint8", "bool"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_equal_values_give_the_same_model_in_every_dtype(estimator, dtype):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (N, 6))
    y = X[:, 0] ^ X[:, 1] if is_classifier(estimator) else X @ np.arange(6.0)
    one = clone(estimator).fit(X.astype(np.float64), y)
    other = clone(estimator).fit(X.astype(dtype), y)
    assert_same_trees(one, other)
    for model in (one, other):
        expected = response(one, X.astype(np.float64))
        np.testing.assert_array_equal(response(model, X.astype(dtype)), expected)
        np.testing.assert_array_equal(response(model, X * 1.0), expected)


def test_bytes_are_exact_over_their_whole_range(estimator):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (N, 6))
    y = X[:, 0] > 128 if is_classifier(estimator) else X[:, 0]
    model = clone(estimator).fit(X.astype(np.uint8), y)
    np.testing.assert_array_equal(response(model, X.astype(np.uint8)), response(model, X))
    # Rows between and beyond the bytes are not handled as bytes.
    np.testing.assert_array_equal(response(model, X + 1e-3)[:5], response(model, X[:5] + 1e-3))
    between = X + 0.75
    between[0] = X[0]  # bytes in the first row only
    np.testing.assert_array_equal(response(model, between)[1:], response(model, between[1:]))
    far = np.array([[300.0] * 6, [-5.0] * 6, [255.0] * 6, [0.0] * 6])
    together = response(model, far)
    for row, expected in zip(far, together):
        np.testing.assert_array_equal(response(model, row[None])[0], expected)
    assert model.score(X, y) > 0.9


@pytest.mark.needs("projection")
def test_the_same_forest_whether_bytes_or_not(estimator):
    """One value that is no byte keeps the other columns from being bytes; nothing else changes."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (N, 6)).astype(float)
    y = X[:, 0] > 128 if is_classifier(estimator) else X[:, 0]
    estimator.set_params(bootstrap=False, max_features=None, projection="axis", splitter="exact")
    model = clone(estimator).fit(X, y)
    wider = clone(estimator).fit(np.hstack([X, np.full((N, 1), 0.5)]), y)
    assert model.score(X, y) == pytest.approx(wider.score(np.hstack([X, X[:, :1]]), y))


def test_lists(estimator):
    X, y = task(estimator)
    X = X.astype(np.float32)
    one = clone(estimator).fit(X, y)
    other = clone(estimator).fit(X.tolist(), y.tolist(), sample_weight=[1] * len(X))
    assert_same_trees(one, other)
    np.testing.assert_array_equal(other.predict(X[:5].tolist()), one.predict(X[:5]))


@pytest.mark.needs("projection")
def test_rows_in_the_shape_of_features(estimator):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (60, 4, 5, 3)).astype(np.uint8)
    y = images[:, 2, 2, 0] > 128 if is_classifier(estimator) else images[:, 2, 2, 0]
    flat = images.reshape(60, -1)
    one = clone(estimator).set_params(feature_shape=(4, 5, 3)).fit(images, y)
    other = clone(estimator).set_params(feature_shape=(4, 5, 3)).fit(flat, y)
    assert_same_trees(one, other)
    assert one.n_features_in_ == 60
    for method in ("predict", "apply"):
        np.testing.assert_array_equal(getattr(one, method)(images), getattr(other, method)(flat))
    assert one.score(images, y) == other.score(flat, y)
    path, _ = one.decision_path(images)
    assert (path != other.decision_path(flat)[0]).nnz == 0
    assert one.feature_importances_.reshape(one.feature_shape).shape == (4, 5, 3)


@pytest.mark.every_class
@pytest.mark.needs("min_impurity_decrease")
def test_fitted_attributes(estimator):
    X, y = task(estimator)
    assert estimator.fit(X, y) is estimator
    assert estimator.n_features_in_ == 6
    assert estimator.n_outputs_ == 1
    assert len(estimator.forest_) == 10
    if is_classifier(estimator):
        assert estimator.classes_.tolist() == [0, 1, 2]
        assert estimator.n_classes_ == 3


# ------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    "labels",
    [
        np.array(["setosa", "versicolor", "virginica"]),
        np.array(["b", "a much longer one", "ä"], dtype=object),
        np.array([-7, 3, 10**9]),
        np.array([1.0, 3.0, -4.0]),
        np.array([2, 0, 1], dtype=np.uint8),
    ],
    ids=["str", "object", "int", "float", "uint8"],
)
def test_labels_of_every_kind(classifier, labels):
    X, y = classes()
    labels = np.sort(labels)
    plain, named = clone(classifier).fit(X, y), clone(classifier).fit(X, labels[y])
    np.testing.assert_array_equal(named.classes_, labels)
    np.testing.assert_array_equal(named.predict_proba(X), plain.predict_proba(X))
    np.testing.assert_array_equal(named.predict(X), labels[plain.predict(X)])
    assert named.predict(X).dtype == labels.dtype
    assert named.score(X, labels[y]) == plain.score(X, y) > 0.9


def test_bool_labels(classifier):
    X, y = classes(n_classes=2)
    model = clone(classifier).fit(X, y == 1)
    assert model.classes_.tolist() == [False, True]
    assert model.predict(X).dtype == bool
    np.testing.assert_array_equal(model.predict(X), clone(classifier).fit(X, y).predict(X) == 1)


# ------------------------------------------------------------------------------ class weights


def imbalanced(seed=0, times=1):
    """190 rows of class 0 and 30 of class 1, which overlap."""
    sizes = [190 * times, 30 * times]
    return make_blobs(sizes, 2, centers=[[0, 0], [1.5, 0]], random_state=seed)


def recall(model, X, y, label):
    return (model.predict(X[y == label]) == label).mean()


@pytest.mark.parametrize("weight", ["balanced", "balanced_subsample", {0: 1, 1: 8}], ids=str)
@pytest.mark.needs("min_impurity_decrease")
def test_class_weight_helps_the_rare_class(classifier, weight):
    X, y = imbalanced()
    X_new, y_new = imbalanced(1, times=20)
    classifier.set_params(max_depth=3, n_estimators=20)
    plain = clone(classifier).fit(X, y)
    weighted = clone(classifier).set_params(class_weight=weight).fit(X, y)
    assert recall(plain, X_new, y_new, 1) < 0.4
    assert recall(weighted, X_new, y_new, 1) > recall(plain, X_new, y_new, 1) + 0.2
    assert recall(weighted, X_new, y_new, 0) > 0.7


@pytest.mark.every_class
@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.needs("min_impurity_decrease")
def test_class_weight_is_sample_weight(classifier, bootstrap):
    X, y = imbalanced()
    classifier.set_params(max_depth=3, bootstrap=bootstrap)
    for class_weight in ("balanced", {0: 1, 1: 8}):
        weighted = clone(classifier).set_params(class_weight=class_weight).fit(X, y)
        sample_weight = compute_sample_weight(class_weight, y)
        by_hand = clone(classifier).fit(X, y, sample_weight=sample_weight)
        np.testing.assert_allclose(
            weighted.predict_proba(X), by_hand.predict_proba(X), rtol=0, atol=1e-6
        )


@pytest.mark.every_class
def test_class_weight_multiplies_sample_weight(classifier):
    X, y = imbalanced()
    rng = np.random.default_rng(0)
    weight = rng.integers(1, 4, len(y)) * 1.0
    classifier.set_params(max_depth=3)
    one = clone(classifier).set_params(class_weight={0: 1, 1: 4}).fit(X, y, sample_weight=weight)
    other = clone(classifier).fit(X, y, sample_weight=weight * np.where(y == 1, 4, 1))
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


def test_balanced_counts_weights_not_rows(classifier):
    X, y = imbalanced()
    weight = np.where(y == 1, 190.0, 30.0)  # both classes weigh the same
    classifier.set_params(max_depth=3)
    balanced = clone(classifier).set_params(class_weight="balanced").fit(X, y, weight)
    plain = clone(classifier).fit(X, y, weight)
    np.testing.assert_array_equal(balanced.predict_proba(X), plain.predict_proba(X))


@pytest.mark.needs("min_impurity_decrease")
def test_balanced_subsample_balances_every_tree(classifier):
    X, y = imbalanced()
    classifier.set_params(class_weight="balanced_subsample", max_depth=1, n_estimators=20)
    classifier.fit(X, y)
    root = classifier.forest_.tree_start[:-1]
    weight = classifier.forest_.node_weight
    # Each tree's leaves together hold as much of class 0 as of class 1.
    for tree, start in zip(classifier.forest_, root):
        leaves = tree.apply(X)
        nodes = np.unique(leaves)
        share = sum(
            weight[start + node] * tree.response(X[leaves[:, 0] == node][:1])[0] for node in nodes
        )
        np.testing.assert_allclose(share, share.sum() / 2, rtol=1e-5)


def test_labels_without_an_entry_in_class_weight_count_once(classifier):
    X, y = classes()
    one = clone(classifier).set_params(class_weight={1: 3}).fit(X, y)
    other = clone(classifier).set_params(class_weight={0: 1, 1: 3, 2: 1}).fit(X, y)
    assert_same_trees(one, other)


def test_class_weight_by_name(classifier):
    X, y = classes()
    names = np.array(["a", "b", "c"])
    one = clone(classifier).set_params(class_weight={"a": 1, "b": 3, "c": 1}).fit(X, names[y])
    other = clone(classifier).set_params(class_weight={0: 1, 1: 3, 2: 1}).fit(X, y)
    np.testing.assert_array_equal(one.predict_proba(X), other.predict_proba(X))


# ----------------------------------------------------------------------------- sample weights


@pytest.mark.every_class
@pytest.mark.parametrize("params", [{}, {"bootstrap": False}, {"max_samples": 0.5}], ids=str)
@pytest.mark.needs("min_impurity_decrease")
def test_a_weight_of_k_is_k_copies_and_0_is_absence(estimator, params):
    X, y = task(estimator)
    rng = np.random.default_rng(0)
    k = rng.integers(0, 4, len(X))
    estimator.set_params(**params)
    weighted = clone(estimator).fit(X, y, sample_weight=k)
    copied = clone(estimator).fit(np.repeat(X, k, axis=0), np.repeat(y, k))
    assert_same_trees(weighted, copied)
    np.testing.assert_array_equal(response(weighted, X), response(copied, X))
    other = clone(estimator).fit(X[k > 0], y[k > 0], sample_weight=k[k > 0])
    assert_same_trees(weighted, other)


def test_weights_matter(estimator):
    X, y = task(estimator)
    weight = np.random.default_rng(0).integers(1, 10, len(X))
    plain, weighted = clone(estimator).fit(X, y), clone(estimator).fit(X, y, weight)
    assert not np.array_equal(response(plain, X), response(weighted, X))


def test_the_scale_of_weights_does_not_matter(estimator):
    X, y = task(estimator)
    weight = np.random.default_rng(0).integers(1, 10, len(X)) * 1.0
    one, other = clone(estimator).fit(X, y, weight), clone(estimator).fit(X, y, weight * 2.0**-20)
    np.testing.assert_array_equal(response(one, X), response(other, X))


@pytest.mark.every_class
@pytest.mark.needs("min_impurity_decrease")
def test_the_order_of_rows_does_not_matter(estimator):
    X, y = task(estimator)
    X, y = np.concatenate([X, X[:40]]), np.concatenate([y, y[:40]])
    order = np.random.default_rng(0).permutation(len(X))
    weight = np.random.default_rng(1).integers(1, 4, len(X)) * 1.0
    estimator.set_params(oob_score=True, n_estimators=40)
    one = clone(estimator).fit(X, y, weight)
    other = clone(estimator).fit(X[order], y[order], weight[order])
    assert_same_trees(one, other)
    np.testing.assert_array_equal(response(one, X), response(other, X))
    assert one.oob_score_ == pytest.approx(other.oob_score_, rel=1e-12)


# ---------------------------------------------------------------- bootstrap, out of bag, growth


def drawn(model, X, y, weight=None):
    """Rows of the training set, and how often each tree drew them, from first principles."""
    codes = np.searchsorted(model.classes_, y) if is_classifier(model) else y
    weight = np.ones(len(X)) if weight is None else weight
    forest = model.forest_
    table = scaled(X, forest.offset, forest.scale) if len(forest.scale) else np.float32(X)
    rows = TrainingSet(table, np.float64(codes).reshape(len(X), -1), weight)
    n_trees = len(model.forest_)
    seeds = [tree_seed(model._seed, tree) for tree in range(n_trees)]
    return rows, [rows.bootstrap(seed, len(rows)) for seed in seeds]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.needs("min_impurity_decrease")
def test_oob_score_by_hand(estimator, weighted):
    X, y = task(estimator)
    X, y = (
        np.concatenate([X, X[:30]]),
        np.concatenate([y, y[:30]]),
    )  # copies
    weight = np.ones(len(X))
    if weighted:
        weight = np.random.default_rng(0).integers(0, 4, len(X)) * 1.0
    estimator.set_params(oob_score=True, n_estimators=40).fit(X, y, weight if weighted else None)
    rows, counts = drawn(estimator, X, y, weight)
    total, n_trees = 0.0, 0
    for tree, count in zip(estimator.forest_, counts):
        out = (count == 0)[:, None]
        of_samples = tree.response(X)
        sample = [np.flatnonzero(rows.row_of_sample == row)[0] for row in range(len(rows))]
        total = total + of_samples[sample] * out
        n_trees = n_trees + out
    assert (n_trees > 0).all()
    expected = np.where(
        rows.row_of_sample[:, None] < 0, np.nan, (total / n_trees)[rows.row_of_sample]
    )
    seen = rows.row_of_sample >= 0
    assert seen.all() != weighted
    if is_classifier(estimator):
        np.testing.assert_allclose(estimator.oob_decision_function_, expected, rtol=1e-6)
        hits = expected[seen].argmax(axis=1) == y[seen]
        score = np.average(hits, weights=weight[seen])
    else:
        np.testing.assert_allclose(estimator.oob_prediction_, expected[:, 0], rtol=1e-5)
        score = r2_score(y[seen], expected[seen, 0], sample_weight=weight[seen])
    assert estimator.oob_score_ == pytest.approx(score, rel=1e-6)
    assert 0.4 < estimator.oob_score_ < estimator.score(X, y)


@pytest.mark.needs("min_impurity_decrease")
def test_oob_score_of_noise_is_chance(classifier):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 4)), rng.integers(0, 2, 200)
    X, y = np.repeat(X, 3, axis=0), np.repeat(y, 3)
    classifier.set_params(oob_score=True, n_estimators=40).fit(X, y)
    assert classifier.score(X, y) > 0.9
    assert 0.35 < classifier.oob_score_ < 0.65


@pytest.mark.needs("min_impurity_decrease")
def test_oob_of_several_outputs(regressor):
    X, y = targets(n_targets=3)
    regressor.set_params(oob_score=True, n_estimators=40).fit(X, y)
    assert regressor.oob_prediction_.shape == y.shape
    assert regressor.oob_score_ == pytest.approx(r2_score(y, regressor.oob_prediction_))


@pytest.mark.needs("min_impurity_decrease")
def test_oob_with_too_few_trees_warns_and_is_nan(estimator):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=1)
    with pytest.warns(UserWarning, match="do not have OOB scores"):
        estimator.fit(X, y)
    name = "oob_decision_function_" if is_classifier(estimator) else "oob_prediction_"
    found = getattr(estimator, name).reshape(len(X), -1)
    _, (count,) = drawn(estimator, X, y)
    assert np.isnan(found).any(axis=1).sum() == (count > 0).sum()
    assert np.isfinite(estimator.oob_score_)


@pytest.mark.needs("oob_score")
def test_oob_without_a_row_that_a_tree_left_out_is_refused(estimator):
    X, y = np.zeros((5, 2)), np.ones(5)  # one distinct row, which all trees draw
    estimator.set_params(oob_score=True, bootstrap=True)
    message = r"oob_score=True: each of the \d+ trees drew all 1 distinct rows, .* max_samples"
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, y)
    assert not hasattr(estimator, "forest_") and not hasattr(estimator, "oob_score_")


def test_every_tree_has_a_bootstrap_of_its_own(estimator):
    X, y = task(estimator, 400)
    estimator.fit(X, y)
    _, counts = drawn(estimator, X, y)
    present = np.array(counts) > 0
    np.testing.assert_allclose(present.mean(axis=1), 1 - np.exp(-1), atol=0.08)
    overlap = (present.astype(int) @ present.T.astype(int)) / present.sum(axis=1)
    off = overlap[~np.eye(len(overlap), dtype=bool)]
    assert 0.55 < off.min() and off.max() < 0.71


@pytest.mark.parametrize("value, n_draws", [(None, N), (0.25, 30), (1.0, N), (17, 17), (1, 1)])
@pytest.mark.needs("min_impurity_decrease")
def test_max_samples_is_the_number_of_draws(estimator, value, n_draws):
    X, y = task(estimator)
    estimator.set_params(max_samples=value).fit(X, y)
    roots = estimator.forest_.node_weight[estimator.forest_.tree_start[:-1]]
    np.testing.assert_array_equal(roots, np.full(10, n_draws))


@pytest.mark.needs("min_impurity_decrease")
def test_without_bootstrap_every_tree_sees_all_rows(estimator):
    X, y = task(estimator)
    estimator.set_params(bootstrap=False).fit(X, y)
    roots = estimator.forest_.node_weight[estimator.forest_.tree_start[:-1]]
    np.testing.assert_array_equal(roots, np.full(10, N))
    # Joint training may join leaves that were pure.
    exact = not {"init", "growth"} & set(estimator.get_params())
    assert estimator.score(X, y) == pytest.approx(1, abs=1e-9 if exact else 0.01)


def test_random_state(estimator):
    X, y = task(estimator)

    def trained(state):
        return response(clone(estimator).set_params(random_state=state).fit(X, y), X)

    np.testing.assert_array_equal(trained(3), trained(3))
    assert not np.array_equal(trained(3), trained(4))
    np.testing.assert_array_equal(
        trained(np.random.RandomState(5)), trained(np.random.RandomState(5))
    )
    state = np.random.RandomState(5)
    estimator.set_params(random_state=state)
    first = response(estimator.fit(X, y), X)
    assert not np.array_equal(first, response(estimator.fit(X, y), X))  # the state has changed
    assert not np.array_equal(trained(None), trained(None))


def test_trees_of_a_forest_differ(estimator):
    X, y = task(estimator)
    forest = estimator.fit(X, y).forest_
    seen = Counter(tree.threshold.tobytes() for tree in forest)
    assert len(seen) == len(forest)


# --------------------------------------------------------------------------------- warm start


@pytest.mark.every_class
@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
@pytest.mark.needs("min_impurity_decrease")
def test_warm_start_gives_the_forest_of_one_fit(estimator):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=30)
    whole = clone(estimator).fit(X, y)
    steps = clone(estimator).set_params(warm_start=True)
    for n_estimators in (12, 13, 30):
        steps.set_params(n_estimators=n_estimators).fit(X, y)
        assert len(steps.forest_) == n_estimators
    assert_same_trees(steps, whole)
    np.testing.assert_array_equal(response(steps, X), response(whole, X))
    assert steps.oob_score_ == whole.oob_score_


@pytest.mark.needs("min_impurity_decrease")
def test_warm_start_with_a_generator_as_random_state(estimator):
    X, y = task(estimator)
    whole = clone(estimator).set_params(random_state=np.random.RandomState(0)).fit(X, y)
    steps = clone(estimator).set_params(random_state=np.random.RandomState(0), warm_start=True)
    for n_estimators in (4, 10):
        steps.set_params(n_estimators=n_estimators).fit(X, y)
    assert_same_trees(steps, whole)


@pytest.mark.needs("min_impurity_decrease")
def test_warm_start_with_fewer_trees(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    before = response(estimator, X)
    with pytest.raises(ValueError, match="n_estimators=4 .*10 .*warm_start"):
        estimator.set_params(n_estimators=4).fit(X, y)
    np.testing.assert_array_equal(response(estimator, X), before)


@pytest.mark.needs("min_impurity_decrease")
def test_warm_start_with_as_many_trees_warns_and_keeps_them(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    before = response(estimator, X)
    with pytest.warns(UserWarning, match="without increasing n_estimators") as warned:
        estimator.fit(X, y)
    assert warned[0].filename == __file__  # not a line of the package, or of its decorators
    # Python drops warnings of code without a name.
    exec("estimator.fit(X, y)", {"estimator": estimator, "X": X, "y": y, "__name__": None})
    np.testing.assert_array_equal(response(estimator, X), before)


@pytest.mark.needs("min_impurity_decrease")
def test_warm_start_refuses_other_data(estimator):
    X, y = task(estimator)
    estimator.set_params(warm_start=True).fit(X, y)
    estimator.set_params(n_estimators=12)
    with pytest.raises(ValueError, match="X has 4 features.*expecting 6"):
        estimator.fit(X[:, :4], y)
    if is_classifier(estimator):
        with pytest.raises(ValueError, match="classes.*warm_start"):
            estimator.fit(X, y % 2)
    else:
        with pytest.raises(ValueError, match="2 outputs.*warm_start"):
            estimator.fit(X, np.column_stack([y, y]))
    assert len(estimator.forest_) == 10
    assert estimator.fit(X, y).score(X, y) > 0.8


@pytest.mark.needs("min_impurity_decrease")
def test_warm_start_on_more_data(estimator):
    X, y = task(estimator)
    first = clone(estimator).fit(X[:60], y[:60])
    estimator.set_params(warm_start=True).fit(X[:60], y[:60])
    estimator.set_params(n_estimators=20).fit(X, y)
    assert len(estimator.forest_) == 20
    np.testing.assert_array_equal(estimator.forest_[:10].response(X), first.forest_.response(X))
    assert estimator.score(X[60:], y[60:]) > first.score(X[60:], y[60:])


@pytest.mark.needs("min_impurity_decrease")
def test_warm_start_on_targets_of_another_scale(regressor):
    X, y = targets()
    regressor.set_params(warm_start=True).fit(X, y)
    regressor.set_params(n_estimators=40).fit(X, 1000 * y)
    # 30 trees of the second scale, 10 of the first.
    assert r2_score(750 * y, regressor.predict(X)) > 0.8


def test_without_warm_start_a_second_fit_starts_anew(estimator):
    X, y = task(estimator)
    other_X, other_y = task(estimator, seed=7)
    estimator.fit(other_X[:, :4], other_y).fit(X, y)
    assert_same_trees(estimator, clone(estimator).fit(X, y))


# ------------------------------------------------------------------------------ the same bits


@pytest.mark.every_class
@pytest.mark.parametrize("n_jobs", [2, pytest.param(4, marks=slow), pytest.param(-1, marks=slow)])
@pytest.mark.needs("min_impurity_decrease")
def test_same_bits_for_every_number_of_threads(estimator, n_jobs):
    X, y = task(estimator)
    estimator.set_params(oob_score=True, n_estimators=30)
    one = clone(estimator).set_params(n_jobs=1).fit(X, y)
    many = clone(estimator).set_params(n_jobs=n_jobs).fit(X, y)
    assert_same_trees(one, many)
    np.testing.assert_array_equal(response(one, X), response(many, X))
    assert one.oob_score_ == many.oob_score_


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_same_bits_for_every_backend(estimator, backend):
    X, y = task(estimator)
    many = np.tile(X, (60, 1))
    one = clone(estimator).fit(X, y)
    with parallel_config(backend, n_jobs=2):
        other = clone(estimator).fit(X, y)
        predicted = response(other, many)
    assert_same_trees(one, other)
    np.testing.assert_array_equal(predicted, response(one, many))


@pytest.mark.every_class
def test_same_bits_for_every_block_of_rows(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    whole = response(estimator, X)
    leaves = estimator.apply(X)
    for size in (1, 7):
        blocks = [X[start : start + size] for start in range(0, len(X), size)]
        found = np.concatenate([response(estimator, block) for block in blocks])
        np.testing.assert_array_equal(found, whole)
        found = np.concatenate([estimator.apply(block) for block in blocks])
        np.testing.assert_array_equal(found, leaves)


@pytest.mark.needs("projection")
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
def test_same_bits_for_every_block_of_rows_with_patches(estimator, shape):
    X, y = task(estimator)
    estimator.set_params(feature_shape=shape, max_patch=shape, wrap=True)
    for table in (X, np.rint(20 * X + 128).clip(0, 255).astype(np.uint8)):
        whole = response(estimator.fit(table, y), table)
        for size in (1, 7):
            blocks = [table[start : start + size] for start in range(0, len(X), size)]
            found = np.concatenate([response(estimator, block) for block in blocks])
            np.testing.assert_array_equal(found, whole)


def test_same_bits_for_many_rows_in_threads(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    many = np.random.default_rng(0).standard_normal((9001, 6))
    whole = response(estimator, many)
    leaves = estimator.apply(many)
    for n_jobs in (2, 4):
        estimator.set_params(n_jobs=n_jobs)
        np.testing.assert_array_equal(response(estimator, many), whole)
        np.testing.assert_array_equal(estimator.apply(many), leaves)
    np.testing.assert_array_equal(response(estimator, many[5000:5001]), whole[5000:5001])


def test_rows_that_are_not_finite_are_refused_in_threads():
    X = np.random.default_rng(0).standard_normal((9001, 6))
    model = ManifoldForestRegressor(2, max_depth=2, random_state=0).fit(X, X[:, 0])
    whole = model.predict(X)
    with sklearn.config_context(assume_finite=True):
        np.testing.assert_array_equal(model.predict(X), whole)
    X[8000, 3] = np.inf
    for n_jobs in (1, 2):
        with pytest.raises(ValueError, match="X contains infinity.*in column 3"):
            model.set_params(n_jobs=n_jobs).predict(X)
    with sklearn.config_context(assume_finite=True):
        np.testing.assert_array_equal(model.predict(X)[:8000], whole[:8000])


def test_an_error_in_a_thread_is_raised_once_all_have_ended():
    done, n_threads = [], threading.active_count()

    def invert(number):
        done.append(number)
        return 1 / number

    assert _threads.in_threads(invert, [1, 2, 4], 2) == [1, 0.5, 0.25]
    with pytest.raises(ZeroDivisionError):
        _threads.in_threads(invert, [0] * 1000, 3)
    assert len(done) < 10
    assert threading.active_count() == n_threads


@pytest.mark.parametrize("layout", ["F", "strided", "reversed", "read-only", "big-endian"])
def test_same_bits_for_every_layout(estimator, layout):
    X, y = task(estimator)
    other = {
        "F": lambda: np.asfortranarray(X),
        "strided": lambda: np.repeat(X, 2, axis=1)[:, ::2],
        "reversed": lambda: X[::-1].copy()[::-1],
        "read-only": lambda: X.copy(),
        "big-endian": lambda: X.astype(">f8"),
    }[layout]()
    other.flags.writeable = layout != "read-only"
    one, two = clone(estimator).fit(X, y), clone(estimator).fit(other, y)
    assert_same_trees(one, two)
    np.testing.assert_array_equal(response(one, X), response(two, other))


@pytest.mark.every_class
def test_input_is_left_alone(estimator):
    X, y = task(estimator)
    X, weight = X.astype(np.float32), np.ones(len(X))
    before = X.copy(), y.copy(), weight.copy()
    estimator.fit(X, y, sample_weight=weight)
    kept = response(estimator, X)
    for array, old in zip((X, y, weight), before):
        np.testing.assert_array_equal(array, old)
    X[:] = 0  # the fitted model does not read the training data
    np.testing.assert_array_equal(response(estimator, before[0]), kept)


# --------------------------------------------------------------------------------- predictions


@pytest.mark.needs("min_impurity_decrease")
def test_probabilities(classifier):
    X, y = classes()
    classifier.set_params(min_samples_leaf=7).fit(X, y)
    new = np.random.default_rng(0).standard_normal((50, 6)) * 2
    proba = classifier.predict_proba(new)
    assert proba.dtype == np.float64 and proba.shape == (50, 3)
    assert (proba >= 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(classifier.predict(new), proba.argmax(axis=1))
    with np.errstate(divide="ignore"):
        np.testing.assert_array_equal(classifier.predict_log_proba(new), np.log(proba))
    assert classifier.score(X, y) == accuracy_score(y, classifier.predict(X))


@pytest.mark.needs("min_impurity_decrease")
def test_log_of_a_zero_probability_is_silent(classifier):
    X, y = classes()
    classifier.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isneginf(classifier.predict_log_proba(X)).any()


@pytest.mark.needs("min_impurity_decrease")
def test_probabilities_of_a_single_tree_are_shares_of_the_training_rows(classifier):
    X, y = classes()
    classifier.set_params(n_estimators=1, bootstrap=False, max_depth=2).fit(X, y)
    leaf = classifier.apply(X)[:, 0]
    assert len(np.unique(leaf)) > 2
    expected = [np.bincount(y[leaf == one], minlength=3) / (leaf == one).sum() for one in leaf]
    np.testing.assert_allclose(classifier.predict_proba(X), expected, rtol=1e-6)


@pytest.mark.needs("min_impurity_decrease")
def test_predictions_of_a_single_tree_are_means_of_the_training_rows(regressor):
    X, y = targets(n_targets=2)
    weight = np.random.default_rng(0).integers(1, 5, len(X)) * 1.0
    regressor.set_params(n_estimators=1, bootstrap=False, max_depth=2)
    regressor.fit(X, y, sample_weight=weight)
    leaf = regressor.apply(X)[:, 0]
    assert len(np.unique(leaf)) > 2
    masks = [leaf == one for one in leaf]
    expected = [np.average(y[mask], axis=0, weights=weight[mask]) for mask in masks]
    np.testing.assert_allclose(regressor.predict(X), expected, rtol=1e-5)


@pytest.mark.needs("min_impurity_decrease")
def test_apply_and_decision_path_agree_with_the_trees(estimator):
    X, y = task(estimator)
    estimator.set_params(n_estimators=5).fit(X, y)
    forest = estimator.forest_
    leaves = estimator.apply(X)
    assert leaves.shape == (N, 5) and leaves.dtype == np.int32
    path, starts = estimator.decision_path(X)
    assert path.shape == (N, forest.n_nodes)
    assert starts.tolist() == forest.tree_start.tolist()
    assert set(path.data.tolist()) == {1}
    first_split = (forest.tree_start - np.arange(6)) // 2
    table = scaled(X, forest.offset, forest.scale) if len(forest.scale) else np.float32(X)
    z = np.asarray((forest.directions() @ table.T).T)
    for i in range(0, N, 10):
        for tree in range(5):
            node, passed = 0, [0]
            while (child := forest.child[starts[tree] + node]) > 0:
                split = first_split[tree] + (child - 1) // 2
                node = child + (z[i, split] > forest.threshold[split])
                passed.append(node)
            assert leaves[i, tree] == node
            row = path[i].toarray().ravel()[starts[tree] : starts[tree + 1]]
            assert np.flatnonzero(row).tolist() == sorted(passed)


@pytest.mark.every_class
@pytest.mark.needs("min_impurity_decrease")
def test_response_is_the_mean_of_the_trees(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    by_tree = np.mean([tree.response(X) for tree in estimator.forest_], axis=0)
    found = response(estimator, X).reshape(N, -1)
    np.testing.assert_allclose(found, by_tree, rtol=1e-6, atol=1e-6)


# ----------------------------------------------------------------------------------- regression


@pytest.mark.every_class
def test_several_outputs(regressor):
    X, y = targets(300, n_targets=3)
    y *= [1, 10, 100]
    regressor.set_params(n_estimators=30).fit(X[:200], y[:200])
    found = regressor.predict(X[200:])
    assert found.shape == (100, 3)
    assert regressor.n_outputs_ == 3
    assert (r2_score(y[200:], found, multioutput="raw_values") > 0.4).all()


@pytest.mark.needs("min_impurity_decrease")
def test_shape_of_the_prediction_follows_the_target(regressor):
    X, y = targets()
    flat = clone(regressor).fit(X, y).predict(X)
    column = clone(regressor).fit(X, y[:, None]).predict(X)
    assert flat.shape == (N,) and column.shape == (N, 1)
    np.testing.assert_array_equal(flat, column[:, 0])
    twice = clone(regressor).fit(X, np.column_stack([y, y])).predict(X)
    np.testing.assert_array_equal(twice[:, 0], twice[:, 1])


def test_integer_targets(regressor):
    X, y = targets()
    y = np.rint(y).astype(int)
    one, other = clone(regressor).fit(X, y), clone(regressor).fit(X, y.astype(float))
    assert one.predict(X).dtype == np.float64
    np.testing.assert_array_equal(one.predict(X), other.predict(X))


@pytest.mark.needs("min_impurity_decrease")
def test_target_far_from_zero(regressor):
    X, y = targets(300)
    y = y / np.abs(y).max()
    regressor.set_params(bootstrap=False, max_features=None, n_estimators=5)
    far = clone(regressor).fit(X[:200], y[:200] + 1e6).predict(X[200:])
    assert r2_score(y[200:] + 1e6, far) > 0.3
    fitted = clone(regressor).fit(X, y + 1e6).predict(X)
    assert r2_score(y + 1e6, fitted) > 0.99
    if not {"init", "growth"} & set(regressor.get_params()):
        np.testing.assert_allclose(fitted - 1e6, y, atol=1e-6)  # pure leaves keep every digit


# Where rows are drawn one by one in training, their order, which the target decides, matters.
@pytest.mark.needs("projection")
@pytest.mark.parametrize("power", [-90, -40, 40, 110])
def test_the_scale_of_the_target_does_not_matter(regressor, power):
    X, y = targets()
    # Another order of rows gives other sums in the last bits; nodes of many rows have no ties.
    regressor.set_params(bootstrap=False, min_samples_leaf=15)
    plain = clone(regressor).fit(X, y)
    scaled = clone(regressor).fit(X, np.ldexp(y, power))
    np.testing.assert_allclose(np.ldexp(scaled.predict(X), -power), plain.predict(X), rtol=1e-4)
    np.testing.assert_allclose(scaled.feature_importances_, plain.feature_importances_, rtol=1e-4)


@pytest.mark.parametrize("power", [-1060, -300, 300, 900])
def test_targets_beyond_the_range_are_refused_or_learned(regressor, power):
    X, y = targets()
    y = np.ldexp(y, power)
    try:
        regressor.fit(X, y)
    except ValueError as error:
        assert re.search(r"\by\b.*rescale y", str(error))
    else:
        found, wanted = np.ldexp(regressor.predict(X), -power), np.ldexp(y, -power)
        assert r2_score(wanted, found) > 0.8


@pytest.mark.every_class
@pytest.mark.needs("min_impurity_decrease")
def test_constant_target(regressor):
    X, _ = targets()
    regressor.fit(X, np.full(N, 1 / 3))
    np.testing.assert_array_equal(regressor.predict(X), np.full(N, 1 / 3))
    assert regressor.forest_.n_nodes == 10
    np.testing.assert_array_equal(regressor.feature_importances_, np.zeros(6))


@pytest.mark.needs("min_impurity_decrease")
def test_predictions_stay_within_the_targets(regressor):
    X, y = targets()
    regressor.fit(X, y)
    new = np.random.default_rng(0).standard_normal((500, 6)) * 10
    found = regressor.predict(new)
    slack = 1e-6 * np.ptp(y)
    assert y.min() - slack <= found.min() and found.max() <= y.max() + slack


# --------------------------------------------------------------------------------- importances


@pytest.mark.needs("projection")
@pytest.mark.parametrize("kind", ["impurity", "count"])
def test_importances(estimator, kind):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 12))
    signal = X[:, 3] + X[:, 7]
    y = signal > 0 if is_classifier(estimator) else signal
    estimator.set_params(importance_type=kind, feature_shape=(3, 4)).fit(X, y)
    found = estimator.feature_importances_
    assert found.shape == (12,) and found.dtype == np.float64
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1, rel=1e-12)
    np.testing.assert_array_equal(found, estimator.forest_.feature_importances(kind))
    assert found.reshape(estimator.feature_shape).shape == (3, 4)
    if kind == "impurity":
        estimator.set_params(projection="axis").fit(X, y)
        assert set(estimator.feature_importances_.argsort()[-2:]) == {3, 7}


@pytest.mark.needs("projection")
def test_importances_ignore_the_number_of_outputs(regressor):
    X, y = targets()
    one = clone(regressor).set_params(bootstrap=False).fit(X, y)
    two = clone(regressor).set_params(bootstrap=False).fit(X, np.column_stack([y, y]))
    # Another order of rows gives other sums in the last bits, so a few ties fall elsewhere.
    np.testing.assert_allclose(one.feature_importances_, two.feature_importances_, rtol=0.02)


def test_an_unfitted_forest_has_no_importances(estimator):
    assert not hasattr(estimator, "feature_importances_")


# ---------------------------------------------------------------------------------- interrupts


class Interrupt:
    """Sends an interrupt, as Ctrl-C does, `after` seconds into the block; expects it to arrive.

    `delay` is the processor time that passes until it arrives.

    Python drops an interrupt that arrives in a finaliser or in a callback from C; another one
    follows every 20 seconds.
    """

    def __init__(self, after):
        self.after = after
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.fire)
        self.fired = None

    def fire(self):
        wait = self.after
        while not self.ended.wait(wait):
            self.fired = time.process_time()
            _thread.interrupt_main()
            wait = 20

    def __enter__(self):
        # No object of an earlier test shall be finalised in the block.
        gc.collect()
        gc.disable()
        self.thread.start()
        return self

    def __exit__(self, kind, *_):
        arrived = time.process_time()
        self.ended.set()
        self.thread.join()
        gc.enable()
        assert kind is KeyboardInterrupt, f"fit ended with {kind}, not with the interrupt"
        self.delay = arrived - self.fired
        return True


def long_fit(estimator, shape):
    """An estimator and data that keep a processor busy for a long time."""
    rng = np.random.default_rng(0)
    if shape == "many trees":
        X = rng.standard_normal((1000, 6))
        estimator.set_params(n_estimators=20000)
    else:
        X = rng.standard_normal((60000, 6)).astype(np.float32)
        slow = {"splitter": "exact", "max_features": 300, "n_epochs": 10**6}
        known = {name: value for name, value in slow.items() if name in estimator.get_params()}
        estimator.set_params(n_estimators=2, bootstrap=False, **known)
    noise = rng.standard_normal(len(X))
    return estimator, X, noise > 0 if is_classifier(estimator) else noise


def comes_to_rest(seconds):
    """Do all threads of this process stop computing within some seconds?

    Their number would not tell: an interrupt that arrives while Python makes a pool of threads
    leaves some that wait for work forever.
    """
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        busy = time.process_time()
        time.sleep(0.1)
        if time.process_time() - busy < 0.01:
            return True
    return False


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("shape", ["many trees", "long trees"])
@pytest.mark.needs("min_impurity_decrease")
def test_an_interrupted_fit_ends_soon_and_changes_nothing(estimator, shape, n_jobs):
    estimator, X, y = long_fit(estimator, shape)
    estimator.set_params(n_jobs=n_jobs)
    before = vars(estimator).copy()
    with Interrupt(0.4) as interrupt:
        estimator.fit(X, y)
    assert interrupt.delay < 3
    assert vars(estimator) == before
    assert comes_to_rest(5), "threads continue to grow trees"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("n_jobs", [pytest.param(1, marks=slow), 2])
@pytest.mark.needs("min_impurity_decrease")
def test_an_interrupted_fit_leaves_the_fitted_model(estimator, n_jobs):
    X, y = task(estimator)
    estimator.fit(X, y)
    expected = response(estimator, X)
    estimator, long_X, long_y = long_fit(estimator, "many trees")
    estimator.set_params(n_jobs=n_jobs)
    before = vars(estimator).copy()
    with Interrupt(0.3):
        estimator.fit(long_X[:, :5], long_y)
    assert vars(estimator) == before
    np.testing.assert_array_equal(response(estimator, X), expected)
    estimator.set_params(warm_start=True)
    with Interrupt(0.3):
        estimator.fit(X, y)
    assert vars(estimator) == {**before, "warm_start": True}
    np.testing.assert_array_equal(response(estimator, X), expected)


# ---------------------------------------------------------------------------- size, global state


@pytest.mark.needs("projection")
def test_a_pickle_is_small(classifier):
    X, y = load_digits(return_X_y=True)
    model = clone(classifier).fit(X, y)
    reference = RandomForestClassifier(10, random_state=0).fit(X, y)
    size = len(pickle.dumps(model))
    assert size < len(pickle.dumps(reference)) / 4
    model.predict(X)
    assert len(pickle.dumps(model)) == size  # nothing is cached along


@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_pure_leaves_take_no_memory_for_the_other_classes(classifier):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 3))
    few = len(pickle.dumps(clone(classifier).fit(X, np.arange(1000) % 500)))
    many = len(pickle.dumps(clone(classifier).fit(X, np.arange(1000))))
    assert many < 3 * few


@pytest.mark.needs("min_impurity_decrease")
def test_no_global_state(estimator):
    X, y = task(estimator)
    other_X, other_y = task(estimator, 80, seed=5)
    a = clone(estimator).fit(X, y)
    b = clone(estimator).set_params(random_state=1).fit(other_X[:, :4], other_y)
    one = clone(a).set_params(warm_start=True)
    two = clone(b).set_params(warm_start=True)
    for n_estimators in (3, 7, 10):
        one.set_params(n_estimators=n_estimators).fit(X, y)
        two.set_params(n_estimators=n_estimators).fit(other_X[:, :4], other_y)
        response(one, X), response(two, other_X[:, :4])
    assert_same_trees(one, a)
    assert_same_trees(two, b)


@pytest.mark.every_class
def test_random_numbers_of_the_user_are_left_alone(estimator):
    X, y = task(estimator)
    np.random.seed(0)  # noqa: NPY002
    expected = np.random.random(5)  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    estimator.fit(X, y)
    response(estimator, X)
    np.testing.assert_array_equal(np.random.random(5), expected)  # noqa: NPY002


def in_threads(work, n):
    threads = [threading.Thread(target=work, args=(k,)) for k in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_estimators_in_threads_of_the_user(estimator):
    X, y = task(estimator, 400)
    alone = [clone(estimator).set_params(random_state=s).fit(X, y) for s in range(4)]
    models = [clone(estimator).set_params(random_state=s) for s in range(4)]
    in_threads(lambda k: models[k].fit(X, y), 4)
    for model, other in zip(models, alone):
        assert_same_trees(model, other)


def test_one_model_predicts_in_many_threads(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    many = np.tile(X, (20, 1))
    expected = response(estimator, many)
    found = {}
    in_threads(lambda k: found.update({k: response(estimator, many)}), 4)
    for k in range(4):
        np.testing.assert_array_equal(found[k], expected)


def test_floating_point_mode_is_left_alone(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    smallest = np.float32(1e-45)
    assert smallest > 0 and smallest / np.float32(1) == smallest
    assert np.float64(sys.float_info.min) / 2 > 0  # no flush to zero


# ---------------------------------------------------------------------------------- predictors


@pytest.mark.every_class
def test_a_predictor_returns_what_the_estimator_returns(estimator):
    X, y = task(estimator)
    X[::9, 2] = np.nan
    X = X.astype(np.float32)
    estimator.fit(X, y)
    expected, labels = response(estimator, X), estimator.predict(X)
    predictor = estimator.predictor()
    assert predictor.n_features_in_ == 6
    other = pickle.loads(pickle.dumps(predictor))
    for rows in (slice(0, 1), slice(3, 40), slice(None)):
        np.testing.assert_array_equal(predictor(X[rows]), expected[rows])
        np.testing.assert_array_equal(other(X[rows]), expected[rows])
        np.testing.assert_array_equal(response(estimator, X[rows]), expected[rows])
    for i in (0, 1, 9):
        np.testing.assert_array_equal(predictor(X[i]), expected[i])
        np.testing.assert_array_equal(predictor.predict(X[i]), labels[i])
        np.testing.assert_array_equal(response(estimator, X[i : i + 1])[0], expected[i])
    np.testing.assert_array_equal(predictor.predict(X), labels)
    assert is_classifier(estimator) == hasattr(predictor, "predict_proba")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(X[:50], y[:50])
    np.testing.assert_array_equal(predictor(X), expected)  # the model that it was made of


def test_a_predictor_serves_several_threads(estimator):
    X, y = task(estimator)
    X = X.astype(np.float32)
    predictor = estimator.fit(X, y).predictor()
    expected, different = predictor(X), []

    def serve(start):
        for i in range(start, N):
            if (predictor(X[i]) != expected[i]).any() or (predictor(X) != expected).any():
                different.append(i)

    threads = [threading.Thread(target=serve, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not different


def test_a_predictor_says_what_it_takes(estimator):
    X, y = task(estimator)
    with pytest.raises(NotFittedError):
        estimator.predictor()
    predictor = estimator.fit(X, y).predictor()
    with pytest.raises(TypeError, match="array of float64; a predictor takes .* float32"):
        predictor(X)
    X = predictor.encode(X)
    assert X.dtype == np.float32
    with pytest.raises(TypeError, match="list"):
        predictor(X.tolist())
    for wrong in (X[0, 0], X[:0], X[:, :5], X[0, :5], X[None]):
        with pytest.raises((TypeError, ValueError), match="shape|float32"):
            predictor(wrong)
    for strided in (X[:, ::-1], X.T.copy().T):
        with pytest.raises(ValueError, match="C-contiguous"):
            predictor(strided)
    assert predictor(X).shape[0] == N
