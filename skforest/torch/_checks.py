"""Checks of the parameters of the modules."""

from __future__ import annotations

from numbers import Integral


def check_int(name, value, low, high=None):
    """Return an int from `low` to `high`; raise if the value is none.

    Parameters
    ----------
    name : str
        Name of the parameter, for the message.
    value : object
    low : int
        Smallest valid value.
    high : int, default=None
        Largest valid value.

    Returns
    -------
    value : int

    Raises
    ------
    TypeError
        If the value is not an int.
    ValueError
        If the value is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} must be an int")
    if value < low or (high is not None and value > high):
        valid = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name}={value} must be {valid}")
    return int(value)


def check_option(name, value, options):
    """Return a value that is one of some options; raise ValueError if it is none.

    Parameters
    ----------
    name : str
        Name of the parameter, for the message.
    value : object
    options : tuple of (str or None)
        Valid values, at least two.

    Returns
    -------
    value : str or None

    Raises
    ------
    ValueError
        If the value is not one of the options.
    """
    if value not in options:
        *most, last = (f'"{option}"' if option else repr(option) for option in options)
        raise ValueError(f"{name}={value!r} must be {', '.join(most)} or {last}")
    return value
