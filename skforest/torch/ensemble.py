"""A fitted hinge forest as a module of PyTorch."""

from __future__ import annotations

import math

import torch
from torch import nn


class HingeEnsemble(nn.Module):
    """Fitted hinge forest as a module, as returned by `from_estimator`.

    Parameters
    ----------
    bags : iterable of Module
        Each maps scaled samples to the sum of its trees: a `torch.nn.Sequential` of a
        `torch.nn.Linear` and a `HingeForest` or `HingeFern`.
    offset, scale : tensor of shape (n_features,)
        Samples are scaled to ``(x - offset) * scale`` in the dtype of these tensors, then
        converted to the dtype of the parameters.
    baseline : tensor of shape (n_outputs,)
        Added to the sum of each bag.
    link : {"identity", "softmax", "log"}
        Inverse link from the sum of a bag to the scale of predictions, on which bags are averaged.
        "log": the exponential of the sum is the prediction.
    classes : ndarray of shape (n_outputs,), default=None
        Class labels. None: regression.
    feature_names : list of str, default=None
        Names of the features.
    spread : ndarray of shape (n_features,), default=None
        Standard deviations of the scaled features, for `feature_importances_` of the estimator
        that `to_estimator` returns.

    Attributes
    ----------
    bags : ModuleList
        The bags.
    offset, scale : tensor of shape (n_features,)
        Buffers.
    baseline : tensor of shape (n_outputs,)
        Buffer.

    See Also
    --------
    from_estimator : Make the module of a fitted estimator.
    to_estimator : Make an estimator of the module.

    Examples
    --------
    >>> import torch
    >>> from sklearn.datasets import load_diabetes
    >>> from skforest import RandomHingeForestRegressor
    >>> from skforest.torch import from_estimator
    >>> X, y = load_diabetes(return_X_y=True)
    >>> module = from_estimator(RandomHingeForestRegressor(n_bags=2, random_state=0).fit(X, y))
    >>> module.link, len(module.bags), module(torch.from_numpy(X)).shape
    ('identity', 2, torch.Size([442, 1]))
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
            Samples, in the units of the training set of the estimator.

        Returns
        -------
        out : tensor of shape (n_samples, n_outputs)
            In classification logits, whose softmax is the probabilities. In regression the
            predicted target, or with the Poisson loss the logarithm of the predicted mean.

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
        scaled = ((x - self.offset) * self.scale).to(dtype)
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
