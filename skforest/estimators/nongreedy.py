"""Non-greedy trees: all splits and leaves of a tree trained together.

Norouzi, Collins, Johnson, Fleet, Kohli, "Efficient Non-greedy Optimization of Decision Trees",
2015. A tree is grown node by node; then all of its splits and leaves are trained together, by
gradient descent on an upper bound of the loss of the whole tree. A forest of such trees is a CO2
forest with refine="nongreedy".
"""

import math
from dataclasses import replace

from .._docs import described, with_texts
from ..training.co2 import CO2Method, CO2Settings
from ..training.growing import SEARCHED
from ..training.joint import JointSettings
from ..training.losses import Loss, loss_names
from .base import RECORDS, Integral, Interval, Real, StrOptions, check_is_fitted
from .greedy import ObliqueForest
from .targets import ForestClassifierMixin, ForestRegressorMixin
from .validation import Procedure, store_parameters

AXIS_SEARCHED = 4096  # rows among which a cut is searched with init="axis"

PARAMETERS = """
init : {"co2", "soft", "axis"}
    How the initial tree of joint training is grown. "co2", "soft": with hyperplanes, as in
    `CO2ForestClassifier` with this `objective`. "axis": with single features.
loss : {LOSS} or Loss
    Loss that the leaves minimise. You can also pass an instance of `Loss`, any differentiable loss
    of your own; the bound holds for it, too. First cuts are searched, and importances are
    measured, with LOSS in any case.
nu : "auto" or float
    Upper limit of the squared norm of the weights and the bias of a split, greater than 0. Larger
    values bring the bound closer to the loss; below 10, trees lose most of their leaves. Features
    are scaled as `row_norm` of the procedure says. "auto": 300 divided by the square root of the
    number of features, but at least 20 and at most 100.
learning_rate : float
    Length of the first gradient step, greater than 0.
n_epochs : "auto" or int
    Number of passes over all rows. "auto": 1000000 / n for n rows, but at least 10 and at most 30.
l1 : float
    L1 penalty on the weights of all splits, at least 0. It sets weights to 0, and splits with few
    weights are stored sparsely.
early_stopping : bool
    Whether to hold out some of the rows, `validation_fraction` of the procedure. Joint training
    then ends when the loss on these rows has not decreased for `n_iter_no_change` epochs, and the
    splits of the best epoch are kept. Finally, the leaves are computed from all rows.
max_features : {"auto", "sqrt", "log2"}, int, float or None
    Number of features among which the first cut of a node is searched when the tree is grown. An
    int is a count, a float is a multiple of the number p of all features, and None is p. "auto",
    "sqrt": the square root of p ("auto" rounds up).
min_samples_leaf : int or float
    Minimum number of rows in a leaf when the tree is grown. A float is a fraction of the rows of
    the tree. Joint training may leave fewer. The default of regressors is 5.
procedure : NonGreedyProcedure or None
    Details of joint training that only the paper's experiments need. None:
    ``NonGreedyProcedure()``. ``NonGreedyProcedure.as_printed()``: as in the paper.
"""
CLASSIFIER_PARAMETERS = PARAMETERS.replace("LOSS", '"log_loss"')
REGRESSOR_PARAMETERS = PARAMETERS.replace("LOSS", '"squared_error"')
USUAL = "init loss max_features max_depth min_samples_leaf"

PROCEDURE_PARAMETERS = """
inference : {"fast", "full"}
    Which leaves compete in loss-augmented inference. "fast": the leaves that a row reaches if at
    most one split on its path is reversed (equation 13). "full": all leaves (equation 7); slower,
    and seldom better.
stable : bool
    Whether to keep the assignment of rows to leaves fixed until the bound converges (equation 14):
    more leaves stay in use, but progress is slower.
schedule : {"linear", "constant"}
    How the learning rate develops. "linear": it falls linearly to 0 over the epochs. "constant":
    it does not change, as in algorithm 1 of the paper.
smoothing : float
    Pseudocount that is added to each class of a leaf before training, in rows of mean weight.
    Greater than 0. With leaves="counts", stored leaves are not smoothed. No effect in regression.
leaves : {"counts", "trained"}
    What leaves predict. "counts": the class frequencies, or the mean, of the rows that reach the
    leaf after training. "trained": the trained parameters, as in the paper; no class has
    probability 0, so the log loss of a tree is far smaller, while its error is about the same.
scaling : {"minmax", "standard"} or None
    How features are scaled over the training set, in float64. "minmax": to [0, 1]. "standard": to
    mean 0 and standard deviation 1. None: they are not scaled, and values beyond 2^60 count as
    2^60. Codes of categories are always in [0, 1]. It has no effect on the refinement of a CO2
    forest, whose own procedure decides.
row_norm : float or None
    Rows are centred, then multiplied by one number, the same for all features, so that their root
    mean square norm is `row_norm`. Greater than 0. None: rows are neither centred nor scaled, as
    in the paper.
rescale_splits : bool
    True: joint training starts with splits of squared norm `nu`. False: splits keep their norm
    from the grown tree, as in the paper, unless its square exceeds `nu`.
"""

ATTRIBUTES = """
nu_, max_features_ : float, int
    Resolved values of these parameters.
loss_curve_ : ndarray of shape (n_epochs,), float64
    Mean bound of the loss in each epoch, computed as the rows are visited. Empty if the tree has
    no split.
validation_scores_ : ndarray of shape (n_epochs,), float64
    Minus the loss of the held-out rows after each epoch. Empty without `early_stopping`.
n_active_leaves_ : int
    Number of leaves that training rows reach in the end. All other leaves are removed.
"""

NOTES = """
The tree scales features in the same way when it predicts.

{outliers}

{weighted_rows}
"""

REFERENCES = """
.. [1] M. Norouzi, M. D. Collins, M. Johnson, D. J. Fleet, P. Kohli, "Efficient Non-greedy
   Optimization of Decision Trees", Advances in Neural Information Processing Systems 28, 2015.
"""


@described(PROCEDURE_PARAMETERS)
class NonGreedyProcedure(Procedure):
    """How the splits and leaves of a tree are trained together, in detail.

    Pass it as the parameter `procedure` of `NonGreedyTreeClassifier` or `NonGreedyTreeRegressor`.
    The defaults suit tables; `as_printed` does what the paper [1]_ does. Rows are not scaled then,
    and the tree needs a smaller `learning_rate`, such as 0.01.

    Parameters
    ----------
    {parameters}

    References
    ----------
    .. [1] M. Norouzi, M. D. Collins, M. Johnson, D. J. Fleet, P. Kohli, "Efficient Non-greedy
       Optimization of Decision Trees", Advances in Neural Information Processing Systems 28, 2015.

    Examples
    --------
    >>> from skforest import NonGreedyProcedure
    >>> NonGreedyProcedure.as_printed(stable=True)
    NonGreedyProcedure(leaves='trained', rescale_splits=False, row_norm=None,
                       schedule='constant', stable=True)
    """

    _parameter_constraints: dict = {
        "inference": [StrOptions({"fast", "full"})],
        "stable": ["boolean"],
        "schedule": [StrOptions({"linear", "constant"})],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "batch_size": [Interval(Integral, 1, 2**20, closed="both")],
        "smoothing": [Interval(Real, 0.0, None, closed="neither")],
        "leaves": [StrOptions({"counts", "trained"})],
        "scaling": [StrOptions({"minmax", "standard"}), None],
        "row_norm": [Interval(Real, 0.0, None, closed="neither"), None],
        "rescale_splits": ["boolean"],
        "validation_fraction": [Interval(Real, 0.0, 1.0, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }
    _printed = {
        "schedule": "constant",
        "leaves": "trained",
        "row_norm": None,
        "rescale_splits": False,
    }

    def __init__(
        self,
        *,
        inference="fast",
        stable=False,
        schedule="linear",
        momentum=0.9,
        batch_size=100,
        smoothing=0.1,
        leaves="counts",
        scaling="minmax",
        row_norm=8.0,
        rescale_splits=True,
        validation_fraction=0.1,
        n_iter_no_change=5,
    ):
        store_parameters(self, locals())


@with_texts()
class _NonGreedyTree(ObliqueForest):
    """Parameters and training shared by classifier and regressor: a forest of one tree."""

    n_estimators = 1
    n_jobs = None
    warm_start = False

    _parameter_constraints: dict = {
        "init": [StrOptions({"co2", "soft", "axis"})],
        "nu": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "n_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "l1": [Interval(Real, 0.0, None, closed="left")],
        "early_stopping": ["boolean"],
        "procedure": [NonGreedyProcedure, None],
    }
    _default_procedure = NonGreedyProcedure

    def __init__(
        self,
        *,
        init="co2",
        loss="squared_error",
        max_features=None,
        max_depth=None,
        min_samples_leaf=5,
        nu="auto",
        learning_rate=0.3,
        n_epochs="auto",
        l1=0.0,
        early_stopping=False,
        procedure=None,
        min_samples_split=2,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        weight_dtype="float32",
        categorical_features="from_dtype",
        random_state=None,
        verbose=0,
    ):
        store_parameters(self, locals())

    def _settings(self, data, request):
        n_features, is_axis = data.X.shape[1], self.init == "axis"
        root = math.ceil(math.sqrt(n_features))
        kernel = self._user_kernel(data)
        joint = replace(JointSettings.of(self).resolved(n_features), kernel=kernel)
        return CO2Settings(
            **self._growth_settings(
                max_features=self._resolve_max_features(n_features, root),
                max_search_samples=AXIS_SEARCHED if is_axis else SEARCHED,
            ),
            weight_dtype=self.weight_dtype,
            objective=None if is_axis else self.init,
            kernel=kernel,
            bootstrap=False,
            smoothing=joint.smoothing,
            row_norm=joint.row_norm,
            refine=joint,
        )

    def _method(self, settings):
        return CO2Method(settings, self._task(), self._sampling())

    def _resolved(self, settings):
        return {"nu_": settings.refine.nu, "max_features_": settings.max_features}

    def _store(self, forest, settings, records, n_before=0):
        for name in RECORDS:
            vars(self).pop(name, None)
        super()._store(forest, settings, records)
        for name in RECORDS:
            if name in vars(self):
                setattr(self, name, getattr(self, name)[0])

    def _update_refined_records(self):
        """Bring recorded attributes up to date with the refined tree."""
        self.n_active_leaves_ = self.get_n_leaves()
        self.refine_curve_ = self.refine_curve_[0]

    def apply(self, X):
        """Leaf that each row reaches.

        {takes_matrix}

        Returns
        -------
        leaves : ndarray of shape (n_samples,), int32
            Node numbers, counted from the root.
        """
        return super().apply(X)[:, 0]

    def decision_path(self, X):
        """Nodes that each row passes through.

        {takes_matrix}

        {returns_path}
        """
        return super().decision_path(X)[0]

    def get_depth(self):
        """Depth of the tree.

        Returns
        -------
        depth : int
            Depth of the deepest leaf; the root has depth 0.
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


@described(CLASSIFIER_PARAMETERS, ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class NonGreedyTreeClassifier(ForestClassifierMixin, _NonGreedyTree):
    """Decision tree classifier whose splits and leaves are trained together.

    A tree of hyperplanes is grown node by node. Then all of its splits and leaves are trained
    together, by stochastic gradient descent on a convex-concave bound of the log loss of the whole
    tree (equations 9 to 14 of the paper [1]_, algorithm 1). Finally, leaves are by default
    computed again from their rows, and leaves that no row reaches are removed.

    {parameters_and_attributes}

    See Also
    --------
    CO2ForestClassifier : Many such trees, with refine="nongreedy".
    NonGreedyTreeRegressor : The same for regression.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import NonGreedyTreeClassifier
    {digits}
    >>> tree = NonGreedyTreeClassifier(random_state=0).fit(X_train, y_train)
    >>> round(tree.score(X_test, y_test), 2)
    0.96
    """

    _parameter_constraints: dict = {
        "loss": [StrOptions(loss_names("for_trees", of_labels=True)), Loss],
    }
    _label_criterion = "entropy"

    def __init__(
        self,
        *,
        init="co2",
        loss="log_loss",
        max_features=None,
        max_depth=None,
        min_samples_leaf=1,
        nu="auto",
        learning_rate=0.3,
        n_epochs="auto",
        l1=0.0,
        early_stopping=False,
        procedure=None,
        min_samples_split=2,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        weight_dtype="float32",
        class_weight=None,
        prior=None,
        categorical_features="from_dtype",
        random_state=None,
        verbose=0,
    ):
        store_parameters(self, locals())


@described(REGRESSOR_PARAMETERS, ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class NonGreedyTreeRegressor(ForestRegressorMixin, _NonGreedyTree):
    """Decision tree regressor whose splits and leaves are trained together.

    It works like `NonGreedyTreeClassifier`, with the squared error (equation 3 of the paper [1]_)
    in units of the variance of the target.

    {parameters_and_attributes}

    See Also
    --------
    CO2ForestRegressor : Many such trees, with refine="nongreedy".
    NonGreedyTreeClassifier : The same for classification.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import NonGreedyTreeRegressor
    >>> from sklearn.datasets import make_regression
    >>> X, y = make_regression(500, 5, noise=1.0, random_state=0)
    >>> tree = NonGreedyTreeRegressor(max_depth=5, random_state=0)
    >>> round(tree.fit(X[:400], y[:400]).score(X[400:], y[400:]), 2)
    0.96
    """

    _parameter_constraints: dict = {"loss": [StrOptions(loss_names("for_trees")), Loss]}
    _has_own_link = False  # the leaves have predictions
