"""Code shared by the boosting estimators: rows for early stopping, settings, warm starts."""

import warnings
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier
from sklearn.metrics import get_scorer, get_scorer_names

from .._docs import with_texts
from .._warnings import warn_caller
from ..forest.statistics import staged_responses
from ..forest.storage import LINKS
from ..table.feature_grid import FeatureGrid
from ..training.blending import Scorer
from ..training.boosting import BoostingMethod, BoostingSettings, Continuation, known_rounds
from ..training.boosting_trials import best_depth, with_best_linear
from ..training.constraints import read_groups, read_monotonic
from ..training.method import mean_by_row, n_members
from ..training.parameters import ParameterObject
from .base import BaseForest, Integral, Interval, Real, StrOptions
from .given_rows import GivenRowsMixin
from .prediction import predicting
from .validation import check_unchanged

MIN_ROWS = 20  # with fewer distinct rows, early_stopping="auto" is off
MIN_L2 = 1e-6  # keeps gains finite where the curvature of a loss vanishes
LARGE = 20_000  # rows from which on n_bags="auto" is 1
# With at least so many rows, n_directions="auto" is 32 and not 64, see
# `python -m benchmarks.measure.boosting directions`.
MANY_ROWS = 10_000
# Parameters that a warm start must not change.
FIXED = (
    "loss quantile monotonic_cst interaction_cst linear_leaves linear_start early_stopping "
    "n_iter_no_change"
).split()


@dataclass(frozen=True)
class HeldOutScoring:
    """`early_stopping` by a scorer, for an estimator that knows its target."""

    scorer: object  # a name or a callable
    model: object  # not yet fitted, but for the classes

    def of(self, y, weight):
        """The criterion of the responses of some rows; y as in a TrainingSet."""
        y, classes = self.model._decoded(y)
        scorer = get_scorer(self.scorer) if isinstance(self.scorer, str) else self.scorer
        of, lacking = partial(predicting, self.model), ""
        if classes is not None and y.ndim == 1 and len(others := np.setdiff1d(*classes, y)):
            lacking = f"; the rows held out for it have none of class {others.tolist()[0]!r}"
        return Scorer(scorer, of, as_column, y, weight, len(y), "early_stopping", lacking)

    def check(self, data, link):
        """Raise the error that the scorer raises for the prediction before the first round."""
        response = np.tile(link(data.baseline[None]), (len(data), 1))
        try:
            self.of(data.y, data.count).score(response)
        except Exception as error:
            if not isinstance(self.scorer, str):
                error.add_note(
                    f"early_stopping={self.scorer!r} raised this error before training."
                )
                raise
            raise ValueError(
                f"early_stopping={self.scorer!r} does not fit: {error}; these scorers do: "
                f"{', '.join(self._fitting(data.y[:1000], response[:1000]))}"
            ) from error

    def _fitting(self, y, response):
        """Names of the scorers of scikit-learn that fit some rows."""
        found = []
        for name in sorted(get_scorer_names()):
            with suppress(Exception), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                replace(self, scorer=name).of(y, np.ones(len(y))).score(response)
                found.append(name)
        return found


def as_column(rows):
    """Numbers of rows in place of X, since a scorer needs their predictions only."""
    return rows[:, None]


@with_texts()
class ObliqueBoosting(GivenRowsMixin, BaseForest):
    """Parameters and training shared by classifier and regressor; not for direct use."""

    _how_to_hold_out = (
        "pass early_stopping=True to a model that is not trained by skforest.dask, or "
        + BaseForest._how_to_hold_out
    )
    _criterion = "squared_error"
    _scales_features = True
    _limits_features = "usual"
    _completes_members = True

    _parameter_constraints: dict = {
        "learning_rate": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither")],
        "max_depth": [StrOptions({"auto"}), Interval(Integral, 1, 30, closed="both"), None],
        "max_leaf_nodes": [Interval(Integral, 2, None, closed="left"), None],
        "min_samples_leaf": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "l2_regularization": [Interval(Real, 0.0, None, closed="left")],
        "n_directions": [StrOptions({"auto"}), Interval(Integral, 0, 2**16, closed="both")],
        "feature_shape": ["array-like", Interval(Integral, 1, None, closed="left"), None],
        "subsample": [Interval(Real, 0.0, 1.0, closed="right")],
        "monotonic_cst": ["array-like", dict, None],
        "interaction_cst": [StrOptions({"pairwise", "no_interactions"}), list, tuple, None],
        "linear_leaves": [StrOptions({"auto"}), "boolean"],
        "linear_start": [StrOptions({"auto"}), Interval(Real, 0.0, None, closed="neither"), None],
        "n_bags": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "early_stopping": ["boolean", str, callable],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
    }

    @property
    def _map_scaling(self):
        return "minmax" if self._grid is None else "common"  # boxes add up features

    @property
    def _needs_dense(self):
        if self.feature_shape is not None:
            return f"feature_shape={self.feature_shape!r}"
        linear = self._linear_parameters().items()
        return next((f"{name}={value!r}" for name, value in linear if value), None)

    def _linear_parameters(self):
        """Those of `linear_leaves` and `linear_start` that are not "auto", as a dict."""
        values = {"linear_leaves": self.linear_leaves, "linear_start": self.linear_start}
        return {name: value for name, value in values.items() if not isinstance(value, str)}

    @property
    def _grid(self):
        """The FeatureGrid of the boxes; None without `feature_shape`."""
        shape = self.feature_shape
        return None if shape is None else FeatureGrid(shape, self.n_features_in_)

    # ----------------------------------------------------------------------------------- settings

    def _settings(self, data, request):
        settings = self._without_trials(data, request)
        if request.is_warm_start:
            settings = self._continued(settings, data, request.previous)
        settings = self._with_depth(settings, data, request)
        return settings if request.is_warm_start else self._with_linear(settings, data, request)

    def _without_trials(self, data, request):
        """The settings except those that are chosen by training small models."""
        n_rows = int(np.count_nonzero(data.weight))
        auto = self._auto_sizes(n_rows) | {
            "learning_rate": 0.1,
            "min_samples_leaf": min(max(1, n_rows // 50), 15),
            "early_stopping": n_rows >= MIN_ROWS or request.validation is not None,
        }
        scoring = self._scoring(data)
        values = {name: getattr(self, name) for name in auto}
        resolved = {
            name: auto[name] if isinstance(value, str) else value for name, value in values.items()
        }
        if scoring is not None:
            resolved["early_stopping"] = True
        held_out = None
        if resolved["early_stopping"]:
            of_X = "rows" if request.groups is None else "groups"
            held_out = of_X if request.validation is None else "X_val"
        if held_out in ("groups", "rows") and data.n_groups < 2 <= len(data):
            raise ValueError(
                "groups must have at least 2 groups with a positive weight; otherwise pass "
                "early_stopping=False"
            )
        self._check_grid()
        return BoostingSettings(
            loss=self._make_loss(),
            n_rounds=int(self.n_estimators),
            n_bags=int(resolved["n_bags"]),
            learning_rate=float(resolved["learning_rate"]),
            max_depth=None,
            max_leaf_nodes=int(self.max_leaf_nodes or 0),
            min_samples_leaf=int(resolved["min_samples_leaf"]),
            l2=max(float(self.l2_regularization), MIN_L2),
            subsample=float(self.subsample),
            n_directions=int(resolved["n_directions"]),
            feature_shape=None if self._grid is None else self._grid.shape,
            monotonic=self._monotonic_features(data),
            interacting=read_groups(self.interaction_cst, self._column_names),
            held_out=held_out,
            n_iter_no_change=int(self.n_iter_no_change),
            scoring=scoring,
            keeps_rounds=self.warm_start,
        )

    def _auto_sizes(self, n_rows):
        """Values of "auto" by parameter, for those that decide how long a fit of rows takes."""
        most_directions = 64 if n_rows < MANY_ROWS else 32
        return {
            "n_directions": min(most_directions, max(16, 64 * LARGE // max(n_rows, 1))),
            "n_bags": 1 if n_rows >= LARGE else 5,
        }

    def _scoring(self, data):
        """The score for early stopping as `HeldOutScoring`; None: the loss."""
        scorer = self.early_stopping
        if not (callable(scorer) or isinstance(scorer, str) and scorer != "auto"):
            return None
        model = copy(self)
        for name in ("forest_", "_trained_rounds", "_skl_callbacks"):  # may be large, or not sent
            vars(model).pop(name, None)
        scoring = HeldOutScoring(scorer, model)
        scoring.check(data, LINKS[self._make_loss().link])
        return scoring

    def _check_grid(self):
        """Raise ValueError if there are constraints of columns, which boxes do not obey."""
        if self._grid is None:
            return
        for name in ("monotonic_cst", "interaction_cst"):
            if getattr(self, name) is not None:
                raise ValueError(
                    f"feature_shape={self.feature_shape!r} is not possible with {name}: the boxes "
                    "of the grid mix columns"
                )

    @property
    def _column_names(self):
        """Names of the columns of X, or their numbers if they have no names, as a list."""
        return getattr(self, "feature_names_in_", np.arange(self.n_features_in_)).tolist()

    def _monotonic_features(self, data):
        """Constraints of the features made from the columns of X; None if there are none."""
        if self.monotonic_cst is None:
            return None
        levels = data.feature_map.levels
        signs = read_monotonic(self.monotonic_cst, self._column_names, levels)
        if not signs.any():
            return None
        if len(self._make_loss().scale.start(data.baseline)) > 1:
            raise ValueError(
                f"monotonic_cst={self.monotonic_cst!r} needs one output and one quantile, or two "
                "classes and no `Loss` of your own"
            )
        return data.feature_map.per_feature(signs).astype(np.int8)

    def _with_depth(self, settings, data, request):
        """The settings with `max_depth`; "auto": as for the first trees, or by a trial."""
        if not isinstance(self.max_depth, str):
            depth = None if self.max_depth is None else int(self.max_depth)
            return replace(settings, max_depth=depth)
        if settings.max_leaf_nodes:
            return settings
        depth = self.max_depth_ if request.is_warm_start else None
        if depth is None:
            depth = best_depth(data, settings, self._seed, request)
        return replace(settings, max_depth=depth)

    def _with_linear(self, settings, data, request):
        """The settings with `linear_leaves` and `linear_start`; "auto": by trials."""
        parameters, loss = self._linear_parameters(), settings.loss
        leaves, start = (parameters.get(name) for name in ("linear_leaves", "linear_start"))
        if isinstance(start, bool):
            raise TypeError(
                f'linear_start={self.linear_start!r} must be "auto", a number above 0, or None'
            )
        is_monotonic = settings.monotonic is not None
        for name, value in parameters.items():
            if value and (is_monotonic or not loss.has_curvature):
                reason = "monotonic_cst" if loss.has_curvature else f"loss={self.loss!r}"
                raise ValueError(f"{name}={value!r} is not possible with {reason}")
        start = None if start is None else float(start)
        settings = replace(settings, linear_leaves=bool(leaves), linear_start=start)
        if is_classifier(self) or not loss.is_quadratic or not settings.early_stopping:
            return settings
        if is_monotonic or sparse.issparse(data.X):
            return settings
        tries = [isinstance(value, str) for value in (self.linear_leaves, self.linear_start)]
        return with_best_linear(data, settings, self._seed, request, *tries)

    # --------------------------------------------------------------------------------- warm starts

    def _continued(self, settings, data, forest):
        """The settings of a warm start, which adds rounds to the bags of the last fit, or bags."""
        last = Continuation(**self._last_fit)
        check_unchanged(last.fixed, self._fixed(settings))
        self._check_grid_of_forest(settings, forest)
        is_linear = self.linear_leaves_ or self.linear_start_ is not None
        if is_linear and sparse.issparse(data.X):
            raise TypeError(
                "Sparse data was passed for X, but dense data is required by the linear functions "
                "that warm_start=True continues with; pass X.toarray()"
            )
        rows = "X_val" if settings.held_out == "X_val" else "no X_val"
        reasons = (
            f"early_stopping={self.early_stopping!r}, {rows} and "
            f"{np.count_nonzero(data.weight)} distinct rows"
        )
        return replace(
            settings,
            linear_leaves=self.linear_leaves_,
            linear_start=self.linear_start_,
            adds_rounds=last.adds_rounds(settings, len(forest.bag_start) - 1, reasons),
        )

    def _fixed(self, settings):
        """Values that a warm start must not change, as a dict."""
        fixed = {name: getattr(self, name, None) for name in FIXED}
        if isinstance(self.loss, ParameterObject):
            fixed["loss"] = clone(self.loss)  # its parameters may be set before the next fit
        fixed["feature_shape"] = settings.feature_shape
        for name in ("X_val", "groups"):  # do they determine the rows that are held out?
            fixed[name] = "rows" if settings.held_out == name else None
        return fixed

    def _check_grid_of_forest(self, settings, forest):
        """Raise ValueError if a warm start would need a different kind of direction."""
        has_grid = settings.feature_shape is not None
        shape = settings.feature_shape if has_grid else forest.feature_shape
        n_others = len(forest.sparse_feature) if has_grid else len(forest.box_corner)
        if n_others or shape != forest.feature_shape:
            raise ValueError(
                f"feature_shape={self.feature_shape!r}, but warm_start=True continues a fit with "
                f"a different one: the forest has {len(forest.box_corner)} boxes in an array of "
                f"the shape {forest.feature_shape}"
            )

    def _new_members(self, method, request):
        if method.settings.adds_rounds:
            return range(method.n_members)
        if request.is_warm_start and method.n_members == n_members(request.previous):
            warn_caller(
                "Warm-start fitting without increasing n_estimators or n_bags does not fit new "
                "trees."
            )
            return range(0)
        return super()._new_members(method, request)

    # ------------------------------------------------------------------------------------- method

    def _method(self, settings):
        known = {}
        if settings.adds_rounds:
            ends = zip(self.forest_.bag_start[:-1], self.forest_.bag_start[1:])
            bags = [self.forest_[first:last] for first, last in ends]
            recorded = vars(self).get("_trained_rounds")  # not where warm_start was False
            known = known_rounds(self._seed, bags, recorded, self.n_iter_)
        return BoostingMethod(settings, self._task(), seed=self._seed, known=known)

    def _resolved(self, settings):
        names = "learning_rate min_samples_leaf n_directions n_bags max_depth early_stopping"
        names += " linear_leaves linear_start"
        resolved = {f"{name}_": getattr(settings, name) for name in names.split()}
        if settings.scoring is not None:
            resolved["early_stopping_"] = settings.scoring.scorer
        return resolved

    def _store(self, forest, settings, records, n_before=0):
        super()._store(forest, settings, records, n_before)
        # Bags that are added hold out different rows than the first ones.
        n_folds = self._last_fit["n_folds"] if n_before else settings.n_folds
        fixed = self._fixed(settings) if self.warm_start else {}
        # A warm start completes bags that a time limit, or a callback, has ended.
        done = [record["ended"][0] for record in records if "ended" in record]
        done += [record["stopped"] for record in records if "stopped" in record]
        self._last_fit = vars(Continuation(min([settings.n_rounds, *done]), n_folds, fixed))

    def _keep_held_out(self, data, rows, response, known):
        super()._keep_held_out(data, rows, response, known)
        if not known.all() or len(data) < 2:
            return
        if len(rows) > len(data):
            response = mean_by_row(response, rows.weight, data.in_copies()[1])
        self._set_oob_attributes(data.of_samples(response), response, data.y, data.count)

    # ------------------------------------------------------------------------------------- stages

    def staged_predict(self, X):
        """Predictions after each round, as an iterator.

        {takes_rows}

        Yields
        ------
        y : ndarray
            Predictions by the trees of this round and of all earlier ones, in all bags; a bag with
            fewer rounds takes part with all of its trees. The last one equals `predict`.
        """
        return map(self._prediction_of, self._staged_response(X))

    def _staged_response(self, X):
        """Responses after each round."""
        X = self._validate_predict(X)
        return staged_responses(self.forest_, self._in_blocks(X, lambda mapped: mapped))
