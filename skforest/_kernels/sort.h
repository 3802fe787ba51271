/* Sorting of (value, index) pairs, for exact split search.
 *
 * A pair is one 64-bit key: the upper half holds the bits of the float, mapped so that integers
 * compare as the floats do; the lower half holds the index. All keys of an array differ, so the
 * insertion, merge and radix sorts below give the same order. The size decides which one is used.
 */
#ifndef SKFOREST_SORT_H
#define SKFOREST_SORT_H

#include "simd.h"

SKF_INLINE uint64_t skf_sort_key(float value, uint32_t index)
{
    uint32_t bits;
    value += 0.0f; /* -0.0 is 0.0 */
    memcpy(&bits, &value, 4);
    bits ^= (bits >> 31) ? 0xFFFFFFFFu : 0x80000000u;
    return ((uint64_t)bits << 32) | index;
}

SKF_INLINE float skf_key_value(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    float value;
    bits ^= (bits >> 31) ? 0x80000000u : 0xFFFFFFFFu;
    memcpy(&value, &bits, 4);
    return value;
}

SKF_INLINE void skf_insertion_sort(uint64_t *key, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const uint64_t moving = key[i];
        int64_t j = i;
        for (; j > 0 && key[j - 1] > moving; j--)
            key[j] = key[j - 1];
        key[j] = moving;
    }
}

/* Bottom-up merge sort over runs of 16. */
SKF_UNUSED static void skf_merge_sort(uint64_t *key, uint64_t *spare, int64_t n)
{
    uint64_t *from = key, *to = spare;
    for (int64_t i = 0; i < n; i += 16)
        skf_insertion_sort(key + i, n - i < 16 ? n - i : 16);
    for (int64_t width = 16; width < n; width *= 2) {
        for (int64_t start = 0; start < n; start += 2 * width) {
            const int64_t middle = start + width < n ? start + width : n;
            const int64_t end = start + 2 * width < n ? start + 2 * width : n;
            int64_t a = start, b = middle;
            for (int64_t out = start; out < end; out++)
                to[out] = (b >= end || (a < middle && from[a] < from[b])) ? from[a++] : from[b++];
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != key)
        memcpy(key, from, (size_t)n * sizeof(uint64_t));
}

/* Radix sort of the value, least significant digit first, by three digits of 11 bits. It is stable,
 * and the keys come in ascending index, so the index need not be sorted. */
SKF_UNUSED static void skf_radix_sort(uint64_t *key, uint64_t *spare, int64_t n)
{
    int64_t count[3][2048];
    uint64_t *from = key, *to = spare;
    memset(count, 0, sizeof(count));
    for (int64_t i = 0; i < n; i++) {
        count[0][(key[i] >> 32) & 2047]++;
        count[1][(key[i] >> 43) & 2047]++;
        count[2][key[i] >> 54]++;
    }
    for (int digit = 0; digit < 3; digit++) {
        const int shift = 32 + 11 * digit;
        int64_t sum = 0;
        if (count[digit][(key[0] >> shift) & 2047] == n)
            continue; /* all keys share this digit */
        for (int d = 0; d < 2048; d++) {
            const int64_t here = count[digit][d];
            count[digit][d] = sum;
            sum += here;
        }
        for (int64_t i = 0; i < n; i++)
            to[count[digit][(from[i] >> shift) & 2047]++] = from[i];
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    if (from != key)
        memcpy(key, from, (size_t)n * sizeof(uint64_t));
}

/* Sort keys made by skf_sort_key with indices ascending from 0. */
SKF_UNUSED static void skf_sort(uint64_t *key, uint64_t *spare, int64_t n)
{
    if (n <= 24)
        skf_insertion_sort(key, n);
    else if (n <= 400)
        skf_merge_sort(key, spare, n);
    else
        skf_radix_sort(key, spare, n);
}

#endif
