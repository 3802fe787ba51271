"""Trees as text: rules to read, and graphs for Graphviz."""

from os import PathLike

import numpy as np

from .contents import check_int, contents_of, output_names, refuse_networks
from .picture import COLOURS

MAX_LEVELS = 10  # of a set in a condition
MAX_GRAPH_VALUES = 10  # outputs of a node of a graph


# -------------------------------------------------------------------------------------- rules


def export_text(
    estimator,
    tree=0,
    *,
    feature_names=None,
    class_names=None,
    max_depth=10,
    max_terms=5,
    decimals=2,
    show_weights=False,
):
    """Write the rules of a tree of a fitted forest as text.

    Each split takes two lines, the condition to go left and the condition to go right. Each line
    is followed by the branch below it, as in `sklearn.tree.export_text`.

    Parameters
    ----------
    estimator : estimator of skforest or Forest
        Fitted estimator; it may be inside a search or a pipeline.
    tree : int, default=0
        Number of the tree in the forest, 0 to ``n_trees - 1``.
    feature_names : array-like of str of shape (n_features,), default=None
        Names of the features. None: the names that the estimator was fitted with, or ``x[0]``,
        ``x[1]``, and so on.
    class_names : array-like of str of shape (n_outputs,), default=None
        Names of the classes, in the order of `classes_`. None: the class labels.
    max_depth : int or None, default=10
        Depth of the deepest splits that are written, at least 0. None: all.
    max_terms : int or None, default=5
        Maximum number of weights of a split that are written, at least 1, followed by the number
        of other weights. The weights with the largest absolute values are written; if the forest
        scales its features, weights are compared after scaling. None: all.
    decimals : int, default=2
        Number of decimals, at least 0. Numbers too small for these decimals have as many
        significant digits, but at least one.
    show_weights : bool, default=False
        Whether to write the weight of the training samples in a leaf; in classification, the
        weight of each class, by the probabilities of the leaf before a `prior`. Only the sum is
        known where trees vote, or a single tree has logits.

    Returns
    -------
    text : str

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If `estimator` is neither an estimator of skforest nor a Forest, if it is a blend, or if
        its splits are networks.
    ValueError
        If the tree does not exist, if a length does not match the forest, or if a number is out of
        range.

    See Also
    --------
    plot_tree : The same as a plot.
    to_dict : A whole forest, for other programs.

    Notes
    -----
    Weights and thresholds are in the units of the features, even if the forest scales them. A
    split of a category reads ``city in {Bern, Oslo}``, where ``(missing)`` means missing values,
    and ``(other)`` unknown levels, or both if they take the same side. In a condition on several
    features, ``city (level number)`` is the number of the level, counted from 0, and an indicator
    such as ``(city = Oslo)`` is 1 or 0. A missing number counts as the mean of its column.

    If a forest averages its trees, a leaf shows the class, or the value, that the tree alone
    predicts; it also shows the class probabilities if all leaves have the same class. If trees are
    summed, as in boosting, a leaf shows the value that the tree adds to the sum, before `baseline`
    and the inverse link. In hinge forests, this value is multiplied by the margin: the smallest
    difference between both sides of a condition on the path. With soft routing, the rules follow
    the more probable side of every split.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skforest import NonGreedyTreeClassifier, export_text
    >>> iris = load_iris(as_frame=True)
    >>> tree = NonGreedyTreeClassifier(max_depth=2, random_state=0)
    >>> tree = tree.fit(iris.data, iris.target_names[iris.target])
    >>> print(export_text(tree, max_terms=2))
    |--- 0.75 * petal length (cm) + 0.92 * petal width (cm) + (2 more) <= -0.04
    |   |--- class: setosa
    |--- 0.75 * petal length (cm) + 0.92 * petal width (cm) + (2 more) >  -0.04
    |   |--- 1.02 * petal width (cm) + 0.08 * petal length (cm) + (2 more) <= 2.80
    |   |   |--- class: versicolor
    |   |--- 1.02 * petal width (cm) + 0.08 * petal length (cm) + (2 more) >  2.80
    |   |   |--- class: virginica
    <BLANKLINE>
    """
    refuse_networks(estimator)
    check_int("max_depth", max_depth, 0, or_none=True)
    check_int("max_terms", max_terms, 1, or_none=True)
    check_int("decimals", decimals, 0)
    contents = contents_of(estimator, tree, feature_names)
    writer = _Writer(contents, output_names(contents.forest, class_names), max_terms, decimals)
    lines = []
    waiting = [(0, 0, None)]
    while waiting:
        node, depth, condition = waiting.pop()
        indent = "|   " * (depth - 1) + "|--- "
        if condition is not None:
            lines.append(indent + condition)
        indent = "|   " * depth + "|--- "
        left = contents.child[node]
        if left < 0:
            lines.append(indent + writer.leaf(node, show_weights))
        elif max_depth is not None and depth > max_depth:
            lines.append(f"{indent}truncated branch of depth {contents.depth(node) + 1}")
        else:
            conditions = writer.conditions(node)
            waiting += [(left + side, depth + 1, conditions[side]) for side in (1, 0)]
    return "\n".join(lines) + "\n"


class _Writer:
    """Conditions and leaves of a tree as text."""

    def __init__(self, contents, outputs, max_terms, decimals):
        self.contents = contents
        self.outputs = outputs
        self.max_terms = max_terms
        self.decimals = decimals
        self.shows_share = self._is_one_class()

    def _is_one_class(self):
        """Are there several leaves, all with the same class?"""
        contents = self.contents
        leaves = np.flatnonzero(contents.child < 0)
        if not contents.has_predictions or contents.forest.task != "classification":
            return False
        return len(leaves) > 1 and len({self.label(contents.value(leaf)) for leaf in leaves}) == 1

    def number(self, value):
        """A number with some decimals, or as many significant digits if it is small."""
        if value != 0 and abs(value) < 10.0**-self.decimals:
            return f"{value:.{max(self.decimals, 1)}g}"
        if abs(value) >= 1e10:
            return f"{value:.{self.decimals}e}"
        return f"{value:.{self.decimals}f}"

    def conditions(self, node):
        """Conditions to go left and right."""
        is_hard = self.contents.forest.gate == "hard"  # other gates depend on the length
        sides = self.contents.sides(node, MAX_LEVELS) if is_hard else None
        if sides is not None:
            name, left, right = sides
            return f"{name} {left}", f"{name} {right}"
        terms, n_hidden, threshold = self.contents.terms(node, self.max_terms)
        signs = "<=", ">"
        if len(terms) == 1 and not n_hidden and is_hard:
            [(name, weight)] = terms
            terms, threshold = [(name, 1.0)], threshold / weight
            signs = signs if weight > 0 else (">=", "<")
        text = self.sum(terms, n_hidden)
        return tuple(f"{text} {sign:<2} {self.number(threshold)}" for sign in signs)

    def sum(self, terms, n_hidden=0):
        """A sum of features times weights."""
        lines = self.signed(terms, n_hidden) or ["+ 0"]
        first = lines[0][2:] if lines[0][0] == "+" else "-" + lines[0][2:]
        return " ".join([first, *lines[1:]])

    def signed(self, terms, n_hidden=0):
        """Summands with their signs."""
        lines = []
        for name, weight in terms:
            size = "" if abs(weight) == 1 else self.number(abs(weight)) + " * "
            lines.append(f"{'-' if weight < 0 else '+'} {size}{name}")
        return lines + [f"+ ({n_hidden} more)"] * (n_hidden > 0)

    def leaf(self, node, show_weights):
        """Class or value of a leaf."""
        contents = self.contents
        forest = contents.forest
        features, _, value = contents.linear_leaf(node)
        weight = contents.weight[node]
        if contents.has_predictions and forest.task != "regression":
            text = f"class: {self.label(value)}"
            if show_weights:
                of_class = contents.class_weights(node)
                if of_class is None:
                    return f"weight: {self.number(weight)} {text}"
                text = f"weights: [{', '.join(map(self.number, of_class))}] {text}"
            elif self.shows_share:
                text += f" (probabilities: [{', '.join(map(self.number, value))}])"
            return text
        numbers = [self.number(number) for number in value]
        if len(features):
            sums = [self.signed(*self.slopes(node, k)) for k in range(len(value))]
            numbers = [" ".join([number, *terms]) for number, terms in zip(numbers, sums)]
        text = f"value: [{', '.join(numbers)}]"
        if forest.gate == "margin":
            text += " * margin"
        if contents.start:
            text += f" ({contents.start})"
        return f"weight: {self.number(weight)} {text}" if show_weights else text

    def slopes(self, leaf, output):
        """Names and slopes of a linear leaf, the largest first, and the number of others."""
        return self.contents.slopes(leaf, output, self.max_terms)[:2]

    def label(self, value):
        """Name of the most probable class, or the names for all outputs in brackets."""
        n_classes = self.contents.forest.n_classes
        if n_classes is None:
            return self.outputs[int(np.argmax(value))]
        ends = np.cumsum(n_classes)
        best = [
            self.outputs[end - n + int(np.argmax(value[end - n : end]))]
            for n, end in zip(n_classes, ends)
        ]
        return f"[{', '.join(best)}]"


# ------------------------------------------------------------------------------------- graphs


def export_graphviz(
    estimator,
    tree=0,
    out_file=None,
    *,
    feature_names=None,
    class_names=None,
    max_depth=None,
    max_terms=5,
    precision=3,
    filled=False,
    rounded=False,
    rotate=False,
    leaves_parallel=False,
    proportion=False,
    node_ids=False,
    fontname="helvetica",
):
    """Write a tree of a fitted forest in the DOT language of Graphviz.

    The parameters are like those of `sklearn.tree.export_graphviz`. If Graphviz is installed,
    ``dot -Tpng tree.dot -o tree.png`` makes a picture of the file.

    Parameters
    ----------
    estimator : estimator of skforest or Forest
        Fitted estimator; it may be inside a search or a pipeline.
    tree : int, default=0
        Number of the tree in the forest, 0 to ``n_trees - 1``.
    out_file : str, Path or text file, default=None
        Where to write. None: the text is returned.
    feature_names : array-like of str of shape (n_features,), default=None
        As in `export_text`.
    class_names : array-like of str of shape (n_outputs,), default=None
        Names of the classes, or of the outputs of a regression. None: the class labels, or
        ``y[0]``, ``y[1]``, and so on.
    max_depth : int or None, default=None
        Depth of the deepest nodes that are written, at least 0. None: all. Hidden subtrees are
        nodes named ``(...)``.
    max_terms : int or None, default=5
        As in `export_text`.
    precision : int, default=3
        Number of decimals, at least 0.
    filled : bool, default=False
        Whether to colour the nodes: by the most probable class, more strongly the more probable it
        is, or by the value, from white for the smallest to blue. The colours are safe for
        colour-blind readers. Trees with linear leaves stay white.
    rounded : bool, default=False
        Whether boxes have rounded corners.
    rotate : bool, default=False
        Whether the tree grows to the right instead of downwards.
    leaves_parallel : bool, default=False
        Whether all leaves are at the bottom.
    proportion : bool, default=False
        Whether to write the fraction of the training samples instead of their weight.
    node_ids : bool, default=False
        Whether to write the numbers of the nodes, as `apply` returns them.
    fontname : str, default="helvetica"
        Name of the font.

    Returns
    -------
    dot : str or None
        The text, if `out_file` is None.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If `estimator` is neither an estimator of skforest nor a Forest, if it is a blend, or if
        its splits are networks.
    ValueError
        If the tree does not exist, if a length does not match the forest, or if a number is out of
        range.

    See Also
    --------
    plot_tree : The same with matplotlib.
    export_text : The same as rules to read.

    Notes
    -----
    Conditions and values are the same as in `export_text`. The value of an inner node is the
    weighted mean of the leaves below it. Names may contain any characters.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skforest import CO2ForestClassifier, export_graphviz
    >>> iris = load_iris(as_frame=True)
    >>> forest = CO2ForestClassifier(10, max_depth=1, random_state=0)
    >>> forest = forest.fit(iris.data, iris.target_names[iris.target])
    >>> for line in export_graphviz(forest, tree=3).splitlines():
    ...     print(line.partition("\\\\")[0])
    digraph Tree {
    node [shape=box, color="black", fontname="helvetica"] ;
    edge [fontname="helvetica"] ;
    0 [label="petal width (cm) <= 0.800
    1 [label="samples = 47
    0 -> 1 [labeldistance=2.5, labelangle=45, headlabel="True"] ;
    2 [label="samples = 103
    0 -> 2 [labeldistance=2.5, labelangle=-45, headlabel="False"] ;
    }
    """
    refuse_networks(estimator)
    check_int("max_depth", max_depth, 0, or_none=True)
    check_int("max_terms", max_terms, 1, or_none=True)
    check_int("precision", precision, 0)
    contents = contents_of(estimator, tree, feature_names)
    writer = _Writer(contents, output_names(contents.forest, class_names), max_terms, precision)
    style = "filled" * filled + ", " * (filled and rounded) + "rounded" * rounded
    lines = [
        "digraph Tree {",
        f'node [shape=box{f", style={_quoted(style)}" if style else ""}, color="black", '
        f"fontname={_quoted(fontname)}] ;",
        f"edge [fontname={_quoted(fontname)}] ;",
    ]
    if leaves_parallel:
        lines.append("graph [ranksep=equally, splines=polyline] ;")
    if rotate:
        lines.append("rankdir=LR ;")
    lines += _Graph(writer, max_depth, filled, proportion, node_ids).lines()
    if leaves_parallel:
        leaves = np.flatnonzero(contents.child < 0)
        lines.append("{rank=same ; " + "; ".join(map(str, leaves)) + "} ;")
    dot = "\n".join([*lines, "}"])
    if out_file is None:
        return dot
    if isinstance(out_file, str | PathLike):
        with open(out_file, "w", encoding="utf-8") as file:
            file.write(dot)
    else:
        out_file.write(dot)
    return None


class _Graph:
    """Nodes and edges of a tree in the DOT language."""

    def __init__(self, writer, max_depth, filled, proportion, node_ids):
        self.writer, self.contents = writer, writer.contents
        self.max_depth, self.filled = max_depth, filled
        self.proportion, self.node_ids = proportion, node_ids
        self.shown = self.places()
        self.values = {node: self.contents.value(node) for node, _, _ in self.shown}
        every = np.stack(list(self.values.values()))
        self.limits = every.min(), every.max()

    def places(self):
        """Nodes to show, with their depths and parents."""
        found, waiting = [], [(0, 0, None)]
        while waiting:
            node, depth, parent = waiting.pop()
            found.append((node, depth, parent))
            left = int(self.contents.child[node])
            if left > 0 and (self.max_depth is None or depth < self.max_depth):
                waiting += [(left + side, depth + 1, node) for side in (1, 0)]
        return found

    def lines(self):
        """Statements, the parent of a node before it."""
        lines = []
        for node, depth, parent in self.shown:
            label = _quoted("\n".join(self.label(node)))
            fill = f', fillcolor="{self.colour(node)}"' if self.filled else ""
            lines.append(f"{node} [label={label}{fill}] ;")
            if parent is not None:
                lines.append(f"{parent} -> {node}{self.head(node, parent)} ;")
            if depth == self.max_depth and self.contents.child[node] > 0:
                fill = ', fillcolor="#C0C0C0"' if self.filled else ""
                lines.append(f'hidden{node} [label="(...)"{fill}] ;')
                lines.append(f"{node} -> hidden{node} ;")
        return lines

    @staticmethod
    def head(node, parent):
        """Attributes of an edge: those below the root say whether the condition is true."""
        if parent != 0:
            return ""
        is_left = node % 2 == 1
        angle, word = (45, "True") if is_left else (-45, "False")
        return f' [labeldistance=2.5, labelangle={angle}, headlabel="{word}"]'

    def label(self, node):
        """Lines of text of a node."""
        contents, writer = self.contents, self.writer
        lines = [f"node #{node}"] if self.node_ids else []
        is_leaf = contents.child[node] < 0
        if not is_leaf:
            lines += self.condition(node)
        total = contents.weight[0]
        if total > 0:
            share = contents.weight[node] / total
            number = f"{share:.1%}" if self.proportion else f"{contents.weight[node]:.10g}"
            lines.append(f"samples = {number}")
        value = self.values[node]
        if contents.is_linear:
            lines += self.linear_value(node) if is_leaf else []
            lines += [contents.start] if contents.start else []
        elif len(value) <= MAX_GRAPH_VALUES:
            numbers = ", ".join(map(writer.number, value))
            numbers = f"[{numbers}]" if len(value) > 1 else numbers
            margin = " * margin" if is_leaf and contents.forest.gate == "margin" else ""
            lines.append(f"value = {numbers}{margin}")
        if contents.has_predictions and contents.forest.task != "regression":
            lines.append(f"class = {writer.label(value)}")
        return lines

    def condition(self, node):
        """Lines of the condition to go left; every term of a sum has its own."""
        left = self.writer.conditions(node)[0]
        terms, n_hidden, threshold = self.contents.terms(node, self.writer.max_terms)
        if len(terms) + n_hidden < 2:
            return [left]
        return [*self.writer.signed(terms, n_hidden), f"<= {self.writer.number(threshold)}"]

    def linear_value(self, leaf):
        """Lines of the value of a linear leaf."""
        writer, (_, _, value) = self.writer, self.contents.linear_leaf(leaf)
        if len(value) > 1:
            return [writer.leaf(leaf, False).replace(":", " =", 1)]
        return [f"value = {writer.number(value[0])}", *writer.signed(*writer.slopes(leaf, 0))]

    def colour(self, node):
        """Colour of a node as #rrggbb."""
        forest, value = self.contents.forest, self.values[node]
        low, high = self.limits
        if self.contents.is_linear:
            return "#ffffff"
        if len(value) == 1:
            k, strength = 0, (value[0] - low) / (high - low) if high > low else 0.5
        else:
            k = int(np.argmax(value))
            rest = np.delete(value, k)
            if self.contents.has_predictions and forest.task == "classification":
                strength = (value[k] - rest.max()) / max(1 - rest.max(), 1e-9)
            else:
                strength = (value[k] - rest.mean()) / ((high - low) or 1)
        rgb = np.array([int(COLOURS[k % len(COLOURS)][i : i + 2], 16) for i in (1, 3, 5)])
        rgb = 255 - np.clip(strength, 0, 1) * 0.8 * (255 - rgb)
        return "#" + "".join(f"{round(part):02x}" for part in rgb)


def _quoted(text):
    """A string of the DOT language."""
    text = str(text).replace("\\", "\\\\").replace('"', '\\"').replace("\r", " ")
    return '"' + text.replace("\n", "\\n") + '"'
