from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

GATES: dict[str, int]

class Router:
    @property
    def max_taps(self) -> int: ...
    def __init__(
        self,
        arrays: Mapping[str, npt.NDArray[np.generic]],
        n_features: int,
        n_outputs: int,
        grid: tuple[Sequence[int], Sequence[bool], Sequence[bool]],
        max_taps: int,
        gate: str,
        steepness: float,
    ) -> None: ...
    def apply(self, X: npt.NDArray[np.uint8 | np.float32]) -> npt.NDArray[np.int32]: ...
    def respond(
        self, X: npt.NDArray[np.uint8 | np.float32], first_tree: int, last_tree: int
    ) -> npt.NDArray[np.float64]: ...
    def expand(
        self, codes: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float32]]: ...
