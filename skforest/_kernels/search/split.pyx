"""Split of one node: the target, the gain of a split and the leaf values.

The target is a real matrix. With labels as one-hot rows, the weighted Gini impurity is the
weighted squared error. Therefore, the split with the lowest error has the largest score

    sum_k L_k^2 / W_L + R_k^2 / W_R

where L_k and R_k are the weighted sums of column k over the left and the right rows, and W_L and
W_R are the weights of the two sides. With entropy, a side scores ``sum_k xlogx(L_k) - xlogx(W_L)``
instead. `side_score` is the one function that a criterion defines; only the loops that add up a
column treat labels separately. Subclasses of `NodeSplitter` override `search`, see search.pyx.
"""

from libc.math cimport log
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

import numpy as np

from ..base.direction cimport as_table
from ..base.memory cimport Buffer, Scratch, allocate
from ..base.poll cimport poll
from ..base.random cimport next_word

cdef extern from "base/columns.h" nogil:
    double skf_xlogx(double)

CRITERIA = {"gini": SQUARES, "squared_error": SQUARES, "entropy": ENTROPY}


ctypedef fused item_t:
    int32_t
    int64_t
    double


cdef inline void partition_items(
    const float* column, float threshold, int64_t n, item_t* items, item_t* spare
) noexcept nogil:
    """Move items with values up to the threshold to the front, without a branch on values."""
    cdef int64_t i, n_left = 0, n_right = 0
    cdef item_t item
    cdef bint left
    for i in range(n):
        item = items[i]
        left = column[i] <= threshold
        items[n_left] = item
        spare[n_right] = item
        n_left += left
        n_right += not left
    for i in range(n_right):
        items[n_left + i] = spare[i]


cdef class NodeSplitter:
    """Base class of the splitters, which grow a tree from the `rows` of a `TrainingSet`.

    X is uint8 or float32; `target` has class numbers, or regression targets, which should be near
    0. Another thread can set `stop`, of shape (1,), to end the growth of the tree early.
    """

    def __init__(self, training_set, options, uint64_t seed, stop):
        cdef const int32_t[::1] rows = training_set.rows
        cdef const double[::1] weights = training_set.weight
        cdef const int32_t[::1] labels
        cdef const double[:, ::1] matrix
        cdef Scratch scratch = Scratch()
        cdef int64_t i, start = 0
        cdef int64_t n = rows.shape[0]
        cdef int32_t n_outputs = training_set.n_outputs
        target = training_set.target
        self.arrays = (training_set.X, target)
        self.table = as_table(training_set.X)
        self.is_class = target.ndim == 1
        self.criterion = CRITERIA[options.criterion]
        self.n_outputs = n_outputs
        self.n_rows = n
        self.stop = stop
        # The first word and the constant separate this stream from that of the bootstrap.
        self.random.state = seed
        next_word(&self.random)
        self.random.state ^= <uint64_t>0x5851F42D4C957F2D
        self.scratch = scratch
        allocate[int32_t](scratch, n, [&self.row, &self.label, &self.node.label, NULL])
        allocate[int64_t](scratch, n, [&self.offset, &self.spare, NULL])
        allocate[int32_t](scratch, n_outputs, [&self.present, &self.local, NULL])
        allocate[double](scratch, n_outputs, [&self.total, &self.left, NULL])
        self.weight = scratch.doubles(n)
        self.column = scratch.floats(n)
        self.value = Buffer(sizeof(float))
        self.value_index = Buffer(sizeof(int32_t))
        self.value_start = Buffer(sizeof(int64_t))
        memset(self.local, 255, n_outputs * sizeof(int32_t))     # -1: not present
        for i in range(n):
            self.row[i] = rows[i]
            self.offset[i] = <int64_t>rows[i] * self.table.n_features
            self.weight[i] = weights[rows[i]]
        if self.is_class:
            labels = target
            for i in range(n):
                self.label[i] = labels[rows[i]]
            self.value_start.append(&start, 1)
        else:
            matrix = target
            self.target_of = &matrix[0, 0]
            self.n_present = n_outputs
            self.node.target = scratch.doubles(n * n_outputs)

    cdef int begin_node(self, int64_t start, int64_t end) except -1 nogil:
        """Make rows start .. end - 1 the current node; add up its weight and target."""
        cdef int64_t i, row
        cdef int32_t k, local
        cdef double value, first
        cdef Sample* node = &self.node
        node.n = end - start
        node.offset = self.offset + start
        node.weight = self.weight + start
        self.node_weight = 0
        for i in range(node.n):
            self.node_weight = self.node_weight + node.weight[i]
        if self.is_class:
            for k in range(self.n_present):
                self.local[self.present[k]] = -1
            self.n_present = 0
            for i in range(node.n):
                k = self.label[start + i]
                local = self.local[k]
                if local < 0:
                    local = self.n_present
                    self.local[k] = local
                    self.present[local] = k
                    self.total[local] = 0
                    self.n_present = self.n_present + 1
                node.label[i] = local
                self.total[local] = self.total[local] + node.weight[i]
            self.is_pure = self.n_present == 1
            return 0
        self.is_pure = True
        for k in range(self.n_outputs):
            self.total[k] = 0
        for i in range(node.n):
            row = self.row[start + i]
            for k in range(self.n_outputs):
                value = self.target_of[row * self.n_outputs + k]
                first = self.target_of[<int64_t>self.row[start] * self.n_outputs + k]
                self.is_pure = self.is_pure and value == first
                value *= node.weight[i]
                node.target[i * self.n_outputs + k] = value
                self.total[k] = self.total[k] + value
        return 0

    cdef bint search(self, Split* split) except -1 nogil:
        """Find a split of the current node and set `column`; False if the node is a leaf."""
        return False

    cdef int32_t add_leaf(self) except -1 nogil:
        """Store the leaf value of the current node, its weighted mean target; return its row.

        In classification, rows 0 .. n_classes - 1 are pure leaves. They are not stored here;
        `values` adds them.
        """
        cdef int32_t k
        cdef int64_t end
        cdef float value
        if not self.is_class:
            for k in range(self.n_outputs):
                value = <float>(self.total[k] / self.node_weight)
                self.value.append(&value, 1)
            return <int32_t>(self.value.n // self.n_outputs) - 1
        if self.n_present == 1:
            return self.present[0]
        for k in range(self.n_present):
            value = <float>(self.total[k] / self.node_weight)
            self.value.append(&value, 1)
            self.value_index.append(&self.present[k], 1)
        end = self.value.n
        self.value_start.append(&end, 1)
        return self.n_outputs + <int32_t>self.value_start.n - 2

    cdef double side_score(self, const double* sums, double weight) noexcept nogil:
        """Return the score of one side of a split; the best split has the largest sum of both."""
        cdef double score = 0
        cdef int32_t k
        if weight <= 0:
            return 0
        if self.criterion == ENTROPY:
            for k in range(self.n_present):
                score += skf_xlogx(sums[k])
            return score - skf_xlogx(weight)
        for k in range(self.n_present):
            score += sums[k] * sums[k]
        return score / weight

    cdef void measure_split(self, Split* split) noexcept nogil:
        """Set the number and weight of the left rows, and the gain, from `column`."""
        cdef int64_t i
        cdef int32_t k
        cdef double weight = 0, gain = -self.side_score(self.total, self.node_weight)
        cdef Sample* node = &self.node
        cdef bint left
        split.n_left = 0
        for k in range(self.n_present):
            self.left[k] = 0
        for i in range(node.n):
            left = self.column[i] <= split.threshold
            split.n_left += left
            weight += left * node.weight[i]
            if self.is_class:
                self.left[node.label[i]] = self.left[node.label[i]] + left * node.weight[i]
            else:
                for k in range(self.n_outputs):
                    self.left[k] = self.left[k] + left * node.target[i * self.n_outputs + k]
        split.left_weight = weight
        gain += self.side_score(self.left, weight)
        for k in range(self.n_present):
            self.left[k] = self.total[k] - self.left[k]
        gain += self.side_score(self.left, self.node_weight - weight)
        if self.criterion == ENTROPY:
            gain /= log(2.0)                # bits, as in scikit-learn
        split.gain = gain if gain > 0 else 0

    cdef void partition(self, int64_t start, int64_t end, float threshold) noexcept nogil:
        """Move the left rows of the current node to the front; both sides keep their order."""
        cdef const float* column = self.column
        cdef int64_t n = end - start
        partition_items(column, threshold, n, self.row + start, <int32_t*>self.spare)
        partition_items(column, threshold, n, self.offset + start, self.spare)
        partition_items(column, threshold, n, self.weight + start, <double*>self.spare)
        if self.is_class:
            partition_items(column, threshold, n, self.label + start, <int32_t*>self.spare)

    cdef void copy_targets(
        self, const int32_t* order, float* weight, int32_t* label, double* target
    ) noexcept nogil:
        """Copy weights, relative to their mean, and labels or targets of the node's rows.

        order : IN, number of each row in the node, or NULL for the order of the node
        weight, label, target : OUT, n, n, (n, n_outputs)
        """
        cdef int64_t i, row, n = self.node.n
        cdef int32_t k
        cdef const Sample* node = &self.node
        for i in range(n):
            row = i if order == NULL else order[i]
            weight[i] = <float>(node.weight[row] * n / self.node_weight)
            if self.is_class:
                label[i] = node.label[row]
                continue
            for k in range(self.n_outputs):
                target[i * self.n_outputs + k] = (
                    node.target[row * self.n_outputs + k] / node.weight[row]
                )

    cdef bint should_stop(self, int64_t work) except -1 nogil:
        """Return whether growth must end, after `work` additions since the last call."""
        return poll(&self.stop[0], &self.work, work)

    def values(self):
        """Return leaf values as arrays of a `Forest`; in classification, pure leaves are first."""
        if not self.is_class:
            return {
                "value": self.value.array(np.float32),
                "value_start": np.empty(0, dtype=np.int64),
                "value_index": np.empty(0, dtype=np.int32),
            }
        pure = np.arange(self.n_outputs)
        starts = self.value_start.array(np.int64) + self.n_outputs
        return {
            "value": np.concatenate([
                np.ones(self.n_outputs, dtype=np.float32),
                self.value.array(np.float32),
            ]),
            "value_start": np.concatenate([pure.astype(np.int64), starts]),
            "value_index": np.concatenate([
                pure.astype(np.int32), self.value_index.array(np.int32)
            ]),
        }
