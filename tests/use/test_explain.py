"""Shapley values: the same as enumeration, exact or within their standard errors."""

import sys
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from forests import random_forest, whole_table
from makers import class_rows as classes
from makers import mixed_rows
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import skforest
from skforest import shapley_values
from skforest.inspect import explain

N_FEATURES = 6


def targets():
    return make_friedman1(200, n_features=N_FEATURES, noise=0.5, random_state=0)


def proba(model):
    return model.predict_proba


def second(model):
    return lambda X: model.predict_proba(X)[:, 1:]


def decision(model):
    return lambda X: model.decision_function(X)[:, None]


def prediction(model):
    return lambda X: model.predict(X).reshape(len(X), -1)


def enumerated(predict, rows, background):
    def of_row(row):
        def mix(mask):
            return np.where(mask, row, background)

        return oracles.shapley_values(predict, mix, len(row))

    return np.array([of_row(row) for row in rows])


def check_sum(found, predict, rows):
    """The base value and the values of a row add up to its prediction."""
    values = found.values.reshape(*found.values.shape[:2], -1)
    total = found.base_values.reshape(len(values), -1) + values.sum(axis=1)
    np.testing.assert_allclose(total, predict(rows), atol=1e-10)


HARD = {
    "manifold": (skforest.ManifoldForestClassifier, {}, 3, proba),
    "manifold, axis": (skforest.ManifoldForestRegressor, {"projection": "axis"}, 0, prediction),
    "manifold, patches": (
        skforest.ManifoldForestClassifier,
        {"feature_shape": (2, 3), "projection": "patch"},
        2,
        second,
    ),
    "co2": (skforest.CO2ForestClassifier, {}, 2, second),
    "co2, float16": (skforest.CO2ForestRegressor, {"weight_dtype": "float16"}, 0, prediction),
    "nongreedy": (skforest.CO2ForestClassifier, {"refine": "nongreedy", "max_depth": 4}, 3, proba),
    "end-to-end": (skforest.E2EDecisionForestRegressor, {"max_depth": 3}, 0, prediction),
    "boosting": (skforest.ObliqueBoostingClassifier, {"n_bags": 1}, 2, decision),
    "boosting, bags": (skforest.ObliqueBoostingRegressor, {"n_bags": 2}, 0, prediction),
    "boosting, linear leaves": (
        skforest.ObliqueBoostingRegressor,
        {"linear_leaves": True, "n_bags": 1},
        0,
        prediction,
    ),
    "boosting, boxes": (
        skforest.ObliqueBoostingRegressor,
        {"feature_shape": (2, 3), "linear_leaves": True, "n_bags": 1},
        0,
        prediction,
    ),
    "boosting, linear start": (
        skforest.ObliqueBoostingRegressor,
        {"linear_start": 100.0, "n_bags": 1},
        0,
        prediction,
    ),
}


def fitted(name, n_classes, estimator, **parameters):
    X, y = classes(n_classes) if n_classes else targets()
    size = 1 if "end-to-end" in name else 8
    parameters = {"n_estimators": size, "random_state": 0} | parameters
    return estimator(**parameters).fit(X[:150], y[:150]), X


@pytest.mark.parametrize("name", HARD)
def test_hard_trees_as_by_enumeration(name):
    estimator, parameters, n_classes, function = HARD[name]
    model, X = fitted(name, n_classes, estimator, **parameters)
    rows, background = X[150:153], X[:7]
    found = shapley_values(model, rows, background)
    predict = function(model)
    expected = enumerated(predict, rows, background)
    np.testing.assert_allclose(found.values.reshape(expected.shape), expected, atol=1e-10)
    assert not found.standard_errors.any()
    assert found.values.ndim == (2 if expected.shape[2] == 1 else 3)
    check_sum(found, predict, rows)


def interactions(predict, rows, background):
    return np.array([
        oracles.shapley_interactions(
            predict, lambda mask, row=row: np.where(mask, row, background), len(row)
        )
        for row in rows
    ])  # fmt: skip


@pytest.mark.parametrize(
    "name", ["manifold", "co2", "boosting, bags", "boosting, linear leaves", "boosting, boxes"]
)
def test_interactions_as_by_enumeration(name):
    """They are symmetric, and add up to the values of features."""
    estimator, parameters, n_classes, function = HARD[name]
    model, X = fitted(name, n_classes, estimator, **parameters)
    rows, background = X[150:152], X[:5]
    found = shapley_values(model, rows, background, interactions=True)
    expected = interactions(function(model), rows, background)
    values = found.values.reshape(expected.shape)
    own = np.arange(N_FEATURES)
    expected[:, own, own] = values[:, own, own]
    np.testing.assert_allclose(values, expected, atol=1e-10)
    alone = shapley_values(model, rows, background).values
    np.testing.assert_allclose(found.values.sum(axis=1), alone, atol=1e-10)
    assert not found.standard_errors.any() and np.abs(values).max() > 0.01


@pytest.mark.parametrize("units", ["raw", "response"])
def test_sampled_interactions_are_within_their_standard_errors(units):
    """Of trees with too many cubes, and of probabilities of boosting."""
    model, X = fitted("boosting", 2, skforest.ObliqueBoostingClassifier, n_bags=1)
    rows, background = X[150:152], X[:5]
    options = {"units": units, "max_exact": 0, "n_permutations": 100}
    found = shapley_values(model, rows, background, interactions=True, **options)
    expected = interactions((decision if units == "raw" else second)(model), rows, background)
    own = np.arange(N_FEATURES)
    error = (found.values - expected[..., 0])[:, own[:, None] != own]
    scale = found.standard_errors[:, own[:, None] != own]
    np.testing.assert_allclose(error[scale == 0], 0, atol=1e-12)
    z = error[scale > 0] / scale[scale > 0]
    assert len(z) > 20 and 0.6 < z.std() < 1.5
    alone = shapley_values(model, rows, background, **options)
    np.testing.assert_allclose(found.values.sum(axis=1), alone.values, atol=1e-10)
    variance = found.standard_errors**2  # of what is left to a feature: of its value and the rest
    rest = variance.sum(axis=2) - variance[:, own, own]
    np.testing.assert_allclose(variance[:, own, own], alone.standard_errors**2 + rest)


@pytest.mark.parametrize("kinds", [("box",), ("sparse", "dense")])
@pytest.mark.parametrize("is_closed", [False, True])
def test_all_directions_with_projections_on_the_threshold(kinds, is_closed):
    """Whole numbers, and thresholds that mixtures reach exactly."""
    rng = np.random.default_rng(0)
    forest = random_forest(
        rng, (2, 3), (is_closed, False), (False, is_closed), kinds=kinds, n_splits=12
    )
    arrays = forest.arrays | {"threshold": np.floor(forest.threshold)}
    forest = forest.replaced(arrays)
    X = whole_table(rng, 10, 6, np.float32)
    X[:, ::2] = np.sign(X[:, ::2])  # some equal entries
    part = explain._ForestPart(None, forest, 1.0)
    part.X, part.background = X[:4], X[4:]
    game = explain._Game([part], forest.n_outputs)
    found, variance = explain._explain_trees(part, game, 10, 0, 2, 1)
    np.testing.assert_allclose(found, enumerated(forest.response, X[:4], X[4:]), atol=1e-10)
    assert not variance.any()


@pytest.mark.parametrize("kinds", [("sparse",), ("axis", "sparse", "dense"), ("dense",)])
def test_more_background_rows_and_features_than_a_table_has(kinds):
    """Tables of splits hold 112 rows z, and six features of a direction."""
    rng = np.random.default_rng(1)
    forest = random_forest(rng, (2, 4), (False, False), (False, False), kinds=kinds, n_splits=10)
    X = whole_table(rng, 120, 8, np.float32)
    X[:60] += rng.normal(size=(60, 8)).astype(np.float32)
    part = explain._ForestPart(None, forest, 1.0)
    part.X, part.background = X[:2], X[2:]
    game = explain._Game([part], forest.n_outputs)
    found, variance = explain._explain_trees(part, game, 10, 0, 2, 1)
    np.testing.assert_allclose(found, enumerated(forest.response, X[:2], X[2:]), atol=1e-10)
    assert not variance.any()


@pytest.mark.parametrize("estimator", [skforest.CO2ForestClassifier, "linear"])
def test_permutations_within_their_standard_errors(estimator):
    """Every tree is sampled; sums are exact all the same."""
    if estimator == "linear":
        own = {"linear_leaves": True, "n_bags": 1}
        model, X = fitted("", 0, skforest.ObliqueBoostingRegressor, **own)
        predict = prediction(model)
    else:
        model, X = fitted("", 3, estimator)
        predict = proba(model)
    rows, background = X[150:154], X[:20]
    exact = shapley_values(model, rows, background).values
    found = shapley_values(model, rows, background, max_exact=0, n_permutations=20)
    errors = found.standard_errors
    assert (errors > 0).any()
    assert (np.abs(found.values - exact) <= 4 * errors + 1e-10).all()
    ratio = (found.values - exact)[errors > 0] / errors[errors > 0]
    assert 0.7 < np.sqrt(np.mean(ratio**2)) < 1.3
    check_sum(found, predict, rows)


def test_rows_that_differ_in_max_exact_features_are_explained_exactly():
    """Splits on all eight features; of at most six, the mixtures are tabulated."""
    X, y = make_friedman1(200, n_features=8, noise=0.5, random_state=0)
    model = skforest.CO2ForestRegressor(4, max_features=None, random_state=0).fit(X[:150], y[:150])
    rows, background = X[150:153], X[:6]
    expected = enumerated(prediction(model), rows, background)[..., 0]
    found = shapley_values(model, rows, background, max_exact=8)
    np.testing.assert_allclose(found.values, expected, atol=1e-10)
    assert not found.standard_errors.any()
    fewer = shapley_values(model, rows, background, max_exact=7)
    assert fewer.standard_errors.any()
    near = np.where(np.arange(8) == 3, background, rows[0])  # rows that differ in seven features
    found = shapley_values(model, rows[:1], near, max_exact=1)
    assert not found.standard_errors.any()


@pytest.mark.parametrize("estimator", ["CO2Forest", "RandomHingeForest"])
def test_standard_errors_are_the_spread_over_seeds(estimator):
    """Few permutations, with which the denominator of a variance matters."""
    cls = getattr(skforest, f"{estimator}Regressor")
    model, X = fitted("", 0, cls, n_estimators=2, max_depth=2)
    found = [
        shapley_values(model, X[150:175], X[:4], max_exact=0, random_state=seed)
        for seed in range(12)
    ]
    spread = np.var([one.values for one in found], axis=0, ddof=1).sum()
    error = np.mean([one.standard_errors**2 for one in found], axis=0).sum()
    assert error == pytest.approx(spread, rel=0.15)


SOFT = {
    "hinge": (skforest.RandomHingeForestRegressor, {"n_bags": 1}, 0, prediction),
    "soft": (skforest.E2EDecisionForest, {"routing": "soft", "max_depth": 3}, 3, proba),
    "probability": (skforest.ObliqueBoostingClassifier, {"n_bags": 2}, 2, second),
}


@pytest.mark.parametrize("name", SOFT)
def test_soft_responses_within_their_standard_errors(name):
    estimator, parameters, n_classes, function = SOFT[name]
    model, X = fitted("end-to-end" if name == "soft" else "", n_classes, estimator, **parameters)
    rows, background = X[150:152], X[:8]
    found = shapley_values(model, rows, background, units="response", n_permutations=24)
    predict = function(model)
    expected = enumerated(predict, rows, background).reshape(found.values.shape)
    assert (np.abs(found.values - expected) <= 4 * found.standard_errors + 1e-10).all()
    assert found.standard_errors.max() < 0.2 * np.abs(expected).max()
    check_sum(found, predict, rows)


def test_raw_scores_of_bags_are_averaged():
    model, X = fitted("", 3, skforest.ObliqueBoostingClassifier, n_bags=2)
    forest = model.forest_

    def raw(X):
        bags = zip(forest.bag_start[:-1], forest.bag_start[1:])
        parts = [forest[a:b] for a, b in bags]
        parts = [part.replaced(part.arrays, link="identity") for part in parts]
        return np.mean([part.response(X) for part in parts], axis=0)

    found = shapley_values(model, X[150:153], X[:5])
    expected = enumerated(raw, X[150:153], X[:5])
    np.testing.assert_allclose(found.values, expected, atol=1e-10)


@pytest.mark.parametrize(
    "estimator", [skforest.ManifoldForestRegressor, skforest.ObliqueBoostingRegressor]
)
def test_columns_of_a_table_are_the_players(estimator):
    """Levels and indicators of missing values belong to their columns."""
    X, y = mixed_rows()
    model = estimator(10, random_state=0).fit(X[:250], y[:250])
    assert model.forest_.n_features > 4
    rows, background = X[250:253], X[:6]
    found = shapley_values(model, rows, background)

    def of_row(row):
        def mix(mask):
            return background.assign(**{name: row[name] for name in X.columns[mask]})

        return oracles.shapley_values(prediction(model), mix, 4)[:, 0]

    expected = [of_row(rows.iloc[i]) for i in range(3)]
    np.testing.assert_allclose(found.values, expected, atol=1e-10)
    assert found.feature_names == list(X.columns)
    assert found.data.shape == (3, 4)


def test_several_outputs():
    X, y = classes(3)
    Y = np.stack([y, y > 0], axis=1)
    model = skforest.ManifoldForestClassifier(5, random_state=0).fit(X, Y)
    found = shapley_values(model, X[:2], X[2:7])
    expected = enumerated(lambda X: np.hstack(model.predict_proba(X)), X[:2], X[2:7])
    np.testing.assert_allclose(found.values, expected, atol=1e-10)


LABELS = {
    "hinge": skforest.RandomHingeForestClassifier(8, n_bags=1, random_state=0),
    "boosting": skforest.ObliqueBoostingClassifier(
        20, n_bags=1, learning_rate=1.0, early_stopping=False, random_state=0
    ),
    "blend": skforest.BlendedForestClassifier(
        [skforest.RandomHingeForestClassifier(8, n_bags=1), skforest.CO2ForestClassifier(4)],
        cv=2,
        random_state=0,
    ),
}


@pytest.mark.parametrize("name", LABELS)
def test_several_outputs_whose_responses_are_clipped(name, monkeypatch):
    """Sums of trees, and responses with margins, may be outside of [0, 1]."""
    monkeypatch.setattr("skforest.training.trials.IMPORTANCE_TREES", 50)  # as for users
    X, y = classes(3)
    model = clone(LABELS[name]).fit(X[:150], np.stack([y, y > 0], axis=1)[:150])
    rows, background = X[150:156], X[:8]

    def predict(X):
        return np.hstack(model.predict_proba(X))

    found = shapley_values(model, rows, background, units="response", n_permutations=24)
    assert (predict(X) == 0).any()  # some are clipped
    check_sum(found, predict, rows)
    expected = enumerated(predict, rows, background)
    assert (np.abs(found.values - expected) <= 4 * found.standard_errors + 1e-10).all()


def test_blends():
    X, y = classes(2)
    blend = skforest.BlendedForestClassifier(
        [
            skforest.ManifoldForestClassifier(6),
            skforest.CO2ForestClassifier(6),
            skforest.ObliqueBoostingClassifier(10, n_bags=2),
        ],
        random_state=0,
        cv=2,
        calibrate=False,
    ).fit(X[:150], y[:150])
    rows, background = X[150:152], X[:6]
    found = shapley_values(blend, rows, background, n_permutations=20)
    expected = enumerated(second(blend), rows, background)[..., 0]
    assert (np.abs(found.values - expected) <= 4 * found.standard_errors + 1e-10).all()
    check_sum(found, second(blend), rows)
    blend.temperature_ = 0.5
    found = shapley_values(blend, rows, background, n_permutations=60)
    expected = enumerated(second(blend), rows, background)[..., 0]
    assert (np.abs(found.values - expected) <= 4 * found.standard_errors + 1e-10).all()
    check_sum(found, second(blend), rows)
    with pytest.raises(ValueError, match="blend"):
        shapley_values(blend, rows, background, units="raw")


def test_blends_with_members_of_other_packages():
    X, y = classes(2)
    members = [skforest.ManifoldForestClassifier(6), ("linear", LogisticRegression())]
    blend = skforest.BlendedForestClassifier(members, random_state=0, cv=2, calibrate=False)
    blend.fit(X[:150], y[:150])
    blend.weights_ = {"ManifoldForest": 0.5, "linear": 0.5}
    blend.members_ |= {"linear": LogisticRegression().fit(X[:150], y[:150])}
    rows, background = X[150:152], X[:6]
    found = shapley_values(blend, rows, background, n_permutations=20)
    expected = enumerated(second(blend), rows, background)[..., 0]
    assert (np.abs(found.values - expected) <= 4 * found.standard_errors + 1e-10).all()
    check_sum(found, second(blend), rows)
    blend.members_ = {"linear": blend.members_["linear"]}
    found = shapley_values(blend, rows, background, n_permutations=60)
    expected = enumerated(second(blend), rows, background)[..., 0]
    assert (np.abs(found.values - expected) <= 4 * found.standard_errors + 1e-10).all()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_an_encoded_member_of_a_blend(kind):
    module = pytest.importorskip(kind)
    X, y = classes(2)
    columns = {f"x{j}": column for j, column in enumerate(X.T)}
    columns["x0"] = np.array(["low", "high"], dtype=object)[(X[:, 0] > 0).astype(int)]
    table = module.DataFrame(columns)
    linear = ("linear", LogisticRegression(max_iter=300))
    blend = skforest.BlendedForestClassifier([linear], random_state=0, cv=2).fit(table, y)
    blend.temperature_ = 1.0
    found = shapley_values(blend, table[:3], table[10:16], n_permutations=60)
    check_sum(found, lambda table: blend.predict_proba(table)[:, 1:], table[:3])
    # The log odds are linear, so the sign of a value is that of the coefficient and the change.
    coefficient = blend.members_["linear"][-1].coef_[0, -1]
    change = X[:3, -1] - X[10:16, -1].mean()
    assert (np.sign(found.values[:, -1]) == np.sign(coefficient * change)).mean() > 0.6


def test_the_result_does_not_depend_on_threads_nor_on_blocks(monkeypatch):
    model, X = fitted("", 3, skforest.CO2ForestClassifier)
    one = shapley_values(model, X[:9], X[9:15], n_jobs=1)
    two = shapley_values(model, X[:9], X[9:15], n_jobs=2)
    assert one.values.tobytes() == two.values.tobytes()
    monkeypatch.setattr(explain, "BLOCK", 300)  # sums in the same order, for few rows at a time
    three = shapley_values(model, X[:9], X[9:15])
    assert one.values.tobytes() == three.values.tobytes()


@pytest.mark.parametrize("name", ["CO2Forest", "RandomHingeForest"])
def test_every_row_has_draws_of_its_own(name):
    """Otherwise the mean over many rows would not be more exact than one of them."""
    model, X = fitted("", 0, getattr(skforest, f"{name}Regressor"), n_estimators=2)
    found = shapley_values(model, X[[0, 0]], X[2:8], max_exact=0).values
    assert not np.isclose(*found).all()


def test_background_is_drawn_from_X():
    model, X = fitted("", 0, skforest.ManifoldForestRegressor)
    found = shapley_values(model, X[:120])
    again = shapley_values(model, X[:120], random_state=np.random.RandomState(1))
    assert found.base_values[0] != again.base_values[0]
    check_sum(found, prediction(model), X[:120])
    few = shapley_values(model, X[:5])
    np.testing.assert_allclose(few.base_values, model.predict(X[:5]).mean())


def test_bags_of_different_numbers_of_trees_have_equal_weights():
    model, X = fitted("", 0, skforest.ManifoldForestRegressor, n_estimators=4)
    forest = model.forest_
    model.forest_ = forest.replaced(forest.arrays | {"bag_start": np.array([0, 1, 4])})
    check_sum(shapley_values(model, X[:5], X[9:15]), prediction(model), X[:5])


def test_sparse_rows():
    X, y = classes(2)
    X = np.where(np.abs(X) < 1, 0, X)
    model = skforest.ManifoldForestClassifier(5, random_state=0).fit(X, y)
    expected = shapley_values(model, X[:5], X[5:9])
    found = shapley_values(model, sparse.csr_matrix(X[:5]), sparse.csr_matrix(X[5:9]))
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.data, X[:5])
    expected = shapley_values(model, X[:5])
    for form in ("csr", "csc", "coo", "dia", "bsr", "lil", "dok"):  # some have no rows
        found = shapley_values(model, sparse.csr_matrix(X[:5]).asformat(form))
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.data, X[:5])


def test_a_tree_without_splits():
    X, y = targets()
    model = skforest.ManifoldForestRegressor(2, max_depth=1, min_samples_leaf=150).fit(X, y)
    assert not shapley_values(model, X[:3], X[3:5]).values.any()


def test_shap_gets_an_explanation(monkeypatch):
    class Given:
        def __init__(self, values, base_values, data, **more):
            self.values, self.base_values, self.data = values, base_values, data
            self.__dict__.update(more)

    model, X = fitted("", 3, skforest.ManifoldForestClassifier)
    monkeypatch.setitem(sys.modules, "shap", SimpleNamespace(Explanation=Given))
    found = shapley_values(model, X[:4], X[4:8])
    assert isinstance(found, Given)
    assert found.output_names == ["0", "1", "2"]
    assert found.error_std is found.standard_errors
    monkeypatch.setitem(sys.modules, "shap", None)
    own = shapley_values(model, X[:4], X[4:8])
    assert isinstance(own, explain.Explanation)
    for name in ("values", "base_values", "data", "feature_names", "standard_errors"):
        np.testing.assert_array_equal(getattr(found, name), getattr(own, name))


@pytest.mark.parametrize(
    "parameters",
    [
        {"units": "odds"},
        {"units": None},
        {"max_exact": 17},
        {"max_exact": 2.0},
        {"n_permutations": 2},
        {"n_permutations": 5},
    ],
)
def test_bad_parameters(parameters):
    model, X = fitted("", 0, skforest.ManifoldForestRegressor)
    with pytest.raises(ValueError, match=next(iter(parameters))):
        shapley_values(model, X[:2], **parameters)


def test_an_error_of_the_background_says_so():
    model, X = fitted("", 0, skforest.ManifoldForestRegressor)
    with pytest.raises(ValueError) as found:
        shapley_values(model, X[:2], X[:0])
    assert found.value.__notes__ == ["The rows of `background` raised this error."]


def test_bad_estimators():
    X, y = classes(2)
    model = skforest.ManifoldForestClassifier(3, random_state=0)
    with pytest.raises(NotFittedError):
        shapley_values(model, X)
    model.fit(X, y)
    for other in (LogisticRegression().fit(X, y), model.forest_):
        with pytest.raises(TypeError, match=type(other).__name__):
            shapley_values(other, X[:2])
    with pytest.raises(ValueError, match="features"):
        shapley_values(model, X[:2], X[:, 1:])


@pytest.mark.parametrize(
    "name, n_classes, units",
    [
        ("manifold", 3, "auto"),
        ("co2", 2, "response"),
        ("boosting", 2, "raw"),
        ("boosting", 2, "response"),
    ],
)
def test_the_target_chooses_a_class(name, n_classes, units):
    model, X = fitted(name, n_classes, HARD[name][0], **HARD[name][1])
    rows, background = X[150:153], X[:7]
    whole = shapley_values(model, rows, background, units)
    for k in range(n_classes):
        found = shapley_values(model, rows, background, units, target=k)
        assert found.values.shape == found.standard_errors.shape == rows.shape
        if n_classes > 2:
            np.testing.assert_array_equal(found.values, whole.values[..., k])
            np.testing.assert_array_equal(found.base_values, whole.base_values[:, k])
            options = {"max_exact": 0, "random_state": 0}
            sampled = shapley_values(model, rows, background, units, **options)
            one = shapley_values(model, rows, background, units, target=k, **options)
            errors = sampled.standard_errors[..., k]
            assert errors.any() and np.array_equal(one.standard_errors, errors)
        else:
            np.testing.assert_array_equal(found.values, whole.values if k else -whole.values)
        if units != "raw":
            check_sum(found, lambda X, k=k: model.predict_proba(X)[:, [k]], rows)
        else:
            check_sum(
                found, lambda X, k=k: (2 * k - 1) * model.decision_function(X)[:, None], rows
            )
    with pytest.raises(ValueError, match=r"target='rose' must be one of \[0, 1"):
        shapley_values(model, rows, background, target="rose")


def test_the_target_chooses_an_output():
    X, y = targets()
    model = skforest.ManifoldForestRegressor(3, random_state=0).fit(X, np.stack([y, -y], axis=1))
    found = shapley_values(model, X[:3], X[3:9], target=1)
    check_sum(found, lambda X: model.predict(X)[:, [1]], X[:3])
    labels = np.stack([y > 14, X[:, 0] > 0.5], axis=1).astype(int) + [0, 4]
    model = skforest.ManifoldForestClassifier(3, random_state=0).fit(X, labels)
    found = shapley_values(model, X[:3], X[3:9], target=(1, 5))
    check_sum(found, lambda X: model.predict_proba(X)[1][:, [1]], X[:3])
    with pytest.raises(
        ValueError, match=r"target=1 must be one of \[\(0, 0\), \(0, 1\), \(1, 4\)"
    ):
        shapley_values(model, X[:3], target=1)
