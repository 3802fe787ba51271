"""Base class of all forests: `fit`, and prediction in blocks.

`fit` is a straight line: read the table as a `TrainingSet`, resolve every parameter, make the
`Method` that learns, train its members in parallel, keep the forest. A subclass resolves its
parameters (`_settings`) and makes the method that learns with them (`_method`). `predict` maps
features and routes blocks of rows through the forest. Only this file imports private names of
scikit-learn.
"""

import time
from abc import abstractmethod
from copy import copy
from dataclasses import replace
from functools import partial
from numbers import Integral, Real  # noqa: F401

import numpy as np
from scipy import sparse
from sklearn.base import _fit_context, is_classifier
from sklearn.utils import _safe_indexing as take_rows  # noqa: F401
from sklearn.utils._param_validation import (  # noqa: F401
    HasMethods,
    Interval,
    RealNotInt,
    StrOptions,
    validate_params,
)
from sklearn.utils.validation import check_is_fitted

from .._docs import with_texts
from .._version import __version__
from .._warnings import warn_caller
from ..forest import Forest
from ..forest.edit import with_prior_ratio
from ..forest.statistics import decision_path, with_prior
from ..table.feature_map import FeatureMap
from ..table.frame_reader import FrameReader, are_few
from ..table.frames import FEW_ROWS, as_frame
from ..table.matrix import BLOCK, DENSE_BLOCK, as_bytes, canonical_csr, dense
from ..table.records import is_records
from ..table.target_statistics import TargetStatistics
from ..table.training_set import TrainingSet, check_groups, rescale_weights
from ..training.checkpoint import Checkpoint
from ..training.method import (
    FitRequest,
    Sampling,
    Task,
    first_members,
    mean_response,
    n_complete,
    n_members,
    staged_means,
    train_members,
)
from ..training.threads import (
    CallbackSupportMixin,
    FitTasks,
    TimeLimit,
    hash_of,
    in_blocks,
    with_callbacks,
)
from ..training.trials import useful_features
from .prediction import Part, Prediction
from .validation import MAX_COUNT, TableEstimator, check_continues, draw_seed, summary_html

MANY_TERMS = 16  # from this many weights of a direction on, entries of a sparse row are looked up

NOT_IN_RESULTS = ("n_jobs", "verbose", "prior")  # training does not depend on these parameters
# Fitted attributes to which training adds one entry for each member.
RECORDS = (
    "loss_curve_",
    "validation_scores_",
    "steepness_curve_",
    "active_leaves_curve_",
    "n_active_leaves_",
    "refine_curve_",
    "n_iter_",
    "_trained_rounds",
)


@with_texts()
class BaseForest(CallbackSupportMixin, TableEstimator):
    """Base of all estimators; not for direct use.

    A subclass takes the parameters of `_parameter_constraints` in its ``__init__``, adds its own
    parameters to both, and defines `_settings` and `_method`.
    """

    _parameter_constraints: dict = {
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "categorical_features": ["array-like", StrOptions({"from_dtype"}), None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
        "time_limit": [Interval(Real, 0.0, None, closed="neither"), None],
    }
    time_limit = None  # of single trees
    _completes_members = False  # does a warm start complete members that a time limit ended?
    _trains_members = True  # is the model a `Forest` alone, whose members are trained one by one?
    _has_own_link = False  # does a loss of the user turn responses into predictions?
    _map_scaling = "minmax"  # how the feature map scales features, if it does
    _limits_features = None  # `limit` of the feature map
    _how_to_hold_out = "use a blend with this estimator as its only member"  # for an error
    _adds_features = False  # do directions add up all features of a part of a grid?
    # Are small forests trained to decide whether indicators of missing values stay? Greedy splits
    # suffer from many of them; in joint training, their weights can become small.
    _compares_indicators = False

    # ----------------------------------------------------------------------------------- fitting

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, *, checkpoint=None):
        """Train the forest.

        Parameters
        ----------
        X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
            Or of shape ``(n_samples, *feature_shape)``. It may hold numbers, categories and
            missing values, see :doc:`/guide/tables`, but no infinite values. Sparse X is supported
            by manifold, CO2 and hinge forests and by oblique boosting. Estimators that do not
            scale features keep uint8 and bool as bytes and convert other numbers to float32; all
            others scale features in float64.
        {takes_targets}
        {checkpoint}

        {returns_self}
        """
        return self._fit(X, y, sample_weight=sample_weight, checkpoint=checkpoint)

    def _fit(self, X, y, *, sample_weight, checkpoint=None, **given):
        """Train the forest; `given` are further fields of a `FitRequest`."""
        tasks = self._begin_tasks(X, y, sample_weight)
        with self._unchanged_on_error():
            start = time.perf_counter()
            limit = TimeLimit.of(self.time_limit, start)
            prior_ratio = None  # of the last fit
            if self.warm_start and hasattr(self, "forest_"):
                prior_ratio = self.forest_.prior_ratio
                self.forest_ = with_prior_ratio(self.forest_, None)  # as trees are trained
            request = self._request(sample_weight=sample_weight, limit=limit, tasks=tasks, **given)
            data = self._read_training_set(X, y, request)
            request = replace(request, prior_ratio=self._ratio_to_prior(data))
            if checkpoint is not None:
                kept = self._checkpoint(checkpoint, data, request.previous)
                request = replace(request, checkpoint=kept)
            settings = self._settings(data, request)
            method = self._method(settings)
            if members := self._new_members(method, request):
                samples = self._samples_of(method, data, request)
                request = replace(request, first_known=samples["first"])
                trained = train_members(method, data, members, self._seed, request)
                forest = method.finish(trained, request.previous)
                forest = with_prior_ratio(forest, request.prior_ratio)
                self._store(forest, settings, trained.records, members[0])
                self._samples = samples
                self._finish_fit(method, data, trained)
            else:
                if request.prior_ratio != prior_ratio:
                    self._forget_held_out()
                self.forest_ = with_prior_ratio(self.forest_, request.prior_ratio)
            self._training_seconds = time.perf_counter() - start
            if tasks is not None:
                tasks.context.call_on_fit_task_end(
                    estimator=self, **tasks.rows, reconstruction_attributes=dict
                )
        return self

    def _request(self, **given):
        """A `FitRequest` of this estimator."""
        if "previous" not in given:
            previous = vars(self).get("forest_") if self.warm_start else None
            if previous is not None and not self._completes_members:
                n_kept = getattr(self, "_n_complete", n_members(previous))
                previous = first_members(previous, n_kept)
            given["previous"] = previous
        name = type(self).__name__
        return FitRequest(n_jobs=self.n_jobs, verbose=self.verbose, name=name, **given)

    def _samples_of(self, method, data, request):
        """What tells a later fit whether it knows the samples of members, a dict.

        "key" is a hash of all that they depend on; "first" is the number of the first member with
        this key. Earlier ones were trained on other rows, which are unknown.
        """
        given = data.validation
        given = None if given is None else (given.row_keys(), given.weight)
        # A common factor of the weights changes nothing but their last bits.
        weight = (data.weight / data.weight.max()).astype(np.float32)
        rows = data.row_keys(), weight, data.group, data.fold, given
        key = hash_of((rows, vars(method.sampling), self._seed))
        if not request.is_warm_start:
            return {"key": key, "first": 0}
        before = vars(self).get("_samples", {})
        n_before = n_members(request.previous)
        return {"key": key, "first": before["first"] if before.get("key") == key else n_before}

    def _checkpoint(self, folder, data, previous=None):
        """The `Checkpoint` in a folder, for the training on these rows, after a forest."""
        check_continues(self)
        rows, given = data.validation, self.get_params(deep=False)
        if "procedure" in given:
            given["procedure"] = self._procedure
        names = getattr(self, "feature_names_in_", None)
        key = {"estimator": type(self).__name__, "version of skforest": __version__}
        key |= {name: value for name, value in given.items() if name not in NOT_IN_RESULTS}
        is_exact = "_trained_rounds" in vars(self)  # has it more digits than the forest?
        key |= {
            "random_state": self._seed,
            "X or y": (data.X, data.y, data.target),
            "units, names or categories of X": (data.feature_map, names),
            "labels of y": getattr(self, "classes_", None),
            "the model of a warm start": None if previous is None else (previous.arrays, is_exact),
            "sample_weight or class_weight": data.weight,
            "groups or folds": (data.group, data.fold),
            "X_val": None if rows is None else (rows.X, rows.y, rows.weight),
        }
        hashes = {}
        for name, value in key.items():
            try:
                hashes[name] = hash_of(value)
            except Exception as error:
                raise ValueError(
                    f"checkpoint cannot be used with {name}={value!r}, which cannot be pickled: "
                    f"{error}"
                ) from error
        return Checkpoint(folder, hashes)

    def _begin_tasks(self, X, y, sample_weight):
        """`FitTasks`; None without callbacks."""
        if not getattr(self, "_skl_callbacks", None):
            return None
        # Before attributes may be restored after an error: callbacks are torn down by the context.
        n_members = getattr(self, "n_bags", self.n_estimators)
        n_members = n_members if isinstance(n_members, Integral) else None  # "auto" is not known
        context = self._init_callback_context(max_subtasks=n_members)
        metadata = {} if sample_weight is None else {"sample_weight": sample_weight}
        tasks = FitTasks(self, context, X=X, y=y, metadata=metadata)
        context.call_on_fit_task_begin(estimator=self, **tasks.rows)
        return tasks

    def _read_training_set(self, X, y, request):
        """The rows as a TrainingSet with its target. Sets fitted attributes and the seed."""
        data = self._training_set(X, y, request)
        del X, y
        if request.is_warm_start:
            return data
        self._seed = draw_seed(self.random_state)
        if not len(data.feature_map.source):  # the columns themselves
            return data
        of_columns = self._for_squared_errors(data)
        useful = useful_features(of_columns, self._seed, self._compares_indicators, request.n_jobs)
        return data.with_features(useful.X, useful.feature_map)

    @abstractmethod
    def _settings(self, data, request):
        """The parameters with every "auto" resolved, a frozen dataclass.

        It checks parameters against the data. Choices made by training small forests belong here.
        """

    @abstractmethod
    def _method(self, settings):
        """The `Method` that trains with these settings."""

    def _resolved(self, settings):
        """Resolved settings as fitted attributes, a dict."""
        return {}

    def _new_members(self, method, request):
        """Numbers of the members to train: all, or those that a warm start adds."""
        name = "n_bags" if method.units[0] == "bag" else "n_estimators"
        n_wanted = method.n_members
        n_done = n_members(request.previous) if request.is_warm_start else 0
        if n_wanted < n_done:
            raise ValueError(
                f"{name}={n_wanted} must be larger or equal to the {n_done} "
                "already trained when warm_start=True"
            )
        if n_wanted == n_done:
            warn_caller(f"Warm-start fitting without increasing {name} does not fit new trees.")
        return range(n_done, n_wanted)

    def _store(self, forest, settings, records, n_before=0):
        """Set the fitted attributes; `records` are for the members after the first `n_before`."""
        self.forest_, self._n_complete = forest, n_before + n_complete(records)
        vars(self).pop("_samples", None)
        self._forget_held_out()
        vars(self).update(self._resolved(settings))
        for name in RECORDS:
            before = vars(self).pop(name, [])[:n_before]
            # Kept for all members or for none: a warm start may train members in another way.
            if len(before) == n_before and name in records[0]:
                setattr(self, name, before + [record[name] for record in records])

    def _finish_fit(self, method, data, trained):
        """Set further fitted attributes once the forest is complete."""
        if trained.has_held_out:
            rows, others = trained.data, trained.without_held_out
            response, known = self._mean_response(rows, trained.is_held_out, others)
            if known.any():
                self._keep_held_out(data, rows, response, known)
            else:
                warn_caller(
                    "Rows, weights or sampling are not those of the last fit. What "
                    "warm_start=True keeps of it may have been trained on any of these rows, so "
                    "the model has no out-of-bag score, no intervals and no sets."
                )

    def _keep_held_out(self, data, rows, response, known):
        """Keep what the `response` of held-out `rows` tells; `known` is a mask of these rows."""
        self._keep_scores(rows.y[known], response[known], rows.count[known])

    def _mean_response(self, data, is_predicted, others=()):
        """`mean_response` with the prior of the forest, and a mask of the rows that have one."""
        forest, ratio = with_prior_ratio(self.forest_, None), self.forest_.prior_ratio
        response, n_predicting = mean_response(forest, data, is_predicted, others)
        response = with_prior(response, ratio, forest.n_classes or [forest.n_outputs])
        return response, n_predicting > 0

    def _ratio_to_prior(self, data):
        """The `prior_ratio` of the forest that is trained on a TrainingSet."""
        return None

    def _sampling(self, bootstrap=False):
        """How members draw their rows."""
        return Sampling(bootstrap, getattr(self, "max_samples", None))

    def _task(self):
        """What the forest predicts."""
        names = getattr(self, "feature_names_in_", None)
        return Task(self._task_metadata, self._criterion, feature_names=names)

    def _merged(self, X, y, sample_weight, encode, known_map=None, is_warm_start=False, **given):
        """Validated input as a TrainingSet without a target; `encode` is applied to y."""
        known_levels = None if known_map is None else known_map.levels
        X, y, weight, levels = self._validate_fit(X, y, sample_weight, known_levels)
        y, weight = encode(y), rescale_weights(weight)
        if is_warm_start:
            self._warn_of_constant(X, weight, known_map)
        return self._merged_rows(X, y, weight, levels, known_map, **given)

    def _merged_rows(
        self,
        X,
        y,
        weight,
        levels,
        feature_map=None,
        has_new_labels=False,
        is_stream=False,
        groups=None,
    ):
        """Like `_merged`, for validated rows; `is_stream`: later rows may be far from these.

        `feature_map` comes from an earlier fit; None: a new one is fitted. `has_new_labels`: its
        target statistics do not contain y.
        """
        is_known = feature_map is not None
        seen = weight if has_new_labels else self._class_weighted(y, weight)
        levels = levels if is_known else self._levels_of(X, levels, weight > 0, seen > 0)
        weight = np.where(seen, weight, 0.0)  # rows of a class of weight 0 are left out
        if not is_known:
            limit = None if is_stream else self._limits_features
            excludes = not is_stream and (self._scales_features or self._adds_features)
            scaling = self._scales_features, self._map_scaling, limit
            names = getattr(self, "feature_names_in_", None)
            feature_map = FeatureMap.fit(X, seen, levels, *scaling, names, excludes)
        self._find_float64_columns(X, seen, feature_map.scale, is_known)
        # Equal rows are merged first, so that means do not depend on the order of the rows.
        Z, has_missing = feature_map.training_inputs(X)
        del X
        data = TrainingSet(Z, y, weight, feature_map)
        if not is_known and self._leaves_out_text(data, Z):
            data = TrainingSet(Z, y, weight, feature_map)
        del Z
        if groups is not None:
            data = data.with_groups(check_groups(groups, len(data.row_of_sample)))
        statistics = None
        seen = data.weight if has_new_labels else self._class_weighted(data.y, data.weight)
        if levels and not has_new_labels:
            n_classes = self.n_classes_ if is_classifier(self) else None
            y = self._without_outliers(data.y, seen)
            statistics = TargetStatistics(data.X, y, seen, n_classes, data.n_samples, data.group)
        if not is_known:
            feature_map = feature_map.fit_features(
                data.X, seen, has_missing, statistics, self._layout is None
            )
        features = feature_map.training_features(data.X, has_missing, statistics)
        return data.with_features(features, feature_map)

    def _warn_of_constant(self, X, weight, feature_map):
        """Warn of columns that trees cannot use, because they were constant in the first fit."""
        columns = feature_map.varying_again(X[weight > 0] if (weight == 0).any() else X)
        if len(columns):
            names = getattr(self, "feature_names_in_", None)
            shown = [int(j) if names is None else names[j] for j in columns[:5]]
            warn_caller(
                f"Columns {shown} of X vary, but were constant in the first fit: their values "
                "have no effect. Fit again without warm_start to use them."
            )

    def _training_set(self, X, y, request):
        """Validated input as a TrainingSet with its target."""
        previous, is_warm_start = request.previous, request.is_warm_start
        known_map = previous.feature_map if is_warm_start else None
        encode = partial(self._encode_target, is_warm_start=is_warm_start)
        given = {"groups": request.groups, "is_warm_start": is_warm_start}
        data = self._merged(X, y, request.sample_weight, encode, known_map, **given)
        data = self._set_target(data, is_warm_start)  # which may change weights, and `deviation`
        has_deviation = is_warm_start and len(previous.deviation)
        return data.with_deviation(previous.deviation) if has_deviation else data

    def _known_training_set(self, X, y, sample_weight):
        """A TrainingSet as the fitted trees see it, to train them further."""
        known_map = self.forest_.feature_map
        data = self._merged(X, y, sample_weight, self._encode_known_target, known_map)
        return self._set_target(data, True)

    # -------------------------------------------------------------------------------- predicting

    def _validate_predict(self, X):
        """Rows to predict, with the feature map not yet applied."""
        check_is_fitted(self, "forest_")
        levels = self.forest_.levels
        names = getattr(self, "feature_names_in_", None)
        given = self._unfolded(X)
        matrix = self._read_again(given)
        if matrix is not None:
            X = self._validated(matrix, reset=None)
        else:
            given = as_frame(given, names)
            table, _ = self._read(given, list(levels), reset=False)
            X = given if table is None else table.matrix(levels)
            X = self._validated(X, reset=False if table is None else None)
            if names is not None and (X.shape[0] <= FEW_ROWS or not levels):
                # The next ones are read faster. `Forest.__getstate__` leaves the reader out.
                self.forest_._cached_reader = FrameReader(given, names, levels)
        return X if self._scales_features or sparse.issparse(X) else as_bytes(X)

    def _few_features(self, X):
        """Features of a few rows, arrays or frames as in `fit`, if plainly valid; or None.

        For a single row, full validation takes many times as long as the prediction. It is left to
        all that is not a sound matrix of numbers.
        """
        plain = self._plain(X) if are_few(X) else None
        if plain is None:
            return None
        plain = np.ascontiguousarray(plain)
        return self.forest_.row_map.features(plain, True, self._takes_missing)

    def _read_again(self, X):
        """Dicts, or a frame with the columns of the last one, as a matrix; otherwise None."""
        reader = getattr(self.forest_, "_cached_reader", None)
        if reader is None and hasattr(self, "feature_names_in_") and is_records(X):
            reader = FrameReader(None, self.feature_names_in_, self.forest_.levels)
            self.forest_._cached_reader = reader
        return None if reader is None else reader.matrix(X)

    def _plain(self, X):
        """X as a matrix that may need no full validation; None if it does, as most tables do."""
        if not hasattr(self, "forest_"):
            return None
        if hasattr(self, "feature_names_in_"):
            return self._read_again(X)
        if type(X) is not np.ndarray or X.ndim != 2 or X.dtype.char not in "fdB":
            return None
        return None if len(X) > MAX_COUNT or self.forest_.levels else X

    def _staged_response(self, X):
        """Responses of the first tree or bag, of the first two, and so on."""
        X = self._validate_predict(X)
        return staged_means(self._routing_forest, self._in_blocks(X, lambda mapped: mapped))

    def _response(self, X):
        """Response of every row, computed in parallel over blocks if there are many rows."""
        return self._routed(X, Forest.response_mapped)

    @property
    def _routing_forest(self):
        """The forest that predicts."""
        return self.forest_

    def _routed(self, X, method):
        """Return the result of a method of the forest for the features of the rows.

        A plain matrix of valid numbers, or a frame like the last one, needs no full validation. It
        would take longer than the prediction of few rows, and it would copy many rows.
        """
        if type(X) is np.ndarray and X.ndim > 2:  # images, which are then plain rows
            X = self._unfolded(X)
        few = self._few_features(X)
        if few is not None:
            return method(self._routing_forest, few)
        plain = self._plain(X)
        if plain is not None and len(plain):
            found = in_blocks(partial(self._plain_block, method), plain, BLOCK, self.n_jobs)
            if found is not None:
                return found
        X = self._validate_predict(X)
        return self._in_blocks(X, partial(method, self._routing_forest))

    def _plain_block(self, method, rows):
        """Result of a method of the forest for some rows; None if they need full validation."""
        map_rows = self.forest_.row_map.features
        features = map_rows(np.ascontiguousarray(rows), True, self._takes_missing)
        return None if features is None else method(self._routing_forest, features)

    def _prediction(self):
        """The parts and the finish of predictions, see `Prediction`."""
        check_is_fitted(self, "forest_")
        classes = self._every_classes if is_classifier(self) else None
        return Prediction([Part(self)], classes, prior_ratio=self.forest_.prior_ratio)

    def _responder(self):
        """Functions of rows to responses and of tables to rows; columns that need float64.

        A blend may return None for the columns: all of them need float64.
        """
        check_is_fitted(self, "forest_")
        forest = self._routing_forest
        features, respond = forest.row_map.features, forest.response_mapped

        def response(X):
            if len(X) <= BLOCK:
                return respond(features(X, False))
            blocks = (X[start : start + BLOCK] for start in range(0, len(X), BLOCK))
            return np.concatenate([respond(features(block, False)) for block in blocks])

        response(np.zeros((1, self.n_features_in_), np.float32))  # makes what routing needs
        # Estimators that were not fitted, but made of a network, have no list of columns.
        return response, copy(self)._validate_predict, getattr(self, "_float64_columns", [])

    def _in_blocks(self, X, predict):
        """``predict(features)`` for blocks of validated rows, mapped to features first."""
        map_coded, map_csr = self.forest_.map_coded, self.forest_.feature_map.inputs
        reads_csr = sparse.issparse(X) and _reads_csr(self.forest_)

        def function(block):
            if reads_csr:
                return predict(map_csr(canonical_csr(block)))
            return predict(map_coded(dense(block)))

        is_unpacked = sparse.issparse(X) and not reads_csr
        most = max(1, min(BLOCK, DENSE_BLOCK // X.shape[1])) if is_unpacked else BLOCK
        return in_blocks(function, X, most, self.n_jobs)

    def apply(self, X):
        """Leaf that each row reaches in each tree.

        {takes_rows}

        {returns_leaves}
        """
        return self._routed(X, Forest.apply_mapped)

    def decision_path(self, X):
        """Nodes that each row passes through.

        {takes_rows}

        {returns_path}
        n_nodes_ptr : ndarray of shape (n_trees + 1,)
            Columns ``n_nodes_ptr[i] .. n_nodes_ptr[i + 1] - 1`` belong to tree i.
        """
        leaves = self.apply(X)
        return decision_path(self.forest_, leaves)

    @property
    def feature_importances_(self):
        """Importances of the features, an array of shape ``(n_features_in_,)``.

        They are at least 0, with sum 1, or all 0 if no tree has a split. They measure the decrease
        of impurity, see `Forest.feature_importances`; `importances_table` can also count splits.
        """
        check_is_fitted(self, "forest_")
        found = self.forest_.feature_importances()
        return self.forest_.feature_map.per_input(found)

    def __getstate__(self):
        """The attributes without the time of training: equal models have equal pickles."""
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_training_seconds"}

    def _model_html(self):
        if not hasattr(self, "forest_"):
            return ""
        seconds = getattr(self, "_training_seconds", None)  # of this process
        return summary_html(self.forest_, seconds)


def _reads_csr(forest):
    """Whether a forest is routed faster over entries of sparse rows than over dense blocks."""
    has_many_terms = len(forest.sparse_feature) > MANY_TERMS * (len(forest.sparse_start) - 1)
    has_others = len(forest.dense) or len(forest.box_corner)
    return has_many_terms and forest.feature_map.keeps_zeros and not has_others
