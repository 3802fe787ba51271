"""The command line of a script that measures in groups, one group per command."""

import argparse
import shlex
import sys
from pathlib import Path

from benchmarks.lib import data, results

# Option of the scripts that measure on several data sets.
SETS = {"--sets": {"nargs": "*", "help": "some data sets, or settings, only"}}
# Option of scripts that divide the seeds of a group among several runs.
SEEDS = {"--first-seed": {"type": int, "default": 0, "help": "seed of the first repetition"}}


def main(doc, functions, measures=None, options=None):
    """Run the group that the command line names, and store its rows one by one.

    Parameters
    ----------
    doc : str
        Docstring of the script.
    functions : list of callable
        Each takes the parsed options and yields instances of `results.Row`. The function
        ``speed_axis`` is the group ``speed-axis``; the names of its rows begin with this name.
    measures : dict of str to results.Measure
        By the name of the row.
    options : dict of str to dict, optional
        Further options of the script and their arguments to ``add_argument``.
    """
    functions = {name_of(function): function for function in functions}
    parser = _parser(doc, functions, options or {})
    parsed = parser.parse_args()
    script = Path(sys.argv[0])
    command = _command(f"{script.parent.name}.{script.stem}", functions, parser, parsed)
    parsed.command = command
    if parsed.quick:
        parsed.results = parsed.results / "quick"
        parsed.rounds = parsed.rounds or 1
    parsed.results = parsed.results / script.parent.name
    for row in functions[parsed.group](parsed):
        path = parsed.results / f"{script.stem}.json"
        stored = results.add(path, row, measures[row.name], command)
        print(
            f"{row.name}: {results.show(stored['value'], stored['unit'])} {row.note}", flush=True
        )


def name_of(function):
    """Return the name of the group of a function."""
    return function.__name__.replace("_", "-")


def load(name, options):
    """Load a data set in the split of the papers; for a quick run, few of its rows."""
    if name == "connect4":
        split = data.connect4(options.data)
    elif name == "covertype":
        split = data.covertype(options.data)
    elif name == "faces":
        split = data.faces(options.data)
    elif name == "letter":
        split = data.in_order("letter", options.data, n_train=16_000)
    else:
        split = data.load(name, options.data)
    return split.head(600, 200) if options.quick else split


def seeds(options, usual=3):
    """Return the seeds of the repetitions."""
    return range(options.first_seed, options.first_seed + (options.rounds or usual))


def pick(options, full, quick):
    """Return `full`, or `quick` for a quick run."""
    return quick if options.quick else full


def _parser(doc, functions, options):
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    only = {"nargs": "?", "default": next(iter(functions))} if len(functions) == 1 else {}
    parser.add_argument("group", choices=functions, **only)
    parser.add_argument("--data", help="folder of .npz files, else SKFOREST_DATA, else OpenML")
    parser.add_argument("--results", type=Path, default=results.FOLDER, help="folder of JSON")
    parser.add_argument("--quick", action="store_true", help="small data, to see that it runs")
    parser.add_argument("--rounds", type=int, help="repetitions, each with another seed")
    parser.add_argument("--n-jobs", type=int, default=1, help="threads of what is not timed")
    for name, arguments in options.items():
        parser.add_argument(name, **arguments)
    return parser


def _command(script, functions, parser, parsed):
    """Return the command that repeats a run, without paths of this machine."""
    parts = [results.PYTHON + script] + [parsed.group] * (len(functions) > 1)
    for name, value in vars(parsed).items():
        if name in ("group", "data", "results") or value == parser.get_default(name):
            continue
        parts.append(f"--{name.replace('_', '-')}")
        if name.endswith("_python"):
            parts.append("PYTHON")
        elif value is not True:
            values = value if isinstance(value, list) else [value]
            parts += [shlex.quote(str(one)) for one in values]
    return " ".join(parts)
