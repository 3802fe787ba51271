# Rows in the order of the nodes of a tree.

from libc.stdint cimport int32_t, int64_t, uint8_t

from .bins cimport BinnedDirections


cdef struct Segment:
    # Rows of a node that is split: in the sample, or outside of it.
    int64_t start             # position of the first row
    int64_t n
    int64_t before            # number of rows in the segments before
    int32_t column            # of the split
    int32_t bin               # last bin on the left


cdef class RowPartition:
    cdef const uint8_t[:, ::1] code    # bins of features
    cdef BinnedDirections directions
    cdef int32_t[::1] row              # (n_rows,)
    cdef int32_t[::1] copy
    cdef uint8_t[::1] goes_right
    cdef object segment_bytes
    cdef Segment* segments
    cdef int32_t n_segments
    cdef readonly int64_t n_routed     # rows of all segments

    cdef int start_splits(self, int32_t n) except -1
    cdef void add(self, int64_t start, int64_t end, int32_t column, int32_t bin) noexcept
    cdef int64_t n_left_in(self, const Segment* segment, int64_t n) noexcept nogil
    cdef int64_t n_left(self, int32_t place) noexcept nogil
    cdef void keep(self, int32_t place) noexcept nogil
