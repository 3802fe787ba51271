"""Floor 4: training rows and weights as the kernels want them."""

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
