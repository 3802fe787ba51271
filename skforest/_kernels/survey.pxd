# One look at the rows of a node: where they lie, how far apart, and what varies.

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

cdef extern from "descent.h" nogil:
    void skf_survey(
        const float*, const int64_t*, int64_t, const float*, const float*, int64_t, float*,
        int32_t*, float*
    )
    void skf_distances(const float*, const int64_t*, int64_t, const float*, int64_t, float*)

cdef enum:
    SURVEYED = 256          # rows that are added up together: float32 will do for the mean


cdef inline double survey(
    const float* table, const int64_t* at, const float* weight, int64_t n, int64_t p,
    float* mean, int32_t* seen, float* distance, float* sum_
) noexcept nogil:
    """Weighted sum of squares of some rows about their mean.

    table, at, weight : IN, where the n rows of p numbers start, and weights that add up to n
    mean : OUT, p
    seen : OUT, p, with a bit set, the sign apart, of every feature that varies
    distance : scratch, n
    sum_ : scratch, p; left at 0
    """
    cdef const float* first = table + at[0]
    cdef int64_t start = 0, size, i, j
    cdef float[SURVEYED] share
    cdef double square = 0, about_first = 0
    memset(mean, 0, p * sizeof(float))
    memset(sum_, 0, p * sizeof(float))
    memset(seen, 0, p * sizeof(int32_t))
    while start < n:
        size = min(<int64_t>SURVEYED, n - start)
        for i in range(size):
            share[i] = weight[start + i] / n
        skf_survey(table, at + start, size, first, share, p, sum_, seen, distance + start)
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
        # The first row is far out, and the difference has lost its digits.
        skf_distances(table, at, n, mean, p, distance)
        square = 0
        for i in range(n):
            square += weight[i] * distance[i]
    return square
