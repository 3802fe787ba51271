"""Targets and predictions: mixins of classifiers, regressors and soft trees."""

from copy import copy
from dataclasses import replace

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from .._docs import with_texts
from .._warnings import warn_caller
from ..forest.edit import with_gate
from ..forest.statistics import labels_of, probabilities
from ..forest.storage import MAX_RATIO, MIN_RATIO, is_prior_ratio
from ..table.target_statistics import indicators
from ..training.losses import (
    TargetUnits,
    for_squared_errors,
    linked_by,
    loss_with_link,
    squared_error,
    takes,
    with_outlier_weights,
)
from ..training.method import balancing_factor
from .base import StrOptions
from .conformal import IntervalMixin, SetMixin
from .prediction import same_classes
from .predictor import ClassPredictor, Predictor
from .validation import has_text_or_dates

WHOLE = int | np.integer | np.bool_  # labels that scores of scikit-learn refuse as objects
SAME_SHARE = 1e-9  # frequencies that differ by less, relatively, are equal up to rounding
GATES = {"hard": "hard", "soft": "sigmoid"}  # gate of a Forest, by the parameter `routing`


def check_labels(y, name="y"):
    """Raise ValueError if a label is None or NaN, with its position; `name` is the argument's."""
    if sparse.issparse(y):
        raise ValueError(f"sparse {name} is not supported; pass {name}.toarray()")
    is_series = hasattr(y, "__array__") and not isinstance(y, np.ndarray)  # or a data frame
    values = np.asarray(y, dtype=object) if is_series else y
    if isinstance(values, np.ndarray):
        if values.dtype != object or values.ndim not in (1, 2):
            return
    elif not isinstance(values, list | tuple):
        return
    for i, row in enumerate(values):
        for label in row if isinstance(row, list | tuple | np.ndarray) else [row]:
            # Only NaN differs from itself; pandas.NA is neither true nor false.
            is_missing = label is None or type(label).__name__ in ("NAType", "NaTType")
            if is_missing or (isinstance(label, float) and label != label):
                raise ValueError(
                    f"{name} contains NaN or None: label {i} is {label!r}; remove rows without a "
                    "label"
                )


@with_texts()
class ForestClassifierMixin(SetMixin, ClassifierMixin):
    """Mixin of classifiers, which comes before `BaseForest`."""

    _parameter_constraints: dict = {
        "class_weight": [StrOptions({"balanced", "balanced_subsample"}), dict, list, None],
        "prior": ["array-like", dict, None],
    }
    _target_options = {"multi_output": True}
    _takes_several_outputs = True
    _label_criterion = "gini"  # impurity of labels; for several outputs, it is the squared error

    # ------------------------------------------------------------------------------------- target

    @property
    def _has_several_outputs(self):
        return isinstance(self.classes_, list)

    @property
    def _criterion(self):
        return "squared_error" if self._has_several_outputs else self._label_criterion

    def _check_target_type(self, y):
        check_labels(y)

    def _label_columns(self, y):
        """The labels of every output: a list of arrays of shape (n_samples,)."""
        y = np.asarray(y)
        if y.ndim == 2 and y.shape[1] > 1:
            if not self._takes_several_outputs:
                raise ValueError(
                    f"y has {y.shape[1]} outputs; {type(self).__name__} takes one label per row"
                )
            # Each column of objects gets the dtype of its values: strings, numbers or bools.
            return [np.array(column.tolist()) if y.dtype == object else column for column in y.T]
        column = column_or_1d(y, warn=True)
        if column.dtype == object and all(isinstance(label, WHOLE) for label in column):
            advice = "y has the dtype object; convert it: y.astype(int) or y.astype(bool)"
            raise ValueError(f"Unknown label type: {advice}")
        return [column]

    def _encode_target(self, y, is_warm_start):
        """Class numbers of the labels, one column for each output."""
        try:
            columns = self._label_columns(y)
            for column in columns:
                check_classification_targets(column)
            found = [np.unique(column, return_inverse=True) for column in columns]
        except TypeError as error:
            raise TypeError(f"y must hold labels of one type: {error}") from error
        classes = [labels for labels, _ in found]
        if is_warm_start and not same_classes(classes, self._every_classes):
            shown = classes if len(classes) > 1 else classes[0]
            raise ValueError(
                f"y has classes {shown}, but warm_start=True continues with {self.classes_}"
            )
        if is_warm_start:  # labels keep their dtype
            classes = self._every_classes
        n_classes = [len(labels) for labels in classes]
        several = len(classes) > 1
        self.classes_ = classes if several else classes[0]
        self.n_classes_ = n_classes if several else n_classes[0]
        self.n_outputs_ = len(classes)
        criterion = getattr(self, "criterion", "gini")
        if several and criterion != "gini":
            raise ValueError(
                f'criterion="{criterion}" takes one output, y has {len(classes)}; '
                'use criterion="gini"'
            )
        return np.stack([codes.astype(np.float64) for _, codes in found], axis=1)

    @property
    def _every_classes(self):
        """Classes of every output, as a list."""
        return self.classes_ if self._has_several_outputs else [self.classes_]

    def _encode_known_target(self, y, name="y"):
        """Class numbers of labels that the estimator was fitted on; `name` is the argument's."""
        codes = []
        try:
            columns = self._label_columns(y)
            if len(columns) != len(self._every_classes):
                raise ValueError(
                    f"{name} has {len(columns)} outputs, the estimator was fitted with "
                    f"{len(self._every_classes)}"
                )
            for labels, classes in zip(columns, self._every_classes):
                unknown = np.setdiff1d(labels, classes)
                if len(unknown):
                    raise ValueError(
                        f"{name} has labels {unknown}, the estimator was fitted on {classes}"
                    )
                codes.append(np.searchsorted(classes, labels).astype(np.float64))
        except TypeError as error:
            raise TypeError(f"{name} must hold labels of one type: {error}") from error
        return np.stack(codes, axis=1)

    def _decoded(self, codes):
        """Labels for class numbers, and the classes of every output."""
        classes = self._every_classes
        columns = [labels[own.astype(np.int64)] for labels, own in zip(classes, codes.T)]
        if len(columns) == 1:
            return columns[0], classes
        dtypes = {column.dtype.kind for column in columns}
        columns = columns if len(dtypes) == 1 else [c.astype(object) for c in columns]
        return np.stack(columns, axis=1), classes

    def _set_target(self, data, is_warm_start):
        """Class numbers as the target, or indicators of the classes of several outputs.

        Class weights multiply the weights of the rows.
        """
        data = self._with_class_weights(data)
        target = self._numeric_target(data.y)
        units = self._target_units(data, target, is_warm_start)
        if self._has_several_outputs:
            target = (target - units.baseline) / units.scale
        return data.with_target(target, units)

    def _numeric_target(self, y):
        """Class numbers, int32 of shape (n_rows,), or indicators for several outputs."""
        codes = y.astype(np.int32)
        return indicators(codes, self.n_classes_) if self._has_several_outputs else codes[:, 0]

    def _without_outliers(self, y, weight):
        """Labels, none of which is an outlier."""
        return y

    def _for_squared_errors(self, data):
        """The training set itself."""
        return data

    def _with_class_weights(self, data):
        """The training set with its weights multiplied by those of the classes."""
        weight = self._class_weighted(data.y, data.weight)
        return data if weight is data.weight else data.with_weight(weight)

    def _class_weighted(self, y, weight):
        if self.class_weight in (None, "balanced_subsample"):
            return weight
        given, codes, n_outputs = self.class_weight, y.astype(np.int32), y.shape[1]
        if isinstance(given, list) and len(given) != n_outputs:
            raise ValueError(
                f"class_weight={given!r} has {len(given)} entries, y has {n_outputs} outputs"
            )
        if isinstance(given, dict) and n_outputs > 1:
            raise ValueError(
                f"class_weight={given!r} must be a list of dicts, one for each output of y"
            )
        factor = np.ones(len(weight))
        for k, (column, classes) in enumerate(zip(codes.T, self._every_classes)):
            entry = given[k] if isinstance(given, list) else given
            factor *= self._given_factor(entry, column, classes, weight)[column]
        weight = weight * factor
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(weight.sum())
        if not weight.any() or not is_finite or weight.min() < 0:
            raise ValueError(
                f"class_weight={given!r} must give the rows weights of at least 0 with a finite "
                "sum, which are not all 0"
            )
        return weight

    def _given_factor(self, given, codes, classes, weight):
        """Factor for each class of one output, from its entry of `class_weight`."""
        if isinstance(given, str) and given == "balanced":
            return balancing_factor(codes, weight, len(classes))
        try:
            return compute_class_weight(given, classes=classes, y=classes[codes])
        except (ValueError, TypeError) as error:
            message = f"class_weight={self.class_weight!r} is not valid: {error}"
            raise type(error)(message) from error

    def _ratio_to_prior(self, data):
        """Frequency of each class by `prior`, divided by its frequency in a TrainingSet; a list.

        None if there is no prior, or if it equals the frequencies.
        """
        given, several = self.prior, self._has_several_outputs
        if given is None:
            return None
        if self.class_weight is not None:
            raise ValueError(
                f"prior={given!r} needs class_weight=None, got {self.class_weight!r}: leaves of "
                "few rows hardly react to weights, so probabilities would be corrected twice"
            )
        if several and not (isinstance(given, list) and len(given) == len(self.classes_)):
            raise ValueError(
                f"prior={given!r} must be a list with an entry for each of the "
                f"{len(self.classes_)} outputs of y: frequencies of its classes, or None"
            )
        ratio = []
        for own, classes, share in zip(
            given if several else [given], self._every_classes, self._training_shares(data)
        ):
            own = share if own is None else self._given_prior(own, classes)
            if not share.all():
                raise ValueError(
                    f"prior={given!r} needs rows of class {classes.tolist()[share.argmin()]!r}, "
                    "which has no weight in the training set"
                )
            of_class = own / own.sum() / share
            is_same = np.ptp(of_class) <= SAME_SHARE * of_class.max()
            ratio += [1.0] * len(classes) if is_same else of_class.tolist()
        if not is_prior_ratio(ratio, len(ratio)):
            raise ValueError(
                f"prior={given!r} makes classes {min(ratio):g} to {max(ratio):g} times as "
                f"frequent as in training; factors from {MIN_RATIO} to {MAX_RATIO} are supported"
            )
        return None if set(ratio) == {1.0} else ratio

    def _given_prior(self, given, classes):
        """The frequencies of the classes of one output, from its entry of `prior`."""
        labels = classes.tolist()
        if hasattr(given, "to_dict"):  # a Series of pandas, whose index has the labels
            given = given.to_dict()
        if isinstance(given, dict):
            if given.keys() != set(labels):
                raise ValueError(
                    f"prior={self.prior!r} needs a frequency for each class, and no others; the "
                    f"classes are {labels}"
                )
            given = [given[label] for label in labels]
        try:
            found = np.asarray(given, dtype=np.float64)
            is_valid = (
                found.shape == classes.shape and np.isfinite(found).all() and found.min() > 0
            )
        except (TypeError, ValueError):
            is_valid = False
        if not is_valid:
            raise ValueError(
                f"prior={self.prior!r} must have {len(labels)} finite numbers greater than 0, one "
                f"for each of the classes {labels}"
            )
        return found

    def _training_shares(self, data):
        """Share of each class in the weight of the rows, as trees see it: an array per output."""
        codes, weight = data.y.astype(np.int32).T, data.weight
        n_classes = [len(classes) for classes in self._every_classes]
        if isinstance(self.class_weight, str) and self.class_weight == "balanced_subsample":
            for own, n in zip(codes, n_classes):
                weight = weight * balancing_factor(own, data.weight, n)[own]
        return [np.bincount(own, weight, n) / weight.sum() for own, n in zip(codes, n_classes)]

    def _target_units(self, data, target, is_warm_start):
        """Raw prediction that training starts from; class numbers have no unit."""
        n = int(np.sum(self.n_classes_))
        return TargetUnits(np.zeros(n), 1.0, np.ones(n))

    def _sampling(self, *bootstrap):
        """With ``class_weight="balanced_subsample"``, samples are balanced."""
        sampling = super()._sampling(*bootstrap)
        if self.class_weight != "balanced_subsample":
            return sampling
        n_classes = tuple(len(classes) for classes in self._every_classes)
        return replace(sampling, balanced=n_classes)

    def _task(self):
        n_classes = tuple(len(classes) for classes in self._every_classes)
        return replace(super()._task(), n_classes=n_classes)

    @property
    def _task_metadata(self):
        if self._has_several_outputs:
            kinds = {labels.dtype.kind for labels in self.classes_}
            dtype = object if len(kinds) > 1 else None
            return {
                "task": "multioutput classification",
                "n_outputs": sum(self.n_classes_),
                "n_classes": self.n_classes_,
                "classes": np.concatenate([np.asarray(c, dtype=dtype) for c in self.classes_]),
            }
        return {
            "task": "classification",
            "n_outputs": self.n_classes_,
            "n_shared_values": self.n_classes_,
            "classes": self.classes_,
        }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        several = self._takes_several_outputs and getattr(self, "criterion", "gini") == "gini"
        tags.target_tags.multi_output = tags.classifier_tags.multi_label = several
        return tags

    # -------------------------------------------------------------------------------- predictions

    def predict_proba(self, X):
        """Class probabilities.

        {takes_rows}

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), float64, or list of such arrays
            In the order of `classes_`; with several outputs, a list with one array per output.
        """
        return self._probabilities_of(self._response(X))

    def _probabilities_of(self, response):
        """Probabilities from the response of the forest."""
        if not self._has_several_outputs:
            return response
        return probabilities(response, self.n_classes_)

    def predict_log_proba(self, X):
        """Logarithms of the class probabilities.

        {takes_rows}

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes), float64, or list of such arrays
        """
        proba = self.predict_proba(X)
        with np.errstate(divide="ignore"):
            return [np.log(p) for p in proba] if isinstance(proba, list) else np.log(proba)

    def predict(self, X):
        """Class with the largest probability.

        {takes_rows}

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs)
        """
        return self._prediction_of(self._response(X))

    def _prediction_of(self, response):
        """Labels from the response of the forest."""
        return labels_of(response, self._every_classes)

    def predictor(self):
        """A function that predicts float32 rows with little validation, see :ref:`serve`.

        Returns
        -------
        predictor : ClassPredictor
            Call it with rows to get class probabilities. Its methods are `predict`,
            `predict_proba`, and `encode`, which turns a data frame into such rows.
        """
        return ClassPredictor(self)

    def _set_oob_attributes(self, of_samples, response, y, weight):
        if not self._has_several_outputs:
            self.oob_decision_function_ = of_samples
            found = response.argmax(axis=1)[:, None]
        else:
            self.oob_decision_function_ = probabilities(of_samples, self.n_classes_)
            found = np.stack(
                [part.argmax(axis=1) for part in probabilities(response, self.n_classes_)], axis=1
            )
        is_right = (y == found).all(axis=1)
        self.oob_score_ = float(np.average(is_right, weights=weight))


def target_matrix(y, name="y"):
    """A numeric target as float64 of shape (n_samples, n_outputs), and whether it has one axis."""
    with np.errstate(invalid="ignore"):  # scikit-learn's sum of the largest numbers
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name=name)
    return np.ascontiguousarray(y.reshape(len(y), -1)), y.ndim == 1


@with_texts()
class ForestRegressorMixin(IntervalMixin, RegressorMixin):
    """Mixin of regressors, which comes before `BaseForest`."""

    _target_options = {"multi_output": True, "y_numeric": True}
    _calibrates_quantiles = False  # does training move the baseline of quantiles at its end?

    # ------------------------------------------------------------------------------------- target

    def _check_target_type(self, y):
        if has_text_or_dates(y):
            classifier = type(self).__name__.replace("Regressor", "Classifier")
            raise ValueError(
                f"y holds strings or dates, {type(self).__name__} predicts numbers; to predict "
                f"labels, use {classifier} (could not convert string to float)"
            )

    def _encode_target(self, y, is_warm_start):
        """The target as a matrix."""
        Y, is_1d = target_matrix(y)
        if is_warm_start and Y.shape[1] != self.n_outputs_:
            raise ValueError(
                f"y has {Y.shape[1]} outputs, but warm_start=True continues with {self.n_outputs_}"
            )
        self._is_1d, self.n_outputs_ = is_1d, Y.shape[1]
        quantile = getattr(self, "quantile", 0.5)
        if not np.array_equal(quantile, 0.5) and not takes(self.loss, "quantile"):
            warn_caller(f'quantile={quantile!r} has no effect, since loss is not "quantile"')
        return Y

    def _encode_known_target(self, y, name="y"):
        """The target as a matrix, with the number of outputs that the estimator was fitted on."""
        Y, _ = target_matrix(y, name)
        if Y.shape[1] != self.n_outputs_:
            raise ValueError(
                f"{name} has {Y.shape[1]} outputs, the estimator was fitted with {self.n_outputs_}"
            )
        return Y

    def _decoded(self, target):
        """The target in its original shape, and no classes."""
        return target[:, 0] if self._is_1d else target, None

    def _numeric_target(self, y):
        """The targets, unchanged."""
        return y

    def _set_target(self, data, is_warm_start):
        """The target in the units of the loss: deviations from a baseline."""
        loss, given = self._make_loss(), getattr(self, "loss", None)
        changes = (self._loss_with_link is None) != (loss_with_link(given) is None)
        if is_warm_start and (changes or loss.link != getattr(self.forest_, "link", loss.link)):
            kept = "does not match the trees that warm_start=True keeps: it has another link"
            raise ValueError(f"loss={given!r} {kept}")
        self._fitted_loss = given
        is_calibrated = self._calibrates_quantiles and loss.quantile is not None
        keeps_baseline = is_warm_start and not is_calibrated
        baseline = self.forest_.baseline if keeps_baseline else None
        data = with_outlier_weights(data, loss.scale)
        with np.errstate(over="ignore", invalid="ignore"):  # raises for targets that are too large
            units = loss.scale.units(data.y, data.weight, baseline)
        return data.with_target(loss.scale.scaled(data.y, units), units)

    def _make_loss(self):
        return squared_error(self.n_outputs_)

    def _without_outliers(self, y, weight):
        """The target, clipped by the loss for choices that compare squared errors."""
        return self._make_loss().scale.without_outliers(y, weight)

    def _for_squared_errors(self, data):
        """The training set with outliers of the target left out or clipped."""
        return for_squared_errors(data, self._make_loss().scale)

    @property
    def _task_metadata(self):
        return {"task": "regression", "n_outputs": self.n_outputs_}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    # -------------------------------------------------------------------------------- predictions

    def predict(self, X):
        """Predicted target.

        {takes_rows}

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs), float64
        """
        return self._prediction_of(self._response(X))

    def _prediction_of(self, response):
        """Targets from the response of the forest."""
        linked = self._linked(response)
        if self._has_own_link and (np.isfinite(response) & ~np.isfinite(linked)).any():
            name = type(self._loss_with_link).__name__
            raise ValueError(f"{name}.inverse_link returned infinite or missing numbers")
        return linked[:, 0] if self._is_1d else linked

    @property
    def _loss_with_link(self):
        return loss_with_link(vars(self).get("_fitted_loss", getattr(self, "loss", None)))

    @property
    def _has_own_link(self):
        return self._loss_with_link is not None

    def _linked(self, response):
        """Predictions from the response of the forest, with an axis even for a single output."""
        return linked_by(self._loss_with_link, response) if self._has_own_link else response

    def predictor(self):
        """A function that predicts float32 rows with little validation, see :ref:`serve`.

        Returns
        -------
        predictor : Predictor
            Call it with rows to get predicted targets. Its methods are `predict` and `encode`,
            which turns a data frame into such rows.
        """
        return Predictor(self)

    def _set_oob_attributes(self, of_samples, response, y, weight):
        self.oob_prediction_ = self._prediction_of(of_samples)
        self.oob_score_ = self._score_of(y, self._columns_of(response), weight)

    def _score_of(self, y, predicted, sample_weight):
        return r2_score(y, predicted, sample_weight=sample_weight)


class RoutingMixin:
    """Hard or soft routing of fitted soft trees, as the parameter `routing` says."""

    def _gated(self, forest):
        """The same trees with the gates of `routing`."""
        if not isinstance(self.routing, str) or self.routing not in GATES:
            raise ValueError(f'routing={self.routing!r} must be "hard" or "soft"')
        return with_gate(forest, GATES[self.routing])

    @property
    def _routing_forest(self):
        return self._gated(self.forest_)

    def routing_scores(self, X, y, sample_weight=None):
        """Scores with hard and soft routing, and the difference between the two predictions.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, \\*feature_shape)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        scores : dict of str to float
            "hard" and "soft": what `score` returns with each `routing`. "gap": mean absolute
            difference between the two predictions (probabilities or targets).
        """
        check_is_fitted(self, "forest_")
        scores, responses = {}, []
        for routing in GATES:
            other = copy(self)
            other.routing = routing
            scores[routing] = other.score(X, y, sample_weight)
            responses.append(other._response(X))
        return scores | {"gap": float(np.abs(responses[0] - responses[1]).mean())}
