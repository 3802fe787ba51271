"""Losses of oblique boosting: derivatives, outliers, parameters, divergence."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from makers import bags_before, quick_hinge, training_rows
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
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
from skforest.training.losses import loss_names, make_loss, registry
from skforest.training.losses.leaves import NewtonLeaves
from skforest.training.losses.scales import log_ratio, robust_size

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
    total = kernel.derive(raw, y, weight, gradient, curvature)
    assert total == pytest.approx(weight @ kernel.losses(raw, y))
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
    X = rng.normal(size=(1000, 2))
    y = X[:, 0] + rng.exponential(2.0, size=1000)
    aims = {
        ("squared_error", 0.5): (2.0, 0.4),
        ("absolute_error", 0.5): (2 * np.log(2), 0.4),
        ("quantile", 0.9): (2 * np.log(10), 0.9),
        ("huber", 0.5): (1.7, 0.5),
    }
    fresh = rng.normal(size=(1000, 2))
    for (loss, quantile), (shift, tolerance) in aims.items():
        options = {"loss": loss, "quantile": quantile, "n_estimators": 20, "n_bags": 1}
        options["learning_rate"] = 0.4
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


@pytest.mark.thin(2)
@pytest.mark.parametrize("cls", [ObliqueBoostingRegressor, RandomHingeForestRegressor])
@pytest.mark.parametrize("loss", ["huber", "absolute_error", "quantile"])
def test_outliers_among_the_targets_do_little_harm(cls, loss):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(400, 3))
    true = np.stack([2 * X[:, 0] + X[:, 1], np.sin(X[:, 2])], axis=1)
    y = true + 0.1 * rng.normal(size=true.shape)
    if cls is ObliqueBoostingRegressor:
        model = quick(cls, loss=loss, n_estimators=20, learning_rate=0.4, n_bags=1)
    else:
        model = quick_hinge(cls, loss=loss, max_iter=250)

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
    fitting = {"n_estimators": 30, "learning_rate": 0.3}
    if own is quick_hinge:
        fitting = {"max_iter": 400, "random_state": 1}
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
    level, mean = rng.integers(0, 15, 400), rng.permutation(15)
    X = np.column_stack([level, rng.normal(size=(400, 2))]).astype(float)
    true = mean[level] + X[:, 1]
    y = gross_errors("few", true)
    for cls, own in ((ObliqueBoostingRegressor, quick), (RandomHingeForestRegressor, quick_hinge)):
        model = own(cls, loss="huber", categorical_features=[0]).fit(X, true)
        clean = np.median(np.abs(model.predict(X) - true))
        assert np.median(np.abs(model.fit(X, y).predict(X) - true)) < 2 * clean
    model = quick(ObliqueBoostingRegressor, loss="absolute_error", early_stopping=True)
    model.set_params(n_estimators=100, n_iter_no_change=5, learning_rate=0.4, n_bags=1)
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


@pytest.mark.thin(2)
@pytest.mark.parametrize("n_bags", [1, 3])
@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
def test_means_of_predictions_are_those_of_targets(loss, n_bags, monkeypatch):
    """Several bags are calibrated by their predictions of the rows that they did not see."""
    before = bags_before(monkeypatch)
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
        members = [before[b].response_mapped(data.X[fold == b]) for b in range(3)]
        assert np.concatenate(members).mean() == pytest.approx(y[:1000].mean(), rel=1e-6)


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
    ((parameter, value),) = loss.get_params().items()
    grid = [value, 1.1 * value]
    search = GridSearchCV(model, {f"loss__{parameter}": grid}, cv=2).fit(X, y)
    assert search.best_params_[f"loss__{parameter}"] in grid


def test_a_warm_start_keeps_the_parameter_of_a_loss(tmp_path):
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss=HuberLoss(2.0), warm_start=True, n_estimators=3)
    save(model.fit(X, y), tmp_path / "model")
    for one in (model, skforest.load(tmp_path / "model")):
        one.set_params(n_estimators=5, loss=HuberLoss(2.0)).fit(X, y)
        one.set_params(n_estimators=7, loss__delta=1.0)
        with pytest.raises(ValueError, match=r"loss=HuberLoss\(delta=1.0\), but warm_start=True"):
            one.fit(X, y)


def test_a_loss_that_follows_the_residuals_with_leaves_that_do_not(monkeypatch):
    """The size of the residuals is known whatever the leaves are."""
    huber = registry.huber

    def with_newton(n_outputs, delta=1.35):
        return replace(huber(n_outputs, delta), leaf=NewtonLeaves(max_step=4.0))

    monkeypatch.setitem(registry.LOSSES, "huber", with_newton)
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss="huber", n_estimators=60).fit(X, y)
    assert model.score(X, y) > 0.8


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


@pytest.mark.thin(2)
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


def test_early_stopping_with_a_large_limit_of_huber_is_that_of_means():
    """With the absolute error instead, bags would stop near the median, far below the mean."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = np.exp(0.3 * X[:, 0]) * rng.exponential(size=1000)
    model = ObliqueBoostingRegressor(loss=HuberLoss(1e6), random_state=0).fit(X, y)
    assert 0.9 < model.predict(X).mean() / y.mean() < 1.1


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


@pytest.mark.parametrize("loss", ["huber", "quantile", "absolute_error"])
def test_sizes_of_residuals_are_those_of_weighted_rows(loss, monkeypatch):
    X, y = make_friedman1(60, 6, random_state=0)
    weight, seen = np.random.default_rng(0).exponential(size=60), []

    def recorded(values, weight):
        seen.append(weight)
        return robust_size(values, weight)

    monkeypatch.setattr("skforest.training.boosting_rounds.robust_size", recorded)
    model = quick(ObliqueBoostingRegressor, loss=loss, n_bags=1, early_stopping=False)
    model.set_params(n_estimators=2, linear_start=None).fit(X, y, weight)
    assert len(seen) == 2
    np.testing.assert_allclose(np.sort(seen[0]) / seen[0].sum(), np.sort(weight) / weight.sum())


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_means_of_0_have_no_ratio():
    """Such as those of rare counts among the rows that a bag held out."""
    y, weight = np.array([[2.0, 0, 3], [4.0, 0, 3]]), np.array([3.0, 1.0])
    found = log_ratio(y, np.array([[1.0, 1, 0], [2.0, 1, 0]]), weight)
    np.testing.assert_allclose(found, [np.log(2), 0, 0])


def test_rows_for_the_calibration(monkeypatch):
    """Those that no bag trained on; training rows if at most one bag has held out rows of X."""
    monkeypatch.setattr(training_module, "calibration_part", lambda forest, data, weight: weight)

    class Rows(SimpleNamespace):
        def without_fold(self, member):
            return Rows(weight=f"without fold {member}", left_out_weight=None)

    def parts(takes_training_rows, unseen, given=None, n_members=2):
        kind = SimpleNamespace(takes_training_rows=takes_training_rows)
        method = object.__new__(training_module.BoostingMethod)
        method.settings = SimpleNamespace(loss=SimpleNamespace(calibration=kind))
        data = Rows(weight="all rows", left_out_weight=given)
        records = [{"unseen": one} if one else {} for one in unseen]
        trained = SimpleNamespace(records=records, members=range(4, 4 + n_members), data=data)
        return method._calibration_parts(None, trained)

    two = [(9, "second"), (3, "first")]
    for takes_training_rows in (True, False):
        assert parts(takes_training_rows, two) == ["first", "second"]
    assert parts(True, two[:1]) == ["all rows"] and parts(False, two[:1]) == ["second"]
    assert parts(True, two[:1], n_members=1) == ["without fold 4"]
    assert parts(True, [None, None]) == ["all rows"] and parts(False, [None, None]) == []
    assert parts(False, [None], "given rows") == ["given rows"]
    assert parts(True, [None, None], "given rows") == ["all rows"]
    monkeypatch.setattr(training_module, "GIVEN_ROWS", 1)
    assert parts(True, [None, None], "given rows") == ["given rows"]


@pytest.mark.parametrize("n_bags", [1, 3])
@pytest.mark.parametrize("loss", ["poisson", "gamma", "tweedie"])
def test_means_of_given_rows_are_right(loss, n_bags):
    """No bag trains on `X_val`, so its rows tell by how much predictions of new rows are wrong."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = rng.poisson(np.exp(X[:, 0] + X[:, 1] * X[:, 2])) + (loss == "gamma") * 1.0
    model = quick(ObliqueBoostingRegressor, loss=loss, n_bags=n_bags, early_stopping="auto")
    model.fit(X[:150], y[:150], X_val=X[150:], y_val=y[150:])
    assert model.predict(X[150:]).mean() == pytest.approx(y[150:].mean(), rel=1e-5)
    assert model.predict(X[:150]).mean() != pytest.approx(y[:150].mean(), rel=0.01)
