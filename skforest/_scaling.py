"""Floor 3: features in units of their range, for methods that compare them by one norm."""

from __future__ import annotations

import numpy as np

BLOCK = 2**17  # numbers that are in float64 together: they stay in the cache


def min_max(X):
    """Offset and scale of every feature that take X to [0, 1].

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Finite numbers.

    Returns
    -------
    offset, scale : ndarray of shape (n_features,), float64
        The minimum, and the reciprocal of the range; 1 for a constant feature.

    Raises
    ------
    ValueError
        If a range, or its reciprocal, is beyond float64.
    """
    offset = X.min(axis=0).astype(np.float64)
    with np.errstate(over="ignore", divide="ignore"):
        width = X.max(axis=0).astype(np.float64) - offset
        scale = np.where(width > 0, 1 / np.where(width > 0, width, 1), 1.0)
    bad = np.flatnonzero(~(np.isfinite(width) & np.isfinite(scale)))
    if len(bad):
        raise ValueError(
            f"feature {bad[0]} of X has a range of {width[bad[0]]:g}, too wide or too narrow for "
            "float64: rescale it"
        )
    return offset, scale


def scaled(X, offset, scale):
    """(X - offset) * scale, computed in float64 and rounded to float32.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    offset, scale : ndarray of shape (n_features,), float64

    Returns
    -------
    Z : ndarray of shape (n_samples, n_features), float32, C order
        Values far outside the range that `min_max` saw stay within float32.
    """
    Z = np.empty(X.shape, dtype=np.float32)
    limit = np.float64(np.finfo(np.float32).max)
    size = max(16, BLOCK // max(1, X.shape[1]))
    block = np.empty((min(size, len(X)), X.shape[1]))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        part = block[: len(X[rows])]
        with np.errstate(over="ignore"):
            np.subtract(X[rows], offset, out=part)
            part *= scale
        np.clip(part, -limit, limit, out=Z[rows], casting="same_kind")
    return Z
