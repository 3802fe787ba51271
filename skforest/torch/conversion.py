"""Conversion between fitted hinge forests and PyTorch modules."""

import math

import numpy as np
import torch
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import nn
from torch.nn.utils import skip_init

from ..estimators.hinge import RandomHingeForestClassifier, RandomHingeForestRegressor
from ..estimators.unwrap import refusal, unwrapped_alone
from ..estimators.validation import draw_seed
from ..forest import Forest
from ..table.feature_map import FeatureMap
from ..table.frames import as_frame, read_table
from ..training.hinge_packing import CompleteTrees, compacted
from ..training.method import joined
from .layer import HingeFern, HingeForest, RunningStandardiser, check_option
from .response import gains_of_tests


class HingeEnsemble(nn.Module):
    """A fitted hinge forest as a module, as returned by `from_estimator`.

    Parameters
    ----------
    bags : iterable of Module
        Each maps scaled samples to the sum of its trees: a `torch.nn.Sequential` of a
        `torch.nn.Linear` and a `HingeForest` or `HingeFern`.
    offset, scale : tensor of shape (n_features,)
        Samples are scaled to ``(x - offset) * scale`` in the dtype of these tensors, then
        limited and converted to the dtype of the parameters.
    baseline : tensor of shape (n_outputs,)
        Added to the sum of each bag.
    link : {"identity", "softmax", "log"}
        Inverse link from the sum of a bag to the scale of predictions, on which bags are averaged.
        "log": the exponential of the sum is the prediction.
    classes : ndarray of shape (n_outputs,), default=None
        Class labels. None: regression.
    feature_names : list of str, default=None
        Names of the features.
    deviation : ndarray of shape (n_features,), default=None
        Standard deviations of the scaled features, for `feature_importances_` of the estimator
        that `to_estimator` returns.
    low, high : tensor of shape (n_features,), default=None
        Limits of the scaled samples. None: there are none.
    tail : tensor of shape (n_features,), default=None
        Values beyond the limits, and before the last knot, are mapped to this distance.
    knots : tensor of shape (n_features, 2, n_knots), default=None
        Knots that rise from `high` and fall from `low`, and divide the tail evenly. None: values
        are clipped to the limits.
    fill : tensor of shape (n_features,), default=None
        Replacement of missing values (NaN) in the scaled samples. None: rows with missing values
        are predicted as NaN.

    Attributes
    ----------
    bags : ModuleList
        The bags.
    offset, scale, baseline : tensor
        Buffers.

    Raises
    ------
    ValueError
        If `link` is not one of these.

    See Also
    --------
    from_estimator : Convert a fitted estimator to a module.
    to_estimator : Convert the module to an estimator.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_diabetes
    >>> import skforest.torch
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = skforest.RandomHingeForestRegressor(20, n_bags=2, random_state=0)
    >>> module = skforest.torch.from_estimator(forest.fit(X, y))
    >>> module.link, len(module.bags), module(torch.from_numpy(X)).shape
    ('identity', 2, torch.Size([442, 1]))
    """

    def __init__(
        self,
        bags,
        offset,
        scale,
        baseline,
        link,
        classes=None,
        feature_names=None,
        deviation=None,
        low=None,
        high=None,
        tail=None,
        knots=None,
        fill=None,
    ):
        super().__init__()
        self.bags = nn.ModuleList(bags)
        self.register_buffer("offset", offset)
        self.register_buffer("scale", scale)
        self.register_buffer("baseline", baseline)
        self.register_buffer("low", low)
        self.register_buffer("high", high)
        self.register_buffer("tail", tail)
        self.register_buffer("knots", knots)
        self.register_buffer("fill", fill)
        # The links of the losses of hinge forests; `forward` averages bags on their scale.
        self.link = check_option("link", link, ("identity", "softmax", "log"))
        self.classes = classes
        self.feature_names = feature_names
        self.deviation = deviation

    def _limited(self, scaled):
        """Scaled samples, in which values beyond `low` or `high` are moved; NaN stays."""
        inside = scaled.clamp(self.low, self.high)
        if self.knots is None:
            return inside
        for side, (end, sign) in enumerate(((self.high, 1), (self.low, -1))):
            edges = torch.cat([end[:, None].to(self.knots), self.knots[:, side]], dim=1)
            width = edges.diff(dim=1) * sign
            distance = (scaled[:, :, None] - edges[:, :-1]) * sign
            share = (distance / width.where(width > 0, torch.ones_like(width))).clamp(0, 1)
            length = (self.tail / width.shape[1])[:, None] * (width > 0)
            inside = inside + sign * (share * length).sum(dim=2).to(inside)
        return inside

    def forward(self, x):
        """Predict.

        Parameters
        ----------
        x : tensor of shape (n_samples, n_features)
            Samples, in the units of the training set of the estimator.

        Returns
        -------
        out : tensor of shape (n_samples, n_outputs)
            In classification, logits, whose softmax gives the probabilities. In regression, the
            predicted target or, with the Poisson loss, the logarithm of the predicted mean.

        Raises
        ------
        ValueError
            If x has another shape.
        """
        if x.dim() != 2 or x.shape[1] != len(self.offset):
            raise ValueError(
                f"x has shape {tuple(x.shape)}, but the module expects "
                f"(n_samples, {len(self.offset)})"
            )
        dtype = next(self.parameters()).dtype
        scaled = (x - self.offset) * self.scale
        if self.low is not None:
            scaled = self._limited(scaled)
        if self.fill is not None:
            scaled = torch.where(scaled.isnan(), self.fill.to(scaled.dtype), scaled)
        scaled = scaled.to(dtype)
        raw = torch.stack([bag(scaled) for bag in self.bags]) + self.baseline.to(dtype)
        if len(raw) == 1:
            return raw[0]
        if self.link == "identity":
            return raw.mean(dim=0)
        # Logarithm of the mean over bags of probabilities, or of exponentials.
        if self.link == "softmax":
            raw = raw.log_softmax(dim=2)
        return raw.logsumexp(dim=0) - math.log(len(raw))

    def extra_repr(self):
        """Return the parameters of the module for `repr`."""
        return f"link={self.link!r}"


# ---------------------------------------------------------------------------- estimator to module


def from_estimator(estimator, *, dtype=torch.float32):
    """Convert a fitted hinge forest to a module.

    You can train the module further, or use it as a part of a network.

    Parameters
    ----------
    estimator : RandomHingeForestClassifier or RandomHingeForestRegressor
        Fitted estimator.
    dtype : torch.dtype, default=torch.float32
        Dtype of the parameters. `offset`, `scale` and `baseline` are float64 in any case; call
        ``module.float()`` before moving the module to a device without float64.

    Returns
    -------
    module : HingeEnsemble
        Every bag is a `torch.nn.Linear` without bias, which includes the standardisation of
        training, and a `HingeForest` or `HingeFern`.

    Raises
    ------
    TypeError
        If the estimator is not a hinge forest.
    NotFittedError
        If the estimator is not fitted.
    ValueError
        If it has several outputs of labels, a `prior`, a loss of the user with an `inverse_link`,
        or features that are made from categories or missing values.

    See Also
    --------
    to_estimator : The reverse.

    Notes
    -----
    The trees of the module are complete. The estimator has removed subtrees that no training
    sample reached; here they become copies of the test above them, with leaves that are zero.
    Predictions do not change, and all leaves can be trained.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_iris
    >>> from skforest import RandomHingeForestClassifier
    >>> from skforest.torch import from_estimator
    >>> X, y = load_iris(return_X_y=True)
    >>> forest = RandomHingeForestClassifier(n_bags=2, random_state=0).fit(X, y)
    >>> module = from_estimator(forest)
    >>> module(torch.from_numpy(X[::50])).softmax(dim=1).detach().numpy().round(1)
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    >>> forest.predict_proba(X[::50]).round(1)
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    """
    estimator = unwrapped_alone(estimator, "the module")
    if not isinstance(estimator, RandomHingeForestClassifier | RandomHingeForestRegressor):
        needed = "a RandomHingeForestClassifier or a RandomHingeForestRegressor"
        raise refusal(estimator, needed=needed)
    check_is_fitted(estimator, "forest_")
    forest = estimator.forest_
    if forest.n_classes is not None:
        raise ValueError("estimator has several outputs; a module has one")
    if forest.prior_ratio is not None:
        raise ValueError(
            f"estimator has prior={estimator.prior!r}, which a module does not contain; fit it "
            "with prior=None"
        )
    if estimator._has_own_link:
        raise ValueError(
            f"the link of loss={estimator._loss_with_link!r} is code, which a module does not "
            "contain; fit it with a loss without inverse_link"
        )
    if len(forest.source):
        made, how = "categories", "train it on numbers"
        if estimator.is_categorical_ is None:
            made, how = "missing values", "fill them before"
        raise ValueError(
            f"estimator has features that are made from {made}; a module takes numbers only: {how}"
        )
    bounds = forest.bag_start.tolist()
    is_fern = estimator.structure == "fern"
    return HingeEnsemble(
        [_bag_module(forest[a:b], is_fern, dtype) for a, b in zip(bounds[:-1], bounds[1:])],
        *(torch.from_numpy(a.copy()) for a in (forest.offset, forest.scale, forest.baseline)),
        forest.link,
        forest.classes,
        forest.feature_names,
        forest.deviation,
        *(
            torch.from_numpy(array.copy()) if len(array) else None
            for array in (forest.low, forest.high, forest.tail, forest.knots, forest.fill)
        ),
    )


def _bag_module(forest, is_fern, dtype):
    """Module of a bag: a linear map of the features, then its trees."""
    codes, column = np.unique(forest.direction, return_inverse=True)
    if not len(codes):  # no tree has a split
        codes = np.zeros(1, dtype=np.int32)
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
    """Convert a module to a fitted estimator with the same predictions.

    Parameters
    ----------
    module : Module
        A `HingeEnsemble`; or a `HingeForest` or `HingeFern`; or a `torch.nn.Sequential` that ends
        with one of these two, after any of `torch.nn.Linear`, `torch.nn.BatchNorm1d`,
        `RunningStandardiser`, and `torch.nn.Flatten`, `Dropout` or `Identity`, which do not change
        rows of X in evaluation. Normalisations are converted with their present running
        statistics.
    classes : array-like of shape (n_outputs,), default=None
        Class labels of the outputs, which are logits. None: the labels of the estimator that the
        module was made from; if there are none, a regressor is returned.
    X : array-like of shape (n_samples, n_features), default=None
        Samples, such as the training set, that determine the node weights for `plot_tree` and
        `feature_importances_`. None: node weights and importances are 0. Predictions do not depend
        on X. Values may be missing (NaN) if the module was made from an estimator.

    Returns
    -------
    estimator : RandomHingeForestClassifier or RandomHingeForestRegressor
        It predicts, saves, loads and plots like any other estimator. It has no fitted attributes
        that record training, and its training parameters have their defaults. With `warm_start`,
        it can add bags only if the module was made from an estimator.

    Raises
    ------
    TypeError
        If the module has a part that cannot be converted.
    ValueError
        If `classes` does not name each output once, or is None though ``link`` is "softmax"; if
        `aggregate` of a layer is "none"; if bags differ in `aggregate`, or means of trees in their
        numbers; if an estimator would average bags on another scale than the module; or if X has
        other features.

    See Also
    --------
    from_estimator : The reverse.

    Examples
    --------
    >>> import torch
    >>> from skforest.torch import HingeForest, to_estimator
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Sequential(torch.nn.Linear(4, 20), HingeForest(20, 3))
    >>> model = to_estimator(network.eval(), classes=["a", "b", "c"])
    >>> x = torch.randn(5, 4)
    >>> network(x).softmax(dim=1)[0].detach().numpy().round(2)
    array([0.31, 0.34, 0.34], dtype=float32)
    >>> model.predict_proba(x.numpy())[0].round(2)
    array([0.31, 0.34, 0.34])
    """
    if not isinstance(module, HingeEnsemble):
        module = _ensemble_of_one(module, classes)
    bags = [_Bag(bag) for bag in module.bags]
    layer, n_features = bags[0].layer, bags[0].weight.shape[1]
    classes = module.classes if classes is None else classes
    _check_bags(module.link, bags, classes is not None)
    order, classes = _sorted_classes(classes, layer.n_outputs)
    meta = {
        "n_features": n_features,
        "n_outputs": layer.n_outputs,
        "task": "regression" if classes is None else "classification",
        "classes": classes,
        "aggregate": layer.aggregate,
        "link": module.link if classes is None else "softmax",
        "gate": "margin",
        "n_shared_values": 1,
        "feature_names": module.feature_names,
    }
    shared = {
        "offset": _array(module.offset),
        "scale": _array(module.scale),
        "baseline": _array(module.baseline)[order],
    }
    finite = True if module.fill is None else "allow-nan"
    X = np.zeros((0, n_features)) if X is None else X
    names = getattr(read_table(as_frame(X)), "names", ())
    if module.feature_names and names and all(isinstance(name, str) for name in names):
        if list(names) != list(module.feature_names):
            raise ValueError(
                f"X has columns {list(names)}, but the module takes {list(module.feature_names)}"
            )
    X = check_array(X, dtype=np.float64, ensure_all_finite=finite, ensure_min_samples=0)
    if X.shape[1] != n_features:
        raise ValueError(f"X has {X.shape[1]} features, but the module expects {n_features}")
    if module.low is not None:
        for name in ("low", "high", "tail", "knots"):
            if getattr(module, name) is not None:
                shared[name] = _array(getattr(module, name))
    if module.fill is not None:
        shared["fill"] = _array(module.fill).astype(np.float32)
    table = FeatureMap(**{name: shared[name] for name in shared if name != "baseline"}).transform(
        X
    )
    if len(X):
        varies = table.max(axis=0) > table.min(axis=0)
        shared["deviation"] = np.where(varies, table.std(axis=0, dtype=np.float64), 0)
    if module.deviation is not None:
        shared["deviation"] = module.deviation
    forests = [bag.pack(table, order, shared, meta) for bag in bags]
    return _estimator(forests, bags, classes, module.feature_names)


def _check_bags(link, bags, has_classes):
    """Raise ValueError if no estimator predicts as these bags do."""
    if link == "softmax" and not has_classes:
        raise ValueError(
            'classes=None, but the outputs of a module with link="softmax" are logits of classes'
        )
    if has_classes and link != "softmax" and len(bags) > 1:
        raise ValueError(
            f"module has {len(bags)} bags and link={link!r}, but an estimator of classes averages "
            'the probabilities of its bags: link="softmax" is needed'
        )
    sizes = {bag.layer.n_estimators for bag in bags if bag.layer.aggregate == "mean"}
    kinds = {bag.layer.aggregate for bag in bags}
    if len(kinds) > 1 or len(sizes) > 1:
        raise ValueError(
            'all bags of a module must have the same aggregate and, if it is "mean", the same '
            "number of trees"
        )


def _ensemble_of_one(module, classes):
    """A layer, or a sequence that ends with one, as an ensemble of one bag."""
    bag = _Bag(module)
    offset = torch.zeros(bag.weight.shape[1], dtype=torch.float64)
    baseline = torch.zeros(bag.layer.n_outputs, dtype=torch.float64)
    link = "identity" if classes is None else "softmax"
    return HingeEnsemble([module], offset, torch.ones_like(offset), baseline, link)


def _sorted_classes(classes, n_outputs):
    """Order of the outputs that sorts their labels, and the sorted labels."""
    if classes is None:
        return np.arange(n_outputs), None
    classes = np.asarray(classes)
    try:
        labels, order = np.unique(classes, return_index=True)
    except TypeError as error:
        raise ValueError(f"classes={classes!r} must be labels of one type") from error
    if classes.ndim != 1 or len(classes) != n_outputs or len(labels) != n_outputs:
        raise ValueError(
            f"classes={classes!r} must name each of the {n_outputs} outputs of the module once"
        )
    return order, labels


def _array(tensor):
    """A copy of a tensor as ndarray of float64."""
    return np.array(tensor.double().numpy(force=True))  # NumPy has no bfloat16


def _parts(module):
    """Modules of nested sequences in order, without those that do not change a row."""
    if isinstance(module, nn.Sequential):
        for part in module:
            yield from _parts(part)
    elif not isinstance(module, nn.Identity | nn.Flatten | nn.Dropout):
        yield module


def _normalisation(part):
    """Mean, factor and bias of a normalisation ``(z - mean) * factor + bias``."""
    if isinstance(part, RunningStandardiser):
        tensors = part.mean, part.unit, torch.zeros_like(part.mean)
    else:
        if part.running_mean is None:
            raise TypeError("module has a BatchNorm1d without running statistics")
        factor = (part.running_var + part.eps).rsqrt()
        zeros = torch.zeros_like(factor)
        factor = factor if part.weight is None else factor * part.weight
        tensors = part.running_mean, factor, zeros if part.bias is None else part.bias
    return [_array(tensor) for tensor in tensors]


class _Bag:
    """Module of a bag as an affine map ``weight @ x + bias`` of the features, and its trees."""

    def __init__(self, module):
        *front, self.layer = list(_parts(module)) or [module]
        if not isinstance(self.layer, HingeForest | HingeFern):
            raise TypeError(
                "module must end with a HingeForest or a HingeFern, not with a "
                f"{type(self.layer).__name__}"
            )
        if self.layer.aggregate == "none":
            raise ValueError(
                'module has a layer with aggregate="none"; "sum" or "mean" is required'
            )
        front += [] if self.layer.standardise is None else [self.layer.standardise]
        linear = (part for part in front if isinstance(part, nn.Linear))
        n = next((part.in_features for part in linear), self.layer.n_features)
        self.weight, self.bias = sparse.identity(n, format="csr"), np.zeros(n)
        for part in front:
            self._append(part)

    def _append(self, part):
        """Compose the affine map with a module that follows it."""
        if isinstance(part, nn.Linear):
            weight = _array(part.weight)
            self.weight, self.bias = weight @ self.weight, weight @ self.bias
            if part.bias is not None:
                self.bias = self.bias + _array(part.bias)
        elif isinstance(part, RunningStandardiser | nn.BatchNorm1d):
            mean, factor, bias = _normalisation(part)
            self.weight = sparse.diags(factor) @ self.weight
            self.bias = (self.bias - mean) * factor + bias
        else:
            raise TypeError(
                f"module has a {type(part).__name__} in front of its trees; only Linear, "
                "BatchNorm1d, RunningStandardiser, Flatten, Dropout and Identity can be converted"
            )

    def pack(self, table, order, shared, meta):
        """The bag as a Forest.

        `table` has the scaled samples for node weights and gains; `order`, for each output of the
        forest, that of the module; `shared` and `meta` what all bags have in common.
        """
        layer, n_features = self.layer, self.weight.shape[1]
        feature = layer.features.numpy(force=True)
        threshold = _array(layer.thresholds) - self.bias[feature]
        leaves = _array(layer.leaves).astype(np.float32)[:, :, order]
        n_trees, n_leaves, n_outputs = leaves.shape
        gain = gains_of_tests(layer, table @ self.weight.T + self.bias)
        if self.layer._is_fern:
            # The splits of a level share the gain of its test equally.
            level = np.repeat(np.arange(layer.max_depth), 2 ** np.arange(layer.max_depth))
            threshold, feature = threshold[:, level], feature[:, level]
            gain = gain[:, level] / 2.0**level
        split_child = 2 * np.arange(n_leaves - 1) + 1
        # Value row 0 is zero, for leaves that `compacted` removes.
        leaf_child = -2 - np.arange(n_trees * n_leaves).reshape(n_trees, n_leaves)
        child = np.concatenate([np.tile(split_child, (n_trees, 1)), leaf_child], axis=1)
        arrays = {
            "tree_start": np.arange(n_trees + 1) * child.shape[1],
            "child": child.ravel(),
            "threshold": threshold.ravel(),
            "direction": n_features + feature.ravel(),
            "gain": gain.ravel(),
            "value": np.concatenate([np.zeros(n_outputs), leaves.ravel()]),
        }
        forest = Forest(arrays | self._directions() | shared, **meta)
        is_used = (leaves != 0).any(axis=2)
        return compacted(forest, table, np.ones(len(table)), is_used).compact()

    def _directions(self):
        """Sparse directions if at most half of the weights are nonzero, else dense ones."""
        weight = sparse.csr_matrix(self.weight)
        if 2 * weight.nnz > math.prod(weight.shape):
            return {"dense": weight.toarray()}
        return {
            "sparse_start": weight.indptr,
            "sparse_feature": weight.indices,
            "sparse_weight": weight.data,
        }


def _estimator(forests, bags, classes, feature_names):
    """Fitted estimator of the forests of its bags."""
    layer = bags[0].layer
    parameters = {
        "n_estimators": layer.n_estimators,
        "structure": "fern" if layer._is_fern else "tree",
        "features": "linear",
        "n_directions": layer.n_features,
        "max_depth": layer.max_depth,
        "n_bags": len(bags),
    }
    if classes is not None:
        model = RandomHingeForestClassifier(**parameters)
        model.classes_, model.n_classes_, model.n_outputs_ = classes, len(classes), 1
    else:
        loss = "poisson" if forests[0].link == "log" else "squared_error"
        model = RandomHingeForestRegressor(loss=loss, **parameters)
        model.n_outputs_ = layer.n_outputs
        model._is_1d = layer.n_outputs == 1
    model.n_features_in_ = forests[0].n_features
    if feature_names is not None:
        model.feature_names_in_ = np.array(feature_names, dtype=object)
    model.n_bags_, model.n_directions_ = len(bags), layer.n_features
    model.n_estimators_ = layer.n_estimators
    model.max_depth_ = layer.max_depth
    model._seed = draw_seed(0)
    model.forest_ = joined(forests)
    return model
