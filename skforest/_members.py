"""Members of a blend: how they are trained without a fold of the rows, and on all rows.

Also the criterion by which their predictions of the rows of these folds are weighted.
"""

import time
from copy import copy
from functools import partial
from numbers import Integral

import numpy as np
from sklearn import get_config
from sklearn.base import clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import GroupKFold, StratifiedGroupKFold, check_cv
from sklearn.utils import check_array
from sklearn.utils.metadata_routing import get_routing_for_object
from sklearn.utils.validation import has_fit_parameter

from ._base import BaseForest, take_rows
from ._targets import same_classes
from ._threads import NotInTime
from .training.blending import R2, LogLoss, Scorer, sharpened

PREDICTED = 1000  # rows of the batch whose prediction is timed
# Members are compared on the rows of as many folds as have this many distinct rows, and all
# classes, at least 2: with more rows, weights hardly change.
COMPARED = 5000


class BlendedRows:
    """What all members are trained on: samples in folds, and the distinct rows among them.

    Members are compared on the rows of the first `n_compared` folds, or of all folds. `parts` are
    rows, folds and weights of copies, where copies of a row may be in several folds, else None.
    """

    def __init__(self, X, y, weight, rows, folds, classes, compares_all):
        self.X, self.y, self.weight = X, y, weight  # weight is None if all are 1
        self.classes = classes  # of every output; None in regression
        self.rows = rows  # TrainingSet
        fold, n_folds, self.parts = folds
        self.fold, self.n_folds = fold, n_folds  # of samples; -1 where the weight is 0
        self.first = first = rows.first_samples()
        of_row = fold[first]
        n_rows = np.cumsum(np.bincount(of_row, minlength=n_folds))
        n_needed = n_folds if compares_all else max(2, np.searchsorted(n_rows, COMPARED) + 1)
        self.n_compared = min(n_folds, int(n_needed))
        # Of the distinct rows that are compared: the first samples, folds, targets and weights.
        compared = np.flatnonzero(of_row < self.n_compared)
        self.compared, self.compared_fold = first[compared], of_row[compared]
        self.compared_y, self.compared_weight = rows.y[compared], rows.weight[compared]
        self.compared_count = rows.count[compared]  # without class weights

    @property
    def n_columns(self):
        """Number of columns of a response."""
        if self.classes is None:
            return self.rows.y.shape[1]
        return sum(len(labels) for labels in self.classes)

    def in_folds(self, data):
        """The TrainingSet of a member, whose rows are in several folds if copies of them are.

        Returns it, the fold of each of its rows, and the row of `data` that each was.
        """
        fold, rows = data.least_of_samples(self.fold), np.arange(len(data))
        if self.parts is None:
            return data, fold, rows
        row, fold_of_part, weight = self.parts
        is_split = np.bincount(row) > 1
        # A member may take several rows for one.
        row_of_member = data.row_of_sample[self.first]
        is_split = np.bincount(row_of_member, weights=is_split, minlength=len(data)) > 0
        row = row_of_member[row]
        fold_of_part = np.where(is_split[row], fold_of_part, fold[row])
        part, of_part = np.unique(row * self.n_folds + fold_of_part, return_inverse=True)
        weight = np.bincount(of_part, weights=weight)
        rows, fold = np.divmod(part, self.n_folds)
        weight = data.weight[rows] * weight / np.bincount(rows, weights=weight)[rows]
        return data.in_parts(rows, weight), fold, rows

    def batch(self):
        """Samples whose prediction is timed."""
        return take_rows(self.X, np.resize(np.flatnonzero(self.fold >= 0), PREDICTED))


class _Member:
    """An estimator of a blend; `fitted` is the model that was trained last."""

    def predict_us(self, samples):
        """Microseconds to predict a row: the least of three batches."""
        X, seconds = samples.batch(), []
        for _ in range(3):
            start = time.perf_counter()
            response_of(self.fitted, X, samples.classes)
            seconds.append(time.perf_counter() - start)
        return 1e6 * min(seconds) / PREDICTED * self.growth


class OwnMember(_Member):
    """A forest of this package, trained tree by tree."""

    def __init__(self, name, estimator):
        self.name, self.estimator = name, estimator
        self.fitted = estimator
        self.growth = 1.0  # trees if it is trained again, over those of the folds
        self.is_refitted = False

    def train_folds(self, samples, limit):
        """Train trees that leave a fold out; return the responses of the compared rows."""
        model = self.estimator
        model._validate_params()
        model._time_limit = limit
        # Settings that are chosen from the data are chosen on all rows. They are few; what they
        # leak is small.
        self.data = model._prepare(samples.X, samples.y, samples.weight)
        data, fold, row = samples.in_folds(self.data)
        self.n_wanted = model._member_counts(False)[1]
        n_left_out, n_trees = samples.n_folds, self.n_wanted
        if not model._keeps_folds(samples.n_folds):
            n_left_out = samples.n_compared
            n_trees = -(-n_trees * n_left_out // samples.n_folds)
        n_trees = max(n_trees, n_left_out)
        self.growth = max(1.0, self.n_wanted / n_trees)
        data = data.with_folds(fold, n_left_out)
        model.forest_ = model._fit_forest(data, range(n_trees))
        response, n_predicting = model._mean_of_members(data, data.is_left_out)
        if len(row) > len(self.data):
            response = _mean_by_row(response, np.where(n_predicting, data.weight, 0.0), row)
        response = self.data.of_samples(response)[samples.compared]
        if not n_predicting[fold < samples.n_compared].all():
            raise NotInTime(f"{self.name}: no tree left some fold out within the time limit")
        return response

    def train(self, samples, limit, is_wanted):
        """Train on all rows; keep the trees of the folds if that is not wanted, or not in time."""
        model = self.estimator
        self.is_refitted = is_wanted or self.n_wanted < samples.n_folds
        if model._keeps_folds(samples.n_folds):
            self.is_refitted = False
        if self.is_refitted:
            before = model.__dict__.copy()
            model._time_limit = limit
            try:
                model.forest_ = model._fit_forest(self.data, range(self.n_wanted))
            except NotInTime:
                self.is_refitted = False
            if model._member_counts(True)[2] < min(self.n_wanted, len(before["forest_"])):
                self.is_refitted = False
            if not self.is_refitted:
                model.__dict__.clear()
                model.__dict__.update(before)
        if self.is_refitted:
            model._finish_fit(self.data)
        model.__dict__.pop("_time_limit", None)
        del self.data


class OtherMember(_Member):
    """Any other estimator: cross-validated, then trained on all rows."""

    def __init__(self, name, estimator):
        self.name, self.estimator = name, estimator
        self.fitted = None  # a model whose prediction can be timed
        self.growth = 1.0
        self.is_refitted = True

    def train_folds(self, samples, limit):
        """Responses of the compared rows, each by an estimator that did not see its fold."""
        response = np.full((len(samples.fold), samples.n_columns), np.nan)
        for k in range(samples.n_compared):
            if limit is not None and not limit.left() and k >= limit.at_least:
                raise NotInTime(self.name)
            model = self._fitted(
                samples, np.flatnonzero((samples.fold >= 0) & (samples.fold != k))
            )
            own = np.flatnonzero(samples.fold == k)
            found = response_of(model, take_rows(samples.X, own), samples.classes)
            is_proba = samples.classes is not None
            check_response(found, (len(own), samples.n_columns), self.name, is_proba)
            response[own] = found
        self.fitted = model
        return response[samples.compared]

    def train(self, samples, limit, is_wanted):
        """Train on all rows."""
        self.fitted = self._fitted(samples, np.flatnonzero(samples.fold >= 0))

    def _fitted(self, samples, own):
        model, options = clone(self.estimator), {}
        if samples.weight is not None:
            if not _takes_weight(model):
                raise ValueError(
                    f"the member {self.name!r}, a {type(model).__name__}, takes no sample_weight; "
                    "members need it where the blend has class_weight, or sample_weight in fit"
                )
            options = {"sample_weight": samples.weight[own]}
        return model.fit(take_rows(samples.X, own), samples.y[own], **options)


def _takes_weight(model):
    """Does `fit` take sample_weight, or, with metadata routing, a step of it that requests it?"""
    if has_fit_parameter(model, "sample_weight"):
        return True
    is_routed = get_config()["enable_metadata_routing"]
    return is_routed and get_routing_for_object(model).consumes("fit", ["sample_weight"])


def check_names(members, parameters):
    """ValueError for names of members with which their parameters cannot be set.

    `members` is the parameter of a blend, and `parameters` the names of all of them.
    """
    entries = members if isinstance(members, (list, tuple)) else ()
    for name in [item[0] for item in entries if isinstance(item, tuple) and len(item) == 2]:
        if name in parameters:
            raise ValueError(f"members contains the name {name!r}, which is that of a parameter")
        if isinstance(name, str) and "__" in name:
            raise ValueError(f"members contains the name {name!r}, which must not contain '__'")


def criterion_of(blend, samples, members):
    """What the weights of a blend maximise.

    Without outliers of the target, where a member has a loss that they hardly change.
    """
    y, weight = samples.compared_y, samples.compared_weight
    if blend.scoring is not None:
        scorer = get_scorer(blend.scoring) if isinstance(blend.scoring, str) else blend.scoring

        def take(rows):
            return take_rows(samples.X, samples.compared[rows])

        predicting, own_y = partial(_predicting, blend), samples.y[samples.compared]
        return Scorer(
            scorer, predicting, take, own_y, samples.compared_count, np.sum(samples.fold >= 0)
        )
    if is_classifier(blend):
        n_classes = [len(labels) for labels in samples.classes]
        return LogLoss(y.astype(np.int64), n_classes, weight)
    is_usual = np.ones(len(y), dtype=bool)
    for member in members:
        if isinstance(member, OwnMember):
            is_usual &= (member.estimator._without_outliers(y, weight) == y).all(axis=1)
    if 2 * weight[is_usual].sum() > weight.sum():
        weight = np.where(is_usual, weight, 0.0)
    return R2(y, weight)


def _predicting(blend, X, response):
    """An estimator whose predictions for X are those of a response."""

    def known(rows):
        if rows is not X and not _has_same_entries(rows, X):
            raise ValueError("scoring must predict all rows of its X, in their order")
        return response

    model = copy(blend)
    model._response = known
    return model


def _has_same_entries(X, other):
    X, other = np.asarray(X), np.asarray(other)
    if X.shape != other.shape:
        return False
    return bool(((X == other) | ((X != X) & (other != other))).all())


def response_of(model, X, classes):
    """Class probabilities of all outputs side by side, or targets: (n_samples, n_columns).

    `classes` are those of the blend, a list with one array for each output; None in regression. A
    model that did not see a class gives it the probability 0.
    """
    if has_response(model) and _has_classes(model, classes):
        return model._response(X)
    if classes is None:
        found = np.asarray(model.predict(X), dtype=np.float64)
        return found.reshape(len(found), -1)
    proba, known = model.predict_proba(X), model.classes_
    if len(classes) == 1:
        proba, known = [proba], [known]
    if not isinstance(proba, list):
        raise ValueError(
            f"{type(model).__name__}.predict_proba returns no list of arrays, one for each output"
        )
    parts = []
    for part, own, labels in zip(proba, known, classes):
        if part.shape[1:] != own.shape:
            raise ValueError(
                f"{type(model).__name__}.predict_proba returns an array of shape {part.shape} for "
                f"{len(own)} classes"
            )
        whole = np.zeros((len(part), len(labels)))
        whole[:, np.searchsorted(labels, own)] = part
        parts.append(whole)
    return np.concatenate(parts, axis=1)


def responder_of(blend, classes):
    """As `BaseForest._responder`, for a blend with some classes of each output."""
    if blend.is_categorical_ is not None:
        _check_equal_codes(blend.members_)
    functions = []
    # Members may take missing values.
    encode = partial(check_array, dtype=np.float32, ensure_all_finite="allow-nan")
    weights, temperature = blend.weights_, blend.temperature_
    for name, model in blend.members_.items():
        function = partial(response_of, model, classes=classes)
        if isinstance(model, BaseForest):
            respond, encode = model._responder()
            if has_response(model) and _has_classes(model, classes):
                function = respond
        functions.append((weights[name], function))

    def response(X):
        return sharpened(sum(weight * function(X) for weight, function in functions), temperature)

    return response, encode


def _check_equal_codes(models):
    """Raise ValueError unless all members of a blend give categories the same codes."""
    first = None
    for name, model in models.items():
        if not isinstance(model, BaseForest):
            raise ValueError(
                f"the member {name!r}, a {type(model).__name__}, takes no codes of categories; "
                "a predictor of this blend is not possible"
            )
        first = model.forest_.levels if first is None else first
        if model.forest_.levels != first:
            raise ValueError(
                f"the member {name!r} has other categories than those before it; a predictor of "
                "this blend is not possible"
            )


def has_response(model):
    """Is the response of the forest of an estimator what a blend averages?"""
    return isinstance(model, BaseForest) and not model._has_own_link


def _has_classes(model, classes):
    return classes is None or same_classes(model._every_classes, classes)


def check_response(response, shape, name, is_proba=False):
    """Raise ValueError if the response of a member is not what a blend can average."""
    if response.shape != shape:
        message = f"an array of shape {response.shape}, expected {shape}"
    elif not np.isfinite(response).all():
        message = "values that are not finite"
    elif is_proba and (response < -1e-6).any():
        message = "negative probabilities"
    else:
        return
    raise ValueError(f"the member {name!r} predicts {message}")


def _mean_by_row(values, weight, row):
    """Weighted means of values, (n_parts, n_columns), over the parts of each row; NaN if none."""
    sums = [np.bincount(row, np.where(weight > 0, weight * column, 0.0)) for column in values.T]
    with np.errstate(invalid="ignore"):
        return np.stack(sums, axis=1) / np.bincount(row, weight)[:, None]


def sample_folds(cv, X, y, rows, groups, is_class):
    """Fold of each sample, -1 for those of weight 0, the number of folds, and the `parts`.

    `cv` and `groups` are the parameters of a blend, `rows` the TrainingSet of the samples; `parts`
    are those of BlendedRows.
    """
    is_present = rows.row_of_sample >= 0
    present = np.flatnonzero(is_present)
    if isinstance(cv, Integral) and groups is None:
        copies, row = rows.in_copies()
        n_folds = min(cv, len(copies))
        # Rows are in an order that depends on their values alone: no shuffling.
        order = np.lexsort(copies.y.T) if is_class else np.arange(len(copies))
        of_copy = np.empty(len(copies), dtype=np.int64)
        of_copy[order] = np.arange(len(copies)) % n_folds
        # The samples of a row are in the folds of its copies, in turn.
        present = present[np.argsort(rows.row_of_sample[present], kind="stable")]
        own = rows.row_of_sample[present]
        number = np.arange(len(own)) - np.searchsorted(own, own)
        first, n_copies = np.searchsorted(row, own), np.bincount(row)[own]
        fold = np.full(len(is_present), -1)
        fold[present] = of_copy[first + number % n_copies]
        return fold, n_folds, (row, of_copy, copies.weight) if len(row) > len(rows) else None
    samples = np.arange(len(is_present))  # those that the splitter sees
    if groups is not None:
        groups = _check_groups(groups, len(is_present))
    if isinstance(cv, Integral):
        samples, groups = present, groups[present]
        cv = _group_splitter(cv, groups, is_class and y.ndim == 1)
    splitter = check_cv(cv, y[samples], classifier=is_class)
    try:
        splits = splitter.split(take_rows(X, samples), y[samples], groups)
        tests = [test for _, test in splits]
    except (TypeError, ValueError) as error:
        raise ValueError(f"cv yields no pairs of training and test rows: {error}") from error
    fold = np.full(len(is_present), -1)
    n_times = np.zeros(len(is_present), dtype=int)
    for k, test in enumerate(tests):
        test = _check_test_rows(test, len(samples))
        fold[samples[test]] = k
        n_times[samples[test]] += 1
    if (n_times[present] != 1).any():
        raise ValueError("cv must put every row into the test rows of one fold")
    found, of_present = np.unique(fold[present], return_inverse=True)
    if len(found) < 2:
        raise ValueError("cv must have at least 2 folds with rows of positive weight")
    fold[:] = -1
    fold[present] = of_present
    return fold, len(found), None


def _group_splitter(n_folds, groups, is_stratified):
    """A splitter that leaves out whole groups."""
    n_folds = min(n_folds, len(np.unique(groups)))
    if n_folds < 2:
        raise ValueError("groups must have at least 2 groups with rows of positive weight")
    return (StratifiedGroupKFold if is_stratified else GroupKFold)(n_folds)


def _check_test_rows(test, n_samples):
    """Test rows of a fold, numbers or a mask, as an ndarray; ValueError if they are no rows."""
    test = np.asarray(test)
    if test.dtype == bool and test.shape == (n_samples,):
        return test
    if test.ndim != 1 or (test.size and test.dtype.kind not in "iu"):
        raise ValueError(f"cv must yield row numbers or masks of {n_samples} rows, got {test}")
    if test.size and not 0 <= test.min() <= test.max() < n_samples:
        raise ValueError(f"cv has test rows outside of 0 .. {n_samples - 1}")
    return test.astype(np.int64)


def _check_groups(groups, n_samples):
    """The parameter `groups` as an array of shape (n_samples,)."""
    groups = np.asarray(groups)
    if groups.shape not in ((n_samples,), (n_samples, 1)):
        raise ValueError(
            f"groups.shape == {groups.shape}, expected {(n_samples,)}, one group per row"
        )
    groups = groups.ravel()
    try:
        is_missing = any(group is None or group != group for group in groups.tolist())
        np.unique(groups)
    except TypeError:  # of pandas.NA, and of an order of strings and numbers
        raise ValueError("groups must be numbers or strings, without missing values") from None
    if is_missing:
        raise ValueError("groups contains NaN or None; rows without a group need one of their own")
    return groups
