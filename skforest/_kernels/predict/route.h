/* Routing of rows through trees: with projections that are computed before, one row through many
 * trees, or all splits of a tree at once; and the sum of the values of leaves. Routing by sums over
 * boxes is in sums.h.
 *
 * Several rows, or trees, descend side by side, so that several chains of loads run at once.
 */
#ifndef SKFOREST_ROUTE_H
#define SKFOREST_ROUTE_H

#include "../base/simd.h"

#if defined(__GNUC__)
#define SKF_FETCH(pointer) __builtin_prefetch(pointer)
#else
#define SKF_FETCH(pointer) ((void)(pointer))
#endif

/* Number of rows or trees that descend side by side, which fill a vector register, and levels between
 * two tests of whether all have reached a leaf. These and all constants below were chosen without a
 * stored measurement; none of them changes a bit. */
#define SKF_ABREAST 8
#define SKF_LEVELS 8

/* ------------------------------------------------------- projections on a pool of directions */

/* Keeps an integer in a register that can be an address: gcc would pack eight of them into a vector,
 * and unpack them again one by one. */
#if defined(__GNUC__)
#define SKF_KEEP(integer) __asm__("" : "+r"(integer))
#else
#define SKF_KEEP(integer) ((void)0)
#endif

/* A leaf is its own child, with infinite threshold and a column of zeros, so that it keeps rows. */
typedef struct {
    float threshold;
    uint32_t column, child;
} skf_node;

/* Nodes and margins of eight rows in eight trees, through `depth` levels from the roots; rows or trees
 * may be the same. Differences from thresholds are stored on the way down, and margins are computed
 * from them, eight in a vector. The bits are the same as node by node: a row goes right unless
 * `projection <= threshold`, and the first margin counts even if it is NaN. */
SKF_INLINE void skf_descend(const float *const *row, const skf_node *const *tree, int32_t depth,
                            int has_margins, uint32_t *node, float *least)
{
    int moving = 1;
    for (int l = 0; l < SKF_ABREAST; l++) {
        node[l] = 0;
        least[l] = 0;
    }
    for (int32_t done = 0; done < depth && moving; done += SKF_LEVELS) {
        const int n_levels = depth - done < SKF_LEVELS ? depth - done : SKF_LEVELS;
        float found[SKF_LEVELS][SKF_ABREAST];
        for (int level = 0; level < n_levels; level++)
            for (int l = 0; l < SKF_ABREAST; l++) {
                const skf_node *at = tree[l] + node[l];
                const float value = row[l][at->column];
                found[level][l] = value - at->threshold;
                node[l] = at->child + !(value <= at->threshold);
                SKF_KEEP(node[l]);
            }
        moving = 0;
        for (int l = 0; l < SKF_ABREAST; l++)
            moving |= tree[l][node[l]].child != node[l];
        if (!has_margins)
            continue;
        if (done == 0)
            for (int l = 0; l < SKF_ABREAST; l++)
                least[l] = fabsf(found[0][l]);
        for (int level = 0; level < n_levels; level++)
            SKF_SIMD()
            for (int l = 0; l < SKF_ABREAST; l++) {
                const float m = fabsf(found[level][l]);
                least[l] = m < least[l] ? m : least[l];
            }
    }
}

/* Leaf of n rows in a tree of some depth, and the smallest margin on the path unless `margin` is NULL;
 * the projections of row i start at pool[i stride]. A tree without splits gives margins of 0. */
SKF_KERNEL(skf_route_pool,
           (const float *pool, int64_t stride, int64_t n, const skf_node *tree, int32_t depth,
            int32_t *SKF_RESTRICT leaf, float *SKF_RESTRICT margin),
           (pool, stride, n, tree, depth, leaf, margin))
{
    for (int64_t i = 0; i < n; i += SKF_ABREAST) {
        const int n_rows = n - i < SKF_ABREAST ? (int)(n - i) : SKF_ABREAST;
        const float *row[SKF_ABREAST];
        const skf_node *trees[SKF_ABREAST];
        uint32_t node[SKF_ABREAST];
        float least[SKF_ABREAST];
        for (int l = 0; l < SKF_ABREAST; l++) {
            row[l] = pool + (i + (l < n_rows ? l : 0)) * stride;
            trees[l] = tree;
        }
        skf_descend(row, trees, depth, margin != NULL, node, least);
        for (int l = 0; l < n_rows; l++)
            leaf[i + l] = (int32_t)node[l];
        if (margin != NULL)
            for (int l = 0; l < n_rows; l++)
                margin[i + l] = least[l];
    }
}

/* The same for one row with the projections `pool`, in n trees with the given roots and depths. */
SKF_KERNEL(skf_route_row_over_pool,
           (const float *pool, int64_t n, const skf_node *nodes, const int64_t *root,
            const int32_t *depth, int32_t *SKF_RESTRICT leaf, float *SKF_RESTRICT margin),
           (pool, n, nodes, root, depth, leaf, margin))
{
    for (int64_t i = 0; i < n; i += SKF_ABREAST) {
        const int n_trees = n - i < SKF_ABREAST ? (int)(n - i) : SKF_ABREAST;
        const float *row[SKF_ABREAST];
        const skf_node *trees[SKF_ABREAST];
        uint32_t node[SKF_ABREAST];
        float least[SKF_ABREAST];
        int32_t deepest = 0;
        for (int l = 0; l < SKF_ABREAST; l++) {
            const int64_t t = i + (l < n_trees ? l : 0);
            row[l] = pool;
            trees[l] = nodes + root[t];
            deepest = depth[t] > deepest ? depth[t] : deepest;
        }
        skf_descend(row, trees, deepest, margin != NULL, node, least);
        for (int l = 0; l < n_trees; l++)
            leaf[i + l] = (int32_t)node[l];
        if (margin != NULL)
            for (int l = 0; l < n_trees; l++)
                margin[i + l] = depth[i + l] ? least[l] : 0;
    }
}

/* ------------------------------------------------------------------------ one row through many trees */

/* A forest of single features, sparse and dense directions; the arrays are those of docs/format. */
typedef struct {
    const int64_t *tree_start, *sparse_start;
    const int32_t *child, *direction, *sparse_feature;
    const float *threshold, *sparse_weight, *dense;
    int32_t n_features, n_sparse;
} skf_trees;

/* Trees that a row descends side by side. */
#define SKF_TREES 16

/* Leaf of a row in n trees from `first` on, and the smallest margin on the path unless `margin` is
 * NULL. Several trees are descended side by side; a finished tree is replaced by the next one. A step
 * first loads the splits of all trees, so that many loads run at once, and then projects the row. The
 * bits are the same as node by node. */
SKF_KERNEL(skf_route_row,
           (const skf_trees *trees, const float *x, int64_t first, int64_t n,
            int32_t *SKF_RESTRICT leaf, float *SKF_RESTRICT margin),
           (trees, x, first, n, leaf, margin))
{
    static const float one = 1;
    const int32_t *child[SKF_TREES], *feature[SKF_TREES];
    const float *weight[SKF_TREES];
    int64_t tree[SKF_TREES], split[SKF_TREES], next = 0;
    int32_t node[SKF_TREES], left[SKF_TREES], n_terms[SKF_TREES], code[SKF_TREES];
    float threshold[SKF_TREES], least[SKF_TREES];
    int n_lanes = 0;
    for (;;) {
        /* 1. Replace finished trees. */
        for (int l = 0; l < SKF_TREES; l++) {
            if (l < n_lanes) {
                left[l] = child[l][node[l]];
                if (left[l] >= 0)
                    continue;
                leaf[tree[l]] = node[l];
                if (margin != NULL)
                    margin[tree[l]] = least[l];
            } else if (next >= n)
                break;
            if (next < n) {
                const int64_t root = trees->tree_start[first + next];
                tree[l] = next++;
                child[l] = trees->child + root;
                split[l] = (root - (first + tree[l])) / 2;
                node[l] = 0;
                least[l] = 0;
                n_lanes = l < n_lanes ? n_lanes : l + 1;
            } else {
                n_lanes--;
                if (l == n_lanes)
                    break;
                tree[l] = tree[n_lanes];
                child[l] = child[n_lanes];
                split[l] = split[n_lanes];
                node[l] = node[n_lanes];
                least[l] = least[n_lanes];
            }
            l--; /* the new tree may be a leaf, too */
        }
        if (n_lanes == 0)
            return;
        /* 2. Load splits. */
        for (int l = 0; l < n_lanes; l++) {
            const int64_t at = split[l] + (left[l] >> 1); /* left children are odd */
            threshold[l] = trees->threshold[at];
            code[l] = trees->direction[at];
        }
        for (int l = 0; l < n_lanes; l++) {
            const int32_t own = code[l] - trees->n_features;
            if (own >= trees->n_sparse) {
                weight[l] = trees->dense + (int64_t)(own - trees->n_sparse) * trees->n_features;
                n_terms[l] = -1;
                for (int32_t j = 0; j < trees->n_features; j += 16)
                    SKF_FETCH(weight[l] + j);
                continue;
            }
            const int is_mixture = own >= 0;
            const int64_t *start = trees->sparse_start + (is_mixture ? own : 0);
            feature[l] = is_mixture ? trees->sparse_feature + start[0] : code + l;
            weight[l] = is_mixture ? trees->sparse_weight + start[0] : &one;
            n_terms[l] = is_mixture ? (int32_t)(start[1] - start[0]) : 1;
        }
        /* 3. Project. */
        for (int l = 0; l < n_lanes; l++) {
            float sum = 0;
            if (n_terms[l] < 0)
                SKF_BY_LANES(skf_project_loop, weight[l], x, trees->n_features, &sum);
            else
                for (int t = 0; t < n_terms[l]; t++)
                    sum += weight[l][t] * x[feature[l][t]];
            const float m = fabsf(sum - threshold[l]);
            least[l] = node[l] == 0 || m < least[l] ? m : least[l];
            node[l] = left[l] + !(sum <= threshold[l]);
        }
    }
}

/* A contiguous split of a single feature or a mixture, so that a row reads less memory than with the
 * arrays above. `next` is the split below either side, or -1 - node for a leaf; `n_terms` is the number
 * of features, or -1 - number of the mixture if it has more than SKF_TERMS. */
#define SKF_TERMS 4
typedef struct {
    float threshold;
    int32_t next[2], n_terms, feature[SKF_TERMS];
    float weight[SKF_TERMS];
} skf_split;

/* The sum over the features in a split. All slots are read, because a processor could not predict a
 * branch on their number. */
SKF_INLINE float skf_project_split(const skf_split *split, const float *x)
{
    const int n = split->n_terms < 0 ? SKF_TERMS : split->n_terms;
#if defined(__GNUC__)
    typedef float four __attribute__((vector_size(16), aligned(4), may_alias));
    typedef int32_t masks __attribute__((vector_size(16)));
    static const masks keep[SKF_TERMS + 1] = {
        {0}, {-1}, {-1, -1}, {-1, -1, -1}, {-1, -1, -1, -1}};
    const int32_t *j = split->feature;
    const four z = {x[j[0]], x[j[1]], x[j[2]], x[j[3]]};
    const four term = (four)((masks)(*(const four *)split->weight * z) & keep[n]);
    return ((term[0] + term[1]) + term[2]) + term[3];
#else
    float sum = 0;
    for (int t = 0; t < n; t++)
        sum += split->weight[t] * x[split->feature[t]];
    return sum;
#endif
}

/* The same bits for trees of such splits: root[t] is the first split of a tree. A tree without splits
 * starts with a split without features, and both sides of it lead to node 0. */
SKF_KERNEL(skf_route_row_over_splits,
           (const skf_trees *trees, const skf_split *splits, const int32_t *root, const float *x,
            int64_t n, int32_t *SKF_RESTRICT leaf, float *SKF_RESTRICT margin),
           (trees, splits, root, x, n, leaf, margin))
{
    int64_t tree[SKF_ABREAST], next = 0;
    int32_t at[SKF_ABREAST];
    float least[SKF_ABREAST];
    int n_lanes = 0;
    for (; n_lanes < SKF_ABREAST && next < n; n_lanes++) {
        at[n_lanes] = root[next];
        tree[n_lanes] = next++;
    }
    while (n_lanes)
        for (int l = 0; l < n_lanes; l++) {
            const skf_split *split = splits + at[l];
            float sum = skf_project_split(split, x);
            if (split->n_terms < 0) {
                const int64_t *start = trees->sparse_start - 1 - split->n_terms;
                for (int64_t t = start[0] + SKF_TERMS; t < start[1]; t++)
                    sum += trees->sparse_weight[t] * x[trees->sparse_feature[t]];
            }
            if (margin != NULL) {
                const float m = fabsf(sum - split->threshold);
                least[l] = at[l] == root[tree[l]] || m < least[l] ? m : least[l];
            }
            at[l] = split->next[!(sum <= split->threshold)];
            if (at[l] >= 0)
                continue;
            leaf[tree[l]] = -1 - at[l];
            if (margin != NULL)
                margin[tree[l]] = least[l];
            if (next < n) {
                at[l] = root[next];
                tree[l] = next++;
            } else {
                n_lanes--;
                at[l] = at[n_lanes];
                tree[l] = tree[n_lanes];
                least[l] = least[n_lanes];
            }
        }
}

/* Projections of a row on some directions, with the same additions: out[column[k]] is the projection
 * on code[column[k]], for k < n. */
SKF_KERNEL(skf_project_pool,
           (const skf_trees *trees, const float *x, const int32_t *code, const int32_t *column,
            int64_t n, float *SKF_RESTRICT out),
           (trees, x, code, column, n, out))
{
    for (int64_t k = 0; k < n; k++) {
        const int32_t own = code[column[k]] - trees->n_features;
        float sum = 0;
        if (own >= trees->n_sparse)
            SKF_BY_LANES(skf_project_loop,
                         trees->dense + (int64_t)(own - trees->n_sparse) * trees->n_features, x,
                         trees->n_features, &sum);
        else if (own < 0)
            sum += x[code[column[k]]];
        else
            for (int64_t t = trees->sparse_start[own]; t < trees->sparse_start[own + 1]; t++)
                sum += trees->sparse_weight[t] * x[trees->sparse_feature[t]];
        out[column[k]] = sum;
    }
}

/* ------------------------------------------------------------------- all splits of small trees */

/* Leaves of a tree with at most 64 leaves, without branches: every split is decided for 32 rows at a
 * time, and removes the leaves below its left child from the candidates of rows that go right. The
 * first remaining candidate from the left is the leaf of the row (C. Lucchese et al., "QuickScorer",
 * SIGIR 2015). */
#define SKF_CANDIDATES 64

/* n rows of p bytes or floats, from `start` on, as columns of SKF_BIT_ROWS floats. */
SKF_UNUSED static void skf_fill_columns(const void *table, int is_bytes, int64_t start, int64_t n,
                                        int64_t p, float *columns)
{
    const uint8_t *bytes = (const uint8_t *)table + (is_bytes ? start * p : 0);
    const float *floats = (const float *)table + (is_bytes ? 0 : start * p);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < p; j++)
            columns[j * SKF_BIT_ROWS + i] = is_bytes ? bytes[i * p + j] : floats[i * p + j];
}

/* Whether deciding all splits is faster than node by node: not if the compiler has no vectors. */
#if defined(__GNUC__)
enum { SKF_BITS_PAY = 1 };
#else
enum { SKF_BITS_PAY = 0 };
#endif

SKF_INLINE int skf_first_bit(uint64_t word)
{
#if defined(__GNUC__)
    return __builtin_ctzll(word);
#else
    int bit = 0;
    while (!(word >> bit & 1))
        bit++;
    return bit;
#endif
}

/* Row s has its features in columns[32 j + s]. low[k] and high[k] are the remaining candidates if a row
 * goes right at split k of the tree. Additions are in the order of SKF_SPARSE_BODY. */
SKF_KERNEL(skf_route_bits,
           (const skf_trees *trees, int64_t tree, const float *columns, const uint32_t *low,
            const uint32_t *high, const int32_t *node_of_leaf, int32_t *SKF_RESTRICT leaf),
           (trees, tree, columns, low, high, node_of_leaf, leaf))
{
    const int64_t first = (trees->tree_start[tree] - tree) / 2;
    const int64_t end = (trees->tree_start[tree + 1] - tree - 1) / 2;
    uint32_t of_low[SKF_BIT_ROWS], of_high[SKF_BIT_ROWS];
    SKF_BY_LANES(skf_candidates_loop, trees->direction, trees->threshold, first, end,
                 trees->n_features, trees->sparse_start, trees->sparse_feature,
                 trees->sparse_weight, columns, low, high, of_low, of_high);
    for (int s = 0; s < SKF_BIT_ROWS; s++)
        leaf[s] = node_of_leaf[skf_first_bit((uint64_t)of_high[s] << 32 | of_low[s])];
}

/* ------------------------------------------------------------------------------- values of leaves */

/* Rows of values: `width` in each; or, if `start` is not NULL, only the nonzero entries. */
typedef struct {
    const float *value;
    const int64_t *start;
    const int32_t *index;
    int64_t width;
} skf_values;

/* out += weight value(leaf), for a leaf with the entry `child` among the children. */
SKF_INLINE void skf_add_value(const skf_values *values, int32_t child, double weight, double *out)
{
    const int64_t row = -1 - (int64_t)child;
    if (values->start == NULL)
        for (int64_t k = 0; k < values->width; k++)
            out[k] += weight * values->value[row * values->width + k];
    else
        for (int64_t j = values->start[row]; j < values->start[row + 1]; j++)
            out[values->index[j]] += weight * values->value[j];
}

/* Values of leaves are far apart in memory, so they are fetched some rows ahead. */
#define SKF_AHEAD 6

/* out_i += weight[i] value(leaf_i) for n rows, in a tree with these children; all weights are 1 if
 * `weight` is NULL. */
SKF_KERNEL(skf_add_values,
           (const skf_values *values, const int32_t *child, const int32_t *leaf,
            const float *weight, int64_t n, double *SKF_RESTRICT out),
           (values, child, leaf, weight, n, out))
{
    const int is_dense = values->start == NULL;
    for (int64_t i = 0; i < n; i++) {
        if (is_dense && i + SKF_AHEAD < n) {
            const float *later =
                values->value + (-1 - (int64_t)child[leaf[i + SKF_AHEAD]]) * values->width;
            SKF_FETCH(later);
            SKF_FETCH(later + values->width - 1);
        }
        skf_add_value(values, child[leaf[i]], weight == NULL ? 1 : weight[i],
                      out + i * values->width);
    }
}

/* out += weight[t] value(leaf_t) for one row in n trees with the roots root[t]. */
SKF_KERNEL(skf_add_values_of_trees,
           (const skf_values *values, const int32_t *child, const int64_t *root,
            const int32_t *leaf, const float *weight, int64_t n, double *SKF_RESTRICT out),
           (values, child, root, leaf, weight, n, out))
{
    for (int64_t t = 0; t < n; t++)
        skf_add_value(values, child[root[t] + leaf[t]], weight == NULL ? 1 : weight[t], out);
}

#endif
