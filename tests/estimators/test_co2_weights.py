"""Hyperplanes of few weights, in CO2 forests and in `refine`."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import make_classification

from skforest import CO2ForestClassifier, CO2ForestRegressor, CO2Procedure, refine


def three_of_forty(n=600):
    """Labels by a hyperplane over three of forty features."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 40)).astype(np.float32)
    return X, X[:, [3, 17, 31]].sum(axis=1) > 0


def few_weights(n, **params):
    procedure = CO2Procedure(max_weights=n, **params.pop("procedure", {}))
    return CO2ForestClassifier(
        **{"n_estimators": 1, "objective": "co2", "random_state": 0, "procedure": procedure}
        | {"bootstrap": False, "holdout": 0.0}
        | params
    )


@pytest.mark.parametrize("objective", ["co2", "soft"])
def test_the_weights_that_are_left_are_those_that_matter(objective):
    X, y = three_of_forty()
    for params in ({}, {"procedure": {"batch_size": 1000}}):
        model = few_weights(3, max_depth=1, objective=objective, **params).fit(X, y)
        weights = model.forest_.directions().toarray()
        assert np.flatnonzero(weights).tolist() == [3, 17, 31]
        free = few_weights(None, max_depth=1, objective=objective, **params).fit(X, y)
        assert model.score(X, y) > free.score(X, y) - 0.05


@pytest.mark.parametrize("objective", ["co2", "soft", "auto"])
@pytest.mark.parametrize("n_rows, n", [(250, 2), (120, 3), (2000, 5), (80, 2)])
def test_one_epoch_keeps_the_limit(objective, n_rows, n):
    X = np.random.default_rng(0).normal(size=(n_rows, 40)).astype(np.float32)
    y = X[:, :12].sum(axis=1) > 0
    model = few_weights(n, objective=objective, n_estimators=3, procedure={"n_epochs": 1})
    assert np.diff(model.fit(X, y).forest_.directions().indptr).max() <= n


@pytest.mark.thin(2)
@pytest.mark.parametrize("n", [1, 2, 7])
@pytest.mark.parametrize("kind", ["dense", "csr", "float16", "regressor", "as printed"])
def test_no_split_has_more_weights(n, kind):
    X, y = make_classification(300, 12, n_informative=8, n_classes=3, random_state=0)
    model = few_weights(n, n_estimators=3)
    if kind == "csr":
        X = sparse.csr_array(np.where(np.abs(X) > 1, np.abs(X), 0))
    elif kind == "float16":
        model.set_params(weight_dtype="float16")
    elif kind == "regressor":
        model = CO2ForestRegressor(3, objective="co2", procedure=model.procedure, random_state=0)
    elif kind == "as printed":
        model.set_params(procedure=CO2Procedure.as_printed(max_weights=n))
    forest = model.fit(X, y).forest_
    n_weights = np.diff(forest.directions().indptr)
    assert n_weights.max() == n
    # Dense directions of half precision take fewer bytes than seven of twelve sparse weights.
    assert len(forest.dense) == 0 or (kind == "float16" and n == 7)
    # Rows take the same side in prediction as in training.
    leaves, tree = model.apply(X)[:, 0], forest[0]
    reached = np.bincount(leaves, minlength=tree.n_nodes)
    np.testing.assert_array_equal(reached[tree.child < 0], tree.node_weight[tree.child < 0])


def test_a_limit_above_the_number_of_features_changes_no_side():
    X, y = make_classification(200, 6, n_informative=4, random_state=0)
    free, limited = (few_weights(n).fit(X, y) for n in (None, 6))
    np.testing.assert_array_equal(free.predict(X), limited.predict(X))
    assert free.forest_.n_nodes == limited.forest_.n_nodes


def test_refinement_keeps_the_limit():
    X, y = three_of_forty()
    model = few_weights(4, max_depth=3, refine="alternating").fit(X, y)
    assert np.diff(model.forest_.sparse_start).max() <= 4 and len(model.forest_.dense) == 0
    tree = CO2ForestClassifier(1, objective=None, max_depth=3, random_state=0).fit(X, y)
    refined = refine(tree, X, y, max_weights=3, random_state=0)
    assert np.diff(refined.forest_.sparse_start).max() <= 3 and len(refined.forest_.dense) == 0
    assert refined.score(X, y) > tree.score(X, y) + 0.1
    assert (np.diff(refined.refine_curve_[0]) <= 0).all()


@pytest.mark.parametrize("params", [{"objective": "oc1"}, {"refine": "nongreedy"}])
def test_a_limit_that_would_have_no_effect_is_refused(params):
    X, y = three_of_forty(60)
    with pytest.raises(
        ValueError, match=f"{next(iter(params))}=.* takes no max_weights, which is 3"
    ):
        few_weights(3, **params).fit(X, y)
