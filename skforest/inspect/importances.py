"""Importances of the columns of fitted forests, boosting and blends, as a table."""

import numpy as np

from ..estimators.prediction import prediction_of
from ..estimators.unwrap import unwrapped
from .contents import importances_of_forest

IMPORTANCE_TYPES = ("impurity", "count")


def importances_table(estimator, importance_type="impurity"):
    """Importances of the columns of X with their names, the most important first.

    All features that are made from a column, such as the indicators of its levels or of its
    missing values, are added up.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted forest, tree, boosting, or blend of these and other estimators. It may be inside a
        search or a pipeline, whose transformers then name the features.
    importance_type : {"impurity", "count"}, default="impurity"
        "impurity": decrease of impurity, as in `feature_importances_`. "count": number of splits
        that use a column; not for blends. See `Forest.feature_importances`.

    Returns
    -------
    table : DataFrame, or dict of lists without pandas
        The index, or the first entry of the dict, is "feature": names of the columns of X, or
        "x0", "x1" and so on if they have none. Columns:

        importance : float
            At least 0, with sum 1, or all 0 if there is no split.
        std : float
            Standard deviation of the importance over the trees; over bags for hinge forests and
            oblique boosting; over the members of a blend, with their weights. NaN if there is only
            one of these.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If the estimator is not one of skforest, or has no importances, such as
        `torch.E2ENetworkTree` and estimators that `slim` returned.
    ValueError
        If `importance_type` is invalid, or is "count" for a blend.

    See Also
    --------
    shapley_values : Divides single predictions among the columns.
    sklearn.inspection.permutation_importance : Loss of score when a column is permuted.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from skforest import ManifoldForestRegressor, importances_table
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> forest = ManifoldForestRegressor(50, random_state=0).fit(X, y)
    >>> importances_table(forest).head(4).round(2)
             importance   std
    feature
    bmi            0.18  0.06
    s5             0.18  0.07
    bp             0.10  0.05
    s3             0.10  0.05
    """
    if importance_type not in IMPORTANCE_TYPES:
        raise ValueError(f"importance_type={importance_type!r} must be one of {IMPORTANCE_TYPES}")
    whole, estimator = unwrapped(estimator), unwrapped(estimator).estimator
    if prediction_of(estimator).is_blend:
        if importance_type != "impurity":
            raise ValueError(
                f"importance_type={importance_type!r} needs a single forest; for a blend, only "
                '"impurity" is possible'
            )
        importance, std = _importances_of_blend(estimator)
    else:
        if not hasattr(estimator, "feature_importances_"):
            raise TypeError(
                f"estimator is of type {type(estimator).__name__} and has no importances: its "
                "splits are networks, or slim() removed what importances need"
            )
        importance, std, _ = importances_of_forest(estimator.forest_, importance_type)
    names = whole.names(getattr(estimator, "feature_names_in_", None))
    if names is None:
        names = [f"x{j}" for j in range(len(importance))]
    order = np.argsort(-importance, kind="stable")
    names = [str(names[j]) for j in order]
    columns = {"importance": importance[order], "std": std[order]}
    try:
        import pandas as pd
    except ImportError:
        return {"feature": names} | {key: values.tolist() for key, values in columns.items()}
    return pd.DataFrame(columns, index=pd.Index(names, name="feature"))


def _importances_of_blend(blend):
    """Importances of the inputs and their weighted standard deviations over members."""
    try:
        importance = blend.feature_importances_
    except AttributeError as error:  # of a blend after slim(), it says why
        raise TypeError(f"estimator has no importances: {error}") from None
    members = [
        (blend.weights_[name], np.asarray(own))
        for name, model in blend.members_.items()
        if np.shape(own := getattr(model, "feature_importances_", None)) == importance.shape
    ]
    if len(members) < 2:
        return importance, np.full(len(importance), np.nan)
    weight, found = map(np.array, zip(*members))
    found = found / np.maximum(found.sum(axis=1, keepdims=True), np.finfo(float).tiny)
    return importance, np.sqrt(np.average((found - importance) ** 2, axis=0, weights=weight))
