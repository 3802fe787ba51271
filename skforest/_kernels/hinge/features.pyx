"""Features of random hinge forests, and the head after their trees; see trainer.pyx."""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

import numpy as np

from ..base.descent cimport SKF_TILE, skf_multiply
from ..base.row_reader cimport RowReader
from .margins cimport (
    SKF_MAX_MEMORY, SKF_MIN_VARIANCE, SKF_READS_COLUMNS, Stepper, Test, skf_hinge_step,
    skf_kernel_gradient, skf_scale_columns, skf_standardise, skf_transpose
)

# Chosen without a stored measurement; `python -m benchmarks.measure.hinge speed` shows the time of
# steps.
cdef enum:
    LEAST_BLOCK = 16           # smallest number of rows of z
    CACHE = 1 << 19            # bytes of z that stay in the cache while trees read them

MIN_SHARE = 0.01      # smallest variance of a feature in a bag, relative to that in all rows
CONSTANT = 1e-6       # a feature with a smaller share counts as constant in the bag


cpdef int64_t padded(int64_t n) noexcept nogil:
    """Return the length of a row of n features: a multiple of the tile of a product."""
    return (n + SKF_TILE - 1) // SKF_TILE * SKF_TILE


def columns_for(int64_t n_tests, int64_t width, int64_t n_rows):
    """Return memory for n_rows rows of `width` features by column: (width, stride), float32.

    It is (1, 0) where no columns are read, or if there are more features than tests, so that a
    copy would not pay. The stride is an odd multiple of the lines of the cache: otherwise, columns
    could fall into the same few sets of it.
    """
    if n_tests < width or not SKF_READS_COLUMNS:
        return np.zeros((1, 0), dtype=np.float32)
    return np.zeros((width, (n_rows + 15) // 32 * 32 + 16), dtype=np.float32)


cdef class HingeFeatures:
    """The features of a batch of at most n_rows rows; `arrays` as in `HingeTrainer`.

    `columns` is the transpose of z after `standardize`, or is empty (`columns_for`).
    """

    def __init__(self, dict arrays, int64_t n_columns, int64_t batch_size, int64_t n_rows):
        cdef int64_t f
        self.direction, self.receptive_fields = arrays["direction"], arrays["receptive_fields"]
        self.direction_mean = arrays["direction_mean"]
        self.direction_power = arrays["direction_power"]
        self.mean, self.variance = arrays["mean"], arrays["variance"]
        self.counts = arrays["counts"]
        self.n_columns = n_columns
        self.batch_size = batch_size
        self.n_patches = self.receptive_fields.shape[0]
        self.patch_size = self.direction.shape[0]
        self.patch_width = self.direction.shape[1]
        self.linear_width = self.n_patches * self.patch_width
        self.width = self.mean.shape[0]
        self.is_convolution = self.n_patches > 1
        self.copies_patches = self.is_convolution or self.patch_size != n_columns
        self.x = np.zeros((n_rows, n_columns), dtype=np.float32)
        # A row that is its only patch is not copied.
        self.patches = self.x
        if self.copies_patches:
            self.patches = np.zeros((n_rows * self.n_patches, self.patch_size), dtype=np.float32)
        block = max(<int64_t>LEAST_BLOCK, CACHE // (4 * self.width) // 8 * 8)
        self.block = min(n_rows, block)
        self.z = np.zeros((self.block, self.width), dtype=np.float32)
        self.columns = columns_for(arrays["tests"].size // 2, self.width, self.block)
        n_slopes = 1 if self.is_convolution else n_rows
        self.dz = np.zeros((n_slopes, self.width), dtype=np.float32)
        self.kernels = np.zeros((self.patch_width, self.patch_size), dtype=np.float32)
        self.gradient = np.zeros((self.patch_size, self.patch_width), dtype=np.float32)
        self.centre, self.unit = np.zeros((2, self.width), dtype=np.float32)
        self.sum, self.square = np.zeros((2, self.width), dtype=np.float32)
        self.least = arrays.setdefault("least", np.zeros(self.width))
        for f in range(self.linear_width, self.width):     # units of columns never change
            self.centre[f] = <float>self.mean[f]
            self.unit[f] = <float>(1 / sqrt(self.variance[f]))
        self.set_units()

    # --------------------------------------------------------------------------------- statistics

    cdef void set_units(self) noexcept nogil:
        """Set mean and reciprocal deviation of each feature in float32, for the loops."""
        cdef int64_t f
        for f in range(self.linear_width):
            self.centre[f] = <float>self.mean[f]
            self.unit[f] = <float>(1 / sqrt(self.variance[f] + SKF_MIN_VARIANCE))

    def reset_statistics(self, const float[:, ::1] u, const float[:, ::1] u_of_table):
        """Set mean and variance from values u of the learned features, (n_rows, linear_width).

        u_of_table : values of rows of the whole table, also those that the bag does not see. A
        variance is at least a share of theirs, or all of it if u is constant: otherwise, rows
        unlike the few of a bag would be far away.
        """
        cdef int64_t n_rows = u.shape[0]
        values = np.asarray(u)
        variance = values.var(axis=0, ddof=1, dtype=np.float64) if n_rows > 1 else 1
        least = np.asarray(u_of_table).var(axis=0, dtype=np.float64)
        least *= np.where(variance > CONSTANT * least, MIN_SHARE, 1.0)
        np.asarray(self.mean)[:self.linear_width] = values.mean(axis=0, dtype=np.float64)
        np.asarray(self.least)[:self.linear_width] = least
        np.asarray(self.variance)[:self.linear_width] = np.maximum(variance, least)
        self.counts[1] = (n_rows + self.batch_size - 1) // self.batch_size
        self.set_units()

    cdef void clear_sums(self) noexcept nogil:
        """Clear sums before the first block of a training batch."""
        memset(&self.sum[0], 0, self.width * sizeof(float))
        memset(&self.square[0], 0, self.width * sizeof(float))

    cdef void update_statistics(self, int64_t n) noexcept nogil:
        """Update running mean and variance from sums of standardised features of a batch."""
        cdef int64_t f, seen = self.counts[1]
        cdef double mean, variance, deviation, old = <double>seen / (seen + 1)
        if n < 2:
            return
        old = min(old, SKF_MAX_MEMORY)
        for f in range(self.linear_width):
            # Sums of standardised features cancel less than those of the inner products.
            deviation = sqrt(self.variance[f] + SKF_MIN_VARIANCE)
            mean = self.sum[f] / n
            variance = max((self.square[f] - n * mean * mean) / (n - 1), 0.0)
            mean = self.mean[f] + mean * deviation
            variance = variance * deviation * deviation
            self.mean[f] = old * self.mean[f] + (1 - old) * mean
            self.variance[f] = max(
                old * self.variance[f] + (1 - old) * variance, self.least[f]
            )
        self.counts[1] = seen + 1
        self.set_units()

    # -------------------------------------------------------------------------------- rows of z

    cdef void load(self, RowReader table, int64_t start, int64_t n) noexcept nogil:
        """Load the standardised features of n <= block rows of a table."""
        cdef int64_t i
        for i in range(n):
            table.copy(start + i, &self.x[i, 0])
        self.project(0, n)
        self.standardize(n)

    cdef void project(self, int64_t start, int64_t n) noexcept nogil:
        """Compute z of the rows start .. start + n - 1 of x, before standardisation."""
        cdef int64_t i, patch, t, first = start * self.n_patches
        if self.copies_patches:
            for i in range(n):
                for patch in range(self.n_patches):
                    for t in range(self.patch_size):
                        self.patches[first + i * self.n_patches + patch, t] = (
                            self.x[start + i, self.receptive_fields[patch, t]]
                        )
        if self.linear_width:
            skf_multiply(
                &self.patches[first, 0], self.patch_size, 1, n * self.n_patches, self.patch_size,
                &self.direction[0, 0], self.patch_width, self.patch_width, &self.z[0, 0],
                self.width // self.n_patches
            )
        if self.width > self.linear_width:
            for i in range(n):
                memcpy(
                    &self.z[i, self.linear_width], &self.x[start + i, 0],
                    self.n_columns * sizeof(float)
                )

    cdef void standardize(self, int64_t n) noexcept nogil:
        skf_standardise(
            &self.z[0, 0], n, self.width, &self.centre[0], &self.unit[0], &self.sum[0],
            &self.square[0]
        )
        if self.columns.shape[1]:
            skf_transpose(
                &self.z[0, 0], n, self.width, &self.columns[0, 0], self.columns.shape[1]
            )

    # ---------------------------------------------------------------------------------- gradients

    cdef void clear_gradient(self, int64_t n) noexcept nogil:
        if self.is_convolution:
            memset(&self.kernels[0, 0], 0, self.patch_width * self.patch_size * sizeof(float))
        else:
            memset(&self.dz[0, 0], 0, n * self.width * sizeof(float))

    cdef void add_gradient(
        self, const Test* tests, const int32_t* test, const float* slope, int64_t n
    ) noexcept nogil:
        """Add the derivatives of one tree by the features: of row i at test[i] only."""
        cdef int64_t i
        if self.is_convolution:
            # Few of thousands of features of a row have a gradient, so a dense product is slow.
            skf_kernel_gradient(
                tests, test, slope, n, &self.patches[0, 0], self.n_patches, self.patch_size,
                self.patch_width, &self.unit[0], &self.kernels[0, 0]
            )
        else:
            for i in range(n):
                self.dz[i, tests[test[i]].feature] = self.dz[i, tests[test[i]].feature] + slope[i]

    cdef void step(self, const Stepper* stepper, int64_t n) noexcept nogil:
        """Move the directions; then add the n rows of the batch to the statistics."""
        if self.linear_width == 0:
            return
        self.reduce_gradient(n)
        skf_hinge_step(
            stepper, &self.direction[0, 0], self.patch_width, &self.direction_mean[0, 0],
            &self.direction_power[0, 0], self.patch_width, &self.gradient[0, 0], NULL,
            self.patch_size, self.patch_width
        )
        self.update_statistics(n)

    cdef void reduce_gradient(self, int64_t n) noexcept nogil:
        """Add up the gradient of the directions over the rows."""
        cdef int64_t k, t
        if self.is_convolution:
            for t in range(self.patch_size):
                for k in range(self.patch_width):
                    self.gradient[t, k] = self.kernels[k, t]
            return
        skf_scale_columns(&self.dz[0, 0], n, self.linear_width, self.width, &self.unit[0])
        skf_multiply(
            &self.patches[0, 0], 1, self.patch_size, self.patch_size, n, &self.dz[0, 0],
            self.width, self.patch_width, &self.gradient[0, 0], self.patch_width
        )


cdef class HingeHead:
    """The head: a learned matrix H after the trees; `arrays` as in `HingeTrainer`."""

    def __init__(self, dict arrays, int64_t n_rows):
        self.weights = arrays["head"]
        self.weights_mean = arrays["head_mean"]
        self.weights_power = arrays["head_power"]
        self.n_trees = self.weights.shape[0]
        self.width = self.weights.shape[1]
        shape = 2, self.n_trees, padded(n_rows)
        self.responses, self.slopes = np.zeros(shape, dtype=np.float32)
        self.g_transposed = np.zeros((self.width, padded(n_rows)), dtype=np.float32)
        self.gradient = np.zeros((self.n_trees, self.width), dtype=np.float32)

    cdef void clear(self, int64_t n) noexcept nogil:
        """Set all responses to n rows to 0, also of trees that dropout omits."""
        cdef int64_t tree
        for tree in range(self.n_trees):
            memset(&self.responses[tree, 0], 0, n * sizeof(float))

    cdef void apply(self, float* out, int64_t n) noexcept nogil:
        """out : OUT, (n, width), the raw predictions."""
        skf_multiply(
            &self.responses[0, 0], 1, self.responses.shape[1], n, self.n_trees,
            &self.weights[0, 0], self.width, self.width, out, self.width
        )

    cdef void backpropagate(self, const float* g, int64_t n_outputs, int64_t n) noexcept nogil:
        """Compute derivatives by responses (`slopes`) and by H (`gradient`); g is (n, width)."""
        cdef int64_t i, k
        for i in range(n):
            for k in range(n_outputs):
                self.g_transposed[k, i] = g[i * self.width + k]
        skf_multiply(
            &self.weights[0, 0], self.width, 1, self.n_trees, n_outputs,
            &self.g_transposed[0, 0], self.g_transposed.shape[1], padded(n), &self.slopes[0, 0],
            self.slopes.shape[1]
        )
        skf_multiply(
            &self.responses[0, 0], self.responses.shape[1], 1, self.n_trees, n, g, self.width,
            self.width, &self.gradient[0, 0], self.width
        )

    cdef void step(self, const Stepper* stepper) noexcept nogil:
        skf_hinge_step(
            stepper, &self.weights[0, 0], self.width, &self.weights_mean[0, 0],
            &self.weights_power[0, 0], self.width, &self.gradient[0, 0], NULL, self.n_trees,
            self.width
        )
