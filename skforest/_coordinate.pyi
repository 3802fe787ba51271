import numpy as np
import numpy.typing as npt

from ._projection import Sampler
from ._search import SearchSplitter

class CoordinateSplitter(SearchSplitter):
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
        n_restarts: int,
        n_jumps: int,
    ) -> None: ...
    def step(
        self,
        w: npt.NDArray[np.float64],
        bias: float,
        direction: npt.NDArray[np.float32],
    ) -> tuple[bool, float, npt.NDArray[np.float64], npt.NDArray[np.float64]]: ...
