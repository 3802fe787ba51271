"""Rows of the batches of stochastic gradient descent, epoch by epoch and in proportion to weights.

An epoch has row i floor(c_i + u) times, with c_i = weight_i / (mean weight) and a new uniform u in
[0, 1): c_i times on average. The order within an epoch is random. Batches continue over the end of
an epoch.
"""

from libc.stdint cimport int32_t, int64_t

import numpy as np

from .random cimport Random, below, uniform


cdef class BatchSampler:
    """Draws rows by weight.

    Parameters
    ----------
    weight : ndarray of shape (n_rows,), float64
        Not negative, not all 0. Rows of weight 0 are never drawn.
    """

    def __init__(self, weight):
        self.copies = weight * (np.count_nonzero(weight) / weight.sum())
        # Each row is in an epoch less than once more often than c_i.
        self.order = np.zeros(2 * len(weight) + 1, dtype=np.int32)
        self.n_order = 0
        self.next_row = 0

    cdef void draw(self, Random* random, int32_t* rows, int64_t n) noexcept nogil:
        """rows : OUT, the next n rows."""
        cdef int64_t i
        for i in range(n):
            if self.next_row >= self.n_order:
                self.shuffle(random)
            rows[i] = self.order[self.next_row]
            self.next_row = self.next_row + 1

    cdef void shuffle(self, Random* random) noexcept nogil:
        """Begin an epoch."""
        cdef int64_t i, c, other, n = 0
        cdef int32_t swap
        # An epoch of few rows with c_i < 1 may be empty.
        while n == 0:
            for i in range(self.copies.shape[0]):
                if self.copies[i] <= 0:
                    continue
                c = <int64_t>(self.copies[i] + uniform(random))
                while c > 0 and n < self.order.shape[0]:
                    self.order[n] = <int32_t>i
                    n += 1
                    c -= 1
        for i in range(n - 1, 0, -1):
            other = below(random, <int>(i + 1))
            swap = self.order[i]
            self.order[i] = self.order[other]
            self.order[other] = swap
        self.n_order = n
        self.next_row = 0
