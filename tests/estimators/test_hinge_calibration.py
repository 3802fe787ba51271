"""Random hinge forests: temperature and class frequencies of probabilities, shift of quantiles."""

from types import SimpleNamespace

import numpy as np
import pytest
from makers import OwnCrossEntropy, assert_same_trees, made
from makers import quick_hinge as quick
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.metrics import log_loss

from skforest import HingeProcedure, RandomHingeForestClassifier, RandomHingeForestRegressor
from skforest.training import hinge
from skforest.training.hinge import calibrated_baseline, found_calibration
from skforest.training.losses import weighted_quantile

# ------------------------------------------------------------------------------------- temperature


def noisy(n=400):
    """Two classes, of which a third of the labels is random."""
    return make_classification(n, 6, n_informative=4, flip_y=0.3, random_state=1)


def test_the_temperature_reduces_the_log_loss_of_new_rows():
    X, y = noisy(1200)
    options = {"n_estimators": 50, "max_iter": "auto"}
    models = [
        quick(RandomHingeForestClassifier, calibrate=calibrate, **options).fit(X[:600], y[:600])
        for calibrate in (True, False)
    ]
    losses = [log_loss(y[600:], model.predict_proba(X[600:])) for model in models]
    calibrated, plain = models
    assert plain.temperature_ == 1 < 1.5 < calibrated.temperature_
    assert losses[0] < 0.9 * losses[1]
    # The second bag sees all rows in both models, the first one only in one of them.
    first, second = (
        [model.forest_[bag].compact() for model in models] for bag in (slice(50), slice(50, 100))
    )
    assert first[0].value.shape != first[1].value.shape
    scaled = second[0].value * calibrated.temperature_
    np.testing.assert_allclose(scaled, second[1].value, rtol=1e-5)


def test_rare_classes_stay_rare_where_little_is_known():
    rng, n = np.random.default_rng(1), 800
    X, y = rng.normal(size=(4 * n, 4)), np.where(rng.random(4 * n) < 0.1, "rare", "usual")
    options = {"max_iter": "auto", "n_bags": 3, "warm_start": True}
    model = quick(RandomHingeForestClassifier, **options).fit(X[:n], y[:n])
    least = log_loss(y[n:], np.tile(np.mean(y[:n, None] == model.classes_, axis=0), (3 * n, 1)))
    assert log_loss(y[n:], model.predict_proba(X[n:])) < 1.08 * least
    baseline = model.forest_.baseline
    model.set_params(n_bags=4).fit(X[:n], y[:n])
    np.testing.assert_array_equal(model.forest_.baseline, baseline)
    assert log_loss(y[n:], model.predict_proba(X[n:])) < 1.08 * least


@pytest.mark.parametrize(
    "n, changes",
    [
        (19, {}),  # half of them say too little
        (400, {"n_bags": 1}),
        (400, {"early_stopping": True}),
        (400, {"bootstrap": True}),
        (400, {"loss": OwnCrossEntropy()}),
    ],
)
def test_where_there_is_no_temperature(n, changes):
    X, y = noisy(n)
    model, plain = (
        quick(RandomHingeForestClassifier, calibrate=calibrate, **changes).fit(X, y)
        for calibrate in (True, False)
    )
    assert model.temperature_ == 1
    assert_same_trees(model, plain)


def test_few_rows_have_a_temperature_too():
    X, y = noisy(500)
    losses = []
    for calibrate in (True, False):
        model = quick(RandomHingeForestClassifier, calibrate=calibrate, max_iter="auto", n_bags=3)
        losses.append(log_loss(y[60:], model.fit(X[:60], y[:60]).predict_proba(X[60:])))
    assert losses[0] < 0.7 * losses[1]
    # Held-out rows that are all right do not prove that every row will be.
    X, y = make_classification(60, 6, class_sep=5, flip_y=0, random_state=0)
    for n_steps in ("auto", 10_000):  # the more steps, the larger are the sums over trees
        model = quick(RandomHingeForestClassifier, max_iter=n_steps, n_bags=3).fit(X, y)
        assert model.score(X, y) == 1
        assert 0.5 < log_loss(y, model.predict_proba(X)) * 1e4 < 50


def test_calibrated_models_depend_on_weighted_rows_alone():
    X, y = noisy()
    weight = np.full(len(X), 2.0)
    model = quick(RandomHingeForestClassifier, n_bags=3, max_iter=400).fit(X, y, weight)
    assert model.temperature_ > 1
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(X)), 2))
    assert_same_trees(clone(model).set_params(n_jobs=2).fit(X[order], y[order]), model)
    grown = clone(model).set_params(n_bags=2, warm_start=True).fit(X, y, weight)
    assert_same_trees(grown.set_params(n_bags=3).fit(X, y, weight), model)


def test_streams_have_no_temperature():
    X, y = noisy()
    model = quick(RandomHingeForestClassifier).fit(X, y)
    assert model.partial_fit(X, y).temperature_ == 1


# --------------------------------------------------------------------------------------- quantiles


@pytest.mark.thin(2)
@pytest.mark.parametrize("bootstrap", [False, True])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_intervals_between_quantiles_cover_new_rows(early_stopping, bootstrap):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1200, 5))
    y = np.stack([4 * X[:, 0] + rng.gumbel(size=1200), rng.normal(size=1200)], axis=1)
    common = {"n_bags": 2, "max_depth": 4, "max_iter": 600, "random_state": 0}
    common |= {"loss": "quantile", "early_stopping": early_stopping, "bootstrap": bootstrap}
    common["validation_fraction"] = 0.3
    low, high = (
        made(RandomHingeForestRegressor, quantile=level, **common)
        .fit(X[:600], y[:600])
        .predict(X[600:])
        for level in (0.1, 0.9)
    )
    np.testing.assert_allclose(np.mean(y[600:] < low, axis=0), 0.1, atol=0.07)
    np.testing.assert_allclose(np.mean(y[600:] > high, axis=0), 0.1, atol=0.06)


def test_quantiles_are_shifted_by_weighted_residuals(monkeypatch):
    """Of the rows held out, with their weights, and relative to the forest before."""
    seen = []

    def recorded(*given):
        seen.append(given)
        return calibrated_baseline(*given)

    monkeypatch.setattr("skforest.training.hinge.calibrated_baseline", recorded)
    X, y = make_regression(150, 4, random_state=0)
    weight = np.random.default_rng(0).exponential(size=150) ** 2
    own = {"loss": "quantile", "quantile": 0.7, "max_iter": 50, "validation_fraction": 0.3}
    model = quick(RandomHingeForestRegressor, n_estimators=5, **own).fit(X, y, weight)
    ((forest, data, level),) = seen
    assert len(data) == 45 and level == 0.7
    residual = data.y[:, 0] - forest.response_mapped(data.X)[:, 0]
    order, share = np.argsort(residual), data.weight / data.weight.sum()
    levels = np.cumsum(share[order]) / (1 + share @ share)
    shift = np.interp(0.7, levels, residual[order])
    assert model.forest_.baseline[0] == pytest.approx(forest.baseline[0] + shift, rel=1e-5)


def test_given_rows_determine_the_shift_of_a_quantile():
    X, y = make_regression(150, 4, random_state=0)
    model = quick(RandomHingeForestRegressor, loss="quantile", quantile=0.7, max_iter=400)
    model.fit(X[:100], y[:100], X_val=X[100:], y_val=y[100:])
    assert np.mean(y[100:] <= model.predict(X[100:])) == pytest.approx(0.7, abs=0.03)


def test_calibration_does_not_depend_on_how_bags_come():
    X, y = make_regression(80, 4, random_state=0)
    common = {"loss": "quantile", "quantile": 0.7, "max_iter": 50, "random_state": 0}
    common["procedure"] = HingeProcedure(weight_decay=0.0)  # the best one depends on `n_bags`
    once = RandomHingeForestRegressor(5, n_bags=3, **common).fit(X, y)
    warm = RandomHingeForestRegressor(5, n_bags=1, warm_start=True, **common).fit(X, y)
    warm.set_params(n_bags=3).fit(X, y)
    np.testing.assert_array_equal(warm.predict(X), once.predict(X))


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.8])
def test_weighted_quantiles(quantile):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 2))
    found = weighted_quantile(values, np.full(30, 0.3), quantile)
    np.testing.assert_allclose(found, np.quantile(values, quantile, axis=0, method="weibull"))
    copies = rng.integers(0, 5, 30)
    found = weighted_quantile(values, copies.astype(float), quantile)
    expected = np.quantile(np.repeat(values, copies, axis=0), quantile, axis=0, method="weibull")
    np.testing.assert_allclose(found, expected)
    weight = np.repeat([0.0, 2.0], 15)
    found = weighted_quantile(values, weight, quantile)
    np.testing.assert_allclose(found, weighted_quantile(values[15:], weight[15:], quantile))


def test_the_temperature_of_all_bags_is_a_power_of_that_of_one(monkeypatch):
    """The rows that the bag leaves out find it; all rows tell how frequent classes are."""
    rng, seen, X = np.random.default_rng(0), [], np.arange(36.0).reshape(9, 4)
    weight, target = rng.exponential(size=9), np.arange(9) % 3  # the last class has no row
    left_out = weight * (np.arange(9) % 2)
    data = SimpleNamespace(weight=weight - left_out, left_out_weight=left_out, target=target, X=X)
    monkeypatch.setattr(hinge, "responses", lambda bag, X: X)
    monkeypatch.setattr(hinge, "flattening", lambda *given: seen.append(given) or (3.0, "offset"))
    assert found_calibration(None, data) == (pytest.approx(3**0.7), "offset")
    *of_rows, frequency = seen[0]
    for found, expected in zip(of_rows, (X, target, weight)):
        np.testing.assert_array_equal(found, expected[1::2])
    monkeypatch.setattr(hinge, "MOST_ROWS", 3)
    found_calibration(None, data)
    np.testing.assert_array_equal(seen[1][0], X[[1, 3, 5]])
    np.testing.assert_array_equal(seen[1][3], frequency)
    of_classes = [weight[k::3].sum() / weight.sum() for k in range(3)]
    np.testing.assert_allclose(frequency, [*of_classes, 1 / 9])


@pytest.mark.parametrize("n, share", [(19, None), (20, 0.5), (40, 0.5), (75, 0.4)])
def test_the_temperature_is_found_on_thirty_rows_or_half_of_them(n, share, monkeypatch):
    shares, draw = [], hinge.draw_weighted

    def recorded(weight, fraction, *further):
        shares.append(fraction)
        return draw(weight, fraction, *further)

    monkeypatch.setattr(hinge, "draw_weighted", recorded)
    X, y = np.random.default_rng(0).normal(size=(n, 2)), np.arange(n) % 2
    RandomHingeForestClassifier(2, n_bags=2, max_iter=2, random_state=0).fit(X, y)
    assert shares == ([] if share is None else [share])
