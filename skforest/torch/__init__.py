"""The hinge forest as a layer of a PyTorch network, and networks as splits of a tree.

Not imported by ``import skforest``, since it needs PyTorch: the extra `torch`.
"""

from __future__ import annotations

import math

import numpy as np

try:
    import torch
except ImportError as error:
    raise ImportError('skforest.torch needs PyTorch: pip install "skforest[torch]"') from error
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.nn.utils import skip_init

from .._base import draw_seed
from .._feature_map import scaled
from ..forest import Forest
from ..hinge import RandomHingeForestClassifier, RandomHingeForestRegressor
from ..training.hinge_packing import CompleteTrees, compacted
from .layer import HingeFern, HingeForest, RunningStandardiser
from .response import deciding_tests
from .tree import E2ENetworkTree

__all__ = [
    "E2ENetworkTree",
    "HingeEnsemble",
    "HingeFern",
    "HingeForest",
    "RunningStandardiser",
    "from_estimator",
    "to_estimator",
]


class HingeEnsemble(nn.Module):
    """A fitted estimator as a module; `from_estimator` makes one.

    Parameters
    ----------
    bags : iterable of Module
        Each from scaled rows to the sum of its trees: a `torch.nn.Sequential` of a
        `torch.nn.Linear` and a `HingeForest` or `HingeFern`.
    offset, scale : tensor of shape (n_features,)
        Rows are scaled to ``(x - offset) * scale``, in the dtype of these, and rounded to that of
        the parameters.
    baseline : tensor of shape (n_outputs,)
        Added to every sum.
    link : {"identity", "softmax", "log"}
        From the sum of a bag to the scale of predictions, where bags are averaged.
    classes : ndarray of shape (n_outputs,), default=None
        Labels; None in regression.
    feature_names : list of str, default=None
    spread : ndarray of shape (n_features,), default=None
        Standard deviations of scaled features, for importances.

    Attributes
    ----------
    bags : ModuleList
    offset, scale, baseline : tensor
        Buffers.
    """

    def __init__(
        self, bags, offset, scale, baseline, link, classes=None, feature_names=None, spread=None
    ):
        super().__init__()
        self.bags = nn.ModuleList(bags)
        self.register_buffer("offset", offset)
        self.register_buffer("scale", scale)
        self.register_buffer("baseline", baseline)
        self.link = link
        self.classes = classes
        self.feature_names = feature_names
        self.spread = spread

    def forward(self, x):
        """Predict.

        Parameters
        ----------
        x : tensor of shape (n_samples, n_features)

        Returns
        -------
        out : tensor of shape (n_samples, n_outputs)
            In classification logits, whose softmax are the probabilities; those of several bags
            are logarithms of averaged probabilities. In regression the target, or for Poisson
            loss the logarithm of the mean.

        Raises
        ------
        ValueError
            If x has another shape.
        """
        if x.dim() != 2 or x.shape[1] != len(self.offset):
            raise ValueError(
                f"x has shape {tuple(x.shape)}, the module takes (n_samples, {len(self.offset)})"
            )
        own = next(self.parameters()).dtype
        table = ((x - self.offset) * self.scale).to(own)
        raw = torch.stack([bag(table) for bag in self.bags]) + self.baseline.to(own)
        if len(raw) == 1:
            return raw[0]
        if self.link == "identity":
            return raw.mean(dim=0)
        if self.link == "softmax":
            raw = raw.log_softmax(dim=2)
        return raw.logsumexp(dim=0) - math.log(len(raw))

    def extra_repr(self):
        """Words for `repr`."""
        return f"link={self.link!r}"


# ---------------------------------------------------------------------------- estimator to module


def from_estimator(estimator, *, dtype=torch.float32):
    """A fitted hinge forest as a module, to train it further, or as a part of a network.

    Parameters
    ----------
    estimator : RandomHingeForestClassifier or RandomHingeForestRegressor
        Fitted.
    dtype : torch.dtype, default=torch.float32
        Of the parameters. `offset`, `scale` and `baseline` are float64 in any case; a device
        without float64 takes the module after `module.float()`.

    Returns
    -------
    module : HingeEnsemble
        Every bag is a `torch.nn.Linear` without bias, into which the standardisation of training
        is folded, and a `HingeForest` or `HingeFern`.

    Raises
    ------
    TypeError
        If it is not a hinge forest.
    NotFittedError
        If it is not fitted.

    Notes
    -----
    Subtrees that were cut off after training, since no row reached them, come back as leaves of
    zeros below copies of the test above: no answer changes, and all of them can be trained.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from skforest import RandomHingeForestClassifier
    >>> from skforest.torch import from_estimator
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomHingeForestClassifier(n_bags=2, random_state=0).fit(X, y)
    >>> module = from_estimator(forest)
    >>> p = module(torch.from_numpy(X)).softmax(dim=1)
    >>> bool(abs(p.detach().numpy() - forest.predict_proba(X)).max() < 1e-4)
    True
    """
    if not isinstance(estimator, RandomHingeForestClassifier | RandomHingeForestRegressor):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}, a RandomHingeForestClassifier or a "
            "RandomHingeForestRegressor is taken"
        )
    check_is_fitted(estimator, "forest_")
    forest = estimator.forest_
    ends = forest.bag_start.tolist()
    is_fern = estimator.structure == "fern"
    return HingeEnsemble(
        [_bag(forest[a:b], is_fern, dtype) for a, b in zip(ends[:-1], ends[1:])],
        *(torch.tensor(array) for array in (forest.offset, forest.scale, forest.baseline)),
        forest.link,
        forest.classes,
        forest.feature_names,
        forest.spread,
    )


def _bag(forest, is_fern, dtype):
    """One bag as directions and trees."""
    codes, column = np.unique(forest.direction, return_inverse=True)
    codes = codes if len(codes) else np.zeros(1, dtype=np.int32)  # no tree has a split
    trees = CompleteTrees(forest, column)
    levels = trees.levels() if is_fern else None
    kind, tests = (HingeForest, trees.tests) if levels is None else (HingeFern, levels)
    linear = skip_init(nn.Linear, forest.n_features, len(codes), bias=False, dtype=dtype)
    sizes = len(codes), forest.n_outputs, len(forest), trees.depth
    layer = skip_init(kind, *sizes, standardise=None, dtype=dtype)
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(forest.directions(codes).toarray()))
        layer.thresholds.copy_(torch.from_numpy(tests["threshold"]))
        layer.features.copy_(torch.from_numpy(tests["column"]))
        layer.leaves.copy_(torch.from_numpy(trees.leaves))
    return nn.Sequential(linear, layer)


# ---------------------------------------------------------------------------- module to estimator


def to_estimator(module, *, classes=None, X=None):
    """A fitted estimator with the predictions of a module.

    Parameters
    ----------
    module : Module
        What `from_estimator` has made; or a `HingeForest` or `HingeFern`, or a
        `torch.nn.Sequential` that ends with one, behind any of `torch.nn.Linear`,
        `torch.nn.BatchNorm1d`, `RunningStandardiser`, and `torch.nn.Flatten`, `Dropout` or
        `Identity`, which leave rows of X as they are. Running statistics are taken as they stand.
    classes : array-like of shape (n_outputs,), default=None
        Labels that the outputs are logits of. None: those of the estimator that the module came
        from, or a regressor.
    X : array-like of shape (n_samples, n_features), default=None
        Rows, such as those of training, by which nodes are weighed, for pictures and
        `feature_importances_`; these are 0 without them. Predictions do not depend on them.

    Returns
    -------
    estimator : RandomHingeForestClassifier or RandomHingeForestRegressor
        It predicts, saves, loads and plots as any other. Fitted attributes that record a training
        are missing, and parameters of training have their default values. `warm_start` adds bags
        to what came from an estimator only.

    Raises
    ------
    TypeError
        If the module has a part that no forest can hold.
    ValueError
        If `classes` does not name each output once, trees are not aggregated, or X has another
        number of features.

    Examples
    --------
    >>> import torch
    >>> from skforest.torch import HingeForest, to_estimator
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 20), HingeForest(20, 3)).eval()
    >>> model = to_estimator(network, classes=["a", "b", "c"])
    >>> x = torch.randn(5, 4)
    >>> p = network(x).softmax(dim=1).detach().numpy()
    >>> bool(abs(model.predict_proba(x.numpy()) - p).max() < 1e-6)
    True
    """
    if not isinstance(module, HingeEnsemble):
        module = _ensemble_of(module, classes)
    bags = [_Bag(bag) for bag in module.bags]
    layer, n_features = bags[0].layer, bags[0].weight.shape[1]
    classes = module.classes if classes is None else classes
    order, classes = _ordered(classes, layer.n_outputs)
    link = module.link
    if classes is not None:
        link = "softmax"
    meta = {
        "n_features": n_features,
        "n_outputs": layer.n_outputs,
        "task": "regression" if classes is None else "classification",
        "classes": classes,
        "aggregate": layer.aggregate,
        "link": link,
        "gate": "margin",
        "n_shared_values": 1,
        "feature_names": module.feature_names,
    }
    shared = {
        "offset": module.offset.numpy(force=True).astype(np.float64),
        "scale": module.scale.numpy(force=True).astype(np.float64),
        "baseline": module.baseline.numpy(force=True).astype(np.float64)[order],
    }
    table = np.zeros((0, n_features), dtype=np.float32)
    if X is not None:
        X = check_array(X, dtype=np.float64)
        if X.shape[1] != n_features:
            raise ValueError(f"X has {X.shape[1]} features, the module takes {n_features}")
        table = scaled(X, shared["offset"], shared["scale"])
        spread = table.std(axis=0, dtype=np.float64)
        shared["spread"] = np.where(spread > 0, spread, 1)
    if module.spread is not None:
        shared["spread"] = module.spread
    forests = [bag.pack(table, order, shared, meta) for bag in bags]
    return _estimator(forests, bags, classes, module.feature_names)


def _ensemble_of(module, classes):
    """A layer, or a sequence that ends with one, as an ensemble of one bag."""
    bag = _Bag(module)
    n_outputs, n_features = bag.layer.n_outputs, bag.weight.shape[1]
    double = {"dtype": torch.float64}
    return HingeEnsemble(
        [module],
        torch.zeros(n_features, **double),
        torch.ones(n_features, **double),
        torch.zeros(n_outputs, **double),
        "identity" if classes is None else "softmax",
    )


def _ordered(classes, n_outputs):
    """Order that sorts the labels, and sorted labels."""
    if classes is None:
        return np.arange(n_outputs), None
    classes = np.asarray(classes)
    found, order = np.unique(classes, return_index=True)
    if classes.ndim != 1 or len(classes) != n_outputs or len(found) != n_outputs:
        raise ValueError(
            f"classes={classes!r} must name each of the {n_outputs} outputs of the module once"
        )
    return order, found


def _parts(module):
    """The modules of nested sequences, in order, but for those that leave rows as they are."""
    if isinstance(module, nn.Sequential):
        for part in module:
            yield from _parts(part)
    elif not isinstance(module, nn.Identity | nn.Flatten | nn.Dropout):
        yield module


def _normalisation(part):
    """What a standardiser takes away, what it multiplies by, and what it adds then."""
    if isinstance(part, RunningStandardiser):
        tensors = part.mean, part.unit, torch.zeros_like(part.mean)
    else:
        if part.running_mean is None:
            raise TypeError("the module has a BatchNorm1d without running statistics")
        unit = (part.running_var + part.eps).rsqrt()
        zeros = torch.zeros_like(unit)
        unit = unit if part.weight is None else unit * part.weight
        tensors = part.running_mean, unit, zeros if part.bias is None else part.bias
    return [t.numpy(force=True).astype(np.float64) for t in tensors]


class _Bag:
    """A bag as a module: its features as ``weight @ x + bias``, and its trees."""

    def __init__(self, module):
        *front, self.layer = list(_parts(module)) or [module]
        if not isinstance(self.layer, HingeForest | HingeFern):
            raise TypeError(
                f"the module ends with a {type(self.layer).__name__}, a HingeForest or a "
                "HingeFern is taken"
            )
        if self.layer.aggregate == "none":
            raise ValueError(
                'aggregate="none" of the layer leaves trees apart, a forest adds or averages them'
            )
        if self.layer.standardise is not None:
            front.append(self.layer.standardise)
        linear = (part for part in front if isinstance(part, nn.Linear))
        n = next((part.in_features for part in linear), self.layer.n_features)
        self.weight, self.bias = sparse.identity(n, format="csr"), np.zeros(n)
        for part in front:
            self._go_through(part)

    def _go_through(self, part):
        """Put an affine module behind what is there."""
        if isinstance(part, nn.Linear):
            weight = part.weight.numpy(force=True).astype(np.float64)
            self.weight, self.bias = weight @ self.weight, weight @ self.bias
            if part.bias is not None:
                self.bias = self.bias + part.bias.numpy(force=True)
        elif isinstance(part, RunningStandardiser | nn.BatchNorm1d):
            mean, unit, bias = _normalisation(part)
            self.weight = sparse.diags(unit) @ self.weight
            self.bias = (self.bias - mean) * unit + bias
        else:
            raise TypeError(
                f"the module has a {type(part).__name__} in front of its trees; Linear, "
                "BatchNorm1d, RunningStandardiser, Flatten, Dropout and Identity are taken"
            )

    @property
    def is_fern(self):
        return isinstance(self.layer, HingeFern)

    def pack(self, table, order, shared, meta):
        """The bag as a Forest; parameters as in `to_estimator`."""
        layer, n_features = self.layer, self.weight.shape[1]
        feature = layer.features.numpy(force=True)
        threshold = layer.thresholds.numpy(force=True) - self.bias[feature]
        leaves = layer.leaves.numpy(force=True).astype(np.float32)[:, :, order]
        n_trees, n_leaves, n_outputs = leaves.shape
        gain = deciding_tests(layer, table @ self.weight.T + self.bias)
        if self.is_fern:
            # Each of the splits of a level is as good.
            level = np.repeat(np.arange(layer.max_depth), 2 ** np.arange(layer.max_depth))
            threshold, feature = threshold[:, level], feature[:, level]
            gain = gain[:, level] / 2.0**level
        inner = 2 * np.arange(n_leaves - 1) + 1
        outer = -2 - np.arange(n_trees * n_leaves).reshape(n_trees, n_leaves)
        child = np.concatenate([np.tile(inner, (n_trees, 1)), outer], axis=1)
        arrays = {
            "tree_start": np.arange(n_trees + 1) * child.shape[1],
            "child": child.ravel(),
            "threshold": threshold.ravel(),
            "direction": n_features + feature.ravel(),
            "gain": gain.ravel(),
            "value": np.concatenate([np.zeros(n_outputs), leaves.ravel()]),
        }
        forest = Forest(arrays | self._directions() | shared, **meta)
        known = (leaves != 0).any(axis=2)
        return compacted(forest, table, np.ones(len(table)), known).compact()

    def _directions(self):
        """Sparse directions where at most half of the weights are not 0, else dense ones."""
        found = sparse.csr_matrix(self.weight)
        if 2 * found.nnz > math.prod(found.shape):
            return {"dense": found.toarray()}
        return {
            "sparse_start": found.indptr,
            "sparse_feature": found.indices,
            "sparse_weight": found.data,
        }


def _estimator(forests, bags, classes, feature_names):
    """A fitted estimator around the forests of some bags."""
    layer = bags[0].layer
    words = {
        "n_estimators": layer.n_estimators,
        "structure": "fern" if bags[0].is_fern else "tree",
        "features": "linear",
        "n_directions": layer.n_features,
        "max_depth": layer.max_depth,
        "n_bags": len(bags),
    }
    if classes is not None:
        model = RandomHingeForestClassifier(**words)
        model.classes_, model.n_classes_, model.n_outputs_ = classes, len(classes), 1
    else:
        loss = "poisson" if forests[0].link == "log" else "squared_error"
        model = RandomHingeForestRegressor(loss=loss, **words)
        model.n_outputs_ = layer.n_outputs
        model._is_1d = layer.n_outputs == 1
    model.n_features_in_ = forests[0].n_features
    if feature_names is not None:
        model.feature_names_in_ = np.array(feature_names, dtype=object)
    model.n_bags_, model.n_directions_ = len(bags), layer.n_features
    model.max_depth_ = layer.max_depth
    model._seed = draw_seed(0)
    model.forest_ = model._joined(forests)
    return model
