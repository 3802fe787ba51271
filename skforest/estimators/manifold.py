"""Manifold forests, and oblique forests of sparse random mixtures.

R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests: Closing the Gap
on Neural Networks". At every node, random directions are drawn that use the positions of the
features: sums over patches of an image, a signal or a circle. Directions can also be sparse random
mixtures of features (SPORF, Tomita et al.) or single features, as in a random forest (Breiman).
"""

import math

import numpy as np

from .._docs import described
from ..table.feature_grid import FeatureGraph, FeatureGrid, as_booleans
from ..training.manifold import ManifoldMethod, ManifoldSettings
from .base import Integral, Interval, Real, StrOptions
from .bootstrap import BootstrapMixin
from .greedy import SEARCH_CONSTRAINTS, VOTING_CONSTRAINTS, GreedyForest
from .targets import ForestClassifierMixin, ForestRegressorMixin
from .validation import Procedure, check_unchanged, store_parameters

PARAMETERS = """
projection : {"auto", "axis", "sparse", "patch"}
    Distribution of the directions. "axis": single features, drawn without replacement at each
    node. "sparse": random combinations of a few features (SPORF). "patch": boxes in the array of
    features, or balls in their graph. "auto": "patch" if `feature_shape` or `feature_graph` is
    given, otherwise "sparse".
feature_shape : int, tuple of int or None
    Shape of the array that the features of a row fill, in C order: ``(100,)`` for a signal, ``(28,
    28)`` for an image, ``(28, 28, 3)`` for an image with colours, ``(8, 8, 8)`` for a volume; at
    most 8 axes, whose lengths multiply to the number of features. X may also have the shape
    ``(n_samples, *feature_shape)``. None: ``(n_features,)``. For images and signals, this is the
    parameter that matters most.
wrap : bool or array-like of bool
    Whether axes are circular, as one bool or one for each axis: a patch may then continue at the
    other end.
unordered : bool or array-like of bool
    Whether axes have no order, such as colour channels or sensors, as one bool or one for each
    axis: a patch then takes a random subset instead of neighbours.
feature_graph : {array-like, sparse matrix, dataframe} of shape (n_features, n_features) or None
    Which features are neighbours, where they lie on no grid but, for instance, on a mesh or a road
    network: a symmetric adjacency matrix. An entry above 0 connects two features; its size does
    not matter. A data frame is matched with the names of the columns of X, if these have names. A
    patch then has all features at most k steps from a random one. Not together with
    `feature_shape`, `wrap` and `unordered`.
criterion : {"gini", "entropy"}
    Impurity that a split decreases.
max_features : {"auto", "sqrt", "log2"}, int, float or None
    Number of directions tried at each node. An int is a count, a float is a multiple of the number
    p of features (it may exceed 1, since there are more directions than features), and None is p.
    "sqrt" is the square root of p. "auto": with "axis", the square root of p, or p in regression;
    with "sparse", 4 times the square root of p, but at most p, and at least 16; with "patch", 2
    times the square root of p.
procedure : ManifoldProcedure or None
    Details of the directions and of the search for cuts. None: ``ManifoldProcedure()``.
    ``ManifoldProcedure.as_printed()``: as in the papers.
"""
USUAL = "n_estimators projection feature_shape max_features max_depth min_samples_leaf"

PROCEDURE_PARAMETERS = """
contrast : {"sum", "edge", "difference", "mix"}
    What a patch measures. "sum": the sum of its entries, as in the paper. "edge": the sum minus
    that of an equal patch right beside it along a random axis. "difference": the sum minus that of
    an equal patch at most 8 entries away along each axis. "mix": one of the three, drawn for each
    candidate. With few images or signals (tens), "sum" can be better. With `feature_graph`, "edge"
    and "difference" compare patches of as many steps, beside each other or at most 8 steps apart.
min_patch : int or array-like of int
    Smallest length of a patch, or one for each axis, from 1 to the length of the axis. With
    `feature_graph`, it is one more than the number of steps: 1 is a single feature, 2 also has its
    neighbours.
max_patch : "auto", int or array-like of int
    Largest length of a patch, or one for each axis, from `min_patch` to the length of the axis.
    "auto": the square root of the length of the axis, rounded up; for unordered axes, the length.
    With `feature_graph`, "auto" is at least 2, and such that the largest patches have about the
    square root of p features.
placement : {"corner", "inside"}
    How a patch is drawn so that it stays inside the array. "corner": first its corner, then a size
    that fits, as in the paper; patches at the far borders are smaller. "inside": first its size,
    then a corner that fits, as in the first code of the paper's authors.
n_nonzeros : float
    Sparse directions: mean number of combined features, before zeros are drawn again. Greater than
    0; values above the number of features mean all features.
nonzeros : {"poisson", "fixed"}
    Sparse directions: how the number of features is drawn. "poisson": from a Poisson distribution;
    zeros are drawn again. "fixed": it is always `n_nonzeros`, rounded down.
sparse_weights : {"scaled", "sign"}
    Weights of sparse directions. "sign": +1 or -1, as in SPORF. "scaled": +1 or -1, divided by the
    standard deviation of the feature without outliers, so that no feature dominates because of its
    unit.
"""

ATTRIBUTES = """
projection_, feature_shape_, max_features_, max_bins_ : str, tuple, int, int
    Resolved values of these parameters.
min_patch_, max_patch_ : ndarray of shape (n_axes,), int32
    Resolved values of these parameters; only with projection "patch".
feature_importances_ : ndarray of shape (n_features_in_,), float64
    Importances of the features; at least 0, with sum 1. Those of images can be shown as an image
    with ``.reshape(feature_shape_)``.
"""

NOTES = """
{weighted_rows}

X is kept as bytes if its dtype is uint8 or bool, or if it holds only whole numbers from 0 to 255.
That takes a quarter of the memory, is faster, and gives exactly the same forest.
"""

REFERENCES = """
.. [1] R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests:
   Closing the Gap on Neural Networks", 2019.
.. [2] T. M. Tomita, J. Browne, C. Shen, J. Chung, J. L. Patsolic, B. Falk, C. E. Priebe,
   J. Yim, R. Burns, M. Maggioni, J. T. Vogelstein, "Sparse Projection Oblique Randomer
   Forests", JMLR 21, 2020.
"""


@described(PROCEDURE_PARAMETERS)
class ManifoldProcedure(Procedure):
    """How manifold forests draw directions and search for cuts, in detail.

    Pass it as the parameter `procedure` of `ManifoldForestClassifier` or
    `ManifoldForestRegressor`. The defaults suit images and tables; `as_printed` does what the
    papers do: sums over patches [1]_, weights of +1 and -1 in sparse directions [2]_, exact cuts,
    and a majority vote of the trees.

    Parameters
    ----------
    {parameters}

    References
    ----------
    .. [1] R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests:
       Closing the Gap on Neural Networks", 2019.
    .. [2] T. M. Tomita, J. Browne, C. Shen, J. Chung, J. L. Patsolic, B. Falk, C. E. Priebe,
       J. Yim, R. Burns, M. Maggioni, J. T. Vogelstein, "Sparse Projection Oblique Randomer
       Forests", JMLR 21, 2020.

    Examples
    --------
    >>> from skforest import ManifoldProcedure
    >>> ManifoldProcedure.as_printed(max_patch=4)
    ManifoldProcedure(contrast='sum', max_patch=4, sparse_weights='sign',
                      splitter='exact', voting='hard')
    """

    _parameter_constraints: dict = {
        "contrast": [StrOptions({"sum", "edge", "difference", "mix"})],
        "min_patch": ["array-like", Interval(Integral, 1, None, closed="left")],
        "max_patch": [
            StrOptions({"auto"}),
            "array-like",
            Interval(Integral, 1, None, closed="left"),
        ],
        "placement": [StrOptions({"corner", "inside"})],
        "n_nonzeros": [Interval(Real, 0.0, None, closed="neither")],
        "nonzeros": [StrOptions({"poisson", "fixed"})],
        "sparse_weights": [StrOptions({"scaled", "sign"})],
        **SEARCH_CONSTRAINTS,
        "min_impurity_decrease": [Interval(Real, 0.0, None, closed="left")],
        **VOTING_CONSTRAINTS,
    }
    _printed = {
        "contrast": "sum",
        "sparse_weights": "sign",
        "splitter": "exact",
        "voting": "hard",
    }

    def __init__(
        self,
        *,
        contrast="mix",
        min_patch=1,
        max_patch="auto",
        placement="corner",
        n_nonzeros=2.0,
        nonzeros="poisson",
        sparse_weights="scaled",
        splitter="hist",
        max_bins="auto",
        max_search_samples=1024,
        min_impurity_decrease=0.0,
        voting="soft",
    ):
        store_parameters(self, locals())


class _ManifoldForest(BootstrapMixin, GreedyForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        "projection": [StrOptions({"auto", "axis", "sparse", "patch"})],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "feature_graph": ["array-like", "sparse matrix", None],
        "wrap": ["array-like", "boolean"],
        "unordered": ["array-like", "boolean"],
        "procedure": [ManifoldProcedure, None],
    }
    _default_procedure = ManifoldProcedure
    _compares_indicators = True
    _criterion = "squared_error"

    def __init__(
        self,
        n_estimators=100,
        *,
        projection="auto",
        feature_shape=None,
        max_features="auto",
        max_depth=None,
        min_samples_leaf=1,
        wrap=False,
        unordered=False,
        feature_graph=None,
        procedure=None,
        min_samples_split=2,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        bootstrap=True,
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

    # ----------------------------------------------------------------------------------- settings

    def _settings(self, data, request):
        n_features = data.X.shape[1]
        procedure = self._procedure
        if procedure.nonzeros == "fixed" and procedure.n_nonzeros < 1:
            raise ValueError(
                f"n_nonzeros={procedure.n_nonzeros} must be at least 1 with nonzeros='fixed'"
            )
        projection = self.projection
        if projection == "auto":
            projection = "sparse" if self._layout is None else "patch"
        has_scaled_weights = procedure.sparse_weights == "scaled"
        grid, graph = FeatureGrid(self.feature_shape, n_features), None
        if self.feature_graph is not None:
            self._check_no_grid()
            names = getattr(self, "feature_names_in_", None)
            graph = FeatureGraph(self.feature_graph, n_features, names)
        flags = {
            name: grid.per_axis(as_booleans(getattr(self, name), name), name, getattr(self, name))
            for name in ("wrap", "unordered")
        }
        if request.is_warm_start:
            forest, now = request.previous, {"feature_shape": grid.shape} | flags
            check_unchanged({name: getattr(forest, name) for name in now}, now)
            if bool(len(forest.deviation)) != (projection == "sparse" and has_scaled_weights):
                check_unchanged({"projection": self.projection_}, {"projection": projection})
        patches = None, None
        if projection == "patch":
            patches = self._resolve_patch(grid, flags["unordered"], graph)
        auto_features = self._auto_max_features(n_features, projection)
        max_features = self._resolve_max_features(n_features, auto_features)
        return ManifoldSettings(
            **self._growth_settings(max_features=max_features),
            projection=projection,
            feature_shape=grid.shape,
            **flags,
            min_patch=patches[0],
            max_patch=patches[1],
            graph=graph,
            contrast=procedure.contrast,
            is_inside=procedure.placement == "inside",
            n_nonzeros=float(procedure.n_nonzeros),
            has_fixed_nonzeros=procedure.nonzeros == "fixed",
            has_scaled_weights=has_scaled_weights,
        )

    def _method(self, settings):
        return ManifoldMethod(settings, self._task(), self._sampling())

    def _resolved(self, settings):
        for name in ("min_patch_", "max_patch_"):  # of an earlier fit
            vars(self).pop(name, None)
        names = ["projection", "feature_shape", "max_features", "max_bins"]
        names += ["min_patch", "max_patch"] if settings.projection == "patch" else []
        return {f"{name}_": getattr(settings, name) for name in names}

    @property
    def _needs_dense(self):
        # Sums of patches read runs of neighbours.
        if self.projection == "patch":
            return "projection='patch'"
        return self._layout

    @property
    def _adds_features(self):
        has_layout = self._layout is not None
        return self.projection == "patch" or (self.projection == "auto" and has_layout)

    def _check_no_grid(self):
        """Raise ValueError if a parameter describes a grid, in addition to the graph."""
        for name, none in (("feature_shape", None), ("wrap", False), ("unordered", False)):
            value = getattr(self, name)
            if value is not none and np.any(value):
                raise ValueError(f"{name}={value!r} is not possible with feature_graph")

    def _resolve_patch(self, grid, unordered, graph):
        """Smallest and largest patch, as arrays with one entry for each axis."""
        procedure = self._procedure
        low = grid.sizes(procedure.min_patch, "min_patch")
        if isinstance(procedure.max_patch, str) and graph is not None:
            high = (max(graph.usual_steps + 1, *low),)
        elif isinstance(procedure.max_patch, str):
            high = tuple(
                length if is_unordered else max(math.isqrt(length - 1) + 1, least)
                for length, is_unordered, least in zip(grid.shape, unordered, low)
            )
        else:
            high = grid.sizes(procedure.max_patch, "max_patch")
        if any(least > most for least, most in zip(low, high)):
            raise ValueError(
                f"min_patch={procedure.min_patch} must not exceed max_patch={procedure.max_patch}"
            )
        return np.array(low, dtype=np.int32), np.array(high, dtype=np.int32)

    def _auto_max_features(self, n_features, projection):
        """Default number of directions, chosen by errors on tables, and out of bag on images."""
        root = math.sqrt(n_features)
        if projection == "patch":
            return math.ceil(2 * root)
        if projection == "sparse":
            return max(16, min(n_features, math.ceil(4 * root)))
        return n_features if self._criterion == "squared_error" else math.ceil(root)


@described(PARAMETERS, ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class ManifoldForestClassifier(ForestClassifierMixin, _ManifoldForest):
    """Forest classifier over random patches, sparse combinations or single features.

    At every node, `max_features_` random directions are drawn, the rows of the node are projected
    on each of them, and the best cut is taken (Perry et al. [1]_, section 3). `projection` says
    where directions come from: patches of structured features (images, signals, volumes, circles),
    sparse random combinations of features [2]_, or single features, as in a random forest.

    {parameters_and_attributes}

    See Also
    --------
    ManifoldForestRegressor : The same for regression.
    sklearn.ensemble.RandomForestClassifier : Single features, exact splits.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import ManifoldForestClassifier
    {digits}
    >>> forest = ManifoldForestClassifier(feature_shape=(8, 8), random_state=0)
    >>> round(forest.fit(X_train, y_train).score(X_test, y_test), 2)
    0.98
    >>> (100 * forest.feature_importances_.reshape(8, 8)).round()  # in percent
    array([[0., 1., 1., 1., 1., 1., 1., 0.],
           [1., 1., 2., 1., 2., 2., 1., 1.],
           [1., 1., 2., 2., 3., 3., 2., 1.],
           [1., 2., 3., 3., 3., 3., 2., 1.],
           [0., 2., 3., 3., 3., 2., 2., 0.],
           [1., 2., 3., 3., 3., 2., 2., 1.],
           [0., 1., 2., 2., 2., 2., 2., 1.],
           [0., 1., 1., 1., 2., 2., 1., 1.]])
    """

    _parameter_constraints: dict = {
        "criterion": [StrOptions({"gini", "entropy"})],
    }

    @property
    def _label_criterion(self):
        return self.criterion

    @property
    def _criterion(self):
        return self.criterion

    def __init__(
        self,
        n_estimators=100,
        *,
        projection="auto",
        feature_shape=None,
        max_features="auto",
        max_depth=None,
        min_samples_leaf=1,
        criterion="gini",
        wrap=False,
        unordered=False,
        feature_graph=None,
        procedure=None,
        min_samples_split=2,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        bootstrap=True,
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


@described(PARAMETERS, ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class ManifoldForestRegressor(ForestRegressorMixin, _ManifoldForest):
    """Forest regressor over random patches, sparse combinations or single features.

    It works like `ManifoldForestClassifier`, with the squared error as the impurity and means as
    leaf values.

    {parameters_and_attributes}

    See Also
    --------
    ManifoldForestClassifier : The same for classification.
    sklearn.ensemble.RandomForestRegressor : Single features, exact splits.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import ManifoldForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = ManifoldForestRegressor(random_state=0, oob_score=True).fit(X, y)
    >>> round(forest.oob_score_, 2)
    0.48
    >>> forest.predict(X[:2]).round()
    array([180.,  80.])
    """
