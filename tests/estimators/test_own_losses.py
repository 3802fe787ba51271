"""CO2 forests and non-greedy trees with a loss of the user."""

import io
from types import SimpleNamespace

import numpy as np
import pytest
from makers import OwnCrossEntropy, OwnPoisson, OwnSquaredError
from sklearn.base import clone
from sklearn.datasets import make_classification, make_friedman1
from sklearn.exceptions import ConvergenceWarning

import skforest
from skforest import (
    CO2ForestClassifier,
    CO2ForestRegressor,
    CO2Procedure,
    Loss,
    NonGreedyProcedure,
    NonGreedyTreeClassifier,
    NonGreedyTreeRegressor,
)
from skforest.training.losses import make_loss
from skforest.training.user_leaves import (
    UserLeaves,
    UserTarget,
    UserTreeLeaves,
    fitted_constants,
)

FOREST = {
    "n_estimators": 3,
    "objective": "co2",
    "bootstrap": False,
    "max_features": "sqrt",
    "holdout": 0.0,
}
REGRESSORS = {
    "co2": CO2ForestRegressor(**FOREST, min_samples_leaf=5, random_state=0),
    "soft": CO2ForestRegressor(**FOREST | {"objective": "soft"}, max_depth=4, random_state=0),
    "nongreedy": NonGreedyTreeRegressor(max_depth=4, n_epochs=5, random_state=0),
    "trained": NonGreedyTreeRegressor(
        max_depth=4, n_epochs=5, procedure=NonGreedyProcedure(leaves="trained"), random_state=0
    ),
    "refined": CO2ForestRegressor(
        **FOREST, refine=NonGreedyTreeRegressor(n_epochs=4), max_depth=4, random_state=0
    ),
}
CLASSIFIERS = {
    "co2": CO2ForestClassifier(**FOREST, min_samples_leaf=5, random_state=0),
    "gradient": CO2ForestClassifier(
        **FOREST,
        procedure=skforest.CO2Procedure.as_printed(min_batches=1),
        random_state=0,
        max_depth=5,
    ),
    "nongreedy": NonGreedyTreeClassifier(max_depth=4, n_epochs=5, random_state=0),
    "early": NonGreedyTreeClassifier(
        max_depth=4,
        n_epochs=9,
        early_stopping=True,
        procedure=NonGreedyProcedure(validation_fraction=0.3),
        random_state=0,
    ),
    "refined": CO2ForestClassifier(
        **FOREST, refine=NonGreedyTreeClassifier(n_epochs=4), max_depth=4, random_state=0
    ),
}


class Expectile(Loss):
    """Squared error that counts more where predictions are too low."""

    def __init__(self, level):
        self.level = level

    def loss(self, y, raw):
        return np.where(y > raw, self.level, 1 - self.level) * (raw - y) ** 2

    def gradient_hessian(self, y, raw):
        weight = np.where(y > raw, self.level, 1 - self.level)
        return 2 * weight * (raw - y), 2 * weight


class Cost(OwnCrossEntropy):
    """The log loss, in which rows of class 1 count nine times."""

    def loss(self, y, raw):
        return (1 + 8 * y[:, 1]) * super().loss(y, raw)

    def gradient_hessian(self, y, raw):
        weight = 1 + 8 * y[:, [1]]
        slope, curve = super().gradient_hessian(y, raw)
        return weight * slope, weight * curve


class Failing(OwnSquaredError):
    """Raises in small nodes."""

    def loss(self, y, raw):
        if len(y) < 150:
            raise RuntimeError("few rows")
        return super().loss(y, raw)


@pytest.fixture(scope="module")
def real():
    X, y = make_friedman1(500, noise=1.0, random_state=0)
    return X[:300], y[:300], X[300:], y[300:]


@pytest.fixture(scope="module")
def labelled():
    X, y = make_classification(500, 8, n_informative=5, n_classes=3, random_state=0)
    return X[:300], y[:300], X[300:], y[300:]


def own(model, loss):
    return clone(model).set_params(loss=loss)


@pytest.mark.parametrize("name", REGRESSORS)
def test_the_squared_error_of_a_user_is_as_good_as_that_of_the_package(name, real):
    X, y, X_test, y_test = real
    plain = clone(REGRESSORS[name]).fit(X, y).score(X_test, y_test)
    found = own(REGRESSORS[name], OwnSquaredError()).fit(X, y).score(X_test, y_test)
    assert found > plain - 0.1 and plain > 0.4


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_the_log_loss_of_a_user_is_as_good_as_that_of_the_package(name, labelled):
    X, y, X_test, y_test = labelled
    plain = clone(CLASSIFIERS[name]).fit(X, y).score(X_test, y_test)
    model = own(CLASSIFIERS[name], OwnCrossEntropy()).fit(X, y)
    assert model.score(X_test, y_test) > plain - 0.1 and plain > 0.55
    np.testing.assert_allclose(model.predict_proba(X_test).sum(axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize("name", REGRESSORS)
def test_an_asymmetric_loss_moves_predictions_to_the_dear_side(name, real):
    X, y, X_test, y_test = real
    loss = Expectile(0.95)
    model = own(REGRESSORS[name], loss).fit(X, y)
    plain = own(REGRESSORS[name], "squared_error").fit(X, y)
    costs = [loss.loss(y_test, one.predict(X_test)).mean() for one in (model, plain)]
    assert costs[0] < 0.8 * costs[1]
    assert np.mean(model.predict(X_test) > y_test) > 0.6


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_class_that_costs_more_is_predicted_more_often(name, labelled):
    X, y, X_test, y_test = labelled
    model = own(CLASSIFIERS[name], Cost()).fit(X, y)
    plain = own(CLASSIFIERS[name], "log_loss").fit(X, y)
    recall = [np.mean(one.predict(X_test)[y_test == 1] == 1) for one in (model, plain)]
    assert recall[0] > recall[1]


def test_a_stump_passes_all_rows_with_their_classes():
    """Nodes number the classes that they have in the order of their rows."""
    counts, found = [5, 30, 12, 21, 9], []

    class Counting(OwnCrossEntropy):
        def loss(self, y, raw):
            found.append(y.sum(axis=0).tolist())
            return super().loss(y, raw)

    y = np.repeat(np.arange(5), counts)
    X = y[:, None] + np.random.default_rng(0).normal(size=(len(y), 3))
    own(CLASSIFIERS["co2"], Counting()).set_params(n_estimators=1, max_depth=1).fit(X, y)
    of_root = [one for one in found if sum(one) == len(y)]
    assert of_root and all(one == counts for one in of_root)


def test_an_epoch_of_gradient_steps_has_every_row_once(monkeypatch, real):
    rows, step = [], UserLeaves.step

    def recorded(self, own, *args):
        rows.extend(own.tolist())
        return step(self, own, *args)

    monkeypatch.setattr(UserLeaves, "step", recorded)
    procedure = CO2Procedure(leaves="gradient", batch_size=32, n_epochs=4)
    model = CO2ForestRegressor(**FOREST | {"n_estimators": 1}, procedure=procedure, random_state=0)
    own(model, OwnSquaredError()).set_params(max_depth=1).fit(*real[:2])
    epochs = np.sort(np.reshape(rows, (-1, 300)), axis=1)
    assert len(epochs) > 1 and (epochs == np.arange(300)).all()


@pytest.mark.parametrize("model", [REGRESSORS["co2"], REGRESSORS["nongreedy"]])
def test_leaves_have_the_constant_of_least_loss(model, real):
    X, y, *_ = real
    level = 0.8
    model = own(model, Expectile(level)).fit(X, y)
    leaves = np.atleast_2d(model.apply(X).T)[0]
    predicted = model.forest_[0].response(X)[:, 0]
    for leaf in np.unique(leaves):
        rows = leaves == leaf
        residual = y[rows] - predicted[rows]
        weight = np.where(residual > 0, level, 1 - level)
        # The derivative is 0 there, up to the weak pull towards the constant of the tree.
        assert abs(np.sum(weight * residual)) < 0.02 * np.sum(weight) * y.std()


def test_predictions_behind_a_link_are_averaged(real):
    X, y, X_test, _ = real
    counts = np.random.default_rng(0).poisson(np.exp((y - y.mean()) / 5)).astype(float)
    model = own(REGRESSORS["co2"], OwnPoisson()).fit(X, counts)
    of_trees = [tree.response(X_test)[:, 0] for tree in model.forest_]
    np.testing.assert_allclose(model.predict(X_test), np.mean(of_trees, axis=0), rtol=1e-5)
    assert model.predict(X_test).min() > 0
    leaves = model.apply(X)[:, 0]
    first = leaves == leaves[0]
    assert model.forest_[0].response(X)[0, 0] == pytest.approx(counts[first].mean(), rel=0.05)


def test_several_outputs_share_the_splits(real):
    X, y, X_test, y_test = real
    model = own(REGRESSORS["co2"], Expectile(0.5)).fit(X, np.c_[y, -3 * y])
    assert model.score(X_test, np.c_[y_test, -3 * y_test]) > 0.5
    assert model.predict(X_test).shape == (200, 2)


@pytest.mark.parametrize("model", [CLASSIFIERS["co2"], CLASSIFIERS["refined"]])
def test_order_of_rows_threads_and_copies_do_not_matter(model, labelled):
    X, y, X_test, _ = labelled
    X, y = X[:120], y[:120]
    weight = np.random.default_rng(0).integers(1, 4, len(X))
    once = own(model, Cost()).set_params(n_estimators=2).fit(X, y, weight)
    order = np.random.default_rng(1).permutation(np.repeat(np.arange(len(X)), weight))
    again = own(model, Cost()).set_params(n_estimators=2, n_jobs=2).fit(X[order], y[order])
    np.testing.assert_array_equal(once.predict_proba(X_test), again.predict_proba(X_test))


@pytest.mark.parametrize("model", [REGRESSORS["co2"], REGRESSORS["nongreedy"]])
def test_what_a_loss_raises_is_raised_by_fit(model, real):
    X, y, *_ = real
    model = own(model, OwnSquaredError()).fit(X, y)
    before = vars(model).copy()
    with pytest.raises(RuntimeError, match="few rows"):
        model.set_params(loss=Failing()).fit(X, y)
    assert vars(model).keys() == before.keys() and model.forest_ is before["forest_"]


@pytest.mark.parametrize(
    "params",
    [{"objective": "oc1"}, {"objective": None}, {"refine": "alternating"}],
)
def test_splits_without_gradients_take_no_loss_of_the_user(params, real):
    X, y, *_ = real
    name, value = next(iter(params.items()))
    with pytest.raises(ValueError, match=f"{name}={value!r} has no gradient.*loss="):
        own(REGRESSORS["co2"], OwnSquaredError()).set_params(**params).fit(X, y)


def test_losses_are_checked_before_training(labelled):
    X, y, *_ = labelled
    with pytest.raises(ValueError, match=r"Loss must define loss\(y, raw\)"):
        own(CLASSIFIERS["co2"], Loss()).fit(X, y)
    with pytest.raises(ValueError, match="takes one output, y has several"):
        own(CLASSIFIERS["nongreedy"], OwnCrossEntropy()).fit(X, np.c_[y, y])
    with pytest.raises(ValueError, match="'loss' parameter of NonGreedyTreeClassifier"):
        own(CLASSIFIERS["nongreedy"], "squared_error").fit(X, y)
    with pytest.raises(TypeError, match="loss is a OwnCrossEntropy, which cannot be saved"):
        model = own(CLASSIFIERS["nongreedy"], OwnCrossEntropy()).fit(X, y)
        skforest.save(model, io.BytesIO())


def test_the_bound_is_that_of_all_leaves(real, monkeypatch):
    """Loss-augmented inference takes the largest loss minus twice the flipped margins."""
    from skforest.training import joint

    X, y, *_ = real
    seen = []

    class Trainer(joint.JointTrainer):
        def __init__(self, *args):
            super().__init__(*args)
            seen.append((self, args))

    monkeypatch.setattr(joint, "JointTrainer", Trainer)
    procedure = NonGreedyProcedure(inference="full", row_norm=None, rescale_splits=False)
    model = NonGreedyTreeRegressor(
        loss=Expectile(0.7), max_depth=3, n_epochs=1, nu=50.0, procedure=procedure, random_state=0
    )
    model.fit(X, y)
    trainer, (data, _, _, _, tree, _, leaves) = seen[0]
    W, threshold = trainer.planes()
    margin = data.X @ W.T - threshold
    losses = leaves.table(np.arange(len(data)))[:, :-1]
    expected = np.full(len(data), -np.inf)
    paths = {0: []}
    for node, left in enumerate(tree.child):
        if left >= 0:
            split = (left - 1) // 2
            paths[left], paths[left + 1] = paths[node] + [(split, -1)], paths[node] + [(split, 1)]
            continue
        cost = np.zeros(len(data))
        for split, side in paths[node]:
            m = margin[:, split]
            cost += 2 * np.abs(m) * ((m > 0) != (side > 0))
        expected = np.maximum(expected, losses[:, -1 - left] - cost)
    bound, _, _ = trainer.bounds()
    np.testing.assert_allclose(bound, expected, rtol=1e-4, atol=1e-4)


def test_probabilities_of_pure_leaves_are_finite():
    X = np.arange(40.0)[:, None]
    model = own(NonGreedyTreeClassifier(), OwnCrossEntropy()).fit(X, X[:, 0] > 20)
    proba = model.predict_proba(X)
    assert np.isfinite(proba).all() and proba.max() > 0.9


class Absolute(Loss):
    """The absolute error, which has no curvature."""

    def loss(self, y, raw):
        return np.abs(raw - y)

    def gradient_hessian(self, y, raw):
        return np.sign(raw - y), np.zeros_like(raw)


@pytest.mark.parametrize("model", [REGRESSORS["co2"], REGRESSORS["nongreedy"]])
def test_a_loss_without_curvature_is_minimised(model, real):
    X, y, X_test, y_test = real
    found = own(model, Absolute()).fit(X, y).predict(X_test)
    assert np.abs(found - y_test).mean() < 0.75 * np.abs(np.median(y) - y_test).mean()


@pytest.mark.parametrize("factor", [0.02, 50.0])
@pytest.mark.parametrize("name", ["co2", "nongreedy"])
def test_leaves_far_from_the_constant_of_the_tree_are_at_their_optimum(name, factor):
    """Newton's method needs some steps for counts that are many times as large or small."""
    X = np.linspace(0, 1, 60)[:, None]
    y = np.where(X[:, 0] < 0.25, factor, 1.0)
    model = own(REGRESSORS[name], OwnPoisson()).set_params(max_depth=1)
    found = model.fit(X, y).predict(X)
    assert len(np.unique(found)) == 2
    for value in np.unique(found):
        assert value == pytest.approx(y[found == value].mean(), rel=0.03)


def test_constants_are_pulled_towards_the_prior():
    """For the squared error, they are weighted means of the rows and of the prior."""
    rng = np.random.default_rng(0)
    loss = make_loss(OwnSquaredError(), 2).new_kernel()
    y, weight = rng.normal(size=(30, 2)) + [5, -5], rng.exponential(size=30) ** 2
    group, prior, strength = np.arange(30) % 3, np.array([1.0, 2.0]), np.array([4.0, 40.0])
    start = np.tile([3.0, 3.0], (4, 1))  # the last group has no rows
    found = fitted_constants(loss, y, weight, group, start, prior, strength, 3)
    total = np.bincount(group, weight, 4)[:, None]
    sums = np.array([weight[group == k] @ y[group == k] for k in range(4)])
    np.testing.assert_allclose(found, (sums + strength * prior) / (total + strength))


def test_slopes_of_a_loss_have_the_units_of_the_response():
    kernel, rng = make_loss(OwnPoisson(), 2).new_kernel(), np.random.default_rng(0)
    kernel.set_units(SimpleNamespace(baseline=np.array([0.5, -1.0]), response=np.array([0.1, 3])))
    raw, y = rng.normal(size=(5, 2)), rng.poisson(2.0, size=(5, 2)).astype(float)
    loss, slope = kernel.evaluate(raw, y)
    np.testing.assert_allclose(loss, kernel.losses(raw, y))
    for k, step in enumerate(1e-6 * np.eye(2)):
        found = (kernel.losses(raw + step, y) - kernel.losses(raw - step, y)) / 2e-6
        np.testing.assert_allclose(slope[:, k], found, rtol=1e-5)


def test_second_derivatives_below_0_are_refused():
    class Bent(OwnSquaredError):
        def gradient_hessian(self, y, raw):
            return raw - y, np.where(y > 0, 0.0, -1e-3)

    kernel, y = make_loss(Bent(), 1).new_kernel(), np.array([[1.0], [-1.0]])
    assert kernel.derivatives(y[:1], y[:1])[1] == 0
    with pytest.raises(ValueError, match="second derivative of -0.001; 0 or more is needed"):
        kernel.derivatives(y, y)


class Steep(OwnSquaredError):
    """The squared error, much steeper for targets above 1."""

    def loss(self, y, raw):
        return np.where(y > 1, 9.0, 1.0) * (raw - y) ** 2 / 2

    def gradient_hessian(self, y, raw):
        factor = np.where(y > 1, 9.0, 1.0)
        return factor * (raw - y), factor


def test_units_of_a_loss_are_those_of_weighted_rows():
    y, weight = np.array([[0.0], [1.0], [3.0]]), np.array([5.0, 1.0, 2.0])
    target = UserTarget(make_loss(Steep(), 1).new_kernel(), y, weight, False)
    mean = weight @ y[:, 0] / 8
    np.testing.assert_allclose(target.prior, mean)
    np.testing.assert_allclose(target.curve, (5 + 1 + 2 * 9) / 8)
    saved = np.array([1, 1, 9]) * (y[:, 0] - mean) ** 2 / 2
    assert target.unit == pytest.approx(8 / (weight @ saved))


@pytest.mark.parametrize("name", ["co2", "nongreedy", "refined"])
def test_leaves_weigh_their_rows(name, real):
    """Of a tree that cannot split, the leaf is the weighted constant of least loss."""
    X, y, *_ = real
    weight = np.where(y > np.median(y), 5.0, 1.0)
    model = own(REGRESSORS[name], Expectile(0.8)).set_params(min_samples_leaf=300)
    values = [model.fit(X, y, w).predict(X[:1])[0] for w in (None, weight)]
    for w, value in zip((np.ones(len(y)), weight), values):
        share = w * np.where(y > value, 0.8, 0.2)
        assert abs(share @ (y - value)) < 1e-3 * share.sum() * y.std()
    assert values[1] > values[0] + 0.3 * y.std()


@pytest.mark.parametrize("name", ["co2", "nongreedy"])
def test_splits_weigh_their_rows(name):
    """Rows of nearly no weight have no say in where the hyperplane is."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    is_loud = np.arange(400) < 200
    side = np.where(is_loud, X @ [1, 1] > 0, X @ [1, -1] > 0)
    model = own(REGRESSORS[name], Expectile(0.6)).set_params(max_depth=1)
    if name == "co2":
        model.set_params(n_estimators=1)
    model.fit(X, 3.0 * side, np.where(is_loud, 1.0, 1e-6))
    found = model.predict(X) > 1.5
    assert np.mean(found[is_loud] == side[is_loud]) > 0.9
    assert np.mean(found[~is_loud] == side[~is_loud]) < 0.7


@pytest.mark.parametrize("leaves", ["counts", "trained"])
def test_a_tree_that_is_returned_as_it_was_grown_has_the_leaves_of_the_loss(
    leaves, real, monkeypatch
):
    X, y, *_ = real
    monkeypatch.setattr("skforest.training.joint.keeps_gain", lambda *args: False)
    model = NonGreedyTreeRegressor(
        loss=Expectile(0.9),
        n_epochs=1,
        max_depth=3,
        procedure=NonGreedyProcedure(leaves=leaves),
        random_state=0,
    )
    with pytest.warns(ConvergenceWarning, match="lost more than a third"):
        model.fit(X, y)
    assert np.mean(y > model.predict(X)) < 0.4  # with means of the rows, about a half


@pytest.mark.parametrize("model", [REGRESSORS["co2"], REGRESSORS["nongreedy"]])
def test_alternating_refinement_refuses_a_loss_of_the_user(model, real):
    X, y, *_ = real
    model = own(model, Expectile(0.9)).fit(X, y)
    with pytest.raises(ValueError, match="loss=.*does not minimise"):
        skforest.refine(model, X, y)


def test_steps_of_leaves_follow_weighted_gradients():
    """Of half of the squared error, in closed form; long steps end at the mean of the rows."""
    rng = np.random.default_rng(0)
    y, leaf = rng.normal(size=(60, 1)), np.repeat([0, 1, 2], 20)
    kernel = make_loss(OwnSquaredError(), 1).new_kernel()
    data = SimpleNamespace(y=y, target=y, is_classification=False)
    leaves = UserTreeLeaves(kernel, data, np.ones(60), leaf, 3, 0.1)
    rows, rate = np.array([3, 5, 25]), np.array([0.2, 0.05, 0.1])
    before, unit = leaves.raw.copy(), leaves.unit
    leaves.step(rows, leaf[rows], rate)
    gradient = unit * rate * (before[leaf[rows], 0] - y[rows, 0])
    expected = before[:, 0] - [gradient[0] + gradient[1], gradient[2], 0]
    np.testing.assert_allclose(leaves.raw[:, 0], expected)
    leaves.step(rows, leaf[rows], 1000 * rate)
    means = [np.average(y[rows[:2], 0], weights=rate[:2]), y[25, 0], before[2, 0]]
    np.testing.assert_allclose(leaves.raw[:, 0], means)

    split = UserLeaves(kernel, np.zeros(1))
    split.start(y, np.ones(60), 60, 0.1)
    before, share = split.values.copy(), np.array([[0.3, 0.1, 0.0], [0.0, 0.2, 0.4]])
    split.step(rows, share, 0.0, 0.1)
    velocity, first = 2 * share @ (before[0, 0] - y[rows, 0]), split.values.copy()
    np.testing.assert_allclose(first[:, 0], before[:, 0] - 0.1 * velocity)
    split.step(rows, share, 0.5, 0.1)
    drift = 2 * np.array([part @ (one - y[rows, 0]) for part, one in zip(share, first[:, 0])])
    expected = first[:, 0] - 0.1 * (0.5 * velocity + drift)
    np.testing.assert_allclose(split.values[:, 0], expected)
