"""Tables and pictures of the documentation, from the stored results.

    python -m benchmarks.report [FOLDER]

writes the tables (.inc) and pictures (.png) of all scripts into a folder, by default into
``docs/performance``. It measures nothing, and needs only matplotlib. The build of the
documentation calls `write`.
"""

import argparse
import hashlib
import importlib
import io
from pathlib import Path

from benchmarks.lib import results

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("measure", "compare", "papers")


def scripts():
    """Return the modules of all scripts by name, such as ``papers.co2``."""
    names = [
        f"{folder}.{path.stem}"
        for folder in FOLDERS
        for path in sorted((ROOT / "benchmarks" / folder).glob("*.py"))
    ]
    return {name: importlib.import_module(f"benchmarks.{name}") for name in names}


def made(kind):
    """Return the functions of all scripts by the name of their table or figure.

    Parameters
    ----------
    kind : {"TABLES", "FIGURES"}
        Tables take the stored `results.Rows` and return head and rows, pictures a figure.
    """
    found = {"environments": environments} if kind == "TABLES" else {}
    for module in scripts().values():
        found |= getattr(module, kind, {})
    return found


def write(folder):
    """Write all tables and pictures whose content has changed.

    Nothing is done if no script and no result has changed since the last call. MissingResult is
    raised if a result is not stored; it names the command that measures it.
    """
    stamp = folder / "stamp"
    state = _state()
    if stamp.exists() and stamp.read_text() == state:
        return
    folder.mkdir(parents=True, exist_ok=True)
    stored = results.Rows()
    for name, table in made("TABLES").items():
        text = "\n".join(list_table(*table(stored))) + "\n"
        _write(folder / f"{name}.inc", text.encode())
    for name, draw in made("FIGURES").items():
        picture = io.BytesIO()
        draw(stored).savefig(picture)
        _write(folder / f"{name}.png", picture.getvalue())
    stamp.write_text(state)


def _write(path, content):
    """Write only changed files, so that other pages are not built again."""
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)


def _state():
    """Return a hash of all files that tables and pictures depend on."""
    files = sorted(
        [*ROOT.glob("benchmarks/*/*.py"), *results.FOLDER.glob("*/*.json"), Path(__file__)]
    )
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def list_table(head, rows):
    """Return the lines of a list-table (reStructuredText)."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (head, *rows):
        first, *others = (f"{cell}".rstrip() for cell in row)
        lines += [f"   * - {first}".rstrip(), *(f"     - {cell}".rstrip() for cell in others)]
    return lines


def environments(stored):
    """Return the table of the environments of all results: common entries, then differences."""
    of_scripts = {}
    for path in sorted(stored.folder.glob("*/*.json")):
        script = f"{path.parent.name}.{path.stem.partition('_')[0]}"
        for row in results.read(path).values():
            if isinstance(row, dict) and "environment" in row:
                facts = tuple(row["environment"].items())
                of_scripts.setdefault(facts, {})[script] = None
    every = [dict(facts) for facts in of_scripts]
    keys = list(dict.fromkeys(key for facts in every for key in facts))
    shared = [key for key in keys if len({facts.get(key) for facts in every}) == 1]
    always = [key for key in keys if key not in shared and all(key in facts for facts in every)]
    rows = []
    for facts, scripts in zip(every, of_scripts.values()):
        further = {key: value for key, value in facts.items() if key not in (*shared, *always)}
        rows.append((", ".join(scripts), *(facts[key] for key in always), _listed(further)))
    everywhere = _listed({key: every[0][key] for key in shared})
    rows.insert(0, ("all", *("" for _ in always), everywhere))
    return ("Results of", *always, "Further"), rows


def _listed(facts):
    return ", ".join(f"{key} {value}" for key, value in facts.items())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write all tables and pictures.")
    default = ROOT / "docs" / "performance"
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="docs/performance")
    write(parser.parse_args().folder)
