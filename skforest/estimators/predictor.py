"""Predictors: predictions of a fitted estimator without validation, one row in microseconds.

`Predictor` checks shape and dtype and leaves everything else to a function of rows that the
estimator makes (`_responder`). It has no state that a call changes.
"""

from copy import copy
from operator import methodcaller

import numpy as np

from ..table.frames import refuse_records
from ..table.matrix import dense


class Predictor:
    """Predictions of a fitted estimator for rows of one dtype; made by ``estimator.predictor()``.

    It returns what the estimator returns for the same numbers, to the last bit, in a fraction of
    the time for few rows: shape and dtype are checked, the values are not. It shares the arrays of
    the model, and stays as it is if the estimator is fitted again. Several threads may call it at
    once. It can be pickled.

    Rows are C-contiguous arrays of `dtype`, of shape (n_samples, n_features), or single rows of
    shape (n_features,). The dtype is float32, except for models of columns whose training values
    differ by less than float32 can represent, such as seconds since 1970. A missing value is NaN.
    A category is the number of its level, as `encode` returns it; any other number there is an
    unknown level. The predictions of a single row are those of a table of one row, without the
    axis of the samples.

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
    >>> bool(predictor(rows[7]) == forest.predict(rows)[7])
    True
    """

    def __init__(self, estimator):
        self._respond, self._encode, columns = estimator._responder()
        self.dtype, self._reason = np.dtype(np.float64 if columns else np.float32), ""
        if columns:
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
        X : ndarray of shape (n_samples, n_features) or (n_features,), `dtype`

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Without the first axis for a single row.

        Raises
        ------
        TypeError
            If X is no ndarray of `dtype`.
        ValueError
            If X is not C-contiguous, or has no rows or another number of features.
        """
        found = self._estimator._prediction_of(self._respond(self._rows(X)))
        return found if X.ndim == 2 else found[0]

    def encode(self, X):
        """Rows of a table as the array that the predictor takes.

        X is validated as by the estimator. Numbers are rounded to `dtype`. Estimators that scale
        features read float64, so that predictions for float32 may differ in the last digits.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)

        Returns
        -------
        rows : ndarray of shape (n_samples, n_features), `dtype`
        """
        return np.ascontiguousarray(dense(self._encode(X)), dtype=self.dtype)

    def _rows(self, X):
        """X as a table; TypeError or ValueError if its type, dtype or shape is not as needed."""
        if type(X) is not np.ndarray or X.dtype != self.dtype:
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
        return X if X.ndim == 2 else X[None]


class ClassPredictor(Predictor):
    """As `Predictor`, for classifiers.

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
        X : ndarray of shape (n_samples, n_features) or (n_features,), `dtype`

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), float64, or list of such arrays
            Without the first axis for a single row. A list with one array for each output if there
            are several.

        Raises
        ------
        TypeError, ValueError
            As `predict`.
        """
        found = self._estimator._probabilities_of(self._respond(self._rows(X)))
        if X.ndim == 2:
            return found
        return [part[0] for part in found] if isinstance(found, list) else found[0]
