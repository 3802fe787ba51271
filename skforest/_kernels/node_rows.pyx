"""The rows of a node as descent reads them: centred, scaled, and without constant features.

Gradient descent on a hyperplane converges well only where features are centred and of order 1.
With weighted mean m of the rows of a node, they are replaced by

    z = s (x - m),    s = row_norm / sqrt(mean |x - m|^2)

with one scale s for all features, so that their proportions stay as the feature map made them.
A hyperplane ``w . z > b`` is ``w . x > w . m + b / s`` in the table.

Rows that fit into the cache are packed: copied as z, without features that are constant in the
node. Larger nodes are read in place, and margins are corrected by ``w . m``.
"""

from libc.math cimport isfinite, sqrt
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from .direction cimport Table
from .memory cimport Scratch
from .node_moments cimport node_moments

cdef extern from "descent.h" nogil:
    void skf_margins(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_rescale(float*, int64_t, float, float)
    void skf_gather_rows(
        const float*, const int64_t*, int64_t, const int32_t*, int64_t, int64_t, int64_t,
        const float*, float, float*
    )
    enum:
        SKF_GROUP

cdef enum:
    OWN_ROWS = 1 << 21      # numbers that are packed at most: 8 MiB, about a cache


cdef int64_t padded_length(int64_t n) noexcept nogil:
    """Numbers of a packed row with n features."""
    return (n + LANES - 1) // LANES * LANES


cdef void pack_rows(
    const float* table, int64_t* at, int64_t n, const int32_t* features, int64_t n_groups,
    int64_t n_single, const float* mean, float scale, float* out
) noexcept nogil:
    """Copy some features of n rows, less their mean and scaled; `at` points into the copy then.

    features : IN, first features of n_groups groups of SKF_GROUP, then n_single features
    out : OUT, (n, padded_length(n_groups * SKF_GROUP + n_single))
    """
    cdef int64_t i, stride = padded_length(n_groups * SKF_GROUP + n_single)
    skf_gather_rows(table, at, n, features, n_groups, n_single, stride, mean, scale, out)
    for i in range(n):
        at[i] = i * stride


cdef class NodeRows:
    """The rows of one node after the other.

    `reserve` is called once. For each node the caller sets `at` to where the rows start in the
    table, and calls `load`.
    """

    cdef int reserve(
        self, Scratch scratch, const Table* table, int64_t n_rows, double row_norm
    ) except -1:
        """Reserve memory for nodes of up to n_rows rows.

        row_norm : root mean square norm of centred rows; 0: rows are neither centred nor scaled
        """
        cdef int64_t p = table.n_features
        self.table = <const float*>table.data
        self.n_features = table.n_features
        self.row_norm = row_norm
        self.at = scratch.longs(n_rows)
        self.mean = scratch.floats(padded_length(p))
        self.node_mean = scratch.floats(p)
        self.varies_bits = scratch.ints(p)
        self.group = scratch.ints(p)
        self.kept = scratch.ints(p)
        self.own_rows = scratch.floats(min(n_rows * padded_length(p), <int64_t>OWN_ROWS))
        return 0

    cdef bint load(
        self, const float* weight, int64_t n, float* distance, float* sums
    ) noexcept nogil:
        """Centre and scale the n rows that start at `at`; False where they are all equal.

        weight : IN, weights that add up to n
        distance, sums : scratch, n and n_features
        """
        cdef int64_t p = self.n_features
        cdef double square = node_moments(
            self.table, self.at, weight, n, p, self.node_mean, self.varies_bits, distance, sums
        )
        if not (square > 0) or not isfinite(square):
            return False
        self.node_scale = self.row_norm / sqrt(square / n) if self.row_norm > 0 else 1
        if self.row_norm == 0:
            memset(self.node_mean, 0, p * sizeof(float))
        self.keep_features()
        self.is_packed = n * padded_length(self.n_kept) <= OWN_ROWS
        if self.is_packed:
            pack_rows(
                self.table, self.at, n, self.group, self.n_groups,
                self.n_kept - SKF_GROUP * self.n_groups, self.node_mean, <float>self.node_scale,
                self.own_rows
            )
            self.data = self.own_rows
            self.p = padded_length(self.n_kept)
            self.scale = 1
            memset(self.mean, 0, self.p * sizeof(float))
        else:
            self.data = self.table
            self.p = p
            self.scale = self.node_scale
            memcpy(self.mean, self.node_mean, p * sizeof(float))
        return True

    cdef void keep_features(self) noexcept nogil:
        """List the groups of features of which one varies, and single features after the last.

        Whole groups are copied faster than single features. Constant features of a group equal
        their mean exactly, so that they never get a weight.
        """
        cdef int32_t g, j, k, p = self.n_features
        cdef int32_t whole = p // SKF_GROUP
        cdef bint varies
        self.n_groups = 0
        self.n_kept = 0
        for g in range(whole):
            j = g * SKF_GROUP
            varies = False
            for k in range(SKF_GROUP):
                varies = varies or self.varies(j + k)
            if varies:
                self.group[self.n_groups] = j
                self.n_groups = self.n_groups + 1
                for k in range(SKF_GROUP):
                    self.kept[self.n_kept] = j + k
                    self.n_kept = self.n_kept + 1
        for j in range(whole * SKF_GROUP, p):
            if self.varies(j):
                self.group[self.n_groups + self.n_kept - SKF_GROUP * self.n_groups] = j
                self.kept[self.n_kept] = j
                self.n_kept = self.n_kept + 1

    cdef inline bint varies(self, int64_t feature) noexcept nogil:
        """Does a feature vary in the node? The bits are those of differences, -0 included."""
        return (self.varies_bits[feature] & 0x7FFFFFFF) != 0

    cdef int64_t position(self, int32_t feature) noexcept nogil:
        """Position in the rows of a feature that varies."""
        cdef int32_t j
        if self.is_packed:
            for j in range(self.n_kept):
                if self.kept[j] == feature:
                    return j
        return feature

    cdef void margins(
        self, const float* w, double bias, const int64_t* at, int64_t n, float* out
    ) noexcept nogil:
        """Margins w . z - bias of the n rows that start at `at`; positive where they go right."""
        cdef int64_t zero = 0
        cdef float dot = 0
        skf_margins(self.data, at, n, w, self.p, out)
        if self.is_packed:
            skf_rescale(out, n, 1, <float>bias)
            return
        skf_margins(self.mean, &zero, 1, w, self.p, &dot)
        skf_rescale(out, n, <float>self.scale, <float>(self.scale * dot + bias))

    cdef double unpack(self, const float* w, double bias, float* direction) noexcept nogil:
        """Direction and threshold of a hyperplane in the table; the threshold is returned.

        direction : OUT, n_features
        """
        cdef int64_t j
        cdef int32_t feature
        cdef double threshold = bias / self.node_scale
        memset(direction, 0, self.n_features * sizeof(float))
        for j in range(self.n_kept):
            feature = self.kept[j]
            # Without centring, the weight of a constant feature acts as a bias and is kept.
            if self.row_norm == 0 or self.varies(feature):
                direction[feature] = w[j if self.is_packed else feature]
        for j in range(self.n_features):
            threshold += <double>direction[j] * self.node_mean[j]
        return threshold
