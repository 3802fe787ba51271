"""Random hinge forests: losses, kernel, training, estimators."""

import _thread
import copy
import pickle
import threading

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import OwnPoisson, OwnSquaredError, assert_same_trees, fixed
from scipy import sparse
from scipy.special import logsumexp, softmax
from skforest._kernels.hinge import HingeTrainer, padded, padded_vector
from skforest._kernels.loss import (
    AbsoluteError,
    HuberLoss,
    LogLoss,
    PoissonLoss,
    QuantileLoss,
    SquaredError,
)
from skforest._kernels.rows import tree_seed
from sklearn.base import clone
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from skforest import Forest, Loss, RandomHingeForestClassifier, RandomHingeForestRegressor
from skforest._feature_grid import FeatureGrid
from skforest.training import losses
from skforest.training.hinge import (
    HingeInput,
    HingeSettings,
    HingeTraining,
    new_arrays,
)
from skforest.training.hinge_packing import HingePacker, compacted
from skforest.training.losses import weighted_quantile

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


class Parameters:
    delta, quantile, label_smoothing, power = 1.35, 0.8, 0.0, 1.5


@pytest.mark.parametrize("name", losses.LOSSES)
def test_constants_that_training_starts_from(name):
    rng = np.random.default_rng(0)
    loss = losses.make_loss(name, 3, Parameters)
    n = 2000
    if name == "log_loss":
        y, weight = rng.integers(2, size=n), np.ones(n)  # no row of the third class
        units = loss.target_units(y, weight)
        assert units.baseline[2] < -100
        assert units.baseline[:2].tolist() == [0, 0]
    else:
        y, weight = 1.0 + rng.poisson(4.0, size=(n, 3)), rng.integers(1, 4, n) * 1.0
        units = loss.target_units(y, weight)
    target = loss.standardize(loss.scale_target(y, units), units)
    kernel = loss.kernel_loss()
    assert target.shape == (n, kernel.n_columns)
    if name in ("squared_error", "poisson", "gamma", "tweedie"):
        slopes = kernel.evaluate(np.zeros((n, 3)), target)[1]
        np.testing.assert_allclose(np.average(slopes, axis=0, weights=weight), 0, atol=1e-12)
    elif name in ("absolute_error", "quantile"):
        least, *others = (
            np.average(kernel.evaluate(np.full((n, 3), shift), target)[0], weights=weight)
            for shift in (0.0, -0.5, 0.5)
        )
        assert least < min(others)


@pytest.mark.parametrize("name", ["squared_error", "absolute_error", "huber", "quantile"])
def test_targets_are_deviations_in_units_of_their_size(name):
    rng = np.random.default_rng(0)
    loss = losses.make_loss(name, 2, Parameters)
    y = np.stack([rng.normal(3, 1e5, 50), np.full(50, 7.0)], axis=1)
    weight = rng.uniform(size=50)
    units = loss.target_units(y, weight)
    scaled = loss.scale_target(y, units)
    assert 0.5 < np.abs(scaled).max() <= 1
    target = loss.standardize(scaled, units)
    np.testing.assert_allclose(target * units.response + units.baseline, y)
    assert units.response[1] == 0
    continued = loss.target_units(y + 1, weight, units.baseline)
    assert (continued.baseline == units.baseline).all()


def test_a_target_that_is_no_count_is_named():
    for y in (np.array([[-1.0], [2.0]]), np.zeros((2, 1))):
        with pytest.raises(ValueError, match="needs y of 0 or more with a positive mean"):
            losses.Poisson(1).target_units(y, np.ones(2))


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
        "n_trees": 7, "depth": 3, "fern": False, "head": "leaves", "n_linear": 5,
        "identity": False, "optimizer": "adam", "learning_rate": 0.01, "momentum": 0.9,
        "weight_decay": 0.0, "schedule": "constant", "dropout": 0.0, "batch_size": 24,
        "n_steps": 10, "validation_fraction": 0.0, "n_iter_no_change": 10,
    }  # fmt: skip
    return HingeSettings(**own | changes)


def trainer_of(how, n_columns, loss, seed=0, arrays=None, fields=None):
    """A trainer as `HingeTraining` makes it."""
    random = np.random.RandomState(seed)
    if arrays is None:
        if fields is None:
            fields = np.arange(n_columns, dtype=np.int32)[None]
        arrays = new_arrays(how, fields, loss.n_outputs, np.ones(n_columns), random)
    return HingeTrainer(
        arrays, n_columns, how.depth, 0.5, how.fern, loss, how.optimizer, how.momentum,
        how.weight_decay, how.dropout, how.batch_size, seed, NEVER,
    )  # fmt: skip


def small_problem(how, loss, seed=0, n=24, n_columns=6, fields=None):
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n, n_columns)).astype(np.float32)
    target = targets_for(loss, rng, n)
    trainer = trainer_of(how, n_columns, loss, seed, fields=fields)
    trainer.set_rows(table, target, np.ones(n))
    trainer.init_statistics(n)
    return trainer, table, target


# A kernel of 2 by 2 pixels goes over an image of 2 by 3.
PATCHES = FeatureGrid((2, 3), 6).receptive_fields((2, 2))
STRUCTURES = [
    {},
    {"fern": True},
    {"identity": True},
    {"identity": True, "n_linear": 0},
    {"depth": 1},
    {"depth": 6, "n_trees": 3},
    {"n_linear": 40, "fern": True, "depth": 5},
    {"patches": True},
    {"patches": True, "n_linear": 40, "depth": 5},
    {"head": "linear"},
    {"head": "linear", "n_trees": 40, "fern": True, "identity": True},
]


def parted(change):
    """Settings and fields of a structure."""
    change = dict(change)
    fields = PATCHES if change.pop("patches", False) else np.arange(6, dtype=np.int32)[None]
    return settings(**change), fields


@pytest.mark.parametrize("change", STRUCTURES, ids=str)
@pytest.mark.parametrize("n_outputs", [1, 2, 3, 7, 16, 26])
def test_response_is_that_of_the_definition(change, n_outputs):
    (how, fields), loss = parted(change), SquaredError(n_outputs)
    trainer, table, _ = small_problem(how, loss, n=37, fields=fields)
    trainer.run(np.full(5, 0.05))
    found = trainer.respond(table)
    expected = oracles.hinge_response(trainer.arrays, how.depth, how.fern, table)
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
    expected = oracles.hinge_response(arrays, depth, fern, table)
    np.testing.assert_array_equal(trainer.respond(table), expected)
    target = rng.integers(-3, 4, size=(19, 2)).astype(float)
    slopes = (expected - target) / 19
    twin = oracles.hinge_gradients(arrays, depth, fern, table, slopes)
    _, found = trainer.gradients(table, target)
    for name in ("tests", "value"):
        np.testing.assert_allclose(found[name], twin[name], rtol=1e-5, atol=1e-5, err_msg=name)


def case(change, name):
    """A structure and a loss; the short suite varies one of them at a time."""
    marks = [] if name == "log" or not change else [pytest.mark.slow]
    return pytest.param(change, name, marks=marks, id=f"{name}-{change}")


@pytest.mark.parametrize(
    "change, name", [case(change, name) for change in STRUCTURES for name in LOSSES]
)
def test_gradients_are_finite_differences(change, name):
    """The twin against finite differences in float64, and the kernel against the twin."""
    (how, fields), loss = parted(change), LOSSES[name]
    trainer, table, target = small_problem(how, loss, fields=fields)
    mean_loss, found = trainer.gradients(table, target)
    arrays = {key: array.copy() for key, array in trainer.arrays.items()}
    model = how.depth, how.fern, table

    def total(arrays):
        return loss.evaluate(oracles.hinge_response(arrays, *model), target)[0].mean()

    slopes = loss.evaluate(oracles.hinge_response(arrays, *model), target)[1] / len(table)
    twin = oracles.hinge_gradients(arrays, *model, slopes)
    assert mean_loss == pytest.approx(total(arrays), rel=1e-5)
    for key, gradient in twin.items():
        kernel = found[key][:, : gradient.shape[1]]
        np.testing.assert_allclose(kernel, gradient, rtol=1e-3, atol=2e-5, err_msg=key)
    rng = np.random.default_rng(1)
    for key in ("value", "direction", "head"):
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


@pytest.mark.parametrize("fern, head", [(False, "leaves"), (True, "leaves"), (False, "linear")])
@pytest.mark.parametrize("kind", ["adam", "adagrad", "sgd"])
def test_a_step_moves_only_what_the_batch_reaches(kind, fern, head):
    how = settings(optimizer=kind, fern=fern, head=head, depth=5, batch_size=24)
    loss = LogLoss(3)
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
            ("head", before["head"], arrays["head"], before["head_mean"],
             before["head_power"], gradient["head"]),
        ):  # fmt: skip
            if name == "head" and head == "leaves":
                assert old.size == 0
                continue
            expected = oracles.optimizer_step(kind, t, *np.float64((old, m, v, g)), 0.03)[0]
            lazy = (g == 0) & (name in ("value", "tests"))
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
        trainer.set_rows(table, np.zeros((8, 1)), np.ones(8))
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
    trainer.set_rows(table, np.zeros((3, 1)), np.array([1.0, 3.0, 0.0]))
    trainer.init_statistics(4000)
    direction = trainer.arrays["direction"][:, :4]
    expected = 0.25 * direction[0] + 0.75 * direction[1]
    np.testing.assert_allclose(trainer.arrays["mean"][:4], expected, atol=0.02)


def test_leaves_have_vectors_once_rows_reach_them():
    how, loss = settings(depth=8, n_trees=5), LogLoss(3)
    trainer, table, _ = small_problem(how, loss)
    assert (trainer.arrays["leaf"] < 0).all()
    trainer.run(np.full(3, 0.01))
    used = trainer.arrays["counts"][2]
    rows = trainer.arrays["leaf"][trainer.arrays["leaf"] >= 0]
    assert 5 <= used < 5 * 24 * 2
    np.testing.assert_array_equal(np.sort(rows), np.arange(used))


def test_training_ends_at_the_stop_flag():
    trainer, table, target = small_problem(settings(), LogLoss(3))
    stop = np.ones(1, dtype=np.uint8)
    how = settings()
    stopped = HingeTrainer(
        trainer.arrays, 6, how.depth, 0.5, how.fern, LogLoss(3), "adam", 0.9, 0.0,
        0.0, 24, 0, stop,
    )  # fmt: skip
    stopped.set_rows(table, target, np.ones(24))
    before = trainer.arrays["counts"][0]
    stopped.run(np.full(1000, 0.01))
    assert trainer.arrays["counts"][0] <= before + 1


@pytest.mark.parametrize("n, width", [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (16, 16), (17, 32)])
def test_widths_of_vectors(n, width):
    assert padded_vector(n) == width
    assert padded(n) % padded(1) == 0 and n <= padded(n) < n + padded(1)


# ---------------------------------------------------------------------------------- packed forests


def quick(cls, **changes):
    return cls(**{"n_estimators": 20, "n_bags": 2, "max_iter": 200, "random_state": 0} | changes)


def rows_of(task, n=150, seed=0):
    if task is RandomHingeForestClassifier:
        return make_classification(n, 6, n_informative=5, n_redundant=0, n_classes=3,
                                   random_state=seed)  # fmt: skip
    return make_regression(n, 6, noise=5.0, random_state=seed)


BOTH = pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])


def bag_of(how, fields=None, seed=0, n=200):
    """A trained bag and the rows that it was trained on."""
    X, y = rows_of(RandomHingeForestClassifier, n, seed)
    table = X.astype(np.float32)
    spread = table.std(axis=0)
    emphasis = np.linspace(0.5, 2, 6)
    source = HingeInput(
        table,
        table.mean(axis=0).astype(float),
        spread.astype(float),
        emphasis,
        spread,
        np.arange(6, dtype=np.int32)[None] if fields is None else fields,
    )
    target = y[:, None].astype(float)
    training = HingeTraining(source, target, LogLoss(3), np.ones(n), how, seed, NEVER)
    training.run()
    return training, source


def make_forest(arrays):
    return Forest(
        arrays, n_features=6, n_outputs=3, task="classification", classes=range(3),
        aggregate="sum", gate="margin", link="softmax", n_shared_values=1,
    )  # fmt: skip


@pytest.mark.parametrize("change", STRUCTURES, ids=str)
def test_the_packed_forest_responds_as_the_trainer(change):
    """Standardiser, emphasis and identity features are folded into directions and thresholds."""
    training, source = bag_of(*parted(change | {"n_steps": 100}))
    forest = training.compacted(make_forest(training.arrays(np.ones(3))))
    expected = training.trainer.respond(source.table())
    found = forest.router.respond(source.scaled, 0, len(forest))
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize("change", [{"depth": 9}, {"depth": 7, "fern": True}], ids=str)
def test_what_no_row_reaches_is_cut_off_without_a_trace(change):
    training, source = bag_of(settings(n_steps=50, **change))
    packer = HingePacker(training.trainer, training.settings, source, 3)
    whole = make_forest(packer.arrays(training.table, training.weight, np.ones(3)))
    forest = compacted(whole, source.scaled, np.ones(len(source.scaled)))
    assert forest.n_nodes < whole.n_nodes / 3
    np.testing.assert_array_equal(
        forest.router.respond(source.scaled, 0, 7), whole.router.respond(source.scaled, 0, 7)
    )
    root = forest.tree_start[:-1]
    np.testing.assert_array_equal(forest.node_weight[root], len(source.scaled))
    leaves = forest.apply(source.scaled)
    for t in range(7):
        nodes = slice(*forest.tree_start[t : t + 2])
        counts = np.bincount(leaves[:, t], minlength=nodes.stop - nodes.start)
        is_leaf = forest.child[nodes] < 0
        np.testing.assert_array_equal(forest.node_weight[nodes][is_leaf], counts[is_leaf])
        assert (forest.child[nodes][is_leaf & (counts == 0)] == -1).all()


@BOTH
@pytest.mark.parametrize("structure", ["tree", "fern"])
@pytest.mark.parametrize("features", ["linear", "identity", "both"])
@pytest.mark.parametrize("head", ["leaves", "linear"])
def test_estimators_predict_the_responses_of_the_forest(cls, structure, features, head):
    X, y = rows_of(cls)
    model = quick(cls, structure=structure, features=features, head=head).fit(X, y)
    forest = model.forest_
    assert forest.gate == "margin" and forest.aggregate == "sum"
    np.testing.assert_array_equal(forest.bag_start, [0, 20, 40])
    if cls is RandomHingeForestClassifier:
        bags = [forest[:20].response(X), forest[20:].response(X)]
        np.testing.assert_array_equal(model.predict_proba(X), (bags[0] + bags[1]) / 2)
    assert model.score(X, y) > 0.7
    assert model.feature_importances_.sum() == pytest.approx(1)


def test_places_of_kernels():
    found = FeatureGrid((4, 5, 2), 40).receptive_fields((3, 3))
    image = np.arange(40).reshape(4, 5, 2)
    assert found.shape == (6, 18)
    for q, (i, j) in enumerate(np.ndindex(2, 3)):
        assert set(found[q]) == set(image[i : i + 3, j : j + 3].ravel())
        # The same pixel of the kernel has the same weight at every place.
        np.testing.assert_array_equal(found[q] - found[0], image[i, j, 0])
    assert FeatureGrid((28, 28), 784).receptive_fields((5, 5), 3).shape == (64, 25)


@pytest.mark.parametrize("side", [5, 6, 7])
def test_a_kernel_with_one_place(side):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, side, side)).astype(np.float32)
    y = X[:, 1, 1] > 0.5
    shape = {"features": "conv", "feature_shape": (side, side)}
    model = RandomHingeForestClassifier(5, n_bags=1, max_iter=200, random_state=0, **shape)
    model.fit(X, y)
    assert model.score(X, y) > 0.8
    seen = model.feature_importances_.reshape(side, side) > 0
    assert seen[:5, :5].all()
    assert seen.sum() == 25


def test_convolutions_see_images_wherever_a_thing_is():
    """A bright pixel on a dark ground, or a dark one on a bright ground, anywhere."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    X = np.repeat(255 * (1 - y), 36).reshape(600, 6, 6).astype(np.uint8)
    X[np.arange(600), rng.integers(6, size=600), rng.integers(6, size=600)] = 255 * y
    X[:, 0, 0] = rng.integers(256, size=600)
    model = quick(
        RandomHingeForestClassifier, features="conv", feature_shape=(6, 6), kernel_size=3, stride=1
    )
    model.fit(X[:300], y[:300])
    assert model.n_directions_ == 80 and model.score(X[300:], y[300:]) > 0.95
    flat = X.reshape(600, 36)
    np.testing.assert_array_equal(model.predict_proba(flat), model.predict_proba(X))
    for shape, words in ((None, "needs feature_shape"), ((5, 7), "36 features"), (36, "36")):
        with pytest.raises(ValueError, match=words):
            clone(model).set_params(feature_shape=shape).fit(flat, y)
    with pytest.raises(ValueError, match="kernel_size=7 is larger"):
        clone(model).set_params(kernel_size=7).fit(flat, y)


@BOTH
def test_depth_1_forests_and_ferns_are_the_same(cls):
    X, y = rows_of(cls)
    one, other = (quick(cls, structure=s, max_depth=1).fit(X, y) for s in ("tree", "fern"))
    for name, array in one.forest_.arrays.items():
        np.testing.assert_array_equal(array, other.forest_.arrays[name], err_msg=name)


# -------------------------------------------------------------------------------------- estimators


@BOTH
@pytest.mark.parametrize("early_stopping", [False, True])
def test_weights_equal_copies_and_order_and_threads_have_no_influence(cls, early_stopping):
    X, y = rows_of(cls)
    k = np.random.default_rng(0).integers(0, 4, len(X))
    model = quick(cls, early_stopping=early_stopping, n_bags=3).fit(X, y, sample_weight=k)
    order = np.random.default_rng(1).permutation(k.sum())
    copies = np.repeat(X, k, axis=0)[order], np.repeat(y, k)[order]
    assert_same_trees(model, clone(model).fit(*copies))
    assert_same_trees(model, clone(model).set_params(n_jobs=2).fit(X, y, k))
    scaled = clone(model).fit(X, y, k * 2.0**-900)
    np.testing.assert_array_equal(scaled.forest_.response(X), model.forest_.response(X))


def test_class_weights_are_weights():
    X, y = rows_of(RandomHingeForestClassifier)
    model = quick(RandomHingeForestClassifier, class_weight={0: 3}).fit(X, y)
    weighted = quick(RandomHingeForestClassifier).fit(X, y, np.where(y == 0, 3, 1))
    # Class weights are those of labels: means of the inputs, for missing values, have none.
    weighted.forest_.fill = model.forest_.fill
    assert_same_trees(model, weighted)
    rare = y * (np.arange(len(y)) % 4 == 0) > 0
    plain = quick(RandomHingeForestClassifier, max_iter=60).fit(X, rare)
    balanced = clone(plain).set_params(class_weight="balanced").fit(X, rare)
    assert balanced.predict(X).sum() > plain.predict(X).sum()


@BOTH
def test_more_bags_by_warm_start(cls):
    X, y = rows_of(cls)
    model = quick(cls, n_bags=2, warm_start=True).fit(X, y)
    model.set_params(n_bags=4).fit(X, y)
    assert_same_trees(model, quick(cls, n_bags=4).fit(X, y))
    assert len(model.loss_curve_) == len(model.n_iter_) == 4
    with pytest.raises(ValueError, match="n_bags=3 must be larger or equal to the 4"):
        clone_of = copy.deepcopy(model).set_params(n_bags=3)
        clone_of.fit(X, y)
    with pytest.raises(ValueError, match="n_estimators=7, but"):
        copy.deepcopy(model).set_params(n_bags=5, n_estimators=7).fit(X, y)
    with pytest.warns(UserWarning, match="without increasing n_bags"):
        model.fit(X, y)


@BOTH
def test_auto_is_resolved_from_the_number_of_distinct_rows(cls):
    X, y = rows_of(cls)
    model = quick(cls, n_bags="auto", max_iter=1).fit(X, y)
    assert (model.n_bags_, model.max_depth_, model.n_directions_, model.batch_size_) == (
        5, 5, 100, 9,
    )  # fmt: skip
    assert model.learning_rate_ == 3 / 20
    copies = clone(model).fit(np.tile(X, (70, 1)), np.tile(y, 70))
    assert copies.batch_size_ == 9
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(10_000, 2)), rng.integers(2, size=10_000)
    model = quick(cls, n_estimators=2, max_iter=1, n_bags=1).fit(X, y)
    assert (model.max_depth_, model.n_directions_, model.batch_size_) == (8, 200, 128)
    assert (
        clone(model).set_params(max_iter="auto", n_directions=1).fit(X[:300], y[:300]).max_iter_
        == 1200
    )


@pytest.mark.parametrize("head", ["leaves", "linear"])
def test_early_stopping_keeps_the_model_of_least_validation_loss(head):
    """Labels are noise: the loss of rows held out rises from the start."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 5)), rng.integers(2, size=300)
    own = {"head": head, "max_iter": 1000, "max_depth": 6, "calibrate": False}
    model = quick(RandomHingeForestClassifier, early_stopping=True, n_iter_no_change=3, **own).fit(
        X, y
    )
    plain = quick(RandomHingeForestClassifier, early_stopping=False, **own).fit(X, y)
    for scores, curve, steps in zip(model.validation_scores_, model.loss_curve_, model.n_iter_):
        assert len(scores) == len(curve) == steps / 25
        assert len(scores) - 1 - scores.argmax() == 3
    assert max(model.n_iter_) < 1000 == min(plain.n_iter_)
    assert all(len(scores) == 0 for scores in plain.validation_scores_)
    fresh = rng.normal(size=(2000, 5))
    certainty = [m.predict_proba(fresh).max(axis=1).mean() for m in (model, plain)]
    assert certainty[0] < certainty[1] - 0.03


@pytest.mark.parametrize("schedule", ["cosine", "constant", "plateau"])
@pytest.mark.parametrize("optimizer", ["adam", "adagrad", "sgd"])
def test_every_schedule_and_optimizer_learns(schedule, optimizer):
    X, y = rows_of(RandomHingeForestClassifier)
    model = quick(
        RandomHingeForestClassifier, schedule=schedule, optimizer=optimizer, early_stopping=False
    ).fit(X, y)
    assert model.loss_curve_[0][-1] < 0.7 * model.loss_curve_[0][0]
    assert model.score(X, y) > 0.8


@pytest.mark.parametrize("early_stopping", [False, True])
def test_an_infinite_loss_is_reported_and_never_returned(early_stopping):
    X, y = rows_of(RandomHingeForestRegressor)
    model = quick(
        RandomHingeForestRegressor,
        optimizer="sgd",
        learning_rate=1e4,
        early_stopping=early_stopping,
    )
    with pytest.raises(ValueError, match=r"infinite.*learning_rate=1e\+04"):
        model.fit(X, y)
    assert not hasattr(model, "forest_")


def test_an_infinite_loss_names_the_weight_decay():
    X, y = rows_of(RandomHingeForestRegressor)
    with pytest.raises(ValueError, match="weight_decay=1e.30; a smaller learning_rate or weig"):
        quick(RandomHingeForestRegressor, weight_decay=1e30).fit(X, y)


def test_an_infinite_loss_on_the_way_leaves_the_best_model(monkeypatch):
    losses = iter([2.0, 1.0, 1.5, np.inf])
    monkeypatch.setattr(HingeTraining, "_validation_loss", lambda training: next(losses))
    with pytest.warns(ConvergenceWarning, match="infinite after 4 steps.*is kept"):
        training, _ = bag_of(settings(n_steps=40, validation_fraction=0.2))
    np.testing.assert_array_equal(training.trainer.arrays["direction"], training.best["direction"])
    assert training.record["validation_scores_"].tolist() == [-2.0, -1.0, -1.5]


def test_losses_of_the_regressor_estimate_mean_median_and_quantile():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 2))
    y = X[:, 0] + rng.exponential(2.0, size=1500)
    aims = {
        ("squared_error", 0.5): (2.0, 0.4),
        ("absolute_error", 0.5): (2 * np.log(2), 0.4),
        ("quantile", 0.9): (2 * np.log(10), 0.8),  # calibrated on 225 rows
    }
    for (loss, quantile), (expected, close) in aims.items():
        model = quick(
            RandomHingeForestRegressor, loss=loss, quantile=quantile, early_stopping=True
        ).fit(X, y)
        assert np.mean(model.predict(X) - X[:, 0]) == pytest.approx(expected, abs=close), loss
    counts = rng.poisson(np.exp(1 + X[:, 0]))
    model = quick(RandomHingeForestRegressor, loss="poisson", max_iter=500).fit(X, counts)
    assert model.forest_.link == "log" and (model.predict(X) > 0).all()
    assert np.corrcoef(np.log(model.predict(X)), X[:, 0])[0, 1] > 0.95
    with pytest.raises(ValueError, match="poisson.*-1"):
        model.fit(X, counts - 1)


class OwnCrossEntropy(Loss):
    def initial(self, y, weight):
        return np.zeros(y.shape[1])

    def loss(self, y, raw):
        return logsumexp(raw, axis=1) - (y * raw).sum(axis=1)

    def gradient_hessian(self, y, raw):
        p = softmax(raw, axis=1)
        return p - y, p * (1 - p)


@pytest.mark.parametrize("head", ["leaves", "linear"])
def test_a_loss_of_the_user_is_the_built_in_one(head):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + abs(X[:, 1])
    y /= y.std()  # both train in the same units
    options = {"max_iter": 60, "head": head, "early_stopping": True, "importance_power": 0.0}
    plain = quick(RandomHingeForestRegressor, **options).fit(X, y)
    model = quick(RandomHingeForestRegressor, loss=OwnSquaredError(), **options).fit(X, y)
    np.testing.assert_allclose(model.predict(X), plain.predict(X), atol=1e-5)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
def test_losses_of_the_user_train():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = 1e6 * np.stack([X[:, 0] + 10, abs(X[:, 1])], axis=1)
    options = {"max_iter": 200, "n_bags": 3, "n_jobs": 2}
    model = quick(RandomHingeForestRegressor, loss=OwnSquaredError(), **options).fit(X, y)
    assert model.score(X, y) > 0.9
    counts = rng.poisson(np.exp(1 + X[:, 0]))
    own = {"loss": OwnPoisson(), "bootstrap": True, "oob_score": True}
    model = quick(RandomHingeForestRegressor, **options | own).fit(X, counts)
    assert np.corrcoef(np.log(model.predict(X)), X[:, 0])[0, 1] > 0.9
    assert np.nanmin(model.oob_prediction_) > 0 and model.oob_score_ > 0.3


def test_a_loss_of_the_user_for_labels():
    X = np.random.default_rng(0).normal(size=(400, 3))
    y = np.array(["a", "b", "c"])[np.digitize(X[:, 0] - X[:, 1], [-0.5, 0.5])]
    options = {"max_iter": 100, "importance_power": 0.0, "early_stopping": True}
    own = OwnCrossEntropy()
    model = quick(RandomHingeForestClassifier, loss=own, **options).fit(X, y)
    plain = quick(RandomHingeForestClassifier, **options).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), plain.predict_proba(X), atol=1e-4)
    assert model.score(X, y) > 0.9 and model.forest_.link == "softmax"
    stream = quick(RandomHingeForestClassifier, loss=own)
    for _ in range(10):
        stream = pickle.loads(pickle.dumps(stream.partial_fit(X, y)))
    assert stream.score(X, y) > 0.8
    with pytest.raises(ValueError, match="takes one output"):
        model.fit(X, np.stack([y, y], axis=1))


def test_parts_of_a_stream_with_a_loss_of_the_user():
    X = np.random.default_rng(0).normal(size=(200, 3))
    model = quick(RandomHingeForestRegressor, loss=OwnSquaredError())
    for _ in range(20):
        model = pickle.loads(pickle.dumps(model.partial_fit(X, X[:, 0])))
    assert model.score(X, X[:, 0]) > 0.7


@pytest.mark.parametrize(
    "method, wrong, message",
    [
        ("gradient_hessian", lambda y, raw: raw - y, "must return two arrays"),
        ("gradient_hessian", lambda y, raw: (raw - np.inf, raw), "infinite"),
        ("loss", lambda y, raw: 0.0, "loss returned shape"),
        ("initial", lambda y, weight: 0.0, "initial returned shape"),
    ],
)
def test_wrong_results_of_losses_of_the_user(method, wrong, message):
    X = np.random.default_rng(0).normal(size=(40, 3))
    loss = OwnSquaredError()
    setattr(loss, method, wrong)
    with pytest.raises(ValueError, match=f"OwnSquaredError.*{message}"):
        quick(RandomHingeForestRegressor, loss=loss).fit(X, X[:, 0])


def noisy(n=400):
    """Two classes, of which a third of the labels is random."""
    return make_classification(n, 6, n_informative=4, flip_y=0.3, random_state=1)


def test_the_temperature_reduces_the_log_loss_of_new_rows():
    X, y = noisy(1200)
    options = {"n_estimators": 50, "max_iter": "auto"}
    models = [
        quick(RandomHingeForestClassifier, calibrate=calibrate, **options).fit(X[:600], y[:600])
        for calibrate in (True, False)
    ]
    losses = [log_loss(y[600:], model.predict_proba(X[600:])) for model in models]
    calibrated, plain = models
    assert plain.temperature_ == 1 < 1.5 < calibrated.temperature_
    assert losses[0] < 0.9 * losses[1]
    # The second bag sees all rows in both models, the first one only in one of them.
    first, second = (
        [model.forest_[bag].compact() for model in models] for bag in (slice(50), slice(50, 100))
    )
    assert first[0].value.shape != first[1].value.shape
    scaled = second[0].value * calibrated.temperature_
    np.testing.assert_allclose(scaled, second[1].value, rtol=1e-5)


@pytest.mark.parametrize(
    "n, changes",
    [
        (19, {}),  # half of them say too little
        (400, {"n_bags": 1}),
        (400, {"early_stopping": True}),
        (400, {"bootstrap": True}),
        (400, {"loss": OwnCrossEntropy()}),
    ],
)
def test_where_there_is_no_temperature(n, changes):
    X, y = noisy(n)
    model, plain = (
        quick(RandomHingeForestClassifier, calibrate=calibrate, **changes).fit(X, y)
        for calibrate in (True, False)
    )
    assert model.temperature_ == 1
    assert_same_trees(model, plain)


def test_few_rows_have_a_temperature_too():
    X, y = noisy(500)
    losses = []
    for calibrate in (True, False):
        model = quick(RandomHingeForestClassifier, calibrate=calibrate, max_iter="auto", n_bags=3)
        losses.append(log_loss(y[60:], model.fit(X[:60], y[:60]).predict_proba(X[60:])))
    assert losses[0] < 0.7 * losses[1]
    # Held-out rows that are all right do not prove that every row will be.
    X, y = make_classification(60, 6, class_sep=5, flip_y=0, random_state=0)
    model = quick(RandomHingeForestClassifier, max_iter="auto", n_bags=3).fit(X, y)
    assert model.score(X, y) == 1 < 1.2 < model.temperature_


def test_calibrated_models_depend_on_weighted_rows_alone():
    X, y = noisy()
    weight = np.full(len(X), 2.0)
    model = quick(RandomHingeForestClassifier, n_bags=3, max_iter=400).fit(X, y, weight)
    assert model.temperature_ > 1
    order = np.random.default_rng(0).permutation(np.repeat(np.arange(len(X)), 2))
    assert_same_trees(clone(model).set_params(n_jobs=2).fit(X[order], y[order]), model)
    grown = clone(model).set_params(n_bags=2, warm_start=True).fit(X, y, weight)
    assert_same_trees(grown.set_params(n_bags=3).fit(X, y, weight), model)


def test_streams_have_no_temperature():
    X, y = noisy()
    model = quick(RandomHingeForestClassifier).fit(X, y)
    assert model.partial_fit(X, y).temperature_ == 1


@pytest.mark.parametrize("early_stopping", [False, True])
def test_intervals_between_quantiles_cover_new_rows(early_stopping):
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(1200, 5))
    y = np.stack([4 * X[:, 0] + rng.gumbel(size=1200), rng.normal(size=1200)], axis=1)
    common = {"n_bags": 2, "max_depth": 4, "max_iter": 600, "random_state": 0}
    common |= {"loss": "quantile", "early_stopping": early_stopping}
    low, high = (
        RandomHingeForestRegressor(quantile=level, **common).fit(X[:600], y[:600]).predict(X[600:])
        for level in (0.1, 0.9)
    )
    np.testing.assert_allclose(np.mean(y[600:] < low, axis=0), 0.1, atol=0.06)
    np.testing.assert_allclose(np.mean(y[600:] > high, axis=0), 0.1, atol=0.06)


def test_calibration_does_not_depend_on_how_bags_come():
    X, y = make_regression(80, 4, random_state=0)
    common = {"loss": "quantile", "quantile": 0.7, "max_iter": 50, "random_state": 0}
    once = RandomHingeForestRegressor(5, n_bags=3, **common).fit(X, y)
    warm = RandomHingeForestRegressor(5, n_bags=1, warm_start=True, **common).fit(X, y)
    warm.set_params(n_bags=3).fit(X, y)
    np.testing.assert_array_equal(warm.predict(X), once.predict(X))


@pytest.mark.parametrize("quantile", [0.05, 0.5, 0.8])
def test_weighted_quantiles(quantile):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 2))
    found = weighted_quantile(values, np.full(30, 4.0), quantile)
    np.testing.assert_allclose(found, np.quantile(values, quantile, axis=0, method="weibull"))
    weight = np.repeat([0.0, 2.0], 15)
    found = weighted_quantile(values, weight, quantile)
    np.testing.assert_allclose(found, weighted_quantile(values[15:], weight[15:], quantile))


def test_several_outputs_and_constant_ones():
    X, y = rows_of(RandomHingeForestRegressor)
    model = quick(RandomHingeForestRegressor).fit(X, np.column_stack([y, 1e6 - y, 0 * y + 7]))
    predicted = model.predict(X)
    assert (predicted[:, 2] == 7).all()
    np.testing.assert_allclose(predicted[:, 0], 1e6 - predicted[:, 1], atol=40)


@BOTH
def test_one_row_and_two(cls):
    X, y = rows_of(cls)
    for n in (1, 2):
        model = quick(cls).fit(X[:n], y[:n])
        assert np.isfinite(model.predict(X)).all()
    assert (quick(cls).fit(X[:1], y[:1]).predict(X) == y[0]).all()


@pytest.mark.usefixtures("interruptible")
@BOTH
def test_progress_and_an_interrupt(cls, capsys, monkeypatch):
    X, y = rows_of(cls)
    monkeypatch.setattr("skforest._threads._progress_bar", lambda total, name, unit: None)
    model = quick(cls, verbose=2).fit(X, y)
    assert f"{cls.__name__}: 2 of 2 trees" in capsys.readouterr().out
    model.set_params(verbose=0)
    before = dict(vars(model)) | {"max_iter": 10**9, "early_stopping": False}
    model.set_params(max_iter=10**9, early_stopping=False)
    timer = threading.Timer(0.3, _thread.interrupt_main)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(X, y)
    finally:
        timer.join()
    assert vars(model) == before


@pytest.mark.parametrize("features", ["linear", "both"])
def test_features_in_one_unit(features):
    """A common factor has no influence, and the unit of one feature has."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) + 5
    y = X[:, 0] - abs(X[:, 1] - 5)
    model = quick(RandomHingeForestRegressor, features=features, scaling=None, max_iter=300)
    first = model.fit(X, y).predict(X)
    assert model.score(X, y) > 0.9
    np.testing.assert_array_equal(model.fit(4 * X, y).predict(4 * X), first)
    # Without units, two features hide behind the large one; their inner products are noise.
    X[:, 3] *= 1e5
    assert model.fit(X, y).score(X, y) < clone(model).set_params(scaling="standard").fit(
        X, y
    ).score(X, y)


@pytest.mark.parametrize(
    ("features", "factor"),
    [("linear", 2.0**-900), ("linear", 2.0**-10), ("linear", 2.0**900), ("conv", 2.0**900)],
)
def test_features_in_one_unit_of_any_size(features, factor):
    """Constant features have no influence on the unit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    X[:, 3] = 2.0
    shape = (2, 2) if features == "conv" else None
    model = quick(
        RandomHingeForestRegressor,
        features=features,
        feature_shape=shape,
        kernel_size=2,
        scaling=None,
        max_iter=20,
    )
    first = model.fit(X, X[:, 0]).predict(X)
    scaled = X * np.array([factor, factor, factor, 1.0])
    np.testing.assert_array_equal(model.fit(scaled, X[:, 0]).predict(scaled), first)


def test_importance_scaling_finds_the_features_that_matter():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 60))
    y = X[:, 0] * X[:, 1] > 0
    fresh = rng.normal(size=(1000, 60))
    truth = fresh[:, 0] * fresh[:, 1] > 0
    scores = [
        quick(RandomHingeForestClassifier, importance_power=power, max_iter=600)
        .fit(X, y)
        .score(fresh, truth)
        for power in (0.0, 2.0)
    ]
    assert scores[1] > scores[0] + 0.1


# ----------------------------------------------------------------------------------------- streams


@BOTH
def test_a_stream_is_learned_in_parts(cls):
    X, y = rows_of(cls, 900)
    model = quick(cls, learning_rate=0.02)
    whole = np.arange(600) % 300
    scores = []
    for start in range(0, 600, 60):
        model.partial_fit(X[start : start + 60], y[start : start + 60])
        scores.append(model.score(X[600:], y[600:]))
    assert scores[-1] > scores[0] + 0.1
    before = model.forest_.response(X)
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.forest_.response(X), before)
    for one in (model, other):
        one.partial_fit(X[whole], y[whole])
    np.testing.assert_array_equal(model.forest_.response(X), other.forest_.response(X))
    assert not np.array_equal(model.forest_.response(X), before)
    assert len(model.loss_curve_[0]) == 11 and model.n_iter_[0] > 40
    # The forest responds as the trainer does, also where the last part has no rows.
    training = model._stream[1][0]
    assert (training.trainer.arrays["leaf"] >= 0).sum() == (model.forest_[:20].child < -1).sum()


def test_columns_that_are_constant_in_the_first_part_have_importance():
    X = np.random.default_rng(0).normal(size=(600, 3))
    first = X * [1, 0, 0]
    model = quick(RandomHingeForestRegressor).partial_fit(first, X[:, 0])
    assert (model.feature_importances_[1:] == 0).all()
    X[:, 2] = 0
    for _ in range(10):
        model.partial_fit(X, X[:, 1])
    assert model.feature_importances_[1] > 0 and model.feature_importances_[2] == 0
    assert model.forest_.spread[1] == pytest.approx(X[:, 1].std(), rel=1e-5)


@BOTH
def test_an_interrupted_part_leaves_the_stream_as_it_was(cls, monkeypatch):
    X, y = rows_of(cls, 300)
    model = quick(cls).partial_fit(X[:100], y[:100])
    twin = copy.deepcopy(model)
    compacted_forest = HingeTraining.compacted

    def interrupted(*args, **options):
        compacted_forest(*args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(HingeTraining, "compacted", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[100:200], y[100:200])
    monkeypatch.undo()
    assert_same_trees(model, twin)
    for one in (model, twin):
        one.partial_fit(X[200:], y[200:])
    assert_same_trees(model, twin)


def test_classes_and_targets_of_later_parts():
    X, y = rows_of(RandomHingeForestClassifier, 300)
    model = quick(RandomHingeForestClassifier)
    model.partial_fit(X[y < 2], y[y < 2], classes=[0, 1, 2])
    assert model.predict_proba(X).shape == (300, 3)
    for _ in range(20):
        model.partial_fit(X, y)
    assert (model.predict(X) == 2).any() and model.score(X, y) > 0.8
    with pytest.raises(ValueError, match="classes"):
        model.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="labels"):
        model.partial_fit(X, y + 5)
    # fit starts anew, and so does partial_fit behind it
    assert_same_trees(copy.deepcopy(model).fit(X, y), quick(RandomHingeForestClassifier).fit(X, y))
    assert_same_trees(
        model.fit(X, y).partial_fit(X, y), quick(RandomHingeForestClassifier).partial_fit(X, y)
    )
    X, y = rows_of(RandomHingeForestRegressor, 300)
    model = quick(RandomHingeForestRegressor, learning_rate=0.02)
    for k in range(30):
        part = slice(100 * (k % 3), 100 * (k % 3 + 1))
        model.partial_fit(X[part], 1000 + y[part])
    assert model.score(X, 1000 + y) > 0.8


# ------------------------------------------------------------------------------------ bootstrap


@pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])
def test_bags_draw_bootstrap_samples_and_score_the_rows_left_out(cls):
    X, y = make_classification(150, 5, random_state=0)
    options = {"n_estimators": 10, "n_bags": 4, "max_iter": 60, "random_state": 0}
    model = cls(bootstrap=True, oob_score=True, **options).fit(X, y)
    total, n_bags = 0.0, 0
    data = model._known_training_set(X, y, None)
    for bag in range(4):
        out = data.bootstrap(tree_seed(model._seed, bag), len(data)) == 0
        first, last = model.forest_.bag_start[bag : bag + 2]
        response = model.forest_[first:last].response_mapped(data.X)
        total = total + out[:, None] * response
        n_bags = n_bags + out
    known = n_bags > 0
    expected = (total[known] / n_bags[known][:, None])[:, 0]
    found = getattr(model, "oob_decision_function_", None)
    found = model.oob_prediction_ if found is None else found[:, 0]
    row = data.row_of_sample
    np.testing.assert_allclose(
        found[known[row]], expected[(np.cumsum(known) - 1)[row][known[row]]]
    )
    plain = cls(**options).fit(X, y)
    assert (plain.forest_.threshold[:5] != model.forest_.threshold[:5]).any()
    with pytest.raises(ValueError, match="needs bootstrap=True"):
        cls(oob_score=True, **options).fit(X, y)


@pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])
@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix])
def test_outliers_among_the_training_rows_do_little_harm(cls, convert):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 4))
    y = X[:, 0] + X[:, 1] * X[:, 2]
    y = y > 0 if cls is RandomHingeForestClassifier else y
    wrong = X.copy()
    wrong[:4, :3] = rng.choice([-1e12, 1e12], size=(4, 3))
    scores = []
    for rows in (X, wrong):
        forest = cls(50, n_bags=2, max_iter=1500, random_state=0)
        forest.fit(convert(rows[:800]), y[:800])
        scores.append(forest.score(convert(X[800:]), y[800:]))
    assert scores[0] > 0.85
    assert scores[1] > scores[0] - 0.03
    coded = np.where(rng.random(X.shape) < 0.1, -999, X)  # more rows than are rare
    forest.fit(convert(coded[:800]), y[:800])
    assert forest.score(convert(coded[800:]), y[800:]) > scores[0] - 0.3
    # The features of the paper are not clipped.
    forest.set_params(scaling=None, n_bags=1, max_iter=10).fit(convert(wrong), y)
    assert forest.forest_.high[0] > 1.5
