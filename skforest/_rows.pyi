import numpy as np
import numpy.typing as npt

def tree_seed(seed: int, tree: int) -> int: ...

class RowOrder:
    def __init__(
        self, X: npt.NDArray[np.uint8 | np.float32], Y: npt.NDArray[np.float64]
    ) -> None: ...
    def hashes(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]: ...
    def settle(
        self, rows: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.bool_]: ...

class RowSet:
    X: npt.NDArray[np.uint8 | np.float32]
    Y: npt.NDArray[np.float64]
    weight: npt.NDArray[np.float64]
    position: npt.NDArray[np.int64]
    def __init__(
        self,
        X: npt.NDArray[np.uint8 | np.float32],
        Y: npt.NDArray[np.float64],
        weight: npt.NDArray[np.float64],
    ) -> None: ...
    def __len__(self) -> int: ...
    def spread(self) -> npt.NDArray[np.float32]: ...
    def bootstrap(self, seed: int, n_draws: int) -> npt.NDArray[np.float64]: ...
