"""Tables of users: data frames, and arrays with columns of strings.

`read_table` reads a `Table` of numeric and categorical columns. `Table.matrix` converts it to a
matrix of numbers, with the number of the level for a category and NaN for missing values. Plain
matrices of numbers are only checked here.
"""

from datetime import time, timedelta
from decimal import Decimal
from numbers import Integral, Real

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from .._warnings import warn_caller
from .matrix import dense, refuse_masked, refuse_masked_rows
from .records import frame_of_records, is_records, refuse_records

UNKNOWN = -1.0  # the code of a level that was not seen in training
MAX_LEVELS = 2**24  # codes up to here are exact in float32
MAX_EXACT = 2**53  # integers up to here are exact in float64
NUMBER, CATEGORY, DATE = "number", "category", "date"
NOT_DATES = (
    "durations or times of day; derive numbers from them, such as their hours: "
    "X[name] / pandas.Timedelta(hours=1)"
)
DATES_ADVICE = (
    "dates or times, numbers or categories are needed; put skforest.DateFeatures before the "
    "estimator, as in a Pipeline, which derives numbers from them, such as the day of the week"
)
FEW_ROWS = 32  # up to this number, validation takes longer than prediction


class Table:
    """Columns of equal length.

    Parameters
    ----------
    columns : list of narwhals.Series or ndarray of shape (n_samples,)
    names : list of object
        Names of the columns, or their numbers.
    n_rows : int
    """

    def __init__(self, columns, names, n_rows):
        self.columns, self.names, self.n_rows = columns, names, n_rows
        self._distinct_of = {}

    def __len__(self):
        return len(self.columns)

    @property
    def is_numeric(self):
        """bool: whether all columns have dtypes of numbers or bools."""
        return all(
            not isinstance(column, np.ndarray)
            and (column.dtype.is_numeric() or isinstance(column.dtype, nw.Boolean))
            for column in self.columns
        )

    def selected(self, names):
        """Return the columns with the given names, in this order; all if `names` is None.

        ValueError lists missing columns.
        """
        is_named = not any(isinstance(name, Integral) for name in self.names)
        if names is None or list(names) == list(self.names) or not is_named:
            return self
        missing = [name for name in names if name not in self.names]
        if missing:
            raise ValueError(f"X has no columns {missing}, which the forest was trained on")
        return Table([self.columns[self.names.index(name)] for name in names], names, self.n_rows)

    def matrix(self, levels, is_training=False):
        """Return the columns as a float64 matrix; NaN means missing.

        Parameters
        ----------
        levels : dict of int to list
            Levels of the categories by column; the other columns are numbers.
        is_training : bool, default=False
            As in `codes`.
        """
        X = np.empty((self.n_rows, len(self)))
        for j in range(len(self)):
            X[:, j] = self.codes(j, levels[j], is_training) if j in levels else self.numbers(j)
        return X

    def kind(self, j):
        """NUMBER, CATEGORY or DATE, by the dtype of column `j`, or by its values."""
        column = self.columns[j]
        if isinstance(column, np.ndarray):
            return _kind_of_array(column)
        dtype = column.dtype
        if dtype.is_temporal():
            return DATE
        if dtype.is_numeric() or isinstance(dtype, nw.Boolean):
            return NUMBER
        native_dtype = getattr(nw.to_native(column), "dtype", None)
        if isinstance(native_dtype, np.dtype) and native_dtype.kind == "O":
            # narwhals takes objects for strings if the first 100 are missing.
            values = self.values(j)
            is_text = isinstance(dtype, nw.String) and any(isinstance(v, str) for v in values)
            return CATEGORY if is_text else _kind_of_array(values)
        if isinstance(dtype, nw.String | nw.Categorical | nw.Enum):
            return CATEGORY
        return _kind_of_array(self.values(j))

    def is_all_missing(self, j):
        """Return whether column `j` of a data frame has only missing values."""
        column = self.columns[j]
        return not isinstance(column, np.ndarray) and column.null_count() == len(column)

    def values(self, j):
        """Return the entries of a column as Python objects: ndarray of shape (n_rows,)."""
        column = self.columns[j]
        items = column.tolist() if isinstance(column, np.ndarray) else column.to_list()
        return np.fromiter(items, dtype=object, count=len(items))

    def numbers(self, j):
        """Return a column as float64, or in its dtype if that is float32 or uint8."""
        column = self.columns[j]
        if isinstance(column, np.ndarray):
            array = column
        elif isinstance(column.dtype, nw.Int128 | nw.UInt128):  # NumPy has no such dtypes
            array = column.cast(nw.Float64).to_numpy()
        elif isinstance(column.dtype, nw.Categorical):  # pyarrow fails without any category
            array = self.values(j)
        else:
            array = column.to_numpy()
        if array.ndim > 1:
            raise TypeError(f"column {self.names[j]!r} of X holds {column.dtype}, not numbers")
        if array.dtype.kind in "mM":
            raise TypeError(f"column {self.names[j]!r} of X holds {_dates_advice(column)}")
        if array.dtype.kind == "c":
            raise ValueError(f"Complex data not supported: column {self.names[j]!r} of X")
        if array.dtype == bool:
            return array.view(np.uint8)
        if array.dtype in (np.uint8, np.float32, np.float64):
            return array
        if array.dtype.kind != "O":
            return array.astype(np.float64)
        values = [np.nan if is_missing(value) else value for value in self.values(j)]
        try:
            # NumPy would read some as numbers, but not in a column of strings alone.
            if text := [value for value in values if isinstance(value, str | bytes)]:
                raise ValueError(f"could not convert string to float: {text[0]!r}")
            return np.fromiter(values, dtype=np.float64, count=len(values))
        except (TypeError, ValueError, OverflowError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            raise kind(
                f"column {self.names[j]!r} of X must hold numbers; to use it as a category, "
                f"convert all its values to one type, or name it in categorical_features: {error}"
            ) from None

    def is_ordered(self, j):
        """Return whether a column has an ordered dtype of categories."""
        column = self.columns[j]
        if isinstance(column, np.ndarray) or not isinstance(
            column.dtype, nw.Categorical | nw.Enum
        ):
            return False
        native = nw.to_native(column)
        dtype = getattr(native, "dtype", getattr(native, "type", None))
        dtype = getattr(dtype, "pyarrow_dtype", dtype)
        return isinstance(column.dtype, nw.Enum) or bool(getattr(dtype, "ordered", False))

    def _categories(self, j):
        """Return the categories of an ordered dtype, a list, in their order."""
        column = self.columns[j]
        native = nw.to_native(column)
        if not hasattr(getattr(native, "dtype", None), "pyarrow_dtype"):
            return column.cat.get_categories().to_list()
        chunks = native.array.__arrow_array__().unify_dictionaries().chunks
        return chunks[0].dictionary.to_pylist() if chunks else []

    def levels(self, j, rows=None, known=()):
        """Return the distinct values of a column in some rows, without missing ones.

        Parameters
        ----------
        rows : ndarray of int, default=None
            None: all rows.
        known : sequence of float or str
            Levels of other rows, which belong to the result, too.

        Returns
        -------
        levels : list of float or str
            In the order of an ordered dtype; otherwise sorted, numbers before strings.
        """
        values, position = self._distinct(j)
        present = np.bincount(1 + position[rows if rows is not None else slice(None)])[1:]
        found = {level for level, n in zip(values, present) if n and level == level}.union(known)
        if len(found) > MAX_LEVELS:
            raise ValueError(
                f"column {self.names[j]!r} of X has {len(found)} levels, at most {MAX_LEVELS} are "
                "supported"
            )
        if self.is_ordered(j):
            every = map(as_level, self._categories(j))
            return list(dict.fromkeys([level for level in every if level in found] + [*known]))
        return sorted(found, key=lambda level: (isinstance(level, str), level))

    def codes(self, j, levels, is_training=False):
        """Return the number of the level of every row: float64, NaN if missing, or UNKNOWN.

        If the levels are strings and the column has numbers, or the other way round, this warns;
        with `is_training`, it raises ValueError.
        """
        found, position = self._distinct(j)
        known = {type(level) for level in levels}
        given = {type(level) for level in found if level == level}
        if known and given and not known & given:
            was, now = ("strings", "numbers") if str in known else ("numbers", "strings")
            how = "astype(str)" if str in known else "pandas.to_numeric"
            message = f"column {self.names[j]!r} of X holds {now}; its levels in fit were {was}"
            if is_training:
                raise ValueError(f"{message}: convert it, as with {how}")
            warn_caller(f"{message}, so all count as unknown levels: convert it, as with {how}")
        number = {level: float(code) for code, level in enumerate(levels)}
        code = [number.get(level, UNKNOWN) if level == level else np.nan for level in found]
        if not is_training and known & given and len(levels) > 1 and self.n_rows > FEW_ROWS:
            unknown = [level for level, one in zip(found, code) if one == UNKNOWN]
            if len(unknown) == len([level for level in found if level == level]):
                warn_caller(
                    f"column {self.names[j]!r} of X has only levels that were not in fit, such as "
                    f"{unknown[0]!r}; known is {levels[0]!r}"
                )
        return np.array([*code, np.nan])[position]  # position -1 is missing

    def _distinct(self, j):
        """Return the levels of the distinct values of a column, and the position of each row.

        Missing values have the position -1, or the position of a level NaN.
        """
        if j in self._distinct_of:
            return self._distinct_of[j]
        column = self.columns[j]
        native = None if isinstance(column, np.ndarray) else nw.to_native(column)
        try:
            if hasattr(native, "factorize"):  # pandas: avoids an object for each row
                position, values = native.factorize()
                values = values.tolist()
            elif native is None and column.dtype.kind in "biuf":
                values, position = np.unique(column, return_inverse=True)
                values = values.tolist()
            else:
                items = self.values(j).tolist()
                values = list(dict.fromkeys(items))
                number = {value: i for i, value in enumerate(values)}
                position = np.fromiter(map(number.__getitem__, items), np.intp, len(items))
            found = [as_level(value) for value in values]
        except (TypeError, ValueError, ArithmeticError) as error:  # such as unhashable values
            raise TypeError(
                f"column {self.names[j]!r} of X has values that cannot be levels of a category; "
                f"convert them to strings: {error}"
            ) from None
        self._distinct_of[j] = found, position
        return found, position


def is_missing(value):
    """Return whether a value is None, NaN, or the missing value of pandas."""
    if isinstance(value, float):
        return value != value
    if isinstance(value, np.datetime64 | np.timedelta64):
        return bool(np.isnat(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def as_level(value):
    """Convert the level of a category to float or str; NaN if it is missing.

    The empty string is missing, as in text files. Numbers that no float represents become strings:
    large integers and complex numbers. TypeError for objects whose text does not show their value.
    """
    if isinstance(value, str):
        return str(value) or np.nan
    if is_missing(value):
        return np.nan
    if isinstance(value, Integral) and abs(int(value)) > MAX_EXACT:
        return str(int(value))
    if isinstance(value, Real | Decimal | np.bool_):
        return float(value)
    if type(value).__str__ is object.__str__ and type(value).__repr__ is object.__repr__:
        raise TypeError(f"values of type {type(value).__name__} have no text of their own")
    # Intervals, dates and other objects become strings.
    return str(value)


def _kind_of_array(column):
    """Return the kind of a column from its values; its dtype may not determine it."""
    if column.dtype.kind in "mM":
        return DATE
    if column.dtype.kind != "O":
        return CATEGORY if column.dtype.kind in "US" else NUMBER
    kinds = {type(value) for value in column.tolist() if not is_missing(value)}
    if kinds and all(issubclass(kind, str) for kind in kinds):
        return CATEGORY
    is_period = any(hasattr(kind, "start_time") for kind in kinds)  # of pandas
    is_date = any(hasattr(kind, "isoformat") or issubclass(kind, timedelta) for kind in kinds)
    return DATE if is_date or is_period else NUMBER


# ---------------------------------------------------------------------------------- reading tables


def is_duration(column):
    """Does a column hold durations or times of day?"""
    dtype = column.dtype
    if isinstance(dtype, nw.Duration | nw.Time) or getattr(dtype, "kind", "") == "m":
        return True
    if not (isinstance(dtype, nw.Object) or getattr(dtype, "kind", "") == "O"):
        return False
    values = column.tolist() if isinstance(column, np.ndarray) else column.to_list()
    kinds = {type(value) for value in values if not is_missing(value)}
    return bool(kinds) and all(issubclass(kind, time | timedelta) for kind in kinds)


def _dates_advice(column):
    return NOT_DATES if is_duration(column) else DATES_ADVICE


def as_numpy_target(y):
    """Return integers and bools of pandas' extension dtypes in the dtype of NumPy.

    scikit-learn converts them to float64. Anything else, and y with missing values, is unchanged.
    TypeError for masked arrays.
    """
    refuse_masked(y, "y", "leave out the masked rows first, also in X")
    dtype = getattr(getattr(y, "dtype", None), "numpy_dtype", None)
    if dtype is None or dtype.kind not in "biu" or y.isna().any():
        return y
    return y.to_numpy(dtype)


def as_frame(X, names=None):
    """Return X, or a pyarrow table if only the interchange protocols can read X.

    With `names` of the columns, a list of dicts with these keys becomes a data frame. TypeError
    for other rows as dicts, and for text, with advice.
    """
    if names is not None and is_records(X):
        X = frame_of_records(X, names)
    refuse_records(X)
    shape = getattr(X, "shape", None)
    has_rows_only = isinstance(shape, tuple) and len(shape) == 1
    if isinstance(X, np.ndarray | list | tuple) or has_rows_only:
        return X
    if nw.dependencies.is_into_dataframe(X):
        return X
    for protocol in ("__arrow_c_stream__", "__dataframe__"):
        if hasattr(X, protocol):
            try:
                import pyarrow
                import pyarrow.interchange
            except ImportError:
                raise TypeError(
                    f"X is a {type(X).__name__}; install pyarrow to read it, or convert it to a "
                    "pandas or polars data frame"
                ) from None
            if protocol == "__arrow_c_stream__":
                return pyarrow.table(X)
            return pyarrow.interchange.from_dataframe(X)
    return X


def integer_columns(X, n_columns):
    """Numbers of the columns of a data frame whose dtype is of integers; of all in an array."""
    if not nw.dependencies.is_into_dataframe(X):
        return range(n_columns)
    columns = nw.from_native(X).iter_columns()
    return [j for j, column in enumerate(columns) if column.dtype.is_integer()]


def read_table(X):
    """Read X as a Table; None unless it is a data frame or an array of objects or strings."""
    if type(X) is np.ndarray and X.dtype.kind in "biuf":
        return None
    refuse_masked_rows(X)
    if isinstance(X, np.ndarray) and X.dtype.kind == "V":
        raise TypeError(
            f"X has the structured dtype {X.dtype}; pass pandas.DataFrame(X), or an array of "
            "shape (n_samples, n_features)"
        )
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"X has several columns of one name: {error}") from None
    if isinstance(frame, nw.DataFrame):
        names = frame.columns
        return Table(list(frame.iter_columns()), names, len(frame))
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(
            f"X is a {type(X).__module__}.{type(X).__name__}, whose rows are not computed yet; "
            "pass X.collect()"
        )
    shape, dtype = getattr(X, "shape", None), getattr(X, "dtype", None)
    if isinstance(shape, tuple) and len(shape) == 1 and getattr(dtype, "kind", "O") in "OSU":
        raise ValueError(
            f"Expected 2D array, got 1D array instead: X is of type {type(X).__name__}. Reshape "
            "your data: pass a data frame or an array of shape (n_samples, n_features)"
        )
    if isinstance(X, list | tuple):
        try:
            X = as_array(X)
        except ValueError:  # rows of different lengths
            return None
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUSmM":
        return table_of_matrix(X)
    return None


def table_of_matrix(X):
    """Return the columns of a matrix as a Table."""
    return Table(list(X.T), list(range(X.shape[1])), len(X))


def as_array(X):
    """Convert a list of rows to an array, of objects unless all entries are numbers.

    Sparse matrices become CSR matrices, since others may not have rows. Data frames, arrays and
    whatever else has a shape are returned as they are. TypeError for masked arrays.
    """
    refuse_masked_rows(X)
    if hasattr(X, "shape"):
        return X.tocsr() if sparse.issparse(X) else X
    array = np.asarray(X)  # numbers beside text would become text
    return array if array.dtype.kind in "biuf" else np.array(X, dtype=object)


# ---------------------------------------------------------------------------- finding categories


def find_categories(table, categorical_features, is_free=True):
    """Find the columns of a table that are categories.

    Parameters
    ----------
    table : Table
    categorical_features : "from_dtype", None, or array-like of bool, int or str
        The parameter of an estimator.
    is_free : bool, default=True
        Whether the user may name other columns in `categorical_features`.

    Returns
    -------
    is_categorical : ndarray of shape (n_columns,), bool

    Raises
    ------
    ValueError
        If `categorical_features` does not match the table, or a column that is not a category
        holds strings.
    TypeError
        If such a column holds dates or times.
    """
    if not len(table):
        raise ValueError(
            f"Found array with 0 feature(s) (shape=({table.n_rows}, 0)) while a minimum of 1 is "
            "required: X has no columns"
        )
    kinds = [table.kind(j) for j in range(len(table))]
    from_dtype = isinstance(categorical_features, str) and categorical_features == "from_dtype"
    if categorical_features is None:
        mask = np.zeros(len(table), dtype=bool)
    elif from_dtype:
        is_text = [isinstance(c, np.ndarray) and c.dtype.kind in "US" for c in table.columns]
        mask = np.array([kind == CATEGORY for kind in kinds]) & ~np.array(is_text)
    else:
        mask = _given_categories(categorical_features, table.names)
    for j, (name, kind, is_categorical) in enumerate(zip(table.names, kinds, mask)):
        where = f"column {name!r} of X"
        if kind == DATE and not is_categorical:
            raise TypeError(f"{where} holds {_dates_advice(table.columns[j])}")
        if kind == CATEGORY and not is_categorical and not table.is_all_missing(j):
            advice = (
                '; pass a data frame with categorical_features="from_dtype", or name the column '
                "in categorical_features"
            )
            raise ValueError(
                f"{where} holds strings or categories, but is to hold numbers (could not convert "
                f"string to float){advice if is_free else ''}"
            )
    return mask


def by_name(values):
    """Return a Series of pandas whose labels are strings as a dict, and others as they are."""
    labels = getattr(values, "index", None)
    if not hasattr(values, "to_dict") or not all(isinstance(label, str) for label in labels):
        return values
    return values.to_dict()


def _given_categories(categorical_features, names):
    """Convert `categorical_features` to a mask."""
    given, n_features = np.asarray(categorical_features), len(names)
    of_name = by_name(categorical_features)
    if isinstance(of_name, dict) and given.dtype.kind == "b":  # not in the order of the columns
        given = np.array([name for name, is_category in of_name.items() if is_category], dtype=str)
    shown = f"categorical_features={categorical_features!r}"
    if isinstance(categorical_features, list | tuple):
        kinds = {(isinstance(item, str), isinstance(item, bool)) for item in categorical_features}
        given = np.asarray(categorical_features, dtype=object) if len(kinds) > 1 else given
    if given.size == 0:
        return np.zeros(n_features, dtype=bool)
    if given.dtype.kind == "O" and all(isinstance(item, str) for item in given.ravel()):
        given = given.astype(str)
    if given.ndim != 1 or given.dtype.kind not in "biuU":
        raise ValueError(
            f'{shown} must be "from_dtype", None, a mask of bool, or a sequence of column numbers '
            "or of column names"
        )
    if given.dtype.kind == "b":
        if given.shape != (n_features,):
            raise ValueError(f"{shown} has {len(given)} entries, X has {n_features} features")
        return given
    if given.dtype.kind == "U":
        if isinstance(names[0], Integral):
            raise ValueError(f"{shown} has names, but the columns of X have none")
        missing = [name for name in given.tolist() if name not in names]
        if missing:
            raise ValueError(f"{shown} has {missing[0]!r}, which is not a column of X")
        return np.isin(np.array(names, dtype=str), given)
    if given.min() < 0 or given.max() >= n_features:
        raise ValueError(f"{shown} must be in 0 .. {n_features - 1}, the columns of X")
    return np.isin(np.arange(n_features), given)


# -------------------------------------------------------------------------------- plain matrices


def input_dtype(X, is_scaling):
    """Return the dtype to which X is converted before a feature map is applied.

    It is uint8 for bytes and bools, else float32; or, for maps that scale, one that is exact.
    """
    dtype = getattr(X, "dtype", None)
    dtypes = getattr(X, "dtypes", None)
    if dtype is None and dtypes is not None:  # a DataFrame
        names = {str(one) for one in dtypes}
    else:
        names = {str(dtype)}
    if names <= {"uint8", "bool"}:
        return np.uint8
    return np.float64 if is_scaling and names != {"float32"} else np.float32


def where_not_finite(X, names, missing_too):
    """Return the name of the first column with a value that is not finite, and advice."""
    if sparse.issparse(X):
        return "Missing values are supported in dense X only; remove or clip infinite ones."
    table = read_table(X)
    X = X if table is None else table.matrix({})  # nullable dtypes have no NaN
    with np.errstate(over="ignore"):
        values = np.asarray(X, dtype=np.float64).astype(np.float32)
    wrong = ~np.isfinite(values) if missing_too else np.isinf(values)
    if not wrong.any():
        return ""
    name = names[int(np.flatnonzero(wrong.any(axis=0))[0])]
    first = "Fill missing values first, as with sklearn.impute.SimpleImputer, and remove"
    return f"It is in column {name!r}. {first if missing_too else 'Remove'} or clip infinite ones."


# ------------------------------------------------------------------------------ mixtures of rows


def as_rows(X):
    """Rows of a table for `mixed_rows`: a narwhals.DataFrame, or an ndarray with two axes."""
    if nw.dependencies.is_into_dataframe(X):
        return nw.from_native(X)
    X = np.asarray(as_array(X))
    return X.reshape(len(X), -1)


def stacked_rows(first, second):
    """Rows of two tables of one kind, one below the other: a narwhals.DataFrame, or an ndarray."""
    if all(map(nw.dependencies.is_into_dataframe, (first, second))):
        first, second = nw.from_native(first), nw.from_native(second)
        if all(isinstance(name, str) for name in first.columns):
            second = second.select(first.columns)
        else:  # estimators read such columns by position
            names = first.to_native().columns
            second = nw.from_native(second.to_native().set_axis(names, axis=1))
        return nw.concat([first, second], how="vertical")
    return np.concatenate([dense(as_array(X)) for X in (first, second)])


def mixed_rows(rows, number):
    """Rows whose column j comes from the rows number[:, j] of `as_rows` or `stacked_rows`."""
    if isinstance(rows, np.ndarray):
        return rows[number, np.arange(number.shape[1])]
    columns = {name: rows.get_column(name)[number[:, j]] for j, name in enumerate(rows.columns)}
    return nw.from_dict(columns).to_native()
