"""
Rows in order of time
=====================

If a model is to predict the future, it must be tested on rows that are later than its training
rows. The same holds for the rows on which a model chooses its weights, or stops early.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.model_selection import KFold, TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline

from skforest import (
    BlendedForestRegressor,
    DateFeatures,
    ManifoldForestRegressor,
)

rng = np.random.default_rng(0)
n = 3 * 365
day = np.arange(n)
level = rng.normal(
    0, 5, size=n
)  # of things that last for weeks, and are not in the table
for t in range(1, n):
    level[t] += 0.95 * level[t - 1]
table = pd.DataFrame({
    "date": pd.Timestamp("2023-01-01") + pd.to_timedelta(day, unit="D"),
    "temperature": 12 - 11 * np.cos(2 * np.pi * day / 365) + rng.normal(0, 3, n),
})  # fmt: skip
demand = 200 - 4 * table["temperature"] + level + rng.normal(0, 5, size=n)
demand -= 30 * (table["date"].dt.day_of_week > 4)
table["a week before"] = demand.shift(7)  # known if we predict a week ahead

# %%
# With folds drawn at random, a model knows the days before and after each test day, which it will
# not in use: the score is too good.

model = make_pipeline(
    DateFeatures(), ManifoldForestRegressor(30, random_state=0)
)
folds = {
    "random folds": KFold(5, shuffle=True, random_state=0),
    "later rows": TimeSeriesSplit(5, test_size=73),
}
for name, cv in folds.items():
    score = cross_val_score(
        model, table, demand, cv=cv, scoring="neg_mean_absolute_error"
    )
    print(f"{name:12} mean absolute error {-score.mean():.1f}")

# %%
# A blend takes ``cv=TimeSeriesSplit()``, so that its weights are found on later rows, too.
# Oblique boosting takes the last rows as ``X_val`` and ``y_val`` of ``fit``, to stop early.

past, future = slice(0, n - 73), slice(n - 73, n)
dates = DateFeatures().fit(table[past])
X, X_future = dates.transform(table[past]), dates.transform(table[future])
members = ["manifold", "boosting", "co2"]
blend = BlendedForestRegressor(members, cv=TimeSeriesSplit(3), random_state=0)
blend.fit(X, demand[past])
print(blend.leaderboard_[["score", "weight"]].round(2))

# %%
# The score of the blend is that of weights that were found on the other folds. As there are only
# three of them, it can be below the scores of members.

# %%
# A forest knows nothing of the order of the rows. Columns such as the demand of a week before tell
# it about the past.

predicted = blend.predict(X_future)
error = np.abs(predicted - demand[future]).mean()
print(f"blend: mean absolute error on the last 73 days {error:.1f}")
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(table["date"][-365:], demand[-365:], color="0.6", label="demand")
ax.plot(table["date"][future], predicted, label="predicted by the blend")
ax.tick_params(axis="x", rotation=30)
ax.legend(fontsize=8)
