"""Rows of boosting with their bins and targets, which all bags of a model share."""

import numpy as np
from scipy import sparse

from .._kernels.boosting.bins import BinnedDirections, bin_columns
from .._kernels.boosting.trainer import TreeGrower
from .._kernels.search.projection import BoxSampler
from ..forest.edit import join_starts
from .constraints import Interactions
from .threads import in_threads

# Chosen without a stored measurement.
MAX_TERMS = 4  # features of an oblique direction
FEATURE_BINS, DIRECTION_BINS = 255, 64  # largest numbers of bins
CONTRAST = "mix"  # boxes are sums, or differences of two sums
# The sides of the largest box are the lengths of the array to this power. It is larger than in
# manifold forests, because a tree has few directions, all of which must be worth a split. See the
# errors of `python -m benchmarks.measure.boosting boxes`.
BOX_POWER = 2 / 3


class BoostingRows:
    """Rows, their bins and their targets.

    Parameters
    ----------
    data : TrainingSet
        If it has folds, each bag leaves out a different one. Otherwise, all bags hold out the last
        rows, which have weights in `left_out_weight`, see `TrainingSet.joined_with_validation`.
    settings : BoostingSettings
    n_threads : int

    Attributes
    ----------
    n_given : int
        Number of the rows that all bags hold out.
    unit : ndarray of shape (n_features,), float32
    target : ndarray of shape (n_rows, n_columns), float64
        Target for the kernel of the loss.
    start : ndarray of shape (n_outputs,), float64
        Initial raw prediction.
    response_unit : ndarray of shape (n_outputs,)
        Factors of raw predictions in a Forest.
    y, count, baseline : ndarray
        Those of the TrainingSet.
    """

    def __init__(self, data, settings, n_threads=1):
        scale = settings.loss.scale
        self.target = scale.standardized(data.target, data.units)
        self.start, self.response_unit = scale.start(data.baseline), data.units.response
        self.y, self.count, self.baseline = data.y, data.count, data.baseline
        self.monotonic, self.feature_shape = settings.monotonic, settings.feature_shape
        self.interacting, self.unit = settings.interacting, data.unit()
        source = data.feature_map.source
        self.column = source if len(source) else np.arange(data.X.shape[1])
        if sparse.issparse(data.X):
            self.X, self.columns = data.X, data.X.tocsc()
        else:
            self.X = np.ascontiguousarray(data.X)
            self.columns = np.empty(data.X.shape[::-1], dtype=np.float32)
        is_given = data.fold is None and data.left_out_weight is not None
        self.n_given = np.count_nonzero(data.left_out_weight) if is_given else 0
        self.cut, self.cut_start, self.code = self._bins(len(data) - self.n_given, n_threads)

    def _bins(self, n_training, n_threads):
        """Return the bins of all columns, see `bin_columns`; parts of the columns in threads."""

        def bins(part):
            if sparse.issparse(self.X):
                return bin_columns(self.columns[:, part], FEATURE_BINS, n_training)
            self.columns[part] = self.X.T[part]
            return bin_columns(self.columns[part], FEATURE_BINS, n_training)

        n_columns = self.X.shape[1]
        size = -(-n_columns // n_threads)
        parts = [slice(start, start + size) for start in range(0, n_columns, size)]
        cuts, starts, codes = zip(*in_threads(bins, parts, n_threads))
        code = codes[0] if len(codes) == 1 else np.concatenate(codes)
        return np.concatenate(cuts), join_starts(starts).astype(np.int32), code

    def interactions(self):
        """Return the interaction constraints for one bag, or None."""
        return None if self.interacting is None else Interactions(self.interacting, self.column)

    def grower(self, settings, interactions):
        """Return the kernel that grows the trees of one bag."""
        has_directions, max_terms = self.X.shape[1] > 1, MAX_TERMS
        if interactions is not None:
            max_terms = interactions.max_terms(max_terms)
            even = interactions.chances(np.ones(self.X.shape[1]))
            has_directions = max_terms > 1 and even.any()
        n_directions = settings.n_directions if has_directions else 0
        boxes = None if self.feature_shape is None else self._box_sampler()
        directions = BinnedDirections(self, n_directions, max_terms, DIRECTION_BINS, boxes)
        return TreeGrower(self, settings, directions)

    def _box_sampler(self):
        """Return the distribution of boxes, with scratch memory for one bag."""
        shape, no = self.feature_shape, (False,) * len(self.feature_shape)
        # Round up, but ignore rounding errors.
        largest = np.ceil(np.array(shape) ** BOX_POWER - 1e-9).astype(np.int32)
        return BoxSampler(shape, no, no, np.ones_like(largest), largest, CONTRAST, False)

    def empty_tree(self):
        """Return the arrays of a tree without a split."""
        n_axes = 1 if self.feature_shape is None else len(self.feature_shape)
        return {
            "child": np.array([-1], dtype=np.int32),
            "node_weight": np.zeros(1),
            "threshold": np.zeros(0, dtype=np.float32),
            "direction": np.zeros(0, dtype=np.int32),
            "gain": np.zeros(0, dtype=np.float32),
            "box_corner": np.zeros(0, dtype=np.int32),
            "box_other": np.zeros(0, dtype=np.int32),
            "box_size": np.zeros((0, n_axes), dtype=np.int32),
            "sparse_start": np.zeros(1, dtype=np.int64),
            "sparse_feature": np.zeros(0, dtype=np.int32),
            "sparse_weight": np.zeros(0, dtype=np.float32),
        }
