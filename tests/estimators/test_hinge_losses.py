"""Random hinge forests: losses against their definition, losses of the user, units."""

import pickle
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from makers import KERNEL_LOSSES as LOSSES
from makers import OwnCrossEntropy, OwnPoisson, OwnSquaredError, made
from makers import kernel_targets as targets_for
from makers import quick_hinge as quick
from skforest._kernels.base.loss import BinaryLogLossKernel, LogLossKernel, sharpened_scores
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import d2_tweedie_score

from skforest import (
    HingeProcedure,
    Loss,
    ObliqueBoostingRegressor,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from skforest.table.training_set import TrainingSet
from skforest.training import hinge, losses
from skforest.training.hinge import HingeMethod
from skforest.training.losses import registry
from skforest.training.losses.scales import QuantileScale, with_outlier_weights

# ------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize("name", registry.LOSSES)
def test_constants_that_training_starts_from(name):
    rng = np.random.default_rng(0)
    loss = losses.make_loss(name, 3, quantile=0.8)
    n = 2000
    if name == "log_loss":
        y, weight = rng.integers(2, size=n), np.ones(n)  # no row of the third class
        units = loss.scale.units(y, weight)
        assert units.baseline[2] < -100
        assert units.baseline[:2].tolist() == [0, 0]
    else:
        y, weight = 1.0 + rng.poisson(4.0, size=(n, 3)), rng.integers(1, 4, n) * 1.0
        units = loss.scale.units(y, weight)
    target = loss.scale.standardized(loss.scale.scaled(y, units), units)
    kernel = loss.new_kernel()
    assert target.shape == (n, kernel.n_columns)
    if name in ("squared_error", "poisson", "gamma", "tweedie"):
        slopes = kernel.evaluate(np.zeros((n, 3)), target)[1]
        np.testing.assert_allclose(np.average(slopes, axis=0, weights=weight), 0, atol=1e-12)
    if name != "log_loss":
        least, *others = (
            np.average(kernel.evaluate(np.full((n, 3), shift), target)[0], weights=weight)
            for shift in (0.0, -0.5, 0.5)
        )
        assert least < min(others)


@pytest.mark.parametrize("name", ["squared_error", "absolute_error", "huber", "quantile"])
def test_targets_are_deviations_in_units_of_their_size(name):
    rng = np.random.default_rng(0)
    scale = losses.make_loss(name, 2, quantile=0.8).scale
    y = np.stack([rng.normal(3, 1e5, 50), np.full(50, 7.0)], axis=1)
    weight = rng.uniform(size=50)
    units = scale.units(y, weight)
    scaled = scale.scaled(y, units)
    assert 0.5 < np.abs(scaled).max() <= 1
    target = scale.standardized(scaled, units)
    np.testing.assert_allclose(target * units.response + units.baseline, y)
    assert units.response[1] == 0
    continued = scale.units(y + 1, weight, units.baseline)
    assert (continued.baseline == units.baseline).all()


def test_units_of_robust_losses_are_those_of_most_targets():
    rng = np.random.default_rng(0)
    normal = rng.normal(7, 3, size=2000)
    counts = np.where(np.arange(2000) < 1100, 0, 1 + rng.poisson(9.0, 2000))
    columns = {
        "normal": (normal, 3.0),
        "outliers": (np.where(np.arange(2000) < 60, 1e9, normal), 3.0),
        "zeros": (counts, counts.std()),
        "nearly all zeros": (np.where(np.arange(2000) < 1900, 0, normal), 6.5 * np.sqrt(0.05)),
        "binary": (np.arange(2000) % 2, 0.5 * np.sqrt(0.5)),
        "constant": (np.full(2000, 5.0), 0.0),
    }
    weight = np.ones(2000)
    for name, (column, expected) in columns.items():
        y = np.stack([column, -1000.0 * column], axis=1).astype(float)
        found = losses.robust_size(y, weight)
        np.testing.assert_allclose(found, [expected, 1000 * expected], rtol=0.06, err_msg=name)
    rare = columns["nearly all zeros"][0][:, None]
    count = np.where(rare[:, 0] == 0, 1, 3)
    copies = losses.robust_size(np.repeat(rare, count, axis=0), np.ones(count.sum()))
    np.testing.assert_allclose(losses.robust_size(rare, count), copies, rtol=0.02)
    robust, plain = (registry.LOSSES[name](1).scale for name in ("huber", "squared_error"))
    clipped = robust.without_outliers(columns["outliers"][0][:, None], weight)
    assert 15 < clipped.max() < 17 and plain.without_outliers(y, weight) is y


def test_rare_targets_apart_from_all_others_weigh_as_much_as_rows_beyond_the_quantile():
    y = np.random.default_rng(0).normal(size=(1000, 1))
    weight = np.ones(1000)
    outliers = np.where(np.arange(1000) < 20, 100.0, y[:, 0])[:, None]
    scale = QuantileScale(0.9)
    factor = scale.outlier_factor(outliers, weight)
    np.testing.assert_allclose(factor, np.where(np.arange(1000) < 20, 1 / 9, 1.0))
    low = QuantileScale(np.array([0.2, 0.5])).outlier_factor(-outliers, weight)
    np.testing.assert_allclose(low, np.where(np.arange(1000) < 20, 1 / 4, 1.0))
    # A third of the weight of the rows that are beyond the quantile is not rare.
    assert scale.outlier_factor(outliers, np.where(np.arange(1000) < 20, 5.0, 1.0)) is None
    assert QuantileScale(0.97).outlier_factor(outliers, weight) is None
    many = np.where(np.arange(1000) < 80, 100.0, y[:, 0])[:, None]
    assert QuantileScale(0.6).outlier_factor(many, weight) is None  # nor are 8 % of all rows
    # They move neither the median nor a quantile on the other side. Long tails are no outliers.
    for level in (0.1, 0.5):
        assert QuantileScale(level).outlier_factor(outliers, weight) is None
    assert scale.outlier_factor(np.exp(2 * y), weight) is None
    assert scale.outlier_factor(np.where(y > 0, y, 0) * (y > 2), weight) is None
    # Other rows do not become copies because outliers count less.
    rows = TrainingSet(np.arange(1000.0, dtype=np.float32)[:, None], outliers, weight)
    found = with_outlier_weights(rows, scale).weight
    assert found.max() == 1 and found.min() == pytest.approx(factor.min())


def test_the_limit_of_huber_follows_the_residuals():
    loss = registry.huber(2, delta=1.5).new_kernel()
    y = np.array([[0.0, 0.0]])
    assert loss.evaluate(y + 10, y)[1].tolist() == [[1.5, 1.5]]
    loss.adapt([0.1, 0.0])
    for kernel in (loss, pickle.loads(pickle.dumps(loss))):
        np.testing.assert_allclose(kernel.evaluate(y + 10, y)[1], [[0.3, 0.0015]])
        # The limit of held-out rows is that of the targets.
        assert kernel.held_out_losses(y + 10, y).tolist() == [2 * 3 * (10 - 1.5)]


def test_a_target_that_is_no_count_is_named():
    for y in (np.array([[-1.0], [2.0]]), np.zeros((2, 1))):
        with pytest.raises(ValueError, match="needs y of 0 or more with a positive mean"):
            registry.poisson(1).scale.units(y, np.ones(2))
    zero = np.array([[0.0], [2.0]])
    with pytest.raises(ValueError, match="'gamma' needs positive y, got a smallest value of 0"):
        registry.gamma(1).scale.units(zero, np.ones(2))
    for loss in (registry.poisson(1), registry.tweedie(1)):
        loss.scale.units(zero, np.ones(2))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_slopes_of_losses_are_finite_differences(loss):
    rng = np.random.default_rng(0)
    raw, y = rng.normal(size=(50, 4)), targets_for(loss, rng, 50)
    losses, slopes = loss.evaluate(raw, y)
    step = 1e-6
    for k in range(4):
        high, low = raw.copy(), raw.copy()
        high[:, k] += step
        low[:, k] -= step
        found = (loss.evaluate(high, y)[0] - loss.evaluate(low, y)[0]) / (2 * step)
        np.testing.assert_allclose(slopes[:, k], found, atol=1e-7)
    assert np.isfinite(losses).all()


def test_losses_as_defined():
    rng = np.random.default_rng(1)
    raw, label = rng.normal(size=(20, 4)), rng.integers(4, size=20)
    p = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
    share = 0.8 * oracles.one_hot(label, 4) + 0.05
    y, column = raw + rng.normal(size=(20, 4)), label[:, None].astype(float)
    d = abs(raw - y)
    expected = {
        "log": -np.log(p[np.arange(20), label]),
        "smoothed": -(share * np.log(p)).sum(axis=1),
        "squared": (d**2 / 2).sum(axis=1),
        "absolute": d.sum(axis=1),
        "huber": np.where(d < 0.7, d**2 / 2, 0.7 * (d - 0.35)).sum(axis=1),
        "quantile": np.where(raw > y, 0.7 * d, 0.3 * d).sum(axis=1),
        "poisson": (np.exp(raw) - y * raw).sum(axis=1),
    }
    for name, loss in LOSSES.items():
        found = loss.evaluate(raw, column if loss.n_columns == 1 else y)[0]
        np.testing.assert_allclose(found, expected[name], rtol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 9])
def test_log_loss_is_right_to_the_last_places(n_classes):
    """Against the exponentials of long doubles, which are the same as doubles on some systems."""
    rng = np.random.default_rng(n_classes)
    raw = rng.normal(size=(500, n_classes)) * np.geomspace(1e-3, 200, 500)[:, None]
    y = rng.integers(n_classes, size=500)
    loss, slope = LogLossKernel(n_classes).evaluate(raw, y[:, None].astype(float))
    power = np.exp((raw - raw.max(axis=1, keepdims=True)).astype(np.longdouble))
    chance = power / power.sum(axis=1, keepdims=True)
    label = np.arange(n_classes) == y[:, None]
    np.testing.assert_allclose(slope[~label], chance[~label].astype(float), rtol=2e-15)
    np.testing.assert_allclose(slope[label], (chance[label] - 1).astype(float), atol=1e-15)
    expected = np.log(power.sum(axis=1)) + raw.max(axis=1) - raw[label]
    np.testing.assert_allclose(loss, expected.astype(float), rtol=1e-14, atol=1e-15)
    if n_classes == 2:
        odds = raw[:, 1:] - raw[:, :1]
        found = BinaryLogLossKernel().evaluate(odds, y[:, None].astype(float))
        np.testing.assert_allclose(found[0], loss, rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(found[1], slope[:, 1:], rtol=1e-12, atol=1e-15)


def test_shapes_that_do_not_fit_the_loss_are_refused():
    chances, label = np.full((2, 3, 70), 1 / 3), np.zeros(70)
    for parts in ([chances[0], chances[1, :2]], [chances[0, :, 1:].copy()], [chances[0, :0]]):
        with pytest.raises(ValueError, match="part .* has the shape"):
            sharpened_scores(parts, np.ones(len(parts)), label, 1e-3)
    with pytest.raises(ValueError, match="got 4 outputs and 1 columns"):
        LogLossKernel(3).evaluate(np.zeros((2, 4)), np.zeros((2, 1)))
    with pytest.raises(ValueError, match="got 3 classes"):
        BinaryLogLossKernel(3)


def test_log_loss_of_huge_responses_is_finite():
    losses, slopes = LogLossKernel(3).evaluate(np.array([[1e4, -1e4, 0.0]]), np.array([[1.0]]))
    assert losses[0] == pytest.approx(2e4)
    np.testing.assert_array_equal(slopes, [[1, -1, 0]])


def test_losses_of_the_regressor_estimate_mean_median_and_quantile():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    y = X[:, 0] + rng.exponential(2.0, size=1500)
    aims = {
        ("squared_error", 0.5): (2.0, 0.4),
        ("absolute_error", 0.5): (2 * np.log(2), 0.4),
        ("quantile", 0.9): (2 * np.log(10), 0.8),  # calibrated on 225 rows
    }
    for (loss, quantile), (expected, close) in aims.items():
        model = quick(
            RandomHingeForestRegressor, loss=loss, quantile=quantile, early_stopping=True
        ).fit(X, y)
        assert np.mean(model.predict(X) - X[:, 0]) == pytest.approx(expected, abs=close), loss
    counts = rng.poisson(np.exp(1 + X[:, 0]))
    model = quick(RandomHingeForestRegressor, loss="poisson", max_iter=500).fit(X, counts)
    assert model.forest_.link == "log" and (model.predict(X) > 0).all()
    assert np.corrcoef(np.log(model.predict(X)), X[:, 0])[0, 1] > 0.95
    with pytest.raises(ValueError, match="poisson.*-1"):
        model.fit(X, counts - 1)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad"])
@pytest.mark.parametrize("n_estimators", [5, 100])
def test_the_default_rate_suits_counts(n_estimators, optimizer):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 3))
    y = rng.poisson(np.exp(X[:, 0] + 3))
    options = {"loss": "poisson", "optimizer": optimizer, "n_bags": 1, "random_state": 0}
    model = made(RandomHingeForestRegressor, n_estimators, **options).fit(X[:250], y[:250])
    assert d2_tweedie_score(y[250:], model.predict(X[250:]), power=1) > 0.8


# ------------------------------------------------------------------------------ losses of the user


@pytest.mark.parametrize("head", ["leaves", "linear"])
def test_a_loss_of_the_user_is_the_built_in_one(head):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + abs(X[:, 1])
    y /= y.std()  # both train in the same units
    options = {"max_iter": 60, "head": head, "early_stopping": True, "importance_power": 0.0}
    plain = quick(RandomHingeForestRegressor, **options).fit(X, y)
    model = quick(RandomHingeForestRegressor, loss=OwnSquaredError(), **options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=1e-5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
def test_losses_of_the_user_train(monkeypatch):
    monkeypatch.setattr("skforest.training.trials.IMPORTANCE_TREES", 50)  # as for users
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = 1e6 * np.stack([X[:, 0] + 10, abs(X[:, 1])], axis=1)
    options = {"max_iter": 200, "n_bags": 3, "n_jobs": 2}
    model = quick(RandomHingeForestRegressor, loss=OwnSquaredError(), **options).fit(X, y)
    assert model.score(X, y) > 0.9
    counts = rng.poisson(np.exp(1 + X[:, 0]))
    own = {"loss": OwnPoisson(), "bootstrap": True, "oob_score": True}
    model = quick(RandomHingeForestRegressor, **options | own).fit(X, counts)
    assert np.corrcoef(np.log(model.predict(X)), X[:, 0])[0, 1] > 0.9
    assert np.nanmin(model.oob_prediction_) > 0 and model.oob_score_ > 0.3


def test_a_loss_of_the_user_with_a_link_learns_as_slowly_as_the_named_one():
    """Gradients grow exponentially with the response."""
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(300, 4)), rng.normal(size=(500, 4))
    counts, new = (rng.poisson(np.exp(A[:, 0] + np.abs(A[:, 1]))) for A in (X, T))
    models = [
        RandomHingeForestRegressor(30, max_iter=300, n_bags=2, loss=loss, random_state=0)
        for loss in ("poisson", OwnPoisson())
    ]
    named, own = (d2_tweedie_score(new, m.fit(X, counts).predict(T), power=1) for m in models)
    assert own > named - 0.1 and named > 0.5
    assert [m.learning_rate_ for m in models] == 2 * [pytest.approx(0.1 / 30)]
    with pytest.warns(ConvergenceWarning, match=r"diverged.*after 100 steps.*learning_rate=0.2"):
        plain = HingeProcedure(weight_decay=0.0)
        models[1].set_params(learning_rate=0.2, max_iter=100, procedure=plain).fit(X, counts)


def test_a_loss_of_the_user_for_labels():
    X = np.random.default_rng(0).normal(size=(400, 3))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.5])]
    options = {"max_iter": 100, "importance_power": 0.0, "early_stopping": True}
    own = OwnCrossEntropy()
    model = quick(RandomHingeForestClassifier, loss=own, **options).fit(X, y)
    plain = quick(RandomHingeForestClassifier, **options).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-4)
    assert model.score(X, y) > 0.9 and model.forest_.link == "softmax"
    stream = quick(RandomHingeForestClassifier, loss=own)
    for _ in range(10):
        stream = pickle.loads(pickle.dumps(stream.partial_fit(X, y, ["a", "b", "c"])))
    assert stream.score(X, y) > 0.8
    with pytest.raises(ValueError, match="takes one output"):
        model.fit(X, np.stack([y, y], axis=1))


@pytest.mark.parametrize(
    "cls", [RandomHingeForestClassifier, RandomHingeForestRegressor, ObliqueBoostingRegressor]
)
def test_an_incomplete_loss_is_told_what_to_define(cls):
    class OnlyLoss(Loss):
        def loss(self, y, raw):
            raise AssertionError("training has begun")

    class OnlyDerivatives(Loss):
        def gradient_hessian(self, y, raw):
            raise AssertionError("training has begun")

    X, y = make_classification(100, 5, random_state=0)
    for own, missing in ((OnlyLoss(), "gradient_hessian"), (OnlyDerivatives(), "loss")):
        message = rf"{type(own).__name__} must define {missing}\(y, raw\)"
        with pytest.raises(ValueError, match=message):
            cls(5, loss=own).fit(X, y)
        if hasattr(cls, "partial_fit"):
            known = {"classes": [0, 1]} if cls is RandomHingeForestClassifier else {}
            with pytest.raises(ValueError, match=message):
                cls(5, loss=own).partial_fit(X, y, **known)


def test_parts_of_a_stream_with_a_loss_of_the_user():
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = quick(RandomHingeForestRegressor, loss=OwnSquaredError())
    for _ in range(20):
        model = pickle.loads(pickle.dumps(model.partial_fit(X, X[:, 0])))
    assert model.score(X, X[:, 0]) > 0.7


@pytest.mark.parametrize(
    "method, wrong, message",
    [
        ("gradient_hessian", lambda y, raw: raw - y, "must return two arrays"),
        ("gradient_hessian", lambda y, raw: (raw - np.inf, raw), "infinite"),
        ("loss", lambda y, raw: 0.0, "loss returned shape"),
        ("initial", lambda y, weight: 0.0, "initial returned shape"),
    ],
)
def test_wrong_results_of_losses_of_the_user(method, wrong, message):
    X = np.random.default_rng(0).normal(size=(40, 3))
    loss = OwnSquaredError()
    setattr(loss, method, wrong)
    with pytest.raises(ValueError, match=f"OwnSquaredError.*{message}"):
        quick(RandomHingeForestRegressor, loss=loss).fit(X, X[:, 0])


# -------------------------------------------------------------------------------- units and shifts


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_emphasis_is_a_power_of_importances_whose_mean_is_1(power, monkeypatch):
    importances = np.array([0.7, 0.2, 0.1, 1e-9, 0.0])
    monkeypatch.setattr(hinge, "quick_importances", lambda data, seed: importances)
    monkeypatch.setattr(hinge, "for_squared_errors", lambda data, scale: data)
    how = SimpleNamespace(receptive_fields=None, importance_power=power, has_unit_weights=True)
    method = HingeMethod(how, None, None, SimpleNamespace(scale=None), 0)
    data = SimpleNamespace(X=np.zeros((4, 5)), weight=np.array([1.0, 0, 2, 1]))
    expected = np.maximum((5 * importances) ** power, 1e-3)
    np.testing.assert_allclose(method.emphasis(data), expected)
    seen = []
    monkeypatch.setattr(hinge.HingeInput, "of_table", lambda *given: seen.append(given[-1]))
    for n_rows in (300, 500):
        wide = SimpleNamespace(X=np.zeros((2, 900)), weight=np.ones(n_rows))
        for is_stream in (False, True):
            method.input(wide, None, is_stream)
    assert seen == [384, 900, 500, 900]  # columns that inner products read


def test_shifts_of_raw_predictions_meet_the_targets():
    """In the mean, the mean of exponentials or the median, as the loss says."""
    rng = np.random.default_rng(0)
    y, raw, weight = rng.poisson(3, (80, 1)).astype(float), rng.normal(size=(80, 1)), np.ones(80)
    for name in ("squared_error", "poisson", "absolute_error"):
        scale = losses.make_loss(name, 1).scale
        moved = raw + scale.shift(y, raw, weight)
        if name == "absolute_error":
            assert np.median(y - moved) == pytest.approx(0, abs=1e-12)
        else:
            found = np.exp(moved) if name == "poisson" else moved
            assert found.mean() == pytest.approx(y.mean())
