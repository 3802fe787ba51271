"""
Images
======

With ``feature_shape``, a manifold forest splits on patches of an image instead of single pixels.
Train it on raw pixels. As usual in scikit-learn, an image is a row of X here; the shape
(n_samples, height, width) is possible, too.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from skforest import (
    CO2ForestClassifier,
    FeatureImportancesDisplay,
    ManifoldForestClassifier,
)

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, random_state=0
)

models = {
    "manifold forest": ManifoldForestClassifier(
        feature_shape=(8, 8), random_state=0
    ),
    "CO2 forest": CO2ForestClassifier(random_state=0),
    "random forest": RandomForestClassifier(random_state=0),
}
for name, model in models.items():
    model.fit(X_train, y_train)
    error = 100 * (1 - model.score(X_test, y_test))
    print(f"{name:16} test error {error:.2f} %")

# %%
# Both panels show the importances of the pixels. Patches spread them over neighbours.

fig, axes = plt.subplots(1, 2, figsize=(7, 2.8), layout="constrained")
for ax, name in zip(axes, ["manifold forest", "random forest"]):
    importances = models[name].feature_importances_
    FeatureImportancesDisplay(importances, feature_shape=(8, 8)).plot(ax=ax)
    ax.set_title(name)

# %%
# :doc:`/guide/choosing` compares the estimators on larger images. Where objects may appear
# anywhere in an image, use a neural network.
