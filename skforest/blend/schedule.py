"""Schedule of a blend: the order of its members, and how far each is trained with a time limit.

With a limit, the kind of forest that most often gets the largest weight comes first, with half of
the time. The others follow, from the fastest to the slowest. Each begins with one bag, or some
trees. The remaining time goes to members that have a positive weight on the rows that all members
predict.
"""

from contextlib import contextmanager

import numpy as np

from ..training.blending import greedy_weights
from ..training.shared_threads import together
from ..training.threads import NotInTime, TimeLimit, has_threads, thread_count
from .members import OwnMember

# Forests of this package by the name of their class, in the order in which they begin.
ORDER = "ObliqueBoosting", "ManifoldForest", "CO2Forest", "RandomHingeForest"
FIRST_SHARE = 0.5  # of the time, in which the first member begins, as far as it gets
SHARE = 0.15  # of the time that is left, with which a further member begins
LARGE_SHARE = 0.5  # the same, for members that need more
LEAST = 0.5  # of the steps of a bag of a hinge forest that begins with all time that is left
RESERVE = 0.05  # of the time, for weights and for timing predictions
N_ROUNDS = 10  # of the selection of members that are trained further


@contextmanager
def named(member):
    """Add the name of the member to errors that it raises."""
    try:
        yield
    except NotInTime:
        raise
    except Exception as error:
        error.add_note(f"The member {member.name!r} of the blend raised this error.")
        raise


def train_each(members, train, n_jobs, steps, title="{}"):
    """Call ``train(member)`` for each member; `steps` show their `title`.

    Unless steps are shown, forests of this package without a time limit of their own are trained
    at the same time, by ``train(member, shared=SharedThreads)``, if `n_jobs` are several threads.
    """

    def called(member, **shared):
        with named(member):
            train(member, **shared)

    own = []
    if has_threads(n_jobs) and not steps.verbose:
        own = [member for member in members if isinstance(member, OwnMember)]
        own = [member for member in own if member.estimator.time_limit is None]
    together(
        [lambda shared, member=member: called(member, shared=shared) for member in own], n_jobs
    )
    for member in members:
        if member not in own:
            steps.begin(title.format(member.name))
            called(member)
            steps.end()


def train_folds(members, samples, n_jobs, steps):
    """Train members on all folds."""

    def extend(member, **shared):
        member.extend(member.n_folds, samples, **shared)

    for member in members:
        with named(member):
            member.begin(samples)
    train_each(members, extend, n_jobs, steps)


def train_in_time(members, samples, limit, criterion_of):
    """Train members on the folds until a `TimeLimit`; return the trained ones, in their order.

    The weights maximise ``criterion_of(samples, members)``. The first member to begin is trained
    in any case, though perhaps not completely.
    """
    first, *others = sorted(members, key=_rank)
    limit = TimeLimit(limit.deadline - RESERVE * limit.seconds)
    left, own = limit.left(), limit.part(FIRST_SHARE, at_least=1)
    with named(first):
        first.begin(samples, own)
    if limit.left() < (1 - SHARE) * left:  # reading took so long that others would not begin
        own = limit.part(1.0, at_least=1)
    _extend(first, samples, own)
    begun = [first]
    for share, least in ((SHARE, 1.0), (LARGE_SHARE, LEAST)):
        for member in others:
            if member not in begun and _begins(member, samples, limit, begun, share, least):
                begun.append(member)
    useful, rest = _by_weight(begun, samples, criterion_of)
    for member in useful:
        _complete(member, samples, limit, begun)
    for member in others:
        if member not in begun and _begins(member, samples, limit, begun, 1.0, LEAST):
            begun.append(member)
            rest.insert(0, member)
    for member in rest:
        _complete(member, samples, limit, begun)
    return [member for member in members if member in begun]


def _rank(member):
    name = type(member.estimator).__name__ if isinstance(member, OwnMember) else ""
    return next((i for i, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


def _begins(member, samples, limit, begun, share, least):
    """Begin a member within a share of the time that is left; False if there is no time."""
    own = _time_left(limit, begun).part(share)
    own.least = least
    try:
        if not own.left():
            raise NotInTime(member.name)
        with named(member):
            member.begin(samples, own)
        _extend(member, samples, own)
    except NotInTime:
        return False
    return True


def _extend(member, samples, limit):
    """Train the first bags or folds of a member; or trees, as many as there is time for."""
    with named(member):
        if member.unit != "tree":
            member.extend(min(_at_once(member), member.n_folds), samples, limit)
            return
        limit.at_least *= member.n_left_out
        member.extend(member.n_left_out, samples, limit)
        _complete(member, samples, limit.part(SHARE) if limit.at_least else limit, ())


def _at_once(member):
    """Number of trees, or bags, that are trained at the same time."""
    return thread_count(member.estimator.n_jobs) if isinstance(member, OwnMember) else 1


def _time_left(limit, begun):
    """The limit, less the time for the final training of estimators of other packages."""
    others = (member for member in begun if not isinstance(member, OwnMember))
    return TimeLimit(limit.deadline - sum(member.final_seconds for member in others))


def _complete(member, samples, limit, begun):
    """Train the trees, bags or folds of a member that are still missing, as time allows."""
    while member.n_done < member.n_folds:
        left, own = member.n_folds - member.n_done, _time_left(limit, begun)
        n = left if member.unit == "tree" else min(left, _at_once(member))
        own.longest, n_done = member.step_seconds, member.n_done
        if own.left() <= own.longest:
            return
        try:
            with named(member):
                member.extend(n, samples, own)
        except NotInTime:
            return
        if member.n_done == n_done:
            return


def _by_weight(members, samples, criterion_of):
    """Members with a positive weight, the largest weight first, and all other members."""
    if len(members) == 1:
        return members, []
    common, responses = common_rows(members, samples)
    criterion = criterion_of(common, members).for_weights
    parts = [criterion.reduce(response) for response in responses]
    weights = greedy_weights(criterion, parts, N_ROUNDS)
    ranked = [members[m] for m in np.argsort(-weights, kind="stable")]
    n_positive = np.count_nonzero(weights)
    return ranked[:n_positive], ranked[n_positive:]


def common_rows(members, samples):
    """The samples restricted to rows that all members predict, and the responses for them."""
    responses = [member.response(samples) for member in members]
    mask = ~np.any([np.isnan(response).any(axis=1) for response in responses], axis=0)
    if not mask.any():  # then some response is not valid, which is an error
        return samples, responses
    return samples.restricted(mask), [response[mask] for response in responses]


def shortened(members, trained):
    """A text that says which members a time limit left out or made smaller; "" if none."""
    left_out = [member.name for member in members if member not in trained]
    done = [f"{', '.join(left_out)} left out of the blend"] if left_out else []
    for member in trained:
        if member.n_done < member.n_folds:
            cut = ", one of them cut short" * member.is_cut
            done.append(f"{member.name} {member.n_done} of {member.n_folds} {member.unit}s{cut}")
        elif member.is_cut:
            done.append(f"the training of {member.name} was cut short")
    return "; ".join(done)
