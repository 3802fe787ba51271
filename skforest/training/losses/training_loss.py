"""The losses that training uses: their parts, and what they offer."""

from collections.abc import Callable
from dataclasses import dataclass

from .calibration import MeanRatio, QuantileShift
from .leaves import NewtonLeaves, QuantileLeaves
from .scales import TargetScale


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """A loss of raw predictions, composed of parts with one job each.

    Targets y are float64 of shape (n_rows, n_outputs), and weights float64 of shape (n_rows,).
    """

    n_outputs: int  # length of the raw prediction of a Forest
    kernel: Callable  # makes a `LossKernel` of so many outputs: derivatives, see `new_kernel`
    scale: TargetScale  # the target as the kernel takes it, and the constant to start from
    link: str = "identity"  # of the Forest, from raw predictions to predictions
    leaf: NewtonLeaves | QuantileLeaves | None = NewtonLeaves()  # None: not for boosting
    calibration: MeanRatio | QuantileShift | None = None  # of the trained model
    # Hinge forests multiply their learning rate by this; None: they do not accept the loss.
    hinge_rate: float | None = 1.0
    is_quadratic: bool = False  # is one step of Newton's method exact?
    has_temperature: bool = False  # do hinge forests find a temperature of its probabilities?
    for_trees: bool = False  # can it be the loss of the leaves of a split, and of a whole tree?

    def new_kernel(self):
        """A `LossKernel` for one bag, whose training may adapt it."""
        return self.kernel(self.n_outputs)

    @property
    def for_boosting(self):
        """bool: has the loss a rule for the leaves of boosting?"""
        return self.leaf is not None

    @property
    def for_hinge(self):
        """bool: do gradients suffice to train with the loss?"""
        return self.hinge_rate is not None

    @property
    def takes_labels(self):
        """bool: are targets labels, and predictions probabilities?"""
        return self.link == "softmax"

    @property
    def has_curvature(self):
        """bool: do the curvatures of the kernel show where the loss is lowest?"""
        return self.for_boosting and not self.leaf.renews

    @property
    def quantile(self):
        """float or ndarray: share of rows that calibrated predictions exceed; None: any."""
        return None if self.calibration is None else self.calibration.level
