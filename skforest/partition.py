"""A plane of two features, coloured by the prediction, as a display like scikit-learn's."""

import numpy as np

from ._picture import MAX_LEGEND, output_colour, panels
from ._tree_contents import check_int, forest_of, input_names, output_names, refuse_networks
from .plotting import plot_tree

MAX_OUTLINED = 64  # leaves
MARKERS = "osD^vPX*<>"  # of classes
MARGIN = 0.05  # around the data, as a share of their range


class PartitionDisplay:
    """A plane of two features, coloured by the prediction; if wanted, beside the tree.

    Use `from_estimator`.

    Parameters
    ----------
    x, y : ndarray of shape (n_columns,) and (n_rows,)
        Coordinates of the grid.
    response : ndarray of shape (n_rows, n_columns, n_outputs)
        Class probabilities, or values of one target.
    leaves : ndarray of shape (n_rows, n_columns), default=None
        Leaf at each point, whose outlines are drawn.
    points : ndarray of shape (n_samples, 2), default=None
        Samples to draw.
    target : ndarray of shape (n_samples,), default=None
        Class numbers or targets of the samples.
    feature_names : sequence of str of length 2
    class_names : sequence of str of shape (n_outputs,), default=None
        None for a regression.
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
        feature_names=None,
        class_names=None,
        max_depth=3,
        grid_resolution=300,
        ax=None,
    ):
        """Plot the predictions of a forest, or of one of its trees, over two features.

        Parameters
        ----------
        estimator : estimator of skforest or Forest
            Fitted, with one output.
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Samples, with the columns of fit: they set the range of the plane. All other features
            have their medians, and categories their most frequent levels.
        y : array-like of shape (n_samples,), default=None
            Labels or targets of the samples, which are then drawn.
        tree : int, default=None
            Number of the tree to plot, with outlines of its leaves, and the tree beside it. None:
            the predictions of the forest.
        features : sequence of int or str of length 2, default=(0, 1)
            Numbers or names of the features of the plane, which must not be categories.
        feature_names : array-like of str of shape (n_features,), default=None
            None: those that the estimator was fitted with, else ``x[0]``, ``x[1]``, and so on.
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
        """
        refuse_networks(estimator)
        forest = forest_of(estimator)
        check_int("grid_resolution", grid_resolution, 2)
        if tree is not None:
            check_int("tree", tree, 0, len(forest) - 1)
        is_class = forest.task == "classification"
        if not is_class and forest.n_outputs > 1:
            raise ValueError(f"estimator has {forest.n_outputs} outputs; one is needed")
        names = input_names(forest, feature_names)
        rows = np.asarray(forest.feature_map.coded(X, forest.feature_names), dtype=np.float64)
        if rows.shape[1:] != (forest.n_inputs,):
            raise ValueError(
                f"X has shape {rows.shape}, the forest takes {forest.n_inputs} columns"
            )
        pair = _pair(features, names, forest.levels)
        grid = [_grid(rows[:, j], names[j], grid_resolution) for j in pair]
        plane = np.tile(_typical_row(rows, forest.levels), (grid_resolution**2, 1))
        for j, values in zip(pair, np.meshgrid(*grid)):
            plane[:, j] = values.ravel()
        own = forest if tree is None else forest[int(tree)]
        shape = (grid_resolution, grid_resolution)
        mapped = own.map_coded(plane)
        outputs = output_names(forest, class_names) if is_class else None

        def draw_tree(axes):
            options = {"feature_names": names, "max_depth": max_depth, "ax": axes}
            plot_tree(estimator, tree, class_names=outputs, **options)

        display = cls(
            *grid,
            own.response_mapped(mapped).reshape(*shape, -1),
            leaves=None if tree is None else own.apply_mapped(mapped).reshape(shape),
            points=None if y is None else rows[:, pair],
            target=None if y is None else _target(y, forest, len(rows)),
            feature_names=[names[j] for j in pair],
            class_names=outputs,
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
        extent = (self.x[0], self.x[-1], self.y[0], self.y[-1])
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
        if has_tree:
            self.tree(self.tree_ax_)
        return self

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
            drawn.set_label(name if name[:1] != "_" else f"\u200b{name}")
        if self.tree is None and n_classes <= MAX_LEGEND:  # otherwise the tree has a legend
            self.ax_.legend(framealpha=0.9)

    def _plot_values(self, options):
        """Colours of the predicted value; samples in the colours of their targets."""
        values = self.response[:, :, 0]
        every = values.ravel() if self.target is None else np.append(self.target, values)
        limits = {"vmin": every.min(), "vmax": every.max(), "cmap": "viridis"}
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


def _pair(features, names, levels):
    """Numbers of the two features of a plane."""
    pair = list(features)
    for i, feature in enumerate(pair):
        if isinstance(feature, str) and feature in names:
            pair[i] = names.index(feature)
        elif isinstance(feature, str):
            raise ValueError(f"features={features!r}: there is no feature {feature!r}")
        else:
            check_int("an entry of features", feature, 0, len(names) - 1)
        if pair[i] in levels:
            raise ValueError(f"features={features!r}: {names[pair[i]]!r} is a category")
    if len(pair) != 2 or pair[0] == pair[1]:
        raise ValueError(f"features={features!r} must be two different features")
    return pair


def _grid(column, name, n_points):
    """Coordinates over the range of a column, and a little beyond."""
    column = column[np.isfinite(column)]
    if not len(column):
        raise ValueError(f"X has no value of the feature {name!r}")
    margin = MARGIN * (np.ptp(column) or 1)
    return np.linspace(column.min() - margin, column.max() + margin, n_points)


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


def _target(y, forest, n_samples):
    """Class numbers of labels, or targets; -1 for unknown labels."""
    y = np.asarray(y)
    if y.shape != (n_samples,):
        raise ValueError(f"y must have shape ({n_samples},), got {y.shape}")
    if forest.task != "classification":
        return y.astype(np.float64)
    number = {label: k for k, label in enumerate(forest.classes.tolist())}
    return np.array([number.get(label, -1) for label in y.tolist()])
