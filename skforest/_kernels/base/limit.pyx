"""At most some weights of a hyperplane: iterative hard thresholding while it is trained.

From epoch to epoch, more and more weights are set to 0 and stay there, those that move margins
least; half of the epochs are left for the last ones. A weight moves the margins of a node by

    |w_j| sqrt(mean z_j^2)

with the weighted mean over the rows z of the node (`NodeRows`). The number of weights falls from p
to `most`, evenly in its logarithm, since the first weights to go matter least.
"""

from libc.math cimport fabsf, pow
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from .memory cimport Scratch, allocate
from .stump cimport NodeRows, Plane, padded_length


cdef float kth_largest(float* values, int64_t n, int64_t k) noexcept nogil:
    """The k-th largest of n numbers, which are put into another order; 1 <= k <= n."""
    cdef int64_t first = 0, last = n - 1, i, j
    cdef float pivot
    while first < last:
        pivot = values[(first + last) // 2]
        i, j = first, last
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if k - 1 <= j:
            last = j
        elif k - 1 >= i:
            first = i
        else:
            break
    return values[k - 1]


cdef class WeightLimit:
    """The limit of one hyperplane after the other; `reserve` is called once, `start` for each."""

    cdef int reserve(self, Scratch scratch, int32_t most, int64_t n_features) except -1:
        """Reserve memory for rows of some features; most: 0 for no limit."""
        cdef int64_t p = padded_length(n_features)
        self.most = most
        if most > 0:
            self.support = scratch.ints(p)
            allocate[float](scratch, 2 * p, [&self.kept, &self.spread, &self.largest, NULL])
        return 0

    cdef void start(self, NodeRows rows) noexcept nogil:
        """Begin with a hyperplane in which all features that vary may have a weight."""
        self.p, self.n_support, self.n_free = rows.p, rows.p, rows.n_kept
        self.is_reached = self.most == 0 or self.n_free <= self.most

    cdef int64_t after(self, int64_t done, int64_t n_epochs) noexcept nogil:
        """Number of weights after some of the epochs."""
        cdef double share = min(1.0, 2.0 * done / n_epochs)
        cdef double ratio = self.most / <double>self.n_free
        return max(<int64_t>self.most, <int64_t>(self.n_free * pow(ratio, share)))

    cdef void restrict(
        self, NodeRows rows, const float* weight, int64_t n_rows, Plane* plane, int64_t n
    ) noexcept nogil:
        """Set all but the n weights that move the margins of the first n_rows rows most to 0.

        weight : IN, of these rows
        """
        cdef int64_t j, t = 0, m = 0
        cdef float least = 0
        cdef float* w = plane.w
        if self.n_support == self.p:
            rows.spreads(weight, n_rows, self.spread)
        for j in range(self.p):
            if w[j] != 0:
                self.largest[m] = fabsf(w[j]) * self.spread[j]
                m += 1
        if m > n:
            least = kth_largest(self.largest, m, n)
        for j in range(self.p):
            if w[j] != 0 and t < n and fabsf(w[j]) * self.spread[j] >= least:
                self.support[t] = <int32_t>j
                t += 1
        self.n_support = t
        self.is_reached = n <= self.most
        self.clear_others(plane)

    cdef void clear_others(self, Plane* plane) noexcept nogil:
        """Set the weights and velocities outside of the support to 0, as after every step."""
        cdef int64_t t, n = self.n_support
        if n == self.p:
            return
        for t in range(n):
            self.kept[t] = plane.w[self.support[t]]
            self.kept[n + t] = plane.velocity[self.support[t]]
        memset(plane.w, 0, self.p * sizeof(float))
        memset(plane.velocity, 0, self.p * sizeof(float))
        for t in range(n):
            plane.w[self.support[t]] = self.kept[t]
            plane.velocity[self.support[t]] = self.kept[n + t]
