"""Losses, tasks and settings of estimators made for tests; comparisons of models."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forests import table
from hypothesis import settings
from scipy.special import logsumexp, softmax
from skforest._kernels.base.loss import (
    AbsoluteErrorKernel,
    HuberKernel,
    LogLossKernel,
    PoissonKernel,
    QuantileKernel,
    SquaredErrorKernel,
)
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification, make_friedman1, make_regression

from skforest import (
    CO2ForestClassifier,
    Loss,
    ManifoldForestClassifier,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
)
from skforest.forest import ARRAYS
from skforest.training.boosting import BoostingMethod

# The same examples in every run, and no time limit on a busy machine.
fixed = settings(derandomize=True, deadline=None, max_examples=60)

N_ROWS = 120  # of the tasks for all estimators


class OwnSquaredError(Loss):
    """The squared error, as a user writes it."""

    def loss(self, y, raw):
        return (raw - y) ** 2 / 2

    def gradient_hessian(self, y, raw):
        return raw - y, np.ones_like(raw)


class OwnPoisson(Loss):
    """The loss of counts, with a link, as a user writes it."""

    def loss(self, y, raw):
        return np.exp(raw) - y * raw

    def gradient_hessian(self, y, raw):
        return np.exp(raw) - y, np.exp(raw)

    def initial(self, y, weight):
        return np.log(np.average(y, axis=0, weights=weight))

    def inverse_link(self, raw):
        return np.exp(raw)


class OwnCrossEntropy(Loss):
    """The log loss of labels, as a user writes it."""

    def initial(self, y, weight):
        return np.zeros(y.shape[1])

    def loss(self, y, raw):
        return logsumexp(raw, axis=1) - (y * raw).sum(axis=1)

    def gradient_hessian(self, y, raw):
        p = softmax(raw, axis=1)
        return p - y, p * (1 - p)


def changed(model, **params):
    """Set parameters of an estimator, among them parameters of its procedure, and return it."""
    known = model.get_params(deep=False)
    apart = {name: value for name, value in params.items() if name not in known}
    own = {name: value for name, value in params.items() if name in known}
    if apart and known["procedure"] is None:
        own["procedure"] = model._default_procedure()
    return model.set_params(**own, **{f"procedure__{name}": apart[name] for name in apart})


def made(cls, *args, **params):
    """An estimator with these parameters, among them parameters of its procedure."""
    return changed(cls(*args), **params)


KERNEL_LOSSES = {  # of four outputs or classes
    "log": LogLossKernel(4),
    "smoothed": LogLossKernel(4, 0.2),
    "squared": SquaredErrorKernel(4),
    "absolute": AbsoluteErrorKernel(4),
    "huber": HuberKernel(4, 0.7),
    "quantile": QuantileKernel(4, 0.3),
    "poisson": PoissonKernel(4),
}


def kernel_targets(loss, rng, n):
    """Random targets of a loss in `KERNEL_LOSSES`."""
    if loss.n_columns == 1:
        return rng.integers(loss.n_outputs, size=(n, 1)).astype(float)
    return rng.integers(0, 5, size=(n, loss.n_outputs)).astype(float)


def start_python(code, preexec_fn=None, **environment):
    """Start a fresh interpreter that finds the same package and these makers.

    Parameters
    ----------
    code : str
    preexec_fn : callable, default=None
    **environment : str

    Returns
    -------
    process : subprocess.Popen
        With pipes for stdout and stderr, in text mode.
    """
    path = os.pathsep.join([str(Path(__file__).parent), *(p for p in sys.path if p)])
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path} | environment,
        preexec_fn=preexec_fn,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def assert_same(one, other):
    """Same arrays in the same dtypes, and the same of everything else."""
    for name in ARRAYS:
        a, b = one.arrays[name], other.arrays[name]
        assert (a.dtype, a.shape) == (b.dtype, b.shape), name
        assert a.tobytes() == b.tobytes(), name
    for name, value in one.metadata.items():
        np.testing.assert_equal(other.metadata[name], value, err_msg=name)


def use(forest):
    """Call all methods that read the arrays of a forest."""
    X = table(forest, 5)
    forest.response(X)
    forest.predict(table(forest, 5, dtype=np.uint8))
    forest.decision_path(X)
    assert (forest.max_depth <= forest.n_leaves).all()
    if len(forest.arrays["gain"]) == len(forest.threshold):  # otherwise it is as after `slim`
        forest.feature_importances()
    forest.directions()
    forest.compact().response(X)
    pickle.loads(pickle.dumps(forest[len(forest) // 2 :]))


# -------------------------------------------------------------------------------------- estimators


def response(model, X):
    """The finest prediction of a fitted estimator."""
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)


def assert_same_trees(a, b):
    """Two fitted estimators have the same trees, bit for bit, and the same classes."""
    for name, array in a.forest_.arrays.items():
        np.testing.assert_array_equal(array, b.forest_.arrays[name], err_msg=name)
    if is_classifier(a):
        np.testing.assert_equal(a.classes_, b.classes_)


def classes(n=N_ROWS, seed=0, n_classes=3):
    """X, y of a classification task."""
    return make_classification(
        n, n_features=6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=seed
    )


def targets(n=N_ROWS, seed=0, n_targets=1):
    """X, y of a regression task."""
    return make_regression(n, 6, n_targets=n_targets, noise=5.0, random_state=seed)


def task(estimator, n=N_ROWS, seed=0):
    """X, y of the estimator's kind."""
    return (classes if is_classifier(estimator) else targets)(n, seed)


def mixed_table(n=N_ROWS, seed=0):
    """A mixed table with holes, as a pandas data frame."""
    import pandas as pd  # not every test needs it

    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "age": rng.integers(0, 90, size=n).astype(float),
            "city": rng.choice(["Bern", "Oslo", "Rome"], size=n),
            "shop": [f"s{i}" for i in rng.integers(0, 25, size=n)],
            "grade": pd.Categorical(
                rng.choice(["low", "mid", "high"], size=n), ["low", "mid", "high"], ordered=True
            ),
            "open": rng.random(n) < 0.5,
        }
    )
    frame.loc[::7, "age"] = np.nan
    frame.loc[::11, "city"] = None
    return frame


def mixed_target(model, frame):
    """Labels, or real targets, that depend on numbers and on categories."""
    score = frame["size"].to_numpy() + 2 * (frame["city"] == "Rome").to_numpy()
    return (score > 0.5).astype(int) if is_classifier(model) else score


TABLE_MODELS = ManifoldForestClassifier, CO2ForestClassifier


BOTH_BOOSTING = pytest.mark.parametrize(
    "cls", [ObliqueBoostingClassifier, ObliqueBoostingRegressor]
)


def quick_boosting(cls, **changes):
    """An estimator of oblique boosting that is trained in a moment; unfitted."""
    defaults = {"n_estimators": 20, "n_bags": 2, "learning_rate": 0.2, "random_state": 0}
    return cls(**defaults | changes)


def training_rows(model, X, y, sample_weight=None):
    """The TrainingSet that a model is trained on."""
    model = clone(model)
    return model._read_training_set(X, y, model._request(sample_weight=sample_weight))


def bags_before(monkeypatch):
    """Return a dict that fits fill with their bags before these learnt from held-out rows."""
    found, finish = {}, BoostingMethod.finish

    def finished(self, trained, before=None):
        forest = finish(self, trained, before)
        found.update(trained.without_held_out)
        return forest

    monkeypatch.setattr(BoostingMethod, "finish", finished)
    return found


def bag_of(forest, number):
    """One bag of a forest, as a Forest."""
    first, last = forest.bag_start[number : number + 2]
    return forest[first:last]


def boosting_rows(cls, n=150):
    """X, y for a class of oblique boosting."""
    if cls is ObliqueBoostingClassifier:
        return make_classification(n, 6, n_informative=4, n_classes=3, random_state=0)
    return make_friedman1(n, 6, noise=0.5, random_state=0)


def quick_hinge(cls, **changes):
    """A random hinge forest that is trained in a moment, without a trial; unfitted."""
    defaults = {"n_estimators": 20, "n_bags": 2, "max_iter": 200, "random_state": 0}
    own = {} if "procedure" in changes else {"weight_decay": 0.0}
    return made(cls, **defaults | own | changes)


def hinge_rows(cls, n=150, seed=0):
    """X, y for a class of random hinge forests."""
    if cls is RandomHingeForestClassifier:
        return make_classification(n, 6, n_informative=5, n_redundant=0, n_classes=3,
                                   random_state=seed)  # fmt: skip
    return make_regression(n, 6, noise=5.0, random_state=seed)


def class_rows(n_classes, n_features=6):
    """X and labels whose classes depend on four columns."""
    return make_classification(
        200, n_features, n_informative=4, n_redundant=0, n_classes=n_classes, random_state=1
    )


def mixed_rows():
    """X of numbers and categories with missing values, as a pandas data frame, and y."""
    import pandas as pd

    rng = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame({
        "size": np.where(rng.uniform(size=n) < 0.3, np.nan, rng.normal(size=n)),
        "colour": rng.choice(["red", "green", "blue", "grey"], n),
        "town": rng.choice([f"town {i}" for i in range(15)], n),
        "age": rng.integers(0, 5, n).astype(float),
    })  # fmt: skip
    y = X["size"].fillna(2) + 2.0 * (X["colour"] == "red") + X["age"] * (X["town"] < "town 3")
    return X, y.to_numpy()
