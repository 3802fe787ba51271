"""Predictions from a dict of `skforest.to_dict`, in plain Python: the reader of docs/json.md."""

import math
import struct


def float32(x):
    """The number, rounded to single precision."""
    return struct.unpack("f", struct.pack("f", x))[0]


def is_missing(x):
    return x is None or x == "" or x != x


def input_value(column, x):
    """Number of a column, or position in the tables of its features; None for a missing number."""
    if column["type"] == "number":
        if is_missing(x):
            return None
        z = (float(x) - column["offset"]) * column["scale"]
        return float32(limited(column, z))
    levels = column["levels"]
    if is_missing(x):
        return len(levels)
    if not isinstance(x, str):
        x = str(x) if isinstance(x, int) and abs(x) > 2**53 else float(x)
    return levels.index(x) if x in levels else len(levels) + 1


def limited(column, z):
    """A scaled number, moved towards the limits of its column if it is beyond them."""
    for side, sign, end in ((0, 1, column["high"]), (1, -1, column["low"])):
        if sign * z <= sign * end:
            continue
        knots = [sign * knot for knot in column["knots"][side]] if column["knots"] else []
        if not knots or knots[-1] <= sign * end:
            return end
        first = sign * end
        for k, last in enumerate(knots):
            if sign * z < last:
                share = (sign * z - first) / (last - first)
                return end + sign * column["tail"] / len(knots) * (k + share)
            first = last
        return end + sign * column["tail"]
    return z


def features(model, row):
    """What directions read: one number for each feature."""
    values = [input_value(column, x) for column, x in zip(model["inputs"], row)]
    found = []
    for feature in model["features"]:
        value, column = values[feature["input"]], model["inputs"][feature["input"]]
        if feature["kind"] == "value":
            value = column["fill"] if value is None else value
        elif column["type"] == "number":
            value = feature["table"][int(value is None)]
        else:
            value = feature["table"][value]
        found.append(value)
    return found


def leaves(model, tree, z):
    """Leaves of a tree with their weights, which depend on the gate."""
    waiting = [(tree[0], 1.0, math.inf)]
    while waiting:
        node, reach, margin = waiting.pop()
        if "value" in node:
            if model["gate"] == "margin":
                reach = margin if margin < math.inf else 0.0
            yield node, reach
            continue
        direction = model["directions"][node["direction"]]
        products = (z[j] * w for j, w in zip(direction["features"], direction["weights"]))
        difference = sum(products) - node["threshold"]
        left, right = tree[node["left"]], tree[node["right"]]
        margin = min(margin, abs(difference))
        if model["gate"] == "sigmoid":
            share = sigmoid(model["steepness"] * difference)
            waiting += [(right, reach * share, margin), (left, reach * (1 - share), margin)]
        else:
            waiting.append((right if difference > 0 else left, reach, margin))


def sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def link(name, raw):
    """From the combined value of a bag to the scale of predictions."""
    if name == "softmax":
        powers = [math.exp(x - max(raw)) for x in raw]
        return [x / sum(powers) for x in powers]
    functions = {
        "identity": lambda x: x,
        "sigmoid": sigmoid,
        "log": math.exp,
    }
    return [functions[name](x) for x in raw]


def with_prior(model, response):
    """Probabilities times their ratios, divided by their sum for each output."""
    if model.get("prior_ratio") is None:
        return response
    found = [max(p, 0) * ratio for p, ratio in zip(response, model["prior_ratio"])]
    parts = []
    for labels in model["classes"]:
        part, found = found[: len(labels)], found[len(labels) :]
        parts += [p / sum(part) if sum(part) else 1 / len(part) for p in part]
    return parts


def response(model, row):
    """Class probabilities, those of all outputs one after the other, or values of the target.

    The row has one entry for each column: a number, a string, or None, NaN or "" if missing.
    """
    if "members" in model:
        total = [0.0] * model["n_outputs"]
        for member in model["members"]:
            for k, value in enumerate(response(member["model"], row)):
                total[k] += member["weight"] * value
        if model["temperature"] != 1:
            total = [max(x, 1e-12) ** (1 / model["temperature"]) for x in total]
            total = [x / sum(total) for x in total]
        return with_prior(model, total)
    z = features(model, row)
    bags = []
    for bag in model["bags"]:
        raw = [0.0] * model["n_outputs"]
        for tree in bag:
            for leaf, weight in leaves(model, tree, z):
                for k, value in enumerate(leaf["value"]):
                    raw[k] += weight * value
                for j, slopes in zip(leaf.get("slope_features", []), leaf.get("slopes", [])):
                    for k, slope in enumerate(slopes):
                        raw[k] += weight * slope * z[j]
        n_trees = len(bag) if model["aggregate"] == "mean" else 1
        raw = [x / n_trees + base for x, base in zip(raw, model["baseline"])]
        bags.append(link(model["link"], raw))
    return with_prior(model, [sum(values) / len(bags) for values in zip(*bags)])
