"""Plot of a tree of a fitted forest.

This file checks the parameters; `picture` draws.
"""

from numbers import Real

from .contents import check_int, contents_of, forest_of, grid_shape, output_names
from .picture import Picture, Style, import_axes, layout


def plot_tree(
    estimator,
    tree=0,
    *,
    node=0,
    max_depth=3,
    feature_names=None,
    feature_shape=None,
    class_names=None,
    n_weights=3,
    precision=3,
    node_ids=False,
    cmap="coolwarm",
    fontsize=None,
    ax=None,
):
    """Plot a tree of a fitted forest.

    A split shows its weights and its threshold; samples with a larger weighted sum go right. The
    width of an edge shows the weight of the training samples that passed it. A leaf shows its
    value: a bar for each class or output, or a number for a single output. A hidden subtree shows
    the mean of its leaves in a paler colour, and its number of nodes.

    The function needs matplotlib.

    Parameters
    ----------
    estimator : estimator of skforest or Forest
        Fitted estimator. It may be inside a search or a pipeline, whose transformers then name the
        features.
    tree : int, default=0
        Number of the tree in the forest, 0 to ``n_trees - 1``.
    node : int, default=0
        Root of the subtree to plot, with the node numbers of `apply`.
    max_depth : int, default=3
        Depth to which the subtree is plotted, at least 1. None: the whole subtree.
    feature_names : array-like of str of shape (n_features,), default=None
        Names of the features. None: the names that the estimator was fitted with, or ``x[0]``,
        ``x[1]``, and so on.
    feature_shape : int or tuple of int, default=None
        Shape of a sample. With two axes, the weights of a split are shown as an image; with one,
        as a line. A third axis of at most 4 entries is taken for channels, which are shown side by
        side. With more axes, the largest weights are listed by name. None: the shape of the
        forest, if it has several axes or patches.
    class_names : array-like of str of shape (n_outputs,), default=None
        Names of the classes, in the order of `classes_`, or of the outputs of a regression. None:
        the class labels, or ``y[0]``, ``y[1]``, and so on.
    n_weights : int, default=3
        Maximum number of weights that are listed by name, at least 1, followed by the number of
        other features. The weights with the largest absolute values are listed; if the forest
        scales its features, weights are compared after scaling.
    precision : int, default=3
        Number of significant digits, at least 1. At least one decimal is shown.
    node_ids : bool, default=False
        Whether to show the numbers of the nodes.
    cmap : str or Colormap, default="coolwarm"
        Colormap for images of weights. Its middle is weight 0; each split has its own range.
    fontsize : float, default=None
        Font size in points. None: the largest size from 5 to 10 that fits the axes.
    ax : matplotlib.axes.Axes, default=None
        Axes to plot on, which are cleared. None: the current axes, or new axes that fill the
        current figure.

    Returns
    -------
    artists : list of matplotlib.artist.Artist
        The artists of the plot. `get_gid` tells them apart: ``"edge 4"`` is the edge to node 4;
        ``"weights 4"`` and ``"split 4"`` are the image (axes) and the text of a split,
        ``"value 4"`` and ``"leaf 4"`` the bars (axes) or value and the text of a leaf (of a linear
        leaf, the text alone), and
        ``"hidden 4"`` the text of a hidden subtree. ``"no"``, ``"yes"`` and ``"classes"`` (the
        legend) occur once.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If `estimator` is neither an estimator of skforest nor a Forest, or `ax` is not axes.
    ValueError
        If the tree or the node does not exist, if a length does not match the forest, or if a
        number is out of range.

    See Also
    --------
    sklearn.tree.plot_tree : The same for trees of scikit-learn.

    Notes
    -----
    Weights and thresholds are in the units of the features, even if the forest centres and scales
    them. The value of a leaf is the prediction of the tree alone, on the scale of the predictions
    of the forest. If trees are summed, or leaf values are multiplied by margins, the stored value
    is shown: the contribution to the sum, before `baseline` and the inverse link. A linear leaf
    shows its constant and its largest slopes. Boosting with a linear start begins with a tree that
    is a single linear leaf; the plot says so.

    A split of a category shows the levels that go right, where ``(missing)`` means missing values,
    and ``(other)`` unknown levels, or both if they take the same side. In a sum, ``city (level
    number)`` is the number of the level, counted from 0.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_digits
    >>> from skforest import CO2ForestClassifier, plot_tree
    >>> X, y = load_digits(return_X_y=True)
    >>> forest = CO2ForestClassifier(10, max_depth=3, random_state=0).fit(X, y)
    >>> figure = Figure(figsize=(9, 5))
    >>> artists = plot_tree(forest, feature_shape=(8, 8), ax=figure.subplots())
    >>> sum(artist.get_gid().startswith("weights") for artist in artists)  # images
    7
    """
    forest = forest_of(estimator)
    shape = grid_shape(forest, feature_shape)
    contents = contents_of(estimator, tree, feature_names, shape)
    check_int("node", node, 0, len(contents.child) - 1)
    check_int("max_depth", max_depth, 1, or_none=True)
    check_int("n_weights", n_weights, 1)
    check_int("precision", precision, 1)
    if fontsize is not None and not (isinstance(fontsize, Real) and fontsize > 0):
        raise ValueError(f"fontsize={fontsize!r} must be a number above 0, or None")
    style = Style(
        outputs=output_names(forest, class_names),
        shape=shape,
        n_weights=int(n_weights),
        precision=int(precision),
        node_ids=bool(node_ids),
        cmap=cmap,
        fontsize=fontsize,
    )
    places = layout(contents.child, int(node), max_depth)
    return Picture(_axes(ax), contents, places, style).draw()


def _axes(ax):
    """Cleared axes to plot on."""
    Axes = import_axes("plot_tree")
    if ax is not None and not isinstance(ax, Axes):
        raise TypeError(f"ax must be matplotlib axes or None, got {type(ax).__name__}")
    if ax is None:
        import matplotlib.pyplot as plt

        figure = plt.gcf()
        is_new = not figure.axes
        ax = plt.gca()
        if is_new and figure.get_layout_engine() is None:
            ax.set_position((0.01, 0.01, 0.98, 0.92))
    ax.clear()
    ax.set_axis_off()
    return ax
