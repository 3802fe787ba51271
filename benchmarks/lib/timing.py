"""Timing in turn, and information about the machine."""

import os
import platform
import statistics
import sys
import time
from pathlib import Path

from benchmarks.lib.worker import versions


def seconds(function, *arguments):
    """Return the wall-clock seconds of one call."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def interleave(functions, rounds, warm_up=True):
    """Call every function once a round, A B A B ..., so that a slow minute affects all alike.

    Parameters
    ----------
    functions : dict of str to callable
        Each takes the number of the round and returns its measurement.
    rounds : int
        Number of rounds.
    warm_up : bool
        Whether one more round, numbered `rounds`, runs before and is discarded.

    Returns
    -------
    dict of str to list
        The measurements of each function, round by round.
    """
    measured = {name: [] for name in functions}
    order = [rounds] * warm_up + list(range(rounds))
    for number in order:
        for name, function in functions.items():
            measured[name].append(function(number))
    return {name: values[warm_up:] for name, values in measured.items()}


def ratios(above, below):
    """Return the ratios of two lists, pair by pair."""
    return [a / b for a, b in zip(above, below, strict=True)]


def mean_sd(values):
    """Format mean and standard deviation."""
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.fmean(values):.2f} +- {spread:.2f}"


def environment():
    """Return versions, processor and vector instructions of this process."""
    return {
        "python": platform.python_version() + getattr(sys, "abiflags", ""),  # t: free-threaded
        **versions(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _cpuinfo("model name") or platform.processor() or platform.machine(),
        "vector": next((v for v in ("avx512f", "avx2", "asimd") if v in _flags()), "baseline"),
        "cores": os.cpu_count(),
    }


def _cpuinfo(key):
    """Return the first value of a key of /proc/cpuinfo, or an empty string."""
    path = Path("/proc/cpuinfo")
    for line in path.read_text().splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _flags():
    return (_cpuinfo("flags") or _cpuinfo("Features")).split()
