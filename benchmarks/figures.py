"""Pictures of stored results for the documentation."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure


def folder(options):
    """Return the folder of the documentation's pictures, or another for a quick run."""
    path = Path(__file__).resolve().parent.parent / "docs" / "performance"
    path = options.results if options.quick else path
    path.mkdir(parents=True, exist_ok=True)
    return path


def learning_curves(stored, path):
    """Draw error against the number of training rows, one panel for each simulation.

    Parameters
    ----------
    stored : dict
        ``"n"``, the numbers of rows, and by simulation and model a list of runs: one error in
        percent for each number of rows. Models called "... forest" are ours.
    path : path
        Of the picture.
    """
    names = [name for name in stored if name != "n"]
    figure = Figure(figsize=(12, 4.2), layout="constrained")
    panels = figure.subplots(1, len(names))
    for panel, name in zip(panels, names, strict=True):
        for model, runs in stored[name].items():
            mean = np.mean(runs, axis=0)
            error = np.std(runs, axis=0) / np.sqrt(len(runs))
            style = {"marker": "o"} if model.endswith(" forest") else {"linestyle": "--"}
            (line,) = panel.plot(stored["n"], mean, label=model, markersize=4, **style)
            band = (mean - error, mean + error)
            panel.fill_between(stored["n"], *band, color=line.get_color(), alpha=0.15, lw=0)
        panel.set(title=name, xscale="log", xlabel="training rows", ylim=(0, None))
        panel.set_xticks(stored["n"][::2], stored["n"][::2], minor=False)
        panel.minorticks_off()
    panels[0].set_ylabel("test error in %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=120)


def depth_curves(curves, path):
    """Draw error against the largest depth of a tree, one panel for each data set.

    Parameters
    ----------
    curves : dict
        By data set and model a dict from depth to error in percent.
    path : path
        Of the picture.
    """
    figure = Figure(figsize=(3.2 * len(curves), 3.6), layout="constrained")
    panels = np.ravel(figure.subplots(1, max(1, len(curves))))
    for panel, (name, models) in zip(panels, curves.items(), strict=False):
        for model, points in models.items():
            style = {"linestyle": "--"} if model in ("axis", "random") else {"marker": "o"}
            panel.plot(list(points), list(points.values()), label=model, markersize=4, **style)
        panel.set(title=name, xlabel="largest depth", yscale="log")
        panel.yaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_minor_formatter("{x:g}")
        panel.tick_params(axis="y", which="minor", labelsize=7)
    panels[0].set_ylabel("test error in %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    figure.savefig(path, dpi=120)


def posteriors(pictures, image, labels, path):
    """Draw predicted probabilities of pixels, beside the image and its labels.

    Parameters
    ----------
    pictures : dict of int to list of ndarray
        By the number of epochs: with soft routing, with hard routing.
    image, labels : ndarray
    path : Path
    """
    figure = Figure(figsize=(2 + 2 * len(pictures), 4.3))
    axes = figure.subplots(2, 1 + len(pictures))
    axes[0, 0].imshow(image, cmap="gray")
    axes[1, 0].imshow(labels, cmap="gray")
    for ax, title in zip(axes[:, 0], ("image", "labels"), strict=True):
        ax.set_title(title, fontsize=9)
    for column, (n_epochs, pair) in zip(axes.T[1:], pictures.items(), strict=True):
        for ax, picture, routing in zip(column, pair, ("soft", "hard"), strict=True):
            ax.imshow(picture, cmap="gray", vmin=0, vmax=1)
            ax.set_title(f"{routing}, {n_epochs} epochs", fontsize=9)
    for ax in axes.ravel():
        ax.set_axis_off()
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def peers(summary, ours, path):
    """Draw error against fit time, both relative to RandomForest, one point for each model.

    Parameters
    ----------
    summary : dict of str to dict
        As `peers.summary` returns it.
    ours : collection of str
        Models of this package.
    path : path
        Of the picture.
    """
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2)
    titles = {"classification": "22 classification tables", "regression": "10 regression tables"}
    times = [row["time"] for row in summary.values()]
    middle = np.sqrt(min(times) * max(times))
    for panel, (task, title) in zip(panels, titles.items(), strict=True):
        panel.axhline(1, color="0.8", linewidth=1, zorder=0)
        for k, name in enumerate(sorted(summary, key=lambda name: summary[name][task])):
            point = summary[name]["time"], summary[name][task]
            color, marker = ("tab:blue", "o") if name in ours else ("tab:gray", "s")
            panel.plot(*point, marker, color=color)
            # Labels point inwards and alternate, so that those of close points do not overlap.
            side = ("right", -6) if point[0] > middle else ("left", 6)
            shift = (side[1], 4 if k % 2 else -9)
            panel.annotate(
                name, point, shift, textcoords="offset points", ha=side[0], fontsize=8, color=color
            )
        panel.set(title=title, xscale="log", xlabel="fit time relative to RandomForest")
        panel.set_xticks([0.25, 0.5, 1, 2, 4, 8], ["0.25", "0.5", "1", "2", "4", "8"])
        panel.minorticks_off()
        panel.margins(x=0.08, y=0.1)
    panels[0].set_ylabel("error relative to RandomForest")
    figure.savefig(path, dpi=120)
