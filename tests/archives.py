"""Files of models, taken apart and written again with changes."""

import copy
import functools
import json
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
from sklearn.base import is_classifier

import skforest


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


SAVED = sorted((Path(__file__).parent / "golden" / "models").glob("*.npz"))

STRANGE = [
    None, True, -1, 0, 1, 2, 7, 2**31, 2**63, 10**400, -0.5, 1e308, float("nan"), float("inf"),
    "", "x", "float16", "mean", [], {}, [[]], {"tuple": []}, {"items": [[0, 1]]},
    {"array": [1, 2], "dtype": "i1"}, {"estimator": "ManifoldForestClassifier", "params": {}},
]  # fmt: skip


def golden(name):
    """Path of a saved estimator."""
    return next(path for path in SAVED if path.stem == name)


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


def npy_of_text(text):
    return npy(f"<U{len(text)}", (), text.encode("utf-32-le"))
