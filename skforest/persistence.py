"""Fitted estimators in files, and the versions in use.

A saved estimator is a saved `Forest` (docs/format) with further entries in its header: the name of
the class, its parameters, and the fitted attributes that are not arrays of the forest. A saved
blend is several forests with such entries each, and those of the blend. Nothing is pickled, so
that files from sources that are not trusted can be loaded.
"""

import numpy as np
from sklearn import show_versions as show_scikit_learn_versions
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from ._base import BaseForest
from ._docs import with_texts
from .forest import load_with_header, package_versions
from .forest.io import as_value_error, write_forest, write_forests

# Fitted attributes that are arrays of the file, or made of these.
WITH_FOREST = ("forest_", "members_", "classes_", "_stream")
MAX_LABEL_BYTES = 256  # per item of an array of strings, unless its strings are longer


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
    if isinstance(value, BaseForest):
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
    apart = {*estimator.get_params(deep=False), *WITH_FOREST}
    state = {name: value for name, value in vars(estimator).items() if name not in apart}
    return {
        "estimator": type(estimator).__name__,
        "params": _params_to_json(estimator),
        "state": {
            # Names of columns are an object array, and are stored with the forest.
            name: None if name == "feature_names_in_" else _to_json(value, name)
            for name, value in state.items()
        },
    }


def _array_from_json(items, dtype):
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufU":
        raise ValueError(f"an array has dtype {dtype}")
    if dtype.kind == "U":
        # A dtype may declare strings of any length, which numpy would allocate.
        longest = np.array(items, dtype="U").dtype.itemsize
        if dtype.itemsize > max(longest, MAX_LABEL_BYTES):
            raise ValueError(f"an array of strings has dtype {dtype}")
    return np.array(items, dtype=dtype)


def _from_json(value):
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict):
        if "array" in value:
            return _array_from_json(value["array"], value["dtype"])
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
        Fitted. A `random_state` that is a generator is saved as None: predictions do not need it,
        only another fit does. `partial_fit` cannot resume the training of a loaded estimator.
    path : str or Path
        An existing file is replaced once the new one is complete.
    layout : {"file", "folder"}, default="file"
        "file": one compressed .npz file, the smallest. "folder": one .npy file per array, which
        `load` can map into memory.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If JSON cannot represent a parameter, labels are of mixed types, or a member of a blend is
        not an estimator of skforest.

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
    if hasattr(estimator, "members_"):
        _save_blend(estimator, path, layout)
        return
    check_is_fitted(estimator, "forest_")
    forest = estimator.forest_
    write_forest(path, forest.metadata, forest.arrays, layout, _header_of(estimator))


def _save_blend(blend, path, layout):
    members = []
    for name, member in blend.members_.items():
        if not isinstance(member, BaseForest):
            raise TypeError(
                f"the member {name!r} is a {type(member).__name__}, which cannot be saved without "
                "pickle; joblib.dump can save this blend, but its files must be trusted"
            )
        own = {"name": name, **_header_of(member)}
        members.append((member.forest_.metadata, member.forest_.arrays, own))
    write_forests(path, members, layout, _header_of(blend))


@with_texts()
def load(path, *, mmap_mode=None):
    """Read an estimator that `save` wrote.

    {reads}

    Returns
    -------
    estimator : estimator of skforest
        Fitted; its predictions are those of the saved estimator, to the bit.

    Raises
    ------
    ValueError
        If there is no saved estimator at `path`, it has another format, or it is damaged.
    """
    forest, header = load_with_header(path, mmap_mode)
    name = header.get("estimator")
    if name is None and not isinstance(forest, list):
        raise ValueError(f"{path} contains a Forest, not an estimator; Forest.load reads it")
    _class_of(name, path)
    with as_value_error(f"{path} is damaged"):
        if not isinstance(forest, list):
            return _restored(header, forest)
        return _restored_blend(header, forest)


def _class_of(name, path):
    import skforest

    found = getattr(skforest, name) if name in skforest.__all__ else None
    if not (hasattr(found, "get_params") and hasattr(found, "predict")):
        raise ValueError(f"{path} contains a {name!r}, which is not an estimator of skforest")
    return found


def _new_estimator(header):
    """An unfitted estimator."""
    params = {key: _from_json(value) for key, value in header["params"].items()}
    return _class_of(header["estimator"], "the file")(**params)


def _restored(header, forest):
    """A fitted estimator of one forest."""
    estimator = _new_estimator(header)
    if not isinstance(estimator, BaseForest):
        raise ValueError(f"a {type(estimator).__name__} needs several forests")
    _set_state(estimator, header["state"], forest)
    estimator.forest_ = forest
    _check_state(estimator, forest.task)
    return estimator


def _restored_blend(header, forests):
    """A fitted blend."""
    blend = _new_estimator(header)
    if isinstance(blend, BaseForest):
        raise ValueError(f"a {type(blend).__name__} has one forest, not {len(forests)}")
    _set_state(blend, header["state"], forests[0])
    blend.members_ = {
        str(own["name"]): _restored(own, forest) for own, forest in zip(header["members"], forests)
    }
    task, n_columns = forests[0].task, forests[0].n_outputs
    _check_state(blend, task)
    for name, member in blend.members_.items():
        if (member.forest_.task, member.forest_.n_outputs) != (task, n_columns):
            raise ValueError("members have different targets")
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
        if key == "feature_names_in_":
            value = np.array(forest.feature_names or (), dtype=object)
        else:
            value = _from_json(value)
        setattr(estimator, key, value)
    if forest.classes is not None:
        estimator.classes_ = forest.classes
        if forest.n_classes is not None:
            estimator.classes_ = np.split(forest.classes, np.cumsum(forest.n_classes)[:-1])


def _check_state(estimator, task):
    """Raise ValueError if a fitted attribute that predictions need is missing or of a wrong type.

    Otherwise `predict` would fail, long after the file was read.
    """
    state = vars(estimator)
    if is_classifier(estimator) != (task != "regression"):
        raise ValueError(f"{type(estimator).__name__} has a forest for {task}")
    needed = {"n_features_in_": int, "n_outputs_": int}
    if task == "regression":
        needed["_is_1d"] = bool
    for name, kind in needed.items():
        if type(state.get(name)) is not kind:
            raise ValueError(f"the fitted attribute {name} is {state.get(name)!r}")
    names = state.get("feature_names_in_")
    if names is not None and len(names) != estimator.n_features_in_:
        raise ValueError(f"{len(names)} names for {estimator.n_features_in_} features")


def show_versions():
    """Print the versions of skforest and of its dependencies, for bug reports.

    Examples
    --------
    >>> import skforest
    >>> skforest.show_versions()  # doctest: +ELLIPSIS
    <BLANKLINE>
    skforest: ...
    """
    from ._kernels.direction import simd_level

    print()
    print("skforest:", package_versions()["skforest"])
    print("vector loops:", ("baseline", "AVX2", "AVX-512")[simd_level()])
    show_scikit_learn_versions()
