"""Oblique boosting: gradient boosting whose splits use one feature or a combination of a few.

In every round, a tree is fitted to the gradients of the loss at the current predictions (Friedman
2001), with second derivatives (Chen and Guestrin 2016) and histograms of binned columns (Ke et al.
2017). Its splits compare single features, or sparse oblique directions of a few features, which
are drawn anew for every tree.
"""

import numpy as np
from sklearn.metrics import d2_pinball_score
from sklearn.utils.metaestimators import available_if

from .._docs import CLASS_WEIGHT, described, with_texts
from ..training.losses import loss_names, loss_types, make_label_loss, make_loss, takes
from .base import Interval, Real, StrOptions
from .boosting_base import ObliqueBoosting
from .targets import ForestClassifierMixin, ForestRegressorMixin
from .validation import store_parameters

REGRESSOR_LOSSES = loss_names("for_boosting")
CLASSIFIER_LOSSES = loss_names("for_boosting", of_labels=True)

PARAMETERS = """
n_estimators : int
    Maximum number of rounds, at least 1. A round adds a tree to every bag; a linear start counts
    as the first one. With `early_stopping`, held-out rows determine the number of rounds of each
    bag. With fewer than 100000 rows, a single bag is then trained again on all rows, with
    proportionally more rounds.
learning_rate : "auto" or float
    Shrinkage: factor by which the leaf values of each tree are multiplied, greater than 0. "auto":
    0.1.
max_depth : "auto", int or None
    Maximum depth of a tree, up to 30; the root has depth 0. None: 30. "auto": None if
    `max_leaf_nodes` is set. Otherwise 4; with early stopping and at least 8000 rows, whichever of
    4, 6 and 8 gives small trial models the lowest held-out loss.
max_leaf_nodes : int or None
    Maximum number of leaves of a tree, at least 2. Trees then grow best first: the leaf whose
    split has the largest gain is split next, within `max_depth`. None: no limit, and trees grow
    level by level.
min_samples_leaf : "auto" or int
    Minimum number of distinct rows in a leaf, at least 1. "auto": a fiftieth of the rows, but at
    most 15.
l2_regularization : float
    L2 penalty on leaf values, at least 0: lambda in G / (H + lambda), where G and H are the sums
    of the first and second derivatives of the loss in a leaf. Row weights are in units of their
    median.
n_directions : "auto" or int
    Number of oblique directions that are drawn for each tree; its splits are the best ones among
    these and the single features. A direction combines 2 to 4 features, which are drawn uniformly
    half of the time and otherwise in proportion to their gains so far. 0: single features only.
    "auto": 64; 32 with at least 10000 rows, fewer with more than 40000, and 16 from 80000 on.
feature_shape : int, tuple of int or None
    Shape of the array that the features of a row fill, in C order: ``(100,)`` for a signal, ``(28,
    28)`` for an image; at most 8 axes, whose lengths multiply to the number of features. X may
    also have the shape ``(n_samples, *feature_shape)``. Directions are then sums over boxes of
    neighbouring features, or differences of two such sums [6]_, and all features are scaled alike.
    Not allowed with `monotonic_cst` or `interaction_cst`. None: the features have no order.
subsample : float
    Fraction of the rows that each tree is grown on, in (0, 1], drawn without replacement.
monotonic_cst : array-like of int of shape (n_features,), dict or None
    Constraint of each column of X, or of the columns named in the dict; only for one output or two
    classes. 1: the prediction, or the probability of the second class, does not decrease with the
    column. -1: it does not increase. 0: no constraint. A Series of pandas is read by its labels,
    if they are names. In splits on several columns, the weight of a constrained column has the
    sign of its constraint.
interaction_cst : {"pairwise", "no_interactions"}, list of sets of int or str, or None
    Groups of columns of X, by number or name, that may interact: all splits above a leaf use
    columns of one group. "pairwise": all pairs of columns. "no_interactions": each column is a
    group of its own. Columns that are in no set form one more group. None: all columns may
    interact.
linear_leaves : "auto" or bool
    Whether leaves hold linear functions of the directions of the splits above them [4]_ instead of
    constants. "auto": for the squared error, whichever has the lower held-out loss in small trial
    models; constants for all other losses, without early stopping, and with sparse X,
    `monotonic_cst` or fewer than 100 rows. Not for the losses "absolute_error", "huber" and
    "quantile".
linear_start : "auto", float or None
    Whether training starts from a linear function of all features [5]_. It is stored as the first
    tree of each bag, which has a single leaf; the learning rate and `subsample` do not apply to
    it. A number greater than 0 is its L2 penalty, for features of standard deviation 1. None:
    training starts from a constant. "auto": where `linear_leaves` are compared, and with at most
    500 features, the best of 100, 1 and None on held-out rows; otherwise None. A number is not
    possible where linear leaves are not.
n_bags : "auto" or int
    Number of models that are trained independently and averaged. With early stopping, each of
    several bags holds out a different part of the rows. "auto": 5, or 1 with at least 20000 rows.
early_stopping : "auto", bool, str or callable
    Whether the number of rounds is determined on held-out rows, or on `X_val` of `fit`, and by
    what. True: by their loss. The name of a scorer of scikit-learn, such as "roc_auc", or a
    callable ``scorer(estimator, X, y)``: by this score, see :ref:`boosting_scores`. Each of
    several bags holds out the fraction 1 / `n_bags` of the distinct rows, and a single bag holds
    out a fifth of them, at most 10000. A single bag that has held out more than a tenth of the
    rows is then trained again on all rows; its best number of rounds grows in proportion to the
    number of training rows. Several bags keep their splits, and fit the values of their leaves
    again on all rows, except with the loss "quantile". "auto": True with at least 20 distinct
    rows, or with `X_val`.
n_iter_no_change : int
    Training ends after this many rounds without a lower loss, or a higher score, on the held-out
    rows, at least 1.
    With several bags, each keeps 1.5 times its best number of rounds, because an average overfits
    later; it therefore waits at least half of its best number of rounds before it stops.
verbose : int
    1 shows progress: a bar if tqdm is installed, otherwise about ten lines. It counts the rounds
    of all bags. More than 1, without tqdm: one line for each step.
warm_start : bool
    Whether to keep the bags of the previous fit, on the same rows. A larger `n_bags` adds bags,
    and a larger `n_estimators` adds rounds to all bags, see :ref:`boosting_warm_start`.
"""

CLASSIFIER_PARAMETERS = (
    PARAMETERS
    + """
loss : {"log_loss"} or Loss
    Loss to minimise. "log_loss": the negative log-likelihood of the labels. You can also pass an
    instance of `Loss`, a loss of your own, for a single output; its targets are one-hot labels.
"""
).rstrip() + CLASS_WEIGHT

REGRESSOR_PARAMETERS = (
    PARAMETERS
    + """
loss : str, HuberLoss, TweedieLoss or Loss
    Loss to minimise. Targets are in units of the standard deviation of each output; for
    "absolute_error", "huber" and "quantile", it is estimated in a way that outliers hardly change.
    "squared_error": for means. "absolute_error": for medians. "huber": between the two; the limit
    for early stopping does not change. "quantile": for the quantiles in `quantile`; with early
    stopping, predictions are then shifted by the quantile of the residuals of held-out rows,
    unless that increases their loss. "poisson": for counts, at least 0. "gamma": for positive
    targets. "tweedie": for targets of at least 0, some of them exactly 0. With the last three,
    trees add up to the logarithm of the mean, and predictions are then multiplied by a factor that
    makes their mean equal to the mean of the targets. `HuberLoss` and `TweedieLoss` are "huber"
    and "tweedie" with a parameter, such as ``HuberLoss(delta=2.0)``. You can also pass an instance
    of `Loss`, a loss of your own.
quantile : float or array-like of float of shape (n_quantiles,)
    Quantiles to predict, in (0, 1). With several, `predict` returns one column for each, in the
    given order, and y must have one output. Predictions are sorted, so that quantiles do not cross
    [7]_. Only for loss="quantile".
"""
)

USUAL = "n_estimators loss quantile learning_rate max_depth max_leaf_nodes min_samples_leaf"

ATTRIBUTES = """
learning_rate_, min_samples_leaf_, n_directions_, n_bags_ : float, int, int, int
    Resolved values of these parameters.
max_depth_ : int or None
    Resolved value of this parameter.
linear_leaves_ : bool
    Resolved value of this parameter.
early_stopping_ : bool, str or callable
    Resolved value of this parameter.
linear_start_ : float or None
    Resolved value of this parameter.
loss_curve_ : list of ndarray of shape (n_rounds + 1,), float64
    One entry per bag: mean loss of its training rows before the first round and after each round.
    If a single bag is trained again, the curve is from the second training. In regression, targets
    are in the units of `loss`, or of their mean for "poisson", "gamma" and "tweedie"; the squared
    error is halved. A `skforest.Loss` is in the units of y.
validation_scores_ : list of ndarray of shape (n_rounds + 1,), float64
    One entry per bag: minus the mean loss of its held-out rows, or their score by
    `early_stopping`, before the first round and after each round, including those after the best
    one. Empty without early stopping.
n_iter_ : list of int
    Number of rounds of each bag.
feature_importances_ : ndarray of shape (n_features_in_,), float64
    Importances of the features, at least 0, with sum 1: the decrease of the loss in all splits,
    times the absolute weight of the feature and, in mixtures, its standard deviation.
    The decrease by the linear start is divided among the features in proportion to the variances
    of its terms. For "absolute_error" and "quantile", splits separate signs of residuals, and the
    decrease stays large in late trees that fit noise: prefer permutation importances.
oob_score_ : float
    `score` of the predictions of held-out training rows, before leaves were fitted again on them,
    without class weights; only if every row was held out by one of several bags.
"""

CLASSIFIER_ATTRIBUTES = (
    ATTRIBUTES
    + """
oob_decision_function_ : ndarray of shape (n_samples, n_classes_), float64, or list of such arrays
    Class probabilities of the training samples, by the bag that held them out; NaN for samples of
    weight 0. Like `oob_score_`, only with several bags.
""".lstrip()
)

REGRESSOR_ATTRIBUTES = (
    ATTRIBUTES
    + """
oob_prediction_ : ndarray of shape (n_samples,) or (n_samples, n_outputs_), float64
    Predictions of the training samples, by the bag that held them out; NaN for samples of weight
    0. Like `oob_score_`, only with several bags.
""".lstrip()
)

NOTES = """
With several classes or outputs, each tree predicts all of them. If there are more than five,
splits are searched with random projections of the gradients [3]_.

{outliers}

{weighted_rows}
"""

REFERENCES = """
.. [1] J. H. Friedman, "Greedy Function Approximation: A Gradient Boosting Machine", Annals of
   Statistics 29, 2001.
.. [2] T. M. Tomita, J. Browne, C. Shen, J. Chung, J. L. Patsolic, B. Falk, C. E. Priebe,
   J. Yim, R. Burns, M. Maggioni, J. T. Vogelstein, "Sparse Projection Oblique Randomer
   Forests", JMLR 21, 2020.
.. [3] L. Iosipoi, A. Vakhrushev, "SketchBoost: Fast Gradient Boosted Decision Tree for Multioutput
   Problems", NeurIPS 2022.
.. [4] Y. Shi, J. Li, Z. Li, "Gradient Boosting with Piece-Wise Linear Regression Trees", IJCAI
   2019.
.. [5] H. Zhang, D. Nettleton, Z. Zhu, "Regression-Enhanced Random Forests", arXiv:1904.10416,
   2019.
.. [6] R. Perry, T. M. Tomita, J. Patsolic, B. Falk, J. T. Vogelstein, "Manifold Forests: Closing
   the Gap on Neural Networks", 2019.
"""

REGRESSOR_REFERENCES = (
    REFERENCES.rstrip()
    + """
.. [7] V. Chernozhukov, I. Fernandez-Val, A. Galichon, "Quantile and Probability Curves Without
   Crossing", Econometrica 78, 2010.
"""
)


def has_one_output(classifier):
    """Has a classifier one output, or is it not yet fitted?"""
    return not isinstance(getattr(classifier, "classes_", None), list)


@described(CLASSIFIER_PARAMETERS, CLASSIFIER_ATTRIBUTES, USUAL, notes=NOTES, references=REFERENCES)
class ObliqueBoostingClassifier(ForestClassifierMixin, ObliqueBoosting):
    """Gradient boosting classifier whose splits use one feature or a combination of a few.

    Each tree is added to lower the log loss [1]_. Its splits compare single features, or random
    combinations of a few features [2]_, which are drawn anew for every tree. By default, several
    models are averaged, each stopped early on a different part of the rows.

    {parameters_and_attributes}

    See Also
    --------
    ObliqueBoostingRegressor : The same for regression.
    sklearn.ensemble.HistGradientBoostingClassifier : Splits on single features.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import ObliqueBoostingClassifier
    {digits}
    >>> model = ObliqueBoostingClassifier(100, n_bags=1, random_state=0)
    >>> round(model.fit(X_train, y_train).score(X_test, y_test), 2)
    0.98
    """

    _parameter_constraints: dict = {
        "loss": [StrOptions(CLASSIFIER_LOSSES), *loss_types(CLASSIFIER_LOSSES)],
        "class_weight": [StrOptions({"balanced"}), dict, list, None],
    }

    def __init__(
        self,
        n_estimators=1000,
        *,
        loss="log_loss",
        learning_rate="auto",
        max_depth="auto",
        max_leaf_nodes=None,
        min_samples_leaf="auto",
        l2_regularization=3.0,
        n_directions="auto",
        feature_shape=None,
        subsample=0.8,
        monotonic_cst=None,
        interaction_cst=None,
        linear_leaves="auto",
        linear_start="auto",
        n_bags="auto",
        early_stopping="auto",
        n_iter_no_change=50,
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

    def _make_loss(self):
        return make_label_loss(self.loss, self.n_classes_, boosting=True)

    def _target_units(self, data, target, is_warm_start):
        baseline = self.forest_.baseline if is_warm_start else None
        return self._make_loss().scale.units(target, data.weight, baseline)

    @available_if(has_one_output)
    @with_texts()
    def decision_function(self, X):
        """Log odds of two classes, or log probabilities of more classes; for one output.

        {takes_rows}

        Returns
        -------
        decision : ndarray of shape (n_samples,) or (n_samples, n_classes), float64
            With two classes, the log probability of the second class minus that of the first;
            otherwise the result of `predict_log_proba`.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if self.n_classes_ == 2 else log_proba

    def staged_predict_proba(self, X):
        """Class probabilities after each round, as an iterator.

        {takes_rows}

        Yields
        ------
        proba : ndarray of shape (n_samples, n_classes), float64, or list of such arrays
            Predicted by the same trees as in `staged_predict`; the last one equals
            `predict_proba`.
        """
        return map(self._probabilities_of, self._staged_response(X))


@described(
    REGRESSOR_PARAMETERS,
    REGRESSOR_ATTRIBUTES,
    USUAL,
    notes=NOTES,
    references=REGRESSOR_REFERENCES,
)
class ObliqueBoostingRegressor(ForestRegressorMixin, ObliqueBoosting):
    """Gradient boosting regressor whose splits use one feature or a combination of a few.

    It works like `ObliqueBoostingClassifier`, with a choice of losses.

    {parameters_and_attributes}

    See Also
    --------
    ObliqueBoostingClassifier : The same for classification.
    sklearn.ensemble.HistGradientBoostingRegressor : Splits on single features.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import ObliqueBoostingRegressor
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(600, noise=1.0, random_state=0)
    >>> model = ObliqueBoostingRegressor(n_bags=1, random_state=0)
    >>> round(model.fit(X[:400], y[:400]).score(X[400:], y[400:]), 2)
    0.94
    """

    _parameter_constraints: dict = {
        "loss": [StrOptions(REGRESSOR_LOSSES), *loss_types(REGRESSOR_LOSSES)],
        "quantile": [Interval(Real, 0.0, 1.0, closed="neither"), "array-like"],
    }

    def __init__(
        self,
        n_estimators=1000,
        *,
        loss="squared_error",
        quantile=0.5,
        learning_rate="auto",
        max_depth="auto",
        max_leaf_nodes=None,
        min_samples_leaf="auto",
        l2_regularization=3.0,
        n_directions="auto",
        feature_shape=None,
        subsample=0.8,
        monotonic_cst=None,
        interaction_cst=None,
        linear_leaves="auto",
        linear_start="auto",
        n_bags="auto",
        early_stopping="auto",
        n_iter_no_change=50,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
        warm_start=False,
        time_limit=None,
    ):
        store_parameters(self, locals())

    @property
    def _has_several_quantiles(self):
        return takes(self.loss, "quantile") and not isinstance(self.quantile, Real)

    @property
    def _fitted_quantiles(self):
        """Quantile level of each predicted column; None unless there are several quantiles."""
        return vars(self).get("_quantiles")

    @property
    def _task_metadata(self):
        return {"task": "regression", "n_outputs": self._make_loss().n_outputs}

    def _encode_target(self, y, is_warm_start):
        y = super()._encode_target(y, is_warm_start)
        self._check_levels(y)
        # Parameters that are set after the fit must not change predictions.
        has_several = self._has_several_quantiles
        self._quantiles = np.asarray(self.quantile).tolist() if has_several else None
        loss = self._make_loss()
        if is_warm_start and (loss.link, loss.n_outputs) != (
            self.forest_.link,
            self.forest_.n_outputs,
        ):
            raise ValueError(
                f"loss={self.loss!r} does not match the trees that warm_start=True keeps; fit a "
                "new estimator, or use the loss and the number of quantiles of the first fit"
            )
        return y

    def _check_levels(self, y):
        """Raise ValueError if several quantiles are not valid, or y has several outputs."""
        if self._has_several_quantiles:
            levels = np.asarray(self.quantile)
            is_valid = levels.ndim == 1 and levels.size and levels.dtype.kind in "fiu"
            if not (is_valid and ((levels > 0) & (levels < 1)).all()):
                raise ValueError(f"quantile={self.quantile!r} must contain numbers in (0, 1)")
            if y.shape[1] > 1:
                raise ValueError(
                    f"quantile={self.quantile!r} takes one output, y has {y.shape[1]}; pass one "
                    "quantile, or fit an estimator for each output"
                )

    def _make_loss(self):
        return make_loss(self.loss, self.n_outputs_, quantile=self.quantile)

    def score(self, X, y, sample_weight=None):
        """R^2 of `predict`, or the mean D^2 of several quantiles.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
            At most 1. With several quantiles, the mean over quantiles of scikit-learn's
            `d2_pinball_score`, which is 0 for the empirical quantile of y.
        """
        return self._score_of(y, self.predict(X), sample_weight)

    def _score_of(self, y, predicted, sample_weight):
        levels = self._fitted_quantiles
        if levels is None:
            return super()._score_of(y, predicted, sample_weight)
        scores = [
            d2_pinball_score(y, column, sample_weight=sample_weight, alpha=level)
            for column, level in zip(predicted.T, levels)
        ]
        return float(np.mean(scores))

    def _prediction_of(self, response):
        levels = self._fitted_quantiles
        if levels is not None:
            rearranged = np.empty_like(response)
            rearranged[:, np.argsort(levels, kind="stable")] = np.sort(response, axis=1)
            return rearranged
        return super()._prediction_of(response)
