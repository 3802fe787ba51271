"""
Signals of a ring of sensors
============================

Manifold forests split on patches of neighbouring features if they know the layout of the
features: ``feature_shape=100`` stands for a signal of 100 values. Here, 100 sensors on a circle
report whether something is in front of them. There are two objects of 5 sensors each in class 0,
and of 4 and 6 sensors in class 1. ``wrap=True`` tells the forest that the last sensor is a
neighbour of the first.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier

from skforest import ManifoldForestClassifier, ManifoldProcedure


def make_circles(n_samples, random_state):
    rng = np.random.default_rng(random_state)
    y = rng.integers(0, 2, n_samples)
    X = np.zeros((n_samples, 100))
    for signal, label in zip(X, y):
        first = rng.integers(100)
        second = first + rng.integers(15, 85)
        signal[np.arange(first, first + 5 - label) % 100] = 1
        signal[np.arange(second, second + 5 + label) % 100] = 1
    return X, y


X, y = make_circles(400, random_state=0)
X_test, y_test = make_circles(2000, random_state=1)

models = {
    "manifold forest, patches on a circle": ManifoldForestClassifier(
        feature_shape=100,
        wrap=True,
        procedure=ManifoldProcedure(contrast="sum", max_patch=15),
        random_state=0,
    ),
    "manifold forest, no layout": ManifoldForestClassifier(random_state=0),
    "random forest": RandomForestClassifier(random_state=0),
}
for name, model in models.items():
    error = 100 * (1 - model.fit(X, y).score(X_test, y_test))
    print(f"{name:37} test error {error:4.1f} %")

# %%
# The directions of the splits show the patches: white sensors are added up. The first row has the
# signals of two samples.

forest = models["manifold forest, patches on a circle"].forest_
fig, axes = plt.subplots(2, 1, figsize=(7, 3), sharex=True, layout="constrained")
axes[0].imshow(X[[np.argmin(y), np.argmax(y)]], aspect="auto", cmap="gray")
axes[0].set(yticks=[0, 1], yticklabels=["class 0", "class 1"], title="two signals")
roots = np.vstack([tree.directions().toarray()[0] for tree in list(forest)[:8]])
axes[1].imshow(roots, aspect="auto", cmap="gray")
axes[1].set(xlabel="sensor", ylabel="tree", title="sensors of the first split of eight trees")

# %%
# Several channels are an axis without order: ``feature_shape=(n_channels, n_times)`` and
# ``unordered=(True, False)``. :doc:`/guide/manifold` describes all parameters.
