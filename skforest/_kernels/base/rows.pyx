"""Rows of a training set: canonical order, equal rows, bootstrap draws, batches.

`RowOrder` hashes (x, y) rows, sorts them by hash and finds equal ones, so that a forest depends
only on the set of rows: not on the order of the samples, nor on whether a row is given k times or
has weight k. The order looks random to any model, so the neighbours of a row in memory say nothing
about it. `skforest.table.training_set` builds on this.

`BatchSampler` draws the batches of stochastic gradient descent, epoch by epoch and in proportion
to weights. An epoch has row i floor(c_i + u) times, with c_i = weight_i / (mean weight) and a new
uniform u in [0, 1): c_i times on average. The order within an epoch is random. A batch may extend
over the end of an epoch.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from .random cimport Random, below, draw_item, hash_seed, next_word, shuffle, uniform


def tree_seed(uint64_t seed, uint64_t tree):
    """Return the seed of one tree, in 0 .. 2^64 - 1: a hash of (seed, tree)."""
    return hash_seed(seed, tree)


def random_stream(uint64_t seed, number=None):
    """Return a RandomState for the draws of training in Python, of seed or (seed, number).

    Only the streams of RandomState are the same in all versions of NumPy.
    """
    if number is not None:
        seed = hash_seed(seed, number)
    return np.random.RandomState(seed % <uint64_t>2**32)


cdef inline uint64_t mixed(uint64_t hash_, uint64_t word) noexcept nogil:
    hash_ = (hash_ ^ word) * <uint64_t>0x9FB21C651E98DF25
    return hash_ ^ (hash_ >> 35)


cdef uint64_t hash_bytes(const uint8_t* at, int64_t n, uint64_t hash_) noexcept nogil:
    cdef uint64_t word
    while n >= 8:
        memcpy(&word, at, 8)
        hash_ = mixed(hash_, word)
        at += 8
        n -= 8
    word = 0
    memcpy(&word, at, n)
    return mixed(hash_, word)


cdef uint64_t hash_floats(const float* at, int64_t n, uint64_t hash_) noexcept nogil:
    """As hash_bytes, but -0.0 is equal to 0.0."""
    cdef int64_t j
    cdef float value
    cdef uint64_t word = 0
    for j in range(n):
        value = at[j] + <float>0
        memcpy(&word, &value, 4)
        hash_ = mixed(hash_, word)
    return hash_


ctypedef fused number_t:
    uint8_t
    float
    double


cdef int compare(const number_t* a, const number_t* b, int64_t n) noexcept nogil:
    """Return -1, 0 or 1: the order of the first numbers that differ."""
    cdef int64_t j
    for j in range(n):
        if a[j] != b[j]:
            return -1 if a[j] < b[j] else 1
    return 0


cdef class RowOrder:
    """Hash order of (x, y) rows without NaN, and their equality."""

    cdef const uint8_t[:, ::1] bytes_
    cdef const float[:, ::1] floats
    cdef const double[:, ::1] Y
    cdef bint is_bytes

    def __init__(self, X, Y):
        self.is_bytes = X.dtype == np.uint8
        if self.is_bytes:
            self.bytes_ = X
        else:
            self.floats = X
        self.Y = Y

    cdef int order_of(self, int64_t a, int64_t b) noexcept nogil:
        cdef int order
        if self.is_bytes:
            order = compare(&self.bytes_[a, 0], &self.bytes_[b, 0], self.bytes_.shape[1])
        else:
            order = compare(&self.floats[a, 0], &self.floats[b, 0], self.floats.shape[1])
        if order == 0:
            order = compare(&self.Y[a, 0], &self.Y[b, 0], self.Y.shape[1])
        return order

    def hashes(self, const int64_t[::1] rows):
        """Return the hash of each of the rows: ndarray of shape (n_rows,), uint64."""
        cdef int64_t i, j, row
        cdef uint64_t hash_, word = 0
        cdef double value
        result = np.empty(rows.shape[0], dtype=np.uint64)
        cdef uint64_t[::1] out = result
        with nogil:
            for i in range(rows.shape[0]):
                row = rows[i]
                hash_ = <uint64_t>0x243F6A8885A308D3
                if self.is_bytes:
                    hash_ = hash_bytes(&self.bytes_[row, 0], self.bytes_.shape[1], hash_)
                else:
                    hash_ = hash_floats(&self.floats[row, 0], self.floats.shape[1], hash_)
                for j in range(self.Y.shape[1]):
                    value = self.Y[row, j] + 0.0
                    memcpy(&word, &value, 8)
                    hash_ = mixed(hash_, word)
                out[i] = hash_seed(hash_, 0)
        return result

    def sort_equal_hashes(self, int64_t[::1] rows, const uint64_t[::1] hashes):
        """Sort rows of equal hash by their values, in place; return which rows are new.

        The rows are in the order of `hashes`. False means that a row equals the one before it.
        """
        cdef int64_t n = rows.shape[0]
        cdef int64_t i, j, moving, start = 0
        result = np.ones(n, dtype=np.uint8)
        cdef uint8_t[::1] first = result
        with nogil:
            for i in range(1, n):
                if hashes[i] != hashes[i - 1]:
                    start = i
                    continue
                # Insertion sort: rows of one hash are nearly always equal, and do not move.
                moving = rows[i]
                j = i
                while j > start and self.order_of(rows[j - 1], moving) > 0:
                    rows[j] = rows[j - 1]
                    j -= 1
                rows[j] = moving
            for i in range(1, n):
                if hashes[i] == hashes[i - 1] and self.order_of(rows[i - 1], rows[i]) == 0:
                    first[i] = 0
        return result.view(bool)


def draw_counts(const double[::1] weight, uint64_t seed, int64_t n_draws):
    """Return the counts of rows in n_draws draws with replacement, in proportion to weight."""
    cdef Random random
    cdef int64_t n = weight.shape[0]
    result = np.zeros(n, dtype=np.float64)
    cdef double[::1] counts = result
    cdef double[::1] ends
    random.state = seed
    next_word(&random)
    if np.min(weight) == np.max(weight):
        for _ in range(n_draws):
            counts[below(&random, <int>n)] += 1
        return result
    ends = np.cumsum(weight)
    with nogil:
        for _ in range(n_draws):
            counts[draw_item(&random, &ends[0], n)] += 1
    return result


cdef class BatchSampler:
    """Draws rows by weight; rows of weight 0 are never drawn."""

    def __init__(self, weight):
        self.copies = weight * (np.count_nonzero(weight) / weight.sum())
        # A row occurs in an epoch less than c_i + 1 times.
        self.order = np.zeros(2 * len(weight) + 1, dtype=np.int32)
        self.n_order = 0
        self.next_row = 0

    cdef void draw(self, Random* random, int32_t* rows, int64_t n) noexcept nogil:
        """rows : OUT, the next n rows."""
        cdef int64_t i
        for i in range(n):
            if self.next_row >= self.n_order:
                self.start_epoch(random)
            rows[i] = self.order[self.next_row]
            self.next_row = self.next_row + 1

    cdef void start_epoch(self, Random* random) noexcept nogil:
        cdef int64_t i, c, n = 0
        # An epoch may be empty if there are few rows with c_i < 1.
        while n == 0:
            for i in range(self.copies.shape[0]):
                if self.copies[i] <= 0:
                    continue
                c = <int64_t>(self.copies[i] + uniform(random))
                while c > 0 and n < self.order.shape[0]:
                    self.order[n] = <int32_t>i
                    n += 1
                    c -= 1
        shuffle(random, &self.order[0], n, n)
        self.n_order = n
        self.next_row = 0
