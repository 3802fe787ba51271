/* The loops of soft trees: a batch at a node, and a step of Adam. */
#ifndef SKFOREST_SOFT_H
#define SKFOREST_SOFT_H

#include "../base/descent.h"

/* Margins are clipped to this, so that exp and a product of two stay normal floats. */
#define SKF_MAX_EXPONENT 30.0f
/* Averages of gradients below this are set to 0: subnormal numbers are slow. */
#define SKF_MIN_AVERAGE 1e-18f

/* gate[i] = 1 / (1 + exp(-steepness (margin[i] + bias))), with an exponential of 2^k e^r. */
SKF_KERNEL(skf_gates,
           (const float *margin, int64_t n, float steepness, float bias, float *SKF_RESTRICT gate),
           (margin, n, steepness, bias, gate))
{
    for (int64_t i = 0; i < n; i++) {
        const float z = -steepness * (margin[i] + bias);
        const float low = z < -SKF_MAX_EXPONENT ? -SKF_MAX_EXPONENT : z;
        const float x = low > SKF_MAX_EXPONENT ? SKF_MAX_EXPONENT : low;
        const float k = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* rounded */
        const float r = (x - k * 0.693359375f) + k * 2.12194440e-4f;
        float power = 1.0f / 5040;
        int32_t bits = ((int32_t)k + 127) << 23;
        float two;
        memcpy(&two, &bits, sizeof(two));
        power = power * r + 1.0f / 720;
        power = power * r + 1.0f / 120;
        power = power * r + 1.0f / 24;
        power = power * r + 1.0f / 6;
        power = power * r + 0.5f;
        power = power * r + 1.0f;
        power = power * r + 1.0f;
        gate[i] = 1 / (1 + power * two);
    }
}

/* The visits of nodes by the rows of a batch, node after node, as columns of one table. */
typedef struct {
    int64_t n, capacity;
    int32_t *row; /* of the batch */
    float *reach; /* probability of the path from the root */
    float *gate;  /* of going right */
    float *likelihood;   /* likelihood of the row below the node */
    float *part;  /* weight of the row times its posterior probability of the node */
    int32_t *left, *right; /* visit of the row at either child, or 0 */
} skf_visits;

/* at[i] = where the row of visit i starts */
SKF_UNUSED static void skf_rows_at(const int64_t *batch, const int32_t *row, int64_t n,
                                   int64_t *SKF_RESTRICT at)
{
    for (int64_t i = 0; i < n; i++)
        at[i] = batch[row[i]];
}

/* out[j] = mean[j] where the byte of the feature is below `dropped`, otherwise row[j] */
SKF_KERNEL(skf_drop_features,
           (const float *row, const float *mean, const uint8_t *noise, int dropped, int64_t p,
            float *SKF_RESTRICT out),
           (row, mean, noise, dropped, p, out))
{
    for (int64_t j = 0; j < p; j++)
        out[j] = noise[j] < dropped ? mean[j] : row[j];
}

/* Probabilities of both children of a node that rows reach with `reach`; -1 if a row visits a
 * child, otherwise 0: children reached with less than `min_reach` are omitted, except for the
 * likelier one. */
SKF_KERNEL(skf_child_reach,
           (const float *reach, const float *gate, int64_t n, float min_reach,
            float *SKF_RESTRICT left, float *SKF_RESTRICT right, int32_t *SKF_RESTRICT to_left,
            int32_t *SKF_RESTRICT to_right),
           (reach, gate, n, min_reach, left, right, to_left, to_right))
{
    for (int64_t i = 0; i < n; i++) {
        const float l = reach[i] * (1 - gate[i]), r = reach[i] * gate[i];
        left[i] = l;
        right[i] = r;
        to_left[i] = -((l >= min_reach) | (l >= r));
        to_right[i] = -((r >= min_reach) | (r > l));
    }
}

/* Close the gaps between the n visits from `first` on; to[i]: -1 where there is one, then its place
 * or 0. Returns their number. */
SKF_INLINE int64_t skf_compact(const skf_visits *v, const int32_t *row, int64_t first, int64_t n,
                                int32_t *SKF_RESTRICT to)
{
    int32_t *rows = v->row;
    float *reach = v->reach;
    int64_t end = first;
    for (int64_t i = 0; i < n; i++) {
        const int64_t goes = to[i];
        rows[end] = row[i];
        reach[end] = reach[first + i];
        to[i] = (int32_t)(goes & end);
        end -= goes;
    }
    return end - first;
}

/* Append the visits of both children of a node with the n visits from `start` on: of the left child
 * at v->n, of the right one n places later. With a negative `min_reach`, none are omitted. */
SKF_UNUSED static void skf_visit_children(skf_visits *v, int64_t start, int64_t n, float min_reach,
                                  int64_t *n_left, int64_t *n_right)
{
    int32_t *to_left = v->left + start, *to_right = v->right + start;
    const int64_t left = v->n, right = v->n + n;
    skf_child_reach(v->reach + start, v->gate + start, n, min_reach, v->reach + left, v->reach + right,
             to_left, to_right);
    *n_left = skf_compact(v, v->row + start, left, n, to_left);
    *n_right = skf_compact(v, v->row + start, right, n, to_right);
    v->n += 2 * n;
}

/* Likelihoods of the n visits of a split, from those of its children. Densities may underflow; the
 * row then belongs to no leaf. */
SKF_UNUSED static void skf_split_likelihoods(const skf_visits *v, int64_t start, int64_t n)
{
    const float *gate = v->gate + start;
    const int32_t *left = v->left + start, *right = v->right + start;
    for (int64_t i = 0; i < n; i++) {
        const float l = v->likelihood[left[i]], r = v->likelihood[right[i]];
        const float sum = (1 - gate[i]) * l + gate[i] * r;
        v->likelihood[start + i] = sum > 1e-37f ? sum : 1e-37f;
    }
}

/* Responsibilities of both children of a split with n visits, and slopes by the margins. */
SKF_UNUSED static void skf_split_parts(const skf_visits *v, int64_t start, int64_t n, float steepness,
                                  float *SKF_RESTRICT slope)
{
    const float *gate = v->gate + start;
    const float *likelihood = v->likelihood;
    const int32_t *to_left = v->left + start, *to_right = v->right + start;
    for (int64_t i = 0; i < n; i++) {
        /* The part may be large, so divide likelihoods first; their quotients are at most 1. */
        const float part = v->part[start + i], over = 1 / likelihood[start + i];
        const float left = part * (over * (1 - gate[i]) * likelihood[to_left[i]]);
        const float right = part * (over * gate[i] * likelihood[to_right[i]]);
        v->part[to_left[i]] = left;
        v->part[to_right[i]] = right;
        slope[i] = steepness * (gate[i] * left - (1 - gate[i]) * right);
    }
}

/* Likelihoods of the n visits of a leaf: its shares of their labels. */
SKF_UNUSED static void skf_leaf_likelihoods(const skf_visits *v, int64_t start, int64_t n,
                                            const float *share, const int32_t *label)
{
    for (int64_t i = start; i < start + n; i++)
        v->likelihood[i] = share[label[v->row[i]]];
}

/* Adds the parts of the n visits of a leaf to the sums of their labels; returns their sum. */
SKF_UNUSED static double skf_add_to_leaf(const skf_visits *v, int64_t start, int64_t n,
                                    const int32_t *label, double *SKF_RESTRICT sum)
{
    double total = 0;
    for (int64_t i = start; i < start + n; i++) {
        total += v->part[i];
        sum[label[v->row[i]]] += v->part[i];
    }
    return total;
}

/* A step of Adam (Kingma and Ba 2015) with the gradient factor (g - shift mean), in units `unit` of
 * each weight. Weights of exactly 0 do not belong to their split, and stay 0. g is cleared. */
SKF_KERNEL(skf_adam_step,
           (float *SKF_RESTRICT w, float *SKF_RESTRICT first, float *SKF_RESTRICT second,
            float *SKF_RESTRICT g, const float *SKF_RESTRICT mean, const float *SKF_RESTRICT unit,
            int64_t p, float factor, float shift, float rate, float unbias_first,
            float unbias_second),
           (w, first, second, g, mean, unit, p, factor, shift, rate, unbias_first, unbias_second))
{
    for (int64_t j = 0; j < p; j++) {
        const float slope = w[j] != 0 ? (g[j] - mean[j] * shift) * factor : 0;
        const float m = 0.9f * first[j] + 0.1f * slope;
        const float v = 0.999f * second[j] + 0.001f * slope * slope;
        first[j] = fabsf(m) > SKF_MIN_AVERAGE ? m : 0;
        second[j] = v > SKF_MIN_AVERAGE * SKF_MIN_AVERAGE ? v : 0;
        w[j] -= rate * unit[j] * (m * unbias_first) / (sqrtf(v * unbias_second) + 1e-8f);
        g[j] = 0;
    }
}

#endif
