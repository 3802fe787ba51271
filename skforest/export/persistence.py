"""Fitted estimators in files, and the versions in use.

A saved estimator is a saved `Forest` (docs/format) whose header has further entries: the name of
the class, its parameters, and the fitted attributes that are not arrays of the forest. A saved
blend has one such forest for each member that is one; the header of the file has the same entries
for the blend. Members of other packages are written by skops. Nothing is pickled, so you can load
files from untrusted sources.
"""

import copy
from itertools import pairwise

import numpy as np
from scipy import sparse
from sklearn import show_versions as show_scikit_learn_versions
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

import skforest

from .._docs import with_texts
from ..blend.encoding import TableReader
from ..blend.parameters import is_estimator
from ..estimators.prediction import is_blend, is_forest
from ..estimators.unwrap import active_steps, rewrapped, unwrapped, unwrapped_alone
from ..forest import Forest, load_with_header, package_versions
from ..forest.io import as_value_error, write_forests
from ..forest.storage import Levels, is_prior_ratio
from ..inspect.contents import forest_of
from ..table.dates import DateFeatures
from ..table.feature_grid import in_order
from ..table.frames import by_name
from ..training.parameters import ParameterObject
from .others import OtherObjects

# Fitted attributes that are stored as arrays of the file, or made from them.
WITH_FOREST = ("forest_", "members_", "classes_", "_stream")
OF_WARM_START = ("_trained_rounds",)  # they are not stored
OF_TRAINING_ROWS = ("oob_decision_function_", "oob_prediction_")
# Harmless types in blends that skops does not know: encoders, and wrappers of members by name.
ENCODERS = (
    *("numpy.dtype", "sklearn.model_selection._split.KFold"),
    *("skforest.blend.encoding.MemberPipeline", "skforest.blend.names.ScaledLinear"),
    "skforest.blend.names.LabelCodes",
)
MAX_STRING_BYTES = 2**22  # of all arrays of strings in parameters and attributes


def _to_json(value, name, others):
    """A parameter or attribute as a value that JSON can represent.

    Estimators of other packages are added to `others`.
    """
    if isinstance(value, range) or hasattr(value, "to_list"):  # also of pandas and polars
        value = list(value)
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "O":
            return _to_json(value.tolist(), name, others)
        if value.dtype.kind not in "biufU":
            raise TypeError(f"{name} is an array of {value.dtype}, which cannot be saved")
        return {"array": value.tolist(), "dtype": str(value.dtype)}
    if sparse.issparse(value):
        rows = sparse.csr_array(value)
        parts = rows.data, rows.indices, rows.indptr
        parts = [_to_json(part, name, others) for part in parts]
        return {"sparse": parts, "shape": list(rows.shape)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {
            "items": [
                [_to_json(k, name, others), _to_json(v, name, others)] for k, v in value.items()
            ]
        }
    if isinstance(value, tuple):
        return {"tuple": [_to_json(item, name, others) for item in value]}
    if isinstance(value, list):
        return [_to_json(item, name, others) for item in value]
    if isinstance(value, set | frozenset):
        return {"set": [_to_json(item, name, others) for item in sorted(value, key=str)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_forest(value) or (isinstance(value, ParameterObject) and _is_public(value)):
        return {"estimator": type(value).__name__, "params": _params_to_json(value, others)}
    if is_estimator(value) and not isinstance(value, ParameterObject):
        return others.add(value)
    raise TypeError(
        f"{name} is a {type(value).__name__}, which cannot be saved; a number, a string, None, or "
        "lists, tuples, sets, dicts, arrays and sparse matrices of these can. pickle and joblib "
        "can save any estimator, but their files must be trusted"
    )


def _names_of_mask(mask):
    """A mask of columns that is a Series of pandas with names as labels, as a list of names."""
    of_name = by_name(mask)
    if not isinstance(of_name, dict) or np.asarray(mask).dtype != bool:
        return mask
    return [name for name, is_category in of_name.items() if is_category]


def _dict_of_prior(prior):
    """The frequencies of classes, in which a Series of pandas is a dict."""
    if isinstance(prior, list | tuple):
        return [_dict_of_prior(one) for one in prior]
    return prior.to_dict() if hasattr(prior, "to_dict") else prior


# Parameters in which a Series of pandas is read by its labels, and what is stored instead.
BY_LABEL = {
    "monotonic_cst": by_name,
    "categorical_features": _names_of_mask,
    "prior": _dict_of_prior,
}


def _params_to_json(estimator, others):
    params = estimator.get_params(deep=False)
    if isinstance(params.get("random_state"), np.random.RandomState | np.random.Generator):
        params["random_state"] = None
    graph = params.get("feature_graph")
    if graph is not None and (others.names is not None or hasattr(estimator, "forest_")):
        params["feature_graph"] = in_order(graph, others.names)  # a data frame becomes a matrix
    for name, without_series in BY_LABEL.items():
        if name in params:
            params[name] = without_series(params[name])
    return {name: _to_json(value, name, others) for name, value in params.items()}


def _header_of(estimator, others):
    """Entries of the header of an estimator: its class, parameters and fitted attributes."""
    others.names = getattr(estimator, "feature_names_in_", others.names)
    apart = {*estimator.get_params(deep=False), *WITH_FOREST, *OF_WARM_START, "_skl_callbacks"}
    state = {k: value for k, value in estimator.__getstate__().items() if k not in apart}
    return {
        "estimator": type(estimator).__name__,
        "params": _params_to_json(estimator, others),
        "state": {
            # Names of columns are an object array, and are stored with the forest.
            name: None if name == "feature_names_in_" else _to_json(value, name, others)
            for name, value in state.items()
        },
    }


def _dtype_from_json(dtype):
    """Dtype of an array of numbers or strings."""
    if not isinstance(dtype, str) or len(dtype) > 20 or np.dtype(dtype).kind not in "biufU":
        raise ValueError(f"an array has dtype {dtype!r:.50}")
    return np.dtype(dtype)


def _check_strings(header):
    """Raise ValueError if arrays of strings, which are all as long as the longest, are large."""
    if (n_bytes := _string_bytes(header)) > MAX_STRING_BYTES:
        raise ValueError(
            f"parameters and attributes contain arrays of strings of {n_bytes} bytes, more than "
            f"{MAX_STRING_BYTES}; use lists of strings"
        )


def _string_bytes(value):
    if isinstance(value, list):
        return sum(map(_string_bytes, value))
    if not isinstance(value, dict):
        return 0
    if "array" not in value:
        return sum(map(_string_bytes, value.values()))
    dtype = _dtype_from_json(value["dtype"])
    if dtype.kind != "U":
        return 0
    n_bytes = [max(4 * len(str(item)), dtype.itemsize) for item in _flat(value["array"])]
    return len(n_bytes) * max(n_bytes, default=0)


def _flat(items):
    return [one for item in items for one in _flat(item)] if isinstance(items, list) else [items]


def _from_json(value, others):
    if isinstance(value, list):
        return [_from_json(item, others) for item in value]
    if isinstance(value, dict):
        if "array" in value:
            return np.array(value["array"], dtype=_dtype_from_json(value["dtype"]))
        if "sparse" in value:
            parts = tuple(_from_json(part, others) for part in value["sparse"])
            rows = sparse.csr_array(parts, shape=tuple(value["shape"]))
            rows.check_format()  # indices may be anything
            return rows
        if "estimator" in value:
            return _new_estimator(value, others)
        if "other" in value:
            return others.get(value["other"])
        if "items" in value:
            pairs = value["items"]
            return {_from_json(key, others): _from_json(item, others) for key, item in pairs}
        if "set" in value:
            return {_from_json(item, others) for item in value["set"]}
        return tuple(_from_json(item, others) for item in value["tuple"])
    return value


def save(estimator, path, *, layout="file"):
    """Write a fitted estimator to disk, without pickle.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted. Of a search, only the fitted estimator inside is saved. Of a pipeline, the
        transformers are saved if they are `DateFeatures`, and `load` returns a pipeline. Members
        of a blend from other packages are written by skops. A `random_state` that is a generator
        is saved as None; this affects another fit, but not predictions. `partial_fit` cannot
        continue the training of a loaded estimator. Labels of dtype object, such as strings of a
        data frame, are loaded as an array of fixed-length str.
    path : str, Path or binary file
        An existing file is replaced once the new one is complete. If you pass an open file, such
        as `io.BytesIO` or a member of an archive, everything is written at the end.
    layout : {"file", "folder"}, default="file"
        "file": one compressed .npz file, which takes the least space. "folder": one .npy file per
        array, which `load` can map into memory.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If JSON cannot represent a parameter, if labels have mixed types, or if other transformers
        of a pipeline change the rows.
    ImportError
        If skops is needed and not installed.
    ValueError
        If arrays of strings among the parameters take more than 4 MiB; use lists instead.

    See Also
    --------
    load : Read a saved estimator.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import skforest
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = skforest.ManifoldForestClassifier(10, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "iris.npz"
    ...     skforest.save(forest, path)
    ...     again = skforest.load(path)
    >>> again
    ManifoldForestClassifier(n_estimators=10, random_state=0)
    >>> again.predict(X[::50])
    array([0, 1, 2])
    """
    whole, advice = unwrapped(estimator), "; or save the pipeline with skops or joblib"
    estimator = unwrapped_alone(estimator, "a file", advice, _is_saved)
    others = OtherObjects()
    if is_blend(estimator):
        members, extra = _parts_of_blend(estimator, others)
    else:
        members, extra = [(_forest_of_estimator(estimator), _header_of(estimator, others))], {}
    if steps := [pair for own in whole.transformers for pair in active_steps(own)]:
        steps = [[name, _transformer_to_json(step, others)] for name, step in steps]
        extra["pipeline"] = {"transformers": steps, "step": whole.step}
    _check_strings([extra, *(entries for _, entries in members)])
    write_forests(path, members, layout, extra, others.content())


def _is_saved(step):
    """True if a file may contain a transformer, otherwise None."""
    return True if type(step) is DateFeatures else None


def _transformer_to_json(step, others):
    names = getattr(step, "feature_names_in_", None)
    state = {"n_features_in_": step.n_features_in_, "_dates": step._dates}
    state["feature_names_in_"] = None if names is None else names.tolist()
    state["_words"] = getattr(step, "_words", {})
    state = {name: _to_json(value, name, others) for name, value in state.items()}
    return {"params": _params_to_json(step, others), "state": state}


def _in_pipeline(estimator, header, others):
    """The pipeline of transformers and a fitted estimator."""
    steps = []
    for name, entry in header["transformers"]:
        step = DateFeatures(**{k: _from_json(v, others) for k, v in entry["params"].items()})
        state = {"_words": {"items": []}} | entry["state"]  # files of early versions have no words
        step.n_features_in_, step._dates, step._words = (
            _from_json(state[key], others) for key in ("n_features_in_", "_dates", "_words")
        )
        if (names := entry["state"]["feature_names_in_"]) is not None:
            step.feature_names_in_ = np.array(names, dtype=object)
        step._check_dates()
        steps.append((str(name), step))
    steps.append((str(header["step"]), estimator))
    for (_, step), (_, following) in reversed([*pairwise(steps)]):
        n_columns = following.n_features_in_
        # Each column becomes at least one.
        if step.n_features_in_ > n_columns or len(step.get_feature_names_out()) != n_columns:
            raise ValueError(f"transformers do not make {n_columns} columns")
    return Pipeline(steps)


def _parts_of_blend(blend, others):
    """Forests of a blend with the entries of their headers, and those of the header of the file.

    Members of other packages are added to `others`.
    """
    forests, rest = [], {}
    for name, model in blend.members_.items():
        if is_forest(model):
            forests.append((forest_of(model), {"name": name, **_header_of(model, others)}))
        else:
            rest[name] = others.add(model)
    extra = _header_of(blend, others)
    if rest:
        extra["other_members"] = list(rest.items())
    if not forests:  # which have them otherwise
        for name in ("classes_", "feature_names_in_"):
            if hasattr(blend, name):
                extra["state"][name] = others.add(getattr(blend, name))
    return forests, extra


def _forest_of_estimator(estimator):
    if isinstance(estimator, Forest):
        raise TypeError("estimator is a Forest, which has the methods save and slim")
    return forest_of(estimator)


@with_texts()
def load(path, *, mmap_mode=None, trusted=()):
    """Read an estimator that `save` wrote.

    {reads}
    trusted : list of str, default=()
        For blends with members of other packages, names of types that skops may make in addition
        to those of skforest and those that skops knows to be harmless, which are most of
        scikit-learn (without its trees), NumPy and SciPy.

    Returns
    -------
    estimator : estimator of skforest, or Pipeline
        Fitted; it predicts exactly what the saved estimator predicts.

    Raises
    ------
    FileNotFoundError
        If `path` does not exist.
    ValueError
        If there is no saved estimator at `path`, if it has another format, or if it is damaged.
    TypeError
        If the file has objects of other packages that are not `trusted`.
    ImportError
        If it has objects of other packages, and skops is not installed.

    See Also
    --------
    save : Write a fitted estimator.
    """
    if isinstance(trusted, str):
        raise TypeError(f"trusted={trusted!r} must be a list of names")
    forests, header, content = load_with_header(path, mmap_mode)
    has_members = "estimator" in header
    first = header if has_members else header["members"][0]
    if "estimator" not in first:
        raise ValueError(f"{path} contains a Forest, not an estimator; Forest.load reads it")
    _class_of(first["estimator"], path)
    others = OtherObjects.read(content, path, {*skops_types(), *trusted})
    with as_value_error(f"{path} is damaged"):
        _check_strings(header)
        if has_members:
            estimator = _restored_blend(header, forests, others)
        elif len(forests) > 1:
            raise ValueError(f"it has {len(forests)} forests, but is no blend")
        else:
            estimator = _restored(first, forests[0], others)
        if "pipeline" in header:
            estimator = _in_pipeline(estimator, header["pipeline"], others)
        return estimator


def _class_of(name, path, *others):
    """The class of an estimator, or a subclass of `others`, by its name."""
    found = getattr(skforest, name) if name in skforest.__all__ else None
    is_other = isinstance(found, type) and issubclass(found, others)
    if not (is_other or (hasattr(found, "get_params") and hasattr(found, "predict"))):
        raise ValueError(f"{path} contains a {name!r}, which is not an estimator of skforest")
    return found


def _is_public(value):
    """Is the class of an object defined by skforest, and not by a user?"""
    return getattr(skforest, type(value).__name__, None) is type(value)


def _new_estimator(header, others):
    """An unfitted estimator, or a parameter object."""
    params = {key: _from_json(value, others) for key, value in header["params"].items()}
    return _class_of(header["estimator"], "the file", ParameterObject)(**params)


def _restored(header, forest, others):
    """A fitted estimator of one forest."""
    estimator = _new_estimator(header, others)
    if not is_forest(estimator):
        raise ValueError(f"a {type(estimator).__name__} is no estimator of one forest")
    _set_state(estimator, header["state"], forest, others)
    estimator.forest_ = forest
    _check_state(estimator, forest.task)
    if estimator.n_features_in_ != forest.n_inputs:
        raise ValueError(f"n_features_in_ is {estimator.n_features_in_}, not {forest.n_inputs}")
    levels = vars(estimator).get("_quantiles")
    if levels is not None and list(map(type, levels)) != [float] * forest.n_outputs:
        raise ValueError(f"the fitted attribute _quantiles is {levels!r:.50}")
    return estimator


def _restored_blend(header, forests, others):
    """A fitted blend."""
    blend = _new_estimator(header, others)
    if is_forest(blend):
        raise ValueError(f"a {type(blend).__name__} has one forest, not {len(forests)}")
    first = forests[0] if forests else None
    _set_state(blend, header["state"], first, others)
    members = {
        str(own["name"]): _restored(own, forest, others)
        for own, forest in zip(header["members"], forests)
    }
    for member in members.values():
        own = member.forest_
        if (own.task, own.n_outputs) != (first.task, first.n_outputs):
            raise ValueError("members have different targets")
        if own.n_classes != first.n_classes or not np.array_equal(own.classes, first.classes):
            raise ValueError("members have different classes")
        if member.n_features_in_ != blend.n_features_in_:
            raise ValueError("members have different numbers of features")
    members |= {str(name): others.get(k["other"]) for name, k in header.get("other_members", ())}
    for name, member in members.items():
        if type(blend.weights_[name]) is not float:
            raise ValueError(f"a weight is {blend.weights_[name]!r}")
        if not hasattr(member, "predict"):
            raise ValueError(f"the member {name!r} is a {type(member).__name__}")
    if not members:
        raise ValueError("it has no members")
    # The order of the members is that of their sum.
    blend.members_ = {name: members[name] for name in blend.weights_ if name in members}
    _check_state(blend, first.task if forests else None)
    if type(blend.temperature_) is not float or not blend.temperature_ > 0:
        raise ValueError(f"temperature_ is {blend.temperature_!r}")
    ratio = vars(blend).get("_prior_ratio")
    n_columns = sum(map(len, blend._every_classes)) if is_classifier(blend) else 0
    if ratio is not None and not is_prior_ratio(ratio, n_columns):
        raise ValueError(f"the fitted attribute _prior_ratio is {ratio!r:.50}")
    return blend


def _set_state(estimator, state, forest, others):
    """Set fitted attributes; names of columns and classes are those of the forest, if any."""
    for key, value in state.items():
        if hasattr(type(estimator), key):
            raise ValueError(f"{key!r} is not a fitted attribute")
        value = _from_json(value, others)
        if key == "feature_names_in_" and forest is not None:
            value = np.array(forest.feature_names or (), dtype=object)
        setattr(estimator, key, value)
    if forest is not None and forest.classes is not None:
        estimator.classes_, n_classes = forest.classes, len(forest.classes)
        if forest.n_classes is not None:
            n_classes = forest.n_classes
            estimator.classes_ = np.split(forest.classes, np.cumsum(n_classes)[:-1])
        if is_forest(estimator):
            estimator.n_classes_ = n_classes


def _check_state(estimator, task):
    """Raise ValueError if a fitted attribute that predictions need is missing or of a wrong type.

    Otherwise `predict` would fail, long after the file was read.
    """
    state = vars(estimator)
    task = task or ("classification" if "classes_" in state else "regression")
    if is_classifier(estimator) != (task != "regression"):
        raise ValueError(f"{type(estimator).__name__} has a forest for {task}")
    needed = {"n_features_in_": int, "n_outputs_": int}
    needed |= {"_is_1d": bool} if task == "regression" else {}
    for name, kind in needed.items():
        if type(state.get(name)) is not kind:
            raise ValueError(f"the fitted attribute {name} is {state.get(name)!r}")
    if "_held_out" in state:
        estimator._check_held_out()
    if "_samples" in state:
        found = state["_samples"]
        is_valid = isinstance(found, dict) and found.keys() == {"key", "first"}
        if not is_valid or type(found["first"]) is not int or type(found["key"]) is not str:
            raise ValueError(f"the fitted attribute _samples is {found!r:.50}")
    names = state.get("feature_names_in_")
    if names is not None and len(names) != estimator.n_features_in_:
        raise ValueError(f"{len(names)} names for {estimator.n_features_in_} features")


def slim(estimator):
    """A smaller copy of a fitted estimator, with only what predictions need.

    The copy has no training weights of nodes, no gains of splits and no out-of-bag predictions.
    Importances, plots and texts of trees, `to_dict`, `refine` and most further training need
    these, and raise an error. A forest of patches or single features takes about a third less
    memory, and a forest of hyperplanes less than a tenth less.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted; it is not changed. In a blend, all members that are estimators of skforest become
        smaller. For a search, the best estimator becomes smaller; for a pipeline, the last step of
        a copy.

    Returns
    -------
    smaller : estimator of skforest
        Its predictions are those of `estimator`, to the bit.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.

    Examples
    --------
    >>> import skforest
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = skforest.ManifoldForestClassifier(random_state=0).fit(X, y)
    >>> for model in (forest, skforest.slim(forest)):
    ...     proba = model.predict_proba(X[77:78]).round(2)
    ...     print(f"{model.forest_.nbytes / 1000:.0f} kB, prediction {proba[0]}")
    31 kB, prediction [0.   0.73 0.27]
    19 kB, prediction [0.   0.73 0.27]
    """
    if unwrapped(estimator).estimator is not estimator:
        return rewrapped(estimator, slim)
    smaller = copy.copy(estimator)
    for name in (*OF_TRAINING_ROWS, *OF_WARM_START, "_stream"):
        vars(smaller).pop(name, None)
    if is_blend(estimator):
        smaller.members_ = {
            name: slim(member) if is_forest(member) else member
            for name, member in estimator.members_.items()
        }
    else:
        smaller.forest_ = _forest_of_estimator(estimator).slim()
    return smaller


def skops_types():
    """Names of the types that a skops file of a fitted estimator of skforest may contain.

    Pass them to `skops.io.load` as trusted types; it refuses to create types that it does not
    know. After `partial_fit`, or with ``warm_start=True``, dump :func:`slim` of the estimator,
    because skops cannot restore what is needed to continue.

    Returns
    -------
    names : list of str

    Examples
    --------
    >>> import skforest
    >>> for name in skforest.skops_types()[:3]:
    ...     print(name)
    numpy.dtype
    skforest.blend.blend.BlendedForestClassifier
    skforest.blend.blend.BlendedForestRegressor

    ``skops.io.load("model.skops", trusted=skforest.skops_types())`` loads an estimator.
    """
    public = [getattr(skforest, name) for name in skforest.__all__]
    types = [thing for thing in (*public, Levels, TableReader) if isinstance(thing, type)]
    return sorted({*ENCODERS, *(f"{one.__module__}.{one.__name__}" for one in types)})


def show_versions():
    """Print the versions of skforest and of its dependencies, for bug reports.

    Examples
    --------
    >>> import skforest
    >>> skforest.show_versions()  # doctest: +ELLIPSIS
    <BLANKLINE>
    skforest: ...
    """
    from .._kernels.base.direction import simd_level

    print()
    print("skforest:", package_versions()["skforest"])
    print("vector loops:", ("baseline", "AVX2", "AVX-512")[simd_level()])
    show_scikit_learn_versions()
