import numpy as np
import numpy.typing as npt

CRITERIA: dict[str, int]

class NodeSplitter:
    def __init__(
        self,
        X: npt.NDArray[np.uint8 | np.float32],
        target: npt.NDArray[np.int32 | np.float64],
        n_outputs: int,
        weight: npt.NDArray[np.float64],
        rows: npt.NDArray[np.int32],
        criterion: str,
        seed: int,
        stop: npt.NDArray[np.uint8],
    ) -> None: ...
    def values(self) -> dict[str, npt.NDArray[np.float32 | np.int32 | np.int64]]: ...
