import numpy as np
import numpy.typing as npt

from ._projection import Sampler
from ._search import SearchSplitter

class SoftSplitter(SearchSplitter):
    def __init__(
        self,
        X: npt.NDArray[np.float32],
        target: npt.NDArray[np.int32 | np.float64],
        n_outputs: int,
        weight: npt.NDArray[np.float64],
        rows: npt.NDArray[np.int32],
        criterion: str,
        seed: int,
        stop: npt.NDArray[np.uint8],
        sampler: Sampler,
        n_candidates: int,
        exact: bool,
        n_bins: int,
        max_search: int,
        min_leaf: int,
        min_weight: float,
        may_overflow: bool,
        mean: npt.NDArray[np.float32],
        unit: npt.NDArray[np.float32],
        places: npt.NDArray[np.int32],
        n_used: int,
        n_epochs: int,
        learning_rate: float,
        steepness: float,
        steepness_step: float,
        batch_size: int,
        n_batches: int,
        smoothness: float,
        edges: npt.NDArray[np.int32],
    ) -> None: ...
