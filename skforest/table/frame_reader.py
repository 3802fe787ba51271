"""Data frames or dicts of the columns of earlier ones, without the validation of `read_table`."""

from numbers import Integral, Real

import numpy as np

from .frames import FEW_ROWS, MAX_EXACT, UNKNOWN, as_level, is_missing
from .records import is_records

PLAIN = np.uint8, np.float32, np.float64  # dtypes of matrices that need no conversion


class FrameReader:
    """Reads data frames with the same columns as a validated frame, or dicts.

    Frames with equal names and dtypes are not validated again, which would take longer than
    predicting a few rows, or many columns. With more than `FEW_ROWS` rows, only frames that become
    a matrix of floats or bytes are read.

    Parameters
    ----------
    X : data frame, or None for dicts only
    names : ndarray of shape (n_columns,), object
        Names of the features in fit. Frames with other names need validation.
    levels : dict of int to list
        Levels of the categories by column.
    """

    def __init__(self, X, names, levels):
        self.names, self.keys = names.tolist(), set(names)
        self.columns, self.dtypes = _layout(X)
        if self.dtypes is not None:
            of_numpy = {j: one for j, one in enumerate(self.dtypes) if isinstance(one, np.dtype)}
            objects = {j for j, dtype in of_numpy.items() if dtype.kind == "O"}
            # Objects may be numbers or not; their dtype does not say it. pandas returns categories
            # that are whole numbers as floats, if a value is missing: long ones are rounded.
            mixed = {j for j, own in levels.items() if len({type(x) for x in own}) > 1}
            are_rounded = any(getattr(self.dtypes[j], "name", "") == "category" for j in mixed)
            if list(self.columns) != self.names or not objects <= set(levels) or are_rounded:
                self.dtypes = None
        # Are frames of more than a few rows read, too? Only if they become a plain matrix at once.
        self.takes_many = self.dtypes is not None and not levels and len(X) > 0
        self.takes_many = self.takes_many and X[:1].to_numpy().dtype in PLAIN
        self.levels = {
            j: ({level: float(code) for code, level in enumerate(own)}, {type(x) for x in own})
            for j, own in levels.items()
        }

    def matrix(self, X):
        """Return the rows as `Table.matrix` does; None if X needs validation."""
        if is_records(X):
            return self._matrix_of_records(X)
        columns, dtypes = _layout(X)
        if self.dtypes is None or dtypes != self.dtypes:
            return None
        if len(X) > FEW_ROWS and not self.takes_many:
            return None
        if columns is not self.columns:
            # A pandas index compares names faster than a list does.
            is_equal = getattr(columns, "equals", columns.__eq__)
            if type(columns) is not type(self.columns) or not is_equal(self.columns):
                return None
        if self.levels:
            rows = X.rows() if hasattr(X, "rows") else X.to_numpy(dtype=object).tolist()
        else:
            rows = X.to_numpy()
            if rows.dtype in PLAIN:
                return rows  # maybe the memory of the frame, column by column
            if len(rows) > FEW_ROWS:
                return None
            rows = rows.tolist()
        return self._matrix_of(rows)

    def _matrix_of_records(self, X):
        if len(X) > FEW_ROWS or any(row.keys() != self.keys for row in X):
            return None
        return self._matrix_of([[row[name] for name in self.names] for row in X])

    def _matrix_of(self, rows):
        if not rows:
            return None
        try:
            return np.array([[self._entry(j, x) for j, x in enumerate(row)] for row in rows])
        except (TypeError, ValueError, ArithmeticError):
            return None

    def _entry(self, j, value):
        """Convert a value to float; ValueError if its type does not match the column."""
        if j not in self.levels:
            if isinstance(value, float | bool | np.bool_ | np.float32):
                return float(value)
            if isinstance(value, Integral) and abs(int(value)) <= MAX_EXACT:
                return float(value)
            if is_missing(value):
                return np.nan
            raise ValueError(value)
        number_of, kinds = self.levels[j]
        if not isinstance(value, str | Real) and not is_missing(value):
            raise ValueError(value)
        level = as_level(value)
        if level != level:
            return level
        if kinds and type(level) not in kinds:
            raise ValueError(value)
        return number_of.get(level, UNKNOWN)


def are_few(X):
    """Return whether X has a few rows; False for sparse matrices."""
    try:
        return len(X) <= FEW_ROWS
    except TypeError:
        return False


def _layout(X):
    """Return names and dtypes of the columns of a pandas or polars frame; else None, None.

    For an extension dtype, its class is returned, because categories differ between frames.
    """
    library = type(X).__module__.partition(".")[0]
    if library not in ("pandas", "polars") or type(X).__name__ != "DataFrame":
        return None, None
    dtypes = X.dtypes if library == "polars" else X.dtypes.tolist()
    return X.columns, [one if isinstance(one, np.dtype) else type(one) for one in dtypes]
