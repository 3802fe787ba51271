"""Fail unless the wheel holds an extension module for every .pyx, and all that goes with it.

usage: check_wheel.py WHEEL
"""

import re
import sys
import zipfile
from pathlib import Path

root = Path(__file__).parents[1]
names = set(zipfile.ZipFile(sys.argv[1]).namelist())

problems = []
for source in sorted((root / "skforest").rglob("*.pyx")):
    stem = re.escape(source.relative_to(root).with_suffix("").as_posix())
    binary = re.compile(rf"{stem}\.[^/]*(so|pyd)")
    if sum(binary.fullmatch(name) is not None for name in names) != 1:
        problems.append(f"not one extension module for {source.name}")
for pattern in ("*.py", "*.pxd", "*.h"):
    for path in sorted((root / "skforest").rglob(pattern)):
        if path.relative_to(root).as_posix() not in names:
            problems.append(f"{path.relative_to(root)} is missing")
for name in sorted(names):
    if name.endswith((".pyx", ".c")) or not re.match(r"skforest(/|-[^/]*\.dist-info/)", name):
        problems.append(f"{name} does not belong in a wheel")

sys.exit("\n".join(problems) or None)
