"""End-to-end forests on images: patches, and features that joint training drops."""

import numpy as np
import pytest
from makers import changed
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import KFold, cross_validate

from skforest import E2EDecisionForest, E2EDecisionForestRegressor, E2EProcedure


@pytest.mark.parametrize(
    "shape, patch",
    [((28, 28), (15, 15)), ((16, 5), (9, 3)), ((10, 10, 3), (5, 5, 3)), ((10, 10, 10), (7, 7, 7)),
     ((140,), None), ((140, 4), None), ((4, 4), None)],
)  # fmt: skip
def test_patches_of_images_are_chosen_by_their_shape(shape, patch):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 9, size=(60, int(np.prod(shape))))
    y, few = X[:, 0] > 4, {"greedy_epochs": 1, "finetune_epochs": 1, "max_depth": 1}
    forest = E2EDecisionForest(2, feature_shape=shape, random_state=0, **few).fit(X, y)
    assert forest.max_features_ == X.shape[1] // 2 if patch is None else np.prod(patch)
    for alone in (
        {"n_estimators": 1}, {"smoothness": 0.1}, {"max_features": 3}, {"patch_size": None}
    ):  # fmt: skip
        other = changed(clone(forest), **alone).fit(X, y)
        assert other.max_features_ == {"max_features": 3, "patch_size": X.shape[1] // 2}.get(
            *alone, X.shape[1]
        )


def test_a_warm_start_keeps_the_patches_of_auto():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 36))
    few = {"greedy_epochs": 1, "finetune_epochs": 1, "max_depth": 1}
    model = E2EDecisionForest(1, feature_shape=(6, 6), warm_start=True, **few)
    model.fit(X, X[:, 0] > 0).set_params(n_estimators=3).fit(X, X[:, 0] > 0)
    assert (model.patch_size_, model.max_features_) == (None, 36)
    assert (model.forest_.directions().getnnz(axis=1) == 36).all()
    model = E2EDecisionForest(2, feature_shape=(6, 6), **few).fit(X, X[:, 0] > 0)
    assert (model.patch_size_, model.max_features_) == ((3, 3), 9)


@pytest.mark.parametrize(
    "changes, share",
    [
        ({}, 0.25),
        ({"smoothness": 0.01}, 0.25),
        ({"finetune_epochs": 31}, 0.0),
        ({"finetune_epochs": 32}, 0.25),
        ({"feature_shape": (16, 4)}, 0.0),
        ({"feature_shape": None}, 0.0),
        ({"n_estimators": 2}, 0.0),
        ({"feature_dropout": 0.1}, 0.1),
    ],
)
def test_single_trees_on_images_drop_features(changes, share):
    X, y = load_digits(return_X_y=True)
    tree = E2EDecisionForest(1, feature_shape=(8, 8), max_depth=1, random_state=0)
    tree = changed(tree, **{"greedy_epochs": 1} | changes).fit(X[:100], y[:100])
    assert tree.feature_dropout_ == share
    n_epochs = 60 if share == 0 else 240
    if tree.n_estimators == 1 and "feature_dropout" not in changes:
        assert tree.finetune_epochs_ == changes.get("finetune_epochs", n_epochs)


def test_what_is_dropped_as_printed_and_after_a_warm_start():
    X, y = load_digits(return_X_y=True)
    X, y = X[:100], y[:100]
    tree = E2EDecisionForest(1, feature_shape=(8, 8), max_depth=1, greedy_epochs=1, random_state=0)
    assert tree.fit(X, y).feature_dropout_ == 0.25
    tree.set_params(warm_start=True, n_estimators=2)
    assert tree.fit(X, y).feature_dropout_ == 0.25
    printed = E2EProcedure.as_printed()
    assert (
        clone(tree).set_params(n_estimators=1, procedure=printed).fit(X, y).feature_dropout_ == 0
    )


def test_dropped_features_reduce_the_error_of_a_tree():
    X, y = load_digits(return_X_y=True)
    scores = []
    for share in (0.0, 0.25):
        procedure = E2EProcedure(feature_dropout=share)
        tree = E2EDecisionForestRegressor(
            1, max_depth=10, feature_shape=(8, 8), procedure=procedure, random_state=0
        )
        found = cross_validate(tree, X, y, cv=KFold(3, shuffle=True, random_state=0))
        scores.append(found["test_score"].mean())
    assert scores[1] > scores[0] + 0.005
