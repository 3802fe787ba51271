"""Losses with names: the only file that knows them.

To add one, write a function that composes it of its parts, and its derivatives in
`_kernels/base/loss.pyx`.
"""

from functools import partial
from inspect import signature

import numpy as np
from sklearn.base import BaseEstimator

from ..._kernels.base import loss as kernels
from .calibration import MeanRatio, QuantileShift
from .leaves import HuberLeaves, NewtonLeaves, QuantileLeaves
from .scales import LabelScale, QuantileScale, RatioScale, TargetScale
from .training_loss import TrainingLoss
from .user import Loss, user_loss

LOG_STEP, LABEL_STEP = 4.0, 20.0  # largest steps of leaves, before the learning rate
# Of hinge forests for counts: the gradient grows exponentially with the response.
POISSON_RATE = 1 / 30


def squared_error(n_outputs):
    """Half of the squared error, which the conditional mean minimises."""
    kernel = partial(kernels.SquaredErrorKernel, n_outputs)
    return TrainingLoss(
        n_outputs=n_outputs, kernel=kernel, scale=TargetScale(), is_quadratic=True, for_trees=True
    )


def absolute_error(n_outputs):
    """The absolute error, which the conditional median minimises."""
    return TrainingLoss(
        n_outputs=n_outputs,
        kernel=partial(kernels.AbsoluteErrorKernel, n_outputs),
        scale=QuantileScale(),
        leaf=QuantileLeaves(),
    )


def huber(n_outputs, delta=1.35):
    """The squared error up to `delta` times the size of the residuals, and linear beyond."""
    return TrainingLoss(
        n_outputs=n_outputs,
        kernel=partial(kernels.HuberKernel, n_outputs, float(delta)),
        scale=QuantileScale(),
        leaf=HuberLeaves(),
    )


def quantile(n_outputs, quantile=0.5):
    """The pinball loss, which the conditional quantile minimises; of several, their sum."""
    has_several = np.ndim(quantile) > 0
    level = np.array(quantile, dtype=np.float64) if has_several else float(quantile)
    n_outputs = len(level) if has_several else n_outputs
    return TrainingLoss(
        n_outputs=n_outputs,
        kernel=partial(kernels.QuantileKernel, n_outputs, level),
        scale=QuantileScale(level),
        leaf=QuantileLeaves(level),
        calibration=QuantileShift(level),
    )


def poisson(n_outputs):
    """The negative log-likelihood of counts."""
    kernel = partial(kernels.PoissonKernel, n_outputs)
    return _of_log_mean(n_outputs, kernel, RatioScale("poisson"), POISSON_RATE)


def gamma(n_outputs):
    """Half of the gamma deviance, for positive targets whose deviation grows with their mean."""
    kernel = partial(kernels.GammaKernel, n_outputs)
    return _of_log_mean(n_outputs, kernel, RatioScale("gamma", takes_zero=False))


def tweedie(n_outputs, power=1.5):
    """Half of the Tweedie deviance, for targets of 0 or more, some of them 0."""
    kernel = partial(kernels.TweedieKernel, n_outputs, float(power))
    return _of_log_mean(n_outputs, kernel, RatioScale("tweedie"))


def _of_log_mean(n_outputs, kernel, scale, hinge_rate=None):
    """A loss of the mean exp(raw prediction)."""
    return TrainingLoss(
        n_outputs=n_outputs,
        kernel=kernel,
        scale=scale,
        link="log",
        leaf=NewtonLeaves(LOG_STEP),
        calibration=MeanRatio(),
        hinge_rate=hinge_rate,
    )


def log_loss(n_outputs, label_smoothing=0.0, boosting=False):
    """The negative log-likelihood of class numbers, after a softmax.

    Boosting starts from the shares of the classes. Two classes have one raw prediction there.
    """
    kernel = partial(kernels.LogLossKernel, n_outputs, float(label_smoothing))
    if boosting and n_outputs == 2:
        kernel = partial(kernels.BinaryLogLossKernel, 1)
    return TrainingLoss(
        n_outputs=n_outputs,
        kernel=kernel,
        scale=LabelScale(n_outputs, starts_from_shares=boosting),
        link="softmax",
        leaf=NewtonLeaves(LABEL_STEP),
        has_temperature=True,
        for_trees=True,
    )


# By the name that the parameter `loss` of an estimator has.
LOSSES = {
    make.__name__: make
    for make in (
        squared_error, absolute_error, huber, quantile, poisson, gamma, tweedie, log_loss
    )
}  # fmt: skip


class LossParameters(BaseEstimator):
    """A loss with a name and parameters, as the parameter `loss` of an estimator."""

    _name = ""  # in LOSSES


def loss_names(offer, of_labels=False):
    """Names of the losses, of labels or of real targets, that offer "for_boosting", say."""
    losses = {name: make(1) for name, make in LOSSES.items()}
    return {
        name
        for name, loss in losses.items()
        if getattr(loss, offer) and loss.takes_labels == of_labels
    }


def takes(loss, parameter):
    """Has a loss, as it is a parameter of an estimator, a parameter of this name?"""
    return isinstance(loss, str) and parameter in signature(LOSSES[loss]).parameters


def make_loss(loss, n_outputs, *, is_one_hot=False, in_units=False, **parameters):
    """The `TrainingLoss` of the parameter `loss` of an estimator.

    `parameters` are those that the estimator has for its losses; `in_units` and `is_one_hot` are
    for a loss of the user, see `user_loss`.
    """
    if isinstance(loss, Loss):
        return user_loss(loss, n_outputs, in_units=in_units, is_one_hot=is_one_hot)
    if isinstance(loss, LossParameters):
        return LOSSES[loss._name](n_outputs, **loss.get_params())
    own = {name: value for name, value in parameters.items() if takes(loss, name)}
    return LOSSES[loss](n_outputs, **own)
