"""Shapley values by permutations: the mixtures of two rows that are predicted."""

import numpy as np
import pytest

import skforest
from skforest import shapley_values
from skforest.inspect import explain, mixtures


def test_mixtures_are_predicted_in_blocks(monkeypatch):
    X = np.random.default_rng(0).normal(size=(80, 6))
    y = X[:, 0] * X[:, 1] + X[:, 2]
    model = skforest.RandomHingeForestRegressor(10, n_bags=1, max_iter=100, random_state=0)
    model.fit(X, y)
    one = shapley_values(model, X[:2], X[2:8])
    monkeypatch.setattr(mixtures, "BLOCK", 100)  # of one background row and four steps
    two = shapley_values(model, X[:2], X[2:8], n_jobs=2)
    for found in (one, two):
        whole = found.values.sum(axis=1) + found.base_values
        np.testing.assert_allclose(whole, model.predict(X[:2]), atol=1e-6)
    assert (np.abs(one.values - two.values) <= 6 * one.standard_errors + 1e-10).all()


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("interactions", [False, True])
def test_only_columns_that_a_model_reads_are_exchanged(interactions, is_constant, monkeypatch):
    """In wide tables they are few; all other columns have value 0."""
    X = np.random.default_rng(0).normal(size=(60, 30))
    X[:, 4:27] = 1.0
    y = (X[:, 27] + X[:, 2] * X[:, 0] > 0) & (not is_constant)
    model = skforest.ObliqueBoostingClassifier(5, n_bags=1, random_state=0).fit(X, y)
    read, n_rows, mixture = [0, 1, 2, 3, 27, 28, 29], [], explain._ForestPart.mixture

    def counted(*given):
        found = mixture(*given)
        n_rows.append(len(found))
        return found

    monkeypatch.setattr(explain._ForestPart, "mixture", counted)
    X[50:] += np.random.default_rng(1).normal(size=(10, 30))
    given = {"units": "response", "interactions": interactions}
    found = shapley_values(model, X[50:53], X[53:], **given)
    values = found.values.sum(axis=2) if interactions else found.values
    used = np.flatnonzero(np.abs(values).sum(axis=0))
    assert set(used) <= set(read) and (len(used) >= 3 or is_constant)
    directions = abs(model.forest_.directions()[:, read])
    n_used = np.count_nonzero(directions.sum(axis=0))
    games = 1 + 2 * n_used if interactions else 1
    assert sum(n_rows) == 3 * 7 * 4 * (n_used + 1) * games * (n_used > 0)
    proba = model.predict_proba(X[50:])[:, -1]
    np.testing.assert_allclose(values.sum(axis=1), proba[:3] - proba[3:].mean(), atol=1e-6)


def test_missing_values_of_a_constant_column_count():
    """Its number is not read, but the feature that says where it is missing is."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.normal(size=120), np.where(rng.random(120) < 0.4, np.nan, 1.0), np.ones(120)]
    y = X[:, 0] + 2.0 * np.isnan(X[:, 1])
    model = skforest.RandomHingeForestRegressor(10, n_bags=1, max_iter=200, random_state=0)
    found = shapley_values(model.fit(X, y), X[:6], X[20:40])
    assert (np.abs(found.values[:, 1]) > 0.3).all() and not found.values[:, 2].any()
    whole = found.values.sum(axis=1) + found.base_values
    np.testing.assert_allclose(whole, model.predict(X[:6]), atol=1e-6)
