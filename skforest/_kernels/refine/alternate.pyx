"""Tree alternating optimisation, one hyperplane at a time.

Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application to
learning sparse oblique trees", 2018 (TAO). The structure of the tree is fixed, and the loss

    L(tree) = sum over rows n of weight_n loss(y_n, leaf of row n)

depends on the hyperplane of a node only through the sides of its rows. With both subtrees fixed,
row n of the node has loss l_n on the left and r_n on the right. Rows with ``l_n != r_n`` are the
care points of the node. They are labelled with their better side, weighted by
``weight_n |r_n - l_n|``, and the hyperplane is trained to separate them (logistic.pyx). The new
hyperplane, with weights rounded as the forest stores them, replaces the old one unless it
increases the loss of the node's rows. Nodes are visited from the leaves to the root.
"""

from libc.math cimport fabs, isfinite, ldexp
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

import numpy as np

from ..base.direction cimport (
    DENSE, NO_DTYPE, ONE, WEIGHTED, Directions, Grid, Table, Unfolded, as_directions, as_grid,
    as_table, project, reserve_unfolded, unfold
)
from .logistic cimport Logistic
from ..base.memory cimport Buffer, Scratch, allocate
from ..base.poll cimport poll
from ..predict.partition cimport RoutedRows, partition_rows, pop_node, push_node, routed_rows

cdef enum:
    # Affects only time; chosen without a stored measurement.
    CACHED = 1 << 17        # entries of the table that fit into a cache


cdef class Alternator:
    """Sweeps over the nodes of one tree, on the rows of positive weight of a `TrainingSet`.

    `settings` are `AlternatingSettings`. Hyperplanes are trained in the `features`, (Z, offset,
    scale) with ``Z = (X - offset) * scale``, or in X.
    """

    cdef object X, arrays             # `table` and `directions` point into them
    cdef Scratch scratch
    cdef Table table
    cdef Directions directions
    cdef Unfolded unfolded
    cdef Logistic trainer
    cdef bint has_scale
    cdef const double[::1] offset
    cdef const double[::1] scale
    cdef int32_t most_sparse

    # the tree
    cdef int64_t n_nodes
    cdef const int32_t[::1] child
    cdef const int32_t[::1] direction
    cdef float* threshold
    cdef int64_t* new_plane           # row of each split in `planes`, or -1
    cdef Buffer planes                # new hyperplanes, float32
    cdef uint64_t* labels             # classes of the leaves below each node, modulo 64, as bits
    cdef bint is_class
    cdef bint few_classes             # at most 64: each has its bit
    cdef int32_t n_outputs
    cdef const int32_t[::1] label
    cdef const double[:, ::1] value
    cdef const int32_t[::1] target_label
    cdef const double[:, ::1] target_value

    # the rows, by their numbers in `rows`
    cdef const int32_t[::1] rows
    cdef const int32_t[::1] leaf
    cdef const double[::1] weight
    cdef RoutedRows by_leaf           # rows in the order of their leaves
    cdef int32_t* start               # start of the slice of each node in `by_leaf`
    cdef int32_t* end
    cdef double* loss                 # loss of each row at its leaf
    cdef double* other_loss           # loss of each row on the other side of the current node
    cdef RoutedRows trial             # rows on their way through the subtree of the other side

    # the care points of the current node
    cdef int32_t n_care
    cdef int32_t* care
    cdef double* rise                 # weighted loss on the right minus that on the left
    cdef double* plane

    def __init__(self, training_set, settings, uint64_t seed, stop, features=None):
        Z, offset, scale = features or (training_set.X, None, None)
        self.X = training_set.X
        self.table = as_table(self.X)
        self.has_scale = scale is not None
        if self.has_scale:
            self.offset = offset
            self.scale = scale
        target = training_set.target
        self.is_class = target.ndim == 1
        if self.is_class:
            self.target_label = target
        else:
            self.target_value = target
            self.n_outputs = target.shape[1]
        self.rows = training_set.rows
        self.weight = training_set.weight
        self.trainer = Logistic(Z, self.rows.shape[0], settings, seed, stop)

    def load(self, forest, const int32_t[::1] leaf, prediction, int32_t most_sparse):
        """Load a tree that reads X, with the leaf of each of the rows.

        `prediction` has a class number, or a row of values, for each node. Directions with more
        than `most_sparse` weights are stored dense.
        """
        arrays = self.arrays = forest.arrays
        cdef const float[::1] threshold = arrays["threshold"]
        cdef int64_t i, n = self.rows.shape[0], n_splits = threshold.shape[0]
        cdef int32_t p = self.table.n_features, max_terms = forest.router.max_terms
        cdef Grid grid = as_grid(forest.feature_shape, forest.wrap, forest.unordered)
        self.directions = as_directions(arrays, p, grid)
        self.most_sparse = most_sparse
        self.child = arrays["child"]
        self.direction = arrays["direction"]
        self.n_nodes = self.child.shape[0]
        if self.is_class:
            self.label = prediction
            largest = max(np.max(prediction), np.max(self.target_label, initial=0))
            self.few_classes = largest < 64
        else:
            self.value = prediction
        self.leaf = leaf
        self.scratch = Scratch()
        self.by_leaf = routed_rows(self.scratch, n)
        self.trial = routed_rows(self.scratch, n)
        self.unfolded = reserve_unfolded(self.scratch, max(max_terms, p), &grid)
        self.planes = Buffer(sizeof(float))
        self.threshold = self.scratch.floats(n_splits)
        self.new_plane = self.scratch.longs(n_splits)
        self.labels = <uint64_t*>self.scratch.longs(self.n_nodes)
        allocate[int32_t](self.scratch, self.n_nodes, [&self.start, &self.end, NULL])
        allocate[double](self.scratch, n, [&self.loss, &self.other_loss, &self.rise, NULL])
        self.care = self.scratch.ints(n)
        self.plane = self.scratch.doubles(p)
        for i in range(n_splits):
            self.threshold[i] = threshold[i]
            self.new_plane[i] = -1

    def sweep(self):
        """Visit every node once; return the changed splits, their weights and thresholds."""
        cdef int64_t i, n_splits = (self.n_nodes - 1) // 2
        with nogil:
            self.visit_nodes()
        weights = self.planes.array(np.float32).reshape(-1, self.table.n_features)
        split = np.empty(len(weights), dtype=np.int64)
        threshold = np.empty(len(weights), dtype=np.float32)
        for i in range(n_splits):
            if self.new_plane[i] >= 0:
                split[self.new_plane[i]] = i
                threshold[self.new_plane[i]] = self.threshold[i]
        return split, weights, threshold

    def care_points(self, int64_t node):
        """Return the rows of care points of a node, and their loss right minus left; for tests."""
        cdef int64_t i
        with nogil:
            self.sort_by_leaf()
            self.evaluate_leaves()
            for i in range(self.n_nodes - 1, node - 1, -1):
                if self.child[i] > 0:
                    self.find_care_points(i)
        rows = np.empty(self.n_care, dtype=np.int32)
        rise = np.empty(self.n_care)
        for i in range(self.n_care):
            rows[i] = self.rows[self.care[i]]
            rise[i] = self.rise[i]
        return rows, rise

    cdef int visit_nodes(self) except -1 nogil:
        cdef int64_t node
        self.sort_by_leaf()
        self.evaluate_leaves()
        # Children follow their parents, so going backwards leads from the leaves to the root.
        for node in range(self.n_nodes - 1, -1, -1):
            if self.child[node] < 0:
                continue
            if self.find_care_points(node):
                return 0
            if self.n_care > 0 and self.refit(node):
                return 0
        return 0

    # ------------------------------------------------------------------------------------- routing

    cdef void sort_by_leaf(self) noexcept nogil:
        """Sort the rows by their leaves, so that the rows of every node are a slice."""
        cdef int32_t i, node, child, n = <int32_t>self.rows.shape[0]
        cdef int32_t* end = self.end
        memset(end, 0, self.n_nodes * sizeof(int32_t))
        for i in range(n):
            end[self.leaf[i]] += 1
        for node in range(<int32_t>self.n_nodes - 1, -1, -1):
            child = self.child[node]
            if child > 0:
                end[node] = end[child] + end[child + 1]
        self.start[0] = 0
        for node in range(<int32_t>self.n_nodes):
            child = self.child[node]
            if child > 0:
                self.start[child] = self.start[node]
                self.start[child + 1] = self.start[node] + end[child]
                end[node] += self.start[node]
            else:
                end[node] = self.start[node]
        for i in range(n):
            node = end[self.leaf[i]]
            end[self.leaf[i]] = node + 1
            self.by_leaf.row[node] = i
            self.by_leaf.offset[node] = <int64_t>self.rows[i] * self.table.n_features

    cdef int32_t partition(
        self, RoutedRows* rows, int32_t child, int32_t start, int32_t end
    ) noexcept nogil:
        """Partition rows into a pair of children; return the start of the right rows."""
        cdef int64_t split = (child - 1) // 2
        self.unfold_split(split, &self.table)
        project(&self.unfolded, &self.table, rows.offset + start, end - start, rows.column + start)
        return partition_rows(rows, start, end, self.threshold[split])

    cdef void unfold_split(self, int64_t split, const Table* table) noexcept nogil:
        if self.new_plane[split] < 0:
            unfold(&self.unfolded, &self.directions, self.direction[split], table)
        else:
            self.unfold_plane(
                <const float*>self.planes.data + self.new_plane[split] * self.table.n_features
            )

    cdef void unfold_plane(self, const float* plane) noexcept nogil:
        """Unfold a hyperplane in the order in which a forest that stores it adds its terms."""
        cdef int32_t j, n = 0, p = self.table.n_features
        cdef Unfolded* unfolded = &self.unfolded
        for j in range(p):
            n += plane[j] != 0
        if n > self.most_sparse:
            unfolded.kind = DENSE
            unfolded.n = p
            unfolded.dense = plane
            return
        unfolded.kind = WEIGHTED
        unfolded.n = n
        n = 0
        for j in range(p):
            if plane[j] != 0:
                unfolded.position[n] = j
                unfolded.weight[n] = plane[j]
                n += 1

    cdef void evaluate_leaves(self) noexcept nogil:
        """Compute the loss of every row at its leaf, and the classes below every node."""
        cdef int64_t node
        cdef int32_t i, child
        for node in range(self.n_nodes - 1, -1, -1):
            child = self.child[node]
            if child > 0:
                self.labels[node] = self.labels[child] | self.labels[child + 1]
                continue
            self.labels[node] = 0
            if self.is_class:
                self.labels[node] = <uint64_t>1 << (self.label[node] & 63)
            for i in range(self.start[node], self.end[node]):
                self.loss[self.by_leaf.row[i]] = self.loss_at(self.by_leaf.row[i], node)

    cdef inline double loss_at(self, int32_t row, int64_t leaf) noexcept nogil:
        """Return the loss of a row at a leaf: 0 or 1, or the squared error."""
        cdef int64_t sample = self.rows[row]
        cdef int32_t k
        cdef double off, loss = 0
        if self.is_class:
            return self.target_label[sample] != self.label[leaf]
        for k in range(self.n_outputs):
            off = self.target_value[sample, k] - self.value[leaf, k]
            loss += off * off
        return loss

    # --------------------------------------------------------------------------------- care points

    cdef bint find_care_points(self, int64_t node) except -1 nogil:
        """Find the rows of the node whose loss depends on the side; True if training must end."""
        cdef int32_t child = self.child[node]
        cdef int32_t i, row, middle = self.end[child]
        cdef double rise
        self.n_care = 0
        if self.start[node] == self.end[node]:
            return False
        if self.evaluate_all(child + 1, self.start[node], middle):
            return True
        if self.evaluate_all(child, middle, self.end[node]):
            return True
        for i in range(self.start[node], self.end[node]):
            row = self.by_leaf.row[i]
            rise = self.other_loss[row] - self.loss[row]
            if rise != 0:
                if i >= middle:
                    rise = -rise
                self.care[self.n_care] = row
                self.rise[self.n_care] = rise * self.weight[self.rows[row]]
                self.n_care = self.n_care + 1
        return False

    cdef bint evaluate_all(self, int32_t root, int32_t start, int32_t end) except -1 nogil:
        """Call `evaluate` for blocks of rows that fit into a cache."""
        cdef int32_t size = max(<int32_t>16, <int32_t>(CACHED // self.table.n_features))
        while start < end:
            if self.evaluate(root, start, min(start + size, end)):
                return True
            start += size
        return False

    cdef bint evaluate(self, int32_t root, int32_t start, int32_t end) except -1 nogil:
        """Compute the loss of a slice of rows in a subtree; True if training must end."""
        cdef RoutedRows* trial = &self.trial
        cdef int32_t i, node = root, child, middle
        trial.depth = 0                # the last call may have ended early
        for i in range(start, end):
            trial.row[i - start] = self.by_leaf.row[i]
            trial.offset[i - start] = self.by_leaf.offset[i]
        end -= start
        start = 0
        while True:
            child = self.child[node]
            middle = end
            if child < 0:
                for i in range(start, end):
                    self.other_loss[trial.row[i]] = self.loss_at(trial.row[i], node)
            else:
                end = self.drop_decided(node, start, end)
                middle = end
            if child > 0 and end > start:
                middle = self.partition(trial, child, start, end)
                if self.must_stop((end - start) * <int64_t>self.table.n_features):
                    return True
                if middle == start:
                    node = child + 1
                    continue
            if child > 0 and end > start:
                if middle < end:
                    push_node(trial, child + 1, middle, end)
                node = child
                end = middle
                continue
            if not pop_node(trial, &node, &start, &end):
                return False

    cdef int32_t drop_decided(self, int32_t node, int32_t start, int32_t end) noexcept nogil:
        """Set the loss of rows whose class no leaf below the node has, or all leaves have.

        Return the end of the other rows, which must be routed further.
        """
        cdef RoutedRows* trial = &self.trial
        cdef int32_t i, row, n = start
        cdef uint64_t bit, labels = self.labels[node]
        if not self.is_class:
            return end
        for i in range(start, end):
            row = trial.row[i]
            bit = <uint64_t>1 << (self.target_label[self.rows[row]] & 63)
            if not labels & bit:
                self.other_loss[row] = 1
            elif labels == bit and self.few_classes:
                self.other_loss[row] = 0
            else:
                trial.row[n] = row
                trial.offset[n] = trial.offset[i]
                n += 1
        return n

    cdef bint must_stop(self, int64_t n_read) except -1 nogil:
        """True if training must end, after so many more entries of the table were read."""
        return poll(&self.trainer.stop[0], &self.trainer.work, n_read)

    # ------------------------------------------------------------------------------------ training

    cdef bint refit(self, int64_t node) except -1 nogil:
        """Train the hyperplane of a node on its care points; True if training must end."""
        cdef int64_t split = (self.child[node] - 1) // 2, p = self.table.n_features, before
        cdef int32_t i, row, right, at_right, n = self.n_care
        cdef double threshold, rise = 0
        cdef float* column = self.trial.column
        self.read_plane(split, &threshold)
        for i in range(n):
            self.trial.offset[i] = <int64_t>self.rows[self.care[i]] * p
            self.trainer.rows.at[i] = self.trial.offset[i]
            self.trainer.side[i] = 1 if self.rise[i] < 0 else -1
            self.trainer.weight[i] = <float>fabs(self.rise[i])
        if not self.trainer.train(n, self.plane, &threshold):
            return self.trainer.stop[0]
        before = self.planes.n
        if not self.write_plane(&threshold):
            return False
        # Add up the change of the loss by the care points that change sides.
        self.unfold_plane(<const float*>self.planes.data + before)
        project(&self.unfolded, &self.table, self.trial.offset, n, column)
        for i in range(n):
            row = self.care[i]
            # `rise` is right minus left: its sign and the better side tell where the row is.
            at_right = (self.other_loss[row] > self.loss[row]) != (self.rise[i] > 0)
            right = column[i] > <float>threshold
            self.trial.leaf[i] = right != at_right
            rise += self.rise[i] * (right - at_right)
        if rise > 0:
            self.planes.n = before
            return False
        for i in range(n):
            if self.trial.leaf[i]:
                self.loss[self.care[i]] = self.other_loss[self.care[i]]
        self.new_plane[split] = before // p
        self.threshold[split] = <float>threshold
        return False

    cdef void read_plane(self, int64_t split, double* threshold) noexcept nogil:
        """Read the hyperplane of a split, in the features of the trainer."""
        cdef int64_t j, p = self.table.n_features
        cdef int32_t t
        cdef Unfolded* unfolded = &self.unfolded
        cdef double* plane = self.plane
        cdef Table none
        none.dtype = NO_DTYPE
        none.n_features = self.table.n_features
        self.unfold_split(split, &none)
        memset(plane, 0, p * sizeof(double))
        for t in range(unfolded.n):
            if unfolded.kind == ONE:
                plane[unfolded.position[t]] = 1
            elif unfolded.kind == WEIGHTED:
                plane[unfolded.position[t]] += unfolded.weight[t]
            else:
                plane[t] = unfolded.dense[t]
        threshold[0] = self.threshold[split]
        if self.has_scale:
            for j in range(p):
                threshold[0] -= plane[j] * self.offset[j]
                plane[j] /= self.scale[j]

    cdef bint write_plane(self, double* threshold) except -1 nogil:
        """Append the trained hyperplane in the table's features; False if float32 overflows."""
        cdef int64_t j, p = self.table.n_features
        cdef double largest = 0, factor = 1
        cdef double* plane = self.plane
        cdef float weight
        cdef double rounded
        if self.has_scale:
            for j in range(p):
                plane[j] *= self.scale[j]
                largest = max(largest, fabs(plane[j]))
            if not (largest > 0) or not isfinite(largest):
                return False
            # A hard tree does not depend on the norm of a hyperplane. A power of two that brings
            # the largest weight into [0.5, 1] keeps all digits and avoids overflow.
            while largest * factor > 1:
                factor = ldexp(factor, -1)
            while largest * factor < 0.5:
                factor = ldexp(factor, 1)
            threshold[0] *= factor
        for j in range(p):
            weight = <float>(plane[j] * factor)
            if self.has_scale:
                threshold[0] += <double>weight * self.offset[j]
            self.planes.append(&weight, 1)
            if not isfinite(weight):
                threshold[0] = weight
        rounded = <float>threshold[0]
        if not isfinite(rounded):
            self.planes.n = self.planes.n - p
            return False
        return True
