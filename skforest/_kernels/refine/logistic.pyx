"""A hyperplane between labelled rows, by weighted logistic regression.

Stochastic gradient descent with momentum on

    sum over rows of weight_i log(1 + exp(-s_i m_i)),  m_i = scale (x_i - mean) . w + b

where s_i is the side of row i, 1 or -1, under ``|w|^2 + b^2 <= nu``. As in a CO2 stump
(hyperplane.pyx), rows are centred on their mean and scaled by one number. The hyperplane with the
smallest weight of wrong rows during training is kept, of those within the limit of weights
(limit.pyx).
"""

from libc.math cimport isfinite, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

from ..base.descent cimport skf_logistic_loss, skf_logistic_slopes, skf_rescale, skf_wrong_side
from ..base.direction cimport as_table
from ..base.memory cimport Scratch, allocate
from ..base.poll cimport poll
from ..base.random cimport next_word, shuffle
from ..base.stump cimport NodeRows, Rate, start_rate, update_rate

# Chosen without a stored measurement.
cdef enum:
    MIN_EPOCHS = 3
    EVALUATE = 2            # epochs between evaluations on all rows if no cache holds them
    PARTS = 16              # candidates between the start and the current hyperplane


cdef class Logistic:
    """Trains one hyperplane after another on up to n rows of the table X.

    `settings` are `AlternatingSettings`. There are n_visits / n epochs of n rows, at least 3 and
    at most max_epochs. `row_norm` is the root mean square norm of the scaled rows.
    """

    def __init__(self, const float[:, ::1] X, int64_t n, settings, uint64_t seed, stop):
        cdef double nu = settings.nu, momentum = settings.momentum
        cdef int32_t batch_size = settings.batch_size
        cdef Scratch scratch = Scratch()
        self.X = X
        self.table = as_table(np.asarray(X))
        self.stop = stop
        self.random.state = seed
        next_word(&self.random)        # not the stream that grew the tree
        self.random.state ^= <uint64_t>0x9216D5D98979FB1B
        self.learning_rate = settings.learning_rate
        self.batch_size = batch_size
        self.n_visits = settings.n_visits
        self.max_epochs = max(settings.max_epochs, 1)
        self.scratch = scratch
        self.rows = NodeRows()
        # Not in groups: in many epochs, it pays to leave out every constant feature.
        self.rows.reserve(scratch, &self.table, n, settings.row_norm, False)
        self.plane = self.rows.plane(scratch, momentum, nu)
        self.first_plane = self.rows.plane(scratch, momentum, nu)
        self.best_plane = self.rows.plane(scratch, momentum, nu)
        allocate[float](
            scratch, n, [&self.side, &self.weight, &self.first_margin, &self.margin, NULL]
        )
        self.visit = scratch.ints(n)
        self.batch_at = scratch.longs(batch_size)
        allocate[float](
            scratch, batch_size, [&self.batch_margin, &self.batch_side, &self.batch_weight, NULL]
        )
        self.direction = scratch.floats(self.table.n_features)
        self.limit = WeightLimit()
        self.limit.reserve(scratch, settings.max_weights, self.table.n_features)

    cdef bint train(self, int64_t n, double* plane, double* threshold) except -1 nogil:
        """Train on the first n rows, from ``plane . x > threshold``, and overwrite both.

        Return False and overwrite nothing if all hyperplanes have more weight on the wrong side
        than the start.
        """
        cdef int64_t i, j, n_epochs
        cdef bint found = False
        cdef double loss, total = 0
        cdef Rate rate = start_rate(self.learning_rate)
        self.n = n
        for i in range(n):
            total += self.weight[i]
            self.visit[i] = <int32_t>i
        if not (total > 0) or not isfinite(total):
            return False
        skf_rescale(self.weight, n, <float>(n / total), 0)
        if not self.rows.load(self.weight, n, 0, self.margin, self.plane.gradient):
            return False
        self.start(plane, threshold[0])
        self.limit.start(self.rows)
        self.best_error = skf_wrong_side(
            self.margin, self.margin, self.side, self.weight, n, 0
        )
        n_epochs = min(<int64_t>self.max_epochs, max(<int64_t>MIN_EPOCHS, self.n_visits // n))
        for i in range(1, n_epochs + 1):
            if poll(&self.stop[0], &self.work, n * self.rows.p):
                return False
            if not self.limit.is_reached and i > 1:
                self.limit.restrict(
                    self.rows, self.weight, n, &self.plane, self.limit.after(i - 1, n_epochs)
                )
                self.rows.margins(self.plane.w, self.plane.bias, self.rows.at, n, self.margin)
            self.epoch(rate.value)
            if not self.rows.is_packed and i % EVALUATE != 0 and i < n_epochs:
                continue
            self.rows.margins(self.plane.w, self.plane.bias, self.rows.at, n, self.margin)
            loss = skf_logistic_loss(self.margin, self.side, self.weight, n)
            if not isfinite(loss):
                break
            if self.limit.is_reached:
                found = self.keep_best() or found
            if not update_rate(&rate, loss):
                if self.limit.is_reached:
                    break
                rate = start_rate(self.learning_rate)
        if not found:
            return False
        threshold[0] = self.rows.unpack(self.best_plane.w, self.best_plane.bias, self.direction)
        for j in range(self.table.n_features):
            plane[j] = self.direction[j]
        return True

    cdef void start(self, const double* plane, double threshold) noexcept nogil:
        """Start at a hyperplane, scaled to norm 1: longer ones turn slowly and fit noise."""
        cdef int64_t j, n = self.n
        cdef int32_t feature
        cdef double square, factor, bias = threshold
        cdef float* w = self.plane.w
        memset(w, 0, self.rows.p * sizeof(float))
        memset(self.plane.velocity, 0, self.rows.p * sizeof(float))
        memset(self.plane.gradient, 0, self.rows.p * sizeof(float))
        self.plane.bias_velocity = 0
        for j in range(self.table.n_features):
            bias -= plane[j] * self.rows.node_mean[j]
        bias *= self.rows.node_scale
        square = bias * bias
        for j in range(self.rows.n_kept):
            feature = self.rows.kept[j]
            square += plane[feature] * plane[feature]
        factor = sqrt(min(self.plane.nu, 1.0) / square) if square > 0 else 0
        if not isfinite(factor) or not isfinite(square):
            factor = 0
        for j in range(self.rows.n_kept):
            feature = self.rows.kept[j]
            w[j if self.rows.is_packed else feature] = <float>(factor * plane[feature])
        self.plane.bias = factor * bias if factor > 0 else 0
        self.rows.margins(w, self.plane.bias, self.rows.at, n, self.margin)
        memcpy(self.first_plane.w, w, self.rows.p * sizeof(float))
        memcpy(self.first_margin, self.margin, n * sizeof(float))
        self.first_plane.bias = self.plane.bias

    cdef void epoch(self, double rate) noexcept nogil:
        """Show the rows once, in batches; `margin` has the margins of the current weights."""
        cdef int64_t i, row, size, start = 0, n = self.n
        cdef int32_t* visit = self.visit
        if n <= self.batch_size:
            memcpy(self.batch_at, self.rows.at, n * sizeof(int64_t))
            memcpy(self.batch_margin, self.margin, n * sizeof(float))
            memcpy(self.batch_side, self.side, n * sizeof(float))
            memcpy(self.batch_weight, self.weight, n * sizeof(float))
            self.step(n, rate)
            return
        shuffle(&self.random, visit, n, n)
        while start < n:
            size = min(<int64_t>self.batch_size, n - start)
            for i in range(size):
                row = visit[start + i]
                self.batch_at[i] = self.rows.at[row]
                self.batch_side[i] = self.side[row]
                self.batch_weight[i] = self.weight[row]
            self.rows.margins(
                self.plane.w, self.plane.bias, self.batch_at, size, self.batch_margin
            )
            self.step(size, rate)
            start += size

    cdef void step(self, int64_t n, double rate) noexcept nogil:
        """Make one step along the gradient of a batch."""
        cdef int64_t i
        cdef float* slope = self.batch_margin
        cdef double total = 0, shift = 0
        skf_logistic_slopes(slope, self.batch_side, self.batch_weight, n)
        for i in range(n):
            total += self.batch_weight[i]
            shift += slope[i]
        if total > 0:
            self.rows.step(&self.plane, self.batch_at, slope, n, shift, total, rate)
            self.limit.clear_others(&self.plane)

    cdef bint keep_best(self) noexcept nogil:
        """Keep the best hyperplane between the start and the current one, unless one was better.

        If the start is nearly right, a few epochs widen its margins, but seldom end with as few
        errors. A hyperplane between the start and the current one often has as few.
        With a limit of weights, the hyperplanes between have too many.
        """
        cdef int64_t j
        cdef int k, first_part = PARTS if self.limit.n_support < self.rows.p else 1
        cdef float t, chosen = 0
        cdef const Plane* first = &self.first_plane
        cdef const Plane* last = &self.plane
        cdef double wrong
        for k in range(first_part, PARTS + 1):
            t = <float>k / PARTS
            wrong = skf_wrong_side(
                self.first_margin, self.margin, self.side, self.weight, self.n, t
            )
            if wrong <= self.best_error:  # ties go to the later one
                self.best_error = wrong
                chosen = t
        if chosen == 0:
            return False
        for j in range(self.rows.p):
            self.best_plane.w[j] = first.w[j] + chosen * (last.w[j] - first.w[j])
        self.best_plane.bias = first.bias + chosen * (last.bias - first.bias)
        return True
