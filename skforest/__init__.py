"""Oblique, structured and differentiable decision forests as scikit-learn estimators."""

from ._version import __version__
from .blend import BlendedForestClassifier, BlendedForestRegressor
from .boosting import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from .co2 import CO2ForestClassifier, CO2ForestRegressor
from .endtoend import (
    E2EDecisionForest,
    E2EDecisionForestClassifier,
    E2EDecisionForestRegressor,
)
from .export import to_c, to_onnx
from .forest import Forest
from .hinge import RandomHingeForestClassifier, RandomHingeForestRegressor
from .manifold import ManifoldForestClassifier, ManifoldForestRegressor
from .nongreedy import (
    NonGreedyForestClassifier,
    NonGreedyForestRegressor,
    NonGreedyTreeClassifier,
    NonGreedyTreeRegressor,
)
from .persistence import load, save, show_versions
from .plotting import plot_tree
from .refine import refine

__all__ = [
    "BlendedForestClassifier",
    "BlendedForestRegressor",
    "CO2ForestClassifier",
    "CO2ForestRegressor",
    "E2EDecisionForest",
    "E2EDecisionForestClassifier",
    "E2EDecisionForestRegressor",
    "Forest",
    "ManifoldForestClassifier",
    "ManifoldForestRegressor",
    "NonGreedyForestClassifier",
    "NonGreedyForestRegressor",
    "NonGreedyTreeClassifier",
    "NonGreedyTreeRegressor",
    "ObliqueBoostingClassifier",
    "ObliqueBoostingRegressor",
    "RandomHingeForestClassifier",
    "RandomHingeForestRegressor",
    "__version__",
    "load",
    "plot_tree",
    "refine",
    "save",
    "show_versions",
    "to_c",
    "to_onnx",
]
