"""Routing by boxes of bytes, with tables of sums.

With the table ``S[r, c] = sum of x[:r, :c]`` of a row, the sum over a box of any size is four
look-ups:

    x[r:r+h, c:c+w].sum() = S[r+h, c+w] - S[r, c+w] - S[r+h, c] + S[r, c]

The sums are whole numbers, so the order of the additions does not matter, and rows take the same
branches as node by node.
"""

from libc.math cimport floor
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memset

import numpy as np

from ..base.direction cimport UINT8, Directions, Grid, Table
from ..base.memory cimport Scratch
from .trees cimport HARD, Output, PackedTrees, Way

cdef extern from "predict/route.h" nogil:
    ctypedef struct Step "skf_step":
        uint16_t one
        uint16_t two
        uint16_t across
        uint16_t down
        int32_t threshold
        uint32_t next

    void skf_fill_u16(const uint8_t*, int, int, uint16_t*)
    void skf_fill_u32(const uint8_t*, int, int, uint32_t*)
    void skf_route_u16(
        const Step*, const int32_t*, int32_t, const uint16_t*, int64_t, int64_t, int, int32_t*
    )
    void skf_route_u32(
        const Step*, const int32_t*, int32_t, const uint32_t*, int64_t, int64_t, int, int32_t*
    )

# Chosen without a stored measurement. They change the speed of predictions, but no bit.
cdef enum:
    BLOCK_ROWS = 256         # largest number of rows with tables at once
    BLOCK_BYTES = 1 << 20    # largest number of bytes of these tables: about a cache


cdef class SumSteps:
    """The splits of a forest as positions in a table of sums (route.h)."""

    cdef Scratch scratch
    cdef int height, width
    cdef int64_t size              # entries of one table
    cdef bint small                # sums of boxes are below 2^15, so tables are uint16
    cdef bint has_contrasts        # some splits subtract a second box
    cdef Step* steps               # the splits of all trees
    cdef int32_t* first            # left child of every split
    cdef int32_t* root             # split at the root of every tree, -1 if it is a leaf

    cdef int build(self, arrays, const Directions* directions) except -1:
        """Store every tree, from the arrays of a Forest of plain boxes."""
        cdef const Grid* grid = &directions.grid
        cdef const int64_t[::1] tree_start = arrays["tree_start"]
        cdef const int32_t[::1] child = arrays["child"]
        cdef const float[::1] threshold = arrays["threshold"]
        cdef const int32_t[::1] direction = arrays["direction"]
        cdef int64_t n_trees = tree_start.shape[0] - 1
        cdef int64_t n_splits = threshold.shape[0]
        cdef int64_t tree, start, end, volume, largest = 1
        cdef int32_t split
        self.height = grid.length[0] if grid.n_axes == 2 else 1
        self.width = grid.length[grid.n_axes - 1]
        self.size = <int64_t>(self.height + 1) * (self.width + 1)
        self.scratch = Scratch()
        self.steps = <Step*>self.scratch.bytes_of((n_splits + 1) * <int64_t>sizeof(Step))
        self.first = self.scratch.ints(n_splits)
        self.root = self.scratch.ints(n_trees)
        cdef int32_t[::1] step_of = np.empty(np.diff(tree_start).max(initial=0), dtype=np.int32)
        for tree in range(n_trees):
            start = tree_start[tree]
            end = tree_start[tree + 1]
            split = <int32_t>((start - tree) // 2)
            self.write_steps(child[start:end], split, step_of)
            volume = self.write_boxes(
                child[start:end], split, threshold, direction, directions, step_of
            )
            largest = max(largest, volume)
            self.root[tree] = step_of[0]
        self.small = 255 * largest < 32768
        return 0

    cdef void write_steps(
        self, const int32_t[::1] child, int32_t first_split, int32_t[::1] step_of
    ) noexcept nogil:
        """Number the splits of a tree, with siblings adjacent; step_of[node] is -1 for a leaf."""
        cdef int32_t node, left, next = first_split
        cdef bint left_splits, right_splits
        step_of[0] = -1
        if child[0] >= 0:
            step_of[0] = next
            next += 1
        for node in range(<int32_t>child.shape[0]):
            left = child[node]
            if left < 0:
                continue
            left_splits = child[left] >= 0
            right_splits = child[left + 1] >= 0
            self.first[step_of[node]] = left
            self.steps[step_of[node]].next = (
                4 * <uint32_t>next + (not left_splits) + 2 * <uint32_t>(not right_splits)
            )
            step_of[left] = next if left_splits else -1
            next += left_splits
            step_of[left + 1] = next if right_splits else -1
            next += right_splits

    cdef int64_t write_boxes(
        self, const int32_t[::1] child, int32_t first_split, const float[::1] threshold,
        const int32_t[::1] direction, const Directions* directions, const int32_t[::1] step_of
    ) noexcept nogil:
        """Store thresholds and boxes of a tree; return the volume of the largest box."""
        cdef int32_t n_axes = directions.grid.n_axes
        cdef int64_t split, code, largest = 1
        cdef int32_t node, corner, other, height, width
        cdef double cut
        cdef Step* step
        for node in range(<int32_t>child.shape[0]):
            if child[node] < 0:
                continue
            split = first_split + (child[node] - 1) // 2
            step = self.steps + step_of[node]
            cut = floor(threshold[split])      # the projections are whole numbers
            step.threshold = <int32_t>max(<double>INT32_MIN, min(cut, <double>INT32_MAX))
            code = direction[split]
            corner = <int32_t>code
            other = -1
            height = 1
            width = 1
            if code >= directions.n_features:
                code -= directions.n_features
                corner = directions.box_corner[code]
                other = directions.box_other[code]
                width = directions.box_size[code * n_axes + n_axes - 1]
                height = directions.box_size[code * n_axes] if n_axes == 2 else 1
                largest = max(largest, <int64_t>height * width)
            if other == corner:                # a contrast with itself is 0: an empty box
                other = -1
                height = 0
            step.one = self.position(corner)
            step.two = self.position(other) if other >= 0 else step.one
            self.has_contrasts = self.has_contrasts or step.two != step.one
            step.across = <uint16_t>width
            step.down = <uint16_t>(height * (self.width + 1))
        return largest

    cdef uint16_t position(self, int32_t corner) noexcept nogil:
        """Return the position in a table of the sum above and left of a feature."""
        return <uint16_t>(corner // self.width * (self.width + 1) + corner % self.width)

    cdef int64_t block_rows(self) noexcept nogil:
        """Return the number of rows whose tables fit into a cache."""
        return min(<int64_t>BLOCK_ROWS, max(<int64_t>8, BLOCK_BYTES // (4 * self.size)))

    cdef void fill(self, uint32_t* sums, const uint8_t* rows, int64_t n) noexcept nogil:
        """Compute the tables of n rows: n * size entries, of 2 bytes each if `small`."""
        cdef uint16_t* small = <uint16_t*>sums
        cdef int64_t i, n_features = <int64_t>self.height * self.width
        for i in range(n):
            if self.small:
                skf_fill_u16(rows + i * n_features, self.height, self.width, small + i * self.size)
            else:
                skf_fill_u32(rows + i * n_features, self.height, self.width, sums + i * self.size)

    cdef void route(
        self, int64_t tree, const uint32_t* sums, int64_t n, int32_t* leaf
    ) noexcept nogil:
        """leaf[i] = node of the leaf of row i, for n rows."""
        cdef int32_t root = self.root[tree]
        if root < 0:
            memset(leaf, 0, <size_t>n * sizeof(int32_t))
        elif self.small:
            skf_route_u16(
                self.steps, self.first, root, <uint16_t*>sums, self.size, n,
                self.has_contrasts, leaf
            )
        else:
            skf_route_u32(
                self.steps, self.first, root, sums, self.size, n, self.has_contrasts, leaf
            )


cdef class BySums(Way):
    """Routes rows of bytes through trees of plain boxes."""

    def prepare(self):
        cdef SumSteps steps = SumSteps()
        steps.build(self.trees.owner, &self.trees.directions)
        return steps

    cdef bint applies(self, const Table* table, int64_t n_trees) except -1:
        cdef const Directions* d = &self.trees.directions
        cdef const Grid* grid = &d.grid
        cdef int64_t height = grid.length[0] if grid.n_axes == 2 else 1
        cdef int64_t width = grid.length[grid.n_axes - 1]
        return (
            table.dtype == UINT8
            and self.trees.gate == HARD
            and grid.plain
            and grid.n_axes <= 2
            and (height + 1) * (width + 1) <= 65535     # positions are uint16
            and self.trees.n_splits < 1 << 30           # and splits share 32 bits with two flags
            and d.n_sparse == 0
            and d.n_dense == 0
        )

    cdef int route(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, const Output* out
    ) except -1:
        cdef PackedTrees trees = self.trees
        cdef SumSteps steps = self.prepared()
        cdef int64_t n, bag, tree, start = 0, n_rows = table.n_samples
        cdef int64_t block = min(n_rows, steps.block_rows())
        cdef uint32_t[::1] sums = np.empty(block * steps.size, dtype=np.uint32)
        cdef int32_t[::1] leaf = np.empty(block, dtype=np.int32)
        with nogil:
            while start < n_rows:
                n = min(n_rows - start, block)
                steps.fill(&sums[0], <const uint8_t*>table.data + start * table.n_features, n)
                for bag in range(n_bags):
                    for tree in range(bag_start[bag], bag_start[bag + 1]):
                        steps.route(tree, &sums[0], n, &leaf[0])
                        trees.store(tree, bag, table, &leaf[0], NULL, start, n, out)
                start += n
        return 0
