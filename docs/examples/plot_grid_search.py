"""
Grid search
===========

All estimators have ``get_params`` and ``set_params``, so that the searches of scikit-learn take
them. :doc:`/guide/faq` lists the parameters that are worth tuning; for images these are
``contrast`` and ``max_patch`` of a manifold forest. They are parameters of its ``procedure``, so
that their names begin with ``procedure__``.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, train_test_split

from skforest import ManifoldForestClassifier, ManifoldProcedure

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

forest = ManifoldForestClassifier(
    30, feature_shape=(8, 8), procedure=ManifoldProcedure(), random_state=0
)
grid = {
    "procedure__contrast": ["sum", "edge", "difference"],
    "procedure__max_patch": [2, 3, 5],
}
search = GridSearchCV(forest, grid, cv=3).fit(X_train, y_train)
print("best parameters:", search.best_params_)
print(f"accuracy in cross-validation {search.best_score_:.3f}")
print(f"accuracy on test rows {search.score(X_test, y_test):.3f}")

# %%
# The search trains few trees, because that is sufficient to compare the settings. The final model
# may have more.

best = search.best_estimator_.set_params(n_estimators=300).fit(X_train, y_train)
print(f"300 trees: accuracy on test rows {best.score(X_test, y_test):.3f}")

errors = 100 * (1 - search.cv_results_["mean_test_score"].reshape(3, 3))
fig, ax = plt.subplots(figsize=(4.5, 3), layout="constrained")
image = ax.imshow(errors, cmap="viridis_r")
ax.set(xticks=range(3), xticklabels=[2, 3, 5], xlabel="max_patch")
ax.set(
    yticks=range(3),
    yticklabels=["sum", "edge", "difference"],
    ylabel="contrast",
)
fig.colorbar(image, label="error in cross-validation, %")
for i, j in np.ndindex(3, 3):
    style = {"ha": "center", "va": "center", "backgroundcolor": "white"}
    ax.text(j, i, f"{errors[i, j]:.1f}", **style)
