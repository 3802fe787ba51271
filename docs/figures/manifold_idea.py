"""Draw the picture of the user guide: five kinds of directions and what a split makes of them.

    python docs/figures/manifold_idea.py

writes ``manifold_idea.png`` beside itself. Each column is one fitted tree with a single split.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from skforest import ManifoldForestClassifier, ManifoldProcedure

SHAPE = (8, 8)
KINDS = {
    "axis": {"projection": "axis"},
    "sparse": {
        "projection": "sparse",
        "procedure": ManifoldProcedure(n_nonzeros=4, nonzeros="fixed", sparse_weights="sign"),
    },
    "patch, sum": {"procedure": ManifoldProcedure(contrast="sum")},
    "patch, edge": {"procedure": ManifoldProcedure(contrast="edge")},
    "patch, difference": {"procedure": ManifoldProcedure(contrast="difference")},
}


def main():
    """Draw and save the picture."""
    X, y = load_digits(return_X_y=True)
    chosen = (y == 3) | (y == 5)
    X, y = X[chosen], y[chosen]
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    panels = figure.subplots(2, len(KINDS), height_ratios=[1.3, 1])
    for (title, kind), above, below in zip(KINDS.items(), *panels, strict=True):
        stump = ManifoldForestClassifier(
            1, feature_shape=SHAPE, max_features=8, max_depth=1, bootstrap=False, random_state=0
        )
        forest = stump.set_params(**kind).fit(X, y).forest_
        direction = forest.directions().toarray()[0]
        threshold = forest.threshold[0]
        above.imshow(X[0].reshape(SHAPE), cmap="gray_r", alpha=0.35)
        weights = np.ma.masked_equal(direction.reshape(SHAPE), 0)
        largest = abs(direction).max()
        above.imshow(weights, cmap="coolwarm", vmin=-largest, vmax=largest, alpha=0.85)
        above.set(title=title, xticks=[], yticks=[])
        value = X @ direction
        edges = np.linspace(value.min(), value.max(), 25)
        below.hist([value[y == 3], value[y == 5]], edges, stacked=True, label=["3", "5"])
        below.axvline(threshold, color="black")
        below.set(xlabel=r"$a \cdot x$", yticks=[])
    figure.legend(*below.get_legend_handles_labels(), title="digit", loc="outside right lower")
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
