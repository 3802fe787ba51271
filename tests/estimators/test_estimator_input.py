"""What every estimator takes: tools of scikit-learn, data of many kinds, labels, weights."""

import inspect
import re

import numpy as np
import pytest
import sklearn
from makers import N_ROWS as N
from makers import assert_same_trees, changed, classes, response, task
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_blobs
from sklearn.exceptions import DataConversionWarning, UnsetMetadataPassedError
from sklearn.inspection import permutation_importance
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

from skforest import (
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
    RandomHingeForestClassifier,
    refine,
)
from skforest.table.matrix import BYTE_FEATURES

# ---------------------------------------------------------------------------- scikit-learn's tools


@pytest.mark.needs("min_weight_fraction_leaf")
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


@pytest.mark.needs("min_weight_fraction_leaf")
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


@pytest.mark.needs("min_weight_fraction_leaf")
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


@pytest.mark.needs("min_weight_fraction_leaf")
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


# -------------------------------------------------------------------------------------- parameters


@pytest.mark.every_class
def test_every_parameter_is_in_the_docstring_with_its_default(estimator):
    text = inspect.getdoc(type(estimator))
    documented = dict(re.findall(r"^(\w+) : .*default=(.+)$", text, flags=re.MULTILINE))
    documented = {name: value.strip("\"'") for name, value in documented.items()}
    own = inspect.signature(type(estimator).__init__).parameters
    wanted = {name: str(p.default) for name, p in own.items() if name != "self"}
    assert documented == wanted


# ------------------------------------------------------------------------------------------- input


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


@pytest.mark.thin(2)
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


def test_bytes_of_many_columns_are_floats():
    """Sums of more bytes are not exact in float32."""
    rng = np.random.default_rng(0)
    X = rng.integers(250, 256, (20, BYTE_FEATURES + 10)).astype(np.uint8)
    y = np.arange(20) % 2
    model = ManifoldForestClassifier(3, bootstrap=False, random_state=0)
    model.fit(X, y)
    np.testing.assert_array_equal(model.forest_.apply(X), model.apply(X))
    np.testing.assert_array_equal(model.predict_proba(X)[:2], model.predict_proba(X[:2]))
    assert model.forest_.map_features(X).dtype == np.float32
    assert_same_trees(model, clone(model).fit(X.astype(np.float64), y))
    assert model.score(X, y) == 1


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
    own = {"bootstrap": False, "max_features": None, "projection": "axis"}
    changed(estimator, splitter="exact", **own)
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
@pytest.mark.needs("min_weight_fraction_leaf")
def test_fitted_attributes(estimator):
    X, y = task(estimator)
    assert estimator.fit(X, y) is estimator
    assert estimator.n_features_in_ == 6
    assert estimator.n_outputs_ == 1
    assert len(estimator.forest_) == 10
    if is_classifier(estimator):
        assert estimator.classes_.tolist() == [0, 1, 2]
        assert estimator.n_classes_ == 3


# ------------------------------------------------------------------------------------------ labels


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


def series(library, values, is_category=False):
    """A series of polars, of categories or not, or an array of pyarrow, in one or two chunks."""
    module = pytest.importorskip(library.partition(" ")[0])
    if library == "polars":
        return module.Series(values, dtype=module.Categorical if is_category else None)
    array = module.array(values)
    array = array.dictionary_encode() if is_category else array
    return array if library == "pyarrow" else module.chunked_array([array[:9], array[9:]])


LIBRARIES = ["polars", "pyarrow", "pyarrow chunks"]


@pytest.mark.thin(2)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("labels", "is_category"),
    [([False, True], False), ([3, 5], False), (["a", "b"], False), (["a", "b"], True)],
    ids=["bool", "int", "str", "category"],
)
def test_labels_of_polars_and_pyarrow(labels, is_category, library):
    X, codes = classes(n_classes=2)
    y = series(library, [labels[code] for code in codes], is_category)
    plain = ManifoldForestClassifier(3, random_state=0).fit(X, np.array(labels)[codes])
    model = ManifoldForestClassifier(3, random_state=0).fit(X, y)
    assert model.classes_.tolist() == labels
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    assert model.score(X, y) == plain.score(X, np.array(labels)[codes])
    assert refine(model, X, y).classes_.tolist() == labels
    hinge = RandomHingeForestClassifier(2, n_bags=1, random_state=0)
    assert hinge.partial_fit(X, y, classes=labels).partial_fit(X, y).classes_.tolist() == labels
    boosting = ObliqueBoostingClassifier(3, n_bags=1, random_state=0)
    assert boosting.fit(X, y, X_val=X, y_val=y).classes_.tolist() == labels


def test_labels_in_a_frame_of_polars():
    pl = pytest.importorskip("polars")
    X, y = classes(n_classes=2)
    with pytest.warns(DataConversionWarning, match="column-vector y"):
        model = ManifoldForestClassifier(3).fit(X, pl.DataFrame({"y": y}))
    assert model.classes_.tolist() == [0, 1]
    enum = pl.Series(np.array(["u", "v"])[y], dtype=pl.Enum(["v", "u"]))
    assert ManifoldForestClassifier(3).fit(X, enum).classes_.tolist() == ["u", "v"]


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("label", [True, 3, "a"])
def test_missing_labels_of_polars_and_pyarrow(label, library):
    y = series(library, [label] * 19 + [None])
    with pytest.raises(ValueError, match="y contains NaN or None: label 19 is"):
        ManifoldForestClassifier(3).fit(np.zeros((20, 2)), y)


# ----------------------------------------------------------------------------------- class weights


def imbalanced(seed=0, times=1):
    """190 rows of class 0 and 30 of class 1, which overlap."""
    sizes = [190 * times, 30 * times]
    return make_blobs(sizes, 2, centers=[[0, 0], [1.5, 0]], random_state=seed)


def recall(model, X, y, label):
    return (model.predict(X[y == label]) == label).mean()


@pytest.mark.parametrize("weight", ["balanced", "balanced_subsample", {0: 1, 1: 8}], ids=str)
@pytest.mark.needs("min_weight_fraction_leaf")
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
@pytest.mark.needs("min_weight_fraction_leaf")
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


@pytest.mark.needs("min_weight_fraction_leaf")
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


# ---------------------------------------------------------------------------------- sample weights


@pytest.mark.thin(2)
@pytest.mark.every_class
@pytest.mark.parametrize("params", [{}, {"bootstrap": False}, {"max_samples": 0.5}], ids=str)
@pytest.mark.needs("min_weight_fraction_leaf")
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


@pytest.mark.thin(2)
@pytest.mark.every_class
@pytest.mark.needs("min_weight_fraction_leaf")
def test_the_order_of_rows_does_not_matter(estimator):
    X, y = task(estimator)
    X, y = np.concatenate([X, X[:40]]), np.concatenate([y, y[:40]])
    order = np.random.default_rng(0).permutation(len(X))
    weight = np.random.default_rng(1).integers(1, 4, len(X)) * 1.0
    estimator.set_params(oob_score=True, n_estimators=25)
    one = clone(estimator).fit(X, y, weight)
    other = clone(estimator).fit(X[order], y[order], weight[order])
    assert_same_trees(one, other)
    np.testing.assert_array_equal(response(one, X), response(other, X))
    assert one.oob_score_ == pytest.approx(other.oob_score_, rel=1e-12)
