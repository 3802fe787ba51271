"""The rows and the leaves of a stump: a hyperplane between two leaves that splits one node.

`NodeRows`: gradient descent on a hyperplane converges well only if features are centred and of
order 1. With the weighted mean m of the rows of a node, rows are replaced by

    z = s (x - m),    s = row_norm / sqrt(mean |x - m|^2)

with one scale s for all features, so that the proportions of the feature map stay.
A hyperplane ``w . z > b`` is ``w . x > w . m + b / s`` in the table. Rows that fit into the cache
are packed: copied as z, without features that are constant in the node. Larger nodes are read in
place, and margins are corrected by ``w . m``.

`StumpLeaves`: a leaf predicts log shares of the classes, or mean targets. With n_k the weight of
class k on one side, K classes and smoothing e, the best parameters are

    log (n_k + e) - log (sum_k n_k + K e)    or    sum_i w_i y_i / sum_i w_i

(e keeps the logarithm finite). The loss of a row at a leaf is its log loss, or its squared error
in units of the variance of the node. `base` is the loss at the left leaf, and `delta` is the loss
at the right leaf minus `base`. The hyperplane is trained only on these two.
"""

from libc.math cimport exp, isfinite, log, sqrt, sqrtf
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcmp, memcpy, memset

from .descent cimport (
    SKF_GROUP, skf_add_rows, skf_distances, skf_dot, skf_gather_rows, skf_label_losses,
    skf_margins, skf_momentum_step, skf_node_moments, skf_rescale, skf_weigh_labels,
    skf_weigh_targets
)
from .direction cimport Table
from .memory cimport Scratch, allocate
from .row_blocks cimport RowBlocks

cdef enum:
    # Chosen without a stored measurement.
    OWN_ROWS = 1 << 21      # largest number of packed floats: 8 MiB, about a cache


cdef int64_t padded_length(int64_t n) noexcept nogil:
    """Return the length of a packed row with n features."""
    return (n + LANES - 1) // LANES * LANES


cdef void pack_rows(
    const float* table, int64_t* at, int64_t n, const int32_t* features, int64_t n_groups,
    int64_t n_single, const float* mean, float scale, float* out
) noexcept nogil:
    """Copy some features of n rows, centred and scaled; `at` then points into the copy.

    features : IN, first features of n_groups groups of SKF_GROUP, then n_single features; both
        ascend
    out : OUT, (n, padded_length(n_groups * SKF_GROUP + n_single))
    """
    cdef int64_t i, stride = padded_length(n_groups * SKF_GROUP + n_single)
    skf_gather_rows(table, at, n, features, n_groups, n_single, stride, mean, scale, out)
    for i in range(n):
        at[i] = i * stride


cdef double node_moments(
    RowBlocks blocks, const int64_t* at, const float* weight, int64_t n, float* mean,
    int32_t* seen, float* distance, float* sum_
) noexcept nogil:
    """Compute the mean of rows, and return the sum of ``weight_i |x_i - mean|^2``.

    Differences from the first row are added, so that a large common offset loses no digits.

    at, weight : IN, where the n rows of p numbers start, and weights that add up to n
    mean : OUT, p
    seen : OUT, p; not 0, apart from the sign bit, for every feature that varies
    distance : scratch, n
    sum_ : scratch, p; left at 0
    """
    cdef const float* first = blocks.first_row(at)
    cdef int64_t start = 0, size, i, j, p = blocks.n_features
    cdef float[BLOCK] share
    cdef double square = 0, about_first = 0
    memset(mean, 0, p * sizeof(float))
    memset(sum_, 0, p * sizeof(float))
    memset(seen, 0, p * sizeof(int32_t))
    while start < n:
        size = min(<int64_t>BLOCK, n - start)
        for i in range(size):
            share[i] = weight[start + i] / n
        blocks.read(at + start, size)
        skf_node_moments(
            blocks.data, blocks.at, size, first, share, p, sum_, seen, distance + start
        )
        for j in range(p):
            mean[j] += sum_[j]
            sum_[j] = 0
        start += size
    for i in range(n):
        about_first += weight[i] * distance[i]
    for j in range(p):
        square += <double>mean[j] * mean[j]
        mean[j] += first[j]
    square = about_first - n * square
    if square < 0.01 * about_first:
        # The first row is an outlier, so the difference above has lost its digits.
        square = 0
        start = 0
        while start < n:
            size = blocks.n_together(n - start)
            blocks.read(at + start, size)
            skf_distances(blocks.data, blocks.at, size, mean, p, distance + start)
            start += size
        for i in range(n):
            square += weight[i] * distance[i]
    return square


cdef class NodeRows:
    """The rows of one node after the other.

    `reserve` is called once. For each node, the caller sets `at` to the starts of the rows in the
    table, and calls `load`.
    """

    cdef int reserve(
        self, Scratch scratch, const Table* table, int64_t n_rows, double row_norm, bint in_groups
    ) except -1:
        """Reserve memory for nodes of up to n_rows rows.

        row_norm : root mean square norm of centred rows; 0: rows are neither centred nor scaled
        in_groups : pack whole groups of features, which is faster than single features
        """
        cdef int64_t p
        self.blocks = RowBlocks()
        self.blocks.reserve(scratch, table)
        self.n_features = self.blocks.capacity
        p = self.n_features
        self.row_norm = row_norm
        self.in_groups = in_groups
        self.at = scratch.longs(n_rows)
        self.mean = scratch.floats(padded_length(p))
        self.node_mean = scratch.floats(p)
        allocate[int32_t](scratch, p, [&self.varies_bits, &self.group, &self.kept, NULL])
        self.own_rows = scratch.floats(min(n_rows * padded_length(p), <int64_t>OWN_ROWS))
        return 0

    cdef Plane plane(self, Scratch scratch, double momentum, double nu) except *:
        """Return a hyperplane over the rows, whose arrays `scratch` keeps alive."""
        cdef Plane plane
        cdef int64_t n = padded_length(self.n_features)
        memset(&plane, 0, sizeof(Plane))
        plane.momentum = momentum
        plane.nu = nu
        allocate[float](scratch, n, [&plane.w, &plane.velocity, &plane.gradient, NULL])
        return plane

    cdef bint load(
        self, const float* weight, int64_t n, int32_t needed, float* distance, float* sums
    ) noexcept nogil:
        """Centre and scale the n rows that start at `at`; False if they are all equal.

        weight : IN, weights that add up to n
        needed : IN, a feature of the table to read in any case
        distance, sums : scratch, n and n_features
        """
        cdef int64_t p
        cdef double square
        self.blocks.choose(self.at, weight, n, needed)
        self.n_features = self.blocks.n_features
        p = self.n_features
        square = node_moments(
            self.blocks, self.at, weight, n, self.node_mean, self.varies_bits, distance, sums
        )
        if not (square > 0) or not isfinite(square):
            return False
        self.node_scale = self.row_norm / sqrt(square / n) if self.row_norm > 0 else 1
        if self.row_norm == 0:
            memset(self.node_mean, 0, p * sizeof(float))
        self.keep_features()
        self.is_packed = n * padded_length(self.n_kept) <= OWN_ROWS
        if self.is_packed:
            self.pack(n)
            self.data = self.own_rows
            self.p = padded_length(self.n_kept)
            self.scale = 1
            memset(self.mean, 0, self.p * sizeof(float))
        else:
            self.p = p
            self.scale = self.node_scale
            memcpy(self.mean, self.node_mean, p * sizeof(float))
        return True

    cdef void pack(self, int64_t n) noexcept nogil:
        """Copy the kept features of n rows; `at` then points into the copy."""
        cdef int64_t i, size, start = 0, stride = padded_length(self.n_kept)
        while start < n:
            size = self.blocks.n_together(n - start)
            self.blocks.read(self.at + start, size)
            skf_gather_rows(
                self.blocks.data, self.blocks.at, size, self.group, self.n_groups,
                self.n_kept - SKF_GROUP * self.n_groups, stride, self.node_mean,
                <float>self.node_scale, self.own_rows + start * stride
            )
            start += size
        for i in range(n):
            self.at[i] = i * stride

    cdef void keep_features(self) noexcept nogil:
        """List the groups with a feature that varies, and single features after the last group.

        Constant features of a group equal their mean exactly, so they never get a weight.
        """
        cdef int32_t g, j, k, p = self.n_features
        cdef int32_t whole = p // SKF_GROUP if self.in_groups else 0
        cdef bint varies
        self.n_groups = 0
        self.n_kept = 0
        for g in range(whole):
            j = g * SKF_GROUP
            varies = False
            for k in range(SKF_GROUP):
                varies = varies or self.varies(j + k)
            if varies:
                self.group[self.n_groups] = j
                self.n_groups = self.n_groups + 1
                for k in range(SKF_GROUP):
                    self.kept[self.n_kept] = j + k
                    self.n_kept = self.n_kept + 1
        for j in range(whole * SKF_GROUP, p):
            if self.varies(j):
                self.group[self.n_groups + self.n_kept - SKF_GROUP * self.n_groups] = j
                self.kept[self.n_kept] = j
                self.n_kept = self.n_kept + 1

    cdef inline bint varies(self, int64_t feature) noexcept nogil:
        """Return whether a feature varies in the node; the bits are of differences, maybe -0."""
        return (self.varies_bits[feature] & 0x7FFFFFFF) != 0

    cdef int64_t position(self, int32_t feature) noexcept nogil:
        """Return the position in the rows of a varying feature of the table."""
        cdef int32_t j
        if self.blocks.is_sparse:
            feature = self.blocks.position[feature]
        if self.is_packed:
            for j in range(self.n_kept):
                if self.kept[j] == feature:
                    return j
        return feature

    cdef float mean_of(self, int32_t feature) noexcept nogil:
        """Return the mean of a feature of the table that is read."""
        return self.node_mean[self.blocks.position[feature] if self.blocks.is_sparse else feature]

    cdef void margins(
        self, const float* w, double bias, const int64_t* at, int64_t n, float* out
    ) noexcept nogil:
        """Compute margins w . z - bias of the n rows that start at `at`; positive goes right."""
        cdef int64_t zero = 0, start = 0, size
        cdef float dot = 0
        if self.is_packed:
            skf_margins(self.data, at, n, w, self.p, out)
            skf_rescale(out, n, 1, <float>bias)
            return
        while start < n:
            size = self.blocks.n_together(n - start)
            self.blocks.read(at + start, size)
            skf_margins(self.blocks.data, self.blocks.at, size, w, self.p, out + start)
            start += size
        skf_margins(self.mean, &zero, 1, w, self.p, &dot)
        skf_rescale(out, n, <float>self.scale, <float>(self.scale * dot + bias))

    cdef void spreads(self, const float* weight, int64_t n, float* out) noexcept nogil:
        """Root of the weighted squares of the first n rows, divided by n; about 0 if not centred.

        weight : IN, n; out : OUT, p
        """
        cdef int64_t i, j, start = 0, size
        cdef const float* row
        cdef float value
        memset(out, 0, self.p * sizeof(float))
        while start < n:
            size = n - start if self.is_packed else self.blocks.n_together(n - start)
            if not self.is_packed:
                self.blocks.read(self.at + start, size)
            for i in range(size):
                if self.is_packed:
                    row = self.data + self.at[start + i]
                else:
                    row = self.blocks.data + self.blocks.at[i]
                for j in range(self.p):
                    value = row[j] - self.mean[j]
                    out[j] += weight[start + i] * value * value
            start += size
        for j in range(self.p):
            out[j] = sqrtf(out[j] / n)

    cdef void step(
        self, Plane* plane, const int64_t* at, const float* slope, int64_t n, double shift,
        double total, double rate
    ) noexcept nogil:
        """One step with momentum along the gradient of a batch, projected on the ball of nu.

        slope : IN, derivatives by the margins of the n rows that start at `at`; `shift` is their
        sum, and `total` is the weight of the batch
        """
        cdef float square = 0
        cdef double shrink
        cdef int64_t start = 0, size
        if self.is_packed:
            skf_add_rows(self.data, at, n, slope, self.p, plane.gradient)
        while start < n and not self.is_packed:
            size = self.blocks.n_together(n - start)
            self.blocks.read(at + start, size)
            skf_add_rows(
                self.blocks.data, self.blocks.at, size, slope + start, self.p, plane.gradient
            )
            start += size
        skf_momentum_step(
            plane.w, plane.velocity, plane.gradient, self.mean, self.p,
            <float>(self.scale / total), <float>shift, <float>plane.momentum, <float>rate, &square
        )
        # d margin / d bias = -1
        plane.bias_velocity = plane.momentum * plane.bias_velocity - shift / total
        plane.bias -= rate * plane.bias_velocity
        shrink = square + plane.bias * plane.bias
        if shrink > plane.nu:
            shrink = sqrt(plane.nu / shrink)
            plane.bias *= shrink
            skf_rescale(plane.w, self.p, <float>shrink, 0)

    cdef double unpack(self, const float* w, double bias, float* direction) noexcept nogil:
        """Convert a hyperplane to the table; return its threshold.

        direction : OUT, weights of the features that are read
        """
        cdef int64_t j
        cdef int32_t feature
        cdef double threshold = bias / self.node_scale
        memset(direction, 0, self.n_features * sizeof(float))
        for j in range(self.n_kept):
            feature = self.kept[j]
            # Without centring, the weight of a constant feature acts as a bias and is kept.
            if self.row_norm == 0 or self.varies(feature):
                direction[feature] = w[j if self.is_packed else feature]
        for j in range(self.n_features):
            threshold += <double>direction[j] * self.node_mean[j]
        return threshold


cdef class StumpLeaves:
    """Leaves of one stump after the other.

    `reserve` is called once. For each node, the caller sets `weight`, `label` or `target`, and
    `loss_scale`, and calls `start_node`.
    """

    cdef int reserve(
        self, Scratch scratch, int64_t n_rows, int32_t n_outputs, bint is_class
    ) except -1:
        """Reserve memory for nodes of up to n_rows rows."""
        self.n_outputs = n_outputs
        self.is_class = is_class
        self.label = scratch.ints(n_rows)
        if not is_class:
            self.target = scratch.doubles(n_rows * n_outputs)
        allocate[float](scratch, n_rows, [&self.weight, &self.base, &self.delta, NULL])
        allocate[float](scratch, n_outputs, [&self.label_base, &self.label_delta, NULL])
        allocate[double](scratch, n_outputs, [&self.left, &self.right, NULL])
        allocate[double](
            scratch, 2 * n_outputs, [&self.left_sum, &self.last_sums, &self.velocity, NULL]
        )
        self.right_sum = self.left_sum + n_outputs
        return 0

    cdef void start_node(
        self, int64_t n, int64_t n_train, int32_t n_present, const int32_t* present
    ) noexcept nogil:
        """Start a node of n rows; the first n_train are training rows.

        present : IN, classes of the node; labels are positions in it
        """
        cdef int64_t i
        self.n_train = n_train
        self.n_present = n_present
        self.has_last_sums = False
        self.train_weight = 0
        for i in range(n_train):
            self.train_weight = self.train_weight + self.weight[i]
        memset(self.velocity, 0, 2 * self.n_outputs * sizeof(double))

    cdef void clear_sums(self) noexcept nogil:
        self.n_left = self.n_train
        self.right_weight = 0
        memset(self.left_sum, 0, 2 * self.n_outputs * sizeof(double))

    cdef void add_rows(self, const float* margin, int64_t first, int64_t n) noexcept nogil:
        """Add n training rows to the side of their margin."""
        cdef int64_t n_right
        if self.is_class:
            n_right = skf_weigh_labels(
                margin, self.label + first, self.weight + first, n, self.n_outputs,
                self.left_sum
            )
        else:
            n_right = skf_weigh_targets(
                margin, self.target + first * self.n_outputs, self.weight + first, n,
                self.n_outputs, self.left_sum, &self.right_weight
            )
        self.n_left = self.n_left - n_right

    cdef void finish_sums(self) noexcept nogil:
        """Set the weights of both sides and `has_changed`, once all rows have been added."""
        cdef int32_t k
        cdef size_t size = 2 * self.n_outputs * sizeof(double)
        if self.is_class:
            self.left_weight = 0
            for k in range(self.n_present):
                self.left_weight = self.left_weight + self.left_sum[k]
                self.right_weight = self.right_weight + self.right_sum[k]
        else:
            self.left_weight = self.train_weight - self.right_weight
        self.has_changed = (
            not self.has_last_sums or memcmp(self.left_sum, self.last_sums, size) != 0
        )
        self.has_last_sums = True
        if self.has_changed:
            memcpy(self.last_sums, self.left_sum, size)

    cdef void sum_sides(self, const float* margin) noexcept nogil:
        """Add up the targets of the training rows on either side."""
        self.clear_sums()
        self.add_rows(margin, 0, self.n_train)
        self.finish_sums()

    cdef void fit(self) noexcept nogil:
        """Set both leaves to their optimum: smoothed log shares of the classes, or means."""
        cdef int32_t k
        cdef double pseudo = self.smoothing
        cdef double left, right
        if self.is_class:
            left = log(self.left_weight + self.n_present * pseudo)
            right = log(self.right_weight + self.n_present * pseudo)
            for k in range(self.n_present):
                self.left[k] = log(self.left_sum[k] + pseudo) - left
                self.right[k] = log(self.right_sum[k] + pseudo) - right
            return
        for k in range(self.n_outputs):
            if self.left_weight > 0:
                self.left[k] = self.left_sum[k] / self.left_weight
            if self.right_weight > 0:
                self.right[k] = self.right_sum[k] / self.right_weight

    cdef void set_losses(self, int64_t first, int64_t last) noexcept nogil:
        """Set the losses of rows first .. last - 1 at either leaf."""
        cdef int64_t i
        cdef int32_t k
        cdef double y, left, right
        if self.is_class:
            for k in range(self.n_present):
                self.label_base[k] = <float>-self.left[k]
                self.label_delta[k] = <float>(self.left[k] - self.right[k])
            skf_label_losses(
                self.label + first, last - first, self.label_base, self.label_delta,
                self.base + first, self.delta + first
            )
        else:
            for i in range(first, last):
                left = 0
                right = 0
                for k in range(self.n_outputs):
                    y = self.target[i * self.n_outputs + k]
                    left += (y - self.left[k]) * (y - self.left[k])
                    right += (y - self.right[k]) * (y - self.right[k])
                left *= self.loss_scale
                right *= self.loss_scale
                self.base[i] = <float>left
                self.delta[i] = <float>(right - left)
        self.sum_losses(first, last)

    cdef void sum_losses(self, int64_t first, int64_t last) noexcept nogil:
        """Set `base_loss`."""
        cdef int64_t size
        cdef float part = 0
        self.base_loss = 0
        while first < last:
            size = min(<int64_t>BLOCK, last - first)
            skf_dot(self.base + first, self.weight + first, size, &part)
            self.base_loss = self.base_loss + part
            first += size

    cdef void step(
        self, const float* margin, const float* delta, int64_t start, int64_t n, double total,
        double rate, int objective
    ) noexcept nogil:
        """Move both leaves by a gradient step with momentum.

        The batch is n training rows from `start` on; it continues at row 0 after the last one.
        The bound is the larger of two terms, one per leaf, so a row has a gradient at only one
        leaf (algorithm 1 of the paper); the soft loss has gradients at both. Log shares are
        normalised after the step, which changes neither losses nor gradients. Means move in units
        of the deviation of the node, in which the scale of the loss cancels.
        """
        cdef int64_t i
        cdef int64_t row
        cdef int32_t k, side
        cdef double right, share, slope
        cdef double* leaf
        cdef double* velocity
        for k in range(2 * self.n_outputs):
            self.velocity[k] = self.velocity[k] * self.momentum
        for i in range(n):
            row = start + i if start + i < self.n_train else start + i - self.n_train
            if objective == SOFT:
                right = 1 / (1 + exp(-2 * <double>margin[i]))
            else:
                right = 2 * margin[i] + delta[i] > 0
            for side in range(2):
                share = (right if side else 1 - right) * self.weight[row] / total
                if share == 0:
                    continue
                leaf = self.right if side else self.left
                velocity = self.velocity + side * self.n_outputs
                for k in range(self.n_present):
                    if self.is_class:
                        slope = exp(leaf[k]) - (k == self.label[row])
                    else:
                        slope = 2 * (leaf[k] - self.target[row * self.n_outputs + k])
                    velocity[k] += share * slope
        for side in range(2):
            leaf = self.right if side else self.left
            velocity = self.velocity + side * self.n_outputs
            share = 0
            for k in range(self.n_present):
                leaf[k] -= rate * velocity[k]
                if self.is_class:
                    share += exp(leaf[k])
            if self.is_class:
                for k in range(self.n_present):
                    leaf[k] -= log(share)

    # The next two are for `OwnLeaves` only.
    cdef double score(self, bint fits) noexcept nogil:
        return 0

    cdef int check(self) except -1 nogil:
        return 0
