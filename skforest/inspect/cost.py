"""Time and memory of a fit, predicted from fits on few rows."""

import tracemalloc
import warnings
from dataclasses import dataclass
from numbers import Real
from time import perf_counter

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import check_random_state

from ..estimators.base import take_rows
from ..table.frames import as_array, as_frame

FIRST = 100  # rows of the smallest sample
GROWTH, LEAST_GROWTH = 8.0, 2.0  # at most, and at least, from a sample to the next
SHARE = 0.35  # of the time that is left, for the next sample
TRACED = 3.0  # a fit whose memory is traced takes so many times as long (2.7 to 3.1 in three fits)
MOST = 1.2  # exponent of the growth with the number of rows; of memory, 1
NOISE = 1.2  # factor of the range in both directions, even if all rows were fitted
UNCERTAIN = 0.5  # of the exponent


@dataclass(frozen=True)
class FitCost:
    """Predicted cost of a fit; each range is a pair of a low and a high value.

    Attributes
    ----------
    seconds, seconds_range : float, tuple of float
        Time of `fit`.
    mib, mib_range : float, tuple of float
        Peak of the memory that `fit` adds, in MiB; NaN if there was no time to trace it.
    model_mib : float
        Memory of the fitted model, in MiB, or NaN.
    n_samples : int
        Number of rows for which the cost is predicted.
    samples : dict of int to float
        Seconds of the fits that were measured, by their number of rows.
    """

    seconds: float
    seconds_range: tuple
    mib: float
    mib_range: tuple
    model_mib: float
    n_samples: int
    samples: dict

    def __str__(self):
        seconds, mib = (
            f"{_rounded(value)} {unit} ({_rounded(of[0])} to {_rounded(of[1])} {unit})"
            for value, of, unit in (
                (self.seconds, self.seconds_range, "s"),
                (self.mib, self.mib_range, "MiB"),
            )
        )
        if np.isnan(self.mib):
            return f"about {seconds}; no time to trace the memory, raise budget"
        return f"about {seconds}, {mib}, model {_rounded(self.model_mib)} MiB"

    def __repr__(self):
        return f"<{type(self).__name__} of {self.n_samples} rows: {self}>"


def _rounded(value):
    """A number with two digits, and without an exponent: 0.034, 5.2, 41, 1300."""
    return np.format_float_positional(float(f"{value:.2g}"), trim="-")


def estimate_cost(estimator, X, y, *, budget=20.0, random_state=0):
    """Predict the time and the memory of ``estimator.fit(X, y)`` on this machine.

    Copies of the estimator are fitted to random samples of the rows, each larger than the one
    before. The time is extrapolated by its growth from the second largest sample to the largest.
    Memory is traced last, in fits of the smallest and of the largest sample for which there is
    time. The estimator is not changed.

    Parameters
    ----------
    estimator : estimator
        Any estimator of scikit-learn's kind, such as one of this package or a search over its
        parameters. Its `n_jobs` and `time_limit` apply, and the `time_limit` of the last step of a
        pipeline.
    X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
        The table of the fit.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Class labels, or numbers in regression.
    budget : float, default=20.0
        Seconds for all fits together, greater than 0. The more time, the better the prediction.
        Samples of 100 and 200 rows are fitted even if this takes longer, but not traced.
    random_state : int, RandomState or None, default=0
        Which rows are drawn.

    Returns
    -------
    cost : FitCost
        With `seconds`, `mib` (the peak of the memory that `fit` adds), `model_mib`, and the ranges
        `seconds_range` and `mib_range`.

    Raises
    ------
    ValueError
        If X has no rows, or another number of rows than y, or `budget` is not positive.

    Notes
    -----
    The cost is predicted twice: by a power of the number of rows, with an exponent from 0 to 1.2
    (for memory, 1), and by a straight line. The result is the geometric mean of both, and the
    range contains both, and more if the largest sample is small. Early stopping makes times vary:
    the number of rounds on few rows says little about that on many. Hinge forests choose their
    weight decay, which saves steps, more often on few rows. Samples are fitted with the numbers of
    bags, trees and directions that "auto" has for all rows, also in pipelines and searches, or for
    the rows that are left if a search holds out a fold. From 5000 rows on, blends compare their
    members on fewer folds, and from 20,000 rows on, boosting in a blend has one bag instead of
    five, so fits of blends are often shorter than predicted.

    Memory is traced by Python: it includes arrays of NumPy and of the kernels of this package, but
    not what other libraries allocate in C, nor what other processes need.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from skforest import ManifoldForestClassifier, estimate_cost
    >>> X, y = make_classification(1000, random_state=0)
    >>> cost = estimate_cost(ManifoldForestClassifier(random_state=0), X, y)
    >>> print(cost)  # doctest: +SKIP
    about 0.2 s (0.16 to 0.23 s), 1.2 MiB (1 to 1.4 MiB), model 0.21 MiB
    >>> sorted(cost.samples)
    [100, 800, 1000]
    """
    if not isinstance(budget, Real) or not budget > 0:
        raise ValueError(f"budget must be greater than 0 seconds, got {budget!r}")
    X = as_array(as_frame(X))
    y = y if hasattr(y, "shape") else np.asarray(y)
    n = X.shape[0]
    if not n or len(y) != n:
        raise ValueError(f"X has {n} rows and y has {len(y)}; both need the same number of rows")
    estimator, limit = clone(estimator), _time_limit(estimator)
    _set_auto(estimator, n)
    order = check_random_state(random_state).permutation(n)
    if is_classifier(estimator) and np.ndim(y) == 1:  # every class is in every sample
        _, first = np.unique(np.asarray(y)[order], return_index=True)
        order = np.concatenate([order[first], np.delete(order, first)])
    end, size, seconds = perf_counter() + budget, min(n, FIRST), {}
    seconds[size] = _seconds(estimator, X, y, order[:size])
    if seconds[size] < budget / 10:  # the first fit also imported what fits need
        seconds[size] = _seconds(estimator, X, y, order[:size])
    rest = TRACED * seconds[size]  # for the memory of the smallest sample
    while True:
        growth = min(SHARE * (end - rest - perf_counter()) / seconds[size], GROWTH, n / size)
        least = min(LEAST_GROWTH, n / size)
        # The growth from 100 to 200 rows says little: a third sample may take all that is left.
        has_time = least * seconds[size] < end - perf_counter()
        goes_on = growth >= least or len(seconds) == 1
        goes_on |= has_time and len(seconds) == 2 and size <= LEAST_GROWTH * FIRST
        if size == n or seconds[size] > 0.9 * limit or not goes_on:
            break
        size = min(n, int(max(growth, least) * size))
        seconds[size] = _seconds(estimator, X, y, order[:size])
    memory = {}
    for size in (min(seconds), *sorted(seconds, reverse=True)):
        if len(memory) < 2 and TRACED * seconds[size] < end - perf_counter():
            memory[size] = memory.get(size) or _traced(estimator, X, y, order[:size])
    memory = memory or {n: (np.nan, np.nan)}
    total, *total_range = extrapolated(seconds, n, MOST)
    peak, *peak_range = extrapolated({k: v[0] for k, v in memory.items()}, n, 1.0)
    model, *_ = extrapolated({k: v[1] for k, v in memory.items()}, n, 1.0)
    total, *total_range = (min(value, limit) for value in (total, *total_range))
    return FitCost(total, tuple(total_range), peak, tuple(peak_range), model, n, seconds)


def extrapolated(measured, n, most):
    """A quantity for n rows, and a low and a high value of it.

    `measured` has values by number of rows, and `most` is the largest exponent of a power law.
    """
    *before, last = sorted(measured)
    value, factor = measured[last], n / last
    if factor == 1:
        power = line = value
    elif before:
        other = measured[before[-1]]
        exponent = np.log(value / other) / np.log(last / before[-1])
        power = value * factor ** np.clip(exponent, 0, most)
        line = value + max(value - other, 0) / (last - before[-1]) * (n - last)
        line = min(line, value * factor**most)
    else:  # it may not grow, or in proportion
        power, line = value, value * factor
    low, high = sorted((power, line))
    noise = NOISE * factor**UNCERTAIN
    return tuple(map(float, (np.sqrt(low * high), low / noise, high * noise)))


def _set_auto(estimator, n):
    """Set parameters that are "auto", also of estimators inside, as for a fit of n rows."""
    if isinstance(estimator, FrozenEstimator):  # `fit` does nothing
        return
    sizes = estimator._auto_sizes(n) if hasattr(estimator, "_auto_sizes") else {}
    for name, value in sizes.items():
        if isinstance(getattr(estimator, name), str):  # few rows would have another value
            estimator.set_params(**{name: value})
    n_folds = _n_folds(estimator)
    for inner in _inside(estimator):
        _set_auto(inner, n - n // n_folds if n_folds > 1 else n)


def _time_limit(estimator):
    """Seconds after which the time limit of an estimator, or of the end of a pipeline, ends it."""
    while isinstance(estimator, Pipeline):
        estimator = estimator[-1]
    params = estimator.get_params(deep=False) if hasattr(estimator, "get_params") else {}
    return params.get("time_limit") or np.inf


def _inside(value):
    """List the estimators that are parameters of another one, or are in lists of parameters."""
    params = value.get_params(deep=False).values() if hasattr(value, "get_params") else value
    found = []
    for param in params:
        if hasattr(param, "get_params") and not isinstance(param, type | FrozenEstimator):
            found.append(param)
        elif isinstance(param, list | tuple):
            found += _inside(param)
    return found


def _n_folds(estimator):
    """Number of folds in which an estimator fits those inside; 1 if it is not known."""
    try:
        return check_cv(estimator.get_params(deep=False)["cv"]).get_n_splits()
    except (KeyError, TypeError, ValueError):
        return 1


def _fitted(estimator, X, y, rows):
    model = clone(estimator)
    if model.get_params(deep=False).get("verbose"):
        model.set_params(verbose=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few rows cause some of their own
        return model.fit(take_rows(X, np.sort(rows)), take_rows(y, np.sort(rows)))


def _seconds(estimator, X, y, rows):
    start = perf_counter()
    _fitted(estimator, X, y, rows)
    return max(perf_counter() - start, 1e-6)


def _traced(estimator, X, y, rows):
    """Peak of the memory that a fit adds, and the memory of its model, in MiB."""
    is_tracing = tracemalloc.is_tracing()
    if not is_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        model = _fitted(estimator, X, y, rows)
        after, peak = tracemalloc.get_traced_memory()
        del model
    finally:
        if not is_tracing:
            tracemalloc.stop()
    return [max(size - before, 1) / 2**20 for size in (peak, after)]
