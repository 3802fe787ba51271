"""Training and prediction on dask arrays and data frames, partition by partition.

Every member of a forest, a tree or a bag, is trained on the rows of one partition, so no process
needs memory for more rows. First, a sample of rows from all partitions is read. It determines what
the members must share: the classes, the feature map, the baseline, and the settings that are
chosen from the data; and the weights of a blend, whose forests are then trained like others.

The tasks run on the current dask client, or in threads if there is no client.
"""

from copy import copy
from dataclasses import dataclass, replace
from types import SimpleNamespace

import dask
import dask.array as da
import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from ._kernels.base.rows import random_stream, tree_seed
from ._warnings import each_warning_once, warn_caller
from .blend.blend import BlendedForestClassifier, BlendedForestRegressor
from .estimators.base import take_rows
from .estimators.prediction import is_forest
from .estimators.unwrap import refusal, unwrapped
from .table.frames import as_array
from .table.target_statistics import indicators
from .table.training_set import check_sample_weight
from .training.method import train_members

SAMPLE_ROWS = 50_000  # rows in the sample, from all partitions
SAMPLE_SIZE = 2**23  # numbers in the sample
SAMPLE_SEED = 7 * 2**60
PARTITION_SEED = 2**60  # far from the numbers of trees and bags
MIN_FOLDS = 5  # a bag with early stopping holds out at most a fifth of its partition
MAX_EXPLAINED = 0.1  # share of the variance of the target that partitions may explain
BLENDS = BlendedForestClassifier, BlendedForestRegressor


def fit(estimator, X, y, sample_weight=None):
    """Train a forest on a dask array or data frame, each tree or bag on one of its partitions.

    Partitions are the chunks along the first axis. They should be random parts of the rows, each
    small enough for a worker to train a tree on it. If rows are sorted, by time or by label,
    shuffle them first.

    Parameters
    ----------
    estimator : estimator or blend of skforest
        Unfitted or fitted; it is not changed. It must not be a `torch.E2ENetworkTree`, and must
        have ``oob_score=False`` and ``time_limit=None``. Trees (or bags, if the estimator has
        `n_bags`) are distributed over the partitions in proportion to their rows, or to the sums
        of `sample_weight`. With ``n_bags="auto"``, every partition gets at least one, unless its
        weights are so small that it counts for less than half a bag.
    X : dask array of shape (n_samples, n_features) or dask dataframe
        Or of shape ``(n_samples, *feature_shape)``. See `fit` of the estimator. The number of rows
        may be unknown. Chunks along other axes are joined.
    y : dask array, series or dataframe of shape (n_samples,) or (n_samples, n_outputs)
        Class labels, or numbers in regression, with the same partitions as X.
    sample_weight : dask array or series of shape (n_samples,), default=None
        At least 0. None: all weights are 1.

    Returns
    -------
    fitted : estimator of the same class
        A fitted copy with all trees, in this process. It depends only on the data, the partitions
        and `random_state`, and not on the number of workers.

    Raises
    ------
    TypeError
        If X, y or sample_weight is not a dask collection, or the estimator cannot be trained in
        this way.
    ValueError
        If partitions do not match, or if data or parameters are invalid.

    Warns
    -----
    UserWarning
        If there are fewer trees than partitions, so that some partitions are not used; or if
        partitions explain more than a tenth of the variance of the target, as they do if rows are
        sorted.

    See Also
    --------
    predict, predict_proba : Predictions for dask collections.

    Notes
    -----
    The sample has 50000 rows, or fewer if there are many columns, and takes equally many rows from
    each partition. Weights make up for rows that are not drawn. The sample contains at least one
    row of every class in each partition. Levels of categories that are not in the sample count as
    unknown. If a column has no missing values in the sample, missing values elsewhere are replaced
    by the mean. The sample also determines the limits of the features and every setting. Class
    weights of ``class_weight="balanced"`` and calibration are computed for each partition;
    `temperature_` is the mean over bags. X is read twice: persist it if it fits into the memory
    of the cluster.

    A blend is trained on the sample, in this process. Its forests are then replaced by forests of
    the same parameters that are trained on partitions, one after the other, so X is read once more
    for each. The weights, scores and times of the leaderboard, the temperature, and members of
    other packages stay those of the sample.

    Examples
    --------
    >>> import dask.array as da
    >>> import skforest.dask
    >>> from sklearn.datasets import load_digits
    >>> from skforest import ManifoldForestClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> X, y = da.from_array(X, chunks=(600, 64)), da.from_array(y, chunks=600)
    >>> forest = ManifoldForestClassifier(30, random_state=0)
    >>> forest = skforest.dask.fit(forest, X, y)
    >>> labels = skforest.dask.predict(forest, X)
    >>> accuracy = (labels == y).mean().compute()
    >>> print(f"{len(forest.forest_)} trees, training accuracy {accuracy:.2f}")
    30 trees, training accuracy 0.99
    """
    partitions = _partitions(X, y, sample_weight)
    estimator = _unfitted(estimator)
    n_sampled = min(SAMPLE_ROWS, max(1000, SAMPLE_SIZE // int(np.prod(X.shape[1:]))))
    sample = _Sample.of(estimator, partitions, -(-n_sampled // len(partitions)))
    with each_warning_once():
        if isinstance(estimator, BLENDS):
            return _trained_blend(estimator, partitions, sample)
        return _trained_forest(estimator, partitions, sample)


def predict(estimator, X):
    """Predictions for a dask array or data frame, computed partition by partition.

    Parameters
    ----------
    estimator : fitted estimator or blend of skforest
    X : dask array of shape (n_samples, n_features) or dask dataframe

    Returns
    -------
    y : dask array of shape (n_samples,) or (n_samples, n_outputs)
        Not yet computed. It equals `predict` of the estimator, bit by bit.
    """
    own = _fitted(estimator)
    return _mapped(estimator, X, "predict", own._prediction_of(_no_response(own)))


def predict_proba(estimator, X):
    """Class probabilities for a dask array or data frame, computed partition by partition.

    Parameters
    ----------
    estimator : fitted classifier or blend of classifiers of skforest
    X : dask array of shape (n_samples, n_features) or dask dataframe

    Returns
    -------
    proba : dask array of shape (n_samples, n_classes), float64, or list of such arrays
        Not yet computed; with several outputs, a list with one array per output. It equals
        `predict_proba` of the estimator, bit by bit.
    """
    own = _fitted(estimator)
    if not is_classifier(own):
        raise TypeError(f"estimator is a {type(own).__name__}, which has no predict_proba")
    proba = _mapped(estimator, X, "predict_proba", _no_response(own))
    if np.ndim(own.n_classes_) == 0:
        return proba
    ends = np.cumsum(own.n_classes_)
    return [proba[:, end - n : end] for n, end in zip(own.n_classes_, ends)]


def _fitted(estimator):
    """The fitted estimator inside of searches and pipelines."""
    estimator = unwrapped(estimator).estimator
    if not hasattr(estimator, "_prediction_of"):
        raise refusal(estimator, needed="a fitted estimator or blend of skforest")
    check_is_fitted(estimator)
    return estimator


# ------------------------------------------------------------------------------------ partitions


def _partitions(X, y, sample_weight):
    """The arguments of `fit` for every partition, as tuples of delayed objects."""
    given = {"X": X, "y": y} | ({} if sample_weight is None else {"sample_weight": sample_weight})
    for name, value in given.items():
        if not (dask.is_dask_collection(value) and hasattr(value, "npartitions")):
            raise TypeError(
                f"{name} is of type {type(value).__name__}; a dask array or dataframe is needed. "
                "For other types, use fit of the estimator"
            )
    parts = {}
    for name, value in given.items():
        if isinstance(value, da.Array):
            value = _with_whole_rows(value)
            if isinstance(X, da.Array) and not np.isnan([*X.chunks[0], *value.chunks[0]]).any():
                if len(value) != len(X):
                    raise ValueError(f"X has {len(X)} rows, {name} has {len(value)}")
                value = value.rechunk({0: X.chunks[0]})
        parts[name] = np.ravel(value.to_delayed()).tolist()
        if len(parts[name]) != len(parts["X"]):
            raise ValueError(
                f"X has {len(parts['X'])} partitions, {name} has {len(parts[name])}; the same are "
                "needed"
            )
    return list(zip(*parts.values()))


def _with_whole_rows(X):
    """A dask array with chunks along the first axis only."""
    return X.rechunk({axis: -1 for axis in range(1, X.ndim)})


def _unfitted(estimator):
    """An unfitted copy; TypeError or ValueError if it cannot be trained on partitions."""
    if not (isinstance(estimator, BLENDS) or _trains_members(estimator)):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}; an estimator of skforest whose trees are "
            "trained independently, or a blend, is needed"
        )
    if getattr(estimator, "oob_score", False):
        raise ValueError("oob_score=True needs all rows in one process; set oob_score=False")
    if estimator.time_limit is not None:
        raise ValueError(
            f"time_limit={estimator.time_limit}: tasks of a cluster wait for one another, so no "
            "time can be kept; set time_limit=None, and fewer trees"
        )
    if getattr(estimator, "prior", None) is not None:
        raise ValueError(
            f"prior={estimator.prior!r} needs the frequencies of the classes in all partitions; "
            "set prior=None"
        )
    estimator = clone(estimator)
    estimator._validate_params()
    if isinstance(estimator, BLENDS):
        for member in estimator._new_members(check_random_state(0)):
            if _trains_members(member.estimator):
                _unfitted(member.estimator)
                _check_class_weight(estimator, member)
    return estimator


def _check_class_weight(blend, member):
    """ValueError if a member of a blend does not have the class weights of the blend."""
    given, own = (getattr(one, "class_weight", None) for one in (blend, member.estimator))
    if given is not None and not member.has_class_weight:
        raise ValueError(
            f"class_weight={given!r} of the blend, and class_weight={own!r} of its member "
            f"{member.name!r}; set one of them"
        )


def _shares(weight, n_members):
    """How many members each partition trains, in proportion to the weight of its rows."""
    ends = np.concatenate([[0], np.cumsum(weight)]) / np.sum(weight)
    # Rounded twice, so that a factor of all weights does not decide between two partitions.
    return np.diff(np.round(np.round(ends * n_members, 9))).astype(int)


def _is_negligible(weight, n_rows, n_members):
    """Whether small weights make a partition count for less than half a member.

    If there are more partitions than members, half of a mean partition is the limit.
    """
    of_rows, of_member = n_rows / n_rows.sum(), 1 / max(n_members, np.count_nonzero(n_rows))
    return weight / weight.sum() < 0.5 * np.minimum(of_rows, of_member)


# ---------------------------------------------------------------------------------------- sample


@dataclass(frozen=True)
class _Sample:
    """Rows of all partitions."""

    X: object  # array, sparse matrix or data frame
    y: np.ndarray
    weight: np.ndarray
    partition: np.ndarray  # number of the partition of each row
    n_rows: np.ndarray  # rows of positive weight in each partition
    total: np.ndarray  # sum of the weights in each partition

    @classmethod
    def of(cls, estimator, partitions, n_most):
        """Read about `n_most` rows of each partition."""
        shared = dask.delayed(estimator, traverse=False)
        tasks = [
            dask.delayed(_sample)(shared, n_most, number, *partition)
            for number, partition in enumerate(partitions)
        ]
        found = dask.compute(*tasks)
        n_rows, total = np.array([(count, total) for count, total, *_ in found]).T
        if not n_rows.any():
            raise ValueError("X has no rows of positive weight")
        *_, X, y, weight = zip(*(entry for entry in found if entry[0]))
        partition = np.repeat(np.flatnonzero(n_rows), list(map(len, y)))
        y, weight = map(np.concatenate, (y, weight))
        return cls(_joined_rows(X), y, weight, partition, n_rows, total)


def _prepare(estimator, sample):
    """Settings from a sample; the estimator gets what members share: feature map and baseline."""
    request = estimator._request(sample_weight=sample.weight, previous=None)
    data = estimator._read_training_set(sample.X, sample.y, request)
    settings = estimator._settings(data, request)
    _warn_if_sorted(estimator, data, sample.partition)
    if len(sample.y) < sample.n_rows.sum():  # columns that are constant here may vary elsewhere
        data.feature_map.release_constant()
    # Attributes of the forest that are read when members are trained.
    estimator.forest_ = SimpleNamespace(
        feature_map=data.feature_map,
        levels=data.feature_map.levels,
        baseline=data.baseline,
        n_outputs=data.n_outputs,
        deviation=data.deviation(),
    )
    return settings


def _sample(estimator, n_most, number, X, y, sample_weight=None):
    """Number and total weight of the rows of a partition, and a random sample of them.

    It has X, y and weights, which make up for rows that are not drawn. If no row of a class is
    drawn, one row is added, with the weight of all rows of the class.
    """
    n_samples, length = X.shape[0], len(y)
    weight = np.ones(n_samples) if sample_weight is None else np.asarray(sample_weight, float)
    if not n_samples == length == len(weight):
        raise ValueError(
            f"partition {number} has {n_samples} rows of X, {length} of y, {len(weight)} weights"
        )
    if weight.any():
        weight = check_sample_weight(weight, n_samples)
    total = weight.sum()
    estimator._check_target_type(y)
    y, present = np.asarray(y), np.flatnonzero(weight)
    random = random_stream(SAMPLE_SEED, number)
    chosen = np.sort(random.permutation(present)[:n_most])
    given, weight = weight[present], weight * (len(present) / max(len(chosen), 1))
    if is_classifier(estimator):
        for column in y.T if y.ndim > 1 else [y]:
            labels, first, label = np.unique(
                column[present], return_index=True, return_inverse=True
            )
            is_new = ~np.isin(labels, column[chosen])
            rows = present[first[is_new]]
            weight[rows] = np.bincount(label, given)[is_new]
            chosen = np.concatenate([chosen, rows])
    return len(present), total, take_rows(as_array(X), chosen), y[chosen], weight[chosen]


def _joined_rows(parts):
    """Join the rows of arrays, sparse matrices or data frames."""
    if hasattr(parts[0], "iloc"):
        import pandas as pd

        return pd.concat(parts, ignore_index=True)
    return sparse.vstack(parts, "csr") if sparse.issparse(parts[0]) else np.concatenate(parts)


def _warn_if_sorted(estimator, data, partition):
    """Warn if partitions explain a large share of the variance of the target."""
    y = data.of_samples(data.y)
    if is_classifier(estimator):
        n_classes = np.ravel(estimator.n_classes_).tolist()
        y = indicators(y.astype(np.int32), n_classes)
    _, partition = np.unique(partition, return_inverse=True)
    count = np.bincount(partition)
    mean = np.stack([np.bincount(partition, column) / count for column in y.T], axis=1)
    total = np.square(y - y.mean(axis=0)).sum()
    between = (count[:, None] * np.square(mean - y.mean(axis=0))).sum()
    # Random partitions explain this share, on average.
    by_chance = (len(count) - 1) / max(len(y) - 1, 1)
    if between > (MAX_EXPLAINED + by_chance) * total:
        warn_caller(
            f"the partitions explain {between / total:.0%} of the variance of y, so each tree is "
            "trained on rows unlike the others: shuffle the rows before training",
        )


# --------------------------------------------------------------------------------------- members


def _trains_members(estimator):
    return is_forest(estimator) and estimator._trains_members


def _trained_forest(estimator, partitions, sample):
    """Train the trees or bags of an unfitted estimator, with settings from the sample."""
    settings = _prepare(estimator, sample)
    method, n_rows = estimator._method(settings), sample.n_rows
    counts = (n_rows > 0) & ~_is_negligible(sample.total, n_rows, method.n_members)
    weight = np.where(counts, sample.total, 0.0)
    n_own = _shares(weight, method.n_members)
    if getattr(estimator, "n_bags", None) == "auto":
        n_bags = max(settings.n_bags, np.count_nonzero(counts))
        n_own = np.maximum(_shares(weight, n_bags), counts)
        settings = replace(settings, n_bags=int(n_own.sum()))
        method = estimator._method(settings)
    if (n_own[counts] == 0).any():
        name = "n_bags" if method.units[0] == "bag" else "n_estimators"
        warn_caller(
            f"{name}={method.n_members}: {np.count_nonzero(n_own == 0)} of {len(n_own)} "
            "partitions are not used, because each tree or bag is trained on one of them; train "
            "more, or make partitions larger"
        )
    shared = dask.delayed(estimator, traverse=False)
    tasks = [
        dask.delayed(_fit_members)(shared, settings, int(count), number, *partitions[number])
        for number, count in enumerate(n_own)
        if count
    ]
    forests, records, temperatures = zip(*dask.compute(*tasks))
    forest = method.joined(_with_one_baseline(forests))
    estimator._store(forest, settings, _chained(records))
    if temperatures[0] is not None:
        estimator.temperature_ = float(np.average(temperatures, weights=n_own[n_own > 0]))
    return estimator


def _trained_blend(blend, partitions, sample):
    """Train a blend on the sample, and then its forests on all partitions."""
    has_weights = len(partitions[0]) > 2 or np.ptp(sample.weight) > 0
    blend.fit(sample.X, sample.y, sample.weight if has_weights else None)
    for name, fitted in blend.members_.items():
        if _trains_members(fitted):
            blend.members_[name] = _trained_forest(_unfitted(fitted), partitions, sample)
    vars(blend).pop("_held_out")  # scores of the forests of the sample, which are replaced
    return blend


def _fit_members(estimator, settings, n_members, number, X, y, sample_weight=None):
    """Train members on a partition; return their Forest, records, and temperature or None."""
    estimator = copy(estimator)
    estimator.verbose = 0
    estimator._seed = tree_seed(estimator._seed, PARTITION_SEED + number)
    if getattr(settings, "n_bags", 1) > 1:
        settings = replace(settings, n_bags=max(n_members, MIN_FOLDS))
    data = estimator._known_training_set(X, y, sample_weight)
    data = data.with_deviation(estimator.forest_.deviation)
    method = estimator._method(settings)
    request = estimator._request(previous=None)
    trained = train_members(method, data, range(n_members), estimator._seed, request)
    forest = method.finish(trained)
    estimator._store(forest, settings, trained.records)
    return forest, trained.records, getattr(estimator, "temperature_", None)


def _chained(lists):
    """The entries of several lists as one list."""
    return [entry for entries in lists for entry in entries]


def _with_one_baseline(forests):
    """The forests with a common baseline: the mean, if calibration has moved the baselines."""
    baseline = forests[0].baseline
    if all(np.array_equal(forest.baseline, baseline) for forest in forests):
        return list(forests)
    n_bags = [len(forest.bag_start) - 1 for forest in forests]
    baseline = np.average([forest.baseline for forest in forests], axis=0, weights=n_bags)
    return [forest.replaced(forest.arrays | {"baseline": baseline}) for forest in forests]


# ------------------------------------------------------------------------------------ prediction


def _no_response(estimator):
    """The response of no rows."""
    if hasattr(estimator, "forest_"):
        return np.zeros((0, estimator.forest_.n_outputs))
    return np.zeros((0, int(np.sum(getattr(estimator, "n_classes_", estimator.n_outputs_)))))


def _mapped(estimator, X, method, empty):
    """Apply a method of the estimator to each partition; `empty` is its result for no rows."""
    model = dask.delayed(estimator, traverse=False)
    if isinstance(X, da.Array):
        X = _with_whole_rows(X)
        return X.map_blocks(
            _predicted,
            model=model,
            method=method,
            empty=empty,
            drop_axis=list(range(1, X.ndim)),
            new_axis=list(range(1, empty.ndim)),
            chunks=(X.chunks[0], *((n,) for n in empty.shape[1:])),
            meta=empty,
        )
    if not hasattr(X, "map_partitions"):
        raise TypeError(
            f"X is of type {type(X).__name__}; a dask array or dataframe is needed. For other "
            f"types, use {method} of the estimator"
        )
    return X.map_partitions(_predicted, model=model, method=method, empty=empty, meta=empty)


def _predicted(X, model, method, empty):
    if not X.shape[0]:
        return empty
    found = getattr(model, method)(X)
    return np.concatenate(found, axis=1) if isinstance(found, list) else found
