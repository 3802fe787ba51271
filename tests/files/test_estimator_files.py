"""Files of estimators: what they hold, open files, and files that are refused."""

import copy
import functools
import gzip
import io
import json
import pickle
import re
import zipfile

import numpy as np
import pytest
from makers import response
from reloaded import assert_same, fitted, new_rows, task, trained
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError

import skforest


def by_map(model, folder):
    skforest.save(model, folder / "model", layout="folder")
    return skforest.load(folder / "model", mmap_mode="r")


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

    def __init__(self, content=b"", most=1000):
        self.content, self.written, self.most = io.BytesIO(content), b"", most

    def readable(self):
        return True

    def writable(self):
        return True

    def readinto(self, buffer):
        part = self.content.read(min(len(buffer), self.most))
        buffer[: len(part)] = part
        return len(part)

    def write(self, part):
        self.written += bytes(part)
        return len(part)


@pytest.mark.parametrize("most", [1, 3, 8, 1000])
def test_no_more_is_read_of_a_stream_that_is_no_archive(most):
    stream = Stream(b"PK\x03" + bytes(10_000), most)
    with pytest.raises(ValueError, match="is not a saved forest"):
        skforest.load(stream)
    assert stream.content.tell() == 8


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


def test_a_graph_of_a_data_frame_is_saved_in_the_order_of_the_columns(tmp_path):
    pd = pytest.importorskip("pandas")
    names = list("dbca")
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=names)
    path = np.abs(np.subtract.outer(range(4), range(4))) == 1  # a - b - c - d
    graph = pd.DataFrame(path.astype(int), index=list("abcd"), columns=list("abcd"))
    model = skforest.ManifoldForestRegressor(3, feature_graph=graph, random_state=0)
    model.fit(X, X["a"] + X["b"])
    skforest.save(model, tmp_path / "model")
    loaded = skforest.load(tmp_path / "model")
    expected = graph.loc[names, names].to_numpy()
    np.testing.assert_array_equal(loaded.feature_graph, expected)
    again = clone(loaded).fit(X, X["a"] + X["b"])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    blend = skforest.BlendedForestRegressor([clone(model)], cv=2, random_state=0)
    skforest.save(blend.fit(X, X["a"] + X["b"]), tmp_path / "blend")
    loaded = skforest.load(tmp_path / "blend")
    np.testing.assert_array_equal(loaded.members[0].feature_graph, expected)
    again = clone(loaded).fit(X, X["a"] + X["b"])
    np.testing.assert_array_equal(again.predict(X), blend.predict(X))
