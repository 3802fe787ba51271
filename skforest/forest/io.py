"""A forest as a file; see docs/format.

Arrays are written in the narrowest dtype that holds them exactly, and sequences that rise evenly
as differences. Nothing is pickled.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

FORMAT = 1
_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32)
_DELTA = "delta:"


def _narrow_integers(array):
    if array.size == 0:
        return array
    low, high = array.min(), array.max()
    for dtype in _INTEGERS:
        if np.iinfo(dtype).min <= low and high <= np.iinfo(dtype).max:
            return array.astype(dtype)
    return array


def narrow(arrays):
    """Arrays in smaller dtypes, without loss.

    Parameters
    ----------
    arrays : dict of str to ndarray

    Returns
    -------
    arrays : dict of str to ndarray
        A name that begins with "delta:" holds differences, from 0, of neighbours.
    """
    small = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f" and array.size:
            limit = min(2.0**31, float(np.finfo(array.dtype).max))
            whole = (np.abs(array) < limit).all() and (array == np.rint(array)).all()
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
    """Undo the differences of `narrow`; the dtypes are put right by Forest.

    Parameters
    ----------
    arrays : mapping of str to ndarray

    Returns
    -------
    arrays : dict of str to ndarray
    """
    return {
        name.removeprefix(_DELTA): np.cumsum(array, dtype=np.int64)
        if name.startswith(_DELTA)
        else array
        for name, array in arrays.items()
    }


def _plain(classes):
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


def write_forest(path, meta, arrays, layout="file", extra=None):
    """Write meta and arrays of a forest.

    Parameters
    ----------
    path : str or Path
    meta : dict
        JSON can hold it, but for "classes".
    arrays : dict of str to ndarray
    layout : {"file", "folder"}
    extra : dict, default=None
        Further entries of the header.
    """
    path = Path(path)
    meta = dict(meta)
    classes = meta.pop("classes")
    if layout == "file":
        arrays = narrow(arrays)
    elif layout != "folder":
        raise ValueError(f'layout is {layout!r}, "file" or "folder" is needed')
    arrays = dict(arrays)
    if classes is not None:
        arrays["classes"] = _plain(classes)
    names = list(arrays)
    text = json.dumps({"format": FORMAT, "forest": meta, "arrays": names, **(extra or {})})
    if layout == "file":
        with open(path, "wb") as file:
            np.savez_compressed(file, header=np.array(text), **arrays)
        return
    path.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        # Beside and then over the old file: the array may be mapped from it.
        new = path / f"{name}.new.npy"
        np.save(new, array, allow_pickle=False)
        new.replace(path / f"{name}.npy")
    (path / "header.json").write_text(text, encoding="utf-8")


def read_header(path):
    """Header of a saved forest: dict."""
    path = Path(path)
    try:
        if path.is_dir():
            text = (path / "header.json").read_text(encoding="utf-8")
        else:
            with np.load(path, allow_pickle=False) as file:
                text = str(file["header"])
        header = json.loads(text)
        found = header["format"]
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{path} is not a saved forest") from error
    if found != FORMAT:
        raise ValueError(f"{path} has format {found}, this version reads format {FORMAT}")
    return header


def read_forest(path, mmap_mode=None):
    """Read what `write_forest` wrote.

    Parameters
    ----------
    path : str or Path
    mmap_mode : {None, "r"}
        "r" needs a folder.

    Returns
    -------
    meta, arrays : dict
    """
    path = Path(path)
    if mmap_mode not in (None, "r"):
        raise ValueError(f"mmap_mode is {mmap_mode!r}, None or 'r' is needed")
    if mmap_mode is not None and not path.is_dir():
        raise ValueError(f"mmap_mode={mmap_mode!r} needs a forest saved with layout='folder'")
    header = read_header(path)
    try:
        meta = dict(header["forest"])
        if path.is_dir():
            arrays = {
                name: np.load(path / f"{name}.npy", mmap_mode=mmap_mode, allow_pickle=False)
                for name in header["arrays"]
            }
        else:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files if name != "header"}
            if set(arrays) != set(header["arrays"]):
                raise ValueError(f"it has the arrays {sorted(arrays)}, not {header['arrays']}")
        meta["classes"] = arrays.pop("classes", None)
        return meta, widen(arrays)
    except Exception as error:
        raise ValueError(f"{path} is damaged: {error}") from error
