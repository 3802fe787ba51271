import numpy as np
import numpy.typing as npt

class JointTrainer:
    def __init__(
        self,
        X: npt.NDArray[np.float32],
        target: npt.NDArray[np.int32 | np.float64],
        n_outputs: int,
        weight: npt.NDArray[np.float64],
        child: npt.NDArray[np.int32],
        W: npt.NDArray[np.float32],
        threshold: npt.NDArray[np.float32],
        leaves: tuple[
            npt.NDArray[np.int64],
            npt.NDArray[np.int32],
            npt.NDArray[np.float64],
            npt.NDArray[np.float64],
        ],
        seed: int,
        stop: npt.NDArray[np.uint8],
        radius: float,
        nu: float,
        momentum: float,
        batch_size: int,
        max_flips: int,
        stable: bool,
        l1: float,
    ) -> None: ...
    def epoch(self, rate: float) -> float: ...
    def route(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]: ...
    def assign(self) -> npt.NDArray[np.int32]: ...
    def bounds(
        self,
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32], npt.NDArray[np.int32]]: ...
    def planes(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...
    def losses(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]: ...
    def set_leaves(
        self,
        start: npt.NDArray[np.int64],
        label: npt.NDArray[np.int32],
        theta: npt.NDArray[np.float64],
        other: npt.NDArray[np.float64],
    ) -> None: ...
