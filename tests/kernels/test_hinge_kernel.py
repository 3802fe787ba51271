"""Random hinge forests: the training kernel against its definition, and packed forests."""

import copy

import numpy as np
import oracles
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from makers import KERNEL_LOSSES as LOSSES
from makers import fixed
from makers import hinge_rows as rows_of
from makers import kernel_targets as targets_for
from skforest._kernels.base.loss import LogLossKernel, SquaredErrorKernel
from skforest._kernels.hinge.features import padded
from skforest._kernels.hinge.trainer import HingeTrainer, padded_vector
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skforest import Forest, RandomHingeForestClassifier
from skforest.table.feature_grid import FeatureGrid
from skforest.training.hinge_bag import BagSettings, HingeTraining, new_arrays
from skforest.training.hinge_input import HingeInput
from skforest.training.hinge_packing import HingePacker, compacted
from skforest.training.threads import Control

NEVER = np.zeros(1, dtype=np.uint8)


# ------------------------------------------------------------------------------------------ kernel


def settings(**changes):
    own = {
        "n_trees": 7, "depth": 3, "fern": False, "head": "leaves", "n_linear": 5,
        "has_unit_weights": False, "identity": False, "optimizer": "adam",
        "learning_rate": 0.01, "momentum": 0.9,
        "weight_decay": 0.0, "schedule": "constant", "dropout": 0.0, "batch_size": 24,
        "n_steps": 10, "validation_fraction": 0.0, "n_iter_no_change": 10, "leaf_scale": 0.5,
    }  # fmt: skip
    return BagSettings(**own | changes)


def trainer_of(how, n_columns, loss, seed=0, arrays=None, fields=None, stop=NEVER):
    """A trainer as `HingeTraining` makes it."""
    random = np.random.RandomState(seed)
    if arrays is None:
        if fields is None:
            fields = np.arange(n_columns, dtype=np.int32)[None]
        arrays = new_arrays(how, fields, loss.n_outputs, np.ones(n_columns), random)
    return HingeTrainer(arrays, n_columns, loss, how, seed, stop)


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
    (how, fields), loss = parted(change), SquaredErrorKernel(n_outputs)
    trainer, table, _ = small_problem(how, loss, n=37, fields=fields)
    trainer.run(np.full(5, 0.05))
    found = trainer.respond(table)
    expected = oracles.hinge_response(trainer.arrays, how.depth, how.fern, table)
    np.testing.assert_allclose(found, expected[:, :n_outputs], rtol=1e-4, atol=1e-5)


@fixed
@given(seed=st.integers(0, 2**31), fern=st.booleans(), depth=st.integers(1, 8))
@example(seed=0, fern=True, depth=16)  # the largest depth
@example(seed=0, fern=False, depth=16)
def test_ties_and_whole_numbers_give_the_definition_exactly(seed, fern, depth):
    """Whole numbers are exact in float32: margins tie, are 0, and rows repeat."""
    rng = np.random.default_rng(seed)
    how = settings(n_linear=0, identity=True, fern=fern, depth=depth)
    loss = SquaredErrorKernel(2)
    table = rng.integers(-2, 3, size=(75, 3)).astype(np.float32)  # two vectors of 32, and more
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
    target = rng.integers(-3, 4, size=(75, 2)).astype(float)
    slopes = (expected - target) / 75
    twin = oracles.hinge_gradients(arrays, depth, fern, table, slopes)
    _, found = trainer.gradients(table, target)
    for name in ("tests", "value"):
        np.testing.assert_allclose(found[name], twin[name], rtol=1e-5, atol=1e-5, err_msg=name)


def evaluated(loss, arrays, model, target):
    """Losses of rows, and their derivatives by responses, whose columns are padded."""
    response = oracles.hinge_response(arrays, *model)
    used = np.ascontiguousarray(response[:, : loss.n_outputs])
    losses, slopes = loss.evaluate(used, target)
    return losses, np.pad(slopes, ((0, 0), (0, response.shape[1] - used.shape[1])))


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
        return evaluated(loss, arrays, model, target)[0].mean()

    slopes = evaluated(loss, arrays, model, target)[1] / len(table)
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


@pytest.mark.parametrize("n_columns", [15, 16, 17, 33, 81])
@pytest.mark.parametrize("identity", [False, True])
def test_gradients_of_any_number_of_columns(n_columns, identity):
    how, loss = settings(identity=identity), LogLossKernel(3)
    trainer, table, target = small_problem(how, loss, n_columns=n_columns)
    mean_loss, found = trainer.gradients(table, target)
    arrays = {key: array.copy() for key, array in trainer.arrays.items()}
    model = how.depth, how.fern, table
    loss_of_rows, slopes = evaluated(loss, arrays, model, target)
    assert mean_loss == pytest.approx(loss_of_rows.mean(), rel=1e-5)
    for key, gradient in oracles.hinge_gradients(arrays, *model, slopes / len(table)).items():
        kernel = found[key][:, : gradient.shape[1]]
        np.testing.assert_allclose(kernel, gradient, rtol=1e-3, atol=2e-5, err_msg=key)


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
@pytest.mark.parametrize("kind", ["auto", "adam", "adagrad", "sgd"])
def test_a_step_moves_only_what_the_batch_reaches(kind, fern, head):
    how = settings(optimizer=kind, fern=fern, head=head, depth=5, batch_size=24)
    loss = LogLossKernel(3)
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
            state, rate, adam = np.float64((old, m, v, g)), 0.03, kind
            if kind == "auto":  # thresholds move twice as far
                rate, adam = 0.06 if name == "tests" else 0.03, "adam"
            squares = 0.99 if kind == "auto" else 0.999
            expected = oracles.optimizer_step(adam, t, *state, rate, squares=squares)[0]
            lazy = (g == 0) & (name in ("value", "tests"))
            np.testing.assert_array_equal(new[lazy], old[lazy])
            # Adam divides by sizes: what is nearly 0 may turn.
            solid = ~lazy & (abs(g) > 1e-4)
            np.testing.assert_allclose(new[solid], expected[solid], rtol=1e-3, atol=3e-4)
            assert solid.any()


def test_weight_decay_takes_a_share_of_vectors_and_directions():
    how = settings(weight_decay=0.5, optimizer="sgd", momentum=0.0)
    trainer, table, target = small_problem(how, LogLossKernel(3))
    _, gradient = trainer.gradients(table, target)
    before = {key: array.copy() for key, array in trainer.arrays.items()}
    trainer.run(np.array([0.1]))
    expected = before["direction"] * (1 - 0.05) - 0.1 * gradient["direction"]
    np.testing.assert_allclose(trainer.arrays["direction"], expected, atol=1e-6)
    touched = abs(gradient["value"]).sum(axis=1) > 0
    expected = before["value"][:, 0] * (1 - 0.05) - 0.1 * gradient["value"]
    np.testing.assert_allclose(trainer.arrays["value"][touched, 0], expected[touched], atol=1e-6)
    expected = oracles.hinge_tests(before)[0] - 0.1 * gradient["tests"]  # without decay
    np.testing.assert_allclose(oracles.hinge_tests(trainer.arrays)[0], expected, atol=1e-6)


def test_every_step_trains_a_tree_whatever_the_dropout():
    how = settings(n_trees=2, dropout=0.97, optimizer="sgd")
    trainer, *_ = small_problem(how, LogLossKernel(3))
    for _ in range(10):
        before = trainer.arrays["value"].copy()
        trainer.run(np.array([0.1]))
        assert not np.array_equal(trainer.arrays["value"], before)


@pytest.mark.parametrize("n_steps", [1, 2, 150])
def test_running_statistics_in_closed_form(n_steps):
    """The mean of the first hundred batches; behind them, each batch counts a hundredth."""
    how = settings(batch_size=8, n_linear=3)
    trainer = trainer_of(how, 4, SquaredErrorKernel(1))
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


@pytest.mark.parametrize("optimizer", ["auto", "adam", "adagrad", "sgd"])
def test_a_tree_of_depth_1_is_a_fern_of_depth_1_bit_for_bit(optimizer):
    trained = []
    for fern in (False, True):
        how = settings(depth=1, fern=fern, optimizer=optimizer, batch_size=9, dropout=0.3)
        trainer, _, _ = small_problem(how, LogLossKernel(3), n=40)
        trainer.run(np.full(60, 0.05))
        trained.append(trainer.arrays)
    for name, array in trained[0].items():
        np.testing.assert_array_equal(array, trained[1][name], err_msg=name)


@pytest.mark.parametrize("c", [0.5, 4.0])
def test_scaled_features_and_thresholds_scale_the_output(c):
    how, loss = settings(n_linear=0, identity=True), SquaredErrorKernel(2)
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
    how, loss = settings(n_linear=4, batch_size=10), SquaredErrorKernel(1)
    trainer = trainer_of(how, 2, loss)
    table = np.array([[1, 0], [0, 1], [100, 100]], dtype=np.float32)
    trainer.set_rows(table, np.zeros((3, 1)), np.array([1.0, 3.0, 0.0]))
    trainer.init_statistics(4000)
    direction = trainer.arrays["direction"][:, :4]
    expected = 0.25 * direction[0] + 0.75 * direction[1]
    np.testing.assert_allclose(trainer.arrays["mean"][:4], expected, atol=0.02)


def test_leaves_have_vectors_once_rows_reach_them():
    how, loss = settings(depth=8, n_trees=5), LogLossKernel(3)
    trainer, table, _ = small_problem(how, loss)
    assert (trainer.arrays["leaf"] < 0).all()
    trainer.run(np.full(3, 0.01))
    used = trainer.arrays["counts"][2]
    rows = trainer.arrays["leaf"][trainer.arrays["leaf"] >= 0]
    assert 5 <= used < 5 * 24 * 2
    np.testing.assert_array_equal(np.sort(rows), np.arange(used))


def test_training_ends_at_the_stop_flag():
    trainer, table, target = small_problem(settings(), LogLossKernel(3))
    stop = np.ones(1, dtype=np.uint8)
    stopped = trainer_of(settings(), 6, LogLossKernel(3), arrays=trainer.arrays, stop=stop)
    stopped.set_rows(table, target, np.ones(24))
    before = trainer.arrays["counts"][0]
    stopped.run(np.full(1000, 0.01))
    assert trainer.arrays["counts"][0] <= before + 1


@pytest.mark.parametrize("n_steps", [1, 2, 5])
def test_the_loss_of_a_run_is_the_mean_loss_of_its_batches(n_steps):
    """Each batch is the whole table, and steps of length 0 change nothing."""
    how = settings(identity=True, n_linear=0, optimizer="sgd", momentum=0.0)
    trainer, table, target = small_problem(how, LogLossKernel(3))
    trainer.run(np.full(20, 0.03))
    before, _ = LogLossKernel(3).evaluate(trainer.respond(table), target)
    assert trainer.run(np.zeros(n_steps)) == pytest.approx(before.mean(), rel=1e-5)
    first, second = trainer.run(np.full(1, 0.03)), trainer.run(np.zeros(1))
    trainer, table, target = small_problem(how, LogLossKernel(3))
    trainer.run(np.full(20, 0.03))
    mean = trainer.run(np.array([0.03, 0.0]))
    assert second < first and mean == pytest.approx((first + second) / 2, rel=1e-5)


@pytest.mark.parametrize("n, width", [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (16, 16), (17, 32)])
def test_widths_of_vectors(n, width):
    assert padded_vector(n) == width
    assert padded(n) % padded(1) == 0 and n <= padded(n) < n + padded(1)


@pytest.mark.parametrize("has_unit_weights", [False, True])
def test_initial_weights_have_a_variance_of_one_or_one_over_their_number(has_unit_weights):
    how = settings(n_linear=100, has_unit_weights=has_unit_weights)
    fields = np.arange(400, dtype=np.int32)[None]
    arrays = new_arrays(how, fields, 3, np.ones(400), np.random.RandomState(0))
    variance = arrays["direction"][:, :100].var()
    assert variance == pytest.approx(1 if has_unit_weights else 1 / 400, rel=0.05)


def test_columns_that_are_features_themselves_have_their_emphasis():
    how, fields = settings(n_linear=2, identity=True), np.arange(5, dtype=np.int32)[None]
    emphasis = np.array([0.5, 2.0, 1.0, 3.0, 0.1])
    arrays = new_arrays(how, fields, 3, emphasis, np.random.RandomState(0))
    first = arrays["direction"].shape[1]
    np.testing.assert_allclose(arrays["variance"][first : first + 5], emphasis**2)
    assert (arrays["variance"][:first] == 1).all()
    # At most a quarter of the tests are of columns if there are other features.
    for n_linear, share in ((2, 0.25), (45, 0.1), (0, 1.0)):
        how = settings(n_linear=n_linear, identity=True, n_trees=900)
        tests = new_arrays(how, fields, 3, emphasis, np.random.RandomState(0))["tests"]
        first = padded(n_linear)
        assert (tests[:, :, 1] >= first).mean() == pytest.approx(share, abs=0.03)


def test_a_schedule_that_is_cut_ends_with_its_last_rate():
    training = object.__new__(HingeTraining)
    training.settings = settings(n_steps=200, schedule="cosine", learning_rate=2.0)
    training.end, training.bend, training.n_done = 200, (0, 0.0), 0
    whole = 1 + np.cos(np.pi * np.arange(200) / 200)
    np.testing.assert_allclose(training._rates(np.arange(200)), whole)
    training.n_done = 50
    training._end_in(75)
    cut = training._rates(np.arange(50, 125))
    np.testing.assert_allclose(cut, whole[50::2], rtol=1e-9)  # twice as fast from here
    training.n_done, training.loss_curve, training.validation_scores = 125, [], []
    assert training.record["ended"] == (125, 200, "step")
    training._end_in(500)
    assert training.end == 200 and "ended" not in training.record


# ---------------------------------------------------------------------------------- packed forests


def bag_of(how, fields=None, seed=0, n=200, weight=None):
    """A trained bag and the rows that it was trained on."""
    X, y = rows_of(RandomHingeForestClassifier, n, seed)
    table = X.astype(np.float32)
    deviation = table.std(axis=0)
    emphasis = np.linspace(0.5, 2, 6)
    source = HingeInput(
        table,
        table.mean(axis=0).astype(float),
        deviation.astype(float),
        emphasis,
        deviation,
        np.arange(6, dtype=np.int32)[None] if fields is None else fields,
    )
    target = y[:, None].astype(float)
    weight = np.ones(n) if weight is None else weight
    training = HingeTraining(source, target, LogLossKernel(3), weight, how, seed, Control())
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


def test_validation_scores_are_weighted_means_of_losses():
    weight = np.random.default_rng(0).exponential(size=200)
    training, _ = bag_of(settings(n_steps=200, validation_fraction=0.3), weight=weight)
    rows = training.validation_rows
    assert len(rows) == 60
    raw = training.trainer.respond(training.table)[rows]  # of the best model
    losses, _ = LogLossKernel(3).evaluate(raw, training.validation_target)
    best = max(training.record["validation_scores_"])
    assert -np.average(losses, weights=weight[rows]) == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("fern, head", [(False, "leaves"), (True, "leaves"), (False, "linear")])
def test_gains_are_what_rows_ask_of_the_tests(fern, head):
    """Each row counts, by the norm of the vector of its leaf, at the test of its smallest margin.

    With a head, the number of the leaf is multiplied by the vector of the tree. The gain of the
    test of a fern is divided among the nodes of its level.
    """
    weight = np.random.default_rng(0).exponential(size=200)
    how = settings(fern=fern, head=head, n_steps=30)
    training, _ = bag_of(how, weight=weight)
    arrays, table = training.trainer.arrays, training.table
    tests, places = oracles.hinge_tests(arrays)
    z = oracles.hinge_features(arrays, table)
    expected = np.zeros(tests.shape)
    for t in range(how.n_trees):
        of_tree = np.linalg.norm(arrays["head"][t]) if head == "linear" else 1.0
        for i in range(200):
            path = oracles.hinge_path(z[i], tests[t], places[t], how.depth, fern)
            row = arrays["leaf"][t, path[0]]
            norm = np.linalg.norm(arrays["value"][row, 0].astype(float)) if row >= 0 else 0.0
            expected[t, path[1]] += weight[i] * norm * of_tree
    found = training.arrays(np.ones(3))["gain"].reshape(how.n_trees, -1)
    if fern:
        ends = [slice(2**level - 1, 2 ** (level + 1) - 1) for level in range(how.depth)]
        assert all(np.ptp(found[:, own], axis=1).max() == 0 for own in ends)
        found = np.stack([found[:, own].sum(axis=1) for own in ends], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * expected.max())


@pytest.mark.parametrize("schedule", ["constant", "cosine", "plateau"])
def test_learning_rates_of_a_schedule(schedule, monkeypatch):
    """One step in each evaluation, and a loss that never falls."""
    rates, n = [], 40

    class Recorder(HingeTrainer):
        def run(self, given):
            rates.extend(given)
            return 1.0

    monkeypatch.setattr("skforest.training.hinge_bag.HingeTrainer", Recorder)
    bag_of(settings(n_steps=n, schedule=schedule, learning_rate=0.2))
    if schedule == "cosine":
        expected = 0.1 * (1 + np.cos(np.pi * np.arange(n) / n))
    elif schedule == "plateau":  # lowered behind every three evaluations that are no better
        expected = 0.2 * 0.3 ** (np.maximum(np.arange(n) - 1, 0) // 3)
    else:
        expected = np.full(n, 0.2)
    np.testing.assert_allclose(rates, expected)


def test_an_infinite_loss_on_the_way_leaves_the_best_model(monkeypatch):
    losses = iter([2.0, 1.0, 1.5, np.inf])
    monkeypatch.setattr(HingeTraining, "_validation_loss", lambda training: next(losses))
    with pytest.warns(ConvergenceWarning, match="infinite after 4 steps.*is kept"):
        training, _ = bag_of(settings(n_steps=40, validation_fraction=0.2))
    np.testing.assert_array_equal(training.trainer.arrays["direction"], training.best["direction"])
    assert training.record["validation_scores_"].tolist() == [-2.0, -1.0, -1.5]


@pytest.mark.parametrize("features", ["linear", "both"])
def test_inner_products_of_few_columns_are_sparse(features, monkeypatch):
    """They read 60 of 300 columns; as dense directions, they say the same up to rounding."""
    monkeypatch.setattr("skforest.training.hinge.MANY_COLUMNS", 40)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 300)).astype(np.float32)
    y = X[:, 7] > X[:, 150]
    model = RandomHingeForestClassifier(
        20, n_bags=2, max_iter=60, features=features, random_state=0
    )
    few = clone(model).fit(X, y).forest_
    assert np.diff(few.sparse_start).max() == 60
    monkeypatch.setattr("skforest.training.hinge_packing.DENSE_SHARE", 0.2)
    many = clone(model).fit(X, y).forest_
    assert len(many.dense) >= 40 and not len(few.dense)
    pairs = [abs(forest.directions()).toarray() for forest in (few, many)]
    np.testing.assert_allclose(*pairs, rtol=1e-6)
    rows = rng.normal(size=(40, 300))
    np.testing.assert_allclose(few.response(rows), many.response(rows), atol=1e-5)
