"""Floor 4: progress of a fit, by tqdm where it is installed, else by lines of text."""

from __future__ import annotations

import time
import warnings


def _bar(total, name):
    """A tqdm bar; None without tqdm."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a notebook without ipywidgets gets a text bar
            from tqdm.auto import tqdm
    except ImportError:
        return None
    return tqdm(total=total, desc=name, unit="tree")


class Progress:
    """Shows how many of `total` trees are done.

    Parameters
    ----------
    verbose : int
        0: silent. 1: a bar, or about ten lines. More: a line after every tree, without tqdm.
    total : int
    name : str
    """

    def __init__(self, verbose, total, name):
        self.verbose = int(verbose)
        self.total = total
        self.name = name
        self.start = time.perf_counter()
        self.shown = 0
        self.bar = _bar(total, name) if self.verbose else None

    def update(self, done):
        """Tell that `done` trees are done."""
        if not self.verbose:
            return
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
            return
        step = 1 if self.verbose > 1 else max(1, self.total // 10)
        if done - self.shown >= step or done == self.total:
            self.shown = done
            rate = done / max(time.perf_counter() - self.start, 1e-9)
            print(
                f"{self.name}: {done} of {self.total} trees, {rate:.1f} trees/s, "
                f"{(self.total - done) / rate:.0f} s left",
                flush=True,
            )

    def close(self):
        """The fit has ended."""
        if self.bar is not None:
            self.bar.close()
