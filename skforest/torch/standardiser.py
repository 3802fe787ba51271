"""Standardisation of features by running statistics, as a module of PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from ._checks import check_int

MIN_VARIANCE = 1e-7  # added to the variance, as in `RandomHingeForestClassifier`
MAX_DECAY = 0.99  # weight of the stored statistics after 99 batches or more, likewise


class RunningStandardiser(nn.Module):
    """Standardise features to mean 0 and standard deviation 1 by running statistics.

    This is the batch normalisation of the random hinge forest [1]_ (section 4). Training and
    evaluation use the same stored mean and variance, which are constants for the gradient, and the
    module has no parameters. In training mode the statistics are updated after a batch has been
    standardised: ``stored = a * stored + (1 - a) * batch`` with ``a = min(t / (t + 1), 0.99)``,
    where t is the number of earlier batches. The first batch of at least two samples is
    standardised by its own statistics. A batch of one sample does not change the statistics.

    Parameters
    ----------
    n_features : int
        Number of features, at least 1.
    device : torch.device, default=None
        Device of the buffers. None: the default device of PyTorch.
    dtype : torch.dtype, default=None
        Dtype of `mean` and `variance`. None: the default dtype of PyTorch.

    Attributes
    ----------
    mean : tensor of shape (n_features,)
        Running mean; a buffer, initially 0.
    variance : tensor of shape (n_features,)
        Running unbiased variance; a buffer, initially 1.
    n_batches : tensor of shape (), int64
        Number of batches in the statistics; a buffer, initially 0.

    References
    ----------
    .. [1] N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, "Random Hinge Forest for
       Differentiable Learning", 2018.

    Examples
    --------
    >>> import torch
    >>> from skforest.torch import RunningStandardiser
    >>> standardiser = RunningStandardiser(2)
    >>> standardiser(torch.tensor([[1.0, 10.0], [3.0, 30.0]]))
    tensor([[-0.7071, -0.7071],
            [ 0.7071,  0.7071]])
    >>> standardiser.mean
    tensor([ 2., 20.])
    """

    def __init__(self, n_features, *, device=None, dtype=None):
        super().__init__()
        self.n_features = check_int("n_features", n_features, 1)
        options = {"device": device, "dtype": dtype}
        self.register_buffer("mean", torch.zeros(n_features, **options))
        self.register_buffer("variance", torch.ones(n_features, **options))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.long, device=device))

    def reset_parameters(self):
        """Reset the running statistics."""
        self.mean.zero_()
        self.variance.fill_(1)
        self.n_batches.zero_()

    def forward(self, z):
        """Standardise features.

        Parameters
        ----------
        z : tensor of shape (..., n_features)
            Features.

        Returns
        -------
        z : tensor of shape (..., n_features)
            Standardised features.
        """
        samples = z.detach().reshape(-1, self.n_features)
        if not self.training or len(samples) < 2:
            return (z - self.mean) * self.unit
        mean = samples.mean(dim=0)
        # Several times as fast as `torch.var`.
        variance = (samples - mean).square().sum(dim=0) / (len(samples) - 1)
        statistics = {"mean": mean, "variance": variance}
        # `torch.where`, since reading `n_batches` would make a graphics card wait.
        for name, batch in statistics.items():
            stored = getattr(self, name)
            stored.copy_(torch.where(self.n_batches == 0, batch, stored))
        out = (z - self.mean) * self.unit
        n_batches = self.n_batches.to(self.mean.dtype)
        decay = (n_batches / (n_batches + 1)).clamp(max=MAX_DECAY)
        for name, batch in statistics.items():
            stored = getattr(self, name)
            stored.copy_(decay * stored + (1 - decay) * batch)
        self.n_batches.add_(1)
        return out

    @property
    def unit(self):
        """Reciprocal standard deviations, tensor of shape (n_features,)."""
        return (self.variance + MIN_VARIANCE).rsqrt()

    def extra_repr(self):
        """Return the text of the module for `repr`."""
        return str(self.n_features)
