"""The command line of a script whose figures come in groups, each of them by one command."""

import argparse
import sys
from pathlib import Path

import results

FOLDER = Path(__file__).resolve().parent
RECORDED = ("rounds", "trees", "depths", "sets")  # options that a row remembers, unless default


def parser(doc, functions):
    """Options that all scripts have.

    Parameters
    ----------
    doc : str
        What the script says of itself.
    functions : list of callable
        Take the options and yield rows; a group is called as its function.

    Returns
    -------
    parser : argparse.ArgumentParser
    """
    made = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.set_defaults(functions={function.__name__: function for function in functions})
    made.add_argument("group", choices=[function.__name__ for function in functions])
    made.add_argument("--data", help="folder of .npz files, else SKFOREST_DATA, else OpenML")
    made.add_argument("--results", type=Path, default=FOLDER / "results", help="where JSON goes")
    made.add_argument("--quick", action="store_true", help="smoke run on small data")
    made.add_argument("--rounds", type=int, help="seeds, other than 3")
    return made


def run(parser, bars):
    """Run the group that the command line asks for, and store its rows as they come.

    Parameters
    ----------
    parser : argparse.ArgumentParser
    bars : dict of str to Bar
        By row.
    """
    options = parser.parse_args()
    if options.quick:
        options.results = options.results / "quick"
    script = Path(sys.argv[0])
    words = [f"python benchmarks/{script.name}", options.group]
    for name in RECORDED:
        value = getattr(options, name, None)
        if value != parser.get_default(name):
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    for row in options.functions[options.group](options):
        path = options.results / f"{script.stem}.json"
        stored = results.add(path, row, bars[row.name], " ".join(words))
        wanted = results.wanted(stored, "bar") or "no bar"
        value = results.show(stored["value"], stored["unit"])
        print(f"{row.name}: {value} ({wanted}) {row.note}", flush=True)
