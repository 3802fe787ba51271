"""Linear leaves of boosted trees: sums that least squares needs, and linear functions of rows.

The regressors z_1 .. z_D of a leaf are the projections on the directions of the splits above it.
With the gradients g_i and curvatures h_i of a loss at the current predictions, for one output,

    minimise  sum_i g_i (b + c . z_i) + h_i (b + c . z_i)^2 / 2  +  penalties

over the rows i of the leaf takes the sums of h, g, h z, g z and h z z^T, which are added up here.
"""

from libc.stdint cimport int32_t, int64_t

import numpy as np

from .route cimport Slopes, add_slopes


cdef enum:
    MOST = 8             # regressors of a leaf


def regression_sums(
    const float[:, ::1] X, const int32_t[::1] leaf, const int32_t[::1] rows,
    const float[:, ::1] gradient, const float[:, ::1] curvature, const int32_t[:, ::1] regressor,
    const int64_t[::1] term_start, const int32_t[::1] term_feature, const float[::1] term_weight
):
    """Sums over the rows of each leaf.

    leaf : leaf of every row; rows : those that count; regressor : (n_leaves, D), numbers of the
    directions whose terms follow, -1 for none; they come first in their rows.

    Returns h and g (n_leaves, n_outputs), h z and g z (n_leaves, n_outputs, D), and h z z^T
    (n_leaves, n_outputs, D, D).
    """
    cdef int64_t n_leaves = regressor.shape[0], D = regressor.shape[1], K = gradient.shape[1]
    cdef int64_t at, i, k, d, e, t, n
    cdef int32_t own
    cdef double g, h, total
    cdef double z[MOST]
    if D > MOST:
        raise ValueError(f"at most {MOST} regressors are supported")
    found = (
        np.zeros((n_leaves, K)), np.zeros((n_leaves, K)), np.zeros((n_leaves, K, D)),
        np.zeros((n_leaves, K, D)), np.zeros((n_leaves, K, D, D))
    )
    cdef double[:, ::1] sum_h = found[0]
    cdef double[:, ::1] sum_g = found[1]
    cdef double[:, :, ::1] sum_hz = found[2]
    cdef double[:, :, ::1] sum_gz = found[3]
    cdef double[:, :, :, ::1] sum_hzz = found[4]
    with nogil:
        for at in range(rows.shape[0]):
            i = rows[at]
            own = leaf[i]
            n = 0
            while n < D and regressor[own, n] >= 0:
                total = 0
                for t in range(term_start[regressor[own, n]], term_start[regressor[own, n] + 1]):
                    total += <double>term_weight[t] * X[i, term_feature[t]]
                z[n] = total
                n += 1
            for k in range(K):
                g, h = gradient[i, k], curvature[i, k]
                sum_h[own, k] += h
                sum_g[own, k] += g
                for d in range(n):
                    sum_hz[own, k, d] += h * z[d]
                    sum_gz[own, k, d] += g * z[d]
                    for e in range(d + 1):
                        sum_hzz[own, k, d, e] += h * z[d] * z[e]
            # The other half is that of a symmetric matrix; it is filled in at the end.
        for own in range(n_leaves):
            for k in range(K):
                for d in range(D):
                    for e in range(d):
                        sum_hzz[own, k, e, d] = sum_hzz[own, k, d, e]
    return found


def add_linear(
    const float[:, ::1] X, const int32_t[::1] leaf, const int64_t[::1] slope_start,
    const int32_t[::1] slope_feature, const float[:, ::1] slope, double[:, ::1] out
):
    """out += the linear function of the leaf of each row, as the arrays of a Forest have it."""
    cdef Slopes slopes
    cdef int64_t i
    if slope_feature.shape[0] == 0:
        return
    slopes.start, slopes.feature, slopes.slope = (
        &slope_start[0], &slope_feature[0], &slope[0, 0]
    )
    slopes.n_outputs = slope.shape[1]
    with nogil:
        for i in range(X.shape[0]):
            add_slopes(&slopes, leaf[i], &X[i, 0], &out[i, 0])
