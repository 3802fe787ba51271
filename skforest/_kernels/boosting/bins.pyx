"""Bins of features, computed once, and of directions, computed for every tree.

A bin is an interval of a column, numbered from the left; an entry is stored as the number of its
bin, uint8. The bins of a feature have about equal numbers of rows. A direction is a sum w . x over
a few features j, which are drawn for each tree, with weights

    w_j = u / unit_j,  u uniform in (-1, 1);  sign_j |u| / unit_j  with a constraint,

so that a response which increases along it obeys the constraints of all its features. Features
that form a grid, such as an image, have boxes instead: sums over neighbours, or differences of two
such sums. The bins of a direction have about equal numbers of sampled rows; their limits lie on a
grid of equal cells.
"""

from libc.math cimport INFINITY, fabsf
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

import numpy as np

from ..base.direction cimport (
    NO_DTYPE, Box, Grid, Unfolded, as_table, project, reserve_unfolded, unfold_box, unfold_sparse
)
from ..base.memory cimport Scratch
from ..search.projection cimport BOX, BoxSampler
from ..base.random cimport Random, below, shuffle, uniform

cdef extern from "base/columns.h" nogil:
    void skf_mix_columns(
        const float*, int64_t, const int32_t*, const float*, int, int64_t, float*
    )
    void skf_bins(const float*, int64_t, float, float, int, int32_t*)

cdef extern from "boosting/histogram.h" nogil:
    int64_t skf_route_bins(
        const uint8_t*, const int32_t*, int64_t, int, unsigned, unsigned, uint8_t*, int32_t*
    )

# Chosen without a stored measurement.
cdef enum:
    BLOCK = 1024         # rows projected at once, which fit into the cache
    N_CELLS = 512        # cells of the grid for the bins of a direction
    N_SAMPLED = 256      # rows sampled for the bins of a direction
    MIN_TERMS = 2        # smallest number of features of a direction that is not a box,
    MAX_TERMS = 8        # and the largest one
    MAX_TRIES = 50       # tries of a draw that must differ from others


cdef class BinnedDirections:
    """The directions of one tree, and the bins of its rows, which are `BoostingRows`.

    boxes : the distribution of boxes; None: directions are mixtures of 2 to `max_terms` features.
    """

    def __init__(
        self, rows, int32_t n_directions, int32_t max_terms, int32_t max_bins,
        BoxSampler boxes=None
    ):
        X, columns, monotonic = rows.X, rows.columns, rows.monotonic
        self.capacity = MAX_TERMS
        memset(&self.grid, 0, sizeof(Grid))
        self.boxes = boxes
        if boxes is not None:
            self.grid, self.capacity = boxes.grid, max(self.capacity, boxes.max_terms)
        self.X = X
        self.table = as_table(X)
        self.scratch = Scratch()
        self.reserve(self.scratch, &self.unfolded)
        n_rows, self.n_features = X.shape
        self.n_rows = n_rows
        self.is_sparse = hasattr(columns, "indptr")
        if self.is_sparse:
            self.entry_start, self.entry_row = columns.indptr, columns.indices
            self.entry = columns.data
        else:
            self.column = columns
        self.unit = rows.unit
        self.n_directions = n_directions
        self.min_terms = min(<int32_t>MIN_TERMS, self.n_features)
        self.max_terms = min(max_terms, self.n_features)
        self.max_bins = max_bins
        self.is_bounded = monotonic is not None
        self.monotonic = monotonic if self.is_bounded else np.zeros(self.n_features, np.int8)
        self.sign = np.zeros(n_directions, dtype=np.int32)
        self.n_terms = np.zeros(n_directions, dtype=np.int32)
        self.term_feature = np.zeros((n_directions, self.capacity), dtype=np.int32)
        self.term_weight = np.zeros((n_directions, self.capacity), dtype=np.float32)
        self.code = np.zeros((n_directions, n_rows), dtype=np.uint8)
        self.cut = np.zeros((n_directions, max_bins), dtype=np.float32)
        self.n_cuts = np.zeros(n_directions, dtype=np.int32)
        self.bin_of_cell = np.zeros((n_directions, N_CELLS), dtype=np.uint8)
        self.low = np.zeros(n_directions, dtype=np.float32)
        self.per_cell = np.zeros(n_directions, dtype=np.float32)
        self.is_fine = np.zeros(n_directions, dtype=np.uint8)
        if boxes is not None:
            boxes.reserve_candidate(self.scratch, &self.candidate)
            self.no_table.dtype, self.no_table.n_features = NO_DTYPE, self.n_features
            self.total = np.zeros(self.n_features, dtype=np.float32)
        n_boxes = 0 if boxes is None else n_directions
        self.box_corner = np.zeros(n_boxes, dtype=np.int32)
        self.box_other = np.zeros(n_boxes, dtype=np.int32)
        self.box_size = np.zeros((n_boxes, max(self.grid.n_axes, 1)), dtype=np.int32)
        no_size = np.zeros((0, self.box_size.shape[1]), dtype=np.int32)
        self.no_boxes = np.zeros(0, np.int32), np.zeros(0, np.int32), no_size

    def terms(self, chosen):
        """Return starts, features and weights of the terms of some directions."""
        cdef int64_t[::1] own = np.asarray(chosen, dtype=np.int64), starts
        cdef int32_t[::1] features
        cdef float[::1] weights
        cdef int64_t d, t, n = 0
        start = np.zeros(len(chosen) + 1, dtype=np.int64)
        starts = start
        for d in range(own.shape[0]):
            n += self.n_terms[own[d]]
            starts[d + 1] = n
        feature, weight = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.float32)
        features, weights = feature, weight
        for d in range(own.shape[0]):
            for t in range(self.n_terms[own[d]]):
                features[starts[d] + t] = self.term_feature[own[d], t]
                weights[starts[d] + t] = self.term_weight[own[d], t]
        return start, feature, weight

    def arrays(self, chosen):
        """Return some directions as arrays of a `Forest`."""
        none = chosen[:0]
        box, row = (none, chosen) if self.boxes is None else (chosen, none)
        start, feature, weight = self.terms(row)
        corner, other, size = self.no_boxes
        if self.boxes is not None:
            corner, other = np.asarray(self.box_corner)[box], np.asarray(self.box_other)[box]
            size = np.asarray(self.box_size)[box]
        return {
            "box_corner": corner,
            "box_other": other,
            "box_size": size,
            "sparse_start": start,
            "sparse_feature": feature,
            "sparse_weight": weight,
        }

    cdef void draw(self, Random* random, const double[::1] chance) noexcept nogil:
        """Draw the features and weights of all directions.

        `chance`, of shape (n_groups * n_features,), are the cumulative chances of the features of
        every group; a direction has features of one group.
        """
        cdef int32_t d, t, other, n, feature, n_tries
        cdef int64_t first, end
        cdef bint taken
        cdef float weight
        if self.boxes is not None:
            for d in range(self.n_directions):
                self.draw_box(random, d)
            return
        for d in range(self.n_directions):
            n = self.min_terms + below(random, self.max_terms - self.min_terms + 1)
            first, end = 0, chance.shape[0]
            t = 0
            n_tries = 0
            self.sign[d] = 0
            while t < n and n_tries < MAX_TRIES:
                n_tries += 1
                feature = self.draw_feature(chance, first, end, uniform(random))
                if t == 0:
                    first += feature - feature % self.n_features
                    end = first + self.n_features
                feature = feature % self.n_features
                taken = False
                for other in range(t):
                    taken = taken or self.term_feature[d, other] == feature
                if taken:
                    continue
                weight = <float>(2 * uniform(random) - 1) / self.unit[feature]
                if self.monotonic[feature] != 0:
                    weight = self.monotonic[feature] * fabsf(weight)
                    self.sign[d] = 1
                self.term_feature[d, t] = feature
                self.term_weight[d, t] = weight
                t += 1
            self.n_terms[d] = t

    cdef void draw_box(self, Random* random, int32_t d) noexcept nogil:
        """Draw one or two boxes with several features: single features are columns already."""
        cdef int32_t t, axis, feature, n = 0, n_tries = 0
        cdef Box box
        self.boxes.start_node()
        self.boxes.sample(random, &self.candidate)
        while self.candidate.kind != BOX and n_tries < MAX_TRIES:
            self.boxes.sample(random, &self.candidate)
            n_tries += 1
        self.box_corner[d], self.box_other[d] = self.candidate.corner, self.candidate.other
        for axis in range(self.box_size.shape[1]):
            self.box_size[d, axis] = self.candidate.size[axis]
        self.set_box(d, &box)
        unfold_box(&self.unfolded, &self.boxes.grid, &box, &self.no_table)
        # Weights cancel where two boxes overlap.
        for t in range(self.unfolded.n):
            self.total[self.unfolded.position[t]] += self.unfolded.weight[t]
        for t in range(self.unfolded.n):
            feature = self.unfolded.position[t]
            if self.total[feature] != 0:
                self.term_feature[d, n], self.term_weight[d, n] = feature, self.total[feature]
                self.total[feature] = 0
                n += 1
        self.n_terms[d] = n

    cdef void set_box(self, int32_t d, Box* box) noexcept nogil:
        box.corner, box.other = self.box_corner[d], self.box_other[d]
        box.size, box.subset = &self.box_size[d, 0], NULL

    cdef int32_t draw_feature(
        self, const double[::1] chance, int64_t first, int64_t end, double at
    ) noexcept nogil:
        """Return the feature in first .. end - 1 whose cumulative chances contain `at`."""
        cdef int64_t low = first, high = end - 1, middle
        cdef double before = chance[first - 1] if first > 0 else 0
        at = before + at * (chance[high] - before)
        while low < high:
            middle = (low + high) >> 1
            if at < chance[middle]:
                high = middle
            else:
                low = middle + 1
        return <int32_t>low

    cdef int find_bins(self, Random* random, const int32_t[::1] row) except -1:
        """Find the limits of the bins of all directions from a random sample of rows.

        They are quantiles, moved to a grid of cells of equal width, so that a table gives the bin
        of a number.
        """
        cdef int32_t d
        cdef int64_t i, n_in = row.shape[0], n_sampled = min(<int64_t>N_SAMPLED, n_in)
        cdef int64_t offset[N_SAMPLED]
        self.n_cuts[:] = 0
        if self.n_directions == 0 or n_in == 0:
            return 0
        cdef int32_t[::1] position = np.arange(n_in, dtype=np.int32)
        projections = np.empty((self.n_directions, n_sampled), dtype=np.float32)
        cdef float[:, ::1] sample = projections
        with nogil:
            shuffle(random, &position[0], n_in, n_sampled)
            for i in range(n_sampled):
                offset[i] = <int64_t>row[position[n_in - 1 - i]] * self.n_features
            for d in range(self.n_directions):
                self.unfold(&self.unfolded, d)
                project(&self.unfolded, &self.table, offset, n_sampled, &sample[d, 0])
        projections.sort(axis=1)
        with nogil:
            for d in range(self.n_directions):
                self.make_bins(d, sample[d])
        return 0

    cdef void write_bins(self, int64_t first, int64_t last) noexcept nogil:
        """Write the bins of the rows first .. last - 1, in all directions.

        Rows outside the sample of a tree are included: reading whole columns is faster than
        gathering rows.
        """
        cdef int32_t d
        cdef int64_t i, n, block = first
        cdef float projected[BLOCK]
        cdef int32_t cell[BLOCK]
        cdef uint8_t* code
        cdef const uint8_t* bin_of_cell
        while block < last:
            n = min(<int64_t>BLOCK, last - block)
            for d in range(self.n_directions):
                if self.n_cuts[d] == 0:
                    continue
                self.mix_columns(d, block, n, projected)
                skf_bins(projected, n, self.low[d], self.per_cell[d], N_CELLS, cell)
                code = &self.code[d, block]
                bin_of_cell = &self.bin_of_cell[d, 0]
                for i in range(n):
                    code[i] = bin_of_cell[cell[i]]
            block += n

    cdef void mix_columns(self, int32_t d, int64_t first, int64_t n, float* out) noexcept nogil:
        """Compute the projections of n rows from `first` on."""
        cdef const int32_t* feature = &self.term_feature[d, 0]
        cdef const float* weight = &self.term_weight[d, 0]
        cdef int64_t at, low, high, end
        cdef int32_t t
        if not self.is_sparse:
            skf_mix_columns(
                &self.column[0, first], self.n_rows, feature, weight, self.n_terms[d], n, out
            )
            return
        memset(out, 0, n * sizeof(float))
        for t in range(self.n_terms[d]):
            low, end = self.entry_start[feature[t]], self.entry_start[feature[t] + 1]
            high = end
            while low < high:  # the first entry of these rows
                at = (low + high) >> 1
                if self.entry_row[at] < first:
                    low = at + 1
                else:
                    high = at
            while low < end and self.entry_row[low] < first + n:
                out[self.entry_row[low] - first] += weight[t] * self.entry[low]
                low += 1

    cdef void make_bins(self, int32_t d, const float[::1] sample) noexcept nogil:
        """Find the limits of the bins of a direction from sorted projections."""
        cdef int64_t n = sample.shape[0], k
        cdef int32_t cell, last = 0, n_cuts = 0, i
        cdef float first = sample[n // 50], end = sample[n - 1 - n // 50], per_cell
        cdef uint8_t* bin_of_cell = &self.bin_of_cell[d, 0]
        cdef float* cut = &self.cut[d, 0]
        if not end > first or end - first == INFINITY:
            first, end = sample[0], sample[n - 1]
            if not end > first or end - first == INFINITY:
                return
        per_cell = N_CELLS / (end - first)
        if not per_cell < INFINITY:
            return
        self.low[d], self.per_cell[d] = first, per_cell
        # Projections of boxes, and of sparse rows, add up in another order than columns.
        self.is_fine[d] = (
            self.boxes is None and not self.is_sparse
            and max(fabsf(first), fabsf(end)) * per_cell < 2**20
        )
        for i in range(1, self.max_bins):
            k = i * n // self.max_bins
            cell = <int32_t>min(max((sample[k] - first) * per_cell, <float>0), <float>N_CELLS)
            # The limit of a bin is the left end of a cell.
            if cell <= last or cell >= N_CELLS:
                continue
            memset(bin_of_cell + last, n_cuts, cell - last)
            cut[n_cuts] = first + cell / per_cell
            n_cuts, last = n_cuts + 1, cell
        memset(bin_of_cell + last, n_cuts, N_CELLS - last)
        self.n_cuts[d] = n_cuts

    cdef void unfold(self, Unfolded* unfolded, int32_t d) noexcept nogil:
        cdef Box box
        if self.boxes is not None:
            self.set_box(d, &box)
            unfold_box(unfolded, &self.boxes.grid, &box, &self.table)
            return
        unfold_sparse(
            unfolded, &self.term_feature[d, 0], &self.term_weight[d, 0], self.n_terms[d]
        )

    cdef int reserve(self, Scratch scratch, Unfolded* unfolded) except -1:
        unfolded[0] = reserve_unfolded(scratch, self.capacity, &self.grid)
        return 0

    cdef void route_column(
        self, const uint8_t* code, int32_t bin, const int32_t* row, int64_t n, uint8_t* is_above
    ) noexcept nogil:
        """Find the rows whose bin in a column is above `bin`."""
        cdef int64_t m, block = 0
        cdef int32_t open[BLOCK]
        while block < n:
            m = min(<int64_t>BLOCK, n - block)
            skf_route_bins(code, row + block, m, bin, 0, 0, is_above + block, open)
            block += m

    cdef void route(
        self, int32_t d, int32_t bin, Unfolded* unfolded, const int32_t* row, int64_t n,
        uint8_t* is_above
    ) noexcept nogil:
        """Find the rows whose projections, as in prediction, are above the limit of a bin.

        Only rows in the two bins beside the limit are projected, if the bins of all others are
        certain.
        """
        cdef int64_t i, m, n_open, block = 0
        cdef int32_t open[BLOCK]
        cdef int64_t offset[BLOCK]
        cdef float projected[BLOCK]
        cdef float threshold = self.cut[d, bin]
        cdef unsigned first = bin if self.is_fine[d] else 0, span = 2 if self.is_fine[d] else 256
        self.unfold(unfolded, d)
        while block < n:
            m = min(<int64_t>BLOCK, n - block)
            n_open = skf_route_bins(
                &self.code[d, 0], row + block, m, bin, first, span, is_above + block, open
            )
            for i in range(n_open):
                offset[i] = <int64_t>row[block + open[i]] * self.n_features
            project(unfolded, &self.table, offset, n_open, projected)
            for i in range(n_open):
                is_above[block + open[i]] = projected[i] > threshold
            block += m


MAX_SAMPLED = 200_000    # rows sampled for the bins of features; chosen without a measurement


def bin_columns(columns, max_bins, n_training):
    """Bin features: about equal numbers of rows in each bin, or one bin for each of a few values.

    Limits come from the first `n_training` rows; `columns` are those of `BoostingRows`. Return the
    upper limits of all bins except for the last one of each feature, one feature after the other;
    the starts of features; and the bins, uint8 of shape (n_features, n_rows).
    """
    is_sparse = hasattr(columns, "indptr")
    n_features, n_rows = columns.shape[::-1] if is_sparse else columns.shape
    codes = np.empty((n_features, n_rows), dtype=np.uint8)
    step = -(-n_training // MAX_SAMPLED)
    cuts = []
    for j in range(n_features):
        column = dense_column(columns, j) if is_sparse else columns[j]
        cuts.append(column_cuts(column[:n_training:step], max_bins))
        write_codes(column, cuts[j], codes[j])
    start = np.cumsum([0] + [len(cut) for cut in cuts], dtype=np.int32)
    return np.concatenate(cuts), start, codes


def dense_column(X, j):
    """Return a column of a CSC matrix."""
    column = np.zeros(X.shape[0], dtype=np.float32)
    own = slice(X.indptr[j], X.indptr[j + 1])
    column[X.indices[own]] = X.data[own]
    return column


def column_cuts(column, max_bins):
    """Return the limits between bins, float32: halfway between neighbouring values."""
    values, counts = np.unique(column, return_counts=True)
    if len(values) > max_bins:
        # A bin ends where the count reaches a multiple of the mean of all bins.
        ends = np.cumsum(counts)
        places = np.searchsorted(ends, len(column) * np.arange(1, max_bins) / max_bins)
        last = np.unique(places[places < len(values) - 1])
    else:
        last = np.arange(len(values) - 1)
    low, high = values[last], values[last + 1]
    middle = (low.astype(np.float64) + high) / 2
    # Halfway between neighbouring floats may round up to the upper one.
    middle = middle.astype(np.float32)
    return np.where(middle < high, middle, low)


cdef int write_codes(const float[::1] column, const float[::1] cut, uint8_t[::1] code) except -1:
    """Count the limits below each entry, by bisection without branches."""
    cdef int64_t i
    cdef int32_t low, left, half
    with nogil:
        for i in range(column.shape[0]):
            low, left = 0, <int32_t>cut.shape[0]
            while left > 0:  # the result is among low .. low + left
                half = (left + 1) >> 1
                low += half * (cut[low + half - 1] < column[i])
                left -= half
            code[i] = <uint8_t>low
    return 0
