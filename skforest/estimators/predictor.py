"""Predictors: predictions of a fitted estimator with little validation, in microseconds a row.

`Predictor` checks shape and dtype and leaves everything else to a function of rows that the
estimator makes (`_responder`). It has no state that a call changes.
"""

from collections.abc import Mapping
from copy import copy
from operator import methodcaller

import numpy as np

from ..table.matrix import dense
from ..table.records import is_records, refuse_records


class Predictor:
    """Fast predictions of a fitted estimator, made by ``estimator.predictor()``.

    It returns exactly what the estimator returns for the same numbers, but takes a fraction of the
    time if there are few rows: it checks their shape and dtype, but not their values. It shares
    the arrays of the model, and does not change when the estimator is fitted again. Several
    threads may call it at once. It can be pickled.

    Rows are C-contiguous arrays of `dtype`, of shape (n_samples, n_features), or single rows of
    shape (n_features,). The dtype is float32, unless the training values of a column differ by
    less than float32 can represent, as seconds since 1970 do, or a blend has a member of another
    package, a pipeline or a search. A missing value is NaN. A category
    is the number of its level, as `encode` returns it; any other number is an unknown level. The
    prediction of a single row has no axis of samples. If the estimator was fitted with names of
    columns, a row may also be a dict with these keys, and several rows a list of dicts; they take
    longer, since they are encoded first.

    ``predictor(X)`` returns class probabilities, or the predictions of a regressor.

    Attributes
    ----------
    n_features_in_ : int
    dtype : numpy.dtype
        float32 or float64.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import make_friedman1
    >>> from skforest import ManifoldForestRegressor
    >>> X, y = make_friedman1(200, random_state=0)
    >>> forest = ManifoldForestRegressor(5, random_state=0).fit(X, y)
    >>> predictor, rows = forest.predictor(), X.astype(np.float32)
    >>> print(predictor(rows[7]).round(2), forest.predict(rows[7:9]).round(2))
    22.78 [22.78 18.11]
    """

    def __init__(self, estimator):
        self._respond, self._encode, columns = estimator._responder()
        self.dtype, self._reason = np.dtype(np.float32 if columns == [] else np.float64), ""
        if columns is None:
            self._reason = ", which a member of the blend from another package reads"
        elif columns:
            names = getattr(estimator, "feature_names_in_", np.arange(estimator.n_features_in_))
            name = names.tolist()[columns[0]]
            self._reason = f", since float32 would change values of column {name!r}"
        self._estimator = copy(estimator)
        self.n_features_in_ = estimator.n_features_in_

    def __reduce__(self):
        return methodcaller("predictor"), (self._estimator,)

    def __repr__(self):
        return f"<predictor of {self._estimator!r}>"

    def __call__(self, X):
        """Predict; see the class."""
        return self.predict(X)

    def predict(self, X):
        """Predicted labels or targets.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features) or (n_features,), `dtype`; dict or dicts

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Without the first axis for a single row.

        Raises
        ------
        TypeError
            If X is neither an ndarray of `dtype` nor rows as dicts.
        ValueError
            If X is not C-contiguous, has no rows, or has another number of features.
        """
        rows, is_row = self._rows(X)
        found = self._estimator._prediction_of(self._respond(rows))
        return found[0] if is_row else found

    def encode(self, X):
        """Encode a table as an array that the predictor takes.

        X is validated as in the estimator. Numbers are rounded to `dtype`. Estimators that scale
        features read float64, so predictions for float32 may differ in the last digits.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features), `dtype`
        """
        return np.ascontiguousarray(dense(self._encode(X)), dtype=self.dtype)

    def _rows(self, X):
        """X as a table, and whether it is a single row; errors if it is not as needed."""
        if type(X) is not np.ndarray or X.dtype != self.dtype:
            names = getattr(self._estimator, "feature_names_in_", None)
            is_row = isinstance(X, Mapping) and not any(map(np.ndim, X.values()))
            if names is not None and (is_row or is_records(X)):
                return self.encode([X] if is_row else X), is_row
            refuse_records(X)
            what = f"ndarray of {X.dtype}" if type(X) is np.ndarray else type(X).__name__
            raise TypeError(
                f"X has type {what}; a predictor takes ndarrays of {self.dtype}{self._reason}: "
                "pass predictor.encode(X)"
            )
        n_features = self.n_features_in_
        if X.ndim not in (1, 2) or X.shape[-1] != n_features or not len(X):
            raise ValueError(
                f"X has shape {X.shape}; ({n_features},) or (n_samples, {n_features}) with at "
                "least one row is needed"
            )
        if not X.flags.c_contiguous:
            raise ValueError("X is not C-contiguous; pass np.ascontiguousarray(X)")
        return (X, False) if X.ndim == 2 else (X[None], True)


class ClassPredictor(Predictor):
    """Fast predictions of a fitted classifier, made by ``classifier.predictor()``.

    Attributes
    ----------
    n_features_in_ : int
    classes_ : ndarray of shape (n_classes,), or list of such arrays
    """

    def __init__(self, estimator):
        super().__init__(estimator)
        self.classes_ = estimator.classes_

    def __call__(self, X):
        """Class probabilities; see the class."""
        return self.predict_proba(X)

    def predict_proba(self, X):
        """Class probabilities.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features) or (n_features,), `dtype`; dict or dicts

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), float64, or list of such arrays
            Without the first axis for a single row. With several outputs, a list with one array
            per output.

        Raises
        ------
        TypeError, ValueError
            As `predict`.
        """
        rows, is_row = self._rows(X)
        found = self._estimator._probabilities_of(self._respond(rows))
        if not is_row:
            return found
        return [part[0] for part in found] if isinstance(found, list) else found[0]
