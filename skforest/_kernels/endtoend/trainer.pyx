"""End-to-end training of a soft tree.

Hehn, Kooij and Hamprecht 2020. A row goes right at a split with probability g = sigmoid(gamma z),
where z is its margin (equations 3 to 5). A leaf assigns a row a likelihood: the share of its class
(equation 6), or a normal density. The log-likelihood of equation 7 is maximised by EM, without
products along paths or their logarithms. From the leaves upwards,

    likelihood = (1 - g) lik_left + g lik_right

is the likelihood of a row below a node (equation 2 at the root). From the root downwards, with
h = 1 at the root,

    h_right = h g lik_right / likelihood,    h_left = h (1 - g) lik_left / likelihood

is the posterior probability of the path through a node: at the leaves, the responsibility of
equation 10. The derivative of the negative log-likelihood by the margin (equation 14 with the
opposite sign) is gamma (g h_left - (1 - g) h_right). A likelihood is a weighted mean over leaves,
so it cannot underflow, however deep the tree is.

Each batch has an E-step; the M-step of the leaves follows an epoch, from the sums of its batches
(leaves.pyx). Splits take steps of Adam. A tree of one split is a stump.

A batch is a list of rows at every node (`Visits`). The engine of lists omits children that a row
reaches with a probability below `MIN_REACH`, but never the likelier one. The engine of products
visits all nodes, and computes all margins as one matrix product and all gradients as another; it
is used while rows visit a large part of the tree.
"""

from libc.math cimport INFINITY, ceil, exp, log, pow, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

from ..base.descent cimport SKF_TILE, skf_add_rows, skf_dot, skf_margins, skf_multiply
from ..base.memory cimport Buffer, Scratch, allocate
from ..base.poll cimport poll
from ..base.random cimport next_word, shuffle
from .leaves cimport SoftLeaves, Visits, grow_visits

cdef extern from "endtoend/sigmoids.h" nogil:
    void skf_gates(const float*, int64_t, float, float, float*)
    void skf_rows_at(const int64_t*, const int32_t*, int64_t, int64_t*)
    void skf_drop_features(const float*, const float*, const uint8_t*, int, int64_t, float*)
    void skf_visit_children(Visits*, int64_t, int64_t, float, int64_t*, int64_t*)
    void skf_split_likelihoods(const Visits*, int64_t, int64_t)
    void skf_split_parts(const Visits*, int64_t, int64_t, float, float*)
    void skf_adam_step(
        float*, float*, float*, float*, const float*, const float*, int64_t, float, float, float,
        float, float
    )

cdef enum Engine:
    AUTO = 0
    LISTS = 1
    PRODUCTS = 2

ENGINES = {"auto": AUTO, "lists": LISTS, "products": PRODUCTS}

# Chosen without a stored measurement. `python -m benchmarks.measure.endtoend engines` shows how
# the time depends on the block and on the engine.
cdef enum:
    BLOCK = 64                 # splits with gradients in one product
    WORK_OF_NODE = 256         # products that take as long as a node without rows
    MAX_DENSE_VISITS = 1 << 22  # largest number of visits of a batch in the engine of products

cdef extern from *:
    """
    #define MIN_REACH 3e-3f        /* children reached with a smaller probability are omitted */
    #define DENSE_SHARE 0.3        /* share of visited splits above which products are faster */
    #define MIN_BATCH_WEIGHT 1e-30 /* smallest weight of a batch: its reciprocal is finite */
    """
    const float MIN_REACH
    const double DENSE_SHARE, MIN_BATCH_WEIGHT


cdef inline int64_t padded(int64_t n) noexcept nogil:
    return (n + SKF_TILE - 1) // SKF_TILE * SKF_TILE


cdef class SoftTrainer:
    """Trains all splits and leaves of a `DenseTree`, by the EM algorithm of section 2.3.

    Rows of weight 0 in the `TrainingSet` are not trained on. The `SoftOptions` have the units of
    features, the size of batches, lambda of equation 15, `smoothness`, and `feature_dropout`, the
    probability that a feature of a row has its mean value in a step. The margin of a split is
    ``w . x - threshold``; weights of exactly 0 do not belong to their split, and stay 0.
    """

    def __init__(self, training_set, options, uint64_t seed, stop, tree, engine="auto"):
        units, target = options.units, training_set.target
        cdef const float[:, ::1] X = training_set.X, W = tree.weights
        cdef const float[::1] mean = units.mean, unit = units.unit, threshold = tree.threshold
        cdef const double[::1] weight = training_set.weight
        cdef const int32_t[::1] labels, child = tree.child
        cdef const double[:, ::1] matrix
        cdef int32_t n_outputs = training_set.n_outputs
        cdef int64_t i, j, n = np.count_nonzero(weight), p = X.shape[1]
        cdef double total = np.sum(weight)
        cdef float along = 0
        self.arrays = (X, target, mean, unit)
        self.rows = &X[0, 0]
        self.mean = &mean[0]
        self.unit = &unit[0]
        self.edges = units.edges
        self.smoothness = options.smoothness
        self.dropped = min(255, <int>ceil(256 * options.feature_dropout))
        self.batch_size = options.annealing.batch_size
        self.stop = stop
        self.engine = ENGINES[engine]
        self.random.state = seed
        next_word(&self.random)            # not the stream that grew the tree
        self.random.state ^= <uint64_t>0x452821E638D01377
        self.reserve(n, p, W.shape[0], n_outputs, target.ndim == 1)
        self.n = 0
        if self.is_class:
            labels = target
        else:
            matrix = target
        for i in range(X.shape[0]):
            if weight[i] <= 0:
                continue
            self.at[self.n] = i * p
            self.weight[self.n] = <float>(weight[i] * n / total)
            if self.is_class:
                self.label[self.n] = labels[i]
            else:
                for j in range(n_outputs):
                    self.target[self.n * n_outputs + j] = matrix[i, j]
            self.n = self.n + 1
        memcpy(self.child, &child[0], self.n_nodes * sizeof(int32_t))
        memcpy(self.w, &W[0, 0], self.n_splits * p * sizeof(float))
        for i in range(self.n_splits):
            # A patch lies within a part of the features; only this part is read.
            while self.span[i] > 1 and W[i, self.span[i] - 1] == 0:
                self.span[i] = self.span[i] - 1
            while self.span[i] > 1 and W[i, self.low[i]] == 0:
                self.low[i] = self.low[i] + 1
                self.span[i] = self.span[i] - 1
            self.bias[i] = -threshold[i]
            skf_dot(self.w + i * p, self.mean, p, &along)
            self.centre[i] = along - threshold[i]
        self.reset()

    cdef int reserve(
        self, int64_t n, int64_t p, int64_t n_splits, int32_t n_outputs, bint is_class
    ) except -1:
        """Reserve memory for rows and a tree of at most these sizes."""
        cdef int64_t i, batch = 2 * min(n, <int64_t>self.batch_size) + 1
        cdef int64_t n_leaves = n_splits + 1
        cdef Scratch memory = Scratch()
        self.n = n
        self.p = p
        self.n_splits = n_splits
        self.n_nodes = 2 * n_splits + 1
        self.n_outputs = n_outputs
        self.is_class = is_class
        self.memory = memory
        self.leaves = SoftLeaves(n_leaves, n_outputs, is_class)
        self.visit_columns = tuple(Buffer(4) for _ in range(7))
        self.at = memory.longs(n)
        self.weight = memory.floats(n)
        self.order = memory.ints(n)
        self.label = memory.ints(n if is_class else 0)
        self.target = memory.doubles(0 if is_class else n * n_outputs)
        self.child = memory.ints(self.n_nodes)
        allocate[int64_t](memory, self.n_nodes, [&self.first_visit, &self.n_visits, NULL])
        allocate[float](memory, n_splits * p, [&self.w, &self.first, &self.second, NULL])
        allocate[int64_t](memory, n_splits, [&self.low, &self.span, NULL])
        allocate[double](
            memory, n_splits, [&self.centre, &self.centre_first, &self.centre_second, NULL]
        )
        self.bias = memory.floats(n_splits)
        self.n_steps = memory.ints(n_splits)
        allocate[int64_t](memory, batch, [&self.batch_at, &self.visit_at, NULL])
        allocate[float](memory, batch, [&self.margin, &self.slope, NULL])
        self.batch_label = memory.ints(batch * is_class)
        self.top = memory.doubles(batch)
        self.gradient = memory.floats(p)
        self.batch_stride = padded(batch)
        self.row_stride = padded(p)
        if self.dropped > 0:
            self.noise = <uint8_t*>memory.longs((p + 7) // 8)
            self.noisy = memory.floats(batch * self.row_stride)
        for i in range(n_splits):
            self.span[i] = p
        return 0

    def run(self, float steepness, double rate):
        """Train for one epoch; return the mean negative log-likelihood of the rows.

        Each row counts before the step of its batch, without omitted paths.
        """
        cdef double loss = 0
        with nogil:
            if self.leaves.is_unset:
                self.init_leaves(steepness)
            loss = self.epoch(steepness, rate)
        return loss

    def evaluate(self, float steepness):
        """Make one E-step over all rows, without a step of the splits; for tests.

        "gradient" of the loss is (n_splits, n_features + 1), where the last column is for the bias
        of centred rows; "reach" has the probabilities of the leaves, (n_rows, n_leaves), and
        "part" their responsibilities, times the weight of the row.
        """
        cdef int64_t i, node, leaf, e, size, start = 0, n = self.n
        cdef double[:, ::1] reach = np.zeros((n, self.n_splits + 1))
        cdef double[:, ::1] part = np.zeros((n, self.n_splits + 1))
        cdef double[:, ::1] gradient = np.zeros((self.n_splits, self.p + 1))
        cdef double loss = 0
        self.seen_gradient = &gradient[0, 0]
        for i in range(n):
            self.order[i] = <int32_t>i
        try:
            while start < n:
                size = min(<int64_t>self.batch_size, n - start)
                loss += self.train_batch(start, size, steepness, 0, False)
                for node in range(self.n_nodes):
                    if self.child[node] >= 0:
                        continue
                    leaf = -1 - self.child[node]
                    for i in range(self.n_visits[node]):
                        e = self.first_visit[node] + i
                        reach[start + self.visits.row[e], leaf] = self.visits.reach[e]
                        part[start + self.visits.row[e], leaf] = self.visits.part[e]
                start += size
        finally:
            self.seen_gradient = NULL
        return {
            "loss": loss / n,
            "gradient": np.asarray(gradient) / n,
            "reach": np.asarray(reach),
            "part": np.asarray(part),
        }

    def update_leaves(self):
        """Update the leaves from the sums since the last update (equation 13)."""
        self.leaves.update()

    def planes(self):
        """Return all splits: W, (n_splits, n_features), and threshold, (n_splits,), float32."""
        cdef int64_t i
        cdef float[:, ::1] W = np.empty((self.n_splits, self.p), dtype=np.float32)
        cdef float[::1] threshold = np.empty(self.n_splits, dtype=np.float32)
        memcpy(&W[0, 0], self.w, self.n_splits * self.p * sizeof(float))
        for i in range(self.n_splits):
            threshold[i] = -self.bias[i]
        return np.asarray(W), np.asarray(threshold)

    def n_active_leaves(self, int64_t most):
        """Return how many leaves up to `most` evenly spaced rows reach by hard routing."""
        cdef int64_t i = 0, node, split, low, step = (self.n + most - 1) // most
        cdef float along = 0
        cdef uint8_t[::1] is_reached = np.zeros(self.n_nodes, dtype=np.uint8)
        with nogil:
            while i < self.n:
                node = 0
                while self.child[node] >= 0:
                    split = (self.child[node] - 1) // 2
                    low = self.low[split]
                    skf_dot(
                        self.w + split * self.p + low, self.rows + self.at[i] + low,
                        self.span[split], &along
                    )
                    node = self.child[node] + (along + self.bias[split] > 0)
                is_reached[node] = True
                i += step
        return np.count_nonzero(is_reached)

    @property
    def leaf_values(self):
        """Return shares of classes, or (means, variances), of shape (n_leaves, n_outputs)."""
        return self.leaves.values()

    @property
    def visited(self):
        """float: share of the splits that a row of the last batch visited."""
        return self.share_visited

    @property
    def work_done(self):
        """int: multiplications and additions of rows and weights so far."""
        return self.products

    # ------------------------------------------------------------------------------------ training

    cdef int reset(self) except -1 nogil:
        """Set the state before the first batch: leaves without values, and Adam without a past."""
        cdef int64_t i
        for i in range(self.n):
            self.order[i] = <int32_t>i
        self.leaves.reset(
            self.target, self.weight, self.n, self.n_outputs, self.n_splits + 1
        )
        memset(self.first, 0, self.n_splits * self.p * sizeof(float))
        memset(self.second, 0, self.n_splits * self.p * sizeof(float))
        memset(self.centre_first, 0, self.n_splits * sizeof(double))
        memset(self.centre_second, 0, self.n_splits * sizeof(double))
        memset(self.n_steps, 0, self.n_splits * sizeof(int32_t))
        self.share_visited = 0
        return 0

    cdef int init_leaves(self, float steepness) except -1 nogil:
        """Set the first leaf values: an M-step after an E-step with equal likelihoods."""
        cdef int64_t start = 0, size
        while start < self.n:
            size = min(<int64_t>self.batch_size, self.n - start)
            self.train_batch(start, size, steepness, 0, False)
            start += size
        self.leaves.update()
        return 0

    cdef double epoch(self, float steepness, double rate) except? -1 nogil:
        """Train on all rows once, in random order; then set the leaves (M-step)."""
        cdef int64_t i, n_batches = max(<int64_t>1, self.n // self.batch_size), end, start = 0
        cdef double loss = 0
        shuffle(&self.random, self.order, self.n, self.n)
        for i in range(n_batches):
            end = self.n * (i + 1) // n_batches
            loss += self.train_batch(start, end - start, steepness, rate, True)
            if self.stop[0]:
                return loss / self.n
            start = end
        self.leaves.update()
        return loss / self.n

    cdef double train_batch(
        self, int64_t start, int64_t size, float steepness, double rate, bint steps
    ) except? -1 nogil:
        """Make the E-step of a batch, add its sums to leaves, and make the steps of splits."""
        cdef int64_t i, node, split, low, n, work
        cdef int32_t row
        cdef double loss = 0, total = 0
        cdef float* slope
        for i in range(size):
            row = self.order[start + i]
            self.batch_at[i] = self.at[row]
            if self.is_class:
                self.batch_label[i] = self.label[row]
            total += self.weight[row]
        self.source = self.rows
        if self.dropped > 0 and steps and rate > 0:
            self.drop_features(size)
        self.dense = self.engine == PRODUCTS or (
            self.engine == AUTO and self.n_splits > 1 and self.share_visited > DENSE_SHARE
            and self.n_nodes * size <= MAX_DENSE_VISITS
        )
        # Epochs end early at a stop flag, so only signals matter here.
        work = self.products - self.polled + WORK_OF_NODE * self.n_nodes
        self.polled = self.products
        poll(&self.stop[0], &self.work, work)
        self.descend(size, steepness)
        self.set_likelihoods(start, size)
        for node in range(self.n_nodes - 1, -1, -1):
            if self.child[node] >= 0:
                skf_split_likelihoods(&self.visits, self.first_visit[node], self.n_visits[node])
        for i in range(size):
            self.visits.part[i + 1] = self.weight[self.order[start + i]]
            loss -= self.visits.part[i + 1] * (log(self.visits.likelihood[i + 1]) + self.top[i])
        for node in range(self.n_nodes):
            n = self.n_visits[node]
            if self.child[node] < 0:
                self.leaves.add(
                    &self.visits, -1 - self.child[node], self.first_visit[node], n,
                    self.batch_label, self.target, self.order + start
                )
                continue
            split = (self.child[node] - 1) // 2
            slope = self.all_slopes + split * self.batch_stride if self.dense else self.slope
            skf_split_parts(&self.visits, self.first_visit[node], n, steepness, slope)
            if n == 0 or self.dense or not (steps or self.seen_gradient != NULL):
                continue
            skf_rows_at(
                self.batch_at, self.visits.row + self.first_visit[node], n, self.visit_at
            )
            low = self.low[split]
            skf_add_rows(
                self.source + low, self.visit_at, n, slope, self.span[split], self.gradient + low
            )
            self.take_step(split, self.gradient, slope, n, total, rate)
        if self.dense and (steps or self.seen_gradient != NULL):
            split = 0
            while split < self.n_splits:
                n = min(<int64_t>BLOCK, self.n_splits - split)
                skf_multiply(
                    self.all_slopes + split * self.batch_stride, self.batch_stride, 1, n, size,
                    self.batch, self.row_stride, self.row_stride, self.all_gradients,
                    self.row_stride
                )
                for i in range(n):
                    self.take_step(
                        split + i, self.all_gradients + i * self.row_stride,
                        self.all_slopes + (split + i) * self.batch_stride, size, total, rate
                    )
                split += n
        return loss

    # ------------------------------------------------------------------------ a batch in the tree

    cdef int descend(self, int64_t size, float steepness) except -1 nogil:
        """Set the visits of all nodes by the rows of the batch, with reach and gates."""
        cdef int64_t i, node, seen = 0
        cdef Visits* visits = &self.visits
        self.reserve_visits(size + 1)
        # Visit 0 means that a row does not reach a child; its likelihood is 0.
        visits.likelihood[0] = 0
        visits.n = size + 1
        for i in range(size):
            visits.row[i + 1] = <int32_t>i
            visits.reach[i + 1] = 1
        memset(self.n_visits, 0, self.n_nodes * sizeof(int64_t))
        self.first_visit[0] = 1
        self.n_visits[0] = size
        if self.dense:
            self.reserve_dense()
            self.gather(size)
            skf_multiply(
                self.w, self.p, 1, self.n_splits, self.p, self.transposed, self.batch_stride,
                padded(size), self.all_margins, self.batch_stride
            )
        for node in range(self.n_nodes):
            if self.child[node] < 0 or self.n_visits[node] == 0:
                continue
            if self.dense:
                for i in range(self.first_visit[node], self.first_visit[node] + size):
                    seen += visits.reach[i] >= MIN_REACH
            else:
                seen += self.n_visits[node]
            self.visit_split(node, steepness)
        self.share_visited = <double>seen / (<double>size * max(<int64_t>1, self.n_splits))
        if self.dense:
            self.products = self.products + 4 * self.p * self.n_splits * size
        return 0

    cdef int visit_split(self, int64_t node, float steepness) except -1 nogil:
        """Set the gates of the rows at a split, and the visits of both children."""
        cdef int64_t start = self.first_visit[node], n = self.n_visits[node]
        cdef int64_t child = self.child[node], split = (child - 1) // 2
        cdef const float* margin = self.margin
        if self.dense:
            margin = self.all_margins + split * self.batch_stride
        else:
            skf_rows_at(self.batch_at, self.visits.row + start, n, self.visit_at)
            skf_margins(
                self.source + self.low[split], self.visit_at, n,
                self.w + split * self.p + self.low[split], self.span[split], self.margin
            )
            self.products = self.products + 4 * n * self.span[split]
        self.reserve_visits(self.visits.n + 2 * n)
        skf_gates(margin, n, steepness, self.bias[split], self.visits.gate + start)
        self.first_visit[child] = self.visits.n
        self.first_visit[child + 1] = self.visits.n + n
        skf_visit_children(
            &self.visits, start, n, -1 if self.dense else MIN_REACH, self.n_visits + child,
            self.n_visits + child + 1
        )
        return 0

    cdef void set_likelihoods(self, int64_t start, int64_t size) noexcept nogil:
        """Set the likelihoods of the batch at all leaves; densities are relative to the largest.

        The largest log density of each row is kept in `top`, because the densities of all leaves
        might underflow.
        """
        cdef int64_t i, node
        cdef bint is_density = not (self.is_class or self.leaves.is_unset)
        cdef Visits* visits = &self.visits
        for i in range(size):
            self.top[i] = -INFINITY if is_density else 0
        for node in range(self.n_nodes):
            if self.child[node] >= 0:
                continue
            self.leaves.likelihoods(
                visits, -1 - self.child[node], self.first_visit[node], self.n_visits[node],
                self.batch_label, self.target, self.order + start, self.top
            )
        if not is_density:
            return
        for node in range(self.n_nodes):
            if self.child[node] >= 0:
                continue
            for i in range(self.first_visit[node], self.first_visit[node] + self.n_visits[node]):
                visits.likelihood[i] = <float>exp(
                    min(0.0, <double>visits.part[i] - self.top[visits.row[i]])
                )

    # --------------------------------------------------------------------------------------- steps

    cdef void take_step(
        self, int64_t split, float* gradient, const float* slope, int64_t n, double total,
        double rate
    ) noexcept nogil:
        """Make a step of Adam with the gradient of a batch, which is then cleared."""
        cdef int64_t i, j, low = self.low[split], at = split * self.p + low
        cdef double shift = 0, g, unbias_first, unbias_second
        cdef double* seen
        if not total > MIN_BATCH_WEIGHT:
            memset(gradient, 0, self.p * sizeof(float))
            return
        for i in range(n):
            shift += slope[i]
        if self.smoothness > 0:
            self.smooth(split, gradient, total)
        if self.seen_gradient != NULL:
            seen = self.seen_gradient + split * (self.p + 1)
            for j in range(low, low + self.span[split]):
                seen[j] += gradient[j] - self.mean[j] * shift
            memset(gradient, 0, self.p * sizeof(float))
            seen[self.p] += shift
            return
        self.n_steps[split] = self.n_steps[split] + 1
        unbias_first = 1 / (1 - pow(0.9, self.n_steps[split]))
        unbias_second = 1 / (1 - pow(0.999, self.n_steps[split]))
        skf_adam_step(
            self.w + at, self.first + at, self.second + at, gradient + low, self.mean + low,
            self.unit + low, self.span[split], <float>(1 / total), <float>shift,
            <float>rate, <float>unbias_first, <float>unbias_second
        )
        g = shift / total
        self.centre_first[split] = 0.9 * self.centre_first[split] + 0.1 * g
        self.centre_second[split] = 0.999 * self.centre_second[split] + 0.001 * g * g
        self.centre[split] = self.centre[split] - (
            rate * self.centre_first[split] * unbias_first
            / (sqrt(self.centre_second[split] * unbias_second) + 1e-8)
        )
        self.set_bias(split)

    cdef void set_bias(self, int64_t split) noexcept nogil:
        cdef int64_t low = self.low[split]
        cdef float along = 0
        skf_dot(self.w + split * self.p + low, self.mean + low, self.span[split], &along)
        self.bias[split] = <float>(self.centre[split] - along)

    cdef void smooth(self, int64_t split, float* gradient, double total) noexcept nogil:
        """Add the gradient of equation 15: differences between neighbours within the split.

        Weights are in the units of training, the reciprocals of `unit`.
        """
        cdef int64_t e
        cdef int32_t a, b
        cdef float* w = self.w + split * self.p
        cdef const float* unit = self.unit
        cdef float d, factor = <float>(2 * self.smoothness * total)
        for e in range(self.edges.shape[0]):
            a = self.edges[e, 0]
            b = self.edges[e, 1]
            if w[a] != 0 and w[b] != 0:
                d = factor * (w[a] / unit[a] - w[b] / unit[b])
                gradient[a] += d / unit[a]
                gradient[b] -= d / unit[b]

    # -------------------------------------------------------------------------------------- memory

    cdef void drop_features(self, int64_t size) noexcept nogil:
        """Copy the rows of the batch, with the means of features that are dropped at random."""
        cdef int64_t i, j
        cdef uint64_t* words = <uint64_t*>self.noise
        for i in range(size):
            for j in range((self.p + 7) // 8):
                words[j] = next_word(&self.random)
            skf_drop_features(
                self.rows + self.batch_at[i], self.mean, self.noise, self.dropped, self.p,
                self.noisy + i * self.row_stride
            )
            self.batch_at[i] = i * self.row_stride
        self.source = self.noisy

    cdef void gather(self, int64_t size) noexcept nogil:
        """Copy the rows of the batch contiguously, and transposed."""
        cdef int64_t i, j
        cdef const float* row
        cdef float* out
        for i in range(size):
            row = self.source + self.batch_at[i]
            memcpy(self.batch + i * self.row_stride, row, self.p * sizeof(float))
        for j in range(self.p):
            out = self.transposed + j * self.batch_stride
            for i in range(size):
                out[i] = self.batch[i * self.row_stride + j]

    cdef int reserve_dense(self) except -1 nogil:
        """Reserve memory of the engine of products, which most small trees never use."""
        if self.batch != NULL:
            return 0
        with gil:
            self.transposed = self.memory.floats(self.p * self.batch_stride)
            self.all_margins = self.memory.floats(self.n_splits * self.batch_stride)
            self.all_slopes = self.memory.floats(self.n_splits * self.batch_stride)
            self.all_gradients = self.memory.floats(BLOCK * self.row_stride)
            self.batch = self.memory.floats(self.batch_stride * self.row_stride)
        return 0

    cdef int reserve_visits(self, int64_t n) except -1 nogil:
        """Reserve memory for n + 1 visits."""
        if n >= self.visits.capacity:
            with gil:
                grow_visits(&self.visits, self.visit_columns, n)
        return 0
