"""Measured rows: kept in a JSON file, shown as a table of the documentation."""

import json
import statistics
from dataclasses import dataclass

from timing import environment

UNITS = {
    "x": "{:.3g}x",
    "%": "{:.2f} %",
    "us": "{:.0f} us",
    "s": "{:.3f} s",
    "MiB": "{:.1f} MiB",
    "GFLOP/s": "{:.1f} GFLOP/s",
    "GB/s": "{:.1f} GB/s",
    "ratio": "{:.3f}",
}


@dataclass(frozen=True)
class Bar:
    """What is measured, in which unit, and what is wanted.

    Parameters
    ----------
    what : str
    unit : str
        A key of `UNITS`, or ``"yes"`` for a fact (1 or 0).
    bar, stretch : float, optional
        Wanted and hoped for; None where nothing is asked.
    more : bool
        Whether a larger value is better.
    """

    what: str
    unit: str
    bar: float | None = None
    stretch: float | None = None
    more: bool = True


@dataclass(frozen=True)
class Row:
    """A measured bar.

    Parameters
    ----------
    name : str
        Such as "group/what".
    values : list of float
        The repeats.
    note : str
        A remark.
    rival : dict, optional
        Versions where the rival ran, if that was another environment.
    value : float, optional
        The figure itself, where it is not the middle of `values`.
    """

    name: str
    values: list
    note: str = ""
    rival: dict | None = None
    value: float | None = None


def add(path, row, bar, command):
    """Merge a row into the file and return it as it is stored.

    The value of an error in percent is the mean of the repeats, that of all else their median.
    """
    middle = statistics.fmean if bar.unit == "%" else statistics.median
    entry = {
        **vars(bar),
        "value": float(middle(row.values) if row.value is None else row.value),
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


def read(path):
    """Read a JSON file; return an empty dictionary where there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def write(path, content):
    """Write a JSON file, and its folder where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")


def show(value, unit):
    """Format a value in its unit."""
    if value is None:
        return ""
    if unit == "yes":
        return "yes" if value else "no"
    return UNITS[unit].format(value)


def wanted(entry, key):
    """Format the bar or the stretch of a stored row with its direction."""
    if entry[key] is None:
        return ""
    sign = "" if entry["unit"] == "yes" else ">= " if entry["more"] else "<= "
    return sign + show(entry[key], entry["unit"])


def met(entry, key):
    """Whether a stored row reaches its bar or its stretch; None where nothing is asked."""
    if entry[key] is None:
        return None
    return (entry["value"] - entry[key]) * (1 if entry["more"] else -1) >= 0


def list_table(rows):
    """Return stored rows as lines of a list-table (reStructuredText), machines below it."""
    lines = [
        ".. list-table::",
        "   :header-rows: 1",
        "   :widths: 40 20 10 10 20",
        "",
        *_cells("Figure and command", "Measured (least, most)", "Bar", "Stretch", "Details"),
    ]
    for row in rows:
        least, most = (show(value, row["unit"]) for value in row["spread"])
        value = show(row["value"], row["unit"])
        measured = value if least == most else f"{value} ({least}, {most})"
        if met(row, "bar") is False:
            measured += ", **bar missed**"
        lines += _cells(
            f"{row['what']}: ``{row['command']}``",
            measured,
            wanted(row, "bar"),
            wanted(row, "stretch"),
            row["note"] + _versions(row["rival"]),
        )
    machines = [json.dumps(row["environment"]) for row in rows]
    for machine in dict.fromkeys(machines):
        facts = (f"{key} {value}" for key, value in json.loads(machine).items() if value)
        lines += ["", "Measured with " + ", ".join(facts) + "."]
    return lines


def _versions(rival):
    if not rival:
        return ""
    return " (rival with " + ", ".join(f"{key} {value}" for key, value in rival.items()) + ")"


def _cells(first, *others):
    return [f"   * - {first}", *(f"     - {cell}".rstrip() for cell in others)]
