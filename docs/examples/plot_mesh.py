"""
Neighbours on a mesh
====================

Features need not lie on a grid. Here, they are values at 400 points of a sphere, such as
temperatures on the Earth or activity on the surface of a brain. ``feature_graph`` tells a manifold
forest which points are neighbours; a patch then has all points at most a few steps from a random
one. The classes differ in the width of a bump that may be anywhere, in noise of nearly its height.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy import sparse
from scipy.spatial import ConvexHull
from sklearn.ensemble import RandomForestClassifier

from skforest import ManifoldForestClassifier

n_points = 400
height = 1 - (2 * np.arange(n_points) + 1) / n_points
# points on a spiral cover a sphere evenly
angle = np.pi * (1 + np.sqrt(5)) * np.arange(n_points)
radius = np.sqrt(1 - height**2)
points = np.stack(
    [radius * np.cos(angle), radius * np.sin(angle), height], axis=1
)

triangles = ConvexHull(points).simplices
ends = triangles[:, [0, 1, 2]].ravel(), triangles[:, [1, 2, 0]].ravel()
edges = sparse.coo_array(
    (np.ones(3 * len(triangles)), ends), shape=(n_points, n_points)
)
graph = edges + edges.T  # an adjacency matrix is symmetric


def make_bumps(n_samples, random_state):
    rng = np.random.default_rng(random_state)
    y = rng.integers(0, 2, n_samples)
    centre = points[rng.integers(n_points, size=n_samples)]
    width = np.where(y, 0.45, 0.25)[:, None]
    X = 1.5 * np.exp((centre @ points.T - 1) / width**2)
    return X + rng.standard_normal(X.shape), y


X, y = make_bumps(600, random_state=0)
X_test, y_test = make_bumps(2000, random_state=1)
models = {
    "manifold forest, patches on the mesh": ManifoldForestClassifier(
        feature_graph=graph, random_state=0
    ),
    "manifold forest, no layout": ManifoldForestClassifier(random_state=0),
    "random forest": RandomForestClassifier(random_state=0),
}
for name, model in models.items():
    error = 100 * (1 - model.fit(X, y).score(X_test, y_test))
    print(f"{name:37} test error {error:4.1f} %")

# %%
# A sample with a wide bump, and the directions of three splits: values at red points are added,
# and those at blue points are subtracted.

tree = models["manifold forest, patches on the mesh"].forest_[0]
directions = tree.directions().toarray()
pictures = {"a sample of class 1": X[y == 1][0]}
pictures |= {f"split {k}": directions[k] for k in (0, 1, 2)}
fig, axes = plt.subplots(
    2, 2, figsize=(6, 5), layout="constrained", subplot_kw={"projection": "3d"}
)
for ax, (title, values) in zip(axes.flat, pictures.items()):
    x, y, z = points[(graph @ values).argmax()]  # is in front
    ax.view_init(np.degrees(np.arcsin(z)), np.degrees(np.arctan2(y, x)))
    surface = ax.plot_trisurf(
        *points.T, triangles=triangles, cmap="RdBu_r", edgecolor="0.8"
    )
    surface.set_array(values[triangles].mean(axis=1))
    surface.set(
        clim=(-np.abs(values).max(), np.abs(values).max()), linewidth=0.3
    )
    ax.set_box_aspect((1, 1, 1), zoom=1.3)
    ax.set_title(title)
    ax.set_axis_off()

# %%
# :doc:`/guide/manifold` describes the patches of a graph.
