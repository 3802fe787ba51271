"""Training rows and weights as the kernels want them."""

from __future__ import annotations

import numpy as np
from sklearn.utils import check_array

BLOCK = 4096  # rows that are handled together
FEW = 32  # rows for which validation would dominate
MAX_COUNT = 2**31 - 1  # of rows, and of features: kernels count in 32 bits
BYTE_FEATURES = 2**24 // 255


def table_dtype(X, exact=False):
    """uint8 for bytes and bools, float32 for everything else; or what holds X exactly."""
    dtype = getattr(X, "dtype", None)
    dtypes = getattr(X, "dtypes", None)
    if dtype is None and dtypes is not None:  # a DataFrame
        names = {str(one) for one in dtypes}
    else:
        names = {str(dtype)}
    if names <= {"uint8", "bool"}:
        return np.uint8
    return np.float64 if exact and names != {"float32"} else np.float32


def quick_table(X, n_features, exact=False):
    """A few rows as uint8 or float32, or as they are, if they are plainly valid; else None.

    For a single row, the full validation takes several times as long as the prediction. Whatever
    is not a sound matrix of numbers is left to it.
    """
    if (
        type(X) is not np.ndarray
        or X.ndim != 2
        or not 0 < len(X) <= FEW
        or X.shape[1] != n_features
        or X.dtype not in (np.uint8, np.float32, np.float64)
    ):
        return None
    if X.dtype != np.uint8:
        with np.errstate(over="ignore"):
            X = X if exact else X.astype(np.float32, copy=False)
        if not np.isfinite(X).all():
            return None
    return X if exact else as_bytes(np.ascontiguousarray(X))


def as_bytes(X):
    """X as uint8 where all its values are whole numbers in 0 .. 255, as in most images.

    A quarter of the memory, and the same splits: sums of bytes are exact in both dtypes as long as
    they stay below 2^24, which BYTE_FEATURES makes sure of.
    """
    if X.dtype == np.uint8 or X.shape[1] > BYTE_FEATURES:
        return X
    parts = []
    with np.errstate(invalid="ignore"):
        # In growing blocks: data of another kind is found out by its first row.
        start, size = 0, 1
        while start < len(X):
            block = X[start : start + size]
            part = block.astype(np.uint8)
            if not (part == block).all():
                return X
            parts.append(part)
            start, size = start + size, BLOCK
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def validate_weight(sample_weight, n_samples):
    """Weights as float64: finite, not negative, not all 0."""
    if sample_weight is None:
        return np.ones(n_samples)
    try:
        weight = check_array(
            sample_weight,
            dtype=np.float64,
            ensure_2d=False,
            ensure_min_samples=0,
            input_name="sample_weight",
        )
    except ValueError as error:
        raise ValueError(f"sample_weight is not valid: {error}") from error
    if weight.ndim == 0:
        weight = np.full(n_samples, float(weight))
    if weight.shape != (n_samples,):
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected {(n_samples,)}, one weight a row"
        )
    if (weight < 0).any():
        raise ValueError(
            f"sample_weight has the negative value {weight.min()}; weights are 0 or more"
        )
    if not weight.any():
        raise ValueError("sample_weight is all zero; at least one weight must be positive")
    if not np.isfinite(weight.sum()):
        raise ValueError("sample_weight has an infinite sum; divide it by its largest value")
    return weight


def tame(weight):
    """Weights of an extreme scale times a power of two, which no tree depends on."""
    exponent = np.frexp(weight.max())[1]
    return weight if abs(exponent) <= 60 else np.ldexp(weight, -exponent)


CACHED = 2**17  # numbers that are in float64 together: they stay in the cache


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
    size = max(16, CACHED // max(1, X.shape[1]))
    block = np.empty((min(size, len(X)), X.shape[1]))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        part = block[: len(X[rows])]
        with np.errstate(over="ignore"):
            np.subtract(X[rows], offset, out=part)
            part *= scale
        np.clip(part, -limit, limit, out=Z[rows], casting="same_kind")
    return Z
