"""Linear functions of boosted trees: least squares in every leaf, or on all features at the start.

The regressors z_1 .. z_D of a leaf are the projections on the directions of the splits above it.
With the gradients g_i and curvatures h_i of a loss at the current predictions, for one output, the
function b + c . z of a leaf minimises

    sum_i g_i (b + c . z_i) + h_i (b + c . z_i)^2 / 2  +  l2 b^2 / 2  +  penalty |s c|^2 / 2

over its rows i, where b is the response at the mean of z, and s^2 are the variances of z in the
leaf, plus a share of the variances in all rows. Without this share, a regressor that hardly varies
in the leaf could have a large coefficient, and new rows an extreme response. The solution takes
the sums of h, g, h z, g z and h z z^T, and a Cholesky decomposition for each output.
"""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

import numpy as np

from ..predict.trees cimport Slopes, add_slopes

cdef extern from "boosting/linear.h" nogil:
    cdef enum:
        MOST "SKF_MOST"      # largest number of regressors of a leaf, from the nearest splits
        LANES "SKF_LANES_OF_LEAF"
    ctypedef struct Tree "skf_splits":
        int32_t n_features
        const int32_t* direction
        const int64_t* start
        const int32_t* feature
        const float* weight
    ctypedef struct Sums "skf_leaf_sums":
        double h[LANES]
        double g[LANES]
        double hzz[MOST][LANES]
    ctypedef struct Terms "skf_terms_of_split":
        pass
    Terms skf_terms_of(const Tree*, int32_t)
    void skf_add_products(
        const Terms*, int64_t, const float*, const int32_t*, const int32_t*, int64_t, const float*,
        const float*, int64_t, const int32_t*, Sums*
    )


cdef class LeafRegression:
    """Fits the linear functions in the leaves of trees.

    X : rows, float32; penalty : for coefficients of standardised regressors; rows_per_regressor :
    a leaf has at most one regressor for so many rows; unit : deviations of the columns of X;
    share : of the variance in all rows, see above.
    """

    cdef const float[:, ::1] X
    cdef double penalty, share
    cdef const float[::1] unit
    cdef int64_t rows_per_regressor

    def __init__(self, X, double penalty, int64_t rows_per_regressor, unit, double share):
        self.X, self.penalty, self.rows_per_regressor = X, penalty, rows_per_regressor
        self.unit, self.share = unit, share

    def fit(
        self, const int32_t[::1] child, const int32_t[::1] direction,
        const int64_t[::1] start, const int32_t[::1] feature, const float[::1] weight,
        const int32_t[::1] leaf, const int32_t[::1] rows,
        const float[:, ::1] gradient, const float[:, ::1] curvature, double l2, double factor
    ):
        """Fit the functions of one tree, times `factor`.

        child, direction : arrays from `TreeGrower.finish`; start, feature, weight : from
        `TreeGrower.terms`; leaf : leaf of every row; rows : training rows; gradient, curvature :
        (n_rows, n_outputs), of all rows.

        Return the constants, float64 of shape (n_leaves, n_outputs), and the arrays `slope_start`,
        `slope_feature` and `slope` of a `Forest`.
        """
        cdef int64_t n_leaves = (child.shape[0] + 1) // 2, K = gradient.shape[1], own, k
        cdef int64_t n_slopes = 0
        cdef Tree view
        memset(&view, 0, sizeof(Tree))
        view.n_features = <int32_t>self.X.shape[1]
        if direction.shape[0]:
            view.direction, view.start = &direction[0], &start[0]
        if feature.shape[0]:
            view.feature, view.weight = &feature[0], &weight[0]
        found = np.zeros((n_leaves, K))
        # Regressors of every leaf, -1 for none; they come first in their rows.
        cdef int32_t[:, ::1] regressor = np.full((n_leaves, MOST), -1, dtype=np.int32)
        cdef double[:, :, ::1] coefficient = np.zeros((n_leaves, K, MOST))
        cdef double[:, ::1] value = found
        cdef uint8_t[::1] memory = np.zeros(n_leaves * K * sizeof(Sums), dtype=np.uint8)
        cdef Sums* sums = <Sums*>&memory[0]
        cdef uint8_t[::1] of_splits = np.empty(n_leaves * sizeof(Terms), dtype=np.uint8)
        cdef Terms* terms = <Terms*>&of_splits[0]
        cdef int64_t[::1] n_rows = np.zeros(n_leaves, dtype=np.int64)
        cdef int32_t[::1] parent = np.full(child.shape[0], -1, dtype=np.int32)
        slope_start = np.zeros(n_leaves + 1, dtype=np.int64)
        cdef int64_t[::1] slope_starts = slope_start
        with nogil:
            for own in range(rows.shape[0]):
                n_rows[leaf[rows[own]]] += 1
            for own in range(direction.shape[0]):
                terms[own] = skf_terms_of(&view, <int32_t>own)
            self.find_regressors(&view, child, parent, n_rows, regressor)
            if rows.shape[0]:
                skf_add_products(
                    terms, view.n_features, &self.X[0, 0], &leaf[0], &rows[0], rows.shape[0],
                    &gradient[0, 0], &curvature[0, 0], K, &regressor[0, 0], sums
                )
            for own in range(n_leaves):
                for k in range(K):
                    value[own, k] = factor * self.solve(
                        &view, &sums[own * K + k], &regressor[own, 0], l2, &coefficient[own, k, 0]
                    )
                n_slopes += self.n_slopes_of(&view, &regressor[own, 0])
                slope_starts[own + 1] = n_slopes
        slope_feature = np.empty(n_slopes, dtype=np.int32)
        slope = np.empty((n_slopes, K), dtype=np.float32)
        if n_slopes:
            self.write_slopes(&view, regressor, coefficient, factor, slope_feature, slope)
        return found, slope_start, slope_feature, slope

    cdef void find_regressors(
        self, const Tree* tree, const int32_t[::1] child, int32_t[::1] parent,
        const int64_t[::1] n_rows, int32_t[:, ::1] regressor
    ) noexcept nogil:
        """Find the splits above each leaf, from the nearest, each direction once."""
        cdef int64_t node, leaf = 0, most
        cdef int32_t above, split, n, other
        cdef bint is_new
        for node in range(child.shape[0]):
            if child[node] >= 0:
                parent[child[node]] = parent[child[node] + 1] = <int32_t>node
        for node in range(child.shape[0]):
            if child[node] >= 0:
                continue
            most = min(<int64_t>MOST, n_rows[leaf] // self.rows_per_regressor)
            above, n = parent[node], 0
            while above >= 0 and n < most:
                split = (child[above] - 1) // 2  # nodes are numbered in pairs, after the root
                is_new = True
                for other in range(n):
                    if tree.direction[regressor[leaf, other]] == tree.direction[split]:
                        is_new = False
                if is_new:
                    regressor[leaf, n] = split
                    n += 1
                above = parent[above]
            leaf += 1

    cdef double variance_of(self, const Tree* tree, int32_t split) noexcept nogil:
        """Return the variance of a projection in all rows, as if features were uncorrelated."""
        cdef int32_t row = tree.direction[split] - tree.n_features
        cdef int64_t t
        cdef double total = 0
        if row < 0:
            return <double>self.unit[tree.direction[split]] ** 2
        for t in range(tree.start[row], tree.start[row + 1]):
            total += (<double>tree.weight[t] * self.unit[tree.feature[t]]) ** 2
        return total

    cdef double solve(
        self, const Tree* tree, const Sums* sums, const int32_t* regressor, double l2,
        double* coefficient
    ) noexcept nogil:
        """Return the constant of a leaf for one output; write the coefficients of regressors."""
        cdef double mean[MOST]
        cdef double deviation[MOST]
        cdef double L[MOST][MOST]         # lower triangle
        cdef int place[MOST]
        cdef double total, variance
        cdef int n = 0, d, e, f
        cdef double h = sums.h[MOST], g = sums.g[MOST]
        cdef double constant = -g / (h + l2) if h + l2 > 0 else 0
        for d in range(MOST):
            if regressor[d] < 0 or not h > 0:
                break
            total = sums.h[d] / h
            variance = sums.hzz[d][d] - sums.h[d] * total
            # A regressor that hardly varies in the leaf has no coefficient.
            if variance > 1e-9 * sums.hzz[d][d]:
                place[n], mean[n], deviation[n] = d, total, sqrt(variance / h)
                n += 1
        for d in range(n):
            for e in range(d + 1):
                total = sums.hzz[place[d]][place[e]] - sums.h[place[d]] * mean[e]
                total = total / deviation[d] / deviation[e]
                if d == e:
                    variance = self.variance_of(tree, regressor[place[d]])
                    total += self.penalty * (1 + self.share * variance / deviation[d] ** 2)
                for f in range(e):
                    total -= L[d][f] * L[e][f]
                L[d][e] = sqrt(total) if d == e else total / L[e][e]
        for d in range(n):
            total = (g * mean[d] - sums.g[place[d]]) / deviation[d]
            for e in range(d):
                total -= L[d][e] * coefficient[place[e]]
            coefficient[place[d]] = total / L[d][d]
        for d in range(n - 1, -1, -1):
            total = coefficient[place[d]]
            for e in range(d + 1, n):
                total -= L[e][d] * coefficient[place[e]]
            coefficient[place[d]] = total / L[d][d]
        for d in range(n):
            coefficient[place[d]] /= deviation[d]
            constant -= coefficient[place[d]] * mean[d]
        return constant

    cdef int64_t n_slopes_of(self, const Tree* tree, const int32_t* regressor) noexcept nogil:
        """Return the number of terms of the regressors of a leaf."""
        cdef int64_t n = 0
        cdef int32_t d, row
        for d in range(MOST):
            if regressor[d] < 0:
                break
            row = tree.direction[regressor[d]] - tree.n_features
            n += 1 if row < 0 else tree.start[row + 1] - tree.start[row]
        return n

    cdef void write_slopes(
        self, const Tree* tree, const int32_t[:, ::1] regressor,
        const double[:, :, ::1] coefficient, double factor, int32_t[::1] feature,
        float[:, ::1] slope
    ) noexcept:
        """Write the slopes along features, from the coefficients of the regressors."""
        cdef int64_t own, k, d, t, at = 0, first, end
        cdef int32_t row
        cdef double weight
        for own in range(regressor.shape[0]):
            for d in range(MOST):
                if regressor[own, d] < 0:
                    break
                row = tree.direction[regressor[own, d]] - tree.n_features
                first, end = 0, 1
                if row >= 0:
                    first, end = tree.start[row], tree.start[row + 1]
                for t in range(first, end):
                    weight = factor if row < 0 else factor * tree.weight[t]
                    feature[at] = row + tree.n_features if row < 0 else tree.feature[t]
                    for k in range(slope.shape[1]):
                        slope[at, k] = <float>(coefficient[own, k, d] * weight)
                    at += 1


def newton_step(
    const float[:, ::1] X, const int32_t[::1] rows, const double[::1] center,
    const double[::1] unit, const float[::1] gradient, const float[::1] curvature,
    double penalty, const double[::1] at
):
    """Return a step of Newton's method for a linear function of all features, for one output.

    With z = (x - center) / unit, the function b + c . z has the coefficients `at`. The step
    minimises the second-order expansion of the loss on some rows, plus penalty |c|^2 / 2.

    X : float32; rows : training rows; gradient, curvature : of all rows; at : (n_features + 1,)
    coefficients, the constant last. The step has the same shape.
    """
    cdef int64_t p = X.shape[1], n = p + 1, row, i, j, f
    found = np.zeros(n)
    cdef double[::1] step = found, z = np.ones(n)
    cdef double[:, ::1] L = np.zeros((n, n))  # the lower half
    cdef double total, h, g
    with nogil:
        for row in range(rows.shape[0]):
            g, h = gradient[rows[row]], curvature[rows[row]]
            for i in range(p):
                z[i] = (X[rows[row], i] - center[i]) / unit[i]
            for i in range(n):
                step[i] -= g * z[i]
                total = h * z[i]
                for j in range(i + 1):
                    L[i, j] += total * z[j]
        # Without this lower limit, the constant of rows without curvature would be infinite.
        L[p, p] += 1e-9 * (1 + L[p, p])
        for i in range(p):
            L[i, i] += penalty
            step[i] -= penalty * at[i]
        for i in range(n):
            for j in range(i + 1):
                total = L[i, j]
                for f in range(j):
                    total -= L[i, f] * L[j, f]
                L[i, j] = sqrt(total) if i == j else total / L[j, j]
        for i in range(n):
            total = step[i]
            for f in range(i):
                total -= L[i, f] * step[f]
            step[i] = total / L[i, i]
        for i in range(n - 1, -1, -1):
            total = step[i]
            for f in range(i + 1, n):
                total -= L[f, i] * step[f]
            step[i] = total / L[i, i]
    return found


def add_linear(
    const float[:, ::1] X, const int32_t[::1] leaf, const int64_t[::1] slope_start,
    const int32_t[::1] slope_feature, const float[:, ::1] slope, double[:, ::1] out,
    int64_t first=0, int64_t last=-1
):
    """out += the linear function of the leaf of each of the rows first .. last - 1, or of all.

    slope_start, slope_feature, slope : arrays of a Forest.
    """
    cdef Slopes slopes
    cdef int64_t i
    if slope_feature.shape[0] == 0:
        return
    slopes.start, slopes.feature, slopes.slope = (
        &slope_start[0], &slope_feature[0], &slope[0, 0]
    )
    slopes.n_outputs = slope.shape[1]
    with nogil:
        for i in range(first, X.shape[0] if last < 0 else last):
            add_slopes(&slopes, leaf[i], &X[i, 0], &out[i, 0])
