"""Measured rows, kept in a JSON file."""

import json
import re
import statistics
from dataclasses import dataclass

import numpy as np
from timing import environment

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
        Such as "group/what".
    values : list of float
        One value for each repetition.
    note : str
        A remark.
    rival : dict, optional
        Package versions of the competing library, if it ran in another environment.
    value : float, optional
        The result, where it is neither mean nor median of `values`.
    """

    name: str
    values: list
    note: str = ""
    rival: dict | None = None
    value: float | None = None


def add(path, row, measure, command):
    """Merge a row into the file and return it as it is stored.

    The value of an error in percent is the mean of the repetitions, that of all else the median.
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
    """Standard deviation over the repetitions of a stored row, or None.

    Rows hold the mean, the smallest and the largest value: with three repetitions, the third value
    follows. The deviation of more repetitions stands in the note, where a script has written it.
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
    """Read a JSON file; return an empty dictionary where there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(path, content):
    """Write a JSON file, and its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def to_text(matrix):
    """Return a matrix of whole numbers as short JSON: a string for each row."""
    return [" ".join(map(str, row)) for row in matrix.round().astype(int).tolist()]


def from_text(rows):
    """Return the matrix that `to_text` was given, as floats."""
    return np.array([row.split() for row in rows], dtype=float)


def show(value, unit):
    """Format a value in its unit."""
    if value is None:
        return ""
    if unit == "yes":
        return "yes" if value else "no"
    return UNITS[unit].format(value)
