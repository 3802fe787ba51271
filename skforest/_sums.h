/* Floor 0: walking trees of boxes by tables of sums.
 *
 * S[r][c] is the sum of the bytes above and left of (r, c), so that a box of any size is four
 * look-ups, and the contrast of two boxes is eight. Whole numbers wrap around, which cancels: the
 * walk takes exactly the turns of the node-by-node walk. Eight rows go down a tree side by side, to
 * have eight chains of look-ups under way at once.
 */
#ifndef SKFOREST_SUMS_H
#define SKFOREST_SUMS_H

#include "_simd.h"

#define SKF_ROWS 8

/* A split: go right where S[at[0]] - S[at[1]] - S[at[2]] + S[at[3]] minus the same of at[4..7]
 * exceeds the threshold. A leaf is a negative number, -1 - (its node). */
typedef struct {
    uint16_t at[8];
    int32_t threshold;
    int32_t left;
    int32_t right;
    int32_t unused;
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
    SKF_INLINE int32_t skf_next_##name(const skf_step *step, const sum_t *sums)                  \
    {                                                                                            \
        const uint16_t *at = step->at;                                                           \
        const sum_t one = (sum_t)(sums[at[0]] - sums[at[1]] - sums[at[2]] + sums[at[3]]);        \
        const sum_t two = (sum_t)(sums[at[4]] - sums[at[5]] - sums[at[6]] + sums[at[7]]);        \
        const int32_t value = (signed_t)(one - two);                                             \
        return value <= step->threshold ? step->left : step->right;                              \
    }                                                                                            \
                                                                                                 \
    /* leaf[i] = node of the leaf of row i; the root is the split `root`, or negative. A row that\
     * has reached its leaf makes room for the next one. */                                      \
    SKF_UNUSED static void skf_walk_##name(const skf_step *steps, int32_t root,                  \
                                           const sum_t *sums, int64_t size, int64_t n,           \
                                           int32_t *leaf)                                        \
    {                                                                                            \
        int64_t row[SKF_ROWS], next = 0;                                                         \
        int32_t node[SKF_ROWS];                                                                  \
        const int lanes = n < SKF_ROWS ? (int)n : SKF_ROWS;                                      \
        for (; next < lanes; next++) {                                                           \
            row[next] = next;                                                                    \
            node[next] = root;                                                                   \
        }                                                                                        \
        while (root >= 0 && next + SKF_ROWS <= n)                                                \
            for (int l = 0; l < SKF_ROWS; l++) {                                                 \
                node[l] = skf_next_##name(steps + node[l], sums + row[l] * size);                \
                if (node[l] < 0) {                                                               \
                    leaf[row[l]] = -1 - node[l];                                                 \
                    row[l] = next++;                                                             \
                    node[l] = root;                                                              \
                }                                                                                \
            }                                                                                    \
        for (int l = 0; l < lanes; l++) {                                                        \
            while (node[l] >= 0)                                                                 \
                node[l] = skf_next_##name(steps + node[l], sums + row[l] * size);                \
            leaf[row[l]] = -1 - node[l];                                                         \
        }                                                                                        \
        for (; next < n; next++) {                                                               \
            int32_t at = root;                                                                   \
            while (at >= 0)                                                                      \
                at = skf_next_##name(steps + at, sums + next * size);                            \
            leaf[next] = -1 - at;                                                                \
        }                                                                                        \
    }

SKF_SUMS(u16, uint16_t, int16_t)
SKF_SUMS(u32, uint32_t, int32_t)

#endif
