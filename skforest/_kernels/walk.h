/* Rows that walk through a tree whose projections are all at hand.
 *
 * Eight rows go down side by side, so that eight chains of loads are under way at once; what lies
 * beside the way is stored, and looked at later, eight rows in a vector.
 */
#ifndef SKFOREST_WALK_H
#define SKFOREST_WALK_H

#include "simd.h"

#define SKF_ABREAST 8
/* Levels from one look at whether all rows have arrived to the next. */
#define SKF_LEVELS 8

/* Keeps an integer where it can serve as an address: gcc would put eight of them into a vector, and
 * take them out again one by one. */
#if defined(__GNUC__)
#define SKF_KEEP(integer) __asm__("" : "+r"(integer))
#else
#define SKF_KEEP(integer) ((void)0)
#endif

/* A leaf is its own child, of infinite threshold and a column of zeros, so that it keeps its rows. */
typedef struct {
    float threshold;
    uint32_t column, child;
} skf_node;

/* Leaf of n rows in a tree of some depth, and the smallest margin on the way to it, or NULL; row i has
 * its projections from pool[i stride] on. As a walk node by node: right where not `projection <=
 * threshold`, and the first margin counts even if it is NaN. A tree without splits leaves margins of
 * 0. */
SKF_KERNEL(skf_walk_pool,
           (const float *pool, int64_t stride, int64_t n, const skf_node *tree, int32_t depth,
            int32_t *SKF_RESTRICT leaf, float *SKF_RESTRICT margin),
           (pool, stride, n, tree, depth, leaf, margin))
{
    for (int64_t i = 0; i < n; i += SKF_ABREAST) {
        const int n_rows = n - i < SKF_ABREAST ? (int)(n - i) : SKF_ABREAST;
        const float *row[SKF_ABREAST];
        uint32_t node[SKF_ABREAST];
        float least[SKF_ABREAST];
        int busy = 1;
        for (int l = 0; l < SKF_ABREAST; l++) {
            row[l] = pool + (i + (l < n_rows ? l : 0)) * stride;
            node[l] = 0;
            least[l] = 0;
        }
        for (int32_t done = 0; done < depth && busy; done += SKF_LEVELS) {
            const int n_levels = depth - done < SKF_LEVELS ? depth - done : SKF_LEVELS;
            float found[SKF_LEVELS][SKF_ABREAST];
            for (int level = 0; level < n_levels; level++)
                for (int l = 0; l < SKF_ABREAST; l++) {
                    const skf_node *at = tree + node[l];
                    const float value = row[l][at->column];
                    found[level][l] = value - at->threshold;
                    node[l] = at->child + !(value <= at->threshold);
                    SKF_KEEP(node[l]);
                }
            busy = 0;
            for (int l = 0; l < SKF_ABREAST; l++)
                busy |= tree[node[l]].child != node[l];
            if (margin == NULL)
                continue;
            if (done == 0)
                for (int l = 0; l < SKF_ABREAST; l++)
                    least[l] = fabsf(found[0][l]);
            for (int level = 0; level < n_levels; level++)
                SKF_SIMD()
                for (int l = 0; l < SKF_ABREAST; l++) {
                    const float m = fabsf(found[level][l]);
                    least[l] = m < least[l] ? m : least[l];
                }
        }
        for (int l = 0; l < n_rows; l++)
            leaf[i + l] = (int32_t)node[l];
        if (margin != NULL)
            for (int l = 0; l < n_rows; l++)
                margin[i + l] = least[l];
    }
}

/* Values of leaves lie far apart in memory: they are asked for some rows ahead. */
#define SKF_AHEAD 6
#if defined(__GNUC__)
#define SKF_FETCH(pointer) __builtin_prefetch(pointer)
#else
#define SKF_FETCH(pointer) ((void)(pointer))
#endif

/* out_i += weight[i] value, of n rows, each with `width` values of its leaf in a tree with these
 * children; a weight is 1 without `weight`. */
SKF_KERNEL(skf_add_values,
           (const float *value, int64_t width, const int32_t *child, const int32_t *leaf,
            const float *weight, int64_t n, double *SKF_RESTRICT out),
           (value, width, child, leaf, weight, n, out))
{
    for (int64_t i = 0; i < n; i++) {
        const float *v = value + (-1 - (int64_t)child[leaf[i]]) * width;
        const double w = weight == NULL ? 1 : weight[i];
        double *o = out + i * width;
        if (i + SKF_AHEAD < n) {
            const float *later = value + (-1 - (int64_t)child[leaf[i + SKF_AHEAD]]) * width;
            SKF_FETCH(later);
            SKF_FETCH(later + width - 1);
        }
        for (int64_t k = 0; k < width; k++)
            o[k] += w * v[k];
    }
}

#endif
