from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ._logistic import Logistic

class Alternator:
    def __init__(
        self,
        arrays: Mapping[str, npt.NDArray[np.generic]],
        grid: tuple[Sequence[int], Sequence[bool], Sequence[bool]],
        max_taps: int,
        most_sparse: int,
        X: npt.NDArray[np.uint8 | np.float32],
        offset: npt.NDArray[np.float64] | None,
        scale: npt.NDArray[np.float64] | None,
        target: npt.NDArray[np.int32 | np.float64],
        weight: npt.NDArray[np.float64],
        rows: npt.NDArray[np.int32],
        leaf: npt.NDArray[np.int32],
        answer: npt.NDArray[np.int32 | np.float64],
        trainer: Logistic,
    ) -> None: ...
    def sweep(
        self,
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...
    def care_points(self, node: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]: ...
