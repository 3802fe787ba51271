"""Estimators as C99 and as graphs of ONNX, compared with their own predictions.

What is written is compiled, or run by onnxruntime; tests are skipped where these are missing.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import small
from exported import check_onnx, in_c, in_onnx, predicted, with_forest
from forests import projector, random_forest, whole_table
from makers import OwnPoisson, made
from makers import mixed_table as table
from makers import mixed_target as target
from sklearn.base import is_classifier
from sklearn.datasets import load_digits, make_friedman1
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MaxAbsScaler,
    MinMaxScaler,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)

import skforest
from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    CO2ForestClassifier,
    CO2ForestRegressor,
    CO2Procedure,
    E2EDecisionForestClassifier,
    HingeProcedure,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ManifoldProcedure,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
    to_c,
    to_onnx,
)
from skforest.export.columns import operations_of
from skforest.export.model import exported

SHAPES = (
    ((3, 4), None, None),
    ((5, 7), (True, True), None),
    ((2,), (True,), None),
    ((4, 5, 3), (False, True, False), (True, False, False)),
    ((1,), None, None),
    # Subsets have a bit for each index: a byte that is full, and those beside it.
    ((8, 2), None, (True, False)),
    ((2, 9), (True, False), (False, True)),
    ((16,), None, (True,)),
)


def codes(model, X):
    """A table as the C function takes it."""
    forest = exported(model).members[0].forest
    return forest.feature_map.coded(X, forest.feature_names)


def check(model, X, folder, tolerance=1e-6):
    """Compare both formats with the predictions of a fitted model."""
    expected = predicted(model, X)
    scale = max(1, np.abs(expected).max())
    found = in_c(to_c(model), codes(model, X), expected.shape[1], folder)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13 * scale)
    check_onnx(model, X, tolerance)


def holed(X, seed=1):
    X = X.copy()
    X[np.random.default_rng(seed).random(X.shape) < 0.15] = np.nan
    return X


def numbers(model, X):
    """String labels, or real targets, of a table of numbers."""
    score = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1] * X[:, 2])
    return np.array(["a", "b", "c"])[np.digitize(score, [0, 1])] if is_classifier(model) else score


@pytest.fixture(scope="module")
def friedman():
    return make_friedman1(300, noise=1.0, random_state=0)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


# ----------------------------------------------------------------------------- kinds of estimators


@pytest.mark.parametrize("contrast", ["sum", "edge"])
def test_features_of_a_graph(contrast, tmp_path):
    """A wheel: nodes with two, three and many neighbours."""
    n, rng = 11, np.random.default_rng(0)
    graph = np.eye(n, k=1) + np.eye(n, k=1 - n)
    graph[0] = 1 - np.eye(n)[0]
    X = rng.normal(size=(200, n))
    procedure = ManifoldProcedure(contrast=contrast, max_patch=3)
    options = {"feature_graph": np.maximum(graph, graph.T), "procedure": procedure}
    for cls in (ManifoldForestClassifier, ManifoldForestRegressor):
        model = cls(4, random_state=0, **options)
        model.fit(X, numbers(model, X))
        assert np.diff(model.forest_.sparse_start).max() > 4
        check(model, X, tmp_path)


@pytest.mark.every_class
def test_a_table_of_numbers_holes_and_categories(estimator, tmp_path):
    frame, new = table().assign(batch=1.0), table(seed=1)
    estimator.fit(frame, target(estimator, frame))
    new.loc[3:20, "city"] = "Lima"  # unknown in training
    new["open"] = new["open"].astype(float)
    new.loc[::9, ["size", "shop"]] = None
    new.loc[0] = None
    new["batch"] = 7.0
    check(estimator, new, tmp_path)


def test_means_stay_in_the_range_of_the_targets(friedman, tmp_path):
    """The operator of ONNX adds in float32."""
    X, y = friedman
    Y = np.column_stack([np.maximum(y - 14, 0) / 10 + 0.1, -np.maximum(y - 14, 0)])
    model = ManifoldForestRegressor(11, random_state=0).fit(X, Y)
    new = np.random.default_rng(0).random((2000, X.shape[1])).astype(np.float32)
    for found in (in_c(to_c(model), new, 2, tmp_path), in_onnx(model, new)["variable"]):
        assert (found >= Y.min(axis=0)).all() and (found <= Y.max(axis=0)).all()


def test_constant_pixels(digits, tmp_path):
    X, y = digits
    forest = ManifoldForestClassifier(5, feature_shape=(8, 8), random_state=0).fit(X, y)
    check(forest, np.where(np.ptp(X, axis=0) > 0, X, 9), tmp_path)


@pytest.mark.slow
@pytest.mark.every_class
def test_a_matrix_with_and_without_holes(estimator, tmp_path):
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(150, 6)), rng.normal(size=(200, 6))
    for change in (np.copy, holed):
        model = estimator.fit(change(X), numbers(estimator, change(X)))
        check(model, holed(new, 2), tmp_path)


def test_values_far_outside_the_training_range(friedman, tmp_path):
    X, y = friedman
    far = holed(X, 2) * np.random.default_rng(0).choice([-1e6, -3, 1, 3, 1e6], X.shape)
    for model in (
        ObliqueBoostingRegressor(20, linear_leaves=True, n_bags=1, random_state=0),
        ObliqueBoostingRegressor(
            20, linear_leaves=True, feature_shape=(5, 2), n_bags=2, random_state=0
        ),
        RandomHingeForestRegressor(5, n_bags=2, max_iter=100, random_state=0),
    ):
        check(model.fit(X, y), far, tmp_path)


def test_numbers_near_the_largest_of_float32(friedman, tmp_path):
    X, y = friedman
    model = ManifoldForestRegressor(5, random_state=0).fit(3e38 * X, y)
    check(model, 3e38 * X, tmp_path)


def test_outliers_on_one_side(friedman, tmp_path):
    """Values beyond the range on the other side, and in other columns, are clipped."""
    X, y = friedman
    X = X.copy()
    X[:3, 0] = 1e4, 1e5, 1e6
    model = RandomHingeForestRegressor(5, n_bags=2, max_iter=100, random_state=0).fit(X, y)
    assert len(model.forest_.knots)
    new = np.random.default_rng(0).uniform(-3, 4, X.shape)
    check(model, new, tmp_path)
    new[:, 0] = 10.0 ** (2 * new[:, 0])  # up to beyond the last of the outliers
    check(model, new, tmp_path)


@pytest.mark.parametrize("scaling", ["standard", None])
def test_scaling_and_votes(scaling, friedman, tmp_path):
    X, y = friedman
    params = {"objective": "co2", "holdout": 0.0, "bootstrap": False, "max_depth": 4}
    model = CO2ForestClassifier(
        2, random_state=0, procedure=CO2Procedure(scaling=scaling, voting="hard"), **params
    )
    check(model.fit(holed(X), y > 14), holed(X, 2), tmp_path)


def test_every_feature_of_categories_and_missing_values(monkeypatch, tmp_path):
    monkeypatch.setattr(skforest.estimators.base, "useful_features", lambda data, *_: data)
    frame = table()
    frame["zip"] = pd.Categorical(np.arange(len(frame)) % 17)
    frame["half"] = pd.Categorical(np.arange(len(frame)) % 5 / 3)
    new = frame[::-1].reset_index(drop=True).astype({"zip": float, "half": float, "open": float})
    new.loc[::5, ["zip", "half"]] = np.nan
    new.loc[1::5, ["zip", "half"]] = 3.5
    new.loc[2::5, "zip"] = 1e300
    for cls in (ManifoldForestClassifier, CO2ForestClassifier):
        check(small(cls).fit(frame, target(small(cls), frame)), new, tmp_path)


def test_unknown_levels_empty_strings_and_text_that_is_no_category(tmp_path):
    rng = np.random.default_rng(0)
    columns = {
        "a": rng.choice(["", "x", "y"], 90),
        "b": rng.choice(["p", "q"], 90),
    }
    frame = pd.DataFrame(columns | {"id": [f"id {k}" for k in range(90)]}).astype(object)
    y = (frame["a"] == "").to_numpy() ^ (frame["b"] == "p").to_numpy()
    new = frame.assign(id="other")
    new.loc[::3, "b"], new.loc[1::3, "b"], new.loc[::2, "a"] = "new", None, "new"
    for cls in (ManifoldForestClassifier, CO2ForestClassifier):
        with pytest.warns(UserWarning, match="'id'"):
            model = small(cls).fit(frame, y)
        check(model, frame, tmp_path)
        check(model, new, tmp_path)


def test_categories_alone(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.choice(list("xyz"), 90), "b": rng.choice(["p", "q"], 90)})
    y = np.where((frame["a"] == "x") ^ (frame["b"] == "p"), -1, 5)
    for cls in (ManifoldForestClassifier, CO2ForestClassifier):
        check(small(cls).fit(frame, y), frame, tmp_path)


def test_images(digits, tmp_path):
    X, y = digits
    # Sums of sevenths are equal for many patches, but for their rounding.
    for scale, options in ((1, {}), (7, {}), (7, {"contrast": "mix"})):
        own = {"feature_shape": (8, 8), "random_state": 0}
        model = made(ManifoldForestClassifier, 8, **own, **options)
        check(model.fit(X[:500] / scale, y[:500]), X[500:700] / scale, tmp_path)


@pytest.mark.thin(2)
@pytest.mark.parametrize("gate", ["hard", "margin", "sigmoid"])
@pytest.mark.parametrize("shape, wrap, unordered", SHAPES)
def test_directions_of_all_kinds(shape, wrap, unordered, gate, tmp_path):
    rng = np.random.default_rng(0)
    forest = random_forest(rng, shape, wrap, unordered, gate=gate, steepness=-0.3)
    forest = forest.replaced(forest.arrays | {"bag_start": [0, 1, 3]})
    model = with_forest(forest)
    # Dense projections are rounded by the runtime, and so are the margins.
    tolerance = 1e-6 if gate == "hard" else 1e-5
    check(model, 20 * rng.normal(size=(60, forest.n_features)), tmp_path, tolerance)
    check_onnx(model, whole_table(rng, 40, forest.n_features, np.uint8))


@pytest.mark.parametrize(
    "shape, wrap, unordered", [SHAPES[k] for k in (3, 6, 7)] + [((7,), None, None)]
)
def test_sums_of_boxes_are_rounded_as_in_the_estimator(shape, wrap, unordered, tmp_path):
    """Every threshold is the projection of some row, to the bit: the row goes left."""
    rng = np.random.default_rng(0)
    options = {"kinds": ("box",), "n_each": 16, "n_splits": 20, "n_trees": 4}
    forest = random_forest(rng, shape, wrap, unordered, **options)
    X = rng.normal(size=(40, forest.n_features)).astype(np.float32) / 7
    meta = {"feature_shape": shape, "wrap": wrap, "unordered": unordered}
    boxes = {name: array for name, array in forest.arrays.items() if name.startswith("box")}
    values = projector(boxes, forest.direction, n_features=forest.n_features, **meta).response(X)
    rows = rng.integers(40, size=len(forest.threshold))
    threshold = values[rows, np.arange(len(rows))] * len(rows)
    check(with_forest(forest.replaced(forest.arrays | {"threshold": threshold})), X, tmp_path)


@pytest.mark.parametrize("gate", ["hard", "margin", "sigmoid"])
def test_trees_of_one_leaf(gate, tmp_path):
    forest = random_forest(np.random.default_rng(0), n_trees=4, n_splits=0, gate=gate)
    check(with_forest(forest), np.zeros((3, 12)), tmp_path)


def test_weights_of_half_precision_and_many_terms(digits, tmp_path):
    X, y = digits
    rng = np.random.default_rng(0)
    forest = random_forest(rng, (100,), n_trees=5, kinds=("sparse", "dense"))
    start = np.array([0, 0, 30, 100])
    weight = rng.normal(size=100).astype(np.float32)
    feature = rng.integers(100, size=100).astype(np.int32)
    sparse = {"sparse_start": start, "sparse_feature": feature, "sparse_weight": weight}
    check(
        with_forest(forest.replaced(forest.arrays | sparse)), rng.normal(size=(50, 100)), tmp_path
    )
    model = CO2ForestClassifier(3, weight_dtype="float16", random_state=0).fit(X[:300], y[:300])
    check(model, X[500:600], tmp_path)


@pytest.mark.parametrize(
    "loss, options",
    [
        ("quantile", {"quantile": [0.9, 0.1, 0.5]}),
        ("poisson", {}),
        ("squared_error", {"linear_leaves": True}),
        ("squared_error", {"linear_leaves": False, "linear_start": 100.0}),
        ("poisson", {"linear_start": 100.0}),
    ],
)
def test_boosting_with_links_quantiles_and_linear_functions(loss, options, friedman, tmp_path):
    X, y = friedman
    model = ObliqueBoostingRegressor(20, loss=loss, n_bags=2, random_state=0, **options)
    check(model.fit(X, np.abs(y)), X, tmp_path)


def test_linear_leaves_of_several_outputs(friedman, tmp_path):
    X, y = friedman
    model = ObliqueBoostingRegressor(20, linear_leaves=True, n_bags=1, random_state=0)
    check(model.fit(X, np.c_[y, 1e6 * X[:, 0]]), X, tmp_path)


@pytest.mark.parametrize("structure", ["tree", "fern"])
def test_hinge_forests(structure, digits, tmp_path):
    X, y = digits
    model = RandomHingeForestClassifier(
        5,
        structure=structure,
        n_bags=2,
        max_iter=30,
        random_state=0,
        procedure=HingeProcedure(head="linear"),
    )
    check(model.fit(X[:300], y[:300]), X[300:350], tmp_path)


@pytest.mark.parametrize("routing", ["hard", "soft"])
def test_end_to_end_trees(routing, digits, tmp_path):
    X, y = digits
    model = small(E2EDecisionForestClassifier).set_params(n_estimators=3)
    check(model.fit(X[:300], y[:300]).set_params(routing=routing), X[300:350], tmp_path)


def test_several_outputs(friedman, tmp_path):
    X, y = friedman
    labels = np.c_[np.digitize(y, [10, 15]), X[:, 0] > 0.5]
    for cls in (ManifoldForestClassifier, ObliqueBoostingClassifier):
        check(small(cls).fit(X, labels), X, tmp_path)
    check(small(CO2ForestRegressor).fit(X, np.c_[y, 1e6 + X[:, 0]]), X, tmp_path)


def test_outputs_whose_classes_all_have_the_probability_0(friedman, tmp_path):
    """Their classes are equally probable; negative shares count as 0."""
    X, y = friedman
    labels = np.c_[np.digitize(y, [10, 15]), X[:, 0] > 0.5]
    model = ManifoldForestClassifier(1, max_depth=3, random_state=0).fit(X, labels)
    value = model.forest_.value.reshape(-1, 5).copy()
    value[::2, :3], value[1::3, 3], value[1::4, 1] = 0, -0.5, -0.25
    model.forest_ = model.forest_.replaced(model.forest_.arrays | {"value": value.ravel()})
    assert (model.predict_proba(X)[0] == 1 / 3).all(axis=1).any()
    check(model, X, tmp_path)


def test_blends(friedman, tmp_path):
    X, y = friedman
    members = [
        ManifoldForestClassifier(5),
        RandomHingeForestClassifier(5, max_iter=30),
        ObliqueBoostingClassifier(10),
    ]
    blend = BlendedForestClassifier(members, random_state=0).fit(X, y > 14)
    blend.temperature_ = 0.7
    check(blend, X, tmp_path)
    frame = table()
    members = [ManifoldForestRegressor(5), CO2ForestRegressor(5)]
    blend = BlendedForestRegressor(members, random_state=0).fit(frame, frame["size"])
    # One reads float32, the other one scales in float64: the graph takes float64 for both.
    assert len(blend.members_) == 2
    in_both = in_onnx(blend, frame)["variable"][:, 0]
    np.testing.assert_allclose(in_both, blend.predict(frame), rtol=0, atol=1e-6)


@pytest.mark.parametrize("temperature", [0.2, 3.0, 7.0])
def test_temperatures_of_probabilities_of_0(temperature, friedman, tmp_path):
    """They count as 1e-12, which a high temperature makes visible."""
    X, y = friedman
    blend = BlendedForestClassifier([ManifoldForestClassifier(3)], cv=2, random_state=0)
    blend.fit(X, np.digitize(y, [10, 15]))
    blend.temperature_ = 1.0
    assert (blend.predict_proba(X) == 0).any()
    blend.temperature_ = temperature
    check(blend, X, tmp_path)


def test_a_member_that_did_not_see_a_class(friedman, tmp_path):
    X, y = friedman
    labels = np.digitize(y, [10, 15])
    members = [ManifoldForestClassifier(5), CO2ForestClassifier(5)]
    blend = BlendedForestClassifier(members, random_state=0).fit(X, labels)
    blend.members_["CO2Forest"].fit(X[labels != 1], labels[labels != 1])
    assert blend.weights_["CO2Forest"] > 0
    check(blend, X, tmp_path)


def test_one_class_one_row_constant_targets(friedman, tmp_path):
    X, y = friedman
    for cls in (ManifoldForestClassifier, CO2ForestClassifier, ObliqueBoostingClassifier):
        check(small(cls).fit(X, np.full(len(X), "a */ ??/ b")), X[:5], tmp_path)
        check(small(cls).fit(X[:1], [3]), X[:5], tmp_path)
    check(small(CO2ForestRegressor).fit(X, np.full(len(X), 1e6)), X[:5], tmp_path)


@pytest.mark.parametrize(
    "labels", [[False, True], ["\u00e9", "b"], [2**40, 7], np.array([3, 1], dtype=np.uint8)]
)
def test_labels_keep_their_types(labels, friedman):
    X, y = friedman
    model = ManifoldForestClassifier(3).fit(X, np.asarray(labels)[(y > 14).astype(int)])
    label = in_onnx(model, X)["label"]
    assert label.tolist() == model.predict(X).tolist()
    assert (label.dtype.kind == "i") == isinstance(labels[0], int | np.integer) - isinstance(
        labels[0], bool
    )


def test_infinite_values_count_as_the_largest_numbers(friedman, tmp_path):
    X, y = friedman
    wide = X.copy()
    wide[::3, 0], wide[1::3, 1] = np.inf, -np.inf
    wide[2::3, 2] = np.inf
    X = X.copy()
    X[:, 2] = 1.0  # no other value has an effect
    limit = float(np.finfo(np.float32).max)
    for cls in (ManifoldForestRegressor, CO2ForestRegressor, RandomHingeForestRegressor):
        model = small(cls).fit(X, y)
        expected = model.predict(np.clip(wide, -limit, limit))[:, None]
        np.testing.assert_allclose(in_c(to_c(model), wide, 1, tmp_path), expected)
        np.testing.assert_allclose(in_onnx(model, wide)["variable"], expected, atol=1e-5)


# --------------------------------------------------------------------------------------- pipelines

TRANSFORMERS = {
    "imputer": lambda: (SimpleImputer(strategy="median"), StandardScaler()),
    "constant": lambda: (SimpleImputer(strategy="constant", fill_value=-5),),
    "ranges": lambda: (StandardScaler(with_mean=False), MinMaxScaler((-1, 2), clip=True)),
    "nested": lambda: (make_pipeline(RobustScaler(with_scaling=False)), MaxAbsScaler()),
    "one": lambda: (StandardScaler(with_std=False),),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", TRANSFORMERS)
@pytest.mark.parametrize("cls", [ManifoldForestRegressor, CO2ForestRegressor])
def test_scalers_of_pipelines_are_exported(name, cls, friedman, tmp_path):
    X, y = friedman
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X) * 10.0 ** np.arange(10)
    frame = pd.DataFrame(X, columns=list("abcdefghij"))
    for number, rows in enumerate((X, frame)):
        steps = make_pipeline(*TRANSFORMERS[name](), small(cls)).fit(rows[:100], y[:100])
        expected = steps.predict(rows)
        found = in_c(to_c(steps), X, 1, tmp_path)[:, 0]
        np.testing.assert_array_equal(found, expected)
        model = pytest.importorskip("onnx") and to_onnx(steps)
        assert [one.name for one in model.graph.input] == (list(frame) if number else ["X"])
        found = in_onnx(model, rows)["variable"][:, 0]
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_blends_in_pipelines_are_exported(friedman, tmp_path):
    X, y = friedman
    members = [ManifoldForestRegressor(3), ("co2", CO2ForestRegressor(3))]
    steps = make_pipeline(StandardScaler(), BlendedForestRegressor(members, cv=2)).fit(X, y)
    found = in_c(to_c(steps), X, 1, tmp_path)[:, 0]
    np.testing.assert_allclose(found, steps.predict(X), rtol=1e-12)
    np.testing.assert_allclose(in_onnx(steps, X)["variable"][:, 0], steps.predict(X), atol=1e-5)


OPERATIONS = {
    "subtract": np.subtract, "divide": np.divide, "multiply": np.multiply, "add": np.add,
    "fill": lambda x, values: np.where(np.isnan(x), values, x),
    "at least": np.maximum, "at most": np.minimum,
}  # fmt: skip
BOTH = False, True


@pytest.mark.parametrize(
    "scaler",
    [
        *(StandardScaler(with_mean=a, with_std=b) for a in BOTH for b in BOTH),
        *(RobustScaler(with_centering=a, with_scaling=b) for a in BOTH for b in BOTH),
        *(MinMaxScaler((-2, 3), clip=clip) for clip in BOTH),
        MaxAbsScaler(),
        *([MaxAbsScaler(clip=True)] if "clip" in MaxAbsScaler().get_params() else []),
        SimpleImputer(strategy="median"),
        SimpleImputer(strategy="constant", fill_value=-5),
    ],
    ids=str,
)
def test_operations_are_those_of_the_transformer(scaler, friedman):
    X = friedman[0] * 3 - 1
    X[::7, ::3] = np.nan
    scaler.fit(X[:20])
    found = X
    for kind, values in operations_of(scaler):
        found = OPERATIONS[kind](found, values)
    np.testing.assert_allclose(found, scaler.transform(X), rtol=1e-12)


@pytest.mark.parametrize(
    "step",
    [
        SimpleImputer(add_indicator=True),
        SimpleImputer(missing_values=0.0),
        QuantileTransformer(n_quantiles=9),
        make_pipeline(PCA(3)),
        FunctionTransformer(np.arctan),
        type("Own", (StandardScaler,), {})(),  # it may transform in another way
    ],
)
def test_other_transformers_are_named(step, friedman):
    X, y = friedman
    steps = make_pipeline(StandardScaler(), step, ManifoldForestRegressor(2)).fit(X, y)
    name = type(step[0] if isinstance(step, Pipeline) else step).__name__
    with pytest.raises(TypeError, match=f"a {name}, is not part of .* pass estimator"):
        to_c(steps)


def test_an_imputer_that_leaves_columns_out_is_refused(friedman):
    X, y = friedman[0].copy(), friedman[1]
    X[:, 3] = np.nan
    with pytest.warns(UserWarning, match="Skipping features"):
        steps = make_pipeline(SimpleImputer(), ManifoldForestRegressor(2)).fit(X, y)
        with pytest.raises(TypeError, match="a SimpleImputer, is not part of"):
            to_c(steps)


# ---------------------------------------------------------------------------- what is not exported


def write(name, model):
    if name == "to_onnx":
        pytest.importorskip("onnx")
    return getattr(skforest, name)(model)


@pytest.mark.parametrize("name", ["to_c", "to_onnx"])
def test_what_cannot_be_exported_is_refused(name, friedman):
    X, y = friedman
    with pytest.raises(NotFittedError):
        write(name, ManifoldForestClassifier())
    with pytest.raises(NotFittedError):
        write(name, BlendedForestClassifier())
    with pytest.raises(TypeError, match="a LogisticRegression, which cannot"):
        write(name, LogisticRegression().fit(X, y > 14))
    with pytest.raises(TypeError, match="a int; a fitted estimator"):
        write(name, 3)
    members = [("own", ManifoldForestClassifier(5)), ("other", LogisticRegression())]
    blend = BlendedForestClassifier(members, random_state=0).fit(X, X[:, 3] > 0.5)
    assert "other" in blend.members_
    with pytest.raises(TypeError, match="'other' of the blend is a LogisticRegression"):
        write(name, blend)
    own = ObliqueBoostingRegressor(2, loss=OwnPoisson(), n_bags=1).fit(X, y)
    with pytest.raises(TypeError, match="not those of its forest alone"):
        write(name, own)


@pytest.mark.parametrize("name", ["to_c", "to_onnx"])
def test_members_with_other_categories_are_refused(name):
    frame = table()
    members = [ManifoldForestRegressor(5), CO2ForestRegressor(5)]
    blend = BlendedForestRegressor(members, random_state=0).fit(frame, frame["size"])
    other = frame.assign(city="Bern")
    next(iter(blend.members_.values())).fit(other, frame["size"])
    with pytest.raises(TypeError, match="different levels"):
        write(name, blend)


def test_trees_of_networks_are_refused():
    pytest.importorskip("torch")
    from skforest.torch import E2ENetworkTree

    tree = E2ENetworkTree()
    tree.forest_, tree.classes_ = random_forest(np.random.default_rng(0)), np.arange(2)
    with pytest.raises(TypeError, match="not those of its forest alone"):
        to_c(tree)


def test_a_written_file_is_whole(friedman, tmp_path):
    model = small(CO2ForestRegressor).fit(*friedman)
    path = tmp_path / "model.c"
    to_c(model, path)
    assert Path(path).read_bytes().endswith(b"}\n")
