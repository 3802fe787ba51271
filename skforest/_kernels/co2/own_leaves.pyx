"""The leaves of a split with a loss of the user.

`UserLeaves` of `training/user_leaves.py` are called for all rows of a node at once, with the GIL.
If a method of the user raises an exception, training of the node ends, and `check` raises it.
"""

from libc.math cimport NAN
from libc.stdint cimport int32_t, int64_t

import numpy as np

from ..base.stump cimport SOFT, StumpLeaves


cdef object array_of(const float* values, int64_t n):
    """Return an array of n numbers, which are not copied: it lives as long as its memory."""
    cdef float[::1] view = <float[:n]> <float*> values
    return np.asarray(view)


cdef class OwnLeaves(StumpLeaves):
    """As `StumpLeaves`; the caller sets `margin`, too."""

    def __init__(self, leaves):
        self.leaves, self.is_own = leaves, True

    cdef void start_node(
        self, int64_t n, int64_t n_train, int32_t n_present, const int32_t* present
    ) noexcept nogil:
        StumpLeaves.start_node(self, n, n_train, n_present, present)
        with gil:
            try:
                weight = array_of(self.weight, n).astype(np.float64)
                if self.is_class:
                    labels = np.array(<int32_t[:n]> self.label)
                    target = np.array(<int32_t[:n_present]> <int32_t*>present)[labels]
                else:
                    target = np.array(<double[:n * self.n_outputs]> self.target)
                    target = target.reshape(n, self.n_outputs)
                self.leaves.start(target, weight, n_train, self.smoothing)
            except BaseException as error:
                self.fail(error)

    cdef void fit(self) noexcept nogil:
        """Set both leaves to their optimum for the training rows on their sides, by `margin`."""
        with gil:
            try:
                if not self.has_failed:
                    margin = array_of(self.margin, self.n_train)
                    self.leaves.fit(margin > 0)
            except BaseException as error:
                self.fail(error)

    cdef void set_losses(self, int64_t first, int64_t last) noexcept nogil:
        if first == last:
            self.base_loss = 0
            return
        with gil:
            try:
                if not self.has_failed:
                    left, right = self.leaves.losses(first, last)
                    array_of(self.base + first, last - first)[:] = left
                    array_of(self.delta + first, last - first)[:] = right - left
            except BaseException as error:
                self.fail(error)
        self.sum_losses(first, last)
        if self.has_failed:
            self.base_loss = NAN

    cdef void step(
        self, const float* margin, const float* delta, int64_t start, int64_t n, double total,
        double rate, int objective
    ) noexcept nogil:
        with gil:
            try:
                if not self.has_failed:
                    rows = (start + np.arange(n)) % self.n_train
                    m = array_of(margin, n).astype(np.float64)
                    right = 2 * m + array_of(delta, n) > 0
                    if objective == SOFT:
                        right = 1 / (1 + np.exp(-2 * m))
                    weight = array_of(self.weight, self.n_train)[rows] / total
                    share = np.stack([(1 - right) * weight, right * weight])
                    self.leaves.step(rows, share, self.momentum, rate)
            except BaseException as error:
                self.fail(error)

    cdef double score(self, bint fits) noexcept nogil:
        """Return minus the loss of the training rows at the leaves of their sides, by `margin`.

        fits : IN, whether to set the leaves to their optimum first
        """
        cdef int64_t i
        cdef double total = 0
        if fits:
            self.fit()
        self.set_losses(0, self.n_train)
        for i in range(self.n_train):
            total -= self.weight[i] * (self.base[i] + (self.delta[i] if self.margin[i] > 0 else 0))
        return NAN if self.has_failed else total

    cdef int check(self) except -1 nogil:
        """Raise the exception of a method of the user."""
        if self.has_failed:
            with gil:
                raise self.failure
        return 0

    cdef int fail(self, error):
        if not self.has_failed:
            self.failure, self.has_failed = error, True
        return 0
