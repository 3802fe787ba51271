"""Interventional Shapley values of hard trees.

The players are the columns of X. For an explained row x and a background row z, the game is

    v(S) = response of the tree at the row with the features of S from x and the others from z

and the values of a row are the means over the background rows. Each is found in one of two ways:

- exactly, from sets of mixtures that reach the same leaf: those with a players from x, b players
  from z, and the others undecided. A leaf of value u adds for each of these sets

      u (a - 1)! b! / (a + b)!  to each of the a,   -u a! (b - 1)! / (a + b)!  to each of the b.

  Players are decided only where a split needs it: as long as players are undecided, the projection
  on a direction lies in a range, and a split whose threshold is outside of it sends all mixtures
  to one side. There are two ways to find these sets. `divide` sends the list of all sets that
  reach a node through its split at once (cubes.h), from a table of the sides of the mixtures,
  which is made for many rows z at once. `walk` follows one set at a time, depth first, for trees
  whose splits have a single feature, many features, or linear leaves;
- by pairs of a random permutation of the players and its reverse, where this would take too
  long. Projections are updated as players change from z to x one after the other.

Projections are float64 here and float32 in prediction. Where rounding could decide, `project` is
called on the mixture, so that each mixture reaches the leaf that `predict` finds.
"""

cimport cython
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

import numpy as np

from .direction cimport (
    FLOAT32, Grid, Table, as_directions, as_grid, project, reserve_unfolded, unfold
)
from .memory cimport Scratch, allocate
from .poll cimport poll
from .random cimport Random, hash_seed, shuffle

cdef void add_range(const double* change, double* low, double* high) noexcept nogil:
    """Extend the ranges of projections by what a player changes."""
    cdef int32_t i
    for i in range(ROWS_TABLED):
        low[i] += min(change[i], 0.0)
        high[i] += max(change[i], 0.0)


cdef inline int32_t next_node(
    const Node* node, int32_t number, double largest, double smallest
) noexcept nogil:
    """The child that takes all projections (minus the threshold) of a range; or the node."""
    if largest <= -node.margin:
        return node.left
    if smallest > node.margin:
        return node.left + 1
    return number


@cython.final
cdef class ShapleyTrees:
    """Shapley values of the rows X, with the background Z, of the trees of a forest.

    X and Z are mapped rows, float32; `player` is the player of every feature. `values` are the
    rows of leaf values, (n_values, n_outputs), and `slopes` their linear functions, (n_slopes,
    n_outputs), both float64. A walk makes at most 2^max_exact - 1 branches; `n_pairs` pairs of
    permutations replace it.
    """

    def __init__(
        self, forest, X, Z, player, int64_t n_players, values, slopes, max_exact, n_pairs, seed
    ):
        cdef int64_t p, size, n = MOST_DECIDED + 2
        cdef Grid grid = as_grid(forest.feature_shape, forest.wrap, forest.unordered)
        cdef Scratch scratch = Scratch()
        self.arrays = arrays = forest.arrays
        self.scratch = scratch
        self.directions = as_directions(arrays, forest.n_features, grid)
        self.unfolded = reserve_unfolded(scratch, forest.router.max_terms, &grid)
        self.X, self.Z, self.player = X, Z, player
        # Columns of Z, and rows of zeros behind them.
        self.n_rows = (self.Z.shape[0] + ROWS_TABLED - 1) // ROWS_TABLED * ROWS_TABLED
        columns = np.zeros((forest.n_features, self.n_rows), dtype=np.float32)
        columns[:, : len(Z)] = Z.T
        self.columns = columns
        self.values, self.slopes = values, slopes
        self.slope_start, self.slope_feature = arrays["slope_start"], arrays["slope_feature"]
        self.has_slopes = len(arrays["slope_feature"]) > 0
        self.n_outputs = self.values.shape[1]
        self.max_exact, self.max_branches, self.n_pairs = max_exact, 2**max_exact - 1, n_pairs
        self.seed = seed
        factorial = [1]
        for p in range(1, 2 * MOST_DECIDED + 3):
            factorial.append(factorial[p - 1] * p)
        self.share = np.array([
            [factorial[a - 1] * factorial[b] / factorial[a + b] if a else 0 for b in range(n)]
            for a in range(n)
        ])
        size = n_players * self.n_outputs
        allocate[double](scratch, n_players, [&self.open, &self.taken, NULL])
        allocate[double](scratch, size, [&self.part, &self.total, &self.squares, NULL])
        allocate[double](scratch, self.n_outputs, [&self.leaf_value, &self.next_value, NULL])
        allocate[int32_t](scratch, n_players, [&self.touched, &self.order, NULL])
        self.touched_by = scratch.longs(n_players)
        self.bit_of = scratch.ints(n_players)
        for p in range(MOST_BITS):
            self.bit[p] = <uint64_t>1 << p
        self.most_cubes = 2**max_exact
        self.n_cubes = 8 * self.most_cubes + 256
        for p in range(2):
            self.cubes[p] = <Cube*>scratch.bytes_of(self.n_cubes * <int64_t>sizeof(Cube))
        self.of_bit = scratch.doubles(MOST_BITS * self.n_outputs)
        self.decisions = <Decision*>scratch.bytes_of(MOST_DECIDED * <int64_t>sizeof(Decision))
        self.sums = scratch.doubles(2 * self.n_outputs)
        self.before = scratch.doubles(2 * self.n_outputs * (MOST_DECIDED + 1))
        self.mixture = scratch.floats(forest.n_features)
        for p in range(n_players):
            self.open[p] = 1

    def load(
        self, const int32_t[::1] child, const float[::1] threshold, const int32_t[::1] code,
        const int64_t[::1] start, const int32_t[::1] feature, const float[::1] weight,
        const double[::1] margin
    ):
        """Take a tree. The terms of split s are start[s] .. start[s + 1] - 1, by player."""
        cdef int64_t node, s, t, n_nodes = child.shape[0], n_terms = feature.shape[0]
        cdef Scratch scratch = Scratch()
        cdef Node* one
        self.of_tree = scratch
        self.n_splits = threshold.shape[0]
        self.nodes = <Node*>scratch.bytes_of(n_nodes * <int64_t>sizeof(Node))
        self.visits = <Visit*>scratch.bytes_of(n_nodes * <int64_t>sizeof(Visit))
        self.terms = <Term*>scratch.bytes_of(n_terms * <int64_t>sizeof(Term))
        self.changes = <Change*>scratch.bytes_of(n_terms * <int64_t>sizeof(Change))
        self.projections = scratch.doubles(self.n_rows * self.n_splits)
        self.tables = <uint64_t*>scratch.bytes_of(
            self.n_splits * ROWS_TABLED * <int64_t>sizeof(uint64_t)
        )
        self.tabled_for = scratch.longs(self.n_splits)
        self.block = 0
        allocate[int32_t](scratch, self.n_splits, [&self.path, &self.side, NULL])
        self.path_value = scratch.doubles(self.n_splits)
        self.lists = <List*>scratch.bytes_of((self.n_splits + 2) * <int64_t>sizeof(List))
        for t in range(n_terms):
            self.terms[t].weight = weight[t]
            self.terms[t].feature = feature[t]
            self.terms[t].player = self.player[feature[t]]
        self.is_oblique = False
        for node in range(n_nodes):
            one = self.nodes + node
            one.left = child[node]
            one.n_players = 0
            if one.left < 0:
                continue
            s = (one.left - 1) // 2
            one.threshold, one.margin, one.code = threshold[s], margin[s], code[s]
            one.start, one.end = start[s], start[s + 1]
            one.feature = -1
            if one.code < self.directions.n_features:
                one.feature, one.player, one.margin = one.code, self.player[one.code], 0
                one.n_players, one.players[0] = 1, one.player
            else:
                self.count_players(one)
                self.is_oblique = True
                self.project_background(one, s)

    cdef void count_players(self, Node* node) noexcept nogil:
        cdef int64_t t
        node.n_players = 0
        for t in range(node.start, node.end):
            if t > node.start and self.terms[t].player == self.terms[t - 1].player:
                continue
            if node.n_players < MOST_TABLED:
                node.players[node.n_players] = self.terms[t].player
            node.n_players += 1

    cdef void project_background(self, const Node* node, int64_t split) noexcept nogil:
        """Projections of the background rows on the direction of a node."""
        cdef int64_t b, t
        cdef double total
        for b in range(self.Z.shape[0]):
            total = 0
            for t in range(node.start, node.end):
                total += self.terms[t].weight * self.Z[b, self.terms[t].feature]
            self.projections[split * self.n_rows + b] = total

    def explain(
        self, uint64_t tree, double scale, double[:, :, ::1] out, double[:, :, ::1] variance,
        const uint8_t[::1] stop
    ):
        """out += scale * values, variance += scale^2 * their variance, of all rows.

        Returns the number of pairs of rows that were sampled.
        """
        cdef int64_t i, b, work = 0, n_sampled = 0
        cdef int32_t outcome
        cdef uint64_t seed
        with nogil:
            for i in range(self.X.shape[0]):
                if poll(&stop[0], &work, 100 * self.Z.shape[0]):
                    break
                seed = hash_seed(hash_seed(self.seed, <uint64_t>i), tree)
                self.x = &self.X[i, 0]
                for b in range(self.Z.shape[0]):
                    self.row = b % ROWS_TABLED
                    if self.row == 0:
                        self.block, self.first = self.block + 1, b
                    self.z = &self.Z[b, 0]
                    self.of_z = self.projections + b
                    outcome = self.divide()
                    if outcome == TOO_WIDE and self.walk():
                        self.add_part(&out[i, 0, 0], scale)
                    elif outcome == EXACT:
                        self.add_bits(&out[i, 0, 0], scale)
                    else:
                        n_sampled += 1
                        self.sample(hash_seed(seed, <uint64_t>b))
                        self.add_sample(&out[i, 0, 0], &variance[i, 0, 0], scale)
        return n_sampled

    # --------------------------------------------------------------------------- lists of cubes

    cdef int32_t divide(self) noexcept nogil:
        """Add the leaves of all mixtures to `of_bit`, by lists of cubes.

        Lists of left sides and lists of right sides are in an array each, which is a stack: those
        at its end are divided first.
        """
        cdef Division found
        cdef Split split
        cdef Cube[1] root
        cdef List* top = self.lists - 1
        cdef const Cube* cube = root
        cdef const Node* node = self.nodes
        cdef int64_t n = 1, n_done = 0, n_waiting = 0
        cdef int32_t side
        if self.has_slopes or not self.is_oblique or node.n_players > MOST_TABLED:
            return TOO_WIDE
        self.pair = self.pair + 1
        self.n_touched = 0
        root[0].x = root[0].z = 0
        found.side[0], found.side[1] = self.cubes[0], self.cubes[1]
        while True:
            side = LEFT
            while node.left >= 0:
                side = self.view(node, &split)
                if side > RIGHT:
                    break
                node = self.nodes + node.left + side
            if node.left < 0:
                n_done += n
                skf_add_cubes(
                    cube, n, &self.share[0, 0], MOST_DECIDED + 2, self.bit, self.n_touched,
                    &self.values[-1 - node.left, 0], self.n_outputs, self.of_bit
                )
                if top < self.lists:
                    return EXACT
                cube, n, node = top.cube, top.n, self.nodes + top.node
                found.side[0], found.side[1] = top.end[0], top.end[1]
                n_waiting -= n
                top -= 1
                continue
            if side == GIVE_UP:
                return TOO_WIDE
            if node.n_players > MOST_TABLED:
                if not self.divide_wide(node, cube, n, &found):
                    return TOO_WIDE
            elif max(
                found.side[0] - self.cubes[0], found.side[1] - self.cubes[1]
            ) + (n << split.n) > self.n_cubes:
                return TOO_WIDE
            else:
                skf_divide(&split, cube, n, &found)
            if n_done + n_waiting + found.n[LEFT] + found.n[RIGHT] > self.most_cubes:
                return TOO_MANY
            # The list of one side is divided first; the other one waits.
            side = found.n[RIGHT] > 0
            cube, n = found.side[side], found.n[side]
            if side == RIGHT and found.n[LEFT]:
                top += 1
                top.cube, top.n, top.node = found.side[LEFT], found.n[LEFT], node.left
                found.side[LEFT] += found.n[LEFT]
                top.end[0], top.end[1] = found.side[0], found.side[1]
                n_waiting += found.n[LEFT]
            found.side[side] += n
            node = self.nodes + node.left + side

    cdef inline int32_t view(self, const Node* node, Split* split) noexcept nogil:
        """Where a node sends all mixtures; BRANCH fills `split`; GIVE_UP if it is too wide."""
        cdef int64_t number = (node.left - 1) >> 1
        cdef int32_t i
        cdef uint64_t right
        if self.tabled_for[number] != self.block:
            self.tabulate(node, number)
        right = self.tables[number * ROWS_TABLED + self.row]
        if node.n_players > MOST_TABLED:
            return <int32_t>right
        if right >> <uint64_t>32 == 0:
            return LEFT if right == 0 else RIGHT
        skf_fill_split(right, node.players, node.n_players, split)
        for i in range(split.n):
            split.player[i] = self.bit_for(<int32_t>split.player[i])
            if split.player[i] == 0:
                return GIVE_UP
        return BRANCH

    cdef inline bint divide_wide(
        self, const Node* node, const Cube* cube, int64_t n_cubes, Division* found
    ) noexcept nogil:
        """Divide cubes by a split of many players; False if the walk is to be used."""
        cdef const Change* found_change = self.changes + node.start
        cdef double[64] change
        cdef uint64_t[64] player
        cdef double gap = self.of_z[((node.left - 1) >> 1) * self.n_rows] - node.threshold
        cdef int64_t space = self.n_cubes
        cdef int32_t j, i, n = self.find_changes(node)
        cdef uint64_t bit
        if n > self.max_exact and n_cubes == 1:
            return False
        for j in range(n):
            bit = self.bit_for(found_change[j].player)
            if bit == 0:
                return False
            i = j
            while i > 0 and fabs(change[i - 1]) < fabs(found_change[j].size):
                change[i], player[i] = change[i - 1], player[i - 1]
                i -= 1
            change[i], player[i] = found_change[j].size, bit
        for i in range(2):
            space = min(space, self.n_cubes - (found.side[i] - self.cubes[i]))
        return skf_divide_by_sums(
            change, player, n, gap, node.margin, cube, n_cubes, space, found
        )

    cdef void tabulate(self, const Node* node, int64_t number) noexcept nogil:
        """Tabulate the sides of the mixtures of x with the rows z of a block."""
        cdef const Term* term
        cdef double[104] gap, high
        cdef double[520] change
        cdef double[104] nearest
        cdef uint64_t* right = self.tables + number * ROWS_TABLED
        cdef const float* columns = &self.columns[0, self.first]
        cdef int64_t t
        cdef uint64_t x_right, z_right
        cdef int32_t p = -1, i, n = 0
        self.tabled_for[number] = self.block
        if node.feature >= 0:
            columns += node.feature * self.n_rows
            # The set of x, and the player matters if z is on the other side.
            x_right = self.x[node.feature] > node.threshold
            for i in range(ROWS_TABLED):
                z_right = columns[i] > node.threshold
                right[i] = z_right | x_right << 1 | (x_right ^ z_right) << 32
            return
        for i in range(ROWS_TABLED):
            gap[i] = self.projections[number * self.n_rows + self.first + i] - node.threshold
            high[i] = gap[i]
        for t in range(node.start, node.end):
            term = self.terms + t
            if term.player != p:
                if n and node.n_players > MOST_TABLED:
                    add_range(change, gap, high)
                    n = 0
                for i in range(ROWS_TABLED):
                    change[n * ROWS_TABLED + i] = 0
                p = term.player
                n += 1
            skf_add_change(
                term.weight, self.x[term.feature], columns + term.feature * self.n_rows,
                change + (n - 1) * ROWS_TABLED
            )
        if node.n_players > MOST_TABLED:
            add_range(change, gap, high)
            skf_tabulate_range(gap, high, node.margin, right)
            return
        skf_tabulate(gap, change, n, right, nearest)
        for i in range(ROWS_TABLED):
            if nearest[i] <= node.margin and self.first + i < self.Z.shape[0]:
                self.correct(node, gap[i], change, i, right + i)

    cdef void correct(
        self, const Node* node, double gap, const double* change, int32_t row, uint64_t* right
    ) noexcept nogil:
        """Set the sides of a row of a block where rounding could decide."""
        cdef const float* z = self.z
        cdef int32_t i, m
        cdef double value
        cdef uint64_t found = 0
        self.z = &self.Z[self.first + row, 0]
        for m in range(1 << node.n_players):
            value = gap
            for i in range(node.n_players):
                if (m >> i) & 1:
                    value += change[i * ROWS_TABLED + row]
            # Sums in another order: a margin that is twice as large includes the same.
            if fabs(value) <= 2 * node.margin:
                value = self.rounded(node, node.players, node.n_players, m)
            found |= <uint64_t>(value > 0) << m
        right[0] = skf_add_matters(found, node.n_players)
        self.z = z

    cdef double rounded(
        self, const Node* node, const int32_t* player, int32_t n, int32_t set
    ) noexcept nogil:
        """1 or -1: the side on which prediction finds the mixture with a set of players from x."""
        cdef int32_t i, side
        for i in range(n):
            self.taken[player[i]] = (set >> i) & 1
        side = self.predicted_side(node)
        for i in range(n):
            self.taken[player[i]] = 0
        return 1 if side == RIGHT else -1

    cdef inline uint64_t bit_for(self, int32_t player) noexcept nogil:
        """The bit of a player of the pair; 0 if there are no more."""
        cdef int32_t k
        if self.touched_by[player] != self.pair:
            if self.n_touched == MOST_BITS:
                return 0
            self.touched_by[player] = self.pair
            self.touched[self.n_touched] = player
            for k in range(self.n_outputs):
                self.of_bit[self.n_touched * self.n_outputs + k] = 0
            self.bit_of[player] = self.n_touched
            self.n_touched = self.n_touched + 1
        return self.bit[self.bit_of[player]]

    cdef void add_bits(self, double* out, double scale) noexcept nogil:
        """Add the values of the pair to those of the row."""
        cdef int32_t i, k
        cdef int64_t at
        for i in range(self.n_touched):
            at = <int64_t>self.touched[i] * self.n_outputs
            for k in range(self.n_outputs):
                out[at + k] += scale * self.of_bit[i * self.n_outputs + k]

    # ---------------------------------------------------------------------------------- exactly

    cdef bint walk(self) noexcept nogil:
        """Add the leaves of all mixtures to `part`; False if there are too many.

        The sums of the shares of the leaves so far grow as the walk proceeds: what is below a node
        is the difference of two of them.
        """
        cdef int32_t node = 0, n_outputs = self.n_outputs, k, side
        cdef int64_t n_branches = 0
        cdef Decision* top = self.decisions - 1
        cdef Decision decision
        cdef double* part
        self.pair = self.pair + 1
        self.n_touched = self.n_decided = self.n_from_x = 0
        for k in range(2 * n_outputs):
            self.sums[k] = 0
        while True:
            if self.nodes[node].left < 0:
                self.add_leaf(-1 - <int64_t>self.nodes[node].left)
                while True:
                    if self.n_decided == 0:
                        return True
                    part = self.part + <int64_t>top.player * n_outputs
                    if self.taken[top.player] == 1:
                        break
                    for k in range(n_outputs):
                        part[k] -= self.sums[n_outputs + k] - self.before[n_outputs + k]
                    self.open[top.player] = 1
                    self.n_decided = self.n_decided - 1
                    self.before = self.before - 2 * n_outputs
                    top -= 1
                for k in range(n_outputs):
                    part[k] += self.sums[k] - self.before[k]
                    self.before[n_outputs + k] = self.sums[n_outputs + k]
                self.taken[top.player] = 0
                self.n_from_x = self.n_from_x - 1
                node = top.from_z
                continue
            side = self.find_side(node, &decision)
            if side <= RIGHT:
                node = self.nodes[node].left + side
                continue
            n_branches += 1
            if (
                side == GIVE_UP or n_branches > self.max_branches
                or self.n_decided == MOST_DECIDED
            ):
                for k in range(self.n_decided):
                    self.open[self.decisions[k].player] = 1
                    self.taken[self.decisions[k].player] = 0
                self.before = self.before - 2 * n_outputs * self.n_decided
                return False
            self.touch(decision.player)
            self.open[decision.player] = 0
            self.taken[decision.player] = 1
            self.n_from_x = self.n_from_x + 1
            self.n_decided = self.n_decided + 1
            self.before = self.before + 2 * n_outputs
            top += 1
            top[0] = decision
            node = decision.from_x
            for k in range(n_outputs):
                self.before[k] = self.sums[k]

    cdef inline void touch(self, int32_t player) noexcept nogil:
        """Set the values of a player to 0, the first time that the pair depends on it."""
        cdef int32_t k
        if self.touched_by[player] == self.pair:
            return
        self.touched_by[player] = self.pair
        self.touched[self.n_touched] = player
        self.n_touched = self.n_touched + 1
        for k in range(self.n_outputs):
            self.part[player * <int64_t>self.n_outputs + k] = 0

    cdef inline int32_t find_side(self, int32_t number, Decision* decision) noexcept nogil:
        """Where a node sends all mixtures with the decided players; BRANCH fills `decision`."""
        cdef const Node* node = self.nodes + number
        cdef Visit* visit = self.visits + number
        cdef const Change* change
        cdef const double* taken = self.taken
        cdef const double* is_open = self.open
        cdef bint x_right, z_right
        cdef double value, up = 0, down = 0, n_open = 0, size, largest = 0, change_of = 0
        cdef int32_t t, p
        if node.feature >= 0:
            x_right = self.x[node.feature] > node.threshold
            z_right = self.z[node.feature] > node.threshold
            if x_right == z_right:
                return z_right
            p = node.player
            if is_open[p] == 0:
                return x_right if taken[p] == 1 else z_right
            decision.player = p
            decision.from_x, decision.from_z = node.left + x_right, node.left + z_right
            return BRANCH
        if visit.pair != self.pair:
            self.visit(node, visit)
        value = visit.gap
        change = self.changes + node.start
        # Without branches on the states of players, which a processor could not predict.
        for t in range(visit.n):
            p = change[t].player
            value += taken[p] * change[t].size
            up += is_open[p] * max(change[t].size, 0.0)
            down += is_open[p] * min(change[t].size, 0.0)
            n_open += is_open[p]
            size = is_open[p] * fabs(change[t].size)
            if size > largest:
                largest, change_of = size, change[t].size
                decision.player = p
        if value + up <= -node.margin:
            return LEFT
        if value + down > node.margin:
            return RIGHT
        if n_open == 0:
            return self.exact_side(number, decision)
        if n_open > self.max_exact:
            return GIVE_UP
        # Most often, the player decides.
        up -= max(change_of, 0.0)
        down -= min(change_of, 0.0)
        decision.from_z = next_node(node, number, value + up, value + down)
        value += change_of
        decision.from_x = next_node(node, number, value + up, value + down)
        return BRANCH

    cdef void visit(self, const Node* node, Visit* visit) noexcept nogil:
        """Compute the range of the projections of all mixtures on a direction, for this pair."""
        cdef int32_t i
        cdef double up = 0, down = 0
        cdef const Change* change = self.changes + node.start
        visit.pair = self.pair
        visit.gap = self.of_z[((node.left - 1) >> 1) * self.n_rows] - node.threshold
        visit.n = self.find_changes(node)
        for i in range(visit.n):
            up += max(change[i].size, 0.0)
            down += min(change[i].size, 0.0)
        # All mixtures are on one side: no player matters, whatever is decided.
        if visit.gap + up <= -node.margin:
            visit.gap += up
            visit.n = 0
        elif visit.gap + down > node.margin:
            visit.gap += down
            visit.n = 0

    cdef int32_t find_changes(self, const Node* node) noexcept nogil:
        """Compute what each player changes in the projection; return the number of players."""
        cdef int64_t t = node.start
        cdef int32_t p, n = 0
        cdef double size
        cdef Change* change = self.changes + node.start
        cdef const Term* terms = self.terms
        while t < node.end:
            p = terms[t].player
            size = 0
            while True:
                size += terms[t].weight * (
                    <double>self.x[terms[t].feature] - self.z[terms[t].feature]
                )
                t += 1
                if t == node.end or terms[t].player != p:
                    break
            if size != 0:
                change[n].size = size
                change[n].player = p
                n += 1
        return n

    cdef int32_t exact_side(self, int32_t number, Decision* decision) noexcept nogil:
        """The side that prediction finds for the mixture, where rounding could decide.

        BRANCH if an undecided player could change a rounding, though it does not change the sum.
        """
        cdef const Node* node = self.nodes + number
        cdef int64_t t
        cdef int32_t f
        for t in range(node.start, node.end):
            f = self.terms[t].feature
            if self.open[self.terms[t].player] == 1 and self.x[f] != self.z[f]:
                decision.player = self.terms[t].player
                decision.from_x = decision.from_z = number
                return BRANCH
        return self.predicted_side(node)

    cdef int32_t predicted_side(self, const Node* node) noexcept nogil:
        """The side that prediction finds for the mixture."""
        cdef int64_t offset = 0
        cdef int32_t f
        cdef float value
        cdef Table table
        table.dtype = FLOAT32
        table.n_samples = 1
        table.n_features = <int32_t>self.player.shape[0]
        table.data = self.mixture
        for f in range(table.n_features):
            self.mixture[f] = self.x[f] if self.taken[self.player[f]] == 1 else self.z[f]
        unfold(&self.unfolded, &self.directions, node.code, &table)
        project(&self.unfolded, &table, &offset, 1, &value)
        return value > <float>node.threshold

    cdef inline void add_leaf(self, int64_t row) noexcept nogil:
        """Add the shares of the value of a leaf, for a player from x and for one from z."""
        cdef int32_t k, a = self.n_from_x, b = self.n_decided - a
        cdef const double* value = &self.values[row, 0]
        cdef double* from_x = self.sums
        cdef double* from_z = self.sums + self.n_outputs
        if self.has_slopes:
            self.evaluate_leaf(row, self.leaf_value)
            value = self.leaf_value
            self.add_slopes(row, a, b)
        for k in range(self.n_outputs):
            from_x[k] += self.share[a, b] * value[k]
            from_z[k] += self.share[b, a] * value[k]

    cdef void evaluate_leaf(self, int64_t row, double* value) noexcept nogil:
        """Value of a leaf at the mixture; undecided players are from z."""
        cdef int64_t j
        cdef int32_t k, f
        cdef double at
        for k in range(self.n_outputs):
            value[k] = self.values[row, k]
        if not self.has_slopes:
            return
        for j in range(self.slope_start[row], self.slope_start[row + 1]):
            f = self.slope_feature[j]
            at = self.x[f] if self.taken[self.player[f]] == 1 else self.z[f]
            for k in range(self.n_outputs):
                value[k] += self.slopes[j, k] * at

    cdef void add_slopes(self, int64_t row, int32_t a, int32_t b) noexcept nogil:
        """Add what undecided players change in the linear function of a leaf.

        The change of such a player counts where it and all of the a players are from x, and all of
        the b players are from z: the a and the player itself share it.
        """
        cdef int64_t j
        cdef int32_t k, f, own
        cdef double change
        cdef double* part
        cdef double* from_x = self.sums
        cdef double* from_z = self.sums + self.n_outputs
        for j in range(self.slope_start[row], self.slope_start[row + 1]):
            f = self.slope_feature[j]
            own = self.player[f]
            if self.open[own] == 0 or self.x[f] == self.z[f]:
                continue
            self.touch(own)
            part = self.part + own * <int64_t>self.n_outputs
            for k in range(self.n_outputs):
                change = self.slopes[j, k] * (<double>self.x[f] - self.z[f])
                part[k] += self.share[a + 1, b] * change
                from_x[k] += self.share[a + 1, b] * change
                from_z[k] += self.share[b, a + 1] * change

    cdef void add_part(self, double* out, double scale) noexcept nogil:
        """Add the values of the pair to those of the row."""
        cdef int32_t i, k
        cdef int64_t at
        for i in range(self.n_touched):
            at = <int64_t>self.touched[i] * self.n_outputs
            for k in range(self.n_outputs):
                out[at + k] += scale * self.part[at + k]

    # --------------------------------------------------------------------------- by permutations

    cdef void sample(self, uint64_t seed) noexcept nogil:
        """Sums over pairs of permutations of the values, and of their squares."""
        cdef Random random
        cdef int32_t i, k, f, player, last
        cdef int64_t _, at
        cdef double mean
        random.state = seed
        self.pair = self.pair + 1
        self.n_touched = 0
        for f in range(<int32_t>self.player.shape[0]):
            if self.x[f] != self.z[f]:
                self.touch(self.player[f])
        for i in range(self.n_touched):
            self.order[i] = self.touched[i]
            at = <int64_t>self.touched[i] * self.n_outputs
            for k in range(self.n_outputs):
                self.total[at + k] = self.squares[at + k] = 0
        last = self.n_touched - 1
        for _ in range(self.n_pairs):
            shuffle(&random, self.order, self.n_touched, self.n_touched)
            self.follow()
            for i in range(self.n_touched // 2):
                player = self.order[i]
                self.order[i] = self.order[last - i]
                self.order[last - i] = player
            self.follow()
            for i in range(self.n_touched):
                at = <int64_t>self.touched[i] * self.n_outputs
                for k in range(self.n_outputs):
                    mean = self.part[at + k] / 2
                    self.total[at + k] = self.total[at + k] + mean
                    self.squares[at + k] = self.squares[at + k] + mean * mean
                    self.part[at + k] = 0

    cdef void follow(self) noexcept nogil:
        """Add what each player changes, in `order`, as it is taken from x, to `part`."""
        cdef int32_t i, k, level, player, side, depth
        cdef int64_t row, new
        cdef double* part
        cdef const Node* one
        row = self.descend(0, 0, &depth)
        self.evaluate_leaf(row, self.leaf_value)
        for i in range(self.n_touched):
            player = self.order[i]
            self.taken[player] = 1
            new = row
            for level in range(depth):
                one = self.nodes + self.path[level]
                if not self.update(one, player, &self.path_value[level]):
                    continue
                side = self.side_of(one, self.path_value[level])
                if side != self.side[level]:
                    # What lies below is left, and needs no update.
                    self.side[level] = side
                    new = self.descend(one.left + side, level + 1, &depth)
                    break
            if new == row and not self.has_slopes:
                continue
            row = new
            self.evaluate_leaf(row, self.next_value)
            part = self.part + <int64_t>player * self.n_outputs
            for k in range(self.n_outputs):
                part[k] += self.next_value[k] - self.leaf_value[k]
                self.leaf_value[k] = self.next_value[k]
        for i in range(self.n_touched):
            self.taken[self.order[i]] = 0

    cdef int64_t descend(self, int32_t node, int32_t level, int32_t* depth) noexcept nogil:
        """Row of values of the leaf that the mixture reaches from a node, with the path to it."""
        cdef const Node* one
        cdef double value
        cdef int64_t t
        cdef int32_t f
        while True:
            one = self.nodes + node
            if one.left < 0:
                depth[0] = level
                return -1 - <int64_t>one.left
            if one.feature >= 0:
                f = one.feature
                value = self.x[f] if self.taken[one.player] == 1 else self.z[f]
            else:
                value = self.of_z[((one.left - 1) >> 1) * self.n_rows]
                for t in range(one.start, one.end):
                    if self.taken[self.terms[t].player] == 1:
                        f = self.terms[t].feature
                        value += self.terms[t].weight * (<double>self.x[f] - self.z[f])
            self.path[level] = node
            self.path_value[level] = value
            self.side[level] = self.side_of(one, value)
            node = one.left + self.side[level]
            level += 1

    cdef inline int32_t side_of(self, const Node* node, double value) noexcept nogil:
        """The side on which a projection of the mixture lies."""
        if value > node.threshold + node.margin:
            return RIGHT
        if value <= node.threshold - node.margin:
            return LEFT
        return self.predicted_side(node)

    cdef inline bint update(
        self, const Node* node, int32_t player, double* value
    ) noexcept nogil:
        """Take a player from x in the projection on a direction; False if it has no weight."""
        cdef int64_t t = node.start, end = node.end, middle
        cdef int32_t f
        if node.feature >= 0:
            if node.player != player:
                return False
            value[0] = self.x[node.feature]
            return True
        while t < end:
            middle = t + ((end - t) >> 1)
            if self.terms[middle].player < player:
                t = middle + 1
            else:
                end = middle
        if t == node.end or self.terms[t].player != player:
            return False
        while t < node.end and self.terms[t].player == player:
            f = self.terms[t].feature
            value[0] += self.terms[t].weight * (<double>self.x[f] - self.z[f])
            t += 1
        return True

    cdef void add_sample(self, double* out, double* variance, double scale) noexcept nogil:
        """Add the means over pairs of permutations, and their variances, to those of the row."""
        cdef int32_t i, k
        cdef double mean, excess
        cdef double n = <double>self.n_pairs
        cdef int64_t at
        for i in range(self.n_touched):
            at = <int64_t>self.touched[i] * self.n_outputs
            for k in range(self.n_outputs):
                mean = self.total[at + k] / n
                excess = self.squares[at + k] / n - mean * mean
                out[at + k] += scale * mean
                if excess > 0:
                    variance[at + k] += scale * scale * excess / (n - 1)
