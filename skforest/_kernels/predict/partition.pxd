# Routing of rows through a tree, node by node.

from libc.stdint cimport int32_t, int64_t

from ..base.memory cimport Scratch


cdef struct RoutedRows:
    # A block of rows in the order of the nodes that they reach: the rows of a node are a slice.
    # All arrays have one entry per row of the block.
    int32_t* row               # number of the row in the block
    int64_t* offset            # start of the row in the table
    float* column              # projections of the rows of the current node
    int32_t* spare_row
    int64_t* spare_offset
    float* margin              # smallest margin of each row so far
    int32_t* leaf              # node of the leaf of each row
    # Waiting nodes, with their slices. Slices are disjoint, so there are no more nodes than rows.
    int32_t depth              # depth of the stack
    int32_t* stack_node
    int32_t* stack_start
    int32_t* stack_end


cdef inline RoutedRows routed_rows(Scratch scratch, int64_t n) except *:
    """Allocate arrays for a block of n rows; `scratch` keeps them alive."""
    cdef RoutedRows rows
    cdef int64_t size = n + 1
    # One allocation for all arrays, because allocations dominate the time for a single row.
    cdef char* start = <char*>scratch.bytes_of(
        size * <int64_t>(2 * sizeof(int64_t) + 6 * sizeof(int32_t) + 2 * sizeof(float))
    )
    rows.depth = 0
    rows.offset = <int64_t*>start
    rows.spare_offset = rows.offset + size
    rows.row = <int32_t*>(rows.spare_offset + size)
    rows.spare_row = rows.row + size
    rows.leaf = rows.spare_row + size
    rows.stack_node = rows.leaf + size
    rows.stack_start = rows.stack_node + size
    rows.stack_end = rows.stack_start + size
    rows.column = <float*>(rows.stack_end + size)
    rows.margin = rows.column + size
    return rows


cdef inline void push_node(
    RoutedRows* rows, int32_t node, int32_t start, int32_t end
) noexcept nogil:
    rows.stack_node[rows.depth] = node
    rows.stack_start[rows.depth] = start
    rows.stack_end[rows.depth] = end
    rows.depth += 1


cdef inline bint pop_node(
    RoutedRows* rows, int32_t* node, int32_t* start, int32_t* end
) noexcept nogil:
    """Continue with the node that was pushed last; False if there is none."""
    if rows.depth == 0:
        return False
    rows.depth -= 1
    node[0] = rows.stack_node[rows.depth]
    start[0] = rows.stack_start[rows.depth]
    end[0] = rows.stack_end[rows.depth]
    return True


cdef inline int32_t partition_rows(
    RoutedRows* rows, int32_t start, int32_t end, float threshold
) noexcept nogil:
    """Move the left rows of a slice to its front; return the start of the right rows.

    Both sides keep their order. Each row is written to both sides, and one of the two counters
    advances: this avoids a branch on projections, which a processor could not predict.
    """
    cdef int32_t i, row, middle = start, n_right = 0
    cdef int64_t offset
    cdef bint left
    for i in range(start, end):
        row = rows.row[i]
        offset = rows.offset[i]
        left = rows.column[i] <= threshold
        rows.row[middle] = row
        rows.offset[middle] = offset
        rows.spare_row[n_right] = row
        rows.spare_offset[n_right] = offset
        middle += left
        n_right += not left
    for i in range(n_right):
        rows.row[middle + i] = rows.spare_row[i]
        rows.offset[middle + i] = rows.spare_offset[i]
    return middle
