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

from skforest import CO2ForestRegressor, FeatureImportancesDisplay, shapley_values

X, y = load_diabetes(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
model = CO2ForestRegressor(50, random_state=0).fit(X_train, y_train)
found = shapley_values(model, X_test, background=X_train[:50])
print("shape of the values:", found.values.shape)
total = found.base_values + found.values.sum(axis=1)
print("add up to the predictions:", np.allclose(total, model.predict(X_test)))

# %%
# The mean absolute values are importances of the columns on the test rows (left). The values of
# one column show how the prediction depends on it (middle), and those of one row why it has this
# prediction (right).

fig, axes = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
importance = np.abs(found.values).mean(axis=0)
FeatureImportancesDisplay(importance, feature_names=list(X.columns)).plot(ax=axes[0])
axes[0].set_xlabel("mean absolute Shapley value")

j = list(X.columns).index("bmi")
axes[1].scatter(X_test["bmi"], found.values[:, j], s=15)
axes[1].set(xlabel="bmi", ylabel="Shapley value of bmi")

row = model.predict(X_test).argmax()
order = np.abs(found.values[row]).argsort()
colors = np.where(found.values[row, order] > 0, "C1", "C0")
axes[2].barh(X.columns[order], found.values[row, order], color=colors)
axes[2].set(xlabel="Shapley value", title=f"a row with the prediction {total[row]:.0f}")

# %%
# With the package ``shap``, the result is a ``shap.Explanation`` that its plots take.
# :doc:`/guide/explain` also describes counterfactuals, prototypes and similar rows.
