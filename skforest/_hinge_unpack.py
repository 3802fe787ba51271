"""Floor 5: the trees of a packed hinge forest with all that was cut off, as they are trained."""

from __future__ import annotations

import numpy as np


class CompleteTrees:
    """Hinge trees of one depth, with their tests as heaps: the reverse of `_hinge_pack`.

    A leaf above the last level repeats the test above it, whose margins are the same and of which
    one side is empty; so no answer changes.

    Parameters
    ----------
    forest : Forest
        One bag, with the gate "margin".
    column : ndarray of shape (n_splits,)
        Feature that each of its splits looks at, in other numbers than those of `direction`.

    Attributes
    ----------
    depth : int
        At least 1.
    tests : dict of str to ndarray of shape (n_trees, 2**depth - 1)
        "threshold" and "column".
    own : ndarray of shape (n_trees, 2**depth - 1), bool
        Tests that repeat no other.
    leaves : ndarray of shape (n_trees, 2**depth, n_outputs), float32
    """

    def __init__(self, forest, column):
        n_trees, root = len(forest), forest.tree_start[:-1, None]
        first = (root - np.arange(n_trees)[:, None]) // 2
        self.depth = max(1, int(forest.max_depth.max()))
        # There is a split 0 to look at even where no tree has one.
        given = {
            "threshold": np.append(forest.threshold, np.float32(0)),
            "column": np.append(column.astype(np.int64), 0),
        }
        above = {name: np.zeros((n_trees, 1), values.dtype) for name, values in given.items()}
        tests, own = {name: [] for name in given}, []
        node = np.zeros((n_trees, 1), dtype=np.int64)
        for _ in range(self.depth):
            child = forest.child[root + node].astype(np.int64)
            splits = child > 0
            pair = np.where(splits, first + (child - 1) // 2, 0)
            for name, values in given.items():
                here = np.where(splits, values[pair], above[name])
                tests[name].append(here)
                above[name] = np.repeat(here, 2, axis=1)
            own.append(splits)
            left = np.where(splits, child, node)
            node = np.stack([left, left + splits], axis=2).reshape(n_trees, -1)
        self.tests = {name: np.concatenate(levels, axis=1) for name, levels in tests.items()}
        self.own = np.concatenate(own, axis=1)
        values = forest.value.reshape(-1, forest.n_outputs)
        self.leaves = values[-1 - forest.child[root + node]]
        self.leaves[~self.own[:, 0]] = 0  # a tree without a split answers 0

    def levels(self):
        """The one test that each level has, if the trees are ferns.

        Returns
        -------
        tests : dict of str to ndarray of shape (n_trees, depth), or None
        """
        found = {name: [] for name in self.tests}
        for level in range(self.depth):
            at = slice(2**level - 1, 2 ** (level + 1) - 1)
            own = self.own[:, at]
            for name, values in self.tests.items():
                chosen = np.take_along_axis(values[:, at], own.argmax(axis=1)[:, None], axis=1)
                if (own & (values[:, at] != chosen)).any():
                    return None
                found[name].append(chosen)
        return {name: np.concatenate(levels, axis=1) for name, levels in found.items()}
