/* Loops of split search over a column: its range, its bins, and the score of a cut behind each bin.
 *
 * With L_k the sum of output k, or the weight of class k, left of a cut, and W_L the weight left of
 * it, the score of a cut is
 *
 *   sum_k L_k^2 / W_L + R_k^2 / W_R                                  (Gini impurity, squared error)
 *   sum_k L_k log L_k - W_L log W_L + sum_k R_k log R_k - W_R log W_R                     (entropy)
 *
 * and the best cut has the largest score.
 */
#ifndef SKFOREST_BINS_H
#define SKFOREST_BINS_H

#include "simd.h"

/* Smallest and largest of n >= 1 finite values. */
SKF_KERNEL(skf_range, (const float *value, int64_t n, float *low, float *high),
           (value, n, low, high))
{
    float lo = value[0], hi = value[0];
    SKF_SIMD(reduction(min : lo) reduction(max : hi))
    for (int64_t i = 0; i < n; i++) {
        lo = value[i] < lo ? value[i] : lo;
        hi = value[i] > hi ? value[i] : hi;
    }
    *low = lo;
    *high = hi;
}

/* Equal-width bin of every value, 0 .. n_bins - 1, monotone in the value. */
SKF_INLINE int skf_bin(float value, float low, float scale, int n_bins)
{
    float at = (value - low) * scale;
    at = at > 0 ? at : 0;
    at = at < (float)(n_bins - 1) ? at : (float)(n_bins - 1);
    return (int)at;
}

SKF_KERNEL(skf_bins,
           (const float *value, int64_t n, float low, float scale, int n_bins,
            int32_t *SKF_RESTRICT bin),
           (value, n, low, scale, n_bins, bin))
{
    for (int64_t i = 0; i < n; i++)
        bin[i] = skf_bin(value[i], low, scale, n_bins);
}

/* Bins shifted by the row's own base: the cell of a class-major histogram. */
SKF_KERNEL(skf_cells,
           (const float *value, int64_t n, float low, float scale, int n_bins, const int32_t *base,
            int32_t *SKF_RESTRICT cell),
           (value, n, low, scale, n_bins, base, cell))
{
    for (int64_t i = 0; i < n; i++)
        cell[i] = base[i] + skf_bin(value[i], low, scale, n_bins);
}

/* Prefix sums along the bins of every row of histogram[n_rows][n_bins], in place. */
SKF_KERNEL(skf_prefix, (double *histogram, int n_rows, int n_bins), (histogram, n_rows, n_bins))
{
    int k = 0;
    for (; k + 4 <= n_rows; k += 4) {
        double *a = histogram + (int64_t)k * n_bins, *b = a + n_bins, *c = b + n_bins,
               *d = c + n_bins;
        for (int j = 1; j < n_bins; j++) {
            a[j] += a[j - 1];
            b[j] += b[j - 1];
            c[j] += c[j - 1];
            d[j] += d[j - 1];
        }
    }
    for (; k < n_rows; k++) {
        double *a = histogram + (int64_t)k * n_bins;
        for (int j = 1; j < n_bins; j++)
            a[j] += a[j - 1];
    }
}

/* Weighted Gini and squared error are one criterion: largest sum_k L_k^2 / W_L + R_k^2 / W_R, where
 * L_k sums output k (or the weight of class k) left of the cut. `prefix` holds L_k for a cut after
 * each bin, `weight` W_L. The totals are the last prefixes themselves, so that an empty right side is
 * exactly 0. Cuts with an empty side score -infinity. */
SKF_KERNEL(skf_score_squares,
           (const double *prefix, const double *weight, int n_rows, int n_bins,
            double *SKF_RESTRICT left, double *SKF_RESTRICT score),
           (prefix, weight, n_rows, n_bins, left, score))
{
    const double total_weight = weight[n_bins - 1];
    for (int j = 0; j < n_bins; j++)
        left[j] = score[j] = 0;
    for (int k = 0; k < n_rows; k++) {
        const double *row = prefix + (int64_t)k * n_bins;
        const double all = row[n_bins - 1];
        for (int j = 0; j < n_bins; j++) {
            const double l = row[j], r = all - l;
            left[j] += l * l;
            score[j] += r * r;
        }
    }
    for (int j = 0; j < n_bins; j++) {
        const double wl = weight[j], wr = total_weight - wl;
        const int open = (wl > 0) & (wr > 0);
        const double value = left[j] / (open ? wl : 1) + score[j] / (open ? wr : 1);
        score[j] = open ? value : -INFINITY;
    }
}

/* x * log(x), 0 at 0. */
SKF_INLINE double skf_xlogx(double x)
{
    return x > 0 ? x * log(x) : 0;
}

/* Entropy: the weighted entropy of both sides is sum over sides of W log W - sum_k L_k log L_k;
 * the score is its negative. Same arguments as skf_score_squares. */
SKF_KERNEL(skf_score_entropy,
           (const double *prefix, const double *weight, int n_rows, int n_bins,
            double *SKF_RESTRICT left, double *SKF_RESTRICT score),
           (prefix, weight, n_rows, n_bins, left, score))
{
    const double total_weight = weight[n_bins - 1];
    (void)left;
    for (int j = 0; j < n_bins; j++)
        score[j] = 0;
    for (int k = 0; k < n_rows; k++) {
        const double *row = prefix + (int64_t)k * n_bins;
        const double all = row[n_bins - 1];
        for (int j = 0; j < n_bins; j++)
            score[j] += skf_xlogx(row[j]) + skf_xlogx(all - row[j]);
    }
    for (int j = 0; j < n_bins; j++) {
        const double wl = weight[j], wr = total_weight - wl;
        score[j] = (wl > 0) & (wr > 0) ? score[j] - skf_xlogx(wl) - skf_xlogx(wr) : -INFINITY;
    }
}

#endif
