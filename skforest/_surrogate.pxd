# Floor 2: oblique splits by the convex-concave bound.

from libc.stdint cimport int32_t, int64_t

from ._search cimport SearchSplitter
from ._split cimport Split


cdef struct Plane:
    # A hyperplane over the rows at hand: right where scale (w . x - w . mean) > bias.
    float* w
    double bias
    double score               # of its split of the training rows


cdef struct Sides:
    # What a hyperplane does to the training rows of a node.
    double* left               # sum of the targets, n_outputs numbers
    double* right
    double left_weight
    double right_weight
    int64_t n_left


cdef class StumpSplitter(SearchSplitter):
    # parameters
    cdef int objective
    cdef double nu
    cdef double learning_rate
    cdef double momentum
    cdef int32_t batch_size
    cdef int64_t n_visits      # rows shown to a node, which sets its epochs
    cdef int32_t max_epochs
    cdef double smoothing
    cdef double radius
    cdef double holdout
    cdef bint old_signs
    cdef bint gradient_leaves

    # the rows of the node, those that train first, as they are or written anew
    cdef int32_t* order        # which row of the node each is
    cdef int64_t n_train
    cdef const float* rows
    cdef int64_t* at           # where each starts
    cdef int64_t p
    cdef float* mean           # of each feature, 0 where rows are written anew
    cdef double scale
    cdef float* row_weight     # relative to the mean weight
    cdef int32_t* row_label
    cdef double* row_target    # (n, n_outputs)
    cdef float* own_rows       # room for them
    cdef float* node_mean      # in the table's features
    cdef double node_scale
    cdef int32_t* varying      # features that vary in the node
    cdef int32_t n_varying
    cdef float* low
    cdef float* high

    # the training of one stump
    cdef Plane plane
    cdef Plane best
    cdef Sides sides
    cdef float* margin         # of every row, at the end of the last epoch
    cdef float* base           # loss of every row at the left leaf
    cdef float* delta          # loss at the right leaf minus that
    cdef double* leaf_left     # parameters of the two leaves
    cdef double* leaf_right
    cdef double loss_scale
    cdef int32_t* visit        # the order of an epoch
    cdef int64_t* batch_at
    cdef float* batch_margin
    cdef float* batch_branch
    cdef float* batch_delta
    cdef float* batch_weight
    cdef float* batch_slope
    cdef float* velocity
    cdef float* gradient
    cdef double* leaf_velocity  # both leaves, side by side
    cdef double bias_velocity
    cdef float* direction

    cdef void line_up(self) noexcept nogil
    cdef bint prepare(self, int32_t feature, float threshold) noexcept nogil
    cdef void add_up_mean(self) noexcept nogil
    cdef int optimise(self) except -1 nogil
    cdef void epoch(self, double rate, int objective) noexcept nogil
    cdef void step(self, int64_t n, double rate, int objective) noexcept nogil
    cdef void move_leaves(
        self, const int32_t* rows, int64_t n, double rate, int objective
    ) noexcept nogil
    cdef void take_margins(
        self, const Plane* plane, const int64_t* at, int64_t n, float* out
    ) noexcept nogil
    cdef void weigh_sides(self) noexcept nogil
    cdef double mean_loss(self, int objective) noexcept nogil
    cdef void set_leaves(self) noexcept nogil
    cdef void set_losses(self, int64_t first, int64_t last) noexcept nogil
    cdef void remember(self) noexcept nogil
    cdef bint accept(self, const Split* axis, Split* split) except -1 nogil
    cdef double held_loss(self) noexcept nogil
