"""Projections on the directions of a forest, as operators of ONNX.

Terms are added in the order of the kernels wherever operators promise an order, so that rows take
the same branches also where many of them have equal sums, such as images of few grey levels: sums
of a few terms by additions, longer ones by cumulative sums. Products of matrices, for dense
directions, are rounded as the runtime does. Boxes of whole numbers, whose sums are exact in any
order, are differences of a table of sums.
"""

import numpy as np
from scipy import sparse

from .model import without_boxes

# Directions of up to so many terms are summed by additions, together; each takes three operators.
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16)
MAX_ENTRIES = 2**16  # of a row, that are gathered together for cumulative sums
MAX_GATHERED = 2**24  # entries of all directions up to which sums are cumulative ones
QUAD = 4  # neighbours of a box that are added side by side, as in _kernels/base/simd.h
MAX_EXACT = 2**24  # whole numbers up to here are exact in float32


class Projections:
    """The features and the projections on some directions, side by side.

    `matrix` is the name of the result, float32 of shape (N, width), and ``column(codes)`` are the
    columns of directions in it.
    """

    def __init__(self, graph, forest, features, codes):
        forest = forest if has_tables(forest) else without_boxes(forest)
        codes = np.unique(codes)
        ends = forest.code_ends
        self.n_features = forest.n_features
        codes = codes[codes >= ends[0]]
        kind = np.searchsorted(ends, codes, side="right")
        parts, order = [features], []
        if (kind < 3).any():
            # One column of all rows lies in one piece, which gathers copy faster.
            across, columns = [], graph.op("Transpose", features, perm=[1, 0])
            for own, add in ((1, add_boxes), (2, add_sparse)):
                chosen = codes[kind == own]
                if len(chosen):
                    found, numbers = add(graph, forest, columns, chosen - ends[own - 1])
                    across += found
                    order += [chosen[k] for k in numbers]
            joined = across[0] if len(across) == 1 else graph.op("Concat", *across, axis=0)
            parts.append(graph.op("Transpose", joined, perm=[1, 0]))
        dense = codes[kind == 3]
        if len(dense):
            matrix = np.ascontiguousarray(forest.dense[dense - ends[2]].astype(np.float32).T)
            parts.append(graph.op("MatMul", features, matrix))
            order.append(dense)
        self.matrix = graph.side_by_side(parts)
        self.codes = np.concatenate([np.zeros(0, dtype=np.int64), *order])
        self.sorter = np.argsort(self.codes)

    @property
    def width(self):
        return self.n_features + len(self.codes)

    def column(self, codes):
        """Columns of directions."""
        found = codes.astype(np.int64)
        own = found >= self.n_features
        at = np.searchsorted(self.codes, found[own], sorter=self.sorter)
        found[own] = self.n_features + self.sorter[at]
        return found


def has_tables(forest):
    """Whether boxes can be summed as such, and not as directions of many weights."""
    has_order = not any(forest.unordered) and len(forest.feature_shape) <= 3
    return forest.n_features >= QUAD and (has_order or _n_entries(forest) <= MAX_GATHERED)


# ------------------------------------------------------------------------------ sparse directions


def add_sparse(graph, forest, features, rows):
    """Projections on sparse directions: results, and the number in `rows` of each of their rows.

    `features` and the results have the samples along axis 1.
    """
    start = forest.sparse_start
    length = (start[1:] - start[:-1])[rows]
    parts, numbers = [], []
    least = -1
    for most in WIDTHS:
        own = np.flatnonzero((length > least) & (length <= most))
        least = most
        if len(own):
            index, weight = _padded(forest, rows[own], most)
            parts.append(add_terms(graph, features, index, weight))
            numbers.append(own)
    long = np.flatnonzero(length > least)
    width = int(length.max(initial=0))
    if len(long) * width > MAX_GATHERED:
        parts.append(graph.op("MatMul", _csr(forest)[rows[long]].toarray(), features))
        numbers.append(long)
        return parts, numbers
    for first in range(0, len(long), max(1, MAX_ENTRIES // max(width, 1))):
        own = long[first : first + max(1, MAX_ENTRIES // width)]
        index, weight = _padded(forest, rows[own], width)
        parts.append(add_in_order(graph, features, index[:, :, None], weight[:, :, None]))
        numbers.append(own)
    return parts, numbers


def _padded(forest, rows, width):
    """Features and weights of sparse directions, (n_rows, width); weights are 0 behind the end."""
    start = forest.sparse_start
    at = start[rows][:, None] + np.arange(width)
    is_term = at < start[rows + 1][:, None]
    index = np.zeros(at.shape, dtype=np.int64)
    weight = np.zeros(at.shape, dtype=np.float32)
    index[is_term] = forest.sparse_feature[at[is_term]]
    weight[is_term] = forest.sparse_weight[at[is_term]]
    return index, weight


def _csr(forest):
    parts = forest.sparse_weight.astype(np.float32), forest.sparse_feature, forest.sparse_start
    return sparse.csr_matrix(parts, shape=(len(forest.sparse_start) - 1, forest.n_features))


def add_terms(graph, table, index, weight):
    """Sums of a few weighted rows of `table`, by additions."""
    terms = []
    for at, own in zip(index.T, weight.T):
        term = graph.op("Gather", table, at.astype(np.int32), axis=0)
        is_one = (own == 1).all()
        terms.append(term if is_one else graph.op("Mul", term, own[:, None]))
    return graph.total(terms)


def add_in_order(graph, table, index, weight=None):
    """Sums over axis 1 of an index of shape (n, n_terms, n_lanes), one term after the other.

    The lanes of a direction are added in the end.
    """
    n, n_terms, n_lanes = index.shape
    values = graph.op("Gather", table, index.ravel().astype(np.int32), axis=0)
    values = graph.op("Reshape", values, np.array([n, n_terms, n_lanes, -1]))
    if weight is not None:
        values = graph.op("Mul", values, weight[..., None])
    values = graph.op("CumSum", values, np.int64(1))
    values = graph.op("Gather", values, np.int64(n_terms - 1), axis=1)
    lanes = [graph.op("Gather", values, np.int64(lane), axis=1) for lane in range(n_lanes)]
    if n_lanes == 1:
        return lanes[0]
    return graph.op("Add", graph.op("Add", *lanes[:2]), graph.op("Add", *lanes[2:]))


# ----------------------------------------------------------------------------------------- boxes


def add_boxes(graph, forest, features, boxes):
    """Projections on boxes, as `add_sparse`."""
    has_order = not any(forest.unordered) and len(forest.feature_shape) <= 3
    if has_order and (_are_whole(forest) or _n_entries(forest) > MAX_GATHERED):
        return add_differences(graph, forest, features, boxes)
    # Unused lanes are read from a row of zeros.
    zero = graph.op("Mul", graph.op("Gather", features, np.array([0]), axis=0), np.float32(0))
    table = graph.op("Concat", features, zero, axis=0)
    parts, numbers = [], []
    n_words = _n_words(forest, boxes)
    # Boxes of similar size are summed together.
    order = np.argsort(n_words, kind="stable")
    first = 0
    while first < len(order):
        ends = np.arange(1, len(order) - first + 1)
        fits = 2 * QUAD * ends * n_words[order[first:]] <= MAX_ENTRIES
        is_similar = n_words[order[first:]] <= 2 * n_words[order[first]]
        n = max(1, np.count_nonzero(fits & is_similar))
        own = order[first : first + n]
        plus, minus = quads(forest, boxes[own])
        result = add_in_order(graph, table, plus)
        if (forest.box_other[boxes[own]] >= 0).any():
            result = graph.op("Sub", result, add_in_order(graph, table, minus))
        parts.append(result)
        numbers.append(own)
        first += n
    return parts, numbers


def _n_words(forest, boxes):
    """Largest numbers of quads that boxes may have."""
    size = forest.box_size[boxes].astype(np.int64)
    has_runs = forest.unordered[-1] or forest.wrap[-1]
    own = size[:, -1] if has_runs else -(-size[:, -1] // QUAD)
    return size[:, :-1].prod(axis=1) * own


def _n_entries(forest):
    """Entries to gather for the sums of all boxes, in quads."""
    return 2 * QUAD * int(_n_words(forest, slice(None)).sum())


def _are_whole(forest):
    """Whether the thresholds of boxes look like those of whole numbers: multiples of 1/2."""
    is_box = (forest.direction >= forest.n_features) & (forest.direction < forest.code_ends[1])
    twice = 2 * forest.threshold[is_box]
    return bool((twice == np.rint(twice)).all() and np.abs(twice).max(initial=0) < MAX_EXACT)


def quads(forest, boxes):
    """Entries of boxes in the order in which kernels add them, (n, n_words, 4): plus and minus.

    Runs of neighbours are added in quads, each of which lies inside the row. Unused lanes have the
    number of features, which is a row of zeros.
    """
    codes = (forest.n_features + boxes).astype(np.int32)
    start, feature, sign = forest.router.expand(codes)
    box = np.repeat(np.arange(len(boxes)), np.diff(start))
    at = np.arange(len(feature)) - start[box]
    # A new run begins at each row along the last axis, and where a neighbour is left out.
    begins = at % forest.box_size[boxes[box], -1] == 0
    begins[1:] |= np.diff(feature) != 1
    run = np.cumsum(begins) - 1
    in_run = np.arange(len(feature)) - np.flatnonzero(begins)[run]
    quad = feature - in_run % QUAD  # the first entry of the quad
    lane = feature - np.minimum(quad, forest.n_features - QUAD)
    word = np.cumsum(in_run % QUAD == 0) - 1
    part = 2 * box + (sign < 0)
    first_word = np.full(2 * len(boxes), 0)
    starts = np.flatnonzero(np.diff(part, prepend=-1))
    first_word[part[starts]] = word[starts]
    word -= first_word[part]
    shape = 2 * len(boxes), int(word.max()) + 1, QUAD
    index = np.full(shape, forest.n_features, dtype=np.int32)
    index[part, word, lane] = feature
    return index[::2], index[1::2]


def add_differences(graph, forest, features, boxes):
    """Projections on boxes as differences of entries of a table of sums.

    The entry of the table at a corner is the sum of all features above and left of it.
    """
    shape = np.array(forest.feature_shape)
    wraps = np.array(forest.wrap)
    table = graph.op("Reshape", graph.cast(features, "DOUBLE"), np.array([*shape, -1]))
    for axis in np.flatnonzero(wraps):
        table = graph.op("Concat", table, table, axis=int(axis))
    sides = shape * (1 + wraps) + 1
    n = len(shape)
    table = graph.op("Pad", table, np.array([1] * n + [0] * (n + 2)))
    for axis in range(n):
        table = graph.op("CumSum", table, np.int64(axis))
    table = graph.op("Reshape", table, np.array([sides.prod(), -1]))
    parts, numbers = [], []
    other = forest.box_other[boxes]
    for own in (np.flatnonzero(other < 0), np.flatnonzero(other >= 0)):
        if not len(own):
            continue
        chosen = boxes[own]
        index, weight = _corners(forest.box_corner[chosen], forest.box_size[chosen], shape, sides)
        if other[own[0]] >= 0:
            more, _ = _corners(other[own], forest.box_size[chosen], shape, sides)
            index = np.concatenate([index, more], axis=1)
            weight = np.concatenate([weight, -weight])
        weight = np.broadcast_to(weight, index.shape)
        parts.append(graph.cast(add_terms(graph, table, index, weight), "FLOAT"))
        numbers.append(own)
    return parts, numbers


def _corners(corner, size, shape, sides):
    """Entries of the table of sums at the 2^n_axes corners of each box, and their signs."""
    low = np.stack(np.unravel_index(corner, tuple(shape)), axis=1)
    index, sign = [], []
    for corner in np.ndindex(*(2,) * len(shape)):
        place = low + size * np.array(corner)
        index.append(np.ravel_multi_index(tuple(place.T), tuple(sides)))
        sign.append((-1.0) ** (len(shape) - sum(corner)))
    return np.stack(index, axis=1), np.array(sign)
