"""Draw the pictures of the page on plots of the user guide.

    python docs/figures/plots.py

writes ``plots_*.png`` beside itself.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.calibration import CalibrationDisplay
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import LearningCurveDisplay, train_test_split

from skforest import (
    CO2ForestClassifier,
    CO2Procedure,
    EffectDisplay,
    FeatureImportancesDisplay,
    ManifoldForestClassifier,
    NonGreedyTreeClassifier,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    PartitionDisplay,
    RandomHingeForestRegressor,
    TrainingCurveDisplay,
    plot_tree,
)


def save(figure, name, **options):
    """Save a figure beside this file."""
    path = Path(__file__).with_name(f"plots_{name}.png")
    figure.savefig(path, dpi=100, metadata={"Software": None}, **options)


def tree():
    """A tree of four leaves on a table."""
    data = load_breast_cancer(as_frame=True)
    model = CO2ForestClassifier(
        1,
        max_depth=2,
        refine="alternating",
        procedure=CO2Procedure(max_weights=3),
        random_state=0,
    ).fit(data.data, data.target_names[data.target])
    figure = Figure(figsize=(9, 4))
    plot_tree(model, ax=figure.subplots())
    save(figure, "tree", bbox_inches="tight")


def importances():
    """Bars for a table, a heat map for images."""
    figure = Figure(figsize=(10.5, 3.9), layout="constrained")
    bars, heat_map = figure.subplots(1, 2, width_ratios=[1.25, 1])
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    forest = CO2ForestClassifier(50, random_state=0).fit(X, y)
    FeatureImportancesDisplay.from_estimator(forest, n_largest=12, ax=bars)
    X, y = load_digits(return_X_y=True)
    forest = ManifoldForestClassifier(feature_shape=(8, 8), random_state=0).fit(X, y)
    FeatureImportancesDisplay.from_estimator(forest, ax=heat_map)
    save(figure, "importances")


def curves():
    """Losses of five bags of boosting, and of a hinge forest."""
    X, y = load_diabetes(return_X_y=True)
    figure = Figure(figsize=(12, 3.6), layout="constrained")
    axes = figure.subplots(1, 3)
    model = ObliqueBoostingRegressor(random_state=0).fit(X, y)
    TrainingCurveDisplay.from_estimator(model, ax=axes[:2])
    axes[0].set_title("oblique boosting, training rows")
    axes[1].set_title("oblique boosting, held-out rows")
    model = RandomHingeForestRegressor(random_state=0).fit(X, y)
    TrainingCurveDisplay.from_estimator(model, ax=axes[2])
    axes[2].set_title("hinge forest, training rows")
    save(figure, "curves")


def partition():
    """A non-greedy tree and its leaves."""
    X, y = make_moons(300, noise=0.2, random_state=0)
    model = NonGreedyTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    figure = Figure(figsize=(12.0, 4.3), layout="constrained")
    axes = figure.subplots(1, 2, width_ratios=[1, 1.7])
    PartitionDisplay.from_estimator(model, X, y, tree=0, ax=axes)
    save(figure, "partition")


def effects():
    """Effects of a number with missing values, of a category and of an integer."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({
        "age": rng.integers(18, 90, size=1500).astype(float),
        "city": rng.choice(["Bern", "Lima", "Oslo", "Rome"], size=1500, p=[0.4, 0.1, 0.3, 0.2]),
        "children": rng.integers(0, 6, size=1500),
    })  # fmt: skip
    score = (table["age"] - 50) / 15 + 1.2 * (table["city"] == "Oslo")
    score += 0.5 * table["children"] * (table["age"] < 60) - 1 + 0.5 * rng.logistic(size=1500)
    table.loc[rng.random(1500) < 0.15, "age"] = np.nan
    model = ObliqueBoostingClassifier(random_state=0).fit(table, np.where(score > 0, "yes", "no"))
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    axes = figure.subplots(1, 3, width_ratios=[1.2, 1, 1])
    EffectDisplay.from_estimator(model, table, ["age", "city"], kind="ale", ax=axes[:2])
    EffectDisplay.from_estimator(model, table, "children", kind="both", ax=axes[2])
    save(figure, "effects")


def of_scikit_learn():
    """A learning curve and a calibration curve."""
    X, y = load_breast_cancer(return_X_y=True)
    figure = Figure(figsize=(10.5, 4.0), layout="constrained")
    learning, calibration = figure.subplots(1, 2)
    LearningCurveDisplay.from_estimator(
        CO2ForestClassifier(30, random_state=0),
        X,
        y,
        train_sizes=np.linspace(0.1, 1, 6),
        cv=5,
        score_type="both",
        ax=learning,
    )
    rows = train_test_split(X, y, test_size=0.5, random_state=0)
    for model in (
        ObliqueBoostingClassifier(random_state=0),
        RandomForestClassifier(random_state=0),
    ):
        model.fit(rows[0], rows[2])
        CalibrationDisplay.from_estimator(model, rows[1], rows[3], n_bins=6, ax=calibration)
    save(figure, "of_scikit_learn")


if __name__ == "__main__":
    tree()
    importances()
    curves()
    partition()
    effects()
    of_scikit_learn()
