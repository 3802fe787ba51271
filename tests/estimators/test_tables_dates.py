"""Dates as numbers, of every kind of table."""

import pickle
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import reduce
from importlib import import_module
from operator import getitem

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
import pytest
from archives import rewritten
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

import skforest
from skforest import DateFeatures, ManifoldForestRegressor, counterfactual, load, save
from skforest.table.dates import dated, days_of
from skforest.table.frames import read_table

N = 60


def frame():
    """Times of two years, missing once, in several forms."""
    rng = np.random.default_rng(0)
    hours = pd.Series(rng.integers(0, 700 * 24, N))
    when = pd.Series(pd.Timestamp("2024-03-05") + pd.to_timedelta(hours, unit="h"))
    when[3] = pd.NaT
    return pd.DataFrame({"size": rng.normal(size=N), "when": when, "job": ["a", "b"] * (N // 2)})


def expected(when):
    """The features as pandas knows them."""
    day = when.dt.normalize()
    parts = {"year": when.dt.year, "month": when.dt.month, "weekday": when.dt.day_of_week}
    parts["hour"] = when.dt.hour + when.dt.minute / 60
    parts["days"] = (when - day.min()) / pd.Timedelta(days=1)
    for name, period in (("month", 12), ("weekday", 7), ("hour", 24)):
        parts[f"{name}_sin"] = np.sin(2 * np.pi * parts[name] / period)
        parts[f"{name}_cos"] = np.cos(2 * np.pi * parts[name] / period)
    return pd.DataFrame({f"when_{name}": values for name, values in parts.items()})


def test_parts_of_dates():
    X = frame()
    found = DateFeatures().fit_transform(X.set_index(np.arange(N) // 2))
    own = expected(X["when"])
    pd.testing.assert_frame_equal(
        found[list(own)].reset_index(drop=True), own, check_dtype=False, atol=1e-6
    )
    assert found.loc[1, "when_year"].isna().tolist() == [False, True]
    assert list(found) == ["size", *found.columns[1:-1], "job"]
    assert len(found.columns) == 2 + len(own.columns)


def test_sines_of_equal_heights_are_equal():
    X = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=400 * 24, freq="h")})
    found = DateFeatures().fit_transform(X)
    for name, period in (("month", 12), ("weekday", 7), ("hour", 24)):
        heights = {round(np.sin(2 * np.pi * k / period), 9) for k in range(period)}
        assert found[f"when_{name}_sin"].nunique() == len({h + 0.0 for h in heights})
    of_minutes = DateFeatures().fit_transform(
        pd.DataFrame({"when": pd.date_range("2024-01-01", periods=1440, freq="min")})
    )
    assert of_minutes["when_hour_cos"].astype(np.float32).nunique() == 721


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d %H:%M",
        "%d.%m.%Y %H:%M",
        "%d.%m.%y %H:%M",
        "%d-%b-%y %H:%M",
        "%m/%d/%Y %I:%M %p",
        "%m/%d/%Y %I:%M:%S %p",
        "%d %B %Y %H:%M:%S",
        "tz",
    ],
)
def test_text_and_zones(form):
    X = frame()
    if form == "tz":  # of another zone than fit
        model = DateFeatures().fit(X.assign(when=X["when"].dt.tz_localize("Asia/Tokyo")))
        given = X["when"].dt.tz_localize("Asia/Tokyo").dt.tz_convert("America/Lima")
    else:
        given = X["when"].dt.strftime(form).astype(object)
        model = DateFeatures().fit(X.assign(when=given.fillna("unknown")))
        given[3] = None
    own = expected(X["when"])
    found = model.transform(X.assign(when=given))
    pd.testing.assert_frame_equal(found[list(own)], own, check_dtype=False, atol=1e-6)


ZONES = ["America/New_York", "America/Port-au-Prince", "Etc/GMT+5", "Asia/Tokyo", "UTC", "+05:30"]


def test_a_column_without_any_date_may_have_any_type():
    """pandas gives missing times alone a type without a zone."""
    moments = pd.date_range("2025-03-08", periods=60, freq="7h", tz="UTC")
    reader = DateFeatures().fit(pd.DataFrame({"t": moments}))
    for values in ([pd.NaT], [None, None], pd.array([pd.NA], dtype="string")):
        found = np.asarray(reader.transform(pd.DataFrame({"t": values})), dtype=float)
        assert found.shape[0] == len(values) and np.isnan(found).all()
    with pytest.raises(ValueError, match="with a zone in fit or now, not both"):
        reader.transform(pd.DataFrame({"t": [pd.Timestamp("2025-03-08"), pd.NaT]}))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("backend", ["numpy", "pyarrow", "polars"])
def test_hours_are_those_of_the_zone(zone, backend):
    """narwhals does not read all names of the zones of pandas."""
    moments = pd.date_range("2025-03-08 05:30", periods=60, freq="7h", tz="UTC")
    local = pd.Series(moments.tz_convert(zone))
    others = pd.Series(moments.tz_convert("America/Los_Angeles"))
    given = {"zone": local, "other": others}
    if backend == "pyarrow":
        pytest.importorskip("pyarrow")
        given = {
            name: series.convert_dtypes(dtype_backend="pyarrow") for name, series in given.items()
        }
    frames = {name: pd.DataFrame({"when": series}) for name, series in given.items()}
    if backend == "polars":
        polars = pytest.importorskip("polars")
        if zone == "+05:30":  # polars has no zones without a name: `fit` reads pandas
            given = frames["zone"]
            frames = {"other": polars.DataFrame({"when": others.to_list()})}
            frames["other"] = frames["other"].with_columns(
                polars.col("when").dt.convert_time_zone("America/Los_Angeles")
            )
            model = DateFeatures().fit(given)
            found, own = model.transform(frames["other"]), model.transform(given)
            np.testing.assert_allclose(found.to_numpy(), own.to_numpy(), rtol=0, atol=1e-6)
            return
        frames = {
            name: polars.DataFrame({"when": one["when"].to_list()}) for name, one in frames.items()
        }
        zones = {"zone": zone, "other": "America/Los_Angeles"}
        frames = {
            name: one.with_columns(polars.col("when").dt.convert_time_zone(zones[name]))
            for name, one in frames.items()
        }
    model = DateFeatures().fit(frames["zone"])
    for frame in frames.values():  # times of another zone are read in that of fit
        hours = np.asarray(model.transform(frame)["when_hour"])
        np.testing.assert_allclose(hours, local.dt.hour + local.dt.minute / 60)
    columns = [local.astype(object), local.map(pd.Timestamp.isoformat)]
    for column in columns if backend == "numpy" else ():
        hours = model.transform(pd.DataFrame({"when": column}))["when_hour"]
        np.testing.assert_allclose(hours, local.dt.hour + local.dt.minute / 60)
    naive = local.dt.tz_localize(None)
    for column in (naive, naive.astype(object), naive.astype(str)):
        with pytest.raises(ValueError, match="'when' of X has times with a zone in fit or now"):
            model.transform(pd.DataFrame({"when": column}))


@pytest.mark.parametrize("zone", [*ZONES, "Europe/Berlin"])
def test_counterfactuals_of_times_with_a_zone(zone):
    """They have the dtype of the column, and none is an hour that clocks leave out."""
    rng = np.random.default_rng(0)
    when = pd.Timestamp("2025-01-01", tz="UTC") + pd.to_timedelta(rng.integers(0, 8760, 200), "h")
    X = pd.DataFrame({"when": when.tz_convert(zone), "size": rng.normal(size=200)})
    y = X["when"].dt.hour.to_numpy() * 1.0
    model = make_pipeline(DateFeatures(), ManifoldForestRegressor(10, random_state=0)).fit(X, y)
    early = X.iloc[[int(np.argmin(y))]]
    found = counterfactual(model, early, X, target=(15, 24), vary=["when"])
    assert found.row["when"].dtype == X["when"].dtype
    assert (model.predict(found.row) >= 15).all()


def test_hours_that_clocks_leave_out_or_repeat_become_times_again():
    times = pd.Series(pd.to_datetime(["2025-03-09 02:30", "2025-11-02 01:30"]))
    days = days_of(read_table(times.to_frame("when")), 0)
    like = nw.from_native(
        times[1:].dt.tz_localize("America/New_York", ambiguous=[True]), series_only=True
    )
    again = dated(nw.from_native(pd.Series(days), series_only=True), like)
    assert [str(time) for time in again.to_list()] == [
        "2025-03-09 03:00:00-04:00",
        "2025-11-02 01:30:00-04:00",
    ]


def test_dates_beyond_microseconds_are_missing():
    times = np.array(["294300-01-01", "2999-12-31", "NaT"], dtype="M8[s]")
    found = DateFeatures().fit_transform(pd.DataFrame({"when": times}))
    assert np.isnan(found["when_days"]).tolist() == [True, False, True]
    assert found["when_days"][1] == 0


def test_text_with_different_offsets_from_utc():
    """Hours are those of UTC, on the day before or after, too."""
    X = frame()
    parts = expected(X["when"])
    offset = ["+02:00", "-11:30", "+00:00", "Z"]
    ahead = [timedelta(hours=2), timedelta(hours=-11.5), timedelta(0), timedelta(0)]
    given = [
        None if pd.isna(when) else f"{when + ahead[k % 4]:%Y-%m-%dT%H:%M:%S}{offset[k % 4]}"
        for k, when in enumerate(X["when"])
    ]
    found = DateFeatures().fit_transform(X.assign(when=pd.Series(given, dtype=object)))
    pd.testing.assert_frame_equal(found[list(parts)], parts, check_dtype=False, atol=1e-6)


def test_the_day_is_told_from_the_month_by_later_rows():
    """The first 120 dates of the column could be read both ways."""
    days = [(day, month) for month in range(1, 11) for day in range(1, 13)]
    days += [(day, 1) for day in range(13, 32)]
    X = pd.DataFrame({"when": [f"{day:02}/{month:02}/2024" for day, month in days]})
    found = DateFeatures().fit_transform(X)
    assert found["when_month"].tolist() == [month for _, month in days]


@pytest.mark.parametrize("library", ["polars", "pyarrow"])
def test_other_data_frames(library):
    module = pytest.importorskip(library)
    X = frame()
    columns = {name: X[name].astype(object).where(X[name].notna(), None).tolist() for name in X}
    table = (module.DataFrame if library == "polars" else module.table)(columns)
    model = DateFeatures().fit(table)
    found = model.transform(table)
    assert type(found) is type(table)
    names = model.get_feature_names_out().tolist()
    assert names == (found.columns if library == "polars" else found.column_names)
    own = expected(X["when"])
    for name in own:
        np.testing.assert_allclose(np.asarray(found[name]), own[name], atol=1e-6)


def test_arrays_and_objects():
    X = frame()
    days = [None if pd.isna(day) else day.date() for day in X["when"]]
    parts = expected(X["when"].dt.normalize())
    matrix = np.array([X["size"].to_list(), days, X["job"].to_list()], dtype=object).T
    model = DateFeatures().fit(matrix)
    found = model.transform(matrix)
    names = model.get_feature_names_out().tolist()
    assert names[:2] == ["x0", "x1_year"] and "x1_hour" not in names
    days = found[:, names.index("x1_days")].astype(float)
    np.testing.assert_array_equal(days, parts["when_days"])
    times = X[["when"]].to_numpy()
    found = DateFeatures().fit_transform(times)
    assert found.dtype == float and found.shape == (N, 11)
    later = np.array([[np.datetime64("2050-01-01")], [np.datetime64("1950-01-01")]])
    assert DateFeatures().fit(times).transform(later)[:, 0].tolist() == [2050, 1950]


def test_what_is_constant_is_left_out():
    when = pd.to_datetime(["2025-01-03", "2025-01-10", None])
    model = DateFeatures().fit(pd.DataFrame({"when": when}))
    assert model.get_feature_names_out().tolist() == ["when_days"]
    assert model.transform(pd.DataFrame({"when": [date(2026, 1, 3)]})).to_numpy().item() == 365
    model = DateFeatures().fit(pd.DataFrame({"when": pd.to_datetime([None, None])}))
    assert model.transform(pd.DataFrame({"when": when})).shape == (3, 1)


def test_named_columns():
    X = pd.DataFrame({
        "code": ["2024-01-01", "x9"] * 5, "when": ["2024-01-01", "2025-01-02"] * 5, "number": 3.0
    })  # fmt: skip
    assert DateFeatures().fit(X).get_feature_names_out()[0] == "code"  # half of them are dates
    assert DateFeatures(["code"]).fit(X.iloc[::2]).get_feature_names_out()[0] == "code_days"
    assert list(DateFeatures([1]).fit_transform(X)) == [
        "code", "when_year", "when_weekday", "when_weekday_sin", "when_weekday_cos", "when_days",
        "number",
    ]  # fmt: skip
    numbered = X.set_axis([2, 1, 0], axis=1)  # names, before positions
    assert list(DateFeatures([1]).fit_transform(numbered))[:2] == ["x0", "x1_year"]
    numbers = pd.DataFrame({"part": ["20240101", "20240102", "19990101"]})
    assert DateFeatures().fit_transform(numbers).equals(numbers)


@pytest.mark.parametrize(
    "columns, options, message",
    [
        ({"when": ["01/02/2024", "03/04/2024"]}, {}, "'when'.*'01/02/2024', whose day and month"),
        ({"when": ["a", "b"]}, {"columns": ["when"]}, "'when' of X holds no dates"),
        ({"when": [1.0, 2.0]}, {"columns": [0]}, "'when' of X holds no dates"),
        ({"when": [1.0]}, {"columns": ["then"]}, "columns has 'then'"),
        ({"when": pd.to_timedelta([1, 2], unit="h")}, {}, "'when' of X holds durations"),
        ({"when": [pd.Timestamp("2025")], "when_days": [1]}, {}, "becomes 'when_days'"),
    ],
)
def test_bad_columns(columns, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        DateFeatures(**options).fit(pd.DataFrame(columns))


def test_a_single_column_by_its_name():
    X = frame().assign(then=frame()["when"])
    model = DateFeatures(columns="when").fit(X)
    assert "then" in model.get_feature_names_out()
    assert "when" not in model.get_feature_names_out()


def test_columns_that_change_their_form_after_fit():
    model = DateFeatures().fit(pd.DataFrame({"when": ["2025-01-01", "2025-06-02"]}))
    with pytest.raises(ValueError, match="'when' of X has '01.02.2025', which is no date"):
        model.transform(pd.DataFrame({"when": ["01.02.2025"]}))
    with pytest.raises(
        ValueError, match="'when' of X has 1700000000, which is no date.*; convert numbers"
    ):
        model.transform([{"when": 1_700_000_000}])
    with pytest.raises(ValueError, match="feature names"):
        model.transform(pd.DataFrame({"then": ["2025-01-01"]}))
    with pytest.raises(ValueError, match="times with a zone in fit or now"):
        model.transform(pd.DataFrame({"when": pd.to_datetime(["2025-01-01"]).tz_localize("UTC")}))


@pytest.mark.parametrize("kind", ["pandas", "polars", "array"])
def test_words_of_the_training_rows_are_missing_dates_and_others_are_refused(kind, tmp_path):
    """Whether a row is read does not depend on the rows beside it."""

    def rows(*values):
        column = np.array(values, dtype=object)
        if kind == "array":
            return np.column_stack([column, np.arange(len(column))])
        return import_module(kind).DataFrame({"when": column, "k": np.arange(len(column))})

    dates = [f"2025-{month:02}-{day:02}" for month in range(1, 13) for day in (1, 9, 20)]
    X = rows(*dates, "unknown", "n/a", None, "")
    model = make_pipeline(DateFeatures(), ManifoldForestRegressor(2, random_state=0))
    model.fit(X, np.arange(len(X)))
    save(model, tmp_path / "model.npz")
    for reader in (model, load(tmp_path / "model.npz")):
        dates_of = reader[0].transform
        assert np.isnan(np.asarray(dates_of(X), dtype=float)).any(axis=1).sum() == 4
        for word in ("unknown", " n/a ", " ", "", None):
            together = np.asarray(dates_of(rows("2025-03-01", word)), dtype=float)
            alone = np.asarray(dates_of(rows(word)), dtype=float)
            assert np.isnan(alone[0, :-1]).all() and np.isnan(together[1, :-1]).all()
            assert not np.isnan(together[0]).any()
        for values in (("nothing",), ("2025-03-01", "nothing"), ("2025-03-01", "01.04.2025")):
            message = f"has '{values[-1]}', which is no date of the form in fit"
            with pytest.raises(ValueError, match=message):
                reader.predict(rows(*values))


def test_files_without_words_read_dates_as_before(tmp_path):
    """Early versions read what is no date as missing, if there was a date."""
    path = tmp_path / "model.npz"
    X = pd.DataFrame({"when": ["2025-01-01", "2025-06-02"] * 4})
    model = make_pipeline(DateFeatures(), ManifoldForestRegressor(1, random_state=0))
    save(model.fit(X, np.arange(8)), path)
    state = "pipeline", "transformers", 0, 1, "state"
    rewritten(path, header=lambda head: reduce(getitem, state, head).pop("_words"))
    pickled = pickle.loads(pickle.dumps(model[0]))
    del pickled._words
    for old in (load(path)[0], pickled):
        found = old.transform(pd.DataFrame({"when": ["2025-01-01", "unknown"]}))
        assert found.isna().any(axis=1).tolist() == [False, True]
        save(make_pipeline(old, model[1]), path)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_it_is_a_transformer_of_scikit_learn():
    check_estimator(DateFeatures())


@pytest.mark.parametrize(
    "estimator",
    [
        skforest.ManifoldForestClassifier(3, random_state=0),
        skforest.ObliqueBoostingRegressor(5, random_state=0),
        skforest.BlendedForestRegressor([skforest.ManifoldForestRegressor(3)], cv=2),
    ],
)
def test_a_pipeline_learns_from_dates(estimator):
    X = pd.concat([frame()] * 3, ignore_index=True)
    y = (X["when"].dt.day_of_week > 4).astype(int)
    with pytest.raises(TypeError, match="'when' of X holds dates.*skforest.DateFeatures before"):
        estimator.fit(X, y)
    model = make_pipeline(DateFeatures(), estimator).fit(X, y)
    assert model.score(X, y) > 0.5
    rows = X.head(3).astype({"when": str}).to_dict("records")
    np.testing.assert_array_equal(model.predict(rows), model.predict(X.head(3)))


def test_rows_of_any_output():
    X = frame()
    polars = pytest.importorskip("polars")
    found = DateFeatures().set_output(transform="polars").fit_transform(X)
    assert isinstance(found, polars.DataFrame) and "when_hour_cos" in found.columns


def test_days_become_the_same_dates_again():
    """To the microsecond, although days are floats."""
    times = pd.Series(pd.date_range("2025-01-01 00:00:01", periods=500, freq="3333333us"))
    days = days_of(read_table(times.to_frame("when")), 0)
    series = nw.from_native(pd.Series(days), series_only=True)
    again = dated(series, nw.from_native(times, series_only=True))
    assert again.to_list() == times.to_list()


@pytest.mark.parametrize("frequency", ["M", "D", "h"])
@pytest.mark.parametrize("dtype", [None, object])
def test_periods_are_read_as_their_first_moments(frequency, dtype):
    periods = pd.Series(pd.period_range("2023-03-05 06:00", periods=60, freq=frequency))
    periods[7], starts = None, periods.dt.start_time
    starts[7] = None
    X = pd.DataFrame({"when": periods.astype(dtype or periods.dtype)})
    found = DateFeatures().fit_transform(X)
    own = DateFeatures().fit_transform(pd.DataFrame({"when": starts}))
    pd.testing.assert_frame_equal(found, own)
    with pytest.raises(TypeError, match="'when' of X holds dates.*skforest.DateFeatures before"):
        ManifoldForestRegressor(2).fit(X, np.arange(60.0))
    days = days_of(read_table(X.dropna()), 0)
    series = nw.from_native(pd.Series(days), series_only=True)
    again = dated(series, nw.from_native(periods.dropna(), series_only=True))
    assert again.to_list() == periods.dropna().to_list()


def test_names_that_are_no_strings():
    """The outputs have the names of get_feature_names_out, which estimators read."""
    days = pd.date_range("2024-01-01", periods=60)
    X = pd.DataFrame({"number": np.arange(60.0), "when": days}, index=np.arange(60)[::-1])
    expected = make_pipeline(DateFeatures(), ManifoldForestRegressor(3, random_state=0))
    expected = expected.fit(X, np.arange(60.0)).predict(X)
    for names in ([0, 1], pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])):
        other = X.set_axis(names, axis=1)
        features = DateFeatures().fit(other)
        found = features.transform(other)
        assert list(found) == features.get_feature_names_out().tolist()
        assert list(found)[:2] == ["x0", "x1_month"] and found.index.equals(X.index)
        model = make_pipeline(DateFeatures(), ManifoldForestRegressor(3, random_state=0))
        model.fit(other, np.arange(60.0))
        np.testing.assert_array_equal(model.predict(other), expected)
    with pytest.raises(ValueError, match="column 1 of X holds no dates"):
        DateFeatures([1]).fit(X.set_axis([1, 0], axis=1))


def test_objects_with_zones_are_read_in_utc():
    east = timezone(timedelta(hours=5))
    moments = [datetime(2024, 1, day, 2, tzinfo=UTC if day % 2 else east) for day in range(1, 9)]
    X = pd.DataFrame({"when": pd.Series(moments, dtype=object)})
    for table in (X, X.to_numpy()):
        found = DateFeatures().fit(X).transform(table)
        found = found if table is not X else found["when_hour"].to_numpy()[:, None]
        hours = found[:, 0] if table is X else found[:, 3]
        np.testing.assert_array_equal(np.unique(hours), [2.0, 21.0])


def test_reports_of_dates_in_columns_without_strings_as_names():
    pytest.importorskip("matplotlib").use("Agg")
    when = pd.date_range("2024-01-01", periods=60)
    X = pd.DataFrame({1: when, 0: np.arange(60.0), 2: np.arange(60) % 3})
    model = make_pipeline(DateFeatures(), ManifoldForestRegressor(3, random_state=0))
    text = str(skforest.describe(model.fit(X, X[0]), X, X[0]))
    assert "== Three rows explained ==" in text


@pytest.mark.parametrize(
    "names", [[1, 0], pd.MultiIndex.from_tuples([("a", 1), ("a", 2)])], ids=["numbers", "tuples"]
)
def test_columns_without_strings_as_names_are_read_by_position(names):
    """As estimators read them, also where the background has other names."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    blend = skforest.BlendedForestRegressor(["linear"], random_state=0).fit(X, X[:, 0])
    expected = skforest.shapley_values(blend, X[:3], background=X[10:20])
    frame = pd.DataFrame(X, columns=names)
    found = skforest.shapley_values(
        blend, frame[:3], background=pd.DataFrame(X[10:20], columns=[0, 1])
    )
    np.testing.assert_allclose(found.values, expected.values)


def test_text_with_an_offset_in_a_column_without_zone():
    days = pd.DataFrame({"when": pd.date_range("2024-01-01", periods=60, freq="5h")})
    model = DateFeatures().fit(days)
    late = "2024-01-01T23:00:00-05:00"
    for values in ([late], [late, "2024-01-02"], [pd.Timestamp(late)]):
        with pytest.raises(ValueError, match="'when' of X has times with a zone in fit or now"):
            model.transform(pd.DataFrame({"when": values}))
    text = days.assign(when=days["when"].astype(str))
    np.testing.assert_array_equal(model.transform(text), model.transform(days))
    with pytest.raises(ValueError, match="'when' of X has times with a zone in fit or now"):
        DateFeatures().fit(text).transform(pd.DataFrame({"when": [late]}))


def test_dates_of_pyarrow_in_pandas():
    pytest.importorskip("pyarrow")
    when = pd.date_range("2025-03-28", periods=8, freq="40D").to_series(index=range(8))
    model = DateFeatures().fit(pd.DataFrame({"when": when}))
    expected = model.transform(pd.DataFrame({"when": when}))
    dates = when.dt.date.astype("date32[pyarrow]")
    for given in (dates, when.astype("timestamp[us][pyarrow]")):
        frame = pd.DataFrame({"when": given})
        pd.testing.assert_frame_equal(model.transform(frame), expected)
        pd.testing.assert_frame_equal(DateFeatures().fit_transform(frame), expected)
        frame.loc[3, "when"] = None
        missing = model.transform(frame)
        assert missing.loc[3].isna().all() and missing.drop(3).equals(expected.drop(3))


def test_text_with_offsets_is_read_in_utc():
    texts = [f"2025-03-{day:02d}T23:00-05:00" for day in range(1, 29)]
    model = DateFeatures().fit(pd.DataFrame({"when": texts}))
    found = model.transform(pd.DataFrame({"when": texts}))
    of_dtype = pd.DataFrame({"when": pd.to_datetime(texts)})
    pd.testing.assert_frame_equal(model.transform(of_dtype), found)
    pd.testing.assert_frame_equal(
        found,
        DateFeatures().fit_transform(pd.DataFrame({"when": pd.to_datetime(texts, utc=True)})),
    )
    for given in ("2025-03-01T23:00", pd.Timestamp("2025-03-01T23:00")):
        with pytest.raises(ValueError, match="'when' of X has times with a zone in fit or now"):
            model.transform(pd.DataFrame({"when": [given]}))


def test_zones_without_a_usual_name():
    when = pd.date_range("2025-03-08 05:30", periods=60, freq="7h")
    own = timezone(timedelta(hours=2), "of our own")
    named = pd.DataFrame({"when": when.tz_localize(own)})
    other = pd.DataFrame({"when": when.tz_localize(own).tz_convert("Asia/Tokyo")})
    model = DateFeatures().fit(named)
    pd.testing.assert_frame_equal(model.transform(other), model.transform(named))
    of_dateutil = pd.DataFrame({"when": when.tz_localize("dateutil/Europe/Berlin")})
    with pytest.raises(ValueError, match="X has times in the zone tzfile"):
        DateFeatures().fit(of_dateutil)


@pytest.mark.parametrize("value", [time(10, 30), timedelta(hours=3)])
def test_objects_of_times_of_day_and_durations(value):
    X = pd.DataFrame({"when": pd.Series([value, None, value], dtype=object)})
    for fit in (DateFeatures().fit, ManifoldForestRegressor(2).fit):
        with pytest.raises(TypeError, match="column 'when' of X holds durations or times of day"):
            fit(X, [1.0, 2.0, 3.0])


@pytest.mark.parametrize("kind", ["datetime64[ns]", "timestamp[ns][pyarrow]", "polars"])
def test_nanoseconds_are_rounded(kind):
    when = pd.to_datetime([1.7e9 + 0.1234567, 1.7e9 + 5.3], unit="s").astype("datetime64[ns]")
    frame = pd.DataFrame({"when": when})
    expected = DateFeatures().fit_transform(frame.astype("datetime64[us]"))
    if kind == "polars":
        given = pytest.importorskip("polars").from_pandas(frame)
    else:
        given = frame.astype(kind)
    found = DateFeatures().fit_transform(given)
    found = found.to_pandas() if kind == "polars" else found
    assert list(found) == list(expected)
    np.testing.assert_allclose(found.to_numpy(), expected.to_numpy())
