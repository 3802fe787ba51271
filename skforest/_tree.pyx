"""Traversal of packed trees: from rows to leaves and responses.

A forest is a set of flat arrays (docs/format). Tree t has the nodes ``tree_start[t]`` to
``tree_start[t + 1] - 1``, which are numbered within the tree: its root is node 0. ``child[node]``
is the left child, and the right child follows it; for a leaf, it is ``-1 - r``, where r is its row
of values. Pairs of children follow their parents, in the order of the splits: the children c and
c + 1 belong to split ``(c - 1) // 2`` of their tree.

A split has a threshold t and a direction a, stored as a code. A row x goes right if ``a . x > t``.
The response adds up, tree by tree,

    response(x) = sum over the leaves of weight(leaf, x) * (value[leaf] + slope[leaf] . x)

where the weight of a leaf depends on the gate: 1 at the leaf that the row reaches (hard), the
smallest ``|a . x - t|`` on the path to this leaf (margin), or the product of the sigmoids on the
path to each leaf (sigmoid). Only leaves of hard trees may have slopes, and few models have them.

`Router` routes rows in the first of five ways that applies. All give the same bits:

- `BySums`, for boxes of bytes: a box of any size is four look-ups in a table of sums;
- `OverPool`, for trees that share a few directions: a row is projected on each of them once;
- `ByBits`, for trees of at most 64 leaves over features and short mixtures: all splits are decided
  for 32 rows at a time;
- `ByRows`, for few rows: each row goes through several trees side by side;
- `ByNodes`, below: the rows of a node are projected at once and partitioned into its children, as
  in growing.

Rows never influence each other, so blocks of any size give the same bits.
"""

cimport cython
from libc.math cimport exp, fabs
from libc.stdint cimport int32_t, int64_t

import numpy as np

from ._kernels.base.direction cimport (
    DENSE, NO_DTYPE, WEIGHTED, Directions, Table, Unfolded, as_table, project, reserve_unfolded,
    unfold
)
from ._kernels.base.memory cimport Scratch
from ._kernels.predict.partition cimport (
    RoutedRows, partition_rows, pop_node, push_node, routed_rows
)
from ._kernels.predict.trees cimport MARGIN, SIGMOID, Arrays, Output, PackedTrees, Values, Way
from ._kernels.predict.bits import ByBits
from ._kernels.predict.pool import OverPool, pooled_directions
from ._kernels.predict.rows import ByRows
from ._kernels.predict.sums import BySums

cdef extern from "predict/route.h" nogil:
    void skf_add_value(const Values*, int32_t, double, double*)


@cython.final
cdef class ByNodes(Way):
    """Routes all rows through one node after another; always applies."""

    cdef int route(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, const Output* out
    ) except -1:
        cdef PackedTrees trees = self.trees
        cdef int64_t bag, tree, n = table.n_samples
        cdef Scratch scratch = Scratch()
        cdef RoutedRows rows = routed_rows(scratch, n)
        cdef const float* weight = rows.margin if trees.gate == MARGIN else NULL
        cdef Unfolded unfolded = reserve_unfolded(
            scratch, trees.max_terms, &trees.directions.grid
        )
        with nogil:
            for bag in range(n_bags):
                for tree in range(bag_start[bag], bag_start[bag + 1]):
                    self.route_tree(tree, table, &unfolded, &rows)
                    trees.store(tree, bag, table, rows.leaf, weight, 0, n, out)
        return 0

    cdef void route_tree(
        self, int64_t tree, const Table* table, Unfolded* unfolded, RoutedRows* rows
    ) noexcept nogil:
        """Find the leaf of every row, and the smallest margin on the path to it.

        Nodes are visited depth first, left before right, unless no row reaches them. The rows of
        a node are rows[start:end].
        """
        cdef const Arrays* at = &self.trees.at
        cdef const Directions* directions = &self.trees.directions
        cdef int64_t root = at.tree_start[tree], split
        cdef int64_t first_split = (root - tree) // 2
        cdef int64_t stride = table.n_features
        cdef int32_t i, child, middle, n = <int32_t>table.n_samples
        cdef int32_t node = 0, start = 0, end = n
        cdef bint has_margins = self.trees.gate == MARGIN
        cdef float threshold, margin
        for i in range(n):
            rows.row[i] = i
            rows.offset[i] = i * stride
            rows.margin[i] = 0
        while True:
            child = at.child[root + node]
            if child < 0:
                for i in range(start, end):
                    rows.leaf[rows.row[i]] = node
                if not pop_node(rows, &node, &start, &end):
                    return
                continue
            split = first_split + (child - 1) // 2
            threshold = at.threshold[split]
            unfold(unfolded, directions, at.direction[split], table)
            project(unfolded, table, rows.offset + start, end - start, rows.column + start)
            if has_margins:
                for i in range(start, end):
                    margin = fabs(rows.column[i] - threshold)
                    if node == 0 or margin < rows.margin[rows.row[i]]:
                        rows.margin[rows.row[i]] = margin
            middle = partition_rows(rows, start, end, threshold)
            if middle == start:
                node = child + 1
            elif middle == end:
                node = child
            else:
                push_node(rows, child + 1, middle, end)
                node = child
                end = middle


@cython.final
cdef class Router:
    """Packed trees, ready for prediction; `skforest.forest.Forest` checks the arrays.

    `arrays` are the arrays of a `Forest`, C-contiguous, in the dtypes of docs/format; `grid` is
    ``(feature_shape, wrap, unordered)``; `gate` is one of `GATES`. Visible state does not change
    after `__init__`, so threads may call all methods at the same time.
    """

    cdef PackedTrees trees
    cdef double steepness
    cdef list ways                     # the first that applies is taken
    cdef readonly Way pool             # `OverPool`, or None

    def __init__(self, arrays, n_features, n_outputs, grid, gate, steepness):
        trees = self.trees = PackedTrees(arrays, n_features, n_outputs, grid, gate)
        self.steepness = steepness
        shared = pooled_directions(arrays, n_features, trees.n_directions)
        self.pool = None if shared is None else OverPool(trees, shared)
        ways = BySums(trees), self.pool, ByBits(trees), ByRows(trees), ByNodes(trees)
        self.ways = [way for way in ways if way is not None]

    @property
    def max_terms(self):
        """int: largest number of features in the direction of a split."""
        return self.trees.max_terms

    # --------------------------------------------------------------------------- leaves, responses

    cdef Table checked_table(self, X) except *:
        """Return X as kernels read it; they rely on one column for each feature."""
        cdef Table table = as_table(X)
        if table.n_features != self.trees.at.n_features:
            raise ValueError(
                f"X has {table.n_features} features, the trees read {self.trees.at.n_features}"
            )
        return table

    def apply(self, X):
        """Return the leaf of every row, numbered in its tree: (n_samples, n_trees)."""
        cdef Table table = self.checked_table(X)
        cdef int64_t[2] bag = [0, self.trees.n_trees]
        cdef int32_t[:, ::1] leaf
        cdef Output out
        leaves = np.empty((table.n_samples, self.trees.n_trees), dtype=np.int32)
        if leaves.size:
            leaf = leaves
            out.leaves, out.response = &leaf[0, 0], NULL
            self.route(&table, bag, 1, &out)
        return leaves

    def respond(
        self, X, int64_t first_tree, int64_t last_tree, double divisor=1,
        const double[::1] baseline=None,
    ):
        """Add up leaf weight times leaf value over the trees first_tree .. last_tree - 1.

        With `baseline`, the sum is divided by `divisor`, and the baseline is added. X is uint8 or
        float32; the response is (n_samples, n_outputs), float64.
        """
        if self.trees.has_slopes and X.dtype != np.float32:
            X = X.astype(np.float32)
        cdef Table table = self.checked_table(X)
        cdef int64_t[2] bag = [first_tree, last_tree]
        response = np.zeros((table.n_samples, self.trees.n_outputs))
        cdef double[:, ::1] total = response
        if response.size:
            self.add_responses(&table, bag, 1, &total[0, 0])
            if baseline is not None:
                finish(divisor, baseline, total)
        return response

    def respond_bags(
        self, X, const int64_t[::1] bag_start, bint is_mean, const double[::1] baseline
    ):
        """Return `respond` of every bag, for few rows: (n_bags, n_samples, n_outputs)."""
        if self.trees.has_slopes and X.dtype != np.float32:
            X = X.astype(np.float32)
        cdef Table table = self.checked_table(X)
        cdef int64_t bag, n_bags = bag_start.shape[0] - 1
        cdef double divisor = 1
        responses = np.zeros((n_bags, table.n_samples, self.trees.n_outputs))
        cdef double[:, :, ::1] total = responses
        if responses.size:
            self.add_responses(&table, &bag_start[0], n_bags, &total[0, 0, 0])
        for bag in range(n_bags if responses.size else 0):
            if is_mean:
                divisor = max(bag_start[bag + 1] - bag_start[bag], 1)
            finish(divisor, baseline, total[bag])
        return responses

    cdef int add_responses(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, double* response
    ) except -1:
        """Add leaf weights times leaf values of some bags to (n_bags, n_samples, n_outputs)."""
        cdef int64_t bag, n = table.n_samples * self.trees.n_outputs
        cdef Output out
        out.leaves, out.response = NULL, response
        if self.trees.gate != SIGMOID:
            return self.route(table, bag_start, n_bags, &out)
        for bag in range(n_bags):
            self.respond_soft(table, bag_start[bag], bag_start[bag + 1], response + bag * n)
        return 0

    cdef int route(
        self, const Table* table, const int64_t* bag_start, int64_t n_bags, const Output* out
    ) except -1:
        """Route all rows through the trees of some bags, in the first way that applies."""
        cdef Way way
        for way in self.ways:
            if way.applies(table, bag_start[n_bags] - bag_start[0]):
                return way.route(table, bag_start, n_bags, out)

    cdef int respond_soft(
        self, const Table* table, int64_t first_tree, int64_t last_tree, double* response
    ) except -1:
        """Add the values of all leaves, each times the product of the sigmoids on its path.

        With ``gate = sigmoid(steepness (a . x - t))`` a node passes ``weight (1 - gate)`` to its
        left child and ``weight gate`` to the right one.
        """
        cdef PackedTrees trees = self.trees
        cdef int64_t n = table.n_samples
        cdef int64_t tree, node, root, split, i, n_nodes, most = 0
        cdef Scratch scratch = Scratch()
        cdef double gate
        cdef float threshold
        cdef int32_t child
        cdef Unfolded unfolded
        for tree in range(first_tree, last_tree):
            most = max(most, trees.at.tree_start[tree + 1] - trees.at.tree_start[tree])
        cdef double[:, ::1] weight = np.empty((most, n), dtype=np.float64)
        cdef float[::1] column = np.empty(n, dtype=np.float32)
        cdef int64_t[::1] offset = np.arange(n, dtype=np.int64) * table.n_features
        unfolded = reserve_unfolded(scratch, trees.max_terms, &trees.directions.grid)
        with nogil:
            for tree in range(first_tree, last_tree):
                root = trees.at.tree_start[tree]
                n_nodes = trees.at.tree_start[tree + 1] - root
                for i in range(n):
                    weight[0, i] = 1
                for node in range(n_nodes):
                    child = trees.at.child[root + node]
                    if child < 0:
                        for i in range(n):
                            skf_add_value(
                                &trees.values, child, weight[node, i],
                                response + i * trees.n_outputs
                            )
                        continue
                    split = (root - tree) // 2 + (child - 1) // 2
                    threshold = trees.at.threshold[split]
                    unfold(&unfolded, &trees.directions, trees.at.direction[split], table)
                    project(&unfolded, table, &offset[0], n, &column[0])
                    for i in range(n):
                        gate = 1 / (1 + exp(-self.steepness * (<double>column[i] - threshold)))
                        weight[child, i] = weight[node, i] * (1 - gate)
                        weight[child + 1, i] = weight[node, i] * gate
        return 0

    def expand(self, codes):
        """Return directions as rows of a sparse matrix, (n, n_features): indptr, indices, data.

        Entries of a row are not sorted; entries of the same feature (overlapping boxes) are not
        added.
        """
        cdef PackedTrees trees = self.trees
        cdef const int32_t[::1] code = codes
        cdef int64_t i, filled = 0, n = code.shape[0]
        cdef int32_t t
        cdef Scratch scratch = Scratch()
        cdef Table table
        cdef Unfolded unfolded
        table.dtype = NO_DTYPE
        table.n_features = trees.at.n_features
        starts = np.zeros(n + 1, dtype=np.int64)
        cdef int64_t[::1] indptr = starts
        cdef int32_t[::1] indices
        cdef float[::1] data
        unfolded = reserve_unfolded(scratch, trees.count_terms(code), &trees.directions.grid)
        for i in range(n):
            unfold(&unfolded, &trees.directions, code[i], &table)
            indptr[i + 1] = indptr[i] + unfolded.n
        features = np.empty(indptr[n], dtype=np.int32)
        weights = np.empty(indptr[n], dtype=np.float32)
        indices = features
        data = weights
        for i in range(n):
            unfold(&unfolded, &trees.directions, code[i], &table)
            for t in range(unfolded.n):
                indices[filled] = t if unfolded.kind == DENSE else unfolded.position[t]
                data[filled] = 1
                if unfolded.kind == WEIGHTED:
                    data[filled] = unfolded.weight[t]
                elif unfolded.kind == DENSE:
                    data[filled] = unfolded.dense[t]
                filled += 1
        return starts, features, weights


cdef void finish(double divisor, const double[::1] baseline, double[:, ::1] total) noexcept nogil:
    """Convert sums over trees to responses."""
    cdef int64_t i, k
    for i in range(total.shape[0]):
        for k in range(total.shape[1]):
            total[i, k] = total[i, k] / divisor + baseline[k]


# -------------------------------------------------------------------------- functions of responses


def softmax(const double[:, :] raw):
    """As `scipy.special.softmax` with axis=1, in a fraction of the time for few rows."""
    cdef int64_t i, k, n = raw.shape[1]
    cdef double shift, total
    found = np.empty((raw.shape[0], n))
    cdef double[:, ::1] out = found
    with nogil:
        for i in range(raw.shape[0]):
            shift = raw[i, 0]
            for k in range(1, n):
                shift = raw[i, k] if raw[i, k] > shift else shift
            for k in range(n):
                out[i, k] = raw[i, k] - shift
    np.exp(found, found)
    with nogil:
        for i in range(raw.shape[0]):
            total = sum_of(&out[i, 0], n)
            for k in range(n):
                out[i, k] /= total
    return found


cdef double sum_of(const double* x, int64_t n) noexcept nogil:
    """Add numbers in the order of NumPy, which adds eight numbers side by side."""
    cdef double[8] lane
    cdef double total = 0
    cdef int64_t i = 0, k, half = n // 2 - n // 2 % 8
    if n > 128:
        return sum_of(x, half) + sum_of(x + half, n - half)
    if n >= 8:
        for k in range(8):
            lane[k] = x[k]
        for i in range(8, n - 7, 8):
            for k in range(8):
                lane[k] += x[i + k]
        i = n - n % 8
        total = ((lane[0] + lane[1]) + (lane[2] + lane[3])) + (
            (lane[4] + lane[5]) + (lane[6] + lane[7])
        )
    for k in range(i, n):
        total += x[k]
    return total


def mean_of_bags(const double[:, :, ::1] responses):
    """Return the mean over the first axis, added in order: (n_samples, n_outputs)."""
    cdef int64_t bag, i, k, n_bags = responses.shape[0]
    found = np.empty((responses.shape[1], responses.shape[2]))
    cdef double[:, ::1] mean = found
    for i in range(mean.shape[0]):
        for k in range(mean.shape[1]):
            mean[i, k] = responses[0, i, k]
            for bag in range(1, n_bags):
                mean[i, k] += responses[bag, i, k]
            mean[i, k] /= n_bags
    return found
