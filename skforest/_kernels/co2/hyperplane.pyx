"""Oblique splits by the convex-concave bound.

A node is split by a hyperplane ``w . x > b`` between two leaves. With margin m = w . x - b and the
losses l0 and l1 of a row at the left and the right leaf, its loss is bounded from above (Norouzi
et al. 2015, "CO2 Forest", equation 5) by

    max(l0 - m, l1 + m) - |m|

Stochastic subgradient descent with momentum decreases the bound under ``|w|^2 + b^2 <= nu``, and
the leaves are set to their optimum after every epoch. Training starts at the best cut of some
single features, so it can only improve on that cut. In contrast to the paper, the rows of each
node are centred and scaled, see stump.pyx, which is decisive for accuracy.

Reading rows takes most of the time. Therefore, one pass over a batch computes its slopes, its
objective and its sums on both sides.
"""

from libc.math cimport INFINITY, exp, fabs, isfinite
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from ..base.descent cimport skf_bound_slopes, skf_bound_values, skf_dot, skf_pick_active
from ..base.direction cimport entry_of
from ..base.limit cimport WeightLimit
from ..base.memory cimport Scratch, allocate
from ..base.random cimport below, draw_item, shuffle, uniform
from ..search.search cimport SearchSplitter
from ..search.split cimport Split
from .own_leaves cimport OwnLeaves
from .plane cimport PlaneSplitter
from ..base.stump cimport (
    CO2, MIXED, SOFT, Plane, Rate, StumpLeaves, start_rate, update_rate
)

OBJECTIVES = {"co2": CO2, "soft": SOFT, "mixed": MIXED}

# Chosen without a stored measurement.
cdef enum:
    MIN_HOLDOUT_ROWS = 40   # smaller nodes hold out no rows
    MIN_EPOCHS = 3
    MEASURE = 5             # epochs of several batches between two evaluations on all rows
    SHORTEST = 128          # the first hyperplane is shortened by at most this factor


cdef class StumpSplitter(PlaneSplitter):
    """Splits by a hyperplane, trained from the best cut of some single features.

    X is float32 and the sampler draws features. A node of n rows is trained for n_visits / n
    epochs, at least 3 and at most `max_epochs`. `smoothing` is a weight that is added to each
    class of a leaf. Rows are centred, and scaled to the root mean square norm `row_norm`; 0:
    neither. `holdout` is the share of the rows of a node that decide between the hyperplane and
    the first cut. With `old_signs`, a row has its branch at the end of the last epoch, not the
    current one; with `gradient_leaves`, leaves take gradient steps together with the weights, not
    their optimum after every epoch; with `keep_last`, the split is the last hyperplane, not the
    one with the largest gain; with `constant_rate`, the learning rate is never halved. With a
    `batch_size` of 1, rows are drawn at random, as in algorithm 1.

    With `max_weights`, a `WeightLimit` keeps few weights; only hyperplanes within the limit count.
    """

    # parameters
    cdef int objective
    cdef double learning_rate
    cdef int32_t batch_size
    cdef int64_t n_visits
    cdef int32_t max_epochs
    cdef int32_t min_batches
    cdef double holdout
    cdef bint old_signs
    cdef bint keep_last
    cdef bint gradient_leaves
    cdef bint constant_rate

    # the node: the training rows first, then those held out
    cdef int32_t* order        # number of each row in the node
    cdef int64_t n_train
    cdef StumpLeaves leaves

    # the training of one stump
    cdef Plane plane
    cdef Plane best_plane
    cdef int64_t first         # position of the first cut's feature in the rows
    cdef float* margin         # margin of each row at the last evaluation
    cdef double* weight_until  # sums of the weights up to each row; only for batches of one row
    cdef float* ones
    cdef int64_t* batch_at
    cdef float* batch_margin
    cdef float* batch_branch
    cdef float* batch_value
    cdef float* batch_delta
    cdef float* batch_weight
    cdef float* batch_slope
    cdef int64_t* active_at    # rows of a batch that have a slope
    cdef float* active_slope
    cdef int64_t n_active      # rows that had a slope in this epoch
    cdef WeightLimit limit
    cdef bint is_best_projected  # column, direction and threshold belong to best_plane

    def __init__(self, training_set, options, uint64_t seed, stop):
        SearchSplitter.__init__(self, training_set, options, seed, stop)
        self.objective = OBJECTIVES[options.objective]
        self.learning_rate = options.learning_rate
        self.batch_size = options.batch_size
        self.n_visits, self.max_epochs = options.n_visits, options.max_epochs
        self.min_batches = options.min_batches
        self.holdout = options.holdout
        self.old_signs, self.keep_last = options.old_signs, options.keep_last
        self.gradient_leaves = options.gradient_leaves
        self.constant_rate = options.constant_rate
        cdef Scratch scratch = self.scratch
        cdef int64_t i, n = self.n_rows, batch = min(<int64_t>self.batch_size, n)
        self.reserve_rows(options.row_norm, options.max_weights)
        leaves = options.user_leaves
        self.leaves = StumpLeaves() if leaves is None else OwnLeaves(leaves)
        self.leaves.reserve(scratch, n, self.n_outputs, self.is_class)
        self.leaves.smoothing = options.smoothing
        self.leaves.momentum = options.momentum
        self.plane = self.rows.plane(scratch, options.momentum, options.nu)
        self.best_plane = self.rows.plane(scratch, options.momentum, options.nu)
        self.order = scratch.ints(n)
        self.margin = scratch.floats(n)
        self.leaves.margin = self.margin
        allocate[int64_t](scratch, batch + 1, [&self.batch_at, &self.active_at, NULL])
        allocate[float](scratch, batch, [
            &self.ones, &self.batch_margin, &self.batch_branch, &self.batch_value,
            &self.batch_delta, &self.batch_weight, &self.batch_slope, &self.active_slope, NULL
        ])
        if self.batch_size == 1:
            self.weight_until = scratch.doubles(n)
        self.limit = WeightLimit()
        self.limit.reserve(scratch, options.max_weights, self.rows.n_features)
        for i in range(batch):
            self.ones[i] = 1

    cdef bint search(self, Split* split) except -1 nogil:
        """Find the best cut of a single feature, and train a hyperplane from it."""
        cdef Split axis
        if not SearchSplitter.search(self, &axis):
            return False
        split[0] = axis
        self.load_targets()
        if self.should_stop(self.node.n * self.table.n_features):
            return False
        if self.load_rows():
            self.optimise(&axis)
            if self.stop[0]:
                return False
            self.accept(&axis, split)
        self.leaves.check()
        return True

    # ----------------------------------------------------------------------------- the node's rows

    cdef void load_targets(self) noexcept nogil:
        """Choose training rows and held-out rows; copy weights and targets."""
        cdef int64_t i, n = self.node.n, n_train = n
        cdef int32_t k
        cdef double y, variance = 0
        cdef int32_t* order = self.order
        for i in range(n):
            order[i] = <int32_t>i
        if self.holdout > 0 and n >= MIN_HOLDOUT_ROWS:
            n_train = n - <int64_t>(self.holdout * n)
            shuffle(&self.random, order, n, n - n_train)
        self.n_train = n_train
        self.copy_targets(
            order, self.leaves.weight, self.leaves.label, self.leaves.target
        )
        if not self.is_class:
            for i in range(n):
                for k in range(self.n_outputs):
                    y = self.leaves.target[i * self.n_outputs + k]
                    y -= self.total[k] / self.node_weight
                    variance += self.leaves.weight[i] * y * y
        self.leaves.loss_scale = n / variance if variance > 0 else 1
        self.leaves.start_node(n, n_train, self.n_present, self.present)

    cdef bint load_rows(self) noexcept nogil:
        """Centre and scale the rows of the node; False if they are all equal."""
        cdef int64_t i
        for i in range(self.node.n):
            self.rows.at[i] = self.node.offset[self.order[i]]
        if not self.rows.load(
            self.leaves.weight, self.node.n, self.best.feature, self.margin, self.plane.gradient
        ):
            return False
        memset(self.plane.gradient, 0, self.rows.p * sizeof(float))
        self.first = self.rows.position(self.best.feature)
        return True

    cdef void init_plane(self, const Split* axis, double length) noexcept nogil:
        """Set the hyperplane to the cut of a feature, with norm `length` and no velocity."""
        cdef int64_t i
        cdef double scale = self.rows.node_scale
        memset(self.plane.w, 0, self.rows.p * sizeof(float))
        memset(self.plane.velocity, 0, self.rows.p * sizeof(float))
        self.plane.w[self.first] = <float>length
        self.plane.bias = scale * (
            <double>axis.threshold - self.rows.mean_of(self.best.feature)
        )
        self.plane.bias = length * self.plane.bias
        self.plane.bias_velocity = 0
        for i in range(self.n_train):
            self.margin[i] = <float>(
                length * scale * (<double>self.column[self.order[i]] - axis.threshold)
            )

    # ------------------------------------------------------------------------------------ training

    cdef int optimise(self, const Split* axis) except -1 nogil:
        """Set best_plane to the hyperplane of largest gain during subgradient descent.

        With several batches in an epoch, the objective and the leaves are computed from the
        margins of rows in their batches, and gain is measured only in some epochs.
        """
        cdef int objective = self.objective
        cdef int64_t n_epochs, n = self.n_train, done = 0
        cdef double loss = 0, length = 1, first_score
        cdef Rate rate = start_rate(self.learning_rate)
        cdef int64_t n_batches = (n + self.batch_size - 1) // self.batch_size, k
        cdef int64_t n_passes = (self.min_batches + n_batches - 1) // n_batches
        cdef bint one_batch = n_batches == 1 and n_passes == 1
        if objective == MIXED:
            objective = SOFT if uniform(&self.random) < 0.5 else CO2
        n_epochs = min(<int64_t>self.max_epochs, max(<int64_t>MIN_EPOCHS, self.n_visits // n))
        self.best_plane.score = -INFINITY
        self.is_best_projected = False
        if self.batch_size == 1:
            self.sum_weights()
        self.init_plane(axis, 1)
        self.leaves.sum_sides(self.margin)
        self.limit.is_reached = True  # by the first cut, which has one weight
        self.remember()
        first_score = self.best_plane.score
        self.limit.start(self.rows)
        while done < n_epochs:
            done += 1
            if self.should_stop(n * self.rows.p):
                return 0
            if not self.limit.is_reached and done > 1:
                self.limit_weights(self.limit.after(done - 1, n_epochs))
            if done == 1 or (self.leaves.has_changed and not self.gradient_leaves):
                self.leaves.fit()
                self.leaves.set_losses(0, n)
            if done == 1 and objective == CO2:
                length = self.length_within_reach()
                if length < 1:
                    self.init_plane(axis, length)
            self.n_active = 0
            if one_batch:
                loss = self.whole_step(rate.value, objective)
            elif self.batch_size == 1:
                loss = self.epoch_of_draws(rate.value, objective)
            else:
                for k in range(n_passes):
                    if k > 0 and self.should_stop(n * self.rows.p):
                        return 0
                    loss = self.epoch(rate.value, objective)
                if n_batches == 1 or self.old_signs or self.leaves.is_own:
                    self.measure_plane()
                elif done % MEASURE == 0 and done < n_epochs:
                    self.measure_plane()
            if not isfinite(loss):
                return 0
            if self.n_active == 0 and not self.leaves.has_changed and not self.gradient_leaves:
                # No row has a slope, so the hyperplane cannot move. If it is no better than the
                # first cut, shorter weights may bring rows back within reach of the bound.
                if self.limit_at_once(&rate):
                    continue
                if not one_batch:
                    self.measure_plane()
                if objective != CO2 or self.best_plane.score > first_score:
                    break
                if length * SHORTEST <= 1 or not self.has_rows_on_wrong_side():
                    break
                length /= 2
                self.init_plane(axis, length)
                self.leaves.sum_sides(self.margin)
                rate.loss = INFINITY
            if not self.constant_rate and not update_rate(&rate, loss):
                if not self.limit_at_once(&rate):
                    break
        if not self.limit.is_reached:  # there was one epoch
            self.limit_weights(self.limit.most)
        if not one_batch:
            self.measure_projection()
        return 0

    cdef void limit_weights(self, int64_t n) noexcept nogil:
        """Keep n weights, and compute the margins of all training rows."""
        self.limit.restrict(self.rows, self.leaves.weight, self.n_train, &self.plane, n)
        self.measure_plane()

    cdef bint limit_at_once(self, Rate* rate) noexcept nogil:
        """Where training would end: keep as few weights as allowed, and go on with these."""
        if self.limit.is_reached:
            return False
        self.limit_weights(self.limit.most)
        rate[0] = start_rate(self.learning_rate)
        return True

    cdef void measure_plane(self) noexcept nogil:
        """Compute the margins of all training rows and the score of the hyperplane."""
        self.rows.margins(
            self.plane.w, self.plane.bias, self.rows.at, self.n_train, self.margin
        )
        self.leaves.sum_sides(self.margin)
        self.remember()

    cdef void measure_projection(self) noexcept nogil:
        """As `measure_plane`, from the stored projection, which is computed only once."""
        cdef int64_t i
        self.project_trained(&self.plane)
        for i in range(self.n_train):
            self.margin[i] = self.column[self.order[i]] - self.threshold
        self.leaves.sum_sides(self.margin)
        self.is_best_projected = self.remember()

    cdef double whole_step(self, double rate, int objective) noexcept nogil:
        """Make one step on all training rows, which are one batch; return the objective."""
        cdef int64_t n = self.n_train
        cdef double total = self.leaves.train_weight
        self.step(
            self.rows.at, self.margin, self.margin, self.leaves.delta, self.leaves.weight, n,
            total, rate, objective
        )
        if self.gradient_leaves:
            self.leaves.step(self.margin, self.leaves.delta, 0, n, total, rate, objective)
            self.leaves.set_losses(0, n)
        self.measure_plane()
        return self.leaves.base_loss + self.batch_loss(
            self.margin, self.leaves.delta, self.leaves.weight, n, objective
        )

    cdef double length_within_reach(self) noexcept nogil:
        """Return the norm of the first hyperplane: 1, or a power of 1/2 that gives a row a slope.

        For rows on the side of their smaller loss, the bound has a slope only if the margin is
        below half the difference of the losses (equation 5). If all margins are larger, as with a
        binary feature, the hyperplane would never move.
        """
        cdef int64_t i
        cdef double reach = 0, length = 1
        for i in range(self.n_train):
            if self.margin[i] * self.leaves.delta[i] < 0:
                reach = max(reach, fabs(self.leaves.delta[i]) / fabs(2 * self.margin[i]))
        while length >= reach and length * SHORTEST > 1:
            length /= 2
        return length

    cdef bint has_rows_on_wrong_side(self) noexcept nogil:
        cdef int64_t i
        for i in range(self.n_train):
            if self.margin[i] * self.leaves.delta[i] > 0:
                return True
        return False

    cdef double epoch(self, double rate, int objective) noexcept nogil:
        """Make one pass over the training rows in batches; return the sum of the objective.

        Rows are stored in the order of a hash, so a batch may be contiguous. The start of the
        first batch is random; the batch that reaches the end continues at row 0.
        """
        cdef int64_t n = self.n_train, start = below(&self.random, <int>n), shown = 0, size, tail
        cdef double loss = 0 if self.gradient_leaves else self.leaves.base_loss
        cdef float total = 0
        cdef const int64_t* at
        cdef const float* branch
        cdef const float* delta
        cdef const float* weight
        self.leaves.clear_sums()
        while shown < n:
            size = min(<int64_t>self.batch_size, n - shown)
            tail = min(size, n - start)
            if self.gradient_leaves:
                self.leaves.set_losses(start, start + tail)
                loss += self.leaves.base_loss
                self.leaves.set_losses(0, size - tail)
                loss += self.leaves.base_loss
            at = self.rows.at + start
            branch = self.margin + start
            delta = self.leaves.delta + start
            weight = self.leaves.weight + start
            if tail < size:
                memcpy(self.batch_at, at, tail * sizeof(int64_t))
                memcpy(self.batch_at + tail, self.rows.at, (size - tail) * sizeof(int64_t))
                at = self.batch_at
                branch = self.join_ends(branch, self.margin, tail, size, self.batch_branch)
                delta = self.join_ends(delta, self.leaves.delta, tail, size, self.batch_delta)
                weight = self.join_ends(weight, self.leaves.weight, tail, size, self.batch_weight)
            self.rows.margins(self.plane.w, self.plane.bias, at, size, self.batch_margin)
            if not self.old_signs:
                branch = self.batch_margin
            self.leaves.add_rows(self.batch_margin, start, tail)
            self.leaves.add_rows(self.batch_margin + tail, 0, size - tail)
            loss += self.batch_loss(self.batch_margin, delta, weight, size, objective)
            skf_dot(weight, self.ones, size, &total)
            self.step(at, self.batch_margin, branch, delta, weight, size, total, rate, objective)
            if self.gradient_leaves:
                self.leaves.step(self.batch_margin, delta, start, size, total, rate, objective)
            shown += size
            start = start + size if start + size < n else start + size - n
        self.leaves.finish_sums()
        return loss

    cdef void sum_weights(self) noexcept nogil:
        cdef int64_t i
        cdef double total = 0
        for i in range(self.n_train):
            total += self.leaves.weight[i]
            self.weight_until[i] = total

    cdef double epoch_of_draws(self, double rate, int objective) noexcept nogil:
        """Make steps of single rows, one per training row; return an estimate of the objective.

        A row of weight k is drawn as often as k copies of it, with steps of the same length.
        """
        cdef int64_t n = self.n_train, i
        cdef double loss = 0, weight
        cdef const float* branch
        for _ in range(n):
            i = draw_item(&self.random, self.weight_until, n)
            weight = self.leaves.weight[i]
            if self.gradient_leaves:
                self.leaves.set_losses(i, i + 1)
                loss += self.leaves.base_loss / weight
            self.rows.margins(
                self.plane.w, self.plane.bias, self.rows.at + i, 1, self.batch_margin
            )
            branch = self.margin + i if self.old_signs else self.batch_margin
            loss += self.batch_loss(
                self.batch_margin, self.leaves.delta + i, self.leaves.weight + i, 1, objective
            ) / weight
            self.step(
                self.rows.at + i, self.batch_margin, branch, self.leaves.delta + i,
                self.leaves.weight + i, 1, weight, rate, objective
            )
            if self.gradient_leaves:
                self.leaves.step(
                    self.batch_margin, self.leaves.delta + i, i, 1, weight, rate, objective
                )
        if self.gradient_leaves:
            self.leaves.set_losses(0, n)
        loss *= self.leaves.train_weight / n
        if not self.gradient_leaves:
            loss += self.leaves.base_loss
        self.measure_plane()
        self.n_active = self.count_active(objective)    # rows that were not drawn count, too
        return loss

    cdef int64_t count_active(self, int objective) noexcept nogil:
        """Return the number of training rows with a slope at the margins of `measure_plane`."""
        cdef int64_t i, n_active = 0
        if objective == SOFT:
            return self.n_train
        for i in range(self.n_train):
            n_active += (
                (2 * self.margin[i] + self.leaves.delta[i] > 0) != (self.margin[i] > 0)
            )
        return n_active

    cdef const float* join_ends(
        self, const float* end, const float* begin, int64_t tail, int64_t size, float* out
    ) noexcept nogil:
        """Join the `tail` last numbers of a batch at the end with those at the beginning."""
        memcpy(out, end, tail * sizeof(float))
        memcpy(out + tail, begin, (size - tail) * sizeof(float))
        return out

    cdef void step(
        self, const int64_t* at, const float* margin, const float* branch, const float* delta,
        const float* weight, int64_t n, double total, double rate, int objective
    ) noexcept nogil:
        """Make one step along the gradient of a batch, from its rows with a slope."""
        cdef int64_t i, n_active
        cdef float* slope = self.batch_slope
        cdef double sigma, shift = 0
        if objective == SOFT:
            for i in range(n):
                sigma = 1 / (1 + exp(-2 * <double>margin[i]))
                slope[i] = <float>(2 * sigma * (1 - sigma) * delta[i] * weight[i])
        else:
            skf_bound_slopes(margin, branch, delta, weight, n, slope)
        n_active = skf_pick_active(at, slope, n, self.active_at, self.active_slope, &shift)
        self.n_active = self.n_active + n_active
        self.rows.step(
            &self.plane, self.active_at, self.active_slope, n_active, shift, total, rate
        )
        self.limit.clear_others(&self.plane)

    cdef double batch_loss(
        self, const float* margin, const float* delta, const float* weight, int64_t n,
        int objective
    ) noexcept nogil:
        """Return the weighted objective of some rows, minus their losses at the left leaf."""
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

    cdef bint remember(self) noexcept nogil:
        """Keep the hyperplane if it splits the rows and none had more gain; the latest wins."""
        if self.leaves.n_left == 0 or self.leaves.n_left == self.n_train:
            return False
        if not self.limit.is_reached:
            return False
        if self.leaves.is_own:
            self.plane.score = self.leaves.score(not self.gradient_leaves)
        elif self.leaves.has_changed:
            self.plane.score = self.side_score(self.leaves.left_sum, self.leaves.left_weight)
            self.plane.score = self.plane.score + self.side_score(
                self.leaves.right_sum, self.leaves.right_weight
            )
        if self.plane.score < self.best_plane.score and not self.keep_last:
            return False
        self.best_plane.score = self.plane.score
        self.best_plane.bias = self.plane.bias
        memcpy(self.best_plane.w, self.plane.w, self.rows.p * sizeof(float))
        return True

    # ----------------------------------------------------------------------------- the final split

    cdef bint accept(self, const Split* axis, Split* split) except -1 nogil:
        """Split by the best hyperplane, unless the first cut has a lower loss on held-out rows."""
        if self.best_plane.score == -INFINITY or not self.is_better_on_holdout(axis):
            return self.keep_axis(axis, split)
        if not self.is_best_projected:
            self.project_trained(&self.best_plane)
        split.threshold = self.threshold
        self.measure_split(split)
        if not self.are_children_large(split):
            return self.keep_axis(axis, split)      # rounding, or a child too small
        if self.is_stored_sparse():
            split.code = self.store_trained()
        else:
            split.code = self.store_plane(self.direction)
        return True

    cdef bint keep_axis(self, const Split* axis, Split* split) noexcept nogil:
        self.project_best()
        split[0] = axis[0]
        return False

    cdef bint is_better_on_holdout(self, const Split* axis) noexcept nogil:
        """Return whether the first cut has no lower loss than the hyperplane on held-out rows."""
        cdef int64_t i, n = self.node.n
        cdef double loss
        cdef float value
        if self.n_train == n:
            return True
        self.rows.margins(
            self.best_plane.w, self.best_plane.bias, self.rows.at, n, self.margin
        )
        loss = self.holdout_loss()
        for i in range(n):
            value = self.first_value(self.node.offset[self.order[i]])
            self.margin[i] = 1 if value > axis.threshold else -1
        return loss <= self.holdout_loss()

    cdef float first_value(self, int64_t offset) noexcept nogil:
        """Return the feature of the first cut in the row that starts at `offset`."""
        if self.rows.blocks.is_sparse:
            return entry_of(&self.table, offset // self.table.n_features, self.best.feature)
        return (<const float*>self.table.data)[offset + self.best.feature]

    cdef double holdout_loss(self) noexcept nogil:
        """Return the loss of held-out rows at the leaves; the margin gives the side."""
        cdef int64_t i
        cdef float delta
        cdef double loss = 0
        self.leaves.sum_sides(self.margin)
        self.leaves.fit()
        self.leaves.set_losses(self.n_train, self.node.n)
        for i in range(self.n_train, self.node.n):
            delta = self.leaves.delta[i] if self.margin[i] > 0 else 0
            loss += self.leaves.weight[i] * (self.leaves.base[i] + delta)
        return loss
