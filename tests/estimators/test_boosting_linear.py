"""Linear functions in oblique boosting: in leaves, and as the start of training."""

import copy
from types import SimpleNamespace

import numpy as np
import pytest
from forests import grow_boosted
from makers import BOTH_BOOSTING as BOTH
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from scipy import sparse
from skforest._kernels.boosting.linear_leaf import LeafRegression, add_linear
from sklearn.linear_model import LogisticRegression, Ridge

from skforest import ObliqueBoostingClassifier, ObliqueBoostingRegressor, load, save
from skforest.training import boosting_rounds as training_module
from skforest.training import boosting_trials


@pytest.mark.parametrize(
    "n_outputs, monotonic", [(1, None), (3, None), (1, np.array([1, 0, 0, -1, 0], dtype=np.int8))]
)
def test_curvatures_of_1_are_counted(n_outputs, monotonic):
    """Twice all derivatives give the same tree; only curvatures of 1 are counted, not summed."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)).astype(np.float32)
    derivative = np.c_[rng.normal(size=(300, n_outputs)) + X[:, :1], np.ones(300)]
    options = {"n_directions": 8, "min_leaf": 5, "monotonic": monotonic}
    one, leaf, *_ = grow_boosted(X, derivative, l2=1.0, **options)
    two, other, *_ = grow_boosted(X, 2 * derivative, l2=2.0, **options)
    assert len(one["direction"]) > 3
    np.testing.assert_array_equal(leaf, other)
    np.testing.assert_array_equal(2 * one["gain"], two["gain"])
    for name in ("child", "direction", "threshold", "sparse_feature", "sparse_weight"):
        np.testing.assert_array_equal(one[name], two[name])


@pytest.mark.parametrize("weights", [[1.5, 0, 0, -0.5, 0], [1.5, 1, -1, -0.5, 0.75]])
def test_linear_leaves_minimise_the_penalised_expansion_of_the_loss(weights):
    """Against a general least-squares solution in one leaf at a time."""
    rng = np.random.default_rng(0)
    X = rng.random((400, 5)).astype(np.float32)
    gradient = (X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=400)).astype(np.float32)[:, None]
    curvature = rng.uniform(0.5, 1.5, size=(400, 1)).astype(np.float32)
    rows = np.arange(0, 400, 2, dtype=np.int32)
    tree = {  # node 0 splits on feature 1, node 2 on a mixture
        "child": np.array([1, -1, 3, -2, -3], dtype=np.int32),
        "direction": np.array([1, 5], dtype=np.int32),
        "sparse_start": np.array([0, np.count_nonzero(weights)]),
        "sparse_feature": np.flatnonzero(weights).astype(np.int32),
        "sparse_weight": np.array([w for w in weights if w], dtype=np.float32),
    }
    mixture = X @ np.array(weights, dtype=np.float32)
    leaf = np.where(X[:, 1] <= 0.4, 0, np.where(mixture <= 0.5, 1, 2)).astype(np.int32)
    spread, share = rng.uniform(0.2, 0.4, size=5).astype(np.float32), 0.1
    of_mixture = ((weights * spread) ** 2).sum()
    regression = LeafRegression(X, 30.0, 5, spread, share)
    value, *linear = regression.fit(*tree.values(), leaf, rows, gradient, curvature, 3.0, 1.0)
    raw = value[leaf]
    add_linear(X, leaf, *linear, raw)
    for number, regressors in enumerate([X[:, [1]], *2 * [np.stack([mixture, X[:, 1]], axis=1)]]):
        own = rows[leaf[rows] == number]
        g, h = gradient[own, 0].astype(float), curvature[own, 0].astype(float)
        z = regressors.astype(float)
        mean = np.average(z[own], axis=0, weights=h)
        deviation = np.sqrt(np.average((z[own] - mean) ** 2, axis=0, weights=h))
        s = (z - mean) / deviation
        overall = np.array([of_mixture, spread[1] ** 2])[-s.shape[1] :]
        penalty = 30 * (1 + share * overall / deviation**2)
        hessian = (s[own] * h[:, None]).T @ s[own] + np.diag(penalty)
        expected = -g.sum() / (h.sum() + 3.0) - s @ np.linalg.solve(hessian, s[own].T @ g)
        mask = leaf == number
        np.testing.assert_allclose(raw[mask, 0], expected[mask], rtol=1e-4, atol=1e-5)


def test_a_leaf_has_a_direction_once_and_enough_rows_for_its_directions():
    """Those of the nearest splits, and one for each five rows."""
    X = np.random.default_rng(0).random((30, 2)).astype(np.float32)
    leaf, rows = np.repeat([0, 1, 2], [4, 9, 17]).astype(np.int32), np.arange(30, dtype=np.int32)
    child = np.array([1, -1, 3, -2, -3], dtype=np.int32)  # the leaf 0 is below the root
    no_terms = np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32)
    derivatives = X[:, :1].copy(), np.ones((30, 1), dtype=np.float32)
    regression = LeafRegression(X, 30.0, 5, np.ones(2, dtype=np.float32), 0.1)
    for directions, ends, features in (
        ([0, 0], [0, 0, 1, 2], [0, 0]),
        ([0, 1], [0, 0, 1, 3], [1, 1, 0]),
    ):
        tree = child, np.array(directions, dtype=np.int32), *no_terms
        _, start, feature, _ = regression.fit(*tree, leaf, rows, *derivatives, 3.0, 1.0)
        assert (start.tolist(), feature.tolist()) == (ends, features)


def test_slopes_are_small_where_a_regressor_hardly_varies():
    """A row that the leaf was not fitted on, and that differs much, has no extreme response."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 0.002, size=(101, 1)).astype(np.float32)
    gradient, curvature = 1000 * X, np.ones((101, 1), dtype=np.float32)
    X[100] = 1
    tree = {
        "child": np.array([1, -1, -2], dtype=np.int32),
        "direction": np.zeros(1, dtype=np.int32),
        "sparse_start": np.zeros(1, dtype=np.int64),
        "sparse_feature": np.zeros(0, dtype=np.int32),
        "sparse_weight": np.zeros(0, dtype=np.float32),
    }
    leaf, rows = np.zeros(101, dtype=np.int32), np.arange(100, dtype=np.int32)
    spread = np.array([0.4], dtype=np.float32)
    own = (getattr(training_module, n) for n in ("PENALTY", "ROWS_PER_REGRESSOR"))
    regression = LeafRegression(X, *own, spread, training_module.VARIANCE_SHARE)
    value, *linear = regression.fit(*tree.values(), leaf, rows, gradient, curvature, 3.0, 1.0)
    raw = value[leaf]
    add_linear(X, leaf, *linear, raw)
    assert np.abs(raw[100]) < 20  # without the share: 769


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_a_linear_start_is_ridge_regression(n_outputs):
    """It is that of scikit-learn, on features in units of their deviation."""
    rng = np.random.default_rng(0)
    X = np.ascontiguousarray(rng.normal(2, [1, 10, 0.1, 0], (300, 4)), dtype=np.float32)
    y = X @ rng.normal(size=(4, n_outputs)) + rng.normal(size=(300, n_outputs))
    weight = rng.integers(1, 4, 300)
    options = {"n_bags": 1, "early_stopping": False, "linear_start": 100.0, "n_directions": 0}
    model = ObliqueBoostingRegressor(1, **options).fit(X, np.squeeze(y), weight)
    spread = (model.forest_.deviation / model.forest_.scale).astype(np.float64)
    penalty = 100 * weight.mean()
    ridge = Ridge(penalty).fit(X[:, :3] / spread[:3], y, weight)
    expected = np.squeeze(ridge.predict(X[:, :3] / spread[:3]))
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-4, atol=1e-4)
    importance = np.ravel(np.square(ridge.coef_))
    if n_outputs == 1:  # with several, in units of the outputs
        np.testing.assert_allclose(
            model.feature_importances_, [*importance / importance.sum(), 0], rtol=1e-4
        )


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_linear_start_for_classes_is_logistic_regression(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3)) * [1, 5, 0.2]
    y = np.argmax(X @ rng.normal(size=(3, n_classes)) + rng.normal(size=(500, n_classes)), axis=1)
    options = {"n_bags": 1, "early_stopping": False, "linear_start": 100.0}
    model = ObliqueBoostingClassifier(1, **options).fit(X, y)
    share = np.bincount(y) / len(y)
    # With more classes, each has a penalty of its own, and their steps ignore one another.
    penalty = 100 * (share * (1 - share)).mean()
    unit = model.forest_.deviation / model.forest_.scale
    expected = LogisticRegression(C=1 / penalty).fit(X / unit, y).predict_proba(X / unit)
    np.testing.assert_allclose(
        model.predict_proba(X), expected, atol=0.01 if n_classes == 2 else 0.1
    )


def test_importances_are_total_gains():
    """Trees correct each other: noise in the last must not count as the signal in the first."""
    X, _, steps = linear_and_steps()
    model = quick(ObliqueBoostingRegressor, linear_start=None, n_bags=2).fit(X, steps)
    first, second = (
        forest.feature_importances() * forest.gain.sum(dtype=np.float64)
        for forest in (model.forest_[: model.n_iter_[0]], model.forest_[model.n_iter_[0] :])
    )
    total = first + second
    np.testing.assert_allclose(model.feature_importances_, total / total.sum(), atol=0.01)
    trees = [forest.feature_importances()[0] for forest in model.forest_]
    assert model.feature_importances_[0] > np.mean(trees) + 0.05


@pytest.mark.parametrize("learning_rate", [0.05, 0.3])
def test_importances_of_a_linear_start_are_comparable_with_those_of_trees(learning_rate):
    rng = np.random.default_rng(0)
    X = rng.random((800, 6))
    y = np.sqrt(12) * X[:, 0] + np.where(abs(X[:, 1] - 0.5) < 0.25, 1, -1)  # variances of 1
    options = {"linear_start": 1.0, "linear_leaves": False, "learning_rate": learning_rate}
    options |= {"n_bags": 2, "random_state": 0, "early_stopping": False}
    model = ObliqueBoostingRegressor(60, **options).fit(X, y)
    importances = model.feature_importances_
    np.testing.assert_allclose(importances[:2], 0.5, atol=0.1)
    start = model.forest_[:1]
    assert start.feature_importances()[0] > 0.99
    assert not start.feature_importances("count").any()
    model = ObliqueBoostingRegressor(20, warm_start=True, **options).fit(X, y)
    model.set_params(n_estimators=60).fit(X, y)
    np.testing.assert_array_equal(model.feature_importances_, importances)
    model.set_params(warm_start=False).fit(X, 1e6 * y)
    np.testing.assert_allclose(model.feature_importances_, importances, atol=0.01)


def linear_and_steps():
    """Features and two targets, of which linear functions suit one."""
    rng = np.random.default_rng(0)
    X = rng.random((600, 40))
    steps = 4 * (np.floor(8 * X[:, 0]) % 2) + rng.normal(size=600)
    return X, X[:, :4] @ [3.0, -2.0, 1.0, 0.5] + 0.1 * rng.normal(size=600), steps


def test_a_linear_start_is_chosen_where_it_helps():
    X, linear, steps = linear_and_steps()
    options = {"n_estimators": 20, "n_bags": 1}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, linear)
    assert model.linear_start_
    plain = quick(ObliqueBoostingRegressor, linear_start=None, **options).fit(X, linear)
    assert model.validation_scores_[0].max() > plain.validation_scores_[0].max()
    for other in ({"linear_leaves": False}, {"linear_leaves": True}):
        assert quick(ObliqueBoostingRegressor, **options, **other).fit(X, linear).linear_start_
    assert not quick(ObliqueBoostingRegressor, **options).fit(X, steps).linear_start_
    assert not quick(ObliqueBoostingRegressor, loss="huber").fit(X, linear).linear_start_
    assert not quick(ObliqueBoostingClassifier, **options).fit(X, steps > 2).linear_start_


@pytest.mark.parametrize("best", [(False, None), (True, None), (True, 100.0), (False, 1.0)])
@pytest.mark.parametrize("n_rows, n_parts", [(199, 1), (200, 2), (1000, 2)])
def test_trials_are_compared_by_the_weighted_scores_of_their_best_rounds(
    n_rows, n_parts, best, monkeypatch
):
    X, y = rows_of(ObliqueBoostingRegressor, 100)
    weight, masks = np.random.default_rng(0).exponential(size=100), []
    monkeypatch.setattr(boosting_trials, "TRIAL_ROWS", n_rows)

    def train(rows, settings, weight, held_out, seed, control):
        assert settings.n_rounds == 7 and not settings.warns
        assert ((weight > 0) != (held_out > 0)).all()
        masks.append(tuple(held_out > 0))
        setting = settings.linear_leaves, settings.linear_start
        rank = score = 2 if setting == best else int(setting[0] == best[0])
        if n_parts == 2:  # a plain mean of both halves would prefer the lower rank
            ratio = weight.sum() / held_out.sum()
            score = rank - 2 if ratio < 1 else -rank * (1 + ratio) / 2
        found = SimpleNamespace(scores=[score - 1, score, score - 9 * rank])
        return SimpleNamespace(run=lambda: found)

    monkeypatch.setattr(boosting_trials, "BoostingTraining", train)
    model = quick(ObliqueBoostingRegressor, n_bags=1, n_estimators=7).fit(X, y, weight)
    assert (model.linear_leaves_, model.linear_start_) == best
    assert len(set(masks)) == n_parts and len(masks) == 4 * n_parts
    assert np.sum(list(set(masks))) == (100 if n_parts == 2 else 20)


@pytest.mark.parametrize("most", [5, 6])
def test_trials_that_diverge_are_not_chosen_nor_starts_of_many_columns_tried(most, monkeypatch):
    X, y = rows_of(ObliqueBoostingRegressor, 200)
    tried = set()

    def train(rows, settings, *further):
        tried.add((settings.linear_leaves, settings.linear_start))
        if settings.linear_leaves or settings.linear_start:
            raise ValueError("boosting diverged")
        return SimpleNamespace(run=lambda: SimpleNamespace(scores=[-5.0]))

    monkeypatch.setattr(boosting_trials, "BoostingTraining", train)
    monkeypatch.setattr(boosting_trials, "MAX_START_FEATURES", most)
    model = quick(ObliqueBoostingRegressor, n_bags=1, n_estimators=3).fit(X, y)
    assert (model.linear_leaves_, model.linear_start_) == (False, None)
    starts = [] if most < X.shape[1] else [(False, 1.0), (False, 100.0)]
    assert tried == {(False, None), (True, None), *starts}


@pytest.mark.parametrize(
    "loss, scale", [("poisson", 1), ("gamma", 1), ("tweedie", 1e3), ("squared_error", 1e-9)]
)
@pytest.mark.parametrize("seed, penalty", [(0, 100.0), (1, 1), (2, np.float32(1))])
def test_a_linear_start_decreases_the_loss(loss, scale, seed, penalty):
    rng = np.random.default_rng(seed)
    X = np.exp(2 * rng.normal(size=(200, 3)))
    y = scale * rng.gamma(2, 1 + X[:, 0])
    model = quick(ObliqueBoostingRegressor, loss=loss, linear_start=penalty, n_bags=2).fit(X, y)
    assert type(model.linear_start_) is float
    for curve in model.loss_curve_:
        assert np.isfinite(curve).all() and curve[1] < curve[0]
    assert np.isfinite(model.predict(X)).all()


def test_linear_leaves_are_chosen_where_they_help():
    X, linear, steps = linear_and_steps()
    options = {"n_estimators": 20, "n_bags": 1, "linear_start": None}
    assert quick(ObliqueBoostingRegressor, **options).fit(X, linear).linear_leaves_
    assert not quick(ObliqueBoostingRegressor, **options).fit(X, steps).linear_leaves_
    assert not quick(ObliqueBoostingClassifier, **options).fit(X, steps > 0).linear_leaves_


@pytest.mark.parametrize(
    "linear",
    [
        {"linear_leaves": np.True_},
        {"linear_start": 100.0},
        {"linear_leaves": True, "feature_shape": (2, 3)},
    ],
)
@BOTH
def test_models_of_linear_functions(cls, linear, tmp_path):
    """Staged, saved and copied models predict the same; leaves continue linearly, to a limit."""
    X, y = rows_of(cls)
    model = quick(cls, **linear, n_bags=2).fit(X, y)
    assert len(model.forest_.slope)
    method = "predict_proba" if hasattr(model, "predict_proba") else "predict"
    expected = getattr(model, method)(X)
    *_, last = getattr(model, f"staged_{method}")(X)
    np.testing.assert_allclose(last, expected, rtol=1e-9, atol=1e-12)
    save(model, tmp_path / "model.npz")
    np.testing.assert_array_equal(getattr(load(tmp_path / "model.npz"), method)(X), expected)
    part = model.forest_[1:4]
    np.testing.assert_array_equal(part.compact().response(X), part.response(X))
    if method == "predict":
        high, width = X.max(axis=0), np.ptp(X, axis=0)
        far = model.predict(high + np.outer([0.4, 0.8, 100, 200], width))
        assert abs(far[1] - far[0]) > 0
        assert far[2] == far[3]


def test_linear_leaves_are_not_continued_on_sparse_rows():
    X = np.random.default_rng(0).normal(size=(120, 2))
    model = quick(ObliqueBoostingRegressor, warm_start=True).fit(X, X @ [1, 2])
    assert model.linear_leaves_
    before = model.predict(X)
    for changes in ({"n_estimators": 30}, {"n_bags": 3}):
        with pytest.raises(TypeError, match="required by the linear functions"):
            copy.deepcopy(model).set_params(**changes).fit(sparse.csr_matrix(X), X @ [1, 2])
    np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("name, value", [("linear_leaves", True), ("linear_start", 100.0)])
def test_linear_functions_need_a_curvature(name, value):
    X, y = rows_of(ObliqueBoostingRegressor)
    signs = [1] + [0] * (X.shape[1] - 1)
    for other, text in (
        ({"loss": "absolute_error"}, "loss='absolute_error'"),
        ({"monotonic_cst": signs}, "monotonic_cst"),
    ):
        with pytest.raises(ValueError, match=f"{name}={value!r} .* {text}"):
            quick(ObliqueBoostingRegressor, **{name: value}, **other).fit(X, y)
