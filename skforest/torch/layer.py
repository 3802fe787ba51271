"""Random hinge forests and ferns as layers of a PyTorch network, and their standardisation."""

import math
from functools import partial
from numbers import Integral, Real

import torch
from torch import nn

from .._docs import with_texts
from .response import HingeTrees, response_by_kernel, response_by_tensors

THRESHOLD_RANGE = 3.0  # initial thresholds are uniform in -3 to 3 standard deviations (section 4)
LEAF_DEVIATION = 0.01  # standard deviation of the initial leaf vectors (section 4)
MIN_VARIANCE = 1e-7  # added to the variance, as in `RandomHingeForestClassifier`
MAX_DECAY = 0.99  # weight of the stored statistics after 99 batches or more, likewise

# Sections shared by docstrings.
SHARED_DOC = {
    "parameters": """
n_features : int
    Number of input features, at least 1.
n_outputs : int
    Number of outputs, at least 1.
n_estimators : int, default=100
    Number of trees, or ferns, at least 1.
max_depth : int, default=5
    Number of tests on the path to each leaf, 1 to 16.
standardise : {"batch", "running", None}, default="batch"
    How features are standardised to mean 0 and standard deviation 1, as the initial thresholds
    expect. "batch": by the statistics of each batch in training, with their gradient, and by
    running statistics in evaluation (`torch.nn.BatchNorm1d`). "running": by a
    `RunningStandardiser`, as in the paper; its statistics lag behind a network that changes fast.
    None: they are not standardised; for features that already are.
aggregate : {"sum", "mean", "none"}, default="sum"
    How the responses of the trees are combined. "none": they are returned separately.
dropout : float, default=0.0
    Probability that a tree is left out of a batch in training, in [0, 1). The responses of the
    other trees are then multiplied by 1 / (1 - dropout).
sparse : bool, default=False
    Whether the gradient of `leaves` is a sparse tensor, as for `torch.nn.Embedding`, with entries
    only for leaves that the batch reached. It needs `torch.optim.SparseAdam`, `Adagrad` or `SGD`.
    A step then changes no other leaves, and costs less.
backend : {"auto", "kernel", "tensor"}, default="auto"
    "kernel": the compiled loops of the estimators, for float32 on the CPU, in one thread, with
    first derivatives. "tensor": operations of PyTorch, for every device and dtype, with
    derivatives of any order (with `sparse`, only first derivatives). "auto": "kernel" if it can
    run, otherwise "tensor".
device : torch.device, default=None
    Device of parameters and buffers. None: the default device of PyTorch.
dtype : torch.dtype, default=None
    Dtype of thresholds and leaves. None: the default dtype of PyTorch.
""",
    "raises": """
Raises
------
TypeError
    If a parameter that must be an int is not one.
ValueError
    If a parameter is out of range.
""",
    "references": """
References
----------
.. [1] N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, "Random Hinge Forest for
   Differentiable Learning", 2018.
""",
}


def check_int(name, value, low, high=None):
    """Return a parameter as int; raise unless it is an int from `low` to `high`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} must be an int")
    if value < low or (high is not None and value > high):
        valid = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name}={value} must be {valid}")
    return int(value)


def check_option(name, value, options):
    """Return a parameter that is one of at least two options; raise ValueError otherwise."""
    if value not in options:
        *most, last = (f'"{option}"' if option else repr(option) for option in options)
        raise ValueError(f"{name}={value!r} must be {', '.join(most)} or {last}")
    return value


def known_moments(z, has_nan):
    """Mean and variance of the samples without a NaN, and their number, all as tensors."""
    wide = z.to(torch.promote_types(z.dtype, torch.float32))  # sums of halves may be infinite
    n = (~has_nan).sum().to(wide.dtype)
    mean = wide.masked_fill(has_nan, 0.0).sum(dim=0) / n
    # Several times as fast as `torch.var`.
    variance = (wide - mean).masked_fill(has_nan, 0.0).square().sum(dim=0) / n
    return mean.to(z.dtype), variance.to(z.dtype), n


@with_texts(**SHARED_DOC)
class RunningStandardiser(nn.Module):
    """Standardise features to mean 0 and standard deviation 1 by running statistics.

    This is the batch normalisation of the random hinge forest [1]_ (section 4). Training and
    evaluation use the same stored mean and variance, which are constants for the gradient, and the
    module has no parameters. In training mode the statistics are updated after a batch has been
    standardised: ``stored = a * stored + (1 - a) * batch`` with ``a = min(t / (t + 1), 0.99)``,
    where t is the number of earlier batches. The first batch of at least two samples is
    standardised by its own statistics. A batch of one sample does not change the statistics, nor
    does a sample with a NaN.

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

    {references}

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

        Returns
        -------
        z : tensor of shape (..., n_features)
        """
        samples = z.detach().reshape(-1, self.n_features)
        if not self.training or len(samples) < 2:
            return (z - self.mean) * self.unit
        has_nan = samples.amax(dim=1, keepdim=True).isnan()
        mean, variance, n = known_moments(samples, has_nan)
        statistics = {"mean": mean, "variance": variance * n / (n - 1)}
        # `torch.where`, because reading `n_batches` or `n` would make a GPU wait.
        for name, batch in statistics.items():
            stored = getattr(self, name)
            stored.copy_(torch.where((self.n_batches == 0) & (n > 1), batch, stored))
        out = (z - self.mean) * self.unit
        n_batches = self.n_batches.to(self.mean.dtype)
        decay = (n_batches / (n_batches + 1)).clamp(max=MAX_DECAY)
        for name, batch in statistics.items():
            stored = getattr(self, name)
            stored.copy_(torch.where(n > 1, decay * stored + (1 - decay) * batch, stored))
        self.n_batches.add_(n > 1)
        return out

    @property
    def unit(self):
        """Reciprocal standard deviations, tensor of shape (n_features,)."""
        return (self.variance + MIN_VARIANCE).rsqrt()

    def extra_repr(self):
        """Return the text of the module for `repr`."""
        return str(self.n_features)


class _HingeLayer(nn.Module):
    """Base class of `HingeForest` and `HingeFern`."""

    _is_fern = False

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
        self.n_features = check_int("n_features", n_features, 1, 2**31 - 1)
        self.n_outputs = check_int("n_outputs", n_outputs, 1)
        self.n_estimators = check_int("n_estimators", n_estimators, 1)
        self.max_depth = check_int("max_depth", max_depth, 1, 16)
        self.aggregate = check_option("aggregate", aggregate, ("sum", "mean", "none"))
        self.backend = check_option("backend", backend, ("auto", "kernel", "tensor"))
        check_option("standardise", standardise, ("batch", "running", None))
        if isinstance(dropout, bool) or not isinstance(dropout, Real) or not 0 <= dropout < 1:
            raise ValueError(f"dropout={dropout!r} must be a number with 0 <= dropout < 1")
        self.dropout = float(dropout)
        self.sparse = bool(sparse)
        options = {"device": device, "dtype": dtype}
        self.standardise = None
        if standardise is not None:
            is_batch = standardise == "batch"
            kind = partial(nn.BatchNorm1d, affine=False) if is_batch else RunningStandardiser
            self.standardise = kind(n_features, **options)
        n_tests = max_depth if self._is_fern else 2**max_depth - 1
        self.thresholds = nn.Parameter(torch.empty(n_estimators, n_tests, **options))
        self.leaves = nn.Parameter(torch.empty(n_estimators, 2**max_depth, n_outputs, **options))
        features = torch.zeros(n_estimators, n_tests, dtype=torch.long, device=device)
        self.register_buffer("features", features)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw thresholds, leaves and features (algorithm 1), and reset running statistics."""
        with torch.no_grad():
            nn.init.uniform_(self.thresholds, -THRESHOLD_RANGE, THRESHOLD_RANGE)
            nn.init.normal_(self.leaves, 0, LEAF_DEVIATION)
            self.features.random_(0, self.n_features)
        if self.standardise is not None:
            self.standardise.reset_parameters()

    def forward(self, z):
        """Compute the responses of the trees.

        Parameters
        ----------
        z : tensor of shape (..., n_features)
            Features. float16 and bfloat16 are converted to the dtype of the parameters if that is
            wider.

        Returns
        -------
        out : tensor of shape (..., n_outputs)
            With ``aggregate="none"`` of shape (..., n_estimators, n_outputs). NaN for samples with
            a NaN, which do not take part in the statistics of `standardise`.

        Raises
        ------
        TypeError
            If z is not a tensor, or has another dtype than the parameters.
        ValueError
            If z has another number of features, or is on another device than the parameters.
        """
        z = self._validated(z)
        shape = z.shape[:-1]
        z = z.reshape(-1, self.n_features)
        if self.standardise is not None:
            z = self._standardised(z)
        has_nan = z.detach().amax(dim=1).isnan()
        # A margin that is NaN would make gradients of leaves NaN, even for a loss of other rows.
        z = z.masked_fill(has_nan[:, None], 0.0)
        per_tree = self.aggregate == "none"
        respond = response_by_kernel if self._uses_kernel(z) else response_by_tensors
        tensors = self.thresholds, self.leaves, self.features, self._tree_weight()
        trees = HingeTrees(*tensors, self.max_depth, self._is_fern)
        out = respond(z, trees, per_tree, self.sparse)
        out = out.masked_fill(has_nan[:, None, None], math.nan)
        axis = (self.n_estimators,) if per_tree else ()
        return out.reshape(*shape, *axis, self.n_outputs)

    def _standardised(self, z):
        """Features standardised by the statistics of samples without a NaN."""
        norm, has_nan = self.standardise, z.detach().amax(dim=1, keepdim=True).isnan()
        if isinstance(norm, RunningStandardiser) or not norm.training:
            return norm(z)
        if z.device.type == "cpu" and not has_nan.any():  # to look would make a GPU wait
            return norm(z)
        z = z.masked_fill(has_nan, 0.0)  # NaN would also make gradients of the moments NaN
        mean, variance, n = known_moments(z, has_nan)
        with torch.no_grad():  # as BatchNorm1d does
            rate = norm.momentum * (n > 1)
            norm.running_mean.lerp_(mean.nan_to_num(), rate)
            unbiased = variance * n / (n - 1).clamp(min=1)
            norm.running_var.lerp_(unbiased.nan_to_num(), rate)
            norm.num_batches_tracked += n > 1
        z = (z - mean) * (variance + norm.eps).rsqrt()
        return z.masked_fill(has_nan, math.nan)

    def _tree_weight(self):
        """Factor of the response of each tree."""
        weight = 1 / self.n_estimators if self.aggregate == "mean" else 1.0
        tree_weight = self.thresholds.new_full((self.n_estimators,), weight)
        return nn.functional.dropout(tree_weight, self.dropout, self.training)

    def _validated(self, z):
        """Features in the dtype of the parameters."""
        parameter = self.thresholds
        if not isinstance(z, torch.Tensor):
            raise TypeError(f"z must be a tensor, got {type(z).__name__}")
        if z.dim() == 0 or z.shape[-1] != self.n_features:
            raise ValueError(
                f"z has shape {tuple(z.shape)}, but the layer expects (..., {self.n_features})"
            )
        if z.device != parameter.device:
            raise ValueError(f"z is on {z.device}, but the parameters are on {parameter.device}")
        if z.dtype != parameter.dtype:
            # Automatic mixed precision passes half precision to layers of float32.
            is_half = z.dtype in (torch.float16, torch.bfloat16)
            if not (is_half and parameter.dtype.itemsize > 2):
                raise TypeError(f"z is {z.dtype}, but the parameters are {parameter.dtype}")
            z = z.to(parameter.dtype)
        return z

    def _uses_kernel(self, z):
        """Whether the compiled loops compute the response."""
        is_supported = z.device.type == "cpu" and z.dtype == torch.float32
        if self.backend == "kernel" and not is_supported:
            raise TypeError(
                f'backend="kernel" supports float32 on the CPU only, got {z.dtype} on {z.device}; '
                'use "auto" or "tensor"'
            )
        return is_supported and self.backend != "tensor"

    def extra_repr(self):
        """Return the parameters of the layer for `repr`."""
        parameters = [f"{self.n_features}, {self.n_outputs}"]
        parameters += [f"n_estimators={self.n_estimators}, max_depth={self.max_depth}"]
        defaults = {"aggregate": "sum", "dropout": 0.0, "sparse": False, "backend": "auto"}
        for name, default in defaults.items():
            value = getattr(self, name)
            if value != default:
                parameters.append(f"{name}={value!r}")
        return ", ".join(parameters)


@with_texts(**SHARED_DOC)
class HingeForest(_HingeLayer):
    """Layer of random hinge trees.

    The response of a tree is the vector of a leaf times the smallest absolute margin on the path
    to the leaf (equation 10 of the paper [1]_). Features, thresholds and leaf vectors have
    gradients (equations 11 and 12), so a network in front of the layer can learn the features. The
    feature of each test is drawn once at random, with replacement. In each tree, a sample has
    gradients at one leaf and one test.

    Initial thresholds are uniform in -3 to 3, and initial leaf vectors normal with standard
    deviation 0.01 (algorithm 1), from the random number generator of PyTorch.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    thresholds : Parameter of shape (n_estimators, 2**max_depth - 1)
        Thresholds of the tests of a tree in heap order: the children of test v are 2 v + 1 and 2 v
        + 2. A sample goes right if its feature is larger.
    leaves : Parameter of shape (n_estimators, 2**max_depth, n_outputs)
        Vectors of the leaves, from left to right.
    features : tensor of shape (n_estimators, 2**max_depth - 1), int64
        Feature of each test; a buffer.

    {raises}

    See Also
    --------
    HingeFern : One test for all splits of a level.
    from_estimator : A fitted hinge forest as a module.

    Notes
    -----
    The backends agree up to rounding. Among equal margins, the one nearest to the root decides. A
    sample with margin 0 goes left and has no gradient.

    The paper returns the responses of all trees (``aggregate="none"``) and standardises by running
    statistics.

    With ``aggregate="sum"``, the learning rate should be inversely proportional to the number of
    trees: 0.3 to 3, divided by `n_estimators`, is a good start for Adam.

    {references}

    Examples
    --------
    >>> import torch
    >>> from skforest.torch import HingeForest
    >>> network = torch.nn.Sequential(torch.nn.Linear(16, 50), HingeForest(50, 26))
    >>> network(torch.randn(8, 16)).shape
    torch.Size([8, 26])
    """


@with_texts(**SHARED_DOC)
class HingeFern(_HingeLayer):
    """Layer of random hinge ferns: trees with one test for all splits of a level.

    It is like `HingeForest`, which describes the method, but has fewer tests. Every sample passes
    all tests of a fern.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    thresholds : Parameter of shape (n_estimators, max_depth)
        Thresholds of the tests.
    leaves : Parameter of shape (n_estimators, 2**max_depth, n_outputs)
        Vectors of the leaves. The result of the first test is the highest bit of the leaf number.
    features : tensor of shape (n_estimators, max_depth), int64
        Feature of each test; a buffer.

    {raises}

    See Also
    --------
    HingeForest : A separate test for each split.

    Examples
    --------
    >>> import torch
    >>> from skforest.torch import HingeFern
    >>> HingeFern(50, 26, n_estimators=20)(torch.randn(8, 50)).shape
    torch.Size([8, 26])
    """

    _is_fern = True
