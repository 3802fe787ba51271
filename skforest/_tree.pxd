# Scratch of rows that walk through a tree.

from libc.stdint cimport int32_t, int64_t


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


cdef int alloc_walk(Walk* walk, int64_t n) except -1 nogil
cdef void free_walk(Walk* walk) noexcept nogil
