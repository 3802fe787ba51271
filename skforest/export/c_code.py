"""Models as C99: arrays, and a function that predicts a row.

Each forest of the model becomes a group of static arrays and functions with a prefix of its own.
The functions are the texts below, in which `@` stands for the prefix and words in capitals for
numbers; only those that a forest needs are written, since compilers warn of unused ones. Sums are
computed in the dtypes and in the order of the kernels, so that rows take the same branches.
"""

import json
import re

import numpy as np

from .._feature_map import LIMIT, VALUE
from .model import without_boxes

WIDTH = 98  # of a line of numbers
MAX_FLOAT = float(np.finfo(np.float32).max)
LANES = 32  # chains of additions of a dense projection, as in _kernels/simd.h
TINY = 1e-12  # smallest probability that a temperature is applied to, as in training/blending

SCALED = """v = (v - @_offset[j]) * @_scale[j];"""

INPUT = """
/* A number of a row as the trees read it: scaled if the estimator scales, and limited. */
static float @_input(double v, int j)
{
    if (v != v)
        return @_fill[j];
    SCALED
    if (v > LIMIT)
        v = LIMIT;
    if (v < -LIMIT)
        v = -LIMIT;
    return (float)v;
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
    return v >= 0 && v < n ? (int)v : n + 1;
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


def filled(text, prefix, **words):
    """A text with its words and the prefix in place."""
    for word, value in words.items():
        text = re.sub(rf"\b{word}\b", lambda _, new=str(value): new, text)
    text = "\n".join(line for line in text.split("\n") if line.strip() or not line)
    return text.replace("@", prefix)


def numbers(array):
    """The entries of an array as text that C reads back to the bit."""
    array = np.asarray(array).ravel()
    if array.dtype.kind in "iu":
        return map(str, array.tolist())
    if array.dtype == np.float64:
        return map(repr, array.tolist())
    return (f"{text}f" for text in array.astype(np.float32).astype(str).tolist())


def narrow_type(array):
    """Name of the smallest integer type of C99 that has all entries of an array."""
    for bits in (8, 16, 32):
        limits = np.iinfo(f"int{bits}")
        if limits.min <= array.min(initial=0) and array.max(initial=0) <= limits.max:
            return f"int{bits}_t"
    raise ValueError(
        f"the estimator has {array.max()} nodes, weights or values of one kind; at most 2^31 - 1 "
        "can be written as C"
    )


def array_text(name, array, kind=None):
    """Definition of a static array; the type is that of the array, or the smallest for ints."""
    array = np.asarray(array)
    if kind is None and array.dtype.kind in "iu":
        kind = narrow_type(array)
    kind = kind or ("double" if array.dtype == np.float64 else "float")
    lines, line, width = [], [], 0
    for text in numbers(array):
        width += len(text) + 1
        if width > WIDTH:
            lines.append(",".join(line))
            line, width = [], len(text) + 1
        line.append(text)
    lines.append(",".join(line))
    return f"static const {kind} {name}[{array.size}] = {{\n" + ",\n".join(lines) + "};\n"


def comment(value):
    """A string or a number as text that may stand in a comment of C."""
    text = json.dumps(value)
    return text.replace("*", "\\u002a").replace("??", "?\\u003f")


class ForestCode:
    """The C code of one forest: `text()`, with names that begin with `prefix`."""

    def __init__(self, forest, prefix):
        # Boxes of fewer than four features are summed by the kernels one after the other.
        self.forest = without_boxes(forest) if forest.n_features < 4 else forest
        self.prefix = prefix
        self.parts = []

    def text(self):
        """Arrays and functions; the last function is ``PREFIX_response(x, out)``."""
        self._write_features()
        self._write_directions()
        self._write_trees()
        return "\n".join(self.parts)

    def _arrays(self, *names, **given):
        for name in names:
            given[name] = getattr(self.forest, name)
        for name, array in given.items():
            self.parts.append(array_text(f"{self.prefix}_{name}", array))

    def _function(self, text, **words):
        forest = self.forest
        words |= {
            "N_FEATURES": forest.n_features,
            "N_OUTPUTS": forest.n_outputs,
            "LANES": LANES,
        }
        self.parts.append(filled(text, self.prefix, **words))

    def _write_features(self):
        forest = self.forest
        is_scaling = len(forest.scale) > 0
        if is_scaling:
            self._arrays("offset", "scale")
        fill = forest.fill
        if not len(fill):  # a forest of an early version, which takes no missing values
            fill = np.zeros(forest.n_inputs, dtype=np.float32)
        has_tables = len(forest.source) > 0
        if not has_tables or (forest.kind == VALUE).any():
            self._arrays(fill=fill)
            limit = repr(LIMIT if is_scaling else MAX_FLOAT)
            self._function(INPUT, SCALED=SCALED if is_scaling else "", LIMIT=limit)
        if not has_tables:
            self._function(PLAIN_FEATURES)
            return
        self._arrays("source")
        text = OF_VALUES
        if len(forest.table):
            n_levels = np.zeros(forest.n_inputs, dtype=np.int64)
            for j, levels in forest.levels.items():
                n_levels[j] = len(levels)
            self._arrays("table_start", "table", n_levels=n_levels)
            self._function(ENTRY)
            text = OF_TABLES
            if (forest.kind == VALUE).any():
                self._arrays("kind")
                text = OF_BOTH
        self._function(FEATURES, FEATURE=text, VALUE=VALUE)

    def _write_directions(self):
        """The function that projects a row on the direction of a code."""
        forest = self.forest
        if not len(forest.direction):
            return
        ends = forest.code_ends.tolist()
        calls = ["z[code]"]
        if ends[1] > ends[0]:
            self._write_boxes()
            calls.append(f"@_box(z, code - {ends[0]})")
        if ends[2] > ends[1]:
            weight = forest.sparse_weight if len(forest.sparse_weight) else np.zeros(1, np.float32)
            feature = forest.sparse_feature if len(forest.sparse_feature) else np.zeros(1, int)
            self._arrays("sparse_start", sparse_feature=feature, sparse_weight=weight)
            self._function(SPARSE)
            calls.append(f"@_sparse(z, code - {ends[1]})")
        if ends[3] > ends[2]:
            self._arrays("dense")
            self._function(DENSE)
            calls.append(f"@_dense_row(z, code - {ends[2]})")
        limits = [end for end, start in zip(ends, [0, *ends]) if end > start]
        lines = [f"    if (code < {end})\n        return {c};" for end, c in zip(limits, calls)]
        lines[-1] = f"    return {calls[-1]};"
        head = "\nstatic float @_project(const float *z, int code)\n{\n"
        self._function(head + "\n".join(lines) + "\n}\n")

    def _write_boxes(self):
        forest = self.forest
        shape = np.array(forest.feature_shape)
        stride = np.cumprod([1, *shape[:0:-1]])[::-1]
        first_byte, n_bytes = np.full(len(shape), -1), 0
        for axis, is_unordered in enumerate(forest.unordered):
            if is_unordered:
                first_byte[axis] = n_bytes
                n_bytes += (int(shape[axis]) + 7) // 8
        bits = forest.box_subset if n_bytes else np.zeros(1, dtype=np.uint8)
        self._arrays("box_corner", "box_other", "box_size")
        self._arrays(length=shape, stride=stride, subset_start=first_byte)
        self.parts.append(array_text(f"{self.prefix}_box_subset", bits, "unsigned char"))
        self._function(BOX, N_ALONG=int(shape.sum()), N_AXES=len(shape), N_BYTES=n_bytes)

    def _write_trees(self):
        forest = self.forest
        has_splits = len(forest.threshold) > 0
        self._arrays("child", "bag_start", "baseline")
        if has_splits:
            self._arrays("tree_start", "threshold", "direction")
        self._write_values()
        is_hard = forest.gate == "hard" or not has_splits
        if is_hard:
            self._function(LEAF if has_splits else SINGLE_LEAVES)
        text = HARD if is_hard else {"margin": MARGIN, "sigmoid": SOFT}[forest.gate]
        self._function(
            text,
            WEIGHT="0" if forest.gate == "margin" else "1",  # of a tree without splits: margin 0
            DEPTH=int(forest.max_depth.max(initial=0)),
            STEEPNESS=repr(float(forest.steepness)),
        )
        n_trees = "(@_bag_start[bag + 1] - @_bag_start[bag])"
        self._function(
            RESPONSE,
            N_BAGS=len(forest.bag_start) - 1,
            MEAN=f" / {n_trees}" if forest.aggregate == "mean" else "",
            LINK=LINKS[forest.link],
        )

    def _write_values(self):
        forest = self.forest
        text = ADD
        if len(forest.value_start):
            empty = not len(forest.value)
            index = np.zeros(1, int) if empty else forest.value_index
            value = np.zeros(1, np.float32) if empty else forest.value
            self._arrays("value_start", value_index=index, value=value)
            text = text.replace("VALUES", SPARSE_VALUES)
        else:
            self._arrays("value")
            text = text.replace("VALUES", DENSE_VALUES)
        if len(forest.slope_feature):
            self._arrays("slope_start", "slope_feature", "slope")
            text = text.replace("    SLOPES", "    {\n    " + SLOPES + "\n    }")
        else:
            text = text.replace("SLOPES", "(void)z;")
        self._function(text)


HEAD = """/* DESCRIPTION
 *
 * void NAME(const double *x, double *out)
 *
 * predicts one row. x has N_INPUTS numbers, the columns of X in their order; NaN stands for a missing
 * value. Infinite values, which the estimator refuses, count as the largest numbers that it takes.
 * A column that is a category has the code of its level, counted from 0 in the order below; any
 * other number stands for a level that did not occur in training. OUTPUT
 *
 * The function uses no memory but the stack and has no state: threads may call it at the same time.
 * It needs a C99 compiler without -ffast-math, and the library of mathematical functions (-lm).
LINES */
"""


def c_code(model, name):
    """The C99 source of a model, as text."""
    codes, calls = [], []
    for number, member in enumerate(model.members):
        prefix = f"{name}_{number}"
        codes.append(f"/* {'-' * 90} */\n")
        codes.append(ForestCode(member.forest, prefix).text())
        calls.append(_call(prefix, member, model))
    macro = name.upper()
    macros = {"N_INPUTS": model.n_inputs, "N_OUTPUTS": model.n_columns}
    if model.classes is not None:
        macros |= {"N_TARGETS": len(model.classes)}
        macros |= {"N_CLASSES": model.n_columns} if len(model.classes) == 1 else {}
    text = [_head(model, name)]
    text.append("#include <math.h>\n#include <stddef.h>\n#include <stdint.h>\n\n")
    # Products and sums must be rounded one by one, as the kernels do.
    text.append("#if defined(__clang__)\n#pragma STDC FP_CONTRACT OFF\n#endif\n\n")
    text += [f"#define {macro}_{key} {value}\n" for key, value in macros.items()]
    return "".join([*text, "\n", *codes, *_function(model, name, calls)])


def _call(prefix, member, model):
    """Statements that add the response of a member to `out`."""
    if len(model.members) == 1 and len(member.columns) == model.n_columns and member.weight == 1:
        return f"    {prefix}_response(x, out);\n"
    columns = ", ".join(map(str, member.columns.tolist()))
    n = len(member.columns)
    is_same = np.array_equal(member.columns, np.arange(model.n_columns))
    at = "k" if is_same else "column[k]"
    declared = "" if is_same else f"        static const int column[{n}] = {{{columns}}};\n"
    return (
        f"    {{\n{declared}        double response[{n}];\n"
        f"        {prefix}_response(x, response);\n"
        f"        for (k = 0; k < {n}; k++)\n"
        f"            out[{at}] += {member.weight!r} * response[k];\n    }}\n"
    )


def _function(model, name, calls):
    """The public function, and its arrays."""
    parts, body = [], "".join(calls)
    is_sum = "response[k]" in body
    if is_sum:
        body = f"    for (k = 0; k < {model.n_columns}; k++)\n        out[k] = 0;\n{body}"
    if model.temperature != 1:
        body += SHARPENED
    if model.quantile_rank is not None:
        parts.append(array_text(f"{name}_rank", model.quantile_rank))
        body += SORTED
    if model.normalizes:
        parts.append(array_text(f"{name}_target", np.cumsum([0, *model.n_classes])))
        body += NORMALIZED
    words = {
        "N_COLUMNS": model.n_columns,
        "N_TARGETS": len(model.n_classes),
        "TEMPERATURE": repr(model.temperature),
        "TINY": repr(TINY),
    }
    declared = "    int k;\n" if body.count("(k = ") else ""
    head = f"\nvoid {name}(const double *x, double *out);\n\n"
    head += f"void {name}(const double *x, double *out)\n{{\n"
    return [*parts, head, declared, filled(body, name, **words), "}\n"]


def _head(model, name):
    """The comment at the head of the file."""
    versions = model.members[0].forest.versions
    own = "skforest " + str(versions.get("skforest", ""))
    n = model.n_columns
    macro = name.upper()
    lines = []
    if model.classes is None:
        output = f"out gets the prediction,\n * {n} number{'s' * (n > 1)}."
    elif len(model.classes) == 1:
        output = f"out gets the probabilities\n * of the {n} classes in the order below."
    else:
        output = "out gets the probabilities\n * of the classes of all outputs, one output after the other."
    if model.input_names is not None or model.levels:
        lines.append("Columns of X:")
        for j in range(model.n_inputs):
            levels = model.levels.get(j)
            what = "number" if levels is None else f"category, {len(levels)} levels"
            lines.append(f"  {j}: {comment(model.input_name(j))}, {what}")
            lines += [f"     {code} = {comment(v)}" for code, v in enumerate(levels or ())]
    for k, labels in enumerate(model.classes or ()):
        lines.append("Classes:" if len(model.classes) == 1 else f"Classes of output {k}:")
        lines += [f"  {code} = {comment(label)}" for code, label in enumerate(labels.tolist())]
    text = "".join(f" * {line}\n" for line in ["", *lines]) if lines else ""
    text = text.replace(" * \n", " *\n")
    described = f"{model.estimator_name} of {own} as a function of C99."
    head = HEAD.replace("DESCRIPTION", described.replace("*/", ""))
    head = head.replace("N_INPUTS", f"{macro}_N_INPUTS").replace("OUTPUT", output, 1)
    return head.replace("NAME", name, 1).replace("LINES", text)
