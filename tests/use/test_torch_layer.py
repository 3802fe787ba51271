"""Hinge forests as layers of PyTorch: kernel and modules."""

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
from makers import fixed
from skforest._kernels.hinge.layer import HingePass
from sklearn.datasets import make_classification

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # beside other processes of the suite
from skforest.torch import (  # noqa: E402
    HingeFern,
    HingeForest,
    response,  # noqa: E402
)

KINDS = pytest.mark.parametrize("kind", [HingeForest, HingeFern])

BACKENDS = pytest.mark.parametrize("backend", ["kernel", "tensor"])


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


@pytest.mark.thin(2)
@KINDS
@pytest.mark.parametrize("aggregate", ["sum", "mean", "none"])
@pytest.mark.parametrize("standardise", [None, "batch", "running"])
def test_derivatives_match_finite_differences(kind, aggregate, standardise):
    """First and second derivatives of the tensor backend, with which the kernel is compared."""
    layer = make_layer(
        kind, 3, 2, 3, 2, aggregate=aggregate, standardise=standardise, dtype=torch.float64
    ).eval()
    z = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
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
    with pytest.raises(TypeError, match="z is torch.float16, but the parameters are torch.bfloat"):
        half(z.half())


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


@BACKENDS
def test_nan_has_no_gradient(backend):
    """A row with NaN that is left out of the loss spoils no gradient."""
    torch.manual_seed(0)
    layer = HingeForest(3, 2, standardise=None, backend=backend)
    z = torch.tensor([[1.0, 2.0, torch.nan], [1.0, 2.0, 3.0]], requires_grad=True)
    layer(z)[1].sum().backward()
    with_nan = [layer.leaves.grad, layer.thresholds.grad, z.grad[1]]
    layer.zero_grad()
    own = z[1:].detach().requires_grad_()
    layer(own).sum().backward()
    for found, expected in zip(with_nan, [layer.leaves.grad, layer.thresholds.grad, own.grad[0]]):
        torch.testing.assert_close(found, expected)
    assert not z.grad[0].any()
