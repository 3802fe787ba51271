"""A tree of a fitted forest as a picture.

What is asked for is checked here; `_picture` draws it.
"""

from __future__ import annotations

import math
from numbers import Integral, Real

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._picture import Picture, Style, Tree, layout
from .forest import Forest


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

    A split shows its weights and its threshold; rows with a larger value go right. The width of an
    edge is the weight of the training rows that took it. A leaf shows what the tree answers there:
    bars, one a class or output, or the value of a single output. A branch that is cut off shows
    the mean of its leaves, pale, and how many nodes are hidden.

    Needs matplotlib.

    Parameters
    ----------
    estimator : estimator of skforest or Forest
        Fitted.
    tree : int, default=0
        Which tree of the forest.
    node : int, default=0
        Root of the branch to show, as `apply` numbers nodes.
    max_depth : int, default=3
        Depth to which the branch is shown. None: all of it.
    feature_names : array-like of str of shape (n_features,), default=None
        None: those of the fitted estimator, else ``x[0]``, ``x[1]``, and so on.
    feature_shape : int or tuple of int, default=None
        How the features lie: the weights of a split are then an image, or, on one axis, a line. A
        third axis of at most 4 entries is one of channels, which are shown side by side. With
        more axes the largest weights are named. None: the shape of the forest, where it has
        several axes or patches.
    class_names : array-like of str of shape (n_outputs,), default=None
        Names of the classes, in the order of `classes_`, or of the outputs of a regression. None:
        the labels themselves, or ``y[0]``, ``y[1]``, and so on.
    n_weights : int, default=3
        How many weights are named at most where they are no image. The largest are; where the
        forest scales its features, those that are largest after scaling.
    precision : int, default=3
        Significant digits of numbers, of which at least one is behind the point.
    node_ids : bool, default=False
        Show the numbers of the nodes.
    cmap : str or Colormap, default="coolwarm"
        Of images of weights. Its middle is weight 0; each split has a scale of its own.
    fontsize : float, default=None
        In points. None: the largest that fits the size of the axes, from 5 to 10.
    ax : matplotlib.axes.Axes, default=None
        Where to plot; what it holds is cleared. None: the current axes, or new ones that fill the
        current figure.

    Returns
    -------
    artists : list of matplotlib.artist.Artist
        All that was drawn, as `sklearn.tree.plot_tree` returns it. `get_gid` tells them apart:
        ``"edge 4"`` is the edge to node 4; ``"weights 4"`` and ``"split 4"`` are the image (axes)
        and the text of a split, ``"value 4"`` and ``"leaf 4"`` the bars (axes) or value and the
        text of a leaf, ``"hidden 4"`` the text of a branch that is cut off. ``"no"``, ``"yes"``
        and ``"classes"`` (the legend) are there once.

    Raises
    ------
    ImportError
        If matplotlib is missing.
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If `estimator` is neither an estimator of skforest nor a Forest, or `ax` are no axes.
    ValueError
        If there is no such tree or node, a length does not fit the forest, or a number is out of
        range.

    Notes
    -----
    Weights and thresholds are in the units of the features, also where the forest centres and
    scales them. A value in a leaf is the prediction of the tree alone, on the scale of the
    forest's predictions. Where trees are summed, or leaves are weighted by margins, it is what
    is stored: the share of the leaf in the sum, before `link` and `baseline`.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from sklearn.datasets import load_digits
    >>> from skforest import CO2ForestClassifier, plot_tree
    >>> X, y = load_digits(return_X_y=True)
    >>> forest = CO2ForestClassifier(10, max_depth=3, random_state=0).fit(X, y)
    >>> figure = Figure(figsize=(9, 5))
    >>> artists = plot_tree(forest, feature_shape=(8, 8), ax=figure.subplots())
    >>> sum(artist.get_gid().startswith("weights") for artist in artists)  # images of splits
    7
    """
    forest = _forest(estimator)
    _check_int("tree", tree, 0, len(forest) - 1)
    shown = Tree(forest[int(tree)], len(forest))
    _check_int("node", node, 0, len(shown.child) - 1)
    if max_depth is not None:
        _check_int("max_depth", max_depth, 1, or_none=True)
    _check_int("n_weights", n_weights, 1)
    _check_int("precision", precision, 1)
    if fontsize is not None and not (isinstance(fontsize, Real) and fontsize > 0):
        raise ValueError(f"fontsize={fontsize!r} must be a number above 0, or None")
    shape = _shape(forest, feature_shape)
    style = Style(
        features=_names("feature_names", feature_names, forest.n_features)
        or forest.feature_names
        or _numbered("x", shape or forest.feature_shape),
        outputs=_names("class_names", class_names, forest.n_outputs) or _outputs(forest),
        shape=shape,
        n_weights=int(n_weights),
        precision=int(precision),
        node_ids=bool(node_ids),
        cmap=cmap,
        fontsize=fontsize,
    )
    places = layout(shown.child, int(node), max_depth)
    return Picture(_axes(ax), shown, places, style).draw()


def _forest(estimator):
    """The packed forest of an estimator, or itself."""
    if isinstance(estimator, Forest):
        return estimator
    if not hasattr(estimator, "fit"):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}; a fitted estimator of skforest or a "
            "Forest is needed"
        )
    check_is_fitted(estimator)
    forest = getattr(estimator, "forest_", None)
    if not isinstance(forest, Forest):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}, which has no Forest; a fitted estimator "
            "of skforest is needed (of a pipeline, its last step)"
        )
    return forest


def _check_int(name, value, least, most=None, or_none=False):
    """Fail unless the value is a whole number in a range."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        what = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name}={value!r} must be an int {what}{', or None' * or_none}")


def _names(name, given, n_needed):
    """Names as a list of str, or None."""
    if given is None:
        return None
    if isinstance(given, str) or len(given) != n_needed:
        what = repr(given) if isinstance(given, str) else f"of length {len(given)}"
        raise ValueError(f"{name} is {what}; a sequence of {n_needed} names is needed")
    return [str(item) for item in given]


def _numbered(letter, shape):
    """Names of the entries of an array: ``x[3]``, or ``x[0, 3]``."""
    return [f"{letter}[{', '.join(map(str, index))}]" for index in np.ndindex(*shape)]


def _outputs(forest):
    """Names of the outputs of a forest."""
    if forest.task == "classification":
        return [str(label) for label in forest.classes]
    return _numbered("y", (forest.n_outputs,))


def _shape(forest, given):
    """Shape of the picture of a direction, or None if the features do not lie in one."""
    if given is None:
        has_patches = len(forest.box_corner) > 0
        return forest.feature_shape if len(forest.feature_shape) > 1 or has_patches else None
    lengths = np.atleast_1d(given)
    fits = lengths.dtype.kind in "iu" and lengths.ndim == 1 and (lengths > 0).all()
    if not fits or math.prod(lengths.tolist()) != forest.n_features:
        raise ValueError(
            f"feature_shape={given!r} must be lengths that multiply to the {forest.n_features} "
            "features of the forest"
        )
    return tuple(lengths.tolist())


def _axes(ax):
    """Cleared axes to plot on."""
    try:
        from matplotlib.axes import Axes
    except ImportError as error:
        raise ImportError(
            "plot_tree needs matplotlib: pip install matplotlib, or skforest with [plot]"
        ) from error
    if ax is not None and not isinstance(ax, Axes):
        raise TypeError(f"ax is a {type(ax).__name__}; matplotlib axes or None are needed")
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
