"""Counterfactuals: small changes of a row that change its prediction."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from sklearn.base import is_classifier

from ..estimators.unwrap import unwrapped
from ..table.frames import CATEGORY, as_frame, read_table, table_of_matrix
from ..table.matrix import usual_range, value_range

N_STEPS = 32  # points of a segment that are predicted together
N_ROUNDS = 4  # rounds of a search on a segment, which find a point up to 32^-4 of its length


@dataclass
class Counterfactual:
    """A row with another prediction; see `counterfactual`."""

    row: Any
    prediction: Any
    distance: float
    changes: dict


def counterfactual(estimator, x, background, target=None, *, n_starts=10):
    """Find a row near `x` that has another prediction.

    A counterfactual says what would have to be different for another result. The search starts at
    the nearest rows of `background` that have the wanted prediction. The columns of such a row are
    set back to the values of `x`, one after another and the largest differences first, as long as
    the prediction stays as wanted. The numbers that still differ are then moved towards `x`
    together, up to the point where the prediction would change. The nearest of all resulting rows
    is returned.

    Parameters
    ----------
    estimator : estimator
        Fitted classifier or regressor of this package or of scikit-learn.
    x : array-like of shape (n_features,) or (1, n_features), or data frame of one row
        The row to explain; a data frame, such as ``X.iloc[[0]]``, if `background` is one.
    background : array-like or data frame of shape (n_rows, n_features)
        Rows that are known to occur, such as the training set.
    target : label or (low, high), default=None
        For a classifier, the wanted label; None: any label other than that of x. For a regressor,
        the interval that shall contain the prediction, ends included; infinite ends are allowed.
    n_starts : int, default=10
        Number of rows of the background from which the search starts, at least 1. With more rows,
        the result is nearer; the time is proportional to their number.

    Returns
    -------
    counterfactual : Counterfactual
        It has the attributes

        row : ndarray of shape (n_features,), or data frame of one row
            The changed row.
        prediction : object
            What the estimator predicts for it.
        distance : float
            Sum of its differences from x, in units of the spread of each column.
        changes : dict of str or int to tuple
            Value before and after, for each column that is changed: by name, or by number if x is
            not a data frame.

    Raises
    ------
    TypeError
        If x or the background is sparse.
    ValueError
        If x is not one row with the columns of the background, if `target` or `n_starts` is
        invalid, if x already has the wanted prediction, or if no row of the background has it
        without missing values that x has.

    See Also
    --------
    shapley_values : Contribution of each column to a prediction.

    Notes
    -----
    The distance is the sum over columns of the absolute difference divided by the standard
    deviation of the column in the background [1]_. A different category counts as distance 1, and
    so does a value in place of a missing one. Columns of whole numbers keep whole numbers, even if
    their dtype is float. A value that x has does not become missing. The result is near x, but
    need not be the nearest possible point. It explains the model: it does not say what would
    happen if somebody changed a column in the world.

    References
    ----------
    .. [1] S. Wachter, B. Mittelstadt, C. Russell, "Counterfactual Explanations without Opening the
       Black Box", Harvard Journal of Law & Technology 31, 2018; they divide by the median absolute
       deviation.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from skforest import ManifoldForestClassifier, counterfactual
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> forest = ManifoldForestClassifier(50, random_state=0).fit(X, y)
    >>> found = counterfactual(forest, X.iloc[[60]], X, target=2)
    >>> int(found.prediction)
    2
    >>> "petal width (cm)" in found.changes
    True
    """
    if not (isinstance(n_starts, Integral) and n_starts > 0):
        raise ValueError(f"n_starts={n_starts!r} must be an int of at least 1")
    whole = unwrapped(estimator)
    if not whole.transformers:  # otherwise rows are those that the pipeline takes
        estimator = whole.estimator
    rows = _Rows(estimator, x, background)
    before, predictions = estimator.predict(rows.x), estimator.predict(background)
    if predictions.ndim > 1:
        raise ValueError("estimator has several outputs; an estimator of one output is needed")
    is_wanted = _condition(estimator, target, before[0])
    candidates = np.flatnonzero(is_wanted(predictions))
    if not len(candidates):
        raise ValueError(f"no row of background has the wanted prediction (target={target!r})")
    order = np.argsort(rows.distances(rows.codes[1:][candidates]), kind="stable")

    def is_changed(start, mask, steps):
        mixtures, _ = rows.mixtures(start, mask, steps)
        return is_wanted(estimator.predict(mixtures))

    found = []
    for start in candidates[order].tolist():
        if len(found) < n_starts and (one := _refined(rows, start, is_changed)) is not None:
            found.append(one)
    if not found:
        raise ValueError(
            "rows of background have the wanted prediction only with values missing that x has"
        )
    row, codes = min(found, key=lambda one: rows.distances(one[1])[0])
    changed = np.flatnonzero(rows.differences(codes)[0])
    return Counterfactual(
        row=row[0] if isinstance(row, np.ndarray) else row,
        prediction=estimator.predict(row)[0],
        distance=float(rows.distances(codes)[0]),
        changes={rows.names[j]: (rows.entry(rows.x, j), rows.entry(row, j)) for j in changed},
    )


def _condition(estimator, target, prediction):
    """Return a function that says which predictions are as wanted."""
    if is_classifier(estimator):
        if target is None:
            return lambda found: found != prediction
        if target not in estimator.classes_.tolist():
            raise ValueError(f"target={target!r} is not a label of the estimator")
        if prediction == target:
            raise ValueError(f"x is predicted as target={target!r} already")
        return lambda found: found == target
    is_pair = isinstance(target, tuple | list) and len(target) == 2
    if not is_pair or not all(isinstance(end, Real) for end in target):
        raise ValueError(f"target={target!r} must be (low, high) for a regressor")
    low, high = target
    if not low <= high:
        raise ValueError(f"target={target!r}: low must not be larger than high")
    if low <= prediction <= high:
        raise ValueError(f"the prediction of x, {prediction:.6g}, is in target={target!r} already")
    return lambda found: (low <= found) & (found <= high)


def _refined(rows, start, is_changed):
    """A row between x and a background row, near x, in the form of `_Rows.mixtures`.

    None if the prediction is not as wanted without values that are missing in the background row.
    """
    mask = _fewest_columns(rows, start, is_changed)
    if mask is None:
        return None
    low, high = 0.0, 1.0  # unchanged, changed
    for _ in range(N_ROUNDS):
        steps = np.linspace(low, high, N_STEPS + 1)
        found = np.append(is_changed(start, mask, steps[1:-1]), True)
        first = int(np.argmax(found))
        low, high = steps[first], steps[first + 1]
    return rows.mixtures(start, mask, [high])


def _fewest_columns(rows, start, is_changed):
    """Mask of columns to take from a background row; the others are as in x.

    No value becomes missing. None if that is not enough.
    """
    other = rows.codes[1 + start]
    difference = rows.differences(other[None])[0]
    becomes_missing = np.isnan(other) & ~np.isnan(rows.codes[0])
    mask = (difference > 0) & ~becomes_missing
    if becomes_missing.any() and not is_changed(start, mask, [1.0])[0]:
        return None
    for j in np.argsort(-difference, kind="stable")[: np.count_nonzero(mask)]:
        mask[j] = False
        mask[j] = not is_changed(start, mask, [1.0])[0]
    return mask


def _deviations(codes):
    """Standard deviation of the finite numbers of every column, without outliers."""
    is_known = np.isfinite(codes)
    known = np.where(is_known, codes, np.nan)
    if len(known):
        low, high, _ = usual_range(known, np.ones(len(known)), value_range(known))
        codes = known = np.clip(known, low, high)
    # Divided by powers of two, so that no square is too large or too small for float64.
    exponent = np.frexp(np.where(is_known, np.abs(codes), 0).max(axis=0, initial=0))[1]
    known = np.ldexp(known, -exponent)
    n_known = np.maximum(is_known.sum(axis=0), 1)
    mean = np.nansum(known, axis=0) / n_known
    return np.ldexp(np.sqrt(np.nansum((known - mean) ** 2, axis=0) / n_known), exponent)


class _Rows:
    """A row x and background rows, as they are and as numbers.

    Attributes
    ----------
    x : ndarray of shape (1, n_features) or data frame
    codes : ndarray of shape (1 + n_rows, n_features), float64
        x and the background: numbers, or numbers of levels for categories; NaN if missing.
    names : list
        Names of the columns, or their numbers.
    """

    def __init__(self, estimator, x, background):
        for name, table in (("x", x), ("background", background)):
            if sparse.issparse(table):
                raise TypeError(f"{name} is sparse; pass {name}.toarray()")
        self._join(x, as_frame(background))
        table = read_table(self._native)
        table = table_of_matrix(np.asarray(self._native)) if table is None else table
        self.names = table.names
        self._is_category = getattr(estimator, "is_categorical_", None)
        if self._is_category is None:
            kinds = [table.kind(j) for j in range(len(table))]
            self._is_category = np.array([kind == CATEGORY for kind in kinds])
        levels = {j: table.levels(j) for j in np.flatnonzero(self._is_category).tolist()}
        self.codes = table.matrix(levels)
        spread = _deviations(self.codes[1:])
        self._spread = np.where(spread > 0, spread, 1.0)
        self._is_whole = np.array([self._holds_integers(j) for j in range(len(self.names))])

    def _join(self, x, background):
        """Set the joined rows, x first."""
        frame = nw.from_native(background, pass_through=True)
        self._frame = None
        if isinstance(frame, nw.DataFrame):
            own = nw.from_native(as_frame(x), pass_through=True)
            if not isinstance(own, nw.DataFrame) or len(own) != 1:
                raise ValueError("x must be a data frame of one row, such as X.iloc[[0]]")
            if sorted(own.columns) != sorted(frame.columns):
                raise ValueError("x must have the columns of background")
            self._frame = nw.concat([own.select(frame.columns), frame])
            self._native, self.x = nw.to_native(self._frame), nw.to_native(self._frame[[0]])
            return
        background, x = np.asarray(background), np.asarray(x)
        x = x[None] if x.ndim == 1 else x
        if background.ndim != 2 or x.shape != (1, background.shape[1]):
            raise ValueError(
                f"x has shape {x.shape} and background {background.shape}; one row and rows with "
                "the same columns are needed"
            )
        self._native = np.concatenate([x, background])
        self.x = self._native[:1]

    def _holds_integers(self, j):
        """Does a column hold whole numbers only? With missing values, their dtype is float."""
        known = self.codes[np.isfinite(self.codes[:, j]), j]
        return len(known) > 0 and (known == np.rint(known)).all()

    def differences(self, codes):
        """Differences of rows from x in each column, in units of its spread."""
        own = self.codes[0]
        difference = np.abs(codes - own) / self._spread
        is_other = (codes != own) & ~(np.isnan(codes) & np.isnan(own))
        return np.where(self._is_category | np.isnan(difference), is_other, difference)

    def distances(self, codes):
        """Sums of the differences of rows from x."""
        return self.differences(codes).sum(axis=1)

    def mixtures(self, start, mask, steps):
        """Rows between x and a background row.

        Parameters
        ----------
        start : int
            Number of the background row.
        mask : ndarray of shape (n_features,), bool
            Columns that are taken from it; the others are as in x.
        steps : array-like of shape (n_steps,)
            How far numbers are moved, from 0, as in x, to 1, as in the background row.

        Returns
        -------
        mixtures : ndarray of shape (n_steps, n_features) or data frame
        codes : ndarray of shape (n_steps, n_features), float64
        """
        steps = np.asarray(steps)[:, None]
        own, other = self.codes[0], self.codes[1 + start]
        is_moved = mask & ~self._is_category & np.isfinite(own) & np.isfinite(other)
        between = np.where(steps == 1, other, own + steps * (other - own))
        between = np.where(self._is_whole, np.round(between), between)
        codes = np.where(is_moved, between, np.where(mask, other, own))
        if self._frame is None:
            source = np.where(mask, self._native[1 + start], self._native[0])
            rows = np.tile(source, (len(steps), 1))
            rows[:, is_moved] = between[:, is_moved]
            return rows, codes
        other_rows = self._frame[[1 + start] * len(steps)]
        taken = [other_rows[self.names[j]] for j in np.flatnonzero(mask & ~is_moved)]
        moved = [self._moved(j, between[:, j]) for j in np.flatnonzero(is_moved)]
        return nw.to_native(self._frame[[0] * len(steps)].with_columns(*taken, *moved)), codes

    def _moved(self, j, values):
        """Values of a column as a series of its dtype."""
        column = self._frame[self.names[j]]
        series = nw.new_series(self.names[j], values, backend=self._frame.implementation)
        is_number = column.dtype.is_numeric() or isinstance(column.dtype, nw.Boolean)
        return series.cast(column.dtype) if is_number else series

    def entry(self, row, j):
        """Value of a column in the first row of an array or a data frame."""
        if self._frame is None:
            value = row[0, j]
            return value.item() if isinstance(value, np.generic) else value
        return nw.from_native(row)[self.names[j]].to_list()[0]
