"""
Data that arrive in parts
=========================

Only :class:`~skforest.RandomHingeForestClassifier` and
:class:`~skforest.RandomHingeForestRegressor` have ``partial_fit``, which trains on a part of the
rows and does not keep them. All other estimators need the whole table in memory in ``fit``. The
first part determines the scaling of the columns, so it should resemble the others.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from skforest import ManifoldForestClassifier, RandomHingeForestClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

stream = RandomHingeForestClassifier(random_state=0)
scores = []
for _ in range(2):  # a second pass, if the data can be read again
    for part in np.array_split(np.arange(len(X_train)), 12):
        stream.partial_fit(X_train[part], y_train[part], classes=np.arange(10))
        scores.append(stream.score(X_test, y_test))

# %%
# The learning rate of ``partial_fit`` is constant, so the score varies from part to part. The five
# bags that are the default reduce this; so does a smaller ``learning_rate``.
#
# ``warm_start=True`` is something else: ``fit`` keeps the trees and adds those missing to
# ``n_estimators``. All trees could see the same rows, or, as here, each set of trees another part
# of them. Older trees are never changed, so this is no substitute for training on all rows.

forest = ManifoldForestClassifier(
    feature_shape=(8, 8), warm_start=True, random_state=0
)
grown = []
for k, part in enumerate(np.array_split(np.arange(len(X_train)), 4), start=1):
    forest.set_params(n_estimators=25 * k).fit(X_train[part], y_train[part])
    grown.append(forest.score(X_test, y_test))
whole = ManifoldForestClassifier(feature_shape=(8, 8), random_state=0).fit(
    X_train, y_train
)

plt.style.use("tableau-colorblind10")
fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.plot(np.arange(1, 25) / 12, scores, ".-", label="hinge forest, partial_fit")
ax.plot(
    np.arange(1, 5) / 4,
    grown,
    "s--",
    label="manifold forest, 25 more trees on each quarter",
)
score = whole.score(X_test, y_test)
ax.axhline(
    score,
    color="black",
    linestyle=":",
    label="manifold forest, fit on all rows",
)
ax.set(
    xlabel="passes over the training rows",
    ylabel="test accuracy",
    ylim=(0.8, 1),
)
ax.legend(fontsize=8)
