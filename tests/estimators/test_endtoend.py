"""Estimators of end-to-end trees: start, joint training, routing."""

import _thread
import threading
import warnings
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from makers import changed, made
from skforest._kernels.endtoend.trainer import SoftTrainer
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, make_classification, make_regression
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from skforest import E2EDecisionForest, E2EDecisionForestRegressor, E2EProcedure, refine
from skforest.estimators import endtoend
from skforest.forest.edit import DenseTree
from skforest.table.feature_grid import FeatureGrid
from skforest.training import endtoend as training
from skforest.training.endtoend import MIN_DEVIATION, Annealing

CLASSES = [E2EDecisionForest, E2EDecisionForestRegressor]

# ---------------------------------------------------------------------------------------- stumps


@pytest.mark.parametrize("cls", CLASSES)
def test_what_does_not_vary_is_no_choice(cls):
    rng = np.random.default_rng(0)
    X = np.zeros((200, 100))
    X[:, 7] = rng.normal(size=200)
    forest = cls(10, random_state=0).fit(X, (X[:, 7] > 0).astype(int)).forest_
    assert (forest.n_leaves > 1).all()
    images = np.zeros((200, 10, 10))
    images[:, 4:6, 4:6] = rng.normal(size=(200, 2, 2))
    y = (images.sum(axis=(1, 2)) > 0).astype(int)
    model = cls(10, feature_shape=(10, 10), patch_size=3, random_state=0).fit(images, y)
    assert (model.forest_.n_leaves > 1).all() and model.max_features_ == 9
    assert (cls(3, random_state=0).fit(0 * X, y).forest_.n_leaves == 1).all()


def test_heavy_tails_do_not_end_growth():
    X = np.random.default_rng(1).normal(size=(1500, 2))
    y = X.prod(axis=1)  # a stump of this target leaves nearly all rows on one side
    tree = E2EDecisionForestRegressor(1, max_depth=10, random_state=1).fit(X[:500], y[:500])
    assert tree.score(X[500:], y[500:]) > 0.8


# ------------------------------------------------------------------------------------ estimators


def data(cls, n=400, random_state=0):
    if cls is E2EDecisionForest:
        X, y = make_classification(
            n, 8, n_informative=6, n_redundant=0, n_classes=3, random_state=random_state
        )
        return X.astype(np.float32), y
    X, y = make_regression(n, 8, n_informative=6, random_state=random_state)
    return X.astype(np.float32), y


@pytest.mark.parametrize("cls", CLASSES)
def test_splits_start_at_the_weighted_mean_of_their_rows(cls):
    """With steps of nearly no length, a split stays where it starts."""
    X, y = data(cls)
    weight = np.random.default_rng(0).exponential(size=len(X)) ** 2
    own = {"max_depth": 1, "learning_rate": 1e-9, "greedy_epochs": 1, "finetune_epochs": 0}
    model = made(cls, 5, random_state=0, **own).fit(X, y, weight)
    forest = model.forest_
    Z = forest.map_features(X)
    along = forest.directions() @ np.average(Z, axis=0, weights=weight)
    spread = np.std(forest.directions() @ Z.T, axis=1)
    assert (np.abs(along - forest.threshold) < 1e-3 * spread).all()


@pytest.mark.parametrize("cls", CLASSES)
def test_no_training_row_crosses_a_threshold(cls):
    """Leaf values are those of the rows that predictions send there."""
    X, y = data(cls)
    model = cls(1, max_depth=5, random_state=0).fit(X, y)
    leaf = model.apply(X)[:, 0]
    weight = model.forest_.node_weight
    np.testing.assert_allclose(np.bincount(leaf, minlength=len(weight))[leaf], weight[leaf])
    Y = oracles.one_hot(y, 3) if cls is E2EDecisionForest else y[:, None]
    response = model.forest_.response(X)
    for each in np.unique(leaf):
        mean = np.broadcast_to(Y[leaf == each].mean(axis=0), response[leaf == each].shape)
        np.testing.assert_allclose(response[leaf == each], mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cls", CLASSES)
def test_greedy_trees_are_the_start_of_joint_training(cls):
    X, y = data(cls, 800)
    own = {"max_depth": 4, "procedure": E2EProcedure(steepness_step=0.1), "random_state": 0}
    greedy, joint = (cls(1, finetune_epochs=epochs, **own).fit(X, y) for epochs in (0, 20))
    assert len(greedy.loss_curve_[0]) == 0 and greedy.n_iter_ == [0]
    assert len(joint.loss_curve_[0]) == 20 and joint.n_iter_ == [20]
    assert greedy.steepness_ == pytest.approx(1 + 0.1 * greedy.greedy_epochs_)
    assert joint.steepness_ == pytest.approx(greedy.steepness_ + 2)
    assert joint.score(X, y) > greedy.score(X, y)
    assert joint.loss_curve_[0][-1] < joint.loss_curve_[0][0]


@pytest.mark.parametrize("cls", CLASSES)
def test_joint_training_that_diverges_keeps_the_grown_tree(cls, monkeypatch):
    class Diverging(SoftTrainer):
        def run(self, steepness, rate):
            return np.nan

    X, y = data(cls)
    common = {"max_depth": 4, "greedy_epochs": 4, "random_state": 0}
    grown = cls(1, finetune_epochs=0, **common).fit(X, y)
    monkeypatch.setattr("skforest.training.endtoend.SoftTrainer", Diverging)
    with pytest.warns(ConvergenceWarning, match="infinite in epoch 1.*learning_rate=.*smaller"):
        model = cls(1, finetune_epochs=5, **common).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), grown.predict(X))
    assert model.n_iter_ == [0]
    with pytest.warns(ConvergenceWarning, match="infinite in epoch 1"):
        changed(model, early_stopping=True).fit(X, y)
    assert model.n_iter_ == [0] and len(model.validation_scores_[0]) == 0
    assert model.forest_.node_weight[0] == len(X)
    losses = iter([0.5, 0.4, np.nan])
    monkeypatch.setattr(Diverging, "run", lambda *_: next(losses))
    with pytest.warns(ConvergenceWarning, match="infinite in epoch 3"):
        model.fit(X, y)
    assert model.n_iter_ == [0] and len(model.validation_scores_[0]) == 0


@pytest.mark.parametrize("cls", CLASSES)
def test_steepness_without_end_is_hard_routing(cls):
    X, y = data(cls)
    forest = cls(3, max_depth=5, random_state=0).fit(X, y).forest_
    steep = forest.replaced(forest.arrays, gate="sigmoid", steepness=1e12)
    np.testing.assert_allclose(steep.response(X), forest.response(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("cls", CLASSES)
def test_both_routings_of_one_model(cls):
    X, y = data(cls)
    hard = cls(2, max_depth=5, finetune_epochs=5, random_state=0).fit(X, y)
    soft = cls(2, max_depth=5, finetune_epochs=5, random_state=0, routing="soft").fit(X, y)
    assert (hard.forest_.gate, soft.forest_.gate) == ("hard", "sigmoid")
    scores = hard.routing_scores(X, y)
    assert scores == soft.routing_scores(X, y)
    assert scores["hard"] == hard.score(X, y) and scores["soft"] == soft.score(X, y)
    predict = "predict_proba" if cls is E2EDecisionForest else "predict"
    a, b = getattr(hard, predict)(X), getattr(soft, predict)(X)
    assert scores["gap"] == pytest.approx(np.abs(a - b).mean()) and scores["gap"] > 0
    np.testing.assert_array_equal(getattr(hard.set_params(routing="soft"), predict)(X), b)
    weight = np.random.default_rng(0).integers(0, 3, size=len(X))
    weighted = soft.routing_scores(X, y, weight)
    assert weighted["soft"] == soft.score(X, y, weight)
    assert soft.routing == "soft"


def test_soft_routing_is_the_sum_over_paths():
    X, y = data(E2EDecisionForest)
    model = E2EDecisionForest(1, max_depth=4, random_state=0, routing="soft").fit(X, y)
    forest = model.forest_
    table = forest.map_features(X)
    gates = oracles.soft_gates(
        forest.directions().toarray(), forest.threshold, model.steepness_, table
    )
    values = np.zeros((forest.n_nodes, 3))
    hard = forest.replaced(forest.arrays, gate="hard")
    values[hard.apply(X)[:, 0]] = hard.response(X)
    reach = oracles.soft_reach(forest.child, gates)
    wanted = reach @ values[forest.child < 0]
    np.testing.assert_allclose(model.predict_proba(X), wanted, atol=1e-4)


@pytest.mark.parametrize(
    ("growth", "finetune_epochs"), [("greedy", 0), ("greedy", 2), ("complete", 2)]
)
@pytest.mark.parametrize("cls", CLASSES)
def test_trained_leaves_follow_one_more_step_of_equation_13(
    cls, growth, finetune_epochs, monkeypatch
):
    """From the leaves of the last epoch of joint training; without one, from equal leaves."""
    seen, leaf_values = [], training._Training.leaf_values

    def recorded(self):
        with np.errstate(divide="ignore"):  # without joint training, leaves have no values yet
            seen.extend([self.data, self.trainer.leaf_values])
        return leaf_values(self)

    monkeypatch.setattr(training._Training, "leaf_values", recorded)
    X, y = data(cls, 200)
    # Splits are so flat that no path is left out.
    params = {"leaves": "trained", "growth": growth, "steepness": 0.1, "steepness_step": 0.05}
    params |= {"max_depth": 5, "greedy_epochs": 1, "finetune_epochs": finetune_epochs}
    model = changed(cls(1, routing="soft", random_state=0), **params)
    model.fit(X, y, sample_weight=np.arange(len(X)) % 4)
    rows, before = seen
    forest, n_outputs = model.forest_, rows.n_outputs
    target, weight = rows.target[rows.weight > 0], rows.weight[rows.weight > 0]
    tree = DenseTree.of(forest)

    def reached(Z):
        gates = oracles.soft_gates(tree.weights, tree.threshold, model.steepness_, Z)
        return oracles.soft_reach(tree.child, gates)

    reach = reached(rows.X[rows.weight > 0])
    leaves = before if finetune_epochs else oracles.soft_leaves(reach, target, weight, n_outputs)
    if cls is E2EDecisionForest:
        part, _ = oracles.soft_posterior(reach, leaves[:, target].T)
        values = oracles.soft_leaves(part, target, weight, n_outputs)
    else:
        part, _ = oracles.soft_posterior(reach, oracles.normal_densities(target, *leaves))
        means, _ = oracles.soft_leaves(part, target, weight, n_outputs)
        values = rows.baseline + means * rows.target_scale
    response = model.predict_proba(X) if cls is E2EDecisionForest else model.predict(X)[:, None]
    np.testing.assert_allclose(response, reached(forest.map_features(X)) @ values, rtol=1e-4)
    if growth == "complete":  # counted leaves would be removed
        assert forest.n_leaves.tolist() == [32] and forest.node_weight.min() == 0


@pytest.mark.parametrize("cls", CLASSES)
def test_the_gap_between_soft_and_hard_routing_decreases_with_steepness(cls):
    X, y = data(cls)
    models = [
        made(cls, 1, max_depth=4, steepness_step=step, random_state=0) for step in (0.0, 0.5)
    ]
    gaps = [model.fit(X, y).routing_scores(X, y)["gap"] for model in models]
    assert gaps[1] < 0.7 * gaps[0]


@pytest.mark.parametrize("cls", CLASSES)
def test_best_first_growth_has_its_leaves(cls):
    X, y = data(cls)
    model = cls(2, max_leaf_nodes=6, finetune_epochs=0, random_state=0).fit(X, y)
    assert model.forest_.n_leaves.tolist() == [6, 6] and model.max_depth_ is None
    level = cls(1, max_depth=2, finetune_epochs=0, random_state=0).fit(X, y)
    assert level.forest_.n_leaves[0] <= 4 and level.forest_.max_depth[0] == 2


@pytest.mark.thin(2)
@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("shape", [8, (4, 2), (2, 2, 2)])
def test_patches_and_smoothness_in_every_number_of_dimensions(cls, shape):
    X, y = data(cls)
    options = {"feature_shape": shape, "max_depth": 4, "random_state": 0}
    model = cls(2, patch_size=2 if shape != (4, 2) else (2, 1), **options).fit(X, y)
    n_used = {8: 2, (4, 2): 2, (2, 2, 2): 8}[shape]
    assert (np.diff(model.forest_.directions().indptr) <= n_used).all()

    def roughness(smoothness):
        forest = cls(2, smoothness=smoothness, **options).fit(X, y).forest_
        W = forest.directions().toarray()
        a, b = FeatureGrid(shape, int(np.prod(shape))).edges().T
        return (np.square(W[:, a] - W[:, b]).sum(axis=1) / np.square(W).sum(axis=1)).mean()

    assert roughness(1.0) < 0.7 * roughness(0.0)


@pytest.mark.parametrize("cls", CLASSES)
def test_leaves_keep_their_limits_after_joint_training(cls):
    X, y = data(cls)
    model = cls(2, min_samples_leaf=15, random_state=0).fit(X, y)
    assert model.forest_.node_weight.min() >= 15
    model = cls(2, min_weight_fraction_leaf=0.1, random_state=0).fit(X, y)
    assert model.forest_.node_weight.min() >= 0.1 * len(X) - 1e-6


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    "params",
    [
        {"greedy_epochs": 3},
        {"finetune_epochs": 3},
        {"learning_rate": 0.1},
        {"batch_size": 200},
        {"steepness": 3.0},
        {"steepness_step": 0.0},
        {"smoothness": 0.1},
        {"max_features": 3},
        {"patch_size": 3},
        {"max_leaf_nodes": 5},
        {"growth": "complete"},
        {"schedule": "constant"},
        {"min_batches": 1},
        {"max_depth": 2},
        {"bootstrap": True},
        {"early_stopping": True},
    ],
    ids=lambda params: next(iter(params)),
)
@pytest.mark.parametrize("cls", CLASSES)
def test_every_parameter_of_training_matters(cls, params):
    X, y = data(cls)
    plain = cls(1, max_depth=4, random_state=0)
    other = changed(clone(plain), **params)
    a, b = plain.fit(X, y).forest_, other.fit(X, y).forest_
    assert a.threshold.tobytes() != b.threshold.tobytes()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"patch_size": 9}, "patch_size=9"),
        ({"patch_size": (2, 2)}, "one for each of the 1 axes"),
        ({"patch_size": 2, "max_features": 3}, "max_features=3 has no meaning"),
        ({"feature_shape": (3, 3)}, "multiply to the 8 features"),
        ({"growth": "complete", "max_leaf_nodes": 5}, 'max_leaf_nodes=5 .* growth="complete"'),
        ({"growth": "complete", "max_depth": 17}, 'max_depth=17 with growth="complete"'),
        ({"growth": "complete", "max_depth": None}, 'max_depth=None with growth="complete"'),
        ({"growth": "complete", "finetune_epochs": 0}, 'finetune_epochs=0 with growth="complete"'),
        ({"routing": "medium"}, "routing"),
        ({"leaves": "soft"}, "leaves"),
        ({"leaves": "trained", "early_stopping": True}, 'leaves="trained" is not possible'),
        ({"feature_shape": (-2, -4)}, "an int of at least 1"),
        ({"steepness": 0.0}, "steepness"),
        ({"steepness": 1e7}, "steepness"),
        ({"steepness_step": 1e7}, "steepness_step"),
        ({"learning_rate": 1e7}, "learning_rate"),
        ({"smoothness": 1e7}, "smoothness"),
        ({"greedy_epochs": 0}, "greedy_epochs"),
        ({"max_depth": "deep"}, "max_depth"),
    ],
    ids=str,
)
@pytest.mark.parametrize("cls", CLASSES)
def test_bad_values(cls, params, words):
    X, y = data(cls, 50)
    with pytest.raises(ValueError, match=words):
        made(cls, **params).fit(X, y)


@pytest.mark.parametrize("cls", CLASSES)
def test_half_precision_keeps_both_routings(cls):
    X, y = data(cls)
    options = {"max_depth": 4, "random_state": 0}
    whole = cls(2, **options).fit(X, y).routing_scores(X, y)
    half = cls(2, weight_dtype="float16", **options).fit(X, y)
    assert half.forest_.weight_dtype == "float16"
    assert half.routing_scores(X, y) == pytest.approx(whole, rel=0.02, abs=0.03)


def test_half_precision_has_no_infinite_weights():
    """Rows that lie close want weights of millions."""
    X = np.repeat(np.random.default_rng(0).normal(size=(50, 4)), 2, axis=0)
    X[::2, 0] += 1e-5
    options = {"max_depth": 30, "finetune_epochs": 0, "random_state": 0}
    one, half = (
        E2EDecisionForest(1, weight_dtype=dtype, **options).fit(X, np.arange(100) % 2).forest_
        for dtype in ("float32", "float16")
    )
    assert np.abs(one.directions().toarray()).max() > 65504
    assert np.isfinite(half.directions().toarray()).all()


def test_a_class_with_one_row():
    X, y = data(E2EDecisionForest)
    y = np.where(np.arange(len(y)) == 7, 9, y)
    model = E2EDecisionForest(3, random_state=0).fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2, 9]
    assert model.predict_proba(X)[7, 3] > 0
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-6)


def test_several_outputs():
    X, Y = make_regression(300, 6, n_targets=3, random_state=0)
    model = E2EDecisionForestRegressor(5, random_state=0).fit(X[:200], Y[:200] + [0, 1e4, 0])
    assert model.predict(X).shape == (300, 3)
    assert model.score(X[200:], Y[200:] + [0, 1e4, 0]) > 0.4


@pytest.mark.parametrize("cls", CLASSES)
def test_auto_is_resolved_from_the_data(cls):
    X, y = data(cls)
    model = cls(1).fit(X, y)
    quick = {"greedy_epochs": 1, "finetune_epochs": 1}
    resolved = model.max_depth_, model.greedy_epochs_, model.max_features_
    assert resolved == ((8, 8, 8) if cls is E2EDecisionForest else (6, 15, 8))
    assert model.batch_size_ <= len(X) and model.learning_rate_ > 0
    assert (model.n_estimators_, model.finetune_epochs_) == (1, 60)
    assert model.steepness_ == pytest.approx(4)
    two = cls(2, max_depth=2).fit(X, y)
    greedy_epochs = 15 if cls is E2EDecisionForest else 30
    assert (two.greedy_epochs_, two.finetune_epochs_) == (greedy_epochs, 30)
    assert two.steepness_step_ == 0.2 and cls(1, **quick).fit(X, y).steepness_step_ == 0.1
    for own in (model, two):
        assert own.learning_rate_ == pytest.approx(min(0.05, 0.13 / own.max_features_**0.7))
    grid = cls(3, feature_shape=(2, 4), **quick).fit(X.reshape(-1, 2, 4).tolist(), y)
    assert (grid.max_features_, grid.steepness_step_) == (4, 0.1)
    odd = cls(3, feature_shape=(1, 7), max_depth=1, **quick).fit(X[:50, :7], y[:50])
    assert odd.max_features_ == 4  # half of them, rounded up
    best = cls(1, max_leaf_nodes=5, **quick).fit(X, y)
    assert best.max_depth_ is None
    few = cls(max_depth=2, **quick).fit(X[:200], y[:200])
    assert few.n_estimators_ == len(cls(**quick).fit(X, y).forest_)
    procedure = E2EProcedure(batch_size=50, learning_rate=0.5)
    given = cls(1, max_depth=3, greedy_epochs=2, procedure=procedure).fit(X, y)
    assert (given.max_depth_, given.batch_size_) == (3, 50)
    assert (given.learning_rate_, given.greedy_epochs_) == (0.5, 2)


@pytest.mark.parametrize(
    "n, p, values",  # trees, depths of both classes, greedy epochs, epochs, rows of a batch
    [
        (100, 20, (50, 8, 10, 15, 30, 32)),
        (2000, 20, (25, 8, 10, 15, 30, 200)),
        (10_000, 1000, (16, 8, 10, 8, 30, 262)),
        (10_001, 20, (16, 10, 10, 7, 30, 1000)),
        (20_000, 20, (16, 10, 10, 4, 20, 1000)),
        (100_000, 20, (16, 10, 10, 4, 16, 1000)),
    ],
)
def test_auto_values_of_many_rows(n, p, values):
    names = "n_estimators", "greedy_epochs", "finetune_epochs", "batch_size"
    for cls, depth in zip(CLASSES, values[1:3]):
        X = np.broadcast_to(0.0, (n, p))
        rows = SimpleNamespace(X=X, is_classification=cls is E2EDecisionForest)
        found = cls()._resolved_values(rows, {}, False)
        assert found["max_depth"] == depth
        most = {**found, "greedy_epochs": min(found["greedy_epochs"], 15)}
        assert [most[name] for name in names] == [values[0], *values[3:]]


@pytest.mark.parametrize("cls", CLASSES)
def test_warm_start_keeps_the_resolved_values_of_auto(cls):
    few, many = data(cls, 3000), data(cls, 6000, random_state=1)
    model = cls(2, max_depth=3, warm_start=True, random_state=0).fit(*few)
    before = {name: getattr(model, f"{name}_") for name in endtoend.KEPT}
    model.set_params(n_estimators=3, routing="soft").fit(*many)
    assert before == {name: getattr(model, f"{name}_") for name in endtoend.KEPT}
    assert len(model.forest_) == 3 and model.forest_.gate == "sigmoid"
    with pytest.raises(ValueError, match="last steepness of"):
        changed(model, n_estimators=4, steepness=2.0).fit(*many)
    with pytest.raises(ValueError, match="weight_dtype='float16'"):
        model.set_params(procedure=None, weight_dtype="float16").fit(*many)


def test_limits_of_complete_trees():
    model = made(E2EDecisionForest, growth="complete")
    for depth in (1, endtoend.MAX_COMPLETE_DEPTH):
        model._check_complete(depth, 1)
    for depth, n_epochs in ((endtoend.MAX_COMPLETE_DEPTH + 1, 1), (None, 1), (3, 0)):
        with pytest.raises(ValueError, match='with growth="complete"'):
            model._check_complete(depth, n_epochs)


@pytest.mark.filterwarnings("error::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n", [49, 60])
def test_rows_with_one_target_need_no_split(n):
    X = np.random.default_rng(0).normal(size=(n, 3))
    model = E2EDecisionForestRegressor(1, greedy_epochs=1, random_state=0)
    assert (model.fit(X, np.full(n, 7.0)).predict(X) == 7).all()
    E2EDecisionForest(1, greedy_epochs=1, random_state=0).fit(X, np.zeros(n))


def test_trees_that_grow_are_not_added_to_complete_trees_without_greedy_epochs():
    X, y = data(E2EDecisionForest)
    own = {"max_depth": 3, "warm_start": True, "random_state": 0}
    model = E2EDecisionForest(2, procedure=E2EProcedure(growth="complete"), **own).fit(X, y)
    assert len(model.set_params(n_estimators=3).fit(X, y).forest_) == 3
    with pytest.raises(ValueError, match="greedy_epochs, finetune_epochs and the procedure now"):
        model.set_params(n_estimators=4, procedure__growth="greedy").fit(X, y)


def test_training_does_not_depend_on_routing():
    X, y = data(E2EDecisionForest, 700)
    hard, soft = (
        E2EDecisionForest(2, max_depth=3, routing=routing, random_state=0).fit(X, y)
        for routing in ("hard", "soft")
    )
    assert hard.max_features_ == soft.max_features_
    assert hard.forest_.threshold.tobytes() == soft.forest_.threshold.tobytes()


@pytest.mark.parametrize("bootstrap", [False, True])
def test_refined_trees_are_hard(bootstrap):
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    soft = E2EDecisionForest(
        2, max_depth=4, routing="soft", bootstrap=bootstrap, random_state=0
    ).fit(X, y)
    refined = refine(soft, X, y, random_state=0)
    assert (refined.routing, refined.forest_.gate) == ("hard", "hard")
    assert (soft.routing, soft.forest_.gate) == ("soft", "sigmoid")
    again = refine(soft.set_params(routing="hard"), X, y, random_state=0)
    np.testing.assert_array_equal(again.predict_proba(X), refined.predict_proba(X))
    assert refined.score(X, y) > soft.score(X, y)


@pytest.mark.parametrize("cls", CLASSES)
def test_routing_that_is_none_is_named(cls):
    X, y = data(cls)
    model = cls(1, max_depth=2).fit(X, y).set_params(routing="medium")
    with pytest.raises(ValueError, match="routing='medium' must be"):
        model.predict(X)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("cls", CLASSES)
def test_an_interrupt_ends_joint_training_and_changes_nothing(cls, early_stopping, monkeypatch):
    X, y = data(cls, 3000)
    procedure = E2EProcedure(early_stopping=early_stopping, n_iter_no_change=1_000_000)
    model = cls(1, finetune_epochs=1_000_000, procedure=procedure, random_state=0)
    before = dict(model.__dict__)
    train_together = training.train_together

    def interrupted(*given):  # an interrupt before that may be lost in a callback of ctypes
        threading.Timer(0.3, _thread.interrupt_main).start()
        return train_together(*given)

    monkeypatch.setattr(training, "train_together", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert model.__dict__ == before


@pytest.mark.slow
def test_better_than_a_random_forest_on_digits():
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = E2EDecisionForest(random_state=0).fit(X_train, y_train)
    other = RandomForestClassifier(random_state=0).fit(X_train, y_train)
    assert model.score(X_test, y_test) > other.score(X_test, y_test) - 0.01


@pytest.mark.slow  # the example of E2EDecisionForestRegressor fits the same rows
def test_as_good_as_a_line_on_diabetes():
    X, y = load_diabetes(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    model = E2EDecisionForestRegressor(random_state=0).fit(X_train, y_train)
    assert model.score(X_test, y_test) > 0.2


def test_rates_fall_along_a_cosine():
    annealing = Annealing(2, 4, 0.1, 10, 1.0, 0.5)
    assert annealing.grown == 2.0 and annealing.final == 4.0
    wanted = 0.05 * (1 + np.cos(np.pi * np.array([1, 3, 5, 7]) / 8))
    np.testing.assert_allclose(annealing.rates(), wanted)
    constant = Annealing(2, 4, 0.1, 10, 1.0, 0.5, "constant")
    assert constant.rates().tolist() == [0.1] * 4


def test_batches_of_small_nodes():
    """A step of Adam moves a weight by about the rate, so more steps move the plane further."""
    X, y = data(E2EDecisionForest, 320)

    def plane(**options):
        own = {"max_depth": 1, "greedy_epochs": 1, "finetune_epochs": 0, "random_state": 0}
        model = E2EDecisionForest(1, procedure=E2EProcedure(batch_size=320, **options), **own)
        return model.fit(X, y).forest_.directions().toarray()[0]

    start = plane(learning_rate=1e-9)
    moved = {n: np.abs(plane(learning_rate=1e-4, min_batches=n) - start).max() for n in (1, 4, 20)}
    assert moved[4] / moved[1] == pytest.approx(4, rel=0.2)
    assert moved[20] / moved[1] == pytest.approx(20, rel=0.2)


@pytest.mark.parametrize("cls", CLASSES)
def test_complete_trees_begin_with_random_planes_through_the_mean(cls):
    X, y = data(cls)
    options = {"max_depth": 3, "finetune_epochs": 1, "learning_rate": 1e-9, "random_state": 0}
    model = made(cls, 2, growth="complete", max_features=5, **options).fit(X, y)
    assert model.greedy_epochs_ == 0 and model.steepness_ == 1 + model.steepness_step_
    assert model.forest_.n_leaves.tolist() == [8, 8]
    W = model.forest_.directions().toarray().astype(float)
    assert len(np.unique(W, axis=0)) == 14 and (np.count_nonzero(W, axis=1) == 5).all()
    scaled = model.forest_.map_features(X).astype(float)
    spread = scaled.std(axis=0)
    spread = np.maximum(spread, MIN_DEVIATION * spread.max())
    np.testing.assert_allclose(np.linalg.norm(W * spread, axis=1), 1, rtol=1e-4)
    np.testing.assert_allclose(model.forest_.threshold, W @ scaled.mean(axis=0), atol=1e-4)
    trained = made(cls, 1, growth="complete", max_depth=6, random_state=0).fit(X, y)
    leaf = trained.apply(X)[:, 0]
    assert set(leaf) == set(np.flatnonzero(trained.forest_.child < 0))
    assert trained.score(X, y) > 0.6


def test_neighbours_of_a_grid():
    assert FeatureGrid((2, 2), 4).edges().tolist() == [[0, 2], [1, 3], [0, 1], [2, 3]]
    assert len(FeatureGrid((3, 4, 5), 60).edges()) == 2 * 20 + 3 * 15 + 4 * 12


def test_a_tree_without_a_split_warns():
    X, y = make_classification(200, 4, random_state=0)
    model = made(E2EDecisionForest, 1, smoothness=1e6, learning_rate=1e3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="a tree has no split"):
        model.fit(X, y)
    assert model.forest_.n_nodes == 1
    with warnings.catch_warnings():  # nothing to warn of: more than half of the rows in a leaf
        warnings.simplefilter("error", ConvergenceWarning)
        quiet = made(E2EDecisionForest, 1, min_samples_leaf=101, random_state=0).fit(X, y)
    assert quiet.forest_.n_nodes == 1


@pytest.mark.parametrize("n_rows, expected", [(50, 50), (20, 32)])
def test_a_batch_has_at_most_all_rows(n_rows, expected):
    X = np.random.default_rng(0).normal(size=(n_rows, 2))
    model = made(E2EDecisionForestRegressor, 1, max_depth=1, batch_size=500)
    assert model.fit(X, X[:, 0]).batch_size_ == expected
