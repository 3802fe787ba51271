# What the division of a tree keeps, and the class that explains rows.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from ..base.direction cimport Directions, Unfolded
from ..base.memory cimport Scratch

cdef enum:
    LEFT = 0
    RIGHT = 1
    BRANCH = 2           # it depends on an undecided player
    GIVE_UP = 3          # it depends on too many

cdef enum:
    MOST_BITS = 64       # players of a path that are bits of a word
    MOST_TABLED = 6      # SKF_TABLED
    N_KEPT = 1040        # SKF_KEPT
    ROWS_TABLED = 112    # SKF_ROWS_TABLED

cdef extern from "explain/cubes.h" nogil:
    ctypedef struct Cube "skf_cube":
        uint64_t x
        uint64_t z
        int64_t row
    ctypedef struct Division "skf_division":
        Cube* side[2]
        int64_t n[2]
        int64_t space[2]
    ctypedef struct Pieces "skf_pieces":
        pass
    int skf_count_bits(uint64_t)
    void skf_add_change(float, float, const float*, int, float*)
    void skf_tabulate(const float*, const float*, int, int, uint64_t*, float*)
    void skf_compare(const float*, float, int, int, uint64_t*)
    void skf_compare_range(const float*, const float*, float, int, uint64_t*)
    bint skf_divide_by_sums(
        const double*, const uint64_t*, int, double, double, Cube, Division*, Cube*, int32_t*, int
    )
    bint skf_divide(
        const uint64_t*, const uint64_t*, int, const Cube*, int64_t, Pieces*, Division*
    )
    void skf_weigh_cubes(const Cube*, int64_t, const double*, int, const uint64_t*, int, double*)


cdef struct Term:
    double weight
    int32_t feature
    int32_t player


cdef struct Node:
    double threshold
    double margin        # projections this close to the threshold are computed as in prediction
    int64_t start        # terms of the direction, by player
    int64_t end
    int32_t left         # left child, or -1 - row of values
    int32_t code
    int32_t feature      # -1: the direction has several terms
    int32_t n_players
    int32_t[6] players   # the first ones


cdef struct Change:
    double size          # what the projection changes when the player is taken from x
    int32_t player


cdef struct List:
    const Cube* cube
    int64_t n
    Cube* end[2]         # where lists of the sides of its splits may be written
    int32_t node
    int32_t n_bits       # players that its cubes may have decided


cdef class ShapleyTrees:
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
    cdef int32_t max_exact
    cdef int64_t most_cubes, n_pairs
    cdef uint64_t seed
    cdef double[:, ::1] share             # share[a, b] = (a - 1)! b! / (a + b)!
    # The tree. Its players are numbered, and all arrays below are by this number.
    cdef int64_t n_splits
    cdef Node* nodes
    cdef Term* terms
    cdef double* projections              # of the background rows, by split
    cdef int32_t n_players
    cdef int32_t* players
    cdef int32_t* number_of               # of each player; -1 if the tree does not depend on it
    # The pair of rows.
    cdef const float* x
    cdef const float* z
    cdef double* taken                    # of each player: 1 if it is from x, else 0
    cdef double* part                     # values of the players
    cdef float* mixture
    cdef Change* changes
    # The lists of cubes.
    cdef const float[:, ::1] columns      # of Z, and zeros
    cdef int64_t n_rows                   # their number
    cdef int64_t first                    # row of the block
    cdef int64_t size                     # number of its rows
    cdef int64_t next_size                # of the next block
    cdef uint8_t* failed                  # whether rows are to be sampled
    cdef bint is_lost                     # some of them may have been added
    cdef uint64_t[112] right              # table of a split for the rows of the block
    cdef uint64_t[64] bit                 # 1 << p
    cdef int32_t* bit_of                  # number of the bit of a player
    cdef int32_t[64] player_of            # player of a bit
    cdef int32_t n_bits                   # in use on the path
    cdef int64_t n_cubes                  # size of each of the arrays
    cdef float* floats                    # for tables of splits
    cdef Pieces* kept                     # pieces of tables of splits
    cdef Cube* cubes[2]                   # the lists of the left sides, and of the right sides
    cdef List* lists                      # those that wait
    cdef double* from_x
    cdef double* from_z
    # The permutations.
    cdef const double* of_z               # projections of z
    cdef int64_t pair                     # number of the pair of rows
    cdef int64_t* touched_by              # last pair that depends on a player
    cdef int32_t* touched
    cdef int32_t n_touched
    cdef int32_t* order
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
    cdef void add_part(self, double* out, double scale) noexcept nogil
    cdef bint divide_block(self) noexcept nogil
    cdef bint divide(self) noexcept nogil
    cdef bint divide_list(
        self, const Node* node, const Cube* cube, int64_t n, Division* found
    ) noexcept nogil
    cdef bint divide_wide(
        self, const Node* node, const Cube* cube, int64_t n, Division* found
    ) noexcept nogil
    cdef int32_t side_of_cube(
        self, const Node* node, const Cube* cube, int32_t n_changes, double gap
    ) noexcept nogil
    cdef int32_t find_changes(self, const Node* node) noexcept nogil
    cdef void tabulate(self, const Node* node) noexcept nogil
    cdef void correct(self, const Node* node, int64_t row) noexcept nogil
    cdef int32_t predicted_side(self, const Node* node) noexcept nogil
    cdef int32_t predicted_side_of(self, const Node* node, const Cube* cube) noexcept nogil
    cdef uint64_t known_bit(self, int32_t player) noexcept nogil
    cdef uint64_t bit_for(self, int32_t player) noexcept nogil
    cdef void add_leaf(self, int64_t row, const Cube* cube, int64_t n) noexcept nogil
    cdef void add_linear(self, int64_t row, const Cube* cube) noexcept nogil
    cdef void sample(self, uint64_t seed) noexcept nogil
    cdef void follow(self) noexcept nogil
    cdef int64_t descend(self, int32_t node, int32_t level, int32_t* depth) noexcept nogil
    cdef int32_t side_of(self, const Node* node, double value) noexcept nogil
    cdef bint update(self, const Node* node, int32_t player, double* value) noexcept nogil
    cdef void touch(self, int32_t player) noexcept nogil
    cdef void evaluate_leaf(self, int64_t row, double* value) noexcept nogil
    cdef void add_sample(self, double* out, double* variance, double scale) noexcept nogil
