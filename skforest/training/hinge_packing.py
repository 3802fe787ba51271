"""Conversion between trained bags of hinge trees and packed forests."""

import numpy as np

from ..forest import Forest
from ..table.matrix import DENSE_BLOCK, dense

BLOCK = 4096  # rows routed at once
# Inner products that read at least this share of the features are dense: sparse ones take longer
# for each feature. `python -m benchmarks.measure.hinge wide` shows the time.
DENSE_SHARE = 0.25


class HingePacker:
    """Converts the bag of a HingeTrainer to arrays of a `Forest`."""

    def __init__(self, trainer, settings, source, n_outputs):
        self.trainer, self.settings, self.source = trainer, settings, source
        self.n_outputs = n_outputs
        self.unit, self.weights = self._linear()

    def arrays(self, table, weight, unit):
        """Return the arrays of complete trees, without arrays that all bags share.

        `table` has the rows of the trainer; `unit`, of shape (n_outputs,), is the unit of the
        response.
        """
        arrays, settings = self.trainer.arrays, self.settings
        n_trees, depth = settings.n_trees, settings.depth
        n_inner = 2**depth - 1
        threshold, feature = self._tests()
        influence = self.trainer.test_influence(table, weight)
        if settings.fern:
            # A fern has one split on each level, whose nodes share its gain.
            level = np.repeat(np.arange(depth), 2 ** np.arange(depth))
            threshold, feature = threshold[:, level], feature[:, level]
            influence = influence[:, level] / 2.0**level
        leaf = arrays["leaf"]
        used = int(arrays["counts"][2])
        n_outputs = self.n_outputs
        value = np.zeros((1 + used, n_outputs))
        value[1:] = arrays["value"][:used, 0, :n_outputs]
        if settings.head == "linear":
            # Early stopping may have restored a model in which no leaf has these rows.
            tree_of = np.zeros(used, dtype=np.int64)
            tree_of[leaf[leaf >= 0]] = np.nonzero(leaf >= 0)[0]
            value[1:] *= arrays["head"][tree_of, :n_outputs]
        value *= unit
        child = np.empty((n_trees, 2 * n_inner + 1), dtype=np.int64)
        child[:, :n_inner] = 2 * np.arange(n_inner) + 1
        child[:, n_inner:] = -1 - (leaf.astype(np.int64) + 1)
        return {
            "tree_start": np.arange(n_trees + 1) * child.shape[1],
            "child": child.ravel(),
            "threshold": threshold.ravel(),
            "direction": feature.ravel(),
            "gain": influence.ravel(),
            "value": value.ravel(),
            "deviation": self.source.deviation,
        } | self._directions()

    def _tests(self):
        """Return thresholds and codes of directions of the tests, for rows of the forest."""
        arrays = self.trainer.arrays
        tests = arrays["tests"]
        threshold = np.ascontiguousarray(tests[:, :, 0]).view(np.float32).astype(np.float64)
        shift, code = self._shifts()
        return (threshold + shift[tests[:, :, 1]]).astype(np.float32), code[tests[:, :, 1]]

    def _shifts(self):
        """Return the subtracted mean of each feature, and the code of its direction."""
        arrays, source, n = self.trainer.arrays, self.source, self.settings.n_linear
        n_patches, n_features = len(source.receptive_fields), len(source.mean)
        width = len(arrays["mean"])
        first = n_patches * arrays["direction"].shape[1]
        n_columns = n_features * self.settings.identity
        shift, code = np.zeros(width), np.zeros(width, dtype=np.int64)
        shift[first : first + n_columns] = (source.mean / source.unit)[:n_columns]
        code[first : first + n_columns] = n_features + np.arange(n_columns)
        moved = self.unit * arrays["mean"][:first].reshape(n_patches, -1)[:, :n]
        moved += np.einsum("qt,qtf->qf", source.mean[source.receptive_fields], self.weights)
        numbers = n_features + n_columns + np.arange(n_patches * n).reshape(n_patches, n)
        shift[:first].reshape(n_patches, -1)[:, :n] = moved
        code[:first].reshape(n_patches, -1)[:, :n] = numbers
        return shift, code

    def _linear(self):
        """Return reciprocal deviations and weights of learned features.

        The shapes are (n_patches, n) and (n_patches, patch_size, n).
        """
        arrays, source, n = self.trainer.arrays, self.source, self.settings.n_linear
        n_patches = len(source.receptive_fields)
        first = n_patches * arrays["direction"].shape[1]
        variance = arrays["variance"][:first].reshape(n_patches, -1)[:, :n]
        unit = 1 / np.sqrt(variance + 1e-7)
        scale = (source.emphasis / source.unit)[source.receptive_fields]
        weights = arrays["direction"][:, :n].astype(np.float64)
        return unit, weights * scale[:, :, None] * unit[:, None]

    def _directions(self):
        """Return inner products as dense directions if they read many features, or as sparse."""
        fields, n, weights = self.source.receptive_fields, len(self.source.mean), self.weights
        n_patches, patch_size, n_linear = weights.shape
        n_columns, n_products = n * self.settings.identity, n_patches * n_linear
        size = np.repeat([1, patch_size], [n_columns, n_products])
        feature = np.arange(n_columns), np.repeat(fields, n_linear, axis=0).ravel()
        weight = (1 / self.source.unit)[:n_columns], weights.transpose(0, 2, 1).ravel()
        found = {}
        if n_patches == 1 and patch_size >= DENSE_SHARE * n:
            found["dense"] = np.zeros((n_linear, n))
            found["dense"][:, fields[0]] = weights[0].T
            size, feature, weight = size[:n_columns], feature[:1], weight[:1]
        if len(size):
            found["sparse_start"] = np.append(0, np.cumsum(size))
            found["sparse_feature"] = np.concatenate(feature)
            found["sparse_weight"] = np.concatenate(weight)
        return found


def compacted(forest, table, weight, known=None):
    """Remove the subtrees of complete trees that no row reaches.

    All trees of `forest` have the same depth, with nodes in the order of a heap, and value row 0
    is 0. The rows `table` are scaled for the forest; their `weight` becomes `node_weight`. Leaves
    in the mask `known`, of shape (n_trees, n_leaves), are kept in any case.
    """
    weight_of, is_kept = _reached(forest, table, weight, known)
    n_trees, n_nodes = is_kept.shape
    n_inner = n_nodes // 2
    splits = is_kept[:, :n_inner]
    # A node is stored if its parent remains a split; if it is not kept, it is a leaf of value 0.
    is_stored = np.ones_like(is_kept)
    is_stored[:, 1:] = np.repeat(splits, 2, axis=1)
    number = np.cumsum(is_stored, axis=1) - 1
    child = np.full((n_trees, n_nodes), -1, dtype=np.int64)
    child[:, :n_inner] = np.where(splits, number[:, 1::2], -1)
    leaves = forest.child.reshape(n_trees, -1)[:, n_inner:]
    child[:, n_inner:] = np.where(is_kept[:, n_inner:], leaves, -1)
    arrays = dict(forest.arrays)
    arrays["tree_start"] = np.concatenate([[0], np.cumsum(is_stored.sum(axis=1))])
    arrays["child"] = child[is_stored]
    arrays["node_weight"] = weight_of[is_stored]
    for name in ("threshold", "direction", "gain"):
        arrays[name] = arrays[name][splits.ravel()]
    return Forest(arrays, **forest.metadata)


def _reached(forest, table, weight, known):
    """Return the weight of the rows in each node of complete trees, and a mask of nodes to keep.

    Nodes are kept if a row of any weight reaches them, or if they are above leaves in `known`.
    """
    n_trees, n_nodes = len(forest), forest.n_nodes // len(forest)
    reached = np.zeros((n_trees, n_nodes))
    seen = np.zeros((n_trees, n_nodes), dtype=bool)
    if known is not None:
        seen[:, n_nodes // 2 :] = known
    trees = np.arange(n_trees)
    size = min(BLOCK, max(1, DENSE_BLOCK // table.shape[1]))
    for start in range(0, table.shape[0], size):
        leaf = forest.router.apply(dense(table[start : start + size]))
        seen[trees, leaf] = True
        for tree in trees:
            reached[tree] += np.bincount(leaf[:, tree], weight[start : start + size], n_nodes)
    last = n_nodes
    while last > 1:  # levels from the leaves upwards
        first = last // 2
        children = slice(first, last)
        pairs = (n_trees, -1, 2)
        up = slice(first // 2, first)
        reached[:, up] += reached[:, children].reshape(pairs).sum(axis=2)
        seen[:, up] |= seen[:, children].reshape(pairs).any(axis=2)
        last = first
    return reached, seen


class CompleteTrees:
    """Hinge trees of one depth, with tests in the order of a heap: the reverse of `HingePacker`.

    A leaf above the last level repeats the test of its parent. The margins are then the same, and
    one side is empty, so responses do not change.

    `forest` is one bag with the gate "margin". `column` has a number for the feature of each split
    in place of `direction`. `tests` has "threshold" and "column", of shape (n_trees, 2**depth - 1)
    with a depth of at least 1; `own` is a mask of the tests that are not repetitions; `leaves` is
    float32 of shape (n_trees, 2**depth, n_outputs).
    """

    def __init__(self, forest, column):
        n_trees, root = len(forest), forest.tree_start[:-1, None]
        first = (root - np.arange(n_trees)[:, None]) // 2
        self.depth = max(1, int(forest.max_depth.max()))
        # One more split is added, so that split 0 exists even if no tree has a split.
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
        self.leaves[~self.own[:, 0]] = 0  # the response of a tree without a split is 0

    def levels(self):
        """Return the test of each level, (n_trees, depth); None unless trees are ferns."""
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
