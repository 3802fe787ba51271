"""Ranges of parameters that are worth searching, for each kind of estimator."""

import numpy as np
from scipy.stats import loguniform, randint, uniform

from .unwrap import refusal

# By the name of the class without its ending. Each range has the default, or its value on tables
# of some thousand rows. None of them was tuned.
RANGES = {
    "ObliqueBoosting": {
        "learning_rate": loguniform(0.03, 0.3),
        "max_depth": randint(2, 9),
        "min_samples_leaf": randint(1, 41),
        "l2_regularization": loguniform(0.3, 100.0),
        "n_directions": [0, 16, 32, 64],
        "subsample": uniform(0.5, 0.5),
    },
    "ManifoldForest": {
        "max_features": ["auto", 0.5, 1.0, 2.0, 4.0],
        "min_samples_leaf": randint(1, 16),
    },
    "CO2Forest": {
        "max_features": ["auto", 0.3, 0.6, None],
        "min_samples_leaf": randint(1, 16),
        "nu": loguniform(3.0, 300.0),
    },
    "RandomHingeForest": {
        "learning_rate": loguniform(0.003, 0.2),
        "max_depth": randint(3, 9),
        "dropout": uniform(0.0, 0.4),
        "procedure__importance_power": [0.0, 0.5, 1.0, 1.5],
    },
    "NonGreedyTree": {
        "max_depth": randint(3, 13),
        "nu": loguniform(3.0, 300.0),
        "learning_rate": loguniform(0.05, 1.0),
    },
    "E2EDecisionForest": {
        "max_depth": randint(4, 11),
        "procedure__learning_rate": loguniform(0.001, 0.1),
    },
}
LARGEST_PATCH = 8  # of manifold forests


def param_distributions(estimator, prefix=""):
    """Ranges of the parameters of an estimator that are worth searching.

    Parameters
    ----------
    estimator : estimator of skforest
        A forest, a tree or boosting, fitted or not, or a pipeline that ends with one. Blends have
        no parameters of this kind.
    prefix : str, default=""
        Beginning of all names. The names for a pipeline begin with that of its last step anyway.

    Returns
    -------
    distributions : dict of str to distribution or list
        By the names of parameters: distributions of SciPy, or lists of values, as
        :class:`~sklearn.model_selection.RandomizedSearchCV` takes them. Most ranges contain
        the default; they suit tables of some hundred to some ten thousand rows.

    Raises
    ------
    TypeError
        If the estimator is not one of these.

    See Also
    --------
    sklearn.model_selection.RandomizedSearchCV : Tries random values.
    sklearn.model_selection.HalvingRandomSearchCV : Tries many of them with few rows first.

    Notes
    -----
    A distribution ``d`` of the result has the ends ``d.support()``, and ``d.dist.name`` is
    "randint", "uniform" or "loguniform". :doc:`/guide/faq` has a search with optuna.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import RandomizedSearchCV
    >>> from skforest import ObliqueBoostingRegressor, param_distributions
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ObliqueBoostingRegressor(20, n_bags=1, random_state=0)
    >>> ranges = param_distributions(model)
    >>> search = RandomizedSearchCV(model, ranges, n_iter=2, cv=2, random_state=0).fit(X, y)
    >>> for name, value in search.best_params_.items():
    ...     print(name, round(value, 2))
    l2_regularization 7.27
    learning_rate 0.16
    max_depth 5
    min_samples_leaf 4
    n_directions 64
    subsample 0.71
    """
    if getattr(estimator, "steps", None):
        step, last = estimator.steps[-1]
        return param_distributions(last, f"{prefix}{step}__")
    name = type(estimator).__name__.removesuffix("Classifier").removesuffix("Regressor")
    if name not in RANGES:
        raise refusal(estimator, needed="a forest, a tree or boosting of skforest")
    ranges = RANGES[name]
    if name == "ManifoldForest" and getattr(estimator, "_layout", None) is not None:
        shape = () if estimator.feature_shape is None else np.ravel(estimator.feature_shape)
        most = min([LARGEST_PATCH, *map(int, shape)])
        if most > 2:
            ranges = ranges | {"procedure__max_patch": randint(2, most + 1)}
    return {prefix + key: values for key, values in ranges.items()}
