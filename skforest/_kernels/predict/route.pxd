# Rows on their way through a tree: node by node, by tables of sums, over a pool of directions.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from ..base.direction cimport Directions, Table, Unfolded
from ..base.memory cimport Scratch

cdef extern from "predict/route.h" nogil:
    ctypedef struct Step "skf_step":
        uint16_t one
        uint16_t two
        uint16_t across
        uint16_t down
        int32_t threshold
        uint32_t next

    enum:
        SKF_TERMS

    ctypedef struct Split "skf_split":
        float threshold
        int32_t* next
        int32_t n_terms
        int32_t* feature
        float* weight


cdef struct RoutedRows:
    # A block of rows in the order of the nodes that they reach: the rows of a node are a slice.
    # All arrays have one entry per row of the block.
    int32_t* row               # number of the row in the block
    int64_t* offset            # where the row starts in the table
    float* column              # projections of the rows of the current node
    int32_t* spare_row
    int64_t* spare_offset
    float* margin              # of each row: smallest margin so far
    int32_t* leaf              # of each row: node of its leaf
    # Nodes that wait to be visited, with their slices. Each has rows that no other one has, so
    # that there are never more than rows.
    int32_t depth              # of the stack
    int32_t* stack_node
    int32_t* stack_start
    int32_t* stack_end


cdef struct Slopes:
    # Linear functions of features in leaves. Row r of values has the entries start[r] to
    # start[r + 1] - 1, each a feature and the slopes of all outputs along it. No start: none.
    const int64_t* start
    const int32_t* feature
    const float* slope
    int64_t n_outputs


cdef inline void add_slopes(
    const Slopes* slopes, int64_t value_row, const float* x, double* out
) noexcept nogil:
    """out += the linear function of a row of values, at the features x."""
    cdef int64_t j, k
    for j in range(slopes.start[value_row], slopes.start[value_row + 1]):
        for k in range(slopes.n_outputs):
            out[k] += <double>slopes.slope[j * slopes.n_outputs + k] * x[slopes.feature[j]]


cdef inline RoutedRows routed_rows(Scratch scratch, int64_t n) except *:
    """Arrays for a block of n rows, which `scratch` keeps alive."""
    cdef RoutedRows rows
    cdef int64_t size = n + 1
    # One allocation for all arrays: a call for a single row spends its time on such things.
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
    """Continue with the node that was pushed last; False if none waits."""
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
    """Move the rows of a slice that go left before the others; returns where the others start.

    Both sides keep their order. Each row is written to both sides, and one of the two counters
    advances: there is no branch on the projections, which a processor could not predict.
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


cdef bint sums_apply(const Directions* directions, int64_t n_splits) noexcept nogil


cdef class SumRouter:
    cdef Scratch scratch
    cdef int height, width
    cdef int64_t size              # entries of one table
    cdef bint small                # no box adds up to 2^15: the tables are uint16
    cdef bint has_contrasts        # does any split subtract a second box?
    cdef Step* steps               # the splits of all trees
    cdef int32_t* first            # left child of every split
    cdef int32_t* root             # split at the root of every tree, -1 where it is a leaf

    cdef int build(self, arrays, const Directions* directions) except -1
    cdef void write_steps(
        self, const int32_t[::1] child, int32_t first_split, int32_t[::1] step_of
    ) noexcept nogil
    cdef int64_t write_boxes(
        self, const int32_t[::1] child, int32_t first_split, const float[::1] threshold,
        const int32_t[::1] direction, const Directions* directions, const int32_t[::1] step_of
    ) noexcept nogil
    cdef uint16_t position(self, int32_t corner) noexcept nogil
    cdef int64_t block_rows(self) noexcept nogil
    cdef void fill(self, uint32_t* sums, const uint8_t* rows, int64_t n) noexcept nogil
    cdef void route(
        self, int64_t tree, const uint32_t* sums, int64_t n, int32_t* leaf
    ) noexcept nogil


cdef class DirectionPool:
    cdef readonly int64_t n_columns      # the directions, and one column of zeros
    cdef const int32_t[::1] code         # the directions, in ascending order
    cdef const int32_t[:, ::1] nodes     # skf_node of all trees
    cdef const int32_t[::1] depth        # of each tree
    cdef object tree_start
    cdef dict columns                    # columns that a range of trees uses

    cdef const int32_t[::1] columns_of(self, int64_t first_tree, int64_t last_tree)
    cdef void fill(
        self, const int32_t[::1] columns, const Directions* directions, const Table* table,
        Unfolded* unfolded, const int64_t* offset, int64_t n, float* column, float* out
    ) noexcept nogil
    cdef void route(
        self, int64_t tree, int64_t root, const float* projections, int64_t n, int32_t* leaf,
        float* margin
    ) noexcept nogil
