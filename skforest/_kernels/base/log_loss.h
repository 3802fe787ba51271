/* The log loss of several classes, whose exponentials are computed in vectors.
 *
 * Those of the C library are called one by one, and their last bits depend on the processor.
 */
#ifndef SKFOREST_LOG_LOSS_H
#define SKFOREST_LOG_LOSS_H

#include "simd.h"

/* The power of smaller exponents is 0 instead of a number near the smallest normal one. */
#define SKF_LEAST_EXPONENT -708.0

/* x[i] = exp(x[i]) for x[i] <= 0, by 2^k e^r with |r| <= log(2) / 2 and the Taylor polynomial of
 * degree 13, up to about one unit in the last place. */
SKF_INLINE void skf_exponentials(double *SKF_RESTRICT x, int64_t n)
{
    const double to_whole = 0x1.8p52; /* the sum's last bits are k */
    for (int64_t i = 0; i < n; i++) {
        const double low = x[i] < SKF_LEAST_EXPONENT ? SKF_LEAST_EXPONENT : x[i];
        const double sum = low * 0x1.71547652b82fep0 + to_whole, k = sum - to_whole;
        /* log(2) in two parts, the first of which has few bits */
        const double r = (low - k * 0x1.62e42fefa38p-1) - k * 0x1.ef35793c7673p-45;
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

/* Log losses of n rows of raw predictions of K classes, and their derivatives; see loss.pyx. The
 * largest raw prediction of a row is subtracted, so that no exponential overflows. */
SKF_KERNEL(skf_log_losses,
           (const double *SKF_RESTRICT raw, const double *label, int64_t n, int64_t K,
            double smoothing, double *SKF_RESTRICT loss, double *SKF_RESTRICT slope),
           (raw, label, n, K, smoothing, loss, slope))
{
    const double even = smoothing / (double)K;
    for (int64_t i = 0; i < n; i++) {
        const double *own = raw + i * K;
        double largest = own[0], sum = 0;
        for (int64_t k = 0; k < K; k++) {
            largest = own[k] > largest ? own[k] : largest;
            sum += own[k];
        }
        for (int64_t k = 0; k < K; k++)
            slope[i * K + k] = own[k] - largest;
        loss[i] = largest - (1 - smoothing) * own[(int64_t)label[i]] - even * sum;
    }
    skf_exponentials(slope, n * K);
    for (int64_t i = 0; i < n; i++) {
        double *own = slope + i * K, total = 0;
        for (int64_t k = 0; k < K; k++)
            total += own[k];
        loss[i] += log(total);
        for (int64_t k = 0; k < K; k++)
            own[k] = own[k] / total - even;
        own[(int64_t)label[i]] -= 1 - smoothing;
    }
}

#endif
