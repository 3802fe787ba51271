# The game of one tree for a pair of rows.

from libc.stdint cimport int32_t, int64_t, uint64_t

from ..base.direction cimport Directions, Unfolded
from ..base.memory cimport Scratch

cdef enum:
    LEFT = 0             # sides of a split
    RIGHT = 1

cdef enum:
    MOST_TABLED = 6      # SKF_TABLED: players of a split that has a table


cdef struct Term:
    double weight
    int32_t feature
    int32_t player


cdef struct Node:
    double threshold
    double margin        # closer projections to the threshold are computed as in prediction
    int64_t start        # terms of the direction, by player
    int64_t end
    int32_t left         # left child, or -1 - row of values
    int32_t code
    int32_t feature      # -1: the direction has several terms
    int32_t n_players
    int32_t[6] players   # the first ones


cdef struct Change:
    double size          # change of the projection when the player is taken from x
    int32_t player


cdef class TreeGame:
    cdef Scratch scratch, of_tree         # own the arrays of the forest and of the tree
    cdef object arrays                    # the pointers of `directions` point into them
    cdef Directions directions
    cdef Unfolded unfolded
    cdef const float[:, ::1] X, Z
    cdef const int32_t[::1] player
    cdef int32_t n_outputs, n_all_players
    cdef const double[:, ::1] values, slopes
    cdef const int64_t[::1] slope_start
    cdef const int32_t[::1] slope_feature
    cdef bint has_slopes
    cdef const float[:, ::1] columns      # of Z, and zeros
    cdef int64_t n_rows                   # their number
    # The tree. Its players are numbered, and this number is the index of all arrays below.
    cdef int64_t n_splits
    cdef Node* nodes
    cdef Term* terms
    cdef Change* changes                  # of the projection of a split
    cdef double* projections              # projections of the background rows, by split
    cdef int32_t n_players
    cdef int32_t* players
    cdef int32_t* number_of               # of each player; -1 if the tree does not depend on it
    # The pair of rows.
    cdef const float* x
    cdef const float* z
    cdef double* taken                    # for each player: 1 if it is from x, otherwise 0
    cdef float* mixture
    cdef double* part                     # values of the players
    # The permutations.
    cdef int64_t n_pairs
    cdef const double* of_z               # projections of z
    cdef int64_t pair                     # number of the pair of rows
    cdef int64_t* touched_by              # last pair that depends on a player
    cdef int32_t* touched
    cdef int32_t n_touched
    cdef int32_t* order
    cdef int32_t n_order
    cdef double* total                    # sums over pairs of permutations
    cdef double* squares
    cdef double* leaf_value
    cdef double* next_value
    cdef int32_t* path                    # nodes from the root to a leaf,
    cdef int32_t* side                    # the side to which each sends the mixture,
    cdef double* path_value               # and its projections

    cdef void number_players(
        self, const int32_t[::1] child, const int32_t[::1] feature
    ) noexcept nogil
    cdef void count_players(self, Node* node) noexcept nogil
    cdef void project_background(self, const Node* node, int64_t split) noexcept nogil
    cdef int32_t find_changes(self, const Node* node) noexcept nogil
    cdef int32_t predicted_side(self, const Node* node) noexcept nogil
    cdef void sample(self, uint64_t seed, int32_t fixed) noexcept nogil
    cdef void follow(self, double factor) noexcept nogil
    cdef int64_t descend(self, int32_t node, int32_t level, int32_t* depth) noexcept nogil
    cdef void touch(self, int32_t player) noexcept nogil
    cdef void evaluate_leaf(self, int64_t row, double* value) noexcept nogil
    cdef void add_sample(self, double* out, double* variance, double scale) noexcept nogil
