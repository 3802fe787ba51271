# Split of one node.

from libc.stdint cimport int32_t, int64_t, uint8_t

from ..base.direction cimport Table
from ..base.memory cimport Buffer, Scratch
from ..base.random cimport Random


cdef enum Criterion:
    SQUARES = 0         # Gini impurity, squared error
    ENTROPY = 1


cdef struct Split:
    float threshold
    int32_t code           # code of the direction in the splitter
    int64_t n_left         # rows of the left child
    double left_weight
    double gain            # weight times impurity, minus the same of both children


cdef struct Sample:
    # Searched rows: all rows of the node, or a random subset.
    int64_t n
    int64_t* offset                   # start of each row in the table
    int32_t* label                    # index among the classes present in the node
    double* weight
    double* target                    # weight times target, (n, n_outputs)


cdef class NodeSplitter:
    cdef object arrays                # owners of the memory that the pointers refer to
    cdef Scratch scratch              # owns the arrays behind all other pointers
    cdef Table table
    cdef Random random
    cdef int criterion
    cdef int64_t n_rows               # rows of the tree
    cdef int32_t n_outputs            # classes, or columns of the target
    cdef bint is_class
    cdef const double* target_of      # (n_samples, n_outputs), in the order of the table
    cdef const uint8_t[::1] stop
    cdef int64_t work                 # additions since signals were last handled

    # The rows of the tree. A node is a slice of them, which `partition` reorders.
    cdef int32_t* row
    cdef int64_t* offset
    cdef int32_t* label
    cdef double* weight
    cdef int64_t* spare

    # The current node, set by `begin_node`.
    cdef Sample node
    cdef int32_t* present             # classes present in the node
    cdef int32_t* local               # index of each class among those present, or -1
    cdef int32_t n_present            # classes present, or columns of the target
    cdef double* total                # weight of each class present, or sum of each column
    cdef double* left                 # scratch, as long as total
    cdef double node_weight
    cdef bint is_pure
    cdef float* column                # projection of the rows on the direction of the split

    # leaf values
    cdef Buffer value
    cdef Buffer value_index
    cdef Buffer value_start

    cdef int begin_node(self, int64_t start, int64_t end) except -1 nogil
    cdef bint search(self, Split* split) except -1 nogil
    cdef int32_t add_leaf(self) except -1 nogil
    cdef void measure_split(self, Split* split) noexcept nogil
    cdef void partition(self, int64_t start, int64_t end, float threshold) noexcept nogil
    cdef double side_score(self, const double* sums, double weight) noexcept nogil
    cdef void copy_targets(
        self, const int32_t* order, float* weight, int32_t* label, double* target
    ) noexcept nogil
    cdef bint should_stop(self, int64_t work) except -1 nogil
