"""Alternating refinement: the kernel against plain definitions, what holds for every forest."""

import copy
import warnings

import forests
import numpy as np
import oracles
import pytest
from forests import make_training_set
from hypothesis import given
from hypothesis import strategies as st
from makers import changed, fixed, made, training_rows
from skforest._kernels.refine.alternate import Alternator
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_diabetes, load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import train_test_split

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    ManifoldForestClassifier,
    ManifoldForestRegressor,
)
from skforest.forest.edit import max_sparse_weights
from skforest.forest.statistics import leaf_predictions, route, tree_loss
from skforest.training.alternating import AlternatingSettings, refine_tree

GO = np.zeros(1, dtype=np.uint8)


def refine_rows(forest, X, target, weight, seed, stop, criterion, pruned=True, **options):
    """`refine_tree` on rows as they are, without merging equal ones."""
    data, settings = make_training_set(X, target, weight), AlternatingSettings(**options)
    return refine_tree(forest, data, seed, stop, settings, criterion, pruned)


def problem(seed, n=60, n_classes=3):
    """A tree, and whole rows with ties, duplicates and weights of zero."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 6, size=(n, 4))
    X[::7] = X[0]
    weight = rng.integers(0, 4, size=n).astype(float)
    weight[0] = 1
    y = rng.integers(n_classes, size=n)
    return rng, X, y, weight


def labelled_tree(seed, **options):
    """A tree of labels grown on the rows of `problem`; with odd seeds, of more than 64 classes."""
    _, X, y, weight = problem(seed)
    y = np.array([0, 64, 1])[y] if seed % 2 else y  # the kernel has the same bit for 0 and 64
    forest = forests.grow(X, y, weight, max_depth=4, n_candidates=1, seed=seed, **options)
    return forest, X.astype(np.float32), y.astype(np.int32), weight


def real_tree(seed):
    """A tree of two outputs, and its target."""
    rng, X, _, weight = problem(seed)
    Y = rng.integers(-8, 9, size=(len(X), 2)) / 8
    forest = forests.grow(X, Y, weight, max_depth=4, n_candidates=1, seed=seed)
    return forest, X.astype(np.float32), Y, weight


def settings(n_epochs=30, batch=100, rate=0.1, **others):
    return AlternatingSettings(n_epochs=n_epochs, batch_size=batch, learning_rate=rate, **others)


def alternator(forest, X, target, weight, seed=0, **options):
    data = make_training_set(X, target, weight)
    kernel = Alternator(data, settings(**options), seed, GO)
    longest = max_sparse_weights(forest.n_features)
    kernel.load(forest, route(forest, X[data.rows]), leaf_predictions(forest, 1.0), longest)
    return kernel


# ---------------------------------------------------------------------------- the plain definition


@pytest.mark.parametrize("make", [labelled_tree, real_tree])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_care_points_are_those_of_the_definition(make, seed):
    forest, X, target, weight = make(seed)
    prediction = leaf_predictions(forest, 1.0)
    kernel = alternator(forest, X, target, weight)
    for node in np.flatnonzero(forest.child > 0):
        rows, rise = kernel.care_points(node)
        expected, by = oracles.care_points(forest, node, X, target, weight, prediction)
        order = np.argsort(rows)
        np.testing.assert_array_equal(rows[order], expected)
        np.testing.assert_allclose(rise[order], by, rtol=1e-12)


@pytest.mark.parametrize("n_classes", [3, 100])
def test_leaf_predictions_are_the_classes_of_largest_share(n_classes):
    X, y = make_blobs(300, 3, centers=n_classes, cluster_std=5.0, random_state=0)
    forest = forests.grow(X, y, max_depth=4)
    prediction = leaf_predictions(forest, 1.0)
    for node in np.flatnonzero(forest.child < 0):
        assert prediction[node] == oracles.leaf_values(forest)[-1 - forest.child[node]].argmax()


CASES = {(3, 0, 100.0): 5, (3, 0, 0.4): 3, (9, 2, 100.0): 6}  # numbers of seeds


@pytest.mark.parametrize(
    "n_features, most, nu, seed", [(*case, seed) for case in CASES for seed in range(CASES[case])]
)
def test_one_plane_is_that_of_the_definition(n_features, most, nu, seed):
    """A stump whose rows are all in one batch, so that their order has no part in it."""
    rng = np.random.default_rng(seed)
    n = 40
    X = rng.normal(size=(n, n_features)).astype(np.float32)
    weight = rng.integers(1, 4, size=n).astype(float)
    if most:  # deviations that differ between columns, and between light and heavy rows
        weight **= 3
        X *= rng.choice([0.4, 2.5], size=(2, n_features))[(weight > 8).astype(int)]
    y = (X @ rng.normal(size=n_features) + 0.3 * rng.normal(size=n) > 0).astype(np.int32)
    forest = forests.grow(X, y, weight, max_depth=1, n_candidates=1, seed=seed)
    assert len(set(leaf_predictions(forest, 1.0)[1:])) == 2
    split, weights, threshold = alternator(
        forest, X, y, weight, n_epochs=12, max_weights=most, nu=nu
    ).sweep()
    rows, rise = oracles.care_points(forest, 0, X, y, weight, leaf_predictions(forest, 1.0))
    Z, c = X[rows].astype(float), np.abs(rise) / np.abs(rise).mean()
    mean = c @ Z / len(Z)
    scale = 8 / np.sqrt((c @ ((Z - mean) ** 2)).sum() / len(Z))
    w = oracles.direction_weights(forest, forest.direction[0])
    bias = scale * (forest.threshold[0] - w @ mean)
    w, bias = oracles.logistic_plane(
        scale * (Z - mean), np.where(rise < 0, 1, -1), c, w, bias,
        n_epochs=12, rate=0.1, momentum=0.9, nu=nu, most=most or None,
    )  # fmt: skip
    assert not most or np.count_nonzero(w) == most
    assert split.tolist() == [0]
    np.testing.assert_allclose(weights[0], w, rtol=5e-3, atol=5e-3)
    assert threshold[0] == pytest.approx(w @ mean + bias / scale, rel=5e-3, abs=5e-3)


@pytest.mark.parametrize("make", [labelled_tree, real_tree])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_no_new_plane_alone_raises_the_loss_of_its_node(make, seed):
    """Nodes from the leaves up: each change is tried on the tree of all changes below it."""
    forest, X, target, weight = make(seed)
    prediction = leaf_predictions(forest, 1.0)
    split, weights, threshold = alternator(forest, X, target, weight).sweep()
    before = weight @ oracles.row_losses(forest, route(forest, X), target, prediction)
    for k in range(len(split)):
        forest = skforest.forest.edit.replace_splits(
            forest, split[[k]], weights[[k]], threshold[[k]]
        )
        after = weight @ oracles.row_losses(forest, route(forest, X), target, prediction)
        assert after <= before * (1 + 1e-12)
        before = after


@pytest.mark.parametrize("make", [labelled_tree, real_tree])
@given(st.integers(0, 2**32 - 1), st.booleans())
@fixed
def test_the_loss_never_rises_and_is_that_of_the_tree(make, seed, pruned):
    forest, X, target, weight = make(seed)
    criterion = "gini" if target.ndim == 1 else "squared_error"
    refined, curve = refine_rows(
        forest, X, target, weight, seed, GO, criterion=criterion, n_sweeps=3, pruned=pruned
    )
    assert (np.diff(curve) <= 0).all()
    skforest.Forest(refined.arrays, **refined.metadata)
    # As the definition routes rows: whole numbers in the rows, but not whole weights.
    share = weight / weight.sum()
    for tree, loss in ((forest, curve[0]), (refined, curve[-1])):
        response = tree.response(X)
        if target.ndim == 1:
            counted = share @ (response.argmax(axis=1) != target)
        else:
            counted = share @ np.square(target - response).mean(axis=1)
        assert counted == pytest.approx(loss, rel=1e-5, abs=1e-7)
    reached = np.zeros(refined.n_nodes, dtype=bool)
    reached[route(refined, X[weight > 0])] = True
    assert not pruned or reached[refined.child < 0].all()
    assert pruned or refined.n_nodes == forest.n_nodes


def test_batches_smaller_than_the_node():
    X, y = load_digits(return_X_y=True)
    forest = forests.grow(X, y, max_depth=6, n_candidates=8)
    X = X.astype(np.float32)
    _, curve = refine_rows(forest, X, y.astype(np.int32), np.ones(len(X)), 0, GO, criterion="gini")
    assert curve[-1] < 0.5 * curve[0]


def test_a_tree_of_one_leaf_stays():
    forest, X, target, weight = labelled_tree(0, min_split=1000)
    refined, curve = refine_rows(forest, X, target, weight, 0, GO, criterion="gini")
    assert refined.n_nodes == 1
    assert (curve == curve[0]).all()


def test_a_stop_ends_it():
    forest, X, target, weight = labelled_tree(0)
    refined, curve = refine_rows(
        forest, X, target, weight, 0, np.ones(1, dtype=np.uint8), criterion="gini"
    )
    np.testing.assert_array_equal(refined.apply(X), forest.apply(X))
    data = make_training_set(X, target, weight)
    assert curve[0] == tree_loss(forest, route(forest, X), data)


def test_a_stop_ends_all_sweeps():
    forest, X, target, weight = labelled_tree(0)
    stop = np.ones(1, dtype=np.uint8)
    _, curve = refine_rows(forest, X, target, weight, 0, stop, "gini", n_sweeps=10**12)
    assert len(curve) == 1


@pytest.mark.parametrize("exponent", [-200, 60])
def test_the_scale_of_weights_does_not_matter(exponent):
    forest, X, target, weight = labelled_tree(0)
    curves = [
        refine_rows(forest, X, target, np.ldexp(weight, e), 0, GO, criterion="gini")[1]
        for e in (0, exponent)
    ]
    assert curves[0][-1] < curves[0][0]
    np.testing.assert_array_equal(*curves)


# ------------------------------------------------------------------------------ every estimator


def data_for(estimator, n=150):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 6))
    score = X @ rng.normal(size=(6, 3))
    if is_classifier(estimator):
        return X, np.array(["a", "b", "c"])[score.argmax(axis=1)]
    return X, score[:, 0]


def quiet_refine(*args, **options):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some inputs do not have OOB")
        return skforest.refine(*args, **options)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_any_estimator(estimator):
    X, y = data_for(estimator)
    estimator.set_params(max_depth=3).fit(X, y)
    before = copy.deepcopy(vars(estimator))
    weights = copy.deepcopy(estimator.forest_.arrays)
    refined = skforest.refine(estimator, X, y, random_state=0)
    assert type(refined) is type(estimator)
    assert refined.get_params() == estimator.get_params()
    assert np.shape(refined.refine_curve_) == (len(estimator.forest_), 3)
    assert (np.diff(refined.refine_curve_, axis=1) <= 0).all()
    assert (
        np.array(refined.refine_curve_)[:, -1].sum() < np.array(refined.refine_curve_)[:, 0].sum()
    )
    assert refined.score(X, y) >= estimator.score(X, y)
    # The original is as it was.
    assert vars(estimator).keys() == before.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(array, getattr(estimator.forest_, name))
    np.testing.assert_allclose(refined.feature_importances_.sum(), 1)
    skforest.Forest(refined.forest_.arrays, **refined.forest_.metadata)
    # A new fit knows nothing of it.
    assert not hasattr(refined.fit(X, y), "refine_curve_")


@pytest.mark.needs("min_weight_fraction_leaf")
def test_the_same_for_every_n_jobs_and_seed(estimator):
    X, y = data_for(estimator)
    estimator.set_params(max_depth=4).fit(X, y)
    one = skforest.refine(estimator, X, y, random_state=3)
    two = skforest.refine(estimator, X, y, random_state=3, n_jobs=2)
    for name, array in one.forest_.arrays.items():
        np.testing.assert_array_equal(array, getattr(two.forest_, name), err_msg=name)
    np.testing.assert_array_equal(one.refine_curve_, two.refine_curve_)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_weights_are_copies(estimator):
    X, y = data_for(estimator, 80)
    count = np.random.default_rng(1).integers(0, 4, size=80)
    estimator.set_params(max_depth=3).fit(X, y, count)
    one = skforest.refine(estimator, X, y, count, random_state=0)
    two = skforest.refine(
        estimator, np.repeat(X, count, axis=0), np.repeat(y, count, axis=0), random_state=0
    )
    for name, array in one.forest_.arrays.items():
        np.testing.assert_array_equal(array, getattr(two.forest_, name), err_msg=name)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_saved_and_loaded(estimator, tmp_path):
    X, y = data_for(estimator)
    refined = skforest.refine(estimator.set_params(max_depth=3).fit(X, y), X, y, random_state=0)
    skforest.save(refined, tmp_path / "refined.npz")
    again = skforest.load(tmp_path / "refined.npz")
    np.testing.assert_array_equal(again.predict(X), refined.predict(X))
    np.testing.assert_array_equal(again.refine_curve_, refined.refine_curve_)
    # What was loaded can be refined further.
    further = skforest.refine(again, X, y, random_state=1)
    np.testing.assert_allclose(
        np.array(further.refine_curve_)[:, 0], np.array(refined.refine_curve_)[:, -1]
    )


@pytest.mark.needs("min_weight_fraction_leaf")
def test_bootstraps_are_drawn_again_where_the_rows_are_those_of_the_fit(estimator):
    X, y = data_for(estimator)
    estimator.set_params(max_depth=3, bootstrap=True).fit(X, y)
    refined = skforest.refine(estimator, X, y, prune=False, random_state=0)
    roots = estimator.forest_.tree_start[:-1]
    assert (refined.forest_.node_weight[roots] == len(X)).all()
    other = skforest.refine(estimator, X[:100], y[:100], prune=False, random_state=0)
    assert (other.forest_.node_weight[roots] == 100).all()
    # On the rows of its bootstrap a tree was better than on all.
    data = estimator._known_training_set(X, y, None)
    for tree in range(len(estimator.forest_)):
        loss = refined.refine_curve_[tree][0]
        sample = estimator._sampling().sample(data, tree_seeds(estimator)[tree])
        forest = estimator.forest_[tree]
        assert loss == tree_loss(forest, route(forest, data.X), sample)


def test_a_target_of_one_column_is_one_output():
    X, y = load_diabetes(return_X_y=True)
    forest = CO2ForestRegressor(2, max_depth=4, random_state=0).fit(X, y)
    plain, column = (
        skforest.refine(forest, X, target, random_state=0) for target in (y, y[:, None])
    )
    np.testing.assert_array_equal(column.predict(X), plain.predict(X))


def tree_seeds(estimator):
    return [skforest._kernels.base.rows.tree_seed(estimator._seed, tree) for tree in range(10)]


@pytest.mark.needs("min_weight_fraction_leaf")
def test_scores_out_of_bag_are_of_the_refined_trees_or_gone(estimator):
    X, y = data_for(estimator)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some inputs do not have OOB")
        estimator.set_params(max_depth=2, bootstrap=True, oob_score=True).fit(X, y)
    refined = quiet_refine(estimator, X, y, random_state=0)
    assert refined.oob_score_ > estimator.oob_score_
    other = quiet_refine(estimator, X[:100], y[:100], random_state=0)
    for name in ("oob_score_", "oob_decision_function_", "oob_prediction_"):
        assert not hasattr(other, name)


# --------------------------------------------------------------------------- kinds of directions


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "params",
    [
        {"projection": "axis"},
        {"projection": "sparse"},
        {"feature_shape": (8, 8)},
        {"feature_shape": (8, 8), "contrast": "mix", "wrap": (True, False)},
    ],
)
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_manifold_forests(params, dtype):
    X, y = load_digits(return_X_y=True)
    X = X.astype(dtype) * dtype(2 if dtype == np.uint8 else 0.3)
    model = made(ManifoldForestClassifier, 3, max_depth=4, random_state=0, **params)
    model.fit(X[:900], y[:900])
    refined = skforest.refine(model, X[:900], y[:900], random_state=0)
    assert (np.diff(refined.refine_curve_, axis=1) <= 0).all()
    assert refined.score(X[900:], y[900:]) > model.score(X[900:], y[900:]) + 0.05
    # The curve is what the stored trees do.
    for tree, curve in zip(refined.forest_, refined.refine_curve_):
        assert tree.node_weight[0] == len(X[:900])
        leaves = tree.apply(X[:900])[:, 0]
        assert set(leaves) <= set(np.flatnonzero(tree.child < 0))
        assert curve[-1] >= 0


def test_features_of_any_scale():
    X, y = load_digits(return_X_y=True)
    units = 10.0 ** np.random.default_rng(0).uniform(-12, 12, size=64)
    plain = ManifoldForestClassifier(2, max_depth=5, projection="axis", random_state=0)
    refined = skforest.refine(plain.fit(X * units, y), X * units, y, random_state=0)
    assert np.isfinite(refined.forest_.threshold).all()
    assert refined.score(X * units, y) > plain.score(X * units, y) + 0.05


def test_several_outputs_and_far_targets():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5))
    Y = 1e6 + np.stack([X @ rng.normal(size=5), np.sin(X[:, 0]), X[:, 1] > X[:, 2]], axis=1)
    for cls in (CO2ForestRegressor, ManifoldForestRegressor):
        model = cls(5, max_depth=4, random_state=0, bootstrap=False).fit(X, Y)
        refined = skforest.refine(model, X, Y, random_state=0)
        assert refined.predict(X).shape == Y.shape
        assert refined.score(X, Y) > model.score(X, Y)
        np.testing.assert_allclose(refined.forest_.baseline, Y.mean(axis=0))
        loss = [np.square(Y - tree.response(X)).mean() for tree in refined.forest_]
        np.testing.assert_allclose(loss, np.array(refined.refine_curve_)[:, -1], rtol=1e-4)


@pytest.mark.parametrize("class_weight", ["balanced", "balanced_subsample", {0: 3.0, 1: 0.0}])
@pytest.mark.parametrize("bootstrap", [False, True])
def test_class_weights(class_weight, bootstrap):
    X, y = make_blobs(200, 4, centers=3, cluster_std=4.0, random_state=0)
    model = CO2ForestClassifier(4, max_depth=2, class_weight=class_weight, bootstrap=bootstrap)
    model.set_params(random_state=0).fit(X, y)
    refined = skforest.refine(model, X, y, random_state=0, prune=False)
    assert (np.diff(refined.refine_curve_, axis=1) <= 0).all()
    roots = model.forest_.tree_start[:-1]
    np.testing.assert_allclose(
        refined.forest_.node_weight[roots], model.forest_.node_weight[roots]
    )


# ----------------------------------------------------------------------------- as a parameter


@pytest.mark.parametrize("cls", [CO2ForestClassifier, CO2ForestRegressor])
def test_as_a_parameter_of_co2_forests(cls):
    X, y = data_for(cls())
    model = cls(5, max_depth=3, random_state=0)
    plain = clone(model).fit(X, y)
    refined = clone(model).set_params(refine="alternating").fit(X, y)
    assert refined.score(X, y) > plain.score(X, y)
    more = changed(clone(refined), n_sweeps=4, n_jobs=2).fit(X, y)
    assert not np.array_equal(more.forest_.dense, refined.forest_.dense)
    again = clone(refined).set_params(n_jobs=2).fit(X, y)
    np.testing.assert_array_equal(refined.forest_.dense, again.forest_.dense)
    for params in ({"refine": "oblique"}, {"n_sweeps": 0}):
        with pytest.raises(ValueError, match=next(iter(params))):
            changed(clone(model), **params).fit(X, y)


@pytest.mark.parametrize("trains", ["refine", "fit"])
def test_a_number_of_epochs_holds_for_many_rows(trains):
    """Only "auto" shows fewer rows of large nodes: 30000, or 20000 when a forest is grown."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = X @ [1.0, 0.5] + rng.normal(size=4000) > 0
    options = {"max_depth": 1, "bootstrap": False, "random_state": 0}
    stump = ManifoldForestClassifier(1, projection="axis", **options).fit(X, y)
    found = {}
    for n in ("auto", 30_000 // 4000 if trains == "refine" else 20_000 // 4000, 20):
        if trains == "refine":
            tree = skforest.refine(stump, X, y, n_sweeps=1, n_epochs=n, random_state=0)
        else:
            tree = made(
                CO2ForestClassifier, 1, objective="co2", holdout=0.0, n_epochs=n, **options
            )
            tree.fit(X, y)
        found[n] = tree.forest_.directions().toarray()
    auto, same, more = found.values()
    np.testing.assert_array_equal(auto, same)
    assert not np.array_equal(auto, more)


def test_a_tree_of_digits_becomes_better():
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    score = [
        np.mean([
            CO2ForestClassifier(1, max_depth=6, refine=refine, random_state=seed)
            .fit(X_train, y_train)
            .score(X_test, y_test)
            for seed in range(2)
        ])
        for refine in (None, "alternating")
    ]  # fmt: skip
    assert score[1] > score[0] + 0.02
    X, y = load_diabetes(return_X_y=True)
    tree = ManifoldForestRegressor(1, max_depth=2, projection="axis", random_state=0).fit(X, y)
    assert skforest.refine(tree, X, y).score(X, y) > tree.score(X, y)


# ------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "params",
    [
        {"n_sweeps": 0},
        {"n_sweeps": 1.5},
        {"nu": 0},
        {"learning_rate": -1},
        {"n_epochs": 0},
        {"n_epochs": "many"},
        {"prune": 3},
        {"n_jobs": "all"},
        {"random_state": "now"},
    ],
)
def test_bad_parameters_are_named(params):
    X, y = load_digits(return_X_y=True)
    model = ManifoldForestClassifier(1, max_depth=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=next(iter(params))):
        skforest.refine(model, X, y, **params)


@pytest.mark.needs("min_weight_fraction_leaf")
def test_bad_data_is_refused(estimator):
    X, y = data_for(estimator)
    with pytest.raises(NotFittedError):
        skforest.refine(estimator, X, y)
    estimator.set_params(max_depth=2).fit(X, y)
    with pytest.raises(ValueError, match="6 features"):
        skforest.refine(estimator, X[:, :5], y)
    with pytest.raises(ValueError, match="sample_weight"):
        skforest.refine(estimator, X, y, -np.ones(len(X)))
    with pytest.raises(ValueError, match="inconsistent"):
        skforest.refine(estimator, X, y[:-1])
    if is_classifier(estimator):
        with pytest.raises(ValueError, match="y has labels .*'z'"):
            skforest.refine(estimator, X, np.where(y == "a", "z", y))
    else:
        with pytest.raises(ValueError, match="outputs"):
            skforest.refine(estimator, X, np.stack([y, y], axis=1))


def test_fewer_classes_than_known():
    X, y = make_blobs(100, 3, centers=3, random_state=0)
    model = CO2ForestClassifier(2, max_depth=2, random_state=0).fit(X, y)
    refined = skforest.refine(model, X[y > 0], y[y > 0], random_state=0)
    assert refined.predict_proba(X).shape == (100, 3)


def test_other_objects_and_soft_forests_are_refused():
    X, y = load_digits(return_X_y=True)
    with pytest.raises(TypeError, match="estimator"):
        skforest.refine("forest", X, y)
    model = ManifoldForestClassifier(1, max_depth=2, random_state=0).fit(X, y)
    for name, value in (("gate", "margin"), ("link", "softmax"), ("aggregate", "sum")):
        soft = copy.copy(model)
        soft.forest_ = copy.copy(model.forest_)
        setattr(soft.forest_, name, value)
        with pytest.raises(ValueError, match=f"{name}='{value}'"):
            skforest.refine(soft, X, y)


def test_no_leaf_of_a_refined_tree_is_without_a_drawn_row():
    X, y = make_blobs(120, 3, centers=9, cluster_std=3.0, random_state=0)
    model = CO2ForestClassifier(1, bootstrap=False, random_state=0).fit(X, y)
    data = training_rows(model, X, y)
    data = data.sample(data.weight * (np.arange(120) % 4 == 0))
    stop, settings = np.zeros(1, dtype=np.uint8), AlternatingSettings(n_sweeps=0)
    tree, curve = refine_tree(model.forest_, data, 0, stop, settings, model._criterion)
    leaves = np.flatnonzero(tree.child < 0)
    np.testing.assert_array_equal(np.unique(route(tree, data.X)[data.weight > 0]), leaves)
    assert 1 < len(leaves) < model.forest_.n_leaves[0] and len(curve) == 1
