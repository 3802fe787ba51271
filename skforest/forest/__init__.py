"""The packed forest, the fitted model of every estimator."""

from .packed import Forest

__all__ = ["Forest"]
