"""Patches of end-to-end forests on images: how "auto" chooses them, and keeps them."""

import numpy as np
import pytest
from makers import changed
from sklearn.base import clone

from skforest import E2EDecisionForest


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
