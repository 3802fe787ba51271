"""Tables, directions, and the projection of rows on a direction.

A split compares ``a . x``, a projection of the row x, with a threshold. `unfold` turns a stored
direction a (a feature, a box of the feature array, a sparse or a dense row) into a form for one
table; `project` computes

    out[i] = a . x_i = sum_t weight[t] * x_i[position[t]]

for a list of rows. Training and prediction call the same two functions on the same dtype, so sums
are equal to the last bit and no training row changes its side of a threshold. Boxes are stored as
corners and sizes; their sums read eight bytes or four floats at a time.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

from .memory cimport Scratch

cdef extern from "base/simd.h" nogil:
    int skf_level()
    void skf_widen(const uint16_t*, int64_t, float*)
    uint64_t skf_byte_mask(int, int)
    void skf_project_u8(const Unfolded*, const uint8_t*, const int64_t*, int64_t, float*)
    void skf_project_f32(const Unfolded*, const float*, const int64_t*, int64_t, float*)


cdef enum:
    # Up to this number, terms are looked up in a row of a CSR matrix, otherwise the reverse. This
    # affects only time; chosen without a stored measurement.
    FEW_TERMS = 16


def simd_level():
    """Return the variant of vector loops on this processor: 0 baseline, 1 AVX2, 2 AVX-512."""
    return skf_level()


# ------------------------------------------------------------------------------- tables and grids

cdef Table as_table(X) except *:
    """View a C-contiguous uint8 or float32 matrix, or a float32 CSR matrix; X must stay alive."""
    cdef Table table
    cdef const int32_t[::1] row_start, column
    cdef const float[::1] entries
    cdef const uint8_t[:, ::1] bytes_view
    cdef const float[:, ::1] float_view
    memset(&table, 0, sizeof(Table))
    table.n_samples = X.shape[0]
    table.n_features = X.shape[1]
    if hasattr(X, "indptr"):
        table.dtype = CSR
        row_start, column, entries = X.indptr, X.indices, X.data
        table.row_start = &row_start[0]
        if X.nnz:
            table.column, table.data = &column[0], &entries[0]
        return table
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
    """Return the grid of `feature_shape`, with row-major strides."""
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
    """Return the number of entries of a box."""
    cdef int64_t volume = 1
    cdef int axis
    for axis in range(grid.n_axes):
        volume *= size[axis]
    return volume


cdef Directions as_directions(arrays, int32_t n_features, Grid grid) except *:
    """View the directions of a `Forest`, whose arrays must stay alive."""
    cdef Directions directions
    cdef const int32_t[::1] corner = arrays["box_corner"]
    cdef const int32_t[::1] other = arrays["box_other"]
    cdef const int32_t[:, ::1] size = arrays["box_size"]
    cdef const uint8_t[:, ::1] subset = arrays["box_subset"]
    cdef const int64_t[::1] sparse_start = arrays["sparse_start"]
    cdef const int32_t[::1] sparse_feature = arrays["sparse_feature"]
    cdef const float[::1] sparse_weight
    cdef const float[:, ::1] dense
    cdef const uint16_t[::1] sparse_half
    cdef const uint16_t[:, ::1] dense_half
    memset(&directions, 0, sizeof(Directions))
    directions.grid = grid
    directions.n_features = n_features
    directions.n_boxes = corner.shape[0]
    directions.n_sparse = sparse_start.shape[0] - 1
    directions.n_dense = arrays["dense"].shape[0]
    if corner.shape[0]:
        directions.box_corner = &corner[0]
        directions.box_other = &other[0]
        directions.box_size = &size[0, 0]
        if subset.shape[1]:
            directions.box_subset = &subset[0, 0]
    if sparse_start.shape[0] > 1:
        directions.sparse_start = &sparse_start[0]
        if sparse_feature.shape[0]:
            directions.sparse_feature = &sparse_feature[0]
    if arrays["dense"].dtype == np.float16:
        sparse_half = arrays["sparse_weight"].view(np.uint16)
        dense_half = arrays["dense"].view(np.uint16)
        if sparse_half.shape[0]:
            directions.sparse_half = &sparse_half[0]
        if dense_half.shape[0]:
            directions.dense_half = &dense_half[0, 0]
        return directions
    sparse_weight = arrays["sparse_weight"]
    dense = arrays["dense"]
    if sparse_weight.shape[0]:
        directions.sparse_weight = &sparse_weight[0]
    if dense.shape[0]:
        directions.dense = &dense[0, 0]
    return directions


# --------------------------------------------------------------------------- unfolded directions

cdef Unfolded reserve_unfolded(Scratch scratch, int32_t capacity, const Grid* grid) except *:
    """Allocate arrays for directions of up to `capacity` terms; `scratch` keeps them alive."""
    cdef Unfolded unfolded
    cdef int64_t n_along = 1
    cdef int axis
    for axis in range(grid.n_axes):
        n_along += grid.length[axis]
    memset(&unfolded, 0, sizeof(Unfolded))
    # One allocation for all arrays, because allocations dominate the time for a single row.
    unfolded.mask = <uint64_t*>scratch.bytes_of(
        capacity * <int64_t>(sizeof(uint64_t) + sizeof(float) + sizeof(int32_t))
        + n_along * <int64_t>sizeof(int32_t)
    )
    unfolded.weight = <float*>(unfolded.mask + capacity)
    unfolded.position = <int32_t*>(unfolded.weight + capacity)
    unfolded.along = unfolded.position + capacity
    return unfolded


cdef void unfold_feature(Unfolded* unfolded, int32_t feature) noexcept nogil:
    unfolded.kind = ONE
    unfolded.n = 1
    unfolded.position[0] = feature


cdef void unfold_sparse(
    Unfolded* unfolded, const int32_t* feature, const float* weight, int32_t n
) noexcept nogil:
    cdef int32_t t
    unfolded.kind = WEIGHTED
    unfolded.n = n
    for t in range(n):
        unfolded.position[t] = feature[t]
        unfolded.weight[t] = weight[t]


cdef inline void add_run(
    Unfolded* unfolded, int32_t start, int32_t length, float sign, const Table* table
) noexcept nogil:
    """Add `length` features from `start` on: singly, or in words of eight bytes or four floats.

    A word must lie inside its row. Near the end of the row, it starts earlier, and its mask omits
    the features before `start`.
    """
    cdef int32_t width = 8 if table.dtype == UINT8 else 4
    cdef int32_t part, position
    if unfolded.kind == WEIGHTED:
        for part in range(length):
            unfolded.position[unfolded.n] = start + part
            unfolded.weight[unfolded.n] = sign
            unfolded.n += 1
        return
    while length > 0:
        part = min(length, width)
        position = min(start, table.n_features - width)
        unfolded.position[unfolded.n] = position
        if table.dtype == UINT8:
            unfolded.mask[unfolded.n] = skf_byte_mask(start - position, part)
        else:
            unfolded.mask[unfolded.n] = ((1 << part) - 1) << (start - position)
        unfolded.n += 1
        start += part
        length -= part


cdef void add_plain_box(
    Unfolded* unfolded, const Grid* grid, const Box* box, int32_t corner, float sign,
    const Table* table
) noexcept nogil:
    """Add all entries of the box at `corner`, in runs along the last axis."""
    cdef int axis, last = grid.n_axes - 1
    cdef int32_t index[MAX_AXES]
    cdef int64_t base = corner
    for axis in range(last):
        index[axis] = 0
    while True:
        add_run(unfolded, <int32_t>base, box.size[last], sign, table)
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
    Unfolded* unfolded, const Grid* grid, const Box* box, int32_t corner, float sign,
    const Table* table
) noexcept nogil:
    """As add_plain_box, for axes that may wrap or have no order."""
    cdef int axis, last = grid.n_axes - 1
    cdef int32_t i, at, size, first, length
    cdef int32_t rest = corner
    cdef int32_t base = 0
    cdef int32_t index[MAX_AXES]
    cdef int32_t start[MAX_AXES]       # of each axis in `along`
    cdef int32_t* along = unfolded.along
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
    # 2. all combinations of offsets along the other axes; runs of neighbours along the last one
    while True:
        base = 0
        for axis in range(last):
            base += along[start[axis] + index[axis]]
        i = start[last]
        while i < filled:
            length = 1
            while i + length < filled and along[i + length] == along[i] + length:
                length += 1
            add_run(unfolded, base + along[i], length, sign, table)
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
    Unfolded* unfolded, const Grid* grid, const Box* box, const Table* table
) noexcept nogil:
    cdef bint wide = table.n_features >= (8 if table.dtype == UINT8 else 4)
    unfolded.kind = WORDS if wide and table.dtype != NO_DTYPE else WEIGHTED
    unfolded.n = 0
    if grid.plain:
        add_plain_box(unfolded, grid, box, box.corner, 1, table)
    else:
        add_box(unfolded, grid, box, box.corner, 1, table)
    unfolded.n_plus = unfolded.n
    if box.other < 0:
        return
    if grid.plain:
        add_plain_box(unfolded, grid, box, box.other, -1, table)
    else:
        add_box(unfolded, grid, box, box.other, -1, table)


cdef void unfold(
    Unfolded* unfolded, const Directions* directions, int32_t code, const Table* table
) noexcept nogil:
    """Unfold the stored direction `code`; `unfolded` has the capacity of the longest one."""
    cdef Box box
    cdef int64_t start
    cdef int32_t n
    if code < directions.n_features:
        unfold_feature(unfolded, code)
        return
    code -= directions.n_features
    if code < directions.n_boxes:
        box.corner = directions.box_corner[code]
        box.other = directions.box_other[code]
        box.size = directions.box_size + <int64_t>code * directions.grid.n_axes
        box.subset = directions.box_subset + <int64_t>code * directions.grid.n_subset_bytes
        unfold_box(unfolded, &directions.grid, &box, table)
        return
    code -= directions.n_boxes
    if code < directions.n_sparse:
        start = directions.sparse_start[code]
        n = <int32_t>(directions.sparse_start[code + 1] - start)
        if directions.sparse_half == NULL:
            unfold_sparse(
                unfolded, directions.sparse_feature + start, directions.sparse_weight + start, n
            )
            return
        unfolded.kind = WEIGHTED
        unfolded.n = n
        memcpy(unfolded.position, directions.sparse_feature + start, n * sizeof(int32_t))
        skf_widen(directions.sparse_half + start, n, unfolded.weight)
        return
    code -= directions.n_sparse
    unfolded.kind = DENSE
    unfolded.n = directions.n_features
    start = <int64_t>code * directions.n_features
    if directions.dense_half == NULL:
        unfolded.dense = directions.dense + start
        return
    skf_widen(directions.dense_half + start, unfolded.n, unfolded.weight)
    unfolded.dense = unfolded.weight


cdef float entry_of(const Table* table, int64_t row, int32_t feature) noexcept nogil:
    """Find an entry of a CSR matrix by bisection in the row."""
    cdef int32_t low = table.row_start[row], high = table.row_start[row + 1], middle
    while low < high:
        middle = low + ((high - low) >> 1)
        if table.column[middle] < feature:
            low = middle + 1
        else:
            high = middle
    if low < table.row_start[row + 1] and table.column[low] == feature:
        return (<const float*>table.data)[low]
    return 0


cdef bint rises(const int32_t* position, int32_t n) noexcept nogil:
    cdef int32_t t
    for t in range(1, n):
        if position[t] <= position[t - 1]:
            return False
    return True


cdef float sum_entries(const Unfolded* unfolded, const Table* table, int64_t row) noexcept nogil:
    """Project a row; each of its entries is found by bisection among the terms."""
    cdef int32_t e, low, high, middle
    cdef float total = 0
    for e in range(table.row_start[row], table.row_start[row + 1]):
        low, high = 0, unfolded.n
        while low < high:
            middle = low + ((high - low) >> 1)
            if unfolded.position[middle] < table.column[e]:
                low = middle + 1
            else:
                high = middle
        if low < unfolded.n and unfolded.position[low] == table.column[e]:
            total = total + unfolded.weight[low] * (<const float*>table.data)[e]
    return total


cdef void project_csr(
    const Unfolded* unfolded, const Table* table, const int64_t* offset, int64_t n, float* out
) noexcept nogil:
    """As `project`, for single features and for positions with weights.

    Terms are added in the order of `SKF_SPARSE_BODY`; terms of 0 change no sum.
    """
    cdef int64_t i, row
    cdef int32_t t
    cdef float total
    cdef bint has_many = unfolded.n > FEW_TERMS and rises(unfolded.position, unfolded.n)
    for i in range(n):
        row = offset[i] // table.n_features
        if unfolded.kind == ONE:
            out[i] = entry_of(table, row, unfolded.position[0])
            continue
        if has_many:
            out[i] = sum_entries(unfolded, table, row)
            continue
        total = 0
        for t in range(unfolded.n):
            total = total + unfolded.weight[t] * entry_of(table, row, unfolded.position[t])
        out[i] = total


cdef void project(
    const Unfolded* unfolded, const Table* table, const int64_t* offset, int64_t n, float* out
) noexcept nogil:
    """out[i] = a . x of the row that starts at table[offset[i]], for n rows."""
    if table.dtype == CSR:
        project_csr(unfolded, table, offset, n, out)
    elif table.dtype == UINT8:
        skf_project_u8(unfolded, <const uint8_t*>table.data, offset, n, out)
    else:
        skf_project_f32(unfolded, <const float*>table.data, offset, n, out)
