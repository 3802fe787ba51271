"""Receptive fields: the features under a window at each of its places in a grid."""

from __future__ import annotations

import math

import numpy as np


def receptive_fields(shape, size, stride=1):
    """Features under a window at all of its places.

    Parameters
    ----------
    shape : tuple of int
        Of the grid that the features fill, in C order.
    size : tuple of int
        Of the window, along the first axes of the grid; it spans all others.
    stride : int, default=1
        Distance of two places along an axis of the window.

    Returns
    -------
    fields : ndarray of shape (n_places, n_features_under_window), int32
    """
    number = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
    windows = np.lib.stride_tricks.sliding_window_view(number, size, axis=range(len(size)))
    windows = windows[(slice(None, None, stride),) * len(size)]
    n_places = math.prod(windows.shape[: len(size)])
    return np.ascontiguousarray(windows.reshape(n_places, -1))
