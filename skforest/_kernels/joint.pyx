"""Joint optimisation of all splits and leaves of a tree.

Norouzi et al. 2015b. With signs h of the margins of all splits, and f(h) the leaf that they lead
to, the loss of a row is bounded from above (equations 7 and 13) by

    max over g of [g . Wx + loss(f(g))] - max over h of h . Wx

where g runs over all signs, or over those that differ from the row's own in at most one split. The
first maximum is loss-augmented inference; bits off the path to a leaf are best left at their signs
(equation 12), so that the bound is

    max over leaves of [loss(leaf) - 2 sum of |margins| of the turns against the signs].

For a tree of one split this is the bound of a CO2 stump (_surrogate.pyx). Stochastic subgradient
descent with momentum decreases it over W, under ``|w_i|^2 + b_i^2 <= nu``, and over the leaves.
"""

from libc.math cimport INFINITY, exp, fabs, log, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from cpython.exc cimport PyErr_CheckSignals

import numpy as np

from .buffer cimport append, free_buffer, start_buffer
from .random cimport below, next_word

cdef extern from "descent.h" nogil:
    void skf_dot(const float*, const float*, int64_t, float*)
    void skf_add_rows(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_distances(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_momentum_step(
        float*, float*, float*, const float*, int64_t, float, float, float, float, float*
    )
    void skf_rescale(float*, int64_t, float, float)
    void skf_shrink(float*, int64_t, float, float*)

cdef enum:
    LANES = 16
    BLOCK = 256
    POLL = 1 << 24             # additions between two looks at signals


cdef inline float* floats(int64_t n) noexcept nogil:
    return <float*>calloc(<size_t>(n + LANES), sizeof(float))


cdef inline double* doubles(int64_t n) noexcept nogil:
    return <double*>calloc(<size_t>(n + 1), sizeof(double))


cdef inline int32_t* ints(int64_t n) noexcept nogil:
    return <int32_t*>calloc(<size_t>(n + 1), sizeof(int32_t))


cdef class JointTrainer:
    """Trains all splits and leaves of one tree.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), float32, C order
    target : ndarray of shape (n_rows,), int32, or (n_rows, n_outputs), float64
        Class numbers, or a real target.
    n_outputs : int
    weight : ndarray of shape (n_rows,), float64
        Not negative, not all 0. Rows of weight 0 do not train.
    child : ndarray of shape (n_nodes,), int32
        Left child, or ``-1 - leaf`` where leaves are numbered in the order of their nodes. The
        children of split i are nodes 2 i + 1 and 2 i + 2.
    W : ndarray of shape (n_splits, n_features), float32
    threshold : ndarray of shape (n_splits,), float32
        Right where ``w . x > threshold``. Each split is rescaled to squared norm nu.
    leaves : tuple
        As for `set_leaves`.
    seed : int
    stop : ndarray of shape (1,), uint8
    radius : float
        Root mean square norm that the rows are scaled to, once centred on their mean.
    nu, momentum : float
    batch_size : int
    max_flips : int
        Turns against the signs that loss-augmented inference considers: 1, or the depth.
    stable : bool
        Equation 14: the leaf that a row is assigned to is that of the last call of `assign`.
    l1 : float
        Weight of the sum of absolute weights in the objective.
    """

    def __cinit__(self, *args, **kwargs):
        start_buffer(&self.stack, sizeof(Visit))
        start_buffer(&self.turns, sizeof(Turn))
        start_buffer(&self.touched, sizeof(int32_t))

    def __init__(
        self, const float[:, ::1] X, target, int32_t n_outputs, const double[::1] weight,
        const int32_t[::1] child, const float[:, ::1] W, const float[::1] threshold,
        leaves, uint64_t seed, const uint8_t[::1] stop, double radius,
        double nu, double momentum, int32_t batch_size, int32_t max_flips, bint stable, double l1
    ):
        cdef const int32_t[::1] labels
        cdef const double[:, ::1] matrix
        cdef int64_t i, j, n_train = 0, n = X.shape[0], p = X.shape[1]
        cdef double total = 0, square, factor, y
        self.keep = (X, target)
        self.table = &X[0, 0]
        self.n = n
        self.p = p
        self.is_class = target.ndim == 1
        self.n_outputs = n_outputs
        self.nu = nu
        self.momentum = momentum
        self.batch_size = batch_size
        self.max_flips = max_flips
        self.stable = stable
        self.l1 = l1
        self.stop = stop
        self.random.state = seed
        next_word(&self.random)
        self.random.state ^= <uint64_t>0x3C6EF372FE94F82B
        self.n_nodes = child.shape[0]
        self.n_splits = W.shape[0]
        self.n_leaves = self.n_splits + 1
        self.row_weight = floats(n)
        self.assigned = ints(n)
        self.mean = floats(p)
        self.child = ints(self.n_nodes)
        self.parent = ints(self.n_nodes)
        self.leaf_node = ints(self.n_leaves)
        self.w = floats(self.n_splits * p)
        self.bias = doubles(self.n_splits)
        self.centre = floats(self.n_splits)
        self.log_sum = doubles(self.n_leaves)
        self.worst = doubles(n_outputs)
        self.pull = doubles(self.n_leaves)
        self.low = doubles(n_outputs)
        self.high = doubles(n_outputs)
        self.order = ints(n)
        self.margin = floats(self.n_splits)
        self.seen = <int64_t*>calloc(<size_t>(self.n_splits + 1), sizeof(int64_t))
        self.last_turn = ints(self.n_splits)
        self.best_leaf = ints(batch_size)
        self.velocity = floats(self.n_splits * p)
        self.bias_velocity = doubles(self.n_splits)
        self.gradient = floats(p)
        self.rate_seen = doubles(self.n_splits)
        if not (
            self.row_weight and self.assigned and self.mean and self.child and self.parent and
            self.leaf_node and self.w and self.bias and self.centre and
            self.log_sum and self.worst and self.pull and self.low and self.high and
            self.order and self.margin and self.seen and self.last_turn and self.best_leaf and
            self.velocity and self.bias_velocity and self.gradient and self.rate_seen
        ):
            raise MemoryError()
        for i in range(n):
            total += weight[i]
            if weight[i] > 0:
                self.order[n_train] = <int32_t>i
                n_train += 1
        self.n_train = n_train
        for i in range(n):
            self.row_weight[i] = <float>(weight[i] * n_train / total)
        self.parent[0] = -1
        for i in range(self.n_nodes):
            self.child[i] = child[i]
            if child[i] < 0:
                self.leaf_node[-1 - child[i]] = <int32_t>i
            else:
                self.parent[child[i]] = <int32_t>i
                self.parent[child[i] + 1] = <int32_t>i
        self.loss_scale = 1
        if self.is_class:
            labels = target
            self.label = &labels[0]
        else:
            matrix = target
            self.target = &matrix[0, 0]
            square = 0
            for j in range(n_outputs):
                y = 0
                for i in range(n):
                    y += self.row_weight[i] * matrix[i, j] / n_train
                for i in range(n):
                    square += self.row_weight[i] * (matrix[i, j] - y) * (matrix[i, j] - y)
            # Squared errors are taken in units of the variance.
            self.loss_scale = n_train / square if square > 0 else 1
        for i in range(self.n_splits):
            self.last_turn[i] = -1
        self.centre_rows(radius)
        for i in range(self.n_splits):
            square = 0
            self.bias[i] = threshold[i]
            for j in range(p):
                self.w[i * p + j] = W[i, j]
                self.bias[i] -= <double>W[i, j] * self.mean[j]
                square += <double>W[i, j] * W[i, j]
            self.bias[i] *= self.scale
            square += self.bias[i] * self.bias[i]
            factor = sqrt(nu / square) if square > 0 else 1
            self.bias[i] *= factor
            skf_rescale(self.w + i * p, p, <float>factor, 0)
            self.set_centre(i)
        self.set_leaves(*leaves)

    def __dealloc__(self):
        free(self.row_weight)
        free(self.assigned)
        free(self.mean)
        free(self.child)
        free(self.parent)
        free(self.leaf_node)
        free(self.w)
        free(self.bias)
        free(self.centre)
        free(self.log_sum)
        free(self.worst)
        free(self.pull)
        free(self.low)
        free(self.high)
        free(self.order)
        free(self.margin)
        free(self.seen)
        free(self.last_turn)
        free(self.best_leaf)
        free(self.velocity)
        free(self.bias_velocity)
        free(self.gradient)
        free(self.turn_at)
        free(self.turn_slope)
        free(self.rate_seen)
        free_buffer(&self.stack)
        free_buffer(&self.turns)
        free_buffer(&self.touched)

    # ------------------------------------------------------------------------------ from outside

    def epoch(self, double rate):
        """Show every training row once, in random batches.

        Parameters
        ----------
        rate : float
            Length of a step.

        Returns
        -------
        bound : float
            Mean over the training rows, each as it stood in its batch.
        """
        cdef int64_t start = 0, size, i, other
        cdef int32_t swap
        cdef double total = 0
        with nogil:
            self.bound_losses()
            for i in range(self.n_train - 1, 0, -1):
                other = below(&self.random, <int>(i + 1))
                swap = self.order[i]
                self.order[i] = self.order[other]
                self.order[other] = swap
            while start < self.n_train:
                size = min(<int64_t>self.batch_size, self.n_train - start)
                self.batch(start, size, rate, &total)
                if self.stop[0]:
                    break
                start += size
        return total / self.n_train

    def route(self, const int64_t[::1] rows):
        """Leaf of some rows.

        Parameters
        ----------
        rows : ndarray of shape (n_chosen,), int64

        Returns
        -------
        leaves : ndarray of shape (n_chosen,), int32
        """
        cdef int64_t i
        leaves = np.zeros(rows.shape[0], dtype=np.int32)
        cdef int32_t[::1] out = leaves
        with nogil:
            for i in range(rows.shape[0]):
                if self.poll(self.p):
                    break
                out[i] = self.descend(rows[i])
        return leaves

    def assign(self):
        """Leaf of every row, which the stable variant then holds fixed.

        Returns
        -------
        leaves : ndarray of shape (n_rows,), int32
        """
        leaves = self.route(np.arange(self.n))
        cdef const int32_t[::1] found = leaves
        memcpy(self.assigned, &found[0], self.n * sizeof(int32_t))
        return leaves

    def bounds(self):
        """The bound of every row as the tree stands.

        Returns
        -------
        bound : ndarray of shape (n_rows,), float64
        augmented, reached : ndarray of shape (n_rows,), int32
            Leaf of loss-augmented inference, and of the signs.
        """
        bound, augmented, reached = (np.empty(self.n, dtype=d) for d in ("f8", "i4", "i4"))
        cdef double[::1] value = bound
        cdef int32_t[::1] best = augmented, own = reached
        cdef int64_t i
        with nogil:
            self.bound_losses()
            for i in range(self.n):
                value[i] = self.infer(i, &best[i], &own[i])
        return bound, augmented, reached

    def planes(self):
        """The splits, as ``w . x > threshold``.

        Returns
        -------
        W : ndarray of shape (n_splits, n_features), float32
        threshold : ndarray of shape (n_splits,), float32
        """
        cdef int64_t i, j
        cdef double value
        weights = np.empty((self.n_splits, self.p), dtype=np.float32)
        threshold = np.empty(self.n_splits, dtype=np.float32)
        cdef float[:, ::1] out = weights
        cdef float[::1] at = threshold
        for i in range(self.n_splits):
            self.decay(i)
            value = self.bias[i] / self.scale
            for j in range(self.p):
                out[i, j] = self.w[i * self.p + j]
                value += <double>out[i, j] * self.mean[j]
            at[i] = <float>value
        return weights, threshold

    def losses(self, const int64_t[::1] rows):
        """Loss of some rows at the leaves that they reach: log loss, or scaled squared error.

        Parameters
        ----------
        rows : ndarray of shape (n_chosen,), int64

        Returns
        -------
        losses : ndarray of shape (n_chosen,), float64
        """
        cdef int64_t i
        losses = np.zeros(rows.shape[0])
        cdef double[::1] out = losses
        with nogil:
            for i in range(rows.shape[0]):
                if self.poll(self.p):
                    break
                out[i] = self.loss(self.descend(rows[i]), rows[i])
        return losses

    @property
    def parameters(self):
        """tuple: what `set_leaves` was given, as training has left it."""
        return self.leaf_arrays

    def set_leaves(self, start, label, theta, other):
        """Replace the parameters of the leaves; theta and other are trained in place.

        Parameters
        ----------
        start : ndarray of shape (n_leaves + 1,), int64
        label : ndarray of shape (n_entries,), int32
            Classes that have a parameter of their own in a leaf, in ascending order.
        theta : ndarray of shape (n_entries,), float64
            Logarithms of the probabilities of classes, up to a constant, or values of outputs.
        other : ndarray of shape (n_leaves,), float64
            What the classes that a leaf does not list share.
        """
        cdef int64_t i
        cdef const int64_t[::1] start_ = start
        cdef const int32_t[::1] label_ = label
        cdef double[::1] theta_ = theta, other_ = other
        self.leaf_arrays = (start, label, theta, other)
        self.leaf_start = &start_[0]
        self.leaf_class = &label_[0]
        self.theta = &theta_[0]
        self.other = &other_[0]
        for i in range(self.n_leaves):
            self.set_log_sum(i)

    # ----------------------------------------------------------------------------------- the rows

    cdef void centre_rows(self, double radius) noexcept nogil:
        """Mean of every feature, and the scale of centred rows. No row is copied."""
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
        cdef float dot = 0
        skf_dot(self.w + split * self.p, self.mean, self.p, &dot)
        self.centre[split] = <float>(self.scale * dot + self.bias[split])

    # ------------------------------------------------------------------------------------- losses

    cdef void set_log_sum(self, int64_t leaf) noexcept nogil:
        cdef int64_t i, first = self.leaf_start[leaf], last = self.leaf_start[leaf + 1]
        cdef int64_t n_other = self.n_outputs - (last - first)
        cdef double largest = -INFINITY, total = 0
        if not self.is_class:
            return
        for i in range(first, last):
            largest = max(largest, self.theta[i])
        if n_other > 0:
            largest = max(largest, self.other[leaf])
            total = n_other * exp(self.other[leaf] - largest)
        for i in range(first, last):
            total += exp(self.theta[i] - largest)
        self.log_sum[leaf] = largest + log(total)

    cdef void bound_losses(self) noexcept nogil:
        """What no leaf exceeds: the loss of each label, the range of each output."""
        cdef int64_t i
        cdef int32_t k
        self.worst_other = 0
        for k in range(self.n_outputs):
            self.worst[k] = 0
            self.low[k] = INFINITY
            self.high[k] = -INFINITY
        for i in range(self.n_leaves):
            self.widen_losses(i)

    cdef void widen_losses(self, int64_t leaf) noexcept nogil:
        cdef int64_t i, first = self.leaf_start[leaf], last = self.leaf_start[leaf + 1]
        cdef int32_t k
        if not self.is_class:
            for k in range(self.n_outputs):
                self.low[k] = min(self.low[k], self.theta[first + k])
                self.high[k] = max(self.high[k], self.theta[first + k])
            return
        for i in range(first, last):
            k = self.leaf_class[i]
            self.worst[k] = max(self.worst[k], self.log_sum[leaf] - self.theta[i])
        if last - first < self.n_outputs:
            self.worst_other = max(self.worst_other, self.log_sum[leaf] - self.other[leaf])

    cdef int64_t entry(self, int64_t leaf, int32_t label) noexcept nogil:
        """Where the parameter of a class is, -1 if a leaf does not list it."""
        cdef int64_t low = self.leaf_start[leaf], high = self.leaf_start[leaf + 1], middle
        if high - low == self.n_outputs:
            return low + label
        while low < high:
            middle = (low + high) // 2
            if self.leaf_class[middle] < label:
                low = middle + 1
            else:
                high = middle
        if low < self.leaf_start[leaf + 1] and self.leaf_class[low] == label:
            return low
        return -1

    cdef double loss(self, int64_t leaf, int64_t row) noexcept nogil:
        """Log loss, or scaled squared error, of a row at a leaf (equations 2 and 3)."""
        cdef double y, total = 0
        cdef int64_t at
        cdef int32_t k
        if self.is_class:
            at = self.entry(leaf, self.label[row])
            return self.log_sum[leaf] - (self.theta[at] if at >= 0 else self.other[leaf])
        at = self.leaf_start[leaf]
        for k in range(self.n_outputs):
            y = self.target[row * self.n_outputs + k] - self.theta[at + k]
            total += y * y
        return total * self.loss_scale

    cdef double worst_loss(self, int64_t row) noexcept nogil:
        """A loss that the row has at no leaf more of."""
        cdef double y, total = 0
        cdef int32_t k
        if self.is_class:
            return max(self.worst[self.label[row]], self.worst_other)
        for k in range(self.n_outputs):
            y = self.target[row * self.n_outputs + k]
            y = max(fabs(y - self.low[k]), fabs(y - self.high[k]))
            total += y * y
        return total * self.loss_scale

    # ---------------------------------------------------------------------------------- inference

    cdef float margin_at(self, int64_t split, int64_t row) noexcept nogil:
        """Margin of a row: positive where it goes right. Computed once for the row at hand."""
        cdef float dot = 0
        if self.seen[split] != self.n_seen:
            skf_dot(self.w + split * self.p, self.table + row * self.p, self.p, &dot)
            self.margin[split] = <float>self.scale * dot - self.centre[split]
            self.seen[split] = self.n_seen
        return self.margin[split]

    cdef int32_t descend(self, int64_t row) noexcept nogil:
        """Leaf that the signs of the margins lead to."""
        cdef int32_t node = 0
        self.n_seen = self.n_seen + 1
        while self.child[node] >= 0:
            node = self.child[node] + (self.margin_at((self.child[node] - 1) // 2, row) > 0)
        return -1 - self.child[node]

    cdef double infer(self, int64_t row, int32_t* best, int32_t* reached) except? -1 nogil:
        """Loss-augmented inference (equation 10): the largest of loss minus twice the margins.

        Depth first, the row's own way before the turns against its signs, each of which must pay
        for itself out of the largest loss that any leaf has: what cannot win is not looked at.
        """
        cdef Buffer* stack = &self.stack
        cdef Visit visit, other
        cdef double value, top = -INFINITY, worst = self.worst_loss(row)
        cdef int32_t child
        cdef int64_t split
        cdef float margin
        cdef bint right
        self.n_seen = self.n_seen + 1
        best[0] = -1
        reached[0] = -1
        stack.n = 0
        visit.node = 0
        visit.flips = self.max_flips
        visit.score = 0
        append(stack, &visit, 1)
        while stack.n > 0:
            stack.n -= 1
            visit = (<Visit*>stack.data)[stack.n]
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
                        append(stack, &other, 1)
                child = self.child[child + right]
            value = visit.score + self.loss(-1 - child, row)
            # The row's own leaf comes first, and stays where training has run off to NaN.
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
        """One step of all parameters that the rows of a batch touch."""
        cdef int64_t i, row
        cdef int32_t best = 0, reached = 0
        cdef double bound, weight = 0
        self.turns.n = 0
        self.touched.n = 0
        for i in range(size):
            if self.poll(self.p):
                return 0
            row = self.order[start + i]
            bound = self.infer(row, &best, &reached)
            self.best_leaf[i] = best
            # Bits of g minus bits of h (line 6 of algorithm 1, equation 14).
            if best != reached:
                self.add_turns(row, best, self.row_weight[row])
            if self.stable and self.assigned[row] != reached:
                bound += self.add_turns(row, self.assigned[row], -self.row_weight[row])
            weight += self.row_weight[row]
            total[0] += self.row_weight[row] * bound
        # A batch of light rows makes a short step.
        weight = max(weight, <double>size)
        self.rate_sum = self.rate_sum + rate
        for i in range(self.touched.n):
            self.step_split((<int32_t*>self.touched.data)[i], rate, weight)
        # Leaves have no momentum: their steps are as long as momentum would make them in the end.
        self.step_leaves(start, size, rate / (1 - self.momentum) / weight)
        return 0

    cdef double add_turns(self, int64_t row, int32_t leaf, double factor) except? -1 nogil:
        """Turns against the signs on the way to a leaf; returns twice their margins."""
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
                self.add_turn(split, row, -2 * sign * factor)
            node = above
            above = self.parent[node]
        return total

    cdef int add_turn(self, int64_t split, int64_t row, double slope) except -1 nogil:
        cdef Turn turn
        cdef int32_t number = <int32_t>split
        turn.at = row * self.p
        turn.slope = <float>slope
        turn.before = self.last_turn[split]
        if turn.before < 0:
            append(&self.touched, &number, 1)
        self.last_turn[split] = <int32_t>self.turns.n
        append(&self.turns, &turn, 1)
        return 0

    cdef int step_split(self, int64_t split, double rate, double weight) except -1 nogil:
        """Momentum along the gradient of a batch, shrinkage, and back into the ball of nu.

        Only the splits that a batch touches move: momentum is that of their own steps.
        """
        cdef int64_t n = 0
        cdef int32_t k = self.last_turn[split]
        cdef Turn* turn
        cdef float square = 0
        cdef double shift = 0, shrink
        cdef float* w = self.w + split * self.p
        cdef void* grown
        if self.turns.n > self.turn_capacity:
            grown = realloc(self.turn_at, <size_t>self.turns.capacity * sizeof(int64_t))
            if grown == NULL:
                with gil:
                    raise MemoryError()
            self.turn_at = <int64_t*>grown
            grown = realloc(self.turn_slope, <size_t>self.turns.capacity * sizeof(float))
            if grown == NULL:
                with gil:
                    raise MemoryError()
            self.turn_slope = <float*>grown
            self.turn_capacity = self.turns.capacity
        while k >= 0:
            turn = <Turn*>self.turns.data + k
            self.turn_at[n] = turn.at
            self.turn_slope[n] = turn.slope
            shift += turn.slope
            n += 1
            k = turn.before
        self.last_turn[split] = -1
        skf_add_rows(self.table, self.turn_at, n, self.turn_slope, self.p, self.gradient)
        skf_momentum_step(
            w, self.velocity + split * self.p, self.gradient, self.mean, self.p,
            <float>(self.scale / weight), <float>shift, <float>self.momentum, <float>rate, &square
        )
        # d margin / d bias = -1
        self.bias_velocity[split] = self.momentum * self.bias_velocity[split] - shift / weight
        self.bias[split] = self.bias[split] - rate * self.bias_velocity[split]
        if self.l1 > 0:
            shrink = self.l1 * (self.rate_sum - self.rate_seen[split])
            self.rate_seen[split] = self.rate_sum
            skf_shrink(w, self.p, <float>shrink, &square)
        shrink = square + self.bias[split] * self.bias[split]
        if shrink > self.nu:
            shrink = sqrt(self.nu / shrink)
            self.bias[split] = self.bias[split] * shrink
            skf_rescale(w, self.p, <float>shrink, 0)
        self.set_centre(split)
        return 0

    cdef void decay(self, int64_t split) noexcept nogil:
        """The shrinkage that a split has missed since it was last touched."""
        cdef float square = 0
        if self.l1 > 0:
            skf_shrink(
                self.w + split * self.p, self.p,
                <float>(self.l1 * (self.rate_sum - self.rate_seen[split])), &square
            )
            self.rate_seen[split] = self.rate_sum
            self.set_centre(split)

    cdef void step_leaves(self, int64_t start, int64_t size, double rate) noexcept nogil:
        """Step along the gradient of the loss by the parameters of the leaves (line 10)."""
        cdef int64_t i, row
        cdef int32_t leaf
        cdef double step
        for i in range(size):
            self.pull[self.best_leaf[i]] = (
                self.pull[self.best_leaf[i]] + rate * self.row_weight[self.order[start + i]]
            )
        if self.is_class:
            for i in range(size):
                leaf = self.best_leaf[i]
                if self.pull[leaf] > 0:
                    self.push_all(leaf, self.pull[leaf])
                    self.pull[leaf] = -1
        for i in range(size):
            row = self.order[start + i]
            leaf = self.best_leaf[i]
            step = rate * self.row_weight[row]
            if self.is_class:
                self.pull_one(leaf, row, step)
            else:
                # Together, the rows of a batch never move a leaf beyond their own values.
                step *= 2 * self.loss_scale / max(2 * self.loss_scale * self.pull[leaf], 1.0)
                self.move_mean(leaf, row, step)
        for i in range(size):
            leaf = self.best_leaf[i]
            if self.pull[leaf] != 0:
                self.pull[leaf] = 0
                self.set_log_sum(leaf)
                self.widen_losses(leaf)

    cdef void push_all(self, int64_t leaf, double step) noexcept nogil:
        """The gradient of the logarithm of the sum: all classes go down by their probability."""
        cdef int64_t i, first = self.leaf_start[leaf], last = self.leaf_start[leaf + 1]
        self.other[leaf] = self.other[leaf] - (
            step * (self.n_outputs - (last - first)) * exp(self.other[leaf] - self.log_sum[leaf])
        )
        for i in range(first, last):
            self.theta[i] = self.theta[i] - step * exp(self.theta[i] - self.log_sum[leaf])

    cdef void pull_one(self, int64_t leaf, int64_t row, double step) noexcept nogil:
        """The class of a row goes up."""
        cdef int64_t at = self.entry(leaf, self.label[row])
        if at >= 0:
            self.theta[at] = self.theta[at] + step
        else:
            self.other[leaf] = self.other[leaf] + step

    cdef void move_mean(self, int64_t leaf, int64_t row, double step) noexcept nogil:
        cdef double* theta = self.theta + self.leaf_start[leaf]
        cdef int32_t k
        for k in range(self.n_outputs):
            theta[k] += step * (self.target[row * self.n_outputs + k] - theta[k])

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
