"""Validation of parameters and tables, which all estimators share.

`TableEstimator` reads X, y and sample weights; a subclass says which types it takes.
"""

import math
import re
from abc import ABCMeta
from contextlib import contextmanager
from datetime import date, timedelta
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state, check_X_y
from sklearn.utils.validation import validate_data

from .._warnings import warn_caller
from ..forest.storage import as_levels
from ..table.feature_map import MISSING
from ..table.frames import (
    UNKNOWN,
    as_array,
    as_frame,
    as_numpy_target,
    find_categories,
    input_dtype,
    integer_columns,
    read_table,
    table_of_matrix,
    where_not_finite,
)
from ..table.matrix import BLOCK, canonical_csr, dense, refuse_masked_rows, value_range
from ..table.training_set import check_sample_weight
from ..training.parameters import ParameterObject

MAX_COUNT = 2**31 - 1  # of rows, of features, and of anything a parameter counts
# A predictor takes float64 where float32 would move a training value by more than this share of
# the range of its column: then some rows change sides at one of a few hundred thresholds.
FLOAT32_STEP = 2.0**-19
FLOAT32_MAX = float(np.finfo(np.float32).max)
# Text that is no category. Categories repeat a few values many times. Fewer than MIN_ROWS rows say
# nothing about that, nor do fewer values than a month has days, unless nearly every row has its
# own value.
MIN_ROWS = 30  # distinct rows that are not missing
DISTINCT = 0.8  # levels by row: identifiers and free text have as many, or more
MIN_PARSED = 32  # levels, of which PARSED are numbers or dates
PARSED = 0.9  # some are often words for missing values
MAX_NUMBER_ROWS = 10  # per level: numbers and dates with more rows per level may be codes
DATE_TEXT = re.compile(
    r"""([a-z]{3,9},?\s+)?                             # day of the week
    (\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})
    |\d{1,2}[-.\s]*MONTH[-.,\s]*\d{2,4}|MONTH\s*\d{1,2},?\s*\d{2,4}|\d{4}[-\s]MONTH[-\s]\d{1,2})
    ([T,\s]\s*TIME)?|TIME""".replace(
        "MONTH", "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
    ).replace("TIME", r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*([ap]m)?\s*(z|utc|[+-]\d{2}:?\d{2})?"),
    re.IGNORECASE | re.VERBOSE,
)
NO_CATEGORIES = {  # the reasons, and what to do
    "numbers as text": "Convert numbers with pandas.to_numeric, without signs and commas",
    "dates or times as text": "Derive numbers from dates with skforest.DateFeatures",
    "as many levels as rows, or nearly": "Drop identifiers, and derive numbers from free text",
}
N_COMPARED = 200  # first rows, in which rounding is looked for
MIN_NUMBERED = 100  # rows in which whole numbers that are all different tell something
HAVE_OTHER_BOUNDS = ("random_state", "max_iter", "min_patch", "max_patch")


class TableEstimator(BaseEstimator, metaclass=ABCMeta):
    """Validation of parameters and tables; not for direct use."""

    _parameter_constraints: dict = {}
    _default_procedure = None  # the class of the parameter `procedure`
    _scales_features = False  # does the feature map scale the features?
    _takes_missing = True  # does it fill missing values?

    def __init_subclass__(cls, **kwargs):
        """Add the constraints of all base classes to those of the class."""
        super().__init_subclass__(**kwargs)
        merged, names = {}, cls._get_param_names()
        for base in reversed(cls.__mro__):
            merged |= vars(base).get("_parameter_constraints", {})
        cls._parameter_constraints = {
            name: kinds for name, kinds in merged.items() if name in names or not names
        }

    # ------------------------------------------------------------------------------ in notebooks

    def _repr_html_inner(self):
        """The diagram of scikit-learn and, once the estimator is fitted, a table of the model."""
        return super()._repr_html_inner() + self._model_html()

    def _repr_mimebundle_(self, **kwargs):
        bundle = super()._repr_mimebundle_(**kwargs)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def _model_html(self):
        """A table of the fitted model; nothing before `fit`."""
        return ""

    # ---------------------------------------------------------------------------------- checking

    @contextmanager
    def _unchanged_on_error(self):
        """Restore all attributes if the body raises or is interrupted."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _validate_params(self):
        """Check every parameter; called by `fit`."""
        super()._validate_params()
        check_n_jobs(getattr(self, "n_jobs", None))
        check_counts(self)
        for value in self.get_params(deep=False).values():
            if isinstance(value, ParameterObject):
                value._validate_params()

    def set_params(self, **params):
        """Set parameters; ``procedure__...`` begin with the defaults where there is no procedure.

        Parameters
        ----------
        **params
            Parameters of the estimator, and those of nested objects as ``name__parameter``.

        Returns
        -------
        self : object
        """
        has_own = any(name.startswith("procedure__") for name in params)
        if not has_own or "procedure" in params or self._default_procedure is None:
            return super().set_params(**params)
        before, self.procedure = self.procedure, self._procedure
        try:
            return super().set_params(**params)
        except Exception:
            self.procedure = before
            raise

    @property
    def _procedure(self):
        """The parameter `procedure`, or one with all defaults; None if the class has none."""
        given, default = getattr(self, "procedure", None), self._default_procedure
        return default() if given is None and default is not None else given

    @property
    def _layout(self):
        """The parameter that says which features are neighbours, as text, or None."""
        if (shape := getattr(self, "feature_shape", None)) is not None:
            return f"feature_shape={shape}"
        return None if getattr(self, "feature_graph", None) is None else "feature_graph"

    def _unfolded(self, X):
        """X with its rows flattened, where it is given as (n_samples, *feature_shape)."""
        feature_shape = getattr(self, "feature_shape", None)
        refuse_masked_rows(X)
        if isinstance(X, list | tuple) and feature_shape is not None:
            X = as_array(X)
        shape = getattr(X, "shape", None)
        for size, what in zip(shape or (), ("rows", "columns")):
            if isinstance(size, Integral) and size > MAX_COUNT:
                raise ValueError(f"X has {size} {what}, at most {MAX_COUNT} are supported")
        if shape is None or len(shape) <= 2:
            return X
        if feature_shape is None:
            if not hasattr(self, "feature_shape"):
                return X
            raise ValueError(
                f"Found array with dim {len(shape)}, but feature_shape is None: pass "
                f"feature_shape={tuple(shape[1:])}, or reshape X to (n_samples, n_features)"
            )
        if tuple(shape[1:]) != tuple(np.atleast_1d(feature_shape)):
            raise ValueError(
                f"X has rows of shape {tuple(shape[1:])}, feature_shape is {feature_shape}"
            )
        return np.asarray(X).reshape(shape[0], math.prod(shape[1:]))

    def _validate_fit(self, X, y, sample_weight, known_levels=None):
        """Validated X, y and weights, and the levels of the categories in X.

        X becomes a matrix of numbers: those of levels for categories, NaN for missing values.
        `known_levels` come from an earlier fit, and X is checked against its columns; None: X
        determines the levels.
        """
        given, y = as_frame(self._unfolded(X)), as_numpy_target(y)
        X = given
        self._check_target_type(y)
        reset, levels = known_levels is None, known_levels
        categorical = getattr(self, "categorical_features", None) if reset else list(levels)
        table, is_categorical = self._read(X, categorical, reset)
        if table is None:
            X, y = self._validated(X, y, reset=reset, **self._target_options)
            X = canonical_csr(X) if sparse.issparse(X) else X
            weight, levels = check_sample_weight(sample_weight, X.shape[0]), {}
        else:
            weight = check_sample_weight(sample_weight, table.n_rows)
            if reset:
                there = None if weight.all() else np.flatnonzero(weight)
                columns = np.flatnonzero(is_categorical).tolist()
                levels = as_levels({j: table.levels(j, there) for j in columns})
                levels.ordered = frozenset(filter(table.is_ordered, columns))
            given = table.matrix(levels, is_training=True)
            X, y = self._validated(given, y, reset=None, **self._target_options)
        if reset:
            self.is_categorical_ = is_categorical
            if not sparse.issparse(X):
                self._warn_of_rounding(given, X)
                whole = integer_columns(given, X.shape[1])
                self._warn_of_numbered_rows(X, set(whole) - set(levels))
        return X, y, weight, levels

    def _read(self, X, categorical_features, reset):
        """X as a Table, and which columns are categories; None, None for a matrix of numbers.

        The names of the columns of a table are set, or checked against those of fit.
        """
        table = read_table(X)
        if table is None:
            from_dtype = isinstance(categorical_features, str)
            if categorical_features is None or from_dtype or len(categorical_features) == 0:
                return None, None
            if sparse.issparse(X):
                raise TypeError(
                    f"categorical_features={categorical_features!r} takes no sparse X; "
                    "pass X.toarray()"
                )
            X = check_array(X, dtype=None, ensure_all_finite=False)
            table = table_of_matrix(X)
        validate_data(self, X, "no_validation", reset=reset, skip_check_array=True)
        is_free = reset and hasattr(self, "categorical_features")
        is_categorical = find_categories(table, categorical_features, is_free)
        if not is_categorical.any():
            # Numbers alone are read faster as one matrix, where scikit-learn knows how.
            is_plain = hasattr(X, "to_numpy") and table.is_numeric
            return (None if is_plain else table), None
        if self._layout is not None:
            name = table.names[int(np.argmax(is_categorical))]
            raise ValueError(
                f"column {name!r} of X is a category, which has no neighbours with {self._layout}"
            )
        return table, is_categorical

    def _levels_of(self, X, levels, counted, kept):
        """Levels that occur in `kept` rows, as `_validate_fit` returns them for `counted` ones.

        Both are masks. If some of the counted rows are not kept, X gets the new numbers of levels.
        """
        if not levels or np.array_equal(counted, kept):
            return levels
        found = {}
        for j, known in levels.items():
            is_level = X[:, j] >= 0
            code = X[is_level, j].astype(np.int64)
            used = np.unique(code[kept[is_level]])
            number = np.full(len(known), UNKNOWN)
            number[used] = np.arange(len(used))
            X[is_level, j], found[j] = number[code], [known[k] for k in used]
        found = as_levels(found)
        found.ordered = levels.ordered
        return found

    def _class_weighted(self, y, weight):
        """Weights of samples or rows, multiplied by those of their classes."""
        return weight

    def _leaves_out_text(self, data, Z):
        """Blank columns of text that are no categories; return whether there are any.

        `data` is a TrainingSet of `Z`. Such a column gets a single level in Z and in the feature
        map, so that it says at most where values are missing. Columns that the user has named and
        columns of ordered dtypes are kept.
        """
        levels = data.feature_map.levels
        if not levels or not isinstance(getattr(self, "categorical_features", None), str):
            return False
        found = {}
        for j in sorted(set(levels) - levels.ordered):
            n_rows = np.count_nonzero(data.X[:, j] != MISSING)
            if reason := why_no_category(levels[j], n_rows):
                found.setdefault(reason, []).append(j)
                Z[Z[:, j] != MISSING, j] = 0
                levels = data.feature_map.levels = levels.with_one(j)
        if found:
            names = getattr(self, "feature_names_in_", range(data.X.shape[1]))
            shown = [
                f"{', '.join(repr(names[j]) for j in columns)} ({reason})"
                for reason, columns in found.items()
            ]
            advice = [NO_CATEGORIES[reason] for reason in found]
            warn_caller(
                f"Columns of X that are not categories are not used: "
                f"{'; '.join(shown)}. {'. '.join(advice)}. To use them as categories, name them "
                "in categorical_features."
            )
        return bool(found)

    def _warn_of_rounding(self, X, rounded):
        """Warn of columns most of whose values are equal to others once they are float32."""
        if rounded.dtype != np.float32:
            return
        has_rows = hasattr(X, "columns") or isinstance(X, list | tuple)
        X = X[:N_COMPARED] if has_rows else np.asarray(X)[:N_COMPARED]
        table, rounded = read_table(X), rounded[:N_COMPARED]
        X = np.asarray(X if table is None else table.matrix({}), dtype=np.float64)
        moved = np.flatnonzero((X != rounded).any(axis=0))
        n_distinct = [[len(np.unique(Z[:, j])) for Z in (X, rounded)] for j in moved]
        if columns := [j for j, (n, n_left) in zip(moved, n_distinct) if 2 * n_left <= n]:
            names = getattr(self, "feature_names_in_", range(X.shape[1]))
            warn_caller(
                f"{type(self).__name__} reads numbers as float32, in which most values of these "
                f"columns of X are equal to others: {', '.join(repr(names[j]) for j in columns)}. "
                "Subtract an offset from them, or multiply them, so that they differ."
            )

    def _warn_of_numbered_rows(self, X, columns):
        """Warn of those columns that probably number the rows."""
        columns = np.array(sorted(columns), dtype=np.int64)
        first = np.sort(X[:MIN_NUMBERED, columns], axis=0)  # nearly always shows that some repeat
        columns = columns[(first[1:] != first[:-1]).all(axis=0)]
        if columns := [j for j in columns.tolist() if numbers_rows(X[:, j])]:
            names = getattr(self, "feature_names_in_", range(X.shape[1]))
            warn_caller(
                "Columns of X with a different whole number in every row, without large gaps: "
                f"{', '.join(repr(names[j]) for j in columns)}. Leave them out if they number the "
                "rows. If they count time, later rows are outside the range of training."
            )

    def _validated(self, X, *y, reset, **options):
        """`validate_data`, with errors that name the column; None: names have been checked."""
        dtype = input_dtype(X, self._scales_features)
        finite = "allow-nan" if self._takes_missing else True
        options |= {"dtype": dtype, "order": "C", "ensure_all_finite": finite}
        if sparse.issparse(X):
            if self._needs_dense is not None:
                raise TypeError(
                    "Sparse data was passed for X, but dense data is required by "
                    f"{self._needs_dense}; pass X.toarray()"
                )
            if hasattr(X, "check_format"):
                try:
                    X.check_format(full_check=True)
                except ValueError as error:
                    raise ValueError(f"X is not a valid sparse matrix: {error}") from None
            dtype = np.float64 if dtype == np.float64 else np.float32
            options |= {"accept_sparse": "csr", "dtype": dtype, "ensure_all_finite": True}
        try:
            # Sums of the largest numbers, which scikit-learn looks at, may overflow.
            with np.errstate(over="ignore", invalid="ignore"):
                if reset is not None:
                    return validate_data(self, X, *y, reset=reset, **options)
                if y:
                    return check_X_y(X, *y, estimator=self, **options)
                return check_array(X, estimator=self, input_name="X", **options)
        except (ValueError, TypeError) as error:
            message = str(error)
            if "Input X contains" in message:
                names = getattr(self, "feature_names_in_", range(MAX_COUNT))
                where = where_not_finite(X, names, not self._takes_missing)
                raise ValueError(f"{message.splitlines()[0]} {where}") from None
            if "could not convert" in message or "float()" in message:
                raise type(error)(f"X, and y in regression, must hold numbers: {error}") from error
            raise

    def _find_float64_columns(self, X, weight, scale, is_known):
        """Find the columns whose training values float32 does not represent well enough.

        `scale` has the factors of the feature map, about the reciprocals of the ranges; empty:
        float32 is read. `is_known`: columns are added to the known ones. Constant columns are in
        no split and do not count.
        """
        found = set(getattr(self, "_float64_columns", []) if is_known else [])
        if X.dtype == np.float64 and len(scale):
            step = np.zeros(X.shape[1])
            for start in range(0, X.shape[0], BLOCK):
                block = dense(X[start : start + BLOCK])[weight[start : start + BLOCK] > 0]
                with np.errstate(over="ignore", invalid="ignore"):
                    moved = np.abs(block.astype(np.float32) - block)
                # The map clips numbers beyond float32, unless others are nearly as large.
                largest = np.where(scale < 1 / FLOAT32_MAX**0.9, FLOAT32_MAX, 0.0)
                moved = np.where(np.isfinite(moved), moved, largest)
                step = np.maximum(step, moved.max(axis=0, initial=0))
            is_moved = step * scale > FLOAT32_STEP
            if is_moved.any():
                low, high = value_range(X)
                found |= set(np.flatnonzero(is_moved & (low < high)).tolist())
        self._float64_columns = sorted(found)

    @property
    def _needs_dense(self):
        """The parameter or class that cannot take sparse X, as text; None if X may be sparse."""
        return type(self).__name__

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_missing
        tags.input_tags.sparse = self._needs_dense is None
        return tags


class Procedure(ParameterObject):
    """Base class of procedures, which hold details of training; not for direct use.

    A subclass takes the parameters of `_parameter_constraints` in its ``__init__``; its `_printed`
    are the values in the paper that differ from the defaults.
    """

    _parameter_constraints: dict = {}
    _printed: dict = {}

    @classmethod
    def as_printed(cls, **changes):
        """The procedure of the paper.

        Parameters
        ----------
        **changes
            Parameters that should differ from the paper, or that it does not state.

        Returns
        -------
        procedure : object of this class
        """
        return cls(**cls._printed | changes)

    def settings(self, kind):
        """The parameters that are fields of a dataclass, and not of its base, as keywords."""
        return {name: getattr(self, name) for name in kind.__annotations__ if hasattr(self, name)}

    def _validate_params(self):
        super()._validate_params()
        check_counts(self)


@contextmanager
def errors_about(arguments):
    """Prefix errors of the body, which calls its arguments X and y, with their real names."""
    try:
        yield
    except (TypeError, ValueError) as error:
        raise type(error)(f"{arguments}: {error}") from error


def check_counts(estimator):
    """Raise ValueError if a parameter that counts is too large."""
    for name, value in estimator.get_params(deep=False).items():
        is_count = isinstance(value, Integral) and name not in HAVE_OTHER_BOUNDS
        if is_count and value > MAX_COUNT:
            raise ValueError(f"{name}={value} is too large, at most {MAX_COUNT} is supported")


def check_n_jobs(n_jobs):
    """Raise ValueError unless joblib can use this number of threads."""
    if n_jobs == 0:
        raise ValueError(
            "n_jobs=0 is not valid: None, -1 for all processors, or a count is needed"
        )


def why_no_category(levels, n_rows):
    """Why a column with some levels is no category, a key of NO_CATEGORIES; None if it may be.

    `n_rows` is the number of distinct rows in which it is not missing.
    """
    if n_rows < MIN_ROWS or len(levels) < min(MIN_PARSED, DISTINCT * n_rows):
        return None
    text = [level.strip() for level in levels if isinstance(level, str)]
    is_distinct = len(levels) >= DISTINCT * n_rows
    if is_distinct or n_rows < MAX_NUMBER_ROWS * len(levels):
        if sum(map(_is_number, text)) >= PARSED * len(levels):
            return "numbers as text"
        if sum(DATE_TEXT.fullmatch(level) is not None for level in text) >= PARSED * len(levels):
            return "dates or times as text"
    return "as many levels as rows, or nearly" if is_distinct else None


def numbers_rows(column):
    """Does a column have a different whole number in every row, without large gaps?"""
    n, first = len(column), column[:MIN_NUMBERED]
    if n < MIN_NUMBERED or (first != np.rint(first)).any():
        return False
    with np.errstate(over="ignore"):
        is_dense = np.ptp(column) < 2 * n  # False with missing values
    return bool(is_dense and (column == np.rint(column)).all() and len(np.unique(column)) == n)


def _is_number(text):
    """Is text a finite number, maybe with a sign of currency or per cent, and commas?

    Codes such as 00137, with zeros in front, are not.
    """
    if re.match(r"0\d", text):
        return False
    try:
        return math.isfinite(float(text.strip("$€£% ").replace(",", "")))
    except ValueError:
        return False


def has_text_or_dates(y):
    """Does a target, in any form, hold strings, dates or times?"""
    try:
        values = np.asarray(y)
    except (TypeError, ValueError):  # others check the shape
        return False
    if values.dtype.kind != "O":
        return values.dtype.kind in "USTmM"
    kinds = {type(value) for value in values.ravel()}
    return any(issubclass(kind, str | bytes | date | timedelta) for kind in kinds)


def check_unchanged(before, now):
    """ValueError if the values of parameters, dicts by name, are not those of the last fit."""
    for name, old in before.items():
        plain = [v.tolist() if isinstance(v, np.ndarray) else v for v in (old, now[name])]
        if plain[0] != plain[1]:
            raise ValueError(
                f"{name}={now[name]!r}, but warm_start=True continues a fit with {name}={old!r}"
            )


def summary_html(forest, seconds=None):
    """An HTML table of the size of a forest, and of the seconds that its training took."""
    low, high = forest.max_depth.min(), forest.max_depth.max()
    n_bags = len(forest.bag_start) - 1
    rows = {
        "trees": f"{len(forest):,}" + (f" in {n_bags} bags" if n_bags > 1 else ""),
        "leaves": f"{forest.n_leaves.sum():,}",
        "depth": high if low == high else f"{low} to {high}",
        "memory": size_text(forest.nbytes),
    }
    if seconds is not None:
        rows["last fit"] = f"{seconds:.3g} s" if seconds < 1000 else f"{seconds / 60:,.0f} min"
    cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows.items())
    return f'<table border="1" class="dataframe"><tbody>{cells}</tbody></table>'


def size_text(n_bytes):
    """A number of bytes in a unit that fits."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes / 2**10:.1f} KiB"


# ------------------------------------------------------------------------------------- parameters


def store_parameters(estimator, arguments):
    """Set the parameters of an estimator from the ``locals()`` of its ``__init__``."""
    for name, value in arguments.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


def draw_seed(random_state):
    """62 random bits as an int; `random_state` is an int, a RandomState or None."""
    high, low = check_random_state(random_state).randint(2**31 - 1, size=2, dtype=np.int64)
    return (int(high) << 31) + int(low)


def check_continues(estimator):
    """Raise ValueError if a fit with a `checkpoint` could not continue."""
    if estimator.random_state is None:
        raise ValueError(
            "checkpoint cannot be used with random_state=None: a second call would train other "
            "trees; set a number, such as 0"
        )
    if estimator.time_limit is not None:
        raise ValueError(
            f"checkpoint cannot be used with time_limit={estimator.time_limit}: the model would "
            "depend on the time of the interruption"
        )
