"""The functions of C that exported models consist of, as texts.

In a text, `@` stands for the prefix of a forest, and words in capitals for numbers, or for one of
the shorter texts.
"""

SCALED = """v = (v - @_offset[j]) * @_scale[j];
    if (v != v) /* infinity times the scale 0 */
        return @_fill[j];"""

CLIPPED = """
    if (v > LIMIT)
        v = LIMIT;
    if (v < -LIMIT)
        v = -LIMIT;
"""
LIMITED = """
    if (v > @_high[j])
        v = @_high[j];
    if (v < @_low[j])
        v = @_low[j];
"""
# As `matrix.limited`.
WITH_KNOTS = """
    if (v > @_high[j])
        v = @_high[j] + @_beyond(@_knots + 2 * N_KNOTS * j, 1, @_tail[j], v, @_high[j]);
    else if (v < @_low[j])
        v = @_low[j] - @_beyond(@_knots + 2 * N_KNOTS * j + N_KNOTS, -1, @_tail[j], -v, -@_low[j]);
"""
BEYOND = """
/* Distance from its limit `end` to which v > end is moved: the knots divide the tail evenly. */
static double @_beyond(const double *knots, int sign, double tail, double v, double end)
{
    double first = end, last;
    int k;
    if (!(sign * knots[N_KNOTS - 1] > end))
        return 0;
    for (k = 0; k < N_KNOTS; k++) {
        last = sign * knots[k];
        if (v < last)
            return tail / N_KNOTS * (k + (v - first) / (last - first));
        first = last;
    }
    return tail;
}
"""

INPUT = """
/* A number of a row as the trees read it: scaled if the estimator scales, and limited. */
static float @_input(double v, int j)
{
    if (v != v)
        return @_fill[j];
    SCALED
LIMITS    return (float)v;
}
"""

ENTRY = """
/* Position in the tables of an input: 0 or 1 of numbers, where 1 means missing; of categories the
 * code, then one for missing values, then one for unknown levels. */
static int @_entry(double v, int j)
{
    const int n = @_n_levels[j];
    if (v != v)
        return n == 0 ? 1 : n;
    if (n == 0)
        return 0;
    return v >= 0 && v < n && v == (int)v ? (int)v : n + 1;
}
"""

FEATURES = """
static void @_features(const double *x, float *z)
{
    int f;
    for (f = 0; f < N_FEATURES; f++) {
        const int j = @_source[f];
        FEATURE
    }
}
"""
OF_VALUES = "z[f] = @_input(x[j], j);"
OF_TABLES = "z[f] = @_table[@_table_start[f] + @_entry(x[j], j)];"
OF_BOTH = f"if (@_kind[f] == VALUE)\n{12 * ' '}{OF_VALUES}\n        else\n{12 * ' '}{OF_TABLES}"

PLAIN_FEATURES = """
static void @_features(const double *x, float *z)
{
    int j;
    for (j = 0; j < N_FEATURES; j++)
        z[j] = @_input(x[j], j);
}
"""

BOX = """
/* Sum of a box of the array of features, minus that of a second one if there is one. Along axes
 * without order, the entries whose bits are set; other axes may close to a circle. Neighbours are
 * added in four lanes. */
static float @_box(const float *z, int box)
{
    float lane[4] = {0, 0, 0, 0}, first = 0;
    int along[N_ALONG], start[N_AXES + 1], index[N_AXES], part;
    for (part = 0; part < 2; part++) {
        const int corner = part == 0 ? @_box_corner[box] : @_box_other[box];
        int rest = corner, axis, i, filled = 0;
        if (corner < 0)
            break;
        if (part == 1) {
            first = (lane[0] + lane[1]) + (lane[2] + lane[3]);
            lane[0] = lane[1] = lane[2] = lane[3] = 0;
        }
        for (axis = 0; axis < N_AXES; axis++) {
            const int length = @_length[axis], stride = @_stride[axis];
            const int from = rest / stride;
            rest %= stride;
            start[axis] = filled;
            index[axis] = 0;
            if (@_subset_start[axis] >= 0) {
                const unsigned char *bits = @_box_subset + box * N_BYTES + @_subset_start[axis];
                for (i = 0; i < length; i++)
                    if (bits[i >> 3] >> (i & 7) & 1)
                        along[filled++] = i * stride;
                continue;
            }
            for (i = 0; i < @_box_size[box * N_AXES + axis]; i++)
                along[filled++] = (from + i) % length * stride;
        }
        start[N_AXES] = filled;
        do {
            int base = 0;
            for (axis = 0; axis < N_AXES - 1; axis++)
                base += along[start[axis] + index[axis]];
            i = start[N_AXES - 1];
            while (i < filled) {
                int run = 1, k;
                while (i + run < filled && along[i + run] == along[i] + run)
                    run++;
                for (k = 0; k < run; k++) {
                    /* A quad lies inside the row: near its end, it starts earlier. */
                    const int at = base + along[i] + k, quad = base + along[i] + k / 4 * 4;
                    const int position = quad < N_FEATURES - 4 ? quad : N_FEATURES - 4;
                    lane[at - position] += z[at];
                }
                i += run;
            }
            for (axis = N_AXES - 2; axis >= 0; axis--) {
                if (start[axis] + ++index[axis] < start[axis + 1])
                    break;
                index[axis] = 0;
            }
        } while (axis >= 0);
    }
    {
        const float sum = (lane[0] + lane[1]) + (lane[2] + lane[3]);
        return @_box_other[box] < 0 ? sum : first - sum;
    }
}
"""

SPARSE = """
static float @_sparse(const float *z, int row)
{
    float sum = 0;
    int t;
    for (t = @_sparse_start[row]; t < @_sparse_start[row + 1]; t++)
        sum += @_sparse_weight[t] * z[@_sparse_feature[t]];
    return sum;
}
"""

DENSE = """
static float @_dense_row(const float *z, int row)
{
    const float *weight = @_dense + (size_t)row * N_FEATURES;
    float lane[LANES] = {0};
    int j, half;
    for (j = 0; j < N_FEATURES; j++)
        lane[j % LANES] += weight[j] * z[j];
    for (half = LANES / 2; half > 0; half /= 2)
        for (j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}
"""

LEAF = """
/* Row of values of the leaf that a row reaches. A row goes right unless a . z <= threshold. */
static int @_leaf(const float *z, int tree)
{
    const int root = @_tree_start[tree], first = (root - tree) / 2;
    int node = 0, child;
    while ((child = @_child[root + node]) >= 0) {
        const int split = first + (child - 1) / 2;
        node = child + !(@_project(z, @_direction[split]) <= @_threshold[split]);
    }
    return -1 - child;
}
"""

SINGLE_LEAVES = """
/* Row of values of a tree without splits. */
static int @_leaf(const float *z, int tree)
{
    (void)z;
    return -1 - @_child[tree];
}
"""

HARD = """
static void @_tree(const float *z, int tree, double *out)
{
    @_add(z, @_leaf(z, tree), WEIGHT, out);
}
"""

MARGIN = """
/* The value of the leaf times the smallest distance from a threshold on the path. */
static void @_tree(const float *z, int tree, double *out)
{
    const int root = @_tree_start[tree], first = (root - tree) / 2;
    int node = 0, child;
    float least = 0;
    while ((child = @_child[root + node]) >= 0) {
        const int split = first + (child - 1) / 2;
        const float projection = @_project(z, @_direction[split]);
        const float margin = fabsf(projection - @_threshold[split]);
        if (node == 0 || margin < least)
            least = margin;
        node = child + !(projection <= @_threshold[split]);
    }
    @_add(z, -1 - child, least, out);
}
"""

SOFT = """
/* The values of all leaves, each times the product of the sigmoids on the path to it. */
static void @_tree(const float *z, int tree, double *out)
{
    const int root = @_tree_start[tree], first = (root - tree) / 2;
    int node[DEPTH + 2], n = 1;
    double weight[DEPTH + 2];
    node[0] = 0;
    weight[0] = 1;
    while (n > 0) {
        const int child = @_child[root + node[n - 1]];
        const double here = weight[n - 1];
        n--;
        if (child < 0) {
            @_add(z, -1 - child, here, out);
        } else {
            const int split = first + (child - 1) / 2;
            const double projection = @_project(z, @_direction[split]);
            const double gate = 1 / (1 + exp(-(STEEPNESS) * (projection - @_threshold[split])));
            node[n] = child + 1;
            weight[n++] = here * gate;
            node[n] = child;
            weight[n++] = here * (1 - gate);
        }
    }
}
"""

ADD = """
/* out += weight times a row of values. */
static void @_add(const float *z, int row, double weight, double *out)
{
    int i;
    VALUES
    SLOPES
}
"""
DENSE_VALUES = """for (i = 0; i < N_OUTPUTS; i++)
        out[i] += weight * @_value[(size_t)row * N_OUTPUTS + i];"""
SPARSE_VALUES = """for (i = @_value_start[row]; i < @_value_start[row + 1]; i++)
        out[@_value_index[i]] += weight * @_value[i];"""
SLOPES = """int k;
    for (i = @_slope_start[row]; i < @_slope_start[row + 1]; i++)
        for (k = 0; k < N_OUTPUTS; k++)
            out[k] += (double)@_slope[(size_t)i * N_OUTPUTS + k] * z[@_slope_feature[i]];"""

RESPONSE = """
/* The mean over bags of the link of the baseline plus the combined trees. */
static void @_response(const double *x, double *out)
{
    float z[N_FEATURES];
    double raw[N_OUTPUTS];
    int bag, tree, k;
    @_features(x, z);
    for (k = 0; k < N_OUTPUTS; k++)
        out[k] = 0;
    for (bag = 0; bag < N_BAGS; bag++) {
        for (k = 0; k < N_OUTPUTS; k++)
            raw[k] = 0;
        for (tree = @_bag_start[bag]; tree < @_bag_start[bag + 1]; tree++)
            @_tree(z, tree, raw);
        for (k = 0; k < N_OUTPUTS; k++)
            raw[k] = raw[k]MEAN + @_baseline[k];
        LINK
        for (k = 0; k < N_OUTPUTS; k++)
            out[k] += raw[k];
    }
    for (k = 0; k < N_OUTPUTS; k++)
        out[k] /= N_BAGS;
}
"""

LINKS = {
    "identity": "",
    "sigmoid": """for (k = 0; k < N_OUTPUTS; k++)
            raw[k] = 1 / (1 + exp(-raw[k]));""",
    "log": """for (k = 0; k < N_OUTPUTS; k++)
            raw[k] = exp(raw[k]);""",
    "softmax": """{
            double most = raw[0], sum = 0;
            for (k = 1; k < N_OUTPUTS; k++)
                most = raw[k] > most ? raw[k] : most;
            for (k = 0; k < N_OUTPUTS; k++) {
                raw[k] = exp(raw[k] - most);
                sum += raw[k];
            }
            for (k = 0; k < N_OUTPUTS; k++)
                raw[k] /= sum;
        }""",
}

NORMALIZED = """    for (k = 0; k < N_TARGETS; k++) {
        double *p = out + @_target[k], sum = 0;
        const int n = @_target[k + 1] - @_target[k];
        int i;
        for (i = 0; i < n; i++) {
            p[i] = p[i] > 0 ? p[i] : 0;
            sum += p[i];
        }
        for (i = 0; i < n; i++)
            p[i] = sum > 0 ? p[i] / sum : 1.0 / n;
    }
"""

SHARPENED = """    {
        double most, sum = 0;
        for (k = 0; k < N_COLUMNS; k++)
            out[k] = log(out[k] > TINY ? out[k] : TINY) / TEMPERATURE;
        most = out[0];
        for (k = 1; k < N_COLUMNS; k++)
            most = out[k] > most ? out[k] : most;
        for (k = 0; k < N_COLUMNS; k++) {
            out[k] = exp(out[k] - most);
            sum += out[k];
        }
        for (k = 0; k < N_COLUMNS; k++)
            out[k] /= sum;
    }
"""

SORTED = """    {
        double sorted[N_COLUMNS];
        for (k = 0; k < N_COLUMNS; k++) {
            int i = k;
            for (; i > 0 && sorted[i - 1] > out[k]; i--)
                sorted[i] = sorted[i - 1];
            sorted[i] = out[k];
        }
        for (k = 0; k < N_COLUMNS; k++)
            out[k] = sorted[@_rank[k]];
    }
"""


HEAD = """/* DESCRIPTION
 *
 * void NAME(const double *x, double *out)
 *
 * predicts one row. x has N_INPUTS numbers, the columns of X in their order; NaN
 * stands for a missing value. Infinite values, which the estimator refuses, count as the largest
 * numbers that it takes. A column that is a category has the code of its level, counted from 0 in
 * the order below; any other number stands for a level that did not occur in training.
 * OUTPUT
 *
 * The function uses no memory but the stack and has no state, so that threads may call it at the
 * same time. It needs a C99 compiler without -ffast-math, and the library of mathematical
 * functions (-lm).
LINES */
"""
