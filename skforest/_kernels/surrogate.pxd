# Oblique splits by the convex-concave bound.

from libc.stdint cimport int32_t, int64_t

from .node_rows cimport NodeRows
from .search cimport SearchSplitter
from .split cimport Split
from .stump_leaves cimport StumpLeaves


cdef struct Plane:
    # A hyperplane over the rows as they are read: a row goes right where w . z > bias.
    float* w
    double bias
    double score               # of its split of the training rows


cdef class StumpSplitter(SearchSplitter):
    # parameters
    cdef int objective
    cdef double nu
    cdef double learning_rate
    cdef double momentum
    cdef int32_t batch_size
    cdef int64_t n_visits
    cdef int32_t max_epochs
    cdef double smoothing
    cdef double row_norm
    cdef double holdout
    cdef bint old_signs
    cdef bint keep_last
    cdef bint gradient_leaves

    # the node: the training rows first, then those held out
    cdef int32_t* order        # number of each row in the node
    cdef int64_t n_train
    cdef NodeRows rows
    cdef StumpLeaves leaves

    # the training of one stump
    cdef Plane plane
    cdef Plane best_plane
    cdef int64_t first         # position of the first cut's feature in the rows
    cdef float* margin         # of each row, when all were last evaluated
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
    cdef double bias_velocity
    cdef float* direction      # the hyperplane in the features of the table
    cdef float threshold
    cdef bint is_best_projected  # do column, direction and threshold belong to best_plane?

    cdef void load_targets(self) noexcept nogil
    cdef bint load_rows(self) noexcept nogil
    cdef void init_plane(self, const Split* axis, double length) noexcept nogil
    cdef int optimise(self, const Split* axis) except -1 nogil
    cdef void measure_plane(self) noexcept nogil
    cdef void measure_projection(self) noexcept nogil
    cdef double whole_step(self, double rate, int objective) noexcept nogil
    cdef double length_within_reach(self) noexcept nogil
    cdef bint has_rows_on_wrong_side(self) noexcept nogil
    cdef double epoch(self, double rate, int objective) noexcept nogil
    cdef const float* join_ends(
        self, const float* end, const float* begin, int64_t tail, int64_t size, float* out
    ) noexcept nogil
    cdef void step(
        self, const int64_t* at, const float* margin, const float* branch, const float* delta,
        const float* weight, int64_t n, double total, double rate, int objective
    ) noexcept nogil
    cdef double batch_loss(
        self, const float* margin, const float* delta, const float* weight, int64_t n,
        int objective
    ) noexcept nogil
    cdef bint remember(self) noexcept nogil
    cdef bint accept(self, const Split* axis, Split* split) except -1 nogil
    cdef bint keep_axis(self, const Split* axis, Split* split) noexcept nogil
    cdef void project_trained(self, const Plane* plane) noexcept nogil
    cdef bint is_better_on_holdout(self, const Split* axis) noexcept nogil
    cdef double holdout_loss(self) noexcept nogil
