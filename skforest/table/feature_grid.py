"""The positions of features in an image, a signal or a volume, or their neighbours in a graph.

`windows_of` makes such features from the surroundings of every pixel.
"""

import math
from numbers import Integral

import numpy as np
from scipy import sparse

from .matrix import refuse_masked

MAX_AXES = 8  # of a feature grid; as in _kernels/base/direction.pxd


def as_integers(value, name):
    """Convert a positive int, or a flat sequence of them, to a tuple; else raise ValueError."""
    items = _items(value, name, Integral, "an int of at least 1")
    if any(isinstance(item, bool) or item < 1 for item in items):
        raise ValueError(f"{name}={value!r} must be an int of at least 1, or a sequence of such")
    return tuple(int(item) for item in items)


def as_booleans(value, name):
    """Convert a bool, or a flat sequence of them, to a tuple; else raise ValueError."""
    return tuple(bool(item) for item in _items(value, name, bool | np.bool_, "True or False"))


def _items(value, name, kind, what):
    is_sequence = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim)
    items = value if is_sequence else [value]
    if len(items) == 0 or np.ndim(items) > 1 or not all(isinstance(item, kind) for item in items):
        raise ValueError(f"{name}={value!r} must be {what}, or a sequence of such")
    return tuple(items)


class FeatureGrid:
    """The array that the features of a row fill, in C order.

    Without `feature_shape` it has one axis. ValueError if the lengths of the axes do not multiply
    to the number of features.
    """

    def __init__(self, feature_shape, n_features):
        self.is_row = feature_shape is None
        if self.is_row:
            self.shape = (n_features,)
            return
        self.shape = as_integers(feature_shape, "feature_shape")
        if math.prod(self.shape) != n_features or len(self.shape) > MAX_AXES:
            raise ValueError(
                f"feature_shape={feature_shape} must have 1 to {MAX_AXES} lengths that multiply "
                f"to the {n_features} features of X; their product is {math.prod(self.shape)}"
            )

    def per_axis(self, values, name, given):
        """Return one entry for each axis, from a tuple with one entry in all or for each axis.

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
        """Return the lengths of a patch along each axis; ValueError if one exceeds its axis."""
        sizes = self.per_axis(as_integers(value, name), name, value)
        if any(size > length for size, length in zip(sizes, self.shape)):
            limits = f"lengths of feature_shape={self.shape}"
            if self.is_row:
                limits = f"{self.shape[0]} features of X"
            raise ValueError(f"{name}={value} must not exceed the {limits}")
        return sizes

    def receptive_fields(self, size, stride=1):
        """Return the features under a patch at each place: int32, (n_places, n_in_patch).

        `size` has the lengths of the patch along the first axes, along which places are `stride`
        entries apart. The patch covers the other axes completely.
        """
        number = np.arange(math.prod(self.shape), dtype=np.int32).reshape(self.shape)
        axes = tuple(range(len(size)))
        windows = np.lib.stride_tricks.sliding_window_view(number, size, axis=axes)
        windows = windows[(slice(None, None, stride),) * len(size)]
        n_places = math.prod(windows.shape[: len(size)])
        return np.ascontiguousarray(windows.reshape(n_places, -1))

    @classmethod
    def of_images(cls, shape, n_features):
        """Return the grid of images for convolutions; ValueError for other shapes."""
        if shape is None:
            raise ValueError("features='conv' needs feature_shape, such as (28, 28)")
        grid = cls(shape, n_features)
        if len(grid.shape) not in (2, 3):
            raise ValueError(
                f"feature_shape={shape!r} must be (height, width) or (height, width, channels) "
                "for features='conv'"
            )
        return grid

    def kernel_fields(self, size, stride):
        """Return the `receptive_fields` of a square kernel; ValueError if it has no place."""
        if size > min(self.shape[:2]):
            raise ValueError(f"kernel_size={size} is larger than feature_shape={self.shape}")
        return self.receptive_fields((size, size), stride)

    def edges(self):
        """Return the pairs of neighbours along any axis: int32 of shape (n_edges, 2)."""
        number = np.arange(math.prod(self.shape), dtype=np.int32).reshape(self.shape)
        pairs = []
        for axis in range(number.ndim):
            along = np.moveaxis(number, axis, 0)
            pairs.append(np.stack([along[:-1].ravel(), along[1:].ravel()], axis=1))
        return np.ascontiguousarray(np.concatenate(pairs))


class FeatureGraph:
    """The graph of the features with a symmetric adjacency matrix, dense or sparse.

    The neighbours of feature j are ``neighbour[start[j] : start[j + 1]]``, int32. Every entry that
    is not 0 connects two features; its size is not used, and the diagonal is ignored. ValueError
    unless there is a row for each of the features, and entries are finite and not negative. The
    labels of a data frame are matched with `names`, those of the features, or None.
    """

    def __init__(self, adjacency, n_features, names=None):
        entries = _entries(in_order(adjacency, names))
        if entries.shape != (n_features, n_features):
            raise ValueError(
                f"feature_graph has the shape {entries.shape}; it must have one row and one "
                f"column for each of the {n_features} features of X"
            )
        is_wrong = ~(np.isfinite(entries.data) & (entries.data >= 0))
        if is_wrong.any():
            raise ValueError(
                f"feature_graph has the entry {entries.data[is_wrong][0]}; all entries must be "
                "finite and not negative"
            )
        is_edge = (entries.data != 0) & (entries.row != entries.col)
        edges = sparse.csr_array(
            (np.ones(is_edge.sum(), dtype=np.int32), (entries.row[is_edge], entries.col[is_edge])),
            shape=entries.shape,
        )
        edges.data[:] = 1  # entries of a sparse matrix may be given twice
        alone = (edges > edges.T).tocoo()
        if alone.nnz:
            i, j = int(alone.row[0]), int(alone.col[0])
            raise ValueError(
                f"feature_graph must be symmetric, but its entry [{i}, {j}] is not 0 and "
                f"[{j}, {i}] is; the sum of a matrix and its transpose is symmetric"
            )
        self.start, self.neighbour = (
            part.astype(np.int32) for part in (edges.indptr, edges.indices)
        )

    @property
    def usual_steps(self):
        """The number of steps, at least 1, within which a feature has about sqrt(p) features.

        Those are as many as in the largest patch of a grid. Their mean number is nearest to
        sqrt(p) as a ratio.
        """
        n = len(self.start) - 1
        ones = np.ones(len(self.neighbour), dtype=np.int32)
        edges = sparse.csr_array((ones, self.neighbour, self.start), shape=(n, n))
        rows = np.unique(np.linspace(0, n - 1, 1000).astype(int))
        near, steps = edges[rows] + sparse.eye_array(n, format="csr", dtype=np.int32)[rows], 1
        while True:
            wider = near @ edges + near
            wider.data[:] = 1
            if wider.nnz * near.nnz > n * len(rows) ** 2 or wider.nnz == near.nnz:
                return steps
            near, steps = wider, steps + 1


def in_order(adjacency, names):
    """The matrix of a data frame, in the order of the names; anything else unchanged."""
    if not hasattr(adjacency, "columns"):
        return adjacency
    columns = list(adjacency.columns)
    rows = list(getattr(adjacency, "index", columns))
    is_named = names is not None and columns != list(range(len(columns)))
    wanted = list(names) if is_named else columns
    for axis, labels in (("columns", columns), ("rows", rows)):
        if len(set(labels)) < len(labels) or set(labels) != set(wanted):
            own = "its columns" if not is_named else "the columns of X"
            raise ValueError(
                f"the {axis} of feature_graph are labelled {labels!r:.99}; they must be labelled "
                f"like {own}, {wanted!r:.99}"
            )
    order = [[labels.index(name) for name in wanted] for labels in (rows, columns)]
    return np.asarray(adjacency)[np.ix_(*order)]


def _entries(adjacency):
    """A matrix of numbers in coordinates; ValueError for anything else."""
    try:
        if not sparse.issparse(adjacency):
            refuse_masked(adjacency, "feature_graph", "replace the masked entries first, as by 0")
            if np.iscomplexobj(adjacency):
                raise TypeError("its entries are complex")
            adjacency = np.asarray(adjacency, dtype=np.float64)
        elif adjacency.dtype.kind not in "biuf":
            raise TypeError(f"its entries are {adjacency.dtype}")
        elif hasattr(adjacency, "check_format"):
            adjacency.check_format()
        return sparse.coo_array(adjacency)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"feature_graph={adjacency!r:.99} is no matrix of numbers: {error}"
        ) from None


def windows_of(image, shape):
    """Windows around all pixels of an image, as a view.

    A forest labels pixels if its rows are windows, and its `feature_shape` the shape of one. All
    windows together have as many numbers as the image has pixels, times the size of a window; the
    view needs the memory of one copy of the image, which is padded at the borders by reflection.

    Parameters
    ----------
    image : array-like of shape (n_rows, n_columns) or (n_rows, n_columns, n_channels)
        Or an array with any number of axes, such as a signal or a volume.
    shape : int or sequence of int
        Lengths of a window along the first axes of the image, each at least 1. An int stands for
        two equal lengths, of images with or without channels. The image may have one more axis,
        the channels, which windows contain whole.

    Returns
    -------
    windows : ndarray of shape (n_rows, n_columns, \\*shape[, n_channels])
        Read-only, in the dtype of the image. The pixel itself is the entry at ``length // 2``
        along each axis of its window.

    Raises
    ------
    ValueError
        If a length is below 1, the image is empty, or their numbers of axes do not match.
    TypeError
        If the image is a masked array.

    See Also
    --------
    ManifoldForestClassifier : Its splits are patches of a window.

    Notes
    -----
    Indexing with arrays copies the chosen windows only: ``windows[i, j]`` are those of the pixels
    ``(i[0], j[0])``, ``(i[1], j[1])``, and so on. ``windows.reshape(-1, *shape)`` copies all of
    them. Predict one row of pixels at a time instead, as below, which takes about as long: only
    the windows of this row are copied. With `n_jobs`, take several rows of pixels, since threads
    share blocks of 4096 windows. Estimators without `feature_shape` take flat windows,
    ``row.reshape(len(row), -1)``.

    For a stack of images, ``shape=(1, 9, 9)`` makes windows of each image alone.

    Examples
    --------
    >>> import numpy as np
    >>> from skforest import ManifoldForestClassifier, windows_of
    >>> rng = np.random.default_rng(0)
    >>> rows, columns = np.indices((60, 60))
    >>> inside = (rows - 30) ** 2 + (columns - 30) ** 2 < 400
    >>> image = inside + rng.normal(scale=0.7, size=inside.shape)
    >>> windows = windows_of(image, 7)
    >>> windows.shape
    (60, 60, 7, 7)
    >>> forest = ManifoldForestClassifier(30, feature_shape=(7, 7), random_state=0)
    >>> i, j = rng.integers(60, size=(2, 400))  # of pixels that are labelled
    >>> forest = forest.fit(windows[i, j], inside[i, j])
    >>> labels = np.stack([forest.predict(row) for row in windows])
    >>> print(f"{(labels == inside).mean():.0%} of the pixels")
    99% of the pixels
    """
    if np.ma.isMaskedArray(image):
        raise TypeError(
            "image is a masked array; replace the masked values by NaN first: image.filled(np.nan)"
        )
    image, lengths = np.asarray(image), as_integers(shape, "shape")
    if np.ndim(shape) == 0:
        lengths *= 2
    n_axes = len(lengths)
    if image.ndim not in (n_axes, n_axes + 1) or not image.size:
        raise ValueError(
            f"image has shape {image.shape}; shape={shape!r} needs {n_axes} axes of at least one "
            f"pixel, or {n_axes + 1} with channels"
        )
    borders = [(length // 2, (length - 1) // 2) for length in lengths]
    borders += [(0, 0)] * (image.ndim - n_axes)
    padded = np.pad(image, borders, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, lengths, axis=range(n_axes))
    if image.ndim > n_axes:  # channels stand before the window
        windows = np.moveaxis(windows, n_axes, -1)
    return windows
