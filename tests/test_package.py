"""The package as it is installed: metadata, headers, and every extension module."""

import importlib
import re
import subprocess
import sys
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import skforest

PACKAGE = Path(skforest.__file__).parent
# An installed package holds no .pyx files; beside the tests lies a checkout, or nothing.
CHECKOUT = Path(__file__).parents[1] / "skforest"
KERNELS = sorted(
    ".".join(path.relative_to(CHECKOUT.parent).with_suffix("").parts)
    for path in CHECKOUT.rglob("*.pyx")
) or ["skforest._tree"]


def test_version_is_the_one_of_the_metadata():
    assert skforest.__version__ == metadata.version("skforest")
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.?(a|b|rc|dev)\d+)?", skforest.__version__)


def test_licence_and_python_requirement():
    fields = metadata.metadata("skforest")
    assert fields["License-Expression"] == "BSD-3-Clause"
    assert fields["Requires-Python"] == ">=3.11"
    assert any(p.name == "LICENSE" for p in metadata.files("skforest"))


def test_runtime_requirements_have_lower_bounds_and_no_upper_pin():
    runtime = [r for r in metadata.requires("skforest") if "extra ==" not in r]
    assert len(runtime) == 6
    assert all(">=" in r and "<" not in r and "==" not in r for r in runtime)


def test_there_are_kernels():
    assert "skforest._tree" in KERNELS


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_is_an_extension_module_of_this_package(name):
    module = importlib.import_module(name)
    assert module.__file__.endswith(tuple(EXTENSION_SUFFIXES))
    assert PACKAGE in Path(module.__file__).parents


def test_headers_are_installed():
    for pattern in ("*.pxd", "*.h"):
        names = {path.relative_to(CHECKOUT) for path in CHECKOUT.rglob(pattern)}
        assert names <= {path.relative_to(PACKAGE) for path in PACKAGE.rglob(pattern)}


def test_public_names_exist():
    assert len(skforest.__all__) == len(set(skforest.__all__))
    for name in skforest.__all__:
        assert getattr(skforest, name) is not None


def test_show_versions_names_what_a_bug_report_needs(capsys):
    skforest.show_versions()
    out = capsys.readouterr().out
    for word in ("python", "skforest", skforest.__version__, "numpy", "scipy", "sklearn"):
        assert word in out.lower()


def test_import_does_not_pull_in_optional_packages():
    code = "import sys, skforest; print(*{'matplotlib', 'torch', 'tqdm'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == ""


def test_without_torch_its_module_names_the_extra():
    code = "import sys, skforest; sys.modules['torch'] = None; import skforest.torch"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode == 1
    assert (
        'ImportError: skforest.torch needs PyTorch: pip install "skforest[torch]"' in found.stderr
    )


@pytest.mark.parametrize("name", skforest.__all__)
def test_shared_texts_of_docstrings_are_filled_in(name):
    public = getattr(skforest, name)
    names = [n for n in dir(public) if isinstance(public, type) and n[0] != "_"]
    for thing in (public, *(getattr(public, name) for name in names)):
        if thing is public or getattr(thing, "__module__", "").startswith("skforest"):
            assert not re.search(r"\{[a-z_]+\}", thing.__doc__ or "")
