"""The layers of the package, held against the code: imports only point down.

Reads the source tree, so there is nothing to run it on beside an installed wheel.
"""

import ast
import functools
import re
import runpy
import sys
import tomllib
from pathlib import Path

import pytest
from mutants.run import patched, read

import skforest
from skforest.training.losses.registry import LOSSES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "skforest"
SOURCES = sorted(p for p in PACKAGE.rglob("*") if p.suffix in (".py", ".pyx", ".pxd", ".h"))
KERNELS = [path for path in SOURCES if path.suffix != ".py"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

# From the bottom to the top: a file imports from its own folder and from those below. A layer is a
# folder of skforest/, or the files that are named with it.
LAYERS = (
    ("_kernels", "_tree", "_docs", "_version", "_warnings"),
    ("table",),
    ("forest",),
    ("training",),
    ("estimators",),
    ("blend",),
    ("inspect",),
    ("export",),
    ("torch", "dask"),
    ("__init__",),
)
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}
# Files of estimators that others of these may import; each of the rest is one method.
SHARED = """
    base boosting_base bootstrap conformal endtoend_procedure given_rows greedy hinge_procedure
    prediction predictor streams targets unwrap validation
""".split()

# The kernels have an order of their own.
KERNEL_LAYERS = (
    ("base",),
    ("search", "predict"),
    ("co2", "nongreedy", "endtoend", "hinge", "boosting", "refine", "explain"),
)
KERNEL_LAYER = {name: layer for layer, names in enumerate(KERNEL_LAYERS) for name in names}


def dotted(path):
    """Name of the module of a file, without "skforest."."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def layer(module):
    """Layer of a module, by its file or folder."""
    top = module.partition(".")[0]
    assert top in LAYER, f"{module} belongs to no layer; add it to LAYERS"
    return LAYER[top]


@functools.cache
def statements(path):
    """Import statements of a Python or Cython file as (module, names); relative ones resolved."""
    return list(_statements(path))


def _statements(path):
    package = ["skforest", *path.relative_to(PACKAGE).parts[:-1]]

    def absolute(level, module):
        base = package[: len(package) - level + 1] if level else []
        return ".".join([*base, *([module] if module else [])])

    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield alias.name, []
            elif isinstance(node, ast.ImportFrom):
                yield absolute(node.level, node.module), [alias.name for alias in node.names]
        return
    # Cython: one statement may continue over several lines, in brackets.
    text = re.sub(r"#.*", "", text)
    text = re.sub(r"\(([^()]*)\)", lambda m: " ".join(m[1].split()), text)
    for line in text.splitlines():
        if match := re.match(r"\s*from\s+(\.*)(\S*)\s+c?import\s+(.*)", line):
            yield absolute(len(match[1]), match[2]), re.findall(r"\w+", match[3])
        elif match := re.match(r"\s*c?import\s+([\w.]+)", line):
            yield match[1], []


def needs(path):
    """Modules of the package that a file needs, without "skforest."."""
    for module, names in statements(path):
        package, _, rest = module.partition(".")
        if package == "skforest":
            # `from . import name` takes modules, or names of the package itself.
            for name in names or [""]:
                inner = f"{rest}.{name}" if rest else name
                yield inner if inner in MODULES else rest or "__init__"
    if path.suffix != ".py":
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r'(?:cdef extern from|#include)\s+"([./\w]+)\.h"', text):
            folder = path.parent if path.suffix == ".h" else PACKAGE / "_kernels"
            yield dotted((folder / f"{name}.h").resolve())


MODULES = {dotted(path) for path in SOURCES}


def test_the_scan_sees_every_kind_of_import():
    """Were the scan blind, everything below would hold."""
    seen = {path.relative_to(PACKAGE).as_posix(): set(needs(path)) for path in SOURCES}
    base = {f"_kernels.base.{name}" for name in ("random", "direction")}
    assert base <= seen["_kernels/search/projection.pyx"]
    search = {"_kernels.search.projection", "_kernels.base.columns"}
    assert search <= seen["_kernels/search/search.pyx"]
    assert "_kernels.base.simd" in seen["_kernels/base/columns.h"]
    assert "_kernels.base.simd" in seen["_kernels/predict/route.h"]
    assert {"_kernels.base.direction", "_kernels.predict.trees"} <= seen["_tree.pyx"]
    manifold = {"estimators.base", "estimators.greedy", "training.manifold"}
    assert manifold <= seen["estimators/manifold.py"]
    assert {"training.growing", "_kernels.search.projection"} <= seen["training/manifold.py"]
    assert {"forest.storage", "forest.io", "_tree"} <= seen["forest/packed.py"]
    assert seen["export/persistence.py"] >= {"forest", "__init__"}
    modules = {module for module, _ in statements(PACKAGE / "_kernels" / "base" / "rows.pyx")}
    assert {"libc.stdint", "numpy", "skforest._kernels.base.random"} <= modules


def test_imports_only_point_down():
    for path in SOURCES:
        module = dotted(path)
        for other in needs(path):
            # `load` looks an estimator up by its name, in the list of all names.
            if (module, other) == ("export.persistence", "__init__"):
                continue
            assert layer(other) <= layer(module), f"{module} needs {other} above it"
            folder, _, name = other.partition(".")
            if module.startswith("estimators.") and folder == "estimators" and name:
                assert name in SHARED, f"{module} needs {other}: both are methods"


def test_what_a_call_of_fit_needs_is_no_attribute_of_an_estimator():
    """Requests, limits and settings are arguments; no hook of a subclass trains in a loop."""
    gone = r"_fit_forest|_fit_tree|_resolve_settings|_select_settings|_member_counts|"
    gone += r"_given_(?:validation|groups)|"
    gone += r"self\._time_limit|self\._tasks|self\._candidates|__dict__\.(?:update|clear)"
    restores = "estimators.validation"  # after an error
    for path in SOURCES:
        if path.suffix == ".py" and dotted(path) != restores:
            found = re.findall(gone, path.read_text(encoding="utf-8"))
            assert not found, f"{path.name}: {found}"


def test_what_tells_a_blend_from_a_forest_is_known_in_one_place():
    told = re.compile(r'hasattr\([^()]*, "(?:members_|_routing_forest)"\)')
    assert told.search('if hasattr(model, "members_"):')
    for path in SOURCES:
        module, text = dotted(path), path.read_text(encoding="utf-8")
        if not module.startswith("blend.") and module != "estimators.prediction":
            assert not told.search(text), f"{module}: use is_blend or is_forest"


def test_guides_name_what_exists():
    """Names and paths in docs/extending are those of the source tree, or of the patches."""
    root = PACKAGE.parent
    folders = [PACKAGE, root / "tests", root / "docs"]
    kinds = "*.py", "*.pyx", "*.pxd", "*.h", "*.patch", "conf.py"
    files = [path for folder in folders for kind in kinds for path in folder.rglob(kind)]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    known = set(re.findall(r"\w+", text))
    for page in (root / "docs" / "extending").glob("*.md"):
        for quoted in re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")):
            if re.fullmatch(r"[\w.-]+(/[\w.-]+)*/?", quoted) and "/" in quoted:
                in_patch = f"b/{quoted}" in text or f"b/skforest/{quoted}" in text
                exists = any((folder / quoted).exists() for folder in (root, PACKAGE))
                assert in_patch or exists, f"{page.name}: {quoted}"
            elif re.fullmatch(r"\w*[A-Z_]\w*", quoted):
                assert quoted in known, f"{page.name}: {quoted}"


def choices_by_name(tree):
    """Expressions that compare with the name of a loss, or take one out of a set.

    The impurity "squared_error" is a criterion, which is another parameter.
    """
    for node in ast.walk(tree):
        is_choice = isinstance(node, ast.Compare | ast.match_case | ast.Subscript)
        if is_choice or (
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.BitAnd)
        ):
            inner = node.pattern if isinstance(node, ast.match_case) else node
            names = {one.value for one in ast.walk(inner) if isinstance(one, ast.Constant)}
            text = ast.unparse(node)
            if names & LOSSES.keys() and "criterion" not in text:
                yield text


def test_only_the_registry_knows_losses_by_their_names():
    seen = ('loss == "poisson"', 'loss in ("a", "gamma")', 'names - {"log_loss"}', '{}["huber"]')
    for text in (*seen, 'match loss:\n    case "tweedie":\n        pass'):
        assert list(choices_by_name(ast.parse(text)))
    for path in SOURCES:
        if path.suffix == ".py" and not dotted(path).startswith("training.losses"):
            found = list(choices_by_name(ast.parse(path.read_text(encoding="utf-8"))))
            assert not found, f"{path.name}: {found}"


def test_kernels_have_an_order_of_their_own():
    for path in KERNELS:
        if path.name == "_tree.pyx":
            continue
        for other in needs(path):
            folders = other.split(".")
            assert folders[0] == "_kernels", f"{path.name} needs {other}"
            if len(folders) > 2:
                below, own = KERNEL_LAYER[folders[1]], KERNEL_LAYER[path.parent.name]
                assert below <= own, f"{path.name} needs {other}"


def test_every_layer_that_is_named_has_files_and_every_file_a_layer():
    modules = {dotted(path).partition(".")[0] for path in SOURCES}
    assert modules == set(LAYER)
    folders = {path.parent.name for path in KERNELS} - {"skforest"}
    assert folders == set(KERNEL_LAYER)


def test_users_of_a_forest_import_no_kernel():
    """Plots, files and networks read `Forest`; explanations and layers have own kernels."""
    allowed = {f"_kernels.{name}" for name in ("base.direction", "base.rows", "hinge.layer")}
    allowed |= {"_kernels.hinge.trainer", "_kernels.explain.shapley"}
    for path in SOURCES:
        if path.suffix == ".py" and layer(dotted(path)) > LAYER["blend"]:
            kernels = {other for other in needs(path) if other.startswith("_kernels")}
            assert kernels <= allowed, f"{path.name}: {kernels}"


def test_only_two_files_import_joblib_and_private_modules_of_scikit_learn():
    for path in SOURCES:
        if dotted(path) in ("estimators.base", "training.threads"):
            continue
        for module, names in statements(path):
            package = module.partition(".")[0]
            assert package != "joblib", path.name
            if package == "sklearn":
                parts = [*module.split("."), *names]
                private = [part for part in parts if part.startswith("_")]
                assert not private, f"{path.name} imports {module}: {private}"
                assert "parallel" not in parts, path.name


def test_kernels_use_no_scikit_learn_no_numpy_headers_and_no_openmp():
    forbidden = (
        r"cimport\s+(numpy|sklearn)|from\s+(numpy|sklearn)\S*\s+cimport",
        r"prange|cython\.parallel|omp\.h|omp\s+parallel|np\.ndarray\[|numpy/",
    )
    for path in KERNELS:
        packages = {module.partition(".")[0] for module, _ in statements(path)}
        assert packages <= {"cpython", "cython", "libc", "numpy", "skforest"}, path.name
        text = path.read_text(encoding="utf-8")
        for pattern in forbidden:
            assert not re.search(pattern, text), f"{path.name}: {pattern}"


def test_scratch_belongs_to_a_tree_and_not_to_a_module():
    """No module-level C variables: the promise behind free threading."""
    variable = re.compile(r"cdef\s+(?!class|struct|enum|extern|inline|packed|fused)[^()]*$")
    for path in KERNELS:
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not variable.match(line), f"{path.name}: {line}"


def test_the_build_ships_no_fast_math_and_no_native_code():
    setup = re.sub(r"#.*", "", (ROOT / "setup.py").read_text(encoding="utf-8"))
    assert "-ffp-contract=off" in setup
    assert not re.search(r"ffast-math|march=native|mtune=native|-fopenmp(?!-simd)|Ofast", setup)
    assert "freethreading_compatible" in setup


@pytest.mark.parametrize(
    "name, value, words",
    [
        ("maxsize", 2**31 - 1, "32 bits, little-endian"),
        ("byteorder", "big", "64 bits, big-endian"),
    ],
)
def test_other_processors_are_refused_before_the_build(monkeypatch, name, value, words):
    monkeypatch.setattr(sys, name, value)
    with pytest.raises(SystemExit, match=f"64-bit little-endian processor.* is for {words}"):
        runpy.run_path(str(ROOT / "setup.py"))


def test_benchmarks_are_never_imported():
    for path in SOURCES:
        packages = {module.partition(".")[0] for module, _ in statements(path)}
        assert "benchmarks" not in packages and "tests" not in packages


def test_files_stay_short():
    """A file past 600 lines often means that a noun is missing."""
    for path in SOURCES:
        n_lines = len(path.read_text(encoding="utf-8").splitlines())
        assert n_lines <= 600, f"{path.name} has {n_lines} lines"


def test_random_numbers_come_from_streams_that_no_version_of_numpy_changes():
    makes = re.compile(r"^(?!\s*(>>>|\.\.\.)).*(default_rng|RandomState)\(", re.MULTILINE)
    files = [path.name for path in SOURCES if makes.search(path.read_text(encoding="utf-8"))]
    assert files == ["rows.pyx"]  # `random_stream`


def test_the_worked_examples_of_the_guides_still_apply():
    names = []
    for path in sorted((ROOT / "tests" / "guides").glob("*.patch")):
        _, added, hunks = read(path)
        changed = patched(ROOT, hunks)  # ValueError where it does not fit
        assert set(added) & set(changed), f"{path.name} adds none of the tests that it names"
        names.append(path.stem)
    pages = sorted(path.stem for path in (ROOT / "docs" / "extending").glob("*.md"))
    assert names == [name for name in pages if name != "index"]


def test_the_conda_recipe_and_the_citation_agree_with_the_package():
    recipe = (ROOT / ".ci" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = recipe.partition("  run:\n")[2].partition("\n\n")[0]
    required = [line.strip("- ").replace(" ", "") for line in run.splitlines()]
    assert required == [f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f'version: "{skforest.__version__}"' in recipe
    assert f"\nversion: {skforest.__version__}\n" in citation


def test_the_extra_all_contains_all_extras_for_users():
    extras = PROJECT["optional-dependencies"]
    own = {name: extras[name] for name in extras.keys() - {"all", "test", "docs", "bench", "dev"}}
    assert sorted(extras["all"]) == sorted(sum(own.values(), []))
