"""Splitting a node by a soft stump.

Section 2.5 of Hehn, Kooij and Hamprecht 2020: a tree of one split and two leaves is trained on the
rows that reach the node, and then cuts them hard. Where all end on one side, another stump is
tried, with other features, from another start, and in units of the node's own.
"""

from libc.math cimport isfinite, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy, memset

from .projection cimport Sampler
from .random cimport below, next_word, normal
from .search cimport SearchSplitter
from .soft cimport SoftTrainer
from .split cimport Split
from .survey cimport survey

cdef extern from "descent.h" nogil:
    void skf_margins(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_gather_rows(
        const float*, const int64_t*, int64_t, const int32_t*, int64_t, int64_t, int64_t,
        const float*, float, float*
    )

cdef enum:
    LANES = 16
    ATTEMPTS = 5               # stumps that are trained before the node stays a leaf
    DRAWS = 100                # of features, while none of them varies
    LEAST_BATCH = 16           # rows


cdef class SoftSplitter(SearchSplitter):
    """Split by a hyperplane that ends as the split of a soft stump.

    Parameters
    ----------
    X, target, n_outputs, weight, rows, criterion, seed, stop, sampler, n_candidates, exact, \
n_bins, max_search, min_leaf, min_weight, may_overflow
        As in SearchSplitter; X is float32. Nothing is searched.
    mean, unit : ndarray of shape (n_features,), float32
        As in SoftTrainer.
    places : ndarray of shape (n_places, n_used), int32
        Features of a split: one of these rows. One row that is longer than `n_used`: as many of
        them, by chance.
    n_used : int
    n_epochs : int
    learning_rate, steepness, steepness_step : float
        Of the first epoch; the step is added after each.
    batch_size, n_batches : int
        An epoch has steps of `batch_size` rows, but at least `n_batches` of them where there are
        16 rows for each.
    smoothness : float
    edges : ndarray of shape (n_edges, 2), int32
    """

    cdef SoftTrainer trainer
    cdef const float[::1] mean
    cdef const float[::1] unit
    cdef const int32_t[:, ::1] places
    cdef int32_t n_used
    cdef int32_t n_epochs
    cdef double learning_rate
    cdef double steepness
    cdef double steepness_step
    cdef int32_t batch_size
    cdef int32_t n_batches
    cdef bint gathers          # rows are written anew, with the features of the split alone
    cdef int64_t stride
    cdef int32_t* used         # features of the split at hand
    cdef float* own_rows
    cdef float* own_mean
    cdef float* own_unit
    cdef float* nothing        # zeros
    cdef int32_t* seen
    cdef float* sums
    cdef float* margin
    cdef float* direction

    def __init__(
        self, X, target, int32_t n_outputs, weight, int32_t[::1] rows, criterion, uint64_t seed,
        stop, Sampler sampler, int32_t n_candidates, bint exact, int32_t n_bins,
        int64_t max_search, int64_t min_leaf, double min_weight, bint may_overflow,
        const float[::1] mean, const float[::1] unit, const int32_t[:, ::1] places,
        int32_t n_used, int32_t n_epochs, double learning_rate, double steepness,
        double steepness_step, int32_t batch_size, int32_t n_batches, float smoothness,
        const int32_t[:, ::1] edges
    ):
        SearchSplitter.__init__(
            self, X, target, n_outputs, weight, rows, criterion, seed, stop, sampler,
            n_candidates, exact, n_bins, max_search, min_leaf, min_weight, may_overflow
        )
        cdef int64_t n = rows.shape[0], p = X.shape[1]
        cdef SoftTrainer trainer = SoftTrainer.__new__(SoftTrainer)
        self.mean = mean
        self.unit = unit
        self.places = places
        self.n_used = n_used
        self.n_epochs = n_epochs
        self.learning_rate = learning_rate
        self.steepness = steepness
        self.steepness_step = steepness_step
        self.batch_size = batch_size
        self.n_batches = n_batches
        self.gathers = n_used < p and smoothness == 0
        self.stride = (n_used + LANES - 1) // LANES * LANES if self.gathers else p
        trainer.stop = self.stop
        trainer.random.state = seed
        next_word(&trainer.random)
        trainer.random.state ^= <uint64_t>0x082EFA98EC4E6C89
        trainer.smoothness = smoothness
        trainer.edges = edges
        trainer.engine = 1
        trainer.batch_size = batch_size
        trainer.reserve(n, self.stride, 1, n_outputs, self.is_class)
        trainer.child[0] = 1
        trainer.child[1] = -1
        trainer.child[2] = -2
        self.trainer = trainer
        self.used = <int32_t*>malloc((max(<int64_t>places.shape[1], p) + 1) * sizeof(int32_t))
        self.own_rows = <float*>malloc((n * self.stride * self.gathers + 1) * sizeof(float))
        self.own_mean = <float*>malloc(self.stride * sizeof(float))
        self.own_unit = <float*>malloc(self.stride * sizeof(float))
        self.nothing = <float*>malloc(p * sizeof(float))
        self.seen = <int32_t*>malloc((self.stride + LANES) * sizeof(int32_t))
        self.sums = <float*>malloc((self.stride + LANES) * sizeof(float))
        self.margin = <float*>malloc((n + LANES) * sizeof(float))
        self.direction = <float*>malloc((p + LANES) * sizeof(float))
        if not (
            self.used and self.own_rows and self.own_mean and self.own_unit and self.nothing and
            self.seen and self.sums and self.margin and self.direction
        ):
            raise MemoryError()
        memset(self.nothing, 0, p * sizeof(float))

    def __dealloc__(self):
        free(self.used)
        free(self.own_rows)
        free(self.own_mean)
        free(self.own_unit)
        free(self.nothing)
        free(self.seen)
        free(self.sums)
        free(self.margin)
        free(self.direction)

    cdef bint search(self, Split* split) except -1 nogil:
        """Train a stump, again and again while it has too few rows on one side."""
        cdef int32_t attempt, _draw
        if not self.differ():
            return False
        for attempt in range(ATTEMPTS):
            if self.poll(self.node.n * self.stride * self.n_epochs):
                return False
            self.draw_features()
            for _draw in range(DRAWS):
                if self.varies():
                    break
                self.draw_features()
            self.line_up()
            if attempt > 0:
                self.zoom()
            self.start()
            self.train()
            if self.stop[0]:
                return False
            if self.lay_out() and self.take_plane(
                self.direction, -self.trainer.bias[0], 0, split
            ):
                return True
        return False

    cdef bint differ(self) noexcept nogil:
        """Is there a row that is not like the first?"""
        cdef int64_t i, size = self.table.n_features * <int64_t>sizeof(float)
        cdef const float* table = <const float*>self.table.data
        for i in range(1, self.node.n):
            if memcmp(table + self.node.offset[i], table + self.node.offset[0], size) != 0:
                return True
        return False

    cdef bint varies(self) noexcept nogil:
        """Is there a row that is not like the first in the features of the split?"""
        cdef int64_t i
        cdef int32_t k, j
        cdef const float* table = <const float*>self.table.data
        cdef const float* first = table + self.node.offset[0]
        for i in range(1, self.node.n):
            for k in range(self.n_used):
                j = self.used[k]
                if table[self.node.offset[i] + j] != first[j] and self.unit[j] > 0:
                    return True
        return False

    cdef void draw_features(self) noexcept nogil:
        """The features of the next split: a place, or some of all."""
        cdef int32_t k, other, n = <int32_t>self.places.shape[1]
        cdef int32_t place = below(&self.random, <int>self.places.shape[0])
        for k in range(n):
            self.used[k] = self.places[place, k]
        if n == self.n_used:
            return
        for k in range(self.n_used):
            other = k + below(&self.random, n - k)
            place = self.used[k]
            self.used[k] = self.used[other]
            self.used[other] = place

    cdef void line_up(self) noexcept nogil:
        """Give the trainer the rows of the node, written anew where few features count."""
        cdef int64_t i, n = self.node.n
        cdef int32_t k
        self.trainer.n = n
        self.trainer.n_outputs = self.n_present
        for i in range(n):
            self.trainer.at[i] = i * self.stride if self.gathers else self.node.offset[i]
            self.trainer.weight[i] = <float>(self.node.weight[i] * n / self.node_weight)
            if self.is_class:
                self.trainer.label[i] = self.node.label[i]
                continue
            for k in range(self.n_outputs):
                self.trainer.target[i * self.n_outputs + k] = (
                    self.node.target[i * self.n_outputs + k] / self.node.weight[i]
                )
        self.trainer.mean = self.own_mean
        self.trainer.unit = self.own_unit
        if not self.gathers:
            self.trainer.rows = <const float*>self.table.data
            memcpy(self.own_mean, &self.mean[0], self.stride * sizeof(float))
            memcpy(self.own_unit, &self.unit[0], self.stride * sizeof(float))
            return
        skf_gather_rows(
            <const float*>self.table.data, self.node.offset, n, self.used, 0, self.n_used,
            self.stride, self.nothing, 1, self.own_rows
        )
        memset(self.own_mean, 0, self.stride * sizeof(float))
        memset(self.own_unit, 0, self.stride * sizeof(float))
        for k in range(self.n_used):
            self.own_mean[k] = self.mean[self.used[k]]
            self.own_unit[k] = self.unit[self.used[k]]
        self.trainer.rows = self.own_rows

    cdef void zoom(self) noexcept nogil:
        """Centre the features on the rows of the node, in units as small as these lie close.

        A step of Adam is longer than the way between rows that are nearly equal.
        """
        cdef int64_t j
        cdef double spread = 0, square = survey(
            self.trainer.rows, self.trainer.at, self.trainer.weight, self.node.n, self.stride,
            self.own_mean, self.seen, self.margin, self.sums
        )
        for j in range(self.stride):
            if self.own_unit[j] > 0:
                spread += 1 / (<double>self.own_unit[j] * self.own_unit[j])
        if not (square > 0 and isfinite(square) and spread > 0):
            return
        spread = sqrt(spread * self.node.n / square)
        for j in range(self.stride):
            self.own_unit[j] = <float>(self.own_unit[j] * spread)

    cdef void start(self) noexcept nogil:
        """A random direction of length 1, in units of the deviations, through the mean row."""
        cdef int64_t i, n = self.node.n
        cdef int32_t k, j
        cdef double square = 0, along = 0, value
        memset(self.trainer.w, 0, self.stride * sizeof(float))
        for k in range(self.n_used):
            j = k if self.gathers else self.used[k]
            value = normal(&self.random)
            square += value * value
            self.trainer.w[j] = <float>(value * self.trainer.unit[j])
        value = 1 / square ** 0.5 if square > 0 else 1
        for j in range(self.stride):
            self.trainer.w[j] = <float>(self.trainer.w[j] * value)
        skf_margins(
            self.trainer.rows, self.trainer.at, n, self.trainer.w, self.stride, self.margin
        )
        for i in range(n):
            along += self.trainer.weight[i] * self.margin[i]
        self.trainer.centre[0] = 0
        self.trainer.set_bias(0)
        self.trainer.centre[0] = -along / n - self.trainer.bias[0]
        self.trainer.set_bias(0)

    cdef int train(self) except -1 nogil:
        """EM with a steepness that rises."""
        cdef int32_t _epoch
        cdef double steepness = self.steepness
        cdef int32_t size = <int32_t>(self.node.n // self.n_batches)
        self.trainer.batch_size = min(self.batch_size, max(<int32_t>LEAST_BATCH, size))
        self.trainer.reset()
        self.trainer.init_leaves(<float>steepness)
        for _epoch in range(self.n_epochs):
            self.trainer.epoch(<float>steepness, self.learning_rate)
            if self.stop[0]:
                return 0
            steepness += self.steepness_step
        return 0

    cdef bint lay_out(self) noexcept nogil:
        """The direction over all features; False where numbers ran out."""
        cdef int32_t k, j
        cdef float value
        memset(self.direction, 0, self.table.n_features * sizeof(float))
        for k in range(self.n_used):
            value = self.trainer.w[k if self.gathers else self.used[k]]
            if not isfinite(value):
                return False
            j = self.used[k]
            self.direction[j] = value
        return isfinite(self.trainer.bias[0])
