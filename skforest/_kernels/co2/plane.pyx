"""Nodes that are split by a hyperplane over their rows: projection and storage of the result.

A hyperplane is trained over the rows of `NodeRows`. Here it becomes a direction and a threshold
over the table, so that training routes rows exactly as prediction does.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from ..base.direction cimport (
    DENSE, FLOAT32, WEIGHTED, Table, Unfolded, project, reserve_unfolded
)
from ..base.row_blocks cimport MAX_CHOSEN
from ..base.stump cimport NodeRows, Plane
from ..search.search cimport SearchSplitter


cdef class PlaneSplitter(SearchSplitter):
    """A search among single features, with methods to split a node by a trained hyperplane."""

    cdef int reserve_rows(self, double row_norm, int32_t max_weights) except -1:
        """Reserve memory once; `row_norm` is as in `NodeRows`."""
        self.max_weights = max_weights
        self.rows = NodeRows()
        self.rows.reserve(self.scratch, &self.table, self.n_rows, row_norm, True)
        self.direction = self.scratch.floats(self.table.n_features)
        if self.rows.blocks.is_sparse or max_weights > 0:
            self.trained = reserve_unfolded(
                self.scratch, MAX_CHOSEN if self.rows.blocks.is_sparse else max_weights,
                &self.sampler.grid
            )
        return 0

    cdef void project_trained(self, const Plane* plane) noexcept nogil:
        """Unpack a hyperplane, project the node's rows on it, and set the threshold."""
        self.threshold = <float>self.rows.unpack(plane.w, plane.bias, self.direction)
        if self.rows.blocks.is_sparse:
            self.project_blocks()
        elif self.max_weights > 0:
            self.collect_weights()
            project(&self.trained, &self.table, self.node.offset, self.node.n, self.column)
        else:
            self.project_plane(self.direction)

    cdef bint is_stored_sparse(self) noexcept nogil:
        """Return whether a hyperplane has few weights: by the limit, or as a node reads few."""
        if self.max_weights > 0:
            return True
        return self.rows.blocks.is_sparse and self.table.n_features > MAX_CHOSEN

    cdef void collect_weights(self) noexcept nogil:
        """Set `trained` to the nonzero weights of the direction."""
        cdef Unfolded* trained = &self.trained
        cdef int32_t j
        trained.kind, trained.n = WEIGHTED, 0
        for j in range(self.rows.n_features):
            if self.direction[j] != 0:
                trained.position[trained.n] = j
                trained.weight[trained.n] = self.direction[j]
                trained.n += 1

    cdef void project_blocks(self) noexcept nogil:
        """Set `column` to the projection of rows of a CSR matrix, by the loops of prediction."""
        cdef Unfolded* trained = &self.trained
        cdef Table table
        cdef int64_t size, start = 0
        memset(&table, 0, sizeof(Table))
        table.data, table.dtype = self.rows.blocks.block, FLOAT32
        table.n_features = self.rows.n_features
        trained.kind, trained.n, trained.dense = DENSE, self.rows.n_features, self.direction
        if self.is_stored_sparse():
            self.collect_weights()
        while start < self.node.n:
            size = self.rows.blocks.n_together(self.node.n - start)
            self.rows.blocks.read(self.node.offset + start, size)
            project(trained, &table, self.rows.blocks.at, size, self.column + start)
            start += size

    cdef int32_t store_trained(self) except -1 nogil:
        """Store the nonzero weights of the direction of `project_trained`."""
        cdef Unfolded* trained = &self.trained
        cdef int32_t t
        cdef int64_t end
        if self.rows.blocks.is_sparse:
            for t in range(trained.n):
                self.sparse_feature.append(&self.rows.blocks.chosen[trained.position[t]], 1)
        else:
            self.sparse_feature.append(trained.position, trained.n)
        self.sparse_weight.append(trained.weight, trained.n)
        end = self.sparse_feature.n
        self.sparse_start.append(&end, 1)
        return self.table.n_features + <int32_t>self.sparse_start.n - 2
