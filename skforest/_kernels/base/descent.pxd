# The loops of descent.h, which documents them.

from libc.stdint cimport int32_t, int64_t

cdef extern from "base/descent.h" nogil:
    enum:
        SKF_GROUP
        SKF_TILE

    void skf_margins(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_add_rows(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_node_moments(
        const float*, const int64_t*, int64_t, const float*, const float*, int64_t, float*,
        int32_t*, float*
    )
    void skf_distances(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_momentum_step(
        float*, float*, float*, const float*, int64_t, float, float, float, float, float*
    )
    void skf_dot(const float*, const float*, int64_t, float*)
    void skf_shrink(float*, int64_t, float, float*)
    void skf_rescale(float*, int64_t, float, float)
    void skf_bound_slopes(
        const float*, const float*, const float*, const float*, int64_t, float*
    )
    void skf_bound_values(const float*, const float*, int64_t, float*)
    int64_t skf_pick_active(const int64_t*, const float*, int64_t, int64_t*, float*, double*)
    void skf_label_losses(
        const int32_t*, int64_t, const float*, const float*, float*, float*
    )
    int64_t skf_weigh_labels(
        const float*, const int32_t*, const float*, int64_t, int64_t, double*
    )
    int64_t skf_weigh_targets(
        const float*, const double*, const float*, int64_t, int64_t, double*, double*
    )
    void skf_gather_rows(
        const float*, const int64_t*, int64_t, const int32_t*, int64_t, int64_t, int64_t,
        const float*, float, float*
    )
    void skf_critical_values(const double*, const float*, int64_t, float, float*)
    void skf_tilt_margins(double*, const float*, int64_t, float, double, double)
    void skf_logistic_slopes(float*, const float*, const float*, int64_t)
    double skf_logistic_loss(const float*, const float*, const float*, int64_t)
    double skf_wrong_side(
        const float*, const float*, const float*, const float*, int64_t, float
    )
    void skf_multiply(
        const float*, int64_t, int64_t, int64_t, int64_t, const float*, int64_t, int64_t, float*,
        int64_t
    )
