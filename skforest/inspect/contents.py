"""Contents of a tree for plots and texts: its splits and leaves, in the units of the data."""

from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from ..estimators.prediction import is_blend
from ..estimators.unwrap import members_of, refusal, unwrapped
from ..forest import Forest
from ..forest.packed import LINKS
from ..forest.statistics import levels, with_prior
from ..table.feature_grid import FeatureGrid
from ..table.feature_map import CODE, IS_MISSING, LEVEL, level_text


class TreeContents:
    """Contents of the nodes of one tree of a forest of `n_trees`, in the units of the data.

    `names` are those of the inputs, the columns of X; `is_first` says whether the tree is the
    first one of a bag, `number` is its own. `has_votes`: are leaf values votes for one class?
    """

    has_votes = False

    def __init__(self, forest, n_trees, names, number=0, is_first=False):
        self.forest = forest
        self.input_names = names
        self.feature_names = _feature_names(forest.feature_map, names)
        self.child = forest.child.astype(np.int64)
        self.weight = forest.node_weight
        self.values = value_rows(forest)
        # Otherwise a leaf value is a part of a sum, which has no meaning after the inverse link.
        is_whole = forest.aggregate == "mean" or n_trees == 1
        is_whole &= not len(forest.slope_start) or forest.link == "identity"
        self.has_predictions = forest.gate != "margin" and is_whole
        self.is_linear = len(forest.slope_start) > 0
        # Boosting may begin with a linear function, which is a tree without splits.
        self.start = None
        if self.is_linear and is_first and len(self.child) == 1 and forest.slope_start[-1] > 0:
            self.start = f"linear start; trees from tree={number + 1}"
        self._offset, self._scale = _units(forest.feature_map)

    # ----------------------------------------------------------------------------------- splits

    def raw_split(self, node):
        """Weights, of shape (n_features,), and the threshold, both in the units of the forest."""
        split = (self.child[node] - 1) // 2
        direction = self.forest.directions(self.forest.direction[split : split + 1])
        row = direction.toarray()[0].astype(np.float64)
        return row, float(self.forest.threshold[split])

    def split(self, node):
        """Weights and their ranks, both of shape (n_features,), and the threshold.

        Of a single feature exactly; weights of several features hold within their usual ranges.
        """
        row, threshold = self.raw_split(node)
        rank = np.abs(row)
        if len(self.forest.deviation):
            rank = rank * self.forest.deviation
        if self._scale is None:
            return row, rank, threshold
        used = np.flatnonzero(row)
        feature_map = self.forest.feature_map
        if len(used) == 1 and feature_map.is_value[used[0]]:
            f = int(used[0])
            j = int(feature_map.source[f]) if len(feature_map.source) else f
            cut = feature_map.value_of(j, threshold / row[f])
            row = row * self._scale
            return row, rank, float(row[f]) * cut
        row = row * self._scale
        return row, rank, threshold + float(row @ self._offset)

    def terms(self, node, most):
        """Names and weights of the first features by rank, the number of others, the threshold.

        `most` is the largest number of features; None: all.
        """
        row, rank, threshold = self.split(node)
        used = np.flatnonzero(row)
        largest = used[np.argsort(-rank[used], kind="stable")][:most]
        named = [(self.feature_names[j], float(row[j])) for j in largest]
        return named, len(used) - len(largest), threshold

    def sides(self, node, most):
        """Name of a column, and its conditions left and right, for a split of levels.

        None for splits that compare numbers. `most` is the largest number of levels of a set;
        "(missing)" means missing values, and "(other)" levels that were unknown in training; if
        both take the same side, it is called "(other)" alone.
        """
        feature_map = self.forest.feature_map
        row, threshold = self.raw_split(node)
        used = np.flatnonzero(row)
        if len(used) != 1 or not len(feature_map.source):
            return None
        f = int(used[0])
        kind, j = feature_map.kind[f], int(feature_map.source[f])
        if kind not in (IS_MISSING, CODE, LEVEL):
            return None
        goes_right = row[f] * feature_map.table_of(f) > threshold
        if goes_right.all() or not goes_right.any():
            return None
        if kind == CODE:
            names = [*map(level_text, feature_map.levels[j]), "(missing)", "(other)"]
            if goes_right[-2] == goes_right[-1]:
                names, goes_right = np.delete(names, -2), np.delete(goes_right, -2)
            sets = [[n for n, is_right in zip(names, goes_right) if is_right == side]
                    for side in (False, True)]  # fmt: skip
            return self.input_names[j], *(f"in {_set_text(names, most)}" for names in sets)
        text = self.feature_names[f][1:-1].removeprefix(self.input_names[j]).strip()
        negated = "is not missing" if text == "is missing" else f"!{text}"
        is_right = goes_right[np.argmax(feature_map.table_of(f))]
        sides = (negated, text) if is_right else (text, negated)
        return self.input_names[j], *sides

    # ------------------------------------------------------------------------------------ nodes

    def subtree(self, node):
        """Numbers of the nodes of the subtree with the given root."""
        return np.concatenate(levels(self.child, node))

    def depth(self, node):
        """Depth of the deepest leaf below a node; 0 for a leaf."""
        return len(levels(self.child, node)) - 1

    def value(self, node):
        """Value of a leaf, or weighted mean of those below a split; shape (n_outputs,).

        Of linear leaves, the constant part, in the units of the forest.
        """
        raw = self._mean(node)
        if not self.has_predictions:
            return raw
        forest, n_classes = self.forest, self.forest.n_classes or [len(raw)]
        linked = LINKS[forest.link]((raw + forest.baseline)[None])
        return with_prior(linked, forest.prior_ratio, n_classes)[0]

    def _mean(self, node):
        """Weighted mean of the stored values of the leaves below a node."""
        nodes = self.subtree(node)
        leaves = nodes[self.child[nodes] < 0]
        weight = self.weight[leaves]
        if not weight.sum() > 0:
            weight = np.ones(len(leaves))
        rows, inverse = np.unique(-1 - self.child[leaves], return_inverse=True)
        share = np.bincount(inverse, weight / weight.sum())
        return share @ self.values[rows]

    def class_weights(self, leaf):
        """Weights of classes in a leaf, before a prior; None if its value does not say them."""
        forest = self.forest
        if not self.has_predictions or forest.link != "identity" or self.has_votes:
            return None
        return self.weight[leaf] * (self._mean(leaf) + forest.baseline)

    def linear_leaf(self, leaf):
        """Features and slopes, (n_slopes, n_outputs), of a linear leaf, and its constant part."""
        forest = self.forest
        value, row = self.value(leaf), -1 - self.child[leaf]
        if not len(forest.slope_start):
            return np.zeros(0, dtype=np.int64), np.zeros((0, forest.n_outputs)), value
        own = slice(*forest.slope_start[row : row + 2])
        features, slope = forest.slope_feature[own], forest.slope[own].astype(np.float64)
        if self._scale is not None:
            slope = slope * self._scale[features, None]
            value = value - self._offset[features] @ slope
        return features, slope, value

    def slopes(self, leaf, output, most):
        """Names and slopes of the first features by rank, the number of others, the constant.

        As `terms`, for an output of a linear leaf.
        """
        features, slopes, value = self.linear_leaf(leaf)
        first = self.forest.slope_start[-1 - self.child[leaf]]
        rank = np.abs(self.forest.slope[first : first + len(features), output])
        if len(self.forest.deviation):
            rank = rank * self.forest.deviation[features]
        used = np.flatnonzero(slopes[:, output])
        largest = used[np.argsort(-rank[used], kind="stable")][:most]
        named = [(self.feature_names[features[i]], float(slopes[i, output])) for i in largest]
        return named, len(used) - len(largest), float(value[output])


def _feature_names(feature_map, names):
    """Names of the features, as they are written in sums."""
    found = feature_map.feature_names(names)
    for f, kind in enumerate(feature_map.kind):
        if kind == CODE:
            found[f] += " (level number)"
        elif kind in (IS_MISSING, LEVEL):
            found[f] = f"({found[f]})"
    return found


def value_rows(forest):
    """Rows of leaf values, a csr_matrix of shape (n_values, n_outputs), float64."""
    if not len(forest.value_start):
        return sparse.csr_matrix(forest.value.astype(np.float64).reshape(-1, forest.n_outputs))
    entries = (forest.value, forest.value_index, forest.value_start)
    shape = (len(forest.value_start) - 1, forest.n_outputs)
    return sparse.csr_matrix(entries, shape=shape, dtype=np.float64)


def importances_of_forest(forest, importance_type="impurity"):
    """Importances of the inputs, their standard deviations, and "trees" or "bags" they vary over.

    Trees that are summed correct each other, so only their bags are comparable. Deviations are NaN
    if there is only one tree or bag.
    """
    per_input = forest.feature_map.per_input
    importance = per_input(forest.feature_importances(importance_type))
    members = "trees" if forest.aggregate == "mean" else "bags"
    ends = np.arange(len(forest) + 1) if members == "trees" else forest.bag_start
    n_members = len(ends) - 1
    if n_members < 2:
        return importance, np.full(len(importance), np.nan), members
    # Running sums: an array of trees times columns could be large.
    deviation, square = np.zeros((2, len(importance)))
    for first, last in zip(ends[:-1].tolist(), ends[1:].tolist()):
        found = forest[first:last].feature_importances(importance_type)
        found = per_input(found) - importance
        deviation += found
        square += found**2
    variance = (square - deviation**2 / n_members) / (n_members - 1)
    return importance, np.sqrt(np.maximum(variance, 0)), members


def _units(feature_map):
    """Offset and scale of every feature, from the units of the data; None, None without scaling.

    The number of a level, which counts from 0, is scaled to [0, 1].
    """
    if not feature_map.is_scaling:
        return None, None
    offset = feature_map.per_feature(feature_map.offset)
    scale = np.array(feature_map.per_feature(feature_map.scale, 1.0), dtype=np.float64)
    for f in np.flatnonzero(feature_map.kind == CODE):
        scale[f] = 1 / max(len(feature_map.levels[feature_map.source[f]]) - 1, 1)
    return offset, scale


def _set_text(names, most):
    """A set of at least one name, of which at most `most` are shown."""
    shown = names if len(names) <= most else [*names[: most - 1], f"{len(names) - most + 1} more"]
    return "{" + ", ".join(shown) + "}"


# --------------------------------------------------------------------------------- parameters


def forest_of(estimator):
    """Forest by which an estimator predicts, also in searches and pipelines; a Forest as it is."""
    if isinstance(estimator, Forest):
        return estimator
    estimator = unwrapped(estimator).estimator
    if not hasattr(estimator, "fit"):
        raise refusal(estimator, needed="a fitted estimator of skforest or a Forest")
    check_is_fitted(estimator)
    forest = getattr(estimator, "forest_", None)
    if is_blend(estimator):
        own = [name for name, one in members_of(estimator).items() if hasattr(one, "forest_")]
        advice = f"pass one of its members_: {', '.join(map(repr, own))}"
        raise TypeError(
            f"a {type(estimator).__name__} has no trees of its own; "
            + (advice if own else "none of its members_ is a forest")
        )
    if not isinstance(forest, Forest):
        raise refusal(estimator)
    return estimator._routing_forest


def refuse_networks(estimator):
    """Raise TypeError if the splits of an estimator are networks."""
    estimator = unwrapped(estimator).estimator
    if hasattr(estimator, "networks_"):
        name = type(estimator).__name__
        raise TypeError(f"the splits of a {name} are networks, not weighted sums of features")


def contents_of(estimator, tree, feature_names=None, shape=None):
    """TreeContents of a tree of a fitted estimator; the parameters are those of `plot_tree`.

    `shape` is that of the names ``x[0, 3]`` of features without names.
    """
    forest = forest_of(estimator)
    check_tree(forest, tree)
    names = input_names(forest, unwrapped(estimator).names(feature_names), shape)
    is_first = int(tree) in forest.bag_start[:-1]
    contents = TreeContents(forest[int(tree)], len(forest), names, int(tree), is_first)
    # A Forest does not know: votes look like pure leaves.
    may_vote = isinstance(estimator, Forest) and bool(np.isin(forest.value, (0, 1)).all())
    contents.has_votes = getattr(unwrapped(estimator).estimator, "_has_votes", may_vote)
    return contents


def check_int(name, value, least, most=None, or_none=False):
    """Raise if a value is not an int in a range."""
    if or_none and value is None:
        return
    is_int = isinstance(value, Integral) and not isinstance(value, bool)
    if not is_int or value < least or (most is not None and value > most):
        valid = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be an int {valid}{', or None' * or_none}")


def column_numbers(parameter, columns, names):
    """Numbers of columns that are given by name or number, a sequence or only one."""
    found, columns = [], [columns] if isinstance(columns, str | Integral) else columns
    for key in columns:
        key = int(key) if isinstance(key, Integral) else key  # else, == would give arrays
        is_number = isinstance(key, int) and -1 < key < len(names)
        if key not in names and not is_number:
            raise ValueError(f"{parameter} has {key!r}, which is not a column")
        found.append(names.index(key) if key in names else key)
    return found


def output_number(estimator, n_outputs, target):
    """Number of the output that `target` names: a label, an int in regression, or (int, label).

    Outputs are the columns of probabilities, those of all outputs side by side, or of predictions.
    """
    known = list(range(n_outputs))
    if is_classifier(estimator) and isinstance(estimator.classes_, list):
        classes = enumerate(estimator.classes_)
        known = [(k, label) for k, labels in classes for label in labels.tolist()]
    elif is_classifier(estimator):
        known = estimator.classes_.tolist()
    if target not in known:
        raise ValueError(f"target={target!r} must be one of {known}")
    return known.index(target)


def check_tree(forest, tree):
    """ValueError unless the forest has a tree with this number."""
    try:
        check_int("tree", tree, 0, len(forest) - 1)
    except ValueError as error:
        n_bags = len(forest.bag_start) - 1
        bags = f" in {n_bags} bags" if n_bags > 1 and forest.aggregate == "sum" else ""
        trees = f"{len(forest)} tree{'s' * (len(forest) > 1)}"
        raise ValueError(f"{error}: the forest has {trees}{bags}") from None


def check_names(parameter, names, n_names):
    """Names as a list of str, or None; raise if their number is wrong."""
    if names is None:
        return None
    if isinstance(names, str) or len(names) != n_names:
        got = repr(names) if isinstance(names, str) else f"length {len(names)}"
        raise ValueError(f"{parameter} must be a sequence of {n_names} names, got {got}")
    return [str(name) for name in names]


def numbered(letter, shape):
    """Names of the entries of an array, ``x[3]`` or ``x[0, 3]``."""
    return [f"{letter}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]


def input_names(forest, given, shape=None):
    """Names of the columns of X: those given, those of training, or ``x[0]``, ``x[1]``, ..."""
    names = check_names("feature_names", given, forest.n_inputs) or forest.feature_names
    if names:
        return list(names)
    own = forest.feature_shape if forest.n_inputs == forest.n_features else (forest.n_inputs,)
    return numbered("x", shape or own)


def output_names(forest, given):
    """Names of the outputs: those given, the classes, or ``y[0]``, ``y[1]``, ..."""
    names = check_names("class_names", given, forest.n_outputs)
    if names:
        return names
    if forest.n_classes is not None:
        outputs = np.repeat(np.arange(len(forest.n_classes)), forest.n_classes)
        return [f"y[{k}] = {label}" for k, label in zip(outputs, forest.classes)]
    if forest.task == "classification":
        return [str(label) for label in forest.classes]
    return numbered("y", (forest.n_outputs,))


def grid_shape(forest, given):
    """Shape of the array that the features fill, or None if they are shown by name."""
    if given is None:
        has_patches = len(forest.box_corner) > 0
        return forest.feature_shape if len(forest.feature_shape) > 1 or has_patches else None
    return FeatureGrid(given, forest.n_features).shape
