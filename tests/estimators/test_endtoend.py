"""End-to-end trees: kernels, training, estimators."""

import _thread
import threading
from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import (
    KernelTrainingSet,
    as_kernel_input,
    assert_same_trees,
    changed,
    fixed,
    made,
    make_splitter,
    make_training_set,
    random_children,
)
from skforest._kernels.endtoend.hyperplane import SoftSplitter
from skforest._kernels.endtoend.trainer import SoftTrainer
from skforest._kernels.search.grow import Grower
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, make_classification, make_regression
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from skforest import E2EDecisionForest, E2EDecisionForestRegressor, E2EProcedure, refine
from skforest.estimators import endtoend
from skforest.forest.edit import DenseTree
from skforest.forest.statistics import recount
from skforest.table.feature_grid import FeatureGrid
from skforest.table.training_set import TrainingSet
from skforest.training import endtoend as training
from skforest.training.early_stopping import EarlyStopping, validation_mask
from skforest.training.endtoend import MIN_DEVIATION, Annealing, Units

NEVER = np.zeros(1, dtype=np.uint8)
NO_EDGES = np.zeros((0, 2), dtype=np.int32)
CLASSES = [E2EDecisionForest, E2EDecisionForestRegressor]


def soft_options(mean, unit, edges=NO_EDGES, batch_size=1000, smoothness=0.0):
    """What `SoftTrainer` reads of `SoftOptions`."""
    units, annealing = Units(mean, unit, None, 0, edges), SimpleNamespace(batch_size=batch_size)
    return SimpleNamespace(units=units, annealing=annealing, smoothness=smoothness)


class Case:
    """A random tree and random rows, some of them twice and some without weight."""

    def __init__(self, seed, n=40, p=5, n_splits=6, n_outputs=3, real=False, shape=None):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(n, p)).astype(np.float32)
        self.X[1] = self.X[0]
        self.weight = rng.integers(0, 4, size=n).astype(float)
        self.weight[:3] = 1, 2, 1
        self.n_outputs = n_outputs
        target = rng.normal(size=(n, n_outputs)) if real else rng.integers(n_outputs, size=n)
        _, self.target = as_kernel_input(self.X, target)
        child = random_children(rng, n_splits)
        leaf = child < 0
        child[leaf] = -1 - np.arange(leaf.sum())
        self.child = child.astype(np.int32)
        self.W = rng.normal(size=(n_splits, p)).astype(np.float32)
        self.threshold = rng.normal(size=n_splits).astype(np.float32)
        self.mean = rng.normal(size=p).astype(np.float32)
        self.unit = rng.uniform(0.5, 2, size=p).astype(np.float32)
        self.trains = self.weight > 0

    def trainer(self, engine="products", batch_size=1000, smoothness=0.0, edges=NO_EDGES, **new):
        own = {**self.__dict__, **new}
        rows = KernelTrainingSet(self.X, self.target, own["weight"], self.n_outputs)
        tree = DenseTree(self.child, own["W"], own["threshold"])
        options = soft_options(self.mean, self.unit, edges, batch_size, smoothness)
        return SoftTrainer(rows, options, 0, NEVER, tree, engine)

    def with_leaves(self, steepness=1.0, **options):
        """A trainer whose leaves have values, after one E-step."""
        trainer = self.trainer(**options)
        trainer.evaluate(steepness)
        trainer.update_leaves()
        return trainer

    def likelihood(self, trainer):
        """(n_rows, n_leaves), in float64, of the rows that train."""
        target = self.target[self.trains]
        if target.ndim == 1:
            return trainer.leaf_values[:, target].T
        return oracles.normal_densities(target, *trainer.leaf_values)


def reach_of(case, steepness):
    gates = oracles.soft_gates(case.W, case.threshold, steepness, case.X[case.trains])
    return oracles.soft_reach(case.child, gates)


# --------------------------------------------------------------------------------------- E-step


@fixed
@given(seed=st.integers(0, 10**6), steepness=st.sampled_from([0.1, 1.0, 5.0]))
def test_probabilities_of_the_leaves_are_those_of_equation_1(seed, steepness):
    case = Case(seed)
    seen = case.trainer().evaluate(steepness)["reach"]
    np.testing.assert_allclose(seen.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(seen, reach_of(case, steepness), atol=2e-6)


@fixed
@given(seed=st.integers(0, 10**6), real=st.booleans(), steepness=st.sampled_from([0.3, 2.0]))
def test_responsibilities_are_the_posterior(seed, real, steepness):
    case = Case(seed, real=real)
    trainer = case.with_leaves(steepness)
    seen = trainer.evaluate(steepness)
    part, likelihood = oracles.soft_posterior(reach_of(case, steepness), case.likelihood(trainer))
    weight = case.weight[case.trains]
    relative = weight / weight.mean()
    np.testing.assert_allclose(seen["part"], part * relative[:, None], atol=2e-5)
    loss = -np.average(np.log(likelihood), weights=weight)
    np.testing.assert_allclose(seen["loss"], loss, rtol=1e-5, atol=1e-5)


@fixed
@given(seed=st.integers(0, 10**6), real=st.booleans())
def test_leaves_are_set_from_responsibilities(seed, real):
    """First as if all leaves had said the same before, then by equation 13."""
    case = Case(seed, n=200, real=real)
    trainer = case.trainer()
    weight, target = case.weight[case.trains], case.target[case.trains]
    part = reach_of(case, 1.0)
    for _ in range(2):
        trainer.evaluate(1.0)
        trainer.update_leaves()
        found = oracles.soft_leaves(part, target, weight, case.n_outputs)
        if not real:
            np.testing.assert_allclose(trainer.leaf_values, found, atol=1e-5)
        else:
            variance = np.average((target - np.average(target, axis=0, weights=weight)) ** 2,
                                  axis=0, weights=weight)  # fmt: skip
            np.testing.assert_allclose(trainer.leaf_values[0], found[0], atol=1e-4)
            wanted = np.maximum(found[1], 0.01 * variance)
            np.testing.assert_allclose(trainer.leaf_values[1], wanted, rtol=1e-3)
        part, _ = oracles.soft_posterior(part * 0 + reach_of(case, 1.0), case.likelihood(trainer))


# -------------------------------------------------------------------------------------- gradient


@fixed
@given(
    seed=st.integers(0, 10**6), real=st.booleans(), engine=st.sampled_from(["lists", "products"]),
    batch_size=st.sampled_from([7, 1000]), p=st.sampled_from([5, 15, 16, 17, 33, 81]),
)  # fmt: skip
def test_the_gradient_is_that_of_equation_14(seed, real, engine, batch_size, p):
    case = Case(seed, real=real, n_splits=3, p=p)
    steepness = 0.1  # no child is left out
    trainer = case.with_leaves(steepness, engine=engine, batch_size=batch_size)
    found = trainer.evaluate(steepness)["gradient"]
    X, weight = case.X[case.trains], case.weight[case.trains]
    likelihood = case.likelihood(trainer)
    W, bias = oracles.soft_gradient(
        case.child, case.W, case.threshold, steepness, X, likelihood, weight
    )
    # Weights turn about the mean row: with the bias there held fixed.
    np.testing.assert_allclose(found[:, :-1], W - np.outer(bias, case.mean), atol=3e-6)
    np.testing.assert_allclose(found[:, -1], bias, atol=3e-6)


@pytest.mark.parametrize("engine", ["lists", "products"])
@pytest.mark.parametrize("real", [False, True])
def test_splits_of_some_features_learn_these_alone(engine, real):
    """Splits that see features 2 to 5, all but the ends of these, one, and none."""
    case = Case(11, n=200, p=9, n_splits=4, real=real)
    sees = np.zeros(case.W.shape, dtype=bool)
    sees[0, 2:6] = sees[1, [2, 5]] = sees[2, 8] = True
    W = np.where(sees, case.W, 0)
    trainer = case.with_leaves(0.1, engine=engine, W=W)
    found = trainer.evaluate(0.1)["gradient"]
    wanted, bias = oracles.soft_gradient(
        case.child, W, case.threshold, 0.1, case.X[case.trains], case.likelihood(trainer),
        case.weight[case.trains],
    )  # fmt: skip
    wanted = wanted - np.outer(bias, case.mean)
    np.testing.assert_allclose(found[:, :-1][sees], wanted[sees], atol=3e-6)
    np.testing.assert_allclose(found[:, -1], bias, atol=3e-6)
    before = trainer.planes()
    trainer.run(0.1, 0.01)
    after = trainer.planes()
    assert (after[0][~sees] == 0).all() and (after[0][sees] != before[0][sees]).all()
    assert (after[1] != before[1]).all()


@pytest.mark.parametrize("engine", ["lists", "products"])
def test_a_heavy_row_that_is_nobodys_gives_finite_gradients(engine):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1.0, -1.0) + 0.01 * rng.normal(size=len(X))
    weight = np.ones(len(X))
    X[0], y[0], weight[0] = (5, 0), -1, 40
    zeros, ones = np.zeros(2, np.float32), np.ones(2, np.float32)
    child, W = np.array([1, -1, -2], np.int32), np.array([[300, 0]], np.float32)
    rows, tree = KernelTrainingSet(X, y[:, None], weight, 1), DenseTree(child, W, zeros[:1])
    trainer = SoftTrainer(rows, soft_options(zeros, ones), 0, NEVER, tree, engine)
    trainer.evaluate(5.0)
    trainer.update_leaves()
    assert np.isfinite(trainer.evaluate(5.0)["gradient"]).all()


def test_sums_of_a_leaf_without_weight_are_forgotten():
    X = np.full((5, 1), -1, dtype=np.float32)
    one = np.ones(1, dtype=np.float32)
    rows = KernelTrainingSet(X, np.zeros(5, np.int32), np.ones(5), 2)
    tree = DenseTree(np.array([1, -1, -2], np.int32), one[:, None], 0 * one)
    trainer = SoftTrainer(rows, soft_options(0 * one, one), 0, NEVER, tree, "products")
    trainer.evaluate(0.1)
    trainer.update_leaves()
    for steepness in [30.0] * 30 + [28.5]:
        trainer.evaluate(steepness)
        trainer.update_leaves()
    np.testing.assert_allclose(trainer.leaf_values.sum(axis=1), 1, rtol=1e-3)


@pytest.mark.parametrize("real", [False, True])
def test_the_gradient_is_a_finite_difference_of_the_loss(real):
    case = Case(3, n=60, n_splits=5, real=real)
    trainer = case.with_leaves(1.5)
    X, weight = case.X[case.trains], case.weight[case.trains]
    likelihood = case.likelihood(trainer)

    def loss(W, threshold):
        gates = oracles.soft_gates(W, threshold, 1.5, X)
        reach = oracles.soft_reach(case.child, gates)
        return -np.average(np.log((reach * likelihood).sum(axis=1)), weights=weight)

    found = trainer.evaluate(1.5)["gradient"]
    W, threshold = case.W.astype(float), case.threshold.astype(float)
    step = 1e-5
    for split in range(5):
        for j in range(5):
            move = np.zeros_like(W)
            move[split, j] = step
            shift = move @ case.mean.astype(float)  # the mean row keeps its margin
            slope = (loss(W + move, threshold + shift) - loss(W - move, threshold - shift)) / step
            np.testing.assert_allclose(found[split, j], slope / 2, atol=2e-6)


def test_float32_is_enough_at_the_steepest():
    case = Case(5, n=300, n_splits=15)
    trainer = case.with_leaves(30.0)
    found = trainer.evaluate(30.0)["gradient"]
    W, bias = oracles.soft_gradient(
        case.child, case.W, case.threshold, 30.0, case.X[case.trains], case.likelihood(trainer),
        case.weight[case.trains],
    )  # fmt: skip
    wanted = np.column_stack([W - np.outer(bias, case.mean), bias])
    assert np.linalg.norm(found - wanted) < 1e-4 * np.linalg.norm(wanted)


def test_margins_beyond_all_bounds_stay_finite():
    case = Case(6)
    trainer = case.with_leaves(1e6)
    assert np.isfinite(trainer.evaluate(1e6)["gradient"]).all()
    assert np.isfinite([trainer.run(1e6, 0.01) for _ in range(3)]).all()


@pytest.mark.parametrize(
    ("steepness", "real", "close"), [(0.1, False, 1e-5), (0.1, True, 1e-5), (20.0, False, 2e-2)]
)
def test_the_engines_agree(real, steepness, close):
    """Exactly where no child is left out, and closely where some are.

    Not so for real targets, where one leaf in the distance may be the only one that fits a row.
    """
    case = Case(7, n=300, n_splits=3 if steepness < 1 else 15, real=real)
    one, other = (case.with_leaves(steepness, engine=engine) for engine in ("lists", "products"))
    a, b = one.evaluate(steepness), other.evaluate(steepness)
    for name in ("gradient", "part", "loss"):
        assert np.linalg.norm(a[name] - b[name]) <= close * np.linalg.norm(b[name])
    assert (one.visited < 0.6) == (steepness > 1)
    np.testing.assert_allclose(one.visited, other.visited, atol=0.05)
    left_out = 1 - a["reach"].sum(axis=1)
    assert left_out.max() < 15 * 1e-3  # less than the bound for every split


def test_the_engine_follows_the_share_of_splits_that_are_visited():
    case = Case(8, n=300, n_splits=40)
    for steepness, dense in ((0.1, True), (30.0, False)):
        trainer = case.trainer(engine="auto", batch_size=50)
        trainer.run(steepness, 1e-6)
        per_row = trainer.work_done / (4 * case.X.shape[1] * case.trains.sum())
        # Sowing, then learning; the first batch of each has lists.
        full = 2 * len(case.threshold)
        assert (per_row == full) == dense or (per_row < 0.5 * full) == (not dense)
        assert (trainer.visited > 0.3) == dense


# ----------------------------------------------------------------------------------------- steps


def test_a_step_is_adam():
    case = Case(9, n=50)
    W = case.W.copy()
    W[:, 2] = 0  # no part of the splits
    trainer = case.trainer(W=W, engine="lists")
    trainer.evaluate(1.0)
    trainer.update_leaves()
    centre = W.astype(float) @ case.mean - case.threshold
    w, b, state = W.astype(float), centre, [0.0, 0.0, 0.0, 0.0]
    for t in (1, 2, 3):
        gradient = trainer.evaluate(1.0)["gradient"]
        trainer.update_leaves()
        gradient = trainer.evaluate(1.0)["gradient"]
        leaves = trainer.leaf_values
        trainer.run(1.0, 0.05)
        step, state[0], state[1] = oracles.optimizer_step(
            "adam", t, np.zeros_like(w), state[0], state[1], gradient[:, :-1], 0.05
        )
        w = w + step * case.unit * (W != 0)
        b, state[2], state[3] = oracles.optimizer_step(
            "adam", t, b, state[2], state[3], gradient[:, -1], 0.05
        )
        found, threshold = trainer.planes()
        np.testing.assert_allclose(found, w, atol=2e-4)
        np.testing.assert_allclose(threshold, w @ case.mean - b, atol=1e-3)
        assert (found[:, 2] == 0).all()
        assert leaves.shape == (7, 3)


@pytest.mark.parametrize("engine", ["lists", "products"])
@pytest.mark.parametrize("real", [False, True])
def test_the_likelihood_does_not_fall_with_small_steps_of_all_rows(engine, real):
    case = Case(10, n=200, n_splits=4, real=real)
    trainer = case.trainer(engine=engine)
    losses = [trainer.run(1.0, 1e-3) for _ in range(30)]
    assert np.diff(losses).max() < 1e-6 * abs(losses[0])
    assert losses[-1] < losses[0] - 0.01


def test_training_separates_what_can_be_separated():
    X, y = make_classification(600, 6, n_informative=5, n_redundant=0, random_state=0)
    case = Case(11, n=600, p=6, n_splits=7, n_outputs=2)
    case.X, case.target = as_kernel_input(X, y)
    trainer = case.trainer(engine="auto", batch_size=60)
    losses = [trainer.run(1 + 0.1 * epoch, 0.02) for epoch in range(60)]
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("shape", [(12,), (4, 3), (2, 3, 2)])
def test_smoothness_adds_the_gradient_of_equation_15(shape):
    case = Case(12, p=12, n_splits=3)
    options = {"engine": "products", "edges": FeatureGrid(shape, int(np.prod(shape))).edges()}
    plain = case.with_leaves(1.0).evaluate(1.0)["gradient"]
    smooth = case.with_leaves(1.0, smoothness=0.3, **options).evaluate(1.0)["gradient"]
    wanted = oracles.smoothness_gradient(case.W / case.unit, shape, 0.3) / case.unit
    np.testing.assert_allclose((smooth - plain)[:, :-1], wanted, atol=1e-4)
    np.testing.assert_allclose(smooth[:, -1], plain[:, -1], atol=1e-6)


def test_a_weight_of_2_is_a_copy():
    case = Case(13)
    keep = np.repeat(np.arange(len(case.X)), case.weight.astype(int))
    a = case.with_leaves(1.0).evaluate(1.0)
    copied = Case(13)
    copied.X, copied.target = case.X[keep], case.target[keep]
    copied.weight = np.ones(len(keep))
    b = copied.with_leaves(1.0).evaluate(1.0)
    np.testing.assert_allclose(a["gradient"], b["gradient"], atol=1e-6)
    np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-6)


# ---------------------------------------------------------------------------------------- stumps


def test_in_the_limit_the_likelihood_of_a_stump_is_its_information_gain():
    """Equation 19: at a split without softness, what is maximised is the information gain."""
    rng = np.random.default_rng(0)
    case = Case(14, n=300, n_splits=1)
    weight, label = case.weight[case.trains], case.target[case.trains]
    root = oracles.entropy_of_leaves(np.zeros(len(label)), label, weight)
    gains, likelihoods = [], []
    for _ in range(20):
        W, threshold = rng.normal(size=(1, 5)).astype(np.float32), np.float32(rng.normal(size=1))
        trainer = case.with_leaves(1e7, W=W, threshold=threshold)
        likelihoods.append(-trainer.evaluate(1e7)["loss"])
        leaf = case.X[case.trains] @ W[0] > threshold
        gains.append(root - oracles.entropy_of_leaves(leaf, label, weight))
    np.testing.assert_allclose(np.add(likelihoods, root), gains, atol=1e-5)
    assert np.argmax(likelihoods) == np.argmax(gains)


def stump_splitter(X, target, weight=None, places=None, n_used=None, epochs=15, **options):
    p = X.shape[1]
    places = np.arange(p, dtype=np.int32)[None] if places is None else places
    unit = np.where(X.std(axis=0) > 0, 1 / np.maximum(X.std(axis=0), 1e-9), 0).astype(np.float32)
    mean = X.mean(axis=0).astype(np.float32)
    own = {
        "units": Units(mean, unit, places, n_used or places.shape[1], NO_EDGES),
        "annealing": Annealing(epochs, 0, 0.02, 1000, 1.0, 0.1),
        "min_batches": 10,
        "smoothness": 0.0,
    }
    return make_splitter(X, target, weight, kind=SoftSplitter, **own, **options)


def grown(X, target, weight=None, depth=3, **options):
    splitter = stump_splitter(X, target, weight, **options)
    return Grower(splitter, depth, 2, 0.0, 0).grow() | splitter.directions()


@pytest.mark.parametrize("seed", range(5))
def test_a_stump_finds_the_plane_between_two_classes(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(400, 4)).astype(np.float32)
    direction = rng.normal(size=4)
    y = (X @ direction > 0.3).astype(int)
    tree = grown(X, y, depth=1, criterion="entropy", epochs=40)
    found = tree["dense"][0] @ direction
    cosine = abs(found) / np.linalg.norm(tree["dense"][0]) / np.linalg.norm(direction)
    assert cosine > 0.97
    entropy = oracles.entropy_of_leaves(np.zeros(400), y, np.ones(400)) * 400 / np.log(2)
    assert tree["gain"][0] > 0.85 * entropy


def test_a_split_has_the_features_of_one_place():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 12)).astype(np.float32)
    y = rng.integers(3, size=300)
    places = FeatureGrid((3, 4), 12).receptive_fields((2, 2))
    assert places.tolist()[:2] == [[0, 1, 4, 5], [1, 2, 5, 6]] and len(places) == 6
    tree = grown(X, y, places=places, depth=5)
    used = [set(np.flatnonzero(row)) for row in tree["dense"]]
    assert all(each in map(set, places.tolist()) for each in used)
    assert len({tuple(sorted(each)) for each in used}) == 6


def test_random_features_are_drawn_evenly_for_every_split():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2000, 10)).astype(np.float32)
    y = rng.integers(3, size=2000)
    tree = grown(X, y, n_used=4, depth=9, epochs=1)
    used = tree["dense"] != 0
    assert (used.sum(axis=1) == 4).all() and len(used) > 100
    share = used.mean(axis=0)
    # Each with probability 0.4: within four deviations.
    assert np.abs(share - 0.4).max() < 4 * np.sqrt(0.4 * 0.6 / len(used))


def test_nodes_that_cannot_be_split_are_leaves():
    X = np.ones((10, 3), dtype=np.float32)
    assert len(grown(X, np.arange(10) % 2)["threshold"]) == 0
    X[:, 1] = np.arange(10)
    assert len(grown(X, np.zeros(10, dtype=int))["threshold"]) == 0
    tree = grown(X, np.arange(10) % 2, min_samples_leaf=5, depth=3)
    assert len(tree["threshold"]) <= 1
    assert tree["node_weight"].min() >= 5


def test_rows_that_lie_close_are_separated():
    """Where the first stump fails, the next sees the node in units of its own."""
    X = np.random.default_rng(4).random((2000, 2)).astype(np.float32)
    X = np.repeat(X, 2, axis=0)
    X[::2, 0] += 1e-5
    tree = grown(X, np.tile([0, 1], 2000), depth=60)
    assert (tree["child"] < 0).sum() > 3500


def test_features_are_drawn_until_one_of_them_varies():
    rng = np.random.default_rng(0)
    X = np.zeros((200, 40), dtype=np.float32)
    X[:, 7] = rng.normal(size=200)
    X[:, 8] = rng.normal(size=200) * (X[:, 7] > 0)  # 0 in one half
    for seed in range(10):
        y = (X[:, 7] > 0).astype(int) + (X[:, 8] > 0)
        tree = grown(X, y, n_used=2, seed=seed)
        assert len(tree["threshold"]) >= 2


@pytest.mark.parametrize("cls", CLASSES)
def test_what_does_not_vary_is_no_choice(cls):
    rng = np.random.default_rng(0)
    X = np.zeros((200, 100))
    X[:, 7] = rng.normal(size=200)
    forest = cls(20, random_state=0).fit(X, (X[:, 7] > 0).astype(int)).forest_
    assert (forest.n_leaves > 1).all()
    images = np.zeros((200, 10, 10))
    images[:, 4:6, 4:6] = rng.normal(size=(200, 2, 2))
    y = (images.sum(axis=(1, 2)) > 0).astype(int)
    model = cls(20, feature_shape=(10, 10), patch_size=3, random_state=0).fit(images, y)
    assert (model.forest_.n_leaves > 1).all() and model.max_features_ == 9
    assert (cls(3, random_state=0).fit(0 * X, y).forest_.n_leaves == 1).all()


def test_rows_of_nearly_no_weight_do_no_harm():
    X, y = make_classification(300, random_state=1)
    weight = np.ones(300)
    weight[100:] = 1e-40
    model = made(E2EDecisionForest, 3, batch_size=8, random_state=0).fit(X, y, weight)
    assert (model.forest_.n_leaves > 1).all() and model.score(X[:100], y[:100]) > 0.9


def test_no_weight_falls_on_features_that_do_not_vary():
    X = np.random.default_rng(3).normal(size=(100, 4)).astype(np.float32)
    X[:, 2] = 7
    tree = grown(X, (X[:, 0] > 0).astype(int))
    assert (tree["dense"][:, 2] == 0).all() and (tree["dense"][:, 0] != 0).any()


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
    greedy, joint = (
        cls(1, max_depth=4, finetune_epochs=epochs, random_state=0).fit(X, y) for epochs in (0, 20)
    )
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
    model = cls(2, min_samples_leaf=0.1, random_state=0).fit(X, y)
    assert model.forest_.node_weight.min() >= 0.1 * len(X)


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
    assert resolved == ((8, 15, 8) if cls is E2EDecisionForest else (10, 30, 8))
    assert model.batch_size_ <= len(X) and model.learning_rate_ > 0
    assert model.finetune_epochs_ > 0
    assert (model.n_estimators_, model.steepness_step_) == (1, 0.1)
    two = cls(2, max_depth=2).fit(X, y)
    assert two.steepness_step_ == 0.2
    for own in (model, two):
        assert own.learning_rate_ == pytest.approx(min(0.05, 0.13 / own.max_features_**0.7))
    grid = cls(3, feature_shape=(2, 4), **quick).fit(X.reshape(-1, 2, 4).tolist(), y)
    assert (grid.max_features_, grid.steepness_step_) == (4, 0.1)
    best = cls(1, max_leaf_nodes=5, **quick).fit(X, y)
    assert best.max_depth_ is None
    few = cls(max_depth=2, **quick).fit(X[:200], y[:200])
    assert few.n_estimators_ == len(cls(**quick).fit(X, y).forest_)
    procedure = E2EProcedure(batch_size=50, learning_rate=0.5)
    given = cls(1, max_depth=3, greedy_epochs=2, procedure=procedure).fit(X, y)
    assert (given.max_depth_, given.batch_size_) == (3, 50)
    assert (given.learning_rate_, given.greedy_epochs_) == (0.5, 2)


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


def test_trees_that_grow_are_not_added_to_complete_trees_without_greedy_epochs():
    X, y = data(E2EDecisionForest)
    own = {"max_depth": 3, "warm_start": True, "random_state": 0}
    model = E2EDecisionForest(2, procedure=E2EProcedure(growth="complete"), **own).fit(X, y)
    assert len(model.set_params(n_estimators=3).fit(X, y).forest_) == 3
    with pytest.raises(ValueError, match="greedy_epochs, finetune_epochs and the procedure now"):
        model.set_params(n_estimators=4, procedure__growth="greedy").fit(X, y)


def test_training_does_not_depend_on_routing():
    X, y = data(E2EDecisionForest, 1500)
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


# --------------------------------------------------------------------------------- early stopping


@pytest.mark.parametrize("cls", CLASSES)
def test_early_stopping_keeps_the_splits_of_the_best_epoch(cls):
    X, y = data(cls)
    own = {"max_depth": 4, "early_stopping": True, "validation_fraction": 0.3, "random_state": 0}
    stopped = made(cls, 1, finetune_epochs=60, n_iter_no_change=4, **own).fit(X, y)
    scores = stopped.validation_scores_[0]
    assert len(scores) == len(stopped.loss_curve_[0]) == stopped.n_iter_[0] < 60
    assert scores.argmax() <= len(scores) - 4 and (scores < 0).all()
    # Later epochs change nothing if the best one comes first.
    longer = made(cls, 1, finetune_epochs=60, n_iter_no_change=1000, **own).fit(X, y)
    later = longer.validation_scores_[0]
    np.testing.assert_array_equal(later[: len(scores)], scores)
    if later.argmax() == scores.argmax():
        assert_same_trees(longer, stopped)
    assert longer.n_iter_ == [60]


@pytest.mark.parametrize("cls", CLASSES)
def test_validation_scores_are_those_of_soft_routing(cls, monkeypatch):
    """With leaves from the rows that train; all trees have the last steepness of the forest."""
    X, y = data(cls)
    masks = []

    def recorded(*given):
        masks.append(validation_mask(*given))
        return masks[-1]

    monkeypatch.setattr(training, "validation_mask", recorded)
    own = {"max_depth": 3, "routing": "soft", "early_stopping": True, "n_iter_no_change": 1000}
    weight = np.random.default_rng(0).uniform(0.2, 3, len(X))
    model = made(cls, 1, validation_fraction=0.25, random_state=0, **own).fit(X, y, weight)
    assert masks[0].sum() == 100
    assert model.forest_.node_weight[0] == pytest.approx(weight.sum())
    rows = TrainingSet(model.forest_.map_features(X), y.astype(float)[:, None], weight)
    train = rows.weight * ~masks[0]
    truth, target = rows.y, rows.y - model.forest_.baseline
    if cls is E2EDecisionForest:
        truth, target = np.eye(3)[rows.y[:, 0].astype(int)], rows.y[:, 0].astype(np.int32)
    tree = recount(model.forest_, make_training_set(rows.X, target, train), model._criterion)
    error = np.square(tree.response_mapped(rows.X) - truth)[masks[0]].sum(axis=1)
    error = np.average(error, weights=rows.weight[masks[0]])
    assert -model.validation_scores_[0].max() == pytest.approx(error, rel=1e-5)


def test_training_stops_after_exactly_so_many_epochs_without_progress():
    losses = [3.0, 2.0, 2.0 - 1e-5, 2.5, 1.9, 1.95, 1.9, 1.8999]
    stopping = EarlyStopping(np.array([False, True]), 3)
    stops = [stopping.should_stop(loss, number) for number, loss in enumerate(losses)]
    assert stops == [False] * 7 + [True]  # less than a ten thousandth is no progress
    assert stopping.best == 7 and stopping.scores == [-loss for loss in losses]
    once = EarlyStopping(np.array([True]), 1)
    assert [once.should_stop(loss, None) for loss in (1.0, 0.5, 0.5)] == [False, False, True]


@pytest.mark.parametrize("cls", CLASSES)
def test_early_stopping_depends_neither_on_threads_nor_on_the_order_of_rows(cls):
    X, y = data(cls)
    k = np.random.default_rng(0).integers(0, 4, len(X))
    own = {"max_depth": 4, "early_stopping": True, "bootstrap": True, "random_state": 0}
    model = made(cls, 3, **own).fit(X, y, k)
    order = np.random.default_rng(1).permutation(k.sum())
    copies = made(cls, 3, n_jobs=2, **own)
    copies.fit(np.repeat(X, k, 0)[order], np.repeat(y, k)[order])
    assert_same_trees(model, copies)
    for one, other in zip(model.validation_scores_, copies.validation_scores_):
        np.testing.assert_array_equal(one, other)
    steps = made(cls, 2, warm_start=True, **own).fit(X, y, k)
    assert_same_trees(model, steps.set_params(n_estimators=3).fit(X, y, k))
    assert len(steps.validation_scores_) == 3


@pytest.mark.parametrize("cls", CLASSES)
def test_where_early_stopping_has_no_effect(cls):
    X, y = data(cls)
    own = {"max_depth": 3, "random_state": 0}
    plain = cls(2, **own).fit(X, y)
    assert [len(scores) for scores in plain.validation_scores_] == [0, 0]
    without = E2EProcedure(validation_fraction=0.5, n_iter_no_change=1)
    assert_same_trees(plain, cls(2, procedure=without, **own).fit(X, y))
    own |= {"finetune_epochs": 0}
    grown = cls(2, **own).fit(X, y)
    assert_same_trees(grown, made(cls, 2, early_stopping=True, **own).fit(X, y))


@pytest.mark.parametrize("cls", CLASSES)
def test_validation_fraction_must_leave_rows_to_train_on(cls):
    model = made(cls, 1, early_stopping=True, validation_fraction=0.99)
    with pytest.raises(ValueError, match="validation_fraction=0.99.*none of the 2 distinct rows"):
        model.fit([[0.0], [1.0]], [0, 1])
    assert model.fit([[0.0], [0.0]], [1, 1]).validation_scores_[0].shape == (0,)


def test_early_stopping_ignores_noise():
    X, y = make_classification(1500, 10, n_informative=5, flip_y=0.2, n_classes=3, random_state=0)
    plain, stopped = (
        made(
            E2EDecisionForest,
            4,
            max_features=None,
            early_stopping=early_stopping,
            random_state=0,
        )
        .fit(X[:700], y[:700])
        .score(X[700:], y[700:])
        for early_stopping in (False, True)
    )
    assert stopped > plain


def test_one_steepness_holds_for_all_trees():
    """Dividing the hyperplanes by a factor is the same as a steepness that is lower by it."""
    annealing = Annealing(2, 4, 0.1, 10, 1.0, 0.5)
    W, threshold = np.ones((2, 3), dtype=np.float32), np.float32([1, -2])
    for n_epochs, factor in ((4, 1.0), (1, 2.5 / 4), (0, 0.5)):
        scaled = annealing.at_final_steepness(W, threshold, n_epochs)
        np.testing.assert_allclose(scaled[0], factor * W)
        np.testing.assert_allclose(scaled[1], factor * threshold)


def test_epochs_without_progress_are_counted():
    stopping = EarlyStopping(np.array([False, True]), 2)
    assert stopping.rows.tolist() == [1]
    losses = [3.0, 2.0, 2.0, 1.0, 1 - 1e-6, np.nan]
    stops = [stopping.should_stop(loss, number) for number, loss in enumerate(losses)]
    assert stops == [False, False, False, False, False, True]
    assert stopping.best == 4 and stopping.scores[:3] == [-3.0, -2.0, -2.0]
