"""One tree as a game, and its values for a pair of rows by permutations; see shapley.pyx.

`n_pairs` permutations of the players are played, each followed by its reverse. Projections are
updated as players change from z to x one after the other. They are float64 here and float32 in
prediction. If rounding could decide, `predicted_side` projects the mixture as prediction does, so
that each mixture reaches the leaf that `predict` finds.
"""

from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t, uint64_t

import numpy as np

from ..base.direction cimport (
    FLOAT32, Grid, Table, as_directions, as_grid, project, reserve_unfolded, unfold
)
from ..base.memory cimport Scratch, allocate
from ..base.random cimport Random, shuffle


# These are functions, because methods of a class with subclasses cannot be called directly.

cdef inline int32_t side_of(TreeGame game, const Node* node, double value) noexcept nogil:
    """Return the side of a projection of the mixture."""
    if value > node.threshold + node.margin:
        return RIGHT
    if value <= node.threshold - node.margin:
        return LEFT
    return game.predicted_side(node)


cdef inline bint update(
    TreeGame game, const Node* node, int32_t player, double* value
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


cdef class TreeGame:
    """The game of the trees of a forest, one after another, for rows X with the background Z.

    X and Z are mapped rows, float32; `player` has the player of every feature. `values` are the
    rows of leaf values, (n_values, n_outputs), and `slopes` their linear functions, (n_slopes,
    n_outputs), both float64. `n_pairs` is the number of permutations in `sample`.
    """

    def __init__(self, forest, X, Z, player, int64_t n_players, values, slopes, n_pairs):
        cdef int64_t p
        cdef Grid grid = as_grid(forest.feature_shape, forest.wrap, forest.unordered)
        cdef Scratch scratch = Scratch()
        self.arrays = arrays = forest.arrays
        self.scratch = scratch
        self.directions = as_directions(arrays, forest.n_features, grid)
        self.unfolded = reserve_unfolded(scratch, forest.router.max_terms, &grid)
        self.X, self.Z, self.player = X, Z, player
        # Columns of Z, followed by zeros, because loops read sixteen rows.
        self.n_rows = self.Z.shape[0] + 16
        columns = np.zeros((forest.n_features, self.n_rows), dtype=np.float32)
        columns[:, : len(Z)] = Z.T
        self.columns = columns
        self.values, self.slopes = values, slopes
        self.slope_start, self.slope_feature = arrays["slope_start"], arrays["slope_feature"]
        self.has_slopes = len(arrays["slope_feature"]) > 0
        self.n_outputs = self.values.shape[1]
        self.n_all_players = n_players
        self.n_pairs = n_pairs
        allocate[int32_t](scratch, n_players, [
            &self.number_of, &self.players, &self.touched, &self.order, NULL
        ])
        allocate[double](
            scratch, n_players * self.n_outputs, [&self.part, &self.total, &self.squares, NULL]
        )
        allocate[double](scratch, self.n_outputs, [&self.leaf_value, &self.next_value, NULL])
        self.taken = scratch.doubles(n_players)
        self.touched_by = scratch.longs(n_players)
        self.mixture = scratch.floats(forest.n_features)
        for p in range(n_players):
            self.number_of[p] = -1

    def load(
        self, const int32_t[::1] child, const float[::1] threshold, const int32_t[::1] code,
        const int64_t[::1] start, const int32_t[::1] feature, const float[::1] weight,
        const double[::1] margin
    ):
        """Load a tree. The terms of split s are start[s] .. start[s + 1] - 1, by player."""
        cdef int64_t node, s, t, n_nodes = child.shape[0], n_terms = feature.shape[0]
        cdef Scratch scratch = Scratch()
        cdef Node* one
        self.of_tree = scratch
        self.n_splits = threshold.shape[0]
        self.nodes = <Node*>scratch.bytes_of(n_nodes * <int64_t>sizeof(Node))
        self.terms = <Term*>scratch.bytes_of(n_terms * <int64_t>sizeof(Term))
        self.changes = <Change*>scratch.bytes_of(n_terms * <int64_t>sizeof(Change))
        self.projections = scratch.doubles(self.n_rows * self.n_splits)
        allocate[int32_t](scratch, self.n_splits, [&self.path, &self.side, NULL])
        self.path_value = scratch.doubles(self.n_splits)
        self.number_players(child, feature)
        for t in range(n_terms):
            self.terms[t].weight = weight[t]
            self.terms[t].feature = feature[t]
            self.terms[t].player = self.number_of[self.player[feature[t]]]
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
                one.feature, one.margin = one.code, 0
                one.players[0] = self.number_of[self.player[one.code]]
                one.n_players = 1
            else:
                self.count_players(one)
                self.project_background(one, s)

    cdef void number_players(
        self, const int32_t[::1] child, const int32_t[::1] feature
    ) noexcept nogil:
        """Number the players of the tree, in their order."""
        cdef int64_t i, t, row
        cdef int32_t p
        for p in range(self.n_players):
            self.number_of[self.players[p]] = -1
        for t in range(feature.shape[0]):
            self.number_of[self.player[feature[t]]] = 0
        for i in range(child.shape[0] if self.has_slopes else 0):
            if child[i] < 0:
                row = -1 - <int64_t>child[i]
                for t in range(self.slope_start[row], self.slope_start[row + 1]):
                    self.number_of[self.player[self.slope_feature[t]]] = 0
        self.n_players = 0
        for p in range(self.n_all_players):
            if self.number_of[p] == 0:
                self.number_of[p] = self.n_players
                self.players[self.n_players] = p
                self.n_players = self.n_players + 1

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
        """Project the background rows on the direction of a node."""
        cdef int64_t b, t
        cdef double total
        for b in range(self.Z.shape[0]):
            total = 0
            for t in range(node.start, node.end):
                total += self.terms[t].weight * self.Z[b, self.terms[t].feature]
            self.projections[split * self.n_rows + b] = total

    cdef int32_t find_changes(self, const Node* node) noexcept nogil:
        """Compute the change of the projection by each player, largest changes first.

        A player that does not change the sum may still change its rounding.
        """
        cdef int64_t t = node.start
        cdef int32_t p, i, n = 0
        cdef double size
        cdef bint differs
        cdef Change* change = self.changes
        cdef const Term* terms = self.terms
        while t < node.end:
            p = terms[t].player
            size = 0
            differs = False
            while t < node.end and terms[t].player == p:
                differs |= self.x[terms[t].feature] != self.z[terms[t].feature]
                size += terms[t].weight * (
                    <double>self.x[terms[t].feature] - self.z[terms[t].feature]
                )
                t += 1
            if differs:
                i = n
                while i > 0 and fabs(change[i - 1].size) < fabs(size):
                    change[i] = change[i - 1]
                    i -= 1
                change[i].size, change[i].player = size, p
                n += 1
        return n

    cdef int32_t predicted_side(self, const Node* node) noexcept nogil:
        """Return the side that prediction finds for the mixture of `taken` players from x."""
        cdef int64_t t, offset = 0
        cdef int32_t f
        cdef float value
        cdef Table table
        table.dtype = FLOAT32
        table.n_samples = 1
        table.n_features = <int32_t>self.player.shape[0]
        table.data = self.mixture
        for t in range(node.start, node.end):
            f = self.terms[t].feature
            self.mixture[f] = self.x[f] if self.taken[self.terms[t].player] == 1 else self.z[f]
        unfold(&self.unfolded, &self.directions, node.code, &table)
        project(&self.unfolded, &table, &offset, 1, &value)
        return value > <float>node.threshold

    # --------------------------------------------------------------------------- by permutations

    cdef void sample(self, uint64_t seed, int32_t fixed) noexcept nogil:
        """Add up values, and their squares, over pairs of permutations.

        With a `fixed` player, these are halves of the differences between the values of the others
        when it is always from x, and when it is always from z. -1: none is fixed.
        """
        cdef Random random
        cdef int32_t i, k, f, player, last, is_out
        cdef int64_t _, at
        cdef double mean, factor
        random.state = seed
        self.pair = self.pair + 1
        self.n_touched = 0
        for f in range(<int32_t>self.player.shape[0]):
            player = self.number_of[self.player[f]]
            if player >= 0 and self.x[f] != self.z[f]:
                self.touch(player)
        if fixed >= 0 and self.touched_by[fixed] != self.pair:
            self.n_touched = 0
        self.n_order = 0
        for i in range(self.n_touched):
            if self.touched[i] != fixed:
                self.order[self.n_order] = self.touched[i]
                self.n_order = self.n_order + 1
            at = <int64_t>self.touched[i] * self.n_outputs
            for k in range(self.n_outputs):
                self.total[at + k] = self.squares[at + k] = 0
        last = self.n_order - 1
        for _ in range(self.n_pairs):
            shuffle(&random, self.order, self.n_order, self.n_order)
            for is_out in range(2 if fixed >= 0 else 1):
                factor = 1.0 if fixed < 0 else -0.5 if is_out else 0.5
                if fixed >= 0:
                    self.taken[fixed] = 1 - is_out
                self.follow(factor)
                for i in range(self.n_order // 2):
                    player = self.order[i]
                    self.order[i] = self.order[last - i]
                    self.order[last - i] = player
                self.follow(factor)
            for i in range(self.n_touched):
                at = <int64_t>self.touched[i] * self.n_outputs
                for k in range(self.n_outputs):
                    mean = self.part[at + k] / 2
                    self.total[at + k] = self.total[at + k] + mean
                    self.squares[at + k] = self.squares[at + k] + mean * mean
                    self.part[at + k] = 0

    cdef void follow(self, double factor) noexcept nogil:
        """Take players from x in `order`; add the change of each, times a factor, to `part`."""
        cdef int32_t i, k, level, player, side, depth
        cdef int64_t row, new
        cdef double* part
        cdef const Node* one
        row = self.descend(0, 0, &depth)
        self.evaluate_leaf(row, self.leaf_value)
        for i in range(self.n_order):
            player = self.order[i]
            self.taken[player] = 1
            new = row
            for level in range(depth):
                one = self.nodes + self.path[level]
                if not update(self, one, player, &self.path_value[level]):
                    continue
                side = side_of(self, one, self.path_value[level])
                if side != self.side[level]:
                    # The path leaves the nodes below, which need no update.
                    self.side[level] = side
                    new = self.descend(one.left + side, level + 1, &depth)
                    break
            if new == row and not self.has_slopes:
                continue
            row = new
            self.evaluate_leaf(row, self.next_value)
            part = self.part + <int64_t>player * self.n_outputs
            for k in range(self.n_outputs):
                part[k] += factor * (self.next_value[k] - self.leaf_value[k])
                self.leaf_value[k] = self.next_value[k]
        for i in range(self.n_order):
            self.taken[self.order[i]] = 0

    cdef int64_t descend(self, int32_t node, int32_t level, int32_t* depth) noexcept nogil:
        """Follow the mixture from a node to a leaf; store the path, return the row of values."""
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
        """Set the values of a player to 0 when the pair first depends on it."""
        cdef int32_t k
        if self.touched_by[player] == self.pair:
            return
        self.touched_by[player] = self.pair
        self.touched[self.n_touched] = player
        self.n_touched = self.n_touched + 1
        for k in range(self.n_outputs):
            self.part[player * <int64_t>self.n_outputs + k] = 0

    cdef void evaluate_leaf(self, int64_t row, double* value) noexcept nogil:
        """Compute the value of a leaf at the mixture."""
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
