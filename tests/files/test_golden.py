"""Small forests on the bundled digits are the ones they have always been; saved models load."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import skforest
from skforest.forest import storage

FOLDER = Path(__file__).parents[1] / "golden"


def script(name):
    """A script of the folder of golden values, as a module."""
    spec = importlib.util.spec_from_file_location(f"golden_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make, models = script("make"), script("make_models")
GOLDEN = json.loads((FOLDER / "digits.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module", autouse=True)
def few_trees_beside_the_model():
    """As many as for users, in place of the fixture of conftest.py."""


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


EXPECTED = np.load(models.EXPECTED)
FILES = {path.stem: path for path in sorted(models.FOLDER.glob("*.npz"))}


@pytest.mark.parametrize("name", FILES)
def test_saved_models_load_and_predict_as_they_did(name):
    """Routes are the same everywhere; an exponential may differ in its last bit elsewhere."""
    model = skforest.load(FILES[name])
    assert type(model) is type(models.MODELS[name])
    for key, now in models.expected(name, model).items():
        forests = [member.forest_ for member in models.members(model)]
        is_exact = all(one.link == "identity" and one.gate != "sigmoid" for one in forests)
        if is_exact or key.endswith("leaves"):
            np.testing.assert_array_equal(now, EXPECTED[key])
        else:
            np.testing.assert_allclose(now, EXPECTED[key], rtol=1e-12)


@pytest.mark.parametrize("name", FILES)
def test_saved_models_have_the_same_forest_when_saved_again(name, tmp_path):
    skforest.save(skforest.load(FILES[name]), tmp_path / "again.npz")
    with np.load(FILES[name]) as before, np.load(tmp_path / "again.npz") as now:
        members = [json.loads(str(file["header"]))["members"] for file in (before, now)]
        assert [one["forest"] for one in members[0]] == [one["forest"] for one in members[1]]
        assert now.files == before.files
        for key in now.files[1:]:
            assert now[key].dtype == before[key].dtype
            np.testing.assert_array_equal(now[key], before[key])


def test_saved_models_are_of_every_kind():
    """Every estimator, every array of a forest, and every value of the metadata."""
    assert list(FILES) == sorted(models.MODELS)
    loaded = [skforest.load(path) for path in FILES.values()]
    public = [getattr(skforest, name) for name in skforest.__all__]
    estimators = {one for one in public if isinstance(one, type) and hasattr(one, "predict")}
    assert {type(model) for model in loaded} == estimators - {skforest.Forest}
    forests = [member.forest_ for model in loaded for member in models.members(model)]
    for name in storage.ARRAYS:
        assert any(getattr(forest, name).size for forest in forests), name
    for name, values in (
        ("task", storage.TASKS),
        ("aggregate", storage.AGGREGATES),
        ("gate", storage.GATES),
        ("link", set(storage.LINKS) - {"sigmoid"}),  # no estimator has it
        ("weight_dtype", storage.WEIGHT_DTYPES),
    ):
        assert {getattr(forest, name) for forest in forests} == set(values)
    assert any(forest.levels for forest in forests)
    assert any(any(forest.wrap) for forest in forests)
    assert any(len(forest.bag_start) > 2 for forest in forests)
