"""FeatureMap: from the matrix that a user passes to the one that kernels read.

A feature map is fitted once, in `fit`, stored in the `Forest`, and applied alike by `fit`,
`predict` and whatever reads a saved forest. Kernels never see units. `FeatureGrid` describes how
features lie beside each other in an image, a signal or a volume.
"""

import math
from numbers import Integral

import numpy as np

BLOCK = 4096  # rows that are converted together
CACHED = 2**17  # numbers in float64 that stay in the cache
FEW_ROWS = 32  # up to here, validation takes longer than prediction
BYTE_FEATURES = 2**24 // 255  # up to here, sums of bytes are exact in float32
MAX_AXES = 8  # of a feature grid; as in _kernels/direction.pxd
# Scaled values are clipped to this: their products with weights must stay within float32, or
# margins become infinite and their differences NaN.
LIMIT = 2.0**60


class FeatureMap:
    """What happens to the features of a row before the kernels read them.

    Either every feature is scaled, ``(x - offset) * scale`` with `offset` and `scale` of shape
    (n_features,), computed in float64 and rounded to float32; or, without these, features stay as
    they are, as bytes where all values are whole numbers from 0 to 255, and as float32 otherwise.
    """

    def __init__(self, offset=None, scale=None):
        self.offset = np.zeros(0) if offset is None else offset
        self.scale = np.zeros(0) if scale is None else scale

    @classmethod
    def min_max(cls, X, weight):
        """The map from the range of every feature to [0, 1]; rows of weight 0 do not count."""
        return cls(*min_max(X[weight > 0] if (weight == 0).any() else X))

    @property
    def is_scaling(self):
        """bool: are features scaled?"""
        return len(self.scale) > 0

    def transform(self, X):
        """The rows as kernels read them, uint8 or float32 in C order; X has passed validation."""
        return scaled(X, self.offset, self.scale) if self.is_scaling else as_bytes(X)


# -------------------------------------------------------------------------------- scaling features


def min_max(X):
    """Offset and scale of every feature, float64, that take a finite X to [0, 1].

    The minimum, and the reciprocal of the range; 1 for a constant feature. ValueError if a range,
    or its reciprocal, is beyond float64.
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
    """``(X - offset) * scale``, computed in float64 and rounded to float32.

    Values far outside the range that `min_max` saw are clipped to -2^60 .. 2^60.
    """
    Z = np.empty(X.shape, dtype=np.float32)
    size = max(16, CACHED // max(1, X.shape[1]))
    block = np.empty((min(size, len(X)), X.shape[1]))
    for start in range(0, len(X), size):
        rows = slice(start, start + size)
        part = block[: len(X[rows])]
        with np.errstate(over="ignore"):
            np.subtract(X[rows], offset, out=part)
            part *= scale
        np.clip(part, -LIMIT, LIMIT, out=Z[rows], casting="same_kind")
    return Z


# ------------------------------------------------------------------------------------------ dtypes


def input_dtype(X, is_scaling):
    """dtype to which an input is converted before a feature map is applied.

    uint8 for bytes and bools, else float32; or, for maps that scale, what holds X exactly.
    """
    dtype = getattr(X, "dtype", None)
    dtypes = getattr(X, "dtypes", None)
    if dtype is None and dtypes is not None:  # a DataFrame
        names = {str(one) for one in dtypes}
    else:
        names = {str(dtype)}
    if names <= {"uint8", "bool"}:
        return np.uint8
    return np.float64 if is_scaling and names != {"float32"} else np.float32


def few_rows(X, n_features, is_scaling):
    """A few rows in their input dtype if they are plainly valid, else None.

    For a single row, full validation takes several times as long as the prediction. Everything
    that is not a sound matrix of numbers is left to full validation.
    """
    if (
        type(X) is not np.ndarray
        or X.ndim != 2
        or not 0 < len(X) <= FEW_ROWS
        or X.shape[1] != n_features
        or X.dtype not in (np.uint8, np.float32, np.float64)
    ):
        return None
    if X.dtype != np.uint8:
        with np.errstate(over="ignore"):
            X = X if is_scaling else X.astype(np.float32, copy=False)
        if not np.isfinite(X).all():
            return None
    return X if is_scaling else np.ascontiguousarray(X)


def few_frame_rows(X, names):
    """A few rows of a data frame as an ndarray if their columns are the given ones, else None."""
    # Checking the columns and calling `to_numpy` takes a tenth of the time of validation.
    columns = getattr(X, "columns", None)
    if columns is None or not hasattr(X, "to_numpy") or len(X) > FEW_ROWS:
        return None
    if len(columns) != len(names) or list(columns) != names.tolist():
        return None
    X = X.to_numpy()
    return X if X.dtype in (np.uint8, np.float32, np.float64) else None


def as_bytes(X):
    """X as uint8 where all its values are whole numbers from 0 to 255, as in most images.

    A quarter of the memory and the same splits: sums of bytes are exact in both dtypes as long as
    they stay below 2^24, which BYTE_FEATURES ensures.
    """
    if X.dtype == np.uint8 or X.shape[1] > BYTE_FEATURES:
        return X
    parts = []
    with np.errstate(invalid="ignore"):
        # In growing blocks: the first row of other data already answers the question.
        start, size = 0, 1
        while start < len(X):
            block = X[start : start + size]
            part = block.astype(np.uint8)
            if not (part == block).all():
                return X
            parts.append(part)
            start, size = start + size, BLOCK
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


# ------------------------------------------------------------------------------------------ checks


def check_columns(X):
    """Raise for inputs that are not numbers, with the name of the column and what to do."""
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(
            "X is a masked array; fill the masked values first, as with "
            "sklearn.impute.SimpleImputer on X.filled(np.nan)"
        )
    if hasattr(X, "columns") and hasattr(X, "dtypes"):
        for name, dtype in zip(X.columns, X.dtypes):
            _check_kind(_kind_of(X, name, dtype), f"column {name!r} of X")
        return
    X = np.asarray(X) if isinstance(X, list | tuple) and _is_rectangular(X) else X
    dtype = getattr(X, "dtype", None)
    if not isinstance(dtype, np.dtype):
        return
    if dtype.kind == "O" and getattr(X, "ndim", 0) == 2:
        for j, column in enumerate(X.T):
            for value in column:
                if isinstance(value, str | bytes):
                    _check_kind("U", f"column {j} of X", value)
    elif dtype.kind in "US" and X.size:
        _check_kind("U", "X", X.ravel()[0])
    else:
        _check_kind(dtype.kind, "X")


def _is_rectangular(X):
    lengths = {len(row) if isinstance(row, list | tuple | np.ndarray) else 0 for row in X}
    return len(lengths) <= 1


def _kind_of(X, name, dtype):
    """Kind of a column of a data frame, as NumPy abbreviates it."""
    text = str(dtype).lower()
    if isinstance(dtype, np.dtype) and dtype.kind != "O":
        return dtype.kind
    if "datetime" in text or "timestamp" in text or text.startswith("date"):
        return "M"
    if "timedelta" in text or "duration" in text:
        return "m"
    if text.startswith(("str", "utf8", "categor", "enum", "large_string")):
        return "U"
    if isinstance(dtype, np.dtype):
        return "U" if any(isinstance(value, str) for value in X[name]) else "O"
    return "f"


def _check_kind(kind, where, example=None):
    if kind in "US":
        value = "" if example is None else f": {str(example)!r}"
        raise ValueError(
            f"{where} holds strings or categories, numbers are needed; encode them first, as with "
            "sklearn.preprocessing.OneHotEncoder or OrdinalEncoder (could not convert string to "
            f"float{value})"
        )
    if kind in "mM":
        raise TypeError(
            f"{where} holds dates or times, numbers are needed; derive numbers from them first, "
            "such as the year, the day of the week, or the days since a reference date"
        )


def where_not_finite(X):
    """Name of the first column with a value that is not finite, and what to do."""
    try:
        values = np.asarray(X, dtype=np.float64)
        with np.errstate(over="ignore"):
            j = int(np.flatnonzero(~np.isfinite(values.astype(np.float32)).all(axis=0))[0])
    except (TypeError, ValueError, IndexError):
        return ""
    name = getattr(X, "columns", range(j + 1))[j]
    return (
        f"It is in column {name!r}. Fill missing values first, as with "
        "sklearn.impute.SimpleImputer, and remove or clip infinite ones."
    )


# ------------------------------------------------------------------------------------ feature grid


def as_integers(value, name):
    """A positive int, or a flat sequence of them, as a tuple; ValueError for anything else."""
    items = _items(value, name, Integral, "an int of at least 1")
    if any(isinstance(item, bool) or item < 1 for item in items):
        raise ValueError(f"{name}={value!r} must be an int of at least 1, or a sequence of such")
    return tuple(int(item) for item in items)


def as_booleans(value, name):
    """A bool, or a flat sequence of them, as a tuple of bool; ValueError as `as_integers`."""
    return tuple(bool(item) for item in _items(value, name, bool | np.bool_, "True or False"))


def _items(value, name, kind, what):
    items = value if isinstance(value, list | tuple | np.ndarray) else [value]
    if len(items) == 0 or np.ndim(items) > 1 or not all(isinstance(item, kind) for item in items):
        raise ValueError(f"{name}={value!r} must be {what}, or a sequence of such")
    return tuple(items)


class FeatureGrid:
    """The array that the features of a row fill, in C order.

    Without `feature_shape` it has one axis. ValueError if the lengths of the axes do not multiply
    to the number of features.
    """

    def __init__(self, feature_shape, n_features):
        if feature_shape is None:
            self.shape = (n_features,)
            return
        self.shape = as_integers(feature_shape, "feature_shape")
        if math.prod(self.shape) != n_features or len(self.shape) > MAX_AXES:
            raise ValueError(
                f"feature_shape={feature_shape} must have 1 to {MAX_AXES} lengths that multiply "
                f"to the {n_features} features of X; their product is {math.prod(self.shape)}"
            )

    def per_axis(self, values, name, given):
        """One entry for each axis, from a tuple with one entry or one for each axis.

        `name` and `given` are the parameter and its value, for the error message.
        """
        n_axes = len(self.shape)
        if len(values) not in (1, n_axes):
            raise ValueError(
                f"{name}={given} must be one value, or one for each of the {n_axes} axes of "
                f"feature_shape={self.shape}"
            )
        return values * n_axes if len(values) == 1 else values

    def sizes(self, value, name):
        """Lengths of a patch along each axis; ValueError unless in 1 .. length of the axis."""
        sizes = self.per_axis(as_integers(value, name), name, value)
        if any(size > length for size, length in zip(sizes, self.shape)):
            raise ValueError(
                f"{name}={value} must not exceed the lengths of feature_shape={self.shape}"
            )
        return sizes

    def receptive_fields(self, size, stride=1):
        """Features under a patch at each of its places, int32 of shape (n_places, n_in_patch).

        `size` has the lengths of the patch along the first axes; the others are covered whole.
        Places are `stride` entries apart along each of these axes.
        """
        number = np.arange(math.prod(self.shape), dtype=np.int32).reshape(self.shape)
        axes = tuple(range(len(size)))
        windows = np.lib.stride_tricks.sliding_window_view(number, size, axis=axes)
        windows = windows[(slice(None, None, stride),) * len(size)]
        n_places = math.prod(windows.shape[: len(size)])
        return np.ascontiguousarray(windows.reshape(n_places, -1))

    def edges(self):
        """Pairs of neighbours along any axis: int32 of shape (n_edges, 2)."""
        number = np.arange(math.prod(self.shape), dtype=np.int32).reshape(self.shape)
        pairs = []
        for axis in range(number.ndim):
            along = np.moveaxis(number, axis, 0)
            pairs.append(np.stack([along[:-1].ravel(), along[1:].ravel()], axis=1))
        return np.ascontiguousarray(np.concatenate(pairs))
