"""Every input has a defined outcome: a result, or an error that says what is wrong.

An error names the argument, the value and what is allowed, and leaves the estimator as it was.
"""

from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from makers import changed, response
from refusals import N, refuses, task
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags

import skforest

# Bad input gives a result or an error, no warning of NumPy.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

# --------------------------------------------------------------------------- values of X and y


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, object])
def test_infinite_values_in_X(estimator, value, dtype):
    X, y = task(estimator)
    X = X.astype(dtype)
    X[3, 2] = value
    refuses(estimator, X, y, r"\bX\b", "inf")
    good, y = task(estimator)
    estimator.fit(good, y)
    for method in ("predict", "apply", "decision_path"):
        for rows in (X, X[:5]):  # few rows are validated in a shorter way
            with pytest.raises(ValueError, match=r"\bX\b.*inf"):
                getattr(estimator, method)(rows)


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_missing_values_in_a_data_frame(estimator):
    pd = pytest.importorskip("pandas")
    X, y = task(estimator)
    frame = pd.DataFrame(X).astype("Float64")
    frame.iloc[3, 2] = pd.NA
    X = X.astype(float)
    X[3, 2] = np.nan
    expected = response(clone(estimator).fit(X, y), X)
    np.testing.assert_array_equal(response(estimator.fit(frame, y), frame), expected)


@pytest.mark.needs("projection")
def test_numbers_beyond_float32_in_X(estimator):
    X, y = task(estimator)
    X[3, 2] = 1e39
    refuses(estimator, X, y, r"\bX\b", "too large", "float32")


@pytest.mark.parametrize("value, word", [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
def test_nan_and_inf_in_y(estimator, value, word):
    X, y = task(estimator)
    y = y.astype(float)
    y[3] = value
    refuses(estimator, X, y, r"\by\b", word)
    if not is_classifier(estimator):
        refuses(estimator, X, np.column_stack([y, y]), r"\by\b", word)


@pytest.mark.thin(2)
@pytest.mark.needs("projection")
@pytest.mark.parametrize("scale", [3e38, -3.4e38, 1e-38, 1e-45])
@pytest.mark.parametrize("projection", ["axis", "sparse", "sum", "edge", "difference", "mix"])
@pytest.mark.parametrize("splitter", ["hist", "exact"])
def test_largest_and_smallest_floats(estimator, scale, projection, splitter):
    """Sums of features overflow; the result is finite, and training ends."""
    rng = np.random.default_rng(0)
    X = np.sign(rng.standard_normal((N, 12))) * np.float32(scale)
    X[::7] /= 2
    X[::11] = 0
    X = X.astype(np.float32)
    y = (X[:, 0] > 0) * 1
    if projection in ("axis", "sparse"):
        params = {"projection": projection}
    else:
        params = {"projection": "patch", "contrast": projection}
    changed(estimator, splitter=splitter, feature_shape=(3, 4), bootstrap=False, **params)
    estimator.fit(X, y)
    found = response(estimator, X)
    assert np.isfinite(found).all()
    assert np.isfinite(estimator.feature_importances_).all()
    assert found.min() >= -1e-6 and found.max() <= 1 + 1e-6
    for rows in (slice(0, 1), slice(5, 12)):
        np.testing.assert_array_equal(response(estimator, X[rows]), found[rows])
    if projection == "axis":
        assert estimator.score(X, y) == pytest.approx(1)


@pytest.mark.needs("projection")
def test_the_whole_range_of_float32_at_once(estimator):
    rng = np.random.default_rng(0)
    X = np.sign(rng.standard_normal((200, 6))) * 10 ** rng.uniform(-44, 38, (200, 6))
    y = (X[:, 0] > 0) * 1
    estimator.set_params(projection="axis", bootstrap=False, max_features=None).fit(X, y)
    assert estimator.score(X, y) == pytest.approx(1)
    exact = changed(clone(estimator), splitter="exact").fit(X, y)
    assert (exact.forest_.n_leaves == 2).all()


@pytest.mark.needs("projection")
def test_differences_that_float32_cannot_hold_are_none(estimator):
    X = (1 + 1e-12 * np.arange(40.0))[:, None]
    y = np.arange(40) % 2
    estimator.set_params(bootstrap=False).fit(X, y)
    assert (estimator.forest_.n_leaves == 1).all()
    np.testing.assert_allclose(response(estimator, X), 0.5, rtol=1e-6)


def test_strings_in_X(estimator):
    X, y = task(estimator)
    good = clone(estimator).fit(X, y)
    texts = X.astype(str)
    refuses(estimator, texts, y, "strings", "categorical_features", r"\bX\b")
    for kind in (str, object):
        with pytest.raises(ValueError, match="strings"):
            good.predict(texts.astype(kind))
    if estimator.get_params().get("feature_shape") is None:  # objects that are strings are levels
        with pytest.warns(UserWarning, match="numbers as text"):
            model = clone(estimator).fit(texts.astype(object), y)
        assert model.is_categorical_.all()
    mixed = X.astype(object)
    mixed[3, 2] = "abc"
    refuses(estimator, mixed, y, "abc", "column 2 of X")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(mixed, columns=[f"c{j}" for j in range(X.shape[1])])
    refuses(estimator, frame, y, "column 'c2'")
    refuses(estimator, "abc", y)


def test_objects_in_X(estimator):
    X, y = task(estimator)
    numbers = X.astype(object)
    one, other = clone(estimator).fit(X, y), clone(estimator).fit(numbers, y)
    np.testing.assert_array_equal(response(one, X), response(other, numbers))
    for thing in ({"a": 1}, [1, 2]):
        things = X.astype(object)
        things[3, 2] = thing
        refuses(estimator, things, y)


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "coo_matrix", "csr_array"])
def test_sparse_matrices(estimator, kind):
    X, y = task(estimator)
    X_sparse = getattr(sparse, kind)(X)
    if get_tags(estimator).input_tags.sparse:
        pytest.skip("taken: see test_sparse.py")
    refuses(estimator, X_sparse, y, "(?i)sparse", r"\bX\b", "dense")
    estimator.fit(X, y)
    with pytest.raises(TypeError, match="(?i)sparse.*dense"):
        estimator.predict(X_sparse)


def test_complex_numbers(estimator):
    X, y = task(estimator)
    refuses(estimator, X + 1j, y, "(?i)complex")
    refuses(estimator, X, y + 1j, "(?i)complex|label type")
    estimator.fit(X, y)
    with pytest.raises(ValueError, match="(?i)complex"):
        estimator.predict(X + 1j)


@pytest.mark.parametrize("X", [None, 5, np.float64(1), [], [[]], {}], ids=repr)
def test_objects_that_are_no_table(estimator, X):
    _, y = task(estimator)
    refuses(estimator, X, y)


# ------------------------------------------------------------------------------ shapes of X and y


def test_empty_arrays(estimator):
    X, y = task(estimator)
    refuses(estimator, X[:0], y[:0], "0 sample", "minimum of 1")
    refuses(estimator, X[:, :0], y, "0 feature", "minimum of 1")
    estimator.fit(X, y)
    for method in ("predict", "apply", "decision_path"):
        with pytest.raises(ValueError, match="0 sample"):
            getattr(estimator, method)(X[:0])


def test_wrong_number_of_axes(estimator):
    X, y = task(estimator)
    refuses(estimator, X[:, 0], y, "(?i)expected 2D array")
    refuses(estimator, X.reshape(N, 2, 3), y, "dim 3|feature_shape")
    estimator.fit(X, y)
    with pytest.raises(ValueError, match="(?i)expected 2D array"):
        estimator.predict(X[0])
    with pytest.raises(ValueError, match="dim 3|feature_shape"):
        estimator.predict(X.reshape(N, 2, 3))


def test_wrong_number_of_features_at_predict(estimator):
    X, y = task(estimator)
    estimator.fit(X, y)
    methods = ["predict", "apply", "decision_path"]
    methods += ["predict_proba", "predict_log_proba"] if is_classifier(estimator) else []
    for method in methods:
        for wrong in (X[:, :5], X[:3, :5], np.hstack([X, X])):
            with pytest.raises(ValueError, match=rf"X has {wrong.shape[1]} features.* 6 features"):
                getattr(estimator, method)(wrong)
    with pytest.raises(ValueError, match="X has 5 features.* 6 features"):
        estimator.score(X[:, :5], y)


@pytest.mark.needs("projection")
def test_rows_of_another_shape_than_feature_shape(estimator):
    X, y = task(estimator)
    estimator.set_params(feature_shape=(2, 3))
    refuses(estimator, X.reshape(N, 3, 2), y, r"X .*\(3, 2\)", r"feature_shape.*\(2, 3\)")
    estimator.fit(X, y)
    with pytest.raises(ValueError, match=r"X .*\(3, 2\).*feature_shape.*\(2, 3\)"):
        estimator.predict(X.reshape(N, 3, 2))


@pytest.mark.every_class
def test_lengths_that_differ(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y[:-1], "inconsistent numbers of samples", "60", "59")
    refuses(estimator, X, None, r"\by\b", "None")


def test_targets_with_three_axes(estimator):
    X, y = task(estimator)
    refuses(estimator, X, np.zeros((N, 2, 2)), r"\by\b|dim 3")


def test_real_numbers_as_labels(classifier):
    X, y = task(classifier)
    refuses(classifier, X, y + 0.5 * X[:, 0], "(?i)label type.*continuous")


@pytest.mark.parametrize("labels", [["a", 1], [1, "a"], ["a", None], [None, 1.5]], ids=str)
def test_labels_of_mixed_types(classifier, labels):
    X, _ = task(classifier)
    y = np.array(labels * (N // 2), dtype=object)
    refuses(classifier, X, y, r"\by\b|(?i:label type)")


@pytest.mark.parametrize("word", ["abc", None, {}], ids=repr)
def test_targets_that_are_no_numbers(regressor, word):
    X, y = task(regressor)
    y = y.astype(object)
    y[3] = word
    refuses(regressor, X, y, r"\by\b")


@pytest.mark.every_class
@pytest.mark.parametrize("signs", [[1], [1, -1], [1, 1, -1]], ids=str)
def test_targets_too_large_for_a_mean(regressor, signs):
    X, _ = task(regressor)
    refuses(regressor, X, np.resize(signs, N) * 1.7e308, r"\by\b", "large|rescale")


# --------------------------------------------------------------------------------- before fit


@pytest.mark.every_class
def test_before_fit(estimator):
    X, _ = task(estimator)
    methods = ["predict", "apply", "decision_path"]
    methods += ["predict_proba", "predict_log_proba"] if is_classifier(estimator) else []
    for method in methods:
        with pytest.raises(NotFittedError, match=rf"{type(estimator).__name__}.*not fitted"):
            getattr(estimator, method)(X)
    with pytest.raises(NotFittedError, match="not fitted"):
        estimator.feature_importances_  # noqa: B018


@pytest.mark.every_class
def test_a_fit_that_failed_is_no_fit(estimator):
    X, y = task(estimator)
    X[0, 0] = np.inf
    with pytest.raises(ValueError, match="inf"):
        estimator.fit(X, y)
    with pytest.raises(NotFittedError, match="not fitted"):
        estimator.predict(X)
    assert not hasattr(estimator, "n_features_in_")


# ------------------------------------------------------------------ inputs that were once accepted


def test_values_far_outside_the_training_range_give_finite_probabilities():
    """Scaled values are clipped, so that margins stay finite and their differences are no NaN."""
    X, y = make_classification(120, 6, random_state=0)
    extreme = X[:3].copy()
    extreme[0], extreme[1], extreme[2, ::2] = 3e38, -3e38, 1e300
    hinge = skforest.RandomHingeForestClassifier(10, n_bags=1, max_iter=50, random_state=0)
    soft = skforest.E2EDecisionForest(1, routing="soft", max_depth=3, random_state=0)
    for model in (hinge, soft):
        assert np.isfinite(model.fit(X, y).predict_proba(extreme)).all()


@pytest.mark.parametrize(
    "regressor",
    [
        skforest.ObliqueBoostingRegressor(60, linear_leaves=True, random_state=0),
        skforest.ObliqueBoostingRegressor(60, linear_leaves=True, n_bags=1, random_state=0),
        skforest.RandomHingeForestRegressor(10, n_bags=2, max_iter=300, random_state=0),
        skforest.BlendedForestRegressor(
            [
                skforest.RandomHingeForestRegressor(10, n_bags=2, max_iter=300),
                skforest.ObliqueBoostingRegressor(60, linear_leaves=True, n_bags=1),
            ],
            cv=2,
            random_state=0,
        ),
    ],
    ids=["boosting", "one bag", "hinge", "blend"],
)
def test_one_wrong_value_does_not_make_a_prediction_arbitrarily_large(regressor):
    """Features are clipped one training range beyond the training range."""
    rng = np.random.default_rng(0)
    X = rng.random((300, 4))
    y = 10 * X[:, 0] + 5 * X[:, 1]
    model = regressor.fit(X, y)
    low, high = X.min(axis=0), X.max(axis=0)
    far = np.tile(X[:2], (8, 1))
    for j, far_value in enumerate((1e3, 1e30)):
        far[4 * j : 4 * j + 4, 0] = -far_value, -far_value, far_value, far_value
        far[8 + 4 * j : 12 + 4 * j, 1] = -far_value, -far_value, far_value, far_value
    near = np.clip(far, 2 * low - high, 2 * high - low)
    np.testing.assert_allclose(model.predict(far), model.predict(near), rtol=1e-4)
    predictor = model.predictor()
    np.testing.assert_allclose(predictor(predictor.encode(far)), model.predict(far), rtol=1e-4)
    assert np.abs(model.predict(far)).max() < 3 * np.abs(y).max()


def test_masked_arrays_and_dates(estimator):
    X, y = task(estimator)
    for bad, what in (
        (np.ma.masked_array(X, X > X.mean()), "masked array"),
        (X.astype("datetime64[s]"), "dates or times"),
        (X.astype("timedelta64[s]"), "durations or times of day; derive numbers"),
    ):
        with pytest.raises(TypeError, match=what):
            clone(estimator).fit(bad, y)


def test_a_column_of_dates_is_named(estimator):
    pd = pytest.importorskip("pandas")
    X, y = task(estimator)
    frame = pd.DataFrame(X, columns=[f"c{j}" for j in range(X.shape[1])])
    with pytest.raises(TypeError, match="column 'c1' of X holds dates"):
        estimator.fit(frame.assign(c1=pd.Timestamp("2020-01-01")), y)
    wrong = frame.astype(float)
    wrong.iloc[3, 2] = np.inf
    with pytest.raises(ValueError, match="inf.*column 'c2'"):
        clone(estimator).fit(wrong, y)


def test_missing_labels_are_named(classifier):
    pd = pytest.importorskip("pandas")
    X, y = task(classifier)
    names = np.where(y == 1, "one", None)
    refuses(classifier, X, names, "None", "label")
    refuses(classifier, X, pd.array([pd.NA, *y[1:].tolist()], dtype="Int64"), "label 0 is")


def test_strings_as_real_targets(regressor):
    X, y = task(regressor)
    refuses(regressor, X, np.where(y > 0, "a", "b"), "Classifier")
    for dtype in ("datetime64[s]", "timedelta64[s]"):  # not as seconds
        refuses(regressor, X, np.arange(len(X)).astype(dtype), "y holds strings or dates")


def test_a_few_rows_of_a_data_frame_predict_the_same():
    """They take a short way past full validation, and other columns do not."""
    pd = pytest.importorskip("pandas")
    X, y = make_classification(60, 6, random_state=0)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    model = skforest.ManifoldForestClassifier(3, random_state=0).fit(frame, y)
    whole = model.predict_proba(frame)
    np.testing.assert_array_equal(model.predict_proba(frame[5:6]), whole[5:6])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[5:6][list("bacdef")])


@pytest.mark.parametrize("shape", [(2, 2), (-1, -3), 0, (7,), ()])
def test_shapes_that_do_not_match_the_columns_of_hinge_forests(shape):
    X = np.random.default_rng(0).normal(size=(30, 3))
    model = skforest.RandomHingeForestRegressor(5, max_iter=20, feature_shape=shape)
    with pytest.raises(ValueError, match="feature_shape="):
        model.fit(X, X[:, 0])


def frames_of(values):
    """The same target as the libraries that are installed hold it."""
    yield values
    yield values.tolist()
    yield values.astype(object)
    yield pd.Series(values)
    yield pd.DataFrame({"y": values})
    if find_spec("polars"):
        import polars

        yield polars.Series(values)
    if find_spec("pyarrow"):
        import pyarrow

        yield pyarrow.array(values)
    if values.dtype.kind == "U":
        yield pd.Series(values, dtype="string")


DATES = np.datetime64("2020-01-01", "us") + np.arange(29) * np.timedelta64(1, "D")


@pytest.mark.parametrize("values", [np.arange(30).astype(str), DATES, DATES - DATES[0]])
def test_strings_and_times_are_no_numeric_targets(values):
    X = np.random.default_rng(0).normal(size=(len(values), 2))
    for y in frames_of(values):
        with pytest.raises(ValueError, match="y holds strings or dates"):
            skforest.ManifoldForestRegressor(1).fit(X, y)


def test_masked_targets_and_weights():
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = np.ma.masked_array((X[:, 0] > 0).astype(int), mask=X[:, 1] > 0)
    for model in (skforest.ManifoldForestClassifier(1), skforest.BlendedForestRegressor()):
        with pytest.raises(TypeError, match="y is a masked array"):
            model.fit(X, y)
        with pytest.raises(TypeError, match="sample_weight is a masked array"):
            model.fit(X, y.data, sample_weight=np.ma.masked_array(np.ones(30), mask=y))


def test_masked_images_and_graphs():
    X = np.random.default_rng(0).normal(size=(30, 4, 4))
    y, masked = X[:, 0, 0] > 0, np.ma.masked_array(X, X > 0)
    model = skforest.ManifoldForestClassifier(1, feature_shape=(4, 4)).fit(X, y)
    for call in (model.predict, model.apply, lambda rows: clone(model).fit(rows, y)):
        for rows in (masked, list(masked), tuple(masked)):
            with pytest.raises(TypeError, match="X is a masked array; replace"):
                call(rows)
    ones = np.ones((16, 16))
    for graph, what in ((np.ma.masked_array(ones, True), "masked array"), (1j * ones, "complex")):
        with pytest.raises(ValueError, match=f"feature_graph=(.|\n)*{what}"):
            skforest.ManifoldForestClassifier(1, feature_graph=graph).fit(X.reshape(30, 16), y)
    with pytest.raises(ValueError, match="0 sample"):
        model.predict(X[:0])
