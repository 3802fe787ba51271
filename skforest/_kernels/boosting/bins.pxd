# Directions, drawn and binned for every tree.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t

from ..base.direction cimport Box, Grid, Table, Unfolded
from ..base.memory cimport Scratch
from ..search.projection cimport BoxSampler, Candidate
from ..base.random cimport Random


cdef class BinnedDirections:
    cdef object X                      # keeps the rows alive
    cdef Table table
    cdef int64_t n_rows
    cdef bint is_sparse
    # X by columns: (n_features, n_rows), or the arrays of a CSC matrix.
    cdef const float[:, ::1] column
    cdef const int32_t[::1] entry_start
    cdef const int32_t[::1] entry_row
    cdef const float[::1] entry
    cdef Scratch scratch               # keeps the memory of the pointers alive
    cdef Unfolded unfolded
    cdef int32_t n_features
    cdef readonly int32_t n_directions
    cdef int32_t min_terms
    cdef int32_t max_terms
    cdef int32_t max_bins
    cdef const float[::1] unit
    cdef bint is_bounded               # whether there are monotonic constraints
    cdef const int8_t[::1] monotonic   # sign of each constrained feature, otherwise 0
    cdef int32_t[::1] sign             # 1 if a direction has constrained features, otherwise 0
    cdef BoxSampler boxes              # None: directions are mixtures of a few features
    cdef Candidate candidate           # the last box drawn
    cdef int32_t[::1] box_corner
    cdef int32_t[::1] box_other
    cdef int32_t[:, ::1] box_size
    cdef tuple no_boxes                # such arrays without boxes
    cdef Table no_table                # used to unfold boxes to terms
    cdef float[::1] total              # (n_features,), 0 between draws
    cdef int32_t[::1] n_terms
    cdef int32_t[:, ::1] term_feature
    cdef float[:, ::1] term_weight
    cdef uint8_t[:, ::1] code          # bins of the rows
    cdef float[:, ::1] cut             # limits of the bins
    cdef int32_t[::1] n_cuts           # 0: the direction has one bin and is not used
    cdef uint8_t[:, ::1] bin_of_cell   # (n_directions, N_CELLS)
    cdef float[::1] low                # left end of the first cell
    cdef float[::1] per_cell           # cells per unit
    cdef uint8_t[::1] is_fine          # a cell is larger than rounding errors
    cdef Grid grid
    cdef int32_t capacity              # largest number of terms

    cdef void draw(self, Random* random, const double[::1] chance) noexcept nogil
    cdef void draw_box(self, Random* random, int32_t d) noexcept nogil
    cdef void set_box(self, int32_t d, Box* box) noexcept nogil
    cdef int32_t draw_feature(
        self, const double[::1] chance, int64_t first, int64_t end, double at
    ) noexcept nogil
    cdef int find_bins(self, Random* random, const int32_t[::1] row) except -1
    cdef void write_bins(self, int64_t first, int64_t last) noexcept nogil
    cdef void mix_columns(self, int32_t d, int64_t first, int64_t n, float* out) noexcept nogil
    cdef void make_bins(self, int32_t d, const float[::1] sample) noexcept nogil
    cdef void unfold(self, Unfolded* unfolded, int32_t d) noexcept nogil
    cdef int reserve(self, Scratch scratch, Unfolded* unfolded) except -1
    cdef void route_column(
        self, const uint8_t* code, int32_t bin, const int32_t* row, int64_t n, uint8_t* is_above
    ) noexcept nogil
    cdef void route(
        self, int32_t d, int32_t bin, Unfolded* unfolded, const int32_t* row, int64_t n,
        uint8_t* is_above
    ) noexcept nogil
