"""Fitted estimators as dicts of lists, strings and numbers; docs/json specifies them."""

import numpy as np

from ..estimators.prediction import is_blend
from ..estimators.unwrap import members_of, unwrapped_alone
from ..inspect.contents import forest_of, refuse_networks, value_rows
from ..table.feature_map import KINDS, VALUE
from ..table.matrix import LIMIT

SCHEMA_VERSION = 1


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
    ValueError
        If a category has an infinite level.

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
            f"the link of loss={estimator._loss_with_link!r} is code, which a dict cannot contain"
        )
    if is_blend(estimator):
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
        "prior_ratio": forest.prior_ratio,
        "bags": [[_nodes(forest[tree], values, used) for tree in range(*bag)] for bag in bags],
    }


def _blend_to_dict(blend):
    members = []
    for name, member in members_of(blend).items():
        if not hasattr(member, "forest_"):
            raise TypeError(
                f"the member {name!r} of the blend, a {type(member).__name__}, has no dict; leave "
                "it out of `members`"
            )
        model = to_dict(member)
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
        "prior_ratio": vars(blend).get("_prior_ratio"),
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
        {"name": name, "type": "category", "levels": _levels(forest, j)}
        if j in forest.levels
        else {"name": name, "type": "number"} | {key: own[key][j] for key in own}
        for j, name in enumerate(names)
    ]


def _levels(forest, j):
    """The levels of a column of X."""
    levels = list(forest.levels[j])
    if any(isinstance(level, float) and np.isinf(level) for level in levels):
        name = (forest.feature_names or range(forest.n_inputs))[j]
        raise ValueError(f"column {name!r} has an infinite level, which JSON cannot represent")
    return levels


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
