"""Measured rows in JSON files, one for each script, by name."""

import base64
import json
import re
import statistics
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.lib.timing import environment

FOLDER = Path(__file__).resolve().parents[1] / "results"
PYTHON = "python -m benchmarks."  # begins the command of a script
UNITS = {
    "x": "{:.3g}x",
    "%": "{:.2f} %",
    "us": "{:.0f} us",
    "us/row": "{:.2f} us",
    "s": "{:.3f} s",
    "MiB": "{:.1f} MiB",
    "GFLOP/s": "{:.1f} GFLOP/s",
    "GB/s": "{:.1f} GB/s",
    "ratio": "{:.3f}",
    "workers": "{:.0f}",
}


@dataclass(frozen=True)
class Measure:
    """A quantity that a script measures.

    Parameters
    ----------
    what : str
    unit : str
        A key of `UNITS`, or ``"yes"`` for a fact (1 or 0).
    more : bool
        Whether a larger value is better.
    paper : float, optional
        The value that the method's paper reports.
    """

    what: str
    unit: str
    more: bool = True
    paper: float | None = None


@dataclass(frozen=True)
class Row:
    """The result of measuring one quantity.

    Parameters
    ----------
    name : str
        The group and what it measures, such as "errors/usps-10".
    values : list of float
        One value for each repetition.
    note : str
        A remark.
    rival : dict, optional
        Package versions of the competing library, if it ran in another environment.
    value : float, optional
        The result, if it is neither mean nor median of `values`.
    """

    name: str
    values: list
    note: str = ""
    rival: dict | None = None
    value: float | None = None


class MissingResult(LookupError):
    """A table needs a result that no script has stored."""

    def __init__(self, what, script, group):
        super().__init__(f"{what} is not stored: run `{PYTHON}{script} {group}`")


class Rows:
    """All stored results, read when they are needed.

    A row is named ``script:group/what``, such as ``measure.co2:errors/usps-10``.

    Parameters
    ----------
    folder : Path, optional
        With a folder for each folder of scripts.
    """

    def __init__(self, folder=FOLDER):
        self.folder, self._files = folder, {}

    def file(self, name, group):
        """Return the content of a file, such as ``papers.hinge_plane`` of the group "plane".

        The part before ``_`` is the script. MissingResult is raised if there is no such file.
        """
        if name not in self._files:
            self._files[name] = read(self.folder / f"{name.replace('.', '/')}.json")
        if not self._files[name]:
            raise MissingResult(f"{name.replace('.', '/')}.json", name.partition("_")[0], group)
        return self._files[name]

    def of(self, script, *groups):
        """Return the rows of some groups of a script by name, in their order.

        MissingResult is raised if one of the groups has no row.
        """
        rows = self.file(script, groups[0])
        found = {name: row for name, row in rows.items() if name.partition("/")[0] in groups}
        for group in groups:
            if not any(name.startswith(f"{group}/") for name in found):
                raise MissingResult(f"any row of {group!r}", script, group)
        return found

    def get(self, name):
        """Return a row, or None. MissingResult is raised if its group has no row at all."""
        script, _, row = name.partition(":")
        return self.of(script, row.partition("/")[0]).get(row)

    def __getitem__(self, name):
        """Return a row; MissingResult is raised if it is not stored."""
        script, _, row = name.partition(":")
        group = row.partition("/")[0]
        found = self.of(script, group)
        if row not in found:
            raise MissingResult(f"the row {row!r}", script, group)
        return found[row]


def add(path, row, measure, command):
    """Merge a row into the file and return it as it is stored.

    The value of an error in percent is the mean of the repetitions; other values are medians.
    """
    average = statistics.fmean if measure.unit == "%" else statistics.median
    entry = {
        **vars(measure),
        "value": float(average(row.values) if row.value is None else row.value),
        "spread": [float(min(row.values)), float(max(row.values))],
        "repeats": len(row.values),
        "note": row.note,
        "command": command,
        "environment": environment(),
        "rival": row.rival,
    }
    rows = read(path)
    rows[row.name] = entry
    write(path, rows)
    return entry


def deviation(row):
    """Return the standard deviation over the repetitions of a stored row, or None.

    Rows have the mean, the smallest and the largest value, which determine the third value of
    three repetitions. The deviation of more repetitions is in the note, if the script writes it.
    """
    if row["repeats"] == 1 or not (row["unit"] == "%" or row["what"].startswith("R2")):
        return None
    least, most = row["spread"]
    if row["repeats"] == 2:
        return statistics.stdev(row["spread"])
    if row["repeats"] == 3:
        return statistics.stdev([least, most, 3 * row["value"] - least - most])
    found = re.match(r"[\d.]+ \+- ([\d.]+)", row["note"])
    return float(found[1]) if found else None


def read(path):
    """Read a JSON file; return an empty dictionary if it does not exist."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(path, content):
    """Write a JSON file, and create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def to_text(matrix):
    """Return a matrix of whole numbers as short JSON: a string for each row."""
    return [" ".join(map(str, row)) for row in matrix.round().astype(int).tolist()]


def from_text(rows):
    """Return the matrix that `to_text` converted, as floats."""
    return np.array([row.split() for row in rows], dtype=float)


def packed(matrix):
    """Return a matrix of whole numbers below 256 as short text; rows have one length."""
    return base64.b64encode(zlib.compress(matrix.round().astype(np.uint8).tobytes(), 9)).decode()


def unpacked(text, n_columns):
    """Return the matrix that `packed` converted, as floats."""
    flat = np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=np.uint8)
    return flat.reshape(-1, n_columns).astype(float)


def show(value, unit):
    """Format a value in its unit."""
    if value is None:
        return ""
    if unit == "yes":
        return "yes" if value else "no"
    return UNITS[unit].format(value)
