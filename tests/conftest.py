"""Fixtures that run a test for every estimator of the package, later ones included.

The short suite, which runs by default, tests the code that all estimators share with one estimator
that scales its features and with one that does not; one is a classifier and one a regressor. All
other estimators follow in the slow suite (``-m slow``), or at once in a test that is marked
`every_class`.
"""

import faulthandler
import functools
import gc
import os
import signal

import pytest
from sklearn.base import BaseEstimator, is_classifier

import skforest
from skforest.blend.blend import _Blend
from skforest.training import trials

NAMED = [getattr(skforest, name) for name in skforest.__all__]
CLASSES = [x for x in NAMED if isinstance(x, type) and issubclass(x, BaseEstimator)]
# Once each: E2EDecisionForest is another name of E2EDecisionForestClassifier. Transformers have
# tests of their own.
ALL = list(dict.fromkeys(x for x in CLASSES if hasattr(x, "predict")))
PARAMETERS = {cls: cls().get_params() for cls in ALL}
# A single tree has no parameters of a forest, and shares the rest with the forest of such trees.
ESTIMATORS = [cls for cls in ALL if "n_estimators" in PARAMETERS[cls]]
CLASSIFIERS = [cls for cls in ESTIMATORS if is_classifier(cls())]
REGRESSORS = [cls for cls in ESTIMATORS if not is_classifier(cls())]
# Manifold forests compare features as they are, CO2 forests scale them to [0, 1].
REPRESENTATIVES = {
    "estimator": ("ManifoldForestClassifier", "CO2ForestRegressor"),
    "classifier": ("ManifoldForestClassifier", "CO2ForestClassifier"),
    "regressor": ("ManifoldForestRegressor", "CO2ForestRegressor"),
}


def parameters(cls):
    """Defaults of the parameters of a class, and of those of its procedure."""
    procedure = getattr(cls, "_default_procedure", None)  # blends have none
    return PARAMETERS[cls] | ({} if procedure is None else procedure().get_params())


collect_ignore_glob = ["*/run.py"]  # of mutants and guides: commands


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk():
    """Tests save hundreds of files, and need none of them after a crash of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        yield


@pytest.fixture(scope="module", autouse=True)
def few_trees_beside_the_model():
    """Forests that a fit trains beside the model took most of the time of small models.

    They are the random forest on the leaderboard of a blend and the trees behind the importances
    of hinge forests. Tests that need the latter set their number again; a module without such
    changes has a fixture of the same name.
    """
    full = _Blend._baseline
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Blend, "_baseline", lambda blend: full(blend).set_params(n_estimators=15))
        patch.setattr(trials, "IMPORTANCE_TREES", 10)
        yield


def small(cls):
    """An estimator that is trained in a moment; unfitted."""
    wanted = {"n_estimators": 10, "random_state": 0, "bootstrap": True}
    own = PARAMETERS[cls]
    if "init" in own:
        wanted["n_epochs"] = 4  # of joint training
    if "finetune_epochs" in own:
        wanted |= {"greedy_epochs": 5, "finetune_epochs": 5}
    if "n_bags" in own:
        wanted |= {"n_bags": 2, "max_iter": 300, "early_stopping": False, "bootstrap": False}
    if "l2_regularization" in own:
        wanted["learning_rate"] = 0.3  # ten trees of boosting add up to little by default
    if "objective" in own:  # "auto" would train small forests first
        wanted |= {"objective": "co2", "holdout": 0.0, "max_features": "sqrt"}
    return cls(**{name: value for name, value in wanted.items() if name in own})


@functools.cache
def _fitted(cls, train):
    return train(small(cls))


def fitted_attributes(cls, train):
    """What `train` adds to an estimator of a class; trained once per process.

    Parameters
    ----------
    cls : type
    train : callable
        Fits an estimator and returns it.

    Returns
    -------
    attributes : dict
    """
    model = _fitted(cls, train)
    params = model.get_params()
    return {name: value for name, value in vars(model).items() if name not in params}


def _classes(item):
    params = getattr(item, "callspec", None) and item.callspec.params
    return [cls for cls in ALL if any(value is cls for value in (params or {}).values())]


def _takes_part(item):
    """Has the estimator of a test the parameters that the test needs?"""
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    return not names or all(name in PARAMETERS[cls] for cls in _classes(item) for name in names)


def _is_extra(item):
    """Does a test of code that all estimators share run on other estimators elsewhere?"""
    if item.get_closest_marker("every_class"):
        return False
    shown = [names for fixture, names in REPRESENTATIVES.items() if fixture in item.fixturenames]
    return any(cls.__name__ not in names for names in shown for cls in _classes(item))


def _is_thinned_out(item, places):
    """Is a case none of those of the short suite?

    A case of a product takes part if the sum of its places in the lists of values is a multiple of
    n. So every value takes part, and, of three lists or more, every pair of values. `places` are
    the places of the values of tests that were seen before.
    """
    mark = item.get_closest_marker("thin")
    if mark is None:
        return False
    lists = [m.args[0] for m in item.iter_markers("parametrize")]
    lists = [names.split(",") if isinstance(names, str) else names for names in lists]
    lists = [tuple(name.strip() for name in names) for names in lists]
    params, total = item.callspec.params, 0
    for names in {*lists, *((name,) for name in params if name not in sum(lists, ()))}:
        known = places.setdefault((item.function, names), {})
        total += known.setdefault(tuple(id(params[name]) for name in names), len(known))
    return total % mark.args[0] > 0


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out the slow tests
def pytest_collection_modifyitems(items):
    """Leave out what an estimator has no parameters for; mark what the short suite leaves out."""
    items[:] = [item for item in items if _takes_part(item)]
    places = {}
    for item in items:
        if _is_thinned_out(item, places) or _is_extra(item):
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    """Hide the modules from the garbage collector, which would search them again and again."""
    gc.collect()
    gc.freeze()


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
def without_pictures(monkeypatch):
    """Reports make their figures, and do not draw them, which takes most of their time."""
    import matplotlib.pyplot as plt

    def close(section, figure, description):
        plt.close(figure)

    monkeypatch.setattr("skforest.inspect.page.Section.picture", close)


@pytest.fixture
def every_feature(monkeypatch):
    """Features of categories and of missing values are kept, whether they are useful or not."""
    monkeypatch.setattr(skforest.estimators.base, "useful_features", lambda data, *_: data)


@pytest.fixture
def interruptible():
    """SIGINT raises KeyboardInterrupt; a test that training does not let end is ended by force.

    A process that was started in the background ignores SIGINT, and so would its tests.
    """
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
    signal.signal(signal.SIGINT, handler)
