"""Oblique, structured and differentiable decision forests as scikit-learn estimators."""

from ._version import __version__
from .blend.blend import BlendedForestClassifier, BlendedForestRegressor
from .blend.distil import distil
from .estimators.boosting import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from .estimators.co2 import CO2ForestClassifier, CO2ForestRegressor, CO2Procedure
from .estimators.endtoend import (
    E2EDecisionForest,
    E2EDecisionForestClassifier,
    E2EDecisionForestRegressor,
    E2EProcedure,
)
from .estimators.hinge import (
    HingeProcedure,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from .estimators.manifold import (
    ManifoldForestClassifier,
    ManifoldForestRegressor,
    ManifoldProcedure,
)
from .estimators.nongreedy import (
    NonGreedyProcedure,
    NonGreedyTreeClassifier,
    NonGreedyTreeRegressor,
)
from .estimators.ranges import param_distributions
from .estimators.refinement import refine
from .export import to_c, to_onnx
from .export.dicts import to_dict
from .export.persistence import load, save, show_versions, skops_types, slim
from .forest import Forest
from .inspect.comparison import leaderboard
from .inspect.cost import estimate_cost
from .inspect.counterfactual import counterfactual
from .inspect.displays import FeatureImportancesDisplay, TrainingCurveDisplay
from .inspect.effects import EffectDisplay
from .inspect.explain import shapley_values
from .inspect.importances import importances_table
from .inspect.partition import PartitionDisplay
from .inspect.plotting import plot_tree
from .inspect.report import describe
from .inspect.similarity import LeafEmbedding, prototypes, proximity
from .inspect.stages import staged_scores
from .inspect.text import export_graphviz, export_text
from .table.dates import DateFeatures
from .table.feature_grid import windows_of
from .training.losses import HuberLoss, Loss, TweedieLoss

__all__ = [
    "BlendedForestClassifier",
    "BlendedForestRegressor",
    "CO2ForestClassifier",
    "CO2ForestRegressor",
    "CO2Procedure",
    "DateFeatures",
    "E2EDecisionForest",
    "E2EDecisionForestClassifier",
    "E2EDecisionForestRegressor",
    "E2EProcedure",
    "EffectDisplay",
    "FeatureImportancesDisplay",
    "Forest",
    "HingeProcedure",
    "HuberLoss",
    "LeafEmbedding",
    "Loss",
    "ManifoldForestClassifier",
    "ManifoldForestRegressor",
    "ManifoldProcedure",
    "NonGreedyProcedure",
    "NonGreedyTreeClassifier",
    "NonGreedyTreeRegressor",
    "ObliqueBoostingClassifier",
    "ObliqueBoostingRegressor",
    "PartitionDisplay",
    "RandomHingeForestClassifier",
    "RandomHingeForestRegressor",
    "TrainingCurveDisplay",
    "TweedieLoss",
    "__version__",
    "counterfactual",
    "describe",
    "distil",
    "estimate_cost",
    "export_graphviz",
    "export_text",
    "importances_table",
    "leaderboard",
    "load",
    "param_distributions",
    "plot_tree",
    "prototypes",
    "proximity",
    "refine",
    "save",
    "shapley_values",
    "show_versions",
    "skops_types",
    "slim",
    "staged_scores",
    "to_dict",
    "to_c",
    "to_onnx",
    "windows_of",
]
