"""Non-greedy trees and the refinement of forests: training of estimators."""

import copy
import warnings
from dataclasses import MISSING, fields

import numpy as np
import pytest
from makers import changed, made
from skforest._kernels.nongreedy.trainer import JointTrainer
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_digits, make_blobs, make_classification, make_regression
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    CO2Procedure,
    NonGreedyProcedure,
    NonGreedyTreeClassifier,
    NonGreedyTreeRegressor,
)
from skforest.training.co2 import CO2Settings
from skforest.training.joint import JointSettings

TREES = [NonGreedyTreeClassifier, NonGreedyTreeRegressor]

FORESTS = [CO2ForestClassifier, CO2ForestRegressor]

# Forests of hyperplanes that choose nothing by a trial, trained together.
PLAIN = {"refine": "nongreedy", "objective": "co2", "holdout": 0.0, "bootstrap": False}

PLAIN |= {"max_features": "sqrt", "random_state": 0}


def easy_rows(cls, n=150):
    """Rows that one hyperplane for each class, or a few, tell apart."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    score = X @ rng.normal(size=(4, 3))
    return X, score.argmax(axis=1) if cls is NonGreedyTreeClassifier else score[:, 0]


# ------------------------------------------------------------------------------------ one step


def test_the_learning_rate_falls_or_is_constant(monkeypatch):
    rates = []

    class Recorder(JointTrainer):
        def epoch(self, rate):
            rates.append(rate)
            return super().epoch(rate)

    monkeypatch.setattr("skforest.training.joint.JointTrainer", Recorder)
    X, y = easy_rows(NonGreedyTreeClassifier)
    for schedule in ("linear", "constant"):
        tree = NonGreedyTreeClassifier(
            n_epochs=4, learning_rate=0.2, procedure=NonGreedyProcedure(schedule=schedule)
        )
        tree.fit(X, y)
    assert rates == pytest.approx([0.2, 0.15, 0.1, 0.05, 0.2, 0.2, 0.2, 0.2])


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("n_classes", [0, 3, 120])
def test_trained_leaves_predict_their_parameters(monkeypatch, n_classes, early_stopping):
    seen = []

    class Recorder(JointTrainer):
        def epoch(self, rate):
            bound = super().epoch(rate)
            start, label, theta, other = self.parameters
            seen.append(theta.reshape(len(start) - 1, -1).copy() if n_classes == 3 else theta)
            return bound

    monkeypatch.setattr("skforest.training.joint.JointTrainer", Recorder)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4))
    y = rng.integers(n_classes, size=300) if n_classes > 3 else (X[:, :3]).argmax(axis=1)
    cls, y = (NonGreedyTreeClassifier, y) if n_classes else (NonGreedyTreeRegressor, X.sum(axis=1))
    own = {"max_depth": 3, "n_epochs": 5, "random_state": 0, "early_stopping": early_stopping}
    tree = cls(procedure=NonGreedyProcedure(leaves="trained"), **own).fit(X, y)
    found = np.unique(tree.forest_.response(X), axis=0)
    assert len(found) == tree.get_n_leaves()
    if n_classes == 3:
        least = np.argmax(tree.validation_scores_) if early_stopping else -1
        share = np.exp(seen[least]) / np.exp(seen[least]).sum(axis=1, keepdims=True)
        distance = np.abs(found[:, None] - share).max(axis=2)
        np.testing.assert_allclose(distance.min(axis=1), 0, atol=1e-6)
        assert (found > 0).all()  # no leaf excludes a class
    elif n_classes:
        np.testing.assert_allclose(found.sum(axis=1), 1, rtol=1e-5)
        assert (found > 0).all()
    else:  # a leaf is near the mean of its rows, but not the mean
        plain = cls(**own).fit(X, y)
        np.testing.assert_allclose(tree.predict(X), plain.predict(X), atol=0.2 * y.std())
        assert not np.array_equal(tree.predict(X), plain.predict(X))


# ---------------------------------------------------------------------------------- estimators


def digits():
    return train_test_split(*load_digits(return_X_y=True), random_state=0)


def test_training_lowers_the_bound_and_the_test_error():
    X_train, X_test, y_train, y_test = digits()
    ours, greedy, axis = [], [], []
    for seed in range(3):
        params = {"max_depth": 6, "max_features": None, "random_state": seed}
        tree = NonGreedyTreeClassifier(**params).fit(X_train, y_train)
        ours.append(tree.score(X_test, y_test))
        start = CO2ForestClassifier(1, procedure=CO2Procedure(smoothing=1), **params).fit(
            X_train, y_train
        )
        greedy.append(start.score(X_test, y_test))
        axis.append(DecisionTreeClassifier(**params).fit(X_train, y_train).score(X_test, y_test))
        curve = tree.loss_curve_
        assert curve.shape == (30,)
        assert curve[-1] < 0.6 * curve[0]
    assert np.mean(ours) > np.mean(greedy) + 0.005
    assert np.mean(ours) > np.mean(axis) + 0.08


@pytest.mark.parametrize("cls", [*TREES, *FORESTS])
def test_the_tree_counts_the_rows_that_it_routes(cls):
    X, y = make_blobs(300, 6, centers=4, cluster_std=5.0, random_state=0)
    weight = np.random.default_rng(0).exponential(size=300)
    model = cls(3, **PLAIN) if cls in FORESTS else cls(random_state=0)
    model.fit(X, y, weight)
    for tree, leaf in zip(model.forest_, model.forest_.apply(X).T):
        counted = np.bincount(leaf, weight, minlength=tree.n_nodes)
        is_leaf = tree.child < 0
        np.testing.assert_allclose(counted[is_leaf], tree.node_weight[is_leaf], rtol=1e-9)
        assert (tree.node_weight[is_leaf] > 0).all()


@pytest.mark.parametrize("cls", TREES)
def test_parameters_of_a_single_tree(cls):
    X, y = make_classification(200, 6, n_informative=4, random_state=0)
    with pytest.raises(NotFittedError):
        cls().get_depth()
    tree = cls(random_state=0, max_depth=4).fit(X, y)
    assert tree.get_n_leaves() == tree.n_active_leaves_ == tree.forest_.n_leaves[0]
    assert tree.get_depth() == tree.forest_.max_depth[0] <= 4
    leaves, path = tree.apply(X), tree.decision_path(X)
    assert leaves.shape == (200,)
    assert path.shape == (200, tree.forest_.n_nodes)
    assert (np.asarray(path[np.arange(200), leaves]).ravel() == 1).all()
    assert len(np.unique(leaves)) == tree.get_n_leaves()
    assert tree.validation_scores_.shape == (0,)
    assert not hasattr(tree, "oob_score_")


@pytest.mark.parametrize("cls", TREES)
def test_a_saved_tree_is_the_tree(cls, tmp_path):
    X, y = make_classification(200, 6, n_informative=4, random_state=0)
    tree = cls(random_state=0, max_depth=4).fit(X, y)
    skforest.save(tree, tmp_path / "tree")
    again = skforest.load(tmp_path / "tree")
    np.testing.assert_array_equal(tree.predict(X), again.predict(X))
    np.testing.assert_array_equal(tree.loss_curve_, again.loss_curve_)


@pytest.mark.thin(2)
@pytest.mark.parametrize("cls", TREES)
@pytest.mark.parametrize(
    "params",
    [
        {"init": "soft"},
        {"init": "axis"},
        {"inference": "full"},
        {"stable": True},
        {"nu": 3.0},
        {"learning_rate": 0.03},
        {"momentum": 0.0},
        {"n_epochs": 3},
        {"batch_size": 20},
        {"l1": 0.01},
        {"row_norm": 2.0},
        {"row_norm": None, "learning_rate": 0.03},
        {"rescale_splits": False},
        {"schedule": "constant"},
        {"leaves": "trained"},
        {"scaling": "standard"},
        {"scaling": None},
        {"early_stopping": True},
    ],
)
def test_every_parameter_of_training_matters(cls, params):
    X, y = make_classification(300, 8, n_informative=6, n_classes=3, random_state=0)
    model = cls(max_depth=4, nu=20.0, random_state=0)
    plain = clone(model).fit(X, y).forest_.response(X[:50] + 0.3)
    other = changed(clone(model), **params).fit(X, y)
    assert not np.array_equal(plain, other.forest_.response(X[:50] + 0.3))
    assert other.score(X, y) > 0.3


@pytest.mark.parametrize("cls", [NonGreedyTreeClassifier, CO2ForestClassifier])
def test_the_procedure_of_the_estimator_scales_features(cls):
    X, y = make_classification(60, 4, random_state=0)
    model = NonGreedyTreeClassifier(max_depth=2, n_epochs=2, procedure=NonGreedyProcedure())
    if cls is CO2ForestClassifier:  # the procedure of its refinement has no effect
        model = cls(2, procedure=CO2Procedure(), **PLAIN | {"refine": model})
    for scaling, spread in (("minmax", None), ("standard", 1.0), (None, X.std(axis=0))):
        model.set_params(procedure__scaling=scaling).fit(X, y)
        features = model.forest_.feature_map.transform(X)
        if spread is None:
            np.testing.assert_array_equal(
                [features.min(axis=0), features.max(axis=0)], [[0] * 4, [1] * 4]
            )
        else:
            np.testing.assert_allclose(features.std(axis=0), spread, rtol=1e-5)


def test_smoothing_matters():
    X, y = make_classification(300, 8, n_informative=6, n_classes=3, random_state=0)
    model = NonGreedyTreeClassifier(max_depth=4, random_state=0)
    found = [changed(model, smoothing=s).fit(X, y).predict_proba(X) for s in (0.01, 1)]
    assert not np.array_equal(*found)


def test_full_and_fast_inference_agree_on_one_split():
    X, y = make_blobs(200, 5, cluster_std=5.0, random_state=0)
    model = NonGreedyTreeClassifier(max_depth=1, random_state=0)
    fast = clone(model).fit(X, y)
    full = clone(model).set_params(procedure=NonGreedyProcedure(inference="full")).fit(X, y)
    np.testing.assert_array_equal(fast.loss_curve_, full.loss_curve_)
    np.testing.assert_array_equal(fast.forest_.dense, full.forest_.dense)


def test_early_stopping():
    X, y = make_classification(600, 10, n_informative=5, flip_y=0.2, random_state=0)
    model = NonGreedyTreeClassifier(
        n_epochs=200,
        early_stopping=True,
        procedure=NonGreedyProcedure(n_iter_no_change=4),
        random_state=0,
    )
    stopped = clone(model).fit(X, y)
    scores = stopped.validation_scores_
    assert len(scores) == len(stopped.loss_curve_) < 200
    assert scores.argmax() >= len(scores) - 1 - 4 - 4
    assert stopped.forest_.node_weight[0] == 600  # leaves count all rows
    other = clone(model).set_params(procedure__validation_fraction=0.5).fit(X, y)
    assert not np.array_equal(scores[:3], other.validation_scores_[:3])
    with pytest.raises(ValueError, match="validation_fraction=0.99.*none of the 2 distinct rows"):
        model.set_params(procedure__validation_fraction=0.99).fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("smoothing", [0.1, 10.0])
def test_leaves_start_at_smoothed_shares_of_their_rows(smoothing, monkeypatch):
    """`smoothing` rows of mean weight are added to each class; weights have no unit."""
    given = []

    class Recorder(JointTrainer):
        def __init__(self, *arguments):
            given.append(copy.deepcopy(arguments))  # training changes leaves in place
            super().__init__(*arguments)

    monkeypatch.setattr("skforest.training.joint.JointTrainer", Recorder)
    X, y = easy_rows(NonGreedyTreeClassifier)
    weight = np.random.default_rng(0).exponential(size=len(X)) + 0.01
    NonGreedyTreeClassifier(
        max_depth=3, n_epochs=1, procedure=NonGreedyProcedure(smoothing=smoothing)
    ).fit(X, y, 7 * weight)
    data, _, _, _, tree, (_, _, theta, _), _ = given[0]
    rows, label, n_classes = data.X, data.target, data.n_outputs
    child, W, threshold = tree.child, tree.weights, tree.threshold
    weight = data.weight / data.weight.mean()
    leaf = np.zeros(len(rows), dtype=int)
    while (child[leaf] > 0).any():
        split = np.maximum(child[leaf] - 1, 0) // 2
        right = (W[split] * rows).sum(axis=1) > threshold[split]
        leaf = np.where(child[leaf] > 0, child[leaf] + right, leaf)
    counts = np.zeros((len(theta) // n_classes, n_classes))
    np.add.at(counts, (-1 - child[leaf], label), weight)
    share = (counts + smoothing) / (counts.sum(axis=1, keepdims=True) + n_classes * smoothing)
    np.testing.assert_allclose(theta.reshape(share.shape), np.log(share), rtol=1e-6)


@pytest.mark.parametrize("cls", TREES)
def test_validation_scores_are_weighted_means_of_losses(cls, monkeypatch):
    seen = []

    class Recorder(JointTrainer):
        def losses(self, rows):
            seen.append((np.asarray(rows), super().losses(rows)))
            return seen[-1][1]

    monkeypatch.setattr("skforest.training.joint.JointTrainer", Recorder)
    X, y = easy_rows(cls)
    weight = np.random.default_rng(0).exponential(size=len(X)) + 0.01
    tree = cls(early_stopping=True, n_epochs=4, random_state=0).fit(X, y, weight)
    data = clone(tree)._read_training_set(X, y, tree._request(sample_weight=weight))
    found = [-np.average(losses, weights=data.weight[rows]) for rows, losses in seen]
    np.testing.assert_allclose(tree.validation_scores_, found)


def test_l1_stores_splits_sparsely():
    X_train, X_test, y_train, y_test = digits()
    model = NonGreedyTreeClassifier(max_depth=6, random_state=0)
    dense = clone(model).fit(X_train, y_train)
    sparse = clone(model).set_params(l1=0.01).fit(X_train, y_train)
    nonzero = sparse.forest_.directions().getnnz(axis=1)
    assert np.median(nonzero) < 0.5 * np.median(dense.forest_.directions().getnnz(axis=1))
    assert (sparse.forest_.direction < 64 + len(sparse.forest_.sparse_start) - 1).mean() > 0.6
    assert sparse.score(X_test, y_test) > 0.8


@pytest.mark.parametrize("p, expected", [(2, 100), (9, 100), (25, 60), (225, 20), (400, 20)])
def test_few_features_get_a_larger_nu(p, expected):
    X, y = np.random.default_rng(0).normal(size=(60, p)), np.arange(60) % 2
    tree = NonGreedyTreeClassifier(max_depth=2, random_state=0).fit(X, y)
    assert tree.nu_ == pytest.approx(expected)
    given = clone(tree).set_params(nu=tree.nu_).fit(X, y)
    np.testing.assert_array_equal(given.forest_.threshold, tree.forest_.threshold)


def test_a_small_nu_prunes():
    X_train, _, y_train, _ = digits()
    model = NonGreedyTreeClassifier(random_state=0)
    leaves = [
        clone(model).set_params(nu=nu).fit(X_train, y_train).n_active_leaves_
        for nu in (1.0, 300.0)
    ]
    assert leaves[0] < 0.8 * leaves[1]


def test_forests_record_every_tree():
    X, y = make_classification(200, 6, n_informative=4, random_state=0)
    own = PLAIN | {"refine": NonGreedyTreeClassifier(n_epochs=5)}
    model = CO2ForestClassifier(3, warm_start=True, **own).fit(X, y)
    model.set_params(n_estimators=5).fit(X, y)
    assert [len(curve) for curve in model.loss_curve_] == [5] * 5
    assert model.n_active_leaves_ == model.forest_.n_leaves.tolist()
    whole = CO2ForestClassifier(5, n_jobs=2, **own).fit(X, y)
    for one, other in zip(model.loss_curve_, whole.loss_curve_):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("cls", TREES)
def test_refinement_of_a_single_tree(cls):
    X, y = make_classification(300, 8, n_informative=6, n_classes=3, random_state=0)
    plain = cls(max_depth=4, random_state=0).fit(X, y)
    refined = skforest.refine(plain, X, y, random_state=0, n_sweeps=3)
    assert refined.refine_curve_.shape == (4,)
    assert (np.diff(refined.refine_curve_) <= 0).all()
    assert refined.n_active_leaves_ == refined.get_n_leaves()
    np.testing.assert_array_equal(refined.loss_curve_, plain.loss_curve_)


@pytest.mark.parametrize("cls", FORESTS)
def test_refinement_of_co2_forests_as_they_grow(cls):
    X, y = make_classification(300, 8, n_informative=6, n_classes=3, random_state=0)
    model = cls(3, max_depth=4, random_state=0)
    plain = clone(model).fit(X, y)
    jointly = clone(model).set_params(refine="nongreedy").fit(X, y)
    assert [len(curve) for curve in jointly.loss_curve_] == [30] * 3
    assert jointly.n_active_leaves_ == jointly.forest_.n_leaves.tolist()
    model.set_params(refine="alternating", procedure=CO2Procedure(n_sweeps=1), warm_start=True)
    model.fit(X, y)
    model.set_params(n_estimators=4).fit(X, y)
    assert np.shape(model.refine_curve_) == (4, 2)
    assert not np.array_equal(jointly.forest_.response(X), plain.forest_.response(X))
    assert jointly.score(X, y) > plain.score(X, y) - 0.1
    # Growth stops at depth 4, which leaves room for training further.
    assert model.score(X, y) > plain.score(X, y)


@pytest.mark.parametrize("cls", FORESTS)
def test_co2_forests_are_refined_with_the_parameters_of_a_non_greedy_tree(cls, tmp_path):
    X, y = make_classification(300, 8, n_informative=6, n_classes=3, random_state=0)
    tree = NonGreedyTreeClassifier if cls is CO2ForestClassifier else NonGreedyTreeRegressor
    fixed = {"max_depth": 4, "random_state": 0}
    known = cls(2, refine="nongreedy", **fixed).fit(X, y)
    same = cls(2, refine=tree(), **fixed).fit(X, y)
    np.testing.assert_array_equal(same.forest_.response(X), known.forest_.response(X))
    grown = tree(init="axis", max_depth=1, max_leaf_nodes=2)  # without effect on the forest
    same = cls(2, refine=grown, **fixed).fit(X, y)
    np.testing.assert_array_equal(same.forest_.response(X), known.forest_.response(X))
    joint = {"nu": 7.0, "n_epochs": 4, "schedule": "constant", "rescale_splits": False}
    model = cls(2, refine=made(tree, **joint, leaves="trained"), **fixed).fit(X, y)
    assert [len(curve) for curve in model.loss_curve_] == [4, 4]
    assert model.get_params()["refine__nu"] == 7.0
    assert model.get_params()["refine__procedure__schedule"] == "constant"
    # The same joint training of the same tree by the estimator itself.
    init = {"objective": "co2", "nu": 100.0, "smoothing": 0.1, "holdout": 0.0, "bootstrap": False}
    init |= {"max_features": None, "splitter": "hist"}
    one = made(cls, 1, refine=made(tree, **joint), **init, **fixed)
    alone = made(tree, **joint, **fixed, min_samples_leaf=1).fit(X, y)
    np.testing.assert_array_equal(one.fit(X, y).predict(X), alone.predict(X))
    skforest.save(model, tmp_path / "model")
    loaded = skforest.load(tmp_path / "model")
    assert loaded.refine.get_params() == model.refine.get_params()
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    with pytest.raises(TypeError, match="refine must be .* a NonGreedyTreeR.*, got CO2Forest"):
        cls(refine=cls()).fit(X, y)
    with pytest.raises(TypeError, match="a NonGreedyTreeRegressor, got <class"):
        cls(refine=tree).fit(X, y)
    with pytest.raises(ValueError, match="'refine' parameter .* implementing 'get_params'"):
        cls(refine=3).fit(X, y)
    with pytest.raises(ValueError, match="The 'nu' parameter of NonGreedyTree"):
        cls(refine=tree(nu=-1.0)).fit(X, y)
    with pytest.raises(ValueError, match="The 'row_norm' parameter of NonGreedyProcedure"):
        cls(refine=tree(procedure=NonGreedyProcedure(row_norm=-1.0))).fit(X, y)


@pytest.mark.parametrize("cls", FORESTS)
def test_joint_refinement_of_a_forest_stops_early(cls):
    X, y = make_classification(300, 8, n_informative=6, n_classes=3, flip_y=0.2, random_state=0)
    tree = NonGreedyTreeClassifier if cls is CO2ForestClassifier else NonGreedyTreeRegressor
    procedure = NonGreedyProcedure(n_iter_no_change=3)
    joint = {"n_epochs": 200, "early_stopping": True, "procedure": procedure}
    own = PLAIN | {"refine": tree(**joint), "max_features": None}
    forest = cls(3, **own).fit(X, y)
    for curve, scores in zip(forest.loss_curve_, forest.validation_scores_):
        assert 3 < len(curve) == len(scores) < 200
    assert len({len(curve) for curve in forest.loss_curve_}) > 1  # each tree holds out its own
    for member in forest.forest_:
        assert member.node_weight[0] == 300  # leaves count all rows
    # The same early stopping of the same tree by the estimator itself.
    alone = tree(**joint, min_samples_leaf=1, random_state=0).fit(X, y)
    one = cls(1, **own).fit(X, y)
    np.testing.assert_array_equal(one.validation_scores_[0], alone.validation_scores_)
    np.testing.assert_array_equal(one.predict(X), alone.predict(X))
    with pytest.raises(ValueError, match="validation_fraction=0.99.*none of the 4 distinct rows"):
        one.set_params(refine__procedure__validation_fraction=0.99).fit(X[:4], [0, 1, 0, 1])


def test_defaults_of_settings_are_those_of_estimators():
    """Joint training by name is that of a tree with its defaults, and its growth that of CO2."""
    for cls in TREES:
        assert JointSettings.of(cls()) == JointSettings()
        assert JointSettings.of(cls(procedure=NonGreedyProcedure())) == JointSettings()
        known = cls().get_params() | NonGreedyProcedure().get_params()
        known |= {"kernel": None}  # of a loss of the user
        for part in fields(JointSettings):
            if part.name != "validation_fraction":
                assert known[part.name] == part.default, part.name
    for cls in FORESTS:
        known = cls().get_params() | CO2Procedure().get_params()
        known |= {"kernel": None, "holdout": 0.0}  # of a loss of the user; as in SETTINGS[0]
        # Non-greedy trees use neither OC1 nor alternating refinement.
        known |= {"n_restarts": 0, "n_jumps": 0, "n_sweeps": 0, "has_votes": False}
        for part in fields(CO2Settings):
            if part.default is not MISSING:
                assert known[part.name] == part.default, part.name


def test_records_are_of_all_trees_or_gone():
    X, y = easy_rows(NonGreedyTreeClassifier)
    names = {"loss_curve_", "validation_scores_", "n_active_leaves_", "refine_curve_"}
    model = CO2ForestClassifier(2, max_depth=2, random_state=0, refine="nongreedy").fit(X, y)
    assert names & vars(model).keys() == names - {"refine_curve_"}
    # Of trees that are no more.
    model.set_params(refine=None, warm_start=True)
    plain = clone(model).fit(X, y)
    model.set_params(warm_start=False).fit(X, y)
    assert not names & vars(model).keys()
    # Of some trees only.
    plain.set_params(refine="alternating", n_estimators=3).fit(X, y)
    assert not names & vars(plain).keys()


@pytest.mark.parametrize("cls", TREES)
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize(
    "params",
    [
        {"learning_rate": 1e308},
        {"learning_rate": 1e30},
        {"nu": 1e300},
        {"row_norm": 1e300},
        {"l1": 1e300},
        {"momentum": 1 - 1e-16},
        {"smoothing": 1e-320},
        {"smoothing": 1e308},
    ],
    ids=str,
)
def test_training_that_overflows_returns_a_finite_tree(cls, early_stopping, params):
    """Numbers that overflow lead to no invalid leaf, and are not stored in the tree."""
    X, y = easy_rows(cls)
    own = {"early_stopping": early_stopping, "n_epochs": 3, "random_state": 0}
    model = made(cls, **own, **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, y)
    forest = model.forest_
    for part in (forest.dense, forest.sparse_weight, forest.threshold, forest.value):
        assert np.isfinite(part).all()
    assert np.isfinite(model.predict(X)).all()


def test_a_tree_without_gain_does_not_warn():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.random(200) < 0.05
    weight = rng.uniform(0.1, 1, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for seed in range(5):
            NonGreedyTreeClassifier(max_depth=1, random_state=seed).fit(X, y, weight)


@pytest.mark.parametrize("batch_size", [1, 10])
@pytest.mark.parametrize("light", [1e-300, 1e-40, 1e-9])
@pytest.mark.parametrize("cls", TREES)
def test_rows_of_next_to_no_weight(cls, light, batch_size):
    """Batches of them alone make no step to speak of."""
    X, y = easy_rows(cls)
    weight = np.where(np.arange(len(X)) % 4, light, 1.0)
    heavy = weight == 1
    model = cls(random_state=0, max_depth=3, procedure=NonGreedyProcedure(batch_size=batch_size))
    model.fit(X, y, weight)
    assert np.isfinite(model.loss_curve_).all()
    assert model.score(X[heavy], y[heavy]) > (0.6 if is_classifier(model) else 0.4)


def test_a_target_that_does_not_vary_leaves_one_leaf():
    X = np.random.default_rng(0).normal(size=(20, 3))
    tree = NonGreedyTreeClassifier().fit(X, np.zeros(20))
    assert tree.get_n_leaves() == 1
    assert tree.loss_curve_.shape == (0,)


def test_a_tree_without_a_split_counts_the_rows_that_it_held_out():
    X, y = easy_rows(NonGreedyTreeRegressor)
    X, y = X[:61], y[:61]
    small = {"min_samples_leaf": 31}  # no two leaves have so many rows
    stopped = NonGreedyTreeRegressor(early_stopping=True, **small, random_state=0)
    labels = NonGreedyTreeClassifier(early_stopping=True, **small, random_state=0)
    models = [
        (stopped, labels),
        (
            CO2ForestRegressor(1, **PLAIN | small | {"refine": stopped}),
            CO2ForestClassifier(1, **PLAIN | small | {"refine": labels}),
        ),
        tuple(
            made(cls, 1, early_stopping=True, **small, random_state=0)
            for cls in (skforest.E2EDecisionForestRegressor, skforest.E2EDecisionForestClassifier)
        ),
    ]
    for regressor, classifier in models:
        np.testing.assert_allclose(regressor.fit(X, y).predict(X[:3]), y.mean(), rtol=1e-5)
        found = classifier.fit(X, y > y[0]).predict_proba(X[:1])[0, 1]
        assert found == pytest.approx(np.mean(y > y[0]))


def test_features_in_other_units_give_the_same_tree():
    X, y = make_classification(200, 6, n_informative=5, n_redundant=0, random_state=0)
    X = np.float32(X).astype(float)
    model = NonGreedyTreeClassifier(random_state=0, max_depth=5)
    plain = clone(model).fit(X, y)
    other = X * 2.0 ** np.array([0, 30, -30, 5, 1, -200]) + np.array([1024, 0, 0, 0, -7, 0])
    moved = clone(model).fit(other, y)
    np.testing.assert_array_equal(plain.forest_.dense, moved.forest_.dense)
    np.testing.assert_array_equal(plain.predict_proba(X), moved.predict_proba(other))


def test_more_classes_than_are_listed():
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(150, 6)) * 10
    y = np.repeat(np.arange(150), 8)
    X = centre[y] + rng.normal(size=(len(y), 6))
    own = PLAIN | {"refine": NonGreedyTreeClassifier(nu=1000.0)}
    forest = CO2ForestClassifier(5, **own).fit(X[::2], y[::2])
    proba = forest.predict_proba(X[1::2])
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-6)
    assert forest.score(X[1::2], y[1::2]) > 0.7


def test_regression_beats_a_tree_of_single_features():
    X, y = make_regression(600, 8, n_informative=6, noise=5.0, random_state=0)
    tree = NonGreedyTreeRegressor(max_depth=4, random_state=0).fit(X[:400], y[:400])
    axis = DecisionTreeRegressor(max_depth=4, random_state=0).fit(X[:400], y[:400])
    assert tree.score(X[400:], y[400:]) > axis.score(X[400:], y[400:]) + 0.1
    Y = np.stack([y, -y, X[:, 0]], axis=1)
    forest = CO2ForestRegressor(10, **PLAIN).fit(X[:400], Y[:400])
    assert forest.predict(X).shape == (600, 3)
    assert forest.score(X[400:], Y[400:]) > 0.5
