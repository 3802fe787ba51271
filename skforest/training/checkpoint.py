"""Checkpoints: results of training in a folder, from which an interrupted fit continues."""

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
        path = self.folder / "fit.json"
        known = _read(path, json.loads) if path.exists() else key
        if changed := [name for name in key if key[name] != known.get(name)]:
            raise ValueError(
                f"checkpoint={str(folder)!r} belongs to a fit with other {', '.join(changed)}: "
                "pass another folder, or delete this one"
            )
        self._write(path, lambda file: file.write(json.dumps(key).encode()))

    def load(self, name):
        """Return a result that was saved; None if there is none."""
        path = self.folder / f"{name}.pickle"
        return _read(path, pickle.loads) if path.exists() else None

    def save(self, name, result):
        """Save a result; if that is interrupted, an earlier one stays."""
        self._write(self.folder / f"{name}.pickle", lambda file: pickle.dump(result, file))
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
