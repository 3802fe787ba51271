"""Effects of columns: as a plain loop computes them, and exact for additive models."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import skforest
from skforest import DateFeatures, EffectDisplay, ManifoldForestRegressor
from skforest.inspect.effects import Effect
from skforest.inspect.pairs import PairEffect, predicted

N = 150


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({
        "size": rng.integers(0, 12, N) / 2,
        "city": rng.choice(["Bern", "Oslo", "Rome"], N, p=[0.5, 0.3, 0.2]),
        "children": rng.integers(0, 4, N),
        "open": rng.random(N) < 0.5,
        "when": pd.Timestamp("2025-01-01") + pd.to_timedelta(rng.integers(0, 90, N), unit="D"),
    })  # fmt: skip
    X.loc[rng.random(N) < 0.2, "size"] = np.nan
    X.loc[rng.random(N) < 0.1, "city"] = None
    return X


X = table()
PLAIN = X.drop(columns="when")
Y = X["size"].fillna(9) + 3 * (X["city"] == "Oslo") * X["children"] + X["open"]


@pytest.fixture(scope="module")
def models():
    small = {"n_estimators": 20, "random_state": 0}
    boosting = skforest.ObliqueBoostingRegressor(n_bags=1, **small)
    additive = skforest.ObliqueBoostingRegressor(
        n_bags=2, interaction_cst="no_interactions", learning_rate=0.3, **small
    )
    return {
        "boosting": boosting.fit(PLAIN, Y),
        "dates": make_pipeline(DateFeatures(), clone(boosting)).fit(X, Y),
        "additive": additive.fit(PLAIN, Y),
    }


def with_value(rows, name, value):
    """Rows with the same value in a column, in its dtype."""
    return rows.assign(
        **{name: pd.Series([value] * len(rows), rows.index).astype(rows.dtypes[name])}
    )


@pytest.mark.parametrize("name", ["size", "city", "children", "open", "when"])
def test_partial_dependence_is_the_mean_of_predictions_with_the_same_value(models, name):
    model = models["dates"]
    display = EffectDisplay.from_estimator(model, X, name, kind="both", subsample=None)
    (effect,) = display.effects
    distinct = sorted(X[name].dropna().unique().tolist())
    if name == "when":  # days since 1970, of which 50 quantiles are chosen
        values = pd.to_datetime(effect.values, unit="D")
        assert 40 < len(values) <= 50 and set(values) <= set(distinct)
    else:
        values = [None if v is None or v != v else v for v in effect.values.tolist()]
        assert values == distinct + [None] * bool(X[name].isna().any())
    for k, value in enumerate(values):
        expected = model.predict(with_value(X, name, np.nan if value is None else value))
        np.testing.assert_allclose(effect.individual[:, k], expected, atol=1e-12)
        assert effect.average[k] == pytest.approx(expected.mean())


def test_centred_curves_of_drawn_rows(models):
    options = {"kind": "individual", "subsample": 30}
    model = models["boosting"]
    plain = EffectDisplay.from_estimator(model, PLAIN, ["size"], **options).effects[0]
    display = EffectDisplay.from_estimator(model, PLAIN, ["size"], centered=True, **options)
    curves = display.effects[0].individual
    assert curves.shape == (30, 13)
    np.testing.assert_allclose(curves, plain.individual - plain.individual[:, :1])
    assert display.axes_[0].get_ylabel() == "change of the prediction"
    other = EffectDisplay.from_estimator(model, PLAIN, ["size"], random_state=1, **options)
    assert not np.allclose(other.effects[0].individual, plain.individual)


def ale_of_numbers(model, name, z):
    """Accumulated local effects as in the paper, without missing values, in a loop."""
    known = PLAIN[PLAIN[name].notna()]
    total, curve = 0.0, [0.0]
    for low, high in zip(z[:-1], z[1:]):
        own = known[name].between(low, high, inclusive="both" if low == z[0] else "right")
        rows = known[own]
        change = model.predict(with_value(rows, name, high))
        change = change - model.predict(with_value(rows, name, low))
        total += change.mean()
        curve.append(total)
    return np.array(curve)


@pytest.mark.parametrize("resolution", [4, 50])
def test_accumulated_local_effects_of_numbers(models, resolution):
    model = models["boosting"]
    effect = EffectDisplay.from_estimator(
        model, PLAIN, "size", kind="ale", grid_resolution=resolution
    ).effects[0]
    z = effect.values[:-1]
    assert len(z) == min(resolution, 12) and z[[0, -1]].tolist() == [0, 5.5]
    expected = ale_of_numbers(model, "size", z)
    np.testing.assert_allclose(np.diff(effect.average[:-1]), np.diff(expected), atol=1e-12)
    # 0 on average over the rows, each of which counts for its nearest point.
    at = np.abs(PLAIN["size"].dropna().to_numpy()[:, None] - z).argmin(axis=1)
    assert effect.average[at].mean() == pytest.approx(0, abs=1e-12)


def test_accumulated_local_effects_of_a_category(models):
    model = models["boosting"]
    effect = EffectDisplay.from_estimator(model, PLAIN, "city", kind="ale").effects[0]
    *levels, last = effect.values
    assert last is None and sorted(levels) == ["Bern", "Oslo", "Rome"]
    for k in (0, 1):
        rows = PLAIN[PLAIN["city"].isin(levels[k : k + 2])]
        change = model.predict(with_value(rows, "city", levels[k + 1]))
        change = change - model.predict(with_value(rows, "city", levels[k]))
        assert effect.average[k + 1] - effect.average[k] == pytest.approx(change.mean())
    rows = PLAIN[PLAIN["city"].isna()]
    share = PLAIN["city"].value_counts(normalize=True)
    usual = sum(share[level] * model.predict(with_value(rows, "city", level)) for level in levels)
    assert effect.average[3] == pytest.approx((model.predict(rows) - usual).mean())


def test_levels_are_ordered_by_the_other_columns():
    rng = np.random.default_rng(0)
    size = rng.uniform(0, 4, 400)
    frame = pd.DataFrame({"level": np.array(list("cadb"))[size.astype(int)], "size": size})
    frame["other"] = rng.choice(["p", "q"], 400)
    model = skforest.ManifoldForestRegressor(2, random_state=0).fit(frame, size)
    display = EffectDisplay.from_estimator(model, frame, "level", kind="ale")
    assert display.effects[0].values.tolist() in (list("cadb"), list("bdac"))
    ordered = pd.Categorical(frame["level"], list("abcd"), ordered=True)
    display = EffectDisplay.from_estimator(model, frame.assign(level=ordered), "level", kind="ale")
    assert display.effects[0].values.tolist() == list("abcd")


@pytest.mark.parametrize("seed", range(2))
def test_distances_of_levels_add_up_over_the_other_columns(seed):
    """Of Kolmogorov and Smirnov for numbers, and half of the differences of shares of levels."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, 6, 300)
    frame = pd.DataFrame({"level": level.astype(str)})
    frame["number"] = rng.integers(0, 9, 300) + rng.integers(0, 5, 6)[level]
    frame["other"] = rng.integers(0, 4, 300) // (1 + rng.integers(0, 3, 6)[level])
    frame["other"] = frame["other"].astype(str)
    distance = np.zeros((6, 6))
    for place in np.ndindex(6, 6):
        one, two = (frame[level == k] for k in place)
        below = [[(rows["number"] <= x).mean() for x in range(14)] for rows in (one, two)]
        shares = [[(rows["other"] == x).mean() for x in "0123"] for rows in (one, two)]
        distance[place] = np.abs(np.diff(below, axis=0)).max()
        distance[place] += np.abs(np.diff(shares, axis=0)).sum() / 2
    centre = np.eye(6) - 1 / 6
    order = np.argsort(np.linalg.eigh(-centre @ distance**2 @ centre)[1][:, -1]).astype(str)
    model = skforest.ManifoldForestRegressor(1, random_state=0).fit(frame, level)
    found = EffectDisplay.from_estimator(model, frame, "level", kind="ale").effects[0].values
    assert found.tolist() in (order.tolist(), order[::-1].tolist())


def test_effects_of_an_additive_model_are_its_shape_functions(models):
    """The prediction is a constant plus the effects of all columns, and curves are parallel."""
    model = models["additive"]
    prediction = model.predict(PLAIN)
    for kind in ("ale", "both"):
        options = {"kind": kind, "subsample": None, "centered": True}
        effects = EffectDisplay.from_estimator(model, PLAIN, list(PLAIN), **options).effects
        total = np.zeros(N)
        for effect in effects:
            data = effect.data
            if effect.values.dtype != object:
                data = np.searchsorted(
                    effect.values[: np.sum(effect.values == effect.values)], data
                )
            data = np.where(np.isnan(effect.data), len(effect.values) - 1, data).astype(int)
            total += effect.average[data]
            np.testing.assert_allclose(
                effect.individual,
                effect.average[None].repeat(len(effect.individual), 0),
                atol=1e-6,
            )
        np.testing.assert_allclose(prediction - total, (prediction - total).mean(), atol=1e-6)
        assert np.ptp(total) > 3
    options = {"interaction_cst": "no_interactions", "n_bags": 1, "random_state": 0}
    classifier = skforest.ObliqueBoostingClassifier(10, **options).fit(PLAIN, Y > 5)
    options = {"kind": "both", "response_method": "decision_function", "centered": True}
    effect = EffectDisplay.from_estimator(classifier, PLAIN, "city", **options).effects[0]
    assert np.ptp(effect.individual, axis=0).max() < 1e-5 < np.ptp(effect.average)
    curves = EffectDisplay.from_estimator(models["boosting"], PLAIN, "city", kind="both")
    assert np.ptp(curves.effects[0].individual - curves.effects[0].individual[:, :1], 0).max() > 1


@pytest.mark.parametrize("library", ["polars", "array", "numbered", "search", "blend", "codes"])
def test_other_tables_and_estimators(models, library):
    frame, model = PLAIN, models["boosting"]
    options = {"kind": "ale", "columns": [0, 1]}
    expected = EffectDisplay.from_estimator(model, frame, **options).effects
    if library == "polars":
        frame = pytest.importorskip("polars").from_pandas(PLAIN)
    elif library in ("array", "numbered"):  # columns of pandas may be named by numbers
        numbered = PLAIN.set_axis(range(4), axis=1)
        frame = PLAIN.to_numpy() if library == "array" else numbered
        model = skforest.ObliqueBoostingRegressor(20, n_bags=1, random_state=0)
        model.set_params(categorical_features=[1]).fit(frame, Y)
    elif library in ("search", "blend"):
        small = skforest.ManifoldForestRegressor(2, random_state=0)
        if library == "search":
            model = GridSearchCV(small, {"max_depth": [None, 3]}, cv=2).fit(PLAIN, Y)
            inside = model.best_estimator_
        else:
            model = skforest.BlendedForestRegressor([("one", small)], cv=2).fit(PLAIN, Y)
            inside = model.members_["one"]
        expected = EffectDisplay.from_estimator(inside, PLAIN, **options).effects
    else:  # numbers that are categories for the estimator
        frame = PLAIN.assign(size=2 * PLAIN["size"])
        model = skforest.ManifoldForestRegressor(3, random_state=0, categorical_features=["size"])
        effect = EffectDisplay.from_estimator(
            model.fit(frame[["size"]], Y), frame[["size"]], "size"
        ).effects[0]
        assert effect.values.dtype == object and effect.values[-1] is None
        return
    display = EffectDisplay.from_estimator(model, frame, **options)
    for effect, other in zip(display.effects, expected):
        assert effect.values.astype(str).tolist() == other.values.astype(str).tolist()
        np.testing.assert_allclose(effect.average, other.average, atol=1e-6)
    name = {"array": "x[0]", "numbered": "0"}.get(library, "size")
    assert display.axes_[0].get_xlabel() == name


def test_the_only_class_is_the_target():
    X = np.random.default_rng(0).normal(size=(30, 2))
    forest = RandomForestClassifier(2, random_state=0).fit(X, ["k"] * 30)
    display = EffectDisplay.from_estimator(forest, X, [0])
    assert display.axes_[0].get_ylabel() == "mean probability of k"


def test_targets_and_response_methods():
    iris, y = load_iris(return_X_y=True, as_frame=True)
    names = load_iris().target_names[y]
    forest = RandomForestClassifier(5, random_state=0).fit(iris, names)
    options = {"columns": ["petal width (cm)"], "subsample": None}
    display = EffectDisplay.from_estimator(forest, iris, target="virginica", **options)
    value = display.effects[0].values[3]
    expected = forest.predict_proba(iris.assign(**{"petal width (cm)": value}))[:, 2].mean()
    assert display.effects[0].average[3] == pytest.approx(expected)
    assert display.axes_[0].get_ylabel() == "mean probability of virginica"
    with pytest.raises(ValueError, match=r"target=None must be one of \['setosa', 'vers"):
        EffectDisplay.from_estimator(forest, iris, 0)
    boosting = skforest.ObliqueBoostingClassifier(5, n_bags=1, random_state=0)
    boosting.fit(iris, y == 2)
    options["response_method"] = "decision_function"
    second = EffectDisplay.from_estimator(boosting, iris, **options)
    first = EffectDisplay.from_estimator(boosting, iris, target=False, **options)
    np.testing.assert_allclose(first.effects[0].average, -second.effects[0].average)
    assert "decision function of True" in second.axes_[0].get_ylabel()
    name, value = iris.columns[3], second.effects[0].values[5]
    expected = boosting.decision_function(iris.assign(**{name: value})).mean()
    assert second.effects[0].average[5] == pytest.approx(expected)
    several = LinearRegression().fit(iris, np.stack([y, 2 * y], axis=1))
    averages = [
        EffectDisplay.from_estimator(several, iris, 0, target=k).effects[0].average for k in (0, 1)
    ]
    np.testing.assert_allclose(2 * averages[0], averages[1])
    labels = np.stack([y, y > 0], axis=1)
    forest = RandomForestClassifier(2, random_state=0).fit(iris, labels)
    display = EffectDisplay.from_estimator(forest, iris, 0, target=(1, 0))
    assert display.axes_[0].get_ylabel() == "mean probability of 0 (output 1)"


PAIRS = [
    ("size", "children"),
    ("size", "city"),
    ("open", "size"),
    ("city", "open"),
    ("when", "size"),
]


@pytest.mark.parametrize("pair", PAIRS[1:])
def test_partial_dependence_of_pairs(models, pair):
    options = {"subsample": None, "grid_resolution": 4}
    (effect,) = EffectDisplay.from_estimator(models["dates"], X, [pair], **options).effects
    assert effect.names == pair and effect.average.shape == tuple(map(len, effect.values))
    for place, found in np.ndenumerate(effect.average):
        rows = X
        for k, name in enumerate(pair):
            value = effect.values[k][place[k]]
            value = (
                pd.Timestamp("1970-01-01") + pd.Timedelta(value, "D") if name == "when" else value
            )
            rows = with_value(rows, name, value)
        assert found == pytest.approx(models["dates"].predict(rows).mean())
    for k, name in enumerate(pair):
        is_known = effect.values[k].dtype != object or None not in effect.values[k]
        assert is_known == (name != "city")


def test_what_is_drawn_of_pairs(models):
    display = EffectDisplay.from_estimator(models["dates"], X, [*PAIRS, "size"], subsample=20)
    figure, axes = display.figure_, display.axes_
    assert len(axes) == 6 and len(figure.axes) == 6 + 2  # colour bars of a map and of a table
    numbers, lines, swapped, levels, dates, size = axes
    assert size.get_ylabel() == "mean prediction" and levels.get_ylabel() == "open"
    assert (numbers.get_xlabel(), numbers.get_ylabel()) == ("size", "mean prediction")
    for ax, title in ((numbers, "children"), (lines, "city"), (swapped, "open")):
        assert ax.get_xlabel() == "size" and ax.get_legend().get_title().get_text() == title
    effect = display.effects[1]
    assert [text.get_text() for text in lines.get_legend().get_texts()] == [
        "Bern", "Oslo", "Rome", "missing",
    ]  # fmt: skip
    for k, line in enumerate(lines.lines):
        np.testing.assert_array_equal(
            line.get_xydata().T, [effect.values[0], effect.average[:, k]]
        )
    np.testing.assert_array_equal(swapped.lines[1].get_ydata(), display.effects[2].average[1])
    texts = [text.get_text() for text in levels.texts]
    assert len(texts) == 4 * 2 and float(texts[0]) == pytest.approx(
        display.effects[3].average[0, 0], rel=0.01
    )
    figure.canvas.draw()
    assert "2025" in dates.xaxis.get_offset_text().get_text()
    assert dates.get_ylabel() == "size"


@pytest.mark.parametrize("n, n_lines", [(6, 6), (7, 0)])
def test_few_numbers_are_levels(n, n_lines):
    """A table of levels, and lines or a map of more numbers; values do not begin at 0."""
    average = np.arange(10.0, 10 + 2 * n).reshape(2, n) ** 2
    values = np.arange(2.0), np.arange(float(n))
    effect = PairEffect(("a", "b"), values, average, np.zeros((3, 2)), (False, False))
    ax = plt.figure().subplots()
    effect.plot(ax, "mean")
    if not n_lines:
        assert len(ax.lines) == 2 and not ax.images and ax.get_xlabel() == "b"
        data = np.arange(2000.0).reshape(1000, 2)  # every fourth row is drawn
        many = PairEffect(("a", "b"), (values[1],) * 2, np.ones((7, 7)), data, (False, False))
        many._plot_map(ax := plt.figure().subplots(), "mean")
        np.testing.assert_array_equal(ax.lines[0].get_xydata(), data[::4])
        return
    np.testing.assert_array_equal(ax.images[0].get_array(), average.T)
    middle = (average.min() + average.max()) / 2
    for text, (place, value) in zip(ax.texts, np.ndenumerate(average), strict=True):
        assert text.get_position() == place
        assert float(text.get_text()) == pytest.approx(value, 0.01)
        assert text.get_color() == ("black" if value > middle else "white")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("a", "b")
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {0}
    texts = np.array(["a level of many letters", "another of many letters"], dtype=object)
    for k, rotation in ((0, 90), (1, 0)):
        own = (texts, values[0]) if k == 0 else (values[0], texts)
        ax = plt.figure().subplots()
        PairEffect(("a", "b"), own, average[:, :2], np.zeros((3, 2)), (False, False)).plot(ax, "")
        assert {label.get_rotation() for label in ax.get_xticklabels()} == {rotation}


def test_axes_of_pairs_with_as_many_values_on_both():
    values, texts = np.arange(8.0), np.array(list("abcdefgh"), dtype=object)
    average = np.arange(8.0)[:, None] + np.arange(8) / 100  # it depends on the first column
    options = {"data": np.zeros((3, 2)), "is_date": (False, False)}
    PairEffect(("a", "b"), (values, values), average, **options).plot(
        ax := plt.figure().subplots(), ""
    )
    low = ax.collections[0].get_paths()[0].get_extents()  # where the effect is smallest
    assert low.width < 2 and low.height == 7
    for k in (0, 1):
        own = (values, texts) if k == 0 else (texts, values)
        PairEffect(("a", "b"), own, average, **options).plot(ax := plt.figure().subplots(), "")
        curves = average.T if k == 0 else average
        for line, curve, text in zip(ax.lines, curves, texts, strict=True):
            np.testing.assert_array_equal(line.get_xydata(), np.stack([values, curve], axis=1))
            assert line.get_label() == text


class Half(RegressorMixin, BaseEstimator):
    """Predicts half of the first column."""

    n_features_in_ = 2

    def predict(self, X):
        return np.asarray(X)[:, 0].astype(float) / 2


def test_what_is_drawn(models):
    model = models["dates"]
    names = ["size", "city", "children", "when"]
    display = EffectDisplay.from_estimator(model, X, names, kind="both")
    assert len(display.figure_.axes) == 4 and display.axes_[0].get_ylabel() == "prediction"
    size, city, children, when = display.axes_
    assert [label.get_text() for label in size.get_xticklabels()][-1] == "missing"
    assert [label.get_text() for label in city.get_xticklabels()] == [
        "Bern", "Oslo", "Rome", "missing",
    ]  # fmt: skip
    assert when.get_xticklabels()[0].get_text().startswith("2025")
    line = next(line for line in size.lines if line.get_label() == "mean")
    np.testing.assert_array_equal(line.get_xdata(), display.effects[0].values[:-1])
    np.testing.assert_array_equal(line.get_ydata(), display.effects[0].average[:-1])
    heights = np.array([bar.get_height() for bar in city.patches])
    counts = X["city"].value_counts(dropna=False)[["Bern", "Oslo", "Rome", None]].to_numpy()
    np.testing.assert_allclose(heights, 0.1 * counts / counts.max())
    assert [text.get_text() for text in size.get_legend().get_texts()] == ["single rows", "mean"]
    figure, axes = plt.subplots(1, 4)
    n_lines = [len(display.plot(n_curves=n, ax=axes).axes_[2].lines) for n in (5, 10)]
    assert display.figure_ is figure and n_lines == [6, 6 + 11]


@pytest.mark.parametrize("kind, tail", [("average", 0.01), ("ale", 0)])
def test_curves_end_before_the_tails_and_accumulated_effects_at_the_ends(kind, tail):
    x = np.sort(np.random.default_rng(0).standard_cauchy(400))
    few = np.repeat([0.0, 1, 2, 3, 50], [40, 3, 300, 50, 7])
    for values, expected in (
        (x, x[np.round(399 * np.linspace(tail, 1 - tail, 5)).astype(int)]),
        (few, [0, 1, 2, 3, 50]),  # no more values than points
    ):
        frame, options = pd.DataFrame({"x": values}), {"kind": kind, "grid_resolution": 5}
        effect = EffectDisplay.from_estimator(Half(), frame, "x", **options).effects[0]
        np.testing.assert_array_equal(effect.values, expected)


def test_pairs_are_predicted_in_parts_of_limited_size(monkeypatch):
    monkeypatch.setattr("skforest.inspect.pairs.MAX_ROWS", 12)
    sizes = []

    def respond(rows):
        sizes.append(len(rows))
        return rows @ [1, 10, 1000]

    rows = SimpleNamespace(
        replaced=lambda *given: np.stack([given[0], given[1][1], given[2][1]], 1)
    )
    first, second = np.arange(7), np.arange(7)[::-1]
    found = predicted(rows, respond, [0, 1], np.stack([first, second], 1), np.arange(4))
    expected = np.arange(4) + (10 * first + 1000 * second)[:, None]
    np.testing.assert_array_equal(found, expected)
    assert max(sizes) <= 12 and sum(sizes) == 28


def test_odd_columns():
    frame = pd.DataFrame({"one": [3.0, 3.0, np.nan], "empty": [np.nan] * 3})
    model = Half()
    for kind in ("both", "ale"):
        effect = EffectDisplay.from_estimator(model, frame, "one", kind=kind).effects[0]
        assert effect.values[0] == 3 and effect.average[0] == (1.5 if kind == "both" else 0)
        with pytest.raises(ValueError, match="column 'empty' of X has only missing values"):
            EffectDisplay.from_estimator(model, frame, "empty", kind=kind)
    levels = pd.DataFrame({"level": [f"l{i % 30:02}" for i in range(900)], "x": 1.0})
    model = skforest.ManifoldForestRegressor(1, categorical_features=["level"], random_state=0)
    model.fit(levels, np.arange(900) % 30)
    for kind in ("average", "ale"):
        found = EffectDisplay.from_estimator(model, levels, "level", kind=kind).effects[0]
        assert len(found.values) == 20 and (found.data == -1).sum() == 300


@pytest.mark.parametrize(
    "options, message",
    [
        ({"columns": ["age"]}, "columns has 'age', which is not a column"),
        ({"columns": [-1]}, "columns has -1, which is not a column"),
        ({"columns": 4}, "columns has 4"),
        ({"columns": [("size", "city")], "kind": "ale"}, 'effects of pairs need kind="average"'),
        ({"columns": [("size", "size")]}, "need two different columns"),
        ({"columns": [("size", "age")]}, "columns has 'age'"),
        ({"kind": "mean"}, "kind='mean' must be one of"),
        ({"response_method": "predict"}, "response_method='predict' must be one of"),
        ({"response_method": "predict_proba"}, "needs a classifier"),
        ({"target": 1}, r"target=1 must be one of \[0\]"),
        ({"grid_resolution": 1}, "grid_resolution=1"),
        ({"subsample": 0}, "subsample=0"),
        ({"X": PLAIN[:0]}, r"X has shape \(0, 4\)"),
        ({"X": np.zeros((3, 2, 2))}, r"X has shape \(3, 2, 2\)"),
        ({"X": np.zeros((0, 2))}, r"X has shape \(0, 2\)"),
        ({"X": sparse.eye(3)}, "toarray"),
    ],
)
def test_bad_parameters(models, options, message):
    options = {"X": PLAIN, "columns": ["size"]} | options
    with pytest.raises((TypeError, ValueError), match=message):
        EffectDisplay.from_estimator(models["boosting"], **options)


@pytest.mark.parametrize("unit, factor", [(1.0, ""), (1e5, " (in 1e6)"), (1e-6, " (in 1e−5)")])
def test_labels_below_a_panel_have_their_factor_and_do_not_overlap(unit, factor):
    values = unit * np.append(np.linspace(0, 12, 60), np.nan)
    few = np.append(np.arange(11.0), np.nan)
    effects = [
        Effect(name, x, np.zeros(len(x)), np.empty((0, len(x))), x)
        for name, x in (("income", values), ("visits", few))
    ]
    display = EffectDisplay(effects).plot()
    display.figure_.canvas.draw()
    assert display.axes_[0].get_xlabel() == "income" + factor
    for ax in display.axes_:
        texts = [label.get_window_extent() for label in ax.get_xticklabels()]
        assert all(a.x1 < b.x0 for a, b in zip(texts, texts[1:]))


def test_text_that_a_pipeline_reads_as_dates_is_a_date(models):
    """The same points and curve as for the dates themselves, and an axis of time."""
    text = X.assign(when=X["when"].dt.strftime("%d.%m.%Y"))
    model = models["dates"]
    read = make_pipeline(DateFeatures(), clone(model[-1])).fit(text, Y)
    one = EffectDisplay.from_estimator(model, X, ["when"]).effects[0]
    other = EffectDisplay.from_estimator(read, text, ["when", ("when", "size")])
    first, pair = other.effects
    assert first.is_date and pair.is_date == (True, False)
    np.testing.assert_array_equal(first.values, one.values)
    np.testing.assert_allclose(first.average, one.average)


def test_an_axis_says_how_many_levels_are_not_shown():
    rng = np.random.default_rng(0)
    many = pd.DataFrame({"shop": rng.integers(0, 25, 300).astype(str), "a": rng.normal(size=300)})
    forest = skforest.ManifoldForestRegressor(3, random_state=0).fit(many, many["a"])
    display = EffectDisplay.from_estimator(forest, many, ["shop", "a"])
    labels = [axes.get_xlabel() for axes in display.axes_]
    assert labels == ["shop (20 of 25 levels)", "a"]
    counts = many["shop"].value_counts()  # those of most rows are shown
    shown = counts.index.isin(display.effects[0].values)
    assert shown.sum() == 20 and counts[shown].min() >= counts[~shown].max()


@pytest.mark.parametrize(
    "times, texts",
    [
        (["1969-12-31", "2024-02-29"], ["1969-12-31", "2024-02-29"]),
        (["1968-01-01T18:00", "2024-02-29T00:00"], ["1968-01-01 18:00", "2024-02-29 00:00"]),
        (["2024-01-01T00:00:00", "2024-01-01T00:00:07"],) * 2,
    ],
)
def test_dates_of_a_legend_have_the_unit_that_they_need(times, texts):
    frame = pd.DataFrame({"a": np.linspace(0, 1, 60), "d": pd.to_datetime(np.resize(times, 60))})
    model = make_pipeline(DateFeatures(), ManifoldForestRegressor(3, random_state=0))
    display = EffectDisplay.from_estimator(model.fit(frame, frame["a"]), frame, [("a", "d")])
    legend = [text.get_text() for text in display.axes_[0].get_legend().get_texts()]
    assert legend == [text.replace("T", " ") for text in texts]


def test_effects_need_a_column():
    X = np.random.default_rng(0).normal(size=(30, 2))
    with pytest.raises(ValueError, match="columns is empty"):
        EffectDisplay.from_estimator(ManifoldForestRegressor(2).fit(X, X[:, 0]), X, [])


@pytest.mark.parametrize(
    "value, label",
    [
        (1.5, "1.5"),
        (3, "3"),
        (-2.5e-7, "\u22122.500e\u221207"),
        ("2024-01-18 12:00", "2024-01-18"),
    ],
)
def test_a_single_known_value_is_visible(value, label):
    value = pd.Timestamp(value) if isinstance(value, str) else value
    frame = pd.DataFrame({"a": [value] * 40, "x": np.arange(40.0)})
    model = make_pipeline(DateFeatures(), ManifoldForestRegressor(2)).fit(frame, frame["x"])
    for n_missing in (0, 9):
        rows = frame.copy()
        rows.loc[: n_missing - 1, "a"] = None
        [ax] = EffectDisplay.from_estimator(model, rows, ["a"]).axes_
        assert ax.lines[0].get_marker() == "o" and len(ax.lines[0].get_xdata()) == 1
        shown = [label, "missing"][: 1 + (n_missing > 0)]
        assert [text.get_text() for text in ax.get_xticklabels()] == shown
        bar, low, high = ax.patches[0].get_bbox(), *ax.get_xlim()
        assert bar.height == pytest.approx(0.1) and bar.width > 0.3 * (high - low)
