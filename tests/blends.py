"""Blends for tests, and their data."""

import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.dummy import DummyClassifier

from skforest import (
    BlendedForestClassifier,
    BlendedForestRegressor,
    CO2ForestClassifier,
    CO2ForestRegressor,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
)

CO2 = {"objective": "co2", "holdout": 0.0, "max_features": "sqrt", "bootstrap": False}

HINGE = {"n_bags": 5, "max_iter": 200}


def classifier(**params):
    members = [ManifoldForestClassifier(10), ("co2", CO2ForestClassifier(10, **CO2))]
    return BlendedForestClassifier(**{"members": members, "random_state": 0} | params)


def regressor(**params):
    members = [ManifoldForestRegressor(10), ("co2", CO2ForestRegressor(10, **CO2))]
    return BlendedForestRegressor(**{"members": members, "random_state": 0} | params)


def classes(n=120, n_classes=3):
    return make_classification(
        n, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=0
    )


def targets(n=120):
    return make_friedman1(n, random_state=0)


def folds_of(blend, X, y, groups=None):
    """Rows of X on which a member of a blend is trained, and those that it then predicts."""
    seen = []

    class Witness(DummyClassifier):
        def fit(self, X, y, sample_weight=None):
            seen.append([X])
            return super().fit(X, y)

        def predict_proba(self, X):
            seen[-1].append(X)
            return super().predict_proba(X)

    clone(blend).set_params(members=[Witness()]).fit(X, y, groups=groups)
    return [part[:2] for part in seen if len(part) > 1]


each_kind = pytest.mark.parametrize(
    "blend, data", [(classifier(), classes()), (regressor(), targets())], ids=["class", "target"]
)


def train_folds(member, samples):
    """Train a member of a blend without each of the folds."""
    member.begin(samples)
    member.extend(member.n_folds, samples)
