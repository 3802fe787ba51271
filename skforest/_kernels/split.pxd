# Splitting one node.

from libc.stdint cimport int32_t, int64_t, uint8_t

from .buffer cimport Buffer
from .direction cimport Table
from .random cimport Random


cdef enum Criterion:
    SQUARES = 0         # Gini, squared error
    ENTROPY = 1


cdef struct Split:
    float threshold
    int32_t code           # direction, as the splitter counts them
    int64_t n_left
    double left_weight
    double gain            # weight times impurity, minus the same of both sides


cdef struct Sample:
    # Rows to look at: the node's own, or a subset of them.
    int64_t n
    int64_t* offset                   # where each row starts in the table
    int32_t* label                    # as numbers among the classes of the node
    double* weight
    double* target                    # weight times target, (n, n_outputs)


cdef class NodeSplitter:
    cdef object keep                  # arrays that the pointers look into
    cdef Table table
    cdef Random random
    cdef int criterion
    cdef int64_t n_rows               # rows of the tree
    cdef int32_t n_outputs            # classes, or columns of the target
    cdef bint is_class
    cdef const double* target_of      # of a row of the table
    cdef const uint8_t[::1] stop
    cdef int64_t work                 # since the interpreter was last asked for signals

    # the rows of the tree; a node is a slice, and part() parts the slice
    cdef int32_t* row
    cdef int64_t* offset
    cdef int32_t* label
    cdef double* weight
    cdef int64_t* spare

    # the node at hand, filled by begin()
    cdef Sample node
    cdef int32_t* present             # classes of the node
    cdef int32_t* local               # class -> number among those present, or -1
    cdef int32_t n_present            # classes present, or columns of the target
    cdef double* total                # weight of each class present, or sum of each column
    cdef double* left                 # scratch, like total
    cdef double node_weight
    cdef bint is_pure
    cdef float* column                # the winning direction's values of the node's rows

    # leaf values
    cdef Buffer value
    cdef Buffer value_index
    cdef Buffer value_start

    cdef int begin(self, int64_t start, int64_t end) except -1 nogil
    cdef bint search(self, Split* split) except -1 nogil
    cdef int32_t leaf(self) except -1 nogil
    cdef void finish(self, Split* split) noexcept nogil
    cdef void part(self, int64_t start, int64_t end, float threshold) noexcept nogil
    cdef double side(self, const double* sums, double weight) noexcept nogil
    cdef bint poll(self, int64_t work) except -1 nogil
