/* The paths of rows through a hinge tree, for vectors of SKF_LANES floats.
 *
 * margins.h includes this file once for each number of floats in a vector register. The values of a
 * feature are adjacent, so that neighbouring rows fill a vector. All margins of a level are computed,
 * and those on the paths are chosen by masks: a processor would read only those on the paths one by
 * one, which takes longer.
 */

#define SKF_VEC SKF_L(skf_vec)
#define SKF_INTS SKF_L(skf_bits)
#define SKF_BITS(vector) ((SKF_INTS)(vector))
#define SKF_CHOOSE(right, a, b) ((SKF_BITS(a) & ~(right)) | (SKF_BITS(b) & (right)))

/* Numbers of 2 SKF_LANES rows, so that a test is read once for two vectors. */
typedef struct {
    SKF_VEC v[2];
} SKF_L(skf_margins_of);
typedef struct {
    SKF_INTS v[2];
} SKF_L(skf_turns);

/* The margins of test `at` of a tree, or of the test that rows reach `k` levels below it, if they
 * turn as `right` says. */
SKF_INLINE SKF_L(skf_margins_of)
    SKF_L(skf_below_0)(const float *threshold, const int32_t *feature, int at, const float *z,
                       int64_t stride, const SKF_L(skf_turns) *right SKF_UNUSED)
{
    const float *own = z + feature[2 * at] * stride;
    SKF_L(skf_margins_of) m;
    for (int q = 0; q < 2; q++)
        m.v[q] = *(const SKF_VEC *)(own + q * SKF_LANES) - threshold[2 * at];
    return m;
}
#define SKF_BELOW(k, above)                                                                      \
    SKF_INLINE SKF_L(skf_margins_of)                                                             \
        SKF_L(skf_below_##k)(const float *threshold, const int32_t *feature, int at,             \
                             const float *z, int64_t stride, const SKF_L(skf_turns) *right)      \
    {                                                                                            \
        const SKF_L(skf_margins_of) a = SKF_L(skf_below_##above)(threshold, feature, 2 * at + 1, \
                                                                 z, stride, right + 1);          \
        const SKF_L(skf_margins_of) b = SKF_L(skf_below_##above)(threshold, feature, 2 * at + 2, \
                                                                 z, stride, right + 1);          \
        SKF_L(skf_margins_of) m;                                                                 \
        for (int q = 0; q < 2; q++)                                                              \
            m.v[q] = (SKF_VEC)SKF_CHOOSE(right->v[q], a.v[q], b.v[q]);                           \
        return m;                                                                                \
    }
SKF_BELOW(1, 0)
SKF_BELOW(2, 1)
SKF_BELOW(3, 2)
SKF_BELOW(4, 3)
#undef SKF_BELOW

/* See `skf_hinge_route`: the first `depth` <= SKF_DENSE_LEVELS levels of a tree, or all levels of a
 * fern; n is a multiple of 2 SKF_LANES, and the rows of a feature are adjacent. All margins of a
 * level are computed, and then those on the paths are chosen. */
SKF_INLINE void SKF_L(skf_paths_loop)(const float *threshold, const int32_t *feature, int depth,
                                      int is_fern, const float *z, int64_t stride, int64_t n,
                                      int32_t *SKF_RESTRICT leaf, int32_t *SKF_RESTRICT test,
                                      float *SKF_RESTRICT margin)
{
    for (int64_t i = 0; i < n; i += 2 * SKF_LANES) {
        SKF_L(skf_turns) right[SKF_DENSE_LEVELS], node = {{{0}, {0}}}, nearest = node;
        SKF_L(skf_margins_of) m, least;
#define SKF_LEVEL(level, place)                                                                  \
    for (int q = 0; q < 2; q++) {                                                                \
        const SKF_INTS less = (SKF_BITS(m.v[q]) & 0x7fffffff) <                                  \
                              (SKF_BITS(least.v[q]) & 0x7fffffff);                               \
        const SKF_INTS turn = SKF_BITS(m.v[q]) > 0;                                              \
        least.v[q] = (SKF_VEC)SKF_CHOOSE(less, least.v[q], m.v[q]);                              \
        nearest.v[q] = SKF_CHOOSE(less, nearest.v[q], (place));                                  \
        node.v[q] = node.v[q] + node.v[q] - turn;                                                \
        right[is_fern ? 0 : (level)].v[q] = turn;                                                \
    }
#define SKF_TREE_LEVEL(k)                                                                        \
    if (depth > k) {                                                                             \
        m = SKF_L(skf_below_##k)(threshold, feature, 0, z + i, stride, right);                   \
        SKF_LEVEL(k, node.v[q] + ((1 << k) - 1))                                                 \
    }
        least = m = SKF_L(skf_below_0)(threshold, feature, 0, z + i, stride, right);
        SKF_LEVEL(0, node.v[q])
        if (is_fern) {
            for (int level = 1; level < depth; level++) {
                m = SKF_L(skf_below_0)(threshold, feature, level, z + i, stride, right);
                SKF_LEVEL(level, (SKF_INTS){0} + level)
            }
        } else {
            SKF_TREE_LEVEL(1)
            SKF_TREE_LEVEL(2)
            SKF_TREE_LEVEL(3)
            SKF_TREE_LEVEL(4)
        }
#undef SKF_LEVEL
#undef SKF_TREE_LEVEL
        for (int q = 0; q < 2; q++) {
            const int64_t row = i + q * SKF_LANES;
            *(SKF_INTS *)(leaf + row) = node.v[q];
            *(SKF_INTS *)(test + row) = nearest.v[q];
            *(SKF_VEC *)(margin + row) = least.v[q];
        }
    }
}

#undef SKF_VEC
#undef SKF_INTS
#undef SKF_BITS
#undef SKF_CHOOSE
