"""The details of training of end-to-end trees, which the experiments of the paper change."""

from .._docs import described
from .base import Integral, Interval, Real, StrOptions
from .validation import Procedure, store_parameters

PROCEDURE_PARAMETERS = """
growth : {"greedy", "complete"}
    How trees get their structure. "greedy": they are grown node by node. "complete": joint
    training starts with complete trees of depth `max_depth`, at most 16, whose splits are random
    hyperplanes through the mean of the rows.
learning_rate : "auto" or float
    Learning rate of Adam, greater than 0, at most 1e6: about the change of a weight in a step, in
    units of the reciprocal of the standard deviation of its feature. It is constant while trees
    grow; `schedule` applies to joint training. "auto": 0.13 / q^0.7 for q features of a split, but
    at most 0.05.
schedule : {"cosine", "constant"}
    How the learning rate develops in joint training. "cosine": it falls to 0 along a cosine.
    "constant": it does not change, as in the paper.
batch_size : "auto" or int
    Number of rows in a step, 1 to 2^20. "auto": a tenth of the rows, or 2^18 divided by the number
    of features if that is less, but at least 32 and at most 1000.
min_batches : int
    Minimum number of steps in an epoch that trains the split of a node, 1 to 2^20: nodes with few
    rows have batches smaller than `batch_size`, of at least 16 rows. 1: all batches have
    `batch_size` rows, as in the paper.
leaves : {"counts", "trained"}
    What leaves predict. "counts": the class frequencies, or the mean, of the rows that hard
    routing sends to the leaf. "trained": the frequencies or the mean of all rows, weighted by the
    responsibilities of the leaf at the final steepness (equation 13), as in the paper. They suit
    ``routing="soft"``, above all if the final steepness is small. Leaves that no row reaches by
    hard routing are then kept, and limits such as `min_samples_leaf` apply to growing only.
    "trained" is not possible with `early_stopping`.
steepness : float
    Steepness of splits in the first epoch, gamma of equation 5, greater than 0, at most 1e6.
steepness_step : "auto" or float
    Increase of the steepness per epoch, 0 to 1e6. Joint training continues from the steepness at
    which growth ended. "auto": 0.1, as in the paper, but for a single tree at most 3 divided by
    the number of all epochs; 0.2 in forests without `feature_shape`, `patch_size` and
    `smoothness`.
feature_dropout : "auto" or float
    Probability that a feature of a row has its mean in a step of joint training, instead of its
    value; 0 to 1, exclusive, rounded up to a multiple of 1/256, at most 255/256. It is drawn anew
    for each row and epoch, so splits rely on many features, and need more epochs. Leaves with
    ``leaves="counts"`` are computed from the rows as they are. "auto": 0.25 for a single tree on
    images, which are grids with at least two axes longer than 4, if joint training has at least 32
    epochs; else 0. The paper drops none.
"""


@described(PROCEDURE_PARAMETERS)
class E2EProcedure(Procedure):
    """How end-to-end trees are trained, in detail.

    Pass it as the parameter `procedure` of `E2EDecisionForestClassifier` or
    `E2EDecisionForestRegressor`. The defaults suit tables; `as_printed` does what the paper [1]_
    does.

    Parameters
    ----------
    {parameters}

    References
    ----------
    .. [1] T. M. Hehn, J. F. P. Kooij, F. A. Hamprecht, "End-to-End Learning of Decision Trees and
       Forests", International Journal of Computer Vision 128, 2020.

    Examples
    --------
    >>> from skforest import E2EProcedure
    >>> E2EProcedure.as_printed(steepness_step=0.01)
    E2EProcedure(batch_size=1000, feature_dropout=0.0, learning_rate=0.001,
                 leaves='trained', min_batches=1, schedule='constant',
                 steepness_step=0.01)
    """

    _parameter_constraints: dict = {
        "growth": [StrOptions({"greedy", "complete"})],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, 1e6, closed="right")],
        "schedule": [StrOptions({"cosine", "constant"})],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, 2**20, closed="both")],
        "min_batches": [Interval(Integral, 1, 2**20, closed="both")],
        "leaves": [StrOptions({"counts", "trained"})],
        "steepness": [Interval(Real, 0.0, 1e6, closed="right")],
        "steepness_step": [StrOptions({"auto"}), Interval(Real, 0.0, 1e6, closed="both")],
        "feature_dropout": [StrOptions({"auto"}), Interval(Real, 0.0, 1.0, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }
    _printed = {
        "learning_rate": 0.001,
        "schedule": "constant",
        "batch_size": 1000,
        "min_batches": 1,
        "leaves": "trained",
        "steepness_step": 0.1,
        "feature_dropout": 0.0,
    }

    def __init__(
        self,
        *,
        growth="greedy",
        learning_rate="auto",
        schedule="cosine",
        batch_size="auto",
        min_batches=10,
        leaves="counts",
        steepness=1.0,
        steepness_step="auto",
        feature_dropout="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
    ):
        store_parameters(self, locals())
