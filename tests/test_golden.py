"""Small forests on the bundled digits are the ones they have always been; old files load."""

import importlib.util
import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

import skforest
from skforest.forest import io

FOLDER = Path(__file__).parent / "golden"


def script(name):
    """A script of the folder of golden values, as a module."""
    spec = importlib.util.spec_from_file_location(f"golden_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make, models = script("make"), script("make_models")
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
    assert max(GOLDEN[name]["errors"] for name in make.REGRESSORS) < 650


def assert_predicts_as_before(number, name, model):
    """Routes are the same everywhere; an exponential may differ in its last bit elsewhere."""
    X, _ = models.data(name, model)
    before = np.load(FOLDER / f"format{number}" / f"{name}.expected.npz")
    now = models.expected(model, X)
    np.testing.assert_array_equal(now["leaves"], before["leaves"])
    forests = [member.forest_ for member in getattr(model, "members_", {"": model}).values()]
    if all(forest.link == "identity" and forest.gate != "sigmoid" for forest in forests):
        np.testing.assert_array_equal(now["response"], before["response"])
    else:
        np.testing.assert_allclose(now["response"], before["response"], rtol=1e-12)


MODELS = [(number, name) for number in models.MODELS for name in models.MODELS[number]]


@pytest.mark.parametrize("number, name", MODELS)
def test_models_that_earlier_versions_saved_load_and_predict_the_same(number, name):
    path = FOLDER / f"format{number}" / f"{name}.npz"
    with np.load(path) as file:
        assert json.loads(str(file["header"]))["format"] == number
    assert_predicts_as_before(number, name, skforest.load(path))


@pytest.mark.parametrize("number, name", MODELS)
def test_pickles_of_earlier_versions_load_and_predict_the_same(number, name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn says that another version wrote them
        model = pickle.loads((FOLDER / f"format{number}" / f"{name}.pkl").read_bytes())
    if isinstance(model, tuple):  # format 1 also has the forest alone
        model, forest = model
        assert type(forest) is skforest.Forest
    assert_predicts_as_before(number, name, model)


def test_there_are_models_of_every_format_that_is_read():
    assert tuple(models.MODELS) == io.READABLE
