"""Forests in files; docs/format specifies them.

In a file, every array is stored in the narrowest dtype that represents it exactly, and sequences
that rise evenly are stored as differences. Nothing is pickled.

A file is not trusted. Before anything is decompressed or allocated, the names of its arrays must
be known, the shapes and dtypes that they declare must agree with their sizes in bytes, and these
sizes must be in proportion to the size of the file.
"""

import json
import math
import os
import platform
import shutil
import sys
import uuid
import zipfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import scipy
import sklearn

from .._version import __version__
from .storage import ARRAYS

FORMAT = 2
FORMAT_OF_SEVERAL = 3  # of files with several forests
MAX_MEMBERS = 1000
READABLE = (1, 2, 3)  # format 1 has no missing values and no categories
# The arrays of a file may together take this many times the size of the file, and this many bytes
# more. Deflate compresses constant arrays a thousand times; arrays of models, twice to ten times.
MAX_EXPANSION = 100
FREE_EXPANSION = 16 * 2**20

_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
_DELTA = "delta:"
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


def is_mapped(array):
    """Whether an array is mapped from a file, itself or as a view."""
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap):
            return True
        array = array.base
    return False


def narrow_unless_mapped(arrays):
    """As `narrow`, but arrays that are mapped from files stay as they are.

    joblib passes them to other processes as names of these files: all processes share the memory.
    """
    mapped = {name: array for name, array in arrays.items() if is_mapped(array)}
    return narrow({name: arrays[name] for name in arrays if name not in mapped}) | mapped


def array_of_member(number, name):
    """Name of an array of one of several forests."""
    return f"{number}.{name}"


def parts_of_file(header, arrays):
    """Arrays and metadata of each forest of a file, as `Forest` takes them."""
    if header["format"] == FORMAT_OF_SEVERAL:
        members, parts = header["members"], [{} for _ in header["members"]]
        for name, array in arrays.items():
            own = _without_number(name)
            parts[int(name.removesuffix(f".{own}"))][own] = array
    else:
        header.pop("members", None)  # an unknown entry
        members, parts = [header], [arrays]
    for member, own in zip(members, parts):
        classes = own.pop("classes", None)
        yield own, member["forest"] | {"classes": classes}


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
    return np.asarray(classes.tolist())


def write_forest(path, metadata, arrays, layout="file", extra=None):
    """Write the metadata and arrays of a forest, and further entries of the header, `extra`.

    Metadata are values that JSON can represent, and "classes", an array or None. `layout` is
    "file" or "folder".
    """
    metadata, arrays = _stored(metadata, arrays, layout)
    header = {"format": FORMAT, "forest": metadata, "arrays": list(arrays), **(extra or {})}
    _write(path, header, arrays, layout)


def write_forests(path, members, layout="file", extra=None):
    """Write several forests: `members` are the arguments metadata, arrays and extra of each."""
    headers, every_array = [], {}
    for number, (metadata, arrays, own) in enumerate(members):
        metadata, arrays = _stored(metadata, arrays, layout)
        headers.append({"forest": metadata, **own})
        every_array |= {array_of_member(number, name): array for name, array in arrays.items()}
    header = {"format": FORMAT_OF_SEVERAL, "members": headers, "arrays": list(every_array)}
    _write(path, header | (extra or {}), every_array, layout)


def _stored(metadata, arrays, layout):
    """Metadata and arrays of a forest as they are written."""
    if layout not in ("file", "folder"):
        raise ValueError(f'layout is {layout!r}; it must be "file" or "folder"')
    metadata = dict(metadata)
    classes = metadata.pop("classes")
    metadata["levels"] = list(metadata["levels"].items())  # keys of JSON are strings
    arrays = narrow(arrays) if layout == "file" else dict(arrays)
    if classes is not None:
        arrays["classes"] = _labels(classes)
    return metadata, arrays


def _write(path, header, arrays, layout):
    text = json.dumps(header)
    with _replacements() as write_file:
        if layout == "file":
            write_file(path, lambda file: _write_archive(file, text, arrays))
            return
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            write_file(path / f"{name}.npy", partial(np.save, arr=array, allow_pickle=False))
        write_file(path / "header.json", lambda file: file.write(text.encode("utf-8")))


def _write_archive(file, text, arrays):
    arrays = {"header": np.array(text), **arrays}
    n_bytes = sum(array.nbytes + 1024 for array in arrays.values())
    np.savez_compressed(file, **arrays)
    if n_bytes > _largest_expansion(file.tell()):
        # Constant arrays would expand so much that no reader accepts the file.
        file.seek(0)
        file.truncate()
        np.savez(file, **arrays)


@contextmanager
def _replacements():
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
            write(file)

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


def read_forest(path, mmap_mode=None):
    """Header and arrays that `write_forest` wrote.

    Metadata are in ``header["forest"]``, except for "classes", which are among the arrays. A file
    of several forests has a list of such headers instead, ``header["members"]``; names of arrays
    then begin with the number of the forest, see `parts_of_file`.
    `mmap_mode` "r" maps the arrays of a folder into memory. ValueError, with the path, if the file
    or folder is not a saved forest.
    """
    path = Path(path)
    if mmap_mode not in (None, "r"):
        raise ValueError(f'mmap_mode is {mmap_mode!r}; it must be None or "r"')
    if path.is_dir():
        return _read_folder(path, mmap_mode)
    if mmap_mode is not None:
        raise ValueError(f"mmap_mode={mmap_mode!r} needs a forest saved with layout='folder'")
    with open(path, "rb") as file:
        return _read_archive(path, file)


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
    text = (path / "header.json").read_bytes()
    with as_value_error(f"{path} is not a saved forest"):
        header = _parsed(text)
    _check_format(header, path)
    with as_value_error(f"{path} is damaged"):
        arrays = {}
        for name in header["arrays"]:
            _check_name(name, arrays, header)
            with open(path / f"{name}.npy", "rb") as file:
                _check_npy(file, name, os.fstat(file.fileno()).st_size)
            array = np.load(path / f"{name}.npy", mmap_mode=mmap_mode, allow_pickle=False)
            arrays[name] = _checked_text(array, name)
    return header, arrays


def _read_archive(path, file):
    start = file.read(8)
    message = f"{path} is not a saved forest"
    if start.startswith(_PICKLE_STARTS):
        message += (
            "; it looks like a pickle, which joblib.load or pickle.load reads (only load files "
            "that you trust)"
        )
    with as_value_error(message):
        archive = zipfile.ZipFile(file)
        members = {member.filename: member for member in archive.infolist()}
        _check_sizes(archive.infolist(), os.fstat(file.fileno()).st_size)
        if "header.npy" not in members:
            raise ValueError("it has no header")
        header = _parsed(str(_read_member(archive, members.pop("header.npy"), "header")))
    _check_format(header, path)
    with as_value_error(f"{path} is damaged"):
        names = {member.removesuffix(".npy"): info for member, info in members.items()}
        different = set(names).symmetric_difference(header["arrays"])
        if different:
            raise ValueError(f"its header and its arrays differ in {sorted(different)}")
        known = set()
        for name, info in names.items():
            if info.filename != f"{name}.npy":
                raise ValueError(f"{info.filename!r} is not an array")
            plain = name.replace(_DELTA, "", 1)
            _check_name(plain, known, header)
            known.add(plain)
        arrays = {name: _read_member(archive, info, name) for name, info in names.items()}
        return header, widen(arrays)


def _largest_expansion(size):
    """Bytes that the arrays of a file of `size` bytes may take."""
    return MAX_EXPANSION * size + FREE_EXPANSION


def _check_sizes(members, size):
    """Raise ValueError if the members of an archive would expand beyond what is allowed.

    Members are never read beyond the sizes that the directory of the archive declares.
    """
    if len({member.filename for member in members}) != len(members):
        raise ValueError("two arrays have the same name")
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ValueError(f"{member.filename!r} is compressed by another method than deflate")
    n_bytes = sum(member.file_size for member in members)
    if n_bytes > _largest_expansion(size):
        raise ValueError(f"{size} bytes would expand to {n_bytes}")


def _parsed(text):
    """The header as a dict with a format number, from its JSON."""
    header = json.loads(text)
    if not isinstance(header, dict) or "format" not in header:
        raise ValueError("its header has no format number")
    return header


def _check_format(header, path):
    if header["format"] not in READABLE:
        raise ValueError(
            f"{path} has format {header['format']}; this version reads the formats 1 to 3"
        )
    members, names = [header], header.get("arrays")
    if header["format"] == FORMAT_OF_SEVERAL:
        members = header.get("members")
        if not isinstance(members, list) or not 0 < len(members) <= MAX_MEMBERS:
            raise ValueError(f"{path} is damaged: its header has no list of members")
    if not all(isinstance(m, dict) and isinstance(m.get("forest"), dict) for m in members):
        raise ValueError(f"{path} is damaged: its header does not describe a forest")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{path} is damaged: its header does not list the names of the arrays")


def _without_number(name):
    """Name of an array without the number of the forest that it belongs to."""
    number, point, own = name.partition(".")
    return own if point and number.isdecimal() else name


def _check_name(name, names, header):
    """Raise ValueError unless a forest has an array of this name, and it is not yet in `names`.

    Names become parts of paths, so those that are not known must not be used.
    """
    own = name
    if header["format"] == FORMAT_OF_SEVERAL:
        own = _without_number(name)
        number = name.removesuffix(own).removesuffix(".")
        if number != str(int(number or -1)) or int(number) >= len(header["members"]):
            raise ValueError(f"{name!r} does not begin with the number of a forest")
    if own not in ARRAYS and own != "classes":
        raise ValueError(f"{name!r} is not the name of an array of a forest")
    if name in names:
        raise ValueError(f"the array {name} is stored twice")


def _read_member(archive, member, name):
    """One array of an archive, whose declared shape and dtype are checked first."""
    with archive.open(member) as file:
        shape, fortran_order, dtype = _check_npy(file, name, member.file_size)
        n_bytes = math.prod(shape) * dtype.itemsize
        # No more than n_bytes are decompressed, and the checksum is compared after the last one.
        content = bytearray(file.read(n_bytes))
    if len(content) != n_bytes:
        raise ValueError(f"{name} ends early")
    array = np.frombuffer(content, dtype) if n_bytes else np.zeros(0, dtype)
    return _checked_text(array.reshape(shape, order="F" if fortran_order else "C"), name)


def _check_npy(file, name, size):
    """Shape, order and dtype that an npy file of `size` bytes declares, if they fit into it.

    ValueError otherwise. The file is then at the first byte of the array.
    """
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name} has another version of the npy format than 1.0")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file, max_header_size=1000)
    stored = _without_number(name)
    plain = stored.removeprefix(_DELTA)
    if name == "header":
        kinds, n_axes = "U", 0
    elif stored == "classes":
        kinds, n_axes = _LABEL_KINDS, 1
    else:
        kinds, n_axes = ("iu", 1) if stored != plain else ("biuf", ARRAYS[plain][1])
    if dtype.kind not in kinds or len(shape) != n_axes:
        raise ValueError(f"{name} has dtype {dtype} and shape {shape}")
    n_bytes = size - file.tell()
    # numpy allocates one item even for an empty array.
    if min(shape, default=0) < 0 or dtype.itemsize > max(n_bytes, 16):
        raise ValueError(f"{name} declares an array that its {n_bytes} bytes cannot hold")
    if math.prod(shape) * dtype.itemsize != n_bytes:
        raise ValueError(f"{name} declares the shape {shape}, but has {n_bytes} bytes")
    return shape, fortran_order, dtype


def _checked_text(array, name):
    """The array; ValueError if it contains strings with code points that do not exist.

    numpy makes Python strings of them, which break whatever processes them later.
    """
    if array.dtype.kind == "U" and array.size:
        code_point = np.dtype(np.uint32).newbyteorder(array.dtype.byteorder)
        if np.frombuffer(array.tobytes(), code_point).max() > sys.maxunicode:
            raise ValueError(f"{name} contains characters that do not exist")
    return array
