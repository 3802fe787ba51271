"""Drawing of a tree for `plot_tree`, whose parameters `plotting` checks.

Leaves are placed at equal distances, and a parent midway between its children. The root is at
height 0, its children at height -1. `TreeContents` says what is in the nodes, and `Picture` draws
it on axes. Only `Picture` needs matplotlib.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# Ten colours that remain distinct with colour-vision deficiencies: M. A. Petroff, "Accessible
# color sequences for data visualization", 2021.
COLOURS = (
    "#3f90da", "#ffa90e", "#bd1f01", "#94a4a2", "#832db6",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#92dadd",
)  # fmt: skip
MAX_CHANNELS = 4  # a longer third axis is one of a volume, not of channels
MAX_LEGEND = 20  # classes
MAX_LEVELS = 4  # of a set in a split
MAX_SUMS = 4  # outputs of a linear leaf
HIDDEN_ALPHA = 0.45  # opacity of the value of a hidden subtree
MAX_LINEWIDTH, MIN_LINEWIDTH = 12.0, 0.6  # points; the widest edge would have all samples
MAX_FONT, MIN_FONT = 10.0, 5.0  # points
# Half widths of nodes, in units of the distance of leaves; and heights, for a node at height 0, of
# the top and bottom of an image or of bars, of the top of the text below, and of its bottom.
HALF_SPLIT, HALF_LEAF = 0.85, 0.42
TOP, BOTTOM, TEXT, UNDER_TEXT = 0.3, -0.2, -0.23, -0.36


@dataclass
class Place:
    """A node in the picture and its position."""

    node: int
    depth: int
    parent: Place | None
    children: list[Place]
    x: float = 0.0


def layout(child, root, max_depth):
    """Places of the nodes to show; parents come before their children."""
    places, waiting = [], [(root, 0, None)]
    while waiting:
        place = Place(*waiting.pop(), [])
        places.append(place)
        if place.parent is not None:
            place.parent.children.append(place)
        left = int(child[place.node])
        if left > 0 and (max_depth is None or place.depth < max_depth):
            waiting += [(node, place.depth + 1, place) for node in (left + 1, left)]
    leaves = [place for place in places if not place.children]
    for i, place in enumerate(leaves):
        place.x = i + 0.5
    for place in reversed(places):
        if place.children:
            place.x = sum(child.x for child in place.children) / 2
    return places


def import_axes(name):
    """The class of matplotlib axes; ImportError that names what needs them."""
    try:
        from matplotlib.axes import Axes
    except ImportError as error:
        raise ImportError(f'{name} needs matplotlib: pip install "skforest[plot]"') from error
    return Axes


def panels(display, ax, n_panels, size, widths=None, n_columns=None, shares_y=True):
    """Axes to plot on: those given, or those of a new figure, which share y if they have rows."""
    Axes = import_axes(type(display).__name__)
    if ax is None:
        import matplotlib.pyplot as plt

        options = {"figsize": size, "layout": "constrained", "width_ratios": widths}
        n_rows = -(-n_panels // n_columns) if n_columns else 1
        options["sharey"] = n_columns is not None and shares_y
        axes = plt.subplots(n_rows, n_columns or n_panels, squeeze=False, **options)[1].ravel()
        for unused in axes[n_panels:]:
            unused.remove()
        return axes[:n_panels]
    axes = np.ravel(np.asarray(ax, dtype=object))
    if not all(isinstance(one, Axes) for one in axes):
        raise TypeError(f"ax must be matplotlib axes or None, got {type(ax).__name__}")
    if len(axes) != n_panels:
        raise ValueError(f"ax must have {n_panels} axes for this plot, got {len(axes)}")
    return axes


def in_legend(name):
    """A name as matplotlib shows it in a legend, where names that begin with "_" are left out."""
    return name if name[:1] != "_" else f"\u200b{name}"


def add_legend(ax, **options):
    """Add a legend whose texts are no formulas, though they may contain "$"."""
    legend = ax.legend(**options)
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)


def output_colour(k, n_outputs):
    """Colour of an output."""
    if n_outputs <= len(COLOURS):
        return COLOURS[k]
    from matplotlib import colormaps

    return colormaps["viridis"](k / (n_outputs - 1))


def number(value, precision):
    """Format a number with some significant digits, and at least one decimal: 211.5, 18.

    Thresholds between integers end in .5 and must not be rounded to either.
    """
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e7:
        decimals = max(1, precision - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:.{decimals}f}".rstrip("0").rstrip(".")
    else:
        text = f"{value:.{precision - 1}e}"
    return text.replace("-", "\N{MINUS SIGN}")


@dataclass
class Style:
    """Parameters of `plot_tree`, checked and completed."""

    outputs: list[str]  # names
    shape: tuple[int, ...] | None  # of images of weights; None: weights are listed by name
    n_weights: int
    precision: int
    node_ids: bool
    cmap: object
    fontsize: float | None

    @property
    def has_images(self):
        """Whether weights are shown as images or lines."""
        shape = self.shape
        return shape is not None and (len(shape) < 3 or self.has_channels)

    @property
    def has_channels(self):
        """Whether the last axis of the shape is that of channels."""
        return len(self.shape) == 3 and self.shape[2] <= MAX_CHANNELS


class Picture:
    """Drawing of a tree on empty axes, with nodes at the places of `layout`."""

    def __init__(self, ax, tree, places, style):
        self.ax = ax
        self.tree = tree
        self.places = places
        self.style = style
        self.artists = []
        self.texts = []  # (text, maximum width, maximum height), sizes in units of the axes
        leaves = [place for place in places if not place.children]
        self.values = {place.node: tree.value(place.node) for place in leaves}
        forest = tree.forest
        self.is_number = forest.task == "regression" and forest.n_outputs == 1
        self.limits = self.value_limits()
        self.has_boxes = self.is_number or tree.is_linear  # otherwise leaves have bars
        self.has_legend = not self.has_boxes and 1 < forest.n_outputs <= MAX_LEGEND
        depth = max(place.depth for place in places)
        margin = max(4 - len(leaves), 0) / 2  # else very few leaves would be very wide
        ax.set_xlim(-margin, len(leaves) + margin)
        ax.set_ylim(-depth - (0.75 if self.has_legend else 0.55), 0.4)

    def value_limits(self):
        """Range of the values that are shown, with 0 for bars; 0 to 1 for probabilities."""
        values = np.concatenate(list(self.values.values()))
        low, high = values.min(), values.max()
        if self.is_number:
            return low, high
        low, high = min(low, 0.0), max(high, 0.0)
        if self.tree.forest.task == "classification" and low == 0 and high <= 1 + 1e-6:
            high = 1.0
        return low, high if high > low else low + 1.0

    def draw(self):
        """Draw the tree; return the artists."""
        self.draw_edges()
        for place in self.places:
            if place.children:
                self.draw_split(place)
            else:
                self.draw_leaf(place)
        size = self.style.fontsize or self.fitting_fontsize()
        for text, _, _ in self.texts:
            text.set_fontsize(size)
        if self.has_legend:
            self.draw_legend(size)
        return self.artists

    def add(self, artist, gid):
        """Record an artist by its gid."""
        artist.set_gid(gid)
        self.artists.append(artist)
        return artist

    def write(self, x, y, text, gid, width, height, **options):
        """Draw a text; `width` and `height` limit its font size."""
        options = {"ha": "center", "va": "center", "fontsize": MAX_FONT} | options
        options["parse_math"] = False  # names may contain "$"
        text = self.add(self.ax.text(x, y, text, **options), gid)
        self.texts.append((text, width, height))

    def inset(self, place, half, gid):
        """Add small axes at a place."""
        box = (place.x - half, BOTTOM - place.depth, 2 * half, TOP - BOTTOM)
        inset = self.ax.inset_axes(box, transform=self.ax.transData)
        inset.set(xticks=[], yticks=[])
        return self.add(inset, gid)

    def numbered(self, place, lines):
        """Join lines of text, after the number of the node if `node_ids` is set."""
        text = "\n".join(lines)
        if not self.style.node_ids:
            return text
        gap = "\n" if place.children and len(lines) > 1 else " "
        return f"#{place.node}:{gap}{text}"

    # ------------------------------------------------------------------------------------ edges

    def draw_edges(self):
        """Draw curves from parents to children, as wide as the share of samples that pass them."""
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        total = self.tree.weight[self.places[0].node]
        codes = [Path.MOVETO, Path.LINETO, *[Path.CURVE4] * 3, Path.LINETO]
        for place in self.places[1:]:
            share = self.tree.weight[place.node] / total if total > 0 else 0.0
            above = place.parent
            top, bottom = UNDER_TEXT - above.depth, TOP - place.depth
            middle = (top + bottom) / 2
            # A text box is lower than an image, so its edges continue to its centre, behind it.
            has_box = not self.style.has_images if place.children else self.has_boxes
            first = top if self.style.has_images else -above.depth
            last = -place.depth if has_box else bottom
            points = [(above.x, first), (above.x, top), (above.x, middle), (place.x, middle)]
            curve = PathPatch(
                Path([*points, (place.x, bottom), (place.x, last)], codes),
                fill=False,
                edgecolor="0.78",
                linewidth=max(MIN_LINEWIDTH, MAX_LINEWIDTH * share),
                capstyle="butt",
                joinstyle="round",
                zorder=0,
            )
            self.add(self.ax.add_patch(curve), f"edge {place.node}")
            if above is self.places[0]:
                word = "no" if place is above.children[0] else "yes"
                box = {"facecolor": self.ax.get_facecolor(), "edgecolor": "none", "pad": 1.5}
                self.write((above.x + place.x) / 2, middle, word, word, 1.0, 0.2, bbox=box)

    # ----------------------------------------------------------------------------------- splits

    def draw_split(self, place):
        """Draw the weights of a split as an image, a line or a list, and its threshold."""
        style = self.style
        gid = f"split {place.node}"
        if not style.has_images:
            text = self.numbered(place, self.condition(place.node))
            box = {"boxstyle": "round", "facecolor": self.ax.get_facecolor(), "edgecolor": "0.6"}
            self.write(place.x, -place.depth, text, gid, 1.75, 0.6, bbox=box)
            return
        row, _, threshold = self.tree.split(place.node)
        inset = self.inset(place, HALF_SPLIT, f"weights {place.node}")
        if len(style.shape) == 1:
            self.draw_line(inset, row)
        else:
            n_channels = style.shape[2] if style.has_channels else 1
            self.draw_images(inset, row.reshape(*style.shape[:2], n_channels))
        text = self.numbered(place, [f"> {number(threshold, style.precision)}"])
        self.write(place.x, TEXT - place.depth, text, gid, 1.8, 0.15, va="top")

    def condition(self, node):
        """Condition to go right as lines of text: the weights of largest rank, the threshold."""
        precision = self.style.precision
        sides = self.tree.sides(node, MAX_LEVELS)
        if sides is not None:
            name, _, right = sides
            return [f"{name} in", right[3:]] if right.startswith("in ") else [f"{name} {right}"]
        terms, n_hidden, threshold = self.tree.terms(node, self.style.n_weights)
        if len(terms) == 1 and not n_hidden:
            [(name, weight)] = terms
            return [f"{name} {'>' if weight > 0 else '<'} {number(threshold / weight, precision)}"]
        return [*(self.sum_lines(terms, n_hidden) or ["0"]), f"> {number(threshold, precision)}"]

    def sum_lines(self, terms, n_hidden):
        """Features times weights as lines of text, and the number of other features."""
        lines = []
        for name, weight in terms:
            sign = "\N{MINUS SIGN}" if weight < 0 else "+"
            size = "" if abs(weight) == 1 else number(abs(weight), self.style.precision) + " "
            lines.append(f"{sign} {size}{name}")
        if n_hidden:
            lines.append(f"+ {n_hidden} more feature{'s' * (n_hidden > 1)}")
        return lines

    def draw_line(self, inset, row):
        """Draw the weights of a signal as a line."""
        largest = np.abs(row).max() or 1
        inset.axhline(0, color="0.7", linewidth=MIN_LINEWIDTH)
        inset.plot(row, color=COLOURS[0], linewidth=1, drawstyle="steps-mid")
        inset.set(xlim=(-0.5, len(row) - 0.5), ylim=(-1.1 * largest, 1.1 * largest))
        inset.spines[:].set_color("0.7")

    def draw_images(self, inset, array):
        """Draw one image for each entry of the last axis of an array, side by side."""
        largest = np.abs(array).max() or 1
        height, width, n_channels = array.shape
        step = width + max(1, width // 8)
        for k in range(n_channels):
            left = k * step - 0.5
            inset.imshow(
                array[:, :, k],
                cmap=self.style.cmap,
                vmin=-largest,
                vmax=largest,
                extent=(left, left + width, height - 0.5, -0.5),
                interpolation="nearest",
            )
        inset.set(xlim=(-0.5, left + width), ylim=(height - 0.5, -0.5))
        inset.set_axis_off()

    # ----------------------------------------------------------------------------------- leaves

    def draw_leaf(self, place):
        """Draw the value of a leaf, or the mean value of a hidden subtree."""
        value = self.values[place.node]
        is_hidden = self.tree.child[place.node] > 0
        if self.tree.is_linear:
            self.draw_sums(place, is_hidden)
            return
        if self.is_number:
            self.draw_number(place, value[0], is_hidden)
        else:
            self.draw_bars(place, value, is_hidden)
        lines = []
        if self.tree.forest.task == "classification" and not is_hidden:
            lines.append(self.style.outputs[value.argmax()])
        text = self.numbered(place, lines + self.size_lines(place, is_hidden))
        gid = f"{'hidden' if is_hidden else 'leaf'} {place.node}"
        self.write(place.x, TEXT - place.depth, text, gid, 0.95, 0.27, va="top")

    def size_lines(self, place, is_hidden):
        """Weight of the samples in a leaf, and number of the nodes of a hidden subtree."""
        lines = []
        if self.tree.weight.any():
            weight = self.tree.weight[place.node]
            lines.append(f"n = {number(weight, self.style.precision)}")
        if is_hidden:
            lines.append(f"+ {len(self.tree.subtree(place.node)) - 1} nodes")
        return lines

    def draw_sums(self, place, is_hidden):
        """Write the linear functions of a leaf, one for each output, in a box."""
        lines, names = [], self.style.outputs
        if self.tree.start:
            lines += self.tree.start.split("; ")
        for k in [] if is_hidden else range(len(names))[:MAX_SUMS]:
            most = self.style.n_weights if self.is_number else 1
            terms, n_hidden, constant = self.tree.slopes(place.node, k, most)
            constant = number(constant, self.style.precision)
            sums = self.sum_lines(terms, n_hidden)
            if self.is_number:
                lines += [constant, *sums]
            else:
                lines += [f"{names[k]}: {constant}", *sums]
        if len(names) > MAX_SUMS and not is_hidden:
            lines.append(f"+ {len(names) - MAX_SUMS} more outputs")
        text = self.numbered(place, lines + self.size_lines(place, is_hidden))
        style = {"edgecolor": "0.8" if is_hidden else COLOURS[0], "boxstyle": "round"}
        box = {"facecolor": self.ax.get_facecolor(), **style}
        gid = f"{'hidden' if is_hidden else 'leaf'} {place.node}"
        self.write(place.x, -place.depth, text, gid, 0.95, 0.7, bbox=box)

    def draw_bars(self, place, value, is_hidden):
        """Draw one bar for each output that is not 0."""
        inset = self.inset(place, HALF_LEAF, f"value {place.node}")
        n = len(value)
        index = np.flatnonzero(value)
        # With many outputs, bars wider than their distance remain visible.
        width = max(0.85, n / 40)
        colours = [output_colour(k, n) for k in index]
        inset.bar(
            index, value[index], width, color=colours, alpha=HIDDEN_ALPHA if is_hidden else 1.0
        )
        inset.axhline(0, color="0.5", linewidth=0.8)
        inset.set(xlim=(-0.7, n - 0.3), ylim=self.limits)
        inset.spines[:].set_visible(False)
        inset.set_facecolor((0.5, 0.5, 0.5, 0.1))

    def draw_number(self, place, value, is_hidden):
        """Draw a number on a colour that shows its position in the range of values."""
        from matplotlib import colormaps
        from matplotlib.colors import to_rgb

        low, high = self.limits
        share = (value - low) / (high - low) if high > low else 0.5
        colour = np.array(colormaps["viridis"](0.25 + 0.75 * share)[:3])
        if is_hidden:
            background = np.array(to_rgb(self.ax.get_facecolor()))
            colour = HIDDEN_ALPHA * colour + (1 - HIDDEN_ALPHA) * background
        # Luma of ITU-R BT.601.
        is_dark = colour @ (0.299, 0.587, 0.114) < 0.5
        box = {"boxstyle": "round", "facecolor": colour, "edgecolor": "none"}
        options = {"color": "white" if is_dark else "black", "bbox": box}
        text = number(value, self.style.precision)
        self.write(place.x, -0.08 - place.depth, text, f"value {place.node}", 0.8, 0.3, **options)

    # ------------------------------------------------------------------------ legend, font size

    def draw_legend(self, size):
        """Draw the legend of classes or outputs below the tree."""
        from matplotlib.patches import Patch

        names = self.style.outputs
        legend = self.ax.legend(
            [Patch(color=output_colour(k, len(names))) for k in range(len(names))],
            ["name"] * len(names),
            loc="lower center",
            ncols=max(1, min(len(names), 90 // (max(map(len, names)) + 5))),
            fontsize=size,
            frameon=False,
            handlelength=1,
            handleheight=1,
            borderpad=0,
            columnspacing=1.2,
        )
        for text, name in zip(legend.get_texts(), names):
            text.set(text=name, parse_math=False)
        self.add(legend, "classes")

    def fitting_fontsize(self):
        """Largest font size at which no text exceeds its maximum width or height."""
        origin, corner = self.ax.transData.transform([(0, 0), (1, 1)])
        unit = corner - origin
        size = MAX_FONT
        for text, *limits in self.texts:
            extent = text.get_window_extent()
            extent = np.array([extent.width, extent.height]) / unit
            size = min(size, MAX_FONT / max(1e-9, *(extent / limits)))
        return max(size, MIN_FONT)
