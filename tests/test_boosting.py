"""Oblique boosting: trees and losses against their definitions, bags, early stopping."""

import copy
import pickle

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import OwnPoisson, OwnSquaredError, assert_same_trees, fixed, grow_boosted
from scipy import sparse
from scipy.special import expit, softmax
from skforest._kernels.linear_leaf import LeafRegression, add_linear
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import d2_pinball_score, log_loss
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import skforest
from skforest import ObliqueBoostingClassifier, ObliqueBoostingRegressor, load, save
from skforest.training import boosting as training_module
from skforest.training import losses
from skforest.training.early_stopping import balanced_folds

BOTH = pytest.mark.parametrize("cls", [ObliqueBoostingClassifier, ObliqueBoostingRegressor])
LOSSES = sorted(set(losses.LOSSES) - {"log_loss"})


def quick(cls, **changes):
    defaults = {"n_estimators": 20, "n_bags": 2, "learning_rate": 0.2, "random_state": 0}
    return cls(**defaults | changes)


def rows_of(cls, n=150):
    if cls is ObliqueBoostingClassifier:
        return make_classification(n, 6, n_informative=4, n_classes=3, random_state=0)
    return make_friedman1(n, 6, noise=0.5, random_state=0)


# ------------------------------------------------------------------------------------------- trees


def check_tree(X, derivative, rows, n_directions, min_leaf, seed, max_bins=255):
    """Every split has its gain, which is the largest one of the node."""
    l2 = 0.5
    tree, leaf, cuts = grow_boosted(
        X, derivative, rows, n_directions=n_directions, l2=l2, min_leaf=min_leaf, seed=seed,
        max_bins=max_bins,
    )  # fmt: skip
    reached = oracles.boosted_nodes(tree, X)
    is_leaf = tree["child"] < 0
    # Rows outside the sample reach the leaf that prediction finds.
    np.testing.assert_array_equal(leaf, reached[is_leaf].argmax(axis=0))
    in_sample = np.isin(np.arange(len(X)), rows)
    np.testing.assert_array_equal(tree["node_weight"], (reached & in_sample).sum(axis=1))
    assert tree["node_weight"][1:].min(initial=min_leaf) >= min_leaf
    used = np.unique(tree["direction"][tree["direction"] >= X.shape[1]])
    for node in range(len(is_leaf)):
        own = reached[node] & in_sample
        columns = [(X[own, j], cuts[j]) for j in range(X.shape[1])]
        for code in used:  # of the cuts of a direction, those are known that the tree has
            projection = X[own] @ oracles.boosted_direction(tree, code, X.shape[1])
            columns.append((projection, tree["threshold"][tree["direction"] == code]))
        best = oracles.best_boosted_gain(columns, derivative[own], l2, min_leaf)
        if is_leaf[node]:
            depth_left = reached[:, np.flatnonzero(reached[node])[0]].sum() <= 3
            assert best < 1e-4 or not depth_left
            continue
        split = (tree["child"][node] - 1) // 2
        left = reached[tree["child"][node]][own]
        gain = tree["gain"][split]
        assert gain == pytest.approx(oracles.boosted_gain(derivative[own], left, l2), rel=1e-4)
        assert gain >= best * (1 - 1e-4) - 1e-6
        if not n_directions:
            assert gain == pytest.approx(best, rel=1e-4)
    return tree


@pytest.mark.parametrize("n_outputs", [1, 3])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_splits_have_the_largest_gain_of_the_node(n_outputs, seed):
    """Whole numbers: ties, equal rows and constant columns."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, rng.integers(1, 12, size=3) + 1, size=(40, 3)).astype(np.float32)
    curvature = rng.integers(1, 4, size=(40, 1)) / 4
    derivative = np.hstack([rng.integers(-3, 4, size=(40, n_outputs)), curvature])
    rows = np.sort(rng.choice(40, 30, replace=False))
    min_leaf = int(rng.integers(1, 6))
    check_tree(X, derivative, rows, 0, min_leaf, seed % 2**31)
    check_tree(X, derivative, rows, 0, min_leaf, seed % 2**31, max_bins=4)


@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("seed", range(20))
def test_directions_are_split_where_they_gain_more(n_outputs, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(80, 3)).astype(np.float32)
    derivative = np.hstack([rng.normal(size=(80, n_outputs)), rng.uniform(0.1, 1, size=(80, 1))])
    rows = np.sort(rng.choice(80, 60, replace=False))
    check_tree(X, derivative.astype(np.float32), rows, 8, int(rng.integers(1, 6)), seed % 2**31)


def test_an_oblique_boundary_is_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    derivative = np.column_stack([np.sign(X[:, 0] - X[:, 1]), np.ones(500)])
    gains = []
    for n_directions in (0, 100):
        tree, _, _ = grow_boosted(X, derivative, n_directions=n_directions, max_depth=1)
        gains.append(tree["gain"][0])
    assert gains[1] > 1.5 * gains[0]


def best_first(tree, max_leaves):
    """Nodes that are split if the leaf of largest gain is split next, and their gains."""
    gain = {node: tree["gain"][(child - 1) // 2] for node, child in enumerate(tree["child"])}
    leaves, split = {0}, []
    while len(leaves) < max_leaves:
        node = max((n for n in leaves if tree["child"][n] >= 0), key=gain.get)
        leaves = leaves - {node} | {tree["child"][node], tree["child"][node] + 1}
        split.append(node)
    return split, [gain[node] for node in split]


@pytest.mark.parametrize("monotonic", [None, np.array([1, 0, -1], dtype=np.int8)])
@pytest.mark.parametrize("max_leaves", [2, 3, 5, 9, 17])
def test_the_leaf_of_largest_gain_is_split_next(max_leaves, monotonic):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    derivative = np.column_stack([np.exp(X @ [2, 0.5, -1]) + rng.normal(size=600), np.ones(600)])
    options = {"rows": np.arange(0, 600, 2), "min_leaf": 2, "max_depth": 9, "n_directions": 4}
    options["monotonic"] = monotonic
    whole, leaf_of_whole, *_ = grow_boosted(X, derivative, **options)
    tree, leaf, *_ = grow_boosted(X, derivative, max_leaves=max_leaves, **options)
    assert (tree["child"] < 0).sum() == max_leaves
    split, gains = best_first(whole, max_leaves)
    np.testing.assert_array_equal(tree["gain"], gains)
    reached, expected = (oracles.boosted_nodes(t, X) for t in (tree, whole))
    in_order = np.argsort(tree["child"])[max_leaves:]  # a node that is split has its children next
    np.testing.assert_array_equal(reached[in_order], expected[split])
    np.testing.assert_array_equal(leaf, reached[tree["child"] < 0].argmax(axis=0))
    # Level by level, other nodes would be split: deeper ones gain more.
    assert max_leaves < 9 or split != sorted(split)


def test_limits_of_the_leaves_and_the_depth():
    X, y = rows_of(ObliqueBoostingRegressor, 400)
    own = {"min_samples_leaf": 2, "early_stopping": False, "n_estimators": 5}
    model = quick(ObliqueBoostingRegressor, max_leaf_nodes=10, max_depth=None, **own).fit(X, y)
    assert (model.forest_.n_leaves == 10).all() and model.forest_.max_depth.max() > 4
    model.set_params(max_depth=4, interaction_cst="no_interactions").fit(X, y)
    assert model.forest_.n_leaves.max() == 10 and model.forest_.max_depth.max() == 4
    # A limit that the depth implies has no influence.
    model.set_params(max_depth=3, max_leaf_nodes=8).fit(X, y)
    assert_same_trees(model, clone(model).set_params(max_leaf_nodes=None).fit(X, y))


def test_the_depth_is_chosen_on_held_out_rows(monkeypatch):
    """Whether many features interact decides, with enough rows and early stopping."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (1500, 8)).astype(float)
    table = rng.normal(size=64)[(X[:, :6] @ 2 ** np.arange(6)).astype(int)]
    additive = X @ rng.normal(size=8) + rng.normal(size=1500)
    depth_of = {}
    for n_least in (1400, 1600):
        monkeypatch.setattr(skforest.boosting, "MIN_DEPTH_ROWS", n_least)
        for name, target in (("table", table), ("additive", additive)):
            X_own = np.column_stack([X, rng.normal(size=1500)])  # no equal rows
            own = {"n_estimators": 60, "n_bags": 1, "n_directions": 0}
            model = quick(ObliqueBoostingRegressor, **own).fit(X_own, target)
            depth_of[name, n_least] = model.max_depth_
            assert model.forest_.max_depth.max() <= model.max_depth_
    assert depth_of["table", 1400] > 4
    assert {depth for case, depth in depth_of.items() if case != ("table", 1400)} == {4}
    monkeypatch.setattr(skforest.boosting, "MIN_DEPTH_ROWS", 1400)
    for own, expected in (
        ({"max_leaf_nodes": 9}, None),
        ({"early_stopping": False}, 4),
        ({"max_depth": 3}, 3),
        ({"max_depth": None}, None),
    ):
        model = quick(ObliqueBoostingRegressor, n_estimators=3, n_bags=1, **own)
        assert model.fit(X_own, table).max_depth_ == expected


def test_an_earlier_fit_does_not_change_the_depth(monkeypatch):
    """It has left linear functions, which sparse rows cannot have."""
    monkeypatch.setattr(skforest.boosting, "MIN_DEPTH_ROWS", 300)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    y = X @ rng.normal(size=5) + 0.1 * np.sin(4 * X[:, 0])
    model = quick(ObliqueBoostingRegressor, n_estimators=30).fit(X, y)
    assert model.linear_leaves_ and model.linear_start_
    for rows in (X, sparse.csr_matrix(X)):
        assert_same_trees(model.fit(rows, y), clone(model).fit(rows, y))


def test_a_warm_start_keeps_the_depth(monkeypatch):
    monkeypatch.setattr(skforest.boosting, "MIN_DEPTH_ROWS", 100)
    monkeypatch.setattr(skforest.boosting, "DEPTHS", (3,))
    X, y = rows_of(ObliqueBoostingRegressor, 200)
    model = quick(ObliqueBoostingRegressor, n_bags=1, n_estimators=4, warm_start=True).fit(X, y)
    monkeypatch.setattr(skforest.boosting, "DEPTHS", (2,))
    assert model.set_params(n_bags=2).fit(X, y).max_depth_ == 3
    assert model.set_params(n_bags=3, max_leaf_nodes=6).fit(X, y).max_depth_ is None
    assert model.set_params(n_bags=4, max_leaf_nodes=None).fit(X, y).max_depth_ == 2
    del model.max_depth_  # as in pickles of earlier versions
    assert model.set_params(n_bags=5).fit(X, y).max_depth_ == 2


# ------------------------------------------------------------------------------------------ losses


def kernel_of(name, n_outputs):
    if name == "binary":
        return losses.BoostedLogLoss(2).kernel_loss()
    parameters = {"delta": 1.35, "quantile": 0.3, "power": 1.4, "label_smoothing": 0.1}
    kind = losses.LOSSES[name]
    return kind(n_outputs, **{p: parameters[p] for p in kind.parameters}).kernel_loss()


@pytest.mark.parametrize("name", [*LOSSES, "log_loss", "binary"])
def test_derivatives_are_finite_differences(name):
    rng = np.random.default_rng(0)
    n_outputs = 1 if name == "binary" else 3
    kernel = kernel_of(name, n_outputs)
    raw, y = rng.normal(size=(50, n_outputs)), rng.gamma(1.0, size=(50, n_outputs))
    if name == "log_loss":
        y = rng.integers(0, 3, size=(50, 1)).astype(float)
    if name == "binary":
        y = rng.integers(0, 2, size=(50, 1)).astype(float)
    weight = rng.uniform(0.5, 2, size=50)
    gradient = np.zeros((50, n_outputs), dtype=np.float32)
    curvature = np.zeros((50, n_outputs), dtype=np.float32)
    kernel.derive(raw, y, weight, gradient, curvature)
    has_curve = name not in ("squared_error", "absolute_error", "huber", "quantile")
    step = 1e-5
    if name in ("gamma", "tweedie"):  # their curvatures are those of targets equal to the mean
        expected = np.zeros_like(curvature)
        kernel.derive(raw, np.exp(raw), weight, np.zeros_like(gradient), expected)
        np.testing.assert_array_equal(curvature, expected)
        curve_y = np.exp(raw)
    else:
        curve_y = y
    for k in range(n_outputs):
        shift = step * np.eye(n_outputs)[k]
        above, below = (kernel.evaluate(raw + s, y)[0] for s in (shift, -shift))
        slope = (above - below) / (2 * step)
        np.testing.assert_allclose(gradient[:, k], weight * slope, rtol=1e-4, atol=1e-5)
        above, below = (kernel.evaluate(raw + s, curve_y)[1][:, k] for s in (shift, -shift))
        curve = (above - below) / (2 * step) if has_curve else np.ones(50)
        np.testing.assert_allclose(curvature[:, k], weight * curve, rtol=1e-4, atol=1e-5)


def test_losses_estimate_mean_median_and_quantile():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    y = X[:, 0] + rng.exponential(2.0, size=1500)
    aims = {
        ("squared_error", 0.5): (2.0, 0.4),
        ("absolute_error", 0.5): (2 * np.log(2), 0.4),
        ("quantile", 0.9): (2 * np.log(10), 0.9),
        ("huber", 0.5): (1.7, 0.5),
    }
    fresh = rng.normal(size=(1000, 2))
    for (loss, quantile), (shift, tolerance) in aims.items():
        options = {"loss": loss, "quantile": quantile, "n_estimators": 40}
        model = quick(ObliqueBoostingRegressor, **options).fit(X, y)
        assert abs((model.predict(fresh) - fresh[:, 0]).mean() - shift) < tolerance, loss


@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
def test_losses_with_a_log_link_predict_positive_means(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    mean = np.exp(X[:, 0])
    y = rng.gamma(2.0, mean / 2) if loss == "gamma" else rng.poisson(mean).astype(float)
    model = quick(ObliqueBoostingRegressor, loss=loss, n_estimators=40).fit(X, y)
    predicted = model.predict(X)
    assert predicted.min() > 0
    assert np.corrcoef(np.log(predicted), X[:, 0])[0, 1] > 0.9
    assert np.mean(predicted / mean) == pytest.approx(1, abs=0.25)
    needed = "positive y" if loss == "gamma" else "y of 0 or more"
    with pytest.raises(ValueError, match=f"'{loss}' needs {needed}"):
        clone(model).fit(X, -y)


@pytest.mark.parametrize("n_bags", [1, 3])
@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
def test_means_of_predictions_are_those_of_targets(loss, n_bags):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    mean = np.exp(np.sin(2 * X[:, 0]) + X[:, 1])
    y = rng.gamma(1.0, mean) if loss == "gamma" else rng.poisson(mean).astype(float)
    model = quick(ObliqueBoostingRegressor, loss=loss, n_bags=n_bags, n_estimators=60)
    model.fit(X[:1000], y[:1000])
    assert model.predict(X[1000:]).mean() == pytest.approx(mean[1000:].mean(), rel=0.1)
    data = copy.deepcopy(model)._prepare(X[:1000], y[:1000], None)
    if n_bags == 1:
        assert model.predict(X[:1000]).mean() == pytest.approx(y[:1000].mean(), rel=1e-6)
    else:
        fold = balanced_folds(data.y[:, 0], 3, model._seed)
        members = [model._member(bag).response_mapped(data.X[fold == bag]) for bag in range(3)]
        assert np.concatenate(members).mean() == pytest.approx(y[:1000].mean(), rel=1e-6)


@pytest.mark.parametrize("n_bags", [1, 3])
@pytest.mark.parametrize("levels", [0.9, [0.9, 0.1]])
def test_quantiles_are_calibrated_on_held_out_rows(levels, n_bags, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 3))
    y = np.sin(3 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=2000)
    seen = []

    def recorded(forest, calibration):
        seen.append((forest, calibration))
        return calibrated(forest, calibration)

    calibrated = training_module.calibrated
    monkeypatch.setattr(training_module, "calibrated", recorded)
    model = quick(ObliqueBoostingRegressor, loss="quantile", quantile=levels, n_bags=n_bags)
    model.set_params(n_estimators=50, n_directions=4, n_iter_no_change=9).fit(X[:300], y[:300])
    ((plain, calibration),) = seen
    before, after = plain.response(X[300:]), model.forest_.response(X[300:])
    np.testing.assert_allclose(after, before + calibration.added(before), atol=1e-5)
    if n_bags > 1:
        data = copy.deepcopy(model)._prepare(X[:300], y[:300], None)
        fold = balanced_folds(data.y[:, 0], 3, model._seed)
        members = [plain[slice(*plain.bag_start[bag : bag + 2])] for bag in range(3)]
        of_bag = [(data.y[fold == b], m.response_mapped(data.X[fold == b]), data.weight[fold == b])
                  for b, m in enumerate(members)]  # fmt: skip
        expected = model._make_loss().calibration(of_bag)
        np.testing.assert_array_equal(calibration.shift, expected.shift)
        np.testing.assert_array_equal(calibration.slope, expected.slope)
    below, plain_below = ((y[300:, None] <= f).mean(axis=0) for f in (after, before))
    aims = np.atleast_1d(levels)
    if n_bags == 3:  # a single bag is calibrated on 60 rows
        assert (np.abs(below - aims) < 0.05).all()
        assert (np.abs(below - aims) < np.abs(plain_below - aims)).all()


def test_shifts_of_quantiles_are_quantiles_of_residuals():
    rng = np.random.default_rng(0)
    loss = losses.Quantile(1, quantile=0.9)
    parts = [(rng.normal(size=(99, 1)), np.zeros((99, 1)), np.ones(99)) for _ in range(5)]
    found = loss.calibration(parts[:1])
    below = (parts[0][0] < found.shift).sum()
    assert below == 90 or below == 89
    assert not found.slope.any()
    # The mean of several bags has smaller errors than each of them.
    whole = loss.calibration([tuple(map(np.concatenate, zip(*parts)))])
    np.testing.assert_allclose(loss.calibration(parts).shift, (1 - 0.3 * 0.8) * whole.shift)
    # What the other bags suggest must not increase the loss of the rows of a bag.
    other = [(sign * np.full((50, 1), 5.0), np.zeros((50, 1)), np.ones(50)) for sign in (1, -1)]
    assert loss.calibration(other).shift == 0


def test_shifts_grow_with_the_width_between_quantiles():
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.1, 3, size=(2000, 1))
    y, aims = scale * rng.normal(size=(2000, 1)), 1.28 * scale * [1, -1]
    loss = losses.Quantiles([0.9, 0.1])
    parts = [(y[own], aims[own] / 2, np.ones(1000)) for own in (slice(1000), slice(1000, None))]
    found = loss.calibration(parts)
    moved = aims / 2 + found.added(aims / 2)
    plain = loss._pinball(y - aims / 2 - (aims / 2).mean(axis=0)).mean()
    assert loss._pinball(y - moved).mean() < plain
    assert found.slope[0] > 0 > found.slope[1] and found.shift[0] > 0 > found.shift[1]


class OwnLogCosh(skforest.Loss):
    def loss(self, y, raw):
        return (np.logaddexp(raw - y, y - raw) - np.log(2)).sum(axis=1)

    def gradient_hessian(self, y, raw):
        slope = np.tanh(raw - y)
        return slope, 1 - slope**2

    def initial(self, y, weight):
        return np.median(y, axis=0)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_a_loss_of_the_user_is_the_built_in_one(n_outputs):
    X, y = rows_of(ObliqueBoostingRegressor)
    y = y if n_outputs == 1 else np.stack([y, X[:, 0] - X[:, 1]], axis=1)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    options = {"linear_leaves": False, "linear_start": None}
    plain = quick(ObliqueBoostingRegressor, **options).fit(X, y, weight)
    model = quick(ObliqueBoostingRegressor, loss=OwnSquaredError()).fit(X, y, weight)
    scale = np.std(y, axis=0)
    if n_outputs == 1:  # with several, the units of the outputs differ
        np.testing.assert_allclose(model.predict(X) / scale, plain.predict(X) / scale, atol=1e-5)
        assert model.n_iter_ == plain.n_iter_
    assert model.score(X, y) > 0.5
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_losses_of_the_user_train(tmp_path):
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss=OwnLogCosh(), n_jobs=2).fit(X, y)
    assert model.score(X, y) > 0.5
    assert all(curve[0] > curve[-1] for curve in model.loss_curve_)
    *_, last = model.staged_predict(X)
    np.testing.assert_array_equal(last, model.predict(X))
    with pytest.raises(TypeError, match="loss is a OwnLogCosh, which cannot be saved"):
        save(model, tmp_path / "model")
    counts = np.random.default_rng(0).poisson(np.exp(X[:, 0]))
    # Penalties differ, as "poisson" divides targets by their mean.
    options = {"n_bags": 1, "early_stopping": False, "l2_regularization": 0.0}
    own = quick(ObliqueBoostingRegressor, loss=OwnPoisson(), **options).fit(X, counts)
    plain = quick(ObliqueBoostingRegressor, loss="poisson", **options).fit(X, counts)
    ratio = own.predict(X) / plain.predict(X)  # constant: "poisson" is calibrated
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)


def test_links_of_user_losses_are_applied_everywhere_or_refused():
    """Blends average predictions; exports and explanations of predictions are refused."""
    X = np.random.default_rng(0).normal(size=(120, 4))
    y = np.exp(X[:, 0]) + X[:, 1] ** 2
    model = ObliqueBoostingRegressor(30, loss=OwnPoisson(), n_bags=1, random_state=0)
    members = [("own", model), ("forest", skforest.ManifoldForestRegressor(5))]
    blend = skforest.BlendedForestRegressor(members=members, random_state=0).fit(X, y)
    weighted = sum(
        blend.weights_[name] * member.predict(X) for name, member in blend.members_.items()
    )
    np.testing.assert_allclose(blend.predict(X), weighted, rtol=1e-12)
    assert blend.weights_["own"] > 0.5
    rows = X.astype(np.float32)
    model.fit(rows, y)
    assert (model.predictor().predict(rows) == model.predict(rows)).all()
    values = skforest.shapley_values(model, rows[:2], rows[:9])
    raw = np.log(model.predict(rows[:2]))
    np.testing.assert_allclose(values.base_values + values.values.sum(1), raw, atol=1e-6)
    for function in (
        skforest.to_c,
        skforest.to_dict,
        lambda model: skforest.shapley_values(model, rows[:2], units="response"),
        lambda model: skforest.shapley_values(blend, rows[:2]),
    ):
        with pytest.raises((TypeError, ValueError), match="loss|its forest alone"):
            function(model)


@pytest.mark.parametrize(
    "method, wrong, message",
    [
        ("gradient_hessian", lambda y, raw: raw - y, "must return two arrays"),
        ("gradient_hessian", lambda y, raw: (raw[:, 0], raw[:, 0]), "returned shape"),
        ("gradient_hessian", lambda y, raw: (raw, raw - np.inf), "infinite"),
        ("gradient_hessian", lambda y, raw: (raw, -np.ones_like(raw)), "second derivative of -1"),
        ("loss", lambda y, raw: 0.0, "loss returned shape"),
        ("initial", lambda y, weight: 0.0, "initial returned shape"),
    ],
)
def test_wrong_results_of_losses_of_the_user(method, wrong, message):
    X, y = rows_of(ObliqueBoostingRegressor)
    loss = OwnSquaredError()
    setattr(loss, method, wrong)
    with pytest.raises(ValueError, match=f"OwnSquaredError.*{message}"):
        quick(ObliqueBoostingRegressor, loss=loss).fit(X, y)


def test_an_inverse_link_must_keep_the_shape():
    class Flat(OwnSquaredError):
        def inverse_link(self, raw):
            return raw[:, 0]

    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss=Flat()).fit(X, y)
    with pytest.raises(ValueError, match=r"Flat.inverse_link returned shape \(150,\), expected"):
        model.predict(X)


# ---------------------------------------------------------------------------------------- training


@pytest.mark.parametrize("subsample", [0.5, 1.0])
@pytest.mark.parametrize("task", ["regression", "outputs", "poisson", "binary", "classes", "many"])
def test_raw_predictions_of_training_are_those_of_the_forest(task, subsample, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4))
    y = {
        "regression": X[:, 0] + X[:, 1],
        "outputs": np.column_stack([X[:, 0] - X[:, 1], 1e6 * X[:, 2]]),
        "poisson": rng.poisson(np.exp(X[:, 0])),
        "binary": X[:, 0] > X[:, 1],
        "classes": np.digitize(X[:, 0] + X[:, 1], [-1, 0, 1]),
        "many": np.digitize(X[:, 0] + X[:, 1], [-2, -1, -0.5, 0, 0.5, 1, 2]),
    }[task]
    is_class = task in ("binary", "classes", "many")
    cls = ObliqueBoostingClassifier if is_class else ObliqueBoostingRegressor
    seen = []
    packed = cls._packed

    def recorded(self, training, data):
        forest = packed(self, training, data)
        seen.append((training, data, forest.response_mapped(data.X)))
        return forest

    monkeypatch.setattr(cls, "_packed", recorded)
    options = {"loss": "poisson"} if task == "poisson" else {}
    quick(cls, n_bags=1, early_stopping=False, subsample=subsample, **options).fit(X, y)
    ((training, data, found),) = seen
    raw, units = training.raw, data.units
    expected = {
        "regression": lambda: data.baseline + raw * units.response,
        "outputs": lambda: data.baseline + raw * units.response,
        "poisson": lambda: np.exp(units.baseline + raw),
        "binary": lambda: np.hstack([expit(-raw), expit(raw)]),
    }.get(task, lambda: softmax(raw, axis=1))()
    scale = 1 if is_class else np.abs(expected).max(axis=0)
    np.testing.assert_allclose(found / scale, expected / scale, atol=2e-6)


@BOTH
@pytest.mark.parametrize("n_bags", [1, 3])
def test_weights_equal_copies_and_order_and_threads_have_no_influence(cls, n_bags, monkeypatch):
    X, y = rows_of(cls, 80)
    k = np.random.default_rng(0).integers(0, 4, len(X))
    model = quick(cls, n_bags=n_bags).fit(X, y, sample_weight=k)
    order = np.random.default_rng(1).permutation(k.sum())
    assert_same_trees(
        model, clone(model).fit(np.repeat(X, k, axis=0)[order], np.repeat(y, k)[order])
    )
    assert_same_trees(model, clone(model).fit(X[k > 0], y[k > 0], k[k > 0]))
    assert_same_trees(model, clone(model).set_params(n_jobs=2).fit(X, y, k))
    assert_same_trees(model, clone(model).fit(np.tile(X, (2, 1)), np.tile(y, 2), np.tile(k, 2)))
    scaled = clone(model).fit(X, y, k * 2.0**-900)
    np.testing.assert_array_equal(scaled.forest_.response(X), model.forest_.response(X))
    # Threads inside a bag.
    monkeypatch.setattr(training_module, "MIN_THREADED", 0)
    assert_same_trees(model, clone(model).set_params(n_jobs=2 * n_bags).fit(X, y, k))


@pytest.mark.parametrize("n_bags", [1, 3])
def test_early_stopping_keeps_the_rounds_of_least_validation_loss(n_bags):
    """Labels are noise, so the loss of held-out rows soon rises."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)), rng.integers(2, size=200)
    options = {"n_estimators": 200, "n_iter_no_change": 5, "n_bags": n_bags}
    model = quick(ObliqueBoostingClassifier, **options).fit(X, y)
    assert len(model.n_iter_) == len(model.validation_scores_) == n_bags
    for scores, n_iter in zip(model.validation_scores_, model.n_iter_):
        best = int(scores.argmax())
        # Several bags keep 1.5 times the best rounds, since their mean overfits later. A single
        # bag is trained again on all rows, by rounds in proportion to these.
        assert len(scores) - 1 - best == max(5, np.ceil(best / 2) if n_bags > 1 else 0)
        assert n_iter == (int(1.5 * best) if n_bags > 1 else np.ceil(best * 200 / 160))
    n_trees = np.diff(model.forest_.bag_start)
    np.testing.assert_array_equal(n_trees, np.maximum(model.n_iter_, 1))
    plain = clone(model).set_params(early_stopping=False).fit(X, y)
    assert plain.n_iter_ == [200] * n_bags
    assert all(len(scores) == 0 for scores in plain.validation_scores_)
    fresh = rng.normal(size=(500, 5))
    certainty = [m.predict_proba(fresh).max(axis=1).mean() for m in (model, plain)]
    assert certainty[0] < certainty[1] - 0.1


def test_validation_scores_are_losses_of_held_out_rows():
    X, y = rows_of(ObliqueBoostingClassifier)
    model = quick(ObliqueBoostingClassifier, n_bags=3, n_iter_no_change=100).fit(X, y)
    data = copy.deepcopy(model)._prepare(X, y, None)
    fold = balanced_folds(data.y[:, 0], 3, model._seed)
    for bag, scores in enumerate(model.validation_scores_):
        forest = model._member(bag)
        own = fold == bag
        found = -log_loss(data.y[own, 0], forest.response_mapped(data.X[own]), labels=[0, 1, 2])
        assert found == pytest.approx(scores[model.n_iter_[bag]], rel=1e-5)


# ---------------------------------------------------------------------- rows for early stopping


@BOTH
@pytest.mark.parametrize("n_bags", [1, 2])
def test_early_stopping_on_given_rows(cls, n_bags):
    X, y = rows_of(cls, 260)
    given = {"X_val": X[160:], "y_val": y[160:]}
    model = quick(cls, n_bags=n_bags, n_estimators=300, n_iter_no_change=5)
    model.fit(X[:160], y[:160], **given)
    for scores, n_iter in zip(model.validation_scores_, model.n_iter_):
        best = int(scores.argmax())
        assert n_iter == (min(int(1.5 * best), 300) if n_bags > 1 else best) and n_iter > 0
    if cls is ObliqueBoostingClassifier and n_bags == 1:
        found = -log_loss(y[160:], model.predict_proba(X[160:]))
        assert found == pytest.approx(model.validation_scores_[0].max(), rel=1e-5)
    # All rows of X train, and none of X_val: so many rounds without early stopping are the same.
    plain = clone(model).set_params(early_stopping=False, n_bags=1, n_estimators=model.n_iter_[0])
    linear = {"linear_leaves": model.linear_leaves_, "linear_start": model.linear_start_}
    plain.set_params(**linear).fit(X[:160], y[:160])
    first = model._member(0)
    np.testing.assert_array_equal(first.response(X), plain.forest_.response(X))
    # Copies of rows are weights, and the order has no influence.
    k = np.random.default_rng(0).integers(1, 4, 100)
    weighted = clone(model).fit(X[:160], y[:160], **given, sample_weight_val=k)
    order = np.random.default_rng(1).permutation(k.sum())
    copies = [np.repeat(part, k, axis=0)[order] for part in (X[160:], y[160:])]
    again = clone(model).fit(X[:160], y[:160], X_val=copies[0], y_val=copies[1])
    assert_same_trees(weighted, again)
    assert "_given_validation" not in vars(model)


def test_given_rows_may_be_tables_with_missing_values_and_categories():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green", "red"], size=400)
    frame = pandas.DataFrame({"x": rng.normal(size=400), "colour": pandas.Categorical(colour)})
    y = frame["x"] + 2 * (colour == "green")
    frame.loc[::7, "x"] = np.nan
    model = quick(ObliqueBoostingRegressor, n_estimators=60)
    model.fit(frame[:250], y[:250], X_val=frame[250:], y_val=y[250:])
    assert model.score(frame[250:], y[250:]) > 0.7
    with pytest.raises(ValueError, match="X_val"):
        model.fit(frame[:250], y[:250], X_val=frame[250:][["x"]], y_val=y[250:])
    labels = np.where(y > 0.5, "high", "low")
    both = np.stack([labels, colour], axis=1)
    for target in (labels, both):
        other = quick(ObliqueBoostingClassifier)
        other.fit(frame[:250], target[:250], X_val=frame[250:], y_val=target[250:])
        assert max(other.n_iter_) > 0


@pytest.mark.parametrize(
    "given, message",
    [
        ({"X_val": np.ones((5, 6))}, "y_val=None"),
        ({"y_val": np.ones(5)}, "X_val=None"),
        ({"sample_weight_val": np.ones(5)}, "X_val=None"),
        ({"X_val": np.ones((5, 4)), "y_val": np.ones(5)}, "X_val has 4 features"),
        ({"X_val": np.ones((5, 6)), "y_val": np.ones(4)}, "X_val, y_val.*inconsistent"),
        ({"X_val": np.ones((5, 6)), "y_val": np.ones((5, 2))}, "y_val has 2 outputs"),
        ({"X_val": np.full((5, 6), np.inf), "y_val": np.ones(5)}, "X_val contains infinity"),
        (
            {"X_val": np.ones((5, 6)), "y_val": np.ones(5), "sample_weight_val": -np.ones(5)},
            "^sample_weight_val has the negative value",
        ),
    ],
)
def test_bad_rows_for_early_stopping(given, message):
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, **given)
    assert vars(model) == vars(clone(model))
    good = {"X_val": X, "y_val": y}
    with pytest.raises(ValueError, match="early_stopping=False takes no X_val"):
        model.set_params(early_stopping=False).fit(X, y, **good)
    assert model.set_params(early_stopping=np.True_).fit(X, y, **good).early_stopping_
    with pytest.raises(ValueError, match="y_val has labels .*7"):
        quick(ObliqueBoostingClassifier).fit(X, y > 10, X_val=X, y_val=np.full(len(y), 7))


def test_rows_for_early_stopping_are_routed_as_metadata():
    X, y = rows_of(ObliqueBoostingRegressor)
    with config_context(enable_metadata_routing=True):
        model = quick(ObliqueBoostingRegressor).set_fit_request(X_val=True, y_val=True)
        pipeline = Pipeline([("scale", StandardScaler()), ("model", model)])
        pipeline.set_params(transform_input=["X_val"])
        pipeline.fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
    scale = StandardScaler().fit(X[:100])
    plain = clone(model).fit(
        scale.transform(X[:100]), y[:100], X_val=scale.transform(X[100:]), y_val=y[100:]
    )
    assert_same_trees(pipeline[-1], plain)


@pytest.mark.parametrize("n_bags", [1, 3])
def test_loss_curves_are_losses_of_training_rows(n_bags):
    X, y = rows_of(ObliqueBoostingClassifier)
    weight = np.random.default_rng(0).integers(1, 4, len(y))
    options = {"n_bags": n_bags, "n_iter_no_change": 100, "learning_rate": 0.05}
    model = quick(ObliqueBoostingClassifier, **options).fit(X, y, weight)
    data = copy.deepcopy(model)._prepare(X, y, weight)
    fold = balanced_folds(data.y[:, 0], 3, model._seed) if n_bags > 1 else None
    for bag, curve in enumerate(model.loss_curve_):
        forest, own = model._member(bag), np.ones(len(data), dtype=bool)
        if n_bags > 1:
            own = fold != bag
            assert curve.shape == model.validation_scores_[bag].shape
        found = log_loss(
            data.y[own, 0],
            forest.response_mapped(data.X[own]),
            sample_weight=data.weight[own],
            labels=[0, 1, 2],
        )
        assert found == pytest.approx(curve[model.n_iter_[bag]], rel=1e-5)
        assert curve[0] > curve[-1]
    unseen = quick(ObliqueBoostingClassifier, early_stopping=False, n_bags=n_bags).fit(X, y)
    assert [len(curve) for curve in unseen.loss_curve_] == [21] * n_bags


@BOTH
def test_more_bags_by_warm_start(cls):
    X, y = rows_of(cls)
    model = quick(cls, early_stopping=False, warm_start=True).fit(X, y)
    model.set_params(n_bags=4).fit(X, y)
    assert_same_trees(model, quick(cls, early_stopping=False, n_bags=4).fit(X, y))
    assert len(model.n_iter_) == len(model.validation_scores_) == len(model.loss_curve_) == 4
    with pytest.raises(ValueError, match="n_bags=3 must be larger or equal to the 4"):
        copy.deepcopy(model).set_params(n_bags=3).fit(X, y)
    with pytest.warns(UserWarning, match="without increasing n_bags") as warned:
        model.fit(X, y)
    assert warned[0].filename == __file__


CONTINUED = {
    "several bags": {},
    "one bag, trained again": {"n_bags": 1},
    "ended early": {"n_iter_no_change": 2, "early_stopping": True},
    "one bag ended early": {"n_bags": 1, "n_iter_no_change": 2},
    "all rounds": {"early_stopping": False},
    "one bag, all rounds": {"early_stopping": False, "n_bags": 1},
    "given rows": {"X_val": True},
    "constants": {"linear_leaves": False, "max_features": 0.5, "max_leaf_nodes": 5},
    "slopes": {"linear_leaves": True, "subsample": 1.0},
    "linear start": {"linear_start": 100.0},
    "linear start, slopes": {"linear_start": 100.0, "linear_leaves": True, "n_bags": 1},
    "binary, linear start": {"target": "binary", "linear_start": 100.0},
    "slopes, all rounds": {"linear_leaves": True, "early_stopping": False},
    "groups": {"interaction_cst": [{0, 1}, {2, 3}]},
    "monotonic": {"monotonic_cst": [1, 0, 0, 0, 0, 0], "target": "binary"},
    "binary": {"target": "binary", "linear_leaves": True},
    "seven": {"target": "seven"},
    "outputs": {"target": "outputs"},
    "poisson": {"loss": "poisson"},
    "quantiles": {"loss": "quantile", "quantile": np.array([0.1, 0.9])},
    "sparse": {"sparse": True},
}


def assert_same_fit(a, b):
    assert_same_trees(a, b)
    assert a.n_iter_ == b.n_iter_ and a.linear_leaves_ == b.linear_leaves_
    for name in ("validation_scores_", "loss_curve_"):
        for one, other in zip(getattr(a, name), getattr(b, name), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("case", CONTINUED.values(), ids=CONTINUED)
def test_more_rounds_by_warm_start(case):
    """Training that continues has the bits of training at once."""
    case = dict(case)
    target, fit = case.pop("target", None), {}
    X, y = rows_of(ObliqueBoostingRegressor, 120)
    if target in ("binary", "seven"):
        y = np.digitize(y, np.quantile(y, [0.5] if target == "binary" else np.arange(1, 7) / 7))
    elif target == "outputs":
        y = np.stack([y, X[:, 0]], axis=1)
    if case.pop("sparse", False):
        X = sparse.csr_matrix(np.where(X > 0.5, X, 0))
    if case.pop("X_val", False):
        fit = {"X_val": X[80:], "y_val": y[80:]}
        X, y = X[:80], y[:80]
    is_class = target in ("binary", "seven")
    cls = ObliqueBoostingClassifier if is_class else ObliqueBoostingRegressor
    model = quick(cls, n_estimators=4, warm_start=True, **case).fit(X, y, **fit)
    # "auto" is resolved by the first fit.
    resolved = {"linear_leaves": model.linear_leaves_, "linear_start": model.linear_start_}
    for n in (8, 15):
        model = pickle.loads(pickle.dumps(model))
        model.set_params(n_estimators=n).fit(X, y, **fit)
    at_once = quick(cls, n_estimators=15, **case | resolved)
    assert_same_fit(model, at_once.fit(X, y, **fit))
    assert "_continues_rounds" not in vars(model)


@pytest.mark.parametrize("early_stopping", [False, True])
def test_rounds_of_the_last_fit_are_not_trained_again(early_stopping, monkeypatch):
    X, y = rows_of(ObliqueBoostingRegressor)
    options = {"n_bags": 1, "linear_leaves": False, "n_iter_no_change": 100}
    model = quick(ObliqueBoostingRegressor, early_stopping=early_stopping, **options)
    model.set_params(warm_start=True).fit(X, y)
    (n_before,), (scores,) = model.n_iter_, model.validation_scores_
    grown = training_module.BoostingTraining._grow_tree
    numbers = []

    def counted(self, number, *others):
        numbers.append(number)
        return grown(self, number, *others)

    monkeypatch.setattr(training_module.BoostingTraining, "_grow_tree", counted)
    model.set_params(n_estimators=28).fit(X, y)
    (n_after,) = model.n_iter_
    assert n_after > n_before
    # Of the training that is stopped early, trees after the best round were not kept.
    validating = [*range(scores.argmax(), 28)] if early_stopping else []
    assert numbers == validating + [*range(n_before, n_after)]


def test_a_bag_without_rounds_is_pickled_and_continued():
    X = np.random.default_rng(0).normal(size=(120, 3))
    options = {"n_bags": 1, "n_iter_no_change": 1, "warm_start": True}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, np.ones(120))
    assert model.n_iter_ == [0]
    more = pickle.loads(pickle.dumps(model)).set_params(n_estimators=30).fit(X, np.ones(120))
    np.testing.assert_array_equal(more.predict(X), model.predict(X))


@BOTH
def test_rounds_that_were_rounded_are_continued(cls, tmp_path):
    """Without the numbers before rounding, trees that exist are kept, and training continues."""
    X, y = rows_of(cls)
    for options in ({"early_stopping": False}, {"linear_leaves": True, "n_bags": 1}):
        model = quick(cls, n_estimators=8, **options).fit(X, y)
        save(model, tmp_path / "model")
        models = [model, load(tmp_path / "model")]
        for other in models:
            before = other.forest_
            other.set_params(warm_start=True, n_estimators=16).fit(X, y)
            own, old = other.forest_, before
            assert min(other.n_iter_) > max(model.n_iter_) - 1 and len(own) > len(old)
            first = own[: len(old) // other.n_bags_], old[: len(old) // other.n_bags_]
            np.testing.assert_allclose(*(f.response(X) for f in first), rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))
        at_once = quick(cls, n_estimators=16, **options).fit(X, y)
        assert abs(at_once.score(X, y) - model.score(X, y)) < 0.02


def test_rounds_and_bags_are_added_together():
    X, y = rows_of(ObliqueBoostingRegressor)
    options = {"early_stopping": False, "loss": "absolute_error"}
    model = quick(ObliqueBoostingRegressor, warm_start=True, **options).fit(X, y)
    model.set_params(n_bags=3, n_estimators=30).fit(X, y)
    at_once = quick(ObliqueBoostingRegressor, n_bags=3, n_estimators=30, **options)
    assert_same_fit(model, at_once.fit(X, y))


def test_what_a_warm_start_must_not_change():
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, warm_start=True).fit(X, y)
    before = vars(model).copy()
    for changes, message in (
        ({"n_estimators": 10}, "n_estimators=10 must be larger or equal to the 20 rounds"),
        ({"loss": "huber"}, "loss='huber', but .* a fit with loss='squared_error'"),
        ({"linear_leaves": True}, "linear_leaves=True, but"),
        ({"monotonic_cst": np.array([1, 0, 0, 0, 0, 0])}, "monotonic_cst=.*, but"),
        ({"early_stopping": True}, "early_stopping=True, but"),
        ({"n_bags": 3}, "n_estimators=30 cannot be increased .* n_bags=3"),
        ({"n_estimators": 20, "n_bags": 1}, "n_bags=1 must be larger or equal to the 2 already"),
    ):
        model.set_params(**{"n_estimators": 30} | changes)
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
        model.set_params(**{name: before[name] for name in {"n_estimators": 30} | changes})
        assert vars(model) == before
    with pytest.raises(ValueError, match="X_val='rows', but .* a fit with X_val=None"):
        model.set_params(n_estimators=30).fit(X, y, X_val=X, y_val=y)
    with pytest.raises(ValueError, match="last fit held out rows of X .* and 1 distinct rows, d"):
        model.fit(X[:1], y[:1])
    # Bags that were added hold out other rows than the first ones.
    model.set_params(n_estimators=20, n_bags=3).fit(X, y)
    with pytest.raises(ValueError, match="cannot be increased after"):
        model.set_params(n_estimators=30).fit(X, y)


@BOTH
def test_an_interrupted_fit_changes_nothing(cls, monkeypatch):
    X, y = rows_of(cls)
    model = quick(cls, n_bags=1).fit(X, y)
    before = vars(model).copy()
    boost = training_module.BoostingTraining._add_round

    def interrupted(self, number):
        if number == 3:
            raise KeyboardInterrupt
        boost(self, number)

    monkeypatch.setattr(training_module.BoostingTraining, "_add_round", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:100], y[:100])
    assert vars(model) == before
    fresh = clone(model)
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    assert not hasattr(fresh, "forest_")


def test_auto_is_resolved_from_the_number_of_distinct_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    model = ObliqueBoostingRegressor(2, random_state=0)
    assert model.fit(X, y).early_stopping_ and model.n_bags_ == 5
    assert not model.fit(np.tile(X[:19], (2, 1)), np.tile(y[:19], 2)).early_stopping_
    X, y = rng.normal(size=(20_000, 2)), rng.normal(size=20_000)
    assert model.fit(X, y).n_bags_ == 1


# ------------------------------------------------------------------------------- what models have


@BOTH
def test_fitted_models_in_files_and_plots(cls, tmp_path):
    X, y = rows_of(cls)
    model = quick(cls).fit(X, y)
    for layout in ("file", "folder"):
        skforest.save(model, tmp_path / layout, layout=layout)
        again = skforest.load(tmp_path / layout)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert again.n_iter_ == model.n_iter_ and again.get_params() == model.get_params()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    importances = model.feature_importances_
    assert importances.sum() == pytest.approx(1) and importances.min() >= 0
    leaves, (path, starts) = model.apply(X), model.decision_path(X)
    assert leaves.shape == (150, len(model.forest_))
    assert all(path[7, starts[t] + leaves[7, t]] == 1 for t in range(len(model.forest_)))
    pytest.importorskip("matplotlib")
    assert skforest.plot_tree(model) is not None


@BOTH
def test_data_frames_with_categories_and_missing_values(cls):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green", "red"], size=300)
    frame = pandas.DataFrame({"x": rng.normal(size=300), "colour": pandas.Categorical(colour)})
    signal = frame["x"] + 2 * (colour == "green")
    frame.loc[::7, "x"] = np.nan
    y = signal > 0.5 if cls is ObliqueBoostingClassifier else signal
    model = quick(cls, n_estimators=40).fit(frame[:200], y[:200])
    assert model.score(frame[200:], y[200:]) > 0.7
    assert model.feature_importances_.shape == (2,)


def test_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    Y = np.column_stack([X[:, 0] + X[:, 1], 1e8 * X[:, 2], np.full(200, 7.0)])
    model = quick(ObliqueBoostingRegressor, n_estimators=60).fit(X, Y)
    predicted = model.predict(X)
    assert predicted.shape == (200, 3) and (predicted[:, 2] == 7).all()
    assert all(np.corrcoef(predicted[:, k], Y[:, k])[0, 1] > 0.95 for k in (0, 1))
    labels = np.column_stack([X[:, 0] > 0, np.digitize(X[:, 1], [-0.5, 0.5])])
    model = quick(ObliqueBoostingClassifier, n_estimators=40).fit(X, labels)
    assert [p.shape for p in model.predict_proba(X)] == [(200, 2), (200, 3)]
    assert (model.predict(X) == labels).mean() > 0.9


def test_class_weights_are_weights():
    X, y = rows_of(ObliqueBoostingClassifier)
    model = quick(ObliqueBoostingClassifier, class_weight={0: 3}).fit(X, y)
    weighted = quick(ObliqueBoostingClassifier).fit(X, y, np.where(y == 0, 3, 1))
    # Means of the inputs, for missing values, are those without class weights.
    weighted.forest_.fill = model.forest_.fill
    assert_same_trees(model, weighted)


@pytest.mark.parametrize("scale", [1e-25, 1e-3, 1e3, 1e25])
def test_scales_of_the_target_do_not_matter(scale):
    """Up to the canonical order of the rows, which their draws depend on."""
    X, y = rows_of(ObliqueBoostingRegressor, 300)
    model = quick(ObliqueBoostingRegressor, n_estimators=40, n_bags=1, subsample=1.0)
    options = {"early_stopping": False, "n_directions": 0}
    plain = model.set_params(**options).fit(X, y).predict(X)
    found = clone(model).fit(X, y * scale).predict(X)
    np.testing.assert_allclose(found / scale, plain, rtol=1e-3)
    model.set_params(early_stopping=True, n_directions=10).fit(X, y * scale)
    assert model.score(X, y * scale) > 0.9


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("n_rows", [1, 2, 30])
def test_constant_targets_and_few_rows(loss, n_rows):
    X = np.random.default_rng(0).normal(size=(n_rows, 3))
    model = quick(ObliqueBoostingRegressor, loss=loss).fit(X, np.full(n_rows, 3.0))
    np.testing.assert_allclose(model.predict(X), 3.0, rtol=1e-6)
    assert not model.feature_importances_.any()
    model.set_params(min_samples_leaf=1, early_stopping=True).fit(X, np.arange(1.0, n_rows + 1))
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("n_rows", [1, 2, 30])
def test_one_class_and_few_rows(n_rows):
    X = np.random.default_rng(0).normal(size=(n_rows, 3))
    model = quick(ObliqueBoostingClassifier).fit(X, ["a"] * n_rows)
    assert set(model.predict(X)) == {"a"} and (model.predict_proba(X) == 1).all()
    y = np.arange(n_rows) % 2
    model = quick(ObliqueBoostingClassifier, min_samples_leaf=1, early_stopping=True).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1)


def test_several_quantiles():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    y = X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=1200)
    levels = [0.9, 0.1, 0.5]
    model = quick(ObliqueBoostingRegressor, loss="quantile", quantile=levels, n_estimators=60)
    model.fit(X[:800], y[:800])
    found = model.predict(X[800:])
    assert found.shape == (400, 3)
    assert (found[:, 1] <= found[:, 2]).all() and (found[:, 2] <= found[:, 0]).all()
    np.testing.assert_allclose((y[800:, None] < found).mean(axis=0), levels, atol=0.12)
    stages = list(model.staged_predict(X[:9]))
    np.testing.assert_array_equal(stages[-1], model.predict(X[:9]))
    weight = rng.integers(0, 3, size=400)
    expected = [
        d2_pinball_score(y[800:], column, sample_weight=weight, alpha=level)
        for column, level in zip(found.T, levels)
    ]
    assert model.score(X[800:], y[800:], weight) == pytest.approx(np.mean(expected), abs=1e-12)
    assert 0.2 < model.score(X[800:], y[800:]) < 1
    score = model.score(X[800:], y[800:])
    for changes in ({"quantile": [0.2, 0.8]}, {"quantile": 0.5}, {"loss": "squared_error"}):
        model.set_params(**changes)  # they matter for the next fit only
        np.testing.assert_array_equal(model.predict(X[800:]), found)
        assert model.score(X[800:], y[800:]) == score
    model.set_params(loss="quantile")
    one = clone(model).set_params(quantile=[0.9]).fit(X[:800], y[:800])
    plain = clone(model).set_params(quantile=0.9).fit(X[:800], y[:800])
    np.testing.assert_array_equal(one.predict(X)[:, 0], plain.predict(X))


def test_several_quantiles_in_files_and_of_tables(tmp_path):
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = pandas.Categorical(rng.choice(["blue", "green", "red"], size=200))
    frame = pandas.DataFrame({"x": rng.normal(size=200), "colour": colour})
    y = frame["x"] + 2 * (colour == "green")
    for levels in ([0.2, 0.8], (0.2, 0.8), np.array([0.2, 0.8])):
        model = quick(ObliqueBoostingRegressor, loss="quantile", quantile=levels).fit(frame, y)
        skforest.save(model, tmp_path / "model")
        again = skforest.load(tmp_path / "model")
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
        assert type(again.quantile) is type(levels)
        again.set_params(quantile=0.5)
        np.testing.assert_array_equal(again.predict(frame), model.predict(frame))
    for damaged in ([0.5], [0.2, "a"], 3):
        again._quantiles = damaged
        skforest.save(again, tmp_path / "damaged")
        with pytest.raises(ValueError, match="is damaged"):
            skforest.load(tmp_path / "damaged")


@pytest.mark.parametrize(
    "quantile", [[], [0.5, 1.0], [[0.1, 0.9]], ["a"], [0.1, np.nan], {"q": 1}]
)
def test_bad_quantiles(quantile):
    X, y = rows_of(ObliqueBoostingRegressor)
    with pytest.raises(ValueError, match="quantile="):
        quick(ObliqueBoostingRegressor, loss="quantile", quantile=quantile).fit(X, y)


def test_several_quantiles_take_one_output():
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss="quantile", quantile=[0.1, 0.9])
    with pytest.raises(ValueError, match="takes one output, y has 2"):
        model.fit(X, np.column_stack([y, y]))


@pytest.mark.parametrize(
    "other", [{"loss": "poisson"}, {"loss": "quantile", "quantile": [0.1, 0.9]}]
)
def test_bags_of_another_link_or_number_of_outputs_are_not_added(other):
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, n_bags=1, warm_start=True).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="loss=.*does not fit the trees that warm_start=True"):
        model.set_params(n_bags=2, **other).fit(X, y)
    model.set_params(loss="squared_error")
    np.testing.assert_array_equal(model.predict(X), before)


def test_bags_with_quantiles_are_added_on_other_rows():
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss="quantile", quantile=0.9, warm_start=True)
    model.fit(X, y).set_params(n_bags=4).fit(X, y + 1)
    assert 0.5 < (y < model.predict(X)).mean()


@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie", "log"])
def test_newton_steps_are_finite_without_a_penalty(loss):
    """Curvatures vanish where rows are predicted with certainty."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    own = {"l2_regularization": 0.0, "min_samples_leaf": 1, "learning_rate": 1.0, "n_bags": 1}
    own |= {"early_stopping": False, "n_estimators": 300}
    if loss == "log":
        y = np.digitize(X[:, 0] + X[:, 1], [-1, 0, 1])
        model = quick(ObliqueBoostingClassifier, **own).fit(X, y)
    else:
        y = 1e3 * np.exp(4 * X[:, 0])
        model = quick(ObliqueBoostingRegressor, loss=loss, **own).fit(X, y)
    assert model.score(X, y) > 0.99
    assert np.isfinite(model.forest_.gain).all() and np.isfinite(model.forest_.value).all()


# ------------------------------------------------------------------------------------------ stages


@pytest.mark.parametrize("n_bags", [1, 3])
@pytest.mark.parametrize(
    "task", ["regression", "poisson", "outputs", "binary", "labels", "nothing"]
)
def test_stages_end_with_the_prediction(task, n_bags):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = {
        "regression": X[:, 0],
        "poisson": rng.poisson(np.exp(X[:, 0])),
        "outputs": X[:, :2],
        "binary": X[:, 0] > 0,
        "labels": X[:, :2] > 0,
        "nothing": np.ones(200),
    }[task]
    is_class = task in ("binary", "labels")
    cls = ObliqueBoostingClassifier if is_class else ObliqueBoostingRegressor
    options = {"loss": "poisson"} if task == "poisson" else {}
    own = {"n_estimators": 70, "n_iter_no_change": 5, "n_bags": n_bags}
    model = quick(cls, **own, **options).fit(X, y)
    stages = list(model.staged_predict(X))
    assert len(stages) == max(1, max(model.n_iter_))
    np.testing.assert_array_equal(stages[-1], model.predict(X))
    if is_class:
        proba = list(model.staged_predict_proba(X))
        assert len(proba) == len(stages)
        np.testing.assert_array_equal(np.array(proba[-1]), np.array(model.predict_proba(X)))
    elif task == "regression":
        # Stage 3 has the first three trees of every bag.
        bags = [model._member(bag) for bag in range(n_bags)]
        expected = np.mean([bag[:3].response(X)[:, 0] for bag in bags], axis=0)
        np.testing.assert_allclose(stages[2], expected, rtol=1e-12)
        errors = [np.mean((stage - y) ** 2) for stage in stages]
        assert errors[0] > 2 * errors[-1]


def test_decision_functions_are_log_odds():
    X, y = rows_of(ObliqueBoostingClassifier)
    model = quick(ObliqueBoostingClassifier).fit(X, y)
    np.testing.assert_allclose(model.decision_function(X), np.log(model.predict_proba(X)))
    model.fit(X, y == 1)
    proba = model.predict_proba(X)
    decision = model.decision_function(X)
    np.testing.assert_allclose(decision, np.log(proba[:, 1] / proba[:, 0]))
    np.testing.assert_array_equal(decision > 0, model.predict(X))
    model.fit(X, np.column_stack([y == 1, y == 2]))
    assert not hasattr(model, "decision_function")


# --------------------------------------------------------------------------- monotonic constraints


def check_monotonic(respond, X, constraints):
    """Predictions along each constrained column, from rows of X."""
    for j, sign in enumerate(constraints):
        if not sign:
            continue
        grid = np.quantile(X[:, j], np.linspace(0, 1, 60))
        rows = np.repeat(X[:25], 60, axis=0)
        rows[:, j] = np.tile(grid, 25)
        assert (sign * np.diff(respond(rows).reshape(25, 60), axis=1) >= 0).all()


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error", "poisson", "gamma", "log"])
def test_predictions_obey_monotonic_constraints(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    raw = np.sin(3 * X[:, 0]) + X[:, 0] - X[:, 1] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3]
    constraints = [1, -1, 0, 0]
    common = {"n_estimators": 40, "monotonic_cst": constraints, "early_stopping": False}
    if loss == "log":
        model = quick(ObliqueBoostingClassifier, **common).fit(X, raw > 0)
        plain = quick(ObliqueBoostingClassifier, n_estimators=40).fit(X, raw > 0)
        respond = [lambda rows, m=m: m.predict_proba(rows)[:, 1] for m in (model, plain)]
        assert model.score(X, raw > 0) > 0.9
    else:
        y = raw if loss in ("squared_error", "absolute_error") else np.exp(raw / 2)
        model = quick(ObliqueBoostingRegressor, loss=loss, **common).fit(X, y)
        plain = quick(ObliqueBoostingRegressor, loss=loss, n_estimators=40).fit(X, y)
        respond = [model.predict, plain.predict]
        assert model.score(X, y) > 0.5
    check_monotonic(respond[0], X, constraints)
    with pytest.raises(AssertionError):
        check_monotonic(respond[1], X, constraints)
    # Weights of directions have the signs of the constraints.
    feature, weight = model.forest_.sparse_feature, model.forest_.sparse_weight
    assert set(feature) == {0, 1, 2, 3} and {*np.sign(weight[feature == 2])} == {-1, 1}
    assert (weight[feature == 0] > 0).all() and (weight[feature == 1] < 0).all()


@given(st.integers(0, 2**32 - 1))
@fixed
def test_values_of_trees_are_monotonic(seed):
    """Ties, equal rows, and any gradients: bounds of the leaves keep the order of the rows."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=(60, 3)).astype(np.float32)
    derivative = np.hstack([rng.integers(-3, 4, size=(60, 1)), rng.integers(1, 4, size=(60, 1))])
    signs = rng.integers(-1, 2, size=3).astype(np.int8)
    options = {"n_directions": int(rng.integers(0, 10)), "seed": seed % 2**31}
    tree, leaf, _, bounds = grow_boosted(X, derivative, monotonic=signs, max_depth=5, **options)
    low, high = bounds[leaf].T
    value = -np.bincount(leaf, derivative[:, 0]) / (np.bincount(leaf, derivative[:, 1]) + 1)
    value = np.clip(value, *bounds.T)[leaf]
    assert (low <= high).all()
    for i in range(60):
        # Rows that differ in one constrained column.
        for j in np.flatnonzero(signs):
            other = np.delete(X, j, axis=1)
            above = (other == other[i]).all(axis=1) & (X[:, j] > X[i, j])
            assert (signs[j] * (value[above] - value[i]) >= 0).all()


def test_without_constraints_bounded_search_is_the_plain_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    derivative = np.column_stack([rng.normal(size=100), np.ones(100)])
    plain, _, _ = grow_boosted(X, derivative)
    bounded, _, _, bounds = grow_boosted(X, derivative, monotonic=np.zeros(3, dtype=np.int8))
    np.testing.assert_array_equal(plain["direction"], bounded["direction"])
    np.testing.assert_array_equal(plain["threshold"], bounded["threshold"])
    np.testing.assert_allclose(plain["gain"], bounded["gain"], rtol=1e-5)
    assert np.isinf(bounds).all()


def test_monotonic_constraints_of_a_data_frame():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green"], size=300)
    frame = pandas.DataFrame({"c": pandas.Categorical(colour), "x": rng.normal(size=300)})
    frame["z"] = rng.normal(size=300)
    y = np.sin(4 * frame["x"]) + frame["x"] + (colour == "green")
    frame.loc[::9, "x"] = np.nan
    model = quick(ObliqueBoostingRegressor, monotonic_cst={"x": 1}).fit(frame, y)
    grid = frame.iloc[np.ones(50, dtype=int)].assign(x=np.linspace(-2, 2, 50))
    assert (np.diff(model.predict(grid)) >= 0).all() and np.ptp(model.predict(grid)) > 1
    again = quick(ObliqueBoostingRegressor, monotonic_cst=[0, 1, 0]).fit(frame, y)
    assert_same_trees(model, again)
    for wrong in ({"c": 1}, {"q": 1}, {"x": [1]}, [1, 0, 0], [0, 1], [0, 2, 0]):
        with pytest.raises(ValueError, match="monotonic_cst="):
            clone(model).set_params(monotonic_cst=wrong).fit(frame, y)


def test_monotonic_constraints_need_one_output():
    X, y = rows_of(ObliqueBoostingClassifier)
    constraints = {"monotonic_cst": [1, 0, 0, 0, 0, 0]}
    with pytest.raises(ValueError, match="monotonic_cst=.*needs one output, or two classes"):
        quick(ObliqueBoostingClassifier, **constraints).fit(X, y)
    with pytest.raises(ValueError, match="monotonic_cst=.*needs one output, or two classes"):
        quick(ObliqueBoostingRegressor, **constraints).fit(X, X[:, :2])
    for all_of_them in ([1] * 6, [1] * 5 + [0]):
        model = quick(ObliqueBoostingClassifier, monotonic_cst=all_of_them).fit(X, y == 1)
        weight = model.forest_.sparse_weight[model.forest_.sparse_feature < 5]
        assert len(weight) and (weight > 0).all()


def test_a_monotonic_direction_is_found():
    """The target rises along a sum of constrained columns."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 4))
    y = np.tanh(2 * (X[:, 0] - X[:, 1])) + 0.1 * rng.normal(size=1000)
    options = {"n_estimators": 60, "monotonic_cst": [1, -1, 0, 0]}
    errors = []
    for n_directions in (0, 64):
        model = quick(ObliqueBoostingRegressor, n_directions=n_directions, **options)
        errors.append(1 - model.fit(X[:500], y[:500]).score(X[500:], y[500:]))
    assert errors[1] < 0.7 * errors[0]


# --------------------------------------------------------------------- constraints of interactions

GROUPS = {
    "pairs and the rest": [{0, 1}, [1, 2]],
    "overlapping": [(0, 1, 2), {2, 3, 4}, {0, 4}],
    "no_interactions": "no_interactions",
    "pairwise": "pairwise",
}


def interactions_of(respond, X, rng):
    """Largest mixed second difference of each pair of columns, at random rows and shifts."""
    d = X.shape[1]
    found = np.zeros((d, d))
    base, other = (X[rng.integers(len(X), size=300)] for _ in range(2))
    for i in range(d):
        for j in range(i):
            moved = [base.copy() for _ in range(3)]
            for k, columns in enumerate(([i], [j], [i, j])):
                moved[k][:, columns] = other[:, columns]
            one, two, both = map(respond, moved)
            found[i, j] = found[j, i] = np.abs(respond(base) + both - one - two).max()
    return found


@pytest.mark.parametrize("linear_leaves", [False, True])
@pytest.mark.parametrize("given", GROUPS.values(), ids=GROUPS)
def test_columns_of_different_groups_do_not_interact(given, linear_leaves):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    y = X[:, 0] * X[:, 1] + X[:, 1] * X[:, 2] + X[:, 3] * X[:, 4] + X[:, 0] * X[:, 5]
    options = {"interaction_cst": given, "linear_leaves": linear_leaves, "max_depth": 5}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, y)
    found = interactions_of(model.predict, X, rng)
    if given == "pairwise":  # no term has three columns
        base, other = (X[rng.integers(300, size=200)] for _ in range(2))
        total = 0
        for number in range(8):
            chosen = [number >> k & 1 for k in range(3)]
            mixed = base.copy()
            mixed[:, :3] = np.where(chosen, other[:, :3], base[:, :3])
            total = total + (-1) ** sum(chosen) * model.predict(mixed)
        assert np.abs(total).max() < 1e-4 and found[0, 1] > 0.1
        return
    allowed = np.eye(6, dtype=bool)
    groups = [] if given == "no_interactions" else [*map(list, given)]
    if given == GROUPS["pairs and the rest"]:
        groups.append([3, 4, 5])
    for group in groups:
        allowed[np.ix_(group, group)] = True
    assert found[~allowed].max() < 1e-4
    assert not groups or found[allowed].max() > 0.1
    assert (len(model.forest_.sparse_feature) > 0) == (given != "no_interactions")


@given(st.integers(0, 2**32 - 1))
@fixed
def test_paths_and_directions_stay_within_groups(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(120, 7)), rng.normal(size=120)
    groups = [set(np.flatnonzero(mask).tolist()) for mask in rng.random((3, 7)) < 0.5]
    options = {"interaction_cst": groups, "min_samples_leaf": 3, "n_bags": 1, "n_estimators": 3}
    forest = quick(ObliqueBoostingRegressor, early_stopping=False, **options).fit(X, y).forest_
    groups.append(set(range(7)).difference(*groups))
    sparse = np.split(forest.sparse_feature, forest.sparse_start[1:-1])

    def walk(tree, node, used):
        assert any(used <= group for group in groups)
        if tree.child[node] >= 0:
            code = tree.direction[(tree.child[node] - 1) // 2]
            own = [code] if code < 7 else sparse[code - 7].tolist()
            for child in (0, 1):
                walk(tree, tree.child[node] + child, used | set(own))

    for tree in range(3):
        walk(forest[tree], 0, set())


def test_interactions_of_a_data_frame(tmp_path):
    """Features of one column of X belong together."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    colour = rng.choice(["blue", "green", "red"], size=400)
    frame = pandas.DataFrame({"c": pandas.Categorical(colour), "x": rng.normal(size=400)})
    frame["z"] = rng.normal(size=400)
    y = frame["x"] * (colour == "green") + frame["z"] * (colour == "red")
    by_name = quick(ObliqueBoostingRegressor, interaction_cst=[{"c", "x"}]).fit(frame, y)
    save(by_name, tmp_path / "model")
    assert load(tmp_path / "model").interaction_cst == [{"c", "x"}]
    assert_same_trees(
        by_name, quick(ObliqueBoostingRegressor, interaction_cst=[[0, 1]]).fit(frame, y)
    )
    rows = frame.iloc[:40]
    shift = [by_name.predict(rows.assign(z=z)) - by_name.predict(rows) for z in (-1.0, 1.0)]
    slope = by_name.predict(rows.assign(z=1.0)) - by_name.predict(rows.assign(z=-1.0))
    np.testing.assert_allclose(slope, slope[0], atol=1e-5)
    assert np.ptp(shift[0]) > 0
    for wrong in ([{"q"}], [{3}], [{-1}], [1, 2], ["c"], [[0.5]], ("c", "x")):
        with pytest.raises(ValueError, match="interaction_cst="):
            clone(by_name).set_params(interaction_cst=wrong).fit(frame, y)


# ----------------------------------------------------------------------------------- linear leaves


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


def test_linear_leaves_minimise_the_penalised_expansion_of_the_loss():
    """Against a general least-squares solution in one leaf at a time."""
    rng = np.random.default_rng(0)
    X = rng.random((400, 5)).astype(np.float32)
    gradient = (X[:, 0] - 2 * X[:, 1] + 0.1 * rng.normal(size=400)).astype(np.float32)[:, None]
    curvature = rng.uniform(0.5, 1.5, size=(400, 1)).astype(np.float32)
    rows = np.arange(0, 400, 2, dtype=np.int32)
    tree = {  # node 0 splits on feature 1, node 2 on a mixture
        "child": np.array([1, -1, 3, -2, -3], dtype=np.int32),
        "direction": np.array([1, 5], dtype=np.int32),
        "sparse_start": np.array([0, 2]),
        "sparse_feature": np.array([0, 3], dtype=np.int32),
        "sparse_weight": np.array([1.5, -0.5], dtype=np.float32),
    }
    mixture = 1.5 * X[:, 0] - 0.5 * X[:, 3]
    leaf = np.where(X[:, 1] <= 0.4, 0, np.where(mixture <= 0.5, 1, 2)).astype(np.int32)
    spread, share = rng.uniform(0.2, 0.4, size=5).astype(np.float32), 0.1
    of_mixture = (1.5 * spread[0]) ** 2 + (0.5 * spread[3]) ** 2
    regression = LeafRegression(X, 30.0, 5, spread, share)
    value, *linear = regression.fit(tree, leaf, rows, gradient, curvature, 3.0, 1.0)
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
    value, *linear = regression.fit(tree, leaf, rows, gradient, curvature, 3.0, 1.0)
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
    spread = (model.forest_.spread / model.forest_.scale).astype(np.float64)
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
    unit = model.forest_.spread / model.forest_.scale
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
    X = rng.random((1500, 6))
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
    options = {"n_estimators": 40, "n_bags": 2}
    model = quick(ObliqueBoostingRegressor, **options).fit(X, linear)
    assert model.linear_start_
    plain = quick(ObliqueBoostingRegressor, linear_start=None, **options).fit(X, linear)
    assert model.validation_scores_[0].max() > plain.validation_scores_[0].max()
    for other in ({"linear_leaves": False}, {"linear_leaves": True}):
        assert quick(ObliqueBoostingRegressor, **options, **other).fit(X, linear).linear_start_
    assert not quick(ObliqueBoostingRegressor, **options).fit(X, steps).linear_start_
    assert not quick(ObliqueBoostingRegressor, loss="huber").fit(X, linear).linear_start_
    assert not quick(ObliqueBoostingClassifier, **options).fit(X, steps > 2).linear_start_


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
    options = {"n_estimators": 40, "n_bags": 2, "linear_start": None}
    assert quick(ObliqueBoostingRegressor, **options).fit(X, linear).linear_leaves_
    assert not quick(ObliqueBoostingRegressor, **options).fit(X, steps).linear_leaves_
    assert not quick(ObliqueBoostingClassifier, **options).fit(X, steps > 0).linear_leaves_


@pytest.mark.parametrize("linear", [{"linear_leaves": np.True_}, {"linear_start": 100.0}])
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


# ------------------------------------------------------------------------------------- divergence


@pytest.mark.filterwarnings("error")
def test_rounds_without_a_split_do_not_diverge():
    y = np.random.default_rng(0).exponential(size=120)
    for options in ({}, {"loss": "quantile", "quantile": [0.1, 0.9]}):
        quick(ObliqueBoostingRegressor, early_stopping=False, **options).fit(np.ones((120, 2)), y)
    quick(ObliqueBoostingClassifier).fit(np.ones((120, 2)), np.arange(120) % 3)


def test_a_loss_that_grows_is_reported():
    X, y = rows_of(ObliqueBoostingRegressor)
    options = {"learning_rate": 3.0, "early_stopping": False, "linear_start": None}
    model = quick(ObliqueBoostingRegressor, **options)
    with pytest.warns(ConvergenceWarning, match=r"diverged.*lower learning_rate=3"):
        model.fit(X, y)
    # No round lowers the validation loss.
    with pytest.warns(ConvergenceWarning, match="diverged"):
        assert model.set_params(early_stopping=True).fit(X, y).n_iter_ == [0, 0]


@pytest.mark.parametrize("rate", [100.0, 1e300])
def test_values_that_are_too_large_are_refused(rate):
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, learning_rate=rate, early_stopping=False)
    with pytest.raises(ValueError, match="diverged.*lower learning_rate"):
        model.fit(X, y)
    assert not hasattr(model, "forest_")


def test_weights_of_too_large_a_range_are_refused():
    X, y = rows_of(ObliqueBoostingRegressor)
    weight = np.r_[1e30, np.ones(len(y) - 1)]
    with pytest.raises(ValueError, match="weights of rows, from sample_weight"):
        quick(ObliqueBoostingRegressor).fit(X, y, weight)


@pytest.mark.filterwarnings("ignore:boosting diverged")
@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
def test_curvatures_that_vanish_leave_gains_finite(loss):
    X = np.random.default_rng(0).normal(size=(80, 4))
    y = np.r_[1e30, np.ones(79)]
    model = ObliqueBoostingRegressor(
        100, loss=loss, learning_rate=1.0, l2_regularization=0, min_samples_leaf=1, n_bags=1,
        early_stopping=False, random_state=0,
    )  # fmt: skip
    assert np.isfinite(model.fit(X, y).predict(X)).all()


@pytest.mark.parametrize("power", [1 + 1e-7, 2 - 1e-7])
def test_early_stopping_for_powers_near_the_limits(power):
    X, y = make_friedman1(150, 6, noise=0.5, random_state=0)
    model = quick(ObliqueBoostingRegressor, loss="tweedie", power=power).fit(X, y)
    assert min(model.n_iter_) > 0
    assert model.score(X, y) > 0.5
