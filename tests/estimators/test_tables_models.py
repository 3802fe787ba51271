"""Fitted models of tables: files, warm starts and streams, and the prediction of few rows."""

import inspect
import json
import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from json_reader import response as json_response
from makers import N_ROWS as N
from makers import assert_same_trees, response
from makers import mixed_table as table
from makers import mixed_target as target
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor

import skforest
from skforest import (
    BlendedForestRegressor,
    CO2ForestClassifier,
    CO2ForestRegressor,
    EffectDisplay,
    Forest,
    LeafEmbedding,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingRegressor,
    PartitionDisplay,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)

# ------------------------------------------------------------------------------------------- files


@pytest.mark.thin(2)
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


# ------------------------------------------------------- warm starts, streams, weights and outputs


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


def test_ordered_levels_of_a_stream_stay_ordered():
    """Numbers as text are no category, unless their dtype has an order."""
    level = np.arange(48)
    sizes = pd.Categorical.from_codes(level, [str(size) for size in 30 + level], ordered=True)
    frame, y = pd.DataFrame({"size": sizes}), level // 24
    model = RandomHingeForestClassifier(n_bags=1, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for rows in (slice(0, 48, 2), slice(1, 48, 2)):
            model.partial_fit(frame[rows], y[rows], classes=[0, 1])
    assert len(model.forest_.feature_map.levels[0]) == 48


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
    model = RandomHingeForestClassifier(5, n_bags=1, max_iter=20, random_state=0).fit(frame, y)
    with pytest.raises(ValueError, match="categories"):
        from_estimator(model)


@pytest.mark.thin(2)
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
    with pytest.warns(UserWarning, match="'shop' of X has only levels that were not in fit"):
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


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_numbers_of_any_length_are_read_without_validation(library, monkeypatch):
    """For thousands of columns, it takes far longer than predicting."""
    maker = pytest.importorskip(library).DataFrame
    columns = {
        f"x{j}": column for j, column in enumerate(np.random.default_rng(0).normal(size=(3, N)))
    }
    columns["x2"] = columns["x2"].astype(np.float32)
    frame, y = maker(columns), columns["x0"] > columns["x2"]
    model = skforest.ManifoldForestClassifier(5, random_state=0).fit(frame, y)
    expected = model.predict_proba(frame)
    reader = vars(model.forest_)["_cached_reader"]
    assert reader.matrix(frame).dtype == np.float64
    np.testing.assert_array_equal(model.predict_proba(frame), expected)
    monkeypatch.setattr("skforest.estimators.base.BLOCK", 64)  # they are predicted in blocks
    blocks, in_threads = [], skforest.training.threads.in_threads
    monkeypatch.setattr(
        "skforest.training.threads.in_threads",
        lambda function, items, n: (
            blocks.append((len(items), n)) or in_threads(function, items, n)
        ),
    )
    model.set_params(n_jobs=2)
    np.testing.assert_array_equal(model.predict_proba(frame), expected)
    assert blocks == [(-(-N // 64), 2)]
    with pytest.raises(ValueError, match=r"infinity.*column 'x1'"):
        model.predict(maker(columns | {"x1": np.where(np.arange(N) == 7, np.inf, 0.0)}))
    whole = maker({name: np.round(column).astype(np.int32) for name, column in columns.items()})
    plain = maker({name: np.round(column).astype(np.float64) for name, column in columns.items()})
    assert reader.matrix(whole) is None and reader.matrix(plain) is None  # of other dtypes
    np.testing.assert_array_equal(model.predict_proba(whole), model.predict_proba(plain))
    model.fit(whole, y).predict(whole)
    reader = vars(model.forest_)["_cached_reader"]  # which does not even convert them
    assert reader.matrix(whole) is None and not reader.takes_many
    with pytest.raises(ValueError, match="feature names"):
        model.predict(maker(dict(zip("abc", columns.values()))))


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
        reader = vars(model.forest_)["_cached_reader"]
        assert reader.matrix(X[:3]) is not None and reader.matrix(X) is None  # of few rows only
        found = [model.predict_proba(X[i : i + 2]) for i in range(0, N, 2)]
        np.testing.assert_array_equal(np.concatenate(found), expected)
    assert vars(model.forest_)["_cached_reader"].matrix(frame[:3]) is None  # it is that of polars
    text = json.loads(json.dumps(skforest.to_dict(model)))
    rows = json.loads(json.dumps(list(zip(*frame[:20].to_dict("list").values()))))
    np.testing.assert_allclose(
        [json_response(text, row) for row in rows], expected[:20], atol=1e-6
    )


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("size", "large", "could not convert|column 'size'"),
        ("size", np.inf, "infinity"),
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


def odd_frames(frame):
    """Three rows of a frame, as they are and with what is wrong or unusual, by name."""
    rows = frame[:3]
    yield "none", frame[:0]
    yield "order", rows[rows.columns[::-1]]
    yield "fewer", rows[rows.columns[:-1]]
    yield "more", rows.assign(z=1)
    yield "renamed", rows.rename(columns={rows.columns[0]: "other"})
    yield "array", rows.to_numpy()
    yield "dicts", rows.to_dict("records")
    values = [np.inf, 1e300, np.nan, None, "text", "", 3.0, 2**70, pd.Timestamp(0), [1], {"a": 1}]
    for column in rows:
        for value in [*values, 1j, b"x", pd.NA, np.True_, (1, 2), object()]:
            for n in (1, 3):
                entries = pd.Series([*rows[column][n:], *[value] * n], dtype=object)
                yield f"{column}, {value}, {n}", rows.assign(**{column: entries})
        for dtype in ("float32", "int8", "Int64", "string", "category", "bool", "complex128"):
            try:
                yield f"{column}, {dtype}", rows.astype({column: dtype})
            except (TypeError, ValueError):
                continue


def outcome(model, X):
    """Predictions, or the error, and the warnings."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            found = model.predict(X).tolist()
        except (TypeError, ValueError) as error:
            found = type(error), re.sub("0x[0-9a-f]+", "", str(error))
    return found, [str(one.message) for one in told]


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (skforest.CO2ForestRegressor, ["a", "c"]),
        (skforest.ManifoldForestRegressor, ["a", "k"]),
        (skforest.ManifoldForestRegressor, ["c"]),
    ],
)
def test_few_rows_are_checked_alike_before_and_after_the_first_ones(cls, names):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=40), "c": rng.choice(["p", "q", "r"], 40)})
    frame = frame.assign(k=rng.integers(0, 5, 40)).astype({"c": object})[names]
    model = cls(2, random_state=0).fit(frame, rng.normal(size=40))
    state = pickle.dumps(model)
    for name, X in odd_frames(frame):
        model.predict(frame[:2])
        first, *later = outcome(pickle.loads(state), X), outcome(model, X), outcome(model, X)
        assert later == [first, first], name


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ({"size": 3.0}, r"a dict.*DataFrame\(\[X\]\)"),
        ({"size": [3.0]}, r"a dict.*DataFrame\(X\)"),
        ([{"size": 3.0}], r"a list of dicts.*DataFrame\(X\)"),
        (np.array([{"size": 3.0}]), "a list of dicts"),
        ('{"size": 3.0}', r"text.*json\.loads"),
        (b"[]", "text"),
    ],
)
def test_records_are_refused_with_what_to_write(rows, what):
    X = table()[["size"]].to_numpy()
    model = skforest.ManifoldForestClassifier(2).fit(X, target_of(table()))
    members = [skforest.ManifoldForestClassifier(5)]
    blend = skforest.BlendedForestClassifier(members, cv=2).fit(X, target_of(table()))
    for one in (model, blend):
        for call in (one.predict, one.predict_proba, one.predictor(), one.predictor().encode):
            with pytest.raises(TypeError, match=f"X is {what}"):
                call(rows)
        with pytest.raises(TypeError, match=f"X is {what}"):
            one.fit(rows, [0])


@pytest.fixture(scope="module")
def models_of_records():
    """Models of a table with names, and a few of its rows as dicts."""
    frame, y = table(), target_of(table())
    members = [skforest.ManifoldForestClassifier(2), skforest.ObliqueBoostingClassifier(2)]
    outside = [LogisticRegression(), skforest.ManifoldForestClassifier(2)]
    models = [
        skforest.ManifoldForestClassifier(2, random_state=0).fit(frame, y),
        skforest.BlendedForestClassifier(members, cv=2, random_state=0).fit(frame, y),
        skforest.BlendedForestClassifier(outside, cv=2, random_state=0).fit(frame, y),
    ]
    return models, frame[:4]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
def test_rows_as_dicts(models_of_records):
    models, frame = models_of_records
    rows = [dict(reversed(row.items())) for row in frame.to_dict("records")]
    rows = [{k: None if v != v else v for k, v in row.items()} for row in rows]  # as JSON
    for model in models:
        expected = model.predict_proba(frame)
        np.testing.assert_array_equal(model.predict_proba(rows), expected)
        np.testing.assert_array_equal(model.predict(tuple(rows)), model.predict(frame))
    for model in models[:2]:
        predictor = model.predictor()
        np.testing.assert_allclose(predictor(rows), model.predict_proba(frame), rtol=1e-5)
        np.testing.assert_array_equal(predictor(rows[3]), predictor(rows)[3])
        assert predictor.predict(rows[3]) == model.predict(frame)[3]
    frame = table()[["size"]]
    only = [LogisticRegression()]
    blend = skforest.BlendedForestClassifier(only, cv=2).fit(frame.fillna(0), target_of(table()))
    found = blend.predictor()({"size": 3.0})
    np.testing.assert_allclose(found, blend.predict_proba([{"size": 3.0}])[0], rtol=1e-5)


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_rows_as_dicts_without_pandas(models_of_records, monkeypatch, library):
    pytest.importorskip(library)
    (model, *_), frame = models_of_records
    rows = frame.astype({"size": object}).to_dict("records")
    rows = [{k: None if v != v else v for k, v in row.items()} for row in rows]
    rows[0]["age"], rows[1]["age"] = 3, 3.5
    expected = model.predict_proba(frame.assign(age=[3, 3.5, *frame["age"][2:]]))
    monkeypatch.setattr("skforest.table.records.find_spec", lambda name: name == library)
    np.testing.assert_array_equal(model.predict_proba(10 * rows), np.tile(expected, (10, 1)))
    monkeypatch.setattr("skforest.table.records.find_spec", lambda name: None)
    with pytest.raises(TypeError, match=r"list of dicts.*DataFrame\(X\)"):
        model.predict(10 * rows)
    for one in (model, pickle.loads(pickle.dumps(model))):  # few rows need no frame
        np.testing.assert_array_equal(one.predict_proba(rows), expected)


def test_dicts_with_other_keys(models_of_records):
    (model, *_), frame = models_of_records
    first, second = frame[:2].to_dict("records")
    del first["city"]
    for call in (model.predict, model.predictor()):
        with pytest.raises(ValueError, match=r"row 1 of X has no \['city'\]"):
            call([second, first])
        with pytest.raises(ValueError, match=r"row 0 of X has the unknown keys \['sice'\]"):
            call([second | {"sice": 1.0}])
    with pytest.raises(TypeError, match=r"a dict.*DataFrame\(\[X\]\)"):
        model.predict(second)
    with pytest.raises(TypeError, match=r"a dict.*DataFrame\(X\)"):
        model.predictor()({"size": [1.0]})


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
    unknown = frame.assign(city="nowhere", shop="nowhere")
    # None is a level: right behind the last one, far from it, and between the first two.
    for first, code in ((1, 0), (1, 1000), (0, 0.5)):
        for j in (2, 3):
            rows[:, j] = first * len(estimator.forest_.levels[j]) + code
        np.testing.assert_array_equal(predictor(rows), response(estimator, unknown))


# ----------------------------------------------------------------------------------- lists of rows

# What takes rows of a model and their target, by the names of the models that it takes; "" is all.
USES = {
    "predict": lambda m, q, y: m.predict(q),
    "predict_interval blend": lambda m, q, y: m.predict_interval(q[:5]),
    "score": lambda m, q, y: m.score(q, y),
    "predictor forest named boosting": lambda m, q, y: m.predictor().encode(q[:5]),
    "apply forest named boosting": lambda m, q, y: m.apply(q),
    "decision_path forest named boosting": lambda m, q, y: m.decision_path(q)[0].toarray(),
    "Forest.predict forest named boosting": lambda m, q, y: m.forest_.predict(q),
    "refine forest": lambda m, q, y: skforest.refine(m, q, y, random_state=0).predict(q),
    "LeafEmbedding forest": lambda m, q, y: LeafEmbedding(m).fit(q, y).transform(q).toarray(),
    "staged_scores forest boosting": lambda m, q, y: skforest.staged_scores(m, {"": (q, y)})[
        "score"
    ][""],
    "proximity forest named boosting blend": lambda m, q, y: skforest.proximity(
        m, q[:5], q
    ).toarray(),
    "prototypes forest": lambda m, q, y: [*skforest.prototypes(m, q, y > 1, 1).values()],
    "shapley_values": lambda m, q, y: skforest.shapley_values(m, q[:4], q[20:40]).values,
    "counterfactual": lambda m, q, y: (
        skforest.counterfactual(m, q[0], q, (y[0] + 1, 9)).prediction
    ),
    "distil named blend": lambda m, q, y: skforest.distil(
        m, q, n_estimators=9, random_state=0
    ).predict(q),
    "leaderboard named blend": lambda m, q, y: skforest.leaderboard({"": m}, q, y, metrics=["r2"])[
        "r2"
    ],
    "estimate_cost named blend": lambda m, q, y: [*skforest.estimate_cost(m, q, y).samples],
    "describe named others": lambda m, q, y: str(skforest.describe(m, q, y)).split("== Scores")[1],
    "EffectDisplay": lambda m, q, y: EffectDisplay.from_estimator(m, q, [0]).effects[0].average,
    "PartitionDisplay": lambda m, q, y: (
        PartitionDisplay.from_estimator(m, q, features=[2, 3], grid_resolution=5).response
    ),
}
MEMBERS = [("forest", ManifoldForestRegressor(8)), ("boosting", ObliqueBoostingRegressor(9))]
OTHERS = [("forest", ManifoldForestRegressor(8)), ("tree", DecisionTreeRegressor(random_state=0))]
MODELS = {
    "forest": ManifoldForestRegressor(8, bootstrap=True),
    "named": ManifoldForestRegressor(8, bootstrap=True, categorical_features=[0, 1]),
    "boosting": ObliqueBoostingRegressor(9),
    "blend": BlendedForestRegressor(MEMBERS),
    "others": BlendedForestRegressor(OTHERS, categorical_features=[0, 1]),
}


@pytest.fixture(scope="module")
def rows_and_models():
    """A list of rows with text and numbers, its target, and models of it and of the same array."""
    rng = np.random.default_rng(0)
    columns = rng.integers(1, 5, N), rng.choice(["x", "y"], N), *rng.normal(size=(2, N))
    rows = [[int(a), str(b), float(c), float(d)] for a, b, c, d in zip(*columns)]
    y = np.array([3.0 * (a == 2) + (b == "x") + c for a, b, c, _ in rows])
    objects = np.array(rows, dtype=object)
    models = {
        name: [clone(model).set_params(random_state=0).fit(q, y) for q in (rows, objects)]
        for name, model in MODELS.items()
    }
    return rows, objects, y, models


# Those of a blend take seconds.
LONG = {"distil": "blend", "leaderboard": "blend", "estimate_cost": "blend", "describe": "others"}
CASES = [
    pytest.param(use, name, marks=[pytest.mark.slow] * (LONG.get(use.split()[0]) == name))
    for use in USES
    for name in use.split()[1:] or MODELS
]


@pytest.mark.parametrize("use, name", CASES)
def test_lists_of_rows_are_read_like_arrays_of_objects(
    rows_and_models, use, name, without_pictures
):
    """Numbers beside text stay numbers, wherever a table is taken."""
    plt = pytest.importorskip("matplotlib.pyplot")
    rows, objects, y, models = rows_and_models
    of_list, of_array = models[name]
    expected = USES[use](of_array, objects, y)
    for found in (USES[use](of_array, rows, y), USES[use](of_list, rows, y)):
        np.testing.assert_array_equal(found, expected)
    plt.close("all")


@pytest.mark.parametrize("kind", ["X_val", "blended X_val", "partial_fit"])
def test_lists_of_other_rows_are_read_like_arrays_of_objects(rows_and_models, kind):
    rows, objects, y, _ = rows_and_models
    found = []
    for q in (rows, objects):
        if kind == "partial_fit":
            model = RandomHingeForestRegressor(3, random_state=0)
            model.partial_fit(q[:80], y[:80]).partial_fit(q[80:], y[80:])
        else:
            model = MODELS["blend" if "blend" in kind else "boosting"]
            model = clone(model).set_params(random_state=0)
            model.fit(q[40:], y[40:], X_val=q[:40], y_val=y[:40])
        found.append(model.predict(q))
    np.testing.assert_array_equal(*found)


def test_every_public_function_of_a_table_is_tried_with_lists():
    tried = {use.split()[0] for use in USES}
    for name in skforest.__all__:
        one = getattr(skforest, name)
        one = getattr(one, "from_estimator", one)
        takes = inspect.signature(one).parameters if inspect.isroutine(one) else {}
        assert name in tried or not {"X", "X_test", "background"} & set(takes), name
