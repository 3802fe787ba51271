"""Conformal prediction: intervals and sets that contain the target with a given probability.

A fit predicts the rows that it held out, and keeps the largest scores of these predictions: how
far each target is from its prediction. If rows are exchangeable, a new row has a score above those
of all but the share alpha of the held-out rows with probability alpha, whatever the model
(Vovk, Gammerman, Shafer, "Algorithmic Learning in a Random World", 2005).
"""

from numbers import Real

import numpy as np
from sklearn.base import is_regressor
from sklearn.utils.validation import check_is_fitted

from .._docs import with_texts
from ..forest.storage import GATES

# Fitted attributes from predictions of rows that trees or bags did not train on.
OF_HELD_OUT = ("oob_score_", "oob_prediction_", "oob_decision_function_", "_held_out")
MOST = 1000  # scores that are kept of an output; with more rows, every score is kept only near 0
ROUNDING, SLACK = 1e-9, 1e-13  # of numbers of rows, and of scores
FAR = 1e300  # raw prediction at which the limits of a link are computed
# Rows of a bin of predictions, the largest number of bins, and the rows by which the mean error of
# a bin is drawn to that of all rows. `python -m benchmarks.measure.quantiles conformal` measures
# intervals with them.
ROWS_OF_BIN, MOST_BINS, PRIOR_ROWS = 50, 10, 20


def largest_scores(scores, weight):
    """Scores from the largest down, and the weight above each: an array of shape (2, n_kept).

    If there are more than `MOST`, those of ranks in equal ratios are kept, as alpha needs them.
    """
    order = np.lexsort((weight, scores))[::-1]
    above = np.cumsum(weight[order]) - weight[order]
    rows = np.arange(len(order))
    if len(rows) > MOST:
        rows = np.unique(np.rint(np.geomspace(1, len(rows), MOST)).astype(np.int64) - 1)
    return np.stack([scores[order][rows], above[rows]])


def typical_errors(predicted, error, weight):
    """Centres of bins of predictions, and mean errors in them: an array of shape (2, n_bins)."""
    total = weight.sum()
    n_bins = int(np.clip(total // ROWS_OF_BIN, 1, MOST_BINS))
    order = np.argsort(predicted, kind="stable")
    level = (np.cumsum(weight[order]) - weight[order] / 2) / total
    number = np.minimum((level * n_bins).astype(np.int64), n_bins - 1)
    weighted = np.bincount(number, (weight * error)[order], n_bins)
    mean = weighted.sum() / total
    of_bins = weighted + PRIOR_ROWS * mean
    of_bins /= np.bincount(number, weight[order], n_bins) + PRIOR_ROWS
    centre = np.interp((np.arange(n_bins) + 0.5) / n_bins, level, predicted[order])
    centre, first = np.unique(centre, return_index=True)
    return np.stack([centre, of_bins[first] if mean > 0 else np.ones(len(first))])


def counted(count):
    """Numbers of copies of rows; other weights are divided by their mean."""
    is_whole = np.abs(count - np.rint(count)).max() < ROUNDING
    return count if is_whole else count * (len(count) / count.sum())


class ConformalMixin:
    """Scores of held-out rows and their quantiles, for both mixins."""

    def _forget_held_out(self):
        """Remove what an earlier fit knew from predictions of rows that it held out."""
        for name in OF_HELD_OUT:
            vars(self).pop(name, None)

    def _keep(self, count, scores, errors=()):
        """Keep pairs of scores and weights of the held-out rows, and their typical errors."""
        kept = [largest_scores(*pair) for pair in scores]
        gate = self._routing_forest.gate if hasattr(self, "forest_") else None
        self._held_out = {"n_rows": float(count.sum()), "gate": gate}
        self._held_out |= {"scores": kept, "errors": list(errors)}

    def _check_held_out(self):
        """Raise ValueError unless what a file has for `_keep` may come from it."""
        held_out, several = self._held_out, getattr(self, "_fitted_quantiles", None)
        n_scores = self.n_outputs_ if several is None else (len(several) + 1) // 2
        n_errors = self.n_outputs_ if several is None and is_regressor(self) else 0
        pairs = held_out["scores"] + held_out["errors"]
        if (
            [len(held_out["scores"]), len(held_out["errors"])] != [n_scores, n_errors]
            or type(held_out["n_rows"]) is not float
            or held_out.get("gate") not in (None, *GATES)
            or any(pair.dtype != np.float64 or pair.ndim != 2 for pair in pairs)
            or any(len(pair) != 2 or not pair.size for pair in pairs)
        ):
            raise ValueError(f"the fitted attribute _held_out is {held_out!r:.50}")

    def _allowed_scores(self, alpha, method):
        """For each output, the score that a new row exceeds with probability alpha at most."""
        check_is_fitted(self)
        if not (isinstance(alpha, Real) and 0 < alpha < 1):
            raise ValueError(f"alpha={alpha!r} must be a number in (0, 1)")
        held_out = vars(self).get("_held_out")
        if held_out is None:
            raise ValueError(
                f"{method} needs predictions of held-out rows: {self._how_to_hold_out}"
            )
        gate = held_out.get("gate")
        if gate is not None and gate != self._routing_forest.gate:
            raise ValueError(f"{method} needs the routing of fit, not routing={self.routing!r}")
        n_rows = held_out["n_rows"]
        allowed = alpha * (n_rows + 1) - 1 + ROUNDING
        if allowed < 0:
            raise ValueError(
                f"alpha={alpha:g} is too small for {n_rows:g} held-out rows; it must be at least "
                f"{1 / (n_rows + 1):.3g}"
            )
        scores = np.array(
            [
                score[np.searchsorted(above, allowed, side="right") - 1]
                for score, above in held_out["scores"]
            ]
        )
        # Where most rows have the same score, as with rare counts, rounding must not exclude them.
        return scores + SLACK * np.abs(scores)


@with_texts()
class IntervalMixin(ConformalMixin):
    """`predict_interval` of regressors."""

    _fitted_quantiles = None

    def _keep_scores(self, y, response, count):
        """Keep the scores of held-out rows: targets, responses and numbers of copies.

        A score is the distance from the prediction, in units of the typical error of similar
        predictions. For a pair of quantiles, it is the distance from both, negative between them.
        """
        count, predicted = counted(count), self._columns_of(response)
        if self._fitted_quantiles is not None:
            pairs = [(predicted[:, low], predicted[:, high]) for low, high in self._quantile_pairs]
            scores = [(np.maximum(low - y[:, 0], y[:, 0] - high), count) for low, high in pairs]
            return self._keep(count, scores)
        errors = np.abs(y - predicted)
        typical = [typical_errors(*pair, count) for pair in zip(predicted.T, errors.T)]
        scores = [
            (own / np.interp(column, *curve), count)
            for own, column, curve in zip(errors.T, predicted.T, typical)
        ]
        return self._keep(count, scores, typical)

    @property
    def _quantile_pairs(self):
        """Columns of the lower and the upper quantile, from the outermost pair inwards."""
        order = np.argsort(self._fitted_quantiles, kind="stable")
        return list(zip(order, order[::-1]))[: (len(order) + 1) // 2]

    def _columns_of(self, response):
        """Predictions as a matrix."""
        return self._prediction_of(response).reshape(len(response), -1)

    def predict_interval(self, X, alpha=0.1):
        """Intervals that contain the target of a new row with probability ``1 - alpha``.

        Each interval is widened by errors of predictions of held-out rows (conformal prediction),
        see :doc:`/guide/uncertainty`. The probability holds on average over new rows that are
        drawn like the training rows, not for each X.

        {takes_rows}
        alpha : float, default=0.1
            Share of the intervals that may miss the target, in (0, 1); with several outputs, for
            each output. With n held-out rows, it is at least ``1 / (n + 1)``.

        Returns
        -------
        interval : ndarray of shape (n_samples, 2) or (n_samples, 2, n_outputs), float64
            Lower and upper bounds.

        Raises
        ------
        ValueError
            If the fit held out no rows, or too few for `alpha`.

        Examples
        --------
        >>> import numpy as np
        >>> from skforest import ManifoldForestRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(1500, 3))
        >>> y = rng.gamma(shape=4, scale=1 + 5 * X[:, 0])
        >>> forest = ManifoldForestRegressor(oob_score=True, random_state=0)
        >>> forest = forest.fit(X[:500], y[:500])
        >>> forest.predict_interval([[0.1, 0.5, 0.5], [0.9, 0.5, 0.5]]).round()
        array([[-1., 13.],
               [ 5., 36.]])
        >>> low, high = forest.predict_interval(X[500:]).T
        >>> inside = np.mean((low <= y[500:]) & (y[500:] <= high))
        >>> print(f"{inside:.0%} of the new targets")
        89% of the new targets
        """
        scores = self._allowed_scores(alpha, "predict_interval")
        predicted, levels = self._columns_of(self._response(X)), self._fitted_quantiles
        if levels is None:
            typical = zip(predicted.T, self._held_out["errors"])
            widths = np.stack([np.interp(column, *curve) for column, curve in typical], axis=1)
            bounds = np.stack([predicted - scores * widths, predicted + scores * widths], axis=1)
        else:  # the pair whose levels differ most nearly by 1 - alpha
            pairs, aim = self._quantile_pairs, 1 - alpha
            best = int(np.argmin([abs(levels[high] - levels[low] - aim) for low, high in pairs]))
            bounds = predicted[:, pairs[best], None]
            bounds += np.array([[-scores[best]], [scores[best]]])
            bounds.sort(axis=1)  # a negative score may be larger than half of the width
        bounds = np.clip(bounds, *self._target_limits())
        return bounds[:, :, 0] if self._is_1d else bounds

    def _target_limits(self):
        """The smallest and the largest prediction that the link allows."""
        if self._has_own_link:
            with np.errstate(all="ignore"):
                ends = self._linked(np.array([[-FAR], [FAR]]) * np.ones(self.n_outputs_))
            ends = np.sort(ends, axis=0)
            return np.where(ends[0] < ends[1], ends, [[-np.inf], [np.inf]])
        models = getattr(self, "members_", {"": self}).values()
        links = {getattr(getattr(model, "forest_", None), "link", None) for model in models}
        return (0.0 if links == {"log"} else -np.inf), np.inf


@with_texts()
class SetMixin(ConformalMixin):
    """`predict_set` of classifiers."""

    def _keep_scores(self, y, response, count):
        """Keep the scores of held-out rows: class numbers, responses and numbers of copies.

        A score is minus the probability of the true class. Rows count as `prior` says.
        """
        ratio = self._prediction().prior_ratio
        ratio = np.ones(response.shape[1]) if ratio is None else np.asarray(ratio)
        ends = np.cumsum([len(classes) for classes in self._every_classes])[:-1]
        count, rows, scores = counted(count), np.arange(len(y)), []
        columns = zip(y.astype(np.int64).T, self._matrices_of(response), np.split(ratio, ends))
        for codes, proba, of_class in columns:
            weight = count * of_class[codes]
            scores.append((-proba[rows, codes], weight * (count.sum() / weight.sum())))
        self._keep(count, scores)

    def _matrices_of(self, response):
        """Class probabilities of each output."""
        found = self._probabilities_of(response)
        return found if self._has_several_outputs else [found]

    def predict_set(self, X, alpha=0.1):
        """Sets of classes that contain the label of a new row with probability ``1 - alpha``.

        A set contains the classes whose probability is at least a threshold, which is found on
        held-out rows (conformal prediction), see :doc:`/guide/uncertainty`. The most probable
        class is in every set. The probability holds on average over new rows that are drawn like
        the training rows, or as `prior` says, not for each X or class.

        {takes_rows}
        alpha : float, default=0.1
            Share of the sets that may miss the label, in (0, 1); with several outputs, for each
            output. With n held-out rows, it is at least ``1 / (n + 1)``.

        Returns
        -------
        sets : ndarray of shape (n_samples, n_classes), bool, or list of such arrays
            In the order of `classes_`; with several outputs, a list with one array per output.

        Raises
        ------
        ValueError
            If the fit held out no rows, or too few for `alpha`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from skforest import ManifoldForestClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> forest = ManifoldForestClassifier(oob_score=True, random_state=0).fit(X, y)
        >>> rows = [[5.0, 3.4, 1.5, 0.2], [6.1, 2.8, 4.9, 1.7]]
        >>> forest.predict_set(rows, alpha=0.02)
        array([[ True, False, False],
               [False,  True,  True]])
        """
        scores = self._allowed_scores(alpha, "predict_set")
        sets = []
        for proba, score in zip(self._matrices_of(self._response(X)), scores):
            sets.append(proba >= -score)
            sets[-1][np.arange(len(proba)), proba.argmax(axis=1)] = True
        return sets if self._has_several_outputs else sets[0]
