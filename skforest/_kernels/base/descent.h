/* Products of rows and weights, for training by gradient.
 *
 * A row starts at table[offset[i]] and has p floats. Four rows are processed at once, so that
 * weights are read once for four rows and four chains of additions run side by side; the lanes of
 * sixteen rows are added together, which pays for short rows. In a fitted tree, only `project`
 * (direction.pyx) decides the branch of a row.
 */
#ifndef SKFOREST_DESCENT_H
#define SKFOREST_DESCENT_H

#include "simd.h"

/* Row i, or the last row beyond the end, so that four rows can always be read. */
#define SKF_ROW(i) (table + offset[(i) < n ? (i) : n - 1])

/* Four rows at a time, with the vector v: out[i] = v . x_i, or, where the constant `has_moments` is 1,
 * the moments of `skf_node_moments` about v. */
SKF_INLINE void skf_rows_loop(const float *table, const int64_t *offset, int64_t n, const float *v,
                              int64_t p, int has_moments, const float *weight,
                              float *SKF_RESTRICT sum, int32_t *SKF_RESTRICT seen,
                              float *SKF_RESTRICT out)
{
    const int64_t whole = p - p % SKF_WIDTH;
    for (int64_t i = 0; i < n; i += SKF_ROWS) {
        const int n_rows = n - i < SKF_ROWS ? (int)(n - i) : SKF_ROWS;
        const skf_vec none = {0};
        skf_vec s[SKF_ROWS];
        float sums[SKF_ROWS];
        int k = 0;
        for (; k < n_rows; k += 4) {
            const float *a = SKF_ROW(i + k), *b = SKF_ROW(i + k + 1);
            const float *c = SKF_ROW(i + k + 2), *d = SKF_ROW(i + k + 3);
            float w[4] = {0};
            skf_vec sa = {0}, sb = {0}, sc = {0}, sd = {0};
            if (has_moments)
                for (int r = 0; r < 4 && k + r < n_rows; r++)
                    w[r] = weight[i + k + r];
            for (int64_t j = 0; j < whole; j += SKF_WIDTH) {
                const skf_vec at = SKF_IN(v + j);
                if (has_moments) {
                    const skf_vec da = SKF_IN(a + j) - at, db = SKF_IN(b + j) - at;
                    const skf_vec dc = SKF_IN(c + j) - at, dd = SKF_IN(d + j) - at;
                    SKF_AT(sum + j) += (da * w[0] + db * w[1]) + (dc * w[2] + dd * w[3]);
                    *(skf_bits *)(seen + j) |= SKF_BITS(da) | SKF_BITS(db) | SKF_BITS(dc) |
                                               SKF_BITS(dd);
                    sa += da * da;
                    sb += db * db;
                    sc += dc * dc;
                    sd += dd * dd;
                } else {
                    sa += SKF_IN(a + j) * at;
                    sb += SKF_IN(b + j) * at;
                    sc += SKF_IN(c + j) * at;
                    sd += SKF_IN(d + j) * at;
                }
            }
            s[k] = sa;
            s[k + 1] = sb;
            s[k + 2] = sc;
            s[k + 3] = sd;
        }
        for (; k < SKF_ROWS; k++)
            s[k] = none;
        SKF_ADD_LANES_OF_ROWS(sums, s);
        for (k = 0; k < n_rows; k++) {
            const float *a = table + offset[i + k];
            float rest = 0;
            for (int64_t j = whole; j < p; j++) {
                const float d = has_moments ? a[j] - v[j] : a[j];
                if (has_moments) {
                    sum[j] += weight[i + k] * d;
                    seen[j] |= d != 0;
                }
                rest += d * (has_moments ? d : v[j]);
            }
            out[i + k] = rest + sums[k];
        }
    }
}

/* out[i] = w . x_i */
SKF_KERNEL(skf_margins,
           (const float *table, const int64_t *offset, int64_t n, const float *w, int64_t p,
            float *SKF_RESTRICT out),
           (table, offset, n, w, p, out))
{
    skf_rows_loop(table, offset, n, w, p, 0, NULL, NULL, NULL, out);
}

/* sum += sum_i c_i x_i */
SKF_KERNEL(skf_add_rows,
           (const float *table, const int64_t *offset, int64_t n, const float *c, int64_t p,
            float *SKF_RESTRICT sum),
           (table, offset, n, c, p, sum))
{
    const int64_t whole = p - p % SKF_WIDTH;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float *a = table + offset[i], *b = table + offset[i + 1];
        const float *e = table + offset[i + 2], *d = table + offset[i + 3];
        const float ca = c[i], cb = c[i + 1], ce = c[i + 2], cd = c[i + 3];
        for (int64_t j = 0; j < whole; j += SKF_WIDTH)
            SKF_AT(sum + j) += (SKF_IN(a + j) * ca + SKF_IN(b + j) * cb) +
                               (SKF_IN(e + j) * ce + SKF_IN(d + j) * cd);
        for (int64_t j = whole; j < p; j++)
            sum[j] += (a[j] * ca + b[j] * cb) + (e[j] * ce + d[j] * cd);
    }
    for (; i < n; i++) {
        const float *a = table + offset[i];
        const float ca = c[i];
        for (int64_t j = 0; j < whole; j += SKF_WIDTH)
            SKF_AT(sum + j) += SKF_IN(a + j) * ca;
        for (int64_t j = whole; j < p; j++)
            sum[j] += a[j] * ca;
    }
}

/* Moments of n rows, as differences from the row `first`: sum += sum_i weight_i (x_i - first);
 * seen[j] has a bit set if feature j differs in some row; square[i] = |x_i - first|^2. */
SKF_KERNEL(skf_node_moments,
           (const float *table, const int64_t *offset, int64_t n, const float *first,
            const float *weight, int64_t p, float *SKF_RESTRICT sum, int32_t *SKF_RESTRICT seen,
            float *SKF_RESTRICT square),
           (table, offset, n, first, weight, p, sum, seen, square))
{
    skf_rows_loop(table, offset, n, first, p, 1, weight, sum, seen, square);
}

/* out[i] = |x_i - mean|^2 */
SKF_KERNEL(skf_distances,
           (const float *table, const int64_t *offset, int64_t n, const float *mean, int64_t p,
            float *SKF_RESTRICT out),
           (table, offset, n, mean, p, out))
{
    const int64_t whole = p - p % SKF_WIDTH;
    for (int64_t i = 0; i < n; i++) {
        const float *a = table + offset[i];
        skf_vec sum = {0};
        float rest = 0;
        for (int64_t j = 0; j < whole; j += SKF_WIDTH) {
            const skf_vec d = SKF_IN(a + j) - SKF_IN(mean + j);
            sum += d * d;
        }
        for (int64_t j = whole; j < p; j++)
            rest += (a[j] - mean[j]) * (a[j] - mean[j]);
        SKF_ADD_LANES(rest, sum);
        out[i] = rest;
    }
}

/* One step of momentum: v = momentum v + g, w = w - rate v; *square = |w|^2. The gradient is
 * factor (g - shift mean); g is cleared for the next one. */
SKF_KERNEL(skf_momentum_step,
           (float *SKF_RESTRICT w, float *SKF_RESTRICT v, float *SKF_RESTRICT g,
            const float *SKF_RESTRICT mean, int64_t p, float factor, float shift, float momentum,
            float rate, float *square),
           (w, v, g, mean, p, factor, shift, momentum, rate, square))
{
    const int64_t whole = p - p % SKF_WIDTH;
    skf_vec sum = {0};
    float rest = 0;
    for (int64_t j = 0; j < whole; j += SKF_WIDTH) {
        const skf_vec speed =
            SKF_IN(v + j) * momentum + (SKF_IN(g + j) - SKF_IN(mean + j) * shift) * factor;
        const skf_vec now = SKF_IN(w + j) - speed * rate;
        const skf_vec none = {0};
        SKF_AT(v + j) = speed;
        SKF_AT(w + j) = now;
        SKF_AT(g + j) = none;
        sum += now * now;
    }
    for (int64_t j = whole; j < p; j++) {
        v[j] = v[j] * momentum + (g[j] - mean[j] * shift) * factor;
        w[j] -= v[j] * rate;
        g[j] = 0;
        rest += w[j] * w[j];
    }
    SKF_ADD_LANES(rest, sum);
    *square = rest;
}

/* *dot = a . b, with four chains of additions. */
SKF_KERNEL(skf_dot, (const float *a, const float *b, int64_t p, float *dot), (a, b, p, dot))
{
    const int64_t whole = p - p % SKF_WIDTH;
    int64_t j = 0;
    skf_vec s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
    float rest = 0;
    for (; j + 4 * SKF_WIDTH <= whole; j += 4 * SKF_WIDTH) {
        s0 += SKF_IN(a + j) * SKF_IN(b + j);
        s1 += SKF_IN(a + j + SKF_WIDTH) * SKF_IN(b + j + SKF_WIDTH);
        s2 += SKF_IN(a + j + 2 * SKF_WIDTH) * SKF_IN(b + j + 2 * SKF_WIDTH);
        s3 += SKF_IN(a + j + 3 * SKF_WIDTH) * SKF_IN(b + j + 3 * SKF_WIDTH);
    }
    for (; j < whole; j += SKF_WIDTH)
        s0 += SKF_IN(a + j) * SKF_IN(b + j);
    s0 = (s0 + s1) + (s2 + s3);
    for (j = whole; j < p; j++)
        rest += a[j] * b[j];
    SKF_ADD_LANES(rest, s0);
    *dot = rest;
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

/* Contiguous copies of rows: out[i] has scale (x_i - mean) of the features in groups of SKF_GROUP,
 * which start at group[0 .. n_groups - 1], then of n_single features, then 0 up to stride. Groups
 * and single features are in increasing order. */
#define SKF_GROUP 4

/* Copies n groups of `size` features of the row a; returns the end of the copy. Adjacent groups,
 * which are most, are copied as whole vectors. */
SKF_INLINE float *skf_gather_groups(const float *a, const int32_t *group, int64_t n, int size,
                                    const float *mean, float scale, float *SKF_RESTRICT out)
{
    const int64_t together = SKF_WIDTH / size;
    for (int64_t g = 0; g < n;) {
        const int32_t first = group[g];
        if (together > 1 && g + together <= n &&
            group[g + together - 1] == first + SKF_WIDTH - size) {
            SKF_AT(out) = (SKF_IN(a + first) - SKF_IN(mean + first)) * scale;
            g += together;
            out += SKF_WIDTH;
        } else {
            for (int l = 0; l < size; l++)
                out[l] = scale * (a[first + l] - mean[first + l]);
            g++;
            out += size;
        }
    }
    return out;
}

SKF_KERNEL(skf_gather_rows,
           (const float *table, const int64_t *offset, int64_t n, const int32_t *group,
            int64_t n_groups, int64_t n_single, int64_t stride, const float *mean, float scale,
            float *SKF_RESTRICT out),
           (table, offset, n, group, n_groups, n_single, stride, mean, scale, out))
{
    for (int64_t i = 0; i < n; i++) {
        const float *a = table + offset[i];
        float *row = out + i * stride;
        float *end = skf_gather_groups(a, group, n_groups, SKF_GROUP, mean, scale, row);
        end = skf_gather_groups(a, group + n_groups, n_single, 1, mean, scale, end);
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

/* Columns of a product that are summed together: two vectors for each of four rows fill the
 * registers. */
#define SKF_TILE (2 * SKF_WIDTH)

/* out = a b, for n rows of a, where a[i, j] is a[i row_step + j column_step]. b has `depth` rows,
 * b_step floats apart; only `width` columns count, a multiple of SKF_TILE. Every entry adds in the
 * order of j, which BLAS does not promise: its bits depend on its threads. */
SKF_KERNEL(skf_multiply,
           (const float *a, int64_t row_step, int64_t column_step, int64_t n, int64_t depth,
            const float *b, int64_t b_step, int64_t width, float *SKF_RESTRICT out,
            int64_t out_step),
           (a, row_step, column_step, n, depth, b, b_step, width, out, out_step))
{
    for (int64_t f = 0; f < width; f += SKF_TILE)
        for (int64_t i = 0; i < n; i += 4) {
            const int64_t last = n - 1;
            const float *a0 = a + i * row_step;
            const float *a1 = a + (i + 1 < n ? i + 1 : last) * row_step;
            const float *a2 = a + (i + 2 < n ? i + 2 : last) * row_step;
            const float *a3 = a + (i + 3 < n ? i + 3 : last) * row_step;
            const skf_vec none = {0};
            skf_vec s[8] = {none, none, none, none, none, none, none, none};
            for (int64_t j = 0; j < depth; j++) {
                const skf_vec low = SKF_IN(b + j * b_step + f);
                const skf_vec high = SKF_IN(b + j * b_step + f + SKF_WIDTH);
                const int64_t at = j * column_step;
                s[0] += low * a0[at];
                s[1] += high * a0[at];
                s[2] += low * a1[at];
                s[3] += high * a1[at];
                s[4] += low * a2[at];
                s[5] += high * a2[at];
                s[6] += low * a3[at];
                s[7] += high * a3[at];
            }
            for (int64_t r = 0; r < 4 && i + r < n; r++) {
                SKF_AT(out + (i + r) * out_step + f) = s[2 * r];
                SKF_AT(out + (i + r) * out_step + f + SKF_WIDTH) = s[2 * r + 1];
            }
        }
}

#endif
