"""Losses: what they are composed of, those with names, and those of the user."""

from .registry import (
    LossParameters,
    loss_names,
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
from .user import Loss, UserKernel

__all__ = [
    "Loss",
    "LossParameters",
    "TargetUnits",
    "TrainingLoss",
    "UserKernel",
    "for_squared_errors",
    "loss_names",
    "make_loss",
    "robust_size",
    "squared_error",
    "takes",
    "weighted_quantile",
    "with_outlier_weights",
]
