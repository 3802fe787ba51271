"""Oblique, structured and differentiable decision forests as scikit-learn estimators."""

from ._version import __version__
from .blend import BlendedForestClassifier, BlendedForestRegressor
from .boosting import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from .co2 import CO2ForestClassifier, CO2ForestRegressor
from .counterfactual import counterfactual
from .displays import FeatureImportancesDisplay, TrainingCurveDisplay
from .endtoend import (
    E2EDecisionForest,
    E2EDecisionForestClassifier,
    E2EDecisionForestRegressor,
)
from .explain import importances_table, shapley_values
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
from .similarity import LeafEmbedding, prototypes, proximity
from .text import export_graphviz, export_text
from .training.user_losses import Loss

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
    "LeafEmbedding",
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
    "counterfactual",
    "export_graphviz",
    "export_text",
    "importances_table",
    "load",
    "plot_tree",
    "prototypes",
    "proximity",
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
