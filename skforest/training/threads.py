"""Training in threads or processes, with time limits, callbacks and progress.

Threads are the default. A `joblib.parallel_config` context can name a backend of processes, such
as dask or ray. Training data are then sent once to every process, which returns trees.
"""

import ctypes
import signal
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager, nullcontext, suppress
from copy import copy
from functools import partial
from itertools import takewhile

import joblib
import numpy as np
from joblib import cpu_count, effective_n_jobs, parallel_config, wrap_non_picklable_objects
from joblib.parallel import get_active_backend
from sklearn import config_context, get_config
from sklearn.utils.parallel import Parallel, delayed

from .progress import Progress

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn before 1.9

    class CallbackSupportMixin:
        """There are no callbacks."""

    def with_callbacks(method):
        """There are no callbacks."""
        return method


hash_of = joblib.hash  # of arrays, and of all objects that can be pickled

# Smallest number of rows in a block, since small blocks take longer. Chosen without a stored
# measurement; `python -m benchmarks.measure.scale threads` shows the time.
MIN_BLOCK = 1024
BLOCKS_PER_THREAD = 4
# Seconds of work before another member has its turn. Chosen without a stored measurement.
SLICE = 0.01


def return_freed_memory():
    """Return memory that threads have freed to the system; glibc would keep it for each thread."""
    if sys.platform == "linux":
        with suppress(AttributeError, OSError):  # other C libraries have no such function
            ctypes.CDLL(None).malloc_trim(0)


class Control:
    """Ends the training of trees early, and reports its progress.

    Kernels read `stop`, uint8 of shape (1,): if it is not 0, training ends early and its result is
    ignored. `report` is called with the number of completed epochs, the number of all epochs, and
    the keyword `loss`, the validation loss. After early stopping, it is called once more, with the
    number of completed epochs twice and the best epoch as `best`. It is None if progress is not
    shown, or if trees are counted. At `limit`, a `TimeLimit` or None, training ends with the best
    model so far. `turns` are the `Turns` of members that share threads, or None.
    """

    def __init__(self, report=None, stop=None, limit=None, turns=None):
        self.stop = np.zeros(1, dtype=np.uint8) if stop is None else stop
        self.report, self.limit, self.turns = report, limit, turns

    def pause(self):
        """Let other members use this thread, if it is their turn."""
        if self.turns is not None:
            self.turns.pause()

    def is_late(self):
        """Return whether the time limit has passed."""
        return self.limit is not None and not self.limit.left()

    def labelled(self, label):
        """Return a copy for further training, which the progress calls `label`."""
        report = None if self.report is None else partial(self.report, label=label)
        return Control(report, self.stop, self.limit, self.turns)


class Turns:
    """Lets some more members than there are threads work in turns.

    So five equal members take 2.5 times, and not three times, as long as one on two threads. At
    the end of training, members that work end, and those that wait return None at their turn.
    """

    def __init__(self, n_threads):
        self.n_free, self.waiting = n_threads, deque()
        self.lock, self.began = threading.Lock(), {}

    def taken(self, function):
        """Wrap a function of a member and its `Control`, so that it waits for its turns."""

        def called(member, control):
            self._begin()
            try:
                return None if control.stop[0] else function(member, control)
            finally:
                self._end()

        return called

    def pause(self):
        """Wait for the next turn of this thread, in which a member began, if others wait."""
        is_over = time.perf_counter() - self.began[threading.get_ident()] >= SLICE
        if is_over and self.waiting:
            self._end()
            self._begin()

    def _begin(self):
        with self.lock:
            turn = None
            if self.n_free:
                self.n_free -= 1
            else:
                turn = threading.Event()
                self.waiting.append(turn)
        if turn is not None:
            turn.wait()
        self.began[threading.get_ident()] = time.perf_counter()

    def _end(self):
        with self.lock:
            if self.waiting:
                self.waiting.popleft().set()
            else:
                self.n_free += 1


class NotInTime(TimeoutError):
    """Nothing was trained within a `TimeLimit`."""


class TimeLimit:
    """The end of training: a time of `time.perf_counter`, but not before `at_least` results.

    `seconds` is the limit of the user, for a warning about missing results; None: no warning. With
    `keeps_parts`, members end by themselves with the best model so far, and only members that will
    probably end in time begin. Otherwise, incomplete members are dropped.
    """

    def __init__(self, deadline, at_least=0, seconds=None, keeps_parts=False):
        self.deadline, self.at_least = deadline, at_least
        self.seconds, self.keeps_parts = seconds, keeps_parts
        self.longest = 0.0  # longest time of a member in seconds
        self.least = 0.0  # smallest share of a member worth training, see `check`
        self.is_cut = False  # a member has ended before it was complete

    @classmethod
    def of(cls, seconds, start, at_least=1):
        """Return the limit for the parameter `time_limit`, counted from `start`, or None."""
        if seconds is None:
            return None
        seconds = float(seconds)  # of any kind: times of the clock need all digits of float64
        return cls(start + seconds, at_least, seconds)

    def __getstate__(self):
        # `time.perf_counter` has a different zero in other processes.
        end = time.time() + self.deadline - time.perf_counter()
        return vars(self) | {"deadline": end}

    def __setstate__(self, state):
        vars(self).update(state)
        self.deadline += time.perf_counter() - time.time()

    def ending_in_parts(self):
        """Return the same limit with `keeps_parts`."""
        other = copy(self)
        other.keeps_parts = True
        return other

    def report(self, n_trained, n_wanted, unit, records):
        """Describe the trained members; "" if they are complete, or need no report.

        The records of incomplete members have the number of completed parts, the number of all
        parts, and the name of a part.
        """
        cut = [record["ended"] for record in records if "ended" in record]
        self.is_cut |= bool(cut)
        if self.seconds is None or (n_trained == n_wanted and not cut):
            return ""
        done = [] if n_wanted == 1 else [f"{n_trained} of {n_wanted} {unit}s"]
        if cut:
            n_done, n_parts, part = min(cut)
            whole = f" of a {unit}" if n_wanted > 1 else ""
            done.append(f"{n_done} of {n_parts} {part}s{whole}")
        return f"time_limit={self.seconds:.3g}: {', '.join(done)}"

    def check(self, seconds):
        """Raise NotInTime if there is time for too little of a training of so many seconds."""
        if self.least * seconds > self.left():
            raise NotInTime(f"there is no time for {seconds:.3g} seconds of training")

    def part(self, share, at_least=0):
        """Return a limit after a share of the remaining time."""
        return TimeLimit(time.perf_counter() + share * self.left(), at_least)

    def left(self):
        """Return the remaining seconds, at least 0."""
        return max(0.0, self.deadline - time.perf_counter())

    @contextmanager
    def applied(self, control, results):
        """End training at the deadline by its `Control`; `results` is the list of results."""
        if self.keeps_parts:
            control.limit = self
            yield
            return

        def end():
            if len(results) >= self.at_least:
                control.stop[0] = 1

        timer = threading.Timer(min(self.left(), threading.TIMEOUT_MAX), end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def earlier(one, other):
    """Return the limit that ends first; both may be None."""
    return min((one, other), key=lambda limit: np.inf if limit is None else limit.deadline)


def until_late(function, members, limit):
    """Wrap a function to return None for members that would probably not end in time.

    A member is assumed to take as long as the longest so far. The first `at_least` members begin
    in any case.
    """
    first = set(members[: limit.at_least])

    def limited(member, control):
        if member not in first and limit.left() <= limit.longest:
            return None
        start = time.perf_counter()
        result = function(member, control)
        limit.longest = max(limit.longest, time.perf_counter() - start)
        return result

    return limited


def until_stopped(function):
    """Wrap a function to return None if it begins, or ends, after the end of training."""

    def limited(member, control):
        try:
            result = None if control.stop[0] else function(member, control)
        except Exception:  # incomplete results may be invalid
            if not control.stop[0]:
                raise
        return None if control.stop[0] else result

    return limited


def configured(function):
    """Wrap a function for other threads, with scikit-learn's configuration of this thread.

    Unlike `sklearn.utils.parallel`, it sets no warning filters, which would apply to all threads.
    """
    config = get_config()

    def called(member, control):
        with config_context(**config):
            return function(member, control)

    return called


class FitTasks:
    """The tasks of `fit` for callbacks, see `set_callbacks` of scikit-learn.

    The tasks are the trees, or bags, in order; if there is only one, also its epochs or rounds.
    All calls except for epochs are made in the thread of `fit`.

    Parameters
    ----------
    estimator : estimator
    context : sklearn.callback.CallbackContext
        Context of `fit`.
    rows : dict
        X, y and metadata in the form that callbacks take.
    """

    def __init__(self, estimator, context, **rows):
        self.estimator, self.context, self.rows = estimator, context, rows
        self.task, self.n_epochs = None, 0

    def begin(self, max_subtasks=0):
        """Begin the next tree."""
        if self.task is None:
            self.task = self._begin(self.context, "tree", max_subtasks)

    def _begin(self, parent, name, max_subtasks=0):
        task = parent.subcontext(task_name=name, max_subtasks=max_subtasks)
        return task.call_on_fit_task_begin(estimator=self.estimator, **self.rows)

    def report(self, n_done, n_epochs):
        """Report epochs of the only tree; return True if a callback ends training."""
        self.begin(n_epochs)
        is_ended = False
        while self.n_epochs < min(n_done, self.task.max_subtasks):
            self.n_epochs += 1
            epoch = self._begin(self.task, "epoch")
            is_ended |= bool(epoch.call_on_fit_task_end(estimator=self.estimator, **self.rows))
        return is_ended

    def end(self, state, is_last):
        """End the tree, and begin the next one; return True if a callback ends training.

        `state` returns fitted attributes.
        """
        self.begin()
        task, self.task = self.task, None
        is_ended = task.call_on_fit_task_end(
            estimator=self.estimator, **self.rows, reconstruction_attributes=state
        )
        if not (is_ended or is_last):
            self.begin()
        return is_ended


class SharedFunction:
    """``function(member, control)`` and its data, sent to each process once.

    joblib's dask backend sends an argument to every worker only once if its size is large.
    """

    def __init__(self, function):
        self.function = function

    def __sizeof__(self):
        import cloudpickle  # dask asks for the size, and depends on cloudpickle

        buffers = []  # receives arrays without a copy
        head = cloudpickle.dumps(self.function, protocol=5, buffer_callback=buffers.append)
        return len(head) + sum(buffer.raw().nbytes for buffer in buffers)

    def call(self, member, limit):
        """Return the result for a member, with a `Control` of this process."""
        control, function = Control(), self.function
        if limit is not None and limit.keeps_parts:
            if not (limit.at_least or limit.left()):
                return None
        elif limit is not None:
            function = until_stopped(function)
        # Cluster backends would send these threads to other machines.
        with (
            parallel_config(backend="threading", n_jobs=1),
            nullcontext() if limit is None else limit.applied(control, ()),
        ):
            return function(member, control)


class RayFunction:
    """A `SharedFunction` in ray's object store, stored once on every machine."""

    def __init__(self, shared):
        import ray

        self.reference = ray.put(shared)

    def call(self, member, limit):
        """See `SharedFunction.call`."""
        import ray

        return ray.get(self.reference).call(member, limit)


def thread_count(n_jobs):
    """Return the number of threads; on a cluster, at most one for each processor."""
    n_threads = effective_n_jobs(n_jobs)
    return n_threads if _has(_active_backend(), "sharedmem") else min(n_threads, cpu_count())


def has_threads(n_jobs):
    """Return whether members are trained in several threads of this process."""
    return thread_count(n_jobs) > 1 and _has(_active_backend(), "sharedmem")


def local_threads(n_jobs=None):
    """Return a context in which trees are trained in threads of this process."""
    return parallel_config(backend="threading", n_jobs=thread_count(n_jobs))


def _active_backend():
    """Return the backend of the `joblib.parallel_config` context, by default threads."""
    return get_active_backend(prefer="threads")[0]


def _has(backend, name):
    """Return whether a joblib backend supports the feature of this name."""
    return getattr(backend, f"supports_{name}", False)


def in_parallel(
    function,
    members,
    n_jobs,
    progress=None,
    *,
    limit=None,
    tasks=None,
    state=None,
    shared=None,
    takes_turns=False,
):
    """Return a list of ``function(member, control)``, computed in threads or processes.

    `control` is a `Control`; `progress` is the `Progress` of the members, None: it is not shown.
    With a `TimeLimit`, the list ends with the last member that was complete in time; NotInTime if
    there is none. `tasks` are `FitTasks`; ``state(results)`` returns the fitted attributes for
    some results; `shared` are `SharedThreads` or None. If a function `takes_turns`, it calls
    ``control.pause()`` now and then, and members may share threads, so that no thread ends long
    before the others.

    Processes are used in a `joblib.parallel_config` context that names them, except for a single
    member. The function then works on copies of its data.
    """
    progress = progress or Progress(0, len(members), "training")
    control, results, is_ended = Control(), [], False
    is_single = len(members) == 1
    if shared is not None:
        function = shared.taking_turns(function, len(members), control)
    elif takes_turns and limit is None and has_threads(n_jobs):
        n_threads = thread_count(n_jobs)
        if n_more := len(members) % n_threads * (len(members) > n_threads):
            control.turns, n_jobs = Turns(n_threads), n_threads + n_more
            function = control.turns.taken(function)

    def control_of(number):
        def report(n_done, n_epochs, **further):
            progress.report_epochs(n_done, n_epochs, number, **further)
            return is_single and tasks is not None and tasks.report(n_done, n_epochs)

        is_told = is_single and tasks is not None
        report = report if progress.shows_parts or is_told else None
        return Control(report, control.stop, control.limit, control.turns)

    ends_at_once = limit is not None and not limit.keeps_parts
    try:
        limited = nullcontext() if limit is None else limit.applied(control, results)
        with interrupts_wait(control.stop), limited:
            if tasks is not None and len(members) > 1:
                tasks.begin()
            has_callbacks = tasks is not None
            for result in _started(function, members, n_jobs, control_of, limit, has_callbacks):
                is_ended = is_ended or result is None
                if is_ended:  # drop later results, which may be complete
                    continue
                results.append(result)
                if ends_at_once and not limit.left() and len(results) >= limit.at_least:
                    control.stop[0] = 1
                progress.end_member(len(results))
                of_results = None if state is None else partial(state, results)
                if tasks is not None and tasks.end(of_results, len(results) == len(members)):
                    control.stop[0] = 1
                    is_ended = True
    finally:
        control.stop[0] = 1  # ends threads that still work
        progress.close()
    if not results:
        raise NotInTime(f"{progress.name}: nothing was trained within the time limit")
    return results


@contextmanager
def interrupts_wait(stop):
    """Without the interpreter lock, interrupts end training, and are raised after the block.

    Raised within a method of joblib, they may leave a lock that its threads then wait for forever.
    A second interrupt does not wait.
    """
    handler = signal.getsignal(signal.SIGINT)
    has_lock = getattr(sys, "_is_gil_enabled", lambda: True)()
    is_main = threading.current_thread() is threading.main_thread()
    if has_lock or not is_main or handler is not signal.default_int_handler:
        yield
        return
    is_interrupted = False

    def end(number, frame):
        nonlocal is_interrupted
        stop[0], is_interrupted = 1, True
        signal.signal(signal.SIGINT, handler)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if is_interrupted:
        raise KeyboardInterrupt


def _started(function, members, n_jobs, control_of, limit, has_callbacks):
    """Start the training of all members; return an iterable of their results, in order.

    The result of an incomplete member is None. ``control_of(number)`` is the `Control` of a
    member.
    """
    stop = control_of(0).stop
    wanted = takewhile(lambda _: not stop[0], members)
    backend = _active_backend()
    if len(members) > 1 and not _has(backend, "sharedmem"):
        return_as = "generator" if _has(backend, "return_generator") else "list"  # ray: a list
        jobs = Parallel(n_jobs, return_as=return_as)
        return jobs(_calls_in_processes(function, wanted, limit, backend))
    if limit is not None or has_callbacks:
        function = until_stopped(function)
    if limit is not None and limit.keeps_parts:
        function = until_late(function, members, limit)
    function = configured(function)
    options = {"prefer": "threads", "require": "sharedmem", "return_as": "generator"}
    jobs = joblib.Parallel(n_jobs, **options)
    calls = enumerate(wanted)
    return jobs(joblib.delayed(function)(member, control_of(number)) for number, member in calls)


def _calls_in_processes(function, members, limit, backend):
    """Yield calls for joblib; the first `limit.at_least` members have no limit."""
    name = type(backend).__name__
    if name == "MultiprocessingBackend":  # the only one that cannot send closures
        function = wrap_non_picklable_objects(function)
    shared = SharedFunction(function)
    if name == "RayBackend":
        shared = RayFunction(shared)
    for number, member in enumerate(members):
        own = None
        if limit is not None and (limit.keeps_parts or number >= limit.at_least):
            own = TimeLimit(limit.deadline, number < limit.at_least, None, limit.keeps_parts)
        yield delayed(type(shared).call)(shared, member, own)


def in_blocks(function, X, most, n_jobs):
    """Call ``function(block)`` for blocks of at most `most` rows of X, in threads; concatenate.

    Return None if the function does for a block.
    """
    n_rows, size, n_threads = X.shape[0], most, 1
    if n_rows > min(most, 2 * MIN_BLOCK):
        n_threads = thread_count(n_jobs)
    if n_threads > 1:
        size = min(most, max(MIN_BLOCK, -(-n_rows // (BLOCKS_PER_THREAD * n_threads))))
    if n_rows <= size:
        return function(X)
    blocks = [X[start : start + size] for start in range(0, n_rows, size)]
    results = in_threads(function, blocks, n_threads)
    return None if any(result is None for result in results) else np.concatenate(results)


def in_threads(function, items, n_threads):
    """Return a list of ``function(item)``, computed in this thread and ``n_threads - 1`` others.

    They take one item after the other, so that an interrupted thread does not delay the others.
    joblib looks for results only every 10 ms, in which a thread predicts thousands of rows.
    """
    results, errors = [None] * len(items), []
    waiting = deque(enumerate(items))

    def work():
        while not errors:
            try:
                number, item = waiting.popleft()
            except IndexError:  # another thread took the last one
                return
            try:
                results[number] = function(item)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(min(n_threads, len(items)) - 1)]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        waiting.clear()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return results
