"""Draw the picture of the user guide: the same tree grown, and trained as a whole.

    python docs/figures/nongreedy_idea.py

writes ``nongreedy_idea.png`` beside itself. All trees have depth 3.
"""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.tree import DecisionTreeClassifier

from skforest import CO2ForestClassifier, NonGreedyTreeClassifier

COLOURS = "coolwarm"
DEPTH = 3
TREES = {
    "single features": DecisionTreeClassifier(
        criterion="entropy", max_depth=DEPTH, random_state=0
    ),
    "hyperplanes, grown (CO2)": CO2ForestClassifier(
        1,
        objective="co2",
        bootstrap=False,
        holdout=0.0,
        max_features=None,
        max_depth=DEPTH,
        random_state=0,
    ),
    "trained as a whole": NonGreedyTreeClassifier(max_depth=DEPTH, nu=100.0, random_state=0),
}


def arms(n_samples, random_state):
    """Two arms of a spiral."""
    rng = np.random.default_rng(random_state)
    y = rng.integers(0, 2, n_samples)
    radius = np.sqrt(rng.uniform(0.02, 1, n_samples))
    angle = np.pi * y + 6 * radius + rng.normal(scale=0.3, size=n_samples)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), y


def main():
    """Draw and save the picture."""
    X, y = arms(1000, random_state=0)
    X_test, y_test = arms(5000, random_state=1)
    figure = Figure(figsize=(11, 4.3), layout="constrained")
    for (title, tree), panel in zip(TREES.items(), figure.subplots(1, 3), strict=True):
        tree.fit(X, y)
        DecisionBoundaryDisplay.from_estimator(
            tree,
            X,
            eps=0.15,
            grid_resolution=400,
            response_method="predict",
            plot_method="pcolormesh",
            cmap=COLOURS,
            alpha=0.35,
            ax=panel,
        )
        panel.scatter(*X.T, c=y, s=3, cmap=COLOURS)
        error = 100 * (1 - tree.score(X_test, y_test))
        panel.set(title=f"{title}\ntest error {error:.1f} %", xticks=[], yticks=[], aspect="equal")
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
