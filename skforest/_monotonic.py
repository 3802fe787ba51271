"""Monotonic constraints of the columns of X, as estimators take them."""

import numpy as np


def read_constraints(given, names, categories):
    """The constraint of each column, -1, 0 or 1, as int8.

    `given` is the parameter `monotonic_cst`: a number for each column, or a dict of some of the
    `names`. `categories` are the numbers of the columns that cannot have a constraint.
    """
    listed = given
    if isinstance(given, dict):
        unknown = set(given) - {name for name in names if isinstance(name, str)}
        if unknown:
            raise ValueError(f"monotonic_cst={given!r} names no columns of X: {unknown}")
        listed = [given.get(name, 0) for name in names]
    signs = np.asarray(listed, dtype=object)
    if signs.shape != (len(names),) or not np.isin(signs, (-1, 0, 1)).all():
        raise ValueError(
            f"monotonic_cst={given!r} must have -1, 0 or 1 for each of the {len(names)} columns "
            "of X"
        )
    signs = signs.astype(np.int8)
    for j in categories:
        if signs[j]:
            raise ValueError(
                f"monotonic_cst={given!r} constrains column {names[j]!r}, which has categories"
            )
    return signs
