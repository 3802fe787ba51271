# Tables, directions and how a direction is projected.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint64_t

from .memory cimport Scratch

cdef enum:
    MAX_AXES = 8      # rank of feature_shape

cdef enum DType:
    UINT8 = 0
    FLOAT32 = 1
    NO_DTYPE = 2      # no table: directions are unfolded to positions and weights
    CSR = 3           # float32; the entries that are not 0, row by row

cdef extern from "base/simd.h" nogil:
    enum:
        ONE "SKF_ONE"              # a single feature
        WEIGHTED "SKF_WEIGHTED"    # positions and weights
        WORDS "SKF_WORDS"          # sums of neighbours, eight bytes or four floats at a time
        DENSE "SKF_DENSE"          # one weight for every feature

    ctypedef struct Unfolded "skf_direction":
        int32_t kind
        int32_t n
        int32_t n_plus
        int32_t* position
        float* weight
        uint64_t* mask
        int32_t* along
        const float* dense


cdef struct Table:
    # Samples as rows, features as columns, C order. With CSR, `data` has the entries, `column`
    # their features, increasing in every row, and row i begins at row_start[i].
    const void* data
    const int32_t* row_start
    const int32_t* column
    DType dtype
    int64_t n_samples
    int32_t n_features


cdef struct Grid:
    # The array of shape `feature_shape` that the features of a row form.
    int32_t n_axes
    int32_t length[MAX_AXES]
    int64_t stride[MAX_AXES]       # in features
    bint wrap[MAX_AXES]
    bint unordered[MAX_AXES]
    int32_t subset_start[MAX_AXES]  # first byte of an unordered axis in a box's subset bits
    int32_t n_subset_bytes
    bint plain                     # no axis wraps or is unordered


cdef struct Box:
    # A block of the grid has the entries corner .. corner + size - 1 along every axis, modulo the
    # length if the axis wraps; along an unordered axis, the entries whose bit is set.
    int32_t corner                 # flat index of the first entry
    int32_t other                  # corner of an equal box that is subtracted, or -1
    const int32_t* size            # one per axis
    const uint8_t* subset          # bits of the unordered axes, or NULL


cdef struct Directions:
    # The directions of a forest. Codes 0 .. n_features - 1 are the features; codes of boxes,
    # sparse rows and dense rows follow.
    int32_t n_features
    int32_t n_boxes
    int32_t n_sparse
    int32_t n_dense
    Grid grid
    const int32_t* box_corner
    const int32_t* box_other
    const int32_t* box_size        # (n_boxes, n_axes)
    const uint8_t* box_subset      # (n_boxes, n_subset_bytes)
    const int64_t* sparse_start
    const int32_t* sparse_feature
    const float* sparse_weight
    const float* dense             # (n_dense, n_features)
    const uint16_t* sparse_half    # half precision: these replace sparse_weight and dense
    const uint16_t* dense_half


cdef Unfolded reserve_unfolded(Scratch scratch, int32_t capacity, const Grid* grid) except *
cdef void unfold_feature(Unfolded* unfolded, int32_t feature) noexcept nogil
cdef void unfold_sparse(
    Unfolded* unfolded, const int32_t* feature, const float* weight, int32_t n
) noexcept nogil
cdef void unfold_box(
    Unfolded* unfolded, const Grid* grid, const Box* box, const Table* table
) noexcept nogil
cdef void unfold(
    Unfolded* unfolded, const Directions* directions, int32_t code, const Table* table
) noexcept nogil
cdef float entry_of(const Table* table, int64_t row, int32_t feature) noexcept nogil
cdef void project(
    const Unfolded* unfolded, const Table* table, const int64_t* offset, int64_t n, float* out
) noexcept nogil
cdef Table as_table(X) except *
cdef Grid as_grid(shape, wrap, unordered) except *
cdef Directions as_directions(arrays, int32_t n_features, Grid grid) except *
cdef int64_t box_volume(const Grid* grid, const int32_t* size) noexcept nogil
