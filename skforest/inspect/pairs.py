"""Effects of pairs of columns: maps of two numbers, lines for each level, tables of levels."""

from dataclasses import dataclass

import numpy as np

from ..table.feature_map import level_text
from .picture import add_legend, in_legend, number, output_colour

MAX_POINTS = 15  # of a column of numbers
MAX_LEVELS = 6  # a column of numbers with at most so many values is drawn as levels
MAX_ROWS = 100_000  # that are predicted together
N_DOTS = 300  # rows that are drawn on a map
MAX_TEXT = 35  # characters below axes


@dataclass
class PairEffect:
    """Effect of a pair of columns, see `EffectDisplay`.

    Attributes
    ----------
    names : tuple of two str
    values : tuple of two ndarrays, of shapes (n_first,) and (n_second,)
        Numbers, or levels as object; dates are days since 1970. Missing values are a level of
        categories, None, and left out of numbers.
    average : ndarray of shape (n_first, n_second)
    data : ndarray of shape (n_samples, 2)
        The columns themselves: numbers, or positions in `values`; NaN if missing.
    is_date : tuple of two bool
    """

    names: tuple
    values: tuple
    average: np.ndarray
    data: np.ndarray
    is_date: tuple

    def plot(self, ax, label):
        """Plot on axes; `label` says what is predicted."""
        is_level = [len(own) <= MAX_LEVELS or own.dtype == object for own in self.values]
        if all(is_level):
            self._plot_table(ax, label)
        elif any(is_level):
            self._plot_lines(ax, label, *((0, 1) if is_level[1] else (1, 0)))
        else:
            self._plot_map(ax, label)

    def _plot_map(self, ax, label):
        x, y = self.values
        ax.set(xlim=(x[0], x[-1]), ylim=(y[0], y[-1]))
        filled = ax.contourf(x, y, self.average.T, levels=12)
        dots = self.data[:: -(-len(self.data) // N_DOTS)]
        ax.plot(*dots.T, ".", color="white", markersize=3, markeredgecolor="0.3", mew=0.3)
        ax.figure.colorbar(filled, ax=ax).set_label(label, parse_math=False)
        self._label(ax, 0, 1)

    def _plot_lines(self, ax, label, on_x, of_lines):
        x, curves = self.values[on_x], self.average if on_x == 0 else self.average.T
        for k, (text, curve) in enumerate(zip(self._texts(of_lines), curves.T)):
            ax.plot(
                x,
                curve,
                color=output_colour(k, curves.shape[1]),
                linewidth=1.8,
                label=in_legend(text),
            )
        add_legend(ax, title=self.names[of_lines], frameon=False, fontsize="small")
        ax.set_ylabel(label, parse_math=False)
        self._label(ax, on_x)

    def _plot_table(self, ax, label):
        image = ax.imshow(self.average.T, aspect="auto", origin="lower")
        middle = (self.average.min() + self.average.max()) / 2
        for place, value in np.ndenumerate(self.average):
            style = {"color": "black" if value > middle else "white", "fontsize": "small"}
            ax.text(*place, number(value, 3), ha="center", va="center", **style)
        ax.figure.colorbar(image, ax=ax).set_label(label, parse_math=False)
        for k, axis in enumerate((ax.xaxis, ax.yaxis)):
            axis.set_ticks(range(len(self.values[k])), self._texts(k), parse_math=False)
        if sum(map(len, self._texts(0))) > MAX_TEXT:
            ax.tick_params("x", rotation=90)
        self._label(ax, 0, 1)

    def _texts(self, k):
        """Values of a column as text."""
        if self.is_date[k]:
            return texts_of_days(self.values[k])
        if self.values[k].dtype != object:
            return [number(value, 4) for value in self.values[k]]
        return ["missing" if one is None else level_text(one) for one in self.values[k]]

    def _label(self, ax, *on_axes):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        for k, axis in zip(on_axes, (ax.xaxis, ax.yaxis)):
            is_scale = len(self.values[k]) > MAX_LEVELS and self.values[k].dtype != object
            if self.is_date[k] and is_scale:
                axis.set_major_locator(locator := AutoDateLocator(maxticks=6))
                axis.set_major_formatter(ConciseDateFormatter(locator))
            axis.set_label_text(self.names[k], parse_math=False)
        ax.spines[["top", "right"]].set_visible(False)


def texts_of_days(days):
    """Dates as texts, from days since 1970: with the time of day if that is needed."""
    seconds = np.rint(days * 86400).astype(np.int64)
    units = (("D", 86400), ("m", 60), ("s", 1))
    unit = next(unit for unit, length in units if not (seconds % length).any())
    texts = np.datetime_as_string(seconds.astype("datetime64[s]"), unit=unit)
    return [text.replace("T", " ") for text in texts.tolist()]


def predicted(rows, respond, columns, sources, drawn):
    """Predictions of the `drawn` rows with other values in columns: (n_sources, n_drawn).

    `sources` has the numbers of rows with these values: (n_sources, n_columns).
    """
    n, found = len(drawn), []
    for part in np.array_split(sources, -(-n * len(sources) // MAX_ROWS)):
        given = [(j, np.repeat(source, n)) for j, source in zip(columns, part.T)]
        found.append(respond(rows.replaced(np.tile(drawn, len(part)), *given)))
    return np.concatenate(found).reshape(len(sources), n)
