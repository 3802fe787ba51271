"""Losses: their parts, the named losses, and losses defined by the user."""

from .parameters import HuberLoss, TweedieLoss
from .registry import (
    loss_names,
    loss_types,
    make_label_loss,
    make_loss,
    squared_error,
    takes,
)
from .scales import (
    TargetUnits,
    for_squared_errors,
    robust_size,
    weighted_quantile,
    with_outlier_weights,
)
from .training_loss import TrainingLoss
from .user import Loss, UserKernel, linked_by, loss_with_link

__all__ = [
    "HuberLoss",
    "Loss",
    "TargetUnits",
    "TrainingLoss",
    "TweedieLoss",
    "UserKernel",
    "for_squared_errors",
    "linked_by",
    "loss_names",
    "loss_types",
    "loss_with_link",
    "make_label_loss",
    "make_loss",
    "robust_size",
    "squared_error",
    "takes",
    "weighted_quantile",
    "with_outlier_weights",
]
