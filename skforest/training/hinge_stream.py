"""Hinge forests that are trained on the parts of a stream, by `partial_fit`."""

import math
from copy import copy, deepcopy
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from .._kernels.base.rows import tree_seed
from .._warnings import warn_caller
from ..table.training_set import TrainingSet
from .hinge_input import FAR, MAX_SHIFT, are_far
from .losses import TargetUnits, weighted_quantile, with_outlier_weights
from .threads import Control

# Units come from the last WINDOW rows; with many columns, from fewer rows with at most MAX_NUMBERS
# entries, but at least FEWEST. Chosen without a stored measurement.
WINDOW, FEWEST, MAX_NUMBERS = 300, 20, 2**20
RESOLVED = 2.0**12  # so many deviations from 0, float32 has 4096 values within one deviation


@dataclass(frozen=True, kw_only=True)
class HingeStream:
    """The state from which training continues with the next part of a stream."""

    n_rows: int = 0  # number of rows so far
    levels: dict | None = None  # levels of the categories in `waiting`
    parameters: dict | None = None  # of the estimator: hashes by name
    waiting: tuple | None = None  # X, y, weight of rows to train on with the next part
    recent: tuple | None = None  # X (as features), y, weight as given of the last rows
    n_weights: int = 0  # number of rows of positive weight, class weights included, up to now
    mean_weight: float = 0.0  # of them
    units: TargetUnits | None = None
    emphasis: np.ndarray | None = None  # from importances
    bags: list | None = None  # a list of HingeTraining

    @classmethod
    def begun(cls, method, data):
        """Return the stream after its first part, and its forest; `method` is a `HingeMethod`."""
        emphasis, control = method.emphasis(data), Control()
        source = method.input(data, emphasis, is_stream=True)
        seeds = [tree_seed(method.seed, bag) for bag in range(method.n_members)]
        bags = [method.training(data, source, seed, control) for seed in seeds]
        stream = cls(units=data.units, emphasis=emphasis, bags=bags)
        return stream._trained(method, data, 1.0)

    def with_weights(self, weight):
        """Return the stream with the weights of the rows of a part counted, and its share.

        The share is its mean weight relative to the mean of all rows before, and at most 1: a part
        that counts more is learned at the rate of the others.
        """
        weight = weight[weight > 0]
        n, mean = self.n_weights + len(weight), float(weight.mean())
        before = self.mean_weight if self.n_weights else mean
        # Rounded: equal weights have equal means, and a factor of all weights changes nothing.
        share = min(float(f"{mean / before:.6g}"), 1.0)
        mean = before + (mean - before) * (len(weight) / n)
        return replace(self, n_weights=n, mean_weight=mean), share

    def continued(self, method, part, share, labelled=None):
        """Return the stream after a later part, and its forest.

        The part counts by its `share`, from 0 to 1. In regression, the targets of `part` have
        their original units. In classification, `labelled` is the same part with labels as its
        target.
        """
        loss, is_real, window = method.loss, labelled is None, self.window(part, share)
        names = self._far_columns(part, method.task.feature_names)
        if is_real and self.has_far_targets(loss, part.y):
            names.append("y")
        if names:
            warn_caller(
                f"most values of {', '.join(names)} in this part are more than {FAR:g} standard "
                "deviations away from the parts before; the model adapts its units and may forget "
                "what it has learned"
            )
        # Training changes arrays in place, but a part that fails must leave no trace.
        bags, source = deepcopy(self.bags), self.bags[0].source
        for training in bags:
            training.settings = method.settings
        adapted = source.adapted(method.input(window, self.emphasis, is_stream=True))
        if adapted is not source:
            for training in bags:
                training.set_units(adapted, window)
        data = self._with_real_target(loss, part, window, bags) if is_real else labelled
        return replace(self, units=data.units, bags=bags)._trained(method, data, share)

    def _far_columns(self, part, feature_names):
        """List the columns with most values of a part far from earlier values, as text."""
        is_far = replace(self.bags[0].source, scaled=part.X).far_features()
        source = part.feature_map.source
        columns = np.unique((source if len(source) else np.arange(len(is_far)))[is_far]).tolist()
        names = columns if feature_names is None else [feature_names[j] for j in columns]
        return [f"column {name!r} of X" for name in names]

    def _with_real_target(self, loss, part, window, bags):
        """Give a part, and the responses of bags, the target units of the window."""
        units, factor = self.new_units(loss, window, bags)
        if (factor != 1).any():
            for training in bags:
                training.scale_responses(factor)
        part = with_outlier_weights(part, loss.scale)
        return part.with_target(loss.scale.scaled(part.y, units), units)

    def _trained(self, method, data, share):
        """Return the stream after its bags were trained on a part, and their forest."""
        target, forests = method.loss.scale.standardized(data.target, data.units), []
        for training in self.bags:
            training.loss.set_units(data.units)
            training.partial_fit(data, target, share)
            forests.append(method.packed(training, data, keep_all=True))
            training.release_rows()
        return replace(self, recent=self.recent_with(data, share)), method.joined(forests)

    @property
    def settings(self):
        """HingeSettings: the settings of all parts."""
        return self.bags[0].settings

    @property
    def records(self):
        """list of dict: records of the training of each bag."""
        return [training.record for training in self.bags]

    def window(self, data, share):
        """Return the last rows of the stream, whose last part is `data`, as a TrainingSet.

        If the part has a share below 1, rows before it stay, even if it has enough rows.
        """
        n_before = round((1 - share) * len(self.recent[1]))
        rows = joined_rows(self.recent, _rows_as_given(data))
        rows = last_rows(rows, max(_window_size(data), n_before + len(data)))
        return TrainingSet(*rows, data.feature_map)

    def recent_with(self, data, share):
        """Return `recent` after a part, which replaces rows in proportion to its share."""
        part = last_rows(_rows_as_given(data), math.ceil(share * len(data)))
        return last_rows(joined_rows(self.recent, part), _window_size(data))

    def recentred(self, X, feature_map):
        """Return the stream and its map, with new offsets for inputs X that are far from 0.

        Predictions do not change; but far from 0, float32 could not distinguish values.
        """
        if sparse.issparse(X) or not len(feature_map.offset):
            return self, feature_map
        known = ~np.isnan(X)
        count = np.maximum(known.sum(axis=0), 1)
        with np.errstate(over="ignore", invalid="ignore"):
            distance = np.where(known, X - feature_map.offset, 0.0)
            shift = distance.sum(axis=0) / count
            variance = np.where(known, np.square(distance - shift), 0.0).sum(axis=0) / count
            is_far = np.abs(shift) > RESOLVED * np.sqrt(variance)
        is_far &= (variance > 0) & np.isfinite(shift)
        is_far[list(feature_map.levels)] = False
        if not is_far.any():
            return self, feature_map
        shift = np.where(is_far, shift, 0.0)
        moved, scaled = copy(feature_map), shift * feature_map.scale
        moved.offset = feature_map.offset + shift
        moved.fill = (feature_map.fill - scaled).astype(np.float32)
        of_features = feature_map.per_feature(scaled)
        bags = [copy(bag) for bag in self.bags]
        for bag in bags:
            bag.source = replace(bag.source, mean=bag.source.mean - of_features)
        recent = (self.recent[0] - of_features).astype(np.float32), *self.recent[1:]
        return replace(self, bags=bags, recent=recent), moved

    def new_units(self, loss, window, bags):
        """Return units of the target for a window, and a factor of responses, (n_outputs,).

        If units become larger, responses stay the same in units of y; if units become smaller,
        responses do, too. The baseline moves by the mean error of the bags if it is large.
        """
        old, now = self.units.response, loss.scale.units(window.y, window.weight)
        is_new = (now.response > 0) & ((old == 0) | are_far(now.response, old))
        new = np.where(is_new, now.response, old)
        factor = np.where(is_new, np.minimum(1, old / np.where(new > 0, new, 1.0)), 1.0)
        response = [bag.trainer.respond(bag.window_table(window)) for bag in bags]
        raw = self.units.baseline + np.mean(response, axis=0) * factor * new
        shift = loss.scale.shift(window.y, raw, window.weight)
        is_moved = (old == 0) | (np.abs(shift) > MAX_SHIFT * new)
        baseline = self.units.baseline + np.where(is_moved, shift, 0.0)
        return TargetUnits(baseline, now.scale, new / now.scale), factor

    def has_far_targets(self, loss, y):
        """Return whether most targets are more than FAR units from the median of the last ones."""
        unit = self.units.response
        if not loss.scale.has_unit:
            return False
        _, recent, weight = self.recent
        centre = weighted_quantile(recent, weight, 0.5)  # that outliers do not move
        far = (np.abs(y - centre) > FAR * unit) & (unit > 0)
        return bool((far.mean(axis=0) > 0.5).any())


def _rows_as_given(data):
    """X, y and weights of a part, on the scale of weights that all parts share."""
    return data.X, data.y, data.count * data.weight_unit


def _window_size(data):
    return min(WINDOW, max(FEWEST, MAX_NUMBERS // data.X.shape[1]))


def joined_rows(rows, others):
    """Append X, y and weight of other rows to those of some rows, or to None."""
    if rows is None:
        return others
    X = rows[0], others[0]
    if all(map(sparse.issparse, X)):
        X = sparse.vstack(X, format="csr")
    else:
        X = np.concatenate([part.toarray() if sparse.issparse(part) else part for part in X])
    return X, *(np.concatenate(pair) for pair in zip(rows[1:], others[1:]))


def last_rows(rows, n):
    """Return X, y and weight of the last n rows."""
    return tuple(part[max(0, len(rows[1]) - n) :] for part in rows)
