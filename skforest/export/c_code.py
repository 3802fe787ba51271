"""Models as C99: arrays, and a function that predicts a row.

Each forest of the model becomes a group of static arrays and functions with a prefix of its own.
The functions are the texts of `c_functions`; only those that a forest needs are written, since
compilers warn of unused ones. Sums are computed in the dtypes and in the order of the kernels, so
that rows take the same branches.
"""

import json
import re

import numpy as np

from ..table.feature_map import VALUE
from ..table.matrix import LIMIT, N_KNOTS
from .c_functions import (
    ADD,
    BEYOND,
    BOX,
    CLIPPED,
    DENSE,
    DENSE_VALUES,
    ENTRY,
    FEATURES,
    HARD,
    HEAD,
    INPUT,
    LEAF,
    LIMITED,
    LINKS,
    MARGIN,
    NORMALIZED,
    OF_BOTH,
    OF_TABLES,
    OF_VALUES,
    PLAIN_FEATURES,
    RESPONSE,
    SCALED,
    SHARPENED,
    SINGLE_LEAVES,
    SLOPES,
    SOFT,
    SORTED,
    SPARSE,
    SPARSE_VALUES,
    WITH_KNOTS,
)
from .model import without_boxes

WIDTH = 98  # of a line of numbers
MAX_FLOAT = float(np.finfo(np.float32).max)
LANES = 32  # chains of additions of a dense projection, as in _kernels/base/simd.h
# Statements of operations on columns, see `columns`; NaN stays, unless it is filled.
OPERATIONS = {
    "subtract": "v -= VALUE;",
    "divide": "v /= VALUE;",
    "multiply": "v *= VALUE;",
    "add": "v += VALUE;",
    "fill": "v = isnan(v) ? VALUE : v;",
    "at least": "v = v < VALUE ? VALUE : v;",
    "at most": "v = v > VALUE ? VALUE : v;",
}
TINY = 1e-12  # smallest probability that a temperature is applied to, as in training/blending


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
    # Nine digits tell all float32 numbers apart.
    texts = ("%.9g " * array.size % tuple(array.tolist())).split()
    return (f"{text}f" if "." in text or "e" in text else f"{text}.0f" for text in texts)


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
        fill = forest.fill
        if not len(fill):  # a forest of an early version, which takes no missing values
            fill = np.zeros(forest.n_inputs, dtype=np.float32)
        has_tables = len(forest.source) > 0
        if not has_tables or (forest.kind == VALUE).any():
            self._arrays(fill=fill)
            if is_scaling:
                self._arrays("offset", "scale")
            limits = CLIPPED.replace("LIMIT", repr(LIMIT if is_scaling else MAX_FLOAT))
            if len(forest.low):
                self._arrays("low", "high")
                limits = LIMITED
            if len(forest.knots):
                self._arrays("tail", "knots")
                self._function(BEYOND, N_KNOTS=N_KNOTS)
                limits = WITH_KNOTS.replace("N_KNOTS", str(N_KNOTS))
            self._function(INPUT, SCALED=SCALED if is_scaling else "", LIMITS=limits[1:])
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
    changes = []
    for number, (operation, values) in enumerate(model.operations):
        array = f"{name}_operation_{number}"
        parts.append(array_text(array, values))
        changes.append(f"        {OPERATIONS[operation].replace('VALUE', f'{array}[j]')}\n")
    if is_sum:
        body = f"    for (k = 0; k < {model.n_columns}; k++)\n        out[k] = 0;\n{body}"
    if model.temperature != 1:
        body += SHARPENED
    if model.quantile_rank is not None:
        parts.append(array_text(f"{name}_rank", model.quantile_rank))
        body += SORTED
    if model.prior_ratio is not None:
        parts.append(array_text(f"{name}_prior_ratio", model.prior_ratio))
        body += (
            f"    for (k = 0; k < {model.n_columns}; k++)\n        out[k] *= @_prior_ratio[k];\n"
        )
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
    if changes:
        n = model.n_inputs
        declared += f"    int j;\n    double changed[{n}];\n"
        changes = f"        double v = x[j];\n{''.join(changes)}        changed[j] = v;\n"
        body = f"    for (j = 0; j < {n}; j++) {{\n{changes}    }}\n    x = changed;\n{body}"
    return [*parts, head, declared, filled(body, name, **words), "}\n"]


def _head(model, name):
    """The comment at the head of the file."""
    versions = model.members[0].forest.versions
    own = "skforest " + str(versions.get("skforest", ""))
    n = model.n_columns
    macro = name.upper()
    lines = []
    if model.classes is None:
        output = f"out gets the prediction, {n} number{'s' * (n > 1)}."
    elif len(model.classes) == 1:
        output = f"out gets the probabilities of the {n} classes in the order below."
    else:
        output = "out gets the probabilities of the classes, one output after the other."
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
