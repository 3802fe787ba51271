"""Predictions: weighted models, and how the sum of their responses becomes a prediction.

Explanations, exports and similarities read `prediction_of(estimator)`, whether a fitted estimator
is a forest or a blend. Files read its parts.
"""

from copy import copy
from dataclasses import dataclass

import numpy as np

from ..forest.edit import with_prior_ratio
from ..forest.statistics import with_prior
from ..table.frames import as_array
from ..training.blending import sharpened
from .unwrap import refusal, unwrapped

NEEDED = "a fitted estimator of skforest or a blend of these"


@dataclass(frozen=True)
class Part:
    """A fitted model, whose weighted response is a part of a prediction.

    Attributes
    ----------
    model : estimator
        Of this package, or of another one.
    weight : float
    name : str or None
        Name of the member of a blend; None if the model is not part of a blend.
    """

    model: object
    weight: float = 1.0
    name: str | None = None

    @property
    def what(self):
        """str: the model, in messages."""
        return "estimator" if self.name is None else f"the member {self.name!r} of the blend"

    @property
    def is_forest(self):
        """bool: does a `Forest` predict?"""
        return is_forest(self.model)

    def response(self, X, classes):
        """Response to the rows of a table, see `response_of`."""
        return response_of(self.model, X, classes)

    def uncorrected(self, forest):
        """A forest without `prior_ratio`, for those who apply that of the `Prediction`.

        TypeError for a member of a blend that has one of its own.
        """
        if self.name is not None and forest.prior_ratio is not None:
            raise TypeError(f"{self.what} has a prior of its own; set prior of the blend instead")
        return with_prior_ratio(forest, None)

    def checked(self, reason):
        """The model; raises TypeError, with the reason, if it is no forest of this package."""
        if is_blend(self.model):
            name = type(self.model).__name__
            raise TypeError(
                f"{self.what} is a {name}, whose own members are not read: move them "
                "to the outer blend"
            )
        if not self.is_forest:
            raise TypeError(f"{self.what} is a {type(self.model).__name__}{reason}")
        return self.model


@dataclass(frozen=True)
class Prediction:
    """Weighted models, and the finish of the sum of their responses.

    Attributes
    ----------
    parts : list of Part
    classes : list of ndarray, or None
        Class labels of each output; None in regression.
    temperature : float
        It sharpens or flattens the probabilities of the sum. The temperature of a hinge forest is
        not here, since its leaves contain it.
    prior_ratio : list of float, or None
        Factors of the probabilities, see `Forest`. The response of the one forest of an estimator
        contains them; the members of a blend have none of their own.
    """

    parts: list
    classes: list | None = None
    temperature: float = 1.0
    prior_ratio: list | None = None

    @property
    def is_blend(self):
        """bool: is it the prediction of a blend?"""
        return self.parts[0].name is not None

    def finish(self, response):
        """Probabilities from the sum of the responses, without `prior_ratio`, of the parts."""
        return finished(response, self.temperature, self.prior_ratio, self.classes)


def finished(response, temperature, prior_ratio, classes):
    """Probabilities, or predictions, from the sum of responses; see `Prediction`."""
    response = sharpened(response, temperature)
    if prior_ratio is None:
        return response
    return with_prior(response, prior_ratio, [len(labels) for labels in classes])


def prediction_of(estimator):
    """The `Prediction` of a fitted estimator; TypeError for any other object."""
    if not hasattr(estimator, "_prediction"):
        raise refusal(estimator, needed=NEEDED)
    return estimator._prediction()


def predicting(estimator, X, response):
    """A copy of an estimator that predicts this response to X, for scorers of scikit-learn."""

    def known(rows):
        if rows is not X:
            first, other = np.asarray(as_array(X)), np.asarray(as_array(rows))
            is_same = first.shape == other.shape
            if not is_same or not ((first == other) | ((first != first) & (other != other))).all():
                raise ValueError("scoring must predict all rows of its X, in their order")
        return response

    model = copy(estimator)
    model._response = known
    return model


def is_forest(estimator):
    """Is it an estimator of this package whose model is one `Forest`?"""
    return hasattr(type(estimator), "_routing_forest")


def is_blend(estimator):
    """Is it a fitted blend?"""
    return hasattr(estimator, "members_")


def same_classes(classes, others):
    """Are the classes of all outputs, lists of arrays, equal?"""
    return len(classes) == len(others) and all(map(np.array_equal, classes, others))


def has_response(model):
    """Can a blend average the responses of the forest of this estimator?"""
    return is_forest(model) and not model._has_own_link


def has_classes(model, classes):
    """Has the response of this estimator a column for each of these classes?"""
    return classes is None or same_classes(model._every_classes, classes)


def response_of(model, X, classes):
    """Class probabilities of all outputs side by side, or predictions: (n_samples, n_columns).

    `classes` are those of the blend, a list with one array for each output; None in regression. A
    model that did not see a class gives it the probability 0.
    """
    if not is_forest(model):  # pipelines and searches would clip and normalise probabilities
        inner = unwrapped(model)
        if is_forest(inner.estimator):
            model, X = inner.estimator, inner.transform(X)
    if has_response(model) and has_classes(model, classes):
        return model._response(X)
    if classes is None:
        found = np.asarray(model.predict(X), dtype=np.float64)
        return found.reshape(len(found), -1)
    proba, known = model.predict_proba(X), model.classes_
    if len(classes) == 1:
        proba, known = [proba], [known]
    if not isinstance(proba, list):
        raise ValueError(
            f"{type(model).__name__}.predict_proba returns no list of arrays, one for each output"
        )
    parts = []
    for part, own, labels in zip(proba, known, classes):
        if part.shape[1:] != own.shape:
            raise ValueError(
                f"{type(model).__name__}.predict_proba returns an array of shape {part.shape} for "
                f"{len(own)} classes"
            )
        whole = np.zeros((len(part), len(labels)))
        whole[:, np.searchsorted(labels, own)] = part
        parts.append(whole)
    return np.concatenate(parts, axis=1)
