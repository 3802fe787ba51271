"""A page of titles, sentences, tables and pictures: HTML that needs no network, and text."""

import base64
import html
import io
from dataclasses import dataclass, field

import numpy as np

from ..table.frames import is_missing
from .picture import COLOURS

MAX_TEXT = 34  # characters of labels and lines of titles
BROAD = 8.0  # inches: broader pictures are scrolled on narrow screens

STYLE = """
.skforest-report {--text: #1f2328; --page: #fff; --line: #d0d7de; --soft: #f6f8fa;
 color: var(--text); background: var(--page); font: 15px/1.5 system-ui, sans-serif;
 max-width: 1100px; margin: auto; padding: 1em}
.skforest-report h1 {font-size: 1.6em} .skforest-report h2 {font-size: 1.2em; margin-top: 1.8em;
 border-bottom: 1px solid var(--line)}
.skforest-report .wide {overflow-x: auto}
.skforest-report table {border-collapse: collapse; font-size: .9em; color: var(--text);
 margin: .8em 0}
.skforest-report th, .skforest-report td {text-align: left !important; padding: .25em .8em;
 border-bottom: 1px solid var(--line); background: var(--page); white-space: nowrap}
.skforest-report th {background: var(--soft)}
.skforest-report .number {text-align: right !important; font-variant-numeric: tabular-nums}
.skforest-report img {max-width: 100%; height: auto; background: #fff; border-radius: 6px;
 margin: .4em 0}
.skforest-report img.broad {min-width: 680px}
@media (prefers-color-scheme: dark) {.skforest-report {--text: #e6edf3; --page: #0d1117;
 --line: #3d444d; --soft: #161b22}}
"""
PAGE = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>body {{margin: 0}}
@media (prefers-color-scheme: dark) {{body {{background: #0d1117}}}}</style>
</head><body>{body}</body></html>
"""


@dataclass
class Section:
    """A part of a report: a title, and its contents as pieces of HTML and of text."""

    title: str
    html: list = field(default_factory=list)
    text: list = field(default_factory=list)

    def say(self, sentence):
        """Add a paragraph."""
        self.html.append(f"<p>{html.escape(sentence)}</p>")
        self.text.append(sentence)

    def table(self, head, rows):
        """Add a table; cells are text or numbers."""
        cells = [[cell_text(cell) for cell in row] for row in rows]
        kinds = [" class=number" if isinstance(cell, float | int) else "" for cell in rows[0]]
        body = "".join(
            "<tr>"
            + "".join(f"<td{kind}>{html.escape(cell)}</td>" for kind, cell in zip(kinds, row))
            + "</tr>"
            for row in cells
        )
        names = "".join(f"<th{kind}>{html.escape(name)}</th>" for kind, name in zip(kinds, head))
        self.html.append(f"<div class=wide><table><tr>{names}</tr>{body}</table></div>")
        width = [max(map(len, column)) for column in zip(head, *cells)]
        lines = [
            "  ".join(
                cell.rjust(n) if kind else cell.ljust(n)
                for cell, n, kind in zip(row, width, kinds)
            ).rstrip()
            for row in (head, *cells)
        ]
        self.text.append("\n".join(lines))

    def picture(self, figure, description):
        """Add a matplotlib figure, and close it."""
        import matplotlib.pyplot as plt

        file = io.BytesIO()
        try:
            figure.savefig(file, format="svg", metadata={"Date": None})
        finally:
            plt.close(figure)
        source = base64.b64encode(file.getvalue()).decode()
        is_broad = " class=broad" if figure.get_figwidth() > BROAD else ""
        self.html.append(
            f'<div class=wide><img{is_broad} alt="{html.escape(description)}" '
            f'src="data:image/svg+xml;base64,{source}"></div>'
        )


class Report:
    """A report, see `describe`: `print` it, `save` it, or show it in a notebook."""

    def __init__(self, title, sections):
        self.title, self.sections = title, sections

    def __str__(self):
        parts = [self.title]
        for section in self.sections:
            if section.text:
                parts.append("\n\n".join([f"== {section.title} ==", *section.text]))
        return "\n\n".join(parts)

    def __repr__(self):
        return f"<Report of {self.title}: print it, or save it as HTML>"

    def _repr_html_(self):
        body = "".join(
            f"<h2>{html.escape(section.title)}</h2>{''.join(section.html)}"
            for section in self.sections
        )
        title = f"<h1>{html.escape(self.title)}</h1>"
        return f"<div class=skforest-report><style>{STYLE}</style>{title}{body}</div>"

    def to_html(self):
        """Return the report as a complete HTML page."""
        return PAGE.format(title=html.escape(self.title), body=self._repr_html_())

    def save(self, path):
        """Write the report to a file with an HTML page."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.to_html())


def cell_text(value):
    """A cell of a table as text."""
    if isinstance(value, (float, np.floating)):
        text = f"{value:.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"
        return "" if np.isnan(value) else text
    return str(value)


def cell(value):
    """A value of a table as text."""
    if is_missing(value):
        return "missing"
    value = value.item() if isinstance(value, np.generic) else value
    return cell_text(value).removesuffix(" 00:00:00")


def short(text):
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "\N{HORIZONTAL ELLIPSIS}"


def bars(names, losses, what):
    """Bars of permutation importances."""
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 0.8 + 0.28 * len(names)), layout="constrained")
    mean, deviation = np.mean(losses, axis=1)[::-1], np.std(losses, axis=1)[::-1]
    ax.barh(range(len(names)), mean, xerr=deviation, color=COLOURS[0], ecolor="grey")
    ax.set_yticks(range(len(names)), names[::-1], parse_math=False)
    ax.set(xlabel=f"decrease of {what}")
    ax.spines[["top", "right"]].set_visible(False)
    return figure


def contributions(pictures):
    """Bars of contributions, a panel for each row."""
    import matplotlib.pyplot as plt

    size = (11, 1.2 + 0.3 * max(len(labels) for _, labels, _ in pictures))
    figure, axes = plt.subplots(1, len(pictures), figsize=size, layout="constrained")
    for ax, (title, labels, values) in zip(np.ravel(axes), pictures):
        colours = [COLOURS[1] if value < 0 else COLOURS[0] for value in values[::-1]]
        ax.barh(range(len(values)), values[::-1], color=colours)
        ax.set_yticks(range(len(values)), labels[::-1], fontsize=8, parse_math=False)
        ax.axvline(0, color="grey", linewidth=0.8)
        ax.set_title(title, fontsize=9, parse_math=False)
        ax.locator_params("x", nbins=3)
        ax.spines[["top", "right"]].set_visible(False)
    return figure
