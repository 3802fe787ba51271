"""Write simulated rows in place of the data sets that quick runs of the benchmarks read.

    python .ci/stand_ins.py FOLDER

Nightly runs then need no download, and a benchmark that fails has a defect of its own.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification, make_regression


def classes(n_rows, n_features, n_classes):
    """Rows as bytes, which all data sets of images and letters are."""
    X, y = make_classification(
        n_rows, n_features, n_informative=8, n_classes=n_classes, random_state=0
    )
    return np.clip(128 + 20 * X, 0, 255).astype(np.uint8), y


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, n_features, n_classes in (("mnist", 784, 10), ("letter_libsvm", 16, 26)):
    X, y = classes(1000, n_features, n_classes)
    split = {"X_train": X[:700], "y_train": y[:700], "X_test": X[700:], "y_test": y[700:]}
    np.savez(folder / f"{name}.npz", **split)
X, y = classes(16_200, 16, 26)  # the first 16000 rows train
np.savez(folder / "letter.npz", X=X, y=y)
X, y = classes(400, 12, 2)
np.savez(folder / "pima.npz", X=X.astype(float), y=y, categorical=np.zeros(12, dtype=bool))
X, y = make_regression(400, 5, random_state=0)
np.savez(folder / "reg_airfoil.npz", X=X, y=y, categorical=np.zeros(5, dtype=bool))
