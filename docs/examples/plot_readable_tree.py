"""
A tree to read
==============

A single tree can be read, if it is shallow. Its splits may use one feature each, or several: then
fewer splits are necessary. Joint training followed by refinement gives the most accurate shallow
trees.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.tree import DecisionTreeClassifier

from skforest import NonGreedyTreeClassifier, PartitionDisplay, export_text

wine = load_wine(as_frame=True)
X, y = wine.data[["flavanoids", "color_intensity"]], wine.target_names[wine.target]

print("accuracy in cross-validation")
for depth in (2, 3):
    single = DecisionTreeClassifier(max_depth=depth, random_state=0)
    tree = NonGreedyTreeClassifier(max_depth=depth, refine="alternating", random_state=0)
    scores = [cross_val_score(model, X, y, cv=10).mean() for model in (single, tree)]
    print("depth {}: {:.3f} with single features, {:.3f} with both".format(depth, *scores))

# %%
# :func:`~skforest.export_text` writes the rules, in the units of the table.

tree = NonGreedyTreeClassifier(max_depth=2, refine="alternating", random_state=0).fit(X, y)
print(export_text(tree))

# %%
# :class:`~skforest.PartitionDisplay` shows the leaves in the plane of two features, and the tree
# beside them. :func:`~skforest.plot_tree` draws trees of more features.

PartitionDisplay.from_estimator(tree, X, y, tree=0)
plt.show()
