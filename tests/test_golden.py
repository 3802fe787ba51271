"""Small forests on the bundled digits are the ones they have always been."""

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"
spec = importlib.util.spec_from_file_location("golden_make", FOLDER / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)
GOLDEN = json.loads((FOLDER / "digits.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", [*make.CASES, *make.REGRESSORS])
def test_golden_values(name):
    """After a change of trees that is meant: python tests/golden/make.py."""
    assert make.case(name) == GOLDEN[name]


def test_golden_values_are_of_good_and_different_forests():
    assert list(GOLDEN) == [*make.CASES, *make.REGRESSORS]
    assert len({case["leaves"] for case in GOLDEN.values()}) == len(GOLDEN)
    # four trees, 797 digits; as numbers they are further off
    assert max(GOLDEN[name]["errors"] for name in make.CASES) < 250
    assert max(GOLDEN[name]["errors"] for name in make.REGRESSORS) < 600
