"""Draw a picture of the user guide: the splits of two trees, one of them with a spatial penalty.

    python docs/figures/endtoend_smoothness.py

writes ``endtoend_smoothness.png`` beside itself.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from skforest import E2EDecisionForest


def main():
    """Draw and save the picture."""
    X, y = load_digits(return_X_y=True)
    figure = Figure(figsize=(9, 2.9))
    axes = figure.subplots(2, 7)
    for row, smoothness in zip(axes, (0.0, 0.01), strict=True):
        tree = E2EDecisionForest(
            1, max_depth=3, feature_shape=(8, 8), smoothness=smoothness, random_state=0
        ).fit(X, y)
        forest = tree.forest_
        for ax, weights in zip(row, forest.directions().toarray() * forest.scale, strict=False):
            largest = np.abs(weights).max()
            ax.imshow(weights.reshape(8, 8), cmap="RdBu_r", vmin=-largest, vmax=largest)
        for ax in row:
            ax.set_axis_off()
        score = tree.score(X, y)
        row[3].set_title(f"smoothness={smoothness}, training accuracy {score:.3f}", fontsize=9)
    figure.tight_layout()
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
