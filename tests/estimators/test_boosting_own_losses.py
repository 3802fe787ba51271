"""Oblique boosting with a loss of the user."""

import pickle

import numpy as np
import pytest
from makers import OwnCrossEntropy, OwnPoisson, OwnSquaredError
from makers import boosting_rows as rows_of
from makers import quick_boosting as quick
from sklearn.base import clone

import skforest
from skforest import (
    ObliqueBoostingClassifier,
    ObliqueBoostingRegressor,
    PartitionDisplay,
    RandomHingeForestRegressor,
    save,
)
from skforest.training.losses import user


class OwnLogCosh(skforest.Loss):
    def loss(self, y, raw):
        return (np.logaddexp(raw - y, y - raw) - np.log(2)).sum(axis=1)

    def gradient_hessian(self, y, raw):
        slope = np.tanh(raw - y)
        return slope, 1 - slope**2

    def initial(self, y, weight):
        return np.median(y, axis=0)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_a_loss_of_the_user_is_the_built_in_one(n_outputs):
    X, y = rows_of(ObliqueBoostingRegressor)
    y = y if n_outputs == 1 else np.stack([y, X[:, 0] - X[:, 1]], axis=1)
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    options = {"linear_leaves": False, "linear_start": None}
    plain = quick(ObliqueBoostingRegressor, **options).fit(X, y, weight)
    model = quick(ObliqueBoostingRegressor, loss=OwnSquaredError()).fit(X, y, weight)
    scale = np.std(y, axis=0)
    if n_outputs == 1:  # with several, the units of the outputs differ
        np.testing.assert_allclose(model.predict(X) / scale, plain.predict(X) / scale, atol=1e-5)
        assert model.n_iter_ == plain.n_iter_
    assert model.score(X, y) > 0.5
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_a_loss_for_each_output_counts_as_the_sum():
    y, raw = np.random.default_rng(0).normal(size=(2, 5, 3))
    kernel = user.UserKernel(OwnSquaredError(), 3)
    np.testing.assert_allclose(kernel.evaluate(raw, y)[0], np.square(raw - y).sum(axis=1) / 2)


class OwnLogLoss(OwnCrossEntropy):
    """It starts from the shares of the classes, as boosting does."""

    def initial(self, y, weight):
        return np.log(np.average(y, axis=0, weights=weight))


@pytest.mark.parametrize("n_bags", [1, 3])
def test_a_loss_of_the_user_of_labels_is_the_built_in_one(n_bags):
    X, y = rows_of(ObliqueBoostingClassifier)
    labels = np.array(["a", "b", "c"])[y]
    options = {"n_bags": n_bags, "class_weight": {"a": 2, "b": 1, "c": 1}, "early_stopping": True}
    weight = np.random.default_rng(0).integers(0, 3, len(y))
    plain = quick(ObliqueBoostingClassifier, **options).fit(X, labels, weight)
    model = quick(ObliqueBoostingClassifier, loss=OwnLogLoss(), **options).fit(X, labels, weight)
    assert model.n_iter_ == plain.n_iter_
    expected = plain.predict_proba(X)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-4)
    np.testing.assert_allclose(model.decision_function(X), np.log(expected), atol=1e-2)
    *_, last = model.staged_predict_proba(X)
    np.testing.assert_array_equal(last, model.predict_proba(X))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("n_classes", [1, 2])
def test_one_and_two_classes_with_a_loss_of_the_user(n_classes):
    """Two classes have two raw predictions then."""
    X = np.random.default_rng(0).normal(size=(150, 3))
    y = (X[:, 0] > 0) * (n_classes - 1)
    given = {"X_val": X[100:], "y_val": y[100:]}
    model = quick(ObliqueBoostingClassifier, loss=OwnLogLoss(), warm_start=True, n_estimators=9)
    model.fit(X[:100], y[:100], **given).set_params(n_estimators=12).fit(X[:100], y[:100], **given)
    assert model.score(X, y) > 0.9
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1, rtol=1e-6)
    with pytest.raises(ValueError, match="takes one output, y has several"):
        clone(model).fit(X, np.column_stack([y, y]))
    if n_classes == 2:
        with pytest.raises(ValueError, match="monotonic_cst=.*no `Loss` of your own"):
            clone(model).set_params(monotonic_cst=[1, 0, 0]).fit(X, y)


def test_losses_of_the_user_train(tmp_path):
    X, y = rows_of(ObliqueBoostingRegressor)
    model = quick(ObliqueBoostingRegressor, loss=OwnLogCosh(), n_jobs=2).fit(X, y)
    assert model.score(X, y) > 0.5
    assert all(curve[0] > curve[-1] for curve in model.loss_curve_)
    *_, last = model.staged_predict(X)
    np.testing.assert_array_equal(last, model.predict(X))
    with pytest.raises(TypeError, match="loss is a OwnLogCosh, which cannot be saved"):
        save(model, tmp_path / "model")
    counts = np.random.default_rng(0).poisson(np.exp(X[:, 0]))
    # Penalties differ, as "poisson" divides targets by their mean.
    options = {"n_bags": 1, "early_stopping": False, "l2_regularization": 0.0}
    own = quick(ObliqueBoostingRegressor, loss=OwnPoisson(), **options).fit(X, counts)
    plain = quick(ObliqueBoostingRegressor, loss="poisson", **options).fit(X, counts)
    ratio = own.predict(X) / plain.predict(X)  # constant: "poisson" is calibrated
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-4)


def test_links_of_user_losses_are_applied_everywhere_or_refused():
    """Blends average predictions, which are explained; exports are refused."""
    X = np.random.default_rng(0).normal(size=(120, 4))
    y = np.exp(X[:, 0]) + X[:, 1] ** 2
    model = ObliqueBoostingRegressor(30, loss=OwnPoisson(), n_bags=1, random_state=0)
    members = [("own", model), ("forest", skforest.ManifoldForestRegressor(5))]
    blend = skforest.BlendedForestRegressor(members=members, random_state=0).fit(X, y)
    weighted = sum(
        blend.weights_[name] * member.predict(X) for name, member in blend.members_.items()
    )
    np.testing.assert_allclose(blend.predict(X), weighted, rtol=1e-12)
    assert blend.weights_["own"] > 0.5
    rows = X.astype(np.float32)
    model.fit(rows, y)
    assert (model.predictor().predict(rows) == model.predict(rows)).all()
    values = skforest.shapley_values(model, rows[:2], rows[:9])
    raw = np.log(model.predict(rows[:2]))
    np.testing.assert_allclose(values.base_values + values.values.sum(1), raw, atol=1e-6)
    for one in (model, blend):  # by their predictions
        lists = rows[:2].tolist(), rows[:9].tolist()
        values = skforest.shapley_values(one, *lists, "response", random_state=0)
        sums = values.base_values + values.values.sum(axis=1)
        np.testing.assert_allclose(values.base_values, one.predict(rows[:9]).mean(), rtol=1e-6)
        np.testing.assert_allclose(sums, one.predict(rows[:2]), rtol=1e-6)
    for function in (skforest.to_c, skforest.to_dict):
        with pytest.raises((TypeError, ValueError), match="loss|its forest alone"):
            function(model)


@pytest.mark.parametrize(
    "method, wrong, message",
    [
        ("gradient_hessian", lambda y, raw: raw - y, "must return two arrays"),
        ("gradient_hessian", lambda y, raw: (raw[:, 0], raw[:, 0]), "returned shape"),
        ("gradient_hessian", lambda y, raw: (raw, raw - np.inf), "infinite"),
        ("gradient_hessian", lambda y, raw: (raw, -np.ones_like(raw)), "second derivative of -1"),
        ("loss", lambda y, raw: 0.0, "loss returned shape"),
        ("initial", lambda y, weight: 0.0, "initial returned shape"),
    ],
)
def test_wrong_results_of_losses_of_the_user(method, wrong, message):
    X, y = rows_of(ObliqueBoostingRegressor)
    loss = OwnSquaredError()
    setattr(loss, method, wrong)
    with pytest.raises(ValueError, match=f"OwnSquaredError.*{message}"):
        quick(ObliqueBoostingRegressor, loss=loss).fit(X, y)


def test_an_inverse_link_must_keep_the_shape():
    class Flat(OwnSquaredError):
        def inverse_link(self, raw):
            return raw[:, 0]

    X, y = rows_of(ObliqueBoostingRegressor)
    # The fit predicts held-out rows, if it has any.
    with pytest.raises(ValueError, match=r"Flat.inverse_link returned shape \(150,\), expected"):
        quick(ObliqueBoostingRegressor, loss=Flat()).fit(X, y).predict(X)


@pytest.mark.parametrize("model", [ObliqueBoostingRegressor, RandomHingeForestRegressor])
def test_an_inverse_link_must_return_numbers(model):
    class Missing(OwnSquaredError):
        def inverse_link(self, raw):
            return np.full_like(raw, np.nan)

    X, y = rows_of(ObliqueBoostingRegressor)
    fitted = model(3, loss=Missing(), n_bags=1)
    if model is ObliqueBoostingRegressor:  # with held-out rows, the fit predicts them
        fitted.set_params(early_stopping=False)
    fitted.fit(X, y)
    with pytest.raises(ValueError, match="Missing.inverse_link returned infinite or missing"):
        fitted.predict(X)


def test_boosting_needs_second_derivatives():
    """Without any, the step of a leaf would be its gradient divided by the penalty alone."""

    class Straight(OwnSquaredError):
        def gradient_hessian(self, y, raw):
            slope, curve = super().gradient_hessian(y, raw)
            return slope, 0 * curve

    X, y = rows_of(ObliqueBoostingRegressor)
    with pytest.raises(ValueError, match="Straight.gradient_hessian returned second derivatives"):
        quick(ObliqueBoostingRegressor, loss=Straight()).fit(X, y)
    one = np.ones(len(y))  # nothing to learn
    model = quick(ObliqueBoostingRegressor, loss=Straight()).fit(X, one)
    assert (model.predict(X) == 1).all()


@pytest.mark.parametrize("new", ["poisson", "squared_error"])
def test_a_loss_that_is_set_after_fit_changes_no_prediction(new):
    X, _ = rows_of(ObliqueBoostingRegressor)
    y = np.exp(X[:, 0])
    model = quick(ObliqueBoostingRegressor, loss=OwnPoisson()).fit(X, y)
    before = model.predict(X)
    assert (model.set_params(loss=new).predict(X) == before).all()
    before = model.fit(X, y).predict(X)
    assert (model.set_params(loss=OwnPoisson()).predict(X) == before).all()
    with pytest.raises(ValueError, match="loss=.*Poisson.* does not match the trees"):
        model.set_params(warm_start=True, n_bags=3).fit(X, y)
    assert (model.predict(X) == before).all()


@pytest.mark.parametrize(
    "model",
    [ObliqueBoostingRegressor(5), RandomHingeForestRegressor(5, learning_rate=0.01, max_iter=3)],
)
def test_planes_have_linked_predictions(model):
    """PartitionDisplay draws what the model predicts, and a tree in the same unit."""
    pytest.importorskip("matplotlib").use("Agg")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    model = clone(model).set_params(loss=OwnPoisson(), random_state=0)
    model.fit(X, rng.poisson(np.exp(X[:, 0] / 2)))
    plane = PartitionDisplay.from_estimator(model, X, grid_resolution=4)
    grid = np.array([[a, b] for b in plane.y for a in plane.x])
    np.testing.assert_array_equal(plane.response.ravel(), model.predict(grid))
    tree = PartitionDisplay.from_estimator(model, X, tree=0, grid_resolution=4)
    expected = np.exp(model.forest_[0].response(grid))
    np.testing.assert_allclose(tree.response.ravel(), expected.ravel())
