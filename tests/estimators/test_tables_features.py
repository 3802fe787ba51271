"""Features of tables, for every estimator: missing values, names, maps of features."""

import tracemalloc
from functools import partial

import numpy as np
import pandas as pd
import pytest
from makers import N_ROWS as N
from makers import TABLE_MODELS as MODELS
from makers import assert_same_trees, response
from makers import mixed_table as table
from makers import mixed_target as target
from scipy.stats import chi2
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    Forest,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    RandomHingeForestClassifier,
)
from skforest.table.feature_map import CODE, IS_MISSING, LEVEL, TARGET, VALUE, FeatureMap
from skforest.training import trials

# ---------------------------------------------------------------------------------- missing values


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
        error = partial(lambda sign, data, *_: sign * data.X.shape[1], sign)
        monkeypatch.setattr(skforest.training.trials, "_held_out_error", error)
        model = cls(5, random_state=0).fit(X, y)
        is_kept = sign == -1 or cls is RandomHingeForestClassifier
        assert model.forest_.n_features == 5 + is_kept


def test_informative_indicators_are_those_of_a_z_test(monkeypatch):
    """Several classes, weights, several outputs; tests by hand."""
    monkeypatch.setattr(skforest.training.trials, "_held_out_error", lambda *_: 0.0)
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


@pytest.mark.thin(2)
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
    # Beside missing values, the positive one would be taken for one of them.
    X[::4, 0] = np.nan
    if value > 0:
        with pytest.raises(ValueError, match="missing values, and 3.4028235e.38.*rescale it"):
            model.fit(X, y)
    else:
        assert (model.fit(X, y).predict(X)[::4] == y[::4]).all()


# -------------------------------------------------------------------------------- names of columns


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


# -------------------------------------------------------------------------------------- the Forest


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


@pytest.mark.parametrize("n_first, expected", [(12, 0.5), (19, 0.5), (20, 0.5), (21, 0.7)])
def test_unknown_levels_count_as_a_level_with_two_thirds_of_the_rows(n_first, expected):
    frame = pd.DataFrame({"c": ["a"] * n_first + ["b"] * (30 - n_first), "x": np.arange(30.0)})
    model = ManifoldForestClassifier(2, random_state=0).fit(frame, np.arange(30) >= n_first)
    feature_map = model.forest_.feature_map
    rows = feature_map.transform(feature_map.coded(pd.DataFrame({"c": ["z"], "x": [1.0]})))
    is_level = feature_map.kind == LEVEL
    np.testing.assert_allclose(np.sort(rows[0, is_level])[-1], expected, rtol=1e-6)


@pytest.mark.parametrize("empty", [[], [1], [0, 2], [0, 1, 2]])
def test_columns_without_values_do_not_count_for_a_common_unit(empty):
    X = np.random.default_rng(0).uniform(100, 200, size=(20, 3))
    X[:, empty] = np.nan
    feature_map = FeatureMap.fit(X, np.ones(20), scaling="common")
    low, high = (0, 1) if len(empty) == 3 else (np.nanmin(X), np.nanmax(X))
    np.testing.assert_allclose(feature_map.offset, low)
    np.testing.assert_allclose(feature_map.scale, 1 / (high - low))


@pytest.mark.parametrize("has_missing", [False, True])
@pytest.mark.parametrize("n", [2, 3, 9, 10, 11])
def test_few_levels_have_indicators_and_many_a_mean_of_the_target(n, has_missing, every_feature):
    frame = pd.DataFrame({"c": [f"l{i % n:02d}" for i in range(66)], "x": np.arange(66.0)})
    if has_missing:
        frame.loc[60:, "c"] = None
    model = ManifoldForestClassifier(1, random_state=0).fit(frame, np.arange(66) % 2)
    kind = model.forest_.feature_map.kind
    n_entries = n + has_missing
    n_indicators = n_entries if n_entries <= 10 else int(has_missing)
    assert (kind == LEVEL).sum() == n_indicators
    assert (kind == CODE).sum() == (n > 2) and (kind == TARGET).sum() == (n_entries > 10)


def slopes_in_levels(n, n_levels=30, seed=0):
    """A table where the effect of a number depends on the level of a category."""
    rng = np.random.default_rng(seed)
    level, slope = rng.integers(0, n_levels, n), 2 * rng.normal(size=n_levels)
    frame = pd.DataFrame({"x": rng.normal(size=n), "z": rng.normal(size=n)})
    frame["c"] = [f"l{k:02d}" for k in level]
    return frame, slope[level] * frame["x"] + frame["z"]


def n_indicators(model):
    return int((model.forest_.feature_map.kind == LEVEL).sum())


def test_many_levels_have_indicators_where_they_help():
    frame, y = slopes_in_levels(1600)
    X, others = frame[:1200], frame[1200:]
    model = CO2ForestRegressor(30, random_state=0).fit(X, y[:1200])
    assert n_indicators(model) == 30
    assert model.score(others, y[1200:]) > 0.7
    names = model.forest_.feature_map.feature_names(frame.columns)
    assert names[:6] == ["x", "z", "c", "c (target mean)", "c = l00", "c = l01"]
    mean = X["c"].map(dict(zip(sorted(set(X["c"])), np.linspace(-3, 3, 30)))) + X["x"]
    assert n_indicators(CO2ForestRegressor(3, random_state=0).fit(X, mean)) == 0
    for n_levels, n in ((11, 11), (40, 40), (41, 0)):
        frame, y = slopes_in_levels(1600, n_levels)
        assert n_indicators(CO2ForestRegressor(1, random_state=0).fit(frame, y)) == n


def test_features_are_chosen_in_all_threads(monkeypatch):
    """With the same trees as in one thread."""
    frame, y = slopes_in_levels(600)
    train, numbers = trials.train_small, []

    def counted(function, models, n_jobs, limit):
        numbers.append(n_jobs)
        return train(function, models, n_jobs, limit)

    monkeypatch.setattr(trials, "train_small", counted)
    fitted = [CO2ForestRegressor(2, n_jobs=n, random_state=0).fit(frame, y) for n in (1, 3)]
    assert set(numbers) == {1, 3}
    np.testing.assert_array_equal(*(model.predict(frame) for model in fitted))


def test_weights_of_rows_with_many_levels_are_copies():
    frame, y = slopes_in_levels(1800)
    k = np.random.default_rng(2).integers(0, 3, 1800)
    model = CO2ForestRegressor(3, random_state=0).fit(frame, y, k)
    rows = np.repeat(np.arange(1800), k)
    copies = CO2ForestRegressor(3, random_state=0).fit(frame.iloc[rows], y.iloc[rows])
    assert n_indicators(model) == n_indicators(copies) == 30
    np.testing.assert_array_equal(copies.predict(frame), model.predict(frame))


def test_indicators_are_tried_for_the_most_important_categories(monkeypatch):
    monkeypatch.setattr(skforest.training.trials, "MAX_CATEGORIES", 1)
    frame, y = slopes_in_levels(1200)
    rng = np.random.default_rng(1)
    noise = {f"n{k}": [f"v{i}" for i in rng.integers(0, 20, 1200)] for k in range(3)}
    frame = frame.assign(**noise)[[*noise, "c", "x", "z"]]
    assert n_indicators(CO2ForestRegressor(3, random_state=0).fit(frame, y)) == 30


@pytest.mark.parametrize("cls", [CO2ForestRegressor, ManifoldForestRegressor])
def test_indicators_of_training_rows_are_those_of_later_rows(cls, every_feature):
    """Also of missing values, whose number may be that of a level."""
    level = np.repeat(np.arange(15), 20)
    frame = pd.DataFrame({"c": [f"l{k:02d}" for k in level], "x": np.arange(300.0) % 7})
    frame.loc[level == 3, "c"] = None
    frame.loc[level == 11, "c"] = None  # the mean number of 13 levels is 6
    model = cls(2, random_state=0).fit(frame, frame["x"])
    data = model._known_training_set(frame, frame["x"], None)
    assert data.feature_map.without_indicators == [0]
    F, feature_map = data.feature_map.with_indicators(data.X, 0)
    rows = data.row_of_sample
    expected = feature_map.transform(feature_map.coded(frame))
    is_target = feature_map.kind == TARGET
    np.testing.assert_array_equal(F[rows][:, ~is_target], expected[:, ~is_target])
    is_level = (feature_map.kind == LEVEL) & ~feature_map.says_missing
    np.testing.assert_array_equal(F[:, is_level].sum(axis=0) > 0, True)
