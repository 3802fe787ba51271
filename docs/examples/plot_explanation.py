"""
Explanation of predictions
==========================

:func:`skforest.shapley_values` divides a prediction among the columns of the table: the base
value and the values of all columns add up to the prediction.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from skforest import (
    CO2ForestRegressor,
    FeatureImportancesDisplay,
    shapley_values,
)

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = CO2ForestRegressor(50, random_state=0).fit(X_train, y_train)
found = shapley_values(model, X_test, background=X_train[:50])
total = found.base_values + found.values.sum(axis=1)
print("base value and values:", total[:5].round(1))
print("predictions:          ", model.predict(X_test)[:5].round(1))

# %%
# The values of one row show why it has this prediction.

row = model.predict(X_test).argmax()
order = np.abs(found.values[row]).argsort()
colors = np.where(found.values[row, order] > 0, "C1", "C0")
fig, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
ax.barh(X.columns[order], found.values[row, order], color=colors)
ax.set(xlabel="Shapley value", title=f"row with prediction {total[row]:.0f}")

# %%
# The mean absolute values are importances of the columns on the test rows (left). The values of
# one column show how the prediction depends on it (right).

fig, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
importance = np.abs(found.values).mean(axis=0)
display = FeatureImportancesDisplay(importance, feature_names=list(X.columns))
display.plot(ax=axes[0])
axes[0].set_xlabel("mean absolute Shapley value")

j = list(X.columns).index("bmi")
axes[1].scatter(X_test["bmi"], found.values[:, j], s=15)
axes[1].set(xlabel="bmi", ylabel="Shapley value of bmi")

# %%
# With the package ``shap``, the result is a ``shap.Explanation`` that its plots take.
# :doc:`/guide/explain` also describes counterfactuals, prototypes and similar rows.
