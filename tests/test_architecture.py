"""The picture of the floors, held against the code: imports only point down.

Reads the source tree, so there is nothing to run it on beside an installed wheel.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted(
    path for path in (ROOT / "skforest").iterdir() if path.suffix in (".py", ".pyx", ".pxd", ".h")
)
# Where the files of DESIGN stand; later ones say so in their heads.
FIXED = {
    0: "_random _buffer _simd _sort _sums _rows _direction _projection _tree".split(),
    1: ["_split", "_search"],
    2: "_grow _surrogate _coordinate _joint _logistic _alternate _soft _hinge".split(),
    3: ["forest", "_forest_check", "_forest_file", "_oblique"],
    4: ["_base", "_progress"],
    5: ["refine", "_joint_training"],
    6: ["manifold", "hinge", "nongreedy", "co2", "endtoend"],
    7: ["persistence", "plotting", "export", "explain", "torch"],
}


def head_floor(path):
    """Floor that the head of a file names."""
    if path.stem in ("__init__", "_version"):
        return {"__init__": 8, "_version": 0}[path.stem]
    head = path.read_text(encoding="utf-8").lstrip('/*#" \n')
    match = re.match(r"Floor (\d): \S", head)
    assert match, f"the head of {path.name} does not begin with its floor"
    return int(match[1])


KERNELS = [path for path in SOURCES if path.suffix in (".pyx", ".pxd", ".h")]
FLOOR = {path.stem: head_floor(path) for path in SOURCES}
named = pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)


def statements(path):
    """Import statements of a Python or Cython file as (module, names); relative ones resolved."""
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, []
            elif isinstance(node, ast.ImportFrom):
                dots = "skforest" if node.level else ""
                module = ".".join(part for part in (dots, node.module) if part)
                yield module, [alias.name for alias in node.names]
        return
    # Cython: one statement may go on over several lines, in brackets.
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    text = re.sub(r"\(([^()]*)\)", lambda m: " ".join(m[1].split()), text)
    for line in text.splitlines():
        if match := re.match(r"\s*from\s+(\S+)\s+c?import\s+(.*)", line):
            module = re.sub(r"^\.+", "skforest.", match[1]).rstrip(".")
            yield module, re.findall(r"\w+", match[2])
        elif match := re.match(r"\s*c?import\s+([\w.]+)", line):
            yield match[1], []


def neighbours(path):
    """Modules of the package that a file needs, by their stems."""
    for module, names in statements(path):
        package, _, rest = module.partition(".")
        if package == "skforest":
            yield from [rest.partition(".")[0]] if rest else (names or ["__init__"])
    if path.suffix != ".py":
        text = path.read_text(encoding="utf-8")
        yield from re.findall(r'(?:cdef extern from|#include)\s+"(\w+)\.h"', text)


def test_the_scan_sees_every_kind_of_import():
    """Were the scan blind, everything below would hold."""
    seen = {path.name: set(neighbours(path)) for path in SOURCES}
    assert {"_random", "_direction"} <= seen["_projection.pyx"]
    assert {"_projection", "_random", "_direction", "_simd", "_sort"} <= seen["_search.pyx"]
    assert "_simd" in seen["_sort.h"]
    assert {"_base", "_greedy", "_search", "_projection"} <= seen["manifold.py"]
    assert {"_forest_check", "_forest_file", "_tree"} <= seen["forest.py"]
    assert seen["persistence.py"] >= {"forest", "__init__"}
    modules = {module for module, _ in statements(ROOT / "skforest" / "_rows.pyx")}
    assert {"libc.stdint", "numpy", "skforest._random"} <= modules


@named
def test_every_file_stands_where_it_says(path):
    """The same floor in all files of a module, and the one that DESIGN gives it."""
    assert head_floor(path) == FLOOR[path.stem]
    for floor, names in FIXED.items():
        assert path.stem not in names or FLOOR[path.stem] == floor


@named
def test_imports_only_point_down(path):
    for other in neighbours(path):
        assert other in FLOOR, f"{path.name} needs {other}"
        # The lookup of a class by its name needs the list of all names.
        if (path.name, other) == ("persistence.py", "__init__"):
            continue
        assert FLOOR[other] <= FLOOR[path.stem], f"{path.name} needs {other} above it"
        # Methods do not know each other.
        assert FLOOR[path.stem] != 6 or FLOOR[other] != 6


def test_what_stands_above_the_forest_knows_no_kernel():
    for path in SOURCES:
        if FLOOR[path.stem] == 7:
            for other in neighbours(path):
                known = FLOOR[other] >= 3 or other in ("_version", "_direction")
                assert known, f"{path.name}: {other}"


@named
def test_only_the_door_knows_joblib_and_the_private_side_of_scikit_learn(path):
    for module, names in statements(path):
        package = module.partition(".")[0]
        if path.name == "_base.py":
            continue
        assert package != "joblib"
        if package == "sklearn":
            parts = [*module.split("."), *names]
            private = [part for part in parts if part.startswith("_")]
            assert not private, f"{path.name} imports {module}: {private}"
            assert "parallel" not in parts


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name)
def test_kernels_know_no_scikit_learn_no_numpy_headers_and_no_openmp(path):
    text = path.read_text(encoding="utf-8")
    packages = {module.partition(".")[0] for module, _ in statements(path)}
    assert packages <= {"cpython", "libc", "numpy", "skforest"}
    assert not re.search(r"cimport\s+(numpy|sklearn)|from\s+(numpy|sklearn)\S*\s+cimport", text)
    assert not re.search(r"prange|cython\.parallel|omp\.h|omp\s+parallel|np\.ndarray\[", text)
    assert "numpy/" not in text


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.name)
def test_scratch_belongs_to_a_tree_and_not_to_a_module(path):
    """No module-level C variables: the promise behind free threading."""
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        found = re.match(r"cdef\s+(?!class|struct|enum|extern|inline|packed|fused)[^()]*$", line)
        assert not found, f"{path.name}: {line}"


def test_the_build_ships_no_fast_math_and_no_native_code():
    setup = re.sub(r"#.*", "", (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert "-ffp-contract=off" in setup
    assert not re.search(r"ffast-math|march=native|mtune=native|-fopenmp(?!-simd)|Ofast", setup)
    assert "freethreading_compatible" in setup


def test_benchmarks_are_never_imported():
    for path in SOURCES:
        packages = {module.partition(".")[0] for module, _ in statements(path)}
        assert "benchmarks" not in packages and "tests" not in packages
