"""Non-greedy trees and forests: all splits and leaves of a tree trained together.

Norouzi, Collins, Johnson, Fleet, Kohli, "Efficient Non-greedy Optimization of Decision Trees",
2015. A tree is grown node by node; then all of its splits and leaves are trained together, by
gradient descent on an upper bound of the loss of the whole tree.
"""

import math

from .._docs import described, with_texts
from ..training.growing import SEARCHED
from ..training.joint import JointSettings
from ..training.nongreedy import NonGreedyMethod, NonGreedySettings
from .base import RECORDS, BootstrapMixin, Integral, Interval, Real, StrOptions, check_is_fitted
from .greedy import ObliqueForest
from .targets import ForestClassifierMixin, ForestRegressorMixin
from .validation import store_parameters

AXIS_SEARCHED = 4096  # rows among which a cut is searched by default, with init="axis"

PARAMETERS = """
init : {"co2", "soft", "axis"}
    How the tree is grown from which joint training starts. "co2", "soft": with hyperplanes, as
    `CO2ForestClassifier` with this `objective`. "axis": with single features.
inference : {"fast", "full"}
    Which leaves compete in loss-augmented inference. "fast": those that a row reaches when at
    most one split on its path is reversed (equation 13). "full": all leaves (equation 7); slower,
    and seldom better.
stable : bool
    Whether to keep the leaf to which every row is assigned until the bound converges
    (equation 14): more leaves stay in use, and progress is slower.
nu : "auto" or float
    Bound on the squared norm of the weights and the bias of a split, more than 0. Larger values
    bring the bound closer to the loss; below 10, trees lose most of their leaves. Features are
    measured in the units of `row_norm`. "auto": 300 over the square root of the number of
    features, but at least 20 and at most 100.
learning_rate : float
    Length of the first gradient step, more than 0.
schedule : {"linear", "constant"}
    How the learning rate develops: linearly to 0 over the epochs, or not at all, as in algorithm 1
    of the paper.
n_epochs : "auto" or int
    Number of passes over all rows. "auto": 1000000 / n for n rows, but at least 10 and at most 30.
l1 : float
    Weight of the sum of the absolute weights of all splits in the objective, 0 or more. It makes
    weights 0, and splits with few weights are stored sparsely.
smoothing : float
    Rows, of mean weight, that are added to each class of a leaf before training. More than 0.
    Leaves that are stored with leaves="counts" are not smoothed. No effect in regression.
leaves : {"counts", "trained"}
    What leaves predict. "counts": class frequencies, or means, of the rows that reach them when
    training has ended. "trained": their trained parameters, as in the paper; no class has
    probability 0, so that the log loss of a tree is far smaller, and its error about the same.
    With refine="alternating", leaves are computed from their rows after the sweeps.
scaling : {"minmax", "standard"} or None
    How features are scaled over the training set, in float64. "minmax": to [0, 1]. "standard": to
    mean 0 and standard deviation 1. None: not at all, and values beyond 2^60 count as 2^60. Codes
    of categories are always in [0, 1].
row_norm : float or None
    Root mean square norm to which rows are scaled, by one number for all features, after they
    have been centred on their mean. More than 0. None: rows are neither centred nor scaled, as in
    the paper.
rescale_splits : bool
    True: joint training starts with splits of squared norm `nu`. False: with the norm that they
    have in the grown tree, as in the paper, or with squared norm `nu` if that is smaller.
refine : {"alternating"} or None
    "alternating": joint training is followed by refinement split by split, as by
    `skforest.refine`.
n_sweeps : int
    How often refinement visits every node, at least 1.
max_features : {"auto", "sqrt", "log2"}, int, float or None
    Features among which the first cut of a node is searched when the tree is grown. An int is a
    count, a float a multiple of the number of features, None all. "auto", "sqrt": the square root
    of the number of features ("auto" rounds up).
min_samples_leaf : int or float
    Smallest number of rows of a leaf when the tree is grown; a float is a fraction of the rows of
    the tree. Joint training may leave fewer.
max_search_samples : "auto", int or None
    With splitter="hist", nodes with more rows are searched in a random subset of this size, at
    least 32; the gain of the split found is computed from all rows. None: all rows. "auto": 1024,
    or 4096 with init="axis".
"""

ATTRIBUTES = """
nu_, max_features_ : float, int
    Resolved values of these parameters.
{curve} : {list}ndarray of shape (n_epochs,), float64
    {each}Mean bound on the loss in each epoch, computed as the rows are
    visited. Empty if the tree has no split.
{scores} : {list}ndarray of shape (n_epochs,), float64
    {each}Minus the loss of the held-out rows after each epoch. Empty
    without `early_stopping`.
n_active_leaves_ : {ints}
    Number of leaves that training rows reach in the end; the others are removed.
{refined} : {list}ndarray of shape (n_sweeps + 1,), float64
    {each}Loss on the training rows before and after each sweep: fraction
    of wrong labels, or mean squared error. Only with refine="alternating".
"""

NAMES = {"curve": "loss_curve_", "scores": "validation_scores_", "refined": "refine_curve_"}
TREE_ATTRIBUTES = ATTRIBUTES.format(**NAMES, list="", each="", ints="int")
FOREST_ATTRIBUTES = ATTRIBUTES.format(
    **NAMES, list="list of ", each="One entry per tree. ", ints="list of int"
)

NOTES = """
The forest repeats the scaling of features when it predicts.

{outliers}

{weighted_rows}
"""

REFERENCES = """
.. [1] M. Norouzi, M. D. Collins, M. Johnson, D. J. Fleet, P. Kohli, "Efficient Non-greedy
   Optimization of Decision Trees", Advances in Neural Information Processing Systems 28, 2015.
"""

COST = """
Every tree is trained with many passes over the data, so a forest takes about ten times as long to
train as a random forest of as many trees.
"""


class _NonGreedy(ObliqueForest):
    """Parameters and training shared by trees and forests."""

    _parameter_constraints: dict = {
        **ObliqueForest._search_constraints,
        "max_search_samples": [
            StrOptions({"auto"}),
            *ObliqueForest._search_constraints["max_search_samples"],
        ],
        "init": [StrOptions({"co2", "soft", "axis"})],
        "inference": [StrOptions({"fast", "full"})],
        "stable": ["boolean"],
        "nu": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "schedule": [StrOptions({"linear", "constant"})],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "n_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "batch_size": [Interval(Integral, 1, 2**20, closed="both")],
        "l1": [Interval(Real, 0.0, None, closed="left")],
        "smoothing": [Interval(Real, 0.0, None, closed="neither")],
        "leaves": [StrOptions({"counts", "trained"})],
        "scaling": [StrOptions({"minmax", "standard"}), None],
        "row_norm": [Interval(Real, 0.0, None, closed="neither"), None],
        "rescale_splits": ["boolean"],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "refine": [StrOptions({"alternating"}), None],
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
    }

    @property
    def _map_scaling(self):
        return self.scaling

    def _settings(self, data, request):
        n_features = data.X.shape[1]
        n_searched = self.max_search_samples
        if n_searched == "auto":
            n_searched = AXIS_SEARCHED if self.init == "axis" else SEARCHED
        root = math.ceil(math.sqrt(n_features))
        return NonGreedySettings(
            **self._growth_settings(
                max_features=self._resolve_max_features(n_features, root),
                max_search_samples=n_searched,
            ),
            weight_dtype=self.weight_dtype,
            init=self.init,
            joint=JointSettings.of(self.get_params(deep=False)).resolved(n_features),
            validation_fraction=self.validation_fraction if self.early_stopping else None,
            refine=self.refine,
            n_sweeps=self.n_sweeps,
        )

    def _method(self, settings):
        return NonGreedyMethod(settings, self._task(), self._sampling())

    def _resolved(self, settings):
        return {"nu_": settings.joint.nu, "max_features_": settings.max_features}

    def _update_refined_records(self):
        """Bring recorded attributes up to date with refined trees."""
        self.n_active_leaves_ = self.forest_.n_leaves.tolist()


@with_texts()
class _NonGreedyTree(_NonGreedy):
    """A single tree: the base class sees a forest of one."""

    n_estimators = 1
    n_jobs = None
    warm_start = False

    def __init__(
        self,
        *,
        init="co2",
        inference="fast",
        stable=False,
        nu="auto",
        learning_rate=0.3,
        schedule="linear",
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        l1=0.0,
        smoothing=0.1,
        leaves="counts",
        scaling="minmax",
        row_norm=8.0,
        rescale_splits=True,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        refine=None,
        n_sweeps=2,
        max_features=None,
        splitter="hist",
        max_bins="auto",
        max_search_samples="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        weight_dtype="float32",
        importance_type="impurity",
        categorical_features="from_dtype",
        random_state=None,
        verbose=0,
    ):
        store_parameters(self, locals())

    def _store(self, forest, settings, records, n_before=0):
        for name in RECORDS:
            vars(self).pop(name, None)
        super()._store(forest, settings, records)
        for name in RECORDS:
            if name in vars(self):
                setattr(self, name, getattr(self, name)[0])

    def _update_refined_records(self):
        self.n_active_leaves_ = self.get_n_leaves()
        self.refine_curve_ = self.refine_curve_[0]

    def apply(self, X):
        """Leaf that every row reaches.

        {takes_matrix}

        Returns
        -------
        leaves : ndarray of shape (n_samples,), int32
            Node numbers, counted from the root.
        """
        return super().apply(X)[:, 0]

    def decision_path(self, X):
        """Nodes that every row passes.

        {takes_matrix}

        {returns_path}
        """
        return super().decision_path(X)[0]

    def get_depth(self):
        """Depth of the tree.

        Returns
        -------
        depth : int
            That of the deepest leaf; the root has 0.
        """
        check_is_fitted(self, "forest_")
        return int(self.forest_.max_depth[0])

    def get_n_leaves(self):
        """Number of leaves of the tree.

        Returns
        -------
        n_leaves : int
        """
        check_is_fitted(self, "forest_")
        return int(self.forest_.n_leaves[0])


class _NonGreedyForest(BootstrapMixin, _NonGreedy):
    """Parameters of a forest."""

    def __init__(
        self,
        n_estimators=100,
        *,
        init="co2",
        inference="fast",
        stable=False,
        nu="auto",
        learning_rate=0.3,
        schedule="linear",
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        l1=0.0,
        smoothing=0.1,
        leaves="counts",
        scaling="minmax",
        row_norm=8.0,
        rescale_splits=True,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        refine=None,
        n_sweeps=2,
        max_features="auto",
        splitter="hist",
        max_bins="auto",
        max_search_samples="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        weight_dtype="float32",
        importance_type="impurity",
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        time_limit=None,
    ):
        store_parameters(self, locals())


@described(PARAMETERS, TREE_ATTRIBUTES, notes=NOTES, references=REFERENCES)
class NonGreedyTreeClassifier(ForestClassifierMixin, _NonGreedyTree):
    """Classify with a tree whose splits and leaves are trained together.

    A tree of hyperplanes is grown node by node. Then all of its splits and leaves are trained
    together, by stochastic gradient descent on a convex-concave bound of the log loss of the whole
    tree (equations 9 to 14 of the paper [1]_, algorithm 1). In the end the leaves are by default
    computed again from their rows, and those that no row reaches are removed.

    {parameters_and_attributes}

    See Also
    --------
    NonGreedyForestClassifier : Many such trees.
    NonGreedyTreeRegressor : The same for real targets.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import NonGreedyTreeClassifier
    {digits}
    >>> tree = NonGreedyTreeClassifier(random_state=0).fit(X_train, y_train)
    >>> bool(tree.score(X_test, y_test) > 0.92)
    True
    """

    _label_criterion = "entropy"

    def __init__(
        self,
        *,
        init="co2",
        inference="fast",
        stable=False,
        nu="auto",
        learning_rate=0.3,
        schedule="linear",
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        l1=0.0,
        smoothing=0.1,
        leaves="counts",
        scaling="minmax",
        row_norm=8.0,
        rescale_splits=True,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        refine=None,
        n_sweeps=2,
        max_features=None,
        splitter="hist",
        max_bins="auto",
        max_search_samples="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        weight_dtype="float32",
        importance_type="impurity",
        class_weight=None,
        categorical_features="from_dtype",
        random_state=None,
        verbose=0,
    ):
        store_parameters(self, locals())


@described(PARAMETERS, TREE_ATTRIBUTES, notes=NOTES, references=REFERENCES)
class NonGreedyTreeRegressor(ForestRegressorMixin, _NonGreedyTree):
    """Predict real targets with a tree whose splits and leaves are trained together.

    As `NonGreedyTreeClassifier`, with the squared error (equation 3 of the paper [1]_) in units of
    the variance of the target.

    {parameters_and_attributes}

    See Also
    --------
    NonGreedyForestRegressor : Many such trees.
    NonGreedyTreeClassifier : The same for labels.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import NonGreedyTreeRegressor
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(500, 5, noise=1.0, random_state=0)
    >>> tree = NonGreedyTreeRegressor(max_depth=5, random_state=0).fit(X[:400], y[:400])
    >>> bool(tree.score(X[400:], y[400:]) > 0.8)
    True
    """


@described(PARAMETERS, FOREST_ATTRIBUTES, notes=NOTES, references=REFERENCES, cost=COST)
class NonGreedyForestClassifier(ForestClassifierMixin, _NonGreedyForest):
    """Classify with a forest of trees that are each trained as a whole.

    {cost}
    `CO2ForestClassifier` and `RandomHingeForestClassifier` are usually as accurate, and
    faster. The forest is an average of trees as `NonGreedyTreeClassifier` trains them [1]_: grown
    with hyperplanes, then all splits and leaves of a tree trained together on a convex-concave
    bound of its log loss.

    {parameters_and_attributes}

    See Also
    --------
    NonGreedyTreeClassifier : One such tree.
    CO2ForestClassifier : Trees grown node by node only.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import NonGreedyForestClassifier
    {digits}
    >>> forest = NonGreedyForestClassifier(10, random_state=0).fit(X_train, y_train)
    >>> bool(forest.score(X_test, y_test) > 0.96)
    True
    """

    _label_criterion = "entropy"

    def __init__(
        self,
        n_estimators=100,
        *,
        init="co2",
        inference="fast",
        stable=False,
        nu="auto",
        learning_rate=0.3,
        schedule="linear",
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        l1=0.0,
        smoothing=0.1,
        leaves="counts",
        scaling="minmax",
        row_norm=8.0,
        rescale_splits=True,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        refine=None,
        n_sweeps=2,
        max_features="auto",
        splitter="hist",
        max_bins="auto",
        max_search_samples="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap=False,
        max_samples=None,
        oob_score=False,
        weight_dtype="float32",
        importance_type="impurity",
        class_weight=None,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        time_limit=None,
    ):
        store_parameters(self, locals())


@described(PARAMETERS, FOREST_ATTRIBUTES, notes=NOTES, references=REFERENCES, cost=COST)
class NonGreedyForestRegressor(ForestRegressorMixin, _NonGreedyForest):
    """Predict real targets with a forest of trees that are each trained as a whole.

    {cost}
    `CO2ForestRegressor` and `RandomHingeForestRegressor` are usually as accurate, and
    faster. The forest is an average of trees as `NonGreedyTreeRegressor` trains them [1]_: grown
    with hyperplanes, then all splits and leaves of a tree trained together on a bound of the
    squared error.

    {parameters_and_attributes}

    See Also
    --------
    NonGreedyTreeRegressor : One such tree.
    CO2ForestRegressor : Trees grown node by node only.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import NonGreedyForestRegressor
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(500, 5, noise=1.0, random_state=0)
    >>> forest = NonGreedyForestRegressor(10, random_state=0).fit(X[:400], y[:400])
    >>> bool(forest.score(X[400:], y[400:]) > 0.9)
    True
    """
