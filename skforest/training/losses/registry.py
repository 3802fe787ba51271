"""The named losses; no other file depends on their names.

To add a loss, write a function that composes the loss from its parts, and write its derivatives in
`_kernels/base/loss.pyx`. A parameter of the function comes from a class that derives from
`LossParameters`, or from the estimators, which pass it to `make_loss`.
"""

from functools import partial
from inspect import signature

import numpy as np

from ..._kernels.base import loss as kernels
from .calibration import MeanRatio, QuantileShift
from .leaves import HuberLeaves, NewtonLeaves, QuantileLeaves
from .parameters import HuberLoss, LossParameters, TweedieLoss
from .scales import LabelScale, QuantileScale, RatioScale, TargetScale
from .training_loss import LINKED_RATE, TrainingLoss
from .user import Loss, user_loss

LOG_STEP, LABEL_STEP = 4.0, 20.0  # largest steps of leaves, before the learning rate


def squared_error(n_outputs):
    """Half of the squared error; the conditional mean minimises it."""
    parts = {"is_quadratic": True, "for_trees": True}
    return TrainingLoss(n_outputs, kernels.SquaredErrorKernel, TargetScale(), **parts)


def absolute_error(n_outputs):
    """The absolute error; the conditional median minimises it."""
    kernel = kernels.AbsoluteErrorKernel
    return TrainingLoss(n_outputs, kernel, QuantileScale(), leaf=QuantileLeaves())


def huber(n_outputs, delta=1.35):
    """The squared error up to `delta` times the size of the residuals, and linear beyond."""
    kernel = partial(kernels.HuberKernel, delta=float(delta))
    return TrainingLoss(n_outputs, kernel, QuantileScale(), leaf=HuberLeaves())


def quantile(n_outputs, quantile=0.5):
    """The pinball loss of one quantile, or the sum for several quantiles."""
    has_several = np.ndim(quantile) > 0
    level = np.array(quantile, dtype=np.float64) if has_several else float(quantile)
    return TrainingLoss(
        len(level) if has_several else n_outputs,
        partial(kernels.QuantileKernel, level=level),
        QuantileScale(level),
        leaf=QuantileLeaves(level),
        calibration=QuantileShift(level),
    )


def poisson(n_outputs):
    """The negative log-likelihood of counts."""
    parts = kernels.PoissonKernel, RatioScale("poisson")
    return _of_log_mean(n_outputs, *parts, hinge_rate=LINKED_RATE)


def gamma(n_outputs):
    """Half of the gamma deviance, for positive targets that vary in proportion to their mean."""
    return _of_log_mean(n_outputs, kernels.GammaKernel, RatioScale("gamma", takes_zero=False))


def tweedie(n_outputs, power=1.5):
    """Half of the Tweedie deviance, for targets of at least 0, some of them exactly 0."""
    kernel = partial(kernels.TweedieKernel, parameter=float(power))
    return _of_log_mean(n_outputs, kernel, RatioScale("tweedie"))


def _of_log_mean(n_outputs, kernel, scale, hinge_rate=None):
    """Compose a loss of the mean exp(raw prediction)."""
    parts = {"link": "log", "leaf": NewtonLeaves(LOG_STEP), "calibration": MeanRatio()}
    return TrainingLoss(n_outputs, kernel, scale, **parts, hinge_rate=hinge_rate)


def log_loss(n_outputs, label_smoothing=0.0, boosting=False):
    """The log loss of class numbers after a softmax.

    Boosting starts from the class frequencies, and has one raw prediction for two classes.
    """
    kernel = partial(kernels.LogLossKernel, smoothing=float(label_smoothing))
    if boosting and n_outputs == 2:
        kernel = kernels.BinaryLogLossKernel
    scale = LabelScale(n_outputs, starts_from_shares=boosting)
    parts = {"link": "softmax", "leaf": NewtonLeaves(LABEL_STEP), "has_temperature": True}
    return TrainingLoss(n_outputs, kernel, scale, for_trees=True, **parts)


# The keys are values of the parameter `loss` of an estimator.
LOSSES = {
    "squared_error": squared_error,
    "absolute_error": absolute_error,
    "huber": huber,
    "quantile": quantile,
    "poisson": poisson,
    "gamma": gamma,
    "tweedie": tweedie,
    "log_loss": log_loss,
}


def loss_names(offer, of_labels=False):
    """Return the names of losses, of labels or numbers, that have a property like "for_hinge"."""
    losses = {name: make(1) for name, make in LOSSES.items()}
    return {
        name
        for name, loss in losses.items()
        if getattr(loss, offer) and loss.takes_labels == of_labels
    }


def loss_types(names):
    """Return the classes whose instances an estimator takes as `loss`."""
    return [Loss, *(one for one in (HuberLoss, TweedieLoss) if one._name in names)]


def takes(loss, parameter):
    """Return whether the loss passed to an estimator has a parameter of this name."""
    return isinstance(loss, str) and parameter in signature(LOSSES[loss]).parameters


def make_loss(loss, n_outputs, *, in_units=False, **parameters):
    """Return the `TrainingLoss` for the parameter `loss` of a regressor.

    `parameters` are parameters of the estimator that losses may use; for `in_units`, see
    `user_loss`.
    """
    if isinstance(loss, Loss):
        return user_loss(loss, n_outputs, in_units=in_units)
    return _named_loss(loss, n_outputs, parameters)


def make_label_loss(loss, n_classes, **parameters):
    """Return the `TrainingLoss` for the parameter `loss` of a classifier.

    `n_classes` is an int, or a list with one for each output. With several outputs, the loss is
    the squared error of their indicators.
    """
    if not isinstance(n_classes, list):
        if isinstance(loss, Loss):
            return user_loss(loss, n_classes, is_one_hot=True)
        return _named_loss(loss, n_classes, parameters)
    if isinstance(loss, Loss):
        raise ValueError(f"loss={loss!r} takes one output, y has several")
    return squared_error(sum(n_classes))


def _named_loss(loss, n_outputs, parameters):
    """Make the loss of a name, with the parameters that it has."""
    if isinstance(loss, LossParameters):
        return LOSSES[loss._name](n_outputs, **loss.get_params())
    own = {name: value for name, value in parameters.items() if takes(loss, name)}
    return LOSSES[loss](n_outputs, **own)
