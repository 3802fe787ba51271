"""Non-greedy trees: inference and steps of the kernel against plain definitions."""

from types import SimpleNamespace

import numpy as np
import oracles
import pytest
from forests import KernelTrainingSet
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed
from skforest._kernels.nongreedy.trainer import JointTrainer
from sklearn.exceptions import ConvergenceWarning

from skforest import NonGreedyProcedure, NonGreedyTreeClassifier
from skforest.forest.edit import DenseTree
from skforest.training import joint
from skforest.training.early_stopping import EarlyStopping
from skforest.training.joint import JointSettings, _Training


def full_tree(depth):
    """Children of a full binary tree, its leaves numbered from the left."""
    n_splits = 2**depth - 1
    child = np.concatenate([2 * np.arange(n_splits) + 1, -1 - np.arange(n_splits + 1)])
    return child.astype(np.int32)


def lopsided_tree(depth):
    """Children of a tree whose left children are leaves."""
    child = np.empty(2 * depth + 1, dtype=np.int32)
    node = leaf = 0
    for split in range(depth):
        child[node] = 2 * split + 1
        child[2 * split + 1] = -1 - leaf
        leaf, node = leaf + 1, 2 * split + 2
    child[node] = -1 - leaf
    return child


def problem(seed, depth=3, n=40, p=4, n_classes=3, lopsided=False):
    """A random tree over random rows; some rows equal, some weights 0."""
    rng = np.random.default_rng(seed)
    child = lopsided_tree(depth) if lopsided else full_tree(depth)
    n_splits = len(child) // 2
    X = rng.normal(size=(n, p)).round(1).astype(np.float32)
    X[1] = X[0]
    weight = rng.integers(0, 3, n).astype(float)
    weight[:2] = 1
    return {
        "X": X,
        "y": rng.integers(0, n_classes, n).astype(np.int32),
        "weight": weight,
        "child": child,
        "W": rng.normal(size=(n_splits, p)).astype(np.float32),
        "threshold": rng.normal(size=n_splits).astype(np.float32) / 2,
        "theta": rng.normal(size=(n_splits + 1, n_classes)) * 3,
    }


def leaves_of(theta):
    n_leaves, n_outputs = theta.shape
    start = np.arange(n_leaves + 1) * n_outputs
    label = np.tile(np.arange(n_outputs, dtype=np.int32), n_leaves)
    return start, label, theta.ravel().copy(), np.zeros(n_leaves)


def trainer(X, y, weight, child, W, threshold, theta, leaves=None, max_flips=1, **options):
    defaults = {"nu": 30.0, "momentum": 0.0, "batch_size": 1000}
    inference = "fast" if max_flips == 1 else "full"
    settings = JointSettings(inference=inference, **defaults | options)
    data = KernelTrainingSet(X, y, weight, theta.shape[1])
    stop, tree = np.zeros(1, dtype=np.uint8), DenseTree(child, W, threshold)
    return JointTrainer(data, settings, 0, stop, tree, leaves or leaves_of(theta))


def log_losses(theta, y):
    return (np.log(np.exp(theta).sum(axis=1, keepdims=True)) - theta)[:, y].T


# ------------------------------------------------------------------- loss-augmented inference


@pytest.mark.parametrize("lopsided", [False, True])
@given(st.integers(0, 2**32 - 1))
@fixed
def test_inference_is_that_of_trying_all_leaves(lopsided, seed):
    """Fast: the ball of radius 1. Full: every leaf, here of a tree of depth 3."""
    task = problem(seed, lopsided=lopsided)
    nu = 10 ** np.random.default_rng(seed).uniform(-3, 2)
    Z, W, b = oracles.joint_planes(
        task["X"].astype(float), task["weight"], task["W"], task["threshold"], nu
    )
    losses = log_losses(task["theta"], task["y"])
    for n_flips in (1, 3):
        bound, augmented, reached = trainer(**task, nu=nu, max_flips=n_flips).bounds()
        for i, margins in enumerate(Z @ W.T - b):
            expected, scores = oracles.joint_inference(task["child"], margins, losses[i], n_flips)
            assert bound[i] == pytest.approx(expected, rel=1e-4, abs=1e-4)
            assert scores[augmented[i]] == pytest.approx(expected, rel=1e-4, abs=1e-4)
            assert scores[reached[i]] == pytest.approx(losses[i, reached[i]])
            # The bound is above the loss, and more leaves make it no smaller.
            assert bound[i] >= losses[i, reached[i]] - 1e-9


@given(st.integers(0, 2**32 - 1))
@fixed
def test_inference_for_real_targets(seed):
    task = problem(seed, n_classes=2)
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(40, 2))
    task |= {"y": y, "theta": rng.normal(size=task["theta"].shape)}
    share = task["weight"] / task["weight"].sum()
    variance = share @ np.square(y - share @ y).sum(axis=1)
    losses = np.square(y[:, None] - task["theta"]).sum(axis=2) / variance
    Z, W, b = oracles.joint_planes(
        task["X"].astype(float), task["weight"], task["W"], task["threshold"], 1.0
    )
    bound, _, reached = trainer(**task, nu=1.0, max_flips=3).bounds()
    for i, margins in enumerate(Z @ W.T - b):
        expected, scores = oracles.joint_inference(task["child"], margins, losses[i], 3)
        assert bound[i] == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert scores[reached[i]] == pytest.approx(losses[i, reached[i]])


def test_with_long_weights_the_bound_is_the_loss():
    task = problem(0)
    losses = log_losses(task["theta"], task["y"])
    gaps = []
    for nu in (0.01, 1.0, 100.0, 1e8):
        bound, _, reached = trainer(**task, nu=nu, max_flips=3).bounds()
        gaps.append((bound - losses[np.arange(len(bound)), reached]).mean())
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 1
    assert gaps[-1] == pytest.approx(0, abs=1e-3)


# ------------------------------------------------------------------------------------ one step


@pytest.mark.parametrize("p", [15, 16, 17, 33, 81])
def test_one_step_of_any_width_is_that_of_the_definition(p):
    test_one_step_is_that_of_the_definition(p, 1, False, p)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("n_flips", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_one_step_is_that_of_the_definition(seed, n_flips, stable, p=4):
    task = problem(seed, p=p)
    model = trainer(**task, nu=3.0, max_flips=n_flips, stable=stable)
    W0, t0 = model.planes()
    Z, W, b = oracles.joint_planes(
        task["X"].astype(float), task["weight"], task["W"], task["threshold"], 3.0
    )
    assigned = None
    if stable:
        assigned = model.assign()
        # Assignments that the first step has left behind are kept by the second.
        model.epoch(0.2)
    rows = task["weight"] > 0
    weight = task["weight"][rows] / task["weight"][rows].mean()
    theta, y = task["theta"], task["y"][rows]
    for _ in range(1 + stable):
        W, b, theta = oracles.joint_step(
            task["child"], Z[rows], y, weight, W, b, theta, 0.2, 3.0, 0.0, n_flips,
            assigned[rows] if stable else None,
        )  # fmt: skip
    model.epoch(0.2)
    found, threshold = model.planes()
    assert np.abs(found - W0).max() > 1e-2
    np.testing.assert_allclose(found, W, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(model.parameters[2].reshape(theta.shape), theta, rtol=1e-6)
    expected = trainer(**(task | {"W": np.float32(W), "threshold": threshold}), nu=1e-9)
    np.testing.assert_array_equal(expected.assign(), model.assign())


def moved(theta, rate, *args, **options):
    """Change of the parameters of the leaves in one epoch."""
    model = trainer(*args, theta, **options)
    model.epoch(rate)
    return model.parameters[2].reshape(theta.shape) - theta


def test_leaves_keep_pace_with_the_momentum_of_splits():
    task = problem(1)
    theta = task.pop("theta")
    plain, fast = (moved(theta, 0.1, *task.values(), momentum=m) for m in (0.0, 0.75))
    assert np.abs(plain).max() > 1e-3
    np.testing.assert_allclose(fast, 4 * plain, rtol=1e-6, atol=1e-9)


def test_a_row_of_large_weight_makes_no_longer_step():
    """Each row is a batch. With the weights 3 and 1, the light one makes half of a step."""
    X, y, theta = np.float32([[-1], [1]]), np.int32([0, 1]), np.zeros((2, 3))
    tree = full_tree(1), np.ones((1, 1), dtype=np.float32), np.zeros(1, dtype=np.float32)
    options = {"batch_size": 1, "row_norm": None, "rescale_splits": False}
    equal, uneven = (
        moved(theta, 0.01, X, y, np.array(weight), *tree, **options)
        for weight in ([1.0, 1.0], [3.0, 1.0])
    )
    assert (np.abs(equal) > 1e-3).all()
    np.testing.assert_allclose(uneven, equal * [[1], [0.5]], rtol=1e-6)


def test_no_step_moves_a_mean_beyond_the_targets():
    task = problem(2, n_classes=1) | {"y": np.random.default_rng(2).normal(size=(40, 1))}
    theta = np.clip(task.pop("theta"), *np.quantile(task["y"], [0.2, 0.8]))
    for rate in (1.0, 100.0):
        found = theta + moved(theta, rate, *task.values())
        assert task["y"].min() <= found.min() and found.max() <= task["y"].max()
    assert not np.array_equal(found, theta)


@pytest.mark.parametrize("seed", range(6))
def test_raw_rows_at_a_constant_rate_are_algorithm_1_as_printed(seed):
    """One row has weight, batches have one row, and there is no momentum."""
    task = problem(seed)
    row, rate, nu = 3, 0.1, 4.0
    task["weight"] = np.eye(len(task["X"]))[row]
    model = trainer(**task, row_norm=None, rescale_splits=False, nu=nu, batch_size=1, max_flips=3)
    start = np.column_stack([task["W"], task["threshold"]]).astype(float)
    start *= np.minimum(1, np.sqrt(nu) / np.linalg.norm(start, axis=1))[:, None]
    x = np.append(task["X"][row].astype(float), -1)
    W, theta = oracles.joint_algorithm(
        task["child"], x, task["y"][row], start, task["theta"], rate, nu, 12
    )
    for _ in range(12):
        model.epoch(rate)
    weights, threshold = model.planes()
    np.testing.assert_allclose(np.column_stack([weights, threshold]), W, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.parameters[2].reshape(theta.shape), theta, rtol=1e-6)
    assert not np.array_equal(theta, task["theta"])


def test_the_gradient_of_one_split_is_that_of_a_co2_stump():
    task = problem(1, depth=1)
    weight = task["weight"]
    model = trainer(**task, nu=4.0)
    before, _ = model.planes()
    Z, W, b = oracles.joint_planes(
        task["X"].astype(float), weight, task["W"], task["threshold"], 4.0
    )
    l0, l1 = log_losses(task["theta"], task["y"]).T
    margin = Z @ W[0] - b[0]
    slope = oracles.co2_slope(margin, l1 - l0, "co2")
    bound = model.bounds()[0]
    np.testing.assert_allclose(bound, oracles.co2_bound(margin, l0, l1), rtol=1e-4, atol=1e-4)
    model.epoch(1e-3)
    gradient = (weight * slope) @ Z / weight.sum()
    assert np.abs(gradient).max() > 0.1
    # The step may end outside of the ball: compare what is at right angles to the weights.
    full = np.append(W[0] - 1e-3 * gradient, b[0] + 1e-3 * (weight * slope).sum() / weight.sum())
    full *= min(1, 2 / np.linalg.norm(full))
    np.testing.assert_allclose(model.planes()[0][0], full[:-1], rtol=1e-4)


@pytest.mark.parametrize("seed", range(5))
def test_a_small_step_lowers_the_bound(seed):
    task = problem(seed, n=200)
    model = trainer(**task, nu=10.0)
    weight = task["weight"] / task["weight"].sum()
    values = [weight @ model.bounds()[0]]
    for _ in range(10):
        model.epoch(1e-3)
        values.append(weight @ model.bounds()[0])
    assert (np.diff(values) <= 1e-6).all()
    assert values[-1] < values[0]


def test_classes_that_a_leaf_does_not_list_share_a_parameter():
    """With the shared parameter where the others are, nothing else changes."""
    task = problem(3, n_classes=6)
    theta = task["theta"].copy()
    theta[:, 3:] = theta[:, 3:4]
    task["theta"] = theta
    n_leaves = len(theta)
    start = np.arange(n_leaves + 1) * 3
    label = np.tile(np.arange(3, dtype=np.int32), n_leaves)
    short = (start, label, theta[:, :3].ravel().copy(), theta[:, 3].copy())
    listed, shared = trainer(**task), trainer(**task, leaves=short)
    for one, other in zip(listed.bounds(), shared.bounds()):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    rows = np.arange(len(task["X"]))
    np.testing.assert_allclose(listed.losses(rows), shared.losses(rows), rtol=1e-12)
    # The derivative of a shared parameter is the sum of those of its classes.
    listed.epoch(0.5), shared.epoch(0.5)
    step = listed.parameters[2].reshape(theta.shape) - theta
    assert (np.abs(step[:, 3:]).max(axis=1) > 1e-3).sum() > 2
    np.testing.assert_allclose(shared.parameters[3], theta[:, 3] + step[:, 3:].sum(axis=1))
    np.testing.assert_allclose(shared.parameters[2].reshape(-1, 3), theta[:, :3] + step[:, :3])


def test_no_row_trains_that_has_no_weight():
    task = problem(5)
    other = {**task, "X": task["X"].copy(), "y": task["y"].copy()}
    out = task["weight"] == 0
    other["X"][out] += 100
    other["y"][out] = 0
    one, two = trainer(**task, batch_size=7), trainer(**other, batch_size=7)
    for rate in (0.3, 0.1):
        assert one.epoch(rate) == two.epoch(rate)
    np.testing.assert_array_equal(one.planes()[0], two.planes()[0])


def test_stable_assignments_are_renewed_when_the_bound_hardly_decreases():
    bounds, renewed, rates = [10.0, 9.0, 8.95, 8.0, 7.95, 7.94], [], []
    training = object.__new__(_Training)

    class Trainer:
        def epoch(self, rate):
            rates.append(rate)
            return bounds[len(rates) - 1]

        def assign(self):
            renewed.append(len(rates))

    training.settings = JointSettings(stable=True, n_epochs=6, learning_rate=0.6)
    training.trainer, training.stop, training.loss_curve = Trainer(), np.zeros(1), []
    training.lists_all_classes, training.stopping = True, EarlyStopping(np.zeros(9, bool), 5)
    training.run()
    # After a renewal, the next bound is compared with none.
    assert renewed == [3, 5] and training.loss_curve == bounds
    np.testing.assert_allclose(rates, [0.6, 0.5, 0.4, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_two_thirds_of_the_gain_over_a_constant_must_be_kept(scale, monkeypatch):
    """Losses of the trees are given; those of the constant are weighted means."""
    monkeypatch.setattr(joint, "route", lambda *args: None)
    monkeypatch.setattr(joint, "tree_loss", lambda loss, *args: loss)
    rng = np.random.default_rng(0)
    weight = rng.exponential(size=30) * (np.arange(30) % 4 > 0)
    labels, target = rng.choice(3, 30, p=[0.1, 0.6, 0.3]), rng.normal(size=(30, 2)) + [3, 0]
    deviation = target - weight @ target / weight.sum()
    constants = {
        1 - np.bincount(labels, weight).max() / weight.sum(): (labels.astype(np.int32), 3),
        scale**2 * (weight @ deviation**2).mean() / weight.sum(): (target, 2),
    }
    for constant, (y, n_outputs) in constants.items():
        data = KernelTrainingSet(np.zeros((30, 1)), y, weight, n_outputs, scale)
        for old in (0.0, constant / 3):
            limit = old + 0.35 * (constant - old)
            kept = [
                joint._has_kept_its_gain(old, loss, data, None)
                for loss in (0.999 * limit, 1.001 * limit)
            ]
            assert kept == [True, False]


def test_training_that_loses_the_tree_returns_the_grown_tree():
    """Many classes close to one another, and weights too short to tell them apart."""
    X, y = np.arange(400.0)[:, None], np.arange(400) // 2
    model = NonGreedyTreeClassifier(
        nu=1e-3, random_state=0, procedure=NonGreedyProcedure(smoothing=1.0)
    )
    with pytest.warns(ConvergenceWarning, match="nu=0.001 lost more than a third"):
        model.fit(X, y)
    assert model.score(X, y) == 1
    assert len(model.loss_curve_) == 30


def test_training_that_loses_half_of_the_tree_returns_the_grown_tree():
    """Ten intervals of one column need steeper splits than a small norm permits."""
    X = np.random.default_rng(0).uniform(0, 3, size=(600, 1))
    y = np.sin(10 * X[:, 0]) > 0
    with pytest.warns(ConvergenceWarning, match="lost more than a third"):
        model = NonGreedyTreeClassifier(random_state=0).fit(X[:400], y[:400])
    assert model.score(X[400:], y[400:]) > 0.95


@pytest.mark.parametrize(
    "n_rows, n_epochs", [(20_000, 30), (40_000, 25), (100_001, 10), (999, 30)]
)
def test_the_number_of_epochs_depends_on_the_rows_that_train(n_rows, n_epochs):
    training, done = object.__new__(_Training), []
    training.settings, training.stop, training.loss_curve = JointSettings(), np.zeros(1), []
    training.weight = np.append(np.ones(n_rows), np.zeros(50_000))  # rows that are held out
    training.trainer = SimpleNamespace(epoch=lambda rate: done.append(rate) or 1.0)
    training.lists_all_classes, training.stopping = True, EarlyStopping(np.zeros(9, bool), 5)
    training.run()
    assert len(done) == n_epochs


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weights_stay_in_the_ball_and_l1_makes_zeros(momentum):
    task = problem(6, n=300, p=30)
    norms, zeros = [], []
    for l1 in (0.0, 0.03):
        model = trainer(**task, nu=5.0, batch_size=10, momentum=momentum, l1=l1)
        for _ in range(20):
            model.epoch(0.1)
        W, _ = model.planes()
        norms.append(np.square(W).sum(axis=1).max())
        zeros.append((W == 0).mean())
    assert max(norms) <= 5 * (1 + 1e-5)
    assert zeros[0] == 0
    assert 0.2 < zeros[1] < 1
