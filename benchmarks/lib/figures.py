"""Pictures of stored results for the documentation: functions that return a figure."""

import numpy as np

from benchmarks.lib.results import from_text, unpacked


def _figure(width, height, dpi, **options):
    """Return an empty figure; matplotlib is not needed before one is drawn."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=dpi, **options)


def learning_curves(stored, labels):
    """Draw errors and times by the number of training rows, a column for each simulation.

    Parameters
    ----------
    stored : dict
        ``"n"``, the numbers of rows, and by simulation and model a list of runs, with an
        ``"error"`` in percent and the seconds to ``"fit"`` and to ``"predict"`` for each number of
        rows. Models called "... forest" are ours.
    labels : dict of str to str
        What is drawn, one of these in each row of panels, and the label of its axis.
    """
    names = [name for name in stored if name != "n"]
    figure = _figure(12, 1.2 + 3 * len(labels), 120, layout="constrained")
    grid = figure.subplots(len(labels), len(names), squeeze=False, sharey="row")
    for panels, (key, label) in zip(grid, labels.items(), strict=True):
        panels[0].set_ylabel(label)
        for panel, name in zip(panels, names, strict=True):
            _learning_curve(panel, stored["n"], stored[name], key)
            panel.set(title=name)
            panel.set(**({"ylim": (0, None)} if key == "error" else {"yscale": "log"}))
    for panel in grid[-1]:
        panel.set_xlabel("training rows")
    legend = grid[0, 0].get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=4)
    return figure


def _learning_curve(panel, n_rows, models, key):
    """Draw the means of runs of some models, with their standard errors."""
    for i, (model, runs) in enumerate(models.items()):
        values = [run[key] for run in runs]
        mean = np.mean(values, axis=0)
        error = np.std(values, axis=0) / np.sqrt(len(runs))
        style = {"marker": "o"} if model.endswith(" forest") else {"linestyle": "--"}
        color = f"C{i}" if i < 10 else "black"  # there are ten colours
        panel.plot(n_rows, mean, label=model, markersize=4, color=color, **style)
        if key == "error":
            band = (mean - error, mean + error)
            panel.fill_between(n_rows, *band, color=color, alpha=0.15, lw=0)
    panel.set(xscale="log")
    panel.set_xticks(n_rows[::2], n_rows[::2], minor=False)
    panel.minorticks_off()


def depth_curves(curves):
    """Draw error against the largest depth of a tree, one panel for each data set.

    Parameters
    ----------
    curves : dict
        By data set and model a dict from depth to error in percent.
    """
    figure = _figure(3.2 * len(curves), 3.6, 120, layout="constrained")
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
    return figure


def curves(panels, xlabel, ylabel, xscale="linear", n_rows=1, printed=()):
    """Draw lines in panels that share a legend.

    Parameters
    ----------
    panels : dict
        By the title of the panel and the label of the line a dict from x to y.
    xlabel, ylabel : str
    xscale : {"linear", "log"}
    n_rows : int
        Rows of panels.
    printed : tuple of str
        Labels of values that a paper prints, which are drawn as black crosses.
    """
    n_columns = -(-len(panels) // n_rows)
    width = max(6.0, 3.3 * n_columns)
    figure = _figure(width, 0.8 + 2.9 * n_rows, 110, layout="constrained")
    axes = np.ravel(figure.subplots(n_rows, n_columns))
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    handles = {}
    for panel, (title, lines) in zip(axes, panels.items(), strict=False):
        for label, points in lines.items():
            color = f"C{labels.index(label)}"
            style = {"color": color, "marker": "o", "markersize": 4}
            if label in printed:
                style = {"color": "black", "marker": "x", "linestyle": "none", "zorder": 3}
            (handles[label],) = panel.plot(list(points), list(points.values()), **style)
        panel.set(title=title, xlabel=xlabel, xscale=xscale, ylim=(0, None))
        if xscale == "log":
            panel.xaxis.set_major_formatter("{x:g}")
        else:
            panel.set_xticks(sorted({x for points in lines.values() for x in points}))
    for panel in axes[len(panels) :]:
        panel.set_axis_off()
    for panel in axes[::n_columns]:
        panel.set_ylabel(ylabel)
    order = [label for label in labels if label in handles]
    place = {"loc": "outside lower center", "ncols": int(width / 1.9)}
    figure.legend([handles[label] for label in order], order, **place)
    return figure


def posteriors(stored):
    """Draw predicted probabilities of pixels, beside the image and its labels.

    Parameters
    ----------
    stored : dict
        "image", "labels"; "epochs": by their number the probabilities in percent with "soft" and
        with "hard" routing. Matrices of 200 columns are those of `results.packed`.
    """
    columns = [
        {f"{routing}, {n_epochs} epochs": pair[routing] for routing in pair}
        for n_epochs, pair in stored["epochs"].items()
    ]
    return _pixel_pictures(stored, columns, 4.3)


def segmentations(stored):
    """Draw predicted probabilities of pixels by two models, beside the image and its labels.

    Parameters
    ----------
    stored : dict
        "image", "labels"; "models": by name, the probabilities in percent by the sample of pixels
        that trains. Matrices of 200 columns are those of `results.packed`.
    """
    models = stored["models"]
    samples = next(iter(models.values()))
    columns = [{f"{name}:\n{kind}": models[name][kind] for name in models} for kind in samples]
    return _pixel_pictures(stored, columns, 4.8)


def _pixel_pictures(stored, columns, height):
    """Draw the image above its labels, and columns of titled probabilities in percent."""
    figure = _figure(2 + 2 * len(columns), height, 90)
    columns = [{"image": stored["image"], "labels": stored["labels"]}, *columns]
    for number, pictures in enumerate(columns):
        options = {"vmin": 0, "vmax": 100} if number else {}
        for row, (title, picture) in enumerate(pictures.items()):
            ax = figure.add_subplot(2, len(columns), 1 + number + row * len(columns))
            ax.imshow(unpacked(picture, 200), cmap="gray", **options)
            ax.set_title(title, fontsize=9)
            ax.set_axis_off()
    figure.tight_layout()
    return figure


def surfaces(stored):
    """Draw the probability of a class on a plane, one panel for each model, and the rows.

    Parameters
    ----------
    stored : dict
        "X", "y": the rows, in thousandths, and their classes; "extent": least and largest value
        of both coordinates; "models": by name a matrix of probabilities in percent. Matrices are
        those of `results.to_text`.
    """
    X, y, models = (
        from_text(stored["X"]) / 1000,
        np.array(stored["y"].split(), int),
        stored["models"],
    )
    figure = _figure(3 * len(models), 2.6, 110, layout="constrained")
    for panel, (name, rows) in zip(figure.subplots(1, len(models)), models.items(), strict=True):
        surface = from_text(rows) / 100
        shown = {"extent": stored["extent"], "origin": "lower"}
        image = panel.imshow(surface, cmap="RdBu_r", vmin=0, vmax=1, aspect="auto", **shown)
        panel.contour(surface, [0.5], colors="black", linewidths=0.8, **shown)
        for label, color in ((0, "tab:blue"), (1, "tab:red")):
            panel.plot(*X[y == label].T, ".", color=color, markeredgecolor="white", mew=0.4, ms=6)
        panel.set(title=name, xticks=[], yticks=[])
    figure.colorbar(image, label="probability of class 1")
    return figure


def loss_curves(stored):
    """Draw the loss of training rows and of held-out rows against steps.

    Parameters
    ----------
    stored : dict
        By data set and size a dict with "steps", the number of steps, "training" and "held out".
    """
    n_rows = -(-len(stored) // 2)
    figure = _figure(8.8, 3.4 * n_rows, 110, layout="constrained")
    axes = figure.subplots(n_rows, 2, squeeze=False).ravel()
    for panel, (name, sizes) in zip(axes, stored.items(), strict=True):
        for size, curves in sizes.items():
            color = None
            for kind, style in (("training", ":"), ("held out", "-")):
                loss = curves[kind]
                steps = curves["steps"] * (1 + np.arange(len(loss))) / len(loss)
                label = f"{size}, {kind}"
                (line,) = panel.plot(steps, loss, style, color=color, label=label)
                color = line.get_color()
        panel.set(title=name, xlabel="steps", yscale="log")
        place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2), "ncols": len(sizes)}
        panel.legend(fontsize=7, title="trees / depth", title_fontsize=7, **place)
    for panel in axes[::2]:
        panel.set_ylabel("log loss")
    return figure


def tradeoff(stored):
    """Draw accuracy against the number of splits that a row passes, one panel for each data set.

    Parameters
    ----------
    stored : dict
        By data set and model a list of points: number of trees, passed splits, accuracy in %.
    """
    labels = {"printed": "end-to-end, as printed", "defaults": "end-to-end, defaults"}
    figure = _figure(3.6 * len(stored), 3.4, 110, layout="constrained")
    panels = np.ravel(figure.subplots(1, len(stored)))
    for panel, (name, models) in zip(panels, stored.items(), strict=True):
        for model, points in models.items():
            n_trees, passed, accuracy = zip(*points, strict=True)
            style = "o--" if model == "RandomForest" else "o-"
            panel.plot(passed, accuracy, style, label=labels.get(model, model), ms=4)
        for n, x, y in points:
            panel.annotate(f"{n}", (x, y), (3, -9), textcoords="offset points", fontsize=7)
        panel.set(title=name, xscale="log", xlabel="splits that a row passes")
    panels[0].set_ylabel("test accuracy in %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def split_images(pictures):
    """Draw weights of splits, one row of images for each tree.

    Parameters
    ----------
    pictures : dict of str to list
        By the name of the tree a few images, numbers from -100 to 100, as `results.to_text`
        returns them.
    """
    n_columns = max(map(len, pictures.values()))
    figure = _figure(1.3 * n_columns, 1.45 * len(pictures), 90, layout="constrained")
    rows = figure.subplots(len(pictures), n_columns)
    for axes, (name, images) in zip(rows, pictures.items(), strict=True):
        axes[0].set_title(name, fontsize=9, loc="left")
        for ax, image in zip(axes, images, strict=False):
            ax.imshow(from_text(image), cmap="RdBu_r", vmin=-100, vmax=100)
        for ax in axes:
            ax.set_axis_off()
    return figure


def importances(pictures):
    """Draw means of two digits, and importances of pixels in forests, as images.

    Parameters
    ----------
    pictures : dict of str to list
        Images of 28 x 28 pixels, as `results.to_text` returns them.
    """
    figure = _figure(9.6, 5, 90, layout="constrained")
    axes = figure.subplots(2, 4)
    axes[0, 3].set_axis_off()
    panels = [*axes[0, :3], *axes[1]]
    for ax, (name, image) in zip(panels, pictures.items(), strict=True):
        image, is_difference = from_text(image), name == "difference"
        largest = np.abs(image).max()
        options = {"cmap": "RdBu_r", "vmin": -largest} if is_difference else {"cmap": "magma"}
        ax.imshow(image, vmax=largest, **options)
        ax.set_title(name, fontsize=10)
        ax.set_axis_off()
    return figure


def peers(summary, ours, what, xlabel):
    """Draw error relative to RandomForest against a time, one point for each model.

    Parameters
    ----------
    summary : dict of str to dict
        As `comparison.summary` returns it.
    ours : collection of str
        Models of this package.
    what : {"time", "predict_us"}
        Models without it are left out.
    xlabel : str
    """
    from matplotlib.ticker import LogLocator

    summary = {name: row for name, row in summary.items() if row[what] is not None}
    figure = _figure(11, 4.6, 120, layout="constrained")
    panels = figure.subplots(1, 2)
    titles = {"classification": "22 classification tables", "regression": "10 regression tables"}
    for panel, (task, title) in zip(panels, titles.items(), strict=True):
        panel.axhline(1, color="0.8", linewidth=1, zorder=0)
        points = {name: (row[what], row[task]) for name, row in summary.items()}
        panel.set(title=title, xscale="log", xlabel=xlabel)
        # Labels at 1, 2 and 5 of each decade, so that an axis of one decade has several.
        panel.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.xaxis.set_major_formatter("{x:g}")
        panel.minorticks_off()
        for name, point in points.items():
            panel.plot(*point, "o" if name in ours else "s", color=_color(name, ours))
        panel.margins(x=0.12, y=0.1)
    panels[0].set_ylabel("error relative to RandomForest")
    figure.set_dpi(100)  # while names find their places
    figure.draw_without_rendering()
    for panel, task in zip(panels, titles, strict=True):
        points = {name: (row[what], row[task]) for name, row in summary.items()}
        _label_points(panel, points, ours)
    figure.set_dpi(120)
    return figure


def _label_points(panel, points, ours):
    """Write names beside points, each on the first side where it covers nothing else."""
    from matplotlib.transforms import Bbox

    frame = panel.get_window_extent()
    at = panel.transData.transform(list(points.values()))
    covered = [Bbox.from_bounds(x - 5, y - 5, 10, 10) for x, y in at]
    shifts = [(6, -3), (-6, -3), (0, 6), (0, -12), (6, 5), (-6, 5), (6, -11), (-6, -11)]
    shifts += [(6, 14), (-6, 14), (6, -20), (-6, -20)]
    sides = {1: "left", 0: "center", -1: "right"}
    for name in sorted(points, key=lambda name: points[name][1]):
        candidates = []
        for shift in shifts:
            text = panel.annotate(
                *(name, points[name], shift),
                textcoords="offset points",
                ha=sides[np.sign(shift[0])],
                fontsize=8,
                color=_color(name, ours),
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
            box = text.get_window_extent()
            outside = box.x0 < frame.x0 or box.x1 > frame.x1 or box.y0 < frame.y0
            overlaps = sum(box.overlaps(other) for other in covered) + 2 * outside
            candidates.append((overlaps, len(candidates), text, box))
        *_, kept, box = min(candidates, key=lambda candidate: candidate[:2])
        for *_, text, _ in candidates:
            if text is not kept:
                text.remove()
        covered.append(box)


def critical_difference(rank, cliques, ours):
    """Draw average ranks on a line, and bars over models that cannot be told apart.

    Parameters
    ----------
    rank : dict of str to float
        From the smallest.
    cliques : list of (int, int)
        First and last position in `rank` of each group.
    ours : collection of str
        Models of this package.
    """
    names, values = list(rank), list(rank.values())
    n_left = (len(names) + 1) // 2
    first, last = int(np.floor(values[0])), int(np.ceil(values[-1]))
    bottom = 1.2 + 0.35 * len(cliques)
    figure = _figure(9, 1 + 0.28 * (n_left + bottom), 120, layout="constrained")
    axes = figure.subplots()
    axes.plot([first, last], [0, 0], color="black", linewidth=1)
    for tick in range(first, last + 1):
        axes.plot([tick, tick], [0, 0.25], color="black", linewidth=1)
        axes.text(tick, 0.4, str(tick), ha="center", va="bottom", fontsize=9)
    for k, (name, value) in enumerate(rank.items()):
        is_left = k < n_left
        row = k if is_left else len(names) - 1 - k
        end = first - 0.1 if is_left else last + 0.1
        color = _color(name, ours)
        axes.plot([value, value, end], [0, -bottom - row, -bottom - row], color=color, lw=0.8)
        axes.text(
            *(end, -bottom - row, f" {name} {value:.1f} "),
            ha="right" if is_left else "left",
            va="center",
            fontsize=9,
            color=color,
        )
    for k, (i, j) in enumerate(cliques):
        height = -0.6 - 0.35 * k
        ends = [values[i] - 0.04, values[j] + 0.04]
        axes.plot(ends, [height, height], color="black", linewidth=3, solid_capstyle="butt")
    margin = 0.35 * (last - first)
    axes.set(xlim=(first - margin, last + margin), ylim=(-bottom - n_left + 0.3, 1.6))
    axes.set_axis_off()
    return figure


def _color(name, ours):
    return "tab:blue" if name in ours else "0.35"
