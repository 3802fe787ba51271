"""Samplers of directions.

A node draws candidate directions a from one `Sampler` and splits on ``a . x > t``:

- `AxisSampler`: single features, as in a random forest (Breiman 2001);
- `SparseSampler`: a few features with weights +1 and -1 (SPORF, Tomita et al. 2020);
- `GaussianSampler`: a standard normal weight for every feature;
- `BoxSampler`: sums over boxes of an n-dimensional array of features, such as patches of an image,
  or differences of two boxes (manifold forests, Perry et al., section 3.1);
- `BallSampler`: the same where neighbours are given by a graph, which is not in the paper.

To add a projection, derive from `Sampler`, set `max_terms` to the length of the longest direction,
and draw a feature, a box, a sparse direction or a plane in `sample`.
"""

from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

import numpy as np

from ..base.memory cimport Scratch
from ..base.random cimport Random, below, between, normal, positive_poisson
from ..base.direction cimport (
    CSR,
    DENSE,
    ONE,
    UINT8,
    WEIGHTED,
    WORDS,
    Box,
    Table,
    Unfolded,
    as_grid,
    entry_of,
    unfold_box,
    unfold_feature,
    unfold_sparse,
)

# Four units in the last place of float32. Chosen without a stored measurement.
cdef enum:
    PRECISION = 1 << 21

cdef enum Contrast:
    SUM = 0
    EDGE = 1
    DIFFERENCE = 2
    MIX = 3

CONTRASTS = {"sum": SUM, "edge": EDGE, "difference": DIFFERENCE, "mix": MIX}


cdef class Sampler:
    """Distribution of the directions that a node tries."""

    cdef int reserve_candidate(self, Scratch scratch, Candidate* candidate) except -1:
        """Reserve the arrays of a candidate, for the longest direction."""
        candidate.size = scratch.ints(self.grid.n_axes)
        candidate.subset = <uint8_t*>scratch.bytes_of(self.grid.n_subset_bytes)
        candidate.features = scratch.ints(self.max_nonzero)
        candidate.weights = scratch.floats(self.max_nonzero)
        return 0

    cdef void start_node(self) noexcept nogil:
        """Start a node: all directions may be drawn again."""

    cdef bint sample(self, Random* random, Candidate* out) noexcept nogil:
        """Draw a direction; False if none is left for this node."""
        return False

    cdef void unfold(
        self, const Candidate* candidate, const Table* table, Unfolded* unfolded
    ) noexcept nogil:
        """Unfold a candidate for `project`."""
        cdef Box box
        if candidate.kind == FEATURE:
            unfold_feature(unfolded, candidate.feature)
        elif candidate.kind == SPARSE:
            unfold_sparse(unfolded, candidate.features, candidate.weights, candidate.n)
        elif candidate.kind == PLANE:
            unfolded.kind = DENSE
            unfolded.n = self.n_features
            unfolded.dense = candidate.weights
        else:
            box.corner = candidate.corner
            box.other = candidate.other
            box.size = candidate.size
            box.subset = candidate.subset
            unfold_box(unfolded, &self.grid, &box, table)


cdef class AxisSampler(Sampler):
    """Single features, without replacement within a node."""

    def __init__(self, int32_t n_features):
        self.n_features = n_features
        self.max_terms = 1
        self.features = np.arange(n_features, dtype=np.int32)

    cdef void start_node(self) noexcept nogil:
        self.n_drawn = 0

    cdef bint sample(self, Random* random, Candidate* out) noexcept nogil:
        cdef int32_t at, feature
        if self.n_drawn >= self.n_features:
            return False
        at = between(random, self.n_drawn, self.n_features - 1)
        feature = self.features[at]
        self.features[at] = self.features[self.n_drawn]
        self.features[self.n_drawn] = feature
        self.n_drawn = self.n_drawn + 1
        out.kind = FEATURE
        out.feature = feature
        return True


cdef class SparseSampler(Sampler):
    """A few features with weights +1 or -1, each divided by the scale of its feature.

    With `fixed`, every direction has `mean` weights. Otherwise, their number has a Poisson
    distribution without 0. `scale` is (n_features,), float32. `features`, int32, are the features
    to draw from; None: all.
    """

    def __init__(self, int32_t n_features, double mean, bint fixed, scale, features=None):
        self.n_features = n_features
        self.features = np.arange(n_features, dtype=np.int32) if features is None else features
        self.mean = mean
        self.fixed = fixed
        self.scale = scale
        # Larger Poisson numbers have a probability below 1e-20.
        most = mean if fixed else mean + 12 * sqrt(mean) + 12
        self.max_nonzero = <int32_t>min(self.features.shape[0], most)
        self.max_terms = self.max_nonzero

    cdef bint sample(self, Random* random, Candidate* out) noexcept nogil:
        cdef int32_t n = <int32_t>self.mean
        cdef int32_t n_features = <int32_t>self.features.shape[0]
        cdef int32_t i, j, top, feature, at
        cdef bint taken
        if n_features == 0:
            return False
        if not self.fixed:
            n = positive_poisson(random, self.mean)
        n = min(n, self.max_nonzero)
        # Floyd's sampling without replacement takes n draws, independent of n_features.
        for i in range(n):
            top = n_features - n + i
            at = below(random, top + 1)
            feature = self.features[at]
            taken = False
            for j in range(i):
                if out.features[j] == feature:
                    taken = True
                    break
            if taken:
                feature = self.features[top]
            out.features[i] = feature
            out.weights[i] = (1 if below(random, 2) else -1) / self.scale[feature]
        out.n = n
        out.kind = SPARSE
        if n == 1:                     # the sign of a single feature is irrelevant
            out.kind = FEATURE
            out.feature = out.features[0]
        return True


cdef class GaussianSampler(Sampler):
    """Hyperplanes of random direction: a standard normal weight for every feature."""

    def __init__(self, int32_t n_features):
        self.n_features = n_features
        self.max_terms = 1                  # the weights of a plane are not copied
        self.max_nonzero = n_features

    cdef bint sample(self, Random* random, Candidate* out) noexcept nogil:
        cdef int32_t j
        for j in range(self.n_features):
            out.weights[j] = <float>normal(random)
        out.kind = PLANE
        return True


cdef class BoxSampler(Sampler):
    """Boxes of an n-dimensional array of features, or contrasts of two equal boxes.

    Axes may close to a circle (`wrap`) or have no order (`unordered`); a box takes a random subset
    of an unordered axis. Sizes are in smallest .. largest, one per axis. `contrast` is "sum";
    "edge", the difference to an adjacent box of equal size; "difference", the difference to a box
    of equal size at most `reach` away along each axis; or "mix", one of the three at random.

    Unless `inside`, the corner is drawn first, and the border limits the size, as in the paper;
    otherwise the size is drawn first, and then a corner such that the box lies inside, as in the
    first code of the paper.
    """

    def __init__(
        self, feature_shape, wrap, unordered, smallest, largest, contrast, bint inside, int reach=8
    ):
        cdef int64_t volume = 1
        cdef int axis
        self.grid = as_grid(feature_shape, wrap, unordered)
        self.smallest = smallest
        self.largest = largest
        self.contrast = CONTRASTS[contrast]
        self.inside = inside
        self.reach = reach
        self.n_features = np.prod(feature_shape)
        for axis in range(self.grid.n_axes):
            volume *= self.largest[axis]
        self.max_terms = <int32_t>(volume if self.contrast == SUM else 2 * volume)
        self.items = np.arange(max(feature_shape), dtype=np.int32)

    cdef void draw_subset(self, Random* random, int axis, Candidate* out) noexcept nogil:
        """Draw a random subset, of random size, of the entries along an axis without order."""
        cdef int32_t size = between(random, self.smallest[axis], self.largest[axis])
        cdef int32_t i, at, item
        cdef int32_t n = self.grid.length[axis]
        cdef uint8_t* bits = out.subset + self.grid.subset_start[axis]
        memset(bits, 0, (n + 7) // 8)
        for i in range(n):
            self.items[i] = i
        for i in range(size):
            at = between(random, i, n - 1)
            item = self.items[at]
            self.items[at] = self.items[i]
            bits[item >> 3] |= <uint8_t>(1 << (item & 7))
        out.size[axis] = size

    cdef int32_t draw_along(
        self, Random* random, int axis, int n_boxes, int32_t* size
    ) noexcept nogil:
        """Draw position and size, along one axis, of n_boxes adjacent boxes (equation 3.1)."""
        cdef int32_t length = self.grid.length[axis]
        cdef int32_t low = self.smallest[axis]
        cdef int32_t high = min(self.largest[axis], length // n_boxes)
        cdef int32_t corner
        if self.grid.wrap[axis]:
            size[0] = between(random, low, high)
            return below(random, length)
        if self.inside:
            size[0] = between(random, low, high)
            return between(random, 0, length - n_boxes * size[0])
        corner = between(random, 0, length - n_boxes * low)
        size[0] = between(random, low, min(high, (length - corner) // n_boxes))
        return corner

    cdef int edge_axis(self, Random* random) noexcept nogil:
        """Draw an ordered axis along which two boxes fit side by side; -1 if there is none."""
        cdef int axis, n_fit = 0, chosen = -1
        for axis in range(self.grid.n_axes):
            if self.grid.unordered[axis] or 2 * self.smallest[axis] > self.grid.length[axis]:
                continue
            n_fit += 1
            if below(random, n_fit) == 0:
                chosen = axis
        return chosen

    cdef bint sample(self, Random* random, Candidate* out) noexcept nogil:
        cdef int axis, split = -1
        cdef int contrast = self.contrast
        cdef int32_t length, corner, shift, low, high
        cdef int64_t flat = 0, other = 0
        if contrast == MIX:
            contrast = below(random, MIX)
        if contrast == EDGE:
            split = self.edge_axis(random)
        for axis in range(self.grid.n_axes):
            if self.grid.unordered[axis]:
                self.draw_subset(random, axis, out)
                continue
            length = self.grid.length[axis]
            corner = self.draw_along(random, axis, 2 if axis == split else 1, &out.size[axis])
            flat += corner * self.grid.stride[axis]
            shift = 0
            if axis == split:
                shift = out.size[axis]
            elif contrast == DIFFERENCE:
                if self.grid.wrap[axis]:
                    high = min(self.reach, length // 2)
                    shift = between(random, -high, high)
                    if out.size[axis] == length:  # a whole circle is the same at every corner
                        shift = 0
                else:
                    low = max(-self.reach, -corner)
                    high = min(self.reach, length - out.size[axis] - corner)
                    shift = between(random, low, high)
            corner += shift
            if corner >= length:
                corner -= length
            elif corner < 0:
                corner += length
            other += corner * self.grid.stride[axis]
        out.corner = <int32_t>flat
        out.other = -1 if contrast == SUM or other == flat else <int32_t>other
        out.kind = BOX
        if out.other < 0 and self.is_single_entry(out):
            out.kind = FEATURE
            out.feature = out.corner
        return True

    cdef bint is_single_entry(self, const Candidate* out) noexcept nogil:
        """Return whether the box is only the feature at its corner."""
        cdef int axis
        for axis in range(self.grid.n_axes):
            if out.size[axis] > 1 or self.grid.unordered[axis]:
                return False
        return True


cdef class BallSampler(Sampler):
    """Balls of a graph of features, or contrasts of two balls.

    A ball has the features that are at most `steps` steps away from its centre. The centre is a
    random feature, and `steps` is in smallest .. largest. `contrast` is "sum"; "edge", the sum
    minus that of a ball of as many steps beside it, whose centre is 2 * steps + 1 steps away;
    "difference", whose centre is 1 to `reach` steps away; or "mix", one of the three at random. A
    plain sum is drawn where no feature is as far away as that, for differences where there is no
    other feature. If the balls have different numbers of features, the weights of the larger one
    are scaled down such that a constant has the value 0.

    The neighbours of feature j are ``neighbour[start[j] : start[j + 1]]``.
    """

    def __init__(self, start, neighbour, int32_t smallest, int32_t largest, contrast, reach=8):
        cdef int32_t n = len(start) - 1
        self.n_features = self.max_terms = self.max_nonzero = n
        self.start, self.neighbour = start, neighbour
        self.smallest, self.largest = smallest, largest
        self.contrast = CONTRASTS[contrast]
        self.reach = reach
        self.visited = np.zeros(n, dtype=np.int64)
        self.order = np.empty(n, dtype=np.int32)
        self.end = np.empty(n, dtype=np.int32)
        self.weight = np.zeros(n, dtype=np.float32)

    cdef int32_t walk(self, int32_t centre, int32_t n_steps) noexcept nogil:
        """Visit features in breadth first order; the distance of the farthest, at most n_steps.

        Those that are at most d steps away are then ``order[: end[d]]``.
        """
        cdef int32_t i, entry, other, n = 1, first = 0, step
        self.visit = self.visit + 1
        self.visited[centre] = self.visit
        self.order[0] = centre
        self.end[0] = 1
        for step in range(1, n_steps + 1):
            for i in range(first, self.end[step - 1]):
                for entry in range(self.start[self.order[i]], self.start[self.order[i] + 1]):
                    other = self.neighbour[entry]
                    if self.visited[other] != self.visit:
                        self.visited[other] = self.visit
                        self.order[n] = other
                        n += 1
            first = self.end[step - 1]
            if n == first:
                return step - 1
            self.end[step] = n
        return n_steps

    cdef bint sample(self, Random* random, Candidate* out) noexcept nogil:
        cdef int contrast = self.contrast
        cdef int32_t steps = between(random, self.smallest, self.largest)
        cdef int32_t centre = below(random, self.n_features)
        cdef int32_t i, farthest, distance = 0
        if contrast == MIX:
            contrast = below(random, MIX)
        if contrast == EDGE:
            distance = 2 * steps + 1
        elif contrast == DIFFERENCE:
            distance = between(random, 1, self.reach)
        farthest = self.walk(centre, max(steps, distance))
        out.n = self.end[min(steps, farthest)]
        for i in range(out.n):
            out.features[i] = self.order[i]
            out.weights[i] = 1
        if contrast == DIFFERENCE:
            distance = min(distance, farthest)
        if 0 < distance <= farthest:
            i = between(random, self.end[distance - 1], self.end[distance] - 1)
            self.subtract(self.order[i], steps, out)
        out.kind = SPARSE
        if out.n == 1:
            out.kind = FEATURE
            out.feature = out.features[0]
        return True

    cdef void subtract(self, int32_t centre, int32_t steps, Candidate* out) noexcept nogil:
        """Subtract the ball around another centre from a ball, unless both are the same."""
        cdef int32_t i, feature, n = out.n, n_kept = 0
        cdef int32_t n_other = self.end[self.walk(centre, steps)]
        cdef float own = 1, others = 1, weight
        if n_other > n:
            others = <float>n / n_other
        else:
            own = <float>n_other / n
        for i in range(n):
            self.weight[out.features[i]] = own
        for i in range(n_other):
            feature = self.order[i]
            if self.weight[feature] == 0:
                out.features[n] = feature
                n += 1
            self.weight[feature] -= others
        for i in range(n):
            feature = out.features[i]
            weight = self.weight[feature]
            self.weight[feature] = 0
            if weight != 0:
                out.features[n_kept] = feature
                out.weights[n_kept] = weight
                n_kept += 1
        out.n = n_kept if n_kept else out.n


def draw(Sampler sampler, seed, int64_t n):
    """Draw directions as dicts of the fields that their kind has, for tests and pictures."""
    cdef Random random
    cdef Candidate candidate
    cdef Scratch scratch = Scratch()
    random.state = seed
    sampler.reserve_candidate(scratch, &candidate)
    directions = []
    for _ in range(n):
        sampler.start_node()
        if not sampler.sample(&random, &candidate):
            break
        directions.append(as_dict(sampler, &candidate))
    return directions


cdef as_dict(Sampler sampler, const Candidate* candidate):
    cdef int i
    if candidate.kind == FEATURE:
        return {"feature": candidate.feature}
    if candidate.kind == SPARSE:
        return {
            "features": [candidate.features[i] for i in range(candidate.n)],
            "weights": [candidate.weights[i] for i in range(candidate.n)],
        }
    if candidate.kind == PLANE:
        return {"weights": [candidate.weights[i] for i in range(sampler.n_features)]}
    return {
        "corner": candidate.corner,
        "other": candidate.other,
        "size": [candidate.size[i] for i in range(sampler.grid.n_axes)],
        "subset": [candidate.subset[i] for i in range(sampler.grid.n_subset_bytes)],
    }


# -------------------------------------------------------------------------------- constant columns


cdef inline double value_at(const Table* table, int64_t offset, int32_t feature) noexcept nogil:
    """Return a number of the row at an offset."""
    if table.dtype == CSR:
        return entry_of(table, offset // table.n_features, feature)
    if table.dtype == UINT8:
        return (<const uint8_t*>table.data)[offset + feature]
    return (<const float*>table.data)[offset + feature]


cdef double size_of_terms(const Unfolded* a, const Table* table, int64_t offset) noexcept nogil:
    """Return the sum of the absolute terms of a . x, for a row; words are of float32."""
    cdef int32_t t, j
    cdef double total = 0
    cdef const float* row = <const float*>table.data + offset
    for t in range(a.n):
        if a.kind == DENSE:
            total += fabs(a.dense[t] * value_at(table, offset, t))
        elif a.kind == WEIGHTED:
            total += fabs(a.weight[t] * value_at(table, offset, a.position[t]))
        else:
            for j in range(4):
                if a.mask[t] >> j & 1:
                    total += fabs(row[a.position[t] + j])
    return total


cdef double sum_of_weights(const Unfolded* a) noexcept nogil:
    """Return the sum of the absolute weights of a direction, or more."""
    cdef int32_t t
    cdef double total = 0
    if a.kind != DENSE and a.kind != WEIGHTED:
        return 4 * a.n                 # words have at most four features
    for t in range(a.n):
        total += fabs(a.dense[t] if a.kind == DENSE else a.weight[t])
    return total


cdef int64_t place_of(float wanted, const float* values, int64_t n) noexcept nogil:
    """Return the first place of a value that is there; it compares 16 at a time."""
    cdef int64_t i = 0
    cdef int32_t j, found = 0
    while i + 16 <= n:
        for j in range(16):
            found |= values[i + j] == wanted
        if found:
            break
        i += 16
    while values[i] != wanted:
        i += 1
    return i


cdef bint is_rounding(
    const Unfolded* a, const Table* table, const int64_t* offset, const float* column, int64_t n,
    float low, float high, double largest
) noexcept nogil:
    """Return whether a . x, a column of n rows from low to high, differs by rounding errors only.

    These are at most about 1 / PRECISION of the sum of the absolute terms of a row. Proportional
    features, such as a length in two units, have combinations that are 0 up to them. `largest` is
    at least the absolute value of every feature: often, it tells that no terms are so large.
    """
    cdef double size, width = (<double>high - low) * PRECISION
    if a.kind == ONE or a.kind == WORDS and table.dtype == UINT8:  # exact
        return False
    if width > 2.001 * largest * sum_of_weights(a):
        return False
    size = size_of_terms(a, table, offset[place_of(low, column, n)])
    size += size_of_terms(a, table, offset[place_of(high, column, n)])
    return width <= size
