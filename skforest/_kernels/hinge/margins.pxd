# The loops of margins.h, which documents them.

from libc.stdint cimport int32_t, int64_t

cdef extern from "hinge/margins.h" nogil:
    enum:
        SKF_WIDE, SKF_READS_COLUMNS
    double SKF_MIN_VARIANCE, SKF_MAX_MEMORY

    ctypedef struct Test "skf_test":
        float threshold
        int32_t feature

    # Coefficients of a step of an optimiser.
    ctypedef struct Stepper "skf_stepper":
        int32_t kind
        float rate, decay, momentum
        float first, second, unbias_first, unbias_second

    void skf_standardise(float*, int64_t, int64_t, const float*, const float*, float*, float*)
    void skf_scale_columns(float*, int64_t, int64_t, int64_t, const float*)
    void skf_kernel_gradient(
        const Test*, const int32_t*, const float*, int64_t, const float*, int64_t, int64_t,
        int64_t, const float*, float*
    )
    void skf_hinge_route(
        const Test*, int, int, const float*, int64_t, const float*, int64_t, int64_t,
        int32_t*, int32_t*, float*
    )
    void skf_transpose(const float*, int64_t, int64_t, float*, int64_t)
    void skf_hinge_response(
        const float*, int64_t, const int32_t*, const float*, int64_t, int64_t, float, float*
    )
    void skf_hinge_gradient(
        const float*, int64_t, const int32_t*, const float*, const float*, const int32_t*,
        int64_t, int64_t, float, float*, float*
    )
    void skf_hinge_step(
        const Stepper*, float*, int64_t, float*, float*, int64_t, const float*, const int32_t*,
        int64_t, int64_t
    )
