"""Members of a blend: how they are trained without a fold of the rows, and on all rows.

It also has the criterion that the weights of members maximise on held-out rows.
"""

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

import numpy as np
from sklearn import get_config
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import get_scorer
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from .._warnings import warn_caller
from ..estimators.base import take_rows
from ..estimators.prediction import has_classes, has_response, is_forest, predicting, response_of
from ..estimators.targets import ForestClassifierMixin
from ..estimators.unwrap import unwrapped
from ..table.frames import as_frame
from ..training.blending import HeldOutLogLoss, HeldOutR2, Scorer
from ..training.method import Trained, mean_by_row, mean_response, train_members
from ..training.threads import NotInTime, TimeLimit, earlier, hash_of
from .parameters import is_estimator

LONG_NAME = 200  # of a folder, in bytes; file systems have 255
MAX_WHOLE = 2.0**53  # whole numbers up to it are exact
PREDICTED = 1000  # rows of the batch whose prediction is timed
# Largest share of trees without a fold in a forest whose other trees are trained on all rows.
# Chosen on inner splits of eleven tables; no command repeats this.
KEPT = 0.5
FINAL = 1.5  # ratio of the time to train on all rows to the time for the trees of the folds
TRIAL_ROWS = 500  # rows of the trial that estimates the training time of other estimators


class Member:
    """An estimator of a blend; `fitted` is the model that was trained last.

    A subclass has `begin`, `extend`, `response`, `train`, and an entry in `kind_of`.
    `step_seconds` is the time of one tree, bag or fold, and `seconds` the time of all of them.
    """

    growth = 1.0  # number of final trees divided by the number of trees of the folds
    is_refitted = False
    is_whole = False  # do compared rows show how confident the final model is?
    is_cut = False  # has a limit ended the training of a bag?
    has_class_weight = False  # does the estimator know the class weights of the blend?
    seconds = step_seconds = final_seconds = 0.0

    def take_class_weight(self, blend):
        """Take over the class weights, or be trained with weights of samples that include them."""

    def predict_us(self, samples):
        """Microseconds to predict a row, the minimum over some batches."""
        X, seconds = samples.batch(PREDICTED), []
        for _ in range(samples.n_batches):
            start = time.perf_counter()
            response_of(self.fitted, X, samples.classes)
            seconds.append(time.perf_counter() - start)
        return 1e6 * min(seconds) / PREDICTED * self.growth


class OwnMember(Member):
    """A forest of this package, trained tree by tree."""

    unit = "tree"

    def __init__(self, name, estimator):
        self.name, self.estimator = name, estimator
        self.fitted = estimator

    def take_class_weight(self, blend):
        """Take over the class weights, so that copies of rows are counted without them."""
        given = getattr(blend, "class_weight", None)
        if given is not None and self.estimator.class_weight is None:
            self.estimator.set_params(class_weight=given)
            self.has_class_weight = True

    def begin(self, samples, limit=None):
        """Prepare training: the rows in folds, and the number of trees."""
        model = self.estimator
        model._validate_params()
        self._limit = TimeLimit.of(model.time_limit, time.perf_counter(), samples.n_compared)
        X, y, weight, groups = samples.training
        if self.has_class_weight:
            weight = samples.plain_weight
        given = {"sample_weight": weight, "groups": groups, "limit": limit}
        if samples.is_given and _stops_early(model):
            given["validation"] = samples.X, samples.y, samples.weight
        self.request = model._request(previous=None, **given)
        # Settings that are chosen from the data are chosen on all rows. They are few, so they leak
        # little.
        self.data = model._read_training_set(X, y, self.request)
        self.folder = None
        if samples.checkpoint is not None:
            self.folder = Path(samples.checkpoint) / folder_of(self.name)
        self.settings = model._settings(self.data, self.request)
        self.method = model._method(self.settings)
        self.unit = self.method.units[0]
        self.n_wanted = self.method.n_members
        n_left_out, n_trees = samples.n_folds, self.n_wanted
        keeps_folds = samples.splits is None and not samples.is_given
        self.keeps_folds = keeps_folds and self.method.keeps_folds(samples.n_folds)
        self.may_refit = samples.refit
        if not self.keeps_folds:
            n_left_out = samples.n_compared
            n_trees = -(-n_trees * n_left_out // samples.n_folds)
        self.n_folds = max(n_trees, n_left_out)  # of trees, each without a fold
        self.n_left_out, self.n_done = n_left_out, 0
        self.forest, self.records, self.bags = None, [], []
        self.is_cut = False
        self.growth = max(1.0, self.n_wanted / self.n_folds)
        self.in_folds, self.is_whole = self.data, samples.is_given
        if not samples.is_given:
            in_folds, fold, self.row = samples.in_folds(self.data)
            self.in_folds = in_folds.with_folds(fold, n_left_out)
        self._checkpoint(self.in_folds)  # checks parameters before any member is trained

    def extend(self, n, samples, limit=None, shared=None):
        """Train the next trees, each without one of the folds, maybe in `SharedThreads`."""
        start, limit = time.perf_counter(), earlier(limit, self._limit)
        trees = range(self.n_done, self.n_done + n)
        trained = self._trained(self.in_folds, trees, limit, shared)
        self._store(trained)
        self.is_cut |= limit is not None and limit.is_cut
        self.n_done += len(trained.forests)
        self.seconds += _seconds(start, shared)
        self.step_seconds = self.seconds / self.n_done
        self.final_seconds = self.step_seconds * self.n_wanted
        self.growth = max(1.0, self.n_wanted / self.n_done)

    def _trained(self, data, members, limit, shared=None):
        given = {"learns_held_out": self._learns(data), "checkpoint": self._checkpoint(data)}
        request = replace(self.request, limit=limit, shared=shared, **given)
        return train_members(self.method, data, members, self.estimator._seed, request)

    def _learns(self, data):
        """Do trees learn from the rows that they held out of `data`?"""
        return data is self.data or self.keeps_folds and self.may_refit

    def _checkpoint(self, data):
        if self.folder is None:
            return None
        learned = "learned folds" if self._learns(data) else "folds"
        part = "all" if data is self.data else learned
        return self.estimator._checkpoint(self.folder / part, data)

    def _store(self, trained):
        """Store the forest of all trees so far in the estimator."""
        if self.method.only_joins:
            self.forest = self.method.finish(trained, self.forest)
            self.records += trained.records
        else:  # a calibration is that of all bags, however many were trained at once
            self.bags += zip(trained.forests, trained.records)
            forests = [bag.replaced(bag.arrays) for bag, _ in self.bags]
            self.records = [dict(record) for _, record in self.bags]
            given = {"records": self.records, "members": range(len(forests))}
            self.forest = self.method.finish(replace(trained, forests=forests, **given))
        self.estimator._store(self.forest, self.settings, self.records)

    def response(self, samples):
        """Mean response of each compared row over the trees that left it out; NaN if none did."""
        if samples.is_given:
            return response_of(self.estimator, samples.X, samples.classes)[samples.compared]
        data = self.in_folds
        others = Trained(self.forest, self.records, range(self.n_done), data).without_held_out
        response, n_predicting = mean_response(self.forest, data, data.is_left_out, others)
        if len(self.row) > len(self.data):
            weight = np.where(n_predicting, data.weight, 0.0)
            response = mean_by_row(response, weight, self.row)
        return self.data.of_samples(response)[samples.compared]

    def train(self, samples, limit, is_wanted, shared=None):
        """Train on all rows, or keep the trees of the folds if not wanted or if time is short.

        If few folds were left out, their trees are kept, and the missing ones are trained, maybe
        in `SharedThreads`.
        """
        start, model = time.perf_counter(), self.estimator
        first = self.n_done if self._keeps_trees() else 0
        has_time = limit is None or limit.left() > FINAL * self.final_seconds
        is_wanted = (is_wanted or self.n_wanted < samples.n_folds) and has_time
        if is_wanted and not self.keeps_folds:
            limit = earlier(limit, TimeLimit.of(model.time_limit, time.perf_counter()))
            trained = self._trained_in_time(range(first, self.n_wanted), limit, shared)
            self.is_refitted = trained is not None
            if self.is_refitted:
                if not first:
                    self.forest, self.records, self.bags = None, [], []
                self._store(trained)
                model._finish_fit(self.method, self.data, trained)
        del self.data, self.in_folds, self.forest, self.records, self.bags
        self.seconds += _seconds(start, shared)

    def _keeps_trees(self):
        """Are the trees of the folds part of the forest that is trained on all rows?"""
        is_small = self.n_done <= KEPT * self.n_wanted
        return is_small and not (self.is_cut or getattr(self.estimator, "oob_score", False))

    def _trained_in_time(self, trees, limit, shared):
        """Trees trained on all rows; None if, for lack of time, they are worse than before."""
        try:
            trained = self._trained(self.data, trees, limit, shared)
        except NotInTime:
            return None
        is_cut = limit is not None and limit.is_cut and not self.is_cut
        is_smaller = trees[0] + len(trained.forests) < min(self.n_wanted, self.n_done)
        return None if is_cut or is_smaller else trained


def folder_of(name):
    """The name of the folder of a member of any name."""
    quoted = "member-" + quote(name, safe="", errors="surrogatepass")
    return quoted if len(quoted) < LONG_NAME else f"{quoted[:20]}-{hash_of(name)}"


def in_units(weight, plain):
    """Weights whose mean is 1, or that of whole numbers of copies without a common factor.

    The penalties of many estimators are relative to the sum of the weights. `plain` are the
    weights without class weights, which do not change the mean.
    """
    given = plain[plain > 0]
    unit = given.mean()
    if (given == np.rint(given)).all() and given.max() < MAX_WHOLE:
        unit = np.gcd.reduce(given.astype(np.int64))
    return weight * (plain.sum() / weight.sum() / unit)


class OtherMember(Member):
    """Any other estimator: cross-validated, then trained on all rows."""

    unit = "fold"
    is_refitted = is_whole = True

    def __init__(self, name, estimator):
        self.name, self.estimator = name, estimator
        self.fitted = None  # a model whose prediction can be timed
        self.trial_seconds = None
        while isinstance(estimator, Pipeline):
            estimator = estimator.steps[-1][1]
        if isinstance(estimator, FrozenEstimator):
            warn_caller(
                f"The member {name!r} is frozen: its score and its weight are right only if it "
                "has seen no row of X."
            )

    def begin(self, samples, limit=None):
        """Prepare training; with a limit, NotInTime if a trial says that there is no time."""
        self.model, self.n_done = samples.encoding(self.estimator), 0
        self.n_folds = self.n_left_out = self.n_wanted = samples.n_compared
        self.total = np.zeros((len(samples.fold), samples.n_columns))
        self.n_predicted = np.zeros(len(samples.fold))
        _, _, weight, _ = samples.training
        self.weight = None if weight is None else in_units(weight, samples.plain_weight)
        # It is trained once more in the end.
        if limit is None or limit.at_least:
            return
        if self.trial_seconds is None:
            self.trial_seconds = self._trial(samples)
        if 2 * self.trial_seconds > limit.left():
            raise NotInTime(f"{self.name}: there is no time for a fold")

    def _trial(self, samples):
        """Estimated seconds of the first training, from a few of its samples; 0 if that fails."""
        train, _ = samples.split(0)
        few = train[:: max(2, len(train) // TRIAL_ROWS)]
        start = time.perf_counter()
        try:
            self._fitted(samples, few)
        except Exception:  # few rows may lack a class; the error of all rows is shown
            return 0.0
        return (time.perf_counter() - start) * len(train) / len(few)

    def extend(self, n, samples, limit=None):
        """Train without the next folds, and predict them."""
        for k in range(self.n_done, self.n_done + n):
            if limit is not None and k >= limit.at_least and limit.left() <= self.step_seconds:
                break
            start = time.perf_counter()
            train, left_out = samples.split(k)
            model = self._fitted(samples, train)
            found = response_of(model, take_rows(samples.X, left_out), samples.classes)
            is_proba = samples.classes is not None and not is_forest(unwrapped(model).estimator)
            check_response(found, (len(left_out), samples.n_columns), self.name, is_proba)
            self.total[left_out] += found
            self.n_predicted[left_out] += 1
            self.fitted, self.n_done = model, k + 1
            self.seconds += time.perf_counter() - start
            self.step_seconds = self.seconds / self.n_done
            n_present = 0 if samples.is_given else np.count_nonzero(samples.fold >= 0)
            self.final_seconds = self.step_seconds * n_present / len(train)
        if not self.n_done:
            raise NotInTime(f"{self.name}: there is no time for a fold")

    def response(self, samples):
        """Mean response of each compared row; NaN if no model predicted it."""
        with np.errstate(invalid="ignore"):
            return (self.total / self.n_predicted[:, None])[samples.compared]

    def train(self, samples, limit, is_wanted):
        """Train on all rows, or keep the model of the last fold if there is no time."""
        start = time.perf_counter()
        has_time = limit is None or limit.left() > self.final_seconds
        self.is_refitted = has_time and not samples.is_given
        if self.is_refitted:
            self.fitted = self._fitted(samples, np.flatnonzero(samples.fold >= 0))
        del self.total, self.n_predicted
        self.seconds += time.perf_counter() - start

    def _fitted(self, samples, own):
        model, options = clone(self.model), {}
        X, y, _, _ = samples.training
        if samples.classes is not None and y.ndim == 1:
            if (y[own] == y[own[0]]).all():  # many classifiers refuse a single class
                return DummyClassifier().fit(own[:, None], y[own])
        if self.weight is not None:
            if not _takes_weight(self.estimator):
                raise ValueError(
                    f"the member {self.name!r}, a {type(self.estimator).__name__}, takes no "
                    "sample_weight; members need it where the blend has class_weight, or "
                    "sample_weight in fit"
                )
            options = {"sample_weight": self.weight[own]}
        if samples.is_given and _stops_early(model):
            options |= {
                "X_val": samples.X,
                "y_val": samples.y,
                "sample_weight_val": samples.weight,
            }
        return model.fit(take_rows(X, own), y[own], **options)


def kind_of(estimator):
    """The class of a member that trains an estimator."""
    is_own = has_response(estimator) and estimator._trains_members
    return OwnMember if is_own else OtherMember


def _stops_early(model):
    """Can it stop early on rows that are passed to `fit`?"""
    return bool(getattr(model, "early_stopping", True)) and has_fit_parameter(model, "X_val")


def _takes_weight(model):
    """Does `fit` take sample_weight, or does a step request it by metadata routing?"""
    if has_fit_parameter(model, "sample_weight"):
        return True
    is_routed = get_config()["enable_metadata_routing"]
    return is_routed and get_routing_for_object(model).consumes("fit", ["sample_weight"])


def _seconds(start, shared):
    """Seconds since the start, or the part of them in which the threads worked for this thread."""
    return time.perf_counter() - start if shared is None else shared.seconds()


def entry_of(item, known, is_class):
    """Name and estimator of an entry of `members`.

    `known` are the classes by name, as pairs of a classifier and a regressor.
    """
    if isinstance(item, str):
        if item not in known:
            raise ValueError(f"members contains {item!r}; the names are {list(known)}")
        return item, known[item][not is_class]()
    name, estimator = item if isinstance(item, tuple) and len(item) == 2 else (None, item)
    if not isinstance(name, (str, type(None))):
        raise TypeError(f"members contains {item!r}; its name must be a str")
    if isinstance(estimator, str):
        return name, entry_of(estimator, known, is_class)[1]
    if not is_estimator(estimator):
        raise TypeError(f"members contains {item!r}, which is not an estimator")
    if not (is_classifier if is_class else is_regressor)(estimator):
        kind = "classifier" if is_class else "regressor"
        raise ValueError(f"members contains {estimator!r}, which is not a {kind}")
    if is_class and not _has_proba(estimator):
        raise ValueError(f"members contains {estimator!r}, which has no predict_proba")
    for part in (estimator, *estimator.get_params().values()):
        if isinstance(part, ForestClassifierMixin) and part.prior is not None:
            raise ValueError(
                f"members contains {estimator!r} with prior={part.prior!r}; set prior of the "
                "blend instead"
            )
    own = type(estimator).__name__
    return name or own.removesuffix("Classifier").removesuffix("Regressor"), estimator


def _has_proba(estimator):
    """Will it predict probabilities? Stacking by its default model has them only after `fit`."""
    last = estimator
    while isinstance(last, Pipeline):
        last = last.steps[-1][1]
    is_default = getattr(last, "final_estimator", last) is None
    return is_default or hasattr(estimator, "predict_proba")


def criterion_of(blend, samples, members):
    """The criterion that the weights of a blend maximise.

    It leaves out outliers of the target if a member has a loss that they hardly change.
    """
    y, weight = samples.compared_y, samples.compared_weight
    if blend.scoring is not None:
        scorer = get_scorer(blend.scoring) if isinstance(blend.scoring, str) else blend.scoring

        def take(rows):
            return take_rows(samples.X, samples.compared[rows])

        of, own_y = partial(predicting, blend), samples.y[samples.compared]
        return Scorer(scorer, of, take, own_y, samples.compared_count, np.sum(samples.fold >= 0))
    if is_classifier(blend):
        n_classes = [len(labels) for labels in samples.classes]
        is_sharpened = blend.calibrate and len(n_classes) == 1
        return HeldOutLogLoss(y.astype(np.int64), n_classes, weight, is_sharpened)
    is_usual = np.ones(len(y), dtype=bool)
    for member in members:
        if isinstance(member, OwnMember):
            is_usual &= (member.estimator._without_outliers(y, weight) == y).all(axis=1)
    if 2 * weight[is_usual].sum() > weight.sum():
        weight = np.where(is_usual, weight, 0.0)
    return HeldOutR2(y, weight)


def check_scoring(blend, samples):
    """Raise the error that `scoring` raises for right predictions of the rows, if it does."""
    if blend.scoring is None:
        return
    try:
        score = criterion_of(blend, samples, ()).score(_exact_response(samples))
    except Exception as error:
        error.add_note(f"scoring={blend.scoring!r} raised this error for perfect predictions.")
        raise
    if np.isnan(score):
        raise ValueError(f"scoring={blend.scoring!r} is {score} for predictions that are right")


def _exact_response(samples):
    """A response that predicts the compared rows rightly, though without certainty."""
    if samples.classes is None:
        return samples.compared_y.copy()
    columns = zip(samples.compared_y.astype(np.int64).T, samples.classes)
    return np.concatenate(
        [0.1 / len(labels) + 0.9 * np.eye(len(labels))[codes] for codes, labels in columns], axis=1
    )


def responder_of(blend, classes):
    """`BaseForest._responder` for a blend; `classes` are those of each output."""
    if blend.is_categorical_ is not None:
        _check_equal_codes(blend.members_)
    functions, columns = [], set()
    is_scaling = reads_float64 = not all(map(is_forest, blend.members_.values()))
    names = getattr(blend, "feature_names_in_", None)

    def encode(X):  # members may take missing values
        return check_array(as_frame(X, names), dtype=np.float64, ensure_all_finite="allow-nan")

    weights, finish = blend.weights_, blend._prediction().finish
    for name, model in blend.members_.items():
        function = partial(response_of, model, classes=classes)
        if is_forest(model):
            respond, own_encode, own_columns = model._responder()
            columns.update(own_columns)
            if not is_scaling:  # others read float32, but those of other packages float64
                encode, is_scaling = own_encode, model._scales_features
            if has_response(model) and has_classes(model, classes):
                function = respond
        functions.append((weights[name], function))

    def response(X):
        return finish(sum(weight * function(X) for weight, function in functions))

    return response, encode, None if reads_float64 else sorted(columns)


def mean_importances(blend):
    """Weighted mean of the importances of the members of a fitted blend that have them."""
    total, has_any = np.zeros(blend.n_features_in_), False
    for name, model in blend.members_.items():
        # A forest of this package raises an error that says why it has none.
        default = () if is_forest(model) else (None,)
        found = getattr(model, "feature_importances_", *default)
        if np.shape(found) == total.shape:  # their sum is 1, except in other packages
            total += blend.weights_[name] * (found / (found.sum() or 1))
            has_any = True
    if not has_any:
        raise AttributeError("no member of this blend has feature_importances_")
    return total / (total.sum() or 1)


def _check_equal_codes(models):
    """Raise ValueError unless all members of a blend give categories the same codes."""
    first = None
    for name, model in models.items():
        if not is_forest(model):
            raise ValueError(
                f"the member {name!r}, a {type(model).__name__}, cannot take codes of categories, "
                "so this blend has no predictor"
            )
        first = model.forest_.levels if first is None else first
        if model.forest_.levels != first:
            raise ValueError(
                f"the member {name!r} has other categories than the members before it, so "
                "this blend has no predictor"
            )


def check_response(response, shape, name, is_proba=False):
    """Raise ValueError if a blend cannot average the response of a member."""
    if response.shape != shape:
        message = f"an array of shape {response.shape}, expected {shape}"
    elif not np.isfinite(response).all():
        message = "values that are not finite"
    elif is_proba and (response < -1e-6).any():
        message = "negative probabilities"
    else:
        return
    raise ValueError(f"the member {name!r} predicts {message}")
