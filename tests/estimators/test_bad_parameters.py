"""Every value of a parameter has a defined outcome: it works, or an error says what is allowed."""

import re
from numbers import Integral

import numpy as np
import pytest
from conftest import ALL, ESTIMATORS, PARAMETERS, parameters, small
from makers import changed, response
from refusals import refuses, task
from sklearn.base import clone, is_classifier
from sklearn.datasets import make_classification
from sklearn.utils._param_validation import Interval

import skforest

# Bad input gives a result or an error, no warning of NumPy.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

# ---------------------------------------------------------------------------------- parameters

# Values that no estimator takes. A parameter of a later estimator is added here.
BAD_VALUES = {
    "categorical_features": [
        "some",
        1,
        True,
        [1.5],
        [-1],
        [1000],
        [None],
        [[0]],
        ["a", 1],
        ["no such column"],
        [1, True],
        [True],
        {"a": 1},
        np.nan,
    ],
    "n_estimators": [0, -1, 1.5, "many", None, np.nan],
    "structure": ["bush", None, 1],
    "head": ["sum", None, 1],
    "features": ["quadratic", None, 1],
    "kernel_size": [0, -1, 2.5, "wide", None],
    "stride": [0, -1, 2.5, "wide", None],
    "n_directions": [-1, 1.5, "many", None, 2**21],
    "linear_leaves": ["yes", 2, None],
    "linear_start": ["yes", 0, -1.0, np.nan, True, False],
    "monotonic_cst": ["up", 1, [2, 0, 0, 0, 0, 0], [1], {"a": 1}],
    "interaction_cst": ["all", 1, [1, 2], [["q"]], [[7]], [[6]], [[-1]], [[0, True]], {"a": 1}],
    "l2_regularization": [-0.1, "some", None, np.nan, np.inf],
    "subsample": [0, 1.5, -0.1, "half", None, np.nan],
    "n_bags": [0, -1, 1.5, "many", None],
    "optimizer": ["newton", None, 1],
    "weight_decay": [-0.1, "some", None, np.nan, np.inf],
    "schedule": ["step", None, 1],
    "voting": ["weighted", None, 1],
    "rescale_splits": ["yes", None, 2],
    "max_iter": [0, -1, 2.5, "many", None],
    "dropout": [-0.1, 1, 1.5, "some", None, np.nan],
    "importance_power": [-0.1, 17, "some", None, np.nan, np.inf],
    "label_smoothing": [-0.1, 1, 1.5, "some", None, np.nan],
    "loss": ["gini", None, 1],
    "quantile": [0, 1, -0.1, "half", None, np.nan],
    "projection": ["oblique", None, 1, ["axis"]],
    "objective": ["gini", "none", 0],
    "nu": [0, -1, "large", None, np.nan, np.inf],
    "learning_rate": [0, -0.1, "fast", None, np.nan, np.inf],
    "momentum": [-0.1, 1, 1.5, "high", None, np.nan],
    "n_epochs": [0, -1, 2.5, "many", None],
    "batch_size": [0, -1, 2.5, 2**20 + 1, "all", None],
    "holdout": [-0.1, 0.95, "some", None, np.nan],
    "smoothing": [0, -1, "none", None, np.nan, np.inf],
    "row_norm": [0, -1, "unit", np.nan, np.inf],
    "keep": ["first", None, 1],
    "weight_dtype": ["float64", None, np.float16, 16],
    "signs": ["new", None, 1],
    "leaves": ["means", None, 1],
    "init": ["random", None, 1],
    "inference": ["exact", None, 1],
    "stable": ["yes", None, 2],
    "l1": [-0.1, "some", None, np.nan, np.inf],
    "early_stopping": ["yes", None, 2],
    "calibrate": ["yes", None, 2],
    "validation_fraction": [0, 1, -0.1, "some", None, np.nan],
    "n_iter_no_change": [0, -1, 2.5, "few", None],
    "growth": ["best", "level", None, 1],
    "min_batches": [0, -1, 2.5, 2**20 + 1, "auto", None],
    "max_weights": [0, -1, 2.5, 2**20 + 1, "auto"],
    "scaling": ["unit", 1, True],
    "greedy_epochs": [0, -1, 2.5, "many", None],
    "finetune_epochs": [-1, 2.5, "many", None],
    "steepness": [0, -1, "steep", None, np.nan, np.inf],
    "steepness_step": [-0.1, "steep", None, np.nan, np.inf],
    "feature_dropout": [-0.1, 1, 1.5, "some", None, np.nan],
    "smoothness": [-0.1, "smooth", None, np.nan, np.inf],
    "patch_size": [0, -6, 1.5, "6", {}],
    "routing": ["sigmoid", None, 1],
    "refine": ["twice", True, 1],
    "n_sweeps": [0, -1, 2.5, "many", None],
    "n_restarts": [-1, 2.5, "many", None],
    "n_jumps": [-1, 2.5, "many", None],
    "min_weight_fraction_leaf": [-0.1, 0.6, "few", None, np.nan],
    "feature_shape": [0, -6, 1.5, "6", {}, np.array(6)],
    "feature_graph": ["grid", 1, True, {}, [["a"]]],
    "contrast": ["gabor", None, 0],
    "min_patch": [0, -1, 1.5, "small", None],
    "max_patch": [0, -1, 1.5, "large", None],
    "wrap": ["yes", None, 2, 1.5],
    "unordered": ["yes", None, 2, 1.5],
    "placement": ["outside", None, 1],
    "n_nonzeros": [0, -1, "many", None, np.nan, np.inf],
    "nonzeros": ["uniform", None, 3],
    "sparse_weights": ["unit", None, 1],
    "criterion": ["mae", None, 1],
    "splitter": ["best", None, 1],
    "max_bins": [1, 0, -5, 1025, 10**9, 32.5, "many", None],
    "max_search_samples": [31, 0, -1, 100.5, "all"],
    "max_features": [0, -1, 0.0, -0.5, "all", np.nan, np.inf],
    "max_depth": [0, -1, 2.5, "deep", np.nan],
    "min_samples_split": [1, 0, -2, 0.0, 1.5, "few", None, np.nan],
    "min_samples_leaf": [0, -1, 0.0, 1.0, 1.5, "few", None, np.nan],
    "max_leaf_nodes": [1, 0, -1, 2.5, "many"],
    "min_impurity_decrease": [-0.1, "small", None, np.nan, np.inf],
    "bootstrap": ["yes", None, 2, 0.5],
    "max_samples": [0, -1, 0.0, 1.5, -0.5, "half", np.nan],
    "oob_score": ["yes", None, 2],
    "class_weight": ["auto", 1, [1, 2], 0.5],
    "prior": ["equal", 1, 0.5, [1.0], {"x": 1}, [np.nan, 1, 1]],
    "n_jobs": [1.5, "all", np.nan],
    "random_state": ["seed", -1, 1.5, 2**32],
    "verbose": ["loud", -1, None, 1.5],
    "warm_start": ["yes", None, 2],
    "time_limit": [0, -1, "soon", np.nan],
    "procedure": ["as printed", 1, {"momentum": 0.9}, skforest.CO2Procedure],
}

# Members of blends have tests of their own.
NO_BLENDS = [cls for cls in ALL if "members" not in PARAMETERS[cls]]


@pytest.mark.parametrize("cls", NO_BLENDS, ids=lambda cls: cls.__name__)
def test_every_parameter_has_bad_values(cls):
    assert parameters(cls).keys() <= BAD_VALUES.keys()


@pytest.mark.parametrize(
    "cls, name",
    [(cls, name) for cls in NO_BLENDS for name in parameters(cls)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_bad_parameters(cls, name):
    estimator = small(cls)
    if name == "feature_shape" and "dropout" in estimator.get_params():
        estimator.set_params(features="conv")
    X, y = task(estimator)
    for value in BAD_VALUES[name]:
        changed(estimator, **{name: value})
        refuses(estimator, X, y, rf"\b{name}\b", re.escape(repr(value)))


@pytest.mark.parametrize("cls, loss", [
    (skforest.ObliqueBoostingRegressor, skforest.HuberLoss),
    (skforest.ObliqueBoostingRegressor, skforest.TweedieLoss),
    (skforest.RandomHingeForestRegressor, skforest.HuberLoss),
])  # fmt: skip
def test_bad_parameters_of_losses(cls, loss):
    estimator = small(cls).set_params(loss=loss())
    X, y = task(estimator)
    (name,) = loss().get_params()
    for value in (0, -1, 1 if name == "power" else "a", 2 if name == "power" else True, "some",
                  None, np.nan, np.inf):  # fmt: skip
        estimator.set_params(**{f"loss__{name}": value})
        refuses(estimator, X, y, rf"\b{name}=.* of {loss.__name__}", re.escape(repr(value)))
        blend = skforest.BlendedForestRegressor([("own", estimator)])
        with pytest.raises(ValueError, match=rf"\b{name}="):
            blend.fit(X, y)


def test_losses_that_an_estimator_does_not_take():
    """Those of the other task, classes, and what hinge forests are not made for."""
    huber, tweedie = skforest.HuberLoss(), skforest.TweedieLoss()
    refused = {
        skforest.ObliqueBoostingClassifier: (huber, "huber", skforest.Loss),
        skforest.RandomHingeForestClassifier: (huber, "quantile", skforest.Loss),
        skforest.ObliqueBoostingRegressor: ("log_loss", skforest.HuberLoss),
        skforest.RandomHingeForestRegressor: (tweedie, "tweedie", "gamma", "log_loss"),
    }
    for cls, losses in refused.items():
        X, y = task(small(cls))
        for loss in losses:
            refuses(small(cls).set_params(loss=loss), X, y, r"\bloss\b", re.escape(repr(loss)))


def test_a_parameter_that_does_not_exist(estimator):
    with pytest.raises(ValueError, match="(?s)Invalid parameter 'colour'.*n_estimators"):
        estimator.set_params(colour="green")
    with pytest.raises(TypeError, match="colour"):
        type(estimator)(colour="green")


@pytest.mark.every_class
def test_no_jobs(estimator):
    refuses(estimator.set_params(n_jobs=0), *task(estimator), "n_jobs", "0")


@pytest.mark.needs("min_weight_fraction_leaf")
def test_more_samples_than_there_are(estimator):
    X, y = task(estimator)
    refuses(estimator.set_params(max_samples=61), X, y, "max_samples=61", "60")


@pytest.mark.parametrize(
    "params", [{"oob_score": True}, {"max_samples": 0.5}, {"max_samples": 10}], ids=str
)
@pytest.mark.needs("min_weight_fraction_leaf")
def test_parameters_that_need_a_bootstrap(estimator, params):
    estimator.set_params(bootstrap=False, **params)
    ((name, value),) = params.items()
    refuses(estimator, *task(estimator), f"{name}={value}", "bootstrap=True")


SHAPES = [
    (2, 2),
    (7,),
    5,
    (2, 3, 2),
    (),
    (0, 6),
    (-2, -3),
    (6, 1, 0),
    (2**33, 2**31),
    (2**80, 1),
    [[2, 3]],
    (2.5, 3),
    (1.5, 4),
    ("2", "3"),
    ("a", "b"),
    (None, 6),
    (np.nan, 6),
    (True, 6.5),
]


@pytest.mark.needs("projection")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes_that_do_not_fit(estimator, shape):
    estimator.set_params(feature_shape=shape)
    refuses(estimator, *task(estimator), "feature_shape", re.escape(str(shape)))


@pytest.mark.needs("projection")
def test_more_axes_than_are_supported(estimator):
    """The docstring names the largest number; it works, and one more is refused."""
    X, y = task(estimator)
    changed(estimator, feature_shape=(6,) + (1,) * 7, max_patch=1, contrast="sum").fit(X, y)
    assert estimator.score(X, y) > 0.8
    estimator.set_params(feature_shape=(6,) + (1,) * 8)
    refuses(estimator, X, y, "feature_shape", "8")


@pytest.mark.needs("projection")
@pytest.mark.parametrize("projection", ["axis", "sparse", "patch"])
def test_shapes_are_checked_for_every_projection(estimator, projection):
    estimator.set_params(feature_shape=(2, 2), projection=projection)
    refuses(estimator, *task(estimator), r"feature_shape=\(2, 2\)", "6")


PATCHES = [
    ({"min_patch": 2, "max_patch": 1}, ["min_patch=2", "max_patch=1"]),
    ({"min_patch": (1, 3), "max_patch": (2, 2)}, [r"min_patch=\(1, 3\)", r"max_patch=\(2, 2\)"]),
    ({"max_patch": 3}, ["max_patch=3", r"\(2, 3\)"]),
    ({"max_patch": (2, 4)}, [r"max_patch=\(2, 4\)", r"\(2, 3\)"]),
    ({"min_patch": 3}, ["min_patch=3", r"\(2, 3\)"]),
    ({"min_patch": (0, 1)}, [r"min_patch=\(0, 1\)", "1"]),
    ({"max_patch": (-1, 1)}, [r"max_patch=\(-1, 1\)", "1"]),
    ({"min_patch": 2**32 + 1}, ["min_patch=4294967297", r"\(2, 3\)"]),
    ({"max_patch": 2**32 + 1}, ["max_patch=4294967297", r"\(2, 3\)"]),
    ({"max_patch": 2**70}, ["max_patch", r"\(2, 3\)"]),
    ({"min_patch": (1.5, 1)}, [r"min_patch=\(1.5, 1\)"]),
    ({"max_patch": (1.5, 2.9)}, [r"max_patch=\(1.5, 2.9\)"]),
    ({"max_patch": (np.nan, 1)}, ["max_patch"]),
    ({"min_patch": ("a", "b")}, ["min_patch"]),
    ({"max_patch": ("1", "2")}, ["max_patch"]),
    ({"min_patch": (1, 1, 1)}, [r"min_patch=\(1, 1, 1\)", "2", r"\(2, 3\)"]),
    ({"max_patch": (1, 2, 1)}, [r"max_patch=\(1, 2, 1\)", "2", r"\(2, 3\)"]),
    ({"wrap": (True, False, True)}, [r"wrap=\(True, False, True\)", "2", r"\(2, 3\)"]),
    ({"unordered": (True,) * 3}, [r"unordered=\(True, True, True\)", "2", r"\(2, 3\)"]),
    ({"wrap": ()}, [r"wrap=\(\)"]),
    ({"min_patch": [[1, 1]]}, [r"min_patch=\[\[1, 1\]\]"]),
    ({"wrap": ("no", "yes")}, ["wrap"]),
    ({"wrap": (2, 0)}, ["wrap"]),
    ({"unordered": (0.5, 0)}, ["unordered"]),
    ({"unordered": (None, True)}, ["unordered"]),
]


@pytest.mark.needs("projection")
@pytest.mark.parametrize("params, words", PATCHES, ids=[str(params) for params, _ in PATCHES])
def test_patches_that_do_not_fit(estimator, params, words):
    changed(estimator, feature_shape=(2, 3), **params)
    refuses(estimator, *task(estimator), *words)


@pytest.mark.needs("projection")
def test_unordered_has_priority_over_wrap(estimator):
    X, y = task(estimator)
    changed(estimator, feature_shape=(2, 3), unordered=(False, True), max_patch=(2, 3))
    one = clone(estimator).fit(X, y)
    other = clone(estimator).set_params(wrap=(False, True)).fit(X, y)
    np.testing.assert_array_equal(response(one, X), response(other, X))


def ends_of_ranges(cls):
    """Parameters of a class with the smallest and largest numbers that they may have.

    Largest ints are left out: they are limits of memory.
    """
    known = cls._parameter_constraints
    if cls._default_procedure is not None:
        known = known | cls._default_procedure._parameter_constraints
    for name, constraints in sorted(known.items()):
        if name not in parameters(cls) or name in ("n_jobs", "verbose", "random_state"):
            continue
        for interval in constraints:
            if not isinstance(interval, Interval):
                continue
            if interval.left is not None and interval.type is Integral:
                yield name, int(interval.left)
            elif interval.left is not None:
                is_closed = interval.closed in ("left", "both")
                yield name, float(interval.left if is_closed else np.nextafter(interval.left, 9))
            if interval.right is not None and interval.type is not Integral:
                is_closed = interval.closed in ("right", "both")
                yield name, float(interval.right if is_closed else np.nextafter(interval.right, 0))


# What else a value at the end of its range needs, or the message with which it is refused.
NEEDED = {
    "feature_shape": "multiply",
    "max_samples": {"bootstrap": True},
    "dropout": "infinite",
}


@pytest.mark.parametrize("cls", [cls for cls in NO_BLENDS if not is_classifier(cls())])
def test_numbers_at_the_ends_of_their_ranges(cls):
    """A forest, or a message; means of targets stay in their range."""
    X, y = task(cls())
    X, y = X[:40], y[:40]
    quick = {"n_estimators": 2} if cls in ESTIMATORS else {}
    quick |= {"max_iter": 20} if "dropout" in PARAMETERS[cls] else {}
    for name, value in ends_of_ranges(cls):
        model = changed(small(cls), **quick | {name: value})
        needed = NEEDED.get(name, {})
        if isinstance(needed, dict):
            model.set_params(**needed)
        try:
            found = model.fit(X, y).predict(X)
        except ValueError as error:
            assert isinstance(needed, str) and needed in str(error), f"{name}={value}: {error}"
            continue
        assert np.isfinite(found).all(), f"{name}={value}"
        if model.forest_.aggregate == "mean" and model.forest_.gate == "hard":
            assert (np.abs(found - np.clip(found, y.min(), y.max())) < 1e-5).all(), name
        assert (model.forest_.node_weight[model.forest_.tree_start[:-1]] > 0).all(), name


@pytest.mark.every_class
def test_shares_that_round_to_nothing_are_one(regressor):
    """Of rows or features: the least that there is, and not none."""
    X, y = task(regressor)
    for name in ("max_samples", "max_features", "subsample", "validation_fraction"):
        if name not in parameters(type(regressor)):
            continue
        own = {"early_stopping": True} if name == "validation_fraction" else {}
        own |= {"bootstrap": True} if name == "max_samples" else {}
        own |= {"n_bags": 1} if "n_bags" in regressor.get_params() and own else {}
        own |= {"max_iter": 20} if "dropout" in regressor.get_params() else {}
        one, two = (
            changed(clone(regressor), n_estimators=2, **own | {name: share}).fit(X, y)
            for share in (1e-9, 0.8 / len(X) if name != "max_features" else 0.1)
        )
        np.testing.assert_array_equal(one.predict(X), two.predict(X), err_msg=name)


@pytest.mark.needs("projection")
@pytest.mark.parametrize("contrast", ["sum", "edge", "difference", "mix"])
def test_patches_on_a_circle_longer_than_half_of_it(estimator, contrast):
    """Two boxes side by side do not fit: the result is finite, and no box overlaps itself."""
    X, y = task(estimator)
    changed(estimator, feature_shape=6, wrap=True, min_patch=4, max_patch=6, max_features=50)
    changed(estimator, contrast=contrast).fit(X, y)
    weights = estimator.forest_.directions().toarray()
    assert np.isfinite(response(estimator, X)).all()
    assert (np.abs(weights) <= 1).all()


@pytest.mark.needs("projection")
@pytest.mark.parametrize("contrast", ["sum", "edge", "difference", "mix"])
@pytest.mark.parametrize("unordered", [True, False])
def test_patches_as_large_as_the_whole(estimator, contrast, unordered):
    """There is one place for a box, so that every direction is the sum of all features."""
    X, y = task(estimator)
    changed(estimator, feature_shape=(2, 3), min_patch=(2, 3), max_patch=(2, 3))
    changed(estimator, contrast=contrast, unordered=unordered).fit(X, y)
    weights = estimator.forest_.directions().toarray()
    np.testing.assert_array_equal(weights, np.ones_like(weights))


@pytest.mark.needs("projection")
@pytest.mark.parametrize("nonzeros", ["poisson", "fixed"])
@pytest.mark.parametrize("n_nonzeros", [0.5, 0.9, 2.5, 6.0, 1e6, 1e300])
def test_numbers_of_nonzeros_at_the_edge(estimator, nonzeros, n_nonzeros):
    """Refused with the parameter's name, or directions of one feature or more."""
    X, y = task(estimator)
    changed(
        estimator, projection="sparse", nonzeros=nonzeros, n_nonzeros=n_nonzeros, bootstrap=False
    )
    if nonzeros == "fixed" and n_nonzeros < 1:
        refuses(estimator, X, y, f"n_nonzeros={n_nonzeros}", "1")
        return
    estimator.fit(X, y)
    assert estimator.score(X, y) == pytest.approx(1)
    counts = np.diff(estimator.forest_.directions().indptr)
    assert counts.min() >= 1 and counts.max() <= 6


@pytest.mark.usefixtures("interruptible")
def test_a_tiny_number_of_nonzeros_is_no_endless_loop():
    """Nearly all Poisson numbers of this mean are 0, which is drawn again."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((50, 6)), np.arange(50) % 2
    for n_nonzeros in (1e-9, 1e-300):
        procedure = skforest.ManifoldProcedure(n_nonzeros=n_nonzeros)
        model = skforest.ManifoldForestClassifier(5, projection="sparse", procedure=procedure)
        try:
            model.fit(X, y)
        except ValueError as error:
            assert "n_nonzeros" in str(error)
        else:
            assert (np.diff(model.forest_.directions().indptr) == 1).all()


# ------------------------------------------------------------------ inputs that were once accepted


def test_no_threads(estimator):
    X, y = task(estimator)
    refuses(estimator.set_params(n_jobs=0), X, y, "n_jobs=0")


def test_huge_counts(estimator):
    X, y = task(estimator)
    refuses(estimator.set_params(n_estimators=10**30), X, y, "n_estimators", "too large")


def test_images_without_feature_shape():
    X, y = make_classification(60, 6, random_state=0)
    model = skforest.ManifoldForestClassifier(2)
    refuses(model, X.reshape(-1, 2, 3), y, r"feature_shape=\(2, 3\)")
