"""Parameters of an estimator that are objects with parameters."""

from sklearn.base import BaseEstimator


class ParameterObject(BaseEstimator):
    """Base class of these objects; not for direct use.

    ``estimator.set_params(name__parameter=value)`` sets their parameters. Objects are equal if
    their parameters are. `fit` of an estimator calls `_validate_params`. Instances of public
    classes are saved with an estimator.
    """

    def __eq__(self, other):
        return type(self) is type(other) and self.get_params() == other.get_params()

    __hash__ = None  # parameters can be set
