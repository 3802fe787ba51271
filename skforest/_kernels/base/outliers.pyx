"""The usual range of each column: its range without its outliers.

A column is given by its sorted values v_1 <= ... <= v_n and the sums W_i = w_1 + ... + w_i of
their weights. The lower quantile of a share s is the first v_i with W_i >= s W_n, the upper one
the first with W_i > (1 - s) W_n. ``skforest.table.matrix`` defines outliers, and its constants
RARE, FENCE, APART, FAR and MIN_WIDTH are arguments. The time for a column is linear in n.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy

import numpy as np


cdef struct Column:
    const double* value
    const double* total
    int64_t n


cdef struct Limits:
    double rare
    double fence
    double apart
    double far
    double least              # smallest width of a range


def write_usual_ends(
    const double[::1] value, weight, const int64_t[::1] start, double[:, ::1] ends,
    double rare, double fence, double apart, double far, double least
):
    """Replace the range of each column that has outliers by its usual range.

    value : sorted values, one column after the other; weight : their weights, or None if all are
    equal; start : (n_columns + 1,), where the columns start and the last one ends; ends :
    (n_columns, 2), the smallest and largest value of each column, which change.
    """
    cdef int64_t j, n_columns = ends.shape[0], n_most = 1
    cdef Limits limits = Limits(rare, fence, apart, far, least)
    cdef Column column
    cdef const double[::1] weights
    cdef const double* first_weight = NULL
    cdef double[:, ::1] scratch
    for j in range(n_columns):
        n_most = max(n_most, start[j + 1] - start[j])
    if weight is not None and len(weight):
        weights = weight
        first_weight = &weights[0]
    # Sums of weights of a column, and two places for parts of a column: values, sums of weights.
    scratch = np.empty((5, n_most))
    with nogil:
        for j in range(n_columns):
            column.n = start[j + 1] - start[j]
            if column.n == 0:
                continue
            column.value = &value[start[j]]
            column.total = &scratch[0, 0]
            add_up(first_weight, start[j], column.n, &scratch[0, 0])
            find_ends(column, &limits, &scratch[1, 0], n_most, &ends[j, 0])


cdef void add_up(const double* weight, int64_t start, int64_t n, double* total) noexcept nogil:
    cdef int64_t i
    cdef double sum = 0
    for i in range(n):
        sum += 1 if weight is NULL else weight[start + i]
        total[i] = sum


cdef int64_t n_below(const double* rising, int64_t n, double x) noexcept nogil:
    """Return how many of n rising numbers are below x."""
    cdef int64_t low = 0, middle
    while low < n:
        middle = (low + n) // 2
        if rising[middle] < x:
            low = middle + 1
        else:
            n = middle
    return low


cdef int64_t n_up_to(const double* rising, int64_t n, double x) noexcept nogil:
    """Return how many of n rising numbers are at most x."""
    cdef int64_t low = 0, middle
    while low < n:
        middle = (low + n) // 2
        if x < rising[middle]:
            n = middle
        else:
            low = middle + 1
    return low


cdef void quantiles(const Column* column, double share, double* low, double* high) noexcept nogil:
    """Write the lower and the upper quantile for a share of the weight.

    Shares are compared up to rounding, so that the order in which weights are added has no effect.
    """
    cdef double every = column.total[column.n - 1], sought = share * (1 - 1e-9) * every
    cdef int64_t last = column.n - 1
    low[0] = column.value[min(n_below(column.total, column.n, sought), last)]
    high[0] = column.value[min(n_up_to(column.total, column.n, every - sought), last)]


cdef Column without(
    const Column* column, double value, double least, double* memory, int64_t n_most
) noexcept nogil:
    """Return the other values of a column; none unless `value` has the weight `least`.

    memory : for n_most values, and as many totals behind them
    """
    cdef Column others
    cdef double every = column.total[column.n - 1]
    cdef int64_t start = n_below(column.value, column.n, value)
    cdef int64_t stop = n_up_to(column.value, column.n, value), i
    cdef double before = column.total[start - 1] if start > 0 else 0
    cdef double taken = column.total[stop - 1] - before
    others.value, others.total, others.n = column.value, column.total, start
    if every - (before if stop == column.n else every - taken) < least:
        others.n = 0
        return others
    if stop == column.n:
        return others
    others.value, others.total, others.n = memory, memory + n_most, start + column.n - stop
    memcpy(memory, column.value, start * sizeof(double))
    memcpy(memory + start, column.value + stop, (column.n - stop) * sizeof(double))
    memcpy(memory + n_most, column.total, start * sizeof(double))
    for i in range(stop, column.n):
        memory[n_most + start + i - stop] = column.total[i] - taken
    return others


cdef void find_ends(
    Column column, const Limits* limits, double* memory, int64_t n_most, double* ends
) noexcept nogil:
    """Write the ends of the usual range of a column, unless its range is hardly larger.

    Values far from all others, such as a code of -999, are outliers even if they are not rare; so
    is an extreme value that at least the share `rare` of the rows has. If at least half of the
    values are equal, quantiles are computed from the other values, and the range between them
    includes that value.
    """
    cdef double smallest = column.value[0], largest = column.value[column.n - 1]
    cdef double first, last, low, high, other_first, other_last, other_low, other_high
    cdef double end, near, distance, factor
    cdef int64_t side, start, stop
    cdef Column others
    # The second call copies nothing: the values before the largest one are contiguous.
    for side in range(2):
        end = largest if side else smallest
        others = without(&column, end, limits.rare * column.total[column.n - 1], memory, n_most)
        if others.n > 0:
            quantiles(&others, 0.25, &low, &high)
            if max(low - end, end - high) > limits.apart * (high - low) > 0:
                column = others
    quantiles(&column, limits.rare, &first, &last)
    quantiles(&column, 0.25, &low, &high)
    if low == high:
        others = without(&column, low, 0, memory + 2 * n_most, n_most)
        if others.n > 0 and others.total[others.n - 1] != 0:
            quantiles(&others, limits.rare, &other_first, &other_last)
            quantiles(&others, 0.25, &other_low, &other_high)
            first, last = min(low, other_first), max(low, other_last)
            low, high = min(low, other_low), max(high, other_high)
    near, distance = limits.fence * (high - low), limits.apart * (high - low)
    if n_below(column.value, column.n, low - distance) >= n_below(
        column.value, column.n, low - near
    ):
        first = low - near
    if n_up_to(column.value, column.n, high + near) >= n_up_to(
        column.value, column.n, high + distance
    ):
        last = high + near
    # Where more values than rare ones are beyond a fence, the tail is a part of the column.
    factor = limits.far
    if not (first >= low - near and last <= high + near):
        factor *= 2
    start = n_below(column.value, column.n, min(first, low - near))
    stop = n_up_to(column.value, column.n, max(last, high + near))
    low, high = column.value[start], column.value[stop - 1]
    if factor * (high - low) < largest - smallest and high - low >= limits.least:
        ends[0], ends[1] = low, high
