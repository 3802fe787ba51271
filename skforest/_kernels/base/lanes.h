/* Loops over rows of floats, for vectors of SKF_LANES floats.
 *
 * simd.h includes this file once for each number of floats in a vector register: 4, 8 and 16, or 1
 * where the compiler has no vectors. SKF_L(name) is the name of a loop for this number, and a
 * kernel calls the loop for its own registers with SKF_BY_LANES. gcc keeps vectors that are longer
 * than a register in memory, which takes up to thirty times as long.
 *
 * Sums over the features of a row have SKF_CHAINS chains of additions: chain l has the features l,
 * l + 16, and so on. Shorter vectors hold a part of the chains, so the bits are the same for every
 * number of lanes.
 */

#if SKF_LANES > 1
typedef float SKF_L(skf_vec) __attribute__((vector_size(4 * SKF_LANES), aligned(4), may_alias));
typedef int32_t SKF_L(skf_bits) __attribute__((vector_size(4 * SKF_LANES), aligned(4), may_alias));
#define SKF_BITS(vector) ((SKF_L(skf_bits))(vector))
#define SKF_AT_MOST(vector, t) ((SKF_L(skf_bits))((vector) <= (t)))
#else
typedef float SKF_L(skf_vec);
typedef int32_t SKF_L(skf_bits);
#define SKF_BITS(value) ((value) != 0)
#define SKF_AT_MOST(value, t) (-((value) <= (t)))
#endif
#define SKF_VEC SKF_L(skf_vec)
#define SKF_AT(at) (*(SKF_VEC *)(at))
#define SKF_IN(at) (*(const SKF_VEC *)(at))
#define SKF_PARTS (SKF_CHAINS / SKF_LANES)

#if SKF_LANES > 1
#if defined(__clang__)
#define SKF_MIX(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SKF_MIX(a, b, ...) __builtin_shuffle(a, b, (SKF_L(skf_bits)){__VA_ARGS__})
#endif
#endif

/* Each halves the lanes of two vectors, which have the sums of 1, 2, 4 or 8 rows, and joins
 * them. */
#if SKF_LANES == 16
#define SKF_FOLD_16(a, b)                                                                        \
    (SKF_MIX(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +                     \
     SKF_MIX(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31))
#define SKF_FOLD_8(a, b)                                                                         \
    (SKF_MIX(a, b, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +                   \
     SKF_MIX(a, b, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31))
#define SKF_FOLD_4(a, b)                                                                         \
    (SKF_MIX(a, b, 0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29) +                   \
     SKF_MIX(a, b, 2, 3, 6, 7, 10, 11, 14, 15, 18, 19, 22, 23, 26, 27, 30, 31))
#define SKF_FOLD_2(a, b)                                                                         \
    (SKF_MIX(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30) +                  \
     SKF_MIX(a, b, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31))
#elif SKF_LANES == 8
#define SKF_FOLD_8(a, b)                                                                         \
    (SKF_MIX(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + SKF_MIX(a, b, 4, 5, 6, 7, 12, 13, 14, 15))
#define SKF_FOLD_4(a, b)                                                                         \
    (SKF_MIX(a, b, 0, 1, 4, 5, 8, 9, 12, 13) + SKF_MIX(a, b, 2, 3, 6, 7, 10, 11, 14, 15))
#define SKF_FOLD_2(a, b)                                                                         \
    (SKF_MIX(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + SKF_MIX(a, b, 1, 3, 5, 7, 9, 11, 13, 15))
#elif SKF_LANES == 4
#define SKF_FOLD_4(a, b) (SKF_MIX(a, b, 0, 1, 4, 5) + SKF_MIX(a, b, 2, 3, 6, 7))
#define SKF_FOLD_2(a, b) (SKF_MIX(a, b, 0, 2, 4, 6) + SKF_MIX(a, b, 1, 3, 5, 7))
#endif

/* sums[r] = the sum of the chains of row r, for SKF_ROWS rows, as `skf_add_chain` adds them. That
 * all rows are added together pays for short rows. */
SKF_INLINE void SKF_L(skf_add_chains)(float (*chain)[SKF_CHAINS], float *sums)
{
#if SKF_LANES == 1
    for (int r = 0; r < SKF_ROWS; r++)
        sums[r] = skf_add_chain(chain[r]);
#else
    SKF_VEC s[SKF_ROWS];
#if SKF_LANES == 16
    for (int r = 0; r < 8; r++)
        s[r] = SKF_FOLD_16(SKF_IN(chain[2 * r]), SKF_IN(chain[2 * r + 1]));
    for (int r = 0; r < 4; r++)
        s[r] = SKF_FOLD_8(s[2 * r], s[2 * r + 1]);
#elif SKF_LANES == 8
    for (int r = 0; r < 16; r++)
        s[r] = SKF_IN(chain[r]) + SKF_IN(chain[r] + 8);
    for (int r = 0; r < 8; r++)
        s[r] = SKF_FOLD_8(s[2 * r], s[2 * r + 1]);
#else
    for (int r = 0; r < 16; r++)
        s[r] = (SKF_IN(chain[r]) + SKF_IN(chain[r] + 8)) +
               (SKF_IN(chain[r] + 4) + SKF_IN(chain[r] + 12));
#endif
    for (int r = 0; r < 32 / SKF_LANES; r++)
        s[r] = SKF_FOLD_4(s[2 * r], s[2 * r + 1]);
    for (int r = 0; r < 16 / SKF_LANES; r++)
        SKF_AT(sums + r * SKF_LANES) = SKF_FOLD_2(s[2 * r], s[2 * r + 1]);
#endif
}

/* Four rows at a time, so that v is read once for four rows: out[i] = v . x_i, or, where the
 * constant `has_moments` is 1, the moments of `skf_node_moments` about v. */
SKF_INLINE void SKF_L(skf_rows_loop)(const float *table, const int64_t *offset, int64_t n,
                                     const float *v, int64_t p, int has_moments,
                                     const float *weight, float *SKF_RESTRICT sum,
                                     int32_t *SKF_RESTRICT seen, float *SKF_RESTRICT out)
{
    const int64_t whole = p - p % SKF_CHAINS;
    for (int64_t i = 0; i < n; i += SKF_ROWS) {
        const int n_rows = n - i < SKF_ROWS ? (int)(n - i) : SKF_ROWS;
        float chain[SKF_ROWS][SKF_CHAINS], sums[SKF_ROWS];
        int k = whole ? 0 : SKF_ROWS;
        for (; k < n_rows; k += 4) {
            const float *a = SKF_ROW(i + k), *b = SKF_ROW(i + k + 1);
            const float *c = SKF_ROW(i + k + 2), *d = SKF_ROW(i + k + 3);
            float w[4] = {0};
            if (has_moments)
                for (int r = 0; r < 4 && k + r < n_rows; r++)
                    w[r] = weight[i + k + r];
            for (int64_t part = 0; part < SKF_CHAINS; part += SKF_LANES) {
                SKF_VEC sa = {0}, sb = {0}, sc = {0}, sd = {0};
                for (int64_t j = part; j < whole; j += SKF_CHAINS) {
                    const SKF_VEC at = SKF_IN(v + j);
                    if (has_moments) {
                        const SKF_VEC da = SKF_IN(a + j) - at, db = SKF_IN(b + j) - at;
                        const SKF_VEC dc = SKF_IN(c + j) - at, dd = SKF_IN(d + j) - at;
                        SKF_AT(sum + j) += (da * w[0] + db * w[1]) + (dc * w[2] + dd * w[3]);
                        *(SKF_L(skf_bits) *)(seen + j) |= SKF_BITS(da) | SKF_BITS(db) |
                                                          SKF_BITS(dc) | SKF_BITS(dd);
                        sa += da * da;
                        sb += db * db;
                        sc += dc * dc;
                        sd += dd * dd;
                    } else {
                        sa += SKF_IN(a + j) * at;
                        sb += SKF_IN(b + j) * at;
                        sc += SKF_IN(c + j) * at;
                        sd += SKF_IN(d + j) * at;
                    }
                }
                SKF_AT(chain[k] + part) = sa;
                SKF_AT(chain[k + 1] + part) = sb;
                SKF_AT(chain[k + 2] + part) = sc;
                SKF_AT(chain[k + 3] + part) = sd;
            }
        }
        if (!whole)
            memset(sums, 0, sizeof sums);
        else if (n_rows <= 4)
            for (k = 0; k < n_rows; k++)
                sums[k] = skf_add_chain(chain[k]);
        else {
            for (; k < SKF_ROWS; k++)
                memset(chain[k], 0, sizeof chain[k]);
            SKF_L(skf_add_chains)(chain, sums);
        }
        for (k = 0; k < n_rows; k++) {
            const float *a = table + offset[i + k];
            float rest = 0;
            for (int64_t j = whole; j < p; j++) {
                const float d = has_moments ? a[j] - v[j] : a[j];
                if (has_moments) {
                    sum[j] += weight[i + k] * d;
                    seen[j] |= d != 0;
                }
                rest += d * (has_moments ? d : v[j]);
            }
            out[i + k] = rest + sums[k];
        }
    }
}

/* See `skf_add_rows`. */
SKF_INLINE void SKF_L(skf_add_rows_loop)(const float *table, const int64_t *offset, int64_t n,
                                         const float *c, int64_t p, float *SKF_RESTRICT sum)
{
    const int64_t whole = p - p % SKF_LANES;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        const float *a = table + offset[i], *b = table + offset[i + 1];
        const float *e = table + offset[i + 2], *d = table + offset[i + 3];
        const float ca = c[i], cb = c[i + 1], ce = c[i + 2], cd = c[i + 3];
        for (int64_t j = 0; j < whole; j += SKF_LANES)
            SKF_AT(sum + j) += (SKF_IN(a + j) * ca + SKF_IN(b + j) * cb) +
                               (SKF_IN(e + j) * ce + SKF_IN(d + j) * cd);
        for (int64_t j = whole; j < p; j++)
            sum[j] += (a[j] * ca + b[j] * cb) + (e[j] * ce + d[j] * cd);
    }
    for (; i < n; i++) {
        const float *a = table + offset[i];
        const float ca = c[i];
        for (int64_t j = 0; j < whole; j += SKF_LANES)
            SKF_AT(sum + j) += SKF_IN(a + j) * ca;
        for (int64_t j = whole; j < p; j++)
            sum[j] += a[j] * ca;
    }
}

/* *square = |a - b|^2 */
SKF_INLINE void SKF_L(skf_distance)(const float *a, const float *b, int64_t p, float *square)
{
    const int64_t whole = p - p % SKF_CHAINS;
    SKF_VEC sum[SKF_PARTS] = {{0}};
    float chain[SKF_CHAINS], rest = 0;
    for (int64_t j = 0; j < whole; j += SKF_CHAINS)
        for (int q = 0; q < SKF_PARTS; q++) {
            const SKF_VEC d = SKF_IN(a + j + q * SKF_LANES) - SKF_IN(b + j + q * SKF_LANES);
            sum[q] += d * d;
        }
    for (int64_t j = whole; j < p; j++)
        rest += (a[j] - b[j]) * (a[j] - b[j]);
    memcpy(chain, sum, sizeof chain);
    *square = rest + skf_add_chain(chain);
}

/* See `skf_momentum_step`. */
SKF_INLINE void SKF_L(skf_momentum_loop)(float *SKF_RESTRICT w, float *SKF_RESTRICT v,
                                         float *SKF_RESTRICT g, const float *SKF_RESTRICT mean,
                                         int64_t p, float factor, float shift, float momentum,
                                         float rate, float *square)
{
    const int64_t whole = p - p % SKF_CHAINS;
    const SKF_VEC none = {0};
    SKF_VEC sum[SKF_PARTS] = {{0}};
    float chain[SKF_CHAINS], rest = 0;
    for (int64_t first = 0; first < whole; first += SKF_CHAINS)
        for (int q = 0; q < SKF_PARTS; q++) {
            const int64_t j = first + q * SKF_LANES;
            const SKF_VEC speed =
                SKF_IN(v + j) * momentum + (SKF_IN(g + j) - SKF_IN(mean + j) * shift) * factor;
            const SKF_VEC now = SKF_IN(w + j) - speed * rate;
            SKF_AT(v + j) = speed;
            SKF_AT(w + j) = now;
            SKF_AT(g + j) = none;
            sum[q] += now * now;
        }
    for (int64_t j = whole; j < p; j++) {
        v[j] = v[j] * momentum + (g[j] - mean[j] * shift) * factor;
        w[j] -= v[j] * rate;
        g[j] = 0;
        rest += w[j] * w[j];
    }
    memcpy(chain, sum, sizeof chain);
    *square = rest + skf_add_chain(chain);
}

/* *dot = a . b, with four times as many chains. */
SKF_INLINE void SKF_L(skf_dot_loop)(const float *a, const float *b, int64_t p, float *dot)
{
    const int64_t whole = p - p % SKF_CHAINS;
    float chain[SKF_CHAINS], rest = 0;
    for (int64_t part = 0; part < SKF_CHAINS; part += SKF_LANES) {
        SKF_VEC s[4] = {{0}};
        int64_t j = part;
        for (; j + 3 * SKF_CHAINS < whole; j += 4 * SKF_CHAINS)
            for (int t = 0; t < 4; t++)
                s[t] += SKF_IN(a + j + t * SKF_CHAINS) * SKF_IN(b + j + t * SKF_CHAINS);
        for (; j < whole; j += SKF_CHAINS)
            s[0] += SKF_IN(a + j) * SKF_IN(b + j);
        SKF_AT(chain + part) = (s[0] + s[1]) + (s[2] + s[3]);
    }
    for (int64_t j = whole; j < p; j++)
        rest += a[j] * b[j];
    *dot = rest + skf_add_chain(chain);
}

/* dots[i] = value[row[i] step] . g[i width], for up to SKF_ROWS rows; width is a multiple of
 * SKF_CHAINS. */
SKF_INLINE void SKF_L(skf_dots_loop)(const float *value, int64_t step, const int32_t *row,
                                     const float *g, int64_t n, int64_t width, float *dots)
{
    float chain[SKF_ROWS][SKF_CHAINS];
    for (int64_t i = 0; i < SKF_ROWS; i++) {
        const float *v = value + (i < n ? row[i] : row[0]) * step;
        const float *gi = g + (i < n ? i : 0) * width;
        SKF_VEC s[SKF_PARTS] = {{0}};
        for (int64_t k = 0; k < width; k += SKF_CHAINS)
            for (int q = 0; q < SKF_PARTS; q++)
                s[q] += SKF_IN(v + k + q * SKF_LANES) * SKF_IN(gi + k + q * SKF_LANES);
        memcpy(chain[i], s, sizeof chain[i]);
    }
    SKF_L(skf_add_chains)(chain, dots);
}

/* Copies n groups of `size` features of the row a, scale (a - mean); returns the end of the copy.
 * Adjacent groups, which are most, are copied as whole vectors. Groups ascend, so they are adjacent if
 * the first and the last one of a vector are as far apart as its ends. */
SKF_INLINE void SKF_L(skf_gather_groups)(const float *a, const int32_t *group, int64_t n, int size,
                                         const float *mean, float scale, float **end)
{
    const int64_t together = SKF_LANES / size;
    float *out = *end;
    for (int64_t g = 0; g < n;) {
        const int32_t first = group[g];
        if (together > 1 && g + together <= n &&
            group[g + together - 1] == first + SKF_LANES - size) {
            SKF_AT(out) = (SKF_IN(a + first) - SKF_IN(mean + first)) * scale;
            g += together;
            out += SKF_LANES;
        } else {
            for (int l = 0; l < size; l++)
                out[l] = scale * (a[first + l] - mean[first + l]);
            g++;
            out += size;
        }
    }
    *end = out;
}

/* See `skf_multiply`: two vectors for each of four rows fill the registers. */
SKF_INLINE void SKF_L(skf_multiply_loop)(const float *a, int64_t row_step, int64_t column_step,
                                         int64_t n, int64_t depth, const float *b, int64_t b_step,
                                         int64_t width, float *SKF_RESTRICT out, int64_t out_step)
{
    for (int64_t f = 0; f < width; f += 2 * SKF_LANES)
        for (int64_t i = 0; i < n; i += 4) {
            const int64_t last = n - 1;
            const float *a0 = a + i * row_step;
            const float *a1 = a + (i + 1 < n ? i + 1 : last) * row_step;
            const float *a2 = a + (i + 2 < n ? i + 2 : last) * row_step;
            const float *a3 = a + (i + 3 < n ? i + 3 : last) * row_step;
            SKF_VEC s[8] = {{0}};
            for (int64_t j = 0; j < depth; j++) {
                const SKF_VEC low = SKF_IN(b + j * b_step + f);
                const SKF_VEC high = SKF_IN(b + j * b_step + f + SKF_LANES);
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
                SKF_AT(out + (i + r) * out_step + f + SKF_LANES) = s[2 * r + 1];
            }
        }
}

/* See `skf_mix_columns`. */
SKF_INLINE void SKF_L(skf_mix_loop)(const float *columns, int64_t stride, const int32_t *feature,
                                    const float *weight, int n_terms, int64_t n,
                                    float *SKF_RESTRICT out)
{
    int64_t i = 0;
    for (; i + 2 * SKF_CHAINS <= n; i += 2 * SKF_CHAINS) {
        SKF_VEC s[2 * SKF_PARTS] = {{0}};
        for (int t = 0; t < n_terms; t++) {
            const float *own = columns + feature[t] * stride + i;
            for (int q = 0; q < 2 * SKF_PARTS; q++)
                s[q] += weight[t] * SKF_IN(own + q * SKF_LANES);
        }
        for (int q = 0; q < 2 * SKF_PARTS; q++)
            SKF_AT(out + i + q * SKF_LANES) = s[q];
    }
    for (; i < n; i++) {
        out[i] = 0;
        for (int t = 0; t < n_terms; t++)
            out[i] += weight[t] * columns[feature[t] * stride + i];
    }
}

/* chain[r] += weight x_r, for 16 numbers of four rows. */
SKF_INLINE void SKF_L(skf_add_products)(const float *const *row, const float *weight,
                                        float (*chain)[SKF_CHAINS])
{
    for (int r = 0; r < 4; r++)
        for (int q = 0; q < SKF_CHAINS; q += SKF_LANES)
            SKF_AT(chain[r] + q) += SKF_IN(weight + q) * SKF_IN(row[r] + q);
}

/* The same for both halves of the chains of a dense direction, and n numbers, a multiple of 32. A
 * weight is read once for four rows. */
SKF_INLINE void SKF_L(skf_dense_rows)(const float *const *row, const float *weight, int64_t n,
                                      float (*low)[SKF_CHAINS], float (*high)[SKF_CHAINS])
{
    for (int64_t part = 0; part < SKF_CHAINS; part += SKF_LANES) {
        SKF_VEC first[4], second[4];
        for (int r = 0; r < 4; r++) {
            first[r] = SKF_IN(low[r] + part);
            second[r] = SKF_IN(high[r] + part);
        }
        for (int64_t j = part; j < n; j += SKF_DENSE_CHAINS) {
            const SKF_VEC w = SKF_IN(weight + j), v = SKF_IN(weight + j + SKF_CHAINS);
            for (int r = 0; r < 4; r++) {
                first[r] += w * SKF_IN(row[r] + j);
                second[r] += v * SKF_IN(row[r] + j + SKF_CHAINS);
            }
        }
        for (int r = 0; r < 4; r++) {
            SKF_AT(low[r] + part) = first[r];
            SKF_AT(high[r] + part) = second[r];
        }
    }
}

/* A dense direction: out[i] = weight . row i, of floats or, where the constant `is_bytes` is 1, of
 * bytes, which become floats in blocks. There are SKF_DENSE_CHAINS chains, whose halves are added
 * first. */
SKF_INLINE void SKF_L(skf_dense_loop)(const void *table, int is_bytes, const int64_t *offset,
                                      int64_t n, const float *weight, int64_t p,
                                      float *SKF_RESTRICT out)
{
    const int64_t whole = p - p % SKF_DENSE_CHAINS, most = p - p % SKF_CHAINS;
    float block[4][SKF_BYTE_BLOCK], last[4][SKF_CHAINS] = {{0}}, end[SKF_CHAINS] = {0};
    const float *converted[4] = {block[0], block[1], block[2], block[3]};
    const float *tail[4] = {last[0], last[1], last[2], last[3]};
    for (int64_t j = most; j < p; j++)
        end[j - most] = weight[j];
    for (int64_t i = 0; i < n; i += SKF_ROWS) {
        const int n_rows = n - i < SKF_ROWS ? (int)(n - i) : SKF_ROWS;
        float chain[SKF_ROWS][SKF_CHAINS] = {{0}}, sums[SKF_ROWS];
        for (int k = 0; k < n_rows; k += 4) {
            float high[4][SKF_CHAINS] = {{0}};
            const float *row[4] = {0};
            const uint8_t *bytes[4] = {0};
            for (int r = 0; r < 4; r++) {
                const int64_t at = offset[i + (k + r < n_rows ? k + r : k)];
                if (is_bytes)
                    bytes[r] = (const uint8_t *)table + at;
                else
                    row[r] = (const float *)table + at;
            }
            if (!is_bytes) {
                SKF_L(skf_dense_rows)(row, weight, whole, chain + k, high);
            } else {
                for (int64_t first = 0; first < whole; first += SKF_BYTE_BLOCK) {
                    const int64_t rest = whole - first;
                    const int64_t size = rest < SKF_BYTE_BLOCK ? rest : SKF_BYTE_BLOCK;
                    for (int r = 0; r < 4; r++)
                        for (int64_t j = 0; j < size; j++)
                            block[r][j] = bytes[r][first + j];
                    SKF_L(skf_dense_rows)(converted, weight + first, size, chain + k, high);
                }
            }
            if (most > whole) {
                for (int r = 0; r < 4; r++) {
                    if (is_bytes)
                        for (int l = 0; l < SKF_CHAINS; l++)
                            block[r][l] = bytes[r][whole + l];
                    else
                        converted[r] = row[r] + whole;
                }
                SKF_L(skf_add_products)(converted, weight + whole, chain + k);
            }
            if (p > most) {
                for (int r = 0; r < 4; r++)
                    for (int64_t j = most; j < p; j++)
                        last[r][j - most] = is_bytes ? (float)bytes[r][j] : row[r][j];
                SKF_L(skf_add_products)(tail, end, most > whole ? high : chain + k);
            }
            for (int r = 0; r < 4; r++)
                for (int q = 0; q < SKF_CHAINS; q += SKF_LANES)
                    SKF_AT(chain[k + r] + q) += SKF_IN(high[r] + q);
        }
        SKF_L(skf_add_chains)(chain, sums);
        memcpy(out + i, sums, (size_t)n_rows * sizeof(float));
    }
}

/* *sum = weight . x, with the same additions for one row. */
SKF_INLINE void SKF_L(skf_project_loop)(const float *weight, const float *x, int64_t p, float *sum)
{
    const int64_t whole = p - p % SKF_DENSE_CHAINS;
    const int rest = (int)(p - whole);
    SKF_VEC low[SKF_PARTS] = {{0}}, high[SKF_PARTS] = {{0}};
    float w[SKF_DENSE_CHAINS] = {0}, z[SKF_DENSE_CHAINS] = {0}, chain[SKF_CHAINS];
    for (int64_t j = 0; j < whole; j += SKF_DENSE_CHAINS)
        for (int q = 0; q < SKF_PARTS; q++) {
            const int64_t at = j + q * SKF_LANES;
            low[q] += SKF_IN(weight + at) * SKF_IN(x + at);
            high[q] += SKF_IN(weight + at + SKF_CHAINS) * SKF_IN(x + at + SKF_CHAINS);
        }
    if (rest) {
        memcpy(w, weight + whole, (size_t)rest * sizeof(float));
        memcpy(z, x + whole, (size_t)rest * sizeof(float));
        for (int q = 0; q < SKF_PARTS; q++) {
            const int at = q * SKF_LANES;
            low[q] += SKF_IN(w + at) * SKF_IN(z + at);
            high[q] += SKF_IN(w + at + SKF_CHAINS) * SKF_IN(z + at + SKF_CHAINS);
        }
    }
    for (int q = 0; q < SKF_PARTS; q++)
        SKF_AT(chain + q * SKF_LANES) = low[q] + high[q];
    *sum = skf_add_chain(chain);
}

/* See `skf_route_bits`: the remaining candidates of SKF_BIT_ROWS rows after the splits from `first`
 * to end - 1, the first 32 in of_low, and the others in of_high. */
SKF_INLINE void SKF_L(skf_candidates_loop)(
    const int32_t *direction, const float *threshold, int64_t first, int64_t end,
    int32_t n_features, const int64_t *sparse_start, const int32_t *sparse_feature,
    const float *sparse_weight, const float *columns, const uint32_t *low, const uint32_t *high,
    uint32_t *of_low, uint32_t *of_high)
{
    enum { N = SKF_BIT_ROWS / SKF_LANES };
    SKF_L(skf_bits) left[2][N];
    memset(left, -1, sizeof left);
    for (int64_t k = first; k < end; k++) {
        const int32_t own = direction[k] - n_features;
        const float t = threshold[k];
        SKF_VEC sum[N];
        if (own < 0) {
            const float *x = columns + (int64_t)direction[k] * SKF_BIT_ROWS;
            for (int v = 0; v < N; v++)
                sum[v] = SKF_IN(x + v * SKF_LANES);
        } else {
            const int64_t start = sparse_start[own], n_terms = sparse_start[own + 1] - start;
            const int32_t *feature = sparse_feature + start;
            const float *weight = sparse_weight + start;
            int64_t j = 0;
            for (int v = 0; v < N; v++)
                sum[v] = (SKF_VEC){0};
            /* Two terms at a time, because the speed of a shorter loop depends on its address. */
            for (; j + 2 <= n_terms; j += 2) {
                const float *x = columns + (int64_t)feature[j] * SKF_BIT_ROWS;
                const float *z = columns + (int64_t)feature[j + 1] * SKF_BIT_ROWS;
                for (int v = 0; v < N; v++)
                    sum[v] = sum[v] + weight[j] * SKF_IN(x + v * SKF_LANES) +
                             weight[j + 1] * SKF_IN(z + v * SKF_LANES);
            }
            if (j < n_terms) {
                const float *x = columns + (int64_t)feature[j] * SKF_BIT_ROWS;
                for (int v = 0; v < N; v++)
                    sum[v] += weight[j] * SKF_IN(x + v * SKF_LANES);
            }
        }
        /* Most splits lie in one half of the tree. */
        if (~low[k])
            for (int v = 0; v < N; v++)
                left[0][v] &= SKF_AT_MOST(sum[v], t) | (int32_t)low[k];
        if (~high[k])
            for (int v = 0; v < N; v++)
                left[1][v] &= SKF_AT_MOST(sum[v], t) | (int32_t)high[k];
    }
    memcpy(of_low, left[0], sizeof left[0]);
    memcpy(of_high, left[1], sizeof left[1]);
}

#undef SKF_VEC
#undef SKF_AT
#undef SKF_IN
#undef SKF_PARTS
#undef SKF_BITS
#undef SKF_AT_MOST
#undef SKF_MIX
#undef SKF_FOLD_16
#undef SKF_FOLD_8
#undef SKF_FOLD_4
#undef SKF_FOLD_2
