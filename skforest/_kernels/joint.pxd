# Joint optimisation of all splits and leaves of a tree.

from libc.stdint cimport int32_t, int64_t, uint8_t

from .buffer cimport Buffer
from .random cimport Random


cdef struct Visit:
    # A node that waits to be looked at in loss-augmented inference.
    int32_t node
    int32_t flips              # turns that may still go against the signs
    double score               # of the turns so far, against those of the signs


cdef struct Turn:
    # What the gradient of a batch has for one split: slope times the row, in a linked list.
    int64_t at
    float slope
    int32_t before             # of the same split, -1 at the end


cdef class JointTrainer:
    # parameters
    cdef double nu
    cdef double momentum
    cdef int32_t batch_size
    cdef int32_t max_flips
    cdef bint stable
    cdef double l1

    # rows
    cdef object keep
    cdef const float* table
    cdef int64_t n
    cdef int64_t n_train       # of them with a weight
    cdef int64_t p
    cdef bint is_class
    cdef int32_t n_outputs
    cdef const int32_t* label
    cdef const double* target
    cdef float* row_weight     # relative to the mean weight
    cdef int32_t* assigned     # leaf of every row, held fixed by the stable variant
    cdef float* mean           # of the features
    cdef double scale          # of centred rows, to their root mean square norm

    # the tree: splits and leaves are numbered in the order of their nodes
    cdef int64_t n_nodes
    cdef int64_t n_splits
    cdef int64_t n_leaves
    cdef int32_t* child        # left child, or -1 - leaf
    cdef int32_t* parent       # -1 for the root
    cdef int32_t* leaf_node
    cdef float* w              # (n_splits, p)
    cdef double* bias          # of a split: right where scale (w . x - w . mean) > bias
    cdef float* centre         # scale (w . mean) + bias, of every split
    # Leaf parameters, from leaf_start[leaf] on: of the classes leaf_class, in ascending order; the
    # classes of a leaf that are not listed share `other`. In regression: one an output.
    cdef object leaf_arrays
    cdef const int64_t* leaf_start
    cdef const int32_t* leaf_class
    cdef double* theta
    cdef double* other
    cdef double* log_sum       # of exp(theta), of every leaf
    cdef double* worst         # largest loss of a label at any leaf that lists it
    cdef double worst_other    # and at those that do not
    cdef double* low           # smallest and largest leaf value of an output
    cdef double* high
    cdef double loss_scale

    # scratch of a batch
    cdef Random random
    cdef const uint8_t[::1] stop
    cdef int64_t work
    cdef int32_t* order        # training rows, as an epoch shows them
    cdef float* margin         # of the row at hand, where `seen` is its number
    cdef int64_t* seen
    cdef int64_t n_seen
    cdef int32_t* last_turn    # of every split, -1: none
    cdef Buffer stack
    cdef Buffer turns
    cdef Buffer touched        # splits that have turns
    cdef int32_t* best_leaf    # of every row of the batch
    cdef double* pull          # weight of the rows of the batch at each leaf, times the step
    cdef float* velocity       # (n_splits, p)
    cdef double* bias_velocity
    cdef float* gradient
    cdef int64_t* turn_at
    cdef float* turn_slope
    cdef int64_t turn_capacity
    cdef double rate_sum       # of all steps so far, for the steps that a split missed
    cdef double* rate_seen

    cdef void centre_rows(self, double radius) noexcept nogil
    cdef void set_centre(self, int64_t split) noexcept nogil
    cdef void bound_losses(self) noexcept nogil
    cdef void widen_losses(self, int64_t leaf) noexcept nogil
    cdef void set_log_sum(self, int64_t leaf) noexcept nogil
    cdef int64_t entry(self, int64_t leaf, int32_t label) noexcept nogil
    cdef double loss(self, int64_t leaf, int64_t row) noexcept nogil
    cdef double worst_loss(self, int64_t row) noexcept nogil
    cdef float margin_at(self, int64_t split, int64_t row) noexcept nogil
    cdef double infer(self, int64_t row, int32_t* best, int32_t* reached) except? -1 nogil
    cdef int32_t descend(self, int64_t row) noexcept nogil
    cdef double add_turns(self, int64_t row, int32_t leaf, double factor) except? -1 nogil
    cdef int add_turn(self, int64_t split, int64_t row, double slope) except -1 nogil
    cdef int batch(self, int64_t start, int64_t size, double rate, double* total) except -1 nogil
    cdef int step_split(self, int64_t split, double rate, double weight) except -1 nogil
    cdef void step_leaves(self, int64_t start, int64_t size, double rate) noexcept nogil
    cdef void push_all(self, int64_t leaf, double step) noexcept nogil
    cdef void pull_one(self, int64_t leaf, int64_t row, double step) noexcept nogil
    cdef void move_mean(self, int64_t leaf, int64_t row, double step) noexcept nogil
    cdef void decay(self, int64_t split) noexcept nogil
    cdef bint poll(self, int64_t work) except -1 nogil
