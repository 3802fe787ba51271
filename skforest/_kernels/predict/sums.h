/* Routing of rows through trees by sums over boxes of bytes.
 *
 * S[r][c] is the sum of the bytes above and left of (r, c), so a box of any size is four look-ups,
 * and the contrast of two boxes is eight. Overflows of integers cancel: rows take the same branches
 * as node by node.
 */
#ifndef SKFOREST_SUMS_H
#define SKFOREST_SUMS_H

#include "route.h"

/* A split: go right if the first box minus the second one exceeds the threshold. `place` has the four
 * look-ups of each, of which the first and the last one are added; if there is no second box, its
 * look-ups are the same. `next` is 4 * (split of the left child) + (1 if the left child is a leaf) +
 * (2 if the right one is); the split of the right child follows. */
typedef struct {
    uint16_t place[8];
    int32_t threshold;
    uint32_t next;
} skf_step;

/* A split at the top of a tree: the exits from the top that remain if a row goes right. There are at
 * most SKF_CANDIDATES exits, counted from the left: splits below the top, and leaves. */
typedef struct {
    uint64_t kept;
    int64_t step;
} skf_top;

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
    SKF_INLINE uint32_t skf_right_##name(const skf_step *step, const sum_t *sums,                \
                                         int has_contrasts)                                      \
    {                                                                                            \
        const uint16_t *at = step->place;                                                        \
        const sum_t one = (sum_t)(sums[at[0]] - sums[at[1]] - sums[at[2]] + sums[at[3]]);        \
        const sum_t two = (sum_t)(has_contrasts ? sums[at[4]] - sums[at[5]] - sums[at[6]] +      \
                                                      sums[at[7]]                                \
                                                : 0);                                            \
        return (int32_t)(signed_t)(sum_t)(one - two) > step->threshold;                          \
    }                                                                                            \
                                                                                                 \
    /* columns[32 e + l] = entry e of the table of row l, for n rows. */                         \
    SKF_UNUSED static void skf_turn_##name(const sum_t *sums, int64_t size, int64_t n,           \
                                           sum_t *columns)                                       \
    {                                                                                            \
        for (int64_t e = 0; e < size; e++)                                                       \
            for (int64_t l = 0; l < n; l++)                                                      \
                columns[e * SKF_BIT_ROWS + l] = sums[l * size + e];                              \
    }                                                                                            \
                                                                                                 \
    /* at[l] = exit of row l from the n splits at the top of a tree, which are decided for 32 rows at\
     * a time, as in skf_route_bits. */                                                          \
    SKF_KERNEL(skf_exits_##name,                                                                 \
               (const skf_step *steps, const skf_top *top, int64_t n, const sum_t *columns,      \
                const int32_t *exits, int32_t *SKF_RESTRICT at),                                 \
               (steps, top, n, columns, exits, at))                                              \
    {                                                                                            \
        enum { BITS = 8 * sizeof(sum_t), WORDS = SKF_CANDIDATES / BITS };                        \
        const int32_t most = (int32_t)((sum_t)~(sum_t)0 >> 1);                                   \
        sum_t remaining[WORDS][SKF_BIT_ROWS], left[SKF_BIT_ROWS];                                \
        memset(remaining, 255, sizeof(remaining));                                               \
        for (int64_t k = 0; k < n; k++) {                                                        \
            const skf_step *step = steps + top[k].step;                                          \
            const sum_t *at[8];                                                                  \
            for (int c = 0; c < 8; c++)                                                          \
                at[c] = columns + step->place[c] * SKF_BIT_ROWS;                                 \
            const int32_t cut = step->threshold > most        ? most                             \
                                : step->threshold < -most - 1 ? -most - 1                        \
                                                              : step->threshold;                 \
            const signed_t threshold = (signed_t)cut;                                            \
            if (at[4] == at[7])                                                                  \
                for (int l = 0; l < SKF_BIT_ROWS; l++) {                                         \
                    const sum_t one = (sum_t)(at[0][l] - at[1][l] - at[2][l] + at[3][l]);        \
                    left[l] = (signed_t)one <= threshold ? (sum_t)~(sum_t)0 : 0;                 \
                }                                                                                \
            else                                                                                 \
                for (int l = 0; l < SKF_BIT_ROWS; l++) {                                         \
                    const sum_t one = (sum_t)(at[0][l] - at[1][l] - at[2][l] + at[3][l]);        \
                    const sum_t two = (sum_t)(at[4][l] - at[5][l] - at[6][l] + at[7][l]);        \
                    left[l] = (signed_t)(sum_t)(one - two) <= threshold ? (sum_t)~(sum_t)0 : 0;  \
                }                                                                                \
            for (int w = 0; w < WORDS; w++) {                                                    \
                const sum_t kept = (sum_t)(top[k].kept >> BITS * w);                             \
                if (kept != (sum_t)~(sum_t)0)                                                    \
                    for (int l = 0; l < SKF_BIT_ROWS; l++)                                       \
                        remaining[w][l] &= (sum_t)(left[l] | kept);                              \
            }                                                                                    \
        }                                                                                        \
        for (int l = 0; l < SKF_BIT_ROWS; l++) {                                                 \
            uint64_t word = 0;                                                                   \
            for (int w = 0; w < WORDS; w++)                                                      \
                word |= (uint64_t)remaining[w][l] << BITS * w;                                   \
            at[l] = exits[skf_first_bit(word)];                                                  \
        }                                                                                        \
    }                                                                                            \
                                                                                                 \
    /* leaf[i] = node of the leaf of row i, which starts at the split start[i], or has arrived at the\
     * leaf -1 - start[i]; first[s] is the left child of split s. A row that reaches its leaf is \
     * replaced by the next one of the queue; after the last row, by row n at the split `idle`, which\
     * is then removed. `leaf` and `queue` have SKF_ABREAST spaces more than n. `has_contrasts` is 0\
     * where no split has a second box, whose look-ups are left out. `branches` is 0 for short paths:\
     * a processor cannot predict where they end, and replacing rows without a branch is faster. Both\
     * are constants of the compiler. */                                                         \
    SKF_INLINE void skf_descend_##name(const skf_step *steps, const int32_t *first,              \
                                       const int32_t *start, uint32_t idle, const sum_t *sums,   \
                                       int64_t size, int64_t n, int has_contrasts, int branches, \
                                       uint64_t *queue, int32_t *leaf)                                            \
    {                                                                                            \
        uint64_t lane[SKF_ABREAST];                                                              \
        int64_t next = 0, n_rows = 0;                                                            \
        for (int64_t i = 0; i < n; i++) {                                                        \
            queue[n_rows] = (uint64_t)i << 32 | (uint32_t)start[i];                              \
            n_rows += start[i] >= 0;                                                             \
        }                                                                                        \
        int n_lanes = n_rows < SKF_ABREAST ? (int)n_rows : SKF_ABREAST;                          \
        for (int l = 0; l < SKF_ABREAST; l++)                                                    \
            queue[n_rows + l] = (uint64_t)n << 32 | idle;                                        \
        for (; next < n_lanes; next++)                                                           \
            lane[next] = queue[next];                                                            \
        while (n_lanes) {                                                                        \
            for (int l = 0; l < n_lanes; l++) {                                                  \
                const uint64_t row = lane[l] >> 32, at = (uint32_t)lane[l];                      \
                const skf_step *step = steps + at;                                               \
                const uint32_t below = step->next, right =                                       \
                    skf_right_##name(step, sums + row * (uint64_t)size, has_contrasts);          \
                const uint32_t is_leaf = below >> right & 1;                                     \
                const uint64_t child = (below >> 2) + (right & ~below & 1);                      \
                const uint64_t same = row << 32 | child;                                         \
                lane[l] = same;                                                                  \
                SKF_FETCH(steps + child);                                                        \
                if (branches && !is_leaf)                                                        \
                    continue;                                                                    \
                leaf[row] = (int32_t)(2 * at + right);                                           \
                lane[l] ^= (same ^ queue[next]) & (0 - (uint64_t)is_leaf);                       \
                next += is_leaf;                                                                 \
            }                                                                                    \
            if (next > n_rows) {                                                                 \
                const int n_all = n_lanes;                                                       \
                n_lanes = 0;                                                                     \
                for (int l = 0; l < n_all; l++) {                                                \
                    lane[n_lanes] = lane[l];                                                     \
                    n_lanes += (uint32_t)lane[l] != idle;                                        \
                }                                                                                \
            }                                                                                    \
        }                                                                                        \
        for (int64_t i = 0; i < n; i++)                                                          \
            leaf[i] = start[i] < 0 ? -1 - start[i] : first[leaf[i] >> 1] + (leaf[i] & 1);        \
    }                                                                                            \
                                                                                                 \
    SKF_UNUSED static void skf_route_##name(const skf_step *steps, const int32_t *first,         \
                                            const int32_t *start, uint32_t idle,                 \
                                            const sum_t *sums, int64_t size, int64_t n,          \
                                            int has_contrasts, int branches, uint64_t *queue,    \
                                            int32_t *leaf)                                       \
    {                                                                                            \
        if (has_contrasts && branches)                                                           \
            skf_descend_##name(steps, first, start, idle, sums, size, n, 1, 1, queue, leaf);     \
        else if (has_contrasts)                                                                  \
            skf_descend_##name(steps, first, start, idle, sums, size, n, 1, 0, queue, leaf);     \
        else if (branches)                                                                       \
            skf_descend_##name(steps, first, start, idle, sums, size, n, 0, 1, queue, leaf);     \
        else                                                                                     \
            skf_descend_##name(steps, first, start, idle, sums, size, n, 0, 0, queue, leaf);     \
    }

SKF_SUMS(u16, uint16_t, int16_t)
SKF_SUMS(u32, uint32_t, int32_t)

#endif
