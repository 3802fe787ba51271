"""Shapley values of the columns of fitted forests, boosting and blends."""

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Integral

import numpy as np

from .._kernels.base.rows import random_stream, tree_seed
from .._kernels.explain.shapley import ShapleyTrees
from ..estimators.base import take_rows
from ..estimators.prediction import Part, prediction_of
from ..estimators.unwrap import unwrapped
from ..estimators.validation import draw_seed
from ..forest.statistics import probabilities
from ..table.frames import as_array, as_frame, mixed_rows, stacked_rows
from ..table.matrix import dense
from ..training.threads import in_parallel
from .contents import output_number, value_rows
from .mixtures import explain_mixtures

UNITS = ("auto", "raw", "response")
MAX_BACKGROUND = 100  # rows of X that background=None takes
MAX_EXACT = 16  # 2^16 sets of mixtures take milliseconds
N_CHUNKS = 16  # parts of a forest that are explained in parallel; fixed, as is the order of sums
BLOCK = 1 << 22  # numbers of an array of values that exist at a time
EPSILON = 2.0**-23  # of float32, twice its rounding error


@dataclass
class Explanation:
    """Shapley values, with the attributes of `shap.Explanation`.

    Attributes
    ----------
    values : ndarray of shape (n_samples, n_features) or (n_samples, n_features, n_outputs)
    base_values : ndarray of shape (n_samples,) or (n_samples, n_outputs)
    data : ndarray of shape (n_samples, n_features)
        The explained rows.
    feature_names : list of str or None
    output_names : list of str or None
    standard_errors : ndarray of the shape of `values`
    """

    values: np.ndarray
    base_values: np.ndarray
    data: np.ndarray
    feature_names: list | None
    output_names: list | None
    standard_errors: np.ndarray


def shapley_values(
    estimator,
    X,
    background=None,
    units="auto",
    *,
    target=None,
    interactions=False,
    max_exact=10,
    n_permutations=4,
    n_jobs=None,
    random_state=0,
):
    """Interventional Shapley values of the predictions of a fitted estimator.

    The prediction of a row is divided among its features:

        prediction = base value + sum of the values of all features

    The base value is the mean prediction of the rows `background`. The value of a feature is the
    average change of the prediction when the feature is taken from the row instead of from a
    background row, while features are exchanged one after another in random order [1]_ [2]_.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted forest, tree, boosting, or blend of these. It may be inside a search or a pipeline;
        the explained features are then the output of its transformers.
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        Rows to explain, in the form that `predict` takes.
    background : array-like, sparse matrix or dataframe of shape (n_rows, n_features), default=None
        Rows to compare X with, such as 100 rows of the training set. The time is proportional to
        their number. None: X itself, or 100 of its rows, drawn at random.
    units : {"auto", "raw", "response"}, default="auto"
        What the values add up to. "response": probabilities or predictions. "raw": the sum or mean
        of the trees before the link, such as log odds; with several bags, the mean over the bags.
        "auto": "raw" for oblique boosting and for a `skforest.Loss` with an `inverse_link`,
        "response" otherwise. Raw scores of several bags differ from `decision_function`, see
        Notes.
    target : label, int or (int, label), default=None
        Class label, or number of the output in regression, that is explained; for several outputs
        of labels, the number of the output and a label. None: all, but of two classes the second.
    interactions : bool, default=False
        Whether to divide the value of each feature into interactions with the other features and
        its own part: for each row, a symmetric matrix whose rows add up to the values [3]_. The
        interaction of two features is half the difference between the value of the one if the
        other is always taken from the row, and if it is always taken from the background.
    max_exact : int, default=10
        Splits that depend on at most this many of the features in which two rows differ are
        explained exactly, see Notes. From 0 to 16.
    n_permutations : int, default=4
        Number of permutations for values that are sampled, an even number of at least 4. They are
        used in pairs of a permutation and its reverse.
    n_jobs : int, default=None
        Number of threads. None: 1, unless in a `joblib.parallel_config` context. -1: all
        processors. The result does not depend on it.
    random_state : int, RandomState or None, default=0
        Seed of permutations, and of the rows of X that are drawn as the background.

    Returns
    -------
    explanation : shap.Explanation or Explanation
        A `shap.Explanation` if the package shap is installed, which you can pass to the plots of
        shap. Otherwise, and with `interactions`, an object with the same attributes:

        values : ndarray of shape (n_samples, n_features) or (n_samples, n_features, n_outputs)
            Two-dimensional for a single output, with `target`, and for two classes. A category
            and its indicators, or a number and its indicator of missing values, are one feature.
            With `interactions`, there is one more axis of features after the first.
        base_values : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            The same for all rows.
        data : ndarray of shape (n_samples, n_features)
            The rows of X.
        feature_names, output_names : list of str or None
            Names of the columns, and of the classes.
        standard_errors : ndarray of the shape of `values`
            Standard errors due to sampling; 0 for values that are exact. `shap.Explanation` also
            has them as ``error_std``.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If the estimator is not one of skforest.
    ValueError
        If a parameter is out of range, or X does not fit the estimator.

    Notes
    -----
    Trees with hard splits are explained exactly if their responses are added and no link follows
    in the chosen units: for each pair of a row and a background row, the mixtures of the two are
    divided into sets that reach the same leaf. The values of a pair are sampled if there are more
    than ``2 ** max_exact`` such sets, on average over at most 112 background rows, or if a split
    depends on more than `max_exact` undecided features, and on more than 6. Two rows that differ
    in at most `max_exact` features are always explained exactly. Some models are sampled for all
    pairs: forests with margins or soft splits (hinge forests, end-to-end trees with
    ``routing="soft"``), trees of networks, probabilities of boosting, classifiers with a `prior`,
    members of a blend from other packages, blends with a temperature, and blends of hinge forests
    or boosting for several outputs of labels.

    In either case, the values of a row add up to its prediction minus the base value, up to
    rounding. Features that no split or leaf of a forest reads have value 0 and take no time.

    A boosting classifier averages the probabilities of its bags. For two classes,
    `decision_function` returns the log odds of the mean probability, whereas raw scores are the
    mean of the log odds of the bags. Both are equal for one bag (``n_bags=1``); otherwise the mean
    of the log odds is usually further from 0. For more classes, raw scores are the scores before
    the softmax, whereas `decision_function` returns log probabilities. Logarithms of the ratios of
    a `prior` are added to raw scores. With ``units="response"``, the values add up to the result
    of `predict_proba`.

    Quantiles are explained before they are sorted.

    Interactions are exact where values are. They take memory for the square of the number of
    features for each row, and a multiple of the time of the values: about ten times with 20
    features, and twice the number of features that the model reads where values are sampled.

    References
    ----------
    .. [1] S. M. Lundberg, S.-I. Lee, "A Unified Approach to Interpreting Model Predictions",
       NeurIPS 2017.
    .. [2] D. Janzing, L. Minorics, P. Bloebaum, "Feature Relevance Quantification in Explainable
       AI: A Causal Problem", AISTATS 2020.
    .. [3] S. M. Lundberg et al., "From Local Explanations to Global Understanding with Explainable
       AI for Trees", Nature Machine Intelligence 2, 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skforest import ManifoldForestRegressor, shapley_values
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> forest = ManifoldForestRegressor(50, random_state=0).fit(X, y)
    >>> found = shapley_values(forest, X[:5], background=X[5:105])
    >>> for name, value in zip(found.feature_names, found.values[0]):  # of row 0
    ...     print(f"{name:4} {value:4.0f}")
    age     3
    sex    -9
    bmi    29
    bp      8
    s1     -2
    s2      1
    s3      4
    s4     -1
    s5     19
    s6     -7
    >>> print(f"{found.base_values[0]:.0f} + {found.values[0].sum():.0f}")
    135 + 46
    >>> forest.predict(X[:1]).round()
    array([181.])
    """
    _check_parameters(units, max_exact, n_permutations)
    seed = draw_seed(random_state)
    whole, estimator = unwrapped(estimator), unwrapped(estimator).estimator
    game = _game(estimator, units)
    k = None if target is None else output_number(estimator, game.n_responses, target)
    X = as_array(as_frame(whole.transform(X)))
    if background is None:
        order = random_stream(seed, 0).permutation(X.shape[0])
        background = take_rows(X, np.sort(order[:MAX_BACKGROUND]))
    else:
        with _of_background():
            background = as_array(as_frame(whole.transform(background)))
    parts = game.parts
    for part in parts:
        part.map_rows(X, background)
    shape = X.shape[0], estimator.n_features_in_, background.shape[0]
    given = game, shape, max_exact, seed, n_permutations // 2, n_jobs
    values, variance = _explain(*given)
    if interactions:
        values, variance = _interactions(values, variance, *_explain(*given, has_pairs=True))
    base = game.respond((part, part.background) for part in parts).mean(axis=0)
    if k is not None and game.outputs == "all":
        values, variance, base = values[..., [k]], variance[..., [k]], base[[k]]
    elif k == 0:  # of two classes, whose probabilities add up to 1, and raw scores to 0
        values, base = -values, (1 - base if game.outputs == "second" else -base)
    names = whole.names(getattr(estimator, "feature_names_in_", None))
    base = np.tile(base, (X.shape[0], 1))
    return _explanation(estimator, names, X, values, base, variance, interactions)


def values_of_table(estimator, X, background, classes):
    """Sampled Shapley values of the columns that a pipeline takes, not of those of its last step.

    `classes` are those of a classifier; None in regression. The shape is (n_samples, n_columns,
    n_outputs).
    """
    part = _OtherPart(Part(estimator), None if classes is None else [classes])
    part.map_rows(X, background)
    game, shape = (
        _Game([part], 1 if classes is None else len(classes)),
        (*X.shape, background.shape[0]),
    )
    return explain_mixtures([part], game, shape, 0, 2, None)[0][:, 0]


def _check_parameters(units, max_exact, n_permutations):
    if not isinstance(units, str) or units not in UNITS:
        raise ValueError(f"units={units!r} must be one of {UNITS}")
    if not isinstance(max_exact, Integral) or not 0 <= max_exact <= MAX_EXACT:
        raise ValueError(f"max_exact={max_exact!r} must be an int in 0 .. {MAX_EXACT}")
    if not isinstance(n_permutations, Integral) or n_permutations < 4 or n_permutations % 2:
        raise ValueError(f"n_permutations={n_permutations!r} must be an even int of at least 4")


# --------------------------------------------------------------------------- what is explained


class _Game:
    """A prediction as a function of the responses of some models.

    Parameters
    ----------
    parts : list of _ForestPart or _OtherPart
        Models whose weighted responses are added.
    n_responses : int
        Number of columns of a response.
    finish : callable, default=None
        Function of this sum. None: there is none, and the parts can be explained one by one.
    outputs : {"all", "second", "difference"}, default="all"
        Outputs that are explained. For two classes, only the second one, or its difference from
        the first.
    """

    def __init__(self, parts, n_responses, finish=None, outputs="all"):
        self.parts, self.n_responses = parts, n_responses
        self.finish, self.outputs = finish, outputs

    @property
    def n_outputs(self):
        return self.n_responses if self.outputs == "all" else 1

    def select(self, response):
        """The outputs that are explained, on the last axis."""
        if self.outputs == "all":
            return response
        second = response[..., 1:]
        return second - response[..., :1] if self.outputs == "difference" else second

    def respond(self, rows_of_parts):
        """Predictions of mapped rows, from pairs of a part and rows."""
        total = sum(part.weight * part.respond(rows) for part, rows in rows_of_parts)
        return self.select(total if self.finish is None else self.finish(total))


def _game(estimator, units):
    """The explained function of a forest, or of a blend, whose members share one unit."""
    prediction = prediction_of(estimator)
    if prediction.is_blend and units == "raw":
        raise ValueError(
            'units="raw" needs a single forest; a blend is explained in units of its response'
        )
    unit_of_parts = "response" if prediction.is_blend else units
    parts = [_part(one, unit_of_parts, prediction.classes) for one in prediction.parts]
    n_classes = [len(labels) for labels in prediction.classes or ()]
    n_responses = sum(n_classes) or estimator.n_outputs_
    is_binary = n_classes == [2]
    is_whole = not prediction.is_blend and isinstance(parts[0], _OtherPart)
    if not prediction.is_blend and not is_whole:
        forest, weight = parts[0].forest, parts[0].weight
        n_responses = forest.n_outputs
        is_boosting = forest.aggregate == "sum" and forest.gate == "hard"
        is_raw = units == "raw" or (units == "auto" and is_boosting)
        if is_raw and forest.link != "identity":
            arrays = dict(forest.arrays)
            if prediction.prior_ratio is not None and forest.n_classes is None:
                arrays["baseline"] = arrays["baseline"] + np.log(prediction.prior_ratio)
            forest = forest.replaced(arrays, link="identity")
            part = _ForestPart(estimator, forest, weight)
            return _Game([part], n_responses, None, "difference" if is_binary else "all")
        if is_raw:
            return _Game(parts, n_responses, None, "second" if is_binary else "all")
    finish = None
    if len(n_classes) > 1 and not all(part.is_proba for part in parts):
        finish = partial(_clipped, n_classes=n_classes)
    if (prediction.temperature != 1 or prediction.prior_ratio is not None) and not is_whole:
        finish = prediction.finish  # a tree of networks predicts with its prior
    return _Game(parts, n_responses, finish, "second" if is_binary else "all")


def _clipped(response, n_classes):
    """Probabilities of several outputs, side by side."""
    return np.concatenate(probabilities(response, n_classes), axis=1)


def _part(part, units, classes):
    """A part of a prediction, as a part of a game."""
    if not part.is_forest or hasattr(part.model, "networks_"):  # columns of X are no features
        return _OtherPart(part, classes)
    if units == "response" and part.model._has_own_link:  # kernels cannot call it
        return _OtherPart(part, classes)
    return _ForestPart(part.model, part.uncorrected(part.model._routing_forest), part.weight)


@contextmanager
def _of_background():
    """Add to errors that the background raised them."""
    try:
        yield
    except (TypeError, ValueError) as error:
        error.add_note("The rows of `background` raised this error.")
        raise


class _ForestPart:
    """A forest of a game, and the rows as it sees them."""

    def __init__(self, model, forest, weight):
        self.model, self.forest, self.weight = model, forest, weight
        self.is_additive = forest.gate == "hard" and forest.link == "identity"
        # Are its responses probabilities, in classification?
        self.is_proba = forest.gate != "margin" and forest.aggregate == "mean"
        source = forest.feature_map.source
        self.player = source if len(source) else np.arange(forest.n_features, dtype=np.int32)
        self.n_columns = forest.n_features
        self.respond = forest.response_mapped

    @cached_property
    def read(self):
        """ndarray of int: the features that the response depends on."""
        forest = self.forest
        _, feature, weight = forest.router.expand(np.unique(forest.direction))
        is_read = np.zeros(forest.n_features, dtype=bool)
        is_read[feature[weight != 0]] = is_read[forest.slope_feature] = True
        is_read[forest.feature_map.is_constant] = False
        return np.flatnonzero(is_read)

    @property
    def players(self):
        """ndarray of int: the players of these features."""
        return np.unique(self.player[self.read])

    def map_rows(self, X, background):
        """Keep the rows and the background."""
        self.X = self._mapped(X)
        with _of_background():
            self.background = self._mapped(background)

    def _mapped(self, X):
        """Mapped rows as float32, which route bytes in the same way."""
        Z = self.model._few_features(X)
        if Z is None:
            Z = self.forest.map_coded(dense(self.model._validate_predict(X)))
        return np.ascontiguousarray(Z, dtype=np.float32)

    def mixture(self, i, rows, is_taken, players):
        """Rows with the players that are taken from row i, and others from background rows.

        `is_taken` has some players on the last axis, which include those of this part.
        """
        background = self.background[rows][:, None, None, None]
        read, shape = self.read, (*is_taken.shape[:-1], self.n_columns)
        is_taken = is_taken[..., np.searchsorted(players, self.player[read])]
        mixture = np.where(is_taken, self.X[i, read], background[..., read])
        if len(read) < self.n_columns:
            mixture, of_read = np.array(np.broadcast_to(background, shape)), mixture
            mixture[..., read] = of_read
        return np.ascontiguousarray(mixture.reshape(-1, self.n_columns))


class _OtherPart:
    """A model whose predictions are explained: of another package, with networks or a link."""

    is_additive, is_proba = False, True

    def __init__(self, part, classes):
        self.weight, self.what = part.weight, part.what
        self.respond = partial(part.response, classes=classes)

    def map_rows(self, X, background):
        """Keep the rows and the background."""
        if getattr(X, "ndim", 2) > 2:  # images, of which models read flat rows, too
            X, background = (np.reshape(rows, (len(rows), -1)) for rows in (X, background))
        self.background, self.n_columns = background, X.shape[1]
        self.players = np.arange(self.n_columns)
        with _of_background():
            self.rows = stacked_rows(background, X)

    def mixture(self, i, rows, is_taken, players):
        """As `_ForestPart.mixture`, with the columns of the table as players."""
        number = np.arange(rows.start, rows.stop)[:, None, None, None, None]
        number = np.where(is_taken, self.background.shape[0] + i, number)
        return mixed_rows(self.rows, number.reshape(-1, number.shape[-1]))


def _explain(game, shape, max_exact, seed, n_pairs, n_jobs, has_pairs=False):
    """Values of a game and their variances, (n_samples, n_inputs, n_outputs).

    `shape` has the numbers of rows, of columns and of background rows. `has_pairs`: there is one
    more axis of features after the first, see `ShapleyTrees`.
    """
    values, variance = np.zeros((2, shape[0], *[shape[1]] * (1 + has_pairs), game.n_outputs))
    sampled = [part for part in game.parts if game.finish is not None or not part.is_additive]
    found = [
        _explain_trees(part, game, max_exact, seed, n_pairs, n_jobs, has_pairs)
        for part in game.parts
        if part not in sampled
    ]
    if sampled:
        found.append(explain_mixtures(sampled, game, shape, seed, n_pairs, n_jobs, has_pairs))
    for more_values, more_variance in found:
        values += more_values.reshape(values.shape)
        variance += more_variance.reshape(values.shape)
    return values, variance


def _interactions(values, variance, of_pairs, variance_of_pairs):
    """Symmetric interactions and their variances; those with itself are the rest of a value."""
    of_pairs = (of_pairs + of_pairs.swapaxes(1, 2)) / 2
    variance_of_pairs = (variance_of_pairs + variance_of_pairs.swapaxes(1, 2)) / 4
    j = np.arange(of_pairs.shape[1])
    of_pairs[:, j, j] = values - of_pairs.sum(axis=2)
    variance_of_pairs[:, j, j] = variance + variance_of_pairs.sum(axis=2)
    return of_pairs, variance_of_pairs


# ------------------------------------------------------------------------------- hard trees, sums


def _explain_trees(part, game, max_exact, seed, n_pairs, n_jobs, has_pairs=False):
    """Values of a forest with hard splits whose trees are added, and their variances."""
    forest, n_inputs = part.forest, part.forest.n_inputs
    values = np.ascontiguousarray(game.select(value_rows(forest).toarray()))
    slopes = np.ascontiguousarray(game.select(forest.slope.astype(np.float64)))
    scale = part.weight * _tree_scales(forest) / len(part.background)
    bounds = np.linspace(0, len(forest), min(len(forest), N_CHUNKS) + 1).astype(int)
    largest = np.maximum(np.abs(part.X).max(axis=0), np.abs(part.background).max(axis=0))
    n_values = n_inputs * (n_inputs if has_pairs else 1)
    size = max(1, BLOCK // (n_values * game.n_outputs * (len(bounds) - 1)))

    def explain(start, chunk, control):
        X = part.X[start : start + size]
        value, variance = found = np.zeros((2, len(X), n_values, game.n_outputs))
        walker = ShapleyTrees(
            forest, X, part.background, part.player, n_inputs, values, slopes, max_exact, n_pairs,
            tree_seed(seed, start), has_pairs,
        )  # fmt: skip
        for t in range(bounds[chunk], bounds[chunk + 1]):
            walker.load(*_tree_arrays(forest, t, part.player, largest))
            walker.explain(t, scale[t], value, variance, control.stop)
        return found

    blocks = []
    for start in range(0, len(part.X), size):
        of_block, chunks = partial(explain, start), range(len(bounds) - 1)
        blocks.append(sum(in_parallel(of_block, chunks, n_jobs)))
    return np.concatenate(blocks, axis=1)


def _tree_scales(forest):
    """Factor of each tree in the response of the forest."""
    n_trees = np.diff(forest.bag_start)
    of_bag = np.ones(len(n_trees)) if forest.aggregate == "sum" else 1 / np.maximum(n_trees, 1)
    return np.repeat(of_bag / len(n_trees), n_trees)


def _tree_arrays(forest, number, player, largest):
    """Children, thresholds, codes, terms by player and bounds of the rounding of a tree."""
    tree = forest[number]
    start, feature, weight = forest.router.expand(tree.direction)
    n_terms = np.diff(start)
    split = np.repeat(np.arange(len(n_terms)), n_terms)
    is_used = weight != 0
    key = split * (int(player.max()) + 1) + player[feature]
    order = np.arange(len(key)) if (np.diff(key) >= 0).all() else np.argsort(key, kind="stable")
    order = order[is_used[order]]
    start = np.concatenate([[0], np.cumsum(np.bincount(split[is_used], minlength=len(n_terms)))])
    size = np.bincount(split, np.abs(weight, dtype=np.float64) * largest[feature], len(n_terms))
    margin = EPSILON * (n_terms + 4) * size
    terms = start, feature[order], weight[order]
    return tree.child, tree.threshold, tree.direction, *terms, margin


# -------------------------------------------------------------------------------------- the result


def _explanation(estimator, names, X, values, base_values, variance, interactions):
    """Values as `shap.Explanation`, if shap is installed."""
    errors = np.sqrt(variance)
    names = None if names is None else [str(name) for name in names]
    classes = getattr(estimator, "classes_", None)
    outputs = None
    n_outputs = values.shape[-1]
    if n_outputs == 1:
        values, errors, base_values = values[..., 0], errors[..., 0], base_values[:, 0]
    elif isinstance(classes, np.ndarray) and len(classes) == n_outputs:
        outputs = [str(label) for label in classes]
    data = np.asarray(dense(X)).reshape(len(values), -1)
    try:
        import shap
    except ImportError:
        shap = None
    if shap is None or interactions:
        return Explanation(values, base_values, data, names, outputs, errors)
    found = shap.Explanation(
        values, base_values, data, feature_names=names, output_names=outputs, error_std=errors
    )
    found.standard_errors = errors
    return found
