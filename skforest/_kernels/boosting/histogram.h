/* Sums of rows in histograms, gains of cuts, and partitions of rows.
 *
 * The terms of a row are its gradients, its curvature and 1, float32, followed by zeros up to a
 * stride of 2, 4 or 8, which is one vector. All loops add the rows in their order, so that a sum
 * has the same bits in every variant.
 */
#ifndef SKFOREST_HISTOGRAM_H
#define SKFOREST_HISTOGRAM_H

#include "../base/simd.h"

#define SKF_MOST_TERMS 8 /* of a row */

/* Compilers do not find these vectors by themselves. SKF_ADD_TO(sum, terms, W): sum += terms. */
#if defined(__GNUC__)
#define SKF_TERMS(W)                                                                             \
    typedef double skf_sum##W __attribute__((vector_size(8 * W), aligned(8), may_alias));        \
    typedef float skf_term##W __attribute__((vector_size(4 * W), aligned(4), may_alias));
SKF_TERMS(2)
SKF_TERMS(4)
SKF_TERMS(8)
#define SKF_ADD_TO(sum, terms, W)                                                                \
    *(skf_sum##W *)(sum) +=                                                                      \
        __builtin_convertvector(*(const skf_term##W *)(terms), skf_sum##W)
#else
#define SKF_ADD_TO(sum, terms, W)                                                                \
    for (int k_ = 0; k_ < W; k_++)                                                               \
    (sum)[k_] += (double)(terms)[k_]
#endif

/* Four columns at once: each waits for its last sum, which may be of the same bin, by itself. */
#define SKF_ADD_TERMS(W)                                                                         \
    if (n_columns == 4) {                                                                        \
        const uint8_t *a = code[0], *b = code[1], *c = code[2], *d = code[3];                    \
        double *to_a = sums[0], *to_b = sums[1], *to_c = sums[2], *to_d = sums[3];               \
        for (int64_t i = 0; i < n; i++) {                                                        \
            const int64_t r = row[i];                                                            \
            const float *own = terms + W * i;                                                    \
            SKF_ADD_TO(to_a + W * (int64_t)a[r], own, W);                                        \
            SKF_ADD_TO(to_b + W * (int64_t)b[r], own, W);                                        \
            SKF_ADD_TO(to_c + W * (int64_t)c[r], own, W);                                        \
            SKF_ADD_TO(to_d + W * (int64_t)d[r], own, W);                                        \
        }                                                                                        \
        return;                                                                                  \
    }                                                                                            \
    for (int k = 0; k < n_columns; k++)                                                          \
        for (int64_t i = 0; i < n; i++)                                                          \
            SKF_ADD_TO(sums[k] + W * (int64_t)code[k][row[i]], terms + W * i, W);

/* Adds terms[i] to the bin of row[i] in each of 1 to 4 columns. */
SKF_KERNEL(skf_sum_bins,
           (const float *terms, const uint8_t *const *code, int n_columns, const int32_t *row,
            int64_t n, int stride, double *const *sums),
           (terms, code, n_columns, row, n, stride, sums))
{
    if (stride == 2) {
        SKF_ADD_TERMS(2)
    } else if (stride == 4) {
        SKF_ADD_TERMS(4)
    } else {
        SKF_ADD_TERMS(8)
    }
}

/* Writes the terms of n rows: gradients, times the matrix `mix` of shape (n_outputs, n_search)
 * unless it is NULL; the mean curvature, unless all are 1 (count_at = n_search); and 1. Zeros fill
 * the rows of `mix` up to SKF_MOST_TERMS. */
SKF_KERNEL(skf_write_terms,
           (const float *SKF_RESTRICT gradient, const float *SKF_RESTRICT curvature,
            int64_t n_outputs, const float *SKF_RESTRICT mix, int n_search, int count_at,
            const int32_t *row, int64_t n, int stride, float *SKF_RESTRICT terms),
           (gradient, curvature, n_outputs, mix, n_search, count_at, row, n, stride, terms))
{
    for (int64_t i = 0; i < n; i++) {
        const float *g = gradient + row[i] * n_outputs, *h = curvature + row[i] * n_outputs;
        float *own = terms + row[i] * (int64_t)stride;
        float sum[SKF_MOST_TERMS] = {0}, part[4] = {0};
        if (mix == NULL) {
            for (int k = 0; k < n_search; k++)
                sum[k] = g[k];
        } else {
            for (int64_t k = 0; k < n_outputs; k++)
                for (int j = 0; j < SKF_MOST_TERMS; j++)
                    sum[j] += g[k] * mix[k * SKF_MOST_TERMS + j];
        }
        for (int64_t k = 0; k < n_outputs; k++)
            part[k % 4] += h[k];
        sum[n_search] = ((part[0] + part[1]) + (part[2] + part[3])) / (float)n_outputs;
        sum[count_at] = 1;
        memcpy(own, sum, (size_t)stride * sizeof(float));
    }
}

/* Copies the terms of some rows, one after the other. */
SKF_KERNEL(skf_gather_terms,
           (const float *SKF_RESTRICT table, const int32_t *row, int64_t n, int stride,
            float *SKF_RESTRICT out),
           (table, row, n, stride, out))
{
    if (stride == 2) {
        for (int64_t i = 0; i < n; i++)
            memcpy(out + 2 * i, table + 2 * (int64_t)row[i], 2 * sizeof(float));
    } else if (stride == 4) {
        for (int64_t i = 0; i < n; i++)
            memcpy(out + 4 * i, table + 4 * (int64_t)row[i], 4 * sizeof(float));
    } else {
        for (int64_t i = 0; i < n; i++)
            memcpy(out + 8 * i, table + 8 * (int64_t)row[i], 8 * sizeof(float));
    }
}

#define SKF_ADD_UP(W)                                                                            \
    {                                                                                            \
        double sum[W] = {0};                                                                     \
        for (int64_t i = 0; i < n; i++)                                                          \
            SKF_ADD_TO(sum, table + W * (int64_t)row[i], W);                                     \
        memcpy(total, sum, W * sizeof(double));                                                  \
    }

/* Adds up the terms of some rows. */
SKF_KERNEL(skf_add_up,
           (const float *SKF_RESTRICT table, const int32_t *row, int64_t n, int stride,
            double *SKF_RESTRICT total),
           (table, row, n, stride, total))
{
    if (stride == 2)
        SKF_ADD_UP(2)
    else if (stride == 4)
        SKF_ADD_UP(4)
    else
        SKF_ADD_UP(8)
}

/* left[k][b] = the sum of place k of the bins up to b */
#define SKF_LEFT_SUMS(W)                                                                         \
    {                                                                                            \
        double sum[W] = {0};                                                                     \
        for (int b = 0; b < n; b++)                                                              \
            for (int k = 0; k < W; k++)                                                          \
                left[k][b] = sum[k] += sums[b * W + k];                                          \
    }

/* gain[b] = the gain of a cut after bin b, from the squares of the gradients on both sides; -1 if the
 * cut is not allowed */
#define SKF_GAINS(left_square, right_square)                                                     \
    for (int b = 0; b < n; b++) {                                                                \
        const double right_h = all_h - left_h[b];                                                \
        const double least_h = (left_h[b] < right_h ? left_h[b] : right_h) + l2;                 \
        const int allowed =                                                                      \
            (left_n[b] >= least) & (all_n - left_n[b] >= least) & (least_h > small);             \
        const double value = (left_square) / (left_h[b] + l2) +                                  \
                             (right_square) / (right_h + l2) - square / (all_h + l2);            \
        gain[b] = allowed ? value : -1.0;                                                        \
    }

/* The cut of largest gain after one of n <= 254 bins, see `find_cut`; the gain is -1 if no cut is
 * allowed. at_h, at_n: places of the curvature and of the number of rows in a bin, after the
 * gradients. */
SKF_KERNEL(skf_best_cut,
           (const double *SKF_RESTRICT sums, int n, int stride, int at_h, int at_n,
            const double *total, double l2, double least, double *best_gain, int32_t *best_bin),
           (sums, n, stride, at_h, at_n, total, l2, least, best_gain, best_bin))
{
    double left[SKF_MOST_TERMS][264], right_square[264], gain[264]; /* in different cache sets */
    /* Lane i has the cuts i, i + 8, ...: the largest gain, and the bin of that cut minus i. */
    double square = 0, most[8], at[8];
    const double *left_h = left[at_h], *left_n = left[at_n];
    const double all_h = total[at_h], all_n = total[at_n], small = 1e-12 * (all_h + l2);
    if (stride == 2)
        SKF_LEFT_SUMS(2)
    else if (stride == 4)
        SKF_LEFT_SUMS(4)
    else
        SKF_LEFT_SUMS(8)
    for (int k = 0; k < at_h; k++)
        square += total[k] * total[k];
    if (at_h == 1) {
        const double *left_g = left[0], all_g = total[0];
        SKF_GAINS(left_g[b] * left_g[b], (all_g - left_g[b]) * (all_g - left_g[b]));
    } else {
        for (int b = 0; b < n; b++)
            gain[b] = right_square[b] = 0;
        for (int k = 0; k < at_h; k++)
            for (int b = 0; b < n; b++) {
                const double right = total[k] - left[k][b];
                gain[b] += left[k][b] * left[k][b];
                right_square[b] += right * right;
            }
        SKF_GAINS(gain[b], right_square[b]);
    }
    for (int i = 0; i < 8; i++) {
        most[i] = gain[n + i] = -1;
        at[i] = 0;
    }
    for (int b = 0; b < n; b += 8)
        for (int i = 0; i < 8; i++) {
            const int is_more = gain[b + i] > most[i];
            most[i] = is_more ? gain[b + i] : most[i];
            at[i] = is_more ? (double)b : at[i];
        }
    *best_gain = -1;
    *best_bin = 0;
    for (int i = 0; i < 8; i++) {
        const int32_t own = (int32_t)at[i] + i;
        if (most[i] > *best_gain || (most[i] == *best_gain && own < *best_bin)) {
            *best_gain = most[i];
            *best_bin = own;
        }
    }
}

/* Routes n rows by the bins of a column: 1 if the bin of a row is above `bin`. Rows in the bins
 * first .. first + span - 1 are written to `open`, by position. Returns their number. */
SKF_UNUSED static int64_t skf_route_bins(const uint8_t *code, const int32_t *row, int64_t n,
                                         int bin, unsigned first, unsigned span,
                                         uint8_t *SKF_RESTRICT is_above,
                                         int32_t *SKF_RESTRICT open)
{
    int64_t n_open = 0;
    for (int64_t i = 0; i < n; i++) {
        const unsigned own = code[row[i]];
        is_above[i] = (int)own > bin;
        open[n_open] = (int32_t)i;
        n_open += own - first < span;
    }
    return n_open;
}

/* Number of set flags. */
SKF_KERNEL(skf_count_flags, (const uint8_t *flag, int64_t n, int64_t *count), (flag, n, count))
{
    int64_t total = 0;
    for (int64_t i = 0; i < n; i += 128) {
        const int64_t end = n - i < 128 ? n : i + 128;
        uint8_t some = 0; /* at most 128 */
        for (int64_t j = i; j < end; j++)
            some += flag[j];
        total += some;
    }
    *count = total;
}

/* Writes rows without a flag to out[low ..], the others to out[high ..], in their order. */
SKF_UNUSED static void skf_place(const int32_t *SKF_RESTRICT row, const uint8_t *flag, int64_t n,
                                 int64_t low, int64_t high, int32_t *SKF_RESTRICT out)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t right = flag[i];
        out[low ^ ((low ^ high) & -right)] = row[i];
        low += 1 - right;
        high += right;
    }
}

#endif
