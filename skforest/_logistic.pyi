import numpy as np
import numpy.typing as npt

class Logistic:
    def __init__(
        self,
        X: npt.NDArray[np.float32],
        n_rows: int,
        seed: int,
        stop: npt.NDArray[np.uint8],
        nu: float,
        learning_rate: float,
        momentum: float,
        batch_size: int,
        n_visits: int,
        max_epochs: int,
        radius: float,
    ) -> None: ...
