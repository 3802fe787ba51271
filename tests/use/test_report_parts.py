"""Parts of reports: what is said and drawn of columns, rows, pairs and trees."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import load_wine, make_moons
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from skforest import (
    DateFeatures,
    EffectDisplay,
    Forest,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    PartitionDisplay,
    TrainingCurveDisplay,
    describe,
    shapley_values,
)
from skforest.inspect import comparison
from skforest.inspect.comparison import Predicted, named_models
from skforest.inspect.page import Section, bars, cell_text, contributions, short
from skforest.inspect.report import (
    _class_curves,
    _columns,
    _effects,
    _importances,
    _pairs,
    _residuals,
    _rows,
    _Subject,
    _trees,
    _with_interval,
)

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib").use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


def test_class_that_a_report_shows():
    """The rarer of two texts, the second of two numbers, or the target."""
    rng = np.random.default_rng(0)
    X, rare = rng.normal(size=(200, 2)), np.arange(200) % 10 == 0
    for labels, target, shown in (
        (np.where(rare, "churn", "stay"), None, "churn"),
        (np.where(rare, "yes", "no"), None, "yes"),
        (np.where(rare, 0, 1), None, 1),
        (np.where(rare, "churn", "stay"), "stay", "stay"),
    ):
        model = ManifoldForestClassifier(3, random_state=0).fit(X, labels)
        subject = _Subject(model, X, labels, 0, target)
        assert subject.label == shown
        text = _rows(subject).text[1]
        proba = model.predict_proba(X)[:, subject.shown]
        row, value = re.search(
            rf"^Row (\d+), .+, probability of {shown}: ([\d.]+), truth", text
        ).groups()
        assert float(value) == pytest.approx(proba[int(row)], abs=1e-4)
    with pytest.raises(ValueError, match="target='go' is not a label"):
        describe(model, X, labels, target="go")


def test_rows_of_several_classes_show_the_class_that_is_predicted_for_them():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.choice(["u", "v", "w"], 200)
    model = ManifoldForestClassifier(5, random_state=0).fit(X[:100], y[:100])
    text = "\n".join(_rows(_Subject(model, X[100:], y[100:], 0)).text)
    found = re.findall(r"Row (\d+), .*, probability of (\w): (\S+), truth: (\w)", text)
    sure, predicted = model.predict_proba(X[100:]).max(axis=1), model.predict(X[100:])
    wrong = np.flatnonzero(predicted != y[100:])
    assert int(found[2][0]) == wrong[np.argmax(sure[wrong])] and "surest error" in text
    assert [int(row) for row, *_ in found[:2]] == [np.argmax(sure), np.argmin(sure)]
    assert len(found) == 3 and len({label for _, label, _, _ in found}) > 1
    for row, label, share, truth in found:
        assert [label, truth] == [predicted[int(row)], y[100 + int(row)]]
        assert float(share) == pytest.approx(sure[int(row)], rel=1e-3)


def test_rows_of_a_regression_are_the_ends_and_the_median():
    X = np.arange(60.0)[:, None]
    model = ManifoldForestRegressor(5, random_state=0).fit(X, np.exp(X[:, 0] / 8))
    text = "\n".join(_rows(_Subject(model, X, None, 0)).text)
    found = [int(row) for row in re.findall(r"Row (\d+), \w+ prediction, prediction: ", text)]
    order = np.argsort(model.predict(X), kind="stable")
    assert found == order[[0, 30, -1]].tolist()


@pytest.mark.parametrize("is_product", [True, False])
def test_pairs_that_interact(is_product):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(300, 3))

    class Model(ManifoldForestRegressor):
        def predict(self, X):
            X = np.asarray(X)
            return X[:, 0] * X[:, 1] if is_product else X[:, 0] + X[:, 1] + X[:, 2]

    model = Model(2, random_state=0).fit(X, X[:, 0])
    subject = _Subject(model, X, None, 0)
    subject.order = [0, 1, 2]
    text = "\n".join(_pairs(subject).text)
    share = float(re.search(r"x0 x x1 +(\S+)", text)[1])
    assert share > 90 if is_product else share < 1e-9
    deviation = float(re.search(r"x0 x x1 +\S+ +(\S+)", text)[1])
    # Of a product of uniform numbers 1/3, of a sum the root of 2/3; of 40 rows.
    assert deviation == pytest.approx(1 / 3 if is_product else np.sqrt(2 / 3), rel=0.2)


def test_table_of_a_section_aligns_its_columns():
    section = Section("a")
    section.table(("name", "score"), [("x", 0.5), ("longer", float("nan")), ("yes", True)])
    assert section.text[0].splitlines() == [
        "name    score",
        "x         0.5",
        "longer",
        "yes      True",
    ]
    assert section.html[0].count("<td class=number>") == 3


def test_sentences_and_descriptions_are_escaped():
    section = Section("a")
    section.say('1 < 2 & "x"')
    section.picture(plt.figure(figsize=(1, 1)), 'a "b" <c>')
    assert section.html[0] == "<p>1 &lt; 2 &amp; &quot;x&quot;</p>"
    assert 'alt="a &quot;b&quot; &lt;c&gt;"' in section.html[1]
    assert section.text[0] == '1 < 2 & "x"'


def test_intervals_leave_out_draws_without_a_class():
    assert _with_interval(0.5, [0.25, np.nan, 0.25]) == "0.5 (0.25 to 0.25)"
    assert _with_interval(np.nan, [0.5, 0.5]) == _with_interval(0.5, [np.nan, np.nan]) == ""


def test_bars_of_reports_belong_to_their_names():
    losses = np.array([[3.0, 5.0], [2.0, 2.5], [-1.0, 0.0]])
    (ax,) = bars(["a", "b", "c"], losses, "r2").axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["c", "b", "a"]
    (segments,) = [line.get_segments() for line in ax.containers[-1].errorbar[2]]
    ends = np.array(segments)[::-1, :, 0]
    np.testing.assert_allclose(ends.mean(axis=1), losses.mean(axis=1))
    np.testing.assert_allclose(np.diff(ends)[:, 0] / 2, losses.std(axis=1))
    values = np.array([2.0, 1.5, -0.5])
    (ax,) = contributions([("title", ["a = 1", "b = 2", "c = 3"], values)]).axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["c = 3", "b = 2", "a = 1"]
    assert [bar.get_width() for bar in ax.patches] == values[::-1].tolist()
    colours = [bar.get_facecolor() for bar in ax.patches]
    assert colours[1] == colours[2] != colours[0]
    plt.close("all")


def test_numbers_and_labels_of_reports():
    values = 123456.7, -123456.7, 0.000123456, np.nan, 1e12, np.float32(0.5), 3
    texts = ["123457", "-123457", "0.0001235", "", "1e+12", "0.5", "3"]
    assert [cell_text(value) for value in values] == texts
    assert short("a" * 34) == "a" * 34 and short("a" * 35) == "a" * 33 + "\N{HORIZONTAL ELLIPSIS}"


@pytest.mark.parametrize("n_classes, shown", [(2, [1]), (3, [0, 1, 2])])
def test_two_classes_have_one_curve(n_classes, shown):
    rng = np.random.default_rng(0)
    proba, classes = rng.dirichlet(np.ones(n_classes), 90), np.array(["u", "v", "w"])[:n_classes]
    y = classes[[rng.choice(n_classes, p=p) for p in proba]]
    predicted = SimpleNamespace(proba=proba, classes_=classes, labels=classes[proba.argmax(1)])
    figure = _class_curves(SimpleNamespace(y=y, predicted=predicted, shown=1))
    roc, calibration, confusion = figure.axes
    assert len(roc.lines) == len(calibration.lines) == len(shown) + 1
    assert [text.get_text()[0] for text in roc.get_legend().get_texts()] == list(classes[shown])
    parts = np.array_split(np.sort(proba[:, shown[0]]), 10)
    means = [part.mean() for part in parts]
    np.testing.assert_allclose(calibration.lines[0].get_xdata(), means, atol=0.02)
    assert len(confusion.texts) == n_classes**2
    plt.close("all")


def test_residuals_are_targets_minus_predictions():
    y, predicted = np.array([1.0, 2.0, 9.0, 4.0]), np.array([1.0, 1.5, 2.0, 3.0])
    own = {"y": y, "predicted": SimpleNamespace(labels=predicted), "sample": lambda n: [2, 3]}
    left, right = _residuals(SimpleNamespace(**own)).axes
    assert left.collections[0].get_offsets().tolist() == [[2, 9], [3, 4]]
    ends = [bar.get_x() for bar in right.patches if bar.get_height()]
    assert [min(ends), max(ends)] == pytest.approx([0, 7 - 7 / 40])
    plt.close("all")


def test_importances_of_a_report_are_those_of_drawn_rows(monkeypatch):
    """Other rows than the first; every permutation is another one."""
    monkeypatch.setattr("skforest.inspect.report.PERMUTED", 60)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = 2 * X[:, 0] + X[:, 1] + rng.normal(size=300)

    class Model(ManifoldForestRegressor):
        def predict(self, X):
            return 2 * X[:, 0] + X[:, 1]

    subject = _Subject(Model(2, random_state=0).fit(X, y), X, y, 0)
    text = _importances(subject).text[1]
    lines = [line.split() for line in text.splitlines()[1:]]
    assert subject.order == [0, 1, 2] and [name for name, *_ in lines] == ["x0", "x1", "x2"]
    decrease, deviation = np.array([line[1:3] for line in lines], dtype=float).T
    assert decrease[2] == deviation[2] == 0 and (deviation[:2] > 1e-3).all()
    np.testing.assert_allclose(decrease[:2] * y.var(), [8, 2], rtol=0.5)  # 2 weight**2
    # Of many columns, those are permuted that are most important in training.
    monkeypatch.setattr("skforest.inspect.report.MAX_PERMUTED", 2)
    subject = _Subject(Model(2, random_state=0).fit(X, 2 * X[:, 2] + X[:, 1]), X, y, 0)
    assert sorted(_importances(subject) and subject.order) == [1, 2]


def test_columns_show_their_most_frequent_levels():
    levels = np.repeat(["a", "b", "c", "d", "e"], [3, 4, 9, 7, 1])
    X = pd.DataFrame({"level": levels, "few": np.where(np.arange(24) < 20, np.nan, 1.5)})
    model = ManifoldForestRegressor(2, random_state=0).fit(X, np.arange(24.0))
    lines = _columns(_Subject(model, X, None, 0)).text[1].splitlines()
    assert re.match(r"level +category +5 +c, d, b$", lines[1])
    assert re.match(r"few +number +83.3 % +1 +1.5 / 1.5 / 1.5 +constant in these rows", lines[2])


def test_trees_are_those_of_the_member_of_the_largest_weight():
    X, y = load_wine(return_X_y=True)
    members = {name: ManifoldForestClassifier(1, max_depth=1).fit(X, y) for name in "abc"}
    weights = {"a": 0.2, "b": 0.5, "c": 0.3}
    model = SimpleNamespace(members_=members, weights_=weights)
    section = _trees(SimpleNamespace(model=model, has_transformers=False))
    assert section.text[0].startswith("Of the member 'b',")


def test_columns_without_values_have_no_effects():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = ManifoldForestRegressor(2, random_state=0).fit(X, X.sum(axis=1))
    subject = _Subject(model, X * [1, np.nan], None, 0)
    subject.order = [1, 0]
    assert 'alt="effects' in "".join(_effects(subject).html) and subject.order == [0]


def test_trees_of_reports_have_splits():
    X = np.arange(60.0)[:, None]
    model = ManifoldForestRegressor(1, random_state=0).fit(X, X[:, 0])
    leaf = ManifoldForestRegressor(1, bootstrap=False).fit(X, np.full(60, 3.0)).forest_
    leaf = leaf.replaced(leaf.arrays | {"baseline": model.forest_.baseline})
    model.forest_ = Forest.concatenate([leaf.replaced(leaf.arrays), model.forest_])
    section = _trees(SimpleNamespace(model=model, has_transformers=False))
    assert re.findall(r'alt="(.*?)"', "".join(section.html)) == ["tree 1 to depth 3"]


def test_contributions_belong_to_their_rows_and_columns():
    X = np.random.default_rng(0).normal(size=(100, 5))
    model = ManifoldForestRegressor(3, random_state=0).fit(X, 3 * X[:, 2] - 9 * X[:, 3])
    section = _rows(_Subject(model, X, None, 0))
    rows = [int(row) for row in re.findall(r"Row (\d+)", "\n".join(section.text))]
    tables = [text for text in section.text if text.startswith("column")]
    expected = shapley_values(model, X[rows], X).values
    for row, table, values in zip(rows, tables, expected, strict=True):
        lines = [line.split() for line in table.splitlines()[1:]]
        found = {int(name[1:]): (float(x), float(value)) for name, x, value in lines}
        assert list(found) == np.argsort(-np.abs(values)).tolist()
        for j, numbers in found.items():
            assert numbers == pytest.approx((X[row, j], values[j]), rel=1e-3)


def test_models_of_a_list_have_a_name_each():
    models = [Ridge(), DummyRegressor(), Ridge(1), Ridge(2), Ridge(3)]
    names = ["Ridge", "Dummy", "Ridge 2", "Ridge 3", "Ridge 4"]
    assert named_models(models) == dict(zip(names, models))


def test_microseconds_are_those_of_a_row_in_the_fastest_call(monkeypatch):
    seconds = iter([10.0, 10.5, 20.0, 20.25, 30.0, 31.0])  # begin and end of three calls
    monkeypatch.setattr(comparison.time, "perf_counter", lambda: next(seconds))
    model = DummyRegressor().fit(np.zeros((5, 1)), np.zeros(5))
    assert Predicted.of(model, np.zeros((5, 1))).predict_us == 0.25e6 / 5


def test_sizes_are_in_mib():
    model = DummyRegressor()
    model.held = np.zeros(2**18)  # of 8 bytes each
    assert comparison._mib(model) == pytest.approx(2, rel=0.01)


@pytest.mark.parametrize("names", [["$5_$", "_a"], ["$0 to $5", "$9^$"]])
def test_every_name_stands_in_a_legend_as_it_is(names):
    X, y = make_moons(60, noise=0.2, random_state=0)
    model = ManifoldForestClassifier(3, random_state=0).fit(X, np.array(names)[y])
    sets = {name: (X, np.array(names)[y]) for name in names}
    plane = PartitionDisplay.from_estimator(model, X, grid_resolution=5).ax_
    curves = TrainingCurveDisplay.from_estimator(model, sets=sets).axes_[0]
    for ax in (plane, curves):
        ax.figure.canvas.draw()  # formulas are read here
        texts = [text.get_text().strip("\u200b") for text in ax.get_legend().get_texts()]
        assert [text for text in texts if text in names] == names
        assert not any(text.get_parse_math() for text in ax.get_legend().get_texts())
    page = describe(model, X, np.array(names)[y])
    assert names[0] in str(page)


def test_columns_whose_names_are_no_strings(monkeypatch, without_pictures):
    """Numbers are names, not positions; tuples are names, not pairs."""
    drawn, plot = [], EffectDisplay.plot
    monkeypatch.setattr(EffectDisplay, "plot", lambda self: drawn.append(self) or plot(self))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = 3 * X[:, 0] + 0.5 * X[:, 1]
    for names, shown in (
        (["c2", "c0", "c1"], ["c2", "c0"]),
        ([2, 0, 1], ["2", "0"]),
        (pd.MultiIndex.from_tuples([("q", 1), ("q", 2), ("r", 1)]), ["('q', 1)", "('q', 2)"]),
    ):
        frame = pd.DataFrame(X, columns=names)
        model = ManifoldForestRegressor(20, random_state=0).fit(frame, y)
        subject = _Subject(model, frame, y, 0)
        rows = _importances(subject).text[-1].splitlines()[1:]
        assert [row.startswith(name) for row, name in zip(rows, shown)] == [True] * 2
        in_training = [float(row.split()[-1]) for row in rows]
        assert in_training == sorted(in_training, reverse=True) and in_training[0] > 0.8
        assert subject.order[0] == 0
        drawn.clear()
        _effects(subject)
        assert [effect.name for effect in drawn[0].effects][:2] == shown
        pair = _pairs(subject).text[-1].splitlines()[1].split("  ")[0]
        assert " x ".join(drawn[1].effects[0].names) == pair
        rows = _importances(_Subject(model, frame, None, 0)).text[-1].splitlines()[1:]
        assert rows[0].startswith(shown[0]) and rows[1].startswith(shown[1])
    assert "== Pairs" in str(describe(model, frame, y))


def test_targets_in_a_column_are_targets_of_one_output(monkeypatch, without_pictures):
    """Otherwise, residuals are differences between all pairs of rows."""
    from matplotlib.axes import Axes

    drawn = []
    monkeypatch.setattr(Axes, "hist", lambda self, x, **given: drawn.append(x))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.normal(size=60)
    for fitted in (y, y[:, None]):
        model = ManifoldForestRegressor(5, random_state=0).fit(X, fitted)
        for target in (y, y[:, None]):
            truths = re.findall("truth: (.*)", str(describe(model, X, target)))
            assert len(truths) == 3 and all(float(one) for one in truths)
            np.testing.assert_allclose(drawn.pop(), y - model.predict(X).ravel())


def test_a_model_of_a_single_class(without_pictures):
    X = np.random.default_rng(0).normal(size=(60, 3))
    y = np.ones(60, dtype=int)
    model = ManifoldForestClassifier(5, random_state=0).fit(X, y)
    text = str(describe(model, X, y))
    assert "Importances" in text and "Decrease of neg_log_loss" in text


def backwards(X):
    return np.asarray(X)[:, ::-1]


@pytest.mark.parametrize("is_frame", [False, True])
def test_importances_of_unnamed_columns_of_a_pipeline(is_frame):
    """x0 of the last step is another column than x0 of X."""
    X = np.random.default_rng(0).normal(size=(150, 40))
    y, X[:, -1] = 10 * X[:, 0] + X[:, 1], np.arange(150) % 2
    X = pd.DataFrame(X).add_prefix("x") if is_frame else X
    forest = ManifoldForestRegressor(5, categorical_features=[0], random_state=0)
    model = make_pipeline(FunctionTransformer(backwards), forest).fit(X, y)
    subject = _Subject(model, X, y, 0)
    text = "\n".join(_importances(subject).text)
    assert "30 of 40 columns" in text and "training" not in text
    assert subject.order[0] == 0
    subject = _Subject(model, X, None, 0)
    assert _importances(subject).text[-1].split("\n")[1].startswith("x39 ")  # of the last step
    assert subject.order == list(range(40)) and not subject.is_category(0)
    named = make_pipeline(StandardScaler(), ManifoldForestRegressor(5, random_state=0)).fit(X, y)
    subject = _Subject(named, X, y, 0)
    assert "in training" in "\n".join(_importances(subject).text) and subject.order[0] == 0


def test_days_before_1970():
    days = pd.to_datetime(["1965-01-18 12:00", "1969-12-31 23:00", "1973-03-18 12:00"])
    frame = pd.DataFrame({"when": days, "size": [1.0, 2.0, 3.0]})
    model = make_pipeline(DateFeatures(), ManifoldForestRegressor(2)).fit(frame, [1.0, 2.0, 3.0])
    text = "\n".join(_columns(_Subject(model, frame, None, 0)).text)
    assert "1965-01-18 / 1969-12-31 / 1973-03-18" in text
