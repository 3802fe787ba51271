"""The worked examples of docs/extending: each of them still builds, and its tests pass.

    python tests/guides/run.py                  # all of them
    python tests/guides/run.py loss sampler     # those whose names contain one of these
    python tests/guides/run.py --list           # does each patch still apply? No test is run

A patch is the example of the page with its name, in the form of tests/mutants. Its second line
names the tests that it adds; the commands at the end of the page, which begin with ``make test``,
name those that a reader runs. Both are run in a copy of the source tree.

The exit code is 1 if a patch does not apply, or if a build or a test fails.
"""

import argparse
import re
import shlex
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(HERE.parent))

from mutants.run import Copy, patched, read  # noqa: E402

COMMAND = re.compile(r'^ *make test PYTEST_ARGS="([^"]+)"$', re.MULTILINE)


def tests_of(page):
    """Arguments of pytest in the commands of a page."""
    commands = COMMAND.findall(page.read_text(encoding="utf-8"))
    if not commands:
        raise ValueError(f"{page.name} has no line that begins with make test")
    return [shlex.split(command) for command in commands]


def judge(copy, name):
    """What became of a guide: a word, and more about it."""
    _, added, hunks = read(HERE / f"{name}.patch")
    try:
        commands = tests_of(ROOT / "docs" / "extending" / f"{name}.md")
        if missing := [test for test in added if test not in sum(commands, [])]:
            commands.insert(0, missing)
        copy.apply(hunks)
        for tests in commands:
            code, failed = copy.test(*tests)
            if code:
                return "FAILS", failed or f"pytest ended with {code}: {shlex.join(tests)}"
    except ValueError as error:
        return "DOES NOT APPLY", str(error)
    except RuntimeError as error:
        return "DOES NOT BUILD", str(error)
    finally:
        copy.restore()
    return "green", shlex.join(sum(commands, []))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", help="only guides whose names contain one of these")
    parser.add_argument("--list", action="store_true", help="what they add; nothing is run")
    arguments = parser.parse_args()
    names = sorted(path.stem for path in HERE.glob("*.patch"))
    if arguments.names:
        names = [name for name in names if any(part in name for part in arguments.names)]
    bad = 0
    if arguments.list:
        for name in names:
            what, _, hunks = read(HERE / f"{name}.patch")
            try:
                patched(ROOT, hunks)
            except ValueError as error:
                bad, what = bad + 1, f"DOES NOT APPLY: {error}"
            print(f"{name}: {what}")
        return int(bad > 0)
    with tempfile.TemporaryDirectory(prefix="skforest-guides-") as folder:
        copy = Copy(Path(folder) / "copy")
        for name in names:
            start = time.perf_counter()
            word, more = judge(copy, name)
            bad += word != "green"
            print(f"{word:<15}{name:<12}{time.perf_counter() - start:4.0f} s  {more}", flush=True)
    print(f"{len(names) - bad} of {len(names)} guides are green")
    return int(bad > 0 or not names)


if __name__ == "__main__":
    sys.exit(main())
