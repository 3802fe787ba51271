"""Routing by boxes of bytes, with tables of sums.

With the table ``S[r, c] = sum of x[:r, :c]`` of a row, the sum over a box of any size is four
look-ups:

    x[r:r+h, c:c+w].sum() = S[r+h, c+w] - S[r, c+w] - S[r+h, c] + S[r, c]

The sums are whole numbers, so the order of the additions does not matter, and rows take the same
branches as node by node.

The splits near the root, which most rows reach, are all decided for 32 rows at a time, with the
entries of their tables side by side; rows then descend one by one from where they leave these
splits.
"""

from libc.math cimport floor
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
)

import numpy as np

from ..base.direction cimport UINT8, Directions, Grid, Table
from ..base.memory cimport Scratch
from .trees cimport HARD, Output, PackedTrees, Way

cdef extern from "predict/sums.h" nogil:
    ctypedef struct Step "skf_step":
        uint16_t[8] place
        int32_t threshold
        uint32_t next

    ctypedef struct Top "skf_top":
        uint64_t kept
        int64_t step

    enum:
        SKF_BIT_ROWS
        SKF_CANDIDATES
    void skf_fill_u16(const uint8_t*, int, int, uint16_t*)
    void skf_fill_u32(const uint8_t*, int, int, uint32_t*)
    void skf_turn_u16(const uint16_t*, int64_t, int64_t, uint16_t*)
    void skf_turn_u32(const uint32_t*, int64_t, int64_t, uint32_t*)
    void skf_exits_u16(
        const Step*, const Top*, int64_t, const uint16_t*, const int32_t*, int32_t*
    )
    void skf_exits_u32(
        const Step*, const Top*, int64_t, const uint32_t*, const int32_t*, int32_t*
    )
    void skf_route_u16(
        const Step*, const int32_t*, const int32_t*, uint32_t, const uint16_t*, int64_t, int64_t,
        int, int, uint64_t*, int32_t*
    )
    void skf_route_u32(
        const Step*, const int32_t*, const int32_t*, uint32_t, const uint32_t*, int64_t, int64_t,
        int, int, uint64_t*, int32_t*
    )

# Chosen without a stored measurement. They change the speed of predictions, but no bit.
cdef enum:
    BLOCK_ROWS = 256         # largest number of rows with tables at once
    BLOCK_BYTES = 1 << 20    # largest number of bytes of these tables: about a cache
    MIN_ROWS = 16            # fewest rows for which the splits near the root are decided at once,
    MIN_TREES = 8            # and fewest trees, since entries of tables are brought side by side


cdef class SumSteps:
    """The splits of a forest as positions in a table of sums (sums.h)."""

    cdef Scratch scratch
    cdef int height, width
    cdef int64_t size              # entries of one table
    cdef bint small                # sums of boxes are below 2^15, so tables are uint16
    cdef bint has_contrasts        # some splits subtract a second box
    cdef Step* steps               # the splits of all trees, and a last one that no row leaves
    cdef uint32_t idle             # the number of the last one
    cdef int32_t* first            # left child of every split
    cdef Top* top                  # the splits near the root of all trees
    cdef int64_t* top_start        # the first of them of every tree
    # The split to which each exit leads, or -1 - node for a leaf. Tree t has one more exit than
    # splits in `top`, from top_start[t] + t on.
    cdef int32_t* exits
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
        self.idle = <uint32_t>n_splits
        self.steps[n_splits].threshold = INT32_MAX
        self.steps[n_splits].next = 4 * self.idle
        self.first = self.scratch.ints(n_splits)
        self.root = self.scratch.ints(n_trees)
        cdef int64_t n_top = min(n_splits, n_trees * (SKF_CANDIDATES - 1))
        self.top = <Top*>self.scratch.bytes_of((n_top + 1) * <int64_t>sizeof(Top))
        self.top_start = self.scratch.longs(n_trees + 1)
        self.exits = self.scratch.ints(n_top + n_trees)
        self.top_start[0] = 0
        cdef const double[::1] weight = arrays["node_weight"]
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
            self.write_top(tree, child[start:end], weight, start, step_of)
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
            self.write_places(corner, height, width, step.place)
            if other >= 0:
                self.write_places(other, height, width, step.place + 4)
                self.has_contrasts = True
        return largest

    cdef void write_top(
        self, int64_t tree, const int32_t[::1] child, const double[::1] weight, int64_t root,
        const int32_t[::1] step_of
    ) noexcept nogil:
        """Choose splits near the root, those of the largest weight first, and number their exits.

        `weight` has the weights of the nodes of all trees; without them, splits are taken level by
        level.
        """
        cdef int64_t first = self.top_start[tree], first_exit = first + tree
        cdef int32_t n = 0, n_open = 0, i, k, best, node, side
        # Splits whose parent is chosen, with the number of the parent and the side; and the chosen
        # ones, with the numbers of the chosen ones below either side, the number of their exits,
        # and the first exit.
        cdef int32_t[SKF_CANDIDATES] open_node, open_below
        cdef int32_t[SKF_CANDIDATES] chosen, count, start
        cdef int32_t[2 * SKF_CANDIDATES] below
        if step_of[0] >= 0:
            open_node[0], open_below[0], n_open = 0, -1, 1
        while n_open and n < SKF_CANDIDATES - 1:
            best = 0
            for i in range(1, n_open if weight.shape[0] else 1):
                if weight[root + open_node[i]] > weight[root + open_node[best]]:
                    best = i
            node = open_node[best]
            if open_below[best] >= 0:
                below[open_below[best]] = n
            chosen[n] = node
            n_open -= 1
            for i in range(best, n_open):
                open_node[i], open_below[i] = open_node[i + 1], open_below[i + 1]
            for side in range(2):
                below[2 * n + side] = -1
                if step_of[child[node] + side] >= 0:
                    open_node[n_open], open_below[n_open] = child[node] + side, 2 * n + side
                    n_open += 1
            n += 1
        for k in range(n - 1, -1, -1):     # parents are chosen before their children
            count[k] = 0
            for side in range(2):
                count[k] += count[below[2 * k + side]] if below[2 * k + side] >= 0 else 1
        start[0] = 0
        for k in range(n):
            self.top[first + k].step = step_of[chosen[k]]
            i = count[below[2 * k]] if below[2 * k] >= 0 else 1     # exits of the left side
            self.top[first + k].kept = ~(((<uint64_t>1 << i) - 1) << start[k])
            for side in range(2):
                node = child[chosen[k]] + side
                if below[2 * k + side] >= 0:
                    start[below[2 * k + side]] = start[k] + side * i
                else:
                    self.exits[first_exit + start[k] + side * i] = (
                        step_of[node] if step_of[node] >= 0 else -1 - node
                    )
        self.top_start[tree + 1] = first + n

    cdef void write_places(
        self, int32_t corner, int32_t height, int32_t width, uint16_t* place
    ) noexcept nogil:
        """Store the places in a table of the four sums of a box."""
        cdef int32_t across = width, down = height * (self.width + 1)
        cdef int32_t first = corner // self.width * (self.width + 1) + corner % self.width
        place[0] = <uint16_t>(first + across + down)
        place[1] = <uint16_t>(first + across)
        place[2] = <uint16_t>(first + down)
        place[3] = <uint16_t>first

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

    cdef void turn(
        self, const uint32_t* sums, int64_t n, uint32_t* columns
    ) noexcept nogil:
        """Bring the entries of n tables side by side, 32 tables after 32."""
        cdef int64_t i = 0, some
        while i < n:
            some = min(n - i, <int64_t>SKF_BIT_ROWS)
            if self.small:
                skf_turn_u16(
                    <uint16_t*>sums + i * self.size, self.size, some,
                    <uint16_t*>columns + i * self.size
                )
            else:
                skf_turn_u32(sums + i * self.size, self.size, some, columns + i * self.size)
            i += SKF_BIT_ROWS

    cdef void start(
        self, int64_t tree, const uint32_t* columns, int64_t n, int32_t* at
    ) noexcept nogil:
        """at[i] = split below the top of a tree that row i reaches, or leaf, see `exits`."""
        cdef int64_t i = 0, first = self.top_start[tree], n_top = self.top_start[tree + 1] - first
        cdef const int32_t* exits = self.exits + first + tree
        while i < n:
            if self.small:
                skf_exits_u16(
                    self.steps, self.top + first, n_top,
                    <uint16_t*>columns + i * self.size, exits, at + i
                )
            else:
                skf_exits_u32(
                    self.steps, self.top + first, n_top, columns + i * self.size, exits, at + i
                )
            i += SKF_BIT_ROWS

    cdef void route(
        self, int64_t tree, const uint32_t* sums, const uint32_t* columns, int64_t n,
        int32_t* at, uint64_t* queue, int32_t* leaf
    ) noexcept nogil:
        """leaf[i] = node of the leaf of row i, for n rows; `columns` is NULL for few rows.

        `sums` has tables of n + 1 rows, the last one with any content. `at`, `queue` and `leaf`
        have spaces for SKF_BIT_ROWS rows more.
        """
        cdef int64_t i
        cdef int32_t root = self.root[tree]
        if columns != NULL and root >= 0:
            self.start(tree, columns, n, at)
        else:
            for i in range(n):
                at[i] = root
        if self.small:
            skf_route_u16(
                self.steps, self.first, at, self.idle, <uint16_t*>sums, self.size, n,
                self.has_contrasts, columns == NULL, queue, leaf
            )
        else:
            skf_route_u32(
                self.steps, self.first, at, self.idle, sums, self.size, n, self.has_contrasts,
                columns == NULL, queue, leaf
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
        cdef int64_t block = min(n_rows, steps.block_rows()), padded = block + SKF_BIT_ROWS
        cdef bint turns = block >= MIN_ROWS and bag_start[n_bags] - bag_start[0] >= MIN_TREES
        cdef Scratch scratch = Scratch()
        cdef uint32_t* sums = <uint32_t*>scratch.ints((block + 1) * steps.size)
        cdef uint32_t* columns = NULL
        cdef int32_t* leaf = scratch.ints(padded)
        cdef int32_t* at = scratch.ints(padded)
        cdef uint64_t* queue = <uint64_t*>scratch.longs(padded)
        if turns:
            columns = <uint32_t*>scratch.aligned(padded * steps.size * <int64_t>sizeof(uint32_t))
        with nogil:
            while start < n_rows:
                n = min(n_rows - start, block)
                steps.fill(sums, <const uint8_t*>table.data + start * table.n_features, n)
                if turns:
                    steps.turn(sums, n, columns)
                for bag in range(n_bags):
                    for tree in range(bag_start[bag], bag_start[bag + 1]):
                        steps.route(tree, sums, columns, n, at, queue, leaf)
                        trees.store(tree, bag, table, leaf, NULL, start, n, out)
                start += n
        return 0
