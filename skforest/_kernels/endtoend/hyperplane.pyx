"""Splitting a node by a soft stump.

Section 2.5 of Hehn, Kooij and Hamprecht 2020: a soft tree of one split and two leaves,

    p(y | x) = (1 - g) p_left(y) + g p_right(y),    g = sigmoid(steepness (w . z + b)),

is trained by EM on the rows of the node, with a steepness that increases from epoch to epoch. Its
hyperplane then becomes a hard split. z are the features in units of their deviation. If a child is
too small, another stump is trained from another start, on other features if a split uses only
some, and with features rescaled to the rows of the node. If all attempts fail, the node is split
by the best cut along the last direction. This happens in regression with heavy tails: two leaves
with about the same mean, one of them wide, explain all rows better than any hyperplane does.
"""

from libc.math cimport INFINITY, isfinite, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ..base.descent cimport skf_margins
from ..base.memory cimport Scratch
from ..base.random cimport below, next_word, normal
from ..base.row_blocks cimport RowBlocks
from ..search.search cimport Cut, SearchSplitter
from .trainer cimport SoftTrainer
from ..search.split cimport Split
from ..base.stump cimport node_moments, pack_rows, padded_length

# Chosen without a stored measurement.
cdef enum:
    ATTEMPTS = 5               # stumps to train before one is cut anew
    DRAWS = 100                # draws of features until one of them varies
    MIN_BATCH = 16           # rows


cdef class SoftSplitter(SearchSplitter):
    """Splits by the hyperplane of a soft stump; X is float32.

    `options` have the `Units` and the `Annealing` of `training/endtoend`. A split uses the
    features of one of the `receptive_fields`, or a random subset of `n_used` if there is only one,
    which is longer. The first epoch has the steepness `steepness`, and `steepness_step` is added
    after each. Steps have `batch_size` rows, or fewer (but at least 16) so that an epoch has
    `min_batches` steps. `smoothness` is as in `SoftTrainer`.
    """

    cdef readonly bint diverged
    cdef SoftTrainer trainer
    cdef RowBlocks blocks      # the rows that the trainer reads
    cdef const float[::1] mean
    cdef const float[::1] unit
    cdef const int32_t[:, ::1] receptive_fields
    cdef int32_t n_used
    cdef int32_t n_epochs
    cdef double learning_rate
    cdef double steepness
    cdef double steepness_step
    cdef int32_t batch_size
    cdef int32_t min_batches
    cdef bint is_packed        # rows are copied, with only the features of the split
    cdef int64_t stride
    cdef int32_t* used         # features of the current split
    cdef float* own_rows
    cdef float* own_mean
    cdef float* own_unit
    cdef float* zeros
    cdef int32_t* varies_bits
    cdef float* sums
    cdef float* margin
    cdef float* direction

    def __init__(self, training_set, options, uint64_t seed, stop):
        SearchSplitter.__init__(self, training_set, options, seed, stop)
        cdef Scratch scratch = self.scratch
        cdef SoftTrainer trainer = SoftTrainer.__new__(SoftTrainer)
        cdef int64_t n = self.n_rows, p = self.table.n_features
        units, annealing = options.units, options.annealing
        self.mean = units.mean
        self.unit = units.unit
        self.receptive_fields = units.receptive_fields
        self.n_used = units.n_used
        self.n_epochs = annealing.greedy_epochs
        self.learning_rate = annealing.learning_rate
        self.steepness = annealing.steepness
        self.steepness_step = annealing.steepness_step
        self.batch_size = annealing.batch_size
        self.min_batches = options.min_batches
        self.is_packed = self.n_used < p and options.smoothness == 0
        self.stride = padded_length(self.n_used) if self.is_packed else p
        trainer.stop = self.stop
        trainer.random.state = seed
        next_word(&trainer.random)
        trainer.random.state ^= <uint64_t>0x082EFA98EC4E6C89
        trainer.smoothness = options.smoothness
        trainer.edges = units.edges
        trainer.engine = 1
        trainer.batch_size = self.batch_size
        trainer.reserve(n, self.stride, 1, self.n_outputs, self.is_class)
        trainer.child[0] = 1
        trainer.child[1] = -1
        trainer.child[2] = -2
        self.trainer = trainer
        self.blocks = RowBlocks()
        self.blocks.n_features = <int32_t>self.stride
        self.used = scratch.ints(max(<int64_t>self.receptive_fields.shape[1], p))
        self.own_rows = scratch.floats(n * self.stride if self.is_packed else 0)
        self.own_mean = scratch.floats(self.stride)
        self.own_unit = scratch.floats(self.stride)
        self.zeros = scratch.floats(p)
        self.varies_bits = scratch.ints(self.stride)
        self.sums = scratch.floats(self.stride)
        self.margin = scratch.floats(n)
        self.direction = scratch.floats(p)

    cdef bint search(self, Split* split) except -1 nogil:
        """Train stumps until one leaves both children large enough."""
        cdef int32_t attempt, _draw
        cdef bint is_finite = True
        if not self.has_different_rows():
            return False
        for attempt in range(ATTEMPTS):
            if self.should_stop(self.node.n * self.stride * self.n_epochs):
                return False
            self.draw_features()
            for _draw in range(DRAWS):
                if self.used_vary():
                    break
                self.draw_features()
            self.load_rows()
            if attempt > 0:
                self.rescale_features()
            self.init_plane()
            self.train()
            if self.stop[0]:
                return False
            if not self.unpack():
                is_finite = False
            elif self.accept_plane(self.direction, -self.trainer.bias[0], 0, split):
                return True
        self.diverged = self.diverged or not is_finite
        return self.unpack() and self.cut_direction(split)

    cdef bint cut_direction(self, Split* split) except -1 nogil:
        """Split by the best cut along the direction; False if there is none."""
        cdef Cut cut
        cut.score = -INFINITY
        self.project_plane(self.direction)
        self.reserve_searched(self.node.n)
        memcpy(self.candidate_column, self.column, self.node.n * sizeof(float))
        if not self.cut_sorted(&self.node, &cut):
            return False
        return self.accept_plane(self.direction, cut.threshold, 0, split)

    cdef bint has_different_rows(self) noexcept nogil:
        """Return whether any row differs from the first one."""
        cdef int64_t i, size = self.table.n_features * <int64_t>sizeof(float)
        cdef const float* table = <const float*>self.table.data
        for i in range(1, self.node.n):
            if memcmp(table + self.node.offset[i], table + self.node.offset[0], size) != 0:
                return True
        return False

    cdef bint used_vary(self) noexcept nogil:
        """Return whether any row differs from the first one in the features of the split."""
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
        """Draw the features of the next split: a receptive field, or a random subset, in order."""
        cdef int32_t k, n_drawn = 0, n = <int32_t>self.receptive_fields.shape[1]
        cdef int32_t field = below(&self.random, <int>self.receptive_fields.shape[0])
        for k in range(n):
            # Each subset has the same probability (Knuth, TAOCP 3.4.2, algorithm S).
            if n == self.n_used or below(&self.random, n - k) < self.n_used - n_drawn:
                self.used[n_drawn] = self.receptive_fields[field, k]
                n_drawn += 1

    cdef void load_rows(self) noexcept nogil:
        """Pass the rows of the node to the trainer, packed if a split uses few features."""
        cdef int64_t n = self.node.n
        cdef int32_t k
        self.trainer.n = n
        self.trainer.n_outputs = self.n_present
        self.copy_targets(
            NULL, self.trainer.weight, self.trainer.label, self.trainer.target
        )
        memcpy(self.trainer.at, self.node.offset, n * sizeof(int64_t))
        self.trainer.rows = <const float*>self.table.data
        self.trainer.mean = self.own_mean
        self.trainer.unit = self.own_unit
        if not self.is_packed:
            memcpy(self.own_mean, &self.mean[0], self.stride * sizeof(float))
            memcpy(self.own_unit, &self.unit[0], self.stride * sizeof(float))
            return
        pack_rows(
            self.trainer.rows, self.trainer.at, n, self.used, 0, self.n_used, self.zeros, 1,
            self.own_rows
        )
        memset(self.own_mean, 0, self.stride * sizeof(float))
        memset(self.own_unit, 0, self.stride * sizeof(float))
        for k in range(self.n_used):
            self.own_mean[k] = self.mean[self.used[k]]
            self.own_unit[k] = self.unit[self.used[k]]
        self.trainer.rows = self.own_rows

    cdef void rescale_features(self) noexcept nogil:
        """Centre the features on the rows of the node, in units of their deviation there.

        A step of Adam has a fixed length. In units of the whole training set, it may be longer
        than the distance between nearly equal rows.
        """
        cdef int64_t j
        cdef double spread = 0, square
        self.blocks.data = self.trainer.rows
        square = node_moments(
            self.blocks, self.trainer.at, self.trainer.weight, self.node.n, self.own_mean,
            self.varies_bits, self.margin, self.sums
        )
        for j in range(self.stride):
            if self.own_unit[j] > 0:
                spread += 1 / (<double>self.own_unit[j] * self.own_unit[j])
        if not (square > 0 and isfinite(square) and spread > 0):
            return
        spread = sqrt(spread * self.node.n / square)
        for j in range(self.stride):
            self.own_unit[j] = <float>(self.own_unit[j] * spread)

    cdef void init_plane(self) noexcept nogil:
        """Set a random direction of norm 1, in units of the deviations, through the mean row."""
        cdef int64_t i, n = self.node.n
        cdef int32_t k, j
        cdef double square = 0, along = 0, value
        memset(self.trainer.w, 0, self.stride * sizeof(float))
        for k in range(self.n_used):
            j = k if self.is_packed else self.used[k]
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
        """Train by EM with increasing steepness."""
        cdef int32_t _epoch
        cdef double steepness = self.steepness
        cdef int32_t size = <int32_t>(self.node.n // self.min_batches)
        self.trainer.batch_size = min(self.batch_size, max(<int32_t>MIN_BATCH, size))
        self.trainer.reset()
        self.trainer.init_leaves(<float>steepness)
        for _epoch in range(self.n_epochs):
            self.trainer.epoch(<float>steepness, self.learning_rate)
            if self.stop[0]:
                return 0
            steepness += self.steepness_step
        return 0

    cdef bint unpack(self) noexcept nogil:
        """Set the direction over all features; False if training has diverged."""
        cdef int32_t k, j
        cdef float value
        memset(self.direction, 0, self.table.n_features * sizeof(float))
        for k in range(self.n_used):
            value = self.trainer.w[k if self.is_packed else self.used[k]]
            if not isfinite(value):
                return False
            j = self.used[k]
            self.direction[j] = value
        return isfinite(self.trainer.bias[0])
