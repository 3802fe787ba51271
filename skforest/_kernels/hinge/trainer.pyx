"""Training of random hinge forests and ferns.

Lay et al. 2018, "Random Hinge Forest for Differentiable Learning". A tree is complete. Its test v
compares one feature with a threshold, and has the margin d_v = z[f_v] - t_v; a row goes right if
it is positive. With v* the test of the smallest absolute margin on the path of a row to leaf l,
the response of tree m is (equation 10)

    h_m(x) = |d_v*| w_l,        f(x) = sum over trees of h_m(x).

A row has gradients at only one leaf and one test of each tree (equations 11 and 12), g = dL/df:

    dL/dw_l = |d_v*| g,   dL/dz[f_v*] = sign(d_v*) w_l . g = -dL/dt_v*

so a step moves only the leaves and tests that rows of its batch reach, and the state of the
optimiser does not change for the others. `training/hinge_bag.py` initialises parameters as in
algorithm 1.

Features (section 3) are columns of the table, whose statistics never change, and learned features.
A learned feature is an inner product with the whole row, or with the patch under a receptive
field, with the same weights at each place (a convolution), and moves in every step:

    u_f = w_f . x,        z_f = (u_f - mean_f) / sqrt(variance_f + 1e-7)

Mean and variance are running statistics of batches: the mean over the first 100 batches, then an
exponential average in which a batch counts 1 / 100. As in the paper, they are constants in the
gradient: dL/dw_f = sum over rows of dL/dz_f x / sqrt(variance_f + 1e-7).

With a head, a leaf has one number. Let H be a learned matrix, h the responses of the trees to a
row, and g = dL/df:

    f = H^T h,        dL/dh = H g,        dL/dH = sum over rows of h g^T.
"""

from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

from ..base.loss cimport LossKernel
from ..base.poll cimport poll
from ..base.random cimport Random, below, next_word, normal, uniform
from ..base.row_reader cimport RowReader, as_reader
from ..base.rows cimport BatchSampler
from .features cimport HingeFeatures, HingeHead
from .margins cimport (
    SKF_WIDE, Stepper, Test, skf_hinge_gradient, skf_hinge_response, skf_hinge_route,
    skf_hinge_step
)

# Chosen without a stored measurement; `python -m benchmarks.measure.hinge speed` shows the time of
# steps.
cdef enum:
    BLOCK = 256                # smallest number of rows of scratch, and of leaves added to `value`
    ROWS = 64                  # rows routed at once; 128 features of them fit the first cache

OPTIMIZERS = {"auto": 0, "adam": 0, "adagrad": 1, "sgd": 2}  # kinds of a Stepper
# Adam with optimizer="auto": the mean of the squared gradients forgets a part of 1 - SQUARES in
# each step, and thresholds move THRESHOLD_RATE times as far. Chosen by the errors on held-out
# training rows of 32 tables; no command repeats this.
SQUARES, THRESHOLD_RATE = 0.99, 2.0


def padded_vector(int64_t n):
    """Return the padded length of a vector of n outputs: 1, 2, 4, 8, or a multiple of 16."""
    cdef int64_t width = 1
    while width < n and width < SKF_WIDE:
        width *= 2
    return width if width >= n else (n + SKF_WIDE - 1) // SKF_WIDE * SKF_WIDE


cdef class HingeTrainer:
    """Trains one forest, or a bag of a forest, with arrays that it changes in place.

    The first n_patches * padded(n_linear) features are learned, patch by patch; the others are
    columns of the table. Paddings are 0. With p = padded(n_linear) and k = padded(n_outputs),
    `arrays` has

        direction         (patch_size, p): weights of the learned features, as columns
        receptive_fields  (n_patches, patch_size), int32: columns of the table under each patch
        mean, variance    (width,), float64: of features; constant for columns of the table
        tests             (n_trees, n_tests, 2), int32: bits of the threshold, and feature; 2^depth
                          - 1 tests in the order of a heap, or `depth` for a fern
        leaf              (n_trees, 2^depth), int32: row of `value`; -1 until a row reaches it
        value             (n_values, 3, padded_vector(n_outputs)): vectors of leaves (one number
                          with a head), and the state of their optimiser; a larger array replaces
                          it when it is full
        head              (n_trees, k): H, from responses to raw predictions; otherwise (0, 0)
        *_mean, *_power   state of the optimiser, shaped like direction, tests[..., 0] and head
        counts            (3,), int64: steps, batches in the statistics, used rows of `value`

    Rows have `n_columns` columns. `settings` are `BagSettings`: a vector is drawn with standard
    deviation `leaf_scale` when the first row reaches its leaf; a step multiplies directions and
    leaves by 1 - rate * weight_decay, and skips each tree with probability `dropout`.
    """

    cdef readonly dict arrays
    cdef tuple parameters          # all except arrays, seed and stop, for pickle
    cdef double leaf_scale
    cdef LossKernel loss
    cdef bint fern
    cdef int32_t depth
    cdef int64_t n_trees, n_tests, n_outputs
    cdef bint has_head
    cdef int64_t response_width    # floats of a raw prediction, with padding
    cdef int64_t vector            # floats of a vector, with padding
    cdef int32_t optimizer
    cdef double momentum, decay, dropout
    cdef double squares, threshold_rate   # see `SQUARES`
    cdef int64_t batch_size
    cdef Random random
    cdef const uint8_t[::1] stop
    cdef int64_t work              # operations since signals were last checked
    cdef int64_t work_of_row

    # parameters, and the state of the optimiser
    cdef readonly HingeFeatures features
    cdef int32_t[:, :, ::1] tests
    cdef HingeHead head
    cdef float[:, ::1] tests_mean, tests_power
    cdef int32_t[:, ::1] row_of
    cdef float[:, :, ::1] value
    cdef int64_t[::1] counts

    # rows
    cdef RowReader table
    cdef const double[:, ::1] target
    cdef BatchSampler sampler

    # scratch of a batch
    cdef int32_t[::1] rows
    cdef float[:, ::1] out, g
    cdef float[::1] slope, test_gradient
    cdef int32_t[:, ::1] leaf, test     # (n_trees, n_rows)
    cdef float[:, ::1] margin
    cdef uint8_t[::1] is_kept           # trees that dropout keeps
    cdef int32_t[::1] slot, slot_of, used
    cdef float[:, ::1] sums
    cdef double[:, ::1] raw, slopes, y   # of the loss

    def __init__(
        self, dict arrays, int64_t n_columns, LossKernel loss, settings, uint64_t seed, stop
    ):
        cdef int64_t batch_size = settings.batch_size, n = max(batch_size, <int64_t>BLOCK)
        self.arrays = arrays
        self.parameters = n_columns, loss, settings
        self.loss = loss
        self.leaf_scale = settings.leaf_scale
        self.fern = settings.fern
        self.depth = settings.depth
        self.optimizer = OPTIMIZERS[settings.optimizer]
        is_auto = settings.optimizer == "auto"
        self.squares = SQUARES if is_auto else 0.999
        self.threshold_rate = THRESHOLD_RATE if is_auto else 1.0
        self.momentum = settings.momentum
        self.decay = settings.weight_decay
        self.dropout = settings.dropout
        self.batch_size = batch_size
        self.random.state = seed
        next_word(&self.random)
        self.stop = stop
        self.features = HingeFeatures(arrays, n_columns, batch_size, n)
        self.tests, self.counts = arrays["tests"], arrays["counts"]
        self.tests_mean, self.tests_power = arrays["tests_mean"], arrays["tests_power"]
        self.row_of, self.value = arrays["leaf"], arrays["value"]
        self.n_trees = self.tests.shape[0]
        self.n_tests = self.tests.shape[1]
        self.n_outputs = loss.n_outputs
        self.vector = self.value.shape[2]
        self.has_head = arrays["head"].shape[0] > 0
        self.response_width = arrays["head"].shape[1] if self.has_head else self.vector
        self.head = HingeHead(arrays, n) if self.has_head else None
        self.work_of_row = (
            self.features.linear_width * self.features.patch_size // 8
            + self.n_trees * (self.depth + self.n_outputs)
        )
        self.rows, self.slot, self.used = np.zeros((3, n), dtype=np.int32)
        self.out, self.g = np.zeros((2, n, self.response_width), dtype=np.float32)
        self.slope, self.test_gradient = np.zeros((2, n), dtype=np.float32)
        self.leaf, self.test = np.zeros((2, self.n_trees, n), dtype=np.int32)
        self.margin = np.zeros((self.n_trees, n), dtype=np.float32)
        self.is_kept = np.ones(self.n_trees, dtype=np.uint8)
        self.slot_of = np.full(max(self.value.shape[0], self.n_tests), -1, dtype=np.int32)
        self.sums = np.zeros((n, self.vector), dtype=np.float32)
        self.raw, self.slopes = np.zeros((2, n, self.n_outputs))
        self.y = np.zeros((n, loss.n_columns))

    def __reduce__(self):
        """Pickle everything except the rows, which `set_rows` sets again."""
        arguments = (self.arrays, *self.parameters, 0, np.asarray(self.stop))
        return HingeTrainer, arguments, self.random.state

    def __setstate__(self, uint64_t state):
        self.random.state = state

    # ------------------------------------------------------------------------- called from Python

    def set_rows(self, table, const double[:, ::1] target, const double[::1] weight):
        """Set the training rows, with targets (n_rows, loss.n_columns); they are drawn by weight.

        In all methods, `table` is a RowReader or a dense table.
        """
        self.table = as_reader(table)
        self.target = target
        self.sampler = BatchSampler(np.asarray(weight))

    def init_statistics(self, int64_t n_rows):
        """Set the statistics of learned features from some rows, drawn by weight."""
        if self.features.linear_width:
            drawn = self.products(n_rows, True)
            self.features.reset_statistics(drawn, self.products(n_rows, False))

    def products(self, int64_t n_rows, bint is_drawn):
        """Return the learned features of rows drawn by weight, or evenly from the whole table."""
        cdef int64_t start, n, i, width = self.features.linear_width
        u = np.empty((n_rows, width), dtype=np.float32)
        cdef float[:, ::1] values = u
        for start in range(0, n_rows, self.features.block):
            n = min(self.features.block, n_rows - start)
            with nogil:
                if is_drawn:
                    self.draw(n)
                else:
                    for i in range(n):
                        self.table.copy(
                            (start + i) * self.table.n_rows // n_rows, &self.features.x[i, 0]
                        )
                self.features.project(0, n)
            for i in range(n):
                memcpy(&values[start + i, 0], &self.features.z[i, 0], width * sizeof(float))
        return u

    def restore(self, dict arrays):
        """Overwrite some of the arrays with earlier copies."""
        for name, array in arrays.items():
            if name == "value":
                self.arrays["value"][:len(array)] = array
            else:
                self.arrays[name][...] = array
        self.features.set_units()

    def run(self, const double[::1] rates):
        """Train one step per rate; return the mean loss of the batches before their steps.

        It is infinite or NaN if training diverges.
        """
        cdef int64_t i = 0, n_steps = rates.shape[0]
        cdef double total = 0
        with nogil:
            for i in range(n_steps):
                self.draw(self.batch_size)
                total += self.train_batch(self.batch_size, rates[i])
                if not isfinite(total) or self.should_stop(self.batch_size):
                    break
        return total / max(i + 1, 1)

    def respond(self, table):
        """Return the raw prediction of all trees: (n_rows, n_outputs), float64."""
        cdef RowReader rows = as_reader(table)
        cdef int64_t start = 0, n, i, k, tree, n_rows = rows.n_rows
        raw = np.empty((n_rows, self.n_outputs))
        cdef double[:, ::1] result = raw
        self.is_kept[:] = 1
        with nogil:
            while start < n_rows:
                n = min(self.features.block, n_rows - start)
                self.features.load(rows, start, n)
                self.clear_responses(n)
                self.route(0, n)
                for tree in range(self.n_trees):
                    self.find_leaves(tree, 0, n, False)
                    self.add_response(tree, 0, n, 1)
                if self.has_head:
                    self.head.apply(&self.out[0, 0], n)
                for i in range(n):
                    for k in range(self.n_outputs):
                        result[start + i, k] = self.out[i, k]
                start += n
                if self.should_stop(n):
                    break
        return raw

    def test_influence(self, table, const double[::1] weight):
        """Return the weighted sum over rows of the norm of the gradient by each margin.

        For a test, the norms of the leaf vectors are added over the rows with their smallest
        margin at this test: (n_trees, n_tests), float64.
        """
        cdef RowReader rows = as_reader(table)
        cdef int64_t start = 0, n, i, tree, n_rows = rows.n_rows
        influence = np.zeros((self.n_trees, self.n_tests))
        cdef double[:, ::1] result = influence
        vectors = np.asarray(self.value)[:, 0].astype(np.float64)
        cdef const double[::1] norm = np.sqrt(np.square(vectors).sum(axis=1))
        cdef double[::1] head_norm = np.ones(self.n_trees)
        if self.has_head:
            head = self.arrays["head"].astype(np.float64)
            head_norm = np.sqrt(np.square(head).sum(axis=1))
        self.is_kept[:] = 1
        with nogil:
            while start < n_rows:
                n = min(self.features.block, n_rows - start)
                self.features.load(rows, start, n)
                self.route(0, n)
                for tree in range(self.n_trees):
                    self.find_leaves(tree, 0, n, False)
                    for i in range(n):
                        if self.leaf[tree, i] >= 0:
                            result[tree, self.test[tree, i]] += (
                                weight[start + i] * head_norm[tree] * norm[self.leaf[tree, i]]
                            )
                start += n
                if self.should_stop(n):
                    break
        return influence

    def gradients(self, table, const double[:, ::1] target):
        """Return loss and gradient of at most 256 rows, without a step; for tests.

        Only leaves without a vector change. With SGD at momentum 0, the state of the optimiser is
        the gradient, which is read there before the state is restored.
        """
        cdef RowReader rows = as_reader(table)
        cdef int64_t n = rows.n_rows
        cdef int32_t optimizer = self.optimizer
        cdef double momentum = self.momentum, decay = self.decay, dropout = self.dropout
        self.optimizer = OPTIMIZERS["sgd"]
        self.momentum = self.decay = self.dropout = 0
        self.target = target
        for i in range(n):
            self.rows[i] = i
            rows.copy(i, &self.features.x[i, 0])
        self.is_kept[:] = 1
        self.forward(n, 1)  # adds vectors of leaves
        before = {name: array.copy() for name, array in self.arrays.items()}
        self.arrays["value"][:, 1] = 0
        self.arrays["direction_mean"][...] = 0
        self.arrays["tests_mean"][...] = 0
        self.arrays["head_mean"][...] = 0
        loss = self.train_batch(n, 1)
        found = {
            "direction": self.arrays["direction_mean"].copy(),
            "tests": self.arrays["tests_mean"].copy(),
            "head": self.arrays["head_mean"].copy(),
            "value": self.arrays["value"][:, 1].copy(),
        }
        for name, array in before.items():
            self.arrays[name][...] = array
        self.optimizer = optimizer
        self.momentum, self.decay, self.dropout = momentum, decay, dropout
        self.features.set_units()
        return loss, found

    # ------------------------------------------------------------------------------- forward pass

    cdef void draw(self, int64_t n) noexcept nogil:
        cdef int64_t i
        self.sampler.draw(&self.random, &self.rows[0], n)
        for i in range(n):
            self.table.copy(self.rows[i], &self.features.x[i, 0])

    cdef int forward(self, int64_t n, float scale) except -1 nogil:
        """Compute raw predictions of the kept trees for the n rows in x, and sums of features."""
        cdef int64_t start = 0, tree, n_rows
        self.clear_responses(n)
        self.features.clear_sums()
        while start < n:
            # A block of features stays in the cache while all trees read it.
            n_rows = min(self.features.block, n - start)
            self.features.project(start, n_rows)
            self.features.standardize(n_rows)
            self.route(start, n_rows)
            for tree in range(self.n_trees):
                if self.is_kept[tree]:
                    self.find_leaves(tree, start, n_rows, True)
                    self.add_response(tree, start, n_rows, scale)
            start += n_rows
        if self.has_head:
            self.head.apply(&self.out[0, 0], n)
        return 0

    cdef void route(self, int64_t start, int64_t n) noexcept nogil:
        """Find number of the leaf, test and margin of the n rows in z, in kept trees."""
        cdef int64_t first = 0, n_rows, tree, stride = self.features.columns.shape[1]
        while first < n:
            n_rows = min(<int64_t>ROWS, n - first)
            for tree in range(self.n_trees):
                if self.is_kept[tree]:
                    skf_hinge_route(
                        <const Test*>&self.tests[tree, 0, 0], self.depth, self.fern,
                        &self.features.z[first, 0], self.features.width,
                        &self.features.columns[0, first] if stride else NULL, stride, n_rows,
                        &self.leaf[tree, start + first], &self.test[tree, start + first],
                        &self.margin[tree, start + first]
                    )
            first += n_rows

    cdef int find_leaves(self, int64_t tree, int64_t start, int64_t n, bint draws) except -1 nogil:
        """Replace numbers of leaves, from `route`, by rows of `value`.

        -1 for leaves without a row, unless `draws` draws vectors for them.
        """
        cdef int64_t i, k, row
        cdef int32_t* leaf = &self.leaf[tree, start]
        for i in range(n):
            row = self.row_of[tree, leaf[i]]
            if row < 0 and draws:
                row = self.counts[2]
                if row == self.value.shape[0]:
                    with gil:
                        self.grow_values()
                self.row_of[tree, leaf[i]] = <int32_t>row
                for k in range(1 if self.has_head else self.n_outputs):
                    self.value[row, 0, k] = <float>(self.leaf_scale * normal(&self.random))
                self.counts[2] = row + 1
            leaf[i] = <int32_t>row
        return 0

    cdef int grow_values(self) except -1:
        old = self.arrays["value"]
        value = np.zeros((2 * len(old) + BLOCK, *old.shape[1:]), dtype=np.float32)
        value[:len(old)] = old
        self.arrays["value"] = self.value = value
        self.slot_of = np.full(max(len(value), self.n_tests), -1, dtype=np.int32)
        return 0

    cdef void clear_responses(self, int64_t n) noexcept nogil:
        memset(&self.out[0, 0], 0, n * self.response_width * sizeof(float))
        if self.has_head:
            self.head.clear(n)

    cdef void add_response(
        self, int64_t tree, int64_t start, int64_t n, float scale
    ) noexcept nogil:
        """Add the response of a tree to the sum; with a head, to the row of the tree."""
        skf_hinge_response(
            &self.value[0, 0, 0], 3 * self.vector, &self.leaf[tree, start],
            &self.margin[tree, start], n, self.vector, scale,
            &self.head.responses[tree, start] if self.has_head else &self.out[start, 0]
        )

    # ------------------------------------------------------------------------------ backward pass

    cdef double train_batch(self, int64_t n, double rate) except? -1 nogil:
        """Make one step on the n rows in x; return their mean loss."""
        cdef int64_t tree, n_kept = 0
        cdef double loss
        cdef float scale
        cdef Stepper stepper
        self.counts[0] = self.counts[0] + 1
        self.set_stepper(&stepper, rate)
        for tree in range(self.n_trees):
            self.is_kept[tree] = self.dropout == 0 or uniform(&self.random) >= self.dropout
            n_kept += self.is_kept[tree]
        if n_kept == 0:
            self.is_kept[below(&self.random, <int>self.n_trees)] = 1
        scale = <float>(1 / (1 - self.dropout))   # keeps the mean of the raw prediction
        self.forward(n, scale)
        loss = self.evaluate_loss(n)
        self.features.clear_gradient(n)
        if self.has_head:
            self.head.backpropagate(&self.g[0, 0], self.n_outputs, n)
        for tree in range(self.n_trees):
            if self.is_kept[tree]:
                self.step_tree(tree, n, scale, &stepper)
        if self.has_head:
            self.head.step(&stepper)
        self.features.step(&stepper, n)
        return loss

    cdef void set_stepper(self, Stepper* stepper, double rate) noexcept nogil:
        """Set the coefficients of this step (Adam: Kingma and Ba 2015)."""
        cdef int64_t t = self.counts[0]
        cdef double first = 0.9 ** t, second = self.squares ** t
        stepper.kind = self.optimizer
        stepper.rate = <float>rate
        stepper.decay = <float>(rate * self.decay)
        stepper.momentum = <float>self.momentum
        stepper.first = <float>0.1
        stepper.second = <float>(1 - self.squares)
        stepper.unbias_first = <float>(1 / (1 - first))
        stepper.unbias_second = <float>(1 / (1 - second))

    cdef double evaluate_loss(self, int64_t n) except? -1 nogil:
        """Return the mean loss of the batch; write derivatives by the raw predictions to g."""
        cdef int64_t i, k
        cdef double total
        for i in range(n):
            for k in range(self.n_outputs):
                self.raw[i, k] = self.out[i, k]
            for k in range(self.y.shape[1]):
                self.y[i, k] = self.target[self.rows[i], k]
        total = self.loss.rows(&self.raw[0, 0], &self.y[0, 0], n, &self.slopes[0, 0])
        for i in range(n):
            for k in range(self.n_outputs):
                self.g[i, k] = <float>(self.slopes[i, k] / n)
        return total / n

    cdef void step_tree(
        self, int64_t tree, int64_t n, float scale, const Stepper* stepper
    ) noexcept nogil:
        """Move the leaves and tests that the batch reaches; add to the gradient of features."""
        cdef int64_t i, n_used
        cdef int32_t* test = &self.test[tree, 0]
        cdef Test* tests = <Test*>&self.tests[tree, 0, 0]
        cdef Stepper of_tests = stepper[0]
        n_used = self.assign_slots(&self.leaf[tree, 0], n)
        memset(&self.sums[0, 0], 0, n_used * self.vector * sizeof(float))
        skf_hinge_gradient(
            &self.value[0, 0, 0], 3 * self.vector, &self.leaf[tree, 0], &self.margin[tree, 0],
            &self.head.slopes[tree, 0] if self.has_head else &self.g[0, 0], &self.slot[0], n,
            self.vector, scale, &self.slope[0], &self.sums[0, 0]
        )
        skf_hinge_step(
            stepper, &self.value[0, 0, 0], 3 * self.vector, &self.value[0, 1, 0],
            &self.value[0, 2, 0], 3 * self.vector, &self.sums[0, 0], &self.used[0], n_used,
            self.vector
        )
        n_used = self.assign_slots(test, n)
        memset(&self.test_gradient[0], 0, n_used * sizeof(float))
        for i in range(n):
            self.test_gradient[self.slot[i]] = self.test_gradient[self.slot[i]] - self.slope[i]
        self.features.add_gradient(tests, test, &self.slope[0], n)
        # Thresholds do not decay, because they have no preferred value.
        of_tests.decay = 0
        of_tests.rate = <float>(stepper.rate * self.threshold_rate)
        skf_hinge_step(
            &of_tests, &tests[0].threshold, 2, &self.tests_mean[tree, 0],
            &self.tests_power[tree, 0], 1, &self.test_gradient[0], &self.used[0], n_used, 1
        )

    cdef int64_t assign_slots(self, const int32_t* item, int64_t n) noexcept nogil:
        """Number the distinct items of n rows: row i has slot[i], and used[slot] is the item.

        Return the number of distinct items. Gradients are added in slots, so that memory is needed
        for a batch, not for the whole tree.
        """
        cdef int64_t i, n_used = 0
        cdef int32_t place
        cdef bint fresh
        for i in range(n):  # without branches, which a processor could not predict
            place = self.slot_of[item[i]]
            fresh = place < 0
            place = <int32_t>n_used if fresh else place
            self.slot_of[item[i]] = self.slot[i] = place
            self.used[place] = item[i]
            n_used += fresh
        for i in range(n_used):
            self.slot_of[self.used[i]] = -1
        return n_used

    cdef bint should_stop(self, int64_t n) except -1 nogil:
        """Return whether training must end, after n rows since the last call."""
        return poll(&self.stop[0], &self.work, n * self.work_of_row)
