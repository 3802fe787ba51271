"""Take fitted estimators out of the searches and pipelines around them.

Every function that takes a fitted estimator begins with `unwrapped`, or with `unwrapped_alone`
where its result has no place for the transformers of a pipeline.
"""

import copy
from dataclasses import dataclass

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

# Where meta-estimators of scikit-learn keep the estimators that they fitted; errors name them.
INNER = {
    "regressor_": "regressor_",
    "calibrated_classifiers_": "calibrated_classifiers_[0].estimator",
    "estimators_": "estimators_[0]",
    "estimator_": "estimator_",
    "base_estimator_": "base_estimator_",
}


@dataclass(frozen=True)
class Unwrapped:
    """A fitted estimator, and the transformers that rows pass through before it.

    Attributes
    ----------
    estimator : object
        The estimator, which is neither a search nor a pipeline.
    transformers : list of Pipeline
        Fitted, in order, without the last step.
    path : str
        Expression that leads to the estimator, as ``estimator.best_estimator_[-1]``.
    paths : list of str
        Expressions that lead to the transformers.
    step : str or None
        Name of the step of a pipeline that the estimator is, after transformers.
    """

    estimator: object
    transformers: list
    path: str
    paths: list
    step: str | None = None

    def transform(self, X):
        """Rows as the estimator takes them."""
        for steps in self.transformers:
            X = steps.transform(X)
        return X

    def names(self, given=None):
        """Names of the columns that the estimator takes: the given ones, or the transformers'.

        None if there are no transformers, or one of them gives no names.
        """
        if given is not None or not self.transformers:
            return given
        names = self._names_out()
        return None if names == [f"x{j}" for j in range(len(names or ()))] else names

    @property
    def has_names(self):
        """bool: do names say which columns the estimator takes?"""
        return not self.transformers or self._names_out() is not None

    def _names_out(self):
        names = None
        try:
            for steps in self.transformers:
                names = steps.get_feature_names_out(names)
        except (AttributeError, TypeError, ValueError):
            return None
        return [str(name) for name in names]


def unwrapped(estimator):
    """The estimator inside of fitted searches and pipelines, as `Unwrapped`.

    Of any other object, `estimator` is the object itself. Raises NotFittedError if a search has no
    best estimator, and TypeError if a pipeline has no last step.
    """
    transformers, paths, step, path = [], [], None, "estimator"
    while True:
        inner = _inner(estimator, path)
        if inner is None:
            return Unwrapped(estimator, transformers, path, paths, step)
        if isinstance(estimator, Pipeline) and not _passes_through(estimator):
            transformers.append(estimator[:-1])
            paths.append(f"{path}[:-1]")
            step = estimator.steps[-1][0]
        estimator, path = inner


def _inner(estimator, path):
    """The estimator inside of one search or pipeline, and its path; None if there is none."""
    if isinstance(estimator, FrozenEstimator):
        return estimator.estimator, f"{path}.estimator"
    if isinstance(estimator, Pipeline):
        last = estimator.steps[-1][1] if estimator.steps else None
        if last is None or isinstance(last, str):
            raise TypeError(f"{path} is a pipeline whose last step is {last!r}, not an estimator")
        return last, f"{path}[-1]"
    if hasattr(estimator, "best_estimator_"):
        return estimator.best_estimator_, f"{path}.best_estimator_"
    if not isinstance(estimator, type) and hasattr(estimator, "refit") and _is_search(estimator):
        name = type(estimator).__name__
        if hasattr(estimator, "cv_results_"):
            raise NotFittedError(
                f"{path} is a {name} with refit={estimator.refit!r}, which has no "
                "best_estimator_: set refit=True, or fit an estimator with its best parameters"
            )
        raise NotFittedError(f"{path} is a {name}, which is not fitted; call fit first")
    return None


def _is_search(estimator):
    return isinstance(estimator, BaseEstimator) and isinstance(
        getattr(estimator, "estimator", None), BaseEstimator
    )


def unwrapped_alone(estimator, result, advice="", operations_of=lambda step: None):
    """`unwrapped(estimator).estimator`; TypeError if a pipeline transforms X before it.

    `result` names the thing that cannot contain the transformers, such as "a file"; `advice` is
    the end of the message. Transformers for which ``operations_of(step)`` is not None are allowed.
    """
    found = unwrapped(estimator)
    for steps, where in zip(found.transformers, found.paths):
        for name, step in active_steps(steps):
            if operations_of(step) is not None:
                continue
            raise TypeError(
                f"step {name!r} of {where.removesuffix('[:-1]')}, a {type(step).__name__}, is not "
                f"part of {result}: pass {found.path}, and give it rows that "
                f"{' and '.join(found.paths)} transformed{advice}"
            )
    return found.estimator


def members_of(blend):
    """Members of a blend as a dict, without searches, and without pipelines that change no row.

    A pipeline that changes rows stays as it is.
    """
    found = {name: unwrapped(member) for name, member in blend.members_.items()}
    return {
        name: blend.members_[name] if any(map(active_steps, one.transformers)) else one.estimator
        for name, one in found.items()
    }


def _passes_through(pipeline):
    """Does a pipeline pass rows to its last step unchanged, with the same type?"""
    return all(
        step is None or isinstance(step, str) or (isinstance(step, Pipeline) and not len(step))
        for _, step in pipeline.steps[:-1]
    )


def active_steps(pipeline):
    """Names and transformers of the steps of a pipeline that change its rows."""
    found = []
    for name, step in pipeline.steps:
        if isinstance(step, Pipeline):
            found += active_steps(step)
        elif step is not None and not isinstance(step, str):
            is_identity = isinstance(step, FunctionTransformer) and step.func is None
            found += [] if is_identity else [(name, step)]
    return found


def rewrapped(estimator, change):
    """The pipelines around an estimator, without searches, with ``change(estimator)`` inside."""
    inner = _inner(estimator, "estimator")
    if inner is None:
        return change(estimator)
    changed = rewrapped(inner[0], change)
    if not isinstance(estimator, Pipeline):
        return changed
    pipeline = copy.copy(estimator)
    pipeline.steps = [*pipeline.steps[:-1], (pipeline.steps[-1][0], changed)]
    return pipeline


def refusal(estimator, needed="a fitted estimator of skforest"):
    """TypeError for an estimator that a function cannot take."""
    got = f"{type(estimator).__name__}{inside(estimator)}"
    return TypeError(f"estimator must be {needed}, got {got}")


def inside(estimator):
    """End of an error that names the estimators inside of a meta-estimator of scikit-learn."""
    found = [path for key, path in INNER.items() if hasattr(estimator, key)]
    return f"; pass one of the estimators in it, such as {found[0]}" if found else ""
