"""Interventional Shapley values of hard trees.

The players are the columns of X. For an explained row x and a background row z, the game is

    v(S) = response of the tree at the row with the features of S from x and the others from z

and the values of a row are the means over the background rows. Each is computed in one of two ways:

- exactly, by a depth-first walk over the tree that takes players from x or from z only where a split
  needs it. The projection on a direction lies in an interval as long as some players are undecided;
  a split whose threshold lies outside of it sends all mixtures to the same side. At the others, the
  undecided player with the largest influence is taken from x first and then from z. A leaf that is
  reached with a players from x and b players from z, and the value u, adds

      u (a - 1)! b! / (a + b)!  to each of the a,   -u a! (b - 1)! / (a + b)!  to each of the b;

- by pairs of a random permutation of the players and its reverse, where the walk would take too
  long. Projections are updated as players change from z to x one after the other.

Projections are float64 here and float32 in prediction. Where rounding could decide, `project` is
called on the mixture, so that each mixture reaches the leaf that `predict` finds.
"""

cimport cython
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from math import comb

import numpy as np

from .direction cimport (
    FLOAT32, Directions, Grid, Table, Unfolded, as_directions, as_grid, project, reserve_unfolded,
    unfold
)
from .memory cimport Scratch
from .poll cimport poll
from .random cimport Random, hash_seed, shuffle

cdef enum:
    LEFT = 0
    RIGHT = 1
    BRANCH = 2           # it depends on an undecided player
    GIVE_UP = 3          # it depends on too many

cdef enum:
    UNDECIDED = 0
    FROM_X = 1
    FROM_Z = 2

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


@cython.final
cdef class ShapleyTrees:
    """Shapley values of the rows X, with the background Z, of the trees of a forest.

    X and Z are mapped rows, float32; `player` is the player of every feature. `values` are the
    rows of leaf values, (n_values, n_outputs), and `slopes` their linear functions, (n_slopes,
    n_outputs), both float64. A walk makes at most 2^max_exact - 1 branches; `n_pairs` pairs of
    permutations replace it.
    """

    cdef Scratch scratch
    cdef object arrays                    # the pointers of `directions` point into them
    cdef Directions directions
    cdef Unfolded unfolded
    cdef const float[:, ::1] X, Z
    cdef const int32_t[::1] player
    cdef int32_t n_players, n_outputs
    cdef const double[:, ::1] values
    cdef const double[:, ::1] slopes
    cdef const int64_t[::1] slope_start
    cdef const int32_t[::1] slope_feature
    cdef bint has_slopes
    cdef int32_t max_exact
    cdef int64_t max_branches, n_pairs
    cdef uint64_t seed
    cdef double[:, ::1] share             # share[a, b] = (a - 1)! b! / (a + b)!
    # The tree.
    cdef Node[::1] nodes
    cdef Term[::1] terms
    cdef double[:, ::1] projections       # of the background rows on all splits
    # The pair of rows.
    cdef const float* x
    cdef const float* z
    cdef const double* of_z               # projections of z
    cdef uint8_t[::1] state               # of every player
    cdef double[:, ::1] part              # values of the pair, of the players in `touched`
    cdef double[:, ::1] total, squares    # sums over pairs of permutations
    cdef int32_t[::1] touched, order
    cdef int32_t n_touched
    cdef int32_t[::1] decided             # players on the way to a node, and where each was decided
    cdef int32_t[::1] decided_at
    cdef int32_t n_decided, n_from_x
    cdef double[::1] leaf_value, next_value
    cdef int32_t[::1] path, side          # nodes from the root to a leaf, where each sends the row
    cdef double[::1] path_value           # and its projections
    cdef float[:, ::1] mixture

    def __init__(
        self, forest, X, Z, player, n_players, values, slopes, max_exact, n_pairs, seed
    ):
        self.arrays = arrays = forest.arrays
        self.scratch = Scratch()
        cdef Grid grid = as_grid(forest.feature_shape, forest.wrap, forest.unordered)
        self.directions = as_directions(arrays, forest.n_features, grid)
        self.unfolded = reserve_unfolded(self.scratch, forest.router.max_terms, &grid)
        self.X, self.Z, self.player, self.n_players = X, Z, player, n_players
        self.values, self.slopes = values, slopes
        self.slope_start, self.slope_feature = arrays["slope_start"], arrays["slope_feature"]
        self.has_slopes = len(arrays["slope_feature"]) > 0
        self.n_outputs = self.values.shape[1]
        self.max_exact, self.max_branches, self.n_pairs = max_exact, 2**max_exact - 1, n_pairs
        self.seed = seed
        self.share = np.array([
            [1 / (a * comb(a + b, a)) if a else 0 for b in range(MOST_DECIDED + 2)]
            for a in range(MOST_DECIDED + 2)
        ])
        self.state = np.zeros(n_players, dtype=np.uint8)
        self.part = np.zeros((n_players, self.n_outputs))
        self.total = np.zeros((n_players, self.n_outputs))
        self.squares = np.zeros((n_players, self.n_outputs))
        self.touched = np.zeros(n_players, dtype=np.int32)
        self.order = np.zeros(n_players, dtype=np.int32)
        self.decided = np.zeros(MOST_DECIDED, dtype=np.int32)
        self.decided_at = np.zeros(MOST_DECIDED, dtype=np.int32)
        self.leaf_value = np.zeros(self.n_outputs)
        self.next_value = np.zeros(self.n_outputs)
        self.mixture = np.zeros((1, forest.n_features), dtype=np.float32)

    def load(
        self, const int32_t[::1] child, const float[::1] threshold, const int32_t[::1] code,
        const int64_t[::1] start, const int32_t[::1] feature, const float[::1] weight,
        const double[::1] margin
    ):
        """Take a tree. The terms of split s are start[s] .. start[s + 1] - 1, by player."""
        cdef int64_t node, s, t, b, n_splits = threshold.shape[0]
        cdef Node* one
        cdef double total
        dtype = [
            ("threshold", "f8"), ("margin", "f8"), ("start", "i8"), ("end", "i8"), ("left", "i4"),
            ("code", "i4"), ("feature", "i4"), ("player", "i4")
        ]
        self.nodes = np.zeros(child.shape[0], dtype=dtype)
        self.terms = np.zeros(
            feature.shape[0], dtype=[("weight", "f8"), ("feature", "i4"), ("player", "i4")]
        )
        self.projections = np.zeros((self.Z.shape[0], n_splits))
        self.path = np.zeros(n_splits, dtype=np.int32)
        self.side = np.zeros(n_splits, dtype=np.int32)
        self.path_value = np.zeros(n_splits)
        for t in range(feature.shape[0]):
            self.terms[t].weight = weight[t]
            self.terms[t].feature = feature[t]
            self.terms[t].player = self.player[feature[t]]
        for node in range(child.shape[0]):
            one = &self.nodes[node]
            one.left = child[node]
            if one.left < 0:
                continue
            s = (one.left - 1) // 2
            one.threshold, one.margin, one.code = threshold[s], margin[s], code[s]
            one.start, one.end = start[s], start[s + 1]
            one.feature = -1
            if one.code < self.directions.n_features:
                one.feature, one.player, one.margin = one.code, self.player[one.code], 0
                continue
            for b in range(self.Z.shape[0]):
                total = 0
                for t in range(one.start, one.end):
                    total += self.terms[t].weight * self.Z[b, self.terms[t].feature]
                self.projections[b, s] = total

    def explain(
        self, uint64_t tree, double scale, double[:, :, ::1] out, double[:, :, ::1] variance,
        const uint8_t[::1] stop
    ):
        """out += scale * values, variance += scale^2 * their variance, of all rows.

        Returns the number of pairs of rows that were sampled.
        """
        cdef int64_t i, b, work = 0, n_sampled = 0
        cdef uint64_t seed
        with nogil:
            for i in range(self.X.shape[0]):
                if poll(&stop[0], &work, 100 * self.Z.shape[0]):
                    break
                seed = hash_seed(hash_seed(self.seed, <uint64_t>i), tree)
                self.x = &self.X[i, 0]
                for b in range(self.Z.shape[0]):
                    self.z = &self.Z[b, 0]
                    self.of_z = &self.projections[b, 0] if self.projections.shape[1] else NULL
                    if self.walk():
                        self.add_part(&out[i, 0, 0], scale)
                    else:
                        n_sampled += 1
                        self.sample(hash_seed(seed, <uint64_t>b))
                        self.add_sample(&out[i, 0, 0], &variance[i, 0, 0], scale)
        return n_sampled

    # ---------------------------------------------------------------------------------- exactly

    cdef bint walk(self) noexcept nogil:
        """Add the leaves of all mixtures to `part`; False if there are too many."""
        cdef int32_t node = 0, player = 0, top, side
        cdef int64_t n_branches = 0
        self.n_touched = self.n_decided = self.n_from_x = 0
        while True:
            if self.nodes[node].left < 0:
                self.add_leaf(-1 - <int64_t>self.nodes[node].left)
                while True:
                    if self.n_decided == 0:
                        return True
                    top = self.n_decided - 1
                    if self.state[self.decided[top]] == FROM_X:
                        break
                    self.state[self.decided[top]] = UNDECIDED
                    self.n_decided = top
                self.state[self.decided[top]] = FROM_Z
                self.n_from_x -= 1
                node = self.decided_at[top]
                continue
            side = self.find_side(&self.nodes[node], &player)
            if side <= RIGHT:
                node = self.nodes[node].left + side
                continue
            n_branches += 1
            if (
                side == GIVE_UP or n_branches > self.max_branches
                or self.n_decided == MOST_DECIDED
            ):
                for top in range(self.n_decided):
                    self.state[self.decided[top]] = UNDECIDED
                return False
            self.touch(player)
            self.state[player] = FROM_X
            self.decided[self.n_decided] = player
            self.decided_at[self.n_decided] = node
            self.n_decided += 1
            self.n_from_x += 1

    cdef inline void touch(self, int32_t player) noexcept nogil:
        """Set the values of a player to 0, the first time that the pair depends on it."""
        cdef int32_t i, k
        for i in range(self.n_touched):
            if self.touched[i] == player:
                return
        self.touched[self.n_touched] = player
        self.n_touched += 1
        for k in range(self.n_outputs):
            self.part[player, k] = 0

    cdef inline int32_t find_side(self, const Node* node, int32_t* player) noexcept nogil:
        """Where a node sends all mixtures with the decided players, or the player it depends on."""
        cdef bint x_right, z_right
        cdef double value, up = 0, down = 0, change, largest = -1
        cdef int32_t n = 0, p
        cdef int64_t t
        cdef bint differs
        cdef uint8_t state
        if node.feature >= 0:
            x_right = self.x[node.feature] > node.threshold
            z_right = self.z[node.feature] > node.threshold
            if x_right == z_right:
                return z_right
            player[0] = node.player
            state = self.state[node.player]
            return BRANCH if state == UNDECIDED else x_right if state == FROM_X else z_right
        value = self.of_z[(node.left - 1) >> 1]
        t = node.start
        while t < node.end:
            p = self.terms[t].player
            change = 0
            differs = False
            while True:
                change += self.terms[t].weight * (
                    <double>self.x[self.terms[t].feature] - self.z[self.terms[t].feature]
                )
                differs |= self.x[self.terms[t].feature] != self.z[self.terms[t].feature]
                t += 1
                if t == node.end or self.terms[t].player != p:
                    break
            if not differs:
                continue
            state = self.state[p]
            if state == FROM_X:
                value += change
            elif state == UNDECIDED:
                n += 1
                if change > 0:
                    up += change
                else:
                    down += change
                if fabs(change) > largest:
                    largest = fabs(change)
                    player[0] = p
        if value + up <= node.threshold - node.margin:
            return LEFT
        if value + down > node.threshold + node.margin:
            return RIGHT
        if n == 0:
            return self.exact_side(node)
        return BRANCH if n <= self.max_exact else GIVE_UP

    cdef int32_t exact_side(self, const Node* node) noexcept nogil:
        """The side that prediction finds for the mixture; undecided players are from z."""
        cdef int64_t offset = 0
        cdef int32_t f
        cdef float value
        cdef Table table
        table.dtype = FLOAT32
        table.n_samples = 1
        table.n_features = <int32_t>self.mixture.shape[1]
        table.data = &self.mixture[0, 0]
        for f in range(table.n_features):
            self.mixture[0, f] = (
                self.x[f] if self.state[self.player[f]] == FROM_X else self.z[f]
            )
        unfold(&self.unfolded, &self.directions, node.code, &table)
        project(&self.unfolded, &table, &offset, 1, &value)
        return value > <float>node.threshold

    cdef inline void add_leaf(self, int64_t row) noexcept nogil:
        """Add the value of a leaf to the players that decide whether a mixture reaches it."""
        cdef int32_t i, k, player
        cdef int32_t a = self.n_from_x, b = self.n_decided - a
        cdef double weight
        cdef const double* value = &self.values[row, 0]
        if self.has_slopes:
            self.evaluate_leaf(row, &self.leaf_value[0])
            value = &self.leaf_value[0]
        for i in range(self.n_decided):
            player = self.decided[i]
            weight = (
                self.share[a, b] if self.state[player] == FROM_X else -self.share[b, a]
            )
            for k in range(self.n_outputs):
                self.part[player, k] += weight * value[k]
        if self.has_slopes:
            self.add_slopes(row, a, b)

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
            at = self.x[f] if self.state[self.player[f]] == FROM_X else self.z[f]
            for k in range(self.n_outputs):
                value[k] += self.slopes[j, k] * at

    cdef void add_slopes(self, int64_t row, int32_t a, int32_t b) noexcept nogil:
        """Add what undecided players change in the linear function of a leaf.

        The change of such a player counts where it and all of the a players are from x, and all of
        the b players are from z: the a and the player itself share it, as above.
        """
        cdef int64_t j
        cdef int32_t i, k, f, own, player
        cdef double weight, change
        for j in range(self.slope_start[row], self.slope_start[row + 1]):
            f = self.slope_feature[j]
            own = self.player[f]
            if self.state[own] != UNDECIDED or self.x[f] == self.z[f]:
                continue
            self.touch(own)
            for k in range(self.n_outputs):
                change = self.slopes[j, k] * (<double>self.x[f] - self.z[f])
                self.part[own, k] += self.share[a + 1, b] * change
                for i in range(self.n_decided):
                    player = self.decided[i]
                    weight = (
                        self.share[a + 1, b] if self.state[player] == FROM_X
                        else -self.share[b, a + 1]
                    )
                    self.part[player, k] += weight * change

    cdef void add_part(self, double* out, double scale) noexcept nogil:
        """Add the values of the pair to those of the row."""
        cdef int32_t i, k
        cdef int64_t at
        for i in range(self.n_touched):
            at = <int64_t>self.touched[i] * self.n_outputs
            for k in range(self.n_outputs):
                out[at + k] += scale * self.part[self.touched[i], k]

    # --------------------------------------------------------------------------- by permutations

    cdef void sample(self, uint64_t seed) noexcept nogil:
        """Sums over pairs of permutations of the values, and of their squares."""
        cdef Random random
        cdef int32_t i, k, f, player, last
        cdef int64_t m
        random.state = seed
        self.n_touched = 0
        for f in range(self.player.shape[0]):
            player = self.player[f]
            if self.x[f] != self.z[f] and self.state[player] == UNDECIDED:
                self.state[player] = FROM_Z
                self.touched[self.n_touched] = self.order[self.n_touched] = player
                self.n_touched += 1
                for k in range(self.n_outputs):
                    self.total[player, k] = self.squares[player, k] = 0
        last = self.n_touched - 1
        for m in range(self.n_pairs):
            shuffle(&random, &self.order[0], self.n_touched, self.n_touched)
            for i in range(self.n_touched):
                for k in range(self.n_outputs):
                    self.part[self.touched[i], k] = 0
            self.follow()
            for i in range(self.n_touched // 2):
                player = self.order[i]
                self.order[i] = self.order[last - i]
                self.order[last - i] = player
            self.follow()
            for i in range(self.n_touched):
                player = self.touched[i]
                for k in range(self.n_outputs):
                    self.total[player, k] += self.part[player, k] / 2
                    self.squares[player, k] += self.part[player, k] * self.part[player, k] / 4
        for i in range(self.n_touched):
            self.state[self.touched[i]] = UNDECIDED

    cdef void follow(self) noexcept nogil:
        """Add what each player changes, in `order`, as it is taken from x, to `part`."""
        cdef int32_t i, k, l, player, node, side, depth
        cdef int64_t row, new
        cdef const Node* one
        for i in range(self.n_touched):
            self.state[self.order[i]] = FROM_Z
        row = self.descend(0, 0, &depth)
        self.evaluate_leaf(row, &self.leaf_value[0])
        for i in range(self.n_touched):
            player = self.order[i]
            self.state[player] = FROM_X
            new = row
            for l in range(depth):
                one = &self.nodes[self.path[l]]
                if not self.update(one, player, &self.path_value[l]):
                    continue
                side = self.side_of(one, self.path_value[l])
                if side != self.side[l]:
                    # What lies below is left, and needs no update.
                    self.side[l] = side
                    new = self.descend(one.left + side, l + 1, &depth)
                    break
            if new == row and not self.has_slopes:
                continue
            row = new
            self.evaluate_leaf(row, &self.next_value[0])
            for k in range(self.n_outputs):
                self.part[player, k] += self.next_value[k] - self.leaf_value[k]
                self.leaf_value[k] = self.next_value[k]

    cdef int64_t descend(self, int32_t node, int32_t level, int32_t* depth) noexcept nogil:
        """Row of values of the leaf that the mixture reaches from a node, with the path to it."""
        cdef const Node* one
        cdef double value
        cdef int64_t t
        cdef int32_t f
        while True:
            one = &self.nodes[node]
            if one.left < 0:
                depth[0] = level
                return -1 - <int64_t>one.left
            if one.feature >= 0:
                f = one.feature
                value = self.x[f] if self.state[one.player] == FROM_X else self.z[f]
            else:
                value = self.of_z[(one.left - 1) >> 1]
                for t in range(one.start, one.end):
                    if self.state[self.terms[t].player] == FROM_X:
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
        return self.exact_side(node)

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
        cdef int32_t i, k, player
        cdef double mean, excess
        cdef double n = <double>self.n_pairs
        cdef int64_t at
        for i in range(self.n_touched):
            player = self.touched[i]
            for k in range(self.n_outputs):
                at = <int64_t>player * self.n_outputs + k
                mean = self.total[player, k] / n
                excess = self.squares[player, k] / n - mean * mean
                out[at] += scale * mean
                if excess > 0:
                    variance[at] += scale * scale * excess / (n - 1)
