"""Losses defined by the user, and their use in training."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..._kernels.base.loss import CallbackKernel
from .scales import TargetScale
from .training_loss import LINKED_RATE, TrainingLoss


class Loss:
    """Base class of losses that you define yourself.

    Derive a class from it, and pass an instance as `loss` to oblique boosting, random hinge
    forests, CO2 forests or non-greedy trees. The methods get targets `y` and raw predictions
    `raw`, both of shape (n_rows, n_outputs), float64; y has its original units. You must define
    `loss` and `gradient_hessian`. Predictions are ``inverse_link(raw)``. Boosted and hinge forests
    average the raw predictions of several bags before the link; CO2 forests average the
    predictions of their trees after it.

    In classification, the columns of y are one-hot labels, and predictions are the softmax of raw
    predictions; `inverse_link` is not used.

    Hinge forests use only the first derivatives. Their regressors are trained in units of the
    standard deviation of y, or in the units of y if `inverse_link` is overridden, with a smaller
    `learning_rate` if that is "auto"; rows are drawn in proportion to their weights.

    Several threads may call the methods at once, and the methods must not change their arguments.
    `skforest.save` refuses estimators with such a loss; use pickle for them.

    Examples
    --------
    >>> import numpy as np
    >>> from skforest import Loss, ObliqueBoostingRegressor
    >>> class LogCosh(Loss):
    ...     def loss(self, y, raw):
    ...         return np.logaddexp(raw - y, y - raw) - np.log(2)
    ...
    ...     def gradient_hessian(self, y, raw):
    ...         slope = np.tanh(raw - y)
    ...         return slope, 1 - slope**2
    >>> X = np.random.default_rng(0).normal(size=(200, 3))
    >>> model = ObliqueBoostingRegressor(50, loss=LogCosh(), random_state=0)
    >>> model.fit(X, X[:, 0]).predict([[-1, 0, 0], [0.5, 0, 0], [1, 0, 0]]).round(1)
    array([-1. ,  0.5,  1. ])
    """

    def loss(self, y, raw):
        """Return the loss of each row, without its weight.

        Parameters
        ----------
        y, raw : ndarray of shape (n_rows, n_outputs), float64

        Returns
        -------
        loss : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            If there are several columns, they are added.
        """
        raise NotImplementedError

    def gradient_hessian(self, y, raw):
        """Return the first and second derivatives of the loss with respect to `raw`.

        Parameters
        ----------
        y, raw : ndarray of shape (n_rows, n_outputs), float64

        Returns
        -------
        gradient, hessian : ndarray of shape (n_rows, n_outputs)
            Finite numbers. `hessian` must be at least 0, and may be an approximation. Oblique
            boosting adds `l2_regularization` to its sums, so second derivatives should be near 1;
            they must not all be 0 there.
        """
        raise NotImplementedError

    def initial(self, y, weight):
        """Return the initial raw prediction; by default, the mean of y.

        CO2 forests and non-greedy trees also call it with the rows of a node, of which all may
        have the same target, so that there are classes without rows.

        Parameters
        ----------
        y : ndarray of shape (n_rows, n_outputs), float64
        weight : ndarray of shape (n_rows,), float64

        Returns
        -------
        raw : ndarray of shape (n_outputs,)
        """
        return np.average(y, axis=0, weights=weight)

    def inverse_link(self, raw):
        """Convert raw predictions to predictions; by default, they are the same.

        Parameters
        ----------
        raw : ndarray of shape (n_rows, n_outputs), float64

        Returns
        -------
        prediction : ndarray of shape (n_rows, n_outputs)
        """
        return raw

    @property
    def _has_link(self):
        return type(self).inverse_link is not Loss.inverse_link


def loss_with_link(loss):
    """The loss, if it is one of the user with a link, or None."""
    return loss if isinstance(loss, Loss) and loss._has_link else None


def linked_by(loss, response):
    """The predictions for responses, by the link of a loss of the user."""
    linked = np.asarray(loss.inverse_link(response))
    if linked.shape != response.shape:
        raise ValueError(
            f"{type(loss).__name__}.inverse_link returned shape {linked.shape}, expected "
            f"{response.shape}"
        )
    return linked


def user_loss(given, n_outputs, *, in_units=False, is_one_hot=False):
    """Return the `TrainingLoss` of a `Loss`.

    With `in_units`, regressors train in units of the deviation of the target. With `is_one_hot`,
    targets are class numbers, which the loss gets one-hot encoded, and predictions are a softmax.
    """
    # With a link, the deviation of y is not the deviation of raw predictions.
    has_unit = in_units and not (is_one_hot or given._has_link)
    scale = UserScale(UserKernel(given, n_outputs), is_one_hot, has_unit)
    link = "softmax" if is_one_hot else "identity"
    rate = LINKED_RATE if given._has_link and not is_one_hot else 1.0
    parts = {"hinge_rate": rate, "for_trees": True}
    return TrainingLoss(n_outputs, partial(UserKernel, given), scale, link, **parts)


@dataclass(frozen=True)
class UserScale(TargetScale):
    """Targets in their own units, with the baseline of a `Loss`."""

    kernel: CallbackKernel
    is_one_hot: bool
    has_unit: bool

    def check(self, y, weight):
        for name in ("loss", "gradient_hessian"):
            if getattr(type(self.kernel.given), name) is getattr(Loss, name):
                raise ValueError(
                    f"{self.kernel.name} must define {name}(y, raw), see the example of "
                    "skforest.Loss"
                )

    def baseline(self, y, weight):
        return self.kernel.initial(self._encoded(y), weight)

    def shift(self, y, raw, weight):
        if self.kernel.given._has_link:
            return np.zeros(raw.shape[1])
        return super().shift(y, raw, weight)

    def scaled(self, y, units):
        return y

    def standardized(self, target, units):
        return self._encoded(target)

    def start(self, baseline):
        """Return the baseline, because the user's methods get complete raw predictions."""
        return baseline

    def _encoded(self, y):
        return np.eye(self.kernel.n_outputs)[y] if self.is_one_hot else y


class UserKernel(CallbackKernel):
    """The methods of a `Loss` as a kernel of raw predictions baseline + unit * f.

    Returned arrays are checked. In boosting, f are the raw predictions themselves.
    """

    baseline, unit = 0.0, 1.0

    def __init__(self, given, n_outputs):
        super().__init__(n_outputs)
        self.given = given

    @property
    def name(self):
        """str: name of the class of the loss, in messages."""
        return type(self.given).__name__

    def set_units(self, units):
        self.baseline, self.unit = units.baseline, units.response

    def initial(self, y, weight):
        """Return the initial raw prediction."""
        return self._checked(self.given.initial(y, weight), "initial", (self.n_outputs,))

    def derive(self, raw, y, weight, gradient, curvature):
        trains = weight > 0
        raw, y, weight = raw[trains], y[trains], weight[trains]
        slope, curve = self.derivatives(raw, y)
        if slope.any() and not curve.any():
            raise ValueError(
                f"{self.name}.gradient_hessian returned second derivatives that are all 0; "
                "boosting divides by their sums, so return a positive approximation"
            )
        gradient[:], curvature[:] = 0, 0
        gradient[trains], curvature[trains] = weight[:, None] * slope, weight[:, None] * curve
        return np.einsum("i,i->", weight, self.losses(raw, y))

    def evaluate(self, raw, y):
        raw = self.baseline + self.unit * raw
        return self._losses(raw, y), self._both(raw, y)[0] * self.unit

    def losses(self, raw, y):
        return self._losses(self.baseline + self.unit * raw, y)

    def _losses(self, raw, y):
        found = np.asarray(self.given.loss(y, raw))
        shapes = (len(raw),), raw.shape
        found = self._checked(found, "loss", found.shape if found.shape in shapes else shapes[0])
        return found if found.ndim == 1 else found.sum(axis=1)

    def derivatives(self, raw, y):
        """Return the checked first and second derivatives with respect to raw predictions."""
        slope, curve = self._both(raw, y)
        if curve.min(initial=0) < 0:
            raise ValueError(
                f"{self.name}.gradient_hessian returned a second derivative of {curve.min():g}; "
                "0 or more is needed"
            )
        return slope, curve

    def predictions(self, raw):
        """Convert raw predictions to predictions in regression."""
        return self._checked(self.given.inverse_link(raw), "inverse_link", raw.shape)

    def _both(self, raw, y):
        both = self.given.gradient_hessian(y, raw)
        if not isinstance(both, tuple | list) or len(both) != 2:
            raise ValueError(f"{self.name}.gradient_hessian must return two arrays, got {both!r}")
        return [self._checked(part, "gradient_hessian", raw.shape) for part in both]

    def _checked(self, found, method, shape):
        """Convert the result of a method to float64; check its shape and that it is finite."""
        found = np.asarray(found, dtype=np.float64)
        if found.shape != shape:
            raise ValueError(
                f"{self.name}.{method} returned shape {found.shape}, expected {shape}"
            )
        if not np.isfinite(found).all():
            raise ValueError(f"{self.name}.{method} returned infinite or missing numbers")
        return found
