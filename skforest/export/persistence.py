"""Fitted estimators in files and as dicts, and the versions in use.

A saved estimator is a saved `Forest` (docs/format) whose header has further entries: the name of
the class, its parameters, and the fitted attributes that are not arrays of the forest. A saved
blend has one such forest for each member; the header of the file has the same entries for the
blend. Nothing is pickled, so you can load files from untrusted sources.
"""

import copy

import numpy as np
from sklearn import show_versions as show_scikit_learn_versions
from sklearn.base import is_classifier

import skforest

from .._docs import with_texts
from ..estimators.prediction import Part, is_forest
from ..estimators.unwrap import rewrapped, unwrapped, unwrapped_alone
from ..forest import Forest, load_with_header, package_versions
from ..forest.io import as_value_error, write_forests
from ..forest.storage import Levels
from ..inspect.contents import forest_of, refuse_networks, value_rows
from ..table.feature_map import KINDS, VALUE
from ..table.matrix import LIMIT
from ..training.parameters import ParameterObject

# Fitted attributes that are stored as arrays of the file, or made from them.
WITH_FOREST = ("forest_", "members_", "classes_", "_stream")
OF_WARM_START = ("_trained_rounds",)  # they are not stored
OF_TRAINING_ROWS = ("oob_decision_function_", "oob_prediction_")
SCHEMA_VERSION = 1  # of `to_dict`; docs/json.md describes it
MAX_STRING_BYTES = 2**22  # of all arrays of strings in parameters and attributes


def _to_json(value, name):
    """A parameter or attribute as a value that JSON can represent."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "biufU":
            raise TypeError(f"{name} is an array of {value.dtype}, which cannot be saved")
        return {"array": value.tolist(), "dtype": str(value.dtype)}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {"items": [[_to_json(k, name), _to_json(v, name)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_to_json(item, name) for item in value]}
    if isinstance(value, list):
        return [_to_json(item, name) for item in value]
    if isinstance(value, set | frozenset):
        return {"set": [_to_json(item, name) for item in sorted(value, key=str)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if is_forest(value) or (isinstance(value, ParameterObject) and _is_public(value)):
        return {"estimator": type(value).__name__, "params": _params_to_json(value)}
    raise TypeError(
        f"{name} is a {type(value).__name__}, which cannot be saved; a number, a string, None, or "
        "lists, tuples, sets, dicts and arrays of these can. pickle and joblib can save any "
        "estimator, but their files must be trusted"
    )


def _params_to_json(estimator):
    params = estimator.get_params(deep=False)
    if isinstance(params.get("random_state"), np.random.RandomState | np.random.Generator):
        params["random_state"] = None
    return {name: _to_json(value, name) for name, value in params.items()}


def _header_of(estimator):
    """Entries of the header of an estimator: its class, parameters and fitted attributes."""
    apart = {*estimator.get_params(deep=False), *WITH_FOREST, *OF_WARM_START, "_skl_callbacks"}
    state = {k: value for k, value in estimator.__getstate__().items() if k not in apart}
    return {
        "estimator": type(estimator).__name__,
        "params": _params_to_json(estimator),
        "state": {
            # Names of columns are an object array, and are stored with the forest.
            name: None if name == "feature_names_in_" else _to_json(value, name)
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


def _from_json(value):
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict):
        if "array" in value:
            return np.array(value["array"], dtype=_dtype_from_json(value["dtype"]))
        if "estimator" in value:
            return _new_estimator(value)
        if "items" in value:
            return {_from_json(key): _from_json(item) for key, item in value["items"]}
        if "set" in value:
            return {_from_json(item) for item in value["set"]}
        return tuple(_from_json(item) for item in value["tuple"])
    return value


def save(estimator, path, *, layout="file"):
    """Write a fitted estimator to disk, without pickle.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted. Of a search, or of a pipeline without transformers, only the fitted estimator
        inside is saved. A `random_state` that is a generator is saved as None; this affects
        another fit, but not predictions. `partial_fit` cannot continue the training of a loaded
        estimator. Labels of dtype object, such as strings of a data frame, are loaded as an array
        of fixed-length str.
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
        If JSON cannot represent a parameter, if labels have mixed types, if a member of a blend is
        not from this package, or if transformers of a pipeline change the rows.
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
    >>> forest = skforest.ManifoldForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "iris.npz"
    ...     skforest.save(forest, path)
    ...     again = skforest.load(path)
    >>> bool((again.predict_proba(X) == forest.predict_proba(X)).all())
    True
    """
    estimator = unwrapped_alone(estimator, "a file", "; or save the pipeline with skops or joblib")
    if hasattr(estimator, "members_"):  # pipelines among them are not saved
        members = [_member(Part(model, name=name)) for name, model in estimator.members_.items()]
        extra = _header_of(estimator)
    else:
        members, extra = [(_forest_of_estimator(estimator), _header_of(estimator))], {}
    _check_strings([extra, *(entries for _, entries in members)])
    write_forests(path, members, layout, extra)


def _forest_of_estimator(estimator):
    if isinstance(estimator, Forest):
        raise TypeError("estimator is a Forest, which has the methods save and slim")
    return forest_of(estimator)


def _member(part):
    """Forest of a member of a blend, and the entries of its header."""
    estimator = part.checked(
        ", which cannot be saved without pickle; joblib.dump can save this blend, but its files "
        "must be trusted"
    )
    return estimator.forest_, {"name": part.name, **_header_of(estimator)}


@with_texts()
def load(path, *, mmap_mode=None):
    """Read an estimator that `save` wrote.

    {reads}

    Returns
    -------
    estimator : estimator of skforest
        Fitted; it predicts exactly what the saved estimator predicts.

    Raises
    ------
    FileNotFoundError
        If `path` does not exist.
    ValueError
        If there is no saved estimator at `path`, if it has another format, or if it is damaged.

    See Also
    --------
    save : Write a fitted estimator.
    """
    forests, header = load_with_header(path, mmap_mode)
    is_blend = "estimator" in header
    first = header if is_blend else header["members"][0]
    if "estimator" not in first:
        raise ValueError(f"{path} contains a Forest, not an estimator; Forest.load reads it")
    _class_of(first["estimator"], path)
    with as_value_error(f"{path} is damaged"):
        _check_strings(header)
        if is_blend:
            return _restored_blend(header, forests)
        if len(forests) > 1:
            raise ValueError(f"it has {len(forests)} forests, but is no blend")
        return _restored(first, forests[0])


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


def _new_estimator(header):
    """An unfitted estimator, or a parameter object."""
    params = {key: _from_json(value) for key, value in header["params"].items()}
    return _class_of(header["estimator"], "the file", ParameterObject)(**params)


def _restored(header, forest):
    """A fitted estimator of one forest."""
    estimator = _new_estimator(header)
    if not is_forest(estimator):
        raise ValueError(f"a {type(estimator).__name__} is no estimator of one forest")
    _set_state(estimator, header["state"], forest)
    estimator.forest_ = forest
    _check_state(estimator, forest.task)
    if estimator.n_features_in_ != forest.n_inputs:
        raise ValueError(f"n_features_in_ is {estimator.n_features_in_}, not {forest.n_inputs}")
    levels = vars(estimator).get("_quantiles")
    if levels is not None and list(map(type, levels)) != [float] * forest.n_outputs:
        raise ValueError(f"the fitted attribute _quantiles is {levels!r:.50}")
    return estimator


def _restored_blend(header, forests):
    """A fitted blend."""
    blend = _new_estimator(header)
    if is_forest(blend):
        raise ValueError(f"a {type(blend).__name__} has one forest, not {len(forests)}")
    _set_state(blend, header["state"], forests[0])
    blend.members_ = {
        str(own["name"]): _restored(own, forest) for own, forest in zip(header["members"], forests)
    }
    first = forests[0]
    _check_state(blend, first.task)
    for name, member in blend.members_.items():
        own = member.forest_
        if (own.task, own.n_outputs) != (first.task, first.n_outputs):
            raise ValueError("members have different targets")
        if own.n_classes != first.n_classes or not np.array_equal(own.classes, first.classes):
            raise ValueError("members have different classes")
        if member.n_features_in_ != blend.n_features_in_:
            raise ValueError("members have different numbers of features")
        if type(blend.weights_[name]) is not float:
            raise ValueError(f"a weight is {blend.weights_[name]!r}")
    if type(blend.temperature_) is not float or not blend.temperature_ > 0:
        raise ValueError(f"temperature_ is {blend.temperature_!r}")
    return blend


def _set_state(estimator, state, forest):
    """Set fitted attributes; names of columns and classes are those of the forest."""
    for key, value in state.items():
        if hasattr(type(estimator), key):
            raise ValueError(f"{key!r} is not a fitted attribute")
        value = _from_json(value)
        if key == "feature_names_in_":
            value = np.array(forest.feature_names or (), dtype=object)
        setattr(estimator, key, value)
    if forest.classes is not None:
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
    if is_classifier(estimator) != (task != "regression"):
        raise ValueError(f"{type(estimator).__name__} has a forest for {task}")
    needed = {"n_features_in_": int, "n_outputs_": int}
    needed |= {"_is_1d": bool} if task == "regression" else {}
    for name, kind in needed.items():
        if type(state.get(name)) is not kind:
            raise ValueError(f"the fitted attribute {name} is {state.get(name)!r}")
    names = state.get("feature_names_in_")
    if names is not None and len(names) != estimator.n_features_in_:
        raise ValueError(f"{len(names)} names for {estimator.n_features_in_} features")


def slim(estimator):
    """A smaller copy of a fitted estimator, with only what predictions need.

    The copy has no training weights of nodes, no gains of splits and no out-of-bag predictions.
    Importances, plots and further training need these, and raise an AttributeError. A forest of
    patches or single features takes about a third less memory, and a forest of hyperplanes less
    than a tenth less.

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
    >>> forest = skforest.ManifoldForestClassifier(n_estimators=10, random_state=0).fit(X, y)
    >>> smaller = skforest.slim(forest)
    >>> smaller.forest_.nbytes < 0.7 * forest.forest_.nbytes
    True
    >>> bool((smaller.predict_proba(X) == forest.predict_proba(X)).all())
    True
    """
    if unwrapped(estimator).estimator is not estimator:
        return rewrapped(estimator, slim)
    smaller = copy.copy(estimator)
    for name in OF_TRAINING_ROWS + OF_WARM_START:
        vars(smaller).pop(name, None)
    if hasattr(estimator, "members_"):
        smaller.members_ = {
            name: slim(member) if is_forest(member) else member
            for name, member in estimator.members_.items()
        }
    else:
        smaller.forest_ = _forest_of_estimator(estimator).slim()
    return smaller


def skops_types():
    """Names of the types of skforest that a skops file of a fitted estimator may contain.

    Pass them to `skops.io.load` as trusted types; it refuses to create types that it does not
    know.

    Returns
    -------
    names : list of str

    Examples
    --------
    >>> import skforest
    >>> "skforest.forest.Forest" in skforest.skops_types()
    True

    ``skops.io.load("model.skops", trusted=skforest.skops_types())`` loads an estimator.
    """
    public = [getattr(skforest, name) for name in skforest.__all__]
    types = [thing for thing in (*public, Levels) if isinstance(thing, type)]
    return sorted({f"{one.__module__}.{one.__name__}" for one in types})


# -------------------------------------------------------------------------------------- dicts


def to_dict(estimator):
    """A fitted estimator as a dict of lists, strings and numbers, which JSON can represent.

    Parameters
    ----------
    estimator : estimator of skforest or Forest
        Fitted estimator, which may be a blend of estimators of skforest.

    Returns
    -------
    model : dict
        Everything that is needed to predict. :doc:`/json` describes the entries and contains a
        reader in plain Python. Numbers are not rounded.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If `estimator`, or a member of a blend, is neither an estimator of skforest nor a Forest,
        splits are networks, or labels are neither numbers nor strings.

    See Also
    --------
    save : Smaller files, which `load` makes an estimator of.
    export_text : One tree, to read.

    Examples
    --------
    >>> import json
    >>> from sklearn.datasets import load_iris
    >>> from skforest import CO2ForestClassifier, to_dict
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = CO2ForestClassifier(10, max_depth=2, random_state=0).fit(X, y)
    >>> model = to_dict(forest)
    >>> model["task"], model["classes"]
    ('classification', [[0, 1, 2]])
    >>> text = json.dumps(model)
    """
    estimator = unwrapped_alone(estimator, "a dict")
    refuse_networks(estimator)
    if getattr(estimator, "_has_own_link", False):
        raise TypeError(
            f"the link of loss={estimator.loss!r} is code, which a dict cannot contain"
        )
    if hasattr(estimator, "members_"):
        return _blend_to_dict(estimator)
    forest = forest_of(estimator)
    is_forest = forest is estimator
    bags = zip(forest.bag_start[:-1].tolist(), forest.bag_start[1:].tolist())
    values = value_rows(forest)
    used = np.unique(forest.direction)
    return {
        "schema_version": SCHEMA_VERSION,
        "skforest_version": forest.versions.get("skforest"),
        "estimator": None if is_forest else type(estimator).__name__,
        "task": forest.task,
        "classes": _classes(forest),
        "n_outputs": forest.n_outputs,
        "inputs": _inputs(forest),
        "features": _features(forest),
        "directions": _directions(forest, used),
        "gate": forest.gate,
        "steepness": forest.steepness,
        "aggregate": forest.aggregate,
        "link": forest.link,
        "baseline": forest.baseline.tolist(),
        "bags": [[_nodes(forest[tree], values, used) for tree in range(*bag)] for bag in bags],
    }


def _blend_to_dict(blend):
    members = []
    for name, member in blend.members_.items():
        try:
            model = to_dict(member)
        except TypeError as error:
            raise TypeError(f"the member {name!r} of the blend has no dict: {error}") from error
        members.append({"name": name, "weight": blend.weights_[name], "model": model})
    first = members[0]["model"]
    return {
        "schema_version": SCHEMA_VERSION,
        "skforest_version": first["skforest_version"],
        "estimator": type(blend).__name__,
        "task": first["task"],
        "classes": first["classes"],
        "n_outputs": first["n_outputs"],
        "temperature": blend.temperature_,
        "members": members,
    }


def _classes(forest):
    """Labels of every output: a list of lists; None in regression."""
    if forest.classes is None:
        return None
    labels = [label.item() if hasattr(label, "item") else label for label in forest.classes]
    for label in labels:
        if not isinstance(label, str | bool | int | float):
            raise TypeError(f"the label {label!r} is neither a number nor a string")
    n_classes = forest.n_classes or [forest.n_outputs]
    return [labels[end - n : end] for n, end in zip(n_classes, np.cumsum(n_classes))]


def _inputs(forest):
    """The first step for each column of X."""
    names = forest.feature_names or [None] * forest.n_inputs
    limit = LIMIT if len(forest.scale) else float(np.finfo(np.float32).max)
    keys = ("offset", 0.0), ("scale", 1.0), ("low", -limit), ("high", limit)
    keys += ("fill", None), ("tail", 0.0), ("knots", None)
    own = {key: getattr(forest, key).tolist() or [x] * len(names) for key, x in keys}
    return [
        {"name": name, "type": "category", "levels": list(forest.levels[j])}
        if j in forest.levels
        else {"name": name, "type": "number"} | {key: own[key][j] for key in own}
        for j, name in enumerate(names)
    ]


def _features(forest):
    """How each feature is made from an input."""
    feature_map = forest.feature_map
    if not len(feature_map.source):
        return [{"input": j, "kind": "value"} for j in range(forest.n_features)]
    features = []
    for f, (j, kind) in enumerate(zip(feature_map.source.tolist(), feature_map.kind.tolist())):
        feature = {"input": j, "kind": KINDS[kind]}
        if kind != VALUE:
            feature["table"] = feature_map.table_of(f).tolist()
        features.append(feature)
    return features


def _directions(forest, codes):
    """Weights of the directions with some codes."""
    matrix = forest.directions(codes).astype(np.float64)
    return [
        {"features": matrix.indices[a:b].tolist(), "weights": matrix.data[a:b].tolist()}
        for a, b in zip(matrix.indptr[:-1], matrix.indptr[1:])
    ]


def _nodes(tree, values, codes):
    """Nodes of a tree; `values` are the value rows, and `codes` those of the directions."""
    direction = np.searchsorted(codes, tree.direction).tolist()
    threshold, gain = tree.threshold.tolist(), tree.gain.tolist()
    rows = -1 - tree.child[tree.child < 0]
    leaf_values = iter(values[rows].toarray().tolist())
    nodes = []
    for child, weight in zip(tree.child.tolist(), tree.node_weight.tolist()):
        if child > 0:
            k = (child - 1) // 2
            nodes.append({
                "direction": direction[k], "threshold": threshold[k], "left": child,
                "right": child + 1, "weight": weight, "gain": gain[k],
            })  # fmt: skip
            continue
        leaf = {"value": next(leaf_values), "weight": weight}
        if len(tree.slope_start):
            entries = slice(*tree.slope_start[-1 - child : 1 - child])
            leaf["slope_features"] = tree.slope_feature[entries].tolist()
            leaf["slopes"] = tree.slope[entries].tolist()
        nodes.append(leaf)
    return nodes


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
