# Search of a split among random directions.

from libc.stdint cimport int32_t, int64_t, uint64_t

from ..base.direction cimport Unfolded
from ..base.memory cimport Buffer, Scratch
from .projection cimport Candidate, Sampler
from .sample_columns cimport SampleColumns
from .split cimport NodeSplitter, Sample, Split


cdef struct Cut:
    # The best cut of a column so far.
    double score
    bint is_exact
    float threshold          # set if the cut is exact
    float low                # otherwise: smallest value of the column,
    float scale              # bins per unit,
    int32_t bin              # and last bin of the left side


cdef class SearchSplitter(NodeSplitter):
    # parameters
    cdef Sampler sampler
    cdef int32_t n_candidates
    cdef bint exact
    cdef bint zooms
    cdef int32_t n_bins
    cdef int64_t max_search_samples
    cdef int64_t min_samples_leaf
    cdef double min_weight_leaf
    cdef bint may_overflow
    cdef double largest               # at least the absolute value of every feature

    cdef Sampler features             # draws single features if no candidate varies
    cdef Unfolded unfolded            # the candidate, unfolded
    cdef Candidate candidate
    cdef Candidate best
    cdef Sample subset                # random rows of a large node
    cdef bint subset_is_pure
    cdef bint is_sparse               # the table is a CSR matrix
    cdef SampleColumns columns        # columns of the searched rows of a CSR matrix

    # scratch for n_searched rows
    cdef Scratch search_scratch
    cdef int64_t n_searched
    cdef float* candidate_column
    cdef int32_t* base                # first cell of each row's class in the histogram
    cdef uint64_t* key
    cdef uint64_t* key_spare
    cdef double* right_score          # score of the sorted rows after each row
    cdef double* right_weight

    # other scratch
    cdef int32_t* cell
    cdef double* histogram            # (n_present, n_bins)
    cdef double* bin_weight
    cdef double* bin_count
    cdef double* bin_left
    cdef double* bin_score

    # directions of the splits found
    cdef Buffer box_corner
    cdef Buffer box_other
    cdef Buffer box_size
    cdef Buffer box_subset
    cdef Buffer sparse_start
    cdef Buffer sparse_feature
    cdef Buffer sparse_weight
    cdef Buffer dense

    cdef int reserve_searched(self, int64_t n) except -1 nogil
    cdef void draw_subset(self) noexcept nogil
    cdef bint search_sample(self, Sample* sample, Split* split) except -1 nogil
    cdef bint try_candidate(self, Sample* sample, Cut* cut) noexcept nogil
    cdef bint cut_histogram(self, Sample* sample, float low, float high, Cut* cut) noexcept nogil
    cdef int32_t add_heavy_bins(
        self, const Sample* sample, float* ends, int32_t n, int32_t n_ranges
    ) noexcept nogil
    cdef bint cut_bins(self, Sample* sample, float low, float high, Cut* cut) noexcept nogil
    cdef void score_bins(self, Sample* sample, float low, float scale) noexcept nogil
    cdef void forbid_small_children(self, const Sample* sample) noexcept nogil
    cdef bint cut_sorted(self, Sample* sample, Cut* cut) noexcept nogil
    cdef void score_right_sides(self, Sample* sample) noexcept nogil
    cdef void clear_side(self) noexcept nogil
    cdef double add_to_side(self, const Sample* sample, int64_t at, double score) noexcept nogil
    cdef bint are_children_large(self, const Split* split) noexcept nogil
    cdef bint finalize_split(self, const Cut* cut, Split* split) except -1 nogil
    cdef bint accept_plane(
        self, const float* direction, float threshold, double min_gain, Split* split
    ) except -1 nogil
    cdef void project_best(self) noexcept nogil
    cdef void project_plane(self, const float* direction) noexcept nogil
    cdef int32_t store_plane(self, const float* direction) except -1 nogil
    cdef int32_t store_best(self) except -1 nogil
