import numpy as np
import numpy.typing as npt

from ._projection import Sampler
from ._search import SearchSplitter

OBJECTIVES: dict[str, int]

class StumpSplitter(SearchSplitter):
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
        objective: str,
        nu: float,
        learning_rate: float,
        momentum: float,
        batch_size: int,
        n_visits: int,
        max_epochs: int,
        smoothing: float,
        radius: float,
        holdout: float,
        old_signs: bool,
        gradient_leaves: bool,
        keeps_last: bool,
    ) -> None: ...
