/* Numbers that are bytes. */
#ifndef SKFOREST_WHOLE_H
#define SKFOREST_WHOLE_H

#include "simd.h"

#define SKF_WHOLE 64 /* numbers that are converted, and then compared */

/* Write x[0..n-1] as bytes, and return whether all of them are whole numbers from 0 to 255. Each
 * loop over a block is vectorised; a single one would not be. */
#define SKF_WRITE_BYTES(name, number)                                                            \
    SKF_KERNEL(name, (const number *x, int64_t n, uint8_t *SKF_RESTRICT byte, int *is_whole),    \
               (x, n, byte, is_whole))                                                           \
    {                                                                                            \
        int32_t whole[SKF_WHOLE], differs = 0;                                                   \
        for (int64_t start = 0; start < n; start += SKF_WHOLE) {                                 \
            int m = (int)(n - start < SKF_WHOLE ? n - start : SKF_WHOLE);                        \
            for (int j = 0; j < m; j++) {                                                        \
                number z = x[start + j] > 0 ? x[start + j] : 0; /* also for NaN */               \
                whole[j] = (int32_t)(z < 255 ? z : 255);                                         \
            }                                                                                    \
            for (int j = 0; j < m; j++)                                                          \
                differs |= (number)whole[j] != x[start + j];                                     \
            for (int j = 0; j < m; j++)                                                          \
                byte[start + j] = (uint8_t)whole[j];                                             \
        }                                                                                        \
        *is_whole = differs == 0;                                                                \
    }

SKF_WRITE_BYTES(skf_write_bytes_f32, float)
SKF_WRITE_BYTES(skf_write_bytes_f64, double)

#endif
