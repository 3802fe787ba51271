"""Losses of oblique boosting: derivatives, losses of the user, quantiles, divergence."""

import pickle

import numpy as np
import pytest
from makers import OwnCrossEntropy, OwnPoisson, OwnSquaredError, bag_of, quick_hinge, training_rows
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import d2_pinball_score
from sklearn.model_selection import GridSearchCV

import skforest
from skforest import (
    HuberLoss,
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    RandomHingeForestRegressor,
    TweedieLoss,
    save,
)
from skforest.training import boosting as training_module
from skforest.training.early_stopping import balanced_folds
from skforest.training.losses import loss_names, make_loss, user
from skforest.training.losses.calibration import QuantileShift
from skforest.training.losses.leaves import QuantileLeaves

LOSSES = sorted(loss_names("for_boosting"))


# ----------------------------------------------------------------------- derivatives and estimates


@pytest.mark.parametrize("name", [*LOSSES, "log_loss", "binary"])
def test_derivatives_are_finite_differences(name):
    rng = np.random.default_rng(0)
    n_outputs = 1 if name == "binary" else 3
    if name == "binary":
        loss = make_loss("log_loss", 2, boosting=True)
    else:
        loss = make_loss(name, 3, quantile=0.3, label_smoothing=0.1)
    kernel = loss.new_kernel()
    raw, y = rng.normal(size=(50, n_outputs)), rng.gamma(1.0, size=(50, n_outputs))
    if name == "log_loss":
        y = rng.integers(0, 3, size=(50, 1)).astype(float)
    if name == "binary":
        y = rng.integers(0, 2, size=(50, 1)).astype(float)
    weight = rng.uniform(0.5, 2, size=50)
    gradient = np.zeros((50, n_outputs), dtype=np.float32)
    curvature = np.zeros((50, n_outputs), dtype=np.float32)
    kernel.derive(raw, y, weight, gradient, curvature)
    has_curve = loss.has_curvature and not loss.is_quadratic
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


@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
def test_leaves_of_rare_large_targets_take_steps_of_limited_length(loss):
    """One round: a leaf is -rate * gradient / (curvature + l2), and a step at most `max_step`."""
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(200, 3)), rng.uniform(0.5, 2, size=200)
    y = 1.0 + rng.poisson(1.0, size=200)
    y[X[:, 0] > 1.8] = 500
    model = ObliqueBoostingRegressor(
        1, loss=loss, n_bags=1, early_stopping=False, learning_rate=0.1, subsample=1.0,
        random_state=0,
    ).fit(X, y, weight)  # fmt: skip
    forest, leaf = model.forest_, model.apply(X)[:, 0]
    shift = None  # of all leaves, by calibration
    unit = weight / np.median(weight)
    ratio = y / np.average(y, weights=weight)
    for node in np.unique(leaf):
        own = leaf == node
        step = unit[own] @ (ratio[own] - 1) / (unit[own].sum() + model.l2_regularization)
        value = forest.value[-1 - forest.child[node]] - 0.1 * np.clip(step, -4, 4)
        shift = value if shift is None else shift
        assert value == pytest.approx(shift, abs=1e-5)
    assert forest.value.max() - shift == pytest.approx(0.4)
    mean = np.average(model.predict(X), weights=weight)
    assert mean == pytest.approx(np.average(y, weights=weight), rel=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_leaves_of_rare_classes_take_steps_of_limited_length(n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.digitize(X[:, 0], [0.0, 2.3] if n_classes == 3 else [2.3])
    model = ObliqueBoostingClassifier(
        1, n_bags=1, early_stopping=False, learning_rate=0.1, l2_regularization=0.0, subsample=1.0,
        random_state=0,
    ).fit(X, y)  # fmt: skip
    forest, leaf = model.forest_, model.apply(X)[:, 0]
    share, label = np.bincount(y) / 300, np.eye(n_classes)[y]
    values = forest.value.reshape(-1, n_classes)
    for node in np.unique(leaf):
        of_class = (label[leaf == node] - share).mean(axis=0) / (share * (1 - share))
        found = values[-1 - forest.child[node]]
        step = np.clip(of_class, -20, 20)
        expected = 0.05 * step[1] * np.array([-1, 1]) if n_classes == 2 else 0.1 * step
        np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert values.max() == pytest.approx(1.0 if n_classes == 2 else 2.0)


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


def gross_errors(name, y):
    """Targets, some of which are wrong."""
    y, order = y.copy(), np.random.default_rng(3).permutation(len(y))
    share, value = {
        "few": (0.02, 1000),
        "below": (0.02, -1000),
        "many": (0.05, 1e6),
        "one": (1 / len(y), 1e9),
    }[name]
    y[order[: round(share * len(y))]] += value
    return y


@pytest.mark.parametrize("cls", [ObliqueBoostingRegressor, RandomHingeForestRegressor])
@pytest.mark.parametrize("loss", ["huber", "absolute_error", "quantile"])
def test_outliers_among_the_targets_do_little_harm(cls, loss):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    true = np.stack([2 * X[:, 0] + X[:, 1], np.sin(X[:, 2])], axis=1)
    y = true + 0.1 * rng.normal(size=true.shape)
    if cls is ObliqueBoostingRegressor:
        model = quick(cls, loss=loss, n_estimators=30, learning_rate=0.3)
    else:
        model = quick_hinge(cls, loss=loss, max_iter=400)

    def error(y, weight=None):
        return np.median(np.abs(model.fit(X, y, weight).predict(X) - true), axis=0)

    clean, weight = error(y), rng.integers(1, 4, 400)
    for name in ("few", "below", "many", "one"):
        wrong = np.stack([gross_errors(name, y[:, 0]), y[:, 1]], axis=1)
        assert (error(wrong) < 2 * clean).all(), name
    assert (error(wrong, weight) < 2 * clean).all()


@pytest.mark.parametrize("cls", [ObliqueBoostingRegressor, RandomHingeForestRegressor])
def test_rare_outliers_hardly_move_a_high_or_low_quantile(cls):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    true = 2 * X[:, 0] + X[:, 1]
    y = true + 0.3 * rng.normal(size=400)
    own = quick if cls is ObliqueBoostingRegressor else quick_hinge
    fitting = {"n_estimators": 30, "learning_rate": 0.3} if own is quick else {"max_iter": 400}
    for quantile, name in ((0.9, "few"), (0.1, "below")):
        model = own(cls, loss="quantile", quantile=quantile, **fitting)
        offset = 0.3 * np.sign(quantile - 0.5) * 1.28
        errors = [
            np.median(np.abs(model.fit(X, target).predict(X) - true - offset))
            for target in (y, gross_errors(name, y))
        ]
        assert errors[1] < 1.3 * errors[0]


def test_outliers_of_the_target_choose_no_weights_of_a_blend():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = gross_errors("few", X[:, 0])
    good = quick(ObliqueBoostingRegressor, loss="huber", learning_rate=0.3)
    members = [("good", good), ("bad", clone(good).set_params(n_estimators=1))]
    blend = skforest.BlendedForestRegressor(members, cv=3, random_state=0).fit(X, y)
    assert blend.weights_["good"] == 1 and blend.score_ > 0.9


def test_outliers_of_the_target_hide_no_categories_and_end_no_boosting():
    rng = np.random.default_rng(0)
    level, mean = rng.integers(0, 15, 600), rng.permutation(15)
    X = np.column_stack([level, rng.normal(size=(600, 2))]).astype(float)
    true = mean[level] + X[:, 1]
    y = gross_errors("few", true)
    for cls, own in ((ObliqueBoostingRegressor, quick), (RandomHingeForestRegressor, quick_hinge)):
        model = own(cls, loss="huber", categorical_features=[0]).fit(X, true)
        clean = np.median(np.abs(model.predict(X) - true))
        assert np.median(np.abs(model.fit(X, y).predict(X) - true)) < 2 * clean
    model = quick(ObliqueBoostingRegressor, loss="absolute_error", early_stopping=True)
    model.set_params(n_estimators=200, n_iter_no_change=5)
    rounds = [model.fit(X, own).n_iter_[0] for own in (X[:, 1], gross_errors("one", X[:, 1]))]
    assert rounds[1] > rounds[0] / 2


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
    data = training_rows(model, X[:1000], y[:1000])
    if n_bags == 1:
        assert model.predict(X[:1000]).mean() == pytest.approx(y[:1000].mean(), rel=1e-6)
    else:
        fold = balanced_folds(data.y[:, 0], 3, model._seed)
        members = [bag_of(model.forest_, b).response_mapped(data.X[fold == b]) for b in range(3)]
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
        data = training_rows(model, X[:300], y[:300])
        fold = balanced_folds(data.y[:, 0], 3, model._seed)
        members = [plain[slice(*plain.bag_start[bag : bag + 2])] for bag in range(3)]
        of_bag = [(data.y[fold == b], m.response_mapped(data.X[fold == b]), data.weight[fold == b])
                  for b, m in enumerate(members)]  # fmt: skip
        expected = model._make_loss().calibration.fit(of_bag)
        np.testing.assert_array_equal(calibration.shift, expected.shift)
        np.testing.assert_array_equal(calibration.slope, expected.slope)
    below, plain_below = ((y[300:, None] <= f).mean(axis=0) for f in (after, before))
    aims = np.atleast_1d(levels)
    if n_bags == 3:  # a single bag is calibrated on 60 rows
        assert (np.abs(below - aims) < 0.05).all()
        assert (np.abs(below - aims) < np.abs(plain_below - aims)).all()


def test_shifts_of_quantiles_are_quantiles_of_residuals():
    rng = np.random.default_rng(0)
    calibration = QuantileShift(0.9)
    parts = [(rng.normal(size=(99, 1)), np.zeros((99, 1)), np.ones(99)) for _ in range(5)]
    found = calibration.fit(parts[:1])
    below = (parts[0][0] < found.shift).sum()
    assert below == 90 or below == 89
    assert not found.slope.any()
    # The mean of several bags has smaller errors than each of them.
    whole = calibration.fit([tuple(map(np.concatenate, zip(*parts)))])
    np.testing.assert_allclose(calibration.fit(parts).shift, (1 - 0.3 * 0.8) * whole.shift)
    # What the other bags suggest must not increase the loss of the rows of a bag.
    other = [(sign * np.full((50, 1), 5.0), np.zeros((50, 1)), np.ones(50)) for sign in (1, -1)]
    for factor in (1, 1e-6):  # of all weights, which has no effect
        weighted = [(y, response, factor * weight) for y, response, weight in other]
        assert calibration.fit(weighted).shift == 0


def test_two_outliers_are_not_the_quantile_of_a_small_leaf():
    residual = np.append(np.arange(1.0, 9.0), [1e3, 1e3])[:, None]
    options = np.ones(10), None, np.array([100.0])
    for level in (0.9, 0.1):
        sign = np.sign(level - 0.5)
        value = QuantileLeaves(level).value(sign * residual, *options)
        np.testing.assert_allclose(value, sign * 7.7)  # the level 0.7, at 0.7 * 11 rows


def test_shifts_grow_with_the_width_between_quantiles():
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.1, 3, size=(2000, 1))
    y, aims = scale * rng.normal(size=(2000, 1)), 1.28 * scale * [1, -1]
    calibration = QuantileShift(np.array([0.9, 0.1]))
    parts = [(y[own], aims[own] / 2, np.ones(1000)) for own in (slice(1000), slice(1000, None))]
    found = calibration.fit(parts)
    moved = aims / 2 + found.added(aims / 2)
    plain = calibration._pinball(y - aims / 2 - (aims / 2).mean(axis=0)).mean()
    assert calibration._pinball(y - moved).mean() < plain
    assert found.slope[0] > 0 > found.slope[1] and found.shift[0] > 0 > found.shift[1]


# ------------------------------------------------------------------------------ losses of the user


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


def test_a_loss_for_each_output_counts_as_the_sum():
    y, raw = np.random.default_rng(0).normal(size=(2, 5, 3))
    kernel = user.UserKernel(OwnSquaredError(), 3)
    np.testing.assert_allclose(kernel.evaluate(raw, y)[0], np.square(raw - y).sum(axis=1) / 2)


class OwnLogLoss(OwnCrossEntropy):
    """It starts from the shares of the classes, as boosting does."""

    def initial(self, y, weight):
        return np.log(np.average(y, axis=0, weights=weight))


@pytest.mark.parametrize("n_bags", [1, 3])
def test_a_loss_of_the_user_of_labels_is_the_built_in_one(n_bags):
    X, y = rows_of(ObliqueBoostingClassifier)
    labels = np.array(["a", "b", "c"])[y]
    options = {"n_bags": n_bags, "class_weight": {"a": 2, "b": 1, "c": 1}, "early_stopping": True}
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    plain = quick(ObliqueBoostingClassifier, **options).fit(X, labels, weight)
    model = quick(ObliqueBoostingClassifier, loss=OwnLogLoss(), **options).fit(X, labels, weight)
    assert model.n_iter_ == plain.n_iter_
    expected = plain.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-4)
    np.testing.assert_allclose(model.decision_function(X), np.log(expected), atol=1e-2)
    *_, last = model.staged_predict_proba(X)
    np.testing.assert_array_equal(last, model.predict_proba(X))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("n_classes", [1, 2])
def test_one_and_two_classes_with_a_loss_of_the_user(n_classes):
    """Two classes have two raw predictions then."""
    X = np.random.default_rng(0).normal(size=(150, 3))
    y = (X[:, 0] > 0) * (n_classes - 1)
    given = {"X_val": X[100:], "y_val": y[100:]}
    model = quick(ObliqueBoostingClassifier, loss=OwnLogLoss(), warm_start=True, n_estimators=9)
    model.fit(X[:100], y[:100], **given).set_params(n_estimators=12).fit(X[:100], y[:100], **given)
    assert model.score(X, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-6)
    with pytest.raises(ValueError, match="takes one output, y has several"):
        clone(model).fit(X, np.column_stack([y, y]))
    if n_classes == 2:
        with pytest.raises(ValueError, match="monotonic_cst=.*no `Loss` of your own"):
            clone(model).set_params(monotonic_cst=[1, 0, 0]).fit(X, y)


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


# ------------------------------------------------------------------------ losses with a parameter


@pytest.mark.parametrize("make, cls, loss, name", [
    (quick, ObliqueBoostingRegressor, HuberLoss(delta=0.4), "huber"),
    (quick, ObliqueBoostingRegressor, TweedieLoss(power=1.2), "tweedie"),
    (quick_hinge, RandomHingeForestRegressor, HuberLoss(delta=0.4), "huber"),
])  # fmt: skip
def test_losses_with_a_parameter(make, cls, loss, name, tmp_path):
    X, y = rows_of(ObliqueBoostingRegressor)
    y = np.exp(y / np.std(y))
    model = make(cls, loss=loss).fit(X, y)
    plain = make(cls, loss=name).fit(X, y)
    assert (model.predict(X) != plain.predict(X)).any()
    default = clone(model).set_params(loss=type(loss)()).fit(X, y)
    np.testing.assert_array_equal(default.predict(X), plain.predict(X))
    assert repr(loss) in repr(model) and clone(loss) == loss != type(loss)()
    save(model, tmp_path / "model")
    for again in (skforest.load(tmp_path / "model"), pickle.loads(pickle.dumps(model))):
        assert again.loss == loss and type(again.loss) is type(loss)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    (parameter,) = loss.get_params()
    search = GridSearchCV(model, {f"loss__{parameter}": [1.1, 1.9]}, cv=2).fit(X, y)
    assert search.best_params_[f"loss__{parameter}"] in (1.1, 1.9)


def test_a_warm_start_keeps_the_parameter_of_a_loss(tmp_path):
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss=HuberLoss(2.0), warm_start=True, n_estimators=3)
    save(model.fit(X, y), tmp_path / "model")
    for one in (model, skforest.load(tmp_path / "model")):
        one.set_params(n_estimators=5, loss=HuberLoss(2.0)).fit(X, y)
        one.set_params(n_estimators=7, loss__delta=1.0)
        with pytest.raises(ValueError, match=r"loss=HuberLoss\(delta=1.0\), but warm_start=True"):
            one.fit(X, y)


# ------------------------------------------------------------------------------- several quantiles


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


# --------------------------------------------------------------------- scales and constant targets


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


# -------------------------------------------------------------------------------------- divergence


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
    model = quick(ObliqueBoostingRegressor, loss=TweedieLoss(power)).fit(X, y)
    assert min(model.n_iter_) > 0
    assert model.score(X, y) > 0.5
