"""scikit-learn's own checks, for every estimator and for every way of growing its trees."""

import functools
import inspect
import pickle
from unittest import SkipTest

import pytest
from conftest import parameters
from makers import made
from sklearn.base import BaseEstimator, is_classifier
from sklearn.datasets import make_classification
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks

import skforest

# Each once: two names may be of the same class. Transformers have tests of their own.
CLASSES = [
    thing
    for thing in dict.fromkeys(getattr(skforest, name) for name in skforest.__all__)
    if isinstance(thing, type) and issubclass(thing, BaseEstimator) and hasattr(thing, "predict")
]

# One does not scale its features, one does.
REPRESENTATIVES = ("ManifoldForest", "CO2Forest")
STOPPED = skforest.NonGreedyTreeClassifier(n_epochs=5, early_stopping=True, l1=1e-3)
# Settings that take other paths through the training, for the estimators that have the first
# parameter, or their procedures; of the others they take those that they have. A patch without
# feature_shape is a run of columns.
CONFIGURATIONS = [
    {"projection": "axis", "max_bins": 16, "max_search_samples": 32, "max_features": None},
    {"projection": "axis", "splitter": "exact", "criterion": "entropy", "bootstrap": True},
    {"projection": "patch", "wrap": True, "contrast": "mix"},
    {"projection": "patch", "unordered": True, "contrast": "sum", "max_leaf_nodes": 30},
    # Small pure leaves would ignore class weights: every row has a leaf of its own.
    {"nonzeros": "fixed", "bootstrap": False, "min_samples_leaf": 10, "sparse_weights": "sign"},
    {"signs": "old", "bootstrap": True, "max_samples": 0.8, "leaves": "gradient"},
    {"objective": "mixed", "holdout": 0.3, "n_epochs": 3, "max_leaf_nodes": 30},
    {"objective": None, "max_features": None},
    {"objective": "random", "min_samples_leaf": 10},
    {"objective": "oc1", "n_restarts": 1},
    {"init": "axis", "stable": True, "inference": "full", "max_depth": 4, "n_epochs": 3},
    {"refine": "nongreedy", "objective": "co2", "holdout": 0.0, "bootstrap": False},
    {"refine": STOPPED, "objective": None, "max_depth": 4, "bootstrap": True},
    {"structure": "fern", "n_bags": 4, "optimizer": "adagrad", "max_iter": 2000},
    {"n_directions": 10, "schedule": "plateau", "features": "identity", "max_iter": 1000},
    {"early_stopping": True, "l1": 1e-3, "max_depth": 4, "bootstrap": True, "max_iter": 300},
    {"routing": "soft", "max_leaf_nodes": 20, "max_features": None},
    {"min_batches": 1, "growth": "complete", "max_depth": 4, "early_stopping": True},
    {"l2_regularization": 1.0, "n_directions": 8, "n_bags": 2, "max_leaf_nodes": 9},
]
# Skipped for scikit-learn's own forests, too: without SciPy configured for other arrays, and of
# labels per row without a decision function.
SKIPPED = ("array_api", "does not have a decision_function")

each_class = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)


# The checks whose result depends on the training. All others, and those of read-only input, are
# about code that every configuration shares, such as labels and pickles.
OF_TRAINING = {
    f"check_{name}"
    for name in (
        "class_weight_classifiers",
        "classifiers_one_label",
        "classifiers_one_label_sample_weights",
        "classifiers_train",
        "decision_proba_consistency",
        "fit2d_1feature",
        "fit2d_1sample",
        "fit_idempotent",
        "methods_sample_order_invariance",
        "methods_subset_invariance",
        "regressor_multioutput",
        "regressors_int",
        "regressors_train",
        "sample_weight_equivalence_on_dense_data",
    )
}


def few_members(cls):
    """Members of a blend that are trained in a moment."""
    if is_classifier(cls()):
        kinds = skforest.ManifoldForestClassifier, skforest.CO2ForestClassifier
    else:
        kinds = skforest.ManifoldForestRegressor, skforest.CO2ForestRegressor
    return [kinds[0](3), kinds[1](3, objective="co2", holdout=0.0, bootstrap=False)]


def configured(configurations, kinds=(True, False)):
    """Estimators of few trees, in some configurations; `kinds`: classifiers, or regressors."""
    estimators = []
    for cls in CLASSES:
        if is_classifier(cls()) not in kinds:
            continue
        defaults = parameters(cls)
        for config in configurations:
            if config and next(iter(config)) not in defaults:
                continue
            own = {name: value for name, value in config.items() if name in defaults}
            if not is_classifier(cls()):
                own.pop("criterion", None)
            if "n_estimators" in defaults:
                own["n_estimators"] = 5
            if "members" in defaults:
                own |= {"members": few_members(cls), "cv": 2, "n_rounds": 10}
            if "finetune_epochs" in defaults:
                own |= {"greedy_epochs": 5, "finetune_epochs": 5}
            if "max_iter" in defaults:
                own = {"max_depth": 3, "max_iter": 100, "n_bags": 2} | own | {"n_estimators": 6}
            elif "n_bags" in defaults:  # boosting, which needs more trees
                own = {"learning_rate": 0.4, "n_bags": 2} | own | {"n_estimators": 10}
            estimators.append(made(cls, **own))
    return estimators


def run_check(estimator, check):
    """One of scikit-learn's checks, which may be skipped only where `SKIPPED` says so."""
    try:
        check(estimator)
    except SkipTest as skipped:
        if not any(reason in str(skipped).lower() for reason in SKIPPED):
            raise AssertionError(f"a check was skipped: {skipped}") from skipped
        raise


# Each configuration once: of classifiers, or of regressors, which are trained by the same code.
ONCE = {
    str(estimator)
    for i, config in enumerate(CONFIGURATIONS)
    for estimator in configured([config], [i % 2 == 1])
}


def is_of_training(estimator, check):
    """A single tree is trained as those of a CO2 forest are."""
    in_forest = "n_estimators" in estimator.get_params(deep=False)
    is_own = check.func.__name__ in OF_TRAINING and not check.keywords
    return in_forest and is_own and str(estimator) in ONCE


def is_no_repeat(estimator, check):
    """Two kinds of forests run all checks; of the others, regressors run those of training only.

    All estimators read their input by the same code: read-only memory, other dtypes, matrices and
    arrays of SciPy are not tried for each.
    """
    if type(estimator).__name__.startswith(REPRESENTATIVES):
        return True
    name = check.func.__name__
    if check.keywords or name == "check_estimator_sparse_matrix":
        return False
    return is_classifier(estimator) or name in OF_TRAINING


def checks(estimators, is_fast=None):
    """`parametrize_with_checks`; the checks that are not `is_fast` are marked as slow.

    The printed form of an estimator, which is the name of its tests, is computed once.
    """
    mark = parametrize_with_checks(estimators).mark
    names, cases = mark.args
    if is_fast is not None:
        cases = [
            pytest.param(*case, marks=() if is_fast(*case) else pytest.mark.slow) for case in cases
        ]
    return pytest.mark.parametrize(names, list(cases), ids=functools.cache(mark.kwargs["ids"]))


@checks(configured([{}]), is_no_repeat)
def test_scikit_learn_checks(estimator, check):
    run_check(estimator, check)


@checks(configured(CONFIGURATIONS), is_of_training)
def test_scikit_learn_checks_of_training(estimator, check):
    run_check(estimator, check)


@pytest.mark.slow
@checks([cls() for cls in CLASSES])
def test_scikit_learn_checks_of_the_defaults(estimator, check):
    run_check(estimator, check)


# The default members of blends are fitted in test_blend.py.
@pytest.mark.parametrize(
    "cls", [cls for cls in CLASSES if not hasattr(cls(), "members")], ids=lambda cls: cls.__name__
)
def test_the_defaults_learn(cls):
    X, y = make_classification(100, 8, n_informative=6, n_classes=3, random_state=0)
    model = cls(random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8


def test_there_are_estimators():
    assert len(CLASSES) >= 2


@each_class
def test_no_check_is_switched_off_by_a_tag(cls):
    tags = get_tags(cls())
    assert tags.non_deterministic is False
    assert tags.no_validation is False
    assert tags._skip_test is False
    assert tags.requires_fit is True
    if is_classifier(cls()):
        assert tags.classifier_tags.poor_score is False
    else:
        assert tags.regressor_tags.poor_score is False


@each_class
def test_fit_takes_sample_weight(cls):
    parameters = inspect.signature(cls().fit).parameters
    assert list(parameters)[:3] == ["X", "y", "sample_weight"]
    with_rows = ["groups", "X_val", "y_val", "sample_weight_val"]
    further = {"members": with_rows, "n_bags": with_rows}
    expected = [names for key, names in further.items() if key in cls().get_params()]
    assert list(parameters)[3:] == [*sum(expected, []), "checkpoint"]
    assert parameters["sample_weight"].default is None


@pytest.mark.parametrize(
    "cls, projection",
    [
        (cls, projection)
        for cls in CLASSES
        if {"oob_score", "max_features"} <= cls().get_params().keys()
        for projection in ("axis", "sparse", "patch")
        if projection == "axis" or "projection" in cls().get_params()
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_methods_beyond_the_checks(cls, projection, tmp_path):
    """The oldest versions run little more than this file: call once what else a forest offers."""
    X, y = make_classification(80, 12, n_informative=6, n_classes=3, random_state=0)
    model = cls(30, bootstrap=True, oob_score=True, random_state=0, n_jobs=2, warm_start=True)
    if "projection" in model.get_params():
        model.set_params(projection=projection, feature_shape=(3, 4))
    model.fit(X, y)
    assert 0 < model.oob_score_ < 1
    for kind in ("impurity", "count"):
        importances = model.forest_.feature_importances(kind)
        assert importances.shape == (12,) and abs(importances.sum() - 1) < 1e-12
    leaves, (path, starts) = model.apply(X), model.decision_path(X)
    assert path.shape == (80, model.forest_.n_nodes)
    assert all(path[i, starts[t] + leaves[i, t]] == 1 for i in (0, 79) for t in range(30))
    directions = model.forest_.directions()
    assert directions.shape == (model.forest_.n_leaves.sum() - 30, 12)
    for layout, mmap_mode in (("file", None), ("folder", "r")):
        skforest.save(model, tmp_path / layout, layout=layout)
        again = skforest.load(tmp_path / layout, mmap_mode=mmap_mode)
        assert (again.predict(X) == model.predict(X)).all()
    again = pickle.loads(pickle.dumps(model))
    assert (again.predict(X) == model.predict(X)).all()
    model.set_params(n_estimators=31).fit(X, y)
    assert len(model.forest_) == 31
    assert model.forest_[:30].response(X).tolist() == again.forest_.response(X).tolist()


@pytest.mark.parametrize("name", [name for name in skforest.__all__ if "Classifier" in name])
def test_classifier_and_regressor_have_their_parameters_in_one_order(name):
    kinds = getattr(skforest, name), getattr(skforest, name.replace("Classifier", "Regressor"))
    first, second = (list(inspect.signature(kind).parameters) for kind in kinds)
    assert [p for p in first if p in second] == [p for p in second if p in first]
