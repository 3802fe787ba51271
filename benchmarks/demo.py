"""A manifold forest and a random forest on the digits that scikit-learn bundles.

    python benchmarks/demo.py

prints error, times and size of both over the same random splits, and writes a picture of the
pixels that they use, ``demo.png``, into the working directory.
"""

import pickle
import statistics
import time
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedShuffleSplit

from skforest import ManifoldForestClassifier

SHAPE = (8, 8)
SPLITS = 10


def measure(model, X, y, train, test):
    """Fit and test one forest on one split; return its measurements by column of the table."""
    start = time.perf_counter()
    model.fit(X[train], y[train])
    fitted = time.perf_counter()
    labels = model.predict(X[test])
    predicted = time.perf_counter()
    return {
        "error %": 100 * np.mean(labels != y[test]),
        "fit s": fitted - start,
        "predict us/row": 1e6 * (predicted - fitted) / len(test),
        "size KiB": len(pickle.dumps(model)) / 1024,
        "importances": model.feature_importances_,
    }


def show(figures):
    """Print one line for each forest: mean error, and medians of the other measurements."""
    heads = [head for head in next(iter(figures.values()))[0] if head != "importances"]
    print(f"{'':26}" + "".join(f"{head:>16}" for head in heads))
    for name, runs in figures.items():
        cells = [statistics.fmean(run[heads[0]] for run in runs)]
        cells += [statistics.median(run[head] for run in runs) for head in heads[1:]]
        print(f"{name:26}" + "".join(f"{cell:16.3g}" for cell in cells))
    ours, theirs = ([run["error %"] for run in runs] for runs in figures.values())
    gains = np.subtract(theirs, ours)
    print(
        f"\nErrors are means over {len(gains)} random splits, all else medians; one thread, "
        f"100 trees each.\nThe manifold forest is better on {np.sum(gains > 0)} splits, worse on "
        f"{np.sum(gains < 0)}: {gains.mean():.2f} +- {gains.std(ddof=1):.2f} points smaller error."
    )


def draw(figures, images, path):
    """Draw the mean digit image and the pixel importances of each forest."""
    panels = {"mean image": images.mean(0).reshape(SHAPE)}
    for name, runs in figures.items():
        panels[name] = np.mean([run["importances"] for run in runs], axis=0).reshape(SHAPE)
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    axes = figure.subplots(1, len(panels))
    for axis, (title, panel) in zip(axes, panels.items(), strict=True):
        picture = axis.imshow(panel, cmap="gray" if title == "mean image" else "viridis", vmin=0)
        axis.set(title=title, xticks=[], yticks=[])
        figure.colorbar(picture, ax=axis, shrink=0.8)
    figure.suptitle("Which pixels the forests use")
    figure.savefig(path, dpi=120)


def main():
    """Run the demo."""
    X, y = load_digits(return_X_y=True)
    X = X.astype(np.uint8)
    forests = {
        "ManifoldForestClassifier": lambda seed: ManifoldForestClassifier(
            feature_shape=SHAPE, random_state=seed
        ),
        "RandomForestClassifier": lambda seed: RandomForestClassifier(random_state=seed),
    }
    figures = {name: [] for name in forests}
    splits = StratifiedShuffleSplit(SPLITS, test_size=0.25, random_state=0)
    for seed, (train, test) in enumerate(splits.split(X, y)):
        for name, forest in forests.items():
            figures[name].append(measure(forest(seed), X, y, train, test))
    print(f"Handwritten digits, 8 x 8 pixels, {len(train)} training rows, {len(test)} test rows\n")
    show(figures)
    path = Path("demo.png").absolute()
    draw(figures, X, path)
    print(f"\nThe pixels that the forests use: {path}")


if __name__ == "__main__":
    main()
