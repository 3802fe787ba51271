/* Sums over the rows of leaves, for the linear functions of boosted trees. */
#ifndef SKFOREST_LINEAR_H
#define SKFOREST_LINEAR_H

#include "../base/simd.h"

/* Largest number of regressors of a leaf; chosen without a stored measurement. In a vector of a leaf,
 * a lane for each is followed by the one of the constant 1 and by zeros. */
#define SKF_MOST 6
#define SKF_LANES_OF_LEAF 8
#define SKF_FEW 4 /* terms that are padded; mixtures have at most as many */
#define SKF_ROWS_OF_LEAVES 64 /* whose regressors are computed at once */

/* Splits as in a Forest; directions from n_features on are sparse. */
typedef struct {
    int32_t n_features;
    const int32_t *direction;
    const int64_t *start;
    const int32_t *feature;
    const float *weight;
} skf_splits;

/* Sums over the rows of a leaf for one output: with the regressors z, of h z, of g z and of
 * h z_d z. */
typedef struct {
    double h[SKF_LANES_OF_LEAF];
    double g[SKF_LANES_OF_LEAF];
    double hzz[SKF_MOST][SKF_LANES_OF_LEAF];
} skf_leaf_sums;

#if defined(__GNUC__)
typedef double skf_lanes __attribute__((vector_size(64), aligned(8), may_alias));
#define SKF_ADD_PRODUCT(sum, factor, z)                                                          \
    (*(skf_lanes *)(sum) += (factor) * *(const skf_lanes *)(z))
#else
#define SKF_ADD_PRODUCT(sum, factor, z)                                                          \
    for (int k_ = 0; k_ < SKF_LANES_OF_LEAF; k_++)                                               \
    (sum)[k_] += (factor) * (z)[k_]
#endif

/* A direction of a split. Few terms are padded by zeros, so that all rows take the same steps. */
typedef struct {
    int64_t n;
    const int32_t *feature;
    const float *weight;
    int32_t few_features[SKF_FEW];
    float few_weights[SKF_FEW];
} skf_terms_of_split;

SKF_INLINE skf_terms_of_split skf_terms_of(const skf_splits *tree, int32_t split)
{
    const int32_t row = tree->direction[split] - tree->n_features;
    skf_terms_of_split own = {1, tree->direction + split, NULL, {0}, {0}};
    if (row >= 0) {
        own.n = tree->start[row + 1] - tree->start[row];
        own.feature = tree->feature + tree->start[row];
        own.weight = tree->weight + tree->start[row];
    }
    for (int64_t t = 0; t < own.n && t < SKF_FEW; t++) {
        own.few_features[t] = own.feature[t];
        own.few_weights[t] = own.weight == NULL ? 1 : own.weight[t];
    }
    return own;
}

/* Projection of a row on the direction of a split. */
SKF_INLINE double skf_regressor(const skf_terms_of_split *own, const float *x)
{
    double total = 0;
    if (own->n > SKF_FEW) {
        for (int64_t t = 0; t < own->n; t++)
            total += (double)own->weight[t] * x[own->feature[t]];
        return total;
    }
    for (int t = 0; t < SKF_FEW; t++)
        total += (double)own->few_weights[t] * x[own->few_features[t]];
    return total;
}

/* Adds rows to the sums of their leaves, (n_leaves, n_outputs). regressor: the splits of each leaf,
 * (n_leaves, SKF_MOST), then -1; terms: of all splits. */
SKF_KERNEL(skf_add_products,
           (const skf_terms_of_split *terms, int64_t n_features, const float *X, const int32_t *leaf,
            const int32_t *rows, int64_t n, const float *gradient, const float *curvature, int64_t n_outputs,
            const int32_t *regressor, skf_leaf_sums *sums),
           (terms, n_features, X, leaf, rows, n, gradient, curvature, n_outputs, regressor, sums))
{
    double z[SKF_ROWS_OF_LEAVES][SKF_LANES_OF_LEAF];
    int n_regressors[SKF_ROWS_OF_LEAVES];
    for (int64_t block = 0; block < n; block += SKF_ROWS_OF_LEAVES) {
        const int n_rows = n - block < SKF_ROWS_OF_LEAVES ? (int)(n - block) : SKF_ROWS_OF_LEAVES;
        for (int r = 0; r < n_rows; r++) {
            const int64_t i = rows[block + r];
            const int32_t *own = regressor + (int64_t)leaf[i] * SKF_MOST;
            int d = 0;
            for (; d < SKF_MOST && own[d] >= 0; d++)
                z[r][d] = skf_regressor(terms + own[d], X + i * n_features);
            n_regressors[r] = d;
            for (; d < SKF_LANES_OF_LEAF; d++)
                z[r][d] = d == SKF_MOST;
        }
        for (int r = 0; r < n_rows; r++) {
            const int64_t i = rows[block + r];
            for (int64_t k = 0; k < n_outputs; k++) {
                const double g = gradient[i * n_outputs + k], h = curvature[i * n_outputs + k];
                skf_leaf_sums *to = sums + leaf[i] * n_outputs + k;
                SKF_ADD_PRODUCT(to->h, h, z[r]);
                SKF_ADD_PRODUCT(to->g, g, z[r]);
                for (int d = 0; d < n_regressors[r]; d++) {
                    const double hz = h * z[r][d];
                    SKF_ADD_PRODUCT(to->hzz[d], hz, z[r]);
                }
            }
        }
    }
}

#endif
