"""Hinge trees as a layer of a network: responses to features, and gradients.

The loops of training (trainer.pyx) serve models that have other features, losses and optimisers.
Let v* be the test of the smallest absolute margin d on the path of a row to leaf l (Lay et al.
2018, equations 10 to 12), and g the gradient by the response:

    response = |d_v*| w_l,    dL/dw_l = |d_v*| g,    dL/dz[f_v*] = -dL/dt_v* = sign(d_v*) w_l . g

Gradients of leaves may be sparse: only for leaves that some row reaches.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

import numpy as np

from .features import columns_for
from .trainer import padded_vector

from .margins cimport (
    Test, skf_hinge_gradient, skf_hinge_response, skf_hinge_route, skf_transpose
)
from ..base.poll cimport poll

cdef enum:
    BLOCK = 256                # rows routed at once; chosen without a measurement


cdef class HingePass:
    """A forward pass of rows through hinge trees, and its backward pass.

    threshold and feature are (n_trees, n_tests) as in `HingeTrainer`; the vectors `leaf` are
    (n_trees, 2^depth, n_outputs). `share` has a factor for the response of each tree; trees of
    share 0 are skipped.
    """

    cdef const int32_t[:, ::1] threshold   # the bits of the floats
    cdef const int64_t[:, ::1] feature
    cdef const float[:, :, ::1] vector
    cdef const float[::1] share
    cdef bint fern
    cdef int32_t depth
    cdef int64_t n_trees, n_tests, n_leaves, n_outputs, width, n_rows
    cdef uint8_t stop                      # always 0: a pass has no stop flag
    cdef int64_t work                      # operations since signals were last checked
    cdef bint kept                         # the paths of the last rows are in memory
    cdef int32_t[:, ::1] tests             # tests of one tree, for `skf_hinge_route`
    # leaf, test of the smallest margin, and that margin: (n_trees, n_rows)
    cdef int32_t[:, ::1] leaf, test
    cdef float[:, ::1] margin
    # scratch of the backward pass
    cdef float[:, ::1] g, own, sums
    cdef float[::1] slope
    cdef int32_t[::1] own_row, slot, slot_of, used

    def __init__(self, threshold, feature, leaf, share, int32_t depth, bint fern):
        self.threshold = threshold.view(np.int32)
        self.feature = feature
        self.vector = leaf
        self.share = share
        self.depth = depth
        self.fern = fern
        self.n_trees = self.threshold.shape[0]
        self.n_tests = self.threshold.shape[1]
        self.n_leaves = self.vector.shape[1]
        self.n_outputs = self.vector.shape[2]
        shape = (self.n_trees, depth if fern else 2**depth - 1)
        if (
            threshold.shape != shape or feature.shape != shape or share.shape != shape[:1]
            or leaf.shape[:2] != (self.n_trees, 2**depth)
        ):
            raise ValueError("threshold, feature, leaf and share do not fit together")
        self.tests = np.zeros((self.n_tests, 2), dtype=np.int32)

    def respond(self, const float[:, ::1] z, bint apart, bint keep):
        """Return responses to z (equation 10): (n_trees, n_rows, n_outputs).

        Unless `apart`, return their sum, with n_trees = 1. `keep` keeps the paths of the rows for
        `gradients`. ValueError if the feature of a test is out of range.
        """
        cdef int64_t start = 0, n, at, tree, work, n_rows = z.shape[0]
        cdef int64_t room = n_rows if keep else min(n_rows, <int64_t>BLOCK)
        found = np.zeros((self.n_trees if apart else 1, n_rows, self.n_outputs), dtype=np.float32)
        cdef float[:, :, ::1] out = found
        cdef float[:, ::1] columns = columns_for(self.n_trees * self.n_tests, z.shape[1], BLOCK)
        cdef int64_t stride = columns.shape[1]
        cdef bint is_valid = True
        self.n_rows = n_rows
        self.width = z.shape[1]
        self.kept = keep
        self.leaf = np.empty((self.n_trees, room), dtype=np.int32)
        self.test = np.empty((self.n_trees, room), dtype=np.int32)
        self.margin = np.empty((self.n_trees, room), dtype=np.float32)
        with nogil:
            while start < n_rows and is_valid:
                n = min(<int64_t>BLOCK, n_rows - start)
                at = start if keep else 0
                if stride:
                    skf_transpose(&z[start, 0], n, self.width, &columns[0, 0], stride)
                for tree in range(self.n_trees):
                    if self.share[tree] == 0:
                        continue
                    is_valid = self.read_tests(tree)
                    if not is_valid:
                        break
                    skf_hinge_route(
                        <const Test*>&self.tests[0, 0], self.depth, self.fern, &z[start, 0],
                        self.width, &columns[0, 0] if stride else NULL, stride, n,
                        &self.leaf[tree, at], &self.test[tree, at], &self.margin[tree, at]
                    )
                    skf_hinge_response(
                        &self.vector[tree, 0, 0], self.n_outputs, &self.leaf[tree, at],
                        &self.margin[tree, at], n, self.n_outputs, self.share[tree],
                        &out[tree if apart else 0, start, 0]
                    )
                    work = n * (self.depth + self.n_outputs) + self.n_tests
                    poll(&self.stop, &self.work, work)
                start += n
        if not is_valid:
            raise ValueError(
                f"features of tests must be in 0 .. {z.shape[1] - 1}, since z has {z.shape[1]}"
            )
        return found

    def gradients(self, const float[:, :, ::1] g, bint sparse):
        """Return gradients by z, threshold and leaf, from gradients g by the responses.

        The rows are those kept by `respond`. With `sparse`, only the leaves that rows reach are
        returned, (n_used, n_outputs), and their places (2, n_used): tree and number, ascending.
        """
        cdef int64_t tree, i, n_used, work, total = 0, n = self.n_rows
        cdef int64_t room = min(n, self.n_leaves)
        cdef bint apart = g.shape[0] > 1
        if (
            not self.kept or g.shape[0] not in (1, self.n_trees) or g.shape[1] != n
            or g.shape[2] != self.n_outputs
        ):
            raise ValueError("gradients are those of the rows that `respond` kept")
        z = np.zeros((n, self.width), dtype=np.float32)
        threshold = np.zeros((self.n_trees, self.n_tests), dtype=np.float32)
        rows = self.n_trees * (room if sparse else self.n_leaves)
        leaf = (np.empty if sparse else np.zeros)((rows, self.n_outputs), dtype=np.float32)
        place = np.empty((2, rows if sparse else 0), dtype=np.int64)
        cdef float[:, ::1] dz = z, dt = threshold, dv = leaf
        cdef int64_t[:, ::1] places = place
        self.prepare(n, room)
        if n > 0:
            with nogil:
                self.pad(g, 0)
                for tree in range(self.n_trees):
                    if self.share[tree] == 0:
                        continue
                    if apart:
                        self.pad(g, tree)
                    n_used = self.sort_leaves(tree)
                    self.differentiate(tree, n_used)
                    for i in range(n):
                        dt[tree, self.test[tree, i]] -= self.slope[i]
                        dz[i, self.feature[tree, self.test[tree, i]]] += self.slope[i]
                    for i in range(n_used):
                        if sparse:
                            places[0, total + i] = tree
                            places[1, total + i] = self.used[i]
                        memcpy(
                            &dv[total + i if sparse else tree * self.n_leaves + self.used[i], 0],
                            &self.sums[i, 0], self.n_outputs * sizeof(float)
                        )
                    total += n_used
                    work = n * (2 * self.n_outputs + 8) + self.n_leaves
                    poll(&self.stop, &self.work, work)
        if sparse:
            return z, threshold, leaf[:total], place[:, :total]
        return z, threshold, leaf.reshape(self.n_trees, self.n_leaves, self.n_outputs), None

    cdef bint read_tests(self, int64_t tree) noexcept nogil:
        """Interleave thresholds and features of a tree; False if a feature is out of range."""
        cdef int64_t v, feature
        cdef bint is_valid = True
        for v in range(self.n_tests):
            feature = self.feature[tree, v]
            is_valid &= 0 <= feature < self.width
            self.tests[v, 0] = self.threshold[tree, v]
            self.tests[v, 1] = <int32_t>feature
        return is_valid

    def prepare(self, int64_t n, int64_t room):
        """Reserve memory for n rows in at most `room` leaves; vectors are padded for the loops."""
        width = padded_vector(self.n_outputs)
        self.g, self.own = np.zeros((2, n, width), dtype=np.float32)
        self.sums = np.zeros((room, width), dtype=np.float32)
        self.slope = np.zeros(n, dtype=np.float32)
        self.own_row = np.arange(n, dtype=np.int32)
        self.slot = np.zeros(n, dtype=np.int32)
        self.slot_of = np.full(self.n_leaves, -1, dtype=np.int32)
        self.used = np.zeros(room, dtype=np.int32)

    cdef void pad(self, const float[:, :, ::1] g, int64_t group) noexcept nogil:
        cdef int64_t i
        for i in range(self.n_rows):
            memcpy(&self.g[i, 0], &g[group, i, 0], self.n_outputs * sizeof(float))

    cdef int64_t sort_leaves(self, int64_t tree) noexcept nogil:
        """Assign slots to the leaves of a tree that rows reach, in order; return their number."""
        cdef int64_t i, leaf, n_used = 0
        for i in range(self.n_rows):
            self.slot_of[self.leaf[tree, i]] = 0
        for leaf in range(self.n_leaves):
            if self.slot_of[leaf] == 0:
                self.slot_of[leaf] = <int32_t>n_used
                self.used[n_used] = <int32_t>leaf
                n_used += 1
        for i in range(self.n_rows):
            self.slot[i] = self.slot_of[self.leaf[tree, i]]
        for i in range(n_used):
            self.slot_of[self.used[i]] = -1
        return n_used

    cdef void differentiate(self, int64_t tree, int64_t n_used) noexcept nogil:
        """Compute derivatives by the margins, and gradients of the leaves, of a tree."""
        cdef int64_t i, width = self.g.shape[1]
        for i in range(self.n_rows):
            memcpy(
                &self.own[i, 0], &self.vector[tree, self.leaf[tree, i], 0],
                self.n_outputs * sizeof(float)
            )
        memset(&self.sums[0, 0], 0, n_used * width * sizeof(float))
        skf_hinge_gradient(
            &self.own[0, 0], width, &self.own_row[0], &self.margin[tree, 0], &self.g[0, 0],
            &self.slot[0], self.n_rows, width, self.share[tree], &self.slope[0], &self.sums[0, 0]
        )
