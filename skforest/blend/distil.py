"""Distillation: one small boosting model that imitates any fitted model.

C. Bucila, R. Caruana, A. Niculescu-Mizil, "Model Compression", KDD 2006. The model labels its rows
and many mixtures of them, with probabilities or numbers that have no noise, so that a student
learns more of the function from them than the targets of the rows say.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import sparse
from scipy.special import log_softmax, softmax

from .._docs import with_texts
from .._kernels.base.loss import BinaryLogLossKernel
from .._kernels.base.rows import random_stream
from ..estimators.base import Integral, Interval, StrOptions, validate_params
from ..estimators.boosting import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from ..estimators.prediction import prediction_of, response_of
from ..estimators.unwrap import rewrapped, unwrapped
from ..estimators.validation import draw_seed
from ..table.frames import as_frame, as_rows, mixed_rows
from ..training.losses import Loss, UserKernel, make_label_loss
from ..training.losses.scales import TargetScale

# In classification, and in regression, where linear leaves are worth that predictions take three
# times as long; chosen as docs/performance_details.md says.
N_MIXTURES = 20_000, 40_000
# A table of mixtures with more entries has fewer rows, but at least a quarter of them.
N_ENTRIES = 1_000_000, 2_000_000
STUDENT = (
    {"n_estimators": 600, "max_depth": 5, "linear_leaves": False},
    {"n_estimators": 500, "max_depth": 4, "linear_leaves": True},
)
N_REPLACED = 2  # columns of a mixture that come from any other row, on average
NEAR = 0.025  # share of the rows, in the order of their predictions, that count as near


@with_texts()
@validate_params(
    {
        "n_estimators": [StrOptions({"auto"}), Interval(Integral, 1, 2**31 - 1, closed="left")],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def distil(estimator, X, *, n_estimators="auto", random_state=None):
    """Train one small boosting model that imitates a fitted model.

    The student is a single bag of oblique boosting. It is trained on what the model predicts for
    the rows of X and for many mixtures of them, not on targets [1]_. It keeps a part of what a
    blend gains over boosting, predicts several times faster than the blend, and can be explained,
    exported and saved like any oblique boosting.

    Parameters
    ----------
    estimator : estimator of skforest
        Fitted blend, forest, tree or boosting, with one output in classification. It is not
        changed. If you pass a search, its best estimator is imitated; if you pass a pipeline, the
        last step of a copy is replaced by the student.
    X : {array-like, dataframe} of shape (n_samples, n_features)
        Rows such as those that the student will predict, best the ones that the model was fitted
        on; targets are not needed. At least 2. The student has the `feature_shape` of the model.
    n_estimators : "auto" or int, default="auto"
        Number of trees of the student. With more trees, it is closer to the model, larger and
        slower. "auto": 600 in classification, with at most 32 constant leaves each, and 500 in
        regression, with at most 16 linear leaves.
    random_state : int, RandomState or None, default=None
        Seed of the mixtures and of the student.

    Returns
    -------
    student : ObliqueBoostingClassifier or ObliqueBoostingRegressor
        Fitted. Its `classes_` are those of the model.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    TypeError
        If it is not an estimator of this package, or X is sparse.
    ValueError
        If X has 1 row or other columns, or the estimator is a classifier of several outputs.

    Notes
    -----
    In one half of the mixtures, about two columns of a row come from any other row. In the other
    half, a random share of the columns comes from a row with a similar prediction. Values are
    never changed, so categories and missing values remain what they are.

    Students of classifiers minimise the log loss of the probabilities of the model, which include
    its temperature and `prior`; those of regressors, the squared error, whatever the loss of the
    model. The order of the rows of X matters. `fit` of the student trains an ordinary model on
    targets.

    References
    ----------
    .. [1] C. Bucila, R. Caruana, A. Niculescu-Mizil, "Model Compression", KDD 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from skforest import ObliqueBoostingRegressor, RandomHingeForestRegressor, distil
    >>> X = np.random.default_rng(0).uniform(-1, 1, (1200, 6))
    >>> y = np.sin(3 * X[:, 0] + 2 * X[:, 1]) + X[:, 2] * X[:, 3]
    >>> hinge = RandomHingeForestRegressor(n_bags=1, random_state=0).fit(X[:200], y[:200])
    >>> student = distil(hinge, X[:200], n_estimators=50, random_state=0)
    >>> alone = ObliqueBoostingRegressor(n_bags=1, random_state=0).fit(X[:200], y[:200])
    >>> for model in (hinge, student, alone):
    ...     print(f"{type(model).__name__:26} {model.score(X[200:], y[200:]):.2f}")
    RandomHingeForestRegressor 0.98
    ObliqueBoostingRegressor   0.97
    ObliqueBoostingRegressor   0.93
    """
    whole = unwrapped(estimator)
    if whole.estimator is not estimator:
        options = {"n_estimators": n_estimators, "random_state": random_state}
        X = whole.transform(X)
        return rewrapped(estimator, lambda own: distil(own, X, **options))
    prediction = prediction_of(estimator)
    classes = prediction.classes
    if classes is not None and len(classes) > 1:
        raise ValueError(
            f"estimator predicts labels of {len(classes)} outputs; distil takes only one output"
        )
    if sparse.issparse(X):
        raise TypeError("distil takes dense X, since it mixes columns of rows; pass X.toarray()")
    X = as_frame(X, getattr(estimator, "feature_names_in_", None))
    response = response_of(estimator, X, classes)  # checks X
    if len(response) < 2:
        raise ValueError("X has 1 row; distil needs at least 2")
    rows, random = as_rows(X), random_stream(draw_seed(random_state))
    number = _mixtures(response, rows.shape[1], classes is not None, random)
    number[:, _unused(prediction.parts)] = 0
    table = mixed_rows(rows, number)
    response = response_of(estimator, table, classes)
    student = STUDENT[classes is None] | {
        "n_bags": 1,
        "early_stopping": False,
        "categorical_features": getattr(estimator, "categorical_features", "from_dtype"),
        "feature_shape": getattr(estimator, "feature_shape", None),
        "n_jobs": getattr(estimator, "n_jobs", None),
        "random_state": random_state,
    }
    if n_estimators != "auto":
        student["n_estimators"] = n_estimators
    if classes is None:
        target = response[:, 0] if estimator._is_1d and response.shape[1] == 1 else response
        return ObliqueBoostingRegressor(**student).fit(table, target)
    imitation = _Imitation(**student)
    imitation.classes_ = classes[0]
    fitted = vars(imitation.fit(table, response))
    student = ObliqueBoostingClassifier(**student)
    apart = imitation.get_params(deep=False).keys() | {"_is_1d", "_quantiles", "_fitted_loss"}
    vars(student).update({name: fitted[name] for name in fitted if name not in apart})
    student.n_classes_, student.n_outputs_ = len(classes[0]), 1
    return student


def _unused(parts):
    """Return the columns of text that the models leave out, because it is no category."""
    levels = [part.model.forest_.levels for part in parts if part.is_forest]
    return sorted({j for of_model in levels for j, own in of_model.items() if len(own) < 2})


def _mixtures(response, n_columns, is_class, random):
    """Return the number of the row that each entry of a table comes from: rows, then mixtures.

    `response` has the predictions of the rows. The numbers are int32.
    """
    n_rows, most = len(response), N_MIXTURES[not is_class]
    n = int(np.clip(N_ENTRIES[not is_class] // n_columns, most // 4, most)) // 2
    first = np.resize(random.permutation(n_rows), n)
    second = random.randint(n_rows, size=n)
    share = min(0.5, N_REPLACED / n_columns)
    parts = [_mixed(first, second, np.full((n, 1), share), n_columns, random)]
    # The last bits of exponentials depend on the processor, and must not decide the order.
    response = (response / (np.abs(response).max() or 1.0)).astype(np.float32)
    keys = (response.max(axis=1), response.argmax(axis=1)) if is_class else response.T[::-1]
    order = np.lexsort(keys)
    first = np.resize(random.permutation(n_rows), n)
    width = max(5, int(NEAR * n_rows))
    second = np.clip(first + random.randint(-width, width + 1, size=n), 0, n_rows - 1)
    parts.append(
        _mixed(order[first], order[second], random.uniform(size=(n, 1)), n_columns, random)
    )
    rows = np.arange(n_rows, dtype=np.int32)[:, None]
    return np.concatenate([np.tile(rows, n_columns), *parts])


def _mixed(first, second, share, n_columns, random):
    """Numbers of `first` in an array with a column each, a share of which become `second`."""
    is_second = random.uniform(size=(len(first), n_columns)) < share
    return np.where(is_second, second[:, None], first[:, None]).astype(np.int32)


class _SoftLogLoss(Loss):
    """Cross-entropy to given probabilities of classes."""

    def loss(self, y, raw):
        return -(y * log_softmax(raw, axis=1)).sum(axis=1)

    def gradient_hessian(self, y, raw):
        proba = softmax(raw, axis=1)
        return proba - y, proba * (1 - proba)


@dataclass(frozen=True)
class _ShareScale(TargetScale):
    """Probabilities of classes, in place of the class numbers of `LabelScale`."""

    has_unit = False

    def baseline(self, y, weight):
        return np.log(np.average(y, axis=0, weights=weight) + 1e-9)

    def scaled(self, y, units):
        return y

    def standardized(self, target, units):
        return np.ascontiguousarray(target[:, 1:] if target.shape[1] == 2 else target)

    def start(self, baseline):
        return np.diff(baseline) if len(baseline) == 2 else baseline


class _Imitation(ObliqueBoostingRegressor):
    """Boosting whose targets are probabilities of `classes_`, with the forest of a classifier."""

    def _make_loss(self):
        n_classes = len(self.classes_)
        # For two classes, this kernel takes numbers between 0 and 1.
        kernel = BinaryLogLossKernel if n_classes == 2 else partial(UserKernel, _SoftLogLoss())
        loss = make_label_loss("log_loss", n_classes, boosting=True)
        return replace(loss, kernel=kernel, scale=_ShareScale())

    @property
    def _task_metadata(self):
        n_classes = len(self.classes_)
        return {"task": "classification", "n_outputs": n_classes, "classes": self.classes_}
