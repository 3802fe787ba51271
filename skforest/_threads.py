"""Training in threads: how it is ended early, and how it shows its progress."""

import threading
import time
import warnings
from contextlib import contextmanager, nullcontext
from itertools import takewhile

import numpy as np
from sklearn.utils.parallel import Parallel, delayed


class Control:
    """How the training of trees is ended early, and how it reports its progress.

    `stop`, uint8 of shape (1,), is read by kernels: training ends early where it is not 0.
    `report` is called with the number of epochs done and the number of all epochs, where a single
    tree is trained and its epochs are the only progress to show; else None.
    """

    def __init__(self, report=None):
        self.stop = np.zeros(1, dtype=np.uint8)
        self.report = report


class TimeLimit:
    """When training ends: at a time of `time.perf_counter`, but not before `at_least` results."""

    def __init__(self, deadline, at_least=0):
        self.deadline, self.at_least = deadline, at_least

    def left(self):
        """Seconds that are left; not negative."""
        return max(0.0, self.deadline - time.perf_counter())

    @contextmanager
    def applied(self, control, results):
        """End training, by its `Control`, at the deadline; `results` is the list of those made."""

        def end():
            if len(results) >= self.at_least:
                control.stop[0] = 1

        timer = threading.Timer(self.left(), end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def until_stopped(self, function):
        """The function, which returns None if it begins, or ends, after training was ended."""

        def limited(member, control):
            try:
                result = None if control.stop[0] else function(member, control)
            except Exception:  # what was cut short need not be valid
                if not control.stop[0]:
                    raise
            return None if control.stop[0] else result

        return limited


def in_threads(function, members, n_jobs, verbose, name, limit=None):
    """List of ``function(member, control)`` for each member, computed in threads.

    `control` is a `Control`; `name` is shown with the progress. With a `TimeLimit`, the results of
    the first members, as many as were complete in time; TimeoutError if there are none.
    """
    if limit is not None:
        function = limit.until_stopped(function)
    progress = Progress(verbose, len(members), name)
    control = Control(progress.report_epochs if len(members) == 1 else None)
    jobs = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    results, is_ended = [], False
    try:
        with nullcontext() if limit is None else limit.applied(control, results):
            wanted = takewhile(lambda _: not control.stop[0], members)
            for result in jobs(delayed(function)(member, control) for member in wanted):
                is_ended = is_ended or result is None
                if is_ended:  # results of later members, which may be complete, are dropped
                    continue
                results.append(result)
                if limit is not None and not limit.left() and len(results) >= limit.at_least:
                    control.stop[0] = 1
                if progress.unit == "tree":
                    progress.update(len(results))
    finally:
        control.stop[0] = 1  # threads that still work read it and end
        progress.close()
    if not results:
        raise TimeoutError(f"{name}: nothing was trained within the time limit")
    return results


class Progress:
    """Shows how many of `total` trees are trained, with tqdm where it is installed.

    `verbose` 0: silent. 1: a bar, or about ten lines. More: a line after every tree, without tqdm.
    """

    def __init__(self, verbose, total, name, unit="tree"):
        self.verbose, self.total, self.name, self.unit = int(verbose), total, name, unit
        self.start = time.perf_counter()
        self.n_shown = 0
        # A single tree shows its epochs instead, once their number is known.
        shows_bar = self.verbose and (total > 1 or unit != "tree")
        self.bar = _progress_bar(total, name, unit) if shows_bar else None

    def update(self, n_done):
        """Show that `n_done` trees are trained."""
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.update(n_done - self.bar.n)
            return
        step = 1 if self.verbose > 1 else max(1, self.total // 10)
        if n_done - self.n_shown >= step or n_done == self.total:
            self.n_shown = n_done
            rate = n_done / max(time.perf_counter() - self.start, 1e-9)
            print(
                f"{self.name}: {n_done} of {self.total} {self.unit}s, {rate:.1f} {self.unit}s/s, "
                f"{(self.total - n_done) / rate:.0f} s left",
                flush=True,
            )

    def report_epochs(self, n_done, n_epochs):
        """Show epochs instead of trees: `n_done` of `n_epochs` are done."""
        if self.verbose and self.unit != "epoch":
            self.close()
            self.__init__(self.verbose, n_epochs, self.name, "epoch")
        self.update(n_done)

    def close(self):
        """End the bar, also where training has been interrupted."""
        if self.bar is not None:
            self.bar.close()


def _progress_bar(total, name, unit):
    """A tqdm bar; None without tqdm."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a text bar
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=name, unit=unit)
