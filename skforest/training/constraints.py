"""Monotonic constraints and interaction constraints of the columns of X."""

from numbers import Integral

import numpy as np

from ..table.frames import by_name


def read_monotonic(given, names, categories):
    """Return the constraint of each column, -1, 0 or 1, as int8.

    `given` is the parameter `monotonic_cst`: a number for each column, or a dict from some of the
    `names` to numbers, or a Series of pandas whose labels are names. `categories` are the columns
    that cannot have a constraint.
    """
    given = listed = by_name(given)
    if isinstance(given, dict):
        unknown = set(given) - {name for name in names if isinstance(name, str)}
        if unknown:
            raise ValueError(
                f"monotonic_cst={given!r} names columns that X does not have: {unknown}"
            )
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
    """Return the groups of columns that may interact, bool of shape (n_groups, n_columns).

    `given` is the parameter `interaction_cst`. A list has sets of numbers or names of columns;
    columns in no set form another group. For "pairwise" and "no_interactions", return the largest
    number of columns of a group. For None, return None: all columns may interact.
    """
    if given is None or isinstance(given, str):
        return {"no_interactions": 1, "pairwise": 2}.get(given)
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


class Interactions:
    """Which columns of X may be used together by the splits above a leaf.

    Parameters
    ----------
    groups : ndarray of shape (n_groups, n_columns), bool; or int
        Columns that may interact; an int is the largest number of columns of any group.
    column : ndarray of shape (n_features,), int
        The column of X that each feature is made of.
    """

    def __init__(self, groups, column):
        self.size = groups if isinstance(groups, int) else None
        self.groups, self.column = groups, column
        self.n_columns = int(column.max()) + 1 if self.size else groups.shape[1]

    def max_terms(self, n):
        """Return the largest number of features in a direction; `n` without constraints."""
        return n if self.size is None else min(n, self.size)

    def chances(self, chance):
        """Return the probabilities of the features within each group, one group after another.

        They are 0 in groups with fewer than two features.
        """
        if self.size is not None:
            return chance
        member = self.groups[:, self.column]
        return (chance * member * (member.sum(axis=1) > 1)[:, None]).ravel()

    def start(self, grower):
        """Start a tree, whose root is below no split."""
        candidate, feature = np.nonzero(grower.column_features())
        self.used = np.zeros((1, self.n_columns), dtype=np.float32)  # per node
        self.n_open = 1
        self.taken = np.zeros((grower.n_searched_columns(), self.n_columns), dtype=np.float32)
        self.taken[candidate, self.column[feature]] = 1

    def descend(self, parent, split):
        """Replace the open nodes by the children that `split` made of the nodes `parent`."""
        self.n_open = len(parent)
        children = np.maximum(self.used[parent], self.taken[split])
        self.used = np.concatenate([self.used, children])

    def allowed(self):
        """Return a mask of the allowed splits of open nodes: uint8, (n_nodes, n_splits)."""
        # Products count columns, so they are exact in float32.
        used, taken = self.used[len(self.used) - self.n_open :], self.taken
        if self.size is not None:
            n_columns = used.sum(axis=1)[:, None] + taken.sum(axis=1) - used @ taken.T
            return (n_columns <= self.size).astype(np.uint8)
        outside = (~self.groups.T).astype(np.float32)
        is_open, holds = (1.0 * (a @ outside == 0) for a in (used, taken))
        return (is_open @ holds.T > 0).astype(np.uint8)
