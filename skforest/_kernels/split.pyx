"""Splitting one node.

`NodeSplitter` knows the target and keeps the books of the node at hand: its weight, its classes,
its leaf value, the gain of a split. How a split is found is left to `search`, see _search.pyx.

The target is a real matrix: with labels written as one-hot rows, weighted Gini is the weighted
squared error, and both maximise the same score, ``sum_k L_k^2 / W_L + R_k^2 / W_R``. Only the
loops that add up a column know about labels. A criterion is a score of the sums of one side
(`side`).
"""

from cpython.exc cimport PyErr_CheckSignals
from libc.math cimport log
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

from .buffer cimport append, free_buffer, start_buffer, used_bytes
from .direction cimport as_table
from .random cimport next_word

cdef extern from "simd.h" nogil:
    double skf_xlogx(double)

CRITERIA = {"gini": SQUARES, "squared_error": SQUARES, "entropy": ENTROPY}

cdef enum:
    POLL = 1 << 26      # table reads between two looks for signals: a fraction of a second


ctypedef fused item_t:
    int32_t
    int64_t
    double


cdef inline void part_items(
    const float* column, float threshold, int64_t n, item_t* items, item_t* spare
) noexcept nogil:
    """Items whose value is at most the threshold first, without a branch on the values."""
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
    """What every way to split a node has in common.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features), uint8 or float32, C order
    target : ndarray of shape (n_samples,), int32, or of shape (n_samples, n_outputs), float64
        Class numbers, or a real target, best near 0.
    n_outputs : int
        Number of classes, or of columns.
    weight : ndarray of shape (n_samples,), float64
        Positive for the rows of the tree.
    rows : ndarray of shape (n_rows,), int32
        Rows of the tree.
    criterion : {"gini", "entropy", "squared_error"}
    seed : int
        Start of the tree's random generator.
    stop : ndarray of shape (1,), uint8
        Set from outside to make growth end early.
    """

    def __cinit__(self, *args, **kwargs):
        start_buffer(&self.value, sizeof(float))
        start_buffer(&self.value_index, sizeof(int32_t))
        start_buffer(&self.value_start, sizeof(int64_t))

    def __init__(
        self, X, target, int32_t n_outputs, weight, int32_t[::1] rows, criterion, uint64_t seed,
        stop
    ):
        cdef const int32_t[::1] labels
        cdef const double[:, ::1] matrix
        cdef const double[::1] weights = weight
        cdef int64_t i, start = 0
        cdef int64_t n = rows.shape[0]
        self.keep = (X, target, weight)
        self.table = as_table(X)
        self.is_class = target.ndim == 1
        self.criterion = CRITERIA[criterion]
        self.n_outputs = n_outputs
        self.n_rows = n
        self.stop = stop
        self.random.state = seed
        next_word(&self.random)        # a stream apart from that of the bootstrap
        self.random.state ^= <uint64_t>0x5851F42D4C957F2D
        self.row = <int32_t*>malloc(n * sizeof(int32_t))
        self.offset = <int64_t*>malloc(n * sizeof(int64_t))
        self.label = <int32_t*>malloc(n * sizeof(int32_t))
        self.weight = <double*>malloc(n * sizeof(double))
        self.spare = <int64_t*>malloc(n * sizeof(int64_t))
        self.node.label = <int32_t*>malloc(n * sizeof(int32_t))
        self.column = <float*>malloc(n * sizeof(float))
        self.present = <int32_t*>malloc(n_outputs * sizeof(int32_t))
        self.local = <int32_t*>malloc(n_outputs * sizeof(int32_t))
        self.total = <double*>malloc(n_outputs * sizeof(double))
        self.left = <double*>malloc(n_outputs * sizeof(double))
        if not (
            self.row and self.offset and self.label and self.weight and self.spare
            and self.node.label and self.column and self.present and self.local and self.total
            and self.left
        ):
            raise MemoryError()
        memset(self.local, 255, n_outputs * sizeof(int32_t))
        for i in range(n):
            self.row[i] = rows[i]
            self.offset[i] = <int64_t>rows[i] * self.table.n_features
            self.weight[i] = weights[rows[i]]
        if self.is_class:
            labels = target
            for i in range(n):
                self.label[i] = labels[rows[i]]
            append(&self.value_start, &start, 1)
        else:
            matrix = target
            self.target_of = &matrix[0, 0]
            self.n_present = n_outputs
            self.node.target = <double*>malloc(n * n_outputs * sizeof(double))
            if not self.node.target:
                raise MemoryError()

    def __dealloc__(self):
        free(self.row)
        free(self.offset)
        free(self.label)
        free(self.weight)
        free(self.spare)
        free(self.node.label)
        free(self.node.target)
        free(self.column)
        free(self.present)
        free(self.local)
        free(self.total)
        free(self.left)
        free_buffer(&self.value)
        free_buffer(&self.value_index)
        free_buffer(&self.value_start)

    cdef int begin(self, int64_t start, int64_t end) except -1 nogil:
        """Take up the node of rows start .. end - 1 and add it up."""
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
        """Find a split of the node at hand and leave its column behind; False makes a leaf."""
        return False

    cdef int32_t leaf(self) except -1 nogil:
        """Row of the leaf value of the node at hand, its weighted mean target.

        In classification rows 0 .. n_classes - 1 are the pure ones and stored by nobody.
        """
        cdef int32_t k
        cdef int64_t end
        cdef float value
        if not self.is_class:
            for k in range(self.n_outputs):
                value = <float>(self.total[k] / self.node_weight)
                append(&self.value, &value, 1)
            return <int32_t>(self.value.n // self.n_outputs) - 1
        if self.n_present == 1:
            return self.present[0]
        for k in range(self.n_present):
            value = <float>(self.total[k] / self.node_weight)
            append(&self.value, &value, 1)
            append(&self.value_index, &self.present[k], 1)
        end = self.value.n
        append(&self.value_start, &end, 1)
        return self.n_outputs + <int32_t>self.value_start.n - 2

    cdef double side(self, const double* sums, double weight) noexcept nogil:
        """Score of one side of a split, from its sums; a larger sum of both sides is better."""
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

    cdef void finish(self, Split* split) noexcept nogil:
        """Count the left rows of `column` cut at the threshold, and the gain over all rows."""
        cdef int64_t i
        cdef int32_t k
        cdef double weight = 0, gain = -self.side(self.total, self.node_weight)
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
        gain += self.side(self.left, weight)
        for k in range(self.n_present):
            self.left[k] = self.total[k] - self.left[k]
        gain += self.side(self.left, self.node_weight - weight)
        if self.criterion == ENTROPY:
            gain /= log(2.0)                # bits, as everywhere in scikit-learn
        split.gain = gain if gain > 0 else 0

    cdef void part(self, int64_t start, int64_t end, float threshold) noexcept nogil:
        """Put the left rows of the node at hand first, each side in its old order."""
        part_items(self.column, threshold, end - start, self.row + start, <int32_t*>self.spare)
        part_items(self.column, threshold, end - start, self.offset + start, self.spare)
        part_items(self.column, threshold, end - start, self.weight + start, <double*>self.spare)
        if self.is_class:
            part_items(
                self.column, threshold, end - start, self.label + start, <int32_t*>self.spare
            )

    cdef bint poll(self, int64_t work) except -1 nogil:
        """True where growth shall end; now and then lets a signal handler raise."""
        if self.stop[0]:
            return True
        self.work = self.work + work
        if self.work > POLL:
            self.work = 0
            with gil:
                PyErr_CheckSignals()
        return False

    def values(self):
        """Leaf values as arrays of a Forest: the pure rows of all classes first.

        Returns
        -------
        arrays : dict
            "value", "value_start", "value_index"; the last two are empty in regression.
        """
        if not self.is_class:
            return {
                "value": np.frombuffer(used_bytes(&self.value), np.float32),
                "value_start": np.empty(0, dtype=np.int64),
                "value_index": np.empty(0, dtype=np.int32),
            }
        pure = np.arange(self.n_outputs)
        starts = np.frombuffer(used_bytes(&self.value_start), np.int64) + self.n_outputs
        return {
            "value": np.concatenate([
                np.ones(self.n_outputs, dtype=np.float32),
                np.frombuffer(used_bytes(&self.value), np.float32),
            ]),
            "value_start": np.concatenate([pure.astype(np.int64), starts]),
            "value_index": np.concatenate([
                pure.astype(np.int32), np.frombuffer(used_bytes(&self.value_index), np.int32)
            ]),
        }
