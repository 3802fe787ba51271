"""Rows as dicts, such as JSON objects."""

from collections.abc import Mapping
from importlib.util import find_spec

import narwhals.stable.v2 as nw
import numpy as np


def is_records(X):
    """Return whether X is a list of dicts."""
    is_list = isinstance(X, list | tuple) or (type(X) is np.ndarray and X.ndim == 1)
    return is_list and len(X) > 0 and all(isinstance(row, Mapping) for row in X)


def frame_of_records(X, names):
    """Rows as a data frame of the first library that is installed; X itself without any."""
    for i, row in enumerate(X):
        missing = [name for name in names if name not in row]
        unknown = [name for name in row if name not in names]
        if missing or unknown:
            what = f"has no {missing}" if missing else f"has the unknown keys {unknown}"
            raise ValueError(f"row {i} of X {what}; the keys must be the columns seen in fit")
    backend = next(filter(find_spec, ("pandas", "polars", "pyarrow")), None)
    columns = {name: [row[name] for row in X] for name in names}
    for name, values in columns.items():
        types = {type(value) for value in values}
        if types - {type(None)} == {int, float}:  # 3 and 3.5 in JSON
            columns[name] = [value if value is None else float(value) for value in values]
        elif types == {int, type(None)} and backend == "pandas":  # which would round long integers
            columns[name] = np.array(values, dtype=object)
    return X if backend is None else nw.from_dict(columns, backend=backend).to_native()


def refuse_records(X):
    """Raise TypeError if X is a dict, a list of dicts, or text such as JSON."""
    is_list = isinstance(X, list | tuple) or (type(X) is np.ndarray and X.ndim == 1)
    first = X[0] if is_list and len(X) else X
    if isinstance(first, str | bytes):
        if first is not X:
            return
        one_row = "pandas.DataFrame([json.loads(X)]) for one row as a JSON object"
        what, how = "text", f"{one_row}, pandas.read_csv for a file"
    elif not isinstance(first, Mapping) or hasattr(first, "shape"):  # dok_matrix is a dict
        return
    elif first is not X:
        what, how = "a list of dicts", "pandas.DataFrame(X)"
    elif any(np.ndim(value) for value in X.values()):
        what, how = "a dict", "pandas.DataFrame(X)"
    else:
        what, how = "a dict", "pandas.DataFrame([X])"
    raise TypeError(f"X is {what}; a data frame or an array is needed: pass {how}")
