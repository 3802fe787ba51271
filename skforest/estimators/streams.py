"""Training on streams: `partial_fit` of hinge forests."""

from dataclasses import replace
from pickle import PicklingError

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier

from .._warnings import warn_caller
from ..forest.storage import as_levels
from ..table.frames import UNKNOWN, as_frame
from ..table.training_set import check_sample_weight
from ..training.hinge_stream import HingeStream, joined_rows
from ..training.method import FitRequest
from ..training.threads import hash_of
from .validation import draw_seed

# "auto" learning rates fall to 1 / sqrt(1 + steps / SLOW_STEPS) of the first one, and at least to
# LEAST_RATE of it, so that the model still follows changes. Chosen on parts of 60 to 1000 rows of
# ten tables; no command repeats this.
SLOW_STEPS, LEAST_RATE = 10, 0.1
FEW_ROWS = 50  # with fewer, a stream begins again with each part, as if it were the first
# Parameters that may change between parts, or have no effect in a stream.
FREE = {
    *("learning_rate", "schedule", "max_iter", "early_stopping", "validation_fraction"),
    *("n_iter_no_change", "bootstrap", "max_samples", "oob_score", "random_state", "n_jobs"),
    *("procedure", "verbose", "warm_start", "time_limit"),
}

# Of `partial_fit`, up to X.
TAKES_BATCH = """
As long as fewer than 50 rows have been seen, each call trains from scratch on all of them. The
first call after which there are at least 50 rows determines the values of "auto" parameters, the
importances, and how missing values and categories are encoded, so its rows should be
representative. The units of features and of numeric targets come from the last 300 rows, or from
the last call if it has more rows. A unit is updated when it would become twice as large or half as
large, or when the centre has moved by one unit. If a call has fewer rows than `batch_size_`, they
are kept for the next call. A warning names each column, or y, if most of its values are more than
10 units away from earlier rows.

Weights count within a call and from call to call: if the mean of `sample_weight` is a fraction of
the mean over all rows before, the model keeps this fraction of what the call changes. A larger
mean counts like an equal one, so a single row with a huge weight makes all later calls count
little. In classification, numbers in `class_weight` multiply the weights.

`schedule`, `max_iter`, `early_stopping`, `time_limit`, `bootstrap`, `max_samples` and `oob_score`
have no effect, but must be consistent. Of the parameters on which training depends, only
`learning_rate` may change between calls. A model from `fit` is replaced, not continued.

Parameters
----------
X : {array-like, sparse matrix, dataframe} of shape (n_samples, n_features)
    Or of shape ``(n_samples, *feature_shape)``.
"""


class StreamMixin:
    """`_partial_fit` of estimators with a `HingeMethod`; before `BaseForest` among the bases."""

    def _store(self, forest, settings, records, n_before=0):
        super()._store(forest, settings, records, n_before)
        vars(self).pop("_stream", None)  # what it was trained with before is replaced

    def _partial_fit(self, X, y, sample_weight, encode):
        """Train on a part; `encode` takes y, and whether it is the first part."""
        self._validate_params()
        if getattr(self, "prior", None) is not None:
            raise ValueError(
                f"prior={self.prior!r} needs the frequencies of the classes in all rows, which "
                "partial_fit does not know; use fit, or prior=None"
            )
        if hasattr(self, "forest_") and not hasattr(self.forest_, "node_weight"):
            raise ValueError("slim() removed what partial_fit needs; use the model from before")
        with self._unchanged_on_error():
            is_first = not hasattr(self, "_stream")
            stream = HingeStream() if is_first else self._stream
            known_map = None if is_first else self.forest_.feature_map
            known = None if is_first else known_map.levels
            parameters = self._stream_parameters()
            if not is_first:
                check_parameters(parameters, stream.parameters)
                if stream.n_rows < FEW_ROWS:
                    stream = self._with_levels(stream, X, sample_weight)
                    known = stream.levels
            X, y, weight, levels = self._validate_fit(X, y, sample_weight, known)
            rows = X, encode(y, is_first), weight
            if is_first:
                self._seed = draw_seed(self.random_state)
            elif stream.n_rows >= FEW_ROWS:
                self._warn_of_levels(X, levels)
            n_rows = stream.n_rows + np.count_nonzero(weight)
            rows, waits = joined_rows(stream.waiting, rows), n_rows < FEW_ROWS
            if stream.n_rows < FEW_ROWS:  # begin again, with all rows so far
                stream = self._begin_stream(rows, levels)
            elif np.count_nonzero(rows[2]) >= stream.settings.batch_size:
                stream = self._continue_stream(stream, rows, levels, known_map)
            else:
                waits = True
            # Copies, because the caller may write the next part into the same arrays.
            waiting = tuple(part.copy() for part in rows) if waits else None
            given = {"waiting": waiting, "levels": levels, "parameters": parameters}
            self._stream = replace(stream, n_rows=n_rows, **given)
        return self

    def _stream_parameters(self):
        """Hashes of the parameters that a stream keeps, by name."""
        found = self.get_params(deep=False) | self._procedure.get_params(deep=False)
        hashes = {}
        for name in set(found) - FREE:
            try:
                hashes[name] = hash_of(found[name])
            except (AttributeError, PicklingError, TypeError):  # such as lambdas of a loss
                hashes[name] = None
        return hashes

    def _with_levels(self, stream, X, sample_weight):
        """The stream with the levels of all rows so far and of a further part, in order.

        A column that had only missing values so far may become a category.
        """
        frame, levels = as_frame(self._unfolded(X)), as_levels(stream.levels)
        categorical = getattr(self, "categorical_features", None)
        _, is_category = self._read(frame, categorical, False)
        columns, (rows, *others) = set(levels), stream.waiting
        if is_category is not None and not sparse.issparse(rows):
            columns |= set(np.flatnonzero(is_category & np.isnan(rows).all(axis=0)).tolist())
        columns = sorted(columns)
        table, is_categorical = self._read(frame, columns, False)
        if table is None or not columns:
            return stream
        there = np.flatnonzero(check_sample_weight(sample_weight, table.n_rows))
        longer = as_levels({j: table.levels(j, there, levels.get(j, ())) for j in columns})
        longer.ordered = levels.ordered.union(filter(table.is_ordered, set(columns) - set(levels)))
        self.is_categorical_ = is_categorical
        rows = rows.copy()
        for j, known in levels.items():
            number = np.array([longer[j].index(level) for level in known], dtype=float)
            is_known = rows[:, j] >= 0
            rows[is_known, j] = number[rows[is_known, j].astype(int)]
        return replace(stream, levels=longer, waiting=(rows, *others))

    def _warn_of_levels(self, X, levels):
        """Warn of columns in which most values of a part are unknown levels."""
        names = getattr(self, "feature_names_in_", np.arange(self.n_features_in_)).tolist()
        for j in levels:
            if (X[:, j] == UNKNOWN).mean() > 0.5:
                warn_caller(
                    f"most values of column {names[j]!r} of X are levels that the first "
                    f"{FEW_ROWS} rows of the stream did not have; they count as unknown"
                )

    def _begin_stream(self, rows, levels):
        """The stream after its first part."""
        data = self._set_stream_target(self._merged_rows(*rows, levels, is_stream=True))
        settings = self._settings(data, FitRequest(is_stream=True))
        method = self._method(replace(settings, validation_fraction=0.0))
        stream, forest = HingeStream.begun(method, data)
        self._store(forest, method.settings, stream.records)
        return stream.with_weights(self._given_weights(rows))[0]

    def _continue_stream(self, stream, rows, levels, known_map):
        """The stream after a later part."""
        stream, share = stream.with_weights(self._given_weights(rows))
        stream, known_map = stream.recentred(rows[0], known_map)
        part = self._merged_rows(*rows, levels, known_map, has_new_labels=True)
        rate = self._auto(len(rows[1]), self.forest_)["learning_rate"]
        if isinstance(self.learning_rate, str):
            rate *= max(LEAST_RATE, (1 + stream.bags[0].n_done / SLOW_STEPS) ** -0.5)
        method = self._method(replace(stream.settings, learning_rate=float(rate)))
        labelled = self._set_stream_target(part) if is_classifier(self) else None
        stream, forest = stream.continued(method, part, share, labelled)
        self._store(forest, method.settings, stream.records)
        return stream

    def _given_weights(self, rows):
        """Weights of the rows of a part, times class weights that parts share."""
        _, y, weight = rows
        is_shared = not isinstance(getattr(self, "class_weight", None), str)
        return self._class_weighted(y, weight) if is_shared else weight


def check_parameters(now, before):
    """Raise ValueError if parameters have changed since the first part; hashes by name."""
    changed = sorted(name for name in now if now[name] != before[name])
    if changed:
        raise ValueError(
            f"{', '.join(changed)} changed after the first call of partial_fit; only "
            "learning_rate may. Clone the estimator to begin with other parameters"
        )
