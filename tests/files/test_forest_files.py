"""Copies and files of forests."""

import copy
import errno
import io
import mmap
import os
import pickle
import signal
import warnings

import numpy as np
import pytest
from forests import rich_classifier, rich_forest, table
from makers import assert_same

from skforest.forest import ARRAYS, Forest
from skforest.forest.io import write_forests

# ----------------------------------------------------------------------------- copies and files


@pytest.mark.parametrize("make", [rich_forest, rich_classifier])
def test_copies_and_files_are_the_same_forest(make, tmp_path):
    forest = make()
    X = table(forest)
    forest.response(X)  # with whatever is cached
    forest.save(tmp_path / "forest.npz")
    forest.save(tmp_path / "new" / "folder", layout="folder")
    copies = {
        "pickle": pickle.loads(pickle.dumps(forest)),
        "protocol 2": pickle.loads(pickle.dumps(forest, protocol=2)),
        "deepcopy": copy.deepcopy(forest),
        "copy": copy.copy(forest),
        "file": Forest.load(tmp_path / "forest.npz"),
        "folder": Forest.load(tmp_path / "new" / "folder"),
        "mmap": Forest.load(str(tmp_path / "new" / "folder"), mmap_mode="r"),
    }
    for name, other in copies.items():
        assert_same(forest, other)
        assert other.response(X).tobytes() == forest.response(X).tobytes(), name
    assert not np.shares_memory(copies["deepcopy"].child, forest.child)


def test_real_weights_survive_a_file(tmp_path):
    rng = np.random.default_rng(0)
    forest = rich_forest()
    arrays = forest.arrays
    for name in ("threshold", "gain", "value", "sparse_weight", "dense", "baseline"):
        arrays[name] = rng.normal(size=arrays[name].shape)
    arrays["node_weight"] = rng.random(forest.n_nodes) + 2.0**40
    arrays["threshold"][:4] = [-0.0, 0.0, 1e-45, 3.4e38]
    forest = Forest(arrays, **forest.metadata | {"steepness": 0.1})
    forest.save(tmp_path / "forest.npz")
    assert_same(forest, Forest.load(tmp_path / "forest.npz"))
    assert_same(forest, pickle.loads(pickle.dumps(forest)))


def test_a_mapped_forest_reads_from_the_file(tmp_path):
    forest = rich_forest()
    forest.save(tmp_path / "folder", layout="folder")
    mapped = Forest.load(tmp_path / "folder", mmap_mode="r")
    for name in ARRAYS:
        array = getattr(mapped, name)
        if array.size == 0:
            continue  # an empty file cannot be mapped
        assert not array.flags.writeable, name
        while isinstance(array, np.ndarray):
            array = array.base
        assert isinstance(array, mmap.mmap), name


def test_a_file_cannot_be_mapped(tmp_path):
    rich_forest().save(tmp_path / "forest.npz")
    with pytest.raises(ValueError, match="folder"):
        Forest.load(tmp_path / "forest.npz", mmap_mode="r")


def test_a_folder_can_be_written_over(tmp_path):
    """Nothing of the forest before is left: neither its labels nor its arrays."""
    rich_classifier().save(tmp_path, layout="folder")
    forest = rich_forest()
    forest.save(tmp_path, layout="folder")
    assert_same(forest, Forest.load(tmp_path))


def test_a_folder_of_other_arrays_is_left_alone(tmp_path):
    """A user's array is neither deleted nor written over; refusing the folder is fine too."""
    precious = np.arange(5)
    np.save(tmp_path / "precious.npy", precious)
    try:
        rich_forest().save(tmp_path, layout="folder")
    except (ValueError, OSError):
        pass
    np.testing.assert_array_equal(np.load(tmp_path / "precious.npy"), precious)


def test_a_mapped_forest_can_be_saved_where_it_came_from(tmp_path):
    forest = rich_forest()
    forest.save(tmp_path, layout="folder")
    Forest.load(tmp_path, mmap_mode="r").save(tmp_path, layout="folder")
    assert_same(forest, Forest.load(tmp_path))


def test_an_unknown_layout_is_refused(tmp_path):
    with pytest.raises(ValueError, match="zip"):
        rich_forest().save(tmp_path / "forest", layout="zip")


def test_a_file_of_too_many_forests_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at most 1000 forests, not 1001"):
        write_forests(tmp_path / "forest", [(rich_forest(), {})] * 1001)


def test_no_pickle_is_in_a_file(tmp_path):
    forest = rich_classifier()
    forest = Forest(forest.arrays, **forest.metadata | {"classes": np.array(list("abc"), object)})
    forest.save(tmp_path / "forest.npz")
    with np.load(tmp_path / "forest.npz", allow_pickle=False) as file:
        for name in file.files:
            assert file[name].dtype != object
    assert Forest.load(tmp_path / "forest.npz").classes.tolist() == ["a", "b", "c"]


def test_labels_of_mixed_types_are_refused(tmp_path):
    """Not turned into strings behind the user's back."""
    forest = rich_classifier()
    mixed = np.array([1, "b", 2.5], dtype=object)
    forest = Forest(forest.arrays, **forest.metadata | {"classes": mixed})
    with pytest.raises(TypeError, match="mixed|one kind"):
        forest.save(tmp_path / "forest.npz")


# ------------------------------------------------------------------------------- atomic writing


def test_a_file_is_replaced_only_when_the_new_one_is_complete(tmp_path, monkeypatch):
    path = tmp_path / "forest.npz"
    old = rich_forest()
    old.save(path)
    path.chmod(0o640)

    def full(file, **arrays):
        file.write(b"half of it")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space.*forest.npz"):
        rich_forest(1).save(path)
    monkeypatch.undo()
    assert_same(old, Forest.load(path))
    (tmp_path / "link").symlink_to(path)
    new = rich_forest(1)
    new.save(tmp_path / "link")
    assert_same(new, Forest.load(path))
    assert (tmp_path / "link").is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(file.name for file in tmp_path.iterdir()) == ["forest.npz", "link"]
    with pytest.raises(IsADirectoryError):
        new.save(tmp_path)


def leave_whole(path, layout, break_off):
    """Saving a forest, which `break_off` interrupts, leaves the old one; the new files."""
    old, new = rich_forest(), rich_forest(1)
    old.save(path, layout)
    before = sorted(path.parent.rglob("*"))
    break_off(new)
    assert_same(old, Forest.load(path))
    return set(path.parent.rglob("*")).difference(before)


@pytest.mark.parametrize("layout", ["file", "folder"])
@pytest.mark.parametrize("n_bytes", [0, 1, 1000, 3000])
def test_a_full_disk_leaves_the_old_forest(layout, n_bytes, tmp_path, monkeypatch):
    """The error of the file system comes from write, or only from fsync."""
    path = tmp_path / "forest"

    def break_off(new):
        if n_bytes:
            monkeypatch.setattr("builtins.open", open_on_small_disk(n_bytes))
        else:
            monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            new.save(path, layout)
        monkeypatch.undo()

    assert leave_whole(path, layout, break_off) == set()


def full(*_):
    raise OSError(28, "No space left on device")


def open_on_small_disk(n_bytes):
    """A function like `open` whose files together take a number of bytes only."""
    plain, free = open, [n_bytes]

    def small_open(name, mode="r", **options):
        file = plain(name, mode, **{"buffering": 0} | options) if "x" in mode else None
        if file is None:
            return plain(name, mode, **options)
        return SmallFile(file, free)

    return small_open


class SmallFile(io.BufferedIOBase):
    """A file on a disk with `free[0]` bytes."""

    def __init__(self, file, free):
        self.file, self.free = file, free

    def write(self, content):
        content = memoryview(content).cast("B")
        if len(content) > self.free[0]:
            self.file.write(content[: self.free[0]])
            full()
        self.free[0] -= len(content)
        return self.file.write(content)

    def close(self):
        self.file.close()
        super().close()

    def writable(self):
        return True

    def seekable(self):
        return True

    def seek(self, *where):
        return self.file.seek(*where)

    def tell(self):
        return self.file.tell()


def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)


# When the process dies: while it writes, before the files are on disk, before they are renamed.
MOMENTS = {"write": [(np, "save"), (np, "savez_compressed")], "flush": [(os, "fsync")]}
MOMENTS["rename"] = [(os, "replace")]


def kill_while_saving(forest, path, layout, moment):
    """Save a forest in another process, which is killed at a moment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which the child ignores
        child = os.fork()
    if child == 0:
        try:
            for module, name in MOMENTS[moment]:
                setattr(module, name, die)
            forest.save(path, layout)
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("layout, moment", [(k, m) for k in ("file", "folder") for m in MOMENTS])
def test_a_killed_process_leaves_the_old_forest(layout, moment, tmp_path):
    path = tmp_path / "forest"
    if (layout, moment) == ("folder", "rename"):
        # The files of a folder cannot be replaced at once; a mixture of both must not be read.
        rich_forest().save(path, layout)
        kill_while_saving(rich_forest(1), path, layout, moment)
        with pytest.raises(FileNotFoundError, match="header.json"):
            Forest.load(path)
        rich_forest(1).save(path, layout)
        assert_same(rich_forest(1), Forest.load(path))
    else:
        left = leave_whole(path, layout, lambda new: kill_while_saving(new, path, layout, moment))
        assert left and all(file.name.startswith(".skforest-") for file in left)


def test_files_are_on_disk_before_they_replace_others(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, recorded(getattr(os, name), name, calls))
    rich_forest().save(tmp_path / "forest", "folder")
    assert calls == ["fsync"] * (len(calls) // 2) + ["replace"] * (len(calls) // 2)
    assert len(calls) == 2 * len(list((tmp_path / "forest").iterdir())) > 40


def recorded(function, name, calls):
    def call(*args):
        calls.append(name)
        return function(*args)

    return call
