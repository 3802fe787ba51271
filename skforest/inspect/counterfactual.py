"""Counterfactuals: small changes of a row that change its prediction."""

from collections.abc import Collection
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse
from sklearn.base import is_classifier

from ..estimators.unwrap import unwrapped
from ..table.dates import dated, days_of
from ..table.frames import (
    CATEGORY,
    DATE,
    as_array,
    as_frame,
    as_level,
    read_table,
    table_of_matrix,
)
from ..table.matrix import usual_range, value_range
from .comparison import one_column
from .contents import column_numbers

N_STEPS = 32  # points of a segment that are predicted together
N_ROUNDS = 4  # rounds of a search on a segment, which find a point up to 32^-4 of its length
PARTS_OF_DAY = 24, 1440, 86400  # hours, minutes, seconds
N_SEARCHES = 4  # searches for each answer, each of which leaves out columns of answers before


@dataclass
class Counterfactual:
    """A row with another prediction; see `counterfactual`."""

    row: Any
    prediction: Any
    distance: float
    changes: dict


def counterfactual(
    estimator,
    x,
    background,
    target=None,
    *,
    vary=None,
    fixed=(),
    limits=None,
    n_answers=1,
    n_starts=10,
):
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
    vary : sequence of str or int, or one of these, default=None
        Columns that may change, by name or number. None: all.
    fixed : sequence of str or int, or one of these, default=()
        Columns that may not change.
    limits : dict of str or int to limit, default=None
        What columns may change to, by name or number: for numbers and dates (low, high), ends
        included, or "increase" or "decrease"; for categories, a list of levels. A value that does
        not change may be outside.
    n_answers : int, default=1
        Number of answers, at least 1. If it is larger than 1, a list is returned.
    n_starts : int, default=10
        Number of rows of the background from which a search starts, at least 1. With more rows,
        the result is nearer; the time is proportional to their number.

    Returns
    -------
    counterfactual : Counterfactual or list of Counterfactual
        With ``n_answers > 1``, a list of at most so many, those with the fewest changed columns
        first, then the nearest. Two answers differ in the columns that they change, in a level, or
        in whether a number increases. Each has the attributes

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
        If x is not one row with the columns of the background, if a parameter is invalid, if x
        already has the wanted prediction, or if no row of the background has it after its columns
        that must not change are set to those of x.

    See Also
    --------
    shapley_values : Contribution of each column to a prediction.

    Notes
    -----
    The distance is the sum over columns of the absolute difference divided by the standard
    deviation of the column in the background, without its outliers [1]_. A different category
    counts as distance 1, and so does a value in place of a missing one. Columns of whole numbers
    keep whole numbers, even if their dtype is float, and columns of dates their unit: days, hours,
    minutes or seconds. A value that x has does not become missing. The result is near x, but need
    not be the nearest possible point. Numbers of the background outside their limits are set to
    the nearest limit first. More
    answers are searched without a column of an earlier one, with up to 4 searches for each. A
    counterfactual explains the model: it does not say what would happen if somebody changed a
    column in the world.

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
    >>> for found in counterfactual(forest, X.iloc[[60]], X, target=2, n_answers=2):
    ...     for name, (before, after) in found.changes.items():
    ...         print(name, "from", before, "to", round(after, 2))
    petal width (cm) from 1.0 to 1.65
    petal length (cm) from 3.5 to 5.3
    """
    for name, count in (("n_answers", n_answers), ("n_starts", n_starts)):
        if not (isinstance(count, Integral) and count > 0):
            raise ValueError(f"{name}={count!r} must be an int of at least 1")
    whole = unwrapped(estimator)
    if not whole.transformers:  # otherwise rows are those that the pipeline takes
        estimator = whole.estimator
    rows = _Rows(estimator, x, background)
    rows.restrict(vary, fixed, limits)

    def predict(X):
        found = one_column(estimator.predict(X))
        if found.ndim > 1:
            raise ValueError("estimator has several outputs; an estimator of one output is needed")
        return found

    before, predictions = predict(rows.x), predict(background)
    is_wanted = _condition(estimator, target, before[0])

    def is_changed(*mixture):
        return is_wanted(predict(rows.mixtures(*mixture)[0]))

    found, left_out = {}, [frozenset()]
    for number, columns in enumerate(left_out):
        kinds = []
        for mixture in _search(rows, columns, n_starts, is_changed):
            kinds.append(rows.kind_of_change(*mixture))
            found.setdefault(kinds[-1], mixture)
        # Answers that also change other columns are not shown.
        minimal = {kind: one for kind, one in found.items() if not any(k < kind for k in found)}
        n_searches = n_answers if len(minimal) >= n_answers else N_SEARCHES * n_answers
        if number + 1 >= n_searches:
            break
        more = (columns | {j} for kind in kinds[:1] for j, _ in sorted(kind))
        left_out += [one for one in more if one not in left_out]
    if not found:
        reason = ""
        if rows.is_restricted:
            names = [rows.names[j] for j in np.flatnonzero(rows.can_change.any(axis=0))]
            reason = f" if only these columns change, within limits: {names}"
        elif is_wanted(predictions).any():
            reason = ", or only with values missing that x has"
        raise ValueError(
            f"no row of background has the wanted prediction (target={target!r}){reason}"
        )
    kept = found if n_answers == 1 else minimal
    answers = [rows.answer(estimator, *mixture) for mixture in kept.values()]
    if n_answers == 1:
        return min(answers, key=lambda one: one.distance)
    return sorted(answers, key=lambda one: (len(one.changes), one.distance))[:n_answers]


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
    low, high = _pair(target, f"target={target!r} must be (low, high) for a regressor")
    if low <= prediction <= high:
        raise ValueError(f"the prediction of x, {prediction:.6g}, is in target={target!r} already")
    return lambda found: (low <= found) & (found <= high)


def _pair(given, message):
    """Two ends of an interval; ValueError if they are none."""
    is_pair = isinstance(given, tuple | list) and len(given) == 2
    if not is_pair or not all(isinstance(end, Real) for end in given):
        raise ValueError(message)
    if not given[0] <= given[1]:
        raise ValueError(f"{message}, and low must not be larger than high")
    return given


def _search(rows, left_out, n_starts, is_changed):
    """Rows with the wanted prediction as arguments of `_Rows.mixtures`, the nearest to x first."""
    mask = rows.can_change.copy()
    mask[:, list(left_out)] = False
    starts = np.flatnonzero(mask.any(axis=1))
    if len(starts):
        starts = starts[is_changed(starts, mask[starts], 1.0)]
    distances = rows.distances(np.where(mask, rows.ends, rows.codes[0])[starts])
    starts = starts[np.argsort(distances, kind="stable")[:n_starts]].tolist()
    mixtures = [_refined(rows, start, mask[start].copy(), is_changed) for start in starts]
    return sorted(mixtures, key=lambda one: rows.distances(rows.mixtures(*one)[1])[0])


def _refined(rows, start, mask, is_changed):
    """A row between x and a background row, near x, as the arguments of `_Rows.mixtures`.

    The prediction is as wanted with the columns of `mask` from the background row.
    """
    difference = rows.differences(rows.ends[start][None])[0]
    for j in np.argsort(-difference, kind="stable"):
        if mask[j]:
            mask[j] = False
            mask[j] = not is_changed(start, mask, 1.0)[0]
    low, high = 0.0, 1.0  # unchanged, changed
    for _ in range(N_ROUNDS):
        steps = np.linspace(low, high, N_STEPS + 1)
        found = np.append(is_changed(start, mask, steps[1:-1]), True)
        first = int(np.argmax(found))
        low, high = steps[first], steps[first + 1]
    return start, mask, high


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


def _with_common_dtypes(one, other):
    """Two data frames of the same columns, each with a dtype that holds the values of both."""
    casts = [], []
    for name in other.columns:
        dtypes = one[name].dtype, other[name].dtype
        if dtypes[0] == dtypes[1]:
            continue
        if all(dtype.is_numeric() for dtype in dtypes):
            wide = nw.Float64() if any(dtype.is_float() for dtype in dtypes) else nw.Int64()
        elif all(isinstance(dtype, nw.String | nw.Categorical | nw.Enum) for dtype in dtypes):
            wide = nw.String()
        else:  # all values of one are missing, or it has booleans for numbers
            wide = dtypes[one[name].null_count() == len(one)]
        for cast in casts:
            cast.append(nw.col(name).cast(wide))
    return one.with_columns(*casts[0]), other.with_columns(*casts[1])


class _Rows:
    """A row x and background rows, as they are and as numbers.

    Attributes
    ----------
    x : ndarray of shape (1, n_features) or data frame
    codes : ndarray of shape (1 + n_rows, n_features), float64
        x and the background: numbers, or numbers of levels for categories; NaN if missing.
    ends : ndarray of shape (n_rows, n_features), float64
        The background, with numbers moved into their limits.
    can_change : ndarray of shape (n_rows, n_features), bool
        Whether x may take a value of `ends`, which differs from its own.
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
        kinds = [table.kind(j) for j in range(len(table))]
        if self._is_category is None:
            self._is_category = np.array([kind == CATEGORY for kind in kinds])
        categories = np.flatnonzero(self._is_category).tolist()
        self._levels = {j: table.levels(j) for j in categories}
        self._dates = {j for j, kind in enumerate(kinds) if kind == DATE}
        self.codes = np.stack([self._column(table, j) for j in range(len(table))], axis=1)
        spread = _deviations(self.codes[1:])
        self._spread = np.where(spread > 0, spread, 1.0)
        self._n_parts = np.array([self._parts_of_unit(j) for j in range(len(self.names))])

    def _column(self, table, j):
        """A column as numbers: of levels, of days, or those of the column."""
        if j in self._levels:
            return table.codes(j, self._levels[j])
        return days_of(table, j) if j in self._dates else table.numbers(j).astype(np.float64)

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
            own = own.select(nw.col(*frame.columns))
            if not frame.implementation.is_pandas_like():  # pandas finds common dtypes itself
                own, frame = _with_common_dtypes(own, frame)
            self._frame = nw.concat([own, frame])
            self._native, self.x = nw.to_native(self._frame), nw.to_native(self._frame[[0]])
            return
        background, x = np.asarray(as_array(background)), np.asarray(as_array(x))
        x = x[None] if x.ndim == 1 else x
        if background.ndim != 2 or x.shape != (1, background.shape[1]):
            raise ValueError(
                f"x has shape {x.shape} and background {background.shape}; x must be one row, and "
                "background must have the same columns"
            )
        self._native = np.concatenate([x, background])
        self.x = self._native[:1]

    def _parts_of_unit(self, j):
        """1 for whole numbers, also of dtype float; parts of a day for dates; 0: any number."""
        known = self.codes[np.isfinite(self.codes[:, j]), j]
        for n_parts in (1, *(PARTS_OF_DAY if j in self._dates else ())) if len(known) else ():
            rest = np.abs(known * n_parts - np.rint(known * n_parts)).max()
            if rest <= (1e-6 if j in self._dates else 0):
                return n_parts
        return 0

    def restrict(self, vary, fixed, limits):
        """Set the columns that may change, and what they may change to."""
        own, self.ends = self.codes[0], self.codes[1:]
        fixed, limits = (
            column_numbers("fixed", fixed, self.names),
            {} if limits is None else limits,
        )
        self.is_restricted = vary is not None or len(fixed) + len(limits) > 0
        varying = column_numbers("vary", self.names if vary is None else vary, self.names)
        if vary is not None and set(varying) & set(fixed):
            name = self.names[min(set(varying) & set(fixed))]
            raise ValueError(f"column {name!r} is both in vary and in fixed")
        is_allowed = np.zeros(self.ends.shape, dtype=bool)
        is_allowed[:, np.setdiff1d(varying, fixed).astype(int)] = True
        self._low, self._high = np.full((2, len(own)), [[-np.inf], [np.inf]])
        for key, limit in limits.items():
            (j,) = column_numbers("limits", [key], self.names)
            shown = f"limits={{{key!r}: {limit!r}}}"
            if j in self._levels:
                levels = self._levels[j]
                is_list = isinstance(limit, Collection) and not isinstance(limit, str)
                if not is_list or not {as_level(value) for value in limit} <= set(levels):
                    raise ValueError(f"{shown} must be a list of levels among {levels[:20]}")
                codes = [levels.index(as_level(value)) for value in limit]
                is_allowed[:, j] &= np.isin(self.ends[:, j], codes)
            elif isinstance(limit, str) and limit in ("increase", "decrease"):
                (self._low if limit == "increase" else self._high)[j] = own[j]
            else:
                if j in self._dates and isinstance(limit, tuple | list):
                    days = np.array(limit, dtype="M8[us]") - np.datetime64(0, "us")
                    limit = (days / np.timedelta64(1, "D")).tolist()
                low, high = _pair(limit, f'{shown} must be (low, high), "increase" or "decrease"')
                n = self._n_parts[j]
                self._low[j] = np.ceil(low * n) / n if n else low
                self._high[j] = np.floor(high * n) / n if n else high
        moved = np.clip(self.ends, self._low, self._high)
        is_number = ~self._is_category & np.isfinite(own) & ~np.isnan(self.ends)
        self.ends = np.where(is_number, moved, self.ends)
        is_within = (self._low <= self.ends) & (self.ends <= self._high)
        becomes_missing = np.isnan(self.ends) & ~np.isnan(own)
        self.can_change = is_allowed & (self.differences(self.ends) > 0) & ~becomes_missing
        self.can_change &= is_within | self._is_category

    def kind_of_change(self, *mixture):
        """The changed columns, with the levels of categories and the signs of changes."""
        _, codes = self.mixtures(*mixture)
        sign = np.nan_to_num(np.sign(codes - self.codes[0]))
        kind = np.where(self._is_category, codes, sign)[0].tolist()
        return frozenset((j, kind[j]) for j in np.flatnonzero(self.differences(codes)[0]).tolist())

    def answer(self, estimator, *mixture):
        """A mixture as a Counterfactual."""
        row, codes = self.mixtures(*mixture)
        changed = np.flatnonzero(self.differences(codes)[0])
        return Counterfactual(
            row=row[0] if isinstance(row, np.ndarray) else row,
            prediction=one_column(estimator.predict(row))[0],
            distance=float(self.distances(codes)[0]),
            changes={self.names[j]: (self.entry(self.x, j), self.entry(row, j)) for j in changed},
        )

    def differences(self, codes):
        """Differences of rows from x in each column, in units of its spread."""
        own = self.codes[0]
        difference = np.abs(codes - own) / self._spread
        is_other = (codes != own) & ~(np.isnan(codes) & np.isnan(own))
        return np.where(self._is_category | np.isnan(difference), is_other, difference)

    def distances(self, codes):
        """Sums of the differences of rows from x."""
        return self.differences(codes).sum(axis=1)

    def mixtures(self, starts, mask, steps):
        """Rows between x and background rows.

        Parameters
        ----------
        starts : int or ndarray of shape (n_mixtures,)
            Numbers of the background rows.
        mask : ndarray of shape (n_features,) or (n_mixtures, n_features), bool
            Columns that are taken from them; the others are as in x.
        steps : float or ndarray of shape (n_mixtures,)
            How far numbers are moved, from 0, as in x, to 1, as in `ends`.

        Returns
        -------
        mixtures : ndarray of shape (n_mixtures, n_features) or data frame
        codes : ndarray of shape (n_mixtures, n_features), float64
        """
        starts, steps = np.broadcast_arrays(*np.atleast_1d(starts, steps))
        own, other, steps = self.codes[0], self.ends[starts], steps[:, None]
        mask = np.broadcast_to(mask, other.shape)
        is_moved = mask & ~self._is_category & np.isfinite(own) & np.isfinite(other)
        between = np.where(steps == 1, other, own + steps * (other - own))
        n = np.maximum(self._n_parts, 1)
        between = np.where(self._n_parts > 0, np.round(between * n) / n, between)
        between = np.where(steps > 0, np.clip(between, self._low, self._high), between)
        codes = np.where(is_moved, between, np.where(mask, other, own))
        number = np.where(mask, 1 + starts[:, None], 0)
        if self._frame is None:
            rows = self._native[number, np.arange(len(own))]
            rows[is_moved] = between[is_moved]
            return rows, codes
        taken = [
            self._moved(j, codes[:, j])
            if is_moved[:, j].any()
            else self._frame.get_column(self.names[j])[number[:, j]]
            for j in np.flatnonzero(mask.any(axis=0))
        ]
        return nw.to_native(self._frame[[0] * len(codes)].with_columns(*taken)), codes

    def _moved(self, j, values):
        """Values of a column as a series of its dtype."""
        column = self._frame.get_column(self.names[j])
        series = nw.new_series(self.names[j], values, backend=self._frame.implementation)
        if j in self._dates:
            return dated(series, column)
        if not (column.dtype.is_numeric() or isinstance(column.dtype, nw.Boolean)):
            return series
        if self._frame.implementation.is_pandas_like():  # narwhals takes "Int64" for "int64"
            native = nw.to_native(series).astype(nw.to_native(column).dtype)
            return nw.from_native(native, series_only=True)
        return series.cast(column.dtype)

    def entry(self, row, j):
        """Value of a column in the first row of an array or a data frame."""
        if self._frame is None:
            value = row[0, j]
            return value.item() if isinstance(value, np.generic) else value
        return nw.from_native(row).get_column(self.names[j]).to_list()[0]
