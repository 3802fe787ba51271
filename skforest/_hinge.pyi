import numpy as np
import numpy.typing as npt

from ._loss import Loss

OPTIMIZERS: dict[str, int]

def padded(n: int) -> int: ...
def padded_vector(n: int) -> int: ...

class HingeTrainer:
    arrays: dict[str, npt.NDArray]
    def __init__(
        self,
        arrays: dict[str, npt.NDArray],
        n_columns: int,
        depth: int,
        leaf_scale: float,
        fern: bool,
        loss: Loss,
        optimizer: str,
        momentum: float,
        decay: float,
        dropout: float,
        batch_size: int,
        seed: int,
        stop: npt.NDArray[np.uint8],
    ) -> None: ...
    def __setstate__(self, state: int) -> None: ...
    def feed(
        self,
        table: npt.NDArray[np.float32],
        target: npt.NDArray[np.float64],
        weight: npt.NDArray[np.float64],
    ) -> None: ...
    def begin(self, n_rows: int) -> None: ...
    def restore(self, arrays: dict[str, npt.NDArray]) -> None: ...
    def run(self, rates: npt.NDArray[np.float64]) -> float: ...
    def respond(self, table: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]: ...
    def survey(
        self, table: npt.NDArray[np.float32], weight: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]: ...
    def gradients(
        self, table: npt.NDArray[np.float32], target: npt.NDArray[np.float64]
    ) -> tuple[float, dict[str, npt.NDArray[np.float32]]]: ...
