from typing import Any, Literal

import numpy as np
import numpy.typing as npt

class SoftTrainer:
    def __init__(
        self,
        X: npt.NDArray[np.float32],
        target: npt.NDArray[np.int32 | np.float64],
        n_outputs: int,
        weight: npt.NDArray[np.float64],
        mean: npt.NDArray[np.float32],
        unit: npt.NDArray[np.float32],
        child: npt.NDArray[np.int32],
        W: npt.NDArray[np.float32],
        threshold: npt.NDArray[np.float32],
        batch_size: int,
        smoothness: float,
        edges: npt.NDArray[np.int32],
        seed: int,
        stop: npt.NDArray[np.uint8],
        engine: Literal["auto", "lists", "products"] = "auto",
    ) -> None: ...
    def run(self, steepness: float, rate: float) -> float: ...
    def look(self, steepness: float) -> dict[str, Any]: ...
    def settle(self) -> None: ...
    def planes(self) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]: ...
    @property
    def leaves(self) -> Any: ...
    @property
    def visited(self) -> float: ...
    @property
    def work_done(self) -> int: ...
