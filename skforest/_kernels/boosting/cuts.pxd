# Cuts between the bins of a histogram.

from libc.stdint cimport int32_t, int64_t


cdef struct Cut:
    double gain
    double middle             # between the values of the children, where they have bounds
    int32_t column
    int32_t bin               # the last one on the left


cdef struct Bins:
    # The histogram of a node in one column.
    const double* sums        # (n, stride): gradients, curvature, number of rows
    int64_t n
    int32_t stride
    int32_t n_search          # gradients
    const double* total       # sums of all bins
    double l2
    int64_t min_leaf


cdef void find_cut(const Bins* bins, Cut* best) noexcept nogil
cdef void find_bounded_cut(
    const Bins* bins, double lower, double upper, int32_t sign, Cut* best
) noexcept nogil
