"""Oblique splits by coordinate descent.

OC1 (Murthy, Kasif, Salzberg 1994, section 3) optimises one weight of a hyperplane at a time, over
all values at which some row changes sides. Here, a plane moves along a direction d, usually one
feature. With margin m = w . x - b, a row is right of the moved plane if

    m + a s > 0,    s = d . x - low,

with low the smallest d . x of the rows. No s is negative, so each row changes sides once, at the
critical value a = -m / s. The best a is therefore the best cut of the column m / s, at -a, which
`cut_sorted` finds as for single features. Margins are updated with each move.

If no weight improves the split, the plane moves along random directions. Descent starts at the
best cut of some single features, and again at random planes.
"""

from libc.math cimport INFINITY, fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

import numpy as np

from ..base.descent cimport skf_critical_values, skf_tilt_margins
from ..base.direction cimport DENSE, project
from ..base.memory cimport Scratch
from ..base.random cimport normal
from ..search.search cimport Cut, SearchSplitter
from ..search.split cimport ENTROPY, Sample, Split

cdef extern from "base/columns.h" nogil:
    void skf_range(const float*, int64_t, float*, float*)

# Chosen without a stored measurement.
cdef enum:
    MAX_WEIGHTS = 50        # largest number of weights that a round moves, chosen at random
    MAX_ROUNDS = 20         # largest number of rounds from one start
    WORK = 16               # additions that take as long as sorting a row


cdef inline double rounding(double score) noexcept nogil:
    """Return a bound on the rounding error of a sum of scores."""
    return 1e-9 * fabs(score)


cdef class CoordinateSplitter(SearchSplitter):
    """Splits by a hyperplane, found by coordinate descent from the best cut of a single feature.

    X is float32 and the sampler draws features. Descent also starts from `n_restarts` random
    hyperplanes, and tries `n_jumps` random directions if no single weight improves the split.
    """

    cdef int32_t n_restarts
    cdef int32_t n_jumps

    # a plane over the rows that are searched; a row is right where its margin is positive
    cdef double* w
    cdef double* margin
    cdef double score          # score of its split
    cdef float* direction      # direction of a start or a jump
    cdef float* along          # projection of the rows on the direction

    # the best plane of all starts
    cdef double* best_w
    cdef double best_score

    def __init__(self, training_set, options, uint64_t seed, stop):
        SearchSplitter.__init__(self, training_set, options, seed, stop)
        cdef Scratch scratch = self.scratch
        cdef int64_t n = self.n_rows, p = self.table.n_features
        self.n_restarts = options.n_restarts
        self.n_jumps = options.n_jumps
        self.w = scratch.doubles(p)
        self.margin = scratch.doubles(n)
        self.direction = scratch.floats(p)
        self.along = scratch.floats(n)
        self.best_w = scratch.doubles(p)

    cdef bint search(self, Split* split) except -1 nogil:
        """Find the best cut of a single feature, and improve it by descent."""
        cdef Sample* sample = &self.node
        cdef double ideal, norm = 0
        cdef Cut cut
        cdef int32_t j, p = self.table.n_features
        if not SearchSplitter.search(self, split):
            return False
        if self.node.n > self.max_search_samples and not self.subset_is_pure:
            sample = &self.subset
        # 1. descent from the cut and from random planes
        ideal = self.ideal_score(sample)
        self.best_score = -INFINITY
        self.sampler.unfold(&self.best, &self.table, &self.unfolded)
        memset(self.direction, 0, p * sizeof(float))
        self.direction[self.best.feature] = 1
        if self.start_at(sample):
            self.keep_best()
            if self.best_score >= ideal:
                return True
            if self.descend(sample):
                return False
        for _ in range(self.n_restarts):
            if self.best_score >= ideal:
                break
            self.draw_direction()
            if self.start_at(sample) and self.descend(sample):
                return False
        if self.best_score == -INFINITY:
            return True
        # 2. the best plane, as it is stored, with the best threshold over all rows
        for j in range(p):
            norm += self.best_w[j] * self.best_w[j]
        for j in range(p):
            self.direction[j] = <float>(self.best_w[j] / sqrt(norm))
        self.unfold_direction()
        self.reserve_searched(self.node.n)
        if self.cut_direction(&self.node, &cut):
            self.accept_plane(
                self.direction, cut.threshold, split.gain + rounding(self.node_weight), split
            )
        return True

    cdef double ideal_score(self, const Sample* sample) noexcept nogil:
        """Return the score of a split into two pure sides, up to rounding."""
        cdef int64_t i
        cdef int32_t k
        cdef double score = 0, weight = 0
        for i in range(sample.n):
            weight += sample.weight[i]
            if not self.is_class:
                for k in range(self.n_outputs):
                    score += (
                        sample.target[i * self.n_outputs + k]
                        * sample.target[i * self.n_outputs + k] / sample.weight[i]
                    )
        if self.is_class:
            score = 0 if self.criterion == ENTROPY else weight
            return score - rounding(weight)
        return score - rounding(score)

    # -------------------------------------------------------------------------------------- starts

    cdef bint start_at(self, Sample* sample) noexcept nogil:
        """Start at the best cut of the unfolded direction; False if there is none."""
        cdef Cut cut
        cdef int64_t i
        cdef int32_t j
        if not self.cut_direction(sample, &cut):
            return False
        self.score = cut.score
        for i in range(sample.n):
            self.margin[i] = <double>self.candidate_column[i] - cut.threshold
        for j in range(self.table.n_features):
            self.w[j] = self.direction[j]
        return True

    cdef bint cut_direction(self, Sample* sample, Cut* cut) noexcept nogil:
        """Find the best cut of the unfolded direction; False if there is none."""
        cdef float low = 0, high = 0
        project(&self.unfolded, &self.table, sample.offset, sample.n, self.candidate_column)
        skf_range(self.candidate_column, sample.n, &low, &high)
        cut.score = -INFINITY
        return high > low and self.cut_sorted(sample, cut)

    cdef void draw_direction(self) noexcept nogil:
        cdef int32_t j
        for j in range(self.table.n_features):
            self.direction[j] = <float>normal(&self.random)
        self.unfold_direction()

    cdef void unfold_direction(self) noexcept nogil:
        self.unfolded.kind = DENSE
        self.unfolded.n = self.table.n_features
        self.unfolded.dense = self.direction

    # ------------------------------------------------------------------------------------- descent

    cdef bint descend(self, Sample* sample) except -1 nogil:
        """Move the plane until neither a weight nor a jump helps; True if growth must end."""
        cdef int32_t rounds = 0
        cdef bint moved = True
        while moved and rounds < MAX_ROUNDS:
            moved = False
            rounds += 1
            if self.move_weights(sample, &moved):
                return True
            if moved:
                continue
            for _ in range(self.n_jumps):
                if self.should_stop(sample.n * (WORK + self.table.n_features)):
                    return True
                self.draw_direction()
                if self.move_along(sample):
                    moved = True
                    break
        self.keep_best()
        return False

    cdef bint move_weights(self, Sample* sample, bint* moved) except -1 nogil:
        """Move along up to MAX_WEIGHTS features in random order; True if growth must end."""
        cdef int32_t n_moves = 0
        self.features.start_node()
        while n_moves < MAX_WEIGHTS and self.features.sample(&self.random, &self.candidate):
            if self.should_stop(sample.n * WORK):
                return True
            self.features.unfold(&self.candidate, &self.table, &self.unfolded)
            memset(self.direction, 0, self.table.n_features * sizeof(float))
            self.direction[self.candidate.feature] = 1
            if self.move_along(sample):
                moved[0] = True
            n_moves += 1
        return False

    cdef bint move_along(self, Sample* sample) noexcept nogil:
        """Move the plane along the unfolded direction to its best position; False if none."""
        cdef Cut cut
        cdef float low = 0, high = 0
        cdef double amount, shrink
        cdef int32_t j
        project(&self.unfolded, &self.table, sample.offset, sample.n, self.along)
        skf_range(self.along, sample.n, &low, &high)
        if not high > low:
            return False
        skf_critical_values(self.margin, self.along, sample.n, low, self.candidate_column)
        # Gains by rounding do not count; otherwise descent might never end.
        cut.score = self.score + rounding(self.score)
        if not self.cut_sorted(sample, &cut):
            return False
        # A common factor of all weights keeps them of order 1.
        amount = -<double>cut.threshold
        shrink = 1 / sqrt(1 + amount * amount)
        self.score = cut.score
        for j in range(self.table.n_features):
            self.w[j] = shrink * (self.w[j] + amount * self.direction[j])
        skf_tilt_margins(self.margin, self.along, sample.n, low, amount, shrink)
        return True

    cdef void keep_best(self) noexcept nogil:
        if self.score > self.best_score:
            self.best_score = self.score
            memcpy(self.best_w, self.w, self.table.n_features * sizeof(double))

    def step(self, w, double bias, direction):
        """Move a plane once over all rows of the tree; for tests.

        Return whether it moved, the score after the move, and the margins of all rows and the
        weights, up to a common positive factor.
        """
        cdef const double[::1] weights = w
        cdef const float[::1] along = direction
        cdef int32_t j, p = self.table.n_features
        cdef int64_t i
        self.begin_node(0, self.n_rows)
        margin = np.empty(self.n_rows)
        moved_w = np.empty(p)
        for j in range(p):
            self.w[j] = weights[j]
            self.direction[j] = along[j]
        self.unfold_direction()
        for i in range(self.n_rows):
            self.margin[i] = -bias
            for j in range(p):
                self.margin[i] = self.margin[i] + (
                    weights[j] * (<const float*>self.table.data)[self.offset[i] + j]
                )
        self.score = -1e100          # any split is better
        moved = self.move_along(&self.node)
        for i in range(self.n_rows):
            margin[i] = self.margin[i]
        for j in range(p):
            moved_w[j] = self.w[j]
        return moved, self.score, margin, moved_w
