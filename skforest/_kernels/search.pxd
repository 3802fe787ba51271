# Searching among random directions.

from libc.stdint cimport int32_t, int64_t, uint64_t

from .buffer cimport Buffer
from .direction cimport Taps
from .projection cimport Candidate, Sampler
from .split cimport NodeSplitter, Sample, Split


cdef struct Best:
    double score
    bint exact
    float threshold          # exact
    float low                # histogram
    float scale
    int32_t cut


cdef class SearchSplitter(NodeSplitter):
    cdef Sampler sampler
    cdef Sampler features
    cdef Taps taps
    cdef Candidate trial
    cdef Candidate champion
    cdef bint exact
    cdef int32_t n_candidates
    cdef int32_t n_bins
    cdef int64_t max_search
    cdef int64_t min_leaf
    cdef double min_weight
    cdef bint may_overflow
    cdef Sample drawn
    cdef bint drawn_is_pure
    cdef float* trial_column
    cdef int32_t* base
    cdef int32_t* cell
    cdef uint64_t* key
    cdef uint64_t* key_spare
    cdef double* right_score          # of the sorted rows behind each
    cdef double* right_weight
    cdef double* histogram
    cdef double* bin_weight
    cdef double* bin_count
    cdef double* bin_left
    cdef double* bin_score
    cdef Buffer box_corner
    cdef Buffer box_other
    cdef Buffer box_size
    cdef Buffer box_subset
    cdef Buffer sparse_start
    cdef Buffer sparse_feature
    cdef Buffer sparse_weight
    cdef Buffer dense

    cdef void draw_rows(self) noexcept nogil
    cdef bint try_all(self, Sample* sample, Split* split) except -1 nogil
    cdef bint try_one(self, Sample* sample, Best* best) noexcept nogil
    cdef bint cut_histogram(self, Sample* sample, float low, float high, Best* best) noexcept nogil
    cdef bint cut_sorted(self, Sample* sample, Best* best) noexcept nogil
    cdef void clear_side(self) noexcept nogil
    cdef double add_to_side(self, const Sample* sample, int64_t at, double score) noexcept nogil
    cdef bint fits(self, const Split* split) noexcept nogil
    cdef bint settle(self, const Best* best, Split* split) except -1 nogil
    cdef bint take_plane(
        self, const float* direction, float threshold, double least_gain, Split* split
    ) except -1 nogil
    cdef int32_t store(self) except -1 nogil
