"""Oblique, structured and differentiable decision forests as scikit-learn estimators."""

from ._version import __version__
from .blend import BlendedForestClassifier, BlendedForestRegressor
from .boosting import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from .co2 import CO2ForestClassifier, CO2ForestRegressor
from .displays import FeatureImportancesDisplay, TrainingCurveDisplay
from .endtoend import (
    E2EDecisionForest,
    E2EDecisionForestClassifier,
    E2EDecisionForestRegressor,
)
from .explain import shapley_values
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
from .partition import PartitionDisplay
from .persistence import load, save, show_versions, skops_types, slim, to_dict
from .plotting import plot_tree
from .refine import refine
from .text import export_graphviz, export_text
from .training.losses import Loss

__all__ = [
    "BlendedForestClassifier",
    "BlendedForestRegressor",
    "CO2ForestClassifier",
    "CO2ForestRegressor",
    "E2EDecisionForest",
    "E2EDecisionForestClassifier",
    "E2EDecisionForestRegressor",
    "FeatureImportancesDisplay",
    "Forest",
    "Loss",
    "ManifoldForestClassifier",
    "ManifoldForestRegressor",
    "NonGreedyForestClassifier",
    "NonGreedyForestRegressor",
    "NonGreedyTreeClassifier",
    "NonGreedyTreeRegressor",
    "ObliqueBoostingClassifier",
    "ObliqueBoostingRegressor",
    "PartitionDisplay",
    "RandomHingeForestClassifier",
    "RandomHingeForestRegressor",
    "TrainingCurveDisplay",
    "__version__",
    "export_graphviz",
    "export_text",
    "load",
    "plot_tree",
    "refine",
    "save",
    "shapley_values",
    "show_versions",
    "skops_types",
    "slim",
    "to_dict",
    "to_c",
    "to_onnx",
]
