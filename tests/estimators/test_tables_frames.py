"""Tables as they come: data frames of every library, columns of every type, strange tables."""

import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from makers import N_ROWS as N
from makers import TABLE_MODELS as MODELS
from makers import assert_same_trees, response
from makers import mixed_table as table
from makers import mixed_target as target
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import VotingClassifier
from sklearn.inspection import partial_dependence, permutation_importance
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import CO2ForestClassifier, Forest, ManifoldForestClassifier

# ------------------------------------------------------------------------------------- data frames


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


@pytest.mark.thin(2)
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


@pytest.mark.thin(2)
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


def test_a_column_of_none_is_a_number_that_is_missing():
    """narwhals gives such objects of pandas the dtype of strings."""
    frame = table()[["age", "size", "city"]]
    y = np.arange(N) % 2
    for kinds in ("from_dtype", ["city"]):
        none = small(categorical_features=kinds).fit(frame.assign(size=None), y)
        plain = small(categorical_features=kinds).fit(frame.assign(size=np.nan), y)
        assert_same_trees(none, plain)
        np.testing.assert_array_equal(none.is_categorical_, [False, False, True])
    frame = frame[["age", "size"]]
    assert small(categorical_features=None).fit(frame.assign(size=None), y).is_categorical_ is None
    # narwhals infers the dtype of objects from the first 100.
    late = pd.DataFrame({"a": pd.Series([None] * 110 + [1.5] * 10, dtype=object)})
    assert small().fit(late, np.arange(120) % 2).is_categorical_ is None
    late["a"] = late["a"].astype(object).where(late["a"].isna(), "u")
    assert small().fit(late, np.arange(120) % 2).is_categorical_ is not None


@pytest.mark.parametrize("dtype", [object, "string", "category", "polars", "pyarrow"])
def test_a_number_is_missing_in_every_row_to_predict(dtype):
    frame = table()[["age", "size"]]
    y = np.arange(N) % 2
    model = small().fit(frame, y)
    rows = pd.DataFrame([{"age": 40.0, "size": None}])
    plain = rows.astype(float)
    if dtype == "polars":
        rows = pytest.importorskip("polars").DataFrame(rows, schema_overrides={"size": str})
    elif dtype == "pyarrow":
        pa = pytest.importorskip("pyarrow")
        levels = pa.nulls(1, pa.string()).dictionary_encode()
        rows = pa.table({"age": [40.0], "size": levels})
    else:
        rows = rows.astype({"size": dtype})
    for _ in range(2):  # the second time, a reader of known columns may be there
        np.testing.assert_array_equal(model.predict_proba(rows), model.predict_proba(plain))
    encode = model.predictor().encode
    np.testing.assert_array_equal(encode(rows), encode(plain))


def test_missing_numbers_are_explained():
    frame = table()[["age", "size"]]
    y = np.arange(N) % 2
    rows = pd.DataFrame([{"age": 40.0, "size": None}])
    model = small().fit(frame, y)
    found = [skforest.shapley_values(model, X, frame[:9]) for X in (rows, rows.astype(float))]
    np.testing.assert_array_equal(found[0].values, found[1].values)
    found = [skforest.counterfactual(model, X, frame) for X in (rows, rows.astype(float))]
    assert found[0].distance == found[1].distance
    boosting = skforest.ObliqueBoostingClassifier(n_estimators=5, n_bags=1, random_state=0)
    boosting.fit(frame, y, X_val=frame[:9].assign(size=None), y_val=y[:9])


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


@pytest.mark.thin(2)
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


# ---------------------------------------------------------------------------------- strange tables


def with_column(values, n=40):
    """A frame of a number and of a column that repeats the values, and labels."""
    column = np.fromiter((values[i % len(values)] for i in range(n)), dtype=object, count=n)
    frame = pd.DataFrame({"x": np.arange(n, dtype=float)})
    frame["c"] = pd.Series(column, dtype=object)
    return frame, np.arange(n) % 2


def small(**params):
    return CO2ForestClassifier(3, random_state=0, **params)


@pytest.mark.thin(2)
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
        (["a\0", "\ud800", "e\u0301", "\u00e9", "nan"], None),
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
        for X in (3, None, scipy.sparse.csr_matrix((2, 2))):
            with pytest.raises(ValueError, match=f"X is of type {type(X).__name__}"):
                forest.predict(X)
        with pytest.raises(TypeError, match=r"X is a dict; .* pandas.DataFrame\(X\)"):
            forest.predict({"x": [1.0]})
        with pytest.raises(TypeError, match="column 'x' of X holds dates"):
            forest.predict(frame.assign(x=pd.Timestamp("2020-01-01")))
    with pytest.raises(ValueError, match="X has 1 features, the forest takes 2"):
        forests[0].predict(np.zeros(3))


def test_errors_do_not_advise_what_is_impossible():
    frame, y = with_column([1, 2])
    model = small().fit(frame, y)
    with pytest.raises(ValueError, match="string to float\\)$"):
        model.predict(frame.assign(c="a"))


def test_levels_are_checked_once_for_all_trees():
    frame, y = with_column([f"level {i}" for i in range(20)])
    model = CO2ForestClassifier(10, random_state=0).fit(frame, y)
    levels = model.forest_.levels
    assert Forest(model.forest_.arrays, **model.forest_.metadata).levels is levels
    with pytest.raises(ValueError, match="feature_names needs one entry"):
        Forest(model.forest_.arrays, **model.forest_.metadata | {"feature_names": ["x"]})


@pytest.mark.parametrize("text", ["nan", "2", "1_000"])
def test_numbers_as_text_among_numbers_are_refused(text):
    X = pd.DataFrame({"a": [1.5, text] * 20, "b": np.arange(40.0)})
    with pytest.raises(ValueError, match="column 'a' of X must hold numbers.*" + text):
        ManifoldForestClassifier(1).fit(X, np.arange(40) % 2)


LONG = [-1, 2**53 + 1, 2**53 + 3, 2**53 + 5]


def test_long_identifiers_with_missing_values_in_every_call():
    """pandas returns categories of whole numbers as floats if a value is missing."""
    number = np.arange(60) % 4
    values = [LONG[i] for i in number]
    values[7] = None
    X = pd.DataFrame({"id": pd.Categorical(values, categories=LONG)})
    model = skforest.ManifoldForestRegressor(5, bootstrap=False, random_state=0)
    model.fit(X, number.astype(float))
    expected = model.predict(X)
    np.testing.assert_allclose(expected[8:], number[8:], atol=0.01)
    for _ in range(3):
        np.testing.assert_array_equal(model.predict(X[:8]), expected[:8])


def test_a_missing_value_among_dicts_does_not_round_long_identifiers():
    number = np.arange(60) % 4
    X = pd.DataFrame({"id": pd.array([LONG[i] for i in number], dtype="Int64")})
    model = skforest.ManifoldForestRegressor(
        5, bootstrap=False, random_state=0, categorical_features=["id"]
    )
    model.fit(X, number.astype(float))
    rows = [{"id": LONG[i]} for i in number[:40]]
    rows[39]["id"] = None
    np.testing.assert_array_equal(model.predict(rows)[:39], model.predict(X)[:39])
    np.testing.assert_array_equal(model.predictor()(rows)[:39], model.predict(X)[:39])
