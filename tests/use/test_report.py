"""`leaderboard` and `describe`: scores beside baselines, and a page about a fitted estimator."""

import html
import json
import re
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import get_scorer, log_loss, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC

from skforest import (
    BlendedForestClassifier,
    DateFeatures,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    describe,
    leaderboard,
    slim,
)
from skforest.inspect import report as module
from skforest.inspect.comparison import (
    METRICS,
    Predicted,
    PredictedClasses,
    PredictedNumbers,
    baselines,
    check_baseline_rows,
    scores_of,
)
from skforest.inspect.explain import values_of_table
from skforest.inspect.page import Section

pd = pytest.importorskip("pandas")
pytest.importorskip("matplotlib").use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True, as_frame=True)
    y = np.array(["red", "white", "green"])[y]
    return train_test_split(X.iloc[:, :5], y, random_state=0, stratify=y)


@pytest.fixture(scope="module")
def blend(wine):
    X, _, y, _ = wine
    members = [
        ("small", ManifoldForestClassifier(10)),
        ("linear", make_pipeline(StandardScaler(), LogisticRegression())),
    ]
    return BlendedForestClassifier(members, calibrate=False, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def diabetes():
    """A mixed table: categories, missing values, a constant and an identifier."""
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X = X[["age", "sex", "bmi", "s5"]].copy()
    X["sex"] = np.where(X["sex"] == 1, "m", "f")
    X.loc[::9, "bmi"] = np.nan
    X["<site>"] = 7.0
    X["patient"] = [f"p{i}" for i in range(len(X))]
    return train_test_split(X, y.to_numpy(), random_state=0)


@pytest.fixture(scope="module")
def boosting(diabetes):
    X, _, y, _ = diabetes
    with pytest.warns(UserWarning, match="patient"):
        return ObliqueBoostingRegressor(20, n_bags=2, random_state=0).fit(X, y)


@pytest.fixture(scope="module")
def report(boosting, diabetes):
    X, X_test, y, y_test = diabetes
    return describe(boosting, X_test, y_test, X_train=X, y_train=y)


# ------------------------------------------------------------------------------------ leaderboard


def test_leaderboard_scores_are_those_of_scikit_learn(wine, blend):
    X, X_test, y, y_test = wine
    weight = np.linspace(1, 3, len(y_test))
    metrics = ["balanced_accuracy", "neg_log_loss", "roc_auc_ovo"]
    board = leaderboard(
        {"a": blend}, X_test, y_test, metrics=metrics, X_train=X, y_train=y, sample_weight=None
    )
    for metric in metrics:
        expected = get_scorer(metric)(blend, X_test, y_test)
        assert board.loc["a", metric] == pytest.approx(expected, rel=1e-12)
    weighted = leaderboard({"a": blend}, X_test, y_test, metrics="accuracy", sample_weight=weight)
    expected = np.average(blend.predict(X_test) == y_test, weights=weight)
    assert weighted.loc["a", "accuracy"] == pytest.approx(expected)
    assert list(board["balanced_accuracy"]) == sorted(board["balanced_accuracy"], reverse=True)


def test_leaderboard_of_a_blend_has_its_members(wine, blend):
    _, X_test, _, y_test = wine
    board = leaderboard(blend, X_test, y_test)
    assert set(board.index) == {
        "blend", *blend.members_, "random forest, 5 folds", "constant, 5 folds",
    }  # fmt: skip
    for name, member in blend.members_.items():
        assert board.loc[name, "accuracy"] == member.score(X_test, y_test)
    assert board.loc["blend", "fit_seconds"] > 0
    assert 0 < board.loc["small", "MiB"] < board.loc["blend", "MiB"]
    assert board.loc["constant, 5 folds", "accuracy"] < board.loc["blend", "accuracy"]


def test_baselines_are_trained_on_the_training_rows(diabetes):
    X, X_test, y, y_test = diabetes
    ridge = make_pipeline(StandardScaler(), Ridge())
    models = [ridge.fit(X[["age", "s5"]], y), ridge]
    board = leaderboard(models, X_test[["age", "s5"]], y_test, X_train=X[["age", "s5"]], y_train=y)
    assert set(board.index) == {"Ridge", "Ridge 2", "random forest", "constant"}
    constant = np.sqrt(np.mean((y_test - y.mean()) ** 2))
    assert board.loc["constant", "neg_root_mean_squared_error"] == pytest.approx(-constant)
    forest = ManifoldForestRegressor(projection="axis", random_state=0).fit(X[["age", "s5"]], y)
    expected = forest.score(X_test[["age", "s5"]], y_test)
    assert board.loc["random forest", "r2"] == pytest.approx(expected)


@pytest.mark.parametrize("columns", [1, 2])
def test_r2_of_a_constant_target_is_that_of_scikit_learn(columns):
    y = np.full((30, columns), 2.0)
    for off in (0, 1):
        predicted = PredictedNumbers(y + off * np.arange(columns)[::-1])
        found = scores_of(predicted, y, ["r2"])["r2"](None)
        assert found == r2_score(y, predicted.labels)


def test_leaderboard_has_nan_where_a_default_metric_lacks_a_class(wine, blend):
    X, X_test, y, y_test = wine
    rows = y_test == "red"
    board = leaderboard({"a": blend}, X_test[rows], y_test[rows], X_train=X, y_train=y)
    assert board.loc["a", "accuracy"] == np.mean(blend.predict(X_test[rows]) == "red")
    assert np.isnan(board.loc["a", "roc_auc_ovr"])
    loss = log_loss(y_test[rows], blend.predict_proba(X_test[rows]), labels=blend.classes_)
    assert board.loc["a", "neg_log_loss"] == pytest.approx(-loss)
    with pytest.raises(ValueError, match="'roc_auc_ovr', which is not for these labels"):
        leaderboard({"a": blend}, X_test[rows], y_test[rows], metrics=["roc_auc_ovr"])


def test_a_model_without_a_score_is_the_last_one(wine, blend):
    X, X_test, y, y_test = wine
    models = {"labels": LinearSVC(dual=False).fit(X, y), "blend": blend}
    options = {"metrics": ["neg_log_loss"], "X_train": X, "y_train": y}
    board = leaderboard(models, X_test, y_test, **options)["neg_log_loss"]
    assert board.index[-1] == "labels" and np.isnan(board.iloc[-1])
    assert (np.diff(board.iloc[:-1]) <= 0).all()


def test_leaderboard_refuses_what_it_cannot_compare(wine, blend, diabetes, boosting):
    _, X_test, _, y_test = wine
    with pytest.raises(ValueError, match="models is empty"):
        leaderboard([], X_test, y_test)
    with pytest.raises(ValueError, match="'a' is a .* and 'b' a "):
        leaderboard({"a": blend, "b": boosting}, X_test, y_test)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        leaderboard(blend, X_test, y_test[1:])
    rows = {"X_train": X_test, "y_train": y_test}
    for name, given in (("random forest", rows), ("constant", rows), ("constant, 5 folds", {})):
        with pytest.raises(ValueError, match=f"'{name}', but a baseline has this name"):
            leaderboard({"a": blend, name: blend}, X_test, y_test, **given)
    assert "constant" in leaderboard({"constant": blend}, X_test, y_test)["accuracy"]


def test_labels_and_metrics_are_checked_before_anything_is_predicted(
    wine, blend, diabetes, boosting, monkeypatch
):
    X, X_test, _, y_test = wine
    monkeypatch.setattr(Predicted, "of", None)
    for function, name in ((leaderboard, "y"), (describe, "y_test")):
        with pytest.raises(ValueError, match=rf"^{name} has the labels \['blue', 'pink'\], but "):
            function(blend, X_test, np.where(y_test == "red", "pink", "blue"))
        for missing in (None, np.nan):
            labels = y_test.astype(object)
            labels[3] = missing
            with pytest.raises(ValueError, match=f"^{name} contains NaN or None: label 3 is"):
                function(blend, X_test, labels)
        with pytest.raises(ValueError, match=f"Input {name} contains NaN"):
            function(boosting, diabetes[1], np.where(diabetes[3] > 99, np.nan, diabetes[3]))
        with pytest.raises(ValueError, match="but the random forest was fitted to"):
            function(
                blend,
                X_test,
                y_test,
                X_train=X,
                y_train=np.where(wine[2] == "red", "red", "white"),
            )
    for metric in ("speed", "r2", "f1"):
        with pytest.raises(ValueError, match=f"metrics has '{metric}', which is not for these"):
            leaderboard(blend, X_test, y_test, metrics=["accuracy", metric])
    with pytest.raises(ValueError, match="'roc_auc', which is not for a regressor: it needs"):
        leaderboard(boosting, diabetes[1], diabetes[3], metrics="roc_auc")


@pytest.mark.parametrize("classes", [["a", "b"], ["a", "b", "c"]])
def test_scores_of_classes_are_those_of_scikit_learn(classes):
    rng = np.random.default_rng(0)
    y = rng.choice(classes, 60)
    proba = rng.dirichlet(np.ones(len(classes)), 60).round(1)  # with ties
    proba[:, -1] = 1 - proba[:, :-1].sum(axis=1)
    labels = np.array(classes)[proba.argmax(axis=1)]
    one, weight = PredictedClasses(labels, proba, np.array(classes)), rng.integers(0, 3, 60)
    for name, score in scores_of(one, y, METRICS[True]).items():
        for w in (None, weight):
            options = {} if w is None else {"sample_weight": w}
            expected = get_scorer(name)(one, np.arange(60), y, **options)
            assert score(w) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [(50,), (50, 2)])
def test_scores_of_numbers_are_those_of_scikit_learn(shape):
    rng = np.random.default_rng(0)
    y, predicted = rng.normal(size=(2, *shape))
    weight = rng.integers(0, 3, 50)
    y[..., -1:] = 2.0 if len(shape) > 1 else y[..., -1:]  # a constant output
    for name, score in scores_of(PredictedNumbers(predicted), y, METRICS[False]).items():
        for w in (None, weight):
            options = {} if w is None else {"sample_weight": w}
            expected = get_scorer(name)(PredictedNumbers(predicted), np.arange(50), y, **options)
            assert score(w) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("kind", [np.asarray, lambda X: pd.DataFrame(X, columns=["a", "b"])])
def test_numbers_beyond_float32_do_not_hinder_a_comparison(kind):
    """The random forest, which refuses them, gets the largest ones that it takes."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = X[:, 0].copy()
    X[::7, 1] = np.finfo(np.float64).max
    X[3, 0] = np.nan
    model = ObliqueBoostingRegressor(3, n_bags=1).fit(kind(X), y)
    assert leaderboard(model, kind(X), y).loc["random forest, 5 folds", "r2"] > 0.8


def test_leaderboard_of_pipelines(wine, blend):
    X, X_test, y, y_test = wine
    whole = make_pipeline(FunctionTransformer(lambda X: X), blend)  # cannot be pickled
    board = leaderboard(whole, X_test, y_test, metrics="accuracy", X_train=X, y_train=y)
    assert {"blend", "small", "linear"} < set(board.index)
    for name, member in blend.members_.items():
        assert board.loc[name, "accuracy"] == member.score(X_test, y_test)
    assert np.isnan(board.loc["blend", "MiB"])


def test_known_predictions_are_those_of_the_rows(wine, blend):
    _, X_test, _, y_test = wine
    one = Predicted.of(blend, X_test)
    assert (one.predict([3, 1]) == blend.predict(X_test.iloc[[3, 1]])).all()
    assert (one.predict_proba([3, 1]) == blend.predict_proba(X_test.iloc[[3, 1]])).all()
    assert one.predict_us > 0


# ----------------------------------------------------------------------------------------- report

SECTIONS = [
    "Columns", "Training", "Scores", "Importances", "Effects", "Pairs of columns", "Trees",
    "Three rows explained",
]  # fmt: skip


class Checker(HTMLParser):
    """Counts the open tags of a page, and collects what it loads."""

    empty = "meta", "img", "br", "link"

    def __init__(self):
        super().__init__()
        self.open, self.loaded, self.n_images = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.n_images += tag == "img"
        self.loaded += [value for key, value in attrs if key in ("src", "href")]
        if tag not in self.empty:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_report_is_one_page_that_loads_nothing(report, tmp_path):
    assert [section.title for section in report.sections] == SECTIONS
    report.save(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page == report.to_html()
    checker = Checker()
    checker.feed(page)
    assert not checker.open and checker.n_images >= 7
    assert all(source.startswith("data:image/svg+xml;base64,") for source in checker.loaded)
    assert len(page) < 2 * 2**20
    assert "<site>" not in page and "&lt;site&gt;" in page


PROBE = """<!DOCTYPE html><html style="color-scheme: light dark"><body>
<iframe style="width: 400px; height: 900px; border: 0" srcdoc="{page}"></iframe><pre></pre><script>
onload = () => {{
  const inside = document.querySelector("iframe").contentDocument, root = inside.documentElement;
  const canvas = new OffscreenCanvas(1, 1).getContext("2d", {{willReadFrequently: true}});
  const luminance = (color) => {{
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(
      (v) => v <= 10 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  }};
  const background = (one) => {{
    const color = getComputedStyle(one).backgroundColor;
    return color != "rgba(0, 0, 0, 0)" ? color :
      one.parentElement ? background(one.parentElement) : "white";
  }};
  const texts = [...inside.body.querySelectorAll("h1, h2, p, th, td")];
  const contrasts = texts.map((one) => {{
    const pair = [getComputedStyle(one).color, background(one)].map(luminance);
    return Math.max(...pair) / Math.min(...pair);
  }});
  document.querySelector("pre").textContent = JSON.stringify({{
    width: root.clientWidth, needed: root.scrollWidth, n_texts: texts.length,
    contrast: Math.min(...contrasts), page: luminance(background(inside.body)),
    pictures: [...inside.images].every((one) => one.naturalWidth > 0)}});
}};
</script></body></html>"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/usr/bin/chromium").exists(), reason="needs Chromium")
@pytest.mark.parametrize("is_dark", [False, True])
def test_report_in_a_browser(report, is_dark, tmp_path):
    """On a narrow screen: no errors, nothing beyond the right edge, and legible text."""
    path = tmp_path / "probe.html"
    path.write_text(PROBE.format(page=html.escape(report.to_html())), encoding="utf-8")
    options = "--headless --no-sandbox --disable-gpu --no-first-run --disable-sync --dump-dom"
    options += " --disable-background-networking --disable-component-update --disable-quic"
    options += " --enable-logging=stderr" + " --force-dark-mode" * is_dark
    command = ["/usr/bin/chromium", *options.split(), f"--user-data-dir={tmp_path / 'user'}"]
    done = subprocess.run([*command, path.as_uri()], capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    found = json.loads(re.search("<pre>(.+?)</pre>", done.stdout)[1])
    assert 380 < found["width"] == found["needed"] <= 400 and found["pictures"]  # a scroll bar
    assert found["n_texts"] > 100 and found["contrast"] >= 7
    assert (found["page"] < 0.1) == is_dark


def test_report_says_how_columns_are_read(report, diabetes):
    table = str(report).split("== Training ==")[0]
    lines = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    X_test = diabetes[1]
    assert re.match(r"sex +category +2 +\w, \w", lines["sex"])
    share = 100 * X_test["bmi"].isna().mean()
    assert f"number    {share:.3g} %" in lines["bmi"]
    low, middle, high = np.percentile(X_test["age"], [0, 50, 100])
    assert f"{low:.4g} / {middle:.4g} / {high:.4g}" in lines["age"]
    assert "constant in these rows" in str(report)
    assert "as many levels as rows" in str(report)


def test_report_has_scores_with_intervals(report, boosting, diabetes):
    X, X_test, y, y_test = diabetes
    text = str(report)
    r2 = boosting.score(X_test, y_test)
    found = re.search(r"this model +(\S+) \((\S+) to (\S+)\)", text)
    score, low, high = map(float, found.groups())
    assert score == pytest.approx(r2, rel=1e-3) and low < score < high
    # The standard error of R2 over bootstrap samples, by a plain computation.
    rng, predicted = np.random.default_rng(0), boosting.predict(X_test)
    drawn = [rng.integers(len(y_test), size=len(y_test)) for _ in range(400)]
    scores = [1 - np.mean((y_test[d] - predicted[d]) ** 2) / np.var(y_test[d]) for d in drawn]
    assert [low, high] == pytest.approx(np.percentile(scores, [2.5, 97.5]), abs=0.06)
    assert "random forest" in text and "5 folds" not in text


def test_report_measures_importances_by_permutation(boosting, diabetes, report):
    _, X_test, _, y_test = diabetes
    table = str(report).split("== Importances ==")[1].split("==")[0]
    found = {m[1]: float(m[2]) for m in re.finditer(r"^(\S+) +(-?[\d.e-]+) ", table, re.M)}
    assert found["<site>"] == found["patient"] == 0
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(20):
        changed = X_test.copy()
        changed["s5"] = rng.permutation(changed["s5"].to_numpy())
        losses.append(boosting.score(X_test, y_test) - boosting.score(changed, y_test))
    assert found["s5"] == pytest.approx(np.mean(losses), abs=0.1) and found["s5"] > 0.05


def test_importances_of_rare_classes_are_not_all_zero(small, without_pictures):
    """No row is predicted as the rare class, so accuracy would not change."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = rng.uniform(size=600) < 0.1 * (X[:, 0] > 0)
    model = ObliqueBoostingClassifier(30, n_bags=1, random_state=0).fit(X[:400], y[:400])
    assert not model.predict(X[400:]).any()
    table = str(describe(model, X[400:], y[400:])).split("== Importances ==")[1].split("==")[0]
    assert "Decrease of neg_log_loss" in table
    found = {m[1]: float(m[2]) for m in re.finditer(r"^(\S+) +(-?[\d.e-]+) ", table, re.M)}
    assert found["x0"] > max(0.005, found["x1"], found["x2"])


@pytest.fixture
def small(monkeypatch):
    """Reports of few columns and few draws."""
    for name, value in {"N_DRAWS": 10, "N_REPEATS": 1, "N_EFFECTS": 1, "N_PAIRED": 2}.items():
        monkeypatch.setattr(module, name, value)


def test_report_of_several_classes_and_polars(wine, blend, small, without_pictures):
    polars = pytest.importorskip("polars")
    _, X_test, _, y_test = wine
    report = describe(blend, polars.from_pandas(X_test.reset_index(drop=True)), y_test)
    assert [section.title for section in report.sections] == SECTIONS
    text = str(report)
    auc = roc_auc_score(y_test, blend.predict_proba(X_test), multi_class="ovr")
    assert f"{auc:.4g} (" in text and "random forest, 5 folds" in text
    assert str(blend.leaderboard_.index[0]) in text
    same = describe(blend, X_test, y_test)
    assert str(same) == text
    assert "skforest-report" in report._repr_html_() and "report" in repr(report).lower()


def test_report_without_rows_or_targets(boosting, diabetes, small, without_pictures):
    assert [s.title for s in describe(boosting).sections] == ["Training", "Importances", "Trees"]
    assert "Scores" not in [s.title for s in describe(boosting, diabetes[1]).sections]


def test_report_of_a_pipeline_with_dates(small, without_pictures):
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(120), unit="D")
    X = pd.DataFrame({"day": days, "size": rng.uniform(size=120), "new": rng.random(120) < 0.5})
    y = np.arange(120) + 100 * X["size"]
    model = make_pipeline(DateFeatures(), ManifoldForestRegressor(10, random_state=0)).fit(X, y)
    rows = X[::4].copy()
    rows.iloc[2:-2, 1] = np.nan
    report = describe(model, rows, y[::4])
    assert [section.title for section in report.sections] == SECTIONS
    text = str(report)
    assert re.search(r"day +date +30 +2024-01-01 / 2024-02-28 / 2024-04-26", text)
    assert re.search(r"new +number +2 +(True, False|False, True)", text)  # not a category
    rows = text.split("== Three rows explained ==")[1]
    found = re.findall(r"^Row (\d+), (\w+) prediction, prediction: ([\d.]+), truth: ", rows, re.M)
    assert [kind for _, kind, _ in found] == ["smallest", "median", "largest"]
    table = re.findall(r"^(\S+) +(\S+) +(-?[\d.e-]+)$", rows, re.M)
    assert {name for name, _, _ in table} == {"day", "size", "new"}  # not of the last step
    cells = {(name, value) for name, value, _ in table}
    assert {("new", "True"), ("new", "False")} & cells and ("size", "missing") in cells
    board = leaderboard(model, X[::4], y[::4], X_train=X, y_train=y)
    assert board.loc["random forest", "r2"] > 0.8


def test_values_of_the_columns_of_a_pipeline_add_up(wine):
    X, X_test, y, _ = wine
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    values = values_of_table(model, X_test[:2], X[:20], model.classes_)
    base = model.predict_proba(X[:20]).mean(axis=0)
    np.testing.assert_allclose(values.sum(axis=1) + base, model.predict_proba(X_test[:2]))


def test_report_refuses_what_it_cannot_describe(boosting, diabetes):
    _, X_test, _, y_test = diabetes
    with pytest.raises(ValueError, match="y_test is given without X_test"):
        describe(boosting, None, y_test)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        describe(boosting, X_test, y_test[1:])
    X = X_test[["age", "s5"]].to_numpy()
    several = ManifoldForestRegressor(2).fit(X, X)
    with pytest.raises(ValueError, match="several outputs"):
        describe(several, X)
    from scipy import sparse

    single = ManifoldForestRegressor(2).fit(X, y_test)
    with pytest.raises(TypeError, match="X is sparse"):
        describe(single, sparse.csr_array(X))


def test_baselines_need_rows_and_targets(boosting, diabetes, wine, blend, monkeypatch):
    X, X_test, y, y_test = diabetes
    monkeypatch.setattr(Predicted, "of", None)  # nothing is predicted before the error
    for function in (describe, leaderboard):
        with pytest.raises(ValueError, match="X_train is given without y_train"):
            function(boosting, X_test, y_test, X_train=X)
        with pytest.raises(ValueError, match="y_train is given without X_train"):
            function(boosting, X_test, y_test, y_train=y)
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            function(boosting, X_test, y_test, X_train=X, y_train=y[1:])
        with pytest.raises(ValueError, match="5 folds, but there are 4 rows; pass X_train"):
            function(boosting, X_test[:4], y_test[:4])
        with pytest.raises(ValueError, match="1 rows of the most frequent class"):
            function(blend, wine[1][:3], ["red", "green", "white"])


def test_five_rows_are_enough_for_baselines(diabetes):
    X, X_test, y, y_test = diabetes
    model = ManifoldForestRegressor(3, random_state=0).fit(X[["age", "s5"]], y)
    board = leaderboard({"a": model}, X_test[["age", "s5"]][:5], y_test[:5])
    assert "random forest, 5 folds" in board.index


def test_the_constant_has_the_shares_of_the_training_rows():
    X, y = np.arange(12.0)[:, None], np.repeat(["u", "v", "w"], [2, 3, 7])
    constant = baselines(True, X[:5], y[:5], X, y)["constant"]
    np.testing.assert_allclose(constant.proba, [[2 / 12, 3 / 12, 7 / 12]] * 5)
    assert list(constant.labels) == ["w"] * 5
    constant = baselines(False, X[:5], X[:5, 0], X, X[:, 0] ** 2)["constant"]
    np.testing.assert_allclose(constant.labels, np.mean(X**2))


def test_report_takes_models_of_the_package_that_are_fitted(wine):
    X, X_test, y, y_test = wine
    with pytest.raises(TypeError, match="LogisticRegression"):
        describe(LogisticRegression(max_iter=2000).fit(X, y), X_test, y_test)
    with pytest.raises(NotFittedError):
        describe(ManifoldForestClassifier(), X_test, y_test)


def test_report_of_a_slim_model(diabetes, small, without_pictures):
    X, X_test, y, y_test = diabetes
    model = slim(ManifoldForestRegressor(5, random_state=0).fit(X[["age", "s5"]], y))
    report = describe(model, X_test[["age", "s5"]], y_test)
    titles = [section.title for section in report.sections]
    assert titles == [title for title in SECTIONS if title != "Trees"]


def test_scores_without_a_class_that_they_need_are_empty(wine, blend, small, without_pictures):
    _, X_test, _, y_test = wine
    rows = y_test == "red"
    text = str(describe(blend, X_test[rows], y_test[rows], X_train=wine[0], y_train=wine[2]))
    line = next(line for line in text.splitlines() if line.startswith("this model"))
    assert line.count("(") == 2 and "nan" not in text  # the area under the curve


def test_five_rows_are_enough_for_five_folds():
    """In classification, of one class; then there are folds without the others."""
    for is_class, enough, few in (
        (False, np.arange(5.0), np.arange(4.0)),
        (True, np.array([0, 0, 0, 0, 0, 1]), np.array([0, 0, 0, 0, 1, 1, 1, 1])),
    ):
        assert check_baseline_rows(is_class, enough, None, None) is None
        with pytest.raises(ValueError, match="but there are 4 rows"):
            check_baseline_rows(is_class, few, None, None)


def test_texts_with_dollars_are_no_formulas(small):
    """matplotlib reads what is between two of them as a formula, and fails for some."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"price": rng.choice(["US$100 ($\\fees$)", "low"], 120)})
    frame["$\\none$"] = rng.normal(size=120)
    y = (frame["price"] == "low").to_numpy() ^ (frame.iloc[:, 1] > 1).to_numpy()
    open_before = plt.get_fignums()
    page = describe(
        ManifoldForestClassifier(3, max_depth=3, random_state=0).fit(frame, y), frame, y
    )
    assert "US$100" in str(page)
    assert plt.get_fignums() == open_before


def test_a_figure_that_cannot_be_drawn_is_closed():
    before = plt.get_fignums()
    figure, ax = plt.subplots()
    ax.set_title("$\\none$")
    with pytest.raises(ValueError, match="none"):
        Section("title").picture(figure, "a formula")
    assert plt.get_fignums() == before


def test_several_outputs_of_labels_are_refused_by_name():
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.zeros((60, 2), dtype=int)
    y[:30] = 1
    model = ManifoldForestClassifier(3).fit(X, y)
    for call in (describe, leaderboard):
        with pytest.raises(ValueError, match="has 2 outputs; this function takes one"):
            call(model, X, y)


def test_leaderboards_of_bands_and_of_images():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), rng.integers(0, 2, 60)
    model = ObliqueBoostingRegressor(3, loss="quantile", quantile=[0.1, 0.9]).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="band predicts several quantiles"):
        leaderboard({"band": model}, X, X[:, 0])
    images = X.reshape(60, 2, 2)
    model = ManifoldForestClassifier(3, feature_shape=(2, 2), random_state=0).fit(images, y)
    boards = [leaderboard({"forest": model}, rows, y)["accuracy"] for rows in (images, X)]
    assert boards[0].to_dict() == boards[1].to_dict()
