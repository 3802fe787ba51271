"""Trees of gradient boosting, from histograms of binned columns.

A tree is grown on the gradients g_i (one for each of K outputs) and the curvatures h_i of a loss
at the current predictions. Its columns are the features, binned once, and sparse directions of a
few features, or boxes, which are drawn and binned for every tree. A histogram has, for every bin
of every column, the sums of g and h and the number of rows of a node; a cut between two bins has
the gain

    |G_L|^2 / (H_L + l2) + |G_R|^2 / (H_R + l2) - |G|^2 / (H + l2)

(Newton boosting; the outputs share one curvature). With monotonic constraints, which need a single
output, the values -G / (H + l2) of the children are clipped to bounds: below a split on a
constrained feature or direction, the middle of both values is a bound. Only the smaller of two
siblings is summed over its rows; the histogram of the other is the difference to the parent. Sums
are float64, in the order of the rows, so they depend neither on threads nor on the order of
columns.

A tree is started (`start`), its directions are binned by rows (`write_bins`), and its open (new)
nodes are searched by columns (`search`). Then nodes are split, and their children are the next
open nodes (`split_nodes`). All these steps can run in several threads. Without a limit of the
leaves, all open nodes of a level are split; otherwise, the leaf with the largest gain. Every node
is searched once. Rows are partitioned by comparing projections with thresholds in float32, exactly
as in prediction; the bins of directions decide where rounding cannot matter. Rows outside the
sample of the tree are routed, too, to find their leaves.
"""

from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

import numpy as np

from .bins cimport BinnedDirections
from .cuts cimport Bins, Cut, find_bounded_cut, find_cut
from .partition cimport RowPartition
from ..base.random cimport Random, hash_seed


cdef extern from "boosting/histogram.h" nogil:
    enum: SKF_MOST_TERMS

    void skf_sum_bins(
        const float*, const uint8_t* const*, int, const int32_t*, int64_t, int, double* const*
    )
    void skf_write_terms(
        const float*, const float*, int64_t, const float*, int, int, const int32_t*, int64_t,
        int, float*
    )
    void skf_gather_terms(const float*, const int32_t*, int64_t, int, float*)
    void skf_add_up(const float*, const int32_t*, int64_t, int, double*)

cdef enum:
    BLOCK = 4096              # rows whose terms are read again for every column


cdef extern from *:
    """
    #define MIN_GAIN 1e-9      /* smaller gains of splits are rounding errors */
    """
    const double MIN_GAIN


cdef struct Node:
    int64_t start             # rows of the sample: positions start .. end - 1
    int64_t end
    int64_t out_start         # likewise, for rows outside the sample, which follow it
    int64_t out_end
    int32_t depth
    int32_t child             # the left child, which the right one follows; -1: a leaf
    int32_t slot              # slot of its histogram
    int32_t sibling           # the smaller sibling, whose histogram is subtracted; or -1
    bint is_summed            # its histogram is a sum over its rows
    bint is_searched
    bint is_waiting           # a leaf that may be split, if leaves are limited
    double gain               # gain of the best split
    int32_t column
    int32_t bin               # last bin on the left
    double middle             # between the values of the children
    double lower              # bounds of the values of leaves below
    double upper


def aligned(int64_t n):
    """Return memory for n doubles from an address on that is a multiple of 64 bytes."""
    memory = np.empty(n + 7)
    first = -memory.ctypes.data % 64 // 8
    return memory[first : first + n]


def in_one_part(function, n):
    """Call ``function(0, n)``."""
    function(0, n)


cdef class TreeGrower:
    """Grows the trees of one boosted model on the same rows.

    rows : the `BoostingRows`, whose features have bins; settings : `BoostingSettings`;
    directions : directions of the tree, for the same rows.
    """

    cdef BinnedDirections directions
    cdef int64_t n_rows
    cdef int32_t n_features
    cdef const uint8_t[:, ::1] code
    cdef const float[::1] cut
    cdef const int32_t[::1] cut_start
    cdef bint is_bounded               # whether there is a constraint
    # Columns of the tree, features before directions, and starts of their bins in a histogram.
    cdef int32_t[::1] columns
    cdef int32_t n_columns
    cdef int64_t[::1] bin_start
    cdef int32_t n_search              # outputs of the gradients
    # A bin has gradients, curvature and count; no curvature if all are 1, like the count. Zeros
    # fill the stride, so that a bin is a vector.
    cdef int32_t count_at
    cdef int32_t stride
    cdef int64_t n_in
    cdef int64_t n_out
    cdef float[::1] row_terms             # (n_rows, stride): what a row adds to its bins
    cdef RowPartition rows
    cdef int32_t[::1] row              # those of `rows`
    # All nodes by number; open nodes are last.
    cdef object node_bytes
    cdef Node* nodes
    cdef int32_t n_nodes
    cdef int32_t n_open
    cdef double[::1] histogram         # all slots, of slot_length each; it grows as needed
    cdef int64_t slot_length           # n_bins * stride
    cdef int32_t n_slots
    cdef list free_slots               # slots of nodes that have become leaves
    cdef double[:, ::1] total          # (n_open, stride): sums over all rows of a node
    cdef object found_bytes            # best split of every node in every column
    cdef Cut* found
    cdef double l2
    cdef int64_t min_leaf
    cdef int32_t max_depth
    cdef int32_t max_leaves            # 0: no limit
    cdef list parent, split_column     # for open nodes, see `open_splits`
    cdef bint is_restricted            # open nodes search only some of the columns
    cdef const uint8_t[:, ::1] allowed
    cdef object used                   # numbers of the directions of a finished tree

    def __init__(self, rows, settings, BinnedDirections directions not None):
        self.n_features, self.n_rows = rows.code.shape
        self.code, self.cut, self.cut_start = rows.code, rows.cut, rows.cut_start
        self.l2, self.min_leaf = settings.l2, settings.min_samples_leaf
        self.max_depth, self.max_leaves = settings.depth, settings.max_leaves
        self.directions = directions
        self.is_bounded = directions.is_bounded
        self.is_restricted = False
        self.histogram, self.row_terms = np.empty(1), np.empty(1, dtype=np.float32)
        self.rows = RowPartition(self.code, directions)
        self.row, self.node_bytes = self.rows.row, np.zeros(0, dtype=np.uint8)
        n_columns = self.n_features + directions.n_directions
        self.columns = np.arange(n_columns, dtype=np.int32)
        self.bin_start = np.zeros(n_columns + 1, dtype=np.int64)

    # --------------------------------------------------------------------------- starting a tree

    def start(
        self, const float[:, ::1] gradient, const float[:, ::1] curvature, mix, chance, seed,
        const int32_t[::1] rows, const int32_t[::1] out_rows, const uint8_t[::1] is_searched
    ):
        """Start a tree.

        gradient, curvature : (n_rows, n_outputs), the mean curvature counts; mix : (n_outputs,
        n_search), projects the gradients, or None; chance : cumulative chances of features, by
        group; rows, out_rows : sample and other rows, ascending; is_searched : (n_features,).
        """
        cdef Random random
        cdef const double[::1] cumulative = chance
        cdef int32_t column, n_cuts, c = 0
        random.state = hash_seed(seed, 0)
        self.n_in, self.n_out = len(rows), len(out_rows)
        self.row[: self.n_in], self.row[self.n_in :] = rows, out_rows
        self.write_terms(gradient, curvature, mix)
        with nogil:
            self.directions.draw(&random, cumulative)
        self.directions.find_bins(&random, self.row[: self.n_in])
        for column in range(self.columns.shape[0]):
            if column < self.n_features:
                n_cuts = self.cut_start[column + 1] - self.cut_start[column]
            else:
                n_cuts = self.directions.n_cuts[column - self.n_features]
            if is_searched[column] if column < self.n_features else n_cuts > 0:
                self.columns[c], self.bin_start[c + 1] = column, self.bin_start[c] + n_cuts + 1
                c += 1
        self.n_columns = c
        self.slot_length = self.bin_start[c] * self.stride
        self.reserve_nodes(1)
        self.n_nodes = self.n_open = self.n_slots = 1
        self.free_slots = []
        memset(self.nodes, 0, sizeof(Node))
        self.nodes[0].start, self.nodes[0].end = 0, self.n_in
        self.nodes[0].out_start, self.nodes[0].out_end = self.n_in, self.n_rows
        self.nodes[0].child = self.nodes[0].sibling = -1
        self.nodes[0].is_summed = True
        self.nodes[0].lower, self.nodes[0].upper = -INFINITY, INFINITY
        self.open_nodes()

    cdef int write_terms(
        self, const float[:, ::1] gradient, const float[:, ::1] curvature, mix
    ) except -1:
        """Write the terms of the rows of the sample."""
        cdef int64_t at, k, n_outputs = gradient.shape[1]
        cdef float[:, ::1] factor = np.zeros((n_outputs, SKF_MOST_TERMS), dtype=np.float32)
        cdef bint is_unit = True
        self.n_search = <int32_t>(n_outputs if mix is None else mix.shape[1])
        if mix is not None:
            factor.base[:, : self.n_search] = mix
        with nogil:
            for at in range(self.n_in):
                for k in range(n_outputs):
                    is_unit = is_unit and curvature[self.row[at], k] == 1
                if not is_unit:
                    break
        self.count_at = self.n_search + (0 if is_unit else 1)
        self.stride = 2
        while self.stride <= self.count_at:
            self.stride *= 2
        if self.row_terms.shape[0] != self.n_rows * self.stride:
            self.row_terms = np.empty(self.n_rows * self.stride, dtype=np.float32)
        with nogil:
            skf_write_terms(
                &gradient[0, 0], &curvature[0, 0], n_outputs,
                NULL if mix is None else &factor[0, 0], self.n_search, self.count_at,
                &self.row[0], self.n_in, self.stride, &self.row_terms[0]
            )
        return 0

    def write_bins(self, int64_t first, int64_t last):
        """Write the bins of the rows first .. last - 1, in all directions."""
        with nogil:
            self.directions.write_bins(first, last)

    # ------------------------------------------------------------------------------- open nodes

    cdef int reserve_nodes(self, int64_t n) except -1:
        """Reserve memory for n nodes; existing nodes move to another address."""
        cdef uint8_t[::1] view
        cdef int64_t n_bytes = n * <int64_t>sizeof(Node), n_before = len(self.node_bytes)
        if n_bytes > n_before:
            longer = np.zeros(2 * n_bytes, dtype=np.uint8)
            longer[:n_before] = self.node_bytes
            self.node_bytes = longer
        view = self.node_bytes
        self.nodes = <Node*>&view[0]
        return 0

    cdef int open_nodes(self, in_parts=None) except -1:
        """Compute the sums of all open nodes, and reserve memory for their histograms."""
        cdef int32_t i, first = self.n_nodes - self.n_open
        cdef uint8_t[::1] view
        cdef Node* node
        cdef bint is_searched = False
        self.total = np.zeros((self.n_open, self.stride))
        in_parts = in_parts or in_one_part
        in_parts(self.add_up, self.n_open)
        with nogil:
            for i in range(self.n_open):
                node = self.nodes + first + i
                node.is_searched = (
                    node.depth < self.max_depth and node.end - node.start >= 2 * self.min_leaf
                )
                is_searched = is_searched or node.is_searched
            for i in range(self.n_open):
                node = self.nodes + first + i
                if node.sibling >= 0 and not node.is_searched:
                    # The smaller sibling is not searched either.
                    self.nodes[node.sibling].is_summed = False
        if is_searched and self.n_slots * self.slot_length > self.histogram.shape[0]:
            longer = aligned(2 * self.n_slots * self.slot_length)
            longer[: self.histogram.shape[0]] = self.histogram
            self.histogram = longer
        n_found = max(self.n_open, 1) * max(self.n_columns, 1)
        self.found_bytes = np.zeros(n_found * sizeof(Cut), np.uint8)
        view = self.found_bytes
        self.found = <Cut*>&view[0]
        return 0

    def add_up(self, int32_t first, int32_t last):
        """Add up the terms of the open nodes first .. last - 1."""
        cdef int32_t i
        cdef const Node* open = self.nodes + self.n_nodes - self.n_open
        with nogil:
            for i in range(first, last):
                if open[i].end > open[i].start:
                    skf_add_up(
                        &self.row_terms[0], &self.row[open[i].start], open[i].end - open[i].start,
                        self.stride, &self.total[i, 0]
                    )

    def is_done(self):
        """Return whether there is no node to split."""
        cdef int32_t number
        if self.n_columns == 0 or (0 < self.max_leaves <= (self.n_nodes + 1) // 2):
            return True
        for number in range(self.n_nodes - self.n_open, self.n_nodes):
            if self.nodes[number].is_searched:
                return False
        return self.best_waiting() < 0

    def column_features(self):
        """Return the features of the columns of the tree: bool, (n_columns, n_features)."""
        columns = np.asarray(self.columns)[: self.n_columns]
        is_axis = columns < self.n_features
        used = np.zeros((len(columns), self.n_features), dtype=bool)
        used[is_axis, columns[is_axis]] = True
        own = np.flatnonzero(~is_axis)
        start, feature, _ = self.directions.terms(columns[own] - self.n_features)
        used[np.repeat(own, np.diff(start)), feature] = True
        return used

    def open_splits(self):
        """Return the parent of each open node, and the column that split it."""
        own = np.asarray(self.columns)[: self.n_columns]
        columns = np.searchsorted(own, np.array(self.split_column, dtype=np.int32))
        return np.array(self.parent, dtype=np.intp), columns

    def restrict(self, allowed):
        """Search only where `allowed`, uint8 of shape (n_open, n_columns), is not 0."""
        self.allowed = allowed
        self.is_restricted = True

    def n_searched_columns(self):
        """Return the number of columns for `search`."""
        return self.n_columns

    @property
    def n_codes(self):
        """int: number of bins that rows have in all columns."""
        return self.n_rows * (self.n_features + self.directions.n_directions)

    def search(self, int32_t first, int32_t last):
        """Find the best cuts of all open nodes in the columns first .. last - 1."""
        cdef int32_t c, i
        cdef Node* open = self.nodes + self.n_nodes - self.n_open
        cdef float[::1] terms = np.empty(BLOCK * self.stride, dtype=np.float32)
        if first == last:
            return
        with nogil:
            for i in range(self.n_open):
                if open[i].is_summed:
                    self.sum_rows(open + i, first, last, &terms[0])
            for c in range(first, last):
                for i in range(self.n_open):
                    if open[i].sibling >= 0 and open[i].is_searched:
                        self.subtract(open + i, self.nodes + open[i].sibling, c)
                for i in range(self.n_open):
                    if open[i].is_searched:
                        self.search_column(open + i, i, c)

    cdef const uint8_t* codes_of(self, int32_t c) noexcept nogil:
        cdef int32_t column = self.columns[c]
        if column < self.n_features:
            return &self.code[column, 0]
        return &self.directions.code[column - self.n_features, 0]

    cdef double* sums_of(self, const Node* node, int32_t c) noexcept nogil:
        """Return the histogram of a node in a column."""
        return &self.histogram[node.slot * self.slot_length + self.bin_start[c] * self.stride]

    cdef void sum_rows(
        self, const Node* node, int32_t first, int32_t last, float* terms
    ) noexcept nogil:
        """Compute the histograms of the columns first .. last - 1 from the rows of a node.

        terms : memory for those of a block
        """
        cdef int64_t at = node.start, n
        cdef int32_t c, k, n_columns
        cdef const uint8_t* codes[4]
        cdef double* sums[4]
        n = (self.bin_start[last] - self.bin_start[first]) * self.stride
        memset(self.sums_of(node, first), 0, n * sizeof(double))
        while at < node.end:
            n = min(<int64_t>BLOCK, node.end - at)
            skf_gather_terms(&self.row_terms[0], &self.row[at], n, self.stride, terms)
            c = first
            while c < last:
                n_columns = min(4, last - c)
                for k in range(n_columns):
                    codes[k], sums[k] = self.codes_of(c + k), self.sums_of(node, c + k)
                skf_sum_bins(terms, codes, n_columns, &self.row[at], n, self.stride, sums)
                c += n_columns
            at += n

    cdef void subtract(self, const Node* node, const Node* sibling, int32_t c) noexcept nogil:
        """Subtract the histogram of a sibling from that of the parent, in place."""
        cdef int64_t i, n = (self.bin_start[c + 1] - self.bin_start[c]) * self.stride
        cdef double* sums = self.sums_of(node, c)
        cdef const double* other = self.sums_of(sibling, c)
        for i in range(n):
            sums[i] -= other[i]

    cdef void search_column(self, const Node* node, int32_t i, int32_t c) noexcept nogil:
        """Find the best cut of the open node i in a column."""
        cdef Cut* best = self.found + <int64_t>i * self.n_columns + c
        cdef Bins bins
        bins.sums = self.sums_of(node, c)
        bins.n = self.bin_start[c + 1] - self.bin_start[c]
        bins.stride, bins.n_search, bins.count_at = self.stride, self.n_search, self.count_at
        bins.total = &self.total[i, 0]
        bins.l2, bins.min_leaf = self.l2, self.min_leaf
        best.column = self.columns[c]
        if self.is_restricted and not self.allowed[i, c]:
            best.gain = -1
        elif self.is_bounded:
            find_bounded_cut(&bins, node.lower, node.upper, self.sign_of(best.column), best)
        else:
            find_cut(&bins, best)

    # ------------------------------------------------------------------------ the next open nodes

    def split_nodes(self, in_parts=None):
        """Split the open nodes, or the leaf of largest gain, and open their children.

        ``in_parts(function, n)`` calls ``function(first, last)`` for parts of range(n).
        """
        cdef int32_t number, end = self.n_nodes, first = end - self.n_open
        for number in range(first, end):
            self.choose_split(self.nodes + number, number - first)
            if not self.nodes[number].gain > MIN_GAIN:
                self.free_slots.append(self.nodes[number].slot)
            else:
                self.nodes[number].is_waiting = self.max_leaves > 0
        self.parent, self.split_column = [], []
        chosen = []
        if self.max_leaves == 0:
            self.reserve_nodes(end + 2 * self.n_open)
            chosen = [n for n in range(first, end) if self.nodes[n].gain > MIN_GAIN]
            self.split_all(chosen, in_parts)
        else:
            self.reserve_nodes(end + 2)
            number = self.best_waiting()
            while number >= 0 and self.n_nodes == end:
                self.nodes[number].is_waiting = False
                self.split_all([number], in_parts)
                number = self.best_waiting()
        self.n_open = self.n_nodes - end
        self.open_nodes(in_parts)

    cdef int32_t best_waiting(self) noexcept nogil:
        """Return the waiting leaf with the largest gain, the oldest if several; -1 if none."""
        cdef int32_t number, best = -1
        for number in range(self.n_nodes):
            if self.nodes[number].is_waiting and (
                best < 0 or self.nodes[number].gain > self.nodes[best].gain
            ):
                best = number
        return best

    cdef void choose_split(self, Node* node, int64_t i) noexcept nogil:
        """Store the best cut of all columns in the open node i; without one, its gain is -1."""
        cdef int32_t c
        cdef Cut* found = self.found + i * self.n_columns
        node.gain = -1
        if not node.is_searched:
            return
        for c in range(self.n_columns):
            if found[c].gain > node.gain:
                node.gain, node.column, node.bin = found[c].gain, found[c].column, found[c].bin
                node.middle = found[c].middle

    cdef int split_all(self, list chosen, in_parts) except -1:
        """Partition the rows of some nodes, and give them children."""
        cdef int32_t number, place
        cdef const Node* node
        self.rows.start_splits(2 * len(chosen))
        for number in chosen:
            node = self.nodes + number
            self.rows.add(node.start, node.end, node.column, node.bin)
            self.rows.add(node.out_start, node.out_end, node.column, node.bin)
        in_parts = in_parts or in_one_part
        in_parts(self.rows.route, self.rows.n_routed)
        in_parts(self.rows.place, self.rows.n_routed)
        for place, number in enumerate(chosen):
            self.split_node(number, 2 * place)
        return 0

    cdef int split_node(self, int32_t number, int32_t place) except -1:
        """Give a node its children, for which memory is reserved.

        place : of its segment of rows in the sample, which the one of all others follows.
        """
        cdef int32_t one, small, slot
        cdef Node* node = self.nodes + number
        cdef Node* left = self.nodes + self.n_nodes
        cdef Node* right = left + 1
        cdef Node* child
        cdef int64_t n_left = 0, n_out_left = 0
        n_left, n_out_left = self.rows.n_left(place), self.rows.n_left(place + 1)
        if min(n_left, node.end - node.start - n_left) < self.min_leaf:
            # Rounding may move rows at the limit of a bin to the other side.
            self.free_slots.append(node.slot)
            return 0
        self.rows.keep(place)
        self.rows.keep(place + 1)
        memset(left, 0, 2 * sizeof(Node))
        node.child = self.n_nodes
        left.start, left.end = node.start, node.start + n_left
        right.start, right.end = left.end, node.end
        left.out_start, left.out_end = node.out_start, node.out_start + n_out_left
        right.out_start, right.out_end = left.out_end, node.out_end
        small = 0 if n_left <= right.end - right.start else 1
        slot = self.n_slots
        if self.free_slots:
            slot = self.free_slots.pop()
        else:
            self.n_slots += 1
        for one in range(2):
            child = left + one
            child.depth, child.child = node.depth + 1, -1
            child.is_summed = one == small
            child.sibling = -1 if one == small else self.n_nodes + small
            child.slot = slot if one == small else node.slot
            child.lower, child.upper = node.lower, node.upper
        if self.is_bounded:
            self.bound_children(node, left, right)
        self.parent += [number, number]
        self.split_column += [node.column, node.column]
        self.n_nodes += 2
        return 0

    cdef void bound_children(self, const Node* node, Node* left, Node* right) noexcept nogil:
        """Set the bounds of the values below two children, which are those of their parent."""
        cdef int32_t sign = self.sign_of(node.column)
        if sign > 0:
            left.upper = right.lower = node.middle
        elif sign < 0:
            left.lower = right.upper = node.middle

    cdef int32_t sign_of(self, int32_t column) noexcept nogil:
        """Return the sign of the change of values along a column, 0 if it is free."""
        if column < self.n_features:
            return self.directions.monotonic[column]
        return self.directions.sign[column - self.n_features]

    cdef float threshold_of(self, const Node* node) noexcept nogil:
        if node.column < self.n_features:
            return self.cut[self.cut_start[node.column] + node.bin]
        return self.directions.cut[node.column - self.n_features, node.bin]

    # ---------------------------------------------------------------------------- the whole tree

    def finish(self):
        """Return the arrays of the tree without values: `child` of a leaf is -1 - (its number)."""
        cdef int32_t number, d, n_leaves = 0, n_splits = self.n_nodes // 2, n_used = 0
        cdef int64_t i, split
        cdef const Node* node
        arrays = {
            "child": np.empty(self.n_nodes, dtype=np.int32),
            "node_weight": np.empty(self.n_nodes),
            "threshold": np.empty(n_splits, dtype=np.float32),
            "direction": np.empty(n_splits, dtype=np.int32),
            "gain": np.empty(n_splits, dtype=np.float32),
        }
        leaf_of_row = np.empty(self.n_rows, dtype=np.int32)
        number_of = np.full(self.directions.n_directions, -1, dtype=np.int32)  # of used directions
        cdef int32_t[::1] child = arrays["child"], direction = arrays["direction"]
        cdef int32_t[::1] leaf = leaf_of_row, new = number_of
        cdef double[::1] weight = arrays["node_weight"]
        cdef float[::1] threshold = arrays["threshold"], gain = arrays["gain"]
        with nogil:
            for number in range(self.n_nodes):
                node = self.nodes + number
                weight[number] = <double>(node.end - node.start)
                if node.child < 0:
                    child[number] = -1 - n_leaves
                    for i in range(node.start, node.end):
                        leaf[self.row[i]] = n_leaves
                    for i in range(node.out_start, node.out_end):
                        leaf[self.row[i]] = n_leaves
                    n_leaves += 1
                    continue
                split = (node.child - 1) // 2
                child[number], direction[split] = node.child, node.column
                threshold[split] = self.threshold_of(node)
                gain[split] = <float>min(node.gain, 3e38)
                if node.column >= self.n_features:
                    new[node.column - self.n_features] = 0
            for d in range(new.shape[0]):
                if new[d] == 0:
                    new[d] = n_used
                    n_used += 1
            for split in range(n_splits):
                if direction[split] >= self.n_features:
                    direction[split] = self.n_features + new[direction[split] - self.n_features]
        self.used = np.flatnonzero(number_of >= 0)
        return arrays | self.directions.arrays(self.used), leaf_of_row

    def terms(self):
        """Return starts, features and weights of all directions, or boxes, of a finished tree."""
        return self.directions.terms(self.used)

    def leaf_bounds(self):
        """Return bounds of the leaf values of a finished tree, (n_leaves, 2), with constraints."""
        leaves = [n for n in range(self.n_nodes) if self.nodes[n].child < 0]
        return np.array([(self.nodes[n].lower, self.nodes[n].upper) for n in leaves])
