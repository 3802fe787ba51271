"""Dates as numbers."""

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from numbers import Integral, Real
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import narwhals.stable.v2 as nw
import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .frames import (
    CATEGORY,
    DATE,
    NOT_DATES,
    as_frame,
    is_duration,
    is_missing,
    read_table,
    table_of_matrix,
)

PARSED = 0.9  # share of the texts of a column that are dates; some are words for missing values
N_TRIED = 100  # distinct texts that choose among the formats
DAYS = "%Y/%m/%d %Y.%m.%d %d.%m.%Y %m/%d/%Y %d/%m/%Y %m-%d-%Y %d-%m-%Y %d-%b-%Y %Y-%m".split()
DAYS += ["%d %b %Y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %Y", "%B %Y"]
DAYS += "%d.%m.%y %d/%m/%y %m/%d/%y %d-%b-%y".split()  # years of two digits: 1969 to 2068
TIMES = ["", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p"]
FORMATS = ["ISO", *map("".join, product(DAYS, TIMES))]
SINE_DIGITS = 6  # exact enough for minutes, and different numbers also differ in float32
PERIODS = {"month": 12, "weekday": 7, "hour": 24}
NAIVE = ""  # the zone of columns whose times have none
FINER = ("ns", "ps", "fs", "as")  # units of times that are rounded to microseconds


class DateFeatures(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Replace columns of dates by numbers.

    A date becomes the year, the month, the day of the week (0 is Monday), the hour with its
    minutes as a fraction, and the days since the first training date. The sine and cosine of the
    month, the day of the week and the hour put December next to January. What is constant in
    training is left out, except for the days. Other columns stay as they are.

    Parameters
    ----------
    columns : sequence of str or int, or one of these, default=None
        Columns that hold dates, by name or number. None: those with a dtype of dates, and those of
        text in which nine of ten distinct values are dates.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen during fit.
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        Names of the columns, if X was a data frame whose column names are all strings.

    Notes
    -----
    Missing dates become NaN, and so do values of the rows of `fit` that are no dates, such as
    "unknown"; other values that are no dates are refused. Text is ISO 8601 with hyphens, as
    ``2025-12-31 18:00``, or in another usual order, as ``31.12.2025`` or ``Dec 31, 2025``; years
    of two digits are those from 1969 to 2068. Periods of pandas are read as their first moments.
    Times with a zone, or an offset, are read in the zone that their column had in `fit`, or in UTC
    if it was text with offsets. A column without zones and offsets in `fit` takes no times with
    them later, and a column with them takes no times without.

    Examples
    --------
    >>> import pandas as pd
    >>> from skforest import DateFeatures
    >>> when = pd.to_datetime(["2025-12-29", "2026-01-03"])
    >>> X = pd.DataFrame({"price": [3.5, 4.0], "when": when})
    >>> DateFeatures().fit_transform(X).T.round(2)
                           0        1
    price                3.5     4.00
    when_year         2025.0  2026.00
    when_month          12.0     1.00
    when_month_sin       0.0     0.50
    when_month_cos       1.0     0.87
    when_weekday         0.0     5.00
    when_weekday_sin     0.0    -0.97
    when_weekday_cos     1.0    -0.22
    when_days            0.0     5.00
    """

    def __init__(self, columns=None):
        self.columns = columns

    def fit(self, X, y=None):
        """Find the columns of dates.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
        y : None
            Ignored.

        Returns
        -------
        self : object

        Raises
        ------
        TypeError
            If a column holds durations or times of day.
        ValueError
            If a column of `columns` is missing or holds no dates, if day and month of a text
            cannot be told apart, or if a feature has the name of a column.
        """
        _, table = self._read(X, reset=True)
        names = _output_names(table)
        named, self._dates, self._words = self.columns, {}, {}
        named = [named] if isinstance(named, str | Integral) else named
        for key in () if named is None else named:
            if key not in table.names and key not in range(len(table)):
                raise ValueError(f"columns has {key!r}, which is not a column of X")
        for j, name in enumerate(table.names):
            if named is not None and name not in named and j not in named:
                continue
            form = _format_of(table, j)
            if form is not None:
                zone = _zone_in_fit(table, j, form)
                known = (times := times_of(table, j, zone, form))[~np.isnat(times)]
                origin = int(known.min().astype("M8[D]").astype(int)) if len(known) else 0
                found = _features(known, origin)
                parts = [p for p in found if p == "days" or len(np.unique(found[p])) > 1]
                self._dates[j] = zone, form, origin, parts
                self._words[j] = _words(table, j, form)
            elif named is not None:
                raise ValueError(f"column {name!r} of X holds no dates")
            if form is not None and (clash := set(self._names(j, names[j])) & set(table.names)):
                raise ValueError(f"{name!r} becomes {min(clash)!r}, which is a column of X, too")
        return self

    def transform(self, X):
        """Replace the columns of dates.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            Rows with the same columns as in `fit`.

        Returns
        -------
        X_out : ndarray or dataframe of shape (n_samples, n_features_out)
            Of the same kind as X.

        Raises
        ------
        ValueError
            If a value of a column of dates is neither a date of the form in `fit` nor missing.
        """
        check_is_fitted(self)
        X, table = self._read(X, reset=False)
        frame = nw.from_native(X, pass_through=True)
        found, names = {}, _output_names(table)
        for j, name in enumerate(names):
            if j in self._dates:
                zone, form, origin, parts = self._dates[j]
                words = vars(self).get("_words", {}).get(j)  # early versions have none
                times = times_of(table, j, zone, form, words)
                values = _features(times, origin)
                found |= dict(zip(self._names(j, name), map(values.get, parts)))
            else:
                found[name] = table.columns[j]
        if not self._dates:
            return X
        if not isinstance(frame, nw.DataFrame):
            return np.stack(list(found.values()), axis=1)
        if names != table.names:
            frame = nw.from_native(X.set_axis(names, axis=1))
        new = {name: values for name, values in found.items() if isinstance(values, np.ndarray)}
        series = [nw.new_series(*item, backend=frame.implementation) for item in new.items()]
        return frame.with_columns(*series).select(nw.col(*found)).to_native()

    def get_feature_names_out(self, input_features=None):
        """Names of the columns, such as ``when_year`` for the year of ``when``.

        Parameters
        ----------
        input_features : array-like of str of shape (n_features_in_,), default=None
            Names of the columns, which must be those of `fit` if it had any.

        Returns
        -------
        names : ndarray of shape (n_features_out,), object
        """
        names = enumerate(super().get_feature_names_out(input_features))
        return np.array([new for j, name in names for new in self._names(j, name)], dtype=object)

    @property
    def _forms(self):
        """Formats of the columns of dates by number, a dict."""
        return {j: form for j, (_, form, *_) in self._dates.items()}

    def _check_dates(self):
        """Raise ValueError if fitted attributes that come from a file are not valid."""
        known, n = {*_features(np.array([], "M8[us]"), 0)}, self.n_features_in_
        names = getattr(self, "feature_names_in_", ())
        is_valid = type(n) is int and type(self._dates) is dict
        is_valid = is_valid and len(names) in (0, n) and all(type(one) is str for one in names)
        for j, (zone, form, origin, parts) in self._dates.items() if is_valid else ():
            is_valid &= type(j) is int and 0 <= j < n and form in FORMATS and type(origin) is int
            is_valid &= abs(origin) < 2**40
            is_valid &= type(zone) in (str, type(None)) and {*parts} <= known
        is_valid = is_valid and type(self._words) is dict
        for words in self._words.values() if is_valid else ():
            is_valid &= type(words) is list and all(type(word) is str for word in words)
        if not is_valid:
            raise ValueError(
                f"the dates of DateFeatures are {self._dates!r:.80} of {n!r} columns, with "
                f"{self._words!r:.80}"
            )

    def _names(self, j, name):
        """Names of the features of a column."""
        return [f"{name}_{part}" for part in self._dates[j][3]] if j in self._dates else [name]

    def _read(self, X, reset):
        """X as it is kept, and as a Table."""
        X = as_frame(X, None if reset else getattr(self, "feature_names_in_", None))
        table = read_table(X)
        if table is None or not table.n_rows:
            X = validate_data(self, X, reset=reset, dtype=None, ensure_all_finite="allow-nan")
            return X, table_of_matrix(X)
        validate_data(self, X, reset=reset, skip_check_array=True)
        return X, table

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.transformer_tags.preserves_dtype = []
        return tags


def _output_names(table):
    """Names of the columns: those of the table if all are strings, as scikit-learn wants them."""
    if all(isinstance(name, str) for name in table.names):
        return table.names
    return [f"x{j}" for j in range(len(table))]


def _features(times, origin):
    """Parts of dates by name: ndarrays of shape (n_samples,); `origin` is a day since 1970."""
    day = times.astype("M8[D]")
    days = day.astype(np.int64)
    hour = (times - day) / np.timedelta64(1, "h")
    parts = {"year": times.astype("M8[Y]").astype(np.int64) + 1970.0}
    whole = {"month": times.astype("M8[M]").astype(np.int64) % 12 + 1, "weekday": (days + 3) % 7}
    for name, values in (whole | {"hour": hour}).items():
        angle = 2 * np.pi * values / PERIODS[name]
        # Sines that should be equal, such as those of May and July, differ in their last bits.
        sine, cosine = np.round([np.sin(angle), np.cos(angle)], SINE_DIGITS) + 0.0
        parts |= {name: values, f"{name}_sin": sine, f"{name}_cos": cosine}
    parts["days"] = days - origin + hour / 24
    return {name: np.where(np.isnat(times), np.nan, values) for name, values in parts.items()}


def times_of(table, j, zone, form, words=None):
    """Dates of a column: ndarray of shape (n_samples,), datetime64[us].

    Values that are no dates are NaT if they are among `words`; None: if any value is a date.
    """
    column, name = table.columns[j], table.names[j]
    own = _zone_of(column)
    if own is None and is_duration(column):
        raise TypeError(f"column {name!r} of X holds {NOT_DATES}")
    if table.is_all_missing(j):
        return np.full(len(column), "NaT", dtype="M8[us]")
    mixed = f"column {name!r} of X has times with a zone in fit or now, not both"
    if isinstance(column.dtype, nw.Datetime) or own is not None:
        if (own is None) == bool(zone):
            raise ValueError(mixed)
        column = _local(column, zone) if zone else column
    if _has_times(column):
        times = np.asarray(column)
        if times.dtype == object:  # of pyarrow in pandas
            times = np.array([None if is_missing(v) else v for v in times.tolist()], "M8[us]")
        found = times.astype("M8[us]")
        if np.datetime_data(times.dtype)[0] not in FINER:  # beyond the range of microseconds
            found[found.astype(times.dtype) != times] = "NaT"
        return found
    texts = table.values(j).tolist()
    moments = {text: _moment(text, form) for text in dict.fromkeys(texts)}
    no_dates = {text: _word(text, moment) for text, moment in moments.items()}
    if words is None and any(moments.values()):
        no_dates = {}
    if unknown := [text for text, word in no_dates.items() if word and word not in (words or ())]:
        number = "; convert numbers first, as with pandas.to_datetime and unit"
        raise ValueError(
            f"column {name!r} of X has {unknown[0]!r}, which is no date of the form in fit"
            + number * isinstance(unknown[0], Real)
        )
    have_zones = {moment.tzinfo is not None for moment in moments.values() if moment}
    if zone is not None and have_zones - {bool(zone)}:
        raise ValueError(mixed)
    known = {text: _time(moment, zone) for text, moment in moments.items()}
    return np.array([known[text] for text in texts], dtype="M8[us]")


def days_of(table, j, form="ISO"):
    """A column of dates as days since 1970: ndarray of shape (n_samples,), float64."""
    times = times_of(table, j, _zone_of(table.columns[j]), form)
    return (times - np.datetime64(0, "us")) / np.timedelta64(1, "D")


def day_text(days):
    """Return the day of a number of days since 1970, as text: the last one that has begun."""
    return str(np.datetime64(math.floor(days), "D"))


def dated(series, like):
    """A series of days since 1970 as one of dates, with the dtype of another series."""
    times = np.rint(series.to_numpy() * 86_400e6).astype("M8[us]")
    found = nw.new_series(series.name, times, backend=series.implementation)
    zone, native = _zone_of(like), found.to_native()
    if zone is None and not isinstance(like.dtype, nw.Unknown):
        return found.cast(like.dtype)
    if not _is_pandas(like):
        return found.dt.replace_time_zone(zone).cast(like.dtype)
    if zone is not None:
        # Of an hour that is there twice, the first; of one that is left out, the end.
        clock = {"ambiguous": np.ones(len(times), dtype=bool), "nonexistent": "shift_forward"}
        native = native.dt.tz_localize(zone, **clock)
    return nw.from_native(native.astype(like.to_native().dtype), series_only=True)


def _zone_of(column):
    """The time zone of a column, such as "America/New_York"; None without one."""
    if not isinstance(column, nw.Series) or not _is_pandas(column):
        return getattr(column.dtype, "time_zone", None)
    dtype = column.to_native().dtype
    zone = getattr(getattr(dtype, "pyarrow_dtype", dtype), "tz", None)
    if isinstance(zone, timezone):  # its own name may be any text
        zone = timezone(zone.utcoffset(None))
    return None if zone is None else str(zone)


def _zone_in_fit(table, j, form):
    """The zone of a training column: UTC for text with offsets.

    None for text of which only some has offsets, and without any date.
    """
    column = table.columns[j]
    zone = _zone_of(column)
    if zone is None and _has_times(column):
        return NAIVE
    if zone is None:
        moments = [_moment(text, form) for text in set(table.values(j).tolist())]
        have_zones = {moment.tzinfo is not None for moment in moments if moment}
        return {(True,): "UTC", (False,): NAIVE}.get((*have_zones,))
    _place(zone)
    return zone


def _place(zone):
    """The tzinfo of a zone, such as "America/New_York" or "UTC+05:30"; ValueError if unknown."""
    with suppress(ValueError, ZoneInfoNotFoundError):
        return UTC if zone == "UTC" else ZoneInfo(zone)
    try:
        return datetime.strptime(zone.removeprefix("UTC"), "%z").tzinfo
    except ValueError:
        raise ValueError(
            f"X has times in the zone {zone}, which has no known name: convert them, as with "
            "dt.tz_convert('Europe/Berlin')"
        ) from None


def _has_times(column):
    """Has a column a dtype of dates, unlike objects and text?"""
    dtype = column.dtype
    return isinstance(dtype, nw.Datetime | nw.Date) or getattr(dtype, "kind", "") == "M"


def _is_pandas(column):
    """Is it a series of pandas? narwhals reads only some names of its zones."""
    return column.implementation.is_pandas_like()


def _local(column, zone):
    """A column of times with a zone as local times of a zone."""
    place = _place(zone)
    if isinstance(place, timezone) and not _is_pandas(column):
        seconds = round(place.utcoffset(None) / timedelta(seconds=1))
        utc = column.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
        return utc.dt.offset_by(f"{seconds}s")
    if not _is_pandas(column):
        return column.dt.convert_time_zone(zone).dt.replace_time_zone(None)
    native = column.to_native().dt.tz_convert(zone).dt.tz_localize(None)
    return nw.from_native(native, series_only=True)


def _moment(value, form):
    """A text, or an object of a date, as datetime; None if it is missing or has another form."""
    if is_missing(value) or isinstance(value, Real | timedelta):
        return None
    try:
        if not isinstance(value, str):  # periods of pandas have a start
            value, form = getattr(value, "start_time", value).isoformat(), "ISO"
        if form != "ISO":
            return datetime.strptime(value.strip(), form)
        # not numbers of 8 digits, such as codes
        return datetime.fromisoformat(value.strip() if value[4:5] == "-" else "")
    except (ValueError, OverflowError, AttributeError):  # bytes have no isoformat
        return None


def _word(value, moment):
    """A value that is neither missing nor a date, as text without spaces; "" for any other."""
    return "" if moment is not None or is_missing(value) else str(value).strip()


def _words(table, j, form):
    """The values of a column that are no dates, see `_word`, sorted."""
    if _has_times(table.columns[j]) or table.is_all_missing(j):
        return []
    values = dict.fromkeys(table.values(j).tolist())
    return sorted({_word(value, _moment(value, form)) for value in values} - {""})


def _time(moment, zone=None):
    """A datetime or None as datetime64, in a zone, or in UTC, if it has an offset."""
    if moment is None:
        return np.datetime64("NaT", "us")
    if moment.tzinfo is not None:
        moment = moment.astimezone(_place(zone or "UTC")).replace(tzinfo=None)
    return np.datetime64(moment)


def _parsed(text, form):
    """A text as datetime64; NaT if it is missing or has another form."""
    return _time(_moment(text, form))


def _format_of(table, j):
    """The format of the dates of a column; None if it holds no dates."""
    kind = table.kind(j)
    if kind != CATEGORY:
        return "ISO" if kind == DATE else None
    texts = [text for text in dict.fromkeys(table.values(j)) if isinstance(text, str) and text]
    forms = FORMATS if texts else []
    for tried in (texts[:N_TRIED], texts):
        parsed = {form: np.array([_parsed(t, form) for t in tried], "M8[us]") for form in forms}
        forms = [f for f in forms if np.isnat(parsed[f]).sum() <= (1 - PARSED) * len(tried)]
    if not forms:
        return None
    n_missing = {form: np.isnat(parsed[form]).sum() for form in forms}
    first, *others = [form for form in forms if n_missing[form] == min(n_missing.values())]
    if not all(np.array_equal(parsed[first], parsed[form], equal_nan=True) for form in others):
        raise ValueError(
            f"column {table.names[j]!r} of X holds text such as {texts[0]!r}, whose day and month "
            "cannot be told apart; convert it first, as with pandas.to_datetime and dayfirst"
        )
    return first
