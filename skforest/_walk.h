/* Floor 0: rows that walk through a tree whose projections are all at hand.
 *
 * Eight rows go down side by side, so that eight chains of loads are under way at once.
 */
#ifndef SKFOREST_WALK_H
#define SKFOREST_WALK_H

#include "_simd.h"

#define SKF_ABREAST 8

typedef struct {
    float threshold;
    int32_t column;
} skf_split;

/* Leaf of n rows, and the smallest margin on the way to it; row i has its projections from
 * pool[i stride] on. As a walk node by node: right where not `projection <= threshold`, and the
 * first margin counts even if it is NaN. A tree without splits leaves margins of 0. */
SKF_UNUSED static void skf_walk_pool(const float *pool, int64_t stride, int64_t n,
                                     const int32_t *child, const skf_split *split,
                                     int32_t *SKF_RESTRICT leaf, float *SKF_RESTRICT margin)
{
    for (int64_t i = 0; i < n; i += SKF_ABREAST) {
        const int n_rows = n - i < SKF_ABREAST ? (int)(n - i) : SKF_ABREAST;
        const float *row[SKF_ABREAST];
        int32_t node[SKF_ABREAST];
        float least[SKF_ABREAST];
        int busy = child[0] > 0;
        for (int l = 0; l < SKF_ABREAST; l++) {
            row[l] = pool + (i + (l < n_rows ? l : 0)) * stride;
            node[l] = 0;
            least[l] = 0;
        }
        while (busy) {
            busy = 0;
            for (int l = 0; l < SKF_ABREAST; l++) {
                const int32_t next = child[node[l]];
                const int down = next > 0;
                const skf_split s = split[down ? (next - 1) / 2 : 0];
                const float value = row[l][s.column];
                const float m = fabsf(value - s.threshold);
                const int nearer = down & ((node[l] == 0) | (m < least[l]));
                least[l] = nearer ? m : least[l];
                node[l] = down ? next + !(value <= s.threshold) : node[l];
                busy |= down;
            }
        }
        for (int l = 0; l < n_rows; l++) {
            leaf[i + l] = node[l];
            margin[i + l] = least[l];
        }
    }
}

#endif
