"""Searching among random directions.

`SearchSplitter` splits a node as forests do: draw candidate directions, project the node's rows on
each, cut every column where the criterion is best, by sorting or by a histogram of equal-width
bins (whose scores are in _simd.h).
"""

from libc.math cimport INFINITY, fabs, isfinite
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

from .buffer cimport append, free_buffer, start_buffer, used_bytes
from .direction cimport DENSE, Taps, alloc_taps, free_taps, project
from .projection cimport BOX, FEATURE, PLANE, AxisSampler, Candidate, Sampler, free_candidate
from .random cimport uniform
from .split cimport ENTROPY, NodeSplitter, Sample, Split

cdef extern from "simd.h" nogil:
    void skf_range(const float*, int64_t, float*, float*)
    void skf_bins(const float*, int64_t, float, float, int, int32_t*)
    void skf_cells(const float*, int64_t, float, float, int, const int32_t*, int32_t*)
    void skf_prefix(double*, int, int)
    void skf_score_squares(const double*, const double*, int, int, double*, double*)
    void skf_score_entropy(const double*, const double*, int, int, double*, double*)
    double skf_xlogx(double)

cdef extern from "sort.h" nogil:
    uint64_t skf_sort_key(float, uint32_t)
    float skf_key_value(uint64_t)
    void skf_sort(uint64_t*, uint64_t*, int64_t)

cdef enum:
    SMALL = 24          # rows up to which sorting beats bins


cdef inline float midpoint(float a, float b) noexcept nogil:
    """A float32 in [a, b): halfway where there is room."""
    cdef float middle = <float>0.5 * a + <float>0.5 * b
    return middle if middle < b else a


cdef class SearchSplitter(NodeSplitter):
    """Search among random directions.

    Parameters
    ----------
    X, target, n_outputs, weight, rows, criterion, seed, stop
        As in NodeSplitter.
    sampler : Sampler
        Draws the candidates.
    n_candidates : int
        Directions tried at a node; more only while all of them are constant on it.
    exact : bool
        Sort every column; otherwise histograms, but in the smallest nodes.
    n_bins : int
    max_search : int
        Larger nodes search in a random subset of this many rows.
    min_leaf, min_weight : int, float
        Smallest number of rows of a child, and smallest weight.
    may_overflow : bool
        Values are so large that a projection may leave float32.
    """

    def __cinit__(self, *args, **kwargs):
        memset(&self.taps, 0, sizeof(Taps))
        memset(&self.trial, 0, sizeof(Candidate))
        memset(&self.champion, 0, sizeof(Candidate))
        start_buffer(&self.box_corner, sizeof(int32_t))
        start_buffer(&self.box_other, sizeof(int32_t))
        start_buffer(&self.box_size, sizeof(int32_t))
        start_buffer(&self.box_subset, 1)
        start_buffer(&self.sparse_start, sizeof(int64_t))
        start_buffer(&self.sparse_feature, sizeof(int32_t))
        start_buffer(&self.sparse_weight, sizeof(float))
        start_buffer(&self.dense, sizeof(float))

    def __init__(
        self, X, target, int32_t n_outputs, weight, int32_t[::1] rows, criterion, uint64_t seed,
        stop, Sampler sampler, int32_t n_candidates, bint exact, int32_t n_bins,
        int64_t max_search, int64_t min_leaf, double min_weight, bint may_overflow
    ):
        NodeSplitter.__init__(self, X, target, n_outputs, weight, rows, criterion, seed, stop)
        cdef int64_t n = min(rows.shape[0], max_search)
        cdef int64_t start = 0
        self.sampler = sampler
        self.features = AxisSampler(X.shape[1])
        self.n_candidates = n_candidates
        self.exact = exact
        self.n_bins = n_bins
        self.max_search = max_search
        self.min_leaf = min_leaf
        self.min_weight = min_weight
        self.may_overflow = may_overflow
        sampler.alloc(&self.trial)
        sampler.alloc(&self.champion)
        alloc_taps(&self.taps, max(sampler.max_taps, 1), &sampler.grid)
        append(&self.sparse_start, &start, 1)
        self.drawn.offset = <int64_t*>malloc(n * sizeof(int64_t))
        self.drawn.label = <int32_t*>malloc(n * sizeof(int32_t))
        self.drawn.weight = <double*>malloc(n * sizeof(double))
        if not self.is_class:
            self.drawn.target = <double*>malloc(n * n_outputs * sizeof(double))
        # The whole node may be searched too (a subset can be pure by chance), hence all rows.
        n = rows.shape[0]
        self.trial_column = <float*>malloc(n * sizeof(float))
        self.base = <int32_t*>malloc(n * sizeof(int32_t))
        self.cell = <int32_t*>malloc(n * sizeof(int32_t))
        self.key = <uint64_t*>malloc(n * sizeof(uint64_t))
        self.key_spare = <uint64_t*>malloc(n * sizeof(uint64_t))
        self.right_score = <double*>malloc(n * sizeof(double))
        self.right_weight = <double*>malloc(n * sizeof(double))
        self.histogram = <double*>malloc(<int64_t>n_outputs * n_bins * sizeof(double))
        self.bin_weight = <double*>malloc(n_bins * sizeof(double))
        self.bin_count = <double*>malloc(n_bins * sizeof(double))
        self.bin_left = <double*>malloc(n_bins * sizeof(double))
        self.bin_score = <double*>malloc(n_bins * sizeof(double))
        if not (
            self.drawn.offset and self.drawn.label and self.drawn.weight
            and (self.is_class or self.drawn.target) and self.trial_column and self.base and
            self.cell and self.key and self.key_spare and self.right_score and self.right_weight
            and self.histogram and self.bin_weight and self.bin_count and self.bin_left
            and self.bin_score
        ):
            raise MemoryError()

    def __dealloc__(self):
        free_taps(&self.taps)
        free_candidate(&self.trial)
        free_candidate(&self.champion)
        free(self.drawn.offset)
        free(self.drawn.label)
        free(self.drawn.weight)
        free(self.drawn.target)
        free(self.trial_column)
        free(self.base)
        free(self.cell)
        free(self.key)
        free(self.key_spare)
        free(self.right_score)
        free(self.right_weight)
        free(self.histogram)
        free(self.bin_weight)
        free(self.bin_count)
        free(self.bin_left)
        free(self.bin_score)
        free_buffer(&self.box_corner)
        free_buffer(&self.box_other)
        free_buffer(&self.box_size)
        free_buffer(&self.box_subset)
        free_buffer(&self.sparse_start)
        free_buffer(&self.sparse_feature)
        free_buffer(&self.sparse_weight)
        free_buffer(&self.dense)

    cdef bint search(self, Split* split) except -1 nogil:
        """Best split among the candidates.

        A large node searches in a random subset of its rows. Such a subset may be pure, or its cut
        may leave a side too small, where the node itself can be split: then all rows are searched.
        """
        if self.node.n > self.max_search:
            self.draw_rows()
            if not self.drawn_is_pure and self.try_all(&self.drawn, split):
                return True
        return self.try_all(&self.node, split)

    cdef void draw_rows(self) noexcept nogil:
        """One random row from each of max_search equal stretches of the node."""
        cdef Sample* node = &self.node
        cdef Sample* drawn = &self.drawn
        cdef int64_t i, at, first = 0
        cdef int32_t k
        cdef double stretch = <double>node.n / self.max_search
        cdef bint pure = True
        drawn.n = self.max_search
        for i in range(drawn.n):
            at = min(<int64_t>((i + uniform(&self.random)) * stretch), node.n - 1)
            if i == 0:
                first = at
            drawn.offset[i] = node.offset[at]
            drawn.weight[i] = node.weight[at]
            if self.is_class:
                drawn.label[i] = node.label[at]
                pure = pure and node.label[at] == node.label[first]
                continue
            for k in range(self.n_outputs):
                drawn.target[i * self.n_outputs + k] = node.target[at * self.n_outputs + k]
                # Weight times target is stored: equal targets, up to rounding.
                pure = pure and fabs(
                    node.target[at * self.n_outputs + k] * node.weight[first]
                    - node.target[first * self.n_outputs + k] * node.weight[at]
                ) <= 1e-12 * node.weight[first] * node.weight[at]
        self.drawn_is_pure = pure

    cdef bint try_all(self, Sample* sample, Split* split) except -1 nogil:
        """Try candidates on a sample of the node; settle the best on all rows of the node."""
        cdef Best best
        cdef int64_t i
        best.score = -INFINITY
        if self.is_class:
            for i in range(sample.n):
                self.base[i] = sample.label[i] * self.n_bins
        self.sampler.start_node()
        for _ in range(self.n_candidates):
            if not self.sampler.sample(&self.random, &self.trial):
                break
            if self.poll(sample.n * (8 + self.sampler.max_nonzero)):
                return False
            self.sampler.unfold(&self.trial, &self.table, &self.taps)
            self.try_one(sample, &best)
        if best.score == -INFINITY:
            # No candidate varies: any feature that does will do, in random order.
            self.features.start_node()
            while best.score == -INFINITY:
                if not self.features.sample(&self.random, &self.trial):
                    return False
                if self.poll(sample.n):
                    return False
                self.features.unfold(&self.trial, &self.table, &self.taps)
                self.try_one(sample, &best)
        return self.settle(&best, split)

    cdef bint try_one(self, Sample* sample, Best* best) noexcept nogil:
        """Project on the trial direction and cut; the better of it and the champion stays.

        False where the column is constant or not finite.
        """
        cdef float low = 0, high = 0
        cdef bint better
        cdef int64_t i
        cdef Candidate swap
        project(&self.taps, &self.table, sample.offset, sample.n, self.trial_column)
        skf_range(self.trial_column, sample.n, &low, &high)
        # Values near the end of float32 add up to infinity, which no threshold divides well.
        if not (high > low) or not isfinite(low) or not isfinite(high):
            return False
        if self.may_overflow:
            for i in range(sample.n):       # infinity minus infinity hides from the range
                if not isfinite(self.trial_column[i]):
                    return False
        if (
            self.exact
            or sample.n <= SMALL
            or not isfinite(high - low)
            or not isfinite(self.n_bins / (high - low))
        ):
            better = self.cut_sorted(sample, best)
        else:
            better = self.cut_histogram(sample, low, high, best)
        if better:
            swap = self.champion
            self.champion = self.trial
            self.trial = swap
        return True

    cdef bint cut_histogram(
        self, Sample* sample, float low, float high, Best* best
    ) noexcept nogil:
        """Best cut between equal-width bins."""
        cdef int32_t n_bins = self.n_bins
        cdef int32_t k, b, cut = -1
        cdef int64_t i
        cdef float scale = n_bins / (high - low)
        cdef double needed, score = best.score
        cdef double* row
        cdef double* histogram = self.histogram
        cdef double* bin_weight = self.bin_weight
        cdef double* bin_count = self.bin_count
        cdef const int32_t* cell = self.cell
        memset(self.histogram, 0, <size_t>self.n_present * n_bins * sizeof(double))
        if self.is_class:
            skf_cells(self.trial_column, sample.n, low, scale, n_bins, self.base, self.cell)
            for i in range(sample.n):
                histogram[cell[i]] += sample.weight[i]
        else:
            skf_bins(self.trial_column, sample.n, low, scale, n_bins, self.cell)
            memset(self.bin_weight, 0, n_bins * sizeof(double))
            for i in range(sample.n):
                bin_weight[cell[i]] += sample.weight[i]
            for k in range(self.n_present):
                row = self.histogram + k * n_bins
                for i in range(sample.n):
                    row[self.cell[i]] += sample.target[i * self.n_outputs + k]
            skf_prefix(self.bin_weight, 1, n_bins)
        skf_prefix(self.histogram, self.n_present, n_bins)
        if self.is_class:
            memset(self.bin_weight, 0, n_bins * sizeof(double))
            for k in range(self.n_present):
                row = self.histogram + k * n_bins
                for b in range(n_bins):
                    bin_weight[b] += row[b]
        if self.criterion == ENTROPY:
            skf_score_entropy(
                self.histogram, self.bin_weight, self.n_present, n_bins, self.bin_left,
                self.bin_score,
            )
        else:
            skf_score_squares(
                self.histogram, self.bin_weight, self.n_present, n_bins, self.bin_left,
                self.bin_score,
            )
        if self.min_leaf > 1:
            # In a subset of the rows, a child needs its share of the subset.
            needed = <double>self.min_leaf * sample.n / self.node.n
            memset(self.bin_count, 0, n_bins * sizeof(double))
            for i in range(sample.n):
                b = self.cell[i]
                bin_count[b % n_bins if self.is_class else b] += 1
            skf_prefix(self.bin_count, 1, n_bins)
            for b in range(n_bins):
                if self.bin_count[b] < needed or sample.n - self.bin_count[b] < needed:
                    self.bin_score[b] = -INFINITY
        if self.min_weight > 0:
            needed = self.min_weight * bin_weight[n_bins - 1] / self.node_weight
            for b in range(n_bins):
                if bin_weight[b] < needed or bin_weight[n_bins - 1] - bin_weight[b] < needed:
                    self.bin_score[b] = -INFINITY
        for b in range(n_bins - 1):
            if self.bin_score[b] > score:
                score = self.bin_score[b]
                cut = b
        if cut < 0:
            return False
        best.score = score
        best.exact = False
        best.low = low
        best.scale = scale
        best.cut = cut
        return True

    cdef bint cut_sorted(self, Sample* sample, Best* best) noexcept nogil:
        """Best cut between any two different values.

        Sums grow from both ends towards the cut, a row at a time: nothing is subtracted, so a
        heavy row does not hide light ones.
        """
        cdef int64_t i, at, n = sample.n
        cdef double left_score = 0, left_weight = 0, score
        cdef double needed = <double>self.min_leaf * n / self.node.n
        cdef double needed_weight
        cdef bint better = False
        for i in range(n):
            self.key[i] = skf_sort_key(self.trial_column[i], <uint32_t>i)
        skf_sort(self.key, self.key_spare, n)
        self.clear_side()
        self.right_score[n - 1] = 0
        self.right_weight[n - 1] = 0
        for i in range(n - 1, 0, -1):
            at = <int64_t>(self.key[i] & <uint64_t>0xFFFFFFFF)
            self.right_score[i - 1] = self.add_to_side(sample, at, self.right_score[i])
            self.right_weight[i - 1] = self.right_weight[i] + sample.weight[at]
        at = <int64_t>(self.key[0] & <uint64_t>0xFFFFFFFF)
        needed_weight = (
            self.min_weight * (self.right_weight[0] + sample.weight[at]) / self.node_weight
        )
        self.clear_side()
        for i in range(n - 1):
            at = <int64_t>(self.key[i] & <uint64_t>0xFFFFFFFF)
            left_score = self.add_to_side(sample, at, left_score)
            left_weight += sample.weight[at]
            if self.key[i] >> 32 == self.key[i + 1] >> 32:
                continue
            if i + 1 < needed or n - i - 1 < needed:
                continue
            if left_weight < needed_weight or self.right_weight[i] < needed_weight:
                continue
            if self.criterion == ENTROPY:
                score = (
                    left_score - skf_xlogx(left_weight)
                    + self.right_score[i] - skf_xlogx(self.right_weight[i])
                )
            else:
                score = left_score / left_weight + self.right_score[i] / self.right_weight[i]
            if score > best.score:
                best.score = score
                best.threshold = midpoint(
                    skf_key_value(self.key[i]), skf_key_value(self.key[i + 1])
                )
                best.exact = True
                better = True
        return better

    cdef void clear_side(self) noexcept nogil:
        cdef int32_t k
        for k in range(self.n_present):
            self.left[k] = 0

    cdef inline double add_to_side(
        self, const Sample* sample, int64_t at, double score
    ) noexcept nogil:
        """Add a row to the sums of a side; its sum of squares, or of x log x, is returned."""
        cdef int32_t k
        cdef double weight, old
        if self.is_class:
            k = sample.label[at]
            weight = sample.weight[at]
            old = self.left[k]
            self.left[k] = old + weight
            if self.criterion == ENTROPY:
                return score + skf_xlogx(old + weight) - skf_xlogx(old)
            return score + weight * (2 * old + weight)
        score = 0
        for k in range(self.n_present):
            self.left[k] = self.left[k] + sample.target[at * self.n_outputs + k]
            score += self.left[k] * self.left[k]
        return score

    cdef bint settle(self, const Best* best, Split* split) except -1 nogil:
        """Project all rows on the champion and place the threshold between them.

        A histogram knows the cut only up to a bin: the threshold goes halfway between the last
        value of the left bins and the first of the right ones, over all rows of the node.
        """
        cdef int64_t i
        cdef float low = -INFINITY, high = INFINITY
        cdef Sample* node = &self.node
        self.sampler.unfold(&self.champion, &self.table, &self.taps)
        project(&self.taps, &self.table, node.offset, node.n, self.column)
        split.threshold = best.threshold
        if not best.exact:
            skf_bins(self.column, node.n, best.low, best.scale, self.n_bins, self.cell)
            for i in range(node.n):
                if self.cell[i] <= best.cut:
                    low = max(low, self.column[i])
                else:
                    high = min(high, self.column[i])
            split.threshold = midpoint(low, high)
        self.finish(split)
        if not self.fits(split):
            return False
        split.code = self.store()
        return True

    cdef bint fits(self, const Split* split) noexcept nogil:
        """Are both children of the node at hand large enough?"""
        return (
            split.n_left >= self.min_leaf
            and self.node.n - split.n_left >= self.min_leaf
            and split.left_weight >= self.min_weight
            and self.node_weight - split.left_weight >= self.min_weight
        )

    cdef bint take_plane(
        self, const float* direction, float threshold, double least_gain, Split* split
    ) except -1 nogil:
        """Split by a hyperplane in place of the champion, a feature; False: the split stays.

        It stays where a side of the plane is too small, or its gain is less than the least.
        """
        cdef Split axis = split[0]
        cdef int32_t p = self.table.n_features
        self.taps.kind = DENSE
        self.taps.n = p
        self.taps.dense = direction
        project(&self.taps, &self.table, self.node.offset, self.node.n, self.column)
        split.threshold = threshold
        self.finish(split)
        if not self.fits(split) or split.gain < least_gain:
            self.sampler.unfold(&self.champion, &self.table, &self.taps)
            project(&self.taps, &self.table, self.node.offset, self.node.n, self.column)
            split[0] = axis
            return False
        append(&self.dense, direction, p)
        split.code = <int32_t>(p + self.dense.n // p - 1)
        return True

    cdef int32_t store(self) except -1 nogil:
        """Keep the champion; its code counts the features first, then what is stored here."""
        cdef int32_t n_features = self.table.n_features
        cdef int64_t end
        if self.champion.kind == FEATURE:
            return self.champion.feature
        if self.champion.kind == BOX:
            append(&self.box_corner, &self.champion.corner, 1)
            append(&self.box_other, &self.champion.other, 1)
            append(&self.box_size, self.champion.size, self.sampler.grid.n_axes)
            append(&self.box_subset, self.champion.subset, self.sampler.grid.n_subset_bytes)
            return n_features + <int32_t>self.box_corner.n - 1
        if self.champion.kind == PLANE:
            append(&self.dense, self.champion.weights, n_features)
            return <int32_t>(n_features + self.dense.n // n_features - 1)
        append(&self.sparse_feature, self.champion.features, self.champion.n)
        append(&self.sparse_weight, self.champion.weights, self.champion.n)
        end = self.sparse_feature.n
        append(&self.sparse_start, &end, 1)
        return n_features + <int32_t>self.sparse_start.n - 2

    def directions(self):
        """The stored directions as arrays of a Forest; no boxes, no arrays of boxes.

        A splitter stores no sparse directions or boxes beside planes.
        """
        cdef int n_axes = self.sampler.grid.n_axes
        cdef int n_bytes = self.sampler.grid.n_subset_bytes
        cdef int64_t n_boxes = self.box_corner.n
        if self.dense.n:
            dense = np.frombuffer(used_bytes(&self.dense), np.float32)
            return {"dense": dense.reshape(-1, self.table.n_features)}
        arrays = {
            "sparse_start": np.frombuffer(used_bytes(&self.sparse_start), np.int64),
            "sparse_feature": np.frombuffer(used_bytes(&self.sparse_feature), np.int32),
            "sparse_weight": np.frombuffer(used_bytes(&self.sparse_weight), np.float32),
        }
        if n_boxes:
            size = np.frombuffer(used_bytes(&self.box_size), np.int32)
            subset = np.frombuffer(used_bytes(&self.box_subset), np.uint8)
            arrays["box_corner"] = np.frombuffer(used_bytes(&self.box_corner), np.int32)
            arrays["box_other"] = np.frombuffer(used_bytes(&self.box_other), np.int32)
            arrays["box_size"] = size.reshape(n_boxes, n_axes)
            arrays["box_subset"] = subset.reshape(n_boxes, n_bytes)
        return arrays
