"""Scores of the first trees of a fitted forest, of more trees, and so on."""

import numpy as np
from sklearn.metrics import check_scoring

from ..estimators.prediction import predicting
from ..estimators.unwrap import refusal, unwrapped
from ..estimators.validation import errors_about
from .contents import forest_of, refuse_networks


def staged_scores(estimator, sets, scoring=None):
    """Scores of several data sets after each round of boosting, or with a growing number of trees.

    They are computed from the fitted model, so you can add a set or a score without training.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted forest, tree or boosting; no blend. It may be inside a search or a pipeline, which
        then transforms the rows.
    sets : dict of str to tuple
        Maps the name of each set to ``(X, y)`` or ``(X, y, sample_weight)``.
    scoring : str, callable, list of str, dict or None, default=None
        Scores, as scikit-learn's `cross_validate` takes them: larger is better. None: that of the
        method `score` of the estimator, named "score".

    Returns
    -------
    scores : dict of str to dict of str to ndarray of shape (n_stages,), float64
        The curve of each set, by the name of the score and then of the set. In oblique boosting,
        entry k belongs to the first k + 1 trees of all bags, as in `staged_predict`; in hinge
        forests, to the first k + 1 bags; in other forests, to the first k + 1 trees. The last
        entry is the score of the whole model.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is not an estimator of skforest, or a blend; or if `sets` is no dict of tuples.
    ValueError
        If a set or a score is invalid.

    See Also
    --------
    TrainingCurveDisplay : Plots these curves, and those that training recorded.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import train_test_split
    >>> from skforest import ObliqueBoostingRegressor, staged_scores
    >>> parts = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    >>> X_train, X_test, y_train, y_test = parts
    >>> model = ObliqueBoostingRegressor(100, early_stopping=False, random_state=0)
    >>> model = model.fit(X_train, y_train)
    >>> sets = {"train": (X_train, y_train), "test": (X_test, y_test)}
    >>> curves = staged_scores(model, sets, ["r2", "neg_mean_absolute_error"])["r2"]
    >>> for name, curve in curves.items():
    ...     print(name, curve[[0, 24, 49, 99]].round(2))
    train [0.12 0.83 0.93 0.98]
    test [0.07 0.33 0.29 0.26]
    """
    forest_of(estimator)
    refuse_networks(estimator)
    whole, model = unwrapped(estimator), unwrapped(estimator).estimator
    if not hasattr(model, "_staged_response"):
        raise refusal(model)
    if not isinstance(sets, dict) or not sets:
        raise TypeError(f"sets must be a dict of names to (X, y), got {sets!r:.60}")
    scorer, names = _scorer(model, scoring)
    found = {name: {} for name in names}
    for name, rows in sets.items():
        if not isinstance(rows, tuple) or len(rows) not in (2, 3):
            raise TypeError(f"sets[{name!r}] must be (X, y) or (X, y, sample_weight)")
        X, y, *weight = rows
        options = {"sample_weight": weight[0]} if weight and weight[0] is not None else {}
        with errors_about(f"sets[{name!r}]"):
            scores = [
                scorer(predicting(model, X, response), X, y, **options)
                for response in model._staged_response(whole.transform(X))
            ]
        for one, curves in found.items():
            curves[name] = np.array([of_stage[one] for of_stage in scores], dtype=np.float64)
    return found


def _scorer(model, scoring):
    """A scorer of several scores, which returns a dict, and their names."""
    if scoring is None:
        scoring = {"score": check_scoring(model)}
    elif isinstance(scoring, str) or callable(scoring):
        name = scoring if isinstance(scoring, str) else getattr(scoring, "__name__", "score")
        scoring = {name: scoring}
    return check_scoring(model, scoring), list(scoring)
