"""Files that are damaged or made to do harm: a ValueError, or a model that can be used."""

import copy
import functools
import json
import pickle
import sys
import tempfile
import tracemalloc
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from makers import assert_same, fixed, rich_classifier, rich_forest, rich_mixed, use
from sklearn.base import is_classifier
from sklearn.datasets import load_iris

import skforest
from skforest.forest import ARRAYS, Forest, io

# -------------------------------------------------------------------------------- corrupt files


def first(header):
    """Header of the first forest of a file."""
    return header["members"][0]


def rewritten(path, header=None, **arrays):
    """Write the file again with changes; None drops an array."""
    with np.load(path, allow_pickle=False) as file:
        old = {name: file[name] for name in file.files}
    head = json.loads(str(old["header"]))
    if header:
        header(head)
    new = {"header": np.array(json.dumps(head)), **arrays}
    np.savez(path, **{k: v for k, v in (old | new).items() if v is not None})


def test_a_later_format_is_refused(tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    rewritten(path, header=lambda head: head.update(format=99))
    with pytest.raises(ValueError, match="format 99"):
        Forest.load(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda head: first(head).pop("forest"),
        lambda head: head.pop("format"),
        lambda head: first(head)["forest"].pop("n_features"),
        lambda head: first(head)["forest"].update(n_features="many"),
        lambda head: first(head)["forest"].update(n_features=None),
        lambda head: first(head)["forest"].update(feature_shape=36),
        lambda head: first(head)["forest"].update(steepness=None),
        lambda head: first(head)["forest"].update(wrap="no"),
        lambda head: first(head)["forest"].update(colour="red"),
        lambda head: first(head)["forest"].update(n_outputs=[3]),
        lambda head: first(head).update(forest=[1, 2]),
        lambda head: head.pop("members"),
        lambda head: head.update(members={}),
        lambda head: head.update(members=[]),
        lambda head: head.update(members=[1]),
        lambda head: head.update(members=head["members"] * 2),
        lambda head: head.update(members=head["members"] * 1001),
    ],
)
def test_a_damaged_header_is_refused(damage, tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    rewritten(path, header=damage)
    with pytest.raises(ValueError):
        Forest.load(path)


@pytest.mark.parametrize("lost", ARRAYS)
def test_a_file_that_lost_an_array_is_refused(lost, tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    with np.load(path) as file:
        keys = {f"0.{lost}", f"0.delta:{lost}"}.intersection(file.files)
    rewritten(path, **dict.fromkeys(keys))
    with pytest.raises(ValueError, match=lost):
        Forest.load(path)
    rewritten(path, header=lambda head: head.update(arrays=sorted({*head["arrays"]} - keys)))
    with pytest.raises(ValueError, match=rf"the arrays \['{lost}'\] of member 0 are missing"):
        Forest.load(path)


def test_an_array_is_not_stored_twice(tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    with np.load(path) as file:
        (key,) = {"0.child", "0.delta:child"}.intersection(file.files)
        arrays = {name: file[key] for name in ("0.child", "0.delta:child")}
    rewritten(path, lambda head: head.update(arrays=sorted({*head["arrays"], *arrays})), **arrays)
    with pytest.raises(ValueError, match="the array 0.child is stored twice"):
        Forest.load(path)


@pytest.mark.parametrize(
    "content", [b"", b"PK", b"\x93NUMPY\x01\x00", b"\x80\x04K\x01.", b"{}", bytes(range(256)) * 9]
)
def test_another_file_is_refused(content, tmp_path):
    path = tmp_path / "forest.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="not a saved forest"):
        Forest.load(path)


def test_no_file_is_no_forest(tmp_path):
    with pytest.raises(FileNotFoundError):
        Forest.load(tmp_path / "nothing.npz")
    with pytest.raises((FileNotFoundError, ValueError)):
        Forest.load(tmp_path)


def test_a_truncated_file_is_refused(tmp_path):
    path = tmp_path / "forest.npz"
    rich_classifier().save(path)
    content = path.read_bytes()
    for length in range(0, len(content), max(1, len(content) // 40)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match="not a saved forest"):
            Forest.load(path)


def test_flipped_bits_in_a_file_are_refused_or_harmless(tmp_path):
    path = tmp_path / "forest.npz"
    forest = rich_classifier()
    forest.save(path)
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for at in rng.integers(len(content), size=200):
        spoilt = bytearray(content)
        spoilt[at] ^= 1 << rng.integers(8)
        path.write_bytes(spoilt)
        try:
            loaded = Forest.load(path)
        except ValueError:
            refused += 1
        else:
            assert_same(forest, loaded)  # in a part of the file that nobody reads
    assert refused > 120


@pytest.mark.parametrize("mmap_mode", [None, "r"])
def test_a_damaged_folder_is_refused(mmap_mode, tmp_path):
    forest = rich_classifier()
    forest.save(tmp_path, layout="folder")
    for name in ("0.child.npy", "header.json", "0.classes.npy", "0.value_start.npy"):
        content = (tmp_path / name).read_bytes()
        for spoilt in (content[: len(content) // 2], b"", None):
            if spoilt is None:
                (tmp_path / name).unlink()
            else:
                (tmp_path / name).write_bytes(spoilt)
            with pytest.raises((ValueError, FileNotFoundError)):
                Forest.load(tmp_path, mmap_mode=mmap_mode)
        (tmp_path / name).write_bytes(content)
    assert_same(forest, Forest.load(tmp_path, mmap_mode=mmap_mode))


def test_an_unknown_member_of_a_file_is_refused_and_in_a_folder_ignored(tmp_path):
    forest = rich_forest()
    forest.save(tmp_path, layout="folder")
    np.save(tmp_path / "stranger.npy", np.zeros(3))
    assert_same(forest, Forest.load(tmp_path))
    forest.save(tmp_path / "forest.npz")
    rewritten(tmp_path / "forest.npz", stranger=np.zeros(3))
    with pytest.raises(ValueError, match="stranger"):
        Forest.load(tmp_path / "forest.npz")


def test_objects_in_a_file_are_never_unpickled(tmp_path):
    rich_forest().save(tmp_path, layout="folder")
    np.save(tmp_path / "0.child.npy", np.array([print], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickle|object"):
        Forest.load(tmp_path)


# ---------------------------------------------------------------------- files of small size only


def write_archive(path, members, method=zipfile.ZIP_DEFLATED):
    """A zip archive of some bytes by name, with correct checksums."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def read_archive(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def npy(descr, shape, content=b"", fortran_order=False):
    """An npy file that declares what it may not contain."""
    head = repr({"descr": descr, "fortran_order": fortran_order, "shape": shape}).encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + content


def assert_refused_in_little_memory(path, match, limit=2**21):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=match) as info:
            Forest.load(path)
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()
    assert str(path) in str(info.value)


STRANGE_MEMBERS = {
    "name": ("0.stranger.npy", npy("|u1", (2**26,), bytes(2**26)), "stranger"),
    "expanding": ("0.gain.npy", npy("|u1", (2**26,), bytes(2**26)), "would take"),
    "widened": ("0.node_weight.npy", npy("|u1", (2**23,), bytes(2**23)), "would take"),
    "Fortran order": ("0.dense.npy", npy("<f4", (1, 1), bytes(4), True), "dense has dtype"),
    "no number": ("child.npy", npy("|u1", (1,), b"1"), "'child' is not the name"),
    "other number": ("1.child.npy", npy("|u1", (1,), b"1"), "'1.child' is not the name"),
    "long number": ("00.child.npy", npy("|u1", (1,), b"1"), "'00.child' is not the name"),
    "no array": ("notes.txt", b"", "notes.txt"),
    "no suffix": ("0.child", b"", "0.child"),
    "absolute": ("/etc/passwd.npy", npy("|u1", (1,), b"1"), "passwd"),
    "declared": ("0.dense.npy", npy("<f4", (2**20, 2**20), bytes(100)), "dense declares"),
    "overflowing": ("0.dense.npy", npy("<f4", (2**62, 4)), "dense declares"),
    "negative": ("0.dense.npy", npy("<f4", (-1, -1), bytes(4)), "dense declares"),
    "strings": ("0.classes.npy", npy("<U500000000", (0,)), "classes declares"),
    "one string": ("0.classes.npy", npy("<U500000000", (1,)), "classes declares"),
    "text": ("0.value.npy", npy("<U4", (1,), bytes(16)), "value has dtype"),
    "objects": ("0.child.npy", npy("|O", (1,), b"\x80\x04N."), "child has dtype object"),
    "records": ("0.value.npy", npy([("a", "<f4")], (1,), bytes(4)), "value has dtype"),
    "axes": ("0.value.npy", npy("<f4", (1, 1), bytes(4)), "value has dtype"),
    "version": ("0.value.npy", b"\x93NUMPY\x02\x00" + bytes(64), "another version"),
    "nested": (
        "0.value.npy",
        npy("<f4", (), bytes(4)).replace(b"()", b"(" * 300),
        "value|damaged",
    ),
    "characters": (
        "0.classes.npy",
        npy("<U1", (3,), b"\xff" * 12),
        "characters that do not exist",
    ),
    "differences": ("0.delta:value.npy", npy("<f4", (1,), bytes(4)), "value"),
}


@pytest.mark.parametrize("name, content, match", STRANGE_MEMBERS.values(), ids=STRANGE_MEMBERS)
def test_members_are_checked_before_they_are_decompressed(name, content, match, tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    members = read_archive(path) | {name: content}
    header = json.loads(str(np.load(path)["header"]))
    header["arrays"] = [
        member.removesuffix(".npy") for member in members if "header" not in member
    ]
    members["header.npy"] = npy_of_text(json.dumps(header))
    write_archive(path, members)
    assert_refused_in_little_memory(path, match)


def test_archives_that_expand_or_repeat_names_are_refused(tmp_path):
    path = tmp_path / "forest.npz"
    write_archive(path, {"header.npy": npy(f"<U{2**26}", (), bytes(2**28))})
    assert_refused_in_little_memory(path, "would take more than")
    rich_forest().save(path)
    members = read_archive(path)
    write_archive(path, members, zipfile.ZIP_BZIP2)
    assert_refused_in_little_memory(path, "another method than deflate")
    with pytest.warns(UserWarning, match="Duplicate"):
        with zipfile.ZipFile(path, "w") as archive:
            for name in [*members, "0.gain.npy"]:
                archive.writestr(name, members.get(name, b""))
    assert_refused_in_little_memory(path, "same name")


def test_a_forest_that_compresses_beyond_the_limit_is_stored_uncompressed(tmp_path):
    """What `save` writes, `load` reads; here three million equal leaves."""
    n, path = 3_000_000, tmp_path / "forest.npz"
    stumps = {"tree_start": np.arange(n + 1), "child": np.full(n, -1), "threshold": []}
    stumps |= {"value": [0.5], "node_weight": np.full(n, 7)}
    forest = Forest(stumps, n_features=1, n_outputs=1, task="regression")
    forest.save(path)
    with zipfile.ZipFile(path) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
    assert path.stat().st_size < 1e7
    assert_same(forest, Forest.load(path))


@pytest.mark.parametrize("layout", ["file", "folder"])
def test_a_header_of_very_many_lists_can_be_read(layout, tmp_path, monkeypatch):
    monkeypatch.setattr(io, "FREE_MEMORY", 2**18)
    model = skforest.ManifoldForestRegressor(2, random_state=0).fit([[0], [1], [2]], [0, 1, 3])
    model.lists_ = [[]] * 5000
    skforest.save(model, tmp_path / "model", layout=layout)
    assert skforest.load(tmp_path / "model").lists_ == model.lists_


def expanding_arrays(n_bytes):
    """Pairs of metadata and arrays that take some memory, of which a file has a few KB."""
    one = {"tree_start": np.array([0, 1]), "child": np.full(1, -1, "i1"), "threshold": zeros(0)}
    one["value"] = zeros(1)
    n = n_bytes // 24
    roots = {"delta:tree_start": (np.arange(n + 1) > 0).astype(np.uint8)}
    roots |= {"child": np.full(n, -1, "i1"), "threshold": zeros(0), "value": zeros(1)}
    yield {}, roots
    m = n_bytes // 54
    child = np.append(1 + 2 * np.arange(m), np.full(m + 1, -1)).astype(np.int32)
    tree = {"tree_start": np.array([0, 2 * m + 1]), "child": child, "threshold": zeros(m)}
    yield {}, one | tree | {"direction": zeros(m)}
    n = n_bytes // 17
    yield {"n_features": n}, one | {"source": zeros(n), "kind": zeros(n), "fill": zeros(1)}
    n = n_bytes // 40
    inputs = {"source": np.arange(n, dtype=np.int32), "kind": zeros(n), "fill": zeros(n)}
    yield {"n_features": n}, one | inputs | {"offset": zeros(n), "scale": zeros(n) + 1}
    n, axis = n_bytes // 54, {"feature_shape": [1] * 8, "wrap": [False] * 8}
    boxes = {"box_corner": zeros(n), "box_other": zeros(n), "box_size": zeros(n, 8) + 1}
    yield axis | {"unordered": [False] * 8}, one | boxes | {"box_subset": zeros(n, 0)}
    subset = zeros(1, n_bytes // 3)
    subset[0, 0], n = 1, 8 * subset.size
    boxes = {"box_corner": zeros(1), "box_other": zeros(1), "box_size": zeros(1, 1) + 1}
    axis = {"n_features": n, "feature_shape": [n], "wrap": [False], "unordered": [True]}
    yield axis, one | boxes | {"box_subset": subset}
    n = n_bytes // 50
    labels = {"value": zeros(n), "baseline": zeros(n), "classes": np.zeros(n, "<U8")}
    yield {"n_outputs": n, "task": "classification"}, one | labels


def zeros(*shape):
    return np.zeros(shape, np.uint8)


def completed(arrays, forest):
    """All arrays; those that are not given are as short as they may be, or have one per node."""
    n_nodes, n_splits = len(arrays["child"]), len(arrays["threshold"])
    n_trees, n_features = n_nodes - 2 * n_splits, forest["n_features"]
    shapes = {"node_weight": n_nodes, "gain": n_splits, "baseline": forest["n_outputs"]}
    shapes |= {"sparse_start": 1, "table_start": len(arrays.get("source", ())) + 1}
    shapes |= {"dense": (0, n_features), "slope": (0, forest["n_outputs"]), "knots": (0, 2, 8)}
    shapes |= {"box_size": (0, len(forest.get("feature_shape", "1"))), "box_subset": (0, 0)}
    known = {key.removeprefix("delta:") for key in arrays}
    missing = {name: np.zeros(shapes.get(name, 0), np.uint8) for name in ARRAYS.keys() - known}
    return arrays | missing | {"bag_start": np.array([0, n_trees])}


def expanding_texts(header, n_bytes):
    """Headers of a saved estimator with entries that take some memory."""
    estimators = '{"estimator":"E2EDecisionForest","params":{}},' * (n_bytes // 2200)
    entries = (
        "[" + "[]," * (n_bytes // 360) + "[]]",
        '{"set":[' + ",".join(map(str, range(n_bytes // 160))) + "]}",
        '"' + "a" * (n_bytes // 13) + '\\ud83d\\ude00"',
        f"[{estimators} 9]",
    )
    for entry in entries:
        yield header.replace('"state": {', f'"state": {{"a": {entry}, ', 1)
    levels = ",".join(map(str, range(n_bytes // 160)))
    yield header.replace('"levels": [', f'"levels": [[9, [{levels}]], ', 1)


def expanding_files(path, n_bytes):
    """Contents of files with about as much memory as `load` accepts, by names of their members."""
    for metadata, arrays in expanding_arrays(n_bytes):
        default = {"n_features": 1, "n_outputs": 1, "task": "regression", "levels": []}
        forest = default | metadata
        arrays = {f"0.{name}": array for name, array in completed(arrays, forest).items()}
        header = {"format": 1, "members": [{"forest": forest}], "arrays": list(arrays)}
        members = {f"{k}.npy": npy(v.dtype.str, v.shape, v.tobytes()) for k, v in arrays.items()}
        yield members | {"header.npy": npy_of_text(json.dumps(header))}
    for text in expanding_texts(str(np.load(path)["header"]), n_bytes):
        yield read_archive(path) | {"header.npy": npy_of_text(text)}


def npy_of_text(text):
    return npy(f"<U{len(text)}", (), text.encode("utf-32-le"))


def test_no_file_takes_more_memory_than_documented(tmp_path, monkeypatch):
    """At most 10 times its size and 64 MiB; here with less of it, since tracing is slow."""
    others = 2**26 - io.FREE_MEMORY
    monkeypatch.setattr(io, "FREE_MEMORY", 2**23)
    path = tmp_path / "model.npz"
    for members in expanding_files(golden("table_classifier"), io.FREE_MEMORY):
        write_archive(path, members)
        tracemalloc.start()
        try:
            skforest.load(path)
        except ValueError as error:
            assert "would take" not in str(error)  # it is as large as it may be
        finally:
            peak = tracemalloc.get_traced_memory()[1] - io.MEMORY_FACTOR * path.stat().st_size
            tracemalloc.stop()
        assert io.FREE_MEMORY / 4 < peak < io.FREE_MEMORY + others / 2


def test_arrays_of_strings_are_limited(saved, tmp_path):
    """All strings of an array take as much as the longest."""
    path = tmp_path / "model.npz"
    path.write_bytes(saved[0].read_bytes())
    strings = {"array": ["a" * 2000] + [""] * 2000, "dtype": "U"}
    rewritten(path, header=lambda head: first(head)["state"].update(a=strings))
    with pytest.raises(ValueError, match="model.npz is damaged: .*arrays of strings"):
        skforest.load(path)
    model = skforest.load(saved[0])
    model.strings_ = np.array(strings["array"])
    with pytest.raises(ValueError, match="arrays of strings of 16008000 bytes"):
        skforest.save(model, path)


def test_a_long_directory_of_an_archive_is_not_read(tmp_path):
    path = tmp_path / "forest.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = b"x"  # its last bytes are read first
        archive.writestr("a", b"")
        archive.filelist = [archive.filelist[0]] * 80_000
    with pytest.raises(ValueError, match="its directory is too long"):
        Forest.load(path)


@pytest.mark.parametrize(
    "damage",
    [
        lambda head: first(head)["forest"].update(n_features=np.inf),
        lambda head: first(head)["forest"].update(n_features=10**400),
        lambda head: first(head)["forest"].update(n_outputs=2**31 - 1),
        lambda head: first(head)["forest"].update(n_shared_values=np.inf),
        lambda head: first(head)["forest"].update(steepness=10**400),
        lambda head: first(head)["forest"].update(feature_shape=[np.inf]),
        lambda head: first(head)["forest"].update(task=["regression"]),
        lambda head: first(head)["forest"].update(versions=5),
        lambda head: first(head)["forest"].update(levels=5),
        lambda head: first(head)["forest"].update(levels=[1]),
        lambda head: first(head)["forest"].update(levels=[[1, 5]]),
        lambda head: first(head)["forest"].update(levels=[[1, ["a", [2]]]]),
        lambda head: first(head)["forest"].update(levels=[[1, ["a", np.nan]]]),
        lambda head: first(head)["forest"].update(levels=[[1, ["a", 10**400]]]),
        lambda head: first(head)["forest"].update(levels=[[2**40, ["a", "b"]]]),
        lambda head: first(head)["forest"].update(levels=[[-1, ["a", "b"]]]),
        lambda head: first(head)["forest"].update(levels=[["1", ["a", "b"], 3]]),
        lambda head: first(head)["forest"].update(levels=nested(900)),
        lambda head: head.update(arrays=5),
        lambda head: head.update(arrays=[["child"]]),
        lambda head: head.update(format=[1]),
    ],
)
def test_damaged_headers_raise_errors_that_name_the_file(damage, tmp_path):
    path = tmp_path / "forest.npz"
    rich_forest().save(path)
    rewritten(path, header=damage)
    assert_refused_in_little_memory(path, "damaged|format")


def test_a_deeply_nested_header_is_refused(tmp_path):
    path = tmp_path / "forest.npz"
    text = "[" * 100_000
    np.savez_compressed(path, header=np.array(text))
    assert_refused_in_little_memory(path, "not a saved forest", 2**23)
    (tmp_path / "header.json").write_text(text)
    assert_refused_in_little_memory(tmp_path, "not a saved forest", 2**23)


@pytest.mark.parametrize(
    "name", ["/etc/hostname", "../child", "0.child/../child", "0./etc/x", "", "header", "child",
             "00.child", "-1.child", "1.child", "0.0.child", "0.header", "0.delta:", "0.child\n",
             "9" * 5000 + ".child", "\u0660.child"],
)  # fmt: skip
def test_names_in_a_folder_are_no_paths(name, tmp_path):
    folder = tmp_path / "forest"
    rich_forest().save(folder, layout="folder")
    np.save(tmp_path / "child.npy", np.zeros(3))
    np.save(folder / "child.npy", np.zeros(3))
    header = json.loads((folder / "header.json").read_text())
    header["arrays"].append(name)
    (folder / "header.json").write_text(json.dumps(header))
    assert_refused_in_little_memory(folder, "is not the name of an array")


def test_a_short_file_of_a_folder_is_refused_before_anything_is_allocated(tmp_path):
    rich_forest().save(tmp_path, layout="folder")
    (tmp_path / "0.node_weight.npy").write_bytes(npy("<f8", (2**40,), bytes(80)))
    assert_refused_in_little_memory(tmp_path, "node_weight declares")


@pytest.mark.parametrize("protocol", range(2, 6))
def test_pickles_are_recognised(protocol, tmp_path):
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "forest.joblib"
    path.write_bytes(pickle.dumps(rich_forest(), protocol=protocol))
    with pytest.raises(ValueError, match="not a saved forest; it looks like a pickle, .*joblib"):
        Forest.load(path)
    for compress in (0, 3, ("gzip", 3), ("bz2", 3), ("xz", 3), ("lzma", 3)):
        joblib.dump(rich_forest(), path, compress=compress)
        with pytest.raises(ValueError, match="looks like a pickle"):
            skforest.load(path)


# ------------------------------------------------------------------------- damaged estimators


@pytest.fixture(scope="module", params=["classifier", "regressor"])
def saved(request, tmp_path_factory):
    """A saved estimator, as bytes by name, and the rows it was fitted to."""
    X, y = load_iris(return_X_y=True)
    if request.param == "classifier":
        model = skforest.ManifoldForestClassifier(3, random_state=0).fit(X, y)
    else:
        model = skforest.ManifoldForestRegressor(3, random_state=0).fit(X, y.astype(float))
    path = tmp_path_factory.mktemp("saved") / "model.npz"
    skforest.save(model, path)
    return path, X


@pytest.mark.parametrize(
    "damage",
    [
        lambda head: first(head)["state"].pop("n_features_in_"),
        lambda head: first(head)["state"].pop("n_outputs_"),
        lambda head: first(head)["state"].update(n_features_in_="4"),
        lambda head: (
            first(head)["state"].update(_is_1d=[]) or first(head)["state"].pop("n_classes_", 0)
        ),
        lambda head: first(head)["state"].update(feature_names_in_=None),
        lambda head: first(head)["state"].update(
            a={"array": ["a"], "dtype": "<U500000000"}, n_outputs_=None
        ),
        lambda head: first(head)["state"].update(a={"array": ["a"], "dtype": "<U500000000"}),
        lambda head: first(head)["state"].update(a={"array": [0], "dtype": "O"}),
        lambda head: first(head)["state"].update(a={"array": [300], "dtype": "u1"}),
        lambda head: first(head)["state"].update(a={"items": [[[], 1]]}),
        lambda head: first(head)["state"].update(a={"items": 1}),
        lambda head: first(head)["state"].update(a=deeply_nested()),
        lambda head: first(head)["state"].update(__class__="x"),
        lambda head: first(head).update(state=[]),
        lambda head: first(head).update(params=5),
        lambda head: first(head)["forest"].update(task="clustering"),
    ],
)
def test_damaged_estimators_raise_errors_that_name_the_file(damage, saved, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(saved[0].read_bytes())
    rewritten(path, header=damage)
    head = json.loads(str(np.load(path)["header"]))
    if first(head)["forest"]["task"] == "classification" and "_is_1d" in first(head)["state"]:
        return  # classifiers do not read it
    with pytest.raises(ValueError, match="model.npz is damaged"):
        skforest.load(path)


def test_a_wrong_number_of_features_is_refused(saved, tmp_path):
    """Rows of fewer columns than the trees read were read beyond their end."""
    path = tmp_path / "model.npz"
    path.write_bytes(saved[0].read_bytes())
    rewritten(path, header=lambda head: first(head)["state"].update(n_features_in_=1))
    with pytest.raises(ValueError, match="n_features_in_ is 1, not 4"):
        skforest.load(path)
    model = skforest.load(saved[0])
    model.n_features_in_ = 1  # as another format of files may do
    with pytest.raises(ValueError, match="X has 1 features, the trees read 4"):
        model.predict(np.zeros((3, 1)))
    with pytest.raises(ValueError, match="X has 5 features, the trees read 4"):
        model.forest_.apply_mapped(np.zeros((3, 5), dtype=np.float32))


def nested(depth):
    return [nested(depth - 1)] if depth else []


def deeply_nested():
    """Lists that JSON can write and read, and that are too deep for functions in Python."""
    lists = []
    for _ in range(800 if sys.version_info < (3, 12) else 1200):
        lists = [lists]
    return lists


# ------------------------------------------------------------------------------- random damage


def damaged(content, rng):
    """Some bytes with a few of them changed, removed or repeated."""
    content = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(max(1, len(content))))
        kind = rng.integers(4)
        if kind == 0:
            content[at : at + 1] = bytes([rng.integers(256)])
        elif kind == 1:
            content[at : at + 1] = bytes([content[at] ^ 1 << int(rng.integers(8))])
        elif kind == 2:
            content[at : at + int(rng.integers(1, 9))] = b""
        else:
            content[at:at] = content[at : at + int(rng.integers(1, 9))]
    return bytes(content)


def damage_files(seed, n, path):
    """Damage files n times; each must be refused with its name, or be of use."""
    rng = np.random.default_rng(seed)
    n_refused = 0
    for make in (rich_forest, rich_classifier, rich_mixed):
        forest = make(seed)
        forest.save(path)
        whole, members = path.read_bytes(), read_archive(path)
        for i in range(n):
            if i % 4 == 0:
                path.write_bytes(damaged(whole, rng))
            else:  # with correct checksums
                name = list(members)[rng.integers(len(members))]
                name = name if i % 4 < 3 else "header.npy"
                write_archive(
                    path, members | {name: damaged(members[name], rng)}, zipfile.ZIP_STORED
                )
            try:
                loaded = Forest.load(path)
            except ValueError as error:
                assert str(path) in str(error)
                n_refused += 1
            else:
                if i % 4 == 0:
                    assert_same(forest, loaded)
                use(loaded)
    return n_refused


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:Reading .*npy:UserWarning")
@pytest.mark.parametrize("seed, n", [(0, 150), pytest.param(1, 4_000, marks=pytest.mark.slow)])
def test_randomly_damaged_files_are_refused_or_harmless(seed, n, tmp_path):
    assert damage_files(seed, n, tmp_path / "forest.npz") > n


# ------------------------------------------------------------------- damaged files of estimators

SAVED = sorted((Path(__file__).parents[1] / "golden" / "models").glob("*.npz"))
STRANGE = [
    None, True, -1, 0, 1, 2, 7, 2**31, 2**63, 10**400, -0.5, 1e308, float("nan"), float("inf"),
    "", "x", "float16", "mean", [], {}, [[]], {"tuple": []}, {"items": [[0, 1]]},
    {"array": [1, 2], "dtype": "i1"}, {"estimator": "ManifoldForestClassifier", "params": {}},
]  # fmt: skip
EDIT = st.tuples(
    st.sampled_from(["set", "flip", "cut", "repeat", "header"]),
    st.integers(0, 2**24),  # where, modulo what there is
    st.integers(0, 255),
)


def golden(name):
    """Path of a saved estimator."""
    return next(path for path in SAVED if path.stem == name)


def test_members_of_a_blend_have_equal_classes(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(golden("blend_classifier").read_bytes())
    with np.load(path) as file:
        classes = file["1.classes"]
    rewritten(path, **{"1.classes": np.arange(10, 10 + len(classes))})
    with pytest.raises(ValueError, match="members have different classes"):
        skforest.load(path)


@pytest.mark.parametrize(
    "name, damage, message",
    [
        ("blend_classifier", lambda head: head.pop("estimator"), "2 forests, but is no blend"),
        (
            "blend_classifier",
            lambda head: head.update(estimator="CO2ForestClassifier", params={}),
            "a CO2ForestClassifier has one forest, not 2",
        ),
        (
            "manifold_classifier",
            lambda head: first(head).update(estimator="BlendedForestClassifier", params={}),
            "a BlendedForestClassifier is no estimator of one forest",
        ),
    ],
)
def test_only_blends_have_several_forests(name, damage, message, tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(golden(name).read_bytes())
    rewritten(path, damage)
    with pytest.raises(ValueError, match=f"model.npz is damaged: .*{message}"):
        skforest.load(path)


def test_categories_are_not_scaled():
    forest = rich_mixed()
    ones = np.ones(forest.n_inputs)
    arrays = forest.arrays | {"offset": 0 * ones, "scale": ones}
    use(Forest(arrays, **forest.metadata))
    for change in ({"scale": np.full(forest.n_inputs, 1e-18)}, {"offset": ones}):
        with pytest.raises(ValueError, match="a category is scaled"):
            Forest(arrays | change, **forest.metadata)


def edited_bytes(content, kind, where, number):
    content = bytearray(content)
    at, length = where % max(len(content), 1), 1 + number % 9
    if kind == "set":
        content[at : at + 1] = bytes([number])
    elif kind == "flip" and content:
        content[at] ^= 1 << number % 8
    elif kind == "cut":
        content[at : at + length] = b""
    else:
        content[at:at] = content[at : at + length]
    return bytes(content)


def places(value):
    """All entries of a value made of dicts and lists, as pairs of a container and a key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


def edited_header(content, where, number):
    """A header with an entry removed, replaced by something strange, or by another entry."""
    header = json.loads(str(np.load(BytesIO(content))))
    known = list(places(header))
    holder, key = known[where % len(known)]
    if number < 40:
        del holder[key]
    elif number < 80:
        other, name = known[where // 7 % len(known)]
        holder[key] = copy.deepcopy(other[name])
    else:
        holder[key] = copy.deepcopy(STRANGE[number % len(STRANGE)])
    return npy_of_text(json.dumps(header))


def write_edited(source, path, edits, is_archive):
    """A copy of a saved estimator with some bytes, arrays or entries of the header changed."""
    content, members = source.read_bytes(), read_archive(source)
    for kind, where, number in sorted(edits, key=lambda edit: edit[0] != "header"):
        if kind == "header":  # first, as long as it can be read
            members["header.npy"] = edited_header(members["header.npy"], where, number)
        elif is_archive:
            content = edited_bytes(content, kind, where, number)
        else:
            name = sorted(members)[number % len(members)]
            members[name] = edited_bytes(members[name], kind, where, number)
    if is_archive:
        path.write_bytes(content)
    else:  # with correct checksums
        write_archive(path, members, zipfile.ZIP_STORED)


def load_and_use(path, mmap_mode=None):
    """Load an estimator and predict: whether it was refused, with an error that says why."""
    try:
        model = skforest.load(path, mmap_mode=mmap_mode)
    except ValueError as error:
        assert str(path) in str(error)
        return True
    X = np.zeros((3, model.n_features_in_), dtype=object if is_table(model) else np.float32)
    try:
        model.predict(X)
        model.predict_proba(X) if is_classifier(model) else None
    except ValueError as error:  # a parameter may have a value that `fit` would have refused
        assert str(error)
    return False


def is_table(model):
    return any(member.forest_.levels for member in getattr(model, "members_", {0: model}).values())


@functools.cache
def folder_of(source):
    """Contents of the files of a saved estimator, written as a folder, by name."""
    with tempfile.TemporaryDirectory() as folder:
        skforest.save(skforest.load(source), folder, layout="folder")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def write_edited_folder(source, folder, edits):
    """A folder of a saved estimator with some of its files changed."""
    files = dict(folder_of(source))
    for kind, where, number in edits:
        name = "header.json" if kind == "header" else sorted(files)[number % len(files)]
        kind = "set" if kind == "header" else kind
        files[name] = edited_bytes(files[name], kind, where, number)
    folder.mkdir(exist_ok=True)
    for path in folder.iterdir():
        path.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:Reading .*npy:UserWarning")
@pytest.mark.parametrize("n", [60, pytest.param(5_000, marks=pytest.mark.slow)])
def test_damaged_estimators_are_refused_or_can_be_used(n, tmp_path):
    @settings(fixed, max_examples=n)
    @given(st.sampled_from(SAVED), st.lists(EDIT, min_size=1, max_size=3), st.booleans())
    def check(source, edits, is_archive):
        write_edited(source, tmp_path / "model.npz", edits, is_archive)
        load_and_use(tmp_path / "model.npz")

    check()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning", "ignore:Reading .*npy:UserWarning")
@pytest.mark.parametrize("n", [20, pytest.param(2_000, marks=pytest.mark.slow)])
def test_damaged_folders_are_refused_or_can_be_used(n, tmp_path):
    @settings(fixed, max_examples=n)
    @given(st.sampled_from(SAVED), st.lists(EDIT, min_size=1, max_size=3), st.booleans())
    def check(source, edits, is_mapped):
        write_edited_folder(source, tmp_path / "model", edits)
        load_and_use(tmp_path / "model", "r" if is_mapped else None)

    check()
