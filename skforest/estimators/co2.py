"""CO2 forests: trees of hyperplanes, each optimised when its node is split.

Norouzi, Collins, Fleet, Kohli, "CO2 Forest: Improved Random Forest by Continuous Optimization of
Oblique Splits", 2015. A node begins with the best cut of a few single features and turns it into a
hyperplane, by gradient descent on an upper bound of the loss of the two leaves.
"""

import math
from dataclasses import replace

from .._docs import described
from ..training.co2 import CO2Method, CO2Settings
from ..training.joint import joint_settings
from ..training.losses import Loss, loss_names
from ..training.trials import best_setting
from .base import HasMethods, Integral, Interval, Real, StrOptions
from .bootstrap import BootstrapMixin
from .greedy import SEARCH_CONSTRAINTS, VOTING_CONSTRAINTS, ObliqueForest
from .targets import ForestClassifierMixin, ForestRegressorMixin
from .validation import Procedure, check_unchanged, store_parameters

# Values with which hyperplanes may have a limit of weights.
LIMITED = {"objective": ("auto", "co2", "soft", "mixed", None), "refine": (None, "alternating")}
# "auto" chooses among hyperplanes without a check, hyperplanes that must beat their first cut on
# held-out rows of the node, and single features. max_features is a power of the number of
# features.
SETTINGS = (
    {"objective": "co2", "bootstrap": False, "max_features": 0.5, "holdout": 0.0},
    {"objective": "co2", "bootstrap": False, "max_features": 0.8, "holdout": 0.3},
    {"objective": None, "bootstrap": True, "max_features": 0.5, "holdout": 0.0},
)
WITHOUT_GRADIENT = ("oc1", "random", None)  # objectives that hold no rows out

PARAMETERS = """
objective : {"auto", "co2", "soft", "mixed", "oc1", "random"} or None
    What the hyperplane of a node minimises. "auto": "co2", or None if that has a lower error, see
    Notes. "co2": the convex-concave bound of the paper on the loss of the leaf that each row
    reaches. "soft": the expected loss if a row goes right with probability sigmoid(2 m), where m
    is its margin; single trees become better, but less diverse. "mixed": one of the two, drawn at
    random for each node.

    The remaining values are baselines of the paper, on which `nu` and `holdout` have no effect.
    "oc1": without a gradient, one weight at a time is moved to the best of all values at which a
    row changes sides (OC1 [2]_). "random": the best cut of `max_features` hyperplanes with
    standard normal weights. None: the best cut of a single feature, as in a random forest.
loss : {LOSS} or Loss
    Loss that the leaves of a split and the leaves of the tree minimise. You can also pass an
    instance of `Loss`, any differentiable loss of your own; the bound holds for it, too. First
    cuts are searched, and importances are measured, with LOSS in any case. A `Loss` of your own
    needs an `objective` that has a gradient.
refine : {"nongreedy", "alternating"}, NonGreedyTreeClassifier, NonGreedyTreeRegressor or None
    How every tree is refined on its training rows once it has been grown; useful for single trees
    and small forests. "nongreedy": all splits and leaves are trained together, as in
    `NonGreedyTreeClassifier` with default parameters. To set these, pass a non-greedy tree, which
    need not be fitted: its parameters of joint training, from `nu` to `procedure`, are used, and
    those of growth have no effect. "alternating": splits are trained one after another, as in
    `skforest.refine`. It may leave fewer rows in a leaf than `min_samples_leaf`. None: trees are
    not refined.
max_features : {"auto", "sqrt", "log2"}, int, float or None
    Number of features among which the first cut of a node is searched, q in the paper. An int is a
    count, a float is a multiple of the number p of all features, and None is p. "sqrt": the square
    root of p. "auto": p ** 0.5 or p ** 0.8, rounded up, see Notes. With objective="random", the
    number of hyperplanes tried.
nu : float
    Upper limit of the squared norm of the weights and the bias of a split, greater than 0. Larger
    values bring the convex-concave bound closer to the loss. Features are scaled as `row_norm` of
    the procedure says.
holdout : "auto" or float
    Fraction of the rows of a node, 0 to 0.9, that is held out to decide whether the hyperplane is
    better than the single feature that it started from. This guards against features that are only
    noise. Nodes with fewer than 40 rows hold no rows out. 0: the hyperplane is always kept.
    "auto": 0 or 0.3, see Notes.
procedure : CO2Procedure or None
    Details of training that only the paper's experiments need. None: ``CO2Procedure()``.
    ``CO2Procedure.as_printed()``: as in the paper.
bootstrap : "auto" or bool
    True: each tree is trained on a bootstrap sample; rows are drawn with replacement, with
    probabilities proportional to their weights. False: every tree is trained on all rows, and
    trees differ by the features of their first cuts and by their batches. "auto": True with
    `oob_score` or `max_samples`; otherwise see Notes.
"""
CLASSIFIER_PARAMETERS = PARAMETERS.replace("LOSS", '"log_loss"')
REGRESSOR_PARAMETERS = PARAMETERS.replace("LOSS", '"squared_error"')
USUAL = "n_estimators objective loss refine max_features max_depth min_samples_leaf"

PROCEDURE_PARAMETERS = """
learning_rate : float
    Length of a gradient step, greater than 0. Training of a split ends when no row has a gradient.
    If the split is then no better than the first cut, training starts again from weights of half
    the norm.
schedule : {"plateau", "constant"}
    How the learning rate develops. "plateau": it is halved when the objective has not decreased
    for three epochs, and training of the split ends at a fiftieth of its first value. "constant":
    it does not change, as in algorithm 1 of the paper.
n_epochs : "auto" or int
    Maximum number of passes over the rows of a node. "auto": 20000 / n for n rows, but at least 3
    and at most 30.
batch_size : int
    Number of rows in a gradient step, at least 1. An epoch shows each row of the node once. With a
    batch size of 1, an epoch has as many steps as there are rows; the row of a step is drawn with
    a probability proportional to its weight, as in algorithm 1 of the paper.
min_batches : int
    Minimum number of steps of an epoch, at least 1. An epoch shows the rows of small nodes several
    times, with the same signs for signs="old". Algorithm 1 of the paper has tau steps.
max_weights : int or None
    Maximum number of weights of a hyperplane that are not 0, at least 1. The smallest weights are
    set to 0 in the first half of the epochs of a node, more and more of them. A forest of many
    features then takes a fraction of the memory. Also for refine="alternating". None: all may
    differ from 0.
smoothing : float
    Pseudocount that is added to each class of a leaf when its log loss is computed in training, in
    rows of mean weight. Greater than 0. 0.1 suits forests, and 1 suits single trees. Stored leaves
    are not smoothed. No effect in regression.
scaling : {"minmax", "standard"} or None
    How features are scaled over the training set, in float64. "minmax": to [0, 1]. "standard": to
    mean 0 and standard deviation 1. None: they are not scaled, and values beyond 2^60 count as
    2^60. With sparse X, features that are 0 in some row are scaled but not shifted. Codes of
    categories are always in [0, 1].
row_norm : float or None
    The rows of a node are centred, then multiplied by one number, the same for all features, so
    that their root mean square norm is `row_norm`. Greater than 0. None: rows are neither centred
    nor scaled, as in the paper.
signs : {"current", "old"}
    Which weights decide the branch that a row follows in the bound: the current ones, or those at
    the end of the previous epoch, as in the convex-concave procedure of the paper.
leaves : {"counts", "gradient"}
    How the two leaves are trained. "counts": they are set to their optimum after every epoch.
    "gradient": they are updated together with the weights, by the same gradient steps, as in
    algorithm 1 of the paper.
keep : {"best", "last"}
    Which of the hyperplanes seen in training a node keeps. "best": the one with the largest
    decrease of impurity, including the first cut. "last": the last one, as in the paper. A
    hyperplane with all rows on one side is never kept.
splitter : {"auto", "hist", "exact"}
    How the first cut of a node is found. "hist": between bins of equal width, in at most
    `max_search_samples` rows. "exact": between any two rows, by sorting all rows of the node, as
    in the paper. "auto": "exact" for objective="random" and None, else "hist".
n_restarts : int
    Number of random hyperplanes from which OC1 starts again after it has started from the best cut
    of a feature. The original has 20, which makes trees smaller, takes longer and hardly changes
    the error of a forest. Only for objective="oc1".
n_jumps : int
    Number of random directions that OC1 tries when no single weight improves the split. Only for
    objective="oc1".
n_sweeps : int
    How often refine="alternating" visits every node, at least 1.
"""

ATTRIBUTES = """
objective_, bootstrap_, max_features_, holdout_ : str or None, bool, int, float
    Resolved values of these parameters.
refine_curve_ : list of ndarray of shape (n_sweeps + 1,), float64
    One entry per tree: its loss on its training rows before and after each sweep. Only with
    refine="alternating".
loss_curve_, validation_scores_, n_active_leaves_ : list
    One entry per tree, described in `NonGreedyTreeClassifier`. Only with joint refinement.
"""

NOTES = """
If `objective`, `bootstrap`, `max_features` or `holdout` is "auto", three settings are compared.
For each, a forest of 10 trees is trained on two thirds of the rows, at most 2000, and its squared
error (the Brier score for classes) is measured on the remaining rows, at most 2000. The best
setting is used; with fewer than 30 rows, it is the first one. Parameters that you set replace
those of the settings, and if you set all four, no forests are compared. With p features, the
settings are:

========= ========= ============ =======
objective bootstrap max_features holdout
========= ========= ============ =======
"co2"     False     p ** 0.5     0
"co2"     False     p ** 0.8     0.3
None      True      p ** 0.5     0
========= ========= ============ =======

The forest scales features in the same way when it predicts. Multiplying a feature by a power of
two, or shifting it exactly, changes no tree, unless the procedure has scaling=None.

With sparse X, a hyperplane has weights for at most 512 features: those with the largest variance
in its node. With at most 512 features and no negative values, forests are the same as for dense X
with scaling="minmax", the default.

{outliers}

{weighted_rows}
"""

REFERENCES = """
.. [1] M. Norouzi, M. D. Collins, D. J. Fleet, P. Kohli, "CO2 Forest: Improved Random Forest by
   Continuous Optimization of Oblique Splits", 2015.
.. [2] S. K. Murthy, S. Kasif, S. Salzberg, "A System for Induction of Oblique Decision Trees",
   Journal of Artificial Intelligence Research 2, 1994.
"""


@described(PROCEDURE_PARAMETERS)
class CO2Procedure(Procedure):
    """How CO2 forests train the hyperplane of a node, in detail.

    Pass it as the parameter `procedure` of `CO2ForestClassifier` or `CO2ForestRegressor`. The
    defaults suit tables; `as_printed` does what the paper [1]_ does. A search sets its parameters
    by names such as ``procedure__learning_rate``.

    Parameters
    ----------
    {parameters}

    References
    ----------
    .. [1] M. Norouzi, M. D. Collins, D. J. Fleet, P. Kohli, "CO2 Forest: Improved Random Forest by
       Continuous Optimization of Oblique Splits", 2015.

    Examples
    --------
    >>> from skforest import CO2ForestClassifier, CO2Procedure
    >>> CO2Procedure.as_printed(scaling="standard")
    CO2Procedure(keep='last', leaves='gradient', min_batches=30, n_epochs=30,
                 row_norm=None, scaling='standard', schedule='constant',
                 signs='old', splitter='exact')
    """

    _parameter_constraints: dict = {
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "schedule": [StrOptions({"plateau", "constant"})],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "n_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "batch_size": [Interval(Integral, 1, 2**20, closed="both")],
        "min_batches": [Interval(Integral, 1, 2**20, closed="both")],
        "max_weights": [Interval(Integral, 1, 2**20, closed="both"), None],
        "smoothing": [Interval(Real, 0.0, None, closed="neither")],
        "scaling": [StrOptions({"minmax", "standard"}), None],
        "row_norm": [Interval(Real, 0.0, None, closed="neither"), None],
        "signs": [StrOptions({"current", "old"})],
        "leaves": [StrOptions({"counts", "gradient"})],
        "keep": [StrOptions({"best", "last"})],
        "min_impurity_decrease": [Interval(Real, 0.0, None, closed="left")],
        **SEARCH_CONSTRAINTS,
        "splitter": [StrOptions({"auto", "hist", "exact"})],
        "n_restarts": [Interval(Integral, 0, 2**31 - 1, closed="left")],
        "n_jumps": [Interval(Integral, 0, 2**31 - 1, closed="left")],
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
        **VOTING_CONSTRAINTS,
    }
    _printed = {
        "signs": "old",
        "leaves": "gradient",
        "keep": "last",
        "row_norm": None,
        "n_epochs": 30,  # the paper does not print this number, nor that of steps
        "min_batches": 30,
        "schedule": "constant",
        "splitter": "exact",
    }

    def __init__(
        self,
        *,
        learning_rate=0.03,
        schedule="plateau",
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        min_batches=1,
        max_weights=None,
        smoothing=0.1,
        scaling="minmax",
        row_norm=8.0,
        signs="current",
        leaves="counts",
        keep="best",
        min_impurity_decrease=0.0,
        splitter="auto",
        max_bins="auto",
        max_search_samples=1024,
        n_restarts=4,
        n_jumps=5,
        n_sweeps=2,
        voting="soft",
    ):
        store_parameters(self, locals())


class _CO2Forest(BootstrapMixin, ObliqueForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        "objective": [StrOptions({"auto", "co2", "soft", "mixed", "oc1", "random"}), None],
        "bootstrap": [StrOptions({"auto"}), "boolean"],
        "nu": [Interval(Real, 0.0, None, closed="neither")],
        "holdout": [StrOptions({"auto"}), Interval(Real, 0.0, 0.9, closed="both")],
        "refine": [StrOptions({"nongreedy", "alternating"}), HasMethods("get_params"), None],
        "procedure": [CO2Procedure, None],
    }
    _default_procedure = CO2Procedure
    _compares_indicators = True

    def __init__(
        self,
        n_estimators=100,
        *,
        objective="auto",
        loss="squared_error",
        refine=None,
        max_features="auto",
        max_depth=None,
        min_samples_leaf=1,
        nu=100.0,
        holdout="auto",
        procedure=None,
        min_samples_split=2,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        bootstrap="auto",
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

    @property
    def _needs_dense(self):
        # Their directions have a weight for every feature.
        if self.objective is not None and self.objective in WITHOUT_GRADIENT:
            return f"objective={self.objective!r}"
        if self.refine is not None:
            return f"refine={self.refine!r}"
        return None if self.weight_dtype == "float32" else f"weight_dtype={self.weight_dtype!r}"

    # ----------------------------------------------------------------------------------- settings

    def _settings(self, data, request):
        if request.is_warm_start:
            kept = {"weight_dtype": request.previous.weight_dtype}
            check_unchanged(kept, vars(self))
        n_features, refine, kernel = data.X.shape[1], self.refine, self._user_kernel(data)
        if (most := self._procedure.max_weights) is not None:
            for name, options in LIMITED.items():
                value = getattr(self, name)
                if value not in options:
                    raise ValueError(
                        f"{name}={value!r} takes no max_weights, which is {most} in the "
                        f"procedure; it must be one of {options}"
                    )
        if refine not in (None, "alternating"):
            refine = joint_settings(refine)
            if self.refine != "nongreedy":
                self.refine._validate_params()
            refine = replace(refine.resolved(n_features), kernel=kernel)
        if kernel is not None:
            self._check_gradients()
        if request.is_warm_start:
            # Choices made for the first trees are kept, unless the user has set them since.
            choices = [{name: getattr(self, f"{name}_") for name in SETTINGS[0]}]
        else:
            needs_bootstrap = self.oob_score or self.max_samples is not None
            own = {"bootstrap": True} if needs_bootstrap else {}
            choices = [
                choice | {"max_features": math.ceil(n_features ** choice["max_features"])} | own
                # Small forests are compared by the squared error.
                for choice in (SETTINGS if kernel is None else SETTINGS[:1])
            ]
        settings = []
        for choice in choices:
            one = replace(self._settings_with(choice, refine, n_features), kernel=kernel)
            if one not in settings:
                settings.append(one)
        return best_setting(self._small_method, data, settings, self._seed, request)

    def _check_gradients(self):
        """Raise ValueError if a loss of the user would not influence the splits."""
        name = "refine" if self.refine == "alternating" else "objective"
        if self.refine == "alternating" or (
            self.refine is None and self.objective in WITHOUT_GRADIENT
        ):
            raise ValueError(
                f"{name}={getattr(self, name)!r} has no gradient, and is not possible with "
                f"loss={self.loss!r}"
            )

    def _settings_with(self, choice, refine, n_features):
        """`CO2Settings` with the values of a choice for the parameters that are "auto"."""
        chosen = {name: getattr(self, name) for name in choice}
        chosen = {name: choice[name] if v == "auto" else v for name, v in chosen.items()}
        chosen["max_features"] = self._resolve_max_features(n_features, choice["max_features"])
        if chosen["objective"] in WITHOUT_GRADIENT:
            chosen["holdout"] = 0.0
        procedure = self._procedure
        is_auto, searches = procedure.splitter == "auto", chosen["objective"] in ("random", None)
        is_exact = searches if is_auto else procedure.splitter == "exact"
        return CO2Settings(
            **self._growth_settings(**chosen, exact=is_exact),
            **procedure.settings(CO2Settings),
            weight_dtype=self.weight_dtype,
            nu=self.nu,
            refine=refine,
        )

    def _method(self, settings):
        return CO2Method(settings, self._task(), self._sampling(settings.bootstrap))

    def _small_method(self, settings):
        """The method of a trial, whose trees are not refined."""
        settings = replace(settings, refine=None, has_votes=False)
        sampling = replace(self._sampling(settings.bootstrap), max_samples=None)
        return CO2Method(settings, self._task(), sampling)

    def _resolved(self, settings):
        return {f"{name}_": getattr(settings, name) for name in SETTINGS[0]}


@described(CLASSIFIER_PARAMETERS, ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class CO2ForestClassifier(ForestClassifierMixin, _CO2Forest):
    """CO2 forest classifier: splits are hyperplanes, optimised by a convex-concave bound.

    Each node starts from the best cut of a few single features and turns it into a hyperplane over
    all features, by stochastic gradient descent on an upper bound of the log loss of its two
    leaves (section 4 of the paper [1]_, equations 5 to 11). Trees are grown until their leaves are
    pure, and averaged.

    {parameters_and_attributes}

    See Also
    --------
    CO2ForestRegressor : The same for regression.
    ManifoldForestClassifier : Sparse mixtures and patches, which are drawn at random.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import CO2ForestClassifier
    {digits}
    >>> forest = CO2ForestClassifier(30, random_state=0).fit(X_train, y_train)
    >>> round(forest.score(X_test, y_test), 2)
    0.98
    """

    _parameter_constraints: dict = {
        "loss": [StrOptions(loss_names("for_trees", of_labels=True)), Loss],
    }
    _label_criterion = "entropy"

    def __init__(
        self,
        n_estimators=100,
        *,
        objective="auto",
        loss="log_loss",
        refine=None,
        max_features="auto",
        max_depth=None,
        min_samples_leaf=1,
        nu=100.0,
        holdout="auto",
        procedure=None,
        min_samples_split=2,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        bootstrap="auto",
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


@described(REGRESSOR_PARAMETERS, ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class CO2ForestRegressor(ForestRegressorMixin, _CO2Forest):
    """CO2 forest regressor: splits are hyperplanes, optimised by a convex-concave bound.

    It works like `CO2ForestClassifier`, but minimises the squared error of the leaves (equations 4
    and 11 of the paper [1]_), in units of the variance of each node.

    {parameters_and_attributes}

    See Also
    --------
    CO2ForestClassifier : The same for classification.
    ManifoldForestRegressor : Sparse mixtures and patches, which are drawn at random.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import CO2ForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = CO2ForestRegressor(bootstrap=True, oob_score=True, random_state=0)
    >>> round(forest.fit(X, y).oob_score_, 2)
    0.44
    """

    _parameter_constraints: dict = {"loss": [StrOptions(loss_names("for_trees")), Loss]}
    _has_own_link = False  # the leaves have predictions
