"""TrainingLoss: a loss as the composition of its parts."""

from collections.abc import Callable
from dataclasses import dataclass

from .calibration import MeanRatio, QuantileShift
from .leaves import NewtonLeaves, QuantileLeaves
from .scales import TargetScale

# Factor of the learning rate of hinge forests with a link: gradients may grow exponentially with
# the response. Other links lose nothing (chosen without a stored measurement).
LINKED_RATE = 1 / 30


@dataclass(frozen=True, eq=False)
class TrainingLoss:
    """A loss of raw predictions, composed of parts.

    Targets y are float64 of shape (n_rows, n_outputs), and weights float64 of shape (n_rows,).
    """

    n_outputs: int  # length of the raw prediction of a Forest
    kernel: Callable  # makes a `LossKernel`, which computes derivatives, for n_outputs
    scale: TargetScale  # the target for the kernel, and the initial constant
    link: str = "identity"  # scale of the raw predictions of the Forest
    leaf: NewtonLeaves | QuantileLeaves | None = NewtonLeaves()  # None: not for boosting
    calibration: MeanRatio | QuantileShift | None = None  # applied to the trained model
    hinge_rate: float | None = 1.0  # factor of the rate of hinge forests; None: not for them
    is_quadratic: bool = False  # one step of Newton's method is exact
    has_temperature: bool = False  # hinge forests find a temperature of its probabilities
    for_trees: bool = False  # may be the loss of the leaves of a split, or of a whole tree

    def new_kernel(self):
        """Return a `LossKernel` for one bag, whose training may adapt it."""
        return self.kernel(self.n_outputs)

    @property
    def for_boosting(self):
        """bool: whether there is a rule for the leaves of boosting."""
        return self.leaf is not None

    @property
    def for_hinge(self):
        """bool: whether gradients suffice to train with the loss."""
        return self.hinge_rate is not None

    @property
    def takes_labels(self):
        """bool: whether targets are labels, and predictions are probabilities."""
        return self.link == "softmax"

    @property
    def has_curvature(self):
        """bool: whether curvatures of the kernel lead to the minimum."""
        return self.for_boosting and not self.leaf.renews

    @property
    def quantile(self):
        """float, ndarray or None: share of rows that calibrated predictions exceed."""
        return None if self.calibration is None else self.calibration.level
