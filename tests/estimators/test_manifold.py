"""Manifold forests: the effect of each parameter, and data on which patches help."""

import numpy as np
import pytest
from makers import changed, made
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits, make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from skforest import (
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ManifoldProcedure,
    load,
    save,
    shapley_values,
)

BOTH = [ManifoldForestClassifier, ManifoldForestRegressor]

SHAPE = (5, 8)


@pytest.fixture(params=BOTH, ids=lambda cls: cls.__name__)
def forest(request):
    return request.param(n_estimators=5, random_state=0, bootstrap=False)


def noise(n=200, n_features=40, seed=0):
    """Targets that are independent of the rows: no direction is better than another."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, n_features)).astype(np.float32), rng.integers(0, 2, n)


# ---------------------------------------------------------------------- every parameter matters

# Further parameters, and a value of the parameter that is not its default.
EFFECTS = {
    "n_estimators": ({}, 6),
    "projection": ({}, "axis"),
    "feature_shape": ({"projection": "patch"}, (10, 4)),
    "feature_graph": (
        {"projection": "patch", "feature_shape": None},
        np.roll(np.eye(40), 1, 0) + np.roll(np.eye(40), -1, 0),
    ),
    "contrast": ({"projection": "patch"}, "difference"),
    "min_patch": ({"projection": "patch"}, 2),
    "max_patch": ({"projection": "patch"}, (5, 8)),
    "wrap": ({"projection": "patch"}, True),
    "unordered": ({"projection": "patch"}, (True, False)),
    "placement": ({"projection": "patch"}, "inside"),
    "n_nonzeros": ({"projection": "sparse"}, 6.0),
    "nonzeros": ({"projection": "sparse"}, "fixed"),
    "sparse_weights": ({"projection": "sparse"}, "sign"),
    "criterion": ({}, "entropy"),
    "splitter": ({}, "exact"),
    "max_bins": ({}, 5),
    "max_search_samples": ({}, 50),
    "max_features": ({}, 0.9),
    "max_depth": ({}, 3),
    "min_samples_split": ({}, 20),
    "min_samples_leaf": ({}, 9),
    "max_leaf_nodes": ({}, 7),
    "min_impurity_decrease": ({}, 0.02),
    "bootstrap": ({}, False),
    "min_weight_fraction_leaf": ({}, 0.2),
    "max_samples": ({}, 0.4),
    "class_weight": ({}, {0: 5, 1: 1, 2: 1}),
    "categorical_features": ({"feature_shape": None}, [0]),
    "random_state": ({}, 1),
}

# These change no tree. Each has a test elsewhere.
NO_EFFECT_ON_TREES = ["oob_score", "n_jobs", "verbose", "warm_start", "time_limit", "voting"]


@pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.__name__)
def test_the_list_of_parameters_is_complete(cls):
    listed = {*EFFECTS, *NO_EFFECT_ON_TREES, "prior"}  # test_prior.py tests the last one
    if cls is ManifoldForestRegressor:
        listed -= {"class_weight", "criterion", "prior"}
    apart = ManifoldProcedure().get_params().keys()
    assert apart < listed
    assert cls().get_params().keys() == listed - apart | {"procedure"}


@pytest.mark.thin(2)
@pytest.mark.parametrize("cls", BOTH, ids=lambda cls: cls.__name__)
@pytest.mark.parametrize("name", EFFECTS)
def test_every_parameter_has_an_effect(cls, name):
    beside, value = EFFECTS[name]
    if cls is ManifoldForestRegressor and name in ("class_weight", "criterion"):
        with pytest.raises(TypeError, match=name):
            cls(**{name: value})
        return
    X, y = make_classification(300, 40, n_informative=6, n_classes=3, random_state=0)
    params = {"n_estimators": 5, "random_state": 0, "feature_shape": SHAPE, **beside}
    one = cls(**params).fit(X, y)
    other = made(cls, **{**params, name: value}).fit(X, y)
    assert not (
        np.array_equal(one.forest_.child, other.forest_.child)
        and np.array_equal(one.forest_.threshold, other.forest_.threshold)
    )


@pytest.mark.parametrize("name", NO_EFFECT_ON_TREES)
@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB")
def test_the_other_parameters_change_no_tree(forest, name):
    X, y = noise(100)
    forest.set_params(bootstrap=True, n_estimators=20)
    value = {"n_jobs": 2, "voting": "hard"}.get(name, True)
    other = changed(clone(forest), **{name: value}).fit(X, y)
    np.testing.assert_array_equal(other.forest_.threshold, forest.fit(X, y).forest_.threshold)


@pytest.mark.parametrize("outputs", [1, 2])
def test_hard_voting_counts_the_trees(outputs):
    X, y = make_classification(120, 6, n_informative=4, n_classes=3, random_state=0)
    Y = y if outputs == 1 else np.stack([y, y > 0], axis=1)
    model = ManifoldForestClassifier(5, max_depth=2, random_state=0, oob_score=True)
    with pytest.warns(UserWarning, match="OOB"):
        model.fit(X, Y)
        votes = changed(clone(model), voting="hard").fit(X, Y)
    np.testing.assert_array_equal(votes.apply(X), model.apply(X))
    for k, (first, n_classes) in enumerate([(0, 3), (3, 2)][:outputs]):
        own = slice(first, first + n_classes)
        labels = [tree.response(X)[:, own].argmax(axis=1) for tree in model.forest_]
        expected = np.mean([np.eye(n_classes)[one] for one in labels], axis=0)
        found = votes.predict_proba(X) if outputs == 1 else votes.predict_proba(X)[k]
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not np.array_equal(votes.oob_decision_function_, model.oob_decision_function_)


# --------------------------------------------------------------------------------- importances


@pytest.mark.parametrize(
    "params",
    [
        {"projection": "axis"},
        {"projection": "sparse"},
        {"projection": "sparse", "sparse_weights": "sign"},
        {"projection": "patch", "contrast": "sum"},
        {"projection": "patch", "contrast": "edge", "unordered": (True, False)},
        {"projection": "patch", "contrast": "difference", "wrap": True},
    ],
    ids=lambda params: " ".join(map(str, params.values())),
)
def test_importances_from_their_definition(forest, params):
    X, y = noise()
    changed(forest, feature_shape=SHAPE, bootstrap=True, **params).fit(X, y)
    packed = forest.forest_
    weights = packed.directions().toarray()
    # By count: how many splits have a weight on the feature (Perry et al., section 3.2).
    count = (weights != 0).sum(axis=0)
    found = forest.forest_.feature_importances("count")
    np.testing.assert_allclose(found, count / count.sum(), rtol=1e-12)
    # By impurity: decrease at the split times the absolute weight, all trees weighing the same.
    # Weights that were divided by the deviation of their feature count as their signs.
    if params == {"projection": "sparse"}:
        weights = np.sign(weights)
    tree = np.repeat(np.arange(len(packed)), packed.n_leaves - 1)
    share = packed.gain[:, None].astype(float) * abs(weights)
    by_tree = np.array([share[tree == t].sum(axis=0) for t in range(len(packed))])
    expected = (by_tree / by_tree.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose(forest.feature_importances_, expected, rtol=1e-6)
    assert not np.allclose(found, forest.feature_importances_)


def test_importances_do_not_depend_on_units(forest):
    X, _ = noise(300, 6)
    y = X[:, 0] - X[:, 1] > 0
    units = np.float32([1e-3, 1e3, 1, 1, 1e6, 1e-6])
    forest.set_params(projection="sparse", bootstrap=True, n_estimators=30)
    one, other = clone(forest).fit(X, y), clone(forest).fit(X * units, y)
    found = other.feature_importances_
    assert set(found.argsort()[-2:]) == {0, 1}
    np.testing.assert_allclose(found, one.feature_importances_, atol=0.05)


def test_importances_are_largest_in_the_patch():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 8, 8))
    y = X[:, 2:5, 3:5].sum(axis=(1, 2)) > 0
    patch = np.zeros((8, 8), dtype=bool)
    patch[2:5, 3:5] = True
    procedure = ManifoldProcedure(contrast="sum")
    model = ManifoldForestClassifier(
        30, feature_shape=(8, 8), max_features=30, procedure=procedure, random_state=0
    ).fit(X, y)
    for kind in ("impurity", "count"):
        picture = model.forest_.feature_importances(kind).reshape(8, 8)
        assert picture[patch].mean() > 2 * picture[~patch].mean()


# ----------------------------------------------------------------- data on which patches help


def circle(n, rng):
    """Two arcs of 5 and 5, or of 4 and 6, of 100 positions on a circle; they do not touch."""
    y = np.arange(n) % 2
    X = np.zeros((n, 100), dtype=np.uint8)
    for row, label in zip(X, y):
        first, second = 5 - label, 5 + label
        start, gap = rng.integers(100), rng.integers(1, 100 - first - second)
        row[(start + np.arange(first)) % 100] = 1
        row[(start + first + gap + np.arange(second)) % 100] = 1
    return X, y


def bars(n, rng):
    """28 x 28 pictures of whole rows, or of whole columns; about ten of them."""
    y = np.arange(n) % 2
    X = np.zeros((n, 28, 28), dtype=np.uint8)
    for picture, label in zip(X, y):
        lines = rng.integers(0, 28, rng.poisson(10))
        (picture.T if label else picture)[lines] = 1
    return X, y


def error(model, train, test):
    return 1 - model.fit(*train).score(*test)


def test_patches_on_a_circle_beat_single_features():
    rng = np.random.default_rng(0)
    train, test = circle(250, rng), circle(500, rng)
    common = {"n_estimators": 30, "max_features": 40, "random_state": 0}
    procedure = ManifoldProcedure(max_patch=15, contrast="sum")
    patch = ManifoldForestClassifier(feature_shape=100, wrap=True, procedure=procedure, **common)
    assert error(patch, train, test) < 0.15
    for projection in ("axis", "sparse"):
        other = ManifoldForestClassifier(projection=projection, **common)
        assert error(other, train, test) > 0.35


@pytest.mark.parametrize("contrast", ["sum", "edge"])
def test_patches_of_bars_beat_single_pixels(contrast):
    ours, theirs = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        train, test = bars(25, rng), bars(300, rng)
        common = {"n_estimators": 30, "max_features": 28, "feature_shape": (28, 28)}
        common["random_state"] = seed
        patch = ManifoldForestClassifier(
            procedure=ManifoldProcedure(max_patch=4, contrast=contrast), **common
        )
        axis = ManifoldForestClassifier(projection="axis", **common)
        ours.append(error(patch, train, test))
        theirs.append(error(axis, train, test))
    assert np.mean(ours) < 0.12
    assert np.mean(ours) < 0.5 * np.mean(theirs)


def test_patches_of_digits_beat_a_random_forest():
    X, y = load_digits(return_X_y=True)
    ours, theirs = [], []
    for seed in range(4):
        a, b, c, d = train_test_split(X, y, test_size=600, random_state=seed)
        model = ManifoldForestClassifier(50, feature_shape=(8, 8), random_state=seed)
        ours.append(error(model, (a, c), (b, d)))
        theirs.append(error(RandomForestClassifier(50, random_state=seed), (a, c), (b, d)))
    assert np.mean(ours) < 0.9 * np.mean(theirs)
    assert np.mean(ours) < 0.03


def test_default_patches_see_the_level_of_a_signal():
    rng = np.random.default_rng(0)
    y = np.arange(1400) % 2
    X = rng.standard_normal((1400, 60)) + 0.4 * y[:, None]
    train, test = (X[:400], y[:400]), (X[400:], y[400:])
    forests = {
        name: made(ManifoldForestClassifier, 50, feature_shape=60, random_state=0, **params)
        for name, params in {"default": {}, "edge": {"contrast": "edge"}}.items()
    }
    errors = {name: error(forest, train, test) for name, forest in forests.items()}
    assert errors["default"] < 0.8 * errors["edge"]


def test_patches_help_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 8, 8))
    y = X[:, 1:4, 2:5].sum(axis=(1, 2))
    common = {"n_estimators": 30, "max_features": 30, "random_state": 0}
    patch = ManifoldForestRegressor(
        feature_shape=(8, 8), procedure=ManifoldProcedure(contrast="sum"), **common
    )
    axis = ManifoldForestRegressor(feature_shape=(8, 8), projection="axis", **common)
    train, test = (X[:400], y[:400]), (X[400:], y[400:])
    assert error(patch, train, test) < 0.5 * error(axis, train, test)


def test_sparse_directions_help_where_features_add_up():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 6))
    y = (X[:, 0] - X[:, 1] + X[:, 2] > 0).astype(int)
    common = {"n_estimators": 50, "max_features": None, "random_state": 0}
    train, test = (X[:300], y[:300]), (X[300:], y[300:])
    sparse = error(ManifoldForestClassifier(projection="sparse", **common), train, test)
    axis = error(ManifoldForestClassifier(projection="axis", **common), train, test)
    assert sparse < 0.7 * axis


@pytest.mark.parametrize("projection", ["axis", "sparse", "patch"])
def test_bytes_are_summed_without_overflow(forest, projection):
    rng = np.random.default_rng(0)
    X = rng.integers(250, 256, (60, 400)).astype(np.uint8)
    total = X.sum(axis=1, dtype=int)
    y = total > np.median(total) if is_classifier(forest) else total
    changed(
        forest,
        projection=projection,
        feature_shape=(20, 20),
        contrast="sum",
        min_patch=15,
        max_patch=20,
        n_nonzeros=300,
        n_estimators=2,
    )
    forest.fit(X, y)
    np.testing.assert_array_equal(forest.predict(X), forest.predict(X.astype(np.float64)))
    if projection == "patch":
        assert (forest.forest_.threshold > 250 * 15 * 15).all()
        # The sums that the thresholds cut are those of the matrix of directions.
        z = X.astype(int) @ forest.forest_.directions(forest.forest_.direction[:1]).toarray().T
        left = z[:, 0] <= forest.forest_.threshold[0]
        path, _ = forest.decision_path(X)
        np.testing.assert_array_equal(path[:, [1]].toarray().ravel() == 1, left)


@pytest.mark.parametrize("change", [np.uint8, np.float64, lambda X: X / 7 + 0.1])
@pytest.mark.parametrize(
    "params", [{"feature_shape": (8, 8)}, {"projection": "patch"}, {"sparse_weights": "sign"}]
)
def test_constant_pixels_have_no_effect(params, change, tmp_path):
    """Patches contain them, but read the values that they had in training."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:150], y[:150]
    other, constant = X.copy(), np.flatnonzero(np.ptp(X, axis=0) == 0)
    other[:, constant] = 9
    X, other = change(X), change(other)
    given = other.copy()
    forest = made(ManifoldForestClassifier, 10, random_state=0, **params).fit(X, y)
    expected = forest.predict_proba(X)
    save(forest, tmp_path / "forest")
    for model in (forest, load(tmp_path / "forest")):
        np.testing.assert_array_equal(model.predict_proba(other), expected)
        np.testing.assert_array_equal(model.predict_proba(other[:1]), expected[:1])
    np.testing.assert_array_equal(other, given)
    np.testing.assert_array_equal(forest.predictor()(other.astype(np.float32)), expected)
    values = shapley_values(forest, other[:2], background=X[:5]).values
    assert len(constant) and not values[:, constant].any()


def test_without_any_information_all_trees_are_leaves():
    forest = ManifoldForestRegressor(3, random_state=0).fit(np.ones((9, 2)), np.arange(9.0))
    assert len(np.unique(forest.predict([[0, 1], [2, 3]]))) == 1
