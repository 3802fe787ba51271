"""Transformers of pipelines that change each column alone, as operations on columns.

An operation is a pair of a kind and float64 numbers, one for each column: "subtract", "divide",
"multiply", "add", "fill" (in place of NaN), "at least" and "at most".
"""

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler


def _of_standard(step):
    yield "subtract", step.mean_ if step.with_mean else None
    yield "divide", step.scale_ if step.with_std else None


def _of_robust(step):
    yield "subtract", step.center_ if step.with_centering else None
    yield "divide", step.scale_ if step.with_scaling else None


def _of_min_max(step):
    yield "multiply", step.scale_
    yield "add", step.min_
    if step.clip:
        for kind, limit in zip(("at least", "at most"), step.feature_range):
            yield kind, np.full(len(step.scale_), limit)


def _of_max_abs(step):
    yield "divide", step.scale_
    if getattr(step, "clip", False):
        for kind, limit in (("at least", -1.0), ("at most", 1.0)):
            yield kind, np.full(len(step.scale_), limit)


def _of_imputer(step):
    yield "fill", step.statistics_


OPERATIONS = {
    StandardScaler: _of_standard,
    RobustScaler: _of_robust,
    MinMaxScaler: _of_min_max,
    MaxAbsScaler: _of_max_abs,
    SimpleImputer: _of_imputer,
}


def operations_of(step):
    """Operations of a fitted transformer, as a list of pairs; None if it does something else."""
    # A subclass may do anything, and what is not fitted raises an error elsewhere.
    if type(step) not in OPERATIONS or not hasattr(step, "n_features_in_"):
        return None
    if isinstance(step, SimpleImputer):
        is_of_nan = isinstance(step.missing_values, float) and np.isnan(step.missing_values)
        try:
            fill = step.statistics_.astype(np.float64)  # of objects if it is a constant
        except (TypeError, ValueError):
            return None
        if not is_of_nan or step.add_indicator or np.isnan(fill).any():  # NaN: left out
            return None
    found = [(kind, values) for kind, values in OPERATIONS[type(step)](step) if values is not None]
    return [(kind, np.asarray(values, dtype=np.float64)) for kind, values in found]
