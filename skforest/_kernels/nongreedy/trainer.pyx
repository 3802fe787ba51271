"""Joint training of all splits and leaves of a tree by stochastic gradient descent.

Norouzi et al. 2015b. Let g and h be vectors with one sign per split, where h has the signs of the
margins Wx, and let f(g) be the leaf that g leads to. The loss of a row is bounded from above
(equation 7) by

    max over g of [g . Wx + loss(f(g))] - max over h of h . Wx

where g is any vector of signs or, in the fast variant, differs from h in at most one split
(equation 13). The first maximum is loss-augmented inference. Splits off the path to a leaf best
keep their signs (equation 12), so the bound is

    max over leaves of [loss(leaf) - 2 sum of |margins| at the splits where its path flips a sign].

For a tree of one split, this is the bound of a CO2 stump (hyperplane.pyx). Momentum steps along
its subgradient change W, under ``|w_i|^2 + b_i^2 <= nu``, and the parameters of the leaves. The
stable variant (equation 14) replaces the second maximum by the path to the leaf that the row is
assigned to, which stays fixed for some epochs.

`JointLeaves` computes losses. Inference prunes its search by a bound on the loss of a row at any
leaf: the largest loss of each label, or the range of each output. The bound never shrinks within
an epoch: leaves that a step has moved only extend it.
"""

from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

from ..base.descent cimport (
    skf_add_rows, skf_distances, skf_dot, skf_momentum_step, skf_rescale, skf_shrink
)
from ..base.memory cimport Buffer, Scratch, allocate
from ..base.poll cimport poll
from ..base.random cimport Random, next_word, shuffle
from .leaves cimport JointLeaves

cdef enum:
    # Chosen without a stored measurement.
    BLOCK = 256                # rows added in float32, which is exact enough for a mean


cdef struct Visit:
    # A node waiting to be visited in loss-augmented inference.
    int32_t node
    int32_t flips              # signs that may still be flipped
    double score               # g . Wx - h . Wx of the signs g flipped so far


cdef struct GradientTerm:
    # The term slope times row in the gradient of a split: an item of a linked list.
    int64_t at                 # start of the row in the table
    float slope
    int32_t before             # term of the same split, -1 at the end


cdef class JointTrainer:
    """Trains all splits and leaves of a `DenseTree` on a `TrainingSet`, by `JointSettings`.

    Rows of weight 0 are not trained on. `leaves` are the arguments of `set_leaves`; `own` are
    `UserTreeLeaves`, with a loss of the user, or None. With `rescale_splits`, hyperplanes are
    rescaled to squared norm nu; otherwise only if their norm is larger. Rows are centred and
    scaled to root mean square norm `row_norm`; None: neither.
    """

    # parameters
    cdef double nu
    cdef double momentum
    cdef int32_t batch_size
    cdef int32_t max_flips       # signs on a path that inference flips at most
    cdef bint stable
    cdef double l1               # weight of the sum of absolute weights in the objective

    # rows
    cdef Scratch scratch
    cdef object X                # keeps `table` alive
    cdef const float* table
    cdef int64_t n
    cdef int64_t n_train         # rows of positive weight
    cdef int64_t p
    cdef float* row_weight       # relative to the mean weight
    cdef int32_t* assigned       # leaf of every row, fixed between calls of `assign`
    cdef float* mean             # of the features
    cdef double scale            # of centred rows, to their root mean square norm

    # the tree: splits and leaves are numbered in the order of their nodes
    cdef int64_t n_nodes
    cdef int64_t n_splits
    cdef int64_t n_leaves
    cdef int32_t* child          # left child, or -1 - leaf
    cdef int32_t* parent         # -1 for the root
    cdef int32_t* leaf_node
    cdef float* w                # (n_splits, p)
    cdef double* bias            # of a split: right where scale (w . x - w . mean) > bias
    cdef float* centre           # scale (w . mean) + bias, of every split
    cdef JointLeaves leaves

    # scratch of a batch
    cdef Random random
    cdef const uint8_t[::1] stop
    cdef int64_t work            # additions since the last test for signals
    cdef int32_t* order          # training rows, in the order of an epoch
    cdef float* margin           # margins of the current row, where `margin_row` is its number
    cdef int64_t* margin_row
    cdef int64_t n_inferred      # number of the current row, counted over all calls
    cdef Buffer stack            # Visit
    cdef Buffer terms            # GradientTerm
    cdef Buffer touched          # splits that have terms
    cdef int32_t* last_term      # of every split, -1: none
    cdef int32_t* best_leaf      # of every row of the batch
    cdef float* velocity         # (n_splits, p)
    cdef double* bias_velocity
    cdef float* gradient
    cdef Buffer term_at          # terms of one split, for the loops
    cdef Buffer term_slope
    cdef double rate_sum         # sum of the rates of all steps so far
    cdef double* rate_seen       # for each split: rate_sum when it last shrank

    def __init__(self, training_set, settings, uint64_t seed, stop, tree, leaves, own=None):
        cdef const float[:, ::1] X = training_set.X
        cdef const int32_t[::1] child = tree.child
        cdef int64_t n = X.shape[0], p = X.shape[1], n_splits = len(tree.threshold)
        cdef Scratch scratch = Scratch()
        self.X = X
        self.table = &X[0, 0]
        self.n = n
        self.p = p
        self.nu = settings.nu
        self.momentum = settings.momentum
        self.batch_size = settings.batch_size
        self.max_flips = 1 if settings.inference == "fast" else <int32_t>n_splits
        self.stable = settings.stable
        self.l1 = settings.l1
        self.stop = stop
        self.random.state = seed
        next_word(&self.random)        # not the stream that grew the tree
        self.random.state ^= <uint64_t>0x3C6EF372FE94F82B
        self.n_nodes = child.shape[0]
        self.n_splits = n_splits
        self.n_leaves = n_splits + 1
        self.scratch = scratch
        self.row_weight = scratch.floats(n)
        allocate[int32_t](scratch, n, [&self.assigned, &self.order, NULL])
        allocate[float](scratch, p, [&self.mean, &self.gradient, NULL])
        allocate[int32_t](scratch, self.n_nodes, [&self.child, &self.parent, NULL])
        self.leaf_node = scratch.ints(self.n_leaves)
        self.best_leaf = scratch.ints(self.batch_size)
        allocate[float](scratch, n_splits * p, [&self.w, &self.velocity, NULL])
        allocate[float](scratch, n_splits, [&self.centre, &self.margin, NULL])
        allocate[double](
            scratch, n_splits, [&self.bias, &self.bias_velocity, &self.rate_seen, NULL]
        )
        self.margin_row = scratch.longs(n_splits)
        self.last_term = scratch.ints(n_splits)
        self.stack = Buffer(sizeof(Visit))
        self.terms = Buffer(sizeof(GradientTerm))
        self.touched = Buffer(sizeof(int32_t))
        self.term_at = Buffer(sizeof(int64_t))
        self.term_slope = Buffer(sizeof(float))
        self.load_rows(training_set.weight, settings.row_norm or 0)
        self.load_tree(child)
        self.load_planes(tree.weights, tree.threshold, settings.rescale_splits)
        self.leaves = JointLeaves(
            training_set.target, training_set.n_outputs, self.n_leaves, own
        )
        self.leaves.set_loss_scale(self.row_weight, n, self.n_train)
        self.set_leaves(*leaves)

    cdef void load_rows(self, const double[::1] weight, double radius) noexcept nogil:
        """Set relative weights, training rows, and the mean and scale of rows."""
        cdef int64_t i, n_train = 0
        cdef double total = 0
        for i in range(self.n):
            total += weight[i]
            if weight[i] > 0:
                self.order[n_train] = <int32_t>i
                n_train += 1
        self.n_train = n_train
        for i in range(self.n):
            self.row_weight[i] = <float>(weight[i] * n_train / total)
        if radius > 0:
            self.centre_rows(radius)
        else:
            self.scale = 1

    cdef void load_tree(self, const int32_t[::1] child) noexcept nogil:
        cdef int64_t i
        self.parent[0] = -1
        for i in range(self.n_nodes):
            self.child[i] = child[i]
            if child[i] < 0:
                self.leaf_node[-1 - child[i]] = <int32_t>i
            else:
                self.parent[child[i]] = <int32_t>i
                self.parent[child[i] + 1] = <int32_t>i
        for i in range(self.n_splits):
            self.last_term[i] = -1

    cdef void load_planes(
        self, const float[:, ::1] W, const float[::1] threshold, bint rescales
    ) noexcept nogil:
        """Load hyperplanes over centred and scaled rows, of squared norm nu or at most nu."""
        cdef int64_t i, j
        cdef double square, factor
        for i in range(self.n_splits):
            square = 0
            self.bias[i] = threshold[i]
            for j in range(self.p):
                self.w[i * self.p + j] = W[i, j]
                self.bias[i] = self.bias[i] - <double>W[i, j] * self.mean[j]
                square += <double>W[i, j] * W[i, j]
            self.bias[i] = self.bias[i] * self.scale
            square += self.bias[i] * self.bias[i]
            factor = sqrt(self.nu / square) if square > 0 else 1
            if not rescales:
                factor = min(factor, 1.0)
            self.bias[i] = self.bias[i] * factor
            skf_rescale(self.w + i * self.p, self.p, <float>factor, 0)
            self.set_centre(i)

    # ------------------------------------------------------------------------- called from Python

    def epoch(self, double rate):
        """Show every training row once, in random batches; return the mean bound.

        A row counts with its bound before the step of its batch. `rate` is the length of a step.
        """
        cdef int64_t start = 0, size
        cdef double total = 0
        with nogil:
            self.leaves.bound_losses()
            shuffle(&self.random, self.order, self.n_train, self.n_train)
            while start < self.n_train:
                size = min(<int64_t>self.batch_size, self.n_train - start)
                self.batch(start, size, rate, &total)
                if self.stop[0]:
                    break
                start += size
        return total / self.n_train

    def route(self, const int64_t[::1] rows):
        """Return the leaf of each of some rows, int32."""
        cdef int64_t i
        leaves = np.zeros(rows.shape[0], dtype=np.int32)
        cdef int32_t[::1] out = leaves
        with nogil:
            for i in range(rows.shape[0]):
                if self.must_stop(self.p):
                    break
                out[i] = self.descend(rows[i])
        return leaves

    def assign(self):
        """Route every row, and fix its leaf for the stable variant; return the leaves."""
        leaves = self.route(np.arange(self.n))
        cdef const int32_t[::1] found = leaves
        memcpy(self.assigned, &found[0], self.n * sizeof(int32_t))
        return leaves

    def bounds(self):
        """Return the bound of every row, its leaf in inference, and the leaf that it reaches."""
        bound, augmented, reached = (np.empty(self.n, dtype=d) for d in ("f8", "i4", "i4"))
        cdef double[::1] value = bound
        cdef int32_t[::1] best = augmented, own = reached
        cdef int32_t row
        cdef int64_t i
        with nogil:
            self.leaves.bound_losses()
            for i in range(self.n):
                row = <int32_t>i
                self.leaves.prepare(&row, 1)
                value[i] = self.infer(i, &best[i], &own[i])
        return bound, augmented, reached

    def planes(self):
        """Return all w and thresholds: (n_splits, n_features), (n_splits,), float32."""
        cdef int64_t i, j
        cdef float square = 0
        cdef double value
        weights = np.empty((self.n_splits, self.p), dtype=np.float32)
        threshold = np.empty(self.n_splits, dtype=np.float32)
        cdef float[:, ::1] out = weights
        cdef float[::1] at = threshold
        for i in range(self.n_splits):
            self.shrink(i, &square)
            if self.l1 > 0:
                self.set_centre(i)
            value = self.bias[i] / self.scale
            for j in range(self.p):
                out[i, j] = self.w[i * self.p + j]
                value += <double>out[i, j] * self.mean[j]
            at[i] = <float>value
        return weights, threshold

    def losses(self, const int64_t[::1] rows):
        """Return the log loss, or scaled squared error, of rows at the leaves that they reach."""
        cdef int64_t i
        cdef const int32_t[::1] leaves = self.route(rows)
        if self.leaves.own is not None:
            return self.leaves.own.losses(np.asarray(rows), np.asarray(leaves))
        losses = np.empty(rows.shape[0])
        cdef double[::1] out = losses
        with nogil:
            for i in range(rows.shape[0]):
                out[i] = self.leaves.loss(leaves[i], rows[i])
        return losses

    @property
    def parameters(self):
        """tuple: the arguments of `set_leaves`, changed by training."""
        return self.leaves.parameters

    def set_leaves(self, start, label, theta, other):
        """Replace the parameters of the leaves, as `JointLeaves.set_parameters` does."""
        self.leaves.set_parameters(start, label, theta, other)

    # ----------------------------------------------------------------------------------- the rows

    cdef void centre_rows(self, double radius) noexcept nogil:
        """Compute the mean of every feature, and the scale of centred rows, without a copy."""
        cdef int64_t start = 0, size, i, j
        cdef int64_t[BLOCK] at
        cdef float[BLOCK] value
        cdef double square = 0
        cdef float* total = self.gradient
        while start < self.n:
            size = min(<int64_t>BLOCK, self.n - start)
            for i in range(size):
                at[i] = (start + i) * self.p
                value[i] = self.row_weight[start + i] / self.n_train
            memset(total, 0, self.p * sizeof(float))
            skf_add_rows(self.table, at, size, value, self.p, total)
            for j in range(self.p):
                self.mean[j] = self.mean[j] + total[j]
            start += size
        memset(total, 0, self.p * sizeof(float))
        start = 0
        while start < self.n:
            size = min(<int64_t>BLOCK, self.n - start)
            for i in range(size):
                at[i] = (start + i) * self.p
            skf_distances(self.table, at, size, self.mean, self.p, value)
            for i in range(size):
                square += self.row_weight[start + i] * <double>value[i]
            start += size
        self.scale = radius / sqrt(square / self.n_train) if square > 0 else 1

    cdef void set_centre(self, int64_t split) noexcept nogil:
        """Compute the number that `margin_at` subtracts, after w or bias has changed."""
        cdef float dot = 0
        skf_dot(self.w + split * self.p, self.mean, self.p, &dot)
        self.centre[split] = <float>(self.scale * dot + self.bias[split])

    # ---------------------------------------------------------------------------------- inference

    cdef float margin_at(self, int64_t split, int64_t row) noexcept nogil:
        """Return the margin of the current row, positive if it goes right; cached per split."""
        cdef float dot = 0
        if self.margin_row[split] != self.n_inferred:
            skf_dot(self.w + split * self.p, self.table + row * self.p, self.p, &dot)
            self.margin[split] = <float>self.scale * dot - self.centre[split]
            self.margin_row[split] = self.n_inferred
        return self.margin[split]

    cdef int32_t descend(self, int64_t row) noexcept nogil:
        cdef int32_t node = 0
        self.n_inferred = self.n_inferred + 1
        while self.child[node] >= 0:
            node = self.child[node] + (self.margin_at((self.child[node] - 1) // 2, row) > 0)
        return -1 - self.child[node]

    cdef double infer(self, int64_t row, int32_t* best, int32_t* reached) except? -1 nogil:
        """Return the largest loss minus twice the flipped margins (equation 10).

        Loss-augmented inference goes depth first, and follows the signs of the row before it flips
        any. It skips a subtree whose flips cost more than the largest loss of the row at any leaf.

        best, reached : OUT, leaf of the maximum, and leaf that the row reaches
        """
        cdef Visit visit, other
        cdef double value, top = -INFINITY, worst = self.leaves.worst_loss(row)
        cdef int32_t child
        cdef int64_t split
        cdef float margin
        cdef bint right
        self.n_inferred = self.n_inferred + 1
        best[0] = -1
        reached[0] = -1
        self.stack.n = 0
        visit.node = 0
        visit.flips = self.max_flips
        visit.score = 0
        self.stack.append(&visit, 1)
        while self.stack.n > 0:
            self.stack.n = self.stack.n - 1
            visit = (<Visit*>self.stack.data)[self.stack.n]
            if visit.score + worst <= top:
                continue
            child = self.child[visit.node]
            while child >= 0:
                split = (child - 1) // 2
                margin = self.margin_at(split, row)
                right = margin > 0
                if visit.flips > 0:
                    other.node = child + (not right)
                    other.flips = visit.flips - 1
                    other.score = visit.score - 2 * fabs(<double>margin)
                    if other.score + worst > top:
                        self.stack.append(&other, 1)
                child = self.child[child + right]
            value = visit.score + self.leaves.loss(-1 - child, row)
            # The leaf that the row reaches comes first, and remains if values are NaN.
            if reached[0] < 0:
                reached[0] = -1 - child
                best[0] = -1 - child
                top = value
            elif value > top:
                top = value
                best[0] = -1 - child
        return top

    # ----------------------------------------------------------------------------------- training

    cdef int batch(
        self, int64_t start, int64_t size, double rate, double* total
    ) except -1 nogil:
        """Make one step of all parameters that the rows of a batch touch."""
        cdef int64_t i, row
        cdef int32_t best = 0, reached = 0
        cdef double bound, weight = 0
        self.terms.n = 0
        self.touched.n = 0
        self.leaves.prepare(self.order + start, size)
        for i in range(size):
            if self.must_stop(self.p):
                return 0
            row = self.order[start + i]
            self.leaves.place = i
            bound = self.infer(row, &best, &reached)
            self.best_leaf[i] = best
            # g - h (line 6 of algorithm 1). The stable variant has g minus the path to the
            # assigned leaf (equation 14), which is (g - h) - (assigned - h).
            if best != reached:
                self.add_terms(row, best, self.row_weight[row])
            if self.stable and self.assigned[row] != reached:
                bound += self.add_terms(row, self.assigned[row], -self.row_weight[row])
            weight += self.row_weight[row]
            total[0] += self.row_weight[row] * bound
        # Rows of small weight make a shorter step, but rows of large weight no longer one.
        weight = max(weight, <double>size)
        self.rate_sum = self.rate_sum + rate
        for i in range(self.touched.n):
            self.step_split((<int32_t*>self.touched.data)[i], rate, weight)
        # Leaves have no momentum. Their rate is multiplied by 1 / (1 - momentum), like the final
        # steps of the splits.
        self.leaves.step(
            self.order + start, self.best_leaf, self.row_weight, size,
            rate / (1 - self.momentum) / weight
        )
        return 0

    cdef double add_terms(self, int64_t row, int32_t leaf, double factor) except? -1 nogil:
        """Add terms for the signs that the path to a leaf flips; return twice their margins."""
        cdef int32_t node = self.leaf_node[leaf], above = self.parent[node]
        cdef int64_t split
        cdef double sign, total = 0
        cdef float margin
        while above >= 0:
            split = (self.child[above] - 1) // 2
            margin = self.margin_at(split, row)
            if (margin > 0) != (node > self.child[above]):
                sign = 1 if margin > 0 else -1
                total += 2 * fabs(<double>margin)
                self.add_term(split, row, -2 * sign * factor)
            node = above
            above = self.parent[node]
        return total

    cdef int add_term(self, int64_t split, int64_t row, double slope) except -1 nogil:
        cdef GradientTerm term
        cdef int32_t number = <int32_t>split
        term.at = row * self.p
        term.slope = <float>slope
        term.before = self.last_term[split]
        if term.before < 0:
            self.touched.append(&number, 1)
        self.last_term[split] = <int32_t>self.terms.n
        self.terms.append(&term, 1)
        return 0

    cdef int64_t load_terms(self, int64_t split, double* shift) except -1 nogil:
        """Copy the list of a split into arrays and clear it; return its length.

        shift : OUT, sum of the slopes
        """
        cdef int32_t k = self.last_term[split]
        cdef GradientTerm* term
        self.term_at.n = 0
        self.term_slope.n = 0
        shift[0] = 0
        while k >= 0:
            term = <GradientTerm*>self.terms.data + k
            self.term_at.append(&term.at, 1)
            self.term_slope.append(&term.slope, 1)
            shift[0] += term.slope
            k = term.before
        self.last_term[split] = -1
        return self.term_at.n

    cdef int step_split(self, int64_t split, double rate, double weight) except -1 nogil:
        """Make a momentum step along the gradient of a batch, shrink, and project onto the ball.

        Only the splits that a batch touches move, so the momentum of a split comes from its own
        steps.
        """
        cdef float square = 0
        cdef double shift = 0, factor
        cdef float* w = self.w + split * self.p
        cdef int64_t n = self.load_terms(split, &shift)
        skf_add_rows(
            self.table, <int64_t*>self.term_at.data, n, <float*>self.term_slope.data, self.p,
            self.gradient
        )
        skf_momentum_step(
            w, self.velocity + split * self.p, self.gradient, self.mean, self.p,
            <float>(self.scale / weight), <float>shift, <float>self.momentum, <float>rate, &square
        )
        # d margin / d bias = -1
        self.bias_velocity[split] = self.momentum * self.bias_velocity[split] - shift / weight
        self.bias[split] = self.bias[split] - rate * self.bias_velocity[split]
        self.shrink(split, &square)
        factor = square + self.bias[split] * self.bias[split]
        if factor > self.nu:
            factor = sqrt(self.nu / factor)
            self.bias[split] = self.bias[split] * factor
            skf_rescale(w, self.p, <float>factor, 0)
        self.set_centre(split)
        return 0

    cdef void shrink(self, int64_t split, float* square) noexcept nogil:
        """Move w towards 0 by l1 times the rates of all steps since the split last shrank.

        square : OUT, |w|^2; unchanged without l1
        """
        if self.l1 > 0:
            skf_shrink(
                self.w + split * self.p, self.p,
                <float>(self.l1 * (self.rate_sum - self.rate_seen[split])), square
            )
            self.rate_seen[split] = self.rate_sum

    cdef bint must_stop(self, int64_t work) except -1 nogil:
        """True if training must end, after so many more additions."""
        return poll(&self.stop[0], &self.work, work)
