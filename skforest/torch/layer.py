"""Random hinge forests and ferns as layers of a PyTorch network."""

from __future__ import annotations

import math
from functools import partial
from numbers import Integral, Real

import torch
from torch import nn

from .response import answer_by_kernel, answer_by_tensors

SPAN = 3.0  # thresholds begin uniformly in -3 .. 3 deviations (section 4)
LEAF_SCALE = 0.01  # deviation of the vectors of leaves, likewise
LEAST_VARIANCE, LONGEST = 1e-7, 0.99  # of the running statistics, as in training


def _whole(name, value, low, high=None):
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} is not an int")
    if value < low or (high is not None and value > high):
        taken = f"{low} .. {high}" if high is not None else f"at least {low}"
        raise ValueError(f"{name}={value} is out of range: {taken} is taken")
    return int(value)


def _one_of(name, value, taken):
    if value not in taken:
        words = ", ".join(f'"{word}"' for word in taken)
        raise ValueError(f"{name}={value!r} is not known: one of {words} is taken")
    return value


class RunningStandardiser(nn.Module):
    """Bring features to mean 0 and deviation 1, by running statistics.

    Batch normalisation as the paper [1]_ wants it in front of a hinge forest (section 4): training
    and evaluation use the same stored mean and variance, which are constants for the gradient, and
    nothing is learned. In training mode a batch moves them when it has been standardised:
    ``stored = a * stored + (1 - a) * batch`` with ``a = min(t / (t + 1), 0.99)``, where t counts
    batches. The first batch of at least two rows is standardised by its own statistics.

    Parameters
    ----------
    n_features : int
        At least 1.
    device : torch.device, default=None
    dtype : torch.dtype, default=None

    Attributes
    ----------
    mean, variance : tensor of shape (n_features,)
        Buffers; 0 and 1 to begin with. The variance is the unbiased one.
    n_batches : tensor of shape (), int64
        Buffer: batches that the statistics know.

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
        self.n_features = _whole("n_features", n_features, 1)
        own = {"device": device, "dtype": dtype}
        self.register_buffer("mean", torch.zeros(n_features, **own))
        self.register_buffer("variance", torch.ones(n_features, **own))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.long, device=device))

    def reset_parameters(self):
        """Forget all batches."""
        self.mean.zero_()
        self.variance.fill_(1)
        self.n_batches.zero_()

    def forward(self, z):
        """Standardise rows.

        Parameters
        ----------
        z : tensor of shape (..., n_features)

        Returns
        -------
        z : tensor of the same shape
        """
        rows = z.detach().reshape(-1, self.n_features)
        if not self.training or len(rows) < 2:
            return (z - self.mean) * self.unit
        mean = rows.mean(dim=0)
        # Several times as fast as `var`.
        variance = (rows - mean).square().sum(dim=0) / (len(rows) - 1)
        batch = {"mean": mean, "variance": variance}
        for name, found in batch.items():
            stored = getattr(self, name)
            stored.copy_(torch.where(self.n_batches == 0, found, stored))
        out = (z - self.mean) * self.unit
        seen = self.n_batches.to(self.mean.dtype)
        keep = (seen / (seen + 1)).clamp(max=LONGEST)
        for name, found in batch.items():
            stored = getattr(self, name)
            stored.copy_(keep * stored + (1 - keep) * found)
        self.n_batches.add_(1)
        return out

    @property
    def unit(self):
        """tensor of shape (n_features,): the reciprocal deviations."""
        return (self.variance + LEAST_VARIANCE).rsqrt()

    def extra_repr(self):
        """Words for `repr`."""
        return str(self.n_features)


class _HingeLayer(nn.Module):
    """What forests and ferns have in common."""

    _fern = False

    def __init__(
        self,
        n_features,
        n_outputs,
        n_estimators=100,
        max_depth=5,
        *,
        standardise="batch",
        aggregate="sum",
        dropout=0.0,
        sparse=False,
        backend="auto",
        device=None,
        dtype=None,
    ):
        super().__init__()
        self.n_features = _whole("n_features", n_features, 1, 2**31 - 1)
        self.n_outputs = _whole("n_outputs", n_outputs, 1)
        self.n_estimators = _whole("n_estimators", n_estimators, 1)
        self.max_depth = _whole("max_depth", max_depth, 1, 16)
        self.aggregate = _one_of("aggregate", aggregate, ("sum", "mean", "none"))
        self.backend = _one_of("backend", backend, ("auto", "kernel", "tensor"))
        if isinstance(dropout, bool) or not isinstance(dropout, Real) or not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout!r} is out of range: 0 <= dropout < 1 is taken")
        self.dropout = float(dropout)
        self.sparse = bool(sparse)
        n_tests = max_depth if self._fern else 2**max_depth - 1
        own = {"device": device, "dtype": dtype}
        self.standardise = None
        if standardise is not None:
            kinds = {
                "batch": partial(nn.BatchNorm1d, affine=False),
                "running": RunningStandardiser,
            }
            self.standardise = kinds[_one_of("standardise", standardise, kinds)](n_features, **own)
        self.thresholds = nn.Parameter(torch.empty(n_estimators, n_tests, **own))
        self.leaves = nn.Parameter(torch.empty(n_estimators, 2**max_depth, n_outputs, **own))
        features = torch.zeros(n_estimators, n_tests, dtype=torch.long, device=device)
        self.register_buffer("features", features)
        self.reset_parameters()

    def reset_parameters(self):
        """Begin anew (algorithm 1): other thresholds, leaves and features, and no statistics."""
        with torch.no_grad():
            nn.init.uniform_(self.thresholds, -SPAN, SPAN)
            nn.init.normal_(self.leaves, 0, LEAF_SCALE)
            self.features.random_(0, self.n_features)
        if self.standardise is not None:
            self.standardise.reset_parameters()

    def forward(self, z):
        """Answers of the trees.

        Parameters
        ----------
        z : tensor of shape (..., n_features)
            Features. float16 and bfloat16 become the dtype of the parameters, where that is wider.
            Rows with NaN answer NaN.

        Returns
        -------
        out : tensor of shape (..., n_outputs)
            With ``aggregate="none"`` of shape (..., n_estimators, n_outputs).

        Raises
        ------
        ValueError, TypeError
            If z has another number of features, or another dtype or device than the parameters.
        """
        z = self._checked(z)
        shape = z.shape[:-1]
        z = z.reshape(-1, self.n_features)
        if self.standardise is not None:
            z = self.standardise(z)
        broken = z.detach().amax(dim=1).isnan()
        apart = self.aggregate == "none"
        answer = answer_by_kernel if self._takes_kernel(z) else answer_by_tensors
        out = answer(
            z,
            self.thresholds,
            self.leaves,
            self.features,
            self._shares(),
            self.max_depth,
            self._fern,
            apart,
            self.sparse,
        )
        out = out.masked_fill(broken[:, None, None], math.nan)
        trees = (self.n_estimators,) if apart else ()
        return out.reshape(*shape, *trees, self.n_outputs)

    def _checked(self, z):
        """z in the dtype of the parameters."""
        own = self.thresholds
        if not isinstance(z, torch.Tensor):
            raise TypeError(f"z is a {type(z).__name__}, a tensor is taken")
        if z.dim() == 0 or z.shape[-1] != self.n_features:
            raise ValueError(
                f"z has shape {tuple(z.shape)}, the layer takes (..., {self.n_features})"
            )
        if z.device != own.device:
            raise ValueError(f"z is on {z.device}, the parameters are on {own.device}")
        if z.dtype != own.dtype:
            # What automatic mixed precision hands over.
            half = z.dtype in (torch.float16, torch.bfloat16) and own.dtype.itemsize > 2
            if not half:
                raise TypeError(f"z is {z.dtype}, the parameters are {own.dtype}")
            z = z.to(own.dtype)
        return z

    def _takes_kernel(self, z):
        """By the kernels, or by tensors?"""
        fits = z.device.type == "cpu" and z.dtype == torch.float32
        if self.backend == "kernel" and not fits:
            raise TypeError(
                f'backend="kernel" takes float32 on the processor, z is {z.dtype} on {z.device}; '
                '"auto" and "tensor" take it'
            )
        return fits and self.backend != "tensor"

    def _shares(self):
        """What the answer of each tree is multiplied by."""
        each = 1 / self.n_estimators if self.aggregate == "mean" else 1.0
        share = self.thresholds.new_full((self.n_estimators,), each)
        return nn.functional.dropout(share, self.dropout, self.training)

    def extra_repr(self):
        """Words for `repr`."""
        words = [f"{self.n_features}, {self.n_outputs}"]
        words += [f"n_estimators={self.n_estimators}, max_depth={self.max_depth}"]
        for name, usual in (
            ("aggregate", "sum"), ("dropout", 0.0), ("sparse", False), ("backend", "auto"),
        ):  # fmt: skip
            value = getattr(self, name)
            if value != usual:
                words.append(f"{name}={value!r}")
        return ", ".join(words)


class HingeForest(_HingeLayer):
    """Layer of random hinge trees.

    A tree answers with the smallest margin on the way to a leaf times the vector of the leaf
    (equation 10 of the paper [1]_). Features, which a network in front computes, thresholds and
    vectors have gradients (equations 11 and 12); which feature a test looks at is drawn at random
    once, with replacement. A row has gradients at one leaf and one test of each tree.

    Thresholds begin uniformly in -3 .. 3, vectors normally with deviation 0.01 (algorithm 1), from
    the random numbers of PyTorch.

    Parameters
    ----------
    n_features : int
        Columns of what comes in, at least 1.
    n_outputs : int
        At least 1.
    n_estimators : int, default=100
        Trees, at least 1.
    max_depth : int, default=5
        Tests on the way to any leaf, 1 to 16.
    standardise : {"batch", "running", None}, default="batch"
        How features are brought to mean 0 and deviation 1, which the first thresholds count on.
        "batch": by the statistics of each batch in training, with their gradient, and by running
        ones in evaluation (`torch.nn.BatchNorm1d`). "running": by a `RunningStandardiser`, as in
        the paper; it lags behind a network that changes fast. None: the network in front does it.
    aggregate : {"sum", "mean", "none"}, default="sum"
        How the answers of trees are put together. "none": not at all, for a layer behind.
    dropout : float, default=0.0
        Probability that a tree is left out of a batch in training, in [0, 1); the others then
        answer 1 / (1 - dropout) times as much.
    sparse : bool, default=False
        Make the gradient of `leaves` a sparse tensor of the leaves that the batch came by, for
        `torch.optim.SparseAdam`, `Adagrad` or `SGD` (as `torch.nn.Embedding` does). A step then
        leaves all others as they are, and costs less.
    backend : {"auto", "kernel", "tensor"}, default="auto"
        "kernel": the loops in C of the estimators, for float32 on the processor, on one thread,
        with first derivatives. "tensor": operations of PyTorch, for every device and dtype.
        "auto": "kernel" where it can be.
    device : torch.device, default=None
    dtype : torch.dtype, default=None
        Of thresholds and leaves.

    Attributes
    ----------
    thresholds : Parameter of shape (n_estimators, 2**max_depth - 1)
        Of the tests of a tree in the order of a heap: the children of v are 2 v + 1 and 2 v + 2.
        A row goes right where its feature is larger.
    leaves : Parameter of shape (n_estimators, 2**max_depth, n_outputs)
        Vectors of the leaves, from left to right.
    features : tensor of shape (n_estimators, 2**max_depth - 1), int64
        Buffer: the columns that tests look at.

    See Also
    --------
    HingeFern : One test a level.
    from_estimator : A trained `RandomHingeForestClassifier` or regressor as a module.

    Notes
    -----
    Both backends give the same numbers up to rounding: a tie goes to the test nearest the root,
    and a margin of 0 to the left, without a gradient.

    The paper outputs all trees (``aggregate="none"``) and standardises by running statistics.

    Sums over trees want small steps: a learning rate of Adam of 0.3 to 3 over `n_estimators` is a
    good beginning.

    References
    ----------
    .. [1] N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, "Random Hinge Forest for
       Differentiable Learning", 2018.

    Examples
    --------
    >>> import torch
    >>> from skforest.torch import HingeForest
    >>> network = torch.nn.Sequential(torch.nn.Linear(16, 50), HingeForest(50, 26))
    >>> network(torch.randn(8, 16)).shape
    torch.Size([8, 26])
    """


class HingeFern(_HingeLayer):
    """Layer of random hinge ferns: trees with one test for all splits of a level.

    As `HingeForest`, with fewer tests, which every row of a fern looks at.

    Parameters
    ----------
    n_features : int
        Columns of what comes in, at least 1.
    n_outputs : int
        At least 1.
    n_estimators : int, default=100
        Ferns, at least 1.
    max_depth : int, default=5
        Tests of a fern, 1 to 16.
    standardise, aggregate, dropout, sparse, backend, device, dtype
        As of `HingeForest`.

    Attributes
    ----------
    thresholds : Parameter of shape (n_estimators, max_depth)
    leaves : Parameter of shape (n_estimators, 2**max_depth, n_outputs)
        Vectors of the leaves; the first test is the highest bit of their number.
    features : tensor of shape (n_estimators, max_depth), int64
        Buffer: the columns that tests look at.

    See Also
    --------
    HingeForest : A test of its own for every split.

    Examples
    --------
    >>> import torch
    >>> from skforest.torch import HingeFern
    >>> HingeFern(50, 26, n_estimators=20)(torch.randn(8, 50)).shape
    torch.Size([8, 26])
    """

    _fern = True
