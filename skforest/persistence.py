"""Fitted estimators as files, and the versions in use.

A saved estimator is a saved `Forest` (docs/format) with a few entries more in its header: class,
parameters, and the fitted attributes that are not arrays of the forest. No pickle, so a file can
be looked at, and read without trust.
"""

from __future__ import annotations

import numpy as np
from sklearn import show_versions as show_scikit_learn_versions
from sklearn.utils.validation import check_is_fitted

from .forest import Forest
from .forest.io import read_header, write_forest
from .forest.packed import package_versions


def _to_json(value, name):
    """A parameter or attribute as something that JSON can hold."""
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
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"{name} is a {type(value).__name__}, which cannot be saved; a number, a string, None, or "
        "lists, tuples, dicts and arrays of these can. pickle and joblib save estimators whole, "
        "for whoever trusts the file"
    )


def _from_json(value):
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    if isinstance(value, dict):
        if "array" in value:
            return np.array(value["array"], dtype=value["dtype"])
        if "items" in value:
            return {_from_json(key): _from_json(item) for key, item in value["items"]}
        return tuple(_from_json(item) for item in value["tuple"])
    return value


def save(estimator, path, *, layout="file"):
    """Write a fitted estimator to disk, without pickle.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted. A `random_state` that is a generator is saved as None: the trees are there, only
        training them anew would need it. `partial_fit` does not go on with what is loaded.
    path : str or Path
        Written over if it exists.
    layout : {"file", "folder"}, default="file"
        "file": one compressed .npz file, the smallest. "folder": one .npy file an array, which
        `load` can map into memory.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If a parameter is of a kind that JSON cannot hold, or labels are of mixed types.

    See Also
    --------
    load : Read it back.

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
    check_is_fitted(estimator, "forest_")
    params = estimator.get_params(deep=False)
    if isinstance(params.get("random_state"), np.random.RandomState | np.random.Generator):
        params["random_state"] = None
    state = {
        name: value
        for name, value in vars(estimator).items()
        if name not in params and name not in ("forest_", "classes_", "_stream")
    }
    extra = {
        "estimator": type(estimator).__name__,
        "params": {name: _to_json(value, name) for name, value in params.items()},
        "state": {
            # Column names are an object array, and with the forest already.
            name: None if name == "feature_names_in_" else _to_json(value, name)
            for name, value in state.items()
        },
    }
    forest = estimator.forest_
    write_forest(path, forest._meta, forest.arrays, layout, extra)


def load(path, *, mmap_mode=None):
    """Read an estimator that `save` wrote.

    Parameters
    ----------
    path : str or Path
        A file or a folder.
    mmap_mode : {None, "r"}, default=None
        "r": map the arrays of a folder into memory instead of reading them.

    Returns
    -------
    estimator : estimator of skforest
        Fitted; predicts the same bits as the saved one.

    Raises
    ------
    ValueError
        If it is no saved estimator, was written in another format, or its arrays do not fit
        together.
    """
    import skforest

    header = read_header(path)
    name = header.get("estimator")
    if name is None:
        raise ValueError(f"{path} holds a Forest, not an estimator; Forest.load reads it")
    if name not in skforest.__all__ or not hasattr(getattr(skforest, name), "get_params"):
        raise ValueError(f"{path} holds a {name!r}, which is not an estimator of skforest")
    forest = Forest.load(path, mmap_mode=mmap_mode)
    try:
        params = {key: _from_json(value) for key, value in header["params"].items()}
        estimator = getattr(skforest, name)(**params)
        for key, value in header["state"].items():
            if key == "feature_names_in_":
                estimator.feature_names_in_ = np.array(forest.feature_names, dtype=object)
            else:
                if hasattr(type(estimator), key):
                    raise KeyError(key)
                setattr(estimator, key, _from_json(value))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error!r}") from error
    if forest.classes is not None:
        estimator.classes_ = forest.classes
    estimator.forest_ = forest
    return estimator


def show_versions():
    """Print the versions of skforest and of what it stands on, for bug reports.

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
