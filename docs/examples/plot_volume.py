"""
Volumes
=======

``feature_shape=(10, 12, 12)`` stands for a volume of 10 slices with 12 x 12 voxels each; X may
have the shape (n_samples, 10, 12, 12). Here, a volume contains noise and a small ball of brighter
voxels at a random place. In class 1, the ball is in the first half of the slices. The noise is as
large as the difference of a single voxel, but a patch averages it.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier

from skforest import ManifoldForestClassifier


def make_volumes(n_samples, random_state):
    rng = np.random.default_rng(random_state)
    y = rng.integers(0, 2, n_samples)
    X = rng.standard_normal((n_samples, 10, 12, 12))
    place = np.moveaxis(np.indices(X.shape[1:]), 0, -1)
    for volume, label in zip(X, y):
        centre = rng.integers(2, 10, 3)
        centre[0] = rng.integers(1, 4) if label else rng.integers(6, 9)
        volume[np.sum((place - centre) ** 2, axis=3) <= 4] += 1
    return X, y


X, y = make_volumes(300, random_state=0)
X_test, y_test = make_volumes(2000, random_state=1)

models = {
    "manifold forest": ManifoldForestClassifier(
        feature_shape=X.shape[1:], random_state=0
    ),
    "random forest": RandomForestClassifier(random_state=0),
}
for name, model in models.items():
    if name == "random forest":
        X, X_test = X.reshape(len(X), -1), X_test.reshape(len(X_test), -1)
    error = 100 * (1 - model.fit(X, y).score(X_test, y_test))
    print(f"{name:15} test error {error:4.1f} %")

# %%
# Left: a slice through the ball of a sample. Right: importances within this slice.

fig, axes = plt.subplots(1, 2, figsize=(5.6, 3), layout="constrained")
axes[0].imshow(X[y == 1][0].reshape(10, 12, 12)[2], cmap="gray")
axes[0].set_title("a sample of class 1")
volume = models["manifold forest"].feature_importances_.reshape(10, 12, 12)
axes[1].imshow(volume[2])
axes[1].set_title("importances")
for ax in axes:
    ax.set(xticks=[], yticks=[])

# %%
# The manifold forest finds that the slices in the middle say nothing about the class.

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for name, model in models.items():
    importances = model.feature_importances_.reshape(10, 12, 12)
    ax.plot(importances.sum(axis=(1, 2)), marker="o", label=name)
ax.set(xlabel="slice", ylabel="importance", ylim=(0, None))
ax.legend()
