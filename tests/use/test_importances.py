"""`importances_table` and the importances of forests: units, spread, constant columns, blends."""

import sys

import numpy as np
import pandas as pd
import pytest
from makers import class_rows as classes
from makers import mixed_rows
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import skforest


@pytest.mark.parametrize(
    "estimator, parameters, kind",
    [
        (skforest.ManifoldForestClassifier, {}, "impurity"),
        (skforest.CO2ForestRegressor, {"objective": "co2"}, "count"),
        (skforest.ObliqueBoostingRegressor, {"n_bags": 3}, "impurity"),
        (skforest.RandomHingeForestRegressor, {"n_bags": 2, "max_iter": 50}, "impurity"),
    ],
)
def test_importances_of_columns_and_their_spread(estimator, parameters, kind):
    is_regressor = "Regressor" in estimator.__name__
    X, y = make_friedman1(150, n_features=6, random_state=0) if is_regressor else classes(3)
    model = estimator(**{"n_estimators": 8, "random_state": 0} | parameters).fit(X, y)
    table = skforest.importances_table(model, kind)
    importance = table["importance"].to_numpy()
    assert (np.diff(importance) <= 0).all()
    column = [int(name[1:]) for name in table.index]
    forest = model.forest_
    whole = forest.feature_importances(kind)
    np.testing.assert_array_equal(importance, whole[column])
    if kind == "impurity":  # the default
        np.testing.assert_array_equal(whole, model.feature_importances_)
        np.testing.assert_array_equal(skforest.importances_table(model), table)
    ends = forest.bag_start if "n_bags" in parameters else np.arange(len(forest) + 1)
    members = [forest[a:b].feature_importances(kind) for a, b in zip(ends, ends[1:])]
    deviation = np.array(members) - whole
    expected = np.std(deviation, axis=0, ddof=1)[column]
    np.testing.assert_allclose(table["std"], expected, atol=1e-12)
    assert len(members) == parameters.get("n_bags", 8)


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        skforest.ManifoldForestRegressor(10, random_state=0),
        skforest.CO2ForestRegressor(5, random_state=0),
        skforest.ObliqueBoostingRegressor(20, n_bags=1, random_state=0),
        skforest.RandomHingeForestRegressor(5, n_bags=1, max_iter=50, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_constant_columns_have_no_importance(model, is_sparse):
    """The weighted mean of equal values is another number after rounding."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(397, 4)).astype(np.float32)
    y = X[:, 0] + X[:, 1] * X[:, 3]
    X[:, 2] = 32.070518
    weight = rng.random(397)
    model = clone(model).fit(sparse.csr_matrix(X) if is_sparse else X, y, sample_weight=weight)
    assert model.forest_.deviation[2] == 0 and (model.forest_.deviation[[0, 1, 3]] > 0).all()
    for kind in ("impurity", "count"):
        found = model.forest_.feature_importances(kind)
        assert found[2] == 0 and (found[[0, 1, 3]] > 0).all()


def test_importances_of_a_table_are_those_of_its_columns():
    X, y = mixed_rows()
    model = skforest.ManifoldForestRegressor(10, random_state=0).fit(X, y)
    assert model.forest_.n_features > 4
    table = skforest.importances_table(model)
    assert sorted(table.index) == sorted(X.columns)
    assert table.index.name == "feature"
    own = pd.Series(model.feature_importances_, X.columns)[table.index]
    np.testing.assert_array_equal(table["importance"], own)
    counts = skforest.importances_table(model, "count")["importance"]
    assert counts.sum() == pytest.approx(1)
    assert not np.allclose(counts[table.index], table["importance"])


def test_importances_of_a_single_tree_have_no_spread(monkeypatch):
    X, y = classes(2)
    model = skforest.NonGreedyTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    boosting = skforest.ObliqueBoostingClassifier(3, n_bags=1, early_stopping=False).fit(X, y)
    for one in (model, boosting):
        table = skforest.importances_table(one)
        assert list(table.columns) == ["importance", "std"] and table["std"].isna().all()
    monkeypatch.setitem(sys.modules, "pandas", None)
    table = skforest.importances_table(model)
    assert list(table) == ["feature", "importance", "std"] and np.isnan(table["std"]).all()
    assert sorted(table["feature"]) == [f"x{j}" for j in range(6)]
    stump = skforest.ManifoldForestClassifier(1, max_leaf_nodes=2, random_state=0).fit(X, y)
    names, values, _ = skforest.importances_table(stump).values()
    zeros = [name for name, value in zip(names, values) if not value]
    assert len(zeros) > 1 and zeros == sorted(zeros)  # equal ones keep their order
    assert sum(table["importance"]) == pytest.approx(1)


class CountsSplits(RandomForestClassifier):
    """Importances with another sum than 1."""

    @property
    def feature_importances_(self):
        return 100 * super().feature_importances_


def test_importances_of_a_blend():
    X, y = classes(2)
    members = [skforest.ManifoldForestClassifier(6), CountsSplits(6)]
    blend = skforest.BlendedForestClassifier(members, random_state=0, cv=2).fit(X, y)
    blend.weights_ = dict(zip(blend.members_, [0.25, 0.75]))
    one, other = (model.feature_importances_ for model in blend.members_.values())
    other = other / 100
    table = skforest.importances_table(blend)
    column = [int(name[1:]) for name in table.index]
    np.testing.assert_allclose(table["importance"], (one / 4 + 3 * other / 4)[column])
    expected = np.abs(one - other) * np.sqrt(3) / 4
    np.testing.assert_allclose(table["std"], expected[column], atol=1e-12)
    with pytest.raises(ValueError, match='for a blend, only "impurity" is possible'):
        skforest.importances_table(blend, "count")
    members = blend.members_ | {"none": skforest.ManifoldForestClassifier(2).fit(0 * X, y)}
    blend.members_, blend.weights_ = members, dict.fromkeys(members, 1 / 3)
    table = skforest.importances_table(blend)  # a member without a split has no importances
    own = np.array([one, other, 0 * one])[:, [int(name[1:]) for name in table.index]]
    expected = np.sqrt(np.mean((own - table["importance"].to_numpy()) ** 2, axis=0))
    np.testing.assert_allclose(table["std"], expected, atol=1e-12)
    blend.members_, blend.weights_ = {"one": members["none"]}, {"one": 1.0}
    assert skforest.importances_table(blend)["std"].isna().all()


def test_importances_take_estimators_of_the_package():
    X, y = classes(2)
    with pytest.raises(NotFittedError):
        skforest.importances_table(skforest.ManifoldForestClassifier())
    with pytest.raises(TypeError, match="LogisticRegression"):
        skforest.importances_table(LogisticRegression().fit(X, y))
    model = skforest.ManifoldForestClassifier(3).fit(X, y)
    for kind in ("gain", "auto"):
        with pytest.raises(ValueError, match=f"importance_type='{kind}'.*'impurity', 'count'"):
            skforest.importances_table(model, kind)


def test_constant_pixels_within_boxes_have_no_importance():
    X = np.random.default_rng(0).normal(size=(200, 9))
    y = X[:, 0] + X[:, 1] - X[:, 8]
    X[:, 4] = 3
    forest = skforest.ManifoldForestRegressor(10, feature_shape=(3, 3), random_state=0).fit(X, y)
    assert len(forest.forest_.box_corner)
    assert np.flatnonzero(forest.feature_importances_ == 0).tolist() == [4]


def test_slim_blends_have_no_importances_but_a_page(without_pictures):
    X, y = make_friedman1(120, random_state=0)
    blend = skforest.BlendedForestRegressor(["co2"], cv=2, random_state=0).fit(X[:80], y[:80])
    smaller = skforest.slim(blend)
    with pytest.raises(TypeError, match="no importances: .*slim"):
        skforest.importances_table(smaller)
    assert "Scores" in str(skforest.describe(smaller, X[80:120], y[80:120]))
