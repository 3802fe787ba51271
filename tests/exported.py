"""Predictions of exported estimators: compiled, or run by onnxruntime."""

import ctypes
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import is_classifier

import skforest
from skforest import (
    to_onnx,
)

COMPILER = None if sys.platform == "win32" else shutil.which("cc") or shutil.which("gcc")


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


def predicted(model, X):
    """Probabilities of all outputs side by side, or targets, (n_samples, n_columns)."""
    found = model.predict_proba(X) if is_classifier(model) else model.predict(X)
    found = np.concatenate(found, axis=1) if isinstance(found, list) else found
    return found.reshape(len(found), -1)


def check_onnx(model, X, tolerance=1e-6):
    expected = predicted(model, X)
    scale = max(1, np.abs(expected).max())
    out = in_onnx(model, X)
    found = out["probabilities" if is_classifier(model) else "variable"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)
    if is_classifier(model):
        np.testing.assert_array_equal(out["label"], model.predict(X))


def with_forest(forest):
    """An estimator that predicts by a given forest."""
    X = np.random.default_rng(0).normal(size=(20, forest.n_features))
    model = skforest.ManifoldForestRegressor(n_estimators=2, random_state=0).fit(X, X[:, 0])
    model.forest_, model._is_1d = forest, forest.n_outputs == 1
    return model
