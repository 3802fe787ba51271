"""Columns of a table as numbers, for members of a blend that read no categories or missing values.

Encoding is scikit-learn's work; only reading the table is ours, so that every kind of table that
forests read is read in the same way.
"""

from dataclasses import dataclass, field

import numpy as np
from sklearn import config_context
from sklearn.base import TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.model_selection import KFold
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, TargetEncoder
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from ..estimators.unwrap import active_steps
from ..estimators.validation import TableEstimator, why_no_category
from ..forest.storage import as_levels
from ..table.feature_map import MAX_INDICATORS
from ..table.frames import as_frame


class TableReader(TransformerMixin, TableEstimator):
    """Reads a table as a matrix: numbers of levels for categories, NaN for missing values.

    Parameters
    ----------
    categorical_features : array-like, "from_dtype" or None, default="from_dtype"
        As in the estimators of this package.
    left_out : sequence of int, default=()
        Categories whose levels do not matter, because a later step drops them.

    Attributes
    ----------
    levels_ : dict of int to list
        Levels of the categories by column. Others become -1.
    """

    _parameter_constraints: dict = {}
    _scales_features = True  # numbers are read as float64

    def __init__(self, categorical_features="from_dtype", left_out=()):
        self.categorical_features = categorical_features
        self.left_out = left_out

    def fit(self, X, y=None):
        """Find the categories and their levels."""
        X = as_frame(X)
        table, is_categorical = self._read(X, self.categorical_features, True)
        columns = [] if is_categorical is None else np.flatnonzero(is_categorical).tolist()
        levels = {j: [] if j in self.left_out else table.levels(j) for j in columns}
        self.levels_ = as_levels(levels)
        if table is None:
            self._validated(X, reset=True)
        return self

    def transform(self, X):
        """The matrix of a table with the same columns: (n_samples, n_features_in_), float64."""
        check_is_fitted(self, "levels_")
        X = as_frame(X, getattr(self, "feature_names_in_", None))
        table, _ = self._read(X, list(self.levels_), False)
        if table is None:
            return self._validated(X, reset=False).astype(np.float64, copy=False)
        return self._validated(table.matrix(self.levels_), reset=None)


class MemberPipeline(Pipeline):
    """A pipeline that passes `sample_weight` to its last step, with or without metadata routing.

    The other steps get no metadata.
    """

    def fit(self, X, y=None, sample_weight=None):
        """Fit all steps."""
        with config_context(enable_metadata_routing=False):
            for _, step in self.steps[:-1]:
                if step is not None and not isinstance(step, str):
                    X = step.fit_transform(X, y)
        options = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.steps[-1][1].fit(X, y, **options)
        return self


@dataclass(frozen=True)
class Columns:
    """Kinds of the columns of a table, by their numbers; the others hold plain numbers.

    `few` and `many` are categories with few and with many levels and without an order, `left_out`
    columns of text that are no categories. `has_categories` and `has_missing`: are there
    categories of any kind, and missing values?
    """

    has_categories: bool = False
    has_missing: bool = False
    few: list = field(default_factory=list)
    many: list = field(default_factory=list)
    left_out: list = field(default_factory=list)

    @classmethod
    def of(cls, matrix, levels, is_named):
        """Kinds of the columns of a matrix as `TableEstimator._validate_fit` returns it.

        `is_named`: has the user named the categories? Then none of them is left out.
        """
        is_missing = np.isnan(matrix) if matrix.dtype.kind == "f" else np.zeros(matrix.shape, bool)
        found = cls(bool(levels), bool(is_missing.any()))
        for j in sorted(set(levels) - levels.ordered) if levels else ():
            n_rows = np.count_nonzero(~is_missing[:, j])
            if not is_named and why_no_category(levels[j], n_rows):
                found.left_out.append(j)
            else:
                (found.few if len(levels[j]) <= MAX_INDICATORS else found.many).append(j)
        return found

    def encoded(self, estimator, categorical_features, n_outputs):
        """The estimator itself if it reads such columns; else a pipeline that encodes them first.

        A frozen estimator was fitted on the columns that it reads.

        Categories with few levels become indicators, those with many the mean of the target in
        their level, by cross-fitting. Where the estimator takes no missing values, the median
        stands for them, and indicators say where.
        """
        first = _first_step(estimator)
        if isinstance(first, FrozenEstimator):
            return estimator
        takes_missing = get_tags(estimator).input_tags.allow_nan
        reads_categories = _reads_categories(estimator)
        fills = reads_categories or hasattr(first, "add_indicator")  # an encoder or imputer
        if (reads_categories or not self.has_categories) and (
            takes_missing or fills or not self.has_missing
        ):
            return estimator
        numbers = "passthrough"
        if not takes_missing:
            numbers = SimpleImputer(
                strategy="median", add_indicator=True, keep_empty_features=True
            )
        indicators = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        # Means of several targets are not known to scikit-learn.
        means = _target_encoder() if n_outputs == 1 else numbers
        parts = [
            ("indicators", indicators, self.few),
            ("means", means, self.many),
            ("left out", "drop", self.left_out),
        ]
        columns = ColumnTransformer(
            [part for part in parts if part[2]], remainder=numbers, sparse_threshold=0.0
        )
        reader = TableReader(categorical_features, self.left_out)
        return MemberPipeline([("table", reader), ("columns", columns), ("model", estimator)])


def _target_encoder():
    """A `TargetEncoder` with fixed folds, in every release of scikit-learn."""
    encoder = TargetEncoder()
    if getattr(encoder, "random_state", "deprecated") != "deprecated":  # before 1.9
        return encoder.set_params(random_state=0)
    return encoder.set_params(cv=KFold(5, shuffle=True, random_state=0))


def _first_step(estimator):
    """The first estimator that sees the table, inside of searches and pipelines."""
    while True:
        if isinstance(estimator, Pipeline):
            estimator = [step for _, step in (*active_steps(estimator), estimator.steps[-1])][0]
        elif hasattr(estimator, "refit") and hasattr(estimator, "estimator"):  # a search
            estimator = estimator.estimator
        else:
            return estimator


def _reads_categories(estimator):
    """Does it begin with a step that reads categories, or takes columns as it likes?"""
    first = _first_step(estimator)
    if hasattr(first, "get_cat_feature_indices"):  # CatBoost reads only those that it knows of
        return first.get_params().get("cat_features") is not None
    named = getattr(first, "categorical_features", None)
    is_named = named is not None and not isinstance(named, str)  # "from_dtype" reads no strings
    takes_any = isinstance(first, ColumnTransformer | FeatureUnion | FunctionTransformer)
    return takes_any or is_named or get_tags(first).input_tags.categorical
