"""Search of a split among random directions.

A node draws `n_candidates` directions a, projects its rows on each, and cuts every column a . x
where the score of the two sides (see split.pyx) is largest: between any two sorted values, or
between the bins of an equal-width histogram. The histogram needs one pass over the column instead
of a sort; its threshold is then placed halfway between the two values next to the cut, so that
the split is exact although it was searched in bins. The loops are in columns.h.

Large nodes search in a random subset of their rows. The gain of the split, and the rows that go
left, are always computed from all rows of the node.
"""

from libc.math cimport INFINITY, fabs, isfinite
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

import numpy as np

from ..base.direction cimport CSR, DENSE, project, reserve_unfolded
from ..base.memory cimport Buffer, Scratch, allocate
from .projection cimport BOX, FEATURE, PLANE, AxisSampler, Candidate, is_rounding
from ..base.random cimport uniform
from .sample_columns cimport SampleColumns
from .split cimport ENTROPY, NodeSplitter, Sample, Split

cdef extern from "base/columns.h" nogil:
    void skf_range(const float*, int64_t, float*, float*)
    void skf_bins(const float*, int64_t, float, float, int, int32_t*)
    void skf_cells(const float*, int64_t, float, float, int, const int32_t*, int32_t*)
    void skf_prefix(double*, int, int)
    void skf_score_squares(const double*, const double*, int, int, double*, double*)
    void skf_score_entropy(const double*, const double*, int, int, double*, double*)
    double skf_xlogx(double)
    uint64_t skf_sort_key(float, uint32_t)
    float skf_key_value(uint64_t)
    void skf_sort(uint64_t*, uint64_t*, int64_t)

# Chosen without a stored measurement.
cdef enum:
    SORTED_ROWS = 24    # up to this number of rows, sorting is faster than a histogram
    MAX_ZOOMS = 8       # largest number of divided bins for one candidate
    FEW_BINS = 8        # a bin with more than 1 / FEW_BINS of the weight is divided


cdef inline float midpoint(float a, float b) noexcept nogil:
    """Return a float32 in [a, b), halfway unless they are neighbours."""
    cdef float middle = <float>0.5 * a + <float>0.5 * b
    return middle if middle < b else a


cdef inline int64_t row_of_key(uint64_t key) noexcept nogil:
    """Return the row of a sort key, see skf_sort_key."""
    return <int64_t>(key & <uint64_t>0xFFFFFFFF)


cdef class SearchSplitter(NodeSplitter):
    """Splits by the best of some random directions.

    `sampler` draws `n_candidates` directions in a node; it has state, so each splitter needs its
    own. If all of them are constant in the node, features are tried until one varies. Columns are
    sorted if `exact`; otherwise they are cut between `n_bins` bins except in the smallest nodes.
    Nodes with more than `max_search_samples` rows search in a random subset. With `may_overflow`,
    values are so large that a projection may exceed float32.
    """

    def __init__(self, training_set, options, uint64_t seed, stop):
        NodeSplitter.__init__(self, training_set, options, seed, stop)
        self.sampler = options.sampler
        self.features = AxisSampler(self.table.n_features)
        self.n_candidates = options.n_candidates
        self.exact, self.n_bins = options.exact, options.n_bins
        self.zooms = options.zooms
        self.max_search_samples = options.max_search_samples
        self.min_samples_leaf = options.min_samples_leaf
        self.min_weight_leaf = options.min_weight_leaf
        self.may_overflow, self.largest = options.may_overflow, options.largest
        self._reserve()
        self.box_corner = Buffer(sizeof(int32_t))
        self.box_other = Buffer(sizeof(int32_t))
        self.box_size = Buffer(sizeof(int32_t))
        self.box_subset = Buffer(1)
        self.sparse_start = Buffer(sizeof(int64_t))
        self.sparse_feature = Buffer(sizeof(int32_t))
        self.sparse_weight = Buffer(sizeof(float))
        self.dense = Buffer(sizeof(float))
        cdef int64_t start = 0
        self.sparse_start.append(&start, 1)

    def _reserve(self):
        cdef Scratch scratch = self.scratch
        cdef int64_t n_subset = min(self.n_rows, self.max_search_samples)
        cdef int32_t n_bins = self.n_bins
        cdef int32_t n_terms = max(self.sampler.max_terms, 1)
        self.unfolded = reserve_unfolded(scratch, n_terms, &self.sampler.grid)
        self.sampler.reserve_candidate(scratch, &self.candidate)
        self.sampler.reserve_candidate(scratch, &self.best)
        self.subset.offset = scratch.longs(n_subset)
        self.subset.label = scratch.ints(n_subset)
        self.subset.weight = scratch.doubles(n_subset)
        if not self.is_class:
            self.subset.target = scratch.doubles(n_subset * self.n_outputs)
        self.is_sparse = self.table.dtype == CSR
        if self.is_sparse:
            self.columns = SampleColumns()
            self.columns.reserve(scratch, &self.table)
        self.histogram = scratch.doubles(<int64_t>self.n_outputs * n_bins)
        self.cell = scratch.ints(self.n_rows)
        allocate[double](
            scratch, n_bins,
            [&self.bin_weight, &self.bin_count, &self.bin_left, &self.bin_score, NULL]
        )
        self.n_searched = 0
        self._reserve_searched(n_subset)

    def _reserve_searched(self, int64_t n):
        """Allocate what a search among n rows needs; this is replaced when more are searched."""
        cdef Scratch scratch = Scratch()
        n = min(self.n_rows, max(n, 2 * self.n_searched))
        self.candidate_column = scratch.floats(n)
        self.base = scratch.ints(n)
        self.key = <uint64_t*>scratch.longs(n)
        self.key_spare = <uint64_t*>scratch.longs(n)
        allocate[double](scratch, n, [&self.right_score, &self.right_weight, NULL])
        self.search_scratch, self.n_searched = scratch, n

    cdef int reserve_searched(self, int64_t n) except -1 nogil:
        if n > self.n_searched:
            with gil:
                self._reserve_searched(n)
        return 0

    cdef bint search(self, Split* split) except -1 nogil:
        """Find the best split among the candidates.

        A large node searches in a random subset of its rows. If the subset is pure, or its best
        cut leaves a child too small, all rows are searched.
        """
        if self.node.n > self.max_search_samples:
            self.draw_subset()
            if not self.subset_is_pure and self.search_sample(&self.subset, split):
                return True
        return self.search_sample(&self.node, split)

    cdef void draw_subset(self) noexcept nogil:
        """Draw one random row from each of max_search_samples equal stretches of the node."""
        cdef Sample* node = &self.node
        cdef Sample* subset = &self.subset
        cdef int64_t i, at, first = 0
        cdef int32_t k
        cdef double stretch = <double>node.n / self.max_search_samples
        cdef bint pure = True
        subset.n = self.max_search_samples
        for i in range(subset.n):
            at = min(<int64_t>((i + uniform(&self.random)) * stretch), node.n - 1)
            if i == 0:
                first = at
            subset.offset[i] = node.offset[at]
            subset.weight[i] = node.weight[at]
            if self.is_class:
                subset.label[i] = node.label[at]
                pure = pure and node.label[at] == node.label[first]
                continue
            for k in range(self.n_outputs):
                subset.target[i * self.n_outputs + k] = node.target[at * self.n_outputs + k]
                # The target is multiplied by the weight, so equal targets differ by rounding.
                pure = pure and fabs(
                    node.target[at * self.n_outputs + k] * node.weight[first]
                    - node.target[first * self.n_outputs + k] * node.weight[at]
                ) <= 1e-12 * node.weight[first] * node.weight[at]
        self.subset_is_pure = pure

    cdef bint search_sample(self, Sample* sample, Split* split) except -1 nogil:
        """Try candidates on a sample of the node; measure the best split on all rows."""
        cdef Cut cut
        cdef int64_t i
        cut.score = -INFINITY
        # All rows of a node are searched if its subset is pure by chance.
        self.reserve_searched(sample.n)
        if self.is_class:
            for i in range(sample.n):
                self.base[i] = sample.label[i] * self.n_bins
        if self.is_sparse:
            self.columns.load(sample.offset, sample.n, self.n_candidates)
        self.sampler.start_node()
        for _ in range(self.n_candidates):
            if not self.sampler.sample(&self.random, &self.candidate):
                break
            if self.should_stop(sample.n * (8 + self.sampler.max_nonzero)):
                return False
            self.sampler.unfold(&self.candidate, &self.table, &self.unfolded)
            self.try_candidate(sample, &cut)
        if cut.score == -INFINITY:
            # All candidates are constant: use the first feature that varies.
            self.features.start_node()
            while cut.score == -INFINITY:
                if not self.features.sample(&self.random, &self.candidate):
                    return False
                if self.should_stop(sample.n):
                    return False
                self.features.unfold(&self.candidate, &self.table, &self.unfolded)
                self.try_candidate(sample, &cut)
        return self.finalize_split(&cut, split)

    cdef bint try_candidate(self, Sample* sample, Cut* cut) noexcept nogil:
        """Project on the candidate and cut; keep it if its score is higher.

        False if the column is not finite, or constant up to rounding errors, as combinations of
        proportional features may be, such as a length in two units.
        """
        cdef float low = 0, high = 0
        cdef bint better
        cdef int64_t i
        cdef Candidate swap
        if not self.is_sparse or not self.columns.is_loaded:
            project(&self.unfolded, &self.table, sample.offset, sample.n, self.candidate_column)
        elif not self.columns.project(&self.unfolded, self.candidate_column):
            return False
        skf_range(self.candidate_column, sample.n, &low, &high)
        # A column that overflows to infinity has no threshold that divides it well.
        if not (high > low) or not isfinite(low) or not isfinite(high):
            return False
        if is_rounding(
            &self.unfolded, &self.table, sample.offset, self.candidate_column, sample.n, low, high,
            self.largest
        ):
            return False
        if self.may_overflow:
            for i in range(sample.n):       # low and high skip NaN from infinity minus infinity
                if not isfinite(self.candidate_column[i]):
                    return False
        if (
            self.exact
            or sample.n <= SORTED_ROWS
            or not isfinite(high - low)
            or not isfinite(self.n_bins / (high - low))
        ):
            better = self.cut_sorted(sample, cut)
        else:
            better = self.cut_histogram(sample, low, high, cut)
        if better:
            swap = self.best
            self.best = self.candidate
            self.candidate = swap
        return True

    cdef bint cut_histogram(self, Sample* sample, float low, float high, Cut* cut) noexcept nogil:
        """Find the best cut between equal-width bins; with `zooms`, also within some of them.

        An outlier makes bins so wide that a few have nearly all rows. These are then divided into
        bins, too; other rows count as part of the first or last one.
        """
        cdef bint better = False
        cdef float ends[2 * (MAX_ZOOMS + 1)]
        cdef int32_t n_ranges = 1, n = 0
        ends[0], ends[1] = low, high
        while n < n_ranges:
            better |= self.cut_bins(sample, ends[2 * n], ends[2 * n + 1], cut)
            if self.zooms:
                n_ranges = self.add_heavy_bins(sample, ends, n, n_ranges)
            n += 1
        return better

    cdef int32_t add_heavy_bins(
        self, const Sample* sample, float* ends, int32_t n, int32_t n_ranges
    ) noexcept nogil:
        """Append the ranges of bins with many rows and several values; return the new number.

        `ends` has the ends of `n_ranges` ranges; the bins are in range n.
        """
        cdef int32_t b, bin, k, n_bins = self.n_bins, n_heavy = 0
        cdef int32_t heavy[MAX_ZOOMS]
        cdef int64_t i
        cdef float low = ends[2 * n], high = ends[2 * n + 1], value
        cdef float* first = ends + 2 * n_ranges
        cdef double least = self.bin_weight[n_bins - 1] / FEW_BINS
        for b in range(n_bins):
            if n_ranges + n_heavy > MAX_ZOOMS:
                break
            if self.bin_weight[b] - (self.bin_weight[b - 1] if b else 0) > least:
                heavy[n_heavy] = b
                first[2 * n_heavy], first[2 * n_heavy + 1] = INFINITY, -INFINITY
                n_heavy += 1
        if n_heavy == 0:
            return n_ranges
        for i in range(sample.n):
            value = self.candidate_column[i]
            if not low <= value <= high:       # part of the first or last bin
                continue
            bin = self.cell[i] % n_bins if self.is_class else self.cell[i]
            for k in range(n_heavy):
                if bin == heavy[k]:
                    first[2 * k] = min(first[2 * k], value)
                    first[2 * k + 1] = max(first[2 * k + 1], value)
        for k in range(n_heavy):
            low, high = first[2 * k], first[2 * k + 1]
            if low < high and (low > ends[2 * n] or high < ends[2 * n + 1]):
                if isfinite(n_bins / (high - low)):
                    ends[2 * n_ranges], ends[2 * n_ranges + 1] = low, high
                    n_ranges += 1
        return n_ranges

    cdef bint cut_bins(self, Sample* sample, float low, float high, Cut* cut) noexcept nogil:
        """Find the best cut between bins of equal width from low to high."""
        cdef int32_t b, found = -1
        cdef float scale = self.n_bins / (high - low)
        cdef double score = cut.score
        self.score_bins(sample, low, scale)
        self.forbid_small_children(sample)
        for b in range(self.n_bins - 1):
            if self.bin_score[b] > score:
                score = self.bin_score[b]
                found = b
        if found < 0:
            return False
        cut.score = score
        cut.is_exact = False
        cut.low = low
        cut.scale = scale
        cut.bin = found
        return True

    cdef void score_bins(self, Sample* sample, float low, float scale) noexcept nogil:
        """Set the score of a cut after each bin, and the weight up to it."""
        cdef int32_t n_bins = self.n_bins
        cdef int32_t k, b
        cdef int64_t i
        cdef double* row
        # Local pointers, because the compiler cannot know that stores do not change attributes.
        cdef double* histogram = self.histogram
        cdef double* bin_weight = self.bin_weight
        cdef const int32_t* cell = self.cell
        memset(histogram, 0, <size_t>self.n_present * n_bins * sizeof(double))
        memset(bin_weight, 0, n_bins * sizeof(double))
        if self.is_class:
            skf_cells(self.candidate_column, sample.n, low, scale, n_bins, self.base, self.cell)
            for i in range(sample.n):
                histogram[cell[i]] += sample.weight[i]
        else:
            skf_bins(self.candidate_column, sample.n, low, scale, n_bins, self.cell)
            for i in range(sample.n):
                bin_weight[cell[i]] += sample.weight[i]
            for k in range(self.n_present):
                row = histogram + k * n_bins
                for i in range(sample.n):
                    row[cell[i]] += sample.target[i * self.n_outputs + k]
            skf_prefix(bin_weight, 1, n_bins)
        skf_prefix(histogram, self.n_present, n_bins)
        if self.is_class:
            for k in range(self.n_present):
                row = histogram + k * n_bins
                for b in range(n_bins):
                    bin_weight[b] += row[b]
        if self.criterion == ENTROPY:
            skf_score_entropy(
                histogram, bin_weight, self.n_present, n_bins, self.bin_left, self.bin_score
            )
        else:
            skf_score_squares(
                histogram, bin_weight, self.n_present, n_bins, self.bin_left, self.bin_score
            )

    cdef void forbid_small_children(self, const Sample* sample) noexcept nogil:
        """Set the score of cuts that leave a child too small to -infinity.

        In a subset, a child needs the same share of the rows and of the weight as in the node.
        """
        cdef int32_t b, n_bins = self.n_bins
        cdef int64_t i
        cdef double needed, total
        cdef double* bin_count = self.bin_count
        if self.min_samples_leaf > 1:
            needed = <double>self.min_samples_leaf * sample.n / self.node.n
            memset(bin_count, 0, n_bins * sizeof(double))
            for i in range(sample.n):
                b = self.cell[i]
                bin_count[b % n_bins if self.is_class else b] += 1
            skf_prefix(bin_count, 1, n_bins)
            for b in range(n_bins):
                if bin_count[b] < needed or sample.n - bin_count[b] < needed:
                    self.bin_score[b] = -INFINITY
        if self.min_weight_leaf > 0:
            total = self.bin_weight[n_bins - 1]
            needed = self.min_weight_leaf * total / self.node_weight
            for b in range(n_bins):
                if self.bin_weight[b] < needed or total - self.bin_weight[b] < needed:
                    self.bin_score[b] = -INFINITY

    cdef bint cut_sorted(self, Sample* sample, Cut* cut) noexcept nogil:
        """Find the best cut between any two different values.

        The sums of both sides grow from their ends towards the cut, a row at a time. Nothing is
        subtracted, so rounding errors of a heavy row do not hide light ones.
        """
        cdef int64_t i, at, n = sample.n
        cdef double left_score = 0, left_weight = 0, score
        cdef double needed = <double>self.min_samples_leaf * n / self.node.n
        cdef double needed_weight
        cdef bint better = False
        for i in range(n):
            self.key[i] = skf_sort_key(self.candidate_column[i], <uint32_t>i)
        skf_sort(self.key, self.key_spare, n)
        self.score_right_sides(sample)
        at = row_of_key(self.key[0])
        needed_weight = (
            self.min_weight_leaf * (self.right_weight[0] + sample.weight[at]) / self.node_weight
        )
        self.clear_side()
        for i in range(n - 1):
            at = row_of_key(self.key[i])
            left_score = self.add_to_side(sample, at, left_score)
            left_weight += sample.weight[at]
            if self.key[i] >> 32 == self.key[i + 1] >> 32:      # equal values
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
            if score > cut.score:
                cut.score = score
                cut.threshold = midpoint(
                    skf_key_value(self.key[i]), skf_key_value(self.key[i + 1])
                )
                cut.is_exact = True
                better = True
        return better

    cdef void score_right_sides(self, Sample* sample) noexcept nogil:
        """Set right_score and right_weight, for the sorted rows after each row."""
        cdef int64_t i, at, n = sample.n
        self.clear_side()
        self.right_score[n - 1] = 0
        self.right_weight[n - 1] = 0
        for i in range(n - 1, 0, -1):
            at = row_of_key(self.key[i])
            self.right_score[i - 1] = self.add_to_side(sample, at, self.right_score[i])
            self.right_weight[i - 1] = self.right_weight[i] + sample.weight[at]

    cdef void clear_side(self) noexcept nogil:
        cdef int32_t k
        for k in range(self.n_present):
            self.left[k] = 0

    cdef inline double add_to_side(
        self, const Sample* sample, int64_t at, double score
    ) noexcept nogil:
        """Add a row to the sums of a side; return its sum of squares, or of x log x.

        A label changes one sum only, so its score is updated instead of added up again.
        """
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

    cdef bint finalize_split(self, const Cut* cut, Split* split) except -1 nogil:
        """Project all rows on the best candidate, place the threshold and measure the split.

        A histogram gives the cut up to a bin. The threshold is placed halfway between the largest
        value of the left bins and the smallest one of the right bins, over all rows of the node.
        """
        cdef int64_t i
        cdef float low = -INFINITY, high = INFINITY
        cdef Sample* node = &self.node
        self.project_best()
        split.threshold = cut.threshold
        if not cut.is_exact:
            skf_bins(self.column, node.n, cut.low, cut.scale, self.n_bins, self.cell)
            for i in range(node.n):
                if self.cell[i] <= cut.bin:
                    low = max(low, self.column[i])
                else:
                    high = min(high, self.column[i])
            split.threshold = midpoint(low, high)
        self.measure_split(split)
        if not self.are_children_large(split):
            return False
        split.code = self.store_best()
        return True

    cdef bint are_children_large(self, const Split* split) noexcept nogil:
        """Return whether both children of the current node have enough rows and weight."""
        return (
            split.n_left >= self.min_samples_leaf
            and self.node.n - split.n_left >= self.min_samples_leaf
            and split.left_weight >= self.min_weight_leaf
            and self.node_weight - split.left_weight >= self.min_weight_leaf
        )

    cdef bint accept_plane(
        self, const float* direction, float threshold, double min_gain, Split* split
    ) except -1 nogil:
        """Replace the split of the best candidate by the split of a hyperplane.

        False if a child would be too small, or the gain less than min_gain.
        """
        cdef Split before = split[0]
        self.project_plane(direction)
        split.threshold = threshold
        self.measure_split(split)
        if not self.are_children_large(split) or split.gain < min_gain:
            self.project_best()
            split[0] = before
            return False
        split.code = self.store_plane(direction)
        return True

    cdef void project_best(self) noexcept nogil:
        """Set `column` to the projection of the rows on the best candidate."""
        self.sampler.unfold(&self.best, &self.table, &self.unfolded)
        project(&self.unfolded, &self.table, self.node.offset, self.node.n, self.column)

    cdef void project_plane(self, const float* direction) noexcept nogil:
        """Set `column` to the projection of the rows on a dense direction."""
        self.unfolded.kind = DENSE
        self.unfolded.n = self.table.n_features
        self.unfolded.dense = direction
        project(&self.unfolded, &self.table, self.node.offset, self.node.n, self.column)

    cdef int32_t store_plane(self, const float* direction) except -1 nogil:
        """Store a dense direction; return its code."""
        cdef int32_t n_features = self.table.n_features
        self.dense.append(direction, n_features)
        return <int32_t>(n_features + self.dense.n // n_features - 1)

    cdef int32_t store_best(self) except -1 nogil:
        """Store the best candidate; return its code.

        Codes number the features first, then the directions stored here.
        """
        cdef int32_t n_features = self.table.n_features
        cdef int64_t end
        if self.best.kind == FEATURE:
            return self.best.feature
        if self.best.kind == BOX:
            self.box_corner.append(&self.best.corner, 1)
            self.box_other.append(&self.best.other, 1)
            self.box_size.append(self.best.size, self.sampler.grid.n_axes)
            self.box_subset.append(self.best.subset, self.sampler.grid.n_subset_bytes)
            return n_features + <int32_t>self.box_corner.n - 1
        if self.best.kind == PLANE:
            return self.store_plane(self.best.weights)
        self.sparse_feature.append(self.best.features, self.best.n)
        self.sparse_weight.append(self.best.weights, self.best.n)
        end = self.sparse_feature.n
        self.sparse_start.append(&end, 1)
        return n_features + <int32_t>self.sparse_start.n - 2

    def directions(self):
        """Return the stored directions as arrays of a `Forest`: dense ones, or sparse and boxes.

        A splitter that stores dense directions stores no sparse ones and no boxes, so the codes
        above need not be renumbered.
        """
        cdef int64_t n_boxes = self.box_corner.n
        if self.dense.n:
            return {"dense": self.dense.array(np.float32).reshape(-1, self.table.n_features)}
        arrays = {
            "sparse_start": self.sparse_start.array(np.int64),
            "sparse_feature": self.sparse_feature.array(np.int32),
            "sparse_weight": self.sparse_weight.array(np.float32),
        }
        if n_boxes:
            size = self.box_size.array(np.int32)
            subset = self.box_subset.array(np.uint8)
            arrays["box_corner"] = self.box_corner.array(np.int32)
            arrays["box_other"] = self.box_other.array(np.int32)
            arrays["box_size"] = size.reshape(n_boxes, self.sampler.grid.n_axes)
            arrays["box_subset"] = subset.reshape(n_boxes, self.sampler.grid.n_subset_bytes)
        return arrays
