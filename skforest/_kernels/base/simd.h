/* Vector code: how a loop gets its variants, and the projections of a list of rows.
 *
 * Every loop is written once, as the body of SKF_KERNEL. If gcc or clang targets x86-64, it is
 * compiled three times (baseline, AVX2, AVX-512), and a switch takes the widest variant that the
 * processor has. Otherwise, there is one variant: NEON belongs to the arm64 baseline, and other
 * compilers get plain C. All variants give the same bits: each sample adds in a fixed order,
 * floating-point contraction is off (-ffp-contract=off), and -ffast-math is not used.
 * Loops over vectors, in lanes.h, have vectors as long as a register of the variant.
 *
 * Off switches: compile with -DSKFOREST_NO_SIMD, or set the environment variable SKFOREST_SIMD to
 * 0 (baseline), 1 (at most AVX2) or 2 (at most AVX-512) before skforest is imported.
 */
#ifndef SKFOREST_SIMD_H
#define SKFOREST_SIMD_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(SKFOREST_NO_SIMD)
#define SKF_X86 1
#else
#define SKF_X86 0
#endif

#if (defined(__x86_64__) || defined(_M_X64)) && !defined(SKFOREST_NO_SIMD)
#define SKF_SSE2 1
#include <emmintrin.h>
#else
#define SKF_SSE2 0
#endif

#if defined(__GNUC__)
#define SKF_INLINE static inline __attribute__((always_inline, unused))
#define SKF_UNUSED __attribute__((unused))
#define SKF_RESTRICT __restrict__
#elif defined(_MSC_VER)
#define SKF_INLINE static __forceinline
#define SKF_UNUSED
#define SKF_RESTRICT __restrict
#else
#define SKF_INLINE static inline
#define SKF_UNUSED
#define SKF_RESTRICT restrict
#endif

/* `#pragma omp simd` (needs -fopenmp-simd, but no OpenMP library) lets the compiler reorder the
 * minimum and maximum of a loop, which changes no bit. */
#if defined(__GNUC__)
#define SKF_PRAGMA(text) _Pragma(#text)
#define SKF_SIMD(clauses) SKF_PRAGMA(omp simd clauses)
#else
#define SKF_SIMD(clauses)
#endif

#if SKF_X86
/* 0 baseline, 1 AVX2, 2 AVX-512; -1 before the first call */
static int skf_level_cached = -1;

SKF_INLINE int skf_detect_level(void)
{
    int level = 0;
    const char *wish = getenv("SKFOREST_SIMD");
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        level = 1;
    if (level == 1 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        level = 2;
    if (wish != NULL && wish[0] >= '0' && wish[0] <= '2' && wish[1] == 0 && wish[0] - '0' < level)
        level = wish[0] - '0';
    return level;
}

/* Threads that arrive here at once find the same level; its accesses are atomic. */
SKF_INLINE int skf_level(void)
{
    int level = __atomic_load_n(&skf_level_cached, __ATOMIC_RELAXED);
    if (level < 0) {
        level = skf_detect_level();
        __atomic_store_n(&skf_level_cached, level, __ATOMIC_RELAXED);
    }
    return level;
}
#else
SKF_INLINE int skf_level(void)
{
    return 0;
}
#endif

/* SKF_KERNEL(name, (parameters), (arguments)) { body }. In the body, the constant `lanes` is the
 * number of floats in a vector register of the variant. */
#define SKF_LIST(...) __VA_ARGS__
#if SKF_X86
#define SKF_AVX2 __attribute__((target("avx2"), unused))
#define SKF_AVX512                                                                               \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"), unused))
#define SKF_KERNEL(name, params, args)                                                           \
    SKF_INLINE void name##_body(const int lanes SKF_UNUSED, SKF_LIST params);                    \
    SKF_AVX512 static void name##_avx512 params { name##_body(16, SKF_LIST args); }              \
    SKF_AVX2 static void name##_avx2 params { name##_body(8, SKF_LIST args); }                   \
    SKF_UNUSED static void name##_base params { name##_body(4, SKF_LIST args); }                 \
    SKF_UNUSED static void name params                                                           \
    {                                                                                            \
        switch (skf_level()) {                                                                   \
        case 2: name##_avx512 args; break;                                                       \
        case 1: name##_avx2 args; break;                                                         \
        default: name##_base args;                                                               \
        }                                                                                        \
    }                                                                                            \
    SKF_INLINE void name##_body(const int lanes SKF_UNUSED, SKF_LIST params)
#else
#define SKF_KERNEL(name, params, args)                                                           \
    SKF_INLINE void name##_body(const int lanes SKF_UNUSED, SKF_LIST params);                    \
    SKF_UNUSED static void name params { name##_body(4, SKF_LIST args); }                        \
    SKF_INLINE void name##_body(const int lanes SKF_UNUSED, SKF_LIST params)
#endif

/* --------------------------------------------------------------------------- vectors of floats */

/* Rows that are processed together, so that one transposition adds their chains. */
#define SKF_ROWS 16
#define SKF_CHAINS 16       /* of additions, in a sum over the features of a row */
#define SKF_DENSE_CHAINS 32 /* the same for dense directions */
#define SKF_BYTE_BLOCK 512  /* bytes of a row that become floats together */
#define SKF_BIT_ROWS 32     /* rows whose splits are decided together, see route.h */

/* Row i, or the last row beyond the end, so that four rows can always be read. */
#define SKF_ROW(i) (table + offset[(i) < n ? (i) : n - 1])

/* The sum of SKF_CHAINS chains: the first half is added to the second half, until one is left. */
SKF_INLINE float skf_add_chain(const float *chain)
{
    float four[4];
    for (int l = 0; l < 4; l++)
        four[l] = (chain[l] + chain[l + 8]) + (chain[l + 4] + chain[l + 12]);
    return (four[0] + four[2]) + (four[1] + four[3]);
}

#define SKF_PASTE_BOTH(a, b) a##_##b
#define SKF_PASTE(a, b) SKF_PASTE_BOTH(a, b)
#define SKF_L(name) SKF_PASTE(name, SKF_LANES)
#if defined(__GNUC__)
#define SKF_LANES 4
#include "lanes.h"
#undef SKF_LANES
#define SKF_LANES 8
#include "lanes.h"
#undef SKF_LANES
#define SKF_LANES 16
#include "lanes.h"
#undef SKF_LANES
/* Calls the loop for the vector registers of a variant. */
#define SKF_BY_LANES(name, ...)                                                                  \
    (lanes == 16  ? name##_16(__VA_ARGS__)                                                       \
     : lanes == 8 ? name##_8(__VA_ARGS__)                                                        \
                  : name##_4(__VA_ARGS__))
#else
#define SKF_LANES 1
#include "lanes.h"
#undef SKF_LANES
#define SKF_BY_LANES(name, ...) name##_1(__VA_ARGS__)
#endif

/* Samples are processed in blocks of SKF_BLOCK, as independent chains of additions. */
#define SKF_BLOCK 16

/* ---------------------------------------------------------------- projections: a list of rows */

/* The bits of n half-precision numbers as floats. The conversion is exact; infinity and NaN, which no
 * forest contains, are not supported. */
SKF_KERNEL(skf_widen, (const uint16_t *half, int64_t n, float *SKF_RESTRICT out), (half, n, out))
{
    for (int64_t i = 0; i < n; i++) {
        /* The bias of the exponent is 127 instead of 15, for subnormal numbers, too. */
        const uint32_t bits = (uint32_t)(half[i] & 0x7FFF) << 13;
        const uint32_t sign = (uint32_t)(half[i] & 0x8000) << 16;
        float size;
        uint32_t whole;
        memcpy(&size, &bits, sizeof size);
        size *= 0x1p112f;
        memcpy(&whole, &size, sizeof whole);
        whole |= sign;
        memcpy(out + i, &whole, sizeof whole);
    }
}

/* A sparse direction: out[i] = sum_t weight[t] * table[offset[i] + position[t]], t ascending. */
#define SKF_SPARSE_BODY                                                                            \
    int64_t i = 0;                                                                               \
    for (; i + SKF_BLOCK <= n; i += SKF_BLOCK) {                                                 \
        float sum[SKF_BLOCK] = {0};                                                              \
        for (int t = 0; t < n_terms; t++) {                                                       \
            const int64_t p = position[t];                                                       \
            const float w = weight[t];                                                           \
            for (int s = 0; s < SKF_BLOCK; s++)                                                  \
                sum[s] += w * (float)table[offset[i + s] + p];                                   \
        }                                                                                        \
        for (int s = 0; s < SKF_BLOCK; s++)                                                      \
            out[i + s] = sum[s];                                                                 \
    }                                                                                            \
    for (; i < n; i++) {                                                                         \
        float sum = 0;                                                                           \
        for (int t = 0; t < n_terms; t++)                                                         \
            sum += weight[t] * (float)table[offset[i] + position[t]];                            \
        out[i] = sum;                                                                            \
    }

/* Sums of bytes: word t covers the bytes position[t] .. position[t] + 7 of a row, and mask[t] keeps
 * some of them; the first n_plus words add, the others subtract. Integer arithmetic is exact. SSE2,
 * which every x86-64 has, adds the eight bytes of a word in one instruction and takes two samples at
 * a time; gathers are slower, so there are no wider variants. */
SKF_INLINE uint64_t skf_byte_mask(int first, int n)
{
    const uint64_t bytes = ~(uint64_t)0 >> (64 - 8 * n);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return bytes << (64 - 8 * (first + n));
#else
    return bytes << (8 * first);
#endif
}

SKF_INLINE uint64_t skf_load_word(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

#if SKF_SSE2
SKF_INLINE __m128i skf_load_two(const uint8_t *first, const uint8_t *second)
{
    const __m128i word = _mm_loadl_epi64((const __m128i *)first);
    return _mm_castpd_si128(_mm_loadh_pd(_mm_castsi128_pd(word), (const double *)second));
}

/* Adds (sign 1) or subtracts the words from .. to - 1 of 2 * pairs samples. */
SKF_INLINE void skf_sum_words(const uint8_t *table, const int64_t *offset, int pairs,
                              const int32_t *position, const uint64_t *mask, int from, int to,
                              __m128i *sum)
{
    const __m128i zero = _mm_setzero_si128();
    for (int t = from; t < to; t++) {
        const uint8_t *at = table + position[t];
        const __m128i keep = _mm_set1_epi64x((long long)mask[t]);
        for (int k = 0; k < pairs; k++) {
            const __m128i word = skf_load_two(at + offset[2 * k], at + offset[2 * k + 1]);
            sum[k] = _mm_add_epi64(sum[k], _mm_sad_epu8(_mm_and_si128(word, keep), zero));
        }
    }
}

SKF_INLINE void skf_words_block(const uint8_t *table, const int64_t *offset, int pairs,
                                const int32_t *position, const uint64_t *mask, int n_plus,
                                int n_words, float *out)
{
    __m128i plus[4], minus[4];
    for (int k = 0; k < pairs; k++)
        plus[k] = minus[k] = _mm_setzero_si128();
    skf_sum_words(table, offset, pairs, position, mask, 0, n_plus, plus);
    if (n_plus < n_words)
        skf_sum_words(table, offset, pairs, position, mask, n_plus, n_words, minus);
    for (int k = 0; k < pairs; k++) {
        const __m128i sum = _mm_shuffle_epi32(_mm_sub_epi64(plus[k], minus[k]), 0x08);
        _mm_storel_pi((__m64 *)(out + 2 * k), _mm_cvtepi32_ps(sum));
    }
}

SKF_UNUSED static void skf_words_u8(const uint8_t *table, const int64_t *offset, int64_t n,
                                    const int32_t *position, const uint64_t *mask, int n_plus,
                                    int n_words, float *SKF_RESTRICT out)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        skf_words_block(table, offset + i, 4, position, mask, n_plus, n_words, out + i);
    for (; i + 2 <= n; i += 2)
        skf_words_block(table, offset + i, 1, position, mask, n_plus, n_words, out + i);
    if (i < n) {
        const int64_t twice[2] = {offset[i], offset[i]};
        float both[2];
        skf_words_block(table, twice, 1, position, mask, n_plus, n_words, both);
        out[i] = both[0];
    }
}
#else
SKF_INLINE int64_t skf_sum_word(uint64_t word)
{
    const uint64_t even = 0x00FF00FF00FF00FFu;
    const uint64_t pairs = (word & even) + ((word >> 8) & even);
    return (int64_t)((pairs * 0x0001000100010001u) >> 48);
}

SKF_UNUSED static void skf_words_u8(const uint8_t *table, const int64_t *offset, int64_t n,
                                    const int32_t *position, const uint64_t *mask, int n_plus,
                                    int n_words, float *SKF_RESTRICT out)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (int t = 0; t < n_plus; t++)
            sum += skf_sum_word(skf_load_word(table + offset[i] + position[t]) & mask[t]);
        for (int t = n_plus; t < n_words; t++)
            sum -= skf_sum_word(skf_load_word(table + offset[i] + position[t]) & mask[t]);
        out[i] = (float)sum;
    }
}
#endif

/* The same for floats: word t covers position[t] .. position[t] + 3, bit l of mask[t] keeps lane l.
 * Lanes add up over the quads first, then (0 + 1) + (2 + 3): one order everywhere. */
#if SKF_SSE2
SKF_INLINE __m128 skf_lane_mask(uint64_t mask)
{
    const int bits = (int)mask;
    return _mm_castsi128_ps(_mm_set_epi32(-(bits >> 3 & 1), -(bits >> 2 & 1), -(bits >> 1 & 1),
                                          -(bits & 1)));
}

SKF_INLINE void skf_sum_quads(const float *table, const int64_t *offset, int n,
                              const int32_t *position, const uint64_t *mask, int from, int to,
                              __m128 *sum)
{
    for (int t = from; t < to; t++) {
        const float *at = table + position[t];
        const __m128 keep = skf_lane_mask(mask[t]);
        for (int s = 0; s < n; s++)
            sum[s] = _mm_add_ps(sum[s], _mm_and_ps(_mm_loadu_ps(at + offset[s]), keep));
    }
}

SKF_INLINE __m128 skf_four_sums(__m128 *sum)
{
    _MM_TRANSPOSE4_PS(sum[0], sum[1], sum[2], sum[3]);
    return _mm_add_ps(_mm_add_ps(sum[0], sum[1]), _mm_add_ps(sum[2], sum[3]));
}

SKF_UNUSED static void skf_words_f32(const float *table, const int64_t *offset, int64_t n,
                                     const int32_t *position, const uint64_t *mask, int n_plus,
                                     int n_words, float *SKF_RESTRICT out)
{
    for (int64_t i = 0; i < n; i += 4) {
        const int rest = n - i < 4 ? (int)(n - i) : 4;
        int64_t at[4];
        __m128 plus[4], minus[4], result;
        for (int s = 0; s < 4; s++) {
            at[s] = offset[i + (s < rest ? s : rest - 1)];
            plus[s] = minus[s] = _mm_setzero_ps();
        }
        skf_sum_quads(table, at, 4, position, mask, 0, n_plus, plus);
        result = skf_four_sums(plus);
        if (n_plus < n_words) {
            skf_sum_quads(table, at, 4, position, mask, n_plus, n_words, minus);
            result = _mm_sub_ps(result, skf_four_sums(minus));
        }
        if (rest == 4)
            _mm_storeu_ps(out + i, result);
        else {
            float four[4];
            _mm_storeu_ps(four, result);
            memcpy(out + i, four, (size_t)rest * sizeof(float));
        }
    }
}
#else
SKF_INLINE float skf_sum_quads(const float *row, const int32_t *position, const uint64_t *mask,
                               int from, int to)
{
    float lane[4] = {0};
    for (int t = from; t < to; t++)
        for (int l = 0; l < 4; l++)
            lane[l] += mask[t] >> l & 1 ? row[position[t] + l] : 0.0f;
    return (lane[0] + lane[1]) + (lane[2] + lane[3]);
}

SKF_UNUSED static void skf_words_f32(const float *table, const int64_t *offset, int64_t n,
                                     const int32_t *position, const uint64_t *mask, int n_plus,
                                     int n_words, float *SKF_RESTRICT out)
{
    for (int64_t i = 0; i < n; i++) {
        const float *row = table + offset[i];
        out[i] = skf_sum_quads(row, position, mask, 0, n_plus);
        if (n_plus < n_words)
            out[i] -= skf_sum_quads(row, position, mask, n_plus, n_words);
    }
}
#endif

/* ---------------------------------------------------------------------- projections by dtype */

enum { SKF_ONE, SKF_WEIGHTED, SKF_WORDS, SKF_DENSE };

/* A direction, unfolded for tables of one dtype and width. */
typedef struct {
    int32_t kind;
    int32_t n;           /* terms of the sum */
    int32_t n_plus;      /* words that add; the others subtract */
    int32_t *position;   /* of each term in a row */
    float *weight;
    uint64_t *mask;      /* of each word */
    int32_t *along;      /* scratch: chosen offsets along the axes */
    const float *dense;  /* one weight for every feature */
} skf_direction;

/* skf_project: out[i] = a . x of the row that starts at table[offset[i]], for n rows. */
#define SKF_PROJECTION(suffix, type)                                                             \
    SKF_KERNEL(skf_axis_##suffix,                                                                \
               (const type *table, const int64_t *offset, int64_t n, int64_t position,           \
                float *SKF_RESTRICT out),                                                        \
               (table, offset, n, position, out))                                                \
    {                                                                                            \
        for (int64_t i = 0; i < n; i++)                                                          \
            out[i] = (float)table[offset[i] + position];                                         \
    }                                                                                            \
                                                                                                 \
    SKF_KERNEL(skf_sparse_##suffix,                                                              \
               (const type *table, const int64_t *offset, int64_t n, const int32_t *position,    \
                const float *weight, int n_terms, float *SKF_RESTRICT out),                      \
               (table, offset, n, position, weight, n_terms, out))                               \
    {                                                                                            \
        SKF_SPARSE_BODY                                                                          \
    }                                                                                            \
                                                                                                 \
    SKF_KERNEL(skf_dense_##suffix,                                                               \
               (const type *table, const int64_t *offset, int64_t n, const float *weight,        \
                int64_t p, float *SKF_RESTRICT out),                                             \
               (table, offset, n, weight, p, out))                                               \
    {                                                                                            \
        SKF_BY_LANES(skf_dense_loop, table, sizeof(type) == 1, offset, n, weight, p, out);       \
    }                                                                                            \
                                                                                                 \
    SKF_UNUSED static void skf_project_##suffix(const skf_direction *a, const type *table,       \
                                                const int64_t *offset, int64_t n,                \
                                                float *SKF_RESTRICT out)                         \
    {                                                                                            \
        switch (a->kind) {                                                                       \
        case SKF_ONE: skf_axis_##suffix(table, offset, n, a->position[0], out); break;       \
        case SKF_WEIGHTED:                                                                         \
            skf_sparse_##suffix(table, offset, n, a->position, a->weight, a->n, out);            \
            break;                                                                               \
        case SKF_WORDS:                                                                          \
            skf_words_##suffix(table, offset, n, a->position, a->mask, a->n_plus, a->n, out);    \
            break;                                                                               \
        default: skf_dense_##suffix(table, offset, n, a->dense, a->n, out);                      \
        }                                                                                        \
    }

SKF_PROJECTION(u8, uint8_t)
SKF_PROJECTION(f32, float)

#endif
