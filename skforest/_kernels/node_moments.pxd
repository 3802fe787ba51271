# Mean and spread of the rows of a node, and which features vary, in one pass over the rows.

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cdef extern from "descent.h" nogil:
    void skf_node_moments(
        const float*, const int64_t*, int64_t, const float*, const float*, int64_t, float*,
        int32_t*, float*
    )
    void skf_distances(const float*, const int64_t*, int64_t, const float*, int64_t, float*)

cdef enum:
    BLOCK = 256             # rows that are summed in float32, which is exact enough for a mean


cdef inline double node_moments(
    const float* table, const int64_t* at, const float* weight, int64_t n, int64_t p,
    float* mean, int32_t* seen, float* distance, float* sum_
) noexcept nogil:
    """Mean of some rows, and the sum of ``weight_i |x_i - mean|^2``, which is returned.

    Sums are of differences from the first row, so that a large common offset loses no digits.

    table, at, weight : IN, where the n rows of p numbers start, and weights that add up to n
    mean : OUT, p
    seen : OUT, p, with a bit set, the sign apart, of every feature that varies
    distance : scratch, n
    sum_ : scratch, p; left at 0
    """
    cdef const float* first = table + at[0]
    cdef int64_t start = 0, size, i, j
    cdef float[BLOCK] share
    cdef double square = 0, about_first = 0
    memset(mean, 0, p * sizeof(float))
    memset(sum_, 0, p * sizeof(float))
    memset(seen, 0, p * sizeof(int32_t))
    while start < n:
        size = min(<int64_t>BLOCK, n - start)
        for i in range(size):
            share[i] = weight[start + i] / n
        skf_node_moments(table, at + start, size, first, share, p, sum_, seen, distance + start)
        for j in range(p):
            mean[j] += sum_[j]
            sum_[j] = 0
        start += size
    for i in range(n):
        about_first += weight[i] * distance[i]
    for j in range(p):
        square += <double>mean[j] * mean[j]
        mean[j] += first[j]
    square = about_first - n * square
    if square < 0.01 * about_first:
        # The first row is an outlier, and the difference above has lost its digits.
        skf_distances(table, at, n, mean, p, distance)
        square = 0
        for i in range(n):
            square += weight[i] * distance[i]
    return square
