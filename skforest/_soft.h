/* Floor 2: the loops of soft trees: gates, and a step of Adam. */
#ifndef SKFOREST_SOFT_H
#define SKFOREST_SOFT_H

#include "_descent.h"

/* Margins count as no steeper than this: exp stays a normal float, and so does a product of two. */
#define SKF_STEEPEST 30.0f
/* Averages of gradients below this are 0, and not one of the slow numbers next to it. */
#define SKF_STILL 1e-18f

/* gate[i] = 1 / (1 + exp(-steepness (margin[i] + bias))), with an exponential of 2^k e^r. */
SKF_KERNEL(skf_gates,
           (const float *margin, int64_t n, float steepness, float bias, float *SKF_RESTRICT gate),
           (margin, n, steepness, bias, gate))
{
    for (int64_t i = 0; i < n; i++) {
        const float z = -steepness * (margin[i] + bias);
        const float low = z < -SKF_STEEPEST ? -SKF_STEEPEST : z;
        const float x = low > SKF_STEEPEST ? SKF_STEEPEST : low;
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

/* A step of Adam (Kingma and Ba 2015) with the gradient factor (g - shift mean), in units `unit` of
 * each weight. A weight that is exactly 0 is no part of its split and stays 0. g is cleared. */
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
        first[j] = fabsf(m) > SKF_STILL ? m : 0;
        second[j] = v > SKF_STILL * SKF_STILL ? v : 0;
        w[j] -= rate * unit[j] * (m * unbias_first) / (sqrtf(v * unbias_second) + 1e-8f);
        g[j] = 0;
    }
}

#endif
