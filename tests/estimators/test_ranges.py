"""`param_distributions`: all values of the ranges can be fitted, and defaults are in range."""

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.model_selection import ParameterSampler, RandomizedSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import (
    BlendedForestClassifier,
    E2EDecisionForest,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    param_distributions,
)
from skforest.estimators.ranges import RANGES

NAMES = [f"{kind}{task}" for kind in RANGES for task in ("Classifier", "Regressor")]


@pytest.mark.parametrize("name", NAMES)
def test_values_of_all_ranges_are_valid(name):
    model = getattr(skforest, name)()
    ranges = param_distributions(model)
    for values in ParameterSampler(ranges, 25, random_state=0):
        model.set_params(**values)._validate_params()
    for key, values in ranges.items():
        default = getattr(skforest, name)().get_params().get(key)
        if "__" in key:
            default = getattr(type(model)._default_procedure(), key.split("__")[1])
        if default == "auto" or default is None:
            continue
        if isinstance(values, list):
            assert default in values
        else:
            low, high = values.support()
            assert low <= default <= high, key


def test_ranges_in_a_search_and_a_pipeline():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    pipeline = make_pipeline(StandardScaler(), ManifoldForestRegressor(3, random_state=0))
    ranges = param_distributions(pipeline[-1], "manifoldforestregressor__")
    search = RandomizedSearchCV(pipeline, ranges, n_iter=4, cv=2, random_state=0)
    search.fit(X, X[:, 0] + X[:, 1])
    assert set(search.best_params_) == set(ranges)
    tried = search.cv_results_["param_manifoldforestregressor__min_samples_leaf"]
    assert len(set(tried.tolist())) > 1


def test_search_with_optuna_in_the_guide():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    page = Path(__file__).parents[2] / "docs/guide/faq.md"
    if not page.exists():
        pytest.skip("needs the source tree")
    (code,) = re.findall(r"```python\n(import optuna.+?)```", page.read_text("utf-8"), re.S)
    code = code.replace("n_trials=50", "n_trials=2").replace("n_bags=1", "4, n_bags=1")
    X = np.random.default_rng(0).normal(size=(60, 3))
    names = {"X": X, "y": X[:, 0] > 0}
    exec(code, names)
    assert names["study"].best_value > 0.6
    for name, values in names["study"].best_params.items():
        assert names["model"].get_params()[name] == values
    assert set(names["study"].best_params) == set(names["ranges"])


def test_ranges_of_a_pipeline_are_those_of_its_last_step():
    model = skforest.ObliqueBoostingRegressor()
    inner = make_pipeline(StandardScaler(), model)
    own = skforest.param_distributions(model)
    found = skforest.param_distributions(Pipeline([("table", StandardScaler()), ("all", inner)]))
    name = "all__obliqueboostingregressor__"
    assert list(found) == [name + key for key in own]
    with pytest.raises(TypeError, match="must be a forest, .* got Ridge"):
        skforest.param_distributions(make_pipeline(StandardScaler(), Ridge()))


def test_ranges_know_patches_and_aliases():
    assert "procedure__max_patch" not in param_distributions(ManifoldForestClassifier())
    ranges = param_distributions(ManifoldForestClassifier(feature_shape=(8, 8)))
    low, high = ranges["procedure__max_patch"].support()
    assert (low, high) == (2, 8)
    for shape, most in (((8, 8, 3), 3), ((4, 30), 4), (5, 5)):
        ranges = param_distributions(ManifoldForestClassifier(feature_shape=shape))
        assert ranges["procedure__max_patch"].support() == (2, most)
    assert "procedure__max_patch" not in param_distributions(
        ManifoldForestClassifier(feature_shape=(9, 2))
    )
    assert "max_depth" in param_distributions(E2EDecisionForest())
    with pytest.raises(TypeError, match="BlendedForestClassifier"):
        param_distributions(BlendedForestClassifier())
