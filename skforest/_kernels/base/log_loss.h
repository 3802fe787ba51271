/* Log losses of raw predictions and of blended probabilities.
 *
 * Exponentials and logarithms are computed in vectors. Those of the C library are called one by
 * one, and their last bits depend on the processor.
 */
#ifndef SKFOREST_LOG_LOSS_H
#define SKFOREST_LOG_LOSS_H

#include "simd.h"

/* The power of smaller exponents is 0 instead of a number near the smallest normal one. */
#define SKF_LEAST_EXPONENT -708.0
/* log(2), in two parts, the first of which has few bits */
#define SKF_LOG_2 0x1.62e42fefa38p-1
#define SKF_REST_OF_LOG_2 0x1.ef35793c7673p-45

#define SKF_LOSSES 64 /* rows of a block */

/* x[i] = exp(x[i]) for x[i] <= 0, by 2^k e^r with |r| <= log(2) / 2 and the Taylor polynomial of
 * degree 13, up to about one unit in the last place. */
SKF_INLINE void skf_exponentials(double *SKF_RESTRICT x, int64_t n)
{
    const double to_whole = 0x1.8p52; /* the sum's last bits are k */
    for (int64_t i = 0; i < n; i++) {
        const double low = x[i] < SKF_LEAST_EXPONENT ? SKF_LEAST_EXPONENT : x[i];
        const double sum = low * 0x1.71547652b82fep0 + to_whole, k = sum - to_whole;
        const double r = (low - k * SKF_LOG_2) - k * SKF_REST_OF_LOG_2;
        double power = 1.0 / 6227020800, two;
        uint64_t bits;
        memcpy(&bits, &sum, sizeof bits);
        bits = (bits + 1023) << 52;
        memcpy(&two, &bits, sizeof two);
        power = power * r + 1.0 / 479001600;
        power = power * r + 1.0 / 39916800;
        power = power * r + 1.0 / 3628800;
        power = power * r + 1.0 / 362880;
        power = power * r + 1.0 / 40320;
        power = power * r + 1.0 / 5040;
        power = power * r + 1.0 / 720;
        power = power * r + 1.0 / 120;
        power = power * r + 1.0 / 24;
        power = power * r + 1.0 / 6;
        power = power * r + 0.5;
        power = power * r + 1;
        power = power * r + 1;
        x[i] = x[i] < SKF_LEAST_EXPONENT ? 0 : power * two;
    }
}

/* x[i] = log(x[i]) for normal numbers x[i] = 2^k m > 0 with m from sqrt(1/2) to sqrt(2). With
 * s = (m - 1) / (m + 1), log(m) = 2 (s + s^3 / 3 + s^5 / 5 + ...), up to s^19. */
SKF_INLINE void skf_logarithms(double *SKF_RESTRICT x, int64_t n)
{
    const uint64_t root = 0x3FE6A09E667F3BCD; /* the bits of sqrt(1/2) */
    for (int64_t i = 0; i < n; i++) {
        uint64_t bits, exponent;
        double m, k;
        memcpy(&bits, &x[i], sizeof bits);
        exponent = ((bits - root) + ((uint64_t)1024 << 52)) >> 52; /* k + 1024 */
        bits -= (exponent - 1024) << 52;
        memcpy(&m, &bits, sizeof m);
        exponent += 0x4330000000000000; /* the bits of 2^52 + k + 1024 */
        memcpy(&k, &exponent, sizeof k);
        k -= 0x1p52 + 1024;
        const double s = (m - 1) / (m + 1), square = s * s;
        double sum = 1.0 / 19;
        sum = sum * square + 1.0 / 17;
        sum = sum * square + 1.0 / 15;
        sum = sum * square + 1.0 / 13;
        sum = sum * square + 1.0 / 11;
        sum = sum * square + 1.0 / 9;
        sum = sum * square + 1.0 / 7;
        sum = sum * square + 1.0 / 5;
        sum = sum * square + 1.0 / 3;
        sum = 2 * s * (sum * square + 1);
        x[i] = k * SKF_LOG_2 + (sum + k * SKF_REST_OF_LOG_2);
    }
}

/* Log losses of n rows of raw predictions of K classes, and their derivatives; see loss.pyx. The
 * largest raw prediction of a row is subtracted, so that no exponential overflows. */
SKF_KERNEL(skf_log_losses,
           (const double *SKF_RESTRICT raw, const double *label, int64_t n, int64_t K,
            double smoothing, double *SKF_RESTRICT loss, double *SKF_RESTRICT slope),
           (raw, label, n, K, smoothing, loss, slope))
{
    const double even = smoothing / (double)K;
    for (int64_t first = 0; first < n; first += SKF_LOSSES) {
        const int64_t size = n - first < SKF_LOSSES ? n - first : SKF_LOSSES;
        double total[SKF_LOSSES] = {0};
        for (int64_t i = first; i < first + size; i++) {
            const double *f = raw + i * K;
            double largest = f[0], sum = 0;
            for (int64_t k = 0; k < K; k++) {
                largest = f[k] > largest ? f[k] : largest;
                sum += f[k];
            }
            for (int64_t k = 0; k < K; k++)
                slope[i * K + k] = f[k] - largest;
            loss[i] = largest - (1 - smoothing) * f[(int64_t)label[i]] - even * sum;
        }
        skf_exponentials(slope + first * K, size * K);
        for (int64_t i = first; i < first + size; i++) {
            double *out = slope + i * K;
            for (int64_t k = 0; k < K; k++)
                total[i - first] += out[k];
            for (int64_t k = 0; k < K; k++)
                out[k] = out[k] / total[i - first] - even;
            out[(int64_t)label[i]] -= 1 - smoothing;
        }
        skf_logarithms(total, size);
        for (int64_t i = 0; i < size; i++)
            loss[first + i] += total[i];
    }
}

/* The same for two classes, y = 0 or 1; raw is the log odds of 1. */
SKF_KERNEL(skf_binary_log_losses,
           (const double *SKF_RESTRICT raw, const double *y, int64_t n,
            double *SKF_RESTRICT loss, double *SKF_RESTRICT slope),
           (raw, y, n, loss, slope))
{
    for (int64_t i = 0; i < n; i++)
        slope[i] = -fabs(raw[i]);
    skf_exponentials(slope, n);
    for (int64_t i = 0; i < n; i++)
        loss[i] = 1 + slope[i];
    skf_logarithms(loss, n);
    for (int64_t i = 0; i < n; i++) {
        slope[i] = (raw[i] > 0 ? 1 : slope[i]) / (1 + slope[i]) - y[i];
        loss[i] += (raw[i] > 0 ? raw[i] : 0) - y[i] * raw[i];
    }
}

#define SKF_TEMPERATURES 4

/* power[t] = x to the powers 1, 5/4, 3/2 and 2 */
SKF_INLINE void skf_powers(const double *x, int64_t n, double (*SKF_RESTRICT power)[SKF_LOSSES])
{
    for (int64_t i = 0; i < n; i++) {
        const double root = sqrt(x[i]);
        power[0][i] = x[i];
        power[1][i] = x[i] * sqrt(root);
        power[2][i] = x[i] * root;
        power[3][i] = x[i] * x[i];
    }
}

/* Blends n_parts tables of probabilities, with a row for each of K classes and a column for each
 * of n rows of X. score[t n + i] is the log of the probability of the label of row i, at least
 * `least`, where t = 0 .. 3 are the temperatures 1, 4/5, 2/3 and 1/2. */
SKF_KERNEL(skf_sharpened_scores,
           (const double *const *part, const double *share, int64_t n_parts, int64_t K, int64_t n,
            const double *label, double least, double *SKF_RESTRICT score),
           (part, share, n_parts, K, n, label, least, score))
{
    for (int64_t first = 0; first < n; first += SKF_LOSSES) {
        const int64_t size = n - first < SKF_LOSSES ? n - first : SKF_LOSSES;
        double total[SKF_TEMPERATURES][SKF_LOSSES] = {{0}}, of_label[SKF_LOSSES] = {0};
        double power[SKF_TEMPERATURES][SKF_LOSSES];
        for (int64_t k = 0; k < K; k++) {
            double mean[SKF_LOSSES] = {0};
            for (int64_t m = 0; m < n_parts; m++) {
                const double *p = part[m] + k * n + first;
                for (int64_t i = 0; share[m] != 0 && i < size; i++)
                    mean[i] += share[m] * p[i];
            }
            skf_powers(mean, size, power);
            for (int t = 1; t < SKF_TEMPERATURES; t++)
                for (int64_t i = 0; i < size; i++)
                    total[t][i] += power[t][i];
            for (int64_t i = 0; i < size; i++)
                of_label[i] = label[first + i] == (double)k ? mean[i] : of_label[i];
        }
        skf_powers(of_label, size, power);
        for (int t = 0; t < SKF_TEMPERATURES; t++) {
            for (int64_t i = 0; i < size; i++) {
                const double chance = power[t][i] / (t > 0 ? total[t][i] : 1);
                power[t][i] = chance > least ? chance : least;
            }
            skf_logarithms(power[t], size);
            memcpy(score + t * n + first, power[t], (size_t)size * sizeof(double));
        }
    }
}

#endif
