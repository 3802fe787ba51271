"""Random hinge forests and ferns.

Lay, Harrison, Schreiber, Dawer, Barbu, "Random Hinge Forest for Differentiable Learning".
"""

import math
from dataclasses import replace

import numpy as np
from sklearn.base import is_regressor

from .._docs import CLASS_WEIGHT, described
from ..table.feature_grid import FeatureGrid
from ..training.hinge import HingeMethod, HingeSettings, temperature_of
from ..training.hinge_trials import best_decay, shortened
from ..training.losses import TargetUnits, loss_names, loss_types, make_label_loss, make_loss
from .base import BaseForest, Integral, Interval, Real, StrOptions
from .bootstrap import BootstrapMixin
from .given_rows import GivenRowsMixin
from .hinge_procedure import HingeProcedure
from .streams import TAKES_BATCH, StreamMixin
from .targets import ForestClassifierMixin, ForestRegressorMixin
from .validation import store_parameters

REGRESSOR_LOSSES = loss_names("for_hinge")
CLASSIFIER_LOSSES = loss_names("for_hinge", of_labels=True)
LARGE = 10_000  # rows from which on "auto" values are those of large tables
ADAM_RATE, ADAGRAD_RATE = 3.0, 30.0  # learning_rate="auto" times the number of trees

PARAMETERS = """
n_estimators : "auto" or int
    Number of trees in each bag, at least 1. Their responses are added. "auto": 100, or 50 in
    classification with fewer than 10000 rows, except for features="conv".
structure : {"tree", "fern"}
    "tree": every split has a feature and a threshold of its own. "fern": all splits of a level
    share one feature and one threshold, which halves the number of parameters and is a little
    faster.
features : {"linear", "identity", "both", "conv"}
    What splits compare with their thresholds. "linear": learned inner products. "identity": the
    columns of X. "both": inner products and columns, drawn with equal probabilities, but columns
    in at most a quarter of the splits. "conv": convolutions of images with learned kernels, at all
    positions.
feature_shape : tuple of int or None
    Height, width and optionally number of channels of images, for features="conv". X may then have
    the shape ``(n_samples, *feature_shape)``.
n_directions : "auto" or int
    Number of learned inner products, which all trees of a bag share. "auto": 50, or 200 with at
    least 10000 rows. With features="conv", the number of kernels, for which "auto" is 80.
max_depth : "auto" or int
    Depth of the trees, 1 to 16. "auto": 5, or 8 with at least 10000 rows.
n_bags : "auto" or int
    Number of forests that are trained independently and averaged. "auto": 5, or 10 in
    classification with fewer than 10000 rows and fewer than 100 trees, except for features="conv".
learning_rate : "auto" or float
    Length of the first gradient steps, greater than 0. "auto": 3 / `n_estimators`, because the
    responses of the trees are added; ten times as much with optimizer="adagrad", and a thirtieth
    with loss="poisson" or a `Loss` with a link. In `partial_fit`, "auto" falls to a tenth of it.
max_iter : "auto" or int
    Number of gradient steps. "auto": enough for 6 n / 1000 passes over n rows, but at least 40 and
    at most 120 passes, and at least 2400 and at most 20000 steps; half or a quarter of them if the
    `procedure` finds that a large weight decay is better.
dropout : float
    Fraction of the trees that is left out of each step, drawn at random, in [0, 1).
bootstrap : bool
    True: each bag is trained on a bootstrap sample; rows are drawn with replacement, with
    probabilities proportional to their weights. False: each bag is trained on all rows.
max_samples : int, float or None
    Number of rows to draw for each bag; a float is a fraction of the rows. None: as many as there
    are. Equal rows count as in `ManifoldForestClassifier`. Only with a bootstrap.
oob_score : bool
    Whether to compute an out-of-bag score, for which each row is predicted by the bags that did
    not draw it. Only with a bootstrap.
verbose : int
    1 shows progress: a bar if tqdm is installed, otherwise about ten lines. It counts the
    evaluations of the loss of all bags. More than 1, without tqdm: one line for each step.
warm_start : bool
    Whether to keep the bags of the previous fit and only add the bags missing to `n_bags`.
procedure : HingeProcedure or None
    Details of training that only the paper's experiments need. None: ``HingeProcedure()``.
    ``HingeProcedure.as_printed()``: as in the paper.
"""
USUAL = "n_estimators structure max_depth n_directions n_bags"

CLASSIFIER_PARAMETERS = (
    PARAMETERS
    + """
loss : {"log_loss"} or Loss
    Loss to minimise. "log_loss": the negative log-likelihood of the labels. You can also pass a
    `Loss`, a differentiable loss of your own for one output; its targets are one-hot labels.
calibrate : bool
    Whether to calibrate probabilities, which are too close to 0 and 1 if labels are noisy: by a
    `temperature_` and, where that is better, by class frequencies. The first bag, or the next one
    in a warm start from a single bag, leaves out some rows to find them: `validation_fraction` of
    the procedure, or 30 rows if that is more, but at most half. No effect with a single bag, fewer
    than 20 rows, early stopping, `bootstrap`, several outputs, or a `Loss` of your own.
"""
).rstrip() + CLASS_WEIGHT

REGRESSOR_PARAMETERS = (
    PARAMETERS
    + """
loss : str, HuberLoss or Loss
    Loss to minimise. Targets are in units of the standard deviation of each output; for
    "absolute_error", "huber" and "quantile", it is estimated in a way that outliers hardly change.
    "squared_error": for means. "absolute_error": for medians. "huber": between the two; the limit
    for early stopping does not change. "quantile": for the quantile in `quantile`; predictions are
    then shifted so that this fraction of held-out targets lies below them. "poisson": for counts,
    at least 0; the trees add up to the logarithm of the mean. `HuberLoss` is "huber" with a
    parameter, such as ``HuberLoss(delta=2.0)``. You can also pass a `Loss`, a differentiable loss
    of your own.
quantile : float
    Quantile to predict, in (0, 1). Only for loss="quantile".
"""
)

ATTRIBUTES = """
n_estimators_, n_bags_, max_depth_, n_directions_, max_iter_, learning_rate_ : int or float
    Resolved values of these parameters.
batch_size_, weight_decay_ : int and float
    Resolved values of these parameters of `procedure`.
loss_curve_ : list of ndarray
    One entry per bag: mean loss of the batches since the last evaluation. In regression, targets
    are in the units of `loss`, or of their mean for "poisson"; the squared error is halved. A
    `skforest.Loss` is in the units of y.
validation_scores_ : list of ndarray
    One entry per bag: minus the loss of the held-out rows, or of `X_val`, at each evaluation.
    Empty without early stopping. In regression, a bag that is never better than a constant is one.
n_iter_ : list of int
    Number of steps of each bag.
feature_importances_ : ndarray of shape (n_features_in_,), float64
    At least 0, with sum 1: the mean absolute derivative of the trees with respect to each feature,
    times its standard deviation.
"""

CLASSIFIER_ATTRIBUTES = (
    ATTRIBUTES
    + """
temperature_ : float
    Divisor of the vectors of all leaves, at least 1; it is 1 without `calibrate`.
"""
)

NOTES = """
Features are standardised, and inner products are standardised by running statistics; both are
folded into the directions and thresholds of the forest. Subtrees that no training row reaches are
removed; their response is 0. Training on sparse X takes as long as on dense X, but makes no dense
copy.

{outliers}

{weighted_rows}
The rows of an epoch are drawn in proportion to their weights.
"""

REFERENCES = """
.. [1] N. Lay, A. P. Harrison, S. Schreiber, G. Dawer, A. Barbu, "Random Hinge Forest for
   Differentiable Learning", 2018.
"""


class _HingeForest(StreamMixin, BootstrapMixin, GivenRowsMixin, BaseForest):
    """Parameters and training shared by classifier and regressor."""

    _criterion = "squared_error"
    _scales_features = True
    _calibrates = False  # is a temperature of probabilities wanted?

    _parameter_constraints: dict = {
        "structure": [StrOptions({"tree", "fern"})],
        "features": [StrOptions({"linear", "identity", "both", "conv"})],
        "feature_shape": [Integral, tuple, list, np.ndarray, None],
        "n_estimators": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "n_directions": [StrOptions({"auto"}), Interval(Integral, 1, 2**20, closed="both")],
        "max_depth": [StrOptions({"auto"}), Interval(Integral, 1, 16, closed="both")],
        "n_bags": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "max_iter": [StrOptions({"auto"}), Interval(Integral, 1, 2**40, closed="both")],
        "dropout": [Interval(Real, 0.0, 1.0, closed="left")],
        "procedure": [HingeProcedure, None],
    }
    _default_procedure = HingeProcedure

    @property
    def _limits_features(self):
        # With scaling=None, as in the paper, and for images, feature values are not limited.
        if self.feature_shape is not None:
            return None
        return "range" if self._procedure.scaling is None else "usual"

    @property
    def _needs_dense(self):
        return "features='conv'" if self.features == "conv" else None

    # ----------------------------------------------------------------------------------- settings

    def _settings(self, data, request):
        procedure = self._procedure
        FeatureGrid(self.feature_shape, self.n_features_in_)  # raises if they do not match
        is_image, n_rows = self.features == "conv", int(data.n_copies()[data.weight > 0].sum())
        fields = None
        if is_image:
            grid = FeatureGrid.of_images(self.feature_shape, data.X.shape[1])
            fields = grid.kernel_fields(procedure.kernel_size, procedure.stride)
        values, has_rows = self._auto(n_rows, request.previous), request.validation is not None
        if request.is_warm_start and request.previous.bag_start[1] != values["n_estimators"]:
            raise ValueError(
                f"n_estimators={self.n_estimators}, but warm_start=True continues with bags of "
                f"{request.previous.bag_start[1]} trees"
            )
        n_directions, draws = int(values["n_directions"]), procedure.early_stopping
        tries_decays, decay = procedure.weight_decay == "auto", procedure.weight_decay
        if tries_decays:
            decay = getattr(self, "weight_decay_", 0.0) if request.is_warm_start else 0.0
        settings = HingeSettings(
            n_trees=int(values["n_estimators"]),
            depth=int(values["max_depth"]),
            fern=self.structure == "fern",
            head=procedure.head,
            n_linear=0 if self.features == "identity" else n_directions,
            has_unit_weights=procedure.scaling is None and not is_image,
            identity=self.features in ("identity", "both"),
            optimizer=procedure.optimizer,
            learning_rate=float(values["learning_rate"]),
            momentum=float(procedure.momentum),
            weight_decay=float(decay),
            schedule=procedure.schedule,
            dropout=float(self.dropout),
            batch_size=int(values["batch_size"]),
            n_steps=int(values["max_iter"]),
            validation_fraction=procedure.validation_fraction * (draws and not has_rows),
            n_iter_no_change=int(procedure.n_iter_no_change),
            n_bags=int(values["n_bags"]),
            n_directions=n_directions,
            receptive_fields=fields,
            importance_power=float(procedure.importance_power),
            calibrate=self._calibrates and not has_rows,
            held_out_fraction=float(procedure.validation_fraction),
            temperature=getattr(self, "temperature_", 1.0) if request.is_warm_start else 1.0,
        )
        if not tries_decays or request.is_stream:
            return settings
        if not request.is_warm_start and procedure.optimizer in ("auto", "adam"):
            decay = best_decay(self._method(settings), data, request)
            settings = replace(settings, weight_decay=decay)
        return shortened(settings) if self.max_iter == "auto" else settings

    def _auto(self, n_rows, previous=None):
        """Values of the parameters that may be "auto", by name."""
        procedure = self._procedure
        batch_size = min(max(n_rows // 16, 8), 128 if n_rows >= LARGE else 64)
        if procedure.batch_size != "auto":
            batch_size = min(procedure.batch_size, max(n_rows, 2))
        n_epochs = min(max(40, 6 * n_rows / 1000), 120)
        n_steps = max(2400, math.ceil(n_epochs * n_rows / batch_size))
        rate = ADAGRAD_RATE if procedure.optimizer == "adagrad" else ADAM_RATE
        auto = {"max_iter": min(n_steps, 20_000), "learning_rate": rate}
        auto |= self._auto_sizes(n_rows, previous)
        auto |= {name: own for name in auto if (own := getattr(self, name)) != "auto"}
        if self.learning_rate == "auto":
            auto["learning_rate"] = rate * self._make_loss().hinge_rate / auto["n_estimators"]
        return auto | {"batch_size": batch_size}

    def _auto_sizes(self, n_rows, previous=None):
        """Values of "auto" that decide how large bags are, also those added to `previous` ones."""
        is_large, is_image = n_rows >= LARGE, self.features == "conv"
        n_trees = 100 if is_large or is_image or is_regressor(self) else 50
        given = n_trees if self.n_estimators == "auto" else self.n_estimators
        n_bags = 5 if max(n_trees, given) >= 100 else 10
        if previous is not None:
            n_trees, n_bags = previous.bag_start[1], max(n_bags, len(previous.bag_start) - 1)
        n_directions, max_depth = 200 if is_large else 50, 8 if is_large else 5
        sizes = {"n_estimators": n_trees, "n_bags": n_bags, "max_depth": max_depth}
        return sizes | {"n_directions": 80 if is_image else n_directions}

    def _resolved(self, settings):
        names = "n_bags n_directions batch_size learning_rate weight_decay".split()
        resolved = {name: name for name in names}
        resolved |= {"n_estimators": "n_trees", "max_depth": "depth", "max_iter": "n_steps"}
        return {f"{name}_": getattr(settings, own) for name, own in resolved.items()}

    def _method(self, settings):
        task, sampling = self._task(), self._sampling()
        return HingeMethod(settings, task, sampling, self._make_loss(), self._seed)


@described(
    CLASSIFIER_PARAMETERS,
    CLASSIFIER_ATTRIBUTES,
    USUAL,
    notes=NOTES,
    references=REFERENCES,
    takes_batch=TAKES_BATCH,
)
class RandomHingeForestClassifier(ForestClassifierMixin, _HingeForest):
    """Random hinge forest classifier: smooth trees, trained together by gradient descent.

    A hinge forest is trained like a small neural network. It is continuous and piecewise linear,
    where a greedy forest is piecewise constant. The response of a tree is the vector of a leaf
    times the smallest margin on the path to the leaf (equation 10 of the paper [1]_);
    probabilities are the softmax of the sum over trees. Inner products, thresholds and leaf
    vectors start at random values and are trained together to minimise the log loss.

    {parameters_and_attributes}

    See Also
    --------
    RandomHingeForestRegressor : The same for regression.
    CO2ForestClassifier : Hyperplanes that are optimised node by node.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import RandomHingeForestClassifier
    {digits}
    >>> forest = RandomHingeForestClassifier(n_bags=1, random_state=0)
    >>> round(forest.fit(X_train, y_train).score(X_test, y_test), 2)
    0.98
    """

    _parameter_constraints: dict = {
        "loss": [StrOptions(CLASSIFIER_LOSSES), *loss_types(CLASSIFIER_LOSSES)],
        "calibrate": ["boolean"],
        "class_weight": [StrOptions({"balanced"}), dict, list, None],
    }

    def __init__(
        self,
        n_estimators="auto",
        *,
        structure="tree",
        max_depth="auto",
        n_directions="auto",
        n_bags="auto",
        features="both",
        feature_shape=None,
        loss="log_loss",
        learning_rate="auto",
        max_iter="auto",
        dropout=0.2,
        calibrate=True,
        procedure=None,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        class_weight=None,
        prior=None,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        time_limit=None,
    ):
        store_parameters(self, locals())

    @property
    def _calibrates(self):
        is_free = not (self._procedure.early_stopping or self.bootstrap)
        return self.calibrate and is_free and self._make_loss().has_temperature

    def _store(self, forest, settings, records, n_before=0):
        super()._store(forest, settings, records, n_before)
        self.temperature_ = temperature_of(records, settings)

    def _make_loss(self):
        smoothing = {"label_smoothing": self._procedure.label_smoothing}
        return make_label_loss(self.loss, self.n_classes_, **smoothing)

    def _target_units(self, data, target, is_warm_start):
        baseline = self.forest_.baseline if is_warm_start else None
        return self._make_loss().scale.units(target, data.weight, baseline)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        """Train on a batch of a stream, with one pass over its rows at the rate `learning_rate`.

        With ``class_weight="balanced"``, the class weights are computed from each batch.

        {takes_batch}
        y : array-like of shape (n_samples,)
        classes : array-like of shape (n_classes,), default=None
            All labels of the stream; required in the first call. None: the earlier ones.
        sample_weight : array-like of shape (n_samples,), default=None

        {returns_self}
        """

        def encode(y, is_first):
            if is_first:
                if max(np.asarray(y).shape[1:], default=1) > 1 or np.ndim(classes) > 1:
                    raise ValueError("partial_fit takes one output; y, or classes, has several")
                known = getattr(self, "classes_", None) if classes is None else classes
                if known is None or (classes is None and isinstance(known, list)):
                    raise ValueError("classes must be passed on the first call to partial_fit.")
                self._encode_target(known, False)
            elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
                raise ValueError(
                    f"classes={classes!r} differ from those of earlier calls, {self.classes_}"
                )
            return self._encode_known_target(y)

        return self._partial_fit(X, y, sample_weight, encode)

    def _set_stream_target(self, data):
        data = self._set_target(data, False)
        n = self.n_classes_
        # A class that has no rows yet may occur in a later batch.
        return data.with_target(data.target, TargetUnits(np.zeros(n), 1.0, np.ones(n)))


@described(
    REGRESSOR_PARAMETERS,
    ATTRIBUTES,
    USUAL,
    notes=NOTES,
    references=REFERENCES,
    takes_batch=TAKES_BATCH,
)
class RandomHingeForestRegressor(ForestRegressorMixin, _HingeForest):
    """Random hinge forest regressor: smooth trees, trained together by gradient descent.

    It works like `RandomHingeForestClassifier`, but predicts the sum over trees (equation 10 of
    the paper [1]_): a continuous, piecewise linear function, which extrapolates by up to one range
    of each feature beyond the training data.

    {parameters_and_attributes}

    See Also
    --------
    RandomHingeForestClassifier : The same for classification.
    CO2ForestRegressor : Hyperplanes that are optimised node by node.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import RandomHingeForestRegressor
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(600, noise=1.0, random_state=0)
    >>> forest = RandomHingeForestRegressor(n_bags=2, random_state=0)
    >>> round(forest.fit(X[:400], y[:400]).score(X[400:], y[400:]), 2)
    0.93
    """

    _calibrates_quantiles = True
    _parameter_constraints: dict = {
        "loss": [StrOptions(REGRESSOR_LOSSES), *loss_types(REGRESSOR_LOSSES)],
        "quantile": [Interval(Real, 0.0, 1.0, closed="neither")],
    }

    def __init__(
        self,
        n_estimators="auto",
        *,
        structure="tree",
        max_depth="auto",
        n_directions="auto",
        n_bags="auto",
        features="both",
        feature_shape=None,
        loss="squared_error",
        quantile=0.5,
        learning_rate="auto",
        max_iter="auto",
        dropout=0.2,
        procedure=None,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        time_limit=None,
    ):
        store_parameters(self, locals())

    def _make_loss(self):
        return make_loss(self.loss, self.n_outputs_, in_units=True, quantile=self.quantile)

    def partial_fit(self, X, y, sample_weight=None):
        """Train on a batch of a stream, with one pass over its rows at the rate `learning_rate`.

        {takes_batch}
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None

        {returns_self}
        """

        def encode(y, is_first):
            return self._encode_target(y, False) if is_first else self._encode_known_target(y)

        return self._partial_fit(X, y, sample_weight, encode)

    def _set_stream_target(self, data):
        return self._set_target(data, False)
