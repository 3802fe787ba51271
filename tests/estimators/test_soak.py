"""Random settings of every estimator on random small data.

A setting is fitted, or refused by an error that names a parameter. A failure names the estimator
and the number of the setting, which ``check_setting(cls, number)`` repeats.
"""

import itertools
import pickle
import re
import warnings
import zlib

import numpy as np
import pytest
import scipy.sparse as sp
from conftest import ALL, parameters
from makers import made, response
from sklearn.base import clone, is_classifier
from sklearn.utils import get_tags
from sklearn.utils._param_validation import StrOptions, make_constraint

import skforest

STOPPED = made(
    skforest.NonGreedyTreeClassifier, n_epochs=3, early_stopping=True, n_iter_no_change=1
)
# Values of parameters that are neither str nor bool. A class takes some of them only.
VALUES = {
    "n_estimators": (1, 2, 3),
    "max_depth": (1, 2, 4, None),
    "min_samples_split": (2, 5, 0.2),
    "min_samples_leaf": (1, 3, 0.1),
    "min_weight_fraction_leaf": (0.0, 0.1, 0.5),
    "max_leaf_nodes": (None, 2, 5),
    "min_impurity_decrease": (0.0, 0.01, 10.0),
    "max_features": ("auto", "sqrt", "log2", 1, 2, 0.5, 1.0, None),
    "max_samples": (None, 0.5, 10),
    "max_bins": ("auto", 2, 16, 255),
    "max_search_samples": ("auto", 32, None),
    "max_weights": (None, 1, 3),
    "n_epochs": (1, 3),
    "greedy_epochs": (1, 2),
    "finetune_epochs": (0, 2),
    "max_iter": (1, 20),
    "n_rounds": (1, 5),
    "n_restarts": (0, 2),
    "n_jumps": (0, 2),
    "n_sweeps": (1,),
    "n_iter_no_change": (1, 3),
    "nu": ("auto", 0.1, 100.0),
    "learning_rate": ("auto", 0.01, 0.3, 1.0),
    "momentum": (0.0, 0.9),
    "batch_size": ("auto", 2, 16, 1000),
    "min_batches": (1, 10),
    "holdout": ("auto", 0.0, 0.3),
    "smoothing": (0.01, 1.0),
    "row_norm": (None, 8.0),
    "l1": (0.0, 0.01),
    "l2_regularization": (0.0, 3.0),
    "steepness": (0.5, 1.0, 20.0),
    "steepness_step": ("auto", 0.0, 0.1),
    "smoothness": (0.0, 1.0),
    "validation_fraction": (0.1, 0.4),
    "n_nonzeros": (1.0, 2.5, 4.0),
    "min_patch": (1, 2),
    "max_patch": ("auto", 2, 3),
    "patch_size": (None, 2, 3),
    "kernel_size": (1, 2, 5),
    "stride": (1, 3),
    "n_directions": ("auto", 1, 5),
    "n_bags": (1, 2),
    "weight_decay": (0.0, 0.01),
    "dropout": (0.0, 0.5),
    "importance_power": (0.0, 1.0),
    "label_smoothing": (0.0, 0.1),
    "subsample": (0.5, 1.0),
    "quantile": (0.1, 0.5),
    "scoring": (None,),
    "cv": (2, 3),
    "time_limit": (None,),  # others make the result depend on the speed of the machine
    "max_predict_us": (None,),
    "wrap": (False, True),
    "unordered": (False, True),
    "verbose": (0,),
    "n_jobs": (None, 1),
    "linear_leaves": ("auto", True, False),
    "linear_start": ("auto", 1.0, None),
    "interaction_cst": (None, "pairwise", "no_interactions", [[0]]),
    "refine": (None, "alternating", "nongreedy", STOPPED),
}
OF_DATA = (
    "random_state", "categorical_features", "feature_shape", "monotonic_cst", "class_weight",
    "members",
)  # fmt: skip
# Without these, a setting would take seconds.
ALWAYS = ("n_estimators", "n_epochs", "greedy_epochs", "finetune_epochs", "max_iter", "n_rounds",
          "n_bags", "cv")  # fmt: skip
# With another value, a parameter has a meaning only if these are set.
NEEDED = {
    "max_samples": {"bootstrap": True},
    "oob_score": {"bootstrap": True},
}
WORDS = ("X", "y", "sample_weight", "feature_shape")  # what an error may name beside parameters


def values_of(cls, name):
    """Values that a parameter of a class, or of its procedure, is drawn from."""
    owner = cls if name in cls._parameter_constraints else cls._default_procedure
    constraints = owner._parameter_constraints[name]
    if name in VALUES:
        kinds = [make_constraint(one) for one in constraints]
        return [v for v in VALUES[name] if any(kind.is_satisfied_by(v) for kind in kinds)]
    values = []
    for one in constraints:
        if isinstance(one, StrOptions):
            values += sorted(one.options)
        elif isinstance(one, str) and one == "boolean":
            values += [False, True]
        elif one is None:
            values.append(None)
    return values


# ------------------------------------------------------------------------------------------ data


def random_frame(rng, X):
    """A data frame of some numbers, with holes and columns of categories."""
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    frame["level"] = pd.Categorical(rng.choice(["a", "b", "c"], len(X)), categories=list("abcd"))
    frame["text"] = rng.choice(["red", "green", "blue"], len(X)).astype(object)
    frame.loc[rng.random(len(X)) < 0.2, "text"] = None
    frame.loc[rng.random(len(X)) < 0.2, "x0"] = np.nan
    return frame


def random_rows(rng, tags):
    """X of some kind, and the name of the kind."""
    n_samples, n_features = int(rng.integers(20, 201)), int(rng.choice([1, 2, 4, 6, 12]))
    X = np.round(rng.normal(size=(n_samples, n_features)), rng.integers(0, 5))
    if rng.random() < 0.3:
        X[:, rng.integers(n_features)] = rng.choice([0.0, 3.5])
    if rng.random() < 0.3:
        X[n_samples // 2 :] = X[: n_samples - n_samples // 2]
    kinds = ["float64", "float32", "uint8", "int", *["sparse"] * tags.input_tags.sparse]
    kinds += ["holes", "frame"] * tags.input_tags.allow_nan
    kind = str(rng.choice(kinds))
    if kind == "uint8":
        X = rng.integers(0, rng.choice([2, 256]), X.shape).astype(np.uint8)
    elif kind == "sparse":
        X = rng.choice([sp.csr_array, sp.csc_array])(X * (rng.random(X.shape) < 0.3))
    elif kind == "holes":
        X[rng.random(X.shape) < 0.2] = np.nan
    elif kind == "frame":
        X = random_frame(rng, X)
    else:
        X = (5 * X).astype(int) if kind == "int" else X.astype(kind)
    return X, kind


def random_target(rng, model, n_samples):
    """Labels or numbers of 1 to 3 outputs, and what they are."""
    n_outputs = int(rng.choice([1, 1, 1, 2, 3]))
    shape = (n_samples, n_outputs) if n_outputs > 1 else n_samples
    if not is_classifier(model):
        y = rng.normal(size=shape)
        return np.abs(y) + 0.1 if rng.random() < 0.6 else y, n_outputs
    n_classes = int(rng.integers(2, 6))
    y = rng.integers(0, n_classes, shape)
    y[:n_classes] = np.arange(n_classes).reshape((-1, 1) if n_outputs > 1 else -1)
    return np.array(list("abcde"))[y] if rng.random() < 0.3 else y, n_outputs


def random_weight(rng, n_samples):
    kind = rng.integers(4)
    if kind < 2:
        return None
    weight = rng.random(n_samples) if kind == 2 else rng.integers(0, 3, n_samples).astype(float)
    weight[rng.random(n_samples) < 0.2] = 0
    return weight


# -------------------------------------------------------------------------------------- settings


def value_for_data(name, rng, X, y):
    """A value of a parameter whose meaning depends on the data."""
    n_features = X.shape[1]
    if name == "random_state":
        return int(rng.integers(2**31))
    if name == "monotonic_cst":
        return [None, rng.integers(-1, 2, n_features)][rng.integers(2)]
    if name == "categorical_features":
        return [None, "from_dtype", [0]][rng.integers(3)]
    if name == "feature_shape":
        shapes = {1: [None, (1,)], 4: [(2, 2)], 6: [(2, 3), 6], 12: [(3, 4), (2, 2, 3)]}
        values = shapes.get(n_features, [None])
        return values[rng.integers(len(values))]
    labels = np.unique(y).tolist()
    one = dict(zip(labels, rng.integers(1, 5, len(labels)).tolist()))
    own = [one] * y.shape[1] if y.ndim > 1 else one
    return [None, "balanced", own, "balanced_subsample"][rng.integers(4)]


def random_members(rng, cls, X, y):
    """Two or three members of a blend."""
    kind = "Classifier" if is_classifier(cls()) else "Regressor"
    classes = [c for c in ALL if c.__name__.endswith(kind) and "Blended" not in c.__name__]
    chosen = rng.choice(len(classes), rng.integers(2, 4), replace=False)
    members = []
    for k in chosen:
        known = parameters(classes[k])
        quick = {name: values_of(classes[k], name)[0] for name in ALWAYS if name in known}
        if "objective" in known:
            quick |= {"objective": "co2", "holdout": 0.0, "bootstrap": False}
        members.append(made(classes[k], **quick))
    return members


def random_model(cls, rng, X, y):
    """An estimator with some parameters drawn at random."""
    params, defaults = {}, parameters(cls)
    share = rng.choice([0.1, 0.3, 0.6])
    for name in sorted(defaults.keys() - {"procedure"}):
        if name == "members":
            params[name] = random_members(rng, cls, X, y)
        elif name in ALWAYS or name == "random_state" or rng.random() < share:
            if name in OF_DATA:
                params[name] = value_for_data(name, rng, X, y)
            else:
                values = values_of(cls, name)
                params[name] = values[rng.integers(len(values))]
    for name, needed in NEEDED.items():
        if name in params and params[name] != defaults[name] and rng.random() < 0.9:
            params |= {key: value for key, value in needed.items() if key in defaults}
    # "auto" trains several small forests; few of them suffice here.
    if defaults.get("objective") == "auto" and "objective" not in params and rng.random() < 0.9:
        params["objective"] = "co2"
    return made(cls, **params)


def as_list(found):
    return found if isinstance(found, list) else [found]


def assert_same_bits(one, other):
    for a, b in itertools.zip_longest(as_list(one), as_list(other)):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


def check_predictions(model, X, y, n_outputs):
    shape = (X.shape[0],) if n_outputs == 1 else (X.shape[0], n_outputs)
    predicted = model.predict(X)
    assert predicted.shape == shape
    found = as_list(response(model, X))
    assert all(np.isfinite(one).all() for one in found)
    if not is_classifier(model):
        return
    assert set(np.unique(predicted)) <= set(np.unique(y))
    for one in found:
        assert (one >= 0).all()
        np.testing.assert_allclose(one.sum(axis=1), 1, rtol=1e-6)


def check_copies(model, X, y, weight, path):
    """The same bits from two threads, from a pickle and from a file."""
    expected = response(model, X)
    if "n_jobs" in model.get_params():
        assert_same_bits(
            response(clone(model).set_params(n_jobs=2).fit(X, y, weight), X), expected
        )
        assert_same_bits(
            response(pickle.loads(pickle.dumps(model)).set_params(n_jobs=2), X), expected
        )
    assert_same_bits(response(pickle.loads(pickle.dumps(model)), X), expected)
    skforest.save(model, path)
    assert_same_bits(response(skforest.load(path), X), expected)


def check_setting(cls, number, path="soak.npz"):
    """Check one setting; return None, or the error of a setting that was refused."""
    rng = np.random.default_rng([zlib.crc32(cls.__name__.encode()), number])
    X, kind = random_rows(rng, get_tags(cls()))
    y, n_outputs = random_target(rng, cls(), X.shape[0])
    weight = random_weight(rng, X.shape[0])
    model = random_model(cls, rng, X, y)
    setting = (
        f"check_setting({cls.__name__}, {number}): {model!r} on {kind} of shape {X.shape}, "
        f"{n_outputs} outputs, weight {'None' if weight is None else 'given'}"
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("error", RuntimeWarning)
            try:
                model.fit(X, y, weight)
            except (ValueError, TypeError) as error:
                names = "|".join((*parameters(cls), *WORDS))
                text = "\n".join([str(error), *getattr(error, "__notes__", ())])
                if not re.search(rf"\b({names})\b", text):
                    raise
                return text
            check_predictions(model, X, y, n_outputs)
            check_copies(model, X, y, weight, path)
    except Exception as error:
        raise AssertionError(setting) from error
    return None


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_every_parameter_takes_part(cls):
    for name in parameters(cls).keys() - {"procedure"}:
        assert name in OF_DATA or values_of(cls, name), name


@pytest.mark.parametrize("n", [3, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_random_settings_fit_or_are_refused(cls, n, tmp_path):
    refused = [check_setting(cls, number, tmp_path / "model.npz") for number in range(n)]
    assert sum(error is not None for error in refused) <= max(2, n // 2)
