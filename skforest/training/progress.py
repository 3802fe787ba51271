"""Progress of training: a bar with tqdm, lines of text without it."""

import sys
import threading
import time
import warnings
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

UNITS = "tree", "epoch"  # names of a member and of a part of its training


@dataclass
class Part:
    """Progress in the training of a member."""

    n_done: int
    total: int
    loss: float | None = None
    least: float = np.inf  # lowest loss
    is_ended: bool = False


class Progress:
    """Shows how many of `total` trees are trained, with tqdm if it is installed.

    With `verbose` 0, it is silent; with 1, it shows a bar, or about ten lines without tqdm; with
    more, it prints a line after every tree. `units` are the names of a tree and of an epoch. From
    the first call of `report_epochs` on, it counts the epochs of all trees.
    """

    def __init__(self, verbose, total, name, units=UNITS):
        self.verbose, self.name, self.units = int(verbose), name, units
        self.n_members, self.parts, self.lock = total, {}, threading.Lock()
        self.start, self.bar, self.counts_parts = time.perf_counter(), None, False
        self.total, self.unit, self.shown, self.is_early = total, units[0], (0, 0), False
        # A single tree, or bags, show their epochs instead, once their number is known.
        if self.verbose and total > 1 and units[0] == UNITS[0]:
            self.bar = _progress_bar(total, name, self.unit)

    @property
    def shows_parts(self):
        """bool: show epochs of trees: trees are counted, if there are several; bags never are."""
        return bool(self.verbose) and (self.n_members == 1 or self.units[0] != UNITS[0])

    def update(self, n_done):
        """Show that `n_done` trees, or epochs, are trained."""
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.update(n_done - self.bar.n)
            return
        step = 1 if self.verbose > 1 else max(1, self.total // 10)
        is_complete = n_done == self.total and self.shown != (n_done, n_done)
        if n_done - self.shown[0] >= step or is_complete:
            self.shown = n_done, self.total
            rate = n_done / max(time.perf_counter() - self.start, 1e-9)
            losses = "".join(f", {name} {value}" for name, value in self._losses().items())
            print(
                f"{self.name}: {n_done} of {self.total} {self.unit}s, {rate:.1f} {self.unit}s/s, "
                f"{(self.total - n_done) / rate:.0f} s left{losses}",
                flush=True,
            )

    def report_epochs(self, n_done, n_epochs, member=0, *, loss=None, best=None, label=""):
        """Show that `n_done` of `n_epochs` epochs of a member are done; see `Control`.

        If the only member is trained again, it has another bar, with the name `label`.
        """
        if not self.verbose:
            return
        with self.lock:
            part = self.parts.get(member)
            is_again = part is not None and (part.is_ended or n_done <= part.n_done)
            if best is not None:  # the last report of this part
                part.total, part.is_ended = n_done, True
            elif part is None or is_again:
                self._begin(member, n_done, n_epochs, label if is_again else "")
            else:
                part.n_done, part.total = n_done, n_epochs
            part = self.parts[member]
            part.is_ended |= n_done == n_epochs
            if loss is not None:
                part.loss, part.least = loss, min(part.least, loss)
            self._show_parts()
            if best is not None:
                self.is_early = True
                if self.n_members == 1:
                    self._show_early_end(f", best {self.unit} {best}")

    def _begin(self, member, n_done, n_epochs, label):
        """Begin the epochs of a member."""
        if self.n_members == 1 and self.counts_parts:  # another bar
            self.close()
            self.start, self.shown, self.bar = time.perf_counter(), (0, 0), None
            if label and (bar := _progress_bar(n_epochs, f"{self.name}, {label}", self.unit)):
                self.bar = bar
            elif label:
                print(f"{self.name}: {label}", flush=True)
        self.unit, self.counts_parts, self.planned = self.units[1], True, n_epochs
        self.parts[member] = Part(n_done, n_epochs)
        if self.bar is None:
            self.bar = _progress_bar(n_epochs * self.n_members, self.name, self.unit)

    def _show_parts(self):
        """Show how many epochs of all members are done."""
        parts = self.parts.values()
        n_waiting = self.n_members - len(parts)
        self.total = sum(part.total for part in parts) + n_waiting * self.planned
        if self.bar is not None:
            self.bar.total = self.total
            self.bar.set_postfix(self._losses(), refresh=False)
        self.update(sum(part.n_done for part in parts))

    def _losses(self):
        """Format the latest and lowest validation loss, averaged over members."""
        parts = [part for part in self.parts.values() if part.loss is not None]
        if not parts:
            return {}
        losses = np.mean([(part.loss, part.least) for part in parts], axis=0)
        return {name: f"{value:.4g}" for name, value in zip(("loss", "best"), losses)}

    def _show_early_end(self, best=""):
        """Say that training was stopped early."""
        if self.bar is not None:
            self.bar.set_description(f"{self.name}, stopped early{best}", refresh=False)
        else:
            print(f"{self.name}: stopped early{best}", flush=True)

    def end_member(self, n_members):
        """Show that the first `n_members` members are trained."""
        if not self.verbose:
            return
        with self.lock:
            if not self.counts_parts:
                if self.bar is None and self.n_members > 1:
                    self.bar = _progress_bar(self.n_members, self.name, self.unit)
                self.update(n_members)
                return
            # Some members make no report, and training may end early.
            part = self.parts.setdefault(n_members - 1, Part(0, 0))
            part.total = part.n_done
            self._show_parts()
            if self.is_early and n_members == self.n_members > 1:
                self._show_early_end()

    def close(self):
        """End the bar, even if training has been interrupted."""
        if self.bar is not None:
            self.bar.refresh()
            self.bar.close()


class Steps:
    """Prints the name of each step, how long it took, and the remaining time.

    With `verbose` above 1, the progress of the step itself follows its name, so its end is
    printed on another line.
    """

    def __init__(self, verbose, name, total=None):
        self.verbose, self.name, self.total = int(verbose), name, total
        self.n_begun, self.seconds = 0, 0.0

    def begin(self, step):
        """Print the step that begins."""
        self.n_begun += 1
        self.step = step if self.total is None else f"[{self.n_begun}/{self.total}] {step}"
        self.start = time.perf_counter()
        if self.verbose:
            end = " " if self.verbose == 1 else "\n"
            print(f"{self.name}: {self.step} ...", end=end, flush=True)

    def end(self, note=""):
        """Print how long the step took, or a `note`, and how long the other steps will take."""
        seconds = time.perf_counter() - self.start
        self.seconds += seconds
        text = note or _seconds(seconds)
        if self.total is not None and self.n_begun < self.total:
            left = self.seconds / self.n_begun * (self.total - self.n_begun)
            text += f", about {_seconds(left)} left"
        if self.verbose:
            print(text if self.verbose == 1 else f"{self.name}: {self.step}: {text}", flush=True)


def _seconds(seconds):
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"


def _progress_bar(total, name, unit):
    """Return a tqdm bar, or None without tqdm."""
    is_first = "tqdm.auto" not in sys.modules
    try:
        # A warning filter applies to all threads, so it is only set for the first import.
        with warnings.catch_warnings() if is_first else nullcontext():
            if is_first:
                warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a text bar
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=name, unit=unit)
