# Oblique splits by the convex-concave bound.

from libc.stdint cimport int32_t, int64_t

from .search cimport SearchSplitter
from .split cimport Split


cdef struct Plane:
    # A hyperplane over the rows at hand: right where scale (w . x - w . mean) > bias.
    float* w
    double bias
    double score               # of its split of the training rows


cdef struct Sides:
    # What a hyperplane does to the training rows of a node.
    double* left               # sum of the targets, n_outputs numbers
    double* right              # behind those of the left
    double left_weight
    double right_weight
    int64_t n_left
    double score
    double* before             # the sums that were settled before these
    bint known                 # were there any?
    bint changed               # do these differ from them?


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
    cdef double row_norm
    cdef double holdout
    cdef bint old_signs
    cdef bint keep_last
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
    cdef int32_t* seen         # of each feature, whether it varies in the node
    cdef int32_t* group        # where groups of features begin of which one varies
    cdef int32_t n_groups
    cdef int32_t* kept         # the features of rows written anew
    cdef int32_t n_kept

    # the training of one stump
    cdef Plane plane
    cdef Plane best_plane
    cdef Sides sides
    cdef int64_t first         # the feature of that cut, in the rows as they are stored
    cdef float* margin         # of every row, when all were last looked at
    cdef float* base           # loss of every row at the left leaf
    cdef float* delta          # loss at the right leaf minus that
    cdef double* leaf_left     # parameters of the two leaves
    cdef double* leaf_right
    cdef float* label_base     # what base and delta are for each class
    cdef float* label_delta
    cdef double base_loss      # weighted sum of base
    cdef double train_weight
    cdef double loss_scale
    cdef float* ones
    cdef int64_t* batch_at
    cdef float* batch_margin
    cdef float* batch_branch
    cdef float* batch_value
    cdef float* batch_delta
    cdef float* batch_weight
    cdef float* batch_slope
    cdef int64_t* active_at    # rows of a batch that have a slope
    cdef float* active_slope
    cdef int64_t n_active      # rows that had a slope in this epoch
    cdef float* velocity
    cdef float* gradient
    cdef double* leaf_velocity  # both leaves, side by side
    cdef double bias_velocity
    cdef float* direction
    cdef float threshold
    cdef bint is_laid_out      # are column, direction and threshold those of the best plane?

    cdef void line_up(self) noexcept nogil
    cdef bint prepare(self, int32_t feature) except -1 nogil
    cdef void keep_features(self) noexcept nogil
    cdef bint varies(self, int64_t feature) noexcept nogil
    cdef int optimise(self, const Split* axis) except -1 nogil
    cdef double length_within_reach(self) noexcept nogil
    cdef bint has_strays(self) noexcept nogil
    cdef void set_out(self, const Split* axis, double length) noexcept nogil
    cdef double epoch(self, double rate, int objective) noexcept nogil
    cdef const float* around(
        self, const float* end, const float* begin, int64_t tail, int64_t size, float* out
    ) noexcept nogil
    cdef void step(
        self, const int64_t* at, const float* margin, const float* branch, const float* delta,
        const float* weight, int64_t n, double total, double rate, int objective
    ) noexcept nogil
    cdef void move_leaves(
        self, const float* margin, const float* delta, int64_t start, int64_t n, double total,
        double rate, int objective
    ) noexcept nogil
    cdef void take_margins(
        self, const Plane* plane, const int64_t* at, int64_t n, float* out
    ) noexcept nogil
    cdef void clear_sides(self) noexcept nogil
    cdef void add_to_sides(self, const float* margin, int64_t first, int64_t n) noexcept nogil
    cdef void settle_sides(self) noexcept nogil
    cdef void weigh_sides(self) noexcept nogil
    cdef double batch_loss(
        self, const float* margin, const float* delta, const float* weight, int64_t n,
        int objective
    ) noexcept nogil
    cdef void set_leaves(self) noexcept nogil
    cdef void set_losses(self, int64_t first, int64_t last) noexcept nogil
    cdef bint remember(self) noexcept nogil
    cdef bint accept(self, const Split* axis, Split* split) except -1 nogil
    cdef bint go_back(self, const Split* axis, Split* split) noexcept nogil
    cdef void lay_out(self, const Plane* plane) noexcept nogil
    cdef bint holds_out(self, const Split* axis) noexcept nogil
    cdef double held_loss(self) noexcept nogil
