/* The loops of a step of a random hinge forest.
 *
 * The outer loop is over trees, the inner one over the rows of a batch, so that a tree stays in the
 * cache. Tables of features have rows of `width` floats, in training a multiple of SKF_TILE. Numbers
 * of equations and algorithms refer to Lay et al. 2018.
 */
#ifndef SKFOREST_HINGE_H
#define SKFOREST_HINGE_H

#include "../base/descent.h"
#include "../predict/route.h"

#define SKF_MAX_DEPTH 32 /* largest number of levels of a tree */

/* Added to the variance of a feature; largest weight of earlier statistics (section 3.3). */
#define SKF_MIN_VARIANCE 1e-7
#define SKF_MAX_MEMORY 0.99

typedef struct {
    float threshold;
    int32_t feature;
} skf_test;

/* Coefficients of a step of an optimiser. `first` and `second` are 1 - beta of Adam's averages of the
 * gradient and of its square, `unbias_*` their factors 1 / (1 - beta^t). */
typedef struct {
    int32_t kind; /* 0 Adam, 1 AdaGrad, 2 momentum */
    float rate, decay, momentum;
    float first, second, unbias_first, unbias_second;
} skf_stepper;

/* z = (z - mean) unit, for n rows. The column sums of the new z and of its square are added to `sum`
 * and `square`. */
SKF_KERNEL(skf_standardise,
           (float *SKF_RESTRICT z, int64_t n, int64_t width, const float *mean, const float *unit,
            float *SKF_RESTRICT sum, float *SKF_RESTRICT square),
           (z, n, width, mean, unit, sum, square))
{
    for (int64_t i = 0; i < n; i++) {
        float *row = z + i * width;
        for (int64_t f = 0; f < width; f++) {
            const float value = (row[f] - mean[f]) * unit[f];
            row[f] = value;
            sum[f] += value;
            square[f] += value * value;
        }
    }
}

/* d = d unit, for n rows, `step` floats apart. */
SKF_KERNEL(skf_scale_columns,
           (float *SKF_RESTRICT d, int64_t n, int64_t width, int64_t step, const float *unit),
           (d, n, width, step, unit))
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t f = 0; f < width; f++)
            d[i * step + f] *= unit[f];
}

/* Adds the gradient of one tree to those of the kernels, which are rows of patch_size. Each row of the
 * batch contributes at one feature: slope[i] unit[feature] times the patch under that feature. */
SKF_KERNEL(skf_kernel_gradient,
           (const skf_test *tests, const int32_t *test, const float *slope, int64_t n,
            const float *patches, int64_t n_patches, int64_t patch_size, int64_t patch_width,
            const float *unit, float *SKF_RESTRICT gradient),
           (tests, test, slope, n, patches, n_patches, patch_size, patch_width, unit, gradient))
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t feature = tests[test[i]].feature;
        const int64_t patch = feature / patch_width, kernel = feature - patch * patch_width;
        const float *x = patches + (i * n_patches + patch) * patch_size;
        const float pull = slope[i] * unit[feature];
        float *g = gradient + kernel * patch_size;
        for (int64_t t = 0; t < patch_size; t++)
            g[t] += pull * x[t];
    }
}

#define SKF_DENSE_LEVELS 5 /* levels of a tree whose margins are all computed */

#if defined(__GNUC__)
#define SKF_READS_COLUMNS 1
#define SKF_LANES 4
#include "paths.h"
#undef SKF_LANES
#define SKF_LANES 8
#include "paths.h"
#undef SKF_LANES
#define SKF_LANES 16
#include "paths.h"
#undef SKF_LANES
#else
#define SKF_READS_COLUMNS 0
#endif

/* The levels of a tree from `done` on, of `n_rows` <= SKF_ABREAST rows. The levels before have left
 * the number of the node, the test of the smallest margin and this margin in leaf, test and margin.
 * Margins are stored on the way down and compared afterwards, in vectors. */
SKF_INLINE void skf_hinge_descend(const skf_test *tests, int depth, int is_fern, int done,
                                  const float *z, int64_t width, const int n_rows,
                                  int32_t *SKF_RESTRICT leaf, int32_t *SKF_RESTRICT test,
                                  float *SKF_RESTRICT margin)
{
    uint32_t node[SKF_ABREAST];
    int32_t found[SKF_MAX_DEPTH][SKF_ABREAST], least[SKF_ABREAST], nearest[SKF_ABREAST];
    for (int l = 0; l < n_rows; l++) {
        node[l] = done ? (1u << done) - 1 + (uint32_t)leaf[l] : 0;
        nearest[l] = done ? test[l] : 0;
        least[l] = 0x7fffffff;
        if (done)
            memcpy(&least[l], margin + l, sizeof *margin);
    }
    for (int level = done; level < depth; level++)
        for (int l = 0; l < n_rows; l++) {
            const skf_test *at = tests + (is_fern ? (uint32_t)level : node[l]);
            const float m = z[l * width + at->feature] - at->threshold;
            memcpy(&found[level][l], &m, sizeof m);
            node[l] = 2 * node[l] + 1 + (found[level][l] > 0);
            SKF_KEEP(node[l]);
        }
    /* Absolute margins are compared as integers, which have the order of the floats. */
    for (int level = done; level < depth; level++)
        for (int l = 0; l < n_rows; l++) {
            const int32_t m = found[level][l];
            const int32_t of_tree = (int32_t)((node[l] + 1) >> (depth - level)) - 1;
            const int32_t at = is_fern ? level : of_tree;
            const int32_t less = (m & 0x7fffffff) - (least[l] & 0x7fffffff);
            const int32_t mask = less < 0 ? -1 : 0;
            least[l] ^= (m ^ least[l]) & mask;
            nearest[l] ^= (at ^ nearest[l]) & mask;
        }
    for (int l = 0; l < n_rows; l++) {
        leaf[l] = (int32_t)(node[l] + 1 - (1u << depth));
        test[l] = nearest[l];
        memcpy(margin + l, &least[l], sizeof *margin);
    }
}

SKF_INLINE void skf_hinge_rows(const skf_test *tests, int depth, int is_fern, int done,
                               const float *z, int64_t width, int64_t n, int32_t *leaf,
                               int32_t *test, float *margin)
{
    int64_t i = 0;
    for (; i + SKF_ABREAST <= n; i += SKF_ABREAST)
        skf_hinge_descend(tests, depth, is_fern, done, z + i * width, width, SKF_ABREAST,
                          leaf + i, test + i, margin + i);
    for (; i < n; i++)
        skf_hinge_descend(tests, depth, is_fern, done, z + i * width, width, 1, leaf + i,
                          test + i, margin + i);
}

/* Algorithm 3: the leaf, the test of the smallest margin, and this margin with its sign, of n rows.
 * A tree has its tests in the order of a heap; a fern has one for every level. Among equal absolute
 * margins, the test nearest to the root is kept. Row i has feature f at z[i width + f], and at
 * columns[f stride + i] unless `columns` is NULL. */
SKF_KERNEL(skf_hinge_route,
           (const skf_test *tests, int depth, int is_fern, const float *z, int64_t width,
            const float *columns, int64_t stride, int64_t n, int32_t *SKF_RESTRICT leaf,
            int32_t *SKF_RESTRICT test, float *SKF_RESTRICT margin),
           (tests, depth, is_fern, z, width, columns, stride, n, leaf, test, margin))
{
    int64_t whole = 0;
#if SKF_READS_COLUMNS
    if (columns != NULL) {
        const int done = depth < SKF_DENSE_LEVELS || is_fern ? depth : SKF_DENSE_LEVELS;
        whole = n - n % (2 * lanes);
        SKF_BY_LANES(skf_paths_loop, &tests[0].threshold, &tests[0].feature, done, is_fern,
                     columns, stride, whole, leaf, test, margin);
        if (done < depth)
            skf_hinge_rows(tests, depth, 0, done, z, width, whole, leaf, test, margin);
    }
#endif
    z += whole * width;
    if (is_fern)
        skf_hinge_rows(tests, depth, 1, 0, z, width, n - whole, leaf + whole, test + whole,
                       margin + whole);
    else
        skf_hinge_rows(tests, depth, 0, 0, z, width, n - whole, leaf + whole, test + whole,
                       margin + whole);
}

/* out[f stride + i] = z[i width + f], for n rows; by squares, which the compiler keeps in
 * vectors. */
SKF_KERNEL(skf_transpose,
           (const float *z, int64_t n, int64_t width, float *SKF_RESTRICT out, int64_t stride),
           (z, n, width, out, stride))
{
    for (int64_t i = 0; i < n; i += 4)
        for (int64_t f = 0; f < width; f += 4) {
            const float *from = z + i * width + f;
            float *to = out + f * stride + i, square[4][4];
            if (i + 4 > n || f + 4 > width) {
                for (int64_t k = 0; k < 4 && f + k < width; k++)
                    for (int64_t r = 0; r < 4 && i + r < n; r++)
                        to[k * stride + r] = from[r * width + k];
                continue;
            }
            for (int r = 0; r < 4; r++)
                for (int k = 0; k < 4; k++)
                    square[k][r] = from[r * width + k];
            for (int k = 0; k < 4; k++)
                memcpy(to + k * stride, square[k], sizeof square[k]);
        }
}

/* Vectors of leaves and of gradients have `width` floats: 1, 2, 4, 8, or a multiple of SKF_WIDE. A
 * constant width lets the compiler unroll the inner loops, so each common one has its own copy. */
#define SKF_WIDE 16
#define SKF_FOR_WIDTH(call)                                                                      \
    switch (width) {                                                                             \
    case 1: call(1); break;                                                                      \
    case 2: call(2); break;                                                                      \
    case 4: call(4); break;                                                                      \
    case 8: call(8); break;                                                                      \
    case 16: call(16); break;                                                                    \
    case 32: call(32); break;                                                                    \
    default: call(width);                                                                        \
    }

SKF_INLINE void skf_response_loop(const float *value, int64_t step, const int32_t *leaf,
                                const float *margin, int64_t n, int64_t width, float scale,
                                float *SKF_RESTRICT out)
{
    for (int64_t i = 0; i < n; i++) {
        const float *v = value + leaf[i] * step;
        const float weight = scale * fabsf(margin[i]);
        float *o = out + i * width;
        if (i + SKF_AHEAD < n)
            SKF_FETCH(value + leaf[i + SKF_AHEAD] * step);
        if (leaf[i] < 0)
            continue;
        for (int64_t k = 0; k < width; k++)
            o[k] += weight * v[k];
    }
}

/* out[i] += scale |margin[i]| value[leaf[i]] (equation 10). The vector of a leaf begins at
 * value + leaf step; leaf -1 has none and contributes 0. */
SKF_KERNEL(skf_hinge_response,
           (const float *value, int64_t step, const int32_t *leaf, const float *margin, int64_t n,
            int64_t width, float scale, float *SKF_RESTRICT out),
           (value, step, leaf, margin, n, width, scale, out))
{
#define SKF_CALL(w) skf_response_loop(value, step, leaf, margin, n, w, scale, out)
    SKF_FOR_WIDTH(SKF_CALL)
#undef SKF_CALL
}

/* dots[i] = value[leaf[i]] . g_i, of up to SKF_ROWS rows */
SKF_INLINE void skf_dots(const int lanes, const float *value, int64_t step, const int32_t *leaf,
                         const float *g, int64_t n, int64_t width, float *SKF_RESTRICT dots)
{
    if (width % SKF_CHAINS == 0) {
        SKF_BY_LANES(skf_dots_loop, value, step, leaf, g, n, width, dots);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const float *v = value + leaf[i] * step, *gi = g + i * width;
        dots[i] = 0;
        for (int64_t k = 0; k < width; k++)
            dots[i] += v[k] * gi[k];
    }
}

SKF_INLINE void skf_gradient_loop(const int lanes, const float *value, int64_t step,
                                  const int32_t *leaf, const float *margin, const float *g, const int32_t *slot,
                                  int64_t n, int64_t width, float scale,
                                  float *SKF_RESTRICT slope, float *SKF_RESTRICT sums)
{
    for (int64_t i = 0; i < n; i += SKF_ROWS) {
        const int64_t n_rows = n - i < SKF_ROWS ? n - i : SKF_ROWS;
        float dots[SKF_ROWS];
        skf_dots(lanes, value, step, leaf + i, g + i * width, n_rows, width, dots);
        for (int64_t r = 0; r < n_rows; r++) {
            const float m = margin[i + r];
            slope[i + r] = (m > 0 ? scale : (m < 0 ? -scale : 0)) * dots[r];
        }
    }
    for (int64_t i = 0; i < n; i++) {
        const float *gi = g + i * width;
        const float weight = scale * fabsf(margin[i]);
        float *sum = sums + slot[i] * width;
        for (int64_t k = 0; k < width; k++)
            sum[k] += weight * gi[k];
    }
}

/* Equations 11 and 12, times scale. slope[i] is the derivative by the margin: its sign times
 * value[leaf] . g_i. The gradient of a leaf, the sum of |margin| g_i over its rows, is added to row
 * slot[i] of `sums`. */
SKF_KERNEL(skf_hinge_gradient,
           (const float *value, int64_t step, const int32_t *leaf, const float *margin,
            const float *g, const int32_t *slot, int64_t n, int64_t width, float scale,
            float *SKF_RESTRICT slope, float *SKF_RESTRICT sums),
           (value, step, leaf, margin, g, slot, n, width, scale, slope, sums))
{
#define SKF_CALL(w)                                                                              \
    skf_gradient_loop(lanes, value, step, leaf, margin, g, slot, n, w, scale, slope, sums)
    SKF_FOR_WIDTH(SKF_CALL)
#undef SKF_CALL
}

SKF_INLINE void skf_step_loop(const skf_stepper h, float *w, int64_t w_step, float *m, float *v,
                              int64_t step, const float *g, const int32_t *row, int64_t n,
                              int64_t width)
{
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = row ? row[i] : i;
        float *SKF_RESTRICT wi = w + at * w_step;
        float *SKF_RESTRICT mi = m + at * step;
        float *SKF_RESTRICT vi = v + at * step;
        const float *gi = g + i * width;
        if (row && i + SKF_AHEAD < n) {
            SKF_FETCH(m + row[i + SKF_AHEAD] * step);
            SKF_FETCH(v + row[i + SKF_AHEAD] * step);
        }
        if (h.kind == 0) {
            for (int64_t k = 0; k < width; k++) {
                const float mean = mi[k] + h.first * (gi[k] - mi[k]);
                const float power = vi[k] + h.second * (gi[k] * gi[k] - vi[k]);
                mi[k] = mean;
                vi[k] = power;
                wi[k] -= h.decay * wi[k] +
                         h.rate * h.unbias_first * mean /
                             (sqrtf(h.unbias_second * power) + 1e-8f);
            }
        } else if (h.kind == 1) {
            for (int64_t k = 0; k < width; k++) {
                const float power = vi[k] + gi[k] * gi[k];
                vi[k] = power;
                wi[k] -= h.decay * wi[k] + h.rate * gi[k] / (sqrtf(power) + 1e-30f);
            }
        } else {
            for (int64_t k = 0; k < width; k++) {
                const float speed = h.momentum * mi[k] + gi[k];
                mi[k] = speed;
                wi[k] -= h.decay * wi[k] + h.rate * speed;
            }
        }
    }
}

/* One step of n vectors of `width` against their gradients g. Vector i begins at w + row[i] w_step,
 * its moments at m and v + row[i] step; without `row`, row[i] = i. */
SKF_KERNEL(skf_hinge_step,
           (const skf_stepper *how, float *w, int64_t w_step, float *m, float *v, int64_t step,
            const float *g, const int32_t *row, int64_t n, int64_t width),
           (how, w, w_step, m, v, step, g, row, n, width))
{
#define SKF_CALL(k) skf_step_loop(*how, w, w_step, m, v, step, g, row, n, k)
    SKF_FOR_WIDTH(SKF_CALL)
#undef SKF_CALL
}

#endif
