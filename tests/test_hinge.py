"""Floors 1, 2, 5 and 6, random hinge forests: losses, kernel, training, estimators."""

import copy

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed

from skforest._hinge import HingeTrainer, padded, padded_vector
from skforest._hinge_training import HingeSettings, new_arrays
from skforest._loss import (
    AbsoluteError,
    HuberLoss,
    LogLoss,
    PoissonLoss,
    QuantileLoss,
    SquaredError,
)

NEVER = np.zeros(1, dtype=np.uint8)
LOSSES = {
    "log": LogLoss(4),
    "smoothed": LogLoss(4, 0.2),
    "squared": SquaredError(4),
    "absolute": AbsoluteError(4),
    "huber": HuberLoss(4, 0.7),
    "quantile": QuantileLoss(4, 0.3),
    "poisson": PoissonLoss(4),
}


def targets_for(loss, rng, n):
    if loss.n_columns == 1:
        return rng.integers(loss.n_outputs, size=(n, 1)).astype(float)
    return rng.integers(0, 5, size=(n, loss.n_outputs)).astype(float)


# ------------------------------------------------------------------------------------------ losses


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_slopes_of_losses_are_finite_differences(loss):
    rng = np.random.default_rng(0)
    raw, y = rng.normal(size=(50, 4)), targets_for(loss, rng, 50)
    losses, slopes = loss.evaluate(raw, y)
    step = 1e-6
    for k in range(4):
        high, low = raw.copy(), raw.copy()
        high[:, k] += step
        low[:, k] -= step
        found = (loss.evaluate(high, y)[0] - loss.evaluate(low, y)[0]) / (2 * step)
        np.testing.assert_allclose(slopes[:, k], found, atol=1e-7)
    assert np.isfinite(losses).all()


def test_losses_as_defined():
    rng = np.random.default_rng(1)
    raw, label = rng.normal(size=(20, 4)), rng.integers(4, size=20)
    p = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
    share = 0.8 * oracles.one_hot(label, 4) + 0.05
    y, column = raw + rng.normal(size=(20, 4)), label[:, None].astype(float)
    d = abs(raw - y)
    expected = {
        "log": -np.log(p[np.arange(20), label]),
        "smoothed": -(share * np.log(p)).sum(axis=1),
        "squared": (d**2 / 2).sum(axis=1),
        "absolute": d.sum(axis=1),
        "huber": np.where(d < 0.7, d**2 / 2, 0.7 * (d - 0.35)).sum(axis=1),
        "quantile": np.where(raw > y, 0.7 * d, 0.3 * d).sum(axis=1),
        "poisson": (np.exp(raw) - y * raw).sum(axis=1),
    }
    for name, loss in LOSSES.items():
        found = loss.evaluate(raw, column if loss.n_columns == 1 else y)[0]
        np.testing.assert_allclose(found, expected[name], rtol=1e-12)


def test_log_loss_of_huge_responses_is_finite():
    losses, slopes = LogLoss(3).evaluate(np.array([[1e4, -1e4, 0.0]]), np.array([[1.0]]))
    assert losses[0] == pytest.approx(2e4)
    np.testing.assert_array_equal(slopes, [[1, -1, 0]])


# ------------------------------------------------------------------------------------------ kernel


def settings(**changes):
    own = {
        "n_trees": 7, "depth": 3, "fern": False, "n_linear": 5, "identity": False,
        "optimizer": "adam", "learning_rate": 0.01, "momentum": 0.9, "weight_decay": 0.0,
        "schedule": "constant", "dropout": 0.0, "batch_size": 24, "n_steps": 10,
        "validation_fraction": 0.0, "n_iter_no_change": 10,
    }  # fmt: skip
    return HingeSettings(**own | changes)


def trainer_of(how, n_columns, loss, seed=0, arrays=None):
    """A trainer as `train_hinge` makes it."""
    random = np.random.RandomState(seed)
    if arrays is None:
        arrays = new_arrays(how, n_columns, loss.n_outputs, np.ones(n_columns), random)
    return HingeTrainer(
        arrays, how.n_linear, how.depth, 0.5, how.fern, loss, how.optimizer, how.momentum,
        how.weight_decay, how.dropout, how.batch_size, seed, NEVER,
    )  # fmt: skip


def small_problem(how, loss, seed=0, n=24, n_columns=6):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n, n_columns)).astype(np.float32)
    target = targets_for(loss, rng, n)
    trainer = trainer_of(how, n_columns, loss, seed)
    trainer.feed(table, target, np.ones(n))
    trainer.begin(n)
    return trainer, table, target


STRUCTURES = [
    {},
    {"fern": True},
    {"identity": True},
    {"identity": True, "n_linear": 0},
    {"depth": 1},
    {"depth": 6, "n_trees": 3},
    {"n_linear": 40, "fern": True, "depth": 5},
]


@pytest.mark.parametrize("change", STRUCTURES, ids=str)
@pytest.mark.parametrize("n_outputs", [1, 2, 3, 7, 16, 26])
def test_response_is_that_of_the_definition(change, n_outputs):
    how, loss = settings(**change), SquaredError(n_outputs)
    trainer, table, _ = small_problem(how, loss, n=37)
    trainer.run(np.full(5, 0.05))
    found = trainer.respond(table)
    expected = oracles.hinge_response(trainer.arrays, how.n_linear, how.depth, how.fern, table)
    np.testing.assert_allclose(found, expected[:, :n_outputs], rtol=1e-4, atol=1e-5)


@fixed
@given(seed=st.integers(0, 2**31), fern=st.booleans(), depth=st.integers(1, 5))
def test_ties_and_whole_numbers_give_the_definition_exactly(seed, fern, depth):
    """Whole numbers are exact in float32: margins tie, are 0, and rows repeat."""
    rng = np.random.default_rng(seed)
    how = settings(n_linear=0, identity=True, fern=fern, depth=depth)
    loss = SquaredError(2)
    table = rng.integers(-2, 3, size=(19, 3)).astype(np.float32)
    trainer = trainer_of(how, 3, loss, seed % 2**32)
    arrays = trainer.arrays
    threshold = rng.integers(-2, 3, size=arrays["tests"].shape[:2]).astype(np.float32)
    arrays["tests"][:, :, 0] = threshold.view(np.int32)
    n_leaves = arrays["leaf"].size
    arrays["leaf"][...] = rng.permutation(n_leaves).reshape(arrays["leaf"].shape)
    arrays["value"] = rng.integers(-4, 5, size=(n_leaves, 3, 2)).astype(np.float32)
    trainer = trainer_of(how, 3, loss, arrays=arrays)
    expected = oracles.hinge_response(arrays, 0, depth, fern, table)
    np.testing.assert_array_equal(trainer.respond(table), expected)
    target = rng.integers(-3, 4, size=(19, 2)).astype(float)
    slopes = (expected - target) / 19
    twin = oracles.hinge_gradients(arrays, 0, depth, fern, table, slopes)
    _, found = trainer.gradients(table, target)
    for name in ("tests", "value"):
        np.testing.assert_allclose(found[name], twin[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("change", STRUCTURES, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite_differences(change, name):
    """The twin against finite differences in float64, and the kernel against the twin."""
    how, loss = settings(**change), LOSSES[name]
    trainer, table, target = small_problem(how, loss)
    mean_loss, found = trainer.gradients(table, target)
    arrays = {key: array.copy() for key, array in trainer.arrays.items()}
    model = how.n_linear, how.depth, how.fern, table

    def total(arrays):
        return loss.evaluate(oracles.hinge_response(arrays, *model), target)[0].mean()

    slopes = loss.evaluate(oracles.hinge_response(arrays, *model), target)[1] / len(table)
    twin = oracles.hinge_gradients(arrays, *model, slopes)
    assert mean_loss == pytest.approx(total(arrays), rel=1e-5)
    for key, gradient in twin.items():
        np.testing.assert_allclose(found[key], gradient, rtol=1e-3, atol=2e-5, err_msg=key)
    rng = np.random.default_rng(1)
    for key in ("value", "direction"):
        arrays[key] = arrays[key].astype(float)
    for key, gradient in twin.items():
        flat = np.flatnonzero(gradient)
        for at in rng.choice(flat, min(12, len(flat)), replace=False):
            expected = finite_difference(total, arrays, key, np.unravel_index(at, gradient.shape))
            assert gradient.flat[at] == pytest.approx(expected, abs=1e-7, rel=1e-6), key


def finite_difference(total, arrays, key, at, step=1e-7):
    """Central difference by one parameter."""
    losses = []
    for sign in (1, -1):
        moved = dict(arrays)
        if key == "tests":
            key, arrays = "moved", arrays | {"moved": np.zeros(arrays["tests"].shape[:2])}
        place = (at[0], 0, at[1]) if key == "value" else at
        moved[key] = arrays[key].copy()
        moved[key][place] += sign * step
        losses.append(total(moved))
    return (losses[0] - losses[1]) / (2 * step)


@pytest.mark.parametrize("fern", [False, True])
@pytest.mark.parametrize("kind", ["adam", "adagrad", "sgd"])
def test_a_step_moves_what_the_batch_came_by_and_nothing_else(kind, fern):
    how, loss = settings(optimizer=kind, fern=fern, depth=5, batch_size=24), LogLoss(3)
    trainer, table, target = small_problem(how, loss)
    arrays = trainer.arrays
    for t in range(1, 4):
        _, gradient = trainer.gradients(table, target)
        before = {key: array.copy() for key, array in trainer.arrays.items()}
        trainer.run(np.array([0.03]))  # the batch is the whole table
        arrays = trainer.arrays
        tests = [oracles.hinge_tests(state)[0] for state in (before, arrays)]
        for name, old, new, m, v, g in (
            ("value", before["value"][:, 0], arrays["value"][:, 0], before["value"][:, 1],
             before["value"][:, 2], gradient["value"]),
            ("tests", *tests, before["tests_mean"], before["tests_power"], gradient["tests"]),
            ("direction", before["direction"], arrays["direction"], before["direction_mean"],
             before["direction_power"], gradient["direction"]),
        ):  # fmt: skip
            expected = oracles.optimizer_step(kind, t, *np.float64((old, m, v, g)), 0.03)[0]
            lazy = (g == 0) if name != "direction" else np.zeros(g.shape, dtype=bool)
            np.testing.assert_array_equal(new[lazy], old[lazy])
            # Adam divides by sizes: what is nearly 0 may turn.
            solid = ~lazy & (abs(g) > 1e-4)
            np.testing.assert_allclose(new[solid], expected[solid], rtol=1e-3, atol=3e-4)
            assert solid.any()


def test_weight_decay_takes_a_share_of_vectors_and_directions():
    how = settings(weight_decay=0.5, optimizer="sgd", momentum=0.0)
    trainer, table, target = small_problem(how, LogLoss(3))
    _, gradient = trainer.gradients(table, target)
    before = {key: array.copy() for key, array in trainer.arrays.items()}
    trainer.run(np.array([0.1]))
    expected = before["direction"] * (1 - 0.05) - 0.1 * gradient["direction"]
    np.testing.assert_allclose(trainer.arrays["direction"], expected, atol=1e-6)
    touched = abs(gradient["value"]).sum(axis=1) > 0
    expected = before["value"][:, 0] * (1 - 0.05) - 0.1 * gradient["value"]
    np.testing.assert_allclose(trainer.arrays["value"][touched, 0], expected[touched], atol=1e-6)


@pytest.mark.parametrize("n_steps", [1, 2, 150])
def test_running_statistics_in_closed_form(n_steps):
    """The mean of the first hundred batches; behind them, each batch counts a hundredth."""
    how = settings(batch_size=8, n_linear=3)
    trainer = trainer_of(how, 4, SquaredError(1))
    rng = np.random.default_rng(0)
    direction = trainer.arrays["direction"].astype(float)[:, :3]
    means, variances = [], []
    for _ in range(n_steps):
        table = (rng.normal(size=(8, 4)) * rng.uniform(0.5, 2) + rng.normal()).astype(np.float32)
        trainer.feed(table, np.zeros((8, 1)), np.ones(8))
        trainer.run(np.zeros(1))
        z = table @ direction
        means.append(z.mean(axis=0))
        variances.append(z.var(axis=0, ddof=1))
    late = max(0, n_steps - 100)
    share = np.full(n_steps, 0.99**late / (n_steps - late))
    share[n_steps - late :] = 0.01 * 0.99 ** np.arange(late)[::-1]
    assert share.sum() == pytest.approx(1)
    for name, batches in (("mean", means), ("variance", variances)):
        found = trainer.arrays[name][:3]
        np.testing.assert_allclose(found, share @ np.array(batches), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_a_tree_of_depth_1_is_a_fern_of_depth_1_bit_for_bit(optimizer):
    trained = []
    for fern in (False, True):
        how = settings(depth=1, fern=fern, optimizer=optimizer, batch_size=9, dropout=0.3)
        trainer, _, _ = small_problem(how, LogLoss(3), n=40)
        trainer.run(np.full(60, 0.05))
        trained.append(trainer.arrays)
    for name, array in trained[0].items():
        np.testing.assert_array_equal(array, trained[1][name], err_msg=name)


@pytest.mark.parametrize("c", [0.5, 4.0])
def test_scaled_features_and_thresholds_scale_the_output(c):
    how, loss = settings(n_linear=0, identity=True), SquaredError(2)
    trainer, table, _ = small_problem(how, loss)
    trainer.run(np.full(20, 0.05))
    arrays = copy.deepcopy(trainer.arrays)
    threshold = np.ascontiguousarray(arrays["tests"][:, :, 0]).view(np.float32) * np.float32(c)
    arrays["tests"][:, :, 0] = threshold.view(np.int32)
    arrays["variance"] /= c**2
    other = trainer_of(how, table.shape[1], loss, arrays=arrays)
    np.testing.assert_array_equal(other.respond(table), c * trainer.respond(table))


def test_rows_of_weight_zero_do_not_train_and_batches_follow_the_weights():
    """Features that only one kind of row has, watched by the running mean."""
    how, loss = settings(n_linear=4, batch_size=10), SquaredError(1)
    trainer = trainer_of(how, 2, loss)
    table = np.array([[1, 0], [0, 1], [100, 100]], dtype=np.float32)
    trainer.feed(table, np.zeros((3, 1)), np.array([1.0, 3.0, 0.0]))
    trainer.begin(4000)
    direction = trainer.arrays["direction"][:, :4]
    expected = 0.25 * direction[0] + 0.75 * direction[1]
    np.testing.assert_allclose(trainer.arrays["mean"][:4], expected, atol=0.02)


def test_leaves_have_vectors_once_rows_come_by():
    how, loss = settings(depth=8, n_trees=5), LogLoss(3)
    trainer, table, _ = small_problem(how, loss)
    assert (trainer.arrays["leaf"] < 0).all()
    trainer.run(np.full(3, 0.01))
    used = trainer.arrays["counts"][2]
    rows = trainer.arrays["leaf"][trainer.arrays["leaf"] >= 0]
    assert 5 <= used < 5 * 24 * 2
    np.testing.assert_array_equal(np.sort(rows), np.arange(used))


def test_training_stops_when_it_is_told_to():
    trainer, table, target = small_problem(settings(), LogLoss(3))
    stop = np.ones(1, dtype=np.uint8)
    how = settings()
    stopped = HingeTrainer(
        trainer.arrays, how.n_linear, how.depth, 0.5, how.fern, LogLoss(3), "adam", 0.9, 0.0,
        0.0, 24, 0, stop,
    )  # fmt: skip
    stopped.feed(table, target, np.ones(24))
    before = trainer.arrays["counts"][0]
    stopped.run(np.full(1000, 0.01))
    assert trainer.arrays["counts"][0] <= before + 1


@pytest.mark.parametrize("n, width", [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (16, 16), (17, 32)])
def test_widths_of_vectors(n, width):
    assert padded_vector(n) == width
    assert padded(n) == 32
