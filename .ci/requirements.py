"""Print requirements from pyproject.toml, one a line: `build`, or the name of an extra.

Lets an environment take an extra without building the package again.
"""

import sys
import tomllib
from pathlib import Path

config = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())
groups = config["project"]["optional-dependencies"] | {"build": config["build-system"]["requires"]}
for name in sys.argv[1:]:
    print(*groups[name], sep="\n")
