"""Fitted models as files and as pickles: the same bits come back, and no code runs on loading."""

import copy
import functools
import gzip
import io
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import joblib
import numpy as np
import pytest
from conftest import ESTIMATORS, fitted_attributes, small
from makers import changed, response
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError

import skforest
from skforest.table.matrix import is_mapped

N = 90


def task(estimator):
    X, y = make_classification(N, 6, n_informative=5, n_redundant=0, n_classes=3, random_state=0)
    return X, y if is_classifier(estimator) else y + X[:, 0]


def trained(model):
    return model.fit(*task(model))


def fitted(estimator, **params):
    """A fitted estimator of its own; with the parameters of `small`, trained once per process."""
    model = clone(estimator)
    if params:
        return trained(changed(model, **params))
    vars(model).update(copy.deepcopy(fitted_attributes(type(model), trained)))
    return model


def plain_params(model):
    """Its parameters, and those of its procedure in place of the procedure."""
    params = model.get_params().items()
    return {name: value for name, value in params if not hasattr(value, "get_params")}


def new_rows():
    return np.random.default_rng(1).standard_normal((50, 6)) * 2


def assert_same(a, b, X=None):
    """Two models predict the same bits and have the same fitted attributes."""
    X = new_rows() if X is None else X
    assert type(a) is type(b)
    np.testing.assert_array_equal(response(a, X), response(b, X))
    np.testing.assert_array_equal(a.predict(X), b.predict(X))
    assert a.predict(X).dtype == b.predict(X).dtype
    np.testing.assert_array_equal(a.apply(X), b.apply(X))
    np.testing.assert_array_equal(a.feature_importances_, b.feature_importances_)
    assert repr(a.forest_) == repr(b.forest_)
    assert a.forest_.versions == b.forest_.versions
    assert a.__getstate__().keys() == b.__getstate__().keys()
    for name in a.__getstate__().keys() - a.get_params().keys() - {"forest_"}:
        one, other = getattr(a, name), getattr(b, name)
        np.testing.assert_array_equal(one, other, err_msg=name)
        assert isinstance(one, np.ndarray) == isinstance(other, np.ndarray)
    for name, array in a.forest_.arrays.items():
        other = b.forest_.arrays[name]
        np.testing.assert_array_equal(array, other, err_msg=name)
        assert array.dtype == other.dtype


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
@pytest.mark.needs("min_samples_split")
def test_predictions_that_are_missing_stay_missing(estimator, way, tmp_path):
    model = fitted(estimator, oob_score=True, n_estimators=2)
    other = way(model, tmp_path)
    name = "oob_decision_function_" if is_classifier(model) else "oob_prediction_"
    assert np.isnan(getattr(model, name)).any()
    np.testing.assert_array_equal(getattr(other, name), getattr(model, name))


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


@pytest.mark.needs("min_samples_split")
def test_warm_start_continues_after_loading(estimator, way, tmp_path):
    model = fitted(estimator, warm_start=True)
    other = way(model, tmp_path)
    for one in (model, other):
        one.set_params(n_estimators=14).fit(*task(one))
    assert_same(model, other)
    assert_same(model.set_params(warm_start=False), fitted(estimator, n_estimators=14))


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


# --------------------------------------------------------------------------------------- files


def test_the_path_is_taken_as_it_is(estimator, tmp_path):
    model = fitted(estimator)
    for path in (tmp_path / "no suffix", str(tmp_path / "text.model")):
        skforest.save(model, path)
        assert_same(model, skforest.load(path))
    assert {p.name for p in tmp_path.iterdir()} == {"no suffix", "text.model"}


def test_files_are_written_over(estimator, tmp_path):
    first, second = fitted(estimator, n_estimators=3), fitted(estimator, n_estimators=5)
    for layout in ("file", "folder"):
        path = tmp_path / layout
        skforest.save(first, path, layout=layout)
        skforest.save(second, path, layout=layout)
        assert_same(second, skforest.load(path))


def test_a_folder_written_over_holds_the_new_model_only(tmp_path):
    X = new_rows()
    classifier = skforest.ManifoldForestClassifier(2).fit(X, X[:, 0] > 0)
    regressor = skforest.ManifoldForestRegressor(2).fit(X, X[:, 0])
    for model in (classifier, regressor, classifier):
        skforest.save(model, tmp_path, layout="folder")
        other = skforest.load(tmp_path)
        assert_same(model, other)
    skforest.save(regressor, tmp_path, layout="folder")
    assert skforest.load(tmp_path).forest_.classes is None


def test_a_folder_is_mapped_not_read(estimator, tmp_path):
    mapped = by_map(fitted(estimator, n_estimators=20), tmp_path)
    names = {
        name
        for name, array in mapped.forest_.arrays.items()
        if isinstance(array, np.memmap) or isinstance(array.base, np.memmap)
    }
    assert {"child", "threshold", "direction"} <= names
    assert not mapped.forest_.threshold.flags.writeable


def test_a_single_file_cannot_be_mapped(estimator, tmp_path):
    skforest.save(fitted(estimator), tmp_path / "model")
    with pytest.raises(ValueError, match="mmap_mode='r'.*folder"):
        skforest.load(tmp_path / "model", mmap_mode="r")


def test_a_file_is_smaller_than_the_arrays(estimator, tmp_path):
    model = fitted(estimator, n_estimators=100)
    skforest.save(model, tmp_path / "model")
    assert (tmp_path / "model").stat().st_size < model.forest_.nbytes
    assert len(pickle.dumps(model)) < model.forest_.nbytes


def test_files_hold_plain_arrays_and_no_pickle(estimator, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = task(estimator)
    skforest.save(clone(estimator).fit(pd.DataFrame(X, columns=list("abcdef")), y), tmp_path / "m")
    with zipfile.ZipFile(tmp_path / "m") as archive:
        assert archive.testzip() is None
        assert "header.npy" in archive.namelist()
        for name in archive.namelist():
            array = np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            assert array.dtype.kind in "biufU"
            if name == "header.npy":
                assert first(json.loads(str(array)))["estimator"] == type(estimator).__name__


def test_unknown_layout(estimator, tmp_path):
    with pytest.raises(ValueError, match="layout.*'zip'.*file.*folder"):
        skforest.save(fitted(estimator), tmp_path / "model", layout="zip")


def test_saving_an_unfitted_estimator(estimator, tmp_path):
    with pytest.raises(NotFittedError, match=f"{type(estimator).__name__}.*not fitted"):
        skforest.save(estimator, tmp_path / "model")
    assert not (tmp_path / "model").exists()


class Stream(io.RawIOBase):
    """A file that is read or written from start to end only, a few bytes at a time."""

    def __init__(self, content=b""):
        self.content, self.written = io.BytesIO(content), b""

    def readable(self):
        return True

    def writable(self):
        return True

    def readinto(self, buffer):
        part = self.content.read(min(len(buffer), 1000))
        buffer[: len(part)] = part
        return len(part)

    def write(self, part):
        self.written += bytes(part)
        return len(part)


def saved_in_files(write, read, folder):
    """What comes back from files of several kinds: in memory, compressed, streams, archives."""
    file = io.BytesIO(b"before")
    file.seek(6)
    write(file)
    file.seek(6)
    yield read(file)
    assert file.tell() == len(file.getvalue())  # read to the end
    stream = Stream()
    write(stream)
    yield read(Stream(stream.written))
    with gzip.open(folder / "model.gz", "wb") as file:
        write(file)
    with gzip.open(folder / "model.gz", "rb") as file:
        yield read(file)
    with zipfile.ZipFile(folder / "archive.zip", "w") as archive:
        with archive.open("model.npz", "w") as file:
            write(file)
        with archive.open("model.npz") as file:
            yield read(file)
    write(folder / "model.npz")
    with open(folder / "model.npz", "rb", buffering=0) as file:
        yield read(file)
    assert stream.written == (folder / "model.npz").read_bytes()


def test_estimators_in_open_files(estimator, tmp_path):
    model = fitted(estimator)
    for found in saved_in_files(functools.partial(skforest.save, model), skforest.load, tmp_path):
        assert_same(found, model)


def test_blends_and_forests_in_open_files(tmp_path):
    X, y = task(skforest.ManifoldForestClassifier())
    members = [("manifold", skforest.ManifoldForestClassifier(3)), skforest.CO2ForestClassifier(2)]
    blend = skforest.BlendedForestClassifier(members, cv=2, random_state=0).fit(X, y)
    for found in saved_in_files(functools.partial(skforest.save, blend), skforest.load, tmp_path):
        np.testing.assert_array_equal(found.predict_proba(X), blend.predict_proba(X))
    forest = blend.members_["manifold"].forest_
    for found in saved_in_files(forest.save, skforest.Forest.load, tmp_path):
        np.testing.assert_array_equal(found.response(X), forest.response(X))
    file = io.BytesIO()
    forest.save(file)
    with pytest.raises(ValueError, match="BytesIO.* contains a Forest, not an estimator"):
        skforest.load(io.BytesIO(file.getvalue()))


def test_open_files_that_cannot_be_used(tmp_path):
    forest = trained(skforest.ManifoldForestClassifier(3, random_state=0))
    file = io.BytesIO()
    with pytest.raises(ValueError, match='layout="folder" needs a path'):
        skforest.save(forest, file, layout="folder")
    with pytest.raises(TypeError, match="cannot be saved"):
        skforest.save(copy.copy(forest).set_params(verbose=object()), file)
    assert file.getvalue() == b""  # all is written at the end
    skforest.save(forest, file)
    content = file.getvalue()
    with pytest.raises(ValueError, match="mmap_mode='r' needs"):
        skforest.load(io.BytesIO(content), mmap_mode="r")
    for damaged in (b"", b"PK", content[:-30], content[: len(content) // 2]):
        with pytest.raises(ValueError, match="is not a saved forest"):
            skforest.load(Stream(damaged))
    stream = Stream(pickle.dumps(list(range(10**5))))
    with pytest.raises(ValueError, match="looks like a pickle"):
        skforest.load(stream)
    assert stream.content.tell() == 8  # no more was read
    for text in (io.StringIO("PK and more"), io.StringIO()):
        with pytest.raises(TypeError, match="text file; open it in binary mode"):
            skforest.save(forest, text)
    with pytest.raises(TypeError, match="text file; open it in binary mode"):
        skforest.load(io.StringIO("PK and more"))


def test_meta_estimators_and_forests_are_refused(tmp_path):
    forest = skforest.ManifoldForestClassifier(3, random_state=0)
    X, y = task(forest)
    bagging = BaggingClassifier(forest, n_estimators=1)
    others = {
        "got BaggingClassifier; pass .*, such as estimators_": bagging.fit(X, y),
        "is a Forest, which has the methods save and slim": forest.fit(X, y).forest_,
    }
    for message, other in others.items():
        with pytest.raises(TypeError, match=message):
            skforest.save(other, tmp_path / "model")
        with pytest.raises(TypeError, match=message):
            skforest.slim(other)


def test_unfitted_estimators_are_pickled_and_copied(estimator):
    for other in (pickle.loads(pickle.dumps(estimator)), copy.deepcopy(estimator)):
        assert other.get_params() == estimator.get_params()
        assert_same(other.fit(*task(other)), fitted(estimator))


# ------------------------------------------------------------------------------- corrupt files


def test_a_path_that_does_not_exist(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        skforest.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", b"PK\x03\x04 not really", b"\x93NUMPY", pickle.dumps({"a": 1})],
    ids=["empty", "text", "zip", "npy", "pickle"],
)
def test_a_file_that_is_no_model(tmp_path, content):
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="model is not a saved forest"):
        skforest.load(path)


def test_a_pickle_is_not_opened(tmp_path):
    path = tmp_path / "model"
    touched = tmp_path / "touched"

    class Trap:
        def __reduce__(self):
            return open, (str(touched), "w")

    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(ValueError, match="not a saved forest"):
        skforest.load(path)
    with path.open("wb") as file:
        np.savez(file, header=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match="not a saved forest"):
        skforest.load(path)
    assert not touched.exists()


def test_a_folder_that_is_no_model(tmp_path):
    with pytest.raises((ValueError, FileNotFoundError), match="header.json|not a saved forest"):
        skforest.load(tmp_path)
    (tmp_path / "header.json").write_text("{}")
    with pytest.raises(ValueError, match="not a saved forest"):
        skforest.load(tmp_path)


def test_a_file_cut_short(estimator, tmp_path):
    skforest.save(fitted(estimator), tmp_path / "model")
    whole = (tmp_path / "model").read_bytes()
    for share in (0.1, 0.5, 0.9, 0.999):
        (tmp_path / "model").write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(ValueError, match="model"):
            skforest.load(tmp_path / "model")


def test_a_byte_changed_anywhere(estimator, tmp_path):
    """The checksums of the archive or the checks of the forest raise ValueError."""
    model = fitted(estimator, n_estimators=3)
    skforest.save(model, tmp_path / "model")
    expected = response(model, new_rows())
    whole = (tmp_path / "model").read_bytes()
    n_refused = 0
    for at in np.random.default_rng(0).integers(0, len(whole), 80):
        broken = bytearray(whole)
        broken[at] ^= 0xFF
        (tmp_path / "broken").write_bytes(broken)
        try:
            other = skforest.load(tmp_path / "broken")
        except ValueError:
            n_refused += 1
        else:  # a byte without a meaning, such as a date
            np.testing.assert_array_equal(response(other, new_rows()), expected)
    assert n_refused > 40


def first(header):
    """Header of the first forest of a file."""
    return header["members"][0]


def rewritten(path, change):
    """A saved file with its arrays and header changed."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    header = json.loads(str(arrays.pop("header")))
    change(header, arrays)
    with open(path, "wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def test_a_later_format(estimator, tmp_path):
    skforest.save(fitted(estimator), tmp_path / "model")
    rewritten(tmp_path / "model", lambda header, arrays: header.update(format=99))
    with pytest.raises(ValueError, match="format 99.*reads format 1"):
        skforest.load(tmp_path / "model")


NO_ESTIMATORS = (
    "Pipeline", "Forest", "load", "os.system", 5, "", "__version__", "HuberLoss", "CO2Procedure"
)  # fmt: skip


@pytest.mark.parametrize("name", NO_ESTIMATORS)
def test_another_class(estimator, tmp_path, name):
    skforest.save(fitted(estimator), tmp_path / "model")
    rewritten(tmp_path / "model", lambda header, arrays: first(header).update(estimator=name))
    with pytest.raises(ValueError, match=f"{name}.*not an estimator of skforest"):
        skforest.load(tmp_path / "model")


def with_huber_loss():
    options = {"loss": skforest.HuberLoss(2.0), "n_bags": 1, "random_state": 0}
    return fitted(skforest.ObliqueBoostingRegressor(3, **options))


@pytest.mark.parametrize("name", ["Loss", "LossParameters", "Pipeline", "os.system", [], {}, None])
def test_parameters_are_objects_of_known_classes_only(tmp_path, name):
    def change(header, arrays):
        first(header)["params"]["loss"]["estimator"] = name

    skforest.save(with_huber_loss(), tmp_path / "model")
    rewritten(tmp_path / "model", change)
    with pytest.raises(ValueError, match="is damaged"):
        skforest.load(tmp_path / "model")


def test_an_object_of_another_class_is_not_saved(tmp_path):
    class Own(skforest.HuberLoss):
        pass

    model = with_huber_loss().set_params(loss=Own())
    with pytest.raises(TypeError, match="loss is a Own, which cannot be saved"):
        skforest.save(model, tmp_path / "model")


def test_a_forest_alone_is_no_estimator(estimator, tmp_path):
    model = fitted(estimator)
    model.forest_.save(tmp_path / "model")
    with pytest.raises(ValueError, match="Forest, not an estimator.*Forest.load"):
        skforest.load(tmp_path / "model")
    forest = skforest.Forest.load(tmp_path / "model")
    np.testing.assert_array_equal(forest.predict(new_rows()), model.predict(new_rows()))


def without(name):
    """Drops an array, stored as it is or as differences."""

    def change(header, arrays):
        for key in [key for key in arrays if re.split("[.:]", key)[-1] == name]:
            del arrays[key]

    return change


CHANGES = {
    "no params": lambda header, arrays: first(header).pop("params"),
    "unknown param": lambda header, arrays: first(header)["params"].update(colour="green"),
    "params is a list": lambda header, arrays: first(header).update(params=[1]),
    "no state": lambda header, arrays: first(header).pop("state"),
    "no forest": lambda header, arrays: first(header).pop("forest"),
    "no task": lambda header, arrays: first(header)["forest"].pop("task"),
    "unknown meta": lambda header, arrays: first(header)["forest"].update(colour="green"),
    "unknown array": lambda header, arrays: arrays.update(colour=np.zeros(3)),
    "no tree_start": without("tree_start"),
    "no child": without("child"),
    "no threshold": without("threshold"),
    "other features": lambda header, arrays: first(header)["forest"].update(n_features=2),
    "text": lambda header, arrays: arrays.update({"0.threshold": np.array(["a"])}),
    "short": lambda header, arrays: arrays.update({"0.threshold": arrays["0.threshold"][:-1]}),
    "nan": lambda header, arrays: arrays.update({"0.threshold": arrays["0.threshold"] * np.nan}),
    "an attribute over a method": lambda header, arrays: first(header)["state"].update(
        predict="x"
    ),
    "a strange value": lambda header, arrays: first(header)["params"].update(max_depth={"x": 1}),
    "a strange array": lambda header, arrays: first(header)["params"].update(
        max_patch={"array": [1], "dtype": "no such type"}
    ),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_headers_and_arrays_that_do_not_fit(estimator, tmp_path, change):
    skforest.save(fitted(estimator), tmp_path / "model")
    rewritten(tmp_path / "model", change)
    with pytest.raises(ValueError):
        skforest.load(tmp_path / "model")


def test_a_folder_without_one_of_its_files(estimator, tmp_path):
    skforest.save(fitted(estimator), tmp_path, layout="folder")
    (tmp_path / "0.child.npy").unlink()
    with pytest.raises(ValueError):
        skforest.load(tmp_path)


@pytest.mark.parametrize("mmap_mode", [None, "r"])
def test_a_folder_with_a_broken_file(estimator, tmp_path, mmap_mode):
    skforest.save(fitted(estimator), tmp_path, layout="folder")
    whole = (tmp_path / "0.threshold.npy").read_bytes()
    for content in (b"", b"nonsense", whole[:40], whole[:-4], pickle.dumps([1.0])):
        (tmp_path / "0.threshold.npy").write_bytes(content)
        with pytest.raises(ValueError):
            skforest.load(tmp_path, mmap_mode=mmap_mode)


@pytest.mark.parametrize("mmap_mode", ["r+", "w+", "c", "nonsense", 1])
def test_unknown_mmap_mode(estimator, tmp_path, mmap_mode):
    """Modes that write would change or erase the files."""
    model = fitted(estimator)
    skforest.save(model, tmp_path, layout="folder")
    with pytest.raises(ValueError, match="mmap_mode"):
        skforest.load(tmp_path, mmap_mode=mmap_mode)
    assert_same(model, skforest.load(tmp_path))


# --------------------------------------------------------------------------------------- skops


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


@pytest.mark.needs("min_samples_split")
def test_what_slim_removed_cannot_be_used(classifier):
    model = fitted(classifier, oob_score=True, n_estimators=40, warm_start=True)
    smaller = skforest.slim(model)
    assert not hasattr(smaller, "oob_decision_function_")
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
