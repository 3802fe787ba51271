"""Estimators as C99 and as graphs of ONNX, compared with their own predictions.

What is written is compiled, or run by onnxruntime; tests are skipped where these are missing.
"""

import ctypes
import doctest
import inspect
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import small
from makers import made, random_forest, whole_table
from makers import mixed_table as table
from makers import mixed_target as target
from sklearn.base import is_classifier
from sklearn.datasets import load_digits, make_friedman1
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import skforest
from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    CO2ForestClassifier,
    CO2ForestRegressor,
    CO2Procedure,
    E2EDecisionForestClassifier,
    HingeProcedure,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
    to_c,
    to_onnx,
)
from skforest.export import onnx_graph, onnx_projections, onnx_trees
from skforest.export.model import exported

COMPILER = None if sys.platform == "win32" else shutil.which("cc") or shutil.which("gcc")
SHAPES = (
    ((3, 4), None, None),
    ((5, 7), (True, True), None),
    ((2,), (True,), None),
    ((4, 5, 3), (False, True, False), (True, False, False)),
    ((1,), None, None),
    # Subsets have a bit for each index: a byte that is full, and those beside it.
    ((8, 2), None, (True, False)),
    ((2, 9), (True, False), (False, True)),
    ((16,), None, (True,)),
)


def in_c(source, X, n_outputs, folder, name="predict"):
    """Predictions of a C source, which is compiled without any warning."""
    if COMPILER is None:
        pytest.skip("there is no C compiler")
    (folder / "model.c").write_text(source, encoding="ascii")
    options = "-std=c99 -Wall -Wextra -Werror -shared -fPIC".split()
    command = [COMPILER, *options, "model.c", "-o", "model.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    unique = folder / f"model-{os.urandom(8).hex()}.so"  # a library is loaded once by its path
    (folder / "model.so").rename(unique)
    function = ctypes.CDLL(str(unique))[name]
    function.restype = None
    pointer = ctypes.POINTER(ctypes.c_double)
    X = np.ascontiguousarray(X, dtype=np.float64)
    out = np.empty((len(X), n_outputs))
    for row, result in zip(X, out):
        function(row.ctypes.data_as(pointer), result.ctypes.data_as(pointer))
    return out


def in_onnx(model, X):
    """Outputs of a graph by name, or of the graph of an estimator, for a table."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    if not isinstance(model, str | onnx.ModelProto):
        model = to_onnx(model)
    if not isinstance(model, str):
        onnx.checker.check_model(model, full_check=True)
        model = model.SerializeToString()
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    return dict(zip(outputs, session.run(None, feed(session.get_inputs(), X))))


def feed(inputs, X):
    """The columns of a table as a graph takes them."""
    dtypes = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    if inputs[0].name == "X":
        return {"X": np.asarray(X).astype(dtypes[inputs[0].type])}
    found = {}
    for one, column in zip(inputs, np.asarray(X, dtype=object).T):
        if one.type == "tensor(string)":
            values = [
                "" if skforest.table.frames.is_missing(v) else str(v) for v in column.tolist()
            ]
            column = np.array(values, dtype=object)
        else:
            column = column.astype(dtypes[one.type])
        found[one.name] = column[:, None]
    return found


def codes(model, X):
    """A table as the C function takes it."""
    forest = exported(model).members[0].forest
    return forest.feature_map.coded(X, forest.feature_names)


def predicted(model, X):
    """Probabilities of all outputs side by side, or targets, (n_samples, n_columns)."""
    found = model.predict_proba(X) if is_classifier(model) else model.predict(X)
    found = np.concatenate(found, axis=1) if isinstance(found, list) else found
    return found.reshape(len(found), -1)


def check(model, X, folder, tolerance=1e-6):
    """Compare both formats with the predictions of a fitted model."""
    expected = predicted(model, X)
    scale = max(1, np.abs(expected).max())
    found = in_c(to_c(model), codes(model, X), expected.shape[1], folder)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * scale)
    check_onnx(model, X, tolerance)


def check_onnx(model, X, tolerance=1e-6):
    expected = predicted(model, X)
    scale = max(1, np.abs(expected).max())
    out = in_onnx(model, X)
    found = out["probabilities" if is_classifier(model) else "variable"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)
    if is_classifier(model):
        np.testing.assert_array_equal(out["label"], model.predict(X))


def holed(X, seed=1):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < 0.15] = np.nan
    return X


def numbers(model, X):
    """String labels, or real targets, of a table of numbers."""
    score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1] * X[:, 2])
    return np.array(["a", "b", "c"])[np.digitize(score, [0, 1])] if is_classifier(model) else score


def with_forest(forest):
    """An estimator that predicts by a given forest."""
    X = np.random.default_rng(0).normal(size=(20, forest.n_features))
    model = ManifoldForestRegressor(n_estimators=2, random_state=0).fit(X, X[:, 0])
    model.forest_, model._is_1d = forest, forest.n_outputs == 1
    return model


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(300, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


# ----------------------------------------------------------------------------- kinds of estimators


@pytest.mark.every_class
def test_a_table_of_numbers_holes_and_categories(estimator, tmp_path):
    frame, new = table().assign(batch=1.0), table(seed=1)
    estimator.fit(frame, target(estimator, frame))
    new.loc[3:20, "city"] = "Lima"  # unknown in training
    new["open"] = new["open"].astype(float)
    new.loc[::9, ["size", "shop"]] = None
    new.loc[0] = None
    new["batch"] = 7.0
    check(estimator, new, tmp_path)


def test_means_stay_in_the_range_of_the_targets(friedman, tmp_path):
    """The operator of ONNX adds in float32."""
    X, y = friedman
    Y = np.column_stack([np.maximum(y - 14, 0) / 10 + 0.1, -np.maximum(y - 14, 0)])
    model = ManifoldForestRegressor(11, random_state=0).fit(X, Y)
    new = np.random.default_rng(0).random((2000, X.shape[1])).astype(np.float32)
    for found in (in_c(to_c(model), new, 2, tmp_path), in_onnx(model, new)["variable"]):
        assert (found >= Y.min(axis=0)).all() and (found <= Y.max(axis=0)).all()


def test_constant_pixels(digits, tmp_path):
    X, y = digits
    forest = ManifoldForestClassifier(5, feature_shape=(8, 8), random_state=0).fit(X, y)
    check(forest, np.where(np.ptp(X, axis=0) > 0, X, 9), tmp_path)


@pytest.mark.slow
@pytest.mark.every_class
def test_a_matrix_with_and_without_holes(estimator, tmp_path):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(150, 6)), rng.normal(size=(200, 6))
    for change in (np.copy, holed):
        model = estimator.fit(change(X), numbers(estimator, change(X)))
        check(model, holed(new, 2), tmp_path)


def test_values_far_outside_the_training_range(friedman, tmp_path):
    X, y = friedman
    far = holed(X, 2) * np.random.default_rng(0).choice([-1e6, -3, 1, 3, 1e6], X.shape)
    for model in (
        ObliqueBoostingRegressor(20, linear_leaves=True, n_bags=1, random_state=0),
        ObliqueBoostingRegressor(
            20, linear_leaves=True, feature_shape=(5, 2), n_bags=2, random_state=0
        ),
        RandomHingeForestRegressor(5, n_bags=2, max_iter=100, random_state=0),
    ):
        check(model.fit(X, y), far, tmp_path)


def test_outliers_on_one_side(friedman, tmp_path):
    """Values beyond the range on the other side, and in other columns, are clipped."""
    X, y = friedman
    X = X.copy()
    X[:3, 0] = 1e4, 1e5, 1e6
    model = RandomHingeForestRegressor(5, n_bags=2, max_iter=100, random_state=0).fit(X, y)
    assert len(model.forest_.knots)
    check(model, np.random.default_rng(0).uniform(-3, 4, X.shape), tmp_path)


@pytest.mark.parametrize("scaling", ["standard", None])
def test_scaling_and_votes(scaling, friedman, tmp_path):
    X, y = friedman
    params = {"objective": "co2", "holdout": 0.0, "bootstrap": False, "max_depth": 4}
    model = CO2ForestClassifier(
        2, random_state=0, procedure=CO2Procedure(scaling=scaling, voting="hard"), **params
    )
    check(model.fit(holed(X), y > 14), holed(X, 2), tmp_path)


def test_every_feature_of_categories_and_missing_values(monkeypatch, tmp_path):
    monkeypatch.setattr(skforest.estimators.base, "useful_features", lambda data, *_: data)
    frame = table()
    frame["zip"] = pd.Categorical(np.arange(len(frame)) % 17)
    frame["half"] = pd.Categorical(np.arange(len(frame)) % 5 / 3)
    new = frame[::-1].reset_index(drop=True).astype({"zip": float, "half": float, "open": float})
    new.loc[::5, ["zip", "half"]] = np.nan
    new.loc[1::5, ["zip", "half"]] = 3.5
    new.loc[2::5, "zip"] = 1e300
    for cls in (ManifoldForestClassifier, CO2ForestClassifier):
        check(small(cls).fit(frame, target(small(cls), frame)), new, tmp_path)


def test_unknown_levels_empty_strings_and_text_that_is_no_category(tmp_path):
    rng = np.random.default_rng(0)
    columns = {"a": rng.choice(["", "x", "y"], 90), "b": rng.choice(["p", "q"], 90)}
    frame = pd.DataFrame(columns | {"id": [f"id {k}" for k in range(90)]}).astype(object)
    y = (frame["a"] == "").to_numpy() ^ (frame["b"] == "p").to_numpy()
    new = frame.assign(id="other")
    new.loc[::3, "b"], new.loc[1::3, "b"], new.loc[::2, "a"] = "new", None, "new"
    for cls in (ManifoldForestClassifier, CO2ForestClassifier):
        with pytest.warns(UserWarning, match="'id'"):
            model = small(cls).fit(frame, y)
        check(model, frame, tmp_path)
        check(model, new, tmp_path)


def test_categories_alone(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), 90), "b": rng.choice(["p", "q"], 90)})
    y = np.where((frame["a"] == "x") ^ (frame["b"] == "p"), -1, 5)
    for cls in (ManifoldForestClassifier, CO2ForestClassifier):
        check(small(cls).fit(frame, y), frame, tmp_path)


def test_images(digits, tmp_path):
    X, y = digits
    # Sums of sevenths are equal for many patches, but for their rounding.
    for scale, options in ((1, {}), (7, {}), (7, {"contrast": "mix"})):
        own = {"feature_shape": (8, 8), "random_state": 0}
        model = made(ManifoldForestClassifier, 8, **own, **options)
        check(model.fit(X[:500] / scale, y[:500]), X[500:700] / scale, tmp_path)


@pytest.mark.parametrize("gate", ["hard", "margin", "sigmoid"])
@pytest.mark.parametrize("shape, wrap, unordered", SHAPES)
def test_directions_of_all_kinds(shape, wrap, unordered, gate, tmp_path):
    rng = np.random.default_rng(0)
    forest = random_forest(rng, shape, wrap, unordered, gate=gate, steepness=-0.3)
    model = with_forest(forest)
    # Dense projections are rounded by the runtime, and so are the margins.
    tolerance = 1e-6 if gate == "hard" else 1e-5
    check(model, 20 * rng.normal(size=(60, forest.n_features)), tmp_path, tolerance)
    check_onnx(model, whole_table(rng, 40, forest.n_features, np.uint8))


@pytest.mark.parametrize("gate", ["hard", "margin", "sigmoid"])
def test_trees_of_one_leaf(gate, tmp_path):
    forest = random_forest(np.random.default_rng(0), n_trees=4, n_splits=0, gate=gate)
    check(with_forest(forest), np.zeros((3, 12)), tmp_path)


def test_weights_of_half_precision_and_many_terms(digits, tmp_path):
    X, y = digits
    rng = np.random.default_rng(0)
    forest = random_forest(rng, (100,), n_trees=5, kinds=("sparse", "dense"))
    start = np.array([0, 0, 30, 100])
    weight = rng.normal(size=100).astype(np.float32)
    feature = rng.integers(100, size=100).astype(np.int32)
    sparse = {"sparse_start": start, "sparse_feature": feature, "sparse_weight": weight}
    check(
        with_forest(forest.replaced(forest.arrays | sparse)), rng.normal(size=(50, 100)), tmp_path
    )
    model = CO2ForestClassifier(3, weight_dtype="float16", random_state=0).fit(X[:300], y[:300])
    check(model, X[500:600], tmp_path)


@pytest.mark.parametrize(
    "loss, options",
    [
        ("quantile", {"quantile": [0.9, 0.1, 0.5]}),
        ("poisson", {}),
        ("squared_error", {"linear_leaves": True}),
        ("squared_error", {"linear_leaves": False, "linear_start": 100.0}),
        ("poisson", {"linear_start": 100.0}),
    ],
)
def test_boosting_with_links_quantiles_and_linear_functions(loss, options, friedman, tmp_path):
    X, y = friedman
    model = ObliqueBoostingRegressor(20, loss=loss, n_bags=2, random_state=0, **options)
    check(model.fit(X, np.abs(y)), X, tmp_path)


def test_linear_leaves_of_several_outputs(friedman, tmp_path):
    X, y = friedman
    model = ObliqueBoostingRegressor(20, linear_leaves=True, n_bags=1, random_state=0)
    check(model.fit(X, np.c_[y, 1e6 * X[:, 0]]), X, tmp_path)


@pytest.mark.parametrize("structure", ["tree", "fern"])
def test_hinge_forests(structure, digits, tmp_path):
    X, y = digits
    model = RandomHingeForestClassifier(
        5,
        structure=structure,
        n_bags=2,
        max_iter=30,
        random_state=0,
        procedure=HingeProcedure(head="linear"),
    )
    check(model.fit(X[:300], y[:300]), X[300:350], tmp_path)


@pytest.mark.parametrize("routing", ["hard", "soft"])
def test_end_to_end_trees(routing, digits, tmp_path):
    X, y = digits
    model = small(E2EDecisionForestClassifier).set_params(n_estimators=3, routing=routing)
    check(model.fit(X[:300], y[:300]), X[300:350], tmp_path)


def test_several_outputs(friedman, tmp_path):
    X, y = friedman
    labels = np.c_[np.digitize(y, [10, 15]), X[:, 0] > 0.5]
    for cls in (ManifoldForestClassifier, ObliqueBoostingClassifier):
        check(small(cls).fit(X, labels), X, tmp_path)
    check(small(CO2ForestRegressor).fit(X, np.c_[y, 1e6 + X[:, 0]]), X, tmp_path)


def test_blends(friedman, tmp_path):
    X, y = friedman
    members = [
        ManifoldForestClassifier(5),
        RandomHingeForestClassifier(5, max_iter=30),
        ObliqueBoostingClassifier(10),
    ]
    blend = BlendedForestClassifier(members, random_state=0).fit(X, y > 14)
    blend.temperature_ = 0.7
    check(blend, X, tmp_path)
    frame = table()
    members = [ManifoldForestRegressor(5), CO2ForestRegressor(5)]
    blend = BlendedForestRegressor(members, random_state=0).fit(frame, frame["size"])
    # One reads float32, the other one scales in float64: the graph takes float64 for both.
    assert len(blend.members_) == 2
    in_both = in_onnx(blend, frame)["variable"][:, 0]
    np.testing.assert_allclose(in_both, blend.predict(frame), rtol=0, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.2, 3.0, 7.0])
def test_temperatures_of_probabilities_of_0(temperature, friedman, tmp_path):
    """They count as 1e-12, which a high temperature makes visible."""
    X, y = friedman
    blend = BlendedForestClassifier([ManifoldForestClassifier(3)], cv=2, random_state=0)
    blend.fit(X, np.digitize(y, [10, 15]))
    blend.temperature_ = 1.0
    assert (blend.predict_proba(X) == 0).any()
    blend.temperature_ = temperature
    check(blend, X, tmp_path)


def test_a_member_that_did_not_see_a_class(friedman, tmp_path):
    X, y = friedman
    labels = np.digitize(y, [10, 15])
    members = [ManifoldForestClassifier(5), CO2ForestClassifier(5)]
    blend = BlendedForestClassifier(members, random_state=0).fit(X, labels)
    blend.members_["CO2Forest"].fit(X[labels != 1], labels[labels != 1])
    assert blend.weights_["CO2Forest"] > 0
    check(blend, X, tmp_path)


def test_one_class_one_row_constant_targets(friedman, tmp_path):
    X, y = friedman
    for cls in (ManifoldForestClassifier, CO2ForestClassifier, ObliqueBoostingClassifier):
        check(small(cls).fit(X, np.full(len(X), "a */ /* ??/")), X[:5], tmp_path)
        check(small(cls).fit(X[:1], [3]), X[:5], tmp_path)
    check(small(CO2ForestRegressor).fit(X, np.full(len(X), 1e6)), X[:5], tmp_path)


@pytest.mark.parametrize(
    "labels", [[False, True], ["\u00e9", "b"], [2**40, 7], np.array([3, 1], dtype=np.uint8)]
)
def test_labels_keep_their_types(labels, friedman):
    X, y = friedman
    model = ManifoldForestClassifier(3).fit(X, np.asarray(labels)[(y > 14).astype(int)])
    label = in_onnx(model, X)["label"]
    assert label.tolist() == model.predict(X).tolist()
    assert (label.dtype.kind == "i") == isinstance(labels[0], int | np.integer) - isinstance(
        labels[0], bool
    )


def test_infinite_values_count_as_the_largest_numbers(friedman, tmp_path):
    X, y = friedman
    wide = X.copy()
    wide[::3, 0], wide[1::3, 1] = np.inf, -np.inf
    wide[2::3, 2] = np.inf
    X = X.copy()
    X[:, 2] = 1.0  # no other value has an effect
    limit = float(np.finfo(np.float32).max)
    for cls in (ManifoldForestRegressor, CO2ForestRegressor):
        model = small(cls).fit(X, y)
        expected = model.predict(np.clip(wide, -limit, limit))[:, None]
        np.testing.assert_allclose(in_c(to_c(model), wide, 1, tmp_path), expected)
        np.testing.assert_allclose(in_onnx(model, wide)["variable"], expected, atol=1e-5)


# ----------------------------------------------------------------------------------------- C alone


def test_names_macros_and_comments_of_the_source(tmp_path):
    frame = table()
    model = ManifoldForestClassifier(2, random_state=0).fit(frame, frame["city"].fillna("?"))
    path = tmp_path / "f.c"
    source = to_c(model, path, name="f")
    assert path.read_text(encoding="ascii") == source
    for text in (
        "void f(const double *x, double *out)",
        "#define F_N_INPUTS 6",
        "#define F_N_OUTPUTS 4",
        "#define F_N_CLASSES 4",
        '2: "city", category, 3 levels',
        '     1 = "Oslo"',
        '  3 = "Rome"',
    ):
        assert text in source
    assert "predict" not in source.replace("predicts", "").replace("prediction", "")
    assert in_c(source, np.zeros((1, 6)), 4, tmp_path, name="f").sum() == pytest.approx(1)


@pytest.mark.parametrize("name", ["", "1a", "a-b", "double", "sinf", "int8_t", 3, "\u00e9"])
def test_names_that_c_does_not_have_are_refused(name, friedman):
    model = small(ManifoldForestRegressor).fit(*friedman)
    with pytest.raises(ValueError, match="name="):
        to_c(model, name=name)


def test_arrays_of_c_have_the_smallest_type():
    from skforest.export.c_code import array_text, narrow_type

    assert narrow_type(np.array([-128, 127])) == "int8_t"
    assert narrow_type(np.array([128])) == "int16_t"
    assert narrow_type(np.array([-(2**31)])) == "int32_t"
    with pytest.raises(ValueError, match="at most"):
        narrow_type(np.array([2**31]))
    array = np.array([0.1, 1e-45, 3e38, -0.0, 3, 1 / 3, 2**24 + 2], dtype=np.float32)
    text = array_text("a", array)
    assert text.startswith("static const float a[7] = {\n")
    found = text[text.index("{") + 1 : text.index("}")].split(",")
    assert all(number.endswith("f") and not number[:-1].strip().isdigit() for number in found)
    read = np.array([float(number.strip()[:-1]) for number in found], dtype=np.float32)
    assert read.tobytes() == array.tobytes()


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


def test_large_constants_are_in_a_second_file(friedman, tmp_path, monkeypatch):
    pytest.importorskip("onnx")
    X, y = friedman
    model = small(CO2ForestRegressor).fit(X, y)
    path = tmp_path / "model.onnx"
    to_onnx(model, path)
    assert not (tmp_path / "model.onnx.data").exists()
    whole = path.stat().st_size
    monkeypatch.setattr(onnx_graph, "EXTERNAL", 0)
    for _ in range(2):  # a file that exists is replaced
        to_onnx(model, path)
        sizes = path.stat().st_size, (tmp_path / "model.onnx.data").stat().st_size
        assert sizes[0] < whole and sum(sizes) < 2 * whole + 8192
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


# --------------------------------------------------------------------------------------- pipelines

TRANSFORMERS = {
    "imputer": lambda: (SimpleImputer(strategy="median"), StandardScaler()),
    "ranges": lambda: (StandardScaler(with_mean=False), MinMaxScaler((-1, 2), clip=True)),
    "nested": lambda: (make_pipeline(RobustScaler(with_scaling=False)), MaxAbsScaler()),
    "one": lambda: (StandardScaler(with_std=False),),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("cls", [ManifoldForestRegressor, CO2ForestRegressor])
def test_scalers_of_pipelines_are_exported(name, cls, friedman, tmp_path):
    X, y = friedman
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X) * 10.0 ** np.arange(10)
    frame = pd.DataFrame(X, columns=list("abcdefghij"))
    for number, rows in enumerate((X, frame)):
        steps = make_pipeline(*TRANSFORMERS[name](), small(cls)).fit(rows[:100], y[:100])
        expected = steps.predict(rows)
        found = in_c(to_c(steps), X, 1, tmp_path)[:, 0]
        np.testing.assert_array_equal(found, expected)
        model = pytest.importorskip("onnx") and to_onnx(steps)
        assert [one.name for one in model.graph.input] == (list(frame) if number else ["X"])
        found = in_onnx(model, rows)["variable"][:, 0]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_blends_in_pipelines_are_exported(friedman, tmp_path):
    X, y = friedman
    members = [ManifoldForestRegressor(3), ("co2", CO2ForestRegressor(3))]
    steps = make_pipeline(StandardScaler(), BlendedForestRegressor(members, cv=2)).fit(X, y)
    found = in_c(to_c(steps), X, 1, tmp_path)[:, 0]
    np.testing.assert_allclose(found, steps.predict(X), rtol=1e-12)
    np.testing.assert_allclose(in_onnx(steps, X)["variable"][:, 0], steps.predict(X), atol=1e-5)


@pytest.mark.parametrize(
    "step",
    [
        SimpleImputer(add_indicator=True),
        SimpleImputer(missing_values=0.0),
        QuantileTransformer(n_quantiles=9),
        make_pipeline(PCA(3)),
    ],
)
def test_other_transformers_are_named(step, friedman):
    X, y = friedman
    steps = make_pipeline(StandardScaler(), step, ManifoldForestRegressor(2)).fit(X, y)
    name = type(step[0] if isinstance(step, Pipeline) else step).__name__
    with pytest.raises(TypeError, match=f"a {name}, is not part of .* pass estimator"):
        to_c(steps)


# ---------------------------------------------------------------------------- what is not exported


def write(name, model):
    if name == "to_onnx":
        pytest.importorskip("onnx")
    return getattr(skforest, name)(model)


@pytest.mark.parametrize("name", ["to_c", "to_onnx"])
def test_what_cannot_be_exported_is_refused(name, friedman):
    X, y = friedman
    with pytest.raises(NotFittedError):
        write(name, ManifoldForestClassifier())
    with pytest.raises(NotFittedError):
        write(name, BlendedForestClassifier())
    with pytest.raises(TypeError, match="a LogisticRegression, which cannot"):
        write(name, LogisticRegression().fit(X, y > 14))
    with pytest.raises(TypeError, match="a int; a fitted estimator"):
        write(name, 3)
    members = [("own", ManifoldForestClassifier(5)), ("other", LogisticRegression())]
    blend = BlendedForestClassifier(members, random_state=0).fit(X, X[:, 3] > 0.5)
    assert "other" in blend.members_
    with pytest.raises(TypeError, match="'other' of the blend is a LogisticRegression"):
        write(name, blend)


@pytest.mark.parametrize("name", ["to_c", "to_onnx"])
def test_members_with_other_categories_are_refused(name):
    frame = table()
    members = [ManifoldForestRegressor(5), CO2ForestRegressor(5)]
    blend = BlendedForestRegressor(members, random_state=0).fit(frame, frame["size"])
    other = frame.assign(city="Bern")
    next(iter(blend.members_.values())).fit(other, frame["size"])
    with pytest.raises(TypeError, match="different levels"):
        write(name, blend)


def test_trees_of_networks_are_refused():
    pytest.importorskip("torch")
    from skforest.torch import E2ENetworkTree

    tree = E2ENetworkTree()
    tree.forest_, tree.classes_ = random_forest(np.random.default_rng(0)), np.arange(2)
    with pytest.raises(TypeError, match="not those of its forest alone"):
        to_c(tree)


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


def test_a_written_file_is_whole(friedman, tmp_path):
    model = small(CO2ForestRegressor).fit(*friedman)
    path = tmp_path / "model.c"
    to_c(model, path)
    assert Path(path).read_bytes().endswith(b"}\n")
