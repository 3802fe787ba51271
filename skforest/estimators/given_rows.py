"""`fit` of estimators that take rows for early stopping."""

from functools import wraps
from inspect import signature

from scipy import sparse

from .._docs import with_texts
from ..table.training_set import check_sample_weight, rescale_weights
from ..training.threads import with_callbacks
from .base import _fit_context
from .validation import errors_about


def names_class(fit):
    """A `fit` that names the public class if it is passed an unknown parameter."""

    @wraps(fit)
    def checked(self, *args, **given):
        for name in given.keys() - signature(fit).parameters.keys():
            words = f"{type(self).__name__}.fit has no parameter {name!r}"
            raise TypeError(f"{words}; rows for early stopping are X_val and y_val")
        return fit(self, *args, **given)

    return checked


def given_rows(estimator, X_val, y_val, sample_weight_val):
    """The rows for early stopping, as a field of `FitRequest`; None if there are none."""
    if X_val is None and y_val is None and sample_weight_val is None:
        return None
    for name, value in (("X_val", X_val), ("y_val", y_val)):
        if value is None:
            raise ValueError(f"{name}=None: X_val and y_val must be passed together")
    if not getattr(estimator, "early_stopping", True):
        raise ValueError(
            f"early_stopping={estimator.early_stopping!r} cannot be used with X_val and y_val: "
            'set it to "auto" or True'
        )
    return X_val, y_val, sample_weight_val


@with_texts()
class GivenRowsMixin:
    """`X_val` in `fit`; before `BaseForest` in the list of bases."""

    @names_class
    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(
        self,
        X,
        y,
        sample_weight=None,
        groups=None,
        *,
        X_val=None,
        y_val=None,
        sample_weight_val=None,
        checkpoint=None,
    ):
        """Train the forest.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Or of shape ``(n_samples, *feature_shape)``. It may hold numbers, categories and
            missing values, see :doc:`/guide/tables`, but no infinite values. Sparse X is possible
            without `feature_shape`, and in boosting without linear leaves and a linear start.
        {takes_targets}
        groups : array-like of shape (n_samples,), default=None
            Groups of rows that are held out together, such as all rows of a patient; at least 2
            groups. None: rows are held out one by one.
        X_val : {array-like, sparse matrix, dataframe} of shape (n_val, n_features), default=None
            Rows for early stopping, with the columns of X, instead of held-out rows of X. All bags
            are then trained on all rows of X, and none is trained again. Hinge forests are then
            stopped early, too. `X_val` also determines the shift of a quantile, and with at least
            100 rows the factor of means in boosting.
        {takes_given_targets}
        {checkpoint}

        {returns_self}
        """
        validation = given_rows(self, X_val, y_val, sample_weight_val)
        given = {"groups": groups, "validation": validation, "checkpoint": checkpoint}
        return self._fit(X, y, sample_weight=sample_weight, **given)

    def _read_training_set(self, X, y, request):
        data = super()._read_training_set(X, y, request)
        if request.validation is None:
            return data
        return data.with_validation(self._read_validation(data, request))

    def _read_validation(self, data, request):
        """`X_val` as a TrainingSet, with its target in the units of the target of X."""
        X, y, weight = request.validation
        with errors_about("X_val, y_val"):
            X, y, _, levels = self._validate_fit(X, y, None, data.feature_map.levels)
        weight = check_sample_weight(weight, X.shape[0], "sample_weight_val")
        y, weight = self._encode_known_target(y, "y_val"), rescale_weights(weight)
        with errors_about("X_val"):
            rows = self._merged_rows(X, y, weight, levels, data.feature_map, has_new_labels=True)
        if sparse.issparse(data.X) != sparse.issparse(rows.X):
            raise TypeError("X_val must be sparse if X is sparse, and dense otherwise")
        scale, y = self._make_loss().scale, self._numeric_target(rows.y)
        with errors_about("y_val"):
            scale.check(y, rows.weight)
            return rows.with_target(scale.scaled(y, data.units), data.units)
