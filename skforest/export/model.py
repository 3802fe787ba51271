"""The computation of a fitted estimator, for the writers of other formats.

`exported(estimator)` checks that the estimator can be written, and returns an `ExportedModel`:
weighted forests, and how the sum of their responses becomes a prediction.
"""

import numpy as np

from ..estimators.prediction import Part, prediction_of, same_classes
from ..estimators.unwrap import active_steps, inside, unwrapped, unwrapped_alone
from .columns import operations_of

# Modules whose estimators predict by the forest alone: by `Forest.response`.
KNOWN = ("skforest.estimators.base",)
NO_FOREST = ", which cannot be exported; only estimators of skforest can"


class Member:
    """A forest of the model.

    Parameters
    ----------
    forest : Forest
        With the gates of prediction, without unused directions.
    weight : float
        Factor of its response.
    columns : ndarray of shape (forest.n_outputs,), int
        Columns of the model's response that the columns of the forest's response are added to.
    """

    def __init__(self, forest, weight, columns):
        self.forest, self.weight, self.columns = forest.compact(), weight, columns


class ExportedModel:
    """A fitted estimator, as weighted forests.

    The response is the sum of weight times response over the members. Then `temperature` is
    applied, or the columns are sorted in the order of `quantile_rank`. Columns are multiplied by
    `prior_ratio`. With it, or with several outputs, the probabilities of each output are divided
    by their sum.

    Attributes
    ----------
    estimator_name : str
    members : list of Member
    n_inputs, n_columns : int
        Number of columns of X, and of the response.
    input_names : list of str, or None
        Names of the columns of X, if it was a data frame.
    levels : dict of int to list of float or str
        Levels of the columns of X that are categories, in the order of their codes.
    classes : list of ndarray, or None
        Labels of each output; None in regression.
    temperature : float
    prior_ratio : ndarray of shape (n_columns,), or None
        Factors of the columns, before the probabilities of each output are divided by their sum.
    quantile_rank : ndarray of shape (n_columns,), int, or None
        Place of each column among the sorted ones.
    operations : list of (str, ndarray of shape (n_inputs,))
        First operations on the columns of X, see `columns`.
    """

    def __init__(self, estimator):
        self.estimator_name = type(estimator).__name__
        self.operations = []
        if not hasattr(estimator, "_prediction"):
            Part(estimator).checked(NO_FOREST + inside(estimator))
        prediction = prediction_of(estimator)
        self.classes = prediction.classes
        if self.classes is not None:
            self.classes = [np.asarray(labels) for labels in self.classes]
        self.temperature, self.prior_ratio = float(prediction.temperature), None
        if prediction.prior_ratio is not None:
            self.prior_ratio = np.array(prediction.prior_ratio)
        for part in prediction.parts:
            _check_kind(part)
        self.members = [_member(part, self.classes) for part in prediction.parts]
        self.n_inputs = int(estimator.n_features_in_)
        self.n_columns = 1 + max(int(member.columns.max()) for member in self.members)
        if self.classes is not None:
            self.n_columns = sum(map(len, self.classes))
        names = getattr(estimator, "feature_names_in_", None)
        self.input_names = None if names is None else [str(name) for name in names]
        self.levels = _common_levels(self.members)
        self.quantile_rank = None
        levels = getattr(estimator, "_fitted_quantiles", None)
        if levels is not None:
            order = np.argsort(levels, kind="stable")
            self.quantile_rank = np.argsort(order, kind="stable")

    @property
    def n_classes(self):
        """list of int: number of classes of each output; empty in regression."""
        return [len(labels) for labels in self.classes or ()]

    @property
    def normalizes(self):
        """bool: are the probabilities of each output divided by their sum?"""
        return len(self.n_classes) > 1 or self.prior_ratio is not None

    @property
    def is_scaling(self):
        """bool: do transformers, or some member, change the inputs, in float64?"""
        scales = any(len(member.forest.scale) > 0 for member in self.members)
        return scales or len(self.operations) > 0

    def input_name(self, j):
        """Name of a column of X."""
        return f"x{j}" if self.input_names is None else self.input_names[j]


def exported(estimator):
    """The model of a fitted estimator of this package.

    Raises NotFittedError if it is not fitted, and TypeError if it cannot be exported.
    """
    whole = unwrapped(estimator)
    estimator = unwrapped_alone(estimator, "the exported model", operations_of=operations_of)
    if not hasattr(estimator, "fit"):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}; a fitted estimator of skforest is needed"
        )
    model = ExportedModel(estimator)
    for steps in whole.transformers:
        for _, step in active_steps(steps):
            model.operations += operations_of(step)
    if model.operations:
        if model.levels:
            raise TypeError(
                "estimator is a pipeline that scales columns, some of which are categories; it "
                "cannot be exported"
            )
        names = getattr(whole.transformers[0], "feature_names_in_", None)
        model.input_names = None if names is None else [str(name) for name in names]
    return model


def _check_kind(part):
    """Raise TypeError unless a model predicts by its forest alone."""
    model = part.checked(NO_FOREST + inside(part.model))
    if type(model)._response.__module__ not in KNOWN or model._has_own_link:
        raise TypeError(
            f"{part.what} is a {type(model).__name__}, whose predictions are not those of its "
            "forest alone; it cannot be exported"
        )


def _member(part, classes):
    model, forest = part.model, part.uncorrected(part.model._routing_forest)
    columns = np.arange(forest.n_outputs)
    if classes is not None and not same_classes(model._every_classes, classes):
        if len(classes) > 1:
            raise TypeError(
                f"a member of the blend, a {type(model).__name__}, was trained on other "
                "classes than the blend has; such a blend of several outputs cannot be exported"
            )
        columns = np.searchsorted(classes[0], model.classes_)
    return Member(forest, float(part.weight), columns)


def _common_levels(members):
    """Levels of the categories, which must be the same for all members."""
    first = members[0].forest.levels
    for member in members[1:]:
        if dict(member.forest.levels) != dict(first):
            raise TypeError(
                "the members of the blend have different categories, or different levels of a "
                "category; such a blend cannot be exported"
            )
    return dict(first)


def without_boxes(forest):
    """The same forest with a sparse direction, of weights 1 and -1, in place of each box."""
    n_boxes = len(forest.box_corner)
    if not n_boxes:
        return forest
    codes = np.arange(forest.n_features, forest.n_features + n_boxes, dtype=np.int32)
    start, feature, weight = forest.router.expand(codes)
    arrays = dict(forest.arrays)
    # Sparse directions follow the boxes, so that all codes remain as they are.
    arrays["sparse_start"] = np.concatenate([start[:-1], start[-1] + forest.sparse_start])
    arrays["sparse_feature"] = np.concatenate([feature, forest.sparse_feature])
    arrays["sparse_weight"] = np.concatenate([weight, forest.sparse_weight])
    arrays |= {name: array[:0] for name, array in arrays.items() if name.startswith("box_")}
    return forest.replaced(arrays)
