"""Write simulated rows in place of the data sets that quick runs of the benchmarks read.

    python .ci/stand_ins.py FOLDER

Nightly runs then need no download, and a benchmark that fails has a defect of its own.
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification, make_regression

TABLES = ("pima", "german_credit", "magic", "adult")


def classes(n_rows, n_features, n_classes):
    """Rows as bytes, which all data sets of images and letters are."""
    X, y = make_classification(
        n_rows, n_features, n_informative=8, n_classes=n_classes, random_state=0
    )
    return np.clip(128 + 20 * X, 0, 255).astype(np.uint8), y


folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
for name, n_features, n_classes in (
    ("mnist", 784, 10), ("letter_libsvm", 16, 26), ("usps", 256, 10), ("pendigits", 16, 10),
    ("satimage", 36, 6), ("madelon", 500, 2), ("ucr_ecg5000", 140, 5), ("ucr_gunpoint", 150, 2),
    ("ucr_swedishleaf", 128, 10),
):  # fmt: skip
    X, y = classes(1000, n_features, n_classes)
    split = {"X_train": X[:700], "y_train": y[:700], "X_test": X[700:], "y_test": y[700:]}
    np.savez(folder / f"{name}.npz", **split)
X, y = classes(16_200, 16, 26)  # the first 16000 rows train
np.savez(folder / "letter.npz", X=X, y=y)
rng = np.random.default_rng(0)
X = rng.integers(0, 3, (55_400, 42)).astype(np.int8)  # 55000 rows train
np.savez(folder / "connect4.npz", X=X, y=(X[:, 0] + X[:, 1] > 2) + X[:, 2] // 2)
X = rng.integers(1, 14, (19_000, 10)).astype(np.int8)  # 18757 rows train
np.savez(folder / "poker_train.npz", X=X, y=(X[:, 1] == X[:, 3]).astype(int))
X, y = make_regression(4177, 8, random_state=0)  # 3133 rows train
X[:, 0] = rng.integers(0, 3, 4177)
np.savez(folder / "abalone.npz", X=X.astype(np.float32), y=np.clip(10 + y / 50, 1, 29).round())
labels = (np.indices((30, 512, 512)).sum(axis=0) // 16 % 2).astype(np.uint8)
noise = rng.integers(0, 100, labels.shape, dtype=np.uint8)
np.savez(folder / "isbi2012.npz", images=150 * labels + noise, labels=labels)
for name in TABLES:
    X, y = classes(400, 12, 2)
    X = X.astype(float)
    X[:, :2] = rng.integers(0, 5, (400, 2))  # categories
    np.savez(folder / f"{name}.npz", X=X, y=y, categorical=np.arange(12) < 2)
for name in ("reg_airfoil", "reg_pol", "reg_concrete", "reg_kin8nm"):
    X, y = make_regression(400, 8, random_state=0)
    np.savez(folder / f"{name}.npz", X=X, y=y, categorical=np.zeros(8, dtype=bool))
