# The rows and the leaves of a stump: a hyperplane between two leaves that splits one node.

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

from .direction cimport Table
from .memory cimport Scratch
from .row_blocks cimport RowBlocks

cdef enum:
    # Chosen without a stored measurement.
    PATIENCE = 3            # evaluations without progress before a learning rate is halved
    LANES = 16              # packed rows are padded to a multiple of this many numbers
    BLOCK = 256             # rows summed in float32, which is exact enough for a mean

cdef enum Objective:
    CO2 = 0             # the convex-concave bound
    SOFT = 1            # the expected loss of a sigmoid split
    MIXED = 2           # either, at random for each node


cdef struct Plane:
    # A hyperplane over the rows as they are read (w . z > bias goes right), and its training.
    float* w
    double bias
    double score               # score of its split of the training rows
    float* velocity
    double bias_velocity
    float* gradient            # 0 between two steps
    double momentum
    double nu                  # bound of |w|^2 + bias^2


cdef struct Rate:
    # A learning rate that is halved when the loss no longer decreases.
    double value
    double smallest
    double loss                # the last one that counted as progress
    int32_t n_stalled          # evaluations without progress


cdef inline Rate start_rate(double value) noexcept nogil:
    return Rate(value, value / 50, INFINITY, 0)


cdef inline bint update_rate(Rate* rate, double loss) noexcept nogil:
    """Halve the rate after PATIENCE evaluations without progress; False if it is too small."""
    rate.n_stalled += 1
    if loss < 0.999 * rate.loss:
        rate.loss = loss
        rate.n_stalled = 0
    elif rate.n_stalled == PATIENCE:
        rate.n_stalled = 0
        rate.value /= 2
        return rate.value >= rate.smallest
    return True


cdef double node_moments(
    RowBlocks blocks, const int64_t* at, const float* weight, int64_t n, float* mean,
    int32_t* seen, float* distance, float* sum_
) noexcept nogil
cdef int64_t padded_length(int64_t n) noexcept nogil
cdef void pack_rows(
    const float* table, int64_t* at, int64_t n, const int32_t* features, int64_t n_groups,
    int64_t n_single, const float* mean, float scale, float* out
) noexcept nogil


cdef class NodeRows:
    cdef RowBlocks blocks
    cdef int32_t n_features    # number of features read; fewer than all only in a CSR matrix
    cdef double row_norm

    # The rows: x in the node is data[at[i]] - mean, times scale.
    cdef const float* data
    cdef int64_t* at           # where each row starts; set by the caller before `load`
    cdef int64_t p             # numbers of a row
    cdef float* mean           # 0 if rows are packed
    cdef double scale          # 1 if rows are packed
    cdef bint is_packed
    cdef bint in_groups        # features are packed in groups of SKF_GROUP

    # The transformation of the features that are read.
    cdef float* node_mean
    cdef double node_scale

    cdef int32_t* varies_bits  # of each feature; see `varies`
    cdef int32_t* group        # first features of groups that vary, then single features
    cdef int32_t n_groups
    cdef int32_t* kept         # features of packed rows
    cdef int32_t n_kept
    cdef float* own_rows

    cdef int reserve(
        self, Scratch scratch, const Table* table, int64_t n_rows, double row_norm, bint in_groups
    ) except -1
    cdef Plane plane(self, Scratch scratch, double momentum, double nu) except *
    cdef bint load(
        self, const float* weight, int64_t n, int32_t needed, float* distance, float* sums
    ) noexcept nogil
    cdef void pack(self, int64_t n) noexcept nogil
    cdef void keep_features(self) noexcept nogil
    cdef bint varies(self, int64_t feature) noexcept nogil
    cdef int64_t position(self, int32_t feature) noexcept nogil
    cdef float mean_of(self, int32_t feature) noexcept nogil
    cdef void margins(
        self, const float* w, double bias, const int64_t* at, int64_t n, float* out
    ) noexcept nogil
    cdef void spreads(self, const float* weight, int64_t n, float* out) noexcept nogil
    cdef void step(
        self, Plane* plane, const int64_t* at, const float* slope, int64_t n, double shift,
        double total, double rate
    ) noexcept nogil
    cdef double unpack(self, const float* w, double bias, float* direction) noexcept nogil


cdef class StumpLeaves:
    cdef bint is_own           # an instance of `OwnLeaves`, with a loss of the user
    cdef const float* margin   # for `OwnLeaves`: last margins of all training rows
    cdef bint is_class
    cdef int32_t n_outputs     # classes, or columns of the target
    cdef int32_t n_present     # classes present in the node, or n_outputs
    cdef double smoothing
    cdef double momentum

    # The rows of the node, the training rows first.
    cdef int64_t n_train
    cdef float* weight         # relative to the mean weight
    cdef int32_t* label
    cdef double* target        # (n, n_outputs)
    cdef double train_weight
    cdef double loss_scale     # 1 / variance of the node

    # Sums over the training rows on either side.
    cdef double* left_sum      # (2, n_outputs): left side, then right side
    cdef double* right_sum
    cdef double left_weight
    cdef double right_weight
    cdef int64_t n_left
    cdef double* last_sums     # (2, n_outputs): sums before the last call of `finish_sums`
    cdef bint has_last_sums
    cdef bint has_changed      # whether sums have changed since then

    # Leaf values, and the losses of the rows at them.
    cdef double* left          # log shares of the classes, or means
    cdef double* right
    cdef double* velocity      # (2, n_outputs)
    cdef float* base           # loss of each row at the left leaf
    cdef float* delta          # loss at the right leaf minus base
    cdef double base_loss      # weighted sum of base
    cdef float* label_base     # base and delta of each class
    cdef float* label_delta

    cdef int reserve(
        self, Scratch scratch, int64_t n_rows, int32_t n_outputs, bint is_class
    ) except -1
    cdef void start_node(
        self, int64_t n, int64_t n_train, int32_t n_present, const int32_t* present
    ) noexcept nogil
    cdef void clear_sums(self) noexcept nogil
    cdef void add_rows(self, const float* margin, int64_t first, int64_t n) noexcept nogil
    cdef void finish_sums(self) noexcept nogil
    cdef void sum_sides(self, const float* margin) noexcept nogil
    cdef void fit(self) noexcept nogil
    cdef void set_losses(self, int64_t first, int64_t last) noexcept nogil
    cdef void step(
        self, const float* margin, const float* delta, int64_t start, int64_t n, double total,
        double rate, int objective
    ) noexcept nogil
    cdef void sum_losses(self, int64_t first, int64_t last) noexcept nogil
    cdef double score(self, bint fits) noexcept nogil
    cdef int check(self) except -1 nogil
