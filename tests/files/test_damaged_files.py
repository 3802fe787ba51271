"""Files of forests that are damaged or made to do harm: a ValueError, or a sound forest."""

import json
import pickle
import tracemalloc
import zipfile

import numpy as np
import pytest
from archives import first, npy, npy_of_text, read_archive, rewritten, write_archive
from forests import rich_classifier, rich_forest, rich_mixed
from makers import assert_same, use

import skforest
from skforest.forest import ARRAYS, Forest, io

# -------------------------------------------------------------------------------- corrupt files


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


def test_a_lack_of_memory_is_no_damage(tmp_path, monkeypatch):
    def lacking(*_):
        raise MemoryError

    rich_forest().save(tmp_path / "forest.npz")
    monkeypatch.setattr("skforest.forest.io._check_directory", lacking)
    with pytest.raises(MemoryError):
        Forest.load(tmp_path / "forest.npz")


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


def nested(depth):
    return [nested(depth - 1)] if depth else []


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


def test_a_folder_that_is_overwritten_while_it_is_read_is_refused(tmp_path, monkeypatch):
    """Otherwise, arrays of two models could make one."""
    folder, check = tmp_path / "forest", io._check_npy
    first = rich_forest()
    second = first.replaced(first.arrays | {"value": first.value + 1})
    first.save(folder, layout="folder")
    checked = []

    def checked_while_written(*args):
        if len(checked) == 3:
            second.save(folder, layout="folder")
        checked.append(args)
        return check(*args)

    monkeypatch.setattr(io, "_check_npy", checked_while_written)
    with pytest.raises(ValueError, match="another model was written while it was read"):
        Forest.load(folder)
    np.testing.assert_array_equal(Forest.load(folder).value, second.value)
