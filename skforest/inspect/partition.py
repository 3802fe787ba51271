"""A plane of two features, coloured by the prediction, in the style of scikit-learn's displays."""

import textwrap

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from ..estimators.prediction import is_blend
from ..estimators.unwrap import unwrapped
from ..table.feature_map import level_text
from ..table.frames import (
    CATEGORY,
    as_array,
    as_frame,
    as_level,
    is_missing,
    read_table,
    table_of_matrix,
)
from ..table.matrix import dense
from .comparison import one_column
from .contents import (
    check_int,
    check_names,
    check_tree,
    forest_of,
    input_names,
    numbered,
    output_names,
    refuse_networks,
)
from .picture import MAX_LEGEND, add_legend, in_legend, number, output_colour, panels
from .plotting import plot_tree

MAX_OUTLINED = 64  # leaves
MARKERS = "osD^vPX*<>"  # of classes
MARGIN = 0.05  # around the data, as a share of their range
MAX_VALUES, TEXT_WIDTH = 8, 64  # values of other features below the plane; characters of a line


class PartitionDisplay:
    """A plane of two features, coloured by the prediction, optionally beside a tree.

    Use `from_estimator`.

    Parameters
    ----------
    x, y : ndarray of shape (n_columns,) and (n_rows,)
        Coordinates of the grid.
    response : ndarray of shape (n_rows, n_columns, n_outputs)
        Class probabilities, or values of one target.
    leaves : ndarray of shape (n_rows, n_columns), default=None
        Leaf at each point; the outlines of leaves are drawn.
    points : ndarray of shape (n_samples, 2), default=None
        Samples to draw.
    target : ndarray of shape (n_samples,), default=None
        Class numbers or targets of the samples.
    feature_names : sequence of str of length 2
    class_names : sequence of str of shape (n_outputs,), default=None
        None for a regression.
    values : dict of str to str, default=None
        Values of the other features by name, which are written below the plane.
    tree : callable, default=None
        Called with axes, on which it draws the tree.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The plane.
    tree_ax_ : matplotlib.axes.Axes or None
        The tree.
    figure_ : matplotlib.figure.Figure
    image_ : matplotlib.image.AxesImage
    text_ : matplotlib.text.Text or None
        The values of the other features.

    See Also
    --------
    sklearn.inspection.DecisionBoundaryDisplay : For any estimator of two features.
    plot_tree : The tree alone.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from skforest import NonGreedyTreeClassifier, PartitionDisplay
    >>> X, y = make_moons(300, noise=0.2, random_state=0)
    >>> model = NonGreedyTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    >>> display = PartitionDisplay.from_estimator(model, X, y, tree=0)
    >>> display.ax_.get_xlabel()
    'x[0]'
    """

    def __init__(
        self,
        x,
        y,
        response,
        *,
        leaves=None,
        points=None,
        target=None,
        feature_names=("x[0]", "x[1]"),
        class_names=None,
        values=None,
        tree=None,
    ):
        self.x = x
        self.y = y
        self.response = response
        self.leaves = leaves
        self.points = points
        self.target = target
        self.feature_names = feature_names
        self.class_names = class_names
        self.values = values
        self.tree = tree

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        y=None,
        *,
        tree=None,
        features=(0, 1),
        values=None,
        feature_names=None,
        class_names=None,
        max_depth=3,
        grid_resolution=300,
        ax=None,
    ):
        """Plot the predictions of an estimator, or of one of its trees, over two features.

        Parameters
        ----------
        estimator : estimator of skforest or Forest
            Fitted, with one output; it may be a blend. For a pipeline, the features of the plane
            are the output of its transformers.
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Samples with the same columns as in `fit`; they set the range of the plane. All other
            features are set to their medians, or most frequent levels, unless `values` says
            otherwise.
        y : array-like of shape (n_samples,), default=None
            Labels or targets of the samples, which are then drawn; not those of missing values.
        tree : int, default=None
            Number of the tree to plot, with outlines of its leaves and the tree itself beside the
            plane. None: the predictions of the forest are plotted.
        features : sequence of int or str of length 2, default=(0, 1)
            Numbers or names of the features of the plane, which must not be categories.
        values : dict of int or str to number or level, default=None
            Values of other features, by number or name; NaN or None if missing. If they matter,
            compare several planes: a plane says nothing about rows with other values.
        feature_names : array-like of str of shape (n_features,), default=None
            None: the names that the estimator was fitted with, or ``x[0]``, ``x[1]``, and so on.
        class_names : array-like of str of shape (n_classes,), default=None
            None: the class labels.
        max_depth : int or None, default=3
            Depth to which the tree is plotted, as in `plot_tree`.
        grid_resolution : int, default=300
            Number of points of the plane along each feature, at least 2.
        ax : matplotlib.axes.Axes, or two such, default=None
            Axes to plot on; two with `tree`, for the plane and the tree. None: a new figure.

        Returns
        -------
        display : PartitionDisplay

        Raises
        ------
        NotFittedError
            If the estimator is not fitted.
        ValueError
            If a parameter is invalid, X does not fit or has infinite values, or y has a label that
            the estimator does not know.
        """
        whole = unwrapped(estimator)
        estimator, X = whole.estimator, whole.transform(X)
        check_int("grid_resolution", grid_resolution, 2)
        feature_names = whole.names(feature_names)
        if tree is None and is_blend(estimator):
            source = _BlendRows(estimator, X, feature_names, class_names)
        else:
            refuse_networks(estimator)
            source = _ForestRows(forest_of(estimator), X, tree, feature_names, class_names)
            source.link = getattr(estimator, "_linked", source.link)
        rows, names = source.rows, source.names
        is_infinite = np.isinf(rows).any(axis=0)
        if is_infinite.any():
            raise ValueError(f"column {names[is_infinite.argmax()]!r} of X has infinite values")
        pair = _pair(features, names, source.levels)
        grid = [_grid(rows[:, j], names[j], grid_resolution) for j in pair]
        typical = _typical_row(rows, source.levels)
        for key, value in (values or {}).items():
            j = _number_of("values", values, key, names)
            if j in pair:
                raise ValueError(
                    f"values={values!r}: {names[j]!r} is one of the two features of the plot, "
                    "which have no fixed value"
                )
            typical[j] = _code(value, names[j], source.levels.get(j))
        plane = np.tile(typical, (grid_resolution**2, 1))
        for j, column in zip(pair, np.meshgrid(*grid)):
            plane[:, j] = column.ravel()
        shape = (grid_resolution, grid_resolution)
        response, leaves = source.predict(plane)

        def draw_tree(axes):
            options = {"feature_names": names, "max_depth": max_depth, "ax": axes}
            plot_tree(estimator, tree, class_names=source.outputs, **options)

        display = cls(
            *grid,
            response.reshape(*shape, -1),
            leaves=None if leaves is None else leaves.reshape(shape),
            points=None if y is None else rows[:, pair],
            target=None if y is None else _target(y, source.classes, len(rows)),
            feature_names=[names[j] for j in pair],
            class_names=source.outputs,
            values={
                name: _value_text(typical[j], source.levels.get(j))
                for j, name in enumerate(names)
                if j not in pair
            },
            tree=None if tree is None else draw_tree,
        )
        return display.plot(ax=ax)

    def plot(self, *, ax=None):
        """Plot the plane, and the tree if there is one.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, or two such, default=None
            Axes to plot on; two if there is a tree. None: a new figure.

        Returns
        -------
        self : PartitionDisplay
        """
        has_tree = self.tree is not None
        size, widths = ((12.5, 4.6), (1, 1.7)) if has_tree else ((5.6, 4.4), None)
        self.ax_, *rest = panels(self, ax, 1 + has_tree, size, widths)
        self.tree_ax_ = rest[0] if has_tree else None
        self.figure_ = self.ax_.figure
        extent = (*_edges(self.x), *_edges(self.y))
        options = {"extent": extent, "origin": "lower", "aspect": "auto"}
        if self.class_names is None:
            self._plot_values(options)
        else:
            self._plot_classes(options)
        if self.leaves is not None:
            self._outline_leaves()
        self.ax_.set(xlim=extent[:2], ylim=extent[2:])
        self.ax_.set_xlabel(self.feature_names[0], parse_math=False)
        self.ax_.set_ylabel(self.feature_names[1], parse_math=False)
        self.text_ = self._write_values() if self.values else None
        if has_tree:
            self.tree(self.tree_ax_)
        return self

    def _write_values(self):
        """The values of the other features, below the labels of the axis."""
        shown = [f"{name} = {value}" for name, value in self.values.items()]
        n_hidden = len(shown) - MAX_VALUES
        text = ", ".join(shown[:MAX_VALUES]) + (f", {n_hidden} more" if n_hidden > 0 else "")
        return self.ax_.annotate(
            textwrap.fill(f"where {text}", TEXT_WIDTH), (0.5, 0), (0, -32), "axes fraction",
            "offset points", ha="center", va="top", fontsize="small", color="0.35",
            parse_math=False,
        )  # fmt: skip

    def _plot_classes(self, options):
        """Colours of the most probable class, the stronger the more probable it is."""
        from matplotlib.colors import to_rgb

        n_classes = self.response.shape[2]
        colours = np.array([to_rgb(output_colour(k, n_classes)) for k in range(n_classes)])
        ordered = np.sort(self.response, axis=2)
        lead = ordered[:, :, -1] - (ordered[:, :, -2] if n_classes > 1 else 0)
        strength = 0.15 + 0.4 * np.clip(lead, 0, 1)[:, :, None]
        image = 1 - strength * (1 - colours[self.response.argmax(axis=2)])
        self.image_ = self.ax_.imshow(image, **options)
        for k, name in enumerate(self.class_names):
            points = np.zeros((0, 2)) if self.points is None else self.points[self.target == k]
            drawn = self.ax_.scatter(
                *points.T, s=24, marker=MARKERS[k % len(MARKERS)], color=[colours[k]],
                edgecolor="black", linewidth=0.5,
            )  # fmt: skip
            drawn.set_label(in_legend(name))
        if self.tree is None and n_classes <= MAX_LEGEND:  # otherwise the tree has a legend
            add_legend(self.ax_, framealpha=0.9)

    def _plot_values(self, options):
        """Colours of the predicted value; samples in the colours of their targets."""
        values = self.response[:, :, 0]
        every = values.ravel() if self.target is None else np.append(self.target, values)
        limits = {"vmin": np.nanmin(every), "vmax": np.nanmax(every), "cmap": "viridis"}
        self.image_ = self.ax_.imshow(values, **options, **limits)
        if self.points is not None:
            style = {"s": 26, "edgecolor": "white", "linewidth": 0.8}
            self.ax_.scatter(*self.points.T, c=self.target, **style, **limits)
        self.figure_.colorbar(self.image_, ax=self.ax_, label="prediction")

    def _outline_leaves(self):
        leaves = np.unique(self.leaves)
        if len(leaves) < 2 or len(leaves) > MAX_OUTLINED:
            return
        for leaf in leaves:
            inside = (self.leaves == leaf).astype(float)
            self.ax_.contour(self.x, self.y, inside, [0.5], colors="0.25", linewidths=0.8)


class _ForestRows:
    """Rows as coded by a forest, and the predictions of the forest for such rows.

    Attributes
    ----------
    rows : ndarray of shape (n_samples, n_features), float64
        Numbers, or numbers of levels.
    names : list of str
    levels : dict of int to list
        Of the categories, by column.
    classes : ndarray or None
    outputs : list of str, or None in regression
    link : function
        Of the responses of the forest; that of a user's loss.
    """

    link = staticmethod(np.asarray)

    def __init__(self, forest, X, tree, feature_names, class_names):
        if tree is not None:
            check_tree(forest, tree)
        self.classes = forest.classes if forest.task == "classification" else None
        if self.classes is None and forest.n_outputs > 1:
            raise ValueError(f"estimator has {forest.n_outputs} outputs; one is needed")
        self.names, self.levels = input_names(forest, feature_names), forest.levels
        self.rows = np.asarray(forest.feature_map.coded(X, forest.feature_names), np.float64)
        if self.rows.shape[1:] != (forest.n_inputs,):
            raise ValueError(
                f"X has shape {self.rows.shape}, the forest takes {forest.n_inputs} columns"
            )
        self.outputs = None if self.classes is None else output_names(forest, class_names)
        self._is_tree = tree is not None
        self._forest = forest[int(tree)] if self._is_tree else forest

    def predict(self, plane):
        """Predictions of coded rows and, for a single tree, their leaves."""
        mapped = self._forest.map_coded(plane)
        leaves = self._forest.apply_mapped(mapped) if self._is_tree else None
        return self.link(self._forest.response_mapped(mapped)), leaves


class _BlendRows:
    """Like `_ForestRows`, for a blend, whose members may need tables to predict."""

    def __init__(self, blend, X, feature_names, class_names):
        check_is_fitted(blend, "members_")
        if blend.n_outputs_ > 1:
            raise ValueError(f"estimator has {blend.n_outputs_} outputs; one is needed")
        self._blend, self._X = blend, as_frame(X)
        table = read_table(self._X)
        self._frame = nw.from_native(self._X, pass_through=True)
        if not isinstance(self._frame, nw.DataFrame):
            self._frame = None
            self._X = np.asarray(dense(as_array(self._X)))
            table = table_of_matrix(self._X) if table is None else table
        if len(table) != blend.n_features_in_:
            raise ValueError(f"X has {len(table)} columns, the blend takes {blend.n_features_in_}")
        self._table_names = table.names
        numbers = {j for model in blend.members_.values() for j in _levels_of(model)}
        numbers |= {j for j in range(len(table)) if table.kind(j) == CATEGORY}
        self.levels = {j: table.levels(j) for j in sorted(numbers)}
        self.rows = table.matrix(self.levels)
        names = check_names("feature_names", feature_names, len(table))
        if names is None:
            is_named = self._frame is not None
            names = list(map(str, table.names)) if is_named else numbered("x", (len(table),))
        self.names = names
        self.classes = blend.classes_ if is_classifier(blend) else None
        self.outputs = None
        if self.classes is not None:
            self.outputs = check_names("class_names", class_names, len(self.classes))
            self.outputs = self.outputs or [str(label) for label in self.classes]

    def predict(self, plane):
        """Predictions of coded rows; no leaves."""
        typical = {j: self._entries(j, plane[0, j], len(plane)) for j in self.levels}
        if self._frame is None:
            table = plane
            if self.levels:
                table = plane.astype(object)
                for j, column in typical.items():
                    table[:, j] = column
        else:
            names, frame = self._table_names, self._frame
            columns = [
                typical[j] if j in typical else
                nw.new_series(names[j], plane[:, j].copy(), backend=frame.implementation)
                for j in range(len(names))
            ]  # fmt: skip
            table = nw.to_native(frame[[0] * len(plane)].with_columns(*columns))
        if self.classes is None:
            return self._blend.predict(table), None
        return self._blend.predict_proba(table), None

    def _entries(self, j, code, n_rows):
        """A category, as a column: its value in a row of X with the same level."""
        own = self.rows[:, j]
        there = np.flatnonzero(np.isnan(own) if np.isnan(code) else own == code)
        # Levels are those of X, so only a missing value is in no row.
        if self._frame is None:
            return self._X[there[0], j] if len(there) else None
        if not len(there):
            name, backend = self._table_names[j], self._frame.implementation
            return nw.new_series(name, [None] * n_rows, nw.String, backend=backend)
        return self._frame[[int(there[0])] * n_rows][self._table_names[j]]


def _levels_of(model):
    """Levels of the categories of a member, by column; none for those of other packages."""
    return getattr(getattr(unwrapped(model).estimator, "forest_", None), "levels", {})


def _number_of(parameter, given, feature, names):
    """Number of a feature, given by number or name."""
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if isinstance(feature, str):
        raise ValueError(f"{parameter}={given!r}: there is no feature {feature!r}")
    check_int(f"an entry of {parameter}", feature, 0, len(names) - 1)
    return int(feature)


def _pair(features, names, levels):
    """Numbers of the two features of a plane."""
    pair = [_number_of("features", features, feature, names) for feature in features]
    for j in pair:
        if j in levels:
            raise ValueError(f"features={features!r}: {names[j]!r} is a category")
    if len(pair) != 2 or pair[0] == pair[1]:
        raise ValueError(f"features={features!r} must be two different features")
    return pair


def _code(value, name, levels):
    """A value as a number, or as the number of its level."""
    if is_missing(value):
        return np.nan
    if levels is None:
        try:
            found = float(value)
        except (TypeError, ValueError):
            found = np.inf
        if np.isinf(found):
            raise ValueError(f"values: {name!r} must be a finite number, got {value!r}")
        return found
    if as_level(value) not in list(levels):
        raise ValueError(f"values: {value!r} is none of the levels of {name!r}: {list(levels)}")
    return float(list(levels).index(as_level(value)))


def _value_text(code, levels):
    """A value, from its number, as text."""
    if np.isnan(code):
        return "missing"
    if levels is None:
        return number(code, 4)
    return level_text(levels[int(code)]) if 0 <= code < len(levels) else "(other)"


def _grid(column, name, n_points):
    """Coordinates over the range of a column, and a little beyond."""
    column = column[np.isfinite(column)]
    if not len(column):
        raise ValueError(f"X has no value of the feature {name!r}")
    margin = MARGIN * (np.ptp(column) or 1)
    return np.linspace(column.min() - margin, column.max() + margin, n_points)


def _edges(grid):
    """The ends of the pixels around the points of a grid."""
    half = (grid[1] - grid[0]) / 2
    return grid[0] - half, grid[-1] + half


def _typical_row(rows, levels):
    """Median of each number, and most frequent level of each category."""
    typical = np.full(rows.shape[1], np.nan)
    for j, column in enumerate(rows.T):
        column = column[~np.isnan(column)]
        if len(column) and j in levels:
            found, counts = np.unique(column, return_counts=True)
            typical[j] = found[counts.argmax()]
        elif len(column):
            typical[j] = np.median(column)
    return typical


def _target(y, classes, n_samples):
    """Class numbers of labels, or targets; -1 for missing labels."""
    y = one_column(np.asarray(y))
    if y.shape != (n_samples,):
        raise ValueError(f"y must have shape ({n_samples},), got {y.shape}")
    if classes is None:
        return y.astype(np.float64)
    code = {label: k for k, label in enumerate(classes.tolist())}
    labels = [None if is_missing(label) else label for label in y.tolist()]
    unknown = sorted({*labels} - {*code, None}, key=str)
    if unknown:
        raise ValueError(f"y has the labels {unknown}, but the classes are {list(code)}")
    return np.array([code.get(label, -1) for label in labels])
