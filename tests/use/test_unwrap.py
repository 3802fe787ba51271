"""Searches and pipelines around fitted estimators, in every function that takes one."""

import copy
import functools

import matplotlib
import numpy as np
import pytest
from makers import response
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import StackingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

import skforest
from skforest import (
    BlendedForestClassifier,
    FeatureImportancesDisplay,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingRegressor,
    PartitionDisplay,
    TrainingCurveDisplay,
)

matplotlib.use("Agg")
X, Y = load_iris(return_X_y=True, as_frame=True)
NAMES = list(X.columns)
FOREST = ManifoldForestClassifier(3, random_state=0)
# Functions of a model and a table, and what is compared of their results.
OF_ROWS = {
    "shapley_values": lambda m, X: skforest.shapley_values(m, X[:3], X[50:60]).values,
    "proximity": lambda m, X: skforest.proximity(m, X[:50], X).toarray(),
    "prototypes": lambda m, X: np.concatenate(list(skforest.prototypes(m, X, Y).values())),
    "PartitionDisplay": lambda m, X: (
        PartitionDisplay.from_estimator(m, X, Y, grid_resolution=5).response
    ),
    "refine": lambda m, X: response(skforest.refine(m, X, Y, n_sweeps=1, random_state=0), X),
    "distil": lambda m, X: response(skforest.distil(m, X, n_estimators=2, random_state=0), X),
    "slim": lambda m, X: response(skforest.slim(m), X),
    "counterfactual": lambda m, X: skforest.counterfactual(m, X[:1], X, target=2).prediction,
}
OF_MODELS = {
    "importances_table": lambda m: skforest.importances_table(m).to_dict(),
    "plot_tree": lambda m: [a.get_text() for a in skforest.plot_tree(m) if hasattr(a, "get_text")],
    "export_text": skforest.export_text,
    "export_graphviz": skforest.export_graphviz,
    "FeatureImportancesDisplay": lambda m: [
        label.get_text()
        for label in FeatureImportancesDisplay.from_estimator(m).ax_.get_yticklabels()
    ],
}
OF_ALONE = {
    "save": lambda m, path: skforest.save(m, path) or str(skforest.to_dict(skforest.load(path))),
    "to_dict": lambda m, path: str(skforest.to_dict(m)),
    "to_c": lambda m, path: skforest.to_c(m),
    "to_onnx": lambda m, path: pytest.importorskip("onnx") and str(skforest.to_onnx(m)),
}


@pytest.fixture(scope="module")
def nested():
    """A pipeline of a search of a pipeline, its last estimator, and the rows that this reads."""
    inner = make_pipeline(PolynomialFeatures(2, include_bias=False), FOREST)
    search = GridSearchCV(inner, {"manifoldforestclassifier__max_depth": [3]}, cv=2)
    whole = make_pipeline(StandardScaler(), search).fit(X, Y)
    rows = search_of(whole)[:-1].transform(whole[:-1].transform(X))
    return whole, search_of(whole)[-1], rows


def search_of(whole):
    return whole[-1].best_estimator_


@pytest.mark.parametrize("name", OF_ROWS)
def test_rows_go_through_the_transformers(name, nested):
    whole, alone, rows = nested
    function = OF_ROWS[name]
    np.testing.assert_array_equal(function(whole, X), function(alone, rows))


@pytest.mark.parametrize("name", OF_MODELS)
def test_names_are_those_that_the_transformers_give(name, nested):
    whole, alone, rows = nested
    names = PolynomialFeatures(2, include_bias=False).fit(X).get_feature_names_out()
    named = skforest.ManifoldForestClassifier(**alone.get_params())
    named.fit(frame_of(rows, names), Y)
    assert OF_MODELS[name](whole) == OF_MODELS[name](named)


def frame_of(rows, names):
    return X.__class__(rows, columns=names)


def test_shapley_values_have_the_names_of_the_transformed_columns(nested):
    found = skforest.shapley_values(nested[0], X[:2], X[:5])
    assert found.feature_names[:5] == [*NAMES, "sepal length (cm)^2"]
    with pytest.raises(ValueError) as error:
        skforest.shapley_values(nested[0], X[:2], X[NAMES[:3]])
    assert error.value.__notes__ == ["The rows of `background` raised this error."]


def test_pipelines_stay_around_what_is_slim_or_refined(nested):
    for found in (skforest.slim(nested[0]), skforest.refine(nested[0], X, Y, n_sweeps=1)):
        assert isinstance(found, Pipeline) and isinstance(found[-1], Pipeline)
        assert found[-1][-1] is not nested[1]
    assert search_of(nested[0])[-1] is nested[1]


@functools.cache
def search_without_transformers():
    steps = [("none", "passthrough"), ("same", FunctionTransformer()), ("model", FOREST)]
    search = RandomizedSearchCV(Pipeline(steps), {"model__max_depth": [2]}, n_iter=1, cv=2)
    return search.fit(X, Y)


@functools.cache
def blend_of_a_search():
    members = [("a", search_without_transformers()), ("b", FOREST)]
    return BlendedForestClassifier(members, cv=2, calibrate=False, random_state=0).fit(X, Y)


@pytest.mark.parametrize("name", OF_ALONE)
def test_what_has_no_place_for_transformers_names_the_step(name, nested, tmp_path):
    write = OF_ALONE[name]
    message = r"step 'standardscaler' of estimator, a StandardScaler, .*pass estimator\[-1\]\.best"
    if name in ("to_c", "to_onnx"):  # which may begin with scalers
        message = r"'polynomialfeatures' of estimator\[-1\]\.best_estimator_, a Poly"
    with pytest.raises(TypeError, match=message):
        write(nested[0], tmp_path / "model")
    search = search_without_transformers()
    expected = write(search.best_estimator_[-1], tmp_path / "model")
    assert write(FrozenEstimator(search), tmp_path / "model") == expected
    if name == "save":  # of a blend, also the parameters are saved
        return
    blend = copy.copy(blend_of_a_search())
    found = write(blend, tmp_path / "model")
    blend.members_ = {"a": blend.members_["a"].best_estimator_[-1], "b": blend.members_["b"]}
    assert found == write(blend, tmp_path / "model")


def test_training_curves_of_a_search():
    data = load_diabetes(return_X_y=True)
    search = GridSearchCV(ObliqueBoostingRegressor(5, n_bags=1), {"max_depth": [2]}, cv=2)
    display = TrainingCurveDisplay.from_estimator(search.fit(*data))
    assert display.x_label == "round"


def every_function():
    return (
        *((name, lambda m, f=f: f(m, X)) for name, f in OF_ROWS.items()),
        *OF_MODELS.items(),
        *((name, lambda m, f=f: f(m, "unused")) for name, f in OF_ALONE.items()),
        ("TrainingCurveDisplay", TrainingCurveDisplay.from_estimator),
    )


@functools.cache
def search_without_best_estimator():
    return GridSearchCV(FOREST, {"max_depth": [2]}, cv=2, refit=False).fit(X, Y)


@pytest.mark.parametrize(("name", "function"), every_function())
def test_searches_and_pipelines_without_a_fitted_estimator(name, function):
    search = GridSearchCV(FOREST, {"max_depth": [2]}, cv=2)
    with pytest.raises(NotFittedError, match="estimator is a GridSearchCV, which is not fitted"):
        function(search)
    with pytest.raises(NotFittedError, match="with refit=False, which has no best_estimator_"):
        function(search_without_best_estimator())
    with pytest.raises(NotFittedError):
        function(make_pipeline(FOREST))
    with pytest.raises(TypeError, match="whose last step is 'passthrough'"):
        function(make_pipeline(StandardScaler(), "passthrough"))


def test_other_meta_estimators_are_refused_with_what_is_in_them(tmp_path):
    target = TransformedTargetRegressor(ManifoldForestRegressor(2))
    others = {
        "regressor_": target.fit(X, Y),
        r"calibrated_classifiers_\[0\].estimator": CalibratedClassifierCV(FOREST, cv=2).fit(X, Y),
        r"estimators_\[0\]": StackingClassifier([("a", FOREST)], cv=2).fit(X, Y),
    }
    functions = dict(every_function())
    del functions["counterfactual"]  # takes any estimator
    for path, other in others.items():
        for function in functions.values():
            with pytest.raises(TypeError, match=f"{type(other).__name__}.*such as {path}"):
                function(make_pipeline("passthrough", other))
    with pytest.raises(TypeError, match="got LinearRegression$"):
        skforest.plot_tree(make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y))
