"""End-to-end trees: kernels of the E-step, gradients, steps and stumps against definitions."""

from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from forests import (
    KernelTrainingSet,
    as_kernel_input,
    make_splitter,
    make_training_set,
    random_children,
)
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed, made
from skforest._kernels.endtoend.hyperplane import SoftSplitter
from skforest._kernels.endtoend.trainer import SoftTrainer
from skforest._kernels.search.grow import Grower
from sklearn.datasets import make_classification

from skforest import E2EDecisionForest, Forest
from skforest.forest.edit import DenseTree
from skforest.table.feature_grid import FeatureGrid
from skforest.table.training_set import TrainingSet
from skforest.training.endtoend import Annealing, Units, _merge_small_leaves, shared_units

NEVER = np.zeros(1, dtype=np.uint8)

NO_EDGES = np.zeros((0, 2), dtype=np.int32)


def soft_options(mean, unit, edges=NO_EDGES, batch_size=1000, smoothness=0.0, dropout=0.0):
    """What `SoftTrainer` reads of `SoftOptions`."""
    units, annealing = Units(mean, unit, None, 0, edges), SimpleNamespace(batch_size=batch_size)
    given = {"smoothness": smoothness, "feature_dropout": dropout}
    return SimpleNamespace(units=units, annealing=annealing, **given)


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

    def trainer(self, engine="products", batch_size=1000, edges=NO_EDGES, dropout=0.0, **new):
        own = {**self.__dict__, **new}
        smoothness = new.get("smoothness", 0.0)
        rows = KernelTrainingSet(self.X, self.target, own["weight"], self.n_outputs)
        tree = DenseTree(self.child, own["W"], own["threshold"])
        options = soft_options(self.mean, self.unit, edges, batch_size, smoothness, dropout)
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


@pytest.mark.parametrize("most", [1, 7, 39, 1000])
def test_active_leaves_are_those_of_steep_gates(most):
    for seed in range(5):
        case = Case(seed)
        rows = reach_of(case, 1e6)
        seen = rows[:: -(-len(rows) // most)] > 0.5
        assert case.trainer().n_active_leaves(most) == seen.any(axis=0).sum() > 0


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


def test_a_variance_is_at_least_a_hundredth_of_that_of_all_rows():
    case = Case(0, n=60, n_splits=1, n_outputs=1, real=True)
    case.W, case.threshold = np.eye(1, 5, dtype=np.float32), np.zeros(1, dtype=np.float32)
    case.mean, case.unit = np.zeros(5, dtype=np.float32), np.ones(5, dtype=np.float32)
    case.target = np.sign(case.X[:, :1]).astype(float)
    case.weight = np.where(case.target[:, 0] > 0, 9.0, 1.0)
    trainer = case.trainer()
    trainer.evaluate(1e4)
    trainer.update_leaves()
    mean = np.average(case.target[:, 0], weights=case.weight)
    np.testing.assert_allclose(trainer.leaf_values[0][:, 0], [-1, 1], atol=1e-3)
    np.testing.assert_allclose(trainer.leaf_values[1], 0.01 * (1 - mean**2), rtol=1e-5)


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


class Words:
    """The random stream of a `SoftTrainer` with the seed 0: splitmix64."""

    def __init__(self):
        self.state = 0
        next(self)
        self.state ^= 0x452821E638D01377

    def __next__(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return z ^ (z >> 31)

    def shuffle(self, items):
        for i in range(len(items) - 1, 0, -1):
            other = (next(self) >> 32) * (i + 1) >> 32
            items[i], items[other] = items[other], items[i]


@pytest.mark.parametrize("engine", ["lists", "products"])
@pytest.mark.parametrize("p, n_splits, share", [(5, 6, 0.25), (9, 3, 0.7), (16, 1, 0.02)])
def test_dropped_features_have_their_means_in_the_steps_of_one_epoch(engine, p, n_splits, share):
    """The same bits as on rows with these means; a rate of 0 drops nothing."""
    case, words = Case(2, p=p, n_splits=n_splits), Words()
    trainer = case.trainer(engine, 7, dropout=share)
    case.X = case.X.copy()
    other = case.trainer(engine, 7)
    assert trainer.run(1.0, 0.0) == other.run(1.0, 0.0)
    order = list(range(case.trains.sum()))
    words.shuffle(order)
    words.shuffle(order)
    noise = np.array([[next(words) for _ in range(-(-p // 8))] for _ in order], dtype=np.uint64)
    is_dropped = noise.view(np.uint8)[:, :p] < np.ceil(256 * share)
    assert 0 < is_dropped.sum() < is_dropped.size
    rows = np.flatnonzero(case.trains)[order]
    case.X[rows] = np.where(is_dropped, case.mean, case.X[rows])
    assert trainer.run(1.0, 0.1) == other.run(1.0, 0.1)
    for one, two in zip(trainer.planes(), other.planes()):
        np.testing.assert_array_equal(one, two)


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


@pytest.mark.parametrize("n_used, fields", [(2, [[0, 1, 2]]), (4, [[0, 1, 2, 3]])])
def test_units_of_columns_are_limited_and_constant_columns_are_left_out(n_used, fields):
    """A column that varies little is not amplified to more than 0.3 of the largest deviation."""
    X = np.random.default_rng(0).uniform(size=(60, 4)) * [1, 0.5, 0.1, 0] + 3
    data = TrainingSet(X.astype(np.float32), np.zeros((60, 1)), np.arange(60) % 3 + 1.0)
    settings = SimpleNamespace(
        max_features=n_used, feature_shape=None, smoothness=0.0, patch_size=None
    )
    units, deviation = shared_units(data, settings), data.deviation()
    limited = np.maximum(deviation[:3], 0.3 * deviation[0])
    np.testing.assert_allclose(units.unit, [*1 / limited, 0], rtol=1e-6)
    assert deviation[1] == limited[1] and deviation[2] < limited[2]
    np.testing.assert_array_equal(units.receptive_fields, fields)
    assert units.n_used == n_used
    few = TrainingSet(np.where([1, 1, 0, 0], data.X, 7), data.y, data.weight)
    settings.max_features = 3
    assert shared_units(few, settings).n_used == 2
    # Patches of pixels, in one unit; those with a constant pixel stay.
    few.feature_map = SimpleNamespace(scale_per_feature=lambda: np.ones(4), is_scaling=True)
    settings.feature_shape, settings.patch_size = (4,), (2,)
    units = shared_units(few, settings)
    np.testing.assert_array_equal(units.receptive_fields, [[0, 1], [1, 2]])
    np.testing.assert_allclose(units.unit, np.array([1, 1, 0, 0]) / few.deviation().max())


@pytest.mark.parametrize(
    "limits, sizes",
    [((2, 0.0), [2, 3, 5]), ((1, 1.0), [2, 3, 5]), ((3, 0.0), [5, 5]), ((1, 1.1), [5, 5])],
)
def test_leaves_below_a_limit_are_merged_with_their_siblings(limits, sizes):
    """Leaves of 2, 3, 4 and 1 rows of weight 1/2: one that is as large as a limit stays."""
    arrays = {
        "tree_start": [0, 7], "child": [1, 3, 5, -1, -2, -3, -4], "threshold": [4.5, 1.5, 8.5],
        "direction": [0, 0, 0], "value": np.zeros(4),
    }  # fmt: skip
    forest = Forest(arrays, n_features=1, n_outputs=1, task="regression")
    X = np.arange(10, dtype=np.float32)[:, None]
    data = make_training_set(X, X.astype(float), np.full(10, 0.5))
    names = "min_samples_leaf", "min_weight_leaf"
    options = SimpleNamespace(criterion="squared_error", **dict(zip(names, limits)))
    found = _merge_small_leaves(forest, data, options)
    assert sorted(2 * found.node_weight[found.child < 0]) == sizes
