"""
Compare models, and describe the best one
=========================================

`leaderboard` compares fitted estimators on rows that they were not trained on, with a random
forest and a constant beside them. `describe` writes a report about one of them: how its columns
were read, its scores with intervals, what it learned, and three predictions explained.
"""

from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from skforest import (
    ObliqueBoostingRegressor,
    RandomHingeForestRegressor,
    describe,
    leaderboard,
)

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X["sex"] = X["sex"].map({1.0: "female", 2.0: "male"})
X, X_test, y, y_test = train_test_split(X, y, random_state=0)
models = {
    "boosting": ObliqueBoostingRegressor(random_state=0).fit(X, y),
    "hinge forest": RandomHingeForestRegressor(random_state=0).fit(X, y),
}

# %%
# A larger score is better: errors have a minus sign.

leaderboard(models, X_test, y_test, X_train=X, y_train=y).round(3)

# %%
# The report is a page that loads nothing from the network. Its method `save` writes it to a file,
# and `print` shows its tables in a terminal.

describe(models["boosting"], X_test, y_test, X_train=X, y_train=y)

# sphinx_gallery_thumbnail_path = "figures/report.png"
