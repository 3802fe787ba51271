"""The door. What a user expects of any forest lives here, once.

Fit: validate, encode, form the weighted set of rows, draw one seed a tree, train in parallel,
join. Predict: validate, walk blocks of rows. A model of floor 6 says how one tree is trained
(`_fit_tree`), or all at once (`_fit_forest`).

Only this file knows joblib, and only this file imports what scikit-learn does not promise to keep.
"""

from __future__ import annotations

import time
import warnings
from abc import ABCMeta, abstractmethod
from contextlib import contextmanager
from numbers import Integral, Real

import numpy as np
from joblib import effective_n_jobs
from sklearn.base import BaseEstimator, _fit_context
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions, validate_params
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted, validate_data

from ._feature_map import (
    BLOCK,
    MAX_COUNT,
    as_bytes,
    min_max,
    quick_table,
    scaled,
    table_dtype,
    tame,
    validate_weight,
)
from ._kernels.rows import RowSet, tree_seed
from .forest import Forest
from .forest.storage import join

# Fitted attributes in which training leaves an entry a tree.
RECORDS = ("loss_curve_", "validation_scores_", "n_active_leaves_", "refine_curve_", "n_iter_")

__all__ = [
    "BaseForest",
    "Integral",
    "Interval",
    "Real",
    "RealNotInt",
    "StrOptions",
    "check_is_fitted",
    "draw_seed",
    "in_threads",
    "resolve_count",
    "validate_params",
]


def resolve_count(value, total, name):
    """A number of things out of `total`, from an int or a fraction.

    Parameters
    ----------
    value : int, float or None
        A count, a fraction in (0, 1], or None for all.
    total : int
    name : str
        The parameter, for the error.

    Returns
    -------
    count : int
        At least 1.
    """
    if value is None:
        return total
    if isinstance(value, Integral):
        if value > total:
            raise ValueError(f"{name}={value} is more than the {total} distinct ones")
        return int(value)
    return max(1, round(value * total))


def in_threads(function, trees, n_jobs, verbose, name):
    """What a function returns for each of some trees.

    Parameters
    ----------
    function : callable
        Of a tree, and of an ndarray of shape (1,), uint8, that is not 0 when it shall end.
    trees : sequence
    n_jobs, verbose : int or None
    name : str
        For the progress.

    Returns
    -------
    results : list
    """
    stop = np.zeros(1, dtype=np.uint8)
    jobs = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    progress = Progress(verbose, len(trees), name)
    try:
        results = []
        for result in jobs(delayed(function)(tree, stop) for tree in trees):
            results.append(result)
            progress.update(len(results))
    finally:
        stop[0] = 1  # threads that still work see it and end
        progress.close()
    return results


class BaseForest(BaseEstimator, metaclass=ABCMeta):
    """Base of all forests; not for direct use.

    A subclass takes the parameters of `_parameter_constraints` in its ``__init__``, adds its own,
    and trains one tree in `_fit_tree`.
    """

    _parameter_constraints: dict = {
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "max_depth": [Interval(Integral, 1, None, closed="left"), None],
        "min_samples_split": [
            Interval(Integral, 2, None, closed="left"),
            Interval(RealNotInt, 0.0, 1.0, closed="right"),
        ],
        "min_samples_leaf": [
            Interval(Integral, 1, None, closed="left"),
            Interval(RealNotInt, 0.0, 1.0, closed="neither"),
        ],
        "bootstrap": ["boolean"],
        "max_samples": [
            None,
            Interval(RealNotInt, 0.0, 1.0, closed="right"),
            Interval(Integral, 1, None, closed="left"),
        ],
        "oob_score": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
    }
    _scales = False  # features are taken to [0, 1] before training, and by the forest

    # ----------------------------------------------------------------------------------- fitting

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Train the forest.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)
            No NaN, no infinity. Forests that compare features as they come keep uint8 and bool as
            bytes and turn everything else into float32; those that scale them to [0, 1] do so in
            float64.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Labels, or real targets; several outputs in regression only.
        sample_weight : array-like of shape (n_samples,), default=None
            Not negative, not all 0. A weight of k is the same as k copies of the row, and 0 the
            same as its absence. None: 1 everywhere.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            If a parameter or the data is not valid; the estimator then stays as it was.
        """
        with self._all_or_nothing():
            self._fit(X, y, sample_weight)
        return self

    @contextmanager
    def _all_or_nothing(self):
        """Interrupted or refused: leave the estimator as it was."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise

    def _fit(self, X, y, sample_weight):
        goes_on = self.warm_start and hasattr(self, "forest_")
        X, y = self._validate_fit(X, y, reset=not goes_on)
        weight = validate_weight(sample_weight, len(X))
        if self._scales:
            if goes_on:
                self._offset, self._scale = self.forest_.offset, self.forest_.scale
            else:
                self._offset, self._scale = min_max(X[weight > 0] if (weight == 0).any() else X)
            X = scaled(X, self._offset, self._scale)
        rows = RowSet(X, self._encode(y, goes_on), weight)
        del X, y
        rows.weight = tame(rows.weight)
        target = self._make_target(rows, goes_on)
        if not goes_on:
            self._seed = draw_seed(self.random_state)
        self._resolve(rows, target, goes_on)
        name, wanted, n_done = self._members(goes_on)
        if wanted < n_done:
            raise ValueError(
                f"{name}={wanted} must be larger or equal to the {n_done} trees "
                "already trained when warm_start=True"
            )
        if wanted == n_done:
            warnings.warn(
                f"Warm-start fitting without increasing {name} does not fit new trees.",
                stacklevel=4,
            )
            return
        forest = self._fit_forest(rows, target, range(n_done, wanted))
        self.forest_ = self._joined([self.forest_, forest]) if goes_on else forest
        if self.oob_score:
            self._set_oob(rows, target)

    def _rows_again(self, X, y, sample_weight):
        """Rows and target as the fitted trees see them, for whoever trains these further."""
        X, y = self._validate_fit(X, y, reset=False)
        weight = validate_weight(sample_weight, len(X))
        if self._scales:
            X = scaled(X, self.forest_.offset, self.forest_.scale)
        rows = RowSet(X, self._encode_known(y), weight)
        rows.weight = tame(rows.weight)
        return rows, self._make_target(rows, True)

    def _fit_forest(self, rows, target, trees):
        """Train the trees of the given numbers, in parallel; override to train them at once."""

        def one(tree, stop):
            return _fit_one(self, rows, target, tree_seed(self._seed, tree), stop)

        done = in_threads(one, trees, self.n_jobs, self.verbose, type(self).__name__)
        grown, records = map(list, zip(*done))
        del done
        for name in RECORDS:
            before = self.__dict__.pop(name, []) if trees[0] else []
            self.__dict__.pop(name, None)  # of other trees
            # Of all trees or of none: warm_start may go on with another way of training.
            if len(before) == trees[0] and name in records[0]:
                setattr(self, name, before + [record[name] for record in records])
        return self._joined(grown, consume=True)

    def _members(self, goes_on):
        """The parameter that counts what `_fit_tree` trains, how many it wants, how many are."""
        return "n_estimators", self.n_estimators, len(self.forest_) if goes_on else 0

    def _joined(self, forests, consume=False):
        """One forest of all trees; `consume`: the forests will not be used again."""
        meta = forests[0]._meta
        return Forest(join(forests, consume), **meta)

    @abstractmethod
    def _fit_tree(self, rows, target, weight, seed, stop):
        """Train one tree.

        Parameters
        ----------
        rows : RowSet
        target : ndarray
            (n_rows,) int32 class numbers, or (n_rows, n_outputs) float64.
        weight : ndarray of shape (n_rows,), float64
            0 for the rows that are not the tree's.
        seed : int
        stop : ndarray of shape (1,), uint8
            Not 0 when training shall end.

        Returns
        -------
        forest : Forest
            Of one tree; or a pair of it and a dict of what training recorded, which become fitted
            attributes: lists with one entry a tree.
        """

    def _resolve(self, rows, target, goes_on):
        """Turn "auto" values into fitted attributes; check parameters against the data."""

    def _bootstraps(self):
        """Do trees draw rows?"""
        return self.bootstrap

    def _counts(self, rows, seed):
        """How often a tree draws each row; the weights themselves without bootstrap."""
        if not self._bootstraps():
            return rows.weight
        n_draws = resolve_count(self.max_samples, len(rows), "max_samples")
        return rows.bootstrap(seed, n_draws)

    def _min_samples(self, n_rows):
        """(min_samples_split, min_samples_leaf) as counts."""
        split, leaf = self.min_samples_split, self.min_samples_leaf
        if not isinstance(split, Integral):
            split = max(2, int(np.ceil(split * n_rows)))
        if not isinstance(leaf, Integral):
            leaf = max(1, int(np.ceil(leaf * n_rows)))
        return max(split, 2 * leaf), leaf

    # -------------------------------------------------------------------------------- validation

    def _unfold(self, X):
        """X with its rows flattened, where it comes as (n_samples, *feature_shape)."""
        if isinstance(X, list) and getattr(self, "feature_shape", None) is not None:
            X = np.asarray(X)
        shape = getattr(X, "shape", None)
        for size, what in zip(shape or (), ("rows", "columns")):
            if isinstance(size, Integral) and size > MAX_COUNT:
                raise ValueError(f"X has {size} {what}, at most {MAX_COUNT} are supported")
        feature_shape = getattr(self, "feature_shape", None)
        if feature_shape is not None and shape is not None and len(shape) > 2:
            if tuple(shape[1:]) != tuple(np.atleast_1d(feature_shape)):
                raise ValueError(
                    f"X has rows of shape {tuple(shape[1:])}, feature_shape is {feature_shape}"
                )
            X = np.asarray(X).reshape(shape[0], -1)
        return X

    def _validate_fit(self, X, y, reset):
        if self.oob_score and not self.bootstrap:
            raise ValueError("oob_score=True needs bootstrap=True")
        if self.max_samples is not None and not self.bootstrap:
            raise ValueError(
                f"max_samples={self.max_samples} needs bootstrap=True; without a bootstrap every "
                "tree sees all rows"
            )
        X = self._unfold(X)
        try:
            X, y = validate_data(
                self,
                X,
                y,
                reset=reset,
                dtype=table_dtype(X, self._scales),
                order="C",
                **self._target_options,
            )
        except (ValueError, TypeError) as error:
            if "could not convert" not in str(error) and "float()" not in str(error):
                raise
            message = f"X, and y in regression, must hold numbers: {error}"
            raise type(error)(message) from error
        return (X if self._scales else as_bytes(X)), y

    def _validate_predict(self, X):
        check_is_fitted(self, "forest_")
        if not hasattr(self, "feature_names_in_"):
            few = quick_table(X, self.n_features_in_, self._scales)
            if few is not None:
                return few
        X = self._unfold(X)
        dtype = table_dtype(X, self._scales)
        X = validate_data(self, X, reset=False, dtype=dtype, order="C")
        return X if self._scales else as_bytes(X)

    def _new_forest(self, arrays, **meta):
        """A Forest of this estimator's task."""
        return Forest(
            arrays,
            n_features=self.n_features_in_,
            feature_names=getattr(self, "feature_names_in_", None),
            **self._forest_options,
            **meta,
        )

    # -------------------------------------------------------------------------------- predicting

    def _response(self, X):
        """Response of every row; parallel over blocks of rows where there are many."""
        X = self._validate_predict(X)
        return self._in_blocks(X, self.forest_.response)

    def _in_blocks(self, X, function):
        if len(X) <= BLOCK:
            return function(X)
        n_jobs = effective_n_jobs(self.n_jobs)
        size = min(BLOCK, -(-len(X) // n_jobs))
        blocks = [X[start : start + size] for start in range(0, len(X), size)]
        if n_jobs == 1:
            parts = [function(block) for block in blocks]
        else:
            parts = Parallel(n_jobs=n_jobs, prefer="threads", require="sharedmem")(
                delayed(function)(block) for block in blocks
            )
        return np.concatenate(parts)

    def apply(self, X):
        """Leaf that every row reaches in every tree.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)

        Returns
        -------
        leaves : ndarray of shape (n_samples, n_estimators), int32
            Node numbers, counted from the root of each tree.
        """
        X = self._validate_predict(X)
        return self._in_blocks(X, self.forest_.apply)

    def decision_path(self, X):
        """Nodes that every row passes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or (n_samples, *feature_shape)

        Returns
        -------
        indicator : csr_matrix of shape (n_samples, n_nodes)
            1 where the row passes the node.
        n_nodes_ptr : ndarray of shape (n_estimators + 1,)
            Columns ``n_nodes_ptr[i] .. n_nodes_ptr[i + 1] - 1`` are tree i.
        """
        X = self._validate_predict(X)
        return self.forest_.decision_path(X)

    @property
    def feature_importances_(self):
        """ndarray of shape (n_features,): not negative, sum 1 (all 0 if no tree splits).

        Of the kind `importance_type`, see `Forest.feature_importances`. Reshape to `feature_shape`
        to look at them as a picture.
        """
        check_is_fitted(self, "forest_")
        return self.forest_.feature_importances(getattr(self, "importance_type", "impurity"))

    # ---------------------------------------------------------------------------------- out of bag

    def _set_oob(self, rows, target):
        """Predict every row with the trees that did not draw it; set the oob attributes."""
        total = np.zeros((len(rows), self.forest_.n_outputs))
        n_trees = np.zeros(len(rows))
        for tree in range(len(self.forest_)):
            out = self._counts(rows, tree_seed(self._seed, tree)) == 0
            total[out] += self.forest_[tree]._respond(rows.X[out])
            n_trees += out
        known = n_trees > 0
        if not known.all():
            warnings.warn(
                "Some inputs do not have OOB scores. This probably means too few trees were used "
                "to compute any reliable OOB estimates.",
                stacklevel=5,
            )
        with np.errstate(invalid="ignore"):
            response = total / n_trees[:, None]
        of_samples = np.full((len(rows.position), response.shape[1]), np.nan)
        present = rows.position >= 0
        of_samples[present] = response[rows.position[present]]
        self._set_oob_attributes(of_samples, response[known], rows, known)


def _fit_one(estimator, rows, target, seed, stop):
    """Train one tree, in a worker: the tree, and what training recorded."""
    weight = estimator._tree_weight(rows, target, seed)
    grown = estimator._fit_tree(rows, target, weight, seed, stop)
    return grown if isinstance(grown, tuple) else (grown, {})


def draw_seed(random_state):
    """62 random bits.

    Parameters
    ----------
    random_state : int, RandomState or None

    Returns
    -------
    seed : int
    """
    high, low = check_random_state(random_state).randint(2**31 - 1, size=2, dtype=np.int64)
    return (int(high) << 31) + int(low)


def _bar(total, name):
    """A tqdm bar; None without tqdm."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a text bar
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=name, unit="tree")


class Progress:
    """Shows how many of `total` trees are done.

    Parameters
    ----------
    verbose : int
        0: silent. 1: a bar, or about ten lines. More: a line after every tree, without tqdm.
    total : int
    name : str
    """

    def __init__(self, verbose, total, name):
        self.verbose = int(verbose)
        self.total = total
        self.name = name
        self.start = time.perf_counter()
        self.shown = 0
        self.bar = _bar(total, name) if self.verbose else None

    def update(self, done):
        """Tell that `done` trees are done."""
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
            return
        step = 1 if self.verbose > 1 else max(1, self.total // 10)
        if done - self.shown >= step or done == self.total:
            self.shown = done
            rate = done / max(time.perf_counter() - self.start, 1e-9)
            print(
                f"{self.name}: {done} of {self.total} trees, {rate:.1f} trees/s, "
                f"{(self.total - done) / rate:.0f} s left",
                flush=True,
            )

    def close(self):
        """The fit has ended."""
        if self.bar is not None:
            self.bar.close()
