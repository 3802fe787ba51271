"""Constraints of the columns of X, as estimators take them: monotonic, and interactions."""

from numbers import Integral

import numpy as np


def read_monotonic(given, names, categories):
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


def read_groups(given, names):
    """The groups of columns that may interact, bool of shape (n_groups, n_columns).

    `given` is a list of sets of numbers or names of columns. Columns in no set form a group.
    """
    numbers = {name: j for j, name in enumerate(names) if isinstance(name, str)}
    groups = []
    is_list = isinstance(given, list | tuple)
    for group in given if is_list else ():
        if isinstance(group, str) or not hasattr(group, "__iter__"):
            is_list = False
            break
        mask = np.zeros(len(names), dtype=bool)
        for column in group:
            j = numbers.get(column, -1) if isinstance(column, str) else column
            if not isinstance(j, Integral) or isinstance(j, bool) or not 0 <= j < len(names):
                raise ValueError(
                    f"interaction_cst={given!r} has {column!r}, which is neither a name of a "
                    f"column of X nor a number from 0 to {len(names) - 1}"
                )
            mask[j] = True
        groups.append(mask)
    if not is_list:
        raise ValueError(
            f'interaction_cst={given!r} must be "pairwise", "no_interactions" or a list of sets '
            "of columns"
        )
    groups = np.array(groups, dtype=bool).reshape(-1, len(names))
    rest = ~groups.any(axis=0)
    return np.vstack([groups, rest]) if rest.any() else groups
