"""Hinge forests as layers of PyTorch networks, and trees whose splits are networks.

This module needs PyTorch, the extra `torch`; ``import skforest`` does not import it.
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError('skforest.torch needs PyTorch: pip install "skforest[torch]"') from error

from .conversion import HingeEnsemble, from_estimator, to_estimator
from .layer import HingeFern, HingeForest, RunningStandardiser
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
