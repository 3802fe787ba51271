"""Members of blends by name: estimators of other libraries, and the members of presets."""

import importlib
from functools import partial

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone, is_classifier
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from ..estimators.boosting import ObliqueBoostingClassifier, ObliqueBoostingRegressor
from ..estimators.hinge import (
    HingeProcedure,
    RandomHingeForestClassifier,
    RandomHingeForestRegressor,
)
from ..estimators.manifold import ManifoldForestClassifier, ManifoldForestRegressor
from ..estimators.prediction import is_forest
from ..training.threads import thread_count
from .encoding import MemberPipeline

BOOSTING = ObliqueBoostingClassifier, ObliqueBoostingRegressor
# In blends, a weight decay of hinge forests gains nothing, see docs/performance_details.md.
_WITHOUT_DECAY = HingeProcedure(weight_decay=0.0)
HINGE = tuple(
    partial(kind, procedure=_WITHOUT_DECAY)
    for kind in (RandomHingeForestClassifier, RandomHingeForestRegressor)
)
MANIFOLD = ManifoldForestClassifier, ManifoldForestRegressor
# Their n_jobs=None, or thread_count=None, means all processors.
MANY_THREADS = "lightgbm", "xgboost", "catboost"
# Package, beginning of the name of the class, and untuned parameters.
_ROUNDS = {"n_estimators": 200, "learning_rate": 0.05}
_SAME = {"deterministic": True, "force_col_wise": True}  # for every number of threads
_QUIET = {"verbose": 0, "allow_writing_files": False}
LIBRARIES = {
    "extra_trees": ("sklearn.ensemble", "ExtraTrees", {"n_estimators": 200}),
    "lightgbm": ("lightgbm", "LGBM", _ROUNDS | _SAME | {"verbose": -1}),
    "xgboost": ("xgboost", "XGB", _ROUNDS | {"verbosity": 0}),
    "catboost": ("catboost", "CatBoost", _QUIET | {"iterations": 500}),
}


class LabelCodes(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Any labels for a classifier that takes only the labels 0, 1, ....

    Parameters
    ----------
    estimator : estimator
        The classifier.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    estimator_ : estimator
        The fitted classifier.
    """

    def __init__(self, estimator):
        self.estimator = estimator

    def fit(self, X, y, sample_weight=None):
        """Fit the classifier to the numbers of the labels."""
        self.classes_, codes = np.unique(y, return_inverse=True)
        self.estimator_ = clone(self.estimator).fit(X, codes, sample_weight=sample_weight)
        return self

    def predict_proba(self, X):
        """Probabilities of the classes: (n_samples, n_classes)."""
        return self.estimator_.predict_proba(X)

    def predict(self, X):
        """Labels: (n_samples,)."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags = get_tags(self.estimator).input_tags
        return tags


class ScaledLinear(MemberPipeline):
    """The member "linear"."""


def _of_library(name, kind):
    """An estimator of a library; `kind` is the end of its name."""
    module, start, params = LIBRARIES[name]
    try:
        module = importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"the member {name!r} needs the package {module}: pip install {module}"
        ) from error
    estimator = getattr(module, start + kind)(**params)
    return LabelCodes(estimator) if (name, kind) == ("xgboost", "Classifier") else estimator


def _linear(kind):
    is_class = kind == "Classifier"
    model = LogisticRegression(max_iter=1000) if is_class else RidgeCV(np.logspace(-2, 4, 13))
    return ScaledLinear([("scaler", StandardScaler()), ("model", model)])


# Functions that make a classifier and a regressor.
OTHERS = {
    name: tuple(partial(make, kind) for kind in ("Classifier", "Regressor"))
    for name, make in {
        **{name: partial(_of_library, name) for name in LIBRARIES},
        "linear": _linear,
    }.items()
}


def entries(blend):
    """The entries of `members`; without any, the members of the preset."""
    if not isinstance(blend.members, str):
        if blend.preset != "balanced":
            raise ValueError(
                f"preset={blend.preset!r} chooses the members of a blend, so it needs "
                f'members="auto", got {blend.members!r}'
            )
        return blend.members
    axis = partial(BOOSTING[not is_classifier(blend)], n_directions=0)
    if blend.preset == "fast":
        if is_classifier(blend) and getattr(blend, "n_outputs_", 1) > 1:
            raise ValueError(
                'preset="fast" has the member "linear", which takes one output of labels, and y '
                f'has {blend.n_outputs_}: use preset="balanced"'
            )
        forest = MANIFOLD[not is_classifier(blend)](50)
        return [("manifold", forest), ("boosting", axis(learning_rate=0.2)), "linear"]
    if blend.preset == "best":
        more = axis(learning_rate=0.05, max_leaf_nodes=15, max_depth=None)
        return [*blend._auto_members, ("axis_boosting", more)]
    return blend._auto_members


def library_of(estimator):
    """Name of the package of an estimator, or of the classifier in `LabelCodes`."""
    estimator = estimator.estimator if isinstance(estimator, LabelCodes) else estimator
    return type(estimator).__module__.partition(".")[0]


def set_by_blend(blend, estimator, seed):
    """Parameters of a member that the blend sets: seeds and threads that are None, and others."""
    params, library = estimator.get_params(), library_of(estimator)
    if library == "catboost":  # it lists only parameters that were set
        seeds = {} if "random_seed" in params else {"random_state": None}
        params = {"thread_count": None} | seeds | params
    unset = [name for name, value in sorted(params.items()) if value is None]
    own = {name: seed for name in unset if name.rpartition("__")[2] == "random_state"}
    n_threads = thread_count(blend.n_jobs) if library in MANY_THREADS else blend.n_jobs
    names = "n_jobs", "thread_count", "estimator__n_jobs" if library == "xgboost" else ""
    own |= {name: n_threads for name in names if name in unset}
    if is_forest(estimator):
        if "calibrate" in params:
            own["calibrate"] = False  # the weighted mean is calibrated, not its members
        own["verbose"] = max(params.get("verbose", 0), int(blend.verbose) - 1)
        if params.get("categorical_features") == "from_dtype":
            own["categorical_features"] = blend.categorical_features
    return own
