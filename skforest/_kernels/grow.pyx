"""Growing one tree greedily, with any `NodeSplitter`.

Depth first, left before right, so that a node's rows are still in the cache when its children are
searched; or best first, the node of largest gain next, when the number of leaves is limited. The
whole tree is one call without the interpreter.
"""

from libc.stdint cimport int32_t, int64_t

import numpy as np

from .buffer cimport Buffer, append, free_buffer, start_buffer, used_bytes
from .split cimport NodeSplitter, Split


cdef struct Task:
    # A node that waits to be split: its rows, and, once it was looked at, its split.
    int32_t node
    int32_t depth
    int64_t start
    int64_t end
    Split split


cdef class Grower:
    """Grows the tree of one splitter.

    Parameters
    ----------
    splitter : NodeSplitter
    max_depth : int
        Nodes at this depth are leaves; the root has depth 0.
    min_split : int
        Nodes of fewer rows are leaves.
    min_gain : float
        Nodes whose best split gains less (in units of weight times impurity) are leaves.
    max_leaves : int
        0 for depth first without limit.
    """

    cdef NodeSplitter splitter
    cdef int32_t max_depth
    cdef int64_t min_split
    cdef double min_gain
    cdef int64_t max_leaves
    cdef Buffer tasks                # a stack, or a heap with the largest gain on top
    # One entry a node; a leaf's child is -1 - (row of its value).
    cdef Buffer child
    cdef Buffer weight
    # One entry a split, which belongs to the pair of children that it makes.
    cdef Buffer threshold
    cdef Buffer direction
    cdef Buffer gain

    def __cinit__(self, *args, **kwargs):
        start_buffer(&self.tasks, sizeof(Task))
        start_buffer(&self.child, sizeof(int32_t))
        start_buffer(&self.weight, sizeof(double))
        start_buffer(&self.threshold, sizeof(float))
        start_buffer(&self.direction, sizeof(int32_t))
        start_buffer(&self.gain, sizeof(float))

    def __init__(
        self, NodeSplitter splitter, int32_t max_depth, int64_t min_split, double min_gain,
        int64_t max_leaves
    ):
        self.splitter = splitter
        self.max_depth = max_depth
        self.min_split = min_split
        self.min_gain = min_gain
        self.max_leaves = max_leaves

    def __dealloc__(self):
        free_buffer(&self.tasks)
        free_buffer(&self.child)
        free_buffer(&self.weight)
        free_buffer(&self.threshold)
        free_buffer(&self.direction)
        free_buffer(&self.gain)

    def grow(self):
        """Grow the tree.

        Returns
        -------
        arrays : dict of str to ndarray
            "child" and "node_weight", one entry a node; "threshold", "direction" and "gain", one a
            split.
        """
        with nogil:
            if self.max_leaves > 0:
                self.grow_best_first()
            else:
                self.grow_depth_first()
        return {
            "child": np.frombuffer(used_bytes(&self.child), np.int32),
            "node_weight": np.frombuffer(used_bytes(&self.weight), np.float64),
            "threshold": np.frombuffer(used_bytes(&self.threshold), np.float32),
            "direction": np.frombuffer(used_bytes(&self.direction), np.int32),
            "gain": np.frombuffer(used_bytes(&self.gain), np.float32),
        }

    cdef int grow_depth_first(self) except -1 nogil:
        cdef Task task, right
        cdef Buffer* tasks = &self.tasks
        self.add_root(&task)
        append(tasks, &task, 1)
        while tasks.n > 0:
            tasks.n -= 1
            task = (<Task*>tasks.data)[tasks.n]
            if not self.look(&task):
                self.make_leaf(&task)
                continue
            self.divide(&task, &right)
            append(tasks, &right, 1)
            append(tasks, &task, 1)
        return 0

    cdef int grow_best_first(self) except -1 nogil:
        cdef Task task, right
        cdef int64_t i, n_leaves = 1
        self.add_root(&task)
        self.look_and_push(&task)
        while self.tasks.n > 0 and n_leaves < self.max_leaves:
            self.pop_best(&task)
            self.divide(&task, &right)
            self.look_and_push(&task)
            self.look_and_push(&right)
            n_leaves += 1
        for i in range(self.tasks.n):
            task = (<Task*>self.tasks.data)[i]
            self.splitter.begin(task.start, task.end)
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
        append(&self.child, &child, 1)
        return append(&self.weight, &weight, 1)

    cdef bint look(self, Task* task) except -1 nogil:
        """Search the node's split and part its rows; False where it stays a leaf."""
        cdef int64_t n = task.end - task.start
        self.splitter.begin(task.start, task.end)
        (<double*>self.weight.data)[task.node] = self.splitter.node_weight
        if task.depth >= self.max_depth or n < self.min_split or self.splitter.is_pure:
            return False
        if not self.splitter.search(&task.split) or task.split.gain < self.min_gain:
            return False
        self.splitter.part(task.start, task.end, task.split.threshold)
        return True

    cdef int make_leaf(self, const Task* task) except -1 nogil:
        """The splitter must have begun the node."""
        (<int32_t*>self.child.data)[task.node] = -1 - self.splitter.leaf()
        return 0

    cdef int divide(self, Task* task, Task* right) except -1 nogil:
        """Turn the node into a split; the task goes on as its left child."""
        cdef float gain = <float>task.split.gain
        cdef int32_t child = <int32_t>self.child.n
        (<int32_t*>self.child.data)[task.node] = child
        append(&self.threshold, &task.split.threshold, 1)
        append(&self.direction, &task.split.code, 1)
        append(&self.gain, &gain, 1)
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

    cdef int look_and_push(self, Task* task) except -1 nogil:
        """Search the node's split now, and let it wait its turn."""
        cdef int64_t i, parent
        cdef Task* heap
        if not self.look(task):
            return self.make_leaf(task)
        append(&self.tasks, task, 1)
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
        """Take the task of largest gain off the heap."""
        cdef Buffer* tasks = &self.tasks
        cdef Task* heap = <Task*>tasks.data
        cdef Task last
        cdef int64_t i = 0, child, n
        task[0] = heap[0]
        tasks.n -= 1
        n = tasks.n
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
