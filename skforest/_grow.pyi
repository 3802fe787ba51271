import numpy as np
import numpy.typing as npt

from ._split import NodeSplitter

class Grower:
    def __init__(
        self,
        splitter: NodeSplitter,
        max_depth: int,
        min_split: int,
        min_gain: float,
        max_leaves: int,
    ) -> None: ...
    def grow(self) -> dict[str, npt.NDArray[np.float32 | np.float64 | np.int32]]: ...
