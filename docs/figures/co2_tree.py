"""Draw the picture of the user guide: one tree of hyperplanes on handwritten digits.

    python docs/figures/co2_tree.py

writes ``co2_tree.png`` beside itself.
"""

from pathlib import Path

from matplotlib.figure import Figure
from sklearn.datasets import load_digits

from skforest import CO2ForestClassifier, plot_tree


def main():
    """Draw and save the picture."""
    X, y = load_digits(return_X_y=True)
    tree = CO2ForestClassifier(1, max_depth=3, random_state=0).fit(X, y)
    figure = Figure(figsize=(9, 5.2))
    plot_tree(tree, feature_shape=(8, 8), ax=figure.add_axes((0, 0, 1, 1)))
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
