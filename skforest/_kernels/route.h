/* Rows on their way through a tree over projections that are computed already, and the sum of the
 * values of their leaves.
 *
 * Eight rows descend side by side, so that eight chains of loads are under way at once. Their
 * differences from the thresholds are stored on the way, and their margins are taken from these
 * afterwards, eight rows in a vector.
 */
#ifndef SKFOREST_ROUTE_H
#define SKFOREST_ROUTE_H

#include "simd.h"

#define SKF_ABREAST 8
/* Levels between two tests of whether all rows have reached a leaf. */
#define SKF_LEVELS 8

/* Keeps an integer in a register that can serve as an address: gcc would put eight of them into a
 * vector, and take them out again one by one. */
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

/* Leaf of n rows in a tree of some depth, and the smallest margin on the path unless `margin` is NULL;
 * the projections of row i start at pool[i stride]. The same bits as node by node: right where not
 * `projection <= threshold`, and the first margin counts even if it is NaN. A tree without splits
 * gives margins of 0. */
SKF_KERNEL(skf_route_pool,
           (const float *pool, int64_t stride, int64_t n, const skf_node *tree, int32_t depth,
            int32_t *SKF_RESTRICT leaf, float *SKF_RESTRICT margin),
           (pool, stride, n, tree, depth, leaf, margin))
{
    for (int64_t i = 0; i < n; i += SKF_ABREAST) {
        const int n_rows = n - i < SKF_ABREAST ? (int)(n - i) : SKF_ABREAST;
        const float *row[SKF_ABREAST];
        uint32_t node[SKF_ABREAST];
        float least[SKF_ABREAST];
        int moving = 1;
        for (int l = 0; l < SKF_ABREAST; l++) {
            row[l] = pool + (i + (l < n_rows ? l : 0)) * stride;
            node[l] = 0;
            least[l] = 0;
        }
        for (int32_t done = 0; done < depth && moving; done += SKF_LEVELS) {
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
            moving = 0;
            for (int l = 0; l < SKF_ABREAST; l++)
                moving |= tree[node[l]].child != node[l];
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

/* Values of leaves lie far apart in memory: they are fetched some rows ahead. */
#define SKF_AHEAD 6
#if defined(__GNUC__)
#define SKF_FETCH(pointer) __builtin_prefetch(pointer)
#else
#define SKF_FETCH(pointer) ((void)(pointer))
#endif

/* out_i += weight[i] value(leaf_i) for n rows and `width` outputs, in a tree with these children;
 * all weights are 1 where `weight` is NULL. */
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
