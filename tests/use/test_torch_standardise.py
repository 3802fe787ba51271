"""Features of hinge layers in PyTorch, standardised by batches or by running statistics."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
torch.set_num_threads(1)  # beside other processes of the suite
from skforest.torch import HingeForest, RunningStandardiser  # noqa: E402


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


@pytest.mark.parametrize("standardise", ["batch", "running"])
def test_samples_with_nan_do_not_change_the_statistics(standardise):
    layer = HingeForest(3, 2, 6, 3, standardise=standardise).double()
    alone, z, there = copy.deepcopy(layer), torch.randn(5, 3).double(), [0, 2, 3, 4]
    z[1, 2] = torch.nan
    z.requires_grad_()
    own = z[there].detach().requires_grad_()
    for _ in range(3):
        found, expected = layer(z), alone(own)
        assert found[1].isnan().all()
        torch.testing.assert_close(found[there], expected)
    found[there].square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(z.grad[there], own.grad)
    assert not z.grad[1].any()
    torch.testing.assert_close(layer.state_dict(), alone.state_dict())
    before = copy.deepcopy(layer.state_dict())
    assert layer(z[[1, 1]]).isnan().all()
    layer(z[:2])  # only one sample without NaN
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    assert layer.eval()(z[there]).isfinite().all()


def test_constant_features_are_standardised_to_0():
    standardiser = RunningStandardiser(2)
    for _ in range(2):
        out = standardiser(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        assert out.isfinite().all() and (out[:, 1] == 0).all() and out[0, 0] < 0 < out[1, 0]


def test_sums_of_halves_do_not_overflow():
    standardiser = RunningStandardiser(1, dtype=torch.float16)
    z = (20 + torch.randn(8192, 1)).half()
    assert standardiser(z).isfinite().all()
    assert standardiser.mean.item() == pytest.approx(20, abs=0.1)
