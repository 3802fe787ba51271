/* Sorting and binning a column of projections, and the score of a cut behind each bin.
 *
 * With L_k the sum of output k, or the weight of class k, left of a cut, and W_L the weight left of
 * it, the score of a cut is
 *
 *   sum_k L_k^2 / W_L + R_k^2 / W_R                                  (Gini impurity, squared error)
 *   sum_k L_k log L_k - W_L log W_L + sum_k R_k log R_k - W_R log W_R                     (entropy)
 *
 * and the best cut has the largest score.
 *
 * For exact search, a value and its index are sorted as one 64-bit key: the upper half has the bits
 * of the float, mapped so that integers compare as the floats do; the lower half has the index. All
 * keys differ, so the insertion, merge and radix sorts, which are chosen by size, give the same
 * order.
 */
#ifndef SKFOREST_COLUMNS_H
#define SKFOREST_COLUMNS_H

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

/* out[i] = sum_t weight[t] * column_t[i], t ascending, as skf_project_f32 adds; column t begins at
 * columns + feature[t] * stride. */
SKF_KERNEL(skf_mix_columns,
           (const float *columns, int64_t stride, const int32_t *feature, const float *weight,
            int n_terms, int64_t n, float *SKF_RESTRICT out),
           (columns, stride, feature, weight, n_terms, n, out))
{
    SKF_BY_LANES(skf_mix_loop, columns, stride, feature, weight, n_terms, n, out);
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

/* Gini impurity and squared error. `prefix` has L_k for a cut after each bin, `weight` W_L. The
 * last prefixes are the totals, so an empty right side is exactly 0. Cuts with an empty side score
 * -infinity. */
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

/* Entropy. Same arguments as skf_score_squares. */
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

SKF_INLINE uint64_t skf_sort_key(float value, uint32_t index)
{
    uint32_t bits;
    value += 0.0f; /* -0.0 is 0.0 */
    memcpy(&bits, &value, 4);
    bits ^= (bits >> 31) ? 0xFFFFFFFFu : 0x80000000u;
    return ((uint64_t)bits << 32) | index;
}

SKF_INLINE float skf_key_value(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    float value;
    bits ^= (bits >> 31) ? 0x80000000u : 0xFFFFFFFFu;
    memcpy(&value, &bits, 4);
    return value;
}

SKF_INLINE void skf_insertion_sort(uint64_t *key, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const uint64_t moving = key[i];
        int64_t j = i;
        for (; j > 0 && key[j - 1] > moving; j--)
            key[j] = key[j - 1];
        key[j] = moving;
    }
}

/* Bottom-up merge sort over runs of 16. The sorted keys are in `key` or `spare`, which is returned. */
SKF_UNUSED static uint64_t *skf_merge_sort(uint64_t *key, uint64_t *spare, int64_t n)
{
    uint64_t *from = key, *to = spare;
    for (int64_t i = 0; i < n; i += 16)
        skf_insertion_sort(key + i, n - i < 16 ? n - i : 16);
    for (int64_t width = 16; width < n; width *= 2) {
        for (int64_t start = 0; start < n; start += 2 * width) {
            const int64_t middle = start + width < n ? start + width : n;
            const int64_t end = start + 2 * width < n ? start + 2 * width : n;
            int64_t a = start, b = middle;
            for (int64_t out = start; out < end; out++)
                to[out] = (b >= end || (a < middle && from[a] < from[b])) ? from[a++] : from[b++];
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* Radix sort of the value, least significant digit first, by three digits of 11 bits. It is stable,
 * and the keys come in ascending index, so the index need not be sorted. Returns as the merge sort. */
SKF_UNUSED static uint64_t *skf_radix_sort(uint64_t *key, uint64_t *spare, int64_t n)
{
    int64_t count[3][2048];
    uint64_t *from = key, *to = spare;
    memset(count, 0, sizeof(count));
    for (int64_t i = 0; i < n; i++) {
        count[0][(key[i] >> 32) & 2047]++;
        count[1][(key[i] >> 43) & 2047]++;
        count[2][key[i] >> 54]++;
    }
    for (int digit = 0; digit < 3; digit++) {
        const int shift = 32 + 11 * digit;
        int64_t sum = 0;
        if (count[digit][(key[0] >> shift) & 2047] == n)
            continue; /* all keys share this digit */
        for (int d = 0; d < 2048; d++) {
            const int64_t here = count[digit][d];
            count[digit][d] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++)
            to[count[digit][(from[i] >> shift) & 2047]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* Sort keys made by skf_sort_key with indices ascending from 0. */
SKF_UNUSED static void skf_sort(uint64_t *key, uint64_t *spare, int64_t n)
{
    const uint64_t *sorted = key;
    if (n <= 24)
        skf_insertion_sort(key, n);
    else
        sorted = n <= 400 ? skf_merge_sort(key, spare, n) : skf_radix_sort(key, spare, n);
    if (sorted != key)
        memcpy(key, sorted, (size_t)n * sizeof(uint64_t));
}

#endif
