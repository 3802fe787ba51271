"""Every input has a defined outcome: a result, or an error that says what is wrong.

An error names the argument, the value and what is allowed, and leaves the estimator as it was.
"""

import os
import re
import subprocess
import sys
import time
from numbers import Integral
from pathlib import Path

import numpy as np
import pytest
from conftest import ALL, ESTIMATORS, PARAMETERS, fitted_attributes, parameters, small
from makers import changed, response
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.exceptions import NotFittedError
from sklearn.utils import get_tags
from sklearn.utils._param_validation import Interval

import skforest

N = 60

# Bad input gives a result or an error, no warning of NumPy.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")


def task(estimator):
    X, y = make_classification(N, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    return X, y if is_classifier(estimator) else y + X[:, 0]


def trained(model):
    if "n_estimators" in model.get_params():
        model.set_params(n_estimators=2)
    return model.fit(*task(model))


def refuses(estimator, X, y, *words, weight=None):
    """fit raises ValueError or TypeError with all the words, whether fitted before or not."""
    for attributes in ({}, fitted_attributes(type(estimator), trained)):
        model = clone(estimator)
        vars(model).update(attributes)
        before = vars(model).copy()
        with pytest.raises((ValueError, TypeError)) as error:
            model.fit(X, y, sample_weight=weight)
        assert vars(model).keys() == before.keys()
        assert all(value is before[name] for name, value in vars(model).items())
        for word in words:
            assert re.search(word, str(error.value)), f"{word!r} is not in: {error.value}"


def runs(code, seconds=120):
    """The script succeeds, in time, in a process of its own."""
    place = str(Path(skforest.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": place},
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, done.stderr[-3000:]


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


@pytest.mark.needs("projection")
@pytest.mark.parametrize("scale", [3e38, -3.4e38, 1e-38, 1e-45])
@pytest.mark.parametrize("projection", ["axis", "sparse", "sum", "edge", "difference", "mix"])
@pytest.mark.parametrize("splitter", ["hist", "exact"])
def test_largest_and_smallest_floats(estimator, scale, projection, splitter):
    """Sums of features overflow; the result is finite, and training takes no longer."""
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
    start = time.process_time()
    estimator.fit(X, y)
    found = response(estimator, X)
    assert time.process_time() - start < 10
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


# ------------------------------------------------------------------------- few rows, few values


@pytest.mark.every_class
@pytest.mark.needs("max_features", "min_samples_split")
def test_one_row(estimator):
    X, y = task(estimator)
    estimator.fit(X[:1], y[:1])
    np.testing.assert_array_equal(estimator.predict(X), np.full(N, y[0]))
    assert estimator.forest_.n_nodes == 10
    np.testing.assert_array_equal(estimator.apply(X), np.zeros((N, 10)))
    if is_classifier(estimator):
        np.testing.assert_array_equal(estimator.predict_proba(X), np.ones((N, 1)))
    np.testing.assert_array_equal(estimator.feature_importances_, np.zeros(6))


@pytest.mark.every_class
@pytest.mark.needs("max_features", "min_samples_split")
def test_two_rows(estimator):
    X, _ = task(estimator)
    y = np.array([0, 1])
    estimator.set_params(bootstrap=False).fit(X[:2], y)
    np.testing.assert_array_equal(estimator.predict(X[:2]), y)


@pytest.mark.every_class
@pytest.mark.needs("max_features", "min_samples_split")
def test_one_class(classifier):
    X, y = task(classifier)
    classifier.set_params(oob_score=True, n_estimators=50).fit(X, np.full(N, "only"))
    assert classifier.classes_.tolist() == ["only"]
    np.testing.assert_array_equal(classifier.predict(X), np.full(N, "only"))
    np.testing.assert_array_equal(classifier.predict_proba(X), np.ones((N, 1)))
    np.testing.assert_array_equal(classifier.predict_log_proba(X), np.zeros((N, 1)))
    assert classifier.oob_score_ == 1.0


@pytest.mark.parametrize("weight", ["balanced", "balanced_subsample", {0: 2}], ids=str)
@pytest.mark.needs("min_samples_split")
def test_one_class_with_class_weight(classifier, weight):
    X, _ = task(classifier)
    classifier.set_params(class_weight=weight).fit(X, np.zeros(N, dtype=int))
    np.testing.assert_array_equal(classifier.predict_proba(X), np.ones((N, 1)))


@pytest.mark.needs("projection")
@pytest.mark.parametrize("value", [np.uint8(7), np.float32(7), np.float32(0.1), 0.0])
@pytest.mark.parametrize("projection", ["axis", "sparse", "patch"])
@pytest.mark.parametrize("splitter", ["hist", "exact"])
def test_constant_features(estimator, value, projection, splitter):
    X = np.full((40, 6), value)
    y = np.arange(40) % 4 // 3  # a quarter of ones
    changed(estimator, projection=projection, splitter=splitter, bootstrap=False).fit(X, y)
    expected = [0.75, 0.25] if is_classifier(estimator) else 0.25
    np.testing.assert_allclose(response(estimator, X)[:1], [expected], rtol=1e-6)
    assert (estimator.forest_.n_leaves == 1).all()
    np.testing.assert_array_equal(estimator.feature_importances_, np.zeros(6))


@pytest.mark.needs("projection")
def test_one_feature_among_constant_ones(estimator):
    rng = np.random.default_rng(0)
    X = np.full((80, 20), 3.0)
    X[:, 13] = rng.standard_normal(80)
    y = (X[:, 13] > 0) * 1
    for projection in ("axis", "sparse"):
        estimator.set_params(bootstrap=False, projection=projection, max_features=60).fit(X, y)
        assert estimator.score(X, y) == pytest.approx(1)
        assert estimator.feature_importances_.argmax() == 13
        assert estimator.feature_importances_.sum() == pytest.approx(1)


@pytest.mark.every_class
@pytest.mark.needs("max_features", "min_samples_split")
def test_duplicate_rows_with_different_labels(estimator):
    X = np.repeat([[0.0, 0], [1, 5]], [4, 10], axis=0)
    y = np.array([0, 0, 0, 1] + [1] * 9 + [0])
    estimator.set_params(bootstrap=False, max_features=None).fit(X, y)
    share = np.array([0.25, 0.9])[[0] * 4 + [1] * 10]
    expected = np.column_stack([1 - share, share]) if is_classifier(estimator) else share
    np.testing.assert_allclose(response(estimator, X), expected, rtol=1e-6)
    assert (estimator.forest_.n_leaves == 2).all()


@pytest.mark.needs("min_samples_split")
def test_ten_thousand_classes(classifier):
    rng = np.random.default_rng(0)
    n = 10000
    X = np.column_stack([np.arange(n), rng.random(n)])
    X, y = np.concatenate([X, X + 0.2, X + 0.4]), np.tile(np.arange(n), 3)
    if "objective" in classifier.get_params():
        changed(classifier, n_epochs=1)
        # Too few epochs: the grown tree is kept.
        classifier.set_params(refine=skforest.NonGreedyTreeClassifier(n_epochs=3, nu=20.0))
    if "finetune_epochs" in classifier.get_params():
        classifier.set_params(greedy_epochs=1, finetune_epochs=0, max_depth=None)
    start = time.process_time()
    classifier.set_params(n_estimators=2, bootstrap=False, max_features=4).fit(X, y)
    found = classifier.predict(X[:300])
    assert time.process_time() - start < 30
    assert (found == y[:300]).all()
    assert classifier.predict_proba(X[:3]).shape == (3, n)
    assert classifier.forest_.nbytes < 40 * classifier.forest_.n_nodes


def test_two_to_the_31_rows(estimator):
    X = np.broadcast_to(np.uint8(0), (2**31, 1))
    y = np.broadcast_to(np.int8(0), 2**31)
    refuses(estimator, X, y, r"\bX\b.*2147483648 rows", "2147483647")
    good, y = task(estimator)
    estimator.fit(good[:, :1], y)
    with pytest.raises(ValueError, match=r"\bX\b.*2147483648 rows.*2147483647"):
        estimator.predict(X)


def test_two_to_the_31_features():
    """Refused before anything is copied: the error fits into 2 GiB of additional memory."""
    pytest.importorskip("resource")
    runs("""
import resource, sys
import numpy as np
from sklearn.base import BaseEstimator
import skforest
if sys.platform == "linux":
    limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 2**31
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
X = np.broadcast_to(np.uint8(0), (2, 2**31))
n_refused = 0
for name in skforest.__all__:
    cls = getattr(skforest, name)
    if isinstance(cls, type) and issubclass(cls, BaseEstimator) and hasattr(cls, "predict"):
        try:
            cls().fit(X, [0, 1])
        except ValueError as error:
            assert "X" in str(error) and "2147483648" in str(error), error
            n_refused += 1
        else:
            raise AssertionError("not refused")
assert n_refused >= 2
""")


# ------------------------------------------------------------------------------ layouts of X


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_read_only_memory_map(estimator, tmp_path, dtype):
    X, y = task(estimator)
    X = (X * 20 + 128).clip(0, 255).astype(dtype)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert not mapped.flags.writeable
    one, other = clone(estimator).fit(X, y), clone(estimator).fit(mapped, y)
    np.testing.assert_array_equal(response(one, X), response(other, mapped))
    weight = np.ones(N)
    weight.flags.writeable = y.flags.writeable = False
    other = clone(estimator).fit(mapped, y, sample_weight=weight)
    np.testing.assert_array_equal(response(one, X), response(other, mapped))


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_layouts_in_memory(estimator, dtype):
    X, y = task(estimator)
    X = (X * 20 + 128).clip(0, 255).astype(dtype)
    one = clone(estimator).fit(X, y)
    wide = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)
    for other in (np.asfortranarray(X), X.T.copy().T, wide[::2, ::3], X[:, ::-1].copy()[:, ::-1]):
        np.testing.assert_array_equal(
            response(clone(estimator).fit(other, y), other), response(one, X)
        )


# ------------------------------------------------------------------------------------- weights


@pytest.mark.every_class
@pytest.mark.parametrize(
    "weight, words",
    [
        (-1.0, ["sample_weight.*-1", "0 or more"]),
        (np.nan, ["sample_weight", "NaN"]),
        (np.inf, ["sample_weight", "inf"]),
    ],
    ids=["negative", "nan", "inf"],
)
def test_bad_weights(estimator, weight, words):
    X, y = task(estimator)
    weights = np.ones(N)
    weights[7] = weight
    refuses(estimator, X, y, *words, weight=weights)


def test_weights_of_other_shapes(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y, "sample_weight", r"\(59,\)", r"\(60,\)", weight=np.ones(59))
    refuses(estimator, X, y, "sample_weight", r"\(60, 1\)", weight=np.ones((60, 1)))


def test_weights_that_are_no_numbers(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y, "sample_weight", weight=["a"] * N)
    refuses(estimator, X, y, "(?i)complex", weight=np.ones(N) * 1j)


@pytest.mark.every_class
def test_all_weights_zero(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y, "sample_weight", "all zero", "positive", weight=np.zeros(N))


@pytest.mark.parametrize("power", [-1060, -700, -100, 100, 700, 1015])
@pytest.mark.needs("min_samples_split")
def test_tiny_and_huge_weights(estimator, power):
    X, y = task(estimator)
    estimator.set_params(bootstrap=False, max_depth=3)
    one = clone(estimator).fit(X, y)
    other = clone(estimator).fit(X, y, sample_weight=np.full(N, 2.0**power))
    np.testing.assert_allclose(response(other, X), response(one, X), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(
        other.feature_importances_, one.feature_importances_, rtol=1e-3, atol=1e-6
    )


def test_weights_whose_sum_overflows(estimator):
    X, y = task(estimator)
    refuses(estimator, X, y, "sample_weight", "large|sum", weight=np.full(N, 1.7e308))


@pytest.mark.every_class
def test_all_weights_of_a_class_zero(classifier):
    X, y = task(classifier)
    weight = np.where(y == 1, 0.0, 1.0)
    of_trees = ["balanced_subsample"] if "min_samples_split" in classifier.get_params() else []
    for class_weight in (None, "balanced", *of_trees):
        model = clone(classifier).set_params(class_weight=class_weight).fit(X, y, weight)
        assert model.classes_.tolist() == [0, 1, 2]
        assert not model.predict_proba(X)[:, 1].any()
        assert set(model.predict(X)) == {0, 2}


def test_a_class_of_weight_zero_by_class_weight(classifier):
    X, y = task(classifier)
    model = clone(classifier).set_params(class_weight={0: 1, 1: 0, 2: 1}).fit(X, y)
    assert not model.predict_proba(X)[:, 1].any()
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    "value",
    [
        {0: -1, 1: 1, 2: 1},
        {0: np.nan, 1: 1, 2: 1},
        {0: np.inf, 1: 1, 2: 1},
        {0: 0, 1: 0, 2: 0},
        {0: "a", 1: 1, 2: 1},
        {7: 1},
    ],
    ids=str,
)
def test_bad_class_weights(classifier, value):
    refuses(classifier.set_params(class_weight=value), *task(classifier), "class_weight")


# ---------------------------------------------------------------------------------- parameters

# Values that no estimator takes. A parameter of a later estimator is added here.
BAD_VALUES = {
    "categorical_features": [
        "some",
        1,
        True,
        [1.5],
        [-1],
        [1000],
        [None],
        [[0]],
        ["a", 1],
        ["no such column"],
        [1, True],
        [True],
        {"a": 1},
        np.nan,
    ],
    "n_estimators": [0, -1, 1.5, "many", None, np.nan],
    "structure": ["bush", None, 1],
    "head": ["sum", None, 1],
    "features": ["quadratic", None, 1],
    "kernel_size": [0, -1, 2.5, "wide", None],
    "stride": [0, -1, 2.5, "wide", None],
    "n_directions": [-1, 1.5, "many", None, 2**21],
    "linear_leaves": ["yes", 2, None],
    "linear_start": ["yes", 0, -1.0, np.nan, True, False],
    "monotonic_cst": ["up", 1, [2, 0, 0, 0, 0, 0], [1], {"a": 1}],
    "interaction_cst": ["all", 1, [1, 2], [["q"]], [[7]], {"a": 1}],
    "l2_regularization": [-0.1, "some", None, np.nan, np.inf],
    "subsample": [0, 1.5, -0.1, "half", None, np.nan],
    "n_bags": [0, -1, 1.5, "many", None],
    "optimizer": ["newton", None, 1],
    "weight_decay": [-0.1, "some", None, np.nan, np.inf],
    "schedule": ["step", None, 1],
    "voting": ["weighted", None, 1],
    "rescale_splits": ["yes", None, 2],
    "max_iter": [0, -1, 2.5, "many", None],
    "dropout": [-0.1, 1, 1.5, "some", None, np.nan],
    "importance_power": [-0.1, 17, "some", None, np.nan, np.inf],
    "label_smoothing": [-0.1, 1, 1.5, "some", None, np.nan],
    "loss": ["gini", None, 1],
    "quantile": [0, 1, -0.1, "half", None, np.nan],
    "projection": ["oblique", None, 1, ["axis"]],
    "objective": ["gini", "none", 0],
    "nu": [0, -1, "large", None, np.nan, np.inf],
    "learning_rate": [0, -0.1, "fast", None, np.nan, np.inf],
    "momentum": [-0.1, 1, 1.5, "high", None, np.nan],
    "n_epochs": [0, -1, 2.5, "many", None],
    "batch_size": [0, -1, 2.5, 2**20 + 1, "all", None],
    "holdout": [-0.1, 0.95, "some", None, np.nan],
    "smoothing": [0, -1, "none", None, np.nan, np.inf],
    "row_norm": [0, -1, "unit", np.nan, np.inf],
    "keep": ["first", None, 1],
    "weight_dtype": ["float64", None, np.float16, 16],
    "signs": ["new", None, 1],
    "leaves": ["means", None, 1],
    "init": ["random", None, 1],
    "inference": ["exact", None, 1],
    "stable": ["yes", None, 2],
    "l1": [-0.1, "some", None, np.nan, np.inf],
    "early_stopping": ["yes", None, 2],
    "calibrate": ["yes", None, 2],
    "validation_fraction": [0, 1, -0.1, "some", None, np.nan],
    "n_iter_no_change": [0, -1, 2.5, "few", None],
    "growth": ["best", "level", None, 1],
    "min_batches": [0, -1, 2.5, 2**20 + 1, "auto", None],
    "scaling": ["unit", 1, True],
    "greedy_epochs": [0, -1, 2.5, "many", None],
    "finetune_epochs": [-1, 2.5, "many", None],
    "steepness": [0, -1, "steep", None, np.nan, np.inf],
    "steepness_step": [-0.1, "steep", None, np.nan, np.inf],
    "smoothness": [-0.1, "smooth", None, np.nan, np.inf],
    "patch_size": [0, -6, 1.5, "6", {}],
    "routing": ["sigmoid", None, 1],
    "refine": ["twice", True, 1],
    "n_sweeps": [0, -1, 2.5, "many", None],
    "n_restarts": [-1, 2.5, "many", None],
    "n_jumps": [-1, 2.5, "many", None],
    "min_weight_fraction_leaf": [-0.1, 0.6, "few", None, np.nan],
    "feature_shape": [0, -6, 1.5, "6", {}, np.array(6)],
    "contrast": ["gabor", None, 0],
    "min_patch": [0, -1, 1.5, "small", None],
    "max_patch": [0, -1, 1.5, "large", None],
    "wrap": ["yes", None, 2, 1.5],
    "unordered": ["yes", None, 2, 1.5],
    "placement": ["outside", None, 1],
    "n_nonzeros": [0, -1, "many", None, np.nan, np.inf],
    "nonzeros": ["uniform", None, 3],
    "sparse_weights": ["unit", None, 1],
    "criterion": ["mae", None, 1],
    "splitter": ["best", None, 1],
    "max_bins": [1, 0, -5, 1025, 10**9, 32.5, "many", None],
    "max_search_samples": [31, 0, -1, 100.5, "all"],
    "max_features": [0, -1, 0.0, -0.5, "all", np.nan, np.inf],
    "max_depth": [0, -1, 2.5, "deep", np.nan],
    "min_samples_split": [1, 0, -2, 0.0, 1.5, "few", None, np.nan],
    "min_samples_leaf": [0, -1, 0.0, 1.0, 1.5, "few", None, np.nan],
    "max_leaf_nodes": [1, 0, -1, 2.5, "many"],
    "min_impurity_decrease": [-0.1, "small", None, np.nan, np.inf],
    "bootstrap": ["yes", None, 2, 0.5],
    "max_samples": [0, -1, 0.0, 1.5, -0.5, "half", np.nan],
    "oob_score": ["yes", None, 2],
    "class_weight": ["auto", 1, [1, 2], 0.5],
    "n_jobs": [1.5, "all", np.nan],
    "random_state": ["seed", -1, 1.5, 2**32],
    "verbose": ["loud", -1, None, 1.5],
    "warm_start": ["yes", None, 2],
    "time_limit": [0, -1, "soon", np.nan],
    "procedure": ["as printed", 1, {"momentum": 0.9}, skforest.CO2Procedure],
}
# Members of blends have tests of their own.
NO_BLENDS = [cls for cls in ALL if "members" not in PARAMETERS[cls]]


@pytest.mark.parametrize("cls", NO_BLENDS, ids=lambda cls: cls.__name__)
def test_every_parameter_has_bad_values(cls):
    assert parameters(cls).keys() <= BAD_VALUES.keys()


@pytest.mark.parametrize(
    "cls, name",
    [(cls, name) for cls in NO_BLENDS for name in parameters(cls)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_bad_parameters(cls, name):
    estimator = small(cls)
    if name == "feature_shape" and "dropout" in estimator.get_params():
        estimator.set_params(features="conv")
    X, y = task(estimator)
    for value in BAD_VALUES[name]:
        changed(estimator, **{name: value})
        refuses(estimator, X, y, rf"\b{name}\b", re.escape(repr(value)))


@pytest.mark.parametrize("cls, loss", [
    (skforest.ObliqueBoostingRegressor, skforest.HuberLoss),
    (skforest.ObliqueBoostingRegressor, skforest.TweedieLoss),
    (skforest.RandomHingeForestRegressor, skforest.HuberLoss),
])  # fmt: skip
def test_bad_parameters_of_losses(cls, loss):
    estimator = small(cls).set_params(loss=loss())
    X, y = task(estimator)
    (name,) = loss().get_params()
    for value in (0, -1, 1 if name == "power" else "a", 2 if name == "power" else True, "some",
                  None, np.nan, np.inf):  # fmt: skip
        estimator.set_params(**{f"loss__{name}": value})
        refuses(estimator, X, y, rf"\b{name}=.* of {loss.__name__}", re.escape(repr(value)))
        blend = skforest.BlendedForestRegressor([("own", estimator)])
        with pytest.raises(ValueError, match=rf"\b{name}="):
            blend.fit(X, y)


def test_losses_that_an_estimator_does_not_take():
    """Those of the other task, classes, and what hinge forests are not made for."""
    huber, tweedie = skforest.HuberLoss(), skforest.TweedieLoss()
    refused = {
        skforest.ObliqueBoostingClassifier: (huber, "huber", skforest.Loss),
        skforest.RandomHingeForestClassifier: (huber, "quantile", skforest.Loss),
        skforest.ObliqueBoostingRegressor: ("log_loss", skforest.HuberLoss),
        skforest.RandomHingeForestRegressor: (tweedie, "tweedie", "gamma", "log_loss"),
    }
    for cls, losses in refused.items():
        X, y = task(small(cls))
        for loss in losses:
            refuses(small(cls).set_params(loss=loss), X, y, r"\bloss\b", re.escape(repr(loss)))


def test_a_parameter_that_does_not_exist(estimator):
    with pytest.raises(ValueError, match="(?s)Invalid parameter 'colour'.*n_estimators"):
        estimator.set_params(colour="green")
    with pytest.raises(TypeError, match="colour"):
        type(estimator)(colour="green")


@pytest.mark.every_class
def test_no_jobs(estimator):
    refuses(estimator.set_params(n_jobs=0), *task(estimator), "n_jobs", "0")


@pytest.mark.needs("min_samples_split")
def test_more_samples_than_there_are(estimator):
    X, y = task(estimator)
    refuses(estimator.set_params(max_samples=61), X, y, "max_samples=61", "60")


@pytest.mark.parametrize(
    "params", [{"oob_score": True}, {"max_samples": 0.5}, {"max_samples": 10}], ids=str
)
@pytest.mark.needs("min_samples_split")
def test_parameters_that_need_a_bootstrap(estimator, params):
    estimator.set_params(bootstrap=False, **params)
    ((name, value),) = params.items()
    refuses(estimator, *task(estimator), f"{name}={value}", "bootstrap=True")


SHAPES = [
    (2, 2),
    (7,),
    5,
    (2, 3, 2),
    (),
    (0, 6),
    (-2, -3),
    (6, 1, 0),
    (2**33, 2**31),
    (2**80, 1),
    [[2, 3]],
    (2.5, 3),
    (1.5, 4),
    ("2", "3"),
    ("a", "b"),
    (None, 6),
    (np.nan, 6),
    (True, 6.5),
]


@pytest.mark.needs("projection")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_that_do_not_fit(estimator, shape):
    estimator.set_params(feature_shape=shape)
    refuses(estimator, *task(estimator), "feature_shape", re.escape(str(shape)))


@pytest.mark.needs("projection")
def test_more_axes_than_are_supported(estimator):
    """The docstring names the largest number; it works, and one more is refused."""
    X, y = task(estimator)
    changed(estimator, feature_shape=(6,) + (1,) * 7, max_patch=1, contrast="sum").fit(X, y)
    assert estimator.score(X, y) > 0.8
    estimator.set_params(feature_shape=(6,) + (1,) * 8)
    refuses(estimator, X, y, "feature_shape", "8")


@pytest.mark.needs("projection")
@pytest.mark.parametrize("projection", ["axis", "sparse", "patch"])
def test_shapes_are_checked_for_every_projection(estimator, projection):
    estimator.set_params(feature_shape=(2, 2), projection=projection)
    refuses(estimator, *task(estimator), r"feature_shape=\(2, 2\)", "6")


PATCHES = [
    ({"min_patch": 2, "max_patch": 1}, ["min_patch=2", "max_patch=1"]),
    ({"min_patch": (1, 3), "max_patch": (2, 2)}, [r"min_patch=\(1, 3\)", r"max_patch=\(2, 2\)"]),
    ({"max_patch": 3}, ["max_patch=3", r"\(2, 3\)"]),
    ({"max_patch": (2, 4)}, [r"max_patch=\(2, 4\)", r"\(2, 3\)"]),
    ({"min_patch": 3}, ["min_patch=3", r"\(2, 3\)"]),
    ({"min_patch": (0, 1)}, [r"min_patch=\(0, 1\)", "1"]),
    ({"max_patch": (-1, 1)}, [r"max_patch=\(-1, 1\)", "1"]),
    ({"min_patch": 2**32 + 1}, ["min_patch=4294967297", r"\(2, 3\)"]),
    ({"max_patch": 2**32 + 1}, ["max_patch=4294967297", r"\(2, 3\)"]),
    ({"max_patch": 2**70}, ["max_patch", r"\(2, 3\)"]),
    ({"min_patch": (1.5, 1)}, [r"min_patch=\(1.5, 1\)"]),
    ({"max_patch": (1.5, 2.9)}, [r"max_patch=\(1.5, 2.9\)"]),
    ({"max_patch": (np.nan, 1)}, ["max_patch"]),
    ({"min_patch": ("a", "b")}, ["min_patch"]),
    ({"max_patch": ("1", "2")}, ["max_patch"]),
    ({"min_patch": (1, 1, 1)}, [r"min_patch=\(1, 1, 1\)", "2", r"\(2, 3\)"]),
    ({"max_patch": (1, 2, 1)}, [r"max_patch=\(1, 2, 1\)", "2", r"\(2, 3\)"]),
    ({"wrap": (True, False, True)}, [r"wrap=\(True, False, True\)", "2", r"\(2, 3\)"]),
    ({"unordered": (True,) * 3}, [r"unordered=\(True, True, True\)", "2", r"\(2, 3\)"]),
    ({"wrap": ()}, [r"wrap=\(\)"]),
    ({"min_patch": [[1, 1]]}, [r"min_patch=\[\[1, 1\]\]"]),
    ({"wrap": ("no", "yes")}, ["wrap"]),
    ({"wrap": (2, 0)}, ["wrap"]),
    ({"unordered": (0.5, 0)}, ["unordered"]),
    ({"unordered": (None, True)}, ["unordered"]),
]


@pytest.mark.needs("projection")
@pytest.mark.parametrize("params, words", PATCHES, ids=[str(params) for params, _ in PATCHES])
def test_patches_that_do_not_fit(estimator, params, words):
    changed(estimator, feature_shape=(2, 3), **params)
    refuses(estimator, *task(estimator), *words)


@pytest.mark.needs("projection")
def test_unordered_has_priority_over_wrap(estimator):
    X, y = task(estimator)
    changed(estimator, feature_shape=(2, 3), unordered=(False, True), max_patch=(2, 3))
    one = clone(estimator).fit(X, y)
    other = clone(estimator).set_params(wrap=(False, True)).fit(X, y)
    np.testing.assert_array_equal(response(one, X), response(other, X))


def ends_of_ranges(cls):
    """Parameters of a class with the smallest and largest numbers that they may have.

    Largest ints are left out: they are limits of memory.
    """
    known = cls._parameter_constraints
    if cls._default_procedure is not None:
        known = known | cls._default_procedure._parameter_constraints
    for name, constraints in sorted(known.items()):
        if name not in parameters(cls) or name in ("n_jobs", "verbose", "random_state"):
            continue
        for interval in constraints:
            if not isinstance(interval, Interval):
                continue
            if interval.left is not None and interval.type is Integral:
                yield name, int(interval.left)
            elif interval.left is not None:
                is_closed = interval.closed in ("left", "both")
                yield name, float(interval.left if is_closed else np.nextafter(interval.left, 9))
            if interval.right is not None and interval.type is not Integral:
                is_closed = interval.closed in ("right", "both")
                yield name, float(interval.right if is_closed else np.nextafter(interval.right, 0))


# What else a value at the end of its range needs, or the message with which it is refused.
NEEDED = {
    "feature_shape": "multiply",
    "max_samples": {"bootstrap": True},
    "dropout": "infinite",
}


@pytest.mark.parametrize("cls", [cls for cls in NO_BLENDS if not is_classifier(cls())])
def test_numbers_at_the_ends_of_their_ranges(cls):
    """A forest, or a message; means of targets stay in their range."""
    X, y = task(cls())
    X, y = X[:40], y[:40]
    quick = {"n_estimators": 2} if cls in ESTIMATORS else {}
    quick |= {"max_iter": 20} if "dropout" in PARAMETERS[cls] else {}
    for name, value in ends_of_ranges(cls):
        model = changed(small(cls), **quick | {name: value})
        needed = NEEDED.get(name, {})
        if isinstance(needed, dict):
            model.set_params(**needed)
        try:
            found = model.fit(X, y).predict(X)
        except ValueError as error:
            assert isinstance(needed, str) and needed in str(error), f"{name}={value}: {error}"
            continue
        assert np.isfinite(found).all(), f"{name}={value}"
        if model.forest_.aggregate == "mean" and model.forest_.gate == "hard":
            assert (np.abs(found - np.clip(found, y.min(), y.max())) < 1e-5).all(), name
        assert (model.forest_.node_weight[model.forest_.tree_start[:-1]] > 0).all(), name


@pytest.mark.every_class
def test_shares_that_round_to_nothing_are_one(regressor):
    """Of rows or features: the least that there is, and not none."""
    X, y = task(regressor)
    for name in ("max_samples", "max_features", "subsample", "validation_fraction"):
        if name not in parameters(type(regressor)):
            continue
        own = {"early_stopping": True} if name == "validation_fraction" else {}
        own |= {"bootstrap": True} if name == "max_samples" else {}
        own |= {"n_bags": 1} if "n_bags" in regressor.get_params() and own else {}
        own |= {"max_iter": 20} if "dropout" in regressor.get_params() else {}
        one, two = (
            changed(clone(regressor), n_estimators=2, **own | {name: share}).fit(X, y)
            for share in (1e-9, 0.8 / len(X) if name != "max_features" else 0.1)
        )
        np.testing.assert_array_equal(one.predict(X), two.predict(X), err_msg=name)


@pytest.mark.needs("projection")
@pytest.mark.parametrize("contrast", ["sum", "edge", "difference", "mix"])
def test_patches_on_a_circle_longer_than_half_of_it(estimator, contrast):
    """Two boxes side by side do not fit: the result is finite, and no box overlaps itself."""
    X, y = task(estimator)
    changed(estimator, feature_shape=6, wrap=True, min_patch=4, max_patch=6, max_features=50)
    changed(estimator, contrast=contrast).fit(X, y)
    weights = estimator.forest_.directions().toarray()
    assert np.isfinite(response(estimator, X)).all()
    assert (np.abs(weights) <= 1).all()


@pytest.mark.needs("projection")
@pytest.mark.parametrize("contrast", ["sum", "edge", "difference", "mix"])
@pytest.mark.parametrize("unordered", [True, False])
def test_patches_as_large_as_the_whole(estimator, contrast, unordered):
    """There is one place for a box, so that every direction is the sum of all features."""
    X, y = task(estimator)
    changed(estimator, feature_shape=(2, 3), min_patch=(2, 3), max_patch=(2, 3))
    changed(estimator, contrast=contrast, unordered=unordered).fit(X, y)
    weights = estimator.forest_.directions().toarray()
    np.testing.assert_array_equal(weights, np.ones_like(weights))


@pytest.mark.needs("projection")
@pytest.mark.parametrize("nonzeros", ["poisson", "fixed"])
@pytest.mark.parametrize("n_nonzeros", [0.5, 0.9, 2.5, 6.0, 1e6, 1e300])
def test_numbers_of_nonzeros_at_the_edge(estimator, nonzeros, n_nonzeros):
    """Refused with the parameter's name, or directions of one feature or more."""
    X, y = task(estimator)
    changed(
        estimator, projection="sparse", nonzeros=nonzeros, n_nonzeros=n_nonzeros, bootstrap=False
    )
    if nonzeros == "fixed" and n_nonzeros < 1:
        refuses(estimator, X, y, f"n_nonzeros={n_nonzeros}", "1")
        return
    estimator.fit(X, y)
    assert estimator.score(X, y) == pytest.approx(1)
    counts = np.diff(estimator.forest_.directions().indptr)
    assert counts.min() >= 1 and counts.max() <= 6


def test_a_tiny_number_of_nonzeros_is_no_endless_loop():
    """Nearly all Poisson numbers of this mean are 0, which is drawn again."""
    runs(
        """
import numpy as np
from skforest import ManifoldForestClassifier, ManifoldProcedure
rng = np.random.default_rng(0)
X, y = rng.standard_normal((50, 6)), np.arange(50) % 2
for n_nonzeros in (1e-9, 1e-300):
    procedure = ManifoldProcedure(n_nonzeros=n_nonzeros)
    model = ManifoldForestClassifier(5, projection="sparse", procedure=procedure)
    try:
        model.fit(X, y)
    except ValueError as error:
        assert "n_nonzeros" in str(error), error
    else:
        assert (np.diff(model.forest_.directions().indptr) == 1).all()
""",
        seconds=60,
    )


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
        skforest.BlendedForestRegressor(["hinge", "boosting"], random_state=0),
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


def test_no_threads(estimator):
    X, y = task(estimator)
    refuses(estimator.set_params(n_jobs=0), X, y, "n_jobs=0")


def test_huge_counts(estimator):
    X, y = task(estimator)
    refuses(estimator.set_params(n_estimators=10**30), X, y, "n_estimators", "too large")


def test_masked_arrays_and_dates(estimator):
    X, y = task(estimator)
    for bad, what in (
        (np.ma.masked_array(X, X > X.mean()), "masked array"),
        (X.astype("datetime64[s]"), "dates or times"),
        (X.astype("timedelta64[s]"), "dates or times"),
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


def test_images_without_feature_shape():
    X, y = make_classification(60, 6, random_state=0)
    model = skforest.ManifoldForestClassifier(2)
    refuses(model, X.reshape(-1, 2, 3), y, r"feature_shape=\(2, 3\)")


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
