"""Fail unless every notebook is stored as executed from top to bottom, without an error.

usage: check_notebooks.py NOTEBOOK...
"""

import json
import sys
from pathlib import Path

problems = []
for path in map(Path, sys.argv[1:]):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [c for c in cells if c["cell_type"] == "code" and "".join(c["source"]).strip()]
    outputs = [output for cell in code for output in cell["outputs"]]
    if [cell["execution_count"] for cell in code] != list(range(1, len(code) + 1)):
        problems.append(f"{path}: not stored as one run from top to bottom")
    if not outputs:
        problems.append(f"{path}: stored without outputs")
    if any(output["output_type"] == "error" for output in outputs):
        problems.append(f"{path}: stored with an error")

sys.exit("\n".join(problems) or None)
