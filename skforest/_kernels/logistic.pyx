"""A hyperplane between labelled rows, by weighted logistic regression.

Stochastic gradient descent with momentum on ``log(1 + exp(-s m))``, where m is the margin of a row
and s its side, 1 or -1, under ``|w|^2 + b^2 <= nu``. As in a stump (_surrogate.pyx), rows are
centred on their mean and scaled by one number, and the plane that errs least on the way is kept.
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport INFINITY, isfinite, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from .random cimport below, next_word
from .survey cimport survey

cdef extern from "descent.h" nogil:
    void skf_margins(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_add_rows(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_momentum_step(
        float*, float*, float*, const float*, int64_t, float, float, float, float, float*
    )
    void skf_rescale(float*, int64_t, float, float)
    void skf_logistic_slopes(float*, const float*, const float*, int64_t)
    double skf_wrong_side(
        const float*, const float*, const float*, const float*, int64_t, float
    )
    double skf_logistic_loss(const float*, const float*, const float*, int64_t)
    void skf_gather_rows(
        const float*, const int64_t*, int64_t, const int32_t*, int64_t, int64_t, int64_t,
        const float*, float, float*
    )

cdef enum:
    LANES = 16              # rows written anew are padded to a multiple of this
    OWN_ROWS = 1 << 21      # floats: 8 MiB, about a cache
    MIN_EPOCHS = 3
    PATIENCE = 3            # epochs without progress before the rate is halved
    MEASURE = 2             # epochs between two looks at all rows where no cache holds them
    PARTS = 16              # of the way from the start that are looked at
    POLL = 1 << 26          # table reads between two looks for signals


cdef inline float* floats(int64_t n) noexcept nogil:
    return <float*>malloc(<size_t>(n + LANES) * sizeof(float))


cdef class Logistic:
    """Trains one hyperplane after another on rows of one table.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), float32, C order
    n_rows : int
        The most rows that are labelled at once.
    seed : int
    stop : ndarray of shape (1,), uint8
        Set from outside to make training end early.
    nu, learning_rate, momentum : float
    batch_size, n_visits, max_epochs : int
        n rows are shown n_visits / n times, at least 3, at most max_epochs times.
    radius : float
        Root mean square norm of the scaled rows.
    """

    def __init__(
        self, const float[:, ::1] X, int64_t n_rows, uint64_t seed, stop, double nu,
        double learning_rate, double momentum, int32_t batch_size, int64_t n_visits,
        int32_t max_epochs, double radius
    ):
        cdef int64_t n = n_rows, p = X.shape[1], batch = batch_size
        self.keep = X
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
        self.at = <int64_t*>malloc(n * sizeof(int64_t))
        self.side = floats(n)
        self.weight = floats(n)
        self.mean = floats(p)
        self.own_rows = floats(min(n * (p + LANES), <int64_t>OWN_ROWS))
        self.node_mean = floats(p)
        self.varying = <int32_t*>malloc(p * sizeof(int32_t))
        self.seen = <int32_t*>malloc((p + LANES) * sizeof(int32_t))
        self.w = floats(p)
        self.first_w = floats(p)
        self.first_margin = floats(n)
        self.best_w = floats(p)
        self.margin = floats(n)
        self.visit = <int32_t*>malloc(n * sizeof(int32_t))
        self.batch_at = <int64_t*>malloc(batch * sizeof(int64_t))
        self.batch_margin = floats(batch)
        self.batch_side = floats(batch)
        self.batch_weight = floats(batch)
        self.velocity = floats(p)
        self.gradient = floats(p)
        if not (
            self.at and self.side and self.weight and self.mean and self.own_rows and
            self.node_mean and self.varying and self.seen and self.w and
            self.first_w and self.first_margin and self.best_w and self.margin and self.visit and
            self.batch_at and self.batch_margin and self.batch_side and self.batch_weight and
            self.velocity and self.gradient
        ):
            raise MemoryError()

    def __dealloc__(self):
        free(self.at)
        free(self.side)
        free(self.weight)
        free(self.mean)
        free(self.own_rows)
        free(self.node_mean)
        free(self.varying)
        free(self.seen)
        free(self.w)
        free(self.first_w)
        free(self.first_margin)
        free(self.best_w)
        free(self.margin)
        free(self.visit)
        free(self.batch_at)
        free(self.batch_margin)
        free(self.batch_side)
        free(self.batch_weight)
        free(self.velocity)
        free(self.gradient)

    cdef bint train(self, int64_t n, double* plane, double* threshold) except -1 nogil:
        """Train from ``plane . x > threshold`` on the first n rows; both are written over.

        False where nothing was found that errs no more than the start: then they stay.
        """
        cdef int64_t i, j, n_epochs, stalled = 0
        cdef int32_t feature
        cdef bint found = False
        cdef double loss, total = 0, rate = self.learning_rate, last = INFINITY
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
            if self.poll(n * self.p):
                return False
            self.epoch(rate)
            if self.rows == self.table and i % MEASURE != 0 and i < n_epochs:
                continue
            self.take_margins(self.at, n, self.margin)
            loss = skf_logistic_loss(self.margin, self.side, self.weight, n)
            if not isfinite(loss):
                break
            found = self.remember() or found
            if loss < 0.999 * last:
                last = loss
                stalled = 0
                continue
            stalled += 1
            if stalled == PATIENCE:
                stalled = 0
                rate /= 2
                if rate < self.learning_rate / 50:
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
        cdef int64_t i, j, stride
        cdef double square
        # 1. one centre, and one scale for all features
        square = survey(
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
        # 3. rows written anew where they fit, without what does not vary
        self.rows = self.table
        self.p = p
        self.scale = self.node_scale
        memcpy(self.mean, self.node_mean, p * sizeof(float))
        stride = (self.n_varying + LANES - 1) // LANES * LANES
        if n * stride <= OWN_ROWS:
            skf_gather_rows(
                self.table, self.at, n, self.varying, 0, self.n_varying, stride, self.node_mean,
                <float>self.node_scale, self.own_rows
            )
            self.rows = self.own_rows
            self.p = stride
            self.scale = 1
            memset(self.mean, 0, stride * sizeof(float))
            for i in range(n):
                self.at[i] = i * stride
        return True

    # ------------------------------------------------------------------------------------ training

    cdef void start(self, const double* plane, double threshold) noexcept nogil:
        """Begin at a plane, scaled to norm 1: steeper ones are slow to turn, and fit noise."""
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
        self.take_margins(self.at, n, self.margin)
        memcpy(self.first_w, w, self.p * sizeof(float))
        memcpy(self.first_margin, self.margin, n * sizeof(float))
        self.first_bias = self.bias

    cdef void epoch(self, double rate) noexcept nogil:
        """Show the rows once, in batches; self.margin is that of the weights so far."""
        cdef int64_t i, row, other, size, start = 0, n = self.n
        cdef int32_t* visit = self.visit
        cdef int32_t swap
        if n <= self.batch_size:
            memcpy(self.batch_at, self.at, n * sizeof(int64_t))
            memcpy(self.batch_margin, self.margin, n * sizeof(float))
            memcpy(self.batch_side, self.side, n * sizeof(float))
            memcpy(self.batch_weight, self.weight, n * sizeof(float))
            self.step(n, rate)
            return
        for i in range(n - 1, 0, -1):
            other = below(&self.random, <int>(i + 1))
            swap = visit[i]
            visit[i] = visit[other]
            visit[other] = swap
        while start < n:
            size = min(<int64_t>self.batch_size, n - start)
            for i in range(size):
                row = visit[start + i]
                self.batch_at[i] = self.at[row]
                self.batch_side[i] = self.side[row]
                self.batch_weight[i] = self.weight[row]
            self.take_margins(self.batch_at, size, self.batch_margin)
            self.step(size, rate)
            start += size

    cdef void step(self, int64_t n, double rate) noexcept nogil:
        """One step of momentum along the gradient of a batch, and back into the ball of nu."""
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

    cdef void take_margins(self, const int64_t* at, int64_t n, float* out) noexcept nogil:
        """Margins of some rows: positive where they go right."""
        cdef int64_t zero = 0
        cdef float dot = 0
        skf_margins(self.rows, at, n, self.w, self.p, out)
        if self.rows == self.own_rows:
            skf_rescale(out, n, 1, <float>self.bias)
            return
        skf_margins(self.mean, &zero, 1, self.w, self.p, &dot)
        skf_rescale(out, n, <float>self.scale, <float>(self.scale * dot + self.bias))

    cdef bint remember(self) noexcept nogil:
        """Keep the plane on the way from the start to here that errs least, if none erred less.

        Where a plane is nearly right, a few epochs bring it close to one with wider margins, but
        seldom exactly to one that errs as little; part of the way does.
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
            if wrong <= self.best_error:  # later ones win ties
                self.best_error = wrong
                chosen = t
        if chosen == 0:
            return False
        for j in range(self.p):
            self.best_w[j] = self.first_w[j] + chosen * (self.w[j] - self.first_w[j])
        self.best_bias = self.first_bias + chosen * (self.bias - self.first_bias)
        return True

    cdef bint poll(self, int64_t work) except -1 nogil:
        """True where training shall end; now and then lets a signal handler raise."""
        if self.stop[0]:
            return True
        self.work = self.work + work
        if self.work > POLL:
            self.work = 0
            with gil:
                PyErr_CheckSignals()
        return False
