"""NumPy twins of the kernels: naive, slow, and independent of them.

A forest is read only through its documented arrays. Sums are float64, so tests that compare bits
use whole numbers.
"""

import itertools
import math

import numpy as np
from scipy.sparse.csgraph import shortest_path
from scipy.special import expit, log_softmax, softmax

# ----------------------------------------------------------------------------------- directions


def box_entries(corner, size, shape, wrap, unordered, bits=()):
    """Flat features of a box.

    Parameters
    ----------
    corner : int
        Flat index of the first entry.
    size : sequence of int, one per axis
    shape, wrap, unordered : tuple, one entry per axis
    bits : sequence of int
        Bytes of the subsets along the unordered axes, lowest bit first.

    Returns
    -------
    features : list of int
    """
    first = np.unravel_index(corner, shape)
    bits = iter(bits)
    along = []
    for axis, length in enumerate(shape):
        if unordered[axis]:
            chosen = [next(bits) for _ in range((length + 7) // 8)]
            along.append([i for i in range(length) if chosen[i // 8] & (1 << i % 8)])
            continue
        at = [first[axis] + i for i in range(size[axis])]
        assert wrap[axis] or max(at) < length, "the box leaves the array"
        along.append([i % length for i in at])
    index = np.ix_(*(np.array(one, dtype=int) for one in along))
    return np.ravel_multi_index(index, shape).ravel().tolist()


def box_weights(corner, other, size, shape, wrap, unordered, bits=()):
    """Dense weights of a box, minus those of an equal box at `other` (-1: none)."""
    weights = np.zeros(int(np.prod(shape)))
    weights[box_entries(corner, size, shape, wrap, unordered, bits)] += 1
    if other >= 0:
        weights[box_entries(other, size, shape, wrap, unordered, bits)] -= 1
    return weights


def sparse_weights(features, weights, n_features):
    """Dense weights of a sparse direction."""
    dense = np.zeros(n_features)
    for feature, weight in zip(features, weights):
        dense[feature] += weight
    return dense


def direction_weights(forest, code):
    """Dense weights of the direction of a code of a forest."""
    if code < forest.n_features:
        return sparse_weights([code], [1], forest.n_features)
    code -= forest.n_features
    if code < len(forest.box_corner):
        return box_weights(
            forest.box_corner[code],
            forest.box_other[code],
            forest.box_size[code],
            forest.feature_shape,
            forest.wrap,
            forest.unordered,
            forest.box_subset[code].tolist(),
        )
    code -= len(forest.box_corner)
    if code < len(forest.sparse_start) - 1:
        row = slice(forest.sparse_start[code], forest.sparse_start[code + 1])
        return sparse_weights(
            forest.sparse_feature[row], forest.sparse_weight[row], forest.n_features
        )
    return forest.dense[code - (len(forest.sparse_start) - 1)].astype(float)


def project(weights, X):
    """Values ``a . x`` of all rows."""
    return np.asarray(X, dtype=float) @ weights


# ---------------------------------------------------------------------------------------- routing


def walk(forest, tree, X):
    """How every row meets every node of one tree.

    Returns
    -------
    reach : ndarray of shape (n_samples, n_nodes)
        1 or 0, or with the sigmoid gate the product of the gates on the way.
    margin : ndarray of shape (n_samples, n_nodes)
        Smallest distance to a threshold on the way, inf at the root.
    """
    first, last = forest.tree_start[tree : tree + 2]
    first_split = (first - tree) // 2
    reach = np.ones((len(X), last - first))
    margin = np.full(reach.shape, np.inf)
    for node, child in enumerate(forest.child[first:last]):
        if child < 0:
            continue
        split = first_split + (child - 1) // 2
        weights = direction_weights(forest, forest.direction[split])
        z = project(weights, X) - forest.threshold[split]
        right = (z > 0).astype(float)
        if forest.gate == "sigmoid":
            right = 1 / (1 + np.exp(-forest.steepness * z))
        for side, gate in ((child, 1 - right), (child + 1, right)):
            reach[:, side] = reach[:, node] * gate
            margin[:, side] = np.minimum(margin[:, node], abs(z))
    return reach, margin


def leaf_values(forest):
    """Value rows of a forest as a matrix."""
    if not len(forest.value_start):
        return forest.value.reshape(-1, forest.n_outputs).astype(float)
    values = np.zeros((len(forest.value_start) - 1, forest.n_outputs))
    for row, (a, b) in enumerate(zip(forest.value_start[:-1], forest.value_start[1:])):
        for entry in range(a, b):
            values[row, forest.value_index[entry]] += forest.value[entry]
    return values


def apply(forest, X):
    """Leaf of every row in every tree; gates do not matter."""
    leaves = np.empty((len(X), len(forest)), dtype=int)
    for tree in range(len(forest)):
        child = forest.child[forest.tree_start[tree] : forest.tree_start[tree + 1]]
        first_split = (forest.tree_start[tree] - tree) // 2
        for i, x in enumerate(X):
            node = 0
            while child[node] >= 0:
                split = first_split + (child[node] - 1) // 2
                weights = direction_weights(forest, forest.direction[split])
                node = child[node] + (project(weights, x) > forest.threshold[split])
            leaves[i, tree] = node
    return leaves


def response(forest, X):
    """Average over bags of link(baseline + sum or mean over trees of weight times value)."""
    values = leaf_values(forest)
    bags = []
    for first, last in zip(forest.bag_start[:-1], forest.bag_start[1:]):
        raw = np.zeros((len(X), forest.n_outputs))
        for tree in range(first, last):
            child = forest.child[forest.tree_start[tree] : forest.tree_start[tree + 1]]
            leaf = child < 0
            reach, margin = walk(forest, tree, X)
            weight = reach[:, leaf]
            if forest.gate == "margin":
                weight = np.where(weight > 0, margin[:, leaf], 0)
            raw += weight @ values[-1 - child[leaf]]
        if forest.aggregate == "mean":
            raw /= last - first
        raw += forest.baseline
        link = {"identity": np.array, "softmax": lambda z: softmax(z, axis=1), "log": np.exp}
        bags.append(link[forest.link](raw))
    return np.mean(bags, axis=0)


# -------------------------------------------------------------------------------- split search


def one_hot(labels, n_classes):
    """Labels 0 .. n_classes - 1 as a matrix."""
    return np.eye(n_classes)[np.asarray(labels)]


def impurity(Y, weight, criterion):
    """Weight times impurity of a set of rows.

    Parameters
    ----------
    Y : ndarray of shape (n_rows, n_outputs)
        One-hot in classification.
    weight : ndarray of shape (n_rows,)
    criterion : {"gini", "entropy", "squared_error"}
        Entropy in bits; squared error summed over outputs.
    """
    sums = weight @ Y
    total = weight.sum()
    if total == 0:
        return 0.0
    # Sums of positive terms: nothing cancels, however unequal the weights.
    if criterion == "gini":
        return sum(a * b for a, b in itertools.permutations(sums, 2)) / total
    if criterion == "entropy":
        rest = [sum(sums[:k]) + sum(sums[k + 1 :]) for k in range(len(sums))]
        return sum(a * np.log1p(b / a) for a, b in zip(sums, rest) if a > 0) / np.log(2)
    return float(weight @ ((Y - sums / total) ** 2).sum(axis=1))


def split_gain(Y, weight, left, criterion):
    """Decrease of weight times impurity when the rows `left` are parted from the others."""
    return (
        impurity(Y, weight, criterion)
        - impurity(Y[left], weight[left], criterion)
        - impurity(Y[~left], weight[~left], criterion)
    )


def best_gain(column, Y, weight, criterion, min_leaf=1):
    """Largest gain over all cuts between different values of a column; -inf if there is none."""
    best = -np.inf
    for value in np.unique(column)[:-1]:
        left = column <= value
        if min(left.sum(), (~left).sum()) >= min_leaf:
            best = max(best, split_gain(Y, weight, left, criterion))
    return best


def equal_width_bins(column, n_bins):
    """Bin of every value of a float32 column that is not constant."""
    column = np.asarray(column, dtype=np.float32)
    low = column.min()
    scale = np.float32(n_bins) / (column.max() - low)
    return np.minimum((column - low) * scale, np.float32(n_bins - 1)).astype(int)


def best_histogram_gain(column, Y, weight, criterion, n_bins, min_leaf=1):
    """Largest gain over the cuts between equal-width bins."""
    return best_gain(equal_width_bins(column, n_bins), Y, weight, criterion, min_leaf)


# --------------------------------------------------------------------------------- distributions


def axis_law(length, low, high, placement="corner", wrap=False, n_boxes=1):
    """Law of (corner, size) along one axis of `n_boxes` boxes of one size in a row.

    Parameters
    ----------
    length, low, high : int
        Of the axis; range of the size.
    placement : {"corner", "inside"}
        Corner first and size cut at the border, or size first and then a corner that fits.
    wrap : bool

    Returns
    -------
    law : dict of (int, int) to float
    """
    law = {}
    high = min(high, length // n_boxes)

    def add(corners, sizes_of):
        for corner in corners:
            sizes = sizes_of(corner)
            for size in sizes:
                law[corner, size] = 1 / len(corners) / len(sizes)

    if wrap:
        add(range(length), lambda corner: range(low, high + 1))
    elif placement == "corner":
        add(
            range(length - n_boxes * low + 1),
            lambda corner: range(low, min(high, (length - corner) // n_boxes) + 1),
        )
    else:
        sizes = range(low, high + 1)
        for size in sizes:
            corners = range(length - n_boxes * size + 1)
            for corner in corners:
                law[corner, size] = 1 / len(sizes) / len(corners)
    return law


def axis_coverage(length, law, n_boxes=1):
    """Probability that each position of an axis is covered by the boxes of a law."""
    coverage = np.zeros(length)
    for (corner, size), chance in law.items():
        coverage[(corner + np.arange(n_boxes * size)) % length] += chance
    return coverage


def ball_law(adjacency, low, high, contrast, reach=8):
    """Law of the weights, a tuple with one for each feature, of the balls of a graph.

    Parameters
    ----------
    adjacency : ndarray of shape (n_features, n_features)
    low, high : int
        Range of the number of steps.
    contrast : {"sum", "edge", "difference"}
    reach : int
        Largest distance of the two centres of a difference.

    Returns
    -------
    law : dict of tuple to float
    """
    n, law = len(adjacency), {}
    distance = shortest_path(adjacency, unweighted=True)
    for centre, steps in itertools.product(range(n), range(low, high + 1)):
        farthest = distance[centre][np.isfinite(distance[centre])].max()
        apart = {"sum": [0], "edge": [2 * steps + 1]}.get(contrast)
        apart = apart or [min(d, farthest) for d in range(1, reach + 1)]
        for d in apart:
            chance = 1 / n / (high - low + 1) / len(apart)
            others = np.flatnonzero(distance[centre] == d)
            for other in others if len(others) else [centre]:
                near = distance[[centre, other]] <= steps
                share = near * (near.sum(axis=1).min() / near.sum(axis=1, keepdims=True))
                weights = share[0] - share[1]
                key = tuple(np.round(weights if weights.any() else share[0], 5))
                law[key] = law.get(key, 0) + chance / max(1, len(others))
    return law


def zero_truncated_poisson(mean, most):
    """Chances of 1 .. most for a Poisson number that is not 0, all beyond counted as most."""
    n = np.arange(1, most + 1)
    chance = np.exp(n * np.log(mean) - mean - np.cumsum(np.log(n))) / -np.expm1(-mean)
    chance[-1] += 1 - chance.sum()
    return chance


# --------------------------------------------------------------------------------------- row sets


def distinct_rows(X, Y, weight):
    """The weighted set of rows: {(x, y): sum of the weights}, zero weights left out.

    Whole sums are divided by their largest common divisor.
    """
    rows = {}
    for x, y, w in zip(X, Y, weight):
        if w > 0:
            key = (tuple((x + 0.0).tolist()), tuple((y + 0.0).tolist()))
            rows[key] = rows.get(key, 0.0) + w
    if all(float(w).is_integer() for w in rows.values()):
        unit = math.gcd(*(int(w) for w in rows.values()))
        rows = {key: w / unit for key, w in rows.items()}
    return rows


# ----------------------------------------------------------------------------------- CO2 forests


def co2_bound(m, l0, l1):
    """Bound on the loss of the leaf reached with margin m (CO2 forest, equation 5)."""
    return np.maximum(l0 - m, l1 + m) - np.abs(m)


def soft_loss(m, l0, l1):
    """Expected loss when a row goes right with probability sigmoid(2 m)."""
    return l0 + (l1 - l0) / (1 + np.exp(-2 * m))


def co2_slope(m, d, objective):
    """Derivative by the margin, where d = l1 - l0."""
    if objective == "soft":
        right = 1 / (1 + np.exp(-2 * m))
        return 2 * right * (1 - right) * d
    return np.where(2 * m + d > 0, 1, -1) - np.where(m > 0, 1, -1)


def leaf_gradient(leaf, m, y, objective):
    """Gradient of the mean objective by unnormalised log shares of both leaves, (2, n_classes)."""
    l0, l1 = -log_softmax(leaf, axis=1)[:, y]
    share = (2 * m + l1 - l0 > 0).astype(float)
    if objective == "soft":
        share = 1 / (1 + np.exp(-2 * m))
    onehot = np.eye(leaf.shape[1])[y]
    slopes = [softmax(theta) - onehot for theta in leaf]
    return np.array([(1 - share) @ slopes[0], share @ slopes[1]]) / len(y)


def co2_stump(
    Z, y, feature, cut, objective, *, n_epochs, rate=0.03, momentum=0.9, nu=100.0,
    smoothing=0.1, row_norm=8.0, leaves="counts", keep="best", schedule="plateau",
):  # fmt: skip
    """One split by gradient descent with all rows in each step, from the cut of a feature.

    Returns
    -------
    direction, threshold : ndarray of shape (n_features,), float
    """
    n, p = Z.shape
    onehot = np.eye(y.max() + 1)[y]
    mean, scale = np.zeros(p), 1.0
    if row_norm is not None:
        mean = Z.mean(axis=0)
        scale = row_norm / np.sqrt(((Z - mean) ** 2).sum(axis=1).mean())
    R = scale * (Z - mean)

    def start_at(length):
        return length * np.eye(p)[feature], length * scale * (cut - mean[feature])

    w, bias = start_at(1)
    v, v_bias = np.zeros(p), 0.0
    best, last, stalled, l0, l1, factor = None, np.inf, 0, 0.0, 0.0, 1.0
    first = None
    leaf, v_leaf = np.zeros((2, onehot.shape[1])), 0.0
    slope, before = np.ones(n), None
    for epoch in range(n_epochs + 1):
        m = R @ w - bias
        right = m > 0
        if epoch and leaves == "gradient":
            l0, l1 = -log_softmax(leaf, axis=1)[:, y]
        if epoch:
            loss = (co2_bound if objective == "co2" else soft_loss)(m, l0, l1).mean()
        if 0 < right.sum() < n:
            gain = -sum(
                side.sum() * -sum(q * np.log(q) for q in onehot[side].mean(axis=0) if q > 0)
                for side in (right, ~right)
            )
            if best is None or gain >= best[0] - 1e-9 or keep == "last":
                best = gain, w.copy(), bias
                first = gain if first is None else first
        if leaves == "counts" and not slope.any() and (right == before).all():
            if objective != "co2" or best[0] > first + 1e-9 or factor < 0.01:
                break
            if not (m * (l1 - l0) > 0).any():
                break
            factor, last = factor / 2, np.inf
            w, bias, v, v_bias = *start_at(factor), np.zeros(p), 0.0
            m = R @ w - bias
            right = m > 0
        before = right
        if epoch:
            stalled = 0 if loss < 0.999 * last else stalled + 1
            last = min(last, loss) if stalled == 0 else last
            if stalled == 3 and schedule == "plateau":
                rate, stalled = rate / 2, 0
        if epoch == 0 or leaves == "counts":
            leaf = np.array([
                np.log((onehot[side].sum(axis=0) + smoothing) / (side.sum() + 3 * smoothing))
                for side in (~right, right)
            ])  # fmt: skip
        l0, l1 = -log_softmax(leaf, axis=1)[:, y]
        if epoch == 0 and objective == "co2":
            better = m * (l1 - l0) < 0
            reach = (np.abs(l1 - l0)[better] / np.abs(2 * m)[better]).max(initial=0)
            while factor >= reach and factor > 0.01:
                factor /= 2
            w, bias = start_at(factor)
            m = R @ w - bias
        slope = co2_slope(m, l1 - l0, objective)
        v = momentum * v + slope @ R / n
        v_bias = momentum * v_bias - slope.sum() / n
        w, bias = w - rate * v, bias - rate * v_bias
        if leaves == "gradient":
            v_leaf = momentum * v_leaf + leaf_gradient(leaf, m, y, objective)
            leaf = leaf - rate * v_leaf
        square = w @ w + bias**2
        if square > nu:
            w, bias = w * np.sqrt(nu / square), bias * np.sqrt(nu / square)
    _, w, bias = best
    return w, w @ mean + bias / scale


def split_score(target, weight, right):
    """What a split maximises: minus the entropy of both sides in nats, or sums of squares."""
    score = 0.0
    for side in (right, ~right):
        w = weight[side]
        if not len(w):
            continue
        if np.ndim(target) == 1:
            mass = np.array([w[target[side] == k].sum() for k in np.unique(target)])
            mass = mass[mass > 0]
            score += (mass * np.log(mass)).sum() - w.sum() * np.log(w.sum())
        else:
            score += ((w[:, None] * target[side]).sum(axis=0) ** 2).sum() / w.sum()
    return score


def best_cut(column, target, weight=None):
    """Best score among the cuts of a column between different values; -inf if there is none."""
    weight = np.ones(len(column)) if weight is None else weight
    cuts = np.unique(column)[:-1]
    return max((split_score(target, weight, column > cut) for cut in cuts), default=-np.inf)


def best_move(X, target, weight, w, bias, direction):
    """Best score of planes m + a (d . x - low) > 0 over all amounts a, one between two critical.

    Critical values closer than float32 tells apart count as one.
    """
    margin = np.float64(X) @ w - bias
    along = np.float64(np.float32(np.float64(X) @ np.float64(direction)))
    along -= along.min()
    moves = along > 1e-6
    critical = np.unique(np.float32(-margin[moves] / along[moves])).astype(float)
    ends = [critical[:1] - 1, critical[-1:] + 1] if len(critical) else [np.zeros(1)]
    best = -np.inf
    for amount in np.concatenate([(critical[1:] + critical[:-1]) / 2, *ends]):
        right = margin + amount * along > 0
        if 0 < right.sum() < len(right):
            best = max(best, split_score(target, weight, right))
    return best


# ------------------------------------------------------------------------ alternating refinement


def row_losses(forest, leaf, target, answer):
    """Loss of every row at its leaf: 0 or 1 for labels, else the squared error."""
    if target.ndim == 1:
        return (answer[leaf] != target).astype(float)
    return ((target - answer[leaf]) ** 2).sum(axis=1)


def leaf_below(forest, node, X):
    """Leaf that every row reaches from a node of the first tree."""
    leaf = np.full(len(X), node)
    for i, x in enumerate(X):
        while forest.child[leaf[i]] > 0:
            left = forest.child[leaf[i]]
            split = (left - 1) // 2
            weights = direction_weights(forest, forest.direction[split])
            leaf[i] = left + (project(weights, x) > forest.threshold[split])
    return leaf


def care_points(forest, node, X, target, weight, answer):
    """Rows of a node that fare better on one side, and weighted loss on the right minus left."""
    reach, _ = walk(forest, 0, X)
    rows = np.flatnonzero((reach[:, node] > 0) & (weight > 0))
    left = forest.child[node]
    below = [leaf_below(forest, left + side, X[rows]) for side in (0, 1)]
    lost = [row_losses(forest, leaf, target[rows], answer) for leaf in below]
    rise = weight[rows] * (lost[1] - lost[0])
    return rows[rise != 0], rise[rise != 0]


def logistic_plane(R, side, weight, w, bias, *, n_epochs, rate, momentum, nu, most=None):
    """Weighted logistic regression with all rows in each step, on centred and scaled rows.

    Returns the plane on the way from the start to one of the iterates, in sixteenths, that has
    the least weight of rows on its wrong side, the last of these. With at most `most` weights,
    the number of weights falls to it in half of the epochs, and only iterates with so few count.
    """
    n, p = R.shape
    spread, kept = np.sqrt(weight @ R**2 / n), np.ones(p, dtype=bool)
    most = p if most is None else most

    def loss(m):
        return (weight * np.log1p(np.exp(-side * m))).sum()

    def wrong(m):
        return weight[(m > 0) != (side > 0)].sum()

    norm = np.sqrt((w @ w + bias**2) / min(nu, 1))
    w, bias = w / norm, bias / norm
    first, best = (w, bias), None
    least, last, stalled = wrong(R @ w - bias), np.inf, 0
    v, v_bias, start_rate = np.zeros(p), 0.0, rate
    for done in range(n_epochs):
        if done and kept.sum() > most:
            n_kept = max(most, int(p * (most / p) ** min(1, 2 * done / n_epochs)))
            kept = np.isin(np.arange(p), np.argsort(-np.abs(w) * spread)[:n_kept])
            w, v = w * kept, v * kept
        slope = -side * weight / (1 + np.exp(side * (R @ w - bias)))
        v = momentum * v + slope @ R / weight.sum()
        v_bias = momentum * v_bias - slope.sum() / weight.sum()
        w, bias = w - rate * v, bias - rate * v_bias
        square = w @ w + bias**2
        if square > nu:
            w, bias = w * np.sqrt(nu / square), bias * np.sqrt(nu / square)
        w, v = w * kept, v * kept
        for t in np.arange(1 if most == p else 16, 17) / 16 if kept.sum() <= most else ():
            part = first[0] + t * (w - first[0]), first[1] + t * (bias - first[1])
            if wrong(R @ part[0] - part[1]) <= least:
                least, best = wrong(R @ part[0] - part[1]), part
        now = loss(R @ w - bias) / n
        stalled = 0 if now < 0.999 * last else stalled + 1
        last = min(last, now) if stalled == 0 else last
        if stalled == 3:
            rate, stalled = rate / 2, 0
            if rate < start_rate / 50:
                if kept.sum() <= most:
                    break
                rate, last = start_rate, np.inf
    return best


# ------------------------------------------------------------------------------- non-greedy trees


def joint_path(child, leaf_node):
    """Splits on the way to a leaf, with the turn taken there: a list of (split, 1 or -1)."""
    path, node = [], leaf_node
    while node > 0:
        first = node - 1 + node % 2  # left one of the pair that the node is in
        path.append(((first - 1) // 2, 1 if node > first else -1))
        node = int(np.flatnonzero(child == first)[0])
    return path


def joint_planes(X, weight, W, threshold, nu, radius=8.0):
    """Splits over centred rows, on the ball of nu: (Z, W, b) with margins ``Z @ W.T - b``."""
    weight = weight / weight.sum()
    mean = weight @ X
    scale = radius / np.sqrt(weight @ np.square(X - mean).sum(axis=1))
    b = scale * (threshold - W @ mean)
    factor = np.sqrt(nu / (np.square(W).sum(axis=1) + b**2))
    return scale * (X - mean), W * factor[:, None], b * factor


def joint_algorithm(child, x, y, W, theta, rate, nu, n_steps):
    """Algorithm 1 of Norouzi et al. 2015b on one row x, which ends with the constant -1.

    Every row of W, with the bias as its last entry, has a squared norm of at most nu.
    """
    paths = [dict(joint_path(child, node)) for node in np.flatnonzero(child < 0)]
    for _ in range(n_steps):
        h = np.where(W @ x > 0, 1, -1)
        signs = [np.array([path.get(i, h[i]) for i in range(len(W))]) for path in paths]
        losses = -log_softmax(theta, axis=1)[:, y]
        leaf = np.argmax([g @ W @ x + loss for g, loss in zip(signs, losses)])
        g = signs[leaf]
        W = W - rate * np.outer(g, x) + rate * np.outer(h, x)
        W *= np.minimum(1, np.sqrt(nu) / np.linalg.norm(W, axis=1))[:, None]
        gradient = softmax(theta[leaf]) - np.eye(theta.shape[1])[y]
        theta = theta.copy()
        theta[leaf] -= rate * gradient
    return W, theta


def joint_inference(child, margins, losses, n_flips):
    """Bound of one row by trying all leaves (Norouzi et al. 2015b, equations 12 and 13).

    Returns the bound, and for every leaf what it scores, -inf beyond n_flips turns.
    """
    leaves = np.flatnonzero(child < 0)
    scores = np.full(len(leaves), -np.inf)
    for leaf, node in enumerate(leaves):
        against = [
            split for split, turn in joint_path(child, node) if (margins[split] > 0) != (turn > 0)
        ]
        if len(against) <= n_flips:
            scores[leaf] = losses[leaf] - 2 * np.abs(margins[against]).sum()
    return scores.max(), scores


def joint_step(child, Z, y, weight, W, b, theta, rate, nu, momentum, n_flips, assigned=None):
    """One step of all rows in one batch, log loss (algorithm 1); new W, b and theta."""
    leaves = np.flatnonzero(child < 0)
    paths = [joint_path(child, node) for node in leaves]
    margins = Z @ W.T - b
    log_p = theta - np.log(np.exp(theta).sum(axis=1, keepdims=True))
    gW, gb, gt = np.zeros_like(W), np.zeros_like(b), np.zeros_like(theta)
    for i, row in enumerate(Z):
        scores = joint_inference(child, margins[i], -log_p[:, y[i]], n_flips)[1]
        best = scores.argmax()
        sides = [(best, 1)] + ([(assigned[i], -1)] if assigned is not None else [])
        for leaf, factor in sides:
            for split, turn in paths[leaf]:
                sign = 1 if margins[i, split] > 0 else -1
                gW[split] += factor * weight[i] * (turn - sign) * row
                gb[split] -= factor * weight[i] * (turn - sign)
        gt[best] += weight[i] * (np.exp(log_p[best]) - (np.arange(theta.shape[1]) == y[i]))
    total = weight.sum()
    W, b = W - rate * gW / total, b - rate * gb / total
    shrink = np.minimum(1, np.sqrt(nu / (np.square(W).sum(axis=1) + b**2)))
    touched = np.abs(gW).sum(axis=1) > 0
    shrink[~touched] = 1
    return W * shrink[:, None], b * shrink, theta - rate / (1 - momentum) * gt / total


# ------------------------------------------------------------------------------- hinge forests


def hinge_features(arrays, table):
    """Standardised features of rows, with the columns of the pool as the trainer numbers them."""
    direction, patches = arrays["direction"].astype(float), arrays["receptive_fields"]
    first = len(patches) * direction.shape[1]
    raw = np.zeros((len(table), len(arrays["mean"])))
    raw[:, :first] = np.hstack([table[:, patch] @ direction for patch in patches])
    raw[:, first : first + table.shape[1]] = table[:, : raw.shape[1] - first]
    deviation = np.sqrt(arrays["variance"] + 1e-7 * (np.arange(len(arrays["mean"])) < first))
    return (raw - arrays["mean"]) / deviation


def hinge_tests(arrays):
    """Thresholds, perhaps moved, and features of the tests of all trees."""
    tests = np.ascontiguousarray(arrays["tests"])
    threshold = tests[:, :, 0].copy().view(np.float32).astype(float)
    return threshold + arrays.get("moved", 0.0), tests[:, :, 1]


def hinge_path(z, threshold, feature, depth, fern):
    """Leaf, test of the smallest margin and that margin of one row in one tree (algorithm 3)."""
    key, smallest = 0, None
    for level in range(depth):
        at = level if fern else 2**level - 1 + key
        margin = z[feature[at]] - threshold[at]
        if smallest is None or abs(margin) < abs(smallest[1]):
            smallest = at, margin
        key = 2 * key + (margin > 0)
    return key, *smallest


def hinge_response(arrays, depth, fern, table):
    """Sum over trees of the smallest margin times the vector of the leaf, in float64."""
    z = hinge_features(arrays, table)
    threshold, feature = hinge_tests(arrays)
    value, head = arrays["value"], arrays["head"].astype(float)
    out = np.zeros((len(table), head.shape[1] if len(head) else value.shape[2]))
    for i in range(len(table)):
        for tree in range(len(threshold)):
            leaf, _, margin = hinge_path(z[i], threshold[tree], feature[tree], depth, fern)
            row = arrays["leaf"][tree, leaf]
            if row >= 0:
                out[i] += abs(margin) * value[row, 0] * (head[tree] if len(head) else 1)
    return out


def hinge_gradients(arrays, depth, fern, table, slopes):
    """Derivatives of a sum over rows of response . slopes, by equations 11 and 12, in float64."""
    z = hinge_features(arrays, table)
    threshold, feature = hinge_tests(arrays)
    head = arrays["head"].astype(float)[:, : slopes.shape[1]]
    width = 1 if len(head) else slopes.shape[1]
    found = {
        "tests": np.zeros(threshold.shape),
        "value": np.zeros((len(arrays["value"]), width)),
        "head": np.zeros(head.shape),
    }
    dz = np.zeros(z.shape)
    for i in range(len(table)):
        for tree in range(len(threshold)):
            leaf, test, margin = hinge_path(z[i], threshold[tree], feature[tree], depth, fern)
            row = arrays["leaf"][tree, leaf]
            vector = arrays["value"][row, 0, :width]
            own = slopes[i]  # derivatives by what the tree answers
            if len(head):
                found["head"][tree] += abs(margin) * vector * own
                own = head[tree] @ own
            slope = np.sign(margin) * (vector @ np.atleast_1d(own))
            found["value"][row] += abs(margin) * own
            found["tests"][tree, test] -= slope
            dz[i, feature[tree, test]] += slope
    patches, width = arrays["receptive_fields"], arrays["direction"].shape[1]
    first = len(patches) * width
    dz = dz[:, :first] / np.sqrt(arrays["variance"][:first] + 1e-7)
    parts = [
        table[:, patch].astype(float).T @ dz[:, q * width : (q + 1) * width]
        for q, patch in enumerate(patches)
    ]
    return found | {"direction": sum(parts)}


def hinge_layer(z, threshold, feature, leaves, fern, g=None):
    """Answers (n_rows, n_trees, n_outputs) of hinge trees by given features; and, where g has that
    shape, the gradients of their product with g by features, thresholds and leaves.
    """
    depth = leaves.shape[1].bit_length() - 1
    out = np.zeros((len(z), len(threshold), leaves.shape[2]))
    found = [np.zeros(array.shape) for array in (z, threshold, leaves)]
    for i, tree in np.ndindex(out.shape[:2]):
        leaf, test, margin = hinge_path(z[i], threshold[tree], feature[tree], depth, fern)
        out[i, tree] = abs(margin) * leaves[tree, leaf]
        if g is not None:
            slope = np.sign(margin) * (leaves[tree, leaf] @ g[i, tree])
            found[0][i, feature[tree, test]] += slope
            found[1][tree, test] -= slope
            found[2][tree, leaf] += abs(margin) * g[i, tree]
    return out if g is None else (out, *found)


def optimizer_step(kind, t, w, m, v, g, rate, momentum=0.9, squares=0.999):
    """New parameters and state after step t (Kingma and Ba; Duchi et al.; momentum)."""
    if kind == "adam":
        m, v = 0.9 * m + 0.1 * g, squares * v + (1 - squares) * g**2
        step = (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - squares**t)) + 1e-8)
    elif kind == "adagrad":
        v = v + g**2
        step = g / np.where(v > 0, np.sqrt(v), 1)
    else:
        m = momentum * m + g
        step = m
    return w - rate * step, m, v


# ---------------------------------------------------------------------------------- soft trees


def soft_gates(W, threshold, steepness, X):
    """Probabilities of going right (equations 3 and 5), (n_rows, n_splits)."""
    z = np.asarray(X, dtype=float) @ np.asarray(W, dtype=float).T - threshold
    return expit(steepness * z)


def soft_paths(child):
    """For every leaf, in the order of their nodes, the splits on its path and 1 for right."""
    found = {0: []}
    for node, left in enumerate(child):
        if left >= 0:
            found[left] = [*found[node], ((left - 1) // 2, 0)]
            found[left + 1] = [*found[node], ((left - 1) // 2, 1)]
    return [found[node] for node, left in enumerate(child) if left < 0]


def soft_reach(child, gates):
    """Probabilities of all leaves (equation 1), (n_rows, n_leaves)."""
    columns = []
    for path in soft_paths(child):
        sides = [gates[:, split] if right else 1 - gates[:, split] for split, right in path]
        columns.append(np.prod([np.ones(len(gates)), *sides], axis=0))
    return np.stack(columns, axis=1)


def soft_posterior(reach, likelihood):
    """Responsibilities of the leaves (equation 10) and likelihoods of the rows (equation 2)."""
    joint = reach * likelihood
    return joint / joint.sum(axis=1, keepdims=True), joint.sum(axis=1)


def soft_gradient(child, W, threshold, steepness, X, likelihood, weight):
    """Derivatives of the weighted mean of -log(equation 2) by W and by the bias, in float64.

    From equation 14 as it stands: every leaf adds its responsibility times the derivative of the
    logarithms on its path.
    """
    gates = soft_gates(W, threshold, steepness, X)
    part, _ = soft_posterior(soft_reach(child, gates), likelihood)
    slope = np.zeros_like(gates)
    for leaf, path in enumerate(soft_paths(child)):
        for split, right in path:
            slope[:, split] -= part[:, leaf] * steepness * (right - gates[:, split])
    slope *= (weight / weight.sum())[:, None]
    return slope.T @ np.asarray(X, dtype=float), slope.sum(axis=0)


def soft_leaves(part, target, weight, n_outputs):
    """Shares of classes (equation 13), or weighted means and variances, of the leaves."""
    h = part * weight[:, None]
    if target.ndim == 1:
        sums = h.T @ one_hot(target, n_outputs)
        return sums / sums.sum(axis=1, keepdims=True)
    mean = h.T @ target / h.sum(axis=0)[:, None]
    return mean, h.T @ target**2 / h.sum(axis=0)[:, None] - mean**2


def normal_densities(target, mean, variance):
    """Densities of rows at leaves, but for a constant: (n_rows, n_leaves)."""
    square = (target[:, None] - mean) ** 2 / variance
    return np.exp(-0.5 * (square + np.log(variance)).sum(axis=2))


def entropy_of_leaves(leaf, label, weight):
    """Weighted mean, over rows, of the entropy in nats of the leaf that each is in."""
    total = 0
    for each in np.unique(leaf):
        sums = np.bincount(label[leaf == each], weight[leaf == each])
        share = sums[sums > 0] / sums.sum()
        total -= sums.sum() * (share * np.log(share)).sum()
    return total / weight.sum()


def smoothness_gradient(W, shape, smoothness):
    """Gradient of smoothness times w' M w of every row, M being the Laplacian (equation 15)."""
    n = int(np.prod(shape))
    M = np.zeros((n, n))
    places = list(np.ndindex(*shape))
    for (i, a), (j, b) in itertools.product(enumerate(places), repeat=2):
        if np.abs(np.subtract(a, b)).sum() == 1:
            M[i, j] = -1
            M[i, i] += 1
    return 2 * smoothness * np.asarray(W, dtype=float) @ M


# ------------------------------------------------------------------------------ oblique boosting


def boosted_gain(derivative, left, l2):
    """Gain of a split of some rows by a mask; columns of `derivative`: gradients and curvature."""

    def score(rows):
        total = rows.astype(float).sum(axis=0)
        return np.sum(total[:-1] ** 2) / (total[-1] + l2)

    return score(derivative[left]) + score(derivative[~left]) - score(derivative)


def best_boosted_gain(columns, derivative, l2, min_leaf):
    """Largest gain of a cut; `columns` are pairs of the values of the rows and the cuts allowed.

    -1 if no cut leaves `min_leaf` rows on both sides.
    """
    best = -1.0
    for values, cuts in columns:
        for cut in cuts:
            left = values <= cut
            if min(left.sum(), (~left).sum()) >= min_leaf:
                best = max(best, boosted_gain(derivative, left, l2))
    return best


def boosted_direction(tree, code, n_features):
    """Dense weights of a direction of a boosted tree."""
    if code < n_features:
        return sparse_weights([code], [1], n_features)
    code -= n_features
    if code < len(tree["box_corner"]):
        box = (tree[f"box_{name}"][code] for name in ("corner", "other", "size"))
        shape = tree["feature_shape"]
        no = (False,) * len(shape)
        return box_weights(*box, shape, no, no)
    terms = slice(*tree["sparse_start"][code : code + 2])
    return sparse_weights(tree["sparse_feature"][terms], tree["sparse_weight"][terms], n_features)


def boosted_nodes(tree, X):
    """Mask of the rows that reach each node of a boosted tree: (n_nodes, n_rows)."""
    reached = np.zeros((len(tree["child"]), len(X)), dtype=bool)
    reached[0] = True
    for node, child in enumerate(tree["child"]):
        if child > 0:
            split = (child - 1) // 2
            weights = boosted_direction(tree, tree["direction"][split], X.shape[1])
            right = X @ weights > tree["threshold"][split]
            reached[child] = reached[node] & ~right
            reached[child + 1] = reached[node] & right
    return reached


# -------------------------------------------------------------------------------- Shapley values


def shapley_values(predict, mix, n_players):
    """Shapley values of the game ``v(S) = mean of predict(mix(S))``, by enumeration.

    ``mix(mask)`` returns the background rows with the players in the mask from the explained row;
    `predict` returns an array of shape (n_rows, n_outputs). The result is (n_players, n_outputs).
    """
    masks = np.array(list(itertools.product([False, True], repeat=n_players)))
    worth = np.array([predict(mix(mask)).mean(axis=0) for mask in masks])
    bit = 2 ** np.arange(n_players)[::-1]
    found = np.zeros((n_players, worth.shape[1]))
    for number, mask in enumerate(masks):
        size = mask.sum()
        for j in np.flatnonzero(~mask):
            factor = math.factorial(size) * math.factorial(n_players - size - 1)
            gain = worth[number + bit[j]] - worth[number]
            found[j] += factor / math.factorial(n_players) * gain
    return found


def shapley_interactions(predict, mix, n_players):
    """Interactions of two players of the game of `shapley_values`; 0 on the diagonal."""
    worth = {}
    for taken in itertools.product([False, True], repeat=n_players):
        worth[taken] = predict(mix(np.array(taken))).mean(axis=0)
    found = np.zeros((n_players, n_players, len(worth[taken])))
    for i, j in itertools.combinations(range(n_players), 2):
        for taken in worth:
            if not taken[i] and not taken[j]:
                i_too, j_too, both = (
                    tuple(t or k in own for k, t in enumerate(taken)) for own in ([i], [j], [i, j])
                )
                size = sum(taken)
                factor = math.factorial(size) * math.factorial(n_players - size - 2)
                gain = worth[both] - worth[i_too] - worth[j_too] + worth[taken]
                found[i, j] += factor / math.factorial(n_players - 1) / 2 * gain
        found[j, i] = found[i, j]
    return found
