# Joint training of all splits and leaves of a tree.

from libc.stdint cimport int32_t, int64_t, uint8_t

from .joint_leaves cimport JointLeaves
from .memory cimport Buffer, Scratch
from .random cimport Random


cdef struct Visit:
    # A node that waits to be visited in loss-augmented inference.
    int32_t node
    int32_t flips              # signs that may still be flipped
    double score               # g . Wx - h . Wx of the signs g flipped so far


cdef struct GradientTerm:
    # What one row adds to the gradient of a split, slope times the row: an item of a linked list.
    int64_t at                 # where the row starts in the table
    float slope
    int32_t before             # term of the same split, -1 at the end


cdef class JointTrainer:
    # parameters
    cdef double nu
    cdef double momentum
    cdef int32_t batch_size
    cdef int32_t max_flips
    cdef bint stable
    cdef double l1

    # rows
    cdef Scratch scratch
    cdef object X                # keeps `table` alive
    cdef const float* table
    cdef int64_t n
    cdef int64_t n_train         # rows of positive weight
    cdef int64_t p
    cdef float* row_weight       # relative to the mean weight
    cdef int32_t* assigned       # leaf of every row, fixed between calls of `assign`
    cdef float* mean             # of the features
    cdef double scale            # of centred rows, to their root mean square norm

    # the tree: splits and leaves are numbered in the order of their nodes
    cdef int64_t n_nodes
    cdef int64_t n_splits
    cdef int64_t n_leaves
    cdef int32_t* child          # left child, or -1 - leaf
    cdef int32_t* parent         # -1 for the root
    cdef int32_t* leaf_node
    cdef float* w                # (n_splits, p)
    cdef double* bias            # of a split: right where scale (w . x - w . mean) > bias
    cdef float* centre           # scale (w . mean) + bias, of every split
    cdef JointLeaves leaves

    # scratch of a batch
    cdef Random random
    cdef const uint8_t[::1] stop
    cdef int64_t work            # additions since the last test for signals
    cdef int32_t* order          # training rows, in the order of an epoch
    cdef float* margin           # of the current row, at splits where `margin_row` is its number
    cdef int64_t* margin_row
    cdef int64_t n_inferred      # number of the current row, counted over all calls
    cdef Buffer stack            # Visit
    cdef Buffer terms            # GradientTerm
    cdef Buffer touched          # splits that have terms
    cdef int32_t* last_term      # of every split, -1: none
    cdef int32_t* best_leaf      # of every row of the batch
    cdef float* velocity         # (n_splits, p)
    cdef double* bias_velocity
    cdef float* gradient
    cdef Buffer term_at          # terms of one split, as the loops read them
    cdef Buffer term_slope
    cdef double rate_sum         # of all steps so far
    cdef double* rate_seen       # of each split: rate_sum when it last shrank

    cdef void load_rows(self, const double[::1] weight, double radius) noexcept nogil
    cdef void load_tree(self, const int32_t[::1] child) noexcept nogil
    cdef void load_planes(
        self, const float[:, ::1] W, const float[::1] threshold
    ) noexcept nogil
    cdef void centre_rows(self, double radius) noexcept nogil
    cdef void set_centre(self, int64_t split) noexcept nogil
    cdef float margin_at(self, int64_t split, int64_t row) noexcept nogil
    cdef double infer(self, int64_t row, int32_t* best, int32_t* reached) except? -1 nogil
    cdef int32_t descend(self, int64_t row) noexcept nogil
    cdef double add_terms(self, int64_t row, int32_t leaf, double factor) except? -1 nogil
    cdef int add_term(self, int64_t split, int64_t row, double slope) except -1 nogil
    cdef int batch(self, int64_t start, int64_t size, double rate, double* total) except -1 nogil
    cdef int64_t load_terms(self, int64_t split, double* shift) except -1 nogil
    cdef int step_split(self, int64_t split, double rate, double weight) except -1 nogil
    cdef void shrink(self, int64_t split, float* square) noexcept nogil
    cdef bint must_stop(self, int64_t work) except -1 nogil
