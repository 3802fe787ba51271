"""
Calibrated probabilities
========================

A probability is calibrated if it equals the share of rows of the class among the rows with this
prediction. scikit-learn's ``CalibrationDisplay`` shows it, on rows that were not used for
training. A quarter of the labels is drawn at random here.
"""

import matplotlib.pyplot as plt
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from skforest import CO2ForestClassifier, RandomHingeForestClassifier

X, y = make_classification(4000, n_informative=8, flip_y=0.25, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, train_size=800, random_state=0
)

forest = CO2ForestClassifier(30, random_state=0)
models = {
    "hinge forest, calibrate=False": RandomHingeForestClassifier(
        n_bags=2, calibrate=False, random_state=0
    ),
    "hinge forest": RandomHingeForestClassifier(n_bags=2, random_state=0),
    "CO2 forest": forest,
    "calibrated CO2 forest": CalibratedClassifierCV(forest, cv=3),
}
plt.style.use("tableau-colorblind10")
fig, ax = plt.subplots(figsize=(5, 4.4), layout="constrained")
for (name, model), marker in zip(models.items(), "os^D"):
    proba = model.fit(X_train, y_train).predict_proba(X_test)[:, 1]
    accuracy, loss = model.score(X_test, y_test), log_loss(y_test, proba)
    print(f"{name:29} accuracy {accuracy:.3f}, log loss {loss:.3f}")
    CalibrationDisplay.from_predictions(
        y_test, proba, name=name, marker=marker, ax=ax
    )
ax.set(
    xlabel="predicted probability of class 1",
    ylabel="share of class 1",
    aspect="equal",
)
ax.legend(fontsize=8)

# %%
# A hinge forest fits some of the noise, so that its probabilities would be too close to 0 and 1.
# By default, it corrects them by a temperature, which it finds on held-out rows. The CO2 forest
# has 30 trees only, and gives some rows the probability 0 or 1. ``CalibratedClassifierCV``
# calibrates any classifier.
