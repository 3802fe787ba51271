"""A hyperplane between labelled rows, by weighted logistic regression.

Stochastic gradient descent with momentum on

    sum over rows of weight_i log(1 + exp(-s_i m_i)),  m_i = scale (x_i - mean) . w + b

where s_i is the side of row i, 1 or -1, under ``|w|^2 + b^2 <= nu``. As in a CO2 stump
(surrogate.pyx), rows are centred on their mean and scaled by one number. The hyperplane with the
smallest weight of wrong rows during training is kept.
"""

from libc.math cimport isfinite, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from .descent cimport (
    skf_add_rows,
    skf_logistic_loss,
    skf_logistic_slopes,
    skf_margins,
    skf_momentum_step,
    skf_rescale,
    skf_wrong_side,
)
from .memory cimport Scratch
from .poll cimport poll
from .random cimport next_word, shuffle
from .stump cimport Rate, node_moments, pack_rows, padded_length, start_rate, update_rate

cdef enum:
    CACHED = 1 << 21        # floats: 8 MiB, about a cache; rows are copied where they fit into it
    MIN_EPOCHS = 3
    EVALUATE = 2            # epochs between two evaluations on all rows where no cache holds them
    PARTS = 16              # candidates on the way from the start to the current hyperplane


cdef class Logistic:
    """Trains one hyperplane after another on up to n_rows rows of the table X.

    There are n_visits / n epochs of n rows, at least 3 and at most max_epochs. `radius` is the
    root mean square norm of the scaled rows.
    """

    def __init__(
        self, const float[:, ::1] X, int64_t n_rows, uint64_t seed, stop, double nu,
        double learning_rate, double momentum, int32_t batch_size, int64_t n_visits,
        int32_t max_epochs, double radius
    ):
        cdef int64_t n = n_rows, p = X.shape[1], batch = batch_size
        self.X = X
        self.table = &X[0, 0]
        self.n_features = p
        self.stop = stop
        self.random.state = seed
        next_word(&self.random)        # a stream apart from those that grew the tree
        self.random.state ^= <uint64_t>0x9216D5D98979FB1B
        self.nu = nu
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.batch_size = batch_size
        self.n_visits = n_visits
        self.max_epochs = max(max_epochs, 1)
        self.radius = radius
        self.scratch = Scratch()
        self.at = self.scratch.longs(n)
        self.side = self.scratch.floats(n)
        self.weight = self.scratch.floats(n)
        self.mean = self.scratch.floats(p)
        self.own_rows = self.scratch.floats(min(n * padded_length(p), <int64_t>CACHED))
        self.node_mean = self.scratch.floats(p)
        self.varying = self.scratch.ints(p)
        self.seen = self.scratch.ints(p)
        self.w = self.scratch.floats(p)
        self.first_w = self.scratch.floats(p)
        self.first_margin = self.scratch.floats(n)
        self.best_w = self.scratch.floats(p)
        self.margin = self.scratch.floats(n)
        self.visit = self.scratch.ints(n)
        self.batch_at = self.scratch.longs(batch)
        self.batch_margin = self.scratch.floats(batch)
        self.batch_side = self.scratch.floats(batch)
        self.batch_weight = self.scratch.floats(batch)
        self.velocity = self.scratch.floats(p)
        self.gradient = self.scratch.floats(p)

    cdef bint train(self, int64_t n, double* plane, double* threshold) except -1 nogil:
        """Train on the first n rows, from ``plane . x > threshold``, and overwrite both.

        False, and nothing is overwritten, where every hyperplane on the way has more weight on the
        wrong side than the start.
        """
        cdef int64_t i, j, n_epochs
        cdef int32_t feature
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
        if not self.prepare():
            return False
        self.start(plane, threshold[0])
        self.best_error = skf_wrong_side(
            self.margin, self.margin, self.side, self.weight, n, 0
        )
        n_epochs = min(<int64_t>self.max_epochs, max(<int64_t>MIN_EPOCHS, self.n_visits // n))
        for i in range(1, n_epochs + 1):
            if poll(&self.stop[0], &self.work, n * self.p):
                return False
            self.epoch(rate.value)
            if self.rows == self.table and i % EVALUATE != 0 and i < n_epochs:
                continue
            self.compute_margins(self.at, n, self.margin)
            loss = skf_logistic_loss(self.margin, self.side, self.weight, n)
            if not isfinite(loss):
                break
            found = self.keep_best() or found
            if not update_rate(&rate, loss):
                break
        if not found:
            return False
        memset(plane, 0, self.n_features * sizeof(double))
        threshold[0] = self.best_bias / self.node_scale
        for j in range(self.n_varying):
            feature = self.varying[j]
            plane[feature] = self.best_w[j if self.rows == self.own_rows else feature]
            threshold[0] += plane[feature] * self.node_mean[feature]
        return True

    # ------------------------------------------------------------------------------------ the rows

    cdef bint prepare(self) noexcept nogil:
        """Centre and scale the rows; False where they are all equal."""
        cdef int64_t n = self.n, p = self.n_features
        cdef int64_t j, stride
        cdef double square
        # 1. one centre, and one scale for all features
        square = node_moments(
            self.table, self.at, self.weight, n, p, self.node_mean, self.seen, self.margin,
            self.gradient
        )
        if not (square > 0) or not isfinite(square):
            return False
        self.node_scale = self.radius / sqrt(square / n)
        # 2. the features that vary; weights of others become exactly 0
        self.n_varying = 0
        for j in range(p):
            if self.seen[j] & 0x7FFFFFFF:  # the sign of a difference of -0 is none
                self.varying[self.n_varying] = <int32_t>j
                self.n_varying = self.n_varying + 1
        # 3. copies of the rows where a cache holds them, without the features that do not vary
        self.rows = self.table
        self.p = p
        self.scale = self.node_scale
        memcpy(self.mean, self.node_mean, p * sizeof(float))
        stride = padded_length(self.n_varying)
        if n * stride <= CACHED:
            pack_rows(
                self.table, self.at, n, self.varying, 0, self.n_varying, self.node_mean,
                <float>self.node_scale, self.own_rows
            )
            self.rows = self.own_rows
            self.p = stride
            self.scale = 1
            memset(self.mean, 0, stride * sizeof(float))
        return True

    # ------------------------------------------------------------------------------------ training

    cdef void start(self, const double* plane, double threshold) noexcept nogil:
        """Begin at a hyperplane, scaled to norm 1: larger norms turn slowly and fit noise."""
        cdef int64_t j, n = self.n
        cdef int32_t feature
        cdef double square, factor, bias = threshold
        cdef float* w = self.w
        memset(w, 0, self.p * sizeof(float))
        memset(self.velocity, 0, self.p * sizeof(float))
        memset(self.gradient, 0, self.p * sizeof(float))
        self.bias_velocity = 0
        square = 0
        for j in range(self.n_features):
            bias -= plane[j] * self.node_mean[j]
        bias *= self.node_scale
        square = bias * bias
        for j in range(self.n_varying):
            feature = self.varying[j]
            square += plane[feature] * plane[feature]
        factor = sqrt(min(self.nu, 1.0) / square) if square > 0 else 0
        if not isfinite(factor) or not isfinite(square):
            factor = 0
        for j in range(self.n_varying):
            feature = self.varying[j]
            w[j if self.rows == self.own_rows else feature] = <float>(factor * plane[feature])
        self.bias = factor * bias if factor > 0 else 0
        self.compute_margins(self.at, n, self.margin)
        memcpy(self.first_w, w, self.p * sizeof(float))
        memcpy(self.first_margin, self.margin, n * sizeof(float))
        self.first_bias = self.bias

    cdef void epoch(self, double rate) noexcept nogil:
        """Show the rows once, in batches; `margin` has the margins of the current weights."""
        cdef int64_t i, row, size, start = 0, n = self.n
        cdef int32_t* visit = self.visit
        if n <= self.batch_size:
            memcpy(self.batch_at, self.at, n * sizeof(int64_t))
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
                self.batch_at[i] = self.at[row]
                self.batch_side[i] = self.side[row]
                self.batch_weight[i] = self.weight[row]
            self.compute_margins(self.batch_at, size, self.batch_margin)
            self.step(size, rate)
            start += size

    cdef void step(self, int64_t n, double rate) noexcept nogil:
        """One step of momentum along the gradient of a batch, projected onto the ball of nu."""
        cdef int64_t i
        cdef float* slope = self.batch_margin
        cdef float square = 0
        cdef double shrink, total = 0, shift = 0
        skf_logistic_slopes(slope, self.batch_side, self.batch_weight, n)
        for i in range(n):
            total += self.batch_weight[i]
            shift += slope[i]
        if not (total > 0):
            return
        skf_add_rows(self.rows, self.batch_at, n, slope, self.p, self.gradient)
        skf_momentum_step(
            self.w, self.velocity, self.gradient, self.mean, self.p, <float>(self.scale / total),
            <float>shift, <float>self.momentum, <float>rate, &square
        )
        self.bias_velocity = self.momentum * self.bias_velocity - shift / total
        self.bias = self.bias - rate * self.bias_velocity
        shrink = square + self.bias * self.bias
        if shrink > self.nu:
            shrink = sqrt(self.nu / shrink)
            self.bias = self.bias * shrink
            skf_rescale(self.w, self.p, <float>shrink, 0)

    cdef void compute_margins(self, const int64_t* at, int64_t n, float* out) noexcept nogil:
        """Margins of some rows: positive where they go right."""
        cdef int64_t zero = 0
        cdef float dot = 0
        skf_margins(self.rows, at, n, self.w, self.p, out)
        if self.rows == self.own_rows:
            skf_rescale(out, n, 1, <float>self.bias)
            return
        skf_margins(self.mean, &zero, 1, self.w, self.p, &dot)
        skf_rescale(out, n, <float>self.scale, <float>(self.scale * dot + self.bias))

    cdef bint keep_best(self) noexcept nogil:
        """Keep the best hyperplane between the start and the current one, unless one was better.

        Where the start is nearly right, a few epochs of training widen its margins, but seldom end
        at a hyperplane with as few errors; one on the way from the start to it often has as few.
        """
        cdef int64_t j
        cdef int k
        cdef float t, chosen = 0
        cdef double wrong
        for k in range(1, PARTS + 1):
            t = <float>k / PARTS
            wrong = skf_wrong_side(
                self.first_margin, self.margin, self.side, self.weight, self.n, t
            )
            if wrong <= self.best_error:  # ties go to the later one
                self.best_error = wrong
                chosen = t
        if chosen == 0:
            return False
        for j in range(self.p):
            self.best_w[j] = self.first_w[j] + chosen * (self.w[j] - self.first_w[j])
        self.best_bias = self.first_bias + chosen * (self.bias - self.first_bias)
        return True
