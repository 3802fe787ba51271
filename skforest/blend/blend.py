"""Blends: a weighted mean of forests of several kinds, with weights from held-out rows.

To find the weights, each tree or bag of a forest of this package is trained without one fold of
the rows, so every row gets a prediction by trees that did not see it. Other estimators are
cross-validated on the same folds. Caruana et al., "Ensemble Selection from Libraries of Models".
"""

import time
from functools import partial

import numpy as np
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._docs import described, with_texts
from .._warnings import each_warning_once, warn_caller
from ..estimators.base import Integral, Interval, Real, StrOptions
from ..estimators.co2 import CO2ForestClassifier, CO2ForestRegressor
from ..estimators.given_rows import given_rows, names_class
from ..estimators.prediction import Part, Prediction, finished, response_of
from ..estimators.targets import ForestClassifierMixin, ForestRegressorMixin
from ..estimators.unwrap import members_of
from ..estimators.validation import TableEstimator, check_continues, store_parameters
from ..table.frames import as_array, as_frame
from ..table.records import is_records
from ..table.training_set import check_groups
from ..training.blending import blend_weights, find_temperature, unseen_response
from ..training.progress import Steps
from ..training.threads import TimeLimit
from .encoding import Columns
from .folds import BlendedRows, compares_all_rows, given_samples, sample_folds, weighted_rows
from .leaderboard import (
    BLEND,
    FOREST,
    baseline_rows,
    comparison,
    leaderboard,
    leaderboard_html,
    score_name,
)
from .members import (
    OwnMember,
    check_response,
    check_scoring,
    criterion_of,
    entry_of,
    kind_of,
    mean_importances,
    responder_of,
)
from .names import BOOSTING, HINGE, MANIFOLD, OTHERS, entries, set_by_blend
from .parameters import MemberParameters, check_names
from .schedule import common_rows, shortened, train_each, train_folds, train_in_time

# Members that have a name, the fastest first: (classifier, regressor).
MEMBERS = {
    "manifold": MANIFOLD,
    "co2": (CO2ForestClassifier, CO2ForestRegressor),
    "hinge": HINGE,
    "boosting": BOOSTING,
}

MIN_REFITTED = 0.15  # forests with smaller weights are not trained again on all rows

PARAMETERS = """
members : "auto" or list of str, estimator or (str, estimator)
    Models to blend. "auto": the estimators of this package with default parameters, under the
    names "manifold" (for classification only), "co2", "hinge" (without weight decay, which gains
    nothing in a blend) and "boosting". A list may contain these names, those of other libraries:
    "lightgbm", "catboost", "xgboost", "extra_trees" and "linear" (scaled columns), and estimators
    with or without a name: forests of this package with other parameters, or any estimators of
    scikit-learn. Those that read no categories, or take no missing values, get encoded columns, as
    the last step of a pipeline. A `FrozenEstimator` must have been fitted on other rows. If
    `random_state` or `n_jobs` of a member is None, the blend sets it. Set parameters of a named
    estimator as ``name__parameter``. The names "blend", "constant" and "random forest" belong to
    rows of the leaderboard.
preset : {"fast", "balanced", "best"}
    Which members ``members="auto"`` stands for. "fast": "manifold" with 50 trees, "linear", and
    boosting over single features. "balanced": see `members`. "best": these, and "axis_boosting",
    slower boosting of larger trees over single features. If you list `members`, it must be
    "balanced".
cv : int, splitter, iterable or None
    Folds that members leave out and predict. An int is their number, at least 2. None: 5. Folds
    are stratified by class. Copies of a row stay in one fold, unless they repeat by chance or
    equal X have different targets. If you pass `groups` to `fit`, all rows of a group stay in one
    fold. A splitter may leave some rows without a prediction, as TimeSeriesSplit does, or predict
    some rows several times. Members are then trained on the training rows of each split only,
    weights are found on the predicted rows, and all members with a positive weight are trained
    again on all rows.
scoring : str, callable or None
    Score that the weights maximise on held-out rows: the name of a scorer of scikit-learn, or a
    callable ``scorer(estimator, X, y)`` that predicts all rows of X at once. It is tested on
    perfect predictions before any member is trained. None: minus the log loss in classification,
    R2 in regression.
n_rounds : int
    Number of rounds of greedy selection, at least 1. Each round adds a member; the weight of a
    member is its share of all members added up to the best round.
refit : bool
    Whether members are trained again on all rows. False: forests of this package stay as they were
    trained to find the weights, each tree without one fold of the rows; this shortens the fit and
    increases the error. Never trained again: forests with a weight below 0.15, and oblique
    boosting with several bags (each bag leaves out a fold anyway). Always trained again:
    estimators of other packages, and forests with fewer trees or bags than folds.
oob_score : bool
    Whether to keep the held-out predictions of the blend, in the order of the rows of `fit`; with
    `X_val`, these are its rows. Rows are predicted by models that were trained without them, with
    weights of the members that were found on the other folds, and with the temperature and `prior`
    of the blend.
calibrate : bool
    Whether to calibrate the blended probabilities by a temperature, see `temperature_`.
time_limit : float or None
    Seconds after which training ends. Oblique boosting, if it is a member, comes first; one bag of
    it is trained in any case. The other members follow, from the fastest to the slowest, each only
    if it will probably finish in time. Members with a positive weight get the remaining time. The
    order of `members` matters only for estimators of other packages. Everything that was trained
    is kept. A warning says which members are smaller; `left_out_` lists members that were left
    out. With a limit, the model depends on the speed of the machine.
max_predict_us : float or None
    Maximum time to predict a row, in microseconds, measured with batches of 1000 rows and `n_jobs`
    threads. Only members that together stay within it are blended; if no member is as fast, the
    fastest one, with a warning. With a limit, the model depends on the speed of the machine.
class_weight : dict, list of dict, "balanced" or None
    Weights of the classes; the weight of a row is multiplied by the weight of its class, both in
    training and when the weights of members are found. "balanced": all classes have the same total
    weight.
n_jobs : int or None
    Number of threads. Forests of this package share them in training without the folds, unless
    `time_limit` or `verbose` is set. None: 1, unless in a `joblib.parallel_config` context. -1:
    all processors. The model does not depend on it.
verbose : int
    1 prints a line for each member; members are then trained one after another. More than 1 also
    shows the progress of the members.
"""

ATTRIBUTES = """
members_ : dict of str to estimator
    The fitted members with a positive weight, by name.
weights_ : dict of str to float
    Weight of every member that was compared; the weights sum to 1.
member_scores_ : dict of str to float
    Score of every member on rows that it did not see, by `scoring`. By default it is minus the log
    loss, with probabilities of at least 0.001, or R2 in regression.
score_ : float
    The same score of the blend. For this score, the weights for the rows of each fold are found
    on the other folds. With `scoring`, they are the final weights, which maximise the score.
leaderboard_ : DataFrame, or dict of lists without pandas
    One row for each member, the blend, a constant (the class frequencies, or the mean), and a
    random forest, the best score first. Columns: score, weight, seconds to train, microseconds to
    predict a row, and whether the model was trained again on all rows. Scores are computed by
    `scoring` on held-out rows. Unless ``calibrate=False``, the log loss is measured with a
    temperature for each model, which is found on one half of these rows and applied to the other
    half. With a `time_limit`, the random forest may be missing.
score_name_ : str
    Name and unit of these scores.
temperature_ : float
    Blended probabilities are raised to the power of 1 / temperature and normalised. It is 1 if no
    other temperature improved the log loss of held-out rows, and with several outputs. It is above
    1 only with `X_val`, or if no member with a positive weight is a forest of this package.
left_out_ : list of str
    Members that were left out because there was no time.
feature_importances_ : ndarray of shape (n_features_in_,), float64
    Weighted mean of the importances of all members that have importances; it sums to 1.
"""

NOTES = """
To find the weights, a forest of this package is trained once, with each of its trees on all folds
but one (for hinge forests and oblique boosting, read bags for trees). A row is predicted by the
trees that left out its fold: with 100 trees and 5 folds, by 20 trees. With many rows, members are
compared on fewer folds, with 5000 rows or more together. The same share of their trees is then
trained; if it is at most half, these trees stay in the forest that is trained on all rows. All
folds are used with ``refit=False``, `scoring`, `groups`, or a splitter as `cv`. Settings that a
forest chooses from the data are chosen once, on all rows. Each bag of oblique boosting is stopped
early on the fold that it leaves out, so its score is slightly too high.

Greedy selection is repeated on 20 bootstrap samples of the predicted rows, and on fewer samples if
there are more than 20,000 rows. The weights are averaged over the samples; members with a weight
below 0.05 are left out. With `scoring`, or with more than 200,000 predicted rows, there is one
selection on all of these rows. Unless ``calibrate=False``, the log loss of a selection is that at
the best of the temperatures 1, 4/5, 2/3 and 1/2, because the blend will have a temperature.

{weighted_rows}
"""

REFERENCES = """
.. [1] R. Caruana, A. Niculescu-Mizil, G. Crew, A. Ksikes, "Ensemble Selection from Libraries of
   Models", ICML 2004.
"""


@with_texts()
class _Blend(TableEstimator):
    """Parameters and training shared by classifier and regressor."""

    _how_to_hold_out = "use a blend that was not trained by skforest.dask"
    _scales_features = True  # most members read float64
    _parameter_constraints: dict = {
        "members": [StrOptions({"auto"}), list, tuple],
        "preset": [StrOptions({"fast", "balanced", "best"})],
        "cv": ["cv_object"],
        "scoring": [str, callable, None],
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "refit": ["boolean"],
        "oob_score": ["boolean"],
        "calibrate": ["boolean"],
        "time_limit": [Interval(Real, 0.0, None, closed="neither"), None],
        "max_predict_us": [Interval(Real, 0.0, None, closed="neither"), None],
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    # ----------------------------------------------------------------------------------- fitting

    @names_class
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
        """Train the members and find their weights.

        Parameters
        ----------
        X : {array-like, dataframe} of shape (n_samples, n_features)
            It may hold numbers, categories and missing values, see :doc:`/guide/tables`, but no
            infinite values.
        {takes_targets}
        groups : array-like of shape (n_samples,), default=None
            Groups of rows that are left out together, such as all rows of a patient.
        X_val : {array-like, dataframe} of shape (n_val, n_features), default=None
            Rows that determine the weights and the temperature, with the columns of X. Members
            that can stop early do so on these rows. All members are then trained once, on all
            rows of X; `cv` and `refit` have no effect. None: members are compared on rows of X
            that they did not see.
        {takes_given_targets}
        {checkpoint}
            Members of other packages are trained again.

        {returns_self}
        """
        self._validate_params()
        if checkpoint is not None:
            check_continues(self)
        validation = given_rows(self, X_val, y_val, sample_weight_val)
        with self._unchanged_on_error(), each_warning_once():
            self._fit(X, y, sample_weight, groups, validation, checkpoint)
        return self

    def _fit(self, X, y, sample_weight, groups, validation, checkpoint):
        start = time.perf_counter()
        limit = TimeLimit.of(self.time_limit, start)
        self._forget_held_out()
        samples = self._read_samples(X, y, sample_weight, groups, validation)
        samples.checkpoint, samples.refit = checkpoint, self.refit
        ratio = self._ratio_to_prior(samples.trained_rows) if is_classifier(self) else None
        random = check_random_state(self.random_state)
        check_names(self.members, self._get_param_names())
        members = self._new_members(random)
        check_scoring(self, samples)
        kept = self._train_folds(members, samples, limit)
        limit = None if limit is None else TimeLimit(limit.deadline)  # members do not warn
        compared, responses = self._compare(kept, samples)
        response = self._set_weights(kept, responses, compared, random.randint(2**31 - 1))
        self._train_members(kept, samples, limit)
        self._prior_ratio = ratio
        response = finished(response, self.temperature_, ratio, compared.classes)
        self._keep_scores(compared.compared_y, response, compared.compared_count)
        if self.oob_score:
            rows = compared.of_samples(response), response, compared.compared_y
            self._set_oob_attributes(*rows, compared.compared_count)
        forest = OwnMember(FOREST, self._baseline())
        forest.take_class_weight(self)
        score = comparison(self, criterion_of(self, compared, kept), compared)
        self._baselines |= baseline_rows(forest, samples, compared, score, limit)
        self._baselines[BLEND]["fit_seconds"] = time.perf_counter() - start
        self.left_out_ = [member.name for member in members if member not in kept]
        if limit is not None and (done := shortened(members, kept)):
            warn_caller(f"time_limit={self.time_limit:.3g}: {done}")

    def _baseline(self):
        """A random forest, for the leaderboard."""
        given = {name: getattr(self, name) for name in ("categorical_features", "n_jobs")}
        return MEMBERS["manifold"][is_regressor(self)](projection="axis", random_state=0, **given)

    def _read_samples(self, X, y, sample_weight, groups, validation=None):
        """Validated X, y and weights, divided into folds."""
        numbers, target, weight, levels = self._validate_fit(X, y, sample_weight)
        target = self._encode_target(target, False)
        categorical = self.categorical_features
        encoding = partial(
            Columns.of(numbers, levels, not isinstance(categorical, str)).encoded,
            categorical_features=categorical,
            n_outputs=target.shape[1],
        )
        rows, given, plain = weighted_rows(self, numbers, target, weight, levels)
        if sample_weight is None and getattr(self, "class_weight", None) is None:
            given = plain = None
        if len(rows) < 2:
            raise ValueError("a blend needs at least 2 distinct rows, got n_samples = 1 of them")
        decoded, classes = self._decoded(target)
        X = as_array(as_frame(X))
        number = None if groups is None else check_groups(groups, len(rows.row_of_sample))
        if validation is not None:
            training = X, decoded, given, number
            samples = given_samples(self, validation, training, rows, levels, encoding)
        else:
            groups = None if groups is None else np.asarray(groups).ravel()
            cv = 5 if self.cv is None else self.cv
            folds = sample_folds(cv, X, decoded, rows, groups, is_classifier(self))
            shared = classes, compares_all_rows(self, groups), encoding, number
            samples = BlendedRows(X, decoded, given, rows, folds, *shared)
        samples.plain_weight = plain
        return samples

    def _new_members(self, random):
        """Unfitted members, with their names."""
        members = []
        for item in entries(self):
            name, estimator = entry_of(item, MEMBERS | OTHERS, is_classifier(self))
            # Each member draws a seed, whether it uses it or not, so that others do not depend on
            # its parameters.
            seed = int(random.randint(2**31 - 1))
            own = set_by_blend(self, estimator, seed)
            estimator = clone(estimator)
            estimator.set_params(**own)  # that of a frozen estimator returns None
            known, number, first = {member.name for member in members}, 1, name
            while name in known:
                name = f"{first}-{(number := number + 1)}"
            members.append(kind_of(estimator)(name, estimator))
            members[-1].take_class_weight(self)
        if not members:
            raise ValueError("members is empty; a blend needs at least one")
        return members

    def _train_folds(self, members, samples, limit):
        """Train members on folds; return the ones that had enough time."""
        if limit is not None:
            return train_in_time(members, samples, limit, partial(criterion_of, self))
        steps = Steps(self.verbose, type(self).__name__, len(members))
        train_folds(members, samples, self.n_jobs, steps)
        return members

    def _compare(self, members, samples):
        """The rows that all members predict, as `BlendedRows`, and the members' responses."""
        self._fit_seconds, self._predict_us = {}, {}
        samples, responses = common_rows(members, samples)
        if self.time_limit is not None and self.max_predict_us is None:
            samples.n_batches = 1
        for member, response in zip(members, responses):
            shape = len(samples.compared), samples.n_columns
            check_response(response, shape, member.name)
            self._fit_seconds[member.name] = member.seconds
            self._predict_us[member.name] = member.predict_us(samples)
            if self.time_limit is not None:
                self._report(f"{member.name} trained in {member.seconds:.1f} s")
        return samples, responses

    def _set_weights(self, members, responses, samples, seed):
        """Find the weights of the members and the temperature.

        The weights of each row in the returned response were found on the other folds.
        """
        names = [member.name for member in members]
        criterion = criterion_of(self, samples, members)
        scores = [criterion.score(criterion.reduce(response)) for response in responses]
        costs = [self._predict_us[name] for name in names]
        budget = np.inf if self.max_predict_us is None else self.max_predict_us
        given = self.n_rounds, seed, costs, budget
        weights = blend_weights(criterion, responses, *given)
        folds = samples.temperature_folds()
        unseen = unseen_response(criterion, responses, weights, folds, *given)
        self.score_ = criterion.score(criterion.reduce(unseen))
        if not np.isfinite(self.score_):
            raise ValueError(f"scoring={self.scoring!r} is {self.score_} for all members")
        if np.dot(weights > 0, costs) > budget:
            warn_caller(
                f"max_predict_us={self.max_predict_us}: no member is as fast; the fastest is used"
            )
        self.member_scores_ = dict(zip(names, scores))
        compare = comparison(self, criterion, samples)
        self._board_scores = {name: compare(part) for name, part in zip(names, responses)}
        self.weights_ = dict(zip(names, weights.tolist()))
        blended = sum(weight * response for weight, response in zip(weights, responses))
        predict_us = float(np.dot(weights > 0, costs))
        self._baselines = {BLEND: {"score": compare(unseen), "predict_us": predict_us}}
        self.temperature_ = 1.0
        if is_classifier(self) and self.calibrate and len(samples.classes) == 1:
            # The trees that left a fold out are only some of the forest. The mean of fewer trees
            # varies more, which makes it look too confident.
            is_whole = all(member.is_whole for member, w in zip(members, weights) if w)
            self.temperature_ = find_temperature(
                blended,
                samples.compared_y[:, 0].astype(np.int64),
                samples.compared_weight,
                *folds,
                may_flatten=is_whole,
            )
        return unseen

    def _train_members(self, members, samples, limit):
        """Train members with a positive weight on all rows, if useful and if there is time."""
        self.members_, self._is_refitted = {}, {}
        # If splits are no folds, trees may have been trained on few rows.
        least = MIN_REFITTED if samples.splits is None else 0
        may_refit = self.refit and not samples.is_given
        wanted = {name for name, w in self.weights_.items() if may_refit and w and w >= least}
        used = [member for member in members if self.weights_[member.name]]

        def train(member, **shared):
            member.train(samples, limit, member.name in wanted, **shared)

        again = [member for member in used if member.name in wanted and limit is None]
        steps = Steps(self.verbose, type(self).__name__, len(again))
        train_each(again, train, self.n_jobs, steps, "{} again on all rows")
        for member in used:
            if member not in again:
                train(member)
        for member in members:
            name = member.name
            if self.weights_[name]:
                self.members_[name] = member.fitted
                self._fit_seconds[name] = member.seconds
            self._is_refitted[name] = bool(self.weights_[name]) and member.is_refitted
            score = self.member_scores_[name]
            self._report(f"{name} has score {score:.4g} and weight {self.weights_[name]:.3g}")

    def _report(self, text):
        if self.verbose:
            print(f"{type(self).__name__}: {text}", flush=True)

    # -------------------------------------------------------------------------------- predicting

    def _response(self, X):
        if not hasattr(self, "members_"):  # the check itself takes longer than a prediction
            check_is_fitted(self, "members_")
        classes = self._every_classes if hasattr(self, "classes_") else None
        if is_records(X):  # which members of other packages do not read
            X = as_frame(X, getattr(self, "feature_names_in_", None))
        with each_warning_once():
            response = sum(
                self.weights_[name] * response_of(model, X, classes)
                for name, model in self.members_.items()
            )
        return finished(response, self.temperature_, getattr(self, "_prior_ratio", None), classes)

    def _prediction(self):
        """The parts and the finish of predictions, see `Prediction`."""
        check_is_fitted(self, "members_")
        models = members_of(self).items()
        parts = [Part(model, self.weights_[name], name) for name, model in models]
        classes = self._every_classes if is_classifier(self) else None
        return Prediction(parts, classes, self.temperature_, getattr(self, "_prior_ratio", None))

    def _responder(self):
        check_is_fitted(self, "members_")
        return responder_of(self, self._every_classes if is_classifier(self) else None)

    @property
    def feature_importances_(self):
        """Weighted mean of the importances of all members that have them; it sums to 1."""
        check_is_fitted(self, "members_")
        return mean_importances(self)

    @property
    def leaderboard_(self):
        """Scores, weights and times of the members, the blend, a constant and a random forest."""
        check_is_fitted(self, "members_")
        return leaderboard(self)

    @property
    def score_name_(self):
        """Name and unit of the scores."""
        check_is_fitted(self, "members_")
        return score_name(self)

    def _model_html(self):
        """The leaderboard."""
        return leaderboard_html(self) if hasattr(self, "members_") else ""


@described(PARAMETERS, ATTRIBUTES, without=("forest_",), notes=NOTES, references=REFERENCES)
class BlendedForestClassifier(MemberParameters, ForestClassifierMixin, _Blend):
    """Blend of several kinds of forests for classification.

    No kind of forest is the best on all tables. A blend trains several kinds, weights them by how
    well their weighted mean predicts held-out rows (greedy selection [1]_), and drops those that
    do not help.

    {parameters_and_attributes}

    See Also
    --------
    BlendedForestRegressor : The same for regression.
    sklearn.ensemble.StackingClassifier : Trains a model on the predictions of others.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import BlendedForestClassifier
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.model_selection import train_test_split
    >>> X, y = load_wine(return_X_y=True)
    >>> X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)
    >>> blend = BlendedForestClassifier(["manifold", "hinge"], random_state=0)
    >>> round(blend.fit(X_train, y_train).score(X_test, y_test), 2)
    0.98
    >>> {name: round(weight, 1) for name, weight in blend.weights_.items()}
    {'manifold': 0.9, 'hinge': 0.1}
    """

    _auto_members = "manifold", "co2", "hinge", "boosting"
    _parameter_constraints: dict = {
        "class_weight": [StrOptions({"balanced"}), dict, list, None],
    }

    def __init__(
        self,
        members="auto",
        *,
        preset="balanced",
        cv=5,
        scoring=None,
        n_rounds=40,
        refit=True,
        oob_score=False,
        calibrate=True,
        time_limit=None,
        max_predict_us=None,
        class_weight=None,
        prior=None,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        store_parameters(self, locals())


@described(PARAMETERS, ATTRIBUTES, without=("forest_",), notes=NOTES, references=REFERENCES)
class BlendedForestRegressor(MemberParameters, ForestRegressorMixin, _Blend):
    """Blend of several kinds of forests for regression.

    It works like `BlendedForestClassifier`, with weights that minimise the squared error on
    held-out rows.

    {parameters_and_attributes}

    See Also
    --------
    BlendedForestClassifier : The same for classification.
    sklearn.ensemble.StackingRegressor : Trains a model on the predictions of others.

    {notes_and_references}

    Examples
    --------
    >>> from skforest import BlendedForestRegressor
    >>> from sklearn.datasets import make_friedman1
    >>> X, y = make_friedman1(600, noise=1.0, random_state=0)
    >>> blend = BlendedForestRegressor(["manifold", "hinge"], random_state=0)
    >>> round(blend.fit(X[:200], y[:200]).score(X[200:], y[200:]), 2)
    0.9
    """

    # Manifold forests had the weight 0 on nearly all tables, and took a tenth of the time.
    _auto_members = "co2", "hinge", "boosting"

    def __init__(
        self,
        members="auto",
        *,
        preset="balanced",
        cv=5,
        scoring=None,
        n_rounds=40,
        refit=True,
        oob_score=False,
        time_limit=None,
        max_predict_us=None,
        categorical_features="from_dtype",
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        store_parameters(self, locals())
