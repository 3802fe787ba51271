"""Weights and temperature of a blend, from responses on held-out rows.

Weights are found by greedy selection with replacement (Caruana et al. 2004): the blend is a bag
that may contain a member several times. Each round adds the member that improves the bag most, and
the best bag of all rounds is kept. On few rows, members that are best by chance would get too much
weight, so weights are averaged over bootstrap samples of the rows.
"""

from operator import itemgetter

import numpy as np
from scipy.optimize import minimize_scalar

from .._kernels.base.loss import sharpened_scores
from .._kernels.base.rows import random_stream

# All of these were chosen without a stored measurement.

# Smallest probability of a label, so that one row which all trees predict wrongly cannot outweigh
# all other rows.
MIN_PROBABILITY = 1e-3
TINY = 1e-12
LARGEST_LOG_TEMPERATURE = 2.0  # of a blend
LARGEST_LOG_TEMPERATURE_OF_BAG, N_TEMPERATURES = 6.0, 25  # of a hinge forest
# Powers of class frequencies that a hinge forest tries, and the increase of the log likelihood, in
# nats, that it needs: that of the likelihood ratio test at 5 percent.
POWERS, LEAST_GAIN = np.linspace(0.2, 1, 5), 1.92
N_SAMPLES = 20  # bootstrap samples of the rows
N_SAMPLES_OF_FOLD = 5  # likewise, where weights are only found to measure the score of a blend
MAX_DRAWN = 400_000  # rows in all samples: with many rows, fewer samples suffice
MIN_WEIGHT = 0.05  # a member with less weight is not worth the time of its predictions


class _RowMean:
    """A criterion that is a mean over rows, or the largest of several means.

    A subclass has ``row_scores(reduced)``, the scores of the rows, of shape (n_means, n_rows).
    `for_weights` is the criterion by which weights are found; it may differ from the score.
    """

    @property
    def for_weights(self):
        return self

    def score(self, reduced):
        """Return the score of a mean of reduced responses."""
        return float(self.scores(self.row_scores(reduced), self.weight[None])[0])

    def scores(self, row_scores, weight):
        """Return the scores for each of several weights of the rows, (n, n_rows)."""
        total = np.einsum("wi,mi->wm", weight, row_scores)
        return total.max(axis=1) / weight.sum(axis=1)

    def scores_of_bag(self, parts, counts):
        """Return the scores of the rows for a bag that has each part as often as `counts` says."""
        return self.row_scores(_mean(parts, counts))


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

    def row_scores(self, probability):
        """Return the log probability of the labels of each row."""
        return _log(probability).mean(axis=1)[None]


class SharpenedLogLoss(HeldOutLogLoss):
    """Minus the log loss at the best of the temperatures 1, 4/5, 2/3 and 1/2.

    The trees that left a row out are only some of a forest, and their mean is too cautious, most
    of all for members that the temperature would make best.
    """

    def __init__(self, criterion):
        self.column, self.weight = criterion.column, criterion.weight
        self.label, self.is_sharpened = self.column[:, 0].astype(np.float64), False

    def reduce(self, response):
        """Return the probabilities of all classes, one row for each class."""
        return np.ascontiguousarray(response.T)

    def row_scores(self, probability):
        """Return the log probability of the label of each row at each temperature."""
        return self.scores_of_bag([probability], (1,))

    def scores_of_bag(self, parts, counts):
        """Return the log probability of the label of each row at each temperature."""
        share = np.array(counts) / sum(counts)
        return sharpened_scores(parts, share, self.label, MIN_PROBABILITY)


class HeldOutR2(_RowMean):
    """Coefficient of determination, averaged over outputs."""

    def __init__(self, y, weight):
        self.y, self.weight = y, weight
        mean = np.clip(np.average(y, 0, weight), y.min(axis=0), y.max(axis=0))
        variance = np.average(np.square(y - mean), 0, weight)
        self.variance = np.where(variance > 0, variance, 1.0)

    def reduce(self, response):
        """Return the residuals."""
        return response - self.y

    def row_scores(self, residual):
        """Return the share of each row in the score, times the number of rows."""
        return 1 - np.mean(np.square(residual) / self.variance, axis=1)[None]


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
    lacking : str
        End of errors: which class is not among the rows.
    """

    def __init__(
        self, scorer, estimator_of, take, y, weight, n_samples, name="scoring", lacking=""
    ):
        self.scorer, self.estimator_of, self.options = scorer, estimator_of, {}
        self.name, self.lacking = name, lacking
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
                    f"{self.name} must take sample_weight, because the weights that fit got are "
                    f"not small whole numbers: {error}"
                ) from error
            raise
        except ValueError as error:
            if self.lacking:
                raise ValueError(f"{self.name}: {error}{self.lacking}") from error
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
    limits, search = (n_rounds, costs, budget), criterion.for_weights
    parts = [search.reduce(response) for response in responses]
    if not isinstance(criterion, _RowMean):
        # Scorers of scikit-learn may fail on a sample, for instance if it lacks a class.
        return greedy_weights(search, parts, *limits)
    return _mean_weights(search, parts, criterion.weight[None], seed, n_samples, *limits)[0]


def unseen_response(criterion, responses, weights, folds, n_rounds, seed, *limits):
    """Return the weighted mean of responses, each row with weights found on the other folds.

    `folds` are the fold of each row and the number of folds. A scorer of scikit-learn may fail
    without a fold; then, and where other folds have no weight, the given weights are used.
    """
    blended = sum(w * response for w, response in zip(weights, responses))
    fold, n_folds = folds
    if len(responses) == 1 or not isinstance(criterion, _RowMean):
        return blended
    weight = np.array([np.where(fold == k, 0.0, criterion.weight) for k in range(n_folds)])
    has_weight = np.flatnonzero(weight.any(axis=1))
    if not len(has_weight):
        return blended
    search = criterion.for_weights
    parts = [search.reduce(response) for response in responses]
    given = weight[has_weight], seed, N_SAMPLES_OF_FOLD, n_rounds, *limits
    for k, found in zip(has_weight, _mean_weights(search, parts, *given)):
        own = fold == k
        blended[own] = sum(w * response[own] for w, response in zip(found, responses))
    return blended


def _mean_weights(criterion, parts, weight, seed, n_samples, n_rounds, costs=None, budget=np.inf):
    """Return weights of members for each of several weights of the rows, (n, n_rows).

    They are means over bootstrap samples of the rows, the same for each of these weights.
    """
    n_given, n_rows = weight.shape
    n_samples = min(n_samples, MAX_DRAWN // n_rows)
    may_use, found = np.ones((n_given, len(parts)), dtype=bool), None
    if n_samples < 2 or budget < np.inf:
        scores_of = _scores_of(criterion, parts, weight)
        found = _select(scores_of, may_use, n_rounds, costs, budget)
        if n_samples < 2:
            return found
        # Members chosen by different samples might exceed the budget together.
        may_use = found > 0
    random = random_stream(seed)
    draws = (random.randint(n_rows, size=n_rows) for _ in range(n_samples))
    counts = np.array([np.bincount(rows, minlength=n_rows) for rows in draws])
    drawn = (weight[:, None] * counts).reshape(-1, n_rows)
    # A sample of few rows may draw none that has a weight.
    is_empty = ~drawn.any(axis=1)
    drawn[is_empty] = np.repeat(weight, n_samples, axis=0)[is_empty]
    may_use = np.repeat(may_use, n_samples, axis=0)
    found = _select(_scores_of(criterion, parts, drawn), may_use, n_rounds)
    total = found.reshape(n_given, n_samples, -1).sum(axis=1)
    least = np.minimum(MIN_WEIGHT * n_samples, total.max(axis=1, keepdims=True))
    total[total < least] = 0
    return total / total.sum(axis=1, keepdims=True)


def greedy_weights(criterion, parts, n_rounds, costs=None, budget=np.inf):
    """Select weights greedily; `parts` are reduced responses."""
    may_use = np.ones((1, len(parts)), dtype=bool)
    given = may_use, n_rounds, costs, budget
    return _select(lambda counts, _: criterion.score(_mean(parts, counts)), *given)[0]


def _mean(parts, counts):
    """Return the mean of the parts of a bag; `counts` says how often it has each."""
    return sum(count * part for count, part in zip(counts, parts) if count) / sum(counts)


def _scores_of(criterion, parts, weight):
    """Return a function for `_select`: each bag has its own weights of the rows."""
    return lambda counts, bags: criterion.scores(
        criterion.scores_of_bag(parts, counts), weight[bags]
    )


def _select(scores_of, may_use, n_rounds, costs=None, budget=np.inf):
    """Select members for several bags; return their shares, (n_bags, n_members).

    ``scores_of(counts, bags)`` is the score of the members, each as often as `counts` says, with
    the rows of each of some bags. `may_use`, bool of shape (n_bags, n_members), has the members
    that a bag may contain. Bags often consider the same counts, which are scored once.
    """
    costs = np.zeros(may_use.shape[1]) if costs is None else np.asarray(costs)
    counts, every = np.zeros(may_use.shape, dtype=int), np.arange(len(may_use))
    share, best = np.zeros(may_use.shape), np.full(len(may_use), -np.inf)
    for n in range(1, n_rounds + 1):
        spent = (counts > 0) @ costs
        is_next = (counts > 0) | (spent[:, None] + costs <= budget)
        if n == 1:
            is_next |= costs == costs.min()
        scores = np.full(may_use.shape, -np.inf)
        considered = {}
        for bag, member in zip(*np.nonzero(may_use & is_next)):
            key = counts[bag].tolist()
            key[member] += 1
            considered.setdefault(tuple(key), []).append((bag, member))
        for key, places in considered.items():
            bags, members = np.array(places).T
            scores[bags, members] = scores_of(key, bags)
        # A scorer may return NaN.
        scores = np.where(np.isnan(scores), -np.inf, scores)
        counts[every, scores.argmax(axis=1)] += 1
        score = scores.max(axis=1)
        is_better = (score > best) | (n == 1)
        share[is_better], best[is_better] = counts[is_better] / n, score[is_better]
    return share


# ------------------------------------------------------------------------------------ temperature


def sharpened(probability, temperature, least=TINY, offset=None):
    """Return probabilities to the power of 1 / temperature, divided by their sum.

    They are at least `least` before. Their logarithms move by an offset of each class, if given.
    """
    if temperature == 1 and offset is None:
        return probability
    raw = np.log(np.maximum(probability, least)) / temperature
    if offset is not None:
        raw += offset
    raw = np.exp(raw - raw.max(axis=1, keepdims=True))
    return raw / raw.sum(axis=1, keepdims=True)


def find_temperature(probability, codes, weight, fold, n_folds, may_flatten=True):
    """Return the temperature with the lowest log loss; 1 unless it also helps on other folds.

    It is above 1 only with `may_flatten`. Labels are smoothed as in `_temperature_search`.
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
        flat = sharpened(probability[rows], np.exp(log_temperature))
        return _log_loss(flat, codes[rows], weight[rows], share, TINY)

    def best(rows):
        return minimize_scalar(loss, bounds=bounds, args=(rows,), method="bounded").x

    return loss, best


def flattening(probability, codes, weight, frequency):
    """Return the temperature T, at least 1, and the offsets with the lowest log loss.

    Probabilities p become p^(1 / T) times the frequencies of the classes to a power, divided by
    their sum; offsets are the logarithms of this factor. With T alone, unsure predictions would
    approach equal probabilities, however rare a class is. The power is 0, no offset, unless
    another one increases the likelihood by more than chance would.

    If a model predicts all of a few rows correctly, the labels alone do not limit its confidence.
    Platt (1999) therefore gives each of n labels the probability (n + 1) / (n + 2).
    """
    share, unit = 1 / (len(codes) + 2), weight.sum() / len(codes)

    def loss(log_temperature, offset):
        flat = sharpened(probability, np.exp(log_temperature), np.finfo(float).tiny, offset)
        return _log_loss(flat, codes, weight, share, MIN_PROBABILITY)

    def best(offset):
        # The loss is flat where all labels are nearly sure: first, find a range with the minimum.
        losses = [loss(one, offset) for one in grid]
        middle = int(np.argmin(losses))
        bounds = grid[max(middle - 1, 0)], grid[min(middle + 1, len(grid) - 1)]
        found = minimize_scalar(loss, bounds=bounds, args=(offset,), method="bounded")
        return found.fun, float(np.exp(found.x)), offset

    grid = np.linspace(0, LARGEST_LOG_TEMPERATURE_OF_BAG, N_TEMPERATURES)
    offsets = POWERS[:, None] * np.log(frequency)
    least, *without = best(np.zeros(len(frequency)))
    lowest, *others = min(map(best, offsets), key=itemgetter(0))
    return others if lowest < least - LEAST_GAIN * unit else without


def _log_loss(probability, codes, weight, share, least):
    """Return the log loss with `share` of each label on the other classes.

    Probabilities of the other classes are at least `least`.
    """
    own = _log(np.take_along_axis(probability, codes[:, None], axis=1)[:, 0])
    others = np.log(np.maximum(probability, least))
    others = others.sum(axis=1) - np.take_along_axis(others, codes[:, None], axis=1)[:, 0]
    others /= max(probability.shape[1] - 1, 1)
    return -float(np.sum(weight * ((1 - share) * own + share * others)))


def _log(probability):
    return np.log(np.maximum(probability, MIN_PROBABILITY))
