"""
A table with categories and missing values
==========================================

``fit`` takes data frames as they are: numbers, strings, categorical dtypes and missing values
need no encoding and no imputation. The prices of used cars are simulated; the mileage is often
missing in old cars.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.inspection import permutation_importance
from sklearn.model_selection import train_test_split

from skforest import FeatureImportancesDisplay, RandomHingeForestRegressor

rng = np.random.default_rng(0)
n = 1500
cars = pd.DataFrame(
    {
        "age": rng.gamma(3, 2.5, n).round(1),
        "mileage": (12000 * rng.gamma(9, 1, n)).round(-3),
        "fuel": rng.choice(["petrol", "diesel", "electric"], n),
        "state": pd.Categorical(
            rng.choice(["poor", "fair", "good"], n), ["poor", "fair", "good"]
        ),
        "doors": rng.choice([3, 5], n),
    }
)
price = 30 * np.exp(-0.1 * cars["age"] - 4e-6 * cars["mileage"])
price *= cars["fuel"].map({"petrol": 1, "diesel": 1.1, "electric": 1.5})
price *= 1 + 0.15 * cars["state"].cat.codes + 0.1 * rng.normal(size=n)
cars["mileage"] = cars["mileage"].mask(
    rng.random(n) < np.where(cars["age"] > 8, 0.5, 0.1)
)
cars["fuel"] = cars["fuel"].mask(rng.random(n) < 0.05)
print(cars.head(4))

# %%
# The forest recognises the two categories by their dtypes.

X_train, X_test, y_train, y_test = train_test_split(cars, price, random_state=0)
forest = RandomHingeForestRegressor(random_state=0).fit(X_train, y_train)
print("categories:", list(cars.columns[forest.is_categorical_]))
print(f"R2 on test rows: {forest.score(X_test, y_test):.3f}")

# %%
# In prediction, missing values are allowed in every column, and so are categories that did not
# occur in training. :doc:`/guide/tables` describes what they become.

new = pd.DataFrame(
    {"age": 4.0, "mileage": [50000, np.nan], "fuel": ["gas", None], "doors": 5}
)
new = new.assign(state="good")[list(cars.columns)]
print("predicted prices in thousands:", forest.predict(new).round(1))

# %%
# Permutation importance shuffles one column of the test rows at a time. It compares columns of
# different kinds; ``feature_importances_`` overstates categories that become several features.

permuted = permutation_importance(forest, X_test, y_test, random_state=0)
fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
FeatureImportancesDisplay(
    permuted.importances_mean,
    spread=permuted.importances_std,
    spread_name="standard deviation over permutations",
    feature_names=list(cars.columns),
).plot(ax=ax)
ax.set_xlabel("decrease of R2 on test rows")
