"""Importances and training curves, in the style of scikit-learn's displays.

A display holds the data of a plot. `from_estimator` computes the data and plots them; `plot` plots
them again. Displays need matplotlib, which is imported when they plot.
"""

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ..estimators.unwrap import inside, unwrapped
from ..forest import Forest
from ..table.feature_grid import FeatureGrid
from .contents import (
    check_int,
    check_names,
    forest_of,
    grid_shape,
    importances_of_forest,
    input_names,
    refuse_networks,
)
from .picture import COLOURS, MAX_CHANNELS, add_legend, in_legend, panels
from .stages import staged_scores

CURVES = {
    "loss_curve_": "training loss",
    "validation_scores_": "loss of held-out rows",
    "refine_curve_": "loss of training rows",
    "steepness_curve_": "steepness",
    "active_leaves_curve_": "active leaves",
}
SCORE = "score of held-out rows"  # `validation_scores_` of early stopping by a scorer
# The entry of a curve that is marked.
BEST = {
    CURVES["validation_scores_"]: (np.argmin, "smallest loss"),
    SCORE: (np.argmax, "largest score"),
}


def _has_image(shape):
    """Whether features of a shape are shown as an image; a third axis holds the channels."""
    return shape is not None and (len(shape) == 2 or len(shape) == 3 and shape[2] <= MAX_CHANNELS)


class FeatureImportancesDisplay:
    """Importances of features: bars, a line or a heat map.

    Use `from_estimator`, or pass any importances to the constructor, such as those of
    `sklearn.inspection.permutation_importance`.

    Parameters
    ----------
    importances : ndarray of shape (n_features,)
    feature_names : sequence of str of shape (n_features,), default=None
        None: ``x[0]``, ``x[1]``, and so on.
    spread : ndarray of shape (n_features,), default=None
        Lengths of the error bars.
    spread_name : str, default="standard deviation"
        Meaning of the error bars, for the label of the axis.
    feature_shape : tuple of int, default=None
        Shape of a sample. With two axes, the importances are shown as a heat map; a third axis of
        at most 4 entries is taken for channels, whose importances are added. With one axis, they
        are shown as a line. None, or any other shape: bars.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
    figure_ : matplotlib.figure.Figure
    bars_ : matplotlib.container.BarContainer or None
    line_ : matplotlib.lines.Line2D or None
    image_ : matplotlib.image.AxesImage or None

    See Also
    --------
    plot_tree : The splits of a tree.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skforest import CO2ForestClassifier, FeatureImportancesDisplay
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> forest = CO2ForestClassifier(10, random_state=0).fit(X, y)
    >>> display = FeatureImportancesDisplay.from_estimator(forest)
    >>> [label.get_text() for label in display.ax_.get_yticklabels()][:2]
    ['petal width (cm)', 'petal length (cm)']
    """

    def __init__(
        self,
        importances,
        *,
        feature_names=None,
        spread=None,
        spread_name="standard deviation",
        feature_shape=None,
    ):
        self.importances = importances
        self.feature_names = feature_names
        self.spread = spread
        self.spread_name = spread_name
        self.feature_shape = feature_shape

    @classmethod
    def from_estimator(
        cls, estimator, *, feature_names=None, feature_shape=None, n_largest=20, ax=None
    ):
        """Plot the importances of the features of a fitted estimator.

        Parameters
        ----------
        estimator : estimator or Forest
            Fitted, with `feature_importances_`. It may be of another package, or be inside a
            search or a pipeline, whose transformers then name the features.
        feature_names : array-like of str of shape (n_features,), default=None
            None: the names that the estimator was fitted with, or ``x[0]``, ``x[1]``, and so on.
        feature_shape : tuple of int, default=None
            Shape of a sample. None: the `feature_shape` of the estimator, if it has one, or the
            shape of its forest, if it has several axes or patches.
        n_largest : int or None, default=20
            Number of features with a bar, those with the largest importances. None: all.
        ax : matplotlib.axes.Axes, default=None
            Axes to plot on. None: a new figure.

        Returns
        -------
        display : FeatureImportancesDisplay
            Error bars show the standard deviation over trees, or over bags if trees are summed. A
            single tree or bag, or an estimator without a forest, has no error bars.
        """
        whole, estimator = unwrapped(estimator), unwrapped(estimator).estimator
        importances, spread, name = _importances(estimator)
        forest = estimator if isinstance(estimator, Forest) else None
        forest = getattr(estimator, "forest_", forest)
        n_features = len(importances)
        if feature_shape is None:
            feature_shape = getattr(estimator, "feature_shape", None)
        if feature_shape is not None:
            feature_shape = FeatureGrid(feature_shape, n_features).shape
        elif isinstance(forest, Forest) and forest.n_features == n_features:
            feature_shape = grid_shape(forest, None)
        names = check_names("feature_names", whole.names(feature_names), n_features)
        if names is None and isinstance(forest, Forest):
            names = input_names(forest, None, feature_shape)
        elif names is None:
            names = getattr(estimator, "feature_names_in_", None)
        display = cls(
            importances,
            feature_names=None if names is None else list(names),
            spread=spread,
            spread_name=f"standard deviation over {name}",
            feature_shape=feature_shape,
        )
        return display.plot(n_largest=n_largest, ax=ax)

    def plot(self, *, n_largest=20, ax=None):
        """Plot the importances.

        Parameters
        ----------
        n_largest : int or None, default=20
            Number of features with a bar, those with the largest importances. None: all.
        ax : matplotlib.axes.Axes, default=None
            Axes to plot on. None: a new figure.

        Returns
        -------
        self : FeatureImportancesDisplay
        """
        check_int("n_largest", n_largest, 1, or_none=True)
        n_features = len(self.importances)
        n_bars = n_features if n_largest is None else min(n_largest, n_features)
        shape = self.feature_shape
        is_line = shape is not None and len(shape) == 1
        is_plane = is_line or _has_image(shape)
        size = (6.4, 4.0) if is_plane else (6.4, 1.2 + 0.26 * max(n_bars, 4))
        (self.ax_,) = panels(self, ax, 1, size)
        self.figure_ = self.ax_.figure
        self.bars_ = self.line_ = self.image_ = None
        if is_line:
            self._plot_line()
        elif is_plane:
            self._plot_image()
        else:
            self._plot_bars(n_bars)
        return self

    @property
    def _label(self):
        return "importance" + ("" if self.spread is None else f" (error bars: {self.spread_name})")

    def _plot_bars(self, n_bars):
        values = np.asarray(self.importances)
        names = self.feature_names or [f"x[{j}]" for j in range(len(values))]
        largest = np.argsort(-values, kind="stable")[:n_bars]
        error = None
        if self.spread is not None:
            spread = np.asarray(self.spread)[largest]
            # Importances of trees are not negative, so neither are the ends of their error bars.
            lower = np.where(values[largest] >= 0, np.minimum(spread, values[largest]), spread)
            error = np.stack([lower, spread])
        place = np.arange(n_bars)
        self.bars_ = self.ax_.barh(
            place, values[largest], xerr=error, color=COLOURS[0], ecolor="0.35",
            error_kw={"elinewidth": 1},
        )  # fmt: skip
        self.ax_.set_yticks(place, [names[j] for j in largest], parse_math=False)
        self.ax_.set_ylim(n_bars - 0.4, -0.6)
        self.ax_.margins(x=0.02)
        self.ax_.spines[["top", "right"]].set_visible(False)
        total = len(values)
        what = "feature" if n_bars == total else f"the {n_bars} largest of {total} features"
        self.ax_.set(xlabel=self._label, ylabel=what)

    def _plot_line(self):
        values = np.asarray(self.importances)
        place = np.arange(len(values))
        if self.spread is not None:
            low, high = np.maximum(values - self.spread, 0), values + self.spread
            self.ax_.fill_between(
                place, low, high, step="mid", color=COLOURS[0], alpha=0.25, linewidth=0
            )
        self.line_ = self.ax_.plot(values, color=COLOURS[0], drawstyle="steps-mid")[0]
        label = self._label.replace("error bars", "band")
        self.ax_.set(xlabel="position of the feature", ylabel=label, ylim=(0, None))
        self.ax_.set_xlim(-0.5, len(values) - 0.5)

    def _plot_image(self):
        image = np.reshape(self.importances, self.feature_shape)
        image = image.sum(axis=2) if image.ndim == 3 else image
        options = {"cmap": "viridis", "interpolation": "nearest", "vmin": min(0.0, image.min())}
        # Square pixels would make a few sensors with many times each a thin line.
        is_strip = max(image.shape) > 5 * min(image.shape)
        self.image_ = self.ax_.imshow(image, aspect="auto" if is_strip else "equal", **options)
        self.ax_.set(xlabel="column", ylabel="row")
        for axis in (self.ax_.xaxis, self.ax_.yaxis):
            axis.get_major_locator().set_params(integer=True)
        self.figure_.colorbar(self.image_, ax=self.ax_, label="importance")


def _importances(estimator):
    """Importances of an estimator, their spread or None, and "trees" or "bags" it is over."""
    refuse_networks(estimator)
    own = getattr(estimator, "forest_", estimator)
    if not isinstance(own, Forest):
        if not hasattr(estimator, "fit"):
            raise TypeError(f"estimator must be an estimator, got {type(estimator).__name__}")
        check_is_fitted(estimator)
        try:
            return estimator.feature_importances_, None, ""
        except AttributeError as error:  # of a blend after slim(), it says why
            name = type(estimator).__name__
            raise TypeError(
                f"a {name} has no feature_importances_: {error}{inside(estimator)}"
            ) from error
    importances, spread, members = importances_of_forest(own)
    return importances, None if np.isnan(spread).any() else spread, members


class TrainingCurveDisplay:
    """Losses and other records of training, with one panel for each kind.

    With several bags or trees, each has a line; their mean is shown as far as all of them were
    trained. The smallest loss of held-out rows is marked, and the largest score of a set.

    Parameters
    ----------
    curves : dict of str to list of ndarray, or to dict of str to ndarray
        Maps the name of each panel to its curves: one for each bag or tree, or one for each set by
        the name of the set.
    first : int or dict of str to int, default=1
        Number of the first entry of each curve, or that of each panel by its name.
    x_label : str or dict of str to str, default="epoch"
    member_name : str, default="tree"
        What a curve belongs to.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes
        One for each panel.
    figure_ : matplotlib.figure.Figure
    lines_ : list of list of matplotlib.lines.Line2D
        For each panel the lines of all curves.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skforest import ObliqueBoostingRegressor, TrainingCurveDisplay
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ObliqueBoostingRegressor(50, n_bags=3, random_state=0).fit(X, y)
    >>> display = TrainingCurveDisplay.from_estimator(model)
    >>> len(display.lines_[0])
    3
    """

    def __init__(self, curves, *, first=1, x_label="epoch", member_name="tree"):
        self.curves = curves
        self.first = first
        self.x_label = x_label
        self.member_name = member_name

    @classmethod
    def from_estimator(cls, estimator, *, curves=None, sets=None, scoring=None, ax=None):
        """Plot the curves that a fitted estimator recorded in training, or scores of data sets.

        Parameters
        ----------
        estimator : estimator of skforest
            Fitted. Oblique boosting, hinge forests, non-greedy and end-to-end trees record
            `loss_curve_`, and `validation_scores_` with `early_stopping`.
        curves : list of str, default=None
            Attributes to plot, among `loss_curve_`, `validation_scores_` (with the sign of a
            loss, unless it is a score), `refine_curve_`, and `steepness_curve_` and
            `active_leaves_curve_` of end-to-end trees. None: all that were recorded.
        sets : dict of str to tuple, default=None
            Data sets as `staged_scores` takes them. Instead of records of training, each panel
            then has a score, with a line for each set.
        scoring : str, callable, list of str, dict or None, default=None
            Scores of the `sets`, see `staged_scores`.
        ax : matplotlib.axes.Axes or array-like of such, default=None
            Axes to plot on, one for each panel. None: a new figure.

        Returns
        -------
        display : TrainingCurveDisplay
        """
        if sets is not None or scoring is not None:
            if curves is not None or sets is None:
                raise ValueError("pass sets, and scoring if you like, or curves, but not both")
            return cls._of_sets(estimator, sets, scoring).plot(ax=ax)
        forest, estimator = forest_of(estimator), unwrapped(estimator).estimator
        unknown = [name for name in curves or () if name not in CURVES]
        if unknown:
            raise ValueError(f"curves={curves!r} must be among {list(CURVES)}")
        found = {}
        by_loss = isinstance(getattr(estimator, "early_stopping_", True), bool)
        for attribute in curves or CURVES:
            recorded = getattr(estimator, attribute, [])
            recorded = [recorded] if isinstance(recorded, np.ndarray) else recorded
            recorded = [curve for curve in recorded if len(curve)]
            sign, name = 1, CURVES[attribute]
            if attribute == "validation_scores_":
                sign, name = (-1, name) if by_loss else (1, SCORE)
            if recorded:
                found[name] = [sign * np.asarray(curve) for curve in recorded]
            elif curves is not None:
                raise ValueError(f"{attribute} was not recorded by {estimator!r}")
        if not found:
            raise ValueError(
                f"{estimator!r} recorded no training curve; its trees were grown in one pass, or "
                "it was trained without early_stopping"
            )
        is_bags = hasattr(estimator, "n_bags_")
        first, x_label = 1, "epoch"
        if forest.gate == "margin":
            x_label = "evaluation"
        elif forest.aggregate == "sum":
            first, x_label = 0, "round"
        refined = CURVES["refine_curve_"]
        if refined in found:  # the first entry is before the first sweep
            first = dict.fromkeys(found, first) | {refined: 0}
            x_label = dict.fromkeys(found, x_label) | {refined: "sweep"}
        options = {"first": first, "x_label": x_label, "member_name": "bag" if is_bags else "tree"}
        return cls(found, **options).plot(ax=ax)

    @classmethod
    def _of_sets(cls, estimator, sets, scoring):
        found, forest = staged_scores(estimator, sets, scoring), forest_of(estimator)
        x_label = "trees"
        if forest.aggregate == "sum":
            x_label = "bags" if forest.gate == "margin" else "round"
        return cls(found, x_label=x_label)

    def plot(self, *, ax=None):
        """Plot the curves.

        Parameters
        ----------
        ax : matplotlib.axes.Axes or array-like of such, default=None
            Axes to plot on, one for each panel. None: a new figure.

        Returns
        -------
        self : TrainingCurveDisplay
        """
        n_panels = len(self.curves)
        self.axes_ = panels(self, ax, n_panels, (1.6 + 4.2 * n_panels, 3.8))
        self.figure_ = self.axes_[0].figure
        self.lines_ = [
            self._plot_panel(ax, *item) for ax, item in zip(self.axes_, self.curves.items())
        ]
        return self

    def _plot_panel(self, ax, name, curves):
        first, x_label = (
            one[name] if isinstance(one, dict) else one for one in (self.first, self.x_label)
        )
        if isinstance(curves, dict):
            lines = self._plot_sets(ax, first, curves)
        else:
            lines = self._plot_members(ax, first, name, curves)
        ax.set(xlabel=x_label, ylabel=name)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.spines[["top", "right"]].set_visible(False)
        if ax.get_legend_handles_labels()[0]:
            add_legend(ax, frameon=False)
        return lines

    def _plot_sets(self, ax, first, curves):
        lines = []
        for number, (name, curve) in enumerate(curves.items()):
            style = {"color": COLOURS[number % len(COLOURS)], "label": in_legend(name)}
            lines += ax.plot(first + np.arange(len(curve)), curve, linewidth=1.6, **style)
            if not np.isnan(curve).all():
                best = int(np.nanargmax(curve))
                style["label"] = None
                ax.plot(first + best, curve[best], "o", markersize=5, **style)
        return lines

    def _plot_members(self, ax, first, name, curves):
        several, lines = len(curves) > 1, []
        for curve in curves:
            x = first + np.arange(len(curve))
            style = {"color": COLOURS[0], "linewidth": 0.9, "alpha": 0.6} if several else {}
            style = style or {"color": COLOURS[0], "linewidth": 1.6}
            label = f"each {self.member_name}" if several and not lines else None
            lines += ax.plot(x, curve, label=label, **style)
            if name in BEST:
                find, label = BEST[name]
                best = int(find(curve))
                label = label if len(lines) == 1 else None
                ax.plot(x[best], curve[best], "o", color=COLOURS[2], markersize=5, label=label)
        if several:
            n_common = min(map(len, curves))
            mean = np.mean([curve[:n_common] for curve in curves], axis=0)
            x = first + np.arange(n_common)
            ax.plot(x, mean, color="black", linewidth=1.6, label="mean")
        return lines
