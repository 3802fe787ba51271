"""Pictures of stored results for the documentation."""

import numpy as np
from matplotlib.figure import Figure


def learning_curves(stored, path):
    """Draw error against the number of training rows, one panel a simulation.

    Parameters
    ----------
    stored : dict
        ``"n"``, the numbers of rows, and by simulation and model a list of runs: errors in
        percent, one a number of rows. Models called "... forest" are ours.
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


def relative_errors(relative, marked, path):
    """Draw errors relative to RandomForest, one line a data set, smallest first.

    Parameters
    ----------
    relative : dict of str to float
        By data set.
    marked : collection of str
        The regression sets, drawn in another colour.
    path : path
        Of the picture.
    """
    names = sorted(relative, key=relative.get)
    figure = Figure(figsize=(7, 1 + 0.2 * len(names)), layout="constrained")
    panel = figure.subplots()
    panel.axvline(1, color="0.6", linewidth=1)
    colors = ["tab:orange" if name in marked else "tab:blue" for name in names]
    panel.scatter([relative[name] for name in names], names, c=colors, s=20)
    panel.set(xscale="log", xlabel="error relative to RandomForest (orange: regression)")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.xaxis.set_minor_formatter("{x:g}")
    panel.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=120)


def depth_curves(curves, path):
    """Draw error against the largest depth of a tree, one panel a data set.

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
    """Draw probabilities of pixels, soft above and hard below, between the image and its labels.

    Parameters
    ----------
    pictures : dict of int to list of ndarray
        By the number of epochs: soft, hard.
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
