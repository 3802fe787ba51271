"""Forests in files; docs/format specifies them.

A file has one member or several, each of them a forest: its metadata, in the header of the file,
and all arrays of `storage.ARRAYS`. Every array is stored in the narrowest dtype that represents it
exactly, and sequences that rise evenly are stored as differences. Objects of other packages, such
as members of a blend, are one more array of bytes, which this module does not look into. Nothing
is pickled.

A file is not trusted. Before an array is decompressed or allocated, its name must be known, the
shape and dtype that it declares must agree with its size in bytes, and the memory of all arrays,
in the dtypes of a `Forest`, must be in proportion to the size of the file.
"""

import json
import math
import os
import platform
import re
import shutil
import sys
import uuid
import zipfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy
import sklearn

from .._version import __version__
from ..table.matrix import is_mapped
from .file_object import ArchiveBytes, ArchiveFile, content_of, write_to
from .storage import ARRAYS, CHUNK, HALF_ARRAYS, cast_exactly

FORMAT = 1
MAX_MEMBERS = 1000
# Loading a file may take this many times its size, and this many bytes more, for the arrays and
# the objects of the header. The documented limit is larger by what temporary arrays take.
MEMORY_FACTOR = 10
FREE_MEMORY = 48 * 2**20
ARRAY_MEMORY = 2048  # of an array without its numbers: its names, entries of dicts, and so on
MAX_DIRECTORY = 100 * len(ARRAYS) * MAX_MEMBERS  # bytes of the names of all arrays in an archive
CHARACTER_MEMORY = 4  # of a character of the header: as bytes, twice, as str, and in a string
# What characters of JSON take besides: lists, dicts, entries of dicts, entries of lists and sets,
# halves of strings.
JSON_MEMORY = {b"[": 200, b"{": 400, b":": 200, b",": 120, b'"': 64}

_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
_DELTA = "delta:"
_OTHERS = "others"  # the array of objects of other packages
_KEY = re.compile(r"(0|[1-9][0-9]{0,2})\.(delta:)?([a-z_]+)")  # "1.delta:tree_start", "0.child"
_LABEL_KINDS = "biufcSUmM"  # dtypes of classes that need no pickle
_PICKLE_STARTS = (b"\x80", b"x", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"]\x00", b"\x04\x22M\x18")


def package_versions():
    """Versions of the package and of those that it depends on, as a dict of str."""
    return {
        "skforest": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


# ------------------------------------------------------------------------------- narrow dtypes


def _narrow_integers(array):
    if array.size == 0:
        return array
    low, high = array.min(), array.max()
    for dtype in _INTEGERS:
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return array.astype(dtype)
    return array


def narrow(arrays):
    """Cast a dict of arrays to smaller dtypes, without loss.

    Under a name with "delta:" before it stand the differences of neighbours, the first from 0.
    """
    small = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size:
            limit = min(2.0**31, float(np.finfo(array.dtype).max))
            whole = (np.abs(array) < limit).all() and (array == np.rint(array)).all()
            # An integer cannot represent -0.0.
            if whole and not np.signbit(array[array == 0]).any():
                small[name] = _narrow_integers(array.astype(np.int64))
                continue
            with np.errstate(over="ignore"):
                half = array.astype(np.float16)
            small[name] = half if np.array_equal(half, array) else array
        elif array.dtype.kind in "iu" and array.ndim == 1:
            plain = _narrow_integers(array)
            delta = _narrow_integers(np.diff(array.astype(np.int64), prepend=0))
            if delta.itemsize < plain.itemsize:
                small[_DELTA + name] = delta
            else:
                small[name] = plain
        else:
            small[name] = _narrow_integers(array)
    return small


def widen(arrays):
    """Undo the differences of `narrow`; Forest casts the arrays to their dtypes."""
    return {
        name.replace(_DELTA, "", 1): np.cumsum(array, dtype=np.int64) if _DELTA in name else array
        for name, array in arrays.items()
    }


def narrow_unless_mapped(arrays):
    """As `narrow`, but arrays that are mapped from files stay as they are.

    joblib passes them to other processes as names of these files: all processes share the memory.
    """
    mapped = {name: array for name, array in arrays.items() if is_mapped(array)}
    return narrow({name: arrays[name] for name in arrays if name not in mapped}) | mapped


# ------------------------------------------------------------------------------ names of arrays


class _Entry(NamedTuple):
    """An array in a file."""

    key: str  # in the file
    member: int  # number of the forest that it belongs to; -1: none
    is_delta: bool  # whether it has differences of neighbours
    name: str  # in a Forest, "classes", or _OTHERS
    dtype: np.dtype  # in memory; None: as in the file

    @property
    def declared(self):
        """Kinds of dtypes and the number of axes that it may have in the file."""
        if self.name == "classes":
            return _LABEL_KINDS, 1
        if self.name == _OTHERS:
            return "u", 1
        return ("iu", 1) if self.is_delta else ("biuf", ARRAYS[self.name][1])


def _entries(header):
    """The arrays that a header names; ValueError unless each member has every array once.

    Names become parts of paths, so those that are not known must not be used.
    """
    members = header["members"]
    entries, names = [], [set() for _ in members]
    for key in header["arrays"]:
        if key == _OTHERS:
            entries.append(_Entry(key, -1, False, key, np.dtype(np.uint8)))
            continue
        match = _KEY.fullmatch(key)
        number = int(match[1]) if match else len(members)
        if number >= len(members) or match[3] not in (*ARRAYS, "classes"):
            raise ValueError(f"{key!r} is not the name of an array of a forest")
        name, weight_dtype = match[3], members[number]["forest"].get("weight_dtype")
        if name in names[number]:
            raise ValueError(f"the array {number}.{name} is stored twice")
        names[number].add(name)
        dtype = None if name == "classes" else np.dtype(ARRAYS[name][0])
        if name in HALF_ARRAYS and weight_dtype == "float16":
            dtype = np.dtype(np.float16)
        entries.append(_Entry(key, number, match[2] is not None, name, dtype))
    for number, known in enumerate(names):
        if missing := sorted(ARRAYS.keys() - known):
            raise ValueError(f"the arrays {missing} of member {number} are missing")
    return entries


# -------------------------------------------------------------------------------------- writing


def _labels(classes):
    """Classes in a dtype that needs no pickle."""
    classes = np.asarray(classes)
    if classes.dtype != object:
        return classes
    kinds = {str if isinstance(label, str) else np.asarray(label).dtype.kind for label in classes}
    if len(kinds) > 1 or not kinds <= {str, "b", "i", "u", "f"}:
        raise TypeError(
            "classes must be all strings or all numbers of one kind to be saved without pickle"
        )
    stored = np.asarray(classes.tolist())
    if stored.tolist() != classes.tolist():
        raise ValueError(f"labels with NUL characters at the end cannot be saved: {classes}")
    return stored


def write_forests(path, members, layout="file", extra=None, others=None):
    """Write forests to a file or folder.

    Parameters
    ----------
    path : str, Path or binary file
    members : list of (Forest, dict)
        Forests, and further entries of the header of each, which JSON can represent.
    layout : {"file", "folder"}, default="file"
    extra : dict, default=None
        Further entries of the header of the file.
    others : ndarray of uint8, default=None
        Objects of other packages, as bytes.
    """
    if layout not in ("file", "folder"):
        raise ValueError(f'layout is {layout!r}; it must be "file" or "folder"')
    if hasattr(path, "write") and layout == "folder":
        raise ValueError('layout="folder" needs a path, not an open file')
    if len(members) > MAX_MEMBERS:
        raise ValueError(f"a file has at most {MAX_MEMBERS} forests, not {len(members)}")
    headers, arrays = [], {}
    for number, (forest, own) in enumerate(members):
        metadata = forest.metadata
        classes = metadata.pop("classes")
        metadata["levels"] = list(metadata["levels"].items())  # keys of JSON are strings
        if metadata["prior_ratio"] is None:
            del metadata["prior_ratio"]
        stored = narrow(forest.arrays) if layout == "file" else forest.arrays
        if classes is not None:
            stored["classes"] = _labels(classes)
        headers.append({"forest": metadata, **own})
        arrays |= {f"{number}.{name}": array for name, array in stored.items()}
    if others is not None:
        arrays[_OTHERS] = others
    header = {"format": FORMAT, "members": headers, "arrays": list(arrays), **(extra or {})}
    text = json.dumps(header)
    n_bytes = CHARACTER_MEMORY * len(text) + _json_memory(text.encode("ascii"))
    n_bytes += ARRAY_MEMORY * (len(arrays) + 1)
    for entry in _entries(header):
        array = arrays[entry.key]
        n_bytes += _array_memory(array.shape, entry.dtype or array.dtype)
    write_archive = partial(_write_archive, text=text, arrays=arrays, n_bytes=n_bytes)
    if hasattr(path, "write"):
        write_to(path, write_archive)
        return
    with replacements() as write_file:
        if layout == "file":
            write_file(path, write_archive)
            return
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        for key, array in arrays.items():
            write_file(path / f"{key}.npy", partial(np.save, arr=array, allow_pickle=False))
        size = len(text) + sum(array.nbytes for array in arrays.values())
        text = _padded(text, n_bytes, size, 1)
        write_file(path / "header.json", lambda file: file.write(text.encode("utf-8")))


def _write_archive(file, text, arrays, n_bytes):
    """Write an archive, which takes `n_bytes` of memory when it is loaded.

    If compression makes it so small that no reader accepts it, it is not compressed.
    """
    np.savez_compressed(file, header=np.array(text), **arrays)
    if n_bytes > _largest_memory(file.tell()):
        size = 4 * len(text) + sum(array.nbytes for array in arrays.values())
        file.seek(0)
        file.truncate()
        np.savez(file, header=np.array(_padded(text, n_bytes, size, 4)), **arrays)


def _padded(text, n_bytes, size, bytes_per_character):
    """The text with spaces that make a file of `size` bytes large enough for `n_bytes` of memory.

    Arrays and the numbers of a header need none; very many short lists and dicts do.
    """
    missing = n_bytes - _largest_memory(size)
    gain = MEMORY_FACTOR * bytes_per_character - CHARACTER_MEMORY
    return text + " " * max(0, -(-missing // gain))


@contextmanager
def replacements():
    """A function that writes new files, which replace those at their paths once all are complete.

    A reader, or an array that is mapped from an old file, never sees half of a file. The function
    takes a path and a function that writes to an open file.
    """
    written = []  # pairs of the name of a new file and the path where it belongs

    def write_file(path, write):
        path = Path(os.path.realpath(path))  # where `path` is a link, its target is replaced
        if path.exists() and not path.is_file():
            with open(path, "wb") as file:  # a device is written to, a folder raises
                write(file)
            return
        new = path.with_name(f".skforest-{uuid.uuid4().hex}")
        written.append((new, path))
        with open(new, "xb") as file:
            try:
                write(file)
            except OSError as error:  # of a full disk, say, which has no name
                error.filename = error.filename or str(path)
                raise

    try:
        yield write_file
        for new, _ in written:  # all at once, which takes much less time than one by one
            with open(new, "rb+") as file:
                os.fsync(file.fileno())  # otherwise a crash may leave names without content
        if len(written) > 1:
            # Without its header, which comes last, a folder of old and new files is not read.
            written[-1][1].unlink(missing_ok=True)
        for new, path in written:
            if path.exists():
                shutil.copymode(path, new)
            os.replace(new, path)
    except BaseException:
        for new, _ in written:
            new.unlink(missing_ok=True)
        raise


# -------------------------------------------------------------------------------------- reading


def read_forests(path, mmap_mode=None):
    """Read a file or folder that `write_forests` wrote.

    Parameters
    ----------
    path : str, Path or binary file
    mmap_mode : {"r"}, default=None
        "r": map the arrays of a folder into memory.

    Returns
    -------
    header : dict
    parts : list of (dict, dict)
        Arrays and metadata of each forest, as `Forest` takes them.
    others : ndarray of uint8, or None
        Objects of other packages, as bytes.

    Raises
    ------
    ValueError
        With the path, if the file or folder is not a saved forest.
    """
    if mmap_mode not in (None, "r"):
        raise ValueError(f'mmap_mode is {mmap_mode!r}; it must be None or "r"')
    if hasattr(path, "read") and mmap_mode is None:
        content = content_of(path)
        with ArchiveBytes(content) as file:
            return _read_archive(path, file.read(8), file, len(content))
    if not hasattr(path, "read") and (path := Path(path)).is_dir():
        return _read_folder(path, mmap_mode)
    if mmap_mode is not None:
        raise ValueError(f"mmap_mode={mmap_mode!r} needs a forest saved with layout='folder'")
    with ArchiveFile(path) as file:
        return _read_archive(path, file.read(8), file, os.fstat(file.fileno()).st_size)


@contextmanager
def as_value_error(message):
    """Raise what is raised by damaged data as a ValueError with a message of one's own."""
    try:
        yield
    except MemoryError:  # also raised for sound files that are too large
        raise
    except Exception as error:
        raise ValueError(f"{message}: {error or type(error).__name__}") from error


def _read_folder(path, mmap_mode):
    with open(path / "header.json", "rb") as file:
        text, identity = file.read(), _identity(os.fstat(file.fileno()))
    with as_value_error(f"{path} is not a saved forest"):
        memory = _Memory(len(text))
        memory.take(CHARACTER_MEMORY * len(text))
        header = _parsed(text, memory)
    _check_header(header, path)
    with as_value_error(f"{path} is damaged"):
        files = [(entry, path / f"{entry.key}.npy") for entry in _entries(header)]
        memory.add_file(sum(os.stat(own).st_size for _, own in files))
        memory.take(ARRAY_MEMORY * len(files))
        found = []
        for entry, own in files:
            with open(own, "rb") as file:
                size = os.fstat(file.fileno()).st_size
                shape, dtype = _check_npy(file, entry.key, size, *entry.declared)
                if mmap_mode is None or entry.is_delta or dtype != (entry.dtype or dtype):
                    array = _read_array(file, entry, shape, dtype, memory)
                else:
                    array = np.load(own, mmap_mode=mmap_mode, allow_pickle=False)
                    _check_text(array, entry.key)
            found.append((entry, array))
        # Who writes removes the header before the first array is replaced, see `replacements`.
        if _identity(os.stat(path / "header.json")) != identity:
            raise ValueError("another model was written while it was read; read it again")
        return header, *_parts(header, found)


def _identity(status):
    """What tells a file from the one that replaces it."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def _read_archive(path, start, file, size):
    """As `read_forests`; `file` is at the first bytes, `start`, of a file of `size` bytes."""
    message = f"{path} is not a saved forest"
    if start.startswith(_PICKLE_STARTS):
        message += (
            "; it looks like a pickle, which joblib.load or pickle.load reads (only load files "
            "that you trust)"
        )
    with as_value_error(message):
        file.longest_read = MAX_DIRECTORY
        archive = zipfile.ZipFile(file)
        file.longest_read = None
        memory = _Memory(size)
        memory.take(ARRAY_MEMORY * len(archive.infolist()))
        _check_directory(archive.infolist())
        infos = {info.filename: info for info in archive.infolist()}
        if "header.npy" not in infos:
            raise ValueError("it has no header")
        header = _parsed(_read_text(archive, infos.pop("header.npy"), memory), memory)
    _check_header(header, path)
    with as_value_error(f"{path} is damaged"):
        different = infos.keys() ^ {f"{key}.npy" for key in header["arrays"]}
        if different:
            raise ValueError(f"its header and its arrays differ in {sorted(different)}")
        found = []
        for entry in _entries(header):
            info = infos[f"{entry.key}.npy"]
            with archive.open(info) as member:
                shape, dtype = _check_npy(member, entry.key, info.file_size, *entry.declared)
                found.append((entry, _read_array(member, entry, shape, dtype, memory)))
        return header, *_parts(header, found)


def _parts(header, found):
    """Arrays and metadata of each forest, and other objects; `found` are pairs of entry, array."""
    parts = [({}, member["forest"] | {"classes": None}) for member in header["members"]]
    others = None
    for entry, array in found:
        if entry.name == _OTHERS:
            others = array
            continue
        arrays, metadata = parts[entry.member]
        (metadata if entry.name == "classes" else arrays)[entry.name] = array
    if not parts and others is None:
        raise ValueError("it has neither forests nor other models")
    return parts, others


class _Memory:
    """Memory that loading a file of `size` bytes may still take."""

    def __init__(self, size):
        self.size, self.left = size, _largest_memory(size)

    def add_file(self, size):
        """Add a file that belongs to the first one."""
        self.size += size
        self.left += MEMORY_FACTOR * size

    def take(self, n_bytes):
        """Count some bytes; ValueError if it is too many."""
        self.left -= n_bytes
        if self.left < 0:
            limit = _largest_memory(self.size)
            raise ValueError(f"its {self.size} bytes would take more than {limit} of memory")


def _largest_memory(size):
    """Bytes that the content of a file of `size` bytes may take."""
    return MEMORY_FACTOR * size + FREE_MEMORY


def _array_memory(shape, dtype):
    """Bytes of an array and of what checking it takes."""
    return ARRAY_MEMORY + math.prod(shape) * (np.dtype(dtype).itemsize + 1)


def _json_memory(text):
    """Upper bound of the bytes that JSON takes besides its characters."""
    # A string with an escaped character may take 4 bytes for every character, several times.
    n_bytes = 8 * len(text) if b"\\u" in text else 0
    return n_bytes + sum(each * text.count(what) for what, each in JSON_MEMORY.items())


def _check_directory(infos):
    """Raise ValueError unless the files in an archive have different names and are readable.

    They are never read beyond the sizes that the directory of the archive declares.
    """
    if len({info.filename for info in infos}) != len(infos):
        raise ValueError("two arrays have the same name")
    for info in infos:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{info.filename!r} is compressed by another method than deflate")


def _parsed(text, memory):
    """The header as a dict with a format number, from the bytes of its JSON."""
    memory.take(_json_memory(text))
    header = json.loads(text)
    if not isinstance(header, dict) or "format" not in header:
        raise ValueError("its header has no format number")
    return header


def _check_header(header, path):
    """Raise ValueError unless a header has this format, forests, and names of arrays."""
    if header["format"] != FORMAT:
        raise ValueError(
            f"{path} has format {header['format']}; this version reads format {FORMAT}"
        )
    members, keys = header.get("members"), header.get("arrays")
    if not isinstance(members, list) or len(members) > MAX_MEMBERS:
        raise ValueError(f"{path} is damaged: its header has no list of members")
    if not all(isinstance(m, dict) and isinstance(m.get("forest"), dict) for m in members):
        raise ValueError(f"{path} is damaged: its header does not describe a forest")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError(f"{path} is damaged: its header does not list the names of the arrays")


def _read_text(archive, info, memory):
    """The JSON of the header in an archive, as bytes: ASCII, as `json.dumps` writes it."""
    text = bytearray()
    with archive.open(info) as file:
        _, dtype = _check_npy(file, "header", info.file_size, "U", 0)
        n_characters = dtype.itemsize // 4
        memory.take(CHARACTER_MEMORY * n_characters)
        codec = "utf-32-be" if dtype.str[0] == ">" else "utf-32-le"
        for piece in _pieces(file, "header", n_characters, 4):
            text += piece.decode(codec).encode("ascii")
    return text.rstrip(b"\0")


def _read_array(file, entry, shape, stored, memory):
    """An array of an npy file, which is at its first number, in the dtype that a `Forest` needs.

    Only a piece of it is in memory in both dtypes.
    """
    dtype = entry.dtype or stored
    memory.take(_array_memory(shape, dtype))
    array = np.empty(shape, dtype)
    flat, first, total = array.reshape(-1), 0, np.int64(0)
    for piece in _pieces(file, entry.key, flat.size, stored.itemsize):
        numbers = np.frombuffer(piece, stored)
        if entry.is_delta:
            numbers = np.cumsum(numbers, dtype=np.int64)
            numbers += total
            total = numbers[-1]
        flat[first : first + len(numbers)] = cast_exactly(numbers, dtype, entry.key)
        first += len(numbers)
    _check_text(array, entry.key)
    return array


def _pieces(file, name, n_items, item_size):
    """The content of a file in pieces of some items; ValueError if it ends early.

    Where a file in an archive ends with the last item, its checksum is compared, too.
    """
    step = max(1, 8 * CHUNK // max(item_size, 1))
    for first in range(0, n_items, step):
        n_bytes = min(step, n_items - first) * item_size
        content = file.read(n_bytes)
        if len(content) != n_bytes:
            raise ValueError(f"{name} ends early")
        yield content


def _check_npy(file, name, size, kinds, n_axes):
    """Shape and dtype that an npy file of `size` bytes declares, if they fit into it.

    ValueError otherwise, also in Fortran order. The file is then at the first byte of the array.
    """
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} has another version of the npy format than 1.0")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=1000)
    if dtype.kind not in kinds or len(shape) != n_axes or (fortran_order and n_axes > 1):
        raise ValueError(f"{name} has dtype {dtype} and shape {shape}")
    n_bytes = size - file.tell()
    # numpy allocates one item even for an empty array.
    if min(shape, default=0) < 0 or dtype.itemsize > max(n_bytes, 16):
        raise ValueError(f"{name} declares an array that its {n_bytes} bytes cannot hold")
    if math.prod(shape) * dtype.itemsize != n_bytes:
        raise ValueError(f"{name} declares the shape {shape}, but has {n_bytes} bytes")
    return shape, dtype


def _check_text(array, name):
    """Raise ValueError if an array contains strings with code points that do not exist.

    numpy makes Python strings of them, which break whatever processes them later.
    """
    if array.dtype.kind == "U" and array.size:
        code_point = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        if array.view(code_point).max() > sys.maxunicode:
            raise ValueError(f"{name} contains characters that do not exist")
