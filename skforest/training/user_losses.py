"""Losses that a user defines, and how training takes them."""

import numpy as np

from .._kernels.base import loss as kernels
from .losses import BaseLoss


class Loss:
    """A loss of your own, for oblique boosting and random hinge forests; derive a class from it.

    `ObliqueBoostingRegressor`, `RandomHingeForestRegressor` and `RandomHingeForestClassifier` take
    an instance as `loss`. Its methods get targets `y` and raw predictions `raw`, both
    of shape (n_rows, n_outputs), float64, and y in its own units. `gradient_hessian` and `loss`
    are required. Predictions are ``inverse_link(raw)``; raw predictions of several bags are
    averaged before.

    In classification, y are the columns of one-hot labels, and predictions are the softmax of raw
    predictions, whatever `inverse_link` is.

    Hinge forests use the first derivatives only. Regressors are trained in units of the deviation
    of y, or of 1 where `inverse_link` is overridden; rows are drawn in proportion to their
    weights.

    Methods may be called from several threads, and must not change their arguments. `save` refuses
    estimators with such a loss; pickle them.

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
    >>> model = ObliqueBoostingRegressor(50, loss=LogCosh(), random_state=0).fit(X, X[:, 0])
    >>> bool(model.score(X, X[:, 0]) > 0.8)
    True
    """

    def loss(self, y, raw):
        """Losses of the rows, without their weights.

        Parameters
        ----------
        y, raw : ndarray of shape (n_rows, n_outputs), float64

        Returns
        -------
        loss : ndarray of shape (n_rows,) or (n_rows, n_outputs)
            Of several columns, the loss is the sum.
        """
        raise NotImplementedError

    def gradient_hessian(self, y, raw):
        """First and second derivatives of the losses with respect to `raw`.

        Parameters
        ----------
        y, raw : ndarray of shape (n_rows, n_outputs), float64

        Returns
        -------
        gradient, hessian : ndarray of shape (n_rows, n_outputs)
            Finite; the second one is not negative, and may be an approximation.
        """
        raise NotImplementedError

    def initial(self, y, weight):
        """The constant raw prediction that training starts from; by default the mean of y.

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
        """Predictions from raw predictions; by default these themselves.

        Parameters
        ----------
        raw : ndarray of shape (n_rows, n_outputs), float64

        Returns
        -------
        prediction : ndarray of shape (n_rows, n_outputs)
        """
        return raw


class UserLoss(BaseLoss):
    """A `Loss` as boosting takes it; it is its own compiled loss.

    `in_units`: raw predictions have the unit of the target, as in hinge training.
    """

    is_adaptive = False

    def __init__(self, given, n_outputs, in_units=False):
        super().__init__(n_outputs)
        self.given = given
        # Behind a link, the deviation of y says nothing about that of raw predictions.
        self.has_unit = in_units and type(given).inverse_link is Loss.inverse_link

    def check_target(self, y, weight):
        for name in ("loss", "gradient_hessian"):
            if getattr(type(self.given), name) is getattr(Loss, name):
                raise ValueError(
                    f"{self._name} must define {name}(y, raw), see the example of skforest.Loss"
                )

    def baseline(self, y, weight):
        return self._checked(self.given.initial(y, weight), "initial", (self.n_outputs,))

    def baseline_shift(self, y, raw, weight):
        if type(self.given).inverse_link is not Loss.inverse_link:
            return np.zeros(self.n_outputs)
        return super().baseline_shift(y, raw, weight)

    def scale_target(self, y, units):
        """Targets in their own units."""
        return y

    def standardize(self, target, units):
        return target

    def start(self, baseline):
        """The baseline: the methods of the user get raw predictions as they are."""
        return baseline

    def kernel_loss(self):
        return self

    def batch_loss(self, units):
        return kernels.CallbackLoss(self, units.baseline, units.response)

    def derive(self, raw, target, weight, gradient, curvature):
        """As `Loss.derive` of `_kernels/base/loss.pyx`."""
        trains = weight > 0
        raw, target, weight = raw[trains], target[trains], weight[trains]
        slope, curve = self._derivatives(raw, target)
        if curve.min(initial=0) < 0:
            raise ValueError(
                f"{self._name}.gradient_hessian returned a second derivative of {curve.min():g}; "
                "0 or more is needed"
            )
        gradient[:], curvature[:] = 0, 0
        gradient[trains], curvature[trains] = weight[:, None] * slope, weight[:, None] * curve
        return np.einsum("i,i->", weight, self.evaluate(raw, target)[0])

    def evaluate_slopes(self, raw, target):
        """Losses of rows, and their derivatives by `raw`."""
        return self.evaluate(raw, target)[0], self._derivatives(raw, target)[0]

    def _derivatives(self, raw, target):
        both = self.given.gradient_hessian(target, raw)
        if not isinstance(both, tuple | list) or len(both) != 2:
            raise ValueError(f"{self._name}.gradient_hessian must return two arrays, got {both!r}")
        return [self._checked(part, "gradient_hessian", raw.shape) for part in both]

    def held_out_losses(self, raw, target):
        """As `Loss.held_out_losses` of `_kernels/base/loss.pyx`."""
        return self.evaluate(raw, target)[0]

    def evaluate(self, raw, target):
        """As `Loss.evaluate` of `_kernels/base/loss.pyx`, without derivatives."""
        found = np.asarray(self.given.loss(target, raw))
        shapes = (len(raw),), raw.shape
        shape = found.shape if found.shape in shapes else shapes[0]
        found = self._checked(found, "loss", shape)
        return (found if found.ndim == 1 else found.sum(axis=1)), None

    def _checked(self, found, method, shape):
        """What a method returned, as float64; ValueError for another shape or infinite numbers."""
        found = np.asarray(found, dtype=np.float64)
        if found.shape != shape:
            raise ValueError(
                f"{self._name}.{method} returned shape {found.shape}, expected {shape}"
            )
        if not np.isfinite(found).all():
            raise ValueError(f"{self._name}.{method} returned infinite or missing numbers")
        return found

    @property
    def _name(self):
        return type(self.given).__name__


class UserLabelLoss(UserLoss):
    """A `Loss` of one-hot class numbers, as hinge training takes it, before a softmax."""

    link = "softmax"

    def baseline(self, y, weight):
        return super().baseline(self._one_hot(y), weight)

    def standardize(self, target, units):
        return self._one_hot(target)

    def _one_hot(self, y):
        return np.eye(self.n_outputs)[y]
