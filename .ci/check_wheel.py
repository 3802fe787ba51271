"""Fail unless a wheel is complete and small.

It must have an extension module for every .pyx, the one of setup.py for memoryviews, all .py, .pxd
and .h files, and nothing else, in at most 4 MB.

usage: check_wheel.py WHEEL
"""

import re
import sys
import zipfile
from pathlib import Path

MAX_BYTES = 4_000_000

root = Path(__file__).parents[1]
names = set(zipfile.ZipFile(sys.argv[1]).namelist())

problems = []
binaries = {name for name in names if name.endswith((".so", ".pyd"))}
memoryviews = root / "skforest/_kernels/base/memoryviews"
for source in [*sorted((root / "skforest").rglob("*.pyx")), memoryviews]:
    stem = re.escape(source.relative_to(root).with_suffix("").as_posix())
    binary = re.compile(rf"{stem}\.[^/]*(so|pyd)")
    found = {name for name in binaries if binary.fullmatch(name)}
    if len(found) != 1:
        problems.append(f"not one extension module for {source.name}")
    binaries -= found
problems += [f"{name} has no .pyx; remove the folder build" for name in sorted(binaries)]
for pattern in ("*.py", "*.pxd", "*.h"):
    for path in sorted((root / "skforest").rglob(pattern)):
        if path.relative_to(root).as_posix() not in names:
            problems.append(f"{path.relative_to(root)} is missing")
for name in sorted(names):
    if name.endswith((".pyx", ".c")) or not re.match(r"skforest(/|-[^/]*\.dist-info/)", name):
        problems.append(f"{name} does not belong in a wheel")
    if name.endswith((".py", ".pxd", ".h")) and not (root / name).exists():
        problems.append(f"{name} has no source; remove the folder build")

n_bytes = Path(sys.argv[1]).stat().st_size
if n_bytes > MAX_BYTES:
    problems.append(f"the wheel has {n_bytes} bytes, more than {MAX_BYTES}")

sys.exit("\n".join(problems) or None)
