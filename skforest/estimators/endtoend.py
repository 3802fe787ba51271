"""End-to-end decision trees and forests.

Hehn, Kooij, Hamprecht, "End-to-End Learning of Decision Trees and Forests", 2020. During training,
by expectation maximisation and gradient descent, splits are soft and become steeper with every
epoch; the fitted tree is hard.
"""

import math
from dataclasses import replace

from .._docs import described
from ..table.feature_grid import FeatureGrid
from ..training.endtoend import (
    Annealing,
    EndToEndMethod,
    EndToEndSettings,
    auto_patch,
    is_image,
)
from ..training.growing import MAX_DEPTH
from ..training.trials import best_setting
from .base import Integral, Interval, Real, StrOptions
from .bootstrap import BootstrapMixin
from .endtoend_procedure import E2EProcedure
from .greedy import ObliqueForest
from .targets import GATES, ForestClassifierMixin, ForestRegressorMixin, RoutingMixin
from .validation import store_parameters

MAX_COMPLETE_DEPTH = 16  # of growth="complete": a tree of 65535 dense hyperplanes
# "auto" epochs: rows shown in all, when a split is grown and when the tree is trained as a whole.
GREEDY_VISITS, JOINT_VISITS = 80_000, 400_000
# A single tree has half the epochs of growth and twice those of joint training, in which the
# steepness rises by 3 at most; chosen by `python -m benchmarks.measure.endtoend single`.
SINGLE_FACTOR, SINGLE_RISE, MAX_STEP = 2, 3.0, 0.1
# Depth of a single regression tree, in which nothing averages the noise of small leaves. Chosen on
# inner splits of the training rows of ten tables; no command repeats this.
SINGLE_DEPTH = 6
# On images, a single tree has four times as many epochs of joint training, in which features are
# dropped if there are enough epochs; the same command shows what both gain.
IMAGE_FACTOR, IMAGE_DROPOUT, MIN_DROPOUT_EPOCHS = 4, 0.25, 32
TREE_ROWS = 50_000  # n_estimators="auto": number of trees times rows
CACHED = 2**18  # numbers of a batch, which is read twice
# Parameters whose resolved values stay when trees are added.
KEPT = (
    "max_depth",
    "greedy_epochs",
    "finetune_epochs",
    "learning_rate",
    "batch_size",
    "steepness_step",
    "feature_dropout",
    "max_features",
    "patch_size",
)
# max_features="auto": powers of the number of features that are compared on held-out rows, where
# there are at least so many rows; trees and batches of the forests that are compared.
POWERS = (0.5, 0.8, 1.0)
MIN_COMPARED_ROWS = 1000
N_COMPARED_TREES, COMPARED_BATCH_SIZE = 6, 100

PARAMETERS = """
n_estimators : "auto" or int
    Number of trees, at least 1. Their predictions are averaged. Trees differ by the random
    directions that training starts from, and by the features that each split may use. "auto":
    50000 / n for n training rows, but at least 16 and at most 50.
max_depth : "auto", int or None
    Maximum depth of a tree, at least 1. None: no limit. {auto_depth}; no limit if `max_leaf_nodes`
    is set.
greedy_epochs : "auto" or int
    Number of passes over the rows of a node that train its split when the tree is grown, at least
    1. "auto": 80000 / n for n training rows, but at least 4 and at most {most_epochs}; half as
    many for a single tree, but at least 4. It has no effect, and `greedy_epochs_` is 0, if the
    procedure has growth="complete".
max_leaf_nodes : int or None
    Maximum number of leaves of a tree, at least 2. The node whose split has the largest gain is
    split next. None: every node is split until it is pure or at depth `max_depth`.
finetune_epochs : "auto" or int
    Number of passes over all rows that train the whole tree once it has been grown. 0: the tree
    stays as it was grown. "auto": 400000 / n for n rows, between 16 and 30; for a single tree,
    800000 / n, between 16 and 60, and four times as many on images, which are grids with at least
    two axes longer than 4.
max_features : {"auto", "sqrt", "log2"}, int, float or None
    Number of features that each split uses, drawn at random. An int is a count, a float is a
    multiple of the number p of all features, None is p, and "sqrt" is the square root of p.
    "auto": p for a single tree, and with `smoothness`; p / 2 with `feature_shape` and no patches;
    else the square root of p, rounded up; from 1000 rows on, one of p ** 0.5, p ** 0.8 and p,
    whichever gives small forests the lowest held-out error. Constant features are left out.
feature_shape : int, tuple of int or None
    Shape of the grid that the features fill, such as (28, 28); for `patch_size` and `smoothness`.
    X may then have the shape ``(n_samples, *feature_shape)``. All features of a grid share one
    unit, so features that vary little have little influence. None: there is one axis, and each
    feature has its own unit.
patch_size : "auto", int, tuple of int or None
    Size of a patch, at a random position of the grid, whose features a split uses; an int is the
    length along all axes. None: features are drawn as `max_features` says. "auto": in forests,
    patches with 0.3 of the features if at least two axes of the grid are longer than 4, with
    max_features="auto" and without `smoothness`; else None.
smoothness : float
    Penalty on the squared differences between the weights of neighbours in the grid, along all of
    its axes: lambda of equation 15, 0 to 1e6. It makes the weights of splits readable as images;
    0.0001 to 0.1 are usual, and larger values reduce accuracy.
routing : {"hard", "soft"}
    How rows are routed in prediction. "hard": to one branch at every split. "soft": to both
    branches, weighted by their probabilities at the final steepness (a shallow neural decision
    forest). It can be changed after `fit`.
warm_start : bool
    Whether to keep the trees of the previous fit and train only those that are missing to reach
    `n_estimators`. The resolved values of "auto" are kept, except for `n_estimators`; the final
    steepness must be the same.
procedure : E2EProcedure or None
    Details of training that only the paper's experiments need. None: ``E2EProcedure()``.
    ``E2EProcedure.as_printed()``: as in the paper.
"""
USUAL = "n_estimators max_depth max_features feature_shape"

CLASSIFIER_PARAMETERS = PARAMETERS.replace(
    "{auto_depth}", '"auto": 8, or 10 with more than 10000 rows'
).replace("{most_epochs}", "15")
REGRESSOR_PARAMETERS = PARAMETERS.replace(
    "{auto_depth}", '"auto": 10, or 6 for a single tree'
).replace("{most_epochs}", "30")

ATTRIBUTES = """
n_estimators_, max_depth_, max_features_, greedy_epochs_, finetune_epochs_, batch_size_ : int
    Resolved values. With patches, `max_features_` is the number of their features.
patch_size_ : tuple of int or None
    Resolved value of `patch_size`, for all axes.
learning_rate_, steepness_step_, feature_dropout_ : float
    Resolved values of these parameters.
steepness_ : float
    Steepness after the last epoch, which soft routing uses. With early stopping, the hyperplanes
    of each tree are scaled so that this steepness is right for all trees.
loss_curve_ : list of ndarray
    One entry per tree: mean negative log-likelihood of the rows in every epoch of joint training,
    measured on each batch before its step.
validation_scores_ : list of ndarray
    One entry per tree: minus the mean squared error of soft routing on the held-out rows after
    each epoch of joint training, summed over outputs or one-hot classes. Empty without
    `early_stopping` of the procedure.
steepness_curve_ : list of ndarray
    One entry per tree: steepness of every epoch of joint training.
active_leaves_curve_ : list of ndarray
    One entry per tree: number of leaves that up to 1000 of its training rows reach by hard routing
    after every epoch of joint training.
n_iter_ : list of int
    Epochs of joint training, one entry per tree.
"""

NOTES = """
Splits are trained by Adam. After every epoch, leaves are set from the responsibilities that were
computed in the batches of that epoch (equation 13). If a split sends all rows of its node to one
side, it is trained again from another start, up to 5 times. After training, leaves are computed
from the rows that hard routing sends to them, and leaves that no row reaches are removed, unless
the procedure has leaves="trained".

Features are scaled to [0, 1] over the training set, in float64; the forest scales them in the same
way when it predicts. For training, each feature is centred and divided by its standard deviation,
or by 0.3 times the largest standard deviation of all features if that is more. With
`feature_shape`, all features are divided by the largest standard deviation.

{outliers}

{weighted_rows}
"""

REFERENCES = """
.. [1] T. M. Hehn, J. F. P. Kooij, F. A. Hamprecht, "End-to-End Learning of Decision Trees and
   Forests", International Journal of Computer Vision 128, 2020.
"""


class _E2EForest(RoutingMixin, BootstrapMixin, ObliqueForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        "n_estimators": [
            StrOptions({"auto"}),
            *ObliqueForest._parameter_constraints["n_estimators"],
        ],
        "max_depth": [StrOptions({"auto"}), *ObliqueForest._parameter_constraints["max_depth"]],
        "greedy_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "finetune_epochs": [StrOptions({"auto"}), Interval(Integral, 0, 2**31 - 1, closed="left")],
        "smoothness": [Interval(Real, 0.0, 1e6, closed="both")],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "patch_size": [
            *("array-like", StrOptions({"auto"}), Interval(Integral, 1, None, closed="left"), None)
        ],
        "routing": [StrOptions(set(GATES))],
        "procedure": [E2EProcedure, None],
    }
    _default_procedure = E2EProcedure

    def __init__(
        self,
        n_estimators="auto",
        *,
        max_depth="auto",
        max_features="auto",
        feature_shape=None,
        patch_size="auto",
        smoothness=0.0,
        routing="hard",
        greedy_epochs="auto",
        finetune_epochs="auto",
        procedure=None,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        weight_dtype="float32",
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        time_limit=None,
    ):
        store_parameters(self, locals())

    # ----------------------------------------------------------------------------------- settings

    def _settings(self, data, request):
        if self._is_complete and self.max_leaf_nodes is not None:
            raise ValueError(
                f'max_leaf_nodes={self.max_leaf_nodes} is not possible with growth="complete" of '
                "the procedure, which grows to max_depth"
            )
        kept = {}
        if request.is_warm_start:
            kept = {name: getattr(self, f"{name}_") for name in KEPT}
            if kept["greedy_epochs"] == 0:  # of complete trees; trees that grow need some
                del kept["greedy_epochs"]
        grid = FeatureGrid(self.feature_shape, data.X.shape[1])
        values = self._resolved_values(data, kept, is_image(grid.shape))
        patch_size = self._resolve_patch(grid, kept)
        values["feature_shape"] = None if self.feature_shape is None else grid.shape
        values["patch_size"] = patch_size
        choices = self._choices_of_max_features(*data.X.shape, kept)
        if patch_size is not None:
            choices = [math.prod(patch_size)]
        settings = [self._settings_with(values, n_used, kept) for n_used in choices]
        if request.is_warm_start:
            self._check_compatible(settings[0], request.previous)
        return best_setting(
            self._small_method, data, settings, self._seed, request, N_COMPARED_TREES
        )

    def _resolved_values(self, data, kept, has_image):
        """Values of parameters; "auto" is resolved from the size of the data."""
        n, p = data.X.shape
        is_single = self.n_estimators == 1
        # Forests need deeper trees and better splits in regression than in classification.
        shallow, most = (8, 15) if data.is_classification else (10, 30)
        depth = shallow if n <= 10_000 else 10
        if is_single and not data.is_classification:
            depth = SINGLE_DEPTH
        factor = SINGLE_FACTOR if is_single else 1
        n_epochs = min(max(factor * JOINT_VISITS // n, 16), factor * 30)
        auto = {
            "n_estimators": min(max(TREE_ROWS // n, 16), 50),
            "max_depth": depth if self.max_leaf_nodes is None else None,
            "greedy_epochs": min(max(GREEDY_VISITS // (factor * n), 4), -(-most // factor)),
            "finetune_epochs": n_epochs * (IMAGE_FACTOR if is_single and has_image else 1),
            "batch_size": min(1000, max(32, min(n // 10, CACHED // p))),
            "steepness_step": 0.2 if self._is_table() else MAX_STEP,
        }
        given = self._procedure.get_params() | vars(self)
        values = {name: given[name] for name in auto}
        for name, value in values.items():
            if isinstance(value, str):
                values[name] = kept.get(name, auto[name])
        values["batch_size"] = min(values["batch_size"], max(n, 32))
        if self._is_complete:
            self._check_complete(values["max_depth"], values["finetune_epochs"])
            values["greedy_epochs"] = 0
        if is_single and self._procedure.steepness_step == "auto" and not kept:
            n_epochs = values["greedy_epochs"] + values["finetune_epochs"]
            values["steepness_step"] = min(MAX_STEP, SINGLE_RISE / max(n_epochs, 1))
        dropout = self._procedure.feature_dropout
        if isinstance(dropout, str):
            drops = is_single and has_image and values["finetune_epochs"] >= MIN_DROPOUT_EPOCHS
            dropout = kept.get("feature_dropout", IMAGE_DROPOUT if drops else 0.0)
        values["feature_dropout"] = float(dropout)
        return values

    def _check_complete(self, max_depth, finetune_epochs):
        """Raise ValueError if a complete tree would be too large, or would never be trained."""
        if max_depth is None or max_depth > MAX_COMPLETE_DEPTH:
            raise ValueError(
                f'max_depth={self.max_depth} with growth="complete"; a whole number of 1 to '
                f"{MAX_COMPLETE_DEPTH} is needed"
            )
        if finetune_epochs == 0:
            raise ValueError(
                'finetune_epochs=0 with growth="complete" would leave random hyperplanes as they '
                "are; at least 1 is needed"
            )

    def _choices_of_max_features(self, n_rows, n_features, kept):
        """Candidates for the number of features of a split."""
        if self.max_features == "auto" and kept:
            return [kept["max_features"]]
        if self.max_features == "auto" and self._is_table():
            powers = POWERS if n_rows >= MIN_COMPARED_ROWS else POWERS[:1]
            return sorted({math.ceil(n_features**power) for power in powers})
        auto = n_features if self._uses_all_features() else math.ceil(n_features / 2)
        return [min(self._resolve_max_features(n_features, auto), n_features)]

    def _settings_with(self, values, n_used, kept):
        """`EndToEndSettings` with resolved values, for splits of `n_used` features."""
        procedure = self._procedure
        rate = procedure.learning_rate
        if isinstance(rate, str):
            # A step changes a margin in proportion to the number of features.
            rate = kept.get("learning_rate", min(0.05, 0.13 * n_used**-0.7))
        annealing = Annealing(
            greedy_epochs=int(values["greedy_epochs"]),
            finetune_epochs=int(values["finetune_epochs"]),
            learning_rate=float(rate),
            batch_size=int(values["batch_size"]),
            steepness=float(procedure.steepness),
            steepness_step=float(values["steepness_step"]),
            schedule=procedure.schedule,
        )
        stops_early = procedure.early_stopping and annealing.finetune_epochs > 0
        if stops_early and procedure.leaves == "trained":
            raise ValueError(
                'leaves="trained" is not possible with early_stopping=True, whose held-out rows '
                'have no part in trained leaves; set leaves="counts" of the procedure'
            )
        growth = {name: values[name] for name in ("n_estimators", "max_depth")}
        order = "level" if self.max_leaf_nodes is None else "best"
        return EndToEndSettings(
            **self._growth_settings(**growth, max_features=n_used),
            weight_dtype=self.weight_dtype,
            growth="complete" if self._is_complete else order,
            annealing=annealing,
            min_batches=int(procedure.min_batches),
            leaves=procedure.leaves,
            smoothness=float(self.smoothness),
            feature_dropout=values["feature_dropout"],
            feature_shape=values["feature_shape"],
            patch_size=values["patch_size"],
            validation_fraction=procedure.validation_fraction if stops_early else None,
            n_iter_no_change=procedure.n_iter_no_change,
            gate=GATES[self.routing],
        )

    def _resolve_patch(self, grid, kept):
        """Lengths of the patch of a split along all axes of the grid; None without patches."""
        if isinstance(self.patch_size, str):
            has_none = self._uses_all_features() or self.max_features != "auto"
            return kept.get("patch_size", None if has_none else auto_patch(grid.shape))
        if self.patch_size is None:
            return None
        size = grid.sizes(self.patch_size, "patch_size")
        if self.max_features not in ("auto", None):
            raise ValueError(
                f"max_features={self.max_features!r} has no meaning with "
                f'patch_size={self.patch_size!r}: leave it at "auto"'
            )
        return size

    def _check_compatible(self, settings, before):
        """Raise ValueError if new trees would not match the existing ones."""
        steepness = settings.annealing.final
        if before.steepness != steepness:
            raise ValueError(
                f"warm_start=True adds to trees of a last steepness of {before.steepness:g}; "
                "greedy_epochs, finetune_epochs and the procedure now make it "
                f"{steepness:g}"
            )
        if before.weight_dtype != settings.weight_dtype:
            raise ValueError(
                f"warm_start=True adds to weights in {before.weight_dtype}, now weight_dtype="
                f"{settings.weight_dtype!r}"
            )

    def _method(self, settings):
        return EndToEndMethod(settings, self._task(), self._sampling())

    def _small_method(self, settings):
        """The method of a trial; its trees are hard, so that `routing` has no influence."""
        annealing = replace(settings.annealing, batch_size=COMPARED_BATCH_SIZE)
        settings = replace(settings, annealing=annealing, gate="hard")
        sampling = replace(self._sampling(), max_samples=None)
        return EndToEndMethod(settings, self._task(), sampling)

    def _resolved(self, settings):
        annealing, depth = settings.annealing, settings.max_depth
        return {
            "n_estimators_": settings.n_estimators,
            "max_depth_": None if depth == MAX_DEPTH else depth,
            "max_features_": settings.max_features,
            "patch_size_": settings.patch_size,
            "greedy_epochs_": annealing.greedy_epochs,
            "finetune_epochs_": annealing.finetune_epochs,
            "learning_rate_": annealing.learning_rate,
            "batch_size_": annealing.batch_size,
            "steepness_step_": annealing.steepness_step,
            "feature_dropout_": settings.feature_dropout,
            "steepness_": annealing.final,
        }

    @property
    def _limits_features(self):
        return "usual" if self.feature_shape is None else None  # pixels have all their values

    @property
    def _is_complete(self):
        return self._procedure.growth == "complete"

    def _is_table(self):
        """Do features have no order, so that their number for a split is chosen?"""
        return self.feature_shape is None and not self._uses_all_features()

    def _uses_all_features(self):
        """Is it a single tree, or do splits use all features, or those of a patch?"""
        has_patch = self.patch_size is not None and not isinstance(self.patch_size, str)
        return self.n_estimators == 1 or has_patch or self.smoothness > 0


@described(CLASSIFIER_PARAMETERS, ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class E2EDecisionForestClassifier(ForestClassifierMixin, _E2EForest):
    """End-to-end forest classifier: soft trees of hyperplanes that are hard in the end.

    During training, a row goes right at a split with a probability, which is the sigmoid of its
    margin times a steepness. The likelihood of the labels is therefore differentiable (equations 1
    to 5 of the paper [1]_). A tree is grown by training one such split at a time; then the whole
    tree is trained by expectation maximisation, while the steepness grows. In prediction, every
    row goes to one side of every split. `E2EDecisionForest` is another name of this class.

    {parameters_and_attributes}

    See Also
    --------
    E2EDecisionForestRegressor : The same for regression.
    NonGreedyTreeClassifier : A hard tree, trained as a whole on a bound of its loss.
    CO2ForestClassifier : Hyperplanes that are optimised node by node.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import E2EDecisionForestClassifier
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> tree = E2EDecisionForestClassifier(1, random_state=0).fit(X_train, y_train)
    >>> for key, value in tree.routing_scores(X_test, y_test).items():
    ...     print(key, round(value, 2))
    hard 0.97
    soft 0.97
    gap 0.0
    """

    _parameter_constraints: dict = {}
    _label_criterion = "entropy"

    def __init__(
        self,
        n_estimators="auto",
        *,
        max_depth="auto",
        max_features="auto",
        feature_shape=None,
        patch_size="auto",
        smoothness=0.0,
        routing="hard",
        greedy_epochs="auto",
        finetune_epochs="auto",
        procedure=None,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        weight_dtype="float32",
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


E2EDecisionForest = E2EDecisionForestClassifier


@described(REGRESSOR_PARAMETERS, ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class E2EDecisionForestRegressor(ForestRegressorMixin, _E2EForest):
    """End-to-end forest regressor: soft trees of hyperplanes that are hard in the end.

    It works like `E2EDecisionForestClassifier`, but the leaves hold normal densities, with a mean
    and a variance for each output, instead of class probabilities.

    {parameters_and_attributes}

    See Also
    --------
    E2EDecisionForestClassifier : The same for classification.
    NonGreedyTreeRegressor : A hard tree, trained as a whole on a bound of its loss.
    CO2ForestRegressor : Hyperplanes that are optimised node by node.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import E2EDecisionForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = E2EDecisionForestRegressor(
    ...     20, bootstrap=True, oob_score=True, random_state=0
    ... )
    >>> round(forest.fit(X, y).oob_score_, 2)
    0.43
    """
