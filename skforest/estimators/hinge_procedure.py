"""Details of the training of random hinge forests."""

from .._docs import described
from .base import Integral, Interval, Real, StrOptions
from .validation import Procedure, store_parameters

PROCEDURE_PARAMETERS = """
kernel_size : int
    Height and width of the kernels of "conv", which cover all channels.
stride : int
    Number of pixels from one position of a kernel to the next, in both directions.
head : {"leaves", "linear"}
    "leaves": each leaf holds a vector with one number per output, and trees are added. "linear":
    each leaf holds a single number, and a learned matrix maps the responses of the trees to the
    outputs; this is the paper's choice for tables.
optimizer : {"auto", "adam", "adagrad", "sgd"}
    How a gradient becomes a step. A step changes only leaves and thresholds that its rows use.
    "auto": Adam, with 0.99 in place of 0.999 for the mean of squared gradients, and with
    thresholds that move twice as far.
momentum : float
    Fraction of the previous step that is added to the next one, in [0, 1). Only for "sgd".
weight_decay : "auto" or float
    Weight decay, at least 0, as in AdamW: each step shrinks the weights of inner products and
    leaves by this fraction, times the length of the step. "auto": 0, 1, 3, 10 or 20 for 100 trees,
    and in proportion for other numbers, by the loss of small bags on held-out rows; but at most
    0.6 / `learning_rate`, and 0 with fewer than 100 rows or 3 groups, with "adagrad" or "sgd", and
    in `partial_fit`.
schedule : {"cosine", "constant", "plateau"}
    How the learning rate develops. "cosine": it falls to 0 along a cosine. "constant": not at all.
    "plateau": times 0.3 whenever three evaluations have not found a lower loss.
batch_size : "auto" or int
    Number of rows in a gradient step, at least 2. "auto": a sixteenth of the rows, but at least 8,
    and at most 64, or 128 with at least 10000 rows.
scaling : {"standard"} or None
    Units of the centred features in the inner products. "standard": their standard deviations;
    outliers are limited, see below. None: one unit for all features, so that features with a large
    variance dominate, as in the paper. The weights of p features then start with variance 1
    instead of 1 / p, so that a step changes them less. With features="conv", all features always
    share one unit, and the variance is 1 / p.
importance_power : float
    How strongly inner products scale up the features that a quick random forest finds important, 0
    to 16: the unit of a feature is divided by (importance / mean importance) to this power. 0: not
    at all. Larger values help if most features are noise.
label_smoothing : float
    Fraction of each label that is spread evenly over all classes, in [0, 1), for loss="log_loss".
early_stopping : bool
    Whether to hold out rows of every bag and keep the model with the lowest loss on them. Off by
    default, because it increases the error on most tables; with `X_val` in `fit`, always on.
validation_fraction : float
    Fraction of the rows to hold out, in (0, 1), drawn separately for each bag. It is used by
    `early_stopping`, by `calibrate` of classifiers, and by loss="quantile" of regressors.
n_iter_no_change : int
    Training of a bag stops after this many evaluations without improvement, at least 1. There are
    40 evaluations in all, or one every 500 steps if that is more. Only with `early_stopping`.
"""


@described(PROCEDURE_PARAMETERS)
class HingeProcedure(Procedure):
    """How hinge forests are trained, in detail.

    The parameter `procedure` of `RandomHingeForestClassifier` and `RandomHingeForestRegressor`.
    The defaults suit tables; `as_printed` does what the paper [1]_ does.

    Parameters
    ----------
    {parameters}

    References
    ----------
    .. [1] N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, "Random Hinge Forest for
       Differentiable Learning", 2018.

    Examples
    --------
    >>> from skforest import HingeProcedure
    >>> HingeProcedure.as_printed(head="linear", optimizer="adagrad")
    HingeProcedure(batch_size=53, head='linear', importance_power=0.0,
                   optimizer='adagrad', scaling=None, schedule='constant',
                   weight_decay=0.0)
    """

    _parameter_constraints: dict = {
        "kernel_size": [Interval(Integral, 1, 2**15, closed="both")],
        "stride": [Interval(Integral, 1, 2**15, closed="both")],
        "head": [StrOptions({"leaves", "linear"})],
        "optimizer": [StrOptions({"auto", "adam", "adagrad", "sgd"})],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "weight_decay": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="left")],
        "schedule": [StrOptions({"cosine", "constant", "plateau"})],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 2, 2**20, closed="both")],
        "scaling": [StrOptions({"standard"}), None],
        "importance_power": [Interval(Real, 0.0, 16.0, closed="both")],
        "label_smoothing": [Interval(Real, 0.0, 1.0, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }
    # Batches are those of the authors' code.
    _printed = {"optimizer": "adam", "schedule": "constant", "batch_size": 53}
    _printed |= {"scaling": None, "importance_power": 0.0, "weight_decay": 0.0}

    def __init__(
        self,
        *,
        kernel_size=5,
        stride=3,
        head="leaves",
        optimizer="auto",
        momentum=0.9,
        weight_decay="auto",
        schedule="cosine",
        batch_size="auto",
        scaling="standard",
        importance_power=0.5,
        label_smoothing=0.0,
        early_stopping=False,
        validation_fraction=0.15,
        n_iter_no_change=10,
    ):
        store_parameters(self, locals())
