"""The head of a random hinge forest: a learned matrix after the trees.

Trees have one number per leaf. With h the responses of the trees to a row, and g = dL/df,

    f = H^T h,        dL/dh = H g,        dL/dH = sum over rows of h g^T.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

import numpy as np

from .hinge_features cimport Stepper, padded

cdef extern from "matmul.h" nogil:
    void skf_multiply(
        const float*, int64_t, int64_t, int64_t, int64_t, const float*, int64_t, int64_t, float*,
        int64_t
    )

cdef extern from "hinge.h" nogil:
    void skf_hinge_step(
        const Stepper*, float*, int64_t, float*, float*, int64_t, const float*, const int32_t*,
        int64_t, int64_t
    )


cdef class HingeHead:
    """The matrix H.

    Parameters
    ----------
    arrays : dict of str to ndarray
        "head", "head_mean" and "head_power", as in `HingeTrainer`. They are changed in place.
    n_rows : int
        Of a batch, at most.
    """

    def __init__(self, dict arrays, int64_t n_rows):
        self.weights = arrays["head"]
        self.weights_mean = arrays["head_mean"]
        self.weights_power = arrays["head_power"]
        self.n_trees = self.weights.shape[0]
        self.width = self.weights.shape[1]
        self.responses = np.zeros((self.n_trees, padded(n_rows)), dtype=np.float32)
        self.slopes = np.zeros((self.n_trees, padded(n_rows)), dtype=np.float32)
        self.g_transposed = np.zeros((self.width, padded(n_rows)), dtype=np.float32)
        self.gradient = np.zeros((self.n_trees, self.width), dtype=np.float32)

    cdef void clear(self, int64_t n) noexcept nogil:
        """Set the responses to n rows to 0, also those of trees that dropout leaves out."""
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
        """Derivatives by the responses, in `slopes`, and by H, in `gradient`; g is (n, width)."""
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
