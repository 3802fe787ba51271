"""One tree as a game: its players, the terms of its splits, and mixtures of two rows.

See shapley.pyx for the game. Projections are float64 here and float32 in prediction. Where
rounding could decide, `predicted_side` projects the mixture as prediction does, so that each
mixture reaches the leaf that `predict` finds.
"""

from libc.stdint cimport int32_t, int64_t

import numpy as np

from ..base.direction cimport (
    FLOAT32, Grid, Table, as_directions, as_grid, project, reserve_unfolded, unfold
)
from ..base.memory cimport Scratch, allocate


cdef class TreeGame:
    """The game of the trees of a forest, one after another, for rows X with the background Z.

    X and Z are mapped rows, float32; `player` is the player of every feature. `values` are the
    rows of leaf values, (n_values, n_outputs), and `slopes` their linear functions, (n_slopes,
    n_outputs), both float64.
    """

    def __init__(self, forest, X, Z, player, int64_t n_players, values, slopes):
        cdef int64_t p
        cdef Grid grid = as_grid(forest.feature_shape, forest.wrap, forest.unordered)
        cdef Scratch scratch = Scratch()
        self.arrays = arrays = forest.arrays
        self.scratch = scratch
        self.directions = as_directions(arrays, forest.n_features, grid)
        self.unfolded = reserve_unfolded(scratch, forest.router.max_terms, &grid)
        self.X, self.Z, self.player = X, Z, player
        # Columns of Z, and rows of zeros behind them that loops over sixteen rows read.
        self.n_rows = self.Z.shape[0] + 16
        columns = np.zeros((forest.n_features, self.n_rows), dtype=np.float32)
        columns[:, : len(Z)] = Z.T
        self.columns = columns
        self.values, self.slopes = values, slopes
        self.slope_start, self.slope_feature = arrays["slope_start"], arrays["slope_feature"]
        self.has_slopes = len(arrays["slope_feature"]) > 0
        self.n_outputs = self.values.shape[1]
        self.n_all_players = n_players
        allocate[int32_t](scratch, n_players, [&self.number_of, &self.players, NULL])
        self.taken = scratch.doubles(n_players)
        self.part = scratch.doubles(n_players * self.n_outputs)
        self.mixture = scratch.floats(forest.n_features)
        for p in range(n_players):
            self.number_of[p] = -1

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
        self.terms = <Term*>scratch.bytes_of(n_terms * <int64_t>sizeof(Term))
        self.projections = scratch.doubles(self.n_rows * self.n_splits)
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
        """Projections of the background rows on the direction of a node."""
        cdef int64_t b, t
        cdef double total
        for b in range(self.Z.shape[0]):
            total = 0
            for t in range(node.start, node.end):
                total += self.terms[t].weight * self.Z[b, self.terms[t].feature]
            self.projections[split * self.n_rows + b] = total

    cdef int32_t predicted_side(self, const Node* node) noexcept nogil:
        """The side that prediction finds for the mixture of `taken` players from x."""
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
