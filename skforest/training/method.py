"""Methods of training: a `Method` trains the members of a forest, trees or bags, one by one.

`train_members` draws their samples and trains them in parallel. An estimator reads a table, makes
a method from its parameters, and keeps the forest that the method finishes. Trials that choose a
setting, blends and `refine` need no estimator.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Integral

import numpy as np

from .._kernels.base.rows import tree_seed
from .._warnings import warn_caller
from ..forest import Forest
from ..forest.edit import join, with_prior_ratio
from ..forest.statistics import responses, with_prior, within_targets
from ..table.training_set import TrainingSet
from .checkpoint import Checkpoint
from .progress import Progress
from .shared_threads import SharedThreads
from .threads import FitTasks, TimeLimit, in_parallel, return_freed_memory

# With at least so many rows, memory freed by threads is returned to the system before trees are
# joined. Chosen without a measurement; `benchmarks.measure.scale memory` shows the effect.
MANY_ROWS = 100_000
# On tables of more numbers, no more members than threads are begun, since each needs memory.
# Chosen without a measurement.
MANY_NUMBERS = 5_000_000


@dataclass(frozen=True)
class FitRequest:
    """The arguments of one call of `fit` besides X and y, and how training is run."""

    sample_weight: object = None
    groups: object = None  # samples of a group are held out together
    validation: tuple | None = None  # X_val, y_val and sample_weight_val
    previous: Forest | None = None  # forest to which a warm start adds members
    first_known: int = 0  # first member whose rows are known; earlier ones had other rows
    prior_ratio: list | None = None  # prior_ratio of the forest; training does not use it
    limit: TimeLimit | None = None
    tasks: FitTasks | None = None  # tasks of callbacks
    checkpoint: Checkpoint | None = None  # results that an earlier call has saved
    is_stream: bool = False  # are the rows the first ones of a stream?
    learns_held_out: bool = True  # may members learn from rows of X that they held out?
    n_jobs: int | None = None
    verbose: int = 0
    name: str = ""  # name of the estimator, shown with the progress
    shared: SharedThreads | None = None  # threads that it shares with other fits

    @property
    def is_warm_start(self):
        """bool: whether the fit adds members to a fitted forest."""
        return self.previous is not None

    @property
    def run(self):
        """FitRequest: only the fields on how training is run."""
        return FitRequest(n_jobs=self.n_jobs, verbose=self.verbose, name=self.name)


class MemberForest(Forest):
    """A tree or bag, as training makes it; checked in the forest that members are joined to."""

    _checks_arrays = False


@dataclass(frozen=True)
class Task:
    """The target of a forest, and the names of its columns."""

    metadata: dict  # arguments of a `Forest`
    criterion: str  # impurity of the target: "gini", "entropy" or "squared_error"
    n_classes: tuple = ()  # number of classes of every output; empty in regression
    feature_names: object = None

    def forest(self, arrays, data, **metadata):
        """Make a MemberForest for this task, from arrays trained on a TrainingSet."""
        metadata = self.metadata | metadata
        if not self.n_classes and metadata.get("aggregate", "mean") == "mean":
            arrays = arrays | {"value": within_targets(arrays["value"], data)}
        return MemberForest(
            arrays | data.feature_map.arrays,
            n_features=data.X.shape[1],
            levels=data.feature_map.levels,
            feature_names=self.feature_names,
            **metadata,
        )


@dataclass(frozen=True)
class Sampling:
    """Draws the rows and weights that a member is trained on.

    Parameters
    ----------
    bootstrap : bool
    max_samples : int, float or None
        The parameter of estimators.
    balanced : tuple of int
        Numbers of classes of the outputs to balance in every sample.
    """

    bootstrap: bool = False
    max_samples: object = None
    balanced: tuple = ()

    def drawn(self, data, seed):
        """Return the weights of the rows that a member draws, before they are balanced."""
        if not self.bootstrap:
            return data.weight
        n_rows = int(data.n_copies().sum())
        return data.bootstrap(seed, resolve_max_samples(self.max_samples, n_rows))

    def share_left(self, data, seed):
        """Return the share of the copies of each row that a member does not draw, (n_rows,).

        It is 0 or 1 for a single row. If c copies are drawn k times in all, a copy is left out
        with probability (1 - 1 / c)^k.
        """
        n_copies, n_drawn = data.n_copies(), self.drawn(data, seed)
        return np.power(1 - 1 / n_copies, n_drawn)

    def sample(self, data, seed):
        """Return the sample of a member as a TrainingSet; rows not drawn have weight 0."""
        drawn = weight = self.drawn(data, seed)
        for k, n_classes in enumerate(self.balanced):
            codes = data.y[:, k].astype(np.int32)
            weight = weight * balancing_factor(codes, drawn, n_classes)[codes]
        return data.sample(weight)


@dataclass
class Trained:
    """Trained members, a Forest for each, and the records of their training."""

    forests: list
    records: list
    members: range  # numbers of members; with a time limit, the last ones may be missing
    data: TrainingSet  # samples were drawn from it, see `Method.prepared`
    first_known: int = 0  # first member that saw no other rows than these

    @property
    def has_held_out(self):
        """bool: whether a member held out rows."""
        return any(len(record.get("held_out", [])) for record in self.records)

    def is_held_out(self, number):
        """Return a mask of the rows that a member held out; none of those of an earlier fit."""
        mask = np.zeros(len(self.data), dtype=bool)
        if number in self.members and number >= self.first_known:
            mask[self.records[number - self.members[0]].get("held_out", [])] = True
        return mask

    @property
    def without_held_out(self):
        """dict: for members that were trained again on all rows, by number, the Forest before."""
        pairs = zip(self.members, self.records)
        return {number: record["before"] for number, record in pairs if "before" in record}


class Method(ABC):
    """Trains the members of a forest, without changing itself.

    Parameters
    ----------
    settings : object
        A frozen dataclass with every value resolved.
    task : Task
    sampling : Sampling
    """

    units = "tree", "epoch"  # progress counts members, or parts of a single member
    keeps_parts = False  # at a time limit, a member ends with the best model so far
    only_joins = True  # before `finish`, a forest of some members is valid
    takes_turns = False  # members call ``control.pause()`` between short parts of their training

    def __init__(self, settings, task, sampling=Sampling()):
        self.settings, self.task, self.sampling = settings, task, sampling

    @property
    @abstractmethod
    def n_members(self):
        """int: number of members in the settings."""

    def prepared(self, data, members, request):
        """Return the rows to draw samples from, and this method with data that members share.

        This is computed once, before threads or processes start.
        """
        return data, self

    @abstractmethod
    def train(self, sample, seed, control):
        """Train one member on its sample; return a Forest and a dict of records.

        `control` is a `Control`; if ``control.stop[0]`` is not 0, the result is ignored.
        """

    def finish(self, trained, before=None):
        """Return the forest of trained members, after the members of the forest `before`."""
        return self.joined(trained.forests, before, consume=True)

    def joined(self, forests, before=None, consume=False):
        """Join members to one forest; with `consume`, they must not be used again."""
        whole = joined(forests, consume)
        return whole if before is None else joined([before, whole])

    def with_checkpoint(self, checkpoint, name):
        """Return the method for one member, which may save parts of its training."""
        return self

    def keeps_folds(self, n_folds):
        """Return whether members that leave out folds are also the final members."""
        return False


def train_members(method, data, members, seed, request):
    """Train the members with the given numbers in parallel; return `Trained`.

    They sample the TrainingSet `data`; `seed` is the seed of the estimator. With a time limit,
    only members that end in time are trained; NotInTime if there are none.
    """
    data, prepared = method.prepared(data, members, request)
    limit, tasks = request.limit, request.tasks
    checkpoint, unit = request.checkpoint, method.units[0]  # the request is not sent to processes

    def train(member, control):
        own, name = tree_seed(seed, member), f"{unit}-{member}"
        if checkpoint is not None and (found := checkpoint.load(name)) is not None:
            return found
        sample = prepared.sampling.sample(data.without_fold(member), own)
        if checkpoint is None:
            return prepared.train(sample, own, control)
        found = prepared.with_checkpoint(checkpoint, name).train(sample, own, control)
        if not control.stop[0]:
            checkpoint.save(name, found)
        return found

    def attributes(done):
        """Return the fitted attributes with the members trained so far."""
        forest = method.joined([forest for forest, _ in done], request.previous)
        return {"forest_": with_prior_ratio(forest, request.prior_ratio)}

    done = in_parallel(
        train,
        members,
        request.n_jobs,
        Progress(request.verbose, len(members), request.name, method.units),
        limit=limit.ending_in_parts() if limit is not None and method.keeps_parts else limit,
        tasks=tasks,
        state=attributes if method.only_joins else None,
        shared=request.shared,
        takes_turns=prepared.takes_turns and len(data) * data.X.shape[1] <= MANY_NUMBERS,
    )
    forests, records = map(list, zip(*done))
    if len(data) >= MANY_ROWS:
        return_freed_memory()
    if limit is not None:
        if report := limit.report(len(done), len(members), method.units[0], records):
            warn_caller(report)
    return Trained(forests, records, members[: len(done)], data, request.first_known)


def joined(forests, consume=False):
    """Join forests with their bags; with `consume`, they must not be used again."""
    metadata, has_bags = forests[0].metadata, has_bag_members(forests[0])
    ends = np.cumsum([0] + [len(forest) for forest in forests])
    bags = [forest.bag_start[:-1] + first for forest, first in zip(forests, ends)]
    arrays = join(forests, consume)
    if has_bags:
        arrays["bag_start"] = np.concatenate([*bags, ends[-1:]])
    return Forest(arrays, **metadata)


def has_bag_members(forest):
    """Return whether the members of a forest are bags, whose trees are added, and not trees."""
    return forest.aggregate == "sum"


def n_members(forest):
    """Return the number of members of a forest."""
    return len(forest.bag_start) - 1 if has_bag_members(forest) else len(forest)


def member_of(forest, number):
    """Return a member of a forest as a Forest."""
    if not has_bag_members(forest):
        return forest[number]
    first, last = forest.bag_start[number : number + 2]
    return forest[first:last]


def n_complete(records):
    """Return the number of members before the first one that a time limit has ended."""
    return next((i for i, record in enumerate(records) if "ended" in record), len(records))


def first_members(forest, n):
    """Return the first n members of a forest as a Forest; None if there are none."""
    if n == n_members(forest):
        return forest
    return joined([member_of(forest, number) for number in range(n)]) if n else None


def mean_response(forest, data, is_predicted, others=()):
    """Return the mean response of each row over the members that predict it, and their number.

    ``is_predicted(number)`` is a mask of the rows that a member predicts, or the share with which
    each counts. NaN if there is none. Members whose number is in the dict `others` are replaced by
    those Forests.
    """
    total = np.zeros((len(data), forest.n_outputs))
    n_predicting, ends = np.zeros(len(data)), []
    for number in range(n_members(forest)):
        share = is_predicted(number)
        mask = share > 0
        member = others[number] if number in others else member_of(forest, number)
        found = responses(member, data.X[mask])
        total[mask] += share[mask, None] * found
        n_predicting += share
        ends += [found.min(axis=0), found.max(axis=0)] if mask.any() else []
    with np.errstate(invalid="ignore"):
        mean = total / n_predicting[:, None]
    # The mean of equal numbers may differ from them by rounding.
    if ends:
        mean = np.clip(mean, np.min(ends, axis=0), np.max(ends, axis=0))
    return mean, n_predicting


def mean_by_row(values, weight, row):
    """Return means of values (n_parts, n_columns) over the parts of each row; NaN if none."""
    sums = [np.bincount(row, np.where(weight > 0, weight * column, 0.0)) for column in values.T]
    with np.errstate(invalid="ignore"):
        return np.stack(sums, axis=1) / np.bincount(row, weight)[:, None]


def staged_means(forest, Z):
    """Yield the mean responses of the first member, of the first two members, and so on."""
    plain, total = with_prior_ratio(forest, None), 0.0
    for number in range(n_members(forest)):
        total = total + responses(member_of(plain, number), Z)
        mean = total / (number + 1)
        yield with_prior(mean, forest.prior_ratio, forest.n_classes or [forest.n_outputs])


def balancing_factor(codes, weight, n_classes):
    """Return factors that give all classes in `codes` the same weight."""
    per_class = np.bincount(codes, weights=weight, minlength=n_classes)
    present = per_class > 0
    factor = np.zeros(n_classes)
    factor[present] = per_class.sum() / (present.sum() * per_class[present])
    return factor


def resolve_max_samples(max_samples, n_rows):
    """Return the number of rows to draw; `max_samples` is a count, a fraction, or None: all."""
    if max_samples is None:
        return n_rows
    if isinstance(max_samples, Integral):
        if max_samples > n_rows:
            raise ValueError(f"max_samples={max_samples} is more than the {n_rows} rows to draw")
        return int(max_samples)
    return max(1, round(max_samples * n_rows))
