"""
A tree to read
==============

A single tree can be read, if it is shallow. Its splits may use one feature each, or several: then
fewer splits are necessary. A CO2 forest of one tree has such splits, and ``refine="alternating"``
makes shallow trees more accurate. The other parameters say that the tree compares all features and
is trained on all rows.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

from skforest import (
    CO2ForestClassifier,
    PartitionDisplay,
    export_text,
    plot_tree,
)

wine = load_wine(as_frame=True)
X, y = (
    wine.data[["flavanoids", "color_intensity"]],
    wine.target_names[wine.target],
)

whole = {
    "objective": "co2",
    "max_features": None,
    "bootstrap": False,
    "holdout": 0.0,
}
print("accuracy in cross-validation")
for depth in (2, 3):
    single = DecisionTreeClassifier(max_depth=depth, random_state=0)
    tree = CO2ForestClassifier(
        1, max_depth=depth, refine="alternating", **whole, random_state=0
    )
    scores = [
        cross_val_score(model, X, y, cv=10).mean() for model in (single, tree)
    ]
    print(
        "depth {}: {:.3f} with single features, {:.3f} with both".format(
            depth, *scores
        )
    )

# %%
# :func:`~skforest.export_text` writes the rules, in the units of the table.

tree = CO2ForestClassifier(
    1, max_depth=2, refine="alternating", **whole, random_state=0
)
tree = tree.fit(X, y)
print(export_text(tree))

# %%
# :class:`~skforest.PartitionDisplay` shows the predictions in the plane of two features.

fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
display = PartitionDisplay.from_estimator(tree, X, y, ax=ax)

# %%
# :func:`~skforest.plot_tree` draws the tree, which may have any number of features.

fig, ax = plt.subplots(figsize=(8, 4), layout="constrained")
artists = plot_tree(tree, ax=ax)
