"""Training of random hinge forests and ferns.

Lay et al., "Random Hinge Forest for Differentiable Learning". A row has a pool of features z:
inner products that are learned, with the whole row or with each of its patches, kept at mean 0 and
deviation 1 by running statistics, and columns of the table themselves. A tree is complete; its
test v asks z[f_v] > t_v, and its answer is the smallest margin on the way, taken positive, times
the vector w of the leaf (equation 10). The answers of all trees are added. Of a tree, a row then
has gradients at one leaf, one test and one feature only (equations 11 and 12), so a step moves the
leaves and tests that its batch came by, and leaves all others, and the state that the optimiser
keeps of them, as they are. Features move in every step. With a head, vectors have one number, and
a learned matrix leads from the answers of the trees to the response.
"""

from libc.math cimport isfinite, sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from cpython.exc cimport PyErr_CheckSignals

import numpy as np

from .loss cimport Loss
from .random cimport Random, below, next_word, normal, uniform

cdef extern from "hinge.h" nogil:
    ctypedef struct skf_test:
        float threshold
        int32_t feature

    ctypedef struct skf_stepper:
        int32_t kind
        float rate, decay, momentum
        float first, second, unbias_first, unbias_second

    enum:
        SKF_TILE
        SKF_WIDE

    double SKF_LEAST_VARIANCE, SKF_LONGEST

    void skf_multiply(
        const float*, int64_t, int64_t, int64_t, int64_t, const float*, int64_t, int64_t, float*,
        int64_t
    )
    void skf_standardise(float*, int64_t, int64_t, const float*, const float*, float*, float*)
    void skf_scale_columns(float*, int64_t, int64_t, int64_t, const float*)
    void skf_hinge_walk(
        const skf_test*, int, int, const float*, int64_t, int64_t, int32_t*, int32_t*, float*
    )
    void skf_hinge_answer(
        const float*, int64_t, const int32_t*, const float*, int64_t, int64_t, float, float*
    )
    void skf_hinge_gradient(
        const float*, int64_t, const int32_t*, const float*, const float*, const int32_t*,
        int64_t, int64_t, float, float*, float*
    )
    void skf_kernel_gradient(
        const skf_test*, const int32_t*, const float*, int64_t, const float*, int64_t, int64_t,
        int64_t, const float*, float*
    )
    void skf_hinge_step(
        const skf_stepper*, float*, int64_t, float*, float*, int64_t, const float*,
        const int32_t*, int64_t, int64_t
    )

cdef enum:
    BLOCK = 256                # rows that there is room for, at least
    LEAST_BLOCK = 16           # rows whose features are at hand together, at least
    CACHE = 1 << 19            # bytes of features that shall stay close
    POLL = 1 << 24             # operations between two looks at signals

OPTIMIZERS = {"adam": 0, "adagrad": 1, "sgd": 2}


def padded_vector(int64_t n):
    """Floats that a vector of n outputs takes up: 1, 2, 4, 8, or a multiple of 16."""
    cdef int64_t width = 1
    while width < n and width < SKF_WIDE:
        width *= 2
    return width if width >= n else (n + SKF_WIDE - 1) // SKF_WIDE * SKF_WIDE


cpdef int64_t padded(int64_t n) noexcept nogil:
    """Columns that n features take up in a table of features."""
    return (n + SKF_TILE - 1) // SKF_TILE * SKF_TILE


cdef class HingeTrainer:
    """Trains one forest, or bag of one, from arrays that it changes in place.

    Parameters
    ----------
    arrays : dict of str to ndarray
        direction : (n_taps, padded(n_linear)), float32
            Learned inner products, as columns; 0 behind n_linear.
        taps : (n_patches, n_taps), int32
            Columns of the table that make each patch of a row.
        mean, variance : (width,), float64
            Of the features. The first n_patches * padded(n_linear) of them are inner products,
            patch by patch, the others columns of the table, of which mean 0 and the variance stay.
        tests : (n_trees, n_tests, 2), int32
            Threshold (the bits of a float32) and feature of the tests of a tree: 2^depth - 1 in
            the order of a heap, or `depth` for a fern.
        leaf : (n_trees, 2^depth), int32
            Row of `value` that a leaf has, -1 until a row of the table comes by.
        head : (n_trees, padded(n_outputs)), float32
            From the answers of trees, one number each, to the response; 0 behind n_outputs.
            Without a head: (0, 0).
        value : (n_values, 3, padded_vector(n_outputs)), float32
            Vectors of leaves, of one number where there is a head, and what the optimiser knows of
            them. Most leaves of a deep tree never see a row, and have none. The array is made anew
            where it must grow.
        direction_mean, tests_mean, head_mean, direction_power, tests_power, head_power
            State of the optimiser, of the shapes of what it trains (`tests`: without the last
            axis), float32; 0 to begin with.
        counts : (3,), int64
            Steps, batches that the statistics of features know, and rows of `value` in use.
    n_columns, depth : int
    leaf_scale : float
        Standard deviation of the vector of a leaf that a row comes by for the first time.
    fern : bool
    loss : Loss
    optimizer : {"adam", "adagrad", "sgd"}
    momentum, decay, dropout : float
        Of "sgd"; share of directions and leaves that a step takes away, per unit of its rate;
        share of the trees that are left out of a step.
    batch_size : int
        At least 2.
    seed : int
    stop : ndarray of shape (1,), uint8
        Set from outside to make training end early.
    """

    cdef readonly dict arrays
    cdef tuple given               # the other parameters
    cdef double leaf_scale
    cdef Loss loss
    cdef bint fern
    cdef int32_t depth
    cdef int64_t n_trees, n_tests, n_outputs, n_columns, width
    cdef bint linear               # is there a head?
    cdef int64_t answer_width      # floats of a response, with padding
    cdef int64_t n_patches, n_taps
    cdef int64_t patch_width       # features of a patch, with padding
    cdef int64_t linear_width      # of all patches
    cdef int64_t vector            # floats of a vector, with padding
    cdef int32_t optimizer
    cdef double momentum, decay, dropout
    cdef int64_t batch_size
    cdef int64_t block             # rows whose features are at hand together
    cdef Random random
    cdef const uint8_t[::1] stop
    cdef int64_t work

    # parameters, and what the optimiser knows of them
    cdef float[:, ::1] direction, direction_mean, direction_power
    cdef const int32_t[:, ::1] taps
    cdef double[::1] mean, variance
    cdef int32_t[:, :, ::1] tests
    cdef float[:, ::1] tests_mean, tests_power, head, head_mean, head_power
    cdef int32_t[:, ::1] row_of
    cdef float[:, :, ::1] value
    cdef int64_t[::1] counts

    # rows
    cdef const float[:, ::1] table
    cdef const double[:, ::1] target
    cdef const double[::1] copies  # of every row in an epoch, on average
    cdef int32_t[::1] order        # rows of this epoch
    cdef int64_t n_order, next_row

    # scratch of a batch
    cdef int32_t[::1] rows
    cdef float[:, ::1] x, patches, z, dz, out, g, gradient, kernels
    cdef float[:, ::1] answers, pulls   # of trees and their derivatives, (n_trees, n_rows)
    cdef float[:, ::1] turned, head_gradient
    cdef float[::1] centre, unit, sum, square, slope, pull
    cdef int32_t[:, ::1] leaf, test     # (n_trees, n_rows)
    cdef float[:, ::1] margin
    cdef uint8_t[::1] kept
    cdef int32_t[::1] number, slot, slot_of, used
    cdef float[:, ::1] sums
    cdef double[::1] raw, slopes

    def __init__(
        self, dict arrays, int64_t n_columns, int32_t depth, double leaf_scale, bint fern,
        Loss loss, optimizer, double momentum, double decay, double dropout, int64_t batch_size,
        uint64_t seed, stop
    ):
        cdef int64_t n = max(batch_size, <int64_t>BLOCK)
        self.arrays = arrays
        self.given = (
            n_columns, depth, leaf_scale, fern, loss, optimizer, momentum, decay, dropout,
            batch_size
        )
        self.loss = loss
        self.leaf_scale = leaf_scale
        self.fern = fern
        self.depth = depth
        self.optimizer = OPTIMIZERS[optimizer]
        self.momentum = momentum
        self.decay = decay
        self.dropout = dropout
        self.batch_size = batch_size
        self.random.state = seed
        next_word(&self.random)
        self.stop = stop
        self.direction = arrays["direction"]
        self.direction_mean = arrays["direction_mean"]
        self.direction_power = arrays["direction_power"]
        self.mean = arrays["mean"]
        self.variance = arrays["variance"]
        self.tests = arrays["tests"]
        self.tests_mean = arrays["tests_mean"]
        self.tests_power = arrays["tests_power"]
        self.row_of = arrays["leaf"]
        self.value = arrays["value"]
        self.counts = arrays["counts"]
        self.n_trees = self.tests.shape[0]
        self.n_tests = self.tests.shape[1]
        self.n_outputs = loss.n_outputs
        self.vector = self.value.shape[2]
        self.head = arrays["head"]
        self.head_mean = arrays["head_mean"]
        self.head_power = arrays["head_power"]
        self.linear = self.head.shape[0] > 0
        self.answer_width = self.head.shape[1] if self.linear else self.vector
        self.taps = arrays["taps"]
        self.n_columns = n_columns
        self.n_patches = self.taps.shape[0]
        self.n_taps = self.direction.shape[0]
        self.patch_width = self.direction.shape[1]
        self.linear_width = self.n_patches * self.patch_width
        self.width = self.mean.shape[0]
        self.rows = np.zeros(n, dtype=np.int32)
        self.x = np.zeros((n, self.n_columns), dtype=np.float32)
        # A row that is its only patch is read where it stands.
        self.patches = self.x
        if self.n_patches > 1:
            self.patches = np.zeros((n * self.n_patches, self.n_taps), dtype=np.float32)
        self.block = min(n, max(<int64_t>LEAST_BLOCK, CACHE // (4 * self.width) // 8 * 8))
        self.z = np.zeros((self.block, self.width), dtype=np.float32)
        self.dz = np.zeros((1 if self.n_patches > 1 else n, self.width), dtype=np.float32)
        self.kernels = np.zeros((self.patch_width, self.n_taps), dtype=np.float32)
        self.out = np.zeros((n, self.answer_width), dtype=np.float32)
        self.g = np.zeros((n, self.answer_width), dtype=np.float32)
        n_heads = self.n_trees if self.linear else 0
        self.answers = np.zeros((n_heads, padded(n)), dtype=np.float32)
        self.pulls = np.zeros((n_heads, padded(n)), dtype=np.float32)
        self.turned = np.zeros((self.answer_width, padded(n)), dtype=np.float32)
        self.head_gradient = np.zeros((n_heads, self.answer_width), dtype=np.float32)
        self.gradient = np.zeros((self.n_taps, self.patch_width), dtype=np.float32)
        self.centre = np.zeros(self.width, dtype=np.float32)
        self.unit = np.zeros(self.width, dtype=np.float32)
        self.sum = np.zeros(self.width, dtype=np.float32)
        self.square = np.zeros(self.width, dtype=np.float32)
        self.slope = np.zeros(n, dtype=np.float32)
        self.pull = np.zeros(n, dtype=np.float32)
        self.leaf = np.zeros((self.n_trees, n), dtype=np.int32)
        self.test = np.zeros((self.n_trees, n), dtype=np.int32)
        self.margin = np.zeros((self.n_trees, n), dtype=np.float32)
        self.kept = np.ones(self.n_trees, dtype=np.uint8)
        self.number = np.zeros(n, dtype=np.int32)
        self.slot = np.zeros(n, dtype=np.int32)
        self.slot_of = np.full(max(self.value.shape[0], self.n_tests), -1, dtype=np.int32)
        self.used = np.zeros(n, dtype=np.int32)
        self.sums = np.zeros((n, self.vector), dtype=np.float32)
        self.raw = np.zeros(self.n_outputs)
        self.slopes = np.zeros(self.n_outputs)
        self.set_units()

    def __reduce__(self):
        """For pickle: all but the rows, which are fed again."""
        given = (self.arrays, *self.given, 0, np.asarray(self.stop))
        return HingeTrainer, given, self.random.state

    def __setstate__(self, uint64_t state):
        self.random.state = state

    # ------------------------------------------------------------------------------ from outside

    def feed(
        self, const float[:, ::1] table, const double[:, ::1] target, const double[::1] weight
    ):
        """Take over the rows to train on.

        Parameters
        ----------
        table : ndarray of shape (n_rows, n_columns), float32
        target : ndarray of shape (n_rows, loss.n_columns), float64
        weight : ndarray of shape (n_rows,), float64
            Not negative, not all 0. Rows of weight 0 do not train. Batches are drawn by weight.
        """
        counted = np.asarray(weight)
        self.table = table
        self.target = target
        self.copies = counted * (np.count_nonzero(counted) / counted.sum())
        # Rounding up and down takes one row more than there are, at most, for each.
        self.order = np.zeros(2 * weight.shape[0] + self.batch_size, dtype=np.int32)
        self.n_order = 0
        self.next_row = 0

    def begin(self, int64_t n_rows):
        """Take the mean and variance of the learned features from some rows, drawn by weight."""
        cdef int64_t start, n, i, f
        cdef float[:, ::1] values
        if self.linear_width == 0:
            return
        z = np.empty((n_rows, self.linear_width), dtype=np.float32)
        values = z
        for start in range(0, n_rows, self.block):
            n = min(self.block, n_rows - start)
            with nogil:
                self.draw(n)
                self.project(0, n)
            for i in range(n):
                for f in range(self.linear_width):
                    values[start + i, f] = self.z[i, f]
        mean = np.asarray(self.mean)[:self.linear_width]
        variance = np.asarray(self.variance)[:self.linear_width]
        mean[:] = z.mean(axis=0, dtype=np.float64)
        variance[:] = z.var(axis=0, ddof=1, dtype=np.float64) if n_rows > 1 else 1
        self.counts[1] = (n_rows + self.batch_size - 1) // self.batch_size
        self.set_units()

    def restore(self, dict arrays):
        """Go back to a copy of some of the arrays."""
        for name, array in arrays.items():
            if name == "value":
                self.arrays["value"][:len(array)] = array
            else:
                self.arrays[name][...] = array
        self.set_units()

    def run(self, const double[::1] rates):
        """Some steps.

        Parameters
        ----------
        rates : ndarray of shape (n_steps,), float64

        Returns
        -------
        loss : float
            Mean over the rows, each as it stood in its batch; infinity or NaN where training has
            failed.
        """
        cdef int64_t i = 0, n_steps = rates.shape[0]
        cdef double total = 0
        with nogil:
            for i in range(n_steps):
                total += self.step(rates[i])
                if not isfinite(total) or self.poll():
                    break
        return total / max(i + 1, 1)

    def respond(self, const float[:, ::1] table):
        """Answer of all trees together.

        Parameters
        ----------
        table : ndarray of shape (n_rows, n_columns), float32

        Returns
        -------
        raw : ndarray of shape (n_rows, n_outputs), float64
        """
        cdef int64_t start = 0, n, i, k, n_rows = table.shape[0]
        raw = np.empty((n_rows, self.n_outputs))
        cdef double[:, ::1] result = raw
        with nogil:
            while start < n_rows:
                n = min(self.block, n_rows - start)
                self.look(table, start, n)
                self.clear(n)
                for i in range(self.n_trees):
                    self.walk(i, 0, n)
                    self.answer(i, 0, n, 1)
                self.combine(n)
                for i in range(n):
                    for k in range(self.n_outputs):
                        result[start + i, k] = self.out[i, k]
                start += n
                if self.poll():
                    break
        return raw

    def survey(self, const float[:, ::1] table, const double[::1] weight):
        """How much each test decides: the weight of the rows that have their smallest margin at
        it, times the length of the vector of their leaf, which is the gradient by its feature.

        Parameters
        ----------
        table : ndarray of shape (n_rows, n_columns), float32
        weight : ndarray of shape (n_rows,), float64

        Returns
        -------
        moved : ndarray of shape (n_trees, n_tests), float64
        """
        cdef int64_t start = 0, n, i, tree, n_rows = table.shape[0]
        moved = np.zeros((self.n_trees, self.n_tests))
        cdef double[:, ::1] result = moved
        vectors = np.asarray(self.value)[:, 0].astype(np.float64)
        cdef const double[::1] length = np.sqrt(np.square(vectors).sum(axis=1))
        cdef double[::1] gain = np.ones(self.n_trees)
        if self.linear:
            gain = np.sqrt(np.square(np.asarray(self.head, dtype=np.float64)).sum(axis=1))
        with nogil:
            while start < n_rows:
                n = min(self.block, n_rows - start)
                self.look(table, start, n)
                for tree in range(self.n_trees):
                    self.walk(tree, 0, n)
                    for i in range(n):
                        if self.leaf[tree, i] >= 0:
                            result[tree, self.test[tree, i]] += (
                                weight[start + i] * gain[tree] * length[self.leaf[tree, i]]
                            )
                start += n
                if self.poll():
                    break
        return moved

    def gradients(self, const float[:, ::1] table, const double[:, ::1] target):
        """What one step would follow, of at most 256 rows; no parameter moves. For tests.

        Returns
        -------
        loss : float
            Mean over the rows.
        gradients : dict of str to ndarray
            Of "direction", "tests" (n_trees, n_tests), "value" (n_values, n_outputs), "head".
        """
        cdef int64_t n = table.shape[0]
        cdef int32_t optimizer = self.optimizer
        cdef double momentum = self.momentum, decay = self.decay, dropout = self.dropout
        self.optimizer = OPTIMIZERS["sgd"]
        self.momentum = self.decay = self.dropout = 0
        self.target = target
        for i in range(n):
            self.rows[i] = i
            memcpy(&self.x[i, 0], &table[i, 0], self.n_columns * sizeof(float))
        self.kept[:] = 1
        self.forward(n, 1)  # gives vectors to leaves
        kept = {name: array.copy() for name, array in self.arrays.items()}
        self.arrays["value"][:, 1] = 0
        self.arrays["direction_mean"][...] = 0
        self.arrays["tests_mean"][...] = 0
        self.arrays["head_mean"][...] = 0
        loss = self.learn(n, 1)
        found = {
            "direction": self.arrays["direction_mean"].copy(),
            "tests": self.arrays["tests_mean"].copy(),
            "head": self.arrays["head_mean"].copy(),
            "value": self.arrays["value"][:, 1].copy(),
        }
        for name, array in kept.items():
            self.arrays[name][...] = array
        self.optimizer = optimizer
        self.momentum = momentum
        self.decay = decay
        self.dropout = dropout
        self.set_units()
        return loss, found

    # -------------------------------------------------------------------------------- the features

    cdef void set_units(self) noexcept nogil:
        """Mean and reciprocal deviation of every feature, as the loops read them."""
        cdef int64_t f
        for f in range(self.width):
            self.centre[f] = <float>self.mean[f]
            self.unit[f] = <float>(1 / sqrt(self.variance[f] + SKF_LEAST_VARIANCE))
            if f >= self.linear_width:
                self.unit[f] = <float>(1 / sqrt(self.variance[f]))

    cdef void draw(self, int64_t n) noexcept nogil:
        """The next n rows of an epoch: their numbers, and their columns."""
        cdef int64_t i
        for i in range(n):
            if self.next_row >= self.n_order:
                self.shuffle()
            self.rows[i] = self.order[self.next_row]
            self.next_row = self.next_row + 1
            memcpy(
                &self.x[i, 0], &self.table[self.rows[i], 0], self.n_columns * sizeof(float)
            )

    cdef void shuffle(self) noexcept nogil:
        """Begin an epoch: every row about as often as its weight wants it, in random order."""
        cdef int64_t i, c, other, n = 0
        cdef int32_t swap
        while n == 0:
            for i in range(self.copies.shape[0]):
                if self.copies[i] <= 0:
                    continue
                c = <int64_t>(self.copies[i] + uniform(&self.random))
                while c > 0 and n < self.order.shape[0]:
                    self.order[n] = <int32_t>i
                    n += 1
                    c -= 1
        for i in range(n - 1, 0, -1):
            other = below(&self.random, <int>(i + 1))
            swap = self.order[i]
            self.order[i] = self.order[other]
            self.order[other] = swap
        self.n_order = n
        self.next_row = 0

    cdef void project(self, int64_t start, int64_t n) noexcept nogil:
        """Features of the rows in x from `start` on, as they are before they are standardised."""
        cdef int64_t i, patch, t, first = start * self.n_patches
        self.work = self.work + n * self.n_patches * self.n_taps * self.patch_width // 8
        if self.n_patches > 1:
            for i in range(n):
                for patch in range(self.n_patches):
                    for t in range(self.n_taps):
                        self.patches[first + i * self.n_patches + patch, t] = (
                            self.x[start + i, self.taps[patch, t]]
                        )
        if self.linear_width:
            skf_multiply(
                &self.patches[first, 0], self.n_taps, 1, n * self.n_patches, self.n_taps,
                &self.direction[0, 0], self.patch_width, self.patch_width, &self.z[0, 0],
                self.width // self.n_patches
            )
        if self.width > self.linear_width:
            for i in range(n):
                memcpy(
                    &self.z[i, self.linear_width], &self.x[start + i, 0],
                    self.n_columns * sizeof(float)
                )

    cdef void look(self, const float[:, ::1] table, int64_t start, int64_t n) noexcept nogil:
        """Standardised features of rows of a table, no more than fit into z."""
        memcpy(&self.x[0, 0], &table[start, 0], n * self.n_columns * sizeof(float))
        self.project(0, n)
        self.standardise(n)

    cdef void standardise(self, int64_t n) noexcept nogil:
        skf_standardise(
            &self.z[0, 0], n, self.width, &self.centre[0], &self.unit[0], &self.sum[0],
            &self.square[0]
        )

    cdef void remember(self, int64_t n) noexcept nogil:
        """Running mean and variance, from the sums of the standardised features of a batch."""
        cdef int64_t f, seen = self.counts[1]
        cdef double mean, variance, deviation, old = <double>seen / (seen + 1)
        if n < 2:
            return
        old = min(old, SKF_LONGEST)
        for f in range(self.linear_width):
            deviation = sqrt(self.variance[f] + SKF_LEAST_VARIANCE)
            mean = self.sum[f] / n
            variance = max((self.square[f] - n * mean * mean) / (n - 1), 0.0)
            mean = self.mean[f] + mean * deviation
            variance = variance * deviation * deviation
            self.mean[f] = old * self.mean[f] + (1 - old) * mean
            self.variance[f] = old * self.variance[f] + (1 - old) * variance
        self.counts[1] = seen + 1
        self.set_units()

    # ------------------------------------------------------------------------------------ training

    cdef void walk(self, int64_t tree, int64_t start, int64_t n) noexcept nogil:
        """Rows of `value`, tests and margins that the n rows in z come to in a tree."""
        cdef int64_t i
        cdef int32_t* leaf = &self.leaf[tree, start]
        self.work = self.work + n * (self.depth + self.n_outputs)
        skf_hinge_walk(
            <const skf_test*>&self.tests[tree, 0, 0], self.depth, self.fern, &self.z[0, 0],
            self.width, n, leaf, &self.test[tree, start], &self.margin[tree, start]
        )
        for i in range(n):
            self.number[i] = leaf[i]
            leaf[i] = self.row_of[tree, leaf[i]]

    cdef int settle(self, int64_t tree, int64_t start, int64_t n) except -1 nogil:
        """Give vectors to the leaves of the tree just walked that have none yet."""
        cdef int64_t i, k, row
        for i in range(n):
            if self.leaf[tree, start + i] >= 0:
                continue
            row = self.row_of[tree, self.number[i]]
            if row < 0:
                row = self.counts[2]
                if row == self.value.shape[0]:
                    with gil:
                        self.grow()
                self.row_of[tree, self.number[i]] = <int32_t>row
                for k in range(1 if self.linear else self.n_outputs):
                    self.value[row, 0, k] = <float>(self.leaf_scale * normal(&self.random))
                self.counts[2] = row + 1
            self.leaf[tree, start + i] = <int32_t>row
        return 0

    cdef int grow(self) except -1:
        """Twice as much room for vectors of leaves."""
        old = self.arrays["value"]
        value = np.zeros((2 * len(old) + BLOCK, *old.shape[1:]), dtype=np.float32)
        value[:len(old)] = old
        self.arrays["value"] = self.value = value
        self.slot_of = np.full(max(len(value), self.n_tests), -1, dtype=np.int32)
        return 0

    cdef void answer(self, int64_t tree, int64_t start, int64_t n, float scale) noexcept nogil:
        """Add the answer of a tree to those of the others, or keep it for the head."""
        skf_hinge_answer(
            &self.value[0, 0, 0], 3 * self.vector, &self.leaf[tree, start],
            &self.margin[tree, start], n, self.vector, scale,
            &self.answers[tree, start] if self.linear else &self.out[start, 0]
        )

    cdef void clear(self, int64_t n) noexcept nogil:
        cdef int64_t tree
        memset(&self.out[0, 0], 0, n * self.answer_width * sizeof(float))
        if self.linear:
            for tree in range(self.n_trees):
                memset(&self.answers[tree, 0], 0, n * sizeof(float))

    cdef void combine(self, int64_t n) noexcept nogil:
        """Response of n rows, from the answers of the trees."""
        if self.linear:
            skf_multiply(
                &self.answers[0, 0], 1, self.answers.shape[1], n, self.n_trees, &self.head[0, 0],
                self.answer_width, self.answer_width, &self.out[0, 0], self.answer_width
            )

    cdef void pull_head(self, int64_t n) noexcept nogil:
        """Derivatives by the answers of trees, and the gradient of the head."""
        cdef int64_t i, k
        for i in range(n):
            for k in range(self.n_outputs):
                self.turned[k, i] = self.g[i, k]
        skf_multiply(
            &self.head[0, 0], self.answer_width, 1, self.n_trees, self.n_outputs,
            &self.turned[0, 0], self.turned.shape[1], padded(n), &self.pulls[0, 0],
            self.pulls.shape[1]
        )
        skf_multiply(
            &self.answers[0, 0], self.answers.shape[1], 1, self.n_trees, n, &self.g[0, 0],
            self.answer_width, self.answer_width, &self.head_gradient[0, 0], self.answer_width
        )

    cdef double step(self, double rate) except? -1 nogil:
        """One step on the next batch; its mean loss."""
        self.draw(self.batch_size)
        return self.learn(self.batch_size, rate)

    cdef double learn(self, int64_t n, double rate) except? -1 nogil:
        """One step on the n rows in x; their mean loss."""
        cdef int64_t tree, n_kept = 0
        cdef double loss
        cdef float scale
        cdef skf_stepper how
        self.counts[0] = self.counts[0] + 1
        self.stepper(&how, rate)
        for tree in range(self.n_trees):
            self.kept[tree] = self.dropout == 0 or uniform(&self.random) >= self.dropout
            n_kept += self.kept[tree]
        if n_kept == 0:
            self.kept[below(&self.random, <int>self.n_trees)] = 1
        scale = <float>(1 / (1 - self.dropout))
        self.forward(n, scale)
        loss = self.compare(n)
        if self.n_patches > 1:
            memset(&self.kernels[0, 0], 0, self.patch_width * self.n_taps * sizeof(float))
        else:
            memset(&self.dz[0, 0], 0, n * self.width * sizeof(float))
        if self.linear:
            self.pull_head(n)
        for tree in range(self.n_trees):
            if self.kept[tree]:
                self.learn_tree(tree, n, scale, &how)
        if self.linear:
            skf_hinge_step(
                &how, &self.head[0, 0], self.answer_width, &self.head_mean[0, 0],
                &self.head_power[0, 0], self.answer_width, &self.head_gradient[0, 0], NULL,
                self.n_trees, self.answer_width
            )
        if self.linear_width:
            self.pull_directions(n)
            skf_hinge_step(
                &how, &self.direction[0, 0], self.patch_width, &self.direction_mean[0, 0],
                &self.direction_power[0, 0], self.patch_width, &self.gradient[0, 0], NULL,
                self.n_taps, self.patch_width
            )
            self.remember(n)
        return loss

    cdef void pull_directions(self, int64_t n) noexcept nogil:
        """Gradient of the learned directions."""
        cdef int64_t k, t
        if self.n_patches > 1:
            for t in range(self.n_taps):
                for k in range(self.patch_width):
                    self.gradient[t, k] = self.kernels[k, t]
            return
        skf_scale_columns(&self.dz[0, 0], n, self.linear_width, self.width, &self.unit[0])
        skf_multiply(
            &self.patches[0, 0], 1, self.n_taps, self.n_taps, n, &self.dz[0, 0], self.width,
            self.patch_width, &self.gradient[0, 0], self.patch_width
        )

    cdef int forward(self, int64_t n, float scale) except -1 nogil:
        """Answers of the kept trees to the n rows in x, and the sums of their features."""
        cdef int64_t start = 0, tree, n_rows
        self.clear(n)
        memset(&self.sum[0], 0, self.width * sizeof(float))
        memset(&self.square[0], 0, self.width * sizeof(float))
        while start < n:
            n_rows = min(self.block, n - start)
            self.project(start, n_rows)
            self.standardise(n_rows)
            for tree in range(self.n_trees):
                if self.kept[tree]:
                    self.walk(tree, start, n_rows)
                    self.settle(tree, start, n_rows)
                    self.answer(tree, start, n_rows, scale)
            start += n_rows
        self.combine(n)
        return 0

    cdef void stepper(self, skf_stepper* how, double rate) noexcept nogil:
        cdef int64_t t = self.counts[0]
        cdef double first = 0.9 ** t, second = 0.999 ** t
        how.kind = self.optimizer
        how.rate = <float>rate
        how.decay = <float>(rate * self.decay)
        how.momentum = <float>self.momentum
        how.first = <float>0.1
        how.second = <float>0.001
        how.unbias_first = <float>(1 / (1 - first))
        how.unbias_second = <float>(1 / (1 - second))

    cdef double compare(self, int64_t n) noexcept nogil:
        """Mean loss of the answers, and its derivatives by them."""
        cdef int64_t i, k
        cdef double total = 0
        for i in range(n):
            for k in range(self.n_outputs):
                self.raw[k] = self.out[i, k]
            total += self.loss.row(&self.raw[0], &self.target[self.rows[i], 0], &self.slopes[0])
            for k in range(self.n_outputs):
                self.g[i, k] = <float>(self.slopes[k] / n)
        return total / n

    cdef void learn_tree(
        self, int64_t tree, int64_t n, float scale, const skf_stepper* how
    ) noexcept nogil:
        """Move the leaves and tests of a tree that the batch came by; add to dz."""
        cdef int64_t i, n_used
        cdef int32_t* test = &self.test[tree, 0]
        cdef skf_test* tests = <skf_test*>&self.tests[tree, 0, 0]
        cdef skf_stepper plain = how[0]
        n_used = self.take_slots(&self.leaf[tree, 0], n)
        memset(&self.sums[0, 0], 0, n_used * self.vector * sizeof(float))
        skf_hinge_gradient(
            &self.value[0, 0, 0], 3 * self.vector, &self.leaf[tree, 0], &self.margin[tree, 0],
            &self.pulls[tree, 0] if self.linear else &self.g[0, 0], &self.slot[0], n, self.vector,
            scale, &self.slope[0], &self.sums[0, 0]
        )
        skf_hinge_step(
            how, &self.value[0, 0, 0], 3 * self.vector, &self.value[0, 1, 0],
            &self.value[0, 2, 0], 3 * self.vector, &self.sums[0, 0], &self.used[0], n_used,
            self.vector
        )
        n_used = self.take_slots(test, n)
        memset(&self.pull[0], 0, n_used * sizeof(float))
        for i in range(n):
            self.pull[self.slot[i]] -= self.slope[i]
        if self.n_patches > 1:
            # Of thousands of features of a row, few have a gradient.
            skf_kernel_gradient(
                tests, test, &self.slope[0], n, &self.patches[0, 0], self.n_patches, self.n_taps,
                self.patch_width, &self.unit[0], &self.kernels[0, 0]
            )
        else:
            for i in range(n):
                self.dz[i, tests[test[i]].feature] += self.slope[i]
        plain.decay = 0
        skf_hinge_step(
            &plain, &tests[0].threshold, 2, &self.tests_mean[tree, 0], &self.tests_power[tree, 0],
            1, &self.pull[0], &self.used[0], n_used, 1
        )

    cdef int64_t take_slots(self, const int32_t* item, int64_t n) noexcept nogil:
        """Places for the gradients of leaves or tests: one for all rows that came by the same."""
        cdef int64_t i, n_used = 0
        cdef int32_t place
        cdef bint fresh
        for i in range(n):  # without branches, which nobody could foretell
            place = self.slot_of[item[i]]
            fresh = place < 0
            place = <int32_t>n_used if fresh else place
            self.slot_of[item[i]] = self.slot[i] = place
            self.used[place] = item[i]
            n_used += fresh
        for i in range(n_used):
            self.slot_of[self.used[i]] = -1
        return n_used

    cdef bint poll(self) except -1 nogil:
        """True where training shall end; now and then lets a signal handler raise."""
        if self.stop[0]:
            return True
        if self.work > POLL:
            self.work = 0
            with gil:
                PyErr_CheckSignals()
        return False
