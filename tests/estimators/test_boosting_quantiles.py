"""Quantiles of oblique boosting: calibration, several quantiles."""

from types import SimpleNamespace

import numpy as np
import pytest
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from makers import training_rows
from sklearn.base import clone
from sklearn.metrics import d2_pinball_score

import skforest
from skforest import (
    ObliqueBoostingRegressor,
)
from skforest.training import boosting as training_module
from skforest.training.early_stopping import balanced_folds
from skforest.training.losses import weighted_quantile
from skforest.training.losses.calibration import MeanRatio, QuantileShift
from skforest.training.losses.leaves import HuberLeaves, QuantileLeaves

# ----------------------------------------------------------------------- derivatives and estimates


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
    # A single bag is also calibrated as it was before it saw all rows.
    plain, calibration = seen[-1]
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


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("level", [0.1, 0.4, 0.8])
def test_values_of_leaves_are_those_of_weighted_rows(level, sign):
    rng = np.random.default_rng(0)
    residual = sign * np.sort(rng.exponential(size=40) + 2)[:, None]
    weight, size = rng.exponential(size=40) ** 2, np.array([100.0])

    def quantile(share):
        return weighted_quantile(residual, weight, share)

    nearer = max(abs(level - 0.5) - 2 * weight.max() / weight.sum(), 0)
    ends = np.sort([quantile(level), quantile(0.5 + np.sign(level - 0.5) * nearer)], axis=0)
    found = QuantileLeaves(level).value(residual, weight, None, size)
    np.testing.assert_allclose(found, ends[0] if sign > 0 else ends[1], rtol=1e-12)
    # Far from 0, the limit is the median of the rows between the quantile and 0.
    limit = quantile(level / 2 if sign > 0 else (1 + level) / 2)
    found = QuantileLeaves(level).value(residual, weight, None, np.array([0.01]))
    np.testing.assert_allclose(abs(found), np.minimum(abs(limit), min(abs(ends))), rtol=1e-12)
    kernel = SimpleNamespace(limit=np.array([0.3]))
    median = QuantileLeaves(0.5).value(residual, weight, None, size)
    cut = np.clip(residual - median, -0.3, 0.3)
    np.testing.assert_allclose(
        HuberLeaves().value(residual, weight, kernel, size), median + weight @ cut / weight.sum()
    )


def test_calibrations_weigh_their_rows():
    rng = np.random.default_rng(0)
    y, weight = rng.exponential(size=(60, 2)) + [1, 5], rng.exponential(size=60) ** 2
    predicted = y * rng.uniform(0.5, 1, size=(60, 2))
    parts = [(y[own], predicted[own], weight[own]) for own in (slice(20), slice(20, None))]
    found = MeanRatio().fit(parts)
    np.testing.assert_allclose(found.shift, np.log(weight @ y / (weight @ predicted)))
    assert not found.slope.any()
    # A half of the shift is in units of the width, the other half of the mean width.
    levels = np.array([0.8, 0.3])
    aims = np.stack([predicted[:, 0] + 2, predicted[:, 0] - 1], axis=1)
    width = 3 * rng.uniform(0.2, 2, size=60)
    aims[:, 0] = aims[:, 1] + width
    mean = weight @ width / weight.sum()
    unit = (width + mean) / 2
    size = weighted_quantile((y - aims) / unit[:, None], weight, levels)
    found = QuantileShift(levels).fit([(y, aims, weight)])
    np.testing.assert_allclose(found.added(aims), unit[:, None] * size)
    assert (found.low, found.high) == (1, 0)


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


# ------------------------------------------------------------------------------- several quantiles


def test_several_quantiles():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2))
    y = X[:, 0] + np.exp(X[:, 1]) * rng.normal(size=1200)
    levels = [0.9, 0.1, 0.5]
    model = quick(ObliqueBoostingRegressor, loss="quantile", quantile=levels, n_estimators=30)
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
    with pytest.raises(ValueError, match="loss=.*does not match the trees that warm_start=True"):
        model.set_params(n_bags=2, **other).fit(X, y)
    model.set_params(loss="squared_error")
    np.testing.assert_array_equal(model.predict(X), before)


def test_bags_with_quantiles_are_added_on_other_rows():
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss="quantile", quantile=0.9, warm_start=True)
    model.fit(X, y).set_params(n_bags=4).fit(X, y + 1)
    assert 0.5 < (y < model.predict(X)).mean()


def test_a_loss_that_grows_by_chance_seldom_prevents_a_shift():
    """A shift fitted to one of two bags of noise mostly harms the other, but not by much."""
    is_shifted, raw, weight = [], np.zeros((30, 1)), np.ones(30)
    for seed in range(40):
        y = np.random.default_rng(seed).normal(size=(2, 30, 1))
        found = QuantileShift(0.5).fit([(of_bag, raw, weight) for of_bag in y])
        is_shifted.append(found.shift[0] != 0)
    assert np.mean(is_shifted) > 0.5
