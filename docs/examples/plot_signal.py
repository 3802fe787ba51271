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
fig, axes = plt.subplots(
    2, 1, figsize=(7, 3), sharex=True, layout="constrained"
)
axes[0].imshow(X[[np.argmin(y), np.argmax(y)]], aspect="auto", cmap="gray")
axes[0].set(
    yticks=[0, 1], yticklabels=["class 0", "class 1"], title="two signals"
)
roots = np.vstack([tree.directions().toarray()[0] for tree in list(forest)[:8]])
axes[1].imshow(roots, aspect="auto", cmap="gray")
axes[1].set(
    xlabel="sensor",
    ylabel="tree",
    title="sensors of the first split of eight trees",
)

# %%
# Several signals are an axis without order: ``unordered=(True, False)``. Here, 6 sensors are read
# at 60 times; two of them get a pulse, and the classes differ in which of them gets it first. By
# default, a patch has some random sensors. If single sensors matter, ``max_patch=(1, 16)`` is
# better: patches of one sensor at up to 16 times.


def make_series(n_samples, random_state):
    rng = np.random.default_rng(random_state)
    y = rng.integers(0, 2, n_samples)
    X = rng.standard_normal((n_samples, 6, 60))
    start = rng.uniform(15, 40, n_samples)
    for sensor, at in ((1, start), (4, start + np.where(y, 8, -8))):
        X[:, sensor] += np.exp(-(((np.arange(60) - at[:, None]) / 6) ** 2))
    return X, y


X, y = make_series(400, random_state=0)
X_test, y_test = make_series(2000, random_state=1)
for max_patch in ("auto", (1, 16)):
    model = ManifoldForestClassifier(
        feature_shape=(6, 60),
        unordered=(True, False),
        procedure=ManifoldProcedure(max_patch=max_patch),
        random_state=0,
    )
    error = 100 * (1 - model.fit(X, y).score(X_test, y_test))
    print(f"patches of at most {model.max_patch_}: test error {error:.1f} %")

fig, ax = plt.subplots(figsize=(7, 2.2), layout="constrained")
image = ax.imshow(model.feature_importances_.reshape(6, 60), aspect="auto")
ax.set(xlabel="time", ylabel="sensor", title="importances")
fig.colorbar(image)

# %%
# :doc:`/guide/manifold` describes all parameters.
