/* Products of dense matrices in float32, in a fixed order of additions. */
#ifndef SKFOREST_MATMUL_H
#define SKFOREST_MATMUL_H

#include "descent.h"

/* Columns of a product that are summed together: two vectors for each of four rows, which is as much
 * as the registers hold. */
#define SKF_TILE (2 * SKF_WIDTH)

/* out = a b, for n rows of a, where a[i, j] is a[i row_step + j column_step]. b has `depth` rows,
 * b_step floats apart, of which `width` columns count, a multiple of SKF_TILE. Every entry adds in
 * the order of j: BLAS does not promise an order, and its bits depend on its threads. */
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
