/* Floor 0: products of rows and weights, for training by gradient.
 *
 * A row starts at table[offset[i]] and has p floats. Four rows are taken at once, so that the weights
 * are read once for four rows and four chains of additions run side by side. What decides a turn in
 * a fitted tree is never computed here, but by `project` (_direction.pyx).
 */
#ifndef SKFOREST_DESCENT_H
#define SKFOREST_DESCENT_H

#include "_simd.h"

/* Sixteen floats that are added and multiplied lane by lane, wherever they start; one float where
 * the compiler has no such type. */
#if defined(__GNUC__)
typedef float skf_vec __attribute__((vector_size(64), aligned(4), may_alias));
#define SKF_WIDTH 16
#else
typedef float skf_vec;
#define SKF_WIDTH 1
#endif
#define SKF_AT(pointer) (*(skf_vec *)(pointer))
#define SKF_IN(pointer) (*(const skf_vec *)(pointer))

#define SKF_ADD_LANES(result, vector)                                                            \
    do {                                                                                         \
        float lanes_[SKF_WIDTH];                                                                 \
        memcpy(lanes_, &(vector), sizeof(lanes_));                                               \
        for (int half_ = SKF_WIDTH / 2; half_; half_ /= 2)                                       \
            for (int l_ = 0; l_ < half_; l_++)                                                   \
                lanes_[l_] += lanes_[l_ + half_];                                                \
        (result) += lanes_[0];                                                                   \
    } while (0)

/* out[i] = w . x_i */
SKF_KERNEL(skf_margins,
           (const float *table, const int64_t *offset, int64_t n, const float *w, int64_t p,
            float *SKF_RESTRICT out),
           (table, offset, n, w, p, out))
{
    const int64_t whole = p - p % SKF_WIDTH;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float *a = table + offset[i], *b = table + offset[i + 1];
        const float *c = table + offset[i + 2], *d = table + offset[i + 3];
        skf_vec sa = {0}, sb = {0}, sc = {0}, sd = {0};
        float ra = 0, rb = 0, rc = 0, rd = 0;
        for (int64_t j = 0; j < whole; j += SKF_WIDTH) {
            const skf_vec v = SKF_IN(w + j);
            sa += SKF_IN(a + j) * v;
            sb += SKF_IN(b + j) * v;
            sc += SKF_IN(c + j) * v;
            sd += SKF_IN(d + j) * v;
        }
        for (int64_t j = whole; j < p; j++) {
            ra += a[j] * w[j];
            rb += b[j] * w[j];
            rc += c[j] * w[j];
            rd += d[j] * w[j];
        }
        SKF_ADD_LANES(ra, sa);
        SKF_ADD_LANES(rb, sb);
        SKF_ADD_LANES(rc, sc);
        SKF_ADD_LANES(rd, sd);
        out[i] = ra;
        out[i + 1] = rb;
        out[i + 2] = rc;
        out[i + 3] = rd;
    }
    for (; i < n; i++) {
        const float *a = table + offset[i];
        skf_vec sa = {0};
        float ra = 0;
        for (int64_t j = 0; j < whole; j += SKF_WIDTH)
            sa += SKF_IN(a + j) * SKF_IN(w + j);
        for (int64_t j = whole; j < p; j++)
            ra += a[j] * w[j];
        SKF_ADD_LANES(ra, sa);
        out[i] = ra;
    }
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

/* Smallest and largest of every feature over n >= 1 rows. */
SKF_KERNEL(skf_bounds,
           (const float *table, const int64_t *offset, int64_t n, int64_t p,
            float *SKF_RESTRICT low, float *SKF_RESTRICT high),
           (table, offset, n, p, low, high))
{
    memcpy(low, table + offset[0], (size_t)p * sizeof(float));
    memcpy(high, table + offset[0], (size_t)p * sizeof(float));
    for (int64_t i = 1; i < n; i++) {
        const float *a = table + offset[i];
        for (int64_t j = 0; j < p; j++) {
            low[j] = a[j] < low[j] ? a[j] : low[j];
            high[j] = a[j] > high[j] ? a[j] : high[j];
        }
    }
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

/* w moved towards 0 by at most `amount`; *square = |w|^2. */
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

/* bound[i] = max(-m, d + m) - |m|: the bound, less l0. */
SKF_KERNEL(skf_bound_values,
           (const float *m, const float *d, int64_t n, float *SKF_RESTRICT bound),
           (m, d, n, bound))
{
    for (int64_t i = 0; i < n; i++) {
        const float left = -m[i], right = d[i] + m[i];
        bound[i] = (left > right ? left : right) - (m[i] > 0 ? m[i] : -m[i]);
    }
}

/* Rows written anew, side by side: out[i][j] = scale (x_i[feature[j]] - mean[feature[j]]), and 0
 * from n_kept to stride. */
SKF_UNUSED static void skf_gather_rows(const float *table, const int64_t *offset, int64_t n,
                                       const int32_t *feature, int64_t n_kept, int64_t stride,
                                       const float *mean, float scale, float *SKF_RESTRICT out)
{
    for (int64_t i = 0; i < n; i++) {
        const float *a = table + offset[i];
        float *row = out + i * stride;
        for (int64_t j = 0; j < n_kept; j++)
            row[j] = scale * (a[feature[j]] - mean[feature[j]]);
        for (int64_t j = n_kept; j < stride; j++)
            row[j] = 0;
    }
}

/* column[i] = m[i] / (along[i] - low): minus the amount of tilt at which a row changes sides. Rows
 * that no tilt moves, or only one beyond all reason, go beyond the ends, each on its side. */
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

#endif
