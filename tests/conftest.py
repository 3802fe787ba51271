"""Fixtures that run a test once for every estimator of the package, later ones included."""

import pytest
from sklearn.base import BaseEstimator, is_classifier

import skforest

ALL = [
    thing
    for thing in (getattr(skforest, name) for name in skforest.__all__)
    if isinstance(thing, type) and issubclass(thing, BaseEstimator)
]
# A tree of its own has no words for many trees, and shares the rest with the forest of such trees.
ESTIMATORS = [cls for cls in ALL if "n_estimators" in cls().get_params()]
CLASSIFIERS = [cls for cls in ESTIMATORS if is_classifier(cls())]
REGRESSORS = [cls for cls in ESTIMATORS if not is_classifier(cls())]


def small(cls):
    """An estimator that is trained in a moment; unfitted."""
    wanted = {"n_estimators": 10, "random_state": 0, "bootstrap": True}
    own = cls().get_params()
    if "init" in own:
        wanted["n_epochs"] = 4  # of joint training
    if "n_bags" in own:
        wanted |= {"n_bags": 2, "max_iter": 300, "early_stopping": False}
    return cls(**{name: value for name, value in wanted.items() if name in own})


def pytest_collection_modifyitems(items):
    """Tests of some parameters are not collected for estimators that do not have them."""

    def takes_part(item):
        names = [name for mark in item.iter_markers("needs") for name in mark.args]
        params = getattr(item, "callspec", None) and item.callspec.params
        classes = [value for value in (params or {}).values() if isinstance(value, type)]
        return all(name in cls().get_params() for cls in classes for name in names)

    items[:] = [item for item in items if takes_part(item)]


@pytest.fixture(params=ESTIMATORS, ids=lambda cls: cls.__name__)
def estimator(request):
    return small(request.param)


@pytest.fixture(params=CLASSIFIERS, ids=lambda cls: cls.__name__)
def classifier(request):
    return small(request.param)


@pytest.fixture(params=REGRESSORS, ids=lambda cls: cls.__name__)
def regressor(request):
    return small(request.param)


@pytest.fixture
def all_estimators():
    """One of every kind."""
    return [small(cls) for cls in ESTIMATORS]
