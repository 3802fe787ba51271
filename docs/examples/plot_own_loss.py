"""
A loss of your own
==================

Often, errors in one direction cost more than in the other. A subclass of :class:`skforest.Loss`
says what an error costs, with its first and second derivative, and the model minimises that. Here,
each unit that is missing in a shop costs five times as much as a unit that is left over.
"""

import matplotlib.pyplot as plt
import numpy as np

from skforest import Loss, ObliqueBoostingRegressor


class Shortage(Loss):
    """Five times the squared error where the prediction is too low."""

    def loss(self, y, raw):
        return np.where(y > raw, 5.0, 1.0) * (y - raw) ** 2

    def gradient_hessian(self, y, raw):
        weight = np.where(y > raw, 5.0, 1.0)
        return 2 * weight * (raw - y), 2 * weight


def make_data(n_samples, random_state):
    rng = np.random.default_rng(random_state)
    x = rng.uniform(0, 10, n_samples)
    y = 20 + 8 * np.sin(x) + (1 + 0.6 * x) * rng.normal(size=n_samples)
    return x[:, None], y


X, y = make_data(600, random_state=0)
X_test, y_test = make_data(4000, random_state=1)
cost = Shortage()
models = {
    "squared error": ObliqueBoostingRegressor(random_state=0),
    "own loss": ObliqueBoostingRegressor(loss=cost, random_state=0),
}
for name, model in models.items():
    predicted = model.fit(X, y).predict(X_test)
    short = np.mean(y_test > predicted)
    mean = cost.loss(y_test, predicted).mean()
    print(f"{name:13} mean cost {mean:.1f}, short in {short:.0%} of the rows")

# %%
# The model with the loss predicts more where the demand is uncertain.

grid = np.linspace(0, 10, 300)[:, None]
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(X[:, 0], y, ".", color="0.7", markersize=3)
for (name, model), style in zip(models.items(), ("-", "--")):
    ax.plot(grid[:, 0], model.predict(grid), style, label=name)
ax.set(xlabel="x", ylabel="demand")
ax.legend(fontsize=8)

# %%
# Hinge forests, CO2 forests and non-greedy trees take the same losses, and so do classifiers. The
# built-in losses of :doc:`/guide/boosting` are faster.
