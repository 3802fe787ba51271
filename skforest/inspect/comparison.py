"""Scores of several fitted estimators on the same rows."""

import pickle
import time
import warnings
from functools import partial

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.metrics import get_scorer
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d

from ..blend.blend import MEMBERS
from ..blend.leaderboard import CONSTANT, FOREST
from ..estimators.prediction import is_blend
from ..estimators.targets import check_labels
from ..estimators.unwrap import rewrapped, unwrapped
from ..table.dates import DateFeatures
from ..table.frames import DATE, as_frame, read_table

# Default metrics of classifiers and regressors: names of scikit-learn's scorers.
METRICS = {
    True: ("accuracy", "neg_log_loss", "roc_auc_ovr"),
    False: ("r2", "neg_root_mean_squared_error", "neg_mean_absolute_error"),
}
N_FOLDS = 5  # of the rows, where baselines have no rows of their own
TIMED = 3  # calls of predict, the fastest of which counts


def leaderboard(models, X, y, *, metrics=None, X_train=None, y_train=None, sample_weight=None):
    """Compare fitted estimators on the same rows, with a constant and a random forest beside them.

    Parameters
    ----------
    models : estimator, list of estimator or dict of str to estimator
        Fitted classifiers or regressors, of this package or any other that predicts `X`. A single
        blend, also at the end of a pipeline, is compared with its members of a positive weight.
    X : {array-like, dataframe} of shape (n_samples, n_features)
        Rows that the models were not trained on.
    y : array-like of shape (n_samples,)
        Their labels or targets.
    metrics : list of str or str, default=None
        Names of scikit-learn's scorers, such as "balanced_accuracy". None: "accuracy",
        "neg_log_loss" and "roc_auc_ovr", or "r2", "neg_root_mean_squared_error" and
        "neg_mean_absolute_error" in regression.
    X_train, y_train : array-like or dataframe, default=None
        Rows to train the constant and the random forest on, such as the training rows of the
        models. None: they are cross-validated on `X`, with five folds, which the table says.
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the rows in all scores.

    Returns
    -------
    table : DataFrame, or dict of lists without pandas
        A row for each model, the best one by the first metric first. A larger score is better, so
        losses have the sign of scikit-learn. Columns: a score for each metric (NaN where `y` lacks
        a class that "roc_auc_ovr" needs), ``predict_us``, the microseconds to predict one of all
        rows of `X`, ``fit_seconds``, which forests and boosting know until they are pickled or
        saved, and ``MiB``, the size as a pickle, or NaN if the model cannot be pickled.

    Raises
    ------
    ValueError
        If there is no model, or one with the name of a baseline, if classifiers and regressors
        are mixed, if lengths differ, if `y` has missing values or labels that a model does not
        know, if `X_train` is given without `y_train` or the other way round, if there are too few
        rows for five folds, or if a metric is unknown or does not fit. All of this is checked
        before anything is predicted.

    See Also
    --------
    BlendedForestClassifier : Its `leaderboard_` needs no rows but those of `fit`.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import RidgeCV
    >>> from sklearn.model_selection import train_test_split
    >>> from skforest import ObliqueBoostingRegressor, leaderboard
    >>> X, y = load_diabetes(return_X_y=True)
    >>> X, X_test, y, y_test = train_test_split(X, y, random_state=0)
    >>> models = {"boosting": ObliqueBoostingRegressor(random_state=0), "ridge": RidgeCV()}
    >>> models = {name: model.fit(X, y) for name, model in models.items()}
    >>> board = leaderboard(models, X_test, y_test, X_train=X, y_train=y)
    >>> print(board[["r2", "neg_mean_absolute_error"]].round(2).reset_index().to_string())
               model    r2  neg_mean_absolute_error
    0          ridge  0.37                   -44.65
    1       boosting  0.36                   -44.78
    2  random forest  0.24                   -48.98
    3       constant -0.00                   -58.31
    """
    models = named_models(models)
    first = next(iter(models))
    is_class = is_classifier(models[first])
    for name, model in models.items():
        if is_classifier(model) != is_class:
            kinds = "a classifier", "a regressor"
            here, there = kinds if is_class else kinds[::-1]
            raise ValueError(
                f"models must be all classifiers or all regressors, but {first!r} is {here} and "
                f"{name!r} {there}"
            )
        if is_banded(model):
            raise ValueError(f"{name} predicts several quantiles; a model of one output is needed")
    check_consistent_length(X, y, sample_weight)
    known = {name: getattr(model, "classes_", None) for name, model in models.items()}
    y = checked_target(y, is_class, known)
    if metrics is None:
        metrics = METRICS[is_class]
    else:
        metrics = [metrics] if isinstance(metrics, str) else list(metrics)
        _check_metrics(metrics, y, sample_weight, next(iter(known.values())), is_class)
    y_train = check_baseline_rows(is_class, y, X_train, y_train)
    for name in models:
        if name in baseline_names(X_train):
            raise ValueError(f"models has the name {name!r}, but a baseline has this name")
    found = {name: Predicted.of(model, X) for name, model in models.items()}
    found |= baselines(is_class, X, y, X_train, y_train)
    rows = {}
    for name, one in found.items():
        rows[name] = {k: score(sample_weight) for k, score in scores_of(one, y, metrics).items()}
        rows[name] |= {"predict_us": one.predict_us, "fit_seconds": np.nan, "MiB": np.nan}
        if name in models:
            rows[name]["fit_seconds"] = _fit_seconds(models[name])
            rows[name]["MiB"] = _mib(models[name])
    first = next(iter(rows[next(iter(rows))]))
    names = sorted(rows, key=lambda name: -np.nan_to_num(rows[name][first], nan=-np.inf))
    columns = {column: [rows[name][column] for name in names] for column in rows[names[0]]}
    try:
        import pandas as pd
    except ImportError:
        return {"model": names} | columns
    return pd.DataFrame(columns, index=pd.Index(names, name="model"))


def is_banded(model):
    """Does a fitted model predict several quantiles of one output?"""
    return getattr(unwrapped(model).estimator, "_fitted_quantiles", None) is not None


def named_models(models):
    """Models as a dict; a single blend is followed by its members."""
    if isinstance(models, dict):
        found = dict(models)
    elif isinstance(models, (list, tuple)):
        found = {}
        for model in models:
            name = _kind(unwrapped(model).estimator)
            number = sum(known.split(" ")[0] == name for known in found) + 1
            found[name if number == 1 else f"{name} {number}"] = model
    else:
        whole = unwrapped(models)
        found = {_kind(whole.estimator): models}
        if is_blend(whole.estimator):
            members = whole.estimator.members_.items()
            found = {"blend": models}
            found |= {name: rewrapped(models, lambda _, one=one: one) for name, one in members}
    if not found:
        raise ValueError("models is empty; at least one fitted estimator is needed")
    return found


def _kind(model):
    return type(model).__name__.removesuffix("Classifier").removesuffix("Regressor")


def _fit_seconds(model):
    """Seconds of the last fit, where it is known."""
    model = unwrapped(model).estimator
    blended = getattr(model, "_baselines", {}).get("blend", {}).get("fit_seconds", np.nan)
    return getattr(model, "_training_seconds", blended)


def _mib(model):
    """Size as a pickle; NaN if it cannot be pickled, as with a lambda in a pipeline."""
    try:
        return len(pickle.dumps(model, 5)) / 2**20
    except (pickle.PicklingError, AttributeError, TypeError):
        return np.nan


def checked_target(y, is_class, known, name="y"):
    """y as an ndarray; ValueError if a value is missing, or a label not among the known ones.

    `known` has the labels that each model knows, or None, by its name.
    """
    if is_class:
        if np.ndim(y) == 2 and np.shape(y)[1] > 1:
            raise ValueError(f"{name} has {np.shape(y)[1]} outputs; this function takes one")
        check_labels(y, name)
        y = column_or_1d(np.asarray(y), warn=True)
    y = one_column(np.asarray(y))
    assert_all_finite(y, allow_nan=False, input_name=name)
    for model, labels in known.items() if is_class else ():
        if labels is not None and (unknown := set(y.tolist()) - set(np.asarray(labels).tolist())):
            raise ValueError(
                f"{name} has the labels {sorted(unknown, key=str)}, but {model} was fitted to "
                f"{np.asarray(labels).tolist()}"
            )
    return y


def one_column(y):
    """Targets or predictions, of shape (n_rows,) if they have one output."""
    return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y


class Predicted(BaseEstimator):
    """An estimator whose predictions of some rows are known; its X are the numbers of the rows.

    `predict_us` are the microseconds that a row took.
    """

    def __init__(self, labels, proba=None, classes=None, predict_us=np.nan):
        self.labels, self.proba, self.classes = labels, proba, classes
        self.predict_us, self.classes_ = predict_us, classes

    @classmethod
    def of(cls, model, X, n_calls=TIMED):
        """Predictions of a fitted model, which is timed by so many calls."""
        seconds = []
        for _ in range(n_calls):
            start = time.perf_counter()
            labels = model.predict(X)
            seconds.append(time.perf_counter() - start)
            if seconds[0] > 1:
                break
        labels, us = one_column(np.asarray(labels)), 1e6 * min(seconds) / len(labels)
        if not is_classifier(model):
            return PredictedNumbers(labels, predict_us=us)
        proba = np.asarray(model.predict_proba(X)) if hasattr(model, "predict_proba") else None
        return PredictedClasses(labels, proba, model.classes_, us)

    def fit(self, X, y=None):
        """Do nothing."""
        return self

    def predict(self, X):
        """Predictions of the rows with these numbers."""
        return self.labels[X]


class PredictedNumbers(RegressorMixin, Predicted):
    """Known predictions of a regressor."""


class PredictedClasses(ClassifierMixin, Predicted):
    """Known predictions of a classifier."""

    def predict_proba(self, X):
        """Probabilities of the rows with these numbers."""
        return self.proba[X]


def check_baseline_rows(is_class, y, X_train, y_train, name="y"):
    """Targets to fit a constant and a random forest to, or None; ValueError without rows."""
    if (X_train is None) != (y_train is None):
        missing, other = ("X", "y") if X_train is None else ("y", "X")
        raise ValueError(f"{other}_train is given without {missing}_train")
    if X_train is not None:
        check_consistent_length(X_train, y_train)
        y_train = checked_target(y_train, is_class, {}, "y_train")
        checked_target(y, is_class, {"the random forest": np.unique(y_train)}, name)
        return y_train
    most = np.unique(y, return_counts=True)[1].max() if is_class else len(y)
    if most < N_FOLDS:
        rows = "rows of the most frequent class" if is_class else "rows"
        raise ValueError(
            f"the random forest beside the models is cross-validated with {N_FOLDS} folds, but "
            f"there are {most} {rows}; pass X_train and y_train"
        )


def baseline_names(X_train):
    """Return the names of the random forest and of the constant."""
    cut = "" if X_train is not None else f", {N_FOLDS} folds"
    return FOREST + cut, CONSTANT + cut


def baselines(is_class, X, y, X_train=None, y_train=None):
    """Predictions of a constant and a random forest, by name.

    They are trained on `X_train`, or cross-validated on `X` if there are no such rows.
    """
    forest = MEMBERS["manifold"][not is_class](projection="axis", random_state=0)
    table = read_table(as_frame(X))
    if table is not None and any(table.kind(j) == DATE for j in range(len(table))):
        forest = make_pipeline(DateFeatures(), forest)
    dummy = DummyClassifier(strategy="prior") if is_class else DummyRegressor()
    if table is None and not sparse.issparse(X):  # images
        X, X_train = (
            None if one is None else np.reshape(one, (len(one), -1)) for one in (X, X_train)
        )
    X, X_train = _within_float32(X), _within_float32(X_train)
    models, found = dict(zip(baseline_names(X_train), (forest, dummy))), {}
    with warnings.catch_warnings():  # about columns; the models themselves gave them, too
        warnings.simplefilter("ignore", UserWarning)
        if X_train is not None:
            return {name: Predicted.of(m.fit(X_train, y_train), X) for name, m in models.items()}
        for name, model in models.items():
            if not is_class:
                found[name] = PredictedNumbers(cross_val_predict(model, X, y, cv=N_FOLDS))
                continue
            classes = np.unique(y)
            proba = cross_val_predict(model, X, y, cv=N_FOLDS, method="predict_proba")
            found[name] = PredictedClasses(classes[proba.argmax(axis=1)], proba, classes)
    return found


def _within_float32(X):
    """Rows in which numbers beyond float32, which random forests refuse, are the largest ones.

    Data frames whose columns have other names than strings stay as they are.
    """
    largest = float(np.nextafter(np.finfo(np.float32).max, np.float32(0)))
    if isinstance(X, np.ndarray):
        return np.clip(X, -largest, largest) if X.dtype == np.float64 else X
    frame = nw.from_native(X, pass_through=True)
    if not isinstance(frame, nw.DataFrame) or not all(isinstance(c, str) for c in frame.columns):
        return X
    wide = [name for name in frame.columns if frame.schema[name] == nw.Float64]
    if not wide:
        return X
    return frame.with_columns(nw.col(*wide).clip(-largest, largest)).to_native()


def scores_of(predicted, y, names):
    """Functions from weights of the rows, or None, to a score, by the names of scorers.

    Default metrics are computed here: fast, for bootstrap samples, and for y that lacks a class.
    """
    known = (_scores_of_classes if is_classifier(predicted) else _scores_of_numbers)(predicted, y)

    def score(name, weight):
        if name in known:
            return float(known[name](np.ones(len(y)) if weight is None else np.asarray(weight)))
        options = {} if weight is None else {"sample_weight": np.asarray(weight)}
        return get_scorer(name)(predicted, np.arange(len(y)), y, **options)

    return {name: partial(score, name) for name in names}


def _scores_of_classes(predicted, y):
    correct, proba, classes = predicted.labels == y, predicted.proba, predicted.classes_
    proba = np.full((len(y), len(classes)), np.nan) if proba is None else proba
    codes, least = np.searchsorted(classes, y), np.finfo(proba.dtype).eps
    log_loss = -np.log(np.clip(proba[np.arange(len(y)), codes], least, 1 - least))
    shown = [1] if len(classes) == 2 else range(len(classes))
    areas = [_area_under_roc(codes == k, proba[:, k]) for k in shown]
    return {
        "accuracy": lambda weight: np.average(correct, weights=weight),
        "neg_log_loss": lambda weight: -np.average(log_loss, weights=weight),
        "roc_auc_ovr": lambda weight: np.mean([area(weight) for area in areas]),
    }


def _area_under_roc(is_positive, score):
    """A function of weights: the share of pairs of both classes in order; ties count half."""
    order = np.argsort(score)
    is_positive, score = is_positive[order], score[order]
    starts = np.flatnonzero(np.diff(score, prepend=-np.inf))

    def area(weight):
        weight = weight[order]
        positive = np.add.reduceat(weight * is_positive, starts)
        negative = np.add.reduceat(weight * ~is_positive, starts)
        n_pairs = 0.0 if np.isnan(score[-1]) else positive.sum() * negative.sum()
        n_ordered = positive @ (np.cumsum(negative) - negative / 2)
        return n_ordered / n_pairs if n_pairs else np.nan

    return area


def _scores_of_numbers(predicted, y):
    y = y.reshape(len(y), -1)
    error = y - predicted.labels.reshape(y.shape)

    def mean(values, weight):
        return np.average(values, axis=0, weights=weight)

    def r2(weight):
        rest, total = mean(error**2, weight), mean((y - mean(y, weight)) ** 2, weight)
        constant = (rest > 0).astype(float)  # of a constant target, as in scikit-learn
        return 1 - np.divide(rest, total, out=constant, where=total > 0).mean()

    return {
        "r2": r2,
        "neg_root_mean_squared_error": lambda w: -np.sqrt(mean(error**2, w)).mean(),
        "neg_mean_absolute_error": lambda w: -mean(np.abs(error), w).mean(),
    }


def _check_metrics(names, y, weight, classes, is_class):
    """Raise ValueError for a metric that does not fit, by the score of a constant."""
    constant = PredictedNumbers(np.broadcast_to(0.0 if is_class else y.mean(axis=0), y.shape))
    if is_class:
        classes = np.unique(y) if classes is None else classes
        proba = np.full((len(y), len(classes)), 1 / len(classes))
        constant = PredictedClasses(np.repeat(classes[:1], len(y)), proba, classes)
    for name, score in scores_of(constant, y, names).items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                reason = "it is undefined" if np.isnan(score(weight)) else None
            except Exception as error:  # scorers raise many kinds
                reason = "it needs probabilities" if isinstance(error, AttributeError) else error
        if reason is not None:
            what = "these labels" if is_class else "a regressor"
            raise ValueError(f"metrics has {name!r}, which is not for {what}: {reason}")
