"""Graphs of ONNX alone: opsets, inputs and outputs, large models."""

import doctest
import inspect
import sys

import numpy as np
import pandas as pd
import pytest
from conftest import small
from exported import check_onnx, in_c, in_onnx, predicted, with_forest
from forests import random_forest, whole_table
from sklearn.base import is_classifier
from sklearn.datasets import load_digits, make_friedman1

from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
    to_c,
    to_onnx,
)
from skforest.export import onnx_graph, onnx_projections, onnx_trees


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(300, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


# -------------------------------------------------------------------------------------- ONNX alone


@pytest.mark.parametrize("opset", [13, 18, 21])
def test_opsets(opset, friedman):
    onnx = pytest.importorskip("onnx")
    X, y = friedman
    if opset > onnx.defs.onnx_opset_version():
        pytest.skip("onnx is older")
    for cls in (CO2ForestRegressor, RandomHingeForestClassifier):
        model = small(cls).fit(X, y > 14)
        out = in_onnx(to_onnx(model, opset=opset), X)
        found = out["probabilities" if is_classifier(model) else "variable"]
        np.testing.assert_allclose(found, predicted(model, X), atol=1e-6)


@pytest.mark.parametrize("opset", [12, 10_000, True, "17"])
def test_other_opsets_are_refused(opset, friedman):
    pytest.importorskip("onnx")
    with pytest.raises(ValueError, match="opset="):
        to_onnx(small(CO2ForestRegressor).fit(*friedman), opset=opset)


def test_inputs_and_outputs_by_name():
    pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["label", "label_", "a b"])
    for cls, kind in ((ManifoldForestClassifier, 1), (CO2ForestClassifier, 11)):
        graph = to_onnx(small(cls).fit(frame, frame["label"] > 0)).graph
        assert [one.name for one in graph.input] == ["label__", "label_", "a b"]
        assert {one.type.tensor_type.elem_type for one in graph.input} == {kind}
        assert [one.name for one in graph.output] == ["label", "probabilities"]
        check_onnx(small(cls).fit(frame, frame["label"] > 0), frame)
    model = small(CO2ForestRegressor).fit(frame, frame["label"])
    assert [one.name for one in to_onnx(model).graph.input] == ["label", "label_", "a b"]
    check_onnx(model, frame)
    cells = np.array([[1.5, "a"], [np.nan, "b"], [2.0, None]] * 9, dtype=object)
    model = CO2ForestRegressor(3).fit(cells, np.arange(27.0))
    assert [one.name for one in to_onnx(model).graph.input] == ["x0", "x1"]
    check_onnx(model, cells)


def test_no_rows(friedman):
    X, y = friedman
    for cls in (CO2ForestRegressor, RandomHingeForestClassifier):
        out = in_onnx(small(cls).fit(X, y > 14), X[:0])
        assert all(len(values) == 0 for values in out.values())


@pytest.mark.parametrize(
    "module, name, value",
    [
        (onnx_trees, "MAX_ATTRIBUTES", 0),
        (onnx_trees, "MAX_COLUMNS", 30),
        (onnx_projections, "MAX_ENTRIES", 100),
        (onnx_projections, "WIDTHS", (1,)),
    ],
)
def test_large_models_are_written_in_other_ways(module, name, value, digits, monkeypatch):
    X, y = digits
    boxes = ManifoldForestClassifier(4, feature_shape=(8, 8), random_state=0)
    sparse = ManifoldForestClassifier(4, random_state=0)
    models = [model.fit(X[:300] / 7, y[:300]) for model in (boxes, sparse)]
    monkeypatch.setattr(module, name, value)
    for model in models:
        check_onnx(model, X[300:400] / 7)


def test_large_models_with_linear_leaves_are_refused(friedman, monkeypatch):
    pytest.importorskip("onnx")
    model = ObliqueBoostingRegressor(10, linear_leaves=True, n_bags=1, random_state=0)
    model.fit(*friedman)
    monkeypatch.setattr(onnx_trees, "MAX_ATTRIBUTES", 1000)
    with pytest.raises(ValueError, match="linear functions and"):
        to_onnx(model)


def test_boxes_too_large_to_be_gathered(digits, monkeypatch):
    X, y = digits
    model = ManifoldForestClassifier(4, feature_shape=(8, 8), random_state=0)
    model.fit(X[:300] / 8, y[:300])  # eighths, whose sums are exact
    monkeypatch.setattr(onnx_projections, "MAX_GATHERED", 0)
    check_onnx(model, X[300:400] / 8)


@pytest.mark.parametrize(
    "shape, wrap", [((12,), (True,)), ((3, 4), None), ((2, 3, 2), (False, True, False))]
)
def test_boxes_of_any_number_of_axes_by_tables_of_sums(shape, wrap):
    """Thresholds are halves, as of whole numbers; half of the boxes are differences."""
    rng = np.random.default_rng(0)
    forest = random_forest(rng, shape, wrap, kinds=("box",), n_each=8, n_splits=10)
    check_onnx(with_forest(forest), whole_table(rng, 40, 12, np.float32))


def test_large_constants_are_in_a_second_file(friedman, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    X, y = friedman
    model = small(CO2ForestRegressor).fit(X, y)
    path = tmp_path / "model.onnx"
    to_onnx(model, path)
    assert not (tmp_path / "model.onnx.data").exists()
    whole = path.stat().st_size
    monkeypatch.setattr(onnx_graph, "EXTERNAL", 0)
    sizes = set()
    for _ in range(2):  # a file that exists is replaced
        to_onnx(model, path)
        sizes.add((path.stat().st_size, (tmp_path / "model.onnx.data").stat().st_size))
    (size,) = sizes
    assert size[0] < whole and sum(size) < 2 * whole + 8192
    found = in_onnx(str(path), X)["variable"][:, 0]
    np.testing.assert_allclose(found, model.predict(X), atol=1e-5)


def test_without_onnx_the_error_names_the_extra(friedman, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ImportError, match=r'pip install "skforest\[onnx\]"'):
        to_onnx(small(CO2ForestRegressor).fit(*friedman))


def test_the_example_of_to_onnx_runs():
    pytest.importorskip("onnxruntime")
    text = inspect.getdoc(to_onnx).replace("# doctest: +SKIP", "")
    example = doctest.DocTestParser().get_doctest(text, {}, "to_onnx", None, 0)
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize(
    "cls", [ManifoldForestRegressor, CO2ForestRegressor, RandomHingeForestRegressor]
)
def test_columns_beyond_float32(cls, friedman, tmp_path):
    """ONNX takes float64 where the estimator does; manifold forests and their graphs round."""
    X, y = friedman
    X = np.c_[1_700_000_000 + np.floor(600 * X[:, 3]), X[:, :2]]
    model = small(cls).fit(X, y)
    graph = pytest.importorskip("onnx") and to_onnx(model)
    kind = graph.graph.input[0].type.tensor_type.elem_type
    assert kind == (1 if cls is ManifoldForestRegressor else 11)  # FLOAT, DOUBLE
    expected = model.predict(X)
    np.testing.assert_allclose(in_onnx(graph, X)["variable"][:, 0], expected, atol=1e-4)
    np.testing.assert_allclose(in_c(to_c(model), X, 1, tmp_path)[:, 0], expected, rtol=1e-12)


# ---------------------------------------------------------------------------- what is not exported


def test_labels_and_levels_that_onnx_does_not_have(friedman):
    pytest.importorskip("onnx")
    X, y = friedman
    labels = np.c_[np.digitize(y, [10, 15]), np.where(X[:, 0] > 0.5, "u", "v").astype(object)]
    with pytest.raises(TypeError, match="several types"):
        to_onnx(ManifoldForestClassifier(3).fit(X, labels.astype(object)))
    model = ManifoldForestClassifier(3).fit(X, y > 14)
    model.classes_ = np.array([0, 2**63], dtype=np.uint64)
    with pytest.raises(TypeError, match="labels of dtype uint64"):
        to_onnx(model)
    frame = pd.DataFrame({"a": pd.Categorical([1, "x", 2.5] * 20), "b": np.arange(60.0)})
    model = ManifoldForestRegressor(3).fit(frame, frame["b"])
    with pytest.raises(TypeError, match="'a' has levels that are numbers, and others"):
        to_onnx(model)
