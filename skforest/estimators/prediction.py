"""Predictions: weighted models, and how the sum of their responses becomes a prediction.

Explanations, exports and similarities read `prediction_of(estimator)`, whether a fitted estimator
is a forest or a blend. Files read its parts.
"""

from dataclasses import dataclass

from .unwrap import refusal

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

    def checked(self, reason):
        """The model; raises TypeError, with the reason, if it is no forest of this package."""
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
    """

    parts: list
    classes: list | None = None
    temperature: float = 1.0

    @property
    def is_blend(self):
        """bool: is it the prediction of a blend?"""
        return self.parts[0].name is not None


def prediction_of(estimator, needed=NEEDED):
    """The `Prediction` of a fitted estimator; TypeError, with what is needed, for any other."""
    if not hasattr(estimator, "_prediction"):
        raise refusal(estimator, needed=needed)
    return estimator._prediction()


def is_forest(estimator):
    """Is it an estimator of this package whose model is one `Forest`?"""
    return hasattr(type(estimator), "_routing_forest")
