"""
Imbalanced classes
==================

In these data, 3 % of the rows belong to the second class. ``class_weight="balanced"`` gives both
classes the same total weight. The alternative is to keep the probabilities, and to choose the
threshold on cross-validated predictions with scikit-learn's ``TunedThresholdClassifierCV``.
"""

import matplotlib.pyplot as plt
from sklearn.datasets import make_classification
from sklearn.metrics import (
    PrecisionRecallDisplay,
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
)
from sklearn.model_selection import TunedThresholdClassifierCV, train_test_split

from skforest import ManifoldForestClassifier

X, y = make_classification(
    3000,
    n_informative=6,
    n_redundant=4,
    weights=[0.97],
    class_sep=1.2,
    flip_y=0,
    random_state=0,
)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, stratify=y, random_state=0
)

forest = ManifoldForestClassifier(random_state=0)
models = {
    "default": forest,
    "class_weight": ManifoldForestClassifier(
        class_weight="balanced", random_state=0
    ),
    "threshold": TunedThresholdClassifierCV(
        forest, scoring="f1", cv=2, random_state=0
    ),
}
plt.style.use("tableau-colorblind10")
fig, ax = plt.subplots(figsize=(5, 4), layout="constrained")
print("                 F1  balanced accuracy  average precision")
for name, model in models.items():
    predicted = model.fit(X_train, y_train).predict(X_test)
    proba = model.predict_proba(X_test)[:, 1]
    scores = [
        score(y_test, predicted)
        for score in (f1_score, balanced_accuracy_score)
    ]
    scores.append(average_precision_score(y_test, proba))
    print("{:12} {:6.3f} {:18.3f} {:18.3f}".format(name, *scores))
    if name != "threshold":
        PrecisionRecallDisplay.from_predictions(y_test, proba, name=name, ax=ax)
ax.set(xlabel="recall", ylabel="precision")

# %%
# Weights change the probabilities: they are those of a population in which both classes are
# equally frequent. If you need probabilities of your population, leave ``class_weight`` out and
# change the threshold.
