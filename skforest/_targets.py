"""What classifiers and regressors add to the door: targets, weights, predictions."""

from __future__ import annotations

from copy import copy

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_array
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from ._base import StrOptions
from ._feature_map import tame
from .training.losses import power_of_two_scale


class ForestClassifierMixin(ClassifierMixin):
    """What classifiers add to `BaseForest`."""

    _parameter_constraints: dict = {
        "class_weight": [StrOptions({"balanced", "balanced_subsample"}), dict, None],
    }
    _target_options = {"multi_output": False}

    def _encode(self, y, goes_on):
        try:
            check_classification_targets(y)
            y = column_or_1d(y, warn=True)
            classes, codes = np.unique(y, return_inverse=True)
        except TypeError as error:
            raise TypeError(f"y must hold labels of one kind: {error}") from error
        if goes_on and not np.array_equal(classes, self.classes_):
            raise ValueError(
                f"y has classes {classes}, but warm_start=True goes on with {self.classes_}"
            )
        self.classes_ = classes
        self.n_classes_ = len(classes)
        self.n_outputs_ = 1
        return codes.astype(np.float64)[:, None]

    def _encode_known(self, y):
        """Numbers of labels that the estimator was fitted on."""
        try:
            y = column_or_1d(y, warn=True)
            unknown = np.setdiff1d(y, self.classes_)
            if not len(unknown):
                return np.searchsorted(self.classes_, y).astype(np.float64)[:, None]
        except TypeError as error:
            raise TypeError(f"y must hold labels of one kind: {error}") from error
        raise ValueError(f"y has labels {unknown}, the estimator knows {self.classes_}")

    def _make_target(self, rows, goes_on):
        """Class numbers of the rows; class weights become row weights, as if rows were copied."""
        target = rows.Y[:, 0].astype(np.int32)
        if isinstance(self.class_weight, dict):
            labels = self.classes_[target]
            try:
                factor = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
            except (ValueError, TypeError) as error:
                message = f"class_weight={self.class_weight!r} is not valid: {error}"
                raise type(error)(message) from error
        elif self.class_weight == "balanced":
            factor = self._balance(target, rows.weight)
        else:
            return target
        rows.weight = tame(rows.weight * factor[target])
        if not rows.weight.any() or not np.isfinite(rows.weight).all() or rows.weight.min() < 0:
            raise ValueError(
                f"class_weight={self.class_weight!r} must leave the rows finite weights of 0 or "
                "more, not all 0"
            )
        return target

    def _balance(self, target, weight):
        """Factor that gives every class present the same weight."""
        per_class = np.bincount(target, weights=weight, minlength=self.n_classes_)
        present = per_class > 0
        factor = np.zeros(self.n_classes_)
        factor[present] = per_class.sum() / (present.sum() * per_class[present])
        return factor

    def _tree_weight(self, rows, target, seed):
        """Weights of the rows of one tree: its bootstrap, perhaps balanced."""
        weight = self._counts(rows, seed)
        if self.class_weight == "balanced_subsample":
            weight = weight * self._balance(target, weight)[target]
        return weight

    @property
    def _forest_options(self):
        return {
            "task": "classification",
            "n_outputs": self.n_classes_,
            "n_shared_values": self.n_classes_,
            "classes": self.classes_,
        }

    def predict_proba(self, X):
        """Class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes), float64
            In the order of `classes_`.
        """
        return self._response(X)

    def predict_log_proba(self, X):
        """Logarithms of the class probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes), float64
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X):
        """Class of largest probability.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        response = self._response(X)
        return self.classes_[response.argmax(axis=1)]

    def _set_oob_attributes(self, of_samples, response, rows, known):
        self.oob_decision_function_ = of_samples
        self.oob_score_ = accuracy_score(
            rows.Y[known, 0], response.argmax(axis=1), sample_weight=rows.weight[known]
        )


class ForestRegressorMixin(RegressorMixin):
    """What regressors add to `BaseForest`."""

    _target_options = {"multi_output": True, "y_numeric": True}

    def _encode(self, y, goes_on):
        y = check_array(y, dtype=np.float64, ensure_2d=False, input_name="y")
        self._is_1d = y.ndim == 1
        y = y.reshape(len(y), -1)
        if goes_on and y.shape[1] != self.n_outputs_:
            raise ValueError(
                f"y has {y.shape[1]} outputs, but warm_start=True goes on with {self.n_outputs_}"
            )
        self.n_outputs_ = y.shape[1]
        return np.ascontiguousarray(y)

    def _encode_known(self, y):
        is_1d = self._is_1d
        Y = self._encode(y, False)
        if self._is_1d != is_1d or Y.shape[1] != self.forest_.n_outputs:
            raise ValueError(
                f"y has shape {y.shape}, the estimator was fitted with {self.forest_.n_outputs} "
                "outputs"
            )
        return Y

    def _make_target(self, rows, goes_on):
        if goes_on:
            baseline = self.forest_.baseline
        else:
            baseline = np.average(rows.Y, axis=0, weights=rows.weight)
        target = rows.Y - baseline
        scale = power_of_two_scale(target)
        self._baseline = baseline
        self._target_scale = scale
        return target / scale

    def _tree_weight(self, rows, target, seed):
        return self._counts(rows, seed)

    @property
    def _forest_options(self):
        return {"task": "regression", "n_outputs": self.n_outputs_}

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X):
        """Predicted target.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)

        Returns
        -------
        y : ndarray of shape (n_samples,) or (n_samples, n_outputs), float64
        """
        response = self._response(X)
        return response[:, 0] if self._is_1d else response

    def _set_oob_attributes(self, of_samples, response, rows, known):
        self.oob_prediction_ = of_samples[:, 0] if self._is_1d else of_samples
        self.oob_score_ = r2_score(rows.Y[known], response, sample_weight=rows.weight[known])


GATES = {"hard": "hard", "soft": "sigmoid"}


class RoutingMixin:
    """What estimators with a parameter `routing` share; not for direct use."""

    def _gated(self, forest, routing=None):
        """The same arrays with the gates of a way of routing; None: that of `routing`."""
        routing = self.routing if routing is None else routing
        if routing not in GATES:
            raise ValueError(f'routing={routing!r} must be "hard" or "soft"')
        gate = GATES[routing]
        return forest if forest.gate == gate else forest._with(forest.arrays, gate=gate)

    def routing_scores(self, X, y, sample_weight=None):
        """Scores with hard and with soft routing, and how far the two predictions are apart.

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
