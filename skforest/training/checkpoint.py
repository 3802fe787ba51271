"""Checkpoints: results of training in a folder, from which an interrupted fit continues."""

import hashlib
import json
import pickle
import time
from pathlib import Path

from ..forest.io import replacements

SECONDS = 60.0  # between checkpoints of a bag; chosen without a measurement


class Checkpoint:
    """Members in a folder, and the rounds of bags that are not complete.

    Parameters
    ----------
    folder : str or Path
    key : dict of str to str
        Hashes of everything that the results depend on, by name.

    Raises
    ------
    ValueError
        If the folder belongs to a fit with another key, or a file in it is damaged.
    """

    def __init__(self, folder, key):
        self.folder, self.saved = Path(folder), {}
        self.folder.mkdir(parents=True, exist_ok=True)
        path, content = self.folder / "fit.json", json.dumps(key).encode()
        known = _read(path, _parsed) if path.exists() else key
        if changed := [name for name in key if key[name] != known.get(name)]:
            raise ValueError(
                f"checkpoint={str(folder)!r} belongs to a fit with other {', '.join(changed)}: "
                "pass another folder, or delete this one"
            )
        self._write(path, lambda file: file.write(content))
        # Each file has it: fits that begin at the same time do not see the fit.json of the other.
        self.key = hashlib.sha256(content).hexdigest()

    def load(self, name):
        """Return a result that was saved; None if there is none."""
        path = self.folder / f"{name}.pickle"
        if not path.exists():
            return None
        key, known_name, result = _read(path, _unpickled)
        if (key, known_name) != (self.key, name):
            raise ValueError(
                f"{path} of the checkpoint belongs to another fit: pass another folder, or delete "
                "this one"
            )
        return result

    def save(self, name, result):
        """Save a result; if that is interrupted, an earlier one stays."""
        content = self.key, name, result
        self._write(self.folder / f"{name}.pickle", lambda file: pickle.dump(content, file))
        self.saved[name] = time.perf_counter()

    def is_due(self, name):
        """Return whether some time has passed since `save`, or since the first call."""
        now = time.perf_counter()
        return now - self.saved.setdefault(name, now) >= SECONDS

    def _write(self, path, write):
        with replacements() as write_file:
            write_file(path, write)


def _read(path, loads):
    """Return the content of a file; ValueError with its name if it is damaged."""
    content = path.read_bytes()
    try:
        return loads(content)
    except Exception as error:
        raise ValueError(
            f"{path} of the checkpoint is damaged ({error}); delete it to train this part again"
        ) from error


def _parsed(content):
    """Return the dict in JSON text."""
    known = json.loads(content)
    if not isinstance(known, dict):
        raise ValueError(f"it has a {type(known).__name__}")
    return known


def _unpickled(content):
    """Return a key, a name and a result."""
    key, name, result = pickle.loads(content)
    return key, name, result
