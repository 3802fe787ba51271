"""Shapley values of one tree for a pair of rows, by permutations of the players; see shapley.pyx.

Of each of `n_pairs` permutations, the reverse is played, too. Projections are updated as players
change from z to x one after the other.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from ..base.memory cimport Scratch, allocate
from ..base.random cimport Random, shuffle
from .game cimport LEFT, RIGHT, Node, TreeGame


# Functions, not methods: those of a class that others extend are not called directly.

cdef inline int32_t side_of(SampledGame game, const Node* node, double value) noexcept nogil:
    """The side on which a projection of the mixture lies."""
    if value > node.threshold + node.margin:
        return RIGHT
    if value <= node.threshold - node.margin:
        return LEFT
    return game.predicted_side(node)


cdef inline bint update(
    SampledGame game, const Node* node, int32_t player, double* value
) noexcept nogil:
    """Take a player from x in the projection on a direction; False if it has no weight."""
    cdef int64_t t = node.start, end = node.end, middle
    cdef int32_t f
    if node.feature >= 0:
        if node.players[0] != player:
            return False
        value[0] = game.x[node.feature]
        return True
    while t < end:
        middle = t + ((end - t) >> 1)
        if game.terms[middle].player < player:
            t = middle + 1
        else:
            end = middle
    if t == node.end or game.terms[t].player != player:
        return False
    while t < node.end and game.terms[t].player == player:
        f = game.terms[t].feature
        value[0] += game.terms[t].weight * (<double>game.x[f] - game.z[f])
        t += 1
    return True


cdef class SampledGame(TreeGame):
    """`TreeGame` with values from pairs of permutations."""

    def __init__(self, forest, X, Z, player, int64_t n_players, values, slopes, n_pairs):
        TreeGame.__init__(self, forest, X, Z, player, n_players, values, slopes)
        cdef Scratch scratch = self.scratch
        self.n_pairs = n_pairs
        allocate[double](
            scratch, n_players * self.n_outputs, [&self.total, &self.squares, NULL]
        )
        allocate[double](scratch, self.n_outputs, [&self.leaf_value, &self.next_value, NULL])
        allocate[int32_t](scratch, n_players, [&self.touched, &self.order, NULL])
        self.touched_by = scratch.longs(n_players)

    def load(self, child, threshold, code, start, feature, weight, margin):
        """As `TreeGame.load`."""
        TreeGame.load(self, child, threshold, code, start, feature, weight, margin)
        allocate[int32_t](self.of_tree, self.n_splits, [&self.path, &self.side, NULL])
        self.path_value = self.of_tree.doubles(self.n_splits)

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
            player = self.number_of[self.player[f]]
            if player >= 0 and self.x[f] != self.z[f]:
                self.touch(player)
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
                if not update(self, one, player, &self.path_value[level]):
                    continue
                side = side_of(self, one, self.path_value[level])
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
                value = self.x[f] if self.taken[one.players[0]] == 1 else self.z[f]
            else:
                value = self.of_z[((one.left - 1) >> 1) * self.n_rows]
                for t in range(one.start, one.end):
                    if self.taken[self.terms[t].player] == 1:
                        f = self.terms[t].feature
                        value += self.terms[t].weight * (<double>self.x[f] - self.z[f])
            self.path[level] = node
            self.path_value[level] = value
            self.side[level] = side_of(self, one, value)
            node = one.left + self.side[level]
            level += 1

    cdef void touch(self, int32_t player) noexcept nogil:
        """Set the values of a player to 0, the first time that the pair depends on it."""
        cdef int32_t k
        if self.touched_by[player] == self.pair:
            return
        self.touched_by[player] = self.pair
        self.touched[self.n_touched] = player
        self.n_touched = self.n_touched + 1
        for k in range(self.n_outputs):
            self.part[player * <int64_t>self.n_outputs + k] = 0

    cdef void evaluate_leaf(self, int64_t row, double* value) noexcept nogil:
        """Value of a leaf at the mixture."""
        cdef int64_t j
        cdef int32_t k, f
        cdef double at
        for k in range(self.n_outputs):
            value[k] = self.values[row, k]
        if not self.has_slopes:
            return
        for j in range(self.slope_start[row], self.slope_start[row + 1]):
            f = self.slope_feature[j]
            at = self.x[f] if self.taken[self.number_of[self.player[f]]] == 1 else self.z[f]
            for k in range(self.n_outputs):
                value[k] += self.slopes[j, k] * at

    cdef void add_sample(self, double* out, double* variance, double scale) noexcept nogil:
        """Add the means over pairs of permutations, and their variances, to those of the row."""
        cdef int32_t i, k
        cdef double mean, excess
        cdef double n = <double>self.n_pairs
        cdef int64_t at, to
        for i in range(self.n_touched):
            at = <int64_t>self.touched[i] * self.n_outputs
            to = <int64_t>self.players[self.touched[i]] * self.n_outputs
            for k in range(self.n_outputs):
                mean = self.total[at + k] / n
                excess = self.squares[at + k] / n - mean * mean
                out[to + k] += scale * mean
                if excess > 0:
                    variance[to + k] += scale * scale * excess / (n - 1)
