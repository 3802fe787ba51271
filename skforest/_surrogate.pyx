"""Floor 2: oblique splits by the convex-concave bound.

A node is split by a hyperplane ``w . x > b``; each side answers with a leaf. The loss of the leaf
that a row reaches is bounded from above (Norouzi et al. 2015a, equation 9), with margin m and the
losses l0, l1 of the left and the right leaf, by

    max(-m + l0, m + l1) - |m|

which stochastic subgradient descent decreases, with momentum, under ``|w|^2 + b^2 <= nu``. The
start is the best cut of a few single features, so that training can only improve on that.

Two things are not in the paper and matter more than all of the above: the rows of each node are
centred on their mean, and scaled by one number to a fixed root mean square norm.
"""

from libc.math cimport INFINITY, exp, isfinite, log, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from ._projection cimport Sampler
from ._random cimport below, uniform
from ._search cimport SearchSplitter
from ._split cimport Split

cdef extern from "_descent.h" nogil:
    void skf_margins(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_add_rows(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_bounds(const float*, const int64_t*, int64_t, int64_t, float*, float*)
    void skf_distances(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_momentum_step(
        float*, float*, float*, const float*, int64_t, float, float, float, float, float*
    )
    void skf_rescale(float*, int64_t, float, float)
    void skf_bound_slopes(
        const float*, const float*, const float*, const float*, int64_t, float*
    )
    void skf_bound_values(const float*, const float*, int64_t, float*)
    void skf_gather_rows(
        const float*, const int64_t*, int64_t, const int32_t*, int64_t, int64_t, const float*,
        float, float*
    )

cdef enum Objective:
    CO2 = 0
    SOFT = 1
    MIXED = 2

OBJECTIVES = {"co2": CO2, "soft": SOFT, "mixed": MIXED}

cdef enum:
    LANES = 16              # rows written anew are padded to a multiple of this
    OWN_ROWS = 1 << 21      # floats: 8 MiB, about a cache
    BLOCK = 256             # rows whose margins are taken together
    HELD_FROM = 40          # rows of the smallest node that holds some out
    MIN_EPOCHS = 3
    PATIENCE = 3            # epochs without progress before the rate is halved


cdef inline float* floats(int64_t n) noexcept nogil:
    return <float*>malloc(<size_t>(n + LANES) * sizeof(float))


cdef class StumpSplitter(SearchSplitter):
    """Split by a hyperplane, trained from the best cut of some single features.

    Parameters
    ----------
    X, target, n_outputs, weight, rows, criterion, seed, stop, sampler, n_candidates, exact, \
n_bins, max_search, min_leaf, min_weight, may_overflow
        As in SearchSplitter; X is float32 and the sampler draws features.
    objective : {"co2", "soft", "mixed"}
    nu, learning_rate, momentum : float
    batch_size, n_visits, max_epochs : int
        A node of n rows has n_visits / n epochs, at least 3, at most max_epochs.
    smoothing, radius, holdout : float
    old_signs : bool
        The branch taken is that at the end of the last epoch, not that of the current weights.
    gradient_leaves : bool
        Leaves move with the weights, step by step, not to their best after every epoch.
    """

    def __init__(
        self, X, target, int32_t n_outputs, weight, int32_t[::1] rows, criterion, uint64_t seed,
        stop, Sampler sampler, int32_t n_candidates, bint exact, int32_t n_bins,
        int64_t max_search, int64_t min_leaf, double min_weight, bint may_overflow, objective,
        double nu, double learning_rate, double momentum, int32_t batch_size, int64_t n_visits,
        int32_t max_epochs, double smoothing, double radius, double holdout, bint old_signs,
        bint gradient_leaves
    ):
        SearchSplitter.__init__(
            self, X, target, n_outputs, weight, rows, criterion, seed, stop, sampler,
            n_candidates, exact, n_bins, max_search, min_leaf, min_weight, may_overflow
        )
        cdef int64_t n = rows.shape[0]
        cdef int64_t p = X.shape[1]
        cdef int64_t batch = max(batch_size, <int32_t>BLOCK)
        self.objective = OBJECTIVES[objective]
        self.nu = nu
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.batch_size = batch_size
        self.n_visits = n_visits
        self.max_epochs = max_epochs
        self.smoothing = smoothing
        self.radius = radius
        self.holdout = holdout
        self.old_signs = old_signs
        self.gradient_leaves = gradient_leaves
        self.order = <int32_t*>malloc(n * sizeof(int32_t))
        self.at = <int64_t*>malloc(n * sizeof(int64_t))
        self.mean = floats(p)
        self.row_weight = floats(n)
        self.row_label = <int32_t*>malloc(n * sizeof(int32_t))
        if not self.is_class:
            self.row_target = <double*>malloc(n * n_outputs * sizeof(double))
        self.own_rows = floats(min(n * (p + LANES), <int64_t>OWN_ROWS))
        self.node_mean = floats(p)
        self.varying = <int32_t*>malloc(p * sizeof(int32_t))
        self.low = floats(p)
        self.high = floats(p)
        self.plane.w = floats(p)
        self.best.w = floats(p)
        self.sides.left = <double*>malloc(n_outputs * sizeof(double))
        self.sides.right = <double*>malloc(n_outputs * sizeof(double))
        self.margin = floats(n)
        self.base = floats(n)
        self.delta = floats(n)
        self.leaf_left = <double*>malloc(n_outputs * sizeof(double))
        self.leaf_right = <double*>malloc(n_outputs * sizeof(double))
        self.visit = <int32_t*>malloc(n * sizeof(int32_t))
        self.batch_at = <int64_t*>malloc(batch * sizeof(int64_t))
        self.batch_margin = floats(batch)
        self.batch_branch = floats(batch)
        self.batch_delta = floats(batch)
        self.batch_weight = floats(batch)
        self.batch_slope = floats(batch)
        self.velocity = floats(p)
        self.gradient = floats(p)
        self.leaf_velocity = <double*>malloc(2 * n_outputs * sizeof(double))
        self.direction = floats(p)
        if not (
            self.order and self.at and self.mean and self.row_weight and self.row_label and
            (self.is_class or self.row_target) and self.own_rows and self.node_mean and
            self.varying and self.low and self.high and self.plane.w and self.best.w and
            self.sides.left and self.sides.right and self.margin and self.base and self.delta and
            self.leaf_left and self.leaf_right and self.visit and self.batch_at and
            self.batch_margin and self.batch_branch and self.batch_delta and self.batch_weight and
            self.batch_slope and self.velocity and self.gradient and self.leaf_velocity
            and self.direction
        ):
            raise MemoryError()

    def __dealloc__(self):
        free(self.order)
        free(self.at)
        free(self.mean)
        free(self.row_weight)
        free(self.row_label)
        free(self.row_target)
        free(self.own_rows)
        free(self.node_mean)
        free(self.varying)
        free(self.low)
        free(self.high)
        free(self.plane.w)
        free(self.best.w)
        free(self.sides.left)
        free(self.sides.right)
        free(self.margin)
        free(self.base)
        free(self.delta)
        free(self.leaf_left)
        free(self.leaf_right)
        free(self.visit)
        free(self.batch_at)
        free(self.batch_margin)
        free(self.batch_branch)
        free(self.batch_delta)
        free(self.batch_weight)
        free(self.batch_slope)
        free(self.velocity)
        free(self.gradient)
        free(self.leaf_velocity)
        free(self.direction)

    cdef bint search(self, Split* split) except -1 nogil:
        """The best cut of a single feature, and the hyperplane that training makes of it."""
        cdef Split axis
        if not SearchSplitter.search(self, &axis):
            return False
        split[0] = axis
        self.line_up()
        if self.prepare(self.champion.feature, axis.threshold):
            self.optimise()
            if self.stop[0]:
                return False
            self.accept(&axis, split)
        return True

    # ----------------------------------------------------------------------------- the node's rows

    cdef void line_up(self) noexcept nogil:
        """Set the training rows apart from those held out, and copy what is known of each row."""
        cdef int64_t i, row, n = self.node.n
        cdef int32_t k, other, at
        cdef double y, variance = 0
        cdef int32_t* order = self.order
        for i in range(n):
            order[i] = <int32_t>i
        self.n_train = n
        if self.holdout > 0 and n >= HELD_FROM:
            self.n_train = n - <int64_t>(self.holdout * n)
            for i in range(n - 1, self.n_train - 1, -1):
                other = below(&self.random, <int>(i + 1))
                at = order[i]
                order[i] = order[other]
                order[other] = at
        for i in range(n):
            row = order[i]
            self.row_weight[i] = <float>(self.node.weight[row] * n / self.node_weight)
            if self.is_class:
                self.row_label[i] = self.node.label[row]
                continue
            for k in range(self.n_outputs):
                y = self.node.target[row * self.n_outputs + k] / self.node.weight[row]
                self.row_target[i * self.n_outputs + k] = y
                y -= self.total[k] / self.node_weight
                variance += self.row_weight[i] * y * y
        # Squared errors are taken in units of the variance of the node.
        self.loss_scale = n / variance if variance > 0 else 1
        for i in range(self.n_train):
            self.visit[i] = <int32_t>i

    cdef bint prepare(self, int32_t feature, float threshold) noexcept nogil:
        """Centre and scale the rows of the node, start at the cut of a feature; False: no use."""
        cdef int64_t n = self.node.n, p = self.table.n_features
        cdef int64_t i, j, stride
        cdef const float* table = <const float*>self.table.data
        cdef double square = 0
        cdef float* margin = self.margin
        cdef float* w = self.plane.w
        # 1. the features that vary; weights of others stay exactly 0
        for i in range(n):
            self.at[i] = self.node.offset[self.order[i]]
        skf_bounds(table, self.at, n, p, self.low, self.high)
        self.n_varying = 0
        for j in range(p):
            if self.high[j] > self.low[j]:
                self.varying[self.n_varying] = <int32_t>j
                self.n_varying = self.n_varying + 1
        # 2. one centre, and one scale for all features
        self.add_up_mean()
        skf_distances(table, self.at, n, self.node_mean, p, margin)
        for i in range(n):
            square += self.row_weight[i] * margin[i]
        if not (square > 0) or not isfinite(square):
            return False
        self.node_scale = self.radius / sqrt(square / n)
        # 3. rows written anew where they fit, without what does not vary
        self.rows = table
        self.p = p
        self.scale = self.node_scale
        memcpy(self.mean, self.node_mean, p * sizeof(float))
        stride = (self.n_varying + LANES - 1) // LANES * LANES
        if n * stride <= OWN_ROWS:
            skf_gather_rows(
                table, self.at, n, self.varying, self.n_varying, stride, self.node_mean,
                <float>self.node_scale, self.own_rows
            )
            self.rows = self.own_rows
            self.p = stride
            self.scale = 1
            memset(self.mean, 0, stride * sizeof(float))
            for i in range(n):
                self.at[i] = i * stride
        # 4. the plane of the feature's cut
        memset(w, 0, self.p * sizeof(float))
        memset(self.velocity, 0, self.p * sizeof(float))
        memset(self.gradient, 0, self.p * sizeof(float))
        self.bias_velocity = 0
        for j in range(self.n_varying):
            if self.varying[j] == feature:
                w[j if self.rows == self.own_rows else feature] = 1
        self.plane.bias = self.node_scale * (<double>threshold - self.node_mean[feature])
        return True

    cdef void add_up_mean(self) noexcept nogil:
        """Weighted mean of every feature. A block adds to the sum only once: float32 will do."""
        cdef int64_t start = 0, size, i, j, n = self.node.n, p = self.table.n_features
        cdef float* mean = self.node_mean
        cdef float* sum_ = self.gradient
        memset(mean, 0, p * sizeof(float))
        while start < n:
            size = min(<int64_t>BLOCK, n - start)
            for i in range(size):
                self.batch_weight[i] = self.row_weight[start + i] / n
            memset(sum_, 0, p * sizeof(float))
            skf_add_rows(
                <const float*>self.table.data, self.at + start, size, self.batch_weight, p, sum_
            )
            for j in range(p):
                mean[j] += sum_[j]
            start += size

    # ------------------------------------------------------------------------------------ training

    cdef int optimise(self) except -1 nogil:
        """Stochastic subgradient descent; self.best is the plane of best gain on the way."""
        cdef int objective = self.objective
        cdef int64_t epoch, n_epochs, stalled = 0
        cdef double loss, rate = self.learning_rate, last = INFINITY
        if objective == MIXED:
            objective = SOFT if uniform(&self.random) < 0.5 else CO2
        n_epochs = min(
            <int64_t>self.max_epochs, max(<int64_t>MIN_EPOCHS, self.n_visits // self.n_train)
        )
        self.best.score = -INFINITY
        self.take_margins(&self.plane, self.at, self.n_train, self.margin)
        self.weigh_sides()
        self.remember()
        memset(self.leaf_velocity, 0, 2 * self.n_outputs * sizeof(double))
        for epoch in range(n_epochs):
            if epoch == 0 or not self.gradient_leaves:
                self.set_leaves()
            self.set_losses(0, self.n_train)
            if self.poll(self.n_train * self.p):
                return 0
            self.epoch(rate, objective)
            self.take_margins(&self.plane, self.at, self.n_train, self.margin)
            if self.gradient_leaves:
                self.set_losses(0, self.n_train)
            loss = self.mean_loss(objective)
            if not isfinite(loss):
                return 0
            self.weigh_sides()
            self.remember()
            if loss < 0.999 * last:
                last = loss
                stalled = 0
            else:
                stalled += 1
            if stalled == PATIENCE:
                stalled = 0
                rate /= 2
                if rate < self.learning_rate / 50:
                    return 0
        return 0

    cdef void epoch(self, double rate, int objective) noexcept nogil:
        """Show the training rows once, in batches; self.margin is that of the weights so far."""
        cdef int64_t i, row, other, size, start = 0, n = self.n_train
        cdef int32_t* visit = self.visit
        cdef int32_t swap
        if n <= self.batch_size:
            memcpy(self.batch_at, self.at, n * sizeof(int64_t))
            memcpy(self.batch_margin, self.margin, n * sizeof(float))
            memcpy(self.batch_branch, self.margin, n * sizeof(float))
            memcpy(self.batch_delta, self.delta, n * sizeof(float))
            memcpy(self.batch_weight, self.row_weight, n * sizeof(float))
            self.step(n, rate, objective)
            if self.gradient_leaves:
                self.move_leaves(visit, n, rate, objective)
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
                if self.gradient_leaves:
                    self.set_losses(row, row + 1)
                self.batch_at[i] = self.at[row]
                self.batch_branch[i] = self.margin[row]
                self.batch_delta[i] = self.delta[row]
                self.batch_weight[i] = self.row_weight[row]
            self.take_margins(&self.plane, self.batch_at, size, self.batch_margin)
            if not self.old_signs:
                memcpy(self.batch_branch, self.batch_margin, size * sizeof(float))
            self.step(size, rate, objective)
            if self.gradient_leaves:
                self.move_leaves(visit + start, size, rate, objective)
            start += size

    cdef void step(self, int64_t n, double rate, int objective) noexcept nogil:
        """One step of momentum along the gradient of a batch, and back into the ball of nu."""
        cdef int64_t i, n_active = 0
        cdef float* slope = self.batch_slope
        cdef float* w = self.plane.w
        cdef int64_t* at = self.batch_at
        cdef float square = 0
        cdef double sigma, shrink, total = 0, shift = 0
        if objective == SOFT:
            for i in range(n):
                sigma = 1 / (1 + exp(-2 * <double>self.batch_margin[i]))
                slope[i] = <float>(
                    2 * sigma * (1 - sigma) * self.batch_delta[i] * self.batch_weight[i]
                )
        else:
            skf_bound_slopes(
                self.batch_margin, self.batch_branch, self.batch_delta, self.batch_weight, n, slope
            )
        for i in range(n):
            total += self.batch_weight[i]
            if slope[i] != 0:
                shift += slope[i]
                at[n_active] = at[i]
                slope[n_active] = slope[i]
                n_active += 1
        skf_add_rows(self.rows, at, n_active, slope, self.p, self.gradient)
        skf_momentum_step(
            w, self.velocity, self.gradient, self.mean, self.p, <float>(self.scale / total),
            <float>shift, <float>self.momentum, <float>rate, &square
        )
        self.bias_velocity = self.momentum * self.bias_velocity - shift / total
        self.plane.bias = self.plane.bias - rate * self.bias_velocity
        shrink = square + self.plane.bias * self.plane.bias
        if shrink > self.nu:
            shrink = sqrt(self.nu / shrink)
            self.plane.bias = self.plane.bias * shrink
            skf_rescale(w, self.p, <float>shrink, 0)

    cdef void move_leaves(
        self, const int32_t* rows, int64_t n, double rate, int objective
    ) noexcept nogil:
        """One step of momentum of both leaves, along the gradient of the batch just shown.

        The bound counts a row at the leaf that is worse, with the margin: there alone it has a
        gradient (algorithm 1 of the paper); the soft loss counts it at both. Log shares are kept
        normalised, which changes neither losses nor gradients; values move in units of the
        node's deviation.
        """
        cdef int64_t i
        cdef int32_t k, side, row
        cdef double right, share, slope, total = 0
        cdef double* leaf
        cdef double* velocity
        for i in range(n):
            total += self.batch_weight[i]
        for k in range(2 * self.n_outputs):
            self.leaf_velocity[k] = self.leaf_velocity[k] * self.momentum
        for i in range(n):
            row = rows[i]
            if objective == SOFT:
                right = 1 / (1 + exp(-2 * <double>self.batch_margin[i]))
            else:
                right = 2 * self.batch_margin[i] + self.batch_delta[i] > 0
            for side in range(2):
                share = (right if side else 1 - right) * self.row_weight[row] / total
                if share == 0:
                    continue
                leaf = self.leaf_right if side else self.leaf_left
                velocity = self.leaf_velocity + side * self.n_outputs
                for k in range(self.n_present):
                    if self.is_class:
                        slope = exp(leaf[k]) - (k == self.row_label[row])
                    else:
                        slope = 2 * (leaf[k] - self.row_target[row * self.n_outputs + k])
                    velocity[k] += share * slope
        for side in range(2):
            leaf = self.leaf_right if side else self.leaf_left
            velocity = self.leaf_velocity + side * self.n_outputs
            share = 0
            for k in range(self.n_present):
                leaf[k] -= rate * velocity[k]
                if self.is_class:
                    share += exp(leaf[k])
            if self.is_class:
                for k in range(self.n_present):
                    leaf[k] -= log(share)

    cdef void take_margins(
        self, const Plane* plane, const int64_t* at, int64_t n, float* out
    ) noexcept nogil:
        """Margins of some rows: positive where they go right."""
        cdef int64_t zero = 0
        cdef float dot = 0
        skf_margins(self.rows, at, n, plane.w, self.p, out)
        if self.rows == self.own_rows:
            skf_rescale(out, n, 1, <float>plane.bias)
            return
        skf_margins(self.mean, &zero, 1, plane.w, self.p, &dot)
        skf_rescale(out, n, <float>self.scale, <float>(self.scale * dot + plane.bias))

    cdef void weigh_sides(self) noexcept nogil:
        """Sum the targets of the training rows on either side."""
        cdef int64_t i, n_right = 0
        cdef int32_t k
        cdef double weight, total = 0, right_weight = 0
        cdef Sides* sides = &self.sides
        cdef bint right
        cdef double* side
        memset(sides.left, 0, self.n_outputs * sizeof(double))
        memset(sides.right, 0, self.n_outputs * sizeof(double))
        for i in range(self.n_train):
            right = self.margin[i] > 0
            side = sides.right if right else sides.left
            weight = self.row_weight[i]
            n_right += right
            total += weight
            right_weight += right * weight
            if self.is_class:
                side[self.row_label[i]] += weight
            else:
                for k in range(self.n_outputs):
                    side[k] += weight * self.row_target[i * self.n_outputs + k]
        sides.n_left = self.n_train - n_right
        sides.left_weight = total - right_weight
        sides.right_weight = right_weight

    cdef double mean_loss(self, int objective) noexcept nogil:
        """The objective, as a mean over the training rows."""
        cdef int64_t i
        cdef double loss = 0, total = 0
        cdef float* value = self.batch_slope
        cdef int64_t start = 0, size
        while start < self.n_train:
            size = min(<int64_t>BLOCK, self.n_train - start)
            if objective == SOFT:
                for i in range(size):
                    value[i] = <float>(
                        self.delta[start + i] / (1 + exp(-2 * <double>self.margin[start + i]))
                    )
            else:
                skf_bound_values(self.margin + start, self.delta + start, size, value)
            for i in range(size):
                loss += self.row_weight[start + i] * (self.base[start + i] + value[i])
                total += self.row_weight[start + i]
            start += size
        return loss / total

    cdef void set_leaves(self) noexcept nogil:
        """Best parameters of both leaves: smoothed log shares of the classes, or means."""
        cdef int32_t k
        cdef Sides* sides = &self.sides
        cdef double pseudo = self.smoothing
        cdef double left, right
        if self.is_class:
            left = log(sides.left_weight + self.n_present * pseudo)
            right = log(sides.right_weight + self.n_present * pseudo)
            for k in range(self.n_present):
                self.leaf_left[k] = log(sides.left[k] + pseudo) - left
                self.leaf_right[k] = log(sides.right[k] + pseudo) - right
            return
        for k in range(self.n_outputs):
            if sides.left_weight > 0:
                self.leaf_left[k] = sides.left[k] / sides.left_weight
            if sides.right_weight > 0:
                self.leaf_right[k] = sides.right[k] / sides.right_weight

    cdef void set_losses(self, int64_t first, int64_t last) noexcept nogil:
        """Log loss, or scaled squared error, of some rows at either leaf."""
        cdef int64_t i
        cdef int32_t k
        cdef double y, left, right
        for i in range(first, last):
            if self.is_class:
                k = self.row_label[i]
                left = -self.leaf_left[k]
                right = -self.leaf_right[k]
            else:
                left = 0
                right = 0
                for k in range(self.n_outputs):
                    y = self.row_target[i * self.n_outputs + k]
                    left += (y - self.leaf_left[k]) * (y - self.leaf_left[k])
                    right += (y - self.leaf_right[k]) * (y - self.leaf_right[k])
                left *= self.loss_scale
                right *= self.loss_scale
            self.base[i] = <float>left
            self.delta[i] = <float>(right - left)

    cdef void remember(self) noexcept nogil:
        """Keep the plane if no other had more gain; later ones win ties."""
        cdef Sides* sides = &self.sides
        cdef double score
        if sides.n_left == 0 or sides.n_left == self.n_train:
            return
        score = self.side(sides.left, sides.left_weight)
        score += self.side(sides.right, sides.right_weight)
        if score < self.best.score:
            return
        self.best.score = score
        self.best.bias = self.plane.bias
        memcpy(self.best.w, self.plane.w, self.p * sizeof(float))

    # ------------------------------------------------------------------------------------ settling

    cdef bint accept(self, const Split* axis, Split* split) except -1 nogil:
        """Split by the best plane, unless the cut of the feature does better on held-out rows."""
        cdef int64_t i, j, p = self.table.n_features, n = self.node.n
        cdef int32_t feature
        cdef double threshold, loss
        cdef float* direction = self.direction
        if self.best.score == -INFINITY:
            return False
        if self.n_train < n:
            self.take_margins(&self.best, self.at, n, self.margin)
            loss = self.held_loss()
            for i in range(n):
                self.margin[i] = 1 if self.column[self.order[i]] > axis.threshold else -1
            if loss > self.held_loss():
                return False
        memset(direction, 0, p * sizeof(float))
        threshold = self.best.bias / self.node_scale
        for j in range(self.n_varying):
            feature = self.varying[j]
            direction[feature] = self.best.w[j if self.rows == self.own_rows else feature]
            threshold += <double>direction[feature] * self.node_mean[feature]
        return self.take_plane(direction, <float>threshold, 0, split)

    cdef double held_loss(self) noexcept nogil:
        """Loss of the held-out rows at the leaves of the training rows, by self.margin."""
        cdef int64_t i
        cdef double loss = 0
        self.weigh_sides()
        self.set_leaves()
        self.set_losses(self.n_train, self.node.n)
        for i in range(self.n_train, self.node.n):
            loss += self.row_weight[i] * (
                self.base[i] + (self.delta[i] if self.margin[i] > 0 else 0)
            )
        return loss
