# The rows of a node as descent reads them: centred, scaled, and without constant features.

from libc.stdint cimport int32_t, int64_t

from .direction cimport Table
from .memory cimport Scratch

cdef enum:
    LANES = 16              # packed rows are padded to a multiple of this many numbers


cdef int64_t padded_length(int64_t n) noexcept nogil
cdef void pack_rows(
    const float* table, int64_t* at, int64_t n, const int32_t* features, int64_t n_groups,
    int64_t n_single, const float* mean, float scale, float* out
) noexcept nogil


cdef class NodeRows:
    cdef const float* table
    cdef int32_t n_features
    cdef double row_norm

    # The rows: x in the node is data[at[i]] - mean, times scale.
    cdef const float* data
    cdef int64_t* at           # where each row starts; set by the caller before `load`
    cdef int64_t p             # numbers of a row
    cdef float* mean           # 0 where rows are packed
    cdef double scale          # 1 where rows are packed
    cdef bint is_packed

    # The transformation, over the features of the table.
    cdef float* node_mean
    cdef double node_scale

    cdef int32_t* varies_bits  # of each feature; see `varies`
    cdef int32_t* group        # first features of groups of which one varies, then single features
    cdef int32_t n_groups
    cdef int32_t* kept         # features of packed rows
    cdef int32_t n_kept
    cdef float* own_rows

    cdef int reserve(
        self, Scratch scratch, const Table* table, int64_t n_rows, double row_norm
    ) except -1
    cdef bint load(
        self, const float* weight, int64_t n, float* distance, float* sums
    ) noexcept nogil
    cdef void keep_features(self) noexcept nogil
    cdef bint varies(self, int64_t feature) noexcept nogil
    cdef int64_t position(self, int32_t feature) noexcept nogil
    cdef void margins(
        self, const float* w, double bias, const int64_t* at, int64_t n, float* out
    ) noexcept nogil
    cdef double unpack(self, const float* w, double bias, float* direction) noexcept nogil
