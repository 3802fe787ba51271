"""Targets and predictions: what classifiers, regressors and soft trees add to the base class."""

from copy import copy

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ._base import StrOptions
from ._docs import with_texts
from .training.losses import SquaredError, TargetUnits

GATES = {"hard": "hard", "soft": "sigmoid"}  # gate of a Forest, by the parameter `routing`


@with_texts()
class ForestClassifierMixin(ClassifierMixin):
    """What classifiers add to `BaseForest`."""

    _parameter_constraints: dict = {
        "class_weight": [StrOptions({"balanced", "balanced_subsample"}), dict, None],
    }
    _target_options = {"multi_output": False}

    # ------------------------------------------------------------------------------------- target

    def _check_target_type(self, y):
        """Raise ValueError if a label is None or NaN, with its position."""
        values = y.to_numpy(dtype=object) if hasattr(y, "to_numpy") else y
        if isinstance(values, np.ndarray):
            if values.dtype != object or values.ndim != 1:
                return
        elif not isinstance(values, list | tuple):
            return
        for i, label in enumerate(values):
            # NaN is the only float that differs from itself; pandas.NA is neither true nor false.
            is_missing = label is None or type(label).__name__ in ("NAType", "NaTType")
            if is_missing or (isinstance(label, float) and label != label):
                raise ValueError(
                    f"y contains NaN or None: label {i} is {label!r}; remove rows without a label"
                )

    def _encode_target(self, y, is_warm_start):
        """Class numbers of the labels, in one column."""
        try:
            check_classification_targets(y)
            y = column_or_1d(y, warn=True)
            classes, codes = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise TypeError(f"y must hold labels of one type: {error}") from error
        if is_warm_start and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"y has classes {classes}, but warm_start=True continues with {self.classes_}"
            )
        self.classes_ = classes
        self.n_classes_ = len(classes)
        self.n_outputs_ = 1
        return codes.astype(np.float64)[:, None]

    def _encode_known_target(self, y):
        """Class numbers of labels that the estimator was fitted on."""
        try:
            y = column_or_1d(y, warn=True)
            unknown = np.setdiff1d(y, self.classes_)
            if not len(unknown):
                return np.searchsorted(self.classes_, y).astype(np.float64)[:, None]
        except TypeError as error:
            raise TypeError(f"y must hold labels of one type: {error}") from error
        raise ValueError(f"y has labels {unknown}, the estimator was fitted on {self.classes_}")

    def _set_target(self, data, is_warm_start):
        """Class numbers as the target; class weights multiply the weights of the rows."""
        target = data.y[:, 0].astype(np.int32)
        data = self._with_class_weights(data, target)
        return data.with_target(target, self._target_units(data, target, is_warm_start))

    def _with_class_weights(self, data, target):
        """The training set with its weights multiplied by those of the classes."""
        if isinstance(self.class_weight, dict):
            labels = self.classes_[target]
            try:
                factor = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
            except (ValueError, TypeError) as error:
                message = f"class_weight={self.class_weight!r} is not valid: {error}"
                raise type(error)(message) from error
        elif self.class_weight == "balanced":
            factor = self._balancing_factor(target, data.weight)
        else:
            return data
        weight = data.weight * factor[target]
        if not weight.any() or not np.isfinite(weight).all() or weight.min() < 0:
            raise ValueError(
                f"class_weight={self.class_weight!r} must leave the rows finite weights of 0 or "
                "more, not all 0"
            )
        return data.with_weight(weight)

    def _target_units(self, data, target, is_warm_start):
        """Raw prediction that training starts from; class numbers have no unit."""
        return TargetUnits(np.zeros(self.n_classes_), 1.0, np.ones(self.n_classes_))

    def _balancing_factor(self, target, weight):
        """Factor for each class that gives every class present the same weight."""
        per_class = np.bincount(target, weights=weight, minlength=self.n_classes_)
        present = per_class > 0
        factor = np.zeros(self.n_classes_)
        factor[present] = per_class.sum() / (present.sum() * per_class[present])
        return factor

    def _tree_weight(self, data, seed):
        """Weights of the rows of one tree: its bootstrap, balanced if asked for."""
        weight = self._draw_weight(data, seed)
        if self.class_weight == "balanced_subsample":
            weight = weight * self._balancing_factor(data.target, weight)[data.target]
        return weight

    @property
    def _task_metadata(self):
        return {
            "task": "classification",
            "n_outputs": self.n_classes_,
            "n_shared_values": self.n_classes_,
            "classes": self.classes_,
        }

    # -------------------------------------------------------------------------------- predictions

    def predict_proba(self, X):
        """Class probabilities.

        {takes_rows}

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), float64
            In the order of `classes_`.
        """
        return self._response(X)

    def predict_log_proba(self, X):
        """Logarithms of the class probabilities.

        {takes_rows}

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes), float64
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X):
        """Class of largest probability.

        {takes_rows}

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        response = self._response(X)
        return self.classes_[response.argmax(axis=1)]

    def _set_oob_attributes(self, of_samples, response, data, known):
        self.oob_decision_function_ = of_samples
        self.oob_score_ = accuracy_score(
            data.y[known, 0], response.argmax(axis=1), sample_weight=data.weight[known]
        )


@with_texts()
class ForestRegressorMixin(RegressorMixin):
    """What regressors add to `BaseForest`."""

    _target_options = {"multi_output": True, "y_numeric": True}

    # ------------------------------------------------------------------------------------- target

    def _check_target_type(self, y):
        dtype = getattr(y, "dtype", None)
        has_strings = isinstance(dtype, np.dtype) and dtype.kind in "USmM"
        if isinstance(y, list | tuple) or (isinstance(y, np.ndarray) and dtype.kind == "O"):
            has_strings = any(isinstance(value, str | bytes) for value in y)
        if has_strings:
            classifier = type(self).__name__.replace("Regressor", "Classifier")
            raise ValueError(
                f"y holds strings or dates, {type(self).__name__} predicts numbers; to predict "
                f"labels, use {classifier} (could not convert string to float)"
            )

    def _encode_target(self, y, is_warm_start):
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        self._is_1d = y.ndim == 1
        y = y.reshape(len(y), -1)
        if is_warm_start and y.shape[1] != self.n_outputs_:
            raise ValueError(
                f"y has {y.shape[1]} outputs, but warm_start=True continues with {self.n_outputs_}"
            )
        self.n_outputs_ = y.shape[1]
        return np.ascontiguousarray(y)

    def _encode_known_target(self, y):
        was_1d = self._is_1d
        Y = self._encode_target(y, False)
        if self._is_1d != was_1d or Y.shape[1] != self.forest_.n_outputs:
            raise ValueError(
                f"y has shape {np.shape(y)}, the estimator was fitted with "
                f"{self.forest_.n_outputs} outputs"
            )
        return Y

    def _set_target(self, data, is_warm_start):
        """The target in the units of the loss: deviations from a baseline."""
        loss = self._make_loss()
        keeps_baseline = is_warm_start and loss.calibration_level is None
        baseline = self.forest_.baseline if keeps_baseline else None
        units = loss.target_units(data.y, data.weight, baseline)
        return data.with_target(loss.scale_target(data.y, units), units)

    def _make_loss(self):
        return SquaredError(self.n_outputs_)

    def _tree_weight(self, data, seed):
        return self._draw_weight(data, seed)

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
        response = self._response(X)
        return response[:, 0] if self._is_1d else response

    def _set_oob_attributes(self, of_samples, response, data, known):
        self.oob_prediction_ = of_samples[:, 0] if self._is_1d else of_samples
        self.oob_score_ = r2_score(data.y[known], response, sample_weight=data.weight[known])


class RoutingMixin:
    """Hard or soft routing of fitted soft trees, by the parameter `routing`."""

    def _gated(self, forest, routing=None):
        """The same trees with the gates of a way of routing; None: that of `routing`."""
        routing = self.routing if routing is None else routing
        if routing not in GATES:
            raise ValueError(f'routing={routing!r} must be "hard" or "soft"')
        gate = GATES[routing]
        return forest if forest.gate == gate else forest.replaced(forest.arrays, gate=gate)

    def routing_scores(self, X, y, sample_weight=None):
        """Scores with hard and with soft routing, and how much the two predictions differ.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, \\*feature_shape)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        scores : dict of str to float
            "hard" and "soft": what `score` returns with each `routing`. "gap": mean absolute
            difference of the two predictions, of probabilities or targets.
        """
        check_is_fitted(self, "forest_")
        scores, responses = {}, []
        for routing in GATES:
            other = copy(self)
            other.routing = routing
            scores[routing] = other.score(X, y, sample_weight)
            responses.append(other._response(X))
        return scores | {"gap": float(np.abs(responses[0] - responses[1]).mean())}
