"""Tables as they come: data frames, missing values, categories, for every estimator."""

import pickle
import subprocess
import sys
import time
import tracemalloc
from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from makers import assert_same_trees, response
from scipy.stats import chi2
from sklearn.base import clone, is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.datasets import make_classification
from sklearn.ensemble import VotingClassifier
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    Forest,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    RandomHingeForestClassifier,
)
from skforest._feature_map import CODE, IS_MISSING, LEVEL, TARGET, VALUE
from skforest._target_statistics import N_FOLDS, TargetStatistics

N = 120
MODELS = skforest.ManifoldForestClassifier, skforest.CO2ForestClassifier


def table(n=N, seed=0):
    """A mixed table with holes, as a pandas data frame."""
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


def target(model, frame):
    """Labels, or real targets, that depend on numbers and on categories."""
    score = frame["size"].to_numpy() + 2 * (frame["city"] == "Rome").to_numpy()
    return (score > 0.5).astype(int) if is_classifier(model) else score


@pytest.fixture
def every_feature(monkeypatch):
    """Features of categories and of missing values are kept, whether they are useful or not."""
    monkeypatch.setattr(skforest._selection, "useful_features", lambda data, *_: data)


# ------------------------------------------------------------------------------------ data frames


class Interchanged:
    """A data frame of an unknown library, of which only the interchange protocol can be read."""

    def __init__(self, frame):
        self.frame = frame

    def __dataframe__(self, *args, **kwargs):
        return self.frame.__dataframe__(*args, **kwargs)


def nullable(frame):
    return frame.astype({"age": "Int64", "open": "boolean", "city": "string"})


def of_arrow_dtypes(frame):
    pytest.importorskip("pyarrow")
    plain = frame.astype({"grade": str})
    return plain.convert_dtypes(dtype_backend="pyarrow")


def of_objects(frame):
    return frame.astype({name: object for name in ("age", "city", "shop", "open")})


def of_polars(frame):
    return pytest.importorskip("polars").from_pandas(frame.astype({"grade": str}))


def of_pyarrow(frame):
    return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)


def interchanged(frame):
    pytest.importorskip("pyarrow")
    return Interchanged(frame.astype({"open": int}))


FRAMES = [nullable, of_arrow_dtypes, of_objects, of_polars, of_pyarrow, interchanged]


@pytest.mark.parametrize("convert", FRAMES, ids=lambda convert: convert.__name__)
def test_the_same_table_in_any_library_gives_the_same_predictions(estimator, convert):
    # Levels of an ordered dtype keep their order, which other libraries do not know.
    frame = table().astype({"grade": str})
    y = target(estimator, frame)
    model = clone(estimator).fit(frame, y)
    other = estimator.fit(convert(frame), y)
    expected = response(model, frame)
    np.testing.assert_array_equal(response(other, convert(frame)), expected)
    np.testing.assert_array_equal(response(model, convert(frame)), expected)
    assert list(other.feature_names_in_) == list(frame.columns)
    np.testing.assert_array_equal(other.is_categorical_, [0, 0, 1, 1, 1, 0])


@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint8", "int64", "float16", "float32", "float64", "bool", "Int8", "Int64", "UInt16",
     "Float32", "Float64", "boolean", "int64[pyarrow]", "double[pyarrow]", "bool[pyarrow]",
     "object"],
)  # fmt: skip
@pytest.mark.parametrize("cls", MODELS)
def test_columns_of_every_dtype_of_numbers(cls, dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    values = np.random.default_rng(0).integers(0, 2, size=(40, 3))
    y = values[:, 0]
    frame = pd.DataFrame(values, columns=list("abc")).astype(dtype)
    model = cls(5, random_state=0).fit(frame, y)
    plain = cls(5, random_state=0).fit(values.astype(float), y)
    assert model.is_categorical_ is None
    assert_same_trees(model, plain)
    np.testing.assert_array_equal(model.predict_proba(frame), plain.predict_proba(values))


@pytest.mark.parametrize("dtype", ["Int8", "Float32", "boolean", "int64[pyarrow]", "object"])
@pytest.mark.parametrize("cls", MODELS)
def test_missing_values_of_every_dtype(cls, dtype):
    if "pyarrow" in dtype:
        pytest.importorskip("pyarrow")
    values = np.random.default_rng(0).integers(0, 2, size=(40, 3)).astype(float)
    y = values[:, 0].astype(int)
    values[::5, 1] = np.nan
    frame = pd.DataFrame(values, columns=list("abc"))
    frame = frame.astype(object).where(frame.notna(), None).astype(dtype)
    model = cls(5, random_state=0).fit(frame, y)
    plain = cls(5, random_state=0).fit(values, y)
    assert_same_trees(model, plain)
    np.testing.assert_array_equal(model.predict_proba(frame), plain.predict_proba(values))


def test_polars_nulls_are_missing_values():
    pl = pytest.importorskip("polars")
    values = [[1, 2, None, 4, 5, None] * 5, [True, None, False, True, None, False] * 5]
    frame = pl.DataFrame({"a": values[0], "b": values[1]})
    y = [0, 1] * 15
    plain = np.array(values, dtype=float).T
    model = CO2ForestClassifier(5, random_state=0).fit(frame, y)
    assert_same_trees(model, CO2ForestClassifier(5, random_state=0).fit(plain, y))
    np.testing.assert_array_equal(
        model.predict_proba(frame), model.predict_proba(frame.to_numpy())
    )


def test_other_values_of_a_category(estimator):
    """Intervals, dates, bools and numbers are levels by their values."""
    rng = np.random.default_rng(0)
    bins = pd.cut(rng.normal(size=60), 4)
    frame = pd.DataFrame(
        {
            "interval": bins,
            "day": pd.Categorical(pd.to_datetime(["2020-01-01", "2021-02-03"] * 30)),
            "flag": pd.Categorical([True, False, True] * 20),
            "number": pd.Categorical(rng.integers(0, 3, size=60)),
        }
    )
    y = bins.codes % 2
    model = estimator.fit(frame, y)
    assert set(model.forest_.feature_map.levels[2]) == {0.0, 1.0}
    assert response(model, frame).shape[0] == 60
    assert len(model.forest_.feature_map.levels[0]) == 4


def test_columns_are_found_by_name():
    frame = table()
    y = target(CO2ForestClassifier(), frame)
    model = CO2ForestClassifier(5, random_state=0).fit(frame, y)
    shuffled = frame[frame.columns[::-1]]
    with pytest.raises(ValueError, match="(?s)feature names should match.*same order"):
        model.predict(shuffled)
    with pytest.raises(ValueError, match="(?s)feature names should match.*city"):
        model.predict(frame.drop(columns="city"))
    # A Forest, which knows no scikit-learn, puts them in order.
    np.testing.assert_array_equal(model.forest_.predict(shuffled), model.predict(frame))
    with pytest.raises(ValueError, match="no columns.*city"):
        model.forest_.predict(frame.drop(columns="city"))


@pytest.mark.every_class
def test_dates_name_the_column_and_what_to_do(estimator):
    frame = table().assign(when=pd.date_range("2020-01-01", periods=N))
    y = target(estimator, frame)
    with pytest.raises(TypeError, match="column 'when' of X holds dates.*day of the week"):
        estimator.fit(frame, y)


@pytest.mark.every_class
@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_values_name_the_column(estimator, value):
    frame = table()
    y = target(estimator, frame)
    wrong = frame.assign(size=np.where(np.arange(N) == 3, value, frame["size"]))
    with pytest.raises(ValueError, match="(?s)infinity.*column 'size'"):
        clone(estimator).fit(wrong, y)
    model = estimator.fit(frame, y)
    with pytest.raises(ValueError, match="(?s)infinity.*column 'size'"):
        model.predict(wrong)


@pytest.mark.parametrize("dtype", ["Float64", "double[pyarrow]", object])
def test_infinite_values_beside_missing_ones_name_the_column(dtype):
    if "pyarrow" in str(dtype):
        pytest.importorskip("pyarrow")
    frame = table()[["age", "size"]].astype(dtype)
    frame.loc[frame.index[3], "size"] = np.inf
    with pytest.raises(ValueError, match="(?s)infinity.*column 'size'"):
        CO2ForestClassifier(3).fit(frame, np.arange(N) % 2)


def test_columns_that_mix_strings_and_numbers_are_named():
    frame = pd.DataFrame({"a": [1, "x", 3, 4] * 5, "b": np.arange(20)})
    with pytest.raises(ValueError, match="column 'a' of X must hold numbers"):
        CO2ForestClassifier(5).fit(frame, np.arange(20) % 2)


def test_columns_of_one_name():
    frame = pd.DataFrame([["x", 1.0], ["y", 2.0]] * 10, columns=["a", "a"])
    with pytest.raises(ValueError, match="several columns of one name"):
        CO2ForestClassifier(5).fit(frame, np.arange(20) % 2)


# --------------------------------------------------------------------------------- missing values


def with_holes(seed=0, n=N):
    X, y = make_classification(n, n_features=5, random_state=seed)
    X[np.random.default_rng(seed).random(X.shape) < [0, 0.3, 0, 0.1, 0]] = np.nan
    return X, y


@pytest.mark.parametrize("cls", MODELS)
def test_missing_values_are_means_with_an_indicator(cls, every_feature):
    X, y = with_holes()
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    columns = [filled[:, 0], filled[:, 1], np.isnan(X[:, 1]), filled[:, 2], filled[:, 3],
               np.isnan(X[:, 3]), filled[:, 4]]  # fmt: skip
    by_hand = np.stack(columns, axis=1)
    model = cls(10, random_state=0).fit(X, y)
    assert model.forest_.kind.tolist() == [
        VALUE,
        VALUE,
        IS_MISSING,
        VALUE,
        VALUE,
        IS_MISSING,
        VALUE,
    ]
    Z = model.forest_.map_features(X)
    expected = cls(10, random_state=0).fit(by_hand, y).forest_.map_features(by_hand)
    np.testing.assert_allclose(Z, expected, atol=1e-6)


@pytest.mark.every_class
def test_indicators_of_values_missing_at_random_are_dropped(estimator):
    """The same forest as of the means; with an indicator if the target depends on it."""
    X, y = with_holes()
    y = y if is_classifier(estimator) else y + X[:, 0]
    model = clone(estimator).fit(X, y)
    assert model.forest_.n_features == 5 and not len(model.forest_.kind)
    # Values of one class are removed more often than those of the other.
    X[:, 2] = np.where(np.random.default_rng(1).random(N) < 0.7 * (y > 0.5), np.nan, X[:, 2])
    model = estimator.fit(X, y)
    assert model.forest_.kind.tolist() == [VALUE, VALUE, VALUE, IS_MISSING, VALUE, VALUE]
    assert model.forest_.feature_map.feature_names("abcde")[3] == "c is missing"


def test_indicators_of_missing_categories_are_tested_too():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=N), "c": rng.choice(["a", "b", "c"], size=N)})
    y = frame["x"].to_numpy() > 0
    random = rng.random(N)
    for chance, is_kept in ((0.3, False), (0.7 * y, True)):
        holed = frame.assign(c=frame["c"].where(random > chance, None))
        model = ManifoldForestClassifier(5, random_state=0).fit(holed, y)
        assert ("c is missing" in model.forest_.feature_map.feature_names("xc")) == is_kept
        assert np.isfinite(model.predict_proba(holed)).all()


@pytest.mark.parametrize("cls", MODELS)
def test_features_are_chosen_for_several_outputs(cls):
    frame = table()
    frame.loc[frame["size"] > 0.5, "age"] = np.nan
    y = np.column_stack([target(cls(), frame), frame["city"].isna()])
    model = cls(5, random_state=0).fit(frame, y)
    assert [proba.shape for proba in model.predict_proba(frame)] == [(N, 2), (N, 2)]


@pytest.mark.parametrize("cls", [*MODELS, RandomHingeForestClassifier])
def test_greedy_forests_drop_indicators_that_do_harm(cls, monkeypatch):
    X, y = with_holes()
    X[np.random.default_rng(1).random(N) < 0.7 * y, 2] = np.nan
    for sign in (1, -1):
        error = partial(lambda sign, data, seed: sign * data.X.shape[1], sign)
        monkeypatch.setattr(skforest._selection, "_held_out_error", error)
        model = cls(5, random_state=0).fit(X, y)
        is_kept = sign == -1 or cls is RandomHingeForestClassifier
        assert model.forest_.n_features == 5 + is_kept


def test_informative_indicators_are_those_of_a_z_test(monkeypatch):
    """Several classes, weights, several outputs; tests by hand."""
    monkeypatch.setattr(skforest._selection, "_held_out_error", lambda data, seed: 0.0)
    rng = np.random.default_rng(0)
    n = 300
    for case in range(40):
        is_classification = case % 2 == 0
        X = rng.normal(size=(n, 3))
        weight = rng.integers(1, 4, size=n).astype(float)
        y = rng.integers(0, 3, size=n) if is_classification else rng.normal(size=(n, 2))
        drift = (y == 1) if is_classification else y[:, 0] / 4
        X[rng.random(n) < 0.3 + 0.1 * drift, 1] = np.nan
        cls = ManifoldForestClassifier if is_classification else ManifoldForestRegressor
        kept = cls(2, random_state=0).fit(X, y, sample_weight=weight).forest_.n_features == 4
        target = np.eye(3)[y] if is_classification else y
        share = weight / weight.sum()
        M = np.isnan(X[:, 1])
        part, mean = share[M].sum(), share @ target
        deviation = share[M] @ target[M] / part - mean
        square = deviation**2 / (share @ (target - mean) ** 2) * n * part / (1 - part)
        p = chi2.sf(square, 1) * target.shape[1]
        assert kept == (p.min() < 0.01)


@pytest.mark.every_class
def test_missing_values_only_in_prediction_are_the_mean(estimator):
    X, y = make_classification(N, n_features=5, random_state=0)
    y = y if is_classifier(estimator) else y + X[:, 0]
    model = estimator.fit(X, y)
    assert model.forest_.n_features == 5
    holed, filled = X.copy(), X.copy()
    holed[:, 2] = np.nan
    filled[:, 2] = X[:, 2].mean()
    np.testing.assert_allclose(response(model, holed), response(model, filled), atol=1e-4)
    one = response(model, holed[:1])
    np.testing.assert_array_equal(one, response(model, holed)[:1])


@pytest.mark.every_class
def test_rows_of_missing_values_and_weights(estimator):
    """Order of the rows and copies of them change nothing; a weight of 0 is absence."""
    frame = table()
    y = target(estimator, frame)
    rng = np.random.default_rng(1)
    weight = rng.integers(0, 3, size=N)
    model = clone(estimator).fit(frame, y, sample_weight=weight)
    order = rng.permutation(np.repeat(np.arange(N), weight))
    copies = clone(estimator).fit(frame.iloc[order], y[order])
    assert_same_trees(model, copies)
    if "n_jobs" in estimator.get_params():
        threads = clone(estimator).set_params(n_jobs=3).fit(frame, y, sample_weight=weight)
        assert_same_trees(model, threads)


def test_a_column_without_any_value(estimator):
    X, y = with_holes()
    y = y if is_classifier(estimator) else y + 0.5
    X[:, 2] = np.nan
    model = estimator.fit(X, y)
    assert np.isfinite(response(model, X)).all()


def test_images_get_no_indicators():
    X = np.random.default_rng(0).random((60, 16))
    y = (X[:, 0] > 0.5).astype(int)
    X[::4, 3] = np.nan
    model = ManifoldForestClassifier(5, feature_shape=(4, 4), random_state=0).fit(X, y)
    assert model.forest_.n_features == 16
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.parametrize("value", [np.finfo(np.float32).max, -np.finfo(np.float32).max])
def test_the_largest_number_is_no_missing_value(value):
    X = np.linspace(0, 1, 40)[:, None]
    y = (X[:, 0] > 0.5).astype(int)
    X = np.c_[X, np.where(y, value, 0.0)].astype(np.float32)
    model = ManifoldForestClassifier(5, random_state=0).fit(X, y)
    assert model.forest_.n_features == 2


# -------------------------------------------------------------------------------------- categories


@pytest.mark.parametrize(
    "given",
    [[False, True, False], [1], ["b"], np.array(["b"], dtype=object), np.array([1]), ("b",)],
    ids=str,
)
def test_categorical_features_is_a_mask_numbers_or_names(given):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(0, 5, size=(60, 3)), columns=list("abc"))
    y = frame["b"].isin([1, 4]).to_numpy()
    model = CO2ForestClassifier(5, categorical_features=given, random_state=0).fit(frame, y)
    np.testing.assert_array_equal(model.is_categorical_, [False, True, False])
    assert model.forest_.feature_map.levels == {1: [0.0, 1.0, 2.0, 3.0, 4.0]}
    np.testing.assert_array_equal(model.predict(frame), y)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([True, False], "2 entries, X has 3 features"),
        ([3], r"must be in 0 \.\. 2"),
        ([-1], r"must be in 0 \.\. 2"),
        (["z"], "'z', which is not a column"),
        ([1.5], "a mask of bool"),
        ([[1]], "a mask of bool"),
        ([1, "b"], "a mask of bool"),
    ],
)
def test_wrong_categorical_features(given, message):
    frame = pd.DataFrame(np.zeros((20, 3)), columns=list("abc"))
    with pytest.raises(ValueError, match=message):
        CO2ForestClassifier(5, categorical_features=given).fit(frame, np.arange(20) % 2)


def test_names_need_a_data_frame():
    with pytest.raises(ValueError, match="the columns of X have none"):
        CO2ForestClassifier(5, categorical_features=["a"]).fit(np.zeros((9, 2)), [0, 1, 1] * 3)


@pytest.mark.every_class
def test_strings_are_refused_without_categories(estimator):
    frame = table()
    with pytest.raises(ValueError, match="column 'city' of X holds strings.*categorical_features"):
        estimator.set_params(categorical_features=None).fit(frame, target(estimator, frame))


def test_arrays_of_objects_have_categories_and_arrays_of_strings_have_none():
    X = table()[["size", "city"]].to_numpy()
    y = target(CO2ForestClassifier(), table())
    model = CO2ForestClassifier(5, random_state=0).fit(X, y)
    np.testing.assert_array_equal(model.is_categorical_, [False, True])
    assert_same_trees(model, CO2ForestClassifier(5, random_state=0).fit(X.tolist(), y))
    with pytest.raises(ValueError, match="holds strings"):
        CO2ForestClassifier(5).fit(X.astype(str), y)
    strings = CO2ForestClassifier(5, categorical_features=[0, 1], random_state=0)
    assert strings.fit(X.astype(str), y).score(X.astype(str), y) > 0.9


def test_an_ordered_dtype_keeps_its_order():
    frame = table()[["grade"]]
    y = (frame["grade"] == "low").to_numpy()
    model = CO2ForestClassifier(5, random_state=0).fit(frame, y)
    assert model.forest_.feature_map.levels == {0: ["low", "mid", "high"]}
    as_text = CO2ForestClassifier(5, random_state=0).fit(frame.astype(str), y)
    assert as_text.forest_.feature_map.levels == {0: ["high", "low", "mid"]}


def test_few_levels_have_indicators_and_many_the_mean_of_the_target(every_feature):
    frame = table()[["city", "shop", "open"]]
    y = target(CO2ForestClassifier(), table())
    model = CO2ForestClassifier(5, random_state=0).fit(frame, y)
    feature_map = model.forest_.feature_map
    assert feature_map.kind.tolist() == [CODE, LEVEL, LEVEL, LEVEL, LEVEL, CODE, TARGET, VALUE]
    assert feature_map.feature_names(frame.columns) == [
        "city", "city = Bern", "city = Oslo", "city = Rome", "city is missing",
        "shop", "shop (target mean)", "open",
    ]  # fmt: skip


@pytest.mark.every_class
def test_unknown_levels(estimator):
    """They belong to no level: code and mean of the target are those of the average row."""
    frame = table()
    y = target(estimator, frame)
    model = estimator.fit(frame, y)
    new = frame.head(3).assign(city="Paris", shop="s99")
    feature_map = model.forest_.feature_map
    coded = feature_map.coded(new)
    assert (coded[:, 2:4] == -1).all()
    Z = feature_map.transform(coded.astype(np.float32 if not feature_map.is_scaling else float))
    is_level = (feature_map.source == 2) & (feature_map.kind == LEVEL)
    assert (Z[:, is_level] == 0).all()
    assert np.isfinite(response(model, new)).all()


def test_levels_of_another_type_are_refused():
    frame = pd.DataFrame({"a": ["1", "2", "3"] * 10, "b": np.arange(30.0)})
    y = np.arange(30) % 2
    model = CO2ForestClassifier(5, random_state=0).fit(frame, y)
    as_numbers = frame.assign(a=pd.Categorical([1, 2, 3] * 10))
    with pytest.raises(
        ValueError, match="column 'a' of X holds numbers; its levels in fit were s"
    ):
        model.predict(as_numbers)
    model = CO2ForestClassifier(5, random_state=0).fit(as_numbers, y)
    with pytest.raises(
        ValueError, match="column 'a' of X holds strings; its levels in fit were n"
    ):
        model.predict(frame)


def test_categories_have_no_place_on_a_grid():
    frame = table()[["size", "city"]]
    y = target(CO2ForestClassifier(), table())
    with pytest.raises(ValueError, match="column 'city' of X is a category.*feature_shape"):
        ManifoldForestClassifier(5, feature_shape=(1, 2)).fit(frame, y)


@pytest.mark.parametrize("n_classes", [None, 2, 4])
@pytest.mark.parametrize("n_columns", [1, 3])
def test_target_statistics_are_those_of_a_plain_definition(n_classes, n_columns):
    """Means of the other folds, pulled towards the overall mean; classes on their main axis."""
    if n_classes and n_columns > 1:
        pytest.skip("one column of labels")
    rng = np.random.default_rng(0)
    n, n_levels = 200, 6
    entry = rng.integers(0, n_levels, size=n)
    Z = rng.random((n, 2)).astype(np.float32)
    if n_classes:
        y = ((entry + rng.integers(0, 2, size=n)) % n_classes)[:, None].astype(float)
        Y = (y == np.arange(n_classes)) * 1.0
        Y = Y[:, 1:] if n_classes == 2 else Y
    else:
        y = entry[:, None] * np.arange(1, n_columns + 1) + rng.normal(size=(n, n_columns))
        Y = y / y.std(axis=0)
    weight = rng.integers(1, 4, size=n).astype(float)
    statistics = TargetStatistics(Z, y, weight, n_classes)
    prior = weight @ Y / weight.sum()
    count = weight / weight.mean()
    every_level = range(n_levels)
    means = [np.average(Y[entry == k], axis=0, weights=count[entry == k]) for k in every_level]
    within = sum(
        (count[entry == k] @ np.square(Y[entry == k] - means[k])).sum() for k in every_level
    ) / (n - n_levels)
    n_of = np.bincount(entry, count)
    between = sum(n_of[k] * np.square(means[k] - prior).sum() for k in every_level)
    between = (between - (n_levels - 1) * within) / (n - np.square(n_of).sum() / n)
    extra = weight.mean() * within / between

    def deviation(level, rows):
        own = rows[entry[rows] == level]
        return (weight[own] @ (Y[own] - prior)) / (weight[own].sum() + extra)

    every = np.arange(n)
    found = np.stack([deviation(level, every) for level in range(n_levels)])
    of_level = np.bincount(entry, weight)
    axis = np.linalg.svd(found * np.sqrt(of_level)[:, None])[2][0]
    table = statistics.fit_table(entry, n_levels)
    axis *= np.sign((found @ axis) @ (table[:n_levels] - table[:n_levels].mean()))
    low, unit = (found @ axis).min(), np.ptp(found @ axis)
    np.testing.assert_allclose(table[:n_levels], (found @ axis - low) / unit, atol=1e-6)
    np.testing.assert_allclose(table[n_levels:], -low / unit, atol=1e-6)
    crossed = statistics.cross_fitted(entry, n_levels, table)
    for i in range(n):
        rest = every[every % N_FOLDS != i % N_FOLDS]
        expected = (deviation(entry[i], rest) @ axis - low) / unit
        assert crossed[i] == pytest.approx(expected, abs=1e-6)


def test_rows_that_differ_in_the_target_alone_get_one_value():
    entry = np.repeat(np.arange(3), 10)
    Z = entry[:, None].astype(np.float32)
    y = (np.arange(30) % 2)[:, None].astype(float)
    statistics = TargetStatistics(Z, y, np.ones(30), 2)
    table = statistics.fit_table(entry, 3)
    np.testing.assert_array_equal(statistics.cross_fitted(entry, 3, table), table[entry])


def test_labels_do_not_leak(every_feature):
    """A category of which two rows each share a level is worth nothing."""
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame({"id": [f"r{i % 300}" for i in range(n)], "x": rng.normal(size=n)})
    y = rng.integers(0, 2, size=n)
    model = ManifoldForestClassifier(20, random_state=0).fit(frame, y)
    feature_map = model.forest_.feature_map
    assert TARGET in feature_map.kind
    data = model._known_training_set(frame, y, None)
    column = data.X[:, list(feature_map.kind).index(TARGET)]
    assert abs(np.corrcoef(column, data.target)[0, 1]) < 0.15
    # The mean of the target with the row's own label tells it apart.
    whole = feature_map.transform(feature_map.coded(frame).astype(np.float32))
    assert abs(np.corrcoef(whole[:, list(feature_map.kind).index(TARGET)], y)[0, 1]) > 0.6


def test_levels_of_one_class_each():
    """The variance within levels is 0, and some levels have no row but the one left out."""
    n = 14
    X = pd.DataFrame({"a": [f"l{i % 13}" for i in range(n)], "b": np.arange(float(n))})
    y = (np.arange(n) % 13) % 2
    forest = ManifoldForestClassifier(5, random_state=0).fit(X, y)
    assert forest.score(X, y) > 0.7


def test_many_levels_are_learned():
    """Targets that depend on which of a thousand levels a row has."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 1000, size=20_000)
    effect = rng.normal(size=1000)
    frame = pd.DataFrame({"shop": level, "x": rng.normal(size=len(level))})
    frame["shop"] = frame["shop"].map("shop {}".format)
    y = effect[level] + 0.1 * rng.normal(size=len(level))
    model = ManifoldForestRegressor(10, random_state=0).fit(frame[:15_000], y[:15_000])
    assert model.score(frame[15_000:], y[15_000:]) > 0.85
    assert model.forest_.n_features == 3
    # A single column of categories, whose rows differ in the target alone.
    alone = ManifoldForestRegressor(10, random_state=0).fit(frame[["shop"]][:15_000], y[:15_000])
    assert alone.score(frame[["shop"]][15_000:], y[15_000:]) > 0.85


@pytest.mark.slow
def test_a_hundred_thousand_levels_take_seconds():
    rng = np.random.default_rng(0)
    n = 200_000
    frame = pd.DataFrame({"id": rng.integers(0, 100_000, size=n).astype(str)})
    frame["x"] = rng.normal(size=n)
    y = (frame["x"] > 0).to_numpy()
    start = time.process_time()
    model = ManifoldForestClassifier(2, max_depth=5, random_state=0).fit(frame, y)
    model.predict(frame)
    assert time.process_time() - start < 20
    assert model.forest_.nbytes < 50 * 2**20


# ------------------------------------------------------------------------- in the user's columns


@pytest.mark.every_class
def test_a_saved_model_predicts_from_the_same_table(estimator, tmp_path):
    frame = table()
    model = estimator.fit(frame, target(estimator, frame))
    expected = response(model, frame)
    skforest.save(model, tmp_path / "model.npz")
    skforest.save(model, tmp_path / "folder", layout="folder")
    for again in (
        skforest.load(tmp_path / "model.npz"),
        skforest.load(tmp_path / "folder", mmap_mode="r"),
        pickle.loads(pickle.dumps(model)),
    ):
        np.testing.assert_array_equal(response(again, frame), expected)
        np.testing.assert_array_equal(again.is_categorical_, model.is_categorical_)
    forest = Forest.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(forest.predict(frame), model.predict(frame))


def test_a_saved_model_predicts_in_a_fresh_process(tmp_path):
    frame = table()
    model = CO2ForestRegressor(5, random_state=0).fit(frame, target(CO2ForestRegressor(), frame))
    skforest.save(model, tmp_path / "model.npz")
    frame.to_pickle(tmp_path / "frame.pkl")
    code = (
        "import sys, pandas, skforest;"
        "model = skforest.load(sys.argv[1]);"
        "print(float(model.predict(pandas.read_pickle(sys.argv[2])).sum()))"
    )
    command = [sys.executable, "-c", code, tmp_path / "model.npz", tmp_path / "frame.pkl"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert float(shown) == model.predict(frame).sum()


@pytest.mark.every_class
def test_importances_and_names_are_those_of_the_columns(estimator):
    frame = table()
    model = estimator.fit(frame, target(estimator, frame))
    importances = model.feature_importances_
    assert importances.shape == (6,)
    assert importances.sum() == pytest.approx(1)
    assert {0, 2} <= set(np.argsort(importances)[-3:])  # size and city
    assert model.n_features_in_ == 6
    leaves = model.apply(frame)
    indicator, _ = model.decision_path(frame)
    assert indicator.shape[0] == N
    assert leaves.shape[0] == N


def test_plots_name_levels_and_missing_values(every_feature):
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    frame = table()[["city", "age"]]
    y = (table()["city"] == "Rome").to_numpy() | table()["age"].isna().to_numpy()
    model = CO2ForestClassifier(1, objective=None, bootstrap=False, max_features=None)
    model.set_params(random_state=0).fit(frame, y)
    artists = skforest.plot_tree(model, ax=Figure().subplots())
    shown = " ".join(a.get_text() for a in artists if hasattr(a, "get_text"))
    assert "city = Rome" in shown
    assert "age is missing" in shown


@pytest.mark.parametrize("cls", [CO2ForestClassifier, ManifoldForestClassifier])
def test_warm_start_and_refinement(cls):
    frame = table()
    y = target(cls(), frame)
    whole = cls(8, random_state=0).fit(frame, y)
    parts = cls(4, random_state=0, warm_start=True).fit(frame, y)
    parts.set_params(n_estimators=8).fit(frame, y)
    assert_same_trees(whole, parts)
    refined = skforest.refine(whole, frame, y, random_state=0)
    assert refined.score(frame, y) > 0.8
    assert refined.forest_.feature_map.levels == whole.forest_.feature_map.levels


def test_streams():
    frame = table(400)
    y = target(RandomHingeForestClassifier(), frame)
    model = RandomHingeForestClassifier(n_bags=1, random_state=0)
    for start in range(0, 400, 100):
        rows = slice(start, start + 100)
        model.partial_fit(frame[rows], y[rows], classes=[0, 1])
    assert model.score(frame, y) > 0.7


def test_out_of_bag_predictions():
    frame = table(300)
    y = target(CO2ForestClassifier(), frame)
    model = CO2ForestClassifier(30, oob_score=True, random_state=0).fit(frame, y)
    assert model.oob_score_ > 0.8
    assert len(model.oob_decision_function_) == 300


def test_modules_take_numbers_only():
    pytest.importorskip("torch")
    from skforest.torch import from_estimator

    frame = table()
    y = target(RandomHingeForestClassifier(), frame)
    model = RandomHingeForestClassifier(n_bags=1, max_iter=200, random_state=0).fit(frame, y)
    with pytest.raises(ValueError, match="categories"):
        from_estimator(model)


# ------------------------------------------------------------------------------------- the Forest


def stump(**changes):
    """A tree on the second of three features: a number and a category of two levels."""
    arrays = {
        "tree_start": [0, 3],
        "child": [1, -1, -2],
        "threshold": [0.5],
        "direction": [1],
        "value": [-1.0, 1.0],
        "fill": [0.25, 0.0],
        "source": [0, 1, 1],
        "kind": [VALUE, CODE, LEVEL],
        "table_start": [0, 0, 4, 8],
        "table": [0.0, 1.0, 0.5, 0.5, 0.0, 1.0, 0.0, 0.0],
    }
    metadata = {"n_features": 3, "n_outputs": 1, "task": "regression", "levels": {1: ["a", "b"]}}
    for name, value in changes.items():
        (metadata if name in metadata else arrays)[name] = value
    return Forest(arrays, **metadata)


def test_a_forest_made_by_hand_takes_a_table():
    forest = stump()
    assert forest.n_inputs == 2
    X = pd.DataFrame({"x": [1.0, np.nan, 2.0], "c": ["a", "b", None]})
    np.testing.assert_array_equal(forest.predict(X), [-1, 1, -1])
    np.testing.assert_array_equal(forest.map_features(X), [[1, 0, 0], [0.25, 1, 1], [2, 0.5, 0]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": [0, 1, 2]}, "source is out of range"),
        ({"source": [0, 1]}, "source needs one entry"),
        ({"source": [0, 0, 1]}, "table"),
        ({"kind": [VALUE, CODE, 7]}, "kind is out of range"),
        ({"kind": [VALUE, CODE]}, "source and kind differ"),
        ({"kind": [VALUE, CODE, IS_MISSING]}, "kind of its input"),
        ({"table_start": [0, 0, 4]}, "table_start has a wrong length"),
        ({"table_start": [0, 0, 4, 9]}, "table_start must rise"),
        ({"table_start": [0, 0, 3, 8]}, "a table has a wrong length"),
        ({"table": [0.0] * 7}, "table_start must rise"),
        ({"table": [np.nan] * 8}, "table contains values that are not finite"),
        ({"fill": [0.25, np.inf]}, "fill contains values"),
        ({"fill": []}, "out of range"),
        ({"levels": {1: ["a"]}}, "a table has a wrong length"),
        ({"levels": {1: ["a", "a"]}}, "two levels of input 1 are equal"),
        ({"levels": {1: ["a", None]}}, "not all numbers or strings"),
        ({"levels": {5: ["a", "b"]}}, "out of range"),
        ({"levels": [[1, ["a", "b"]], [1, ["a", "b"]]]}, "given twice"),
        ({"levels": None}, "table"),
    ],
)
def test_wrong_feature_maps(changes, message):
    with pytest.raises(ValueError, match=message):
        stump(**changes)


def test_missing_values_need_a_fill():
    plain = {"tree_start": [0, 3], "child": [1, -1, -2], "threshold": [0.5], "direction": [0]}
    forest = Forest(plain | {"value": [0.0, 1.0]}, n_features=1, n_outputs=1, task="regression")
    with pytest.raises(ValueError, match="X contains NaN"):
        forest.predict([[np.nan]])


# ---------------------------------------------------------------------------------- strange tables


def with_column(values, n=40):
    """A frame of a number and of a column that repeats the values, and labels."""
    column = np.fromiter((values[i % len(values)] for i in range(n)), dtype=object, count=n)
    frame = pd.DataFrame({"x": np.arange(n, dtype=float)})
    frame["c"] = pd.Series(column, dtype=object)
    return frame, np.arange(n) % 2


def small(**params):
    return CO2ForestClassifier(3, random_state=0, **params)


@pytest.mark.every_class
@pytest.mark.parametrize("columns", [[0, 1], [10, 20], pd.MultiIndex.from_tuples([(1, 2), "ab"])])
def test_columns_without_names(estimator, columns):
    frame = table()[["size", "city"]].set_axis(columns, axis=1)
    model = estimator.fit(frame, target(estimator, table()))
    np.testing.assert_array_equal(model.is_categorical_, [False, True])
    assert not hasattr(model, "feature_names_in_")
    np.testing.assert_array_equal(model.forest_.predict(frame), model.predict(frame))


@pytest.mark.parametrize("X", [pd.DataFrame(index=range(9)), np.zeros((9, 0), dtype=object)])
def test_tables_without_columns(X):
    with pytest.raises(ValueError, match="0 feature.*X has no columns"):
        small().fit(X, np.arange(9) % 2)
    frame, y = with_column(["a", "b"])
    with pytest.raises(ValueError, match="no columns"):
        small().fit(frame, y).forest_.predict(pd.DataFrame(index=range(9)))


@pytest.mark.parametrize(
    "values",
    [
        [[1], [2]], [{"a": 1}], [np.arange(2), np.arange(2)], [([1],), ([2],)],
        [Decimal("sNaN"), 1], [object(), "a"],
    ],
    ids=["list", "dict", "array", "tuple of list", "signaling", "object"],
)  # fmt: skip
def test_values_that_are_neither_numbers_nor_levels(values):
    frame, y = with_column(values)
    with pytest.raises((TypeError, ValueError), match="column 'c' of X"):
        small().fit(frame, y)
    with pytest.raises(TypeError, match="column 'c' of X has values that cannot be levels"):
        small(categorical_features=["c"]).fit(frame, y)
    model = small().fit(*with_column(["a", "b"]))
    with pytest.raises(TypeError, match="column 'c' of X has values that cannot be levels"):
        model.predict(frame)


@pytest.mark.parametrize(
    ("values", "levels"),
    [
        ([2**53, 2**53 + 1, 5], [5.0, 2.0**53, str(2**53 + 1)]),
        ([10**400, -(10**400)], [str(-(10**400)), str(10**400)]),
        ([1j, 2], [2.0, "1j"]),
        ([np.datetime64("NaT"), pd.NaT, pd.NA, None, np.nan, Decimal("nan"), "a"], ["a"]),
        ([(1, 2), pd.Interval(0, 1), b"x"], ["(0, 1]", "(1, 2)", "b'x'"]),
        ([True, np.True_, 1, np.int8(1), 1.0, Decimal(1), Fraction(1), 0], [0.0, 1.0]),
        ([-0.0, 0.0, np.inf, -np.inf], [-np.inf, 0.0, np.inf]),
        (["", "a\0", "\ud800", "e\u0301", "\u00e9", "nan"], None),
        (["x" * 10**5, "y" * 10**5], None),
    ],
    ids=lambda values: str(values)[:30],
)
def test_levels_of_any_value_are_saved(values, levels, tmp_path):
    frame, y = with_column(values)
    X = frame.to_numpy(dtype=object)
    model = small(categorical_features=[1]).fit(X, y)
    assert model.forest_.levels == {1: sorted(values) if levels is None else levels}
    skforest.save(model, tmp_path / "model.npz")
    for again in (skforest.load(tmp_path / "model.npz"), pickle.loads(pickle.dumps(model))):
        assert again.forest_.levels == model.forest_.levels
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_numbers_that_are_too_large_name_the_column():
    frame, y = with_column([10**400, 1])
    with pytest.raises(ValueError, match="column 'c' of X must hold numbers"):
        small().fit(frame, y)


def test_complex_columns_are_refused():
    frame = pd.DataFrame({"a": np.arange(20) * 1j, "b": np.arange(20)})
    with pytest.raises(ValueError, match="Complex data not supported: column 'a' of X"):
        small().fit(frame, np.arange(20) % 2)


@pytest.mark.parametrize("shape", [(20,), (20, 1)])
def test_structured_arrays_are_refused(shape):
    X = np.zeros(shape, dtype=[("a", float), ("b", int)])
    with pytest.raises(TypeError, match=r"structured dtype.*pandas.DataFrame\(X\)"):
        small().fit(X, np.arange(20) % 2)


def test_lazy_frames_and_series_say_what_to_pass():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"a": np.arange(20.0), "b": ["u", "v"] * 10})
    y = np.arange(20) % 2
    model = small().fit(frame, y)
    for function in (lambda X: small().fit(X, y), model.predict, model.forest_.predict):
        with pytest.raises(TypeError, match=r"LazyFrame.*X.collect\(\)"):
            function(frame.lazy())
    for series in (frame["b"], pd.Series(["u", "v"] * 10), np.array(["u", "v"] * 10)):
        with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
            small().fit(series, y)


def test_other_frames_of_polars_and_pyarrow():
    pl, pa = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    columns = {"a": np.arange(20.0), "b": ["u", "v"] * 10}
    y = np.arange(20) % 2
    expected = small().fit(pd.DataFrame(columns), y)
    batch = pa.record_batch({"a": columns["a"], "b": pa.array(columns["b"])})
    wide = pl.DataFrame(columns).with_columns(pl.col("a").cast(pl.Int128))
    enum = pl.DataFrame(columns).with_columns(pl.col("b").cast(pl.Enum(["v", "w", "u"])))
    for frame in (batch, wide, pa.table(batch).set_column(1, "b", batch["b"].dictionary_encode())):
        model = small().fit(frame, y)
        assert_same_trees(model, expected)
        np.testing.assert_array_equal(model.forest_.predict(frame), model.predict(frame))
    assert small().fit(enum, y).forest_.levels == {1: ["v", "u"]}


def test_a_forest_refuses_what_is_no_table():
    frame, y = with_column(["a", "b"])
    forests = small().fit(frame, y).forest_, small().fit(frame[["x"]], y).forest_
    for forest in forests:
        for X in (3, None, {"x": [1.0]}, scipy.sparse.csr_matrix((2, 2))):
            with pytest.raises(ValueError, match=f"X is of type {type(X).__name__}"):
                forest.predict(X)
        with pytest.raises(TypeError, match="column 'x' of X holds dates"):
            forest.predict(frame.assign(x=pd.Timestamp("2020-01-01")))
    with pytest.raises(ValueError, match="X has 1 features, the forest takes 2"):
        forests[0].predict(np.zeros(3))


def test_errors_do_not_advise_what_is_impossible():
    frame, y = with_column([1, 2])
    model = small().fit(frame, y)
    with pytest.raises(ValueError, match="string to float\\)$"):
        model.predict(frame.assign(c="a"))


@pytest.mark.every_class
def test_missing_values_and_levels_of_rows_without_weight(estimator):
    frame = table()
    y = target(estimator, frame)
    weight = np.arange(N) % 3 != 0
    hidden = frame.copy()
    hidden.loc[~weight, ["size", "age"]] = np.nan
    hidden.loc[~weight, ["city", "shop"]] = ["Paris", None]
    model = clone(estimator).fit(hidden, y, sample_weight=weight)
    assert_same_trees(model, estimator.fit(frame[weight], y[weight]))


def test_forests_with_other_maps_are_not_joined():
    one = stump()
    for changes, message in (
        ({"fill": [0.5, 0.0]}, "differ in fill"),
        ({"table": [0.0, 1.0, 0.5, 0.5, 1.0, 0.0, 0.0, 0.0]}, "differ in table"),
        ({"levels": {1: ["a", "c"]}}, "differ in levels$"),
        ({"kind": [VALUE, CODE, TARGET]}, "differ in kind"),
    ):
        with pytest.raises(ValueError, match=message):
            Forest.concatenate([one, stump(**changes)])
    other = stump()
    joined = Forest.concatenate([one, other])
    assert joined.levels == one.levels
    for same in (joined[1], joined[1].compact(), Forest.concatenate(list(joined))):
        X = pd.DataFrame({"x": [1.0, np.nan, 2.0], "c": ["a", "b", None]})
        np.testing.assert_array_equal(same.predict(X), one.predict(X))


def test_a_number_of_features_alone_takes_no_memory():
    """A small file may declare any number of features."""
    arrays = {"tree_start": [0, 1], "child": [-1], "threshold": [], "value": [0.5]}
    tracemalloc.start()
    try:
        Forest(arrays, n_features=2**31 - 1, n_outputs=1, task="regression")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()


def test_levels_are_checked_once_for_all_trees():
    frame, y = with_column([f"level {i}" for i in range(40)])
    model = CO2ForestClassifier(10, random_state=0).fit(frame, y)
    levels = model.forest_.levels
    assert Forest(model.forest_.arrays, **model.forest_.metadata).levels is levels
    with pytest.raises(ValueError, match="feature_names needs one entry"):
        Forest(model.forest_.arrays, **model.forest_.metadata | {"feature_names": ["x"]})


@pytest.mark.parametrize("cls", MODELS)
def test_an_interrupted_fit_leaves_the_model_as_it_was(cls, monkeypatch):
    frame = table()
    y = target(cls(), frame)
    model = cls(3, random_state=0).fit(frame, y)
    before = vars(model).copy()

    def interrupt(*args):
        raise KeyboardInterrupt

    for name in ("cross_fitted", "fit_table"):
        with monkeypatch.context() as patch:
            patch.setattr(TargetStatistics, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                model.fit(frame.assign(city="Paris"), y)
        assert vars(model) == before
    model.predict(frame)


def test_frames_in_scikit_learn():
    frame = table()
    y = target(CO2ForestClassifier(), frame)
    model = small(categorical_features=["city", "shop", "grade", "open"])
    assert clone(model).get_params() == model.get_params()
    grid = {"categorical_features": ["from_dtype", ["city", "shop", "grade"]]}
    assert GridSearchCV(model, grid, cv=2).fit(frame, y).best_score_ > 0.7
    scaled = make_column_transformer((StandardScaler(), ["size"]), remainder="passthrough")
    pipeline = make_pipeline(scaled.set_output(transform="pandas"), small())
    assert pipeline.fit(frame, y).score(frame, y) > 0.8
    voting = VotingClassifier([("a", small()), ("b", ManifoldForestClassifier(3))], voting="soft")
    assert voting.fit(frame, y).score(frame, y) > 0.8
    assert CalibratedClassifierCV(small(), cv=2).fit(frame, y).score(frame, y) > 0.7
    fitted = small().fit(frame, y)
    assert permutation_importance(fitted, frame, y, n_repeats=1).importances_mean.shape == (6,)
    known = frame[frame["city"].notna()]
    found = partial_dependence(fitted, known, ["city"], categorical_features=["city"])
    assert found["average"].shape == (1, 3)


def test_blocks_of_a_long_frame(estimator):
    frame = table()
    model = estimator.fit(frame, target(estimator, frame))
    expected = response(model, frame)
    for n_jobs in (1, 2, -1):
        model.set_params(n_jobs=n_jobs)
        found = response(model, pd.concat([frame] * 40))
        np.testing.assert_array_equal(found, np.concatenate([expected] * 40))
    np.testing.assert_array_equal(response(model, frame[4:5]), expected[4:5])


@pytest.mark.parametrize("cls", [CO2ForestClassifier, ManifoldForestClassifier])
def test_a_warm_start_meets_new_levels_and_missing_values(cls):
    frame = table()
    y = target(cls(), frame)
    model = cls(3, random_state=0, warm_start=True).fit(
        frame.dropna(), y[frame.notna().all(axis=1)]
    )
    levels = model.forest_.levels
    model.set_params(n_estimators=6).fit(frame.assign(shop="new"), y)
    assert model.forest_.levels == levels
    assert len(model.forest_) == 6
    with pytest.raises(ValueError, match="column 'city' of X holds numbers"):
        model.set_params(n_estimators=7).fit(frame.assign(city=1.0), y)
    assert len(model.forest_) == 6


def test_streams_meet_new_levels_and_missing_values():
    frame = table(300)
    y = target(RandomHingeForestClassifier(), frame)
    model = RandomHingeForestClassifier(n_bags=1, random_state=0)
    whole = frame.notna().all(axis=1).to_numpy()
    model.partial_fit(frame[whole], y[whole], classes=[0, 1])
    levels = model.forest_.levels
    for batch in (frame, frame.assign(city="Paris", age=np.nan), frame[:1]):
        model.partial_fit(batch, y[: len(batch)])
    assert model.forest_.levels == levels
    assert np.isfinite(model.predict_proba(frame)).all()


def test_several_outputs_with_categories():
    frame = table()
    y = target(CO2ForestRegressor(), frame)
    Y = np.c_[y, -y, frame["size"]]
    for cls in (CO2ForestRegressor, ManifoldForestRegressor):
        assert cls(5, random_state=0).fit(frame, Y).score(frame, Y) > 0.7


# ------------------------------------------------------------------------ few rows, and predictors


def test_few_rows_of_known_columns_are_read_without_validation(estimator):
    frame = table()
    estimator.fit(frame, target(estimator, frame))
    expected = response(estimator, frame)
    estimator.predict(frame[:1])  # is validated
    reader = vars(estimator.forest_)["_cached_reader"]
    for start in (*range(0, 30), 77):
        rows = frame[start : start + 2].copy()
        assert reader.matrix(rows) is not None
        np.testing.assert_array_equal(response(estimator, rows), expected[start : start + 2])
    new = pd.concat([frame[1:2]] * 2)
    new["city"], new["shop"] = ["Paris", "Bern"], "nowhere"
    many = response(estimator, pd.concat([new] * 40))
    np.testing.assert_array_equal(response(estimator, new), many[:2])


def test_few_rows_without_the_names_of_fit_warn_each_time():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    model = skforest.ManifoldForestRegressor(2, random_state=0).fit(frame, frame["a"])
    for _ in range(2):
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            model.predict(frame[:2].set_axis([0, 1], axis=1))
    model.predict(frame[:2])
    assert vars(model.forest_)["_cached_reader"].matrix(frame[:2]) is not None


def test_few_rows_of_numbers_that_are_levels():
    """The matrix of a frame of numbers has values, not codes."""
    pl = pytest.importorskip("polars")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=N), "k": rng.choice([3.0, 7.5, 2.0**60], N)})
    frame["i"] = rng.choice([5, 2**60, 2**60 + 1], N)
    y = (frame["k"] == 7.5) + 2 * (frame["i"] == 2**60)
    model = skforest.ManifoldForestClassifier(5, categorical_features=["k", "i"], random_state=0)
    expected = model.fit(frame, y).predict_proba(frame)
    for X in (frame, pl.DataFrame(frame.to_dict("list"))):
        model.predict(X[:1])
        assert vars(model.forest_)["_cached_reader"].matrix(X[:3]) is not None
        found = [model.predict_proba(X[i : i + 2]) for i in range(0, N, 2)]
        np.testing.assert_array_equal(np.concatenate(found), expected)
    assert vars(model.forest_)["_cached_reader"].matrix(frame[:3]) is None  # it is that of polars


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("size", "large", "could not convert|column 'size'"),
        ("size", np.inf, "infinity"),
        ("city", 3.0, "its levels in fit were strings"),
        ("shop", pd.Timestamp(0), None),
        ("city", None, None),
    ],
)
def test_few_rows_that_differ_raise_as_many_do(column, value, message):
    frame = table()
    model = skforest.ManifoldForestClassifier(5, random_state=0).fit(frame, target_of(frame))
    model.predict(frame[:2])
    rows = frame[:2].astype({column: object})
    rows.loc[0, column] = value
    rows.loc[1, column] = value
    if message is None:
        many = model.predict_proba(pd.concat([rows] * 40))
        for _ in range(2):  # validated, and read
            np.testing.assert_array_equal(model.predict_proba(rows), many[:2])
        return
    for _ in range(2):
        with pytest.raises((ValueError, TypeError), match=message):
            model.predict(rows)


def target_of(frame):
    return (frame["city"] == "Rome").astype(int)


def test_a_predictor_takes_codes_of_categories(estimator):
    frame = table().astype({"size": np.float32})
    estimator.fit(frame, target(estimator, frame))
    expected, predictor = response(estimator, frame), estimator.predictor()
    with pytest.raises(TypeError, match=r"DataFrame; a predictor .*encode"):
        predictor(frame)
    rows = predictor.encode(frame)
    # The features read numbers that float32 represents.
    np.testing.assert_array_equal(predictor(rows), expected)
    np.testing.assert_array_equal(predictor(rows[7]), expected[7])
    rows[:, 3] = 1000  # no code
    unknown = frame.assign(shop="nowhere")
    np.testing.assert_array_equal(predictor(rows), response(estimator, unknown))
