/* Rows on their way through a tree over sums or projections that are computed already, and the sum of
 * the values of their leaves.
 *
 * Eight rows descend side by side, so that eight chains of loads are under way at once.
 */
#ifndef SKFOREST_ROUTE_H
#define SKFOREST_ROUTE_H

#include "simd.h"

#if defined(__GNUC__)
#define SKF_FETCH(pointer) __builtin_prefetch(pointer)
#else
#define SKF_FETCH(pointer) ((void)(pointer))
#endif

#define SKF_ABREAST 8
/* Levels between two tests of whether all rows have reached a leaf. */
#define SKF_LEVELS 8

/* ------------------------------------------------------- projections on a pool of directions */

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

/* Differences from the thresholds are stored on the way down; margins are taken from these
 * afterwards, eight rows in a vector.
 *
 * Leaf of n rows in a tree of some depth, and the smallest margin on the path unless `margin` is NULL;
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

/* ---------------------------------------------------------------------- sums over boxes of bytes */

/* S[r][c] is the sum of the bytes above and left of (r, c), so that a box of any size is four
 * look-ups, and the contrast of two boxes is eight. Whole numbers wrap around, which cancels: rows
 * take exactly the branches that they take node by node. */

/* A split: go right where the box at `one` minus the box at `two` (of the same size; none where both
 * are equal) exceeds the threshold. `next` is 4 * (the left child's split) + (1 where the left child
 * is a leaf) + (2 where the right one is); the right child's split stands after the left one's. */
typedef struct {
    uint16_t one;
    uint16_t two;
    uint16_t across; /* from the left to the right edge of the box */
    uint16_t down;   /* from its upper to its lower edge */
    int32_t threshold;
    uint32_t next;
} skf_step;

#define SKF_SUMS(name, sum_t, signed_t)                                                          \
    SKF_UNUSED static void skf_fill_##name(const uint8_t *row, int height, int width, sum_t *sums) \
    {                                                                                            \
        const int stride = width + 1;                                                            \
        memset(sums, 0, (size_t)stride * sizeof(sum_t));                                         \
        for (int r = 0; r < height; r++) {                                                       \
            const sum_t *above = sums + r * stride;                                              \
            sum_t *here = sums + (r + 1) * stride;                                               \
            sum_t sum = 0;                                                                       \
            here[0] = 0;                                                                         \
            for (int c = 0; c < width; c++) {                                                    \
                sum = (sum_t)(sum + row[r * width + c]);                                         \
                here[c + 1] = (sum_t)(above[c + 1] + sum);                                       \
            }                                                                                    \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    SKF_INLINE uint32_t skf_right_##name(const skf_step *step, const sum_t *sums)                \
    {                                                                                            \
        const sum_t *a = sums + step->one, *b = sums + step->two;                                \
        const int x = step->across, y = step->down;                                              \
        const sum_t one = (sum_t)(a[x + y] - a[x] - a[y] + a[0]);                                \
        const sum_t two = (sum_t)(b[x + y] - b[x] - b[y] + b[0]);                                \
        const sum_t contrast = (sum_t)(step->one == step->two ? 0 : ~(sum_t)0);                  \
        return (int32_t)(signed_t)(sum_t)(one - (two & contrast)) > step->threshold;             \
    }                                                                                            \
                                                                                                 \
    /* leaf[i] = node of the leaf of row i, where the root is the split `root` and first[s] is the\
     * left child of split s. A row that has reached its leaf is replaced by the next row. */    \
    SKF_UNUSED static void skf_route_##name(const skf_step *steps, const int32_t *first, int32_t root,\
                                           const sum_t *sums, int64_t size, int64_t n,           \
                                           int32_t *leaf)                                        \
    {                                                                                            \
        uint32_t at[SKF_ABREAST];                                                                \
        int64_t row[SKF_ABREAST], next = 0;                                                      \
        int n_lanes = 0;                                                                         \
        for (; n_lanes < SKF_ABREAST && next < n; n_lanes++) {                                   \
            at[n_lanes] = (uint32_t)root;                                                        \
            row[n_lanes] = next++;                                                               \
        }                                                                                        \
        while (n_lanes)                                                                          \
            for (int l = 0; l < n_lanes; l++) {                                                  \
                const skf_step *step = steps + at[l];                                            \
                const uint32_t right = skf_right_##name(step, sums + row[l] * size);             \
                if (!(step->next >> right & 1)) {                                                \
                    at[l] = (step->next >> 2) + (right & ~step->next & 1);                       \
                    SKF_FETCH(steps + at[l]);                                                    \
                    continue;                                                                    \
                }                                                                                \
                leaf[row[l]] = first[at[l]] + (int32_t)right;                                    \
                if (next < n) {                                                                  \
                    at[l] = (uint32_t)root;                                                      \
                    row[l] = next++;                                                             \
                } else {                                                                         \
                    n_lanes--;                                                                   \
                    at[l] = at[n_lanes];                                                         \
                    row[l] = row[n_lanes];                                                       \
                }                                                                                \
            }                                                                                    \
    }

SKF_SUMS(u16, uint16_t, int16_t)
SKF_SUMS(u32, uint32_t, int32_t)

/* ------------------------------------------------------------------------------- values of leaves */

/* Values of leaves lie far apart in memory: they are fetched some rows ahead. */
#define SKF_AHEAD 6

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
