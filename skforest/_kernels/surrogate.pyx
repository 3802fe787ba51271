"""Oblique splits by the convex-concave bound.

A node is split by a hyperplane ``w . x > b``; each side answers with a leaf. The loss of the leaf
that a row reaches is bounded from above (Norouzi et al. 2015a, equation 9), with margin m and the
losses l0, l1 of the left and the right leaf, by

    max(-m + l0, m + l1) - |m|

which stochastic subgradient descent decreases, with momentum, under ``|w|^2 + b^2 <= nu``. The
start is the best cut of a few single features, so that training can only improve on that.

Two things are not in the paper and matter more than all of the above: the rows of each node are
centred on their mean, and scaled by one number to a fixed root mean square norm.

Time goes into reading rows, so a pass over them does all it can: one survey gives the mean, the
norm and what varies; the margins of a batch give its slopes, its objective and its sides.
"""

from libc.math cimport INFINITY, exp, fabs, isfinite, log, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from .memory cimport Scratch
from .random cimport below, uniform
from .search cimport SearchSplitter
from .split cimport Split
from .survey cimport survey

cdef extern from "descent.h" nogil:
    void skf_margins(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_add_rows(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_momentum_step(
        float*, float*, float*, const float*, int64_t, float, float, float, float, float*
    )
    void skf_rescale(float*, int64_t, float, float)
    void skf_bound_slopes(
        const float*, const float*, const float*, const float*, int64_t, float*
    )
    void skf_bound_values(const float*, const float*, int64_t, float*)
    void skf_dot(const float*, const float*, int64_t, float*)
    int64_t skf_pick_active(const int64_t*, const float*, int64_t, int64_t*, float*, double*)
    void skf_label_losses(
        const int32_t*, int64_t, const float*, const float*, float*, float*
    )
    int64_t skf_weigh_labels(
        const float*, const int32_t*, const float*, int64_t, int64_t, double*
    )
    void skf_gather_rows(
        const float*, const int64_t*, int64_t, const int32_t*, int64_t, int64_t, int64_t,
        const float*, float, float*
    )
    enum:
        SKF_GROUP

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
    MEASURE = 5             # epochs of a node of several batches between two looks at all rows
    SHORTEST = 128          # part of its length that the first plane is taken down to


cdef class StumpSplitter(SearchSplitter):
    """Split by a hyperplane, trained from the best cut of some single features.

    Parameters
    ----------
    training_set, options, seed, stop
        As in `SearchSplitter`; X is float32 and the sampler draws features. The splitter also
        reads these options.

        objective : {"co2", "soft", "mixed"}
        nu, learning_rate, momentum : float
        batch_size, n_visits, max_epochs : int
            A node of n rows is trained for n_visits / n epochs, at least 3, at most max_epochs.
        smoothing : float
            Weight that is added to each class of a leaf.
        row_norm : float
            Root mean square norm that rows are scaled to once they are centred; 0: neither.
        holdout : float
            Share of the rows of a node that decide between the hyperplane and the first cut.
        old_signs : bool
            The branch of a row is that at the end of the last epoch instead of the current one.
        gradient_leaves : bool
            Leaves take gradient steps with the weights, instead of their optimum every epoch.
        keep_last : bool
            The split is the last hyperplane of training instead of the one of largest gain.
    """

    def __init__(self, training_set, options, uint64_t seed, stop):
        SearchSplitter.__init__(self, training_set, options, seed, stop)
        self.objective = OBJECTIVES[options.objective]
        self.nu = options.nu
        self.learning_rate = options.learning_rate
        self.momentum = options.momentum
        self.batch_size = options.batch_size
        self.n_visits = options.n_visits
        self.max_epochs = options.max_epochs
        self.smoothing = options.smoothing
        self.row_norm = options.row_norm
        self.holdout = options.holdout
        self.old_signs = options.old_signs
        self.gradient_leaves = options.gradient_leaves
        self.keep_last = options.keep_last
        self._reserve_training()

    def _reserve_training(self):
        cdef Scratch scratch = self.scratch
        cdef int64_t i, n = self.n_rows, p = self.table.n_features
        cdef int64_t batch = max(min(<int64_t>self.batch_size, n), <int64_t>BLOCK)
        cdef int32_t n_outputs = self.n_outputs
        self.order = scratch.ints(n)
        self.at = scratch.longs(n)
        self.mean = scratch.floats(p + LANES)
        self.row_weight = scratch.floats(n)
        self.row_label = scratch.ints(n)
        if not self.is_class:
            self.row_target = scratch.doubles(n * n_outputs)
        self.own_rows = scratch.floats(min(n * (p + LANES), <int64_t>OWN_ROWS))
        self.node_mean = scratch.floats(p)
        self.seen = scratch.ints(p)
        self.group = scratch.ints(p)
        self.kept = scratch.ints(p)
        self.plane.w = scratch.floats(p + LANES)
        self.best_plane.w = scratch.floats(p + LANES)
        self.sides.left = scratch.doubles(2 * n_outputs)
        self.sides.right = self.sides.left + n_outputs
        self.sides.before = scratch.doubles(2 * n_outputs)
        self.margin = scratch.floats(n)
        self.base = scratch.floats(n)
        self.delta = scratch.floats(n)
        self.leaf_left = scratch.doubles(n_outputs)
        self.leaf_right = scratch.doubles(n_outputs)
        self.label_base = scratch.floats(n_outputs)
        self.label_delta = scratch.floats(n_outputs)
        self.ones = scratch.floats(batch)
        self.batch_at = scratch.longs(batch)
        self.batch_margin = scratch.floats(batch)
        self.batch_branch = scratch.floats(batch)
        self.batch_value = scratch.floats(batch)
        self.batch_delta = scratch.floats(batch)
        self.batch_weight = scratch.floats(batch)
        self.batch_slope = scratch.floats(batch)
        self.active_at = scratch.longs(batch + 1)
        self.active_slope = scratch.floats(batch)
        self.velocity = scratch.floats(p + LANES)
        self.gradient = scratch.floats(p + LANES)
        self.leaf_velocity = scratch.doubles(2 * n_outputs)
        self.direction = scratch.floats(p)
        for i in range(batch):
            self.ones[i] = 1

    cdef bint search(self, Split* split) except -1 nogil:
        """The best cut of a single feature, and the hyperplane that training makes of it."""
        cdef Split axis
        if not SearchSplitter.search(self, &axis):
            return False
        split[0] = axis
        self.line_up()
        if self.prepare(self.best.feature):
            self.optimise(&axis)
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
        self.train_weight = 0
        for i in range(self.n_train):
            self.train_weight = self.train_weight + self.row_weight[i]

    cdef bint prepare(self, int32_t feature) except -1 nogil:
        """Centre and scale the rows of the node, and find a feature in them; False: no use."""
        cdef int64_t n = self.node.n, p = self.table.n_features
        cdef int64_t i, j, stride
        cdef double square
        # 1. one centre, one scale for all features, and which of these vary
        for i in range(n):
            self.at[i] = self.node.offset[self.order[i]]
        if self.should_stop(n * p):
            return False
        square = survey(
            <const float*>self.table.data, self.at, self.row_weight, n, p, self.node_mean,
            self.seen, self.margin, self.gradient
        )
        if not (square > 0) or not isfinite(square):
            return False
        self.node_scale = self.row_norm / sqrt(square / n) if self.row_norm > 0 else 1
        if self.row_norm == 0:
            memset(self.node_mean, 0, p * sizeof(float))
        # 2. rows written anew where they fit, without most of what does not vary
        self.keep_features()
        self.rows = <const float*>self.table.data
        self.p = p
        self.scale = self.node_scale
        stride = (self.n_kept + LANES - 1) // LANES * LANES
        if n * stride <= OWN_ROWS:
            skf_gather_rows(
                self.rows, self.at, n, self.group, self.n_groups,
                self.n_kept - SKF_GROUP * self.n_groups, stride, self.node_mean,
                <float>self.node_scale, self.own_rows
            )
            self.rows = self.own_rows
            self.p = stride
            self.scale = 1
            for i in range(n):
                self.at[i] = i * stride
        else:
            memcpy(self.mean, self.node_mean, p * sizeof(float))
        # 3. where the feature of the first cut is
        memset(self.gradient, 0, self.p * sizeof(float))
        self.first = feature
        if self.rows == self.own_rows:
            memset(self.mean, 0, stride * sizeof(float))
            for j in range(self.n_kept):
                if self.kept[j] == feature:
                    self.first = j
        return True

    cdef void set_out(self, const Split* axis, double length) noexcept nogil:
        """The plane of the feature's cut, with weights of some norm, at rest."""
        cdef int64_t i
        memset(self.plane.w, 0, self.p * sizeof(float))
        memset(self.velocity, 0, self.p * sizeof(float))
        self.plane.w[self.first] = <float>length
        self.plane.bias = self.node_scale * (
            <double>axis.threshold - self.node_mean[self.best.feature]
        )
        self.plane.bias = length * self.plane.bias
        self.bias_velocity = 0
        for i in range(self.n_train):
            self.margin[i] = <float>(
                length * self.node_scale * (<double>self.column[self.order[i]] - axis.threshold)
            )

    cdef void keep_features(self) noexcept nogil:
        """List the groups of features of which one varies, and those behind the last group.

        The others of a group equal their mean exactly: they never get a weight.
        """
        cdef int32_t g, j, k, p = self.table.n_features
        cdef int32_t whole = p // SKF_GROUP
        cdef bint varies
        self.n_groups = 0
        self.n_kept = 0
        for g in range(whole):
            j = g * SKF_GROUP
            varies = False
            for k in range(SKF_GROUP):
                varies = varies or self.varies(j + k)
            if varies:
                self.group[self.n_groups] = j
                self.n_groups = self.n_groups + 1
                for k in range(SKF_GROUP):
                    self.kept[self.n_kept] = j + k
                    self.n_kept = self.n_kept + 1
        for j in range(whole * SKF_GROUP, p):
            if self.varies(j):
                self.group[self.n_groups + self.n_kept - SKF_GROUP * self.n_groups] = j
                self.kept[self.n_kept] = j
                self.n_kept = self.n_kept + 1

    cdef inline bint varies(self, int64_t feature) noexcept nogil:
        """Does a feature vary in the node? The sign of a difference of -0 is not one."""
        return (self.seen[feature] & 0x7FFFFFFF) != 0

    # ------------------------------------------------------------------------------------ training

    cdef int optimise(self, const Split* axis) except -1 nogil:
        """Stochastic subgradient descent; self.best_plane is the plane of best gain on the way.

        With several batches an epoch, its objective and its leaves are taken from the margins that
        the rows had when it was their turn, and gain is measured only now and then.
        """
        cdef int objective = self.objective
        cdef int64_t i, n_epochs, n = self.n_train, stalled = 0, done = 0
        cdef double loss, rate = self.learning_rate, last = INFINITY, length = 1, first_score
        cdef bint one_batch = n <= self.batch_size
        if objective == MIXED:
            objective = SOFT if uniform(&self.random) < 0.5 else CO2
        n_epochs = min(<int64_t>self.max_epochs, max(<int64_t>MIN_EPOCHS, self.n_visits // n))
        self.best_plane.score = -INFINITY
        self.is_laid_out = False
        self.set_out(axis, 1)
        self.sides.known = False
        self.weigh_sides()
        self.remember()
        first_score = self.best_plane.score
        memset(self.leaf_velocity, 0, 2 * self.n_outputs * sizeof(double))
        while done < n_epochs:
            done += 1
            if self.should_stop(n * self.p):
                return 0
            if done == 1 or (self.sides.changed and not self.gradient_leaves):
                self.set_leaves()
                self.set_losses(0, n)
            if done == 1 and objective == CO2:
                length = self.length_within_reach()
                if length < 1:
                    self.set_out(axis, length)
            self.n_active = 0
            if one_batch:
                self.step(
                    self.at, self.margin, self.margin, self.delta, self.row_weight, n,
                    self.train_weight, rate, objective
                )
                if self.gradient_leaves:
                    self.move_leaves(
                        self.margin, self.delta, 0, n, self.train_weight, rate, objective
                    )
                    self.set_losses(0, n)
                self.take_margins(&self.plane, self.at, n, self.margin)
                loss = self.base_loss + self.batch_loss(
                    self.margin, self.delta, self.row_weight, n, objective
                )
                self.weigh_sides()
                self.remember()
            else:
                loss = self.epoch(rate, objective)
                if self.old_signs or (done % MEASURE == 0 and done < n_epochs):
                    self.take_margins(&self.plane, self.at, n, self.margin)
                    self.weigh_sides()
                    self.remember()
            if not isfinite(loss):
                return 0
            if self.n_active == 0 and not self.sides.changed and not self.gradient_leaves:
                # Nothing will ever pull at the plane again. If it is no better than the first cut,
                # shorter weights may be.
                if not one_batch:
                    self.take_margins(&self.plane, self.at, n, self.margin)
                    self.weigh_sides()
                    self.remember()
                if objective != CO2 or self.best_plane.score > first_score:
                    break
                if length * SHORTEST <= 1:
                    break
                if not self.has_strays():
                    break
                length /= 2
                self.set_out(axis, length)
                self.weigh_sides()
                last = INFINITY
            if loss < 0.999 * last:
                last = loss
                stalled = 0
            else:
                stalled += 1
            if stalled == PATIENCE:
                stalled = 0
                rate /= 2
                if rate < self.learning_rate / 50:
                    break
        if not one_batch:
            # As it would be stored: if it is the best one, this need not be done again.
            self.lay_out(&self.plane)
            for i in range(n):
                self.margin[i] = self.column[self.order[i]] - self.threshold
            self.weigh_sides()
            self.is_laid_out = self.remember()
        return 0

    cdef double length_within_reach(self) noexcept nogil:
        """How long the first plane may be for a row to have a slope: 1, or a power of 1/2.

        The bound slopes for rows on their better side, up to a margin of half the difference of
        the losses (equation 9). All rows may be further out, as those of a binary feature are,
        and the plane would never move.
        """
        cdef int64_t i
        cdef double reach = 0, length = 1
        for i in range(self.n_train):
            if self.margin[i] * self.delta[i] < 0:
                reach = max(reach, fabs(self.delta[i]) / fabs(2 * self.margin[i]))
        while length >= reach and length * SHORTEST > 1:
            length /= 2
        return length

    cdef bint has_strays(self) noexcept nogil:
        """Is a training row on its worse side?"""
        cdef int64_t i
        for i in range(self.n_train):
            if self.margin[i] * self.delta[i] > 0:
                return True
        return False

    cdef double epoch(self, double rate, int objective) noexcept nogil:
        """Show the training rows once, in batches; returns the sum of the objective on the way.

        Rows are stored in an order that looks random, so neighbours make a batch; where the first
        begins is drawn.
        """
        cdef int64_t n = self.n_train, start = below(&self.random, <int>n), shown = 0, size, tail
        cdef double loss = 0 if self.gradient_leaves else self.base_loss
        cdef float total = 0
        cdef const int64_t* at
        cdef const float* branch
        cdef const float* delta
        cdef const float* weight
        self.clear_sides()
        while shown < n:
            size = min(<int64_t>self.batch_size, n - shown)
            tail = min(size, n - start)
            if self.gradient_leaves:
                self.set_losses(start, start + tail)
                loss += self.base_loss
                self.set_losses(0, size - tail)
                loss += self.base_loss
            at = self.at + start
            branch = self.margin + start
            delta = self.delta + start
            weight = self.row_weight + start
            if tail < size:
                memcpy(self.batch_at, at, tail * sizeof(int64_t))
                memcpy(self.batch_at + tail, self.at, (size - tail) * sizeof(int64_t))
                at = self.batch_at
                branch = self.around(branch, self.margin, tail, size, self.batch_branch)
                delta = self.around(delta, self.delta, tail, size, self.batch_delta)
                weight = self.around(weight, self.row_weight, tail, size, self.batch_weight)
            self.take_margins(&self.plane, at, size, self.batch_margin)
            if not self.old_signs:
                branch = self.batch_margin
            self.add_to_sides(self.batch_margin, start, tail)
            self.add_to_sides(self.batch_margin + tail, 0, size - tail)
            loss += self.batch_loss(self.batch_margin, delta, weight, size, objective)
            skf_dot(weight, self.ones, size, &total)
            self.step(at, self.batch_margin, branch, delta, weight, size, total, rate, objective)
            if self.gradient_leaves:
                self.move_leaves(
                    self.batch_margin, delta, start, size, total, rate, objective
                )
            shown += size
            start = start + size if start + size < n else start + size - n
        self.settle_sides()
        return loss

    cdef const float* around(
        self, const float* end, const float* begin, int64_t tail, int64_t size, float* out
    ) noexcept nogil:
        """Join the last `tail` of a batch's rows and the first ones."""
        memcpy(out, end, tail * sizeof(float))
        memcpy(out + tail, begin, (size - tail) * sizeof(float))
        return out

    cdef void step(
        self, const int64_t* at, const float* margin, const float* branch, const float* delta,
        const float* weight, int64_t n, double total, double rate, int objective
    ) noexcept nogil:
        """One step of momentum along the gradient of a batch, and back into the ball of nu."""
        cdef int64_t i, n_active
        cdef float* slope = self.batch_slope
        cdef float* w = self.plane.w
        cdef float square = 0
        cdef double sigma, shrink, shift = 0
        if objective == SOFT:
            for i in range(n):
                sigma = 1 / (1 + exp(-2 * <double>margin[i]))
                slope[i] = <float>(2 * sigma * (1 - sigma) * delta[i] * weight[i])
        else:
            skf_bound_slopes(margin, branch, delta, weight, n, slope)
        n_active = skf_pick_active(at, slope, n, self.active_at, self.active_slope, &shift)
        self.n_active = self.n_active + n_active
        skf_add_rows(
            self.rows, self.active_at, n_active, self.active_slope, self.p, self.gradient
        )
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
        self, const float* margin, const float* delta, int64_t start, int64_t n, double total,
        double rate, int objective
    ) noexcept nogil:
        """One step of momentum of both leaves, along the gradient of the batch just shown,
        n training rows from `start` on, round the end.

        The bound counts a row at the leaf that is worse, with the margin: there alone it has a
        gradient (algorithm 1 of the paper); the soft loss counts it at both. Log shares are kept
        normalised, which changes neither losses nor gradients; values move in units of the
        node's deviation.
        """
        cdef int64_t i
        cdef int64_t row
        cdef int32_t k, side
        cdef double right, share, slope
        cdef double* leaf
        cdef double* velocity
        for k in range(2 * self.n_outputs):
            self.leaf_velocity[k] = self.leaf_velocity[k] * self.momentum
        for i in range(n):
            row = start + i if start + i < self.n_train else start + i - self.n_train
            if objective == SOFT:
                right = 1 / (1 + exp(-2 * <double>margin[i]))
            else:
                right = 2 * margin[i] + delta[i] > 0
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

    cdef void clear_sides(self) noexcept nogil:
        self.sides.n_left = self.n_train
        self.sides.right_weight = 0
        memset(self.sides.left, 0, 2 * self.n_outputs * sizeof(double))

    cdef void add_to_sides(self, const float* margin, int64_t first, int64_t n) noexcept nogil:
        """Add n training rows to the side of their margin."""
        cdef int64_t i, row
        cdef int32_t k
        cdef Sides* sides = &self.sides
        cdef double* side
        if self.is_class:
            sides.n_left -= skf_weigh_labels(
                margin, self.row_label + first, self.row_weight + first, n, self.n_outputs,
                sides.left
            )
            return
        for i in range(n):
            row = first + i
            side = sides.left
            if margin[i] > 0:
                side = sides.right
                sides.n_left -= 1
                sides.right_weight += self.row_weight[row]
            for k in range(self.n_outputs):
                side[k] += self.row_weight[row] * self.row_target[row * self.n_outputs + k]

    cdef void settle_sides(self) noexcept nogil:
        """Weights of both sides, once all rows were added; has anything changed?"""
        cdef Sides* sides = &self.sides
        cdef int32_t k
        cdef size_t size = 2 * self.n_outputs * sizeof(double)
        if self.is_class:
            sides.left_weight = 0
            for k in range(self.n_present):
                sides.left_weight += sides.left[k]
                sides.right_weight += sides.right[k]
        else:
            sides.left_weight = self.train_weight - sides.right_weight
        sides.changed = not sides.known or memcmp(sides.left, sides.before, size) != 0
        sides.known = True
        if sides.changed:
            memcpy(sides.before, sides.left, size)

    cdef void weigh_sides(self) noexcept nogil:
        """Sum the targets of the training rows on either side."""
        self.clear_sides()
        self.add_to_sides(self.margin, 0, self.n_train)
        self.settle_sides()

    cdef double batch_loss(
        self, const float* margin, const float* delta, const float* weight, int64_t n,
        int objective
    ) noexcept nogil:
        """Weighted sum of the objective over some rows, less the losses of the left leaf."""
        cdef int64_t i
        cdef float total = 0
        cdef float* value = self.batch_value
        if objective == SOFT:
            for i in range(n):
                value[i] = <float>(delta[i] / (1 + exp(-2 * <double>margin[i])))
        else:
            skf_bound_values(margin, delta, n, value)
        skf_dot(weight, value, n, &total)
        return total

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
        cdef int64_t i, size
        cdef int32_t k
        cdef float part = 0
        cdef double y, left, right
        if self.is_class:
            for k in range(self.n_present):
                self.label_base[k] = <float>-self.leaf_left[k]
                self.label_delta[k] = <float>(self.leaf_left[k] - self.leaf_right[k])
            skf_label_losses(
                self.row_label + first, last - first, self.label_base, self.label_delta,
                self.base + first, self.delta + first
            )
        else:
            for i in range(first, last):
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
        self.base_loss = 0
        while first < last:
            size = min(<int64_t>BLOCK, last - first)
            skf_dot(self.base + first, self.row_weight + first, size, &part)
            self.base_loss = self.base_loss + part
            first += size

    cdef bint remember(self) noexcept nogil:
        """Keep the plane if it parts the rows, and no other had more gain; later ones win ties."""
        cdef Sides* sides = &self.sides
        if sides.n_left == 0 or sides.n_left == self.n_train:
            return False
        if sides.changed:
            sides.score = self.side_score(sides.left, sides.left_weight)
            sides.score += self.side_score(sides.right, sides.right_weight)
        if sides.score < self.best_plane.score and not self.keep_last:
            return False
        self.best_plane.score = sides.score
        self.best_plane.bias = self.plane.bias
        memcpy(self.best_plane.w, self.plane.w, self.p * sizeof(float))
        return True

    # ------------------------------------------------------------------------------------ settling

    cdef bint accept(self, const Split* axis, Split* split) except -1 nogil:
        """Split by the best plane, unless the cut of the feature does better on held-out rows."""
        if self.best_plane.score == -INFINITY or not self.holds_out(axis):
            return self.go_back(axis, split)
        if not self.is_laid_out:
            self.lay_out(&self.best_plane)
        split.threshold = self.threshold
        self.measure_split(split)
        if not self.are_children_large(split):
            return self.go_back(axis, split)      # rounding, or the smallest leaf allowed
        split.code = self.store_plane(self.direction)
        return True

    cdef bint go_back(self, const Split* axis, Split* split) noexcept nogil:
        """Split by the cut of the feature."""
        self.project_best()
        split[0] = axis[0]
        return False

    cdef void lay_out(self, const Plane* plane) noexcept nogil:
        """Project the node's rows on a plane as it would be stored; sets its threshold, too."""
        cdef int64_t j, p = self.table.n_features
        cdef float* direction = self.direction
        cdef double threshold = plane.bias / self.node_scale
        memset(direction, 0, p * sizeof(float))
        for j in range(self.n_kept):
            # About a mean of 0, a feature that is constant has a weight like any other.
            if self.row_norm == 0 or self.varies(self.kept[j]):
                direction[self.kept[j]] = plane.w[
                    j if self.rows == self.own_rows else self.kept[j]
                ]
        for j in range(p):
            threshold += <double>direction[j] * self.node_mean[j]
        self.threshold = <float>threshold
        self.project_plane(direction)

    cdef bint holds_out(self, const Split* axis) noexcept nogil:
        """Is the best plane no worse than the cut of the feature on the rows held out, if any?"""
        cdef int64_t i, n = self.node.n
        cdef double loss
        cdef const float* table = <const float*>self.table.data + self.best.feature
        if self.n_train == n:
            return True
        self.take_margins(&self.best_plane, self.at, n, self.margin)
        loss = self.held_loss()
        for i in range(n):
            self.margin[i] = (
                1 if table[self.node.offset[self.order[i]]] > axis.threshold else -1
            )
        return loss <= self.held_loss()

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
