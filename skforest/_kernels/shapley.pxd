# What a walk over a tree keeps, and the class that explains rows.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from .direction cimport Directions, Unfolded
from .memory cimport Scratch

cdef enum:
    LEFT = 0
    RIGHT = 1
    BRANCH = 2           # it depends on an undecided player
    GIVE_UP = 3          # it depends on too many

cdef enum:               # results of `divide`
    EXACT = 0
    TOO_MANY = 1         # cubes: to be sampled
    TOO_WIDE = 2         # to be walked

cdef enum:
    MOST_BITS = 64       # players of a pair that are bits of a word
    MOST_TABLED = 5      # SKF_TABLED
    ROWS_TABLED = 104    # SKF_ROWS_TABLED

cdef extern from "cubes.h" nogil:
    ctypedef struct Cube "skf_cube":
        uint64_t x
        uint64_t z
    ctypedef struct Split "skf_split":
        uint64_t right
        uint64_t player[5]
        int n
    ctypedef struct Division "skf_division":
        Cube* side[2]
        int64_t n[2]
    void skf_add_change(double, double, const float*, double*)
    void skf_tabulate(const double*, const double*, int, uint64_t*, double*)
    void skf_tabulate_range(const double*, const double*, double, uint64_t*)
    uint64_t skf_add_matters(uint64_t, int)
    void skf_fill_split(uint64_t, const int32_t*, int, Split*)
    int skf_divide_by_sums(
        const double*, const uint64_t*, int, double, double, const Cube*, int64_t, int64_t,
        Division*
    )
    void skf_divide(const Split*, const Cube*, int64_t, Division*)
    void skf_add_cubes(
        const Cube*, int64_t, const double*, int, const uint64_t*, int, const double*, int, double*
    )

cdef enum:
    MOST_DECIDED = 63    # players that a walk decides at the same time


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
    int32_t player
    int32_t n_players
    int32_t[5] players   # the first ones


cdef struct Change:
    double size          # what the projection changes when the player is taken from x
    int32_t player


cdef struct Visit:
    int64_t pair         # for which this holds
    double gap           # projection of z minus the threshold
    int32_t n            # number of players that change the projection


cdef struct Decision:
    int32_t player
    int32_t from_x       # where the walk proceeds with the player from x, and from z: a child of
    int32_t from_z       # the node that depends on it, or this node


cdef struct List:
    const Cube* cube
    int64_t n
    Cube* end[2]         # where lists of the sides of its splits may be written
    int32_t node


cdef class ShapleyTrees:
    cdef Scratch scratch, of_tree         # own the arrays of the forest and of the tree
    cdef object arrays                    # the pointers of `directions` point into them
    cdef Directions directions
    cdef Unfolded unfolded
    cdef const float[:, ::1] X, Z
    cdef const int32_t[::1] player
    cdef int32_t n_outputs
    cdef const double[:, ::1] values, slopes
    cdef const int64_t[::1] slope_start
    cdef const int32_t[::1] slope_feature
    cdef bint has_slopes
    cdef int32_t max_exact
    cdef int64_t max_branches, n_pairs
    cdef uint64_t seed
    cdef double[:, ::1] share             # share[a, b] = (a - 1)! b! / (a + b)!
    # The tree.
    cdef int64_t n_splits
    cdef Node* nodes
    cdef Term* terms
    cdef double* projections              # of the background rows, by split
    # The pair of rows.
    cdef const float* x
    cdef const float* z
    cdef const double* of_z               # projections of z
    cdef int64_t pair                     # its number
    cdef double* open                     # of each player: 1 while it is undecided, else 0
    cdef double* taken                    # 1 if it is from x, else 0
    cdef double* part                     # values of the players in `touched`
    cdef int64_t* touched_by              # last pair that depends on a player
    cdef int32_t* touched
    cdef int32_t n_touched
    # The lists of cubes.
    cdef bint is_oblique                  # some direction of the tree has several features
    cdef const float[:, ::1] columns      # of Z, and zeros
    cdef int64_t n_rows                   # their number
    cdef int64_t first, row               # z is this row of the block that starts with that one
    cdef int64_t block                    # number of the block, of all pairs of x and a block
    cdef uint64_t* tables                 # of the splits for the rows of the block
    cdef int64_t* tabled_for              # block for which the table of a split is made
    cdef uint64_t[64] bit                 # 1 << p
    cdef int32_t* bit_of                  # number of a player in `touched`
    cdef double* of_bit                   # values of the players in `touched`
    cdef int64_t most_cubes               # that may reach leaves
    cdef int64_t n_cubes                  # size of each of the arrays
    cdef Cube* cubes[2]                   # the lists of the left sides, and of the right sides
    cdef List* lists                      # those that wait
    # The walk.
    cdef Change* changes                  # those of a node start at its first term
    cdef Visit* visits                    # of every node
    cdef Decision* decisions              # on the way to the current node
    cdef int32_t n_decided, n_from_x
    cdef double* sums                     # over leaves, for players from x and for players from z
    cdef double* before                   # these sums where the last player was decided
    # The permutations.
    cdef int32_t* order
    cdef double* total                    # sums over pairs of permutations
    cdef double* squares
    cdef double* leaf_value
    cdef double* next_value
    cdef int32_t* path                    # nodes from the root to a leaf,
    cdef int32_t* side                    # the side to which each sends the mixture,
    cdef double* path_value               # and its projections
    cdef float* mixture

    cdef void project_background(self, const Node* node, int64_t split) noexcept nogil
    cdef void count_players(self, Node* node) noexcept nogil
    cdef void tabulate(self, const Node* node, int64_t number) noexcept nogil
    cdef void correct(
        self, const Node* node, double gap, const double* change, int32_t row, uint64_t* right
    ) noexcept nogil
    cdef int32_t divide(self) noexcept nogil
    cdef int32_t view(self, const Node* node, Split* split) noexcept nogil
    cdef bint divide_wide(
        self, const Node* node, const Cube* cube, int64_t n_cubes, Division* found
    ) noexcept nogil
    cdef double rounded(
        self, const Node* node, const int32_t* player, int32_t n, int32_t set
    ) noexcept nogil
    cdef uint64_t bit_for(self, int32_t player) noexcept nogil
    cdef void add_bits(self, double* out, double scale) noexcept nogil
    cdef bint walk(self) noexcept nogil
    cdef void touch(self, int32_t player) noexcept nogil
    cdef int32_t find_side(self, int32_t number, Decision* decision) noexcept nogil
    cdef int32_t find_changes(self, const Node* node) noexcept nogil
    cdef void visit(self, const Node* node, Visit* visit) noexcept nogil
    cdef int32_t exact_side(self, int32_t number, Decision* decision) noexcept nogil
    cdef int32_t predicted_side(self, const Node* node) noexcept nogil
    cdef void add_leaf(self, int64_t row) noexcept nogil
    cdef void evaluate_leaf(self, int64_t row, double* value) noexcept nogil
    cdef void add_slopes(self, int64_t row, int32_t a, int32_t b) noexcept nogil
    cdef void add_part(self, double* out, double scale) noexcept nogil
    cdef void sample(self, uint64_t seed) noexcept nogil
    cdef void follow(self) noexcept nogil
    cdef int64_t descend(self, int32_t node, int32_t level, int32_t* depth) noexcept nogil
    cdef int32_t side_of(self, const Node* node, double value) noexcept nogil
    cdef bint update(self, const Node* node, int32_t player, double* value) noexcept nogil
    cdef void add_sample(self, double* out, double* variance, double scale) noexcept nogil
