"""Parts of the tables of all scripts: titles, cells and rows.

A table is a pair of a head and rows, which have a cell of text for each entry of the head.
"""

import re

from benchmarks.lib import results
from benchmarks.lib.groups import name_of

TITLES = {
    "letter": "Letter",
    "letter_libsvm": "Letter LIBSVM",
    "usps": "USPS",
    "pendigits": "Pendigits",
    "satimage": "SatImage",
    "mnist": "MNIST",
    "connect4": "Connect4",
    "protein": "Protein",
    "sensit": "SensIT",
    "covertype": "Covertype",
    "madelon": "Madelon",
    "membranes": "Membranes",
    "circle": "Circle",
    "bars": "Bars",
    "impulse": "Impulse",
    "sphere": "Sphere",
    "volume": "Volume",
    "sensors": "Sensors",
    "ucr_ecg5000": "ECG5000",
    "ucr_gunpoint": "GunPoint",
    "ucr_swedishleaf": "SwedishLeaf",
}


def titled(content):
    """Replace the names of data sets in keys such as "mnist, trees" by their titles."""
    return {re.sub(r"^\w+", lambda name: TITLES.get(name[0], name[0]), key): part
            for key, part in content.items()}  # fmt: skip


def pivot(stored, labels, columns, name):
    """Return a table row for each label; `name` formats label and column into a stored row."""
    return [
        (str(label), *cells(stored, [name.format(label, *column) for column in columns]))
        for label in labels
    ]


def cells(stored, names):
    """Return the cells of rows, empty where nothing is stored or named, and their commands."""
    rows = [name and stored.get(name) for name in names]
    return *(cell(row) if row else "" for row in rows), commands(rows)


def cell(row, with_paper=True):
    """Format a value and its deviation over seeds, with the paper's value in brackets.

    Accuracies in percent become errors.
    """
    value, paper = row["value"], row["paper"] if with_paper else None
    if row["unit"] == "%" and row["more"]:
        value = 100 - value
        paper = None if paper is None else 100 - paper
    digits = 2 if row["unit"] == "%" else 3
    spread = results.deviation(row)
    return (
        f"{value:.{digits}f}"
        + (f" ± {spread:.{digits}f}" if spread is not None else "")
        + (f" [{paper:.4g}]" if paper is not None else "")
    )


def noted(stored, script, groups):
    """Return the table of all rows of some groups of a script, with their notes."""
    rows = [
        (row["what"], results.show(row["value"], row["unit"]), row["note"], commands([row]))
        for row in stored.of(script, *map(name_of, groups)).values()
    ]
    return ("What", "Measured", "", "Command"), rows


def measured(row):
    """Return value with range, remark, and command of a row."""
    least, most = (results.show(value, row["unit"]) for value in row["spread"])
    value = results.show(row["value"], row["unit"])
    # Mean and deviation, or the median, are in the value already.
    note = re.sub(r"^(median .*|[\d.]+ \+- [\d.]+( %)?)$", "", row["note"])
    if row["rival"]:
        note += " (" + ", ".join(f"{k} {v}" for k, v in row["rival"].items()) + ")"
    return value if least == most else f"{value} ({least}, {most})", note, commands([row])


def commands(rows, with_sets=False):
    """Return the different commands of rows, some of which may be None, without common parts.

    The option ``--sets`` is omitted if a row belongs to one set, because it has no effect then.
    """
    found = [row["command"].removeprefix(results.PYTHON) for row in rows if row]
    if not with_sets:
        found = [re.sub(r" --sets( (?!--)\S+)+", "", command) for command in found]
    return ", ".join(f"``{command}``" for command in dict.fromkeys(found))


def known(value, form):
    """Format a value, or return an empty cell if it is not stored."""
    return "" if value is None else form.format(value)


def filled(rows):
    """Remove rows in which nothing was measured."""
    return [row for row in rows if any(row[1:])]


def curve(stored, names):
    """Return the stored values by the keys of `names`."""
    rows = {key: stored.get(name) for key, name in names.items()}
    return {key: row["value"] for key, row in rows.items() if row}
