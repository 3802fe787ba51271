"""Interventional Shapley values of hard trees.

The players are the columns of X. For an explained row x and a background row z, the game is

    v(S) = response of the tree at the row with the features of S from x and the others from z

and the values of a row are the means over the background rows. They are found in one of two ways:

- exactly, from cubes: sets of mixtures that reach the same leaf, with a players from x, b players
  from z, and the others undecided. For each cube, a leaf of value u adds

      u (a - 1)! b! / (a + b)!  to each of the a,   -u a! (b - 1)! / (a + b)!  to each of the b.

  Players are decided only when a split needs it. `divide` takes a block of rows z at once: the
  list of all cubes that reach a node is divided by its split (cubes.h), with a table of the sides
  of the mixtures with each row z. A split with too many players for a table divides one cube after
  the other, from the range of the projections of its mixtures;
- if this would take too long, by pairs of a random permutation of the players and its reverse
  (game.pyx).

The interaction of two players is half the difference between the value of the one when the other
is always from x, and when it is always from z. A cube that contains the other player is in one of
these two games only, where it has one player less.
"""

cimport cython
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memset

import numpy as np

from ..base.memory cimport Scratch, allocate
from ..base.poll cimport poll
from ..base.random cimport hash_seed
from .game cimport LEFT, MOST_TABLED, RIGHT, Node, Term, TreeGame

cdef enum:
    BRANCH = 2           # a side that depends on an undecided player,
    GIVE_UP = 3          # or on too many

cdef enum:
    MOST_BITS = 64       # largest number of players of a path, the bits of a word
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


cdef struct List:
    const Cube* cube
    int64_t n
    Cube* end[2]         # space for lists of the sides of its split
    int32_t node
    int32_t n_bits       # number of players that its cubes may have decided


cdef void add_range(const float* change, int32_t n, float* low, float* high) noexcept nogil:
    """Extend the ranges of projections by the changes of a player."""
    cdef int32_t i
    for i in range(n):
        low[i] += min(change[i], <float>0)
        high[i] += max(change[i], <float>0)


@cython.final
cdef class ShapleyTrees(TreeGame):
    """Shapley values of rows X, with the background Z, for the trees of a forest.

    Rows and values are as in `TreeGame`. `n_pairs` pairs of permutations replace the cubes if a
    pair of rows has more than 2^max_exact of them, or if a split without a table has more than
    max_exact undecided players.

    With `has_pairs`, results are interactions: for each player, a block of the values of all
    others if this player is from x minus those if it is from z, divided by 2.
    """

    cdef int32_t max_exact
    cdef int64_t most_cubes
    cdef uint64_t seed
    cdef double[:, ::1] share             # share[a, b] = (a - 1)! b! / (a + b)!
    # The lists of cubes.
    cdef int64_t first                    # first row of the block
    cdef int64_t size                     # number of its rows
    cdef int64_t next_size                # size of the next block
    cdef uint8_t* failed                  # whether rows must be sampled
    cdef bint is_lost                     # some of these may have been added
    cdef bint has_pairs
    cdef Cube* others                     # cubes without a player
    cdef uint64_t[112] right              # table of a split for the rows of the block
    cdef uint64_t[64] bit                 # 1 << p
    cdef int32_t* bit_of                  # number of the bit of a player
    cdef int32_t[64] player_of            # player of a bit
    cdef int32_t n_bits                   # bits in use on the path
    cdef int64_t n_cubes                  # size of each of the arrays
    cdef float* floats                    # for tables of splits
    cdef Pieces* kept                     # pieces of tables of splits
    cdef Cube* cubes[2]                   # lists of left sides, and of right sides
    cdef List* lists                      # waiting lists
    cdef double* from_x
    cdef double* from_z

    def __init__(
        self, forest, X, Z, player, int64_t n_players, values, slopes, max_exact, n_pairs, seed,
        has_pairs=False
    ):
        cdef int64_t p, n = MOST_BITS + 2
        TreeGame.__init__(self, forest, X, Z, player, n_players, values, slopes, n_pairs)
        cdef Scratch scratch = self.scratch
        self.max_exact, self.seed, self.has_pairs = max_exact, seed, has_pairs
        self.most_cubes = 2**max_exact
        factorial = [1]
        for p in range(1, 2 * n):
            factorial.append(factorial[p - 1] * p)
        self.share = np.array([
            [factorial[a - 1] * factorial[b] / factorial[a + b] if a else 0 for b in range(n)]
            for a in range(n)
        ])
        allocate[double](scratch, self.n_outputs, [&self.from_x, &self.from_z, NULL])
        self.bit_of = scratch.ints(n_players)
        for p in range(MOST_BITS):
            self.bit[p] = <uint64_t>1 << p
        self.kept = <Pieces*>scratch.bytes_of(N_KEPT * <int64_t>sizeof(Pieces))
        # The arrays begin at the start of a cache line.
        self.floats = scratch.floats((MOST_TABLED + 3) * ROWS_TABLED + 16)
        self.floats += (-(<int64_t>self.floats) & 63) // <int64_t>sizeof(float)
        self.failed = <uint8_t*>scratch.bytes_of(ROWS_TABLED)
        self.n_cubes = 8 * self.most_cubes + 4096
        for p in range(2):
            self.cubes[p] = <Cube*>scratch.bytes_of(self.n_cubes * <int64_t>sizeof(Cube))
        if has_pairs:
            self.others = <Cube*>scratch.bytes_of(self.n_cubes * <int64_t>sizeof(Cube))

    def load(self, child, threshold, code, start, feature, weight, margin):
        """As `TreeGame.load`."""
        TreeGame.load(self, child, threshold, code, start, feature, weight, margin)
        cdef Scratch scratch = self.of_tree
        self.lists = <List*>scratch.bytes_of((self.n_splits + 2) * <int64_t>sizeof(List))
        self.next_size = ROWS_TABLED
        if self.has_pairs:
            self.part = scratch.doubles(self.n_blocks() * self.n_players * self.n_outputs)

    cdef int64_t n_blocks(self) noexcept nogil:
        return self.n_players if self.has_pairs else 1

    def explain(
        self, uint64_t tree, double scale, double[:, :, ::1] out, double[:, :, ::1] variance,
        const uint8_t[::1] stop
    ):
        """For all rows, out += scale * values and variance += scale^2 * their variance.

        Return the number of sampled pairs of rows.
        """
        cdef int64_t i, b, work = 0, n_sampled = 0
        cdef int64_t of_block = self.n_all_players * <int64_t>self.n_outputs
        cdef int64_t at
        cdef int32_t j
        cdef uint64_t seed, of_pair
        with nogil:
            for i in range(self.X.shape[0]):
                if poll(&stop[0], &work, 100 * self.Z.shape[0]):
                    break
                seed = hash_seed(hash_seed(self.seed, <uint64_t>i), tree)
                self.x = &self.X[i, 0]
                self.first = 0
                while self.first < self.Z.shape[0]:
                    self.size = min(self.next_size, self.Z.shape[0] - self.first)
                    if not self.divide_block():
                        # Fewer rows have fewer cubes.
                        self.next_size = max(self.size // 4, 1)
                        continue
                    self.add_part(&out[i, 0, 0], scale)
                    for b in range(self.size):
                        if self.failed[b]:
                            n_sampled += 1
                            self.z = &self.Z[self.first + b, 0]
                            self.of_z = self.projections + self.first + b
                            of_pair = hash_seed(seed, <uint64_t>(self.first + b))
                            if not self.has_pairs:
                                self.sample(of_pair, -1)
                                self.add_sample(&out[i, 0, 0], &variance[i, 0, 0], scale)
                            for j in range(self.n_players if self.has_pairs else 0):
                                self.sample(hash_seed(of_pair, <uint64_t>j), j)
                                at = self.players[j] * of_block
                                self.add_sample(
                                    &out[i, 0, 0] + at, &variance[i, 0, 0] + at, scale
                                )
                    self.first = self.first + self.size
                    self.next_size = min(2 * self.size, ROWS_TABLED)
        return n_sampled

    cdef void add_part(self, double* out, double scale) noexcept nogil:
        """Add the values of the players of the tree to those of the row."""
        cdef int32_t i, j, k
        cdef int64_t at
        cdef const double* part = self.part
        for j in range(<int32_t>self.n_blocks()):
            for i in range(self.n_players):
                at = self.players[j] * <int64_t>self.n_all_players if self.has_pairs else 0
                at = (at + self.players[i]) * self.n_outputs
                for k in range(self.n_outputs):
                    out[at + k] += scale * part[k]
                part += self.n_outputs

    # -------------------------------------------------------------------------- exactly, by cubes

    cdef bint divide_block(self) noexcept nogil:
        """Set `part` to the sums of the values over rows z, except for rows in `failed`.

        False if the rows have too many cubes; a single row fails instead.
        """
        cdef int64_t n_parts = self.n_blocks() * self.n_players * <int64_t>self.n_outputs
        memset(self.failed, 0, self.size)
        while True:
            memset(self.part, 0, n_parts * sizeof(double))
            self.is_lost = False
            if not self.divide():
                if self.size > 1:
                    return False
                memset(self.part, 0, n_parts * sizeof(double))
                self.failed[0] = True
                return True
            # Rows that failed after they were added are excluded in another pass.
            if not self.is_lost:
                return True

    cdef bint divide(self) noexcept nogil:
        """Add the leaves of all mixtures to `part`; False if there are too many.

        Lists of left sides and of right sides are in two arrays, used as stacks: lists at the end
        are divided first.
        """
        cdef Division found
        cdef Cube[112] root
        cdef List* top = self.lists - 1
        cdef const Cube* cube = root
        cdef const Node* node = self.nodes
        cdef int64_t n = 0, n_added = 0, i
        cdef int32_t side
        for i in range(self.size):
            if not self.failed[i]:
                root[n].x = root[n].z = 0
                root[n].row = i
                n += 1
        self.n_bits = 0
        found.side[0], found.side[1] = self.cubes[0], self.cubes[1]
        while True:
            if n == 0 or node.left < 0:
                if n:
                    self.add_leaf(-1 - <int64_t>node.left, cube, n)
                n_added += n
                if n_added > self.size * self.most_cubes:
                    return False
                if top < self.lists:
                    return True
                cube, n, node = top.cube, top.n, self.nodes + top.node
                found.side[0], found.side[1] = top.end[0], top.end[1]
                self.n_bits = top.n_bits
                top -= 1
                continue
            for side in range(2):
                found.n[side] = 0
                found.space[side] = self.n_cubes - (found.side[side] - self.cubes[side])
            if not self.divide_list(node, cube, n, &found):
                return False
            # The list of one side is divided first; the other one waits.
            side = found.n[RIGHT] > 0
            cube, n = found.side[side], found.n[side]
            if side == RIGHT and found.n[LEFT]:
                top += 1
                top.cube, top.n, top.node = found.side[LEFT], found.n[LEFT], node.left
                found.side[LEFT] += found.n[LEFT]
                top.end[0], top.end[1] = found.side[0], found.side[1]
                top.n_bits = self.n_bits
            found.side[side] += n
            node = self.nodes + node.left + side

    cdef bint divide_list(
        self, const Node* node, const Cube* cube, int64_t n, Division* found
    ) noexcept nogil:
        """Divide cubes by the split of a node; False if there are too many."""
        cdef uint64_t[6] bit
        cdef int32_t p
        self.tabulate(node)
        if node.n_players > MOST_TABLED:
            return self.divide_wide(node, cube, n, found)
        for p in range(node.n_players):
            bit[p] = self.bit_for(node.players[p])
            if bit[p] == 0:
                return False
        return skf_divide(self.right, bit, node.n_players, cube, n, self.kept, found)

    cdef bint divide_wide(
        self, const Node* node, const Cube* cube, int64_t n, Division* found
    ) noexcept nogil:
        """Divide cubes by a split of many players; False if there are too many."""
        cdef Cube[64] near
        cdef double[64] change
        cdef uint64_t[64] bit
        cdef double gap = 0
        cdef int64_t i, row = -1
        cdef int32_t j, n_changes = 0, n_near, side
        for i in range(n):
            if found.n[0] == found.space[0] or found.n[1] == found.space[1]:
                return False
            if cube[i].row != row:
                row = cube[i].row
                side = <int32_t>self.right[row]
                if side == BRANCH:
                    self.z = &self.Z[self.first + row, 0]
                    n_changes = self.find_changes(node)
                    gap = self.projections[
                        ((node.left - 1) >> 1) * self.n_rows + self.first + row
                    ] - node.threshold
            if self.failed[row]:
                continue
            side = <int32_t>self.right[row]
            if side == BRANCH:
                side = self.side_of_cube(node, cube + i, n_changes, gap)
            if side <= RIGHT:
                found.side[side][found.n[side]] = cube[i]
                found.n[side] += 1
                continue
            if side == BRANCH:
                if n_changes > MOST_BITS:
                    side = GIVE_UP
                for j in range(min(n_changes, MOST_BITS)):
                    bit[j], change[j] = self.bit_for(self.changes[j].player), self.changes[j].size
                    if bit[j] == 0:
                        side = GIVE_UP
            if side == GIVE_UP:
                # Other cubes of the row may have been added, or wait.
                self.failed[row] = True
                self.is_lost = self.is_lost or node != self.nodes
                continue
            if not skf_divide_by_sums(
                change, bit, n_changes, gap, node.margin, cube[i], found, near, &n_near, 64
            ):
                return False
            for j in range(n_near):
                side = self.predicted_side_of(node, &near[j])
                if found.n[side] == found.space[side]:
                    return False
                found.side[side][found.n[side]] = near[j]
                found.n[side] += 1
        return True

    cdef int32_t side_of_cube(
        self, const Node* node, const Cube* cube, int32_t n_changes, double gap
    ) noexcept nogil:
        """Return the side of all mixtures of a cube with row z; GIVE_UP if there are too many."""
        cdef int32_t j, n_open = 0
        cdef uint64_t bit
        cdef double low = gap, high = gap, size
        for j in range(n_changes):
            size, bit = self.changes[j].size, self.known_bit(self.changes[j].player)
            if (cube.x | cube.z) & bit == 0:
                n_open += 1
                low += min(size, 0.0)
                high += max(size, 0.0)
            elif cube.x & bit:
                low += size
                high += size
        if low > node.margin:
            return RIGHT
        if high <= -node.margin:
            return LEFT
        return BRANCH if n_open <= self.max_exact else GIVE_UP

    cdef void tabulate(self, const Node* node) noexcept nogil:
        """Tabulate the sides of the mixtures of x with the rows z of the block."""
        cdef const Term* term
        cdef float* gap = self.floats
        cdef float* high = gap + ROWS_TABLED
        cdef float* nearest = high + ROWS_TABLED
        cdef float* change = nearest + ROWS_TABLED
        cdef const float* columns = &self.columns[0, self.first]
        cdef const double* of_z
        cdef int64_t t, i
        cdef int32_t p = -1, n = 0, n_rows = (self.size + 15) & -16
        # Sums in float32 have larger errors.
        cdef float margin = <float>(4 * node.margin)
        if node.feature >= 0:
            skf_compare(
                columns + node.feature * self.n_rows, <float>node.threshold,
                self.x[node.feature] > node.threshold, n_rows, self.right
            )
            return
        of_z = self.projections + ((node.left - 1) >> 1) * self.n_rows + self.first
        for i in range(n_rows):
            gap[i] = <float>(of_z[i] - node.threshold)
            high[i] = gap[i]
        for t in range(node.start, node.end):
            term = self.terms + t
            if term.player != p:
                if n and node.n_players > MOST_TABLED:
                    add_range(change, n_rows, gap, high)
                    n = 0
                memset(change + n * ROWS_TABLED, 0, n_rows * sizeof(float))
                p = term.player
                n += 1
            skf_add_change(
                <float>term.weight, self.x[term.feature],
                columns + term.feature * self.n_rows, n_rows, change + (n - 1) * ROWS_TABLED
            )
        if node.n_players > MOST_TABLED:
            add_range(change, n_rows, gap, high)
            skf_compare_range(gap, high, margin, n_rows, self.right)
            return
        skf_tabulate(gap, change, n, n_rows, self.right, nearest)
        for i in range(self.size):
            if nearest[i] <= margin:
                self.correct(node, i)

    cdef void correct(self, const Node* node, int64_t row) noexcept nogil:
        """Correct the sides of a row of a block where rounding could decide."""
        cdef int32_t i, m
        cdef int64_t t
        cdef double value
        cdef uint64_t right = 0
        self.z = &self.Z[self.first + row, 0]
        for m in range(1 << node.n_players):
            for i in range(node.n_players):
                self.taken[node.players[i]] = (m >> i) & 1
            value = -node.threshold
            for t in range(node.start, node.end):
                i = self.terms[t].feature
                value += self.terms[t].weight * (
                    self.x[i] if self.taken[self.terms[t].player] == 1 else self.z[i]
                )
            if fabs(value) <= node.margin:
                value = 1 if self.predicted_side(node) == RIGHT else -1
            right |= <uint64_t>(value > 0) << m
        for i in range(node.n_players):
            self.taken[node.players[i]] = 0
        self.right[row] = right

    cdef int32_t predicted_side_of(self, const Node* node, const Cube* cube) noexcept nogil:
        """Return the side that prediction finds for a cube with all players decided."""
        cdef int32_t i, side
        for i in range(self.n_bits):
            self.taken[self.player_of[i]] = 1 if cube.x & self.bit[i] else 0
        side = self.predicted_side(node)
        for i in range(self.n_bits):
            self.taken[self.player_of[i]] = 0
        return side

    cdef inline uint64_t known_bit(self, int32_t player) noexcept nogil:
        """Return the bit of a player; 0 if it has none."""
        cdef int32_t bit = self.bit_of[player]
        return self.bit[bit] if bit < self.n_bits and self.player_of[bit] == player else 0

    cdef inline uint64_t bit_for(self, int32_t player) noexcept nogil:
        """Return the bit of a player, a new one if necessary; 0 if there are no more."""
        cdef uint64_t bit = self.known_bit(player)
        if bit == 0 and self.n_bits < MOST_BITS:
            bit = self.bit[self.n_bits]
            self.bit_of[player] = self.n_bits
            self.player_of[self.n_bits] = player
            self.n_bits = self.n_bits + 1
        return bit

    cdef void add_leaf(self, int64_t row, const Cube* cube, int64_t n) noexcept nogil:
        """Add the value of a leaf that takes cubes to `part`."""
        cdef int32_t j, is_out
        cdef int64_t i, m
        cdef uint64_t bit, side
        cdef bint is_linear
        cdef double* part = self.part
        if not self.has_pairs:
            self.add_shares(row, cube, n, part, -1, 1.0)
            return
        for j in range(self.n_players):
            bit = self.known_bit(j)
            is_linear = False
            if self.has_slopes:
                for i in range(self.slope_start[row], self.slope_start[row + 1]):
                    is_linear |= self.number_of[self.player[self.slope_feature[i]]] == j
            for is_out in range(2 if bit or is_linear else 0):
                m = 0
                for i in range(n):
                    side = cube[i].x if is_out else cube[i].z
                    # Cubes without this player are in both games.
                    if side & bit or not (is_linear or (cube[i].x | cube[i].z) & bit):
                        continue
                    self.others[m] = cube[i]
                    self.others[m].x = self.others[m].x & ~bit
                    self.others[m].z = self.others[m].z & ~bit
                    m += 1
                self.add_shares(row, self.others, m, part, j, -0.5 if is_out else 0.5)
            part += self.n_players * <int64_t>self.n_outputs

    cdef void add_shares(
        self, int64_t row, const Cube* cube, int64_t n, double* out, int32_t fixed, double factor
    ) noexcept nogil:
        """Add the shares of the value of a leaf that takes cubes, times a factor.

        A `fixed` player is in none of the cubes: it is from x if the factor is positive.
        """
        cdef double[64] weight
        cdef int32_t p, k
        cdef int64_t i
        cdef double* part
        if self.has_slopes:
            for i in range(n):
                self.add_linear(row, cube + i, out, fixed, factor)
            return
        skf_weigh_cubes(
            cube, n, &self.share[0, 0], <int>self.share.shape[1], self.bit, self.n_bits, weight
        )
        for p in range(self.n_bits):
            part = out + self.player_of[p] * <int64_t>self.n_outputs
            for k in range(self.n_outputs):
                part[k] += factor * weight[p] * self.values[row, k]

    cdef void add_linear(
        self, int64_t row, const Cube* cube, double* out, int32_t fixed, double factor
    ) noexcept nogil:
        """Add the shares of the linear function of a leaf that takes a cube.

        Undecided players are from z. The change by one of them counts if it and all a players are
        from x, and all b players are from z: the a players and this player share it.
        """
        cdef int64_t j
        cdef int32_t k, p, i, f
        cdef int32_t a = skf_count_bits(cube.x), b = skf_count_bits(cube.z)
        cdef const float* z = &self.Z[self.first + cube.row, 0]
        cdef uint64_t bit
        cdef double of_x, of_z, change
        cdef double* part
        cdef double* from_x = self.from_x
        cdef double* from_z = self.from_z
        for k in range(self.n_outputs):
            from_x[k] = self.share[a, b] * self.values[row, k]
            from_z[k] = self.share[b, a] * self.values[row, k]
        for j in range(self.slope_start[row], self.slope_start[row + 1]):
            f = self.slope_feature[j]
            p = self.number_of[self.player[f]]
            bit = self.known_bit(p)
            of_x = self.x[f]
            of_z = of_x if cube.x & bit or (p == fixed and factor > 0) else z[f]
            part = out + p * <int64_t>self.n_outputs
            for k in range(self.n_outputs):
                from_x[k] += self.share[a, b] * self.slopes[j, k] * of_z
                from_z[k] += self.share[b, a] * self.slopes[j, k] * of_z
            if (cube.x | cube.z) & bit == 0 and p != fixed:
                for k in range(self.n_outputs):
                    change = self.slopes[j, k] * (of_x - of_z)
                    part[k] += factor * self.share[a + 1, b] * change
                    from_x[k] += self.share[a + 1, b] * change
                    from_z[k] += self.share[b, a + 1] * change
        for i in range(self.n_bits):
            part = out + self.player_of[i] * <int64_t>self.n_outputs
            if cube.x & self.bit[i]:
                for k in range(self.n_outputs):
                    part[k] += factor * self.from_x[k]
            elif cube.z & self.bit[i]:
                for k in range(self.n_outputs):
                    part[k] -= factor * self.from_z[k]
