"""Fitted models as files, pickles, in skops and in other processes: the same bits come back."""

import copy
import functools
import os
import pickle
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from conftest import ESTIMATORS, small
from makers import response
from reloaded import assert_same, fitted, new_rows, task, trained
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest.table.matrix import is_mapped


def plain_params(model):
    """Its parameters, and those of its procedure in place of the procedure."""
    params = model.get_params().items()
    return {name: value for name, value in params if not hasattr(value, "get_params")}


def by_file(model, folder):
    skforest.save(model, folder / "model.npz")
    return skforest.load(folder / "model.npz")


def by_folder(model, folder):
    skforest.save(model, folder / "model", layout="folder")
    return skforest.load(folder / "model")


def by_map(model, folder):
    skforest.save(model, folder / "model", layout="folder")
    return skforest.load(folder / "model", mmap_mode="r")


def by_pickle(model, folder):
    return pickle.loads(pickle.dumps(model))


def by_old_pickle(model, folder):
    return pickle.loads(pickle.dumps(model, protocol=2))


def by_deepcopy(model, folder):
    return copy.deepcopy(model)


def by_joblib(model, folder):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib")


def by_mapped_joblib(model, folder):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", mmap_mode="r")


FILES = [by_file, by_folder, by_map]

WAYS = [*FILES, by_pickle, by_old_pickle, by_deepcopy, by_joblib, by_mapped_joblib]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def any_way(request):
    return request.param


@pytest.fixture(params=FILES, ids=lambda way: way.__name__)
def file_way(request):
    return request.param


@pytest.fixture(params=[by_file, by_map, by_pickle], ids=lambda way: way.__name__)
def way(request):
    return request.param


# ------------------------------------------------------------------------------ the same again


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_the_same_bits(estimator, any_way, tmp_path):
    model = fitted(estimator)
    assert_same(model, any_way(model, tmp_path))


@pytest.mark.needs("projection")
@pytest.mark.parametrize(
    "params",
    [
        {"projection": "axis"},
        {"feature_shape": (2, 3), "wrap": (True, False), "contrast": "difference"},
        {"feature_shape": (2, 3), "unordered": [True, False], "max_leaf_nodes": 9},
        {"oob_score": True, "n_estimators": 40, "min_samples_leaf": 5},
    ],
    ids=str,
)
def test_every_kind_of_direction(estimator, way, tmp_path, params):
    model = fitted(estimator, **params)
    other = way(model, tmp_path)
    assert_same(model, other)
    assert plain_params(other) == plain_params(model)
    assert type(other.procedure) is type(model.procedure)
    if "oob_score" in params:
        assert other.oob_score_ == model.oob_score_
    if "feature_shape" in params:
        assert other.feature_shape_ == (2, 3)
        images = new_rows().reshape(-1, 2, 3)
        np.testing.assert_array_equal(other.predict(images), model.predict(images))


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
@pytest.mark.needs("min_weight_fraction_leaf")
def test_predictions_that_are_missing_stay_missing(estimator, way, tmp_path):
    model = fitted(estimator, oob_score=True, n_estimators=2)
    other = way(model, tmp_path)
    name = "oob_decision_function_" if is_classifier(model) else "oob_prediction_"
    assert np.isnan(getattr(model, name)).any()
    np.testing.assert_array_equal(getattr(other, name), getattr(model, name))


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "labels",
    [
        np.array([10, -3, 10**12]),
        np.array([3, 1, 2], dtype=np.int8),
        np.array([0, 1, 255], dtype=np.uint8),
        np.array(["setosa", "versicolor", "ü"]),
        np.array(["a", "b", "a longer one"], dtype=object),
        np.array([1.0, 2.0, -5.0]),
        np.array([1, 2, 3], dtype=np.float32),
    ],
    ids=["int64", "int8", "uint8", "str", "object", "float64", "float32"],
)
def test_classes_of_every_dtype(classifier, way, tmp_path, labels):
    X, y = task(classifier)
    model = clone(classifier).fit(X, labels[y])
    other = way(model, tmp_path)
    assert other.classes_.tolist() == model.classes_.tolist()
    if labels.dtype != object:
        assert other.classes_.dtype == labels.dtype
        assert other.predict(X).dtype == labels.dtype
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    np.testing.assert_array_equal(other.forest_.predict(X), model.predict(X))
    assert other.score(X, labels[y]) == model.score(X, labels[y])


def test_bool_classes(classifier, way, tmp_path):
    X, y = task(classifier)
    model = clone(classifier).fit(X, y == 1)
    other = way(model, tmp_path)
    assert other.classes_.dtype == bool
    assert_same(model, other)


@pytest.mark.parametrize("names", [list("abcdef"), ["größe", "x y", "", "1", "\n", "漢"]], ids=str)
def test_feature_names(estimator, way, tmp_path, names):
    pd = pytest.importorskip("pandas")
    X, y = task(estimator)
    frame = pd.DataFrame(X, columns=names)
    model = clone(estimator).fit(frame, y)
    other = way(model, tmp_path)
    assert other.feature_names_in_.tolist() == names
    assert other.feature_names_in_.dtype == object
    assert other.forest_.feature_names == names
    assert_same(model, other, pd.DataFrame(new_rows(), columns=names))
    with pytest.raises(ValueError, match="feature names"):
        other.predict(frame.rename(columns={names[0]: "other"}))


def test_no_feature_names(estimator, way, tmp_path):
    other = way(fitted(estimator), tmp_path)
    assert not hasattr(other, "feature_names_in_")
    assert other.n_features_in_ == 6
    with pytest.raises(ValueError, match="X has 5 features"):
        other.predict(new_rows()[:, :5])


def test_several_outputs(regressor, way, tmp_path):
    X, y = task(regressor)
    for target in (np.column_stack([y, -y, y + 1e6]), y[:, None], y):
        model = clone(regressor).fit(X, target)
        other = way(model, tmp_path)
        assert_same(model, other)
        assert other.predict(X).shape == target.shape


# ---------------------------------------------------------------------------------- parameters


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "weight",
    [{0: 1, 1: 2.5, 2: 1}, {np.int64(0): 1, np.int64(1): np.float64(3), 2: 1}, "balanced"],
    ids=["int keys", "numpy keys", "balanced"],
)
def test_class_weight_comes_back(classifier, file_way, tmp_path, weight):
    model = fitted(classifier, class_weight=weight)
    other = file_way(model, tmp_path)
    assert other.class_weight == weight
    if isinstance(weight, dict):
        assert all(isinstance(key, int) for key in other.class_weight)
    assert_same(clone(other).fit(*task(other)), model)


def test_class_weight_by_name_comes_back(classifier, file_way, tmp_path):
    X, y = task(classifier)
    weight = {"a": 1, "b": 2, "c": 3}
    model = clone(classifier).set_params(class_weight=weight).fit(X, np.array(list("abc"))[y])
    assert file_way(model, tmp_path).class_weight == weight


@pytest.mark.thin(2)
@pytest.mark.needs("projection")
@pytest.mark.parametrize(
    "shape", [(2, 3), [2, 3], np.array([2, 3]), 6, np.int32(6)], ids=lambda s: type(s).__name__
)
def test_parameters_with_arrays_and_tuples(estimator, file_way, tmp_path, shape):
    n_axes = np.size(shape)
    model = fitted(
        estimator,
        feature_shape=shape,
        max_patch=np.ones(n_axes, dtype=np.int16) * 2,
        wrap=(True,) * n_axes,
        max_features=np.float64(0.5),
        max_depth=None,
    )
    other = file_way(model, tmp_path)
    found = plain_params(other)
    assert other.get_params().keys() == model.get_params().keys()
    for name, value in plain_params(model).items():
        assert np.array_equal(found[name], value), name
        if isinstance(value, np.ndarray | tuple | list):
            assert type(found[name]) is type(value)
    assert found["procedure__max_patch"].dtype == np.int16
    assert_same(model, other)
    assert_same(clone(other).fit(*task(other)), model)


@pytest.mark.needs("projection")
def test_numbers_come_back_exactly(estimator, file_way, tmp_path):
    params = {"min_impurity_decrease": 0.1 + 0.2, "n_nonzeros": 2 + 1e-3, "max_samples": 1 / 3}
    model = fitted(estimator, **params)
    assert plain_params(file_way(model, tmp_path)) == plain_params(model)


COLUMNS = pd.DataFrame({"a": np.arange(80) % 5, "b": np.sin(np.arange(80)), "c": np.zeros(80)})
OF_FRAMES = [
    ({"categorical_features": COLUMNS.columns[[0]]}, ["a"]),
    ({"categorical_features": COLUMNS.dtypes == "int64"}, ["a"]),
    ({"categorical_features": np.array(["a"], dtype=object)}, ["a"]),
    ({"categorical_features": range(1)}, [0]),
    ({"monotonic_cst": pd.Series([0, 1, 0])}, [0, 1, 0]),
    ({"monotonic_cst": pd.Series({"c": 0, "b": 1, "a": 0})}, {"c": 0, "b": 1, "a": 0}),
    ({"interaction_cst": [COLUMNS.columns[:2], ["c"]]}, [["a", "b"], ["c"]]),
    ({"prior": pd.Series({"v": 0.3, "u": 0.7})}, {"v": 0.3, "u": 0.7}),
]


@pytest.mark.parametrize(
    "params, expected", OF_FRAMES, ids=lambda value: "".join(str(value).split())
)
def test_parameters_that_pandas_made(params, expected, tmp_path):
    """They are lists and dicts in the file, and another fit gives the same model."""
    y = np.where(COLUMNS["b"] + 0.1 * COLUMNS["a"] > 0.2, "u", "v")
    model = skforest.ObliqueBoostingClassifier(5, n_bags=1, random_state=0, **params)
    skforest.save(model.fit(COLUMNS, y), tmp_path / "model")
    other = skforest.load(tmp_path / "model")
    assert other.get_params()[next(iter(params))] == expected
    expected = model.predict_proba(COLUMNS)
    for one in (other, other.fit(COLUMNS, y)):
        np.testing.assert_array_equal(one.predict_proba(COLUMNS), expected)


def test_labels_that_numpy_cannot_hold_are_refused(tmp_path):
    """Characters NUL at the end of a text are lost in arrays of text."""
    X = np.arange(20.0)[:, None]
    y = np.array(["a\0", "a"] * 10, dtype=object)
    model = skforest.ManifoldForestClassifier(3, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="labels with NUL characters at the end"):
        skforest.save(model, tmp_path / "model")


def test_generator_as_random_state(estimator, file_way, tmp_path):
    model = fitted(estimator, random_state=np.random.RandomState(0))
    other = file_way(model, tmp_path)
    assert other.random_state is None
    np.testing.assert_array_equal(response(other, new_rows()), response(model, new_rows()))


def test_a_parameter_that_cannot_be_saved(estimator, tmp_path):
    model = fitted(estimator)
    model.set_params(verbose=object())
    for layout in ("file", "folder"):
        with pytest.raises(TypeError, match="verbose.*object.*cannot be saved"):
            skforest.save(model, tmp_path / layout, layout=layout)
        assert not (tmp_path / layout).exists()


@pytest.mark.needs("min_weight_fraction_leaf")
def test_warm_start_continues_after_loading(estimator, way, tmp_path):
    model = fitted(estimator, warm_start=True)
    other = way(model, tmp_path)
    for one in (model, other):
        one.set_params(n_estimators=14).fit(*task(one))
    assert_same(model, other)
    assert_same(model.set_params(warm_start=False), fitted(estimator, n_estimators=14))


def dated_model():
    """A pipeline in a search, and its rows: dates of three kinds, numbers and a category."""
    when = pd.Timestamp("2025-03-01 06:00", tz="Europe/Oslo") + pd.to_timedelta(range(60), "D")
    X = pd.DataFrame(
        {"when": when, "text": when.strftime("%d.%m.%Y"), "size": np.arange(60.0) % 7}
    )
    X["city"] = np.array(["Bern", "Oslo"])[np.arange(60) % 2]
    forest = skforest.ManifoldForestRegressor(5, random_state=0)
    steps = [("dates", skforest.DateFeatures(columns=["when", "text"])), ("forest", forest)]
    search = GridSearchCV(Pipeline(steps), {"forest__max_depth": [3]}, cv=2)
    return search.fit(X, np.arange(60.0)), X


@pytest.mark.parametrize("by", [by_file, by_folder])
def test_pipelines_with_dates(by, tmp_path):
    model, X = dated_model()
    again = by(model, tmp_path)
    assert [name for name, _ in again.steps] == ["dates", "forest"]
    assert again[0].columns == ["when", "text"] and type(again) is Pipeline
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    names = again[0].get_feature_names_out()
    np.testing.assert_array_equal(names, model.best_estimator_[0].get_feature_names_out())
    with pytest.raises(ValueError, match="feature names"):
        again.predict(X[["text", "when", "size", "city"]])
    blend = skforest.BlendedForestRegressor([skforest.ManifoldForestRegressor(5)], random_state=0)
    dates = np.array(X["text"], dtype=object)[:, None]
    blend = make_pipeline(skforest.DateFeatures(), blend).fit(dates, X["size"])
    again = by(blend, tmp_path)
    np.testing.assert_array_equal(again.predict(dates), blend.predict(dates))
    scaled = make_pipeline(StandardScaler(), clone(blend[-1])).fit(X[["size"]], X["size"])
    with pytest.raises(TypeError, match="'standardscaler'.*not part of a file"):
        skforest.save(scaled, tmp_path / "model.npz")


def test_saving_again_gives_the_same_file(estimator, tmp_path):
    model = fitted(estimator)
    skforest.save(model, tmp_path / "a.npz")
    again = skforest.load(tmp_path / "a.npz")
    skforest.save(again, tmp_path / "b.npz")
    with np.load(tmp_path / "a.npz") as a, np.load(tmp_path / "b.npz") as b:
        assert a.files == b.files
        for name in a.files:
            np.testing.assert_array_equal(a[name], b[name])
    assert_same(model, skforest.load(tmp_path / "b.npz"))


def with_huber_loss():
    options = {"loss": skforest.HuberLoss(2.0), "n_bags": 1, "random_state": 0}
    return fitted(skforest.ObliqueBoostingRegressor(3, **options))


# --------------------------------------------------------------------------------------- skops


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_skops_needs_no_trust_beyond_our_own_classes(estimator, tmp_path):
    skops = pytest.importorskip("skops.io")
    model = fitted(estimator)
    file = tmp_path / "model.skops"
    skops.dump(model, file)
    assert set(skops.get_untrusted_types(file=file)) <= set(skforest.skops_types())
    assert_same(model, skops.load(file, trusted=skforest.skops_types()))


def test_skops_with_an_object_as_a_parameter():
    skops = pytest.importorskip("skops.io")
    content = skops.dumps(with_huber_loss())
    again = skops.loads(content, trusted=skforest.skops_types())
    assert again.loss == skforest.HuberLoss(2.0)


@pytest.mark.needs("projection")
def test_skops_with_names_shapes_and_categories(estimator):
    skops = pytest.importorskip("skops.io")
    pd = pytest.importorskip("pandas")
    X, y = task(estimator)
    frame = pd.DataFrame(X, columns=list("abcdef"))
    shaped = clone(estimator).set_params(feature_shape=(2, 3), wrap=[True, False]).fit(frame, y)
    frame["a"] = np.where(X[:, 0] > 0, "low", "high")
    coded = clone(estimator).fit(frame, y)
    for model, rows in ((shaped, pd.DataFrame(X, columns=list("abcdef"))), (coded, frame)):
        again = skops.loads(skops.dumps(model), trusted=skforest.skops_types())
        np.testing.assert_array_equal(response(again, rows), response(model, rows))


@pytest.mark.parametrize("kind", ["U", "O", "int", "bool"])
def test_skops_with_every_kind_of_label(classifier, kind):
    skops = pytest.importorskip("skops.io")
    X, y = task(classifier)
    if kind == "bool":
        labels = y == 1
    else:
        labels = y if kind == "int" else np.array(["a", "b", "c"], dtype=kind)[y]
    model = clone(classifier).fit(X, labels)
    dumped = skops.dumps(model)
    assert_same(model, skops.loads(dumped, trusted=skforest.skops_types()))


# -------------------------------------------------------------------------------- memory mapping


def mapped_arrays(model):
    return {name for name, array in model.forest_.arrays.items() if is_mapped(array)}


def test_joblib_maps_the_weights_of_hyperplanes(tmp_path):
    """Arrays that a pickle does not store in narrower dtypes, the large ones of such forests."""
    X, y = task(skforest.CO2ForestRegressor())
    model = trained(small(skforest.CO2ForestRegressor))
    again = by_mapped_joblib(model, tmp_path)
    assert {"dense", "threshold", "value"} <= mapped_arrays(again)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_mapped_estimator_stays_mapped_in_joblib(estimator, tmp_path):
    mapped = by_map(fitted(estimator), tmp_path)
    names = {name for name, array in mapped.forest_.arrays.items() if array.size}
    assert mapped_arrays(mapped) == names
    again = by_mapped_joblib(mapped, tmp_path)
    assert mapped_arrays(again) == names
    assert_same(mapped, again)
    plain = by_pickle(mapped, tmp_path)
    assert not mapped_arrays(plain)
    assert_same(mapped, plain)


def rows_and_process(model, X):
    return response(model, X), mapped_arrays(model), os.getpid()


@pytest.mark.slow
def test_processes_of_joblib_share_a_mapped_estimator(estimator, tmp_path):
    mapped = by_map(fitted(estimator), tmp_path)
    with joblib.parallel_config("loky", n_jobs=2):
        found = joblib.Parallel()(
            joblib.delayed(rows_and_process)(mapped, new_rows()) for _ in range(4)
        )
    for rows, names, process in found:
        np.testing.assert_array_equal(rows, response(mapped, new_rows()))
        assert names == mapped_arrays(mapped)
        assert process != os.getpid()


# ------------------------------------------------------------------------------------ small models


@pytest.mark.thin(2)
@pytest.mark.every_class
def test_slim_predicts_the_same_with_less_memory(estimator, file_way, tmp_path):
    model = fitted(estimator)
    smaller = skforest.slim(model)
    assert smaller.forest_.nbytes < model.forest_.nbytes
    for other in (smaller, file_way(smaller, tmp_path), by_pickle(smaller, tmp_path)):
        np.testing.assert_array_equal(response(other, new_rows()), response(model, new_rows()))
        np.testing.assert_array_equal(other.apply(new_rows()), model.apply(new_rows()))
        with pytest.raises(AttributeError, match="no gain: slim.. removed"):
            other.forest_.feature_importances()
        assert not hasattr(other, "feature_importances_")
    assert model.feature_importances_.sum() == pytest.approx(1)


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
@pytest.mark.needs("min_weight_fraction_leaf")
def test_slim_keeps_no_predictions_of_training_rows(estimator):
    model = fitted(estimator, oob_score=True, n_estimators=2)
    smaller = skforest.slim(model)
    name = "oob_decision_function_" if is_classifier(model) else "oob_prediction_"
    assert hasattr(model, name) and not hasattr(smaller, name)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_what_slim_removed_cannot_be_used(classifier):
    model = fitted(classifier, oob_score=True, n_estimators=40, warm_start=True)
    smaller = skforest.slim(model)
    assert smaller.oob_score_ == model.oob_score_
    with pytest.raises(AttributeError, match="no node_weight: slim"):
        smaller.set_params(n_estimators=41).fit(*task(classifier))
    with pytest.raises(AttributeError, match="no node_weight: slim"):
        skforest.Forest.concatenate([smaller.forest_, smaller.forest_])
    assert len(smaller.forest_[1:3].arrays["gain"]) == 0
    with pytest.raises(NotFittedError):
        skforest.slim(clone(classifier))


# ------------------------------------------------------------------------------ a fresh process


@functools.cache
def labelled_models():
    """One of every estimator; classifiers with strings as labels."""
    labels = np.array(["a", "word", "ü"])
    models = [small(cls) for cls in ESTIMATORS]
    for model in models:
        X, y = task(model)
        model.fit(X, labels[y] if is_classifier(model) else y)
    return models


def in_a_fresh_process(code, folder):
    place = str(Path(skforest.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": place},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


def test_a_loaded_forest_needs_no_estimator(tmp_path):
    """A process that imports skforest.forest alone predicts labels, from a file and a pickle."""
    models = labelled_models()
    for k, model in enumerate(models):
        model.forest_.save(tmp_path / f"{k}.npz")
        (tmp_path / f"{k}.pickle").write_bytes(pickle.dumps(model.forest_))
        np.save(tmp_path / f"{k}.npy", model.predict(new_rows()))
    np.save(tmp_path / "X", new_rows())
    lengths = [len(model.forest_) for model in models]
    code = f"""
import pickle
import numpy as np
from skforest.forest import Forest
X = np.load("X.npy")
for k in range({len(models)}):
    expected = np.load(f"{{k}}.npy")
    for forest in (Forest.load(f"{{k}}.npz"), pickle.load(open(f"{{k}}.pickle", "rb"))):
        found = forest.predict(X)
        assert found.dtype == expected.dtype and (found == expected).all()
        assert len(forest) == {lengths}[k]
"""
    in_a_fresh_process(code, tmp_path)


def test_estimators_predict_the_same_in_a_fresh_process(tmp_path):
    models = labelled_models()
    for k, model in enumerate(models):
        (tmp_path / f"{k}.pickle").write_bytes(pickle.dumps(model))
        skforest.save(model, tmp_path / f"{k}.npz")
        np.save(tmp_path / f"{k}.npy", response(model, new_rows()))
    np.save(tmp_path / "X", new_rows())
    code = f"""
import pickle
import numpy as np
X = np.load("X.npy")
for k in range({len(models)}):
    expected = np.load(f"{{k}}.npy")
    loaded = [pickle.load(open(f"{{k}}.pickle", "rb"))]
    import skforest
    loaded.append(skforest.load(f"{{k}}.npz"))
    for model in loaded:
        method = model.predict_proba if hasattr(model, "classes_") else model.predict
        assert (method(X) == expected).all()
"""
    in_a_fresh_process(code, tmp_path)
