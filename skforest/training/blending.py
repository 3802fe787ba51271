"""Weights and temperature of a blend, from responses on held-out rows.

Weights are found by greedy selection with replacement (Caruana et al. 2004): the blend is a bag
that may contain a member several times. Each round adds the member that improves the bag most, and
the best bag of all rounds is kept. On few rows, members that are best by chance would get too much
weight, so weights are averaged over bootstrap samples of the rows.
"""

from copy import copy

import numpy as np
from scipy.optimize import minimize_scalar

from .._kernels.base.rows import random_stream

# All of these were chosen without a stored measurement.

# Smallest probability of a label, so that one row which all trees predict wrongly cannot outweigh
# all other rows.
MIN_PROBABILITY = 1e-3
TINY = 1e-12
LARGEST_LOG_TEMPERATURE = 2.0
N_SAMPLES = 20  # bootstrap samples of the rows
N_SAMPLES_OF_FOLD = 5  # likewise, where weights are only found to measure the score of a blend
MAX_DRAWN = 400_000  # rows in all samples: with many rows, fewer samples suffice
MIN_WEIGHT = 0.05  # a member with less weight is not worth the time of its predictions


class _RowMean:
    """A criterion that is a mean over rows.

    `for_weights` is the criterion by which weights are found; it may differ from the score.
    """

    @property
    def for_weights(self):
        return self

    def resampled(self, counts):
        """Return the criterion for `counts` copies of each row."""
        other = copy(self)
        other.weight = self.weight * counts
        return other


class HeldOutLogLoss(_RowMean):
    """Minus the log loss of the labels, averaged over outputs; larger is better.

    With `is_sharpened`, the weights are found by the loss at the best of a few temperatures, for a
    blend that will have one.
    """

    def __init__(self, codes, n_classes, weight, is_sharpened=False):
        first = np.concatenate([[0], np.cumsum(n_classes)[:-1]])
        self.column, self.weight, self.is_sharpened = codes + first, weight, is_sharpened

    @property
    def for_weights(self):
        return SharpenedLogLoss(self) if self.is_sharpened else self

    def reduce(self, response):
        """Return the probabilities of the labels."""
        return np.take_along_axis(response, self.column, axis=1)

    def score(self, probability):
        """Return the score of a mean of reduced responses."""
        return float(np.average(_log(probability).mean(axis=1), weights=self.weight))


class SharpenedLogLoss(HeldOutLogLoss):
    """Minus the log loss at the best of the temperatures 1, 4/5, 2/3 and 1/2.

    The trees that left a row out are only some of a forest, and their mean is too cautious, most
    of all for members that the temperature would make best.
    """

    def __init__(self, criterion):
        self.column, self.weight = criterion.column, criterion.weight
        self.is_sharpened = False

    def reduce(self, response):
        """Return the probabilities of all classes, one row for each class."""
        return np.ascontiguousarray(response.T)

    def score(self, probability):
        """Return the score of a mean of reduced responses."""
        rows, weight = np.arange(probability.shape[1]), self.weight / self.weight.sum()
        label = probability[self.column[:, 0], rows]
        best, root = np.sum(weight * _log(label)), np.sqrt(probability)
        for factor in (np.sqrt(root), root, probability):
            of_label = label * factor[self.column[:, 0], rows]
            total = np.sum(probability * factor, axis=0)
            best = max(best, np.sum(weight * _log(of_label / total)))
        return float(best)


class HeldOutR2(_RowMean):
    """Coefficient of determination, averaged over outputs."""

    def __init__(self, y, weight):
        self.y, self.weight = y, weight
        variance = np.average(np.square(y - np.average(y, 0, weight)), 0, weight)
        self.variance = np.where(variance > 0, variance, 1.0)

    def reduce(self, response):
        """Return the residuals."""
        return response - self.y

    def score(self, residual):
        """Score of a mean of reduced responses."""
        return float(np.mean(1 - np.average(np.square(residual), 0, self.weight) / self.variance))


class Scorer:
    """A scorer of scikit-learn, called as ``scorer(estimator, X, y)``.

    Parameters
    ----------
    scorer : callable
    estimator_of : callable
        ``estimator_of(X, response)`` is an estimator that predicts `response` for X.
    take : callable
        ``take(rows)`` returns X of some rows.
    y : ndarray of shape (n_rows,) or (n_rows, n_outputs)
    weight : ndarray of shape (n_rows,)
        Some scorers take no weights. Therefore, rows are repeated if weights are whole numbers.
    n_samples : int
        Rows are not repeated if there would be more than `n_samples` rows, and more than four
        times as many as before.
    name : str
        Parameter of the estimator, for errors.
    """

    def __init__(self, scorer, estimator_of, take, y, weight, n_samples, name="scoring"):
        self.scorer, self.estimator_of, self.options = scorer, estimator_of, {}
        self.name = name
        is_whole = (weight == np.rint(weight)).all()
        is_whole &= weight.sum() <= max(n_samples, 4 * len(weight))
        self.rows = np.repeat(np.arange(len(y)), weight.astype(int) if is_whole else 1)
        if not is_whole:
            self.options = {"sample_weight": weight}
        self.X, self.y = take(self.rows), y[self.rows]

    def reduce(self, response):
        """Return the response."""
        return response

    @property
    def for_weights(self):
        """Scorer: itself."""
        return self

    def score(self, response):
        """Return the score of a mean of responses."""
        model = self.estimator_of(self.X, response[self.rows])
        try:
            found = self.scorer(model, self.X, self.y, **self.options)
        except TypeError as error:
            if self.options and "sample_weight" in str(error):
                raise TypeError(
                    f"{self.name} must take sample_weight where the sample_weight of fit are not "
                    f"small whole numbers: {error}"
                ) from error
            raise
        try:
            return float(found)
        except (TypeError, ValueError):
            raise TypeError(f"{self.name} must return a number, got {found!r}") from None


def blend_weights(
    criterion, responses, n_rounds, seed, costs=None, budget=np.inf, n_samples=N_SAMPLES
):
    """Return weights of responses, with sum 1, found on `n_samples` bootstrap samples at most.

    The costs of members with positive weight add up to at most `budget`; if each member exceeds
    it, the cheapest one is taken alone.
    """
    if len(responses) == 1:
        return np.ones(1)
    search = criterion.for_weights
    parts = [search.reduce(response) for response in responses]
    weights = greedy_weights(search, parts, n_rounds, costs, budget)
    n_rows, random = len(responses[0]), random_stream(seed)
    n_samples = min(n_samples, MAX_DRAWN // n_rows)
    # Scorers of scikit-learn may fail on a sample, for instance if it lacks a class.
    if isinstance(criterion, _RowMean) and n_samples > 1:
        # Members chosen by different samples might exceed the budget together.
        chosen = np.flatnonzero(weights) if budget < np.inf else np.arange(len(parts))
        own = [parts[m] for m in chosen]
        weights = np.zeros(len(parts))
        for _ in range(n_samples):
            counts = np.bincount(random.randint(n_rows, size=n_rows), minlength=n_rows)
            drawn = search.resampled(counts)
            # A sample of few rows may draw none that has a weight.
            drawn = drawn if drawn.weight.any() else search
            weights[chosen] += greedy_weights(drawn, own, n_rounds)
        weights = np.where(weights < min(MIN_WEIGHT * n_samples, weights.max()), 0, weights)
        weights /= weights.sum()
    return weights


def unseen_response(criterion, responses, weights, folds, n_rounds, seed, *limits):
    """Return the weighted mean of responses, each row with weights found on the other folds.

    `folds` are the fold of each row and the number of folds. A scorer of scikit-learn may fail
    without a fold; then, and where other folds have no weight, the given weights are used.
    """
    blended = sum(w * response for w, response in zip(weights, responses))
    fold, n_folds = folds
    if len(responses) == 1 or not isinstance(criterion, _RowMean):
        return blended
    for k in range(n_folds):
        others = criterion.resampled(fold != k)
        if others.weight.any():
            given = n_rounds, seed, *limits
            found = blend_weights(others, responses, *given, n_samples=N_SAMPLES_OF_FOLD)
            own = fold == k
            blended[own] = sum(w * response[own] for w, response in zip(found, responses))
    return blended


def greedy_weights(criterion, parts, n_rounds, costs=None, budget=np.inf):
    """Select weights greedily; `parts` are reduced responses."""
    costs = np.zeros(len(parts)) if costs is None else np.asarray(costs)
    counts, total = np.zeros(len(parts), dtype=int), 0.0
    best, best_score = None, -np.inf
    for n in range(1, n_rounds + 1):
        scores = np.full(len(parts), -np.inf)
        spent = costs[counts > 0].sum()
        for m, part in enumerate(parts):
            if counts[m] or spent + costs[m] <= budget or (n == 1 and costs[m] == costs.min()):
                scores[m] = criterion.score((total + part) / n)
        # A scorer may return NaN.
        chosen = int(np.argmax(np.where(np.isnan(scores), -np.inf, scores)))
        counts[chosen] += 1
        total = total + parts[chosen]
        if best is None or scores[chosen] > best_score:
            best, best_score = counts / n, scores[chosen]
    return best


# ------------------------------------------------------------------------------------ temperature


def sharpened(probability, temperature):
    """Return probabilities to the power of 1 / temperature, divided by their sum."""
    if temperature == 1:
        return probability
    raw = np.log(np.maximum(probability, TINY)) / temperature
    raw = np.exp(raw - raw.max(axis=1, keepdims=True))
    return raw / raw.sum(axis=1, keepdims=True)


def find_temperature(probability, codes, weight, fold, n_folds, may_flatten=True):
    """Return the temperature with the lowest log loss; 1 unless it also helps on other folds.

    It is above 1 only with `may_flatten`. Labels are smoothed as in `flattening_temperature`.
    """
    loss, best = _temperature_search(probability, codes, weight, may_flatten)
    before = after = 0.0
    for k in range(n_folds):
        others, own = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        before += loss(0.0, own)
        after += loss(best(others), own)
    return float(np.exp(best(np.arange(len(codes))))) if after < before else 1.0


def with_temperature(probability, codes, weight, fold, n_folds):
    """Return probabilities, with each fold sharpened by the best temperature of the others."""
    _, best = _temperature_search(probability, codes, weight, True)
    found = np.empty_like(probability)
    for k in range(n_folds):
        others, own = np.flatnonzero(fold != k), np.flatnonzero(fold == k)
        found[own] = sharpened(probability[own], np.exp(best(others)))
    return found


def _temperature_search(probability, codes, weight, may_flatten):
    """Return two functions: the loss of rows at a log temperature, and the best one for rows."""
    bounds = -LARGEST_LOG_TEMPERATURE, LARGEST_LOG_TEMPERATURE * may_flatten
    share = 1 / (len(codes) + 2)

    def loss(log_temperature, rows):
        parts = probability[rows], codes[rows], weight[rows]
        return _log_loss(log_temperature, *parts, share, TINY)

    def best(rows):
        return minimize_scalar(loss, bounds=bounds, args=(rows,), method="bounded").x

    return loss, best


def flattening_temperature(probability, codes, weight):
    """Return the temperature, at least 1, with the lowest log loss of smoothed labels.

    If a model predicts all of a few rows correctly, the labels alone do not limit its confidence.
    Platt (1999) therefore gives each of n labels the probability (n + 1) / (n + 2).
    """
    parts = probability, codes, weight, 1 / (len(codes) + 2)
    found = minimize_scalar(
        _log_loss, bounds=(0, LARGEST_LOG_TEMPERATURE), args=parts, method="bounded"
    )
    return float(np.exp(found.x))


def _log_loss(log_temperature, probability, codes, weight, share, least=MIN_PROBABILITY):
    """Return the log loss at a temperature, with `share` of each label on the other classes.

    Probabilities of the other classes are at least `least`.
    """
    probability = sharpened(probability, np.exp(log_temperature))
    own = _log(np.take_along_axis(probability, codes[:, None], axis=1)[:, 0])
    others = np.log(np.maximum(probability, least))
    others = others.sum(axis=1) - np.take_along_axis(others, codes[:, None], axis=1)[:, 0]
    others /= max(probability.shape[1] - 1, 1)
    return -float(np.sum(weight * ((1 - share) * own + share * others)))


def _log(probability):
    return np.log(np.maximum(probability, MIN_PROBABILITY))
