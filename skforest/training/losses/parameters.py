"""Losses with a parameter, as users pass them."""

from numbers import Real

import numpy as np

from ..parameters import ParameterObject


class LossParameters(ParameterObject):
    """Base class of losses with a parameter; not for direct use."""

    _name = ""  # in LOSSES
    _limits = 0.0, np.inf  # limits of the parameter, both excluded

    def _validate_params(self):
        """Check the parameter; `fit` of an estimator calls this."""
        low, high = self._limits
        for name, value in self.get_params().items():
            is_number = isinstance(value, Real) and not isinstance(value, bool)
            if not is_number or not low < value < high:
                raise ValueError(
                    f"{name}={value!r} of {type(self).__name__} must be a number in "
                    f"({low:g}, {high:g})"
                )


class HuberLoss(LossParameters):
    """The Huber loss, which is squared for small residuals and linear for large ones.

    `ObliqueBoostingRegressor` and `RandomHingeForestRegressor` take it as `loss`;
    ``loss="huber"`` is ``loss=HuberLoss()``.

    Parameters
    ----------
    delta : float, default=1.35
        Absolute residual above which the loss grows linearly, greater than 0. Its unit is three
        times the median absolute residual of the training rows: about two standard deviations
        without outliers. The unit becomes smaller as residuals do, but not in the losses of
        held-out rows.

    See Also
    --------
    TweedieLoss : For targets of at least 0.
    Loss : A loss of your own.

    Examples
    --------
    Every tenth target is wrong. The smaller `delta`, the less this matters:

    >>> from sklearn.datasets import make_friedman1
    >>> from skforest import HuberLoss, ObliqueBoostingRegressor
    >>> X, y = make_friedman1(400, random_state=0)
    >>> y[:200:10] += 100
    >>> model = ObliqueBoostingRegressor(
    ...     100, loss=HuberLoss(), n_bags=1, random_state=0
    ... )
    >>> for delta in (0.5, 1.35, 20.0):
    ...     model = model.set_params(loss__delta=delta).fit(X[:200], y[:200])
    ...     print("delta", delta, "R2", round(model.score(X[200:], y[200:]), 1))
    delta 0.5 R2 0.7
    delta 1.35 R2 0.6
    delta 20.0 R2 -4.1
    """

    _name = "huber"

    def __init__(self, delta=1.35):
        self.delta = delta


class TweedieLoss(LossParameters):
    """Half of the Tweedie deviance, for targets of at least 0, some of them exactly 0.

    `ObliqueBoostingRegressor` takes it as `loss`; ``loss="tweedie"`` is ``loss=TweedieLoss()``.
    Trees add up to the logarithm of the mean.

    Parameters
    ----------
    power : float, default=1.5
        The variance is proportional to this power of the mean, in (1, 2). Near 1, the loss is
        close to "poisson", for counts; near 2, it is close to "gamma".

    See Also
    --------
    HuberLoss : For targets with outliers.
    Loss : A loss of your own.

    Examples
    --------
    Costs of customers, a third of whom cause no costs. The true means are 0.7, 2 and 5.4 if the
    first feature is -1, 0 and 1:

    >>> import numpy as np
    >>> from skforest import ObliqueBoostingRegressor, TweedieLoss
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(1000, 2))
    >>> y = rng.poisson(np.exp(X[:, 0])) * rng.gamma(2.0, size=1000)
    >>> loss = TweedieLoss(power=1.6)
    >>> model = ObliqueBoostingRegressor(100, loss=loss, random_state=0)
    >>> model.fit(X, y).predict([[-1, 0], [0, 0], [1, 0]]).round(1)
    array([0.8, 2.3, 4.7])
    """

    _name = "tweedie"
    _limits = 1.0, 2.0

    def __init__(self, power=1.5):
        self.power = power
