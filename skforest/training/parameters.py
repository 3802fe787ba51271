"""Parameters of an estimator that are an object, with parameters of its own."""

from sklearn.base import BaseEstimator


class ParameterObject(BaseEstimator):
    """Base of such objects; not for direct use.

    ``estimator.set_params(name__parameter=value)`` sets their parameters. They are equal where
    their parameters are. `fit` of an estimator calls `_validate_params`. To be saved, a class must
    be among `PARAMETER_OBJECTS` of `export/persistence.py`.
    """

    def __eq__(self, other):
        return type(self) is type(other) and self.get_params() == other.get_params()

    __hash__ = None  # parameters can be set
