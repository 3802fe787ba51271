"""Warnings that point to the line of the user."""

import sys
import warnings
from contextlib import contextmanager
from contextvars import ContextVar

OWN_PACKAGES = ("skforest", "sklearn")  # at whose lines no user is warned

_told = ContextVar("told", default=None)  # messages within `each_warning_once`


@contextmanager
def each_warning_once():
    """Within it, `warn_caller` says the same only once: members of a blend read the same table."""
    token = _told.set(set() if _told.get() is None else _told.get())
    try:
        yield
    finally:
        _told.reset(token)


def warn_caller(message):
    """Warn at the line that called this package, whatever decorators there are around it."""
    told = _told.get()
    if told is not None and message in told:
        return
    if told is not None:
        told.add(message)
    frame, level = sys._getframe(), 1
    # The __name__ of code that `exec` runs may be missing or None.
    while frame.f_back and str(frame.f_globals.get("__name__")).split(".")[0] in OWN_PACKAGES:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
