"""Fail unless the wheel holds an extension module for every .pyx, and what typing needs.

usage: check_wheel.py WHEEL
"""

import re
import sys
import zipfile
from pathlib import Path

package = Path(__file__).parents[1] / "skforest"
names = set(zipfile.ZipFile(sys.argv[1]).namelist())

problems = []
for source in sorted(package.glob("*.pyx")):
    binary = re.compile(rf"skforest/{source.stem}\.[^/]*(so|pyd)")
    if sum(binary.fullmatch(name) is not None for name in names) != 1:
        problems.append(f"not one extension module for {source.name}")
for pattern in ("*.py", "*.pyi", "*.pxd", "*.h", "py.typed"):
    for path in sorted(package.glob(pattern)):
        if f"skforest/{path.name}" not in names:
            problems.append(f"{path.name} is missing")
for name in sorted(names):
    if name.endswith((".pyx", ".c")) or not re.match(r"skforest(/|-[^/]*\.dist-info/)", name):
        problems.append(f"{name} does not belong in a wheel")

sys.exit("\n".join(problems) or None)
