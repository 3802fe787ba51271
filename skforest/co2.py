"""CO2 forests.

Norouzi, Collins, Fleet, Kohli, "CO2 Forest: Improved Random Forest by Continuous Optimization of
Oblique Splits", 2015. A node starts at the best cut of a few single features and turns it into a
hyperplane, by gradient descent on an upper bound of the loss of the two leaves.
"""

import math

from ._base import Integral, Interval, Real, StrOptions
from ._greedy import ObliqueForest
from ._kernels.coordinate import CoordinateSplitter
from ._kernels.projection import GaussianSampler
from ._kernels.search import SearchSplitter
from ._selection import choose
from ._targets import ForestClassifierMixin, ForestRegressorMixin
from .training.alternating import refine_grown

# What "auto" chooses from: hyperplanes that grow unguarded, hyperplanes that must prove themselves
# in every node, and single features. max_features is a power of the number of features.
SETTINGS = (
    {"objective": "co2", "bootstrap": False, "max_features": 0.5, "holdout": 0.0},
    {"objective": "co2", "bootstrap": False, "max_features": 0.8, "holdout": 0.3},
    {"objective": None, "bootstrap": True, "max_features": 0.5, "holdout": 0.0},
)
NOT_TRAINED = ("oc1", "random", None)  # objectives without gradient, which hold no rows out


class _CO2Forest(ObliqueForest):
    """Parameters and training shared by classifier and regressor."""

    _parameter_constraints: dict = {
        **ObliqueForest._parameter_constraints,
        "objective": [StrOptions({"auto", "co2", "soft", "mixed", "oc1", "random"}), None],
        "bootstrap": [StrOptions({"auto"}), "boolean"],
        "nu": [Interval(Real, 0.0, None, closed="neither")],
        "learning_rate": [Interval(Real, 0.0, None, closed="neither")],
        "momentum": [Interval(Real, 0.0, 1.0, closed="left")],
        "n_epochs": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "batch_size": [Interval(Integral, 1, 2**20, closed="both")],
        "holdout": [StrOptions({"auto"}), Interval(Real, 0.0, 0.9, closed="both")],
        "smoothing": [Interval(Real, 0.0, None, closed="neither")],
        "row_norm": [Interval(Real, 0.0, None, closed="neither"), None],
        "signs": [StrOptions({"current", "old"})],
        "leaves": [StrOptions({"counts", "gradient"})],
        "keep": [StrOptions({"best", "last"})],
        "n_restarts": [Interval(Integral, 0, 2**31 - 1, closed="left")],
        "n_jumps": [Interval(Integral, 0, 2**31 - 1, closed="left")],
        "refine": [StrOptions({"nongreedy", "alternating"}), None],
        "n_sweeps": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_estimators=100,
        *,
        objective="auto",
        nu=100.0,
        learning_rate=0.03,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        holdout="auto",
        smoothing=0.1,
        row_norm=8.0,
        signs="current",
        leaves="counts",
        keep="best",
        n_restarts=4,
        n_jumps=5,
        refine=None,
        n_sweeps=2,
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap="auto",
        max_samples=None,
        oob_score=False,
        weight_dtype="float32",
        importance_type="impurity",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        self.n_estimators = n_estimators
        self.objective = objective
        self.nu = nu
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.holdout = holdout
        self.smoothing = smoothing
        self.row_norm = row_norm
        self.signs = signs
        self.leaves = leaves
        self.keep = keep
        self.n_restarts = n_restarts
        self.n_jumps = n_jumps
        self.refine = refine
        self.n_sweeps = n_sweeps
        self.max_features = max_features
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.min_weight_fraction_leaf = min_weight_fraction_leaf
        self.max_leaf_nodes = max_leaf_nodes
        self.min_impurity_decrease = min_impurity_decrease
        self.bootstrap = bootstrap
        self.max_samples = max_samples
        self.oob_score = oob_score
        self.weight_dtype = weight_dtype
        self.importance_type = importance_type
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.warm_start = warm_start

    def _resolve(self, rows, target, goes_on):
        before = {f"{name}_": getattr(self, f"{name}_") for name in SETTINGS[0]} if goes_on else {}
        super()._resolve(rows, target, goes_on)
        settings = self._settings(rows.X.shape[1])
        if goes_on:
            # What was chosen stays; what has been given since counts.
            chosen = settings[0]
            chosen.update(
                {name: old for name, old in before.items() if getattr(self, name[:-1]) == "auto"}
            )
        else:
            chosen = choose(self, rows, target, settings)
        self.__dict__.update(chosen)

    def _settings(self, n_features):
        """What "auto" chooses from, as fitted attributes; what is given stays as it is."""
        given = {name: getattr(self, name) for name in SETTINGS[0]}
        if self.oob_score or self.max_samples is not None:
            given["bootstrap"] = True
        settings = []
        for choice in SETTINGS:
            setting = {
                f"{name}_": value if given[name] == "auto" else given[name]
                for name, value in choice.items()
            }
            if self.max_features == "auto":
                setting["max_features_"] = math.ceil(n_features ** choice["max_features"])
            else:
                setting["max_features_"] = self.max_features_
            if self.objective in NOT_TRAINED:
                setting["holdout_"] = 0.0
            if setting not in settings:
                settings.append(setting)
        return settings

    def _bootstraps(self):
        return self.bootstrap_

    def _splitter(self, rows, target, weight, chosen, min_leaf, seed, stop):
        common = (rows, target, weight, chosen, min_leaf, seed, stop)
        if self.objective_ in ("random", None):
            sampler = GaussianSampler(rows.X.shape[1]) if self.objective_ else None
            return SearchSplitter(*self._search_arguments(*common, sampler, exact=True))
        if self.objective_ == "oc1":
            searched = self._search_arguments(*common)
            searched[1].__dict__.update(n_restarts=self.n_restarts, n_jumps=self.n_jumps)
            return CoordinateSplitter(*searched)
        names = "nu learning_rate momentum n_epochs batch_size smoothing row_norm"
        return self._stump_splitter(
            *common,
            objective=self.objective_,
            holdout=self.holdout_,
            signs=self.signs,
            leaves=self.leaves,
            keep=self.keep,
            **{name: getattr(self, name) for name in names.split()},
        )

    def _fit_tree(self, rows, target, weight, seed, stop):
        forest = super()._fit_tree(rows, target, weight, seed, stop)
        return refine_grown(self, forest, rows, target, weight, seed, stop)


class CO2ForestClassifier(ForestClassifierMixin, _CO2Forest):
    """Classify with a forest of hyperplanes, each optimised by a convex-concave bound.

    A node takes the best cut of a few single features and turns it into a hyperplane over all of
    them, by stochastic gradient descent on a bound of the log loss of its two leaves (section 4 of
    the paper [1]_, equations 6 to 12). Trees are grown until their leaves are pure and averaged.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, at least 1.
    objective : {"auto", "co2", "soft", "mixed", "oc1", "random"} or None, default="auto"
        What the hyperplane of a node minimises. "auto": "co2", or None where that does better, see
        Notes. "co2": the convex-concave bound of the paper on
        the loss of the leaf that each row reaches. "soft": the expected loss when a row goes right
        with probability sigmoid(2 m), m being its margin; better single trees, and less diverse
        ones. "mixed": one of the two, by a coin for each node.

        The others are what the paper compares with; parameters from `nu` to `leaves` are without
        effect. "oc1": no gradient, but one weight at a time, moved to the best of all values at
        which a row changes sides (OC1 [2]_). "random": the best cut of `max_features` hyperplanes
        with standard normal weights. None: the best cut of a single feature stays, as in a random
        forest. The last two cut exactly, among all rows.
    nu : float, default=100.0
        Bound on the squared norm of the weights and the bias of a split, more than 0. Larger ones
        bring the bound closer to the loss. Features count in the units of `row_norm`.
    learning_rate : float, default=0.03
        Length of a gradient step, more than 0. Halved where the objective has not decreased for
        three epochs; training ends at a fiftieth, or when no row has a gradient any more. If
        the split is then no better than the first cut, weights of half the length begin again.
    momentum : float, default=0.9
        Share of the last step that is added to the next, in [0, 1).
    n_epochs : "auto" or int, default="auto"
        How often, at most, a node's rows are shown. "auto": 20000 / n times for n rows, but at
        least 3 and at most 30 times.
    batch_size : int, default=100
        Rows of a gradient step, at least 1.
    holdout : "auto" or float, default="auto"
        Share of the rows of a node, 0 to 0.9, that does not train and decides whether the
        hyperplane is better than the single feature that it began with. Only nodes of 40 rows or
        more hold rows out. Guards against features that are noise. 0: keep the hyperplane.
        "auto": 0 or 0.3, see Notes.
    smoothing : float, default=0.1
        Rows, of mean weight, that are added to each class of a leaf when its log loss is taken in
        training. More than 0. 0.1 suits forests, 1 single trees. Stored leaves are not smoothed.
    row_norm : float or None, default=8.0
        Root mean square norm that the rows of a node are scaled to, by one number for all
        features, after they have been centred on their mean. More than 0. None: rows are neither
        centred nor scaled, as in the paper.
    signs : {"current", "old"}, default="current"
        Which branch a row counts as having taken in the bound: by the weights as they are, or by
        those at the end of the last epoch, as in the convex-concave procedure of the paper.
    leaves : {"counts", "gradient"}, default="counts"
        How the two leaves train. "counts": set to their best after every epoch. "gradient": moved
        with the weights, by the same steps, as in algorithm 1 of the paper.
    keep : {"best", "last"}, default="best"
        Which hyperplane of those on the way a node gets: that of largest decrease of impurity, the
        first cut included, or the last one, as in the paper. One with all rows on one side is
        passed over.
    n_restarts : int, default=4
        Random planes from which OC1 starts again, after the best cut of a feature; 20 in the
        original, which makes smaller trees, takes longer and hardly changes the errors of a
        forest. Only for objective="oc1".
    n_jumps : int, default=5
        Random directions that OC1 tries where no weight improves the split. Only for
        objective="oc1".
    refine : {"nongreedy", "alternating"} or None, default=None
        How every tree is trained on once it has been grown, on its own rows. "nongreedy": all
        splits and leaves together, as by `NonGreedyTreeClassifier` with its defaults.
        "alternating": split by split, as by `skforest.refine`. For single trees and small forests.
    n_sweeps : int, default=2
        How often alternating refinement visits every node, at least 1.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Features among which the first cut of a node is sought, q in the paper. An int is a count,
        a float a multiple of the number of features, None all. "sqrt": the square root of the
        number of features. "auto": that, rounded up, or the power 0.8 of the number of features,
        see Notes. With objective="random", the number of hyperplanes tried.
    max_depth : int or None, default=None
        Largest depth of a leaf. None: no limit.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are leaves; a float is a fraction of the rows of the tree. Equal rows
        count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf; a float is a fraction of the rows of the tree.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf, as a fraction of the weight of the rows of the tree, 0 to 0.5.
    max_leaf_nodes : int or None, default=None
        Grow at most this many leaves, the node of largest gain first. At least 2. None: no limit.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much: entropy, in bits.
    bootstrap : "auto" or bool, default="auto"
        True: each tree learns from a bootstrap sample, rows drawn with replacement, with
        probability proportional to their weight. False: every tree sees all rows, and trees differ
        by the features of their first cuts and by where batches begin. "auto": True with
        `oob_score` or `max_samples`, else see Notes.
    max_samples : int, float or None, default=None
        Rows to draw for each tree: a count, or a fraction of the distinct rows. None: as many as
        there are distinct rows. Not with bootstrap=False.
    oob_score : bool, default=False
        Score the forest on the rows that each tree did not draw. Not with bootstrap=False.
    class_weight : {"balanced", "balanced_subsample"}, dict or None, default=None
        Weights of the classes, which multiply the weights of their rows: a dict from label to
        weight; "balanced": all classes weigh the same over the training set; "balanced_subsample":
        in every tree's bootstrap.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the stored weights of hyperplanes. "float16" halves the size of the model, and what few
        weights make is stored sparse; rows are sent on by the weights as they are stored, leaves
        are counted from the rows that arrive. Predictions take longer.
    importance_type : {"impurity", "count"}, default="impurity"
        Kind of `feature_importances_`: decrease of impurity times the absolute weight of the
        feature and its standard deviation, or how often a feature has a weight in a split.
    n_jobs : int or None, default=None
        Threads that grow trees, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the first cuts, of the rows held out, of batches and of bootstraps.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a tree.
    warm_start : bool, default=False
        Keep the trees of the last fit and add those missing to `n_estimators`.

    Attributes
    ----------
    forest_ : Forest
        The trees.
    classes_ : ndarray of shape (n_classes_,)
        Labels, sorted.
    n_classes_ : int
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    objective_, bootstrap_, max_features_, holdout_ : str or None, bool, int, float
        What `objective`, `bootstrap`, `max_features` and `holdout` came to.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1.
    refine_curve_ : list of ndarray of shape (n_sweeps + 1,), float64
        One entry a tree: its loss on its training rows before and after each sweep; only with
        refine="alternating".
    loss_curve_, n_active_leaves_ : list
        As those of `NonGreedyForestClassifier`; only with refine="nongreedy".
    oob_score_ : float
        Accuracy on the rows left out; only with `oob_score`.
    oob_decision_function_ : ndarray of shape (n_samples, n_classes_), float64
        Probabilities by the trees that did not draw the row; NaN where every tree drew it, or its
        weight is 0. Only with `oob_score`.

    See Also
    --------
    CO2ForestRegressor : The same for real targets.
    ManifoldForestClassifier : Sparse mixtures and patches, which are searched and not optimised.

    Notes
    -----
    Where `objective`, `bootstrap`, `max_features` or `holdout` are "auto", forests of 10 trees
    are trained on two thirds of the rows, at most 2000, with each of three settings: "co2",
    False, the square root of the number of features, 0; "co2", False, its power 0.8, 0.3; None,
    True, its square root, 0. What is given replaces what these say. The forest of least squared
    error on as many other rows decides (Brier score of classes). With fewer than 30 rows it is
    the first. Where all four are given nothing is chosen, and that time is saved.

    Features are scaled to [0, 1] over the training set, in float64; the forest repeats that when
    it predicts. Multiplying a feature by a power of two, or an exact shift, changes no tree.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    References
    ----------
    .. [1] M. Norouzi, M. D. Collins, D. J. Fleet, P. Kohli, "CO2 Forest: Improved Random Forest by
       Continuous Optimization of Oblique Splits", 2015.
    .. [2] S. K. Murthy, S. Kasif, S. Salzberg, "A System for Induction of Oblique Decision Trees",
       Journal of Artificial Intelligence Research 2, 1994.

    Examples
    --------
    >>> from skforest import CO2ForestClassifier
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_digits(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> forest = CO2ForestClassifier(30, random_state=0).fit(X_train, y_train)
    >>> bool(forest.score(X_test, y_test) > 0.97)
    True
    """

    _parameter_constraints: dict = {
        **_CO2Forest._parameter_constraints,
        **ForestClassifierMixin._parameter_constraints,
    }
    _criterion = "entropy"

    def __init__(
        self,
        n_estimators=100,
        *,
        objective="auto",
        nu=100.0,
        learning_rate=0.03,
        momentum=0.9,
        n_epochs="auto",
        batch_size=100,
        holdout="auto",
        smoothing=0.1,
        row_norm=8.0,
        signs="current",
        leaves="counts",
        keep="best",
        n_restarts=4,
        n_jumps=5,
        refine=None,
        n_sweeps=2,
        max_features="auto",
        max_depth=None,
        min_samples_split=2,
        min_samples_leaf=1,
        min_weight_fraction_leaf=0.0,
        max_leaf_nodes=None,
        min_impurity_decrease=0.0,
        bootstrap="auto",
        max_samples=None,
        oob_score=False,
        class_weight=None,
        weight_dtype="float32",
        importance_type="impurity",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
    ):
        super().__init__(
            n_estimators,
            objective=objective,
            nu=nu,
            learning_rate=learning_rate,
            momentum=momentum,
            n_epochs=n_epochs,
            batch_size=batch_size,
            holdout=holdout,
            smoothing=smoothing,
            row_norm=row_norm,
            signs=signs,
            leaves=leaves,
            keep=keep,
            n_restarts=n_restarts,
            n_jumps=n_jumps,
            refine=refine,
            n_sweeps=n_sweeps,
            max_features=max_features,
            max_depth=max_depth,
            min_samples_split=min_samples_split,
            min_samples_leaf=min_samples_leaf,
            min_weight_fraction_leaf=min_weight_fraction_leaf,
            max_leaf_nodes=max_leaf_nodes,
            min_impurity_decrease=min_impurity_decrease,
            bootstrap=bootstrap,
            max_samples=max_samples,
            oob_score=oob_score,
            weight_dtype=weight_dtype,
            importance_type=importance_type,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            warm_start=warm_start,
        )
        self.class_weight = class_weight


class CO2ForestRegressor(ForestRegressorMixin, _CO2Forest):
    """Predict real targets with a forest of hyperplanes, optimised by a convex-concave bound.

    As `CO2ForestClassifier`, with the squared error of the leaves (equations 4 and 11 of the paper
    [1]_), in units of the variance of each node.

    Parameters
    ----------
    n_estimators : int, default=100
        Number of trees, at least 1.
    objective : {"auto", "co2", "soft", "mixed", "oc1", "random"} or None, default="auto"
        What the hyperplane of a node minimises. "auto": "co2", or None where that does better, see
        Notes. "co2": the convex-concave bound of the paper on
        the loss of the leaf that each row reaches. "soft": the expected loss when a row goes right
        with probability sigmoid(2 m), m being its margin; better single trees, and less diverse
        ones. "mixed": one of the two, by a coin for each node.

        The others are what the paper compares with; parameters from `nu` to `leaves` are without
        effect. "oc1": no gradient, but one weight at a time, moved to the best of all values at
        which a row changes sides (OC1 [2]_). "random": the best cut of `max_features` hyperplanes
        with standard normal weights. None: the best cut of a single feature stays, as in a random
        forest. The last two cut exactly, among all rows.
    nu : float, default=100.0
        Bound on the squared norm of the weights and the bias of a split, more than 0. Larger ones
        bring the bound closer to the loss. Features count in the units of `row_norm`.
    learning_rate : float, default=0.03
        Length of a gradient step, more than 0. Halved where the objective has not decreased for
        three epochs; training ends at a fiftieth, or when no row has a gradient any more. If
        the split is then no better than the first cut, weights of half the length begin again.
    momentum : float, default=0.9
        Share of the last step that is added to the next, in [0, 1).
    n_epochs : "auto" or int, default="auto"
        How often, at most, a node's rows are shown. "auto": 20000 / n times for n rows, but at
        least 3 and at most 30 times.
    batch_size : int, default=100
        Rows of a gradient step, at least 1.
    holdout : "auto" or float, default="auto"
        Share of the rows of a node, 0 to 0.9, that does not train and decides whether the
        hyperplane is better than the single feature that it began with. Only nodes of 40 rows or
        more hold rows out. Guards against features that are noise. 0: keep the hyperplane.
        "auto": 0 or 0.3, see Notes.
    smoothing : float, default=0.1
        For classifiers; without effect here.
    row_norm : float or None, default=8.0
        Root mean square norm that the rows of a node are scaled to, by one number for all
        features, after they have been centred on their mean. More than 0. None: rows are neither
        centred nor scaled, as in the paper.
    signs : {"current", "old"}, default="current"
        Which branch a row counts as having taken in the bound: by the weights as they are, or by
        those at the end of the last epoch, as in the convex-concave procedure of the paper.
    leaves : {"counts", "gradient"}, default="counts"
        How the two leaves train. "counts": set to their best after every epoch. "gradient": moved
        with the weights, by the same steps, as in algorithm 1 of the paper.
    keep : {"best", "last"}, default="best"
        Which hyperplane of those on the way a node gets: that of largest decrease of impurity, the
        first cut included, or the last one, as in the paper. One with all rows on one side is
        passed over.
    n_restarts : int, default=4
        Random planes from which OC1 starts again, after the best cut of a feature; 20 in the
        original, which makes smaller trees, takes longer and hardly changes the errors of a
        forest. Only for objective="oc1".
    n_jumps : int, default=5
        Random directions that OC1 tries where no weight improves the split. Only for
        objective="oc1".
    refine : {"nongreedy", "alternating"} or None, default=None
        How every tree is trained on once it has been grown, on its own rows. "nongreedy": all
        splits and leaves together, as by `NonGreedyTreeRegressor` with its defaults.
        "alternating": split by split, as by `skforest.refine`. For single trees and small forests.
    n_sweeps : int, default=2
        How often alternating refinement visits every node, at least 1.
    max_features : {"auto", "sqrt", "log2"}, int, float or None, default="auto"
        Features among which the first cut of a node is sought, q in the paper. An int is a count,
        a float a multiple of the number of features, None all. "sqrt": the square root of the
        number of features. "auto": that, rounded up, or the power 0.8 of the number of features,
        see Notes. With objective="random", the number of hyperplanes tried.
    max_depth : int or None, default=None
        Largest depth of a leaf. None: no limit.
    min_samples_split : int or float, default=2
        Nodes of fewer rows are leaves; a float is a fraction of the rows of the tree. Equal rows
        count as one.
    min_samples_leaf : int or float, default=1
        Smallest number of rows of a leaf; a float is a fraction of the rows of the tree.
    min_weight_fraction_leaf : float, default=0.0
        Smallest weight of a leaf, as a fraction of the weight of the rows of the tree, 0 to 0.5.
    max_leaf_nodes : int or None, default=None
        Grow at most this many leaves, the node of largest gain first. At least 2. None: no limit.
    min_impurity_decrease : float, default=0.0
        A node is split only if that decreases the impurity, weighted by the node's share of the
        training weight, by at least this much: variance, a mean over outputs.
    bootstrap : "auto" or bool, default="auto"
        True: each tree learns from a bootstrap sample, rows drawn with replacement, with
        probability proportional to their weight. False: every tree sees all rows, and trees differ
        by the features of their first cuts and by where batches begin. "auto": True with
        `oob_score` or `max_samples`, else see Notes.
    max_samples : int, float or None, default=None
        Rows to draw for each tree: a count, or a fraction of the distinct rows. None: as many as
        there are distinct rows. Not with bootstrap=False.
    oob_score : bool, default=False
        Score the forest on the rows that each tree did not draw. Not with bootstrap=False.
    weight_dtype : {"float32", "float16"}, default="float32"
        Of the stored weights of hyperplanes. "float16" halves the size of the model, and what few
        weights make is stored sparse; rows are sent on by the weights as they are stored, leaves
        are counted from the rows that arrive. Predictions take longer.
    importance_type : {"impurity", "count"}, default="impurity"
        Kind of `feature_importances_`: decrease of impurity times the absolute weight of the
        feature and its standard deviation, or how often a feature has a weight in a split.
    n_jobs : int or None, default=None
        Threads that grow trees, or predict blocks of rows. None: 1, unless in a
        `joblib.parallel_config` context. -1: all processors. The forest does not depend on it.
    random_state : int, RandomState or None, default=None
        Seed of the first cuts, of the rows held out, of batches and of bootstraps.
    verbose : int, default=0
        1 shows progress: a bar if tqdm is installed, else about ten lines. More than 1, without
        tqdm: a line a tree.
    warm_start : bool, default=False
        Keep the trees of the last fit and add those missing to `n_estimators`.

    Attributes
    ----------
    forest_ : Forest
        The trees.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,), object
        If X had column names.
    n_outputs_ : int
    objective_, bootstrap_, max_features_, holdout_ : str or None, bool, int, float
        What `objective`, `bootstrap`, `max_features` and `holdout` came to.
    feature_importances_ : ndarray of shape (n_features_in_,), float64
        Not negative, sum 1.
    refine_curve_ : list of ndarray of shape (n_sweeps + 1,), float64
        One entry a tree: its loss on its training rows before and after each sweep; only with
        refine="alternating".
    loss_curve_, n_active_leaves_ : list
        As those of `NonGreedyForestRegressor`; only with refine="nongreedy".
    oob_score_ : float
        R2 on the rows left out, averaged over outputs; only with `oob_score`.
    oob_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs_), float64
        Predictions by the trees that did not draw the row; NaN where every tree drew it, or its
        weight is 0. Only with `oob_score`.

    See Also
    --------
    CO2ForestClassifier : The same for labels.
    ManifoldForestRegressor : Sparse mixtures and patches, which are searched and not optimised.

    Notes
    -----
    Where `objective`, `bootstrap`, `max_features` or `holdout` are "auto", forests of 10 trees
    are trained on two thirds of the rows, at most 2000, with each of three settings: "co2",
    False, the square root of the number of features, 0; "co2", False, its power 0.8, 0.3; None,
    True, its square root, 0. What is given replaces what these say. The forest of least squared
    error on as many other rows decides (Brier score of classes). With fewer than 30 rows it is
    the first. Where all four are given nothing is chosen, and that time is saved.

    Features are scaled to [0, 1] over the training set, in float64; the forest repeats that when
    it predicts. Multiplying a feature by a power of two, or an exact shift, changes no tree.

    The training set counts as a weighted set of rows: equal rows (with equal y) are one row with
    their weights added, so neither copies nor the order of rows matter beyond their weight.

    References
    ----------
    .. [1] M. Norouzi, M. D. Collins, D. J. Fleet, P. Kohli, "CO2 Forest: Improved Random Forest by
       Continuous Optimization of Oblique Splits", 2015.
    .. [2] S. K. Murthy, S. Kasif, S. Salzberg, "A System for Induction of Oblique Decision Trees",
       Journal of Artificial Intelligence Research 2, 1994.

    Examples
    --------
    >>> from skforest import CO2ForestRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> forest = CO2ForestRegressor(bootstrap=True, oob_score=True, random_state=0).fit(X, y)
    >>> bool(forest.oob_score_ > 0.4)
    True
    """
