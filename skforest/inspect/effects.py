"""Effects of columns and of pairs on predictions, in the style of scikit-learn's displays."""

from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from sklearn.base import is_classifier

from .._kernels.base.rows import random_stream
from ..estimators.unwrap import unwrapped
from ..estimators.validation import draw_seed
from ..table.dates import DateFeatures, day_text, days_of
from ..table.feature_map import level_text
from ..table.frames import (
    CATEGORY,
    DATE,
    as_array,
    as_frame,
    is_missing,
    read_table,
    table_of_matrix,
)
from .contents import check_int, column_numbers, output_number
from .pairs import MAX_POINTS, PairEffect, predicted
from .picture import COLOURS, number, panels

KINDS = ("average", "individual", "both", "ale")
METHODS = ("auto", "predict_proba", "decision_function")
TAIL = 0.01  # share of the values at either end that partial dependence does not show
MAX_LEVELS = 20  # of a category that are shown
N_PARTS = 100  # of the values of a column, to compare its distributions
N_PANELS, N_BARS, N_LETTERS = 3, 30, 40  # side by side; of a panel; below it
GAP = 0.2  # from the values of a panel to the missing one


@dataclass
class Effect:
    """Effect of a column, see `EffectDisplay`.

    Attributes
    ----------
    name : str
    values : ndarray of shape (n_points,)
        Numbers, or levels as object; dates are days since 1970. The last one is NaN or None if
        values are missing in some rows.
    average : ndarray of shape (n_points,)
    individual : ndarray of shape (n_rows, n_points)
        Curves of single rows; none for accumulated local effects.
    data : ndarray of shape (n_samples,)
        The column itself: numbers, or positions in `values`; NaN if missing.
    is_date : bool
    n_levels : int
        Number of levels of a category, also those without a point; 0 for numbers and dates.
    """

    name: str
    values: np.ndarray
    average: np.ndarray
    individual: np.ndarray
    data: np.ndarray
    is_date: bool = False
    n_levels: int = 0


class EffectDisplay:
    """Curves of how predictions depend on single columns, and maps of pairs of columns.

    Use `from_estimator`.

    Parameters
    ----------
    effects : list of Effect and PairEffect
    kind : {"average", "individual", "both", "ale"}, default="average"
    centered : bool, default=False
        Whether curves start at 0.
    response_name : str, default="prediction"
        What is predicted, for the label of the axes.

    Attributes
    ----------
    axes_ : ndarray of matplotlib.axes.Axes
        One for each column or pair.
    figure_ : matplotlib.figure.Figure

    See Also
    --------
    shapley_values : Contributions of columns to the prediction of single rows.
    PartitionDisplay : Predictions over two columns.
    sklearn.inspection.PartialDependenceDisplay : Partial dependence in scikit-learn.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skforest import EffectDisplay, ObliqueBoostingRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    >>> model = ObliqueBoostingRegressor(random_state=0).fit(X, y)
    >>> options = {"kind": "ale", "grid_resolution": 6}
    >>> display = EffectDisplay.from_estimator(model, X, ["bmi", "sex"], **options)
    >>> bmi = display.effects[0]
    >>> for value, effect in zip(bmi.values, bmi.average):
    ...     print(round(value, 1), round(effect))
    18.0 -40
    22.6 -18
    24.7 -8
    26.9 4
    30.3 22
    42.2 87
    """

    def __init__(self, effects, *, kind="average", centered=False, response_name="prediction"):
        self.effects = effects
        self.kind = kind
        self.centered = centered
        self.response_name = response_name

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X,
        columns,
        *,
        kind="average",
        target=None,
        response_method="auto",
        centered=False,
        grid_resolution=50,
        subsample=500,
        random_state=0,
        ax=None,
    ):
        """Compute the effects of columns, and plot them.

        Parameters
        ----------
        estimator : estimator
            Fitted classifier or regressor of this package or of scikit-learn; it may be a blend, a
            search or a pipeline, whose columns are those that it takes, before its transformers.
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows of the training set, or others like them.
        columns : sequence of str, int or pairs of these, or one str or int
            Names or numbers of the columns, which may hold numbers, categories or dates. A pair is
            a tuple of two columns, and needs ``kind="average"``. It is drawn as a map if both hold
            numbers, as a line for each level if one has levels, and as a table if both have.
            Numbers with at most 6 values are levels, too.
        kind : {"average", "individual", "both", "ale"}, default="average"
            "average": partial dependence [1]_, the mean prediction of all rows with the same value
            in the column. "individual": the predictions of single rows with each value [2]_.
            "both": both of these. "ale": accumulated local effects [3]_, which predict rows only
            with values near to their own, so that correlated columns make no unlikely rows.
        target : label, int or (int, label), default=None
            Class label whose probability is explained, or number of an output in regression; for
            several outputs of labels, the number of the output and a label. None: the second of
            two classes, or the only output.
        response_method : {"auto", "predict_proba", "decision_function"}, default="auto"
            What a classifier predicts. "auto": probabilities, or else the decision function.
        centered : bool, default=False
            Whether the curves of "average", "individual" and "both" start at 0; not of pairs.
        grid_resolution : int, default=50
            Number of values of a column of numbers at which curves are computed, at least 2. They
            are quantiles of its values, from 1 % to 99 % except for "ale", or all of its values if
            they are fewer. Pairs have at most 15.
        subsample : int or None, default=500
            Number of rows that are predicted with all values, drawn at random. None: all.
        random_state : int, RandomState or None, default=0
            Seed of the rows that are drawn.
        ax : matplotlib.axes.Axes or array-like of such, default=None
            Axes to plot on, one for each column or pair. None: a new figure.

        Returns
        -------
        display : EffectDisplay

        Notes
        -----
        Accumulated local effects are 0 on average over the rows with known values. The levels of
        a category without an order are put in an order in which the other columns change little,
        as in [3]_. The effect of a missing value is the mean difference from predictions with
        known values, in rows in which it is missing. Of a category, the 20 most frequent levels
        are shown. In pairs, missing values are a level of categories, and left out of numbers.

        References
        ----------
        .. [1] J. H. Friedman, "Greedy Function Approximation: A Gradient Boosting Machine", Annals
           of Statistics 29, 2001.
        .. [2] A. Goldstein, A. Kapelner, J. Bleich, E. Pitkin, "Peeking Inside the Black Box", J.
           Computational and Graphical Statistics 24, 2015.
        .. [3] D. W. Apley, J. Zhu, "Visualizing the Effects of Predictor Variables in Black Box
           Supervised Learning Models", J. Royal Statistical Society B 82, 2020.
        """
        for name, value, known in (
            ("kind", kind, KINDS),
            ("response_method", response_method, METHODS),
        ):
            if not isinstance(value, str) or value not in known:
                raise ValueError(f"{name}={value!r} must be one of {known}")
        check_int("grid_resolution", grid_resolution, 2)
        check_int("subsample", subsample, 1, or_none=True)
        rows = TableRows(estimator, X)
        columns = [columns] if isinstance(columns, str | Integral) else columns
        columns = [one if isinstance(one, tuple) else (one,) for one in columns]
        if not columns:
            raise ValueError("columns is empty; effects of at least one column are needed")
        columns = [column_numbers("columns", one, rows.table.names) for one in columns]
        for own in columns:
            if len(own) > 1 and (len(set(own)) != 2 or len(own) != 2 or kind != "average"):
                names = tuple(rows.table.names[j] for j in own)
                needed = 'kind="average"' if kind != "average" else "two different columns"
                raise ValueError(f"columns has {names}: effects of pairs need {needed}")
        options = {"kind": kind, "target": target, "response_method": response_method}
        options |= {"centered": centered, "grid_resolution": grid_resolution}
        options |= {"subsample": subsample, "random_state": random_state}
        return cls._of_numbers(estimator, rows, columns, **options).plot(ax=ax)

    @classmethod
    def _of_numbers(
        cls,
        estimator,
        rows,
        columns,
        *,
        target,
        subsample,
        kind="average",
        response_method="auto",
        centered=False,
        grid_resolution=50,
        random_state=0,
    ):
        """The effects of columns of `TableRows`: lists of one or two numbers."""
        respond, response_name = _response(estimator, rows, response_method, target)
        drawn = random_stream(draw_seed(random_state), 0).permutation(rows.table.n_rows)
        drawn = np.sort(drawn[:subsample])
        effects = []
        for j, *others in columns:
            if others:
                effects.append(_pair(rows, respond, (j, *others), grid_resolution, drawn))
                continue
            codes, levels, points, missing = _column(
                rows, j, grid_resolution, 0 if kind == "ale" else TAIL
            )
            if kind == "ale" and levels is not None and not rows.table.is_ordered(j):
                points = points[_order_of_levels(rows, j, codes, points)]

            def predict(of, source, j=j):
                return respond(rows.replaced(of, (j, source)))

            curves = np.empty((0, len(points) + (len(missing) > 0)))
            if kind == "ale":
                average = _accumulated(predict, codes, levels, points, missing[: len(drawn)])
            else:
                sources = np.array([*points, *missing[:1]])[:, None]
                curves = predicted(rows, respond, (j,), sources, drawn).T
                curves = curves - curves[:, :1] if centered else curves
                average = curves.mean(axis=0)
            values, data = _shown(codes, levels, [*points, *missing[:1]])
            kinds = rows.kind(j) == DATE, 0 if levels is None else len(levels)
            effects.append(Effect(rows.name(j), values, average, curves, data, *kinds))
        options = {"centered": centered and kind != "ale", "response_name": response_name}
        return cls(effects, kind=kind, **options)

    def plot(self, *, n_curves=50, ax=None):
        """Plot the effects.

        Grey bars at the bottom show how many rows have each value.

        Parameters
        ----------
        n_curves : int, default=50
            Number of single rows whose curves are drawn, at least 1.
        ax : matplotlib.axes.Axes or array-like of such, default=None
            Axes to plot on, one for each column or pair. None: a new figure.

        Returns
        -------
        self : EffectDisplay
        """
        check_int("n_curves", n_curves, 1)
        n_panels = len(self.effects)
        if ax is None:
            n_columns = min(n_panels, N_PANELS)
            size = (0.8 + 3.6 * n_columns, 3.4 * -(-n_panels // n_columns))
            shares_y = not any(isinstance(effect, PairEffect) for effect in self.effects)
            ax = panels(self, None, n_panels, size, n_columns=n_columns, shares_y=shares_y)
        self.axes_ = panels(self, ax, n_panels, None)
        self.figure_ = self.axes_[0].figure
        for axes, effect in zip(self.axes_, self.effects):
            if isinstance(effect, PairEffect):
                effect.plot(axes, f"mean {self.response_name}")
            else:
                self._plot_effect(axes, effect, n_curves)
        if self.kind == "both":
            place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2}
            self.axes_[0].legend(frameon=False, **place)
        return self

    def _plot_effect(self, ax, effect, n_curves):
        is_category = effect.values.dtype == object
        n_known = len(effect.values) - bool(is_missing(effect.values[-1]))
        known = np.arange(n_known) if is_category else effect.values[:n_known].astype(float)
        gap = 1.0 if is_category or n_known == 1 else GAP * np.ptp(known)
        x = np.append(known, known[-1] + gap)[: len(effect.values)]
        is_whole = not effect.is_date and (known == np.rint(known)).all()
        is_few = n_known == 1 or (is_whole and np.ptp(known) < N_BARS)
        for part in (slice(n_known), slice(n_known, None)):  # a curve; a point, if it is missing
            is_point = part.start is not None
            if not len(x[part]):
                break
            if self.kind in ("individual", "both"):
                curves = effect.individual[:: -(-len(effect.individual) // n_curves), part].T
                style = {"color": "0.4", "linewidth": 0.6, "alpha": 0.4, "markersize": 3}
                lines = ax.plot(x[part], curves, marker="." if is_point else "", **style)
                lines[0].set_label("_" if is_point else "single rows")
            if self.kind != "individual":
                style = {"color": COLOURS[0], "linewidth": 0 if is_category else 1.8}
                style["marker"] = "D" if is_point else "o" if is_few else ""
                label = "_" if is_point else "mean"
                ax.plot(x[part], effect.average[part], label=label, markersize=5, **style)
        if self.kind == "ale" or self.centered:
            ax.axhline(0, color="0.8", linewidth=0.8, zorder=0)
        # How many rows have each value, as bars in the lowest part of the axes.
        edges = np.linspace(known[0], known[-1], N_BARS + 1)
        edges = np.arange(known[0], known[-1] + 2) - 0.5 if is_few else edges
        counts = np.histogram(effect.data, edges)[0]
        bars = np.append((edges[1:] + edges[:-1]) / 2, x[n_known:])
        counts = np.append(counts, np.isnan(effect.data).sum())[: len(bars)]
        style = {"width": 0.8 * (edges[1] - edges[0]), "color": "0.85", "zorder": 0}
        ax.bar(bars, 0.1 * counts / counts.max(), transform=ax.get_xaxis_transform(), **style)
        self._label(ax, effect, known, x, is_few)

    def _label(self, ax, effect, known, x, is_few):
        from matplotlib.ticker import MaxNLocator, ScalarFormatter

        if effect.is_date:
            ax.xaxis_date()
        else:
            steps = [1, 2, 5, 10]
            ax.xaxis.set_major_locator(MaxNLocator("auto", steps=steps, integer=bool(is_few)))
            ax.xaxis.set_major_formatter(ScalarFormatter(useOffset=False))
        ticks = known if effect.values.dtype == object or len(known) == 1 else ax.get_xticks()
        ticks = [tick for tick in ticks if known[0] <= tick <= known[-1]]
        labels = ax.xaxis.get_major_formatter().format_ticks(ticks)
        if effect.values.dtype == object:
            labels = [level_text(level) for level in effect.values[: len(known)]]
        elif len(known) == 1:
            [value] = known.tolist()
            labels = [day_text(value) if effect.is_date else number(value, 4)]
        factor = (
            ""
            if effect.is_date or len(known) == 1
            else ax.xaxis.get_major_formatter().get_offset()
        )
        ticks = [*ticks, *x[len(known) :]]
        labels = [*labels, "missing"][: len(ticks)]
        ax.set_xticks(ticks, labels, parse_math=False)
        letters = np.diff(ticks) / np.ptp(ax.get_xlim()) * N_LETTERS
        if any(n < 1 + len(a + b) / 2 for n, (a, b) in zip(letters, pairwise(labels))):
            ax.tick_params("x", rotation=90)
        name = f"change of the {self.response_name}" if self.centered else self.response_name
        name = f"mean {name}" if self.kind == "average" else name
        name = f"effect on the {name}" if self.kind == "ale" else name
        ax.set_ylabel(name, parse_math=False)
        note = f" (in {factor})" * bool(factor)
        if effect.n_levels > len(known):
            note = f" ({len(known)} of {effect.n_levels} levels)"
        ax.set_xlabel(effect.name + note, parse_math=False)
        ax.spines[["top", "right"]].set_visible(False)


class TableRows:
    """Rows of a table, and the same with another column."""

    def __init__(self, estimator, X):
        if sparse.issparse(X):
            raise TypeError("X is sparse; pass X.toarray()")
        X = as_frame(X)
        self._frame = nw.from_native(X, pass_through=True)
        self.is_named = isinstance(self._frame, nw.DataFrame)
        table = read_table(X)
        self._array = None if self.is_named else np.asarray(as_array(X))
        shape = (table.n_rows, len(table)) if self.is_named else self._array.shape
        if len(shape) != 2 or not shape[0]:
            raise ValueError(f"X has shape {shape}; (n_samples, n_features) is needed, with rows")
        self.table = table_of_matrix(self._array) if table is None else table
        inside = unwrapped(estimator)
        own = getattr(inside.estimator, "is_categorical_", None)
        self._is_category = own if own is not None and not inside.transformers else None
        steps = inside.transformers[:1] and inside.transformers[0].steps
        reads_dates = steps and isinstance(steps[0][1], DateFeatures)
        self._forms = steps[0][1]._forms if reads_dates else {}

    def name(self, j):
        """Name of a column, for labels."""
        return str(self.table.names[j]) if self.is_named else f"x[{j}]"

    def kind(self, j):
        """`Table.kind`, but DATE for text that the first step of a pipeline reads as dates."""
        return DATE if j in self._forms else self.table.kind(j)

    def codes(self, j):
        """A column as numbers, NaN if missing, and the levels if it is a category, or None."""
        kind = self.kind(j)
        if kind == CATEGORY or self._is_category is not None and self._is_category[j]:
            levels = self.table.levels(j)
            return self.table.codes(j, levels), levels
        if kind == DATE:
            return days_of(self.table, j, self._forms.get(j, "ISO")), None
        dtype = self.table.columns[j].dtype
        is_bool = isinstance(dtype, nw.Boolean) or getattr(dtype, "kind", "") == "b"
        return self.table.numbers(j).astype(np.float64), [False, True] if is_bool else None

    def replaced(self, which, *columns):
        """The rows `which`, with other columns: pairs of a column and of rows, or of one row."""
        columns = [(j, np.broadcast_to(source, len(which))) for j, source in columns]
        if self.is_named:
            names = self.table.names
            others = [self._frame.get_column(names[j])[source] for j, source in columns]
            return self._frame[which].with_columns(*others).to_native()
        rows = self._array[which]
        for j, source in columns:
            rows[:, j] = self._array[source, j]
        return rows


def _response(estimator, rows, method, target):
    """The function of rows that is explained, and its name."""
    name = "predict"
    if is_classifier(estimator):
        name = "predict_proba" if method == "auto" else method
        if method == "auto" and not hasattr(estimator, name):
            name = "decision_function"
    elif method != "auto":
        raise ValueError(f"response_method={method!r} needs a classifier")
    function = getattr(estimator, name)

    def outputs(which):
        found = function(which)
        found = np.concatenate(found, axis=1) if isinstance(found, list) else np.asarray(found)
        if name == "decision_function" and found.ndim == 1:  # that of the second class
            found = np.stack([-found, found], axis=1)
        return found.reshape(len(found), -1).astype(np.float64)

    n_outputs = outputs(rows.replaced(np.arange(1))).shape[1]
    labels = estimator.classes_ if is_classifier(estimator) else [0]
    is_single = not isinstance(labels[0], np.ndarray)  # labels of several outputs are arrays
    if target is None and is_single and n_outputs == len(labels) <= 2:
        target = labels[-1]
    k = output_number(estimator, n_outputs, target)
    if is_classifier(estimator):
        what = {"predict_proba": "probability"}.get(name, "decision function")
        label = f"{target[1]} (output {target[0]})" if isinstance(target, tuple) else target
        return lambda which: outputs(which)[:, k], f"{what} of {label}"
    return lambda which: outputs(which)[:, k], "prediction" + f" of output {k}" * (n_outputs > 1)


def _column(rows, j, n_points, tail):
    """A column as numbers, its levels, rows with the values to show, and rows without one."""
    codes, levels = rows.codes(j)
    points = _points(codes, levels, n_points, tail)
    if not len(points):
        raise ValueError(f"column {rows.table.names[j]!r} of X has only missing values")
    return codes, levels, points, np.flatnonzero(np.isnan(codes))


def _shown(codes, levels, which):
    """The values in some rows, numbers or levels, and the column: numbers, or places in these."""
    values = codes[which]
    if levels is None:
        return values, codes
    place = {code: i for i, code in enumerate(values.tolist())}
    others = np.where(np.isnan(codes), np.nan, -1.0)
    codes = np.array([place.get(code, other) for code, other in zip(codes, others)])
    shown = [None if np.isnan(code) else levels[int(code)] for code in values]
    return np.array(shown, dtype=object), codes


def _pair(rows, respond, columns, n_points, drawn):
    """The effect of a pair of columns, by their numbers."""
    points, shown = [], []
    for j in columns:
        codes, levels, own, missing = _column(rows, j, min(n_points, MAX_POINTS), TAIL)
        points.append([*own, *(missing[:1] if levels is not None else ())])
        shown.append(_shown(codes, levels, points[-1]))
    sources = np.stack(np.meshgrid(*points, indexing="ij"), axis=-1)
    average = predicted(rows, respond, columns, sources.reshape(-1, 2), drawn).mean(axis=1)
    average = average.reshape(sources.shape[:2])
    values, data = zip(*shown)
    names = tuple(map(rows.name, columns))
    is_date = tuple(rows.kind(j) == DATE for j in columns)
    return PairEffect(names, values, average, np.stack(data, axis=1), is_date)


def _points(codes, levels, n_points, tail):
    """Rows with the values at which curves are computed, in order, without missing ones."""
    values, first, counts = np.unique(codes, return_index=True, return_counts=True)
    is_known = ~np.isnan(values)
    values, first, counts = values[is_known], first[is_known], counts[is_known]
    if levels is not None:
        return first[np.sort(np.argsort(-counts, kind="stable")[:MAX_LEVELS])]
    if len(values) <= n_points:
        return first
    ends = np.quantile(
        codes[~np.isnan(codes)], np.linspace(tail, 1 - tail, n_points), method="nearest"
    )
    return first[np.unique(np.searchsorted(values, ends))]


def _accumulated(predict, codes, levels, points, missing):
    """Accumulated local effects at some points, and at a missing value; 0 on average."""
    z = codes[points]
    if levels is None:
        known = np.flatnonzero(~np.isnan(codes))
        nearest = np.searchsorted((z[1:] + z[:-1]) / 2, codes[known])
        upper = np.clip(np.searchsorted(z, codes[known]), 1, None)
        steps = []
        if len(z) > 1:
            change = predict(known, points[upper]) - predict(known, points[upper - 1])
            steps = np.bincount(upper - 1, change) / np.bincount(upper - 1)
    else:
        place = {code: i for i, code in enumerate(z.tolist())}
        known = np.flatnonzero(np.isin(codes, z))
        nearest = np.array([place[code] for code in codes[known].tolist()], dtype=int)
        pairs = [(p, np.flatnonzero(np.isin(codes, codes[list(p)]))) for p in pairwise(points)]
        steps = [(predict(near, b) - predict(near, a)).mean() for (a, b), near in pairs]
    curve = np.append(0.0, np.cumsum(steps))[: len(z)]
    weight = np.bincount(nearest, minlength=len(z)) / max(len(known), 1)
    curve -= weight @ curve
    if not len(missing):
        return curve
    usual = sum(w * predict(missing, point) for w, point in zip(weight, points))
    return np.append(curve, (predict(missing, missing) - usual).mean())


def _order_of_levels(rows, j, codes, points):
    """An order of the levels at some points in which the other columns change little.

    The order is that of the first coordinate of multidimensional scaling of the distances between
    two levels, sums over the other columns of the distance of Kolmogorov and Smirnov, or of half
    the differences of the shares of levels.
    """
    is_member = codes[:, None] == codes[points]
    distance = np.zeros((len(points), len(points)))
    for i in set(range(len(rows.table))) - {j}:
        other, levels = rows.codes(i)
        found, position = np.unique(other, return_inverse=True)
        position = position * N_PARTS // max(len(found), N_PARTS)
        shares = [np.bincount(position[own], minlength=N_PARTS) / own.sum() for own in is_member.T]
        shares = np.array(shares) if levels is not None else np.cumsum(shares, axis=1)
        difference = np.abs(shares[:, None] - shares)
        distance += difference.max(axis=2) if levels is None else difference.sum(axis=2) / 2
    centre = np.eye(len(points)) - 1 / len(points)
    scores = np.linalg.eigh(-centre @ distance**2 @ centre / 2)[1][:, -1]
    return np.argsort(scores * np.where(scores[0] > scores[-1], -1, 1), kind="stable")
