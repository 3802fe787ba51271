"""Estimators as modules of PyTorch, and modules as estimators."""

import copy
import pickle

import numpy as np
import pytest
from makers import OwnPoisson, made
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError

import skforest
from skforest import (
    ManifoldForestClassifier,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # beside other processes of the suite
from skforest.torch import (  # noqa: E402
    HingeEnsemble,
    HingeFern,
    HingeForest,
    RunningStandardiser,
    from_estimator,
    to_estimator,
)

KINDS = pytest.mark.parametrize("kind", [HingeForest, HingeFern])

BOTH = pytest.mark.parametrize("cls", [RandomHingeForestClassifier, RandomHingeForestRegressor])


@pytest.fixture(autouse=True)
def same_random_numbers():
    torch.manual_seed(0)


def make_layer(kind, *sizes, **parameters):
    """A layer whose leaves are of the order of 1."""
    layer = kind(*sizes, **{"standardise": None} | parameters)
    with torch.no_grad():
        layer.leaves.normal_()
    return layer


# ----------------------------------------------------------------------------- estimator to module


def make_data(cls, n=150):
    if cls is RandomHingeForestClassifier:
        X, y = make_classification(n, 7, n_informative=5, n_classes=3, random_state=0)
    else:
        X, y = make_regression(n, 7, noise=3.0, random_state=0)
    return 3 * X + 10, y


def make_model(cls, **parameters):
    short = {"n_estimators": 12, "max_iter": 120, "n_bags": 2, "random_state": 0, "max_depth": 6}
    return made(cls, **short | parameters)


def predictions(module, X):
    """Predictions of a module on the scale of `Forest.response`, in float64."""
    module.eval()
    with torch.no_grad():
        out = module(torch.from_numpy(np.asarray(X))).double()
    link = {
        "identity": lambda raw: raw,
        "softmax": lambda raw: raw.softmax(dim=1),
        "log": torch.exp,
    }
    return link[module.link](out).numpy()


@pytest.mark.thin(2)
@BOTH
@pytest.mark.parametrize("structure", ["tree", "fern"])
@pytest.mark.parametrize("features", ["linear", "identity", "both"])
@pytest.mark.parametrize("n_bags", [1, 3])
def test_conversion_to_a_module_and_back_keeps_predictions(cls, structure, features, n_bags):
    X, y = make_data(cls)
    model = make_model(cls, structure=structure, features=features, n_bags=n_bags).fit(X, y)
    assert (model.forest_.n_leaves < 64).all()  # subtrees were removed
    X_test = 10 + 5 * np.random.default_rng(1).normal(size=(200, 7))
    X_test[::5] *= 100  # far outside of the training range
    expected = model.forest_.response(X_test)
    scale = abs(expected).max()
    for dtype, tolerance in ((torch.float32, 2e-5), (torch.float64, 5e-6)):
        module = from_estimator(model, dtype=dtype)
        assert len(module.bags) == n_bags and module.bags[0][1].thresholds.dtype == dtype
        kind = HingeFern if structure == "fern" else HingeForest
        assert all(isinstance(bag[1], kind) for bag in module.bags)
        np.testing.assert_allclose(predictions(module, X_test), expected, atol=tolerance * scale)
    again = to_estimator(module)
    assert type(again) is cls and again.structure == structure
    np.testing.assert_allclose(again.forest_.response(X_test), expected, atol=2e-6 * scale)
    if cls is RandomHingeForestClassifier:
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    # Removed subtrees are removed again, and so are subtrees of zeros that no batch reached.
    assert (again.forest_.n_leaves <= model.forest_.n_leaves).all()
    assert again.forest_.n_leaves.sum() > 0.95 * model.forest_.n_leaves.sum()


def ensemble(link, *kinds, **given):
    """An ensemble of random bags, each of an aggregate and a number of trees."""
    bags = [make_layer(HingeForest, 4, 3, n, 2, aggregate=kind) for kind, n in kinds]
    offset, scale, baseline = (torch.full((n,), value) for n, value in ((4, 0), (4, 1), (3, 0.5)))
    return HingeEnsemble(bags, offset.double(), scale.double(), baseline.double(), link, **given)


@pytest.mark.parametrize("link, classes, kinds", [
    ("identity", None, [("sum", 5), ("sum", 9)]),
    ("identity", None, [("mean", 5), ("mean", 5)]),
    ("identity", list("abc"), [("sum", 5)]),
    ("log", list("abc"), [("sum", 5)]),
    ("softmax", list("abc"), [("sum", 5), ("sum", 9)]),
    ("log", None, [("sum", 5), ("sum", 5)]),
])  # fmt: skip
def test_ensembles_have_the_predictions_of_their_estimator(link, classes, kinds):
    module = ensemble(link, *kinds).eval()
    X = np.random.default_rng(0).normal(size=(20, 4))
    model = to_estimator(module, classes=classes)
    if classes is None:
        found, expected = model.predict(X), predictions(module, X)
    else:
        logits = module(torch.from_numpy(X)).detach().double()
        found, expected = model.predict_proba(X), logits.softmax(dim=1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("link, classes, kinds, message", [
    ("identity", None, [("sum", 5), ("mean", 5)], "the same aggregate"),
    ("identity", None, [("mean", 5), ("mean", 9)], "the same number of trees"),
    ("identity", list("abc"), [("sum", 5), ("sum", 5)], "averages the probabilities of its bags"),
    ("log", list("abc"), [("sum", 5), ("sum", 5)], "averages the probabilities"),
    ("softmax", None, [("sum", 5)], "classes=None"),
    ("softmax", ["a", 1, None], [("sum", 5)], "labels of one type"),
])  # fmt: skip
def test_ensembles_that_no_estimator_predicts_are_refused(link, classes, kinds, message):
    with pytest.raises(ValueError, match=message):
        to_estimator(ensemble(link, *kinds), classes=classes)


def test_columns_of_X_are_those_of_the_module():
    pandas = pytest.importorskip("pandas")
    module, X = ensemble("identity", ("sum", 5), feature_names=list("abcd")), np.eye(4)
    frame = pandas.DataFrame(X, columns=list("abcd"))
    plain, named = (to_estimator(module, X=table) for table in (X, frame))
    np.testing.assert_array_equal(named.feature_importances_, plain.feature_importances_)
    with pytest.raises(ValueError, match="X has columns .*'d', 'c'.* but the module takes"):
        to_estimator(module, X=frame[["d", "c", "b", "a"]])
    tables = [pandas.DataFrame(X), pytest.importorskip("pyarrow").Table.from_pandas(frame)]
    for table in tables:
        found = to_estimator(module, X=table).feature_importances_
        np.testing.assert_array_equal(found, plain.feature_importances_)


def test_modules_do_not_depend_on_the_default_device():
    X, y = make_data(RandomHingeForestRegressor)
    model = make_model(RandomHingeForestRegressor).fit(X, y)
    with torch.device("meta"):
        module = from_estimator(model)
        found = module(torch.from_numpy(X)).detach().numpy()
    np.testing.assert_allclose(found, model.forest_.response(X), rtol=1e-4)


def test_trees_stay_trees_if_structure_is_set_to_fern_after_fit():
    X, y = make_data(RandomHingeForestClassifier)
    model = make_model(RandomHingeForestClassifier).fit(X, y).set_params(structure="fern")
    module = from_estimator(model)
    assert isinstance(module.bags[0][1], HingeForest)
    np.testing.assert_allclose(predictions(module, X), model.predict_proba(X), atol=1e-4)


def test_logits_of_one_bag_are_sums_of_trees():
    X, y = make_data(RandomHingeForestClassifier)
    model = make_model(RandomHingeForestClassifier, n_bags=1).fit(X, y)
    logits = from_estimator(model)(torch.from_numpy(X)).detach().numpy()
    raw = model.forest_.router.respond(model.forest_.map_features(X), 0, 12)
    np.testing.assert_allclose(logits, raw, atol=1e-4)


@BOTH
def test_a_linear_head_is_multiplied_into_the_leaf_vectors(cls):
    X, y = make_data(cls)
    model = make_model(cls, head="linear").fit(X, y)
    module = from_estimator(model)
    expected = model.forest_.response(X)
    np.testing.assert_allclose(predictions(module, X), expected, atol=2e-5 * abs(expected).max())
    again = to_estimator(module).forest_.response(X)
    np.testing.assert_allclose(again, expected, atol=2e-5 * abs(expected).max())


def test_images_poisson_loss_names_and_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6, 6))
    y = (X[:, 2:4, 2:4].sum(axis=(1, 2)) > 0).astype(int)
    flat = X.reshape(120, 36)
    conv = make_model(
        RandomHingeForestClassifier, features="conv", feature_shape=(6, 6), kernel_size=3, stride=1
    ).fit(X, np.array(["no", "yes"])[y])
    module = from_estimator(conv)
    np.testing.assert_allclose(predictions(module, flat), conv.predict_proba(flat), atol=1e-4)
    again = to_estimator(module)
    assert len(again.forest_.sparse_start) > 1  # kernels see a quarter of the pixels
    np.testing.assert_array_equal(again.predict(flat), conv.predict(flat))
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame(flat[:, :3], columns=["a", "b", "c"])
    counts = rng.poisson(np.exp(flat[:, 0]))
    count = make_model(RandomHingeForestRegressor, loss="poisson").fit(table, counts)
    module = from_estimator(count)
    np.testing.assert_allclose(
        predictions(module, flat[:, :3])[:, 0], count.predict(table), rtol=1e-3
    )
    again = to_estimator(module)
    assert again.loss == "poisson" and again.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(again.predict(table), count.predict(table), rtol=1e-4)
    several = make_model(RandomHingeForestRegressor).fit(flat, flat[:, :2])
    again = to_estimator(from_estimator(several))
    np.testing.assert_allclose(again.predict(flat), several.predict(flat), atol=1e-4)


@BOTH
def test_trees_without_splits_and_constant_targets(cls):
    X, y = make_data(cls)
    for n in (1, 150):
        model = make_model(cls).fit(X[:n], np.full(n, y[0]))
        module = from_estimator(model)
        again = to_estimator(module)
        np.testing.assert_allclose(predictions(module, X), model.forest_.response(X), atol=1e-6)
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
    empty = copy.deepcopy(model)
    trees = {"tree_start": np.arange(25), "child": np.full(24, -1), "threshold": []}
    kept = {name: getattr(model.forest_, name) for name in ("offset", "scale")}
    value = {"value": np.ones(model.forest_.n_outputs)}
    empty.forest_ = skforest.Forest(trees | kept | value, **model.forest_.metadata)
    np.testing.assert_array_equal(predictions(from_estimator(empty), X), empty.forest_.response(X))


@BOTH
def test_a_module_can_be_trained_further(cls):
    """All parameters have gradients, removed subtrees included, and the estimator improves."""
    X, y = make_data(cls)
    model = make_model(cls, max_iter=20).fit(X, y)
    module = from_estimator(model).train()
    x = torch.from_numpy(X)
    is_classifier = cls is RandomHingeForestClassifier
    target = torch.from_numpy(y) if is_classifier else torch.from_numpy(y).float()[:, None]
    loss_function = torch.nn.functional.cross_entropy if is_classifier else torch.nn.MSELoss()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = loss_function(module(x), target)
        loss.backward()
        assert all(p.grad.abs().sum() > 0 for p in module.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    again = to_estimator(module, X=X)
    expected = predictions(module, X)
    np.testing.assert_allclose(
        again.forest_.response(X), expected, atol=1e-4 * abs(expected).max()
    )
    assert again.score(X, y) > model.score(X, y)


# ----------------------------------------------------------------------------- module to estimator


@pytest.mark.parametrize("standardise", ["batch", "running"])
def test_linear_layers_and_normalisations_become_directions_of_the_forest(standardise):
    network = torch.nn.Sequential(
        RunningStandardiser(5) if standardise == "running" else torch.nn.BatchNorm1d(5, eps=5.0),
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(5, 9), torch.nn.Dropout(0.1)),
        torch.nn.Linear(9, 8),
        torch.nn.Identity(),
        HingeForest(8, 3, 10, 4, aggregate="mean", standardise=standardise),
    )
    x = 100 + 7 * torch.randn(300, 5)
    for part in x.split(50):
        network(part)
    with torch.no_grad():
        network[-1].leaves.normal_()
        network[-1].leaves[:, :4] = 0
        for p in network[0].parameters():
            p.uniform_(1, 2)
    network.eval()
    raw = network(x).detach().numpy()
    labels = np.array(["z", "a", "m"])
    model = to_estimator(network, classes=labels)
    proba = torch.from_numpy(raw).softmax(dim=1).numpy()
    np.testing.assert_array_equal(model.classes_, ["a", "m", "z"])
    np.testing.assert_allclose(model.predict_proba(x.numpy()), proba[:, [1, 2, 0]], atol=1e-4)
    np.testing.assert_array_equal(model.predict(x.numpy()), labels[raw.argmax(axis=1)])
    regressor = to_estimator(network)
    np.testing.assert_allclose(regressor.predict(x.numpy()), raw, atol=1e-4)
    assert (model.forest_.n_leaves == 12 + 1).all()  # four leaves of zeros became one


@KINDS
@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_layer_without_a_network_uses_the_columns_of_X(kind, n_outputs):
    layer = make_layer(kind, 4, n_outputs, 6, 3)
    x = torch.randn(50, 4)
    model = to_estimator(layer, X=x.numpy())
    expected = layer(x).detach().numpy()
    np.testing.assert_allclose(model.predict(x.numpy()).reshape(50, -1), expected, atol=1e-5)
    assert model.forest_.node_weight[model.forest_.tree_start[:-1]].tolist() == [50] * 6
    assert (model.n_bags_, model.n_directions_, model.max_depth_) == (1, 4, 3)
    assert model.n_estimators_ == 6
    importances = model.feature_importances_
    assert importances.sum() == pytest.approx(1) and len(importances) == 4
    # The derivatives of single trees by the standardised columns.
    slopes = np.zeros((6, 4))
    layer.aggregate = "none"
    for tree in range(6):
        squares = torch.zeros(50, 4)
        for k in range(n_outputs):
            z = x.clone().requires_grad_()
            layer(z)[:, tree, k].sum().backward()
            squares += z.grad**2
        slopes[tree] = squares.sqrt().sum(dim=0).numpy() * x.numpy().std(axis=0)
    np.testing.assert_allclose(importances, slopes.sum(axis=0) / slopes.sum(), rtol=1e-4)
    assert not to_estimator(make_layer(kind, 4, 1)).feature_importances_.any()


@KINDS
def test_only_leaves_whose_values_are_all_0_are_left_out(kind):
    layer, x = make_layer(kind, 4, 2, 6, 3), torch.randn(50, 4)
    with torch.no_grad():
        layer.leaves[:, ::2, 0] = 0
        layer.leaves[:, :2] = 0
    expected = layer(x).numpy(force=True)
    np.testing.assert_allclose(to_estimator(layer).predict(x.numpy()), expected, atol=1e-5)


def test_constant_columns_have_no_importance_after_conversion():
    X, y = make_data(RandomHingeForestRegressor)
    X[:, 1] = 32.070518
    model = make_model(RandomHingeForestRegressor).fit(X, y)
    module = from_estimator(model)
    again = to_estimator(module, X=X[:9])  # those of the training rows remain
    np.testing.assert_array_equal(again.forest_.deviation, model.forest_.deviation)
    for spread in (module.deviation, None):
        module.deviation = spread
        importances = to_estimator(module, X=X).feature_importances_
        assert importances[1] == 0 and importances[0] > 0


@BOTH
def test_a_converted_estimator_can_be_saved_grown_and_plotted(cls, tmp_path):
    X, y = make_data(cls)
    module = from_estimator(make_model(cls).fit(X, y))
    model = to_estimator(module, X=X)
    skforest.save(model, tmp_path / "model.npz")
    for other in (
        skforest.load(tmp_path / "model.npz"),
        pickle.loads(pickle.dumps(model)),
        to_estimator(from_estimator(model), X=X),
    ):
        np.testing.assert_allclose(other.predict(X), model.predict(X), rtol=1e-5)
    np.testing.assert_array_equal(
        skforest.load(tmp_path / "model.npz").forest_.response(X), model.forest_.response(X)
    )
    assert model.apply(X).shape == (150, 24) and model.score(X, y) > 0.7
    assert model.forest_.node_weight[0] == 150
    assert model.get_params()["n_estimators"] == 12
    grown = model.set_params(warm_start=True, n_bags=3, max_iter=50, random_state=1).fit(X, y)
    assert len(grown.forest_) == 36
    np.testing.assert_array_equal(
        grown.forest_[:24].response(X), to_estimator(module, X=X).forest_[:24].response(X)
    )
    pytest.importorskip("matplotlib").use("Agg")
    assert skforest.plot_tree(grown, max_depth=1)


def test_missing_values_are_filled_as_by_the_estimator():
    X, y = make_data(RandomHingeForestClassifier)
    X[::7, 1] = np.nan
    estimator = make_model(RandomHingeForestClassifier).fit(X, y)
    module = from_estimator(estimator)
    expected = estimator.predict_proba(X)
    found = module(torch.from_numpy(X)).softmax(dim=1).numpy(force=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    for samples in (None, X):
        again = to_estimator(module, X=samples).predict_proba(X)
        np.testing.assert_allclose(again, expected, atol=1e-6)
    half = to_estimator(module.bfloat16()).predict_proba(X)
    np.testing.assert_allclose(half, expected, atol=0.1)


def test_tails_of_equal_knots_have_no_length():
    """Also exactly at the limits, where distance and width are 0; neither have derivatives."""
    ends = torch.tensor([1.0])
    shared = {"low": -ends, "high": ends, "tail": torch.tensor([0.5])}
    knots = torch.tensor([[[1.0, 3.0], [-1.0, -1.0]]])
    layer = make_layer(HingeFern, 1, 1, 1, max_depth=1)
    module = HingeEnsemble(
        [torch.nn.Sequential(layer)], 0 * ends, ends, 0 * ends, "identity", knots=knots, **shared
    )
    x = torch.tensor([[0.5], [1.0], [2.0], [9.0], [-1.0], [-4.0]], requires_grad=True)
    found = module._limited(x)
    assert found[:, 0].tolist() == [0.5, 1, 1.125, 1.25, -1, -1]
    found.sum().backward()
    assert x.grad[[0, 2, 3, 5], 0].tolist() == [1, 0.125, 0, 0] and x.grad.isfinite().all()


def test_estimators_keep_no_memory_of_the_module():
    X, y = make_data(RandomHingeForestClassifier)
    module = from_estimator(make_model(RandomHingeForestClassifier).fit(X, y))
    estimator = to_estimator(module)
    expected = estimator.predict_proba(X)
    for tensor in module.state_dict().values():
        tensor.zero_()
    np.testing.assert_array_equal(estimator.predict_proba(X), expected)


def test_unsupported_modules_and_estimators_raise():
    X, y = make_data(RandomHingeForestClassifier)
    with pytest.raises(
        TypeError, match="RandomHingeForestRegressor, got ManifoldForestClassifier"
    ):
        from_estimator(ManifoldForestClassifier(2).fit(X, y))
    with pytest.raises(NotFittedError):
        from_estimator(RandomHingeForestClassifier())
    categories = make_model(RandomHingeForestClassifier, categorical_features=[0])
    holes = np.where(y[:, None] == 0, np.nan, X)
    has_missing = make_model(RandomHingeForestClassifier).fit(holes, y)
    counts = made(RandomHingeForestRegressor, 2, max_iter=2, loss=OwnPoisson()).fit(X, y)
    for model, message in (
        (categories.fit(np.c_[np.arange(150) % 3, X[:, 1:]], y), "made from categories"),
        (has_missing, "made from missing values; .* fill them before"),
        (make_model(RandomHingeForestClassifier, prior=[1, 2, 3]).fit(X, y), "prior="),
        (counts, "the link of loss=.*OwnPoisson.* is code"),
    ):
        with pytest.raises(ValueError, match=message):
            from_estimator(model)
    layer = HingeForest(4, 3, 5, 2)
    with pytest.raises(TypeError, match="has a ReLU in front of its trees; only Linear, "):
        to_estimator(torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.ReLU(), layer))
    bare = torch.nn.BatchNorm1d(4, track_running_stats=False)
    with pytest.raises(TypeError, match="BatchNorm1d without running statistics"):
        to_estimator(torch.nn.Sequential(bare, layer))
    with pytest.raises(TypeError, match="must end with a HingeForest .*, not with a Linear"):
        to_estimator(torch.nn.Sequential(layer, torch.nn.Linear(3, 3)))
    with pytest.raises(ValueError, match='aggregate="none"'):
        to_estimator(HingeForest(4, 3, aggregate="none"))
    for classes in (["a", "b"], ["a", "b", "b"], [["a", "b", "c"]]):
        with pytest.raises(ValueError, match="classes=.* each of the 3 outputs"):
            to_estimator(layer, classes=classes)
    with pytest.raises(ValueError, match="X has 3 features, but the module expects 4"):
        to_estimator(layer, X=np.zeros((2, 3)))
    with pytest.raises(ValueError, match=r"x has shape \(2, 1\), .*\(n_samples, 7\)"):
        from_estimator(make_model(RandomHingeForestClassifier).fit(X, y))(torch.zeros(2, 1))
    with pytest.raises(ValueError, match='link=.sigmoid. must be "identity", "softmax" or "log"'):
        HingeEnsemble([layer], torch.zeros(4), torch.ones(4), torch.zeros(3), "sigmoid")
    ensemble = from_estimator(make_model(RandomHingeForestClassifier).fit(X, y))
    assert "link='softmax'" in repr(ensemble) and isinstance(ensemble, HingeEnsemble)
    other = copy.deepcopy(ensemble)
    for value in other.state_dict().values():
        value.zero_()
    other.load_state_dict(ensemble.state_dict())
    x = torch.from_numpy(X)
    assert torch.equal(other(x), ensemble(x))
