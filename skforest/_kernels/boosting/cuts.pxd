# The best cut between the bins of a histogram; see trainer.pyx for the gain.

from libc.stdint cimport int32_t, int64_t

cdef extern from "boosting/histogram.h" nogil:
    void skf_best_cut(
        const double*, int, int, int, int, const double*, double, double, double*, int32_t*
    )


cdef struct Cut:
    double gain
    double middle             # between the values of the children, if they have bounds
    int32_t column
    int32_t bin               # last bin on the left


cdef struct Bins:
    # The histogram of a node in one column.
    const double* sums        # (n, stride): gradients, curvature, number of rows, zeros
    int64_t n
    int32_t stride
    int32_t n_search          # gradients
    int32_t count_at          # place of the number of rows
    const double* total       # sums of all bins
    double l2
    int64_t min_leaf


cdef inline double bounded_value(double g, double h, double lower, double upper) noexcept nogil:
    """Return the value -g / h of a leaf, clipped to the bounds of a node."""
    cdef double value = -g / h if h > 0 else 0
    return min(max(value, lower), upper)


cdef inline double score(double g, double h, double value) noexcept nogil:
    """Return twice the decrease of the loss by a value: g^2 / h at -g / h."""
    return -value * (2 * g + h * value)


cdef inline bint exceeds_rounding(double part, double total) noexcept nogil:
    """Return whether the curvature of a child exceeds the rounding error of its parent."""
    return part > 1e-12 * total


cdef inline void find_cut(const Bins* bins, Cut* best) noexcept nogil:
    """Find the cut with the largest gain; the gain is -1 if there is no cut."""
    skf_best_cut(
        bins.sums, <int>bins.n - 1, bins.stride, bins.n_search, bins.count_at, bins.total,
        bins.l2, bins.min_leaf, &best.gain, &best.bin
    )


cdef inline void find_bounded_cut(
    const Bins* bins, double lower, double upper, int32_t sign, Cut* best
) noexcept nogil:
    """As `find_cut`, for one output, with bounds on the values of the children.

    sign : IN, sign of the change of values along the column, 0 if it is free
    """
    cdef const double* sums = bins.sums
    cdef const double* total = bins.total
    cdef int32_t stride = bins.stride
    cdef double all_h = total[1] + bins.l2, g = 0, h = bins.l2, count = 0, gain
    cdef double right_g, right_h, left_value, right_value
    cdef double own = score(total[0], all_h, bounded_value(total[0], all_h, lower, upper))
    cdef int64_t b
    best.gain = -1
    for b in range(bins.n - 1):
        g += sums[0]
        h += sums[1]
        count += sums[bins.count_at]
        sums += stride
        if count < bins.min_leaf:
            continue
        if total[bins.count_at] - count < bins.min_leaf:
            break
        right_g, right_h = total[0] - g, all_h - h + bins.l2
        if not exceeds_rounding(min(h, right_h), all_h):
            continue
        left_value = bounded_value(g, h, lower, upper)
        right_value = bounded_value(right_g, right_h, lower, upper)
        if sign * (right_value - left_value) < 0:
            continue
        gain = score(g, h, left_value) + score(right_g, right_h, right_value) - own
        if gain > best.gain:
            best.gain = gain
            best.bin = <int32_t>b
            best.middle = left_value + (right_value - left_value) / 2
