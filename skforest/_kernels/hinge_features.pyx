"""Features of a random hinge forest: learned inner products, and columns of the table.

Lay et al. 2018, section 3. A learned feature is an inner product with the whole row or with the
patch under one receptive field, the same weights at each of them (a convolution):

    u_f = w_f . x,        z_f = (u_f - mean_f) / sqrt(variance_f + 1e-7)

Mean and variance are running statistics of batches: the mean over the first 100 batches, then an
exponential average in which a batch counts 1 / 100. As in the paper, they are constants to the
gradient: dL/dw_f = sum over rows of dL/dz_f x / sqrt(variance_f + 1e-7). Features that are columns
of the table have statistics that never change.
"""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

import numpy as np

cdef extern from "matmul.h" nogil:
    enum:
        SKF_TILE

    void skf_multiply(
        const float*, int64_t, int64_t, int64_t, int64_t, const float*, int64_t, int64_t, float*,
        int64_t
    )

cdef extern from "hinge.h" nogil:
    double SKF_LEAST_VARIANCE, SKF_LONGEST

    void skf_standardise(float*, int64_t, int64_t, const float*, const float*, float*, float*)
    void skf_scale_columns(float*, int64_t, int64_t, int64_t, const float*)
    void skf_kernel_gradient(
        const Test*, const int32_t*, const float*, int64_t, const float*, int64_t, int64_t,
        int64_t, const float*, float*
    )
    void skf_hinge_step(
        const Stepper*, float*, int64_t, float*, float*, int64_t, const float*, const int32_t*,
        int64_t, int64_t
    )

cdef enum:
    LEAST_BLOCK = 16           # rows of z, at least
    CACHE = 1 << 19            # bytes of z that stay in the cache while trees read them


cpdef int64_t padded(int64_t n) noexcept nogil:
    """Floats that n features take in a row of features: a multiple of the tile of a product."""
    return (n + SKF_TILE - 1) // SKF_TILE * SKF_TILE


cdef class HingeFeatures:
    """The features of one batch of rows.

    Parameters
    ----------
    arrays : dict of str to ndarray
        "direction", "direction_mean", "direction_power", "receptive_fields", "mean", "variance"
        and "counts", as in `HingeTrainer`. They are changed in place.
    n_columns : int
        Of the table.
    batch_size, n_rows : int
        Rows of a training step; largest number of rows that are loaded.
    """

    def __init__(self, dict arrays, int64_t n_columns, int64_t batch_size, int64_t n_rows):
        self.direction = arrays["direction"]
        self.direction_mean = arrays["direction_mean"]
        self.direction_power = arrays["direction_power"]
        self.receptive_fields = arrays["receptive_fields"]
        self.mean = arrays["mean"]
        self.variance = arrays["variance"]
        self.counts = arrays["counts"]
        self.n_columns = n_columns
        self.batch_size = batch_size
        self.n_patches = self.receptive_fields.shape[0]
        self.n_taps = self.direction.shape[0]
        self.patch_width = self.direction.shape[1]
        self.linear_width = self.n_patches * self.patch_width
        self.width = self.mean.shape[0]
        self.is_convolution = self.n_patches > 1 or self.n_taps != n_columns
        self.x = np.zeros((n_rows, n_columns), dtype=np.float32)
        # A row that is its own only patch is not copied.
        self.patches = self.x
        if self.is_convolution:
            self.patches = np.zeros((n_rows * self.n_patches, self.n_taps), dtype=np.float32)
        block = max(<int64_t>LEAST_BLOCK, CACHE // (4 * self.width) // 8 * 8)
        self.block = min(n_rows, block)
        self.z = np.zeros((self.block, self.width), dtype=np.float32)
        n_slopes = 1 if self.is_convolution else n_rows
        self.dz = np.zeros((n_slopes, self.width), dtype=np.float32)
        self.kernels = np.zeros((self.patch_width, self.n_taps), dtype=np.float32)
        self.gradient = np.zeros((self.n_taps, self.patch_width), dtype=np.float32)
        self.centre = np.zeros(self.width, dtype=np.float32)
        self.unit = np.zeros(self.width, dtype=np.float32)
        self.sum = np.zeros(self.width, dtype=np.float32)
        self.square = np.zeros(self.width, dtype=np.float32)
        self.set_units()

    # --------------------------------------------------------------------------------- statistics

    cdef void set_units(self) noexcept nogil:
        """Mean and reciprocal deviation of each feature in float32, as the loops read them."""
        cdef int64_t f
        for f in range(self.width):
            self.centre[f] = <float>self.mean[f]
            self.unit[f] = <float>(1 / sqrt(self.variance[f] + SKF_LEAST_VARIANCE))
            if f >= self.linear_width:
                self.unit[f] = <float>(1 / sqrt(self.variance[f]))

    def reset_statistics(self, const float[:, ::1] u):
        """Mean and variance of given values of the learned features.

        Parameters
        ----------
        u : ndarray of shape (n_rows, linear_width), float32
        """
        cdef int64_t n_rows = u.shape[0]
        values = np.asarray(u)
        variance = values.var(axis=0, ddof=1, dtype=np.float64) if n_rows > 1 else 1
        np.asarray(self.mean)[:self.linear_width] = values.mean(axis=0, dtype=np.float64)
        np.asarray(self.variance)[:self.linear_width] = variance
        self.counts[1] = (n_rows + self.batch_size - 1) // self.batch_size
        self.set_units()

    cdef void clear_sums(self) noexcept nogil:
        """Before the first block of a batch that trains."""
        memset(&self.sum[0], 0, self.width * sizeof(float))
        memset(&self.square[0], 0, self.width * sizeof(float))

    cdef void update_statistics(self, int64_t n) noexcept nogil:
        """Running mean and variance, from the sums of the standardised features of a batch."""
        cdef int64_t f, seen = self.counts[1]
        cdef double mean, variance, deviation, old = <double>seen / (seen + 1)
        if n < 2:
            return
        old = min(old, SKF_LONGEST)
        for f in range(self.linear_width):
            # Sums of standardised features cancel less than those of the inner products.
            deviation = sqrt(self.variance[f] + SKF_LEAST_VARIANCE)
            mean = self.sum[f] / n
            variance = max((self.square[f] - n * mean * mean) / (n - 1), 0.0)
            mean = self.mean[f] + mean * deviation
            variance = variance * deviation * deviation
            self.mean[f] = old * self.mean[f] + (1 - old) * mean
            self.variance[f] = old * self.variance[f] + (1 - old) * variance
        self.counts[1] = seen + 1
        self.set_units()

    # -------------------------------------------------------------------------------- rows of z

    cdef void load(self, const float[:, ::1] table, int64_t start, int64_t n) noexcept nogil:
        """Standardised features of n <= block rows of a table."""
        memcpy(&self.x[0, 0], &table[start, 0], n * self.n_columns * sizeof(float))
        self.project(0, n)
        self.standardize(n)

    cdef void project(self, int64_t start, int64_t n) noexcept nogil:
        """z of the rows start .. start + n - 1 of x, before they are standardised."""
        cdef int64_t i, patch, t, first = start * self.n_patches
        if self.is_convolution:
            for i in range(n):
                for patch in range(self.n_patches):
                    for t in range(self.n_taps):
                        self.patches[first + i * self.n_patches + patch, t] = (
                            self.x[start + i, self.receptive_fields[patch, t]]
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

    cdef void standardize(self, int64_t n) noexcept nogil:
        skf_standardise(
            &self.z[0, 0], n, self.width, &self.centre[0], &self.unit[0], &self.sum[0],
            &self.square[0]
        )

    # ---------------------------------------------------------------------------------- gradients

    cdef void clear_gradient(self, int64_t n) noexcept nogil:
        if self.is_convolution:
            memset(&self.kernels[0, 0], 0, self.patch_width * self.n_taps * sizeof(float))
        else:
            memset(&self.dz[0, 0], 0, n * self.width * sizeof(float))

    cdef void add_gradient(
        self, const Test* tests, const int32_t* test, const float* slope, int64_t n
    ) noexcept nogil:
        """Add the derivatives of one tree by the features: of row i at test[i] only."""
        cdef int64_t i
        if self.is_convolution:
            # Few of the thousands of features of a row have a gradient: no dense product.
            skf_kernel_gradient(
                tests, test, slope, n, &self.patches[0, 0], self.n_patches, self.n_taps,
                self.patch_width, &self.unit[0], &self.kernels[0, 0]
            )
        else:
            for i in range(n):
                self.dz[i, tests[test[i]].feature] += slope[i]

    cdef void step(self, const Stepper* stepper, int64_t n) noexcept nogil:
        """Move the directions; then take the n rows of the batch into the statistics."""
        if self.linear_width == 0:
            return
        self.reduce_gradient(n)
        skf_hinge_step(
            stepper, &self.direction[0, 0], self.patch_width, &self.direction_mean[0, 0],
            &self.direction_power[0, 0], self.patch_width, &self.gradient[0, 0], NULL,
            self.n_taps, self.patch_width
        )
        self.update_statistics(n)

    cdef void reduce_gradient(self, int64_t n) noexcept nogil:
        """The gradient of the directions, summed over the rows."""
        cdef int64_t k, t
        if self.is_convolution:
            for t in range(self.n_taps):
                for k in range(self.patch_width):
                    self.gradient[t, k] = self.kernels[k, t]
            return
        skf_scale_columns(&self.dz[0, 0], n, self.linear_width, self.width, &self.unit[0])
        skf_multiply(
            &self.patches[0, 0], 1, self.n_taps, self.n_taps, n, &self.dz[0, 0], self.width,
            self.patch_width, &self.gradient[0, 0], self.patch_width
        )
