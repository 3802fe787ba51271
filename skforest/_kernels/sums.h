/* Routing rows of bytes through trees of boxes by tables of sums.
 *
 * S[r][c] is the sum of the bytes above and left of (r, c), so that a box of any size is four
 * look-ups, and the contrast of two boxes is eight. Whole numbers wrap around, which cancels: rows
 * take exactly the branches that they take node by node. Eight rows descend side by side, so that
 * eight chains of look-ups are under way at once.
 */
#ifndef SKFOREST_SUMS_H
#define SKFOREST_SUMS_H

#include "simd.h"

#define SKF_ABREAST 8

#if defined(__GNUC__)
#define SKF_PREFETCH(address) __builtin_prefetch(address)
#else
#define SKF_PREFETCH(address)
#endif

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
                    SKF_PREFETCH(steps + at[l]);                                                 \
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

#endif
