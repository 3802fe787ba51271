"""Categories of tables: levels, unknown values, features."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from makers import N_ROWS as N
from makers import TABLE_MODELS as MODELS
from makers import assert_same_trees, response
from makers import mixed_table as table
from makers import mixed_target as target

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
)
from skforest.table.feature_map import CODE, LEVEL, TARGET, VALUE
from skforest.table.target_statistics import TargetStatistics


@pytest.mark.parametrize(
    "given",
    [
        *([False, True, False], [1], ["b"], np.array(["b"], dtype=object), np.array([1]), ("b",)),
        *(range(1, 2), pd.Index(["b"]), pd.Series(["b"]), pd.Series([False, True, False])),
        pd.Series({"c": False, "b": True, "a": False}),
        pd.Series({"b": True}),
    ],
    ids=lambda given: "".join(repr(given).split()),
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
        (pd.Series({"z": True}), "'z', which is not a column"),
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


def test_numbers_of_no_level_count_as_unknown():
    """Damaged files can make them."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 5, 300).astype(float)
    X = np.column_stack([level, rng.normal(size=300)])
    for cls in (ManifoldForestRegressor, CO2ForestRegressor):
        model = cls(5, categorical_features=[0], random_state=0).fit(X, level + X[:, 1])
        # The first one says that it is unknown.
        codes = np.array([-1.0, 5.0, 6.0, 1e30, -1e30, 0.5, 3.9, -0.5])
        rows = np.column_stack([codes, np.zeros(8)])
        for found in (model.forest_.response(rows), model.forest_.feature_map.transform(rows)):
            np.testing.assert_array_equal(found, found[[0] * 8])


@pytest.mark.parametrize("cls", MODELS)
def test_rows_of_weight_0_have_no_levels(cls):
    """Neither levels of their own, nor a part in what is a category."""
    frame = table()
    y, there = target(cls(), frame), np.arange(N) >= 10
    model = cls(3, random_state=0).fit(frame[there], y[there])
    other = frame.assign(city=np.where(there, frame["city"], "Nowhere"))
    weighted = cls(3, random_state=0).fit(other, y, sample_weight=1.0 * there)
    assert weighted.forest_.levels == model.forest_.levels
    assert_same_trees(weighted, model)


def test_a_missing_level_has_the_mean_number_of_the_rows(every_feature):
    rng = np.random.default_rng(0)
    code = np.minimum(rng.integers(0, 12, 200), 3)
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": np.array(list("abcd"))[code]})
    frame.loc[::9, "c"] = None
    weight = rng.integers(1, 4, 200)
    y = rng.normal(size=200)
    feature_map = ManifoldForestRegressor(2).fit(frame, y, weight).forest_.feature_map
    table = feature_map.table_of(list(feature_map.kind).index(CODE))
    known = frame["c"].notna().to_numpy()
    assert table[4] == pytest.approx(np.average(code[known], weights=weight[known]))


def test_the_code_of_an_unknown_level_is_that_of_the_typical_one(every_feature):
    """And that of a missing value, if there is none in training."""
    code = np.random.default_rng(0).permutation(np.repeat(np.arange(6), 50))
    frame = pd.DataFrame({"x": code % 7, "c": np.array(list("abcdef"))[code]})
    y = np.array([0.0, 9, 0, 0, 5, 9])[code]  # with a mean of 3.8
    feature_map = ManifoldForestRegressor(2, random_state=0).fit(frame, y).forest_.feature_map
    table = feature_map.table_of(list(feature_map.kind).index(CODE))
    assert table.tolist() == [0, 1, 2, 3, 4, 5, 4, 4]


@pytest.mark.thin(2)
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


@pytest.mark.thin(2)
@pytest.mark.every_class
@pytest.mark.parametrize("n_levels", [2, 5])
def test_unknown_levels_predict_between_the_others(regressor, n_levels):
    """They are no arbitrary level, even if no feature but the category matters."""
    estimator = regressor
    rng = np.random.default_rng(0)
    level, effect = rng.integers(0, n_levels, 200), np.linspace(-1, 1, n_levels)
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": [f"l{k}" for k in level]})
    y = effect[level] + 0.1 * rng.normal(size=200)
    if "n_estimators" in estimator.get_params() and "n_bags" not in estimator.get_params():
        estimator.set_params(n_estimators=30)
    elif "learning_rate" in estimator.get_params():
        estimator.set_params(n_bags=6)
    model = estimator.fit(frame, y)
    ends = [response(model, frame.assign(c=f"l{k}")).mean(axis=0) for k in (0, n_levels - 1)]
    found = response(model, frame.assign(c="new"))
    np.testing.assert_array_equal(response(model, frame.assign(c=None)), found)
    share = np.ravel((found.mean(axis=0) - ends[0]) / (ends[1] - ends[0]))[0]
    # Of two levels, single splits send others to one side; there are too few here for a mean.
    assert 0.2 < share < 0.8 if n_levels > 2 else 0.02 < share < 0.98


@pytest.mark.every_class
@pytest.mark.parametrize("is_missing", [False, True])
def test_an_unknown_level_is_like_the_frequent_one_of_two(regressor, is_missing):
    rng = np.random.default_rng(0)
    is_rare = rng.random(200) < 0.1
    frame = pd.DataFrame({"x": rng.normal(size=200), "c": np.where(is_rare, "yes", "no")})
    if is_missing:
        frame["c"] = frame.c.astype(object).where(rng.random(200) > 0.1, None)
    model = regressor.fit(frame, 5.0 * is_rare)
    mean = response(model, frame.assign(c="new")).mean()
    assert mean < 2, "near the mean of 0.5, and not half way to the rare level"


def other_values(frame, kind):
    """Columns of text that are no categories, and the reason."""
    n = np.arange(len(frame))
    return {
        "numbers as text": [f"{k / 7:.3f}" for k in n[::-1]],
        "dates or times as text": pd.date_range("2020-01-01", periods=len(n)).astype(str),
        "as many levels as rows, or nearly": [f"id {k:04d}" for k in n],
    }[kind]


@pytest.mark.thin(2)
@pytest.mark.every_class
@pytest.mark.parametrize("kind", list(skforest.estimators.validation.NO_CATEGORIES))
def test_text_that_is_no_category_takes_no_part(estimator, kind):
    frame = table()[["size", "open"]]
    y = target(estimator, table())
    text = frame.assign(text=other_values(frame, kind))
    text.loc[text.index[:7], "text"] = None
    with pytest.warns(UserWarning, match=rf"are not used: .*'text' \({kind}\)") as told:
        model = estimator.fit(text, y)
    assert [one.filename for one in told] == [__file__]
    assert model.feature_importances_[2] == 0
    np.testing.assert_array_equal(
        response(model, text.iloc[9:]), response(model, text.iloc[9:].assign(text="other"))
    )
    assert list(map(len, model.forest_.levels.values())) == [1]


@pytest.mark.parametrize(
    ("levels", "n_rows", "expected"),
    [
        ([f"id {k}" for k in range(24)], 30, "as many"),
        ([f"id {k}" for k in range(24)], 29, None),
        ([f"id {k}" for k in range(24)], 31, None),
        ([float(k) for k in range(80)], 100, "as many"),
        ([str(k) for k in range(32)], 319, "numbers"),
        ([str(k) for k in range(32)], 320, None),
        ([str(k) for k in range(31)], 200, None),
        (["$1,200.50", *map(str, range(80)), "?", "unknown"], 99, "numbers"),
        ([*map(str, range(36)), "a", "b", "c", "d"], 200, "numbers"),
        ([*map(str, range(35)), "a", "b", "c", "d", "e"], 200, None),
        ([f"{k} Jan 2{k:03d}" for k in range(32)], 319, "dates"),
        ([f"{k} Jan 2{k:03d}" for k in range(32)], 320, None),
        ([f"{k:05d}" for k in range(60)], 300, None),
        ([f"{k}:00" for k in range(31)], 10**6, None),
        ([f"1{k // 10}:{k % 10}0 pm" for k in range(32)], 200, "dates"),
        (["nan", "inf", *[f"v{k}" for k in range(60)]], 200, None),
    ],
)
def test_when_text_is_no_category(levels, n_rows, expected):
    found = skforest.estimators.validation.why_no_category(levels, n_rows)
    assert found is None if expected is None else found.startswith(expected)


def test_named_and_ordered_columns_are_categories_whatever_they_hold(recwarn):
    n = 60
    text = [f"{k}.5" for k in range(n)]
    frame = pd.DataFrame({"a": text, "x": np.arange(n) % 7})
    y = np.arange(n) % 2
    ordered = frame.assign(a=pd.Categorical(text, categories=text, ordered=True))
    for X, given in ((frame, ["a"]), (ordered, "from_dtype")):
        model = ManifoldForestClassifier(5, categorical_features=given, random_state=0).fit(X, y)
        assert len(model.forest_.levels[0]) == n
    assert not recwarn.list


def test_a_weight_does_not_change_what_is_a_category():
    frame = pd.DataFrame({"a": [f"id {k % 40}" for k in range(50)], "x": np.arange(50.0)})
    y = np.arange(50) % 2
    for X, labels, weight in (
        (frame, y, np.full(50, 3)),
        (pd.concat([frame] * 3), [*y] * 3, None),
    ):
        with pytest.warns(UserWarning, match="are not used"):
            CO2ForestClassifier(2).fit(X, labels, sample_weight=weight)


def test_a_blend_warns_once():
    frame = table()[["size", "open"]]
    text = frame.assign(t=[f"id {k}" for k in range(N)])
    y = target(CO2ForestClassifier(), table())
    members = [ManifoldForestClassifier(5), CO2ForestClassifier(2, refine="nongreedy")]
    blend = skforest.BlendedForestClassifier(members, cv=2, random_state=0)
    with pytest.warns(UserWarning, match="'t'") as told:
        blend.fit(text, y)
    assert len(told) == 1


def test_empty_strings_are_missing_values(every_feature):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"c": rng.choice(["", "a", "b"], 60), "x": rng.normal(size=60)})
    y = (frame["c"] == "").astype(int)
    model = ManifoldForestClassifier(5, random_state=0).fit(frame, y)
    assert model.forest_.levels == {0: ["a", "b"]}
    filled = frame.astype({"c": object}).replace({"c": {"": None}})
    for rows in (slice(None), slice(3)):
        np.testing.assert_array_equal(
            model.predict_proba(frame[rows]), model.predict_proba(filled[rows])
        )
    assert model.score(filled, y) == 1


def test_a_column_of_unknown_levels_only_is_told():
    frame = table()[["size", "city"]]
    model = skforest.ManifoldForestRegressor(3, random_state=0).fit(frame, frame["size"])
    loud = frame.assign(city=frame["city"].str.upper())
    message = r"column 'city' of X has only levels that were not in fit, such as '[A-Z]+'; known"
    for kept, others in ((loud, message), (loud[:5], None), (frame, None)):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            model.predict(kept)
        assert len(told) == (others is not None)
        assert all(re.match(others, str(one.message)) for one in told)
    some = loud.assign(city=loud["city"].where(loud.index > 3, frame["city"]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(some)


@pytest.mark.parametrize(
    ("column", "is_told"),
    [
        (np.arange(150) + 1000, True),
        (np.random.default_rng(0).permutation(290)[:150], True),
        (np.arange(150.0), False),  # such as the days of DateFeatures
        (np.random.default_rng(0).permutation(900)[:150], False),  # with large gaps
        (np.arange(150) // 2, False),
        (np.arange(150) + 0.5, False),
        (np.where(np.arange(150) == 120, np.nan, np.arange(150)), False),
        (np.arange(99), False),
    ],
)
def test_numbers_of_rows_are_told(column, is_told):
    """Linear functions of later numbers are extrapolated."""
    X = pd.DataFrame({"a": np.sin(np.arange(len(column))), "id": column})
    if is_told:  # an array has one dtype
        with pytest.warns(UserWarning, match="number in every row, without large gaps: 1. Leave"):
            skforest.ManifoldForestRegressor(2).fit(X.to_numpy(), X["a"])
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        skforest.BlendedForestRegressor(["manifold", "co2"], random_state=0).fit(X, X["a"])
    assert len(told) == is_told
    for one in told:
        assert (
            "different whole number in every row" in str(one.message) and one.filename == __file__
        )
        assert "'id'" in str(one.message) and "'a'" not in str(one.message)


def test_levels_of_another_type_are_unknown_with_a_warning():
    frame = pd.DataFrame({"a": ["1", "2", "3"] * 10, "b": np.arange(30.0)})
    y = np.arange(30) % 2
    model = CO2ForestClassifier(5, random_state=0).fit(frame, y)
    as_numbers = frame.assign(a=pd.Categorical([1, 2, 3] * 10))
    for X, other, message in (
        (frame, as_numbers, "column 'a' of X holds numbers; its levels in fit were s.*astype"),
        (as_numbers, frame, "column 'a' of X holds strings; its levels in fit were n.*to_numeric"),
    ):
        model = CO2ForestClassifier(5, random_state=0).fit(X, y)
        with pytest.warns(UserWarning, match=message) as told:
            found = model.predict_proba(other)
        assert [one.filename for one in told] == [__file__]
        unknown = frame.assign(a=pd.Categorical([9] * 30) if X is as_numbers else "9")
        np.testing.assert_array_equal(found, model.predict_proba(unknown))
        with pytest.raises(ValueError, match=message):  # wrong rows are not trained on
            model.set_params(warm_start=True, n_estimators=6).fit(other, y)


@pytest.mark.parametrize("kind", ["pyarrow", "pandas of pyarrow", "polars", "polars to pyarrow"])
def test_ordered_dictionaries_keep_their_order(kind):
    pa = pytest.importorskip("pyarrow")
    order = ["tiny", "big", "huge", "mid", "zero", "alpha"]
    rng = np.random.default_rng(0)
    size = pd.Categorical(rng.choice(order, 200), categories=order, ordered=True)
    frame = pd.DataFrame({"a": rng.normal(size=200), "size": size})
    y = frame["size"].cat.codes > 2
    table = pa.Table.from_pandas(frame, preserve_index=False)
    if kind == "pandas of pyarrow":
        dtype = pd.ArrowDtype(table.schema.field("size").type)
        table = frame.assign(size=frame["size"].astype(dtype))
    elif kind.startswith("polars"):
        polars = pytest.importorskip("polars")
        table = polars.DataFrame({"a": frame["a"].to_numpy(), "size": list(size)})
        table = table.with_columns(polars.col("size").cast(polars.Enum(order)))
        table = table.to_arrow() if kind == "polars to pyarrow" else table
    expected, found = (
        ManifoldForestClassifier(5, random_state=0).fit(t, y) for t in (frame, table)
    )
    assert expected.forest_.levels == found.forest_.levels == {1: order}
    assert_same_trees(expected, found)


def test_categories_have_no_place_on_a_grid():
    frame = table()[["size", "city"]]
    y = target(CO2ForestClassifier(), table())
    with pytest.raises(ValueError, match="column 'city' of X is a category.*feature_shape"):
        ManifoldForestClassifier(5, feature_shape=(1, 2)).fit(frame, y)


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
    model = ManifoldForestRegressor(5, random_state=0).fit(frame[:15_000], y[:15_000])
    assert model.score(frame[15_000:], y[15_000:]) > 0.85
    assert model.forest_.n_features == 3
    # A single column of categories, whose rows differ in the target alone.
    alone = ManifoldForestRegressor(3, random_state=0).fit(frame[["shop"]][:15_000], y[:15_000])
    assert alone.score(frame[["shop"]][15_000:], y[15_000:]) > 0.85


@pytest.mark.slow
def test_a_hundred_thousand_levels():
    rng = np.random.default_rng(0)
    n = 200_000
    frame = pd.DataFrame({"id": rng.integers(0, 100_000, size=n).astype(str)})
    frame["x"] = rng.normal(size=n)
    y = (frame["x"] > 0).to_numpy()
    model = ManifoldForestClassifier(2, max_depth=5, random_state=0).fit(frame, y)
    model.predict(frame)
    assert model.forest_.nbytes < 50 * 2**20


@pytest.mark.parametrize("cls", MODELS)
def test_an_interrupted_fit_leaves_the_model_as_it_was(cls, monkeypatch):
    frame = table()
    y = target(cls(), frame)
    model = cls(3, random_state=0).fit(frame, y)
    before = vars(model).copy()

    def interrupt(*args):
        raise KeyboardInterrupt

    for name in ("cross_fitted", "fit_tables"):
        with monkeypatch.context() as patch:
            patch.setattr(TargetStatistics, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                model.fit(frame.assign(city="Paris"), y)
        assert vars(model) == before
    model.predict(frame)


def test_json_has_no_infinite_levels():
    X = np.c_[np.arange(60.0), np.tile([1, 2, np.inf], 20)]
    forest = ManifoldForestClassifier(2, categorical_features=[1]).fit(X, np.arange(60) % 3)
    with pytest.raises(ValueError, match="column 1 has an infinite level"):
        skforest.to_dict(forest)
