"""Rows in the order of the nodes of a boosted tree, and sums over leaves and features.

The rows of a node have consecutive positions. When nodes are split, all their rows are routed
(`route`), and copied to their places, left rows first and otherwise in the same order (`place`).
Both take any part of the rows, so they can run in several threads, with the same result.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

import numpy as np

from .bins cimport BinnedDirections
from ..base.direction cimport Unfolded
from ..base.memory cimport Scratch
from ..base.random cimport Random, hash_seed, uniform

cdef extern from "boosting/histogram.h" nogil:
    void skf_count_flags(const uint8_t*, int64_t, int64_t*)
    void skf_place(const int32_t*, const uint8_t*, int64_t, int64_t, int64_t, int32_t*)


cdef class RowPartition:
    """The rows of a tree; code : bins of the features, uint8 of shape (n_features, n_rows)."""

    def __init__(self, const uint8_t[:, ::1] code, BinnedDirections directions not None):
        n_rows = code.shape[1]
        self.code, self.directions = code, directions
        self.row, self.copy = np.empty(n_rows, np.int32), np.empty(n_rows, np.int32)
        self.goes_right = np.empty(n_rows, dtype=np.uint8)

    cdef int start_splits(self, int32_t n) except -1:
        """Reserve memory for n segments."""
        cdef uint8_t[::1] view
        self.segment_bytes = np.zeros(max(n, 1) * sizeof(Segment), dtype=np.uint8)
        view = self.segment_bytes
        self.segments, self.n_segments, self.n_routed = <Segment*>&view[0], 0, 0
        return 0

    cdef void add(self, int64_t start, int64_t end, int32_t column, int32_t bin) noexcept:
        """Add a segment of rows."""
        cdef Segment* segment = self.segments + self.n_segments
        segment.start, segment.n, segment.before = start, end - start, self.n_routed
        segment.column, segment.bin = column, bin
        self.n_segments += 1
        self.n_routed += segment.n

    cdef int64_t n_left_in(self, const Segment* segment, int64_t n) noexcept nogil:
        """Count the rows that go left among the first n rows of a segment."""
        cdef int64_t n_right = 0
        if n > 0:
            skf_count_flags(&self.goes_right[segment.start], n, &n_right)
        return n - n_right

    cdef int64_t n_left(self, int32_t place) noexcept nogil:
        """Count the rows of a segment that go left."""
        return self.n_left_in(self.segments + place, self.segments[place].n)

    cdef void keep(self, int32_t place) noexcept nogil:
        """Put the rows of a segment in their new order."""
        cdef const Segment* segment = self.segments + place
        if segment.n > 0:
            memcpy(
                &self.row[segment.start], &self.copy[segment.start], segment.n * sizeof(int32_t)
            )

    def route(self, int64_t first, int64_t last):
        """Find the sides of the rows first .. last - 1 of all segments."""
        cdef int32_t s, n_features = <int32_t>self.code.shape[0]
        cdef int64_t begin, n
        cdef const Segment* segment
        cdef Unfolded unfolded
        scratch = Scratch()  # of this thread
        self.directions.reserve(scratch, &unfolded)
        with nogil:
            for s in range(self.n_segments):
                segment = self.segments + s
                begin = max(first - segment.before, <int64_t>0)
                n = min(last - segment.before, segment.n) - begin
                if n <= 0:
                    continue
                begin += segment.start
                if segment.column < n_features:
                    self.directions.route_column(
                        &self.code[segment.column, 0], segment.bin, &self.row[begin], n,
                        &self.goes_right[begin]
                    )
                else:
                    self.directions.route(
                        segment.column - n_features, segment.bin, &unfolded, &self.row[begin], n,
                        &self.goes_right[begin]
                    )

    def place(self, int64_t first, int64_t last):
        """Copy the rows first .. last - 1 of all segments to their places."""
        cdef int32_t s
        cdef int64_t begin, n, low
        cdef const Segment* segment
        with nogil:
            for s in range(self.n_segments):
                segment = self.segments + s
                begin = max(first - segment.before, <int64_t>0)
                n = min(last - segment.before, segment.n) - begin
                if n <= 0:
                    continue
                low = self.n_left_in(segment, begin)
                skf_place(
                    &self.row[segment.start + begin], &self.goes_right[segment.start + begin], n,
                    low, self.n_left(s) + begin - low, &self.copy[segment.start]
                )


def draw_rows(const int32_t[::1] rows, int64_t n, int64_t n_rows, seed):
    """Draw n of some ascending rows; return them, and all others of n_rows rows, ascending.

    Each row is drawn with the chance (rows still needed) / (rows left).
    """
    cdef int64_t i, left = rows.shape[0], needed = n, n_out = 0
    cdef Random random
    random.state = hash_seed(seed, 1)
    drawn, rest = np.empty(n, dtype=np.int32), np.empty(n_rows - n, dtype=np.int32)
    cdef int32_t[::1] own = drawn, others = rest
    with nogil:
        for i in range(n_rows):
            if left > 0 and rows[rows.shape[0] - left] == i:
                left -= 1
                if uniform(&random) * (left + 1) < needed:
                    own[n - needed] = <int32_t>i
                    needed -= 1
                    continue
            others[n_out] = <int32_t>i
            n_out += 1
    return drawn, rest


def divided(const uint8_t[::1] is_taken):
    """Return the rows that are taken, and all others, ascending."""
    cdef int64_t i, n = 0, n_out = 0, n_rows = is_taken.shape[0]
    for i in range(n_rows):
        n += is_taken[i] != 0
    taken, rest = np.empty(n, dtype=np.int32), np.empty(n_rows - n, dtype=np.int32)
    cdef int32_t[::1] own = taken, others = rest
    n = 0
    with nogil:
        for i in range(n_rows):
            if is_taken[i]:
                own[n] = <int32_t>i
                n += 1
            else:
                others[n_out] = <int32_t>i
                n_out += 1
    return taken, rest


def add_gains(
    const int32_t[::1] direction, const float[::1] gain, const int64_t[::1] start,
    const int32_t[::1] feature, double[::1] importance
):
    """Add the gains of the splits of a tree to their features; directions share them equally.

    Parameters are arrays of the tree; importance : (n_features,).
    """
    cdef int64_t s, t, n_features = importance.shape[0]
    cdef int32_t d
    found = np.zeros((2, n_features)), np.zeros(start.shape[0])
    cdef double[:, ::1] total = found[0]
    cdef double[::1] of_direction = found[1]
    with nogil:
        for s in range(direction.shape[0]):
            if direction[s] < n_features:
                total[0, direction[s]] += gain[s]
            else:
                of_direction[direction[s] - n_features] += gain[s]
        for d in range(<int32_t>start.shape[0] - 1):
            for t in range(start[d], start[d + 1]):
                total[1, feature[t]] += of_direction[d] / (start[d + 1] - start[d])
        for s in range(n_features):
            importance[s] = importance[s] + total[0, s] + total[1, s]


def leaf_sums(
    const int32_t[::1] leaf, const int32_t[::1] rows, const float[:, ::1] gradient,
    const float[:, ::1] curvature, int64_t n_leaves
):
    """Return sums of gradients and curvatures in each leaf: (2, n_leaves, n_outputs)."""
    cdef int64_t i, k, n_outputs = gradient.shape[1]
    cdef int32_t own
    sums = np.zeros((2, n_leaves, n_outputs))
    cdef double[:, :, ::1] total = sums
    with nogil:
        for i in range(rows.shape[0]):
            own = leaf[rows[i]]
            for k in range(n_outputs):
                total[0, own, k] += gradient[rows[i], k]
                total[1, own, k] += curvature[rows[i], k]
    return sums


def add_values(
    const int32_t[::1] leaf, const double[:, ::1] value, double[:, ::1] raw, int64_t first,
    int64_t last
):
    """Add the values of their leaves to the raw predictions of the rows first .. last - 1."""
    cdef int64_t i, k
    with nogil:
        for i in range(first, last):
            for k in range(raw.shape[1]):
                raw[i, k] += value[leaf[i], k]
