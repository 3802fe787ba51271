"""
Prediction intervals
====================

``loss="quantile"`` predicts quantiles of the target. Oblique boosting takes several levels at
once; they do not cross. With early stopping, which is the default, they are calibrated on
held-out rows.
"""

import matplotlib.pyplot as plt
import numpy as np

from skforest import ObliqueBoostingRegressor


def make_data(n_samples, random_state):
    rng = np.random.default_rng(random_state)
    x = rng.uniform(0, 10, n_samples)
    return x[:, None], np.sin(x) + (0.1 + 0.06 * x) * rng.normal(size=n_samples)


X, y = make_data(600, random_state=0)
X_test, y_test = make_data(4000, random_state=1)
model = ObliqueBoostingRegressor(
    loss="quantile", quantile=[0.1, 0.5, 0.9], random_state=0
)
low, median, high = model.fit(X, y).predict(X_test).T
inside = (low <= y_test) & (y_test <= high)
print(f"share of test rows in the interval: {inside.mean():.3f}, expected 0.8")

# %%
# Half of the calibration is in proportion to the width of the interval. Where the noise differs,
# as here, also look at the share in ranges of the rows.

for start in (0, 5):
    rows = (X_test[:, 0] >= start) & (X_test[:, 0] < start + 5)
    print(f"x from {start} to {start + 5}: {inside[rows].mean():.3f}")

# %%
# ``predict_interval`` moves the quantiles until they contain a given share of held-out rows. Any
# other regressor has intervals, too, from the errors of held-out rows with similar predictions;
# here, the noise does not depend on the prediction. See :doc:`/guide/uncertainty`.

mean = ObliqueBoostingRegressor(random_state=0).fit(X, y)
for name, regressor in {"quantiles": model, "mean": mean}.items():
    low_moved, high_moved = regressor.predict_interval(X_test, alpha=0.2).T
    inside = (low_moved <= y_test) & (y_test <= high_moved)
    width = high_moved - low_moved
    print(
        f"{name}: {inside.mean():.3f} in the interval, mean width {width.mean():.2f}"
    )

# %%
# The quantiles follow the noise.

order = X_test[:, 0].argsort()
fig, ax = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
ax.plot(X[:, 0], y, ".", color="0.6", markersize=3, label="training rows")
ax.fill_between(
    X_test[order, 0], low[order], high[order], alpha=0.3, label="10 % to 90 %"
)
ax.plot(X_test[order, 0], median[order], label="median")
ax.set(xlabel="x", ylabel="y")
ax.legend(loc="lower left", ncols=3, fontsize=8)

# %%
# ``score`` is the mean of scikit-learn's ``d2_pinball_score`` over the levels. See
# :doc:`/guide/boosting` for other losses.

print(f"d2_pinball_score: {model.score(X_test, y_test):.3f}")
