/* Products of rows and weights, for training by gradient.
 *
 * A row starts at table[offset[i]] and has p floats. In a fitted tree, only `project`
 * (direction.pyx) decides the branch of a row.
 */
#ifndef SKFOREST_DESCENT_H
#define SKFOREST_DESCENT_H

#include "simd.h"

/* out[i] = w . x_i */
SKF_KERNEL(skf_margins,
           (const float *table, const int64_t *offset, int64_t n, const float *w, int64_t p,
            float *SKF_RESTRICT out),
           (table, offset, n, w, p, out))
{
    SKF_BY_LANES(skf_rows_loop, table, offset, n, w, p, 0, NULL, NULL, NULL, out);
}

/* sum += sum_i c_i x_i */
SKF_KERNEL(skf_add_rows,
           (const float *table, const int64_t *offset, int64_t n, const float *c, int64_t p,
            float *SKF_RESTRICT sum),
           (table, offset, n, c, p, sum))
{
    SKF_BY_LANES(skf_add_rows_loop, table, offset, n, c, p, sum);
}

/* Moments of n rows, as differences from the row `first`: sum += sum_i weight_i (x_i - first);
 * seen[j] has a bit set if feature j differs in some row; square[i] = |x_i - first|^2. */
SKF_KERNEL(skf_node_moments,
           (const float *table, const int64_t *offset, int64_t n, const float *first,
            const float *weight, int64_t p, float *SKF_RESTRICT sum, int32_t *SKF_RESTRICT seen,
            float *SKF_RESTRICT square),
           (table, offset, n, first, weight, p, sum, seen, square))
{
    SKF_BY_LANES(skf_rows_loop, table, offset, n, first, p, 1, weight, sum, seen, square);
}

/* out[i] = |x_i - mean|^2 */
SKF_KERNEL(skf_distances,
           (const float *table, const int64_t *offset, int64_t n, const float *mean, int64_t p,
            float *SKF_RESTRICT out),
           (table, offset, n, mean, p, out))
{
    for (int64_t i = 0; i < n; i++)
        SKF_BY_LANES(skf_distance, table + offset[i], mean, p, out + i);
}

/* One step of momentum: v = momentum v + g, w = w - rate v; *square = |w|^2. The gradient is
 * factor (g - shift mean); g is cleared for the next one. */
SKF_KERNEL(skf_momentum_step,
           (float *SKF_RESTRICT w, float *SKF_RESTRICT v, float *SKF_RESTRICT g,
            const float *SKF_RESTRICT mean, int64_t p, float factor, float shift, float momentum,
            float rate, float *square),
           (w, v, g, mean, p, factor, shift, momentum, rate, square))
{
    SKF_BY_LANES(skf_momentum_loop, w, v, g, mean, p, factor, shift, momentum, rate, square);
}

/* *dot = a . b, with four chains of additions. */
SKF_KERNEL(skf_dot, (const float *a, const float *b, int64_t p, float *dot), (a, b, p, dot))
{
    SKF_BY_LANES(skf_dot_loop, a, b, p, dot);
}

/* Moves each weight towards 0 by `amount`, and to 0 at most; *square = |w|^2. */
SKF_KERNEL(skf_shrink, (float *SKF_RESTRICT w, int64_t p, float amount, float *square),
           (w, p, amount, square))
{
    float total = 0;
    for (int64_t j = 0; j < p; j++) {
        const float size = (w[j] < 0 ? -w[j] : w[j]) - amount;
        const float left = size > 0 ? size : 0;
        w[j] = w[j] < 0 ? -left : left;
    }
    for (int64_t j = 0; j < p; j++)
        total += w[j] * w[j];
    *square = total;
}

/* value[i] = scale value[i] - shift */
SKF_KERNEL(skf_rescale, (float *SKF_RESTRICT value, int64_t n, float scale, float shift),
           (value, n, scale, shift))
{
    for (int64_t i = 0; i < n; i++)
        value[i] = scale * value[i] - shift;
}

/* Weight times derivative, by the margin m, of the bound max(l0 - m, l1 + m) - |m|: the worse of
 * both branches under the bound, minus the branch taken, each 1 or -1; d = l1 - l0. */
SKF_KERNEL(skf_bound_slopes,
           (const float *m, const float *branch, const float *d, const float *weight, int64_t n,
            float *SKF_RESTRICT slope),
           (m, branch, d, weight, n, slope))
{
    for (int64_t i = 0; i < n; i++) {
        const float worse = 2 * m[i] + d[i] > 0 ? 1.0f : -1.0f;
        const float taken = branch[i] > 0 ? 1.0f : -1.0f;
        slope[i] = weight[i] * (worse - taken);
    }
}

/* bound[i] = max(-m, d + m) - |m|: the bound minus l0. */
SKF_KERNEL(skf_bound_values,
           (const float *m, const float *d, int64_t n, float *SKF_RESTRICT bound),
           (m, d, n, bound))
{
    for (int64_t i = 0; i < n; i++) {
        const float left = -m[i], right = d[i] + m[i];
        bound[i] = (left > right ? left : right) - (m[i] > 0 ? m[i] : -m[i]);
    }
}

/* Offsets and slopes of the rows whose slope is not 0; returns their number, and their sum in
 * `sum`. */
SKF_UNUSED static int64_t skf_pick_active(const int64_t *offset, const float *slope, int64_t n,
                                          int64_t *SKF_RESTRICT active, float *SKF_RESTRICT c,
                                          double *sum)
{
    int64_t n_active = 0;
    double total = 0;
    for (int64_t i = 0; i < n; i++) {
        active[n_active] = offset[i];
        c[n_active] = slope[i];
        n_active += slope[i] != 0;
    }
    for (int64_t i = 0; i < n_active; i++)
        total += c[i];
    *sum = total;
    return n_active;
}

/* Loss of every row at the left leaf, and the difference to the right one, by its label. */
SKF_KERNEL(skf_label_losses,
           (const int32_t *label, int64_t n, const float *left, const float *more,
            float *SKF_RESTRICT base, float *SKF_RESTRICT delta),
           (label, n, left, more, base, delta))
{
    for (int64_t i = 0; i < n; i++) {
        base[i] = left[label[i]];
        delta[i] = more[label[i]];
    }
}

/* Adds the weights of rows to sums[side][label], side 1 where m > 0; returns the number of rows on
 * side 1. */
SKF_UNUSED static int64_t skf_weigh_labels(const float *m, const int32_t *label,
                                           const float *weight, int64_t n, int64_t n_labels,
                                           double *SKF_RESTRICT sums)
{
    int64_t n_right = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t right = m[i] > 0;
        sums[(n_labels & -right) + label[i]] += weight[i];
        n_right += right;
    }
    return n_right;
}

/* Sums of both sides. SKF_ADD_AT adds a number to one of them, without a branch, which a processor
 * could not predict, and without a detour through memory. */
#if defined(__GNUC__)
typedef double skf_pair __attribute__((vector_size(16)));
typedef int64_t skf_pair_bits __attribute__((vector_size(16)));
static const skf_pair_bits skf_sides[2] SKF_UNUSED = {{-1, 0}, {0, -1}};
#define SKF_ADD_AT(sums, side, x)                                                                \
    (sums) += (skf_pair)((skf_pair_bits)(skf_pair){(x), (x)} & skf_sides[side])
#else
typedef double skf_pair[2];
#define SKF_ADD_AT(sums, side, x) (sums)[side] += (x)
#endif

/* The same for targets (n, n_outputs): adds the weighted targets to sums[side][k], and the weights
 * of side 1 to *right_weight. */
SKF_UNUSED static int64_t skf_weigh_targets(const float *m, const double *target,
                                            const float *weight, int64_t n, int64_t n_outputs,
                                            double *SKF_RESTRICT sums, double *right_weight)
{
    skf_pair total = {0, *right_weight};
    int64_t n_right = 0;
    for (int64_t k = 0; k < n_outputs; k++) {
        skf_pair sum = {sums[k], sums[n_outputs + k]};
        for (int64_t i = 0; i < n; i++) {
            const int right = m[i] > 0;
            const double w = (double)weight[i], own = w * target[i * n_outputs + k];
            SKF_ADD_AT(sum, right, own);
            if (k == 0) {
                SKF_ADD_AT(total, right, w);
                n_right += right;
            }
        }
        sums[k] = sum[0];
        sums[n_outputs + k] = sum[1];
    }
    *right_weight = total[1];
    return n_right;
}

/* Contiguous copies of rows: out[i] has scale (x_i - mean) of the features in groups of SKF_GROUP,
 * which start at group[0 .. n_groups - 1], then of n_single features, then 0 up to stride. Groups
 * and single features are in increasing order. */
#define SKF_GROUP 4

SKF_KERNEL(skf_gather_rows,
           (const float *table, const int64_t *offset, int64_t n, const int32_t *group,
            int64_t n_groups, int64_t n_single, int64_t stride, const float *mean, float scale,
            float *SKF_RESTRICT out),
           (table, offset, n, group, n_groups, n_single, stride, mean, scale, out))
{
    const int32_t *single = group + n_groups;
    for (int64_t i = 0; i < n; i++) {
        const float *a = table + offset[i];
        float *row = out + i * stride, *end = row;
        SKF_BY_LANES(skf_gather_groups, a, group, n_groups, SKF_GROUP, mean, scale, &end);
        SKF_BY_LANES(skf_gather_groups, a, single, n_single, 1, mean, scale, &end);
        while (end < row + stride)
            *end++ = 0;
    }
}

/* column[i] = m[i] / (along[i] - low): minus the tilt at which a row changes sides. Rows that no
 * tilt up to 1e6 moves get values beyond both ends, each on its side. */
SKF_UNUSED static void skf_critical_values(const double *m, const float *along, int64_t n,
                                           float low, float *SKF_RESTRICT column)
{
    const double limit = 1e6;
    double least = limit, most = -limit, margin;
    for (int64_t i = 0; i < n; i++) {
        const double value = m[i] / ((double)along[i] - low);
        const int moves = value > -limit && value < limit;
        column[i] = moves ? (float)value : (m[i] > 0 ? INFINITY : -INFINITY);
        least = moves && value < least ? value : least;
        most = moves && value > most ? value : most;
    }
    margin = most > least ? most - least : 1;
    if (!(most >= least))
        least = most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (column[i] == INFINITY)
            column[i] = (float)(most + margin);
        else if (column[i] == -INFINITY)
            column[i] = (float)(least - margin);
    }
}

/* m[i] = shrink (m[i] + amount (along[i] - low)) */
SKF_UNUSED static void skf_tilt_margins(double *SKF_RESTRICT m, const float *along, int64_t n,
                                        float low, double amount, double shrink)
{
    for (int64_t i = 0; i < n; i++)
        m[i] = shrink * (m[i] + amount * ((double)along[i] - low));
}

/* From margins m to slopes of the logistic loss: weight times derivative of log(1 + exp(-s m)), where
 * s is 1 or -1. */
SKF_UNUSED static void skf_logistic_slopes(float *SKF_RESTRICT m, const float *s,
                                           const float *weight, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        m[i] = -s[i] * weight[i] / (1 + expf(s[i] * m[i]));
}

/* Sum of weight times log(1 + exp(-s m)). */
SKF_UNUSED static double skf_logistic_loss(const float *m, const float *s, const float *weight,
                                           int64_t n)
{
    double loss = 0;
    for (int64_t i = 0; i < n; i++) {
        const float a = s[i] * m[i];
        loss += weight[i] * ((a < 0 ? -a : 0) + log1pf(expf(a < 0 ? a : -a)));
    }
    return loss;
}

/* Weight of the rows on the wrong side at the margins a + t (b - a). */
SKF_UNUSED static double skf_wrong_side(const float *a, const float *b, const float *s,
                                        const float *weight, int64_t n, float t)
{
    double wrong = 0;
    for (int64_t i = 0; i < n; i++)
        wrong += (a[i] + t * (b[i] - a[i]) > 0) != (s[i] > 0) ? weight[i] : 0;
    return wrong;
}

#define SKF_TILE 32 /* products have a multiple of so many columns */

/* out = a b, for n rows of a, where a[i, j] is a[i row_step + j column_step]. b has `depth` rows,
 * b_step floats apart; only `width` columns count, a multiple of SKF_TILE. Every entry adds in the
 * order of j, which BLAS does not promise: its bits depend on its threads. */
SKF_KERNEL(skf_multiply,
           (const float *a, int64_t row_step, int64_t column_step, int64_t n, int64_t depth,
            const float *b, int64_t b_step, int64_t width, float *SKF_RESTRICT out,
            int64_t out_step),
           (a, row_step, column_step, n, depth, b, b_step, width, out, out_step))
{
    SKF_BY_LANES(skf_multiply_loop, a, row_step, column_step, n, depth, b, b_step, width, out,
                 out_step);
}

#endif
