"""
A blend and its leaderboard
===========================

If you do not know which model suits a table, train a blend. It trains several kinds of forests,
predicts each row by models that were not trained on it, and finds the weights with which the mean
of these predictions is best. You may add models of other packages.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

from skforest import BlendedForestRegressor

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

members = ["co2", "hinge", "boosting", ("ridge", RidgeCV())]
blend = BlendedForestRegressor(members, random_state=0).fit(X_train, y_train)
print("score:", blend.score_name_)
board = blend.leaderboard_
print(board[["score", "weight", "fit_seconds"]].round(2))

# %%
# The rows ``constant`` and ``random forest`` are there to compare with; they are not members. The
# blend is better than each of its members on held-out rows. On test rows:

for name, member in blend.members_.items():
    print(f"{name:8} test R2 {member.score(X_test, y_test):.2f}")
print(f"blend    test R2 {blend.score(X_test, y_test):.2f}")

# %%
# In this plot, members have their weight beside the bar.

shown = board.drop("constant").iloc[::-1]
fig, ax = plt.subplots(figsize=(5.5, 3), layout="constrained")
colors = ["C0" if weight > 0 else "0.7" for weight in shown["weight"]]
colors[list(shown.index).index("blend")] = "C1"
bars = ax.barh(shown.index, shown["score"], color=colors)
weights = shown["weight"].map("{:.2f}".format).replace("nan", "")
ax.bar_label(bars, weights, padding=3)
ax.set(xlabel="R2 on held-out rows", title="weights of members")
ax.margins(x=0.12)

# %%
# :doc:`/guide/blend` describes the method, and limits for the time to train and to predict.
