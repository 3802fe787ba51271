"""
Survival times with a loss of your own
======================================

Some targets are only known to be larger than a number: a customer who has not left yet, a patient
who left the study. Oblique boosting minimises any loss that you write down as a `Loss`, here the
one of an accelerated failure time model, in which the logarithm of a time is normal around the raw
prediction. Times that are only lower bounds (censored times) have a minus sign in ``y``.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from skforest import Loss, ObliqueBoostingRegressor


class LogNormalTime(Loss):
    def __init__(self, sigma=0.5):
        self.sigma = sigma

    def loss(self, y, raw):
        z = (np.log(np.abs(y)) - raw) / self.sigma
        return np.where(y > 0, z**2 / 2, -norm.logsf(z))

    def gradient_hessian(self, y, raw):
        z = (np.log(np.abs(y)) - raw) / self.sigma
        hazard = np.exp(norm.logpdf(z) - norm.logsf(z))
        slope = np.where(y > 0, z, hazard)
        curvature = np.where(y > 0, 1.0, hazard * (hazard - z))
        return -slope / self.sigma, curvature / self.sigma**2

    def initial(self, y, weight):
        return np.average(np.log(np.abs(y)), axis=0, weights=weight)

    def inverse_link(self, raw):
        return np.exp(raw)


# %%
# Simulated times, half of which are censored. Long times are censored more often, so that both
# usual ways out are wrong: leaving these rows out, and taking the bounds for the times.

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, size=(3000, 4))
median = np.exp(1 + X[:, 0] + X[:, 1] * (X[:, 2] > 0))
time = median * np.exp(0.5 * rng.normal(size=3000))
end = rng.exponential(4, size=3000)
seen = np.minimum(time, end)
is_known = time <= end
print(f"{1 - is_known.mean():.0%} of the times are censored")

test = np.arange(3000) >= 2000
X_train, y_train = X[~test], np.where(is_known, seen, -seen)[~test]
known = y_train > 0
loss = LogNormalTime()
models = {
    "censored times are bounds": (X_train, y_train),
    "without them": (X_train[known], y_train[known]),
    "bounds taken for times": (X_train, np.abs(y_train)),
}
for name, (inputs, target) in models.items():
    model = ObliqueBoostingRegressor(loss=loss, random_state=0).fit(
        inputs, target
    )
    models[name] = model.predict(X[test])

# %%
# Predictions are medians of the times. Only the first model is right for long times.

figure, axes = plt.subplots(
    1, 3, figsize=(10, 3.6), sharex=True, sharey=True, layout="constrained"
)
ends = [median.min(), median.max()]
for ax, (name, predicted) in zip(axes, models.items()):
    ax.loglog(median[test], predicted, ".", markersize=3, alpha=0.5)
    ax.loglog(ends, ends, color="black", linewidth=1)
    factor = np.exp(np.median(np.abs(np.log(predicted / median[test]))))
    ax.set(
        title=f"{name}:\nwrong by a factor of {factor:.2f}",
        xlabel="true median",
    )
axes[0].set_ylabel("prediction")
