"""Models as graphs of ONNX: the graph that is built, its inputs, and the whole model.

The inputs of the graph are the columns of X as they are. Every member of the model adds its
feature map, which makes features of them, and its trees (`onnx_trees`); the responses are added
up. All numbers are float64 but the features, projections, thresholds and leaf values, which are
float32 as in the kernels.
"""

import json
from pathlib import Path

import numpy as np

from ..table.feature_map import IS_MISSING, VALUE
from ..table.matrix import LIMIT, N_KNOTS
from .c_code import MAX_FLOAT, TINY
from .onnx_trees import add_forest

MIN_OPSET, DEFAULT_OPSET, ML_OPSET = 13, 17, 3
EXTERNAL = 2**31 - 2**27  # bytes of arrays from which on they are stored in a file of their own
MAX_WHOLE = 2.0**53  # whole numbers up to here are exact in float64


class Graph:
    """Operators and constants that are added one by one; results are named by numbers."""

    def __init__(self, onnx, names):
        self.onnx = onnx
        self.nodes, self.constants, self.inputs, self.outputs = [], [], [], []
        self.n_bytes = self.attribute_bytes = 0
        self._taken, self._known, self._number = set(names), {}, 0

    def name(self, text):
        """A new name that begins with a text."""
        while True:
            self._number += 1
            name = f"{text}_{self._number}"
            if name not in self._taken:
                return name

    def op(self, kind, *inputs, domain="", **attributes):
        """Add an operator with one result; returns the name of the result.

        Inputs are names, or arrays, which become constants.
        """
        inputs = [i if isinstance(i, str) else self.constant(i) for i in inputs]
        name = self.name(kind)
        node = self.onnx.helper.make_node(kind, inputs, [name], name=name, domain=domain)
        node.attribute.extend(self._attribute(*item) for item in attributes.items())
        self.nodes.append(node)
        return name

    def _attribute(self, key, value):
        """An attribute; arrays are lists of numbers, whose types need no test one by one."""
        proto = self.onnx.AttributeProto
        if not isinstance(value, np.ndarray):
            return self.onnx.helper.make_attribute(key, value)
        if value.dtype.kind in "iu":
            return proto(name=key, type=proto.INTS, ints=value.tolist())
        return proto(name=key, type=proto.FLOATS, floats=value.tolist())

    def constant(self, array):
        """The name of a constant; equal small arrays share one."""
        array = np.asarray(array)
        key = (array.dtype.str, array.shape, array.tobytes()) if array.size < 1000 else None
        if array.dtype == object:
            key = (array.shape, *array.tolist())
        if key is None or key not in self._known:
            name = self.name("constant")
            if array.dtype.kind in "OU":
                text = [str(item).encode() for item in array.ravel().tolist()]
                kind = self.onnx.TensorProto.STRING
                tensor = self.onnx.helper.make_tensor(name, kind, array.shape, text)
            else:
                tensor = self.onnx.numpy_helper.from_array(np.asarray(array, order="C"), name)
            self.n_bytes += array.nbytes
            self.constants.append(tensor)
            if key is None:
                return name
            self._known[key] = name
        return self._known[key]

    def input(self, name, kind, width):
        """Add an input of the graph, a matrix; `kind` is the name of a type of ONNX."""
        kind = getattr(self.onnx.TensorProto, kind)
        self.inputs.append(self.onnx.helper.make_tensor_value_info(name, kind, ["N", width]))
        return name

    def output(self, name, result, kind, *widths):
        """Make a result an output of the graph."""
        kind = getattr(self.onnx.TensorProto, kind)
        shape = ["N", *widths]
        self.nodes.append(self.onnx.helper.make_node("Identity", [result], [name], name=name))
        self.outputs.append(self.onnx.helper.make_tensor_value_info(name, kind, shape))

    def cast(self, result, kind):
        return self.op("Cast", result, to=getattr(self.onnx.TensorProto, kind))

    def columns(self, matrix, index, width):
        """Some columns of a matrix of some width; the matrix itself if these are all."""
        index = np.asarray(index, dtype=np.int64)
        if np.array_equal(index, np.arange(width)):
            return matrix
        return self.op("Gather", matrix, index, axis=1)

    def side_by_side(self, matrices):
        """Matrices as one, from left to right."""
        return matrices[0] if len(matrices) == 1 else self.op("Concat", *matrices, axis=1)

    def total(self, results):
        """The sum of results."""
        first, *others = results
        for other in others:
            first = self.op("Add", first, other)
        return first


# ------------------------------------------------------------------------------ from X to features


class Inputs:
    """The inputs of a graph: a matrix of numbers, a mask of missing ones, and categories."""

    def __init__(self, graph, model, names):
        self.graph = graph
        self.is_double = model.is_scaling
        self.levels = model.levels
        kind = "DOUBLE" if self.is_double else "FLOAT"
        self.of_number = [j for j in range(model.n_inputs) if j not in model.levels]
        self.entry, columns = {}, []
        if len(names) == 1 and model.input_names is None and not model.levels:
            columns.append(graph.input(names[0], kind, model.n_inputs))
        else:
            for j, name in enumerate(names):
                if j in self.levels:
                    self.entry[j] = category_entry(graph, name, self.levels[j])
                else:
                    columns.append(graph.input(name, kind, 1))
        self.numbers = self.is_missing = None
        if columns:
            self.numbers = graph.side_by_side(columns)
            for operation, values in model.operations:
                self.numbers = self._after(operation, values)
            self.is_missing = graph.op("IsNaN", self.numbers)

    def _after(self, operation, values):
        """The numbers after an operation on the columns."""
        graph, numbers = self.graph, self.numbers
        kinds = {"subtract": "Sub", "divide": "Div", "multiply": "Mul", "add": "Add"}
        if operation in kinds:
            return graph.op(kinds[operation], numbers, values)
        is_missing = graph.op("IsNaN", numbers)
        if operation == "fill":
            return graph.op("Where", is_missing, values, numbers)
        limited = graph.op("Max" if operation == "at least" else "Min", numbers, values)
        return graph.op("Where", is_missing, np.nan, limited)

    def features(self, forest):
        """The features of a forest, float32 of shape (N, n_features)."""
        graph, n_numbers = self.graph, len(self.of_number)
        source, kind = forest.source, forest.kind
        if not len(source):
            source, kind = np.arange(forest.n_features), np.full(forest.n_features, VALUE)
        place = np.full(forest.n_inputs, -1)  # of an input among the numbers
        place[self.of_number] = np.arange(n_numbers)
        parts, order = [], []
        own = np.flatnonzero(kind == VALUE)
        if len(own):
            parts.append(graph.columns(self._values(forest), place[source[own]], n_numbers))
            order.append(own)
        own = np.flatnonzero(kind == IS_MISSING)
        if len(own):
            missing = graph.columns(self.is_missing, place[source[own]], n_numbers)
            table = np.stack([forest.feature_map.table_of(f) for f in own])
            parts.append(graph.op("Where", missing, table[:, 1], table[:, 0]))
            order.append(own)
        for j, entry in self.entry.items():
            own = np.flatnonzero(source == j)
            if len(own):
                table = np.stack([forest.feature_map.table_of(f) for f in own], axis=1)
                parts.append(graph.op("Gather", table, entry, axis=0))
                order.append(own)
        joined = graph.side_by_side(parts)
        return graph.columns(joined, np.argsort(np.concatenate(order)), forest.n_features)

    def _values(self, forest):
        """Numbers as a forest reads them: scaled if it scales, without holes."""
        graph, numbers, own = self.graph, self.numbers, self.of_number
        is_missing = self.is_missing
        dtype = np.float64 if self.is_double else np.float32
        limit = dtype(MAX_FLOAT)
        if len(forest.scale):
            numbers = graph.op("Sub", numbers, forest.offset[own])
            numbers = graph.op("Mul", numbers, forest.scale[own])
            limit = dtype(LIMIT)
            if (forest.scale == 0).any():  # which makes NaN of infinity
                is_missing = graph.op("IsNaN", numbers)
        if len(forest.low):
            numbers = self._limited(forest, numbers, dtype)
        else:
            numbers = graph.op("Clip", numbers, -limit, limit)
        if self.is_double:
            numbers = graph.cast(numbers, "FLOAT")
        fill = forest.fill[own] if len(forest.fill) else np.zeros(len(own), dtype=np.float32)
        return graph.op("Where", is_missing, fill, numbers)

    def _limited(self, forest, numbers, dtype):
        """As `matrix.limited`."""
        op, own = self.graph.op, self.of_number
        low, high = (array[own].astype(dtype) for array in (forest.low, forest.high))
        inside = op("Min", op("Max", numbers, low), high)
        if not len(forest.knots):
            return inside
        column = op("Unsqueeze", numbers, np.array([2]))
        for side, (end, sign) in enumerate(((high, 1), (low, -1))):
            knots = forest.knots[own, side].astype(dtype)
            width = np.diff(np.column_stack([end, knots]), axis=1) * sign
            first = knots - width * sign
            part = (forest.tail[own] / N_KNOTS * sign).astype(dtype)[:, None] * (width > 0)
            share = op("Mul", op("Sub", column, first), sign / np.where(width > 0, width, sign))
            share = op("Clip", share, dtype(0), dtype(1))
            moved = op("ReduceSum", op("Mul", share, part), np.array([2]), keepdims=0)
            inside = op("Add", inside, moved)
        return inside


def category_entry(graph, name, levels):
    """Position of a category in its tables: int64 of shape (N,).

    The number of the level, then one for missing values, and one for unknown levels.
    """
    n = len(levels)
    kinds = {type(level) for level in levels}
    if len(kinds) > 1:
        raise TypeError(
            f"column {name!r} has levels that are numbers, and others that are strings; ONNX has "
            "no columns of both"
        )
    if kinds != {float}:
        column = graph.input(name, "STRING", 1)
        code = {level: k for k, level in enumerate(levels)}
        code.setdefault("", n)  # ONNX has no missing strings
        options = {"keys_strings": list(code), "values_int64s": np.array(list(code.values()))}
        return _looked_up(graph, column, n, options)
    column = graph.input(name, "DOUBLE", 1)
    is_missing = graph.op("Reshape", graph.op("IsNaN", column), np.array([-1]))
    levels = np.array(levels)
    if (levels == np.floor(levels)).all() and np.abs(levels).max() <= MAX_WHOLE:
        is_whole = graph.op("Equal", graph.op("Floor", column), column)
        is_small = graph.op("LessOrEqual", graph.op("Abs", column), MAX_WHOLE)
        whole = graph.op("And", is_whole, is_small)
        column = graph.op("Where", whole, column, 2.0**60)  # which is no level
        options = {"keys_int64s": levels.astype(np.int64), "values_int64s": np.arange(n)}
        code = _looked_up(graph, graph.cast(column, "INT64"), n, options)
    else:
        is_level = graph.cast(graph.op("Equal", column, levels[None]), "DOUBLE")
        # A row with 1 at one level has its number minus that of unknown levels.
        code = graph.op("MatMul", is_level, np.arange(n)[:, None] - (n + 1.0))
        code = graph.cast(graph.op("Add", code, n + 1.0), "INT64")
        code = graph.op("Reshape", code, np.array([-1]))
    return graph.op("Where", is_missing, np.int64(n), code)


def _looked_up(graph, column, n, options):
    options |= {"default_int64": n + 1, "domain": "ai.onnx.ml"}
    return graph.op("Reshape", graph.op("LabelEncoder", column, **options), np.array([-1]))


def input_names(model):
    """Names of the inputs of the graph: those of the columns, or "X"."""
    if model.input_names is None and not model.levels:
        return ["X"]
    names = [model.input_name(j) for j in range(model.n_inputs)]
    for j, name in enumerate(names):
        while name in ("", *output_names(model)) or name in names[:j] + names[j + 1 :]:
            name += "_"
        names[j] = name
    return names


# ----------------------------------------------------------------------------------------- outputs


def output_names(model):
    """Names of the outputs of the graph of a model."""
    return ["variable"] if model.classes is None else ["label", "probabilities"]


def add_response(graph, model, inputs):
    """The response of a model: float64 of shape (N, n_columns)."""
    parts = []
    for member in model.members:
        response = add_forest(graph, member.forest, inputs.features(member.forest))
        if not np.array_equal(member.columns, np.arange(model.n_columns)):
            place = np.eye(model.n_columns)[member.columns]
            response = graph.op("MatMul", response, place)
        parts.append(graph.op("Mul", response, member.weight) if member.weight != 1 else response)
    response = graph.total(parts)
    if model.temperature != 1:
        logarithm = graph.op("Log", graph.op("Max", response, TINY))
        response = graph.op("Softmax", graph.op("Div", logarithm, model.temperature), axis=1)
    if model.prior_ratio is not None:
        response = graph.op("Mul", response, model.prior_ratio)
    if model.quantile_rank is not None:
        response = add_sorted(graph, response, model.quantile_rank)
    return response


def add_sorted(graph, response, rank):
    """Columns sorted in every row, then in the order of `rank`."""
    n, node = len(rank), graph.onnx.helper.make_node
    names = graph.name("sorted"), graph.name("order")
    inputs = [response, graph.constant(np.array([n]))]
    graph.nodes.append(node("TopK", inputs, names, name=names[0], axis=1, largest=0, sorted=1))
    return graph.columns(names[0], rank, n)


def add_classes(graph, model, response):
    """The outputs of a classifier: labels and probabilities."""
    n, parts, labels = len(model.classes), [response], []
    if model.normalizes:
        starts = np.cumsum([0, *model.n_classes])
        index = [np.arange(*pair) for pair in zip(starts[:-1], starts[1:])]
        parts = [graph.columns(response, own, model.n_columns) for own in index]
    for part, classes in zip(parts, model.classes):
        place = graph.op("ArgMax", part, axis=1, keepdims=1)
        labels.append(graph.op("Gather", class_labels(classes)[0], place, axis=0))
    kind = class_labels(model.classes[0])[1]
    label = graph.side_by_side(labels)
    if n == 1:
        label = graph.op("Reshape", label, np.array([-1]))
    graph.output("label", label, kind, *([n] if n > 1 else []))
    if model.normalizes:
        parts = [add_normalized(graph, *own) for own in zip(parts, model.n_classes)]
    probabilities = graph.cast(graph.side_by_side(parts), "FLOAT")
    graph.output("probabilities", probabilities, "FLOAT", model.n_columns)


def add_normalized(graph, part, n):
    """Probabilities of one output of several, as `predict_proba` returns them."""
    part = graph.op("Max", part, 0.0)
    total = graph.op("ReduceSum", part, np.array([1]), keepdims=1)
    is_positive = graph.op("Greater", total, 0.0)
    share = graph.op("Div", part, graph.op("Where", is_positive, total, 1.0))
    return graph.op("Where", is_positive, share, 1 / n)


def class_labels(classes):
    """Labels as an array that ONNX can represent, and its type."""
    if classes.dtype.kind == "b":
        return classes, "BOOL"
    if classes.dtype.kind in "iu" and classes.max() < 2**63:
        return classes.astype(np.int64), "INT64"
    if classes.dtype.kind == "f":
        return classes.astype(np.float64), "DOUBLE"
    if classes.dtype.kind in "UO" and all(isinstance(label, str) for label in classes):
        return classes.astype(object), "STRING"
    raise TypeError(
        f"labels of dtype {classes.dtype} cannot be exported to ONNX; strings, bools, floats and "
        "integers below 2^63 can"
    )


def check_labels(model):
    """Raise TypeError unless the labels of all outputs are of one type that ONNX has."""
    kinds = {class_labels(classes)[1] for classes in model.classes or ()}
    if len(kinds) > 1:
        raise TypeError(
            f"the outputs have labels of several types, {sorted(kinds)}; the output `label` of a "
            "graph of ONNX has one"
        )


def onnx_model(onnx, model, opset, path):
    """The ModelProto of a model, which is written if there is a path."""
    check_labels(model)
    names = input_names(model)
    graph = Graph(onnx, [*names, *output_names(model)])
    response = add_response(graph, model, Inputs(graph, model, names))
    if model.classes is None:
        graph.output(*output_names(model), response, "DOUBLE", model.n_columns)
    else:
        add_classes(graph, model, response)
    helper = onnx.helper
    proto = helper.make_graph(
        graph.nodes, model.estimator_name, graph.inputs, graph.outputs, graph.constants
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", ML_OPSET)]
    version = str(model.members[0].forest.versions.get("skforest", ""))
    made = helper.make_model(
        proto,
        opset_imports=imports,
        ir_version=helper.find_min_ir_version_for(imports),
        producer_name="skforest",
        producer_version=version,
    )
    levels = {model.input_name(j): known for j, known in model.levels.items()}
    helper.set_model_props(made, {"levels": json.dumps(levels)} if levels else {})
    if path is not None:
        _save(onnx, made, Path(path), graph.n_bytes > EXTERNAL)
    return made


def _save(onnx, model, path, is_external):
    """Write a model; with its constants in a second file if they are too large for one."""
    if not is_external:
        onnx.save_model(model, str(path))
        return
    data = path.with_name(path.name + ".data")
    data.unlink(missing_ok=True)  # onnx appends to a file that exists
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=True,
        all_tensors_to_one_file=True,
        location=data.name,
        size_threshold=1024,
    )
