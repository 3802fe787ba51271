"""Means of the target in the levels of categories."""

import json

import numpy as np
import pandas as pd
import pytest
from exported import check_onnx, in_c, predicted
from json_reader import response as json_response
from makers import assert_same_trees, response

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
)
from skforest.table.feature_map import TARGET
from skforest.table.target_statistics import MAX_FEATURES, N_FOLDS, TargetStatistics


def test_of_levels_with_the_overall_mean_the_most_frequent_one_is_typical():
    entry = np.repeat([0, 1, 2, 3], [2, 8, 4, 4])
    y = np.concatenate([np.tile([-1.0, 1], 5), [2, 4, 2, 4, -2, -4, -2, -4]])[:, None]
    Z = np.arange(18, dtype=np.float32)[:, None]
    assert TargetStatistics(Z, y, np.ones(18), None).nearest_level(entry, 4) == 1


@pytest.mark.parametrize("n_classes", [None, 2, 4])
@pytest.mark.parametrize("n_columns", [1, 3])
def test_target_statistics_are_those_of_a_plain_definition(n_classes, n_columns):
    """Means of the other folds, pulled towards the overall mean; classes on their main axis."""
    if n_classes and n_columns > 1:
        pytest.skip("one column of labels")
    rng = np.random.default_rng(0)
    n, n_levels = 200, 6
    entry = rng.integers(0, n_levels, size=n)
    Z = rng.random((n, 2)).astype(np.float32)
    if n_classes:
        y = ((entry + rng.integers(0, 2, size=n)) % n_classes)[:, None].astype(float)
        Y = (y == np.arange(n_classes)) * 1.0
        Y = Y[:, 1:] if n_classes == 2 else Y
    else:
        y = entry[:, None] * np.arange(1, n_columns + 1) + rng.normal(size=(n, n_columns))
        Y = y / y.std(axis=0)
    weight = rng.integers(1, 4, size=n).astype(float)
    statistics = TargetStatistics(Z, y, weight, n_classes)
    prior = weight @ Y / weight.sum()
    count = weight / weight.mean()
    every_level = range(n_levels)
    means = [np.average(Y[entry == k], axis=0, weights=count[entry == k]) for k in every_level]
    within = sum(
        (count[entry == k] @ np.square(Y[entry == k] - means[k])).sum() for k in every_level
    ) / (n - n_levels)
    n_of = np.bincount(entry, count)
    between = sum(n_of[k] * np.square(means[k] - prior).sum() for k in every_level)
    between = (between - (n_levels - 1) * within) / (n - np.square(n_of).sum() / n)
    extra = weight.mean() * within / between

    def deviation(level, rows):
        own = rows[entry[rows] == level]
        return (weight[own] @ (Y[own] - prior)) / (weight[own].sum() + extra)

    every = np.arange(n)
    found = np.stack([deviation(level, every) for level in range(n_levels)])
    of_level = np.bincount(entry, weight)
    axes = np.linalg.svd(found * np.sqrt(of_level)[:, None])[2]
    tables = statistics.fit_tables(entry, n_levels).astype(np.float32)
    assert len(tables) == {None: 1, 2: 1, 4: 2}[n_classes]  # targets depend on one number
    crossed = statistics.cross_fitted(entry, n_levels, tables)
    for axis, table, of_row in zip(axes, tables, crossed):
        axis = axis * np.sign((found @ axis) @ (table[:n_levels] - table[:n_levels].mean()))
        low, unit = (found @ axis).min(), np.ptp(found @ axis)
        np.testing.assert_allclose(table[:n_levels], (found @ axis - low) / unit, atol=1e-6)
        np.testing.assert_allclose(table[n_levels:], -low / unit, atol=1e-6)
        for i in range(n):
            rest = every[every % N_FOLDS != i % N_FOLDS]
            expected = (deviation(entry[i], rest) @ axis - low) / unit
            assert of_row[i] == pytest.approx(expected, abs=1e-6)


def levels_of_classes(n=1200):
    """A category of 15 levels, numbers that do not matter, and a class of six in each level."""
    rng = np.random.default_rng(0)
    level = rng.integers(0, 15, n)
    of_level = np.array([5, 2, 0, 1, 3, 4, 1, 0, 2, 5, 4, 3, 3, 1, 0])
    frame = pd.DataFrame({"x": rng.normal(size=n), "c": [f"l{k:02d}" for k in level]})
    return frame, np.where(rng.random(n) < 0.9, of_level[level], rng.integers(0, 6, n))


def test_targets_vary_among_levels_in_as_many_directions_as_are_not_noise(every_feature):
    frame, classes = levels_of_classes()
    onehot = (classes[:, None] == np.arange(6)).astype(float)
    rng = np.random.default_rng(0)
    noise = rng.normal(size=len(frame))
    for cls, y, n in (
        (ManifoldForestClassifier, classes, 5),
        (ManifoldForestClassifier, rng.permutation(classes), 1),
        (ManifoldForestClassifier, np.c_[classes, classes % 2], 5),
        (ManifoldForestRegressor, onehot[:, :3], 3),
        (ManifoldForestRegressor, np.c_[classes, -2 * classes], 1),
        (ManifoldForestRegressor, np.c_[classes, noise], 1),
        (ManifoldForestRegressor, rng.random((len(frame), 20)) + classes[:, None], 1),
        (ManifoldForestRegressor, np.c_[classes, 1.0 + 0 * classes], 1),
    ):
        feature_map = cls(1, random_state=0).fit(frame, y).forest_.feature_map
        assert (feature_map.kind == TARGET).sum() == n
        names = feature_map.feature_names(frame.columns)
        numbers = [f" {k + 1}" for k in range(n)] if n > 1 else [""]
        assert names == ["x", "c", *(f"c (target mean{k})" for k in numbers)]


def test_a_category_has_a_limited_number_of_means_of_the_target(every_feature):
    frame, _ = levels_of_classes()
    y = frame["c"].str[1:].astype(int)
    model = ManifoldForestClassifier(5, random_state=0).fit(frame, y)
    assert (model.forest_.feature_map.kind == TARGET).sum() == MAX_FEATURES


@pytest.mark.every_class
def test_classes_of_many_levels_are_learned(classifier):
    frame, y = levels_of_classes()
    fitted = classifier.fit(frame[:600], y[:600])
    assert fitted.score(frame[600:], y[600:]) > 0.85
    assert np.isfinite(response(fitted, frame[:3].assign(c=["new", None, "l00"]))).all()


@pytest.mark.parametrize("is_regression", [False, True])
def test_means_of_other_rows_keep_the_directions_of_the_first_fit(is_regression):
    """The main directions of few rows differ, if targets vary alike in several directions."""
    frame, y = levels_of_classes()
    level = frame["c"].str[1:].astype(int).to_numpy()
    Z = np.stack([frame["x"], level], axis=1).astype(np.float32)
    n_classes = None if is_regression else 6
    Y = (y[:, None] == np.arange(6)) * 1.0 if is_regression else y[:, None].astype(float)
    parts = [
        TargetStatistics(Z[rows], Y[rows], np.ones(600), n_classes)
        for rows in (np.arange(600), np.arange(600, 1200))
    ]
    tables = parts[0].fit_tables(level[:600], 15).astype(np.float32)
    for one, entry in zip(parts, (level[:600], level[600:])):
        found = one.cross_fitted(entry, 15, tables)
        np.testing.assert_allclose(found, tables[:, entry], atol=0.35)
        assert np.abs(found - tables[:, entry]).mean() < 0.06


def test_levels_get_at_most_a_hundred_rows_of_the_overall_mean():
    """Also where the means of levels hardly differ, so that more rows would be added."""
    count, mean = np.array([400, 400, 400, 20]), np.array([0.08, -0.08, 0.0, 0.08])
    entry = np.repeat(np.arange(4), count)
    y = (np.arange(1220) % 2 * 2 - 1.0 + mean[entry])[:, None]
    y /= y.std()
    table = TargetStatistics(np.zeros((1220, 1)), y, np.ones(1220), None).fit_tables(entry, 4)[0]
    own = np.array([y[entry == k].mean() for k in range(4)])
    expected = count * (own - y.mean()) / (count + 100)
    expected = (expected - expected.min()) / np.ptp(expected)
    np.testing.assert_allclose(np.abs(table[:4] - (table[0] < table[1])), expected, atol=1e-9)


@pytest.mark.parametrize("n_rows", [10, 9])
def test_rows_that_differ_in_the_target_alone_get_one_value(n_rows):
    """With ten rows of a level, their own labels count in it; with fewer, none does."""
    entry = np.repeat(np.arange(3), n_rows)
    Z = entry[:, None].astype(np.float32)
    y = (np.arange(len(entry)) % 2)[:, None].astype(float)
    for weight in (np.ones(len(y)), np.full(len(y), 0.1)):
        statistics = TargetStatistics(Z, y, weight, 2, len(y))
        tables = statistics.fit_tables(entry, 3).astype(np.float32)
        expected = tables[0, entry if n_rows == 10 else np.full(len(y), -1)]
        np.testing.assert_array_equal(statistics.cross_fitted(entry, 3, tables)[0], expected)


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("n_classes", [None, 2])
def test_target_statistics_of_a_row_are_those_of_other_groups(n_classes, is_repeated):
    """A level of one group counts as unknown; so does one whose rows have equal inputs."""
    rng = np.random.default_rng(0)
    group, level = np.repeat(np.arange(30), 5), np.repeat(rng.permutation(15), 10)
    y = rng.integers(0, 2, size=150) if n_classes else 1e8 + rng.normal(size=150)
    Z = (level if is_repeated else np.arange(150))[:, None].astype(np.float32)
    weight = rng.random(150)
    statistics = TargetStatistics(Z, y[:, None].astype(float), weight, n_classes, 150, group)
    tables = statistics.fit_tables(group, 30).astype(np.float32)
    found = statistics.cross_fitted(group, 30, tables)[0]
    np.testing.assert_array_equal(found, np.full(150, tables[0, -1]))
    tables = statistics.fit_tables(level, 15).astype(np.float32)
    unknown = tables[0, -1]
    found = statistics.cross_fitted(level, 15, tables)[0]
    of_level = found.reshape(15, 2, 5)  # each level has two groups
    if is_repeated:
        assert (of_level == unknown).all()
        return
    assert (of_level == of_level[:, :, :1]).all() and (of_level != unknown).all()
    mean = np.average(y.reshape(15, 2, 5), axis=2, weights=weight.reshape(15, 2, 5))
    higher = np.average(y, weights=weight) < mean[:, ::-1]
    assert len({*zip(higher.ravel(), (of_level[:, :, 0] > unknown).ravel())}) == 2


def test_labels_do_not_leak(every_feature):
    """A category of which two rows each share a level is worth nothing."""
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame({"id": [f"r{i % 300}" for i in range(n)], "x": rng.normal(size=n)})
    y = rng.integers(0, 2, size=n)
    model = ManifoldForestClassifier(20, random_state=0).fit(frame, y)
    feature_map = model.forest_.feature_map
    assert TARGET in feature_map.kind
    data = model._known_training_set(frame, y, None)
    column = data.X[:, list(feature_map.kind).index(TARGET)]
    assert abs(np.corrcoef(column, data.target)[0, 1]) < 0.15
    # The mean of the target with the row's own label tells it apart.
    whole = feature_map.transform(feature_map.coded(frame).astype(np.float32))
    assert abs(np.corrcoef(whole[:, list(feature_map.kind).index(TARGET)], y)[0, 1]) > 0.6


def test_a_warm_start_has_the_bits_of_one_fit_with_several_means(every_feature):
    frame, y = levels_of_classes()
    whole = ManifoldForestClassifier(6, random_state=0).fit(frame, y)
    parts = ManifoldForestClassifier(3, random_state=0, warm_start=True).fit(frame, y)
    assert_same_trees(whole, parts.set_params(n_estimators=6).fit(frame, y))


@pytest.mark.parametrize("is_regression", [False, True])
def test_every_reader_has_all_means_of_a_category(is_regression, every_feature, tmp_path):
    """Files, JSON, C and ONNX, also for missing and unknown levels; importances are of columns."""
    frame, y = levels_of_classes()
    frame.loc[::40, "c"] = None
    cls = CO2ForestRegressor if is_regression else CO2ForestClassifier
    model = cls(5, random_state=0)
    model.fit(frame, (y[:, None] == np.arange(4)) * 1.0 if is_regression else y)
    assert (model.forest_.feature_map.kind == TARGET).sum() == 4 + (not is_regression)
    rows = pd.concat([frame[:50], frame[:5].assign(c="new")])
    expected = predicted(model, rows)
    skforest.save(model, tmp_path / "model.npz")
    np.testing.assert_array_equal(predicted(skforest.load(tmp_path / "model.npz"), rows), expected)
    codes = model.forest_.feature_map.coded(rows)
    found = in_c(skforest.to_c(model), codes, expected.shape[1], tmp_path)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    content = json.loads(json.dumps(skforest.to_dict(model)))
    told = [json_response(content, row) for row in rows.to_numpy(dtype=object).tolist()]
    np.testing.assert_allclose(told, response(model, rows), atol=1e-5)
    assert model.feature_importances_.shape == (2,)
    values = skforest.shapley_values(model, rows[:3], frame[:20]).values
    assert values.shape[:2] == (3, 2) and np.abs(values[:, 1]).max() > 0.1
    check_onnx(model, rows)
