"""Growing one tree greedily, with any `NodeSplitter`.

For every node, the splitter finds the split of largest gain

    gain = W I(node) - W_L I(left) - W_R I(right)

where W is the weight and I the impurity of a node; a node without a split becomes a leaf. Without
a limit of the leaves, the tree grows depth first, left before right, so that the rows of a node
are still in the cache when its children are searched. With a limit, it grows best first: a heap
returns the node with the largest gain. One call without the interpreter lock grows the whole tree.
"""

from libc.stdint cimport int32_t, int64_t

import numpy as np

from ..base.memory cimport Buffer
from .split cimport NodeSplitter, Split


cdef struct Task:
    # A node to split: its rows and, once it has been searched, its split.
    int32_t node
    int32_t depth
    int64_t start
    int64_t end
    Split split


cdef class Grower:
    """Grows the tree of one splitter.

    Nodes at depth `max_depth` (the root has 0), with fewer than `min_split` rows, or whose best
    split gains less than `min_gain`, in units of weight times impurity, are leaves. `max_leaves`
    limits best-first growth; 0: depth-first growth without limit.
    """

    cdef NodeSplitter splitter
    cdef int32_t max_depth
    cdef int64_t min_split
    cdef double min_gain
    cdef int64_t max_leaves
    cdef Buffer tasks                # a stack, or a heap with the largest gain on top
    # One entry per node; the child of a leaf is -1 - (row of its value).
    cdef Buffer child
    cdef Buffer weight
    # One entry per split, in the order of the pairs of children.
    cdef Buffer threshold
    cdef Buffer direction
    cdef Buffer gain

    def __init__(
        self, NodeSplitter splitter, int32_t max_depth, int64_t min_split, double min_gain,
        int64_t max_leaves
    ):
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_split = min_split
        self.min_gain = min_gain
        self.max_leaves = max_leaves
        self.tasks = Buffer(sizeof(Task))
        self.child = Buffer(sizeof(int32_t))
        self.weight = Buffer(sizeof(double))
        self.threshold = Buffer(sizeof(float))
        self.direction = Buffer(sizeof(int32_t))
        self.gain = Buffer(sizeof(float))

    def grow(self):
        """Grow the tree; return its arrays, with one entry per node or per split."""
        with nogil:
            if self.max_leaves > 0:
                self.grow_best_first()
            else:
                self.grow_depth_first()
        return {
            "child": self.child.array(np.int32),
            "node_weight": self.weight.array(np.float64),
            "threshold": self.threshold.array(np.float32),
            "direction": self.direction.array(np.int32),
            "gain": self.gain.array(np.float32),
        }

    cdef int grow_depth_first(self) except -1 nogil:
        cdef Task task, right
        self.add_root(&task)
        self.tasks.append(&task, 1)
        while self.tasks.n > 0:
            self.tasks.n = self.tasks.n - 1
            task = (<Task*>self.tasks.data)[self.tasks.n]
            if not self.search_node(&task):
                self.make_leaf(&task)
                continue
            self.split_node(&task, &right)
            self.tasks.append(&right, 1)
            self.tasks.append(&task, 1)
        return 0

    cdef int grow_best_first(self) except -1 nogil:
        cdef Task task, right
        cdef int64_t i, n_leaves = 1
        self.add_root(&task)
        self.search_and_push(&task)
        while self.tasks.n > 0 and n_leaves < self.max_leaves:
            self.pop_best(&task)
            self.split_node(&task, &right)
            self.search_and_push(&task)
            self.search_and_push(&right)
            n_leaves += 1
        for i in range(self.tasks.n):
            task = (<Task*>self.tasks.data)[i]
            self.splitter.begin_node(task.start, task.end)
            self.make_leaf(&task)
        return 0

    cdef int add_root(self, Task* task) except -1 nogil:
        task.node = 0
        task.depth = 0
        task.start = 0
        task.end = self.splitter.n_rows
        return self.add_node()

    cdef int add_node(self) except -1 nogil:
        cdef int32_t child = -1
        cdef double weight = 0
        self.child.append(&child, 1)
        return self.weight.append(&weight, 1)

    cdef bint search_node(self, Task* task) except -1 nogil:
        """Find the split of the node and partition its rows; False if the node is a leaf."""
        cdef int64_t n = task.end - task.start
        self.splitter.begin_node(task.start, task.end)
        (<double*>self.weight.data)[task.node] = self.splitter.node_weight
        if task.depth >= self.max_depth or n < self.min_split or self.splitter.is_pure:
            return False
        if not self.splitter.search(&task.split) or task.split.gain < self.min_gain:
            return False
        self.splitter.partition(task.start, task.end, task.split.threshold)
        return True

    cdef int make_leaf(self, const Task* task) except -1 nogil:
        """Make the node, which is the current one of the splitter, a leaf."""
        (<int32_t*>self.child.data)[task.node] = -1 - self.splitter.add_leaf()
        return 0

    cdef int split_node(self, Task* task, Task* right) except -1 nogil:
        """Split the node; `task` becomes its left child, `right` its right one."""
        cdef float gain = <float>task.split.gain
        cdef int32_t child = <int32_t>self.child.n
        (<int32_t*>self.child.data)[task.node] = child
        self.threshold.append(&task.split.threshold, 1)
        self.direction.append(&task.split.code, 1)
        self.gain.append(&gain, 1)
        self.add_node()
        self.add_node()
        task.node = child
        task.depth += 1
        right.node = child + 1
        right.depth = task.depth
        right.start = task.start + task.split.n_left
        right.end = task.end
        task.end = right.start
        return 0

    cdef int search_and_push(self, Task* task) except -1 nogil:
        """Find the split of the node and push the node on the heap, or make it a leaf."""
        cdef int64_t i, parent
        cdef Task* heap
        if not self.search_node(task):
            return self.make_leaf(task)
        self.tasks.append(task, 1)
        heap = <Task*>self.tasks.data
        i = self.tasks.n - 1
        while i > 0:
            parent = (i - 1) // 2
            if heap[parent].split.gain >= task.split.gain:
                break
            heap[i] = heap[parent]
            i = parent
        heap[i] = task[0]
        return 0

    cdef void pop_best(self, Task* task) noexcept nogil:
        """Remove the task with the largest gain from the heap."""
        cdef Task* heap = <Task*>self.tasks.data
        cdef Task last
        cdef int64_t i = 0, child, n
        task[0] = heap[0]
        self.tasks.n = self.tasks.n - 1
        n = self.tasks.n
        last = heap[n]
        while 2 * i + 1 < n:
            child = 2 * i + 1
            if child + 1 < n and heap[child + 1].split.gain > heap[child].split.gain:
                child += 1
            if last.split.gain >= heap[child].split.gain:
                break
            heap[i] = heap[child]
            i = child
        heap[i] = last
