"""Hinge forests as layers: kernel, modules, and conversion of estimators to modules and back."""

import _thread
import copy
import io
import pickle
import threading

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from makers import fixed, made
from skforest._kernels.hinge.layer import HingePass
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
    response,  # noqa: E402
    to_estimator,
)

KINDS = pytest.mark.parametrize("kind", [HingeForest, HingeFern])
BACKENDS = pytest.mark.parametrize("backend", ["kernel", "tensor"])
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


def gradients(layer, z, g):
    """Responses, and the gradients by features, thresholds and leaves, as dense arrays."""
    layer.zero_grad()
    z = z.clone().requires_grad_()
    out = layer(z)
    (out * g).sum().backward()
    found = (z.grad, layer.thresholds.grad, layer.leaves.grad)
    return [out.detach().numpy(), *(t.to_dense().numpy() for t in found)]


def expected_gradients(layer, z, g):
    """The same by the definition."""
    arrays = (t.detach().numpy() for t in (layer.thresholds, layer.features, layer.leaves))
    share = 1 / layer.n_estimators if layer.aggregate == "mean" else 1
    g = g if layer.aggregate == "none" else g[:, None].expand(-1, layer.n_estimators, -1)
    own = isinstance(layer, HingeFern), share * g.double().numpy()
    out, *found = oracles.hinge_layer(z.numpy(), *arrays, *own)
    return [share * (out if layer.aggregate == "none" else out.sum(axis=1)), *found]


def output_gradient(layer, n):
    """Random gradients of a loss by the outputs for n samples."""
    axis = (layer.n_estimators,) if layer.aggregate == "none" else ()
    return torch.randn(n, *axis, layer.n_outputs)


# --------------------------------------------------------------------------- responses, gradients


@KINDS
@BACKENDS
@pytest.mark.parametrize("aggregate", ["sum", "mean", "none"])
@pytest.mark.parametrize("n_outputs", [1, 2, 3, 7, 16, 26])
def test_responses_and_gradients_match_the_definition(kind, backend, aggregate, n_outputs):
    layer = make_layer(kind, 6, n_outputs, 5, 4, aggregate=aggregate, backend=backend)
    z = torch.randn(37, 6)
    g = output_gradient(layer, 37)
    for found, expected in zip(
        gradients(layer, z, g), expected_gradients(layer, z, g), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@fixed
@given(
    seed=st.integers(0, 2**31),
    kind=st.sampled_from([HingeForest, HingeFern]),
    depth=st.integers(1, 5),
    sparse=st.booleans(),
)
def test_ties_and_zero_margins_are_exact(seed, kind, depth, sparse):
    """Integers: margins tie or are 0, samples repeat, and no sum is rounded."""
    torch.manual_seed(seed)
    layer = make_layer(kind, 3, 2, 4, depth, sparse=sparse)
    with torch.no_grad():
        layer.thresholds.random_(-2, 3)
        layer.leaves.random_(-4, 5)
    z, g = (torch.randint(-2, 3, size).float() for size in ((19, 3), (19, 2)))
    expected = expected_gradients(layer, z, g)
    for layer.backend in ("kernel", "tensor"):
        for found, own in zip(gradients(layer, z, g), expected, strict=True):
            np.testing.assert_array_equal(found, own)


@KINDS
@pytest.mark.parametrize("aggregate", ["sum", "mean", "none"])
@pytest.mark.parametrize("standardise", [None, "batch", "running"])
def test_derivatives_match_finite_differences(kind, aggregate, standardise):
    """First and second derivatives of the tensor backend, with which the kernel is compared."""
    layer = make_layer(
        kind, 3, 2, 3, 2, aggregate=aggregate, standardise=standardise, dtype=torch.float64
    ).eval()
    z = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    names = ["thresholds", "leaves"]

    def respond(z, *values):
        return torch.func.functional_call(layer, dict(zip(names, values)), (z,))

    inputs = (z, *(getattr(layer, name).detach().requires_grad_() for name in names))
    assert torch.autograd.gradcheck(respond, inputs)
    assert torch.autograd.gradgradcheck(respond, inputs)


@KINDS
@pytest.mark.parametrize("aggregate", ["sum", "none"])
@pytest.mark.parametrize("depth", [1, 10])
def test_backends_agree_on_many_samples_and_deep_trees(kind, aggregate, depth):
    layer = make_layer(kind, 20, 3, 30, depth, aggregate=aggregate)
    z = torch.randn(600, 20)
    g = output_gradient(layer, 600)
    found = []
    for layer.backend in ("kernel", "tensor"):
        found.append(gradients(layer, z, g))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-4)


def test_auto_uses_the_kernel_for_float32_and_tensors_otherwise(monkeypatch):
    layer, z = make_layer(HingeForest, 4, 2), torch.randn(9, 4)
    calls = []

    def recorded(*arrays):
        calls.append(arrays)
        return HingePass(*arrays)

    monkeypatch.setattr(response, "HingePass", recorded)
    for layer.backend, n in (("auto", 1), ("tensor", 1), ("kernel", 2)):
        layer(z)
        assert len(calls) == n
    layer.backend = "auto"
    layer.double()(z.double())
    assert len(calls) == 2
    layer.backend = "kernel"
    with pytest.raises(TypeError, match='backend="kernel" supports float32.*got torch.float64'):
        layer(z.double())


@BACKENDS
@pytest.mark.parametrize("aggregate", ["sum", "none"])
def test_a_forest_of_depth_1_is_a_fern_of_depth_1_bit_for_bit(backend, aggregate):
    found = []
    for kind in (HingeForest, HingeFern):
        torch.manual_seed(3)
        layer = make_layer(kind, 6, 3, 8, 1, backend=backend, aggregate=aggregate)
        z = torch.randn(40, 6)
        found.append(gradients(layer, z, output_gradient(layer, 40)))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@BACKENDS
def test_samples_do_not_influence_each_other(backend):
    layer = make_layer(HingeForest, 8, 5, 20, 6, backend=backend)
    z = torch.randn(700, 8)
    with torch.no_grad():
        whole = layer(z)
        for i in (0, 255, 256, 699):
            torch.testing.assert_close(layer(z[i]), whole[i], rtol=1e-5, atol=1e-5)
        if backend == "kernel":
            parts = [layer(part) for part in z.split(97)]
            assert torch.equal(torch.cat(parts), whole)


@BACKENDS
def test_any_number_of_samples_and_axes(backend):
    layer = make_layer(HingeForest, 4, 3, 5, 2, backend=backend)
    z = torch.randn(6, 5, 4)
    assert torch.equal(layer(z), layer(z.reshape(30, 4)).reshape(6, 5, 3))
    layer.aggregate = "none"
    assert layer(z).shape == (6, 5, 5, 3)
    empty = torch.zeros(0, 4, requires_grad=True)
    layer(empty).sum().backward()
    assert layer(empty).shape == (0, 5, 3) and empty.grad.shape == (0, 4)
    assert not layer.leaves.grad.any()


@BACKENDS
def test_every_memory_layout_is_supported(backend):
    layer = make_layer(HingeForest, 4, 3, 5, 3, backend=backend)
    z = torch.randn(4, 2 * 17)[:, ::2].T
    g = torch.randn(3, 17).T
    assert not z.is_contiguous()
    plain = gradients(layer, z.contiguous(), g.contiguous())
    for one, other in zip(gradients(layer, z, g), plain, strict=True):
        np.testing.assert_array_equal(one, other)


@KINDS
@BACKENDS
def test_nan_propagates_and_infinity_does_not(kind, backend):
    layer = make_layer(kind, 3, 2, 6, 3, backend=backend)
    z = torch.randn(5, 3)
    before = layer(z)
    z[1, 2] = torch.nan
    found = layer(z)
    assert found[1].isnan().all()
    assert torch.equal(found[[0, 2, 3, 4]], before[[0, 2, 3, 4]])
    layer.features[:, 1:] = 1
    layer.features[:, 0] = 0
    far = torch.zeros(1, 3)
    far[0, 0] = torch.inf
    assert layer(far).isfinite().all()
    for standardise in ("batch", "running"):
        layer = make_layer(kind, 3, 2, 6, 3, backend=backend, standardise=standardise)
        assert layer(z).isnan().all()  # since the statistics are


# ------------------------------------------------------------------------------- sparse gradients


@KINDS
@BACKENDS
def test_sparse_gradients_equal_dense_ones(kind, backend):
    layer = make_layer(kind, 6, 3, 5, 6, backend=backend)
    z, g = torch.randn(20, 6), torch.randn(20, 3)
    dense = gradients(layer, z, g)
    layer.sparse = True
    for one, other in zip(gradients(layer, z, g), dense, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
    found = layer.leaves.grad
    assert found.is_sparse and found.is_coalesced()
    torch.sparse_coo_tensor(*(found.indices(), found.values(), found.shape), check_invariants=True)
    place = found.indices()
    order = place[0] * layer.leaves.shape[1] + place[1]
    assert (order.diff() > 0).all()
    assert len(order) <= 5 * 20 and (dense[3].any(axis=2).sum() == len(order))


@BACKENDS
def test_a_sparse_step_changes_the_leaves_that_the_batch_reached(backend):
    layer = make_layer(HingeForest, 6, 3, 5, 8, backend=backend, sparse=True)
    optimizer = torch.optim.SparseAdam([layer.leaves], lr=0.1)
    before = layer.leaves.detach().clone()
    layer(torch.randn(7, 6)).square().sum().backward()
    moved = layer.leaves.grad.to_dense().any(dim=2)
    optimizer.step()
    assert torch.equal((layer.leaves != before).any(dim=2), moved)
    assert 0 < moved.sum() <= 5 * 7


# ---------------------------------------------------------------------------------------- dropout


@BACKENDS
def test_dropped_trees_have_no_response_and_no_gradient(backend):
    layer = make_layer(HingeForest, 6, 3, 40, 3, dropout=0.3, backend=backend)
    z = torch.randn(20, 6)
    torch.manual_seed(5)
    out, _, thresholds, leaves = gradients(layer, z, torch.ones(20, 3))
    there = leaves.any(axis=(1, 2))
    assert 15 < there.sum() < 40
    np.testing.assert_array_equal(thresholds.any(axis=1), there)
    kept = copy.deepcopy(layer)
    with torch.no_grad():
        kept.leaves[~there] = 0
    kept.eval()
    expected = gradients(kept, z, torch.ones(20, 3))
    np.testing.assert_allclose(out, expected[0] / 0.7, rtol=1e-4, atol=1e-4)
    layer.sparse = True
    torch.manual_seed(5)
    sparse = gradients(layer, z, torch.ones(20, 3))[3]
    np.testing.assert_allclose(sparse, leaves, rtol=1e-6, atol=1e-6)
    assert (layer.leaves.grad.indices()[0].unique().numpy() == np.flatnonzero(there)).all()
    layer.eval()
    assert torch.equal(layer(z), layer(z))
    assert gradients(layer, z, torch.ones(20, 3))[3].any(axis=(1, 2)).all()


# ------------------------------------------------------------------------------------ standardiser


@pytest.mark.parametrize("n_steps", [1, 2, 150])
def test_running_statistics_in_closed_form(n_steps):
    """A mean of the first hundred batches, then a share of 1/100 for each, as in estimators."""
    module = RunningStandardiser(3, dtype=torch.float64)
    batches = [torch.randn(8, 3, dtype=torch.float64) * (k % 3 + 1) + k for k in range(n_steps)]
    for batch in batches:
        module(batch)
    late = max(0, n_steps - 100)
    share = np.full(n_steps, 0.99**late / (n_steps - late))
    share[n_steps - late :] = 0.01 * 0.99 ** np.arange(late)[::-1]
    for name, found in (("mean", torch.mean), ("var", torch.var)):
        expected = share @ np.stack([found(batch, dim=0) for batch in batches])
        stored = module.mean if name == "mean" else module.variance
        np.testing.assert_allclose(stored, expected, rtol=1e-9)
    assert module.n_batches == n_steps


def test_running_statistics_are_constants_for_the_gradient():
    module = RunningStandardiser(2)
    first, second = 5 + 3 * torch.randn(50, 2), torch.randn(4, 2, requires_grad=True)
    out = module(first)
    torch.testing.assert_close(out.mean(dim=0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std(dim=0), torch.ones(2))
    expected = copy.deepcopy(module).eval()(second)
    found = module(second)
    assert torch.equal(found, expected)
    before = module.unit
    found.sum().backward()
    assert torch.equal(
        before, module.unit
    )  # updated afterwards; the gradient is of the unit before
    torch.testing.assert_close(second.grad, (1 / first.std(dim=0)).expand(4, 2))
    stored = copy.deepcopy(module.state_dict())
    module(first[:1])  # one sample has no variance
    module.eval()(first)
    for name, value in module.state_dict().items():
        assert torch.equal(value, stored[name])
    module.reset_parameters()
    assert torch.equal(module(first), first * module.unit) and module.n_batches == 0


# ----------------------------------------------------------------------------------------- modules


@KINDS
def test_initial_values_follow_algorithm_1(kind):
    layer = kind(7, 4, 200, 6, standardise="running")
    n_tests = 6 if kind is HingeFern else 63
    assert layer.thresholds.shape == layer.features.shape == (200, n_tests)
    assert layer.leaves.shape == (200, 64, 4)
    values = layer.thresholds.detach()
    assert values.min() >= -3 and values.max() <= 3
    assert abs(values.var() - 3) < 0.3 and abs(values.mean()) < 0.2
    assert abs(layer.leaves.std() - 0.01) < 2e-4 and abs(layer.leaves.mean()) < 1e-3
    counts = torch.bincount(layer.features.flatten(), minlength=7)
    assert len(counts) == 7
    assert (abs(counts - counts.sum() / 7) < 5 * (counts.sum() / 7).sqrt()).all()
    before = copy.deepcopy(layer.state_dict())
    layer(torch.randn(5, 7))
    layer.reset_parameters()
    assert not torch.equal(layer.features, before["features"])
    assert not torch.equal(layer.leaves, before["leaves"])
    assert layer.standardise.n_batches == 0
    torch.manual_seed(9)
    one = kind(7, 4, 20, 3)
    torch.manual_seed(9)
    other = kind(7, 4, 20, 3)
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])


@KINDS
@pytest.mark.parametrize("standardise", ["batch", "running"])
def test_layers_can_be_copied_saved_and_pickled(kind, standardise):
    layer = make_layer(kind, 5, 3, 4, 3, standardise=standardise)
    z = torch.randn(12, 5)
    layer(z)
    layer.eval()
    expected = layer(z)
    other = kind(5, 3, 4, 3, standardise=standardise).eval()
    other.load_state_dict(layer.state_dict())
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    buffer.seek(0)
    third = kind(5, 3, 4, 3, standardise=standardise).eval()
    third.load_state_dict(torch.load(buffer, weights_only=True))
    whole = io.BytesIO()
    torch.save(layer, whole)
    whole.seek(0)
    copies = [
        other,
        third,
        torch.load(whole, weights_only=False),
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
    ]
    for one in copies:
        assert torch.equal(one(z), expected)
        assert repr(one) == repr(layer)
    assert len(list(layer.parameters())) == 2
    double = copy.deepcopy(layer).to(torch.float64)
    assert double.features.dtype == torch.int64 and double.leaves.dtype == torch.float64
    torch.testing.assert_close(double(z.double()).float(), expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(RuntimeError, match="size mismatch"):
        kind(5, 3, 4, 2, standardise=standardise).load_state_dict(layer.state_dict())


def test_half_precision_is_converted_to_the_dtype_of_the_parameters():
    layer = make_layer(HingeForest, 5, 3, 4, 3)
    z = torch.randn(12, 5).bfloat16().requires_grad_()
    out = layer(z)
    assert out.dtype == torch.float32 and torch.equal(out, layer(z.float()))
    out.sum().backward()
    assert z.grad.dtype == torch.bfloat16
    half = layer.bfloat16()
    assert half(z).dtype == torch.bfloat16


def test_repr_of_a_layer():
    layer = HingeForest(6, 3)
    assert layer.extra_repr() == "6, 3, n_estimators=100, max_depth=5"
    layer = HingeFern(
        6, 3, 7, 2, aggregate="none", dropout=0.5, sparse=True, backend="tensor", standardise=None
    )
    assert repr(layer) == (
        "HingeFern(6, 3, n_estimators=7, max_depth=2, aggregate='none', dropout=0.5, sparse=True, "
        "backend='tensor')"
    )
    assert "RunningStandardiser(6)" in repr(HingeForest(6, 3, standardise="running"))
    assert "BatchNorm1d(6, " in repr(HingeForest(6, 3))


@pytest.mark.parametrize(
    "parameters, error, message",
    [
        ({"n_features": 0}, ValueError, "n_features=0 must be from 1 to 2147483647"),
        ({"n_outputs": -1}, ValueError, "n_outputs=-1 must be at least 1"),
        ({"n_outputs": 2.0}, TypeError, "n_outputs=2.0 must be an int"),
        ({"n_estimators": True}, TypeError, "n_estimators=True must be an int"),
        ({"max_depth": 17}, ValueError, "max_depth=17 must be from 1 to 16"),
        ({"aggregate": "max"}, ValueError, 'aggregate=\'max\' must be "sum", "mean" or "none"'),
        ({"backend": "gpu"}, ValueError, 'backend=\'gpu\' must be "auto", "kernel" or "tensor"'),
        ({"standardise": True}, ValueError, 'standardise=True must be "batch", "running" or None'),
        ({"dropout": 1.0}, ValueError, "dropout=1.0 .*0 <= dropout < 1"),
        ({"dropout": "a"}, ValueError, "dropout='a' .*0 <= dropout < 1"),
    ],
)
def test_bad_parameters(parameters, error, message):
    with pytest.raises(error, match=message):
        HingeForest(**{"n_features": 4, "n_outputs": 2} | parameters)


def test_bad_input():
    layer = HingeForest(4, 2, 3, 2, standardise=None)
    with pytest.raises(
        ValueError, match=r"z has shape \(5, 3\), but the layer expects \(\.\.\., 4\)"
    ):
        layer(torch.zeros(5, 3))
    with pytest.raises(TypeError, match="z is torch.float64, but .* are torch.float32"):
        layer(torch.zeros(5, 4, dtype=torch.float64))
    with pytest.raises(TypeError, match="z is torch.int64"):
        layer(torch.zeros(5, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match="z must be a tensor, got ndarray"):
        layer(np.zeros((5, 4)))
    with pytest.raises(ValueError, match="z is on meta, but the parameters are on cpu"):
        layer(torch.zeros(5, 4, device="meta"))
    for bad in (4, -1, 2**40):
        layer.features[1, 2] = bad
        with pytest.raises(ValueError, match=r"features of tests must be in 0 \.\. 3"):
            layer(torch.zeros(5, 4))


def test_tensors_of_the_backward_pass_must_not_change_before_it():
    layer = make_layer(HingeForest, 4, 2, 3, 2, backend="kernel")
    for name in ("leaves", "features"):
        out = layer(torch.randn(5, 4)).sum()
        with torch.no_grad():
            getattr(layer, name).zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            out.backward()
    z = torch.randn(5, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(z).square().sum(), z, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


@KINDS
@pytest.mark.parametrize("sparse", [False, True])
def test_tensor_backend_runs_on_other_devices(kind, sparse):
    """The device "meta" computes nothing, but raises for tensors of other devices."""
    layer = kind(6, 3, 5, 4, sparse=sparse, dropout=0.2, device="meta")
    out = layer(torch.zeros(7, 6, device="meta"))
    assert out.shape == (7, 3) and out.device.type == "meta"


def test_a_graph_allows_two_backward_passes():
    layer = make_layer(HingeForest, 4, 2, 3, 2)
    total = layer(torch.randn(5, 4)).square().sum()
    total.backward(retain_graph=True)
    once = layer.leaves.grad.clone()
    total.backward()
    torch.testing.assert_close(layer.leaves.grad, 2 * once)


def test_the_kernel_raises_for_arrays_of_other_shapes():
    threshold = np.zeros((2, 3), dtype=np.float32)
    feature = np.zeros((2, 3), dtype=np.int64)
    leaf, share = np.ones((2, 4, 1), dtype=np.float32), np.ones(2, dtype=np.float32)
    arrays = [threshold, feature, leaf, share]
    found = HingePass(*arrays, 2, False)
    z = np.ones((3, 1), dtype=np.float32)
    np.testing.assert_array_equal(found.respond(z, False, False), np.full((1, 3, 1), 2))
    with pytest.raises(ValueError, match="that `respond` kept"):
        found.gradients(np.ones((1, 3, 1), dtype=np.float32), False)
    for k in range(4):
        wrong = list(arrays)
        wrong[k] = wrong[k][:1]
        with pytest.raises(ValueError, match="do not fit together"):
            HingePass(*wrong, 2, False)
    for depth, fern in ((3, False), (2, True)):
        with pytest.raises(ValueError, match="do not fit together"):
            HingePass(*arrays, depth, fern)


@pytest.mark.usefixtures("interruptible")
def test_a_long_forward_pass_can_be_interrupted():
    layer = HingeForest(10, 10, 1000, 10, standardise=None)
    z = torch.randn(200_000, 10)
    timer = threading.Timer(0.2, _thread.interrupt_main)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt), torch.no_grad():
            layer(z)
    finally:
        timer.join()


@KINDS
@pytest.mark.parametrize("sparse", [False, True])
def test_a_network_with_a_forest_learns(kind, sparse):
    X, y = (torch.from_numpy(a) for a in make_classification(
        600, 8, n_informative=6, n_redundant=0, n_classes=3, random_state=0
    ))  # fmt: skip
    X = X.float()
    network = torch.nn.Sequential(torch.nn.Linear(8, 30), kind(30, 3, 30, 4, sparse=sparse))
    lazy = [network[1].leaves] if sparse else []
    eager = [p for p in network.parameters() if all(p is not other for other in lazy)]
    optimizers = [torch.optim.Adam(eager, lr=0.03)]
    if lazy:
        optimizers.append(torch.optim.SparseAdam(lazy, lr=0.03))
    losses = []
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(network(X[:400]), y[:400])
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(np.log(3), abs=0.1) and losses[-1] < 0.3
    network.eval()
    assert (network(X[400:]).argmax(dim=1) == y[400:]).float().mean() > 0.75


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
        RunningStandardiser(5) if standardise == "running" else torch.nn.BatchNorm1d(5),
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
def test_a_layer_without_a_network_uses_the_columns_of_X(kind):
    layer = make_layer(kind, 4, 1, 6, 3)
    x = torch.randn(50, 4)
    model = to_estimator(layer, X=x.numpy())
    expected = layer(x).detach().numpy()[:, 0]
    np.testing.assert_allclose(model.predict(x.numpy()), expected, atol=1e-5)
    assert model.forest_.node_weight[model.forest_.tree_start[:-1]].tolist() == [50] * 6
    importances = model.feature_importances_
    assert importances.sum() == pytest.approx(1) and len(importances) == 4
    # The derivatives of single trees by the standardised columns.
    slopes = np.zeros((6, 4))
    layer.aggregate = "none"
    for tree in range(6):
        z = x.clone().requires_grad_()
        layer(z)[:, tree].sum().backward()
        slopes[tree] = z.grad.abs().sum(dim=0).numpy() * x.numpy().std(axis=0)
    np.testing.assert_allclose(importances, slopes.sum(axis=0) / slopes.sum(), rtol=1e-4)
    assert not to_estimator(make_layer(kind, 4, 1)).feature_importances_.any()


def test_constant_columns_have_no_importance_after_conversion():
    X, y = make_data(RandomHingeForestRegressor)
    X[:, 1] = 32.070518
    module = from_estimator(make_model(RandomHingeForestRegressor).fit(X, y))
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
