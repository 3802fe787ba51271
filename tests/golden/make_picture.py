"""Draw the picture that test_displays compares: python tests/golden/make_picture.py."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from skforest import Forest, PartitionDisplay

PATH = Path(__file__).with_name("partition.png")


def forest():
    """Two oblique splits of a plane, and three leaves."""
    arrays = {
        "tree_start": [0, 5],
        "child": [1, -1, 3, -2, -3],
        "threshold": [0.0, 0.5],
        "direction": [2, 3],
        "dense": [[1.0, 1.0], [-1.0, 2.0]],
        "value": [0.9, 0.1, 0.0, 0.2, 0.8, 0.0, 0.0, 0.0, 1.0],
        "node_weight": [10, 4, 6, 3, 3],
    }
    labels = ["a", "b", "c"]
    return Forest(arrays, n_features=2, n_outputs=3, task="classification", classes=labels)


def draw(path):
    """Save the partition and its tree, without texts, whose fonts differ between machines."""
    X = np.array([[-1.0, -1.0], [1.0, -0.5], [0.0, 1.0], [-0.5, 0.8]])
    figure = Figure(figsize=(6, 2.5))
    axes = figure.subplots(1, 2)
    PartitionDisplay.from_estimator(forest(), X, list("abcc"), tree=0, ax=axes)
    for ax in axes:
        ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
        if ax.get_legend():
            ax.get_legend().remove()
    for text in figure.findobj(lambda artist: hasattr(artist, "get_text")):
        text.set_visible(False)
    figure.savefig(path, dpi=60, metadata={"Software": None})


if __name__ == "__main__":
    draw(PATH)
