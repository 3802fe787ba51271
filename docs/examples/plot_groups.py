"""
Rows that belong together
=========================

If several rows are measurements of one patient, machine or day, cross-validation has to keep them
together; otherwise models that memorise groups appear to be better than they are. A blend finds
its weights by cross-validation, and takes the ``groups`` in ``fit``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.model_selection import (
    GroupKFold,
    GroupShuffleSplit,
    KFold,
    cross_val_score,
)

from skforest import (
    BlendedForestRegressor,
    ManifoldForestRegressor,
    RandomHingeForestRegressor,
)

rng = np.random.default_rng(0)
groups = np.repeat(np.arange(40), 10)  # 40 machines, 10 measurements of each
# three columns are properties of the machine
machine = rng.normal(size=(40, 3))[groups]
X = np.column_stack([machine, rng.normal(size=(400, 3))])
y = X[:, 3] + 0.5 * X[:, 4] + rng.normal(size=40)[groups]
y += 0.3 * rng.normal(size=400)

forest = ManifoldForestRegressor(30, random_state=0)
at_random = cross_val_score(
    forest, X, y, cv=KFold(5, shuffle=True, random_state=0)
)
by_machine = cross_val_score(forest, X, y, cv=GroupKFold(5), groups=groups)
print(f"manifold forest, rows divided at random: R2 {at_random.mean():.2f}")
print(f"manifold forest, machines kept together: R2 {by_machine.mean():.2f}")

# %%
# The weights of the members are found without groups first, then with groups.

train, test = next(GroupShuffleSplit(1, random_state=0).split(X, y, groups))
members = [ManifoldForestRegressor(), RandomHingeForestRegressor(n_bags=2)]
scores = {}
for name, passed in {
    "without groups": None,
    "with groups": groups[train],
}.items():
    blend = BlendedForestRegressor(members, random_state=0)
    blend.fit(X[train], y[train], groups=passed)
    scores[name] = [blend.score_, blend.score(X[test], y[test])]
    board = blend.leaderboard_[["score", "weight"]]
    print(f"{name}:", board.round(2), "", sep="\n")

# %%
# Without groups, the weights go to members that recognise the machines, and the score on held-out
# rows is much too high.

fig, ax = plt.subplots(figsize=(5, 2.8), layout="constrained")
place = np.arange(2)
held_out, new = np.transpose(list(scores.values()))
for offset, label, values in (
    (-0.2, "held-out rows, score_", held_out),
    (0.2, "new machines", new),
):
    bars = ax.barh(place + offset, values, 0.35, label=label)
    ax.bar_label(bars, fmt="%.2f", padding=3)
ax.axvline(0, color="black", linewidth=0.8)
ax.set(yticks=place, yticklabels=list(scores), ylim=(1.5, -0.5))
ax.set_xlabel("R2 of the blend")
ax.margins(x=0.15)
fig.legend(loc="outside lower center", ncols=2)

# %%
# In ``cross_validate`` and in pipelines, groups reach the blend by metadata routing:
# ``blend.set_fit_request(groups=True)``. Oblique boosting takes rows of other groups for early
# stopping as ``X_val`` and ``y_val``, see :doc:`/guide/boosting`.
