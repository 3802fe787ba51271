"""Tree alternating optimisation, one hyperplane at a time.

Carreira-Perpinan and Tavallali, "Alternating optimization of decision trees, with application to
learning sparse oblique trees", 2018. The structure of the tree is fixed. Nodes are visited from
the leaves to the root; all that a node can change is which of its two subtrees, as they stand,
answers for each of its rows. Rows that fare better in one of them, its care points, are labelled
with that side, and the node's hyperplane is trained to part them (_logistic.pyx). The new plane is
kept unless it raises the loss of the node's rows, counted by the weights as they will be stored.
"""

from libc.math cimport fabs, isfinite, ldexp
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

import numpy as np

from .buffer cimport Buffer, append, free_buffer, start_buffer, used_bytes
from .direction cimport (
    DENSE,
    NO_DTYPE,
    ONE,
    WEIGHTED,
    Directions,
    Table,
    Taps,
    alloc_taps,
    as_directions,
    as_grid,
    as_table,
    free_taps,
    project,
    unfold,
)
from .logistic cimport Logistic
from .._tree cimport Walk, alloc_walk, free_walk, part_rows

cdef enum:
    CACHED = 1 << 17        # entries of the table that are read again from the cache


cdef class Alternator:
    """One sweep over the nodes of one tree.

    Parameters
    ----------
    arrays : Mapping of str to ndarray
        Those of a `Forest` of one hard tree.
    grid : tuple
        ``(feature_shape, wrap, unordered)``.
    max_taps : int
        Room that the longest direction needs once unfolded.
    most_sparse : int
        The most weights of a direction that is stored sparse.
    X : ndarray of shape (n_samples, n_features), uint8 or float32, C order
        As the tree walks it.
    offset, scale : ndarray of shape (n_features,), float64, or None
        `trainer` sees ``(X - offset) * scale``; None: X itself.
    target : ndarray of shape (n_samples,), int32, or of shape (n_samples, n_outputs), float64
    weight : ndarray of shape (n_samples,), float64
    rows : ndarray of shape (n_rows,), int32
        Rows of the tree.
    leaf : ndarray of shape (n_rows,), int32
        Where the tree takes each of them.
    answer : ndarray of shape (n_nodes,), int32, or of shape (n_nodes, n_outputs), float64
        Class number, or value, of each leaf.
    trainer : Logistic
    """

    cdef object keep                  # arrays that the pointers look into
    cdef Table table
    cdef Directions directions
    cdef Taps taps
    cdef Logistic trainer
    cdef bint folds
    cdef const double[::1] offset
    cdef const double[::1] scale
    cdef int32_t most_sparse

    # the tree
    cdef int64_t n_nodes
    cdef const int32_t[::1] child
    cdef const int32_t[::1] direction
    cdef float* threshold
    cdef int64_t* plane_of            # of a split: its row in `planes`, or -1
    cdef Buffer planes
    cdef uint64_t* labels             # classes of the leaves below a node, modulo 64, as bits
    cdef bint is_class
    cdef bint few_classes             # a bit for each
    cdef int32_t n_outputs
    cdef const int32_t[::1] label
    cdef const double[:, ::1] value
    cdef const int32_t[::1] target_label
    cdef const double[:, ::1] target_value

    # the rows: numbers in `rows`, in the order of the leaves that they reach
    cdef const int32_t[::1] rows
    cdef const int32_t[::1] leaf
    cdef const double[::1] weight
    cdef Walk walk
    cdef int32_t* start               # slice of each node
    cdef int32_t* end
    cdef double* loss                 # of each row, below the node visited last
    cdef double* found                # of each row, had it gone to the other side there
    cdef Walk path                    # rows that try the other side

    # the care points of the node at hand
    cdef int32_t n_care
    cdef int32_t* care
    cdef double* rise                 # weighted loss on the right minus that on the left
    cdef double* plane

    def __cinit__(self, *args, **kwargs):
        start_buffer(&self.planes, sizeof(float))

    def __init__(
        self, arrays, grid, int32_t max_taps, int32_t most_sparse, X, offset, scale, target,
        weight, const int32_t[::1] rows, const int32_t[::1] leaf, answer, Logistic trainer
    ):
        cdef int64_t i, n = rows.shape[0], p = X.shape[1]
        cdef const float[::1] threshold = arrays["threshold"]
        cdef int64_t n_splits = threshold.shape[0]
        self.keep = (arrays, X)
        self.table = as_table(X)
        self.directions = as_directions(arrays, <int32_t>p, as_grid(grid[0], grid[1], grid[2]))
        self.trainer = trainer
        self.folds = scale is not None
        if self.folds:
            self.offset = offset
            self.scale = scale
        self.most_sparse = most_sparse
        self.child = arrays["child"]
        self.direction = arrays["direction"]
        self.n_nodes = self.child.shape[0]
        self.is_class = target.ndim == 1
        if self.is_class:
            self.label = answer
            self.target_label = target
            self.few_classes = np.max(answer, initial=0) < 64 and np.max(target, initial=0) < 64
        else:
            self.value = answer
            self.target_value = target
            self.n_outputs = target.shape[1]
        self.rows = rows
        self.leaf = leaf
        self.weight = weight
        alloc_walk(&self.walk, n)
        alloc_walk(&self.path, n)
        alloc_taps(&self.taps, max(max_taps, <int32_t>p), &self.directions.grid)
        self.threshold = <float*>malloc((n_splits + 1) * sizeof(float))
        self.plane_of = <int64_t*>malloc((n_splits + 1) * sizeof(int64_t))
        self.labels = <uint64_t*>malloc(self.n_nodes * sizeof(uint64_t))
        self.start = <int32_t*>malloc(self.n_nodes * sizeof(int32_t))
        self.end = <int32_t*>malloc(self.n_nodes * sizeof(int32_t))
        self.loss = <double*>malloc(n * sizeof(double))
        self.found = <double*>malloc(n * sizeof(double))
        self.care = <int32_t*>malloc(n * sizeof(int32_t))
        self.rise = <double*>malloc(n * sizeof(double))
        self.plane = <double*>malloc(p * sizeof(double))
        if not (
            self.threshold and self.plane_of and self.labels and self.start and self.end and
            self.loss and self.found and self.care and self.rise and self.plane
        ):
            raise MemoryError()
        for i in range(n_splits):
            self.threshold[i] = threshold[i]
            self.plane_of[i] = -1

    def __dealloc__(self):
        free_walk(&self.walk)
        free_walk(&self.path)
        free_taps(&self.taps)
        free(self.threshold)
        free(self.plane_of)
        free(self.labels)
        free(self.start)
        free(self.end)
        free(self.loss)
        free(self.found)
        free(self.care)
        free(self.rise)
        free(self.plane)
        free_buffer(&self.planes)

    def sweep(self):
        """Visit every node once.

        Returns
        -------
        split : ndarray of shape (n_changed,), int64
            Splits with a new hyperplane.
        weights : ndarray of shape (n_changed, n_features), float32
        threshold : ndarray of shape (n_changed,), float32
        """
        cdef int64_t i, n_splits = (self.n_nodes - 1) // 2
        with nogil:
            self.visit_nodes()
        weights = np.frombuffer(used_bytes(&self.planes), np.float32)
        weights = weights.reshape(-1, self.table.n_features)
        split = np.empty(len(weights), dtype=np.int64)
        threshold = np.empty(len(weights), dtype=np.float32)
        for i in range(n_splits):
            if self.plane_of[i] >= 0:
                split[self.plane_of[i]] = i
                threshold[self.plane_of[i]] = self.threshold[i]
        return split, weights, threshold

    def care_points(self, int64_t node):
        """The care points of a node of the tree as it stands; for tests.

        Returns
        -------
        rows : ndarray of shape (n_care,), int32
        rise : ndarray of shape (n_care,), float64
            Weighted loss of the right subtree minus that of the left.
        """
        cdef int64_t i
        with nogil:
            self.line_up()
            self.settle_leaves()
            for i in range(self.n_nodes - 1, node - 1, -1):
                if self.child[i] > 0:
                    self.gather_care(i)
        rows = np.empty(self.n_care, dtype=np.int32)
        rise = np.empty(self.n_care)
        for i in range(self.n_care):
            rows[i] = self.rows[self.care[i]]
            rise[i] = self.rise[i]
        return rows, rise

    cdef int visit_nodes(self) except -1 nogil:
        cdef int64_t node
        self.line_up()
        self.settle_leaves()
        # Children stand behind their parents: backwards is from the leaves to the root.
        for node in range(self.n_nodes - 1, -1, -1):
            if self.child[node] < 0:
                continue
            if self.gather_care(node):
                return 0
            if self.n_care > 0 and self.refit(node):
                return 0
        return 0

    # ------------------------------------------------------------------------------------- routing

    cdef void line_up(self) noexcept nogil:
        """Put the rows in the order of their leaves, so that those of every node are a slice."""
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
            self.walk.row[node] = i
            self.walk.offset[node] = <int64_t>self.rows[i] * self.table.n_features

    cdef int32_t turn(
        self, Walk* walk, int32_t child, int32_t start, int32_t end
    ) noexcept nogil:
        """Part some rows at the split of a pair of children; the first right one is returned."""
        cdef int64_t split = (child - 1) // 2
        self.unfold_split(split, &self.table)
        project(&self.taps, &self.table, walk.offset + start, end - start, walk.column + start)
        return part_rows(walk, start, end, self.threshold[split])

    cdef void unfold_split(self, int64_t split, const Table* table) noexcept nogil:
        if self.plane_of[split] < 0:
            unfold(&self.taps, &self.directions, self.direction[split], table)
        else:
            self.unfold_plane(
                <const float*>self.planes.data + self.plane_of[split] * self.table.n_features
            )

    cdef void unfold_plane(self, const float* plane) noexcept nogil:
        """Taps of a hyperplane, in the order in which they add up once it is stored."""
        cdef int32_t j, n = 0, p = self.table.n_features
        cdef Taps* taps = &self.taps
        for j in range(p):
            n += plane[j] != 0
        if n > self.most_sparse:
            taps.kind = DENSE
            taps.n = p
            taps.dense = plane
            return
        taps.kind = WEIGHTED
        taps.n = n
        n = 0
        for j in range(p):
            if plane[j] != 0:
                taps.position[n] = j
                taps.weight[n] = plane[j]
                n += 1

    cdef void settle_leaves(self) noexcept nogil:
        """Loss of every row at its leaf, and the classes below every node."""
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
                self.loss[self.walk.row[i]] = self.loss_at(self.walk.row[i], node)

    cdef inline double loss_at(self, int32_t row, int64_t leaf) noexcept nogil:
        """Loss of a row at a leaf: 0 or 1, or the squared error."""
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

    cdef bint gather_care(self, int64_t node) except -1 nogil:
        """Rows of the node that fare better on one side; True where training shall end."""
        cdef int32_t child = self.child[node]
        cdef int32_t i, row, middle = self.end[child]
        cdef double rise
        self.n_care = 0
        if self.start[node] == self.end[node]:
            return False
        if self.try_out_all(child + 1, self.start[node], middle):
            return True
        if self.try_out_all(child, middle, self.end[node]):
            return True
        for i in range(self.start[node], self.end[node]):
            row = self.walk.row[i]
            rise = self.found[row] - self.loss[row]
            if rise != 0:
                if i >= middle:
                    rise = -rise
                self.care[self.n_care] = row
                self.rise[self.n_care] = rise * self.weight[self.rows[row]]
                self.n_care = self.n_care + 1
        return False

    cdef bint try_out_all(self, int32_t root, int32_t start, int32_t end) except -1 nogil:
        """`try_out` for a few rows after another: they stay in the cache on their way down."""
        cdef int32_t size = max(<int32_t>16, <int32_t>(CACHED // self.table.n_features))
        while start < end:
            if self.try_out(root, start, min(start + size, end)):
                return True
            start += size
        return False

    cdef bint try_out(self, int32_t root, int32_t start, int32_t end) except -1 nogil:
        """Loss that a slice of rows would have in a subtree; True where training shall end."""
        cdef Walk* path = &self.path
        cdef int32_t i, node = root, child, middle, depth = 0
        for i in range(start, end):
            path.row[i - start] = self.walk.row[i]
            path.offset[i - start] = self.walk.offset[i]
        end -= start
        start = 0
        while True:
            child = self.child[node]
            middle = end
            if child < 0:
                for i in range(start, end):
                    self.found[path.row[i]] = self.loss_at(path.row[i], node)
            else:
                end = self.drop_known(node, start, end)
                middle = end
            if child > 0 and end > start:
                middle = self.turn(path, child, start, end)
                if self.trainer.poll(<int64_t>(end - start) * self.table.n_features):
                    return True
                if middle == start:
                    node = child + 1
                    continue
            if child > 0 and end > start:
                if middle < end:
                    path.stack_node[depth] = child + 1
                    path.stack_start[depth] = middle
                    path.stack_end[depth] = end
                    depth += 1
                node = child
                end = middle
                continue
            if depth == 0:
                return False
            depth -= 1
            node = path.stack_node[depth]
            start = path.stack_start[depth]
            end = path.stack_end[depth]

    cdef int32_t drop_known(self, int32_t node, int32_t start, int32_t end) noexcept nogil:
        """Settle rows whose class no leaf below the node has, or all have; the end of the rest."""
        cdef Walk* path = &self.path
        cdef int32_t i, row, n = start
        cdef uint64_t bit, labels = self.labels[node]
        if not self.is_class:
            return end
        for i in range(start, end):
            row = path.row[i]
            bit = <uint64_t>1 << (self.target_label[self.rows[row]] & 63)
            if not labels & bit:
                self.found[row] = 1
            elif labels == bit and self.few_classes:
                self.found[row] = 0
            else:
                path.row[n] = row
                path.offset[n] = path.offset[i]
                n += 1
        return n

    # ------------------------------------------------------------------------------------ training

    cdef bint refit(self, int64_t node) except -1 nogil:
        """Train the plane of the node on its care points; True where training shall end."""
        cdef int64_t split = (self.child[node] - 1) // 2, p = self.table.n_features, before
        cdef int32_t i, row, right, at_right, n = self.n_care
        cdef double threshold, rise = 0
        cdef float* column = self.path.column
        self.read_plane(split, &threshold)
        for i in range(n):
            self.path.offset[i] = <int64_t>self.rows[self.care[i]] * p
            self.trainer.at[i] = self.path.offset[i]
            self.trainer.side[i] = 1 if self.rise[i] < 0 else -1
            self.trainer.weight[i] = <float>fabs(self.rise[i])
        if not self.trainer.train(n, self.plane, &threshold):
            return self.trainer.stop[0]
        before = self.planes.n
        if not self.write_plane(&threshold):
            return False
        # Loss of the care points that change sides.
        self.unfold_plane(<const float*>self.planes.data + before)
        project(&self.taps, &self.table, self.path.offset, n, column)
        for i in range(n):
            row = self.care[i]
            # What was found on the other side tells where the row is.
            at_right = (self.found[row] > self.loss[row]) != (self.rise[i] > 0)
            right = column[i] > <float>threshold
            self.path.leaf[i] = right != at_right
            rise += self.rise[i] * (right - at_right)
        if rise > 0:
            self.planes.n = before
            return False
        for i in range(n):
            if self.path.leaf[i]:
                self.loss[self.care[i]] = self.found[self.care[i]]
        self.plane_of[split] = before // p
        self.threshold[split] = <float>threshold
        return False

    cdef void read_plane(self, int64_t split, double* threshold) noexcept nogil:
        """The plane of a split, in the features that the trainer sees."""
        cdef int64_t j, p = self.table.n_features
        cdef int32_t t
        cdef Taps* taps = &self.taps
        cdef double* plane = self.plane
        cdef Table none
        none.dtype = NO_DTYPE
        none.n_features = self.table.n_features
        self.unfold_split(split, &none)
        memset(plane, 0, p * sizeof(double))
        for t in range(taps.n):
            if taps.kind == ONE:
                plane[taps.position[t]] = 1
            elif taps.kind == WEIGHTED:
                plane[taps.position[t]] += taps.weight[t]
            else:
                plane[t] = taps.dense[t]
        threshold[0] = self.threshold[split]
        if self.folds:
            for j in range(p):
                threshold[0] -= plane[j] * self.offset[j]
                plane[j] /= self.scale[j]

    cdef bint write_plane(self, double* threshold) except -1 nogil:
        """Append the trained plane in the table's features; False where float32 cannot hold it."""
        cdef int64_t j, p = self.table.n_features
        cdef double largest = 0, factor = 1
        cdef double* plane = self.plane
        cdef float weight
        cdef double rounded
        if self.folds:
            for j in range(p):
                plane[j] *= self.scale[j]
                largest = max(largest, fabs(plane[j]))
            if not (largest > 0) or not isfinite(largest):
                return False
            # The length of a plane has no meaning to the tree: weights of at most 1.
            while largest * factor > 1:
                factor = ldexp(factor, -1)
            while largest * factor < 0.5:
                factor = ldexp(factor, 1)
            threshold[0] *= factor
        for j in range(p):
            weight = <float>(plane[j] * factor)
            if self.folds:
                threshold[0] += <double>weight * self.offset[j]
            append(&self.planes, &weight, 1)
            if not isfinite(weight):
                threshold[0] = weight
        rounded = <float>threshold[0]
        if not isfinite(rounded):
            self.planes.n = self.planes.n - p
            return False
        return True
