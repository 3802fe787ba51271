"""Displays: what they draw agrees with the data and the forest."""

import importlib.util
import sys
import warnings
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from makers import bag_of
from matplotlib.figure import Figure
from matplotlib.testing.compare import compare_images
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_iris, make_moons
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    CO2ForestClassifier,
    CO2ForestRegressor,
    E2EDecisionForestClassifier,
    FeatureImportancesDisplay,
    HingeProcedure,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    NonGreedyTreeClassifier,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    PartitionDisplay,
    RandomHingeForestClassifier,
    TrainingCurveDisplay,
)
from skforest.inspect.partition import _grid, _value_text
from skforest.inspect.picture import COLOURS, output_colour

GOLDEN = Path(__file__).parents[1] / "golden"
IRIS = load_iris(return_X_y=True, as_frame=True)


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def script(name):
    spec = importlib.util.spec_from_file_location(name, GOLDEN / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def labels(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


# -------------------------------------------------------------------------------- importances


def test_bars_are_the_sorted_importances():
    X, y = IRIS
    forest = CO2ForestClassifier(6, random_state=0).fit(X, y)
    display = FeatureImportancesDisplay.from_estimator(forest, n_largest=3)
    order = np.argsort(-forest.feature_importances_)[:3]
    widths = [bar.get_width() for bar in display.bars_]
    assert widths == forest.feature_importances_[order].tolist()
    assert labels(display.ax_) == X.columns[order].tolist()
    places = [bar.get_y() for bar in display.bars_]
    assert display.ax_.yaxis_inverted() and places == sorted(places)
    trees = [tree.feature_importances() for tree in forest.forest_]
    assert display.spread == pytest.approx(np.std(trees, axis=0, ddof=1))
    assert np.mean(trees, axis=0) == pytest.approx(display.importances)
    assert "standard deviation over trees" in display.ax_.get_xlabel()
    assert display.ax_.get_ylabel() == "the 3 largest of 4 features"
    (segments,) = [line.get_segments() for line in display.bars_.errorbar[2]]
    low, high = np.array(segments)[:, :, 0].T
    assert (low >= 0).all()
    assert high == pytest.approx(display.importances[order] + display.spread[order])
    everything = display.plot(n_largest=None)
    assert len(everything.bars_) == 4 and display.ax_.get_ylabel() == "feature"


def test_bags_that_are_summed_are_compared_as_a_whole():
    X, y = load_diabetes(return_X_y=True)
    model = ObliqueBoostingRegressor(5, n_bags=2, random_state=0).fit(X, y)
    display = FeatureImportancesDisplay.from_estimator(model, feature_names=list("abcdefghij"))
    start = model.forest_.bag_start
    bags = [model.forest_[a:b].feature_importances() for a, b in zip(start[:-1], start[1:])]
    assert display.spread == pytest.approx(np.std(bags, axis=0, ddof=1))
    assert "over bags" in display.ax_.get_xlabel() and set(labels(display.ax_)) == set(
        "abcdefghij"
    )
    model = ObliqueBoostingRegressor(5, n_bags=1, random_state=0).fit(X, y)
    assert FeatureImportancesDisplay.from_estimator(model).spread is None


def test_categories_have_one_bar_each():
    X, y = IRIS
    frame = X.assign(kind=np.where(y == 1, "u", np.where(y == 2, "v", "w")))
    forest = ManifoldForestClassifier(5, random_state=0).fit(frame, y)
    display = FeatureImportancesDisplay.from_estimator(forest)
    assert len(display.bars_) == 5 and labels(display.ax_)[0] == "kind"
    assert display.spread.shape == (5,)


def test_heat_maps_and_lines_have_the_shape_of_the_features():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 12))
    y = X[:, 3] > 0
    forest = ManifoldForestClassifier(4, feature_shape=(3, 4), random_state=0).fit(X, y)
    display = FeatureImportancesDisplay.from_estimator(forest)
    image = np.asarray(display.image_.get_array())
    assert image.tolist() == forest.feature_importances_.reshape(3, 4).tolist()
    plain = FeatureImportancesDisplay([0.1, 0.2, 0.3, 0.4], feature_shape=(2, 2)).plot()
    assert plain.image_.get_clim() == (0, 0.4)
    assert [ax.get_ylabel() for ax in display.figure_.axes] == ["row", "importance"]
    assert display.bars_ is None
    strip = FeatureImportancesDisplay.from_estimator(forest, feature_shape=(1, 12))
    assert [display.ax_.get_aspect(), strip.ax_.get_aspect()] == [1, "auto"]
    display = FeatureImportancesDisplay.from_estimator(forest, feature_shape=(2, 2, 3))
    summed = forest.feature_importances_.reshape(2, 2, 3).sum(axis=2)
    assert np.asarray(display.image_.get_array()) == pytest.approx(summed)
    display = FeatureImportancesDisplay.from_estimator(forest, feature_shape=12)
    assert display.line_.get_ydata().tolist() == forest.feature_importances_.tolist()
    (band,) = display.ax_.collections[0].get_paths()
    low, high = (display.importances + sign * display.spread for sign in (-1, 1))
    expected = np.unique(np.concatenate([np.maximum(low, 0), high]).round(9))
    np.testing.assert_array_equal(np.unique(band.vertices[:, 1].round(9)), expected)
    display = FeatureImportancesDisplay.from_estimator(forest, feature_shape=(2, 1, 6))
    assert labels(display.ax_)[0].startswith("x[") and labels(display.ax_)[0].count(",") == 2
    with pytest.raises(ValueError, match=r"feature_shape=\(5, 5\) must .* multiply to the 12"):
        FeatureImportancesDisplay.from_estimator(forest, feature_shape=(5, 5))


def test_many_outputs_share_a_whole_colormap():
    ends = [output_colour(k, 11) for k in (0, 5, 10)]
    assert ends == [plt.get_cmap("viridis")(share) for share in (0.0, 0.5, 1.0)]
    assert [output_colour(k, 10) for k in range(10)] == list(COLOURS)


def test_importances_of_other_estimators():
    X, y = IRIS
    other = RandomForestClassifier(3, random_state=0).fit(X, y)
    display = FeatureImportancesDisplay.from_estimator(other)
    assert display.bars_[0].get_width() == other.feature_importances_.max()
    assert set(labels(display.ax_)) == set(X.columns) and display.spread is None
    blend = BlendedForestClassifier([ManifoldForestClassifier(5)], cv=2).fit(X, y)
    display = FeatureImportancesDisplay.from_estimator(blend)
    assert display.importances.tolist() == blend.feature_importances_.tolist()
    with pytest.raises(TypeError, match="no feature_importances_: this forest has no gain: slim"):
        FeatureImportancesDisplay.from_estimator(skforest.slim(blend))
    with pytest.raises(TypeError, match="a LogisticRegression has no feature_importances_"):
        FeatureImportancesDisplay.from_estimator(LogisticRegression(max_iter=1000).fit(X, y))
    with pytest.raises(TypeError, match="must be an estimator, got str"):
        FeatureImportancesDisplay.from_estimator("forest")
    with pytest.raises(ValueError, match="n_largest=0 must be an int of at least 1, or None"):
        display.plot(n_largest=0)


def test_names_are_shown_as_they_are():
    display = FeatureImportancesDisplay(
        [0.4, 0.6], feature_names=["$a_$", "_b"], spread=[0.1, 0.5]
    )
    display.plot(ax=Figure().subplots())
    display.figure_.canvas.draw()
    assert labels(display.ax_) == ["_b", "$a_$"]
    assert not display.ax_.get_yticklabels()[0].get_parse_math()


# ------------------------------------------------------------------------------------- curves


def test_curves_of_every_bag_and_the_best_rounds():
    X, y = load_diabetes(return_X_y=True)
    model = ObliqueBoostingRegressor(30, n_bags=3, random_state=0).fit(X, y)
    display = TrainingCurveDisplay.from_estimator(model)
    (_, ax), (of_training, lines) = display.axes_, display.lines_
    assert len(of_training) == len(lines) == 3
    for line, losses in zip(of_training, model.loss_curve_):
        assert line.get_ydata().tolist() == losses.tolist()
    for line, scores in zip(lines, model.validation_scores_):
        assert line.get_ydata().tolist() == (-scores).tolist()
        assert line.get_xdata().tolist() == list(range(len(scores)))
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    assert [dot.get_xdata()[0] for dot in dots] == [s.argmax() for s in model.validation_scores_]
    n = min(map(len, model.validation_scores_))
    mean = -np.mean([scores[:n] for scores in model.validation_scores_], axis=0)
    assert ax.lines[-1].get_ydata() == pytest.approx(mean)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("round", "loss of held-out rows")
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["each bag", "smallest loss", "mean"]


def test_kinds_of_curves():
    X, y = IRIS
    hinge = RandomHingeForestClassifier(
        3, n_bags=2, max_iter=80, random_state=0, procedure=HingeProcedure(early_stopping=True)
    ).fit(X, y)
    display = TrainingCurveDisplay.from_estimator(hinge)
    assert list(display.curves) == ["training loss", "loss of held-out rows"]
    assert [ax.get_xlabel() for ax in display.axes_] == ["evaluation"] * 2
    only = TrainingCurveDisplay.from_estimator(hinge, curves=["loss_curve_"])
    assert list(only.curves) == ["training loss"] and len(only.lines_[0]) == 2
    tree = E2EDecisionForestClassifier(1, max_depth=2, random_state=0).fit(X, y)
    display = TrainingCurveDisplay.from_estimator(tree)
    assert display.axes_[0].get_xlabel() == "epoch" and display.axes_[0].get_legend() is None
    assert list(display.curves) == ["training loss", "steepness", "active leaves"]
    assert tree.steepness_curve_[0] == pytest.approx(
        tree.steepness_ - tree.steepness_step_ * np.arange(tree.n_iter_[0], 0, -1)
    )
    # All rows are counted here, and no leaf was merged after training.
    assert tree.active_leaves_curve_[0][-1] == tree.forest_.n_leaves[0]
    assert len(tree.active_leaves_curve_[0]) == tree.n_iter_[0]
    tree = NonGreedyTreeClassifier(max_depth=2, n_epochs=3, random_state=0).fit(X, y)
    assert len(TrainingCurveDisplay.from_estimator(tree).curves["training loss"][0]) == 3
    forest = CO2ForestClassifier(2, max_depth=2, random_state=0).fit(X, y)
    for model, expected in ((tree, [("epoch", 1), ("sweep", 0)]), (forest, [("sweep", 0)])):
        axes = TrainingCurveDisplay.from_estimator(skforest.refine(model, X, y)).axes_
        assert [(ax.get_xlabel(), ax.lines[0].get_xdata()[0]) for ax in axes] == expected


def test_the_score_of_early_stopping_is_no_loss():
    X, y = load_iris(return_X_y=True)
    options = {"n_directions": 0, "early_stopping": "accuracy", "random_state": 0}
    model = ObliqueBoostingClassifier(9, n_bags=2, **options).fit(X, y)
    display = TrainingCurveDisplay.from_estimator(model, curves=["validation_scores_"])
    ((name, curves),) = display.curves.items()
    assert name == display.axes_[0].get_ylabel() == "score of held-out rows"
    assert [one.tolist() for one in curves] == [s.tolist() for s in model.validation_scores_]
    dots = [line for line in display.axes_[0].lines if line.get_marker() == "o"]
    assert [dot.get_xdata()[0] for dot in dots] == [s.argmax() for s in model.validation_scores_]
    assert dots[0].get_label() == "largest score"


# ---------------------------------------------------------------------------- scores of data sets

STAGED = {
    "boosting": (ObliqueBoostingClassifier(5, n_bags=2, n_directions=0, prior=[1, 1, 4]), 5),
    "bags": (RandomHingeForestClassifier(3, n_bags=3, max_iter=80), 3),
    "trees": (ManifoldForestClassifier(4, max_depth=2, prior=[1, 1, 4]), 4),
}


@pytest.mark.parametrize("model, n_stages", STAGED.values(), ids=STAGED)
def test_scores_of_stages_are_those_of_smaller_models(model, n_stages):
    X, y = load_iris(return_X_y=True)
    y, weight = np.array(["a", "b", "c"])[y], np.arange(1.0, 151.0)
    steps = make_pipeline(StandardScaler(), clone(model).set_params(random_state=0)).fit(X, y)
    sets = {"all": (X, y), "weighted": (X, y, weight), "some": (X[::2], y[::2], None)}
    model, found = steps[-1], skforest.staged_scores(steps, sets, ["neg_log_loss", "accuracy"])
    assert list(found) == ["neg_log_loss", "accuracy"] and list(found["accuracy"]) == list(sets)
    curves, Z = found["neg_log_loss"], steps[0].transform(X)
    assert len(curves["all"]) == n_stages
    assert curves["all"][-1] == pytest.approx(-log_loss(y, steps.predict_proba(X)))
    found = -log_loss(y, steps.predict_proba(X), sample_weight=weight)
    assert curves["weighted"][-1] == pytest.approx(found)
    second = model.forest_[:2].response(Z)
    if n_stages == 5:
        second = list(model.staged_predict_proba(Z))[1]
    elif n_stages == 3:
        second = np.mean([bag_of(model.forest_, number).response(Z) for number in (0, 1)], axis=0)
    assert curves["all"][1] == pytest.approx(-log_loss(y, second))
    alone = skforest.staged_scores(steps, {"some": sets["some"]})
    assert alone["score"]["some"][-1] == steps.score(X[::2], y[::2])
    display = TrainingCurveDisplay.from_estimator(steps, sets={"some": sets["some"]})
    assert display.axes_[0].get_xlabel() == {5: "round", 3: "bags", 4: "trees"}[n_stages]


def test_a_line_for_each_set():
    X, y = load_diabetes(return_X_y=True)
    model = ManifoldForestRegressor(4, max_depth=3, random_state=0).fit(X[:300], y[:300])
    sets = {"train": (X[:300], y[:300]), "test": (X[300:], y[300:])}
    names = ["r2", "explained_variance"]
    display = TrainingCurveDisplay.from_estimator(model, sets=sets, scoring=names)
    assert [ax.get_ylabel() for ax in display.axes_] == names
    assert display.axes_[0].get_xlabel() == "trees"
    expected = skforest.staged_scores(model, sets, "r2")["r2"]
    for line, (name, curve) in zip(display.lines_[0], expected.items(), strict=True):
        assert (line.get_label(), line.get_ydata().tolist()) == (name, curve.tolist())
        assert line.get_xdata().tolist() == [1, 2, 3, 4]
    dots = [line for line in display.axes_[0].lines if line.get_marker() == "o"]
    assert [dot.get_xdata()[0] for dot in dots] == [1 + c.argmax() for c in expected.values()]


def test_bad_sets():
    X, y = load_diabetes(return_X_y=True)
    model = ManifoldForestRegressor(1, max_depth=1).fit(X, y)
    for sets, error, message in (
        ([(X, y)], TypeError, "sets must be a dict of names to"),
        ({}, TypeError, "sets must be a dict of names to"),
        ({"a": X}, TypeError, r"sets\['a'\] must be \(X, y\) or"),
        ({"a": (X, y), "b": (X[:, :3], y)}, ValueError, r"sets\['b'\]: X has 3 features"),
        ({"a": [X, y]}, TypeError, r"sets\['a'\] must be \(X, y\) or"),
        ({"a": (X, y[:9])}, ValueError, r"sets\['a'\]: .*inconsistent"),
    ):
        with pytest.raises(error, match=message):
            skforest.staged_scores(model, sets)
    for options in ({"scoring": "r2"}, {"sets": {"a": (X, y)}, "curves": ["loss_curve_"]}):
        with pytest.raises(ValueError, match="pass sets, .* or curves, but not both"):
            TrainingCurveDisplay.from_estimator(model, **options)
    blend = BlendedForestRegressor([model], cv=2).fit(X, y)
    with pytest.raises(TypeError, match="pass one of its members_"):
        skforest.staged_scores(blend, {"a": (X, y)})


def test_estimators_without_curves():
    X, y = IRIS
    forest = CO2ForestClassifier(2, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match="CO2ForestClassifier.* recorded no training curve"):
        TrainingCurveDisplay.from_estimator(forest)
    with pytest.raises(ValueError, match="loss_curve_ was not recorded by CO2ForestClassifier"):
        TrainingCurveDisplay.from_estimator(forest, curves=["loss_curve_"])
    with pytest.raises(ValueError, match=r"curves=\['loss'\] must be among \['loss_curve_'"):
        TrainingCurveDisplay.from_estimator(forest, curves=["loss"])


# ---------------------------------------------------------------------------------- partitions


def pixel(display, x, y):
    """Colour or value of the plane at a point, and its row and column."""
    column = np.abs(display.x - x).argmin()
    row = np.abs(display.y - y).argmin()
    return np.asarray(display.image_.get_array())[row, column], row, column


def test_the_plane_has_the_predictions_of_the_forest():
    X, y = make_moons(100, noise=0.2, random_state=0)
    model = NonGreedyTreeClassifier(max_depth=3, random_state=0).fit(X, np.array(["u", "v"])[y])
    display = PartitionDisplay.from_estimator(
        model, X, np.array(["u", "v"])[y], grid_resolution=50
    )
    rows = np.stack(np.meshgrid(display.x, display.y), axis=-1).reshape(-1, 2)
    assert display.response.reshape(-1, 2) == pytest.approx(model.predict_proba(rows))
    assert display.x[0] < X[:, 0].min() and display.y[-1] > X[:, 1].max()
    assert display.image_.origin == "lower" and display.tree_ax_ is None
    left, right, bottom, top = display.image_.get_extent()
    centres = np.linspace(left, right, 101)[1::2], np.linspace(bottom, top, 101)[1::2]
    np.testing.assert_allclose(centres, [display.x, display.y])  # of the pixels
    texts = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert texts == ["u", "v"]
    for k, points in enumerate(display.ax_.collections):
        assert points.get_offsets().tolist() == X[y == k].tolist()
        certain = np.argwhere(display.response[:, :, k] > 0.99)[0]
        colour = np.asarray(display.image_.get_array())[tuple(certain)]
        assert colour == pytest.approx(1 - 0.55 * (1 - points.get_facecolor()[0, :3]), abs=0.01)


def test_a_tree_is_drawn_beside_its_partition():
    X, y = IRIS
    X = X.iloc[:, [2, 3]]
    forest = CO2ForestClassifier(3, max_depth=2, random_state=0).fit(X, y)
    display = PartitionDisplay.from_estimator(
        forest, X, y, tree=1, class_names=["s", "e", "i"], grid_resolution=40
    )
    rows = np.stack(np.meshgrid(display.x, display.y), axis=-1).reshape(-1, 2)
    assert display.leaves.ravel().tolist() == forest.forest_[1].apply(rows)[:, 0].tolist()
    assert display.response.reshape(-1, 3) == pytest.approx(forest.forest_[1].response(rows))
    assert display.ax_.get_xlabel() == "petal length (cm)" and display.ax_.get_legend() is None
    shown = [text.get_text() for text in display.tree_ax_.get_legend().get_texts()]
    assert shown == ["s", "e", "i"]
    n_outlines = len(display.ax_.collections) - 3  # beside the points of each class
    assert n_outlines == len(np.unique(display.leaves))
    axes = Figure().subplots(1, 2)
    again = display.plot(ax=axes)
    assert again.ax_ is axes[0] and again.tree_ax_ is axes[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a leaf that fills the plane has no outline
        forest.set_params(min_samples_leaf=80).fit(X, y)
        display = PartitionDisplay.from_estimator(forest, X, y % 2, tree=0, grid_resolution=5)
    assert len(np.unique(display.leaves)) == 1 and len(display.ax_.collections) == 3
    drawn = [points.get_offsets() for points in display.ax_.collections]  # of three classes
    assert [len(points) for points in drawn] == [100, 50, 0]


def test_other_features_are_typical_ones():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "b": rng.normal(size=90)})
    frame["kind"] = np.repeat(["u", "v", "v"], 30)
    frame["c"] = np.where(rng.random(90) < 0.3, np.nan, rng.normal(size=90))
    y = frame["a"] + (frame["kind"] == "u") + frame["c"].fillna(2)
    model = CO2ForestRegressor(5, random_state=0).fit(frame, y)
    display = PartitionDisplay.from_estimator(
        model, frame, y, features=["a", "b"], grid_resolution=20
    )
    value, row, column = pixel(display, 0.5, -0.5)
    typical = frame.head(1).assign(a=display.x[column], b=display.y[row], kind="v")
    typical["c"] = frame["c"].median()
    assert value == pytest.approx(model.predict(typical)[0])
    assert [ax.get_ylabel() for ax in display.figure_.axes] == ["b", "prediction"]
    low, high = display.image_.get_clim()
    assert low <= y.min() and high >= y.max()
    with pytest.raises(ValueError, match="'kind' is a category"):
        PartitionDisplay.from_estimator(model, frame, features=["a", "kind"])
    with pytest.raises(ValueError, match="there is no feature 'z'"):
        PartitionDisplay.from_estimator(model, frame, features=["a", "z"])


def test_bad_input_of_partitions():
    X, y = load_iris(return_X_y=True)
    forest = CO2ForestClassifier(2, max_depth=2, random_state=0).fit(X, y)
    for options, message in (
        ({"features": (0, 4)}, "an entry of features=4 must be an int from 0 to 3"),
        ({"features": (1, 1)}, "must be two different features"),
        ({"tree": 2}, "tree=2 must be an int from 0 to 1"),
        ({"grid_resolution": 1}, "grid_resolution=1 must be an int of at least 2"),
        ({"y": y[:3]}, r"y must have shape \(150,\), got \(3,\)"),
        ({"ax": Figure().subplots(1, 2)}, "ax must have 1 axes for this plot, got 2"),
    ):
        with pytest.raises(ValueError, match=message):
            PartitionDisplay.from_estimator(forest, X, **options)
    with pytest.raises(ValueError, match="the forest takes 4 columns"):
        PartitionDisplay.from_estimator(forest, X[:, :2])
    several = CO2ForestRegressor(1, max_depth=1).fit(X, X[:, :2])
    with pytest.raises(ValueError, match="estimator has 2 outputs; one is needed"):
        PartitionDisplay.from_estimator(several, X)
    with pytest.raises(TypeError, match="ax must be matplotlib axes or None, got Figure"):
        PartitionDisplay.from_estimator(forest, X, ax=Figure())
    forest.networks_ = []  # as an E2ENetworkTree has
    for display, options in ((FeatureImportancesDisplay, {}), (PartitionDisplay, {"X": X})):
        with pytest.raises(TypeError, match="are networks, not weighted sums of features"):
            display.from_estimator(forest, **options)
    blend = BlendedForestClassifier([ManifoldForestClassifier(5)], cv=2).fit(X, y)
    with pytest.raises(TypeError, match="pass one of its members_"):
        PartitionDisplay.from_estimator(blend, X, tree=0)
    with pytest.raises(ValueError, match="X has 2 columns, the blend takes 4"):
        PartitionDisplay.from_estimator(blend, X[:, :2])


def mixed_table():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "n": rng.integers(0, 9, 90)})
    frame["kind"] = pd.Categorical(np.repeat(["u", "v", "v"], 30))
    frame["c"] = np.where(rng.random(90) < 0.3, np.nan, rng.normal(size=90))
    return frame, frame["a"] + (frame["kind"] == "u") + frame["c"].fillna(2) + frame["n"] / 9


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("regression", [True, False])
def test_the_plane_has_the_predictions_of_a_blend(regression, library):
    frame, y = mixed_table()
    y = y if regression else np.where(y > 2, "high", "low")
    cls = BlendedForestRegressor if regression else BlendedForestClassifier
    if library == "polars":
        frame = pytest.importorskip("polars").from_pandas(frame)
    blend = cls([ManifoldForestRegressor(5)] if regression else ["manifold"], cv=2).fit(frame, y)
    values = {"kind": "u", "c": None}
    display = PartitionDisplay.from_estimator(
        blend, frame, y, features=("a", "n"), values=values, grid_resolution=9
    )
    table = pd.DataFrame(frame.to_dict(as_series=False)) if library == "polars" else frame
    x, n = np.meshgrid(display.x, display.y)
    rows = table.iloc[[0] * 81].assign(a=x.ravel(), n=n.ravel(), c=np.nan)
    found = blend.predict(rows) if regression else blend.predict_proba(rows)
    assert display.response.reshape(found.shape) == pytest.approx(found)
    assert display.values == {"kind": "u", "c": "missing"}
    assert display.text_.get_text() == "where kind = u, c = missing"


@pytest.mark.parametrize("kind", ["u", None])  # no row lacks it
def test_the_plane_of_a_blend_without_a_forest(kind):
    frame, y = mixed_table()
    blend = BlendedForestRegressor([("linear", Ridge())], cv=2).fit(frame, y)
    values = {"kind": kind, "c": 1.0}
    display = PartitionDisplay.from_estimator(blend, frame, grid_resolution=3, values=values)
    x, n = np.meshgrid(display.x, display.y)
    rows = frame.iloc[[0] * 9].assign(a=x.ravel(), n=n.ravel(), c=1.0, kind=kind)
    assert display.response.ravel() == pytest.approx(blend.predict(rows))


@pytest.mark.parametrize("kind", [1.0, None])
def test_the_plane_of_a_blend_of_an_array(kind):
    frame, y = mixed_table()
    X = frame.assign(kind=frame["kind"].cat.codes).to_numpy()
    forest = ManifoldForestRegressor(5, categorical_features=[2])
    blend = BlendedForestRegressor([forest], cv=2).fit(X, y)
    display = PartitionDisplay.from_estimator(
        blend, X, grid_resolution=5, values={2: kind, 3: 0.5}
    )
    x, n = np.meshgrid(display.x, display.y)
    rows = np.stack([x.ravel(), n.ravel(), np.full(25, kind, float), np.full(25, 0.5)], 1)
    assert display.response.ravel() == pytest.approx(blend.predict(rows))
    assert display.values == {"x[2]": "1" if kind else "missing", "x[3]": "0.5"}


def test_values_of_other_features():
    frame, y = mixed_table()
    model = CO2ForestRegressor(3, max_depth=3, random_state=0).fit(frame, y)
    options = {"features": ("a", "n"), "grid_resolution": 4}
    plain = PartitionDisplay.from_estimator(model, frame, **options)
    assert plain.values == {"kind": "v", "c": f"{frame['c'].median():.4g}".replace("-", "\u2212")}
    some = frame[frame["kind"] == "v"]  # a level of the forest is in none of these rows
    assert PartitionDisplay.from_estimator(model, some, **options).values["kind"] == "v"
    display = PartitionDisplay.from_estimator(model, frame, values={"kind": "u", 3: 2}, **options)
    assert display.values == {"kind": "u", "c": "2"}
    value, row, column = pixel(display, 0.5, 3)
    typical = frame.head(1).assign(a=display.x[column], n=display.y[row], kind="u", c=2.0)
    assert value == pytest.approx(model.predict(typical)[0])
    for column, ends in (([1, np.nan, 3, np.inf, 2], [0.9, 3.1]), ([4, np.nan, 4], [3.95, 4.05])):
        np.testing.assert_allclose(_grid(np.array(column), "a", 3)[::2], ends)
    codes = [np.nan, 0, 1, 2, -1]  # beyond the levels: one that is new
    texts = ["missing", "u", "v", "(other)", "(other)"]
    assert [_value_text(code, ["u", "v"]) for code in codes] == texts
    for values, message in (
        ({"a": 1}, "'a' is one of the two features of the plot"),
        ({"z": 1}, "there is no feature 'z'"),
        ({4: 1}, "an entry of values=4 must be an int from 0 to 3"),
        ({"kind": "w"}, r"'w' is none of the levels of 'kind': \['u', 'v'\]"),
        ({"c": "w"}, "'c' must be a finite number, got 'w'"),
    ):
        with pytest.raises(ValueError, match=message):
            PartitionDisplay.from_estimator(model, frame, values=values, **options)
    two = PartitionDisplay.from_estimator(
        NonGreedyTreeClassifier(max_depth=2).fit(frame[["a", "n"]], y > 2), frame[["a", "n"]]
    )
    assert two.text_ is None
    for n, rest in ((8, ""), (10, ", 2 more")):
        values = {f"v{j}": str(j) for j in range(n)}
        two.values, two.tree, two.leaves = values, None, None
        text = two.plot().text_.get_text().replace("\n", " ")
        assert text.endswith(f"v7 = 7{rest}") and text.startswith("where v0 = 0, v1 = 1")


def test_the_picture_is_the_one_that_was_looked_at(tmp_path):
    """After a change that is meant: python tests/golden/make_picture.py; look at the result."""
    maker = script("make_picture")
    maker.draw(tmp_path / "partition.png")
    assert compare_images(str(maker.PATH), str(tmp_path / "partition.png"), tol=3) is None


@pytest.mark.parametrize("name", ["FeatureImportancesDisplay", "PartitionDisplay"])
def test_without_matplotlib(name, monkeypatch):
    X, y = load_iris(return_X_y=True)
    forest = ManifoldForestClassifier(2, random_state=0).fit(X, y)
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    own = {} if name == "FeatureImportancesDisplay" else {"X": X}
    with pytest.raises(ImportError, match=f"{name} needs matplotlib: pip install"):
        getattr(skforest, name).from_estimator(forest, **own)


def test_colours_of_many_outputs_go_to_both_ends_of_a_colormap():
    viridis = matplotlib.colormaps["viridis"]
    colours = [output_colour(k, 11) for k in range(11)]
    assert colours[::5] == [viridis(0.0), viridis(0.5), viridis(1.0)]
    assert len({*colours}) == 11 and [output_colour(k, 10) for k in range(10)] == [*COLOURS]


def test_the_largest_score_is_marked_where_some_are_missing():
    curve = np.array([np.nan, 0.5, 0.9, np.nan, 0.7])
    (axes,) = TrainingCurveDisplay({"roc_auc": {"test": curve}}).plot().axes_
    assert axes.lines[1].get_xydata().tolist() == [[3, 0.9]]


@pytest.mark.parametrize("n_classes", [20, 21])
def test_up_to_twenty_classes_have_a_legend(n_classes):
    y = np.repeat(np.arange(n_classes), 2)
    model = ManifoldForestClassifier(1, max_depth=1, random_state=0).fit(y[:, None], y)
    kinds = [artist.get_gid() for artist in skforest.plot_tree(model)]
    assert ("classes" in kinds) == (n_classes == 20)


def test_missing_targets_and_labels_are_not_drawn():
    X, y = make_moons(60, noise=0.2, random_state=0)
    target = X[:, 0] + y
    model = ManifoldForestRegressor(5, random_state=0).fit(X, target)
    whole, part = (
        PartitionDisplay.from_estimator(model, X, own, grid_resolution=9)
        for own in (target, np.where(X[:, 0] < 0, np.nan, target))
    )
    every = np.append(part.response, target[X[:, 0] >= 0])
    assert part.image_.get_clim() == (every.min(), every.max())
    assert whole.image_.get_clim() == (min(every.min(), target.min()), every.max())
    labels = np.array(["u", "v"])[y]
    model = ManifoldForestClassifier(5, random_state=0).fit(X, labels)
    some = np.where(X[:, 0] < 0, None, labels)
    display = PartitionDisplay.from_estimator(model, X, some, grid_resolution=9)
    drawn = sum(len(points.get_offsets()) for points in display.ax_.collections)
    assert drawn == np.sum(X[:, 0] >= 0)
    with pytest.raises(ValueError, match=r"y has the labels \[0, 1\], but the classes are"):
        PartitionDisplay.from_estimator(model, X, y, grid_resolution=9)


def test_a_plane_refuses_infinite_values():
    X, y = make_moons(60, noise=0.2, random_state=0)
    X = pd.DataFrame(np.column_stack([X, y]), columns=["a", "b", "c"])
    model = ManifoldForestClassifier(3).fit(X, y)
    with pytest.raises(ValueError, match="'c' must be a finite number, got inf"):
        PartitionDisplay.from_estimator(model, X, y, values={"c": np.inf})
    X.loc[3, "c"] = np.inf
    with pytest.raises(ValueError, match="'c' of X has infinite values"):
        PartitionDisplay.from_estimator(model, X, y)
