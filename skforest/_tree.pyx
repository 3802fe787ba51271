"""Floor 0: how one direction is projected, and how rows walk through packed trees.

A split asks ``a . x > t``. `unfold` turns a stored direction ``a`` (a feature, a box of the
feature array, a sparse or a dense row) into taps for one table; `project` evaluates the taps on a
list of rows. Growing and predicting call the same two functions on the same dtype, so no training
row crosses a threshold.

`Router` walks. A block of rows goes through a tree node by node: the rows that reach a node are
projected at once and parted into its two children, as in growing. Boxes of bytes have a faster way
with the same turns, by tables of sums (_sums.h). Rows never influence each other, so blocks of any
size give the same bits.
"""

from libc.math cimport exp, fabs, floor
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

import numpy as np

cdef extern from "_simd.h" nogil:
    int skf_level()
    void skf_axis_u8(const uint8_t*, const int64_t*, int64_t, int64_t, float*)
    void skf_axis_f32(const float*, const int64_t*, int64_t, int64_t, float*)
    void skf_taps_u8(
        const uint8_t*, const int64_t*, int64_t, const int32_t*, const float*, int, float*
    )
    void skf_taps_f32(
        const float*, const int64_t*, int64_t, const int32_t*, const float*, int, float*
    )
    void skf_dense_u8(const uint8_t*, const int64_t*, int64_t, const float*, int64_t, float*)
    void skf_dense_f32(const float*, const int64_t*, int64_t, const float*, int64_t, float*)
    uint64_t skf_byte_mask(int, int)
    void skf_quads_f32(
        const float*, const int64_t*, int64_t, const int32_t*, const uint64_t*, int, int, float*
    )
    void skf_words_u8(
        const uint8_t*, const int64_t*, int64_t, const int32_t*, const uint64_t*, int, int, float*
    )

cdef extern from "_sums.h" nogil:
    ctypedef struct Step "skf_step":
        uint16_t at[8]
        int32_t threshold
        int32_t left
        int32_t right
    void skf_fill_u16(const uint8_t*, int, int, uint16_t*)
    void skf_fill_u32(const uint8_t*, int, int, uint32_t*)
    void skf_walk_u16(const Step*, int32_t, const uint16_t*, int64_t, int64_t, int32_t*)
    void skf_walk_u32(const Step*, int32_t, const uint32_t*, int64_t, int64_t, int32_t*)


def simd_level():
    """Which variant of the vector loops runs: 0 baseline, 1 AVX2, 2 AVX-512."""
    return skf_level()


# ------------------------------------------------------------------------------- tables and grids

cdef Table as_table(X) except *:
    """View a C-contiguous uint8 or float32 matrix; the caller keeps X alive."""
    cdef Table table
    cdef const uint8_t[:, ::1] bytes_view
    cdef const float[:, ::1] float_view
    table.n_samples = X.shape[0]
    table.n_features = X.shape[1]
    table.data = NULL
    if X.dtype == np.uint8:
        table.dtype = UINT8
        bytes_view = X
        if X.size:
            table.data = &bytes_view[0, 0]
    else:
        table.dtype = FLOAT32
        float_view = X
        if X.size:
            table.data = &float_view[0, 0]
    return table


cdef Grid as_grid(shape, wrap, unordered) except *:
    """The grid of `feature_shape`, with row-major strides."""
    cdef Grid grid
    cdef int axis, n_bytes = 0
    cdef int64_t stride = 1
    if len(shape) > MAX_AXES:
        raise ValueError(f"feature_shape has {len(shape)} axes, at most {MAX_AXES} are supported")
    grid.n_axes = len(shape)
    grid.plain = not (any(wrap) or any(unordered))
    for axis in range(grid.n_axes):
        grid.length[axis] = shape[axis]
        grid.wrap[axis] = bool(wrap[axis])
        grid.unordered[axis] = bool(unordered[axis])
        grid.subset_start[axis] = n_bytes
        if grid.unordered[axis]:
            n_bytes += (grid.length[axis] + 7) // 8
    for axis in range(grid.n_axes - 1, -1, -1):
        grid.stride[axis] = stride
        stride *= grid.length[axis]
    grid.n_subset_bytes = n_bytes
    return grid


cdef int64_t box_volume(const Grid* grid, const int32_t* size) noexcept nogil:
    """Number of entries of a box."""
    cdef int64_t volume = 1
    cdef int axis
    for axis in range(grid.n_axes):
        volume *= size[axis]
    return volume


# ------------------------------------------------------------------------------------------- taps

cdef int alloc_taps(Taps* taps, int32_t capacity, const Grid* grid) except -1 nogil:
    """Room for `capacity` taps; taps must be zeroed or freed before."""
    cdef int64_t along = 1
    cdef int axis
    for axis in range(grid.n_axes):
        along += grid.length[axis]
    taps.capacity = capacity
    taps.position = <int32_t*>malloc(<size_t>capacity * sizeof(int32_t))
    taps.weight = <float*>malloc(<size_t>capacity * sizeof(float))
    taps.mask = <uint64_t*>malloc(<size_t>capacity * sizeof(uint64_t))
    taps.along = <int32_t*>malloc(<size_t>along * sizeof(int32_t))
    if not (taps.position and taps.weight and taps.mask and taps.along):
        free_taps(taps)
        with gil:
            raise MemoryError()
    return 0


cdef void free_taps(Taps* taps) noexcept nogil:
    free(taps.position)
    free(taps.weight)
    free(taps.mask)
    free(taps.along)
    memset(taps, 0, sizeof(Taps))


cdef void unfold_feature(Taps* taps, int32_t feature) noexcept nogil:
    taps.kind = ONE
    taps.n = 1
    taps.position[0] = feature


cdef void unfold_sparse(
    Taps* taps, const int32_t* feature, const float* weight, int32_t n
) noexcept nogil:
    cdef int32_t t
    taps.kind = WEIGHTED
    taps.n = n
    for t in range(n):
        taps.position[t] = feature[t]
        taps.weight[t] = weight[t]


cdef inline void add_run(
    Taps* taps, int32_t start, int32_t length, float sign, const Table* table
) noexcept nogil:
    """Add `length` features from `start` on: as words of eight bytes or four floats, or one by
    one.

    A word must lie inside its row: near the end it starts earlier and masks what is not meant.
    """
    cdef int32_t width = 8 if table.dtype == UINT8 else 4
    cdef int32_t part, position
    if taps.kind == WEIGHTED:
        for part in range(length):
            taps.position[taps.n] = start + part
            taps.weight[taps.n] = sign
            taps.n += 1
        return
    while length > 0:
        part = min(length, width)
        position = min(start, table.n_features - width)
        taps.position[taps.n] = position
        if table.dtype == UINT8:
            taps.mask[taps.n] = skf_byte_mask(start - position, part)
        else:
            taps.mask[taps.n] = ((1 << part) - 1) << (start - position)
        taps.n += 1
        start += part
        length -= part


cdef void add_plain_box(
    Taps* taps, const Grid* grid, const Box* box, int32_t corner, float sign, const Table* table
) noexcept nogil:
    """Add all entries of the box at `corner`: an odometer over all axes but the last."""
    cdef int axis, last = grid.n_axes - 1
    cdef int32_t index[MAX_AXES]
    cdef int64_t base = corner
    for axis in range(last):
        index[axis] = 0
    while True:
        add_run(taps, <int32_t>base, box.size[last], sign, table)
        axis = last - 1
        while axis >= 0:
            index[axis] += 1
            base += grid.stride[axis]
            if index[axis] < box.size[axis]:
                break
            base -= box.size[axis] * grid.stride[axis]
            index[axis] = 0
            axis -= 1
        if axis < 0:
            return


cdef void add_box(
    Taps* taps, const Grid* grid, const Box* box, int32_t corner, float sign, const Table* table
) noexcept nogil:
    """As add_plain_box, where axes may wrap or have no order."""
    cdef int axis, last = grid.n_axes - 1
    cdef int32_t i, at, size, first, length
    cdef int32_t rest = corner
    cdef int32_t base = 0
    cdef int32_t index[MAX_AXES]
    cdef int32_t start[MAX_AXES]       # of each axis in `along`
    cdef int32_t* along = taps.along
    cdef const uint8_t* bits
    cdef int32_t filled = 0
    # 1. the chosen offsets along every axis, in features
    for axis in range(grid.n_axes):
        first = <int32_t>(rest // grid.stride[axis])
        rest = <int32_t>(rest % grid.stride[axis])
        start[axis] = filled
        index[axis] = 0
        size = box.size[axis]
        if grid.unordered[axis]:
            bits = box.subset + grid.subset_start[axis]
            for i in range(grid.length[axis]):
                if bits[i >> 3] >> (i & 7) & 1:
                    along[filled] = <int32_t>(i * grid.stride[axis])
                    filled += 1
        else:
            for i in range(size):
                at = first + i
                if at >= grid.length[axis]:
                    at -= grid.length[axis]
                along[filled] = <int32_t>(at * grid.stride[axis])
                filled += 1
    # 2. an odometer over all axes but the last; runs of neighbours along the last
    while True:
        base = 0
        for axis in range(last):
            base += along[start[axis] + index[axis]]
        i = start[last]
        while i < filled:
            length = 1
            while i + length < filled and along[i + length] == along[i] + length:
                length += 1
            add_run(taps, base + along[i], length, sign, table)
            i += length
        axis = last - 1
        while axis >= 0:
            index[axis] += 1
            if start[axis] + index[axis] < start[axis + 1]:
                break
            index[axis] = 0
            axis -= 1
        if axis < 0:
            return


cdef void unfold_box(
    Taps* taps, const Grid* grid, const Box* box, const Table* table
) noexcept nogil:
    cdef bint wide = table.n_features >= (8 if table.dtype == UINT8 else 4)
    taps.kind = WORDS if wide and table.dtype != NO_DTYPE else WEIGHTED
    taps.n = 0
    if grid.plain:
        add_plain_box(taps, grid, box, box.corner, 1, table)
    else:
        add_box(taps, grid, box, box.corner, 1, table)
    taps.n_plus = taps.n
    if box.other < 0:
        return
    if grid.plain:
        add_plain_box(taps, grid, box, box.other, -1, table)
    else:
        add_box(taps, grid, box, box.other, -1, table)


cdef void unfold(
    Taps* taps, const Directions* directions, int32_t code, const Table* table
) noexcept nogil:
    """Unfold the stored direction `code`; the taps have room for the longest direction."""
    cdef Box box
    cdef int64_t start
    if code < directions.n_features:
        unfold_feature(taps, code)
        return
    code -= directions.n_features
    if code < directions.n_boxes:
        box.corner = directions.box_corner[code]
        box.other = directions.box_other[code]
        box.size = directions.box_size + <int64_t>code * directions.grid.n_axes
        box.subset = directions.box_subset + <int64_t>code * directions.grid.n_subset_bytes
        unfold_box(taps, &directions.grid, &box, table)
        return
    code -= directions.n_boxes
    if code < directions.n_sparse:
        start = directions.sparse_start[code]
        unfold_sparse(
            taps,
            directions.sparse_feature + start,
            directions.sparse_weight + start,
            <int32_t>(directions.sparse_start[code + 1] - start),
        )
        return
    code -= directions.n_sparse
    taps.kind = DENSE
    taps.n = directions.n_features
    taps.dense = directions.dense + <int64_t>code * directions.n_features


cdef void project(
    const Taps* taps, const Table* table, const int64_t* offset, int64_t n, float* out
) noexcept nogil:
    """out[i] = a . x of the row that starts at table[offset[i]], for n rows."""
    cdef const uint8_t* u8 = <const uint8_t*>table.data
    cdef const float* f32 = <const float*>table.data
    if table.dtype == UINT8:
        if taps.kind == ONE:
            skf_axis_u8(u8, offset, n, taps.position[0], out)
        elif taps.kind == WORDS:
            skf_words_u8(u8, offset, n, taps.position, taps.mask, taps.n_plus, taps.n, out)
        elif taps.kind == WEIGHTED:
            skf_taps_u8(u8, offset, n, taps.position, taps.weight, taps.n, out)
        else:
            skf_dense_u8(u8, offset, n, taps.dense, taps.n, out)
    else:
        if taps.kind == ONE:
            skf_axis_f32(f32, offset, n, taps.position[0], out)
        elif taps.kind == WORDS:
            skf_quads_f32(f32, offset, n, taps.position, taps.mask, taps.n_plus, taps.n, out)
        elif taps.kind == WEIGHTED:
            skf_taps_f32(f32, offset, n, taps.position, taps.weight, taps.n, out)
        else:
            skf_dense_f32(f32, offset, n, taps.dense, taps.n, out)


# ---------------------------------------------------------------------------------------- walking

cdef enum Gate:
    HARD = 0
    MARGIN = 1
    SIGMOID = 2

cdef enum:
    SUM_ROWS = 1024      # rows whose tables of sums are in use together: about a cache

GATES = {"hard": HARD, "margin": MARGIN, "sigmoid": SIGMOID}


cdef struct Walk:
    # Scratch of one call; all arrays have one entry a row of the block.
    int32_t* row
    int32_t* spare_row
    int64_t* offset
    int64_t* spare_offset
    float* column
    float* margin
    int32_t* leaf
    int32_t* stack_node
    int32_t* stack_start
    int32_t* stack_end


cdef int alloc_walk(Walk* walk, int64_t n) except -1 nogil:
    memset(walk, 0, sizeof(Walk))
    walk.row = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.spare_row = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.spare_offset = <int64_t*>malloc(<size_t>(n + 1) * sizeof(int64_t))
    walk.offset = <int64_t*>malloc(<size_t>(n + 1) * sizeof(int64_t))
    walk.column = <float*>malloc(<size_t>(n + 1) * sizeof(float))
    walk.margin = <float*>malloc(<size_t>(n + 1) * sizeof(float))
    walk.leaf = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.stack_node = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.stack_start = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    walk.stack_end = <int32_t*>malloc(<size_t>(n + 1) * sizeof(int32_t))
    if not (
        walk.row and walk.spare_row and walk.offset and walk.spare_offset and walk.column and
        walk.margin and walk.leaf and walk.stack_node and walk.stack_start and walk.stack_end
    ):
        free_walk(walk)
        with gil:
            raise MemoryError()
    return 0


cdef void free_walk(Walk* walk) noexcept nogil:
    free(walk.row)
    free(walk.spare_row)
    free(walk.spare_offset)
    free(walk.offset)
    free(walk.column)
    free(walk.margin)
    free(walk.leaf)
    free(walk.stack_node)
    free(walk.stack_start)
    free(walk.stack_end)


cdef inline int32_t part_rows(
    Walk* walk, int32_t start, int32_t end, float threshold
) noexcept nogil:
    """Left rows first, without a branch on the values; the first right row is returned."""
    cdef int32_t i, row, middle = start, n_right = 0
    cdef int64_t offset
    cdef bint left
    for i in range(start, end):
        row = walk.row[i]
        offset = walk.offset[i]
        left = walk.column[i] <= threshold
        walk.row[middle] = row
        walk.offset[middle] = offset
        walk.spare_row[n_right] = row
        walk.spare_offset[n_right] = offset
        middle += left
        n_right += not left
    for i in range(n_right):
        walk.row[middle + i] = walk.spare_row[i]
        walk.offset[middle + i] = walk.spare_offset[i]
    return middle


cdef void mark_box(
    uint16_t* at, int32_t corner, const int32_t* size, int32_t width
) noexcept nogil:
    """Look-ups of a box of a 2-D grid, in a table with one more row and column in front."""
    cdef int32_t top = corner // width * (width + 1) + corner % width
    cdef int32_t bottom = top + size[0] * (width + 1)
    at[0] = <uint16_t>(bottom + size[1])
    at[1] = <uint16_t>(top + size[1])
    at[2] = <uint16_t>bottom
    at[3] = <uint16_t>top


cdef class Router:
    """Packed trees, ready to walk. `skforest.forest.Forest` makes one and checks its arrays.

    Parameters
    ----------
    arrays : Mapping of str to ndarray
        The arrays of a `Forest`, validated, C-contiguous, in the dtypes of docs/format.
    n_features, n_outputs : int
    grid : tuple
        ``(feature_shape, wrap, unordered)``.
    max_taps : int
        Room that the longest direction needs once unfolded.
    gate : {"hard", "margin", "sigmoid"}
    steepness : float
        Of the sigmoid gate.
    """

    cdef Directions directions
    cdef int32_t max_taps
    cdef Gate gate
    cdef double steepness
    cdef int32_t n_outputs
    cdef bint dense_values
    cdef object keep               # the arrays that the pointers look into
    cdef const int64_t[::1] tree_start
    cdef const int32_t[::1] child
    cdef const float[::1] threshold
    cdef const int32_t[::1] direction
    cdef const float[::1] value
    cdef const int64_t[::1] value_start
    cdef const int32_t[::1] value_index
    cdef Step* steps               # made when bytes are asked for the first time
    cdef bint small_sums           # no box adds up to 2^15

    def __dealloc__(self):
        free(self.steps)

    def __init__(self, arrays, n_features, n_outputs, grid, max_taps, gate, steepness):
        cdef const int32_t[::1] corner = arrays["box_corner"]
        cdef const int32_t[::1] other = arrays["box_other"]
        cdef const int32_t[:, ::1] size = arrays["box_size"]
        cdef const uint8_t[:, ::1] subset = arrays["box_subset"]
        cdef const int64_t[::1] sparse_start = arrays["sparse_start"]
        cdef const int32_t[::1] sparse_feature = arrays["sparse_feature"]
        cdef const float[::1] sparse_weight = arrays["sparse_weight"]
        cdef const float[:, ::1] dense = arrays["dense"]
        self.keep = arrays
        self.tree_start = arrays["tree_start"]
        self.child = arrays["child"]
        self.threshold = arrays["threshold"]
        self.direction = arrays["direction"]
        self.value = arrays["value"]
        self.value_start = arrays["value_start"]
        self.value_index = arrays["value_index"]
        self.dense_values = self.value_start.shape[0] == 0
        self.n_outputs = n_outputs
        self.max_taps = max_taps
        self.gate = GATES[gate]
        self.steepness = steepness
        self.directions.grid = as_grid(grid[0], grid[1], grid[2])
        self.directions.n_features = n_features
        self.directions.n_boxes = corner.shape[0]
        self.directions.n_sparse = sparse_start.shape[0] - 1
        self.directions.n_dense = dense.shape[0]
        if corner.shape[0]:
            self.directions.box_corner = &corner[0]
            self.directions.box_other = &other[0]
            self.directions.box_size = &size[0, 0]
            if subset.shape[1]:
                self.directions.box_subset = &subset[0, 0]
        if sparse_start.shape[0] > 1:
            self.directions.sparse_start = &sparse_start[0]
            if sparse_feature.shape[0]:
                self.directions.sparse_feature = &sparse_feature[0]
                self.directions.sparse_weight = &sparse_weight[0]
        if dense.shape[0]:
            self.directions.dense = &dense[0, 0]

    def apply(self, X):
        """Leaf of every row of X in every tree.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features), uint8 or float32, C order

        Returns
        -------
        leaves : ndarray of shape (n_samples, n_trees), int32
            Node numbers, counted from the root of each tree.
        """
        cdef Table table = as_table(X)
        cdef int64_t n_trees = self.tree_start.shape[0] - 1
        cdef int64_t i, tree, n = table.n_samples
        leaves = np.empty((n, n_trees), dtype=np.int32)
        cdef int32_t[:, ::1] out = leaves
        cdef Walk walk
        cdef Taps taps
        if n == 0 or n_trees == 0:
            return leaves
        if self.sums_apply(&table):
            self.run_sums(&table, 0, n_trees, out, None)
            return leaves
        memset(&taps, 0, sizeof(Taps))
        alloc_walk(&walk, n)
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            with nogil:
                for tree in range(n_trees):
                    self.walk(tree, &table, &taps, &walk)
                    for i in range(n):
                        out[i, tree] = walk.leaf[i]
        finally:
            free_walk(&walk)
            free_taps(&taps)
        return leaves

    def respond(self, X, int64_t first_tree, int64_t last_tree):
        """Sum over some trees of leaf weight times leaf value.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features), uint8 or float32, C order
        first_tree, last_tree : int
            The trees first_tree .. last_tree - 1 take part, in this order.

        Returns
        -------
        response : ndarray of shape (n_samples, n_outputs), float64
        """
        cdef Table table = as_table(X)
        cdef int64_t i, tree, n = table.n_samples
        cdef double weight = 1
        response = np.zeros((n, self.n_outputs), dtype=np.float64)
        cdef double[:, ::1] out = response
        cdef Walk walk
        cdef Taps taps
        if n == 0 or self.n_outputs == 0:
            return response
        if self.gate == SIGMOID:
            self.respond_soft(&table, first_tree, last_tree, out)
            return response
        if self.sums_apply(&table):
            self.run_sums(&table, first_tree, last_tree, None, out)
            return response
        memset(&taps, 0, sizeof(Taps))
        alloc_walk(&walk, n)
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            with nogil:
                for tree in range(first_tree, last_tree):
                    self.walk(tree, &table, &taps, &walk)
                    for i in range(n):
                        if self.gate == MARGIN:
                            weight = walk.margin[i]
                        self.add_value(tree, walk.leaf[i], weight, &out[i, 0])
        finally:
            free_walk(&walk)
            free_taps(&taps)
        return response

    cdef bint sums_apply(self, const Table* table) noexcept:
        """Do tables of sums answer every split of every row?"""
        cdef const Grid* grid = &self.directions.grid
        cdef int64_t height = grid.length[0] if grid.n_axes == 2 else 1
        cdef int64_t width = grid.length[grid.n_axes - 1]
        return (
            table.dtype == UINT8
            and self.gate == HARD
            and grid.plain
            and grid.n_axes <= 2
            and (height + 1) * (width + 1) <= 65535     # positions are uint16
            and self.directions.n_sparse == 0
            and self.directions.n_dense == 0
        )

    cdef int make_steps(self) except -1:
        """Write the splits as look-ups in tables of sums."""
        cdef const Grid* grid = &self.directions.grid
        cdef int32_t width = grid.length[grid.n_axes - 1]
        cdef int64_t tree, node, root, first
        cdef int64_t largest = 1
        cdef int32_t child, code, i
        cdef int32_t size[2]
        cdef double threshold
        cdef Step* step
        if self.steps != NULL:
            return 0
        cdef Step* steps = <Step*>calloc(self.threshold.shape[0] + 1, sizeof(Step))
        if steps == NULL:
            raise MemoryError()
        for tree in range(self.tree_start.shape[0] - 1):
            root = self.tree_start[tree]
            first = (root - tree) // 2
            for node in range(self.tree_start[tree + 1] - root):
                child = self.child[root + node]
                if child < 0:
                    continue
                step = steps + first + (child - 1) // 2
                threshold = floor(self.threshold[first + (child - 1) // 2])
                step.threshold = <int32_t>max(-2.0**31, min(threshold, 2.0**31 - 1))
                step.left = self.next_step(root, first, child)
                step.right = self.next_step(root, first, child + 1)
                code = self.direction[first + (child - 1) // 2]
                size[0] = 1
                size[1] = 1
                if code < self.directions.n_features:
                    mark_box(step.at, code, size, width)
                    continue
                code -= self.directions.n_features
                for i in range(grid.n_axes):
                    size[2 - grid.n_axes + i] = self.directions.box_size[
                        <int64_t>code * grid.n_axes + i
                    ]
                largest = max(largest, <int64_t>size[0] * size[1])
                mark_box(step.at, self.directions.box_corner[code], size, width)
                if self.directions.box_other[code] >= 0:
                    mark_box(step.at + 4, self.directions.box_other[code], size, width)
        self.small_sums = 255 * largest < 32768
        self.steps = steps
        return 0

    cdef int32_t next_step(self, int64_t root, int64_t first, int32_t node) noexcept nogil:
        """Number of a node's split over the whole forest, or -1 - node for a leaf."""
        cdef int32_t child = self.child[root + node]
        return -1 - node if child < 0 else <int32_t>(first + (child - 1) // 2)

    cdef int run_sums(
        self, const Table* table, int64_t first_tree, int64_t last_tree, int32_t[:, ::1] leaves,
        double[:, ::1] out
    ) except -1:
        """Walk by tables of sums; fill `leaves`, or add to `out` where there are no leaves."""
        cdef const Grid* grid = &self.directions.grid
        cdef int height = grid.length[0] if grid.n_axes == 2 else 1
        cdef int width = grid.length[grid.n_axes - 1]
        cdef int64_t size = (height + 1) * (width + 1)
        cdef int64_t i, n, tree, root, start = 0, n_rows = table.n_samples
        cdef const uint8_t* row
        cdef int32_t at
        cdef bint wanted = leaves is not None
        if self.steps == NULL:
            self.make_steps()
        cdef int32_t[::1] leaf = np.empty(min(n_rows, <int64_t>SUM_ROWS), dtype=np.int32)
        cdef uint32_t[::1] sums = np.empty(leaf.shape[0] * size, dtype=np.uint32)
        cdef uint16_t* small = <uint16_t*>&sums[0]
        with nogil:
            while start < n_rows:
                n = min(n_rows - start, <int64_t>SUM_ROWS)
                for i in range(n):
                    row = <const uint8_t*>table.data + (start + i) * table.n_features
                    if self.small_sums:
                        skf_fill_u16(row, height, width, small + i * size)
                    else:
                        skf_fill_u32(row, height, width, &sums[i * size])
                for tree in range(first_tree, last_tree):
                    root = self.tree_start[tree]
                    at = self.next_step(root, (root - tree) // 2, 0)
                    if self.small_sums:
                        skf_walk_u16(self.steps, at, small, size, n, &leaf[0])
                    else:
                        skf_walk_u32(self.steps, at, &sums[0], size, n, &leaf[0])
                    if wanted:
                        for i in range(n):
                            leaves[start + i, tree] = leaf[i]
                    else:
                        for i in range(n):
                            self.add_value(tree, leaf[i], 1, &out[start + i, 0])
                start += n
        return 0

    cdef void walk(self, int64_t tree, const Table* table, Taps* taps, Walk* walk) noexcept nogil:
        """Leaf, and smallest margin on the way to it, of every row of the block."""
        cdef int64_t root = self.tree_start[tree]
        cdef int64_t first_split = (root - tree) // 2
        cdef int64_t stride = table.n_features
        cdef int32_t i, node, child, start, end, middle, depth = 0
        cdef int32_t n = <int32_t>table.n_samples
        cdef bint margins = self.gate == MARGIN
        cdef float threshold, margin
        cdef int64_t split
        for i in range(n):
            walk.row[i] = i
            walk.offset[i] = i * stride
            walk.margin[i] = 0
        node = 0
        start = 0
        end = n
        while True:
            child = self.child[root + node]
            if child < 0:
                for i in range(start, end):
                    walk.leaf[walk.row[i]] = node
                if depth == 0:
                    return
                depth -= 1
                node = walk.stack_node[depth]
                start = walk.stack_start[depth]
                end = walk.stack_end[depth]
                continue
            split = first_split + (child - 1) // 2
            threshold = self.threshold[split]
            unfold(taps, &self.directions, self.direction[split], table)
            project(taps, table, walk.offset + start, end - start, walk.column + start)
            if margins:
                for i in range(start, end):
                    margin = fabs(walk.column[i] - threshold)
                    if node == 0 or margin < walk.margin[walk.row[i]]:
                        walk.margin[walk.row[i]] = margin
            middle = part_rows(walk, start, end, threshold)
            if middle == start:
                node = child + 1
            elif middle == end:
                node = child
            else:
                walk.stack_node[depth] = child + 1
                walk.stack_start[depth] = middle
                walk.stack_end[depth] = end
                depth += 1
                node = child
                end = middle

    cdef inline void add_value(
        self, int64_t tree, int32_t leaf, double weight, double* out
    ) noexcept nogil:
        """out += weight * value of a leaf."""
        cdef int64_t row = -1 - <int64_t>self.child[self.tree_start[tree] + leaf]
        cdef int64_t j, start
        if self.dense_values:
            start = row * self.n_outputs
            for j in range(self.n_outputs):
                out[j] += weight * self.value[start + j]
        else:
            for j in range(self.value_start[row], self.value_start[row + 1]):
                out[self.value_index[j]] += weight * self.value[j]

    cdef int respond_soft(
        self, const Table* table, int64_t first_tree, int64_t last_tree, double[:, ::1] out
    ) except -1:
        """Every leaf answers, weighted by the product of the gates on its path."""
        cdef int64_t n = table.n_samples
        cdef int64_t tree, node, root, split, i, n_nodes, most = 0
        cdef double gate
        cdef float threshold
        cdef int32_t child
        cdef Taps taps
        for tree in range(first_tree, last_tree):
            most = max(most, self.tree_start[tree + 1] - self.tree_start[tree])
        cdef double[:, ::1] weight = np.empty((most, n), dtype=np.float64)
        cdef float[::1] column = np.empty(n, dtype=np.float32)
        cdef int64_t[::1] offset = np.arange(n, dtype=np.int64) * table.n_features
        memset(&taps, 0, sizeof(Taps))
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            with nogil:
                for tree in range(first_tree, last_tree):
                    root = self.tree_start[tree]
                    n_nodes = self.tree_start[tree + 1] - root
                    for i in range(n):
                        weight[0, i] = 1
                    for node in range(n_nodes):
                        child = self.child[root + node]
                        if child < 0:
                            for i in range(n):
                                self.add_value(tree, <int32_t>node, weight[node, i], &out[i, 0])
                            continue
                        split = (root - tree) // 2 + (child - 1) // 2
                        threshold = self.threshold[split]
                        unfold(&taps, &self.directions, self.direction[split], table)
                        project(&taps, table, &offset[0], n, &column[0])
                        for i in range(n):
                            gate = 1 / (1 + exp(-self.steepness * (<double>column[i] - threshold)))
                            weight[child, i] = weight[node, i] * (1 - gate)
                            weight[child + 1, i] = weight[node, i] * gate
        finally:
            free_taps(&taps)
        return 0

    def expand(self, codes):
        """Write directions out as rows of a sparse matrix.

        Parameters
        ----------
        codes : ndarray of shape (n,), int32

        Returns
        -------
        indptr, indices, data : ndarray
            CSR arrays of the matrix of shape (n, n_features), float32; entries of a row are not
            sorted, and entries of the same feature (overlapping boxes) stand beside each other.
        """
        cdef const int32_t[::1] code = codes
        cdef int64_t i, filled = 0, n = code.shape[0]
        cdef int32_t t
        cdef Table table
        cdef Taps taps
        table.dtype = NO_DTYPE
        table.n_features = self.directions.n_features
        memset(&taps, 0, sizeof(Taps))
        starts = np.zeros(n + 1, dtype=np.int64)
        cdef int64_t[::1] indptr = starts
        cdef int32_t[::1] indices
        cdef float[::1] data
        try:
            alloc_taps(&taps, self.max_taps, &self.directions.grid)
            for i in range(n):
                unfold(&taps, &self.directions, code[i], &table)
                indptr[i + 1] = indptr[i] + taps.n
            features = np.empty(indptr[n], dtype=np.int32)
            weights = np.empty(indptr[n], dtype=np.float32)
            indices = features
            data = weights
            for i in range(n):
                unfold(&taps, &self.directions, code[i], &table)
                for t in range(taps.n):
                    indices[filled] = t if taps.kind == DENSE else taps.position[t]
                    data[filled] = 1
                    if taps.kind == WEIGHTED:
                        data[filled] = taps.weight[t]
                    elif taps.kind == DENSE:
                        data[filled] = taps.dense[t]
                    filled += 1
        finally:
            free_taps(&taps)
        return starts, features, weights
